"""Numbers as people read them, and tables as CSV that spreadsheets read safely."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dp_ensemble_env.tools.files import atomic_write


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


def number_text(value: float, digits: int) -> str:
    """Write a number for people: a dash for none, and no minus before a zero.

    Examples
    --------
    >>> number_text(-0.04, 1), number_text(-1234.5, 1), number_text(float("nan"), 1)
    ('0.0', '-1,234.5', '–')
    """
    return "–" if math.isnan(value) else f"{round(value, digits) + 0.0:,.{digits}f}"
