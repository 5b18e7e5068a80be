"""The documentation of the scenarios, written from their cards, their recorded probes and the recorded suite.

``make scenario-pages`` writes the table in the README, a page for each scenario with its picture, and the page that
compares them. A test keeps the files equal to what this module writes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env import scenarios
from dp_ensemble_env._files import atomic_write
from dp_ensemble_env.experiments.capabilities import DEMANDING
from dp_ensemble_env.experiments.probes import Probes, recorded
from dp_ensemble_env.experiments.suite_report import NOTE, capability_table, definitions, markdown, table
from dp_ensemble_env.experiments.suite_report import recorded as recorded_suite

#: Between these lines of the README stands the table.
BEGIN, END = "<!-- scenarios: written by make scenario-pages -->", "<!-- end of scenarios -->"
MODES = ("price", "discrete", "tilt", "policy")
#: When of an episode the picture is taken, and how many seeds are looked at for an episode with many contexts.
MOMENT, SEEDS = 0.75, 20
READING = (
    "Scores of the instance that the ids play, 0 = uncontrolled, 100 = optimum, computed exactly in the mean field. "
    "*Open loop*: the best tilts by the clock alone, blind to the context. *Public guess*: the best plan made without "
    "data, in hindsight. In the columns of the action modes: the best action that is held throughout, and the ceiling. "
    "That is the optimum itself for tilt and policy, and for price and discrete the best prices by time and context "
    "that were found; who also looks at where the loads are may gain a point more. So a learner has learnt something "
    "where it is above the first number, and everything at the second. A scenario tests *feedback* where the open loop "
    f"leaves {100 - DEMANDING:g} points or more, *data* where the public guess does, and *constraint* where the "
    "aggregate has a limit or a target."
)
#: The same in short, for the README.
SHORT = (
    "Exact scores of the instance that the ids play. *Open loop*: the best plan by the clock alone. *Public guess*: "
    "the best plan made without data. Action modes: the best constant action / the best possible. A scenario tests "
    f"*feedback* where the open loop leaves {100 - DEMANDING:g} points or more, *data* where the public guess does, "
    "and a *constraint* where there is a limit or a target. [More](docs/scenarios.md)."
)


# ------------------------------------------------------------------ tables
def held(found: Probes, mode: str) -> str:
    """Return the scores of the best constant action of a mode and of its ceiling, as in ``94.2 / 98.2``."""
    ceiling = {"price": found.price_ceiling, "discrete": found.discrete_ceiling, "tilt": found.tilt_ceiling}
    return f"{_number(getattr(found, f'constant_{mode}'))} / {_number(ceiling.get(mode, 100.0))}"


def needs(name: str, found: Probes) -> str:
    """Say what a scenario tests."""
    words = [
        word for word, score in (("feedback", found.open_loop), ("data", found.public_guess)) if score <= DEMANDING
    ]
    return ", ".join([*words, *(["constraint"] if scenarios.make(name).coupling is not None else [])]) or "–"


def probe_table(link: str) -> str:
    """Return the table of all built-in scenarios; `link` is where their pages are."""
    headings = ["scenario", "tests", "open loop", "public guess", *MODES]
    rows = []
    for name in scenarios.BUILT_IN:
        found = recorded(name)[0]
        numbers = [_number(found.open_loop), _number(found.public_guess), *(held(found, mode) for mode in MODES)]
        rows.append([f"[{name}]({link}{name}.md)", needs(name, found), *numbers])
    return markdown(headings, rows)


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value + 0.0:.1f}".replace("-", "−")


# ------------------------------------------------------------------ pages
def readme_section() -> str:
    """Return what stands between the marks in the README."""
    return f"{BEGIN}\n\n{probe_table('docs/scenarios/')}\n{_filled(SHORT)}\n\n{END}"


def overview() -> str:
    """Return the page on all scenarios."""
    suite = recorded_suite()
    stories = "\n".join(
        _item(
            f"[{scenarios.card(name).title}](scenarios/{name}.md), `{scenarios.environment_id(name)}`: "
            f"{first_sentence(scenarios.card(name).story)}"
        )
        for name in scenarios.BUILT_IN
    )
    given = "".join(f" {title}: {words}." for title, words in suite.learners.items())
    how = _filled(f"{NOTE} Made by `{suite_command()}`.{given}")
    meanings = "\n".join(_item("*{}*:{}".format(*text.split(":", 1))) for text in definitions(suite))
    pictures = "\n".join(f"![What {agent} can do]({_capability_picture(agent)})" for agent in suite.agents)
    return f"""<!-- Written by make scenario-pages. -->
# The scenarios

Nine control problems, each with an environment id, an exact optimum, instances by number in disjoint sets for training,
validation and test, and a card (`dp-ensemble scenarios NAME`). Ids exist for every action mode, such as
`dp_ensemble/Spot-tilt-v1`; the one without a mode takes prices. `population=`, `instance=`, `split=` and `privacy=` are
arguments. A version is frozen: whatever changes the numbers of a scenario gets a new one.

{stories}

## What simple controllers score

