"""Agents, scores, data sets and learners on models with nature, context and coupling."""

from __future__ import annotations

import importlib
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from helpers import random_model
from oracles import KINDS, MODES, C, N, T, general_model, policy_of

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.agents.analytical import PolicyAgent
from dp_ensemble_env.agents.base import ScheduleAgent
from dp_ensemble_env.agents.evaluation import path_returns
from dp_ensemble_env.context import Context
from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv
from dp_ensemble_env.experiments import datasets
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import start_values
from dp_ensemble_env.scenarios.problem import ProblemSettings


# ------------------------------------------------------------------ scores
@pytest.mark.parametrize("population", ["mean-field", 6])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_of_the_two_ends(kind: str, population: str | int) -> None:
    model = general_model(kind, 6)
    env = EnsembleEnv(model, population)
    exact = population == "mean-field" or model.coupling is not None
    single = population == "mean-field" and model.context is None
    for name, value, earned in zip(("uncontrolled", "standard"), (0.0, 100.0), start_values(model), strict=True):
        outcome = evaluate(make_agent(name, env), env, 300 if population == 6 else 40)
        assert abs(outcome.score - value) < (1e-3 if exact else 4 * outcome.score_error + 1e-3)
        assert outcome.exact == single
        assert not single or outcome.mean_return == pytest.approx(earned, rel=1e-5)


@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_a_plan_is_scored_against_the_release_of_each_episode(name: str) -> None:
    """100 on the release it was made on, less on the others, and never more; whatever was reset before."""
    settings = {"id": scenarios.environment_id(name, "tilt"), "privacy": "dirichlet:k=20"}
    env = gymnasium.make(**settings, redraw="episode")
    agent, found = make_agent("standard", env), []
    for _ in range(2):
        found.append(evaluate(agent, env, episodes=3).score)
        env.reset(seed=0)
    assert found[0] == found[1] < 100
    assert evaluate(agent, gymnasium.make(**settings)).score == pytest.approx(100, abs=0.05)


@pytest.mark.parametrize("mode", MODES)
def test_baselines_play_in_every_mode(mode: str) -> None:
    model = general_model("everything", 7)
    env, reference = EnsembleEnv(model, action=mode), EnsembleEnv(model, action="price")
    for name in ("uncontrolled", "ad-hoc", "best-price"):
        agent = make_agent(name, env)
        outcome, same = evaluate(agent, env, 30), evaluate(make_agent(name, reference), reference, 30)
        assert outcome.score <= 100 + 1e-6
        assert mode == "discrete" or outcome.score == pytest.approx(same.score, abs=1e-3)
        if mode == "discrete":
            assert agent.actions.dtype.kind == "i" and 0 <= agent.actions.min() <= agent.actions.max() <= 10
            assert name != "uncontrolled" or (agent.actions == 5).all()


# ------------------------------------------------------------------ plans
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimal_plan_plays_the_optimal_policy(kind: str) -> None:
    model = general_model(kind)
    env = EnsembleEnv(model)
    agent, policy = make_agent("standard", env), env.optimal_policy.reshape(T, -1, *env.optimal_policy.shape[-2:])
    for t, w in np.ndindex(policy.shape[:2]):
        played = agent.actions[t, w] if agent.by_context else agent.actions[t]
        np.testing.assert_allclose(policy_of(model, "tilt", played, t, w), policy[t, w], atol=1e-5)


def test_a_policy_earns_along_a_path_what_it_is_said_to() -> None:
    model, size, rng = general_model("everything", 5), 500, np.random.default_rng(0)
    policy = model.default_policy * rng.gamma(1.0, size=model.default_policy.shape)
    policy /= policy.sum(axis=-1, keepdims=True)
    envs = EnsembleVectorEnv(size, model, action="policy", autoreset_mode="DISABLED")
    agent, (observation, _) = PolicyAgent(envs, policy), envs.reset(seed=0)
    shares, contexts, total = envs.occupancy, [envs.context], np.zeros(size)
    for _ in range(T):
        observation, reward, _, _, _ = envs.step(agent.predict(observation)[0])
        contexts.append(envs.context)
        total += reward
    np.testing.assert_allclose(total, path_returns(model, policy, np.array(contexts).T, shares), atol=1e-5)


