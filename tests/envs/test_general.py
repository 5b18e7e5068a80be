"""Environments with nature, context and coupling against a plain NumPy step, the solver and the plain environments."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from scipy.special import rel_entr

from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.agents.analytical import PolicyAgent
from dp_ensemble_env.agents.base import ScheduleAgent, decision_time, observed_context
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.lsmdp import evaluate_policy
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.control.returns import path_returns
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv
from dp_ensemble_env.envs.actions import action_scale
from dp_ensemble_env.envs.tables import reward_unit
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.outcome import start_values

POPULATIONS = ("mean-field", "buildings", "single")
MODES = ("price", "tilt", "policy", "discrete")
N, M, C, T = 5, 4, 3, 6
#: Shapes in front of behaviour, nature, moves of the context and utility; with coupling and spread start or not.
KINDS = {
    "nature": {"behaviour": (), "nature": ()},
    "nature by time": {"behaviour": (T,), "nature": (T,), "spread": True},
    "context": {"behaviour": (1, C), "moves": ()},
    "everything": {"behaviour": (T, C), "nature": (T, C), "moves": (T,)},
    "nature by context": {"behaviour": (T,), "nature": (1, C), "moves": (T,), "spread": True},
    "target": {"behaviour": (T,), "nature": (), "coupling": "tracking", "spread": True},
    "limit": {"behaviour": (), "coupling": "limit", "spread": True},
}


def stochastic(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random rows with zeros in different places of every block."""
    mask = rng.random(shape) < 0.5
    np.put_along_axis(mask, rng.integers(shape[-1], size=(*shape[:-1], 1)), True, axis=-1)
    weights = mask * (rng.gamma(0.7, size=shape) + 1e-3)
    return weights / weights.sum(axis=-1, keepdims=True)


def general_model(kind: str, seed: int = 0, **changes: object) -> EnsembleModel:
    shapes, rng = KINDS[kind], np.random.default_rng(seed)
    m = M if "nature" in shapes else N
    power = rng.uniform(0, 8, N)
    level, weight = rng.uniform(2, 5, T + 1), rng.uniform(0, 3, T + 1)
    fields = {
        "default": stochastic(rng, (*shapes["behaviour"], N, m)),
        "nature": stochastic(rng, (*shapes["nature"], m, N)) if "nature" in shapes else None,
        "context": Context(stochastic(rng, (*shapes["moves"], C, C)), start=[0, 2]) if "moves" in shapes else None,
        "utility": rng.normal(size=(T + 1, C, N) if "moves" in shapes else (T + 1, N)) * 3,
        "initial": rng.dirichlet(np.ones(N)),
        "spread_start": shapes.get("spread", False),
        "coupling": Coupling(shapes["coupling"], level, weight) if "coupling" in shapes else None,
        "discomfort_penalty": 1.5,
        "power_kw": power,
        "buildings": 40,
    }
    return EnsembleModel(**{**fields, **changes})


# ------------------------------------------------------------------ the oracle
def policy_of(model: EnsembleModel, mode: str, action: np.ndarray, t: int, w: int) -> np.ndarray:
    """Rows (n, m) that an action stands for, in plain NumPy."""
    default = model.tables().behaviour[t, w]
    if mode == "policy":
        masked = np.where(default > 0, np.asarray(action, float), 0.0)
        total = masked.sum(axis=1, keepdims=True)
        return np.where(total > 0, masked / np.where(total > 0, total, 1.0), default)
    if mode == "tilt":
        direction = np.asarray(action, float)
    else:
        price = float(np.float32(-1.0 + 0.2 * action) if mode == "discrete" else action[0])
        power = model.tables().nature.mean(axis=(0, 1)) @ model.power_kw
        direction = -price * (2.0 * (power - power.min()) / np.ptp(power) - 1.0)
    weights = default * np.exp(direction * action_scale(model)[t])
    return weights / weights.sum(axis=1, keepdims=True)


