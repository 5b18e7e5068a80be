"""Registered ids: what Gymnasium's own test-suite asks of an environment, specs, vectorisers, others' wrappers.

Of Gymnasium's tests these are left out: those of its own physics engines, and its list of tolerated warnings, since
none is tolerated here but that policies live in [0, 1].
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dp_ensemble_env import scenarios
from dp_ensemble_env.envs import ACTIONS, PAPER, environment_ids

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
NAMES = scenarios.BUILT_IN
CHECKED = [scenarios.environment_id(name) for name in NAMES] + [scenarios.environment_id("call", m) for m in ACTIONS]
IDS = [scenarios.environment_id(name, mode) for name in NAMES for mode in (None, *ACTIONS)]
CAMPUS, SPOT = "dp_ensemble/CampusEvent-tilt-v1", "dp_ensemble/Spot-v1"


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", category=DeprecationWarning)
        warnings.filterwarnings("default", category=ImportWarning)
        warnings.filterwarnings("ignore", message=".*symmetric and normalized (Box action )?space.*")
        yield


# ------------------------------------------------------------------ what is registered
def test_every_scenario_has_an_id_for_each_action_mode() -> None:
    assert set(IDS) | {PAPER} <= set(environment_ids())
    for name in NAMES:
        for mode in (None, *ACTIONS):
            spec = gymnasium.spec(scenarios.environment_id(name, mode))
            assert spec.kwargs == {"scenario": name, "action": mode or "signals"}
            assert spec.max_episode_steps is None  # the horizon terminates, nothing truncates: no TimeLimit


def test_the_environment_of_the_paper() -> None:
    """The numbers of `PAPER_SETTINGS` are those of the paper's section VI."""
    env = gymnasium.make(PAPER).unwrapped
    event = env.release.event
    assert (event.k, event.floor) == (50, 0.05) and set(event.h) == {0.03}
    assert (env.model.n_states, env.model.horizon, env.population) == (20, 18, None)
    observation, _ = env.reset(seed=0)
    price = env.model.event.price / env.model.event.price.max()
    assert observation.shape == (23,) and observation[20:].tolist() == [1.0, *np.float32(price[1:3]).tolist()]
    _, reward, _, _, info = env.step(np.linspace(-1, 1, 20))
    assert reward == info["utility"] - info["discomfort"] and info["discomfort"] > 0
    assert env.ledger.releases == 1
    check_env(env, skip_render_check=True)


def test_a_model_has_no_place_in_an_id() -> None:
    for make in (gymnasium.make, lambda *args, **settings: gymnasium.make_vec(*args, num_envs=2, **settings)):
        with pytest.raises(ValueError, match="this id plays the scenario 'spot', so model= has no place"):
            make(SPOT, model="call")
    with pytest.raises(TypeError, match="discomfort"):
        gymnasium.make(SPOT, discomfort=3)


# ------------------------------------------------------------------ Gymnasium's conformance
@pytest.mark.parametrize("number", range(len(CHECKED)))
def test_gymnasium_checker(number: int) -> None:
    """Spaces, reset and step, seeds, returned types, frames: for each scenario, and for each mode."""
    importlib.import_module("pygame")
    env = gymnasium.make(CHECKED[number], population=("mean-field", "single", 20)[number % 3])
    check_env(env.unwrapped, skip_render_check=number >= len(NAMES))


# ------------------------------------------------------------------ specs and the length of an episode
@pytest.mark.parametrize("name", ["campus-event", "spot"])
def test_the_spec_tells_the_horizon(name: str) -> None:
    env = gymnasium.make(scenarios.environment_id(name))
    horizon = env.unwrapped.model.horizon
    assert env.spec.max_episode_steps == horizon and gymnasium.make(env.spec).spec == env.spec
    drawn_anew = gymnasium.make(env.spec.id, privacy="dirichlet:k=50", redraw="episode")
    assert drawn_anew.spec.nondeterministic and not env.spec.nondeterministic
    batch = gymnasium.make_vec(scenarios.environment_id(name), num_envs=2)
    again = gymnasium.make_vec(batch.spec)
    assert again.num_envs == 2 and again.spec.max_episode_steps == batch.spec.max_episode_steps == horizon
    with pytest.raises(ValueError, match=f"max_episode_steps=5 would truncate the {horizon} steps"):
        gymnasium.make_vec(scenarios.environment_id(name), num_envs=3, max_episode_steps=5)


# ------------------------------------------------------------------ vectorisers
@pytest.mark.parametrize("kind", ["sync", "async", "vector_entry_point"])
def test_every_vectoriser_gives_single_environments_that_share_a_release(kind: str) -> None:
    settings = {"privacy": "dirichlet:k=20", "release_seed": 5, "population": "single"}
    envs, single = gymnasium.make_vec(CAMPUS, 2, kind, **settings), gymnasium.make(CAMPUS, **settings)
    try:
        observations, _ = envs.reset(seed=4)
        for row, seed in zip(observations, (4, 5), strict=True):
            np.testing.assert_array_equal(row, single.reset(seed=seed)[0])
        actions = np.full((2, 20), 0.25, np.float32)
        observations, rewards, _, _, infos = envs.step(actions)
        expected = single.step(actions[1])  # the single one was last reset with the second seed
        np.testing.assert_array_equal(observations[1], expected[0])
        assert rewards[1] == expected[1] and infos["power_kw"][1] == expected[4]["power_kw"]
        for release in [envs.unwrapped.release] if kind == "vector_entry_point" else envs.get_attr("release"):
            np.testing.assert_array_equal(release.matrix, single.unwrapped.release.matrix)
    finally:
        envs.close()


# ------------------------------------------------------------------ imports
def test_nothing_is_loaded_that_is_not_needed() -> None:
    """An import loads nothing heavy, and nobody needs the accountant."""
    code = (
        "import sys, dp_ensemble_env.envs, gymnasium; gymnasium.spec('dp_ensemble/Spot-v1');"
        "assert not {'numba', 'scipy', 'torch', 'matplotlib', 'pandas', 'ray', 'pygame'} & set(sys.modules);"
        "gymnasium.make('dp_ensemble/CampusEvent-v1', privacy='dirichlet:k=50').reset(seed=0);"
        "assert not {'dp_accounting', 'torch', 'pygame', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
