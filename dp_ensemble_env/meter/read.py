"""`read_meter`, `read_meters` and `meter_columns`: from a path to clean series.

A file goes to the reader of its format (`dp_ensemble_env.meter.formats`). The rules then turn raw readings into an
evenly spaced series: each of them either leaves a note, makes a gap, or refuses with the number of the line.
docs/meter_rules.md lists them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.clocks import is_repeated_hour, runs, skipped_spans
from dp_ensemble_env.meter.energy import difference, is_register, settle_catch_up
from dp_ensemble_env.meter.formats import FORMATS, HEAD
from dp_ensemble_env.meter.origin import UNITS, Origin, Readings, ReadSettings, most_common, plural
from dp_ensemble_env.meter.series import MISSING, Gap, PowerSeries, find_gaps
from dp_ensemble_env.tools.files import readable_file
from dp_ensemble_env.tools.validation import check_choice, clock, option

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

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


def read_meter(path: str | os.PathLike[str], settings: ReadSettings | None = None, **changes: Any) -> PowerSeries:
    """Read a meter file into one evenly spaced series of average power.

    `changes` are fields of `ReadSettings` by name, such as ``unit="kWh"``. An unclear or wrong file raises a
    `ValueError` that names the file, the line and the remedy.
    """
    chosen = _changed(settings, changes)
    return make_series(_readings(path, chosen, every=False)[0], chosen)


def read_meters(
    path: str | os.PathLike[str], settings: ReadSettings | None = None, **changes: Any
) -> dict[str, PowerSeries]:
    """Read every meter of a file, in one pass; return the series by the names that `read_meter` takes.

    With `column` or `meter_id`, only the named meters are read. Columns whose names are no loads are left out.
    """
    return {name: make() for name, make in each_meter(path, _changed(settings, changes))}


def each_meter(path: str | os.PathLike[str], settings: ReadSettings) -> list[tuple[str, Callable[[], PowerSeries]]]:
    """Read every meter of a file in one pass; return names, and functions that apply the rules to one of them."""
    every = settings.column is None and settings.meter_id is None
    return [(one.names[0], partial(make_series, one, settings)) for one in _readings(path, settings, every)]


def meter_columns(path: str | os.PathLike[str], settings: ReadSettings | None = None, **changes: Any) -> list[str]:
    """List the columns or channels of a file that hold a load: names to pass as ``column``."""
    chosen = _changed(settings, changes)
    chosen = replace(chosen, timezone=chosen.timezone or "UTC", column=None, meter_id=None)
    return [one.names[0] for one in _readings(path, chosen, every=True) if not one.refusal]


def _changed(settings: ReadSettings | None, changes: dict[str, Any]) -> ReadSettings:
    for name in changes:
        check_choice(name, "setting", [field.name for field in fields(ReadSettings)])
    return replace(settings or ReadSettings(), **changes)


def _readings(path: str | os.PathLike[str], settings: ReadSettings, every: bool) -> list[Readings]:
    file = readable_file(path)
    settings.limit("bytes", file.stat().st_size, Origin(file.name))
    with file.open("rb") as stream:
        head = stream.read(HEAD)
    names = reversed(FORMATS.names()) if settings.format == "auto" else [settings.format]
    kind = next((kind for name in names if (kind := FORMATS[name]).recognise(head)), None)
    if kind is None:
        raise Origin(file.name).error(f"it is not of format {settings.format!r}; pass {option('format', 'auto')}.")
    return kind.read(file, settings, every)


# ------------------------------------------------------------------ the rules
def make_series(readings: Readings, rules: ReadSettings) -> PowerSeries:
    """Apply every rule and return the series in kW."""
    _take_asked(readings, rules)
    unit, register = _unit(readings, rules)
    _turn_round(readings)
    if register:
        readings = difference(readings)
    origin, notes, stamp = readings.origin, readings.notes, readings.stamp
    assert stamp is not None  # _unit asked for it
    if not register:
        _mend_midnights(readings, stamp)
    backwards = int((np.diff(readings.seconds) < 0).sum())  # steps back in time
    if backwards:
        readings.reorder(np.argsort(readings.seconds, kind="stable"))
    lumped = settle_catch_up(readings, rules.catch_up, _guess_step(readings), stamp)
    codes = _judge_values(readings, rules)
    codes[lumped] = _CATCH_UP
    # A missing part makes the sum missing.
    count = len(readings.names)
    total = readings.values.sum(axis=1) if count > 1 else readings.values[:, 0]
    if np.isnan(total).all():
        lack = f"no interval has a reading of every one of the {count} columns" if count > 1 else "no reading is left"
        raise origin.error(f"{lack}, so the series would be empty; choose another column or period.")
    if count > 1:
        notes.append(f"Added up {count} columns; the sum is missing where one of them is.")
    first, nights = _merge_repeats(readings, total, codes, stamp)
    if backwards > nights:
        notes.append(
            f"The rows were not in order of time ({plural(backwards - nights, 'step')} back); they were sorted."
        )
    starts = readings.seconds[first]
    step = _find_step(starts, readings)
    place = _place(starts, readings.lines[first], step, origin)
    kw = np.full(int(place[-1]) + 1, np.nan)
    kw[place] = total[first] * UNITS[unit] * (_HOUR / step if unit.endswith("h") else 1.0)
    why = np.full(len(kw), _ABSENT, dtype=np.int8)
    why[place] = codes[first]
    begin = int(starts[0])
    del first, starts, place, total, codes, lumped  # a series of ten million readings needs the room
    readings.seconds, readings.values, readings.lines = readings.seconds[:0], readings.values[:0], readings.lines[:0]
    if stamp == "end":
        begin -= step
        notes.append(f"Timestamps mark the end of the interval; they were moved back by {step / 60:g} minutes.")
    if unit != "kW":
        per = f" per interval of {step / 60:g} minutes" if unit.endswith("h") else ""
        notes.append(f"{unit}{per} were converted to kW.")
    seconds = begin + step * np.arange(len(kw), dtype=np.int64)
    times = seconds.astype("datetime64[s]")
    _mark_skipped_hours(why, np.isnan(kw), seconds, step, stamp, readings)
    _note_zeros(kw, times, step, notes)
    gaps = find_gaps(times, step, np.isnan(kw), _REASONS[why])
    _note_gaps(gaps, notes)
    return PowerSeries(times, kw, np.timedelta64(step, "s"), gaps, tuple(notes), origin.name)


def _take_asked(readings: Readings, settings: ReadSettings) -> None:
    """Take unit and stamp that the caller names; refuse a unit that contradicts the file's own words."""
    unit, stamp = settings.unit, None if readings.placed else settings.stamp
    for name, stated in readings.stated.items():
        if unit not in (None, stated):
            raise readings.origin.error(
                f"the file states that {name!r} is in {stated}, which {option('unit', unit)} contradicts; leave that "
                "out, or correct the file if it is wrong."
            )
    for argument, said, given in (("unit", readings.unit, unit), ("stamp", readings.stamp, stamp)):
        if given is not None and said is not None and given != said:
            readings.notes.append(
                f"By its format or header the file has {argument} {said!r}; {given!r} was used, as asked."
            )
    readings.unit, readings.stamp = unit or readings.unit, stamp or readings.stamp


