"""Pictures of privacy: ε against k, outputs for two adjacent rows, score against ε, and where each lost dollar went.

Importing this module imports matplotlib and leaves its settings alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.privacy.accounting.compose import RowGroup, composed_epsilon
from dp_ensemble_env.privacy.accounting.divergence import (
    adjacent_row,
    pair_epsilon,
    vanishing_k_epsilon,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.reporting.plots import (
    BLACK,
    BLUE,
    CORNERS,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SKY,
    look,
    save,
    scatter_in_turns,
    subplots,
    triangle_axes,
)
from dp_ensemble_env.tools.files import atomic_write

DELTAS = (0.05, 1e-3, 1e-6)


@look()
def plot_epsilon(path: str | os.PathLike[str], h: float = 0.03, omega: float = 0.1, rows: int = 20) -> Path:
    """Draw ε against k for three δ: one row and all rows, with the limit that no k passes."""
    figure, axes = _figure(1, (7.2, 4.6))
    ks = np.geomspace(1.0, 1000.0, 40)
    styles = list(zip(DELTAS, (BLUE, RED, GREEN), "osD", strict=True))
    for delta, colour, marker in styles:
        every = [composed_epsilon(delta, [RowGroup(k, omega, h, rows)]) for k in ks]
        axes[0].plot(ks, every, color=colour, marker=marker, markevery=6, label=f"{rows} rows, δ = {delta:g}")
    for delta, colour, marker in styles:
        one = [worst_case_epsilon(delta, k, h, omega) for k in ks]
        style: dict[str, Any] = {"color": colour, "marker": marker, "markevery": 6, "ls": "--", "mfc": "white"}
        axes[0].plot(ks, one, label=f"1 row, δ = {delta:g}", **style)
        limit = vanishing_k_epsilon(delta, h, omega)
        if limit > 0:
            axes[0].axhline(limit, color=colour, ls=":", lw=1)
    axes[0].set(
        xscale="log",
        yscale="log",
        xlabel="concentration k (larger: less noise)",
        ylabel="privacy loss ε (nats)",
        title=f"Exact ε of the Dirichlet mechanism, h = {h:g}, floor = {omega:g}\n(dotted: one row's limit as k → 0)",
    )
    axes[0].grid(True, which="major", alpha=0.3)
    axes[0].legend(frameon=False, fontsize=9, ncols=2, loc="upper left")
    low, high = axes[0].get_ylim()
    axes[0].set_ylim(low, high * 6)
    return _save(figure, path)


@look()
def plot_simplex(
    path: str | os.PathLike[str],
    row: ArrayLike = (0.2, 0.6, 0.2),
    h: float = 0.03,
    ks: Sequence[float] = (50.0, 200.0),
    points: int = 1000,
    seed: int = 0,
) -> Path:
    """Draw outputs for a row of three entries and for its neighbour, one panel per k (the paper's Figure 4)."""
    values = np.asarray(row, dtype=float)
    moved = adjacent_row(values, 1, 2, h)
    figure, axes = _figure(len(ks), (4.6 * len(ks), 4.9))
    rng = np.random.default_rng(seed)
    inputs = ((values, BLUE, "o", "the row"), (moved, RED, "^", "adjacent"))
    for axis, k, letter in zip(axes, ks, "abcdefgh", strict=False):
        triangle_axes(axis, [f"entry {number} = 1" for number in (1, 2, 3)])
        clouds = [
            (np.exp(DirichletMechanism(k).sample_log(point, points, rng)) @ CORNERS, colour, marker, f"outputs, {name}")
            for point, colour, marker, name in inputs
        ]
        scatter_in_turns(axis, clouds, s=8, alpha=0.4, lw=0)
        for point, colour, marker, name in inputs:
            label = f"input, {name}"
            axis.scatter(*(point @ CORNERS), s=70, color=colour, marker=marker, ec=BLACK, zorder=5, label=label)
        epsilons = ", ".join(f"{pair_epsilon(delta, values, 1, 2, k, h):.2g} (δ = {delta:g})" for delta in (0.05, 1e-6))
        axis.set_title(f"({letter}) k = {k:g}: exact ε = {epsilons}", fontsize=10)
    entries = ", ".join(f"{value:g}" for value in values)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False, fontsize=9, markerscale=1.2)
    figure.suptitle(f"{points} outputs each for the row ({entries}) and its neighbour at h = {h:g}", fontsize=11)
    figure.subplots_adjust(bottom=0.1, top=0.86, wspace=0.05, left=0.02, right=0.98)
    return _save(figure, path)


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


def _figure(panels: int, size: tuple[float, float]) -> tuple[Any, NDArray[Any]]:
    figure, axes = subplots(1, panels, figsize=size, squeeze=False, layout="none")
    return figure, axes[0]


def _save(figure: Any, path: str | os.PathLike[str]) -> Path:
    with atomic_write(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=150, bbox_inches="tight")
    return Path(path)
