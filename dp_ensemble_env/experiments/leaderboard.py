"""The leaderboard's protocol: agents × seeds × scenarios, scored on test instances.

*Planners* are made on each test instance, or on a release of it, and deployed on the truth. *Learners* are trained on
the training instances of the scenario and play test instances that they never saw. A *submission* is a stranger's file
with ``predict``, or with ``make(env)``, which is called once on the first training instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents.base import agent_kind
from dp_ensemble_env.experiments import runner
from dp_ensemble_env.experiments.compare import AgentSpec, Brought, impossible
from dp_ensemble_env.experiments.runner import PUBLIC, Cell, Row, Supplies, scenario_problem
from dp_ensemble_env.experiments.standings import NOTES, TITLES, Standings, markdown, tables
from dp_ensemble_env.scenarios.problem import draw_release
from dp_ensemble_env.tools.files import atomic_write
from dp_ensemble_env.tools.validation import check_choice, check_count

#: Planners that every leaderboard has.
PLANNERS = ("uncontrolled", "best-price", "myopic", "without-data", "standard")
#: Episodes on each instance where a learner meets chance; the optimum is played along the same contexts, so few do.
EPISODES = 200


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What is scored."""

    scenarios: tuple[str, ...] = ()
    """Only these; all unless given."""
    agents: tuple[str, ...] = PLANNERS
    """Planners, and learners to train, such as apg:action=tilt,steps=200000."""
    privacy: tuple[str, ...] = ("dirichlet:k=50,floor=0.05",)
    """Mechanisms; planners that use data are made on releases of each, too."""
    seeds: int = 3
    """Training runs of a learner, and releases of an instance."""
    instances: int = 10
    """The first so many test instances."""

    def cells(
        self, submission: Brought | None = None, action: str = "price", brought: Brought | None = None
    ) -> list[Cell]:
        """Return the cells, seed by seed; the submission acts in the action mode given."""
        for name in self.scenarios:
            check_choice(name, "scenario", scenarios.names())
        check_count(self.seeds, "seeds", 1)
        check_count(self.instances, "instances", 1, len(scenarios.instances("test")))
        names = self.scenarios or tuple(scenarios.names())
        for spec in self.privacy:  # refused before the work
            draw_release(spec, scenarios.make(names[0]), 0)
        makers = [
            (runner.seed_matters(made["agent"], made["privacy"]), {**self._place(name), **made})
            for name in names
            for made in (*self._agents(name, brought), *self._submitted(submission, action))
        ]
        if not makers:
            raise ValueError("there is no agent to score; name some with --agents, or submit one.")
        return [
            Cell(**made, seed=seed) for seed in range(self.seeds) for matters, made in makers if matters or not seed
        ]

    def _place(self, name: str) -> dict[str, Any]:
        numbers = tuple(scenarios.instances("test")[: self.instances])
        return {"problem": scenario_problem(name), "data": name, "split": "test", "instances": numbers,
                "episodes": EPISODES}  # fmt: skip

    def _agents(self, scenario: str, brought: Brought | None) -> list[dict[str, Any]]:
        """Return what decides each agent; learners see the true training instances, planners also releases."""
        made: list[dict[str, Any]] = []
        for spec in map(AgentSpec.parse, self.agents):
            learns, action = agent_kind(spec.name).learns, spec.action or "tilt"
            if reason := impossible(spec, None, action):
                raise ValueError(reason)
            about = {"agent": spec.name, "label": spec.label, "action": action, "privacy": None,
                     **spec.made(scenario, action, "mean-field")}  # fmt: skip
            if learns:  # scores along the way are looked at by nobody here, and cost time
                quarter = {"interval": max(1, about["steps"] // 4)} if "hyperparams" in about["settings"] else {}
                about |= {"training": len(scenarios.instances("train")), "settings": quarter | about["settings"]}
            made.append(about)
            if not learns and spec.name not in PUBLIC:
                made += [{**about, "privacy": text} for text in self.privacy]
        if brought is not None:
            for about in made:
                about["code"] = brought.digest_for(about["agent"], scenario, about["privacy"], about["action"])
        return made

    def _submitted(self, brought: Brought | None, action: str) -> list[dict[str, Any]]:
        if brought is None:
            return []
        about = {"training": 1, "action": action, "privacy": None}
        return [
            {**about, "agent": name, "label": name, "code": brought.digest_for(name)} for name in sorted(brought.names)
        ]


def read_submission(path: Path, allow_code: bool) -> Brought:
    """Read a submitted file, which needs consent: it is run once, to see that it has what it must."""
    if not allow_code:
        raise ValueError(f"{path} is a Python file, and scoring it runs its code; if you trust it, add --allow-code.")
    return Brought.read([path])


def recompute(row: Row, supplies: Supplies = Supplies()) -> Row:  # noqa: B008 - frozen
    """Compute a row of a results file again; equal digests mean equal results."""
    return runner.compute(row.cell, supplies)


# ------------------------------------------------------------------ the page of the documentation
def page(content: dict[str, Any], rows: list[Row]) -> str:
    """Write the page of the documentation."""
    parts = ["# Leaderboard", INTRO]
    for name, (headings, lines) in tables(Standings(rows)).items():
        parts += [f"## {TITLES[name]}", markdown(headings, lines).strip(), *([NOTES[name]] if name in NOTES else [])]
    software = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    made = (
        f"{len(rows)} rows, with {software}. SHA-256 of all rows: `{content['digest'][:16]}…`. Every row has its "
        "configuration, seed, scores, compute and digest in [`leaderboard.json`](leaderboard.json)."
    )
    how = ["## How this was made", f"`{content['command']}`", *filter(None, [content.get("note")]), made]
    return "\n\n".join([*parts, *how, SUBMIT.strip()]) + "\n"


def write_page(path: Path, content: dict[str, Any], rows: list[Row]) -> None:
    """Write the page of the documentation to a file."""
    text = page(content, rows)
    with atomic_write(path) as stream:
        stream.write(text)


INTRO = """
This page is written by `dp-ensemble leaderboard --page docs/leaderboard.md` from the results file; do not edit it.
Agents made with *the truth* or *a release* plan on each test instance and are scored exactly. Agents made with *other
instances* are trained on the training instances and play test instances that they never saw. The plan `without-data`
uses no private data (ε = 0): a private method is worthwhile only above this score.
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
rows. Send it together with the file; the recipient runs the same command and compares the digests.
"""
