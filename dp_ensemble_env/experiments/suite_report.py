"""How the results of the suite are shown: table, CSV, JSON, pictures and page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents.statistics import Interval
from dp_ensemble_env.experiments.capabilities import AXES, capabilities, members
from dp_ensemble_env.experiments.deployment import price_of
from dp_ensemble_env.experiments.suite import Entry, Facts, Suite, SuiteSettings
from dp_ensemble_env.privacy.mechanisms import as_privacy
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.reporting.provenance import versions
from dp_ensemble_env.reporting.tables import plain, show_table, show_text, write_csv
from dp_ensemble_env.tools.files import atomic_write

if TYPE_CHECKING:
    from dp_ensemble_env.reporting.page import Page

TITLE = "Scores on the test instances (0 = uncontrolled, 100 = optimum)"
NOTE = (
    "Interquartile mean over the test instances, with its 95 % bootstrap interval in brackets; the mean is that over "
    "scenarios. Planners are made on each instance and scored exactly; learners play instances that they never saw."
)
#: What each capability is, in a sentence; the formulas are in `dp_ensemble_env.experiments.capabilities`.
MEANINGS = {
    "feedback": "how much of the way from the best open-loop sequence (0) to the optimum (100) it goes",
    "data": "made on releases: how much of the way from the plan without data (0) to the optimum (100) it goes",
    "generalisation": "its score on instances that it never saw, in per cent of that where it was made",
    "constraint": "its score where the aggregate has a limit or a target",
    "scale": "its score in the largest scenarios",
}


# ------------------------------------------------------------------ tables
def table(suite: Suite) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: one row for each scenario, one column for each agent."""
    agents = suite.agents
    rows = []
    for name in suite.scenarios:
        mine = {entry.agent: entry for entry in suite.entries if entry.scenario == name}
        rows.append([name, *(str(mine[agent].score) if agent in mine else "–" for agent in agents)])
    means = [suite.mean(agent) for agent in agents]
    rows.append(["mean", *("–" if mean is None else str(mean) for mean in means)])
    return ["scenario", *agents], rows


def capability_table(suite: Suite) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: one row for each agent, one column for each capability."""
    rows = []
    for agent in suite.agents:
        found = capabilities(suite, agent)
        rows.append([agent, *(_words(found[axis]) for axis in AXES)])
    return ["agent", *AXES], rows


def _words(value: Interval | None) -> str:
    return "–" if value is None else str(value)


def notes(suite: Suite) -> list[str]:
    """Say how the scores came about."""
    given = [f"{title}: {words}" for title, words in suite.learners.items()]
    return [NOTE, f"Learners were given {'; '.join(given)}."] if given else [NOTE]


def show(suite: Suite) -> None:
    """Print both tables."""
    headings, rows = table(suite)
    show_table(TITLE, headings, rows, left=("scenario",), notes=notes(suite))
    headings, rows = capability_table(suite)
    show_table("Capabilities (0 = reference, 100 = optimum)", headings, rows, left=("agent",))
    show_text("\n".join([*definitions(suite), "A dash: not measured.", ""]))


def definitions(suite: Suite) -> list[str]:
    """Say what each capability means and where it was measured."""
    found = []
    for axis, names in members(suite).items():
        places = ", ".join(names) if len(names) < len(suite.facts) else "all scenarios"
        if axis == "data" and suite.settings.privacy is not None:
            places += f"; releases by {suite.settings.privacy}{_price(suite.settings.privacy, names)}"
        if names:
            found.append(f"{axis}: {MEANINGS[axis]} ({places}).")
    return found


def _price(spec: str, names: Sequence[str]) -> str:
    """Say what one release of a scenario costs, at most."""
    drawn, known = as_privacy(spec), [name for name in names if name in scenarios.names()]
    if isinstance(drawn, Release):
        prices = [price_of(drawn.event)]
    else:  # a suite that was read from a file may have scenarios that are not here
        prices = [price_of(drawn.event(scenarios.make(name).default)) for name in known]
    if not prices:
        return ""
    most = max(prices)
    return f", ε at most {most:.3g} at δ = 1e-6 each" if math.isfinite(most) else ", with no guarantee (ε is infinite)"


# ------------------------------------------------------------------ files
def write_all(folder: Path, suite: Suite, command: str) -> Path:
    """Write CSV, JSON, pictures and the page; return the page's path."""
    from dp_ensemble_env.experiments.suite_figures import draw_all
    from dp_ensemble_env.reporting.page import Page

    lines = [
        [e.scenario, e.agent, *e.score, *e.scores.shape, "exact" if e.exact else "estimated"] for e in suite.entries
    ]
    headings = ["scenario", "agent", "iqm", "low", "high", "runs", "instances", "how"]
    write_csv(folder / "suite.csv", headings, lines)
    with atomic_write(folder / "suite.json") as stream:
        json.dump(to_json(suite, command), stream, indent=1)
    draw_all(suite, folder)
    page = Page("Agents on the whole suite")
    add_section(page, suite, folder)
    page.heading("How this was made")
    page.text(f"`{command}` with " + ", ".join(f"{name} {value}" for name, value in versions().items()) + ".")
    return page.write(folder / "suite.html")


