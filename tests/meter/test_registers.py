"""States of a register become energy."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest
from meter_files import at, daily_shape, ticks

from dp_ensemble_env.meter import read_meter


def register_rows(first="2024-03-01", count=24 * 15, minutes=60, start=5000.0):
    times = ticks(first, count, minutes)
    energy = daily_shape(times) * minutes / 60
    return times, energy, start + np.concatenate(([0.0], np.cumsum(energy)))[:-1]


@pytest.mark.parametrize("header", ["time,Cumulative kWh", "time,kWh"])
def test_a_register_is_differenced(file, header):
    times, energy, register = register_rows("2024-07-01")
    series = read_meter(file([header, *(f"{t},{v:.3f}" for t, v in zip(times, register, strict=True))]))
    np.testing.assert_allclose(series.kw, energy[:-1], atol=2e-3)
    assert series.times[0] == at("2024-07-01T00:00")
    assert "The values are states of a register; the energy is their differences." in series.notes


def test_a_register_that_ends_is_set_back_or_loses_rows(file):
    times, energy, register = register_rows("2024-07-01", 60, start=99_800.0)
    rolled = register % 100_000
    rows = [f"{t},{v:.3f}" for t, v in zip(times, rolled, strict=True)]
    np.testing.assert_allclose(read_meter(file(["time,register kWh", *rows])).kw, energy[:-1], atol=2e-3)
    fresh = np.where(np.arange(60) < 30, register, register - register[30])
    series = read_meter(file(["time,register kWh", *(f"{t},{v:.3f}" for t, v in zip(times, fresh, strict=True))]))
    assert np.flatnonzero(np.isnan(series.kw)).tolist() == [29]
    assert any("set back 1 time" in note for note in series.notes)
    del rows[10:13]
    lost = file(["time,register kWh", *rows])
    assert np.flatnonzero(np.isnan(read_meter(lost).kw)).tolist() == [9, 10, 11, 12]
    spread = read_meter(lost, catch_up="keep")
    np.testing.assert_allclose(spread.kw[9:13], energy[9:13].mean(), atol=2e-3)


def test_a_register_across_clock_changes(file):
    for first, night, kind in (
        ("2024-03-08", datetime(2024, 3, 10, 2), "skip"),
        ("2024-11-01", datetime(2024, 11, 3, 1), "again"),
    ):
        times, energy, _ = register_rows(first, 24 * 4)
        wall = list(times)
        if kind == "skip":
            wall = [t if t < night else t + timedelta(hours=1) for t in times]
        else:
            wall = [t if t <= night else t - timedelta(hours=1) for t in times]
        register = 100 + np.concatenate(([0.0], np.cumsum(energy)))[:-1]
        path = file(["time,register kWh", *(f"{t},{v:.3f}" for t, v in zip(wall, register, strict=True))])
        for timezone in (None, "America/New_York"):
            series = read_meter(path, timezone=timezone)
            place = {w: i for i, w in enumerate(wall[:-1])}
            at_noon = datetime(night.year, night.month, night.day, 12)
            when = int((at(at_noon.isoformat()) - series.times[0]) / series.step)
            assert series.kw[when] == pytest.approx(energy[place[at_noon]], abs=2e-3)
            assert series.missing == (1 if kind == "skip" else 0)


def test_what_is_no_register_is_not_differenced(file, refused):
    times, energy, register = register_rows("2024-07-01")
    rows = [f"{t},{v:.3f}" for t, v in zip(times, register, strict=True)]
    kept = read_meter(file(["interval start,kWh", *rows]), cumulative="no")
    np.testing.assert_allclose(kept.kw, register, atol=1e-3)
    refused(
        "should be a register, but it falls .* pass cumulative='no'",
        ["time,Cumulative kWh", *(f"{t},{v}" for t, v in zip(times, energy, strict=True))],
    )
    refused("a register counts energy, but 'kW' is in kW", ["start,kW", *rows], cumulative="yes")
