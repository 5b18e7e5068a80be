"""From rows to tables, charts and one page.

Scores of an agent are matrices (seeds, instances), one for each problem. The statistics follow Agarwal et al. (2021):
interquartile means, performance profiles and the probability of improvement (`dp_ensemble_env.agents.statistics`).
Agents are grouped by their source; each score comes with the score of the plan without data and the ε spent.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.agents.statistics import (
    Interval,
    interquartile_mean,
    interval,
    performance_profile,
    probability_of_improvement,
)
from dp_ensemble_env.experiments.runner import Cell, Row
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.charts import COLORS, Chart, Series, hours, power_chart
from dp_ensemble_env.reporting.page import OWNER_WORDS, Page
from dp_ensemble_env.reporting.tables import number_text, write_csv
from dp_ensemble_env.tools.console import table

Scores = dict[str, NDArray[np.float64]]
Table = tuple[list[str], list[list[str]]]
#: What agents may be made with, in the order of the tables.
KNOWLEDGE = ("the truth", "a release", "other instances", "nothing", "hindsight")
#: Of the performance profiles.
THRESHOLDS = (0, 25, 50, 75, 90, 95, 97, 99)
#: The agent that others are put beside: it uses no data (ε = 0).
HONEST = "without-data"
TITLES = {
    "overall": "Scores on the true behaviour",
    "problems": "By problem: interquartile mean",
    "releases": "Trained on releases, beside the plan without data",
    "profiles": "Performance profiles: percentage of all runs on all instances that score above …",
    "improvement": "Probability of improvement: the probability that the row scores above the column",
    "units": "Dollars and kilowatt-hours",
}
NOTES = {
    "overall": "Score: the interquartile mean of all runs on all instances, with its 95 % bootstrap interval; 0 = "
    "uncontrolled, 100 = the exact optimum of each instance. Knew: the agent's source. Without data: a plan from "
    "public knowledge alone. ε: the cost of one release at δ = 1e-6; ∞ means no guarantee. CPU s: processor seconds.",
    "releases": "Deployed: the score on the true behaviour, which is not private. A private method is worthwhile only "
    "above the score without data. On the release itself the exact plan scores 100.",
    "units": "Dollars per load: earned minus discomfort is the return, and the gap is the distance to the optimum. "
    "Discomfort is priced by the penalty, a design weight, not a measured preference. Delivered: total energy below "
    "the uncontrolled loads, 0 for doing nothing.",
}
#: Fields of an outcome that the tables and the CSV file give, with their headings.
UNITS = {
    "earned": "earned, $", "discomfort": "discomfort, $", "mean_return": "return, $", "gap": "gap, $",
    "curtailed_kwh": "delivered, kWh",
}  # fmt: skip
_DASHES = ("", "6 4", "2 3")
#: How many agents a chart shows before anybody clicks.
_FIRST = 5


def show_privacy(spec: str | None) -> str:
    """Write a mechanism for tables: the paper's by its k, others as they are given; different ones never look alike."""
    return "none" if spec is None else spec.removeprefix("dirichlet:")


def line_names(cells: Sequence[Cell]) -> dict[str, str]:
    """Return a name for the line of each cell, by key: the agent, and what tells it from other lines of that agent."""
    actions: dict[str, set[str]] = {}
    populations: dict[str, set[str]] = {}
    for cell in cells:
        actions.setdefault(cell.label or cell.agent, set()).add(cell.action)
        populations.setdefault(cell.label or cell.agent, set()).add(str(cell.population))
    names = {}
    for cell in cells:
        parts = [label := cell.label or cell.agent]
        parts += [cell.action] if len(actions[label]) > 1 or cell.steps is not None else []
        parts += [str(cell.population)] if len(populations[label]) > 1 else []
        parts += [] if cell.privacy is None else [show_privacy(cell.privacy).replace(",", ", ")]  # so that it wraps
        names[cell.key] = ", ".join(parts)
    return names


