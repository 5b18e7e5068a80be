"""Environments of data sets: what their description names is made only if it is registered."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from dp_ensemble_env import campus_event
from dp_ensemble_env.envs.spec import PORTABLE, portable_spec
from dp_ensemble_env.experiments.recovery import check_spec, recover_environment

ID = "dp_ensemble/CampusEvent-tilt-v1"
called = []


def bomb(**_):
    called.append("boom")


def described(**changes):
    spec = EnvSpec.from_json(gymnasium.make(ID).spec.to_json())
    for name, value in changes.items():
        setattr(spec, name, value)
    return SimpleNamespace(env_spec=spec)


def test_registered_environments_are_made_again():
    env = recover_environment(described())
    assert env.unwrapped.action_mode == "tilt" and env.spec.id == ID
    portable = SimpleNamespace(env_spec=EnvSpec.from_json(portable_spec(campus_event(), action="tilt").to_json()))
    np.testing.assert_array_equal(recover_environment(portable).unwrapped.model.default, campus_event().default)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entry_point": f"{__name__}:bomb"}, "names the entry point .*:bomb', which is not that of the registered"),
        ({"entry_point": "os:system"}, "'os:system'"),
        ({"entry_point": None}, "names the entry point None"),
        ({"vector_entry_point": f"{__name__}:bomb"}, "vector entry point"),
        ({"additional_wrappers": (WrapperSpec("x", f"{__name__}:bomb", {}),)}, "names the wrapper"),
        ({"id": "theirs/Env-v0"}, "not registered"),
        ({"entry_point": "dp_ensemble_env.envs.spec:make_env"}, "of dp_ensemble/CampusEvent-tilt-v1 names"),
        ({"id": PORTABLE}, "names the entry point 'dp_ensemble_env.envs.ensemble:EnsembleEnv'"),
        ({"id": PORTABLE, "entry_point": f"{__name__}:bomb"}, "names the entry point .*:bomb"),
        ({"id": "CartPole-v1", "entry_point": "dp_ensemble_env.envs.spec:make_env"}, "of CartPole-v1 names"),
    ],
)
def test_whatever_else_a_description_names_is_not_run(changes, words):
    with pytest.raises(ValueError, match=words):
        recover_environment(described(**changes))
    assert not called
    with pytest.raises(ValueError, match="does not say"):
        check_spec(None)
