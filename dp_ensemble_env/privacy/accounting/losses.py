r"""Privacy losses as data: the closed family that events are stored with.

A loss knows its Rényi divergences and, where a dominating pair is known, its privacy-loss distribution. It needs
nothing else to be composed with any other, and it is written as JSON: any process composes an entry of a ledger
without the code of the mechanism that drew it. A mechanism whose loss is none of these states a table of Rényi
divergences (`RenyiLoss`), or a pure ε (`PureLoss`). `compose` says what several losses cost together.

*Gaussian.* Exact alone and among its like; in mixtures by ``dp-accounting``.

*Laplace.* The noise is a vector and the bound is on the L1 norm of a participant's contribution. The pair with
the whole shift in one coordinate dominates all others (``docs/proofs.md``).

*Pure.* Randomised response with the probabilities :math:`p = e^\varepsilon/(1 + e^\varepsilon)` and :math:`q = 1 - p`
dominates every (ε, 0)-private draw. Its curve has two terms, :math:`\delta(x) = (p - e^x q)_+ + (q - e^x p)_+`. The
second one matters below :math:`-\varepsilon` alone, and without it a total falls when something is added.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dp_ensemble_env.privacy.accounting.calibrate import ORDERS, posterior_renyi
from dp_ensemble_env.privacy.accounting.divergence import (
    ENTRIES,
    Entries,
    FloatArray,
    check_row_settings,
    log_worst_case_delta,
    renyi_divergence,
    renyi_limit,
    worst_case_epsilon,
)
from dp_ensemble_env.tools.validation import check_choice, check_count, check_in_range, check_positive

#: How rows of a draw compose: "sequential" (all), "parallel" (the worst of each matrix), or so many of each matrix.
Rows = str | int
TAIL_MASS = 1e-20  #: Mass of a row's loss beyond the grid, moved to infinity (the pessimistic side).
# Relative rounding error allowed for in the incomplete beta functions, added so that δ errs upwards.
_ROUNDING = 1e-12


# ------------------------------------------------------------------ the family
@dataclass(frozen=True)
class Loss(ABC):
    """The privacy loss of one draw; its settings are positive, and equal losses compare equal."""

    kind: ClassVar[str]  #: Its name in files.

    def __post_init__(self) -> None:
        for one in fields(self):
            check_positive(getattr(self, one.name), one.name)

    @abstractmethod
    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return upper bounds on the Rényi divergences of these orders; infinity where none is known."""

    def distribution(self, step: float) -> Any | None:
        """Return a pessimistic privacy-loss distribution of ``dp-accounting`` on this grid; None if none is known."""
        return None

    @property
    def reach(self) -> float:
        """Rough upper bound on the loss, to choose a grid; 0 if it is known to fit."""
        return 0.0


@dataclass(frozen=True)
class NoBound(Loss):
    """Nothing bounds the loss for all inputs."""

    kind: ClassVar[str] = "none"

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return infinity."""
        return np.full(orders.shape, np.inf)


@dataclass(frozen=True)
class PureLoss(Loss):
    """Any draw that is (ε, 0)-private: randomised response with the same ε dominates it."""

    kind: ClassVar[str] = "pure"
    epsilon: float

    @property
    def reach(self) -> float:
        """Its ε."""
        return self.epsilon

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return the divergences of randomised response."""
        log_p, log_q = -np.logaddexp(0.0, -self.epsilon), -np.logaddexp(0.0, self.epsilon)
        # The order 1 is a limit, and all orders are below epsilon.
        above = np.maximum(orders, 1.0 + 1e-9)
        both = np.logaddexp(above * log_p + (1.0 - above) * log_q, above * log_q + (1.0 - above) * log_p)
        return np.asarray(np.minimum(both / (above - 1.0), self.epsilon))

    def distribution(self, step: float) -> Any:
        """Return the distribution of randomised response."""

        def delta_at(grid: FloatArray) -> FloatArray:
            log_q = -np.logaddexp(0.0, self.epsilon)  # of the rarer answer, lost beside one from epsilon = 37 on
            p, q = -np.expm1(log_q), np.exp(log_q)
            likelier = np.maximum(p - np.exp(grid + log_q), 0.0)
            return np.asarray(likelier + np.maximum(q - p * np.exp(np.minimum(grid, 0.0)), 0.0))

        return discretised(delta_at, self.epsilon, step)