class Oracle:
    """The mean field in plain NumPy, from shares at time 0 along a path of contexts."""

    def __init__(self, model: EnsembleModel, shares: np.ndarray, path: list[int]) -> None:
        self.model, self.tables, self.path, self.t = model, model.tables(), path, 0
        self.rho, self.idle = shares, shares

    def step(self, policy: np.ndarray) -> dict[str, float]:
        t, w, after = self.t, self.path[self.t], self.path[self.t + 1]
        default, nature = self.tables.behaviour[t, w], self.tables.nature[t, w]
        discomfort = self.model.discomfort_penalty * float(self.rho @ rel_entr(policy, default).sum(axis=1))
        self.rho, self.idle, self.t = self.rho @ policy @ nature, self.idle @ default @ nature, t + 1
        power = float(self.rho @ self.model.power_kw)
        utility, cost = float(self.rho @ self.tables.utility[t + 1, after]), 0.0
        if (coupling := self.model.coupling) is not None and coupling.weight[t + 1] > 0:
            miss, weight = power - coupling.level[t + 1], coupling.weight[t + 1]
            cost = abs(miss) if coupling.kind == "tracking" else max(miss, 0.0)
            utility -= weight * (miss**2 if coupling.kind == "tracking" else cost)
        curtailment = float(self.idle @ self.model.power_kw) - power
        return {
            "utility": utility,
            "discomfort": discomfort,
            "power_kw": power,
            "curtailment_kw": curtailment,
            "cost": cost,
        }


