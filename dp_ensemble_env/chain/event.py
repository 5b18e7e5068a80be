r"""Tariff and demand-response event: what a kilowatt is worth, and when.

The aggregator's utility of power level `b` in the interval that ends at ``times[t]`` is (per building, in dollars)

.. math:: U_t[b] = -(\text{energy price}_t + \text{incentive}_t)\;\text{power}[b]\;\Delta t

The defaults describe an event of Consolidated Edison's Commercial System Relief Program on 2 July 2018: 11:00 to 15:00,
30 minutes of notice, one dollar per kWh delivered, and New York's commercial retail price of that year.

A control problem starts ``notice`` before the event. ``times[0]`` is that instant, and ``times[t]`` ends interval `t`:
an event of 16 quarter hours with 30 minutes of notice has 18 decisions; the interval before the first decision
(``t = 0``) is history and carries the price that held then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.calendar import day_of_week
from dp_ensemble_env.chain.tariff import RETAIL_PRICE, EventTimeline, Tariff
from dp_ensemble_env.tools.validation import as_days, as_float_array, check_count, check_positive, clock

if TYPE_CHECKING:
    from dp_ensemble_env.meter import PowerSeries

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.datetime64]

#: What the relief programme pays for delivered energy in Manhattan, $/kWh.
EVENT_INCENTIVE = 1.0

#: The day of the paper's event.
EVENT_DAY = "2018-07-02"

DAY = np.timedelta64(1, "D")


@dataclass(frozen=True)
class DemandResponseEvent:
    """When an event takes place and what it pays."""

    date: str = EVENT_DAY
    """Day of the event, ISO form."""
    start: str = "11:00"
    """Wall-clock time."""
    end: str = "15:00"
    """Wall-clock time; one that is not after `start` lies on the next day."""
    notice_minutes: int = 30
    """How long before the event control may begin."""
    step_minutes: int = 15
    incentive: float = EVENT_INCENTIVE
    """Dollars per kWh in the event window."""
    tariff: Any = RETAIL_PRICE
    """Energy price: a `Tariff`, a number, or a list of 24."""

    def __post_init__(self) -> None:
        if parts := re.fullmatch(r"(\d{4})-(\d{1,2})-(\d{1,2})", str(self.date)):  # 2018-7-2 is a date
            object.__setattr__(self, "date", "-".join(part.zfill(2) for part in parts.groups()))
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
    """Describe an event that the readings of `series`, or of anything with `times` and a `step`, can follow.

    By default it is on 2 July 2018 if the series holds that day, else on its `event_day`, in quarter hours, or the
    series' own steps where these are longer or do not divide a quarter of an hour, and with as many whole steps of
    notice as half an hour needs. `fields` are others of `DemandResponseEvent`, such as ``start="14:00"``.

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


def _instant(date: str, text: str) -> np.datetime64:
    try:
        return np.datetime64(f"{np.datetime64(date, 'D')}T{str(text).zfill(5)}", "s")
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"cannot read the event time {text!r} on {date!r}; write dates as 2018-07-02 and times as 11:00."
        ) from error
