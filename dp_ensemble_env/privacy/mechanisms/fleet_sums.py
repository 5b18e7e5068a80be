r"""What one participant contributes to a release, and what is made of the noisy sums.

**Contributions.** Let :math:`g` be a public guess of the behaviour, :math:`C` the transitions or decisions of one
participant and :math:`R` their row sums; a row is a state, at one time and in one context where behaviour depends on
them. The participant is described by its rows :math:`p = C/R`, each trusted as far as it was seen,
:math:`\omega_b = R_b/(R_b + 5)`. It contributes

.. math:: x = \bigl(f\omega_b (p_{ba} - g_{ba})/\sqrt{\max(g_{ba}, g_0)},\;
          \rho\,(1 - f\omega_b)\bigr)/B, \qquad \|x\| \le 1,

and one more coordinate that is the same for everyone and counts participants. The norm is that of all rows together,
so the price of a draw does not depend on their number. Three things are better than in a plain sum of rows:

* *Cells are measured in units of the guess's standard deviation.* A plan weighs distant cells exponentially; with
  :math:`1/\sqrt g` the noise on a cell is in proportion to :math:`\sqrt g`.
* *The clip is a weight.* The largest :math:`f \le 1` with a norm of at most one is taken, and the second group of
  coordinates remembers how much weight each row lost. Dividing by the weight that is left gives a weighted mean of the
  participants' rows.
* *The size B is public.* It is the norm that participants with rows :math:`\sim \mathrm{Dir}(30\,g)` have.

Where a support is declared public, what a participant did outside it is left out, nothing is drawn there, and rows
with one possible decision are not drawn at all.

**Estimates** (post-processing, free). The noise is known: cell `(b, a)` of :math:`g + S/W` has the standard deviation
:math:`s_b \sqrt{g_{ba}}`. Weights of rows are taken to be three standard deviations at least.

*One matrix of moves between levels.* Cells that noise alone would reach in one of `n²` cells are emptied; where the
guess is below 0.001, in one of a million releases. If clearly less than all of a row is left, the guess fills the
emptied cells; then rows are normalised. The result is mixed with the guess: with :math:`s^2` the mean square of the
noise in these units and :math:`t^2` that of the differences less :math:`s^2`, the guess gets the share :math:`s^2/(s^2
+ t^2)` by James and Stein's argument, half as much again for Laplace noise with its higher tails. If half of the
weights are below the least, the release is the guess itself.

*Many rows* (times, contexts, states with their own decisions) are seen to different degrees, some never. Each has its
own noise :math:`s_b` and share :math:`s_b^2/(s_b^2 + t^2)` of the guess, where :math:`t^2` is the mean over rows in
which the accurate ones count most; a row below the least weight is the guess's. Only cells that the guess all but
excludes are emptied; of others the mean of a normal variate that is known to be positive is taken.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.control.lsmdp import log_probabilities
from dp_ensemble_env.privacy.accounting.calibrate import check_epsilon
from dp_ensemble_env.privacy.accounting.divergence import check_delta
from dp_ensemble_env.privacy.adjacency import NeighboringRelation
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms.base import Event, Mechanism, Permit, Seeding
from dp_ensemble_env.privacy.mechanisms.noise import (
    GRID,
    FloatArray,
    Tail,
    add_noise,
    check_proven,
    normal_tail,
    on_grid,
    positive_mean,
)
from dp_ensemble_env.privacy.mechanisms.public import LAZY_WALK, PublicMechanism, name_of
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.validation import check_count, check_positive, check_stochastic

#: Cells are measured in units of the guess's standard deviation, or of this guess if theirs is smaller.
LEAST_GUESS = 1e-3
FALSE_JUMPS = 1e-6  #: How many releases, at most, show a jump that the guess all but excludes and noise has made up.
COUNT = 0.3  #: Height of the coordinate that counts participants; the sensitivity is the norm of (1, COUNT).
EXPECTED_SPREAD = 30.0  #: How much the participants' rows are expected to differ: like Dir(30 · guess).
_PSEUDO_COUNTS = 5.0
_LEAST_SIZE = 0.1  #: B of a guess that leaves nothing open.
UNIT = "protects everything that one participant ever contributed (adjacent fleets differ by one participant)"
NO_SUPPORT = "every cell was drawn, so no support is assumed"
SUPPORT = "assumes that the declared support is public"
PROVEN = "published noise is discrete and drawn by OpenDP, and its proof gives the claim ({})"


def require_fleet(data: Any, name: str) -> Fleet:
    """Refuse what has no participants."""
    if not isinstance(data, Fleet):
        raise ValueError(
            f"the {name} mechanism protects participants, so it draws from a Fleet, not from {type(data).__name__}; "
            "make one with Fleet.from_states, Fleet.from_decisions, Fleet.read or scenarios.participants."
        )
    return data


def support_name(support: NDArray[np.bool_] | None) -> str:
    """Name a declared support in an event; empty if every cell is drawn."""
    return "" if support is None else hashlib.sha256(np.packbits(support).tobytes()).hexdigest()


def within(guess: FloatArray, allowed: NDArray[np.bool_]) -> FloatArray:
    """Return the guess on a declared support, rows normalised."""
    inside = np.where(allowed, guess, 0.0)
    total = inside.sum(axis=-1, keepdims=True)
    if not (total > 0).all():
        raise ValueError("the guess lies outside the declared support in some row; declare a wider support.")
    return np.asarray(inside / total)


@dataclass(frozen=True, kw_only=True)
class FleetEvent(Event):
    """What the draws from participants have in common."""

    relation: ClassVar[NeighboringRelation | None] = NeighboringRelation.ADD_OR_REMOVE_ONE
    noise: ClassVar[str]  #: Name of the field that says how much noise there is.
    states: int  #: Number of levels, or of states.
    guess: str = LAZY_WALK  #: Name of the public guess.
    shape: tuple[int, ...] = ()  #: Shape of the release; empty if it is one matrix of moves between the levels.
    rows: int = 0  #: Number of rows that are drawn, and that a participant may touch; 0 if there is one a level.
    support: str = ""  #: Hash of the declared support; empty if every cell is drawn.

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.states, "states", 2)
        check_count(self.rows, "rows", 0)
        check_positive(getattr(self, self.noise), self.noise)

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return f"{self.noise}={getattr(self, self.noise):.4g}"

    def stream_key(self) -> dict[str, Any]:
        """Return the fields hashed into the stream of a seeded draw; frozen, see `Event.stream_key`."""
        wide = {"shape": self.shape, "rows": self.rows, "support": self.support}
        key = {"type": self.type, "seeding": self.seeding, "states": self.states, "guess": self.guess}
        return {**key, self.noise: getattr(self, self.noise), **{name: value for name, value in wide.items() if value}}

    @staticmethod
    def terms(events: Sequence[Any], published: str) -> list[str]:
        """Name the unit of protection, what is assumed, and how draws are made that are `published`."""
        most = max(event.rows for event in events)
        wide = [f"its decisions in all {most} rows are bounded together"] if most else []
        support = SUPPORT if any(event.support for event in events) else NO_SUPPORT
        return [UNIT, *wide, support, *[published] * any(event.seeding == "os-entropy" for event in events)]


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
                f"participants, as in {self.spec + ',participants=1000'!r}, to simulate a scenario's fleet, or draw "
                "the release from a Fleet, with dp-ensemble privacy release --fleet or in Python ledger.release, and "
                "pass it as privacy."
            )
        return fleet


@dataclass(frozen=True)
class EpsilonDelta(FleetMechanism):
    """A mechanism whose draws are (ε, δ)-private."""

    epsilon: float
    delta: float = 1e-6

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)


class OneQuery(FleetMechanism):
    """A mechanism that draws noisy numbers at once, and estimates behaviour from them alone."""

    norm: ClassVar[int] = 2  #: Norm of a contribution that is bounded, 1 or 2.

    @abstractmethod
    def describe(self, **about: Any) -> FleetEvent:
        """Return the event of a draw with these fields of a `FleetEvent`."""

    @abstractmethod
    def numbers(self, fleet: Fleet, layout: Layout, event: Any, rng: np.random.Generator) -> FloatArray:
        """Draw the noisy numbers."""

    @abstractmethod
    def estimate(self, layout: Layout, noisy: FloatArray, event: Any) -> FloatArray:
        """Make behaviour, (rows, m), of the noisy numbers."""

    def terms_of(self, model: Any) -> dict[str, Any]:
        """Return the model's own guess, if it has one, and with nature the support that the guess's zeros declare."""
        terms = PublicMechanism().terms_of(model)
        return terms if not terms or model.nature is None else {**terms, "support": np.asarray(model.guess) > 0}

    def event(
        self, data: Any, *, seeding: Seeding = "os-entropy", guess: ArrayLike | None = None, support: Any = None
    ) -> FleetEvent:
        """Describe a draw from a fleet; only its shape is read."""
        fleet = require_fleet(data, self.name)
        about = {"states": fleet.n_states, "guess": name_of(guess), "seeding": seeding}
        layout = Layout.of(fleet, self.norm, guess, support)
        if layout.several:
            about |= {"shape": fleet.shape, "rows": layout.rows, "support": support_name(layout.support)}
        return self.describe(**about)

    def draw(self, data: Any, permit: Permit, *, guess: ArrayLike | None = None, support: Any = None) -> Release:
        """Draw one release from a fleet.

        Neither term may come from the data: `guess`, a public guess of the behaviour (by default a lazy walk), and
        `support`, true where a decision is possible by public knowledge (by default everywhere: every cell gets noise).
        """
        noisy = self.noisy(data, permit, guess, support)
        matrix = self.estimate(Layout.of(data, self.norm, guess, support), noisy, permit.event)
        return Release(data.spread(np.minimum(log_probabilities(matrix), 0.0)), permit.event)

    def noisy(self, data: Any, permit: Permit, guess: ArrayLike | None = None, support: Any = None) -> FloatArray:
        """Return the noisy numbers that the guarantee is about; a release is made of them alone."""
        permit.covers(self.event(data, seeding=permit.event.seeding, guess=guess, support=support))
        return self.numbers(data, Layout.of(data, self.norm, guess, support), permit.event, permit.rng)


class NoisySums(OneQuery):
    """A mechanism that adds noise to the sum of the contributions."""

    noise: ClassVar[str]  #: Kind of noise, ``"gaussian"`` or ``"laplace"``.
    sensitivity: ClassVar[float]  #: The largest norm of a contribution with its count.

    @staticmethod
    @abstractmethod
    def tail(probability: float) -> float:
        """Return about how many standard deviations the noise exceeds with this probability."""

    @abstractmethod
    def scale(self, event: Any) -> float:
        """Return the scale of the noise on each sum, as `noise.add_noise` takes it."""

    def deviation(self, event: Any) -> float:
        """Return the standard deviation of that noise."""
        return self.scale(event)

    def numbers(self, fleet: Fleet, layout: Layout, event: Any, rng: np.random.Generator) -> FloatArray:
        """Return the noisy sums."""
        if event.seeding == "os-entropy":
            check_proven(self.noise, self.scale(event), self.sensitivity, event.cost)
        return add_noise(layout.sums(fleet), self.noise, self.scale(event), rng, event.seeding)

    def estimate(self, layout: Layout, noisy: FloatArray, event: Any) -> FloatArray:
        """Divide the sums by the weights of the rows, and shrink the result to the guess."""
        scale, split = self.deviation(event), len(layout.cells)
        cells, lost, count = noisy[:split], noisy[split:-1], noisy[-1] / COUNT
        rho = layout.row_weight / layout.size
        weight = count - lost / rho
        least = 3.0 * scale * math.hypot(1.0 / COUNT, 1.0 / rho)
        if not layout.several and np.median(weight) <= least:
            return layout.guess
        seen, weight = weight > least, np.maximum(weight, least)
        rows = layout.drawn_guess + layout.size * layout.units * cells / weight[layout.row_of]
        if layout.several:
            return shrink_rows(layout, rows, layout.size * scale / weight, seen, self.tail)
        return shrink(layout, rows, layout.size * scale * layout.units / weight[layout.row_of], self.tail)


# ------------------------------------------------------------------ contributions
class Rows:
    """Drawn cells in rows; the cells of a row follow each other."""

    row_of: NDArray[np.int64]  #: Which row each cell belongs to, from 0.

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the rows begin among the cells."""
        return np.flatnonzero(np.diff(self.row_of, prepend=-1))

    @property
    def rows(self) -> int:
        """Number of rows that are drawn, and that a participant may touch."""
        return len(self.starts)

    def row_sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum cells, (..., cells), over each row."""
        if not self.rows:
            return np.zeros((*values.shape[:-1], 0))
        return np.asarray(np.add.reduceat(values, self.starts, axis=-1))


@dataclass(frozen=True, eq=False)
class Layout(Rows):
    """The public side of contributions: the guess, a declared support, and what follows from them."""

    guess: FloatArray  #: Of shape (rows, m).
    norm: int
    support: NDArray[np.bool_] | None = None  #: As declared, (rows, m); where none is given every cell is drawn.
    several: bool = False  #: Whether the rows are more, or other, than those of one matrix of moves between levels.

    @classmethod
    def of(cls, fleet: Fleet, norm: int, guess: ArrayLike | None = None, support: ArrayLike | None = None) -> Layout:
        """Lay out contributions around a public guess, by default the lazy walk."""
        if guess is None:
            guess = fleet.remembered("lazy walk", lambda: PublicMechanism().release(fleet).matrix)
            if support is None:
                return fleet.remembered(("layout", norm), lambda: cls.of(fleet, norm, guess))
        rows = fleet.gather(check_stochastic(guess, "guess", square=False), "guess", np.mean)
        if support is None:
            return cls(rows, norm, several=fleet.shape != (fleet.n_states, fleet.n_states))
        allowed = fleet.gather(np.asarray(support, dtype=bool), "support", np.any)
        rows = within(rows, allowed)
        if not (allowed.sum(axis=1) > 1).any():
            remedy = "declare a wider support, or take the mechanism 'public'"
            raise ValueError(f"the declared support leaves one decision in every row: nothing is drawn; {remedy}.")
        return cls(rows, norm, allowed, several=True)

    # ------------------------------------------------------------ cells
    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """The cells that are drawn, numbered in C order: those of rows with several possible decisions."""
        if self.support is None:
            return np.arange(self.guess.size)
        return np.flatnonzero(self.support & (self.support.sum(axis=1, keepdims=True) > 1))

    @cached_property
    def row_of(self) -> NDArray[np.int64]:  # type: ignore[override]
        """Which of the drawn rows each of these cells belongs to."""
        return np.unique(self.cells // self.guess.shape[1], return_inverse=True)[1]

    @cached_property
    def drawn_guess(self) -> FloatArray:
        """Guess of each drawn cell."""
        return self.guess.ravel()[self.cells]

    @cached_property
    def units(self) -> FloatArray:
        """Unit of each drawn cell."""
        return np.sqrt(np.maximum(self.drawn_guess, LEAST_GUESS))

    @cached_property
    def size(self) -> float:
        """Expected norm B of the differences, if participants' rows were Dir(30 · guess)."""
        g, units = self.drawn_guess, self.units
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

    @cached_property
    def key(self) -> bytes:
        """What tells sums of one fleet apart."""
        return self.guess.tobytes() + (b"" if self.support is None else self.support.tobytes())

    # ------------------------------------------------------------ contributions
    def shares(self, counts: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Return what participants did in each row, (k, cells), and how far each row is trusted, (k, rows)."""
        seen = self.row_sums(counts.astype(float))
        return counts / np.maximum(seen, 1.0)[:, self.row_of], seen / (seen + _PSEUDO_COUNTS)

    def contributions(self, counts: NDArray[Any]) -> FloatArray:
        """Return the contributions of some participants, (k, cells + rows), each with a norm of at most one."""
        shares, trust = self.shares(counts.reshape(len(counts), -1))
        moved = (shares - self.drawn_guess) * trust[:, self.row_of] / self.units / self.size
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
        root = (b + np.sqrt(b * b - a * (rho**2 * n - 1.0))) / np.maximum(a, np.finfo(float).tiny)
        return np.asarray(np.minimum(1.0, root))

    def sums(self, fleet: Fleet) -> NDArray[np.int64]:
        """Return the sum of all contributions and the count, in whole multiples of 1 / GRID, (cells + rows + 1,)."""

        def summed() -> NDArray[np.int64]:
            total = np.zeros(len(self.cells) + self.rows + 1, dtype=np.int64)
            for counts in fleet.chunks(None if self.support is None else self.cells):
                total[:-1] += on_grid(self.contributions(counts)).astype(np.int64).sum(axis=0)
            total[-1] = fleet.participants * int(COUNT * GRID)
            return total

        return fleet.remembered((self.norm, self.key), summed)


# ------------------------------------------------------------------ estimates
def shrink(layout: Layout, rows: FloatArray, deviation: FloatArray, tail: Tail) -> FloatArray:
    """Make one matrix of noisy cells: empty what noise could have made, mix in the guess as far as noise prevails."""
    guess = layout.guess
    rows, deviation, units = (cells.reshape(guess.shape) for cells in (rows, deviation, layout.units))
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
    share = min(1.0, _heavy(tail, guess.size) * noise / (noise + signal))
    return np.asarray((1.0 - share) * kept + share * guess)


def shrink_rows(layout: Layout, rows: FloatArray, noise: FloatArray, seen: NDArray[np.bool_], tail: Tail) -> FloatArray:
    """Make rows of noisy cells, (cells,): the guess is mixed into each as far as its noise prevails.

    `noise` is the standard deviation in each row, in units of its cells; `seen` says which rows have enough weight.
    """
    guess, units, row_of = layout.drawn_guess, layout.units, layout.row_of
    matrix = layout.guess.copy()
    if not seen.any():
        return matrix
    size = layout.row_sums(np.ones(len(rows)))
    apart = layout.row_sums(((rows - guess) / units) ** 2) / size
    precision = np.where(seen, size / noise**4, 0.0)
    signal = max(0.0, float((precision * (apart - noise**2)).sum() / precision.sum()))
    share = np.minimum(1.0, _heavy(tail, len(rows)) * noise**2 / (noise**2 + signal))
    share = np.where(seen, share, 1.0)[row_of]
    mixed = positive_mean(guess + (1.0 - share) * (rows - guess), (1.0 - share) * noise[row_of] * units)
    false = (guess < LEAST_GUESS) & (rows <= tail(FALSE_JUMPS / len(rows)) * noise[row_of] * units)
    mixed = np.where(false, 0.0, mixed)
    total = layout.row_sums(mixed)[row_of]
    matrix.ravel()[layout.cells] = np.where(total > 0, mixed / np.maximum(total, 1e-300), guess)
    return matrix


def _heavy(tail: Tail, cells: int) -> float:
    """Return how much more harm noise does than its variance says, where its tails are higher than normal ones."""
    return (tail(1.0 / cells) / normal_tail(1.0 / cells)) ** 2
