"""Where participants come from: meter files, one participant at a time, or simulated from any model.

**Reading.** The stability of this step is part of the proof: **dropping one participant leaves every other count as it
was.** So whatever is not a participant's own is declared (bounds of the levels, step, layout, columns, settings of the
reader), and whatever is inferred (order of day and month, decimal sign, channel, unit) is inferred from the
participant's own lines alone. A file with many participants is split once, without looking at a reading, and each part
is read alone:

* ``"files"``, a folder: one participant a file, of any format that `dp_ensemble_env.meter` reads, with all its meters;
* ``"wide"``, text or parquet: the first column holds the time, every other one a participant;
* ``"long"``, text or parquet: the column `id_column` names the participant of each line, whatever the meter is.

A participant whose own lines cannot be read, or have another step than the declared one, is left out. A file is refused
for its declarations, for duplicate names and for lines that cannot be split, never for somebody's readings.

**Simulating.** A participant lives a number of days, each an episode of the model. The context is that of the world:
its path is drawn once a day and is the same for all. Which times and contexts share a matrix is the structure of a
scenario, written in its code, and public: where the default (and the guess, if there is one) repeats itself exactly,
its times and contexts form one class and are released together.
"""

from __future__ import annotations

import csv
import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain.calendar import select_days
from dp_ensemble_env.meter.origin import Origin
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.fleet import SUMMER_STEPS, Fleet
from dp_ensemble_env.privacy.mechanisms.base import Event, Permit, Seeding
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FleetMechanism
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.compile import njit
from dp_ensemble_env.tools.files import readable_file
from dp_ensemble_env.tools.validation import as_float_array, check_choice, check_count, check_positive

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
LAYOUTS = ("files", "wide", "long")
#: Endings of the files that are read from a folder.
METER_FILES = (".csv", ".parquet", ".tsv", ".txt", ".xlsx", ".xml")
_TEXT: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": ""}
_BATCH = 4_000_000  #: Decisions that are simulated at a time.
HETEROGENEITY = 30.0  #: Rows of participants are drawn from Dir(30 · default), unless a spec says otherwise.
#: Digits of the behaviour that the seed of a fleet depends on, so that rounding on another machine does not matter.
_DIGITS = 6
_KEPT = 4  #: Fleets that are kept.


# ------------------------------------------------------------------ reading
def read_participants(
    path: Path,
    reader: Mapping[str, Any],
    step_minutes: float,
    layout: str | None = None,
    id_column: str | None = None,
    delimiter: str = ",",
    season: tuple[str, str] | None = None,
    exclude: Any = (),
) -> tuple[dict[str, list[FloatArray]], dict[str, str]]:
    """Return the power of each participant's meters at the declared step, and why others were left out."""
    from dp_ensemble_env.meter import ReadSettings, read_meters

    seconds = round(60.0 * check_positive(step_minutes, "step_minutes"))
    settings = ReadSettings(**reader)  # refuses a setting that there is not
    kept: dict[str, list[FloatArray]] = {}
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, file in _split(path, layout, id_column, delimiter, Path(folder), settings):
            if name in kept or name in left_out:
                raise ValueError(
                    f"the participant {name!r} is in {path} twice; rename one, or join them by an id column."
                )
            try:
                meters = [_at_step(one, seconds) for one in read_meters(file, settings).values()]
                kept[name] = [np.where(select_days(t, season, exclude), kw, np.nan) for t, kw in meters]
            except ValueError as error:
                left_out[name] = str(error)
    return kept, left_out