class Standings:
    """The scores of rows by agent and problem; rows that failed are left out."""

    def __init__(self, rows: Sequence[Row]) -> None:
        kept = [row for row in rows if row.error is None]
        if not kept:
            raise ValueError("there are no finished rows to show; compute some first.")
        names = line_names([row.cell for row in kept])
        self.rows: dict[str, dict[str, list[Row]]] = {}
        for row in kept:
            self.rows.setdefault(names[row.cell.key], {}).setdefault(row.cell.data, []).append(row)
        self.problems = list(dict.fromkeys(row.cell.data for row in kept))
        self._overall = {name: interval(self.of(name)) for name in self.rows}
        self.agents = sorted(self.rows, key=self._place)

    def _place(self, agent: str) -> tuple[int, bool, float]:
        """Order by knowledge; an agent that was not scored on all problems comes last in its group."""
        return KNOWLEDGE.index(self.knows(agent)), not self.whole(agent), -self.overall(agent).value

    def all(self, agent: str) -> list[Row]:
        """Return all rows of an agent."""
        return [row for rows in self.rows[agent].values() for row in rows]

    def of(self, agent: str, what: str = "scores") -> Scores:
        """Return the matrices (seeds, instances) of an agent by problem."""
        return {name: np.array([getattr(row, what) for row in rows]) for name, rows in self.rows[agent].items()}

    def knows(self, agent: str) -> str:
        """Return an agent's source: the truth, a release, other instances, nothing or hindsight."""
        return self.all(agent)[0].cell.knows

    def whole(self, agent: str) -> bool:
        """Tell whether an agent was scored on all problems."""
        return len(self.rows[agent]) == len(self.problems)

    def overall(self, agent: str) -> Interval:
        """Return the interquartile mean of all scores."""
        return self._overall[agent]

    def epsilon(self, agent: str, problem: str | None = None) -> str:
        """Return the largest ε of an agent's rows, as text."""
        rows = self.all(agent) if problem is None else self.rows[agent][problem]
        return show_epsilon(max(row.epsilon for row in rows))

    def total(self, agent: str, name: str) -> float | None:
        """Return the sum of a part of the compute over all rows of an agent."""
        values = [row.compute.get(name) for row in self.all(agent)]
        return None if None in values else float(sum(values))  # type: ignore[arg-type]

    @property
    def single(self) -> bool:
        """Whether there is one problem with one instance, so that outcomes have units."""
        return len(self.problems) == 1 and all(len(row.deployed) == 1 for name in self.rows for row in self.all(name))


def show_epsilon(value: float) -> str:
    """Write ε for people."""
    return "∞" if math.isinf(value) else f"{value:.3g}"


def profile_text(scores: Scores, thresholds: Sequence[float]) -> list[str]:
    """Return the per cent of all runs on all instances that score above each threshold."""
    return [f"{100 * share:.0f}" for share in performance_profile(scores, thresholds)]


def chance_text(chance: Interval) -> str:
    """Write a probability in per cent, with its interval if it has a width."""
    low, value, high = (f"{100 * x:.0f}" for x in (chance.low, chance.value, chance.high))
    return f"{value} %" if low == value == high else f"{value} % [{low}, {high}]"


# ------------------------------------------------------------------ tables
def _points(matrix: ArrayLike) -> str:
    return number_text(interquartile_mean(matrix), 1)


def overall(standings: Standings) -> Table:
    """One line for each agent."""
    rows: list[list[str]] = []
    before = ""
    for agent in standings.agents:
        of, steps, knows = standings.of(agent), standings.total(agent, "steps"), standings.knows(agent)
        partly = "" if standings.whole(agent) else f" ({len(of)} of {len(standings.problems)})"
        beside = np.concatenate([matrix.ravel() for matrix in standings.of(agent, "without_data").values()])
        line = ["" if knows == before else knows, f"{agent}{partly}", str(standings.overall(agent)), _points(beside)]
        line += [standings.epsilon(agent), str(max(map(len, of.values()))), "–" if steps is None else f"{steps:,.0f}"]
        rows.append([*line, number_text(standings.total(agent, "cpu_seconds") or 0, 0)])
        before = knows
    return ["knew", "agent", "score", "without data", "ε", "seeds", "steps", "CPU s"], rows


def by_problem(standings: Standings) -> Table:
    """One line for each problem, one column for each agent, and the plan without data."""
    matrices = [standings.of(agent) for agent in standings.agents]
    beside: Scores = {}
    for agent in standings.agents:
        beside |= standings.of(agent, "without_data")
    rows = [
        [name, _points(beside[name]), *(_points(of[name]) if name in of else "–" for of in matrices)]
        for name in standings.problems
    ]
    return ["problem", "without data", *standings.agents], rows


def releases(standings: Standings) -> Table:
    """Every agent that saw releases, problem by problem."""
    rows = []
    for agent in (agent for agent in standings.agents if standings.knows(agent) == "a release"):
        beside = standings.of(agent, "without_data")
        for name, matrix in standings.of(agent).items():
            made = [outcome.score for row in standings.rows[agent][name] for outcome in row.made]
            line = [agent, name if len(standings.problems) > 1 else "", _points(matrix), _points(beside[name])]
            rows.append([*line, standings.epsilon(agent, name), _points(made) if made else "–"])
    return ["agent", "problem", "deployed", "without data", "ε", "on release"], rows


