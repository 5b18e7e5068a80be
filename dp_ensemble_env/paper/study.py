"""Everything Section VI of the paper measures, computed on one data set, and its tables.

`run_study` calls the functions of `paper.measures` in turn and collects the results in a `Study`, from which claims,
tables and figures are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.paper import measures
from dp_ensemble_env.paper.data import DataSet, PickedRow, pick_row
from dp_ensemble_env.paper.disclosure import Disclosure, disclosed_counts, recovery_error
from dp_ensemble_env.paper.measures import KS, NAMES, ONE, ONE_STEP, PAPER_L1, Effort, Learned, instance_l1
from dp_ensemble_env.reporting.score import Outcome
from dp_ensemble_env.reporting.tables import plain, write_csv

FloatArray = NDArray[np.float64]
Pair = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False, kw_only=True)
class Study:
    """Results on one data set; the last ones are about the row and empty where there is none."""

    data: DataSet
    effort: Effort
    row: PickedRow | None
    time: int  # decision shown in Figures 5 and 6
    events: dict[tuple[str, float], Outcome]  # by method and k, which is 0 for the methods that know no k
    peak: int  # time of the peak within the event: of the customer baseline, if there is one, else uncontrolled
    shed_limit: float  # ad-hoc shed, in multiples of ours, beyond which it takes more than some MDP policy at k = 50
    released: dict[float, tuple[FloatArray, float, float, float]]  # plans on one release, as `released_outcomes` says
    capacity: dict[str, list[float]]  # kWh curtailed in the event, for each of `effort.ks`
    cost: dict[str, list[float]]  # dollars per building, for each of `effort.ks`
    cost_error: dict[str, list[float]]  # standard errors of the costs that are Monte Carlo means
    ceiling: float  # the most that the attack on the average can show
    recovery: dict[str, float]  # by method, largest error of the matrix as read back from the policy at k = 50
    disclosed: Disclosure | None  # what the counts' own matrix, tilted at the time shown, gives away
    misprints: list[dict[str, Any]]  # one line per k
    learned: list[Learned]  # best first
    deviation: float  # largest relative deviation of a synthetic building from the original
    clouds: dict[float, Pair] = field(default_factory=dict)  # by k, releases of the row and of its neighbour
    accuracy: dict[float, float] = field(default_factory=dict)  # by k, of the best test that tells the two apart
    kernel_error: dict[str, float] = field(default_factory=dict)  # by method, of log K as E[log x], in nats, at k = 50
    adjacent: dict[tuple[str, float], Pair] = field(default_factory=dict)  # policies of the row and of its neighbour
    policy_clouds: dict[float, Pair] = field(default_factory=dict)  # by k, policies solved on releases of all rows
    l1: dict[tuple[str, float], float] = field(default_factory=dict)  # distances of the pairs of `adjacent`
    epsilon: dict[str, list[float]] = field(default_factory=dict)  # for each of `effort.ks`
    attack: dict[float, float] = field(default_factory=dict)  # by k, lower bound on the ε of the averaged policy

    @property
    def uncontrolled(self) -> FloatArray:
        """Power of the ensemble that is left alone, kW."""
        return self.events["uncontrolled", 0.0].power_kw

    @property
    def shed_share(self) -> float:
        """Share of the event's energy that the ad-hoc practice sheds."""
        model = self.data.model
        window = np.arange(model.horizon + 1) > 0 if model.event is None else model.event.in_event
        return self.events["ad-hoc", 0.0].curtailed_kwh / (float(self.uncontrolled[window].sum()) * model.step_hours)

    @property
    def peak_clock(self) -> str:
        """Time of day at which the interval of the peak ends."""
        return str(self.data.model.times[self.peak])[11:16]

    @property
    def peak_of(self) -> str:
        """Whose peak it is."""
        event = self.data.model.event
        return "uncontrolled load" if event is None or event.baseline_kw is None else "customer baseline"

    @property
    def the_row(self) -> PickedRow:
        """The row, where it is known that there is one."""
        assert self.row is not None
        return self.row

    def at_peak(self, power_kw: FloatArray) -> float:
        """Return the power below the uncontrolled ensemble at the peak, kW."""
        return float(self.uncontrolled[self.peak] - power_kw[self.peak])

    def at(self, values: Sequence[float], k: float) -> float:
        """Return the value that belongs to k."""
        return values[self.effort.ks.index(k)]

    def epsilon_at(self, name: str) -> dict[float, float]:
        """Return the privacy loss called `name` at the paper's two k."""
        return {k: self.at(self.epsilon[name], k) for k in KS}


