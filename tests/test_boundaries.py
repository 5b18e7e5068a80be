"""Where one branch of the mathematics meets another: zeros, ends of ranges, horizons of one and two steps."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from helpers import random_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import rel_entr
from test_coupled import HORIZON, coupled_model, couplings
from test_nature import random_model as general_model

from dp_ensemble_env.chain import ensemble, estimate_chain
from dp_ensemble_env.chain.event import _Lookup
from dp_ensemble_env.control import coupled, sampling
from dp_ensemble_env.control.cost import cost_of_privacy, policy_cost, release_cost, release_cost_leading_order
from dp_ensemble_env.control.coupled import _Dual, solve_coupled
from dp_ensemble_env.control.dynamics import default_kernel
from dp_ensemble_env.control.lsmdp import evaluate_policy, log_probabilities, solve
from dp_ensemble_env.control.policies import (
    as_tilt,
    average_policy,
    expansion_values,
    solve_policy,
    solve_standard,
    solve_with,
    standard_policy,
    taylor_kernel,
)
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.envs import EnsembleEnv, functional
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.validation import LARGEST_PENALTY

FREE = np.array([[0.5, 0.3, 0.2], [0.25, 0.25, 0.5], [0.1, 0.1, 0.8]])
CERTAIN = np.array([[0.0, 1.0, 0.0], [0.0, 0.4, 0.6], [1.0, 0.0, 0.0]])  # one row of two successors
UTILITY = np.array([[0.0, -1.0, -3.0], [0.0, -2.0, -0.4], [0.5, -1.0, -2.0]])


def varying(*matrices, utility=UTILITY):
    """A problem of as many steps as matrices, some of whose transitions are impossible at some times only."""
    return EnsembleModel(np.stack(matrices), [0, 1, 2], utility[: len(matrices) + 1], 1.5)


BOTH_WAYS = [varying(FREE, CERTAIN), varying(CERTAIN, FREE)]


def dirichlet_policies(model, k, samples, rng):
    """The optimal policy of every private copy, drawn by NumPy row by row: (samples, T, n, n)."""
    found = []
    for _ in range(samples):
        private = np.zeros_like(model.default)
        for row in np.ndindex(model.default.shape[:-1]):
            on = model.default[row] > 0
            private[(*row, on)] = rng.dirichlet(k * model.default[row][on])
        found.append(private)
    with np.errstate(divide="ignore"):
        return np.stack([solve(np.log(one), model.utility, model.discomfort_penalty).policy for one in found])


# ------------------------------------------------------------------ draws
@pytest.mark.parametrize("k", [0.6, 2.0, 2.5, 12.0])
def test_private_rows_have_the_beta_distribution(k):
    """Entries of a drawn row of two are Beta distributed; shapes below, at and above one take different branches."""
    p, samples = np.array([[0.4, 0.6, 0.5, 0.5]]), 200_000
    indptr, out = np.array([0, 2, 4]), np.empty((1, 4, 200_000))
    constants = sampling.gamma_constants(p, k)
    sampling.draw_log_ratios(np.random.default_rng(3), indptr, p, constants, samples, out)
    for entry in (0, 2):
        found = stats.kstest(
            np.exp(out[0, entry]) * p[0, entry], stats.beta(k * p[0, entry], k * (1 - p[0, entry])).cdf
        )
        assert found.pvalue > 1e-4
    assert_allclose((np.exp(out[0]) * p[0][:, None])[:2].sum(axis=0), 1.0, rtol=1e-12)


def test_both_forms_of_the_draws_are_the_same_numbers():
    """A possible, an impossible and a certain transition: private / true, and its logarithm."""
    p, indptr = np.array([[0.3, 0.7, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.6, 0.4]]), np.array([0, 2, 5])
    constants, ratio, logs = sampling.gamma_constants(p, 3.0), np.full((2, 5, 7), 9.0), np.full((2, 5, 7), 9.0)
    sampling.draw_ratios(np.random.default_rng(0), indptr, p, constants, 7, ratio)
    sampling.draw_log_ratios(np.random.default_rng(0), indptr, p, constants, 7, logs)
    assert_allclose(ratio, np.exp(logs), rtol=1e-12)
    assert_array_equal(ratio[p == 0], 0.0)
    assert_array_equal(ratio[0, 3], 1.0)
    assert_allclose(np.add.reduceat(ratio * p[..., None], indptr[:-1], axis=1), 1.0, rtol=1e-12)


# ------------------------------------------------------------------ impossible at some times
@pytest.mark.parametrize("model", BOTH_WAYS)
@pytest.mark.parametrize("name", ["taylor", "digamma", "average-sampled", "average-expansion", "average-exact"])
def test_zeros_of_some_times_stay_zeros_and_the_rest_is_a_policy(model, name):
    more = {"samples": 40, "rng": 0} if name == "average-sampled" else {}
    policy = solve_policy(model, name, 30.0, **more)
    assert_array_equal(policy[model.default == 0], 0.0)
    assert (policy[model.default > 0] > 0).all()
    assert_allclose(policy.sum(axis=-1), 1.0, rtol=1e-12)
    assert_array_equal(solve_policy(model, name, np.inf, **more), standard_policy(model))
    assert not np.isnan(taylor_kernel(model, np.inf).log_values).any()


@pytest.mark.parametrize("model", BOTH_WAYS)
def test_the_average_and_its_cost_at_each_of_two_times(model):
    """Against NumPy's Dirichlet draws, with error bars; the rows of one time must not be used at the other."""
    k, samples = 4.0, 4000
    drawn = dirichlet_policies(model, k, samples, np.random.default_rng(1))
    error = drawn.std(axis=0) / np.sqrt(samples)
    average = average_policy(model, k, "sampled", 40_000, 2)
    assert (np.abs(average - drawn.mean(axis=0)) <= 6 * error + 1e-12).all()
    # What each draw costs on the true dynamics, by evaluation of its policy.
    best = solve_standard(model).cost_to_go[:-1]
    played = [evaluate_policy(one, model.default, model.utility, 1.5)[:-1] - best for one in drawn[:1500]]
    found = cost_of_privacy(model, k, "release", samples=6000, rng=3)
    bar = np.std(played, axis=0) / np.sqrt(len(played))
    assert (np.abs(found - np.mean(played, axis=0)) <= 6 * bar + 1e-12).all() and (found[1, 1] > 0 or found[0, 1] > 0)


