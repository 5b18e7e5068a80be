"""One look for every picture: colours, fonts, and how a figure reaches the disk.

Importing this module imports matplotlib; nothing else in the package does so
before a picture is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env.model import EnsembleModel

# Okabe and Ito's colours, distinguishable by colour-blind readers.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY = "#8C8C8C"

plt.rcParams.update(
    {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "legend.frameon": False,
        "legend.fontsize": 8,
        "figure.constrained_layout.use": True,
    }
)


def save(figure: Any, path: Path) -> Path:
    """Write a figure as PNG, atomically, and close it."""
    with atomic_write(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=150)
    plt.close(figure)
    return path


def hours(model: EnsembleModel) -> np.ndarray:
    """Return the hour of the day of each time, counted from the first day."""
    return (model.times - model.times[0].astype("datetime64[D]")) / np.timedelta64(3600, "s")


def power_axes(axes: Any, model: EnsembleModel) -> None:
    """Prepare axes for power over time: event window, customer baseline, labels with units."""
    clock = hours(model)
    if model.event is not None and model.event.in_event.any():
        window = clock[model.event.in_event]
        begin = window[0] - model.step_hours
        axes.axvspan(begin, window[-1], color="0.93", lw=0)
        axes.text(begin + 0.05, 0.96, "event", color="0.35", transform=axes.get_xaxis_transform())
        if model.event.baseline_kw is not None:
            baseline = model.event.baseline_kw / 1e3
            axes.plot(clock, baseline, color="0.55", ls=(0, (1, 1)), lw=1.5, label="customer baseline")
    axes.set(xlabel="hour of the day (end of the interval)", ylabel=f"mean power of {model.buildings} buildings, MW")
