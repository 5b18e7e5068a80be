"""Signals: directions and units against the formulas entry by entry, and what they may tell."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import general_model
from scipy.linalg import eigh

from dp_ensemble_env import scenarios
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import solve_standard, tilted_policy
from dp_ensemble_env.control.returns import optimal_tilts, policy_return
from dp_ensemble_env.envs import EnsembleEnv, signals
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import mechanism
from dp_ensemble_env.scenarios.front import front

C, T, M = 3, 4, 6


def family(count: int = 3) -> list[EnsembleModel]:
    """Models that differ in behaviour; the first two contexts look the same, and the past tells them apart."""
    rng = np.random.default_rng(5)
    moves = np.zeros((T, C, C))
    for t in range(T):
        moves[t, 0, [0, 2]], moves[t, 1, [1, 2]], moves[t, 2, [t % 2, 2]] = rng.dirichlet(np.ones(2), 3)
    context = Context(moves, start=[0.4, 0.0, 0.6], features=[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    model = general_model(7, sizes=(T, 5, M, C))
    return [model.override(context=context, default=rng.dirichlet(np.ones(M), (T, C, 5))) for _ in range(count)]


def covariance(model: EnsembleModel) -> np.ndarray:
    """Sum the covariance of the decisions under the optimum over the time, contexts and states of an episode."""
    policy = solve_standard(model).policy
    behaviour, nature, moves, _ = model.tables()
    joint, total = np.outer(model.context.start, model.initial), np.zeros((M, M))
    for t in range(T):
        after = np.zeros_like(joint)
        for w, s in np.ndindex(joint.shape):
            row = policy[t, w, s]
            total += joint[w, s] * (np.diag(row) - np.outer(row, row))
            after += joint[w, s] * np.outer(moves[t, w], row @ nature[t, w])
        joint = after
    return total


def test_a_wrong_tilt_costs_what_the_metric_says() -> None:
    """Half of the penalty times the square of the error in the metric, to second order."""
    model = family()[0]
    best, wrong = optimal_tilts(model), 0.01 * np.random.default_rng(0).normal(size=M)
    lost = policy_return(model, solve_standard(model).policy) - policy_return(model, tilted_policy(model, best + wrong))
    assert lost == pytest.approx(0.5 * model.discomfort_penalty * wrong @ covariance(model) @ wrong, rel=0.05)


@pytest.mark.parametrize("design", [True, False])
def test_directions_and_units_are_those_of_the_formulas(design: bool) -> None:
    models, k = family(), 3
    found = signals.find(models, k, design=design)
    plans = np.stack([signals._plan(model) for model in models])
    metric = sum(c / np.trace(c) for c in map(covariance, models)) + 1e-4 / M * np.eye(M)
    rows = plans.reshape(-1, M) @ metric
    strength, vectors = eigh(rows.T @ rows, metric)  # the generalised problem, largest last
    np.testing.assert_allclose(np.abs(found.directions @ metric @ vectors[:, ::-1][:, :k]), np.eye(k), atol=1e-6)
    assert strength[-1] > strength[-2] > strength[-3]

    chance = models[0].context.distributions(T)

    def units(amplitudes: np.ndarray) -> np.ndarray:  # (i, T, c, k)
        square = (amplitudes**2).mean(axis=0)
        for t in range(T):  # the first two contexts look alike
            square[t, :2] = (chance[t, :2] @ square[t, :2]) / chance[t, :2].sum()
        possible = chance[:T] > 0  # means are over contexts that can be
        square = np.stack([np.sqrt(square[t] * square[t][possible[t]].mean(axis=0)) for t in range(T)])
        if design:
            return np.maximum(np.sqrt(square), 0.15 * np.sqrt(square[possible].mean(axis=0)))
        total = square.sum(axis=-1, keepdims=True)
        return np.sqrt(square + 0.3**2 * np.maximum(total, 0.3**2 * total[possible].mean()))

    possible = chance[:T] > 0
    assert not possible.all()
    np.testing.assert_allclose(found.units[possible], units(plans @ metric @ found.directions.T)[possible], rtol=1e-6)
    along = -signals.power_direction(models[0])
    price = plans @ metric @ along / (along @ metric @ along)
    np.testing.assert_allclose(found.price[possible], units(price[..., None])[possible][:, 0], rtol=1e-6)


def test_the_record_is_what_the_command_computes() -> None:
    """Five digits are recorded; another machine may round the last one otherwise."""
    entry, again = signals._content()["spot"], signals.entry_of("spot")
    for field in signals.Signals._fields:
        np.testing.assert_allclose(again[field], entry[field], rtol=1e-3, atol=1e-6)
    assert set(signals._content()) == set(scenarios.BUILT_IN)
    for name, one in signals._content().items():
        assert one["digest"] == signals.digest_of(one) and len(one["directions"]) <= 8, name


def test_who_takes_the_recorded_signals() -> None:
    """Every instance, and every release, of a scenario; other sizes and other models take the public family."""
    record = signals.recorded("spot")
    model = scenarios.make("spot", instance=3, split="test")
    assert signals.signals_of(model) is record
    assert EnsembleEnv("spot", action="signals", privacy="dirichlet:k=50,floor=0.05").action_space.shape == (6,)
    stranger = model.override(scenario="")
    assert signals.signals_of(stranger) is not record
    assert signals.signals_of(stranger).directions.shape[0] <= signals.PUBLIC_SIZE
    other = general_model(1, scenario="spot")
    assert signals.signals_basis(other).shape[::3] == (other.horizon, other.n_decisions)


def test_private_behaviour_does_not_reach_the_signals() -> None:
    """Two truths with one release, and a model and its public side, have equal signals."""
    truths = [general_model(seed, context=False, nature=False) for seed in (1, 2)]
    truths = [truths[0], truths[0].override(default=truths[1].default)]
    release = mechanism("dirichlet:k=20,floor=0.05").release(np.full_like(truths[0].default, 0.2), 0)
    bases = [signals.signals_basis(EnsembleEnv(truth, action="signals", privacy=release).model) for truth in truths]
    np.testing.assert_array_equal(*bases)
    np.testing.assert_array_equal(*map(signals.signals_basis, truths))  # the family is public even for the truth


def test_units_do_not_tell_a_hidden_context() -> None:
    model = front(0)
    for found in (signals.signals_of(model), signals.signals_of(model.override(scenario="front"))):
        for group in range(int(model.context.shown.max()) + 1):
            inside = found.units[:, np.asarray(model.context.shown) == group]
            possible = model.context.distributions(model.horizon - 1)[:, np.asarray(model.context.shown) == group] > 0
            for t in np.flatnonzero(possible.any(axis=1)):
                assert np.ptp(inside[t][possible[t]], axis=0).max() <= 1e-12 * inside[t].max()
