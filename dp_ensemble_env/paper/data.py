"""The data sets of the case study, and which row of a matrix the paper's Figures 4 to 6 are drawn for.

The synthetic campus is always there, a meter if one is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.chain import ensemble, select_days
from dp_ensemble_env.chain.event import check_event_day, event_day, event_for
from dp_ensemble_env.meter import PowerSeries
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.accounting.divergence import adjacent_row
from dp_ensemble_env.scenarios.campus import HOLIDAYS, SUMMER, campus_aggregate, campus_building, campus_event
from dp_ensemble_env.scenarios.problem import ProblemSettings

FloatArray = NDArray[np.float64]
BUILDINGS = 100
#: What claims that need no data are filed under.
THEORY = "without data"
#: Power of one building, kW, that no meter reads; far above it the optimum cannot be computed.
MOST_KW = 2e5
#: Folder of what is computed from a meter: private, like its readings.
METER = "meter-private"
#: Adjacent rows differ by h/2 in two entries.
H = 0.03
#: A row qualifies only with entries so far above h/2 that its neighbour's stay clear of zero.
MARGIN = 0.001
#: Level 18 of 20 lies this far up from the lowest level to the highest.
PAPER_PLACE = 17 / 19


@dataclass(frozen=True, eq=False)
class DataSet:
    """One power series with the control problem made from it."""

    slug: str  # name of the folder
    title: str  # name in tables
    provenance: str  # where the data come from, in a sentence or two
    model: EnsembleModel
    times: NDArray[np.datetime64]  # starts of the intervals
    aggregate_kw: FloatArray  # power of the whole ensemble
    building_kw: FloatArray  # of the one building that it was made from
    season: tuple[str, str] | None  # month-days of the readings that the chain was estimated from; None means all
    notes: tuple[str, ...] = ()  # what the reader and the model have to say


def load_data(problem: ProblemSettings | None = None) -> list[DataSet]:
    """Load the campus, and the meter if the settings name one."""
    problem = problem or ProblemSettings()
    series = None if problem.meter is None else problem.read()  # refused before the campus is made
    sets = [campus_data()]
    if problem.meter is not None and series is not None:
        file, column = Path(problem.meter), problem.column
        title = file.stem if column in (None, "sum") else str(column)
        origin = f"File {file.name}" + ("" if column is None else f", column {column}")
        if title in (THEORY, sets[0].title):
            title = f"meter {title}"  # every data set needs a name of its own
        sets.append(series_data(series, METER, title, origin, problem.date))
    return sets


def campus_data() -> DataSet:
    """Return the built-in campus with the paper's event, whatever else is asked for."""
    year = campus_building()
    provenance = (
        "Synthetic, no meter was read: one building, of which 100 noisy copies are added up. The year was scaled so "
        "that level 18 of 20 lies at the published 32.1 MW; nothing else was fitted to the paper."
    )
    kw = campus_aggregate()
    return DataSet("campus", "synthetic campus", provenance, campus_event(), year.times, kw, year.kw, SUMMER)


def series_data(series: PowerSeries, slug: str, title: str, origin: str, date: str | None = None) -> DataSet:
    """Make the ensemble and the control problem from the series of one building."""
    _check_power(series, title)
    date = event_day(series, HOLIDAYS) if date is None else date
    event = event_for(series, date=date)
    check_event_day(event, series.times, title)
    day = np.array([event.window[0]])
    season = SUMMER if select_days(day, season=SUMMER).all() else None
    aggregate = ensemble(series.kw, BUILDINGS, rng=0)
    readings: dict[str, Any] = {"times": series.times, "step": series.step, "season": season}
    model = EnsembleModel.from_series(aggregate, event, profile="aggregate", loads=BUILDINGS, **readings)
    provenance = f"{origin}; {len(series):,} intervals of {series.step.astype(int) / 60:g} minutes, "
    provenance += f"{series.missing:,} of them missing. It stands for one building, of which {BUILDINGS} noisy copies "
    provenance += f"are added up. Event on {date}, steps of {event.step_minutes} minutes."
    notes = (*series.notes, *model.notes)
    return DataSet(slug, title, provenance, model, series.times, aggregate, series.kw, season, notes)


