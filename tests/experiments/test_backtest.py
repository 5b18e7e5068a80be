"""Forecasts of days without an event, beside the baseline: on the synthetic campus, and never looking ahead."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dp_ensemble_env.chain.event import customer_baseline, event_for
from dp_ensemble_env.cli import main
from dp_ensemble_env.experiments.backtest import METHODS, backtest
from dp_ensemble_env.experiments.participants import campus_series
from dp_ensemble_env.scenarios.campus import HOLIDAYS, SUMMER
from dp_ensemble_env.scenarios.metered import DaySettings

SETTINGS = DaySettings(season=SUMMER, holidays=HOLIDAYS)


@pytest.fixture(scope="module")
def campus():
    series = campus_series()
    return series, backtest(series, event_for(series), SETTINGS, days=25)


def test_on_the_campus_the_day_is_followed(campus):
    _, found = campus
    assert found.gain > 35 and found.error(METHODS[0]) <= found.error("baseline, adjusted")
    assert abs(found.bias(METHODS[0])) < 1.5  # doing nothing delivers about nothing
    assert found.bias("baseline") > 3  # the best five of ten days are high ones
    assert 0.75 <= found.inside <= 1.0
    assert len(found.days) == 25 and "2018-09-03" not in found.days


def test_errors_are_those_of_a_direct_computation(campus):
    series, found = campus
    day = found.days[-1]
    event = event_for(series, date=day)
    inside = event.timeline().in_event
    stamps = event.timeline().times[inside] - series.step
    actual = series.kw[np.isin(series.times, stamps)]
    np.testing.assert_allclose(found.actual[-1], actual)
    baseline = customer_baseline(series.times, series.kw, event, exclude=HOLIDAYS)[inside]
    np.testing.assert_allclose(found.forecasts["baseline"][-1], baseline)
    wanted = 100 * np.mean(np.abs(found.forecasts["persistence"] - found.actual)) / np.mean(found.actual)
    assert found.error("persistence") == pytest.approx(wanted)


def test_no_forecast_sees_what_it_is_tested_on(campus):
    series, found = campus
    day = np.datetime64(found.days[-1])
    notice = event_for(series, date=found.days[-1]).timeline().times[0]
    changed = series._replace(kw=np.where(series.times >= notice, 1.1 * series.kw, series.kw))
    other = backtest(changed, event_for(series), SETTINGS, days=40)
    row = other.days.index(str(day))
    for method in METHODS:
        np.testing.assert_allclose(other.forecasts[method][row], found.forecasts[method][-1], rtol=1e-9)
    assert not np.allclose(other.actual[row], found.actual[-1])


def test_command(tmp_path, capsys):
    assert main(["backtest", "--days", "5", "--json", str(tmp_path / "x.json")]) == 0
    out = capsys.readouterr().out
    assert "campus: 5 days without an event" in out and "follows the day" in out
    assert max(map(len, out.splitlines())) <= 80
    content = json.loads((tmp_path / "x.json").read_text())
    assert set(content["campus"]["methods"]) == set(METHODS)
    assert main(["backtest", "--scenario", "spot"]) == 2
    assert "--scenario" in capsys.readouterr().err
