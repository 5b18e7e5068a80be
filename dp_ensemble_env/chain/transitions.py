r"""What is counted: readings that follow one another, the levels they are cut into, and their transitions by time.

A cell `c` is an hour of the day, a type of day, or both. Its matrix is

.. math:: P_c[b, a] = \frac{N_c[b, a] + \kappa\,\bar P[b, a]}{\sum_\nu N_c[b, \nu] + \kappa}

with the counts :math:`N_c` of the cell, the pooled chain :math:`\bar P` of all cells and one strength
:math:`\kappa`, in transitions. A state that was left :math:`\kappa` times in a cell lies half way between its counts
and the pooled chain; infinite strength is the pooled chain.

The strength is the one under which days that were left out are most likely: every sixth day, in six ways. (Six has no
divisor in common with a week of seven or of five days, so no fold is a day of the week.) A transition that none of the
other days shows is impossible under every strength and left out of the sum. The strengths tried are eight a decade from
0.01 to 100,000, and infinity; of equally good ones the largest wins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.calendar import as_step, day_type, hour_of_day, select_days
from dp_ensemble_env.tools.validation import as_float_array, as_numeric_array, as_times, check_shape, state_list

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: What transitions may be told apart by, in the order of the tables' axes, and how many of each there are.
KEYS = {"hour": 24, "daytype": 2}
FOLDS = 6
STRENGTHS = np.append(10.0 ** np.linspace(-2.0, 5.0, 57), np.inf)
#: Numbers in the tables of one chain, at most (400 MB).
MOST_ENTRIES = 50_000_000


class Readings(NamedTuple):
    """Readings in time order, one meter after the other, NaN where they are missing or not selected.

    `adjacent` tells of each successive pair whether it is one step apart.
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


# ------------------------------------------------------------------ by time
def check_keys(by: Any) -> tuple[str, ...]:
    """Return `by` as keys in the order of the tables' axes."""
    names = (by,) if isinstance(by, str) else by
    try:
        wrong = [name for name in names if name not in KEYS]
    except TypeError:
        wrong = [by]
    if wrong:
        raise ValueError(f"by tells transitions apart by 'hour', 'daytype' or both, got {wrong[0]!r}.")
    return tuple(key for key in KEYS if key in names)


def grid_of(by: tuple[str, ...]) -> tuple[int, int]:
    """Return the numbers of hours and day types that `by` tells apart."""
    return KEYS["hour"] if "hour" in by else 1, KEYS["daytype"] if "daytype" in by else 1


def cells(stamps: NDArray[np.datetime64], by: tuple[str, ...], holidays: tuple[str, ...]) -> tuple[Any, Any]:
    """Return the first two indices into the tables for transitions that leave from intervals starting at `stamps`."""
    zero = np.zeros(len(stamps), dtype=int)
    return hour_of_day(stamps) if "hour" in by else zero, day_type(stamps, holidays) if "daytype" in by else zero


def count_cells(cell: IntArray, origin: IntArray, target: IntArray, n_cells: int, n: int) -> IntArray:
    """Count transitions into (n_cells, n, n)."""
    if n_cells * n * n > MOST_ENTRIES:
        raise ValueError(
            f"{n_cells} matrices of {n:,} levels are too large; by= takes at most "
            f"{int((MOST_ENTRIES / n_cells) ** 0.5):,} levels."
        )
    return np.bincount((cell * n + origin) * n + target, minlength=n_cells * n * n).reshape(n_cells, n, n)


def shrink(counts: NDArray[Any], pooled: FloatArray, strength: float) -> FloatArray:
    """Return the matrices of counts (..., n, n), each drawn towards `pooled` (n, n)."""
    if np.isinf(strength):
        return np.array(np.broadcast_to(pooled, counts.shape))
    seen = counts.sum(axis=-1, keepdims=True)
    weight = strength / (seen + strength)
    mixed: FloatArray = weight * pooled + (1.0 - weight) * counts / np.maximum(seen, 1)
    return mixed


def fold_of(stamps: NDArray[np.datetime64]) -> IntArray:
    """Return which fold leaves out the day of each stamp."""
    days, index = np.unique(stamps.astype("datetime64[D]"), return_inverse=True)
    if len(days) < 2:
        raise ValueError(
            "all transitions leave on one day, and by= needs at least two: how thin cells are treated is chosen on "
            "days left out; give a longer series."
        )
    return np.asarray(index % min(FOLDS, len(days)))


def held_out(cell: IntArray, origin: IntArray, target: IntArray, fold: IntArray, n: int) -> FloatArray:
    """Return the mean log-likelihood of a left-out transition under each of `STRENGTHS`."""
    key = (cell * n + origin) * n + target
    total = np.bincount(key)
    pooled_total = np.bincount(origin * n + target, minlength=n * n)
    likelihood, scored = np.zeros(len(STRENGTHS)), 0
    finite = STRENGTHS[:-1, None]
    for left in range(int(fold.max()) + 1):
        out = fold == left
        keys, times = np.unique(key[out], return_counts=True)
        rest = total.copy()
        rest[keys] -= times
        pooled = (pooled_total - np.bincount((origin * n + target)[out], minlength=n * n)).reshape(n, n)
        pooled = pooled / np.maximum(pooled.sum(axis=1, keepdims=True), 1)
        known = pooled.ravel()[keys % (n * n)]
        keys, times, known = keys[known > 0], times[known > 0], known[known > 0]
        # Transitions left to train on out of each (cell, origin).
        rows = np.bincount(np.arange(len(rest)) // n, rest)[keys // n]
        likelihood[:-1] += (np.log(rest[keys] + finite * known) - np.log(rows + finite)) @ times
        likelihood[-1] += np.log(known) @ times
        scored += int(times.sum())
    return likelihood / max(scored, 1)


def best_strength(likelihood: FloatArray) -> float:
    """Return the strength of the largest likelihood; of equally good ones the largest."""
    return float(STRENGTHS[np.flatnonzero(likelihood == likelihood.max())[-1]])