def sample_actions(model: EnsembleModel, mode: str, seed: int) -> list[np.ndarray]:
    space = EnsembleEnv(model, action=mode).action_space
    space.seed(seed)
    return [space.sample() for _ in range(model.horizon)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_mean_field_steps_as_plain_numpy_does(kind: str, mode: str) -> None:
    for seed in range(3):
        model = general_model(kind, seed)
        env = EnsembleEnv(model, action=mode, infos="all")
        observation, info = env.reset(seed=seed)
        shares = model.initial if model.spread_start else env.occupancy
        assert model.spread_start or shares.max() == 1.0
        path = env._counters[8:, 0].tolist()
        oracle = Oracle(model, shares, path)
        for t, action in enumerate(sample_actions(model, mode, seed)):
            expected = oracle.step(policy_of(model, mode, action, t, path[t]))
            observation, reward, _, _, info = env.step(action)
            assert reward == pytest.approx(expected["utility"] - expected["discomfort"], abs=1e-11)
            for key, value in expected.items():
                assert key == "cost" and model.coupling is None or info[key] == pytest.approx(value, abs=1e-11)
            np.testing.assert_allclose(info["occupancy"], oracle.rho, atol=1e-13)
            np.testing.assert_allclose(info["default_occupancy"], oracle.idle, atol=1e-13)
            np.testing.assert_array_equal(observation[:N], info["occupancy"].astype(np.float32))
            assert model.context is None or info["context"] == path[t + 1]


@pytest.mark.parametrize("mode", ["tilt", "policy"])
@pytest.mark.parametrize("kind", ["everything", "nature by time", "target"])
@pytest.mark.parametrize("loads", [1, 3, 400])
def test_finite_populations_are_the_mean_field_on_average(kind: str, mode: str, loads: int) -> None:
    """Given the contexts, mean and variance of the shares are those of independent loads."""
    model, size = general_model(kind, 1), 4000
    envs = EnsembleVectorEnv(size, model, loads, mode, autoreset_mode="DISABLED")
    # Equal seeds would give equal moves: choose the contexts by a seed and the moves by many.
    path = [0] * (T + 1)
    if model.context is not None:
        still = Context(np.eye(C))
        model = model.override(context=still)
        envs = EnsembleVectorEnv(size, model, loads, mode, autoreset_mode="DISABLED")
    options = {"context": 0} | ({} if model.spread_start else {"state": 3})
    envs.reset(seed=5, options=options)
    shares = model.initial if model.spread_start else np.eye(N)[3]
    oracle = Oracle(model, shares, path)
    returns, expected = np.zeros(size), 0.0
    for t, action in enumerate(sample_actions(model, mode, 4)):
        one = oracle.step(policy_of(model, mode, action, t, 0))
        expected += one["utility"] - one["discomfort"]
        _, reward, _, _, info = envs.step(np.broadcast_to(action, (size, *action.shape)))
        returns += reward
        assert np.abs(envs.occupancy.sum(axis=1) - 1).max() < 1e-12
        spread = np.sqrt(oracle.rho * (1 - oracle.rho) / loads)
        error = spread / np.sqrt(size)
        assert (np.abs(envs.occupancy.mean(axis=0) - oracle.rho) <= 4.5 * error + 1e-12).all()
        busy = oracle.rho * loads * size > 50
        np.testing.assert_allclose(envs.occupancy.std(axis=0)[busy], spread[busy], rtol=0.25)
        np.testing.assert_allclose(
            info["power_kw"] + info["curtailment_kw"], envs.default_occupancy @ model.power_kw, atol=1e-9
        )
    if model.coupling is None:  # the cost of a coupling is not linear in the loads
        assert abs(returns.mean() - expected) < 4.5 * returns.std() / np.sqrt(size)


def test_no_load_is_lost_at_a_given_start(campus: EnsembleModel) -> None:
    """A share times the number of loads may be a rounding step below the count it stands for: 0.29 * 100 < 29."""
    envs = EnsembleVectorEnv(300, campus, "buildings")
    envs.reset(seed=0, options={"occupancy": campus.initial})
    for _ in range(3):
        envs.step(np.zeros((300, 20), np.float32))
        assert np.abs(envs.occupancy.sum(axis=1) - 1).max() < 1e-12


def test_loads_of_a_spread_start_are_drawn_independently() -> None:
    model = general_model("nature by time")
    envs = EnsembleVectorEnv(5000, model, 20, "tilt")
    envs.reset(seed=0)
    counts = envs.occupancy * 20
    assert (counts == np.rint(counts)).all() and (counts.sum(axis=1) == 20).all()
    np.testing.assert_allclose(counts.mean(axis=0), 20 * model.initial, atol=0.15)
    np.testing.assert_allclose(counts.var(axis=0), 20 * model.initial * (1 - model.initial), rtol=0.12)
    assert (EnsembleEnv(model).reset(seed=3)[0][:N] == model.initial.astype(np.float32)).all()


# ------------------------------------------------------------------ contexts
def test_contexts_depend_on_the_seed_alone() -> None:
    """Neither population nor mode nor actions change the contexts and starts of the first and later episodes."""
    model, paths = general_model("everything"), []
    for population in (*POPULATIONS, 7):
        for mode in MODES:
            envs = EnsembleVectorEnv(3, model, population, mode)
            seen, (observation, infos) = [], envs.reset(seed=11)
            envs.action_space.seed(len(paths))
            for _ in range(3 * (T + 1)):
                seen.append((infos["time"], infos["context"], observation[:, :N] * (infos["time"] == 0)[:, None]))
                observation, _, _, _, infos = envs.step(envs.action_space.sample())
            paths.append(np.concatenate([np.concatenate([t[:, None], w[:, None], start], 1) for t, w, start in seen]))
    for path in paths[1:]:
        np.testing.assert_array_equal(path, paths[0])
    assert (
        len({tuple(p) for p in paths[0][:, :2].reshape(3, T + 1, 3, 2)[:, :, :, 1].transpose(0, 2, 1).reshape(9, -1)})
        > 5
    )


def test_contexts_move_by_their_matrix() -> None:
    model, size = general_model("everything", 2), 20_000
    envs = EnsembleVectorEnv(size, model, action="price", autoreset_mode="DISABLED")
    envs.reset(seed=0)
    before = envs.context
    np.testing.assert_allclose(np.bincount(before, minlength=C) / size, model.context.start, atol=0.015)
    for t in range(T):
        envs.step(np.zeros((size, 1)))
        after = envs.context
        for w in np.unique(before):
            count = (before == w).sum()
            found = np.bincount(after[before == w], minlength=C) / count
            np.testing.assert_allclose(found, model.context.transition[t, w], atol=2.5 / np.sqrt(count))
        before = after


def test_options_choose_the_first_context() -> None:
    model = general_model("everything")
    env = EnsembleEnv(model)
    paths = []
    for w in range(C):
        _, info = env.reset(seed=4, options={"context": w, "state": 2})
        assert info["context"] == env.context == w
        assert info["optimal_return"] == env.optimal_return(2, w)
        paths.append(env._counters[9:, 0].copy())
    _, info = env.reset(seed=4)
    assert any((path == env._counters[9:, 0]).all() for path in paths)
    envs = EnsembleVectorEnv(3, model)
    assert envs.reset(options={"context": [2, 0, 1]})[1]["context"].tolist() == [2, 0, 1]
    with pytest.raises(ValueError, match=r"context must be an integer in 0 … 2 \(context 0, context 1, context 2\)"):
        env.reset(options={"context": 3})


def test_observations_show_prices_and_features() -> None:
    model = general_model("everything", 3)
    features = np.array([[0.0, 0.5], [0.25, 0.5], [0.25, 1.0]])
    model = model.override(context=Context(model.context.transition, features=features))
    env = EnsembleEnv(model, action="price")
    assert env.observation_space.shape == (N + 5,)
    centred = model.power_kw - model.power_kw.mean()
    price = -(model.utility @ centred) / (centred @ centred) / model.step_hours
    price = (price - min(price.min(), 0)) / (max(price.max(), 0) - min(price.min(), 0))
    moves, path = model.context.transition, []
    observation, info = env.reset(seed=8)
    for t in range(T + 1):
        w = info["context"]
        path.append(w)
        now = moves[t][w] @ price[t + 1] if t < T else price[T, w]
        following = now if t >= T - 1 else moves[t][w] @ moves[t + 1] @ price[t + 2]
        expected = [(T - t) / T, now, following, *features[w]]
        np.testing.assert_allclose(observation[N:], expected, atol=1e-6)
        assert observed_context(observation, features) == w
        assert decision_time(observation, T, 2) == min(t, T - 1)
        if t < T:
            observation, _, _, _, info = env.step(env.action_space.sample())
    assert len(set(path)) > 1


# ------------------------------------------------------------------ the optimum
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "coupling" not in KINDS[kind]])
def test_optimal_return_is_that_of_the_solver(kind: str) -> None:
    model = general_model(kind)
    solution, env = solve_standard(model), EnsembleEnv(model)
    value = model.discomfort_penalty * solution.log_desirability[0] - model.utility[0]
    _, info = env.reset(seed=2)
    at = value if model.context is None else value[info["context"]]
    assert info["optimal_return"] == pytest.approx(env.occupancy @ at, rel=1e-12)
    assert env.optimal_return(1) == pytest.approx((value if model.context is None else model.context.start @ value)[1])
    assert env.optimal_return(env.model.initial) == pytest.approx(start_values(model)[1], rel=1e-12)


