r"""From a power series to power levels and default dynamics.

The range of the power is cut into `n` states and transitions between
successive readings are counted,

.. math:: \bar P[b, a] = N[b, a] / \sum_\nu N[b, \nu]

Only readings exactly one step apart form a transition: nothing is counted
across a gap, a filtered-out day or the end of a season. A state that is never
left has no row, and inventing one would invent behaviour, so it is either
refused by name or merged with its neighbour.

What real meters do to this estimate: rows seen once (deterministic), rows
without a self-loop, one-way edges, and entries so small that no adjacent row
exists for the privacy analysis. The counts are kept, so that
`dp_ensemble_env.privacy.adjacency_from_counts` can judge them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env._validation import (
    as_days,
    as_numeric_array,
    as_times,
    check_choice,
    check_count,
    check_in_range,
    check_rng,
    check_shape,
    check_stochastic,
    state_list,
)
from dp_ensemble_env.chain.calendar import as_step, select_days

__all__ = ["MarkovChain", "as_step", "ensemble", "estimate_chain", "select_days"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MarkovChain:
    """Default dynamics estimated from a power series.

    Attributes
    ----------
    default : ndarray of shape (n, n)
        Row-stochastic transition matrix.
    edges : ndarray of shape (n + 1,)
        Bounds of the power levels, in the unit of the series.
    power : ndarray of shape (n,)
        Representative power of each level.
    counts : ndarray of int of shape (n, n)
        Observed transitions.
    """

    default: FloatArray = field(repr=False)
    edges: FloatArray = field(repr=False)
    power: FloatArray = field(repr=False)
    counts: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        n = len(self.power)
        check_shape(np.asarray(self.edges), (n + 1,), "edges", "one more than the states")
        check_shape(np.asarray(self.counts), (n, n), "counts", "one count per transition")
        check_shape(check_stochastic(self.default), (n, n), "default", "one row per state")
        for name in ("default", "edges", "power", "counts"):
            array = np.array(getattr(self, name))
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        return f"MarkovChain({', '.join(f'{value} {name}' for name, value in self._sizes)})"

    def _repr_html_(self) -> str:
        from dp_ensemble_env.reporting.html import card

        return card("MarkovChain", self._sizes)

    @property
    def _sizes(self) -> list[tuple[str, str]]:
        moves, seen = int((self.default > 0).sum()), int(self.counts.sum())
        return [("levels", f"{self.n_states:,}"), ("possible moves", f"{moves:,}"), ("transitions seen", f"{seen:,}")]

    @property
    def n_states(self) -> int:
        """Number of power levels."""
        return len(self.power)

    @property
    def observations(self) -> NDArray[np.int64]:
        """How often each state was left."""
        return np.asarray(self.counts.sum(axis=1))

    def states(self, power: ArrayLike) -> NDArray[np.int64]:
        """State of each reading; readings beyond the edges belong to the outermost states."""
        values = as_numeric_array(power, "power")
        if np.isnan(values).any():
            raise ValueError("power holds NaN, which belongs to no state; drop the missing readings first.")
        return _digitize(values, self.edges)

    def summary(self) -> dict[str, Any]:
        """Return the facts that tell a regular matrix from a real one."""
        support = self.default > 0
        off = support & ~np.eye(self.n_states, dtype=bool)
        rows, columns = np.nonzero(support)
        return {
            "states": self.n_states,
            "transitions": int(self.counts.sum()),
            "nonzeros": int(support.sum()),
            "bandwidth": int(np.abs(rows - columns).max()),
            "one_way_edges": int((off & ~off.T).sum()),
            "deterministic_rows": int((support.sum(axis=1) == 1).sum()),
            "rows_without_self_loop": int((np.diag(self.default) == 0).sum()),
            "smallest_entry": float(self.default[support].min()),
            "fewest_observations": int(self.observations.min()),
        }


def estimate_chain(
    power: Any,
    n_states: int = 20,
    *,
    times: ArrayLike | None = None,
    step: Any = None,
    binning: str = "width",
    on_unvisited: str = "error",
    start: str | None = None,
    end: str | None = None,
    season: tuple[str, str] | None = None,
    exclude: Iterable[str] = (),
) -> MarkovChain:
    """Cut a power series into states and count the transitions between adjacent readings.

    Parameters
    ----------
    power : array_like of shape (m,), or PowerSeries
        Readings, NaN where missing. A `PowerSeries` brings its own times and step.
    n_states : int, default 20
    times : array_like of datetime64, optional
        Stamps of the readings; without them the readings are taken to be
        adjacent and filters by date are refused.
    step : timedelta64 or float (minutes), optional
        Time between adjacent readings; by default the smallest difference of `times`.
    binning : {"width", "quantile"}
        Levels of equal width between the extremes, or of equal count. The
        representative power is the centre of a level of equal width, and the
        mean reading of a level of equal count.
    on_unvisited : {"error", "merge"}
        What to do with a state that no transition leaves. ``"merge"`` joins it
        to the neighbouring level nearest in power, so fewer states come back.
    start, end : str, optional
        Dates, both inclusive, that bound the readings used.
    season : pair of str, optional
        Month-days, both inclusive, such as ``("06-15", "09-25")``; a season may
        run over the new year.
    exclude : iterable of str
        Days to leave out, for instance those of past events.

    Examples
    --------
    >>> estimate_chain([1, 2, 1, 2, 2, 1], n_states=2).default.round(3)
    array([[0.   , 1.   ],
           [0.667, 0.333]])
    """
    n_states = check_count(n_states, "n_states", 2, 100_000)
    check_choice(binning, "binning", ("width", "quantile"))
    check_choice(on_unvisited, "on_unvisited", ("error", "merge"))
    values, adjacent = _adjacent_readings(power, times, step, start, end, season, as_days(exclude, "exclude"))
    present = ~np.isnan(values)
    if present.sum() < 2:
        raise ValueError(
            f"{int(present.sum())} readings are left after the filters; a chain needs at least two adjacent ones."
        )
    edges = _edges(values[present], n_states, binning)
    pairs = np.flatnonzero(adjacent & present[:-1] & present[1:])
    if not len(pairs):
        raise ValueError("no two readings are one step apart, so there is no transition to count; check step and gaps.")
    if len(edges) <= n_states and on_unvisited == "error":
        raise ValueError(
            f"only {len(edges) - 1} of {n_states} quantile states differ, as many readings are equal; use fewer "
            "states, binning='width' or on_unvisited='merge'."
        )
    origin, target = values[pairs], values[pairs + 1]
    counts = _count(origin, target, edges)
    if (unvisited := np.flatnonzero(counts.sum(axis=1) == 0)).size:
        if on_unvisited == "error":
            raise ValueError(_unvisited_message(unvisited, edges, values[present]))
        edges = _merge_unvisited(origin, target, edges)
        counts = _count(origin, target, edges)
    default = counts / counts.sum(axis=1, keepdims=True)
    return MarkovChain(default, edges, _levels(values[present], edges, binning), counts)


def ensemble(
    profile: ArrayLike,
    buildings: int = 100,
    *,
    noise: float = 0.1,
    rng: np.random.Generator | int = 0,
) -> FloatArray:
    """Add up synthetic buildings, each one `profile` with independent Gaussian noise at every reading.

    The relative noise has standard deviation ``noise / 3`` and is clipped to
    ``±noise``, so each building stays within 10 % of the profile by default.

    Parameters
    ----------
    profile : array_like of shape (m,)
        Power of one building; NaN stays NaN.
    buildings : int
    noise : float
        Largest relative deviation, in [0, 1].
    rng : numpy Generator or int

    Returns
    -------
    ndarray of shape (m,)
        Aggregate power of the ensemble.
    """
    base = as_numeric_array(profile, "profile", 1)
    buildings = check_count(buildings, "buildings")
    noise = check_in_range(noise, "noise", 0, 1)
    generator = check_rng(rng)
    factor = np.zeros(base.size)
    for _ in range(buildings):  # one building at a time: memory does not grow with their number
        factor += np.clip(generator.standard_normal(base.size) * (noise / 3), -noise, noise)
    if (np.abs(base) > np.finfo(float).max / (2 * buildings)).any():
        most = np.nanmax(np.abs(base))
        raise ValueError(f"profile reaches {most:g}, too large for the sum of {buildings} buildings.")
    return base * (buildings + factor)


# ------------------------------------------------------------------ selection
def _adjacent_readings(
    power: Any,
    times: ArrayLike | None,
    step: Any,
    start: str | None,
    end: str | None,
    season: tuple[str, str] | None,
    exclude: tuple[str, ...],
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the readings in time order and, for each successive pair, whether it is one step apart and selected."""
    if hasattr(power, "kw") and hasattr(power, "times"):
        power, times, step = power.kw, power.times if times is None else times, power.step if step is None else step
    values = as_numeric_array(power, "power", 1)
    if np.isinf(values).any():
        raise ValueError(f"power[{int(np.argmax(np.isinf(values)))}] is infinite; mark missing readings as NaN.")
    if times is None:
        if start or end or season or exclude:
            raise ValueError("filters by date need times; pass times=, one stamp per reading.")
        return values, np.ones(max(values.size - 1, 0), dtype=bool)
    stamps = as_times(times, "times")
    check_shape(stamps, values.shape, "times", "one stamp per reading")
    order = np.argsort(stamps, kind="stable")
    stamps, values = stamps[order], values[order]
    differences = np.diff(stamps)
    if (differences == np.timedelta64(0, "s")).any():
        repeated = stamps[1:][differences == np.timedelta64(0, "s")][0]
        raise ValueError(f"times holds {repeated} twice; read the file with read_meter, which settles repeats.")
    one = as_step(step, differences)
    chosen = select_days(stamps, start, end, season, exclude)
    return np.where(chosen, values, np.nan), differences == one


