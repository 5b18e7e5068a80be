"""Every scenario in RLlib: runners made by the id, on the native batch, and one update of its PPO."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from dp_ensemble_env import scenarios
from dp_ensemble_env.envs import EnsembleVectorEnv

NAMES = scenarios.BUILT_IN
POPULATIONS = ("mean-field", 100, "single")


@pytest.fixture(autouse=True)
def results_here(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let RLlib keep its folders of results here rather than at home."""
    monkeypatch.setattr("ray.tune.trainable.trainable.DEFAULT_STORAGE_PATH", str(own_folder))


def configure(name: str, mode: str | None, population: str | int) -> PPOConfig:
    env_id = f"dp_ensemble_env:{scenarios.environment_id(name, mode)}"
    return (
        PPOConfig()
        .environment(env_id, env_config={"population": population})
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=2,
            gym_env_vectorize_mode="vector_entry_point",
        )
        .training(train_batch_size_per_learner=128, minibatch_size=64, num_epochs=1)
        .debugging(seed=3)
    )


@pytest.mark.parametrize("mode", [None, "tilt", "discrete"])
@pytest.mark.parametrize("name", NAMES)
def test_runners_play_whole_episodes(name: str, mode: str | None) -> None:
    config = configure(name, mode, POPULATIONS[NAMES.index(name) % 3])
    runner = SingleAgentEnvRunner(config=config, worker_index=0)
    assert isinstance(runner.env.unwrapped, EnsembleVectorEnv)
    horizon, space = runner.env.unwrapped.model.horizon, runner.env.unwrapped.single_observation_space
    episodes = runner.sample(num_episodes=2)
    runner.stop()
    for episode in episodes:
        assert len(episode) == horizon and episode.is_terminated and not episode.is_truncated
        assert np.isfinite(episode.get_rewards()).all()
        assert all(observation in space for observation in episode.get_observations())


@pytest.mark.parametrize("name", [NAMES[2], NAMES[7]])
def test_one_update_of_ppo(name: str) -> None:
    algo = configure(name, None, "mean-field").build_algo()
    try:
        before = {key: np.array(value) for key, value in algo.get_module().get_state().items()}
        result = algo.train()
        after = algo.get_module().get_state()
    finally:
        algo.stop()
    assert result["num_env_steps_sampled_lifetime"] >= 128
    assert any((before[key] != np.asarray(after[key])).any() for key in before)
