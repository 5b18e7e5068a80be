"""The documentation of the scenarios, written from their cards and their recorded probes.

``make scenario-pages`` writes the gallery in the README, a page for each scenario, the page that compares them, and
with ``--pictures`` the pictures. A test keeps the files equal to what this module writes.
"""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.agents.statistics import interval
from dp_ensemble_env.envs import ACTIONS, actions
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.tables import AHEAD, Row
from dp_ensemble_env.experiments.leaderboard import OPEN, RECORD
from dp_ensemble_env.experiments.leaderboard_page import Board, figure, hard
from dp_ensemble_env.experiments.probes import Probes, recorded
from dp_ensemble_env.experiments.runner import read_results
from dp_ensemble_env.experiments.standings import filled, markdown
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.animation import animate

#: Between these lines of the README stands the gallery; how many pictures stand side by side.
BEGIN, END = "<!-- scenarios: written by make scenario-pages -->", "<!-- end of scenarios -->"
ACROSS = 4
#: How many seeds are looked at for an episode with many contexts.
SEEDS = 20
#: A scenario tests something where the probe that does without it scores no more.
DEMANDING = 85.0
COLUMNS = {"open loop": "open_loop", "blind": "blind", "without data": "public_guess", "myopic": "myopic"}
OF_MODES = ("constant", "by context", "ceiling")
#: Below the gallery.
SHORT = "Left: uncontrolled; right: optimal. [What each scenario tests](docs/scenarios.md)."


# ------------------------------------------------------------------ tables
def needs(name: str, measured: Probes) -> str:
    """Say what a scenario tests."""
    probes = {"feedback": measured.open_loop, "memory": measured.blind, "data": measured.public_guess}
    words = [word for word, score in probes.items() if score <= DEMANDING]
    model = scenarios.make(name)
    if "memory" in words and model.shares_shown:
        words[words.index("memory")] = "shares"
    return ", ".join([*words, *(["constraint"] if model.coupling is not None else [])]) or "–"


def probe_table() -> str:
    """Return the table of all built-in scenarios."""
    headings = ["scenario", "tests", *COLUMNS, "constant", "by context", "ceiling"]
    rows = []
    for name in scenarios.BUILT_IN:
        first = recorded(name)[0]
        signals = first.modes["signals"]
        scores = [getattr(first, key) for key in COLUMNS.values()]
        scores += [signals.constant, signals.by_context, signals.ceiling]
        rows.append([f"[{name}](scenarios/{name}.md)", needs(name, first), *map(number, scores)])
    return markdown(headings, rows, words=2)


def number(value: float) -> str:
    """Write a score, a dash where it does not apply."""
    return "–" if np.isnan(value) else f"{value + 0.0:.1f}".replace("-", "−")


def gallery(images: str, pages: str) -> str:
    """Return the pictures of all scenarios, each a link to its page."""
    cells = [f"[![{name}]({images}{name}.gif)<br>{name}]({pages}{name}.md)" for name in scenarios.BUILT_IN]
    cells += [""] * (-len(cells) % ACROSS)
    rows = [cells[i : i + ACROSS] for i in range(0, len(cells), ACROSS)]
    return markdown(rows[0], rows[1:], words=ACROSS)


def listing(board: Board) -> str:
    """Return what `dp-ensemble scenarios` says beside the probes: what each tests, and what PPO reaches."""
    content: dict[str, dict[str, Any]] = {
        name: {"tests": needs(name, recorded(name)[0])} for name in scenarios.BUILT_IN if recorded(name)
    }
    for name, scores in board.scores(board.find("ppo", OPEN, None, "signals")).items():
        content[name]["ppo"] = round(interval(scores).value, 1)
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


# ------------------------------------------------------------------ pages
def readme_section() -> str:
    """Return what stands between the marks in the README."""
    return f"{BEGIN}\n\n{gallery('docs/images/scenarios/', 'docs/scenarios/')}\n{filled(SHORT)}\n\n{END}"


