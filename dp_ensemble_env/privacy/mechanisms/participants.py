r"""What one participant contributes to a release, and what is made of the noisy sums.

**Contributions.** Let :math:`g` be a public guess of the behaviour, :math:`C` the transitions or decisions of one
participant and :math:`R` their row sums; a row is a state, at one time and in one context where behaviour depends on
them. The participant is described by its rows
:math:`p = C/R`, each trusted as far as it was seen, :math:`\omega_b = R_b/(R_b + 5)`. It contributes

.. math:: x = \bigl(f\omega_b (p_{ba} - g_{ba})/\sqrt{\max(g_{ba}, g_0)},\;
          \rho\,(1 - f\omega_b)\bigr)/B, \qquad \|x\| \le 1,

and one more coordinate that is the same for everyone and counts participants. The norm is that of all rows together:
however many rows, times and contexts a participant was seen in, the sums move by no more, and the price of
a draw does not depend on their number. What does is the noise on each row: :math:`B` grows with the root of the
number of rows (with the number itself in the L1 norm), so behaviour that is split into four times as many rows
needs twice as many participants. Three things are better than in a plain sum of rows:

* *Cells are measured in units of the guess's standard deviation.* A plan weighs distant cells
  exponentially, so an error of 0.004 is nothing on the diagonal and ruins a row at five levels. With
  :math:`1/\sqrt g` the noise on a cell is in proportion to :math:`\sqrt g`.
* *The clip is a weight.* The largest :math:`f \le 1` with a norm of at most one is taken, and the
  second group of coordinates remembers how much weight each row lost. Dividing by the
  weight that is left gives a weighted mean of the participants' rows; a clip that scaled the
  differences alone would pull all rows to the guess, and so would rows never visited.
* *The size B is public.* It is the norm that participants with rows :math:`\sim \mathrm{Dir}(30\,g)` have.

Where a support is declared public, what a participant did outside it is left out, nothing is drawn there, and rows
with one possible decision are not drawn at all. `estimates` makes behaviour of the noisy sums.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms.base import Event, Mechanism, Permit
from dp_ensemble_env.privacy.mechanisms.estimates import (
    LEAST_GUESS,
    Tail,
    shrink,
    shrink_rows,
)
from dp_ensemble_env.privacy.mechanisms.noise import GRID
from dp_ensemble_env.privacy.mechanisms.public import LAZY_WALK, PublicMechanism, name_of
from dp_ensemble_env.tools.validation import check_count, check_stochastic

FloatArray = NDArray[np.float64]
#: Height of the coordinate that counts participants; the sensitivity is the norm of (1, COUNT).
COUNT = 0.3
#: How much the participants' rows are expected to differ: like Dir(30 · guess).
EXPECTED_SPREAD = 30.0
_PSEUDO_COUNTS = 5.0
#: B of a guess that leaves nothing open.
_LEAST_SIZE = 0.1
UNIT = "protects everything that one participant ever contributed (adjacent fleets differ by one participant)"
NO_SUPPORT = "every cell was drawn, so no support is assumed"
SUPPORT = "assumes that the declared support is public"


def require_fleet(data: Any, name: str) -> Fleet:
    """Refuse what has no participants."""
    if not isinstance(data, Fleet):
        raise ValueError(
            f"the {name} mechanism protects participants, so it draws from a Fleet, not from {type(data).__name__}; "
            "make one with Fleet.from_states, Fleet.from_decisions, Fleet.read or scenarios.participants."
        )
    return data


class FleetMechanism(Mechanism):
    """A mechanism that draws from participants."""

    def data_of(self, model: Any) -> Any:
        """Return the participants of a model that has them."""
        fleet = getattr(model, "fleet", None)
        if fleet is None:
            raise ValueError(
                f"the {self.name} mechanism protects participants, and this model has none, just one matrix; draw the "
                f"release from a Fleet, ledger.release(mechanism({self.spec!r}), fleet), and give the environment "
                "that release; scenarios.participants simulates a fleet."
            )
        return fleet

    def terms_of(self, model: Any) -> dict[str, Any]:
        """Return the model's own guess, if it has one, and with nature the support that the guess declares.

        With nature a decision carries what nature needs, so most of them are impossible in a state by
        construction; the textbook's zeros say which, whatever the participants do.
        """
        guess = getattr(model, "guess", None)
        if guess is None:
            return {}
        return {"guess": guess} if model.nature is None else {"guess": guess, "support": np.asarray(guess) > 0}

    def about(self, fleet: Fleet, guess: ArrayLike | None, support: ArrayLike | None) -> dict[str, Any]:
        """Return what the event of a draw says of sizes, guess and support."""
        found = {"states": fleet.n_states, "guess": name_of(guess)}
        if fleet.shape == (fleet.n_states, fleet.n_states) and support is None:
            return found
        layout = Layout.of(fleet, 2, guess, support)
        named = "" if layout.support is None else hashlib.sha256(np.packbits(layout.support).tobytes()).hexdigest()
        return {**found, "shape": fleet.shape, "rows": layout.rows, "support": named}

    @abstractmethod
    def noisy(
        self, data: Any, permit: Permit, guess: ArrayLike | None = None, support: ArrayLike | None = None
    ) -> FloatArray:
        """Return the noisy numbers that the guarantee is about; a release is made of them alone."""


@dataclass(frozen=True, kw_only=True)
class FleetEvent(Event, type="fleet", draws=False):
    """What the draws from participants have in common.

    Attributes
    ----------
    states : int
        Number of levels, or of states.
    guess : str
        Name of the public guess.
    shape : tuple of int
        Shape of the release; empty if it is one matrix of moves between the levels.
    rows : int
        Number of rows that are drawn, and that a participant may touch; 0 if there is one a level.
    support : str
        Hash of the declared support; empty if every cell is drawn.
    """

    states: int
    guess: str = LAZY_WALK
    shape: tuple[int, ...] = ()
    rows: int = 0
    support: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.states, "states", 2)
        check_count(self.rows, "rows", 0)

    @property
    def touched(self) -> int:
        """Number of rows that one participant may touch."""
        return self.rows or self.states

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain values; of one matrix as ever, so that its digests stay what they were."""
        content = super().to_json()
        return {k: v for k, v in content.items() if v or k not in ("shape", "rows", "support")}

    @staticmethod
    def terms(events: Sequence[Any]) -> list[str]:
        """Name the unit of protection and what is assumed."""
        most = max(event.rows for event in events)
        wide = [f"its decisions in all {most} rows are bounded together"] if most else []
        return [UNIT, *wide, SUPPORT if any(event.support for event in events) else NO_SUPPORT]


