"""Clocks: time zones, the hours that their changes skip or repeat, and the clock of a Green Button file.

A Green Button file states its offset from UTC and two rules for daylight saving, each eight hexadecimal digits of a
bit field (ESPI, ``DstRuleType``):

=====  ====================================================================
bits   meaning
=====  ====================================================================
0-11   seconds within the hour
12-16  hour of the wall clock at which it changes
17-19  day of the week, 1 Monday … 7 Sunday, 0 for none
25-27  2 … 6: on the first … fifth such day of the week; 7: on the last one
28-31  month
=====  ====================================================================

Other kinds of rules, by the day of the month, are refused: the caller's time zone takes their place.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

_HOUR, _DAY = 3600, 86400
_WEEK = 7 * _DAY
_NO_RULE = (0, 0xFFFFFFFF)


# ------------------------------------------------------------------ time zones
class Change(NamedTuple):
    """A clock change: the UTC instant, and the offsets in seconds around it."""

    instant: int
    before: int
    after: int


def get_zone(timezone: str | tzinfo | None) -> tzinfo | None:
    """Return the zone called `timezone`, or say how such names look."""
    if timezone is None or isinstance(timezone, tzinfo):
        return timezone
    try:
        return UTC if timezone == "UTC" else ZoneInfo(timezone)
    except (LookupError, ValueError, TypeError, OSError) as error:
        raise ValueError(
            f"unknown timezone {timezone!r}; pass a name such as 'America/New_York' "
            "(on Windows, pip install tzdata first)."
        ) from error


def clock_changes(zone: tzinfo, first: int, last: int) -> list[Change]:
    """List the changes of the UTC offset between two UTC instants.

    Offsets are compared week by week and each change is then bisected to the
    second, so a million readings cost a few dozen look-ups per year.
    """
    changes = []
    marks = [*range(first, last, _WEEK), last]
    for low, high in zip(marks, marks[1:], strict=False):
        before, after = _offset(zone, low), _offset(zone, high)
        if before == after:
            continue
        while high - low > 1:
            middle = (low + high) // 2
            if _offset(zone, middle) == before:
                low = middle
            else:
                high = middle
        changes.append(Change(high, before, after))
    return changes


def utc_to_wall(seconds: IntArray, zone: tzinfo) -> IntArray:
    """Convert UTC seconds into seconds of the wall clock of `zone`."""
    if not len(seconds):
        return seconds
    first, last = int(seconds.min()), int(seconds.max())
    changes = clock_changes(zone, first, last)
    offsets = np.array([_offset(zone, first), *(c.after for c in changes)], dtype=np.int64)
    instants = np.array([c.instant for c in changes], dtype=np.int64)
    return seconds + offsets[np.searchsorted(instants, seconds, side="right")]


def wall_from_midnight(day: int, passed: IntArray, zone: tzinfo) -> IntArray:
    """Return what the wall clock shows so many seconds after the midnight of a day began."""
    offset = (datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=day)).utcoffset()
    return utc_to_wall(day - (int(offset.total_seconds()) if offset is not None else 0) + passed, zone)


def skipped_hours(zone: tzinfo, first: int, last: int) -> list[tuple[int, int]]:
    """List the wall-clock spans that do not exist (clocks go forward)."""
    return [(c.instant + c.before, c.instant + c.after) for c in _around(zone, first, last) if c.after > c.before]


def repeated_hours(zone: tzinfo, first: int, last: int) -> list[tuple[int, int]]:
    """List the wall-clock spans that happen twice (clocks go back)."""
    return [(c.instant + c.after, c.instant + c.before) for c in _around(zone, first, last) if c.after < c.before]


def _around(zone: tzinfo, first: int, last: int) -> list[Change]:
    # Wall-clock bounds are up to a day away from the same numbers read as UTC.
    return clock_changes(zone, first - 86400, last + 86400)


def _offset(zone: tzinfo, instant: int) -> int:
    offset = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=instant)).astimezone(zone).utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0


# ------------------------------------------------------------------ stamps of the wall clock
def is_repeated_hour(repeated: IntArray, sizes: IntArray, zone: tzinfo | None, stamp: str) -> BoolArray:
    """Tell which repeated stamps belong to the hour that autumn repeats.

    With the time zone this is exact. Without it: a Sunday in October or
    November, from 00:00 to 03:00, in one block of at most an hour.
    """
    if zone is not None:
        mask: NDArray[np.bool_] = np.zeros(len(repeated), dtype=bool)
        for low, high in repeated_hours(zone, int(repeated[0]), int(repeated[-1])):
            mask |= (repeated >= low) & ((repeated <= high) if stamp == "end" else (repeated < high))
        return np.asarray(mask & (sizes == 2))
    _, where = np.unique(repeated // _DAY, return_inverse=True)
    earliest = np.full(where.max() + 1, _DAY)
    latest = np.zeros_like(earliest)
    np.minimum.at(earliest, where, repeated % _DAY)
    np.maximum.at(latest, where, repeated % _DAY)
    short = ((latest - earliest <= _HOUR) & (latest <= 3 * _HOUR))[where]
    return np.asarray(short & (sizes == 2) & _is_sunday(repeated) & np.isin(_month(repeated), (10, 11)))


def skipped_spans(
    gaps: Iterable[BoolArray], seconds: IntArray, step: int, early: tuple[int, ...], zone: tzinfo | None
) -> list[tuple[int, int]]:
    """List the spans that the clock skipped.

    With the time zone they are known. Without it they are the gaps of exactly
    one hour from 01:00 or 02:00 on a Sunday in March.
    """
    if zone is not None:
        return skipped_hours(zone, int(seconds[0]), int(seconds[-1]))
    spans = []
    for mask in gaps:
        low, high = runs(mask)
        hour = low[(high - low) * step == _HOUR]
        for shift in early:
            starts = seconds[hour] + shift
            night = _is_sunday(starts) & (_month(starts) == 3) & np.isin(starts % _DAY, (_HOUR, 2 * _HOUR))
            spans += [(start, start + _HOUR) for start in starts[night].tolist()]
    return spans


def runs(mask: BoolArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where the runs of True begin and where they have ended."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return edges[::2], edges[1::2]


def autumn_hours(first: int, last: int, zone: tzinfo | None) -> list[int]:
    """List the wall-clock starts of the hours that autumn may repeat, exactly when the zone is known.

    Without it: 01:00 on the first Sunday in November, and 01:00 and 02:00 on the last one in October.
    """
    if zone is not None:
        return [low for low, high in repeated_hours(zone, first, last) if high - low == _HOUR and first <= low <= last]
    years = np.arange(
        *(np.datetime64(int(second), "s").astype("datetime64[Y]") for second in (first, last + 366 * _DAY))
    )
    november = (years.astype("datetime64[M]") + 10).astype("datetime64[D]")
    sundays = (np.busday_offset(november, k, roll="forward", weekmask="Sun") for k in (0, -1))  # of November, October
    american, european = (days.astype("datetime64[s]").astype(np.int64) + _HOUR for days in sundays)
    hours = np.sort(np.concatenate([american, european, european + _HOUR]))
    return [low for low in hours.tolist() if first <= low <= last]


def is_sunday_in_march(second: int) -> bool:
    """Tell whether clocks may go forward on the day of a stamp."""
    at = np.array([second], dtype=np.int64)
    return bool((_is_sunday(at) & (_month(at) == 3))[0])


def _is_sunday(seconds: IntArray) -> BoolArray:
    return np.asarray((seconds // _DAY + 4) % 7 == 0)  # 1970-01-01 was a Thursday


def _month(seconds: IntArray) -> IntArray:
    return seconds.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64) % 12 + 1


# ------------------------------------------------------------------ the clock of a Green Button file
def file_zone(offset: int, saving: int, start: str, end: str) -> ZoneInfo | None:
    """Return the zone of an offset and a saving in seconds, and the two rules; None where the clock never changes."""
    rules = [posix_rule(text) for text in (start, end)]
    if "" in rules:
        return None
    # POSIX counts offsets westwards. The zone is a TZif file (RFC 8536) that holds no change but in its footer.
    text = f"STD{_hours(-offset)}DST{_hours(-offset - saving)},{','.join(rules)}"
    block = b"TZif2" + bytes(15) + struct.pack(">6llbb", 0, 0, 0, 0, 1, 4, offset, 0, 0) + b"STD\0"
    return ZoneInfo.from_file(io.BytesIO(block + block + f"\n{text}\n".encode()))


def posix_rule(text: str) -> str:
    """Write a rule as POSIX has it; empty where the clock never changes.

    Examples
    --------
    >>> posix_rule("360E2000")  # the second Sunday in March at 2
    'M3.2.0/2:00:00'
    """
    if not re.fullmatch(r"[0-9A-Fa-f]{1,8}", text):
        raise ValueError(f"{text!r} is no rule of eight hexadecimal digits")
    bits = int(text, 16)
    if bits in _NO_RULE:
        return ""
    second, hour, weekday, kind, month = bits & 0xFFF, bits >> 12 & 31, bits >> 17 & 7, bits >> 25 & 7, bits >> 28
    if not 1 <= month <= 12 or hour > 24 or not weekday or kind < 2:
        raise ValueError(f"{text!r} names no day of the week in a month")
    return f"M{month}.{min(kind - 1, 5)}.{weekday % 7}/{_hours(second + hour * _HOUR)}"


def _hours(seconds: int) -> str:
    hours, rest = divmod(abs(seconds), _HOUR)
    return f"{'-' if seconds < 0 else ''}{hours}:{rest // 60:02}:{rest % 60:02}"
