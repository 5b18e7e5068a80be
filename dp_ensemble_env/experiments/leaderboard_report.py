"""How the leaderboard is shown: tables for the terminal, and the page of the documentation.

Scores of an agent are matrices (seeds, instances), one for each scenario. What is made of them follows Agarwal et
al. (2021): interquartile means, performance profiles and the probability of improvement
(`dp_ensemble_env.agents.statistics`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents.statistics import (
    Interval,
    interval,
    performance_profile,
    pooled_interval,
    probability_of_improvement,
)
from dp_ensemble_env.experiments.suite_report import markdown
from dp_ensemble_env.reporting.tables import show_table
from dp_ensemble_env.tools.files import atomic_write

Scores = dict[str, NDArray[np.float64]]
Table = tuple[list[str], list[list[str]]]
#: Of the performance profiles.
THRESHOLDS = (0, 25, 50, 75, 90, 95, 97, 99)
#: Beside this agent the others are put: it uses no data (ε = 0).
HONEST = "public-guess"
TITLES = {
    "overall": "All scenarios, {split} instances",
    "scenarios": "By scenario: interquartile mean, {split} instances",
    "profiles": "Performance profiles: per cent of all runs on all instances that score above …",
    "improvement": "Probability of improvement: how probably the row scores above the column",
    "private": "Made on releases, beside the plan without data",
}


class Standing:
    """The scores of a results file on one split, by agent and scenario.

    Parameters
    ----------
    content : dict
        What `dp_ensemble_env.experiments.leaderboard.read_results` returned.
    split : str
    """

    def __init__(self, content: dict[str, Any], split: str = "test") -> None:
        self.split = split
        kept = [row for row in content["rows"] if split in row["config"]["splits"]]
        if not kept:
            raise ValueError(f"there are no finished rows with the split {split!r}; run dp-ensemble leaderboard.")
        self.rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for row in kept:
            self.rows.setdefault(row["config"]["agent"], {}).setdefault(row["config"]["scenario"], []).append(row)
        self.scenarios = list(dict.fromkeys(row["config"]["scenario"] for row in kept))
        # Best first; whoever was not scored on all scenarios comes last.
        self.agents = sorted(self.rows, key=lambda name: (not self.whole(name), -self.overall(name).value))

    def of(self, agent: str, field: str = "scores") -> Scores:
        """Return the matrices (seeds, instances) of an agent by scenario."""
        mine = self.rows[agent]
        return {name: np.array([row["result"][field][self.split] for row in mine[name]]) for name in mine}

    def whole(self, agent: str) -> bool:
        """Whether an agent was scored on all scenarios."""
        return len(self.rows[agent]) == len(self.scenarios)

    def overall(self, agent: str) -> Interval:
        """Return the interquartile mean of everything."""
        return pooled_interval(self.of(agent))

    def private(self, agent: str) -> bool:
        """Whether an agent was made on releases."""
        return all(row["result"]["without_data"] is not None for of in self.rows[agent].values() for row in of)

    def total(self, agent: str, name: str) -> float | None:
        """Return the sum of a part of the compute over all rows of an agent."""
        found = [row["compute"][name] for of in self.rows[agent].values() for row in of]
        return None if None in found else float(sum(found))


# ------------------------------------------------------------------ tables
def overall(standing: Standing) -> Table:
    """One line for each agent: interquartile mean with its interval, least score, seeds, steps, processor seconds."""
    rows = []
    for agent in standing.agents:
        scores, steps = standing.of(agent), standing.total(agent, "steps")
        seeds = max(len(matrix) for matrix in scores.values())
        whole = "" if standing.whole(agent) else f" ({len(scores)} of {len(standing.scenarios)})"
        least = min(matrix.min() for matrix in scores.values())
        cells = [f"{agent}{whole}", str(standing.overall(agent)), f"{_zero(least):.1f}", str(seeds)]
        cells += ["–" if steps is None else f"{steps:,.0f}", f"{standing.total(agent, 'cpu_seconds') or 0:,.0f}"]
        rows.append(cells)
    return ["agent", "score", "least", "seeds", "steps", "CPU s"], rows


def by_scenario(standing: Standing) -> Table:
    """One line for each scenario, one column for each agent."""
    found = {agent: standing.of(agent) for agent in standing.agents}
    rows = []
    for name in standing.scenarios:
        cells = (f"{_zero(interval(of[name]).value):.1f}" if name in of else "–" for of in found.values())
        rows.append([name, *cells])
    return ["scenario", *standing.agents], rows


def profiles(standing: Standing) -> Table:
    """One line for each agent, one column for each threshold."""
    rows = []
    for agent in standing.agents:
        shares = performance_profile(standing.of(agent), THRESHOLDS)
        rows.append([agent, *(f"{100 * share:.0f}" for share in shares)])
    return ["agent", *(f"> {threshold}" for threshold in THRESHOLDS)], rows


def improvement(standing: Standing) -> Table:
    """Every agent against the one without data and against the next in the table."""
    rows = []
    for agent, following in zip(standing.agents, [*standing.agents[1:], None], strict=True):
        cells = []
        for other in (HONEST, following):
            known = other in standing.rows and other != agent and set(standing.of(agent)) & set(standing.of(str(other)))
            cells.append(_chance(standing, agent, str(other)) if known else "–")
        rows.append([agent, *cells])
    return ["agent", f"above {HONEST}", "above the next"], rows


def private(standing: Standing) -> Table:
    """Every agent that was made on releases, scenario by scenario, beside the score without data."""
    rows = []
    for agent in filter(standing.private, standing.agents):
        deployed, beside = standing.of(agent), standing.of(agent, "without_data")
        for name in deployed:
            prices = [row["result"]["epsilon"] for row in standing.rows[agent][name]]
            epsilon = "none" if None in prices else f"{max(prices):.3g}"
            one, other = interval(deployed[name]).value, interval(beside[name]).value
            rows.append([agent, name, f"{_zero(one):.1f}", f"{_zero(other):.1f}", epsilon])
    return ["agent", "scenario", "deployed on the truth", "without data", "ε"], rows


def _chance(standing: Standing, agent: str, other: str) -> str:
    found = probability_of_improvement(standing.of(agent), standing.of(other))
    low, value, high = (f"{100 * x:.0f}" for x in (found.low, found.value, found.high))
    return f"{value} %" if low == value == high else f"{value} % [{low}, {high}]"


def _zero(value: float) -> float:
    return 0.0 if abs(value) < 0.05 else value


def tables(standing: Standing) -> dict[str, Table]:
    """Return all tables by their names; that of private agents only if there are any."""
    found = {"overall": overall(standing), "scenarios": by_scenario(standing), "profiles": profiles(standing)}
    found["improvement"] = improvement(standing)
    if (beside := private(standing))[1]:
        found["private"] = beside
    return found


def show(standing: Standing) -> None:
    """Print all tables."""
    for name, (headings, rows) in tables(standing).items():
        left = [heading for heading in headings if heading in ("agent", "scenario")]
        notes = NOTES.get(name, ())
        show_table(TITLES[name].format(split=standing.split), headings, rows, left=left, notes=notes)


NOTES: dict[str, Sequence[str]] = {
    "overall": (
        "Score: the interquartile mean of all runs on all instances, with its 95 % bootstrap interval; 0 = "
        "uncontrolled, 100 = the exact optimum of each instance. Least: the lowest of these scores. Steps and "
        "processor seconds are those of all its rows together.",
    ),
    "private": (
        "What was made on a release is scored on the truth. ε is that of one release at δ = 1e-6; 'none' means that "
        "there is no guarantee. Where it is below the score without data, the data were not worth their price.",
    ),
}


# ------------------------------------------------------------------ the page
def page(content: dict[str, Any], split: str = "test") -> str:
    """Write the page of the documentation."""
    standing = Standing(content, split)
    parts = ["# Leaderboard", INTRO]
    for name, (headings, rows) in tables(standing).items():
        parts += [f"## {TITLES[name].format(split=split)}", markdown(headings, rows).strip(), *NOTES.get(name, ())]
    software = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    made = (
        f"{len(content['rows'])} rows, with {software}. SHA-256 of all rows: `{content['digest'][:16]}…`. Every row "
        "has its configuration, seed, scores, compute and digest in [`leaderboard.json`](leaderboard.json)."
    )
    parts += ["## How this was made", f"`{content['command']}`", made]
    parts.append(SUBMIT.strip())
    return "\n\n".join(parts) + "\n"


def write_page(path: Path, content: dict[str, Any], split: str = "test") -> None:
    """Write the page to a file."""
    text = page(content, split)
    with atomic_write(path) as stream:
        stream.write(text)


INTRO = """
This page is written by `dp-ensemble leaderboard --page docs/leaderboard.md` from the results file; do not edit it.
*Planners* know the instance that they steer, or a release of it, and are scored exactly. *Learners* are trained on the
training instances and play instances that they never saw. The plan named `public-guess` uses no data at all (ε = 0):
whoever claims that private data are worth their price must be above it.
""".strip()

SUBMIT = """
## Submit an agent

Write one Python file with a function `predict`, which takes observations and returns actions as Stable-Baselines3's do.
Observations come in a batch, one a row.

```python
import numpy as np


def predict(observation, state=None, episode_start=None, deterministic=True):
    return np.full((len(observation), 1), 0.4, np.float32), state  # one price, always
```

An agent that is built or trained first has `make(env)` instead, or `make(env, seed)`. It is called once for each
scenario, with its first training instance, and returns an object with `predict`. Then one command scores it on every
scenario:

```bash
dp-ensemble leaderboard --submit my_agent.py --allow-code --action price
```

`--allow-code` is your consent: the file's code runs on your machine. The command writes `leaderboard.json` with your
rows. Send it together with the file; whoever receives both runs the command again and compares the digests.
"""
