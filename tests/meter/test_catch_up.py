"""Readings that carry more than their interval."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest
from meter_files import at, daily_shape, ticks

from dp_ensemble_env.meter import Gap, read_meter


def with_catch_up(first="2024-07-01", gap=24):
    """Quarter hours with six hours lost, whose energy comes with the next reading."""
    times = ticks(first, 96 * 3, 15)
    values = daily_shape(times) / 4
    lost = slice(120, 120 + gap)
    total = values[120 : 121 + gap].sum()
    values[120 + gap] = total
    rows = [
        f"{t:%Y-%m-%d %H:%M},{v:.6f}"
        for i, (t, v) in enumerate(zip(times, values, strict=True))
        if not 120 <= i < lost.stop
    ]
    return rows, values, total


def test_a_reading_that_carries_a_whole_gap_is_made_missing(file):
    rows, values, _ = with_catch_up()
    series = read_meter(file(["interval start,kWh", *rows]))
    assert np.isnan(series.kw[120:145]).all() and series.missing == 25
    np.testing.assert_allclose(series.kw[:120], values[:120] * 4, atol=1e-5)
    np.testing.assert_allclose(series.kw[145:], values[145:] * 4, atol=1e-5)
    assert [gap.reason for gap in series.gaps] == ["missing", "catch-up"]
    assert any("1 reading beside a gap of 'kWh' carried the energy of the whole gap" in note for note in series.notes)


def test_a_gap_without_catch_up_is_left_alone(file):
    times = ticks("2024-07-01", 96 * 3, 15)
    values = daily_shape(times) / 4
    rows = [f"{t:%Y-%m-%d %H:%M},{v}" for i, (t, v) in enumerate(zip(times, values, strict=True)) if not 120 <= i < 144]
    series = read_meter(file(["interval start,kWh", *rows]))
    assert series.missing == 24 and [gap.reason for gap in series.gaps] == ["missing"]
    # Power is not energy: a high kW after a gap is what it says.
    rows, values, _ = with_catch_up()
    assert read_meter(file(["interval start,kW", *rows]), spikes="keep").missing == 24


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
def test_the_repeated_hour_added_up_in_one_interval_is_averaged(file, timezone):
    times = ticks("2023-11-01", 24 * 8, 60)
    values = daily_shape(times)
    night = times.index(datetime(2023, 11, 5, 1))
    true = values[night]
    values[night] *= 2
    series = read_meter(
        file(["interval start,kWh", *(f"{t},{v}" for t, v in zip(times, values, strict=True))]), timezone=timezone
    )
    assert series.kw[night] == pytest.approx(true) and series.missing == 0
    assert any("autumn repeats (2023-11-05 01:00) carried the energy of both passes" in note for note in series.notes)


def test_the_repeated_hour_in_one_quarter_hour(file):
    times = ticks("2023-11-03", 96 * 4, 15)
    values = daily_shape(times) / 4
    night = times.index(datetime(2023, 11, 5, 1, 45))
    values[night] += values[night - 3 : night + 1].sum()
    path = file(["interval start,kWh", *(f"{t},{v}" for t, v in zip(times, values, strict=True))])
    series = read_meter(path, timezone="America/New_York")
    assert series.gaps == (Gap(at("2023-11-05T01:45"), at("2023-11-05T02:00"), 1, "catch-up"),)


def test_an_ordinary_autumn_night_is_left_alone(file, reads):
    times = ticks("2023-11-01", 24 * 8, 60)
    path = file(["interval start,kWh", *(f"{t},{v}" for t, v in zip(times, daily_shape(times), strict=True))])
    for timezone in (None, "America/New_York", "Europe/Berlin"):
        series = reads(daily_shape(times), path, timezone=timezone)
        assert series.notes == ("kWh per interval of 60 minutes were converted to kW.",)


@pytest.mark.parametrize("stamp", ["start", "end"])
def test_a_lump_in_the_evening_is_known_by_the_hours_it_stands_for(file, stamp):
    """Twelve hours of work arrive at 20:00: far more than twelve times the night beside them, less than a spike."""
    times = ticks("2024-07-01", 24 * 10, 60)
    values = np.array([20.0 if 8 <= t.hour < 20 else 1.0 + 0.1 * (t.day % 3) for t in times])
    lost = [i for i, t in enumerate(times) if t.day == 5 and 8 <= t.hour < 20]
    lump = lost[-1] + 1
    total = values[lost].sum() + values[lump]
    values[lump] = total
    assert total < 20 * 20
    rows = [f"{t:%Y-%m-%d %H:%M},{v:.6f}" for i, (t, v) in enumerate(zip(times, values, strict=True)) if i not in lost]
    series = read_meter(file([f"{stamp},kWh", *rows]), spikes="missing")
    assert np.nanmax(series.kw) == 20.0 and "catch-up" in {gap.reason for gap in series.gaps}
    kept = read_meter(file([f"{stamp},kWh", *rows]), catch_up="keep")
    assert np.nanmax(kept.kw) == pytest.approx(total)