@dataclass(frozen=True)
class LaplaceLoss(PureLoss):
    """A Laplace draw whose scale is the L1 sensitivity over `epsilon`."""

    kind: ClassVar[str] = "laplace"

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return the divergences of one coordinate with the whole shift."""
        x = np.maximum(orders, 1.0 + 1e-9)
        up = np.log(x / (2.0 * x - 1.0)) + (x - 1.0) * self.epsilon
        down = np.log((x - 1.0) / (2.0 * x - 1.0)) - x * self.epsilon
        return np.asarray(np.minimum(np.logaddexp(up, down) / (x - 1.0), self.epsilon))

    def distribution(self, step: float) -> Any:
        """Return the pessimistic distribution of ``dp-accounting``."""
        from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism

        return from_laplace_mechanism(1.0 / self.epsilon, value_discretization_interval=step)


@dataclass(frozen=True)
class GaussianLoss(Loss):
    """A Gaussian draw whose standard deviation is `sigma` times the L2 sensitivity."""

    kind: ClassVar[str] = "gaussian"
    sigma: float

    @property
    def reach(self) -> float:
        """Its mean and ten standard deviations."""
        return 0.5 / self.sigma**2 + 10.0 / self.sigma

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return λ / (2σ²)."""
        return orders / (2.0 * self.sigma**2)

    def distribution(self, step: float) -> Any:
        """Return the pessimistic distribution of ``dp-accounting``."""
        from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

        return from_gaussian_mechanism(self.sigma, value_discretization_interval=step)


@dataclass(frozen=True)
class ConcentratedLoss(Loss):
    """A ρ-zCDP draw, such as discrete Gaussian noise; its loss distribution is not known."""

    kind: ClassVar[str] = "zcdp"
    rho: float

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return ρλ."""
        return orders * self.rho


@dataclass(frozen=True)
class RowLoss(Loss):
    """One row of a Dirichlet release: its dominating pair, or the Rényi bound for moves of any entries.

    `rounding` bounds what rounding adds to the loss of every outcome of a published row; the accountant adds it to ε.
    """

    kind: ClassVar[str] = "dirichlet-row"
    k: float
    omega: float
    h: float
    entries: Entries = "two"
    rounding: float = 0.0

    def __post_init__(self) -> None:
        check_in_range(self.rounding, "rounding", 0, math.inf)
        check_row_settings(self.k, self.h, self.omega)
        check_choice(self.entries, "entries", ENTRIES)

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return the divergences up to the order where they end."""
        bound = np.full(orders.shape, np.inf)
        below = orders < renyi_limit(self.h, self.omega, self.entries)
        bound[below] = renyi_divergence(orders[below], self.k, self.h, self.omega, self.entries)
        return bound

    def distribution(self, step: float) -> Any | None:
        """Return the distribution of the dominating pair, which is known for moves of two entries."""
        return None if self.entries == "any" else row_distribution(self.k, self.omega, self.h, step)


@dataclass(frozen=True)
class PosteriorLoss(Loss):
    """A draw from the posterior of `rows` rows whose cells have at least `prior` counts; no distribution is known."""

    kind: ClassVar[str] = "posterior"
    prior: float
    rows: int

    def __post_init__(self) -> None:
        check_positive(self.prior, "prior")
        check_count(self.rows, "rows")

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return the proven bounds."""
        return posterior_renyi(orders, self.prior, self.rows)


@dataclass(frozen=True)
class RenyiLoss(Loss):
    """Any draw whose Rényi divergences are bounded at some orders; between two of them the higher order's bound holds.

    >>> RenyiLoss(orders=(2.0, 8.0), divergences=(0.5, 2.0)).renyi(np.array([1.5, 2.0, 3.0, 9.0])).tolist()
    [0.5, 0.5, 2.0, inf]
    """

    kind: ClassVar[str] = "renyi"
    orders: tuple[float, ...]
    divergences: tuple[float, ...]

    def __post_init__(self) -> None:
        orders, bounds = np.asarray(self.orders, dtype=float), np.asarray(self.divergences, dtype=float)
        if orders.ndim != 1 or not orders.size or orders[0] <= 1 or (np.diff(orders) <= 0).any():
            raise ValueError(f"orders must be numbers above 1 that increase, got {self.orders!r}.")
        if bounds.shape != orders.shape or not (np.isfinite(bounds) & (bounds >= 0)).all():
            raise ValueError(f"divergences must be numbers from 0 on, one for each order, got {self.divergences!r}.")
        object.__setattr__(self, "orders", tuple(orders.tolist()))
        object.__setattr__(self, "divergences", tuple(bounds.tolist()))

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return the bound of the next order in the table, since divergences rise with the order."""
        return np.asarray(np.append(self.divergences, np.inf)[np.searchsorted(self.orders, orders)])


FAMILY: dict[str, Any] = {
    loss.kind: loss
    for loss in (NoBound, PureLoss, GaussianLoss, ConcentratedLoss, LaplaceLoss, RowLoss, PosteriorLoss, RenyiLoss)
}