@dataclass(frozen=True, eq=False)
class Layout:
    """The public side of contributions: the guess, a declared support, and what follows from them.

    Attributes
    ----------
    guess : ndarray of shape (rows, m)
    norm : {1, 2}
    support : ndarray of bool of shape (rows, m), optional
        Where none is given every cell is drawn.
    several : bool
        Whether the rows are more, or other, than those of one matrix of moves between levels.
    """

    guess: FloatArray
    norm: int
    support: NDArray[np.bool_] | None = None
    several: bool = False

    @classmethod
    def of(cls, fleet: Fleet, norm: int, guess: ArrayLike | None = None, support: ArrayLike | None = None) -> Layout:
        """Lay out contributions around a public guess, by default the lazy walk."""
        if guess is None and support is None and fleet.shape == (fleet.n_states, fleet.n_states):
            return _lazy_walk(fleet.n_states, norm)
        if guess is None:
            guess = PublicMechanism().release(fleet).matrix
        rows = fleet.gather(check_stochastic(guess, "guess", square=False), "guess", np.mean)
        if support is None:
            return cls(rows, norm, several=fleet.shape != (fleet.n_states, fleet.n_states))
        allowed = fleet.gather(np.asarray(support, dtype=bool), "support", np.any)
        rows = np.where(allowed, rows, 0.0)
        total = rows.sum(axis=1, keepdims=True)
        if not (total > 0).all():
            raise ValueError("the guess lies outside the declared support in some row; declare a wider support.")
        if not (allowed.sum(axis=1) > 1).any():
            raise ValueError(
                "the declared support leaves one decision in every row, so behaviour is public and there is nothing to "
                "draw; declare a wider support, or take the mechanism 'public'."
            )
        return cls(rows / total, norm, allowed, several=True)

    # ------------------------------------------------------------ cells
    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """The cells that are drawn, numbered in C order: those of rows with several possible decisions."""
        if self.support is None:
            return np.arange(self.guess.size)
        return np.flatnonzero(self.support & (self.support.sum(axis=1, keepdims=True) > 1))

    @cached_property
    def row_of(self) -> NDArray[np.int64]:
        """Which of the drawn rows each of these cells belongs to."""
        return np.unique(self.cells // self.guess.shape[1], return_inverse=True)[1]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the drawn rows begin among the cells."""
        return np.flatnonzero(np.diff(self.row_of, prepend=-1))

    @property
    def rows(self) -> int:
        """Number of rows that are drawn, and that a participant may touch."""
        return len(self.starts)

    def row_sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum cells, (..., cells), over each drawn row."""
        return np.asarray(np.add.reduceat(values, self.starts, axis=-1))

    @cached_property
    def units(self) -> FloatArray:
        """Unit of each cell, (rows, m)."""
        return np.sqrt(np.maximum(self.guess, LEAST_GUESS))

    @cached_property
    def size(self) -> float:
        """Expected norm B of the differences, if participants' rows were Dir(30 · guess)."""
        g, units = self.guess.ravel()[self.cells], self.units.ravel()[self.cells]
        deviation = np.sqrt(g * (1.0 - g) / (EXPECTED_SPREAD + 1.0))
        if self.norm == 2:
            return max(float(np.sqrt(((deviation / units) ** 2).sum())), _LEAST_SIZE)
        # Mean absolute deviations: of a nearly normal cell, or of one that is mostly zero.
        apart = np.minimum(2.0 * g * (1.0 - g), math.sqrt(2.0 / math.pi) * deviation) / units
        return max(float(apart.sum()), _LEAST_SIZE)

    @cached_property
    def row_weight(self) -> float:
        """ρ: a participant who was never seen has half the norm, so that f = 0 is always allowed."""
        return 0.5 * self.size / (math.sqrt(self.rows) if self.norm == 2 else self.rows)

    # ------------------------------------------------------------ contributions
    def shares(self, counts: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Return what participants did in each row, (k, cells), and how far each row is trusted, (k, rows)."""
        seen = self.row_sums(counts.astype(float))
        return counts / np.maximum(seen, 1.0)[:, self.row_of], seen / (seen + _PSEUDO_COUNTS)

    def contributions(self, counts: NDArray[Any]) -> FloatArray:
        """Return the contributions of some participants, (k, cells + rows), each with a norm of at most one."""
        shares, trust = self.shares(counts.reshape(len(counts), -1))
        scale = self.units.ravel()[self.cells]
        moved = (shares - self.guess.ravel()[self.cells]) * trust[:, self.row_of] / scale / self.size
        rho = self.row_weight / self.size
        f = self._weight(moved, trust, rho)[:, None]
        return np.concatenate([f * moved, rho * (1.0 - f * trust)], axis=1)

    def _weight(self, moved: FloatArray, trust: FloatArray, rho: float) -> FloatArray:
        """Return the largest f in [0, 1] for which the norm of (f moved, ρ (1 − f trust)) is at most one."""
        n = trust.shape[1]
        if self.norm == 1:
            # f |moved| + ρ (n − f Σ trust) <= 1
            slope = np.abs(moved).sum(axis=1) - rho * trust.sum(axis=1)
            return np.asarray((1.0 - rho * n) / np.maximum(slope, 1.0 - rho * n))
        # f² |moved|² + ρ² Σ (1 − f trust)² <= 1: the larger root of a quadratic
        a = (moved**2).sum(axis=1) + rho**2 * (trust**2).sum(axis=1)
        b = rho**2 * trust.sum(axis=1)
        c = rho**2 * n - 1.0
        root = (b + np.sqrt(b * b - a * c)) / np.maximum(a, np.finfo(float).tiny)
        return np.asarray(np.minimum(1.0, root))

    def sums(self, fleet: Fleet) -> NDArray[np.int64]:
        """Return the sum of all contributions and the count, in whole multiples of 1 / GRID, (cells + rows + 1,)."""
        return fleet.remembered((self.norm, self._key), lambda: self._sums(fleet))

    @cached_property
    def _key(self) -> bytes:
        return self.guess.tobytes() + (b"" if self.support is None else self.support.tobytes())

    def _sums(self, fleet: Fleet) -> NDArray[np.int64]:
        total = np.zeros(len(self.cells) + self.rows + 1, dtype=np.int64)
        for counts in fleet.chunks(None if self.support is None else self.cells):
            some = self.contributions(counts)
            # Cutting off towards zero never lengthens a contribution; the factor absorbs rounding errors.
            total[:-1] += np.trunc(some * (GRID * (1.0 - 1e-12))).astype(np.int64).sum(axis=0)
        total[-1] = fleet.participants * int(COUNT * GRID)
        return total

    def estimate(self, noisy: FloatArray, scale: float, tail: Tail) -> FloatArray:
        """Return behaviour, (rows, m), from noisy sums (post-processing).

        Parameters
        ----------
        noisy : ndarray of shape (cells + rows + 1,)
            The sums, no longer in multiples of the grid.
        scale : float
            Standard deviation of the noise on each of them.
        tail : callable
            How many standard deviations the noise exceeds with about this probability.
        """
        split = len(self.cells)
        cells, lost, count = noisy[:split], noisy[split:-1], noisy[-1] / COUNT
        rho = self.row_weight / self.size
        weight = count - lost / rho
        least = 3.0 * scale * math.hypot(1.0 / COUNT, 1.0 / rho)
        if not self.several and np.median(weight) <= least:
            return self.guess.copy()
        seen, weight = weight > least, np.maximum(weight, least)
        units = self.units.ravel()[self.cells]
        rows = self.guess.ravel()[self.cells] + self.size * units * cells / weight[self.row_of]
        if self.several:
            return shrink_rows(self, rows, self.size * scale / weight, seen, tail)
        shape = self.guess.shape
        deviation = self.size * scale * units / weight[self.row_of]
        return shrink(self, rows.reshape(shape), deviation.reshape(shape), tail)


@lru_cache(maxsize=8)
def _lazy_walk(n: int, norm: int) -> Layout:
    return Layout(PublicMechanism().release(np.empty((n, n))).matrix, norm)


def trusted_rows(fleet: Fleet, layout: Layout | None = None) -> FloatArray:
    """Return the sum of the participants' rows, each counted as far as it is trusted: at most one a participant."""
    chosen = Layout.of(fleet, 2) if layout is None else layout
    return fleet.remembered(("trusted rows", chosen._key), lambda: _trusted_rows(fleet, chosen))


def _trusted_rows(fleet: Fleet, layout: Layout) -> FloatArray:
    total = np.zeros(layout.guess.size)
    for counts in fleet.chunks(layout.cells):
        shares, trust = layout.shares(counts)
        total[layout.cells] += (shares * trust[:, layout.row_of]).sum(axis=0)
    return total.reshape(layout.guess.shape)
