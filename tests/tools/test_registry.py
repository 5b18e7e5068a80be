"""A stranger's file, here and in a second process: the recipe for agents of CONTRIBUTING.md."""

from __future__ import annotations

import helpers
import numpy as np
import pytest

from dp_ensemble_env.agents import agent_kind, agent_names, evaluate, make_agent
from dp_ensemble_env.agents.loading import load_agent
from dp_ensemble_env.agents.train import RunFolder, TrainingSettings, train
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.tools import registry


@pytest.fixture
def recipe():
    return helpers.recipe("A new agent").encode()


def test_a_stranger_s_agents_are_scored_trained_and_kept(recipe, tmp_path):
    digest = registry.load_source(recipe)
    first = agent_kind("steady")
    assert registry.load_source(recipe) == digest and agent_kind("steady") is first  # the same content runs once
    assert "steady" in agent_names(learns=False) and "lucky" in agent_names(learns=True)
    for action in ("price", "tilt", "policy"):
        env = EnsembleEnv("spot", action=action)
        assert evaluate(make_agent("steady", env), env).exact
    env = EnsembleEnv("spot", action="price")
    best = max(evaluate(make_agent("steady", env, price=p), env).score for p in np.linspace(-0.5, 0.5, 11))
    agent = train(
        "lucky", env, TrainingSettings(steps=20 * 48, hyperparams={"spread": 0.4}), keep=RunFolder(tmp_path / "run")
    )
    assert best - 3 < agent.curve[-1][1] <= evaluate(make_agent("best-price", env), env).score + 1e-9
    assert evaluate(load_agent(tmp_path / "run"), env).score == agent.curve[-1][1]
    with pytest.raises(ValueError, match="spread must be finite, and of the type and sign of 0.5; got 0"):
        train("lucky", env, TrainingSettings(hyperparams={"spread": 0}))


def test_entry_points_of_installed_packages_are_imported(tmp_path, monkeypatch):
    home = tmp_path / "theirs-1.0.dist-info"
    home.mkdir()
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (home / "entry_points.txt").write_text(f"[{registry.GROUP}]\ntheirs = their_plugin\n")
    (tmp_path / "their_plugin.py").write_text(
        "from dp_ensemble_env.agents import make_agent, register_agent\n"
        "register_agent('theirs')(lambda env: make_agent('ad-hoc', env))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert registry.load_entry_points() == ("theirs",) and "theirs" in agent_names()
    (home / "entry_points.txt").write_text(f"[{registry.GROUP}]\ntheirs = no_such_module\n")
    with pytest.raises(ValueError, match=r"the plugin 'theirs' \(no_such_module\) cannot be imported"):
        registry.load_entry_points()
