"""Days drawn at random: where single loads go under a policy, for ranges around what is expected."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def draw_states(
    policy: FloatArray, initial: FloatArray, number: int, rng: np.random.Generator, start: IntArray | None = None
) -> IntArray:
    """Draw trajectories of states, shape (number, T + 1).

    Parameters
    ----------
    policy : ndarray of shape (T, n, n)
    initial : ndarray of shape (n,)
    number : int
    rng : numpy Generator
    start : ndarray of int of shape (number,), optional
        First states, instead of draws from `initial`.
    """
    n = len(initial)
    states = np.empty((number, len(policy) + 1), dtype=np.int64)
    states[:, 0] = rng.choice(n, size=number, p=initial) if start is None else start
    for t, matrix in enumerate(policy):
        # Upper ends of each row's share of [0, 1); the last is one whatever the rounding.
        ends = np.cumsum(matrix, axis=1)
        ends[:, -1] = 1.0
        states[:, t + 1] = (rng.random(number)[:, None] >= ends[states[:, t]]).sum(axis=1)
    return states
