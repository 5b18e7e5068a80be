"""The scripts as a user runs them."""

from __future__ import annotations

import json

import pytest
from helpers import load


def test_benchmark_measures_the_claims(tmp_path, capsys):
    benchmark = load("benchmark")
    status = benchmark.main(["solver", "--seconds", "0.01", "--json", str(tmp_path / "speed.json")])
    claims = json.loads((tmp_path / "speed.json").read_text())
    assert len(claims) == 5 and all(c["ours_ms"] > 0 and c["ratio"] > 0 for c in claims)
    assert status == (0 if all(c["holds"] for c in claims) else 1)  # no claim about this machine's speed
    assert "Ratios measured in this run" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    [
        "benchmark",
        "dataset",
        "scenarios",
        "compare",
        "evaluate",
        "privacy",
        "reproduce",
        "sweep",
        "train",
        "tune",
        "validate",
    ],
)
def test_help_shows_an_example(name, capsys):
    with pytest.raises(SystemExit) as stop:
        load(name).main(["--help"])
    assert stop.value.code == 0
    assert f"dp-ensemble {name}" in capsys.readouterr().out
