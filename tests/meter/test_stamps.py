"""Timestamps as people write them."""

from __future__ import annotations

import numpy as np
import pytest
from meter_files import NAN, at, stamps

from dp_ensemble_env.meter import meter_columns, read_meter


@pytest.mark.parametrize(
    "first, second",
    [
        ("2024-07-13T00:45:00", "2024-07-13T01:00:00.000"),
        ("2024/07/13 00:45", "2024/07/13 01:00"),
        ("7/13/2024 0:45", "7/13/2024 1:00"),
        ("07/13/24 12:45 AM", "07/13/24 1:00 AM"),
        ("13.07.2024 00:45", "13.07.2024 01:00"),
        ("13/7/2024 0:45:00", "13/7/2024 1:00:00"),
        ("2024-07-13T00:45:00-04:00", "2024-07-13T01:00:00-0400"),
    ],
)
def test_timestamp_layouts(file, first, second):
    series = read_meter(file(f"start;kW\n{first};1\n{second};2\n"))
    assert stamps(series) == ["2024-07-13 00:45", "2024-07-13 01:00"]


def test_noon_midnight_and_hour_24(file):
    series = read_meter(file("end,kW\n1/31/2024 12:00 PM,1\n2/1/2024 12:00 AM,2\n"))
    assert stamps(series) == ["2024-01-31 00:00", "2024-01-31 12:00"]
    series = read_meter(file("end;kW\n31.12.2024 23:45;1\n31.12.2024 24:00;2\n"))
    assert stamps(series) == ["2024-12-31 23:30", "2024-12-31 23:45"]


def test_day_and_month_order(file, refused):
    text = "start,kW\n1/2/2024 0:00,1\n1/2/2024 1:00,2\n"
    series = read_meter(file(text))
    assert stamps(series)[0] == "2024-01-02 00:00"
    assert any("month/day/year" in note for note in series.notes)
    assert stamps(read_meter(file(text), date_order="dmy"))[0] == "2024-02-01 00:00"
    decided = read_meter(file("start,kW\n12/1/2024 23:00,1\n13/1/2024 0:00,2\n"))
    assert stamps(decided) == ["2024-01-12 23:00", "2024-01-13 00:00"] and decided.notes == ()
    dotted = read_meter(file("start;kW\n01.02.2024 00:00;1\n01.02.2024 01:00;2\n"))
    assert stamps(dotted)[0] == "2024-02-01 00:00" and "day.month.year" in dotted.notes[0]
    refused(r"lines 2 and 3", "start,kW\n13/1/2024 0:00,1\n1/13/2024 1:00,2\n")


def test_utc_stamps_need_a_time_zone(file, refused):
    path = file("start,kW\n2024-07-01T04:00:00Z,1\n2024-07-01T05:00:00Z,2\n")
    refused("in UTC; pass timezone=", path)
    assert stamps(read_meter(path, timezone="UTC"))[0] == "2024-07-01 04:00"
    assert stamps(read_meter(path, timezone="America/New_York"))[0] == "2024-07-01 00:00"
    refused("unknown timezone 'Mars'", path, timezone="Mars")
    refused("line 3: some timestamps state an offset", "start,kW\n2024-07-01T04:00:00Z,1\n2024-07-01T05:00:00,2\n")


@pytest.mark.parametrize(
    "written",
    [
        "2024-07-13 {a} to 2024-07-13 {b}",
        "7/13/2024 {a} - 7/13/2024 {b}",
        "2024-07-13 {a} to {b}",
        "13-Jul-2024 {a} – {b}",
    ],
)
def test_stamps_with_both_ends(file, written):
    ends = [("00:00", "00:30"), ("00:30", "01:00"), ("02:00", "02:30")]
    series = read_meter(
        file(["interval,kWh", *(f"{written.format(a=a, b=b)},{i + 1}" for i, (a, b) in enumerate(ends))])
    )
    assert series.times[0] == at("2024-07-13T00:00") and series.step == np.timedelta64(1800, "s")
    np.testing.assert_array_equal(series.kw, [2, 4, NAN, NAN, 6])


def test_a_clock_column_with_both_ends(reads):
    reads([4, 8], ["Date,Time,kWh", "7/13/2024,0:00 - 0:15,1", "7/13/2024,0:15 - 0:30,2"])


@pytest.mark.parametrize("scale", [1, 1000])
def test_seconds_and_milliseconds_since_1970(file, scale, refused):
    first = 1720000800  # 2024-07-03 10:00 UTC
    path = file(["time,kW", *(f"{(first + 900 * i) * scale},{i + 1}" for i in range(4))])
    refused("in UTC; pass timezone=", path, stamp="start")
    series = read_meter(path, stamp="start", timezone="America/New_York")
    assert series.times[0] == at("2024-07-03T06:00")
    np.testing.assert_array_equal(series.kw, [1, 2, 3, 4])
    assert meter_columns(path) == ["kW"]


def test_a_number_that_never_changes_is_no_time(refused):
    refused("no column of timestamps", ["account,kW", *(f"1234567890,{i}" for i in range(5))], stamp="start")


@pytest.mark.parametrize("day", ["01-May-2018", "1 May 2018", "May 1, 2018", "01-MAY-18", "01May2018"])
def test_months_by_name(file, day):
    series = read_meter(file(["start;kW", *(f"{day} {h:02}:00;{h + 1}" for h in range(3))]))
    assert series.times[0] == at("2018-05-01T00:00")
    np.testing.assert_array_equal(series.kw, [1, 2, 3])
