"""What every registered environment promises: checkers, spaces, seeds, copies, autoreset; each mode and population."""

from __future__ import annotations

import copy
import importlib
import itertools
import os
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from dp_ensemble_env import scenarios
from dp_ensemble_env.envs.registration import environment_ids

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
MODES = ("price", "tilt", "policy", "discrete")
POPULATIONS = ("mean-field", "buildings", "single")
NAMES = tuple(scenarios.names())
#: Every mode and every population of every scenario, not every pair of them.
PAIRS = [(name, mode, POPULATIONS[(i + j) % 3]) for i, name in enumerate(NAMES) for j, mode in enumerate(MODES)]


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", category=DeprecationWarning)
        warnings.filterwarnings("default", category=ImportWarning)
        # rewards are in dollars and observations in [0, 1]; probabilities live in [0, 1]
        warnings.filterwarnings("ignore", message=".*symmetric and normalized Box action space.*")
        yield


def made(name: str, mode: str, population: str, **settings):
    return gymnasium.make(scenarios.environment_id(name, mode), population=population, **settings)


def test_every_scenario_has_an_id_for_every_mode() -> None:
    ids = environment_ids()
    for name in NAMES:
        expected = {scenarios.environment_id(name), *(scenarios.environment_id(name, mode) for mode in MODES)}
        assert expected <= set(ids)
        assert gymnasium.spec(scenarios.environment_id(name)).kwargs["action"] == "price"
        assert all(gymnasium.spec(env_id).kwargs["rewards"] == "unit" for env_id in expected)


def test_what_the_versions_mean() -> None:
    """Version 1 has rewards of unit scale and takes prices by default; version 0 keeps dollars and tilts."""
    old, new = gymnasium.make("dp_ensemble/MeanField-v0"), gymnasium.make("dp_ensemble/CampusEvent-v1")
    assert (old.unwrapped.action_mode, new.unwrapped.action_mode) == ("tilt", "price")
    for env, unit in ((old, 1.0), (new, np.abs(new.unwrapped.model.utility[1:]).max())):
        env.reset(seed=0)
        _, reward, _, _, info = env.step(np.full(env.action_space.shape, 0.25, np.float32))
        assert info["discomfort"] > 0 or env is old  # a tilt that is the same for all levels changes nothing
        assert reward * unit == pytest.approx(info["utility"] - info["discomfort"], rel=1e-12)


@pytest.mark.parametrize(("name", "mode", "population"), PAIRS)
def test_gymnasium_checker(name: str, mode: str, population: str) -> None:
    importlib.import_module("pygame")
    check_env(made(name, mode, population).unwrapped, skip_render_check=mode != "price")


@pytest.mark.torch
@pytest.mark.parametrize(("name", "mode", "population"), PAIRS[:: len(MODES) + 1])
def test_sb3_checker(name: str, mode: str, population: str) -> None:
    checker = importlib.import_module("stable_baselines3.common.env_checker")
    checker.check_env(made(name, mode, population).unwrapped, warn=True)


@pytest.mark.parametrize(("name", "mode", "population"), PAIRS)
def test_an_episode_stays_in_its_spaces_and_ends_with_the_horizon(name: str, mode: str, population: str) -> None:
    env = made(name, mode, population)
    core = env.unwrapped
    model = core.model
    shown = 0 if model.context is None else model.context.features.shape[1]
    assert env.observation_space.shape == (model.n_states + 3 + shown,)
    shapes = {"price": (1,), "tilt": (model.n_decisions,), "policy": model.default.shape[-2:], "discrete": ()}
    assert env.action_space.shape == shapes[mode]
    observation, info = env.reset(seed=3)
    env.action_space.seed(3)
    keys = list(info)
    assert ("context" in keys) == (model.context is not None) and ("cost" in keys) == (model.coupling is not None)
    for step in range(model.horizon):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert observation in env.observation_space and np.isfinite(reward) and list(info) == keys
        assert terminated == (step == model.horizon - 1) and not truncated
        assert observation[: model.n_states].sum() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(("name", "mode", "population"), PAIRS[1::2])
def test_twins_copies_and_pickles_go_the_same_way(name: str, mode: str, population: str) -> None:
    env, twin = (made(name, mode, population) for _ in range(2))
    space = copy.deepcopy(env.action_space)
    space.seed(1)
    actions = [space.sample() for _ in range(6)]
    for one in (env, twin):
        one.reset(seed=5)
        for action in actions[:3]:
            one.step(action)
    others = [twin, copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    for action in actions[3:]:
        found = env.step(action)
        for other in others:
            same = other.step(action)
            np.testing.assert_array_equal(found[0], same[0])
            assert found[1:] == same[1:]
    first = env.reset(seed=5)[0]
    np.testing.assert_array_equal(first, twin.reset(seed=5)[0])


@pytest.mark.parametrize(("name", "mode", "population"), PAIRS[:: len(MODES) - 1])
def test_the_batch_is_single_environments_side_by_side_also_when_they_restart(
    name: str, mode: str, population: str
) -> None:
    env_id, settings = scenarios.environment_id(name, mode), {"population": population}
    batch = gymnasium.make_vec(env_id, num_envs=2, vectorization_mode="vector_entry_point", **settings)
    assert batch.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    loop = SyncVectorEnv([lambda: gymnasium.make(env_id, **settings)] * 2)
    np.testing.assert_array_equal(batch.reset(seed=7)[0], loop.reset(seed=7)[0])
    horizon = batch.unwrapped.model.horizon
    batch.action_space.seed(2)
    for step in range(horizon + 2):
        actions = batch.action_space.sample()
        found, expected = batch.step(actions), loop.step(actions)
        for part, other in itertools.islice(zip(found, expected, strict=True), 4):
            np.testing.assert_array_equal(part, other)
        assert found[2].all() == (step == horizon - 1)
    batch.close()
    loop.close()
