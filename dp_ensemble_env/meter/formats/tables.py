"""The text formats: which columns hold what, and what is known of unit and stamp."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.clocks import utc_to_wall
from dp_ensemble_env.meter.energy import names_register
from dp_ensemble_env.meter.formats import Format
from dp_ensemble_env.meter.formats.hours import (
    DayColumns,
    HourColumn,
    find_day_columns,
    find_hours,
    parse_hours,
    place_slots,
)
from dp_ensemble_env.meter.formats.text import (
    Source,
    Table,
    TextFile,
    find_decimal,
    find_table,
    parse_numbers,
    take_columns,
    to_number,
)
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
)
from dp_ensemble_env.meter.origin import SPELLED, UNITS, Origin, Readings, ReadSettings, as_unit, name_list
from dp_ensemble_env.meter.stamps import StampColumn, Stamps, match_clock, match_stamp

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


@dataclass(frozen=True)
class Choice:
    """The columns to read, and what the header or the format says of them."""

    columns: list[int]
    unit: str | None
    stamp: str | None
    notes: tuple[str, ...] = ()
    register: bool | None = None


def detect(table: Table) -> str:
    """Name the text format by its header."""
    if table.index("start time") is not None and table.index("date") is not None and _usage(table) is not None:
        return "opower"
    if table.index("date_time") is not None and table.index("consumption", "avg_demand") is not None:
        return "conedison"
    if table.index("datetime") is not None and table.index("realpower") is not None:
        return "scada"
    return "csv"


@dataclass(frozen=True)
class Layout:
    """Which columns of a table hold what."""

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
        hours = None if self.hours is None else self.hours.column
        extra = [i for i in (self.units, hours) if i is not None]
        return [*self.stamps, *self.choice.columns, *self.meters, *extra]


def read_text(path: Path, settings: ReadSettings, every: bool) -> list[Readings]:
    """Read a delimited text."""
    return read_table(TextFile(path, Origin(path.name), settings), settings, every)


def read_table(source: Source, settings: ReadSettings, every: bool) -> list[Readings]:
    """Read a table in one of the known layouts: the wanted readings, or those of every meter by itself."""
    table = find_table(source)
    _refuse_fuel(table)
    layout = _lay_out(table, detect(table), settings, every)
    readings, meters = _take(table, layout, settings)
    if not every:
        return [refuse_net(choose_meter(readings, meters, settings.meter_id, table.origin), settings)]
    several, found = len(readings.names) > 1, []
    for name, part in split_meters(readings, meters).items():
        for i, column in enumerate(part.names):
            if not is_export(name):
                title = " ".join(filter(None, (name, column if several or not name else "")))
                found.append(refuse_net(_named(part.part(slice(None), [i]), title), settings))
    return found


def _refuse_fuel(table: Table) -> None:
    """Refuse a table whose rows say that they are of gas, water or heat."""
    place = table.index("commodity", "fuel", "fuel type", "energy type", "utility", "service type", "type")
    cells = {cell.strip() for cell in table.cells(place)} if place is not None else set()
    if cells and all(map(is_fuel, cells)):
        raise not_electricity(cells.pop(), table.origin)


def _named(readings: Readings, name: str) -> Readings:
    readings.stated = dict.fromkeys([name], *readings.stated.values()) if readings.stated else {}
    readings.names = [name]
    return readings


def _lay_out(table: Table, kind: str, settings: ReadSettings, every: bool) -> Layout:
    """Settle which columns to read, and what is known of them."""
    days = find_day_columns(table) if kind == "csv" else None
    hours = find_hours(table, settings.stamp) if kind == "csv" and days is None else None
    stamps = _opower_stamps(table) if kind == "opower" else table.stamps
    taken = {*stamps, *([hours.column] if hours else ())}
    if days is not None:
        if settings.column is not None:
            raise table.origin.error("the file has a row a day and a column an hour; leave column out.")
        stated = {unit_of(name) for name in table.header} - {None}
        note = f"Every row holds a day of {days.per_day} intervals."
        choice = Choice(days.columns, stated.pop() if len(stated) == 1 else None, "start", (note,))
    else:
        choice = _choose(table, kind, settings, taken, every)
    if days is None:
        settings.limit("meters", len(choice.columns), table.origin)
    meters = find_identities(table, [*taken, *choice.columns])
    units = table.index("units", "unit", "uom", "unit of measure") if choice.unit is None or kind == "opower" else None
    return Layout(kind, choice, stamps, hours, days, meters, units)


def _take(table: Table, layout: Layout, settings: ReadSettings) -> tuple[Readings, MeterColumn]:
    """Read the columns of the layout a chunk at a time."""
    origin, choice = table.origin, layout.choice
    decimal = find_decimal(table, choice.columns) if settings.decimal == "auto" else settings.decimal
    names = [table.header[i] for i in choice.columns]
    stamps = StampColumn(origin, settings.date_order)
    meters = MeterColumn(layout.meters, ", ".join(table.header[i] for i in layout.meters), settings)
    values, slots, lines = [], [], []
    units: dict[str, int] = {}  # as spelled, with the first line of each
    for columns, numbers in take_columns(table, layout.wanted):
        parts = iter(columns)
        first = [next(parts) for _ in layout.stamps]
        stamps.add(first[0] if len(first) == 1 else _joined(first), numbers)
        cells = [next(parts) for _ in choice.columns]
        parsed = [parse_numbers(c, numbers, origin, decimal, n) for c, n in zip(cells, names, strict=True)]
        values.append(np.column_stack(parsed))
        lines.append(numbers.astype(np.int32))
        meters.add([next(parts) for _ in layout.meters], origin)
        if layout.units is not None:
            for cell, line in zip(next(parts), numbers.tolist(), strict=True):
                units.setdefault(as_unit(cell), line)
        if layout.hours is not None:
            slots.append(parse_hours(next(parts), numbers, layout.hours, origin))
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
        _number_hours(readings, np.concatenate(slots), layout.hours, settings)
    if layout.days is not None:
        readings = _unroll(readings, meters, layout.days, settings)
    if layout.units is not None:
        _settle_unit(readings, units, layout.kind)
    if layout.kind == "opower":
        readings.notes.append("Format opower: START TIME is the start of the interval, END TIME its last minute.")
    counted = layout.days is not None or layout.hours is not None or parsed_stamps.step is not None
    readings.register = False if counted or layout.kind != "csv" else choice.register
    return readings, meters


def _number_hours(readings: Readings, slots: NDArray[np.int64], hours: HourColumn, settings: ReadSettings) -> None:
    """Move bare dates to the intervals that another column numbers."""
    readings.seconds = place_slots(
        readings.seconds, slots, hours.per_day, settings.zone, readings.lines, readings.origin
    )
    readings.stamp, readings.step, readings.instants, readings.placed = "start", 86400 // hours.per_day, None, True
    first, last = hours.base, hours.base + hours.per_day - 1
    readings.notes.append(f"Intervals are numbered {first} to {last}; number {first} starts at midnight.")


def _unroll(readings: Readings, meters: MeterColumn, days: DayColumns, settings: ReadSettings) -> Readings:
    """Put the hours of a day below each other."""
    rows, width = readings.values.shape
    values = readings.values.ravel()
    repeat = np.repeat(np.arange(rows), width)
    slots = np.tile(days.slots, rows)
    first = np.array([int((days.slots[:i] == slot).sum()) == 0 for i, slot in enumerate(days.slots)])
    # A 25th hour, or a second column for the repeated one, is empty on all days but one.
    keep = ~np.isnan(values) | ((slots < days.per_day) & np.tile(first, rows))
    repeat, slots, values = repeat[keep], slots[keep], values[keep]
    known = ~np.isnan(values)
    lines, seconds = readings.lines[repeat], readings.seconds[repeat] + slots * (86400 // days.per_day)
    seconds[known] = place_slots(
        readings.seconds[repeat][known], slots[known], days.per_day, settings.zone, lines[known], readings.origin
    )
    meters.chunks = [np.concatenate(meters.chunks)[repeat]] if meters.chunks else []
    return replace(
        readings, seconds=seconds, values=values[:, None], lines=lines, names=["the readings"], instants=None,
        stated={}, stamp="start", placed=True, step=86400 // days.per_day,
    )  # fmt: skip


def candidates(table: Table) -> list[int]:
    """Return the columns that hold numbers and are not the timestamps."""
    width = len(table.header)
    clocks = {i for row in table.sample for i, cell in enumerate(row[:width]) if match_stamp(cell) or match_clock(cell)}
    places = []
    for i in range(width):
        cells = table.cells(i)
        numbers = [to_number(cell, decimal) for cell in cells for decimal in ".,"]
        # One number in the sample makes a candidate; a later cell that is none is refused with its line.
        if i not in {*clocks, *table.stamps} and any(x is not None for x in numbers) and not _mostly_text(cells):
            places.append(i)
    # The number of a meter or of an hour is no reading, unless there is nothing else.
    hours = find_hours(table, "end")
    labels = {*find_identities(table, table.stamps), *([hours.column] if hours else ())}
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
    lowered = name.lower().replace("_", " ")
    start, end = bool(_START.search(lowered)), bool(_END.search(lowered))
    return None if start == end else "start" if start else "end"


def pick(names: list[str], column: str | Sequence[str] | None, origin: Origin) -> tuple[list[int], list[str]]:
    """Choose among candidate columns by name; return their places and notes."""
    if not names:
        raise origin.error("no column of numbers was found beside the timestamps; check the delimiter.")
    if column is None:
        if len(names) == 1 and (is_export(names[0]) or (_is_other(names[0]) and unit_of(names[0]) is None)):
            raise origin.error(f"{names[0]!r} is no load by its name; pass column={names[0]!r} to read it as it is.")
        if len(names) > 1:
            named = [i for i in loads(names) if unit_of(names[i])]
            if len(named) == 1:
                return named, [f"Column {names[named[0]]!r} was read, the only load whose name states a unit."]
            raise origin.error(
                f"several columns hold numbers; pass column= with one name, a list of names to add up, "
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
        plain = re.sub(r"(?<=[a-z])(?=[kKMW]W)", "_", name).lower().replace("_", " ")
        if not (_is_other(name) or is_export(name) or is_fuel(name)):
            meters.setdefault(_FILLER.sub("", _UNIT.sub("", _STATISTIC.sub("", plain))), []).append(i)
    chosen = []
    for places in meters.values():
        mine = [names[i] for i in places]
        statistics = any(_STATISTIC.search(name.lower().replace("_", " ")) for name in mine)
        chosen += (
            [min(places, key=lambda i: _rank(names[i]))] if statistics or len(set(map(unit_of, mine))) > 1 else places
        )
    return sorted(chosen)


def _is_other(name: str) -> bool:
    """Tell a name for money, weather, time, or the size of a connection."""
    return _OTHER.search(name.lower().replace("_", " ")) is not None


def _rank(name: str) -> tuple[bool, int]:
    """Prefer energy, then the mean, then what is no statistic, to the highest and lowest demand."""
    words = name.lower().replace("_", " ")
    order = 0 if re.search(r"avg|average|mean", words) else 1 if not _STATISTIC.search(words) else 2
    return not str(unit_of(name)).endswith("h"), order


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


def _choose(table: Table, kind: str, settings: ReadSettings, taken: set[int], every: bool) -> Choice:
    """Settle columns, unit and stamp for one format."""
    if kind == "opower" and settings.column is None:
        place = _usage(table)
        assert place is not None  # detect() saw it
        return Choice([place], unit_of(table.header[place]), "start")
    places = [i for i in candidates(table) if i not in taken]
    names = [table.header[i] for i in places]
    column, preset = settings.column, None
    if kind == "conedison":
        preset = {"consumption": "kWh", "avg_demand": "kW"}
        lowered = {name.lower(): name for name in names}
        column = column or next((lowered[n] for n in preset if n in lowered), None)
    elif kind == "scada":
        preset = {"realpower": "kW"}
        column = column or next((n for n in names if n.lower() == "realpower"), None)
    picked, notes = _pick_moving(table, places, names, column, every)
    chosen = [names[i] for i in picked]
    for name in chosen:
        if is_fuel(name):
            raise not_electricity(name, table.origin)
    units = {(preset or {}).get(name.lower()) or unit_of(name) for name in chosen}
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
    still = [i for i, place in enumerate(places) if _holds_still(table.cells(place))]
    moving = [i for i in loads(names) if i not in still]
    if every and column is None and len(names) > 1:
        chosen = moving or loads(names)
        left = [name for i, name in enumerate(names) if i not in chosen]
        if not chosen:
            raise table.origin.error(f"no column is a load by its name; pass column= with one of {name_list(names)}.")
        return chosen, [f"Not read as loads: {name_list(left, 10)}."] if left else []
    if column is None and still and moving and len(moving) < len(places):
        picked, notes = pick([names[i] for i in moving], None, table.origin)
        one_value = name_list([names[i] for i in still])
        return [moving[i] for i in picked], [*notes, f"Not taken for a load, since it holds one value: {one_value}."]
    return pick(names, column, table.origin)


def _holds_still(cells: list[str]) -> bool:
    """Tell whether a column holds one number above zero, as a nameplate does."""
    values = {cell.strip() for cell in cells}
    return len(cells) > 2 and len(values) == 1 and (to_number(values.pop()) or 0.0) > 0.0


def _mostly_text(cells: list[str]) -> bool:
    """Tell whether most of the cells that hold something hold no number."""
    filled = [cell for cell in cells if cell.strip()]
    words = sum(to_number(cell) is None and to_number(cell, ",") is None for cell in filled)
    return 2 * words > len(filled)


def _usage(table: Table) -> int | None:
    lowered = [name.lower() for name in table.header]
    return next((i for i, name in enumerate(lowered) if re.match(r"(usage|import|consumption)\b", name)), None)


def _opower_stamps(table: Table) -> tuple[int, ...]:
    places = (table.index("date"), table.index("start time"), table.index("end time"))
    return tuple(place for place in places if place is not None)


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
