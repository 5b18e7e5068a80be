"""Files with several meters: what tells them apart (a column, or the channels of the file), and which is wanted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.formats.text import Table, to_number
from dp_ensemble_env.meter.origin import UNITS, MeterFileError, Origin, Readings, ReadSettings, join, name_list
from dp_ensemble_env.tools.validation import check_choice, option

LOAD, NET, PRODUCED, OTHER = "delivered", "net", "produced", "not electricity"

_WHAT = (
    r"meter|account|channel|site|building|customer|premise|household|device|sensor|register|location|facility"
    r"|usage ?point|service ?point|service|supply ?point|nmi|esiid|esi id|mpan|lclid|house|circuit|feeder"
)
_IDENTITY = re.compile(
    rf"(?:{_WHAT})(?: ?(?:id|no|number|name|key|code|serial|type))?"
    r"|(?:id|serial|serial ?number|name|flow|flow ?direction|direction|type|kind|unique ?id)"
)

#: Energy that leaves the site, under its many names.
_EXPORTED = re.compile(
    r"export|inject|inje[kc]t|inyect|feed[ _-]?in|fed[ _-]?in|generat|produced|production[ _(\[]*(?:[km]?wh?\b|$)"
    r"|solar|(?<![a-z])pv(?![a-z])|photovolt|microgen|surplus|excess|einspeis|speisung|teruglever|received|returned"
    r"|reverse|outgoing|outflow|back-?(?:flow|feed)|to[ _]grid|(?<![a-z])(?:sold|sent|yield)(?![a-z])"
    r"|negative active|(?<!\d)2\.8\.\d|(?<![a-z])a-(?![a-z\d])|(?<!\S)-a(?![a-z\d])"
)
#: What is metered as well, and is not electricity.
_FUEL = re.compile(
    r"(?<![a-z])(?:natural )?gas(?! ?station)(?![a-z])|(?<![a-z])(?:water|steam|propane|therms?|ccf)(?![a-z])"
    r"|heating oil|district (?:heat|cool)"
)
_NET = re.compile(r"(?<![a-z])net(?![a-z])")


def words(name: str) -> str:
    """Write a name in lower-case words: "SolarKW" and "solar_kW" are "solar kw"."""
    return re.sub(r"(?<=[a-z])(?=[kKMW]W)", " ", name).lower().replace("_", " ")


def is_export(name: str) -> bool:
    """Tell a name for energy that leaves the site."""
    return _EXPORTED.search(words(name)) is not None


def is_fuel(name: str) -> bool:
    """Tell a name for gas, water or heat."""
    return _FUEL.search(words(name)) is not None


def refuse_net(readings: Readings, settings: ReadSettings) -> Readings:
    """Mark readings that are net of what a site produces, by their names, unless they were asked for by name."""
    net = [name for name in readings.names if _NET.search(words(name))]
    if net and settings.column in (None, "sum"):
        readings.refusal = net_metering(repr(net[0]))
    return readings


def net_metering(name: str) -> str:
    """Return the refusal of net metering, with the remedy."""
    return (
        f"{name} is net of what was produced on site, so it is no load; export what is delivered, or pass "
        f"{option('column')} with its name and {option('negatives', 'keep')} to read it as it is."
    )


def not_electricity(name: str, origin: Origin) -> MeterFileError:
    """Return the refusal of a fuel, whatever its unit."""
    return origin.error(f"{name!r} is not electricity, whatever its unit; give the electricity meter.")


@dataclass
class MeterColumn:
    """The identity of every row, as the numbers of distinct identities."""

    places: list[int]
    header: str
    settings: ReadSettings
    numbers: dict[tuple[str, ...], int] = field(default_factory=dict)
    chunks: list[NDArray[np.int32]] = field(default_factory=list)

    def add(self, columns: Sequence[list[str]], origin: Origin) -> None:
        """Give every identity of a chunk its number."""
        if not self.places:
            return
        keys = list(zip(*([cell.strip() for cell in column] for column in columns), strict=True))
        for key in dict.fromkeys(keys):
            self.numbers.setdefault(key, len(self.numbers))
        self.settings.limit("meters", len(self.numbers), origin)
        self.chunks.append(np.array([self.numbers[key] for key in keys], dtype=np.int32))

    def names(self) -> list[str]:
        """Name the meters, by the columns in which they differ."""
        keys = list(self.numbers)
        varied = [i for i in range(len(self.places)) if len({key[i] for key in keys}) > 1]
        return [" ".join(key[i] for i in varied) for key in keys]


def find_identities(table: Table, taken: Sequence[int]) -> list[int]:
    """Return the columns that tell meters apart, by their names and by what they hold."""
    places = []
    for place, name in enumerate(table.header):
        plain = re.sub(r"[ _-]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)).strip().lower()
        if place in taken or not _IDENTITY.fullmatch(plain):
            continue
        cells = [cell.strip() for cell in table.cells(place)]
        numbers = [number for cell in cells if (number := to_number(cell)) is not None]
        # What tells meters apart recurs, or is a word; a number with a fraction is a reading.
        if not any(number % 1 for number in numbers) and (len(set(cells)) <= max(1, len(cells) // 2) or not numbers):
            places.append(place)
    return places


def split_meters(readings: Readings, column: MeterColumn) -> dict[str, Readings]:
    """Return the readings of every meter; one without a name when nothing tells meters apart."""
    names = column.names()
    if len(names) < 2:
        return {"": readings}
    codes = np.concatenate(column.chunks)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return {
        name: readings.part(np.sort(order[low:high]))
        for name, low, high in zip(names, bounds[:-1], bounds[1:], strict=True)
    }


def choose_meter(readings: Readings, column: MeterColumn, wanted: str | None, origin: Origin) -> Readings:
    """Return the readings of the wanted meter; several that overlap must be chosen from."""
    names = column.names()
    if wanted is None:
        if len(names) > 1:
            _refuse_overlap(readings, column)
            readings.notes.append(
                f"Column {column.header!r} names {len(names)} meters, one after the other; they were read as one."
            )
        return readings
    if not column.places:
        remedy = f"leave {option('meter_id')} out, or use {option('column')} for a column by its name"
        raise origin.error(f"no column tells meters apart; {remedy}.")
    if len(names) == 1:
        check_choice(wanted, f"meter_id of {origin.name}", [key[0] for key in column.numbers])
        return readings
    parts = split_meters(readings, column)
    if wanted == "sum":
        parts = {name: part for name, part in parts.items() if not is_export(name)}
        if not parts:
            known = name_list(names)
            raise origin.error(f"no meter is a load by its name; pass {option('meter_id')} with one of {known}.")
        for name, part in parts.items():
            part.names = [f"{name} {one}" for one in part.names] if len(part.names) > 1 else [name]
        return join(list(parts.values()))
    check_choice(wanted, f"meter_id of {origin.name}", names)
    return parts[wanted]


def _refuse_overlap(readings: Readings, column: MeterColumn) -> None:
    codes, names = np.concatenate(column.chunks), column.names()
    order = np.lexsort((codes, readings.seconds))
    both = np.flatnonzero((np.diff(readings.seconds[order]) == 0) & (np.diff(codes[order]) != 0))
    if len(both):
        low, high = sorted(int(line) for line in readings.lines[order[both[0] : both[0] + 2]])
        raise readings.origin.error(
            f"column {column.header!r} names {len(names)} meters with readings at the same times, first on "
            f"{readings.origin.word}s {low} and {high}; pass {option('meter_id')} with one name, or 'sum' to add them "
            f"up: {name_list(names)}."
        )


# ------------------------------------------------------------------ channels
@dataclass(eq=False)
class Channel:
    """The readings of one channel.

    `point` is where it is measured, `direction` one of `LOAD`, `NET`, `PRODUCED` and `OTHER`, `unit` as the file says.
    """

    name: str
    point: str
    direction: str
    unit: str
    readings: Readings

    def __str__(self) -> str:
        """Describe the channel in a list."""
        return f"{self.name!r} ({', '.join(filter(None, (self.point, self.direction, self.unit)))})"


def choose_channels(channels: list[Channel], settings: ReadSettings, every: bool, origin: Origin) -> list[Readings]:
    """Return the readings of the wanted channel, of several side by side to be added up, or of every load by itself."""
    if settings.meter_id is not None:
        raise origin.error(f"{option('meter_id')} is for tables; pass {option('column')} with the name of a channel.")
    column, names = settings.column, [channel.name for channel in channels]
    delivered, net = ([channel for channel in channels if channel.direction == way] for way in (LOAD, NET))
    if every and delivered:
        return [channel.readings for channel in delivered]
    if column is not None and (column != "sum" or "sum" in names):
        chosen = [channels[names.index(name)] for name in wanted_names(column, names, origin)]
        return [_combine(chosen, channels, asked=True)]
    if net and not delivered:
        raise origin.error(net_metering(name_list(net, 20)))
    if not delivered:
        raise origin.error(
            f"no readings in Wh or W of electricity that was used were found, only {name_list(channels, 20)}; "
            "export those."
        )
    if column is None and len(delivered) > 1:
        raise origin.error(
            f"several meters or channels are in the file; pass {option('column')} with one name, a list of names to "
            f"add up, or 'sum' for all that is delivered: {name_list(channels, 20)}."
        )
    if column is not None:
        _refuse_twice(delivered, origin)
    return [_combine(delivered, channels, asked=column is not None)]


def wanted_names(column: str | Sequence[str], names: list[str], origin: Origin) -> list[str]:
    """Return the names that the caller asks for, each of them known and unique."""
    wanted = [column] if isinstance(column, str) else list(column)
    if not wanted or len(set(wanted)) != len(wanted):
        raise ValueError(f"column must name at least one column, each once, got {column!r}; correct the list.")
    for name in wanted:
        check_choice(name, f"column of {origin.name}", names)
        if names.count(name) > 1:
            raise origin.error(f"{names.count(name)} columns are called {name!r}; give them different names.")
    return wanted


def _combine(chosen: list[Channel], channels: list[Channel], asked: bool) -> Readings:
    for channel in chosen:
        if channel.direction == OTHER and channel.unit in (*UNITS, ""):
            raise not_electricity(str(channel.name), channel.readings.origin)
    odd = [channel for channel in chosen if channel.direction in (PRODUCED, OTHER)]
    if odd and len(chosen) > 1:
        raise chosen[0].readings.origin.error(f"{odd[0]} is not a load and cannot be added to one; leave it out.")
    readings = chosen[0].readings if len(chosen) == 1 else join([channel.readings for channel in chosen])
    for channel in chosen:
        if channel.direction != LOAD:
            readings.notes.append(f"{channel} is {channel.direction}, not what is used; it was read as asked.")
    left = [channel for channel in channels if channel not in chosen]
    if left and not asked:
        readings.notes.append(f"Left out, since they are not load: {name_list(left, 20)}.")
    return readings


def _refuse_twice(loads: list[Channel], origin: Origin) -> None:
    """Refuse to add up two channels that measure the same point in the same unit: one may contain the other."""
    seen: dict[str, Channel] = {}
    for channel in loads:
        other = seen.setdefault(channel.point, channel)
        if channel.point and other is not channel:
            raise origin.error(
                f"{other} and {channel} measure the same point, so their sum may count energy twice; pass "
                f"{option('column')} with the names to add up."
            )
