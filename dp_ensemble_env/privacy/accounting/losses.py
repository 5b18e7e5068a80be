r"""What an event costs, keyed by its type, and what several cost together.

`losses` is the door: for each type of event a function registered with
``@losses.register`` returns the privacy losses of one such draw. A loss knows its
Rényi divergences and, where a dominating pair is known, its privacy-loss
distribution; nothing else is needed to compose it with any other.

* Losses of Dirichlet rows alone are composed by `composition`, which is exact for a
  single row.
* A mixture is composed by convolving the distributions with ``dp-accounting``, on one
  grid and rounded to the pessimistic side, or, where a loss has no distribution or the
  package is missing, by adding Rényi divergences. Both are upper bounds, and the smaller
  one is returned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, singledispatch
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.privacy.accounting.composition import (
    LEAST_CONVOLVED_DELTA,
    RowGroup,
    can_convolve,
    composed_epsilon,
    grid_step,
    has_grid,
    pessimistic_pmf,
    row_pmf,
)
from dp_ensemble_env.privacy.accounting.divergence import Entries, renyi_divergence, renyi_limit
from dp_ensemble_env.privacy.accounting.noise import GaussianLoss, LaplaceLoss, PosteriorLoss
from dp_ensemble_env.privacy.calibration import ORDERS, gaussian_epsilon, renyi_to_epsilon
from dp_ensemble_env.privacy.mechanisms.base import Disclosure, Event, PostProcessing
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletEvent
from dp_ensemble_env.privacy.mechanisms.gaussian import GaussianEvent
from dp_ensemble_env.privacy.mechanisms.laplace import LaplaceEvent
from dp_ensemble_env.privacy.mechanisms.posterior import PosteriorEvent
from dp_ensemble_env.privacy.mechanisms.public import PublicEvent
from dp_ensemble_env.tools.validation import check_in_range, check_positive

FloatArray = NDArray[np.float64]
Rows = str | int
#: Grid step of the distributions of a mixture, where no Dirichlet row asks for a finer one.
_STEP = 1e-3


class Loss(Protocol):
    """The privacy loss of one draw. Equal losses compare equal, so that they can be counted."""

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return upper bounds of the Rényi divergences of these orders, infinity where there is none."""
        ...

    def distribution(self, step: float) -> Any | None:
        """Return a pessimistic privacy-loss distribution of ``dp-accounting`` on this grid; None if none is known."""
        ...


@dataclass(frozen=True)
class NoBound:
    """Nothing bounds the loss for all inputs."""

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return infinity."""
        return np.full(orders.shape, np.inf)

    def distribution(self, step: float) -> None:
        """Return None."""


@dataclass(frozen=True)
class PureLoss:
    """Any draw that is (ε, 0)-private: randomised response with the same ε dominates it."""

    epsilon: float

    def __post_init__(self) -> None:
        check_positive(self.epsilon, "epsilon")

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return the divergences of randomised response."""
        log_p, log_q = -np.logaddexp(0.0, -self.epsilon), -np.logaddexp(0.0, self.epsilon)
        # The order 1 is a limit, and all orders are below epsilon.
        above = np.maximum(orders, 1.0 + 1e-9)
        both = np.logaddexp(above * log_p + (1.0 - above) * log_q, above * log_q + (1.0 - above) * log_p)
        bound: FloatArray = np.minimum(both / (above - 1.0), self.epsilon)
        return bound

    def distribution(self, step: float) -> Any:
        """Return the distribution of randomised response."""

        def delta_at(grid: FloatArray) -> FloatArray:
            log_q = -np.logaddexp(0.0, self.epsilon)  # of the rarer answer, lost beside one from epsilon = 37 on
            curve: FloatArray = np.maximum(-np.expm1(log_q) - np.exp(grid + log_q), 0.0)
            return curve

        return _symmetric(pessimistic_pmf(delta_at, self.epsilon, step))