# ------------------------------------------------------------------ privacy-loss distributions
def discretised(delta_at: Callable[[FloatArray], FloatArray], reach: float, step: float) -> Any:
    """Discretise the hockey-stick curve of a symmetric loss on multiples of `step` in [−reach, reach].

    The dots are connected: δ(ε) is exact at the grid points and never below the curve in between.
    """
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    top = math.ceil(reach / step)
    grid = np.arange(-top, top + 1, dtype=np.float64) * np.float64(step)
    deltas = np.minimum.accumulate(np.clip(delta_at(grid), 0.0, 1.0))
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -top, top, deltas)
    return PrivacyLossDistribution(pmf.to_dense_pmf())


@lru_cache(maxsize=256)
def row_distribution(k: float, omega: float, h: float, step: float) -> Any:
    """Return the pessimistic distribution of one Dirichlet row on a grid."""

    def delta_at(grid: FloatArray) -> FloatArray:
        return np.asarray(np.exp(log_worst_case_delta(grid, k, h, omega)) * (1.0 + _ROUNDING))

    return discretised(delta_at, row_reach(k, omega, h), step)


def row_reach(k: float, omega: float, h: float) -> float:
    """Return the loss of a row that all but `TAIL_MASS` stays below."""
    return max(worst_case_epsilon(TAIL_MASS, k, h, omega), 1e-12)


# ------------------------------------------------------------------ the losses of one draw
@dataclass(frozen=True)
class Losses:
    """The privacy cost of one draw.

    A draw consists of matrices (often one, else one for each time and context), and a matrix of rows; one unit's data
    affect some of them. A mechanism that does not draw row by row has one matrix with one loss. `matrices` holds, for
    each different matrix, the losses of its rows with their numbers, and the number of such matrices.
    """

    matrices: tuple[tuple[tuple[tuple[Loss, int], ...], int], ...] = ()

    @classmethod
    def of(cls, *matrices: Mapping[Any, int]) -> Losses:
        """Collect the losses of each matrix, ``{loss: number}``; without arguments the draw is free."""
        return cls(tuple(Counter(tuple(one.items()) for one in matrices if one).items()))

    def counted(self, rows: Rows) -> list[tuple[Loss, int]]:
        """Return the losses of a unit that affects these rows of each matrix, with their numbers."""
        most = math.inf if check_rows(rows) == "sequential" else 1 if rows == "parallel" else int(rows)
        total: Counter[Loss] = Counter()
        for matrix, times in self.matrices:
            ordered = list(matrix)
            if rows != "sequential":  # the worst rows first: those with larger divergences, low orders first
                ordered.sort(key=lambda counted: counted[0].renyi(ORDERS).tolist(), reverse=True)
            left = most
            for loss, number in ordered:
                if left > 0:
                    total[loss] += times * int(min(number, left))
                left -= number
        return list(total.items())

    def to_json(self) -> list[Any]:
        """Return the losses as plain values."""
        return [
            {"rows": [{"kind": loss.kind, "number": n, **asdict(loss)} for loss, n in matrix], "matrices": times}
            for matrix, times in self.matrices
        ]

    @classmethod
    def from_json(cls, content: Any) -> Losses:
        """Read what `to_json` wrote; only losses of the family are read, and no code is imported."""
        if not isinstance(content, list) or any(set(one) != {"rows", "matrices"} for one in content):
            raise ValueError(f"losses are a list of rows with a number of matrices, got {content!r}")
        matrices = ((tuple(map(_read_row, one["rows"])), check_count(one["matrices"], "matrices")) for one in content)
        return cls(tuple(matrices))

    def agree(self, other: Losses) -> bool:
        """Tell whether both are equal up to rounding in the last digits."""
        return _close(self.to_json(), other.to_json())


def check_rows(rows: Any) -> Rows:
    """Check how rows compose: "sequential", "parallel", or the number of rows that one unit touches."""
    return (
        check_choice(rows, "rows", ("sequential", "parallel")) if isinstance(rows, str) else check_count(rows, "rows")
    )


def from_fields(kind: Any, name: str, content: Mapping[str, Any]) -> Any:
    """Make a dataclass from its fields as JSON has them; `name` is what a refusal calls it."""
    known = {one.name: one for one in fields(kind)}
    for given in content:
        check_choice(given, f"field of {name}", known)
    for one in known.values():
        if one.default is MISSING and one.name not in content:
            raise ValueError(f"{name} has no field {one.name!r}")
    return kind(**{given: tuple(x) if isinstance(x, list) else x for given, x in content.items()})


def _read_row(content: Mapping[str, Any]) -> tuple[Loss, int]:
    values = dict(content)
    kind, number = check_choice(values.pop("kind", None), "kind of loss", FAMILY), values.pop("number", None)
    return from_fields(FAMILY[kind], f"a {kind} loss", values), check_count(number, "number")


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)
