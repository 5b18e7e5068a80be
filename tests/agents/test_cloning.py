"""Behaviour cloning: the clone of one instance is as good as its expert, and of several it tells them apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.envs import EnsembleEnv


def test_a_clone_is_as_good_as_the_expert_where_one_instance_is_all(campus):
    env, threads = EnsembleEnv(campus, action="tilt"), torch.get_num_threads()
    agent, again = (make_agent("cloning", env, steps=18_000, seed=1) for _ in range(2))
    assert torch.get_num_threads() == threads and agent.steps == 18_000
    assert 97 < evaluate(agent, env).score <= 100
    observation, _ = env.reset(seed=3)
    assert np.array_equal(agent.predict(observation)[0], again.predict(observation)[0])


def test_several_instances_share_the_steps_and_signals_are_the_nearest():
    models = [scenarios.make("spot", instance=i) for i in range(2)]
    env = EnsembleEnv(models, action="signals")
    agent = make_agent("cloning", env, steps=10_000)
    assert agent.steps == 10_000 // (2 * env.model.horizon) * 2 * env.model.horizon
    assert evaluate(agent, env, episodes=64).score > 50
    with pytest.raises(ValueError, match="pass action='signals'"):
        make_agent("cloning", EnsembleEnv("spot", action="discrete"))
