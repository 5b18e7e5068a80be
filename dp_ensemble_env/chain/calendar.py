"""Days and steps: which stamps lie in a season, on days like another or one step apart, and days not to learn from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.tools.validation import option

#: A meter that shows one value so long stands still.
FROZEN = np.timedelta64(6 * 3600, "s")
#: A day with less than this share of the median day's energy is an outage.
OUTAGE = 0.25
#: Where more days than this share show a long run of equal readings, the meter is coarse, not stuck.
COARSE = 0.2


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


def select_days(
    stamps: NDArray[np.datetime64], season: tuple[str, str] | None = None, exclude: tuple[str, ...] = ()
) -> NDArray[np.bool_]:
    """Tell which stamps lie in a season and on no excluded day."""
    days = stamps.astype("datetime64[D]")
    chosen = np.ones(len(days), dtype=bool)
    asked = option("season", season)
    try:
        if season is not None:
            # A leap year, so that 02-29 is a date too.
            first, last = (_month_day(np.datetime64(f"2000-{part}", "D")) for part in season)
            inside = (_month_day(days) >= first, _month_day(days) <= last)
            chosen &= inside[0] & inside[1] if first <= last else inside[0] | inside[1]
        asked = option("exclude", exclude)
        if exclude:
            chosen &= ~np.isin(days, np.array([np.datetime64(day, "D") for day in exclude]))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"cannot read a date in {asked}; write days as 2018-07-02, and the ends of a season as 06-15 and 09-25."
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
    stamps: ArrayLike, event_day: np.datetime64, season: tuple[str, str] | None = None, exclude: Iterable[str] = ()
) -> NDArray[np.bool_]:
    """Tell which stamps fall on days like the event's: weekdays for a weekday, else the same day of the week."""
    times = np.asarray(stamps, dtype="datetime64[s]")
    kind, wanted = day_of_week(times), int(day_of_week(event_day))
    alike: NDArray[np.bool_] = kind < 5 if wanted < 5 else kind == wanted
    return alike & select_days(times, season=season, exclude=tuple(exclude))


def named_holidays(holidays: Iterable[str], stamps: Any) -> tuple[str, ...]:
    """Write out countries among `holidays`, such as ``"us"`` or ``"gb-eng"``: theirs in every year of `stamps`.

    Examples
    --------
    >>> named_holidays(["us"], np.array(["2021-12-01"], dtype="datetime64[D]"))[-2:]
    ('2022-11-24', '2022-12-26')
    """
    dates: list[str] = []
    for word in holidays:
        if not re.fullmatch(r"[A-Za-z]{2}(-\w+)?", str(word)):
            dates.append(word)
            continue
        from holidays import country_holidays  # takes a while to import

        country, _, part = word.upper().partition("-")
        years = np.asarray(stamps).astype("datetime64[Y]").astype(int) + 1970
        span = range(int(years.min()), int(years.max()) + 2)
        try:
            days = country_holidays(country, subdiv=part or None, years=span)
        except NotImplementedError:
            remedy = "write 'us', 'gb-eng', or the days themselves"
            raise ValueError(f"{option('holidays', word)} names no country that is known; {remedy}.") from None
        # Of a holiday on a weekend the package lists the day itself and the weekday on which it is observed.
        dates += [str(day) for day in sorted(days) if day.weekday() < 5]
    return tuple(dict.fromkeys(dates))