# ------------------------------------------------------------------ states
def _edges(values: FloatArray, n_states: int, binning: str) -> FloatArray:
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


def _digitize(values: FloatArray, edges: FloatArray) -> NDArray[np.int64]:
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def _count(origin: FloatArray, target: FloatArray, edges: FloatArray) -> NDArray[np.int64]:
    n = len(edges) - 1
    flat = _digitize(origin, edges) * n + _digitize(target, edges)
    return np.bincount(flat, minlength=n * n).reshape(n, n)


def _levels(values: FloatArray, edges: FloatArray, binning: str) -> FloatArray:
    centres = 0.5 * (edges[1:] + edges[:-1])
    if binning == "width":
        return centres
    state = _digitize(values, edges)
    count = np.bincount(state, minlength=len(centres))
    return np.where(count > 0, np.bincount(state, values, len(centres)) / np.maximum(count, 1), centres)


def _merge_unvisited(origin: FloatArray, target: FloatArray, edges: FloatArray) -> FloatArray:
    """Remove edges until every remaining state is left at least once."""
    while True:
        left = _count(origin, target, edges).sum(axis=1)
        unvisited = np.flatnonzero(left == 0)
        if not len(unvisited):
            return edges
        if len(edges) <= 3:
            raise ValueError("merging leaves a single state; use more data, fewer states or binning='quantile'.")
        b = unvisited[0]
        centres = 0.5 * (edges[1:] + edges[:-1])
        below = b > 0 and (b == len(left) - 1 or centres[b] - centres[b - 1] <= centres[b + 1] - centres[b])
        edges = np.delete(edges, b if below else b + 1)


def _unvisited_message(unvisited: NDArray[np.int64], edges: FloatArray, values: FloatArray) -> str:
    b = int(unvisited[0])
    message = (
        f"no transition leaves state {state_list(unvisited)} (state {b} spans {edges[b]:.6g} to {edges[b + 1]:.6g}); "
        "use fewer states, binning='quantile', or on_unvisited='merge'"
    )
    typical = float(np.quantile(values, 0.99))
    if values.max() > 10 * max(typical, 0.0) and values.max() > 0:
        message += f", and look at the reading {values.max():.6g}: it stretches the grid far beyond the others"
    return message + "."
