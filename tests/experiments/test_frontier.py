"""The frontier: score against ε for participants, with the ε = 0 line beside it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import deployed, switches

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli.main import main
from dp_ensemble_env.experiments import frontier
from dp_ensemble_env.experiments.frontier import FrontierSettings, Point
from dp_ensemble_env.reporting.plots import plot_frontier
from dp_ensemble_env.scenarios import Card


@pytest.fixture
def general():
    """A scenario with nature and contexts, by name."""
    scenarios.register("switches", switches, Card("Switches", "A test."))
    yield "switches"
    scenarios.remove("switches")


def test_every_point_is_measured_beside_the_public_guess(tmp_path):
    some = {"instances": (0,), "heterogeneity": (30.0,), "participants": (60, 20), "epsilons": (1.0,)}
    settings = FrontierSettings(**some, draws=2, steps=300)
    found = frontier.measure(settings)
    assert [(p.participants, p.mechanism) for p in found] == [
        (n, name) for n in (20, 60) for name in settings.mechanisms
    ]
    for point in found:  # the lazy walk on the campus, deployed as a tilt; too few participants to hide in cost nothing
        assert point.public == pytest.approx(97.14, abs=0.01)
        assert point.mean == pytest.approx(point.public) and point.worst == pytest.approx(point.public)
    content = json.loads(json.dumps(frontier.to_json(settings, found)))
    assert content["settings"]["draws"] == 2 and content["points"][3]["participants"] == 60
    assert plot_frontier(found, tmp_path / "frontier.png").read_bytes()[:4] == b"\x89PNG"


def test_with_nature_and_contexts_it_stands_beside_the_models_own_guess(general):
    names = ("gaussian", "posterior")
    settings = FrontierSettings(general, (0,), (30.0,), (3, 2000), (2.0,), mechanisms=names, draws=2, days=10)
    found, model = frontier.measure(settings), scenarios.make(general)
    low, high = (deployed(model, tilts) for tilts in (None, model.default))
    public = 100.0 * (deployed(model, model.guess) - low) / (high - low)
    assert len(found) == 4
    for point in found:
        assert point.public == pytest.approx(public, abs=1e-6) and point.public < 98
        if point.participants == 3:
            assert point.mean == pytest.approx(point.public)  # too few to hide in
        elif point.mechanism == "gaussian":
            assert point.public + 1 < point.worst < point.mean <= 100
            assert point.standard_error == pytest.approx(point.mean - point.worst)  # of two draws


def test_participants_that_a_scenario_describes_have_no_kappa(tmp_path):
    records = np.array([[0, 0, 0, 1], [1, 1, 2, 5]])
    scenarios.register("own", switches, Card("Own", "A test."), lambda model, count, days, rng: [records] * count)
    try:
        settings = FrontierSettings("own", (0,), (30.0, 8.0), (3,), (1.0,), mechanisms=("gaussian",), draws=2)
        found = frontier.measure(settings)
    finally:
        scenarios.remove("own")
    assert len(found) == 1 and frontier.table(found)[1][0][1] == "own"
    assert json.loads(json.dumps(frontier.to_json(settings, found)))["points"][0]["heterogeneity"] is None
    assert plot_frontier(found, tmp_path / "frontier.png").exists()


def test_the_table_shows_mean_and_worst():
    points = [
        Point(0, 30.0, 100, "gaussian", 1.0, 98.04, 97.52, 0.1, 97.14),
        Point(0, 30.0, 1000, "gaussian", 1.0, 99.46, 98.9, 0.1, 97.14),
    ]
    headings, rows = frontier.table(points)
    assert headings == ["instance", "κ", "mechanism", "ε", "without data", "N = 100", "N = 1,000"]
    assert rows[0] == ["0", "30", "gaussian", "1", "97.1", "98.0 / 97.5", "99.5 / 98.9"]


def test_the_commands_take_any_scenario(general, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    few = ["--scenario", general, "--output", str(tmp_path), "--days", "2"]
    assert main(["privacy", "regret", *few, "--participants", "500", "--releases", "1"]) == 0
    out = capsys.readouterr().out
    assert "gaussian:epsilon=1" in out and "without data" in out
    found = json.loads((tmp_path / "regret.json").read_text())["regrets"]
    assert {row["name"] for row in found} == {"public", "dirichlet:k=50", "gaussian:epsilon=1", "adaptive:epsilon=1"}
    assert found[1]["sampling"] == pytest.approx(0.0, abs=1e-9)  # drawn from the truth itself
    assert main(["privacy", "frontier", *few, "--participants", "100", "--epsilons", "1", "--draws", "1"]) == 0
    assert "ε = 0" in capsys.readouterr().out