def overview() -> str:
    """Return the page on all scenarios."""
    constant = {name: recorded(name)[0].modes["signals"].constant for name in ("call", "spot")}
    reading = (
        "Scores of training instance 0 in the mean field: 0 = uncontrolled, 100 = optimum. *Open loop*: the best plan "
        "that depends on time alone. *Blind*: the best plan that depends on time and on the context shown now, but not "
        "on memory or shares. *Without data*: the plan for textbook behaviour, or for a lazy random walk if there is "
        "no textbook. *Myopic*: a plan one step ahead. The last three columns use signals, the default mode: the best "
        "constant action, the best action for each context shown, and the best action for each time and context. "
        f"Signals partly adapt to the context, so a constant action already scores {constant['call']:.0f} on call and "
        f"{constant['spot']:.0f} on spot. A scenario tests *feedback*, *memory* (or *shares*) or *data* if the best "
        f"plan that ignores it scores at most {DEMANDING:g}. *Constraint* marks a limit or target for the mean power."
    )
    return f"""<!-- Written by make scenario-pages. -->
# The scenarios

Each scenario is a control problem with a known optimum, an environment id, and separate instances for training,
validation and test. A version is frozen: if its numbers change, it gets a new version number.

{gallery("images/scenarios/", "scenarios/")}
Left: uncontrolled; right: optimal.

## What each scenario tests

{probe_table()}
{filled(reading)}

`dp-ensemble scenarios --probe` computes the table again. [The model](model.md) explains when memory or shares matter.

```{{toctree}}
:hidden:
{chr(10).join(f"scenarios/{name}" for name in scenarios.BUILT_IN)}
```
"""


def page(name: str, board: Board, noises: Mapping[str, float]) -> str:
    """Return the page of a scenario, in the form of Gymnasium's."""
    card, model, measured = scenarios.card(name), scenarios.make(name), recorded(name)
    identity = scenarios.environment_id(name)
    rows = [[str(i), *(number(getattr(one, key)) for key in COLUMNS.values())] for i, one in enumerate(measured)]
    modes = [[mode, *map(number, scores[: len(OF_MODES)])] for mode, scores in measured[0].modes.items()]
    return f"""<!-- Written by make scenario-pages. -->
# {card.title}

![An episode of {name}: uncontrolled and optimal](../images/scenarios/{name}.gif)

## Story

{filled(card.story)}

```python
import dp_ensemble_env, gymnasium

env = gymnasium.make("{identity}")
```

- **Episode**: {model.horizon} decisions of {60 * model.step_hours:g} minutes, {model.loads:,} loads
{_item("States", card.states)}
{_item("Private", card.private)}
{_item("Sources", card.sources)}

## Observation

{filled(_observation(model))}

## Actions

{filled(_actions(model))}

## Reward

{filled(_reward(model))}

## Arguments

{filled(_arguments(name))}

## Probes

{markdown(["instance", *COLUMNS], rows)}
{markdown(["mode", *OF_MODES], modes)}
{filled(_difficulty(name, board, noises))}

{filled(_notes(measured[0]))}

## Versions

v{card.version} is the first.
"""


def _difficulty(name: str, board: Board, noises: Mapping[str, float]) -> str:
    """Say what is missing to 100 without each kind of knowledge, and how noisy a return is."""
    _, rows = hard(board, noises)
    feedback, memory, data, noise, gain, ppo = next(rest for first, *rest in rows if first == name)
    represented = "" if gain == "–" else f"; PPO gains {gain} by signals instead of prices"
    return (
        f"Points missing [on test instances](../leaderboard.md): feedback {feedback}, memory or shares {memory}, data "
        f"{data}, PPO {ppo}; noise {noise}{represented}."
    )


