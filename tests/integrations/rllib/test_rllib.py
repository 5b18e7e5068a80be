"""RLlib's own runners and its PPO on the environments, made by id, in every scenario."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import ray
from gymnasium.vector import AutoresetMode
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils.spaces.space_utils import unsquash_action

from dp_ensemble_env import scenarios
from dp_ensemble_env.envs import EnsembleVectorEnv

ID = "dp_ensemble_env:dp_ensemble/CampusEvent-v1"
NATIVE = "vector_entry_point"
SEED = 11
NAMES = scenarios.BUILT_IN
#: RLlib refuses actions of two dimensions.
IDS = [one for one in gymnasium.registry if one.startswith("dp_ensemble/") and "-policy-" not in one]
POPULATIONS = ("mean-field", 100, "single")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the workers cannot import this file
    ray.shutdown()  # RLlib starts one by itself where a test trained without
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def results_here(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let RLlib keep its folders of results here rather than at home."""
    monkeypatch.setattr("ray.tune.trainable.trainable.DEFAULT_STORAGE_PATH", str(own_folder))


def configure(
    *, env_id: str = ID, runners: int = 0, num_envs: int = 3, mode: str = NATIVE, **env_config: Any
) -> PPOConfig:
    return (
        PPOConfig()
        .environment(env_id, env_config=env_config)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=num_envs, gym_env_vectorize_mode=mode)
        .training(train_batch_size_per_learner=216, minibatch_size=108, num_epochs=1)
        .debugging(seed=SEED)
    )


def sampled(config: PPOConfig, rounds: int) -> list[Any]:
    """Play `rounds` episodes in each sub-environment of a runner in this process, with an untrained network."""
    runner = SingleAgentEnvRunner(config=config, worker_index=0)
    try:
        return runner.sample(num_episodes=rounds * runner.num_envs)
    finally:
        runner.stop()


def check_replay(episodes: list[Any], config: PPOConfig, seed: int) -> None:
    """Play what a runner recorded again, in single environments seeded like its sub-environments."""
    size = config.num_envs_per_env_runner
    envs = [gymnasium.make(config.env, **config.env_config) for _ in range(size)]
    for i, episode in enumerate(episodes):
        env = envs[i % size]
        observation, _ = env.reset(seed=seed + i if i < size else None)
        observations, rewards, ends = [observation], [], []
        for action in unsquash_action(episode.get_actions(), env.action_space):
            observation, reward, terminated, _, _ = env.step(action)
            observations.append(observation)
            rewards.append(reward)
            ends.append(terminated)
        assert ends == [False] * 17 + [True]
        assert episode.is_terminated and not episode.is_truncated
        np.testing.assert_array_equal(episode.get_observations(), observations)
        np.testing.assert_array_equal(episode.get_rewards(), rewards)


@pytest.mark.parametrize("number", range(len(IDS)))
def test_runners_play_whole_episodes_of_every_id_but_policies(number: int) -> None:
    env_id, population = f"dp_ensemble_env:{IDS[number]}", POPULATIONS[number % 3]
    runner = SingleAgentEnvRunner(config=configure(env_id=env_id, num_envs=2, population=population), worker_index=0)
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
    env_id = f"dp_ensemble_env:{scenarios.environment_id(name)}"
    algo = configure(env_id=env_id, num_envs=2, population="mean-field").build_algo()
    try:
        before = {key: np.array(value) for key, value in algo.get_module().get_state().items()}
        result = algo.train()
        after = algo.get_module().get_state()
    finally:
        algo.stop()
    assert result["num_env_steps_sampled_lifetime"] >= 128
    assert any((before[key] != np.asarray(after[key])).any() for key in before)


@pytest.mark.parametrize("action", ["price", "tilt"])
@pytest.mark.parametrize("population", POPULATIONS)
def test_recorded_episodes_are_those_of_single_environments(population: str | int, action: str) -> None:
    config = configure(population=population, action=action)
    episodes = sampled(config, rounds=3)
    assert len(episodes) == 9
    check_replay(episodes, config, SEED)


def test_fragments_cover_every_step_and_no_reset() -> None:
    runner = SingleAgentEnvRunner(config=configure(num_envs=4), worker_index=0)
    unwrapped = runner.env.unwrapped
    assert isinstance(unwrapped, EnsembleVectorEnv)
    assert unwrapped.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    pieces = [piece for _ in range(5) for piece in runner.sample(num_timesteps=4 * 25)]
    runner.stop()
    assert sum(len(piece) for piece in pieces) == 5 * 4 * 25
    whole: dict[str, list[Any]] = {}
    for piece in pieces:
        whole.setdefault(piece.id_, []).append(piece)
    lengths = [sum(len(part) for part in parts) for parts in whole.values() if parts[-1].is_terminated]
    assert len(lengths) == 4 * (125 // 18)
    assert set(lengths) == {18}
    for parts in whole.values():
        times = np.concatenate([part.get_infos(slice(1, None)) for part in parts])
        assert [info["time"] for info in times] == list(range(1, len(times) + 1))


def test_remote_runners_make_the_environment_and_share_one_release(cluster: None) -> None:
    settings = {"population": "single", "action": "tilt", "privacy": "dirichlet:k=50,floor=0.05"}
    config = configure(runners=2, **settings)
    algo = config.build_algo()
    try:
        found = algo.env_runner_group.foreach_env_runner(look, local_env_runner=False)
        algo.train()
        weights = algo.get_module().get_state()
        others = algo.env_runner_group.foreach_env_runner(weights_of, local_env_runner=False)
    finally:
        algo.stop()
    expected = gymnasium.make(ID, **settings).unwrapped
    assert len({os.getpid(), *(pid for pid, *_ in found)}) == 3
    for _, kind, releases, matrix, index, episodes in found:
        assert kind == "EnsembleVectorEnv"
        assert releases == expected.ledger.releases == 1
        np.testing.assert_array_equal(matrix, expected.release.matrix)
        assert len(episodes) == 6
        check_replay(episodes, config, SEED + index)
    assert not np.array_equal(found[0][-1][0].get_observations(), found[1][-1][0].get_observations())
    assert len(others) == 2
    for other in others:
        for name, values in weights.items():
            np.testing.assert_array_equal(other[name], values)


def look(runner: SingleAgentEnvRunner) -> tuple[Any, ...]:
    env = runner.env.unwrapped
    episodes = runner.sample(num_episodes=6)
    return os.getpid(), type(env).__name__, env.ledger.releases, env.release.matrix, runner.worker_index, episodes


def weights_of(runner: SingleAgentEnvRunner) -> Any:
    return runner.module.get_state()


def test_page_reaches_its_score_on_local_and_remote_runners(cluster: None, run_page: Any) -> None:
    page = run_page("rllib")
    assert page["score"] >= 80
    assert page["steps"] == 49_152
    remote = page["config"].copy(copy_frozen=False).env_runners(num_env_runners=2, num_envs_per_env_runner=16)
    score, steps = page["learn"](remote.debugging(seed=1))
    assert score >= 80
    assert steps == 49_152
