"""The documentation of the scenarios, written from their cards, their recorded probes and the recorded leaderboard.

``make scenario-pages`` writes the gallery in the README, a page for each scenario with its picture, and the page that
compares them. A test keeps the files equal to what this module writes.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents.statistics import interval
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.registration import ACTIONS
from dp_ensemble_env.envs.tables import AHEAD, Row
from dp_ensemble_env.experiments.probes import Mode, Probes, recorded
from dp_ensemble_env.experiments.runner import read_results
from dp_ensemble_env.experiments.standings import HONEST, Standings, by_problem, markdown
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.files import atomic_write

#: Between these lines of the README stands the gallery; how many pictures stand side by side.
BEGIN, END = "<!-- scenarios: written by make scenario-pages -->", "<!-- end of scenarios -->"
ACROSS = 4
#: How many seeds are looked at for an episode with many contexts.
SEEDS = 20
#: A scenario tests feedback, or data, where the open loop, or the public guess, scores no more.
DEMANDING = 85.0
READING = (
    "Scores of the instance that the ids play, 0 = uncontrolled, 100 = optimum, computed exactly in the mean field. "
    "*Open loop*: the best tilts by time alone, blind to the context. *Public guess*: the plan made without "
    "data, on the scenario's textbook behaviour, or on a lazy walk where there is no textbook. In the columns of the "
    "action modes: the best action that is held throughout, and the ceiling, which is the best by time and context "
    "that was found (a plan that also looks at the shares may gain a point more). A learner has learnt something "
    "where it is above the first number, and everything at the second. A scenario tests *feedback* where the open loop "
    f"leaves {100 - DEMANDING:g} points or more, *data* where the public guess does, and *constraint* where the "
    "aggregate has a limit or a target."
)
NOTE = (
    "Interquartile mean over test instances. Agents that plan are made on each instance, or on a release of it, and "
    "scored exactly; learners play instances that they never saw. [Leaderboard](leaderboard.md) has the intervals."
)
#: Below the gallery.
SHORT = "Left: uncontrolled; right: optimal. [What each of them tests](docs/scenarios.md)."


# ------------------------------------------------------------------ tables
def held(one: Mode) -> str:
    """Return the scores of the best constant action of a mode and of its ceiling, as in ``94.2 / 98.2``."""
    return f"{_number(one.constant)} / {_number(one.ceiling)}"


def needs(name: str, found: Probes) -> str:
    """Say what a scenario tests."""
    words = [
        word for word, score in (("feedback", found.open_loop), ("data", found.public_guess)) if score <= DEMANDING
    ]
    return ", ".join([*words, *(["constraint"] if scenarios.make(name).coupling is not None else [])]) or "–"


def probe_table(link: str) -> str:
    """Return the table of all built-in scenarios; `link` is where their pages are."""
    headings = ["scenario", "tests", "open loop", "public guess", *ACTIONS]
    rows = []
    for name in scenarios.BUILT_IN:
        found = recorded(name)[0]
        of_modes = [held(found.modes[mode]) for mode in ACTIONS]
        numbers = [_number(found.open_loop), _number(found.public_guess), *of_modes]
        rows.append([f"[{name}]({link}{name}.md)", needs(name, found), *numbers])
    return markdown(headings, rows)


def modes_table(found: Probes) -> str:
    """Return what simple controllers score in each action mode."""
    headings = ["action", "best constant", "best by context", "ceiling", "all ones", "random, sd 0.5", "random, sd 1"]
    return markdown(headings, [[name, *map(_number, one)] for name, one in found.modes.items()])


def constants() -> str:
    """Say in one sentence what a constant action in signals scores already."""
    scores = {name: recorded(name)[0].modes["signals"].constant for name in ("call", "spot")}
    words = " and ".join(f"{score:.0f} on {name}" for name, score in scores.items())
    return f"The units of signals and prices follow the context by half, so a constant action already scores {words}."


def _number(value: float) -> str:
    return f"{value + 0.0:.1f}".replace("-", "−")


def listing(standings: Standings) -> str:
    """Return what `dp-ensemble scenarios` says beside the probes: what each tests, and what PPO reaches."""
    ppo = [agent for agent in standings.agents if standings.all(agent)[0].cell.agent == "ppo"]
    of = standings.of(min(ppo, key=lambda agent: standings.all(agent)[0].cell.action != "signals"))
    content: dict[str, dict[str, Any]] = {
        name: {"tests": needs(name, recorded(name)[0])} for name in scenarios.BUILT_IN if recorded(name)
    }
    for name, scores in of.items():
        content[name]["ppo"] = round(interval(scores).value, 1)
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


# ------------------------------------------------------------------ pages
def readme_section() -> str:
    """Return what stands between the marks in the README."""
    cells = [
        f"[![{name}](docs/images/scenarios/{name}.gif)<br>{name}](docs/scenarios/{name}.md)"
        for name in scenarios.BUILT_IN
    ]
    cells += [""] * (-len(cells) % ACROSS)
    rows = [cells[i : i + ACROSS] for i in range(0, len(cells), ACROSS)]
    return f"{BEGIN}\n\n{markdown(rows[0], rows[1:])}\n{_filled(SHORT)}\n\n{END}"


def overview(standings: Standings) -> str:
    """Return the page on all scenarios."""
    stories = "\n".join(
        _item(
            f"[{scenarios.card(name).title}](scenarios/{name}.md), `{scenarios.environment_id(name)}`: "
            f"{first_sentence(scenarios.card(name).story)}"
        )
        for name in scenarios.BUILT_IN
    )
    headings, rows = by_problem(standings)
    return f"""<!-- Written by make scenario-pages. -->
