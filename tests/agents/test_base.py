"""The protocol of agents, schedules, and the registry."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from numpy.testing import assert_allclose, assert_array_equal
from oracles import C, T, general_model
from stable_baselines3.common.evaluation import evaluate_policy as sb3_evaluate_policy

from dp_ensemble_env.agents import Agent, agent_kind, agent_names, evaluate, make_agent, register_agent
from dp_ensemble_env.agents.base import ScheduleAgent, core_env
from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv
from dp_ensemble_env.scenarios.front import front


def test_stable_baselines_evaluates_every_agent(campus):
    env = EnsembleEnv(campus.override(initial=[17]), action="tilt")
    agent = make_agent("standard", env)
    assert isinstance(agent, Agent) and agent.predict(env.reset()[0])[0] in env.action_space
    returns, _ = sb3_evaluate_policy(agent, env, n_eval_episodes=2, warn=False)
    assert returns == pytest.approx(100, rel=1e-4)


def test_schedules_read_time_and_context() -> None:
    model = general_model("everything")
    env, actions = EnsembleVectorEnv(50, model, action="price"), np.arange(T * C).reshape(T, C, 1) / 100.0
    agent = ScheduleAgent(actions, "test", "none", env.layout, by_context=True)
    observation, _ = env.reset(seed=0)
    for t in range(T):
        assert_allclose(agent.predict(observation)[0], actions[t, env.context], rtol=1e-7)
        assert_allclose(agent.predict(observation[7])[0], actions[t, env.context[7]], rtol=1e-7)
        observation, *_ = env.step(np.zeros((50, 1)))
    assert agent.schedule(model).tolist() == actions.tolist()
    every_time = ScheduleAgent(actions[:, 0], "test", "none", env.layout)
    assert every_time.schedule(model).tolist() == np.repeat(actions[:, :1], C, axis=1).tolist()
    assert agent.schedule(general_model("nature")) is None  # there is no context to read
    assert ScheduleAgent(actions[:3, 0], "short", "none", env.layout).schedule(model) is None


def test_one_registry_of_plans_and_learners(campus):
    env = EnsembleEnv(campus)
    plans, learners = agent_names(learns=False), agent_names(learns=True)
    assert set(plans) | set(learners) == set(agent_names()) and not set(plans) & set(learners)
    assert {"uncontrolled", "ad-hoc", "best-price", "myopic", "without-data", "standard", "digamma"} <= set(plans)
    assert {"ppo", "tqc", "apg", "z-learning"} <= set(learners)
    assert all(agent_kind(name).learns == (name in learners) for name in agent_names())
    assert agent_kind("standard").takes("release") and not agent_kind("myopic").takes("release")
    with pytest.raises(ValueError, match="unknown agent 'standart'.*did you mean 'standard'"):
        make_agent("standart", env)
    with pytest.raises(ValueError, match="'standard' exists already"):
        register_agent("standard")(lambda env: None)
    register_agent("mine")(lambda env: make_agent("uncontrolled", env))
    assert "mine" in agent_names(learns=False) and evaluate(make_agent("mine", env), env).score == 0.0
    register_agent("mine", learns=True)(lambda env, steps=1, seed=0: make_agent("uncontrolled", env))
    assert "mine" in agent_names(learns=True)


def test_environments_inside_wrappers_are_read_and_others_refused(campus):
    wrapped = gymnasium.wrappers.FlattenObservation(EnsembleEnv(campus))
    assert core_env(wrapped) is wrapped.unwrapped
    assert isinstance(core_env(gymnasium.vector.SyncVectorEnv([lambda: EnsembleEnv(campus)] * 2)), EnsembleEnv)
    with pytest.raises(ValueError, match="dp_ensemble environments"):
        make_agent("uncontrolled", gymnasium.make("CartPole-v1"))


# ------------------------------------------------------------------ contexts that are shown in part
def test_a_plan_follows_a_hidden_context_through_staggered_resets():
    env = EnsembleVectorEnv(7, front(0), autoreset_mode=AutoresetMode.SAME_STEP)
    agent = make_agent("standard", env)
    observation, _ = env.reset(seed=5)
    starts, state = np.ones(7, bool), None
    for t in range(150):
        action, state = agent.predict(observation, state, starts)
        assert_array_equal(state, env.context)
        assert_allclose(action, agent.actions[agent.layout.time(observation), env.context], rtol=1e-6)
        observation, _, starts, _, _ = env.step(action)
        if t in (4, 9, 17):  # some are reset in the middle of an episode
            starts = np.arange(7) % 3 == t % 3
            observation, _ = env.reset(options={"reset_mask": starts})


def test_a_plan_cannot_begin_in_the_middle_of_an_episode():
    env = EnsembleEnv(front(0))
    agent = make_agent("standard", env)
    observation, _ = env.reset(seed=0)
    action, state = agent.predict(observation)
    observation = env.step(action)[0]
    with pytest.raises(ValueError, match="state is None"):
        agent.predict(observation)
    agent.predict(observation, state)
    assert evaluate(agent, env).score == pytest.approx(100.0, abs=1e-6)
