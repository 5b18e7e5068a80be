"""What participants did, numbered as the cells of what is released."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def as_classes(classes: ArrayLike) -> NDArray[np.int64]:
    """Return numbers of classes, every one from zero on in use."""
    kinds = np.array(classes)
    if kinds.dtype.kind not in "iu" or not kinds.size or not np.array_equal(np.unique(kinds), range(kinds.max() + 1)):
        raise ValueError("classes must be whole numbers from 0 on, one for each time and context, none left out.")
    kinds = kinds.astype(np.int64)
    kinds.setflags(write=False)
    return kinds


def cells_of(
    records: ArrayLike, index: int, shape: tuple[int, ...], classes: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Return the numbered cells of one participant's records."""
    rows = np.asarray(records)
    rows = rows.reshape(-1, len(shape)) if rows.size == 0 else rows
    if rows.ndim != 2 or rows.shape[1] != len(shape) or (rows.size and rows.dtype.kind not in "iu"):
        raise ValueError(
            f"the records of participant {index} must be rows of {len(shape)} whole numbers, one for each axis of "
            f"{shape}: its time or context, the state and the decision; got {rows.dtype} {rows.shape}."
        )
    bad = np.argwhere((rows < 0) | (rows >= np.array(shape)))
    if len(bad):
        row, axis = map(int, bad[0])
        raise ValueError(
            f"record {row} of participant {index} has {int(rows[row, axis])} in column {axis}, but the shape {shape} "
            f"allows 0 … {shape[axis] - 1} there."
        )
    columns = list(rows.astype(np.int64).T)
    if classes is not None:
        columns = [classes[tuple(columns[:-2])], *columns[-2:]]
        shape = (int(classes.max()) + 1, *shape[-2:])
    return np.asarray(np.ravel_multi_index(columns, shape))


def transitions(states: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    origin, target = states[:-1], states[1:]
    valid = (origin >= 0) & (target >= 0)
    return np.bincount(origin[valid] * n + target[valid], minlength=n * n).reshape(n, n)
