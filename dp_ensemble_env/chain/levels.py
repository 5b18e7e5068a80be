"""Readings that follow one another, the power levels they are cut into, and how often each leads to each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.calendar import as_step, select_days
from dp_ensemble_env.tools.validation import as_float_array, as_numeric_array, as_times, check_shape, state_list

FloatArray = NDArray[np.float64]


class Readings(NamedTuple):
    """Readings in time order, one meter after the other.

    NaN where they are missing or not selected; `adjacent` tells of each successive pair
    whether it is one step apart.
    """

    values: FloatArray
    adjacent: NDArray[np.bool_]
    stamps: NDArray[np.datetime64] | None
    step: np.timedelta64


def adjacent_readings(
    power: Any,
    times: ArrayLike | None,
    step: Any,
    start: str | None,
    end: str | None,
    season: tuple[str, str] | None,
    exclude: tuple[str, ...],
) -> Readings:
    """Lay out the readings that the filters select."""
    if hasattr(power, "kw") and hasattr(power, "times"):
        power, times, step = power.kw, power.times if times is None else times, power.step if step is None else step
    values = as_numeric_array(power, "power", (1, 2))
    if np.isinf(values).any():
        raise ValueError(f"power[{int(np.argmax(np.isinf(values)))}] is infinite; mark missing readings as NaN.")
    values = values[:, None] if values.ndim == 1 else values
    length, meters = values.shape
    one: np.timedelta64 = np.timedelta64(0, "s")
    if times is None:
        if start or end or season or exclude:
            raise ValueError("filters by date need times; pass times=, one stamp per reading.")
        follows, stamps = np.ones(max(length - 1, 0), dtype=bool), None
    else:
        stamps = as_times(times, "times")
        check_shape(stamps, (length,), "times", "one stamp per reading")
        order = np.argsort(stamps, kind="stable")
        stamps, values = stamps[order], values[order]
        differences = np.diff(stamps)
        if (differences == np.timedelta64(0, "s")).any():
            repeated = stamps[1:][differences == np.timedelta64(0, "s")][0]
            raise ValueError(f"times holds {repeated} twice; read the file with read_meter, which settles repeats.")
        one = as_step(step, differences)
        follows = differences == one
        values = np.where(select_days(stamps, start, end, season, exclude)[:, None], values, np.nan)
        stamps = np.tile(stamps, meters)
    # One meter's last reading and the next one's first are not adjacent.
    adjacent = np.tile(np.append(follows, False)[:length], meters)[:-1]
    return Readings(values.T.ravel(), adjacent, stamps, one)


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