# The scenarios

Eleven control problems, each with an environment id, an exact optimum, instances by number in disjoint sets for
training, validation and test, and a card (`dp-ensemble scenarios NAME`). Ids exist for every action mode, such as
`dp_ensemble/Spot-tilt-v1`; the one without a mode takes signals. `population=`, `instance=`, `split=` and `privacy=`
are arguments. A version is frozen: whatever changes the numbers of a scenario gets a new one.

{stories}

## What simple controllers score

{probe_table("scenarios/")}
{_filled(READING)}

{_filled(constants() + " Each page shows more of every mode. `dp-ensemble scenarios --probe` computes them again.")}

## What agents score on instances that they never saw

{markdown(headings, rows)}
{_filled(NOTE)}

```{{toctree}}
:hidden:
{chr(10).join(f"scenarios/{name}" for name in scenarios.BUILT_IN)}
```
"""


def page(name: str) -> str:
    """Return the page of a scenario: its card."""
    card, model = scenarios.card(name), scenarios.make(name)
    size = f"{model.n_states} states, {model.horizon} decisions of {60 * model.step_hours:g} minutes"
    facts = [
        ("States", card.states),
        ("Contexts", "" if model.context is None else model.context.words),
        ("Size", f"{size}, {model.buildings:,} loads"),
        ("Private", card.private),
        ("Sources", card.sources),
        ("Environment", ", ".join(f"`{id}`" for id in ids(name))),
        ("Observation", _observation(model)),
        ("Actions", _actions(model)),
        ("Reward", _reward(model)),
    ]
    shown = "\n".join(_item(f"**{label}**: {text}") for label, text in facts if text)
    found = recorded(name)
    headings = ["instance", "open loop", "public guess", "myopic", *ACTIONS]
    rows = [
        [str(i), *map(_number, (one.open_loop, one.public_guess, one.myopic)), *map(held, one.modes.values())]
        for i, one in enumerate(found)
    ]
    hows = "\n".join(f"- {key.replace('_', ' ')}: {text}" for key, text in found[0].how.items())
    return f"""<!-- Written by make scenario-pages. -->
# {card.title}

{_filled(card.story)}

![An episode of {name}: uncontrolled on the left, under the optimal policy on the right](../images/scenarios/{name}.gif)

*One episode in the mean field, uncontrolled and under the optimal policy.*

{shown}

```python
import gymnasium

env = gymnasium.make("dp_ensemble_env:{scenarios.environment_id(name)}")
```

## Probes

{markdown(headings, rows)}
0 = uncontrolled, 100 = optimum. Action modes: best constant action / ceiling. More of instance 0:

{modes_table(found[0])}
*By context*: one action for each context that is shown. *Random*: the mean score of random actions, clipped to the box.
How these numbers were found:

