"""Train others' learners at their own defaults on every scenario: ``python scripts/learning.py run``, then ``draw``.

A learner has no argument but the environment: signals and points. It is trained on the first training instance, or on
all twenty (one drawn at each reset, as with ``instance=None``), and scored there and on test instances 0 to 4. `run`
computes the cells that are missing in ``runs/learning``, seed by seed, and may be stopped at any time; `draw` records
the finished rows in ``docs/learning.json`` and writes the figure and the table of ``docs/environment.md``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.experiments import runner
from dp_ensemble_env.experiments.backends import Place
from dp_ensemble_env.experiments.compare import AgentSpec
from dp_ensemble_env.experiments.probes import recorded
from dp_ensemble_env.experiments.runner import Cell, Row, Store
from dp_ensemble_env.experiments.standings import markdown

ROOT = Path(__file__).parents[1]
STORE, RECORD = Store(Path("runs/learning")), ROOT / "docs" / "learning.json"
PAGE, FIGURE = ROOT / "docs" / "environment.md", ROOT / "docs" / "images" / "learning.png"
BEGIN, END = "<!-- learning: written by scripts/learning.py -->", "<!-- end of learning -->"
#: Agent, steps, training instances, seeds and scenarios.
RUNS = (
    ("ppo", 100_000, 1, (0, 1, 2), scenarios.BUILT_IN),
    ("ppo", 200_000, 20, (0,), scenarios.BUILT_IN),
    ("sac", 20_000, 1, (0,), ("spot", "thermostats", "tracking")),
)


def cells() -> list[Cell]:
    """Return all cells, seed by seed."""
    found = []
    for agent, steps, training, seeds, names in RUNS:
        spec = AgentSpec.parse(f"{agent}:n_envs=1,steps={steps}")  # one environment, as in the library's examples
        for seed in seeds:
            for name in names:
                made = spec.made(name, "signals", "mean-field")
                of: dict[str, Any] = {"problem": runner.scenario_problem(name), "data": name, "seed": seed}
                of |= {"agent": agent, "label": agent, "training": training, "action": "signals"}
                found.append(Cell(split="test", instances=tuple(range(5)), **of, **made))
    return sorted(found, key=place)


def place(cell: Cell) -> tuple[int, str, int, str]:
    """Return where a cell stands in figure and table."""
    return cell.seed, cell.agent, cell.training, cell.data


def trained(row: Row) -> float:
    """Return the score on the first training instance."""
    return row.made[0].score


def table(rows: list[Row]) -> str:
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
    headings = ["scenario", "PPO, by seed", "least on test 0–4", "PPO, 20 instances: test 0–4", "mean", "SAC, 20,000"]
    return markdown(headings, lines)


def draw() -> None:
    """Record the finished rows, and write figure and table."""
    there = {place(row.cell): row for row in (runner.read_results(RECORD)[1] if RECORD.exists() else [])}
    there |= {place(cell): row for cell in cells() if (row := STORE.load(cell)) is not None and row.error is None}
    rows = [there[which] for which in sorted(there)]
    runner.write_results(RECORD, runner.results(rows, "python scripts/learning.py run"))
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 4, figsize=(10, 6.4), sharex=True, sharey=True, layout="constrained")
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
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="lower right", frameon=False)
    figure.supxlabel("thousand steps")
    figure.supylabel("score: 0 uncontrolled, 100 optimum")
    figure.savefig(FIGURE, dpi=110)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    text = f"{before}{BEGIN}\n\n{table(rows)}\n{END}{rest.split(END)[1]}"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Compute what is missing, or draw what is there."""
    if sys.argv[1:] == ["draw"]:
        draw()
        return
    for row in runner.run(cells(), STORE, Place()):
        told = row.error["message"] if row.error else f"{trained(row):.1f}, test {np.round(row.scores, 1)}"
        print(f"{row.cell.title}: {told}", flush=True)


if __name__ == "__main__":
    main()
