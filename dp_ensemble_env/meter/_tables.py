"""The text formats: which columns hold what, and what is known of unit and stamp."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

import numpy as np
from numpy.typing import NDArray

from .._validation import check_choice
from ._origin import Origin, Readings, name_list
from ._stamps import CLOCK, STAMP, Stamps, parse_stamps
from ._text import Table, find_decimal, find_table, parse_numbers, take_columns, to_number
from ._zones import utc_to_wall

_UNIT = re.compile(r"(?<![a-z])(kwh|mwh|wh|kw|mw)(?![a-z])")
_BARE_WATT = re.compile(r"[(\[]\s*w\s*[)\]]|^w$|^watts?$|(?:power|^p)[ _]w$|_watts?$")
_SPELLED = {"kwh": "kWh", "mwh": "MWh", "wh": "Wh", "kw": "kW", "mw": "MW", "w": "W"}
_START = re.compile(r"start|begin|from\b|beginn|\bvon\b")
_END = re.compile(r"(?<![a-z])end(?![a-rt-z])|ending|\bto\b|\bbis\b")
_OTHER = re.compile(
    r"cost|price|\$|€|temp|humid|reactive|kvar|kva|voltage|current|factor|index|account|\bid\b|\bdst\b|\bweek|weather"
)


@dataclass(frozen=True)
class TextOptions:
    """The arguments of `read_meter` that concern text files."""

    column: str | Sequence[str] | None = None
    date_order: str = "auto"
    decimal: str = "auto"
    zone: tzinfo | None = None


@dataclass(frozen=True)
class Choice:
    """The columns to read, and what the header or the format says of them."""

    columns: list[int]
    unit: str | None
    stamp: str | None
    notes: tuple[str, ...] = ()


def detect(table: Table) -> str:
    """Name the text format by its header."""
    if table.index("start time") is not None and table.index("date") is not None and _usage(table) is not None:
        return "opower"
    if table.index("date_time") is not None and table.index("consumption", "avg_demand") is not None:
        return "conedison"
    if table.index("datetime") is not None and table.index("realpower") is not None:
        return "scada"
    return "csv"


def read_text(text: str, origin: Origin, format: str, options: TextOptions) -> Readings:
    """Read a delimited text in one of the known formats."""
    table = find_table(text, origin)
    found = detect(table)
    if format not in ("auto", "csv", found):
        raise origin.error(f"the header is not that of format {format!r}; pass format='auto' or 'csv'.")
    kind = found if format == "auto" else format
    choice = _choose(table, kind, options)
    stamps = _opower_stamps(table) if kind == "opower" else table.stamps
    extra = [i for i in (table.index("end time"), table.index("units")) if i is not None] if kind == "opower" else []
    cells, lines = take_columns(table, [*stamps, *choice.columns, *extra])
    parsed = _parse_time(cells[: len(stamps)], lines, origin, options.date_order)
    seconds, notes = to_wall(parsed, options.zone, origin)
    wanted = cells[len(stamps) : len(stamps) + len(choice.columns)]
    decimal = find_decimal(wanted, table.delimiter) if options.decimal == "auto" else options.decimal
    names = [table.header[i] for i in choice.columns]
    values = [parse_numbers(c, lines, origin, decimal, n) for c, n in zip(wanted, names, strict=True)]
    # American exports put the month first; only for unknown layouts is that an assumption.
    notes = [*choice.notes, *(parsed.notes if kind == "csv" else ()), *notes]
    if decimal == ",":
        notes.append("Commas in numbers were read as decimal commas.")
    readings = Readings(
        origin, seconds, np.column_stack(values), names, lines, choice.unit, choice.stamp, options.zone, None, notes
    )
    readings.stated = stated_units(names)
    if kind == "opower":
        _finish_opower(readings, table, cells[len(stamps) + len(choice.columns) :], cells[1])
    return readings


def candidates(table: Table) -> list[int]:
    """Return the columns that hold numbers and are not the timestamps."""
    width = len(table.header)
    clocks = {
        i
        for row in table.sample
        for i, cell in enumerate(row[:width])
        if STAMP.fullmatch(cell) or CLOCK.fullmatch(cell)
    }
    found = []
    for i in range(width):
        cells = [row[i] for row in table.sample if len(row) > i]
        numbers = [to_number(cell, decimal) for cell in cells for decimal in ".,"]
        # One number in the sample makes a candidate; a later cell that is none is refused with its line.
        if i not in clocks and any(x is not None for x in numbers) and not _mostly_text(cells):
            found.append(i)
    return found


def unit_of(name: str) -> str | None:
    """Return the unit that a column name states, if it states one."""
    lowered = re.sub(r"(?<=[a-z])(?=[kKMW]W)", "_", name).lower()
    match = _UNIT.search(lowered)
    if match:
        return _SPELLED[match[1]]
    return "W" if _BARE_WATT.search(lowered) else None


def stated_units(names: list[str]) -> dict[str, str]:
    """Return the columns whose names state a unit, with that unit."""
    return {name: unit for name in names if (unit := unit_of(name)) is not None}


def as_unit(value: str) -> str:
    """Return a unit in its usual spelling: "kwh" and "KWH" are kWh."""
    return _SPELLED.get(value.strip().lower(), value) if isinstance(value, str) else value


def stamp_of(name: str) -> str | None:
    """Return "start" or "end" when the name of a time column states it."""
    lowered = name.lower().replace("_", " ")
    start, end = bool(_START.search(lowered)), bool(_END.search(lowered))
    return None if start == end else "start" if start else "end"


def pick(names: list[str], column: str | Sequence[str] | None, origin: Origin) -> tuple[list[int], list[str]]:
    """Choose among candidate columns by name; return their places and notes."""
    if not names:
        raise origin.error("no column of numbers was found beside the timestamps; check the delimiter.")
    if column is None:
        if len(names) > 1:
            named = [i for i, name in enumerate(names) if unit_of(name) and not _OTHER.search(name.lower())]
            if len(named) == 1:
                return named, [f"Column {names[named[0]]!r} was read, the only one whose name states a unit."]
            raise origin.error(
                f"several columns hold numbers; pass column= with one name, a list of names to add up, "
                f"or 'sum' for all: {name_list(names)}."
            )
        return [0], []
    if column == "sum" and "sum" not in names:
        used = [i for i, name in enumerate(names) if not _OTHER.search(name.lower())]
        left = [name for i, name in enumerate(names) if i not in used]
        if not used:
            raise origin.error(f"no column looks like electricity; name the columns to add up: {name_list(names)}.")
        return used, [f"Left out of the sum, by their names: {name_list(left)}."] if left else []
    wanted = [column] if isinstance(column, str) else list(column)
    if not wanted or len(set(wanted)) != len(wanted):
        raise ValueError(f"column must name at least one column, each once, got {column!r}; correct the list.")
    for name in wanted:
        check_choice(name, f"column of {origin.name}", names)
        if names.count(name) > 1:
            raise origin.error(f"{names.count(name)} columns are called {name!r}; give them different names.")
    return [names.index(name) for name in wanted], []


def to_wall(parsed: Stamps, zone: tzinfo | None, origin: Origin) -> tuple[NDArray[np.int64], list[str]]:
    """Bring parsed stamps to the local wall clock."""
    if parsed.offsets is None:
        return parsed.seconds, []
    if zone is not None:
        return utc_to_wall(parsed.seconds - parsed.offsets, zone), [f"Timestamps were converted to {zone}."]
    if not parsed.offsets.any():
        raise origin.error(
            "the timestamps are in UTC; pass timezone='America/New_York' (your zone), or timezone='UTC' to keep them."
        )
    return parsed.seconds, ["Timestamps state their offset from UTC; the local time as written was kept."]


def _choose(table: Table, kind: str, options: TextOptions) -> Choice:
    """Settle columns, unit and stamp for one format."""
    if kind == "opower" and options.column is None:
        place = _usage(table)
        assert place is not None  # detect() saw it
        return Choice([place], unit_of(table.header[place]), "start")
    places = candidates(table)
    names = [table.header[i] for i in places]
    column, preset = options.column, None
    if kind == "conedison":
        preset = {"consumption": "kWh", "avg_demand": "kW"}
        lowered = {name.lower(): name for name in names}
        column = column or next((lowered[n] for n in preset if n in lowered), None)
    elif kind == "scada":
        preset = {"realpower": "kW"}
        column = column or next((n for n in names if n.lower() == "realpower"), None)
    picked, notes = pick(names, column, table.origin)
    chosen = [names[i] for i in picked]
    units = {(preset or {}).get(name.lower()) or unit_of(name) for name in chosen}
    if len(units) > 1 and None not in units:
        raise table.origin.error(f"the columns to add up have different units ({', '.join(sorted(map(str, units)))}).")
    stamp = {"conedison": "end", "scada": "start", "opower": "start"}.get(kind) or stamp_of(
        table.header[table.stamps[0]]
    )
    if kind != "csv":
        notes.append(f"Format {kind}: column {chosen[0]!r}, timestamps taken as the {stamp} of the interval.")
    return Choice([places[i] for i in picked], units.pop() if len(units) == 1 else None, stamp, tuple(notes))


def _mostly_text(cells: list[str]) -> bool:
    """Tell whether most of the cells that hold something hold no number."""
    filled = [cell for cell in cells if cell.strip()]
    words = sum(to_number(cell) is None and to_number(cell, ",") is None for cell in filled)
    return 2 * words > len(filled)


def _usage(table: Table) -> int | None:
    lowered = [name.lower() for name in table.header]
    return next((i for i, name in enumerate(lowered) if re.match(r"(usage|import|consumption)\b", name)), None)


def _opower_stamps(table: Table) -> tuple[int, int]:
    date, start = table.index("date"), table.index("start time")
    assert date is not None and start is not None  # detect() saw them
    return date, start


def _parse_time(cells: list[list[str]], lines: NDArray[np.int64], origin: Origin, order: str) -> Stamps:
    if len(cells) == 1:
        return parse_stamps(cells[0], lines, origin, order)
    joined = [f"{date.strip()} {clock.strip()}" for date, clock in zip(*cells, strict=True)]
    return parse_stamps(joined, lines, origin, order)


def _finish_opower(readings: Readings, table: Table, extra: list[list[str]], starts: list[str]) -> None:
    """Take the length of the intervals from END TIME, and the unit from UNITS."""
    if table.index("end time") is not None:
        readings.step = _opower_step(starts, extra.pop(0), readings)
    if extra:
        spelled = [_SPELLED.get(cell.strip().lower(), cell.strip()) for cell in extra[0]]
        first = spelled[0]
        other = next((i for i, unit in enumerate(spelled) if unit != first), None)
        if other is not None or first not in _SPELLED.values():
            raise readings.origin.error(
                f"the unit is {spelled[other or 0]!r}; keep only the electricity rows, all in one of kWh, Wh or MWh.",
                readings.lines[other or 0],
            )
        readings.unit, readings.stated = first, dict.fromkeys(readings.names, first)
    readings.notes.append("Format opower: START TIME is the start of the interval, END TIME its last minute.")


def _opower_step(starts: list[str], ends: list[str], readings: Readings) -> int:
    pairs = [(f"2000-01-01 {a.strip()}", f"2000-01-01 {b.strip()}") for a, b in zip(starts, ends, strict=True)]
    low, high = (parse_stamps([pair[k] for pair in pairs], readings.lines, readings.origin).seconds for k in (0, 1))
    spans = (high - low) % 86400
    spans = np.where(spans % 300 == 240, spans + 60, spans)  # 00:14 means the whole of that minute
    spans = np.where(spans == 0, 86400, spans)
    lengths, counts = np.unique(spans, return_counts=True)
    step = int(lengths[np.argmax(counts)])
    bad = np.flatnonzero(spans != step)
    if len(bad):
        raise readings.origin.error(
            f"the interval lasts {int(spans[bad[0]]) // 60} minutes where most last {step // 60}; "
            "correct it or remove the line.",
            readings.lines[bad[0]],
        )
    return step
