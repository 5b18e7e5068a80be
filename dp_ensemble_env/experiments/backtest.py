"""How well the uncontrolled load is forecast: days without an event, forecast as if one had been called.

On each test day the readings from the notice on are hidden. What the chain of the day expects in the event's hours is
compared with what was metered, beside the customer baseline, persistence and two chains without today's course. Every
forecast is made from readings before its test day, and from that day's own until the notice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain import TimedChain, estimate_chain, resample, similar_days
from dp_ensemble_env.chain.day import DAY, DayPath, TooFewSimilarDays, day_path
from dp_ensemble_env.chain.event import (
    DemandResponseEvent,
    MissingReadings,
    TooFewDays,
    check_event_day,
    customer_baseline,
)
from dp_ensemble_env.control.lsmdp import occupancy
from dp_ensemble_env.experiments.trajectories import draw_states
from dp_ensemble_env.scenarios.metered import LEVELS, DaySettings, left_out, level_grid
from dp_ensemble_env.tools.console import Monitor, Silent

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.datetime64]

#: The methods, in the order of the tables.
METHODS = (
    "follows the day",
    "chain by hour",
    "pooled chain",
    "baseline",
    "baseline, adjusted",
    "persistence",
)
#: Share of the days that the expected range should hold, and draws behind it.
RANGE, DRAWS = 0.9, 400
TEST_DAYS = 40
#: Levels of the chains without today's course.
PLAIN_LEVELS = 20


@dataclass(frozen=True, eq=False)
class Backtest:
    """Errors of every method on the same days.

    Attributes
    ----------
    days : tuple of str
    actual : ndarray of shape (days, steps)
        Metered power in the event's hours, kW.
    forecasts : dict of ndarray of the same shape
        By method.
    inside : float
        Share of the days whose energy lay in the expected range.
    step_hours : float
    notes : tuple of str
    """

    days: tuple[str, ...]
    actual: FloatArray
    forecasts: dict[str, FloatArray]
    inside: float
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

    @property
    def gain(self) -> float:
        """Per cent by which the error lies below that of the pooled chain."""
        return 100.0 * (1.0 - self.error(METHODS[0]) / self.error("pooled chain"))

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers for JSON."""
        methods = {
            name: {"error_percent": self.error(name), "bias_percent": self.bias(name), "bias_kwh": self.bias_kwh(name)}
            for name in self.forecasts
        }
        return {
            "days": list(self.days),
            "mean_kw": float(self.actual.mean()),
            "methods": methods,
            "less_error_than_pooled_percent": self.gain,
            "days_in_expected_range": self.inside,
        }


def backtest(
    series: Any,
    event: DemandResponseEvent,
    settings: DaySettings | None = None,
    *,
    days: int = TEST_DAYS,
    temperature: tuple[TimeArray, FloatArray] | None = None,
    all_days: bool = True,
    seed: int = 0,
    monitor: Monitor | None = None,
) -> Backtest:
    """Forecast the last `days` similar days without an event.

    Parameters
    ----------
    series : PowerSeries
        Or anything else with `times`, `kw` and `step`.
    event : DemandResponseEvent
        Its hours, its notice, and which days are similar.
    settings : DaySettings, optional
    days : int
        Test days, the latest that have what every method needs.
    temperature : pair of ndarray, optional
        Stamps and degrees. Those of a test day stand for a perfect weather forecast.
    all_days : bool
        False: test on days before the event only.
    seed : int
        Of the draws behind the expected range.
    monitor : Monitor, optional
    """
    settings, monitor = settings or DaySettings(), monitor or Silent()
    check_event_day(event, series.times, getattr(series, "source", ""))
    step = np.timedelta64(int(event.step_minutes) * 60, "s")
    stamps, kw, _ = resample(np.asarray(series.times, dtype="datetime64[s]"), np.asarray(series.kw), series.step, step)
    end = stamps.max() + step
    skipped, notes = left_out(stamps, kw, step, str((end + DAY).astype("datetime64[D]")), settings)
    day = np.datetime64(event.date, "D")
    candidates = np.unique(stamps.astype("datetime64[D]"))[::-1]
    candidates = candidates[similar_days(candidates, day, settings.season, (*skipped, event.date))]
    if not all_days:
        candidates = candidates[candidates < day]
    tests: list[_Test] = []
    monitor.stage("forecasting", days)
    rng = np.random.default_rng(seed)
    for other in candidates:
        found = _forecast(stamps, kw, step, replace(event, date=str(other)), settings, skipped, temperature, rng)
        if found is not None:
            tests.append(found)
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
        float(np.mean([test.inside for test in tests])),
        float(step / np.timedelta64(3600, "s")),
        notes,
    )