def stale_days(stamps: NDArray[np.datetime64], kw: NDArray[Any], step: np.timedelta64) -> dict[str, str]:
    """Return the days not to learn from, and why: ``"frozen"`` or ``"outage"``.

    Frozen: one value for six hours or longer, unless every fifth day has such a run. Outage: less than a quarter
    of the energy of the median day of its type (weekday or weekend).

    Examples
    --------
    >>> hours = np.datetime64("2024-06-03T00:00:00") + np.arange(240) * np.timedelta64(3600, "s")
    >>> kw = 100 + 10 * np.sin(np.arange(240) / 3)
    >>> kw[50:56] = 104.2
    >>> stale_days(hours, kw, np.timedelta64(3600, "s"))
    {'2024-06-05': 'frozen'}
    """
    order = np.argsort(stamps)
    stamps, kw = stamps[order], np.asarray(kw, dtype=float)[order]
    days, index = np.unique(stamps.astype("datetime64[D]"), return_inverse=True)
    present = ~np.isnan(kw)
    same = np.append(False, (np.diff(kw) == 0) & (np.diff(stamps) == step))
    place = np.arange(len(kw))
    run = place - np.maximum.accumulate(np.where(same, 0, place)) + 1  # readings of the run that ends here
    longest = np.zeros(len(days), dtype=int)
    np.maximum.at(longest, index, np.where(present, run, 0))
    frozen = longest >= max(int(FROZEN // step), 3)
    stale = {} if frozen.mean() > COARSE else {str(day): "frozen" for day in days[frozen]}
    number = np.bincount(index[present], minlength=len(days))
    mean = np.bincount(index[present], kw[present], minlength=len(days)) / np.maximum(number, 1)
    kind = day_type(days)
    for which in (0, 1):
        alike = (kind == which) & (number > 0)
        if alike.any():
            low = alike & (mean < OUTAGE * np.median(mean[alike]))
            stale |= {str(day): "outage" for day in days[low]}
    return dict(sorted(stale.items()))


def resample(
    stamps: NDArray[np.datetime64], values: NDArray[np.float64], step: np.timedelta64, wanted: np.timedelta64
) -> tuple[NDArray[np.datetime64], NDArray[np.float64], np.timedelta64]:
    """Average whole groups of readings; a group with a reading missing is missing."""
    if step == wanted:
        return stamps, values, step
    if wanted < step or wanted % step != np.timedelta64(0, "s"):
        minutes = [int(x / np.timedelta64(1, "s")) / 60 for x in (step, wanted)]
        raise ValueError(
            f"the series has {minutes[0]:g}-minute readings, which cannot give {minutes[1]:g}-minute steps; resample "
            f"it, or in Python set the event's step_minutes to a multiple of {minutes[0]:g}."
        )
    size = int(wanted // step)
    group = stamps.astype("int64") // int(wanted / np.timedelta64(1, "s"))
    label, index, count = np.unique(group, return_inverse=True, return_counts=True)
    mean = np.bincount(index, values) / count
    times = (label * int(wanted / np.timedelta64(1, "s"))).astype("datetime64[s]")
    return times, np.where(count == size, mean, np.nan), wanted


class Lookup:
    """Mean power between instants of a sorted series; NaN where any reading is missing."""

    def __init__(self, stamps: NDArray[np.datetime64], values: NDArray[np.float64]) -> None:
        self.stamps, self.values = stamps, values
        if len(stamps) < 2:
            raise ValueError(f"a meter series needs two readings or more, got {len(stamps)}.")
        self.step = np.diff(stamps).min()
        if self.step <= np.timedelta64(0, "s"):
            raise ValueError("times holds a stamp twice; read the file with read_meter, which settles repeats.")

    def __call__(self, starts: NDArray[np.datetime64], length: np.timedelta64) -> NDArray[np.float64]:
        """Return the mean power of intervals of a length."""
        parts = max(1, int(length // self.step))
        total = np.zeros(len(starts))
        for part in range(parts):
            wanted = starts + part * self.step
            index = np.searchsorted(self.stamps, wanted, side="right") - 1
            there = (index >= 0) & (wanted - self.stamps[np.maximum(index, 0)] < self.step)
            total += np.where(there, self.values[np.maximum(index, 0)], np.nan)
        return total / parts


def _month_day(days: Any) -> Any:
    """Return 702 for 2 July."""
    months = days.astype("datetime64[M]")
    return (months.astype(int) % 12 + 1) * 100 + (days - months).astype(int) + 1
