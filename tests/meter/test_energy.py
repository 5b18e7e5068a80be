"""States of a register become energy; readings that carry more than their interval are found."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest
from meter_files import at, daily_shape, rows, ticks

from dp_ensemble_env.meter import Gap, read_meter


# Registers ------------------------------------------------------------------
def register(first="2024-07-01", count=24 * 15, start=5000.0):
    """Hours, the energy of each, and the states at their beginnings."""
    times = ticks(first, count, 60)
    energy = daily_shape(times)
    return times, energy, start + np.concatenate(([0.0], np.cumsum(energy)))[:-1]


def test_what_grows_or_is_called_a_register_is_differenced_and_nothing_else(file, refused):
    times, energy, states = register()
    for header in ("time,Cumulative kWh", "time,kWh"):
        series = read_meter(file([header, *rows(times, states)]))
        np.testing.assert_allclose(series.kw, energy[:-1], atol=2e-3)
        assert series.times[0] == at("2024-07-01T00:00")
        assert "The values are states of a register; the energy is their differences." in series.notes
    kept = read_meter(file(["interval start,kWh", *rows(times, states)]), cumulative="no")
    np.testing.assert_allclose(kept.kw, states, atol=1e-3)
    line = 10.0 * np.arange(len(times))  # a straight line may be a test
    np.testing.assert_array_equal(read_meter(file(["interval start,kWh", *rows(times, line)])).kw, line)
    falls = ["time,Cumulative kWh", *rows(times, energy)]
    refused("should be a register, but it falls .* pass cumulative='no'", falls)
    refused("a register counts energy, but 'kW' is in kW", ["start,kW", *rows(times, states)], cumulative="yes")


def test_a_register_that_ends_is_set_back_or_loses_rows(file):
    times, energy, states = register(count=60, start=99_800.0)
    rolled = file(["time,register kWh", *rows(times, states % 100_000)])
    np.testing.assert_allclose(read_meter(rolled).kw, energy[:-1], atol=2e-3)
    lines = rows(times, np.where(np.arange(60) < 30, states, states - states[30]))
    series = read_meter(file(["time,register kWh", *lines]))
    assert np.flatnonzero(np.isnan(series.kw)).tolist() == [29]
    assert any("set back 1 time" in note for note in series.notes)
    lost = file(["time,register kWh", *lines[:10], *lines[13:]])
    assert np.flatnonzero(np.isnan(read_meter(lost).kw)).tolist() == [9, 10, 11, 12, 29]
    np.testing.assert_allclose(read_meter(lost, catch_up="keep").kw[9:13], energy[9:13].mean(), atol=2e-3)


@pytest.mark.parametrize("timezone", [None, "America/New_York"])
@pytest.mark.parametrize(
    "first, night, hour", [("2024-03-08", "2024-03-10 02", 1), ("2024-11-01", "2024-11-03 02", -1)]
)
def test_a_register_across_clock_changes(file, first, night, hour, timezone):
    times, energy, states = register(first, 24 * 4, start=100.0)
    wall = [t if t < datetime.fromisoformat(night) else t + timedelta(hours=hour) for t in times]
    series = read_meter(file(["time,register kWh", *rows(wall, states)]), timezone=timezone)
    noon = np.flatnonzero(series.times == at(f"{night[:10]}T12:00"))[0]
    assert series.kw[noon] == pytest.approx(energy[wall.index(datetime.fromisoformat(f"{night[:10]} 12"))], abs=2e-3)
    assert series.missing == (1 if hour == 1 else 0)


# Gaps -----------------------------------------------------------------------
def test_a_reading_that_carries_a_whole_gap_is_made_missing(file):
    """Quarter hours with six hours lost, whose energy comes with the next reading."""
    times = ticks("2024-07-01", 96 * 3, 15)
    values = daily_shape(times) / 4
    lumped = values.copy()
    lumped[144] = values[120:145].sum()
    lines = {unit: [f"interval start,{unit}", *rows(times, lumped)] for unit in ("kWh", "kW")}
    for text in lines.values():
        del text[121:145]
    series = read_meter(file(lines["kWh"]))
    assert np.isnan(series.kw[120:145]).all() and series.missing == 25
    np.testing.assert_allclose(np.delete(series.kw, range(120, 145)), np.delete(values, range(120, 145)) * 4, atol=2e-3)
    assert [gap.reason for gap in series.gaps] == ["missing", "catch-up"]
    assert any("1 reading beside a gap of 'kWh' carried the energy of the whole gap" in note for note in series.notes)
    # Power is not energy: a high kW after a gap is what it says. And a gap may be just a gap.
    plain = ["interval start,kWh", *rows(times, values)]
    for text in (lines["kW"], plain[:121] + plain[145:]):
        assert [gap.reason for gap in read_meter(file(text), spikes="keep").gaps] == ["missing"]


@pytest.mark.parametrize("stamp", ["start", "end"])
def test_a_lump_in_the_evening_is_known_by_the_hours_it_stands_for(file, stamp):
    """Twelve hours of work arrive at 20:00: far more than twelve times the night beside them, less than a spike."""
    times = ticks("2024-07-01", 24 * 10, 60)
    values = np.array([20.0 if 8 <= t.hour < 20 else 1.0 + 0.1 * (t.day % 3) for t in times])
    lost = [i for i, t in enumerate(times) if t.day == 5 and 8 <= t.hour < 20]
    values[lost[-1] + 1] += values[lost].sum()
    assert values[lost[-1] + 1] < 20 * 20
    path = file([f"{stamp},kWh", *np.delete(rows(times, values), lost)])
    series = read_meter(path, spikes="missing")
    assert np.nanmax(series.kw) == 20.0 and "catch-up" in {gap.reason for gap in series.gaps}
    assert np.nanmax(read_meter(path, catch_up="keep").kw) == pytest.approx(values[lost[-1] + 1])


# Autumn ---------------------------------------------------------------------
@pytest.mark.parametrize("timezone", [None, "America/New_York"])
def test_the_repeated_hour_added_up_in_one_interval_is_averaged(file, timezone):
    times = ticks("2023-11-01", 24 * 8, 60)
    values = daily_shape(times)
    night = times.index(datetime(2023, 11, 5, 1))
    for zone in (timezone, "Europe/Berlin"):  # an ordinary night is left alone
        series = read_meter(file(["interval start,kWh", *rows(times, values)]), timezone=zone)
        np.testing.assert_array_equal(series.kw, values)
        assert series.notes == ("kWh per interval of 60 minutes were converted to kW.",)
    both = np.where(np.arange(len(times)) == night, 2 * values, values)
    series = read_meter(file(["interval start,kWh", *rows(times, both)]), timezone=timezone)
    assert series.kw[night] == pytest.approx(values[night]) and series.missing == 0
    assert any("autumn repeats (2023-11-05 01:00) carried the energy of both passes" in note for note in series.notes)


def test_the_repeated_hour_in_one_quarter_hour(file):
    times = ticks("2023-11-03", 96 * 4, 15)
    values = daily_shape(times) / 4
    night = times.index(datetime(2023, 11, 5, 1, 45))
    values[night] += values[night - 3 : night + 1].sum()
    series = read_meter(file(["interval start,kWh", *rows(times, values)]), timezone="America/New_York")
    assert series.gaps == (Gap(at("2023-11-05T01:45"), at("2023-11-05T02:00"), 1, "catch-up"),)
