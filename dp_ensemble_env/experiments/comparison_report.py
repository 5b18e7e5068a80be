"""How a comparison is shown: rows, tables, pictures, files and the page."""

from __future__ import annotations

import csv
import io
import json
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env import __version__
from dp_ensemble_env._files import atomic_write
from dp_ensemble_env.agents import Evaluation
from dp_ensemble_env.agents.evaluation import SeedSummary
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.ledger import PrivacyLedger
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism


@dataclass
class Row:
    """One line of the table."""

    name: str
    env: str
    evaluation: Evaluation
    summary: SeedSummary | None = None
    steps: int | None = None
    seconds: float | None = None
    level: float | None = None
    scores: list[float] = field(default_factory=list)
    curves: list[list[tuple[int, float]]] = field(default_factory=list)


@dataclass
class PrivateRow:
    """A controller made on a release and scored on the true dynamics.

    `k` is the concentration of the paper's mechanism, infinite for the truth; another mechanism has its spec instead.
    """

    name: str
    k: float
    scores: list[float]
    gaps: list[float]
    spec: str = ""


# ------------------------------------------------------------------ tables
HEADINGS = (
    "controller",
    "environment",
    "score",
    "gap, $/building",
    "peak, kW",
    "event, kWh",
    "delivered, kWh",
    "discomfort, $",
    "energy, $",
    "privacy",
)


def cells(row: Row) -> tuple[str, ...]:
    """Format one row for people."""
    e = row.evaluation
    score = f"{_zero(e.score):.1f}" + ("" if e.exact else f" ± {e.score_error:.1f}")
    if row.summary is not None and row.summary.seeds > 1:
        score = f"{row.summary.iqm:.1f} [{row.summary.low:.1f}, {row.summary.high:.1f}]"
    return (
        row.name,
        row.env,
        score,
        f"{_zero(e.gap):.2f}",
        f"{_zero(e.curtailed_peak_kw):,.0f}",
        f"{_zero(e.curtailed_kwh):,.0f}",
        "–" if math.isnan(e.delivered_kwh) else f"{e.delivered_kwh:,.0f}",
        f"{_zero(e.discomfort):.2f}",
        "–" if math.isnan(e.energy_cost) else f"{e.energy_cost:.2f}",
        e.privacy,
    )


LEVEL_HEADINGS = ("learner", "environment", "steps", "seeds", "scores", "level", "reached", "minutes")


def level_cells(row: Row) -> tuple[str, ...]:
    """Format what a learner reached, all seeds shown."""
    least = min(row.scores)
    reached = "–" if row.level is None else "yes" if least >= row.level else f"no (least {least:.1f})"
    return (
        row.name,
        row.env,
        f"{row.steps or 0:,}",
        str(len(row.scores)),
        ", ".join(f"{s:.1f}" for s in row.scores),
        "–" if row.level is None else f"{row.level:g}",
        reached,
        f"{(row.seconds or 0) / 60:.1f}",
    )


PRIVATE_HEADINGS = ("made on the release", "k", "score on the true dynamics", "gap, $/building", "releases")


def private_cells(row: PrivateRow) -> tuple[str, ...]:
    """Format one private row: mean over releases and, with several, its standard error."""
    return (row.name, row.spec or _k(row.k), _mean(row.scores, 1), _mean(row.gaps, 2), str(len(row.scores)))


def _mean(values: list[float], digits: int) -> str:
    text = f"{_zero(float(np.mean(values))):.{digits}f}"
    if len(values) > 1:
        text += f" ± {np.std(values, ddof=1) / math.sqrt(len(values)):.{digits}f}"
    return text


def _k(k: float) -> str:
    return "∞ (none)" if math.isinf(k) else f"{k:g}"


def _zero(value: float) -> float:
    return 0.0 if abs(value) < 5e-3 else value  # no "-0.0" in a table


def show(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for i, heading in enumerate(headings):
        left = i == 0 or heading in ("environment", "privacy", "scores")
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 170).print(table)


# ------------------------------------------------------------------ pictures
def pictures(
    model: EnsembleModel, rows: list[Row], private: list[PrivateRow], costs: dict[str, list[float]], folder: Path
) -> list[tuple[Path, str]]:
    """Draw every figure; return paths and captions."""
    from dp_ensemble_env.reporting import plotting as p

    done = [
        (_draw_scores(p, rows, folder / "scores.png"), "Gap to the optimum of every controller (left is better)."),
        (_draw_event(p, model, rows, folder / "event.png"), "What the controllers do to the power of the ensemble."),
    ]
    if any(math.isfinite(row.k) for row in private):
        caption = "Trained or solved on a release, deployed on the true dynamics, beside the cost of privacy by theory."
        done.append((_draw_private(p, private, costs, folder / "private.png"), caption))
    if any(curve for row in rows for curve in row.curves):
        done.append((_draw_curves(p, rows, folder / "learning.png"), "Learning curves: score and steps, every seed."))
    return done


