"""The solver against brute force, many-digit arithmetic, a convex program and plain NumPy; what it refuses."""

from __future__ import annotations

import itertools
import re

import cvxpy as cp
import mpmath
import numpy as np
import pytest
from helpers import nature_model, random_chain
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from numpy.testing import assert_allclose
from scipy.special import logsumexp, rel_entr

from dp_ensemble_env.context import Context
from dp_ensemble_env.control.cost import (
    cost_of_privacy,
    policy_cost,
    release_cost_leading_order,
)
from dp_ensemble_env.control.kernel import world
from dp_ensemble_env.control.lsmdp import LogKernel, evaluate_policy, log_probabilities, occupancy, solve
from dp_ensemble_env.control.policies import (
    solve_policy,
    solve_standard,
    standard_policy,
    tilted_policy,
)
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import event_outcome, start_values
from dp_ensemble_env.scenarios.campus import campus_event
from dp_ensemble_env.tools.validation import LARGEST_PENALTY


def mpmath_solve(default, utility, penalty):
    """Theorem 1 in the desirability itself, with enough digits that nothing underflows."""
    n, horizon = len(default), len(utility) - 1
    with mpmath.workdps(60):
        p = [[mpmath.mpf(float(x)) for x in row] for row in default]
        u = [[mpmath.mpf(float(x)) / mpmath.mpf(float(penalty)) for x in row] for row in utility]
        z = [mpmath.exp(x) for x in u[-1]]
        policy = np.empty((horizon, n, n))
        for t in range(horizon - 1, -1, -1):
            g = [mpmath.fsum(p[b][a] * z[a] for a in range(n)) for b in range(n)]
            for b, a in itertools.product(range(n), range(n)):
                policy[t, b, a] = float(p[b][a] * z[a] / g[b])
            z = [mpmath.exp(u[t][b]) * g[b] for b in range(n)]
        return np.array([float(mpmath.log(x)) for x in z]), policy


@pytest.mark.parametrize("penalty", [1.0, 0.37])
@pytest.mark.parametrize("density", [0.2, 1.0])
def test_policy_matches_mpmath_to_twelve_digits_over_a_long_day(penalty, density):
    rng = np.random.default_rng(7)
    default = random_chain(rng, 8, density)
    utility = -rng.uniform(0, 150, (97, 8)) * penalty
    log_z, policy = mpmath_solve(default, utility, penalty)
    solution = solve(log_probabilities(default), utility, penalty)
    assert np.abs(solution.policy - policy).max() <= 1e-12
    assert_allclose(solution.log_desirability[0], log_z, rtol=1e-13)
    assert log_z.max() < -1000  # the desirability itself would have underflowed long ago


# ------------------------------------------------------------------ nature and context


CASES = [
    nature_model(1),
    nature_model(2, varying=False),
    nature_model(3, contexts=False),
    nature_model(4, contexts=False, varying=False),
    nature_model(5, nature=False),
    nature_model(6, n=2, m=5, c=3, varying=False),
]


def plain_recursion(model):
    """MATH's recursion on the full tables, in plain NumPy."""
    behaviour, nature, context, utility = model.tables()
    gamma, horizon = model.discomfort_penalty, model.horizon
    log_z = utility / gamma
    tilt = np.empty(behaviour.shape[:2] + behaviour.shape[-1:])
    with np.errstate(divide="ignore"):
        for t in reversed(range(horizon)):
            tilt[t] = np.einsum("wv,was,vs->wa", context[t], nature[t], log_z[t + 1])
            log_z[t] += logsumexp(np.log(behaviour[t]) + tilt[t][:, None, :], axis=-1)
    weights = behaviour * np.exp(tilt - tilt.max(axis=-1, keepdims=True))[:, :, None, :]
    return log_z, weights / weights.sum(axis=-1, keepdims=True)


def squeeze(model, array):
    return array if model.context is not None else array[:, 0]


