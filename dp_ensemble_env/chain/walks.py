"""Two standard pieces of Markov chains: the stationary distribution, and the lazy walk that is guessed without data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def stationary(transition: FloatArray) -> FloatArray:
    """Return the long-run distribution of a chain that starts in its first state, periodic or not.

    By repeated squaring. Simulated fleets start from it, so another algorithm, equal up to rounding, could move them.

    Examples
    --------
    >>> stationary(np.array([[0.9, 0.1], [0.3, 0.7]])).round(12).tolist()
    [0.75, 0.25]
    """
    lazy = 0.5 * (transition + np.eye(len(transition)))  # the same stationary distribution, and no period
    far = np.linalg.matrix_power(lazy, 2**20)[0]
    shares: FloatArray = far / far.sum()
    return shares


def lazy_walk(levels: int, stay: float = 0.6, decay: float = 0.3, reach: int | None = None) -> FloatArray:
    """Return the walk that stays with weight `stay` and moves by d levels with weight decay^|d|, |d| <= reach.

    Parameters
    ----------
    levels : int
    stay, decay : float
    reach : int, optional
        By default every level is within reach.
    """
    distance = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels)))
    moves = np.where(distance <= (levels if reach is None else reach), decay**distance, 0.0)
    weights = np.where(distance == 0, stay, moves)
    walk: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return walk
