"""Learners on models with nature, context and coupling."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from helpers import random_model
from oracles import N, T, general_model

from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.envs import EnsembleEnv


# ------------------------------------------------------------------ learners
@pytest.mark.torch
def test_the_clock_of_learners_keeps_the_context() -> None:
    torch = importlib.import_module("torch")
    features = importlib.import_module("dp_ensemble_env.agents.features")
    env = EnsembleEnv(general_model("everything"))
    extractor = features.ClockFeatures(env.observation_space, T, 3)
    observation, _ = env.reset(seed=0)
    shown = extractor(torch.as_tensor(observation)[None]).numpy()[0]
    assert shown.shape == (T + N + 7,) == (extractor.features_dim,)
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
    observation = np.full((1, 9), 0.3, np.float32)
    one, two, three = (agent.predict(observation)[0] for agent in (whole, again, alone))
    assert one == pytest.approx(two) and one != pytest.approx(three)
    with pytest.raises(ValueError, match="another configuration"):
        train("ppo", env, settings, keep=RunFolder(tmp_path / "run", resume=True))