@dataclass(frozen=True, eq=False)
class _Test:
    day: str
    actual: FloatArray
    forecasts: dict[str, FloatArray]
    inside: bool


def _forecast(
    stamps: TimeArray,
    kw: FloatArray,
    step: np.timedelta64,
    event: DemandResponseEvent,
    settings: DaySettings,
    skipped: tuple[str, ...],
    temperature: tuple[TimeArray, FloatArray] | None,
    rng: np.random.Generator,
) -> _Test | None:
    """Forecast one day by every method; None where one of them lacks readings."""
    line = event.timeline()
    place = np.searchsorted(stamps, line.times - step)
    metered = np.where(
        stamps[np.minimum(place, len(stamps) - 1)] == line.times - step, kw[np.minimum(place, len(kw) - 1)], np.nan
    )
    inside = line.in_event
    if np.isnan(metered[inside]).any() or np.isnan(metered[0]):
        return None
    known = stamps < line.times[0]  # whatever came later is hidden
    past, load = stamps[known], kw[known]
    try:
        path = day_path(past, load, step, line.times, exclude=skipped, season=settings.season, temperature=temperature)
        plain, adjusted = (
            customer_baseline(past, load, event, exclude=skipped, adjustment=how)[inside] for how in ("none", "weather")
        )
    except (TooFewSimilarDays, TooFewDays, MissingReadings):
        return None
    today = past < np.datetime64(event.date, "D")
    by_hour, pooled = _chains(past[today], load[today], step, line.times, metered[0], settings, skipped)
    expected, drawn = _chain_of_the_day(path, settings.levels, inside, rng)
    low, high = np.quantile(drawn, [(1 - RANGE) / 2, (1 + RANGE) / 2])
    forecasts = dict(
        zip(
            METHODS,
            (expected, by_hour[inside], pooled[inside], plain, adjusted, np.full(int(inside.sum()), metered[0])),
            strict=True,
        )
    )
    return _Test(event.date, metered[inside], forecasts, bool(low <= metered[inside].mean() <= high))


def _chain_of_the_day(
    path: DayPath, levels: int, inside: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return the expected power in the event's hours, and draws of its mean over them."""
    power = level_grid(path, np.inf, levels or LEVELS, len(path.kw) - 1)
    behaviour, start = path.behaviour(power), path.start(power)
    drawn = power[draw_states(behaviour, start, DRAWS, rng)][:, inside].mean(axis=1)
    expected: FloatArray = (occupancy(behaviour, start) @ power)[inside]
    return expected, drawn


def _chains(
    stamps: TimeArray,
    kw: FloatArray,
    step: np.timedelta64,
    times: TimeArray,
    start_kw: float,
    settings: DaySettings,
    skipped: tuple[str, ...],
) -> tuple[FloatArray, FloatArray]:
    """Return what the chain by hour and day type and the pooled chain expect at `times`."""
    chain = estimate_chain(
        kw,
        PLAIN_LEVELS,
        times=stamps,
        step=step,
        on_unvisited="merge",
        season=settings.season,
        exclude=skipped,
        by=("hour", "daytype"),
    )
    assert isinstance(chain, TimedChain)
    start = np.eye(chain.n_states)[chain.states([start_kw])[0]]
    pooled = np.broadcast_to(chain.default, (len(times) - 1, *chain.default.shape))
    return occupancy(chain.at(times[:-1]), start) @ chain.power, occupancy(pooled, start) @ chain.power
