"""Timestamps as text, parsed a chunk of a column at a time.

Cells of one shape (the same characters once every digit is written 0) are parsed together: one of them is matched by a
regular expression, and the positions of its fields serve for all. A file has a handful of shapes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.origin import Origin, shorten
from dp_ensemble_env.tools.validation import option

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

_PLAIN_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:\s*[AaPp]\.?[Mm]\.?)?"
_TIME = (
    r"(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,]\d{1,9})?)?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?\s*(?P<zone>[Zz]|UTC|[+-]\d{2}:?\d{2})?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = rf"(?i:{'|'.join(_MONTHS)})[a-z]{{0,6}}\.?"
_DATE = (
    r"(?:(?P<Y>\d{4})(?P<s1>[-/.])(?P<m>\d{1,2})(?P=s1)(?P<d>\d{1,2})"
    r"|(?P<a>\d{1,2})(?P<s2>[-/.])(?P<b>\d{1,2})(?P=s2)(?P<y>\d{4}|\d{2})"
    rf"|(?P<nd>\d{{1,2}})[-/. ]?(?P<nm>{_NAME})[-/. ]?,?\s?(?P<ny>\d{{4}}|\d{{2}})"
    rf"|(?P<um>{_NAME}) (?P<ud>\d{{1,2}}),? (?P<uy>\d{{4}}))"
)
#: An interval may be written "A to B"; B is a time, with or without its date.
_TAIL = (
    rf"(?:\s*(?:to|until|bis|-|/)\s*(?:[-/.\w]{{6,11}}[ T]\s*)?(?P<tail>{_PLAIN_TIME})"
    r"\s*(?:[Zz]|UTC|[+-]\d{2}:?\d{2})?)?"
)
STAMP = re.compile(rf"\s*{_DATE}(?:(?:[ T]\s*|,\s+){_TIME}{_TAIL})?\s*", re.ASCII)
CLOCK = re.compile(rf"\s*{_TIME}{_TAIL}\s*", re.ASCII)
#: Seconds or milliseconds since 1970, from 2000 to 2033; later ones look like 2033051803, a date and an hour.
_EPOCH = re.compile(r"\s*(?P<s>9[4-9]\d{7}|1\d{9})(?:\d{3})?(?:\.\d{1,9})?\s*", re.ASCII)

EXAMPLES = "'2024-07-01 13:15', '7/1/2024 1:15 PM' or '01.07.2024 13:15'"
_FIRST, _LAST = 1900, 2200
_SHAPE = np.arange(256, dtype=np.uint8)
_SHAPE[ord("0") : ord("9") + 1] = ord("0")
_ASCII = str.maketrans({"–": "-", "—": "-", "−": "-", "\u00a0": " ", "\u2009": " ", "\u202f": " "})
_DAY = 86400


class Stamps(NamedTuple):
    """Seconds of the clock as written, and what else the cells state."""

    seconds: IntArray
    offsets: IntArray | None = None
    """Offsets from UTC in seconds."""
    notes: tuple[str, ...] = ()
    step: int | None = None
    """Length of the intervals in seconds, where they are written with both ends."""


class _Chunk(NamedTuple):
    """One chunk of a column; its seconds are read with the month and with the day first where that matters."""

    month_first: IntArray
    day_first: IntArray
    offsets: NDArray[np.int32] | None


@dataclass
class StampColumn:
    """A column of timestamps that arrives in chunks.

    Whether 1/2/2024 is in January or in February may be decided by any line of the file, so that both readings are
    kept until the last chunk has come.
    """

    origin: Origin
    date_order: str = "auto"
    chunks: list[_Chunk] = field(default_factory=list)
    #: First line of some kind: "day" and "month" (which stands first for sure), "zoned", "unzoned".
    seen: dict[str, int] = field(default_factory=dict)
    #: First cell that is no time when the month, or the day, stands first.
    bad: dict[bool, tuple[str, int]] = field(default_factory=dict)
    numeric: bool = False
    dotted: bool = True
    #: Lengths of intervals that are written with both ends: how often, and the first line.
    lengths: dict[int, list[int]] = field(default_factory=dict)

    def add(self, cells: Sequence[str], lines: IntArray) -> None:
        """Parse a chunk, naming the first line that is no timestamp."""
        count = len(cells)
        if not count:
            return
        cells, text, shape = _matrix(cells, lines, self.origin)
        fields = {name: np.zeros(count, dtype=np.int64) for name in ("year", "one", "two", "clock", "offset", "epoch")}
        numeric, zoned = (np.zeros(count, dtype=bool) for _ in range(2))
        keys = np.ascontiguousarray(shape).view(f"S{shape.shape[1]}").ravel()
        left = np.arange(count)
        while len(left):
            first = left[0]
            match = STAMP.fullmatch(cells[first])
            same = keys[left] == keys[first]
            rows, left = left[same], left[~same]
            block = text if len(rows) == count else text[rows]
            if match is None:
                if (match := _EPOCH.fullmatch(cells[first])) is None:
                    raise unreadable(cells[first], lines[first], self.origin)
                fields["epoch"][rows], zoned[rows] = _digits(block, *match.span("s")), True
                continue
            _fill(fields, rows, block, match)
            self._measure(fields["clock"][rows], block, match, lines[rows])
            numeric[rows] = match["a"] is not None
            self.dotted &= match["a"] is None or match["s2"] == "."
            zoned[rows] = match["zone"] is not None
        self.numeric |= bool(numeric.any())
        one, two = (np.where(numeric, fields[name], 0) for name in ("one", "two"))
        self._note_order(one, two, zoned, lines)
        month_first, wrong = _assemble(fields, np.zeros(count, dtype=bool))
        day_first = month_first
        if numeric.any():
            day_first, other = _assemble(fields, numeric)
            for kind, mask in ((True, wrong), (False, other)):
                if mask.any():
                    self.bad.setdefault(kind, (cells[int(np.argmax(mask))], int(lines[int(np.argmax(mask))])))
            wrong = wrong & other
        if wrong.any():
            raise self._no_time(cells[int(np.argmax(wrong))], int(lines[int(np.argmax(wrong))]))
        self.chunks.append(_Chunk(month_first, day_first, fields["offset"].astype(np.int32) if zoned.any() else None))

    def _measure(self, clock: IntArray, block: NDArray[np.uint8], match: re.Match[str], lines: IntArray) -> None:
        """Count the lengths of the intervals that are written with both ends."""
        if match["tail"] is None:
            return
        tail = re.fullmatch(_TIME, match["tail"], re.ASCII)
        assert tail is not None  # it is the same pattern, without names
        spans = (_clock(block, tail, match.start("tail")) - clock) % _DAY
        spans = np.where(spans % 300 == 240, spans + 60, spans)  # 00:14 means the whole of that minute
        spans = np.where(spans % 60 == 59, spans + 1, spans)
        values, first, counts = np.unique(spans, return_index=True, return_counts=True)
        for value, place, count in zip(values.tolist(), first.tolist(), counts.tolist(), strict=True):
            self.lengths.setdefault(value, [0, int(lines[place])])[0] += count

    def _step(self) -> int | None:
        """Return the one length of interval; another is refused, unless clocks changed in it."""
        step = max(self.lengths, key=lambda length: self.lengths[length][0], default=None)
        for length, (_, line) in self.lengths.items():
            if step and (length - step) % _DAY not in (0, 3600, _DAY - 3600):
                raise self.origin.error(
                    f"the interval lasts {length // 60} minutes where most last {step // 60}; correct it or remove "
                    "the line.",
                    line,
                )
        return step or None

    def _note_order(self, one: IntArray, two: IntArray, zoned: BoolArray, lines: IntArray) -> None:
        for kind, mask in (("day", one > 12), ("month", two > 12), ("zoned", zoned), ("unzoned", ~zoned)):
            if kind not in self.seen and mask.any():
                self.seen[kind] = int(lines[int(np.argmax(mask))])

    def _no_time(self, cell: str, line: int) -> ValueError:
        return self.origin.error(
            f"{shorten(cell)} is not a time that exists between {_FIRST} and {_LAST}; "
            f"correct it, or pass {option('date_order', 'mdy', 'dmy')} if day and month are swapped.",
            line,
        )

    def finish(self) -> Stamps:
        """Decide the order of day and month, and return the whole column."""
        month_first, notes = self._month_first()
        if month_first in self.bad:
            raise self._no_time(*self.bad[month_first])
        if "zoned" in self.seen and "unzoned" in self.seen:
            raise self.origin.error(
                "some timestamps state an offset from UTC and others do not; write all alike.",
                max(self.seen["zoned"], self.seen["unzoned"]),
            )
        chunks, self.chunks = self.chunks, []
        seconds = np.concatenate([c.month_first if month_first else c.day_first for c in chunks] or [np.zeros(0, int)])
        offsets = None
        if "zoned" in self.seen:
            offsets = np.concatenate([c.offsets for c in chunks if c.offsets is not None]).astype(np.int64)
        return Stamps(seconds, offsets, notes, self._step())

    def _month_first(self) -> tuple[bool, tuple[str, ...]]:
        """Decide between month/day and day/month by the values above twelve."""
        if not self.numeric or self.date_order != "auto":
            return not self.numeric or self.date_order != "dmy", ()
        if "day" in self.seen and "month" in self.seen:
            first, second = sorted((self.seen["day"], self.seen["month"]))
            raise self.origin.error(
                f"dates put the day first on one line and the month first on another (lines {first} and {second}); "
                "write all dates alike."
            )
        if "day" in self.seen or "month" in self.seen:
            return "day" not in self.seen, ()
        if self.dotted:
            return False, ("No day above 12 occurs; dates with dots were read as day.month.year.",)
        other = option("date_order", "dmy")
        return True, (f"No day above 12 occurs; dates were read as month/day/year ({other} reads day/month).",)


def match_stamp(cell: str) -> re.Match[str] | None:
    """Match a timestamp, with whatever dashes and spaces it is written."""
    return STAMP.fullmatch(plain(cell))


def match_clock(cell: str) -> re.Match[str] | None:
    """Match a time of the day."""
    return CLOCK.fullmatch(plain(cell))


def plain(cell: str) -> str:
    """Write dashes and narrow spaces as plain ones."""
    return cell if cell.isascii() else cell.translate(_ASCII)


def is_epoch(cell: str) -> bool:
    """Tell whether a cell may hold seconds or milliseconds since 1970."""
    return _EPOCH.fullmatch(cell) is not None


def check_years(seconds: IntArray, lines: IntArray, origin: Origin) -> None:
    """Refuse stamps outside the years 1900 to 2200, which only a fault can give."""
    low, high = ((year - 1970) * 31_556_952 for year in (_FIRST, _LAST))
    bad = np.flatnonzero((seconds < low) | (seconds > high))
    if len(bad):
        raise origin.error("the timestamp is not between 1900 and 2200; correct it.", lines[bad[0]])


def _matrix(
    cells: Sequence[str], lines: IntArray, origin: Origin
) -> tuple[Sequence[str], NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the cells as a matrix of bytes, and the matrix of their shapes."""
    if not all(map(str.isascii, cells)):
        cells = [cell.translate(_ASCII) for cell in cells]  # dashes and narrow spaces
    try:
        packed = np.array(cells, dtype=np.bytes_)
    except UnicodeEncodeError:
        bad = next(i for i, cell in enumerate(cells) if not cell.isascii())
        raise unreadable(cells[bad], lines[bad], origin) from None
    width = max(packed.dtype.itemsize, 1)
    text = packed.astype(f"S{width}").view(np.uint8).reshape(len(cells), width)
    return cells, text, _SHAPE[text]


