"""Timestamps as people write them."""

from __future__ import annotations

import numpy as np
import pytest
from meter_files import NAN, at, stamps

from dp_ensemble_env.meter import read_meter

QUARTERS = ["2024-07-13 00:45", "2024-07-13 01:00"]


@pytest.mark.parametrize(
    "rows, kw, expected",
    [
        ("start;kW\n2024-07-13T00:45:00;1\n2024-07-13T01:00:00.000;2", [1, 2], QUARTERS),
        ("start;kW\n07/13/24 12:45 AM;1\n07/13/24 1:00 AM;2", [1, 2], QUARTERS),
        ("start;kW\n2024-07-13T00:45:00-04:00;1\n2024-07-13T01:00:00-0400;2", [1, 2], QUARTERS),
        ("end,kW\n1/31/2024 12:00 PM,1\n2/1/2024 12:00 AM,2", [1, 2], ["2024-01-31 00:00", "2024-01-31 12:00"]),
        ("end;kW\n31.12.2024 23:45;1\n31.12.2024 24:00;2", [1, 2], ["2024-12-31 23:30", "2024-12-31 23:45"]),
        ("start,kW\n12/1/2024 23:00,1\n13/1/2024 0:00,2", [1, 2], ["2024-01-12 23:00", "2024-01-13 00:00"]),
        ("Date,Time,kWh\n7/13/2024,0:45 - 1:00,1\n7/13/2024,1:00 - 1:15,2", [4, 8], QUARTERS),
        *((f"start;kW\n{day} 00:45;1\n{day} 01:00;2", [1, 2], QUARTERS)
          for day in ("13-Jul-2024", "13 July 2024", "Jul 13, 2024", "13-JUL-24", "13Jul2024")),
    ],
)  # fmt: skip
def test_layouts(reads, rows, kw, expected):
    assert stamps(reads(kw, rows, stamp="end" if rows.startswith("end") else "start")) == expected


def test_day_and_month_order(file, refused):
    text = "start,kW\n1/2/2024 0:00,1\n1/2/2024 1:00,2\n"
    series = read_meter(file(text))
    assert stamps(series)[0] == "2024-01-02 00:00"
    assert any("month/day/year" in note for note in series.notes)
    assert stamps(read_meter(file(text), date_order="dmy"))[0] == "2024-02-01 00:00"
    assert read_meter(file("start,kW\n12/1/2024 23:00,1\n13/1/2024 0:00,2\n")).notes == ()  # decided
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


@pytest.mark.parametrize("written", ["7/13/2024 {} - 7/13/2024 {}", "2024-07-13 {} to {}", "13-Jul-2024 {} – {}"])
def test_stamps_with_both_ends(reads, written):
    ends = [("00:00", "00:30"), ("00:30", "01:00"), ("02:00", "02:30")]
    rows = [f"{written.format(*both)},{i + 1}" for i, both in enumerate(ends)]
    series = reads([2, 4, NAN, NAN, 6], ["interval,kWh", *rows])
    assert series.times[0] == at("2024-07-13T00:00") and series.step == np.timedelta64(1800, "s")


@pytest.mark.parametrize("scale", [1, 1000])
def test_seconds_and_milliseconds_since_1970(file, reads, scale, refused):
    first = 1720000800  # 2024-07-03 10:00 UTC
    path = file(["time,kW", *(f"{(first + 900 * i) * scale},{i + 1}" for i in range(4))])
    refused("in UTC; pass timezone=", path, stamp="start")
    assert reads([1, 2, 3, 4], path, stamp="start", timezone="America/New_York").times[0] == at("2024-07-03T06:00")
    # A number that never changes is no time.
    refused("no column of timestamps", ["account,kW", *(f"{first * scale},{i}" for i in range(5))], stamp="start")
