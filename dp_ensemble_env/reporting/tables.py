"""The one way tables are printed and written.

A printed table fits the terminal, or 80 columns where there is none (the
variable COLUMNS overrides both). Columns of words wrap, numbers are never cut
or folded: a table that is too wide even so continues in a second block below,
with its first column repeated. Nothing but the standard library is needed.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import sys
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from dp_ensemble_env.tools.files import atomic_write

_GAP = 2  # spaces between columns
_LONGEST = 24  # longer words, such as paths, may be broken; no number is that long
_COMFORT = 16  # a column of words is not squeezed below this
_PROSE = 110  # notes are not set wider, whatever the terminal
_ANSI = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Styled(str):
    """A cell in a style: words out of bold, dim, red, green, yellow and cyan; shown on a terminal only."""

    style: str

    def __new__(cls, text: str, style: str) -> Styled:
        """Attach the style to the text."""
        cell = super().__new__(cls, text)
        cell.style = style
        return cell


def show_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Collection[str] | None = None,
    keep: int = 1,
    notes: Sequence[str] = (),
    width: int | None = None,
    file: TextIO | None = None,
) -> None:
    r"""Print a table.

    Parameters
    ----------
    title : str
        Printed above the table; may be empty.
    headings : sequence of str
        One for each column; they wrap at spaces. If all are empty, none are printed.
    rows : iterable of sequences of str
        One cell for each column. A row of one cell is a heading across the
        table, an empty row a line between rows. `Styled` cells have a colour.
    left : collection of str, optional
        Headings of the columns of words: to the left, and wrapped if need be.
        All others go to the right and never wrap. By default, the columns
        whose cells are not numbers.
    keep : int, default 1
        Leading columns that are repeated in each block of a table that is split.
    notes : sequence of str, optional
        Paragraphs below the table.
    width : int, optional
        Columns to print in; by default what `terminal_width` says.
    file : TextIO, optional
        By default sys.stdout.

    Examples
    --------
    >>> show_table("", ("controller", "score", "gap, $/load"), [("ad-hoc", "18.9", "263.19")], width=80)
    controller  score  gap, $/load
    ──────────────────────────────
    ad-hoc       18.9       263.19
    <BLANKLINE>
    """
    file = sys.stdout if file is None else file
    width = terminal_width(file) if width is None else width
    lines = [_paint(line, "bold", _colour(file)) for line in _wrap(title, width)] if title else []
    lines += _layout(list(headings), [list(row) for row in rows], left, keep, width, _colour(file))
    lines.append("")
    for note in notes:
        lines += _wrap(note, min(width, _PROSE))
    _print([*lines, ""] if notes else lines, file)


def show_text(text: str, *, width: int | None = None, file: TextIO | None = None) -> None:
    """Print a paragraph as wide as a table's notes, broken at spaces only."""
    file = sys.stdout if file is None else file
    _print(_wrap(text, min(terminal_width(file) if width is None else width, _PROSE)), file)


def terminal_width(file: TextIO | None = None) -> int:
    """Return the columns to print in: those of COLUMNS, of the terminal, or 80; 40 at least."""
    file = sys.stdout if file is None else file
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return max(40, int(asked))
    try:
        found = os.get_terminal_size(file.fileno()).columns if file.isatty() else 0
    except (OSError, ValueError):  # a closed or replaced stream has no terminal
        found = 0
    return max(40, found) if found else 80