@pytest.mark.parametrize("kind", ["target", "limit"])
def test_optimum_of_a_coupled_model_is_the_certified_one(kind: str) -> None:
    model = general_model(kind)
    for mode in ("tilt", "policy"):
        env = EnsembleEnv(model, action=mode)
        _, info = env.reset()
        assert info["optimal_return"] == pytest.approx(start_values(model)[1], rel=1e-12)
        policy = env.optimal_policy
        total = sum(env.step(env.encode_policy(policy[t], dtype=np.float64))[1] for t in range(T))
        assert total == pytest.approx(info["optimal_return"], rel=1e-6)
    # From another start the optimum is another, and the policy of the model's own start falls short of it.
    _, info = env.reset(options={"state": 4})
    assert info["optimal_return"] == pytest.approx(start_values(model.override(initial=[4]))[1], rel=1e-12)
    assert sum(env.step(policy[t])[1] for t in range(T)) <= info["optimal_return"] + 1e-6


@pytest.mark.parametrize("population", ["mean-field", 5])
@pytest.mark.parametrize("kind", ["everything", "nature by context", "context"])
def test_optimal_policy_earns_the_optimum_over_contexts(kind: str, population: str | int) -> None:
    model, size = general_model(kind, 4), 4000
    envs = EnsembleVectorEnv(size, model, population, "tilt", autoreset_mode="DISABLED")
    agent = make_agent("standard", envs)
    observation, info = envs.reset(seed=1)
    best, total = info["optimal_return"], np.zeros(size)
    for _ in range(T):
        observation, reward, _, _, _ = envs.step(agent.predict(observation)[0])
        total += reward
    assert abs((total - best).mean()) < 4 * (total - best).std() / np.sqrt(size)
    assert abs(total.mean() - start_values(model)[1]) < 4 * total.std() / np.sqrt(size)


