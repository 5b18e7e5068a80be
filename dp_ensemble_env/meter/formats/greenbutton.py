"""Green Button (ESPI) XML, read as a stream.

Only the numbers of the interval readings are kept, 32 bytes each; the tree is never built. A document type or entity
declaration ends the reading before anything is expanded.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta, timezone, tzinfo
from pathlib import Path
from typing import BinaryIO
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.clocks import file_zone, utc_to_wall
from dp_ensemble_env.meter.formats import Format
from dp_ensemble_env.meter.identities import LOAD, NET, OTHER, PRODUCED, Channel, choose_channels
from dp_ensemble_env.meter.origin import MeterFileError, Origin, Readings, ReadSettings, plural, shorten
from dp_ensemble_env.meter.stamps import check_years
from dp_ensemble_env.tools.validation import option

_CHUNK = 1 << 16
_UOM = {72: "Wh", 38: "W"}
_DIRECTIONS = {4: NET, 19: PRODUCED, 20: LOAD}  # net, reverse (into the grid), total; 1 is forward
_ELECTRICITY = (None, 0, 1, 2)  # commodities
_BULK = 1  # accumulationBehaviour: the values are states of a register
_DELTA = 4  # accumulationBehaviour: the values are the energy of each interval
_SHORT_DAY = 23 * 3600
_LONGEST, _DEEPEST = 1000, 100
_OF_READING = {("start", "timePeriod"), ("duration", "timePeriod"), ("value", "IntervalReading")}
_KINDS = {"ReadingType", "MeterReading", "IntervalBlock", "LocalTimeParameters", "UsagePoint"}
_NUMBERS = {
    "uom", "powerOfTenMultiplier", "flowDirection", "accumulationBehaviour", "commodity", "tzOffset", "dstOffset"
}  # fmt: skip
_RULES = {"dstStartRule", "dstEndRule"}


@dataclass
class _Entry:
    """What one Atom entry says of itself, kept small."""

    title: str = ""
    links: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Addresses by relation: self, up and related."""
    kinds: set[str] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)
    rules: dict[str, str] = field(default_factory=dict)


class _Feed:
    """Handlers of the XML parser, and what they have collected."""

    def __init__(self, origin: Origin, settings: ReadSettings) -> None:
        self.origin, self.settings = origin, settings
        self.count = 0
        self.path: list[str] = []
        self.text: list[str] = []
        self.size = 0
        self.entry = _Entry()
        self.entries: list[_Entry] = []
        #: Start, duration, value and line of every reading, by the address of what it belongs to.
        self.blocks: dict[str, array[float]] = {}
        self.pending = array("d")
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
        elif name == "link" and len(links := self.entry.links[attributes.get("rel", "")]) < 100:
            links.append(attributes.get("href", ""))
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
            self.reading[name] = self.number(text, name)
        elif name in _NUMBERS and parent in _KINDS and text:
            self.entry.numbers[name] = int(self.number(text, name, digits=True))
        elif name in _RULES and parent in _KINDS:
            self.entry.rules[name] = text
        elif name == "title" and parent == "entry":
            self.entry.title = text
        elif name == "entry" or not self.path:
            self.keep_entry()

    def number(self, text: str, name: str, digits: bool = False) -> float:
        """Read a number; all but values should be whole, and are rounded, as some exports write 1704085200.0."""
        try:
            number = float(int(text) if digits else text if "_" not in text else "")
        except ValueError:
            number = np.inf
        if not abs(number) < 1 << 53:
            raise self.origin.error(
                f"cannot read {shorten(text)} in <{name}> as a whole number; correct the file.",
                self.parser.CurrentLineNumber,
            )
        return number if name == "value" else round(number)

    def keep_reading(self) -> None:
        lacking = [name for name in ("start", "duration") if name not in self.reading]
        if lacking:
            raise self.origin.error(f"the IntervalReading has no <{lacking[0]}>; correct the file.", self.reading_line)
        numbers = self.reading["start"], self.reading["duration"], self.reading.get("value", np.nan), self.reading_line
        self.pending.extend(numbers)
        self.count += 1
        if not self.count % 10_000:
            self.settings.limit("readings", self.count, self.origin)

    def keep_entry(self) -> None:
        if self.pending:
            self.blocks.setdefault(next(iter(self.entry.links["up"]), ""), array("d")).extend(self.pending)
            self.settings.limit("meters", len(self.blocks), self.origin)
            self.pending = array("d")
        if self.entry.kinds:
            self.entries.append(self.entry)
        self.entry = _Entry()


def is_xml(head: bytes) -> bool:
    """Tell XML by its first bytes; in UTF-16 every other byte of plain text is zero."""
    return head.lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n").startswith(b"<")


