r"""From a power series to power levels and default dynamics.

The range of the power is cut into `n` states, and transitions between successive readings are counted,

.. math:: \bar P[b, a] = N[b, a] / \sum_\nu N[b, \nu]

Only readings exactly one step apart form a transition: nothing is counted across a gap, a filtered-out day or the end
of a season. A state that is never left has no row, so it is refused by name or merged with its neighbour.

With ``by=("hour", "daytype")`` there is one matrix for each hour and type of day; see `transitions`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain import transitions
from dp_ensemble_env.tools.validation import (
    as_days,
    as_numeric_array,
    as_times,
    check_choice,
    check_count,
    check_in_range,
    check_rng,
    check_shape,
    check_stochastic,
)

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class MarkovChain:
    """Default dynamics estimated from a power series."""

    default: FloatArray
    """Row-stochastic transition matrix, (n, n)."""
    edges: FloatArray
    """Bounds of the power levels, in the unit of the series, (n + 1,)."""
    power: FloatArray
    """Representative power of each level, (n,)."""
    counts: NDArray[np.int64]
    """Observed transitions, (n, n)."""

    def __post_init__(self) -> None:
        n = len(self.power)
        check_shape(np.asarray(self.edges), (n + 1,), "edges", "one more than the states")
        check_shape(np.asarray(self.counts), (n, n), "counts", "one count per transition")
        check_shape(check_stochastic(self.default), (n, n), "default", "one row per state")
        self._freeze("default", "edges", "power", "counts")

    def _freeze(self, *names: str) -> None:
        for name in names:
            array = np.array(getattr(self, name))
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{value} {name}' for name, value in self._sizes)})"

    def _repr_html_(self) -> str:
        from dp_ensemble_env.tools.console import card

        return card(type(self).__name__, self._sizes)

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
        return transitions.digitize(values, self.edges)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TimedChain(MarkovChain):
    """Default dynamics by hour of the day and type of the day; `default` and `counts` are those of all times together.

    A transition belongs to the interval it *leaves* from: that of 8:00 to 9:00 holds the moves from the mean power
    of that hour to the mean power of the next reading. Hours are wall-clock hours.
    """

    tables: FloatArray
    """Matrices by hour and day type (0: weekday, 1: weekend or holiday), (24 or 1, 2 or 1, n, n)."""
    cell_counts: NDArray[np.int64]
    by: tuple[str, ...]
    strength: float
    """How strongly cells are drawn towards `default`, in transitions; see `transitions`."""
    held_out: FloatArray
    """The strengths tried, and the mean log-likelihood of transitions left out, (strengths, 2)."""
    step: np.timedelta64
    holidays: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = (*transitions.grid_of(transitions.check_keys(self.by)), self.n_states, self.n_states)
        check_shape(check_stochastic(self.tables, "tables"), shape, "tables", "one matrix per hour and day type")
        check_shape(np.asarray(self.cell_counts), shape, "cell_counts", "one count per transition and cell")
        self._freeze("tables", "cell_counts", "held_out")

    @property
    def _sizes(self) -> list[tuple[str, str]]:
        hours, types = self.tables.shape[:2]
        return [*super()._sizes, ("matrices", f"{hours * types}"), ("pseudo-counts", f"{self.strength:.3g}")]

    def leaving(self, stamps: ArrayLike) -> FloatArray:
        """Return the matrices (T, n, n) of the transitions that leave from intervals starting at `stamps`."""
        matrices: FloatArray = self.tables[transitions.cells(as_times(stamps, "stamps"), self.by, self.holidays)]
        return matrices

    def at(self, times: ArrayLike) -> FloatArray:
        """Return the behaviour (T, n, n) at decisions taken at the instants `times`: ``default=chain.at(times[:-1])``.

        A decision comes when an interval has ended, so it leaves from the interval that starts one step before.
        """
        return self.leaving(as_times(times, "times") - self.step)


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
    edges: ArrayLike | None = None,
    by: Iterable[str] = (),
    holidays: Iterable[str] = (),
) -> MarkovChain:
    """Cut a power series into states and count the transitions between adjacent readings.

    `power`, of shape (m,) or (m, meters) and NaN where missing, may be a `PowerSeries`, which brings its own times and
    step. Several meters, a column each, are counted together and share their levels. Adjacent readings are one `step`
    apart: minutes or a timedelta64, by default the smallest difference of `times`. Without stamps all readings are
    adjacent, and filters by date are refused. `start` and `end` are dates, `season` is a first and a last month-day
    such as ``("06-15", "09-25")``, also over the new year, and `exclude` names days to leave out.

    Levels are of equal width, whose power is their centre, or with ``binning="quantile"`` of equal count, whose power
    is their mean reading. `edges` (n + 1,) are bounds of your own, such as ``range(n + 1)`` for states 0 … n - 1;
    readings beyond them belong to the outermost levels. A state that no transition leaves is refused, or with
    ``on_unvisited="merge"`` joined to the neighbour nearest in power.

    With `by`, of "hour" and "daytype", there is a matrix for each hour, type of day, or both, in a `TimedChain`; that
    needs times, and `holidays` count as weekend.

    Examples
    --------
    >>> estimate_chain([1, 2, 1, 2, 2, 1], n_states=2).default.round(3)
    array([[0.   , 1.   ],
           [0.667, 0.333]])
    """
    n_states = check_count(n_states, "n_states", 2, 100_000)
    check_choice(binning, "binning", ("width", "quantile"))
    check_choice(on_unvisited, "on_unvisited", ("error", "merge"))
    keys, free_days = transitions.check_keys(by), as_days(holidays, "holidays")
    readings = transitions.adjacent_readings(power, times, step, start, end, season, as_days(exclude, "exclude"))
    if keys and readings.stamps is None:
        raise ValueError("by= needs to know when the readings were taken; pass times=, one stamp per reading.")
    values, present = readings.values, ~np.isnan(readings.values)
    if present.sum() < 2:
        raise ValueError(
            f"{int(present.sum())} readings are left after the filters; a chain needs at least two adjacent ones."
        )
    pairs = np.flatnonzero(readings.adjacent & present[:-1] & present[1:])
    bounds = transitions.cut(values[present], n_states, binning) if edges is None else transitions.check_edges(edges)
    if not len(pairs):
        raise ValueError("no two readings are one step apart, so there is no transition to count; check step and gaps.")
    if edges is None and len(bounds) <= n_states and on_unvisited == "error":
        raise ValueError(
            f"only {len(bounds) - 1} of {n_states} quantile states differ, as many readings are equal; use fewer "
            "states, binning='width' or on_unvisited='merge'."
        )
    origin, target = values[pairs], values[pairs + 1]
    counts = transitions.count(origin, target, bounds)
    if (unvisited := np.flatnonzero(counts.sum(axis=1) == 0)).size:
        if on_unvisited == "error":
            raise ValueError(transitions.unvisited_message(unvisited, bounds, values[present]))
        bounds = transitions.merge_unvisited(origin, bounds)
        counts = transitions.count(origin, target, bounds)
    default = counts / counts.sum(axis=1, keepdims=True)
    chain = MarkovChain(default, bounds, transitions.powers(values[present], bounds, binning), counts)
    return _by_time(chain, readings, pairs, keys, free_days) if keys else chain


def _by_time(
    chain: MarkovChain,
    readings: transitions.Readings,
    pairs: NDArray[np.int64],
    by: tuple[str, ...],
    holidays: tuple[str, ...],
) -> TimedChain:
    """Tell the transitions that begin at `pairs` apart by time."""
    assert readings.stamps is not None
    stamps, (hours, types), n = readings.stamps[pairs], transitions.grid_of(by), chain.n_states
    hour, kind = transitions.cells(stamps, by, holidays)
    moves = (hour * types + kind, chain.states(readings.values[pairs]), chain.states(readings.values[pairs + 1]))
    counts = transitions.count_cells(*moves, hours * types, n).reshape(hours, types, n, n)
    likelihood = transitions.held_out(*moves, transitions.fold_of(stamps), n)
    strength = transitions.best_strength(likelihood)
    return TimedChain(
        **vars(chain),
        tables=transitions.shrink(counts, chain.default, strength),
        cell_counts=counts,
        by=by,
        strength=strength,
        held_out=np.column_stack([transitions.STRENGTHS, likelihood]),
        step=readings.step,
        holidays=holidays,
    )


def ensemble(
    profile: ArrayLike, buildings: int = 100, *, noise: float = 0.1, rng: np.random.Generator | int = 0
) -> FloatArray:
    """Add up synthetic buildings (m,): the `profile` (m,) with independent relative noise at every reading.

    The noise is normal with standard deviation ``noise / 3``, clipped to ``±noise``. NaN stays NaN.
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


def stationary(transition: FloatArray) -> FloatArray:
    """Return the long-run distribution of a chain that starts in its first state, periodic or not.

    By repeated squaring. Simulated fleets start from it, so another algorithm, equal up to rounding, could move them.

    Examples
    --------
    >>> stationary(np.array([[0.9, 0.1], [0.3, 0.7]])).round(12).tolist()
    [0.75, 0.25]
    """
    lazy = 0.5 * (transition + np.eye(len(transition)))  # the same stationary distribution, and no period
    far = np.linalg.matrix_power(lazy, 2**20)[0]
    shares: FloatArray = far / far.sum()
    return shares


def lazy_walk(levels: int, stay: float = 0.6, decay: float = 0.3, reach: int | None = None) -> FloatArray:
    """Return the walk, guessed without data, that stays with weight `stay` and moves by |d| <= reach with decay^|d|."""
    distance = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels)))
    moves = np.where(distance <= (levels if reach is None else reach), decay**distance, 0.0)
    weights = np.where(distance == 0, stay, moves)
    walk: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return walk