def _unit(readings: Readings, rules: ReadSettings) -> tuple[str, bool]:
    """Return the unit and whether a register was read, or say which arguments settle unit and stamp."""
    origin, name = readings.origin, readings.names[0]
    if readings.refusal:
        raise origin.error(readings.refusal)
    register = is_register(readings, rules.cumulative)
    unknown, remedies = [], []
    if readings.unit is None:
        unknown.append(f"the unit of {name!r}")
        remedies.append(f"{option('unit')} (one of 'kW', 'kWh', 'W', 'Wh', 'MW', 'MWh')")
    if readings.stamp is None and not register:  # a register is read at its stamp
        unknown.append("whether a timestamp marks the start or the end of its interval")
        remedies.append(option("stamp", "start", "end"))
    if unknown:
        raise origin.error(f"the file does not state {' nor '.join(unknown)}; pass {' and '.join(remedies)}.")
    if (count := len(readings.seconds)) < 2:
        raise origin.error(f"the file holds {count} reading, and a series needs two; export a longer period.")
    if register and not str(readings.unit).endswith("h"):
        asked = option("cumulative", "no")
        raise origin.error(f"a register counts energy, but {name!r} is in {readings.unit}; pass {asked}.")
    return str(readings.unit), register


# ------------------------------------------------------------------ order
def _turn_round(readings: Readings) -> None:
    """Turn files that are newest first, so that the two passes of a repeated hour keep their order."""
    steps = np.diff(readings.seconds)
    if int((steps < 0).sum()) > int((steps > 0).sum()):
        readings.reorder(slice(None, None, -1))
        readings.notes.append("The file is newest first; it was turned round.")


