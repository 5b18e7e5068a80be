"""The native vector environment against single environments and Gymnasium's vectorisers."""

from __future__ import annotations

import copy
import importlib
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from helpers import random_model

from dp_ensemble_env.envs import ENVIRONMENTS, EnsembleEnv, EnsembleVectorEnv
from dp_ensemble_env.envs import _parts as dyn

IDS = tuple(ENVIRONMENTS)
MODES = ("price", "tilt", "policy")


def single_steps(name: str, seed: int, actions: np.ndarray, **settings) -> list[tuple]:
    """One environment with NEXT_STEP autoreset, written out."""
    env = gymnasium.make(name, **settings).unwrapped
    observation, info = env.reset(seed=seed)
    out = [(observation, 0.0, False, info)]
    for action in actions:
        if out[-1][2]:
            observation, info = env.reset()
            out.append((observation, 0.0, False, info))
        else:
            observation, reward, terminated, _, info = env.step(action)
            out.append((observation, reward, terminated, info))
    return out


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", IDS)
def test_rows_equal_single_environments_bit_for_bit(name: str, mode: str, num_envs: int) -> None:
    compare_rows(name, mode, num_envs, steps=41, infos="all")


@pytest.mark.parametrize("name", IDS)
def test_batches_wider_than_a_block_equal_single_environments(name: str) -> None:
    compare_rows(name, "tilt", 131, steps=21, check=(0, 1, 63, 64, 70, 127, 128, 130))


@pytest.mark.parametrize("name", IDS)
def test_rows_equal_single_environments_under_redraw(name: str) -> None:
    compare_rows(name, "tilt", 3, steps=41, k=30, redraw="episode")


def compare_rows(
    name: str, mode: str, num_envs: int, steps: int, check: tuple[int, ...] | None = None, **settings
) -> None:
    rng = np.random.default_rng(0)
    envs = gymnasium.make_vec(name, num_envs=num_envs, vectorization_mode="vector_entry_point", action=mode, **settings)
    shape = envs.single_action_space.shape
    actions = rng.uniform(0 if mode == "policy" else -1, 1, (steps, num_envs, *shape)).astype(np.float32)
    observations, infos = envs.reset(seed=11)
    batch = [(observations, np.zeros(num_envs), np.zeros(num_envs, bool), infos)]
    for action in actions:
        observations, rewards, terminated, truncated, infos = envs.step(action)
        assert not truncated.any()
        batch.append((observations, rewards, terminated, infos))
    for i in check or range(num_envs):
        rows = single_steps(name, 11 + i, actions[:, i], action=mode, **settings)
        for ours, single in zip(batch, rows, strict=True):
            np.testing.assert_array_equal(ours[0][i], single[0])
            assert ours[1][i] == single[1] and ours[2][i] == single[2]
            assert {key for key in ours[3] if not key.startswith("_")} == set(single[3])
            for key, value in single[3].items():
                np.testing.assert_array_equal(ours[3][key][i], value, err_msg=key)
                assert ours[3][f"_{key}"][i]


@pytest.mark.parametrize("autoreset", list(AutoresetMode))
@pytest.mark.parametrize("name", IDS)
def test_autoreset_modes_equal_the_synchronous_vectoriser(name: str, autoreset: AutoresetMode) -> None:
    ours = gymnasium.make_vec(name, num_envs=3, vectorization_mode="vector_entry_point", autoreset_mode=autoreset)
    theirs = gymnasium.make_vec(
        name, num_envs=3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": autoreset}
    )
    assert ours.metadata["autoreset_mode"] is autoreset and ours.unwrapped.autoreset_mode is autoreset
    compare(ours.reset(seed=2), theirs.reset(seed=2))
    rng = np.random.default_rng(0)
    for _ in range(40):
        action = rng.uniform(-1, 1, (3, 20)).astype(np.float32)
        left, right = ours.step(action), theirs.step(action)
        compare(left, right)
        if autoreset is AutoresetMode.DISABLED and left[2].all():
            compare(ours.reset(), theirs.reset())


