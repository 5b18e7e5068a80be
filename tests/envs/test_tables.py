"""Rewards in points: the advantage over leaving the loads alone, whose sum over an episode is the score."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import random_model
from oracles import KINDS, MODES, T, divergences, general_model, policy_of

from dp_ensemble_env.control.returns import policy_return
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.envs.tables import Row
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import start_values
from dp_ensemble_env.scenarios.depot import depot

UNCOUPLED = [kind for kind in KINDS if kind not in ("target", "limit")]


def score_of(model: EnsembleModel, policy: np.ndarray) -> float:
    """Score a policy (T, c, n, m) by the recursion."""
    idle, best = start_values(model)
    return 100.0 * (policy_return(model, policy.reshape(model.default_policy.shape)) - idle) / (best - idle)


def random_policy(model: EnsembleModel, rng: np.random.Generator) -> np.ndarray:
    """A policy that is no tilt, with rows of zeros where the behaviour has them, (T, c, n, m)."""
    weights = model.tables().behaviour * rng.gamma(0.5, size=model.tables().behaviour.shape)
    weights += 1e-6 * model.tables().behaviour
    return weights / weights.sum(axis=-1, keepdims=True)


def tables_by_hand(model: EnsembleModel) -> tuple[np.ndarray, np.ndarray]:
    """The worth of decisions and the value of states if nobody interferes, entry by entry."""
    P, N, W, U = model.tables()
    horizon, c, n, m = P.shape
    G, V = np.zeros((horizon, c, m)), np.zeros((horizon + 1, c, n))
    for t in reversed(range(horizon)):
        for w in range(c):
            for a in range(m):
                G[t, w, a] = sum(
                    W[t, w, v] * N[t, w, a, s] * (U[t + 1, v, s] + V[t + 1, v, s]) for v in range(c) for s in range(n)
                )
            V[t, w] = P[t, w] @ G[t, w]
    return G, V


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("population", ["mean-field", "single", 9])
@pytest.mark.parametrize("kind", UNCOUPLED)
def test_a_reward_is_the_advantage_over_leaving_the_loads_alone(kind: str, population: str | int, mode: str) -> None:
    model = general_model(kind, 2)
    (G, _), (idle, best) = tables_by_hand(model), start_values(model)
    env = EnsembleEnv(model, population, mode)
    assert env.row.point == pytest.approx((best - idle) / 100, rel=1e-12)
    env.action_space.seed(0)
    env.reset(seed=1)
    for t in range(T):
        before, w, action = env.occupancy, env.context, env.action_space.sample()
        policy, default = policy_of(model, mode, action, t, w), model.tables().behaviour[t, w]
        gain = before @ (policy - default) @ G[t, w]
        gain -= model.discomfort_penalty * before @ divergences(policy, default)
        assert env.step(action)[1] == pytest.approx(100 * gain / (best - idle), rel=1e-9, abs=1e-9)


def expected_points(row: Row, policy: np.ndarray) -> float:
    """Sum the rewards of a policy (T, c, n, m) over all starts and contexts, from the tables of the step."""
    model, left_alone, total = row.model, row.left_alone, 0.0
    behaviour, nature, moves, _ = model.tables()
    joint = np.array(model.start_weights).reshape(model.n_contexts, -1)
    for t in range(model.horizon):
        decided, usual = (np.einsum("ws,wsa->wa", joint, x[t]) for x in (policy, behaviour))
        total += ((decided - usual) * left_alone.worth[t]).sum()
        total -= model.discomfort_penalty * (joint * divergences(policy[t], behaviour[t])).sum()
        if model.coupling is not None:
            chances = joint.sum(axis=1)
            for w in np.flatnonzero(chances):
                node = slice(*left_alone.first[t * len(chances) + w :][:2])
                time, chance, power = (array[node] for array in left_alone.ahead)
                costs = [chance @ model.coupling.cost(time, power @ (y[w] / chances[w])) for y in (usual, decided)]
                total += chances[w] * (costs[0] - costs[1])
        joint = moves[t].T @ np.einsum("wa,waz->wz", decided, nature[t])
    return total / row.point


@pytest.mark.parametrize("kind", KINDS)
def test_the_expected_return_of_any_policy_is_its_score(kind: str) -> None:
    model = general_model(kind, 4)
    rng, row, (G, V) = np.random.default_rng(0), Row.of(model), tables_by_hand(model)
    np.testing.assert_allclose(row.left_alone.worth, G, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(row.left_alone.value, V[0], rtol=1e-12, atol=1e-12)
    for policy in (random_policy(model, rng) for _ in range(3)):
        score = score_of(model, policy)
        assert expected_points(row, policy) == pytest.approx(score, rel=1e-9, abs=1e-9)
        if model.coupling is not None:  # one start, no chance: an episode is the whole truth
            env = EnsembleEnv(model, action="policy")
            env.reset(seed=0)
            assert sum(env.step(policy[t, 0])[1] for t in range(T)) == pytest.approx(score, rel=1e-9, abs=1e-9)


def test_on_a_tree_of_contexts_the_return_is_the_score_as_well() -> None:
    """The cost to come is expected over the contexts that may follow."""
    model = depot(0)
    row, rng = Row.of(model), np.random.default_rng(0)
    policies = [row.solution.policy, random_policy(model, rng)]
    for policy, score in zip(policies, (100.0, score_of(model, policies[1])), strict=True):
        assert expected_points(row, policy) == pytest.approx(score, rel=1e-5)


def test_nothing_to_gain_is_refused_with_the_remedy() -> None:
    rng = np.random.default_rng(0)
    equal = EnsembleModel(rng.dirichlet(np.ones(3), 3), [1.0, 2.0, 3.0], -np.ones((4, 3)), 1.0)
    stiff = random_model(0).override(discomfort_penalty=1e8)
    for model in (equal, stiff, EnsembleModel(np.eye(2), [1.0, 2.0], rng.normal(size=(4, 2)), 1.0)):
        with pytest.raises(ValueError, match="nothing to score in points; use reward='dollars'"):
            EnsembleEnv(model, action="tilt")
        assert EnsembleEnv(model, action="tilt", reward="dollars").reset()[1]["optimal_points"] == 0.0


def test_the_optimum_of_an_episode_in_points() -> None:
    """From one start it is more or less than 100, on average over the start distribution 100."""
    for kind in UNCOUPLED:
        model = general_model(kind, 5)
        row = Row.of(model)
        weights = np.array(model.start_weights).reshape(row.optimum_points.shape)
        assert (weights * row.optimum_points).sum() == pytest.approx(100.0, rel=1e-12)
    env = EnsembleEnv(general_model("target"), action="tilt")
    assert env.reset()[1]["optimal_points"] == pytest.approx(100.0, rel=1e-12)
    _, info = env.reset(options={"state": 4})
    model = env.model.override(initial=[4])
    idle, best = start_values(model)
    assert info["optimal_points"] == pytest.approx((best - idle) / env.row.point, rel=1e-9)