def test_any_policy_earns_what_policy_evaluation_says() -> None:
    model, size, rng = general_model("everything", 5), 4000, np.random.default_rng(0)
    policy = model.default_policy * rng.gamma(1.0, size=model.default_policy.shape)
    policy /= policy.sum(axis=-1, keepdims=True)
    nature, moves = model.tables().nature, model.context.transition
    cost = evaluate_policy(policy, model.default, model.utility, model.discomfort_penalty, nature=nature, context=moves)
    expected = model.context.start @ -(cost[0] + model.utility[0]) @ model.initial
    envs = EnsembleVectorEnv(size, model, "mean-field", "policy", autoreset_mode="DISABLED")
    agent = PolicyAgent(envs, policy)
    observation, _ = envs.reset(seed=0)
    shares, contexts, total = envs.occupancy, [envs.context], np.zeros(size)
    for _ in range(T):
        observation, reward, _, _, _ = envs.step(agent.predict(observation)[0])
        contexts.append(envs.context)
        total += reward
    assert abs(total.mean() - expected) < 4 * total.std() / np.sqrt(size)
    np.testing.assert_allclose(total, path_returns(model, policy, np.array(contexts).T, shares), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_fits_the_box_and_is_encoded(kind: str) -> None:
    for seed in range(5):
        model = general_model(kind, seed)
        env = EnsembleEnv(model)
        policy = env.optimal_policy.reshape(T, -1, *env.optimal_policy.shape[-2:])
        agent = make_agent("standard", env)
        for t in range(T):
            for w in range(policy.shape[1]):
                action = env.encode_policy(policy[t, w], t, np.float64, w)
                assert np.abs(action).max() <= 1.0
                np.testing.assert_allclose(policy_of(model, "tilt", action, t, w), policy[t, w], atol=1e-9)
                played = agent.actions[t, w] if agent.by_context else agent.actions[t]
                np.testing.assert_allclose(policy_of(model, "tilt", played, t, w), policy[t, w], atol=1e-5)


def test_a_narrow_scale_is_told() -> None:
    model = general_model("everything").override(tilt_scale=np.full(T, 0.01))
    with pytest.raises(ValueError, match="nats wider than the action box; give the model a larger tilt_scale"):
        make_agent("standard", EnsembleEnv(model))
    assert (action_scale(model) == 0.01).all()


@pytest.mark.parametrize("population", ["mean-field", 3])
def test_very_wide_tilts_are_safe(population: str | int) -> None:
    model = general_model("everything").override(tilt_scale=np.full(T, 2000.0))
    env = EnsembleEnv(model, population)
    env.reset(seed=0)
    for action in sample_actions(model, "tilt", 0):
        _, reward, _, _, info = env.step(action)
        assert np.isfinite(reward) and info["discomfort"] >= 0 and env.occupancy.sum() == pytest.approx(1)


# ------------------------------------------------------------------ the campus in disguise
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("population", POPULATIONS)
def test_the_campus_in_disguise_is_the_campus(campus: EnsembleModel, population: str, mode: str) -> None:
    disguised = campus.override(nature=np.eye(20), context=Context([[1.0]], features=np.zeros((1, 0))))
    plain, general = EnsembleEnv(campus, population, mode), EnsembleEnv(disguised, population, mode)
    assert plain.observation_space == general.observation_space and plain.action_space == general.action_space
    first, info = plain.reset(seed=1, options={"state": 7})
    same, info_too = general.reset(seed=1, options={"state": 7})
    np.testing.assert_allclose(first, same, atol=1e-6)
    assert info_too.pop("context") == 0 and info_too == pytest.approx(info, rel=1e-9)
    for action in sample_actions(campus, mode, 2):
        if population == "mean-field":
            one, two = plain.step(action), general.step(action)
            np.testing.assert_allclose(one[0], two[0], atol=1e-6)
            two[4].pop("context")
            assert two[1] == pytest.approx(one[1], abs=1e-9) and two[4] == pytest.approx(one[4], abs=1e-9)
        else:  # other draws, but the same charge for the first move, from one and the same state
            plain.reset(options={"state": 7})
            general.reset(options={"state": 7})
            one, two = plain.step(action), general.step(action)
            assert two[4]["discomfort"] == pytest.approx(one[4]["discomfort"], rel=1e-9, abs=1e-12)
            assert (one[0][:20] > 0).sum() == (two[0][:20] > 0).sum() or population == "buildings"


def test_spread_start_of_a_plain_model(campus: EnsembleModel) -> None:
    """The mean field is linear in the start, so spreading it gives the mean over the starts."""
    env, spread = EnsembleEnv(campus), EnsembleEnv(campus.override(spread_start=True))
    actions = sample_actions(campus, "tilt", 0)
    totals = []
    for state in range(20):
        env.reset(options={"state": state})
        totals.append(sum(env.step(action)[1] for action in actions))
    _, info = spread.reset()
    assert sum(spread.step(action)[1] for action in actions) == pytest.approx(campus.initial @ totals, rel=1e-10)
    assert info["optimal_return"] == pytest.approx(env.optimal_return(campus.initial), rel=1e-12)
    agent = make_agent("standard", spread)
    assert evaluate(agent, spread).score == pytest.approx(100, abs=1e-6) and evaluate(agent, spread).episodes == 1


# ------------------------------------------------------------------ single and vector, copies, checkers
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("population", [*POPULATIONS, 400])
@pytest.mark.parametrize("kind", ["everything", "target"])
def test_vector_equals_single_bit_for_bit(kind: str, population: str | int, mode: str) -> None:
    model, size = general_model(kind), 5
    envs = EnsembleVectorEnv(size, model, population, mode, infos="all", rewards="unit")
    singles = [EnsembleEnv(model, population, mode, infos="all", rewards="unit") for _ in range(size)]
    observations, infos = envs.reset(seed=3)
    rows = [env.reset(seed=3 + i) for i, env in enumerate(singles)]
    envs.action_space.seed(0)
    rewards = np.zeros(size)
    for t in range(2 * (T + 1)):
        for i, row in enumerate(rows):
            np.testing.assert_array_equal(observations[i], row[0])
            assert len(row) == 2 or rewards[i] == row[1]
            for key, value in row[-1].items():
                np.testing.assert_array_equal(infos[key][i], value)
        actions = envs.action_space.sample()
        observations, rewards, terminated, _, infos = envs.step(actions)
        over = t % (T + 1) == T
        rows = [env.reset() if over else env.step(action) for env, action in zip(singles, actions, strict=True)]
        assert (terminated == (t % (T + 1) == T - 1)).all()


@pytest.mark.parametrize("population", POPULATIONS)
def test_autoreset_modes_agree(population: str) -> None:
    model = general_model("everything")
    actions = sample_actions(model, "tilt", 1)
    same = EnsembleVectorEnv(2, model, population, autoreset_mode=AutoresetMode.SAME_STEP)
    following = EnsembleVectorEnv(2, model, population)
    off = EnsembleVectorEnv(2, model, population, autoreset_mode=AutoresetMode.DISABLED)
    for envs in (same, following, off):
        envs.reset(seed=6)
    for _ in range(2):
        for action in actions:
            both = np.stack([action, action])
            one, two, three = same.step(both), following.step(both), off.step(both)
            np.testing.assert_array_equal(two[0], three[0])
            np.testing.assert_array_equal(one[1], two[1])
        np.testing.assert_array_equal(one[4]["final_obs"], two[0])
        np.testing.assert_array_equal(one[4]["final_info"]["context"], two[4]["context"])
        two, three = following.step(both), off.reset()
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[0], three[0])
        np.testing.assert_array_equal(two[4]["context"], three[1]["context"])
    mask = np.array([True, False])
    off.step(both)
    observation, _ = off.reset(options={"reset_mask": mask})
    assert off.time.tolist() == [0, 1] and observation[1] in off.single_observation_space
    features = model.context.features
    np.testing.assert_array_equal(observed_context(observation, features), off.context)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["everything", "limit"])