{probe_table("scenarios/")}
{_filled(READING)}

`dp-ensemble scenarios --probe` computes them again.

## What agents score on instances that they never saw

{markdown(*table(suite))}
{how}

## What agents can do

{markdown(*capability_table(suite))}
{meanings}

A dash: not measured. The pictures show the same numbers, 0 for the reference and 100 for the optimum; lines are 95 %
intervals.

{pictures}

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
        ("Contexts", "" if model.context is None else ", ".join(model.context.names)),
        ("Size", f"{size}, {model.buildings:,} loads"),
        ("Private", card.private),
        ("Sources", card.sources),
        ("Environment", ", ".join(f"`{id}`" for id in ids(name))),
    ]
    shown = "\n".join(_item(f"**{label}**: {text}") for label, text in facts if text)
    found = recorded(name)
    keys = ("open_loop", "public_guess", "myopic", "random_search")
    headings = ["instance", "open loop", "public guess", "myopic", "random", *MODES]
    rows = [
        [str(i), *(_number(getattr(one, key)) for key in keys), *(held(one, mode) for mode in MODES)]
        for i, one in enumerate(found)
    ]
    hows = "\n".join(f"- {key.replace('_', ' ')}: {text}" for key, text in found[0].how.items())
    return f"""<!-- Written by make scenario-pages. -->
# {card.title}

{_filled(card.story)}

![A frame of {name} under the optimal policy](../images/scenarios/{name}.png)

*The optimal policy in the mean field, three quarters into an episode.*

{shown}

```python
import gymnasium

env = gymnasium.make("dp_ensemble_env:{scenarios.environment_id(name)}")
```

## Probes

{markdown(headings, rows)}
0 = uncontrolled, 100 = optimum. Action modes: best constant action / ceiling. *Random* is the best of 100 random
sequences. How the numbers of instance 0 were found:

{hows}

## What learners reach

{_learners(card)}"""


def ids(name: str) -> list[str]:
    """Return the environment ids of a scenario."""
    return [scenarios.environment_id(name), *(scenarios.environment_id(name, mode) for mode in MODES)]


def _learners(card: scenarios.Card) -> str:
    if not card.learners:
        return "Not recorded yet.\n"
    rows = [
        [agent, of["given"], f"{_number(of['iqm'])} [{_number(of['low'])}, {_number(of['high'])}]"]
        for agent, of in card.learners.items()
    ]
    words = "\nInterquartile mean over 20 test instances, with its 95 % bootstrap interval.\n"
    return markdown(["learner", "given", "score on test instances"], rows) + words


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


def suite_command() -> str:
    """Return the command that recorded the suite, without where it was written."""
    command: str = json.loads(scenarios.SUITE.read_text(encoding="utf-8"))["command"]
    return re.sub(r" --(record|output \S+)", "", command)


def texts(root: Path) -> dict[Path, str]:
    """Return what every written file should hold."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    if BEGIN not in readme or END not in readme:
        raise ValueError(f"{root / 'README.md'} has no place for the scenarios; put {BEGIN} and {END} there.")
    before, rest = readme.split(BEGIN, 1)
    found = {
        root / "README.md": before + readme_section() + rest.split(END, 1)[1],
        root / "docs" / "scenarios.md": overview(),
    }
    return found | {root / "docs" / "scenarios" / f"{name}.md": page(name) for name in scenarios.BUILT_IN}


# ------------------------------------------------------------------ pictures
def frame(name: str) -> NDArray[np.uint8]:
    """Play the optimal policy and return a frame, of the episode that shows most contexts."""
    import gymnasium

    from dp_ensemble_env.agents import make_agent

    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    env = gymnasium.make(scenarios.environment_id(name, "tilt"), render_mode="rgb_array")
    core: Any = env.unwrapped
    agent, steps = make_agent("standard", env), int(MOMENT * core.model.horizon)

    def play(seed: int) -> int:
        observation, info = env.reset(seed=seed)
        seen = {info.get("context")}
        for _ in range(steps):
            observation, _, _, _, info = env.step(agent.predict(observation, deterministic=True)[0])
            seen.add(info.get("context"))
        return len(seen)

    play(max(range(SEEDS if core.model.context is not None else 1), key=play))
    picture: NDArray[np.uint8] = env.render()  # type: ignore[assignment]
    env.close()
    return picture


def _capability_picture(agent: str) -> str:
    from dp_ensemble_env.experiments.suite_figures import picture_name

    return f"images/suite/{picture_name(agent)}"


def draw(root: Path) -> None:
    """Write the pictures."""
    from PIL import Image

    from dp_ensemble_env.experiments.suite_figures import draw_all

    images = root / "docs" / "images"
    for folder in (images / "scenarios", images / "suite"):
        folder.mkdir(parents=True, exist_ok=True)
    for name in scenarios.BUILT_IN:
        coloured = Image.fromarray(frame(name)).quantize(64)
        coloured.save(images / "scenarios" / f"{name}.png", optimize=True)
    draw_all(recorded_suite(), images / "suite")


def main() -> None:
    """Write everything into a clone of the project."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="folder of the project")
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