def _mend_midnights(readings: Readings, stamp: str) -> None:
    """Move midnights that follow the last interval of their own date to the next date.

    In file order such a midnight comes right after, say, 23:45 of its date: a step back by a day less one interval.
    """
    seconds, step = readings.seconds, _guess_step(readings)
    if step >= _DAY:
        return
    # Midnights that stand where they belong would contradict; the very first row says nothing.
    midnights = np.flatnonzero(seconds[1:] % _DAY == 0) + 1
    after = midnights[seconds[midnights] - seconds[midnights - 1] == step - _DAY]
    if not len(after) or len(midnights) > len(after):
        return
    if stamp == "start":
        raise readings.origin.error(
            "00:00 stands after the last interval of its date, as the end of an interval does; pass "
            f"{option('stamp', 'end')}.",
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
    return most_common(forward) if len(forward) else _HOUR


# ------------------------------------------------------------------ values
def _judge_values(readings: Readings, rules: ReadSettings) -> NDArray[np.int8]:
    """Judge every column by itself; unusable readings become NaN with a code."""
    codes = np.zeros(len(readings.values), dtype=np.int8)
    counts = dict.fromkeys(("negative reading", "zero reading", "spike"), 0)
    chosen = (rules.negatives, rules.zeros, rules.spikes)
    for values, name in zip(readings.values.T, readings.names, strict=True):
        codes[np.isnan(values)] = np.maximum(codes[np.isnan(values)], _EMPTY)
        limit = _spike_limit(values)
        high = f"is more than {SPIKE_FACTOR:g} times the ordinary maximum {limit / SPIKE_FACTOR:g}"
        tests = (
            ("negatives", values < 0, _NEGATIVE, "is negative"),
            ("zeros", values == 0, _ZERO, "is zero"),
            ("spikes", np.abs(values) > limit, _SPIKE, high),
        )
        for (argument, hit, code, verdict), noun, rule in zip(tests, counts, chosen, strict=True):
            counts[noun] += int(hit.sum())
            if rule == "error" and hit.any():
                bad = int(np.argmax(hit))
                raise readings.origin.error(
                    f"the reading {values[bad]:g} of {name!r} {verdict} ({plural(int(hit.sum()), 'such reading')}); "
                    f"correct it, or pass {option(argument, 'missing', 'keep')}.",
                    readings.lines[bad],
                )
            if rule == "missing":
                values[hit] = np.nan  # a view: this changes readings.values
                codes[hit] = np.maximum(codes[hit], code)
    for (noun, count), rule in zip(counts.items(), chosen, strict=True):
        if count:
            readings.notes.append(f"{'Made missing' if rule == 'missing' else 'Kept'}: {plural(count, noun)}.")
    return codes


def _spike_limit(values: FloatArray) -> float:
    """Return the limit above which a reading is a spike.

    The ordinary maximum is what remains highest when the highest 1 % of the positive readings are set aside: at least
    three of them, at most a quarter.
    """
    positive = np.abs(values[np.abs(values) > 0])
    count = len(positive)
    if count < 4:
        return np.inf
    aside = min(max(3, count // 100), count // 4)
    return SPIKE_FACTOR * float(np.partition(positive, count - 1 - aside)[count - 1 - aside])


def _merge_repeats(
    readings: Readings, total: FloatArray, codes: NDArray[np.int8], stamp: str
) -> tuple[NDArray[np.intp] | slice, int]:
    """Settle repeated stamps in the first row of each; return these rows and the nights that repeat an hour."""
    seconds, lines = readings.seconds, readings.lines
    same = np.diff(seconds) == 0
    if not same.any():
        return slice(None), 0
    starts = np.flatnonzero(np.concatenate(([True], ~same)))
    sizes = np.diff(np.append(starts, len(seconds)))
    groups = np.flatnonzero(sizes > 1)
    folded = is_repeated_hour(seconds[starts[groups]], sizes[groups], readings.zone, stamp)
    dropped = 0
    for group, fold in zip(groups, folded, strict=True):
        first = int(starts[group])
        rows = np.arange(first, first + int(sizes[group]))
        rows = rows[~np.isnan(total[rows])]
        if not len(rows):
            continue
        known = total[rows]
        differs = np.flatnonzero(known != known[0])
        if len(differs) and not fold:
            low, high = sorted(int(line) for line in lines[rows[[0, differs[0]]]])
            raise readings.origin.error(
                f"{readings.origin.word}s {low} and {high} both give {clock(int(seconds[first]))} but differ "
                f"({known[0]:g} and {known[differs[0]]:g}); remove one of them."
            )
        total[first], codes[first] = known.mean() if fold else known[0], _GOOD
        dropped += 0 if fold else int(sizes[group]) - 1
    nights = len(np.unique(seconds[starts[groups]][folded] // _DAY))
    if folded.any():
        readings.notes.append(
            f"{plural(int(folded.sum()), 'timestamp')} of the hour that autumn repeats had two readings "
            f"({plural(nights, 'night')}); the two were averaged."
        )
    if dropped:
        readings.notes.append(f"Dropped {plural(dropped, 'repeated reading')} that said the same.")
    return starts, nights


# ------------------------------------------------------------------ the grid
def _find_step(seconds: IntArray, readings: Readings) -> int:
    """Return the interval stated by the file, or else the most common difference; refuse days, by their name."""
    if readings.step is None and len(seconds) < 2:
        raise readings.origin.error("all readings carry one timestamp; a series needs two.")
    step = most_common(np.diff(seconds)) if readings.step is None else readings.step
    if step < _SHORT_DAY:
        return step
    days = step / _DAY
    name = (
        "daily" if days < 2 else "weekly" if 6 < days < 8 else "monthly" if 27 < days < 32 else f"{days:.0f} days long"
    )
    raise readings.origin.error(
        f"the readings are {name} (one every {step / _HOUR:g} hours), which says nothing about the hours of an event; "
        "export readings of an hour or less."
    )


def _place(seconds: IntArray, lines: IntArray, step: int, origin: Origin) -> IntArray:
    """Return the place of every reading on the grid, refusing what is off it."""
    place, phases = np.divmod(seconds - seconds[0], step)
    bad = np.flatnonzero(phases != most_common(phases))
    if len(bad):
        raise origin.off_grid(seconds[bad[0]], step, lines[bad[0]], f" ({plural(len(bad), 'such reading')})")
    if place[-1] > LARGEST_GRID * len(place) + 1_000_000:
        jump = int(np.argmax(np.diff(place)))
        raise origin.error(
            f"{len(place)} readings are spread over {int(place[-1]) + 1} intervals; check the dates around this one.",
            lines[jump + 1],
        )
    return np.asarray(place)


def _mark_skipped_hours(
    why: NDArray[np.int8], missing: NDArray[np.bool_], seconds: IntArray, step: int, stamp: str, readings: Readings
) -> None:
    """Give the gaps that clock changes explain their reason.

    With end stamps such a gap may begin one interval early: what happens from 01:45 to 02:00 is then stamped 03:00.
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
    plain = [gap for gap in gaps if gap.reason in (MISSING, "empty")]
    if plain:
        longest = max(plain, key=lambda gap: gap.intervals)
        notes.append(
            f"{plural(sum(gap.intervals for gap in plain), 'interval')} without a reading, in "
            f"{plural(len(plain), 'gap')}; nothing was filled in. The longest gap, "
            f"{plural(longest.intervals, 'interval')}, starts at {clock(longest.start)}."
        )


def _note_zeros(kw: FloatArray, times: NDArray[np.datetime64], step: int, notes: list[str]) -> None:
    low, high = runs(kw == 0)
    long = (high - low) * step > LONG_ZERO
    if long.any():
        longest = int(np.argmax(high - low))
        notes.append(
            f"{plural(int(long.sum()), 'run')} of zeros longer than {LONG_ZERO // _HOUR} hours, possibly outages; the "
            f"longest, {plural(int((high - low)[longest]), 'interval')}, starts at {clock(times[low[longest]])}."
        )
