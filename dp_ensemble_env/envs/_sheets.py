"""Arrays that are handed out to be filled, and filled again once nobody holds them any more.

A step returns arrays that the caller may keep, so each needs new ones. Most callers soon let them go; memory that was
in use a moment ago is still in the cache of the thread that filled it.
"""

from __future__ import annotations

from sys import getrefcount

import numpy as np
from numpy.typing import NDArray

Pair = tuple[NDArray[np.float32], NDArray[np.float64]]
_pair: Pair = np.empty((0, 0), np.float32), np.empty((0, 0))
#: What `getrefcount` says of an array that only its pair refers to.
_ALONE = getrefcount(_pair[0])
#: As many pairs are kept: one that the caller holds, one to fill, and one to spare.
_KEPT = 3


class Sheets:
    """Observations and values for a batch."""

    def __init__(self, observed: tuple[int, int], values: tuple[int, int]) -> None:
        self._shapes = observed, values
        self._pairs: list[Pair] = []

    def blank(self) -> Pair:
        """Return arrays that nobody else refers to, by a view or otherwise, with anything in them."""
        for pair in self._pairs:
            if getrefcount(pair[0]) == _ALONE and getrefcount(pair[1]) == _ALONE:
                break
        else:
            pair = np.empty(self._shapes[0], np.float32), np.empty(self._shapes[1])
            if len(self._pairs) < _KEPT:
                self._pairs.append(pair)
        return pair[0].view(), pair[1].view()  # a caller may change the flags of a view

    def __getstate__(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return self._shapes

    def __setstate__(self, shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
        self.__init__(*shapes)  # type: ignore[misc]
