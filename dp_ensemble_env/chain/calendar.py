"""Days and steps: which stamps of a series lie in a season, on days like another, or one step apart."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def as_step(step: Any, differences: NDArray[np.timedelta64]) -> np.timedelta64:
    """Return `step`, minutes or a timedelta64, in seconds; by default the smallest of `differences`."""
    if step is None:
        return differences.min() if len(differences) else np.timedelta64(0, "s")
    try:
        if isinstance(step, (int, float)) and not isinstance(step, bool):
            step = np.timedelta64(round(step * 60), "s")
        elif not isinstance(step, np.timedelta64):
            raise TypeError
        one: np.timedelta64 = step.astype("timedelta64[s]")
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"step must be minutes or a timedelta64, got {step!r}; pass step=15 for example.") from error
    if not one > np.timedelta64(0, "s"):
        raise ValueError(f"step must be positive, got {step!r}.")
    return one


def _words(value: Any) -> str:
    """Write one or several dates."""
    return "" if value is None else " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def select_days(
    stamps: NDArray[np.datetime64],
    start: str | None = None,
    end: str | None = None,
    season: tuple[str, str] | None = None,
    exclude: tuple[str, ...] = (),
) -> NDArray[np.bool_]:
    """Tell which stamps lie between two dates, in a season, and on no excluded day."""
    days = stamps.astype("datetime64[D]")
    chosen = np.ones(len(days), dtype=bool)
    try:
        if start is not None:
            chosen &= days >= np.datetime64(start, "D")
        if end is not None:
            chosen &= days <= np.datetime64(end, "D")
        if season is not None:
            # A leap year, so that 02-29 is a date too.
            first, last = (np.datetime64(f"2000-{part}", "D") for part in season)
            bounds = [int(d.astype("datetime64[M]").astype(int) % 12 * 100 + _day_of_month(d)) for d in (first, last)]
            key = days.astype("datetime64[M]").astype(int) % 12 * 100 + _day_of_month(days)
            inside = (key >= bounds[0], key <= bounds[1])
            chosen &= inside[0] & inside[1] if bounds[0] <= bounds[1] else inside[0] | inside[1]
        if exclude:
            chosen &= ~np.isin(days, np.array([np.datetime64(day, "D") for day in exclude]))
    except (TypeError, ValueError, OverflowError) as error:
        named = {"start": start, "end": end, "season": season, "exclude": exclude}
        given = ", ".join(f"{name}={_words(value)!r}" for name, value in named.items() if _words(value))
        raise ValueError(
            f"cannot read a date in {given}; write days as 2018-07-02, and the ends of a season as 06-15 and 09-25."
        ) from error
    return chosen


def day_of_week(stamps: Any) -> Any:
    """Return the day of the week of datetime64 stamps, from Monday 0 to Sunday 6."""
    return (stamps.astype("datetime64[D]").astype(int) + 3) % 7  # 1970-01-01 was a Thursday


def hour_of_day(stamps: Any) -> Any:
    """Return the hour of the wall clock of datetime64 stamps, 0 to 23."""
    return ((stamps - stamps.astype("datetime64[D]")) // np.timedelta64(1, "h")).astype(int)


def day_type(stamps: Any, holidays: Iterable[str] = ()) -> Any:
    """Return 0 for stamps on a weekday and 1 for those on a weekend or a holiday."""
    days = stamps.astype("datetime64[D]")
    return ((day_of_week(days) >= 5) | np.isin(days, np.array(tuple(holidays), dtype="datetime64[D]"))).astype(int)


def similar_days(
    stamps: ArrayLike,
    event_day: np.datetime64,
    season: tuple[str, str] | None = None,
    exclude: Iterable[str] = (),
) -> NDArray[np.bool_]:
    """Tell which stamps fall on days like the event's: weekdays for a weekday, else the same day of the week."""
    times = np.asarray(stamps, dtype="datetime64[s]")
    kind, wanted = day_of_week(times), int(day_of_week(event_day))
    alike: NDArray[np.bool_] = kind < 5 if wanted < 5 else kind == wanted
    return alike & select_days(times, season=season, exclude=tuple(exclude))


def us_holidays(year: int) -> tuple[str, ...]:
    """Return the federal holidays of the United States in a year, on the days on which they are observed.

    Examples
    --------
    >>> us_holidays(2018)[4]
    '2018-07-04'
    """
    fixed = [(1, 1), *([(6, 19)] if year >= 2021 else []), (7, 4), (11, 11), (12, 25)]
    found = []
    for month, number in fixed:
        day = np.datetime64(f"{year}-{month:02d}-{number:02d}", "D")
        found.append(day + np.timedelta64({5: -1, 6: 1}.get(int(day_of_week(day)), 0), "D"))
    # Month, day of the week and which of them; -1 is the last.
    for month, weekday, which in ((1, 0, 3), (2, 0, 3), (5, 0, -1), (9, 0, 1), (10, 0, 2), (11, 3, 4)):
        first = np.datetime64(f"{year}-{month:02d}", "M")
        days = np.arange(first.astype("datetime64[D]"), (first + 1).astype("datetime64[D]"))
        found.append(days[day_of_week(days) == weekday][which - 1 if which > 0 else -1])
    return tuple(sorted(str(day) for day in found))


def named_holidays(holidays: Iterable[str], stamps: Any) -> tuple[str, ...]:
    """Write out the word ``"us"`` among `holidays`: the federal ones of every year of `stamps`."""
    given = tuple(holidays)
    if "us" not in given:
        return given
    years = np.unique(np.asarray(stamps).astype("datetime64[Y]")).astype(int) + 1970
    named = [day for year in range(int(years.min()), int(years.max()) + 2) for day in us_holidays(year)]
    return tuple(dict.fromkeys((*(day for day in given if day != "us"), *named)))


def resample(
    stamps: NDArray[np.datetime64], values: NDArray[np.float64], step: np.timedelta64, wanted: np.timedelta64
) -> tuple[NDArray[np.datetime64], NDArray[np.float64], np.timedelta64]:
    """Average whole groups of readings; a group with a reading missing is missing."""
    if step == wanted:
        return stamps, values, step
    if wanted < step or wanted % step != np.timedelta64(0, "s"):
        minutes = [int(x / np.timedelta64(1, "s")) / 60 for x in (step, wanted)]
        raise ValueError(
            f"the series has {minutes[0]:g}-minute readings, which cannot give {minutes[1]:g}-minute steps; "
            f"set the event's step_minutes to a multiple of {minutes[0]:g}."
        )
    size = int(wanted // step)
    group = stamps.astype("int64") // int(wanted / np.timedelta64(1, "s"))
    label, index, count = np.unique(group, return_inverse=True, return_counts=True)
    mean = np.bincount(index, values) / count
    times = (label * int(wanted / np.timedelta64(1, "s"))).astype("datetime64[s]")
    return times, np.where(count == size, mean, np.nan), wanted


def _day_of_month(days: Any) -> Any:
    return (days - days.astype("datetime64[M]")).astype(int) + 1
