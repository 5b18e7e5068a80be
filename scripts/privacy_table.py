"""Measure what a participant's protection is worth on every scenario, and write the tables of docs/privacy.md.

    python scripts/privacy_table.py measure FOLDER      # cells of the runner, kept in FOLDER; resumes where it stopped
    python scripts/privacy_table.py train FOLDER        # the cells of the learner
    python scripts/privacy_table.py write FOLDER        # records the finished rows, and writes the tables from them

A cell is one release seed on some test instances: a plan on the release of simulated participants, deployed on the
truth as a tilt. The agent `sample` plans on the participants' own pooled estimate, which protects nobody. A learner's
cell is one training: on the truth, on a release, or on the public guess.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import make_agent, register_agent
from dp_ensemble_env.experiments import runner
from dp_ensemble_env.experiments.backends import Place
from dp_ensemble_env.experiments.deployment import sample_matrix
from dp_ensemble_env.experiments.runner import Cell, Row, Store, Supplies
from dp_ensemble_env.privacy import mechanism
from dp_ensemble_env.privacy.mechanisms.adaptive import FLOORS
from dp_ensemble_env.privacy.mechanisms.curvature import Problem
from dp_ensemble_env.reporting.plots import BLUE, ORANGE, look, save, subplots

DOCS = Path(__file__).resolve().parent.parent / "docs"
RECORD, PAGE = DOCS / "privacy.json", DOCS / "privacy.md"
BEGIN, END = "<!-- {}: scripts/privacy_table.py -->", "<!-- end of {} -->"
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


def cells(instances: int | None = None, releases: int | None = None) -> Iterator[Cell]:
    """Yield all cells, or those of fewer instances and releases, the most wanted ones first."""

    def of(problem: dict[str, Any], setting: tuple[int, float, int, int], kind: str = "adaptive") -> Iterator[Cell]:
        n, epsilon, many, seeds = setting
        where: dict[str, Any] = {"problem": problem, "split": "test", "instances": tuple(range(instances or many))}
        for seed in range(releases or seeds):
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


def trainings() -> Iterator[Cell]:
    """Yield the trainings of the learner on the first test instance, the most wanted ones first."""
    for name in (*SEEDS, *(name for name in SCENARIOS if name not in SEEDS)):
        how: dict[str, Any] = {"settings": LEARNER, "steps": STEPS, "action": "signals", "data": name}
        for seed in range(SEEDS.get(name, 1)):
            for spec in KNOWLEDGE.values():
                yield Cell(
                    problem=runner.scenario_problem(name), agent="ppo", split="test", privacy=spec, seed=seed, **how
                )


def supplies() -> Supplies:
    """Return the models without their declarations, which scenarios do not make."""
    models = {}
    for name, field, _ in UNDECLARED:
        for i in range(5):
            model = scenarios.make(name, instance=i, split="test")
            models[runner.model_key(runner.scenario_problem(name, **{field: None}), i)] = model.override(
                **{field: None}
            )
    return Supplies(models=models)


def table(rows: Iterable[Row]) -> str:
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


def learned(rows: Iterable[Row]) -> str:
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


def picture(path: Path, name: str = "spot", shown: int = 30) -> Path:
    """Draw what noise costs a plan in each direction of error: the same in all, and shaped by the curvature."""
    model = scenarios.make(name, split="test")
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
    losses = {"the same noise in all directions": values / even.low**2, "shaped by the curvature": values / gain**2}
    unit = losses["the same noise in all directions"].sum() / 100.0
    with look():
        figure, axes = subplots(figsize=(4.4, 3.0))
        for (label, loss), style in zip(losses.items(), STYLES, strict=True):
            rank = np.sort(loss)[::-1][:shown] / unit
            words = f"{label}: {loss.sum() / unit:.1f} in all"
            axes.plot(range(1, len(rank) + 1), rank, ms=3, lw=1, label=words, **style)
        axes.set_yscale("log")
        axes.set(xlabel="direction of error, the costliest first", ylim=(1e-3, 200))
        axes.set_ylabel("loss of a plan (equal noise = 100)")
        axes.set_title(f"{name}: {problem.size - problem.rows} directions, the same privacy", fontsize=8)
        axes.legend(fontsize=7)
        return save(figure, path)


def _same(cell: Cell) -> str:
    """Name a cell whatever the version of the package: rows that were recorded stand until they are measured anew."""
    return replace(cell, version="").key


def main() -> None:
    """Measure, or record what is measured and write the tables."""
    command, *folder = sys.argv[1:] or ["write"]
    if command in ("measure", "train"):
        asked = cells() if command == "measure" else trainings()
        for row in runner.run(asked, Store(Path(folder[0])), Place(), supplies=supplies()):
            print(row.cell.title, [round(score, 2) for score in row.scores], flush=True)
    elif folder:
        kept = [Row.from_dict(json.loads(path.read_text())) for path in sorted(Path(folder[0]).glob("cells/*.json"))]
        found = {_same(row.cell): row for row in (*runner.read_results(RECORD)[1], *kept) if row.error is None}
        rows = [found[_same(cell)] for cell in (*cells(), *trainings()) if _same(cell) in found]
        runner.write_results(RECORD, runner.results(rows, "scripts/privacy_table.py"))
    recorded, text = runner.read_results(RECORD)[1], PAGE.read_text(encoding="utf-8")
    for name, made in (("table", table(recorded)), ("learner", learned(recorded))):
        before, _, rest = text.partition(BEGIN.format(name))
        text = f"{before}{BEGIN.format(name)}\n{made}\n{END.format(name)}{rest.partition(END.format(name))[2]}"
    PAGE.write_text(text, encoding="utf-8")
    picture(DOCS / "images" / "curvature.png")


if __name__ == "__main__":
    main()
