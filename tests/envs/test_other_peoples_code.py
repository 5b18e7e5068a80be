"""What other people's scripts, wrappers and libraries do to an environment, in every id."""

from __future__ import annotations

import importlib
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv, task
from dp_ensemble_env.envs.registration import environment_ids

IDS = environment_ids()
by_id = pytest.mark.parametrize("name", IDS)
EDGE = np.nextafter(np.float32(1), np.float32(2))


def play(env, action=None):
    """Play one episode; return its steps."""
    env.reset(seed=1)
    steps = []
    while not steps or not (steps[-1][2] or steps[-1][3]):
        steps.append(env.step(env.action_space.sample() if action is None else action))
    return steps


# ------------------------------------------------------------------ the length of an episode
@by_id
def test_the_spec_tells_the_horizon_and_the_end_is_no_truncation(name):
    env = gymnasium.make(name)
    horizon = env.unwrapped.model.horizon
    assert env.spec.max_episode_steps == horizon and gymnasium.make(env.spec).spec == env.spec
    steps = play(env)
    assert len(steps) == horizon and steps[-1][2] and not any(step[3] for step in steps)
    assert gymnasium.make_vec(name, num_envs=2).spec.max_episode_steps == horizon


def test_another_model_has_its_own_horizon(campus):
    utility = np.vstack([campus.utility, campus.utility[-2:]])
    longer = campus.override(utility=utility, event=None, times=None)
    env = gymnasium.make(IDS[0], model=longer)
    assert longer.horizon == 20 and env.spec.max_episode_steps == 20
    assert len(play(env)) == 20
    again = gymnasium.make(env.spec)
    assert len(play(again)) == 20 and play(again)[-1][2]


def test_wrappers_that_ask_for_the_length_of_an_episode():
    env = gymnasium.wrappers.TimeAwareObservation(gymnasium.make(IDS[0]), normalize_time=True)
    env.reset(seed=0)
    seen = [env.step(env.action_space.sample())[0][-1] for _ in range(18)]
    np.testing.assert_allclose(seen, np.arange(1, 19) / 18, rtol=1e-6)
    bare = gymnasium.make(IDS[0])
    again = gymnasium.wrappers.TimeLimit(bare.unwrapped, bare.spec.max_episode_steps)  # as d3rlpy does for Minari
    assert len(play(again)) == 18 and play(again)[-1][2]


def test_a_batch_is_made_again_from_its_spec_and_refuses_to_truncate():
    envs = gymnasium.make_vec(IDS[0], num_envs=3, action="price")
    again = gymnasium.make_vec(envs.spec)
    assert again.num_envs == 3 and again.spec.max_episode_steps == 18
    with pytest.raises(ValueError, match="max_episode_steps=5 would truncate the 18 steps"):
        gymnasium.make_vec(IDS[0], num_envs=3, max_episode_steps=5)


# ------------------------------------------------------------------ a release for each episode
@pytest.mark.parametrize("name", [*IDS[:3], *map(scenarios.environment_id, scenarios.BUILT_IN)])
def test_redrawn_environments_say_that_they_are_not_deterministic_and_pass_the_checker(name):
    importlib.import_module("pygame")
    env = gymnasium.make(name, k=50, redraw="episode")
    assert env.spec.nondeterministic and not gymnasium.make(name, k=50).spec.nondeterministic
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("default", category=DeprecationWarning)
        check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_a_plan_is_scored_against_the_release_of_each_episode(name):
    """100 on the release it was made on, less on the others, and never more; whatever was reset before."""
    env = gymnasium.make(scenarios.environment_id(name, "tilt"), privacy="dirichlet:k=20", redraw="episode")
    agent, found = make_agent("standard", env), []
    for _ in range(2):
        found.append(evaluate(agent, env, episodes=3).score)
        env.reset(seed=0)
    assert found[0] == found[1] < 100
    first = gymnasium.make(scenarios.environment_id(name, "tilt"), privacy="dirichlet:k=20")
    assert evaluate(agent, first).score == pytest.approx(100, abs=0.05)


# ------------------------------------------------------------------ actions
@by_id
def test_rounding_is_put_on_the_edge_of_the_box(name):
    env, twin = gymnasium.make(name), gymnasium.make(name)
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        return
    assert not env.action_space.contains(np.full(env.action_space.shape, EDGE))
    rng = np.random.default_rng(0)
    env.reset(seed=0), twin.reset(seed=0)
    for dtype, outside in ((np.float32, EDGE - 1), (np.float64, 1e-6 - 1e-12)):
        low, high = env.action_space.low.astype(dtype), env.action_space.high.astype(dtype)
        action = np.where(rng.random(low.shape) < 0.5, low, high)
        far = action + np.where(action == high, outside, -outside).astype(dtype)
        assert far.dtype == dtype and (far != action).any()
        before = far.copy()
        (one, *rest), (other, *expected) = env.step(far), twin.step(action)
        np.testing.assert_array_equal(one, other)
        assert rest[:3] == expected[:3]
        np.testing.assert_array_equal(far, before)  # the caller's array is left alone


