"""The rules that turn raw readings into an evenly spaced series.

Each rule either leaves a note, makes a gap, or refuses with the line number.
docs/meter_rules.md lists them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.catch_up import settle_catch_up
from dp_ensemble_env.meter.clocks import is_repeated_hour, runs, skipped_spans
from dp_ensemble_env.meter.origin import UNITS, Origin, Readings, ReadSettings, plural
from dp_ensemble_env.meter.registers import difference, is_register
from dp_ensemble_env.meter.series import MISSING, Gap, PowerSeries, find_gaps

#: A reading is a spike above this many times the highest ordinary reading.
SPIKE_FACTOR = 20.0
#: Zeros that last longer than this many seconds are noted as a possible outage.
LONG_ZERO = 6 * 3600
#: The grid may not exceed this many intervals per reading (plus a million).
LARGEST_GRID = 100
_HOUR, _DAY = 3600, 86400
_REASONS = np.array(["", MISSING, "empty", "zero", "spike", "negative", "daylight saving", "catch-up"], dtype=object)
_GOOD, _ABSENT, _EMPTY, _ZERO, _SPIKE, _NEGATIVE, _SAVING, _CATCH_UP = range(8)
#: Intervals as long as this are days, of which the shortest has 23 hours.
_SHORT_DAY = 23 * _HOUR


@dataclass
class _Timeline:
    """One reading per stamp, in the order of time."""

    seconds: NDArray[np.int64]
    values: NDArray[np.float64]
    codes: NDArray[np.int8]
    lines: NDArray[np.int64]


def make_series(readings: Readings, rules: ReadSettings) -> PowerSeries:
    """Apply every rule and return the series in kW."""
    unit, register = _unit(readings, rules)
    _turn_round(readings)
    if register:
        readings = difference(readings)
    origin, notes = readings.origin, readings.notes
    stamp = _stamp(readings)
    if not register:
        _mend_midnights(readings, stamp)
    lumped = settle_catch_up(readings, rules.catch_up, _guess_step(readings), stamp)
    codes = _judge_values(readings, rules)
    codes[lumped] = _CATCH_UP
    # A missing part makes the sum missing.
    total = readings.values.sum(axis=1) if len(readings.names) > 1 else readings.values[:, 0]
    if np.isnan(total).all():
        count = len(readings.names)
        lack = f"no interval has a reading of every one of the {count} columns" if count > 1 else "no reading is left"
        raise origin.error(f"{lack}, so the series would be empty; choose another column or period.")
    if len(readings.names) > 1:
        notes.append(f"Added up {len(readings.names)} columns; the sum is missing where one of them is.")
    line, backwards = _sort(readings, total, codes)
    folded = _merge_repeats(line, readings, stamp)
    if backwards - folded > 0:
        notes.append(
            f"The rows were not in order of time ({plural(backwards - folded, 'step')} back); they were sorted."
        )
    step = _find_step(line.seconds, readings)
    _refuse_days(step, origin)
    place = _place(line, step, origin)
    kw = np.full(int(place[-1]) + 1, np.nan)
    kw[place] = line.values * UNITS[unit] * (_HOUR / step if unit.endswith("h") else 1.0)
    why = np.full(len(kw), _ABSENT, dtype=np.int8)
    why[place] = line.codes
    first = int(line.seconds[0])
    del line, place, total, codes  # a series of ten million readings needs the room
    readings.seconds, readings.values, readings.lines = readings.seconds[:0], readings.values[:0], readings.lines[:0]
    if stamp == "end":
        first -= step
        notes.append(f"Timestamps mark the end of the interval; they were moved back by {step / 60:g} minutes.")
    if unit != "kW":
        notes.append(f"{unit} per interval of {step / 60:g} minutes were converted to kW." if unit.endswith("h")
                     else f"{unit} were converted to kW.")  # fmt: skip
    seconds = first + step * np.arange(len(kw), dtype=np.int64)
    times = seconds.astype("datetime64[s]")
    _mark_skipped_hours(why, np.isnan(kw), seconds, step, stamp, readings)
    _note_zeros(kw, times, step, notes)
    gaps = find_gaps(times, step, np.isnan(kw), _REASONS[why])
    _note_gaps(gaps, notes)
    return PowerSeries(times, kw, np.timedelta64(step, "s"), gaps, tuple(notes), origin.name)


def _unit(readings: Readings, rules: ReadSettings) -> tuple[str, bool]:
    """Return the unit and whether a register was read, or say which arguments settle unit and stamp."""
    if readings.refusal:
        raise readings.origin.error(readings.refusal)
    register = is_register(readings, rules.cumulative)
    unknown, remedies = [], []
    if readings.unit is None:
        unknown.append(f"the unit of {readings.names[0]!r}")
        remedies.append("unit= (one of 'kW', 'kWh', 'W', 'Wh', 'MW', 'MWh')")
    if readings.stamp is None and not register:  # a register is read at its stamp
        unknown.append("whether a timestamp marks the start or the end of its interval")
        remedies.append("stamp= ('start' or 'end')")
    if unknown:
        raise readings.origin.error(f"the file does not state {' nor '.join(unknown)}; pass {' and '.join(remedies)}.")
    if len(readings.seconds) < 2:
        raise readings.origin.error(
            f"the file holds {len(readings.seconds)} reading, and a series needs two; export a longer period."
        )
    if register and not str(readings.unit).endswith("h"):
        raise readings.origin.error(
            f"a register counts energy, but {readings.names[0]!r} is in {readings.unit}; pass cumulative='no'."
        )
    return str(readings.unit), register


def _stamp(readings: Readings) -> str:
    assert readings.stamp is not None  # _unit asked for it
    return readings.stamp


def _turn_round(readings: Readings) -> None:
    """Turn files that are newest first, so that the two passes of a repeated hour keep their order."""
    steps = np.diff(readings.seconds)
    if int((steps < 0).sum()) > int((steps > 0).sum()):
        for name in ("seconds", "values", "lines", "lumped", "instants"):
            value = getattr(readings, name)
            setattr(readings, name, None if value is None else value[::-1])
        readings.notes.append("The file is newest first; it was turned round.")


def _mend_midnights(readings: Readings, stamp: str) -> None:
    """Move midnights that follow the last interval of their own date to the next date.

    In file order such a midnight comes right after, say, 23:45 of its date: a
    step back by a day less one interval.
    """
    seconds = readings.seconds
    steps, step = np.diff(seconds), _guess_step(readings)
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


def _guess_step(readings: Readings) -> int:
    """Return the interval that the file states, or the most common difference in file order."""
    if readings.step is not None:
        return readings.step
    steps = np.diff(readings.seconds)
    forward = steps[steps > 0]
    return _most_common(forward) if len(forward) else _HOUR


def _most_common(lengths: NDArray[np.int64]) -> int:
    if (lengths == lengths[0]).all():  # without a copy, as in most files
        return int(lengths[0])
    values, counts = np.unique(lengths, return_counts=True)
    return int(values[np.argmax(counts)])


def _judge_values(readings: Readings, rules: ReadSettings) -> NDArray[np.int8]:
    """Judge every column by itself; unusable readings become NaN with a code."""
    codes = np.zeros(len(readings.values), dtype=np.int8)
    counts = dict.fromkeys(("negative", "zero", "spike"), 0)
    for values, name in zip(readings.values.T, readings.names, strict=True):
        codes[np.isnan(values)] = np.maximum(codes[np.isnan(values)], _EMPTY)
        limit = _spike_limit(values)
        tests = (
            ("negative", values < 0, rules.negatives, _NEGATIVE, "is negative", "negatives"),
            ("zero", values == 0, rules.zeros, _ZERO, "is zero", "zeros"),
            ("spike", np.abs(values) > limit, rules.spikes, _SPIKE,
             f"is more than {SPIKE_FACTOR:g} times the ordinary maximum {limit / SPIKE_FACTOR:g}", "spikes"),
        )  # fmt: skip
        for word, hit, rule, code, verdict, argument in tests:
            counts[word] += int(hit.sum())
            if rule == "error" and hit.any():
                bad = int(np.argmax(hit))
                raise readings.origin.error(
                    f"the reading {values[bad]:g} of {name!r} {verdict} ({plural(int(hit.sum()), 'such reading')}); "
                    f"correct it, or pass {argument}='missing' or {argument}='keep'.",
                    readings.lines[bad],
                )
            if rule == "missing":
                values[hit] = np.nan  # a view: this changes readings.values
                codes[hit] = np.maximum(codes[hit], code)
    _note_counts(counts, rules, readings.notes)
    return codes


def _note_counts(counts: dict[str, int], rules: ReadSettings, notes: list[str]) -> None:
    chosen = {"negative": rules.negatives, "zero": rules.zeros, "spike": rules.spikes}
    nouns = {"negative": "negative reading", "zero": "zero reading", "spike": "spike"}
    for word, count in counts.items():
        if count:
            deed = "Made missing" if chosen[word] == "missing" else "Kept"
            notes.append(f"{deed}: {plural(count, nouns[word])}.")


def _spike_limit(values: NDArray[np.float64]) -> float:
    """Return the limit above which a reading is a spike.

    The ordinary maximum is what remains highest when the highest 1 % of the
    positive readings are set aside: at least three of them, at most a quarter.
    """
    positive = np.abs(values[np.abs(values) > 0])
    count = len(positive)
    if count < 4:
        return np.inf
    aside = min(max(3, count // 100), count // 4)
    return SPIKE_FACTOR * float(np.partition(positive, count - 1 - aside)[count - 1 - aside])


def _sort(readings: Readings, total: NDArray[np.float64], codes: NDArray[np.int8]) -> tuple[_Timeline, int]:
    """Order the readings by time; return them and the number of steps back."""
    seconds, lines = readings.seconds, readings.lines
    backwards = int((np.diff(seconds) < 0).sum())
    if backwards:
        order = np.argsort(seconds, kind="stable")
        seconds, lines, total, codes = seconds[order], lines[order], total[order], codes[order]
    return _Timeline(seconds, total, codes, lines), backwards


def _merge_repeats(line: _Timeline, readings: Readings, stamp: str) -> int:
    """Leave one reading per stamp; return the number of repeated hours averaged."""
    same = np.diff(line.seconds) == 0
    if not same.any():
        return 0
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    sizes = np.diff(np.append(starts, len(line.seconds)))
    groups = np.flatnonzero(sizes > 1)
    folded = is_repeated_hour(line.seconds[starts[groups]], sizes[groups], readings.zone, stamp)
    dropped = 0
    for group, fold in zip(groups, folded, strict=True):
        at = slice(int(starts[group]), int(starts[group] + sizes[group]))
        values = line.values[at]
        known = values[~np.isnan(values)]
        if fold and len(known):
            line.values[at.start] = known.mean()
        elif len(known):
            differs = np.flatnonzero(known != known[0])
            if len(differs):
                rows = line.lines[at][~np.isnan(values)]
                raise _conflict(readings, line.seconds[at.start], int(rows[0]), int(rows[differs[0]]), known, differs)
            line.values[at.start] = known[0]
            dropped += int(sizes[group]) - 1
        if len(known):
            line.codes[at.start] = _GOOD
    nights = len(np.unique(line.seconds[starts[groups]][folded] // _DAY))
    if folded.any():
        readings.notes.append(
            f"{plural(int(folded.sum()), 'timestamp')} of the hour that autumn repeats had two readings "
            f"({plural(nights, 'night')}); the two were averaged."
        )
    if dropped:
        readings.notes.append(f"Dropped {plural(dropped, 'repeated reading')} that said the same.")
    line.seconds, line.lines = line.seconds[starts], line.lines[starts]
    line.values, line.codes = line.values[starts], line.codes[starts]
    return nights


def _conflict(
    readings: Readings, second: int, first: int, other: int, known: NDArray[np.float64], differs: NDArray[np.intp]
) -> ValueError:
    word = readings.origin.word
    low, high = sorted((first, other))
    return readings.origin.error(
        f"{word}s {low} and {high} both give {np.datetime64(int(second), 's')} but differ "
        f"({known[0]:g} and {known[differs[0]]:g}); remove one of them."
    )


def _find_step(seconds: NDArray[np.int64], readings: Readings) -> int:
    """Return the interval stated by the file, or else the most common difference."""
    if readings.step is not None:
        return readings.step
    if len(seconds) < 2:
        raise readings.origin.error("all readings carry one timestamp; a series needs two.")
    return _most_common(np.diff(seconds))


def _refuse_days(step: int, origin: Origin) -> None:
    """Refuse readings that say nothing about the hours of a day, by the name of their interval."""
    if step < _SHORT_DAY:
        return
    days = step / _DAY
    name = (
        "daily" if days < 2 else "weekly" if 6 < days < 8 else "monthly" if 27 < days < 32 else f"{days:.0f} days long"
    )
    raise origin.error(
        f"the readings are {name} (one every {step / _HOUR:g} hours), which says nothing about the hours of an event; "
        "export readings of an hour or less."
    )


def _place(line: _Timeline, step: int, origin: Origin) -> NDArray[np.int64]:
    """Return the place of every reading on the grid, refusing what is off it."""
    phases = (line.seconds - line.seconds[0]) % step
    phase = _most_common(phases)
    bad = np.flatnonzero(phases != phase)
    if len(bad):
        stamp = str(np.datetime64(int(line.seconds[bad[0]]), "s")).replace("T", " ")
        raise origin.error(
            f"{stamp} does not lie on the {step / 60:g}-minute grid of the other readings "
            f"({plural(len(bad), 'such reading')}); correct it, or resample the file to even intervals.",
            line.lines[bad[0]],
        )
    place: NDArray[np.int64] = (line.seconds - line.seconds[0]) // step
    if place[-1] > LARGEST_GRID * len(place) + 1_000_000:
        jump = int(np.argmax(np.diff(place)))
        raise origin.error(
            f"{len(place)} readings are spread over {int(place[-1]) + 1} intervals; check the dates around this one.",
            line.lines[jump + 1],
        )
    return place


def _mark_skipped_hours(
    why: NDArray[np.int8],
    missing: NDArray[np.bool_],
    seconds: NDArray[np.int64],
    step: int,
    stamp: str,
    readings: Readings,
) -> None:
    """Give the gaps that clock changes explain their reason.

    With end stamps such a gap may begin one interval early, since what
    happens from 01:45 to 02:00 is then stamped 03:00.
    """
    early = (0, step) if stamp == "end" else (0,)
    unusable = missing & (why <= _EMPTY)
    nights = 0
    kinds = [unusable & (why == code) for code in (_ABSENT, _EMPTY)]
    for low, high in skipped_spans(kinds, seconds, step, early, readings.zone):
        for shift in early:
            inside = (seconds >= low - shift) & (seconds < high - shift)
            if inside.any() and unusable[inside].all():
                why[inside] = _SAVING
                nights += 1
                break
    if nights:
        readings.notes.append(f"The hour skipped in spring is a gap ({plural(nights, 'night')}).")


def _note_gaps(gaps: tuple[Gap, ...], notes: list[str]) -> None:
    """Note the gaps that no other note explains."""
    plain = [gap for gap in gaps if gap.reason in (MISSING, "empty")]
    if plain:
        longest = max(plain, key=lambda gap: gap.intervals)
        notes.append(
            f"{plural(sum(gap.intervals for gap in plain), 'interval')} without a reading, in "
            f"{plural(len(plain), 'gap')}; nothing was filled in. The longest gap, "
            f"{plural(longest.intervals, 'interval')}, starts at {str(longest.start).replace('T', ' ')}."
        )


def _note_zeros(kw: NDArray[np.float64], times: NDArray[np.datetime64], step: int, notes: list[str]) -> None:
    low, high = runs(kw == 0)
    long = (high - low) * step > LONG_ZERO
    if long.any():
        longest = int(np.argmax(high - low))
        notes.append(
            f"{plural(int(long.sum()), 'run')} of zeros longer than {LONG_ZERO // _HOUR} hours, possibly outages; "
            f"the longest, {plural(int((high - low)[longest]), 'interval')}, starts at "
            f"{str(times[low[longest]]).replace('T', ' ')}."
        )
