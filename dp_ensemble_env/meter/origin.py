"""What a format is given and returns: the settings of reading, raw readings, and the wording of a complaint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.meter.clocks import get_zone
from dp_ensemble_env.tools.validation import check_choice, check_positive, clock, option

#: kW (or kWh) per unit.
UNITS = {"W": 1e-3, "kW": 1.0, "MW": 1e3, "Wh": 1e-3, "kWh": 1.0, "MWh": 1e3}
SPELLED = {unit.lower(): unit for unit in UNITS}


class MeterFileError(ValueError):
    """A meter file, or one of its lines, cannot be read."""


@dataclass(frozen=True)
class Origin:
    """A file, named in every complaint; `word` is what its records are called."""

    name: str
    word: str = "line"

    def error(self, message: str, line: int | np.integer | None = None) -> MeterFileError:
        """Return the one-sentence error for the file, or for one of its lines."""
        where = "" if line is None else f", {self.word} {int(line)}"
        return MeterFileError(f"{self.name}{where}: {message}")

    def off_grid(self, second: int, step: int, line: int, more: str = "") -> MeterFileError:
        """Return the error for a reading that does not lie on the grid of the others."""
        message = f"{clock(int(second))} does not lie on the {step / 60:g}-minute grid of the other readings{more}"
        return self.error(f"{message}; correct it, or resample the file to even intervals.", line)


Doubtful = Literal["error", "missing", "keep"]
#: What is counted, and how much of it a file may have before it is taken for a mistake or an attack.
MOST = {
    "bytes": 2_000_000_000,
    "readings": 20_000_000,
    "characters in a line": 1_000_000,
    "bytes in one XML token": 1_000_000,
    "meters": 10_000,
    "bytes once unpacked": 4_000_000_000,
}


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """How a meter file is read."""

    column: str | tuple[str, ...] | None = None
    """Column or channel to read, several names to add up, or 'sum' for all of them."""
    meter_id: str | None = None
    """Meter to read from a file that lists several one below the other, or 'sum' for all of them."""
    unit: str | None = None
    """Unit, if the file does not state it: kW, kWh, W, Wh, MW or MWh."""
    stamp: Literal["start", "end"] | None = None
    """Which end of its interval a timestamp marks, if the file does not state it."""
    timezone: str | None = None
    """Time zone such as America/New_York: converts UTC stamps, and makes clock changes exact."""
    spikes: Doubtful = "error"
    """What to do with implausibly high readings."""
    negatives: Doubtful = "error"
    """What to do with negative readings."""
    zeros: Doubtful = "keep"
    """What to do with readings of exactly zero."""
    cumulative: Literal["auto", "yes", "no"] = "auto"
    """Whether the values are the states of a register, to be differenced."""
    catch_up: Literal["missing", "keep"] = "missing"
    """What to do with a reading that carries the energy of a whole gap."""
    date_order: Literal["auto", "mdy", "dmy"] = "auto"
    """Order of dates such as 7/1/2024."""
    decimal: Literal["auto", ".", ","] = "auto"
    """Decimal sign of a text file."""
    format: str = "auto"
    """Registered name of the file format, by default recognised from the first bytes."""
    limits: float = 1.0
    """Multiplies every limit on the size of a file."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(ReadSettings).items():
            value, kinds = getattr(self, name), (hint, *get_args(hint))
            choices = next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())
            if choices and value is not None:
                check_choice(value, name, choices)
        if self.unit is not None:
            object.__setattr__(self, "unit", check_choice(as_unit(self.unit), "unit", UNITS))
        if isinstance(self.column, list):
            object.__setattr__(self, "column", tuple(self.column))
        check_positive(self.limits, "limits")
        get_zone(self.timezone)

    @property
    def zone(self) -> tzinfo | None:
        """The time zone, if one is named."""
        return get_zone(self.timezone)

    def most(self, what: str) -> int:
        """Return how many of something a file may have."""
        return int(MOST[what] * self.limits)

    def limit(self, what: str, count: int, origin: Origin) -> None:
        """Refuse a file that has more of something than it may; say how to raise the limit."""
        if count > self.most(what):
            raise origin.error(
                f"the file has more than {self.most(what):,} {what}; if that is right, raise all limits with "
                f"{option('limits', max(-(-count // MOST[what]), 2))}."
            )


