r"""Without a floor, and with one: what a matrix would support, which settings reach a target on it, and their cost.

Without a floor (the paper's mechanism) no guarantee holds for all inputs. `floorless_report` says what the matrix's
*own* smallest entry would support, and `reachable_settings` which floor, adjacency and k reach a target on this very
matrix, with the exact cost of privacy

.. math:: E[\varphi_0^{\tilde\pi}] - \varphi_0^* = E\sum_t \gamma\,\mathrm{KL}(\tilde\pi_t \| \pi_t^*),

the expectation over the draw by Monte Carlo, over everything else exactly. All of it depends on the private matrix and
carries the mark `PRIVATE_MARK`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.control.dynamics import default_kernel, world
from dp_ensemble_env.privacy.accounting.compose import RowGroup, composed_epsilon, largest_k
from dp_ensemble_env.privacy.accounting.divergence import Entries
from dp_ensemble_env.privacy.adjacency import Adjacency
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletEvent, DirichletMechanism, row_groups
from dp_ensemble_env.privacy.statement import NO_FLOOR
from dp_ensemble_env.tools.validation import as_float_array, check_count, check_rng, check_stochastic

#: Set beside every number that is a function of the private matrix.
PRIVATE_MARK = "computed from the private matrix itself: do not publish"
#: The (ε, δ) that is aimed at where none is asked for.
DEFAULT_TARGET = (5.0, 1e-6)


def advice(model: Any, event: DirichletEvent, target: tuple[float, float] = DEFAULT_TARGET) -> str:
    """Say what the matrix of a draw without a floor would support, and which settings reach the target. Private."""
    h = event.h
    values = h if len(h) == 1 else np.reshape(h, np.asarray(model.default).shape[:-1])
    report = floorless_report(model.default, event.k, np.squeeze(values), target[1], event.entries)
    adjacency = adjacency_of(h, event.h_source, model)
    return f"{report.detail} {reach_statement(model, target, adjacency, entries=event.entries)}"


def adjacency_of(h: tuple[float, ...], source: str, model: Any) -> float | Adjacency:
    """Rebuild what a charge's h was given as: one number, or per row from the model's counts."""
    if source == "stated" or getattr(model, "counts", None) is None:
        return max(h)
    observations = np.asarray(model.counts).sum(axis=1)
    values = np.array(h[: len(observations)])
    return Adjacency(values, observations, values * observations / 2.0, source=source)


# ------------------------------------------------------------------ without a floor
@dataclass(frozen=True)
class FloorlessReport:
    """What the matrix's own smallest entry would support. Private: a function of the matrix.

    Attributes
    ----------
    epsilon : float
        ε at `delta` if it were public that no entry of the matrix or its
        neighbours is below ``smallest - h/2``; infinity if that is not positive.
    smallest : float
    entry : (int, int)
        Where the smallest entry of a drawn row is.
    without_neighbour : int
        Number of entries at or below h/2.
    """

    epsilon: float
    delta: float
    k: float
    h: float
    rows: int
    smallest: float
    entry: tuple[int, ...]
    without_neighbour: int
    entries: int

    def __str__(self) -> str:
        return f"{NO_FLOOR[0].upper()}{NO_FLOOR[1:]}. {self.detail}"

    @property
    def detail(self) -> str:
        """What this very matrix supports, marked as private."""
        where = f"entry {self.entry} of {self.smallest:.3g}"
        if not math.isfinite(self.epsilon):
            supports = (
                f"its smallest, {where}, is at or below h/2={self.h / 2:.3g} and supports no epsilon: the adjacent row "
                f"does not exist or lacks the entry ({self.without_neighbour} of {self.entries} entries are so)"
            )
        else:
            supports = (
                f"its smallest, {where}, would support epsilon={self.epsilon:.4g} at delta={self.delta:g} over "
                f"{self.rows} rows at k={self.k:.6g}, h={self.h:.3g}, were it public that no entry is smaller"
            )
        return f"Of this matrix, {supports} [{PRIVATE_MARK}]."


def floorless_report(
    matrix: ArrayLike, k: float, h: float | ArrayLike, delta: float, entries: Entries = "two"
) -> FloorlessReport:
    """Say which ε the smallest entry of `matrix` would support without a floor, if any.

    Parameters
    ----------
    matrix : array_like of shape (n, m), with times and contexts before n if there are any
        The true behaviour.
    k, delta : float
    h : float or array_like
        Adjacency of all rows, or of each (of each state, or of each time, context and state).
        All rows with more than one successor compose.
    entries : {"two", "any"}
    """
    values = check_stochastic(matrix, square=False)
    moves = np.broadcast_to(as_float_array(h, "h"), values.shape[:-1])
    drawn = (values > 0).sum(axis=-1, keepdims=True) > 1
    inside = np.where(drawn & (values > 0), values, np.inf)
    left = inside - moves[..., None] / 2.0  # what remains of each entry in the adjacent row
    place = tuple(int(i) for i in np.unravel_index(int(np.argmin(left)), values.shape))
    if not np.isfinite(left[place]):
        return FloorlessReport(0.0, delta, k, 0.0, 0, 1.0, place, 0, 0)
    sizes = moves[drawn[..., 0]]
    least = float(left.min())
    groups = [RowGroup(k, least, float(size)) for size in sizes] if least > 0 else []
    epsilon = composed_epsilon(delta, groups, entries) if least > 0 else math.inf
    without, inside_count = int((left <= 0).sum()), int(np.isfinite(inside).sum())
    worst = float(moves[place[:-1]])
    return FloorlessReport(epsilon, delta, k, worst, len(sizes), float(inside[place]), place, without, inside_count)


# ------------------------------------------------------------------ settings that reach a target, and their price
@dataclass(frozen=True)
class Setting:
    """A floor and a k that reach a target on a given matrix, and what they cost. Private, like the matrix."""

    epsilon: float
    delta: float
    floor: float
    k: float
    h: str
    cost: float
    standard_error: float
    buildings: int

    def __str__(self) -> str:
        k = f"k={self.k:.4g}" if math.isfinite(self.k) else "any k"
        return (
            f"floor={self.floor:.4g}, {self.h}, {k} reach epsilon={self.epsilon:g} at delta={self.delta:g} and cost "
            f"${self.cost:.2f} ± {self.standard_error:.2f} per building and event "
            f"(${self.cost * self.buildings:,.0f} for {self.buildings} buildings) [{PRIVATE_MARK}]"
        )


def privacy_cost(
    model: Any, k: float, floor: float, draws: int = 32, rng: np.random.Generator | int = 0
) -> tuple[float, float]:
    """Exact cost of deploying the optimal policy of a released matrix, dollars per building: mean and standard error.

    Each draw is evaluated exactly under the true default; only the mean over draws is sampled.
    """
    from dp_ensemble_env.control.lsmdp import evaluate_policy, solve

    draws = check_count(draws, "draws", 2)
    generator = check_rng(rng)
    mechanism = DirichletMechanism(k, floor)
    terms, around, weights = (model.utility, model.discomfort_penalty), world(model), model.start_weights
    optimum = solve(default_kernel(model), *terms, **around).cost_to_go[0]
    losses = np.empty(draws)
    for index in range(draws):
        log_matrix = mechanism.release(model.default, generator).log_matrix
        policy = solve(log_matrix, *terms, **around).policy
        cost = evaluate_policy(policy, model.default, *terms, **around)[0]
        losses[index] = ((cost - optimum) * weights).sum()
    return float(losses.mean()), float(losses.std(ddof=1) / math.sqrt(draws))


def reachable_settings(
    model: Any,
    epsilon: float,
    delta: float,
    h: float | Adjacency,
    *,
    shares: Iterable[float] = (0.1, 0.25, 0.5, 0.7, 0.85, 0.95),
    draws: int = 32,
    rng: np.random.Generator | int = 0,
    rows: str | int = "sequential",
    entries: Entries | None = None,
    progress: Callable[[Iterable[float]], Iterable[float]] = iter,
) -> list[Setting]:
    """Find floors and the largest k at each that reach (epsilon, delta) on this matrix, cheapest first.

    Parameters
    ----------
    model : EnsembleModel
    epsilon, delta : float
    h : float or Adjacency
        One adjacency for all rows (two entries), or what the counts give (any entries).
    shares : iterable of float
        Floors to try, as shares of the largest possible one (1 over the most successors of a row).
    draws : int
        Monte Carlo draws per setting for the cost.
    rows : {"sequential", "parallel"} or int
    entries : {"two", "any"}, optional
        By default "any" for an `Adjacency`, else "two".
    progress : callable
        Wraps the list of floors, to show a progress bar.

    Returns
    -------
    list of Setting
        Empty if none of the floors reaches the target.
    """
    successors = tuple(int(size) for size in (np.asarray(model.default) > 0).sum(axis=-1).ravel())
    steps = int(np.prod(np.shape(model.default)[:-2]))
    top = 1.0 / max(successors)
    settings = []
    for share in progress(list(shares)):
        floor = share * top
        event = DirichletEvent(1.0, floor, successors, steps=steps).under(h, entries)
        k = largest_k(epsilon, delta, row_groups(event, rows), event.entries)
        if k is not None:
            cost, error = privacy_cost(model, min(k, 1e12), floor, draws, rng)
            settings.append(Setting(epsilon, delta, floor, k, _describe_h(h), cost, error, int(model.buildings)))
    return sorted(settings, key=lambda setting: setting.cost)


def reach_statement(
    model: Any,
    target: tuple[float, float],
    h: float | Adjacency,
    *,
    draws: int = 32,
    rows: str | int = "sequential",
    entries: Entries | None = None,
) -> str:
    """Name the cheapest settings that reach the target on this very matrix, or say how near one can come."""
    epsilon, delta = target
    settings = reachable_settings(model, epsilon, delta, h, draws=draws, rows=rows, entries=entries)
    if settings:
        return f"To reach ({epsilon:g}, {delta:g}) on this matrix: {settings[0]}."
    successors = tuple(int(size) for size in (np.asarray(model.default) > 0).sum(axis=-1).ravel())
    floor = 0.95 / max(successors)
    steps = int(np.prod(np.shape(model.default)[:-2]))
    event = DirichletEvent(1e-9, floor, successors, steps=steps).under(h, entries)
    least = composed_epsilon(delta, row_groups(event, rows), event.entries)
    near = f"epsilon={least:.3g}" if math.isfinite(least) else "no epsilon"
    goal = f"({epsilon:g}, {delta:g})"
    text = f"No k reaches {goal} on this matrix with {_describe_h(h)}: the floor {floor:.3g} allows {near}"
    if isinstance(h, Adjacency):
        rows_at_fault = np.argsort(h.h)[::-1][:3]
        seen = ", ".join(f"row {b} ({int(h.observations[b])} seen)" for b in rows_at_fault)
        text += f"; the thinnest are {seen}: gather more data there or merge states"
    return f"{text}; shrink h or accept a larger epsilon [{PRIVATE_MARK}]."


def _describe_h(h: float | Adjacency) -> str:
    if not isinstance(h, Adjacency):
        return f"h={h:.3g}"
    owned: NDArray[np.float64] = h.transitions_per_participant
    return f"h={h.h.min():.2g} to {h.h.max():.2g} from counts ({owned.max():g} transitions per participant)"
