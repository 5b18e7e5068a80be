"""The capability picture of each agent.

Importing this module imports matplotlib.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.agents.statistics import Interval
from dp_ensemble_env.experiments.capabilities import AXES, capabilities
from dp_ensemble_env.experiments.suite import Suite
from dp_ensemble_env.reporting import plots as p

CAPTION = "What {agent} can do: 0 is the reference, 100 the optimum; lines are 95 % intervals."
#: Narrow enough for a telephone, in letters large enough for it.
_SIZE, _LETTERS = (4.2, 2.15), 10.5


def picture_name(agent: str) -> str:
    """Return the name of an agent's picture."""
    return f"capability-{re.sub(r'[^a-z0-9-]+', '-', agent.lower()).strip('-')}.png"


def draw_all(suite: Suite, folder: Path) -> list[Path]:
    """Draw the picture of every agent."""
    return [draw(capabilities(suite, agent), agent, folder / picture_name(agent)) for agent in suite.agents]


def draw(found: dict[str, Interval | None], agent: str, path: Path) -> Path:
    """Draw five capabilities as dots on a scale from 0 to 100."""
    with p.look({"font.size": _LETTERS, "xtick.labelsize": _LETTERS, "ytick.labelsize": _LETTERS}):
        figure, axes = p.subplots(figsize=_SIZE)
        for place, axis in enumerate(AXES):
            _row(axes, place, found[axis])
        axes.set_yticks(range(len(AXES)), AXES)
        axes.set_xticks([0, 50, 100])
        axes.set(xlim=(-8, 132), ylim=(len(AXES) - 0.4, -0.6))
        axes.set_title(agent, fontsize=_LETTERS + 1, fontweight="bold")
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.spines["bottom"].set_bounds(0, 100)
        for mark in (0, 50, 100):
            axes.axvline(mark, color="0.88", lw=0.8, zorder=0)
        return p.save(figure, path)


def _row(axes: Any, place: int, value: Interval | None) -> None:
    """Draw one capability, or say that it was not measured."""
    axes.plot([0, 100], [place, place], color="0.8", lw=4, solid_capstyle="round", zorder=1)
    if value is None:
        axes.text(50, place, "not measured", ha="center", va="center", color=p.GREY, style="italic",
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})  # fmt: skip
        return
    at, low, high = (float(np.clip(x, 0.0, 100.0)) for x in value)
    colour = p.BLUE if value.value >= 0 else p.RED
    axes.plot([0, at], [place, place], color=colour, lw=4, solid_capstyle="round", zorder=2)
    axes.plot([low, high], [place, place], color=p.BLACK, lw=1.2, zorder=3)
    mark = "<" if value.value < 0 else ">" if value.value > 100 else "o"
    axes.plot(at, place, mark, ms=8, color=colour, zorder=4, clip_on=False)
    number = 0.0 if abs(value.value) < 0.5 else value.value
    axes.text(107, place, f"{number:.0f}".replace("-", "−"), va="center", color=colour, fontweight="bold")
