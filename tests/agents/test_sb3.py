"""What learners of Stable-Baselines3 see, earn and choose."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracles import N, T, general_model

from dp_ensemble_env.agents.loading import LearnedAgent
from dp_ensemble_env.agents.sb3 import ClockFeatures, codes_of, training_env
from dp_ensemble_env.envs import EnsembleEnv, actions
from dp_ensemble_env.envs.sb3 import EnsembleVecEnv


# ------------------------------------------------------------------ what they see
@pytest.mark.parametrize("kind", ["campus", "everything"])
def test_clock_features_are_one_hot_time_and_occupancy_and_keep_the_context(kind, campus):
    model, more = (campus, 0) if kind == "campus" else (general_model(kind), 7)
    env = EnsembleEnv(model, action="price")
    horizon, n = model.horizon, model.n_states
    features = ClockFeatures(env.observation_space, horizon, 3 if more else 0)
    assert features.features_dim == horizon + n + more and (kind == "campus" or (horizon, n) == (T, N))
    observation, _ = env.reset(seed=0)
    for t in range(horizon):
        row = features(torch.as_tensor(observation)[None]).numpy()[0]
        np.testing.assert_array_equal(row[:horizon], np.eye(horizon)[t])
        np.testing.assert_array_equal(row[horizon:], np.r_[observation[:n], observation[n + 1 :][:more]])
        observation, *_ = env.step(np.array([0.3], np.float32))


def test_the_last_observations_are_stacked_as_in_training():
    """Acting keeps the frames in its state; over the end of an episode they are what VecFrameStack shows."""
    core = EnsembleEnv("front", action="signals")
    stacked, plain = training_env(core, {"n_envs": 2, "frame_stack": 3}), training_env(core, {"n_envs": 2})
    seen: list[np.ndarray] = []

    class Watcher:
        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            seen.append(observation)
            return np.zeros((2, 6), np.float32), state

    agent = LearnedAgent(Watcher(), "ppo", frame_stack=3)
    for env in (stacked, plain):
        env.seed(1)
    expected, observation, starts, state = stacked.reset(), plain.reset(), np.ones(2, bool), None
    for _ in range(core.model.horizon + 3):
        action, state = agent.predict(observation, state, starts)
        np.testing.assert_array_equal(seen[-1], expected)
        expected, (observation, _, starts, _) = stacked.step(action)[0], plain.step(action)


# ------------------------------------------------------------------ what they earn and choose
@pytest.mark.parametrize("bins", [{}, {"bins": 21}])
def test_learners_earn_points_with_the_prices_of_the_discretising_wrapper(campus, bins):
    core, settings, choices = EnsembleEnv(campus, action="price"), {"n_envs": 21, **bins}, np.arange(21)
    scaled, plain = training_env(core, settings), EnsembleVecEnv(21, model=campus, action="price")
    for env in (plain, scaled):
        env.seed(0)
        env.reset()
    prices = codes_of({"bins": 21}, core)
    assert abs(prices[10, 0]) < 1e-7  # doing nothing is among the choices
    for _ in range(campus.horizon):
        expected, earned = plain.step(prices)[1], scaled.step(choices if bins else prices)[1]
        np.testing.assert_allclose(earned, expected, rtol=1e-6)


@pytest.mark.parametrize("m", [2, 13, 20])
def test_cosines_hold_all_tilts_slowest_first(m):
    levels, waves = (2 * np.arange(m) + 1) / (2 * m), actions.cosine_waves(m, m)
    for j in range(m):
        wave = np.cos(np.pi * j * levels)
        np.testing.assert_allclose(waves[j], 0.5 * np.sqrt(m) * wave / np.linalg.norm(wave), atol=1e-12)
    weights = np.linalg.solve(waves.T, np.random.default_rng(0).choice([-0.5, 0.5], (50, m)).T).T
    assert np.abs(weights).max() <= 1 + 1e-9  # tilts whose root mean square is 1/2 need none beyond the box
    np.testing.assert_allclose(waves[:3], actions.cosine_waves(3, m), atol=1e-12)


def test_cosines_are_an_action_mode_that_moves_as_its_tilts_do(campus):
    tilts, waves = EnsembleVecEnv(3, model=campus), training_env(EnsembleEnv(campus), {"n_envs": 3, "cosines": 6})
    codes = codes_of({"cosines": 6}, EnsembleEnv(campus))
    assert waves.action_space.shape == (6,) and codes.shape == (6, 20)
    for env in (tilts, waves):
        env.seed(0)
        env.reset()
    weights = np.random.default_rng(1).uniform(-0.3, 0.3, (3, 6)).astype(np.float32)
    for _ in range(campus.horizon):
        expected, moved = tilts.step(weights @ codes), waves.step(weights)
        np.testing.assert_allclose(moved[0], expected[0], atol=1e-6)
