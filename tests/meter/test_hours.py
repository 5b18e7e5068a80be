"""Numbered hours, and rows of a day."""

from __future__ import annotations

import numpy as np
import pytest
from meter_files import NAN, at

from dp_ensemble_env.meter import read_meter


def hour_rows(days, hours, write="{h}"):
    return [f"{day},{write.format(h=h)},{i * 100 + h}" for i, day in enumerate(days) for h in hours]


@pytest.mark.parametrize(
    "header, hours, write",
    [
        ("Date,Hour,kWh", range(1, 25), "{h}"),
        ("Date,Hour Ending,kWh", range(1, 25), "{h:02}"),
        ("Date,HE,kWh", range(1, 25), "HE{h:02}"),
        ("Date,Hour,kWh", range(24), "{h}"),
    ],
)
def test_a_column_of_hours(file, header, hours, write):
    series = read_meter(file([header, *hour_rows(["7/1/2024", "7/2/2024"], hours, write)]), date_order="mdy")
    assert series.times[0] == at("2024-07-01T00:00") and len(series) == 48 and series.missing == 0
    np.testing.assert_array_equal(series.kw, [i * 100 + h for i in range(2) for h in hours])


def test_hours_that_may_begin_or_end_are_refused(file, refused):
    rows = hour_rows(["2024-07-01"], range(8, 18))
    refused("'Hour' has hours from 8 to 17, which may begin or end there; call it", ["Date,Hour,kWh", *rows])
    assert read_meter(file(["Date,Hour,kWh", *rows]), stamp="end").times[0] == at("2024-07-01T07:00")
    refused(
        r"line 27: '26' is no number of an interval from 1 to 24",
        ["Date,Hour,kWh", *hour_rows(["2024-07-01"], [*range(1, 25), 24, 26])],
    )


DAY_HEADERS = {
    "HE": ",".join(f"HE{h:02}" for h in range(1, 25)),
    "numbers": ",".join(map(str, range(1, 25))),
    "hours": ",".join(f"Hour {h}" for h in range(1, 25)),
    "starts": ",".join(f"{h:02}:00" for h in range(24)),
    "ends": ",".join(f"{h:02}:00" for h in range(1, 25)),
}


@pytest.mark.parametrize("kind", DAY_HEADERS)
def test_a_row_a_day(file, kind):
    rows = [f"2024-07-0{d}," + ",".join(str(100 * d + h) for h in range(24)) for d in (1, 2)]
    series = read_meter(file([f"Date,{DAY_HEADERS[kind]}", *rows]), unit="kWh")
    assert series.times[0] == at("2024-07-01T00:00") and len(series) == 48
    np.testing.assert_array_equal(series.kw, [100 * d + h for d in (1, 2) for h in range(24)])


def test_days_of_23_and_25_hours_need_the_time_zone(file, refused):
    header = "Date," + ",".join(f"HE{h:02}" for h in range(1, 26))

    def rows(day, hours):
        return f"{day}," + ",".join([*(str(h) for h in range(1, hours + 1)), *[""] * (25 - hours)])

    path = file([header, rows("2024-11-02", 24), rows("2024-11-03", 25), rows("2024-11-04", 24)])
    refused(r"line 3: 2024-11-03 has 25 hours, so clocks changed; pass timezone=", path, unit="kWh")
    series = read_meter(path, unit="kWh", timezone="America/New_York")
    np.testing.assert_array_equal(series.kw[24:48], [1, 2.5, *range(4, 26)])
    path = file([header, rows("2024-03-09", 24), rows("2024-03-10", 23), rows("2024-03-11", 24)])
    refused(r"2024-03-10 has 23 hours", path, unit="kWh")
    series = read_meter(path, unit="kWh", timezone="America/New_York")
    np.testing.assert_array_equal(series.kw[24:48], [1, 2, NAN, *range(3, 24)])
