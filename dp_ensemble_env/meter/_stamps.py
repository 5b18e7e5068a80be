"""Timestamps as text, parsed a whole column at a time.

Cells of one shape (the same characters once every digit is written 0) are
parsed together: one of them is matched by a regular expression, and the
positions of its fields serve for all. A file has a handful of shapes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._origin import Origin, shorten

_TIME = (
    r"(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2})(?:[.,]\d{1,9})?)?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?\s*(?P<zone>[Zz]|UTC|[+-]\d{2}:?\d{2})?"
)
_DATE = (
    r"(?:(?P<Y>\d{4})(?P<s1>[-/.])(?P<m>\d{1,2})(?P=s1)(?P<d>\d{1,2})"
    r"|(?P<a>\d{1,2})(?P<s2>[-/.])(?P<b>\d{1,2})(?P=s2)(?P<y>\d{4}|\d{2}))"
)
STAMP = re.compile(rf"\s*{_DATE}(?:(?:[ T]\s*|,\s+){_TIME})?\s*", re.ASCII)
CLOCK = re.compile(rf"\s*{_TIME}\s*", re.ASCII)

EXAMPLES = "'2024-07-01 13:15', '7/1/2024 1:15 PM' or '01.07.2024 13:15'"
_FIRST, _LAST = 1900, 2200
_SHAPE = np.arange(256, dtype=np.uint8)
_SHAPE[ord("0") : ord("9") + 1] = ord("0")


@dataclass
class Stamps:
    """Seconds of the clock as written, and the offsets from UTC when written too."""

    seconds: NDArray[np.int64]
    offsets: NDArray[np.int64] | None
    notes: list[str]


def parse_stamps(cells: Sequence[str], lines: NDArray[np.int64], origin: Origin, date_order: str = "auto") -> Stamps:
    """Parse a column of timestamps, naming the first line that is none.

    Parameters
    ----------
    cells : sequence of str
        The text.
    lines : (n,) int64
        Their line numbers.
    origin : Origin
        The file.
    date_order : {"auto", "mdy", "dmy"}
        Order of dates such as 7/1/2024.
    """
    count = len(cells)
    text, shape = _matrix(cells, lines, origin)
    fields = {name: np.zeros(count, dtype=np.int64) for name in ("year", "one", "two", "clock", "offset")}
    numeric_order, dotted, zoned = (np.zeros(count, dtype=bool) for _ in range(3))
    keys = np.ascontiguousarray(shape).view(f"S{shape.shape[1]}").ravel()
    left = np.arange(count)
    while len(left):
        first = left[0]
        match = STAMP.fullmatch(cells[first])
        if match is None:
            raise _unreadable(cells[first], lines[first], origin)
        same = keys[left] == keys[first]
        rows, left = left[same], left[~same]
        block = text if len(rows) == count else text[rows]
        _fill(fields, rows, block, match)
        numeric_order[rows] = match["a"] is not None
        dotted[rows] = match["s2"] == "."
        zoned[rows] = match["zone"] is not None
    month_first, notes = _month_first(fields, numeric_order, dotted, lines, origin, date_order)
    swap = numeric_order & ~month_first
    month = np.where(swap, fields["two"], fields["one"])
    day = np.where(swap, fields["one"], fields["two"])
    seconds = _assemble(fields["year"], month, day, fields["clock"], cells, lines, origin)
    if zoned.any() and not zoned.all():
        line = lines[int(np.argmax(zoned != zoned[0]))]
        raise origin.error("some timestamps state an offset from UTC and others do not; write all alike.", line)
    return Stamps(seconds, fields["offset"] if count and zoned.all() else None, notes)


def check_years(seconds: NDArray[np.int64], lines: NDArray[np.int64], origin: Origin) -> None:
    """Refuse stamps outside the years 1900 to 2200, which only a fault can give."""
    low, high = ((year - 1970) * 31_556_952 for year in (_FIRST, _LAST))
    bad = np.flatnonzero((seconds < low) | (seconds > high))
    if len(bad):
        raise origin.error("the timestamp is not between 1900 and 2200; correct it.", lines[bad[0]])


def _matrix(
    cells: Sequence[str], lines: NDArray[np.int64], origin: Origin
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    try:
        packed = np.array(cells, dtype=np.bytes_)
    except UnicodeEncodeError:
        bad = next(i for i, cell in enumerate(cells) if not cell.isascii())
        raise _unreadable(cells[bad], lines[bad], origin) from None
    width = max(packed.dtype.itemsize, 1)
    text = packed.astype(f"S{width}").view(np.uint8).reshape(len(cells), width)
    return text, _SHAPE[text]


def _fill(
    fields: dict[str, NDArray[np.int64]], rows: NDArray[np.intp], block: NDArray[np.uint8], m: re.Match[str]
) -> None:
    """Read the fields of all rows that share the shape of the match."""

    def number(group: str) -> NDArray[np.int64] | int:
        if m[group] is None:
            return 0
        return _digits(block, *m.span(group))

    fields["year"][rows] = number("Y" if m["Y"] else "y") + (2000 if m["y"] and len(m["y"]) == 2 else 0)
    fields["one"][rows] = number("m" if m["Y"] else "a")
    fields["two"][rows] = number("d" if m["Y"] else "b")
    hour, minute, second = number("H"), number("M"), number("S")
    valid = (minute < 60) & (second < 60) & (hour <= 24) & ((hour < 24) | (minute + second == 0))
    if m["half"]:
        valid = (minute < 60) & (second < 60) & (hour >= 1) & (hour <= 12)
        hour = hour % 12 + (12 if m["half"] in "Pp" else 0)
    fields["clock"][rows] = np.where(valid, hour * 3600 + minute * 60 + second, -1)
    if m["zone"] and m["zone"][0] in "+-":
        low, high = m.span("zone")
        size = _digits(block, low + 1, low + 3) * 3600 + _digits(block, high - 2, high) * 60
        fields["offset"][rows] = -size if m["zone"][0] == "-" else size


def _digits(block: NDArray[np.uint8], low: int, high: int) -> NDArray[np.int64]:
    value = np.zeros(len(block), dtype=np.int64)
    for column in range(low, high):
        value = value * 10 + (block[:, column] - np.uint8(48))
    return value


def _month_first(
    fields: dict[str, NDArray[np.int64]],
    numeric: NDArray[np.bool_],
    dotted: NDArray[np.bool_],
    lines: NDArray[np.int64],
    origin: Origin,
    date_order: str,
) -> tuple[bool, list[str]]:
    """Decide between month/day and day/month by the values above twelve."""
    if not numeric.any() or date_order != "auto":
        return date_order != "dmy", []
    day_first = np.flatnonzero(numeric & (fields["one"] > 12))
    month_first = np.flatnonzero(numeric & (fields["two"] > 12))
    if len(day_first) and len(month_first):
        first, second = sorted((int(lines[day_first[0]]), int(lines[month_first[0]])))
        raise origin.error(
            f"dates put the day first on one line and the month first on another (lines {first} and {second}); "
            "write all dates alike."
        )
    if len(day_first) or len(month_first):
        return not len(day_first), []
    if dotted[numeric].all():
        return False, ["No day above 12 occurs; dates with dots were read as day.month.year."]
    return True, ["No day above 12 occurs; dates were read as month/day/year (date_order='dmy' reads day/month)."]


def _assemble(
    year: NDArray[np.int64],
    month: NDArray[np.int64],
    day: NDArray[np.int64],
    clock: NDArray[np.int64],
    cells: Sequence[str],
    lines: NDArray[np.int64],
    origin: Origin,
) -> NDArray[np.int64]:
    """Put calendar fields together, naming the first date that does not exist."""
    valid = (year >= _FIRST) & (year <= _LAST) & (month >= 1) & (month <= 12) & (day >= 1) & (clock >= 0)
    months = np.where(valid, (year - 1970) * 12 + month - 1, 0)
    starts = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    lengths = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) - starts
    bad = np.flatnonzero(~valid | (day > lengths))
    if len(bad):
        raise origin.error(
            f"{shorten(cells[bad[0]])} is not a time that exists between {_FIRST} and {_LAST}; "
            "correct it, or pass date_order='mdy' or 'dmy' if day and month are swapped.",
            lines[bad[0]],
        )
    return (starts + day - 1) * 86400 + clock


def _unreadable(cell: str, line: np.integer, origin: Origin) -> ValueError:
    if not cell.strip():
        return origin.error("the timestamp is empty; remove the line or give it a time.", line)
    return origin.error(f"cannot read {shorten(cell)} as a timestamp; write it like {EXAMPLES}.", line)
