"""NEM12, the interval file of Australia's National Electricity Market.

A record ``200`` opens a channel (meter point, suffix, unit, minutes), each ``300`` holds one day of it, and ``400``
says which intervals of that day are null. Suffixes that begin with E are drawn from the grid, with B fed into it; the
others are reactive. Stamps are market time, UTC+10 all year.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from datetime import timedelta, timezone, tzinfo
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.clocks import utc_to_wall
from dp_ensemble_env.meter.formats import Format
from dp_ensemble_env.meter.formats.text import TextFile
from dp_ensemble_env.meter.identities import LOAD, OTHER, PRODUCED, Channel, choose_channels
from dp_ensemble_env.meter.origin import SPELLED, UNITS, Origin, Readings, ReadSettings, shorten
from dp_ensemble_env.meter.stamps import check_years
from dp_ensemble_env.tools.validation import option

MARKET = timezone(timedelta(hours=10))
_HEAD = re.compile(rb'"?100"?\s*,\s*"?NEM12|"?200"?(?:,[^,\r\n]*){7},"?\d+"?(?:,[^\r\n]*)?\r?\n"?300"?,"?\d{8}')


@dataclass
class _Stream:
    """The days of one channel: midnights, values (a row each) and lines."""

    point: str
    suffix: str
    unit: str
    minutes: int
    days: list[int] = field(default_factory=list)
    values: list[NDArray[np.float64]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


def is_nem12(head: bytes) -> bool:
    """Tell a NEM12 file by its first bytes: its header, or a channel with its first day where that was cut off."""
    return _HEAD.match(head.lstrip(b"\xef\xbb\xbf \r\n\t")) is not None


def read_nem12(path: Path, settings: ReadSettings, every: bool) -> list[Readings]:
    """Read the wanted channels."""
    origin = Origin(path.name)
    source = TextFile(path, origin, settings)
    streams: dict[tuple[str, str], _Stream] = {}
    current: _Stream | None = None
    count = 0
    try:
        for line, row in enumerate(csv.reader(source.lines()), 1):
            record = row[0].strip() if row else ""
            if record == "200":
                new = _open(row, line, origin)
                current = streams.setdefault((new.point, new.suffix), new)
                if (current.unit, current.minutes) != (new.unit, new.minutes):
                    raise origin.error("the channel goes on with another unit or interval; split the file.", line)
                settings.limit("meters", len(streams), origin)
            elif record in ("300", "400"):
                if current is None:
                    raise origin.error(f"a record {record} comes before any record 200; export the file again.", line)
                if record == "400":
                    _drop(current, row, line, origin)
                else:
                    _add_day(current, row, line, origin)
                    count += len(current.values[-1])
                    settings.limit("readings", count, origin)
            elif record not in ("", "100", "500", "900"):
                raise origin.error(f"{shorten(record)} is not a NEM12 record; export the file again.", line)
    except csv.Error as error:
        raise origin.error(f"the cells cannot be told apart ({error}); check its quotes.") from None
    channels = [_channel(stream, origin, settings.zone) for stream in streams.values() if stream.days]
    if not channels:
        raise origin.error("no record 300 was found; export interval data.")
    return choose_channels(channels, settings, every, origin)


def _open(row: list[str], line: int, origin: Origin) -> _Stream:
    cells = [cell.strip() for cell in row]
    if len(cells) < 9 or not cells[8].isdigit() or int(cells[8]) not in (5, 10, 15, 30, 60):
        raise origin.error("the record 200 does not state its interval of 5, 15 or 30 minutes; correct it.", line)
    return _Stream(cells[1], cells[4], SPELLED.get(cells[7].lower(), cells[7]), int(cells[8]))


def _add_day(stream: _Stream, row: list[str], line: int, origin: Origin) -> None:
    count = 1440 // stream.minutes
    if len(row) < count + 3:
        raise origin.error(f"the day has {max(len(row) - 3, 0)} readings where {count} are expected; correct it.", line)
    cells = [cell.strip() for cell in row[2:]]
    quality = (i for i, cell in enumerate(cells) if re.fullmatch(r"[AEFNSV]\d{0,2}", cell))
    held = next(quality, max(i for i, cell in enumerate(cells, 1) if cell or i == count))
    if held != count:
        raise origin.error(
            f"the day has {held} readings where the header's {stream.minutes} minutes give {count}; correct the "
            "interval in the record 200.",
            line,
        )
    day = row[1].strip()
    try:
        at = np.datetime64(f"{day[:4]}-{day[4:6]}-{day[6:]}" if re.fullmatch(r"[0-9]{8}", day) else "no day", "s")
    except ValueError:
        raise origin.error(f"{shorten(day)} is not a day like 20240701; correct it.", line) from None
    try:
        values = np.array([float(cell or "nan") for cell in cells[:count]])
    except ValueError as error:
        raise origin.error(f"a reading is not a number ({error}); correct it.", line) from None
    if np.isinf(values).any():
        raise origin.error("a reading is infinite; correct it.", line)
    if cells[count].upper().startswith("N"):  # the quality of the day: null
        values[:] = np.nan
    stream.days.append(int(at.astype(np.int64)))
    stream.values.append(values)
    stream.lines.append(line)


def _drop(stream: _Stream, row: list[str], line: int, origin: Origin) -> None:
    """Make missing what a record 400 calls null."""
    if not stream.values:
        raise origin.error("a record 400 comes before any day; export the file again.", line)
    low, high = (row[i].strip() if len(row) > i else "" for i in (1, 2))
    size = len(stream.values[-1])
    if not (low.isdigit() and high.isdigit() and 1 <= int(low) <= int(high) <= size):
        raise origin.error(f"the record 400 does not name intervals from 1 to {size}; correct it.", line)
    if len(row) > 3 and row[3].strip().upper().startswith("N"):
        stream.values[-1][int(low) - 1 : int(high)] = np.nan


def _channel(stream: _Stream, origin: Origin, zone: tzinfo | None) -> Channel:
    values = np.concatenate(stream.values)
    step, count = stream.minutes * 60, 1440 // stream.minutes
    lines = np.repeat(np.array(stream.lines), count)
    market = np.add.outer(np.array(stream.days), step * np.arange(count)).ravel()
    check_years(market, lines, origin)
    seconds = market if zone is None else utc_to_wall(market - 10 * 3600, zone)
    where = f"are kept in it ({option('timezone')} converts them)" if zone is None else f"were converted to {zone}"
    note = f"Format nem12: stamps are market time, UTC+10 all year, and {where}."
    direction = {"E": LOAD, "B": PRODUCED}.get(stream.suffix[:1].upper(), OTHER)
    name, known = f"{stream.point} {stream.suffix}".strip(), stream.unit in UNITS
    readings = Readings(
        origin, seconds, values[:, None], [name], lines, stream.unit if known else None, "start", zone or MARKET, step
    )
    readings.notes, readings.register, readings.stated = [note], False, {name: stream.unit} if known else {}
    return Channel(name, f"meter point {stream.point}", direction if known else OTHER, stream.unit, readings)


FORMAT = Format(is_nem12, read_nem12)
