"""Participants: many meters or devices, each protected as a whole.

A `Fleet` holds what every participant contributed: how often its power moved from one
level to another. The mechanisms that protect participants draw from it. The unit of
protection is everything that one participant ever contributed: adjacent fleets differ by
one participant, added or removed.

Two things must not come from the same private data. The edges of the levels are given,
or declared public with `public_levels`; the support of a Dirichlet release is given.
The number of participants is private, too: no text of a fleet tells it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env._validation import as_days, as_float_array, as_numeric_array, check_count, check_positive
from dp_ensemble_env.chain.calendar import select_days
from dp_ensemble_env.privacy.participants import DeviceChain, adjacency_from_counts, check_states

FloatArray = NDArray[np.float64]
T = TypeVar("T")
#: A summer of quarter hours: a hundred days.
SUMMER_STEPS = 9600
#: Endings of the files that are read from a folder.
METER_FILES = (".csv", ".parquet", ".tsv", ".txt", ".xml")
_CHUNK = 500


@dataclass(frozen=True, eq=False, repr=False)
class Fleet:
    """What every participant contributed: transitions between public levels.

    Parameters
    ----------
    counts : array_like of int of shape (participants, n, n)
        ``counts[i, b, a]``: how often participant `i` moved from level `b` to `a`. Private.

    Examples
    --------
    >>> fleet = Fleet.from_states([[0, 1, 1, -1, 0, 0], [1, 1, 0]], n_states=2)
    >>> fleet
    Fleet(2 levels)
    >>> fleet.counts.tolist()
    [[[1, 1], [0, 1]], [[0, 0], [1, 1]]]
    """

    counts: NDArray[np.unsignedinteger[Any]]
    _known: dict[Any, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        counts = np.asarray(self.counts)
        square = counts.ndim == 3 and counts.shape[1] == counts.shape[2] >= 2
        if not square or counts.dtype.kind not in "iu":
            raise ValueError(
                f"counts must be whole numbers of shape (participants, n, n), got {counts.dtype} {counts.shape}."
            )
        most = int(counts.max(initial=0))
        if counts.size and (int(counts.min()) < 0 or most >= 2**32):
            raise ValueError("counts must be numbers of transitions, none negative and none above 4e9.")
        small = counts.astype(np.uint16 if most < 2**16 else np.uint32)
        small.setflags(write=False)
        object.__setattr__(self, "counts", small)

    def __repr__(self) -> str:
        return f"Fleet({self.n_states} levels)"

    @property
    def n_states(self) -> int:
        """Number of levels, which is public."""
        return int(self.counts.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of what is released: one matrix."""
        return self.n_states, self.n_states

    @property
    def participants(self) -> int:
        """Number of participants. Private: one of them more or less is what a release hides."""
        return len(self.counts)

    @property
    def fingerprint(self) -> str:
        """Hash of the whole content, which the stream of a seeded draw depends on. Private."""
        return self.remembered("fingerprint", self._hash)

    def _hash(self) -> str:
        return hashlib.sha256(f"{self.counts.shape} {self.counts.dtype}".encode() + self.counts.tobytes()).hexdigest()

    def remembered(self, key: Any, make: Callable[[], T]) -> T:
        """Return what `make` returned when it was first asked for; repeated draws need the same sums."""
        if key not in self._known:
            self._known[key] = make()
        known: T = self._known[key]
        return known

    # ------------------------------------------------------------ where fleets come from
    @classmethod
    def from_states(cls, trajectories: Iterable[ArrayLike], n_states: int) -> Fleet:
        """Count the transitions of participants whose levels are known.

        Parameters
        ----------
        trajectories : iterable of array_like of int
            The levels of one participant each, in time order; -1 marks a gap, across
            which nothing is counted.
        n_states : int
            Number of levels. Their edges must be public.
        """
        n = check_count(n_states, "n_states", 2)
        counts = [_transitions(check_states(one, i, n), n) for i, one in enumerate(trajectories)]
        return cls(np.stack(counts) if counts else np.zeros((0, n, n), dtype=np.int64))

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        edges: ArrayLike | None = None,
        public_levels: int | None = None,
        season: tuple[str, str] | None = None,
        exclude: Iterable[str] = (),
        **reader: Any,
    ) -> Fleet:
        """Read one participant from every meter of a file, or of all meter files of a folder.

        A wide CSV has one participant a column, a Green Button file one a usage point.

        Parameters
        ----------
        path : str or path
        edges : array_like of shape (n + 1,)
            Public bounds of the levels, in kW. Readings beyond them belong to the outermost levels.
        public_levels : int, optional
            Instead of `edges`: so many equal levels between the least and the largest
            reading of all. These two readings are thereby declared public.
        season, exclude
            Month-days and days, as in `dp_ensemble_env.chain.estimate_chain`.
        **reader
            Settings of `dp_ensemble_env.meter.read_meter`, such as ``unit="kW"``.
        """
        if (edges is None) == (public_levels is None):
            raise ValueError(
                "the bounds of the levels must not come from private readings by accident: give edges=, or declare the "
                "extremes of the readings public with public_levels=20."
            )
        series = _series(Path(path), reader)
        steps = {one.step for one in series}
        if len(steps) > 1:
            raise ValueError(
                f"the meters in {path} have readings every {' and '.join(map(str, sorted(steps)))}; a fleet needs one "
                "step for all, so read them apart."
            )
        days = as_days(exclude, "exclude")
        power = [np.where(select_days(one.times, None, None, season, days), one.kw, np.nan) for one in series]
        bounds = _bounds(edges, public_levels, power)
        levels = [np.searchsorted(bounds, one, side="right") - 1 for one in power]
        last = len(bounds) - 2
        states = [np.where(np.isnan(kw), -1, np.clip(b, 0, last)) for kw, b in zip(power, levels, strict=True)]
        return cls.from_states(states, last + 1)

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
        """Simulate participants that differ: each has rows of its own, drawn around those of the model.

        Parameters
        ----------
        model : EnsembleModel, or array_like of shape (n, n)
            Its default matrix P is what the participants do on average.
        participants : int
        seed : int or sequence of int
        heterogeneity : float
            Rows of a participant are drawn from Dir(heterogeneity · P): the smaller, the more
            they differ; infinity makes all alike.
        steps : int
            Transitions of each; by default a summer of quarter hours.

        Examples
        --------
        >>> fleet = Fleet.simulate([[0.9, 0.1], [0.4, 0.6]], participants=3, seed=1, steps=100)
        >>> fleet.counts.sum(axis=(1, 2)).tolist()
        [100, 100, 100]
        """
        matrix = as_float_array(getattr(model, "default", model), "default")
        if matrix.ndim != 2:
            raise ValueError(f"participants follow one (n, n) matrix, got shape {matrix.shape}; pass that of one time.")
        kappa = check_positive(heterogeneity, "heterogeneity", allow_inf=True)
        number, steps = check_count(participants, "participants", 0), check_count(steps, "steps")
        rng, n = np.random.default_rng(seed), len(matrix)
        counts = np.zeros((number, n, n), dtype=np.uint16 if steps < 2**16 else np.uint32)
        start = stationary(matrix)
        for low in range(0, number, _CHUNK):
            size = min(_CHUNK, number - low)
            rows = np.broadcast_to(matrix, (size, n, n)).copy()
            if np.isfinite(kappa):
                rows = rng.standard_gamma(kappa * rows)
                empty = rows.sum(axis=2) == 0  # every Gamma variate of a row underflowed
                rows[empty] = np.broadcast_to(matrix, rows.shape)[empty]
            bounds = np.cumsum(rows, axis=2)
            bounds /= bounds[:, :, -1:]
            _walk(bounds, rng.choice(n, size, p=start), steps, rng, counts[low : low + size])
        return cls(counts)

    # ------------------------------------------------------------ for the paper's mechanism
    def chain(self, clip: int, support: ArrayLike) -> DeviceChain:
        """Pool the participants into one matrix, with at most `clip` transitions of each out of a level.

        What a participant has above `clip` is scaled down and rounded off, which depends on
        its own data alone.

        Parameters
        ----------
        clip : int
        support : array_like of bool of shape (n, n)
            Transitions that are possible by public knowledge; others are left out.
        """
        clip = check_count(clip, "clip")
        allowed = np.asarray(support)
        if allowed.shape != self.shape or allowed.dtype != bool or not allowed.any(axis=1).all():
            raise ValueError(f"support must be a boolean {self.shape} array with at least one successor in every row.")
        pooled = np.zeros(self.shape, dtype=np.int64)
        total = 0
        for low in range(0, self.participants, _CHUNK):
            some = self.counts[low : low + _CHUNK].astype(np.int64)
            total += int(some.sum())
            some *= allowed
            seen = np.maximum(some.sum(axis=2, keepdims=True), clip)
            pooled += (some * clip // seen).sum(axis=0)
        seen_from = pooled.sum(axis=1, keepdims=True)
        uniform = allowed / allowed.sum(axis=1, keepdims=True)
        default = np.where(seen_from > 0, pooled / np.maximum(seen_from, 1), uniform)
        adjacency = replace(adjacency_from_counts(pooled, clip), rows_touched=self.n_states, source="devices")
        return DeviceChain(default, pooled, adjacency, allowed, total - int(pooled.sum()))


def stationary(matrix: FloatArray) -> FloatArray:
    """Return a distribution that the chain leaves as it is."""
    lazy = 0.5 * (matrix + np.eye(len(matrix)))  # has the same one, and no period
    far = np.linalg.matrix_power(lazy, 2**20)[0]
    return np.asarray(far / far.sum())


def _transitions(states: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    origin, target = states[:-1], states[1:]
    valid = (origin >= 0) & (target >= 0)
    return np.bincount(origin[valid] * n + target[valid], minlength=n * n).reshape(n, n)


def _series(path: Path, reader: dict[str, Any]) -> list[Any]:
    """Read every meter of a file, or of every meter file of a folder."""
    from dp_ensemble_env.meter import meter_columns, read_meter

    if not path.is_dir():
        columns = meter_columns(path)
        return [read_meter(path, column=column, **reader) for column in columns] or [read_meter(path, **reader)]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in METER_FILES)
    if not files:
        raise ValueError(f"the folder {path} holds no meter files ({', '.join(METER_FILES)}); give another folder.")
    return [one for file in files for one in _series(file, reader)]


def _bounds(edges: ArrayLike | None, public_levels: int | None, power: list[FloatArray]) -> FloatArray:
    if edges is None:
        assert public_levels is not None
        n = check_count(public_levels, "public_levels", 2)
        every = np.concatenate(power)
        if np.isnan(every).all() or np.nanmin(every) == np.nanmax(every):
            raise ValueError("the readings do not differ, so they have one level and nothing to release.")
        return np.linspace(np.nanmin(every), np.nanmax(every), n + 1)
    bounds = as_numeric_array(edges, "edges", 1)
    if len(bounds) < 3 or not (np.diff(bounds) > 0).all():
        raise ValueError("edges must increase, and bound at least two levels: give three numbers in kW or more.")
    return bounds


@njit(cache=True)
def _walk(
    bounds: FloatArray,
    start: NDArray[np.int64],
    steps: int,
    rng: np.random.Generator,
    counts: NDArray[np.unsignedinteger[Any]],
) -> None:
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
