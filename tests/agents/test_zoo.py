"""What rl_zoo3 reads: settings of every id, for every learner of a library."""

from __future__ import annotations

import copy
import importlib

import gymnasium
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import zoo
from dp_ensemble_env.agents.learners import LIBRARIES, algorithm_class, tuned_settings
from dp_ensemble_env.agents.sb3 import ClockFeatures
from dp_ensemble_env.envs import environment_ids

ppo = zoo.ppo.hyperparams


@pytest.mark.parametrize("algo", LIBRARIES)
def test_every_id_has_settings_for_every_learner(algo):
    name = f"dp_ensemble_env.agents.zoo.{algo.replace('-', '_')}"  # as rl_zoo3 asks for it
    table = importlib.import_module(name).hyperparams
    assert set(table) == set(environment_ids()) and len(table) >= 5 * len(scenarios.BUILT_IN)
    for action in (None, "tilt", "policy", "discrete"):
        settings = table[scenarios.environment_id("spot", action)]
        assert settings["n_timesteps"] > 0 and settings["policy"] in algorithm_class(algo).policy_aliases
        assert not {"clock", "cosines", "bins"} & set(settings)


def test_settings_are_those_of_the_scenario():
    for name in ("call", "front"):
        settings = ppo[scenarios.environment_id(name, "price")]
        expected = tuned_settings("ppo", "mean-field", "price", name)
        assert {key: settings[key] for key in expected} == expected and settings["env_wrapper"] == []
    for name in ("spot", "feeder"):  # a context and a coupling are part of what the clock's features keep
        env_id = scenarios.environment_id(name, "tilt")
        kwargs = ppo[env_id]["policy_kwargs"]
        ClockFeatures(gymnasium.make(env_id).observation_space, **kwargs["features_extractor_kwargs"])
    bins = zoo.dqn.hyperparams["dp_ensemble/Spot-price-v1"]["env_wrapper"]
    assert bins == [{"gymnasium.wrappers.DiscretizeAction": {"bins": 21}}]


def test_what_rl_zoo3_writes_into_the_settings_does_not_come_back():
    """It parses the learning rate in place, and a second experiment in the process imports the module again."""
    before = copy.deepcopy(dict(ppo))
    for settings in ppo.values():
        settings["learning_rate"] = print
        settings.setdefault("policy_kwargs", {})["net_arch"] = "spoiled"
        settings["env_wrapper"].append(3)
        del settings["policy"]
    assert dict(ppo) == before
