"""How a comparison is shown: rows, tables, files and the page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents.evaluation import SeedSummary
from dp_ensemble_env.experiments.suite_report import add_section
from dp_ensemble_env.experiments.suite_report import load as load_suite
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.page import OWNER_WORDS
from dp_ensemble_env.reporting.provenance import versions
from dp_ensemble_env.reporting.score import Outcome
from dp_ensemble_env.reporting.tables import plain, show_table, show_text, write_csv
from dp_ensemble_env.tools.files import atomic_write


@dataclass
class Row:
    """One line of the table."""

    name: str
    env: str
    evaluation: Outcome
    summary: SeedSummary | None = None
    steps: int | None = None
    seconds: float | None = None
    level: float | None = None
    scores: list[float] = field(default_factory=list)
    curves: list[list[tuple[int, float]]] = field(default_factory=list)


@dataclass
class PrivateRow:
    """A controller made on a release and scored on the true dynamics.

    `k` is the concentration of the paper's mechanism, infinite for the truth; another mechanism has its spec instead.
    `epsilon` is what one release spends at δ = 1e-6, and `without_data` the score of a plan on a public guess, ε = 0.
    `power_kw` is the mean power of the ensemble over the releases, (T + 1,).
    """

    name: str
    k: float
    scores: list[float]
    gaps: list[float]
    spec: str = ""
    epsilon: float = math.inf
    without_data: float = math.nan
    power_kw: NDArray[np.float64] | None = None

    @property
    def source(self) -> str:
        """What it was made on, in words."""
        return self.spec or _k(self.k)


# ------------------------------------------------------------------ tables
HEADINGS = (
    "controller",
    "environment",
    "score",
    "gap, $/building",
    "peak, kW",
    "event, kWh",
    "delivered, kWh",
    "discomfort, $",
    "energy, $",
    "privacy",
)


def cells(row: Row) -> tuple[str, ...]:
    """Format one row for people."""
    e = row.evaluation
    score = f"{no_minus_zero(e.score):.1f}" + ("" if e.exact else f" ± {e.score_error:.1f}")
    if row.summary is not None and row.summary.seeds > 1:
        score = f"{row.summary.iqm:.1f} [{row.summary.low:.1f}, {row.summary.high:.1f}]"
    return (
        row.name,
        row.env,
        score,
        f"{no_minus_zero(e.gap):.2f}",
        f"{no_minus_zero(e.curtailed_peak_kw):,.0f}",
        f"{no_minus_zero(e.curtailed_kwh):,.0f}",
        "–" if math.isnan(e.delivered_kwh) else f"{e.delivered_kwh:,.0f}",
        f"{no_minus_zero(e.discomfort):.2f}",
        "–" if math.isnan(e.energy_cost) else f"{e.energy_cost:.2f}",
        e.privacy,
    )


LEVEL_HEADINGS = ("learner", "environment", "steps", "seeds", "scores", "level", "reached", "minutes")


def level_cells(row: Row) -> tuple[str, ...]:
    """Format what a learner reached, all seeds shown."""
    least = min(row.scores)
    reached = "–" if row.level is None else "yes" if least >= row.level else f"no (least {least:.1f})"
    return (
        row.name,
        row.env,
        f"{row.steps or 0:,}",
        str(len(row.scores)),
        ", ".join(f"{s:.1f}" for s in row.scores),
        "–" if row.level is None else f"{row.level:g}",
        reached,
        f"{(row.seconds or 0) / 60:.1f}",
    )


PRIVATE_TITLE = "Made on a release, deployed on the true behaviour"
PRIVATE_HEADINGS = ("made on a release", "k", "ε", "deployed", "without data", "gap, $/building", "releases")


PRIVATE_WORDS = (
    "Each controller saw a release of the matrix only and is scored on the true behaviour. Planned policies are "
    "deployed as transition matrices, or as tilts where it says so; learned prices and tilts as they are. ε is what "
    "one release spends at δ = 1e-6 under the adjacency h = 0.03, which is not a participant; ∞ means that nothing is "
    "guaranteed. 'without data' is what a plan on a public guess scores there, for ε = 0: a release has to beat it."
)


def private_cells(row: PrivateRow) -> tuple[str, ...]:
    """Format one private row: mean over releases and, with several, its standard error."""
    epsilon = "∞" if math.isinf(row.epsilon) else f"{row.epsilon:.3g}"
    guess = "–" if math.isnan(row.without_data) else f"{row.without_data:.1f}"
    return (row.name, row.source, epsilon, _mean(row.scores, 1), guess, _mean(row.gaps, 2), str(len(row.scores)))


def _mean(values: list[float], digits: int) -> str:
    text = f"{no_minus_zero(float(np.mean(values))):.{digits}f}"
    if len(values) > 1:
        text += f" ± {np.std(values, ddof=1) / math.sqrt(len(values)):.{digits}f}"
    return text


def _k(k: float) -> str:
    return "∞ (none)" if math.isinf(k) else f"{k:g}"


def no_minus_zero(value: float) -> float:
    """Return zero for what a table would show as zero, perhaps with a minus."""
    return 0.0 if abs(value) < 5e-3 else value


def controllers(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines; the environment only where there are several."""
    headings, lines = list(HEADINGS), [list(cells(row)) for row in rows]
    if len({row.env for row in rows}) == 1:
        for line in (headings, *lines):
            line.pop(1)
    return headings, lines


