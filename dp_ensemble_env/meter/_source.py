"""Rows of cells, from a text file that is read as a stream or from a sheet of a workbook.

A text file is looked through once for its encoding and its size, and is then
read a chunk of rows at a time, so that memory does not grow with the text.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter._limits import Limits
from dp_ensemble_env.meter._origin import Origin

_CHUNK = 50_000  # Rows held as lists at a time.
_SAMPLE = 200  # Rows looked at to find the delimiter, the header and the columns.
_BLOCK = 1 << 20
_BINARY = bytes(set(range(32)) - set(b"\t\n\r\f\v\x1a"))
DELIMITERS = (";", "\t", "|", ",")

Rows = list[list[str]]


class Source(Protocol):
    """Something that holds rows of cells."""

    origin: Origin
    delimiters: Sequence[str]

    def sample(self, delimiter: str) -> list[tuple[int, list[str]]]:
        """Return the first rows that are not blank, each with its line."""

    def rows(self, delimiter: str, first: int) -> Iterator[tuple[Rows, NDArray[np.int64]]]:
        """Yield chunks of rows from line `first` on, with their lines."""


class TextFile:
    """A delimited text, read as often as needed and never held whole."""

    delimiters: Sequence[str] = DELIMITERS

    def __init__(self, path: Path, origin: Origin, limits: Limits) -> None:
        self.path, self.origin, self.limits = path, origin, limits
        self.quoted = self.marked = False
        self.encoding = self._look_through()

    def _look_through(self) -> str:
        """Find the encoding: UTF-8 (with or without mark), UTF-16 with mark, or else Latin-1."""
        self.limits.check("bytes", self.path.stat().st_size, self.origin)
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
        self.limits.check("readings", lines, self.origin)
        return "utf-16" if wide else "utf-8-sig" if valid else "latin-1"

    def _check_lines(self, block: bytes, length: int) -> int:
        """Refuse endless lines; return how much of an unfinished one is behind us."""
        most = self.limits.most("characters in a line")
        if length + len(block) > most:
            parts = block.replace(b"\r", b"\n").split(b"\n")
            parts[0] = b" " * length + parts[0]
            self.limits.check("characters in a line", max(map(len, parts)), self.origin)
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
        try:
            for row in islice(reader, _SAMPLE):
                if any(cell.strip() for cell in row):
                    rows.append((reader.line_num - sum(cell.count("\n") for cell in row), row))
        except csv.Error:
            pass  # Most likely not the delimiter: what was read so far decides.
        return rows

    def rows(self, delimiter: str, first: int) -> Iterator[tuple[Rows, NDArray[np.int64]]]:
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

    def rows(self, delimiter: str, first: int) -> Iterator[tuple[Rows, NDArray[np.int64]]]:
        """Yield chunks of rows from row `first` on, with their numbers."""
        for low in range(first - 1, len(self._rows), _CHUNK):
            rows = self._rows[low : low + _CHUNK]
            yield rows, np.arange(low + 1, low + 1 + len(rows), dtype=np.int64)


def _decodes(decoder: codecs.IncrementalDecoder, block: bytes, final: bool = False) -> bool:
    try:
        decoder.decode(block, final)
    except UnicodeDecodeError:
        return False
    return True
