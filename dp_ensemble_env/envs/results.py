"""Arrays for what the steps of a batch return.

Each step returns arrays of its own, as the caller may keep them. Large ones come fresh from the operating system, page
by page, which at 65,536 environments takes longer than filling them. So a set of large arrays that nobody holds any
more is filled again. Python counts the references: an array that the caller, a view or a tensor still refers to is
left alone.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Smaller sets than this come from memory that the process has already.
LARGE_BYTES = 1 << 19
#: How many sets are kept: what the caller looks at, the one before, and the one being filled.
KEPT = 3

Set = tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]


class Results:
    """Observations (B, width), values (rows, B), times (B,) and optimal returns (B,), set by set."""

    def __init__(self, observed: tuple[int, int], rows: int) -> None:
        self._observed, self._rows = observed, rows
        size = observed[0]
        self._large = 4 * observed[0] * observed[1] + 8 * size * (rows + 2) >= LARGE_BYTES
        self._sets: list[list[NDArray[Any]]] = []

    def fresh(self) -> Set:
        """Return a set of arrays to which nobody else refers; what they hold means nothing."""
        if not self._large:
            return self._new()
        for index, arrays in enumerate(self._sets):
            if _references(arrays) == _UNUSED:
                self._sets.append(self._sets.pop(index))  # the longest unused comes first
                return arrays[0], arrays[1], arrays[2], arrays[3]
        made = self._new()
        self._sets = [*self._sets[1 - KEPT :], list(made)]
        return made

    def _new(self) -> Set:
        size = self._observed[0]
        return (
            np.empty(self._observed, np.float32),
            np.empty((self._rows, size)),
            np.empty(size, np.int64),
            np.empty(size),
        )


def _references(arrays: list[NDArray[Any]]) -> list[int]:
    """Count the references to each array, those of this function among them."""
    return [sys.getrefcount(array) for array in arrays]


#: What `_references` counts where the set is all that refers to an array.
_UNUSED = _references([np.empty(0, np.float32), np.empty(0), np.empty(0, np.int64), np.empty(0)])
