"""Standard load profiles."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import fake_simbench

from dp_ensemble_env.meter import simbench_profile

# SimBench ------------------------------------------------------------------


def test_simbench_profile(tmp_path, monkeypatch):
    fake_simbench(tmp_path, monkeypatch, [f"01.02.2016 00:{15 * i:02};9;0.{i + 1};8;7" for i in range(4)])
    series = simbench_profile(peak_kw=500)
    np.testing.assert_allclose(series.kw, [50, 100, 150, 200], rtol=1e-15)
    assert series.times[0] == np.datetime64("2016-02-01T00:00:00") and series.step == np.timedelta64(900, "s")
    assert series.notes == ("SimBench profile G0-A, per unit, was multiplied by 500 kW.",)
    np.testing.assert_array_equal(simbench_profile("H0-A").kw, [7000] * 4)
    with pytest.raises(ValueError, match="no load profile 'G9'; choose one of 'G0-A', 'G1-A'"):
        simbench_profile("G9")
    with pytest.raises(ValueError, match="peak_kw must be a positive"):
        simbench_profile(peak_kw=0)


def test_simbench_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr("dp_ensemble_env.meter.formats.simbench.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"not installed; pip install simbench"):
        simbench_profile()
