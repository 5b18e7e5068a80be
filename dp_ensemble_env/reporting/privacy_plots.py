"""Two pictures: ε against k, and what the mechanism's outputs look like for two adjacent rows.

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
    RED,
    look,
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


def _figure(panels: int, size: tuple[float, float]) -> tuple[Any, NDArray[Any]]:
    figure, axes = subplots(1, panels, figsize=size, squeeze=False, layout="none")
    return figure, axes[0]


def _save(figure: Any, path: str | os.PathLike[str]) -> Path:
    with atomic_write(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=150, bbox_inches="tight")
    return Path(path)
