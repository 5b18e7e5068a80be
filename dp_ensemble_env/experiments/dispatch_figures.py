"""The pictures of a plan."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.experiments.dispatch import MULTIPLES, Course, Plan
from dp_ensemble_env.reporting.charts import Chart, Explorer, Series, Stop
from dp_ensemble_env.reporting.plots import BLUE, GREY, PAGE, RED, WINDOW, look, save, subplots

#: Name of the line that the plan is.
PLANNED = "set-point, with range"


def total_chart(plan: Plan) -> Chart:
    """Power of all participants: usual load, plan with its range, baseline."""
    total = plan.total
    clock = _hours(total)
    window = clock[total.in_event]
    series = [
        Series("usual load, forecast", clock.tolist(), total.uncontrolled.tolist(), color="red"),
        Series(PLANNED, clock.tolist(), total.setpoint.tolist(), low=total.low.tolist(), high=total.high.tolist()),
    ]
    if total.baseline is not None:
        series.append(Series("customer baseline", clock.tolist(), total.baseline.tolist(), color="grey", dash="2 3"))
    ticks = [(float(h), f"{h % 24:g}") for h in range(math.ceil(clock[0]), math.floor(clock[-1]) + 1)]
    about: dict[str, Any] = {"clock": True, "unit": " kW", "x_ticks": ticks}
    about["window"] = (float(window[0] - total.step_hours), float(window[-1]))
    return Chart("The event, all participants", "hour of the day (end of the interval)", "power, kW", series, **about)


def price_explorer(plan: Plan) -> Explorer:
    """Let the reader move the event price: what is shed, what it costs in comfort, and the load."""
    total, prices = plan.total, [level.price for level in plan.levels]
    shed = [total.energy(total.uncontrolled - level.setpoint) / total.hours for level in plan.levels]
    frontier = Chart(
        "What a price brings",
        "event price on top of the tariff, $ per kWh",
        "mean power shed over the event, kW",
        [Series("power shed", prices, shed, dots=True)],
        x_name="$",
        unit=" kW",
    )
    clock = _hours(total).tolist()
    stops = [
        Stop(
            level.price,
            f"${level.price:.3g} per kWh",
            f"At ${level.price:.3g} per kWh the participants shed {kw:,.0f} kW on average, at a discomfort worth "
            f"${level.discomfort:,.0f}.",
            {"set-point": level.setpoint.tolist()},
        )
        for level, kw in zip(plan.levels, shed, strict=True)
    ]
    load = total_chart(plan)
    usual = [one for one in load.series if one.name != PLANNED]
    moved = Chart(**{**vars(load), "series": [*usual, Series("set-point", clock, total.setpoint.tolist())]})
    return Explorer("Event price", frontier, moved, stops, MULTIPLES.index(1.0))


def _hours(course: Course) -> Any:
    return (course.times - course.times[0].astype("datetime64[D]")) / np.timedelta64(3600, "s")


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
    hours = _hours(course)
    window = hours[course.in_event]
    axes.axvspan(window[0] - course.step_hours, window[-1], color=WINDOW, lw=0, zorder=0)
    axes.fill_between(hours, course.low, course.high, color=BLUE, alpha=0.2, lw=0)
    axes.plot(hours, course.uncontrolled, color=RED, lw=width, label="usual load, forecast")
    axes.plot(hours, course.setpoint, color=BLUE, lw=width, marker="o", ms=2, label="set-point, with range")
    if course.baseline is not None:
        axes.plot(hours, course.baseline, color=GREY, ls=(0, (2, 2)), lw=width, label="customer baseline")
    axes.margins(x=0.02)
