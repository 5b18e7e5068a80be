"""Nature, context and coupling: the recursion against brute force, a convex solver, Monte Carlo and plain NumPy."""

from __future__ import annotations

import itertools

import cvxpy as cp
import numpy as np
import pytest
from scipy.special import logsumexp, rel_entr

from dp_ensemble_env.context import Context
from dp_ensemble_env.control.cost import cost_of_privacy, policy_cost, release_cost, release_cost_leading_order
from dp_ensemble_env.control.dynamics import nature_kernel, world
from dp_ensemble_env.control.lsmdp import LogKernel, evaluate_policy, occupancy, solve
from dp_ensemble_env.control.policies import (
    POLICIES,
    as_tilt,
    solve_policy,
    solve_standard,
    standard_policy,
    tilted_policy,
)
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.outcome import event_outcome, reference_returns, start_values
from dp_ensemble_env.scenarios.campus import campus_event


def rows(rng, *shape, zeros=0.0):
    """Random stochastic rows, some of whose entries are zero."""
    weights = rng.dirichlet(np.ones(shape[-1]), shape[:-1]) * (rng.random(shape[-2:]) >= zeros)
    weights[..., 0] += 0.05
    return weights / weights.sum(axis=-1, keepdims=True)


def random_model(seed=0, n=4, m=3, c=2, horizon=3, varying=True, contexts=True, nature=True, **changes):
    rng = np.random.default_rng(seed)
    m = m if nature else n
    lead = ((horizon, c) if varying else (1, c)) if contexts else ((horizon,) if varying else ())
    moves = rows(rng, *((horizon,) if varying else ()), c, c)
    fields = {
        "default": rows(rng, *lead, n, m, zeros=0.3),
        "power_kw": rng.uniform(0, 5, n),
        "utility": rng.normal(0, 3, (horizon + 1, c, n) if contexts else (horizon + 1, n)),
        "discomfort_penalty": 1.7,
        "initial": rng.dirichlet(np.ones(n)),
        "nature": rows(rng, *lead, m, n, zeros=0.3) if nature else None,
        "context": Context(moves, start=rng.dirichlet(np.ones(c))) if contexts else None,
    }
    return EnsembleModel(**{**fields, **changes})


