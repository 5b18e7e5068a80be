r"""Many releases: composing the dominating pairs of rows and draws.

Rows are drawn independently, and so are repeated releases, so the pair that
dominates a whole history is the product of the pairs that dominate its rows (E10)
and draws (E9). Each pair is turned into a *pessimistic* discrete privacy-loss
distribution (connect the dots: its δ(ε) curve passes through the exact one at the
grid points and lies above it in between), and the distributions are convolved by
Google's ``dp-accounting``. One row alone needs no discretisation and is exact.

Moves that touch more than two entries (``entries="any"``) are composed with the
Rényi bound instead, which is the one that is proven for them:

.. math::

    \varepsilon = \min_\lambda \sum_r D_\lambda^{(r)} + \ln\frac{\lambda-1}{\lambda}
        - \frac{\ln\delta + \ln\lambda}{\lambda-1}.

``dp-accounting`` is imported only when something is composed. Where it is not
installed the Rényi bound stands in for the convolution: a little larger, and proven.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from dp_ensemble_env.privacy.accounting.divergence import (
    ENTRIES,
    Entries,
    check_delta,
    check_row_settings,
    log_worst_case_delta,
    renyi_divergence,
    renyi_limit,
    vanishing_k_delta,
    vanishing_k_epsilon,
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
    counts: dict[tuple[float, float, float], int] = {}
    for group in groups:
        check_row_settings(group.k, group.h, group.omega)
        if group.h > 0 and group.number > 0:
            key = (float(group.k), float(group.omega), float(group.h))
            counts[key] = counts.get(key, 0) + int(group.number)
    return tuple(RowGroup(*key, counts[key]) for key in sorted(counts))


def composed_epsilon(delta: float, groups: Iterable[RowGroup], entries: Entries = "two") -> float:
    """Return ε at `delta` of all `groups` together (sequential composition).

    Infinity if a group has no floor: no bound then holds for all inputs.

    Examples
    --------
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


def composed_delta(epsilon: float, groups: Iterable[RowGroup]) -> float:
    """Return δ at `epsilon` of all `groups` together, for two-entry adjacency."""
    merged = merge_groups(groups)
    if not merged:
        return 0.0
    if len(merged) == 1 and merged[0].number == 1:
        return float(np.exp(log_worst_case_delta(epsilon, merged[0].k, merged[0].h, merged[0].omega)))
    if not has_grid(merged):
        return 1.0
    return float(_composed_pmf(merged).get_delta_for_epsilon(epsilon))


def can_convolve() -> bool:
    """Whether ``dp-accounting`` is installed."""
    try:
        return importlib.util.find_spec("dp_accounting") is not None
    except ValueError:  # an entry without a specification in sys.modules
        return False


# ------------------------------------------------------------------ privacy-loss distributions
def pessimistic_pmf(delta_at: Callable[[NDArray[np.float64]], NDArray[np.float64]], reach: float, step: float) -> Any:
    """Discretise a hockey-stick curve on multiples of `step` in [−reach, reach], never below the curve."""
    from dp_accounting.pld import pld_pmf

    top = math.ceil(reach / step)
    grid = np.arange(-top, top + 1, dtype=np.float64) * np.float64(step)
    deltas = np.minimum.accumulate(np.clip(delta_at(grid), 0.0, 1.0))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -top, top, deltas).to_dense_pmf()


@lru_cache(maxsize=64)
def _composed_pmf(groups: tuple[RowGroup, ...]) -> Any:
    """Compose the privacy-loss distributions of all groups on one common grid."""
    step = grid_step(groups)
    total = None
    for group in groups:
        pmf = row_pmf(group, step)
        pmf = pmf.self_compose(group.number) if group.number > 1 else pmf
        total = pmf if total is None else total.compose(pmf)
    return total


def grid_step(groups: tuple[RowGroup, ...]) -> float:
    """Grid step: 1/200 of the root-mean-square loss, so that rounding adds some 1e-5 of the total variance."""
    variance = []
    for g in groups:  # of m (ln G' − ln G), with G' and G Gamma variates of shapes k(ω + h/2) and kω
        spread = special.polygamma(1, [g.k * (g.omega + g.h / 2.0), g.k * g.omega]).sum()
        variance.append((g.k * g.h / 2.0) ** 2 * spread)
    fine = 0.005 * math.sqrt(np.average(variance, weights=[g.number for g in groups]))
    return max(fine, max(_reach(group) for group in groups) / _MOST_POINTS)


def has_grid(groups: tuple[RowGroup, ...]) -> bool:
    """Whether the losses fit on a grid, whose step is exponentiated: at an enormous k they do not."""
    return all(math.isfinite(_reach(group)) for group in groups) and (not groups or grid_step(groups) < 700.0)


def _reach(group: RowGroup) -> float:
    return max(worst_case_epsilon(TAIL_MASS, group.k, group.h, group.omega), 1e-12)


def row_pmf(group: RowGroup, step: float) -> Any:
    """Return the pessimistic distribution of one row of the group on a grid."""
    return _row_pmf(group.k, group.omega, group.h, _reach(group), step)