def compare(left: tuple, right: tuple) -> None:
    for ours, theirs in zip(left[:-1], right[:-1], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    compare_infos(left[-1], right[-1])


def compare_infos(ours: dict, theirs: dict) -> None:
    assert set(ours) == set(theirs)
    for key, value in theirs.items():
        if isinstance(value, dict):
            compare_infos(ours[key], value)
        elif key == "final_obs":
            for i in np.flatnonzero(theirs["_final_obs"]):
                np.testing.assert_array_equal(ours[key][i], value[i])
        else:
            np.testing.assert_array_equal(ours[key], value, err_msg=key)


def test_some_reset_and_others_go_on() -> None:
    """Out of step with each other, the sub-environments still equal single ones."""
    for name in IDS:
        envs = gymnasium.make_vec(
            name, num_envs=3, vectorization_mode="vector_entry_point", autoreset_mode=AutoresetMode.DISABLED
        )
        singles = [gymnasium.make(name) for _ in range(3)]
        envs.reset(seed=0)
        for i, single in enumerate(singles):
            single.reset(seed=i)
        rng = np.random.default_rng(1)
        for t in range(12):
            action = rng.uniform(-1, 1, (3, 20)).astype(np.float32)
            observations, rewards, _, _, _ = envs.step(action)
            for i, single in enumerate(singles):
                observation, reward, _, _, _ = single.step(action[i])
                np.testing.assert_array_equal(observations[i], observation)
                assert rewards[i] == reward
            if t in (3, 7):
                mask = np.array([t == 7, True, False])
                before = observations.copy()
                observations, infos = envs.reset(options={"reset_mask": mask})
                np.testing.assert_array_equal(infos["_time"], mask)
                np.testing.assert_array_equal(observations[2], before[2])
                for i in np.flatnonzero(mask):
                    np.testing.assert_array_equal(observations[i], singles[i].reset()[0])


def test_staggered_mean_field_batch_equals_synchronous_one() -> None:
    model = random_model(1, n=7, horizon=5)
    envs = EnsembleVectorEnv(150, model, autoreset_mode="DISABLED")
    envs.reset(seed=0, options={"state": 3})
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (5, 7))
    single = EnsembleEnv(model)
    single.reset(options={"state": 3})
    path = [single.occupancy]
    for action in actions:
        single.step(action)
        path.append(single.occupancy)
    for start in (1, 2):  # every third is one step behind, and another third two
        envs.step(actions[envs.time])
        mask = np.arange(150) % 3 == start
        envs.reset(options={"reset_mask": mask, "state": 3})
    while (envs.time < 5).all():
        envs.step(actions[envs.time])
        np.testing.assert_array_equal(envs.occupancy, np.array(path)[envs.time])
    assert len(set(envs.time)) == 3


def test_options_of_each_sub_environment() -> None:
    model = random_model(4, n=5)
    envs = EnsembleVectorEnv(3, model)
    envs.reset(options={"state": [4, 0, 2]})
    np.testing.assert_array_equal(envs.occupancy.argmax(axis=1), [4, 0, 2])
    shares = np.random.default_rng(0).dirichlet(np.ones(5), 3)
    _, infos = envs.reset(options={"occupancy": shares})
    np.testing.assert_allclose(envs.occupancy, shares, atol=1e-15)
    expected = [envs.optimal_return(row) for row in shares]
    np.testing.assert_allclose(infos["optimal_return"], expected, rtol=1e-12)


def test_returned_arrays_are_not_reused() -> None:
    envs = EnsembleVectorEnv(4)
    first = envs.reset(seed=0)
    second = envs.step(np.zeros((4, 20), np.float32))
    third = envs.step(np.zeros((4, 20), np.float32))
    for a, b in ((first, second), (second, third)):
        assert not np.shares_memory(a[0], b[0])
        for key in ("time", "utility", "power_kw", "optimal_return"):
            assert not np.shares_memory(a[-1][key], b[-1][key])


def test_copies_of_a_vector_environment() -> None:
    for name in IDS:
        envs = gymnasium.make_vec(name, num_envs=3, vectorization_mode="vector_entry_point")
        envs.reset(seed=5)
        action = np.full((3, 20), 0.1, np.float32)
        envs.step(action)
        others = [copy.deepcopy(envs), pickle.loads(pickle.dumps(envs))]
        expected = envs.step(action)
        for other in others:
            np.testing.assert_array_equal(other.step(action)[0], expected[0])


