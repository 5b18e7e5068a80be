"""The leaderboard as a page of its own, made by the one template of all reports.

Importing this module imports matplotlib.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dp_ensemble_env.agents.statistics import interval, performance_profile
from dp_ensemble_env.experiments.leaderboard_report import HONEST, NOTES, TITLES, Standing, tables
from dp_ensemble_env.reporting.charts import COLORS, Chart, Series
from dp_ensemble_env.reporting.page import Page
from dp_ensemble_env.reporting.plots import draw_chart

#: Scores at which a profile is drawn.
_THRESHOLDS = tuple(range(0, 100, 2))
_DASHES = ("", "6 4", "2 3")
#: How many agents are shown before anybody clicks.
_FIRST = 5


def takeaways(standing: Standing) -> list[str]:
    """Say who leads, and whether private data were worth their price: never without the score that costs nothing."""
    best = standing.agents[0]
    many = len(standing.scenarios)
    found = [f"{best} leads with a score of {standing.overall(best)} over {many} scenario{'s' * (many > 1)}."]
    if HONEST in standing.rows and best != HONEST:
        found.append(f"The plan without data ({HONEST}, ε = 0) scores {standing.overall(HONEST)}.")
    made = [agent for agent in standing.agents if standing.private(agent)]
    if made:
        deployed, beside = standing.of(made[0]), standing.of(made[0], "without_data")
        above = [name for name in deployed if interval(deployed[name]).value > interval(beside[name]).value]
        found.append(
            f"Of what was made on releases, {made[0]} scores best: {standing.overall(made[0])}. It is above the plan "
            f"without data in {len(above)} of {len(deployed)} scenario{'s' * (len(deployed) > 1)}."
        )
    return found


def charts(standing: Standing) -> dict[str, Chart]:
    """Return the scores of all agents, and their profiles."""
    names = standing.agents
    scores = [standing.overall(name) for name in names]
    notes = [f"{one.value:.1f} [{one.low:.1f}, {one.high:.1f}]" for one in scores]
    points = Series("score", [s.value for s in scores], list(range(len(names))), line=False, dots=True, notes=notes)
    title = "Score, with its 95 % interval"
    ranked = Chart(title, "score (0 = uncontrolled, 100 = optimum)", "", [points], rows=names, x_name="score")
    lines = [
        Series(
            name,
            _THRESHOLDS,
            (100 * performance_profile(standing.of(name), _THRESHOLDS)).tolist(),
            color=COLORS[number % len(COLORS)],
            dash=_DASHES[number // len(COLORS) % len(_DASHES)],
            shown=number < _FIRST or name == HONEST,
        )
        for number, name in enumerate(names)
    ]
    axis = "per cent of all runs above"
    profile = Chart("Performance profiles", "score", axis, lines, x_name="score above", unit=" %")
    return {"leaderboard-scores": ranked, "leaderboard-profiles": profile}


def write_html(path: Path, content: dict[str, Any], split: str = "test") -> Path:
    """Write the page, and its pictures beside it."""
    standing = Standing(content, split)
    made = charts(standing)
    drawn = {name: draw_chart(chart, path.with_name(f"{name}.png")) for name, chart in made.items()}
    ranked, profiles = made
    page = Page("Leaderboard")
    page.takeaways(takeaways(standing), made[ranked], drawn[ranked])
    found = tables(standing)
    for name, (headings, rows) in found.items():
        page.heading(TITLES[name].format(split=split), short=_SHORT[name])
        page.table(headings, rows)
        for note in NOTES.get(name, ()):
            page.text(note)
        if name == "profiles":
            page.chart(
                made[profiles], drawn[profiles], "The higher a line, the more runs score above the value below it."
            )
    page.colophon(content["command"], content["versions"], f"Digest of all rows: `{content['digest'][:16]}…`.")
    return page.write(path)


_SHORT = {
    "overall": "All scenarios",
    "scenarios": "By scenario",
    "profiles": "Profiles",
    "improvement": "Improvement",
    "private": "Private releases",
}
