r"""From a power series to power levels and default dynamics.

The range of the power is cut into `n` states, and transitions between successive readings are counted,

.. math:: \bar P[b, a] = N[b, a] / \sum_\nu N[b, \nu]

Only readings exactly one step apart form a transition: nothing is counted across a gap, a filtered-out day or the end
of a season. A state that is never left has no row, so it is refused by name or merged with its neighbour.

**By time.** A cell `c` is an hour of the day and a type of day. Its matrix is

.. math:: P_c[b, a] = \frac{N_c[b, a] + \kappa\,\bar P[b, a]}{\sum_\nu N_c[b, \nu] + \kappa}

with the counts :math:`N_c` of the cell, the pooled chain :math:`\bar P` of all cells and one strength
:math:`\kappa`, in transitions. A state that was left :math:`\kappa` times in a cell lies half way between its counts
and the pooled chain; infinite strength is the pooled chain.

The strength is the one under which days that were left out are most likely: every sixth day, in six ways. A transition
that none of the other days shows does not count. The strengths tried are eight a decade from 0.01 to 100,000, and
infinity; of equally good ones the largest wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain.calendar import as_step, day_type, hour_of_day, select_days
from dp_ensemble_env.tools.validation import (
    as_days,
    as_float_array,
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

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Hours and types of a day, by which transitions are told apart.
HOURS, DAY_TYPES = 24, 2
FOLDS = 6
STRENGTHS = np.append(10.0 ** np.linspace(-2.0, 5.0, 57), np.inf)
#: Numbers in the tables of one chain, at most (400 MB).
MOST_ENTRIES = 50_000_000


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
        moves, seen = int((self.default > 0).sum()), int(self.counts.sum())
        return f"{type(self).__name__}({self.n_states:,} levels, {moves:,} possible moves, {seen:,} transitions seen)"

    @property
    def n_states(self) -> int:
        """Number of power levels."""
        return len(self.power)

    def states(self, power: ArrayLike) -> NDArray[np.int64]:
        """Return the state of each reading; readings beyond the edges belong to the lowest or highest state."""
        values = as_numeric_array(power, "power")
        if np.isnan(values).any():
            raise ValueError("power holds NaN, which belongs to no state; drop the missing readings first.")
        return digitize(values, self.edges)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TimedChain(MarkovChain):
    """Default dynamics by hour and type of the day; `default` and `counts` cover all times together.

    A transition belongs to the interval it *leaves*: the interval from 8:00 to 9:00 holds the moves from the mean power
    of that hour to the mean power of the next reading. Hours are wall-clock hours.
    """

    tables: FloatArray
    """Matrices by hour and day type (0: weekday, 1: weekend or holiday), (24, 2, n, n)."""
    cell_counts: IntArray
    strength: float
    """Strength of the shrinkage towards `default`, in transitions."""
    step: np.timedelta64
    holidays: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = (HOURS, DAY_TYPES, self.n_states, self.n_states)
        check_shape(check_stochastic(self.tables, "tables"), shape, "tables", "one matrix per hour and day type")
        check_shape(np.asarray(self.cell_counts), shape, "cell_counts", "one count per transition and cell")
        self._freeze("tables", "cell_counts")

    def at(self, times: ArrayLike) -> FloatArray:
        """Return the behaviour (T, n, n) at decisions taken at the instants `times`: ``default=chain.at(times[:-1])``.

        A decision comes when an interval has ended, so it leaves from the interval that starts one step before.
        """
        starts = as_times(times, "times") - self.step
        matrices: FloatArray = self.tables[hour_of_day(starts), day_type(starts, self.holidays)]
        return matrices


def estimate_chain(
    power: Any,
    n_states: int = 20,
    *,
    times: ArrayLike | None = None,
    step: Any = None,
    on_unvisited: str = "error",
    season: tuple[str, str] | None = None,
    exclude: Iterable[str] = (),
    edges: ArrayLike | None = None,
    by_time: bool = False,
    holidays: Iterable[str] = (),
) -> MarkovChain:
    """Cut a power series into states and count the transitions between adjacent readings.

    `power`, of shape (m,) or (m, meters) and NaN where missing, may be a `PowerSeries`, which brings its own times and
    step. Several meters, a column each, are counted together and share their levels. Adjacent readings are one `step`
    apart: minutes or a timedelta64, by default the smallest difference of `times`. Without stamps all readings are
    adjacent, and filters by date are refused. `season` is a first and a last month-day such as ``("06-15", "09-25")``,
    also over the new year, and `exclude` names days to leave out.

    Levels are of equal width, and their power is their centre. `edges` (n + 1,) are your own bounds, such as
    ``range(n + 1)`` for states 0 … n - 1; readings beyond them belong to the lowest or highest level. A state that no
    transition leaves is refused, or with ``on_unvisited="merge"`` joined to the neighbour nearest in power.

    With `by_time` there is a matrix for each hour and type of day, in a `TimedChain`; that needs times, and `holidays`
    count as weekend.

    Examples
    --------
    >>> estimate_chain([1, 2, 1, 2, 2, 1], n_states=2).default.round(3)
    array([[0.   , 1.   ],
           [0.667, 0.333]])
    """
    n_states = check_count(n_states, "n_states", 2, 100_000)
    check_choice(on_unvisited, "on_unvisited", ("error", "merge"))
    free_days = as_days(holidays, "holidays")
    readings = adjacent_readings(power, times, step, season, as_days(exclude, "exclude"))
    if by_time and readings.stamps is None:
        raise ValueError("by_time needs to know when the readings were taken; pass times=, one stamp per reading.")
    values, present = readings.values, ~np.isnan(readings.values)
    if present.sum() < 2:
        raise ValueError(
            f"{int(present.sum())} readings are left after the filters; a chain needs at least two adjacent ones."
        )
    pairs = np.flatnonzero(readings.adjacent & present[:-1] & present[1:])
    if edges is None:
        bounds = cut(values[present], n_states)
    else:
        bounds = as_float_array(edges, "edges", 1)
        if len(bounds) < 3 or (np.diff(bounds) <= 0).any():
            raise ValueError(f"edges must be at least three increasing numbers, got {bounds.tolist()[:8]}.")
    if not len(pairs):
        raise ValueError("no two readings are one step apart, so there is no transition to count; check step and gaps.")
    origin, target = values[pairs], values[pairs + 1]
    counts = count(origin, target, bounds)
    if (unvisited := np.flatnonzero(counts.sum(axis=1) == 0)).size:
        if on_unvisited == "error":
            raise ValueError(unvisited_message(unvisited, bounds, values[present]))
        bounds = merge_unvisited(origin, bounds)
        counts = count(origin, target, bounds)
    default = counts / counts.sum(axis=1, keepdims=True)
    chain = MarkovChain(default, bounds, 0.5 * (bounds[1:] + bounds[:-1]), counts)
    return _by_time(chain, readings, pairs, free_days) if by_time else chain


def _by_time(chain: MarkovChain, readings: Readings, pairs: IntArray, holidays: tuple[str, ...]) -> TimedChain:
    assert readings.stamps is not None
    stamps, n = readings.stamps[pairs], chain.n_states
    cell = hour_of_day(stamps) * DAY_TYPES + day_type(stamps, holidays)
    moves = (cell, chain.states(readings.values[pairs]), chain.states(readings.values[pairs + 1]))
    counts = count_cells(*moves, n)
    likelihood = held_out(*moves, fold_of(stamps), n)
    strength = float(STRENGTHS[np.flatnonzero(likelihood == likelihood.max())[-1]])
    return TimedChain(
        **vars(chain),
        tables=shrink(counts, chain.default, strength),
        cell_counts=counts,
        strength=strength,
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


# ------------------------------------------------------------------ readings and levels
class Readings(NamedTuple):
    """Readings in time order, one meter after the other, NaN where they are missing or not selected.

    `adjacent` tells of each successive pair whether it is one step apart.
    """

    values: FloatArray
    adjacent: NDArray[np.bool_]
    stamps: NDArray[np.datetime64] | None
    step: np.timedelta64


def adjacent_readings(
    power: Any, times: ArrayLike | None, step: Any, season: tuple[str, str] | None, exclude: tuple[str, ...]
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
        if season or exclude:
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
        values = np.where(select_days(stamps, season, exclude)[:, None], values, np.nan)
        stamps = np.tile(stamps, meters)
    # One meter's last reading and the next one's first are not adjacent.
    return Readings(values.T.ravel(), np.tile(np.append(follows, False)[:length], meters)[:-1], stamps, one)


def cut(values: FloatArray, n_states: int) -> FloatArray:
    """Return the bounds of `n_states` levels of equal width."""
    low, high = float(values.min()), float(values.max())
    # Below some ulps of the larger bound the grid's edges would coincide.
    if high - low <= 4 * n_states * np.spacing(max(abs(low), abs(high))):
        raise ValueError(
            f"the power never changes (it is {low:g} throughout), so it has one state and nothing to control; "
            "choose another meter, period or column."
        )
    return np.linspace(low, high, n_states + 1)


def digitize(values: FloatArray, edges: FloatArray) -> NDArray[np.int64]:
    """Return the level of each reading; those beyond the edges belong to the outermost."""
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)


def count(origin: FloatArray, target: FloatArray, edges: FloatArray) -> NDArray[np.int64]:
    """Count the transitions from the level of each origin to that of its target."""
    n = len(edges) - 1
    return np.bincount(digitize(origin, edges) * n + digitize(target, edges), minlength=n * n).reshape(n, n)


def merge_unvisited(origin: FloatArray, edges: FloatArray) -> FloatArray:
    """Remove edges until every remaining state is left at least once."""
    while True:
        left = np.bincount(digitize(origin, edges), minlength=len(edges) - 1)
        unvisited = np.flatnonzero(left == 0)
        if not len(unvisited):
            return edges
        if len(edges) <= 3:
            raise ValueError("merging leaves a single state; use more data or fewer states.")
        b = unvisited[0]
        centres = 0.5 * (edges[1:] + edges[:-1])
        below = b > 0 and (b == len(left) - 1 or centres[b] - centres[b - 1] <= centres[b + 1] - centres[b])
        edges = np.delete(edges, b if below else b + 1)


def unvisited_message(unvisited: NDArray[np.int64], edges: FloatArray, values: FloatArray) -> str:
    """Say which states nothing leaves, and what to do about it."""
    b = int(unvisited[0])
    message = (
        f"no transition leaves state {state_list(unvisited)} (state {b} spans {edges[b]:.6g} to {edges[b + 1]:.6g}); "
        "use fewer states, or on_unvisited='merge'"
    )
    if values.max() > 10 * max(float(np.quantile(values, 0.99)), 0.0):
        message += f", and look at the reading {values.max():.6g}: it stretches the grid far beyond the others"
    return message + "."


# ------------------------------------------------------------------ by time
def count_cells(cell: IntArray, origin: IntArray, target: IntArray, n: int) -> IntArray:
    """Count transitions into (24, 2, n, n); cells are numbered hour by hour."""
    cells = HOURS * DAY_TYPES
    if cells * n * n > MOST_ENTRIES:
        raise ValueError(
            f"{cells} matrices of {n:,} levels are too large; by_time takes at most "
            f"{int((MOST_ENTRIES / cells) ** 0.5):,} levels."
        )
    return np.bincount((cell * n + origin) * n + target, minlength=cells * n * n).reshape(HOURS, DAY_TYPES, n, n)


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
            "all transitions leave on one day, and by_time needs at least two: how thin cells are treated is chosen on "
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