def test_gymnasium_checker(kind: str, mode: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", category=DeprecationWarning)
        for population in POPULATIONS:
            check_env(EnsembleEnv(general_model(kind), population, mode), skip_render_check=True)


def test_copies_and_pickles_go_the_same_way() -> None:
    for kind, population in (("everything", 30), ("target", "mean-field")):
        env = EnsembleEnv(general_model(kind), population)
        env.reset(seed=1)
        actions = sample_actions(env.model, "tilt", 3)
        env.step(actions[0])
        copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
        rest = [env.step(action) for action in actions[1:]] + [(*env.reset(), 0, 0)]
        for other in copies:
            again = [other.step(action) for action in actions[1:]] + [(*other.reset(), 0, 0)]
            for left, right in zip(rest, again, strict=True):
                np.testing.assert_array_equal(left[0], right[0])
                assert left[1:] == right[1:]
        envs = EnsembleVectorEnv(2, env.model, population)
        envs.reset(seed=0)
        other = pickle.loads(pickle.dumps(envs))
        both = np.stack([actions[0]] * 2)
        np.testing.assert_array_equal(envs.step(both)[0], other.step(both)[0])


def test_info_keys_are_the_same_at_reset_and_step() -> None:
    for kind, extra in (("everything", "context"), ("limit", "cost")):
        env = EnsembleEnv(general_model(kind))
        keys = list(env.reset()[1])
        info = env.step(env.action_space.sample())[4]
        assert list(info) == keys and extra in keys
        assert all(type(info[key]) in (int, float) for key in keys)


# ------------------------------------------------------------------ actions and rewards
@pytest.mark.parametrize("kind", ["everything", None])
def test_discrete_actions_are_prices(campus: EnsembleModel, kind: str | None) -> None:
    model = campus if kind is None else general_model(kind)
    discrete, price = EnsembleEnv(model, action="discrete"), EnsembleEnv(model, action="price")
    assert discrete.action_space.n == 11
    for k in range(11):
        discrete.reset(seed=1)
        price.reset(seed=1)
        one, two = discrete.step(k), price.step(np.array([-1.0 + 0.2 * k], np.float32))
        assert one[1] == pytest.approx(two[1], rel=1e-6)
        assert (one[4]["discomfort"] == 0.0) == (k == 5)
    for wrong in (11, -1, 0.5, np.array([3]), np.array([0.3], np.float32)):
        with pytest.raises(ValueError, match="discrete action"):
            discrete.step(wrong)
    envs = EnsembleVectorEnv(3, model, action="discrete")
    assert envs.action_space.shape == (3,)
    envs.reset(seed=0, options={"state": int(discrete._start.argmax()), "context": discrete.context})
    _, _, _, _, info = envs.step(np.array([0, 5, 10]))
    assert (info["discomfort"] > 0).tolist() == [True, False, True]
    for name in ("uncontrolled", "ad-hoc", "best-price"):
        agent = make_agent(name, envs)
        assert agent.actions.dtype.kind == "i" and 0 <= agent.actions.min() <= agent.actions.max() <= 10
    assert (make_agent("uncontrolled", envs).actions == 5).all()


def test_rewards_of_unit_scale(campus: EnsembleModel) -> None:
    for model in (campus, general_model("everything"), general_model("target")):
        env, unit = EnsembleEnv(model), EnsembleEnv(model, rewards="unit")
        env.reset(seed=0)
        unit.reset(seed=0)
        action = env.action_space.sample()
        one, two = env.step(action), unit.step(action)
        assert two[1] == one[1] / unit.reward_unit and one[4] == two[4] and env.reward_unit == 1.0
        assert unit.reward_unit == reward_unit(model) >= np.abs(model.utility[1:]).max()
    with pytest.raises(ValueError, match="unknown rewards 'nats'"):
        EnsembleEnv(rewards="nats")


# ------------------------------------------------------------------ agents and scores
@pytest.mark.parametrize("population", ["mean-field", 6])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_the_two_ends(kind: str, population: str | int) -> None:
    model = general_model(kind, 6)
    env = EnsembleEnv(model, population, "tilt")
    ends = {
        name: evaluate(make_agent(name, env), env, 300 if population == 6 else 40)
        for name in ("uncontrolled", "standard")
    }
    exact = population == "mean-field" or model.coupling is not None
    for name, value in (("uncontrolled", 0.0), ("standard", 100.0)):
        outcome = ends[name]
        assert abs(outcome.score - value) < (1e-3 if exact else 4 * outcome.score_error + 1e-3)
        assert outcome.exact == (population == "mean-field" and model.context is None)
    if population == "mean-field" and model.context is None:
        idle, best = start_values(model)
        assert ends["uncontrolled"].mean_return == pytest.approx(idle, rel=1e-9)
        assert ends["standard"].mean_return == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_baselines_play_in_every_mode(mode: str) -> None:
    model = general_model("everything", 7)
    env = EnsembleEnv(model, action=mode)
    for name in ("uncontrolled", "ad-hoc", "best-price"):
        outcome = evaluate(make_agent(name, env), env, 30)
        assert outcome.score <= 100 + 1e-6
        reference = EnsembleEnv(model, action="price")
        same = evaluate(make_agent(name, reference), reference, 30)
        assert mode == "discrete" or outcome.score == pytest.approx(same.score, abs=1e-3)


def test_ad_hoc_answers_the_expected_price_of_the_context() -> None:
    utility = np.zeros((3, 2, 2))
    utility[:, 0], utility[:, 1] = [0.0, -6.0], [0.0, 2.0]  # dear, and so cheap that it pays to consume
    moves = [[0.75, 0.25], [0.0, 1.0]]
    model = EnsembleModel(
        np.full((2, 2), 0.5), [0.0, 1.0], utility, 1.0, context=Context(moves), tilt_scale=[10.0, 10.0]
    )
    agent = make_agent("ad-hoc", EnsembleEnv(model, action="price"))
    expected = np.array([0.75 * 6 - 0.25 * 2, -2.0]) / 2 / 10
    np.testing.assert_allclose(agent.actions, np.stack([expected, expected])[..., None], rtol=1e-6)


def test_agents_that_cannot_play_say_so() -> None:
    env = EnsembleEnv(general_model("everything"))
    with pytest.raises(ValueError, match="without nature, context or coupling"):
        make_agent("z-learning", env, transitions=1000)
    with pytest.raises(ValueError, match="policy_t is not a price"):
        make_agent("standard", EnsembleEnv(general_model("everything"), action="price"))
    with pytest.raises(ValueError, match=r"the environment needs \(T, c, n, m\) = \(6, 3, 5, 4\)"):
        PolicyAgent(env, np.zeros((6, 5, 4)))


def test_schedules_read_time_and_context() -> None:
    model = general_model("everything")
    env, actions = EnsembleVectorEnv(50, model, action="price"), np.arange(T * C).reshape(T, C) / 100.0
    agent = ScheduleAgent(actions, "test", "none", model.context, by_context=True)
    observation, _ = env.reset(seed=0)
    for t in range(T):
        np.testing.assert_array_equal(agent.predict(observation)[0], actions[t, env.context])
        assert agent.predict(observation[7])[0] == actions[t, env.context[7]]
        observation, *_ = env.step(np.zeros((50, 1)))