@pytest.mark.parametrize("model", BOTH_WAYS)
@pytest.mark.parametrize("method", ["taylor", "digamma", "release"])
def test_costs_as_in_the_paper_are_numbers_where_a_transition_is_impossible(model, method):
    """One step at the true cost and then the noisy policy's own cost-to-go, by its definition."""
    found = cost_of_privacy(model, 9.0, method, formula="paper", samples=20, rng=0)
    assert np.isfinite(found).all()
    if method == "taylor":
        kernel = taylor_kernel(model, 9.0)
        noisy, best = solve(kernel, model.utility, 1.5), solve_standard(model)
        logs, true = kernel.dense(kernel.log_values)[0], model.default
        for t, b in np.ndindex(2, 3):
            on = true[t, b] > 0
            step = noisy.policy[t, b, on] @ (logs[t, b, on] - np.log(true[t, b, on]))
            gain = best.log_desirability[t, b] - noisy.log_desirability[t, b]
            assert found[t, b] == pytest.approx(1.5 * (step + gain), rel=1e-10)


def test_the_expansion_names_a_negative_probability_that_is_there():
    model = random_model(5, n=5, horizon=4, density=0.7)
    solution, k = solve_standard(model), 0.5
    values = default_kernel(model).dense(expansion_values(model, solution, k))
    with pytest.raises(ValueError, match="negative probability") as refused:
        average_policy(model, k, "expansion")
    number, state, time = re.search(r"probability (\S+) from state (\d+) at time (\d+)", str(refused.value)).groups()
    assert values[int(time), int(state)].min() < 0 and not (values[: int(time)] < 0).any()
    assert np.isclose(values[int(time), int(state)], float(number), rtol=5e-3).any() and float(number) < 0
    assert not (values[int(time), : int(state)] < 0).any()


def test_a_zero_is_no_negative_probability():
    """At the first time some transitions are impossible and have probability zero; the second has the fault."""
    model = varying(CERTAIN, np.tile([0.02, 0.49, 0.49], (3, 1)), utility=np.array([[0, 0, 0], [0, 0, 0], [4.5, 0, 0]]))
    values = default_kernel(model).dense(expansion_values(model, solve_standard(model), 0.01))
    assert (values[0] >= 0).all() and (values[1] < 0).any()
    with pytest.raises(ValueError, match=r"negative probability -\S+ from state \d at time 1"):
        average_policy(model, 0.01, "expansion")


