"""The frontier: score against ε for participants, with the ε = 0 line beside it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from dp_ensemble_env.experiments.studies import frontier
from dp_ensemble_env.experiments.studies.frontier import FrontierSettings, Point
from dp_ensemble_env.privacy import Fleet, mechanism
from dp_ensemble_env.reporting.plots import plot_frontier
from dp_ensemble_env.scenarios.campus import campus_event

SMALL = FrontierSettings(
    instances=(0,), heterogeneity=(30.0,), participants=(60, 20), epsilons=(1.0,), draws=2, steps=300
)


@pytest.fixture(scope="module")
def found() -> list[Point]:
    return frontier.measure(SMALL)


def test_every_point_is_measured_beside_the_public_guess(found):
    assert [(p.participants, p.mechanism) for p in found] == [
        (number, name) for number in (20, 60) for name in SMALL.mechanisms
    ]
    for point in found:
        assert point.public == pytest.approx(97.14, abs=0.01)  # the lazy walk on the campus, deployed as a tilt
        if point.mechanism == "dirichlet":
            assert not point.reached  # no k gives a participant (1, 1e-6) with so few
        else:
            assert point.mean == pytest.approx(point.public) and point.worst == pytest.approx(point.public)


def test_a_plan_on_the_truth_scores_a_hundred():
    model = campus_event()
    assert frontier.deployed_score(model, model.default) == pytest.approx(100.0, abs=1e-9)


@pytest.mark.parametrize(("number", "epsilon", "least"), [(1000, 1.0, 99.0), (1000, 4.0, 99.0), (4000, 1.0, 99.5)])
def test_a_participants_protection_is_worth_having(number, epsilon, least):
    model = campus_event(0)
    fleet = Fleet.simulate(model, number, seed=17)
    rng = np.random.default_rng(5)
    made = mechanism(f"gaussian:epsilon={epsilon}")
    scores = [frontier.deployed_score(model, made.release(fleet, rng)) for _ in range(5)]
    assert np.mean(scores) >= least


def test_participants_too_few_to_hide_in_cost_nothing():
    model = campus_event(0)
    public = frontier.deployed_score(model, mechanism("public").release(model.default))
    fleet = Fleet.simulate(model, 100, seed=17)
    for name in ("gaussian", "laplace", "posterior"):
        made = mechanism(f"{name}:epsilon=0.1")
        assert frontier.deployed_score(model, made.release(fleet, 3)) == pytest.approx(public, abs=1e-9)


def test_the_table_shows_mean_and_worst_and_what_cannot_be_reached():
    points = [
        Point(0, 30.0, 100, "gaussian", 1.0, 98.04, 97.52, 0.1, 97.14),
        Point(0, 30.0, 1000, "gaussian", 1.0, 99.46, 98.9, 0.1, 97.14),
        Point(0, 30.0, 1000, "dirichlet", 1.0, math.nan, math.nan, math.nan, 97.14),
    ]
    headings, rows = frontier.table(points)
    assert headings == ["instance", "κ", "mechanism", "ε", "ε = 0", "N = 100", "N = 1,000"]
    assert rows == [
        ["0", "30", "gaussian", "1", "97.1", "98.0 / 97.5", "99.5 / 98.9"],
        ["0", "30", "dirichlet", "1", "97.1", "", "unreachable"],
    ]


def test_points_are_plain_values_and_a_picture(found, tmp_path):
    content = json.loads(json.dumps(frontier.to_json(SMALL, found)))
    assert content["settings"]["draws"] == 2 and content["points"][3]["mean"] is None
    assert content["points"][0]["public"] == found[0].public
    path = plot_frontier(found, tmp_path / "frontier.png")
    assert path.read_bytes()[:4] == b"\x89PNG"