def profiles(standings: Standings) -> Table:
    """One line for each agent, one column for each threshold."""
    rows = [[agent, *profile_text(standings.of(agent), THRESHOLDS)] for agent in standings.agents]
    return ["agent", *(f"> {threshold}" for threshold in THRESHOLDS)], rows


def improvement(standings: Standings) -> Table:
    """Every agent against the one without data, and against the next in the table."""

    def chance(agent: str, other: str) -> str:
        one, two = standings.of(agent), standings.of(other) if other in standings.rows else {}
        return chance_text(probability_of_improvement(one, two)) if agent != other and set(one) & set(two) else "–"

    pairs = zip(standings.agents, [*standings.agents[1:], ""], strict=True)
    rows = [[agent, chance(agent, HONEST), chance(agent, following)] for agent, following in pairs]
    return ["agent", f"above {HONEST}", "above the next"], rows


def units(standings: Standings) -> Table:
    """One line for each agent: means over its rows in dollars and kilowatt-hours."""
    rows = []
    for agent in standings.agents:
        outcomes = [outcome for row in standings.all(agent) for outcome in row.deployed]
        digits = [0 if name.endswith("kwh") else 2 for name in UNITS]
        means = (np.mean([getattr(outcome, name) for outcome in outcomes]) for name in UNITS)
        rows.append([agent, *map(number_text, map(float, means), digits)])
    return ["agent", *UNITS.values()], rows


def tables(standings: Standings) -> dict[str, Table]:
    """Return the tables that are not empty, by name."""
    made = {"overall": overall(standings)}
    if len(standings.problems) > 1:
        made["problems"] = by_problem(standings)
    if (private := releases(standings))[1]:
        made["releases"] = private
    if standings.single:
        made["units"] = units(standings)
    else:
        made["profiles"] = profiles(standings)
        made["improvement"] = improvement(standings)
    return {name: _without_empty(table) for name, table in made.items()}


def _without_empty(table: Table) -> Table:
    headings, rows = table
    kept = [i for i in range(len(headings)) if any(row[i] not in ("", "–") for row in rows)]
    return [headings[i] for i in kept], [[row[i] for i in kept] for row in rows]


def show(standings: Standings) -> None:
    """Print all tables."""
    alone = standings.problems[0] if len(standings.problems) == 1 else ""
    for name, (headings, rows) in tables(standings).items():
        keep = 2 if name in ("overall", "releases") else 1
        title = f"{alone}: {TITLES[name][0].lower()}{TITLES[name][1:]}" if alone else TITLES[name]
        table(title, headings, rows, keep=keep, notes=[NOTES[name]] if name in NOTES else [])


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Write a table in Markdown: first columns of words, then numbers, which are aligned to the right."""
    marks = ["---" if i < words else "---:" for i in range(len(headings))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (headings, marks, *rows))


def filled(text: str) -> str:
    """Break a paragraph of a page in Markdown."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def write_rows(path: Path, rows: Sequence[Row]) -> Path:
    """Write one line for each finished cell and instance, the same wherever it was computed."""
    lines = []
    for row in rows:
        cell = row.cell
        each = itertools.zip_longest(cell.instances, row.deployed, row.without_data, row.made[: len(cell.instances)])
        lines += [
            {
                "data": cell.data, "split": cell.split, "instance": instance, "agent": cell.label or cell.agent,
                "action": cell.action, "population": cell.population, "privacy": show_privacy(cell.privacy),
                "seed": cell.seed, "steps": cell.steps, "score": outcome.score, "score_error": outcome.score_error,
                **{name: getattr(outcome, name) for name in UNITS}, "made_score": made and made.score,
                "without_data": beside, "epsilon": row.epsilon, "key": cell.key,
            }
            for instance, outcome, beside, made in each
        ]  # fmt: skip
    return write_csv(path, list(lines[0]) if lines else [], [list(line.values()) for line in lines])


# ------------------------------------------------------------------ the page
def takeaways(standings: Standings) -> list[str]:
    """Say who leads, and whether private data were worth their price: never without the score that costs nothing."""
    ranked = [agent for agent in standings.agents if standings.knows(agent) != "hindsight"] or standings.agents
    best = max(ranked, key=lambda agent: (standings.whole(agent), standings.overall(agent).value))
    many = len(standings.problems)
    where = f"over {many} problems" if many > 1 else f"on {standings.problems[0]}"
    said = [
        f"{best} leads with a score of {standings.overall(best)} {where}.",
        f"The plan without data (ε = 0) scores {interval(standings.of(best, 'without_data'))} there.",
    ]
    private = [agent for agent in standings.agents if standings.knows(agent) == "a release"]
    if private:
        first = max(private, key=lambda agent: standings.overall(agent).value)
        deployed, beside = standings.of(first), standings.of(first, "without_data")
        above = sum(interquartile_mean(deployed[name]) > interquartile_mean(beside[name]) for name in deployed)
        several = f"above the plan without data in {above} of {len(deployed)} problems"
        alone = f"{'above' if above else 'not above'} the plan without data"
        said.append(
            f"Of the agents that saw a release, {first} (ε = {standings.epsilon(first)}) scores best: "
            f"{standings.overall(first)}, {several if len(deployed) > 1 else alone}."
        )
    return said