def test_ad_hoc_answers_the_expected_price_of_the_context() -> None:
    utility = np.zeros((3, 2, 2))
    utility[:, 0], utility[:, 1] = [0.0, -6.0], [0.0, 2.0]  # dear, and so cheap that it pays to consume
    moves = [[0.75, 0.25], [0.0, 1.0]]
    model = EnsembleModel(
        np.full((2, 2), 0.5), [0.0, 1.0], utility, 1.0, context=Context(moves), tilt_scale=[10.0, 10.0]
    )
    agent = make_agent("ad-hoc", EnsembleEnv(model, action="price"))
    expected = np.array([0.75 * 6 - 0.25 * 2, -2.0]) / 2 / 10
    np.testing.assert_allclose(agent.actions, np.stack([expected, expected])[..., None], rtol=1e-6)


def test_schedules_read_time_and_context() -> None:
    model = general_model("everything")
    env, actions = EnsembleVectorEnv(50, model, action="price"), np.arange(T * C).reshape(T, C) / 100.0
    agent = ScheduleAgent(actions, "test", "none", model.context, by_context=True)
    observation, _ = env.reset(seed=0)
    for t in range(T):
        np.testing.assert_array_equal(agent.predict(observation)[0], actions[t, env.context])
        assert agent.predict(observation[7])[0] == actions[t, env.context[7]]
        observation, *_ = env.step(np.zeros((50, 1)))


def test_agents_that_cannot_play_say_so() -> None:
    model = general_model("everything")
    env = EnsembleEnv(model)
    with pytest.raises(ValueError, match="without nature, context or coupling"):
        make_agent("z-learning", env, transitions=1000)
    with pytest.raises(ValueError, match="policy_t is not a price"):
        make_agent("standard", EnsembleEnv(model, action="price"))
    with pytest.raises(ValueError, match=r"the environment needs \(T, c, n, m\) = \(6, 3, 5, 4\)"):
        PolicyAgent(env, np.zeros((6, 5, 4)))
    with pytest.raises(ValueError, match="nats wider than the action box; give the model a larger tilt_scale"):
        make_agent("standard", EnsembleEnv(model.override(tilt_scale=np.full(T, 0.01))))


# ------------------------------------------------------------------ data sets
@pytest.mark.parametrize("mode", MODES)
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
    envs, tilts = (EnsembleVectorEnv(20, model, action=mode, autoreset_mode="DISABLED") for mode in ("policy", "tilt"))
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


# ------------------------------------------------------------------ learners
@pytest.mark.torch
def test_the_clock_of_learners_keeps_the_context() -> None:
    torch = importlib.import_module("torch")
    features = importlib.import_module("dp_ensemble_env.agents.features")
    env = EnsembleEnv(general_model("everything"))
    extractor = features.ClockFeatures(env.observation_space, T, 3)
    observation, _ = env.reset(seed=0)
    shown = extractor(torch.as_tensor(observation)[None]).numpy()[0]
    assert shown.shape == (T + N + 5,) == (extractor.features_dim,)
    assert shown[:T].tolist() == [1, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(shown[T : T + N], observation[:N])
    np.testing.assert_array_equal(shown[T + N :], observation[N + 1 :])


@pytest.mark.torch
def test_learners_of_choices() -> None:
    env = EnsembleEnv(general_model("everything"), action="discrete")
    agent = make_agent("dqn", env, steps=40, seed=0, hyperparams={"learning_starts": 20})
    action, _ = agent.predict(env.reset(seed=0)[0])
    assert action in env.action_space and agent.curve
    with pytest.raises(ValueError, match="sac learns actions that are real numbers"):
        make_agent("sac", env, steps=1000, seed=0)


@pytest.mark.torch
def test_a_learner_trains_on_instances_and_resumes_where_it_was(tmp_path: Path) -> None:
    from dp_ensemble_env.agents.sb3 import RunFolder, TrainingSettings, train

    models = [random_model(seed, n=4, horizon=3) for seed in range(3)]
    env = EnsembleEnv(models[0], action="price")
    changes = {"n_envs": 4, "n_steps": 3, "batch_size": 6, "n_epochs": 1}
    settings = TrainingSettings(0, 48, interval=24, hyperparams=changes)
    whole = train("ppo", env, settings, models=models)
    again = train("ppo", env, settings, models=models, keep=RunFolder(tmp_path / "run"))
    alone = train("ppo", env, settings)
    observation = np.full((1, 7), 0.3, np.float32)
    one, two, three = (agent.predict(observation)[0] for agent in (whole, again, alone))
    assert one == pytest.approx(two) and one != pytest.approx(three)
    with pytest.raises(ValueError, match="another configuration"):
        train("ppo", env, settings, keep=RunFolder(tmp_path / "run", resume=True))
