"""Forecasts of days without an event, beside the baseline: on the synthetic campus, and never looking ahead."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from dp_ensemble_env.chain.baseline import customer_baseline
from dp_ensemble_env.chain.event import event_for
from dp_ensemble_env.cli import main
from dp_ensemble_env.dispatch.backtest import METHODS, backtest, coverage
from dp_ensemble_env.dispatch.participants import campus_series, participants
from dp_ensemble_env.scenarios.campus import HOLIDAYS, SUMMER
from dp_ensemble_env.scenarios.metered import DaySettings

SETTINGS = DaySettings(season=SUMMER, holidays=HOLIDAYS)


@pytest.fixture(scope="module")
def campus():
    series = campus_series()
    return series, backtest(series, event_for(series), SETTINGS, days=25)


def test_on_the_campus_the_day_is_followed(campus):
    series, tested = campus
    assert tested.error(METHODS[0]) < 0.6 * tested.error("persistence")
    assert tested.error(METHODS[0]) <= tested.error("baseline, adjusted")
    assert abs(tested.bias(METHODS[0])) < 1.5  # doing nothing delivers about nothing
    assert tested.bias("baseline") > 3  # the best five of ten days are high ones
    assert len(tested.days) == 25 and "2018-09-03" not in tested.days
    event = event_for(series, date=tested.days[-1])
    inside = event.timeline().in_event
    stamps = event.timeline().times[inside] - series.step
    np.testing.assert_allclose(tested.actual[-1], series.kw[np.isin(series.times, stamps)])
    baseline = customer_baseline(series.times, series.kw, event, exclude=HOLIDAYS)[inside]
    np.testing.assert_allclose(tested.forecasts["baseline"][-1], baseline)
    morning = customer_baseline(series.times, series.kw, event, exclude=HOLIDAYS, adjustment="weather")[inside]
    np.testing.assert_allclose(tested.forecasts["baseline, adjusted"][-1], morning)
    assert coverage([tested, tested], together=True) == coverage([tested])  # twins stray as one
    wanted = 100 * np.mean(np.abs(tested.forecasts["persistence"] - tested.actual)) / np.mean(tested.actual)
    assert tested.error("persistence") == pytest.approx(wanted)


def test_no_forecast_sees_what_it_is_tested_on(campus):
    series, tested = campus
    notice = event_for(series, date=tested.days[-1]).timeline().times[0]
    changed = replace(series, kw=np.where(series.times >= notice, 1.1 * series.kw, series.kw), gaps=None)
    other = backtest(changed, event_for(series), SETTINGS, days=25)
    row = other.days.index(tested.days[-1])
    for method in METHODS:
        np.testing.assert_allclose(other.forecasts[method][row], tested.forecasts[method][-1], rtol=1e-9)
    assert not np.allclose(other.actual[row], tested.actual[-1])


@pytest.mark.slow
def test_ranges_hold_what_they_promise_on_the_samples(fleet):
    """85 to 95 % of 480 days in the range of single meters, at least 80 % of the hot ones; so for the sum."""
    known = participants(replace(fleet, date=None)).used
    results = [backtest(series, event, own.day_settings()) for _, series, event, own in known]
    single, total = coverage(results), coverage(results, together=True)
    for notice in ("same day", "day ahead"):
        assert 85 <= single[notice] <= 95 and single[f"{notice}, hot days"] >= 80
        assert total[notice] >= 85 and total[f"{notice}, hot days"] >= 80
    # By hand: all test days of one meter against the range of each.
    narrow = replace(results[0], paths={n: tuple(replace(p, errors=0 * p.errors) for p in ps)
                                        for n, ps in results[0].paths.items()})  # fmt: skip
    assert set(coverage([narrow]).values()) == {0.0}


def test_command(tmp_path):
    assert main(["backtest", "--days", "5", "--json", str(tmp_path / "x.json")]) == 0
    assert set(json.loads((tmp_path / "x.json").read_text())["campus"]["methods"]) == set(METHODS)