def _observation(model: EnsembleModel) -> str:
    shape = model.n_states + 1 + AHEAD + (0 if model.context is None else model.context.features.shape[1])
    shares = f"shares of the {model.n_states} states" if model.shares_shown else f"{model.n_states} zeros (hidden)"
    ahead = f"{'prices' if model.coupling is None else 'limits or targets'} of {AHEAD} steps"
    context = "" if model.context is None else f", context ({', '.join(model.context.signs)})"
    return f"`Box(0, 1, ({shape},))`: {shares}, time left, {ahead}{context}."


def _actions(model: EnsembleModel) -> str:
    shapes = []
    for name in ACTIONS:
        space = actions.mode(name).space(model)
        size = space.n if hasattr(space, "n") else " × ".join(map(str, space.shape or ()))
        shapes.append(f"`{name}` {size}")
    return f"Size by mode: {', '.join(shapes)}."


def _reward(model: EnsembleModel) -> str:
    less = "" if model.coupling is None else ", minus the coupling's cost"
    return (
        f"Points, worth ${Row.of(model).point:.3g} per load each; in `dollars`: utility minus "
        f"${model.discomfort_penalty:.3g} per nat of discomfort{less}."
    )


def _arguments(name: str) -> str:
    """Name the settings of the scenario itself."""
    known = inspect.signature(scenarios.factory(name)).parameters.values()
    own = [f"`{one.name}={one.default!r}`" for one in known if one.default is not one.empty and one.name != "seed"]
    return f"{', '.join(own)} in `scenarios.make`; others: [the environment](../environment.md)."


def _notes(measured: Probes) -> str:
    """Say how to read the probes, and what memories are worth."""
    rungs = ", ".join(f"{name} {number(score)}" for name, score in measured.ladder.items())
    worth = f"Scores of the best agents with a memory on instance 0: {rungs}. " if rungs else ""
    return f"{worth}[How to read this](../scenarios.md)."


def _item(label: str, text: str) -> str:
    given = f"- **{label}**: {text}"
    return textwrap.fill(given, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def texts(root: Path) -> dict[Path, str]:
    """Return what every written file should hold."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    if BEGIN not in readme or END not in readme:
        raise ValueError(f"{root / 'README.md'} has no place for the scenarios; put {BEGIN} and {END} there.")
    before, rest = readme.split(BEGIN, 1)
    content, rows = read_results(RECORD)
    board = Board(rows)
    files = {
        root / "README.md": before + readme_section() + rest.split(END, 1)[1],
        root / "docs" / "scenarios.md": overview(),
        root / "dp_ensemble_env" / "scenarios" / scenarios.LISTING.name: listing(board),
    }
    return files | {
        root / "docs" / "scenarios" / f"{name}.md": page(name, board, content["noise"]) for name in scenarios.BUILT_IN
    }


# ------------------------------------------------------------------ pictures
def animation(name: str, path: Path) -> Path:
    """Play the optimal policy beside nobody's, in the episode that shows most contexts."""
    # Pictures show what agents may not see.
    env = EnsembleEnv(scenarios.make(name).override(shares_shown=True), action="tilt")
    nothing = np.zeros(env.action_space.shape or (), np.float32)

    def contexts(seed: int) -> int:
        seen = {env.reset(seed=seed)[1].get("context")}
        for _ in range(env.model.horizon):
            seen.add(env.step(nothing)[4].get("context"))
        return len(seen)

    seed = max(range(SEEDS if env.model.context is not None else 1), key=contexts)
    return animate(make_agent("standard", env), env, path, name="optimal", score=100.0, seed=seed)


def draw(root: Path) -> None:
    """Write the pictures."""
    images = root / "docs" / "images" / "scenarios"
    images.mkdir(parents=True, exist_ok=True)
    for name in scenarios.BUILT_IN:
        animation(name, images / f"{name}.gif")
    figure(Board(read_results(RECORD)[1]), images.parent / "leaderboard.png")


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    for path, text in texts(root).items():
        path.write_text(text, encoding="utf-8")
    if "--pictures" in sys.argv:
        draw(root)
