"""Power levels: where they are cut, which one a reading is in, how often each leads to each."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.tools.validation import as_float_array, state_list

FloatArray = NDArray[np.float64]


def cut(values: FloatArray, n_states: int, binning: str) -> FloatArray:
    """Return the bounds of `n_states` levels of equal width or equal count."""
    low, high = float(values.min()), float(values.max())
    # Below some ulps of the larger bound the grid's edges would coincide.
    if high - low <= 4 * n_states * np.spacing(max(abs(low), abs(high))):
        raise ValueError(
            f"the power never changes (it is {low:g} throughout), so it has one state and nothing to control; "
            "choose another meter, period or column."
        )
    if binning == "quantile":
        return np.unique(np.quantile(values, np.linspace(0.0, 1.0, n_states + 1)))
    return np.linspace(low, high, n_states + 1)


def digitize(values: FloatArray, edges: FloatArray) -> NDArray[np.int64]:
    """Return the level of each reading; those beyond the edges belong to the outermost."""
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def count(origin: FloatArray, target: FloatArray, edges: FloatArray) -> NDArray[np.int64]:
    """Count the transitions from the level of each origin to that of its target."""
    n = len(edges) - 1
    flat = digitize(origin, edges) * n + digitize(target, edges)
    return np.bincount(flat, minlength=n * n).reshape(n, n)


def powers(values: FloatArray, edges: FloatArray, binning: str) -> FloatArray:
    """Return the representative power of each level."""
    centres = 0.5 * (edges[1:] + edges[:-1])
    if binning == "width":
        return centres
    state = digitize(values, edges)
    count = np.bincount(state, minlength=len(centres))
    return np.where(count > 0, np.bincount(state, values, len(centres)) / np.maximum(count, 1), centres)


def merge_unvisited(origin: FloatArray, edges: FloatArray) -> FloatArray:
    """Remove edges until every remaining state is left at least once."""
    while True:
        left = np.bincount(digitize(origin, edges), minlength=len(edges) - 1)
        unvisited = np.flatnonzero(left == 0)
        if not len(unvisited):
            return edges
        if len(edges) <= 3:
            raise ValueError("merging leaves a single state; use more data, fewer states or binning='quantile'.")
        b = unvisited[0]
        centres = 0.5 * (edges[1:] + edges[:-1])
        below = b > 0 and (b == len(left) - 1 or centres[b] - centres[b - 1] <= centres[b + 1] - centres[b])
        edges = np.delete(edges, b if below else b + 1)


def unvisited_message(unvisited: NDArray[np.int64], edges: FloatArray, values: FloatArray) -> str:
    """Say which states nothing leaves, and what to do about it."""
    b = int(unvisited[0])
    message = (
        f"no transition leaves state {state_list(unvisited)} (state {b} spans {edges[b]:.6g} to {edges[b + 1]:.6g}); "
        "use fewer states, binning='quantile', or on_unvisited='merge'"
    )
    typical = float(np.quantile(values, 0.99))
    if values.max() > 10 * max(typical, 0.0):
        message += f", and look at the reading {values.max():.6g}: it stretches the grid far beyond the others"
    return message + "."


def check_edges(edges: ArrayLike) -> FloatArray:
    """Return bounds of levels that the caller gives."""
    bounds = as_float_array(edges, "edges", 1)
    if len(bounds) < 3 or (np.diff(bounds) <= 0).any():
        raise ValueError(f"edges must be at least three increasing numbers, got {bounds.tolist()[:8]}.")
    return bounds
