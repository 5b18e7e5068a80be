"""Readings that carry the energy of more than their interval: after a gap, and where autumn repeats an hour.

Only energy can be lumped, so that readings in kW are left alone. What is found
follows the rule ``catch_up``: made missing or kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.clocks import autumn_hours
from dp_ensemble_env.meter.origin import Readings, plural

_HOUR, _DAY = 3600, 86400
_DEED = {"missing": "made missing (catch_up='keep' keeps it)", "keep": "kept"}


def settle_catch_up(readings: Readings, rule: str, step: int, stamp: str) -> NDArray[np.bool_]:
    """Apply the rule to lumped readings; return which rows were made missing."""
    lumped = np.zeros(len(readings.seconds), dtype=bool)
    if readings.lumped is not None:
        lumped = readings.lumped
        lines = len(np.unique(readings.lines[lumped]))
        deed = _DEED["missing"] if rule == "missing" else "kept, in equal parts"
        readings.notes.append(f"The energy of {plural(lines, 'reading')} over several intervals was {deed}.")
        if rule == "missing":
            readings.values[lumped] = np.nan
        else:
            lumped = np.zeros_like(lumped)
    if not str(readings.unit).endswith("h") or len(readings.seconds) < 6 or step >= _DAY:
        return lumped
    steps = np.diff(readings.seconds)
    ordered = bool((steps >= 0).all())
    whole = ordered and int(steps.max()) <= step and not np.isnan(readings.values).any()
    del steps
    # None stands for the order of the file: ten million places would take as much memory as the readings.
    order = None if ordered else np.argsort(readings.seconds, kind="stable")
    for column in range(len(readings.names)):
        lumped |= _autumn(readings, column, order, rule, step, stamp)
        if not whole:
            lumped |= _after_gaps(readings, column, order, rule, step, stamp)
    return lumped


# ------------------------------------------------------------------ gaps
def _after_gaps(
    readings: Readings, column: int, order: NDArray[np.intp] | None, rule: str, step: int, stamp: str
) -> NDArray[np.bool_]:
    """Find readings that carry the energy of the gap beside them, and apply the rule."""
    mask = np.zeros(len(readings.seconds), dtype=bool)
    every = np.arange(len(mask)) if order is None else order
    rows = every[~np.isnan(readings.values[every, column])]
    seconds, values = readings.seconds[rows], readings.values[rows, column]
    empty = np.diff(seconds) // step - 1  # intervals between a reading and the next
    gaps = np.flatnonzero(empty > 0)
    # A reading stands at the end of what it covers. Start stamps may also put it at the beginning.
    sides = [(gaps + 1, 1)] + ([(gaps, 0)] if stamp == "start" else [])
    beside = np.unique(np.concatenate([gaps, gaps + 1]))
    if not len(gaps) or len(values) - len(beside) < 4:
        return mask
    highest = float(np.delete(values, beside).max())
    count = 0
    usual = _usual(seconds, values, beside, step)
    for places, side in sides:
        lumps = _carry_gap(
            values, places, empty[gaps], highest, _expected(usual, seconds[places], empty[gaps], side, step)
        )
        found = rows[places[lumps]]
        count += len(found)
        if rule == "missing":
            readings.values[found, column], mask[found] = np.nan, True
    if count:
        readings.notes.append(
            f"{plural(count, 'reading')} beside a gap of {readings.names[column]!r} carried the energy of the whole "
            f"gap, which was {_DEED[rule]}."
        )
    return mask


def _usual(
    seconds: NDArray[np.int64], values: NDArray[np.float64], beside: NDArray[np.intp], step: int
) -> NDArray[np.float64]:
    """Return the median reading of every interval of the day, without the readings beside gaps; NaN where unknown."""
    slots = np.delete(seconds % _DAY // step, beside)
    order = np.argsort(slots, kind="stable")
    parts = np.split(np.delete(values, beside)[order], np.flatnonzero(np.diff(slots[order])) + 1)
    usual = np.full(-(-_DAY // step), np.nan)
    usual[np.unique(slots)] = [np.median(part) for part in parts]
    return usual


def _expected(
    usual: NDArray[np.float64], seconds: NDArray[np.int64], gaps: NDArray[np.int64], side: int, step: int
) -> NDArray[np.float64]:
    """Return the energy that the usual day holds in each gap and the reading beside it."""
    there = np.where(np.isnan(usual), np.nanmedian(usual), usual)
    whole, summed = there.sum(), np.append(0.0, np.cumsum(np.tile(there, 2)))
    days, rest = np.divmod(gaps + 1, len(there))
    slots = (seconds % _DAY // step - (gaps if side else 0)) % len(there)  # of the first interval
    return np.asarray(days * whole + summed[slots + rest] - summed[slots])


def _carry_gap(
    values: NDArray[np.float64],
    places: NDArray[np.intp],
    gaps: NDArray[np.int64],
    highest: float,
    expected: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Tell which readings carry the energy of their gap.

    One proves it when it is above whatever the meter reads elsewhere and about
    as large as the gap is long, by the readings around it or by the same hours of other days.
    Where one does, the others beside gaps are taken for the same when they are nearer to that than
    to an ordinary reading.
    """
    around = [np.r_[max(p - 4, 0) : max(p - 1, 0), p + 2 : p + 5] for p in places]
    usual = np.array([np.median(values[a[a < len(values)]]) if (a < len(values)).any() else 0.0 for a in around])
    value, times = values[places], gaps + 1
    near = [(usual > 0) & (value > 0.4 * size) & (value < 2.5 * size) for size in (usual * times, expected)]
    fits = near[0] | near[1]
    proved = fits & (value > 1.2 * highest)
    return np.asarray(fits & (value > usual * np.sqrt(times)) if proved.any() else proved)