def write_csv(path: Path, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write a CSV file atomically, numbers at full precision, empty cells for None and what is not finite."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if headings:
        writer.writerow(map(spreadsheet_safe, headings))
    writer.writerows([["" if plain(cell) is None else spreadsheet_safe(cell) for cell in row] for row in rows])
    with atomic_write(path) as stream:
        stream.write(text.getvalue())
    return path


def spreadsheet_safe(cell: Any) -> Any:
    """Return a cell that spreadsheets do not take for a formula: words that begin like one get an apostrophe.

    Examples
    --------
    >>> spreadsheet_safe("=HYPERLINK()"), spreadsheet_safe("-1.5"), spreadsheet_safe(-1.5)
    ("'=HYPERLINK()", '-1.5', -1.5)
    """
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def plain(cell: Any) -> Any:
    """Return a cell as JSON has it: None for a number that is not finite."""
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


# ------------------------------------------------------------------ layout
def _layout(
    headings: list[str], rows: list[list[str]], left: Collection[str] | None, keep: int, width: int, colour: bool
) -> list[str]:
    full = [row for row in rows if len(row) == len(headings)]
    for row in rows:
        if len(row) not in (0, 1, len(headings)):
            raise ValueError(f"a row has {len(row)} cells for {len(headings)} headings: {row}.")
    columns = [[row[i] for row in full] for i in range(len(headings))]
    if left is None:
        words = [not _numeric(column) for column in columns]
    else:
        words = [heading in left for heading in headings]
    least = _least(headings, columns, words, keep, width)
    lines: list[str] = []
    for block in _blocks(least, keep, width):
        lines += [""] if lines else []
        sizes = {i: least[i] for i in block}
        _grow(sizes, {i: _sizes(columns[i]) for i in block if words[i]}, width)
        _grow(sizes, {i: _sizes([headings[i]]) for i in block}, width)
        lines += _block(headings, rows, sizes, words, colour)
    return lines


def _least(headings: list[str], columns: list[list[str]], words: list[bool], keep: int, width: int) -> list[int]:
    """Return the width below which no column is squeezed: numbers whole, words in comfort if there is room."""
    least, hard = [], []  # comfortable, and what cannot be had any narrower
    for i, (heading, column) in enumerate(zip(headings, columns, strict=True)):
        wrapped = [heading, *column] if words[i] else [heading]
        hard.append(max([0, *(min(_LONGEST, size) for size in _sizes(" ".join(wrapped).split()))]))
        if words[i]:
            natural = max(_sizes([heading, *column]))
            least.append(min(natural, max(hard[i], _LONGEST if i < keep else _COMFORT)))
        else:
            hard[i] = max([hard[i], *_sizes(column)])
            least.append(hard[i])
    others = max(least[keep:], default=0)
    while keep and _span([*least[:keep], others]) > width:  # the repeated columns leave no room for any other
        widest = max(range(min(keep, len(least))), key=lambda i: least[i] - hard[i])
        if least[widest] == hard[widest]:
            break
        least[widest] -= 1
    return least


def _blocks(least: list[int], keep: int, width: int) -> list[list[int]]:
    """Distribute the columns over blocks that fit, the leading ones in each."""
    keys = list(range(min(keep, len(least))))
    blocks = [keys]
    for i in range(len(keys), len(least)):
        if len(blocks[-1]) > len(keys) and _span([least[j] for j in (*blocks[-1], i)]) > width:
            blocks.append(keys)
        blocks[-1] = [*blocks[-1], i]
    return blocks


def _grow(sizes: dict[int, int], texts: dict[int, list[int]], width: int) -> None:
    """Share what room is left among columns whose texts, given by their sizes, still wrap: most of them first."""
    while _span(list(sizes.values())) < width:
        wrapped = {i: sum(size > sizes[i] for size in found) for i, found in texts.items()}
        column = max(wrapped, key=lambda i: (wrapped[i], -sizes[i]), default=None)
        if column is None or not wrapped[column]:
            break
        sizes[column] += 1


def _block(
    headings: list[str], rows: list[list[str]], sizes: dict[int, int], words: list[bool], colour: bool
) -> list[str]:
    rule = "─" * _span(list(sizes.values()))
    lines = [*_line(headings, sizes, words, colour, bottom=True), rule] if any(headings) else []
    for row in rows:
        if not row:
            lines.append(rule)
        elif len(row) == 1 < len(headings):
            style = getattr(row[0], "style", "bold")
            lines += [_paint(line, style, colour) for line in _wrap(row[0], max(40, len(rule)))]
        else:
            lines += _line(row, sizes, words, colour)
    return lines


def _line(row: list[str], sizes: dict[int, int], words: list[bool], colour: bool, bottom: bool = False) -> list[str]:
    """Set the columns of a row that have a size in as many lines as they need."""
    stacks = {i: _wrap(row[i], size) for i, size in sizes.items()}
    height = max(len(stack) for stack in stacks.values())
    pieces = []
    for i, stack in stacks.items():
        blank = [""] * (height - len(stack))
        style = getattr(row[i], "style", "")
        column = []
        for text in blank + stack if bottom else stack + blank:
            space = " " * (sizes[i] - _size(text))
            column.append(_paint(text, style, colour) + space if words[i] else space + _paint(text, style, colour))
        pieces.append(column)
    return [(" " * _GAP).join(parts).rstrip() for parts in zip(*pieces, strict=True)]


def _wrap(text: str, width: int) -> list[str]:
    """Break a text at spaces; lines after the first keep its indentation."""
    lines = []
    for paragraph in text.split("\n"):
        indent = paragraph[: len(paragraph) - len(paragraph.lstrip(" "))]
        line = indent
        for word in paragraph.split():
            joined = f"{line} {word}" if line.strip() else f"{indent}{word}"
            if line.strip() and _size(joined) > width:
                lines.append(line)
                joined = f"{indent}{word}"
            while _size(joined) > width and _size(word) > _LONGEST:  # a path or the like
                end = next(i for i in range(len(joined), 0, -1) if i == 1 or _size(joined[:i]) <= width)
                lines.append(joined[:end])
                joined = indent + joined[end:]
            line = joined
        lines.append(line)
    return lines


def _numeric(column: list[str]) -> bool:
    """Say whether all cells of a column are numbers, perhaps with a unit of few letters; dashes count as such."""
    letters = [re.sub(r"[\W\d_]", "", re.sub(r"\d[eE][-+]?\d", "", cell)) for cell in column]
    digits = [any(c.isdecimal() for c in cell) for cell in column]
    return any(digits) and all(
        len(rest) <= 3 and (digit or not rest or rest in ("inf", "nan"))
        for rest, digit in zip(letters, digits, strict=True)
    )


def _span(sizes: Sequence[int]) -> int:
    return sum(sizes) + _GAP * (len(sizes) - 1)


def _sizes(texts: Iterable[str]) -> list[int]:
    return [_size(line) for text in texts for line in text.split("\n")]


def _size(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


# ------------------------------------------------------------------ printing
def _paint(text: str, style: str, colour: bool) -> str:
    if not (colour and style and text):
        return text
    return f"\x1b[{';'.join(_ANSI[word] for word in style.split())}m{text}\x1b[0m"


def _colour(file: TextIO) -> bool:
    return file.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _print(lines: list[str], file: TextIO) -> None:
    encoding = getattr(file, "encoding", None) or "utf-8"
    text = "".join(f"{line}\n" for line in lines)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:  # an old code page: what it lacks is shown as a question mark, the rule as dashes
        text = text.replace("─", "-").replace("–", "-").encode(encoding, "replace").decode(encoding)
    file.write(text)
