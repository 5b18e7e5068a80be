"""How a comparison is shown: on a narrow terminal, in files and in pictures."""

import csv
import json
import math

import numpy as np
import pytest

from dp_ensemble_env.agents.evaluation import seed_summary
from dp_ensemble_env.experiments.comparison_report import PrivateRow, Row, show_all, write_all
from dp_ensemble_env.reporting.outcome import event_outcome
from dp_ensemble_env.scenarios.campus import campus_event


@pytest.fixture(scope="module")
def campus():
    return campus_event()


@pytest.fixture(scope="module")
def rows(campus):
    outcome = event_outcome(campus, campus.default_policy)
    learner = Row("ppo, price", "MeanField", outcome, seed_summary([96.0, 97.5]), 50_000, 90.0, 97.0, [96.0, 97.5])
    learner.curves = [[(100, 50.0), (200, 96.0)], [(100, 60.0), (200, 97.5)]]
    return [Row("uncontrolled", "MeanField", outcome), learner]


def shown(capsys, monkeypatch, *arguments):
    monkeypatch.setenv("COLUMNS", "80")
    show_all(*arguments)
    return capsys.readouterr().out


def test_terminal_shows_results_first_and_notes_last(rows, capsys, monkeypatch):
    private = [PrivateRow("standard", k, [90.0, 92.0], [1234.5, 30.25]) for k in (50.0, math.inf)]
    out = shown(capsys, monkeypatch, rows, private, ["A note on what was left out."])
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("Controllers on the event, MeanField") and lines[-2] == "A note on what was left out."
    # The environment stands in the title, the learner's seeds in square brackets, errors of the mean behind ±.
    controllers = out.split("Learners")[0]
    assert controllers.count("MeanField") == 1 and "97.5]" in controllers
    assert "96.0, 97.5" in out and "91.0 ± 1.0" in out and "632.38 ± 602.12" in out and "∞ (none)" in out


def test_several_environments_are_named_in_every_row(rows, capsys, monkeypatch):
    other = Row("uncontrolled", "SingleLoad", rows[0].evaluation)
    out = shown(capsys, monkeypatch, [*rows, other], [])
    assert out.splitlines()[0].startswith("Controllers on the event (")
    assert out.count("SingleLoad") == out.count("uncontrolled  SingleLoad") >= 1


def test_files_hold_every_row_at_full_precision(campus, rows, tmp_path):
    private = [PrivateRow("standard", math.inf, [100.0], [0.0])]  # no noise at all: nothing to draw against k
    page = write_all(tmp_path, {"output": tmp_path, "seed": 0}, campus, rows, private, {}, "the command", ["A note."])
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"table.csv", "comparison.json", "comparison.html", "scores.png", "event.png", "learning.png"}
    table = list(csv.DictReader((tmp_path / "table.csv").open(newline="")))
    assert [line["controller"] for line in table] == ["uncontrolled", "ppo, price"]
    assert [line["seeds"] for line in table] == ["", "2"]
    assert float(table[0]["mean_return"]) == rows[0].evaluation.mean_return
    record = json.loads((tmp_path / "comparison.json").read_text())
    assert record["settings"] == {"output": str(tmp_path), "seed": 0} and record["command"] == "the command"
    np.testing.assert_array_equal(record["controllers"][1]["power_kw"], rows[1].evaluation.power_kw)
    assert "<p>A note.</p>" in page.read_text() and "<code>the command</code>" in page.read_text()
