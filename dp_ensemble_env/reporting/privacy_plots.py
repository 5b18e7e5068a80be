"""Pictures of privacy: score against ε, and where each lost dollar went.

Importing this module imports matplotlib and leaves its settings alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.reporting.plots import BLACK, BLUE, GREEN, ORANGE, PINK, SKY, look, save, subplots


@look()
def plot_frontier(points: Sequence[Any], path: Path) -> Path:
    """Draw score against ε: a row of panels for each instance and κ, a panel for each number of participants.

    One mechanism on one instance fits into one panel, with letters that a telephone can show.
    """
    cases = sorted({_case(point) for point in points})
    numbers = sorted({point.participants for point in points})
    names = list(dict.fromkeys(point.mechanism for point in points))
    if len(cases) == len(names) == 1 and len(numbers) <= 5:
        figure, axes = subplots(figsize=(3.2, 2.4))
        lines = {f"{n:,} participants": [p for p in points if p.participants == n] for n in reversed(numbers)}
        _scores_panel(axes, lines, points[0].public, size=5)
        axes.tick_params(labelsize=8.5)
        axes.set_xlabel("privacy loss ε (smaller is more private)", fontsize=8.5)
        axes.set_ylabel("score", fontsize=8.5)
        axes.legend(fontsize=7.5, ncol=2, frameon=False, loc="lower center", bbox_to_anchor=(0.45, 1.0))
        return save(figure, path)
    size = (1.1 + 1.7 * len(numbers), 0.6 + 1.6 * len(cases))
    figure, grid = subplots(len(cases), len(numbers), figsize=size, sharex=True, sharey=True, squeeze=False)
    for row, case in zip(grid, cases, strict=True):
        for axes, number in zip(row, numbers, strict=True):
            mine = [p for p in points if (_case(p), p.participants) == (case, number)]
            _scores_panel(axes, {n: [p for p in mine if p.mechanism == n] for n in names}, mine[0].public, worst=True)
            low = min(85.0, mine[0].public - 3.0)  # what is far below the plan without data is not drawn
            axes.set_ylim(low, 100.5 + 0.02 * (85.0 - low))
            spread = f"κ = {-case[1]:g}, " if case[1] else ""
            axes.set_title(f"N = {number:,}, {spread}instance {case[0]}", fontsize=7)
        row[0].set_ylabel("score on the truth")
    for axes in grid[-1]:
        axes.set_xlabel("ε")
    grid[0, 0].legend(fontsize=6.5)
    return save(figure, path)


def _case(point: Any) -> tuple[int, float]:
    return point.instance, -float(np.nan_to_num(point.heterogeneity))


def _scores_panel(
    axes: Any, lines: dict[str, list[Any]], public: float, size: float = 3.0, worst: bool = False
) -> None:
    """Draw mean scores against ε, the worst dotted if asked for, and that of the plan without data."""
    for (label, points), colour, marker in zip(lines.items(), (BLUE, ORANGE, GREEN, PINK, SKY), "osD^v", strict=False):
        mine = sorted((p for p in points if p.reached), key=lambda p: p.epsilon)
        x = [p.epsilon for p in mine]
        axes.plot(x, [p.mean for p in mine], color=colour, marker=marker, ms=size, lw=0.3 * size + 0.2, label=label)
        if worst:
            axes.plot(x, [p.worst for p in mine], color=colour, lw=0.8, ls=":")
    axes.axhline(public, color=BLACK, ls="--", lw=1.2, label="plan without data, ε = 0")
    ticks = sorted({p.epsilon for points in lines.values() for p in points})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


@look()
def plot_regrets(rows: Sequence[Any], path: Path) -> Path:
    """Draw the parts of each controller's loss side by side in one bar; negative parts to the left of zero."""
    figure, axes = subplots(figsize=(7.5, 0.5 * len(rows) + 1.6))
    left, right, places = np.zeros(len(rows)), np.zeros(len(rows)), np.arange(len(rows))
    for part, colour, hatch in (("sampling", SKY, ""), ("privacy", BLUE, "///"), ("learning", ORANGE, "...")):
        values = np.array([getattr(row, part) for row in rows])
        start = np.where(values >= 0, right, left)
        axes.barh(places, values, left=start, color=colour, hatch=hatch, edgecolor="white", label=part)
        right, left = right + np.maximum(values, 0.0), left + np.minimum(values, 0.0)
    for place, row in zip(places, rows, strict=True):
        price = f"ε = {row.price}" if np.isfinite(row.epsilon) else "no ε"
        axes.annotate(f" {row.score:.1f}, {price}", (right[place], place), va="center")
    axes.set_yticks(places, [row.name for row in rows])
    axes.invert_yaxis()
    axes.axvline(0.0, color="0.4", lw=0.8)
    words = f"score and ε at the bars; without data {rows[0].without_data:.1f}, ε = 0" if rows else ""
    axes.set(xlabel=f"$ per load below the optimum ({words})")
    axes.margins(x=0.25)
    axes.legend(loc="lower right")
    return save(figure, path)