def test_wrappers_of_vector_environments() -> None:
    envs = gymnasium.make_vec(IDS[0], num_envs=3, vectorization_mode="vector_entry_point")
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    envs = gymnasium.wrappers.vector.DictInfoToList(envs)
    envs.reset(seed=0)
    total = np.zeros(3)
    for _ in range(18):
        _, rewards, _, _, infos = envs.step(np.zeros((3, 20), np.float32))
        total += rewards
    for i in range(3):
        assert infos[i]["episode"]["r"] == pytest.approx(total[i], rel=1e-6)
        assert infos[i]["time"] == 18


# ------------------------------------------------------------------ Stable-Baselines3
@pytest.mark.torch
def test_sb3_adapter_equals_the_vector_environment() -> None:
    importlib.import_module("stable_baselines3")
    from dp_ensemble_env.envs.sb3 import EnsembleVecEnv

    adapter = EnsembleVecEnv(3, "dp_ensemble_env:dp_ensemble/Buildings-v0")
    single = gymnasium.make(IDS[1])
    adapter.seed(7)
    observations = adapter.reset()
    observation, _ = single.reset(seed=8)
    np.testing.assert_array_equal(observations[1], observation)
    rng, total = np.random.default_rng(0), 0.0
    for _ in range(36):
        action = rng.uniform(-1, 1, (3, 20)).astype(np.float32)
        observations, rewards, dones, infos = adapter.step(action)
        observation, reward, terminated, _, info = single.step(action[1])
        total += reward
        assert rewards[1] == np.float32(reward) and dones[1] == terminated
        if terminated:
            np.testing.assert_array_equal(infos[1]["terminal_observation"], observation)
            assert infos[1]["episode"]["r"] == pytest.approx(total, rel=1e-12) and infos[1]["episode"]["l"] == 18
            assert infos[1]["TimeLimit.truncated"] is False and infos[1]["power_kw"] == info["power_kw"]
            observation, _ = single.reset()
            total = 0.0
        else:
            assert infos[1] == {}
        np.testing.assert_array_equal(observations[1], observation)
    assert adapter.get_attr("population") == [100] * 3
    assert adapter.env_method("optimal_return", 3, indices=[0]) == [single.unwrapped.optimal_return(3)]


@pytest.mark.torch
def test_sb3_trains_on_the_adapter() -> None:
    sb3 = importlib.import_module("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy

    from dp_ensemble_env.envs.sb3 import EnsembleVecEnv

    envs = EnsembleVecEnv(8, "dp_ensemble/MeanField-v0", action="price")
    model = sb3.PPO("MlpPolicy", envs, n_steps=18, batch_size=72, n_epochs=1, gamma=1.0, seed=0, device="cpu")
    model.learn(288)
    assert len(model.ep_info_buffer) == 16 and model.ep_info_buffer[0]["l"] == 18
    mean, _ = evaluate_policy(model, envs, n_eval_episodes=8)
    best = max(envs.env_method("optimal_return", b, indices=[0])[0] for b in range(20))
    assert mean < best


@pytest.mark.torch
def test_sb3_adapter_refuses_what_it_cannot_do() -> None:
    importlib.import_module("stable_baselines3")
    from dp_ensemble_env.envs.sb3 import EnsembleVecEnv

    with pytest.raises(ValueError, match="unknown environment"):
        EnsembleVecEnv(2, "CartPole-v1")
    envs = EnsembleVecEnv(2)
    with pytest.raises(ValueError, match="no actions"):
        envs.step_wait()
    with pytest.raises(ValueError, match="cannot set"):
        envs.set_attr("model", None)


@pytest.mark.parametrize("kind", [EnsembleEnv, lambda **settings: EnsembleVectorEnv(3, **settings)])
def test_what_another_version_pickled_is_refused(kind):
    """Compiled code does not look whether a row is there."""
    env = kind(population="single")
    env.reset(seed=0)
    older = kind(population="single")
    older._counters = older._counters[:-1].copy()
    for change in (older, env):
        if change is env:
            change._task.ints[dyn.WIDTH] = 10
        with pytest.raises(ValueError, match="another version"):
            pickle.loads(pickle.dumps(change))
