"""Gymnasium's and Stable-Baselines3's checkers, wrappers, copies and registration."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dp_ensemble_env.envs import ENVIRONMENTS, EnsembleEnv

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
IDS = tuple(ENVIRONMENTS)
MODES = ("price", "tilt", "policy")


@pytest.fixture(autouse=True)
def gymnasium_warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", category=DeprecationWarning)
        warnings.filterwarnings("default", category=ImportWarning)
        yield


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", IDS)
def test_gymnasium_checker(name: str, mode: str) -> None:
    importlib.import_module("pygame")
    check_env(gymnasium.make(name, action=mode).unwrapped)


@pytest.mark.torch
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", IDS)
def test_sb3_checker(name: str, mode: str) -> None:
    checker = importlib.import_module("stable_baselines3.common.env_checker")
    with warnings.catch_warnings():
        if mode == "policy":  # probabilities live in [0, 1]
            warnings.filterwarnings("ignore", message=".*symmetric and normalized Box action space.*")
        checker.check_env(gymnasium.make(name, action=mode).unwrapped, warn=True)


@pytest.mark.parametrize("name", IDS)
def test_private_environments_pass_the_checker_too(name: str) -> None:
    check_env(gymnasium.make(name, k=50).unwrapped, skip_render_check=True)


def rollout(env: gymnasium.Env, steps: int, seed: int | None = None) -> list:
    space = copy.deepcopy(env.action_space)
    space.seed(1)
    out = [env.reset(seed=seed)] if seed is not None else []
    return out + [env.step(space.sample()) for _ in range(steps)]


def same(left: list, right: list) -> None:
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1:] == b[1:]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", IDS)
def test_twins_copies_and_pickles_go_the_same_way(name: str, mode: str) -> None:
    env, twin = (gymnasium.make(name, action=mode) for _ in range(2))
    same(rollout(env, 5, seed=3), rollout(twin, 5, seed=3))
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    rest = rollout(env, 6)
    for other in copies:
        same(rest, rollout(other, 6))


def test_info_keys_are_the_same_at_reset_and_step() -> None:
    for infos in ("basic", "all"):
        env = gymnasium.make(IDS[0], infos=infos)
        _, info = env.reset(seed=0)
        keys = list(info)
        for _ in range(18):
            _, _, _, _, info = env.step(env.action_space.sample())
            assert list(info) == keys
            assert all(type(info[key]) in (int, float, np.ndarray) for key in keys)


@pytest.mark.parametrize("name", IDS)
def test_record_episode_statistics_and_flatten(name: str) -> None:
    env = gymnasium.wrappers.RecordEpisodeStatistics(
        gymnasium.wrappers.FlattenObservation(gymnasium.make(name, action="policy"))
    )
    observation, _ = env.reset(seed=0)
    assert observation.shape == (23,) and observation in env.observation_space
    total = 0.0
    for _ in range(18):
        observation, reward, terminated, _, info = env.step(np.zeros((20, 20), np.float32))
        total += reward
    assert terminated and info["episode"]["l"] == 18
    assert info["episode"]["r"] == pytest.approx(total, abs=1e-3)


def test_record_video(tmp_path: Path) -> None:
    importlib.import_module("pygame")
    importlib.import_module("moviepy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the video library's own
        env = gymnasium.make(IDS[0], render_mode="rgb_array")
        env = gymnasium.wrappers.RecordVideo(env, str(tmp_path), episode_trigger=lambda _: True)
        env.reset(seed=0)
        for _ in range(18):
            env.step(env.action_space.sample())
        env.close()
    videos = list(tmp_path.glob("*.mp4"))
    assert len(videos) == 1 and videos[0].stat().st_size > 1_000


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("kind", ["sync", "async", "vector_entry_point"])
def test_make_vec(name: str, kind: str) -> None:
    envs = gymnasium.make_vec(name, num_envs=2, vectorization_mode=kind, k=50, release_seed=3)
    try:
        observations, infos = envs.reset(seed=4)
        single = gymnasium.make(name, k=50, release_seed=3)
        for row, seed in zip(observations, (4, 5), strict=True):
            np.testing.assert_array_equal(row, single.reset(seed=seed)[0])
        actions = np.full((2, 20), 0.25, np.float32)
        observations, rewards, _, _, infos = envs.step(actions)
        expected = single.step(actions[1])  # the single one was last reset with the second seed
        np.testing.assert_array_equal(observations[1], expected[0])
        assert rewards[1] == expected[1] and infos["power_kw"][1] == expected[4]["power_kw"]
    finally:
        envs.close()


def test_ids_are_found_through_the_package_name() -> None:
    code = (
        "import gymnasium; env = gymnasium.make('dp_ensemble_env:dp_ensemble/MeanField-v0');env.reset(seed=0); print(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_importing_the_environments_loads_nothing_heavy() -> None:
    code = (
        "import sys, dp_ensemble_env.envs, gymnasium; gymnasium.spec('dp_ensemble/SingleLoad-v0');"
        "print([m for m in ('numba', 'scipy', 'torch', 'matplotlib', 'pandas', 'ray', 'pygame') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_making_an_environment_does_not_load_the_accountant() -> None:
    code = (
        "import sys, gymnasium, dp_ensemble_env.envs; gymnasium.make('dp_ensemble/SingleLoad-v0').reset();"
        "gymnasium.make('dp_ensemble/SingleLoad-v0', k=50).reset();"
        "print([m for m in ('dp_accounting', 'torch', 'pygame', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_specs_register_every_population() -> None:
    populations = {name: gymnasium.make(name).unwrapped.population for name in IDS}
    assert populations == {IDS[0]: None, IDS[1]: 100, IDS[2]: 1}
    for name in IDS:
        spec = gymnasium.spec(name)
        assert spec.max_episode_steps is None  # the horizon terminates, nothing truncates: no TimeLimit
        assert isinstance(gymnasium.make(name).unwrapped, EnsembleEnv)