def read_greenbutton(path: Path, settings: ReadSettings, every: bool) -> list[Readings]:
    """Read the wanted channels."""
    origin = Origin(path.name)
    with path.open("rb") as stream:
        feed = _parse(stream, origin, settings)
    zone, notes = _local_zone(feed, settings.zone, origin)
    index = _Index(feed)
    channels: list[Channel] = []
    for key, block in feed.blocks.items():
        channels.append(_channel(feed, index, key, block, channels, zone, settings.unit))
        channels[-1].readings.notes += ["Format greenbutton: start is the start of the interval, in UTC.", *notes]
    days = [channel for channel in channels if (channel.readings.step or 0) >= _SHORT_DAY]
    if days and any((c.readings.step or 0) < _SHORT_DAY and c.direction in (LOAD, NET) for c in channels):
        for channel in days:
            channel.direction = "daily or longer"
    return choose_channels(channels, settings, every, origin)


def _parse(stream: BinaryIO, origin: Origin, settings: ReadSettings) -> _Feed:
    feed = _Feed(origin, settings)
    given = 0
    try:
        while chunk := stream.read(_CHUNK):
            feed.parser.Parse(chunk, False)
            given += len(chunk)
            # What the parser holds back is a token that has not ended.
            settings.limit("bytes in one XML token", given - max(feed.parser.CurrentByteIndex, 0) - _CHUNK, origin)
        feed.parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.errors.messages.get(error.code, "not well formed")
        raise origin.error(f"the XML is broken ({reason}); download the file again.", error.lineno) from None
    except MeterFileError:  # from a handler
        raise
    except (LookupError, ValueError):
        raise origin.error("the XML declares an encoding that is not known; save it as UTF-8.") from None
    if not feed.blocks:
        raise origin.error("no IntervalReading was found; export interval data in Green Button format.")
    settings.limit("readings", feed.count, origin)
    return feed


class _Index:
    """The entries by their links, so that the time grows with their number and not with its square."""

    def __init__(self, feed: _Feed) -> None:
        self.types = [entry for entry in feed.entries if "ReadingType" in entry.kinds]
        self.points = [entry for entry in feed.entries if "UsagePoint" in entry.kinds]
        self.links: dict[str, dict[str, _Entry]] = {"ReadingType": {}, "MeterReading": {}, "UsagePoint": {}}
        for kind, by_link in self.links.items():
            for entry in feed.entries:
                if kind in entry.kinds:
                    # A type is related to nothing; a meter reading, say, to the blocks and the type that belong to it.
                    for href in entry.links["self"] + (entry.links["related"] if kind != "ReadingType" else []):
                        by_link.setdefault(href, entry)

    def find(self, kind: str, link: str) -> _Entry | None:
        """Find the entry of a link, or of the nearest folder above it."""
        while link and link not in self.links[kind]:
            link = link.rpartition("/")[0]
        return self.links[kind].get(link)

    def point(self, meter: _Entry | None, key: str) -> _Entry | None:
        links = [*(meter.links["up"] + meter.links["self"] if meter else ()), key]
        only = self.points[0] if len(self.points) == 1 else None
        return next((point for link in links if (point := self.find("UsagePoint", link))), only)


def _channel(
    feed: _Feed, index: _Index, key: str, block: array[float], taken: list[Channel], zone: tzinfo, unit: str | None
) -> Channel:
    """Put together what the entries say of one block of readings."""
    origin, meter = feed.origin, index.find("MeterReading", key)
    linked = [index.links["ReadingType"].get(href) for href in meter.links["related"]] if meter else []
    kind = next(filter(None, linked), index.types[0] if len(index.types) == 1 else None)
    if kind is None and index.types:
        raise origin.error("several ReadingTypes are present and no link says which readings they describe.")
    numbers = kind.numbers if kind else {}
    uom, power = numbers.get("uom"), numbers.get("powerOfTenMultiplier", 0)
    if abs(power) > 12:
        raise origin.error(f"powerOfTenMultiplier {power} is out of range; correct the file.")
    name = (meter.title if meter else "") or (kind.title if kind else "") or key or "readings"
    if name in {channel.name for channel in taken}:
        name = f"{name} {len(taken) + 1}"
    stated = "" if uom is None else _UOM.get(uom, f"uom {uom}")
    direction = _DIRECTIONS.get(numbers.get("flowDirection", 1), LOAD)
    if stated not in (*_UOM.values(), "") or numbers.get("commodity") not in _ELECTRICITY:
        direction = OTHER
    behaviour = numbers.get("accumulationBehaviour")
    readings = _readings(block, name, 10.0**power, zone, origin, behaviour == _BULK)
    if behaviour == _DELTA:
        readings.register = False
    if stated in _UOM.values():
        readings.unit, readings.stated[name] = stated, stated
    elif direction == LOAD and unit is None:
        asked = option("unit", "Wh", "W")
        readings.refusal = f"the file holds no ReadingType, so the unit is unknown; pass {asked}."
    point = index.point(meter, key)
    where = (point.title or next(iter(point.links["self"]), "").rpartition("/")[2]) if point else ""
    return Channel(name, f"usage point {where}" if where else "", direction, stated, readings)


