"""The profiles of the real SimBench package, of which only the data file is read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dp_ensemble_env.meter import simbench_profile

ROOT = Path(__file__).parents[2]


def test_real_simbench_profile():
    series = simbench_profile("G0-A")
    assert len(series) == 366 * 96 and series.kw[0] == pytest.approx(143.882)
    assert [(gap.intervals, gap.reason) for gap in series.gaps] == [(4, "daylight saving")]
    assert 0.99e3 < np.nanmax(series.kw) <= 1e3


def test_case_study_on_a_profile(own_folder, shell):
    shell("python -m dp_ensemble_env reproduce --quick --simbench G1-A --output out")
    content = json.loads((own_folder / "out" / "reproduction.json").read_text())
    assert "SimBench G1-A" in json.dumps(content["tally"])
    assert (own_folder / "out" / "simbench" / "fig7_event.png").stat().st_size > 10_000
    assert "SimBench G1-A" in (own_folder / "out" / "reproduction.html").read_text(encoding="utf-8")