#: How often `run_study` says what begins.
STAGES = 8


def run_study(data: DataSet, effort: Effort, seed: int, say: Callable[[str], None]) -> Study:
    """Compute everything; `say` is told what begins, `STAGES` times."""
    model = data.model
    row = pick_row(model.default, model.power_kw, None if model.counts is None else model.counts.sum(axis=1))
    time = measures.shown_time(model)
    results: dict[str, Any] = {}
    say("releases of the row")
    if row is not None:
        results["clouds"] = {k: measures.release_clouds(row, k, effort.points, seed) for k in KS}
        results["accuracy"] = {k: measures.best_accuracy(row, k) for k in KS}
        results["kernel_error"] = measures.kernel_errors(row, 50.0)
    say("policies of adjacent rows")
    if row is not None:
        pairs = results["adjacent"] = measures.adjacent_policies(model, row, time)
        results["l1"] = {key: float(np.abs(first - second).sum()) for key, (first, second) in pairs.items()}
        results["policy_clouds"] = {k: measures.policy_clouds(model, row, k, time, effort.points, seed) for k in KS}
    say("privacy loss")
    if row is not None:
        results["epsilon"] = measures.epsilons(row, effort.ks)
        log_z = solve_standard(model).log_desirability[time + 1]
        results["attack"] = {k: measures.attack_average(row, log_z, k, effort.attacks, seed) for k in KS}
    say("the event")
    events = measures.event_outcomes(model, seed)
    peak = measures.peak_time(model, events["uncontrolled", 0.0].power_kw)
    released = {k: measures.released_outcomes(model, peak, k, effort.releases, seed) for k in KS}
    least = min(outcome.curtailed_kwh for (_, k), outcome in events.items() if k == 50.0)
    shed_limit = measures.largest_shed(model, least)
    say("capacity over k")
    aware = measures.aware_outcomes(model, effort.ks)
    say("cost of privacy")
    cost, cost_error = measures.costs(model, effort, seed)
    say("misprints against Monte Carlo")
    state = row.state if row is not None else int(np.argmax((model.default > 0).sum(axis=1)))
    misprints = [measures.misprint_line(model, time, state, k, effort.draws, seed) for k in effort.ks]
    say("learners")
    return Study(
        data=data,
        effort=effort,
        row=row,
        time=time,
        events=events,
        peak=peak,
        shed_limit=shed_limit,
        released=released,
        capacity={name: [outcome.curtailed_kwh for outcome in mine] for name, mine in aware.items()},
        cost=cost,
        cost_error=cost_error,
        ceiling=measures.attack_ceiling(effort.attacks),
        recovery={method: recovery_error(model, method, 50.0) for method in ("taylor", "digamma")},
        disclosed=disclosed_counts(model, time),
        misprints=misprints,
        learned=measures.learners(model, effort, seed),
        deviation=measures.building_deviation(data.building_kw, seed),
        **results,
    )


# ------------------------------------------------------------------ tables
#: Concentrations of the longer tables.
SOME_KS = (10.0, 50.0, 200.0, 1000.0)


