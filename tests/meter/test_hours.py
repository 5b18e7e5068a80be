"""Numbered hours, and rows of a day."""

from __future__ import annotations

import numpy as np
import pytest
from meter_files import NAN, at

from dp_ensemble_env.meter import read_meter


def hour_rows(days, hours, write="{h}"):
    return [f"{day},{write.format(h=h)},{i * 100 + h}" for i, day in enumerate(days) for h in hours]


@pytest.mark.parametrize(
    "name, hours, write", [("Hour", range(1, 25), "{h}"), ("HE", range(1, 25), "HE{h:02}"), ("Hour", range(24), "{h}")]
)
def test_a_column_of_hours(reads, name, hours, write):
    rows = hour_rows(["7/1/2024", "7/2/2024"], hours, write)
    series = reads([i * 100 + h for i in range(2) for h in hours], [f"Date,{name},kWh", *rows], date_order="mdy")
    assert series.times[0] == at("2024-07-01T00:00")


def test_hours_that_may_begin_or_end_are_refused(file, refused):
    rows = hour_rows(["2024-07-01"], range(8, 18))
    refused("'Hour' has hours from 8 to 17, which may begin or end there; call it", ["Date,Hour,kWh", *rows])
    assert read_meter(file(["Date,Hour,kWh", *rows]), stamp="end").times[0] == at("2024-07-01T07:00")
    refused(
        r"line 27: '26' is no number of an interval from 1 to 24",
        ["Date,Hour,kWh", *hour_rows(["2024-07-01"], [*range(1, 25), 24, 26])],
    )


@pytest.mark.parametrize("name, first", [("HE{:02}", 1), ("{}", 1), ("Hour {}", 1), ("{:02}:00", 0), ("{:02}:00", 1)])
def test_a_row_a_day(reads, name, first):
    header = ",".join(["Date", *(name.format(h) for h in range(first, first + 24))])
    rows = [f"2024-07-0{d}," + ",".join(str(100 * d + h) for h in range(24)) for d in (1, 2)]
    series = reads([100 * d + h for d in (1, 2) for h in range(24)], [header, *rows], unit="kWh")
    assert series.times[0] == at("2024-07-01T00:00")


def test_days_of_23_and_25_hours_need_the_time_zone(file, refused):
    header = "Date," + ",".join(f"HE{h:02}" for h in range(1, 26))

    def rows(day, hours):
        return f"{day}," + ",".join([*(str(h) for h in range(1, hours + 1)), *[""] * (25 - hours)])

    for day, count, kw in (("2024-11-03", 25, [1, 2.5, *range(4, 26)]), ("2024-03-10", 23, [1, 2, NAN, *range(3, 24)])):
        eve, morrow = np.datetime64(day) - 1, np.datetime64(day) + 1
        path = file([header, rows(eve, 24), rows(day, count), rows(morrow, 24)])
        refused(rf"line 3: {day} has {count} hours, so clocks changed; pass timezone=", path, unit="kWh")
        np.testing.assert_array_equal(read_meter(path, unit="kWh", timezone="America/New_York").kw[24:48], kw)
