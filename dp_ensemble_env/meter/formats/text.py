"""Text: from the bytes of a file to rows of cells, and from rows to the columns of a table.

A text file is looked through once for its encoding and its size, and is then read a chunk of rows at a time, so that
memory does not grow with the text.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.origin import Origin, ReadSettings, shorten
from dp_ensemble_env.meter.stamps import EXAMPLES, is_epoch, match_clock, match_stamp, unreadable

IntArray = NDArray[np.int64]

_CHUNK = 50_000  # Rows held as lists at a time.
_SAMPLE = 200  # Rows looked at to find the delimiter, the header and the columns.
_BLOCK = 1 << 20
_BINARY = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1a"))
DELIMITERS = (";", "\t", "|", ",")
_LONGEST = 64  # No number or timestamp is longer than this.
_ABSENT = {"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "--", "?", "missing", "no data"}
_HEADER_WORD = re.compile(r"time|date|stamp|interval|start|end|period|hour|day|zeit|datum|^ts$|^t$", re.IGNORECASE)
_GROUP = r"(?:\d{1,3}(?:%s\d{3})+|\d*)"
_WITH_POINT = re.compile(rf"[+-]?{_GROUP % ','}(?:\.\d*)?(?:[eE][+-]?\d+)?")
_WITH_COMMA = re.compile(rf"[+-]?{_GROUP % '[.]'}(?:,\d*)?(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_SPACED = re.compile(r"(?<=\d)[ '’\u00a0\u2009\u202f](?=\d{3}(?!\d))")

Rows = list[list[str]]
#: Some columns of a chunk of rows, and the line of every row.
Columns = tuple[list[list[str]], IntArray]


# ------------------------------------------------------------------ rows
class TextFile:
    """A delimited text, read as often as needed and never held whole."""

    delimiters: Sequence[str] = DELIMITERS

    def __init__(self, path: Path, origin: Origin, settings: ReadSettings) -> None:
        self.path, self.origin, self.settings = path, origin, settings
        self.quoted = self.marked = False
        self.encoding = self._look_through()

    def _look_through(self) -> str:
        """Find the encoding: UTF-8 (with or without mark), UTF-16 with mark, or else Latin-1."""
        self.settings.limit("bytes", self.path.stat().st_size, self.origin)
        with self.path.open("rb") as stream:
            head = stream.read(2)
            stream.seek(0)
            wide = head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            decoder = codecs.getincrementaldecoder("utf-16" if wide else "utf-8-sig")()
            valid, blank, lines, length = True, True, 0, 0
            while block := stream.read(_BLOCK):
                # Deleting the forbidden bytes is the quickest way to learn whether there are any.
                if not wide and len(block.translate(None, _BINARY)) != len(block):
                    raise self.origin.error(
                        "this is a binary file; save the readings as CSV, Green Button XML or parquet."
                    )
                lines += block.count(b"\n")
                length = self._check_lines(block, length)
                self.quoted |= b'"' in block
                self.marked |= b"\x1a" in block
                valid = valid and _decodes(decoder, block)
                blank = blank and not block.strip(b" \t\r\n\f\v\x00\x1a\xef\xbb\xbf\xff\xfe")
            valid = valid and _decodes(decoder, b"", final=True)
        if wide and not valid:
            raise self.origin.error("the file starts as UTF-16 text but is not; save it as UTF-8.")
        if blank:
            raise self.origin.error("the file is empty; export the readings again.")
        self.settings.limit("readings", lines, self.origin)
        return "utf-16" if wide else "utf-8-sig" if valid else "latin-1"

    def _check_lines(self, block: bytes, length: int) -> int:
        """Refuse endless lines; return how much of an unfinished one is behind us."""
        if length + len(block) > self.settings.most("characters in a line"):
            parts = block.replace(b"\r", b"\n").split(b"\n")
            parts[0] = b" " * length + parts[0]
            self.settings.limit("characters in a line", max(map(len, parts)), self.origin)
            return len(parts[-1])
        last = max(block.rfind(b"\n"), block.rfind(b"\r"))
        return length + len(block) if last < 0 else len(block) - 1 - last

    def lines(self) -> Iterator[str]:
        """Yield the lines, each with a plain line end."""
        with self.path.open(encoding=self.encoding) as stream:
            yield from (line.rstrip("\x1a") for line in stream) if self.marked else stream

    def sample(self, delimiter: str) -> list[tuple[int, list[str]]]:
        """Return the first rows that are not blank, each with the line it starts on."""
        reader = csv.reader(self.lines(), delimiter=delimiter, skipinitialspace=True)
        rows = []
        # An error most likely means another delimiter: what was read so far decides.
        with suppress(csv.Error):
            for row in islice(reader, _SAMPLE):
                if any(cell.strip() for cell in row):
                    rows.append((reader.line_num - sum(cell.count("\n") for cell in row), row))
        return rows

    def rows(self, delimiter: str, first: int) -> Iterator[tuple[Rows, IntArray]]:
        """Yield chunks of rows from line `first` on, with their lines."""
        line = first
        reader = csv.reader(islice(self.lines(), first - 1, None), delimiter=delimiter, skipinitialspace=True)
        while rows := self._next(reader, line):
            numbers = np.arange(line, line + len(rows), dtype=np.int64)
            line += len(rows)
            if self.quoted:  # A quoted cell may run over several lines.
                breaks = np.array([sum(cell.count("\n") for cell in row) for row in rows], dtype=np.int64)
                numbers[1:] += np.cumsum(breaks)[:-1]
                line += int(breaks.sum())
            yield rows, numbers

    def _next(self, reader: Iterator[list[str]], line: int) -> Rows:
        try:
            return list(islice(reader, _CHUNK))
        except csv.Error as error:
            raise self.origin.error(
                f"the cells cannot be told apart after line {line} ({error}); check its quotes."
            ) from None


class Sheet:
    """Rows that are in memory already, such as those of a workbook."""

    delimiters: Sequence[str] = ("",)

    def __init__(self, rows: Rows, origin: Origin) -> None:
        self.origin, self._rows = origin, rows

    def sample(self, delimiter: str) -> list[tuple[int, list[str]]]:
        """Return the first rows that are not blank, each with its number."""
        return [(i, row) for i, row in enumerate(self._rows[:_SAMPLE], 1) if any(cell.strip() for cell in row)]

    def rows(self, delimiter: str, first: int) -> Iterator[tuple[Rows, IntArray]]:
        """Yield chunks of rows from row `first` on, with their numbers."""
        for low in range(first - 1, len(self._rows), _CHUNK):
            rows = self._rows[low : low + _CHUNK]
            yield rows, np.arange(low + 1, low + 1 + len(rows), dtype=np.int64)


Source = TextFile | Sheet


def _decodes(decoder: codecs.IncrementalDecoder, block: bytes, final: bool = False) -> bool:
    try:
        decoder.decode(block, final)
    except UnicodeDecodeError:
        return False
    return True


# ------------------------------------------------------------------ tables
@dataclass
class Table:
    """A table and where its parts are."""

    source: Source
    delimiter: str
    header: list[str]
    """Column names; ``column 1``, ``column 2``, … when there is no header."""
    first: int
    """Line number of the first reading."""
    sample: list[list[str]]
    """The first readings, to infer things from."""
    stamps: tuple[int, ...]
    """Index of the timestamp column, or of a date and a time column."""

    @property
    def origin(self) -> Origin:
        """The file."""
        return self.source.origin

    def index(self, *names: str) -> int | None:
        """Return the first column with one of these lower-case names."""
        lowered = [name.lower() for name in self.header]
        return next((lowered.index(name) for name in names if name in lowered), None)

    def cells(self, place: int) -> list[str]:
        """Return the cells of a column in the sample."""
        return [row[place] for row in self.sample if len(row) > place]

    @property
    def dated(self) -> bool:
        """Whether the first reading states its date alone."""
        match = match_stamp(self.sample[0][self.stamps[0]])
        return len(self.stamps) == 1 and match is not None and match["H"] is None


def find_table(source: Source) -> Table:
    """Find the delimiter, the header and the first reading."""
    samples = [(delimiter, source.sample(delimiter)) for delimiter in source.delimiters]
    delimiter, rows = max(samples, key=lambda one: sum(_is_reading(row) for _, row in one[1]))
    at = next((i for i, (_, row) in enumerate(rows) if _is_reading(row)), None)
    if at is None:
        raise _no_readings(source)
    stamps = _stamp_columns(rows[at][1])
    times = [row[stamps[0]] for _, row in rows[at:] if len(row) > stamps[0]]
    if is_epoch(times[0]) and len(times) > 1 and len(set(times)) == 1:  # a number plate, such as that of an account
        raise _no_readings(source)
    header, above = _header(rows[:at], len(rows[at][1]), stamps[0])
    for line, row in above:
        if len(row) == len(rows[at][1]):
            raise unreadable(row[stamps[0]], line, source.origin)
    if header is None:
        header = [f"column {i + 1}" for i in range(len(rows[at][1]))]
    sample = [row for _, row in rows[at:]]
    return Table(source, delimiter, [h.strip() for h in header], rows[at][0], sample, stamps)


def take_columns(table: Table, wanted: Sequence[int]) -> Iterator[Columns]:
    """Yield the cells of some columns and the line number of every row, a chunk at a time."""
    width = len(table.header)
    for rows, numbers in table.source.rows(table.delimiter, table.first):
        # wanted[0] is the timestamp: where it is blank, the whole row may be.
        uneven = set(map(len, rows)) != {width}
        if uneven or not _ABSENT.isdisjoint(row[wanted[0]].strip().lower() for row in rows):
            rows, numbers = _check_widths(rows, numbers, width, max(wanted) + 1, table)
        columns = [list(map(itemgetter(place), rows)) for place in wanted]
        for column in columns:
            if column and max(map(len, column)) > _LONGEST:
                bad = next(i for i, cell in enumerate(column) if len(cell) > _LONGEST)
                raise table.origin.error(
                    f"the cell {shorten(column[bad])} is {len(column[bad])} characters long, too long for a time or a "
                    "number; check the quotes and the delimiter there.",
                    numbers[bad],
                )
        yield columns, numbers


def find_decimal(table: Table, wanted: Sequence[int]) -> str:
    """Tell whether commas in the cells of some columns are decimal commas.

    Between semicolons they are, unless a point follows one of them. Otherwise
    they are when one of them does not separate groups of three digits.
    """
    if table.delimiter == "," and not getattr(table.source, "quoted", True):
        return "."  # Every comma separates two cells.
    commas = False
    for columns, _ in take_columns(table, [table.stamps[0], *wanted]):
        with_comma = [cell.strip() for column in columns[1:] for cell in column if "," in cell]
        commas = commas or bool(with_comma)
        if table.delimiter == ";":
            if any(cell.rfind(".") > cell.rfind(",") for cell in with_comma):
                return "."
        elif not all(_THOUSANDS.fullmatch(cell) for cell in with_comma):
            return ","
    return "," if commas and table.delimiter == ";" else "."


def parse_numbers(
    cells: Sequence[str], lines: IntArray, origin: Origin, decimal: str, name: str
) -> NDArray[np.float64]:
    """Parse a column of numbers; an empty cell or a word for it becomes NaN."""
    joined = "\n".join(cells)
    quick = cells
    if decimal == "," and "," in joined and "." not in joined:
        quick = joined.replace(",", ".").split("\n")
    # float() takes "1_000" and "infinity" too, which no meter means.
    if "_" not in joined and len(quick) == len(cells) and not (decimal == "," and "." in joined):
        try:
            values = np.fromiter(map(float, quick), dtype=np.float64, count=len(cells))
        except ValueError:
            values = np.full(len(cells), np.nan)
            for i, cell in enumerate(quick):
                with suppress(ValueError):
                    values[i] = float(cell)
        odd = np.flatnonzero(~np.isfinite(values))
    else:
        values, odd = np.empty(len(cells)), np.arange(len(cells))
    for i in odd.tolist():
        number = to_number(cells[i], decimal)
        if number is None:
            raise origin.error(
                f"cannot read {shorten(cells[i])} in column {name!r} as a number; correct it, "
                "or empty the cell to make it a gap.",
                lines[i],
            )
        values[i] = number
    return values


def to_number(cell: str, decimal: str = ".") -> float | None:
    """Return the number in a cell, NaN when it is blank, None when it is none."""
    text = cell.strip()
    if text.lower() in _ABSENT:
        return float("nan")
    text = _SPACED.sub("", text.replace("\u2212", "-"))
    pattern, group = (_WITH_COMMA, ".") if decimal == "," else (_WITH_POINT, ",")
    if not pattern.fullmatch(text):
        return None
    try:
        number = float(text.replace(group, "").replace(",", "."))
    except ValueError:  # such as a sign without digits
        return None
    return number if np.isfinite(number) else None


def _is_reading(row: list[str]) -> bool:
    """Tell whether a row holds a timestamp and, beside it, a number or a blank."""
    stamps = _stamp_columns(row)
    return bool(stamps) and any(_numeric(cell) for i, cell in enumerate(row) if i not in stamps)


def _numeric(cell: str) -> bool:
    return to_number(cell) is not None or to_number(cell, ",") is not None


def _stamp_columns(row: list[str]) -> tuple[int, ...]:
    """Return the first timestamp column, with its clock column if it is a bare date."""
    for i, cell in enumerate(row):
        if (match := match_stamp(cell)) is not None:
            clocks = [j for j, other in enumerate(row) if match["H"] is None and match_clock(other)]
            return (i, *clocks[:1])
    return next(((i,) for i, cell in enumerate(row) if is_epoch(cell)), ())


def _header(
    rows: list[tuple[int, list[str]]], width: int, stamp: int
) -> tuple[list[str] | None, list[tuple[int, list[str]]]]:
    """Return the header among the rows above the readings, and what stands below it."""
    for i, (_, row) in reversed(list(enumerate(rows))):
        # Buildings may be called 101 and 102; then the time column tells a header from a reading.
        named = not any(cell.strip() and _numeric(cell) for cell in row)
        fits = len(row) >= 2 and abs(len(row) - width) <= 1 and len(row) > stamp
        if fits and (named or _HEADER_WORD.search(row[stamp])):
            return [*row, *(f"column {k + 1}" for k in range(len(row), width))], rows[i + 1 :]
    return None, rows


def _no_readings(source: Source) -> ValueError:
    lines = source.sample(source.delimiters[0])
    if len(lines) == 1:
        return source.origin.error("the file holds one line and no readings; export the readings again.")
    word = source.origin.word
    line, row = lines[1] if lines else (1, [""])
    shown = shorten((source.delimiters[0] or ", ").join(row))
    return source.origin.error(
        f"no column of timestamps beside a column of numbers was found ({word} {line} is {shown}); "
        f"write timestamps like {EXAMPLES}, and separate columns by a comma, semicolon, tab or '|'."
    )


def _check_widths(rows: Rows, numbers: IntArray, width: int, least: int, table: Table) -> tuple[Rows, IntArray]:
    """Drop rows without any content and refuse rows with too few or too many cells."""
    kept = []
    for i, row in enumerate(rows):
        if all(cell.strip().lower() in _ABSENT for cell in row):
            continue
        if len(row) < least or (len(row) > width and any(cell.strip() for cell in row[width:])):
            hint = "; quote numbers that hold a comma" if table.delimiter == "," and len(row) > width else ""
            raise table.origin.error(
                f"the row has {len(row)} cells where {width} are expected{hint or '; complete or remove it'}.",
                numbers[i],
            )
        kept.append(i)
    return [rows[i] for i in kept], numbers[kept]