@dataclass(frozen=True)
class Table:
    """A table with a sentence on what it shows; cells are words or numbers."""

    name: str
    title: str
    text: str
    headings: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def shown(self) -> list[tuple[str, ...]]:
        """Format the cells for people."""
        return [tuple(map(_written, row)) for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per row, ready for JSON."""
        return [{h: plain(cell) for h, cell in zip(self.headings, row, strict=True)} for row in self.rows]

    def write(self, folder: Path) -> Path:
        """Write the table as CSV at full precision."""
        return write_csv(folder / f"{self.name}.csv", self.headings, self.rows)


def _written(cell: Any) -> str:
    if isinstance(cell, float):
        return "–" if not math.isfinite(cell) else f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return "–" if cell is None else str(cell)


def study_tables(study: Study) -> list[Table]:
    """Make every table of one data set."""
    tables = [] if study.row is None else [_row_table(study), _l1_table(study)]
    tables += [_event_table(study), _cost_table(study)]
    if study.row is not None:
        ks = study.effort.ks
        text = "Privacy loss ε at δ = 0.05, h = 0.03; Taylor and Digamma policies of the true matrix have no finite ε."
        rows = [(k, *(values[i] for values in study.epsilon.values())) for i, k in enumerate(ks)]
        tables.append(Table("epsilon", "Privacy loss against k", text, ("k", *study.epsilon), rows))
    return [*tables, _policy_table(study), _misprint_cost_table(study)]


def _row_table(study: Study) -> Table:
    row, counts = study.the_row, study.data.model.counts
    rows = [
        (int(a) + 1, float(row.row[a]), float(row.adjacent[a]), None if counts is None else int(counts[row.state, a]))
        for a in row.successors
    ]
    headings = ("to level", "the row", "its neighbour", "transitions seen")
    return Table("row", f"Row {row.state + 1} and its neighbour", "Probability of the next level.", headings, rows)


def _l1_table(study: Study) -> Table:
    instance = instance_l1()
    rows = [(NAMES[m], k, paper, instance[m, k], study.l1[m, k]) for (m, k), paper in PAPER_L1.items()]
    headings = ("method", "k", "published", "three-state row", study.data.title)
    text = "L1 distance between the policies of two adjacent rows; the three-state row was fitted to give all six."
    return Table("l1_distances", "L1 distances of policies", text, headings, rows)


def _event_table(study: Study) -> Table:
    free = study.uncontrolled
    rows: list[tuple[Any, ...]] = [
        (name, k or None, o.score, o.gap, study.at_peak(o.power_kw), float((free - o.power_kw).max()), o.curtailed_kwh)
        for (name, k), o in study.events.items()
    ]
    for k, (power, peak, _, energy) in study.released.items():
        name = f"plan on one release, mean of {study.effort.releases}"
        rows.append((name, k, None, None, peak, float((free - power).max()), energy))
    for name, _, o in study.learned:
        most, peak = float((free - o.power_kw).max()), study.at_peak(o.power_kw)
        rows.append((f"learned: {name}", None, o.score, o.gap, peak, most, o.curtailed_kwh))
    headings = ("controller", "k", "score", "gap, $/load", "at the peak, kW", "at most, kW", "in the event, kWh")
    errors = " and ".join(f"{error:,.0f} kW (k = {k:g})" for k, (_, _, error, _) in study.released.items())
    text = (
        f"Curtailment against the uncontrolled ensemble: at {study.peak_clock}, the {study.peak_of}'s peak within the "
        f"event, at most, and as energy. Standard error at the peak of plans on one release: {errors}."
    )
    return Table("event", "The event", text, headings, rows)


def _cost_table(study: Study) -> Table:
    columns = {}
    for name, values in study.cost.items():
        columns[name] = values
        if name in study.cost_error:
            columns[f"{name}, standard error"] = study.cost_error[name]
    rows = [(k, *(values[i] for values in columns.values())) for i, k in enumerate(study.effort.ks)]
    text = (
        f"Dollars per building from the initial distribution, over the whole event. '{ONE}': exact loss of a plan "
        f"from one release, a Monte Carlo mean, as is '{ONE_STEP}', the paper's true cost of one step followed by the "
        "release's own cost-to-go. 'Leading order' is Corollary 3 corrected (E3), summed over the event."
    )
    return Table("cost", "Cost of privacy against k", text, ("k", *columns), rows)


def _policy_table(study: Study) -> Table:
    default, rows = study.data.model.default, []
    for line in study.misprints:
        if line["k"] in SOME_KS:
            successors = [int(a) + 1 for a in default[line["state"]].nonzero()[0]]
            names = ("printed", "corrected", "exact", "Monte Carlo")
            columns = [successors, *(line[f"{n} policy"] for n in names), line["Monte Carlo policy error"]]
            rows += [(line["k"], *cells) for cells in zip(*columns, strict=True)]
    headings = ("k", "to level", "as printed", "corrected", "exact integral", "Monte Carlo", "standard error")
    sums = ", ".join(
        f"{line['printed sum']:.2f} (k = {line['k']:g})" for line in study.misprints if line["k"] in SOME_KS
    )
    text = (
        f"Expected policy of state {study.misprints[0]['state'] + 1} at the time of Figures 5 and 6. The printed "
        f"probabilities sum to {sums}."
    )
    return Table("misprint_e2", "E2: Proposition 3", text, headings, rows)


def _misprint_cost_table(study: Study) -> Table:
    names = ("k", "printed cost", "corrected cost", "Monte Carlo cost", "Monte Carlo cost error")
    rows = [tuple(line[name] for name in names) for line in study.misprints]
    headings = ("k", "as printed, $", "corrected, leading order, $", "Monte Carlo, $", "standard error, $")
    text = (
        "Expected cost of one visit of the same state. The printed formula subtracts z where log z belongs, so that "
        "the logarithm of the normaliser remains; the corrected one is the leading order in 1/k."
    )
    return Table("misprint_e3", "E3: Corollary 3", text, headings, rows)