@dataclass(frozen=True)
class RowLoss:
    """One row of a Dirichlet release: its dominating pair, or the Rényi bound for moves of any entries."""

    k: float
    omega: float
    h: float
    entries: Entries = "two"

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return the divergences up to the order where they end."""
        bound = np.full(orders.shape, np.inf)
        below = orders < renyi_limit(self.h, self.omega, self.entries)
        bound[below] = renyi_divergence(orders[below], self.k, self.h, self.omega, self.entries)
        return bound

    def distribution(self, step: float) -> Any | None:
        """Return that of the dominating pair, which is known for moves of two entries."""
        if self.entries == "any":
            return None
        return _symmetric(row_pmf(RowGroup(self.k, self.omega, self.h), step))


def _symmetric(pmf: Any) -> Any:
    """Wrap a loss that is the same when a unit is added and when it is removed."""
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    return PrivacyLossDistribution(pmf)


# ------------------------------------------------------------------ the door
@singledispatch
def losses(event: Event, rows: Rows) -> list[tuple[Loss, int]]:
    """Return the losses of one draw and how often each occurs in it.

    Parameters
    ----------
    event : Event
    rows : {"sequential", "parallel"} or int
        How many rows of a matrix one unit's data touch, for mechanisms that draw row by row.
    """
    raise ValueError(
        f"nothing tells what a {event.type!r} event costs; register a function with "
        "dp_ensemble_env.privacy.accounting.losses.register."
    )


@losses.register
def _(event: Disclosure, rows: Rows) -> list[tuple[Loss, int]]:
    return [(NoBound(), 1)]  # E8


@losses.register
def _(event: PostProcessing, rows: Rows) -> list[tuple[Loss, int]]:
    return []


@losses.register
def _(event: PublicEvent, rows: Rows) -> list[tuple[Loss, int]]:
    return []  # no data were used


@losses.register
def _(event: GaussianEvent, rows: Rows) -> list[tuple[Loss, int]]:
    return [(GaussianLoss(event.sigma), 1)]  # one draw covers all rows


@losses.register
def _(event: LaplaceEvent, rows: Rows) -> list[tuple[Loss, int]]:
    return [(LaplaceLoss(event.epsilon), 1)]


@losses.register
def _(event: PosteriorEvent, rows: Rows) -> list[tuple[Loss, int]]:
    return [(PosteriorLoss(event.prior, event.touched), 1)]


@losses.register
def _(event: DirichletEvent, rows: Rows) -> list[tuple[Loss, int]]:
    found: list[tuple[Loss, int]] = []
    for group in row_groups(event, rows):
        loss = RowLoss(group.k, group.omega, group.h, event.entries) if group.omega > 0 else NoBound()
        found.append((loss, group.number))
    return found


def row_groups(event: DirichletEvent, rows: Rows) -> list[RowGroup]:
    """Return the rows of a Dirichlet release that are charged, equal ones together.

    Of a time-varying matrix a unit touches rows at every time: the worst ones of each are charged.
    """
    row_h = event.row_h if rows == "sequential" else event.touched(1 if rows == "parallel" else int(rows))
    values, counts = np.unique(row_h[row_h > 0], return_counts=True)
    return [RowGroup(event.k, event.floor, float(h), int(n)) for h, n in zip(values, counts, strict=True)]


# ------------------------------------------------------------------ together
def total_epsilon(delta: float, counted: Iterable[tuple[Loss, int]]) -> float:
    """Return ε at `delta` of losses that occur so and so often; infinity where no bound holds for all inputs."""
    counts: dict[Loss, int] = {}
    for loss, number in counted:
        counts[loss] = counts.get(loss, 0) + number
    if NoBound() in counts:
        return math.inf
    gaussian = {loss: number for loss, number in counts.items() if isinstance(loss, GaussianLoss)}
    if gaussian:  # together they are one Gaussian draw, exactly
        together = sum(number / loss.sigma**2 for loss, number in gaussian.items()) ** -0.5
        counts = {GaussianLoss(together): 1, **{loss: n for loss, n in counts.items() if loss not in gaussian}}
        if len(counts) == 1 and delta > 0:
            return gaussian_epsilon(delta, together)
    rows = {loss: number for loss, number in counts.items() if isinstance(loss, RowLoss)}
    if len(rows) == len(counts):
        # A bound for any number of entries covers two; so one "any" among the rows makes all "any".
        wide: Entries = "any" if any(loss.entries == "any" for loss in rows) else "two"
        groups = [RowGroup(loss.k, loss.omega, loss.h, number) for loss, number in rows.items()]
        return composed_epsilon(delta, groups, wide)
    return _mixed_epsilon(delta, tuple(counts.items()))


@lru_cache(maxsize=1024)
def _mixed_epsilon(delta: float, counted: tuple[tuple[Loss, int], ...]) -> float:
    """Compose losses of different kinds; both ways bound ε from above."""
    check_in_range(delta, "delta", 0, 1)
    rows = [RowGroup(x.k, x.omega, x.h, number) for x, number in counted if isinstance(x, RowLoss)]
    pure = sum(n * x.epsilon if isinstance(x, (PureLoss, LaplaceLoss)) else math.inf for x, n in counted)
    if delta == 0:
        return float(pure)
    bound = min(float(pure), _renyi_epsilon(delta, dict(counted)))
    if delta < LEAST_CONVOLVED_DELTA or not can_convolve() or not has_grid(tuple(rows)):
        return bound
    step = min(_STEP, grid_step(tuple(rows))) if rows else _STEP
    total = None
    for loss, number in counted:
        one = loss.distribution(step)
        if one is None:
            return bound
        one = one.self_compose(number) if number > 1 else one
        total = one if total is None else total.compose(one)
    assert total is not None
    return min(bound, float(total.get_epsilon_for_delta(delta)))


def _renyi_epsilon(delta: float, counts: Mapping[Loss, int]) -> float:
    total = np.zeros(ORDERS.shape)
    for loss, number in counts.items():
        total += number * loss.renyi(ORDERS)
    return renyi_to_epsilon(delta, ORDERS, total)
