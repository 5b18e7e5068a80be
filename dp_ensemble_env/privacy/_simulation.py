"""Simulated participants: each lives under behaviour of its own, drawn around that of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain.walks import stationary
from dp_ensemble_env.tools.compile import njit

FloatArray = NDArray[np.float64]
_CHUNK = 500


def walk_around(
    matrix: FloatArray, number: int, rng: np.random.Generator, kappa: float, steps: int
) -> NDArray[np.unsignedinteger[Any]]:
    """Let participants walk whose rows are Dir(kappa · matrix), and count their moves; see `Fleet.simulate`."""
    n = len(matrix)
    counts = np.zeros((number, n, n), dtype=np.uint16 if steps < 2**16 else np.uint32)
    start = stationary(matrix)
    for low in range(0, number, _CHUNK):
        size = min(_CHUNK, number - low)
        rows = np.broadcast_to(matrix, (size, n, n)).copy()
        if np.isfinite(kappa):
            rows = rng.standard_gamma(kappa * rows)
            empty = rows.sum(axis=2) == 0  # every Gamma variate of a row underflowed
            rows[empty] = np.broadcast_to(matrix, rows.shape)[empty]
        bounds = np.cumsum(rows, axis=2)
        bounds /= bounds[:, :, -1:]
        _walk(bounds, rng.choice(n, size, p=start), steps, rng, counts[low : low + size])
    return counts


@njit(cache=True)
def _walk(
    bounds: FloatArray,
    start: NDArray[np.int64],
    steps: int,
    rng: np.random.Generator,
    counts: NDArray[np.unsignedinteger[Any]],
) -> None:
    """Let every participant walk; `bounds[i, b]` are the cumulative probabilities of its row `b`."""
    n = bounds.shape[1]
    for i in range(len(bounds)):
        b = start[i]
        for _ in range(steps):
            u = rng.random()
            a = 0
            while a < n - 1 and bounds[i, b, a] <= u:
                a += 1
            counts[i, b, a] += 1
            b = a
