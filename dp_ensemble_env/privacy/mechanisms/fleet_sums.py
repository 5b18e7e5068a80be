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
with one possible decision are not drawn at all.

**Estimates** (post-processing, free). The noise is known: cell `(b, a)` of :math:`g + S/W` has the standard
deviation :math:`s_b \sqrt{g_{ba}}`.

*One matrix of moves between levels.* Cells that noise alone would reach in one of `n²` cells are emptied; where
the guess is below 0.001, in one of a million releases, since a single false jump across many levels ruins a plan. If
clearly less than all of a row is left, the guess fills the emptied cells; then rows are normalised. The result is
mixed with the guess: with :math:`s^2` the mean square of the noise in these units and :math:`t^2` that
of the differences less :math:`s^2`, the guess gets the share :math:`s^2/(s^2 + t^2)` by James and Stein's argument,
half as much again for Laplace noise with its higher tails.
Weights of rows are taken to be three standard deviations at least, and if half of them are smaller, the release
is the guess itself: noise alone releases nothing worse.

*Many rows* (times, contexts, states with their own decisions) are seen to different degrees, some never. Each has its
own noise :math:`s_b`, and :math:`t^2` is the mean over rows in which the accurate ones count most, so that the
guess gets the share :math:`s_b^2/(s_b^2 + t^2)` of row `b`. A row whose weight is below three standard deviations is
the guess's. Only cells that the guess all but excludes are emptied; of others the mean is taken that
a normal variate has which is known to be positive, as a plan must not believe a possible decision to be impossible.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from dp_ensemble_env.control.lsmdp import log_probabilities
from dp_ensemble_env.privacy.accounting.accountant import NeighboringRelation
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms.base import Event, Mechanism, Permit, Seeding
from dp_ensemble_env.privacy.mechanisms.noise import GRID, add_noise, check_proven, require_source
from dp_ensemble_env.privacy.mechanisms.public import LAZY_WALK, PublicMechanism, name_of
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.validation import check_count, check_stochastic

FloatArray = NDArray[np.float64]
Tail = Callable[[float], float]
#: Cells are measured in units of the guess's standard deviation, or of this guess if theirs is smaller.
LEAST_GUESS = 1e-3
#: How many releases, at most, show a jump that the guess all but excludes and noise has made up.
FALSE_JUMPS = 1e-6
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
PROVEN = "published noise is discrete and drawn by OpenDP, and the claim is what it proves ({})"


def require_fleet(data: Any, name: str) -> Fleet:
    """Refuse what has no participants."""
    if not isinstance(data, Fleet):
        raise ValueError(
            f"the {name} mechanism protects participants, so it draws from a Fleet, not from {type(data).__name__}; "
            "make one with Fleet.from_states, Fleet.from_decisions, Fleet.read or scenarios.participants."
        )
    return data


@dataclass(frozen=True, kw_only=True)
class FleetEvent(Event):
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
    def relation(self) -> NeighboringRelation:
        """Fleets that differ by one participant."""
        return NeighboringRelation.ADD_OR_REMOVE_ONE

    @property
    def touched(self) -> int:
        """Number of rows that one participant may touch."""
        return self.rows or self.states

    def stream_key(self) -> dict[str, Any]:
        """Return what is hashed into the stream of a seeded draw; frozen, see `Event.stream_key`."""
        wide = {"shape": self.shape, "rows": self.rows, "support": self.support}
        kept = {name: value for name, value in wide.items() if value}
        return {"type": self.type, "seeding": self.seeding, "states": self.states, "guess": self.guess, **kept}

    @staticmethod
    def terms(events: Sequence[Any]) -> list[str]:
        """Name the unit of protection and what is assumed."""
        most = max(event.rows for event in events)
        wide = [f"its decisions in all {most} rows are bounded together"] if most else []
        return [UNIT, *wide, SUPPORT if any(event.support for event in events) else NO_SUPPORT]


# ------------------------------------------------------------------ mechanisms
class FleetMechanism(Mechanism):
    """A mechanism that draws from participants."""

    of_fleet: ClassVar[bool] = True

    def data_of(self, model: Any) -> Any:
        """Return the participants of a model that has them."""
        fleet = getattr(model, "fleet", None)
        if fleet is None:
            raise ValueError(
                f"the {self.name} mechanism protects participants, and this model has none, just one matrix; add "
                f"participants, as in {self.spec + ',participants=1000'!r}, to simulate a scenario's fleet "
                "(scenarios.participants), or draw the release from a Fleet, "
                f"ledger.release(mechanism({self.spec!r}), fleet), and pass it as privacy."
            )
        return fleet