def _assemble(fields: dict[str, IntArray], day_first: BoolArray) -> tuple[IntArray, BoolArray]:
    """Put calendar fields together; return the seconds, and which of the dates do not exist."""
    month = np.where(day_first, fields["two"], fields["one"])
    day = np.where(day_first, fields["one"], fields["two"])
    year, clock = fields["year"], fields["clock"]
    valid = (year >= _FIRST) & (year <= _LAST) & (month >= 1) & (month <= 12) & (day >= 1) & (clock >= 0)
    months = np.where(valid, (year - 1970) * 12 + month - 1, 0)
    starts = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    lengths = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) - starts
    seconds, epoch = (starts + day - 1) * _DAY + clock, fields["epoch"]
    return np.where(epoch > 0, epoch, seconds), (epoch == 0) & (~valid | (day > lengths))


def _fill(fields: dict[str, IntArray], rows: NDArray[np.intp], block: NDArray[np.uint8], m: re.Match[str]) -> None:
    """Read the fields of all rows that share the shape of the match."""
    year, one, two = next(
        groups
        for groups in (("Y", "m", "d"), ("y", "a", "b"), ("ny", "nm", "nd"), ("uy", "um", "ud"))
        if m[groups[0]] is not None
    )
    fields["year"][rows] = _digits(block, *m.span(year)) + (2000 if len(m[year]) == 2 else 0)
    if one in ("nm", "um"):  # The letters of a month belong to the shape.
        fields["one"][rows] = _MONTHS.index(m[one][:3].lower()) + 1
    else:
        fields["one"][rows] = _digits(block, *m.span(one))
    fields["two"][rows] = _digits(block, *m.span(two))
    fields["clock"][rows] = _clock(block, m) if m["H"] is not None else 0
    if m["zone"] and m["zone"][0] in "+-":
        low, high = m.span("zone")
        size = _digits(block, low + 1, low + 3) * 3600 + _digits(block, high - 2, high) * 60
        fields["offset"][rows] = -size if m["zone"][0] == "-" else size