{hows}
"""


def ids(name: str) -> list[str]:
    """Return the environment ids of a scenario."""
    return [scenarios.environment_id(name, mode) for mode in (None, *ACTIONS)]


def _observation(model: EnsembleModel) -> str:
    """Say what is observed."""
    features = 0 if model.context is None else model.context.features.shape[1]
    shape = model.n_states + 1 + AHEAD + features
    more = f", and {features} numbers for the context" if features else ""
    ahead = f"the {'prices' if model.coupling is None else 'limits or targets'} of the next {AHEAD} steps"
    return f"`Box(0, 1, ({shape},))`: the shares of the {model.n_states} states, the time that is left, {ahead}{more}"


def _actions(model: EnsembleModel) -> str:
    """Say which actions the modes take."""
    shapes = []
    for name in ACTIONS:
        space = actions.mode(name).space(model)
        size = f"{space.n} prices" if hasattr(space, "n") else " × ".join(map(str, space.shape or ()))  # a Discrete
        shapes.append(f"`{name}` {size}")
    return "; ".join(shapes) + ". Zero, or the price in the middle, leaves the loads alone"


def _reward(model: EnsembleModel) -> str:
    """Say what is earned and paid."""
    coupling = "" if model.coupling is None else ", less the cost of the limit or target"
    return (
        f"the utility of the states that are reached, less {model.discomfort_penalty:.3g} $ per nat of divergence from "
        f"the default behaviour{coupling}. In points it is what an action gains over leaving the loads alone from here "
        f'on; one point is {Row.of(model).point:.3g} $ per load. With `reward="dollars"` it is in dollars'
    )


def _filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _item(text: str) -> str:
    """Return an item of a list."""
    return textwrap.fill(
        text, 120, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def first_sentence(text: str) -> str:
    """Return a text up to its first full stop before a capital."""
    return re.split(r"(?<=[.:])\s+(?=[A-Z])", text)[0].rstrip(":")


def texts(root: Path) -> dict[Path, str]:
    """Return what every written file should hold."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    if BEGIN not in readme or END not in readme:
        raise ValueError(f"{root / 'README.md'} has no place for the scenarios; put {BEGIN} and {END} there.")
    before, rest = readme.split(BEGIN, 1)
    standings = Standings(read_results(root / "docs" / "leaderboard.json")[1])
    found = {
        root / "README.md": before + readme_section() + rest.split(END, 1)[1],
        root / "docs" / "scenarios.md": overview(standings),
        root / "dp_ensemble_env" / "scenarios" / scenarios.LISTING.name: listing(standings),
    }
    return found | {root / "docs" / "scenarios" / f"{name}.md": page(name) for name in scenarios.BUILT_IN}


# ------------------------------------------------------------------ pictures
def animation(name: str, path: Path) -> Path:
    """Play the optimal policy beside nobody's, in the episode that shows most contexts."""
    from dp_ensemble_env.agents import make_agent
    from dp_ensemble_env.envs.ensemble import EnsembleEnv
    from dp_ensemble_env.reporting.animation import animate

    env = EnsembleEnv(scenarios.make(name, shares_shown=True), action="tilt")  # pictures show what agents may not see
    nothing = np.zeros(env.action_space.shape or (), np.float32)

    def contexts(seed: int) -> int:
        seen = {env.reset(seed=seed)[1].get("context")}
        for _ in range(env.model.horizon):
            seen.add(env.step(nothing)[4].get("context"))
        return len(seen)

    seed = max(range(SEEDS if env.model.context is not None else 1), key=contexts)
    return animate(make_agent("standard", env), env, path, name="optimal", score=100.0, seed=seed)


def ranking(standings: Standings, path: Path) -> Path:
    """Draw the score of every agent with its interval, wide enough for a telephone and no wider."""
    from dp_ensemble_env.reporting.plots import save, subplots

    agents = sorted(standings.agents, key=lambda name: standings.overall(name).value)
    scores = [standings.overall(name) for name in agents]
    figure, axes = subplots(figsize=(4.6, 0.3 * len(agents) + 1.0), layout="constrained")
    for row, (name, one) in enumerate(zip(agents, scores, strict=True)):
        reach = [[one.value - one.low], [one.high - one.value]]
        axes.errorbar([one.value], [row], xerr=reach, fmt="o", color="C0", ms=5, capsize=3)
        left = one.value > 55  # the number stands on the side with more space
        place, side = (one.low - 3, "right") if left else (one.high + 3, "left")
        text = f"{one.value + 0.0:.0f}, ε = {standings.epsilon(name)}"
        axes.text(place, row, text, ha=side, va="center", fontsize=8, backgroundcolor="white")
        if name == HONEST:
            axes.axvline(one.value, color="0.6", ls=":", lw=1, zorder=0)
    axes.axvline(100, color="0.6", ls="--", lw=1)
    axes.set_yticks(range(len(agents)), [name.replace(", ", ",\n", 1) if len(name) > 18 else name for name in agents])
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(xlabel="score (100 = optimum, dotted = without data)", xlim=(-8, 108), xticks=range(0, 101, 25))
    return save(figure, path, dpi=150)


def draw(root: Path) -> None:
    """Write the pictures."""
    images = root / "docs" / "images" / "scenarios"
    images.mkdir(parents=True, exist_ok=True)
    for name in scenarios.BUILT_IN:
        animation(name, images / f"{name}.gif")
    ranking(Standings(read_results(root / "docs" / "leaderboard.json")[1]), images.parent / "leaderboard.png")


def main() -> None:
    """Write everything into a clone of the project."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="folder of the project")
    parser.add_argument("--pictures", action="store_true", help="draw the pictures, too")
    args = parser.parse_args()
    for path, text in texts(args.root).items():
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as stream:
            stream.write(text)
    if args.pictures:
        draw(args.root)


if __name__ == "__main__":
    main()
