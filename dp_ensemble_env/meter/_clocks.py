"""The hours that clock changes repeat or skip, in stamps of the wall clock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import tzinfo

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter._zones import repeated_hours, skipped_hours

_HOUR, _DAY = 3600, 86400


def is_repeated_hour(
    repeated: NDArray[np.int64], sizes: NDArray[np.int64], zone: tzinfo | None, stamp: str
) -> NDArray[np.bool_]:
    """Tell which repeated stamps belong to the hour that autumn repeats.

    With the time zone this is exact. Without it: a Sunday in October or
    November, from 00:00 to 03:00, in one block of at most an hour.
    """
    if zone is not None:
        mask: NDArray[np.bool_] = np.zeros(len(repeated), dtype=bool)
        for low, high in repeated_hours(zone, int(repeated[0]), int(repeated[-1])):
            mask |= (repeated >= low) & ((repeated <= high) if stamp == "end" else (repeated < high))
        return np.asarray(mask & (sizes == 2))
    days = repeated // _DAY
    _, where = np.unique(days, return_inverse=True)
    earliest = np.full(where.max() + 1, _DAY)
    latest = np.zeros_like(earliest)
    np.minimum.at(earliest, where, repeated % _DAY)
    np.maximum.at(latest, where, repeated % _DAY)
    short = ((latest - earliest <= _HOUR) & (latest <= 3 * _HOUR))[where]
    return np.asarray(short & (sizes == 2) & _is_sunday(repeated) & np.isin(_month(repeated), (10, 11)))


def skipped_spans(
    gaps: Iterable[NDArray[np.bool_]],
    seconds: NDArray[np.int64],
    step: int,
    early: tuple[int, ...],
    zone: tzinfo | None,
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


def runs(mask: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return where the runs of True begin and where they have ended."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return edges[::2], edges[1::2]


def autumn_hours(first: int, last: int, zone: tzinfo | None) -> list[int]:
    """List the wall-clock starts of the hours that autumn may repeat, exactly when the zone is known.

    Without it: 01:00 on the first Sunday in November, and 01:00 and 02:00 on the last one in October.
    """
    if zone is not None:
        return [low for low, high in repeated_hours(zone, first, last) if high - low == _HOUR and first <= low <= last]
    found = []
    year = int(np.datetime64(first, "s").astype("datetime64[Y]").astype(np.int64))
    while (november := int(np.datetime64(f"{year + 1970}-11-01", "s").astype(np.int64))) - 8 * _DAY <= last:
        sunday = november + (6 - (november // _DAY + 3) % 7) % 7 * _DAY  # 0 is a Monday
        found += [sunday + _HOUR, *(_last_october(november) + hour for hour in (_HOUR, 2 * _HOUR))]
        year += 1
    return sorted(low for low in found if first <= low <= last)


def _last_october(november: int) -> int:
    day = november - _DAY
    return day - ((day // _DAY + 4) % 7) * _DAY  # 0 is a Sunday


def is_sunday_in_march(second: int) -> bool:
    """Tell whether clocks may go forward on the day of a stamp."""
    at = np.array([second], dtype=np.int64)
    return bool((_is_sunday(at) & (_month(at) == 3))[0])


def _is_sunday(seconds: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.asarray((seconds // _DAY + 4) % 7 == 0)  # 1970-01-01 was a Thursday


def _month(seconds: NDArray[np.int64]) -> NDArray[np.int64]:
    return seconds.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64) % 12 + 1
