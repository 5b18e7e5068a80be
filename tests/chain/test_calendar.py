"""Days, steps, holidays, and days on which a meter failed."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pytest
from helpers import refuses
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.chain.calendar import (
    as_step,
    day_of_week,
    named_holidays,
    resample,
    select_days,
    similar_days,
    stale_days,
)

YEARS = [date(2019, 1, 1) + timedelta(days=i) for i in range(3 * 366)]  # 2020 has a 29 February
DAYS = np.array(YEARS, dtype="datetime64[D]")
HOUR = np.timedelta64(3600, "s")
STAMPS = np.datetime64("2024-06-03T00:00:00") + np.arange(24 * 28) * HOUR


def test_days_of_the_week():
    assert_array_equal(day_of_week(DAYS), [day.weekday() for day in YEARS])
    assert day_of_week(np.datetime64("1969-12-31T23:59")) == 2  # before the epoch, too: a Wednesday


@pytest.mark.parametrize(
    ("first", "last"),
    [((6, 15), (9, 25)), ((12, 1), (2, 28)), ((12, 1), (2, 29)), ((2, 29), (2, 29)), ((1, 1), (12, 31))],
)
def test_seasons(first, last):
    def inside(day):
        key = (day.month, day.day)
        return first <= key <= last if first <= last else key >= first or key <= last

    season = tuple(f"{month:02}-{day:02}" for month, day in (first, last))
    assert_array_equal(select_days(DAYS, season=season), [inside(day) for day in YEARS])


def test_excluded_days():
    assert select_days(DAYS[:4], exclude=("2019-01-03",)).tolist() == [True, True, False, True]
    refuses("cannot read a date in .*'soon'.*; write days as 2018-07-02", select_days, DAYS, None, ("soon",))


def test_similar_days_are_weekdays_for_a_weekday_and_else_the_same_day():
    wednesday, sunday = np.datetime64("2020-07-01"), np.datetime64("2020-07-05T11:00")
    assert_array_equal(similar_days(DAYS, wednesday), [day.weekday() < 5 for day in YEARS])
    assert_array_equal(similar_days(DAYS, sunday), [day.weekday() == 6 for day in YEARS])
    july = similar_days(DAYS, sunday, season=("07-01", "07-31"), exclude=["2020-07-05"])
    assert_array_equal(july, [d.weekday() == 6 and d.month == 7 and d != date(2020, 7, 5) for d in YEARS])


def test_steps():
    gaps = np.array([900, 1800], dtype="timedelta64[s]")
    assert as_step(None, gaps) == np.timedelta64(900, "s")
    assert as_step(0.5, gaps) == np.timedelta64(30, "s")
    assert as_step(np.timedelta64(1, "h"), gaps) == HOUR
    for wrong, words in ((0, "step must be positive"), ("15", "pass step=15"), (True, "minutes or a timedelta64")):
        refuses(words, as_step, wrong, gaps)


def test_resampling_averages_whole_groups_on_the_clock():
    """Starts at a quarter past: the first hour lacks a reading, as the second does, and the last is cut short."""
    quarter, third = np.timedelta64(900, "s"), np.timedelta64(1200, "s")
    times = np.datetime64("2018-07-02T00:15", "s") + quarter * np.arange(13)
    values = np.arange(13.0)
    values[4] = np.nan
    stamps, means, step = resample(times, values, quarter, HOUR)
    assert_array_equal(stamps, np.datetime64("2018-07-02", "s") + HOUR * np.arange(4))
    assert_allclose(means, [np.nan, np.nan, np.mean([7, 8, 9, 10]), np.nan])
    assert step == HOUR
    refuses("15-minute readings, which cannot give 20-minute steps", resample, times, values, quarter, third)


def load(seed=0):
    return np.random.default_rng(seed).uniform(80, 120, len(STAMPS))


def test_a_stuck_meter_and_an_outage_are_found_and_nothing_else():
    assert stale_days(STAMPS, load(), HOUR) == {}
    kw = load()
    kw[30:36] = 97.5  # six hours on 4 June
    kw[24 * 9 : 24 * 10] = 3.0 + np.random.default_rng(1).random(24)
    assert stale_days(STAMPS, kw, HOUR) == {"2024-06-04": "frozen", "2024-06-12": "outage"}
    kw[32] = np.nan  # a gap ends the run
    assert stale_days(STAMPS, kw, HOUR) == {"2024-06-12": "outage"}
    night = np.arange(len(STAMPS)) % 24 < 8  # a coarse meter is not stuck
    assert stale_days(STAMPS, np.where(night, 50.0, load()), HOUR) == {}


def test_federal_holidays_on_the_days_on_which_they_are_observed():
    def year(number):
        return [day for day in named_holidays(["us"], np.array([f"{number}-06-01"], "M8[D]")) if day[:4] == str(number)]

    assert year(2018) == [
        *("2018-01-01", "2018-01-15", "2018-02-19", "2018-05-28", "2018-07-04"),
        *("2018-09-03", "2018-10-08", "2018-11-12", "2018-11-22", "2018-12-25"),
    ]
    assert {"2021-06-18", "2021-07-05", "2021-12-31"} <= set(year(2021))  # Fridays and a Monday
    assert "2020-06-19" not in year(2020)
    written = named_holidays(("us", "2024-06-20"), STAMPS)
    assert {"2024-06-20", "2024-07-04", "2025-01-01"} <= set(written) and "us" not in written
    english = named_holidays(("gb-eng",), np.array(["2013-06-01"], "M8[D]"))
    assert {"2013-03-29", "2013-08-26", "2013-12-26"} <= set(english) and "2013-08-05" not in english  # Scotland's
    refuses("'xx' names no country", named_holidays, ("xx",), STAMPS)
