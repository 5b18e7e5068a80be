r"""Tariff and demand-response event: the value of a kilowatt over time.

The aggregator's utility of power level `b` in the interval that ends at ``times[t]`` is (per building, in dollars)

.. math:: U_t[b] = -(\text{energy price}_t + \text{incentive}_t)\;\text{power}[b]\;\Delta t

The defaults describe an event of Consolidated Edison's Commercial System Relief Program on 2 July 2018: 11:00 to 15:00,
30 minutes of notice, one dollar per kWh delivered, and New York's commercial retail price of that year.

A control problem starts ``notice`` before the event. ``times[0]`` is that instant, and ``times[t]`` ends interval `t`:
an event of 16 quarter hours with 30 minutes of notice has 18 decisions; the interval before the first decision
(``t = 0``) is history and carries the price that held then.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.calendar import day_of_week, hour_of_day, resample
from dp_ensemble_env.tools.validation import (
    as_days,
    as_float_array,
    as_times,
    check_count,
    check_positive,
    check_shape,
    clock,
    minutes,
)

if TYPE_CHECKING:
    from dp_ensemble_env.meter import PowerSeries

FloatArray = NDArray[np.float64]
TimeArray = NDArray[np.datetime64]

#: New York commercial retail price in 2018, $/kWh.
RETAIL_PRICE = 0.137

#: What the relief programme pays for delivered energy in Manhattan, $/kWh.
EVENT_INCENTIVE = 1.0

#: The day of the paper's event.
EVENT_DAY = "2018-07-02"

DAY = np.timedelta64(1, "D")


@dataclass(frozen=True, eq=False)
class Tariff:
    """Energy price in $/kWh at any time of the day or year."""

    price: float | Sequence[float] | FloatArray = RETAIL_PRICE
    """One price, one for each of the 24 hours, or one for each of `stamps`."""
    stamps: TimeArray | None = field(default=None, repr=False)
    """Times from which each of `price` holds; see `from_csv`."""

    def __post_init__(self) -> None:
        prices = as_float_array(self.price, "price", (0, 1))
        if self.stamps is None and prices.shape not in ((), (24,)):
            raise ValueError(
                f"price must be one number or a list of 24 hourly prices, got {prices.size} values; use "
                "Tariff.from_csv for prices that change with the date."
            )
        if self.stamps is not None:
            object.__setattr__(self, "stamps", as_times(self.stamps, "stamps"))
            check_shape(np.asarray(self.stamps), prices.shape, "stamps", "one stamp per price")

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Tariff:
        """Read a CSV of ``hour,price`` (24 rows, 0–23) or ``timestamp,price`` rows, prices in $/kWh.

        A stamp's price holds until the next one. A header line is allowed.
        """
        rows = read_pairs(Path(path), "price in $/kWh")
        keys, prices = [key for _, key, _ in rows], [price for _, _, price in rows]
        if all(key.isdigit() for key in keys):
            hours = [int(key) for key in keys]
            if sorted(hours) != list(range(24)):
                raise ValueError(f"{path} must give each hour 0 … 23 once, got the hours {sorted(hours)}.")
            return cls([price for _, price in sorted(zip(hours, prices, strict=True))])
        stamps, values = in_order(rows, path, "neither an hour 0–23 nor")
        return cls(values, stamps)

    def __repr__(self) -> str:
        prices = np.asarray(self.price, dtype=float)
        if prices.ndim == 0:
            return f"Tariff({float(prices):g} $/kWh)"
        kind = "hourly prices" if self.stamps is None else f"prices from {clock(self.stamps[0])} on"
        return f"Tariff({prices.size} {kind}, {prices.min():g} to {prices.max():g} $/kWh)"

    def at(self, times: ArrayLike) -> FloatArray:
        """Price in force at each of `times`."""
        stamps = np.asarray(times, dtype="datetime64[s]")
        prices = np.asarray(self.price, dtype=float)
        if self.stamps is not None:
            index = np.searchsorted(self.stamps, stamps, side="right") - 1
            if index.min() < 0:
                raise ValueError(
                    f"the tariff starts at {self.stamps[0]}, after {stamps.min()}; give it prices from that time on."
                )
            return prices[index]
        return np.full(stamps.shape, float(prices)) if prices.ndim == 0 else np.asarray(prices[hour_of_day(stamps)])


@dataclass(frozen=True, eq=False)
class EventTimeline:
    """One event on the decision times; arrays of length T + 1, entry `t` for the interval ending at ``times[t]``.

    Prices are in dollars per kWh.
    """

    times: TimeArray
    energy_price: FloatArray
    incentive: FloatArray
    in_event: NDArray[np.bool_]
    baseline_kw: FloatArray | None = None
    """Customer baseline of the whole ensemble, if meter data were given."""

    def __post_init__(self) -> None:
        for name in ("times", "energy_price", "incentive", "in_event", "baseline_kw"):
            value = getattr(self, name)
            if value is not None:
                array = np.array(value)
                check_shape(array, (len(self.times),), name, "one entry per time")
                array.setflags(write=False)
                object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        steps = f"{len(self.times) - 1} steps"
        if len(self.times) > 1:
            steps += f" of {minutes(self.times[1] - self.times[0])}"
        return (
            f"EventTimeline({clock(self.times[0])} to {clock(self.times[-1])}, {steps}, "
            f"{int(self.in_event.sum())} of them in the event, "
            f"{'no' if self.baseline_kw is None else 'with a'} baseline)"
        )

    @property
    def price(self) -> FloatArray:
        """Cost of one kWh to the aggregator, that is energy price plus forgone incentive."""
        return self.energy_price + self.incentive

    def utility(self, power_kw: ArrayLike) -> FloatArray:
        """Return the utility in dollars, shape (T + 1, n), of running at `power_kw` (n,) for one interval."""
        power = as_float_array(power_kw, "power_kw", 1)
        return -self.price[:, None] * power * float((self.times[1] - self.times[0]) / np.timedelta64(3600, "s"))


@dataclass(frozen=True)
class DemandResponseEvent:
    """Time and payment of an event."""

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
    def step(self) -> np.timedelta64:
        """Length of an interval."""
        return np.timedelta64(int(self.step_minutes) * 60, "s")

    def readings(self, series: Any) -> tuple[TimeArray, FloatArray]:
        """Return stamps and mean kW of a series at the event's steps."""
        stamps, kw = np.asarray(series.times, dtype="datetime64[s]"), np.asarray(series.kw, dtype=float)
        return resample(stamps, kw, series.step, self.step)[:2]

    @property
    def window(self) -> tuple[np.datetime64, np.datetime64]:
        """First and last instant of the event."""
        begin, finish = (_instant(self.date, text) for text in (self.start, self.end))
        return begin, finish if finish > begin else finish + DAY

    def __repr__(self) -> str:
        begin, finish = self.window
        steps = (finish - begin) // self.step
        return (
            f"DemandResponseEvent({clock(begin)} to {clock(finish)[11:]}, {steps} steps of {self.step_minutes:g} min, "
            f"notice {self.notice_minutes:g} min, incentive {float(self.incentive):g} $/kWh)"
        )

    def timeline(self, baseline_kw: ArrayLike | None = None) -> EventTimeline:
        """Place the event on its decision times, from the notice to the end of the window."""
        begin, finish = self.window
        step = self.step
        times = np.arange(begin - np.timedelta64(self.notice_minutes * 60, "s"), finish + step, step)
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


