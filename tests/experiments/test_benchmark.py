"""The scripts as a user runs them."""

from __future__ import annotations

import json

from helpers import load


def test_benchmark_measures_the_claims(tmp_path, capsys):
    benchmark = load("benchmark")
    status = benchmark.main(["solver", "--seconds", "0.01", "--json", str(tmp_path / "speed.json")])
    claims = json.loads((tmp_path / "speed.json").read_text())
    assert len(claims) == 7 and all(c["ours_ms"] > 0 and c["ratio"] > 0 for c in claims)
    assert status == (0 if all(c["holds"] for c in claims) else 1)  # no claim about this machine's speed
    assert "Ratios measured in this run" in capsys.readouterr().out
