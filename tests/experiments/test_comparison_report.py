"""How a comparison is shown: on a narrow terminal, in files and in pictures."""

import csv
import json
import math

import numpy as np
import pytest

from dp_ensemble_env.agents.evaluation import seed_summary
from dp_ensemble_env.experiments.comparison_figures import cost_chart, deployed_explorer
from dp_ensemble_env.experiments.comparison_report import PrivateRow, Row, show_all, write_all
from dp_ensemble_env.experiments.comparison_takeaways import AS_TILT, takeaways
from dp_ensemble_env.reporting.score import event_outcome
from dp_ensemble_env.scenarios.campus import campus_event


@pytest.fixture(scope="module")
def campus():
    return campus_event()


@pytest.fixture(scope="module")
def rows(campus):
    outcome = event_outcome(campus, campus.default_policy)
    learner = Row("ppo, price", "mean-field", outcome, seed_summary([96.0, 97.5]), 50_000, 90.0, 97.0, [96.0, 97.5])
    learner.curves = [[(100, 50.0), (200, 96.0)], [(100, 60.0), (200, 97.5)]]
    return [Row("uncontrolled", "mean-field", outcome), learner]


def shown(capsys, monkeypatch, *arguments):
    monkeypatch.setenv("COLUMNS", "80")
    show_all(*arguments)
    return capsys.readouterr().out


def test_terminal_shows_results_first_and_notes_last(rows, capsys, monkeypatch):
    private = [PrivateRow("standard", k, [90.0, 92.0], [1234.5, 30.25]) for k in (50.0, math.inf)]
    out = shown(capsys, monkeypatch, rows, private, ["A note on what was left out."])
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("Controllers on the event, mean-field") and lines[-2] == "A note on what was left out."
    # The environment stands in the title, the learner's seeds in square brackets, errors of the mean behind ±.
    controllers = out.split("Learners")[0]
    assert controllers.count("mean-field") == 1 and "97.5]" in controllers
    assert "96.0, 97.5" in out and "91.0 ± 1.0" in out and "632.38 ± 602.12" in out and "∞ (none)" in out


def test_several_environments_are_named_in_every_row(rows, capsys, monkeypatch):
    other = Row("uncontrolled", "single", rows[0].evaluation)
    out = shown(capsys, monkeypatch, [*rows, other], [])
    assert out.splitlines()[0].startswith("Controllers on the event (")
    words = " ".join(out.split())
    assert words.count("single") == words.count("uncontrolled single") >= 1


def test_files_hold_every_row_at_full_precision(campus, rows, tmp_path):
    private = [PrivateRow("standard", math.inf, [100.0], [0.0])]  # no noise at all: nothing to draw against k
    page = write_all(tmp_path, {"output": tmp_path, "seed": 0}, campus, rows, private, {}, "the command", ["A note."])
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"table.csv", "comparison.json", "comparison.html", "scores.png", "event.png", "learning.png"}
    assert "The learner (ppo, price)" in page.read_text(encoding="utf-8").split("<figure")[0]
    table = list(csv.DictReader((tmp_path / "table.csv").open(newline="")))
    assert [line["controller"] for line in table] == ["uncontrolled", "ppo, price"]
    assert [line["seeds"] for line in table] == ["", "2"]
    assert float(table[0]["mean_return"]) == rows[0].evaluation.mean_return
    record = json.loads((tmp_path / "comparison.json").read_text())
    assert record["settings"] == {"output": str(tmp_path), "seed": 0} and record["command"] == "the command"
    np.testing.assert_array_equal(record["controllers"][1]["power_kw"], rows[1].evaluation.power_kw)
    assert "<p>A note.</p>" in page.read_text() and "<code>the command</code>" in page.read_text()


def test_takeaways_say_what_the_numbers_say(campus, rows):
    """A private score never stands without the one that costs no privacy."""
    about = {"without_data": 90.0, "epsilon": 3.21, "power_kw": rows[0].evaluation.power_kw}
    private = [PrivateRow(AS_TILT, k, [score], [1.0], **about) for k, score in ((10.0, 85.0), (50.0, 95.5))]
    found = takeaways(campus, rows, private)
    assert found[0].startswith("Made on a release (k = 50, ε = 3.21)") and "scores 95.5" in found[0]
    assert found[0].endswith("; without any data it would score 90.0.")
    assert found[1] == "A release with k = 10 is worth less than no data at all."
    assert "97.5" not in found[2] and "scores 96.8 after 50,000 steps (2 seeds)" in found[2]
    worse, better = takeaways(campus, rows, private[:1])[1], takeaways(campus, rows, private[1:])[1]
    assert worse.startswith("No release") and better.startswith("Every release")
    assert takeaways(campus, [], []) == ["Nothing was compared."]


def test_slider_moves_along_the_releases_with_their_power(campus, rows):
    power = rows[0].evaluation.power_kw
    private = [
        PrivateRow(name, k, [score], [100 - score], spec, 2.0, 90.0, power * share)
        for k, spec, score, share in (
            (50.0, "", 95.0, 0.9),
            (math.inf, "", 100.0, 0.8),
            (math.nan, "public", 90.0, 1.1),
        )
        for name in (AS_TILT, "standard")
    ]
    explorer = deployed_explorer(campus, rows, private)
    assert [stop.x for stop in explorer.stops] == [50.0, 125.0, 312.5]
    assert [text for _, text in explorer.frontier.x_ticks] == ["50", "no noise", "public"]
    assert "Score of standard, as a tilt: 95.0; without data: 90.0." in explorer.stops[0].says
    for stop, share in zip(explorer.stops, (0.9, 0.8, 1.1), strict=True):
        np.testing.assert_allclose(stop.curves[AS_TILT], power * share / 1e3)
    guess = explorer.frontier.series[-1]
    assert guess.name.startswith("without data") and set(guess.y) == {90.0}
    assert cost_chart(private, {"one release": [5.0]}).series[-1].y == [5.0]
    assert deployed_explorer(campus, rows, private[2:4]) is None and cost_chart(private[2:], {}) is None
