r"""The privacy line: what is printed beside every result, and what would have to change.

A line names ε and δ, the adjacency, the composition and the assumptions, or says
that there is no guarantee and why. Without a floor (the paper's mechanism) none
holds for all inputs: the smallest entry of the matrix decides, and an entry below h/2
has no adjacent row at all. `floorless_report` then says what the matrix's *own* smallest
entry would support, and `reachable_settings` which floor, adjacency and k reach a
target on this very matrix, with the exact cost of privacy

.. math:: E[\varphi_0^{\tilde\pi}] - \varphi_0^* = E\sum_t \gamma\,\mathrm{KL}(\tilde\pi_t \| \pi_t^*),

the expectation over the draw by Monte Carlo, over everything else exactly. Whatever
depends on the private matrix carries the mark `PRIVATE_MARK`.

A number ε is no guarantee until one knows which definition of privacy it belongs
to, which inputs count as adjacent, whom that protects, and what is assumed. A
`Guarantee` carries all of it for one release and prints as one sentence:

>>> print(release_guarantee(k=50, h=0.03, omega=0.1, delta=1e-6, rows=20))  # doctest: +NORMALIZE_WHITESPACE
(12.16, 1e-06)-approximate differential privacy for one release of 20 rows at k=50: rows are adjacent when two of
their entries differ by at most h/2=0.015 each; protected is a change of that size in each of 20 rows; assumes a public
support and no entry of it below 0.1 before the draw; exact dominating pair, composed over rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.control.dynamics import default_kernel, world
from dp_ensemble_env.privacy.accounting.compose import (
    RowGroup,
    can_convolve,
    composed_epsilon,
    largest_k,
    renyi_epsilon,
)
from dp_ensemble_env.privacy.accounting.divergence import ENTRIES, Entries, check_delta, check_row_settings
from dp_ensemble_env.privacy.accounting.theorem2 import theorem2_epsilon
from dp_ensemble_env.privacy.adjacency import Adjacency
from dp_ensemble_env.privacy.mechanisms.base import SEEDED, Disclosure, Event
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletEvent, DirichletMechanism, row_groups
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FleetEvent
from dp_ensemble_env.tools.validation import as_float_array, check_choice, check_count, check_rng, check_stochastic

if TYPE_CHECKING:
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

DEFINITION = "approximate differential privacy"
METHODS = ("exact", "theorem2", "renyi")
#: Set beside every number that is a function of the private matrix.
PRIVATE_MARK = "computed from the private matrix itself: do not publish"
NO_FLOOR = (
    "without a floor no guarantee holds for all inputs: the smallest entry decides, and an entry below h/2 has no "
    "adjacent row at all"
)
DETERMINISTIC = "a deterministic function of the true matrix was disclosed (noise-aware, not private)"
ONLY_TRUTH = "what was computed comes from the true matrix itself, so epsilon is infinite"
TWO_UNITS = "the total protects a participant only if its data move no row of the Dirichlet draws by more than h"
#: The δ of a printed line where none is asked for: well below one over any number of participants here.
DEFAULT_DELTA = 1e-6
#: The (ε, δ) that a line without a guarantee tells how to reach.
DEFAULT_TARGET = (5.0, 1e-6)


# ------------------------------------------------------------------ the ledger's line
def ledger_statement(
    ledger: PrivacyLedger,
    delta: float | None,
    rows: str | int,
    model: Any = None,
    target: tuple[float, float] = DEFAULT_TARGET,
) -> str:
    """Return the privacy line of a ledger; with the model, also what its matrix would support without a floor."""
    if delta is None:
        delta = ledger.budget[1] if ledger.budget else DEFAULT_DELTA
    check_delta(delta)
    charges = ledger.charges
    draws = [charge for charge in charges if charge.draws]
    disclosed = any(isinstance(charge, Disclosure) for charge in charges)
    if not draws and not disclosed:
        return "Privacy: nothing was released, nothing is spent."
    if not draws:
        return f"Privacy: none; {ONLY_TRUTH}."
    epsilon = ledger.spent(delta, rows)
    settings, terms = _claims(draws, charges, rows)
    parts = [_headline(epsilon, delta, settings)]
    if disclosed:
        parts.append(DETERMINISTIC)
    bare = [charge for charge in draws if isinstance(charge, DirichletEvent) and charge.bare]
    if bare:
        parts.append(NO_FLOOR)
    parts.extend(terms)
    if ledger.budget is not None:
        left = max(0.0, ledger.budget[0] - ledger.spent(ledger.budget[1]))
        parts.append(f"budget ({ledger.budget[0]:g}, {ledger.budget[1]:g}), {left:.4g} left")
    line = "; ".join(parts) + "."
    if not bare:
        return line
    if model is None:
        return line + " (statement(model=...) tells what the matrix itself supports and which settings reach a target.)"
    h = bare[-1].h
    adjacency = adjacency_of(h, bare[-1].h_source, model)
    values = h if len(h) == 1 else np.reshape(h, np.asarray(model.default).shape[:-1])
    report = floorless_report(model.default, bare[-1].k, np.squeeze(values), delta, bare[-1].entries)
    return f"{line} {report.detail} {reach_statement(model, target, adjacency, rows=rows, entries=bare[-1].entries)}"


def adjacency_of(h: tuple[float, ...], source: str, model: Any) -> float | Adjacency:
    """Rebuild what a charge's h was given as: one number, or per row from the model's counts."""
    if source == "stated" or getattr(model, "counts", None) is None:
        return max(h)
    observations = np.asarray(model.counts).sum(axis=1)
    values = np.array(h[: len(observations)])
    return Adjacency(values, observations, values * observations / 2.0, source=source)


def _headline(epsilon: float, delta: float, settings: str) -> str:
    if not math.isfinite(epsilon):
        return f"Privacy: no guarantee (epsilon = infinity at delta={delta:g}) for {settings}"
    return f"Privacy: ({epsilon:.4g}, {delta:g})-{DEFINITION} for {settings}"


def _claims(draws: list[Event], charges: dict[Event, int], rows: str | int) -> tuple[str, list[str]]:
    """Put the draws of a ledger into words: how many with which settings, and the terms of the claim."""
    settings, terms = [], []
    for kind in dict.fromkeys(event.type for event in draws):
        mine = [event for event in draws if event.type == kind]
        number = sum(charges[event] for event in mine)
        said, more = mine[0].claims(mine, rows)
        settings.append(f"{number} release{'s' * (number != 1)}{said}")
        terms += more
    if not draws:
        return "0 releases", []
    if not can_convolve():
        terms.append("composed with the Rényi bound, as dp-accounting is not installed")
    rows_alone = any(isinstance(event, DirichletEvent) and event.h_source == "stated" for event in draws)
    if rows_alone and any(isinstance(event, FleetEvent) for event in draws):
        terms.append(TWO_UNITS)
    if any(event.seeding != "os-entropy" for event in draws):
        terms.append(SEEDED)
    return " and ".join(settings), list(dict.fromkeys(terms))


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
    found = []
    for share in progress(list(shares)):
        floor = share * top
        event = DirichletEvent(1.0, floor, successors, steps=steps).under(h, entries)
        k = largest_k(epsilon, delta, row_groups(event, rows), event.entries)
        if k is not None:
            cost, error = privacy_cost(model, min(k, 1e12), floor, draws, rng)
            found.append(Setting(epsilon, delta, floor, k, _describe_h(h), cost, error, int(model.buildings)))
    return sorted(found, key=lambda setting: setting.cost)


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
    found = reachable_settings(model, epsilon, delta, h, draws=draws, rows=rows, entries=entries)
    if found:
        return f"To reach ({epsilon:g}, {delta:g}) on this matrix: {found[0]}."
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


# ------------------------------------------------------------------ the guarantee of one release
@dataclass(frozen=True)
class Guarantee:
    """What a release guarantees, to whom, and on which assumptions.

    Attributes
    ----------
    epsilon, delta : float
        The pair; ``epsilon`` is infinity where no bound holds for all inputs.
    k, omega, h : float
        Concentration, least entry of the mechanism's input, adjacency of that input.
    rows : int
        Rows composed (one unit's data may touch all of them).
    entries : {"two", "any"}
        How many entries of a row may differ between adjacent inputs.
    method : str
        How ε was computed.
    unit : str
        The unit of protection.
    seeded : bool
        Whether the draw could be repeated by someone who knows the seed.
    """

    epsilon: float
    delta: float
    k: float
    omega: float
    h: float
    rows: int = 1
    entries: Entries = "two"
    method: str = "exact dominating pair"
    unit: str = ""
    seeded: bool = False

    @property
    def definition(self) -> str:
        """The definition of privacy: approximate DP, which post-processing preserves (E11)."""
        return DEFINITION

    @property
    def adjacency(self) -> str:
        """Which inputs count as adjacent."""
        if self.entries == "two":
            return f"rows are adjacent when two of their entries differ by at most h/2={self.h / 2:.4g} each"
        return f"rows are adjacent when their entries differ by at most h={self.h:.4g} in total (L1 distance)"

    @property
    def protected(self) -> str:
        """The unit of protection."""
        each = "one row" if self.rows == 1 else f"each of {self.rows} rows"
        return self.unit or f"a change of that size in {each}"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What has to hold for the guarantee to hold."""
        return ("a public support", f"no entry of it below {self.omega:.4g} before the draw")

    @property
    def finite(self) -> bool:
        """Whether there is a guarantee at all."""
        return math.isfinite(self.epsilon)

    def __str__(self) -> str:
        release = f"one release of {self.rows} row{'s' * (self.rows != 1)} at k={self.k:.6g}"
        warning = f" ({SEEDED})" if self.seeded else ""
        if not self.finite:
            return (
                f"No guarantee (epsilon = infinity at delta={self.delta:g}) for {release}: {_why_none(self)}{warning}."
            )
        composed = ", composed over rows" if self.rows > 1 else ""
        return (
            f"({self.epsilon:.4g}, {self.delta:g})-{self.definition} for {release}: {self.adjacency}; protected is "
            f"{self.protected}; assumes {' and '.join(self.assumptions)}; {self.method}{composed}{warning}."
        )


def _why_none(claim: Guarantee) -> str:
    if claim.omega == 0:
        return (
            "without a floor the smallest entry of the row decides, and an entry below h/2 has no adjacent row at all; "
            "set a floor"
        )
    return f"omega={claim.omega:g} is too small for h={claim.h:g} by this bound; raise the floor or shrink h"


def release_guarantee(
    k: float,
    h: float,
    omega: float,
    delta: float,
    rows: int = 1,
    *,
    entries: Entries = "two",
    method: str = "exact",
    unit: str = "",
) -> Guarantee:
    """State what one release of `rows` rows guarantees.

    Parameters
    ----------
    k, h, omega, delta : float
        Concentration, adjacency and least entry of the mechanism's input, and δ.
    rows : int, default 1
        Rows that one unit's data touch; they compose (E10).
    entries : {"two", "any"}
        Two entries, as in Definition 1, or any number (then by the Rényi bound).
    method : {"exact", "theorem2", "renyi"}
        The exact worst case composed as privacy-loss distributions; Theorem 2
        (one row, with omega_bar = omega and two protected entries); or Rényi.
    unit : str
        A sentence part that names the unit of protection.
    """
    check_row_settings(k, h, omega)
    check_delta(delta)
    rows = check_count(rows, "rows")
    check_choice(entries, "entries", ENTRIES)
    check_choice(method, "method", METHODS)
    groups = [RowGroup(k, omega, h, rows)]
    if method == "theorem2":
        if rows != 1 or entries != "two":
            raise ValueError("Theorem 2 bounds one row and two entries; use method='exact' to compose rows.")
        epsilon = theorem2_epsilon(k, h, omega, omega, 2, delta) if omega > 0 else math.inf
        name = "Theorem 2 (corrected)"
    elif method == "renyi" or entries == "any":
        epsilon = renyi_epsilon(delta, groups, entries)
        name = "Rényi bound"
    else:
        epsilon = composed_epsilon(delta, groups)
        name = "exact dominating pair"
    return Guarantee(epsilon, delta, k, omega, h, rows, entries, name, unit)
