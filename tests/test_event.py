"""Event times, utility and the customer baseline."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.chain.event import (
    DemandResponseEvent,
    TooFewDays,
    check_event_day,
    customer_baseline,
    event_day,
    event_for,
)
from dp_ensemble_env.meter import PowerSeries


def test_default_event_has_two_steps_of_notice_and_sixteen_of_event():
    line = DemandResponseEvent().timeline()
    assert len(line.times) == 19
    assert str(line.times[0]) == "2018-07-02T10:30:00" and str(line.times[-1]) == "2018-07-02T15:00:00"
    assert_array_equal(np.flatnonzero(line.in_event), np.arange(3, 19))  # intervals ending 11:15 … 15:00
    assert_allclose(line.price[:3], 0.137)
    assert_allclose(line.price[3:], 1.137)


def test_utility_is_minus_price_power_and_quarter_hour():
    utility = DemandResponseEvent().timeline().utility([321.0, 100.0])
    assert utility.shape == (19, 2)
    assert utility[5, 0] == pytest.approx(-1.137 * 321.0 / 4)
    assert utility[1, 1] == pytest.approx(-0.137 * 100.0 / 4)


def test_any_window_and_step():
    event = DemandResponseEvent(start="22:00", end="02:00", step_minutes=30, notice_minutes=60, incentive=0.5)
    line = event.timeline()
    assert str(line.times[0]) == "2018-07-02T21:00:00" and str(line.times[-1]) == "2018-07-03T02:00:00"
    assert line.in_event.sum() == 8 and len(line.times) == 11
    assert line.utility([10.0])[-1, 0] == pytest.approx(-(0.137 + 0.5) * 10 * 0.5)
    assert DemandResponseEvent(notice_minutes=0).timeline().in_event.sum() == 16


@pytest.mark.parametrize(
    ("minutes", "given", "step", "notice"),
    [
        (1, {}, 15, 30),
        (5, {}, 15, 30),
        (15, {}, 15, 30),
        (10, {}, 10, 30),  # ten minutes do not make a quarter of an hour
        (20, {}, 20, 40),
        (60, {}, 60, 60),
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
        ("2018-01-01", 365, "2018-07-02"),
        ("2017-06-01", 800, "2018-07-02"),  # the paper's day, though 2019 has a July, too
        ("2017-06-01", 122, "2017-07-03"),  # a Monday
        ("2018-07-03", 60, "2018-07-03"),
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


def test_event_day_passes_over_holidays_and_refuses_a_series_without_weekdays():
    hours = np.datetime64("2017-12-25", "h") + np.arange(24 * 4)
    series = PowerSeries(hours, np.ones(96), np.timedelta64(1, "h"), source="hall.csv")
    assert event_day(series, ["2017-12-27"]) == "2017-12-26"
    with pytest.raises(ValueError, match=r"hall.csv holds no complete weekday; give a date\."):
        event_day(series, ["2017-12-25", "2017-12-26", "2017-12-27"])


def test_hourly_prices_hold_from_the_start_of_the_interval():
    prices = np.arange(24) / 100
    line = DemandResponseEvent(tariff=list(prices), incentive=0.0).timeline()
    assert line.price[2] == 0.10  # interval 10:45 to 11:00
    assert line.price[3] == 0.11  # interval 11:00 to 11:15


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"start": "eleven"}, "event time 'eleven'"),
        ({"date": "2018-13-01"}, "event time"),
        ({"step_minutes": 0}, "step_minutes"),
        ({"step_minutes": 25}, "whole number of 25-minute steps"),
        ({"notice_minutes": 20}, "notice"),
        ({"notice_minutes": -15}, "notice_minutes"),
        ({"incentive": np.nan}, "incentive"),
        ({"tariff": [0.1, 0.2]}, "24 hourly prices"),
        ({"tariff": "cheap"}, "price"),
    ],
)
def test_bad_events_are_refused(kwargs, words):
    with pytest.raises(ValueError, match=words):
        DemandResponseEvent(**kwargs)


# ------------------------------------------------------------------ baseline
def meter(days=30, level=None, start="2018-06-02"):
    """Quarter-hourly series whose level is constant over each day, equal to the day's number."""
    times = np.datetime64(start, "s") + np.arange(days * 96) * np.timedelta64(900, "s")
    kw = np.repeat(np.arange(days, dtype=float) if level is None else np.asarray(level, dtype=float), 96)
    return times, kw


