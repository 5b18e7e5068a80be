"""How well the uncontrolled load is forecast: days without an event, forecast as if one had been called.

On each test day the readings from the notice on are hidden. What the chain of the day expects in the event's hours is
compared with what was metered, beside the customer baseline and persistence. Every forecast is
made from readings before its test day, and from that day's own until the notice.

The 90 % range of the event's energy is tested, too: with the day's own morning and as on the day before, for each meter
and for their sum, on all test days and on the ten with the highest forecast peak.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain import similar_days
from dp_ensemble_env.chain.baseline import TooFewDays, find_baseline
from dp_ensemble_env.chain.calendar import Lookup
from dp_ensemble_env.chain.day import DAY, DayPath, TooFewSimilarDays, day_path, half_width
from dp_ensemble_env.chain.event import DemandResponseEvent, check_event_day
from dp_ensemble_env.dispatch.plan import LEAST_SHARED, shared_days
from dp_ensemble_env.scenarios.metered import DaySettings, left_out
from dp_ensemble_env.tools.console import Monitor

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.datetime64]

#: The methods, in the order of the tables.
METHODS = ("follows the day", "baseline", "baseline, adjusted", "persistence")
TEST_DAYS = 40
#: So many test days with the highest forecast peak are the hot ones.
HOT_DAYS = 10
#: When the forecast is made.
NOTICES = ("same day", "day ahead")


@dataclass(frozen=True, eq=False)
class Backtest:
    """Errors of every method on the same days."""

    days: tuple[str, ...]
    actual: FloatArray
    """Metered power in the event's hours, kW, (days, steps)."""
    forecasts: dict[str, FloatArray]
    """The same by method."""
    paths: dict[str, tuple[DayPath, ...]]
    """Forecasts of the test days by `NOTICES`, over the event's hours."""
    step_hours: float
    notes: tuple[str, ...] = ()

    def error(self, method: str) -> float:
        """Return the mean absolute error in per cent of the mean load."""
        return float(100.0 * np.abs(self.forecasts[method] - self.actual).mean() / self.actual.mean())

    def bias(self, method: str) -> float:
        """Return the mean of forecast less metered, in per cent: what doing nothing seems to deliver."""
        return float(100.0 * (self.forecasts[method] - self.actual).mean() / self.actual.mean())

    def bias_kwh(self, method: str) -> float:
        """Return the bias in kWh of an event."""
        return float((self.forecasts[method] - self.actual).sum(axis=1).mean() * self.step_hours)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for JSON."""
        methods = {
            name: {"error_percent": self.error(name), "bias_percent": self.bias(name), "bias_kwh": self.bias_kwh(name)}
            for name in self.forecasts
        }
        mean = float(self.actual.mean())
        return {"days": list(self.days), "mean_kw": mean, "methods": methods, "coverage_percent": coverage([self])}


def common_days(results: list[Backtest]) -> list[str]:
    """Return the test days that all meters share."""
    return sorted(set.intersection(*(set(one.days) for one in results)))


def coverage(results: list[Backtest], together: bool = False) -> dict[str, float]:
    """Return the share of test days in the 90 % range, in per cent: by notice, all days and hot.

    Days of all meters count, each by itself; if `together`, the sum of the meters on the days that all of them share.
    """
    if together:
        days = common_days(results)
        groups = [[[(one, one.days.index(day)) for one in results] for day in days]] if days else []
    else:
        groups = [[[(one, place)] for place in range(len(one.days))] for one in results]
    shares: dict[str, float] = {}
    for notice in NOTICES:
        tests = [[_test(members, notice) for members in group] for group in groups]
        hot = [sorted(rows, reverse=True)[:HOT_DAYS] for rows in tests]
        for name, chosen in ((notice, tests), (f"{notice}, hot days", hot)):
            if chosen:
                shares[name] = float(100.0 * np.mean([held for rows in chosen for _, held in rows]))
    return shares


def _test(members: list[tuple[Backtest, int]], notice: str) -> tuple[float, bool]:
    """Return the forecast peak of one day, all meters together, and whether their energy lay in its range."""
    paths = [one.paths[notice][place] for one, place in members]
    actual = sum(float(one.actual[place].sum()) for one, place in members)
    forecast = sum(float(path.kw.sum()) for path in paths)
    errors, loads = (values.sum(axis=1) for values in shared_days(paths, [1] * len(paths)))
    if len(errors) < LEAST_SHARED:
        wide = sum(half_width(p.errors.sum(axis=1), p.loads.sum(axis=1), float(p.kw.sum())) for p in paths)
    else:
        wide = half_width(errors, loads, forecast)
    return float(np.sum([path.kw for path in paths], axis=0).max()), abs(actual - forecast) <= wide


def backtest(
    series: Any,
    event: DemandResponseEvent,
    settings: DaySettings | None = None,
    *,
    days: int = TEST_DAYS,
    temperature: tuple[TimeArray, FloatArray] | None = None,
    all_days: bool = True,
    monitor: Monitor | None = None,
) -> Backtest:
    """Forecast the last `days` similar days without an event.

    The test days are the latest that have what every method needs; unless `all_days`, days before the event. The
    `temperature` (stamps, degrees) of a test day stands for a perfect weather forecast.
    """
    settings, monitor = settings or DaySettings(), monitor or Monitor()
    check_event_day(event, series.times, getattr(series, "source", ""))
    step, (stamps, kw) = event.step, event.readings(series)
    end = stamps.max() + step
    reasons, notes = left_out(stamps, kw, step, str((end + DAY).astype("datetime64[D]")), settings)
    skipped, day = tuple(reasons), np.datetime64(event.date, "D")
    candidates = np.unique(stamps.astype("datetime64[D]"))[::-1]
    candidates = candidates[similar_days(candidates, day, settings.season, (*skipped, event.date))]
    if not all_days:
        candidates = candidates[candidates < day]
    tests: list[_Test] = []
    monitor.stage("forecasting", days)
    for other in candidates:
        test = _forecast(stamps, kw, step, replace(event, date=str(other)), settings, skipped, temperature)
        tests += [test] if test is not None else []
        monitor.advance(len(tests))
        if len(tests) == days:
            break
    if not tests:
        raise ValueError(
            "there is no day to test on: each needs ten complete similar days before it and readings in the event's "
            "hours; give a longer series, or other hours."
        )
    tests.reverse()
    return Backtest(
        tuple(test.day for test in tests),
        np.array([test.actual for test in tests]),
        {name: np.array([test.forecasts[name] for test in tests]) for name in METHODS},
        {notice: tuple(test.paths[i] for test in tests) for i, notice in enumerate(NOTICES)},
        float(step / np.timedelta64(3600, "s")),
        notes,
    )


class _Test(NamedTuple):
    day: str
    actual: FloatArray
    forecasts: dict[str, FloatArray]
    paths: tuple[DayPath, DayPath]


def _forecast(
    stamps: TimeArray,
    kw: FloatArray,
    step: np.timedelta64,
    event: DemandResponseEvent,
    settings: DaySettings,
    skipped: tuple[str, ...],
    temperature: tuple[TimeArray, FloatArray] | None,
) -> _Test | None:
    """Forecast one day by every method; None where one of them lacks readings."""
    line = event.timeline()
    metered = Lookup(stamps, kw)(line.times - step, step)
    inside = line.in_event
    if np.isnan(metered[inside]).any() or np.isnan(metered[0]):
        return None
    known = stamps < line.times[0]  # whatever came later is hidden
    past, load = stamps[known], kw[known]
    options: dict[str, Any] = {"exclude": skipped, "season": settings.season, "temperature": temperature}
    try:
        day_of, ahead = (
            _cut(day_path(past, load, step, line.times, measured=measured, **options), inside)
            for measured in (True, False)
        )
        baseline = find_baseline(past, load, event, exclude=skipped)
    except (TooFewSimilarDays, TooFewDays):
        return None
    if np.isnan(baseline.factor):
        return None
    usual, persistence = baseline.kw[inside], np.full(int(inside.sum()), metered[0])
    values = (day_of.kw, usual, usual * baseline.factor, persistence)
    return _Test(event.date, metered[inside], dict(zip(METHODS, values, strict=True)), (day_of, ahead))


def _cut(path: DayPath, inside: NDArray[np.bool_]) -> DayPath:
    """Return what is needed of a path in the event's hours."""
    return replace(
        path, times=path.times[inside], kw=path.kw[inside], loads=path.loads[:, inside], errors=path.errors[:, inside]
    )