@dataclass
class Readings:
    """Readings in file order, before any rule is applied."""

    origin: Origin
    seconds: NDArray[np.int64]
    """Stamps, as seconds of the local wall clock since 1970, (n,)."""
    values: NDArray[np.float64]
    """A column for each meter, in `unit`; NaN where the cell is empty, (n, m)."""
    names: list[str]
    """Names of the columns."""
    lines: NDArray[Any]
    """Line numbers, for messages, (n,)."""
    unit: str | None = None
    """What the file says, or its format takes for granted; None when neither does; `stamp` alike."""
    stamp: str | None = None
    zone: tzinfo | None = None
    """The time zone, when it is known."""
    step: int | None = None
    """Seconds per interval, when the file states it."""
    notes: list[str] = field(default_factory=list)
    """Rules applied so far."""
    stated: dict[str, str] = field(default_factory=dict)
    """Columns whose unit the file itself states, with that unit: no argument may contradict it."""
    register: bool | None = None
    """Whether the values are the states of a register, to be differenced; None when that is unknown."""
    lumped: NDArray[np.bool_] | None = None
    """Readings that are parts of one that lasts several intervals, by the file's own account, (n,)."""
    instants: NDArray[np.int64] | None = None
    """The stamps in UTC, where they are known, (n,)."""
    refusal: str = ""
    """Why this meter is refused once it is asked for; empty where it is not."""
    placed: bool = False
    """Whether the stamps are starts of intervals for sure, since the intervals are numbered."""

    def reorder(self, rows: NDArray[np.intp] | slice) -> None:
        """Put all rows in another order."""
        for name in ("seconds", "values", "lines", "lumped", "instants"):
            if (value := getattr(self, name)) is not None:
                setattr(self, name, value[rows])

    def part(self, rows: NDArray[Any] | slice, columns: list[int] | None = None) -> Readings:
        """Return some of the rows, and some of the columns."""
        part = replace(self, notes=list(self.notes))
        part.reorder(rows)
        if columns is not None:
            part.values, part.names = part.values[:, columns], [self.names[i] for i in columns]
            part.stated = {name: unit for name, unit in self.stated.items() if name in part.names}
        if len(part.stated) == len(part.names) == 1:
            part.unit = part.unit or next(iter(part.stated.values()))
        return part


def join(parts: list[Readings]) -> Readings:
    """Put the readings of several meters side by side, by their stamps, to be added up."""
    first = parts[0]
    for what, said in (("units", {p.unit for p in parts}), ("lengths of interval", {p.step for p in parts})):
        if len(said) > 1:
            raise first.origin.error(
                f"the meters to add up have different {what} ({', '.join(sorted(map(str, said)))}); choose one of them."
            )
    # The clock shows the autumn hour twice, so a stamp may stand for several readings: the first, the second, …
    turns = [_turns(part.seconds) for part in parts]
    most = max(int(turn.max(initial=0)) for turn in turns) + 1
    keys = [part.seconds * most + turn for part, turn in zip(parts, turns, strict=True)]
    grid = np.unique(np.concatenate(keys))
    values, lines = np.full((len(grid), len(parts)), np.nan), np.zeros(len(grid), dtype=np.int64)
    lumped = np.zeros(len(grid), dtype=bool)
    for column, (part, key) in enumerate(zip(parts, keys, strict=True)):
        place = np.searchsorted(grid, key)
        values[place, column], lines[place] = part.values.sum(axis=1), part.lines
        if part.lumped is not None:
            lumped[place[part.lumped]] = True
    return replace(
        first,
        seconds=grid // most,
        values=values,
        lines=lines,
        names=[part.names[0] for part in parts],
        notes=list(dict.fromkeys(note for part in parts for note in part.notes)),
        stated={name: unit for part in parts for name, unit in part.stated.items()},
        lumped=lumped if lumped.any() else None,
        instants=None,
    )


def _turns(seconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count, for every reading, how many before it carry the same stamp."""
    order = np.argsort(seconds, kind="stable")
    _, starts, sizes = np.unique(seconds[order], return_index=True, return_counts=True)
    turns = np.empty(len(seconds), dtype=np.int64)
    turns[order] = np.arange(len(seconds)) - np.repeat(starts, sizes)
    return turns


def most_common(lengths: NDArray[np.int64]) -> int:
    """Return the most common of some lengths; of equally common ones the shortest."""
    if (lengths == lengths[0]).all():  # without a copy, as in most files
        return int(lengths[0])
    values, counts = np.unique(lengths, return_counts=True)
    return int(values[np.argmax(counts)])


def plural(count: int, noun: str) -> str:
    """Write a count with its noun, such as "1 night" or "3 nights"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def shorten(text: str, most: int = 60) -> str:
    """Quote a piece of a file, shortened when it is long."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def name_list(names: Sequence[Any], most: int = 40) -> str:
    """Write names in quotes, or other things as they are, shortened when there are many."""
    shown = ", ".join(repr(name) if isinstance(name, str) else str(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names)} in all)"


def as_unit(value: str) -> str:
    """Return a unit in its usual spelling: "kwh" and "KWH" are kWh."""
    return SPELLED.get(value.strip().lower(), value) if isinstance(value, str) else value


def broken(error: BaseException, what: str, remedy: str, origin: Origin) -> MeterFileError:
    """Return the error of a file that a library cannot read, with the first line of its complaint."""
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return origin.error(f"the {what} cannot be read ({reason}); {remedy}.")
