"""Every id through each adapter, and every scenario in Minari and Stable-Baselines3 by its id and nothing else."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli.main import main
from dp_ensemble_env.envs import functional

NAMES = scenarios.BUILT_IN
POPULATIONS = ("mean-field", 100, "single")


@pytest.mark.parametrize("name", NAMES)
def test_minari_stores_and_replays_a_scenario(name: str, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = importlib.import_module("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(own_folder / "kept"))
    words = ["--scenario", name, "--kinds", "uncontrolled", "standard", "--episodes", "3", "--noise", "0"]
    assert main(["dataset", *words, "--name", name]) == 0
    scores = {}
    for kind in ("uncontrolled", "standard"):
        dataset = minari.load_dataset(f"dp_ensemble/{name}/{kind}-v0")
        env = dataset.recover_environment()
        horizon = env.unwrapped.model.horizon
        assert env.spec.max_episode_steps == horizon and dataset.total_steps == 3 * horizon
        seeds = [one["seed"] for one in dataset.storage.get_episode_metadata(dataset.episode_indices)]
        for episode, seed in zip(dataset.iterate_episodes(), seeds, strict=True):
            observation, _ = env.reset(seed=seed)
            np.testing.assert_array_equal(observation, episode.observations[0])
            for t, action in enumerate(episode.actions):
                observation, reward, terminated, truncated, _ = env.step(action)
                np.testing.assert_array_equal(observation, episode.observations[t + 1])
                assert reward == episode.rewards[t] and not truncated
            assert terminated
        scores[kind] = dataset.storage.metadata["behaviour_scores"][kind]
    assert scores["uncontrolled"] == pytest.approx(0, abs=1e-6)
    assert scores["standard"] == pytest.approx(100, abs=5 if scenarios.make(name).context is not None else 1e-3)


def _gymnasium(env_id: str) -> Iterator[Any]:
    envs = gymnasium.make_vec(env_id, 2, vectorization_mode="vector_entry_point")
    yield envs.reset(seed=0)[0]
    yield envs.step(envs.action_space.sample())[:2]


def _stable_baselines3(env_id: str) -> Iterator[Any]:
    from dp_ensemble_env.envs.sb3 import EnsembleVecEnv

    envs = EnsembleVecEnv(2, env_id)
    yield envs.reset()
    yield envs.step(np.array([envs.action_space.sample()] * 2))[:2]


def _torchrl(env_id: str) -> Iterator[Any]:
    rollout = importlib.import_module("torchrl.envs").GymEnv(env_id).rollout(2)
    yield rollout["observation"]
    yield rollout["next", "observation"], rollout["next", "reward"]


def _tianshou(env_id: str) -> Iterator[Any]:
    envs = importlib.import_module("tianshou.env").DummyVectorEnv([lambda: gymnasium.make(env_id)] * 2)
    yield envs.reset()[0]
    yield envs.step(np.array([envs.action_space[0].sample()] * 2))[:2]


def _minari(env_id: str) -> Iterator[Any]:
    env = importlib.import_module("minari").DataCollector(gymnasium.make(env_id))
    yield env.reset()[0][None]
    observation, reward, *_ = env.step(env.action_space.sample())
    yield observation[None], reward


def _functional(env_id: str) -> Iterator[Any]:
    env = gymnasium.make(env_id)
    params, rng = functional.make(env.unwrapped), np.random.default_rng(0)
    state, observation = functional.reset(params, rng)
    yield observation[None]
    _, observation, reward, *_ = functional.step(params, state, env.action_space.sample(), rng)
    yield observation[None], reward


@pytest.mark.parametrize("adapter", [_gymnasium, _stable_baselines3, _torchrl, _tianshou, _minari, _functional])
@pytest.mark.parametrize("env_id", [one for one in gymnasium.registry if one.startswith("dp_ensemble/")])
def test_every_id_goes_through_every_adapter(env_id: str, adapter: Callable[[str], Iterator[Any]]) -> None:
    first, (second, reward) = adapter(env_id)
    size = gymnasium.spec(env_id).make().observation_space.shape[-1]  # type: ignore[index]
    for observation in (first, second):
        assert observation.shape[-1] == size and 0 <= float(observation.min()) <= float(observation.max()) <= 1
    assert bool(np.isfinite(np.asarray(reward)).all())


@pytest.mark.parametrize("name", NAMES)
def test_stable_baselines3_trains_by_the_id(name: str) -> None:
    """Its own `make_vec_env` with the id, and the adapter of the native batch; one update each."""
    sb3 = importlib.import_module("stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env

    from dp_ensemble_env.envs.sb3 import EnsembleVecEnv

    small = {"n_steps": 16, "batch_size": 32, "n_epochs": 1, "seed": 0, "device": "cpu"}
    population = POPULATIONS[(NAMES.index(name) + 1) % 3]
    loop = make_vec_env(f"dp_ensemble_env:{scenarios.environment_id(name)}", n_envs=2)
    for envs in (loop, EnsembleVecEnv(2, model=name, action="tilt", population=population)):
        before = sb3.PPO("MlpPolicy", envs, **small)
        weights = before.policy.action_net.weight.detach().clone()
        before.learn(32)
        assert before.num_timesteps == 32 and not bool((before.policy.action_net.weight == weights).all())
    sb3.DQN("MlpPolicy", gymnasium.make(scenarios.environment_id(name, "discrete")), learning_starts=8, seed=0).learn(
        24
    )
