"""Raw readings as a file gives them, and the wording of a complaint about one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import tzinfo

import numpy as np
from numpy.typing import NDArray

#: kW (or kWh) per unit.
UNITS = {"W": 1e-3, "kW": 1.0, "MW": 1e3, "Wh": 1e-3, "kWh": 1.0, "MWh": 1e3}


@dataclass(frozen=True)
class Origin:
    """A file, named in every complaint; `word` is what its records are called."""

    name: str
    word: str = "line"

    def error(self, message: str, line: int | np.integer | None = None) -> ValueError:
        """Return the one-sentence error for the file, or for one of its lines."""
        where = "" if line is None else f", {self.word} {int(line)}"
        return ValueError(f"{self.name}{where}: {message}")


@dataclass
class Readings:
    """Readings in file order, before any rule is applied.

    Attributes
    ----------
    origin : Origin
        The file.
    seconds : (n,) int64
        Stamps, as seconds of the local wall clock since 1970.
    values : (n, m) float64
        One column per meter, in `unit`; NaN where the cell is empty.
    names : list of str
        Names of the columns.
    lines : (n,) int64
        Line numbers, for messages.
    unit, stamp : str or None
        What the file says, or its format takes for granted; None when neither does.
    stated : dict of str
        Columns whose unit the file itself states, with that unit: no argument may contradict it.
    zone : tzinfo or None
        The time zone, when it is known.
    step : int or None
        Seconds per interval, when the file states it.
    notes : list of str
        Rules applied so far.
    """

    origin: Origin
    seconds: NDArray[np.int64]
    values: NDArray[np.float64]
    names: list[str]
    lines: NDArray[np.int64]
    unit: str | None = None
    stamp: str | None = None
    zone: tzinfo | None = None
    step: int | None = None
    notes: list[str] = field(default_factory=list)
    stated: dict[str, str] = field(default_factory=dict)


def plural(count: int, noun: str) -> str:
    """Write a count with its noun, such as "1 night" or "3 nights"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def shorten(text: str, most: int = 60) -> str:
    """Quote a piece of a file, shortened when it is long."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def name_list(names: list[str], most: int = 40) -> str:
    """Write column names, shortened when there are many."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names)} in all)"
