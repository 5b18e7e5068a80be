"""Midnight at the end of a day, written as 00:00 of that day instead of the next."""

from __future__ import annotations

import numpy as np

from dp_ensemble_env.meter._origin import Readings, plural

_DAY = 86400


def mend_midnights(readings: Readings, stamp: str) -> None:
    """Move midnights that follow the last interval of their own date to the next date.

    In file order such a midnight comes right after, say, 23:45 of its date: a
    step back by a day less one interval.
    """
    seconds = readings.seconds
    steps = np.diff(seconds)
    forward = steps[steps > 0]
    if not len(forward):
        return
    lengths, counts = np.unique(forward, return_counts=True)
    step = readings.step or int(lengths[np.argmax(counts)])
    if step >= _DAY:
        return
    after = np.flatnonzero((steps == step - _DAY) & (seconds[1:] % _DAY == 0)) + 1
    # Other midnights that stand where they belong would contradict; the very first row says nothing.
    midnights = np.flatnonzero(seconds[1:] % _DAY == 0) + 1
    proper = len(midnights) - len(after)
    if not len(after) or proper:
        return
    if stamp == "start":
        raise readings.origin.error(
            "00:00 stands after the last interval of its date, as the end of an interval does; pass stamp='end'.",
            readings.lines[after[0]],
        )
    readings.seconds = seconds.copy()
    readings.seconds[after] += _DAY
    readings.notes.append(
        f"{plural(len(after), 'midnight')} at the end of a day had the date of that day; the next one was taken."
    )