def _at_step(series: Any, seconds: int) -> tuple[NDArray[np.datetime64], FloatArray]:
    """Return times and power at the declared step; finer readings are averaged, and a mean of a gap is a gap."""
    own = int(series.step / np.timedelta64(1, "s"))
    if seconds % own:
        raise ValueError(f"it has a reading every {own / 60:g} minutes, and {seconds / 60:g} were declared.")
    many = seconds // own
    late = int(series.times[0].astype("datetime64[s]").astype(np.int64) % seconds) // own
    kw = np.concatenate([np.full(late, np.nan), series.kw, np.full(-(late + len(series.kw)) % many, np.nan)])
    start = series.times[0] - np.timedelta64(late * own, "s")
    return start + np.arange(len(kw) // many) * np.timedelta64(seconds, "s"), kw.reshape(-1, many).mean(axis=1)


def _split(
    path: Path, layout: str | None, id_column: str | None, delimiter: str, folder: Path, settings: Any
) -> Iterator[tuple[str, Path]]:
    """Yield the name of each participant, and a file with its lines alone."""
    chosen = layout or ("long" if id_column is not None else "files" if path.is_dir() else "wide")
    check_choice(chosen, "layout", LAYOUTS)
    if (chosen == "long") != (id_column is not None):
        raise ValueError(
            f"layout={chosen!r} and id_column={id_column!r} contradict each other; name the column of a long file."
        )
    if not path.is_dir():
        files = [readable_file(path)]
    elif not (files := sorted(file for file in path.iterdir() if file.suffix.lower() in METER_FILES)):
        raise ValueError(f"the folder {path} holds no meter files ({', '.join(METER_FILES)}); give another folder.")
    if chosen == "files":
        yield from ((file.name, file) for file in files)
        return
    for number, file in enumerate(files):
        settings.limit("bytes", readable_file(file).stat().st_size, Origin(file.name))
        header, rows = _parquet(file) if file.suffix == ".parquet" else _text(file, delimiter)
        header = [name.strip() for name in header]
        if len(header) < 2:
            raise ValueError(f"the first line of {file} names no columns; use commas, or in Python pass the delimiter.")
        if twice := sorted({name for name in header if header.count(name) > 1}):
            raise ValueError(f"the column {twice[0]!r} is in {file} twice; give every participant a different name.")
        parts = _by_column(header, rows) if chosen == "wide" else _by_id(header, rows, str(id_column), file)
        for index, (name, names, lines) in enumerate(parts):
            part = folder / f"{number}-{index}.csv"
            with part.open("w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
                csv.writer(stream, delimiter=delimiter).writerows([names, *lines])
            yield name, part


def _text(file: Path, delimiter: str) -> tuple[list[str], list[list[str]]]:
    with file.open(**_TEXT) as stream:
        header, *rows = csv.reader(stream, delimiter=delimiter) if file.stat().st_size else [[]]
    for number, row in enumerate(rows, 2):
        if row and len(row) != len(header):
            raise ValueError(
                f"line {number} of {file} has {len(row)} cells, its header {len(header)}; correct the file."
            )
    return header, [row for row in rows if row]


def _parquet(file: Path) -> tuple[list[str], list[list[str]]]:
    from pyarrow import parquet

    table = parquet.read_table(file)
    columns = [["" if one is None else str(one) for one in column.to_pylist()] for column in table.columns]
    return table.column_names, [list(row) for row in zip(*columns, strict=True)]


def _by_column(header: list[str], rows: list[list[str]]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    for index, name in enumerate(header[1:], 1):
        yield name, [header[0], name], [[row[0], row[index]] for row in rows if row[index].strip()]


def _by_id(
    header: list[str], rows: list[list[str]], id_column: str, file: Path
) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    if id_column not in header:
        raise ValueError(f"{file} has no column {id_column!r}; its columns are {', '.join(header)}.")
    at = header.index(id_column)
    groups: dict[str, list[list[str]]] = {}
    for row in rows:
        groups.setdefault(row[at], []).append(row[:at] + row[at + 1 :])
    for name, lines in groups.items():
        yield name, header[:at] + header[at + 1 :], lines


# ------------------------------------------------------------------ simulating
def simulated(
    model: EnsembleModel,
    number: int,
    seed: int | Sequence[int],
    *,
    heterogeneity: float = HETEROGENEITY,
    days: int = 30,
    steps: int = SUMMER_STEPS,
) -> Fleet:
    """Simulate participants of a model: a summer of moves between levels, or days with nature and contexts."""
    if model.is_plain and model.default.ndim == 2:
        return Fleet.simulate(model, number, seed, heterogeneity=heterogeneity, steps=steps)
    return live(model, number, days, np.random.default_rng(seed), heterogeneity)


@dataclass(frozen=True)
class SimulatedFleet(FleetMechanism):
    """A mechanism that draws from simulated participants of the model at hand, as ``participants=1000`` in a spec asks.

    They depend on the model's behaviour, their number and their heterogeneity; the seed of a release moves the noise
    alone.
    """

    name: ClassVar[str] = "simulated fleet"
    mechanism: FleetMechanism
    participants: int
    heterogeneity: float = HETEROGENEITY
    _fleets: ClassVar[dict[tuple[str, int, float], Fleet]] = {}

    def __post_init__(self) -> None:
        check_count(self.participants, "participants")
        check_positive(self.heterogeneity, "heterogeneity", allow_inf=True)

    @property
    def spec(self) -> str:
        """The text that makes this mechanism again."""
        return f"{self.mechanism.spec},participants={self.participants},heterogeneity={self.heterogeneity:g}"

    def data_of(self, model: Any) -> Fleet:
        """Simulate the participants; the same for the same behaviour, number and heterogeneity."""
        plain = hashlib.sha256(repr((model.default.shape, model.horizon, model.n_contexts)).encode())
        for array in (model.default, model.initial):
            plain.update(np.round(np.asarray(array, dtype=float), _DIGITS).tobytes())
        key = (plain.hexdigest(), self.participants, self.heterogeneity)
        if key not in self._fleets:
            while len(self._fleets) >= _KEPT:
                del self._fleets[next(iter(self._fleets))]
            seed = np.frombuffer(hashlib.sha256(repr(key).encode()).digest(), "<u4").tolist()
            self._fleets[key] = simulated(model, self.participants, seed, heterogeneity=self.heterogeneity)
        return self._fleets[key]

    def terms_of(self, model: Any) -> dict[str, Any]:
        """Return the public terms of a draw for a model."""
        return self.mechanism.terms_of(model)

    def event(self, data: Any, *, seeding: Seeding = "os-entropy", **terms: Any) -> Event:
        """Describe a draw before it happens; participants who exist are refused."""
        if not any(data is fleet for fleet in self._fleets.values()):
            raise ValueError(
                f"participants={self.participants} simulates a fleet of a scenario; there is a Fleet already, or no "
                f"scenario, so leave participants and heterogeneity out: {self.mechanism.spec!r}."
            )
        return self.mechanism.event(data, seeding=seeding, **terms)

    def draw(self, data: Any, permit: Permit, **terms: Any) -> Release:
        """Make the draw that the permit is for."""
        return self.mechanism.draw(data, permit, **terms)


def live(model: EnsembleModel, count: int, days: int, rng: np.random.Generator, kappa: float) -> Fleet:
    """Let `count` participants live `days` days; rows of each are Dir(kappa · default) if that is finite."""
    count, days = check_count(count, "count", 0), check_count(days, "days")
    kappa = check_positive(kappa, "heterogeneity", allow_inf=True)
    classes = classes_of(model)
    return Fleet.from_cells(_cells(model, count, days, rng, kappa, classes), model.default.shape, classes=classes)


def from_records(model: EnsembleModel, records: Iterable[Any]) -> Fleet:
    """Count records (time, context, state, decision) by the classes that the model's default has."""
    lead = model.default.shape[:-2]
    columns = {0: [], 1: [0], 2: [0, 1]}[len(lead)]
    kept = []
    for one in records:
        rows = np.asarray(one, dtype=np.int64).reshape(-1, 4)
        if len(lead) == 2 and lead[0] == 1:
            rows = rows * np.array([0, 1, 1, 1])  # all times are one
        kept.append(rows[:, [*columns, 2, 3]])
    return Fleet.from_decisions(kept, model.default.shape, classes=classes_of(model))


def classes_of(model: EnsembleModel) -> IntArray | None:
    """Return the class of each time and context of the default, numbered as they come; None if all differ."""
    lead = model.default.shape[:-2]
    flat = model.default.reshape(int(np.prod(lead)), -1)
    if model.guess is not None:
        flat = np.concatenate([flat, model.guess.reshape(len(flat), -1)], axis=1)
    _, first, inverse = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    kinds: IntArray = np.argsort(np.argsort(first))[inverse.ravel()].reshape(lead)
    return None if len(first) == len(flat) else kinds


def context_paths(model: EnsembleModel, days: int, rng: np.random.Generator) -> IntArray:
    """Draw the contexts of each day, (days, T), zero without a context."""
    paths = np.zeros((days, model.horizon), dtype=np.int64)
    if model.context is None:
        return paths
    moves = model.tables().context
    now = rng.choice(len(model.context), days, p=model.context.start)
    for t in range(model.horizon):
        paths[:, t] = now
        now = (rng.random(days)[:, None] > np.cumsum(moves[t, now], axis=1)[:, :-1]).sum(axis=1)
    return paths


def _cells(
    model: EnsembleModel, count: int, days: int, rng: np.random.Generator, kappa: float, classes: IntArray | None
) -> Iterator[NDArray[np.int64]]:
    n, m = model.default.shape[-2:]
    lead = model.default.shape[:-2]
    kinds = np.arange(int(np.prod(lead))).reshape(lead) if classes is None else classes
    behaviour = np.empty((int(kinds.max()) + 1, n, m))
    behaviour[kinds.ravel()] = model.default.reshape(-1, n, m)
    nature, led = _nature(model)
    contexts = context_paths(model, days, rng)
    start, steps = as_float_array(np.cumsum(model.initial), "initial"), days * model.horizon
    mine, stamps = np.empty((len(behaviour) * n, m)), np.full(len(behaviour) * n, -1)
    rows = behaviour.reshape(-1, m)
    if not np.isfinite(kappa):
        mine, stamps = np.cumsum(rows, axis=1), np.full(len(rows), np.iinfo(np.int64).max)
    batch = max(1, _BATCH // steps)
    for low in range(0, count, batch):
        cells = np.empty((min(batch, count - low), steps), dtype=np.int64)
        decide = _index(kinds, model.horizon, model.n_contexts)
        _live(rows, decide, nature, led, contexts, start, rng, kappa, mine, stamps, low, cells)
        yield from cells


def _nature(model: EnsembleModel) -> tuple[FloatArray, IntArray]:
    """Return nature's matrices as cumulative sums, none if a decision is the next state, and which one rules when."""
    if model.nature is None:
        return np.empty((0, 1, 1)), np.zeros((model.horizon, model.n_contexts), dtype=np.int64)
    lead = model.nature.shape[:-2]
    index = np.arange(int(np.prod(lead))).reshape(lead)
    bounds = np.cumsum(model.nature.reshape(-1, *model.nature.shape[-2:]), axis=-1)
    return bounds, _index(index, model.horizon, model.n_contexts)


def _index(kinds: IntArray, horizon: int, contexts: int) -> IntArray:
    """Write numbers of matrices, (), (T,) or (T or 1, c), out as (T, c)."""
    full = kinds[:, None] if kinds.ndim == 1 else kinds
    return np.ascontiguousarray(np.broadcast_to(full, (horizon, contexts)), dtype=np.int64)


@njit(cache=True)
def _find(bounds: FloatArray, u: float) -> int:
    """Return the first entry above `u`, the last one at most."""
    low, high = 0, len(bounds) - 1
    u *= bounds[high]
    while low < high:
        middle = (low + high) // 2
        if bounds[middle] <= u:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _draw_row(row: FloatArray, kappa: float, rng: np.random.Generator, out: FloatArray) -> None:
    """Draw a participant's own row around the common one, as cumulative sums."""
    total = 0.0
    for a in range(len(row)):
        if row[a] > 0.0:
            total += rng.standard_gamma(kappa * row[a])
        out[a] = total
    if total == 0.0:  # every Gamma variate underflowed
        for a in range(len(row)):
            total += row[a]
            out[a] = total


@njit(cache=True)
def _live(
    rows: FloatArray,
    decide: IntArray,
    nature: FloatArray,
    led: IntArray,
    contexts: IntArray,
    start: FloatArray,
    rng: np.random.Generator,
    kappa: float,
    mine: FloatArray,
    stamps: IntArray,
    first: int,
    cells: IntArray,
) -> None:
    """Let participants live; rows of their own are drawn when they are first needed (`stamps`: by whom)."""
    days, horizon = contexts.shape
    n, m = len(start), rows.shape[1]
    for i in range(len(cells)):
        for day in range(days):
            s = _find(start, rng.random())
            for t in range(horizon):
                w = contexts[day, t]
                row = decide[t, w] * n + s
                if stamps[row] < first + i:
                    _draw_row(rows[row], kappa, rng, mine[row])
                    stamps[row] = first + i
                a = _find(mine[row], rng.random())
                cells[i, day * horizon + t] = row * m + a
                s = _find(nature[led[t, w], a], rng.random()) if len(nature) else a
