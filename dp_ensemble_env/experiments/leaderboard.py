"""The leaderboard's protocol: agents × seeds × scenarios on an open and a private track, with frozen budgets.

**Open track.** A learner is trained on the training instances of a scenario, one drawn at each reset, and plays all
test instances.

**Private track.** Cell s = 0 … 4 is test instance s with one release (δ = 1e-6, 1,000 participants, seed s) and learner
seed s. An agent plans or trains on that release and is deployed on the true behaviour of that instance. The same agent
also plans or trains on the truth and on the public guess. So the loss has three parts: *learning* = 100 - truth,
*privacy* = truth - release, *data* = release - guess.

Agents are grouped by their source: the truth, a release, other instances, or nothing. Bounds in hindsight are lines and
never ranked. Budgets are frozen in `LINES`; nothing was tuned for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import agent_kind
from dp_ensemble_env.experiments import runner
from dp_ensemble_env.experiments.compare import Brought
from dp_ensemble_env.experiments.runner import Cell, Supplies, scenario_problem
from dp_ensemble_env.tools.validation import check_choice, check_count

#: Finished rows, which come with the package.
RECORD = Path(__file__).with_name("leaderboard.json")
#: Stands in cells for the version of the package: changes when a row would come out differently.
VERSION = "leaderboard-1"
OPEN, PRIVATE, BOUNDS, STUDY = "open", "private", "bounds", "study"
#: Episodes on each instance where chance plays a part; the optimum is played along the same contexts, so few do.
EPISODES = 200
#: Cells of the private track, and participants of each release.
CELLS, PARTICIPANTS = 5, 1000
#: Privacy budgets of the private track; the first is for everything, the second for planners and PPO.
EPSILONS = (1, 4)
#: The sample-and-noise mechanism of the paper, at its own terms.
PAPER = "dirichlet:k=50,floor=0.05"
GUESS = "public"
#: A scenario with a problem beside it that differs in what is shown.
TWINS = {"front": {"shown": "all"}}
#: Scenarios with a cost of the mean power, where a plan that looks at the shares is another one.
COUPLED = ("feeder", "tracking", "depot")
#: Scenarios on which other action modes are learned, too.
STUDIED = ("spot", "thermostats", "front", "depot")
STAGES = ("planners", "ppo", "sac", "rest")
PPO = {"n_envs": 8, "n_steps": 256}


def release_by(mechanism: str, epsilon: float = EPSILONS[0]) -> str:
    """Return the spec of a release of the private track."""
    return f"{mechanism}:epsilon={epsilon:g},participants={PARTICIPANTS}"


@dataclass(frozen=True, kw_only=True)
class Line:
    """An agent of the protocol, with its settings and cells."""

    agent: str
    stage: str  #: one of `STAGES`, in whose order rows are computed
    track: str  #: `OPEN`, `PRIVATE`, or what is no track: `BOUNDS`, `STUDY`
    label: str = ""
    action: str = "tilt"
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    #: Training runs of the open track; the private track has a cell for each of the first so many test instances.
    seeds: int = CELLS
    privacy: str | None = None
    only: tuple[str, ...] = ()  #: scenarios; all unless given
    twin: bool = False  #: whether twins of scenarios are played, instead of scenarios

    @property
    def late(self) -> bool:
        """Whether its cells come after those of the other lines, seed by seed."""
        return self.privacy == release_by("adaptive", EPSILONS[1])

    def cells(self, scenario: str) -> Iterator[Cell]:
        """Return the cells of a scenario, seed by seed."""
        if self.only and scenario not in self.only:
            return
        name = f"{scenario} (twin)" if self.twin else scenario
        learns = agent_kind(self.agent).learns
        whole, train = tuple(scenarios.instances("test")), len(scenarios.instances("train"))
        for seed in range(self.seeds):
            about: dict[str, Any] = {"instances": whole, "training": train * learns}
            if self.agent == "z-learning":  # it learns on one model
                about["training"] = 1
            if self.track in (PRIVATE, BOUNDS):
                about = {"instances": (seed,) if self.track == PRIVATE else whole[:CELLS]}
            yield Cell(
                problem=scenario_problem(scenario, **(TWINS[scenario] if self.twin else {})), data=name, split="test",
                agent=self.agent, label=self.label or self.agent, action=self.action, settings=self.settings,
                steps=self.steps, privacy=self.privacy, episodes=EPISODES, seed=seed, version=VERSION,
                keep=learns and not seed and self.agent in ("ppo", "apg") and not self.twin
                and (self.track, self.privacy) in ((OPEN, None), (PRIVATE, release_by("adaptive"))), **about,
            )  # fmt: skip


def track_of(cell: Cell) -> str:
    """Return the track that a cell belongs to."""
    if cell.knows == "hindsight":
        return BOUNDS
    return PRIVATE if len(cell.instances) == 1 else OPEN


def _planners() -> list[Line]:
    simple = {"uncontrolled": "tilt", "myopic": "tilt", "without-data": "tilt", "standard": "policy"}
    lines = [Line(agent=name, stage="planners", track=OPEN, seeds=1, action=mode) for name, mode in simple.items()]
    lines += [Line(agent=name, stage="planners", track=PRIVATE, action=mode) for name, mode in simple.items()]
    lines += [
        Line(agent=name, stage="planners", track=BOUNDS, seeds=1, action=mode)
        for name, mode in (("best-price", "price"), ("open-loop", "policy"), ("blind", "policy"))
    ]
    on = [release_by(name, epsilon) for epsilon in EPSILONS for name in ("adaptive", "gaussian", "posterior")]
    lines += [Line(agent="standard", stage="planners", track=PRIVATE, privacy=spec) for spec in (*on, PAPER)]
    lines += [
        Line(agent=name, stage="planners", track=PRIVATE, privacy=PAPER, action="policy",
             only=("campus-event", "campus-day"))
        for name in ("taylor", "digamma", "average-expansion")
    ]  # fmt: skip
    rolling = Line(agent="rolling", stage="planners", track=PRIVATE, only=COUPLED)
    return lines + [replace(rolling, privacy=release_by("adaptive", epsilon)) for epsilon in EPSILONS]


def _learners() -> list[Line]:
    plain: dict[str, Any] = {"tuned": False, "interval": 10_000}
    ppo = Line(agent="ppo", stage="ppo", track=OPEN, action="signals", steps=100_000,
               settings={**plain, "hyperparams": PPO})  # fmt: skip
    apg = Line(agent="apg", stage="rest", track=OPEN, action="signals", steps=100_000, seeds=3,
               settings={"interval": 10_000})  # fmt: skip
    sides = (release_by("adaptive"), None, GUESS)
    recurrent = replace(ppo, agent="recurrent-ppo", stage="rest", steps=50_000, seeds=3, only=("front",),
                        settings={**plain, "hyperparams": {"n_envs": 8}})  # fmt: skip
    dqn = {**plain, "hyperparams": {"n_envs": 1}}
    return [
        ppo,
        *(replace(ppo, track=PRIVATE, privacy=spec) for spec in sides),
        replace(ppo, track=PRIVATE, privacy=release_by("adaptive", EPSILONS[1])),
        replace(ppo, agent="sac", stage="sac", steps=20_000, seeds=3, settings={**plain, "hyperparams": {"n_envs": 8}}),
        apg,
        *(replace(apg, track=PRIVATE, privacy=spec) for spec in sides),
        recurrent,
        replace(recurrent, twin=True),
        replace(ppo, stage="rest", seeds=3, only=("front",), twin=True),
        replace(ppo, agent="dqn", stage="rest", action="discrete", steps=50_000, seeds=3, settings=dqn),
        Line(agent="z-learning", stage="rest", track=OPEN, seeds=3, steps=100_000, only=("campus-event",)),
        Line(agent="cloning", stage="rest", track=OPEN, action="signals", seeds=3, steps=20_000),
        *(replace(ppo, stage="rest", track=STUDY, label=f"ppo, {mode}", action=mode, seeds=3, only=STUDIED)
          for mode in ("price", "tilt")),
    ]  # fmt: skip


LINES = (*_planners(), *_learners())


def quick(line: Line) -> Line | None:
    """Return what of a line is played by --quick: planners, in private two cells each, and one seed of open PPO."""
    if line.stage == "planners":
        return replace(line, seeds=min(line.seeds, 2))
    return replace(line, seeds=1) if line.stage == "ppo" and line.track == OPEN else None


def cells(names: Iterable[str] = (), lines: Iterable[Line] | None = None, brought: Brought | None = None) -> list[Cell]:
    """Return the cells of the protocol in the order of computation: by stage, then by seed, scenario and line."""
    chosen = _chosen(names)
    ranked = [
        (STAGES.index(line.stage), cell.seed, line.late, place, number, cell)
        for number, line in enumerate(LINES if lines is None else lines)
        for place, name in enumerate(chosen)
        for cell in line.cells(name)
    ]
    ordered = [cell for *_, cell in sorted(ranked, key=lambda entry: entry[:5])]
    if brought is not None:  # the digest of imported files is part of what uses something that they bring
        used = [(cell.agent, cell.data, cell.privacy, cell.action) for cell in ordered]
        ordered = [replace(cell, code=brought.digest_for(*of)) for cell, of in zip(ordered, used, strict=True)]
    return list({cell.key: cell for cell in ordered}.values())


def _chosen(names: Iterable[str]) -> tuple[str, ...]:
    chosen = tuple(names) or tuple(scenarios.names())
    for name in chosen:
        check_choice(name, "scenario", scenarios.names())
    return chosen


# ------------------------------------------------------------------ a stranger's agent
def read_submission(path: Path, allow_code: bool) -> tuple[str, str]:
    """Return the name and the text of a submitted file, which needs consent, since scoring it runs its code."""
    if not allow_code:
        raise ValueError(f"{path} is a Python file, and scoring it runs its code; if you trust it, add --allow-code.")
    try:
        return path.stem, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {path}: {error}; give a Python file.") from error


def submitted(
    name: str,
    source: str,
    action: str,
    names: Iterable[str] = (),
    seeds: int = 1,
    cells_each: int = CELLS,
    brought: Brought | None = None,
) -> tuple[list[Cell], Supplies]:
    """Return the cells of a submission on both tracks, and its text, which is run in a process of its own."""
    check_count(seeds, "--seeds", 1)
    check_count(cells_each, "cells", 1, CELLS)
    sources = {} if brought is None else brought.sources
    about: dict[str, Any] = {"agent": name, "label": name, "action": action, "split": "test", "episodes": EPISODES,
                             "version": VERSION, "code": runner.digest_of([source, dict(sources)])}  # fmt: skip
    whole, train = tuple(scenarios.instances("test")), len(scenarios.instances("train"))
    planned = []
    for scenario in _chosen(names):
        place = {**about, "problem": scenario_problem(scenario), "data": scenario}
        planned += [Cell(**place, instances=whole, training=train, seed=seed) for seed in range(seeds)]
        planned += [
            Cell(**place, instances=(s,), seed=s, privacy=spec)
            for s in range(cells_each)
            for spec in (release_by("adaptive"), None, GUESS)
        ]
    return planned, Supplies(code=sources, apart={name: source})