# ------------------------------------------------------------------ autumn
def _autumn(
    readings: Readings, column: int, order: NDArray[np.intp] | None, rule: str, step: int, stamp: str
) -> NDArray[np.bool_]:
    """Find the hour that autumn repeats where both passes were added up, and apply the rule."""
    mask = np.zeros(len(readings.seconds), dtype=bool)
    if step > _HOUR or _HOUR % step or rule == "keep":
        return mask
    starts, known = readings.seconds, readings.values[:, column]
    if order is not None:
        starts, known = starts[order], known[order]
    if stamp == "end":
        starts = starts - step
    slots = _HOUR // step
    for low in autumn_hours(int(starts[0]), int(starts[-1]), readings.zone):
        first, last = np.searchsorted(starts, [low - 2 * _HOUR, low + 3 * _HOUR])
        night = starts[first:last]
        if not np.array_equal(night, np.arange(low - 2 * _HOUR, low + 3 * _HOUR, step)):
            continue  # repeated stamps, or a gap: not lumped, or not to be told
        rows = np.arange(first, last) if order is None else order[first:last]
        values = readings.values[rows, column]
        single = _single(values, slots)
        if single is not None:
            row = int(rows[single])
            readings.values[row, column], mask[row] = np.nan, True
            readings.notes.append(
                f"One interval of the night in which autumn repeats an hour ({_say(low)}) carried that whole hour, "
                f"which was {_DEED[rule]}."
            )
            continue
        ratio = _ratio(values, slots)
        if 1.7 <= ratio <= 2.3 and ratio > 1.3 * _other_nights(known, starts, low, step):
            readings.values[rows[2 * slots : 3 * slots], column] /= 2
            readings.notes.append(
                f"The hour that autumn repeats ({_say(low)}) carried the energy of both passes; the two were averaged."
            )
    return mask


def _ratio(values: NDArray[np.float64], slots: int) -> float:
    """Return the energy of the third of five hours, in terms of the mean of the hours beside it."""
    hours = values.reshape(5, slots).sum(axis=1)
    beside = (hours[1] + hours[3]) / 2
    return float(hours[2] / beside) if beside > 0 else 0.0


def _other_nights(values: NDArray[np.float64], starts: NDArray[np.int64], low: int, step: int) -> float:
    """Return the highest such ratio of the same hour in the four weeks around, or of other hours of that day."""
    slots = _HOUR // step
    ratios = []
    shifts = [days * _DAY for days in range(-14, 15) if days] + [hours * _HOUR for hours in (-5, -4, -3, 3, 4, 5, 6, 7)]
    for shift in shifts:
        first = int(np.searchsorted(starts, low + shift - 2 * _HOUR))
        night = slice(first, first + 5 * slots)
        if len(starts[night]) == 5 * slots and starts[night][-1] - starts[first] == 5 * _HOUR - step:
            ratios.append(_ratio(values[night], slots))
    known = [ratio for ratio in ratios if not np.isnan(ratio)]
    return max(known) if known else np.inf


def _single(values: NDArray[np.float64], slots: int) -> int | None:
    """Return the one interval of the middle hours that is as large as an hour and one interval."""
    middle = values[slots : 4 * slots]
    if np.isnan(values).any() or slots < 2:
        return None
    place = int(np.argmax(middle))
    rest = np.delete(middle, place)
    usual = float(np.median(rest))
    if usual > 0 and 0.7 * (slots + 1) <= middle[place] / usual <= 1.4 * (slots + 1) and rest.max() < 2 * usual:
        return place + slots
    return None


def _say(second: int) -> str:
    return str(np.datetime64(second, "s")).replace("T", " ")[:16]
