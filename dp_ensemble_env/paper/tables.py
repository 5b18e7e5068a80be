"""The tables of the reproduction: for the page, as CSV and as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp_ensemble_env.paper.claims import NAMES, PAPER_L1, instance_l1
from dp_ensemble_env.paper.measures import ONE, ONE_STEP
from dp_ensemble_env.paper.study import Study
from dp_ensemble_env.reporting.tables import plain, write_csv

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


# ------------------------------------------------------------------ one data set
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
        f"Dollars per building from the initial distribution, over the whole event. '{ONE}': exact loss of a plan made "
        f"on one release, a Monte Carlo mean, as is '{ONE_STEP}', the paper's true cost of one step followed by the "
        "release's own cost-to-go. 'Leading order' is Corollary 3 corrected (E3), summed over the event."
    )
    headings = ("k", *columns)
    return Table("cost", "Cost of privacy against k", text, headings, rows)


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
