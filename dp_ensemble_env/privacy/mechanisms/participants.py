r"""What one participant contributes to a release, and what is made of the noisy sums.

**Contributions.** Let :math:`g` be a public guess of the behaviour, :math:`C` the transitions of one
participant and :math:`R` their row sums. The participant is described by its rows
:math:`p = C/R`, each trusted as far as it was seen, :math:`\omega_b = R_b/(R_b + 5)`. It contributes

.. math:: x = \bigl(f\omega_b (p_{ba} - g_{ba})/\sqrt{\max(g_{ba}, g_0)},\;
          \rho\,(1 - f\omega_b)\bigr)/B, \qquad \|x\| \le 1,

and one more coordinate that is the same for everyone and counts participants. Three things are better than in
a plain sum of rows:

* *Cells are measured in units of the guess's standard deviation.* A plan weighs distant cells
  exponentially, so an error of 0.004 is nothing on the diagonal and ruins a row at five levels. With
  :math:`1/\sqrt g` the noise on a cell is in proportion to :math:`\sqrt g`.
* *The clip is a weight.* The largest :math:`f \le 1` with a norm of at most one is taken, and the
  second group of coordinates remembers how much weight each row lost. Dividing by the
  weight that is left gives a weighted mean of the participants' rows; a clip that scaled the
  differences alone would pull all rows to the guess, and so would rows never visited.
* *The size B is public.* It is the norm that participants with rows :math:`\sim \mathrm{Dir}(30\,g)` have.

**Estimate** (post-processing, free). The noise is known: cell `(b, a)` of :math:`g + S/W` has the standard
deviation :math:`s_b \sqrt{g_{ba}}`. Cells that noise alone would reach in one of `n²` cells are emptied; where
the guess is below 0.001, in one of a million releases, since a single false jump across many levels ruins a plan. If
clearly less than all of a row is left, the guess fills the emptied cells; then rows are normalised. The result is
mixed with the guess: with :math:`s^2` the mean square of the noise in these units and :math:`t^2` that
of the differences less :math:`s^2`, the guess gets the share :math:`s^2/(s^2 + t^2)` by James and Stein's argument,
half as much again for Laplace noise with its higher tails.
Weights of rows are taken to be three standard deviations at least, and if half of them are smaller, the release
is the guess itself: noise alone releases nothing worse.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env._validation import check_choice, check_shape, check_stochastic
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms.base import Mechanism, Permit, Seeding
from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism

FloatArray = NDArray[np.float64]
Tail = Callable[[float], float]
#: Height of the coordinate that counts participants; the sensitivity is the norm of (1, COUNT).
COUNT = 0.3
#: Contributions are cut off to multiples of one over this, so that sums and published noise are whole numbers.
GRID = 2**24
#: How much the participants' rows are expected to differ: like Dir(30 · guess).
EXPECTED_SPREAD = 30.0
#: How many releases, at most, show a jump that the guess all but excludes and noise has made up.
FALSE_JUMPS = 1e-6
_LEAST_GUESS = 1e-3
_PSEUDO_COUNTS = 5.0
_CHUNK = 500
#: What an event calls the guess where none is given.
LAZY_WALK = "lazy walk"
UNIT = "protects everything that one participant ever contributed (adjacent fleets differ by one participant)"
NO_SUPPORT = "every cell was drawn, so no support is assumed"


def require_fleet(data: Any, name: str) -> Fleet:
    """Refuse what has no participants."""
    if not isinstance(data, Fleet):
        raise ValueError(
            f"the {name} mechanism protects participants, so it draws from a Fleet, not from {type(data).__name__}; "
            "make one with Fleet.from_states, Fleet.read or Fleet.simulate."
        )
    return data


def name_of(guess: ArrayLike | None) -> str:
    """Name the guess in an event, so that draws around different guesses differ and share no stream."""
    if guess is None:
        return LAZY_WALK
    return hashlib.sha256(np.ascontiguousarray(guess, dtype="<f8").tobytes()).hexdigest()


class FleetMechanism(Mechanism):
    """A mechanism that draws from participants."""

    def data_of(self, model: Any) -> Any:
        """Return the participants of a model that has them."""
        fleet = getattr(model, "fleet", None)
        if fleet is None:
            raise ValueError(
                f"the {self.name} mechanism protects participants, and this model has none, just one matrix; draw the "
                f"release from a Fleet, ledger.release(mechanism({self.spec!r}), fleet), and give the environment "
                "that release."
            )
        return fleet

    @abstractmethod
    def noisy(self, data: Any, permit: Permit) -> FloatArray:
        """Return the noisy numbers that the guarantee is about; a release is made of them alone."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The public side of contributions: the guess, and what follows from it."""

    guess: FloatArray
    norm: int

    @classmethod
    def of(cls, fleet: Fleet, norm: int, guess: ArrayLike | None = None) -> Layout:
        """Lay out contributions around a public guess, by default the lazy walk."""
        if guess is None:
            return _lazy_walk(fleet.n_states, norm)
        matrix = check_stochastic(guess, "guess")
        check_shape(matrix, fleet.shape, "guess", "one row per level of the fleet")
        return cls(matrix, norm)

    @cached_property
    def units(self) -> FloatArray:
        """Unit of each cell, (n, n)."""
        return np.sqrt(np.maximum(self.guess, _LEAST_GUESS))

    @cached_property
    def size(self) -> float:
        """Expected norm B of the differences, if participants' rows were Dir(30 · guess)."""
        g = self.guess
        deviation = np.sqrt(g * (1.0 - g) / (EXPECTED_SPREAD + 1.0))
        if self.norm == 2:
            return float(np.sqrt(((deviation / self.units) ** 2).sum()))
        # Mean absolute deviations: of a nearly normal cell, or of one that is mostly zero.
        return float((np.minimum(2.0 * g * (1.0 - g), math.sqrt(2.0 / math.pi) * deviation) / self.units).sum())

    @cached_property
    def row_weight(self) -> float:
        """ρ: a participant who was never seen has half the norm, so that f = 0 is always allowed."""
        n = len(self.guess)
        return 0.5 * self.size / (math.sqrt(n) if self.norm == 2 else n)

    def contributions(self, counts: NDArray[Any]) -> FloatArray:
        """Return the contributions of some participants, (m, n² + n), each with a norm of at most one."""
        m, n, _ = counts.shape
        rows, trust = _rows(counts)
        moved = ((rows - self.guess) * trust[:, :, None] / self.units).reshape(m, n * n) / self.size
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
        """Return the sum of all contributions and the count, in whole multiples of 1 / GRID, shape (n² + n + 1,)."""
        return fleet.remembered((self.norm, self.guess.tobytes()), lambda: self._sums(fleet))

    def _sums(self, fleet: Fleet) -> NDArray[np.int64]:
        n = fleet.n_states
        total = np.zeros(n * n + n + 1, dtype=np.int64)
        for low in range(0, fleet.participants, _CHUNK):
            some = self.contributions(fleet.counts[low : low + _CHUNK])
            # Cutting off towards zero never lengthens a contribution; the factor absorbs rounding errors.
            total[:-1] += np.trunc(some * (GRID * (1.0 - 1e-12))).astype(np.int64).sum(axis=0)
        total[-1] = fleet.participants * int(COUNT * GRID)
        return total

    # ------------------------------------------------------------ post-processing
    def estimate(self, noisy: FloatArray, scale: float, tail: Tail) -> FloatArray:
        """Return a transition matrix from noisy sums.

        Parameters
        ----------
        noisy : ndarray of shape (n² + n + 1,)
            The sums, no longer in multiples of the grid.
        scale : float
            Standard deviation of the noise on each of them.
        tail : callable
            How many standard deviations the noise exceeds with about this probability.
        """
        n = len(self.guess)
        cells, lost, count = noisy[: n * n].reshape(n, n), noisy[n * n : -1], noisy[-1] / COUNT
        rho = self.row_weight / self.size
        weight = count - lost / rho
        least = 3.0 * scale * math.hypot(1.0 / COUNT, 1.0 / rho)
        if np.median(weight) <= least:
            return self.guess.copy()
        weight = np.maximum(weight, least)[:, None]
        return shrink(
            self,
            self.guess + self.size * self.units * cells / weight,
            self.size * scale * self.units / weight,
            tail,
        )