@pytest.mark.parametrize("model", CASES)
def test_recursion_is_that_of_plain_numpy(model):
    log_z, policy = plain_recursion(model)
    solution = solve_standard(model)
    np.testing.assert_allclose(solution.log_desirability, squeeze(model, log_z), rtol=0, atol=1e-12)
    np.testing.assert_allclose(solution.policy, squeeze(model, policy), rtol=0, atol=1e-12)
    np.testing.assert_allclose(tilted_policy(model, solution.tilt), solution.policy, rtol=0, atol=1e-12)
    value = evaluate_policy(solution.policy, model.default, model.utility, model.discomfort_penalty, **world(model))
    np.testing.assert_allclose(value, solution.cost_to_go, rtol=0, atol=1e-11)


@pytest.mark.parametrize("model", CASES)
def test_the_papers_identity_holds(model):
    """The loss of any policy is its expected divergence from the optimum, visit by visit."""
    rng = np.random.default_rng(0)
    best = solve_standard(model).policy
    shape = model.default_policy.shape[:-2] + model.default_policy.shape[-1:]
    for _ in range(5):
        other = tilted_policy(model, rng.normal(0, 1, shape))
        lost = policy_cost(model, other)
        assert (lost > -1e-12).all()
        divergence = rel_entr(other, best).sum(axis=-1)
        start = {} if model.context is None else {"start": model.context.start}
        rho = occupancy(other, model.initial, **world(model), **start)
        expected = model.discomfort_penalty * (rho[:-1] * divergence).sum()
        weights = rho[0]
        assert (weights * lost[0]).sum() == pytest.approx(expected, rel=1e-10)
        assert event_outcome(model, other).gap == pytest.approx(expected, rel=1e-9)


def best_by_enumeration(model, levels):
    """The best of all policies whose every row is one of `levels`, state by state backwards: the value function."""
    behaviour, nature, context, utility = model.tables()
    value = utility[-1].copy()
    for t in reversed(range(model.horizon)):
        ahead = np.einsum("wv,was,vs->wa", context[t], nature[t], value)
        now = np.empty_like(value)
        for w, s in itertools.product(range(model.n_contexts), range(model.n_states)):
            gains = levels @ ahead[w] - model.discomfort_penalty * rel_entr(levels, behaviour[t, w, s]).sum(axis=-1)
            now[w, s] = gains.max()
        value = now + utility[t]
    return value