def _clock(block: NDArray[np.uint8], m: re.Match[str], shift: int = 0) -> IntArray:
    """Return seconds since midnight, -1 where there is no such time; `shift` is where the match begins in a row."""

    def number(group: str) -> IntArray:
        return _digits(block, m.start(group) + shift, m.end(group) + shift)  # 0 without the group, whose span is empty

    hour, minute, second = number("H"), number("M"), number("S")
    valid = (minute < 60) & (second < 60) & (hour <= 24) & ((hour < 24) | (minute + second == 0))
    if m["half"]:
        valid = (minute < 60) & (second < 60) & (hour >= 1) & (hour <= 12)
        hour = hour % 12 + (12 if m["half"] in "Pp" else 0)
    return np.where(valid, hour * 3600 + minute * 60 + second, -1)


def _digits(block: NDArray[np.uint8], low: int, high: int) -> IntArray:
    value = np.zeros(len(block), dtype=np.int64)
    for column in range(low, high):
        value = value * 10 + (block[:, column] - np.uint8(48))
    return value


def unreadable(cell: str, line: int | np.integer, origin: Origin) -> ValueError:
    """Return the error of a cell that should hold a timestamp."""
    if not cell.strip():
        return origin.error("the timestamp is empty; remove the line or give it a time.", line)
    return origin.error(f"cannot read {shorten(cell)} as a timestamp; write it like {EXAMPLES}.", line)
