"""Simulated participants of any model: what they decided, counted as the privacy mechanisms take it.

A participant lives a number of days, each an episode of the model: it starts in a state drawn from `initial`,
decides as the default behaviour says, and nature leads it on. The context is that of the world: its path is drawn once
a day and is the same for all. So a participant's decisions are counted by state, and by time and context where the
default depends on them.

Which times and contexts share a matrix is the structure of a scenario, written in its code, and public: where the
default (and the guess, if there is one) repeats itself exactly, its times and contexts form one class and
are released together.

`SimulatedFleet` is what a spec with ``participants=1000`` makes: a mechanism that draws from so many simulated
participants of the model at hand. They depend on its behaviour, their number and their heterogeneity; the seed of a
release moves the noise alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.fleet import SUMMER_STEPS, Fleet
from dp_ensemble_env.privacy.mechanisms.base import Event, Permit, Seeding
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FleetMechanism
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.compile import njit
from dp_ensemble_env.tools.validation import as_float_array, check_count, check_positive

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
#: Decisions that are simulated at a time.
_BATCH = 4_000_000
#: Rows of participants are drawn from Dir(30 · default), unless a spec says otherwise.
HETEROGENEITY = 30.0
#: Digits of the behaviour that the seed of a fleet depends on, so that rounding on another machine does not matter.
_DIGITS = 6
#: Fleets that are kept.
_KEPT = 4


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
    """A mechanism that draws from simulated participants of the model at hand.

    Parameters
    ----------
    mechanism : FleetMechanism
    participants : int
    heterogeneity : float
        Rows of each are drawn from Dir(heterogeneity · default).

    Examples
    --------
    >>> from dp_ensemble_env.privacy import mechanism
    >>> mechanism("gaussian:epsilon=1,participants=300").spec
    'gaussian:epsilon=1,delta=1e-06,participants=300,heterogeneity=30'
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
    _, first, found = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    kinds: IntArray = np.argsort(np.argsort(first))[found.ravel()].reshape(lead)
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
    """Yield the cells of one participant after the other."""
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
