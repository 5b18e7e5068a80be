"""Readings that hold the energy of more than their interval: registers, lumps after a gap, and autumn's hour.

The values of a register only grow, and their differences are the energy. A meter that could not report for a while may
send the energy of the whole gap at once, and one that knows nothing of clock changes adds up the two passes of the hour
that autumn repeats. Only energy can be lumped, so readings in kW are left alone. The rule ``catch_up`` says what is
done.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.clocks import autumn_hours, is_repeated_hour, is_sunday_in_march, skipped_hours
from dp_ensemble_env.meter.origin import Readings, join, most_common, plural
from dp_ensemble_env.tools.validation import clock, option

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_HOUR, _DAY = 3600, 86400
_REGISTER = re.compile(r"cumul|accumul|register|odometer|totali[sz]er|z(?:ä|ae)hlerstand|lifetime|meter[ _]?reading")
#: Unasked, values are taken for a register only when so many of them, over two days or more, never fall, and
#: when they grow by so many different amounts: a load that only rises does not exist, a straight line may be a test.
_LEAST, _AMOUNTS = 24, 5


# ------------------------------------------------------------------ registers
def names_register(names: list[str]) -> bool | None:
    """Tell whether column names state that a register was read; None when they do not."""
    return all(_REGISTER.search(name.lower()) for name in names) or None


def is_register(readings: Readings, cumulative: str) -> bool:
    """Tell whether the values are states of a register."""
    if cumulative != "auto":
        return cumulative == "yes"
    if readings.register:
        return True
    if not str(readings.unit).endswith("h") or readings.register is False or not len(readings.seconds):
        return False
    span = abs(int(readings.seconds[-1]) - int(readings.seconds[0]))
    return span >= 2 * _DAY and all(_only_grows(values) for values in readings.values.T)


def _only_grows(values: FloatArray) -> bool:
    known = values[~np.isnan(values)]
    growth = np.diff(known)
    if len(known) < _LEAST or (growth > 0).sum() < len(growth) / 4:
        return False
    if len(np.unique(np.round(growth, 6))) < _AMOUNTS:
        return False
    falls = np.flatnonzero(growth < 0)
    return len(falls) <= len(known) // 1000 + 1 and all(_rolled(known[i], known[i + 1]) for i in falls)


def _rolled(before: float, after: float) -> float:
    """Return the size of a register that passed its end and began again, 0 when it did not."""
    size = 10.0 ** np.ceil(np.log10(max(before, 1.0)))
    return float(size) if before > 0.9 * size and after < 0.1 * size else 0.0


def difference(readings: Readings) -> Readings:
    """Turn the states of registers into the energy of the intervals between them.

    A state holds at its stamp, so an interval lasts from one stamp to the next. Where states are missing, the energy of
    the whole gap is known: its intervals get equal shares and are marked as lumped.
    """
    parts = [_difference(readings.part(slice(None), [i])) for i in range(len(readings.names))]
    energy = parts[0] if len(parts) == 1 else join(parts)
    energy.notes.append("The values are states of a register; the energy is their differences.")
    return energy


def _difference(readings: Readings) -> Readings:
    line = readings.part(~np.isnan(readings.values[:, 0]))
    if line.instants is not None or (np.diff(line.seconds) < 0).sum() > 2 + len(line.seconds) // 1000:
        # Sorted by the true instant where it is known, so that the autumn hour keeps its order.
        line.reorder(np.argsort(line.seconds if line.instants is None else line.instants, kind="stable"))
    true = line.seconds if line.instants is None else line.instants
    same = np.concatenate(([False], (np.diff(true) == 0) & (np.diff(line.values[:, 0]) == 0)))
    line, true = line.part(~same), true[~same]
    values, lengths = line.values[:, 0], np.diff(true)
    if not (lengths > 0).any():
        raise readings.origin.error("all readings carry one timestamp; a series needs two.")
    step = most_common(lengths[lengths > 0])
    if line.instants is None:
        lengths = lengths + _clock_changes(line, lengths, step)
    energy = np.diff(values)
    resets = _wrap(energy, values, readings)
    shares = np.maximum(lengths // step, 1)
    off = np.flatnonzero((lengths <= 0) | (lengths % step != 0))
    if len(off):
        raise readings.origin.off_grid(line.seconds[off[0] + 1], step, line.lines[off[0] + 1])
    turn = np.arange(int(shares.sum())) - np.repeat(np.cumsum(shares) - shares, shares)
    if resets:
        line.notes.append(
            f"The register was set back {plural(resets, 'time')}; the energy of those intervals is missing."
        )
    return replace(
        line,
        seconds=np.repeat(line.seconds[:-1], shares) + step * turn,
        values=np.repeat(energy / shares, shares)[:, None],
        lines=np.repeat(line.lines[1:], shares),
        lumped=np.repeat(shares > 1, shares) if (shares > 1).any() else None,
        instants=None,
        register=False,
        stamp="start",
        step=step,
    )


def _wrap(energy: FloatArray, values: FloatArray, readings: Readings) -> int:
    """Correct differences across the end of a register; return how often it was set back otherwise."""
    falls = np.flatnonzero(energy < 0)
    if len(falls) > 2 + len(values) // 100:
        raise readings.origin.error(
            f"{readings.names[0]!r} should be a register, but it falls {plural(len(falls), 'time')}, first to "
            f"{values[falls[0] + 1]:g}; pass {option('cumulative', 'no')} if it holds the energy of each interval.",
            readings.lines[min(falls[0] + 1, len(readings.lines) - 1)],
        )
    sizes = np.array([_rolled(values[i], values[i + 1]) for i in falls.tolist()])
    energy[falls] += np.where(sizes > 0, sizes, np.nan)
    return int((sizes == 0).sum())


def _clock_changes(line: Readings, lengths: IntArray, step: int) -> IntArray:
    """Return what clock changes took from, or added to, the differences of wall-clock stamps."""
    shift = np.zeros_like(lengths)
    back = np.flatnonzero(lengths == step - _HOUR)
    if len(back):
        at = line.seconds[back + 1]
        shift[back[is_repeated_hour(at, np.full(len(at), 2), line.zone, "start")]] = _HOUR
    for i in np.flatnonzero(lengths == step + _HOUR).tolist():
        low, high = int(line.seconds[i]), int(line.seconds[i + 1])
        if line.zone is None:
            skipped = is_sunday_in_march(high) and low % _DAY < 3 * _HOUR
        else:
            skipped = any(low < end and start < high for start, end in skipped_hours(line.zone, low, high))
        shift[i] = -_HOUR if skipped else 0
    return shift


# ------------------------------------------------------------------ gaps
def _deed(rule: str) -> str:
    return "kept" if rule == "keep" else f"made missing ({option('catch_up', 'keep')} keeps it)"


def settle_catch_up(readings: Readings, rule: str, step: int, stamp: str) -> BoolArray:
    """Apply the rule to lumped readings, which are in order of time; return which rows were made missing."""
    missing = np.zeros(len(readings.seconds), dtype=bool)
    if readings.lumped is not None:
        lines = len(np.unique(readings.lines[readings.lumped]))
        deed = _deed(rule) if rule == "missing" else "kept, in equal parts"
        readings.notes.append(f"The energy of {plural(lines, 'reading')} over several intervals was {deed}.")
        if rule == "missing":
            missing |= readings.lumped
            readings.values[missing] = np.nan
    if not str(readings.unit).endswith("h") or len(readings.seconds) < 6 or step >= _DAY:
        return missing
    whole = int(np.diff(readings.seconds).max()) <= step and not np.isnan(readings.values).any()
    for column in range(len(readings.names)):
        if step <= _HOUR and not _HOUR % step and rule != "keep":
            missing |= _autumn(readings, column, step, stamp)
        if not whole:
            missing |= _after_gaps(readings, column, rule, step, stamp)
    return missing


def _after_gaps(readings: Readings, column: int, rule: str, step: int, stamp: str) -> BoolArray:
    """Find readings that carry the energy of the gap beside them, and apply the rule."""
    mask = np.zeros(len(readings.seconds), dtype=bool)
    rows = np.flatnonzero(~np.isnan(readings.values[:, column]))
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
        expected = _expected(usual, seconds[places], empty[gaps], side, step)
        carried = rows[places[_carry_gap(values, places, empty[gaps], highest, expected)]]
        count += len(carried)
        if rule == "missing":
            readings.values[carried, column], mask[carried] = np.nan, True
    if count:
        readings.notes.append(
            f"{plural(count, 'reading')} beside a gap of {readings.names[column]!r} carried the energy of the whole "
            f"gap, which was {_deed(rule)}."
        )
    return mask


def _usual(seconds: IntArray, values: FloatArray, beside: NDArray[np.intp], step: int) -> FloatArray:
    """Return the median reading of every interval of the day, without the readings beside gaps; NaN where unknown."""
    slots = np.delete(seconds % _DAY // step, beside)
    order = np.argsort(slots, kind="stable")
    parts = np.split(np.delete(values, beside)[order], np.flatnonzero(np.diff(slots[order])) + 1)
    usual = np.full(-(-_DAY // step), np.nan)
    usual[np.unique(slots)] = [np.median(part) for part in parts]
    return usual


def _expected(usual: FloatArray, seconds: IntArray, gaps: IntArray, side: int, step: int) -> FloatArray:
    """Return the energy that the usual day holds in each gap and the reading beside it."""
    there = np.where(np.isnan(usual), np.nanmedian(usual), usual)
    whole, summed = there.sum(), np.append(0.0, np.cumsum(np.tile(there, 2)))
    days, rest = np.divmod(gaps + 1, len(there))
    slots = (seconds % _DAY // step - (gaps if side else 0)) % len(there)  # of the first interval
    return np.asarray(days * whole + summed[slots + rest] - summed[slots])


def _carry_gap(
    values: FloatArray, places: NDArray[np.intp], gaps: IntArray, highest: float, expected: FloatArray
) -> BoolArray:
    """Tell which readings carry the energy of their gap.

    One proves it when it is above whatever the meter reads elsewhere and about as large as the gap is long, by the
    readings around it or by the same hours of other days. Where one does, the others beside gaps are taken for the same
    when they are nearer to that than to an ordinary reading.
    """
    around = [np.r_[max(p - 4, 0) : max(p - 1, 0), p + 2 : min(p + 5, len(values))] for p in places]
    usual = np.array([np.median(values[a]) if len(a) else 0.0 for a in around])
    value, times = values[places], gaps + 1
    near = [(usual > 0) & (value > 0.4 * size) & (value < 2.5 * size) for size in (usual * times, expected)]
    fits = near[0] | near[1]
    proved = fits & (value > 1.2 * highest)
    return np.asarray(fits & (value > usual * np.sqrt(times)) if proved.any() else proved)


# ------------------------------------------------------------------ autumn
def _autumn(readings: Readings, column: int, step: int, stamp: str) -> BoolArray:
    """Find the hour that autumn repeats where both passes were added up: average it, or make it missing."""
    mask = np.zeros(len(readings.seconds), dtype=bool)
    starts, known = readings.seconds - (step if stamp == "end" else 0), readings.values[:, column]
    slots = _HOUR // step
    for low in autumn_hours(int(starts[0]), int(starts[-1]), readings.zone):
        night = slice(*np.searchsorted(starts, [low - 2 * _HOUR, low + 3 * _HOUR]))
        if not np.array_equal(starts[night], np.arange(low - 2 * _HOUR, low + 3 * _HOUR, step)):
            continue  # repeated stamps, or a gap: not lumped, or not to be told
        values = known[night]  # a view
        single = _single(values, slots)
        if single is not None:
            values[single], mask[night.start + single] = np.nan, True
            readings.notes.append(
                f"One interval of the night in which autumn repeats an hour ({clock(low)}) carried that whole hour, "
                f"which was {_deed('missing')}."
            )
            continue
        ratio = _ratio(values, slots)
        if 1.7 <= ratio <= 2.3 and ratio > 1.3 * _other_nights(known, starts, low, step):
            values[2 * slots : 3 * slots] /= 2
            readings.notes.append(
                f"The hour that autumn repeats ({clock(low)}) carried the energy of both passes; the two were averaged."
            )
    return mask


def _ratio(values: FloatArray, slots: int) -> float:
    """Return the energy of the third of five hours, in terms of the mean of the hours beside it."""
    hours = values.reshape(5, slots).sum(axis=1)
    beside = (hours[1] + hours[3]) / 2
    return float(hours[2] / beside) if beside > 0 else 0.0


def _other_nights(values: FloatArray, starts: IntArray, low: int, step: int) -> float:
    """Return the highest such ratio of the same hour in the four weeks around, or of other hours of that day."""
    slots = _HOUR // step
    ratios = []
    shifts = [days * _DAY for days in range(-14, 15) if days] + [hours * _HOUR for hours in (-5, -4, -3, 3, 4, 5, 6, 7)]
    for shift in shifts:
        first = int(np.searchsorted(starts, low + shift - 2 * _HOUR))
        night = slice(first, first + 5 * slots)
        if len(starts[night]) == 5 * slots and starts[night][-1] - starts[first] == 5 * _HOUR - step:
            ratios.append(_ratio(values[night], slots))
    return max((ratio for ratio in ratios if not np.isnan(ratio)), default=np.inf)


def _single(values: FloatArray, slots: int) -> int | None:
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
