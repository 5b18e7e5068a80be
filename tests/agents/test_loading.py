"""Files of policies: they hold no code, name known classes only, and come back as they were."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.agents.base import ScheduleAgent
from dp_ensemble_env.agents.loading import load_agent, load_policy, save_policy
from dp_ensemble_env.agents.weights import load_weights, save_weights
from dp_ensemble_env.envs.ensemble import EnsembleEnv


def test_a_run_holds_no_pickle_and_loads_without_one(tmp_path, monkeypatch, run):
    agent = run(tmp_path / "run")
    for path in (tmp_path / "run").iterdir():
        pickled = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
        assert not path.read_bytes().startswith((*pickled, b"PK")), path.name
    for module, name in ((pickle, "load"), (torch, "load"), (pickle, "loads")):
        monkeypatch.setattr(module, name, lambda *a, **k: pytest.fail("unpickled"))
    env = EnsembleEnv("campus-event", action="price")
    assert evaluate(load_agent(tmp_path / "run"), env).score == evaluate(agent, env).score
    assert run(tmp_path / "run", resume=True).curve == agent.curve


@pytest.mark.parametrize("scenario", ["campus-event", "spot", "front"])
def test_a_schedule_is_arrays_alone(scenario, tmp_path):
    env = EnsembleEnv(scenario)
    agent = make_agent("standard", env)
    save_policy(tmp_path / "plan.safetensors", agent, "mine")
    loaded, weights = load_policy(tmp_path / "plan.safetensors")
    assert isinstance(loaded, ScheduleAgent) and weights.settings["algo"] == "mine"
    observation = np.stack([env.reset(seed=seed)[0] for seed in range(5)])
    np.testing.assert_array_equal(loaded.predict(observation)[0], agent.predict(observation)[0])
    assert evaluate(loaded, env).score == evaluate(agent, env).score
    save_weights(tmp_path / "short", weights.arrays | {"actions": agent.actions[1:]}, weights.settings)
    with pytest.raises(ValueError, match="its arrays have other shapes"):
        load_policy(tmp_path / "short")
    with pytest.raises(ValueError, match="a Other cannot be saved without code"):
        save_policy(tmp_path / "other.safetensors", type("Other", (), {})(), "mine")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"class": {"class": "os:system"}}, "os:system cannot be kept"),
        ({"agent": "other"}, "but one of 'other'"),
        ({"observation_space": {"type": "pickle"}}, "the type 'pickle'"),
        ({"policy": {"dict": [["activation_fn", {"dict": [["class", "torch.nn.functional:relu"]]}]]}},
         "not a class of networks"),
        ({"policy": {"dict": [["activation_fn", {"dict": [["class", "builtins:exec"]]}]]}}, "exec cannot be kept"),
        ({"policy": {"dict": [["net_arch", [10**9]]]}}, "wider than its weights"),
        ({"policy": {"dict": [["nonsense", 1]]}}, "nonsense"),
        ({"about": {}}, "does not say what it needs to"),
    ],
)  # fmt: skip
def test_a_description_names_known_parts_only(change, words, finished):
    path = finished / "policy.safetensors"
    weights = load_weights(path)
    save_weights(path, weights.arrays, {**weights.settings, **change})
    with pytest.raises(ValueError, match=words):
        load_agent(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda array: np.full_like(array, np.nan), "that is not finite"),
        (lambda array: array[:, :-1], "can be built .*size mismatch"),
        (lambda array: None, "can be built .*Missing key"),
    ],
)
def test_weights_that_do_not_fit_or_are_no_numbers_are_refused(change, words, finished):
    path = finished / "policy.safetensors"
    weights = load_weights(path)
    name = "policy.action_net.weight"
    arrays = {**weights.arrays, name: change(weights.arrays[name])}
    save_weights(path, {key: array for key, array in arrays.items() if array is not None}, weights.settings)
    with pytest.raises(ValueError, match=words):
        load_agent(path)
