r"""The public side of an adaptive release: its cells, and how much an error in each of them costs a plan.

**Cells.** A cell is a decision in a state, in a class of times and contexts that behave alike. Where a support is
declared, cells outside it are not drawn, and neither are rows with one possible decision. Tied cells count as one.

**Curvature.** A plan that is made on :math:`P + e` and deployed on :math:`P` as a tilt loses
:math:`\tfrac12 e^\top H e` in the leading order. With :math:`\pi` the optimal policy on :math:`P`, :math:`\rho` its
occupancy, :math:`\ell_t` its tilt, :math:`W` the moves of the context and :math:`N` nature,

.. math::

    \delta\log z_t[s] = \sum_a \pi_t[s,a]\,\delta\ell_t[a] + \sum_a \frac{\pi_t[s,a]}{P[s,a]}\,e[s,a], \qquad
    \delta\ell_t = WN\,\delta\log z_{t+1}, \qquad
    H = \gamma \sum_t E_\rho \operatorname{Cov}_\pi(\delta\ell_t),

computed backwards for all cells at once. Ratios :math:`r = \pi/P` are damped to :math:`r/(1 + r/300)`. A coupled model
is taken at the shadow prices of the behaviour at hand.

Everything here is computed from declared-public fields of a model and from earlier noisy answers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.linalg import eigsh

from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms.fleet_sums import Rows, within
from dp_ensemble_env.privacy.mechanisms.noise import FloatArray
from dp_ensemble_env.privacy.mechanisms.public import public_guess
from dp_ensemble_env.tools.validation import check_shape

IntArray = NDArray[np.int64]
#: Participants' rows are expected to differ like Dir(30 · behaviour); a row that was seen so often is half trusted.
SPREAD = 30.0
#: Weight of the guess, and least probability, in the units of the later steps; least guess in those of the first.
MIX, LEAST, FIRST_LEAST = 0.1, 1e-3, 0.05
LEAST_TRUST = 0.002  #: Least mean trust that units are made of.
DAMPING = 300.0  #: Damping of the ratios of policy to behaviour.
FLAT = 1e-9  #: Utilities are flat if the curvature's trace is below this, in units of the penalty.
#: With more cells than this the `TOP` largest eigenvalues are taken; with more than `MOST` the release is refused.
LARGE, TOP, MOST = 700, 150, 6000
NEGLIGIBLE = 1e-7  #: Eigenvalues below this share of the isotropic part count as zero: 3e-8 of a query.


class Shape(NamedTuple):
    """A query along the curvature: v = low · y + V (gain · Vᵀy) with y = x / units, for x in probabilities."""

    units: FloatArray
    low: float
    gain: FloatArray
    vectors: FloatArray


@dataclass(frozen=True, eq=False)
class Problem(Rows):
    """What is public of a control problem, laid out in cells."""

    model: EnsembleModel  #: Made of declared-public fields; its default is the guess.
    classes: IntArray  #: Class of each time and context, from 0, in the leading shape of the default.
    cell: IntArray  #: Number of the cell, (classes, n, m), -1 where nothing is drawn.
    fixed: FloatArray  #: Probabilities where nothing is drawn.
    row_of: IntArray  #: Row of each cell; cells of a row follow each other.
    place: IntArray  #: Class, first state and first decision of each cell, (3, cells).
    guess: FloatArray  #: Guess of each cell.
    declared: bool  #: Whether a support is declared; if not every cell is drawn.

    @classmethod
    def of(cls, model: EnsembleModel, fleet: Fleet) -> Problem:
        """Lay out the public part of a model for a fleet, of which classes and shape alone are looked at."""
        check_shape(model.default, fleet.shape, "default", "the shape of the fleet's behaviour")
        given = public_guess(model)
        n, m = fleet.shape[-2:]
        support = np.ones(fleet.shape, dtype=bool) if model.declared_support is None else model.declared_support
        allowed = fleet.gather(support, "support", np.any).reshape(-1, n, m)
        guess = within(fleet.gather(given.matrix, "guess", np.mean).reshape(-1, n, m), allowed)
        drawn = allowed & (allowed.sum(axis=-1, keepdims=True) > 1)
        number, row, place = _number(drawn, model.ties)
        if len(row) > MOST:
            raise ValueError(
                f"behaviour has {len(row):,} cells, and the adaptive mechanism handles {MOST:,} at most; declare a "
                "support or ties, take fewer levels or classes of times, or the mechanism 'gaussian'."
            )
        cell = np.full(drawn.shape, -1)
        cell[drawn] = number
        tied = np.bincount(number, guess[drawn], len(row)) / np.maximum(np.bincount(number, minlength=len(row)), 1)
        sums = np.bincount(row, tied, row.max(initial=-1) + 1)
        lead, fixed = fleet.shape[:-2], np.where(drawn, 0.0, guess)
        classes = np.arange(math.prod(lead)).reshape(lead) if fleet.classes is None else fleet.classes
        declared = model.declared_support is not None
        return cls(model.public(given), classes, cell, fixed, row, place, tied / sums[row], declared)

    # ------------------------------------------------------------ cells
    @property
    def size(self) -> int:
        """Number of cells that are drawn."""
        return len(self.row_of)

    @cached_property
    def row_at(self) -> IntArray:
        """Row that is drawn for each class and state, (classes, n), -1 where none is."""
        most = self.cell.max(axis=-1)
        return np.where(most >= 0, self.row_of[most], -1) if self.size else most

    @cached_property
    def kind(self) -> IntArray:
        """Class of each time and context, (T, c)."""
        kinds = self.classes[:, None] if self.classes.ndim == 1 else self.classes
        return np.broadcast_to(kinds, (self.model.horizon, self.model.n_contexts)).astype(np.int64)

    def by_class(self, p: FloatArray) -> FloatArray:
        """Return the behaviour of each class, (classes, n, m)."""
        full = self.fixed.copy()
        drawn = self.cell >= 0
        full[drawn] = (p / self.row_sums(p)[self.row_of])[self.cell[drawn]]
        return full

    def matrix(self, p: FloatArray) -> FloatArray:
        """Return the behaviour in the shape of the model's default."""
        return np.asarray(self.by_class(p)[self.classes])

    def counts(self, fleet: Fleet) -> Iterator[FloatArray]:
        """Yield the counts of some participants after the other, (some, cells), tied cells added up."""
        flat = np.flatnonzero(self.cell.ravel() >= 0)
        ones, number = np.ones(len(flat)), self.cell.ravel()[flat]
        pool = csr_array((ones, (np.arange(len(flat)), number)), shape=(len(flat), self.size))
        for some in fleet.chunks(flat):
            yield some.astype(float) @ pool  # whole numbers: exact

    @property
    def digest(self) -> str:
        """Hash of all that the queries depend on beside the participants; public."""
        model = self.model
        arrays: list[Any] = [self.classes, self.cell, self.fixed, self.guess, model.utility, model.power_kw]
        arrays += [model.initial, model.nature, model.discomfort_penalty]
        arrays += [] if model.context is None else [model.context.transition, model.context.start]
        arrays += [] if model.coupling is None else [model.coupling.level, model.coupling.weight]
        hashed = hashlib.sha256(repr(model.coupling).encode())
        for array in arrays:
            plain = np.ascontiguousarray(np.nan if array is None else array, dtype="<f8") + 0.0  # zero has no sign
            hashed.update(repr(plain.shape).encode() + plain.tobytes())
        return hashed.hexdigest()

    @cached_property
    def alike(self) -> FloatArray | None:
        """Root of the prior's correlations where behaviour changes by time: neighbouring levels and hours are alike."""
        time, level, target = self.place
        if self.classes.ndim != 1 or len(self.cell) == 1 or level.max(initial=0) != target.max(initial=0):
            return None
        later, higher, to, by = (np.abs(np.subtract.outer(x, x)) for x in (time, level, target, target - level))
        near = 0.7 * 0.5**later * np.exp(-higher / 2.0) * 0.5 * (np.exp(-to) + np.exp(-by))
        near[np.diag_indices_from(near)] += 0.3 + 1e-9
        return np.asarray(np.linalg.cholesky(near), dtype=float)

    # ------------------------------------------------------------ dynamics
    @cached_property
    def _tables(self) -> Any:
        return self.model.tables()

    def _forward(self, t: int, rho: FloatArray, policy: FloatArray) -> FloatArray:
        """Return the shares (c, n) one step later."""
        decided = np.einsum("ws,wsa->wa", rho, policy)
        if self.model.nature is not None:
            decided = np.einsum("wa,was->ws", decided, self._tables.nature[t])
        return np.asarray(self._tables.context[t].T @ decided)

    def visits(self, p: FloatArray) -> list[FloatArray]:
        """Forecast how often rows are visited in an episode without control; for plain levels also in the long run."""
        behaviour, rho, often = self.by_class(p), np.atleast_2d(self.model.start_weights), np.zeros(self.row_at.shape)
        for t, kind in enumerate(self.kind):
            np.add.at(often, kind, rho)
            rho = self._forward(t, rho, behaviour[kind])
        drawn = self.row_at >= 0
        forecasts: list[FloatArray] = [np.bincount(self.row_at[drawn], often[drawn], self.rows).astype(float)]
        if len(behaviour) == 1 and self.model.nature is None:
            lasting = np.linalg.matrix_power(0.999 * behaviour[0] + 0.001 / behaviour.shape[-1], 1024)[:1]
            forecasts.append(np.bincount(self.row_at[drawn], lasting[drawn], self.rows).astype(float))
        return forecasts

    def curvature(self, p: FloatArray, damping: float = DAMPING) -> FloatArray:
        """Return H, (cells, cells): a plan made on p + e and deployed on p as a tilt loses e'He/2."""
        p = np.maximum(p, 1e-9)
        behaviour, penalty, tables = self.by_class(p), self.model.discomfort_penalty, self._tables
        policy, ratio = self._optimum(p, behaviour)
        horizon, contexts = self.kind.shape
        single = np.float32 if self.size > LARGE else np.float64
        occupied = [np.atleast_2d(self.model.start_weights)]
        for t in range(horizon - 1):
            occupied.append(self._forward(t, occupied[t], policy[t]))
        H, dz = np.zeros((self.size, self.size)), np.zeros((contexts, behaviour.shape[1], self.size))
        low = self.size
        for t in range(horizon - 1, -1, -1):
            ahead = np.tensordot(tables.context[t], dz, 1)
            ahead = ahead if self.model.nature is None else np.matmul(tables.nature[t], ahead)  # δℓ
            mean, decided = np.matmul(policy[t], ahead), np.einsum("ws,wsa->wa", occupied[t], policy[t])
            if low < self.size:  # cells before this one come later in time, or not at all
                for sign, weight, values in ((1.0, decided, ahead), (-1.0, occupied[t], mean)):
                    X = (np.sqrt(weight)[..., None] * values).reshape(-1, self.size)[weight.ravel() > 1e-9, low:]
                    H[low:, low:] += sign * (X.astype(single).T @ X.astype(single))
            dz = mean
            for w, kind in enumerate(self.kind[t]):
                s, a = np.nonzero(self.cell[kind] >= 0)
                r = ratio[t][w, s, a]
                dz[w, s, self.cell[kind, s, a]] += r / (1.0 + r / damping)
                low = min(low, int(self.cell[kind, s, a].min(initial=low)))
        return np.asarray(penalty * (H + H.T) / 2.0)

    def _optimum(self, p: FloatArray, behaviour: FloatArray) -> tuple[list[FloatArray], list[FloatArray]]:
        """Return the optimal policy at each time, (c, n, m), and its ratio to the behaviour."""
        model, tables = self.model, self._tables
        value = tables.utility / model.discomfort_penalty
        if model.coupling is not None:
            price = solve_standard(model.with_default(self.matrix(p))).shadow_price  # type: ignore[attr-defined]
            by_context = price[:, None] if price.ndim == 1 else price
            value[1:] -= by_context[..., None] * model.power_kw / model.discomfort_penalty
        with np.errstate(divide="ignore"):
            log_behaviour = np.maximum(np.log(behaviour), math.log(1e-300))
        log_z = value[-1]
        policy, ratio = list[FloatArray](), list[FloatArray]()
        for t in range(model.horizon - 1, -1, -1):
            tilt = tables.context[t] @ log_z
            tilt = tilt if model.nature is None else np.einsum("was,ws->wa", tables.nature[t], tilt)
            kind = self.kind[t]
            log_g = np.logaddexp.reduce(log_behaviour[kind] + tilt[:, None, :], axis=-1)
            ratio.insert(0, np.exp(np.minimum(tilt[:, None, :] - log_g[..., None], 50.0)))
            policy.insert(0, behaviour[kind] * ratio[0])
            log_z = value[t] + log_g
        return policy, ratio

    # ------------------------------------------------------------ queries
    def shape(self, p: FloatArray, trust: FloatArray, floor: float | None) -> Shape:
        """Return a query along the curvature at p: G = (H' + φI)^¼ / √tr (H' + φI)^½, φ = `floor` · tr H' / cells.

        H' is the curvature in units of what participants are expected to contribute, on rows that sum to zero. Without
        a floor, and where utilities are flat, G is the same in all directions.
        """
        trust = np.maximum(trust, LEAST_TRUST)[self.row_of]
        mixed = np.maximum((1.0 - MIX) * p + MIX * self.guess, LEAST)
        root = np.sqrt(np.maximum(self.guess, FIRST_LEAST) if floor is None else mixed)
        units = root * np.sqrt(trust / SPREAD)
        even = Shape(units, max(self.size - self.rows, 1) ** -0.5, np.zeros(0), np.zeros((self.size, 0)))
        if floor is None:
            return even
        H = self.curvature(p) * (units / trust)[:, None] * (units / trust)[None, :]
        if not np.isfinite(H).all():
            return even
        normal = root / np.sqrt(self.row_sums(root**2))[self.row_of]
        for _ in range(2):  # rows sum to zero: project on both sides
            H = (H - self.row_sums(H * normal)[:, self.row_of] * normal).T
        H = (H + H.T) / 2.0
        trace = float(np.trace(H))
        if not trace > FLAT * self.model.discomfort_penalty:
            return even
        start = np.cos(np.arange(self.size))  # fixed, so that equal answers give equal queries
        values, vectors = eigh(H) if self.size <= LARGE else eigsh(H, k=TOP, which="LA", v0=start)
        phi = floor * trace / self.size
        kept = values > NEGLIGIBLE * phi
        values, vectors = values[kept], np.ascontiguousarray(vectors[:, kept])
        half = np.sqrt(values + phi)
        total = math.sqrt(phi) * (self.size - self.rows) + float((half - math.sqrt(phi)).sum())
        low = phi**0.25 / math.sqrt(total)
        return Shape(units, low, np.sqrt(half / total) - low, vectors)


