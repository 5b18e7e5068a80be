r"""Tariff and demand-response event: what a kilowatt is worth, and when.

The aggregator's utility of power level `b` in the interval that ends at
``times[t]`` is (per building, in dollars)

.. math:: U_t[b] = -(\text{energy price}_t + \text{incentive}_t)\;\text{power}[b]\;\Delta t

The defaults describe an event of Consolidated Edison's Commercial System
Relief Program on 2 July 2018: 11:00 to 15:00, 30 minutes of notice, one
dollar per kWh delivered, and New York's commercial retail price of that year.

Time. A control problem starts ``notice`` before the event. ``times[0]`` is that
instant and ``times[t]`` ends interval `t`, so an event of 16 quarter hours with
30 minutes of notice has 18 decisions; the interval before the first decision
(``t = 0``) is history and carries the price that held then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.calendar import day_of_week, similar_days
from dp_ensemble_env.chain.tariff import RETAIL_PRICE, EventTimeline, Tariff
from dp_ensemble_env.tools.validation import (
    as_days,
    as_float_array,
    as_numeric_array,
    as_times,
    check_choice,
    check_count,
    check_instance,
    check_positive,
    check_shape,
    clock,
)

if TYPE_CHECKING:
    from dp_ensemble_env.meter import PowerSeries

__all__ = [
    "EVENT_DAY",
    "EVENT_INCENTIVE",
    "RETAIL_PRICE",
    "DemandResponseEvent",
    "EventTimeline",
    "Tariff",
    "TooFewDays",
    "check_event_day",
    "customer_baseline",
    "event_day",
    "event_for",
    "similar_days",
]

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.datetime64]

#: What the relief programme pays for delivered energy in Manhattan, $/kWh.
EVENT_INCENTIVE = 1.0

#: The day of the paper's event.
EVENT_DAY = "2018-07-02"

DAY = np.timedelta64(1, "D")


@dataclass(frozen=True)
class DemandResponseEvent:
    """When an event takes place and what it pays.

    Parameters
    ----------
    date : str
        Day of the event, ISO form.
    start, end : str
        Wall-clock times; an `end` not after `start` lies on the next day.
    notice_minutes : int
        How long before the event control may begin.
    step_minutes : int
    incentive : float
        Dollars per kWh in the event window.
    tariff : Tariff or float or list
        Energy price.
    """

    date: str = EVENT_DAY
    start: str = "11:00"
    end: str = "15:00"
    notice_minutes: int = 30
    step_minutes: int = 15
    incentive: float = EVENT_INCENTIVE
    tariff: Any = RETAIL_PRICE

    def __post_init__(self) -> None:
        check_count(self.notice_minutes, "notice_minutes", 0)
        check_positive(self.step_minutes, "step_minutes")
        as_float_array(self.incentive, "incentive", 0)
        begin, finish = self.window
        step = np.timedelta64(check_count(self.step_minutes, "step_minutes"), "m")
        for name, length in (("event window", finish - begin), ("notice", np.timedelta64(self.notice_minutes, "m"))):
            if length % step != np.timedelta64(0, "m"):
                raise ValueError(
                    f"the {name} of {length // np.timedelta64(1, 'm')} minutes is not a whole number of "
                    f"{self.step_minutes}-minute steps; change one of the two."
                )
        if not isinstance(self.tariff, Tariff):
            object.__setattr__(self, "tariff", Tariff(self.tariff))

    @property
    def window(self) -> tuple[np.datetime64, np.datetime64]:
        """First and last instant of the event."""
        begin, finish = (_instant(self.date, text) for text in (self.start, self.end))
        return begin, finish if finish > begin else finish + DAY

    def __repr__(self) -> str:
        begin, finish = self.window
        steps = (finish - begin) // np.timedelta64(int(self.step_minutes), "m")
        return (
            f"DemandResponseEvent({clock(begin)} to {clock(finish)[11:]}, {steps} steps of {self.step_minutes:g} min, "
            f"notice {self.notice_minutes:g} min, incentive {float(self.incentive):g} $/kWh)"
        )

    def timeline(self, baseline_kw: ArrayLike | None = None) -> EventTimeline:
        """Lay the event on its decision times, from the notice to the end of the window."""
        begin, finish = self.window
        step = np.timedelta64(int(self.step_minutes) * 60, "s")
        first = begin - np.timedelta64(self.notice_minutes * 60, "s")
        times = np.arange(first, finish + step, step)
        starts = times - step  # the price in force when the interval begins holds for all of it
        in_event = (starts >= begin) & (starts < finish)
        return EventTimeline(
            times=times,
            energy_price=self.tariff.at(starts),
            incentive=np.where(in_event, float(self.incentive), 0.0),
            in_event=in_event,
            baseline_kw=None if baseline_kw is None else as_float_array(baseline_kw, "baseline_kw", 1),
        )


def event_for(
    series: PowerSeries,
    *,
    date: str | None = None,
    step_minutes: int | None = None,
    notice_minutes: int | None = None,
    **fields: Any,
) -> DemandResponseEvent:
    """Describe an event that the readings of `series` can follow.

    Parameters
    ----------
    series : PowerSeries
        Or anything else with `times` and a `step`.
    date : str, optional
        By default 2 July 2018 if the series holds that day, else `event_day` of the series.
    step_minutes : int, optional
        By default quarter hours, or the series' own steps where these are
        longer or do not divide a quarter of an hour.
    notice_minutes : int, optional
        By default as many whole steps as half an hour needs.
    **fields
        Other fields of `DemandResponseEvent`, such as ``start="14:00"``.

    Examples
    --------
    >>> from dp_ensemble_env.scenarios.campus import campus_building
    >>> event_for(campus_building(), step_minutes=60).notice_minutes
    60
    """
    if step_minutes is None:
        minutes = max(int(series.step / np.timedelta64(60, "s")), 1)
        step_minutes = 15 if 15 % minutes == 0 else minutes
    if notice_minutes is None:
        step = check_count(step_minutes, "step_minutes")
        notice_minutes = step * math.ceil(30 / step)
    if date is None:
        days = np.asarray(series.times).astype("datetime64[D]")
        date = EVENT_DAY if (days == np.datetime64(EVENT_DAY)).any() else event_day(series)
    return DemandResponseEvent(date, step_minutes=step_minutes, notice_minutes=notice_minutes, **fields)


def event_day(series: PowerSeries, holidays: Iterable[str] = ()) -> str:
    """Choose a day for an event: the first weekday from 2 July on in the series' last summer, else its last weekday.

    `holidays` and every 4 July are passed over. In the paper's year this is the paper's day, Monday 2 July 2018.
    """
    days = np.unique(np.asarray(series.times).astype("datetime64[D]"))[:-1]  # the last day may be cut short
    weekdays = days[day_of_week(days) < 5]
    off = set(as_days(holidays, "holidays"))
    weekdays = weekdays[[str(day) not in off and str(day)[5:] != "07-04" for day in weekdays]]
    if not len(weekdays):
        raise ValueError(f"{getattr(series, 'source', '') or 'the series'} holds no complete weekday; give a date.")
    july = [day for day in weekdays if "07-02" <= str(day)[5:] <= "07-31"]
    if not july:
        return str(weekdays[-1])
    last = max(str(day)[:4] for day in july)
    return str(min(day for day in july if str(day)[:4] == last))


def check_event_day(event: DemandResponseEvent, times: ArrayLike, source: str = "") -> None:
    """Refuse an event on a day outside the data; `source` names them."""
    days = np.asarray(times).astype("datetime64[D]")
    if not days.min() <= event.window[0].astype("datetime64[D]") <= days.max():
        raise ValueError(
            f"date {event.date} lies outside the data{f' of {source}' if source else ''}, {days.min()} to "
            f"{days.max()}; choose a day in between."
        )


class MissingReadings(ValueError):  # noqa: N818 - named after what is wrong
    """Readings before the event are missing that the adjustment of a baseline needs."""


class TooFewDays(ValueError):  # noqa: N818 - named after what is wrong
    """There are fewer complete similar days before the event than a baseline needs."""


def customer_baseline(
    times: ArrayLike,
    kw: ArrayLike,
    event: DemandResponseEvent,
    *,
    days: int = 10,
    best: int = 5,
    exclude: Iterable[str] = (),
    adjustment: str = "none",
) -> FloatArray:
    """Compute the customer baseline as the utility does: best 5 of the last 10 similar days.

    Similar days are earlier weekdays for an event on a weekday, and the same
    day of the week on a weekend; `exclude` takes holidays and other event
    days. A day with missing readings in the event's hours is passed over. Of
    the latest `days` such days the `best` with the highest energy in the event
    window are averaged, time step by time step.

    Parameters
    ----------
    times, kw : array_like
        Meter series, stamps at interval starts (see `PowerSeries`).
    event : DemandResponseEvent
    adjustment : {"none", "weather"}
        ``"weather"`` scales the baseline by the ratio of actual to baseline
        energy in the two hours that end two hours before the event, within ±20 %.

    Returns
    -------
    ndarray of shape (T + 1,)
        kW on the decision times of ``event.timeline()``.

    Raises
    ------
    TooFewDays
        A `ValueError`: the series holds fewer than `days` complete similar days before the event.
    """
    check_choice(adjustment, "adjustment", ("none", "weather"))
    days, best = check_count(days, "days"), check_count(best, "best")
    if best > days:
        raise ValueError(f"best={best} exceeds days={days}; the baseline averages the best of the days looked at.")
    check_instance(event, DemandResponseEvent, "event")
    exclude = as_days(exclude, "exclude")
    stamps = as_times(times, "times")
    values = as_numeric_array(kw, "kw", 1)
    check_shape(values, stamps.shape, "kw", "one reading per time")
    order = np.argsort(stamps)
    lookup = _Lookup(stamps[order], values[order])
    line = event.timeline()
    step = line.times[1] - line.times[0]
    starts = line.times - step
    day = np.datetime64(event.date, "D")
    earlier = np.arange(day - DAY, stamps.min().astype("datetime64[D]") - DAY, -DAY)
    candidates: list[tuple[float, np.timedelta64]] = []
    for other in earlier[similar_days(earlier, day, exclude=exclude)]:
        window = lookup(starts + (other - day), step)
        if not np.isnan(window).any():
            candidates.append((float(window[line.in_event].sum()), other - day))
        if len(candidates) == days:
            break
    if len(candidates) < days:
        raise TooFewDays(
            f"only {len(candidates)} complete similar days before {event.date}, the baseline needs {days}; give a "
            "longer series or ask for fewer days."
        )
    chosen = [offset for _, offset in sorted(candidates, key=lambda item: -item[0])[:best]]
    baseline: FloatArray = np.mean([lookup(starts + offset, step) for offset in chosen], axis=0)
    if adjustment == "weather":
        baseline = baseline * _weather_factor(lookup, event, chosen, step)
    return baseline


class _Lookup:
    """Mean power between instants of a sorted series; NaN where any reading is missing."""

    def __init__(self, stamps: TimeArray, values: FloatArray) -> None:
        self.stamps, self.values = stamps, values
        if len(stamps) < 2:
            raise ValueError(f"the baseline needs a meter series, got {len(stamps)} readings.")
        self.step = np.diff(stamps).min()
        if self.step <= np.timedelta64(0, "s"):
            raise ValueError("times holds a stamp twice; read the file with read_meter, which settles repeats.")

    def __call__(self, starts: TimeArray, length: np.timedelta64) -> FloatArray:
        parts = max(1, int(length // self.step))
        total = np.zeros(len(starts))
        for part in range(parts):
            wanted = starts + part * self.step
            index = np.searchsorted(self.stamps, wanted, side="right") - 1
            found = (index >= 0) & (wanted - self.stamps[np.maximum(index, 0)] < self.step)
            total += np.where(found, self.values[np.maximum(index, 0)], np.nan)
        return total / parts


def _weather_factor(
    lookup: _Lookup, event: DemandResponseEvent, offsets: list[np.timedelta64], step: np.timedelta64
) -> float:
    begin, _ = event.window
    stamps = np.arange(begin - np.timedelta64(4, "h"), begin - np.timedelta64(2, "h"), step)
    actual = lookup(stamps, step).sum()
    usual = np.mean([lookup(stamps + offset, step).sum() for offset in offsets])
    if not (np.isfinite(actual) and np.isfinite(usual) and usual > 0):
        raise MissingReadings("readings are missing two to four hours before the event; use adjustment='none'.")
    return float(np.clip(actual / usual, 0.8, 1.2))


def _instant(date: str, text: str) -> np.datetime64:
    try:
        return np.datetime64(f"{np.datetime64(date, 'D')}T{str(text).zfill(5)}", "s")
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"cannot read the event time {text!r} on {date!r}; write dates as 2018-07-02 and times as 11:00."
        ) from error
