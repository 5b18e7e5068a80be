"""What several draws cost together: the accountant of a ledger, which composes losses that are data.

Losses of Dirichlet rows alone are composed by `compose`, which is exact for a single row, and Gaussian losses alone
are one Gaussian loss, exactly. A mixture is composed by convolving the distributions with ``dp-accounting``, on one
grid and rounded to the pessimistic side, or, where a loss has no distribution or the package is missing, by Rényi
divergences. Both are upper bounds, and the smaller one is returned.

The names are those of Google's ``dp_accounting.PrivacyAccountant``: `Accountant.compose`, `Accountant.get_epsilon`,
`Accountant.get_delta`, and `NeighboringRelation`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dp_ensemble_env.privacy.accounting.calibrate import ORDERS, gaussian_delta, gaussian_epsilon, renyi_to_epsilon
from dp_ensemble_env.privacy.accounting.compose import (
    LEAST_CONVOLVED_DELTA,
    RowGroup,
    can_convolve,
    composed_epsilon,
    grid_step,
    has_grid,
)
from dp_ensemble_env.privacy.accounting.divergence import Entries
from dp_ensemble_env.privacy.accounting.losses import GaussianLoss, Loss, Losses, NoBound, PureLoss, RowLoss, Rows
from dp_ensemble_env.tools.validation import check_in_range

#: Grid step of the distributions of a mixture, where no Dirichlet row asks for a finer one.
_STEP = 1e-3
#: The most grid points of one distribution: losses beyond are composed by Rényi divergences.
_MOST_POINTS = 2e6


class NeighboringRelation(enum.Enum):
    """Which data sets count as neighbours, so that a release must hide which of the two it was drawn from."""

    #: One participant with everything it ever contributed is added or removed.
    ADD_OR_REMOVE_ONE = "add or remove one participant"
    #: One participant's contribution is replaced by another's: twice the ε of `ADD_OR_REMOVE_ONE` covers it.
    REPLACE_ONE = "replace one participant"
    #: Rows of the behaviour move by h, the adjacency of the paper; no participant is named.
    CHANGE_ROWS = "change rows by h"


# ------------------------------------------------------------------ totals
def total_epsilon(delta: float, counted: Iterable[tuple[Loss, int]]) -> float:
    """Return ε at `delta` of losses that occur so and so often; infinity where no bound holds for all inputs."""
    counts = _merged(counted)
    if NoBound() in counts:
        return math.inf
    if rounding := sum(number * loss.rounding for loss, number in counts.items() if isinstance(loss, RowLoss)):
        counts = _merged((replace(x, rounding=0.0) if isinstance(x, RowLoss) else x, n) for x, n in counts.items())
    return rounding + _exact_epsilon(delta, counts)


def _exact_epsilon(delta: float, counts: dict[Loss, int]) -> float:
    """Return the same of losses without rounding."""
    if delta > 0 and len(counts) == 1 and isinstance(only := next(iter(counts)), GaussianLoss):
        return gaussian_epsilon(delta, only.sigma)
    if all(isinstance(loss, RowLoss) for loss in counts):
        # A bound for any number of entries covers two; so one "any" among the rows makes all "any".
        wide: Entries = "any" if any(x.entries == "any" for x in counts if isinstance(x, RowLoss)) else "two"
        return composed_epsilon(delta, _groups(counts.items()), wide)
    return _mixed_epsilon(delta, tuple(counts.items()))


def _groups(counted: Iterable[tuple[Loss, int]]) -> tuple[RowGroup, ...]:
    return tuple(RowGroup(loss.k, loss.omega, loss.h, n) for loss, n in counted if isinstance(loss, RowLoss))


def total_delta(epsilon: float, counted: Iterable[tuple[Loss, int]]) -> float:
    """Return the least δ at which all losses together cost at most `epsilon`, rounded up; one where nothing does."""
    epsilon = check_in_range(epsilon, "epsilon", 0, math.inf)
    counts = _merged(counted)
    if not counts:
        return 0.0
    if len(counts) == 1 and isinstance(only := next(iter(counts)), GaussianLoss):
        return gaussian_delta(epsilon, only.sigma)
    if not any(isinstance(loss, RowLoss) for loss in counts) and total_epsilon(0.0, counts.items()) <= epsilon:
        return 0.0
    low, high = math.log(1e-300), 0.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if total_epsilon(math.exp(middle), counts.items()) <= epsilon else (middle, high)
    return math.exp(high)


def _merged(counted: Iterable[tuple[Loss, int]]) -> dict[Loss, int]:
    """Count equal losses together; Gaussian ones are one Gaussian loss, exactly."""
    counts: dict[Loss, int] = {}
    precision = 0.0
    for loss, number in counted:
        if isinstance(loss, GaussianLoss):
            precision += number / loss.sigma**2
        else:
            counts[loss] = counts.get(loss, 0) + number
    return {GaussianLoss(precision**-0.5): 1, **counts} if precision else counts


@lru_cache(maxsize=4096)
def _mixed_epsilon(delta: float, counted: tuple[tuple[Loss, int], ...]) -> float:
    """Compose losses of different kinds; both ways bound ε from above."""
    check_in_range(delta, "delta", 0, 1)
    pure = float(sum(n * loss.epsilon if isinstance(loss, PureLoss) else math.inf for loss, n in counted))
    if delta == 0:
        return pure
    divergences = sum((number * loss.renyi(ORDERS) for loss, number in counted), np.zeros(ORDERS.shape))
    bound = min(pure, renyi_to_epsilon(delta, ORDERS, divergences))
    total = _convolved(counted) if delta >= LEAST_CONVOLVED_DELTA and can_convolve() else None
    return bound if total is None else min(bound, float(total.get_epsilon_for_delta(delta)))


@lru_cache(maxsize=64)
def _convolved(counted: tuple[tuple[Loss, int], ...]) -> Any | None:
    """Return the privacy-loss distribution of all losses together; None where one of them has none."""
    rows = _groups(counted)
    if not has_grid(rows):
        return None
    step = min(_STEP, grid_step(rows)) if rows else _STEP
    if max(loss.reach for loss, _ in counted) / step > _MOST_POINTS:
        return None
    total = None
    for loss, number in counted:
        one = loss.distribution(step)
        if one is None:
            return None
        one = one.self_compose(number) if number > 1 else one
        total = one if total is None else total.compose(one)
    return total


# ------------------------------------------------------------------ the accountant
@dataclass
class Accountant:
    """Adds up what was charged, and says what still fits into the budget.

    Equal charges are counted, so a thousand redraws are one convolution power and not a thousand convolutions;
    how many more of the same fit is found once by bisection.
    """

    rows: Rows = "sequential"
    """How rows compose, unless a call says otherwise: "sequential", "parallel", or a number of rows."""
    budget: tuple[float, float] | None = None
    charges: dict[Any, int] = field(default_factory=dict)  #: How often each different event was charged.
    _known: dict[Any, tuple[int, int | None]] = field(default_factory=dict, repr=False)  # totals: fit, do not
    _losses: dict[Any, Losses] = field(default_factory=dict, repr=False)

    def compose(self, event: Any, count: int = 1) -> Accountant:
        """Count `count` draws with this event; an event whose losses nobody knows is refused."""
        if self._losses_of(event).matrices:  # what fits of one event is known while the others stand still
            self._known = {event: self._known[event]} if event in self._known else {}
        self.charges[event] = self.charges.get(event, 0) + count
        return self

    def get_epsilon(self, delta: float, rows: Rows | None = None) -> float:
        """Return the ε at `delta` of all charges; infinity where no guarantee holds for all inputs."""
        return total_epsilon(delta, self._counted(self.charges, rows))

    def get_delta(self, epsilon: float, rows: Rows | None = None) -> float:
        """Return the δ at `epsilon` of all charges; one where no guarantee holds for all inputs."""
        return total_delta(epsilon, self._counted(self.charges, rows))

    def would_exceed(self, event: Any, count: int = 1) -> bool:
        """Whether `count` more such draws would exceed the budget. Cheap when an event repeats."""
        if self.budget is None or not self._losses_of(event).matrices:
            return False
        most, wanted = self.budget[0], self.charges.get(event, 0) + count
        fits, fails = self._known.get(event, (0, None))
        if wanted <= fits:
            return False
        if fails is None and self._total(event, 2 * wanted) <= most:
            self._known[event] = (2 * wanted, None)
            return False
        if (fails is None or wanted < fails) and self._total(event, wanted) <= most:
            low, high = wanted, 2 * wanted if fails is None else fails
            while high - low > 1:  # the last number of such draws that fits, found once
                middle = (low + high) // 2
                low, high = (middle, high) if self._total(event, middle) <= most else (low, middle)
            self._known[event] = (low, high)
            return False
        return True

    def excess(self, event: Any, count: int) -> str | None:
        """Say by how much the budget would be exceeded; None if it would not."""
        if self.budget is None or not self.would_exceed(event, count):
            return None
        return (
            f"would bring the total to epsilon={self._total(event, self.charges.get(event, 0) + count):.4g} at "
            f"delta={self.budget[1]:g}, above the budget of {self.budget[0]:g}; {event.remedy}."
        )

    def _total(self, event: Any, total: int) -> float:
        assert self.budget is not None
        return total_epsilon(self.budget[1], self._counted({**self.charges, event: total}))

    def _counted(self, charges: Mapping[Any, int], rows: Rows | None = None) -> list[tuple[Loss, int]]:
        how = self.rows if rows is None else rows
        return [(x, n * times) for event, times in charges.items() for x, n in self._losses_of(event).counted(how)]

    def _losses_of(self, event: Any) -> Losses:
        if event not in self._losses:
            self._losses[event] = event.losses()
        return self._losses[event]