@lru_cache(maxsize=256)
def _row_pmf(k: float, omega: float, h: float, reach: float, step: float) -> Any:
    def delta_at(grid: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.exp(log_worst_case_delta(grid, k, h, omega)) * (1.0 + _ROUNDING)

    return pessimistic_pmf(delta_at, reach, step)


# ------------------------------------------------------------------ Rényi
def renyi_epsilon(delta: float, groups: Iterable[RowGroup], entries: Entries = "two") -> float:
    """Return the ε at `delta` that the Rényi bound proves for all `groups` together; infinity if none."""
    merged = merge_groups(groups)
    if not merged:
        return 0.0
    limit = min(renyi_limit(group.h, group.omega, entries) for group in merged)
    span = min(limit - 1.0, 1e9)
    share = np.concatenate([np.geomspace(1e-9, 0.5, 400), 1.0 - np.geomspace(0.5, 1e-9, 200)])
    orders = 1.0 + np.unique(share * span)
    orders = orders[orders > 1.0 + 1e-6]
    if not len(orders):
        return math.inf
    total = sum(g.number * renyi_divergence(orders, g.k, g.h, g.omega, entries) for g in merged)
    bound = total + np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0)
    return float(max(0.0, np.where(np.isnan(bound), math.inf, bound).min()))  # what overflows proves nothing


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
        If no k reaches the target: ε does not fall below a positive limit as k → 0.

    Examples
    --------
    >>> round(calibrate_k(0.479, 0.05, h=0.03, omega=0.1), 1)
    50.0
    """
    rows = check_count(rows, "rows")
    return calibrate_groups(epsilon, delta, [RowGroup(1.0, omega, h, rows)], entries)


def calibrate_groups(epsilon: float, delta: float, groups: Iterable[RowGroup], entries: Entries = "two") -> float:
    """Return the largest common k for which `groups` (whose own k is ignored) meet (epsilon, delta).

    Raises
    ------
    UnreachableTarget
        As `calibrate_k`; `largest_k` returns None instead.
    """
    merged = merge_groups(group._replace(k=1.0) for group in groups)
    k = largest_k(epsilon, delta, merged, entries)
    if k is not None:
        return k
    if any(group.omega == 0 for group in merged):
        raise UnreachableTarget(
            f"without a floor no k gives epsilon={epsilon:g} at delta={delta:g} for all rows; choose a floor "
            "(omega > 0), which every entry of the support is raised to before the draw."
        )
    raise UnreachableTarget(_refusal(epsilon, delta, merged, entries))


def largest_k(epsilon: float, delta: float, groups: Iterable[RowGroup], entries: Entries = "two") -> float | None:
    """Return the largest common k that meets (epsilon, delta), infinity if all do, None if none does."""
    check_positive(epsilon, "epsilon")
    check_delta(delta)
    check_choice(entries, "entries", ENTRIES)
    merged = merge_groups(group._replace(k=1.0) for group in groups)
    if not merged:
        return math.inf
    scale = _scaled_epsilon(float(delta), merged, entries)
    if not scale(_VANISHING_K) <= epsilon:
        return None
    single = len(merged) == 1 and merged[0].number == 1

    def proven(k: float) -> float:  # cheap and never below the exact ε: brackets the answer from below
        return renyi_epsilon(delta, tuple(group._replace(k=k) for group in merged), entries)

    low = _VANISHING_K if single else _last_below(proven, epsilon, _VANISHING_K, 1e-6)
    return _last_below(scale, epsilon, low, 1e-9 if single else 1e-4)


_VANISHING_K = 1e-9


def _scaled_epsilon(delta: float, groups: tuple[RowGroup, ...], entries: Entries) -> Callable[[float], float]:
    return lambda k: _composed_epsilon(delta, tuple(group._replace(k=k) for group in groups), entries)


def _last_below(curve: Callable[[float], float], target: float, low: float, tolerance: float) -> float:
    """Return a k >= low with curve(k) <= target for a rising curve, within a relative `tolerance` of the last one."""
    start = math.log(low)

    def excess(log_k: float) -> float:
        return min(curve(math.exp(log_k)), 1e9) - target

    if excess(start) > 0:
        return low
    step, left, right = 0.25, start, start + 0.25
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


def vanishing_k_composed(delta: float, ratio: float, count: int) -> float:
    """Least ε at `delta` of `count` rows as k → 0, where only `ratio` = h/(2 omega) matters."""
    if count == 1:
        return vanishing_k_epsilon(delta, 0.5 * ratio, 0.25) if ratio <= 4 else vanishing_k_epsilon(delta, 2, 1 / ratio)
    reach = ratio * -math.log(TAIL_MASS)
    pmf = pessimistic_pmf(lambda grid: vanishing_k_delta(grid, ratio), reach, reach / 2**13).self_compose(count)
    return float(pmf.get_epsilon_for_delta(delta))


def _refusal(epsilon: float, delta: float, groups: tuple[RowGroup, ...], entries: Entries) -> str:
    """Say why no k will do, and by how much the floor or the adjacency has to change."""
    count = sum(group.number for group in groups)
    worst = max(groups, key=lambda group: group.h / group.omega)
    at_most = "" if len(groups) == 1 else "at least "
    upto = "" if len(groups) == 1 else "up to "
    where = f"{count} row{'s' * (count > 1)} with omega={at_most}{worst.omega:g} and h={upto}{worst.h:g}"

    def least(shrink: float) -> float:
        if len(groups) == 1 and entries == "two" and (count == 1 or can_convolve()):
            return vanishing_k_composed(delta, shrink * worst.h / (2.0 * worst.omega), count)
        tiny = tuple(group._replace(k=_VANISHING_K, h=shrink * group.h) for group in groups)
        return _composed_epsilon(float(delta), tiny, entries)

    low, high = math.log(1e-9), 0.0
    for _ in range(24 if len(groups) == 1 else 14):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if least(math.exp(middle)) < epsilon else (low, middle)
    shrink = math.exp(low)
    moves = " for moves of any entries" if entries == "any" else ""
    return (
        f"no k reaches epsilon={epsilon:g} at delta={delta:g} for {where}{moves}: as k goes to 0 epsilon does not fall "
        f"below {least(1.0):.4g}; raise the floor above omega={worst.omega / shrink:.4g} (at most one over the number "
        f"of successors of a row), or shrink h below {shrink * worst.h:.4g} (more observations per participant)."
    )
