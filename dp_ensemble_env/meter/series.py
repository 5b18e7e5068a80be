"""The result of reading a meter: an evenly spaced power series with its gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.origin import plural
from dp_ensemble_env.tools.validation import as_numeric_array, as_times, clock, minutes

#: Reason given to a missing interval when nothing more is known about it.
MISSING = "missing"


@dataclass(frozen=True)
class Gap:
    """A run of intervals without a usable reading.

    Its reason is ``"missing"`` (no row), ``"empty"`` (a row without a number), ``"daylight saving"`` (the hour that
    spring skips), ``"catch-up"`` (a reading of more than its interval), ``"negative"``, ``"spike"`` or ``"zero"``.
    """

    start: np.datetime64
    end: np.datetime64
    intervals: int
    reason: str = MISSING

    def __str__(self) -> str:
        """Write the gap as one line."""
        return f"{clock(self.start)} to {clock(self.end)}: {plural(self.intervals, 'interval')} ({self.reason})"


@dataclass(frozen=True, eq=False)
class PowerSeries:
    """Average power on an evenly spaced grid of local wall-clock time.

    Examples
    --------
    >>> import numpy as np
    >>> times = np.datetime64("2024-01-01T00:00:00") + 900 * np.arange(4)
    >>> series = PowerSeries(times, [100.0, np.nan, 120.0, 110.0], np.timedelta64(900, "s"))
    >>> series.missing
    1
    >>> print(series.gaps[0])
    2024-01-01 00:15 to 2024-01-01 00:30: 1 interval (missing)
    """

    times: NDArray[np.datetime64]
    """Start of every interval, without holes, (T,) datetime64[s]."""
    kw: NDArray[np.float64]
    """Average power in kW, NaN where it is missing, (T,)."""
    step: np.timedelta64
    gaps: tuple[Gap, ...] = None  # type: ignore[assignment]
    """Runs of missing intervals; found from the NaNs of `kw` unless given."""
    notes: tuple[str, ...] = ()
    """One sentence for every rule applied while reading the file."""
    source: str = ""
    """Name of the file."""

    def __post_init__(self) -> None:
        """Check the series against itself and make its arrays read-only."""
        kw = as_numeric_array(self.kw, "kw", 1).copy()
        step = _seconds(self.step)
        times = _times(self.times, len(kw), step)
        if np.isinf(kw).any():
            raise ValueError(f"kw[{int(np.argmax(np.isinf(kw)))}] is infinite; use NaN for a missing interval.")
        missing = np.isnan(kw)
        gaps = find_gaps(times, step, missing) if self.gaps is None else tuple(self.gaps)
        covered = np.zeros(len(kw), dtype=bool)
        for gap in gaps:
            covered[slice(*np.searchsorted(times, [gap.start, gap.end]))] = True
        if not np.array_equal(covered, missing):
            raise ValueError("gaps must cover exactly the NaN entries of kw; leave gaps out to have them found.")
        times.setflags(write=False)
        kw.setflags(write=False)
        values: dict[str, Any] = {"times": times, "kw": kw, "step": np.timedelta64(step, "s"), "gaps": gaps}
        values |= {"notes": tuple(self.notes), "source": str(self.source)}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Return the number of intervals, missing ones included."""
        return len(self.kw)

    @property
    def missing(self) -> int:
        """Number of intervals without a usable reading."""
        return int(np.isnan(self.kw).sum())

    def between(self, start: Any, end: Any) -> PowerSeries:
        """Return the intervals that start in ``[start, end)`` of the local clock; a plain date means its midnight."""
        low, high = _instant(start, "start"), _instant(end, "end")
        first, last = np.searchsorted(self.times, [low, high])
        if last <= first:
            raise ValueError(
                f"no interval of {self.source or 'the series'} starts from {clock(low)} up to {clock(high)}; "
                f"choose times from {clock(self.times[0])} to {clock(self.times[-1])}."
            )
        times = self.times[first:last]
        clipped = []
        for gap in self.gaps:
            begin, stop = max(gap.start, times[0]), min(gap.end, times[-1] + self.step)
            if begin < stop:
                clipped.append(Gap(begin, stop, int((stop - begin) // self.step), gap.reason))
        return PowerSeries(times, self.kw[first:last], self.step, tuple(clipped), self.notes, self.source)

    def __repr__(self) -> str:
        source = f"{self.source!r}, " if self.source else ""
        return f"PowerSeries({source}{self._period}, {self.missing:,} missing)"

    @property
    def _period(self) -> str:
        return (
            f"{len(self):,} intervals of {minutes(self.step)}, {clock(self.times[0])} to "
            f"{clock(self.times[-1] + self.step)}"
        )

    def __str__(self) -> str:
        """Summarise the series on a few lines."""
        lines = [f"{self.source or 'power series'}: {self._period}"]
        if self.missing < len(self):
            low, mean, high = np.nanmin(self.kw), np.nanmean(self.kw), np.nanmax(self.kw)
            lines.append(f"  power: lowest {low:.6g}, mean {mean:.6g}, highest {high:.6g} kW")
        lines.append(f"  missing: {plural(self.missing, 'interval')} in {plural(len(self.gaps), 'gap')}")
        lines += [f"    {gap}" for gap in self.gaps[:5]]
        if len(self.gaps) > 5:
            lines.append(f"    … and {len(self.gaps) - 5} more")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def find_gaps(
    times: NDArray[np.datetime64], step: int, missing: NDArray[np.bool_], reasons: NDArray[Any] | None = None
) -> tuple[Gap, ...]:
    """Group missing intervals into runs of one reason each."""
    where = np.flatnonzero(missing)
    if not len(where):
        return ()
    reasons = np.full(len(missing), MISSING) if reasons is None else reasons
    new = (np.diff(where) != 1) | (reasons[where[1:]] != reasons[where[:-1]])
    starts = where[np.concatenate(([True], new))]
    stops = where[np.concatenate((new, [True]))]
    width = np.timedelta64(step, "s")
    return tuple(
        Gap(times[a], times[b] + width, int(b + 1 - a), str(reasons[a])) for a, b in zip(starts, stops, strict=True)
    )


def _times(value: Any, length: int, step: int) -> NDArray[np.datetime64]:
    times = as_times(value, "times").copy()
    if len(times) != length or not length:
        raise ValueError(f"times has {len(times)} entries and kw {length}; they must agree and hold at least one.")
    uneven = np.flatnonzero(np.diff(times).astype(np.int64) != step)
    if len(uneven):
        raise ValueError(
            f"times[{uneven[0] + 1}] ({times[uneven[0] + 1]}) does not follow times[{uneven[0]}] by {step} s; "
            "put the missing intervals in as NaN."
        )
    return times


def _seconds(step: Any) -> int:
    try:
        seconds = int(np.timedelta64(step, "s").astype(np.int64))
    except (TypeError, ValueError):
        seconds = 0
    if seconds <= 0:
        raise ValueError(f"step must be a positive time span, got {step!r}; pass numpy.timedelta64(900, 's').")
    return seconds


def _instant(value: Any, name: str) -> np.datetime64:
    try:
        instant = np.datetime64(value, "s")
    except (TypeError, ValueError):
        instant = np.datetime64("NaT")
    if np.isnat(instant):
        raise ValueError(f"{name} must be a time, got {value!r}; write it like '2024-07-01T13:00'.")
    return instant