def test_impossible_successors_do_not_count_in_the_leading_order():
    """The last step by hand: γ / (2 (k + 1)) times the sum over possible successors of r (1 - π)."""
    for model in BOTH_WAYS:
        best, k = solve_standard(model), 9.0
        for b, on in enumerate(model.default[1] > 0):
            ratio = best.policy[1, b, on] / model.default[1, b, on]
            expected = 1.5 / (2 * (k + 1)) * (ratio * (1 - best.policy[1, b, on])).sum()
            assert release_cost_leading_order(model, k)[1, b] == pytest.approx(expected, abs=1e-15)


def test_two_samples_are_the_fewest_that_have_a_standard_error():
    for model in (random_model(3, n=3, horizon=2), general_model(3, n=3, m=3, c=2, horizon=2)):
        for k, formula in ((1e7, "exact"), (1e7, "paper"), (5.0, "exact")):
            for samples in (2, 3):
                found = release_cost(model, k, formula=formula, samples=samples, rng=np.random.default_rng(1))
                rng = np.random.default_rng(1)
                ones = [one_release_cost(model, k, formula, rng) for _ in range(samples)]
                assert_allclose(found.mean, np.mean(ones, axis=0), rtol=1e-7, atol=1e-12)
                error = np.std(ones, axis=0, ddof=1) / np.sqrt(samples)
                assert_allclose(found.standard_error, error, rtol=1e-5, atol=1e-9)
        with pytest.raises(ValueError, match="samples"):
            release_cost(model, 5.0, samples=1)
        assert repr(found) == f"CostEstimate(mean and standard error, 2 steps by {model.n_states} states)"
        assert_array_equal(cost_of_privacy(model, np.inf, "taylor"), np.zeros(model.default_policy.shape[:-1]))


def one_release_cost(model, k, formula, rng):
    """What the next release of a generator costs."""
    best, gamma = solve_standard(model), model.discomfort_penalty
    if not model.is_plain:
        kernel = sampling.draw_kernel(default_kernel(model), k, rng)
        noisy = solve_with(model, kernel)
        if formula == "exact":
            return policy_cost(model, noisy.policy)
        drawn = np.moveaxis(kernel.dense(kernel.linear), 0, 1)
        step = rel_entr(noisy.policy, model.default_policy).sum(-1) - rel_entr(noisy.policy, drawn).sum(-1)
        return gamma * (step + best.log_desirability[:-1] - noisy.log_desirability[:-1])
    sums, _ = sampling.sampled_costs(
        default_kernel(model), k, 1, rng, model.utility / gamma, best.log_desirability, best.policy_values
    )
    return gamma * sums[["exact", "paper"].index(formula)]


def test_what_is_taken_where_nothing_is_said():
    model = random_model(3, n=3, horizon=2)
    assert_array_equal(average_policy(model, 5.0, rng=1), average_policy(model, 5.0, "sampled", 1000, 1))
    assert_array_equal(
        cost_of_privacy(model, 5.0, "release", rng=1), release_cost(model, 5.0, samples=1000, rng=1).mean
    )
    assert_array_equal(release_cost(model, 5.0, rng=1).mean, release_cost(model, 5.0, samples=1000, rng=1).mean)
    profile = np.linspace(1.0, 2.0, 50)
    assert_array_equal(ensemble(profile), ensemble(profile, 100, noise=0.1, rng=0))
    power = np.random.default_rng(0).uniform(size=3000)
    assert estimate_chain(power).n_states == 20


