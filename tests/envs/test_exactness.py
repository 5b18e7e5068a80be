"""The environments against closed forms, the solver and a plain NumPy step."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from helpers import random_model
from scipy import stats

from dp_ensemble_env.control.lsmdp import evaluate_policy
from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv
from dp_ensemble_env.envs._numeric import STREAM, binomial, fast_exp, fast_log, uniform
from dp_ensemble_env.envs._parts import COUNTERS
from dp_ensemble_env.envs.actions import action_scale, power_direction
from dp_ensemble_env.envs.tables import observed_price
from dp_ensemble_env.model import EnsembleModel

POPULATIONS = ("mean-field", "buildings", "single")
MODES = ("price", "tilt", "policy")


def matrix_at(model: EnsembleModel, t: int) -> np.ndarray:
    return model.default if model.default.ndim == 2 else model.default[t]


def policy_of(model: EnsembleModel, mode: str, action: np.ndarray, t: int) -> np.ndarray:
    """Plain NumPy meaning of an action: the transition matrix it stands for."""
    default = matrix_at(model, t)
    action = np.asarray(action, dtype=float)
    if mode == "policy":
        masked = np.where(default > 0, action, 0.0)
        total = masked.sum(axis=1, keepdims=True)
        return np.where(total > 0, masked / np.where(total > 0, total, 1.0), default)
    tilt = action_scale(model)[t] * (action if mode == "tilt" else -action[0] * power_direction(model))
    with np.errstate(divide="ignore"):
        logs = np.log(default) + tilt
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def divergences(policy: np.ndarray, default: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(policy > 0, policy * np.log(policy / default), 0.0)
    return terms.sum(axis=1)


def run_policy(env: EnsembleEnv, policy: np.ndarray, dtype: type, state: int) -> float:
    env.reset(seed=0, options={"state": state})
    return sum(env.step(env.encode_policy(policy[t], dtype=dtype))[1] for t in range(env.model.horizon))


# ------------------------------------------------------------------ the optimum
@pytest.mark.parametrize("mode", ["tilt", "policy"])
def test_optimal_policy_earns_the_optimal_return_in_the_mean_field(campus: EnsembleModel, mode: str) -> None:
    env = EnsembleEnv(campus, action=mode)
    for state in range(campus.n_states):
        exact = env.optimal_return(state)
        assert run_policy(env, env.optimal_policy, np.float64, state) == pytest.approx(exact, abs=1e-9)
        assert run_policy(env, env.optimal_policy, np.float32, state) == pytest.approx(exact, rel=1e-4)


def test_optimal_return_is_the_formula(campus: EnsembleModel) -> None:
    from dp_ensemble_env.control.policies import solve_standard

    env = EnsembleEnv(campus)
    expected = campus.discomfort_penalty * solve_standard(campus).log_desirability[0] - campus.utility[0]
    np.testing.assert_allclose([env.optimal_return(b) for b in range(20)], expected, rtol=1e-13)
    assert env.optimal_return(campus.initial) == pytest.approx(campus.initial @ expected, rel=1e-12)
    _, info = env.reset(options={"state": 4})
    assert info["optimal_return"] == env.optimal_return(4)


@pytest.mark.parametrize("population", ["buildings", "single"])
@pytest.mark.parametrize("mode", ["tilt", "policy"])
def test_optimal_policy_in_finite_populations(campus: EnsembleModel, population: str, mode: str) -> None:
    episodes = 10_000 if mode == "tilt" else 1_000
    envs = EnsembleVectorEnv(episodes, campus, population, mode)
    envs.reset(seed=1, options={"state": 12})
    total = np.zeros(episodes)
    for t in range(campus.horizon):
        one = envs.encode_policy(envs.optimal_policy[t], t)
        _, reward, _, _, _ = envs.step(np.broadcast_to(one, (episodes, *one.shape)))
        total += reward
    error = total.std(ddof=1) / np.sqrt(episodes)
    assert abs(total.mean() - envs.optimal_return(12)) < 3 * error
    # The loads move independently: a hundred of them vary a tenth as much as one.
    assert 10 < total.std() * np.sqrt(envs.population or 1) < 200


def test_any_policy_earns_what_policy_evaluation_says() -> None:
    for seed in range(20):
        model = random_model(seed, varying=seed % 2 == 1)
        rng = np.random.default_rng(seed)
        policy = np.stack([matrix_at(model, t) * rng.gamma(1.0, size=(6, 6)) for t in range(5)])
        policy /= policy.sum(axis=2, keepdims=True)
        cost = evaluate_policy(policy, model.default, model.utility, model.discomfort_penalty)
        env = EnsembleEnv(model, action="policy")
        for state in range(6):
            expected = -cost[0, state] - model.utility[0, state]
            assert run_policy(env, policy, np.float64, state) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("varying", [False, True])
def test_optimum_lies_inside_the_box(varying: bool) -> None:
    for seed in range(100):
        model = random_model(seed, n=2 + seed % 9, horizon=1 + seed % 7, varying=varying)
        check_box(model)


def test_optimum_of_the_campus_lies_inside_the_box(campus: EnsembleModel) -> None:
    check_box(campus)
    check_box(campus.override(discomfort_penalty=0.5))


def check_box(model: EnsembleModel) -> None:
    env = EnsembleEnv(model)
    log_z = env._task.kernel.solution.log_desirability
    assert (np.ptp(log_z[1:], axis=1) <= 2 * action_scale(model) * (1 + 1e-12) + 1e-12).all()
    for t in range(model.horizon):
        action = env.encode_policy(env.optimal_policy[t], time=t, dtype=np.float64)
        assert np.abs(action).max() <= 1.0
        np.testing.assert_allclose(policy_of(model, "tilt", action, t), env.optimal_policy[t], atol=1e-9)
    state = model.n_states - 1
    assert run_policy(env, env.optimal_policy, np.float64, state) == pytest.approx(env.optimal_return(state), rel=1e-9)


def test_very_wide_tilts_take_the_row_wise_path() -> None:
    model = random_model(3, n=8, horizon=6).override(discomfort_penalty=0.02)
    scale = action_scale(model)
    assert scale[0] > 2_000
    for population in POPULATIONS:
        env = EnsembleEnv(model, population)
        log_z = env._task.kernel.solution.log_desirability
        env.reset(seed=0, options={"state": 2})
        total = 0.0
        for t in range(6):
            centred = log_z[t + 1] - 0.5 * (log_z[t + 1].max() + log_z[t + 1].min())
            _, reward, _, _, info = env.step(centred / scale[t])
            assert np.isfinite(reward) and env.occupancy.sum() == pytest.approx(1.0, abs=1e-12)
            total += reward
        if population == "mean-field":
            assert total == pytest.approx(env.optimal_return(2), rel=1e-9)


# ------------------------------------------------------------------ one step
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("population", POPULATIONS)
def test_zero_action_does_not_interfere(campus: EnsembleModel, population: str, mode: str) -> None:
    env = EnsembleEnv(campus, population, mode, infos="all")
    _, info = env.reset(seed=5)
    for _ in range(campus.horizon):
        before = env.occupancy
        _, reward, _, _, info = env.step(np.zeros(env.action_space.shape, np.float32))
        assert info["discomfort"] == 0.0
        assert reward == info["utility"]
        if population == "mean-field":
            np.testing.assert_allclose(env.occupancy, before @ campus.default, atol=1e-14)
            np.testing.assert_allclose(env.occupancy, info["default_occupancy"], atol=1e-13)
            assert info["curtailment_kw"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("varying", [False, True])
def test_mean_field_step_equals_plain_numpy(mode: str, varying: bool) -> None:
    for seed in range(25):
        model = random_model(seed, n=3 + seed % 6, horizon=4, varying=varying)
        rng = np.random.default_rng(seed)
        env = EnsembleEnv(model, action=mode)
        start = rng.dirichlet(np.ones(model.n_states))
        env.reset(options={"occupancy": start})
        for t in range(4):
            action = rng.uniform(env.action_space.low, 1.0).astype(np.float32 if seed % 2 else np.float64)
            before = env.occupancy
            observation, reward, _, _, info = env.step(action)
            policy = policy_of(model, mode, action, t)
            after = before @ policy
            np.testing.assert_allclose(env.occupancy, after, atol=1e-13)
            discomfort = model.discomfort_penalty * before @ divergences(policy, matrix_at(model, t))
            assert info["discomfort"] == pytest.approx(discomfort, rel=1e-9, abs=1e-11)
            assert info["utility"] == pytest.approx(after @ model.utility[t + 1], rel=1e-12)
            assert reward == info["utility"] - info["discomfort"]
            assert info["power_kw"] == pytest.approx(after @ model.power_kw, rel=1e-12)
            np.testing.assert_allclose(observation[: model.n_states], after, atol=1e-7)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("population", [1, 7, 5000])
def test_finite_populations_move_as_the_policy_says(population: int, mode: str) -> None:
    """One step of many environments: frequencies of the moves, and the discomfort, which has no noise."""
    model = random_model(2, n=5, horizon=3, density=0.8)
    size = 4000 if population < 100 else 40
    envs = EnsembleVectorEnv(size, model, population, mode)
    envs.reset(seed=3, options={"state": 1})
    rng = np.random.default_rng(4)
    action = rng.uniform(envs.single_action_space.low, 1.0)
    _, _, _, _, infos = envs.step(np.broadcast_to(action, (size, *action.shape)).copy())
    row = policy_of(model, mode, action, 0)[1]
    moved = envs.occupancy.sum(axis=0) * population
    assert moved[row == 0].sum() == 0
    kept = row > 0
    total = size * population
    assert stats.chisquare(moved[kept], row[kept] * total).pvalue > 1e-7
    expected = model.discomfort_penalty * divergences(policy_of(model, mode, action, 0), model.default)[1]
    np.testing.assert_allclose(infos["discomfort"], expected, rtol=1e-9)
    np.testing.assert_array_equal((envs.occupancy * population).round(9) % 1, 0.0)


def test_populations_converge_to_the_mean_field_at_the_rate_of_chance(campus: EnsembleModel) -> None:
    rng = np.random.default_rng(0)
    actions = rng.uniform(-0.3, 0.3, (campus.horizon, 20))
    limit = EnsembleEnv(campus)
    limit.reset(options={"state": 10})
    for action in actions:
        limit.step(action)
    sizes, distance = [100, 1_600, 25_600], []
    for size in sizes:
        envs = EnsembleVectorEnv(200, campus, size)
        envs.reset(seed=size, options={"state": 10})
        for action in actions:
            envs.step(np.broadcast_to(action, (200, 20)).copy())
        distance.append(np.sqrt(((envs.occupancy - limit.occupancy) ** 2).sum(axis=1).mean()))
    slope = np.polyfit(np.log(sizes), np.log(distance), 1)[0]
    assert -0.56 < slope < -0.44
    # Var = sum_a p(1-p) / N to leading order: the size of the distance, not only its rate.
    spread = np.sqrt((limit.occupancy * (1 - limit.occupancy)).sum() / np.array(sizes))
    np.testing.assert_allclose(distance, spread, rtol=0.15)


# ------------------------------------------------------------------ observations and infos
def test_observation_holds_time_and_prices(campus: EnsembleModel) -> None:
    env = EnsembleEnv(campus)
    observation, _ = env.reset(seed=0)
    price = campus.event.price / campus.event.price.max()
    for t in range(campus.horizon + 1):
        assert observation[20] == np.float32((18 - t) / 18)
        assert observation[21] == np.float32(price[min(t + 1, 18)])
        assert observation[22] == np.float32(price[min(t + 2, 18)])
        if t < campus.horizon:
            observation, _, terminated, truncated, info = env.step(np.zeros(20, np.float32))
            assert terminated == (t == 17) and truncated is False and info["time"] == t + 1


def test_price_of_a_model_without_event_is_the_slope_of_its_utility(campus: EnsembleModel) -> None:
    bare = campus.override(event=None)
    np.testing.assert_allclose(observed_price(bare), campus.event.price, rtol=1e-9)


def test_curtailment_is_uncontrolled_less_actual_power(campus: EnsembleModel) -> None:
    env = EnsembleEnv(campus, action="price")
    _, info = env.reset(options={"state": 15})
    uncontrolled = np.zeros(20)
    uncontrolled[15] = 1.0
    assert info["power_kw"] == campus.power_kw[15] and info["curtailment_kw"] == 0.0
    for _ in range(6):
        uncontrolled = uncontrolled @ campus.default
        _, _, _, _, info = env.step(np.array([0.5], np.float32))
        expected = uncontrolled @ campus.power_kw - env.occupancy @ campus.power_kw
        assert info["curtailment_kw"] == pytest.approx(expected, rel=1e-9)
    assert info["curtailment_kw"] > 0  # a positive price lowers the power


def test_start_states_follow_the_initial_distribution(campus: EnsembleModel) -> None:
    envs = EnsembleVectorEnv(20_000, campus, "single")
    envs.reset(seed=0)
    counts = envs.occupancy.sum(axis=0)
    kept = campus.initial > 0
    assert counts[~kept].sum() == 0
    assert stats.chisquare(counts[kept], campus.initial[kept] * 20_000).pvalue > 1e-7


def test_start_from_a_distribution(campus: EnsembleModel) -> None:
    shares = np.zeros(20)
    shares[[3, 9]] = 0.25, 0.75
    mean_field = EnsembleEnv(campus)
    _, info = mean_field.reset(options={"occupancy": shares})
    np.testing.assert_array_equal(mean_field.occupancy, shares)
    assert info["optimal_return"] == pytest.approx(mean_field.optimal_return(shares), rel=1e-12)
    envs = EnsembleVectorEnv(2_000, campus, "buildings")
    envs.reset(seed=0, options={"occupancy": shares})
    started = envs.occupancy
    assert set(np.flatnonzero(started.sum(axis=0))) == {3, 9}
    np.testing.assert_allclose(started.sum(axis=1), 1.0, atol=1e-12)
    assert started[:, 9].mean() == pytest.approx(0.75, abs=6 * np.sqrt(0.1875 / 200_000))


# ------------------------------------------------------------------ encoding
def test_encode_policy_round_trip_and_refusals(campus: EnsembleModel) -> None:
    rng = np.random.default_rng(1)
    tilts = EnsembleEnv(campus)
    action = rng.uniform(-1, 1, 20)
    np.testing.assert_allclose(
        policy_of(campus, "tilt", tilts.encode_policy(policy_of(campus, "tilt", action, 3), 3, np.float64), 3),
        policy_of(campus, "tilt", action, 3),
        atol=1e-10,
    )
    prices = EnsembleEnv(campus, action="price")
    one = prices.encode_policy(policy_of(campus, "price", np.array([0.37]), 2), 2, np.float64)
    assert one == pytest.approx([0.37], rel=1e-9)
    other = campus.default * rng.gamma(1.0, size=(20, 20))
    other /= other.sum(axis=1, keepdims=True)
    for env in (tilts, prices):
        with pytest.raises(ValueError, match="action='policy'"):
            env.encode_policy(other, 0)
    exact = EnsembleEnv(campus, action="policy").encode_policy(other, 0, np.float64)
    np.testing.assert_array_equal(exact, other)
    with pytest.raises(ValueError, match="past the last decision"):
        tilts.encode_policy(campus.default, 18)
    outside = np.eye(20)[::-1]
    with pytest.raises(ValueError, match="never do"):
        tilts.encode_policy(outside, 0)


# ------------------------------------------------------------------ numbers
def test_exponential_and_logarithm_to_the_last_digits() -> None:
    x = np.concatenate([np.linspace(-700, 700, 20_001), np.linspace(-1, 1, 20_001)])
    ours = np.array([fast_exp(v) for v in x])
    np.testing.assert_allclose(ours, np.exp(x), rtol=1e-15)
    assert fast_exp(0.0) == 1.0
    y = np.concatenate([np.exp(np.linspace(-600, 600, 20_001)), 1 + np.linspace(-1e-3, 1e-3, 2_001)])
    np.testing.assert_allclose([fast_log(v) for v in y], np.log(y), rtol=1e-15, atol=1e-18)
    assert fast_log(1.0) == 0.0


def test_uniform_is_xoroshiro128() -> None:
    counters = np.zeros((COUNTERS, 1), np.int64)
    counters[STREAM : STREAM + 2, 0] = 123456789, 987654321
    a, b, mask = 123456789, 987654321, 2**64 - 1

    def rotate(x: int, k: int) -> int:
        return ((x << k) | (x >> (64 - k))) & mask

    from numba import njit

    draw = njit(lambda c: uniform(c, 0))
    for _ in range(100):
        out = (rotate((a + b) & mask, 17) + a) & mask
        b ^= a
        a, b = rotate(a, 49) ^ b ^ ((b << 21) & mask), rotate(b, 28)
        assert draw(counters) == (out >> 11) / 2**53


@pytest.mark.parametrize(("count", "p"), [(5, 0.3), (40, 0.1), (40, 0.9), (100, 0.5), (1000, 0.02), (1000, 0.4)])
def test_binomial_has_its_distribution(count: int, p: float) -> None:
    counters = np.zeros((COUNTERS, 1), np.int64)
    counters[STREAM : STREAM + 2, 0] = count, 77
    draws = np.array([binomial(counters, 0, count, p) for _ in range(40_000)])
    expected = stats.binom(count, p).pmf(np.arange(count + 1)) * draws.size
    counts = np.bincount(draws, minlength=count + 1).astype(float)
    kept = expected > 10
    observed = np.append(counts[kept], counts[~kept].sum())
    wanted = np.append(expected[kept], expected[~kept].sum())
    kept = wanted > 0
    assert stats.chisquare(observed[kept], wanted[kept] * observed.sum() / wanted.sum()).pvalue > 1e-7


def test_seeds_fix_the_episode(campus: EnsembleModel) -> None:
    env = gymnasium.make("dp_ensemble/SingleLoad-v0", model=campus)

    def episode(seed: int | None) -> list[float]:
        env.reset(seed=seed)
        return [env.step(np.zeros(20, np.float32))[1] for _ in range(18)]

    first, later = episode(7), episode(None)
    assert episode(7) == first and episode(None) == later
    assert episode(8) != first
    env.reset(seed=7)
    env.unwrapped.np_random = np.random.default_rng(5)  # a replaced generator reseeds the stream
    replaced = episode(None)
    env.unwrapped.np_random = np.random.default_rng(5)
    assert episode(None) == replaced