def test_best_five_of_ten_weekdays():
    """2 July 2018 is a Monday; the ten weekdays before it end on 29 June (day 27 from 2 June) and skip weekends."""
    times, kw = meter(32)
    weekdays = [27, 26, 25, 24, 23, 20, 19, 18, 17, 16]
    baseline = customer_baseline(times, kw, DemandResponseEvent())
    assert baseline.shape == (19,)
    assert_allclose(baseline, np.mean(sorted(weekdays)[-5:]))


def test_best_are_chosen_by_energy_in_the_window_not_by_recency():
    level = np.full(32, 10.0)
    level[[16, 17, 18, 19, 20]] = [50, 51, 52, 53, 54]
    baseline = customer_baseline(*meter(32, level), DemandResponseEvent())
    assert_allclose(baseline, 52.0)


def test_excluded_and_incomplete_days_are_passed_over():
    times, kw = meter(32)
    kw[(times >= np.datetime64("2018-06-29T12:00")) & (times < np.datetime64("2018-06-29T12:15"))] = np.nan
    baseline = customer_baseline(times, kw, DemandResponseEvent(), exclude=["2018-06-28"])
    used = [25, 24, 23, 20, 19, 18, 17, 16, 13, 12]
    assert_allclose(baseline, np.mean(sorted(used)[-5:]))


def test_weekend_events_look_at_the_same_day_of_the_week():
    times, kw = meter(90, start="2018-04-28")  # a Saturday
    baseline = customer_baseline(times, kw, DemandResponseEvent(date="2018-07-14"), days=3, best=1)
    assert_allclose(baseline, (np.datetime64("2018-07-07") - np.datetime64("2018-04-28")).astype(int))


def test_weather_adjustment_is_a_ratio_within_twenty_percent():
    times, kw = meter(32, np.full(32, 100.0))
    morning = (times >= np.datetime64("2018-07-02T07:00")) & (times < np.datetime64("2018-07-02T09:00"))
    for actual, factor in ((110.0, 1.1), (300.0, 1.2), (10.0, 0.8)):
        kw[morning] = actual
        assert_allclose(customer_baseline(times, kw, DemandResponseEvent(), adjustment="weather"), 100 * factor)


def test_small_loads_have_weather_too():
    times, kw = meter(32, np.full(32, 0.01))
    kw[(times >= np.datetime64("2018-07-02T07:00")) & (times < np.datetime64("2018-07-02T09:00"))] = 0.009
    assert_allclose(customer_baseline(times, kw, DemandResponseEvent(), adjustment="weather"), 0.009)
    kw[times == np.datetime64("2018-07-02T08:00")] = np.nan
    with pytest.raises(ValueError, match="readings are missing two to four hours before"):
        customer_baseline(times, kw, DemandResponseEvent(), adjustment="weather")


def test_hourly_events_average_quarter_hours():
    times, kw = meter(32, np.full(32, 100.0))
    kw[np.arange(kw.size) % 4 == 0] = 140.0
    event = DemandResponseEvent(step_minutes=60, notice_minutes=60)
    assert_allclose(customer_baseline(times, kw, event), 110.0)


def test_the_first_reading_of_a_series_counts():
    """The event's first interval begins at 10:15; five weekdays lie before it, the first of them without its night."""
    times, kw = meter(8, start="2018-06-25T10:15")
    baseline = customer_baseline(times, kw, DemandResponseEvent(), days=5, best=5)
    assert_allclose(baseline[0], np.mean([0, 1, 2, 3, 4]))
    with pytest.raises(TooFewDays, match="only 4 complete similar days"):
        customer_baseline(times[1:], kw[1:], DemandResponseEvent(), days=5, best=5)


