"""Specs that carry their model: what comes back from JSON is the same environment."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from helpers import TiltEnv
from oracles import KINDS, N, T, general_model

from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.envs.spec import portable_spec
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import mechanism
from dp_ensemble_env.shapes import Axis


def remade(spec: EnvSpec) -> EnsembleEnv:
    """Write a spec as JSON and make the environment from it."""
    text = spec.to_json()
    json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
    return gymnasium.make(EnvSpec.from_json(text)).unwrapped


def same_way(env: EnsembleEnv, again: EnsembleEnv) -> None:
    env.reset(seed=5), again.reset(seed=5)
    env.action_space.seed(0)
    for _ in range(env.model.horizon):
        action = env.action_space.sample()
        one, two = env.step(action), again.step(action)
        np.testing.assert_array_equal(one[0], two[0])
        assert one[1:] == two[1:]


def test_a_mechanism_is_refused_since_the_spec_would_hold_the_private_model() -> None:
    with pytest.raises(ValueError, match="pass release="):
        portable_spec(general_model("plain"), privacy="dirichlet:k=50")


@pytest.mark.parametrize("kind", KINDS)
def test_a_portable_spec_gives_the_same_environment(kind: str) -> None:
    model = general_model(kind).override(
        axes=[Axis("state", range(N))], tilt_scale=np.linspace(9, 3, T), guess=general_model(kind, 1).default
    )
    again = remade(portable_spec(model, action="tilt", population=40, reward="points"))
    assert again.model.fingerprint == model.fingerprint and again.model.axes == model.axes
    np.testing.assert_array_equal(again.model.guess, model.guess)
    same_way(TiltEnv(model, 40, reward="points"), again)


def test_a_model_with_an_event_and_its_release(campus: EnsembleModel) -> None:
    again = remade(portable_spec(campus, action="price"))
    np.testing.assert_array_equal(again.model.event.price, campus.event.price)
    np.testing.assert_array_equal(again.model.default, campus.default)
    assert again.model.counts is None and again.model.event.baseline_kw is None  # the environment does not need them
    same_way(EnsembleEnv(campus, action="price"), again)
    release = mechanism("dirichlet:k=50,floor=0.01").release(campus.default)
    private = remade(portable_spec(campus, release, action="price"))
    np.testing.assert_array_equal(private.model.default, release.matrix)
    assert private.release.digest == release.digest and private.model.counts is None
    same_way(EnsembleEnv(campus, action="price", privacy=release), private)