def _check_power(series: PowerSeries, title: str) -> None:
    low, high = np.nanmin(series.kw), np.nanmax(series.kw)
    if not high - low > 1e-9 * abs(high):
        raise ValueError(f"the power of {title} never changes from {high:g} kW, so there is nothing to control.")
    if high > MOST_KW:
        raise ValueError(
            f"{title} reaches {high:,.0f} kW, more than any one building draws; check the unit and the column."
        )


# ------------------------------------------------------------------ the row of Figures 4 to 6
@dataclass(frozen=True, eq=False)
class PickedRow:
    """A row with the two entries that move."""

    state: int
    row: FloatArray
    triple: tuple[int, ...]  # the three most likely successors, in order of power
    down: int  # the entry that loses h/2, and the one that gains it
    up: int
    note: str = ""  # what differs from the paper, in a sentence; empty if nothing does

    @property
    def successors(self) -> NDArray[np.int64]:
        """States that can follow."""
        return np.flatnonzero(self.row)

    @property
    def adjacent(self) -> FloatArray:
        """The neighbouring row."""
        return adjacent_row(self.row, self.down, self.up, H)

    @property
    def least(self) -> float:
        """Least of the two moved entries, before and after the move."""
        return float(min(self.row[self.up], self.row[self.down] - H / 2))

    @property
    def rest(self) -> float:
        """Mass of the entries that do not move."""
        return float(1.0 - self.row[self.up] - self.row[self.down])

    def adjacent_model(self, model: EnsembleModel) -> EnsembleModel:
        """Return the problem with this row replaced by its neighbour."""
        default = np.array(model.default)
        default[self.state] = self.adjacent
        return model.with_default(default)

    def on_triple(self, values: ArrayLike) -> FloatArray:
        """Keep the three most likely successors of (…, n) and rescale them to sum to one.

        A Dirichlet vector treated so is again one, with the same parameters for the three entries.
        """
        part = np.asarray(values, dtype=float)[..., list(self.triple)]
        total = part.sum(axis=-1, keepdims=True)
        shares: FloatArray = np.divide(part, total, out=np.full_like(part, np.nan), where=total > 0)
        return shares  # NaN is not drawn


def pick_row(default: ArrayLike, power_kw: ArrayLike, visits: ArrayLike | None = None) -> PickedRow | None:
    """Pick the row by the rule in ``page.toml``; None if no row qualifies."""
    matrix, power = np.asarray(default, dtype=float), np.asarray(power_kw, dtype=float)
    seen = np.zeros(len(power)) if visits is None else np.asarray(visits, dtype=float)
    fit = np.flatnonzero((matrix > H / 2 + MARGIN).sum(axis=1) >= 3)
    if not fit.size:
        return None
    wanted = power.min() + PAPER_PLACE * np.ptp(power)
    distance = np.round(np.abs(power[fit] - wanted) / max(np.ptp(power), 1e-12), 9)
    state = int(fit[np.lexsort((fit, -seen[fit], distance))[0]])
    row = matrix[state].copy()
    likely = [int(a) for a in np.argsort(-row, kind="stable")[:3]]
    notes = []
    if state != 17:
        notes.append(f"Row {state + 1} of {len(power)} takes the place of row 18.")
    if state in likely and state + 1 in likely:
        down, up = state, state + 1
    else:
        down, up = likely[:2]
        missing = "the state itself" if state not in likely else "its upper neighbour"
        notes.append(
            f"Entry {down + 1} gives to entry {up + 1}, the two most likely ones, as {missing} is not among the three "
            "most likely successors."
        )
    count = int((row > 0).sum())
    if count != 3:
        notes.append(
            f"The row has {count} successors, not three: triangles show the three most likely ones, rescaled to sum to "
            "one; everything else uses the whole row."
        )
    return PickedRow(state, row, tuple(sorted(likely, key=lambda a: (power[a], a))), down, up, " ".join(notes))
