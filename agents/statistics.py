r"""Few runs, honest numbers: interquartile means and bootstrap intervals, as Agarwal et al. (2021) recommend.

The formulas are those of their library, `rliable`. Scores come as a matrix of runs (agents that
were trained alike with other seeds) and instances. The *interquartile mean* is the mean of all scores but the lowest
and the highest quarter. The interval resamples the runs of each instance on their own (a stratified bootstrap), and,
since the instances themselves were drawn from many, the instances too; `rliable` calls that ``task_bootstrap``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from dp_ensemble_env._validation import as_float_array, check_in_range

FloatArray = NDArray[np.float64]
#: Resamples of an interval.
RESAMPLES = 2000


class Interval(NamedTuple):
    """An estimate and the interval around it."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        low, value, high = (f"{0.0 if abs(x) < 0.05 else x:.1f}" for x in (self.low, self.value, self.high))
        return value if low == value == high else f"{value} [{low}, {high}]"


def interquartile_mean(scores: ArrayLike) -> float:
    """Return the mean of all scores but the lowest and the highest quarter.

    Examples
    --------
    >>> interquartile_mean([0, 90, 94, 100])
    92.0
    """
    return float(stats.trim_mean(_matrix(scores), 0.25, axis=None))


def resampled(
    scores: ArrayLike, rng: np.random.Generator, count: int = RESAMPLES, instances: bool = True
) -> FloatArray:
    """Return interquartile means of `count` resamples of a matrix (runs, instances).

    Each instance draws its runs on its own; with `instances` these are drawn, too, else they stay as they are.
    """
    matrix = _matrix(scores)
    runs, tasks = matrix.shape
    rows = rng.integers(runs, size=(count, runs, tasks))
    columns = rng.integers(tasks, size=(count, 1, tasks)) if instances else np.arange(tasks)
    drawn = matrix[rows, columns].reshape(count, -1)
    means: FloatArray = stats.trim_mean(drawn, 0.25, axis=1)
    return means


def interval(scores: ArrayLike, level: float = 0.95, seed: int = 0, *, instances: bool = True) -> Interval:
    """Return the interquartile mean of a matrix (runs, instances) and its percentile bootstrap interval."""
    found = resampled(scores, np.random.default_rng(seed), instances=instances)
    return around(interquartile_mean(scores), found, level)


def difference(left: ArrayLike, right: ArrayLike, level: float = 0.95, seed: int = 0) -> Interval:
    """Return how far the interquartile mean of `left` lies above that of `right`, both resampled on their own."""
    rng = np.random.default_rng(seed)
    found = resampled(left, rng) - resampled(right, rng)
    return around(interquartile_mean(left) - interquartile_mean(right), found, level)


def suite_interval(scores: Mapping[str, ArrayLike], level: float = 0.95, seed: int = 0) -> Interval:
    """Return the mean over scenarios of their interquartile means; each scenario is resampled on its own."""
    if not scores:
        raise ValueError("there are no scores; give those of at least one scenario.")
    rng = np.random.default_rng(seed)
    found = np.mean([resampled(matrix, rng) for matrix in scores.values()], axis=0)
    return around(float(np.mean([interquartile_mean(matrix) for matrix in scores.values()])), found, level)


def around(value: float, draws: FloatArray, level: float = 0.95) -> Interval:
    """Return the percentile interval of resampled values."""
    share = check_in_range(level, "level", 0.0, 1.0, open_low=True)
    low, high = np.quantile(draws, [(1 - share) / 2, (1 + share) / 2])
    return Interval(value, float(low), float(high))


def _matrix(scores: ArrayLike) -> FloatArray:
    values = np.asarray(scores, dtype=float)
    matrix = as_float_array(np.atleast_2d(values), "scores", 2)
    if not matrix.size:
        raise ValueError("scores is empty; give the score of at least one run on one instance.")
    return matrix