def test_nothing_on_a_fine_grid_beats_the_optimum():
    model = nature_model(7, n=2, m=2, c=2, horizon=3)
    p = np.linspace(0, 1, 4001)
    grid = best_by_enumeration(model, np.column_stack([p, 1 - p]))
    exact = squeeze(model, -solve_standard(model).cost_to_go)[0]
    assert (grid <= exact + 1e-12).all()
    np.testing.assert_allclose(grid, exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", [nature_model(12, horizon=2), CASES[2], CASES[4]])
def test_a_convex_solver_finds_the_same_optimum(model):
    """The problem in flows: f[t, w, s, a], the chance to be in (w, s) at t and to decide a."""
    behaviour, nature, context, utility = model.tables()
    horizon, c, n, m = behaviour.shape
    start = np.ones(1) if model.context is None else model.context.start
    here = [cp.Constant(start[w] * model.initial) for w in range(c)]
    gain, constraints = 0, []
    for t in range(horizon):
        flows = [cp.Variable((n, m), nonneg=True) for _ in range(c)]
        reached = []
        for w in range(c):
            constraints.append(cp.sum(flows[w], axis=1) == here[w])
            usual = cp.multiply(cp.reshape(here[w], (n, 1), order="C") @ np.ones((1, m)), behaviour[t, w])
            able = behaviour[t, w] > 0
            gain -= model.discomfort_penalty * cp.sum(cp.rel_entr(flows[w][able], usual[able]))
            constraints += [flows[w][~able] == 0] if (~able).any() else []
            reached.append(cp.sum(flows[w], axis=0) @ nature[t, w])
        here = [sum(context[t, w, v] * reached[w] for w in range(c)) for v in range(c)]
        gain += sum(here[v] @ utility[t + 1, v] for v in range(c))
    optimum = cp.Problem(cp.Maximize(gain), constraints).solve(solver=cp.CLARABEL)
    assert optimum == pytest.approx(start_values(model)[1], abs=1e-5)


def test_monte_carlo_earns_what_the_recursion_says():
    model = CASES[0]
    policy = standard_policy(model)
    behaviour, nature, context, utility = model.tables()
    rng, runs = np.random.default_rng(0), 20_000

    def draw(weights):
        return (rng.random(len(weights))[:, None] < np.cumsum(weights, axis=1)).argmax(axis=1)

    w = draw(np.tile(model.context.start, (runs, 1)))
    s = draw(np.tile(model.initial, (runs, 1)))
    earned = np.zeros(runs)
    for t in range(model.horizon):
        earned -= model.discomfort_penalty * rel_entr(policy[t], behaviour[t]).sum(axis=-1)[w, s]
        a = draw(policy[t, w, s])
        s, w = draw(nature[t, w, a]), draw(context[t, w])
        earned += utility[t + 1, w, s]
    error = earned.std() / np.sqrt(runs)
    assert abs(earned.mean() - start_values(model)[1]) < 4 * error
    # The alternative readings, a mean inside the logarithm or the wrong order of the indices, are far outside.
    assert error < 0.1


def test_the_paper_is_the_special_case():
    campus = campus_event()
    plain = solve_standard(campus)
    one = campus.override(context=Context([[1.0]]), nature=np.eye(campus.n_states))
    general = solve_standard(one)
    scale = np.abs(plain.log_desirability).max()
    np.testing.assert_allclose(general.log_desirability[:, 0], plain.log_desirability, rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(general.policy[:, 0], plain.policy, rtol=0, atol=1e-12)
    np.testing.assert_allclose(general.tilt[:, 0], plain.tilt, rtol=0, atol=1e-12 * scale)
    for name in ("taylor", "digamma", "average-exact"):
        old, new = solve_policy(campus, name, 20.0), solve_policy(one, name, 20.0)
        np.testing.assert_allclose(new[:, 0], old, rtol=0, atol=1e-12)
    old, new = event_outcome(campus, plain.policy), event_outcome(one, general.policy)
    assert new.mean_return == pytest.approx(old.mean_return, rel=1e-12)
    np.testing.assert_allclose(new.power_kw, old.power_kw, rtol=1e-12)
    for method in ("taylor", "digamma"):
        for formula in ("exact", "paper"):
            a, b = cost_of_privacy(campus, 50.0, method, formula), cost_of_privacy(one, 50.0, method, formula)
            np.testing.assert_allclose(b[:, 0], a, rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        release_cost_leading_order(one, 50.0)[:, 0], release_cost_leading_order(campus, 50.0), rtol=1e-9
    )


def test_wide_spreads_are_solved_in_logarithms():
    model = nature_model(11)
    wide = model.override(utility=400.0 * model.utility)
    log_z, _ = plain_recursion(wide)
    solution = solve_standard(wide)
    np.testing.assert_allclose(solution.log_desirability, log_z, rtol=1e-12)
    assert np.ptp(solution.tilt, axis=-1).max() > 700


def test_a_kernel_may_be_given_ready_made():
    model = CASES[0]
    ready = solve(
        LogKernel.of_contexts(model.default), model.utility, 1.7, nature=model.nature, context=model.context.transition
    )
    with np.errstate(divide="ignore"):
        dense = solve(
            np.log(model.default), model.utility, 1.7, nature=world(model)["nature"], context=model.context.transition
        )
    np.testing.assert_array_equal(ready.log_desirability, dense.log_desirability)


# ------------------------------------------------------------------ penalties and utilities


FREE = np.array([[0.5, 0.3, 0.2], [0.25, 0.25, 0.5], [0.1, 0.1, 0.8]])


FOUR = np.full((4, 4), 0.25)


UTILITY = np.array([[0.0, -1.0, -3.0], [0.0, -2.0, -0.4], [0.5, -1.0, -2.0]])


TWICE = np.stack([FREE] * 2)


DECIDE = np.full((3, 2), 0.5)  # three states, two decisions


LEAD = np.array([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]])  # where the decisions lead


MOVES = np.full((2, 2), 0.5)


def exact_costs(penalty):
    """Theorem 1 with fifty digits; rows are divided by their sums, which doubles do not make exactly one."""
    with mp.workdps(50):
        rows = [[mpf(float(x)) for x in row] for row in FREE]
        rows = [[x / sum(row) for x in row] for row in rows]
        value = [mpf(float(u)) / mpf(penalty) for u in UTILITY[-1]]
        for u in UTILITY[-2::-1]:
            log_g = [mp.log(sum(p * mp.exp(v) for p, v in zip(row, value, strict=True))) for row in rows]
            value = [mpf(float(x)) / mpf(penalty) + g for x, g in zip(u, log_g, strict=True)]
        return np.array([float(-mpf(penalty) * v) for v in value])


@pytest.mark.parametrize("penalty", [1e-2, 1.0, 1e4, 1e8])
def test_costs_keep_their_digits_up_to_the_largest_penalty(penalty):
    solution = solve(log_probabilities(FREE), UTILITY, penalty)
    tolerance = 1e-14 * max(1.0, penalty)
    np.testing.assert_allclose(solution.cost_to_go[0], exact_costs(penalty), rtol=1e-12, atol=tolerance)
    played = evaluate_policy(solution.policy, FREE, UTILITY, penalty)
    np.testing.assert_allclose(played[0], exact_costs(penalty), rtol=1e-12, atol=tolerance)


@pytest.mark.parametrize("penalty", [1e12, 1e16, 1e300])
def test_penalties_beyond_are_refused(penalty):
    with pytest.raises(ValueError, match="times the largest utility .*lost in rounding"):
        solve(log_probabilities(FREE), UTILITY, penalty)
    with pytest.raises(ValueError, match="lost in rounding"):
        solve(log_probabilities(FREE), np.stack([UTILITY] * 2), [1.0, penalty])
    with pytest.raises(ValueError, match="lost in rounding"):
        evaluate_policy(np.stack([FREE] * 2), FREE, UTILITY, penalty)
    with pytest.raises(ValueError, match="check the units"):
        EnsembleModel(default=FREE, power_kw=[0, 1, 2], utility=UTILITY, discomfort_penalty=penalty)
    nature = np.eye(3)
    with pytest.raises(ValueError, match="lost in rounding"):
        solve(log_probabilities(FREE), UTILITY, penalty, nature=nature)
    with pytest.raises(ValueError, match="lost in rounding"):
        evaluate_policy(np.stack([FREE] * 2), FREE, UTILITY, penalty, nature=nature)


def test_the_largest_penalty_is_the_last_that_is_taken():
    kernel, largest = log_probabilities(FREE), LARGEST_PENALTY * np.abs(UTILITY).max()
    assert LARGEST_PENALTY == 1e8
    solve(kernel, UTILITY, largest)
    with pytest.raises(ValueError, match="lost in rounding"):
        solve(kernel, UTILITY, np.nextafter(largest, np.inf))


def test_forbidden_states_are_refused_with_the_way_to_express_them():
    utility = UTILITY.copy()
    utility[1:, 2] = -np.inf
    for call in (
        lambda: solve(log_probabilities(FREE), utility, 1.0),
        lambda: evaluate_policy(np.stack([FREE] * 2), FREE, utility, 1.0),
        lambda: EnsembleModel(default=FREE, power_kw=[0, 1, 2], utility=utility, discomfort_penalty=1.0),
        lambda: solve(log_probabilities(FREE), utility, 1.0, nature=np.eye(3)),
    ):
        with pytest.raises(ValueError, match=r"utility\[1, 2\] is -inf \(2 such entries\).*to forbid a state"):
            call()
    # What the sentence proposes is the problem in which the state cannot be entered.
    kernel = log_probabilities(FREE)
    kernel[:, 2] = -np.inf
    without = solve(kernel, UTILITY, 1.0).policy
    utility[1:, 2] = -100.0
    np.testing.assert_allclose(solve(log_probabilities(FREE), utility, 1.0).policy, without, atol=1e-12)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"default": np.stack([FREE] * 5)}, "default has shape (5, 3, 3)"),  # the states fit
        ({"default": FOUR}, "default has shape (4, 4)"),  # the times fit
        ({"policy": FREE}, "policy must have shape"),
        ({"policy": np.stack([np.stack([TWICE] * 2)] * 2)}, "policy must have"),
        ({"utility": UTILITY[:2]}, "a policy of 2 steps needs 3 utilities, got 2"),
        ({"utility": UTILITY[:1]}, "utility must have shape (T + 1, 3)"),
        ({"utility": UTILITY[:, :2]}, "utility must have shape (T + 1, 3)"),
        ({"utility": np.zeros((0, 3, 3))}, "utility must have shape (T + 1, 3)"),
        ({"discomfort_penalty": [1.0, 2.0, 3.0], "utility": np.stack([UTILITY] * 2)}, "batch sizes disagree"),
        ({"discomfort_penalty": []}, "discomfort_penalty is empty"),
        ({"discomfort_penalty": [1.0, -1.0]}, "discomfort_penalty must be"),
    ],
)
def test_evaluation_refuses_what_does_not_fit(change, words):
    good = {"policy": TWICE, "default": FREE, "utility": UTILITY, "discomfort_penalty": 1.0}
    assert evaluate_policy(**good).shape == (3, 3)
    assert evaluate_policy(**{**good, "default": TWICE}).shape == (3, 3)
    with pytest.raises(ValueError, match=re.escape(words)):
        evaluate_policy(**{**good, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"log_kernel": log_probabilities(np.stack([FREE] * 4))}, "log_kernel changes over 4 steps"),
        ({"log_kernel": np.log(FREE)[:, :2]}, "log_kernel must be square"),
        ({"log_kernel": np.zeros((0, 3, 3))}, "not empty"),
        ({"log_kernel": FREE}, "looks like probabilities"),
        ({"log_kernel": np.full((3, 3), -np.inf)}, "row 0 of log_kernel has no possible transition"),
        ({"log_kernel": np.full((3, 3), np.nan)}, "NaN or +inf at (0, 0)"),
        ({"log_kernel": np.where(np.eye(3) > 0, np.inf, -1.0)}, "NaN or +inf at (0, 0)"),
        ({"log_kernel": "nonsense"}, "real numbers"),
        ({"discomfort_penalty": np.nan}, "got nan"),
        ({"discomfort_penalty": -3}, "discomfort_penalty"),
        ({"discomfort_penalty": "15"}, "number"),
        ({"nature": LEAD}, "nature must have shape (3, 3)"),  # the columns fit
        ({"nature": DECIDE}, "nature must have shape (3, 3)"),  # the rows fit
        (
            {"log_kernel": np.log(DECIDE), "nature": LEAD.T / LEAD.T.sum(axis=1, keepdims=True)},
            "nature must have shape",
        ),
        ({"log_kernel": np.log(DECIDE), "context": MOVES}, "3 states and 2 decisions, so nature must"),
        ({"context": np.full((1, 1, 2, 2), 0.5)}, "context must have shape"),
        ({"context": MOVES, "utility": np.zeros((3, 5, 3))}, "utility must have shape (T + 1, 3) or (T + 1, 2, 3)"),
        ({"context": MOVES, "utility": np.zeros((3, 2, 4))}, "utility must have shape (T + 1, 3) or (T + 1, 2, 3)"),
        ({"context": MOVES, "utility": np.zeros((1, 2, 3))}, "utility must have shape (T + 1, 3) or (T + 1, 2, 3)"),
        ({"context": MOVES, "discomfort_penalty": [1.0]}, "one discomfort_penalty for all"),
        ({"context": np.stack([MOVES] * 3)}, "given for 2 contexts and 3 times"),
        ({"context": MOVES, "log_kernel": np.log(np.stack([FREE] * 3)[None])}, "given for 3 contexts and 1 times"),
        ({"context": MOVES, "log_kernel": np.log(np.stack([FREE] * 3))}, "given for 1 contexts and 3 times"),
    ],
)
def test_the_solver_refuses_what_does_not_fit(change, words):
    good = {"log_kernel": np.log(FREE), "utility": UTILITY, "discomfort_penalty": 1.0}
    solve(**good)
    solve(np.log(DECIDE), UTILITY, 1.0, nature=LEAD, context=np.stack([MOVES] * 2))
    with pytest.raises(ValueError, match=re.escape(words)):
        solve(**{**good, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policy": np.stack([DECIDE] * 2)[:, None]}, "policy must have shape (T, n, m)"),
        ({"default": np.stack([DECIDE] * 5)}, "given for 1 contexts and 5 times"),
        ({"default": np.stack([DECIDE] * 5)[None]}, "given for 5 contexts and 1 times"),
        ({"default": FREE}, "default must have shape"),
        ({"utility": UTILITY[:2]}, "a policy of 2 steps needs 3 utilities"),
    ],
)
def test_evaluation_with_nature_refuses_what_does_not_fit(change, words):
    good = {"policy": np.stack([DECIDE] * 2), "default": DECIDE, "utility": UTILITY, "discomfort_penalty": 1.0}
    assert evaluate_policy(**good, nature=LEAD).shape == (3, 3)
    with pytest.raises(ValueError, match=re.escape(words)):
        evaluate_policy(**{**good, **change}, nature=LEAD)


