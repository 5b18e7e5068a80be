r"""What is made of noisy sums of contributions (post-processing, free).

The noise is known: cell `(b, a)` of :math:`g + S/W` has the standard
deviation :math:`s_b \sqrt{g_{ba}}`.

**One matrix of moves between levels.** Cells that noise alone would reach in one of `n²` cells are emptied; where
the guess is below 0.001, in one of a million releases, since a single false jump across many levels ruins a plan. If
clearly less than all of a row is left, the guess fills the emptied cells; then rows are normalised. The result is
mixed with the guess: with :math:`s^2` the mean square of the noise in these units and :math:`t^2` that
of the differences less :math:`s^2`, the guess gets the share :math:`s^2/(s^2 + t^2)` by James and Stein's argument,
half as much again for Laplace noise with its higher tails.
Weights of rows are taken to be three standard deviations at least, and if half of them are smaller, the release
is the guess itself: noise alone releases nothing worse.

**Many rows** (times, contexts, states with their own decisions) are seen to different degrees, some never. Each has its
own noise :math:`s_b`, and :math:`t^2` is the mean over rows in which the accurate ones count most, so that the
guess gets the share :math:`s_b^2/(s_b^2 + t^2)` of row `b`. A row whose weight is below three standard deviations is
the guess's. Only cells that the guess all but excludes are emptied; of others the mean is taken that
a normal variate has which is known to be positive, as a plan must not believe a possible decision to be impossible.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

if TYPE_CHECKING:
    from dp_ensemble_env.privacy.mechanisms.participants import Layout

FloatArray = NDArray[np.float64]
Tail = Callable[[float], float]
#: Cells are measured in units of the guess's standard deviation, or of this guess if theirs is smaller.
LEAST_GUESS = 1e-3
#: How many releases, at most, show a jump that the guess all but excludes and noise has made up.
FALSE_JUMPS = 1e-6


def shrink(layout: Layout, rows: FloatArray, deviation: FloatArray, tail: Tail) -> FloatArray:
    """Empty the cells that noise could have made, normalise, and fall back on the guess as far as noise prevails.

    Parameters
    ----------
    layout : Layout
        The guess, and the units of its cells.
    rows, deviation : ndarray of shape (n, n)
        Noisy rows, and the standard deviation of the noise.
    tail : callable
        How many standard deviations the noise exceeds with about this probability.
    """
    guess, units = layout.guess, layout.units
    k = np.where(guess < LEAST_GUESS, tail(FALSE_JUMPS / guess.size), tail(1.0 / guess.size))
    kept = np.where(rows > k * deviation, rows, 0.0)
    diagonal = np.einsum("ii->i", kept)
    diagonal[:] = np.maximum(diagonal, 0.01)
    error = np.sqrt(np.where(kept > 0, deviation**2, 0.0).sum(axis=1, keepdims=True))
    missing = np.maximum(0.0, 1.0 - kept.sum(axis=1, keepdims=True) - 3.0 * error)
    emptied = np.where(kept > 0, 0.0, guess)
    kept += missing * emptied / np.maximum(emptied.sum(axis=1, keepdims=True), 1e-300)
    kept /= kept.sum(axis=1, keepdims=True)
    noise = float(((deviation / units) ** 2).mean())
    signal = max(0.0, float((((rows - guess) / units) ** 2).mean()) - noise)
    # Where tails are higher than normal ones, noise does more harm than its variance says.
    heavy = (tail(1.0 / guess.size) / normal_tail(1.0 / guess.size)) ** 2
    share = min(1.0, heavy * noise / (noise + signal))
    return np.asarray((1.0 - share) * kept + share * guess)


def shrink_rows(layout: Layout, rows: FloatArray, noise: FloatArray, seen: NDArray[np.bool_], tail: Tail) -> FloatArray:
    """Fall back on the guess in each row as far as its noise prevails.

    Parameters
    ----------
    layout : Layout
    rows : ndarray of shape (cells,)
        Noisy probabilities of the drawn cells.
    noise : ndarray of shape (rows,)
        Standard deviation of the noise in each drawn row, in units of its cells.
    seen : ndarray of bool of shape (rows,)
        Rows with enough weight.
    tail : callable
    """
    guess, units = layout.guess.ravel()[layout.cells], layout.units.ravel()[layout.cells]
    matrix = layout.guess.copy()
    if not seen.any():
        return matrix
    size = layout.row_sums(np.ones(len(rows)))
    apart = layout.row_sums(((rows - guess) / units) ** 2) / size
    precision = np.where(seen, size / noise**4, 0.0)
    signal = max(0.0, float((precision * (apart - noise**2)).sum() / precision.sum()))
    heavy = (tail(1.0 / len(rows)) / normal_tail(1.0 / len(rows))) ** 2
    share = np.where(seen, np.minimum(1.0, heavy * noise**2 / (noise**2 + signal)), 1.0)[layout.row_of]
    mixed = _positive(guess + (1.0 - share) * (rows - guess), (1.0 - share) * noise[layout.row_of] * units)
    false = (guess < LEAST_GUESS) & (rows <= tail(FALSE_JUMPS / len(rows)) * noise[layout.row_of] * units)
    mixed = np.where(false, 0.0, mixed)
    total = layout.row_sums(mixed)[layout.row_of]
    matrix.ravel()[layout.cells] = np.where(total > 0, mixed / np.maximum(total, 1e-300), guess)
    return matrix


def _positive(values: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return the means of normal variates that are known to be positive."""
    x = np.clip(values / np.maximum(deviation, 1e-300), -30.0, 9.0)  # beyond nine nothing is added
    ratio = np.exp(-0.5 * x * x - 0.5 * math.log(2.0 * math.pi) - log_ndtr(x))
    return np.asarray(np.where(x < 9.0, deviation * (x + ratio), values))


# ------------------------------------------------------------------ tails
def normal_tail(probability: float) -> float:
    """Return about how many standard deviations a normal variate exceeds with this probability."""
    return math.sqrt(2.0 * math.log(1.0 / probability))


def laplace_tail(probability: float) -> float:
    """Return how many standard deviations, of √2 scales each, a Laplace variate exceeds with twice this probability."""
    return math.log(1.0 / probability) / math.sqrt(2.0)
