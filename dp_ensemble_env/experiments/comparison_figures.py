"""The pictures of a comparison.

Importing this module imports matplotlib.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from dp_ensemble_env.experiments.comparison_report import PrivateRow, Row, no_minus_zero
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting import plotting as p

#: Captions of the files.
CAPTIONS = {
    "scores.png": "Gap to the optimum of every controller (left is better).",
    "event.png": "What the controllers do to the power of the ensemble.",
    "learning.png": "Learning curves: score and steps, every seed.",
    "deployed.png": (
        "Trained or solved on a release, deployed on the true dynamics, beside the cost of privacy by theory."
    ),
}


@p.look()
def draw_all(
    model: EnsembleModel,
    rows: list[Row],
    private: list[PrivateRow],
    costs: dict[str, list[float]],
    folder: Path,
    suffix: str = "",
) -> list[Path]:
    """Draw every figure that there are results for, in the order of `CAPTIONS`; `suffix` ends the files' names."""
    scores, event, learning, deployed = (folder / name.replace(".", f"{suffix}.") for name in CAPTIONS)
    done = [_draw_scores(rows, scores), _draw_event(model, rows, event)]
    if any(curve for row in rows for curve in row.curves):
        done.append(_draw_curves(rows, learning))
    if any(math.isfinite(row.k) for row in private):
        done.append(_draw_private(private, costs, deployed))
    return done


def _draw_scores(rows: list[Row], path: Path) -> Path:
    shown = [row for row in rows if row.name != "standard"]
    figure, axes = p.subplots(figsize=(7.5, 0.34 * len(shown) + 1.2))
    palette = {"MeanField": p.BLUE, "Buildings": p.GREEN, "SingleLoad": p.ORANGE}
    gaps = [max(row.evaluation.gap, 1e-3) for row in shown]
    axes.set_xscale("log")
    for i, row in enumerate(shown):
        axes.plot(gaps[i], i, "o", ms=7, color=palette[row.env], clip_on=False)
    axes.grid(axis="y", color="0.9", lw=0.8)
    axes.set_axisbelow(True)
    for i, row in enumerate(shown):
        score = row.summary.iqm if row.summary is not None else row.evaluation.score
        axes.annotate(
            f"{no_minus_zero(score):.1f}", (gaps[i], i), (8, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_yticks(range(len(shown)), [f"{row.name} ({row.env})" for row in shown])
    axes.invert_yaxis()
    axes.set_xlim(right=max(gaps) * 2.5)
    p.plain_log(axes.xaxis)
    axes.set(xlabel="gap to the optimum, $ per building (the number is the score)")
    return p.save(figure, path)


def _draw_event(model: EnsembleModel, rows: list[Row], path: Path) -> Path:
    figure, axes = p.subplots(figsize=(7.5, 4.4))
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


def _draw_private(private: list[PrivateRow], costs: dict[str, list[float]], path: Path) -> Path:
    figure, (left, right) = p.subplots(1, 2, figsize=(11, 4.3))
    ks = sorted({row.k for row in private if math.isfinite(row.k)})
    beyond = [ks[-1] * 2.5] if any(math.isinf(row.k) for row in private) else []  # where "no noise" is drawn
    names = list(dict.fromkeys(row.name for row in private))
    others = [name for name in names if name not in p.LOOKS]
    for name in names:
        if name in p.LOOKS:
            colour, style = p.LOOKS[name].color, f"{p.LOOKS[name].marker}-"
        else:
            number = others.index(name)
            colour, style = (p.SKY, p.RED, p.BLACK, p.YELLOW)[number % 4], ("o-", "s--", "^:")[number // 4 % 3]
        mine = {row.k: row for row in private if row.name == name}
        finite = [mine[k] for k in ks if k in mine]
        at = [row.k for row in finite]
        left.plot(at, [np.mean(row.scores) for row in finite], style, ms=4, color=colour, label=name)
        if math.inf in mine:
            left.plot(beyond, [np.mean(mine[math.inf].scores)], "D", ms=4, color=colour)
        right.plot(at, [max(float(np.mean(row.gaps)), 1e-3) for row in finite], style, ms=4, color=colour)
    for name, values in costs.items():
        right.plot(ks, values, "x:", ms=5, lw=1.6, color=p.LOOKS[name].color, label=f"theory: {name}")
    for axes, end in ((left, beyond), (right, [])):
        axes.set_xscale("log")
        axes.set_xticks([*ks, *end], [*(f"{k:g}" for k in ks), *("no noise" for _ in end)])
        axes.minorticks_off()
        axes.set_xlabel("concentration k of the release (larger: less private)")
    guess = [row.without_data for row in private if math.isfinite(row.without_data)]
    if guess:
        left.axhline(guess[0], color=p.GREY, ls=(0, (4, 3)), lw=1.2, label="without data (ε = 0)")
    left.set_ylabel("score deployed on the true behaviour")
    right.set(yscale="log", ylabel="gap to the true optimum, $ per building")
    p.plain_log(right.yaxis)
    if len(names) <= 8:
        left.legend()
    else:
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    right.legend()
    return p.save(figure, path)


def _draw_curves(rows: list[Row], path: Path) -> Path:
    drawn = [row for row in rows if any(row.curves)]
    columns = min(3, len(drawn))
    lines = math.ceil(len(drawn) / columns)
    figure, grid = p.subplots(lines, columns, figsize=(3.6 * columns, 2.6 * lines), squeeze=False)
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