def test_distributions_that_do_not_fit_are_refused():
    start = np.array([0.2, 0.3, 0.5])
    assert_allclose(occupancy(TWICE, start)[2], start @ FREE @ FREE)
    for policy, initial in ((TWICE, [0.5, 0.5]), (TWICE[None], start), (FREE, start)):
        with pytest.raises(ValueError, match="do not fit"):
            occupancy(policy, initial)
    policy = np.stack([np.stack([DECIDE] * 2)] * 2)
    assert occupancy(policy, start, nature=LEAD, context=MOVES, start=[0.4, 0.6]).shape == (3, 2, 3)
    for change in ({"start": [1.0]}, {"start": None}, {"initial": [0.5, 0.5]}, {"policy": policy[:, :1]}):
        good = {"policy": policy, "initial": start, "nature": LEAD, "context": MOVES, "start": [0.4, 0.6]}
        with pytest.raises(ValueError, match="must have shape"):
            occupancy(**{**good, **change})


def test_an_impossible_move_is_found_at_any_time():
    for wrong in (0, 1):
        policy = np.stack([np.eye(2), np.eye(2)])
        policy[wrong, 1] = [0.5, 0.5]
        with pytest.raises(ValueError, match=f"from state 1 to state 0 at time {wrong}"):
            evaluate_policy(policy, np.eye(2), np.zeros((3, 2)), 1.0)
        with pytest.raises(ValueError, match=f"takes decision 0 in state 1 at time {wrong},"):
            evaluate_policy(policy, np.eye(2), np.zeros((3, 2)), 1.0, nature=np.eye(2))


def test_transposed_matrix_is_recognised():
    columns = np.array([[0.9, 0.5], [0.1, 0.5]])
    with pytest.raises(ValueError, match="row 0 of default sums to 1.4.*transpose"):
        log_probabilities(columns)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=4, max_size=4))
def test_any_two_by_two_kernel_is_solved_or_refused(entries):
    kernel = np.array(entries).reshape(2, 2)
    try:
        solution = solve(kernel, np.zeros((3, 2)), 1.0)
    except ValueError:
        return
    assert_allclose(solution.policy.sum(axis=-1), 1.0, rtol=1e-9)
