"""The scripts as a user runs them."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent.parent / "scripts"


def load(name):
    """Import a script as Python does when it is run: with its own folder on the path."""
    if str(SCRIPTS) not in sys.path:
        sys.path.insert(0, str(SCRIPTS))
    return importlib.import_module(name)


def test_demo_prints_the_table_and_writes_the_picture(tmp_path, capsys):
    assert load("demo").main(["--output", str(tmp_path / "new" / "folder"), "--samples", "40"]) == 0
    out = capsys.readouterr().out
    for name in ("uncontrolled", "standard", "Taylor", "Digamma", "average value", "one release"):
        assert name in out
    assert "100.0" in out and "synthetic" in out
    picture = tmp_path / "new" / "folder" / "event.png"
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--k", "-5"], "--k must be a positive"),
        (["--start", "noon"], "event time 'noon'"),
        (["--samples", "0"], "--samples"),
        (["--output", __file__], "cannot write"),
    ],
)
def test_demo_answers_bad_input_in_one_sentence(tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert load("demo").main(arguments) == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err


def test_benchmark_measures_the_claims(tmp_path, capsys):
    benchmark = load("benchmark")
    status = benchmark.main(["solver", "--seconds", "0.01", "--json", str(tmp_path / "speed.json")])
    claims = json.loads((tmp_path / "speed.json").read_text())
    assert len(claims) == 5 and all(c["ours_ms"] > 0 and c["ratio"] > 0 for c in claims)
    assert status == (0 if all(c["holds"] for c in claims) else 1)  # no claim about this machine's speed
    assert "Ratios measured in this run" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["demo", "benchmark"])
def test_help_shows_an_example(name, capsys):
    with pytest.raises(SystemExit) as stop:
        load(name).main(["--help"])
    assert stop.value.code == 0
    assert f"scripts/{name}.py" in capsys.readouterr().out
