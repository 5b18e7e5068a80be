"""Green Button (ESPI) XML, read as a stream.

Only the numbers of the interval readings are kept, 32 bytes each; the tree is
never built. A document type or entity declaration ends the reading before
anything is expanded.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta, timezone, tzinfo
from typing import BinaryIO
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from ._origin import Origin, Readings, name_list, shorten
from ._stamps import check_years
from ._tables import pick
from ._zones import utc_to_wall

_CHUNK = 1 << 16
_UOM = {72: "Wh", 38: "W"}
_LONGEST, _DEEPEST = 1000, 100
_OF_READING = {("start", "timePeriod"), ("duration", "timePeriod"), ("value", "IntervalReading")}
_KINDS = {"ReadingType", "MeterReading", "IntervalBlock", "LocalTimeParameters"}


@dataclass
class _Block:
    """Readings of one meter: parallel arrays of starts, durations, values, lines."""

    start: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    value: array[float] = field(default_factory=lambda: array("d"))
    line: array[int] = field(default_factory=lambda: array("q"))


@dataclass
class _Entry:
    """What one Atom entry says of itself, kept small."""

    title: str = ""
    links: list[tuple[str, str]] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)

    def hrefs(self, rel: str) -> list[str]:
        return [href for name, href in self.links if name == rel]


class _Feed:
    """Handlers of the XML parser, and what they have collected."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.path: list[str] = []
        self.text: list[str] = []
        self.size = 0
        self.entry = _Entry()
        self.entries: list[_Entry] = []
        self.blocks: dict[str, _Block] = {}
        self.pending = _Block()
        self.reading: dict[str, float] = {}
        self.reading_line = 0
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartDoctypeDeclHandler = self.refuse
        self.parser.EntityDeclHandler = self.refuse
        self.parser.StartElementHandler = self.open
        self.parser.EndElementHandler = self.close
        self.parser.CharacterDataHandler = self.data

    def refuse(self, *_: object) -> None:
        raise self.origin.error(
            "the file declares a document type or an entity, which Green Button never does; remove the declaration.",
            self.parser.CurrentLineNumber,
        )

    def open(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(" ")[2]
        self.path.append(name)
        if len(self.path) > _DEEPEST:
            raise self.origin.error("the XML is nested too deeply to be Green Button.", self.parser.CurrentLineNumber)
        self.text, self.size = [], 0
        if name == "entry":
            self.entry = _Entry()
        elif name == "link" and len(self.entry.links) < 100:
            self.entry.links.append((attributes.get("rel", ""), attributes.get("href", "")))
        elif name == "IntervalReading":
            self.reading, self.reading_line = {}, self.parser.CurrentLineNumber
        elif name in _KINDS:
            self.entry.kinds.add(name)

    def data(self, text: str) -> None:
        if self.size < _LONGEST:
            self.text.append(text)
            self.size += len(text)

    def close(self, _: str) -> None:
        name = self.path.pop()
        text = "".join(self.text).strip()
        self.text = []
        parent = self.path[-1] if self.path else ""
        if name == "IntervalReading":
            self.keep_reading()
        elif (name, parent) in _OF_READING:
            self.reading[name] = self.whole(text, name)
        elif name in ("uom", "powerOfTenMultiplier", "tzOffset") and parent in _KINDS:
            self.entry.numbers[name] = self.whole(text, name)
        elif name == "title" and parent == "entry":
            self.entry.title = text
        elif name == "entry" or not self.path:
            self.keep_entry()

    def whole(self, text: str, name: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = 1 << 62
        if abs(number) >= 1 << 53:
            raise self.origin.error(
                f"cannot read {shorten(text)} in <{name}> as a whole number; correct the file.",
                self.parser.CurrentLineNumber,
            )
        return number

    def keep_reading(self) -> None:
        lacking = [name for name in ("start", "duration") if name not in self.reading]
        if lacking:
            raise self.origin.error(f"the IntervalReading has no <{lacking[0]}>; correct the file.", self.reading_line)
        self.pending.start.append(int(self.reading["start"]))
        self.pending.duration.append(int(self.reading["duration"]))
        self.pending.value.append(self.reading.get("value", float("nan")))
        self.pending.line.append(self.reading_line)

    def keep_entry(self) -> None:
        if len(self.pending.start):
            key = next(iter(self.entry.hrefs("up")), "")
            block = self.blocks.setdefault(key, _Block())
            for name in ("start", "duration", "value", "line"):
                getattr(block, name).extend(getattr(self.pending, name))
            self.pending = _Block()
        if self.entry.kinds:
            self.entries.append(self.entry)
        self.entry = _Entry()


def read_greenbutton(
    stream: BinaryIO, origin: Origin, *, unit: str | None, zone: tzinfo | None, column: str | Sequence[str] | None
) -> Readings:
    """Read the electricity of a Green Button file."""
    feed = _parse(stream, origin)
    meters = _name_meters(feed, unit)
    usable = {name: found for name, found in meters.items() if found[1] in (*_UOM.values(), "")}
    if not usable:
        raise origin.error(
            f"no readings in Wh (uom 72) or W (uom 38) were found, only {name_list([m[1] for m in meters.values()])}; "
            "export electricity."
        )
    places, notes = pick(list(usable), column, origin)
    if len(places) > 1:
        raise origin.error(
            f"Green Button meters are read one at a time; pass column= with one of {name_list(list(usable))}."
        )
    name = list(usable)[places[0]]
    block, stated, power = usable[name]
    if not stated and unit is None:
        raise origin.error("the file holds no ReadingType, so the unit is unknown; pass unit='Wh' or unit='W'.")
    lines = np.asarray(block.line, dtype=np.int64)
    starts = np.asarray(block.start, dtype=np.int64)
    check_years(starts, lines, origin)
    step = _duration(np.asarray(block.duration, dtype=np.int64), lines, origin)
    zone, more = _local_zone(feed, zone, origin)
    values = np.asarray(block.value, dtype=np.float64)[:, None] * 10.0**power
    notes += ["Format greenbutton: start is the start of the interval, in UTC.", *more]
    readings = Readings(
        origin, utc_to_wall(starts, zone), values, [name], lines, stated or None, "start", zone, step, notes
    )
    if stated:
        readings.stated[name] = stated
    return readings


def greenbutton_columns(stream: BinaryIO, origin: Origin) -> list[str]:
    """Name the meters of a Green Button file that measure electricity."""
    meters = _name_meters(_parse(stream, origin), None)
    return [name for name, found in meters.items() if found[1] in (*_UOM.values(), "")]


def _parse(stream: BinaryIO, origin: Origin) -> _Feed:
    feed = _Feed(origin)
    try:
        while chunk := stream.read(_CHUNK):
            feed.parser.Parse(chunk, False)
        feed.parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, "not well formed")
        raise origin.error(f"the XML is broken ({reason}); download the file again.", error.lineno) from None
    except (LookupError, ValueError) as error:
        if str(error).startswith(origin.name):
            raise  # One of our own, from a handler.
        raise origin.error("the XML declares an encoding that is not known; save it as UTF-8.") from None
    if not feed.blocks:
        raise origin.error("no IntervalReading was found; export interval data in Green Button format.")
    return feed


def _name_meters(feed: _Feed, unit: str | None) -> dict[str, tuple[_Block, str, int]]:
    """Give every meter its block, its unit ("" when unknown) and its power of ten."""
    types = [entry for entry in feed.entries if "ReadingType" in entry.kinds]
    by_self = {href: entry for entry in types for href in entry.hrefs("self")}
    meters: dict[str, tuple[_Block, str, int]] = {}
    for key, block in feed.blocks.items():
        meter = next((e for e in feed.entries if "MeterReading" in e.kinds and _owns(e, key)), None)
        linked = [by_self[href] for href in meter.hrefs("related") if href in by_self] if meter else []
        kind = linked[0] if linked else types[0] if len(types) == 1 else None
        if kind is None and types:
            raise feed.origin.error("several ReadingTypes are present and no link says which readings they describe.")
        uom = kind.numbers.get("uom") if kind else None
        power = kind.numbers.get("powerOfTenMultiplier", 0) if kind else 0
        if abs(power) > 12:
            raise feed.origin.error(f"powerOfTenMultiplier {power} is out of range; correct the file.")
        name = (meter.title if meter else "") or (kind.title if kind else "") or key or "readings"
        if name in meters:
            name = f"{name} {len(meters) + 1}"
        meters[name] = (block, "" if uom is None else _UOM.get(uom, f"uom {uom}"), power)
    return meters


def _owns(meter: _Entry, key: str) -> bool:
    """Tell whether the blocks whose parent link is `key` belong to a meter."""
    return bool(key) and (key in meter.hrefs("related") or any(key.startswith(f"{s}/") for s in meter.hrefs("self")))


def _duration(durations: NDArray[np.int64], lines: NDArray[np.int64], origin: Origin) -> int:
    lengths, counts = np.unique(durations, return_counts=True)
    step = int(lengths[np.argmax(counts)])
    bad = np.flatnonzero((durations != step) | (durations <= 0))
    if len(bad):
        raise origin.error(
            f"the interval lasts {durations[bad[0]]} s where most last {step} s; correct or remove it.", lines[bad[0]]
        )
    return step


def _local_zone(feed: _Feed, zone: tzinfo | None, origin: Origin) -> tuple[tzinfo, list[str]]:
    """Return the zone of the wall clock: the caller's, or else the file's standard time."""
    if zone is not None:
        return zone, [f"Timestamps were converted from UTC to {zone}."]
    offsets = [e.numbers["tzOffset"] for e in feed.entries if "tzOffset" in e.numbers]
    if not offsets or abs(offsets[0]) >= 86400:
        raise origin.error(
            "the file does not state its time zone; pass timezone='America/New_York' (your zone), or 'UTC'."
        )
    hours = offsets[0] / 3600
    note = f"Local time is UTC{hours:+g} h all year, as the file states; pass timezone= to follow daylight saving."
    return timezone(timedelta(seconds=offsets[0])), [note]
