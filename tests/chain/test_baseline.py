"""The customer baseline by hand."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import refuses
from numpy.testing import assert_allclose

from dp_ensemble_env.chain.baseline import BaselineRule, TooFewDays, customer_baseline, find_baseline
from dp_ensemble_env.chain.event import DemandResponseEvent


def meter(days=30, level=None, start="2018-06-02"):
    """Quarter-hourly series whose level is constant over each day, equal to the day's number."""
    times = np.datetime64(start, "s") + np.arange(days * 96) * np.timedelta64(900, "s")
    return times, np.repeat(np.arange(days, dtype=float) if level is None else np.asarray(level, dtype=float), 96)


def test_best_five_of_ten_weekdays():
    """2 July 2018 is a Monday; the ten weekdays before it end on 29 June (day 27 from 2 June) and skip weekends."""
    times, kw = meter(32)
    weekdays = [27, 26, 25, 24, 23, 20, 19, 18, 17, 16]
    baseline = customer_baseline(times, kw, DemandResponseEvent())
    assert baseline.shape == (19,)
    assert_allclose(baseline, np.mean(sorted(weekdays)[-5:]))
    level = np.full(32, 10.0)  # by energy, not by recency
    level[[16, 17, 18, 19, 20]] = [50, 51, 52, 53, 54]
    assert_allclose(customer_baseline(*meter(32, level), DemandResponseEvent()), 52.0)


def test_excluded_and_incomplete_days_are_passed_over():
    times, kw = meter(32)
    gap = times == np.datetime64("2018-06-29T12:00")
    wanted = np.mean([25, 24, 23, 20, 19])
    empty = np.where(gap, np.nan, kw)
    assert_allclose(customer_baseline(times, empty, DemandResponseEvent(), exclude=["2018-06-28"]), wanted)
    there = np.random.default_rng(0).permutation(np.flatnonzero(~gap))  # a reading that is not there is missing, too
    assert_allclose(customer_baseline(times[there], kw[there], DemandResponseEvent(), exclude=["2018-06-28"]), wanted)


def test_weekend_events_look_at_the_same_day_of_the_week():
    times, kw = meter(90, start="2018-04-28")  # a Saturday
    baseline = find_baseline(times, kw, DemandResponseEvent(date="2018-07-14"), BaselineRule(days=3, best=1))
    assert_allclose(baseline.kw, (np.datetime64("2018-07-07") - np.datetime64("2018-04-28")).astype(int))


def test_weather_adjustment_is_a_ratio_within_twenty_percent():
    times, kw = meter(32, np.full(32, 100.0))
    morning = (times >= np.datetime64("2018-07-02T07:00")) & (times < np.datetime64("2018-07-02T09:00"))
    for actual, factor in ((110.0, 1.1), (300.0, 1.2), (10.0, 0.8)):
        kw[morning] = actual
        assert_allclose(customer_baseline(times, kw, DemandResponseEvent(), adjustment="weather"), 100 * factor)
    kw[:] = 100.0  # the two hours alone count
    kw[(times >= np.datetime64("2018-07-02")) & ~morning] = 500.0
    assert_allclose(customer_baseline(times, kw, DemandResponseEvent(), adjustment="weather"), 100.0)


def test_the_first_reading_of_a_series_counts():
    """The event's first interval begins at 10:15; five weekdays lie before it, the first of them without its night."""
    times, kw = meter(8, start="2018-06-25T10:15")
    rule = BaselineRule(days=5)
    assert_allclose(find_baseline(times, kw, DemandResponseEvent(), rule).kw[0], np.mean([0, 1, 2, 3, 4]))
    with pytest.raises(TooFewDays, match="only 4 complete similar days"):
        find_baseline(times[1:], kw[1:], DemandResponseEvent(), rule)


def test_hours_and_quarter_hours_serve_each_other():
    times, kw = meter(32, np.full(32, 100.0))
    kw[np.arange(kw.size) % 4 == 0] = 140.0
    assert_allclose(customer_baseline(times, kw, DemandResponseEvent(step_minutes=60, notice_minutes=60)), 110.0)
    times, kw = meter(32)
    baseline = customer_baseline(times[::4], kw[::4] + np.arange(kw.size)[::4] / 4 % 24, DemandResponseEvent())
    days = np.mean([27, 26, 25, 24, 23])
    assert_allclose(baseline, days + np.array([10] * 3 + [11] * 4 + [12] * 4 + [13] * 4 + [14] * 4))


def test_no_day_lies_further_back_than_the_rule_allows():
    """A meter that read zeros from June on has days in May, and no baseline from them."""
    times, kw = meter(62, np.full(62, 100.0), start="2018-05-02")
    dead = {str(day): "outage" for day in np.arange(np.datetime64("2018-06-01"), np.datetime64("2018-07-02"))}
    with pytest.raises(TooFewDays, match="of the last 30 such days"):
        find_baseline(times, kw, DemandResponseEvent(), exclude=dead)
    found = find_baseline(times, kw, DemandResponseEvent(), BaselineRule(look_back=60), dead)
    assert max(found.chosen) < "2018-06-01" and found.rejected["2018-06-29"] == "outage"


def test_too_few_days_and_bad_settings_are_refused():
    one = (column[:1] for column in meter(1))
    refuses("needs two readings or more, got 1", customer_baseline, *one, DemandResponseEvent())
    times, kw = meter(32)
    times[5] = times[4]
    refuses("holds a stamp twice", customer_baseline, times, kw, DemandResponseEvent())
    refuses("cap", BaselineRule, cap=-0.1)
    refuses("best=6 exceeds days=5", BaselineRule, days=5, best=6)
    refuses("adjustment", customer_baseline, *meter(32), DemandResponseEvent(), adjustment="humidity")