def in_order(
    rows: list[tuple[int, str, float]], path: Any, no: str = "not"
) -> tuple[NDArray[np.datetime64], FloatArray]:
    """Return stamps and values of the rows of `read_pairs` in the order of time."""
    stamps = []
    for line, key, _ in rows:
        try:
            stamps.append(np.datetime64(key.replace(" ", "T"), "s"))
        except ValueError as error:
            raise ValueError(
                f"line {line} of {path} starts with {key!r}, {no} a stamp like 2018-07-02 11:00; correct it."
            ) from error
    order = np.argsort(stamps)
    return np.array(stamps)[order], np.array([value for *_, value in rows])[order]


def read_pairs(path: Path, what: str) -> list[tuple[int, str, float]]:
    """Read (line number, first cell, value) of each row of a CSV file; one header line is allowed."""
    rows: list[tuple[int, str, float]] = []
    with path.open(newline="", encoding="utf-8-sig") as stream:
        for number, cells in enumerate(csv.reader(stream), start=1):
            if not any(cell.strip() for cell in cells):
                continue
            try:
                value = float(cells[1])
                if not np.isfinite(value):
                    raise ValueError
                rows.append((number, cells[0].strip(), value))
            except (IndexError, ValueError) as error:
                if rows or number > 1:
                    raise ValueError(
                        f"line {number} of {path} is {','.join(cells)!r}, not a time and a {what}; correct it."
                    ) from error
    if not rows:
        raise ValueError(f"{path} holds no {what}; write lines like '2018-07-02 11:00,0.137'.")
    return rows