def charts(standings: Standings, model: EnsembleModel | None = None) -> dict[str, tuple[Chart, str]]:
    """Return the figures that the rows have something for, each with its caption."""
    names = standings.agents
    scores = [standings.overall(name) for name in names]
    notes = [f"{one}, ε = {standings.epsilon(name)}" for one, name in zip(scores, names, strict=True)]
    about: dict[str, Any] = {"low": [s.low for s in scores], "high": [s.high for s in scores], "notes": notes}
    points = Series("score", [s.value for s in scores], range(len(names)), line=False, dots=True, **about)
    marks = [(100.0, "optimum")]
    beside = [interval(standings.of(name, "without_data")) for name in sorted(names, key=standings.whole)]
    marks += [(beside[-1].value, "without data")] if math.isfinite(beside[-1].value) else []
    label = "score (0 = uncontrolled, 100 = optimum)"
    ranked = Chart("Score, with its 95 % interval", label, "", [points], rows=names, x_name="score", marks=marks)
    made = {"scores": (ranked, "")}
    above = tuple(range(0, 100, 2))
    shares = {name: (100 * performance_profile(standings.of(name), above)).tolist() for name in names}
    lines = [_line(name, above, y, i) for i, (name, y) in enumerate(shares.items())]
    if not standings.single:
        words = ("Performance profiles", "score", "per cent of all runs above")
        profile = Chart(*words, lines, x_name="score above", unit=" %")
        made["profiles"] = (profile, "The higher a line, the more runs score above the value below it.")
    curves = [(name, row.curve) for name in names for row in standings.all(name)[:1] if len(row.curve) > 1]
    if curves:
        lines = [_line(name, [x for x, _ in curve], [y for _, y in curve], i) for i, (name, curve) in enumerate(curves)]
        learning = Chart("Learning curves", "steps", "score where it is trained", lines, x_name="steps")
        made["learning"] = (learning, "One training run of each learner.")
    if model is not None and standings.single:
        clock, powers = hours(model).tolist(), {n: standings.all(n)[0].deployed[0].power_kw / 1e3 for n in names}
        lines = [_line(n, clock, y.tolist(), i) for i, (n, y) in enumerate(powers.items()) if len(y) == len(clock)]
        made["event"] = (power_chart(model, "Power", lines), "Mean power on the true behaviour, first seed.")
    return made


def _line(name: str, x: Sequence[float], y: Sequence[float], number: int) -> Series:
    dash = _DASHES[number // len(COLORS) % len(_DASHES)]
    shown = number < _FIRST or name in (HONEST, "uncontrolled")
    return Series(name, x, y, color=COLORS[number % len(COLORS)], dash=dash, shown=shown)


def write_page(
    path: Path,
    standings: Standings,
    title: str,
    content: Mapping[str, Any],
    *,
    model: EnsembleModel | None = None,
    private: bool = False,
    suffix: str = "",
) -> Path:
    """Write the page, and its pictures beside it, with names that end in `suffix`; imports matplotlib.

    `content` is the results file. With a `model` of one instance the page shows its power over time. A `private` page
    is only for the owner of the meter.
    """
    from dp_ensemble_env.reporting.plots import draw_chart

    page, figures = Page(title), charts(standings, model)
    drawn = {name: draw_chart(chart, path.with_name(f"{name}{suffix}.png")) for name, (chart, _) in figures.items()}
    if private:
        page.warning(OWNER_WORDS)
    page.takeaways(takeaways(standings), figures["scores"][0], drawn["scores"])
    for name, (headings, rows) in tables(standings).items():
        page.heading(TITLES[name], short=TITLES[name].partition(":")[0])
        page.table(headings, rows)
        if name in NOTES:
            page.text(NOTES[name])
    for name, (chart, caption) in figures.items():
        if caption:
            page.heading(chart.title, short=chart.title)
            page.chart(chart, drawn[name], caption)
    page.colophon(content["command"], content["versions"], f"Digest of all rows: `{content['digest'][:16]}…`.")
    return page.write(path)
