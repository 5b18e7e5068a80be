"""The data sets of the case study, and the rule that picks a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import refuses

from dp_ensemble_env.chain.event import event_day
from dp_ensemble_env.meter import PowerSeries
from dp_ensemble_env.paper import measures
from dp_ensemble_env.paper.data import H, load_data, pick_row, series_data
from dp_ensemble_env.scenarios.campus import HOLIDAYS
from dp_ensemble_env.scenarios.problem import ProblemSettings


def test_campus_row_is_the_paper_s(row):
    assert (row.state, row.triple, row.down, row.up) == (17, (16, 17, 18), 17, 18)
    assert "5 successors" in row.note
    np.testing.assert_allclose(row.adjacent[[17, 18]] - row.row[[17, 18]], [-0.015, 0.015])


def chain(rows, n):
    """Matrix with the given rows; all others stay where they are."""
    return np.array([[rows.get(b, {b: 1.0}).get(a, 0.0) for a in range(n)] for b in range(n)])


@pytest.mark.parametrize(
    ("rows", "n", "expected"),
    [
        # row 18 has three successors, one of which cannot give h/2 up: the nearest row that qualifies is taken
        ({17: {16: 0.5, 17: 0.49, 18: 0.01}, 14: {13: 0.2, 14: 0.5, 15: 0.3}, 2: {1: 0.3, 2: 0.7}}, 20, (14, 14, 15)),
        # twelve levels: the one at the same height
        ({10: {9: 0.2, 10: 0.5, 11: 0.3}, 5: {4: 0.2, 5: 0.5, 6: 0.3}}, 12, (10, 10, 11)),
        # the state itself is not among the three most likely
        ({17: {10: 0.3, 12: 0.4, 14: 0.2, 17: 0.1}}, 20, (17, 12, 10)),
        # nor is the upper neighbour
        ({17: {15: 0.3, 16: 0.2, 17: 0.45, 18: 0.05}}, 20, (17, 17, 15)),
    ],
)
def test_row_rule(rows, n, expected):
    found = pick_row(chain(rows, n), np.arange(1.0, n + 1))
    assert (found.state, found.down, found.up) == expected
    assert ("takes the place" in found.note) == (expected[0] != 17)
    assert ("two most likely" in found.note) == (expected[2] != expected[0] + 1)


def test_ties_and_matrices_without_such_a_row():
    rows = {17: {16: 1.0}, 16: {15: 0.3, 16: 0.4, 17: 0.3}, 18: {17: 0.3, 18: 0.4, 19: 0.3}}
    power, visits = np.arange(20.0), np.ones(20)
    assert pick_row(chain(rows, 20), power, visits).state == 16
    visits[18] = 9
    assert pick_row(chain(rows, 20), power, visits).state == 18  # the more visited of two equally near
    assert pick_row(chain({17: {16: 0.5, 17: 0.5}}, 20), power) is None
    # An entry barely above h/2 does not qualify.
    rows = {17: {16: 0.5, 17: H / 2 + 1e-9, 18: 0.5 - H / 2}, 14: {13: 0.967, 14: 0.0165, 15: 0.0165}}
    found = pick_row(chain(rows, 20), power)
    assert found.state == 14
    assert all(np.isfinite(values).all() for values in measures.epsilons(found, (10.0, 1000.0)).values())


def test_series_keeps_its_own_step_and_season(study, quarter_hours):
    assert event_day(quarter_hours("2018-11-19", 5), HOLIDAYS) == "2018-11-21"  # Thanksgiving is passed over
    series = quarter_hours("2018-06-01", 45)
    hourly = PowerSeries(series.times[::4], series.kw[::4], np.timedelta64(3600, "s"))
    found = series_data(hourly, "meter", "m", "m")
    assert found.model.step_hours == 1 and found.season is not None
    assert str(found.model.times[measures.shown_time(found.model)]) == "2018-07-02T12:00:00"
    assert str(study.data.model.times[study.time]) == "2018-07-02T12:45:00"
    assert series_data(series, "meter", "m", "m", "2018-06-12").season is None  # before the summer: all readings


@pytest.fixture
def meter(tmp_path, quarter_hours):
    """Write the readings of a summer, times `factor` and plus some kW."""

    def write(name, factor=1.0, plus=0.0):
        series = quarter_hours("2018-06-01", 45)
        lines = [f"{time},{factor * kw + plus:.3f}" for time, kw in zip(series.times, series.kw, strict=True)]
        path = tmp_path / f"{name}.csv"
        path.write_text("timestamp,power_kw\n" + "\n".join(lines) + "\n")
        return ProblemSettings(meter=str(path), unit="kW", stamp="start")

    return write


def test_meters_that_need_another_name_or_cannot_be_used(meter):
    for name in ("synthetic campus", "without data"):
        assert [data.title for data in load_data(meter(name))] == ["synthetic campus", f"meter {name}"]
    outside = replace(meter("day"), date="2019-07-02")
    refuses("outside the data of day, 2018-06-01 to 2018-07-15", load_data, outside)
    refuses("never changes from 5 kW", load_data, meter("day", 0.0, 5.0))
    refuses("more than any one building draws", load_data, meter("day", 1e5))
