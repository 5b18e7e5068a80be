"""Every scenario in Minari, TorchRL, Stable-Baselines3 and a comparison: by its id and nothing else."""

from __future__ import annotations

import importlib
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli.main import main

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


@pytest.mark.parametrize("name", NAMES)
def test_torchrl_rolls_a_scenario_out(name: str) -> None:
    torchrl = importlib.import_module("torchrl.envs")
    population = POPULATIONS[NAMES.index(name) % 3]
    for mode in ("price", "discrete", "tilt"):
        env_id = f"dp_ensemble_env:{scenarios.environment_id(name, mode)}"
        env = torchrl.GymEnv(env_id, population=population)
        if mode == "price":
            torchrl.check_env_specs(env, seed=0)
        env.set_seed(5)
        rollout = env.rollout(200)
        twin = gymnasium.make(env_id, population=population)
        horizon = twin.unwrapped.model.horizon  # type: ignore[attr-defined]
        assert rollout.batch_size == (horizon,)
        assert rollout["next", "terminated"].flatten().tolist() == [False] * (horizon - 1) + [True]
        assert not rollout["next", "truncated"].any()
        assert rollout["observation"].shape[-1] == twin.observation_space.shape[0]  # type: ignore[index]
    native = {"vectorization_mode": "vector_entry_point", "population": population, "autoreset_mode": "SAME_STEP"}
    vector = gymnasium.make_vec(f"dp_ensemble_env:{scenarios.environment_id(name)}", num_envs=3, **native)
    assert torchrl.GymWrapper(vector).rollout(5).batch_size == (3, 5)


@pytest.mark.parametrize("name", NAMES)
def test_stable_baselines3_trains_by_the_id(name: str) -> None:
    """Its own `make_vec_env` with the id, and the adapter of the native batch; one update each."""
    sb3 = importlib.import_module("stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env

    from dp_ensemble_env.envs.sb3 import EnsembleVecEnv

    small = {"n_steps": 16, "batch_size": 32, "n_epochs": 1, "seed": 0, "device": "cpu"}
    population = POPULATIONS[(NAMES.index(name) + 1) % 3]
    loop = make_vec_env(f"dp_ensemble_env:{scenarios.environment_id(name)}", n_envs=2)
    native = EnsembleVecEnv(2, model=name, action="tilt", population=population)
    for envs in (loop, native):
        before = sb3.PPO("MlpPolicy", envs, **small)
        weights = before.policy.action_net.weight.detach().clone()
        before.learn(32)
        assert before.num_timesteps == 32 and not bool((before.policy.action_net.weight == weights).all())
    sb3.DQN("MlpPolicy", gymnasium.make(scenarios.environment_id(name, "discrete")), learning_starts=8, seed=0).learn(
        24
    )