def test_a_reading_that_is_not_there_is_missing():
    times, kw = meter(32)
    kept = times != np.datetime64("2018-06-29T12:00")
    baseline = customer_baseline(times[kept], kw[kept], DemandResponseEvent())
    assert_allclose(baseline, np.mean([26, 25, 24, 23, 20]))
    shuffled = np.random.default_rng(0).permutation(int(kept.sum()))
    assert_allclose(customer_baseline(times[kept][shuffled], kw[kept][shuffled], DemandResponseEvent()), baseline)


def test_hourly_readings_serve_quarter_hours():
    times, kw = meter(32)
    baseline = customer_baseline(times[::4], kw[::4] + np.arange(kw.size)[::4] / 4 % 24, DemandResponseEvent())
    days = np.mean([27, 26, 25, 24, 23])
    assert_allclose(baseline, days + np.array([10] * 3 + [11] * 4 + [12] * 4 + [13] * 4 + [14] * 4))


def test_the_best_of_equal_days_and_a_day_without_load():
    level = np.zeros(32)
    assert_allclose(customer_baseline(*meter(32, level), DemandResponseEvent()), 0.0)
    with pytest.raises(ValueError, match="two to four hours before the event; use adjustment='none'"):
        customer_baseline(*meter(32, level), DemandResponseEvent(), adjustment="weather")


def test_the_weather_is_that_of_two_hours():
    times, kw = meter(32, np.full(32, 100.0))
    outside = (times < np.datetime64("2018-07-02T07:00")) | (times >= np.datetime64("2018-07-02T09:00"))
    kw[outside & (times >= np.datetime64("2018-07-02"))] = 500.0
    assert_allclose(customer_baseline(times, kw, DemandResponseEvent(), adjustment="weather"), 100.0)


@pytest.mark.parametrize(
    ("start", "end", "steps"), [("11:00", "11:00", 96), ("22:00", "02:00", 16), ("9:00", "9:15", 1)]
)
def test_an_end_that_is_not_after_the_start_is_on_the_next_day(start, end, steps):
    line = DemandResponseEvent(start=start, end=end, notice_minutes=0).timeline()
    assert len(line.times) == steps + 1 and int(line.in_event.sum()) == steps and not line.in_event[0]


def test_the_day_of_an_event_lies_in_the_data():
    event, hours = DemandResponseEvent(), np.arange(24)
    for first, inside in (("2018-07-02", True), ("2018-07-01", False), ("2018-07-03", False)):
        times = np.datetime64(first, "h") + hours
        if inside:
            check_event_day(event, times)
        else:
            with pytest.raises(ValueError, match=f"outside the data of hall.csv, {first} to {first}"):
                check_event_day(event, times, "hall.csv")


def test_too_few_days_and_bad_settings_are_refused():
    for count in (0, 1):
        with pytest.raises(ValueError, match=f"needs a meter series, got {count} readings|times"):
            customer_baseline(*(column[:count] for column in meter(1)), DemandResponseEvent())
    with pytest.raises(TooFewDays, match="only 0 complete similar days"):
        customer_baseline(*(column[:2] for column in meter(1)), DemandResponseEvent())
    times, kw = meter(32)
    times[5] = times[4]
    with pytest.raises(ValueError, match="holds a stamp twice"):
        customer_baseline(times, kw, DemandResponseEvent())

    with pytest.raises(TooFewDays, match="only 5 complete similar days"):
        customer_baseline(*meter(8, start="2018-06-25"), DemandResponseEvent())
    with pytest.raises(ValueError, match="best=6 exceeds days=5"):
        customer_baseline(*meter(32), DemandResponseEvent(), days=5, best=6)
    with pytest.raises(ValueError, match="adjustment"):
        customer_baseline(*meter(32), DemandResponseEvent(), adjustment="humidity")