def test_models_of_a_batch_have_one_size():
    models = [random_model(seed, n=3, horizon=2) for seed in (1, 2)]
    assert solve_policy(models, "standard").shape == (2, 2, 3, 3)
    for wrong, words in (
        ([models[0], random_model(1, n=4, horizon=2)], "same horizon and number of states"),
        ([], "non-empty list"), ([models[0], 3], "non-empty list"), ([3, models[0]], "non-empty list"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            solve_policy(wrong, "standard")


def test_a_policy_a_little_off_the_optimum_is_no_plan():
    model = random_model(3, n=4, horizon=3, density=1.0)
    policy = standard_policy(model)
    assert_allclose(as_tilt(policy, model), policy, atol=1e-9)
    off = policy.copy()
    off[0, 0, :2] += [1e-3, -1e-3] if policy[0, 0, 1] > 2e-3 else [-1e-3, 1e-3]
    with pytest.raises(ValueError, match="not a policy that is optimal"):
        as_tilt(off, model)


# ------------------------------------------------------------------ penalties and utilities
def test_the_largest_penalty_is_the_last_that_is_taken():
    kernel, largest = log_probabilities(FREE), LARGEST_PENALTY * np.abs(UTILITY).max()
    assert LARGEST_PENALTY == 1e8
    solve(kernel, UTILITY, largest)
    with pytest.raises(ValueError, match="lost in rounding"):
        solve(kernel, UTILITY, np.nextafter(largest, np.inf))


@pytest.mark.parametrize("batch", [(), (2,)])
def test_what_is_not_finite_is_named_in_a_batch_as_well(batch):
    utility = np.broadcast_to(UTILITY, (*batch, *UTILITY.shape)).copy()
    utility[..., 1, 2] = -np.inf
    name = ", ".join(map(str, [*[0] * len(batch), 1, 2]))
    with pytest.raises(ValueError, match=re.escape(f"utility[{name}] is -inf")):
        solve(log_probabilities(FREE), utility, 1.0)
    with pytest.raises(ValueError, match=re.escape(f"utility[{name}] is -inf")):  # with the axis of a context, or none
        more = {"context": np.full((3, 3), 1 / 3)} if batch else {}
        general = np.stack([utility[0]] * 3) if batch else utility
        solve(log_probabilities(FREE), general, 1.0, nature=np.eye(3), **more)
    with pytest.raises(ValueError, match="overflows"):
        solve(log_probabilities(FREE), 1e200 * np.broadcast_to(UTILITY, utility.shape), 1e-200)


@pytest.mark.parametrize("shape", [(3, 2), (2, 5)])
def test_physics_for_other_contexts_or_other_times_is_refused(shape):
    """Two contexts and two decisions: one of the two axes is right, the other is not."""
    nature = np.broadcast_to(np.eye(3), (shape[1], shape[0], 3, 3))  # time, context
    moves = np.full((2, 2), 0.5)
    with pytest.raises(ValueError, match="contexts and"):
        solve(log_probabilities(FREE), np.zeros((3, 2, 3)), 1.0, nature=nature, context=moves)


# ------------------------------------------------------------------ couplings
SMALL = {
    "tracking": Coupling.tracking([9.0, 0.6, 0.2, 0.4], [9.0, 0.3, 0.0, 2.5]),
    "limit": Coupling.limit([9.0, 0.6, np.inf, 0.4], [9.0, 0.3, 0.0, 2.5]),
}


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("x", [0.1, 0.5, 0.9])
def test_small_weights_and_small_misses_count_in_the_gap(kind, x):
    """Fenchel and Young with numbers below one: f(x) + f*(price) - price x, the conjugate by search."""
    coupling, price = SMALL[kind], np.array([0.1, 0.0, 0.8])
    grid = np.linspace(-5, 5, 100_001)
    excess = coupling.excess(price, np.full(3, x))
    for t in (1, 2, 3):
        best = (price[t - 1] * grid - coupling.cost(t, grid)).max()
        assert excess[t - 1] == pytest.approx(coupling.cost(t, x) + best - price[t - 1] * x, abs=1e-6)
        assert coupling.conjugate(price)[t - 1] == pytest.approx(best, abs=1e-6)


def test_just_at_a_hard_cap_nothing_is_lost():
    cap = Coupling.limit([9.0, 0.5, 0.25])
    assert cap.excess([0.7, 0.0], [0.5, 0.25]).tolist() == [0.0, 0.0] and cap.total([9.0, 0.5, 0.25]) == 0.0
    assert cap.excess([0.7, 0.0], [0.4, 0.3]).tolist() == pytest.approx([0.07, np.inf])


@pytest.mark.parametrize("kind", SMALL)
def test_the_functional_form_charges_what_the_coupling_does(kind):
    n = 3
    model = EnsembleModel(
        FREE, [0, 1, 2], np.zeros((4, n)), 1.0, initial=[0.2, 0.3, 0.5], spread_start=True, coupling=SMALL[kind]
    )
    params = functional.make(EnsembleEnv(model, "mean-field", "tilt"), backend="numpy")
    for t, x in np.ndindex(4, 3):
        power = np.array(0.1 + 0.4 * x)
        violation, charge = functional._coupling(np, params, np.array(t), power)
        assert violation == SMALL[kind].violation(t, power) and charge == pytest.approx(SMALL[kind].cost(t, power))


def test_a_coupling_says_the_levels_that_are_asked_for():
    assert "0.4 … 0.6 kW per load" in repr(SMALL["tracking"]) and "$2.5 per kW²" in repr(SMALL["tracking"])
    assert "weight 0" in repr(Coupling.tracking([1.0, 2.0], 0.0))


@pytest.mark.parametrize("kind", ["tracking", "limit, finite", "limit, hard"])
@pytest.mark.parametrize(("watts", "cents"), [(1.0, 1.0), (1000.0, 100.0)])
def test_each_half_of_the_search_finds_the_shadow_prices(kind, watts, cents, monkeypatch):
    """Quasi-Newton steps alone come near, Newton steps alone arrive, whatever power and money are counted in."""
    plain, asked = coupled_model(None), couplings()[kind]
    weight = asked.weight * cents / (watts**2 if kind == "tracking" else watts)
    model = EnsembleModel(
        plain.default, watts * plain.power_kw, cents * plain.utility, cents * plain.discomfort_penalty,
        nature=plain.nature, initial=plain.initial, spread_start=True,
        coupling=Coupling(asked.kind, watts * asked.level, weight),
    )  # fmt: skip
    dual, price = _Dual(model, model.coupling), cents / watts
    best = dual.minimise()
    value = dual._value(best)[0]
    with monkeypatch.context() as patch:
        patch.setattr(coupled, "NEWTON_STEPS", 0)
        near = dual.minimise()
    assert dual._value(near)[0] - value < 1e-7 * cents and np.abs(near - best).max() < 1e-2 * price
    high = np.minimum(dual.high, coupled.HIGHEST_PRICE * dual._unit) if model.coupling.is_hard else dual.high
    monkeypatch.setattr(coupled, "NEWTON_STEPS", 8)  # digits double with every step
    alone = dual._polish(np.zeros(HORIZON), high)
    assert dual._value(alone)[0] - value < 1e-9 * cents and np.abs(alone - best).max() < 1e-6 * price
    assert ((best >= dual.low) & (best <= dual.high)).all()


@pytest.mark.parametrize(
    ("primal", "tolerance", "accepted"),
    [(0.5, 1e-3, True), (0.5, 0.9e-3, False), (100.0, 1e-5, True), (100.0, 0.9e-5, False), (-100.0, 1e-5, True)],
)
def test_the_gap_is_measured_by_the_return_or_by_a_dollar(primal, tolerance, accepted):
    model = coupled_model(couplings()["tracking"])
    found = replace(solve_coupled(model), gap=1e-3, primal=primal)
    coupled._FOUND[model] = found
    if accepted:
        assert solve_coupled(model, tolerance) is found
    else:
        with pytest.raises(ValueError, match=r"could be certified to \$0.001 only"):
            solve_coupled(model, tolerance)
    for gap, good in ((1e-6, True), (1.01e-6, False)):  # by default
        coupled._FOUND[model] = replace(found, gap=gap, primal=0.5)
        if good:
            solve_coupled(model)
        else:
            with pytest.raises(ValueError, match="could be certified"):
                solve_coupled(model)


def test_levels_and_weights_that_a_coupling_takes():
    limit = Coupling.limit([1.0, np.inf, 2.0, 2.0], [5.0, 5.0, 0.0, 0.5])
    assert limit.weight.tolist() == [0.0, 0.0, 0.0, 0.5] and limit.horizon == 3 and not limit.is_hard
    assert repr(limit) == "Coupling(limit, 3 steps, 2 kW per load, $0.5 per kW)"
    assert repr(Coupling.limit([1.0, 1.0, 3.0])) == "Coupling(limit, 2 steps, 1 … 3 kW per load, hard)"
    for kind, level, weight, words in (
        ("limit", [1.0], 1.0, "T \\+ 1 entries"), ("tracking", [1.0, 2.0], [1.0], "weight has 1 entries"),
        ("limit", [1.0, 2.0, 3.0], [1.0, 2.0, -0.1], "weight at time 2 is -0.1"),
        ("limit", [1.0, 2.0, 3.0], [1.0, np.nan, -0.1], "weight at time 1 is nan"),
        ("tracking", [1.0, 2.0, 3.0], [1.0, 2.0, np.inf], "weight at time 2 is inf"),
        ("tracking", [1.0, np.inf, 3.0], 1.0, "target"), ("limit", [1.0, -np.inf, 3.0], 1.0, "limit"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            Coupling(kind, np.array(level), np.array(weight))


def test_a_hard_cap_is_named_by_its_first_time():
    weight = np.array([0.0, 1.0, 2.0, np.inf, np.inf])
    with pytest.raises(ValueError, match="hard cap at time 3,"):
        Coupling("limit", np.full(5, 2.0), weight).packed()


def test_two_contexts_and_two_steps_are_each_their_own():
    """Behaviour that changes with time and context: each combination is used in its place."""
    rng = np.random.default_rng(4)
    default = rng.dirichlet(np.ones(3), (2, 2, 3))  # time, context
    moves = np.array([[0.9, 0.1], [0.3, 0.7]])
    utility = rng.normal(size=(3, 2, 3))
    found = solve(log_probabilities(default), utility, 1.0, context=moves)
    log_z = utility[2]
    for t in (1, 0):
        expected = moves @ log_z
        weights = default[t] * np.exp(expected)[:, None, :]
        assert_allclose(found.policy[t], weights / weights.sum(-1, keepdims=True), rtol=1e-12)
        log_z = utility[t] + np.log(weights.sum(-1))
        assert_allclose(found.log_desirability[t], log_z, rtol=1e-12)


def test_probabilities_are_not_taken_for_logarithms_however_small_they_are():
    with pytest.raises(ValueError, match="log"):
        solve(np.array([[0.1, 0.1, 0.8], [0.0, 0.05, 0.95], [0.3, 0.3, 0.4]]), UTILITY, 1.0)


@pytest.mark.parametrize("batched", ["policy", "default", "utility", "penalty"])
def test_what_has_no_batch_is_shared_by_it(batched):
    rng = np.random.default_rng(6)
    given = {
        "policy": rng.dirichlet(np.ones(3), (4, 2, 3)),
        "default": rng.dirichlet(np.ones(3), (4, 2, 3)),
        "utility": rng.normal(size=(4, 3, 3)),
        "penalty": rng.uniform(0.5, 2.0, 4),
    }
    one = {name: value if name == batched else value[1] for name, value in given.items()}
    found = evaluate_policy(one["policy"], one["default"], one["utility"], one["penalty"])
    for i in range(4):
        alone = {name: value[i] if name == batched else value for name, value in one.items()}
        expected = evaluate_policy(alone["policy"], alone["default"], alone["utility"], float(alone["penalty"]))
        assert_allclose(found[i], expected, rtol=1e-13)


def test_one_behaviour_is_shared_by_all_contexts():
    rng = np.random.default_rng(5)
    default, moves = rng.dirichlet(np.ones(3), 3), np.array([[0.9, 0.1, 0.0], [0.3, 0.3, 0.4], [0.0, 0.5, 0.5]])
    utility = rng.normal(size=(3, 3, 3))
    found = solve(log_probabilities(default), utility, 1.0, context=moves)
    log_z = utility[2]
    for t in (1, 0):
        weights = default * np.exp(moves @ log_z)[:, None, :]
        assert_allclose(found.policy[t], weights / weights.sum(-1, keepdims=True), rtol=1e-12)
        log_z = utility[t] + np.log(weights.sum(-1))


# ------------------------------------------------------------------ readings
def test_readings_may_be_a_second_apart_and_no_less():
    stamps = np.datetime64("2018-07-02T00:00:00") + np.arange(4)
    mean = _Lookup(stamps, np.array([1.0, 2.0, 4.0, 8.0]))(stamps[:3], np.timedelta64(2, "s"))
    assert_array_equal(mean, [1.5, 3.0, 6.0])
    with pytest.raises(ValueError, match="holds a stamp twice"):
        _Lookup(stamps[[0, 1, 1, 2]], np.ones(4))
    with pytest.raises(ValueError, match="got 1 readings"):
        _Lookup(stamps[:1], np.ones(1))
