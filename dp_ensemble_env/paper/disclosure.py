r"""What a published policy gives away (E8): the matrix it was made from, and the counts behind that.

A policy is :math:`\pi[b, a] = P[b, a]\,z[a]/c[b]`. Estimated from counts with one more of each, most transitions of
:math:`P` were never seen and have the same small probability in a row, so that most entries of the policy are a product
of something of the row and something of the column. The most frequent ratio of two neighbouring columns is that of
their z; divided by z, the most frequent entry of a row stands for one count, and the others are whole numbers of it.
Nothing but the published matrix is needed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import digamma

from dp_ensemble_env.control.policies import digamma_kernel, solve_standard, taylor_kernel
from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]
#: Relative error below which an entry is a product of its row and column, and a ratio a whole number.
TOLERANCE = 1e-3
#: Logarithms that lie so near to one another count as equal.
NEAR = 3e-4


class Disclosure(NamedTuple):
    """Information recovered from a matrix (n, n)."""

    products: int  # entries that are a product of something of the row and something of the column
    log_z: FloatArray  # what the columns were tilted by, up to a constant
    matrix: FloatArray  # before the tilt
    counts: NDArray[np.int64] | None  # transitions seen; None if the rest are no whole numbers

    def __str__(self) -> str:
        tilt = float(np.ptp(self.log_z))
        text = f"{self.products} of {self.matrix.size} entries are a product of their row and column"
        if self.counts is None:
            return f"{text}; the others give no whole numbers, so the counts are not revealed"
        seen = int(self.counts.sum())
        return f"{text}, with a tilt of {tilt:.3g} nats; divided out, {seen:,} transitions come back as whole numbers"


def disclose(policy: ArrayLike) -> Disclosure:
    """Read matrix and counts off one step of a policy (n, n), without knowing z.

    Examples
    --------
    >>> counts = 40 * np.eye(8, dtype=int) + 9 * np.eye(8, k=1, dtype=int) + 5 * np.eye(8, k=-1, dtype=int)
    >>> np.array_equal(disclose(tilted(counts, [0.0, 0.3, -0.2, 1.0, 0.5, 0.7, 2.0, 0.1])).counts, counts)
    True
    """
    values = np.asarray(policy, dtype=float)
    with np.errstate(divide="ignore"):
        logs = np.where(values > 0, np.log(values), np.nan)  # what is impossible tells nothing of z
    columns = np.cumsum([0.0, *(_most_frequent(steps) for steps in np.diff(logs, axis=1).T)])
    rows = np.array([_most_frequent(row) for row in logs - columns])
    ratios = np.nan_to_num(np.exp(logs - rows[:, None] - columns))
    products = int((np.abs(ratios - 1.0) < TOLERANCE).sum())
    whole = np.rint(ratios)
    counted = bool((np.abs(ratios - whole) <= TOLERANCE * np.maximum(ratios, 1.0)).all() and (whole >= 1).all())
    left = whole if counted else ratios
    matrix: FloatArray = left / left.sum(axis=1, keepdims=True)
    return Disclosure(products, columns - columns.mean(), matrix, whole.astype(np.int64) - 1 if counted else None)


def _most_frequent(values: FloatArray) -> float:
    """Return the value that most of those given agree on, the smallest of several; 0 if none is known."""
    known = np.sort(values[np.isfinite(values)])
    if not known.size:
        return 0.0
    ends = np.searchsorted(known, known + NEAR, side="right")
    first = int(np.argmax(ends - np.arange(len(known))))
    return float(np.median(known[first : ends[first]]))


def tilted(counts: ArrayLike, log_z: ArrayLike) -> FloatArray:
    """Return the policy of one step of the chain that is estimated from counts, with one more of each."""
    logs = np.log(np.asarray(counts, dtype=float) + 1.0) + np.asarray(log_z, dtype=float)
    policy: FloatArray = np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
    return policy


def disclosed_counts(model: EnsembleModel, time: int) -> Disclosure | None:
    """Tilt the chain of the model's own counts by z, publish it, and read matrix and counts back without z."""
    if model.counts is None:
        return None
    return disclose(tilted(model.counts, solve_standard(model).log_desirability[time + 1]))


def recovery_error(model: EnsembleModel, method: str, k: float) -> float:
    """Read the true matrix back from the last step of a noise-aware policy alone; return the largest error.

    There z is exp(U_T / γ), which is public, and rows sum to one, so that nothing but the policy has to be known.
    """
    kernel = taylor_kernel(model, k) if method == "taylor" else digamma_kernel(model, k)
    log_z = model.utility[-1] / model.discomfort_penalty
    logs = np.full(model.default.shape, -np.inf)  # of the policy, which itself may underflow
    rows = np.repeat(np.arange(model.n_states), np.diff(kernel.indptr))
    logs[rows, kernel.indices] = kernel.log_values[0] + log_z[kernel.indices]
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    return float(np.abs(read_back(logs, log_z, method, k) - model.default).max())


def read_back(log_policy: FloatArray, log_z: FloatArray, method: str, k: float) -> FloatArray:
    """Return the matrix P of which the policy is the row-normalised K(P) z."""
    matrix = np.zeros_like(log_policy)
    for b, row in enumerate(log_policy):
        support = np.flatnonzero(row > -np.inf)
        logs = row[support] - log_z[support]  # log K up to one constant a row

        def entries(shift: float, logs: FloatArray = logs) -> FloatArray:
            return np.array([_probability(value + shift, method, k) for value in logs])

        # The likeliest entry lies between an equal share and one.
        low, high = (log_kernel(p, method, k) - logs.max() for p in (1 / len(logs), 1.0))
        shift = low if low == high else brentq(lambda c: entries(c).sum() - 1.0, low - 1e-9, high + 1e-9, xtol=1e-14)  # noqa: B023
        matrix[b, support] = entries(shift)
    return matrix


def log_kernel(p: float, method: str, k: float) -> float:
    """Return log K of one entry: the approximation of E[log x] by Taylor, or its value."""
    return math.log(p) - (1 - p) / (2 * p * (k + 1)) if method == "taylor" else float(digamma(k * p) - digamma(k))


def _probability(log_k: float, method: str, k: float) -> float:
    """Invert the kernel, which rises in p."""
    low, high = -25.0, 1.0
    if log_kernel(math.exp(low), method, k) >= log_k:
        return 0.0
    return math.exp(brentq(lambda x: log_kernel(math.exp(x), method, k) - log_k, low, high, xtol=1e-15, rtol=1e-14))
