r"""Many releases: composing the dominating pairs of rows and draws.

Rows are drawn independently, and so are repeated releases, so the pair that dominates a whole history is the product of
the pairs that dominate its rows (E10) and draws (E9). Each pair is turned into a *pessimistic* discrete privacy-loss
distribution (connect the dots: its δ(ε) curve passes through the exact one at the grid points and lies above it in
between), and the distributions are convolved by Google's ``dp-accounting``. One row alone needs no discretisation and
is exact.

Moves that touch more than two entries (``entries="any"``) are composed with the Rényi bound instead, which is the one
that is proven for them:

.. math::

    \varepsilon = \min_\lambda \sum_r D_\lambda^{(r)} + \ln\frac{\lambda-1}{\lambda}
        - \frac{\ln\delta + \ln\lambda}{\lambda-1}.

``dp-accounting`` is imported only when something is composed. Where it is not installed the Rényi bound stands in for
the convolution: a little larger, and proven.
"""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special

from dp_ensemble_env.privacy.accounting.calibrate import renyi_to_epsilon
from dp_ensemble_env.privacy.accounting.divergence import (
    ENTRIES,
    Entries,
    FloatArray,
    check_delta,
    check_row_settings,
    log_worst_case_delta,
    renyi_divergence,
    renyi_limit,
    worst_case_epsilon,
)
from dp_ensemble_env.tools.validation import check_choice, check_count, check_positive

#: Mass of the loss beyond the grid, moved to infinity (the pessimistic side).
TAIL_MASS = 1e-20
#: Below this δ the convolution's rounding shows, and the Rényi bound is used instead.
LEAST_CONVOLVED_DELTA = 1e-11
_MOST_POINTS = 2**18
# Relative rounding error allowed for in the incomplete beta functions, added so that δ errs upwards.
_ROUNDING = 1e-12
_VANISHING_K = 1e-9


class RowGroup(NamedTuple):
    """A number of equal row releases: concentration, least entry, adjacency and how many."""

    k: float
    omega: float
    h: float
    number: int = 1


class UnreachableTarget(ValueError):  # noqa: N818 - reads as what it says
    """No concentration reaches the asked (epsilon, delta) with this floor and adjacency."""


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
    # Both are upper bounds; the convolution is the tighter one unless its grid had to be coarse.
    return min(bound, float(_composed_pmf(groups).get_epsilon_for_delta(delta)))


def can_convolve() -> bool:
    """Whether ``dp-accounting`` is installed."""
    try:
        return importlib.util.find_spec("dp_accounting") is not None
    except ValueError:  # an entry without a specification in sys.modules
        return False


# ------------------------------------------------------------------ privacy-loss distributions
def pessimistic_pmf(delta_at: Callable[[FloatArray], FloatArray], reach: float, step: float) -> Any:
    """Discretise a hockey-stick curve on multiples of `step` in [−reach, reach], never below the curve."""
    from dp_accounting.pld import pld_pmf

    top = math.ceil(reach / step)
    grid = np.arange(-top, top + 1, dtype=np.float64) * np.float64(step)
    deltas = np.minimum.accumulate(np.clip(delta_at(grid), 0.0, 1.0))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -top, top, deltas).to_dense_pmf()


@lru_cache(maxsize=64)
def _composed_pmf(groups: tuple[RowGroup, ...]) -> Any:
    """Compose the privacy-loss distributions of all groups on one common grid."""
    step, total = grid_step(groups), None
    for k, omega, h, number in groups:
        pmf = row_pmf(k, omega, h, step)
        pmf = pmf.self_compose(number) if number > 1 else pmf
        total = pmf if total is None else total.compose(pmf)
    return total


def grid_step(groups: tuple[RowGroup, ...]) -> float:
    """Grid step: 1/200 of the root-mean-square loss, so that rounding adds some 1e-5 of the total variance."""
    variance = []
    for g in groups:  # of m (ln G' − ln G), with G' and G Gamma variates of shapes k(ω + h/2) and kω
        spread = special.polygamma(1, [g.k * (g.omega + g.h / 2.0), g.k * g.omega]).sum()
        variance.append((g.k * g.h / 2.0) ** 2 * spread)
    fine = 0.005 * math.sqrt(np.average(variance, weights=[g.number for g in groups]))
    return max(fine, max(_reach(g.k, g.omega, g.h) for g in groups) / _MOST_POINTS)


def has_grid(groups: tuple[RowGroup, ...]) -> bool:
    """Whether the losses fit on a grid, whose step is exponentiated: at an enormous k they do not."""
    return all(math.isfinite(_reach(g.k, g.omega, g.h)) for g in groups) and (not groups or grid_step(groups) < 700.0)


def _reach(k: float, omega: float, h: float) -> float:
    return max(worst_case_epsilon(TAIL_MASS, k, h, omega), 1e-12)


@lru_cache(maxsize=256)
def row_pmf(k: float, omega: float, h: float, step: float) -> Any:
    """Return the pessimistic distribution of one row on a grid."""

    def delta_at(grid: FloatArray) -> FloatArray:
        return np.asarray(np.exp(log_worst_case_delta(grid, k, h, omega)) * (1.0 + _ROUNDING))

    return pessimistic_pmf(delta_at, _reach(k, omega, h), step)


# ------------------------------------------------------------------ Rényi
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


# ------------------------------------------------------------------ calibration
def calibrate_k(
    epsilon: float, delta: float, h: float, omega: float, rows: int = 1, *, entries: Entries = "two"
) -> float:
    """Return the largest concentration whose release of `rows` rows is (epsilon, delta)-private.

    Parameters
    ----------
    epsilon, delta : float
        The target.
    h : float
        Adjacency of the mechanism's input. With a floor by mixing it is (1 − τ) times that of the data.
    omega : float
        Least entry of the support (the floor).
    rows : int, default 1
        Rows that one unit's data touch, composed sequentially.
    entries : {"two", "any"}
        Whether adjacent rows differ in two entries (Definition 1) or in any number.

    Raises
    ------
    UnreachableTarget
        If no k reaches the target: ε does not fall below a positive limit as k → 0. `largest_k` returns None instead.

    Examples
    --------
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
