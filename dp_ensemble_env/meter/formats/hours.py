"""Dates with the number of an hour: a column of hours 1 to 24, or a row a day with a column an hour."""

from __future__ import annotations

import re
from datetime import tzinfo
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.clocks import is_sunday_in_march, skipped_hours, wall_from_midnight
from dp_ensemble_env.meter.formats.text import Table
from dp_ensemble_env.meter.origin import Origin
from dp_ensemble_env.meter.stamps import match_clock
from dp_ensemble_env.tools.validation import option

IntArray = NDArray[np.int64]

_DAY, _HOUR = 86400, 3600
_COLUMN = re.compile(
    r"(hour|hr|he|hh|h)(?:[ _]?(?P<end>ending|end)|[ _]?(?P<start>beginning|starting|start|begin))?"
    r"(?:[ _]?(?:no|number|of[ _]?day))?|(?:settlement[ _]?|trading[ _]?)?(?P<slot>interval|period|slot)"
    r"(?:[ _]?(?:no|number|id))?"
)
_NUMBER = re.compile(r"\s*(?:HE|HR|H|hour)?[ _]?0*(?P<k>\d{1,3})\s*(?P<again>[xX*])?\s*", re.IGNORECASE)
_HEADER = re.compile(
    r"(?P<word>he|hr|hour(?:[ _]?ending)?|hour[ _]?beginning|h|interval|int|period|slot|v|value|kwh)?[ _.-]*"
    r"0*(?P<k>\d{1,3})"
    r"(?P<again>[x*])?(?:[ _]?\(?kwh?\)?)?"
)
#: How many intervals a day may have.
_COUNTS = (24, 48, 96, 144, 288)


class DayColumns(NamedTuple):
    """The columns of a table with a row a day, and the intervals of the day that they hold, from 0."""

    columns: list[int]
    slots: IntArray
    per_day: int


class HourColumn(NamedTuple):
    """The column that numbers the intervals of a day, its first number, and how many there are."""

    column: int
    base: int
    per_day: int


def find_hours(table: Table, stamp: str | None) -> HourColumn | None:
    """Find the column that numbers the hours of bare dates, if there is one."""
    if not table.dated:
        return None
    for place, name in enumerate(table.header):
        word = _COLUMN.fullmatch(name.lower().strip())
        cells = [cell for cell in table.cells(place) if cell.strip()]
        matches = [_NUMBER.fullmatch(cell) for cell in cells]
        if place in table.stamps or word is None or not cells or None in matches:
            continue
        numbers = [int(match["k"]) for match in matches if match is not None]
        most = max(numbers)
        slots = word["slot"] is not None
        per_day = next((n for n in _COUNTS if most <= n + n // 24), 288) if slots else 24
        ends = word["end"] or (slots and 0 not in numbers) or most >= per_day or stamp == "end"
        if 0 in numbers or ((word["start"] or stamp == "start") and most < per_day and not word["end"]):
            ends = False
        elif not ends:
            raise table.origin.error(
                f"column {name!r} has hours from {min(numbers)} to {most}, which may begin or end there; call it "
                f"'hour ending' or 'hour beginning', or pass {option('stamp', 'end', 'start')}."
            )
        return HourColumn(place, 1 if ends else 0, per_day)
    return None


def parse_hours(cells: list[str], lines: IntArray, hours: HourColumn, origin: Origin) -> IntArray:
    """Return the intervals of the day that the cells number, from 0."""
    matches = [_NUMBER.fullmatch(cell) for cell in cells]
    slots = np.array([-1 if m is None else int(m["k"]) - hours.base for m in matches], dtype=np.int64)
    # One hour more is the 25th of the day on which clocks go back.
    bad = np.flatnonzero((slots < 0) | (slots >= hours.per_day + hours.per_day // 24))
    if len(bad):
        low, high = hours.base, hours.base + hours.per_day - 1
        raise origin.error(
            f"{cells[bad[0]]!r} is no number of an interval from {low} to {high}; correct it.", lines[bad[0]]
        )
    return slots


def find_day_columns(table: Table) -> DayColumns | None:
    """Find the columns of a table with a row a day: hours 1 to 24, HE01 to HE24, or times of the day."""
    if not table.dated:
        return None
    numbered: dict[int, int] = {}
    clocks: dict[int, int] = {}
    for place, name in enumerate(table.header):
        if place in table.stamps:
            continue
        match, clock = _HEADER.fullmatch(name.lower().strip()), match_clock(name)
        if match is not None:
            numbered[place] = int(match["k"])
        elif clock is not None:
            clocks[place] = int(clock["H"]) * _HOUR + int(clock["M"]) * 60
    if len(clocks) >= 23:
        return _by_clock(clocks)
    return _by_number(numbered) if len(numbered) >= 23 else None


def _by_number(numbered: dict[int, int]) -> DayColumns | None:
    low, high = min(numbered.values()), max(numbered.values())
    per_day = next((n for n in _COUNTS if high - low < n + n // 24), None)
    if low > 1 or per_day is None or not set(range(low, low + per_day)) <= set(numbered.values()):
        return None
    return DayColumns(list(numbered), np.array(list(numbered.values())) - low, per_day)


def _by_clock(clocks: dict[int, int]) -> DayColumns | None:
    """Columns named 00:00 … 23:45 hold the intervals that start there, 00:15 … 24:00 those that end there."""
    times = np.array(list(clocks.values()))
    steps = np.unique(np.diff(np.unique(times)))
    if len(steps) != 1 or _DAY % steps[0] or int(steps[0]) * _COUNTS[0] > _DAY:
        return None
    step = int(steps[0])
    ends = times[0] == step  # 00:15 first; midnight, the last, is written 24:00 or 00:00
    return DayColumns(list(clocks), ((times - step) % _DAY if ends else times) // step, _DAY // step)


def place_slots(
    days: IntArray, slots: IntArray, per_day: int, zone: tzinfo | None, lines: IntArray, origin: Origin
) -> IntArray:
    """Return the wall-clock starts of numbered intervals.

    Most days have 24 hours. A day whose hours are numbered to 25, or to 23 without a hole where the clock skips, counts
    the hours as they pass: then only the time zone tells which of them the clock shows twice or never.
    """
    step = _DAY // per_day
    seconds = days + slots * step
    hour = per_day // 24
    unique, where = np.unique(days, return_inverse=True)
    last = np.zeros(len(unique), dtype=np.int64)
    np.maximum.at(last, where, slots)
    long = last >= per_day
    for day in np.flatnonzero(long | (last == per_day - hour - 1)).tolist():
        mine = where == day
        skipped = _skipped(int(unique[day]), zone)
        counted = long[day] or any(((seconds[mine] >= low) & (seconds[mine] < high)).any() for low, high in skipped)
        if not counted:
            continue
        if zone is None:
            raise origin.error(
                f"{np.datetime64(int(unique[day]), 's').astype('datetime64[D]')} has {25 if long[day] else 23} hours, "
                f"so clocks changed; pass {option('timezone', 'America/New_York')} (your zone) to place them.",
                lines[mine][0],
            )
        seconds[mine] = wall_from_midnight(int(unique[day]), slots[mine] * step, zone)
    return seconds


def _skipped(day: int, zone: tzinfo | None) -> list[tuple[int, int]]:
    if zone is not None:
        return [(low, high) for low, high in skipped_hours(zone, day, day + _DAY) if day <= low < day + _DAY]
    return [(day + 2 * _HOUR, day + 3 * _HOUR)] if is_sunday_in_march(day) else []
