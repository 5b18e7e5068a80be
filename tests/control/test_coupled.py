"""Coupled objectives: the dual against a convex solver, finite differences and exact identities."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from oracles import flows_optimum
from scipy.special import rel_entr

from dp_ensemble_env.context import Context
from dp_ensemble_env.control.coupled import _Dual, solve_coupled
from dp_ensemble_env.control.policies import solve_standard, tilted_policy
from dp_ensemble_env.control.returns import ExactReturn, optimal_tilts, policy_return, shares
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import event_outcome, start_values

HORIZON = 4


def rows(rng, *shape):
    """Random stochastic rows with zeros, the same at all times, and a first column without any."""
    weights = rng.dirichlet(np.ones(shape[-1]), shape[:-1]) * (rng.random(shape[-2:]) >= 0.3)
    weights[..., 0] += 0.05
    return weights / weights.sum(axis=-1, keepdims=True)


def coupled_model(coupling, *, seed=0, n=4, m=3, nature=True, varying=True, **changes):
    """Small random loads, with physics of their own or without, under a coupling."""
    rng = np.random.default_rng(seed)
    lead = (HORIZON,) if varying else ()
    fields = {"default": rows(rng, *lead, n, m if nature else n), "nature": rows(rng, *lead, m, n) if nature else None}
    fields |= {"power_kw": rng.uniform(0, 5, n), "utility": rng.normal(0, 2, (HORIZON + 1, n)), "coupling": coupling}
    fields |= {"discomfort_penalty": 1.3, "initial": rng.dirichlet(np.ones(n)), "spread_start": True}
    return EnsembleModel(**{**fields, **changes})


def power_of(model, policy):
    return shares(model, policy) @ model.power_kw


def free_power(**settings):
    """Power per load that is best when nothing couples the loads."""
    model = coupled_model(None, **settings)
    return power_of(model, solve_standard(model).policy)


def couplings(**settings):
    """One of each kind, none of which the uncoupled optimum satisfies."""
    x = free_power(**settings)
    wanted = x + [0.0, 0.3, -0.4, 0.2, -0.3]
    limit = x - [0.0, 0.2, -1.0, 0.25, 0.1]
    return {
        "tracking": Coupling.tracking(wanted, [0.0, 2.0, 5.0, 0.0, 30.0]),
        "limit, finite": Coupling.limit(limit, [9.0, 0.4, 1.0, 0.2, 3.0]),
        "limit, hard": Coupling.limit(np.where(np.arange(5) == 2, np.inf, limit)),
    }


@pytest.mark.parametrize("settings", [{}, {"nature": False}, {"varying": False, "seed": 4}], ids=str)
@pytest.mark.parametrize("kind", ["tracking", "limit, finite", "limit, hard"])
def test_the_dual_finds_the_optimum_of_the_flows(kind, settings):
    model = coupled_model(couplings(**settings)[kind], **settings)
    solution = solve_coupled(model)
    assert solution.primal == pytest.approx(flows_optimum(model), abs=2e-5)
    assert 0 <= solution.gap <= 1e-9
    assert solution.dual == solution.primal + solution.gap
    # The policy is what it claims: its exact outcome is the primal value, and it scores 100.
    outcome = event_outcome(model, solution.policy)
    assert outcome.mean_return == pytest.approx(solution.primal, abs=1e-9)
    if "hard" not in kind:  # uncontrolled loads break the cap, which costs infinitely much: there is no score
        assert outcome.score == pytest.approx(100.0, abs=1e-7)
    assert start_values(model)[1] == solution.primal
    np.testing.assert_allclose(power_of(model, solution.policy), solution.power_kw, atol=1e-12)
    if "hard" in kind:
        assert not model.coupling.violation(slice(None), solution.power_kw).any()


@pytest.mark.parametrize("kind", ["tracking", "limit, finite", "limit, hard"])
def test_shadow_prices_are_derivatives_of_the_optimum(kind):
    coupling = couplings()[kind]
    model = coupled_model(coupling)
    price = solve_coupled(model).shadow_price
    step = 1e-4
    for t in np.flatnonzero(np.isfinite(coupling.level[1:])) + 1:
        values = []
        for sign in (-1, 1):
            level = coupling.level + sign * step * (np.arange(HORIZON + 1) == t)
            moved = model.override(coupling=Coupling(coupling.kind, level, coupling.weight))
            values.append(solve_coupled(moved).primal)
        assert (values[1] - values[0]) / (2 * step) == pytest.approx(price[t - 1], rel=1e-5, abs=1e-6)
    assert np.abs(price).max() > 0.1
    low, high = coupling.bounds(slice(1, None))
    assert (price >= low).all() and (price <= high).all()


@pytest.mark.parametrize("kind", ["tracking", "limit, finite"])
def test_what_another_policy_loses_is_divergence_plus_the_excess_of_its_power(kind):
    model = coupled_model(couplings()[kind])
    best = solve_coupled(model)
    rng = np.random.default_rng(5)
    for scale in (0.0, 0.3, 2.0):
        policy = tilted_policy(model, scale * rng.normal(size=(HORIZON, model.n_decisions)))
        rho = shares(model, policy)
        x = rho @ model.power_kw
        divergence = (rho[:-1] * rel_entr(policy, best.policy).sum(axis=-1)).sum()
        excess = model.coupling.excess(slice(1, None), best.shadow_price, x[1:])
        if kind == "tracking":  # nothing but the squared distance from the optimum's power
            np.testing.assert_allclose(excess, model.coupling.weight[1:] * (x - best.power_kw)[1:] ** 2, atol=1e-8)
        lost = best.primal - event_outcome(model, policy).mean_return
        assert lost == pytest.approx(model.discomfort_penalty * divergence + excess.sum(), abs=1e-9)
        assert lost > 0 and (excess >= 0).all()


def test_the_gradient_and_the_curvature_of_the_dual_are_exact():
    model = coupled_model(couplings()["tracking"])
    dual, price, step = _Dual(model, model.coupling), np.array([0.3, -0.2, 0.0, 0.5]), 1e-5
    sensitivity = dual.at(price).sensitivity
    np.testing.assert_allclose(sensitivity, sensitivity.T, atol=1e-12)
    for t in range(HORIZON):
        up, down = (dual.at(price + sign * step * np.eye(HORIZON)[t]) for sign in (1, -1))
        assert (up.value - down.value) / (2 * step) == pytest.approx(-dual.at(price).power[t], abs=1e-7)
        np.testing.assert_allclose((up.power - down.power) / (2 * step), sensitivity[:, t], atol=1e-7)


def test_a_cap_that_cannot_be_kept_is_refused_with_time_and_amount():
    level = np.full(HORIZON + 1, np.inf)
    model = coupled_model(None, nature=False, varying=False)
    least = power_of(model, tilted_policy(model, np.tile(-1e4 * model.power_kw, (HORIZON, 1))))
    level[2] = model.power_kw.min() - 0.5
    with pytest.raises(ValueError, match=r"hard cap of -?[\d.]+ kW per load at time 2: .* kW too much"):
        solve_coupled(model.override(coupling=Coupling.limit(level)))
    level[2] = least[2] + 0.02  # just within reach
    assert least[2] < solve_coupled(model.override(coupling=Coupling.limit(level))).power_kw[2] <= level[2]


# ------------------------------------------------------------------ a coupling on a tree of contexts
def tree_model(coupling, seed=0, n=3, **changes):
    """Loads under a context that branches twice: seven nodes, the last four of which stay."""
    rng = np.random.default_rng(seed)
    moves = np.eye(7)
    moves[:3] = [0, 0.5, 0.5, 0, 0, 0, 0], [0, 0, 0, 0.2, 0.8, 0, 0], [0, 0, 0, 0, 0, 0.6, 0.4]
    fields = {"default": rows(rng, HORIZON, 7, n, n), "nature": rows(rng, HORIZON, 7, n, n)}
    fields |= {"power_kw": rng.uniform(0, 5, n), "utility": rng.normal(0, 2, (HORIZON + 1, 7, n))}
    fields |= {"discomfort_penalty": 1.3, "initial": rng.dirichlet(np.ones(n)), "spread_start": True}
    fields |= {"context": Context(moves, start=[0]), "coupling": coupling}
    return EnsembleModel(**{**fields, **changes})


TREE = {
    "tracking": Coupling.tracking([0.0, 2.0, 1.0, 3.0, 2.5], [0.0, 2.0, 5.0, 0.0, 30.0]),
    "limit": Coupling.limit([9.0, 2.0, 1.5, 2.5, 1.5], [9.0, 0.4, 1.0, 0.2, 3.0]),
}


@pytest.mark.parametrize("kind", TREE)
def test_the_dual_on_a_tree_finds_the_optimum_of_the_flows(kind):
    model = tree_model(TREE[kind])
    solution = solve_coupled(model)
    assert solution.shadow_price.shape == (HORIZON, 7) and np.abs(solution.shadow_price).max() > 0.1
    assert solution.primal == pytest.approx(flows_optimum(model), abs=2e-5)
    assert 0 <= solution.gap <= 1e-10
    assert policy_return(model, solution.policy) == pytest.approx(solution.primal, abs=1e-11)
    assert ExactReturn(model)(optimal_tilts(model)) == pytest.approx(solution.primal, abs=1e-10)


@pytest.mark.parametrize("kind", TREE)
def test_returns_on_a_tree_are_those_of_all_its_paths(kind):
    """Power and cost along every path by plain loops, for random tilts; and the gradient by differences."""
    model = tree_model(TREE[kind])
    tilts = np.random.default_rng(3).normal(size=(HORIZON, 7, 3))
    policy = tilted_policy(model, tilts)
    _, nature, _, utility = model.tables()
    total = 0.0
    for path in itertools.product(range(7), repeat=HORIZON + 1):
        chance = model.context.start[path[0]] * model.context.transition[path[:-1], path[1:]].prod()
        if chance == 0:
            continue
        rho, earned = model.initial, 0.0
        for t in range(HORIZON):
            here = policy[t, path[t]]
            earned -= model.discomfort_penalty * rho @ rel_entr(here, model.default[t, path[t]]).sum(axis=1)
            rho = rho @ here @ nature[t, path[t]]
            earned += rho @ utility[t + 1, path[t + 1]] - model.coupling.cost(t + 1, rho @ model.power_kw)
        total += chance * earned
    returns = ExactReturn(model)
    assert returns(tilts) == pytest.approx(total, rel=1e-12)
    assert policy_return(model, policy) == pytest.approx(total, rel=1e-12)
    gradient, step = returns.with_gradient(tilts)[1], 1e-6
    for index in [(0, 0, 1), (1, 2, 0), (2, 3, 2), (3, 6, 1), (1, 5, 0)]:
        moved = step * (np.arange(tilts.size).reshape(tilts.shape) == np.ravel_multi_index(index, tilts.shape))
        slope = (returns(tilts + moved) - returns(tilts - moved)) / (2 * step)
        assert gradient[index] == pytest.approx(slope, abs=1e-7)
    assert gradient[1, 5, 0] == 0.0  # a context that cannot be at that time


def test_a_cap_that_one_branch_cannot_keep_is_named():
    model = tree_model(None)
    level = np.full(HORIZON + 1, np.inf)
    level[3] = model.power_kw.min() - 0.5
    with pytest.raises(ValueError, match=r"at time 3 in the context 'context [3-6]'"):
        solve_coupled(model.override(coupling=Coupling.limit(level)))
