r"""Few runs, honest numbers: interquartile means and bootstrap intervals, as Agarwal et al. (2021) recommend.

The formulas are those of their library, `rliable`. Scores come as a matrix of runs (agents that
were trained alike with other seeds) and instances. The *interquartile mean* is the mean of all scores but the lowest
and the highest quarter. The interval resamples the runs of each instance on their own (a stratified bootstrap), and,
since the instances themselves were drawn from many, the instances too; `rliable` calls that ``task_bootstrap``.

Over several scenarios, whose scores come as one matrix each, `interval` is that of all scores together, with runs and
instances resampled within each scenario. `performance_profile` is the share of the scores above each threshold, and
`probability_of_improvement` how probably one agent is better than another on an instance drawn at random.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from dp_ensemble_env.tools.validation import as_float_array

FloatArray = NDArray[np.float64]
#: A matrix of runs and instances, or those of several scenarios.
Scores = ArrayLike | Mapping[str, ArrayLike]
#: Share of an interval, and its resamples.
LEVEL, RESAMPLES = 0.95, 2000


class Interval(NamedTuple):
    """An estimate and the interval around it."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        low, value, high = (f"{0.0 if abs(x) < 0.05 else x:.1f}" for x in (self.low, self.value, self.high))
        return value if low == value == high else f"{value} [{low}, {high}]"


def interquartile_mean(scores: Scores) -> float:
    """Return the mean of all scores but the lowest and the highest quarter.

    Examples
    --------
    >>> interquartile_mean([0, 90, 94, 100])
    92.0
    """
    return float(stats.trim_mean(_together(scores), 0.25))


def resampled(scores: Scores, rng: np.random.Generator, count: int = RESAMPLES) -> FloatArray:
    """Return interquartile means of `count` resamples of a matrix (runs, instances), or of those of several scenarios.

    Each instance draws its runs on its own, and is drawn itself.
    """
    drawn = [_drawn(matrix, rng, count).reshape(count, -1) for matrix in _matrices(scores)]
    means: FloatArray = stats.trim_mean(np.concatenate(drawn, axis=1), 0.25, axis=1)
    return means


def _drawn(matrix: FloatArray, rng: np.random.Generator, count: int, columns: NDArray[Any] | None = None) -> FloatArray:
    """Return resamples (count, runs, instances): each instance draws its runs, and is drawn itself unless given."""
    runs, tasks = matrix.shape
    rows = rng.integers(runs, size=(count, runs, tasks))
    chosen = rng.integers(tasks, size=(count, 1, tasks)) if columns is None else columns
    drawn: FloatArray = matrix[rows, chosen]
    return drawn


def interval(scores: Scores) -> Interval:
    """Return the interquartile mean of all scores together and its 95 % bootstrap interval."""
    return around(interquartile_mean(scores), resampled(scores, np.random.default_rng(0)))


def difference(left: ArrayLike, right: ArrayLike) -> Interval:
    """Return how far the interquartile mean of `left` lies above that of `right`, both resampled on their own."""
    rng = np.random.default_rng(0)
    draws = resampled(left, rng) - resampled(right, rng)
    return around(interquartile_mean(left) - interquartile_mean(right), draws)


def performance_profile(scores: Mapping[str, ArrayLike], thresholds: ArrayLike) -> FloatArray:
    """Return the share of all runs on all instances that score above each threshold.

    Examples
    --------
    >>> performance_profile({"spot": [[90, 98]], "call": [[50, 99]]}, [0, 95])
    array([1. , 0.5])
    """
    shares: FloatArray = (_together(scores) > np.asarray(thresholds, float)[..., None]).mean(axis=-1)
    return shares


def probability_of_improvement(left: Mapping[str, ArrayLike], right: Mapping[str, ArrayLike]) -> Interval:
    """Return how probably a run of `left` scores above one of `right` on the same instance; a tie counts half.

    The mean over all instances of all scenarios that both have. The interval resamples instances within each
    scenario, and the runs of each side on their own.
    """
    names = [name for name in left if name in right]
    if not names:
        raise ValueError("the two have no scenario in common; score both on at least one.")
    rng = np.random.default_rng(0)
    values, draws = [], []
    for name in names:
        x, y = _matrix(left[name]), _matrix(right[name])
        if x.shape[1] != y.shape[1]:
            raise ValueError(f"the two were scored on {x.shape[1]} and {y.shape[1]} instances of {name}; use the same.")
        values.append(_wins(x, y))
        columns = rng.integers(x.shape[1], size=(RESAMPLES, 1, x.shape[1]))
        draws.append(_wins(_drawn(x, rng, RESAMPLES, columns), _drawn(y, rng, RESAMPLES, columns)))
    return around(float(np.concatenate(values).mean()), np.concatenate(draws, axis=1).mean(axis=1))


def _wins(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return for each instance the share of pairs of runs in which `x` is above `y`; shapes (..., runs, instances)."""
    one, other = x[..., :, None, :], y[..., None, :, :]
    wins: FloatArray = ((one > other) + 0.5 * (one == other)).mean(axis=(-3, -2))
    return wins


def around(value: float, draws: FloatArray) -> Interval:
    """Return the 95 % percentile interval of resampled values."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(low), float(high))


def _matrices(scores: Scores) -> list[FloatArray]:
    if not isinstance(scores, Mapping):
        return [_matrix(scores)]
    if not scores:
        raise ValueError("there are no scores; give the scores of at least one scenario.")
    return [_matrix(matrix) for matrix in scores.values()]


def _together(scores: Scores) -> FloatArray:
    return np.concatenate([matrix.ravel() for matrix in _matrices(scores)])


def _matrix(scores: ArrayLike) -> FloatArray:
    matrix = as_float_array(np.atleast_2d(np.asarray(scores, dtype=float)), "scores", 2)
    if not matrix.size:
        raise ValueError("scores is empty; give the score of at least one run on one instance.")
    return matrix
