r"""What a published policy gives away (E8): the matrix it was made from, and the counts behind that.

A policy is :math:`\pi[b, a] = P[b, a]\,z[a]/c[b]`. Estimated from counts with one more of each, most transitions of
:math:`P` were never seen and have the same small probability in a row, so that most entries of the policy are a product
of something of the row and something of the column. The most frequent ratio of two neighbouring columns is that of
their z; divided by z, the most frequent entry of a row stands for one count, and the others are whole numbers of it.
Nothing but the published matrix is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
#: Relative error below which an entry is a product of its row and column, and a ratio a whole number.
TOLERANCE = 1e-3
#: Logarithms that lie so near to one another count as equal.
NEAR = 3e-4


@dataclass(frozen=True, eq=False)
class Disclosure:
    """What was read off a matrix.

    Attributes
    ----------
    products : int
        Entries that are a product of something of the row and something of the column.
    log_z : ndarray of shape (n,)
        What the columns were tilted by, up to a constant.
    matrix : ndarray of shape (n, n)
        The matrix before the tilt.
    counts : ndarray of int of shape (n, n), or None
        Transitions seen; None if what is left are no whole numbers.
    """

    products: int
    log_z: FloatArray
    matrix: FloatArray
    counts: NDArray[np.int64] | None

    def __str__(self) -> str:
        tilt = float(np.ptp(self.log_z))
        text = f"{self.products} of {self.matrix.size} entries are a product of their row and column"
        if self.counts is None:
            return f"{text}; what is left of the others are no whole numbers, so no counts come back"
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
