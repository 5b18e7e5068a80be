r"""What rows and draws cost together: composition, the accountant of a ledger, and the k for a target.

Rows are drawn independently, and so are repeated releases, so the pair that dominates a whole history is the product of
the pairs that dominate its rows (E10) and draws (E9). The pessimistic distributions of `losses` are convolved on one
grid by Google's ``dp-accounting``, which is imported only then. One Dirichlet row alone and Gaussian draws alone need
no grid and are exact.

Every loss has a Rényi bound as well. It stands in where a distribution is not known, as for moves that touch more than
two entries (``entries="any"``), or where ``dp-accounting`` is not installed: a little larger, and proven.

.. math::

    \varepsilon = \min_\lambda \sum_r D_\lambda^{(r)} + \ln\frac{\lambda-1}{\lambda}
        - \frac{\ln\delta + \ln\lambda}{\lambda-1}.

Both are upper bounds, and the smaller one is returned. The names are those of ``dp_accounting.PrivacyAccountant``:
`Accountant.compose`, `Accountant.get_epsilon`, `Accountant.get_delta`.
"""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special

from dp_ensemble_env.privacy.accounting.calibrate import ORDERS, gaussian_delta, gaussian_epsilon, renyi_to_epsilon
from dp_ensemble_env.privacy.accounting.divergence import (
    ENTRIES,
    Entries,
    check_delta,
    check_row_settings,
    renyi_divergence,
    renyi_limit,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting.losses import (
    GaussianLoss,
    Loss,
    Losses,
    NoBound,
    PureLoss,
    RowLoss,
    Rows,
    row_reach,
)
from dp_ensemble_env.tools.validation import check_choice, check_count, check_in_range, check_positive

LEAST_CONVOLVED_DELTA = 1e-11  #: Below this δ the convolution's rounding shows, and the Rényi bound is used instead.
_STEP = 1e-3  #: Grid step of a mixture's distributions, where no Dirichlet row asks for a finer one.
#: The most grid points of one row, and of any loss in a mixture: beyond, Rényi divergences are composed.
_MOST_ROW_POINTS, _MOST_POINTS = 2**18, 2e6
_VANISHING_K = 1e-9


# ------------------------------------------------------------------ rows alone
class RowGroup(NamedTuple):
    """Equal row releases: concentration, smallest entry, adjacency, and their number."""

    k: float
    omega: float
    h: float
    number: int = 1


class UnreachableTarget(ValueError):  # noqa: N818 - reads as what it says
    """No concentration reaches the requested (epsilon, delta) with this floor and adjacency."""


def merge_groups(groups: Iterable[RowGroup]) -> tuple[RowGroup, ...]:
    """Add up equal groups and drop those that cost nothing (h = 0 or none)."""
    counts: Counter[RowGroup] = Counter()
    for k, omega, h, number in groups:
        check_row_settings(k, h, omega)
        if h > 0 and number > 0:
            counts[RowGroup(float(k), float(omega), float(h))] += int(number)
    return tuple(row._replace(number=counts[row]) for row in sorted(counts))


def composed_epsilon(delta: float, groups: Iterable[RowGroup], entries: Entries = "two") -> float:
    """Return ε at `delta` of all `groups` together (sequential composition).

    Infinity if a group has no floor: no bound then holds for all inputs.

    >>> round(composed_epsilon(1e-6, [RowGroup(k=50, omega=0.1, h=0.03, number=20)]), 2)
    12.16
    """
    check_delta(delta)
    check_choice(entries, "entries", ENTRIES)
    return _composed_epsilon(float(delta), merge_groups(groups), entries)


@lru_cache(maxsize=2048)
def _composed_epsilon(delta: float, groups: tuple[RowGroup, ...], entries: Entries) -> float:
    if not groups:
        return 0.0
    if entries == "any":
        return renyi_epsilon(delta, groups, entries)
    if len(groups) == 1 and groups[0].number == 1:
        return worst_case_epsilon(delta, groups[0].k, groups[0].h, groups[0].omega)
    bound = renyi_epsilon(delta, groups)
    if delta < LEAST_CONVOLVED_DELTA or not can_convolve() or not has_grid(groups):
        return bound
    rows = tuple((RowLoss(group.k, group.omega, group.h), group.number) for group in groups)
    # The convolution is the tighter bound unless its grid had to be coarse.
    return min(bound, float(_convolved(rows, grid_step(groups), 0.0).get_epsilon_for_delta(delta)))


def renyi_epsilon(delta: float, groups: Iterable[RowGroup], entries: Entries = "two") -> float:
    """Return the ε at `delta` that the Rényi bound proves for all `groups` together; infinity if none."""
    merged = merge_groups(groups)
    if not merged:
        return 0.0
    span = min(*(renyi_limit(g.h, g.omega, entries) - 1.0 for g in merged), 1e9)
    share = np.concatenate([np.geomspace(1e-9, 0.5, 400), 1.0 - np.geomspace(0.5, 1e-9, 200)])
    orders = 1.0 + np.unique(share * span)
    orders = orders[orders > 1.0 + 1e-6]
    total = sum(
        (g.number * renyi_divergence(orders, g.k, g.h, g.omega, entries) for g in merged), np.zeros(len(orders))
    )
    return renyi_to_epsilon(delta, orders, total)


# ------------------------------------------------------------------ convolution
def can_convolve() -> bool:
    """Whether ``dp-accounting`` is installed."""
    try:
        return importlib.util.find_spec("dp_accounting") is not None
    except ValueError:  # an entry without a specification in sys.modules
        return False


@lru_cache(maxsize=64)
def _convolved(counted: tuple[tuple[Loss, int], ...], step: float, cut: float) -> Any:
    """Return the privacy-loss distribution of all losses on one grid, tails `cut`; None where one of them has none."""
    total = None
    for loss, number in counted:
        one = loss.distribution(step)
        if one is None:
            return None
        one = one.self_compose(number) if number > 1 else one
        total = one if total is None else total.compose(one, cut)
    return total


def grid_step(groups: tuple[RowGroup, ...]) -> float:
    """Grid step: 1/200 of the root-mean-square loss, so that rounding adds some 1e-5 of the total variance."""
    variance = []
    for g in groups:  # of m (ln G' − ln G), with G' and G Gamma variates of shapes k(ω + h/2) and kω
        spread = special.polygamma(1, [g.k * (g.omega + g.h / 2.0), g.k * g.omega]).sum()
        variance.append((g.k * g.h / 2.0) ** 2 * spread)
    fine = 0.005 * math.sqrt(np.average(variance, weights=[g.number for g in groups]))
    return max(fine, max(row_reach(g.k, g.omega, g.h) for g in groups) / _MOST_ROW_POINTS)


def has_grid(groups: tuple[RowGroup, ...]) -> bool:
    """Whether the losses fit on a grid, whose step is exponentiated: at an enormous k they do not."""
    return all(math.isfinite(row_reach(g.k, g.omega, g.h)) for g in groups) and (
        not groups or grid_step(groups) < 700.0
    )


# ------------------------------------------------------------------ totals
def total_epsilon(delta: float, counted: Iterable[tuple[Loss, int]]) -> float:
    """Return ε at `delta` of counted losses; infinity if no bound holds for all inputs."""
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
    """Return the least δ at which all losses together cost at most `epsilon`, rounded up; 1 if there is none."""
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
    rows = _groups(counted)
    if delta < LEAST_CONVOLVED_DELTA or not can_convolve() or not has_grid(rows):
        return bound
    step = min(_STEP, grid_step(rows)) if rows else _STEP
    fits = max(loss.reach for loss, _ in counted) / step <= _MOST_POINTS
    total = _convolved(counted, step, 1e-15) if fits else None
    return bound if total is None else min(bound, float(total.get_epsilon_for_delta(delta)))


# ------------------------------------------------------------------ the accountant
@dataclass
class Accountant:
    """Adds up charges, and tells whether a draw still fits into the budget."""

    rows: Rows = "sequential"  #: How rows compose, unless a call says otherwise.
    budget: tuple[float, float] | None = None
    charges: dict[Any, int] = field(default_factory=dict)  #: How often each different event was charged.
    _fits: dict[Any, int] = field(default_factory=dict, repr=False)  # how many of an event are known to fit
    _losses: dict[Any, Losses] = field(default_factory=dict, repr=False)

    def compose(self, event: Any, count: int = 1) -> Accountant:
        """Count `count` draws with this event; refuse an event with unknown losses."""
        if self._losses_of(event).matrices:  # what fits of one event is known while the others stand still
            self._fits = {event: self._fits[event]} if event in self._fits else {}
        self.charges[event] = self.charges.get(event, 0) + count
        return self

    def get_epsilon(self, delta: float, rows: Rows | None = None) -> float:
        """Return the ε at `delta` of all charges; infinity where no guarantee holds for all inputs."""
        return total_epsilon(delta, self._counted(self.charges, rows))

    def get_delta(self, epsilon: float, rows: Rows | None = None) -> float:
        """Return the δ at `epsilon` of all charges; one where no guarantee holds for all inputs."""
        return total_delta(epsilon, self._counted(self.charges, rows))

    def would_exceed(self, event: Any, count: int = 1) -> bool:
        """Tell whether `count` more such draws would exceed the budget; fast for repeated events."""
        if self.budget is None or not self._losses_of(event).matrices:
            return False
        most, wanted = self.budget[0], self.charges.get(event, 0) + count
        if wanted <= self._fits.get(event, 0):
            return False
        if self._total(event, wanted) > most:
            return True
        low, high = wanted, 2 * wanted
        if self._total(event, high) <= most:
            low = high
        while high - low > 1:  # the last number of such draws that fits, found once
            middle = (low + high) // 2
            low, high = (middle, high) if self._total(event, middle) <= most else (low, middle)
        self._fits[event] = low
        return False

    def excess(self, event: Any, count: int) -> str | None:
        """Return by how much the draws would exceed the budget; None if they would not."""
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


# ------------------------------------------------------------------ calibration
def calibrate_k(
    epsilon: float, delta: float, h: float, omega: float, rows: int = 1, *, entries: Entries = "two"
) -> float:
    """Return the largest concentration whose release of `rows` rows is (epsilon, delta)-private.

    `h` is the adjacency of the mechanism's input (with a floor by mixing, (1 − τ) times the data's adjacency), `omega`
    its least entry. Raises `UnreachableTarget` if no k reaches the target: as k → 0, ε tends to a positive limit.
    `largest_k` returns None instead.

    >>> round(calibrate_k(0.479, 0.05, h=0.03, omega=0.1), 1)
    50.0
    """
    group = RowGroup(1.0, omega, h, check_count(rows, "rows"))
    k = largest_k(epsilon, delta, [group], entries)
    if k is not None:
        return k
    if omega == 0:
        raise UnreachableTarget(
            f"without a floor no k gives epsilon={epsilon:g} at delta={delta:g} for all rows; choose a floor "
            "(omega > 0), which every entry of the support is raised to before the draw."
        )
    raise UnreachableTarget(_refusal(epsilon, delta, group, entries))


def largest_k(epsilon: float, delta: float, groups: Iterable[RowGroup], entries: Entries = "two") -> float | None:
    """Return the largest common k (groups' own are ignored) for (epsilon, delta): infinity if all do, None if none."""
    check_positive(epsilon, "epsilon")
    check_delta(delta)
    check_choice(entries, "entries", ENTRIES)
    merged = merge_groups(group._replace(k=1.0) for group in groups)
    if not merged:
        return math.inf

    def exact(k: float) -> float:
        return _composed_epsilon(float(delta), tuple(group._replace(k=k) for group in merged), entries)

    def proven(k: float) -> float:  # cheap and never below the exact ε: brackets the answer from below
        return renyi_epsilon(delta, tuple(group._replace(k=k) for group in merged), entries)

    if not exact(_VANISHING_K) <= epsilon:
        return None
    if len(merged) == 1 and merged[0].number == 1:
        return _last_below(exact, epsilon, _VANISHING_K, 1e-9)
    return _last_below(exact, epsilon, _last_below(proven, epsilon, _VANISHING_K, 1e-6), 1e-4)


def _last_below(curve: Callable[[float], float], target: float, low: float, tolerance: float) -> float:
    """Return a k >= low with curve(k) <= target for a rising curve, within a relative `tolerance` of the last one."""

    def excess(log_k: float) -> float:
        return min(curve(math.exp(log_k)), 1e9) - target

    left = math.log(low)
    if excess(left) > 0:
        return low
    step, right = 0.25, left + 0.25
    while excess(right) <= 0:
        step *= 2.0
        left, right = right, right + step
        if right > 69.0:  # k = 1e30
            return math.inf
    root = float(optimize.brentq(excess, left, right, xtol=tolerance))
    while root > left and excess(root) > 0:
        root -= tolerance
        tolerance *= 2.0
    return math.exp(max(root, left))


def _refusal(epsilon: float, delta: float, group: RowGroup, entries: Entries) -> str:
    """Say why no k will do, and by how much the floor or the adjacency has to change."""
    _, omega, h, count = group

    def least(shrink: float) -> float:  # where only h / omega matters
        return _composed_epsilon(float(delta), (RowGroup(_VANISHING_K, omega, shrink * h, count),), entries)

    low, high = math.log(1e-9), 0.0
    for _ in range(24):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if least(math.exp(middle)) < epsilon else (low, middle)
    shrink = math.exp(low)
    moves = " for moves of any entries" if entries == "any" else ""
    return (
        f"no k reaches epsilon={epsilon:g} at delta={delta:g} for {count} row{'s' * (count > 1)} with omega={omega:g} "
        f"and h={h:g}{moves}: as k goes to 0 epsilon does not fall below {least(1.0):.4g}; raise the floor above "
        f"omega={omega / shrink:.4g} (at most one over the number of successors of a row), or shrink h below "
        f"{shrink * h:.4g} (more observations per participant)."
    )