@pytest.mark.parametrize("beyond", [1.00001, -1.00001, np.nan, np.inf])
@pytest.mark.parametrize("redraw", ["never", "episode"])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_actions_beyond_rounding_are_refused_in_a_batch(beyond, redraw, mode):
    settings = {"action": "tilt", "autoreset_mode": mode, **({} if redraw == "never" else {"k": 50, "redraw": redraw})}
    envs, twin = (EnsembleVectorEnv(3, population="single", **settings) for _ in range(2))
    envs.reset(seed=0), twin.reset(seed=0)
    actions = np.zeros((3, 20), np.float32)
    actions[1, 4] = EDGE
    actions[2, 7] = beyond
    charged = envs.ledger.releases
    with pytest.raises(ValueError, match=r"action\[2, 7\] is"):
        envs.step(actions)
    assert envs.ledger.releases == charged
    actions[2, 7], inside = -EDGE, actions.clip(-1, 1)
    inside[2, 7] = -1
    same = zip(envs.step(actions)[:2], twin.step(inside)[:2], strict=True)  # the refusal had changed nothing
    assert all(np.array_equal(a, b) for a, b in same)


def test_rescaled_actions_reach_the_corners():
    low, high = np.float32(-0.1), np.float32(0.7)
    env = gymnasium.wrappers.RescaleAction(gymnasium.make(IDS[0]), low, high)
    for corner in (low, high):
        play(env, np.full(20, corner, np.float32))


def test_clip_action_makes_gymnasiums_own_test_pass():
    """Its environments clip what lies far outside; ours refuse, and the wrapper clips."""
    for name in IDS[:3]:
        env, twin = (gymnasium.wrappers.ClipAction(gymnasium.make(name)) for _ in range(2))
        env.reset(seed=42), twin.reset(seed=42)
        for sign in (1, -1):
            edge = np.full(20, sign, np.float32)
            np.testing.assert_array_equal(env.step(edge)[0], twin.step(edge + sign * 100)[0])
        with pytest.raises(ValueError, match="ClipAction"):
            twin.env.step(np.full(20, 101, np.float32))


# ------------------------------------------------------------------ options
def test_unknown_options_are_ignored_and_named_once(monkeypatch):
    monkeypatch.setattr(task, "_IGNORED", set())
    envs = [EnsembleEnv(), EnsembleVectorEnv(2)]
    expected = [env.reset(seed=3, options={"state": 4})[0] for env in envs]
    with pytest.warns(
        UserWarning, match="ignores the option 'difficulty'; it knows state, occupancy, context"
    ) as caught:
        for env, observation in zip(envs, expected, strict=True):
            np.testing.assert_array_equal(env.reset(options={"difficulty": 2, "state": 4})[0], observation)
    assert len(caught) == 1


# ------------------------------------------------------------------ pictures
@pytest.mark.parametrize("restart", [False, True])
def test_pictures_survive_that_others_quit_pygame(restart, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    pygame = importlib.import_module("pygame")
    env, window = EnsembleEnv(render_mode="rgb_array"), EnsembleEnv(render_mode="human")
    env.reset(seed=0), window.reset(seed=0)
    frame = env.render()
    pygame.quit()
    if restart:
        pygame.init()
    np.testing.assert_array_equal(env.render(), frame)
    window.step(np.zeros(20, np.float32))
    shown = pygame.surfarray.array3d(pygame.display.get_surface())
    assert shown.std() > 10
    window.close(), env.close()


# ------------------------------------------------------------------ Ray
def through_a_store(thing):
    """Pickle as Ray's object store does: arrays lie in a memory that nobody may write to."""
    buffers = []
    data = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[memoryview(bytes(buffer.raw())) for buffer in buffers])


@pytest.mark.parametrize("population", ["mean-field", "single"])
@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_scenarios_that_come_out_of_a_store_go_on(name, population):
    env = EnsembleEnv(name, population)
    env.reset(seed=0)
    copy, m = through_a_store(env), env.model.n_decisions
    for action in np.random.default_rng(0).uniform(-1, 1, (5, m)):
        one, other = env.step(action), copy.step(action)
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:3] == other[1:3]
    copy.reset(seed=1)
    envs = through_a_store(EnsembleVectorEnv(2, name, population=population))
    envs.reset(seed=0)
    assert np.isfinite(envs.step(np.zeros((2, m)))[1]).all()


@pytest.mark.parametrize("settings", [{}, {"k": 50}, {"infos": "all", "population": "single"}])
def test_environments_that_come_out_of_a_store_go_on(settings):
    env = EnsembleEnv(**settings)
    env.reset(seed=0)
    env.step(np.full(20, 0.1, np.float32))
    copy = through_a_store(env)
    for action in np.random.default_rng(0).uniform(-1, 1, (5, 20)):
        one, other = env.step(action), copy.step(action)
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:3] == other[1:3]
    copy.reset(seed=1)
    assert copy._counters.flags.writeable and copy._task.common.flags.writeable


@pytest.mark.parametrize("population", ["mean-field", "buildings", "single"])
def test_batches_that_come_out_of_a_store_go_on(population):
    envs = EnsembleVectorEnv(3, population=population, autoreset_mode="SAME_STEP", infos="all")
    envs.reset(seed=0)
    copy = through_a_store(envs)
    for action in np.random.default_rng(0).uniform(-1, 1, (20, 3, 20)):
        one, other = envs.step(action), copy.step(action)
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
    copy.reset(seed=1)
