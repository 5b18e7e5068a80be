"""The pictures of a plan."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.experiments.dispatch import Course, Plan
from dp_ensemble_env.reporting.plotting import BLUE, GREY, PAGE, RED, WINDOW, look, save, subplots


@look()
def draw_total(path: Path, plan: Plan) -> Path:
    """Draw the total: usual load, plan with its range, baseline."""
    figure, axes = subplots(figsize=(PAGE, 3.2))
    _draw(axes, plan.total, 2.0)
    axes.set(xlabel="hour of the day (end of the interval)", ylabel="kW")
    axes.legend(loc="best")
    return save(figure, path)


@look()
def draw_participants(path: Path, plan: Plan) -> Path:
    """Draw every participant small."""
    columns = min(4, len(plan.participants))
    count = math.ceil(len(plan.participants) / columns)
    figure, grid = subplots(count, columns, figsize=(PAGE, 1.5 * count + 0.3), squeeze=False)
    for axes, course in zip(grid.ravel(), plan.participants, strict=False):
        _draw(axes, course, 1.2)
        axes.set_title(course.name if len(course.name) < 26 else f"{course.name[:24]}…", fontsize=7)
    for axes in grid.ravel()[len(plan.participants) :]:
        axes.set_axis_off()
    figure.supxlabel("hour of the day", fontsize=8)
    return save(figure, path)


def _draw(axes: Any, course: Course, width: float) -> None:
    hours = (course.times - course.times[0].astype("datetime64[D]")) / np.timedelta64(3600, "s")
    window = hours[course.in_event]
    axes.axvspan(window[0] - course.step_hours, window[-1], color=WINDOW, lw=0, zorder=0)
    axes.fill_between(hours, course.low, course.high, color=BLUE, alpha=0.2, lw=0)
    axes.plot(hours, course.uncontrolled, color=RED, lw=width, label="usual load, forecast")
    axes.plot(hours, course.setpoint, color=BLUE, lw=width, marker="o", ms=2, label="set-point, with range")
    if course.baseline is not None:
        axes.plot(hours, course.baseline, color=GREY, ls=(0, (2, 2)), lw=width, label="customer baseline")
    axes.margins(x=0.02)