def _number(drawn: NDArray[np.bool_], ties: IntArray | None) -> tuple[IntArray, IntArray, IntArray]:
    """Return the number of each drawn entry, equal for tied ones, and of each number its row and its place."""
    k, s, a = np.nonzero(drawn)
    n, m = drawn.shape[-2:]
    label = s * m + a if ties is None else ties[s, a]
    every = k * (int(label.max(initial=0)) + 1) + label
    _, first, inverse = np.unique(every, return_index=True, return_inverse=True)
    order = np.argsort(first)  # cells of a row follow each other
    number, first = np.argsort(order)[inverse.ravel()], first[order]
    own = k * n + s
    row = np.unique(own[first], return_inverse=True)[1].ravel()
    one_row = len(np.unique(own * (len(row) + 1) + row[number])) == len(np.unique(own))
    once = len(np.unique(own * (len(row) + 1) + number)) == len(number)
    if not (one_row and once and (np.bincount(own)[own] == np.bincount(row)[row[number]]).all()):
        raise ValueError(
            "ties must join whole rows: two states with one equal number have all numbers equal on the support, each "
            "once; correct EnsembleModel.ties."
        )
    level, target = (np.unique(index[first], return_inverse=True)[1].ravel() for index in (s, a))
    return number, row, np.stack([k[first], level, target])