@lru_cache(maxsize=8)
def _lazy_walk(n: int, norm: int) -> Layout:
    return Layout(PublicMechanism().release(np.empty((n, n))).matrix, norm)


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
    k = np.where(guess < _LEAST_GUESS, tail(FALSE_JUMPS / guess.size), tail(1.0 / guess.size))
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


def _rows(counts: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Return the rows of participants, (m, n, n), and how far each is trusted, (m, n)."""
    seen = counts.sum(axis=2, dtype=float)
    return counts / np.maximum(seen, 1.0)[:, :, None], seen / (seen + _PSEUDO_COUNTS)


def trusted_rows(fleet: Fleet) -> FloatArray:
    """Return the sum of the participants' rows, each counted as far as it is trusted: at most one a participant."""
    return fleet.remembered("trusted rows", lambda: _trusted_rows(fleet))


def _trusted_rows(fleet: Fleet) -> FloatArray:
    total = np.zeros(fleet.shape)
    for low in range(0, fleet.participants, _CHUNK):
        rows, trust = _rows(fleet.counts[low : low + _CHUNK])
        total += (rows * trust[:, :, None]).sum(axis=0)
    return total


# ------------------------------------------------------------------ noise
def normal_tail(probability: float) -> float:
    """Return about how many standard deviations a normal variate exceeds with this probability."""
    return math.sqrt(2.0 * math.log(1.0 / probability))


def laplace_tail(probability: float) -> float:
    """Return how many standard deviations, of √2 scales each, a Laplace variate exceeds with twice this probability."""
    return math.log(1.0 / probability) / math.sqrt(2.0)


def require_source(seeding: Seeding) -> None:
    """Refuse a draw for publication without a cryptographic source of discrete noise."""
    if seeding == "os-entropy":
        try:
            import opendp  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "a release for publication draws its noise with OpenDP; install it with pip install "
                "'dp-ensemble-env[opendp]', or pass rng= for an experiment."
            ) from error


def add_noise(
    sums: NDArray[np.int64], kind: str, scale: float, rng: np.random.Generator, seeding: Seeding
) -> FloatArray:
    """Add Gaussian noise of this standard deviation, or Laplace noise of this scale, and leave the grid.

    For publication the noise is discrete, exact, and comes from OpenDP's cryptographic source;
    with a generator or a seed it is NumPy's.
    """
    check_choice(kind, "noise", ("gaussian", "laplace"))
    if seeding != "os-entropy":
        drawn = rng.normal(0.0, scale, sums.shape) if kind == "gaussian" else rng.laplace(0.0, scale, sums.shape)
        return np.asarray(sums / GRID + drawn)
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    # One part in a million more: on this grid the δ of discrete and continuous noise differ by less.
    wide = scale * GRID * (1.0 + 1e-6)
    if kind == "gaussian":
        draw = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=wide)
    else:
        draw = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=wide)
    return np.array(draw([int(value) for value in sums]), dtype=float) / GRID