def add_section(page: Page, suite: Suite, folder: Path) -> None:
    """Put the tables and the pictures of `folder` on a page."""
    from dp_ensemble_env.experiments.suite_figures import CAPTION, picture_name

    page.heading("The whole suite")
    page.text(" ".join([TITLE + ".", *notes(suite)]))
    page.table(*table(suite))
    page.heading("Capabilities", 3)
    page.items(definitions(suite))
    page.table(*capability_table(suite))
    for agent in suite.agents:
        page.picture(folder / picture_name(agent), CAPTION.format(agent=agent), column=True)


def to_json(suite: Suite, command: str) -> dict[str, Any]:
    """Return everything as plain values; `from_json` reads it."""
    entries = []
    for entry in suite.entries:
        arrays = {name: getattr(entry, name) for name in ("scores", "home", "abroad", "private")}
        content: dict[str, Any] = {name: None if x is None else x.tolist() for name, x in arrays.items()}
        summary = {name: plain(x) for name, x in zip(("iqm", "low", "high"), entry.score, strict=True)}
        entries.append({"agent": entry.agent, "scenario": entry.scenario, "exact": entry.exact, **summary, **content})
    found = {agent: _plain(capabilities(suite, agent)) for agent in suite.agents}
    return {
        "command": command,
        "versions": versions(),
        "settings": asdict(suite.settings),
        "learners": suite.learners,
        "scenario_versions": {
            name: scenarios.card(name).version for name in suite.scenarios if name in scenarios.names()
        },
        "facts": {name: asdict(fact) for name, fact in suite.facts.items()},
        "entries": entries,
        "capabilities": found,
    }


def _plain(found: dict[str, Interval | None]) -> dict[str, Any]:
    return {axis: None if value is None else value._asdict() for axis, value in found.items()}


def from_json(content: dict[str, Any]) -> Suite:
    """Read what `to_json` wrote."""
    entries = []
    for one in content["entries"]:
        arrays: dict[str, Any] = {
            name: None if one[name] is None else np.array(one[name]) for name in ("scores", "home", "abroad", "private")
        }
        entries.append(Entry(one["agent"], one["scenario"], exact=one["exact"], **arrays))
    settings: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in content["settings"].items()}
    facts = {name: Facts(**fact) for name, fact in content["facts"].items()}
    return Suite(entries, facts, SuiteSettings(**settings), content.get("learners", {}))


def load(folder: Path) -> Suite:
    """Read the suite that `write_all` left in a folder."""
    file = folder / "suite.json"
    if not file.is_file():
        raise ValueError(f"there is no suite in {folder}; make one with dp-ensemble suite --output {folder}.")
    try:
        return from_json(json.loads(file.read_text(encoding="utf-8")))
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{file} is no suite of this program ({error}); make it again.") from error


def record(suite: Suite, command: str, path: Path = scenarios.SUITE) -> None:
    """Make this the suite that cards, documentation and comparison pages show."""
    content = to_json(suite, command)
    for entry in content["entries"]:
        for name in ("scores", "home", "abroad", "private"):
            entry[name] = None if entry[name] is None else np.round(entry[name], 2).tolist()
    with atomic_write(path) as stream:
        json.dump(content, stream, indent=None, ensure_ascii=False)
        stream.write("\n")


def recorded() -> Suite:
    """Return the suite that was recorded with this version of the scenarios."""
    return from_json(json.loads(scenarios.SUITE.read_text(encoding="utf-8")))


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table for the documentation."""
    lines = [headings, ["---", *("---:" for _ in headings[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
