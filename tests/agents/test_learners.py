"""Settings of learners: data, the nearest where nothing is recorded, and the one rule for changes."""

from __future__ import annotations

import math
import tomllib

import pytest
from helpers import ROOT

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents.learners import (
    changed,
    check_value,
    defaults_of,
    falling_from,
    learner_settings,
    recorded,
    schedule,
    tuned_settings,
)
from dp_ensemble_env.agents.train import check_settings
from dp_ensemble_env.envs.ensemble import EnsembleEnv

MEAN_FIELD = "mean-field"
DATA = tomllib.loads((ROOT / "agents" / "hyperparams.toml").read_text(encoding="utf-8"))


def test_settings_are_copies_and_fall_back_to_the_nearest():
    tuned_settings("ppo", MEAN_FIELD, "price")["policy_kwargs"]["net_arch"] = "spoiled"
    table = recorded("ppo")
    assert table == DATA["ppo"] and tuned_settings("ppo", MEAN_FIELD, "price") == table[MEAN_FIELD]["price"]
    rows = tuned_settings("ppo", 100, "policy")
    assert {**rows, "cosines": 6} == table[MEAN_FIELD]["tilt"] and "cosines" not in rows  # which stand for tilts
    assert tuned_settings("sac", "single", "price") == DATA["sac"][MEAN_FIELD]["price"]
    assert tuned_settings("ppo", 1, "price") == table["single"]["price"] != table[MEAN_FIELD]["price"]
    with pytest.raises(ValueError, match="price mode only"):
        tuned_settings("dqn", MEAN_FIELD, "signals")
    assert "bins" not in tuned_settings("dqn", MEAN_FIELD, "discrete")  # the choices are there already
    assert tuned_settings("nobody's", MEAN_FIELD, "price") == {"n_envs": 8, "n_timesteps": 100_000}


def test_a_scenario_changes_the_settings_of_its_mean_field_which_make_whole_rollouts():
    changes = DATA["ppo"]["scenarios"]["call"]["price"]
    found = tuned_settings("ppo", MEAN_FIELD, "price", "call")
    assert check_settings("ppo", EnsembleEnv("call", action="price")) == found  # the environment says its scenario
    assert found == DATA["ppo"][MEAN_FIELD]["price"] | changes and changes["n_steps"] == 64
    assert tuned_settings("ppo", "single", "price", "call") == DATA["ppo"]["single"]["price"]
    assert tuned_settings("apg", MEAN_FIELD, "tilt", "call")["clock"] is False
    for table in DATA.values():
        for settings in (one for kind in set(table) - {"scenarios"} for one in table[kind].values()):
            assert settings.get("gamma", 1.0) == 1.0  # the score is undiscounted
            if "n_steps" in settings and "batch_size" in settings:
                assert settings["n_envs"] * settings["n_steps"] % settings["batch_size"] == 0
    assert set(DATA["ppo"]["scenarios"]) < set(scenarios.names())


@pytest.mark.parametrize(
    ("value", "likes"),
    [
        (0.5, [1.0]), (3, [2.0]), (64.0, [7]), (0, [0]), (3, [0]), (-1, [-1]), (4, [-1]), (True, [False]),
        ("lin_0.01", [0.1]), ("lin_0.01", ["lin_1"]), (0.1, ["lin_1", 0.3]), ("auto", [0.1, "auto"]), ("Lstm", ["Mlp"]),
        ({"net_arch": [8]}, [{}]), ({"net_arch": [8]}, [None]), (None, [0.1, None]), (0.2, [None]),
    ],
)  # fmt: skip
def test_values_of_the_default_s_type_and_sign_are_taken(value, likes):
    check_value("x", value, *likes)


@pytest.mark.parametrize(
    ("value", "likes"),
    [
        ("abc", [0.1]), ("abc", ["lin_1"]), ("abc", [None]), (0, [0.1]), (0, [3]), (-1, [3]), (-0.1, [0.0]),
        (math.nan, [0.1]), (math.inf, [3]), (2.5, [3]), (1, [True]), (True, [3]), (3, ["Mlp"]), (None, [3]),
    ],
)  # fmt: skip
def test_other_values_are_refused(value, likes):
    with pytest.raises(ValueError, match="the hyper-parameter x must be finite, and of the type and sign of"):
        check_value("x", value, *likes)


def test_changes_know_the_names_of_settings_and_arguments():
    def algorithm(env, rate=0.1, batch=4, name=None, seed=0, **rest):
        """Stand for a class of a library."""

    defaults = defaults_of(algorithm)
    assert defaults == {"rate": 0.1, "batch": 4, "name": None}
    assert changed("mine", {"rate": 0.2, "n_envs": 3}, {"batch": 8}, defaults) == {"rate": 0.2, "n_envs": 3, "batch": 8}
    for name, words in (("bach", "did you mean 'batch'"), ("seed", "unknown hyper-parameter of mine 'seed'")):
        with pytest.raises(ValueError, match=words):
            changed("mine", {}, {name: 8}, defaults)


def test_schedules_fall_linearly_to_zero():
    assert [schedule("lin_0.4")(left) for left in (1.0, 0.5, 0.0)] == [0.4, 0.2, 0.0] and schedule(0.1) == 0.1
    for text in ("cosine_1", "lin_x", "lin_0", "lin_-1", "lin_nan", "lin_inf", "lin"):
        with pytest.raises(ValueError, match="'lin_0.001'"):
            falling_from(text)


def test_settings_of_a_learner_begin_with_the_tuned_ones_or_the_librarys_own(campus):
    price, tilt = EnsembleEnv(campus, action="price"), EnsembleEnv(campus)
    plain = learner_settings("ppo", price, {"n_steps": 256}, tuned=False)
    assert plain == {"policy": "MlpPolicy", "n_envs": 8, "n_timesteps": 100_000, "n_steps": 256}
    assert learner_settings("ppo", price)["n_steps"] == 18
    assert learner_settings("ppo", tilt, {"cosines": 4})["cosines"] == 4
    assert "cosines" not in learner_settings("ppo", tilt, {"cosines": 0})
    with pytest.raises(ValueError, match="clock"):
        learner_settings("ppo", tilt, {"frame_stack": 3, "clock": True})
