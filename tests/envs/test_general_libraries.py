"""Models with nature, context and coupling through the doors of other libraries: specs, data sets, SB3, releases."""

from __future__ import annotations

import importlib
import json

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from test_general import KINDS, N, T, general_model, sample_actions

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv
from dp_ensemble_env.envs.registration import ACTIONS, environment_ids
from dp_ensemble_env.envs.spec import portable_spec
from dp_ensemble_env.experiments import datasets
from dp_ensemble_env.scenarios.problem import ProblemSettings
from dp_ensemble_env.shapes import Axis


@pytest.mark.parametrize("kind", KINDS)
def test_a_portable_spec_gives_the_same_environment(kind: str) -> None:
    model = general_model(kind).override(
        axes=[Axis("state", range(N))], tilt_scale=np.linspace(9, 3, T), guess=general_model(kind, 1).default
    )
    spec = portable_spec("dp_ensemble/Buildings-v0", model, action="tilt")
    text = spec.to_json()
    json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
    env, again = EnsembleEnv(model, "buildings"), gymnasium.make(EnvSpec.from_json(text)).unwrapped
    assert again.model.fingerprint == model.fingerprint and again.model.axes == model.axes
    np.testing.assert_array_equal(again.model.guess, model.guess)
    env.reset(seed=5)
    again.reset(seed=5)
    for action in sample_actions(model, "tilt", 0):
        one, two = env.step(action), again.step(action)
        np.testing.assert_array_equal(one[0], two[0])
        assert one[1:] == two[1:]


def test_every_scenario_has_an_id_for_each_action_mode() -> None:
    ids = environment_ids()
    for name in scenarios.names():
        assert scenarios.environment_id(name) in ids
        for action in ACTIONS:
            spec = gymnasium.spec(scenarios.environment_id(name, action))
            assert spec.kwargs == {"model": name, "action": action, "rewards": "unit"}
    env = gymnasium.make("dp_ensemble/CampusEvent-discrete-v1", population="single").unwrapped
    assert isinstance(env.action_space, gymnasium.spaces.Discrete) and env.population == 1
    assert gymnasium.make("dp_ensemble/CampusEvent-v1").unwrapped.action_mode == "price"
    assert gymnasium.make("dp_ensemble/MeanField-v0").unwrapped.action_mode == "tilt"


@pytest.mark.parametrize("mode", ACTIONS)
def test_episodes_of_a_data_set(mode: str) -> None:
    for kind in ("everything", "limit"):
        env = EnsembleEnv(general_model(kind), action=mode)
        seeds, starts = datasets.draw_starts(env, 6, 3)
        assert len(seeds) == len(starts) == 6
        for noise in (0.0, 0.5):
            episode = datasets.play(env, make_agent("ad-hoc", env), noise, seeds[0])
            assert all(action in env.action_space for action in episode["actions"])
            assert len(episode["infos"]["context" if kind == "everything" else "cost"]) == T + 1
    low, high = datasets.reference_scores(env.model)
    assert low < high
    assert datasets.playable("standard", mode) == (mode in ("tilt", "policy"))


def test_tilts_of_a_learner_are_played_as_policies() -> None:
    """Noise added to policies must not change which tilt of which context they are."""
    model = general_model("everything")
    envs = EnsembleVectorEnv(20, model, action="policy", autoreset_mode="DISABLED")
    tilts = EnsembleVectorEnv(20, model, action="tilt", autoreset_mode="DISABLED")
    agent = make_agent("standard", tilts)
    played = datasets.Tilting(agent, model)
    one, two = envs.reset(seed=0)[0], tilts.reset(seed=0)[0]
    for _ in range(T):
        one, reward, _, _, _ = envs.step(played.predict(one)[0])
        two, same, _, _, _ = tilts.step(agent.predict(two)[0])
        np.testing.assert_allclose(reward, same, atol=1e-4)


def test_data_sets_name_scenarios() -> None:
    assert datasets.is_named(ProblemSettings(scenario="campus-day", instance=2))
    assert not datasets.is_named(ProblemSettings(scenario="campus-day", loads=7))
    assert not datasets.is_named(ProblemSettings(scenario="my-own"))
    problem = ProblemSettings(scenario="campus-day", instance=1).build()
    env = datasets.make_env(problem, datasets.DatasetSettings(population="single", action="discrete"))
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json())).unwrapped
    assert again.model.fingerprint == problem.model.fingerprint and again.population == 1
    assert again.action_mode == "discrete"


@pytest.mark.torch
def test_stable_baselines3_takes_all_modes() -> None:
    sb3 = importlib.import_module("stable_baselines3")
    adapter = importlib.import_module("dp_ensemble_env.envs.sb3").EnsembleVecEnv
    model = general_model("everything")
    for mode in ("price", "discrete"):
        venv = adapter(4, "dp_ensemble/MeanField-v0", model=model, action=mode, rewards="unit")
        learner = sb3.PPO("MlpPolicy", venv, n_steps=T, batch_size=12, n_epochs=1, seed=0)
        learner.learn(2 * 4 * T)
        assert learner.ep_info_buffer and learner.ep_info_buffer[0]["l"] == T
    venv = adapter(2, "dp_ensemble/CampusEvent-discrete-v1")
    learner = sb3.DQN("MlpPolicy", venv, learning_starts=4, train_freq=1)
    assert learner.learn(40).num_timesteps == 40
    with pytest.raises(ValueError, match="unknown environment"):
        adapter(1, "dp_ensemble/Nothing-v0")


@pytest.mark.torch
def test_the_clock_of_learners_keeps_the_context() -> None:
    torch = importlib.import_module("torch")
    features = importlib.import_module("dp_ensemble_env.agents.features")
    env = EnsembleEnv(general_model("everything"))
    extractor = features.ClockFeatures(env.observation_space, T, 3)
    observation, info = env.reset(seed=0)
    env.step(env.action_space.sample())
    shown = extractor(torch.as_tensor(observation)[None]).numpy()[0]
    assert shown.shape == (T + N + 5,) == (extractor.features_dim,)
    assert shown[:T].tolist() == [1, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(shown[T : T + N], observation[:N])
    np.testing.assert_array_equal(shown[T + N :], observation[N + 1 :])
    agent = make_agent("ppo", EnsembleEnv(general_model("everything")), steps=2400, seed=0)
    assert agent.steps == 2304


@pytest.mark.torch
def test_learners_of_choices() -> None:
    env = EnsembleEnv(general_model("everything"), action="discrete")
    agent = make_agent("dqn", env, steps=40, seed=0, hyperparams={"learning_starts": 20})
    action, _ = agent.predict(env.reset(seed=0)[0])
    assert action in env.action_space and agent.curve
    with pytest.raises(ValueError, match="sac learns actions that are real numbers"):
        make_agent("sac", env, steps=1000, seed=0)
