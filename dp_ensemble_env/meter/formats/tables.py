"""The text formats: the meaning of the columns, and known units and stamps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.clocks import utc_to_wall
from dp_ensemble_env.meter.energy import names_register
from dp_ensemble_env.meter.formats import Format, hours, text
from dp_ensemble_env.meter.formats.hours import DayColumns, HourColumn
from dp_ensemble_env.meter.formats.text import Source, Table, TextFile, to_number
from dp_ensemble_env.meter.identities import (
    MeterColumn,
    choose_meter,
    find_identities,
    is_export,
    is_fuel,
    not_electricity,
    refuse_net,
    split_meters,
    wanted_names,
    words,
)
from dp_ensemble_env.meter.origin import SPELLED, UNITS, Origin, Readings, ReadSettings, as_unit, name_list
from dp_ensemble_env.meter.stamps import StampColumn, Stamps, match_clock, match_stamp
from dp_ensemble_env.tools.validation import option

_UNIT = re.compile(r"(?<![a-z])(kwh|mwh|wh|kw|mw)(?![a-z])")
_BARE_WATT = re.compile(r"[(\[]\s*w\s*[)\]]|^w$|^watts?$|(?:power|^p)[ _]w$|_watts?$")
_START = re.compile(r"start|begin|from\b|beginn|\bvon\b")
_END = re.compile(r"(?<![a-z])end(?![a-rt-z])|ending|\bto\b|\bbis\b")
_OTHER = re.compile(
    r"cost|price|tariff|\$|€|temp|°|humid|reactive|kvar|kva|voltage|current|factor|index|account|\bid\b|\bdst\b|\bweek"
    r"|weather|dew ?point|(?:dry|wet) ?bulb|\bwind\b|irradian|radiation|occupancy|degree"
    r"|\b(?:co2|oat|hdd|cdd|lmp)\b|nameplate|rated|rating|capacity|contract|nominal|installed|limit"
)
_STATISTIC = re.compile(r"(?<![a-z])(?:max(?:imum)?|min(?:imum)?|peak|avg|average|mean)(?![a-z])")
_FILLER = re.compile(r"[^a-z0-9]+|demand|power|energy|usage|consumption")


class Choice(NamedTuple):
    """The columns to read, and what the header or the format says of them."""

    columns: list[int]
    unit: str | None
    stamp: str | None
    notes: tuple[str, ...] = ()
    register: bool | None = None


class Layout(NamedTuple):
    """Which columns of a table hold what; `kind` is "opower", "conedison", "scada" or "csv"."""

    kind: str
    choice: Choice
    stamps: tuple[int, ...]
    hours: HourColumn | None
    days: DayColumns | None
    meters: list[int]
    units: int | None

    @property
    def wanted(self) -> list[int]:
        """Every column to take: stamps, readings, meters, and what else there is."""
        extra = [self.units, None if self.hours is None else self.hours.column]
        return [*self.stamps, *self.choice.columns, *self.meters, *(i for i in extra if i is not None)]


def read_text(path: Path, settings: ReadSettings, every: bool) -> list[Readings]:
    """Read a delimited text."""
    return read_table(TextFile(path, Origin(path.name), settings), settings, every)


def read_table(source: Source, settings: ReadSettings, every: bool) -> list[Readings]:
    """Read a table in one of the known layouts: the wanted readings, or those of every meter by itself."""
    table = text.find_table(source)
    place = table.index("commodity", "fuel", "fuel type", "energy type", "utility", "service type", "type")
    cells = {cell.strip() for cell in table.cells(place)} if place is not None else set()
    if cells and all(map(is_fuel, cells)):
        raise not_electricity(cells.pop(), table.origin)
    readings, meters = _take(table, _lay_out(table, settings, every), settings)
    if not every:
        return [refuse_net(choose_meter(readings, meters, settings.meter_id, table.origin), settings)]
    parts = []
    for name, rows in split_meters(readings, meters).items():
        for i, column in enumerate(() if is_export(name) else readings.names):
            part = rows.part(slice(None), [i])
            part.names = [" ".join(filter(None, (name, column if len(readings.names) > 1 or not name else "")))]
            part.stated = dict.fromkeys(part.names, *part.stated.values()) if part.stated else {}
            parts.append(refuse_net(part, settings))
    return parts


def _lay_out(table: Table, settings: ReadSettings, every: bool) -> Layout:
    kind = "csv"
    if table.index("start time") is not None and table.index("date") is not None and _usage(table) is not None:
        kind = "opower"
    elif table.index("date_time") is not None and table.index("consumption", "avg_demand") is not None:
        kind = "conedison"
    elif table.index("datetime") is not None and table.index("realpower") is not None:
        kind = "scada"
    days = hours.find_day_columns(table) if kind == "csv" else None
    numbered = hours.find_hours(table, settings.stamp) if kind == "csv" and days is None else None
    opower = [table.index(name) for name in ("date", "start time", "end time") if kind == "opower"]
    stamps = tuple(place for place in opower if place is not None) or table.stamps
    taken = {*stamps, *([numbered.column] if numbered else ())}
    if days is None:
        choice = _choose(table, kind, settings, taken, every)
        settings.limit("meters", len(choice.columns), table.origin)
    elif settings.column is not None:
        raise table.origin.error(f"the file has a row a day and a column an hour; leave {option('column')} out.")
    else:
        stated = {unit_of(name) for name in table.header} - {None}
        note = f"Every row holds a day of {days.per_day} intervals."
        choice = Choice(days.columns, stated.pop() if len(stated) == 1 else None, "start", (note,))
    meters = find_identities(table, [*taken, *choice.columns])
    units = table.index("units", "unit", "uom", "unit of measure") if choice.unit is None or kind == "opower" else None
    return Layout(kind, choice, stamps, numbered, days, meters, units)


def _take(table: Table, layout: Layout, settings: ReadSettings) -> tuple[Readings, MeterColumn]:
    """Read the columns of the layout a chunk at a time."""
    origin, choice = table.origin, layout.choice
    decimal = text.find_decimal(table, choice.columns) if settings.decimal == "auto" else settings.decimal
    names = [table.header[i] for i in choice.columns]
    stamps = StampColumn(origin, settings.date_order)
    meters = MeterColumn(layout.meters, ", ".join(table.header[i] for i in layout.meters), settings)
    values, slots, lines = [], [], []
    units: dict[str, int] = {}  # as spelled, with the first line of each
    for columns, numbers in text.take_columns(table, layout.wanted):
        parts = iter(columns)
        first = [next(parts) for _ in layout.stamps]
        stamps.add(first[0] if len(first) == 1 else _joined(first), numbers)
        cells = [next(parts) for _ in choice.columns]
        parsed = [text.parse_numbers(c, numbers, origin, decimal, n) for c, n in zip(cells, names, strict=True)]
        values.append(np.column_stack(parsed))
        lines.append(numbers.astype(np.int32))
        meters.add([next(parts) for _ in layout.meters], origin)
        if layout.units is not None:
            for cell, line in zip(next(parts), numbers.tolist(), strict=True):
                units.setdefault(as_unit(cell), line)
        if layout.hours is not None:
            slots.append(hours.parse_hours(next(parts), numbers, layout.hours, origin))
    parsed_stamps, where = stamps.finish(), np.concatenate(lines)
    seconds, notes = to_wall(parsed_stamps, settings.zone, origin)
    # American exports put the month first; only for unknown layouts is that an assumption.
    notes = [*choice.notes, *(parsed_stamps.notes if layout.kind == "csv" else ()), *notes]
    if decimal == ",":
        notes.append("Commas in numbers were read as decimal commas.")
    stamp = choice.stamp or ("start" if parsed_stamps.step is not None else None)
    readings = Readings(
        origin, seconds, np.concatenate(values), names, where, choice.unit, stamp, settings.zone, parsed_stamps.step
    )
    del values, lines
    if parsed_stamps.offsets is not None:
        readings.instants = parsed_stamps.seconds - parsed_stamps.offsets
    readings.notes, readings.stated = notes, stated_units(names)
    if layout.hours is not None:
        _number_hours(readings, np.concatenate(slots), layout.hours, settings.zone)
    if layout.days is not None:
        readings = _unroll(readings, meters, layout.days, settings.zone)
    if layout.units is not None:
        _settle_unit(readings, units, layout.kind)
    if layout.kind == "opower":
        readings.notes.append("Format opower: START TIME is the start of the interval, END TIME its last minute.")
    counted = layout.days is not None or layout.hours is not None or parsed_stamps.step is not None
    readings.register = False if counted or layout.kind != "csv" else choice.register
    return readings, meters


def _number_hours(readings: Readings, slots: NDArray[np.int64], column: HourColumn, zone: tzinfo | None) -> None:
    """Move bare dates to the intervals that another column numbers."""
    per_day, base = column.per_day, column.base
    readings.seconds = hours.place_slots(readings.seconds, slots, per_day, zone, readings.lines, readings.origin)
    readings.stamp, readings.step, readings.instants, readings.placed = "start", 86400 // per_day, None, True
    readings.notes.append(f"Intervals are numbered {base} to {base + per_day - 1}; number {base} starts at midnight.")


def _unroll(readings: Readings, meters: MeterColumn, days: DayColumns, zone: tzinfo | None) -> Readings:
    """Put the hours of a day below each other."""
    rows, width = readings.values.shape
    values, step = readings.values.ravel(), 86400 // days.per_day
    repeat, slots = np.repeat(np.arange(rows), width), np.tile(days.slots, rows)
    first = [slot not in days.slots[:i] for i, slot in enumerate(days.slots)]
    # A 25th hour, or a second column for the repeated one, is empty on all days but one.
    keep = ~np.isnan(values) | ((slots < days.per_day) & np.tile(first, rows))
    repeat, slots, values = repeat[keep], slots[keep], values[keep]
    known, lines, midnights = ~np.isnan(values), readings.lines[repeat], readings.seconds[repeat]
    seconds = midnights + slots * step
    seconds[known] = hours.place_slots(
        midnights[known], slots[known], days.per_day, zone, lines[known], readings.origin
    )
    meters.chunks = [np.concatenate(meters.chunks)[repeat]] if meters.chunks else []
    return replace(
        readings,
        seconds=seconds,
        values=values[:, None],
        lines=lines,
        names=["the readings"],
        stated={},
        stamp="start",
        step=step,
        instants=None,
        placed=True,
    )


def candidates(table: Table) -> list[int]:
    """Return the columns that hold numbers and are not the timestamps."""
    width = len(table.header)
    clocks = {i for row in table.sample for i, cell in enumerate(row[:width]) if match_stamp(cell) or match_clock(cell)}
    places = []
    for i in range(width):
        filled = [cell for cell in table.cells(i) if cell.strip()]
        texts = sum(to_number(cell) is None and to_number(cell, ",") is None for cell in filled)
        # Half of the cells decide; a later cell that is no number is refused with its line.
        if i not in {*clocks, *table.stamps} and table.cells(i) and 2 * texts <= len(filled):
            places.append(i)
    # The number of a meter or of an hour is no reading, unless there is nothing else.
    numbered = hours.find_hours(table, "end")
    labels = {*find_identities(table, table.stamps), *([numbered.column] if numbered else ())}
    return [i for i in places if i not in labels] or places


def unit_of(name: str) -> str | None:
    """Return the unit that a column name states, if it states one."""
    lowered = re.sub(r"(?<=[a-z])(?=[kKMW]W)", "_", name).lower()
    match = _UNIT.search(lowered)
    if match:
        return SPELLED[match[1]]
    return "W" if _BARE_WATT.search(lowered) else None


def stated_units(names: list[str]) -> dict[str, str]:
    """Return the columns whose names state a unit, with that unit."""
    return {name: unit for name in names if (unit := unit_of(name)) is not None}


def stamp_of(name: str) -> str | None:
    """Return "start" or "end" when the name of a time column states it."""
    lowered = words(name)
    start, end = bool(_START.search(lowered)), bool(_END.search(lowered))
    return None if start == end else "start" if start else "end"


def pick(names: list[str], column: str | Sequence[str] | None, origin: Origin) -> tuple[list[int], list[str]]:
    """Choose among candidate columns by name; return their places and notes."""
    if not names:
        raise origin.error("no column of numbers was found beside the timestamps; check the delimiter.")
    if column is None:
        if len(names) == 1 and (is_export(names[0]) or (_is_other(names[0]) and unit_of(names[0]) is None)):
            asked = option("column", names[0])
            raise origin.error(f"{names[0]!r} is no load by its name; pass {asked} to read it as it is.")
        if len(names) > 1:
            named = [i for i in loads(names) if unit_of(names[i])]
            if len(named) == 1:
                return named, [f"Column {names[named[0]]!r} was read, the only load whose name states a unit."]
            raise origin.error(
                f"several columns hold numbers; pass {option('column')} with one name, a list of names to add up, "
                f"or 'sum' for all: {name_list(names)}."
            )
        return [0], []
    if column == "sum" and "sum" not in names:
        used = loads(names)
        left = [name for i, name in enumerate(names) if i not in used]
        if not used:
            raise origin.error(f"no column looks like electricity; name the columns to add up: {name_list(names)}.")
        return used, [f"Left out of the sum, by their names: {name_list(left)}."] if left else []
    wanted = wanted_names(column, names, origin)
    exported = [name for name in wanted if is_export(name)]
    if exported and len(wanted) > 1:
        raise origin.error(
            f"{exported[0]!r} is energy that leaves the site and is never added to a load; leave it out."
        )
    return [names.index(name) for name in wanted], []


def loads(names: list[str]) -> list[int]:
    """Return the places of the columns that may be loads; of several that describe one meter, the one to read."""
    meters: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if not (_is_other(name) or is_export(name) or is_fuel(name)):
            meters.setdefault(_FILLER.sub("", _UNIT.sub("", _STATISTIC.sub("", words(name)))), []).append(i)
    chosen = []
    for places in meters.values():
        mine = [names[i] for i in places]
        statistics = any(_STATISTIC.search(words(name)) for name in mine)
        chosen += (
            [min(places, key=lambda i: _rank(names[i]))] if statistics or len(set(map(unit_of, mine))) > 1 else places
        )
    return sorted(chosen)


def _is_other(name: str) -> bool:
    """Tell a name for money, weather, time, or the size of a connection."""
    return _OTHER.search(words(name)) is not None


def _rank(name: str) -> tuple[bool, int]:
    """Prefer energy, then the mean, then what is no statistic, to the highest and lowest demand."""
    plain = words(name)
    order = 0 if re.search(r"avg|average|mean", plain) else 1 if not _STATISTIC.search(plain) else 2
    return not str(unit_of(name)).endswith("h"), order


def to_wall(parsed: Stamps, zone: tzinfo | None, origin: Origin) -> tuple[NDArray[np.int64], list[str]]:
    """Bring parsed stamps to the local wall clock."""
    if parsed.offsets is None:
        return parsed.seconds, []
    if zone is not None:
        return utc_to_wall(parsed.seconds - parsed.offsets, zone), [f"Timestamps were converted to {zone}."]
    if not parsed.offsets.any():
        zones = f"{option('timezone', 'America/New_York')} (your zone), or {option('timezone', 'UTC')} to keep them"
        raise origin.error(f"the timestamps are in UTC; pass {zones}.")
    return parsed.seconds, ["Timestamps state their offset from UTC; the local time as written was kept."]


def _choose(table: Table, kind: str, settings: ReadSettings, taken: set[int], every: bool) -> Choice:
    if kind == "opower" and settings.column is None and (place := _usage(table)) is not None:
        return Choice([place], unit_of(table.header[place]), "start")
    places = [i for i in candidates(table) if i not in taken]
    names = [table.header[i] for i in places]
    preset = {"conedison": {"consumption": "kWh", "avg_demand": "kW"}, "scada": {"realpower": "kW"}}.get(kind, {})
    lowered = {name.lower(): name for name in names}
    column = settings.column or next((lowered[name] for name in preset if name in lowered), None)
    picked, notes = _pick_moving(table, places, names, column, every)
    chosen = [names[i] for i in picked]
    for name in chosen:
        if is_fuel(name):
            raise not_electricity(name, table.origin)
    units = {preset.get(name.lower()) or unit_of(name) for name in chosen}
    if len(units) > 1 and None not in units and not every:
        raise table.origin.error(f"the columns to add up have different units ({', '.join(sorted(map(str, units)))}).")
    stamp = {"conedison": "end", "scada": "start", "opower": "start"}.get(kind) or stamp_of(
        table.header[table.stamps[0]]
    )
    if kind != "csv":
        notes.append(f"Format {kind}: column {chosen[0]!r}, timestamps taken as the {stamp} of the interval.")
    unit = units.pop() if len(units) == 1 else None
    return Choice([places[i] for i in picked], unit, stamp, tuple(notes), names_register(chosen))


def _pick_moving(
    table: Table, places: list[int], names: list[str], column: str | Sequence[str] | None, every: bool
) -> tuple[list[int], list[str]]:
    """Choose columns; of several, one that never changes is a nameplate and is not chosen unasked."""
    still = [i for i, place in enumerate(places) if _nameplate(table.cells(place))]
    moving = [i for i in loads(names) if i not in still]
    if every and column is None and len(names) > 1:
        chosen = moving or loads(names)
        left = [name for i, name in enumerate(names) if i not in chosen]
        if not chosen:
            known = name_list(names)
            raise table.origin.error(f"no column is a load by its name; pass {option('column')} with one of {known}.")
        return chosen, [f"Not read as loads: {name_list(left, 10)}."] if left else []
    if column is None and still and moving and len(moving) < len(places):
        picked, notes = pick([names[i] for i in moving], None, table.origin)
        one_value = name_list([names[i] for i in still])
        return [moving[i] for i in picked], [*notes, f"Not taken for a load, since it holds one value: {one_value}."]
    return pick(names, column, table.origin)


def _nameplate(cells: list[str]) -> bool:
    """Tell whether a column holds one number above zero."""
    return len(cells) > 2 and len({cell.strip() for cell in cells}) == 1 and (to_number(cells[0]) or 0.0) > 0.0


def _usage(table: Table) -> int | None:
    lowered = [name.lower() for name in table.header]
    return next((i for i, name in enumerate(lowered) if re.match(r"(usage|import|consumption)\b", name)), None)


def _joined(columns: list[list[str]]) -> list[str]:
    """Write date and clock, or date, start and end, as one stamp."""
    parts = (map(str.strip, column) for column in columns)
    return list(map(("{} {} to {}" if len(columns) == 3 else "{} {}").format, *parts))


def _settle_unit(readings: Readings, units: dict[str, int], kind: str) -> None:
    """Take the unit of all rows, or name the first row that has another."""
    first, *others = units
    wrong = others[0] if others else first if first not in UNITS else None
    if wrong is not None and (kind == "opower" or any(unit in UNITS for unit in units)):
        raise readings.origin.error(
            f"the unit is {wrong.strip()!r}; keep only the electricity rows, all in one of kWh, Wh or MWh.",
            units[wrong],
        )
    if wrong is None:
        readings.unit, readings.stated = first, dict.fromkeys(readings.names, first)


FORMAT = Format(lambda head: True, read_text)
