"""The comparison as a user runs it, without training."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
from helpers import load, write_meter

from dp_ensemble_env.experiments.comparison import PRESETS, Learner
from dp_ensemble_env.reporting.page import OWNER_WORDS, Page


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare") / "new" / "folder"
    arguments = ["--preset", "baselines", "--private", "50", "inf", "--releases", "2", "--output", str(folder)]
    assert load("compare").main(arguments) == 0
    return folder, arguments


def test_every_output_is_there_and_agrees(compared):
    folder, _ = compared
    record = json.loads((folder / "comparison.json").read_text())
    scores = {row["name"]: row["score"] for row in record["controllers"]}
    assert scores["uncontrolled"] == pytest.approx(0, abs=1e-6)
    assert scores["standard"] == pytest.approx(100, abs=1e-2)
    assert 0 < scores["ad-hoc"] < scores["best-price"] < 100
    with (folder / "table.csv").open() as stream:
        table = {row["controller"]: float(row["score"]) for row in csv.DictReader(stream)}
    assert table == pytest.approx(scores)
    private = {(row["name"], row["k"]): np.mean(row["scores"]) for row in record["private"]}
    assert private["standard", "∞ (none)"] == pytest.approx(100, abs=1e-2)
    assert private["standard", "50"] < private["standard, as a tilt", "50"] < 100
    for row in record["private"]:  # no floor, no guarantee; and what a plan on a public guess scores beside it
        assert row["epsilon"] is None and row["without_data"] == pytest.approx(97.14, abs=0.01)
    assert record["cost_of_privacy"]["taylor"][0] == pytest.approx(
        next(row["gap"] for row in record["controllers"] if row["name"] == "taylor"), abs=0.01
    )
    for name in ("scores", "event", "deployed"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_page_is_one_file_with_its_pictures(compared):
    page = (compared[0] / "comparison.html").read_text()
    assert page.count("data:image/png;base64,") == page.count('<img class="plain"') == 5
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)  # nothing is fetched
    assert "∞ means that nothing is guaranteed" in page and "do not publish" not in page


def test_what_is_computed_from_a_meter_is_named_private(tmp_path):
    write_meter(tmp_path / "meter.csv")
    words = ["--meter", str(tmp_path / "meter.csv"), "--unit", "kW", "--stamp", "start", "--date", "2018-07-02"]
    quick = ["--preset", "baselines", "--private", "50", "--releases", "1", "--levels", "6"]
    assert load("compare").main([*words, *quick, "--output", str(tmp_path / "out")]) == 0
    names = [path.name for path in (tmp_path / "out").iterdir()]
    assert names and all("-private." in name for name in names)
    assert OWNER_WORDS in (tmp_path / "out" / "comparison-private.html").read_text()


def test_same_command_gives_the_same_table(compared, tmp_path, capsys):
    folder, arguments = compared
    assert load("compare").main([*arguments[:-1], str(tmp_path)]) == 0
    # The terminal ends with at most three of the page's findings, and the page.
    *_, findings, page = capsys.readouterr().out.rstrip().split("\n\n")
    assert page == f"Page: {tmp_path / 'comparison.html'}"
    assert "without any data it would score" in " ".join(findings.split())
    assert 1 <= len(re.findall(r"\.(?=\s|$)", findings)) <= 3
    assert (tmp_path / "table.csv").read_text() == (folder / "table.csv").read_text()


def test_learners_are_trained_scored_and_deployed(tmp_path, monkeypatch):
    """Two seeds of a learner on the truth and one on a release; side by side or in turn gives the same numbers."""
    compare = load("compare")
    monkeypatch.setitem(PRESETS, "quick", (Learner("z-learning", "single", "tilt", 20_000, 2, 90),))
    arguments = ["--private", "50", "inf", "--releases", "1", "--episodes", "400"]
    records = []
    for jobs in ("1", "2"):
        folder = tmp_path / jobs
        assert compare.main([*arguments, "--jobs", jobs, "--output", str(folder)]) == 0
        records.append(json.loads((folder / "comparison.json").read_text()))
        assert "Learners" in (folder / "comparison.html").read_text()
    learners = [next(row for row in r["controllers"] if row["name"] == "z-learning, tilt") for r in records]
    assert learners[0]["scores"] == learners[1]["scores"] and records[0]["private"] == records[1]["private"]
    assert len(learners[0]["scores"]) == 2 and min(learners[0]["scores"]) > 90 and learners[0]["steps"] == 18_000
    private = {row["k"]: row["scores"] for row in records[0]["private"] if row["name"] == "z-learning, tilt"}
    assert set(private) == {"50", "∞ (none)"} and 60 < private["50"][0] < private["∞ (none)"][0] < 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--expect", "0"], "--expect: must be"),
        (["--private", "-1"], "--private: must be"),
        (["--meter", "nowhere.csv"], "nowhere.csv"),
        (["--date", "tomorrow"], "event time"),
        (["--output", __file__], "is no folder"),
        (["--episodes", "1"], "--episodes"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert load("compare").main(["--preset", "baselines", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err


def test_page_escapes_what_it_is_given(tmp_path):
    page = Page("a < b")
    page.text("`x < y` & z")
    page.table(["<h>"], [["<c>"]])
    content = page.write(tmp_path / "page.html").read_text()
    assert "<code>x &lt; y</code> &amp; z" in content and "&lt;h&gt;" in content and "<c>" not in content