def _draw_scores(p: Any, rows: list[Row], path: Path) -> Path:
    shown = [row for row in rows if row.name != "standard"]
    figure, axes = p.plt.subplots(figsize=(7.5, 0.34 * len(shown) + 1.2))
    palette = {"MeanField": p.BLUE, "Buildings": p.GREEN, "SingleLoad": p.ORANGE}
    gaps = [max(row.evaluation.gap, 1e-3) for row in shown]
    axes.set_xscale("log")
    for i, row in enumerate(shown):
        axes.plot(gaps[i], i, "o", ms=7, color=palette[row.env], clip_on=False)
    axes.grid(axis="y", color="0.9", lw=0.8)
    axes.set_axisbelow(True)
    for i, row in enumerate(shown):
        score = row.summary.iqm if row.summary is not None else row.evaluation.score
        axes.annotate(f"{_zero(score):.1f}", (gaps[i], i), (8, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(shown)), [f"{row.name} ({row.env})" for row in shown])
    axes.invert_yaxis()
    axes.set_xlim(right=max(gaps) * 2.5)
    axes.set(xlabel="gap to the optimum, $ per building (the number is the score)")
    return p.save(figure, path)


def _draw_event(p: Any, model: EnsembleModel, rows: list[Row], path: Path) -> Path:
    figure, axes = p.plt.subplots(figsize=(7.5, 4.4))
    p.power_axes(axes, model)
    looks = [name for name in p.LOOKS if name not in ("average-sampled", "average-expansion")]
    learned = [row for row in rows if row.summary is not None and row.env == "MeanField"]
    best = max(learned, key=lambda row: row.summary.iqm, default=None)  # type: ignore[union-attr]
    for row in rows:
        if row.env != "MeanField" or not (row.name in looks or row is best):
            continue
        look = p.LOOKS["learned" if row is best else row.name]
        style = {"color": look.color, "ls": look.line, "lw": 1.8}
        axes.plot(p.hours(model), row.evaluation.power_kw / 1e3, label=row.name, **style)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return p.save(figure, path)


