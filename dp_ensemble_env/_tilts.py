"""Which decisions compete, and tilts that are centred among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

FloatArray = NDArray[np.float64]


def competing(behaviour: FloatArray) -> NDArray[np.int64]:
    """Return the set, counted from 0, that each decision of behaviour (…, n, m) belongs to, shape (m,).

    Decisions compete if some load may take either, at once or by way of others. A tilt
    that is raised for a whole set changes nothing.

    Examples
    --------
    >>> competing(np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    array([0, 0, 1])
    """
    n, m = behaviour.shape[-2:]
    possible = (behaviour > 0).reshape(-1, n, m).any(axis=0)
    states, decisions = np.nonzero(possible)
    joint = coo_array((np.ones(len(states)), (states, n + decisions)), shape=(n + m, n + m))
    _, labels = connected_components(joint, directed=False)
    _, numbers = np.unique(labels[n:], return_inverse=True)
    result: NDArray[np.int64] = numbers.reshape(m).astype(np.int64)
    return result


def centred(tilts: FloatArray, behaviour: FloatArray, taken: Any = True) -> FloatArray:
    """Return tilts (…, m) shifted so that the middle of each set of competing decisions is zero.

    Parameters
    ----------
    tilts : ndarray of shape (…, m)
    behaviour : ndarray of shape (…, n, m)
        Whose decisions compete; see `competing`.
    taken : array_like of bool that broadcasts to the tilts
        Decisions that count for the middle; a set without any stays as it is.
    """
    out = np.array(tilts, dtype=float)
    labels, counted = competing(behaviour), np.broadcast_to(taken, out.shape)
    for group in range(labels.max() + 1):
        inside = counted & (labels == group)
        top = np.where(inside, tilts, -np.inf).max(axis=-1, keepdims=True)
        low = np.where(inside, tilts, np.inf).min(axis=-1, keepdims=True)
        some = np.isfinite(top)
        middle = (np.where(some, top, 0.0) + np.where(some, low, 0.0)) / 2.0
        out -= np.where(labels == group, middle, 0.0)
    return out
