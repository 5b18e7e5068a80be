"""The exact return and its gradient: against all paths, policy evaluation and finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import GENERAL, general_model
from numpy.testing import assert_allclose

from dp_ensemble_env.control.policies import tilted_policy
from dp_ensemble_env.control.returns import ExactReturn, path_returns, policy_return, shares
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.reporting.score import event_outcome

TINY = (2, 3, 2, 2)
COUPLINGS = {
    "none": None,
    "tracking": Coupling.tracking([0.0, 2.0, 5.0], [0.0, 1.0, 0.5]),
    "limit": Coupling.limit([0.0, 2.0, 3.0], [0.0, 1.0, 2.0]),
}


def enumerated(model, policy):
    """Expected return of a policy (T, c, n, m) by listing every path of contexts, states and decisions."""
    behaviour, nature, moves, utility = model.tables()
    first = np.ones(1) if model.context is None else model.context.start
    total, power = 0.0, np.zeros(model.horizon + 1)
    steps = itertools.product(range(model.n_contexts), range(model.n_states), range(model.n_decisions))
    for path in itertools.product(list(steps), repeat=model.horizon):
        for end in itertools.product(range(model.n_contexts), range(model.n_states)):
            places = [(w, s) for w, s, _ in path] + [end]
            chance, earned = first[places[0][0]] * model.initial[places[0][1]], 0.0
            for t, (w, s, a) in enumerate(path):
                after, state = places[t + 1]
                chance *= policy[t, w, s, a] * nature[t, w, a, state] * moves[t, w, after]
                if chance == 0.0:
                    break
                earned += utility[t + 1, after, state]
                earned -= model.discomfort_penalty * np.log(policy[t, w, s, a] / behaviour[t, w, s, a])
            total += chance * earned
            power += chance * model.power_kw[[s for _, s in places]]
    return total - (0.0 if model.coupling is None else model.coupling.total(power))


def random_policy(model, rng):
    weights = model.tables().behaviour * rng.gamma(1.0, size=model.tables().behaviour.shape)
    return weights / weights.sum(axis=-1, keepdims=True)


def numeric(function, x, step=1e-5):
    found = np.empty_like(x)
    for place in np.ndindex(x.shape):
        change = np.zeros_like(x)
        change[place] = step
        found[place] = (function(x + change) - function(x - change)) / (2 * step)
    return found


# ------------------------------------------------------------------ value
@pytest.mark.parametrize("context,coupling", [(True, "none"), (False, "none"), (False, "tracking"), (False, "limit")])
def test_every_way_gives_the_return_of_all_paths(context, coupling):
    model = general_model(8, context=context, coupling=COUPLINGS[coupling], sizes=TINY)
    rng = np.random.default_rng(0)
    policy = random_policy(model, rng)
    given = policy if context else policy[:, 0]
    expected = enumerated(model, policy)
    if coupling != "none":
        assert abs(expected - enumerated(model.override(coupling=None), policy)) > 0.1
    assert policy_return(model, given) == pytest.approx(expected, rel=1e-12)
    assert event_outcome(model, given).mean_return == pytest.approx(expected, rel=1e-12)
    by_state = ExactReturn(model, by_state=True)
    behaviour, (s, a) = model.tables().behaviour, by_state.entries
    possible = behaviour[..., s, a] > 0
    tilts = np.log(np.where(possible, policy[..., s, a], 1.0) / np.where(possible, behaviour[..., s, a], 1.0))
    assert by_state(tilts) == pytest.approx(expected, rel=1e-12)
    tilts = rng.normal(size=(model.horizon, model.n_contexts, model.n_decisions))
    tilted = tilted_policy(model, tilts if context else tilts[:, 0]).reshape(policy.shape)
    assert ExactReturn(model)(tilts) == pytest.approx(enumerated(model, tilted), rel=1e-12)


@pytest.mark.parametrize("kind", GENERAL)
def test_the_mean_over_drawn_contexts_is_the_expected_return(kind):
    """All paths of contexts, weighted by their probabilities; and the shares that are followed."""
    model = GENERAL[kind]()
    policy = random_policy(model, np.random.default_rng(3))
    given = policy if model.context is not None else policy[:, 0]
    paths = np.array(list(itertools.product(range(model.n_contexts), repeat=model.horizon + 1)))
    first = np.ones(1) if model.context is None else model.context.start
    moves = model.tables().context
    chances = first[paths[:, 0]] * np.prod([moves[t, paths[:, t], paths[:, t + 1]] for t in range(model.horizon)], 0)
    start = np.broadcast_to(model.initial, (len(paths), model.n_states))
    follow = np.empty((len(paths), model.horizon + 1, model.n_states))
    found = path_returns(model, given, paths, start, follow)
    assert chances @ found == pytest.approx(policy_return(model, given), rel=1e-11)
    rho = shares(model, given).reshape(model.horizon + 1, -1, model.n_states).sum(axis=1)
    assert_allclose(np.einsum("p,pts->ts", chances, follow), rho, atol=1e-13)
    assert_allclose(path_returns(model, given, paths, start), found, rtol=1e-15)


def test_huge_tilts_stay_finite():
    model = GENERAL["both"]()
    for returns in (ExactReturn(model), ExactReturn(model, by_state=True)):
        value, gradient = returns.with_gradient(np.random.default_rng(0).normal(size=returns.shape) * 5000)
        assert np.isfinite(value) and np.isfinite(gradient).all()


# ------------------------------------------------------------------ gradient
@pytest.mark.parametrize("by_state", [False, True])
@pytest.mark.parametrize("kind", GENERAL)
def test_the_gradient_is_that_of_finite_differences(kind, by_state):
    returns = ExactReturn(GENERAL[kind](), by_state=by_state)
    tilts = np.random.default_rng(1).normal(size=returns.shape)
    gradient = returns.with_gradient(tilts)[1]
    assert gradient.shape == returns.shape and np.abs(gradient).max() > 0.1
    assert_allclose(gradient, numeric(returns, tilts), atol=1e-7)


@pytest.mark.parametrize("kind", GENERAL)
def test_the_gradient_through_a_basis_is_that_of_finite_differences(kind):
    """Tilts by time alone, one tilt that is held, prices by time and context, one price that is held."""
    returns, rng = ExactReturn(GENERAL[kind]()), np.random.default_rng(2)
    horizon, contexts, m = returns.shape
    scale, direction, offset = rng.gamma(2.0, size=(horizon, 1, 1)), rng.normal(size=m), rng.normal(size=returns.shape)
    for shape, factor in (
        ((horizon, 1, m), 1.0),
        ((1, 1, m), scale),
        ((horizon, contexts, 1), scale * direction),
        ((1, 1, 1), scale * direction),
    ):
        x = rng.normal(size=shape)
        value, gradient = returns.with_gradient(x, factor, offset)
        assert value == pytest.approx(returns(offset + factor * x), rel=1e-12)
        assert_allclose(gradient, numeric(lambda y, f=factor: returns(offset + f * y), x), atol=1e-6)
        assert gradient.shape == shape and np.abs(gradient).max() > 0.01