class OneQuery(FleetMechanism):
    """A mechanism that draws noisy numbers at once, and estimates behaviour from them alone."""

    #: Norm of a contribution that is bounded, 1 or 2.
    norm: ClassVar[int] = 2

    @abstractmethod
    def describe(self, **about: Any) -> FleetEvent:
        """Return the event of a draw with these sizes, guess and support."""

    @abstractmethod
    def numbers(self, fleet: Fleet, layout: Layout, event: Any, rng: np.random.Generator) -> FloatArray:
        """Draw the noisy numbers."""

    @abstractmethod
    def estimate(self, layout: Layout, noisy: FloatArray, event: Any) -> FloatArray:
        """Make behaviour, (rows, m), of the noisy numbers."""

    @staticmethod
    def check_source(seeding: Seeding) -> None:
        """Refuse a draw for publication whose source of noise is not installed."""

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

    def event(
        self,
        data: Any,
        *,
        seeding: Seeding = "os-entropy",
        guess: ArrayLike | None = None,
        support: ArrayLike | None = None,
    ) -> FleetEvent:
        """Describe a draw from a fleet, of which only the shape is looked at."""
        about = self.about(require_fleet(data, self.name), guess, support)
        self.check_source(seeding)
        return self.describe(**about, seeding=seeding)

    def draw(
        self,
        data: Any,
        permit: Permit,
        *,
        guess: ArrayLike | None = None,
        support: ArrayLike | None = None,
    ) -> Release:
        """Draw one release.

        Parameters
        ----------
        data : Fleet
        permit : Permit
        guess : array_like of the shape of the fleet, optional
            A public guess of the behaviour that must not come from the data; by default a lazy walk.
        support : array_like of bool of the same shape, optional
            Decisions that are possible by public knowledge, which must not come from the data either. By
            default all are, and every cell gets noise.
        """
        fleet = require_fleet(data, self.name)
        noisy = self.noisy(fleet, permit, guess, support)
        matrix = self.estimate(Layout.of(fleet, self.norm, guess, support), noisy, permit.event)
        return Release(fleet.spread(np.minimum(log_probabilities(matrix), 0.0)), permit.event)

    def noisy(
        self, data: Any, permit: Permit, guess: ArrayLike | None = None, support: ArrayLike | None = None
    ) -> FloatArray:
        """Return the noisy numbers that the guarantee is about; a release is made of them alone."""
        fleet = require_fleet(data, self.name)
        event = self.event(fleet, seeding=permit.event.seeding, guess=guess, support=support)
        permit.covers(event)
        return self.numbers(fleet, Layout.of(fleet, self.norm, guess, support), event, permit.rng)


class NoisySums(OneQuery):
    """A mechanism that adds noise to the sum of the contributions."""

    #: Kind of noise, ``"gaussian"`` or ``"laplace"``, and the largest norm of a contribution with its count.
    noise: ClassVar[str]
    sensitivity: ClassVar[float]

    @staticmethod
    @abstractmethod
    def tail(probability: float) -> float:
        """Return how many standard deviations the noise exceeds with about this probability."""

    @abstractmethod
    def scale(self, event: Any) -> float:
        """Return the scale of the noise on each sum, as `noise.add_noise` takes it."""

    def deviation(self, event: Any) -> float:
        """Return the standard deviation of that noise."""
        return self.scale(event)

    @staticmethod
    @abstractmethod
    def cost(event: Any) -> float:
        """Return what the published draw is charged for, in the units of OpenDP's map: ρ or ε."""

    check_source = staticmethod(require_source)

    def numbers(self, fleet: Fleet, layout: Layout, event: Any, rng: np.random.Generator) -> FloatArray:
        """Return the noisy sums."""
        if event.seeding == "os-entropy":
            check_proven(self.noise, self.scale(event), self.sensitivity, self.cost(event))
        return add_noise(layout.sums(fleet), self.noise, self.scale(event), rng, event.seeding)

    def estimate(self, layout: Layout, noisy: FloatArray, event: Any) -> FloatArray:
        """Divide the sums by the weights of the rows, and shrink the result to the guess."""
        return layout.estimate(noisy, self.deviation(event), self.tail)


# ------------------------------------------------------------------ contributions
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


def trusted_rows(fleet: Fleet, layout: Layout | None = None, *, grid: bool = False) -> FloatArray:
    """Return the sum of the participants' rows, each counted as far as it is trusted: at most one a participant.

    With `grid`, in whole multiples of 1 / GRID: each participant's numbers are cut off towards zero.
    """
    chosen = Layout.of(fleet, 2) if layout is None else layout

    def summed() -> FloatArray:
        total = np.zeros(chosen.guess.size)
        for counts in fleet.chunks(chosen.cells):
            shares, trust = chosen.shares(counts)
            some = shares * trust[:, chosen.row_of]
            total[chosen.cells] += (np.trunc(some * (GRID * (1.0 - 1e-12))) if grid else some).sum(axis=0)
        return total.reshape(chosen.guess.shape)

    return fleet.remembered(("trusted rows", grid, chosen._key), summed)