CASES = [
    random_model(1),
    random_model(2, varying=False),
    random_model(3, contexts=False),
    random_model(4, contexts=False, varying=False),
    random_model(5, nature=False),
    random_model(6, n=2, m=5, c=3, varying=False),
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
    model = random_model(7, n=2, m=2, c=2, horizon=3)
    p = np.linspace(0, 1, 4001)
    grid = best_by_enumeration(model, np.column_stack([p, 1 - p]))
    exact = squeeze(model, -solve_standard(model).cost_to_go)[0]
    assert (grid <= exact + 1e-12).all()
    np.testing.assert_allclose(grid, exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", [random_model(12, horizon=2), CASES[2], CASES[4]])
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


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("model", [CASES[0], CASES[3]])
def test_every_closed_form_policy_is_one_and_tends_to_the_optimum(model, name):
    settings = {"samples": 40, "rng": 0} if name == "average-sampled" else {}
    best = standard_policy(model)
    noisy = solve_policy(model, name, 2e4, **settings)
    assert noisy.shape == best.shape
    np.testing.assert_allclose(noisy.sum(axis=-1), 1.0, atol=1e-10)
    assert np.abs(noisy - best).max() < 0.02
    assert (noisy[model.default_policy == 0] == 0).all()


def test_sampled_average_agrees_with_the_integral_where_z_is_known():
    """With one step z is public, so the integral holds nothing fixed that moves."""
    model = random_model(8, horizon=1)
    exact = solve_policy(model, "average-exact", 1.0)
    draws = 4000
    sampled = solve_policy(model, "average-sampled", 1.0, samples=draws, rng=1)
    assert np.abs(sampled - exact).max() < 4 * 0.5 / np.sqrt(draws)
    assert np.abs(standard_policy(model) - exact).max() > 0.05


def test_cost_of_a_release_with_nature_and_context():
    model = random_model(9, n=3, m=3, c=2, horizon=2)
    estimate = release_cost(model, 200.0, samples=400, rng=0)
    leading = release_cost_leading_order(model, 200.0)
    assert estimate.mean.shape == (2, 2, 3)
    # At the last step nothing reaches it through z, so the leading order is all there is.
    error = 4 * estimate.standard_error[-1] + 0.15 * leading[-1]
    assert (np.abs(estimate.mean[-1] - leading[-1]) < error).all()
    paper = release_cost(model, 200.0, formula="paper", samples=400, rng=0)
    assert (paper.mean[-1] < estimate.mean[-1] + 1e-12).all()


def test_a_plan_made_elsewhere_is_deployed_as_a_tilt():
    model = CASES[0]
    guess = random_model(10).default
    guess = np.where(model.default > 0, guess, 0.0) + 1e-3 * (model.default > 0)
    guess /= guess.sum(axis=-1, keepdims=True)
    plan = solve_standard(model.with_default(guess))
    np.testing.assert_allclose(as_tilt(guess, model), tilted_policy(model, plan.tilt), atol=1e-12)
    np.testing.assert_allclose(as_tilt(model.default, model), standard_policy(model), atol=1e-12)
    assert 0 < event_outcome(model, as_tilt(guess, model)).gap


def test_uncontrolled_scores_zero_and_the_optimum_a_hundred():
    for model in CASES:
        assert event_outcome(model, model.default_policy).score == pytest.approx(0.0, abs=1e-9)
        assert event_outcome(model, standard_policy(model)).score == pytest.approx(100.0, abs=1e-9)
        idle, best = reference_returns(model)
        assert (best >= idle - 1e-12).all()


def test_wide_spreads_are_solved_in_logarithms():
    model = random_model(11)
    wide = model.override(utility=400.0 * model.utility)
    log_z, _ = plain_recursion(wide)
    solution = solve_standard(wide)
    np.testing.assert_allclose(solution.log_desirability, log_z, rtol=1e-12)
    assert np.ptp(solution.tilt, axis=-1).max() > 700


def test_tables_are_written_out_in_full():
    model = CASES[5]
    tables = model.tables()
    horizon, c, n, m = 3, 3, 2, 5
    assert [table.shape for table in tables] == [
        (horizon, c, n, m), (horizon, c, m, n), (horizon, c, c), (horizon + 1, c, n),
    ]  # fmt: skip
    assert (tables.behaviour[2] == model.default[0]).all() and (tables.nature[1] == model.nature[0]).all()
    campus = campus_event()
    assert (campus.tables().nature == np.eye(20)).all() and campus.tables().context.shape == (18, 1, 1)


def refuse(match, **changes):
    with pytest.raises(ValueError, match=match):
        random_model(1, **changes)


def test_what_does_not_fit_is_refused():
    refuse("without nature a decision is the next state", nature=False, default=np.full((4, 3), 1 / 3))
    with pytest.raises(ValueError, match="without nature a decision is the next state"):
        random_model(1).override(nature=None)
    with pytest.raises(ValueError, match="nature must have shape"):
        random_model(1).override(nature=np.full((4, 4), 0.25))
    with pytest.raises(ValueError, match="given for 5 steps but the horizon is 3"):
        random_model(1).override(context=Context(np.full((5, 2, 2), 0.5)))
    with pytest.raises(ValueError, match="utility must have shape"):
        random_model(1).override(utility=np.zeros((4, 3, 4)))
    with pytest.raises(ValueError, match="the same features"):
        Context(np.eye(2), features=[[0.5], [0.5]])
    with pytest.raises(ValueError, match="in \\[0, 1\\]"):
        Context(np.eye(2), features=[[0.5], [1.5]])
    with pytest.raises(ValueError, match="2 different names"):
        Context(np.eye(2), names=["hot", "hot"])
    with pytest.raises(ValueError, match="tilt_scale must have shape"):
        random_model(1).override(tilt_scale=np.ones(4))
    with pytest.raises(ValueError, match="guess must have shape"):
        random_model(1).override(guess=np.full((4, 3), 1 / 3))
    with pytest.raises(ValueError, match="there is one discomfort_penalty"):
        solve(np.log(np.full((2, 2), 0.5)), np.zeros((3, 2)), [1.0, 2.0], nature=np.eye(2))
    with pytest.raises(ValueError, match="takes decision 1 in state 0 at time 2 in context 0"):
        model = random_model(1, n=2, m=2, default=np.array([[1.0, 0.0], [0.5, 0.5]]))
        half = np.full((3, 2, 2, 2), 0.5)
        evaluate_policy(half, model.default, model.utility, 1.0, **world(model))


def test_a_kernel_may_be_given_ready_made():
    model = CASES[0]
    ready = solve(
        LogKernel.of_contexts(model.default), model.utility, 1.7, nature=model.nature, context=model.context.transition
    )
    with np.errstate(divide="ignore"):
        dense = solve(
            np.log(model.default), model.utility, 1.7, nature=nature_kernel(model), context=model.context.transition
        )
    np.testing.assert_array_equal(ready.log_desirability, dense.log_desirability)
