"""From bytes to columns of cells: encoding, delimiter, header, numbers."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from ._origin import Origin, shorten
from ._stamps import CLOCK, EXAMPLES, STAMP

DELIMITERS = (";", "\t", "|", ",")
_SAMPLE = 200  # Lines looked at to find the delimiter, the header and the columns.
_SAMPLE_SIZE = 4_000_000  # Characters that these may take.
_CHUNK = 50_000  # Rows held as lists at a time.
_LONGEST = 64  # No number or timestamp is longer than this.
_BINARY = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1a"))
_ABSENT = {"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "--", "?", "missing", "no data"}
_HEADER_WORD = re.compile(r"time|date|stamp|interval|start|end|period|hour|day|zeit|datum|^ts$|^t$", re.IGNORECASE)
_GROUP = r"(?:\d{1,3}(?:%s\d{3})+|\d*)"
_WITH_POINT = re.compile(rf"[+-]?{_GROUP % ','}(?:\.\d*)?(?:[eE][+-]?\d+)?")
_WITH_COMMA = re.compile(rf"[+-]?{_GROUP % '[.]'}(?:,\d*)?(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_SPACED = re.compile(r"(?<=\d)[ '’\u00a0\u2009\u202f](?=\d{3}(?!\d))")


@dataclass
class Table:
    """A delimited text and where its parts are.

    Attributes
    ----------
    text : str
        The whole file.
    delimiter : str
        What separates its cells.
    header : list of str
        Column names; ``column 1``, ``column 2``, … when there is no header.
    first : int
        Line number of the first reading.
    sample : list of list of str
        The first readings, to infer things from.
    stamps : tuple of int
        Index of the timestamp column, or of a date and a time column.
    """

    origin: Origin
    text: str
    delimiter: str
    header: list[str]
    first: int
    sample: list[list[str]]
    stamps: tuple[int, ...]

    def index(self, *names: str) -> int | None:
        """Return the first column with one of these lower-case names."""
        lowered = [name.lower() for name in self.header]
        return next((lowered.index(name) for name in names if name in lowered), None)


def decode(data: bytes, origin: Origin) -> str:
    """Decode UTF-8 (with or without mark), UTF-16 with mark, or else Latin-1."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return data.decode("utf-16")
        except UnicodeDecodeError:
            raise origin.error("the file starts as UTF-16 text but is not; save it as UTF-8.") from None
    if data.startswith(b"PK\x03\x04"):
        raise origin.error("this is a zip archive or an Excel workbook; unpack it, or save the sheet as CSV.")
    # Deleting the forbidden bytes is the quickest way to learn whether there are any.
    if len(data.translate(None, _BINARY)) != len(data):
        raise origin.error("this is a binary file; save the readings as CSV, Green Button XML or parquet.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def find_table(text: str, origin: Origin) -> Table:
    """Find the delimiter, the header and the first reading of a text."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\x1a")
    if not text.strip():
        raise origin.error("the file is empty; export the readings again.")
    best: tuple[int, str, list[tuple[int, list[str]]]] = (0, "", [])
    for delimiter in DELIMITERS:
        rows = _sample_rows(text, delimiter)
        score = sum(_is_reading(row) for _, row in rows)
        if score > best[0]:
            best = (score, delimiter, rows)
    score, delimiter, rows = best
    if not score:
        raise _no_readings(text, origin)
    at = next(i for i, (_, row) in enumerate(rows) if _is_reading(row))
    stamps = _stamp_columns(rows[at][1])
    header, above = _header(rows[:at], len(rows[at][1]), stamps[0])
    stray = next(((line, row) for line, row in above if len(row) == len(rows[at][1])), None)
    if stray is not None:
        cell = stray[1][stamps[0]]
        raise origin.error(f"cannot read {shorten(cell)} as a timestamp; write it like {EXAMPLES}.", stray[0])
    if header is None:
        header = [f"column {i + 1}" for i in range(len(rows[at][1]))]
    sample = [row for _, row in rows[at:]]
    return Table(origin, text, delimiter, [h.strip() for h in header], rows[at][0], sample, stamps)


def take_columns(table: Table, wanted: Sequence[int]) -> tuple[list[list[str]], NDArray[np.int64]]:
    """Return the cells of some columns and the line number of every row."""
    columns: list[list[str]] = [[] for _ in wanted]
    lines: list[NDArray[np.int64]] = []
    width, line = len(table.header), table.first
    body = table.text.split("\n", line - 1)[-1]
    quoted = '"' in body
    reader = csv.reader(io.StringIO(body, newline=""), delimiter=table.delimiter, skipinitialspace=True)
    while rows := _next_rows(reader, line, table.origin):
        numbers = np.arange(line, line + len(rows), dtype=np.int64)
        line += len(rows)
        if quoted:  # A quoted cell may run over several lines.
            breaks = np.array([sum(cell.count("\n") for cell in row) for row in rows], dtype=np.int64)
            numbers[1:] += np.cumsum(breaks)[:-1]
            line += int(breaks.sum())
        # wanted[0] is the timestamp: where it is blank, the whole row may be.
        if set(map(len, rows)) != {width} or not all(map(str.strip, map(itemgetter(wanted[0]), rows))):
            rows, numbers = _check_widths(rows, numbers, width, max(wanted) + 1, table)
        for column, place in zip(columns, wanted, strict=True):
            column.extend(map(itemgetter(place), rows))
        lines.append(numbers)
    numbers = np.concatenate(lines) if lines else np.zeros(0, dtype=np.int64)
    for column in columns:
        _check_lengths(column, numbers, table.origin)
    return columns, numbers


def find_decimal(columns: Sequence[Sequence[str]], delimiter: str) -> str:
    """Tell whether commas in these cells are decimal commas.

    Between semicolons they are, unless a point follows one of them. Otherwise
    they are when one of them does not separate groups of three digits.
    """
    with_comma = [cell.strip() for column in columns for cell in column if "," in cell]
    if not with_comma:
        return "."
    if delimiter == ";":
        return "." if any(cell.rfind(".") > cell.rfind(",") for cell in with_comma) else ","
    return "." if all(_THOUSANDS.fullmatch(cell) for cell in with_comma) else ","


def parse_numbers(
    cells: Sequence[str], lines: NDArray[np.int64], origin: Origin, decimal: str, name: str
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
            values = np.fromiter(map(_float_or_nan, quick), dtype=np.float64, count=len(cells))
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


def _float_or_nan(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


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
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _sample_rows(text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """Return the first rows that are not blank, each with the line it starts on."""
    head = text[:_SAMPLE_SIZE] if len(text) <= _SAMPLE_SIZE else text[:_SAMPLE_SIZE].rpartition("\n")[0]
    reader = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter, skipinitialspace=True)
    rows = []
    try:
        for row in islice(reader, _SAMPLE):
            if any(cell.strip() for cell in row):
                rows.append((reader.line_num - sum(cell.count("\n") for cell in row), row))
    except csv.Error:
        pass  # Most likely not the delimiter: what was read so far decides.
    return rows


def _is_reading(row: list[str]) -> bool:
    """Tell whether a row holds a timestamp and, beside it, a number or a blank."""
    stamps = _stamp_columns(row)
    return bool(stamps) and any(_numeric(cell) for i, cell in enumerate(row) if i not in stamps)


def _numeric(cell: str) -> bool:
    return to_number(cell) is not None or to_number(cell, ",") is not None


def _stamp_columns(row: list[str]) -> tuple[int, ...]:
    """Return the first timestamp column, with its clock column if it is a bare date."""
    for i, cell in enumerate(row):
        match = STAMP.fullmatch(cell)
        if match is None:
            continue
        if match["H"] is None:
            for j, other in enumerate(row):
                if CLOCK.fullmatch(other):
                    return i, j
        return (i,)
    return ()


def _header(
    rows: list[tuple[int, list[str]]], width: int, stamp: int
) -> tuple[list[str] | None, list[tuple[int, list[str]]]]:
    """Return the header among the rows above the readings, and what stands below it."""
    for i in range(len(rows) - 1, -1, -1):
        row = rows[i][1]
        # Buildings may be called 101 and 102; then the time column tells a header from a reading.
        named = not any(cell.strip() and _numeric(cell) for cell in row)
        if len(row) >= 2 and abs(len(row) - width) <= 1 and len(row) > stamp:
            if named or _HEADER_WORD.search(row[stamp]):
                padded = [*row, *(f"column {k + 1}" for k in range(len(row), width))]
                return padded, rows[i + 1 :]
    return None, rows


def _no_readings(text: str, origin: Origin) -> ValueError:
    lines = [(i, line) for i, line in enumerate(text[:20_000].split("\n"), 1) if line.strip()]
    if len(lines) == 1:
        return origin.error("the file holds one line and no readings; export the readings again.")
    line, shown = lines[1]
    return origin.error(
        f"no column of timestamps beside a column of numbers was found (line {line} is {shorten(shown)}); "
        f"write timestamps like {EXAMPLES}, and separate columns by a comma, semicolon, tab or '|'."
    )


def _next_rows(reader: object, line: int, origin: Origin) -> list[list[str]]:
    try:
        return list(islice(reader, _CHUNK))  # type: ignore[call-overload]
    except csv.Error as error:
        raise origin.error(f"the cells cannot be told apart after line {line} ({error}); check its quotes.") from None


def _check_widths(
    rows: list[list[str]], numbers: NDArray[np.int64], width: int, least: int, table: Table
) -> tuple[list[list[str]], NDArray[np.int64]]:
    """Drop blank rows and refuse rows with too few or too many cells."""
    kept = []
    for i, row in enumerate(rows):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) < least or (len(row) > width and any(cell.strip() for cell in row[width:])):
            hint = "; quote numbers that hold a comma" if table.delimiter == "," and len(row) > width else ""
            raise table.origin.error(
                f"the row has {len(row)} cells where {width} are expected{hint or '; complete or remove it'}.",
                numbers[i],
            )
        kept.append(i)
    return [rows[i] for i in kept], numbers[kept]


def _check_lengths(cells: list[str], lines: NDArray[np.int64], origin: Origin) -> None:
    if cells and max(map(len, cells)) > _LONGEST:
        bad = next(i for i, cell in enumerate(cells) if len(cell) > _LONGEST)
        raise origin.error(
            f"the cell {shorten(cells[bad])} is {len(cells[bad])} characters long, too long for a time or a number; "
            "check the quotes and the delimiter there.",
            lines[bad],
        )