def _readings(block: array[float], name: str, factor: float, zone: tzinfo, origin: Origin, register: bool) -> Readings:
    """Bring the readings of a block to the wall clock, those of several intervals interval by interval."""
    columns = np.frombuffer(block).reshape(-1, 4).T
    starts, durations, lines = columns[[0, 1, 3]].astype(np.int64)
    values = columns[2] * factor
    notes = []
    if len(starts) > 2 and (durations == 0).sum() == 1:  # some exports close with one
        real = durations != 0
        starts, durations, lines, values = starts[real], durations[real], lines[real], values[real]
        notes.append("One reading of 0 seconds was left out.")
    check_years(starts, lines, origin)
    if register:  # instants, whose duration says nothing
        wall = utc_to_wall(starts, zone)
        return Readings(
            origin, wall, values[:, None], [name], lines, None, "start", zone, register=True, instants=starts
        )
    step, parts = _parts(durations, lines, origin)
    # Part 0, 1, … of every reading.
    turn = np.arange(int(parts.sum())) - np.repeat(np.cumsum(parts) - parts, parts)
    wall = utc_to_wall(np.repeat(starts, parts) + step * turn, zone)
    shares = np.repeat(values / parts, parts)
    readings = Readings(origin, wall, shares[:, None], [name], np.repeat(lines, parts), None, "start", zone, step)
    readings.notes += notes
    # Readings of several intervals stand for a gap, unless they hold the hour that autumn repeats.
    last = np.cumsum(parts) - 1
    autumn = wall[last] - wall[last - parts + 1] < step * (parts - 1)
    if autumn.any():
        count = plural(int(autumn.sum()), "reading")
        readings.notes.append(f"{count} of the hour that autumn repeats last longer than others.")
    lumped = np.repeat((parts > 1) & ~autumn, parts)
    readings.lumped = lumped if lumped.any() else None
    return readings


def _parts(durations: NDArray[np.int64], lines: NDArray[np.int64], origin: Origin) -> tuple[int, NDArray[np.int64]]:
    """Return the length of the intervals, and how many of them each reading covers."""
    lengths, counts = np.unique(durations, return_counts=True)
    step = int(lengths[np.argmax(counts)])
    if step >= _SHORT_DAY:  # refused by name later; days have 23 to 25 hours and months 28 to 31 days
        return step, np.ones(len(durations), dtype=np.int64)
    odd = (durations != step) | (durations <= 0)
    several = odd & (durations > 0) & (durations % max(step, 1) == 0) & (durations < 8 * 86400)
    bad = np.flatnonzero(odd & ~several if 2 * counts.max() > len(durations) else odd)
    if len(bad):
        raise origin.error(
            f"the interval lasts {durations[bad[0]]} s where most last {step} s; correct or remove it.", lines[bad[0]]
        )
    return step, np.where(several, durations // max(step, 1), 1)


def _local_zone(feed: _Feed, zone: tzinfo | None, origin: Origin) -> tuple[tzinfo, list[str]]:
    """Return the zone of the wall clock: the caller's, or else that of the file."""
    if zone is not None:
        return zone, [f"Timestamps were converted from UTC to {zone}."]
    remedy = f"pass {option('timezone', 'America/New_York')} (your zone)"
    said = [entry for entry in feed.entries if "tzOffset" in entry.numbers]
    if not said or abs(said[0].numbers["tzOffset"]) >= 86400:
        raise origin.error(f"the file does not state its time zone; {remedy}, or 'UTC'.")
    offset = said[0].numbers["tzOffset"]
    if any((entry.numbers["tzOffset"], entry.rules) != (offset, said[0].rules) for entry in said):
        raise origin.error(f"the file states several time zones; {remedy}.")
    saving = said[0].numbers.get("dstOffset", 0)
    rules = [said[0].rules[name] for name in sorted(_RULES, reverse=True) if name in said[0].rules]
    try:
        clock = file_zone(offset, saving, *rules) if len(rules) == 2 and 0 < saving <= 7200 else None
    except ValueError as error:
        raise origin.error(f"the rule for daylight saving cannot be read ({error}); {remedy}.") from None
    hours = offset / 3600
    if clock is not None:
        return clock, [f"Local time is UTC{hours:+g} h with daylight saving, by the file's own rule."]
    note = f"Local time is UTC{hours:+g} h all year, as the file states"
    note = f"{note}; pass {option('timezone')} to follow daylight saving."
    return timezone(timedelta(seconds=offset)), [note]


FORMAT = Format(is_xml, read_greenbutton)
