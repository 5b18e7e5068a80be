r"""Transition counts by time, and how far thin ones are drawn towards the pooled chain.

A cell `c` is an hour of the day, a type of day, or both. Its matrix is

.. math:: P_c[b, a] = \frac{N_c[b, a] + \kappa\,\bar P[b, a]}{\sum_\nu N_c[b, \nu] + \kappa}

with the counts :math:`N_c` of the cell, the pooled chain :math:`\bar P` of all cells and one
strength :math:`\kappa`, in transitions: a state that was left :math:`\kappa` times in a cell lies half
way between what was seen there and the pooled chain, and one that was never left there
behaves as pooled. Infinite strength is the pooled chain itself.

**The strength** is the one under which days that were left out are most likely. Every
sixth day is left out, in six ways; counts and pooled chain come from the others. (Six has no
divisor in common with a week of seven or of five days, so no fold is a day of the week.)
A transition that none of the other days shows, at any time, is impossible under every
strength and says nothing about it: it is left out of the sum. The strengths tried are
eight a decade from 0.01 to 100,000, and infinity; of equally good ones the largest wins.
No random number enters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain.calendar import day_type, hour_of_day

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: What transitions may be told apart by, in the order of the tables' axes, and how many of each there are.
KEYS = {"hour": 24, "daytype": 2}
FOLDS = 6
STRENGTHS = np.append(10.0 ** np.linspace(-2.0, 5.0, 57), np.inf)
#: Numbers in the tables of one chain, at most (400 MB).
MOST_ENTRIES = 50_000_000


def check_keys(by: Any) -> tuple[str, ...]:
    """Return `by` as keys in the order of the tables' axes."""
    names = (by,) if isinstance(by, str) else by
    try:
        wrong = [name for name in names if name not in KEYS]
    except TypeError:
        wrong = [by]
    if wrong:
        raise ValueError(f"by tells transitions apart by 'hour', 'daytype' or both, got {wrong[0]!r}.")
    return tuple(key for key in KEYS if key in names)


def grid_of(by: tuple[str, ...]) -> tuple[int, int]:
    """Return the numbers of hours and day types that `by` tells apart."""
    return KEYS["hour"] if "hour" in by else 1, KEYS["daytype"] if "daytype" in by else 1


def cells(stamps: NDArray[np.datetime64], by: tuple[str, ...], holidays: tuple[str, ...]) -> tuple[Any, Any]:
    """Return the first two indices into the tables for transitions that leave from intervals starting at `stamps`."""
    zero = np.zeros(len(stamps), dtype=int)
    return hour_of_day(stamps) if "hour" in by else zero, day_type(stamps, holidays) if "daytype" in by else zero


def count_cells(cell: IntArray, origin: IntArray, target: IntArray, n_cells: int, n: int) -> IntArray:
    """Count transitions into (n_cells, n, n)."""
    if n_cells * n * n > MOST_ENTRIES:
        raise ValueError(
            f"{n_cells} matrices of {n:,} levels are too large; by= takes at most "
            f"{int((MOST_ENTRIES / n_cells) ** 0.5):,} levels."
        )
    return np.bincount((cell * n + origin) * n + target, minlength=n_cells * n * n).reshape(n_cells, n, n)


def shrink(counts: NDArray[Any], pooled: FloatArray, strength: float) -> FloatArray:
    """Return the matrices of counts (..., n, n), each drawn towards `pooled` (n, n)."""
    if np.isinf(strength):
        return np.array(np.broadcast_to(pooled, counts.shape))
    seen = counts.sum(axis=-1, keepdims=True)
    weight = strength / (seen + strength)
    mixed: FloatArray = weight * pooled + (1.0 - weight) * counts / np.maximum(seen, 1)
    return mixed


def fold_of(stamps: NDArray[np.datetime64]) -> IntArray:
    """Return which fold leaves out the day of each stamp."""
    days, index = np.unique(stamps.astype("datetime64[D]"), return_inverse=True)
    if len(days) < 2:
        raise ValueError(
            "all transitions leave on one day, and by= needs at least two: how thin cells are treated is chosen on "
            "days left out; give a longer series."
        )
    return np.asarray(index % min(FOLDS, len(days)))


def held_out(cell: IntArray, origin: IntArray, target: IntArray, fold: IntArray, n: int) -> FloatArray:
    """Return the mean log-likelihood of a left-out transition under each of `STRENGTHS`."""
    key = (cell * n + origin) * n + target
    total = np.bincount(key)
    pooled_total = np.bincount(origin * n + target, minlength=n * n)
    likelihood, scored = np.zeros(len(STRENGTHS)), 0
    finite = STRENGTHS[:-1, None]
    for left in range(int(fold.max()) + 1):
        out = fold == left
        keys, times = np.unique(key[out], return_counts=True)
        rest = total.copy()
        rest[keys] -= times
        pooled = (pooled_total - np.bincount((origin * n + target)[out], minlength=n * n)).reshape(n, n)
        pooled = pooled / np.maximum(pooled.sum(axis=1, keepdims=True), 1)
        known = pooled.ravel()[keys % (n * n)]
        keys, times, known = keys[known > 0], times[known > 0], known[known > 0]
        # Transitions left to train on out of each (cell, origin).
        rows = np.bincount(np.arange(len(rest)) // n, rest)[keys // n]
        likelihood[:-1] += (np.log(rest[keys] + finite * known) - np.log(rows + finite)) @ times
        likelihood[-1] += np.log(known) @ times
        scored += int(times.sum())
    return likelihood / max(scored, 1)


def best_strength(likelihood: FloatArray) -> float:
    """Return the strength of the largest likelihood; of equally good ones the largest."""
    return float(STRENGTHS[np.flatnonzero(likelihood == likelihood.max())[-1]])