def _draw_private(p: Any, private: list[PrivateRow], costs: dict[str, list[float]], path: Path) -> Path:
    private = [row for row in private if not row.spec]  # an axis of k has no place for other mechanisms
    figure, (left, right) = p.plt.subplots(1, 2, figsize=(11, 4.3))
    names = list(dict.fromkeys(row.name for row in private))
    others = [name for name in names if name not in p.LOOKS]
    colours = [p.SKY, p.RED, p.BLACK, p.YELLOW]
    for name in names:
        number = others.index(name) if name in others else 0
        colour, style = colours[number % 4], ("o-", "s--", "^:")[number // 4 % 3]
        if name in p.LOOKS:
            colour, style = p.LOOKS[name].color, f"{p.LOOKS[name].marker}-"
        mine = sorted((row for row in private if row.name == name), key=lambda row: row.k)
        finite = [row for row in mine if math.isfinite(row.k)]
        ks = [row.k for row in finite]
        left.plot(ks, [np.mean(row.scores) for row in finite], style, ms=4, color=colour, label=name)
        without = [row for row in mine if math.isinf(row.k)]
        if without:
            left.plot([max(ks) * 2.5], [np.mean(without[0].scores)], "D", ms=4, color=colour)
        right.plot(ks, [max(float(np.mean(row.gaps)), 1e-3) for row in finite], style, ms=4, color=colour)
    ks = sorted({row.k for row in private if math.isfinite(row.k)})
    for name, values in costs.items():
        right.plot(ks, values, "x:", ms=5, lw=1.6, color=p.LOOKS[name].color, label=f"theory: {name}")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks([*ks, max(ks) * 2.5] if axes is left else ks)
        axes.set_xticklabels([f"{k:g}" for k in ks] + (["no noise"] if axes is left else []))
        axes.minorticks_off()
        axes.set_xlabel("concentration k of the release (larger: less private)")
    left.set_ylabel("score on the true dynamics")
    right.set_yscale("log")
    right.set_ylabel("gap to the true optimum, $ per building")
    if len(names) <= 8:
        left.legend()
    else:
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    right.legend()
    return p.save(figure, path)


def _draw_curves(p: Any, rows: list[Row], path: Path) -> Path:
    drawn = [row for row in rows if any(row.curves)]
    columns = min(3, len(drawn))
    lines = math.ceil(len(drawn) / columns)
    figure, grid = p.plt.subplots(lines, columns, figsize=(3.6 * columns, 2.6 * lines), squeeze=False)
    for axes, row in zip(grid.flat, drawn, strict=False):
        for curve in row.curves:
            steps, scores = zip(*curve, strict=True)
            axes.plot(np.array(steps) / 1000, np.clip(scores, 0, None), color=p.BLUE, lw=1, alpha=0.8)
        if row.level is not None:
            axes.axhline(row.level, color=p.RED, lw=1, ls="--")
        axes.set_title(f"{row.name} ({row.env})", fontsize=9)
        axes.set(xlabel="thousand steps", ylabel="score", ylim=(0, 103))
    for axes in list(grid.flat)[len(drawn) :]:
        axes.axis("off")
    return p.save(figure, path)


# ------------------------------------------------------------------ writing
def write_all(
    folder: Path,
    settings: Mapping[str, Any],
    model: EnsembleModel,
    rows: list[Row],
    private: list[PrivateRow],
    costs: dict[str, list[float]],
    command: str,
) -> Path:
    """Write CSV, JSON, pictures and the page; return the page's path."""
    text = io.StringIO()
    writer = csv.writer(text)
    fields = [name for name in rows[0].evaluation.to_dict() if name != "power_kw"]
    writer.writerow(["controller", "environment", "steps", "seeds", *fields])
    for row in rows:
        content = row.evaluation.to_dict()
        writer.writerow([row.name, row.env, row.steps, len(row.scores) or "", *(content[name] for name in fields)])
    with atomic_write(folder / "table.csv") as stream:
        stream.write(text.getvalue())
    versions = {"python": platform.python_version(), "numpy": np.__version__, "dp_ensemble_env": __version__}
    record = {
        "command": command,
        "versions": versions,
        "settings": {k: str(v) if isinstance(v, Path) else v for k, v in settings.items()},
        "controllers": [
            {
                "name": row.name,
                "environment": row.env,
                "steps": row.steps,
                "seconds": row.seconds,
                "level": row.level,
                "scores": row.scores,
                **row.evaluation.to_dict(),
            }
            for row in rows
        ],
        "private": [{"name": r.name, "k": r.spec or _k(r.k), "scores": r.scores, "gaps": r.gaps} for r in private],
        "cost_of_privacy": costs,
    }
    with atomic_write(folder / "comparison.json") as stream:
        json.dump(record, stream, indent=1)
    return _write_page(folder, model, rows, private, costs, command, versions)


def _write_page(
    folder: Path,
    model: EnsembleModel,
    rows: list[Row],
    private: list[PrivateRow],
    costs: dict[str, list[float]],
    command: str,
    versions: dict[str, str],
) -> Path:
    from dp_ensemble_env.reporting.page import Page

    figures = pictures(model, rows, private, costs, folder)
    page = Page("Controllers of a private load ensemble")
    page.text(
        f"Event of {str(model.times[0])[:10]}: {model.buildings} buildings, {model.n_states} power levels, "
        f"{model.horizon} decisions. Score: 0 is the uncontrolled ensemble, 100 the exact optimum of it."
    )
    page.heading("Controllers")
    page.table(HEADINGS, [cells(row) for row in rows])
    page.text("Square brackets: interquartile mean and 95 % bootstrap interval over seeds. ±: one standard error.")
    for path, caption in figures[:2]:
        page.picture(path, caption)
    learned = [row for row in rows if row.summary is not None]
    if learned:
        page.heading("Learners")
        page.table(LEVEL_HEADINGS, [level_cells(row) for row in learned])
    for path, caption in figures[2:]:
        if path.name == "learning.png":
            page.picture(path, caption)
    if private:
        page.heading("Trained on private, deployed on true")
        page.text(
            "Each controller sees a Dirichlet release of the matrix only and is scored on the true dynamics. Planned "
            "policies are deployed as transition matrices; learned prices and tilts are deployed as such. "
            + ledger_sentence(model, private)
        )
        page.table(PRIVATE_HEADINGS, [private_cells(row) for row in private])
        for path, caption in figures[2:]:
            if path.name == "private.png":
                page.picture(path, caption)
    page.heading("How this was made")
    page.text(f"`{command}` with " + ", ".join(f"{name} {value}" for name, value in versions.items()) + ".")
    return page.write(folder / "comparison.html")


def ledger_sentence(model: EnsembleModel, private: list[PrivateRow]) -> str:
    """Say what one release without a floor is worth, and which settings would reach a target on this matrix."""
    finite = [row.k for row in private if math.isfinite(row.k)]
    if not finite:
        return ""
    ledger = PrivacyLedger()
    ledger.record(DirichletMechanism(min(finite)).release(model.default, 0))
    return ledger.statement(model=model)
