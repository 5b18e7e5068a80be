"""Stable-Baselines3 on the native batch."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from helpers import random_model

from dp_ensemble_env.envs import EnsembleEnv

pytestmark = pytest.mark.torch


@pytest.fixture
def adapter():
    importlib.import_module("stable_baselines3")
    return importlib.import_module("dp_ensemble_env.envs.sb3").EnsembleVecEnv


def test_the_adapter_equals_single_environments(adapter) -> None:
    model = random_model(0)
    envs, single = adapter(3, model=model, population=40), EnsembleEnv(model, 40)
    envs.seed(7)
    observations = envs.reset()
    observation, info = single.reset(seed=8)
    np.testing.assert_array_equal(observations[1], observation)
    assert envs.reset_infos[1] == info
    rng, total = np.random.default_rng(0), 0.0
    for _ in range(10):
        action = rng.uniform(-1, 1, (3, 6)).astype(np.float32)
        observations, rewards, dones, infos = envs.step(action)
        observation, reward, terminated, _, info = single.step(action[1])
        total += reward
        assert rewards[1] == np.float32(reward) and dones[1] == terminated
        if terminated:
            np.testing.assert_array_equal(infos[1]["terminal_observation"], observation)
            assert infos[1]["episode"]["r"] == pytest.approx(total, rel=1e-12) and infos[1]["episode"]["l"] == 5
            assert infos[1]["TimeLimit.truncated"] is False
            assert all(infos[1][key] == value for key, value in info.items())
            observation, _ = single.reset()
            total = 0.0
        else:
            assert infos[1] == {}
        np.testing.assert_array_equal(observations[1], observation)
    assert envs.get_attr("population") == [40] * 3
    assert envs.env_method("optimal_return", 3, indices=[0]) == [single.optimal_return(3)]


def test_ids_and_options(adapter) -> None:
    envs = adapter(2, "dp_ensemble_env:dp_ensemble/CampusEvent-tilt-v1", population="single")
    assert envs.get_attr("action_mode") == ["tilt"] * 2 and envs.get_attr("population") == [1, 1]
    envs.set_options({"state": 3})
    assert (envs.reset()[:, :20].argmax(axis=1) == 3).all()
    envs.set_options([{"state": 3}, {"state": 4}])
    with pytest.raises(ValueError, match="one dict for all"):
        envs.reset()


def test_environments_of_others_are_refused(adapter) -> None:
    with pytest.raises(ValueError, match="unknown environment"):
        adapter(2, "CartPole-v1")