# ------------------------------------------------------------------ estimates
def shrink(layout: Layout, rows: FloatArray, deviation: FloatArray, tail: Tail) -> FloatArray:
    """Empty the cells that noise could have made, normalise, and fall back on the guess as far as noise prevails.

    Parameters
    ----------
    layout : Layout
        The guess, and the units of its cells.
    rows, deviation : ndarray of shape (n, n)
        Noisy rows, and the standard deviation of the noise.
    tail : callable
        How many standard deviations the noise exceeds with about this probability.
    """
    guess, units = layout.guess, layout.units
    k = np.where(guess < LEAST_GUESS, tail(FALSE_JUMPS / guess.size), tail(1.0 / guess.size))
    kept = np.where(rows > k * deviation, rows, 0.0)
    diagonal = np.einsum("ii->i", kept)
    diagonal[:] = np.maximum(diagonal, 0.01)
    error = np.sqrt(np.where(kept > 0, deviation**2, 0.0).sum(axis=1, keepdims=True))
    missing = np.maximum(0.0, 1.0 - kept.sum(axis=1, keepdims=True) - 3.0 * error)
    emptied = np.where(kept > 0, 0.0, guess)
    kept += missing * emptied / np.maximum(emptied.sum(axis=1, keepdims=True), 1e-300)
    kept /= kept.sum(axis=1, keepdims=True)
    noise = float(((deviation / units) ** 2).mean())
    signal = max(0.0, float((((rows - guess) / units) ** 2).mean()) - noise)
    # Where tails are higher than normal ones, noise does more harm than its variance says.
    heavy = (tail(1.0 / guess.size) / normal_tail(1.0 / guess.size)) ** 2
    share = min(1.0, heavy * noise / (noise + signal))
    return np.asarray((1.0 - share) * kept + share * guess)


def shrink_rows(layout: Layout, rows: FloatArray, noise: FloatArray, seen: NDArray[np.bool_], tail: Tail) -> FloatArray:
    """Fall back on the guess in each row as far as its noise prevails.

    Parameters
    ----------
    layout : Layout
    rows : ndarray of shape (cells,)
        Noisy probabilities of the drawn cells.
    noise : ndarray of shape (rows,)
        Standard deviation of the noise in each drawn row, in units of its cells.
    seen : ndarray of bool of shape (rows,)
        Rows with enough weight.
    tail : callable
    """
    guess, units = layout.guess.ravel()[layout.cells], layout.units.ravel()[layout.cells]
    matrix = layout.guess.copy()
    if not seen.any():
        return matrix
    size = layout.row_sums(np.ones(len(rows)))
    apart = layout.row_sums(((rows - guess) / units) ** 2) / size
    precision = np.where(seen, size / noise**4, 0.0)
    signal = max(0.0, float((precision * (apart - noise**2)).sum() / precision.sum()))
    heavy = (tail(1.0 / len(rows)) / normal_tail(1.0 / len(rows))) ** 2
    share = np.where(seen, np.minimum(1.0, heavy * noise**2 / (noise**2 + signal)), 1.0)[layout.row_of]
    mixed = positive_mean(guess + (1.0 - share) * (rows - guess), (1.0 - share) * noise[layout.row_of] * units)
    false = (guess < LEAST_GUESS) & (rows <= tail(FALSE_JUMPS / len(rows)) * noise[layout.row_of] * units)
    mixed = np.where(false, 0.0, mixed)
    total = layout.row_sums(mixed)[layout.row_of]
    matrix.ravel()[layout.cells] = np.where(total > 0, mixed / np.maximum(total, 1e-300), guess)
    return matrix


def positive_mean(values: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return the means of normal variates that are known to be positive."""
    x = np.clip(values / np.maximum(deviation, 1e-300), -30.0, 9.0)  # beyond nine nothing is added
    ratio = np.exp(-0.5 * x * x - 0.5 * math.log(2.0 * math.pi) - log_ndtr(x))
    return np.asarray(np.where(x < 9.0, deviation * (x + ratio), values))


# ------------------------------------------------------------------ tails
def normal_tail(probability: float) -> float:
    """Return about how many standard deviations a normal variate exceeds with this probability."""
    return math.sqrt(2.0 * math.log(1.0 / probability))


def laplace_tail(probability: float) -> float:
    """Return how many standard deviations, of √2 scales each, a Laplace variate exceeds with twice this probability."""
    return math.log(1.0 / probability) / math.sqrt(2.0)
