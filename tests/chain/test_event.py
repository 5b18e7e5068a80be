"""Event times, prices and utility."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import refuses
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.chain.event import (
    DemandResponseEvent,
    EventTimeline,
    Tariff,
    check_event_day,
    event_day,
    event_for,
)
from dp_ensemble_env.meter import PowerSeries


def test_events_laid_on_their_steps():
    """The default has two steps of notice and sixteen of event; another one ends after midnight."""
    line = DemandResponseEvent().timeline()
    assert str(line.times[0]) == "2018-07-02T10:30:00" and str(line.times[-1]) == "2018-07-02T15:00:00"
    assert_array_equal(np.flatnonzero(line.in_event), np.arange(3, 19))  # intervals ending 11:15 … 15:00
    assert_allclose(line.price, [0.137] * 3 + [1.137] * 16)
    assert_allclose(line.utility([321.0, 100.0]), -np.outer(line.price, [321.0, 100.0]) / 4)
    refuses("incentive", EventTimeline, line.times, line.energy_price, line.incentive[:-1], line.in_event)
    with pytest.raises(ValueError, match="read-only"):
        line.incentive[0] = 3.0
    event = DemandResponseEvent(start="22:00", end="02:00", step_minutes=30, notice_minutes=60, incentive=0.5)
    line = event.timeline()
    assert str(line.times[0]) == "2018-07-02T21:00:00" and str(line.times[-1]) == "2018-07-03T02:00:00"
    assert line.in_event.sum() == 8 and len(line.times) == 11
    assert line.utility([10.0])[-1, 0] == pytest.approx(-(0.137 + 0.5) * 10 * 0.5)
    assert DemandResponseEvent(start="9:00", end="9:00", notice_minutes=0).timeline().in_event.sum() == 96


@pytest.mark.parametrize(
    ("minutes", "given", "step", "notice"),
    [
        (5, {}, 15, 30),
        (10, {}, 10, 30),  # ten minutes do not make a quarter of an hour
        (20, {}, 20, 40),
        (15, {"step_minutes": 60}, 60, 60),
        (15, {"step_minutes": 60, "notice_minutes": 0}, 60, 0),
    ],
)
def test_event_of_a_series_takes_steps_that_its_readings_can_give(minutes, given, step, notice):
    times = np.datetime64("2018-07-02", "s") + np.arange(4) * np.timedelta64(minutes, "m")
    series = PowerSeries(times, np.ones(4), np.timedelta64(minutes, "m"))
    event = event_for(series, date="2019-07-01", incentive=0.5, **given)
    assert (event.step_minutes, event.notice_minutes, event.date, event.incentive) == (step, notice, "2019-07-01", 0.5)


@pytest.mark.parametrize(
    ("first", "days", "date"),
    [
        ("2017-06-01", 800, "2018-07-02"),  # the paper's day, though 2019 has a July, too
        ("2017-12-25", 4, "2017-12-27"),  # the last day may be cut short
        ("2019-06-28", 6, "2019-07-02"),  # 1 July was a Monday
        ("2020-07-31", 5, "2020-07-31"),  # a Friday, the last day of July
        ("2020-08-01", 5, "2020-08-04"),
        ("2017-07-04", 3, "2017-07-05"),  # a holiday, everywhere
        ("2022-06-30", 8, "2022-07-05"),  # after a Saturday, a Sunday and that holiday
        ("2016-06-01", 500, "2017-07-03"),  # the last summer of two
    ],
)
def test_event_of_a_series_takes_place_on_one_of_its_days(first, days, date):
    series = PowerSeries(np.datetime64(first, "h") + np.arange(24 * days), np.ones(24 * days), np.timedelta64(1, "h"))
    assert event_for(series).date == date


def test_event_day_passes_over_holidays_and_lies_in_the_data():
    hours = np.datetime64("2017-12-25", "h") + np.arange(24 * 4)
    series = PowerSeries(hours, np.ones(96), np.timedelta64(1, "h"), source="hall.csv")
    assert event_day(series, ["2017-12-27"]) == "2017-12-26"
    off = ["2017-12-25", "2017-12-26", "2017-12-27"]
    refuses(r"hall.csv holds no complete weekday; give a date\.", event_day, series, off)
    for day in ("2017-12-24", "2017-12-29"):
        words = "outside the data of hall.csv, 2017-12-25 to 2017-12-28"
        refuses(words, check_event_day, DemandResponseEvent(day), hours, "hall.csv")
    check_event_day(DemandResponseEvent("2017-12-25"), hours)
    check_event_day(DemandResponseEvent("2017-12-28"), hours)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"start": "eleven"}, "event time 'eleven'"),
        ({"date": "2018-13-01"}, "event time"),
        ({"step_minutes": 25}, "whole number of 25-minute steps"),
        ({"notice_minutes": 20}, "notice"),
        ({"notice_minutes": -15}, "notice_minutes"),
        ({"incentive": np.nan}, "incentive"),
        ({"tariff": [0.1, 0.2]}, "24 hourly prices"),
    ],
)
def test_bad_events_are_refused(kwargs, words):
    refuses(words, DemandResponseEvent, **kwargs)


# ------------------------------------------------------------------ prices
def test_tariff_from_csv_by_hour_and_by_stamp(tmp_path):
    by_hour = tmp_path / "hours.csv"
    by_hour.write_text("hour,price\n" + "\n".join(f"{h},{0.1 + h / 1000}" for h in reversed(range(24))))
    assert Tariff.from_csv(by_hour).at(["2018-07-02T11:59"])[0] == pytest.approx(0.111)
    line = DemandResponseEvent(tariff=Tariff.from_csv(by_hour), incentive=0.0).timeline()
    assert_allclose(line.price[2:4], [0.110, 0.111])  # 10:45 to 11:00 and 11:00 to 11:15
    by_stamp = tmp_path / "stamps.csv"
    by_stamp.write_text("2018-07-02 11:00,0.2\n2018-07-02 00:00,0.1\n2018-07-02 12:00,0.3\n")
    tariff = Tariff.from_csv(by_stamp)
    assert_allclose(tariff.at(["2018-07-02T10:59", "2018-07-02T11:00", "2018-07-03T00:00"]), [0.1, 0.2, 0.3])
    refuses("starts at 2018-07-02T00:00:00", tariff.at, ["2018-07-01T23:00"])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("hour,price\n", "holds no price"),
        ("0,0.1\n1,cheap\n", "line 2"),
        ("0,0.1\n1,0.2\n", "each hour 0"),
        ("0,0.1\nnoon,0.2\n", "line 2"),
        ("2018-07-02 00:00,nan\n2018-07-02 01:00,nan\n", "line 2"),
    ],
)
def test_bad_tariff_files_name_the_line(tmp_path, content, words):
    path = tmp_path / "tariff.csv"
    path.write_text(content)
    refuses(words, Tariff.from_csv, path)
