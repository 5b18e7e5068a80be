"""Time zones: from UTC to the wall clock, and the hours that clock changes skip or repeat."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

_WEEK = 7 * 86400


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


def utc_to_wall(seconds: NDArray[np.int64], zone: tzinfo) -> NDArray[np.int64]:
    """Convert UTC seconds into seconds of the wall clock of `zone`."""
    if not len(seconds):
        return seconds
    first, last = int(seconds.min()), int(seconds.max())
    changes = clock_changes(zone, first, last)
    offsets = np.array([_offset(zone, first), *(c.after for c in changes)], dtype=np.int64)
    instants = np.array([c.instant for c in changes], dtype=np.int64)
    return seconds + offsets[np.searchsorted(instants, seconds, side="right")]


def wall_from_midnight(day: int, passed: NDArray[np.int64], zone: tzinfo) -> NDArray[np.int64]:
    """Return what the wall clock shows so many seconds after the midnight of a day began."""
    midnight = datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=day)
    offset = midnight.utcoffset()
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
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=instant)
    offset = moment.astimezone(zone).utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0
