"""Participants: many meters or devices, each protected as a whole.

A `Fleet` holds what every participant contributed: how often its power moved from one level to another, or how often
it took each decision in each state, at each time and in each context where behaviour depends on them. The mechanisms
that protect participants draw from it. The unit of protection is everything that one participant ever contributed, in
whatever rows: adjacent fleets differ by one participant, added or removed.

Two things must not come from the same private data: the edges of the levels, and the support of a Dirichlet release.
The number of participants is private, too: no text of a fleet tells it.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from dp_ensemble_env.chain.markov import stationary
from dp_ensemble_env.privacy.adjacency import DeviceChain, adjacency_from_counts
from dp_ensemble_env.tools.compile import njit
from dp_ensemble_env.tools.validation import (
    as_days,
    as_float_array,
    as_numeric_array,
    check_count,
    check_positive,
    check_shape,
    state_list,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
T = TypeVar("T")
SUMMER_STEPS = 9600  #: A summer of quarter hours: a hundred days.
_CHUNK = 500  #: Participants that are walked through at a time.
_CELLS = 2_000_000  #: Counts that are written out at a time.


class Fleet:
    """The contributions of all participants: their decisions, counted in each row of the behaviour to be released.

    Parameters
    ----------
    counts : array_like of int of shape (participants, n, m), or with times and contexts before n
        ``counts[i, b, a]``: how often participant `i` moved from level `b` to `a`, or took decision `a` in state `b`.
    classes : array_like of int, optional
        The class of each time and context, numbered from 0, if behaviour is publicly known to be the same within a
        class. `counts` then have one matrix for each class, shape (participants, classes, n, m).

    >>> fleet = Fleet.from_states([[0, 1, 1, -1, 0, 0], [1, 1, 0]], n_states=2)
    >>> fleet
    Fleet(2 levels)
    >>> fleet.counts.tolist()
    [[[1, 1], [0, 1]], [[0, 0], [1, 1]]]
    """

    def __init__(self, counts: ArrayLike, *, classes: ArrayLike | None = None) -> None:
        dense = np.asarray(counts)
        fits = dense.ndim in (3, 4, 5) and dense.shape[-2] >= 2 and dense.shape[-1] >= 1
        if not fits or dense.dtype.kind not in "iu":
            wanted = "whole numbers of shape (participants, n, m), times and contexts before n"
            raise ValueError(f"counts must be {wanted}, got {dense.dtype} {dense.shape}.")
        most = int(dense.max(initial=0))
        if dense.size and (int(dense.min()) < 0 or most >= 2**32):
            raise ValueError("counts must be numbers of transitions, none negative and none above 4e9.")
        small = dense.astype(np.uint16 if most < 2**16 else np.uint32)
        small.setflags(write=False)
        kinds = None if classes is None else as_classes(classes)
        if kinds is not None and (dense.ndim != 4 or dense.shape[1] != kinds.max() + 1):
            wanted = f"(participants, {kinds.max() + 1}, n, m), one matrix a class"
            raise ValueError(f"counts have shape {dense.shape}; give them the shape {wanted}.")
        flat = csr_array(small.reshape(len(small), math.prod(small.shape[1:])))
        self._set(flat, dense.shape[1:] if kinds is None else (*kinds.shape, *dense.shape[-2:]), kinds, small)

    def _set(
        self, table: csr_array, shape: tuple[int, ...], classes: IntArray | None, dense: NDArray[Any] | None = None
    ) -> None:
        self._table, self.shape, self.classes, self._dense = table, shape, classes, dense
        self._known: dict[Any, Any] = {}
        self.left_out: dict[str, str] = {}  #: Who could not be read, and why. Private: for the operator alone.
        self.declared: tuple[str, ...] = ()  #: What is public by declaration; a ledger keeps it with the draws.

    @classmethod
    def _of(cls, table: csr_array, shape: tuple[int, ...], classes: IntArray | None) -> Fleet:
        fleet = cls.__new__(cls)
        fleet._set(table, shape, classes)
        return fleet

    def __repr__(self) -> str:
        plain = self.shape == (self.n_states, self.n_states)
        return f"Fleet({f'{self.n_states} levels' if plain else ' x '.join(map(str, self.shape))})"

    @property
    def n_states(self) -> int:
        """Number of levels, which is public."""
        return self.shape[-2]

    @property
    def drawn_shape(self) -> tuple[int, ...]:
        """Shape of what is drawn: that of what is released, or one matrix for each class."""
        return _drawn(self.shape, self.classes)

    @property
    def counts(self) -> NDArray[np.unsignedinteger[Any]]:
        """The counts as one array, (participants, ...). Private. That of many classes is large."""
        dense = self._table.toarray().reshape(-1, *self.drawn_shape) if self._dense is None else self._dense
        return np.asarray(dense)

    @property
    def participants(self) -> int:
        """Number of participants. Private."""
        return int(self._table.shape[0])

    @property
    def fingerprint(self) -> str:
        """Hash of the whole content, which the stream of a seeded draw depends on. Private."""

        def hashed() -> str:
            if self._dense is not None and self.classes is None:
                header, arrays = f"{self._dense.shape} {self._dense.dtype}", [self._dense]
            else:
                header, table = f"{self.shape} {self.participants}", self._table
                parts = (np.asarray(part, "<i8") for part in (table.indptr, table.indices, table.data))
                arrays = [np.zeros(0) if self.classes is None else self.classes, *parts]
            return hashlib.sha256(header.encode() + b"".join(array.tobytes() for array in arrays)).hexdigest()

        return self.remembered("fingerprint", hashed)

    def remembered(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` returned when it was first asked for; repeated draws need the same sums."""
        if key not in self._known:
            self._known[key] = make()
        known: T = self._known[key]
        return known

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}}

    # ------------------------------------------------------------ parts
    def first(self, number: int) -> Fleet:
        """Return the fleet of the first `number` participants."""
        if self._dense is not None:
            return Fleet(self._dense[:number], classes=self.classes)
        return Fleet._of(self._table[:number], self.shape, self.classes)

    def chunks(self, cells: IntArray | None = None) -> Iterator[NDArray[Any]]:
        """Yield the counts of some participants after the other, (some, cells), of all cells or of these."""
        size = max(1, min(_CHUNK, _CELLS // max(math.prod(self.drawn_shape) if cells is None else len(cells), 1)))
        for low in range(0, self.participants, size):
            some = self._table[low : low + size]
            yield (some if cells is None else some[:, cells]).toarray()

    def gather(self, array: ArrayLike, name: str, how: Callable[..., Any]) -> NDArray[Any]:
        """Bring public knowledge of the released shape to what is drawn, (rows, m); `how` joins those of a class."""
        table = np.asarray(array)
        check_shape(table, self.shape, name, "like the behaviour of the fleet")
        rows = self.shape[-2:]
        if self.classes is not None:
            table = table.reshape(-1, *rows)
            kinds = self.classes.ravel()
            table = np.stack([how(table[kinds == kind], axis=0) for kind in range(kinds.max() + 1)])
        return np.asarray(table.reshape(-1, rows[1]))

    def spread(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Bring what was drawn to the shape that is released: all of a class get the same rows."""
        drawn = rows.reshape(self.drawn_shape)
        return np.asarray(drawn if self.classes is None else drawn[self.classes])

    # ------------------------------------------------------------ where fleets come from
    @classmethod
    def from_states(cls, trajectories: Iterable[ArrayLike], n_states: int) -> Fleet:
        """Count transitions from the participants' levels in time order; -1 is a gap, and none is counted across it."""
        n = check_count(n_states, "n_states", 2)
        counts = [transitions(check_states(one, i, n), n) for i, one in enumerate(trajectories)]
        return cls(np.stack(counts) if counts else np.zeros((0, n, n), dtype=np.int64))

    @classmethod
    def from_decisions(
        cls, records: Iterable[ArrayLike], shape: Sequence[int], *, classes: ArrayLike | None = None
    ) -> Fleet:
        """Count the decisions of participants, by state and by the time and context they were taken in.

        Each of the records holds the decisions of one participant, one a row: its index in each axis of `shape`, which
        is that of the model's default, (n, m), (T, n, m) or (T or 1, c, n, m), and public; for `classes` see `Fleet`.

        """
        sizes = tuple(check_count(size, "shape") for size in shape)
        if len(sizes) not in (2, 3, 4) or sizes[-2] < 2:
            raise ValueError(f"shape must be like a default's, (n, m), (T, n, m) or (T or 1, c, n, m), got {sizes}.")
        kinds = None if classes is None else as_classes(classes)
        if kinds is not None:
            check_shape(kinds, sizes[:-2], "classes", "one class for each time and context of shape")
        cells = [cells_of(one, i, sizes, kinds) for i, one in enumerate(records)]
        return cls.from_cells(cells, sizes, classes=kinds)

    @classmethod
    def from_cells(
        cls, cells: Iterable[NDArray[Any]], shape: tuple[int, ...], *, classes: IntArray | None = None
    ) -> Fleet:
        """Count cells that are numbered already, in C order of (class, state, decision): one array a participant."""
        counted = [np.unique(one, return_counts=True) for one in cells]
        ends = np.cumsum([0, *(len(one) for one, _ in counted)])
        index, counts = (np.concatenate([np.zeros(0, np.int64), *(pair[i] for pair in counted)]) for i in (0, 1))
        kind = np.uint16 if counts.max(initial=0) < 2**16 else np.uint32
        parts = (counts.astype(kind), index.astype(np.int32), ends)
        table = csr_array(parts, shape=(len(counted), math.prod(_drawn(shape, classes))))
        return cls._of(table, tuple(shape), classes)

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        edges: ArrayLike,
        step_minutes: float,
        layout: str | None = None,
        id_column: str | None = None,
        delimiter: str = ",",
        season: tuple[str, str] | None = None,
        exclude: Iterable[str] = (),
        **reader: Any,
    ) -> Fleet:
        """Read participants from meter files, each from its own lines alone; see `participants`.

        All arguments are declared public, so none may come from the readings. `path` is a file with many participants,
        or a folder. `edges`, in kW, separate the n levels; readings beyond them belong to the lowest or highest level.
        Readings finer than `step_minutes` are averaged; participants with coarser readings are left out.
        `layout` says whether a participant is a file (``"files"``), a column (``"wide"``) or an id in the column
        `id_column` (``"long"``). `season` holds month-days, `exclude` days, and `reader` settings of
        `dp_ensemble_env.meter.read_meter`, such as ``unit="kW"``.
        """
        from dp_ensemble_env.privacy.participants import read_participants  # which imports this module

        bounds = as_numeric_array(edges, "edges", 1)
        n = len(bounds) - 1
        if n < 2 or not (np.diff(bounds) > 0).all():
            raise ValueError("edges must increase, and bound at least two levels: give three numbers in kW or more.")
        days = as_days(exclude, "exclude")
        kept, left_out = read_participants(Path(path), reader, step_minutes, layout, id_column, delimiter, season, days)
        counts = np.zeros((len(kept), n, n), dtype=np.int64)
        for index, meters in enumerate(kept.values()):
            for kw in meters:
                levels = np.clip(np.searchsorted(bounds, kw, side="right") - 1, 0, n - 1)
                counts[index] += transitions(np.where(np.isnan(kw), -1, levels), n)
        fleet = cls(counts)
        fleet.left_out = left_out
        fleet.declared = ("level edges", f"step of {step_minutes:g} minutes", "layout and settings of the meter files")
        return fleet

    @classmethod
    def simulate(
        cls,
        model: Any,
        participants: int,
        seed: int | Sequence[int] = 0,
        *,
        heterogeneity: float = 30.0,
        steps: int = SUMMER_STEPS,
    ) -> Fleet:
        """Simulate `steps` moves of participants that differ around the matrix P of a model.

        The rows of each participant are drawn from Dir(heterogeneity · P); with infinity all are alike.
        """
        matrix = as_float_array(getattr(model, "default", model), "default")
        if matrix.ndim != 2:
            raise ValueError(f"participants follow one (n, n) matrix, got {matrix.shape}; pass the matrix of one time.")
        kappa = check_positive(heterogeneity, "heterogeneity", allow_inf=True)
        number, steps = check_count(participants, "participants", 0), check_count(steps, "steps")
        n, rng, start = len(matrix), np.random.default_rng(seed), stationary(matrix)
        counts = np.zeros((number, n, n), dtype=np.uint16 if steps < 2**16 else np.uint32)
        for low in range(0, number, _CHUNK):
            rows = np.broadcast_to(matrix, (min(_CHUNK, number - low), n, n)).copy()
            if np.isfinite(kappa):
                rows = rng.standard_gamma(kappa * rows)
                empty = rows.sum(axis=2) == 0  # every Gamma variate of a row underflowed
                rows[empty] = np.broadcast_to(matrix, rows.shape)[empty]
            bounds = np.cumsum(rows, axis=2)
            bounds /= bounds[:, :, -1:]
            _walk(bounds, rng.choice(n, len(rows), p=start), steps, rng, counts[low : low + len(rows)])
        return cls(counts)

    # ------------------------------------------------------------ for the paper's mechanism
    def chain(self, clip: int, support: ArrayLike) -> DeviceChain:
        """Pool the participants into one behaviour, with at most `clip` decisions of each in a row.

        What one has above `clip` is scaled down and rounded off; decisions outside the public `support` are left out.
        """
        clip = check_count(clip, "clip")
        allowed = np.asarray(support)
        if allowed.shape != self.shape or allowed.dtype != bool or not allowed.any(axis=-1).all():
            raise ValueError(f"support must be a boolean {self.shape} array with at least one successor in every row.")
        allowed = self.gather(allowed, "support", np.any)
        pooled = np.zeros(allowed.shape, dtype=np.int64)
        for some in self.chunks():
            counts = some.reshape(-1, *allowed.shape) * allowed.astype(np.int64)
            pooled += (counts * clip // np.maximum(counts.sum(axis=2, keepdims=True), clip)).sum(axis=0)
        seen_from = pooled.sum(axis=1, keepdims=True)
        uniform = allowed / allowed.sum(axis=1, keepdims=True)
        default = np.where(seen_from > 0, pooled / np.maximum(seen_from, 1), uniform)
        adjacency = replace(adjacency_from_counts(pooled, clip), source="devices")
        drawn = self.drawn_shape
        return DeviceChain(default.reshape(drawn), pooled.reshape(drawn), adjacency, allowed.reshape(drawn))


# ------------------------------------------------------------------ records
def _drawn(shape: tuple[int, ...], classes: IntArray | None) -> tuple[int, ...]:
    return shape if classes is None else (int(classes.max()) + 1, *shape[-2:])


def as_classes(classes: ArrayLike) -> IntArray:
    """Return numbers of classes, every one from zero on in use."""
    kinds = np.array(classes)
    if kinds.dtype.kind not in "iu" or not kinds.size or not np.array_equal(np.unique(kinds), range(kinds.max() + 1)):
        raise ValueError("classes must be whole numbers from 0 on, one for each time and context, none left out.")
    kinds = kinds.astype(np.int64)
    kinds.setflags(write=False)
    return kinds


def cells_of(records: ArrayLike, index: int, shape: tuple[int, ...], classes: IntArray | None) -> IntArray:
    """Return the numbered cells of one participant's records."""
    rows = np.asarray(records)
    rows = rows if rows.size else rows.reshape(-1, len(shape))
    if rows.ndim != 2 or rows.shape[1] != len(shape) or (rows.size and rows.dtype.kind not in "iu"):
        wanted = f"rows of {len(shape)} whole numbers, one for each axis of {shape}"
        raise ValueError(f"the records of participant {index} must be {wanted}; got {rows.dtype} {rows.shape}.")
    bad = np.argwhere((rows < 0) | (rows >= np.array(shape)))
    if len(bad):
        row, axis = map(int, bad[0])
        fault = f"record {row} of participant {index} has {int(rows[row, axis])} in column {axis}"
        raise ValueError(f"{fault}, but the shape {shape} allows 0 … {shape[axis] - 1} there.")
    columns = list(rows.astype(np.int64).T)
    if classes is not None:
        columns = [classes[tuple(columns[:-2])], *columns[-2:]]
    return np.asarray(np.ravel_multi_index(columns, _drawn(shape, classes)))


def check_states(trajectory: ArrayLike, index: int, n: int) -> IntArray:
    """Return one participant's states as integers, refusing what are none."""
    states = np.asarray(trajectory)
    if states.ndim != 1 or (states.size and states.dtype.kind not in "iu"):
        raise ValueError(f"trajectory {index} must be a list of integer states (-1 for a gap), one per time.")
    bad = np.flatnonzero((states < -1) | (states >= n))
    if bad.size:
        raise ValueError(
            f"trajectory {index} is in state {int(states[bad[0]])} at time {int(bad[0])}, but the states are "
            f"0 … {n - 1} ({state_list(bad)} are the times at fault)."
        )
    return states.astype(np.int64)


def transitions(states: IntArray, n: int) -> IntArray:
    """Count the moves between levels, none across a gap."""
    origin, target = states[:-1], states[1:]
    valid = (origin >= 0) & (target >= 0)
    return np.bincount(origin[valid] * n + target[valid], minlength=n * n).reshape(n, n)


@njit(cache=True)
def _walk(bounds: FloatArray, start: IntArray, steps: int, rng: np.random.Generator, counts: NDArray[Any]) -> None:
    """Let every participant walk; `bounds[i, b]` are the cumulative probabilities of its row `b`."""
    n = bounds.shape[1]
    for i in range(len(bounds)):
        b = start[i]
        for _ in range(steps):
            u = rng.random()
            a = 0
            while a < n - 1 and bounds[i, b, a] <= u:
                a += 1
            counts[i, b, a] += 1
            b = a