def show_all(rows: list[Row], private: list[PrivateRow], notes: Sequence[str] = ()) -> None:
    """Print every table to the terminal, and the notes below the last."""
    headings, lines = controllers(rows)
    title = "Controllers on the event (score: 0 = uncontrolled, 100 = optimum)"
    if "environment" not in headings:  # say it once
        title = title.replace("event", f"event, {rows[0].env}")
    show_table(title, headings, lines, keep=1 + ("environment" in headings))
    learned = [level_cells(row) for row in rows if row.summary is not None]
    if learned:
        show_table("Learners", LEVEL_HEADINGS, learned, left=("learner", "environment", "scores"))
    if private:
        lines = []
        for i, row in enumerate(private):
            lines += [[]] if i and row.source != private[i - 1].source else []  # a rule between mechanisms
            lines.append(list(private_cells(row)))
        show_table(PRIVATE_TITLE, PRIVATE_HEADINGS, lines, left=PRIVATE_HEADINGS[:1])
        notes = [PRIVATE_WORDS, *notes]
    if notes:
        show_text("\n".join([*notes, ""]))


# ------------------------------------------------------------------ writing


def write_all(
    folder: Path,
    settings: Mapping[str, Any],
    model: EnsembleModel,
    rows: list[Row],
    private: list[PrivateRow],
    costs: dict[str, list[float]],
    command: str,
    notes: Sequence[str] = (),
    suffix: str = "",
    suite: Path | None = None,
) -> Path:
    """Write CSV, JSON, pictures and the page; return the page's path.

    All of it is computed with the true behaviour. Where that comes from a meter, `suffix` is `OWNER_ONLY`: it is in the
    name of every file, and the page begins with it. `suite` is a folder with results of the whole suite to show, too.
    """
    contents = [row.evaluation.to_dict() for row in rows]
    fields = [name for name in contents[0] if name != "power_kw"]
    lines = [
        [row.name, row.env, row.steps, len(row.scores) or "", *(content[name] for name in fields)]
        for row, content in zip(rows, contents, strict=True)
    ]
    write_csv(folder / f"table{suffix}.csv", ["controller", "environment", "steps", "seeds", *fields], lines)
    record = {
        "command": command,
        "versions": versions(),
        "settings": {k: str(v) if isinstance(v, Path) else v for k, v in settings.items()},
        "controllers": [
            {
                "name": row.name,
                "environment": row.env,
                "steps": row.steps,
                "seconds": row.seconds,
                "level": row.level,
                "scores": row.scores,
                **content,
            }
            for row, content in zip(rows, contents, strict=True)
        ],
        "private": [
            {
                "name": r.name,
                "k": r.source,
                "epsilon": plain(r.epsilon),
                "scores": r.scores,
                "without_data": plain(r.without_data),
                "gaps": r.gaps,
            }
            for r in private
        ],
        "cost_of_privacy": costs,
    }
    with atomic_write(folder / f"comparison{suffix}.json") as stream:
        json.dump(record, stream, indent=1)
    return _write_page(folder, model, rows, private, costs, command, notes, suffix, suite)


def _write_page(
    folder: Path,
    model: EnsembleModel,
    rows: list[Row],
    private: list[PrivateRow],
    costs: dict[str, list[float]],
    command: str,
    notes: Sequence[str],
    suffix: str,
    suite: Path | None,
) -> Path:
    from dp_ensemble_env.experiments import comparison_figures as figures
    from dp_ensemble_env.experiments.comparison_takeaways import takeaways
    from dp_ensemble_env.reporting.page import Cell, Page

    explorer = figures.deployed_explorer(model, rows, private)
    charts: dict[str, Any] = {
        "scores.png": figures.scores_chart(rows),
        "event.png": figures.event_chart(model, rows),
        "learning.png": figures.learning_chart(rows),
        "deployed.png": None if explorer is None else explorer.frontier,
        "deployed-event.png": None if explorer is None else explorer.load_at_start(),
        "cost.png": figures.cost_chart(private, costs),
    }
    made = {name: chart for name, chart in charts.items() if chart is not None}
    drawn = figures.draw(made, folder, suffix)
    page = Page("Controllers of a private load ensemble")
    if suffix:
        page.warning(OWNER_WORDS)
    page.takeaways(takeaways(model, rows, private), made["event.png"], drawn["event.png"])
    page.text(
        f"Event of {str(model.times[0])[:10]}: {model.buildings} buildings, {model.n_states} power levels, "
        f"{model.horizon} decisions. Score: 0 is the uncontrolled ensemble, 100 the exact optimum of it."
    )
    page.heading("Controllers")
    headings, lines = controllers(rows)
    page.table(headings, [[*line[:-1], Cell("", line[-1])] for line in lines])
    page.text("Square brackets: interquartile mean and 95 % bootstrap interval over seeds. ±: one standard error.")
    for note in notes:
        page.text(note)

    def chart(name: str) -> None:
        if name in made:
            page.chart(made[name], drawn[name], figures.CAPTIONS[name])

    with page.side_by_side():
        chart("scores.png")
        chart("learning.png")
    learned = [row for row in rows if row.summary is not None]
    if learned:
        page.heading("Learners")
        page.table(LEVEL_HEADINGS, [level_cells(row) for row in learned])
    if private:
        page.heading(PRIVATE_TITLE, short="Private releases")
        page.text(PRIVATE_WORDS)
        if explorer is not None:
            names = ("deployed.png", "deployed-event.png")
            pictures, words = (
                (drawn[names[0]], drawn[names[1]]),
                (figures.CAPTIONS[names[0]], figures.CAPTIONS[names[1]]),
            )
            page.explorer(explorer, pictures, words)
        page.table(PRIVATE_HEADINGS, [private_cells(row) for row in private])
        chart("cost.png")
    if suite is not None:
        add_section(page, load_suite(suite), suite)
    page.colophon(command, versions())
    return page.write(folder / f"comparison{suffix}.html")
