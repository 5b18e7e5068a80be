"""Compute the results that two pages of the documentation show, and write their tables and figures.

    python scripts/tables.py run learning [FOLDER]      # cells of the runner, kept in FOLDER; resumes where it stopped
    python scripts/tables.py write learning [FOLDER]    # records the finished cells, and writes the page from them

learning
    trains others' learners at their own defaults on every scenario: signals and points, and no argument but the
    environment. They learn on the first training instance, or on all twenty (one drawn at each reset, as with
    ``instance=None``), and are scored there and on test instances 0 to 4.
privacy
    measures what a participant's protection is worth on every scenario. A cell is one release seed on some test
    instances: a plan on the release of simulated participants, deployed on the truth as a tilt. The agent `sample`
    plans on the participants' own pooled estimate, which protects nobody. A learner's cell is one training: on the
    truth, on a release, or on the public guess.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import make_agent, register_agent
from dp_ensemble_env.experiments import runner
from dp_ensemble_env.experiments.backends import Place
from dp_ensemble_env.experiments.compare import AgentSpec
from dp_ensemble_env.experiments.deployment import sample_matrix
from dp_ensemble_env.experiments.probes import recorded
from dp_ensemble_env.experiments.runner import Cell, Row, Store, Supplies
from dp_ensemble_env.experiments.standings import markdown
from dp_ensemble_env.privacy import mechanism
from dp_ensemble_env.privacy.mechanisms.adaptive import FLOORS
from dp_ensemble_env.privacy.mechanisms.curvature import Problem
from dp_ensemble_env.reporting.plots import BLUE, ORANGE, look, save, subplots

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- {}: scripts/tables.py -->", "<!-- end of {} -->"


@dataclass(frozen=True)
class Study:
    """What is computed, and how a page shows it."""

    page: Path
    record: Path
    cells: Callable[[], Iterable[Cell]]
    tables: dict[str, Callable[[Sequence[Row]], str]]
    """The tables of the page by the name of their place."""
    draw: Callable[[Sequence[Row]], Path]
    supplies: Callable[[], Supplies] = Supplies

    def rows(self) -> list[Row]:
        """Return the recorded rows."""
        return runner.read_results(self.record)[1]


# ------------------------------------------------------------------ learning
#: Agent, steps, training instances, seeds and scenarios.
RUNS = (
    ("ppo", 100_000, 1, (0, 1, 2), scenarios.BUILT_IN),
    ("ppo", 200_000, 20, (0,), scenarios.BUILT_IN),
    ("sac", 20_000, 1, (0,), ("spot", "thermostats", "tracking")),
)


def learning_cells() -> list[Cell]:
    """Return all cells, seed by seed."""
    cells = []
    for agent, steps, training, seeds, names in RUNS:
        spec = AgentSpec.parse(f"{agent}:n_envs=1,steps={steps}")  # one environment, as in the library's examples
        for seed in seeds:
            for name in names:
                made = spec.made(name, "signals", "mean-field")
                of: dict[str, Any] = {"problem": runner.scenario_problem(name), "data": name, "seed": seed}
                of |= {"agent": agent, "label": agent, "training": training, "action": "signals"}
                cells.append(Cell(split="test", instances=tuple(range(5)), **of, **made))
    return sorted(cells, key=lambda cell: (cell.seed, cell.agent, cell.training, cell.data))


def trained(row: Row) -> float:
    """Return the score on the first training instance."""
    return row.made[0].score


def learning_table(rows: Sequence[Row]) -> str:
    """Return what was reached, a line a scenario."""
    lines = []
    for name in scenarios.BUILT_IN:
        of = [row for row in rows if row.cell.data == name]
        one = sorted((r for r in of if r.cell.agent == "ppo" and r.cell.training == 1), key=lambda r: r.cell.seed)
        many = [row for row in of if row.cell.training > 1]
        sac = [row for row in of if row.cell.agent == "sac"]
        lines.append([
            name,
            ", ".join(f"{trained(row):.1f}" for row in one) or "–",
            f"{min(min(row.scores) for row in one):.1f}" if one else "–",
            " ".join(f"{score:.0f}" for score in many[0].scores) if many else "–",
            f"{np.mean(many[0].scores):.1f}" if many else "–",
            f"{trained(sac[0]):.1f}" if sac else "–",
        ])  # fmt: skip
    headings = ["scenario", "PPO, by seed", "lowest on test 0–4", "PPO, 20 instances: test 0–4", "mean", "SAC, 20,000"]
    return markdown(headings, lines).rstrip()


@look()
def draw_learning(rows: Sequence[Row]) -> Path:
    """Draw the curves of PPO on every scenario, beside a plan without data."""
    figure, axes = subplots(6, 2, figsize=(5, 9.6), sharex=True, sharey=True)
    for name, ax in zip(scenarios.BUILT_IN, axes.flat, strict=False):
        for row in rows:
            if row.cell.data == name and row.cell.agent == "ppo" and row.cell.training == 1:
                steps, scores = zip(*row.curve, strict=True)
                ax.plot(np.array(steps) / 1000, scores, color=f"C{row.cell.seed}", label=f"seed {row.cell.seed}")
        ax.axhline(100, color="0.7", linewidth=0.8, label="optimum: 100")
        without = recorded(name)[0].public_guess
        ax.axhline(without, color="0.4", linewidth=0.8, linestyle="--")
        height = without - 11 if without > 85 else without + 2
        ax.text(99, height, f"without data: {without:.0f}", ha="right", fontsize=8)
        ax.set(title=name, ylim=(-20, 105))
    for ax in axes.flat[len(scenarios.BUILT_IN) :]:
        ax.axis("off")
    axes[-2, -1].tick_params(labelbottom=True)
    axes[-1, -1].legend(*axes[0, 0].get_legend_handles_labels(), loc="center")
    figure.supxlabel("thousand steps")
    figure.supylabel("score: 0 uncontrolled, 100 optimum")
    return save(figure, DOCS / "images" / "learning.png", dpi=150)


# ------------------------------------------------------------------ privacy
#: In the order in which they are measured; campus-day takes half a minute a release.
SCENARIOS = (*"thermostats vehicles feeder tracking call spot pool-pumps campus-event campus-day front depot".split(),)
#: Participants and epsilon, test instances, and releases on each.
MAIN, OTHERS = (1000, 1.0, 10, 4), ((300, 1.0, 5, 1), (1000, 4.0, 5, 1), (300, 4.0, 5, 1))
#: What the two scenarios declare, and what releases them without it: with ties undone there are too many cells.
UNDECLARED = (("tracking", "support", "adaptive"), ("campus-day", "ties", "gaussian"))
COLUMNS = tuple((n, epsilon) for n, epsilon, *_ in (MAIN, *OTHERS))
#: Stable-Baselines3's PPO at its defaults; the 2,048 steps before each update are taken in eight environments.
LEARNER = {"hyperparams": {"n_envs": 8, "n_steps": 256}, "interval": 25_000}
#: Steps of a training, and where three seeds are trained instead of one.
STEPS, SEEDS = 100_000, {"spot": 3, "call": 3, "thermostats": 3}
#: Of the two lines of the picture.
STYLES = ({"color": ORANGE, "marker": "o"}, {"color": BLUE, "marker": "s"})
KNOWLEDGE = {"the truth": None, "a release": "adaptive:epsilon=1,participants=1000", "the public guess": "public"}


@register_agent("sample")
def make_sample(env: Any, participants: int) -> Any:
    """Plan on the pooled estimate of the participants that a release would be drawn from."""
    model = env.unwrapped.model
    fleet: Any = mechanism(f"adaptive:epsilon=1,participants={participants}").data_of(model)  # type: ignore[attr-defined]
    estimate = sample_matrix(fleet, model.guess)
    return make_agent("standard", env, release=mechanism("public").release(model.default, guess=estimate))


def privacy_cells() -> Iterator[Cell]:
    """Yield all cells, the most wanted ones first: releases, then trainings."""

    def of(problem: dict[str, Any], setting: tuple[int, float, int, int], kind: str = "adaptive") -> Iterator[Cell]:
        n, epsilon, many, seeds = setting
        where: dict[str, Any] = {"problem": problem, "split": "test", "instances": tuple(range(many))}
        for seed in range(seeds):
            spec = f"{kind}:epsilon={epsilon:g},participants={n}"
            yield Cell(agent="standard", privacy=spec, seed=seed, data=problem["scenario"], **where)
        if epsilon == 1.0 and n == MAIN[0] and not problem["overrides"]:
            yield Cell(agent="sample", settings={"participants": n}, data=problem["scenario"], **where)

    for name in SCENARIOS:
        yield from of(runner.scenario_problem(name), MAIN)
    for setting in OTHERS:
        for name in SCENARIOS:
            yield from of(runner.scenario_problem(name), setting)
    for name, field, kind in UNDECLARED:
        yield from of(runner.scenario_problem(name, **{field: None}), (*MAIN[:2], 5, 1), kind)
    yield from trainings()


def trainings() -> Iterator[Cell]:
    """Yield the trainings of the learner on the first test instance, the most wanted ones first."""
    for name in (*SEEDS, *(name for name in SCENARIOS if name not in SEEDS)):
        how: dict[str, Any] = {"settings": LEARNER, "steps": STEPS, "action": "signals", "data": name}
        for seed in range(SEEDS.get(name, 1)):
            for spec in KNOWLEDGE.values():
                yield Cell(
                    problem=runner.scenario_problem(name), agent="ppo", split="test", privacy=spec, seed=seed, **how
                )


def undeclared() -> Supplies:
    """Return the models without their declarations, which scenarios do not make."""
    models = {}
    for name, field, _ in UNDECLARED:
        for i in range(5):
            model = scenarios.make(name, instance=i, split="test")
            models[runner.model_key(runner.scenario_problem(name, **{field: None}), i)] = model.override(
                **{field: None}
            )
    return Supplies(models=models)


def privacy_table(rows: Iterable[Row]) -> str:
    """Return the table: mean / worst score of the releases."""
    scores: dict[tuple[str, int, float], list[float]] = defaultdict(list)
    beside: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row.cell.agent == "ppo":
            continue
        title = row.cell.problem["scenario"] + "".join(f", no {field}" for field in row.cell.problem["overrides"])
        if row.cell.agent == "sample":
            beside[title, "sample"] += row.scores
            continue
        kind, _, words = str(row.cell.privacy).partition(":")
        asked = dict(word.split("=") for word in words.split(","))
        if (int(asked["participants"]), float(asked["epsilon"])) == COLUMNS[0]:  # on the instances of the first column
            beside[title, "without data"] += row.without_data
        title += "" if kind == "adaptive" else f" (`{kind}`)"
        scores[title, int(asked["participants"]), float(asked["epsilon"])] += row.scores
    heads = [f"N = {n:,}, ε = {epsilon:g}" for n, epsilon in COLUMNS]
    lines = [f"| scenario | without data | sample | {' | '.join(heads)} |", "|---" * (3 + len(heads)) + "|"]
    for title in dict.fromkeys(title for title, *_ in scores):
        plain = title.split(" (")[0]
        means = (beside[plain, "without data"], beside[plain, "sample"])
        texts = [f"{mean(values):.1f}" if values else "" for values in means]
        for column in COLUMNS:
            one = scores[title, *column]
            texts.append(f"{mean(one):.1f} / {math.floor(10 * min(one)) / 10:.1f}" if one else "")
        lines.append(f"| {title} | {' | '.join(texts)} |")
    return "\n".join(lines)


def learner_table(rows: Iterable[Row]) -> str:
    """Return the table of the learner: mean score by what it was trained on, and how many seeds."""
    scores: dict[tuple[str, str | None], list[float]] = defaultdict(list)
    beside = {}
    for row in rows:
        if row.cell.agent == "ppo":
            scores[row.cell.data, row.cell.privacy] += row.scores
            beside[row.cell.data] = mean(row.without_data)
    lines = [f"| scenario | plan without data | PPO on {' | PPO on '.join(KNOWLEDGE)} | seeds |"]
    lines.append("|---" * (3 + len(KNOWLEDGE)) + "|")
    for name in beside:
        many = [scores[name, spec] for spec in KNOWLEDGE.values()]
        texts = [f"{mean(one):.1f}" if one else "" for one in many]
        lines.append(f"| {name} | {beside[name]:.1f} | {' | '.join(texts)} | {len(many[1])} |")
    return "\n".join(lines)


@look()
def draw_curvature(rows: Sequence[Row]) -> Path:
    """Draw what noise costs a plan for spot by direction of error: the same in all, and shaped by the curvature."""
    model = scenarios.make("spot", split="test")
    problem = Problem.of(model, scenarios.participants(model, 10, seed=0))
    truth = np.zeros(problem.size)
    truth[problem.cell[problem.cell >= 0]] = model.default.reshape(problem.cell.shape)[problem.cell >= 0]
    trust = np.full(problem.rows, 0.5)
    even, shaped = (problem.shape(truth, trust, floor) for floor in (None, FLOORS[-1]))
    even = even._replace(units=shaped.units)  # the same units, so that the shape alone differs
    half = shaped.units / trust[problem.row_of]
    curvature = problem.curvature(truth) * half[:, None] * half[None, :]
    normal = shaped.units / np.sqrt(problem.row_sums(shaped.units**2))[problem.row_of]
    for _ in range(2):  # rows sum to zero: project on both sides
        curvature = (curvature - problem.row_sums(curvature * normal)[:, problem.row_of] * normal).T
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2.0)
    gained = shaped.vectors @ (shaped.gain[:, None] * (shaped.vectors.T @ vectors))
    gain = np.linalg.norm(shaped.low * vectors + gained, axis=0)
    losses = {"equal noise in all directions": values / even.low**2, "noise shaped by the curvature": values / gain**2}
    unit = losses["equal noise in all directions"].sum() / 100.0
    figure, axes = subplots(figsize=(4.4, 3.0))
    for (label, loss), style in zip(losses.items(), STYLES, strict=True):
        rank = np.sort(loss)[::-1][:30] / unit
        words = f"{label}: total {loss.sum() / unit:.1f}"
        axes.plot(range(1, len(rank) + 1), rank, ms=3, lw=1, label=words, **style)
    axes.set_yscale("log")
    axes.set(xlabel="the 30 costliest directions of error, costliest first", ylim=(1e-3, 200))
    axes.set_ylabel("loss of a plan (equal noise = 100)")
    axes.set_title(f"spot: {problem.size - problem.rows} directions, equal privacy", fontsize=8)
    axes.legend(fontsize=7)
    return save(figure, DOCS / "images" / "curvature.png")


# ------------------------------------------------------------------ the two commands
STUDIES = {
    "learning": Study(
        DOCS / "environment.md", DOCS / "learning.json", learning_cells, {"learning": learning_table}, draw_learning
    ),
    "privacy": Study(
        DOCS / "privacy.md", DOCS / "privacy.json", privacy_cells, {"table": privacy_table, "learner": learner_table},
        draw_curvature, undeclared,
    ),
}  # fmt: skip


def run(study: Study, store: Store) -> None:
    """Compute the cells that are missing in the store."""
    for row in runner.run(study.cells(), store, Place(), supplies=study.supplies()):
        told = row.error["message"] if row.error else [round(score, 2) for score in row.scores]
        print(row.cell.title, told, flush=True)


def write(name: str, folder: Path) -> None:
    """Record the finished cells of a folder beside those that are recorded, and write tables and figure from them."""
    study = STUDIES[name]
    kept = [Row.from_dict(json.loads(path.read_text())) for path in sorted(folder.glob("cells/*.json"))]
    finished = {same(row.cell): row for row in (*study.rows(), *kept) if row.error is None}
    rows = [finished[same(cell)] for cell in study.cells() if same(cell) in finished]
    runner.write_results(study.record, runner.results(rows, f"python scripts/tables.py write {name}"))
    text = study.page.read_text(encoding="utf-8")
    for title, made in study.tables.items():
        before, _, rest = text.partition(BEGIN.format(title))
        _, _, after = rest.partition(END.format(title))
        text = f"{before}{BEGIN.format(title)}\n{made(rows)}\n{END.format(title)}{after}"
    study.page.write_text(text, encoding="utf-8")
    study.draw(rows)


def same(cell: Cell) -> str:
    """Name a cell whatever the version of the package: rows that were recorded stand until they are measured anew."""
    return replace(cell, version="").key


def main() -> None:
    """Read the command line."""
    command, name, *folder = sys.argv[1:] if len(sys.argv) in (3, 4) else ("", "")
    if command not in ("run", "write") or name not in STUDIES:
        sys.exit(__doc__)
    place = Path(*folder or ("runs", name))
    if command == "run":
        run(STUDIES[name], Store(place))
    else:
        write(name, place)


if __name__ == "__main__":
    main()
