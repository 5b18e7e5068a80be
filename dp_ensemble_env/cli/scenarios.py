"""`dp-ensemble scenarios`: the built-in problems, and what simple controllers score in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tyro.conf import Positional

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli.options import keeping
from dp_ensemble_env.experiments.probes import Mode, Probes, probe, recorded
from dp_ensemble_env.reporting.tables import number_text, write_csv
from dp_ensemble_env.tools.console import Progress, table
from dp_ensemble_env.tools.files import check_writable, write_json
from dp_ensemble_env.tools.validation import check_count

#: Columns of the tables of probes: heading and attribute.
COLUMNS = {"open loop": "open_loop", "blind": "blind", "without data": "public_guess", "myopic": "myopic"}
OF_MODES = {
    "constant": "constant", "by context": "by_context", "ceiling": "ceiling",
    "ones": "ones", "random 0.5": "half", "random 1": "one",
}  # fmt: skip
LIST = ("name", "load", "tests", "open loop", "without data", "PPO")
LIST_NOTE = (
    "0 = uncontrolled, 100 = optimum. Open loop: the best plan by time alone. Without data: the plan from "
    "public knowledge. PPO: by the leaderboard's protocol, on test instances."
)
NOTE = (
    "0 = uncontrolled, 100 = optimum; exact, in the mean field. Open loop: best tilts by time alone. Blind: by time "
    "and context shown, without memory or shares. Without data: plan from a public guess. Constant, by context, "
    "ceiling: the best single action, the best for each context, and the best for each time and context. Random: mean "
    "over random actions with that standard deviation."
)


@dataclass(frozen=True)
class Scenarios:
    """List the built-in problems, or show the card of one.

    Commands take a problem by name (--scenario NAME); in Python, use scenarios.make(NAME). Each problem has an
    environment id.

    With --probe, compute the scores of simple controllers: the best open loop (tilts by time alone), the plan without
    data, a myopic tilt, and in every action mode the best constant action, the ceiling and random actions. 0 is
    uncontrolled, 100 the optimum.

    Examples
    --------
      dp-ensemble scenarios
      dp-ensemble scenarios campus-event
      dp-ensemble scenarios spot call --probe --instances 3 --json probes.json
    """

    names: Positional[tuple[str, ...]] = ()
    """Scenarios to show (default: list all)."""
    probe: bool = False
    """Compute the probes of the scenarios."""
    instances: int = 1
    """With --probe, number of training instances of each."""
    effort: float = 1.0
    """With --probe, factor on the iterations of the searches."""
    json: Path | None = None
    """With --probe, write the probes to this file as well."""
    csv: Path | None = None
    """With --probe, write the scores to this file as well."""

    def run(self) -> int:
        """Print the list, cards or probes."""
        if self.probe:
            return self.run_probes()
        if self.json or self.csv:
            raise ValueError("--json and --csv write the probes; give --probe too.")
        if not self.names:
            table("Scenarios", LIST, map(line, scenarios.names()), notes=(LIST_NOTE, "Show one: scenarios NAME."))
        for name in self.names:
            table(f"{name}: {scenarios.card(name).title}", ("", ""), card(name))
        return 0

    def run_probes(self) -> int:
        """Compute probes, print and write them."""
        names = self.names or tuple(scenarios.names())
        for name in names:
            scenarios.card(name)  # a misspelt name is refused before anything is computed
        check_count(self.instances, "--instances", maximum=1000)
        for path in filter(None, (self.json, self.csv)):
            check_writable(path)
        scores: list[tuple[str, int, Probes]] = []
        with Progress("probes") as monitor, keeping(lambda: "nothing was written"):
            for name in names:
                for instance in range(self.instances):
                    model = scenarios.make(name, instance=instance)
                    scores.append((name, instance, probe(model, effort=self.effort, monitor=monitor)))
        titled = [(name if self.instances == 1 else f"{name} {i}", of) for name, i, of in scores]
        table("Probes", ("scenario", *COLUMNS), [(name, *_shown(of, COLUMNS)) for name, of in titled])
        rows = [(name, mode, *_shown(one, OF_MODES)) for name, of in titled for mode, one in of.modes.items()]
        table("Action modes", ("scenario", "action", *OF_MODES), rows, notes=(NOTE,))
        flat: list[dict[str, Any]] = [{"scenario": name, "instance": i, **of.to_dict()} for name, i, of in scores]
        if self.json:
            write_json(self.json, flat)
        if self.csv:
            keys = [key for key in flat[0] if key not in ("how", "modes", "ladder")]
            modes = [(mode, key) for mode in flat[0]["modes"] for key in Mode._fields]
            lines = [[*(row[key] for key in keys), *(row["modes"][mode][key] for mode, key in modes)] for row in flat]
            write_csv(self.csv, [*keys, *(f"{mode} {key}" for mode, key in modes)], lines)
        return 0


def line(name: str) -> list[str]:
    """Return a scenario's line in the list of all."""
    known, listed = recorded(name), scenarios.listing(name)
    scores = [known[0].open_loop, known[0].public_guess] if known else [np.nan, np.nan]
    numbers = [number_text(score, 1) for score in (*scores, listed.get("ppo", np.nan))]
    return [name, scenarios.card(name).load, listed.get("tests", "–"), *numbers]


def card(name: str) -> list[tuple[str, str]]:
    """Return the facts about a scenario, by subject."""
    about, model = scenarios.card(name), scenarios.make(name)
    facts = f"{model.n_states} states, {model.horizon} decisions of {60 * model.step_hours:g} minutes"
    rows = [
        ("story", about.story),
        ("states", about.states),
        ("contexts", "" if model.context is None else model.context.words),
        ("size", f"{facts}, {model.loads} loads"),
        ("private", about.private),
        ("sources", about.sources),
        ("environment", scenarios.environment_id(name)),
    ]
    if known := recorded(name):
        rows += _probes(known[0])
    return [(subject, text) for subject, text in rows if text]


def _shown(of: Any, columns: dict[str, str]) -> list[str]:
    return [f"{getattr(of, key):.1f}" for key in columns.values()]


def _probes(of: Probes) -> list[tuple[str, str]]:
    blind = f", blind {of.blind:.1f}" if of.blind < 100.0 else ""
    needs = f"best open loop {of.open_loop:.1f}{blind}, without data {of.public_guess:.1f}, myopic {of.myopic:.1f}"
    modes = [
        (f"{name} mode", f"constant {one.constant:.1f}, by context {one.by_context:.1f}, ceiling {one.ceiling:.1f}")
        for name, one in of.modes.items()
    ]
    ladder = [("memory", ", ".join(f"{name} {score:.1f}" for name, score in of.ladder.items()))]
    return [("probes", f"{needs} (0 uncontrolled, 100 optimum)"), *(ladder if of.ladder else []), *modes]
