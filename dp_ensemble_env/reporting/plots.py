"""One look for every picture: colours, fonts, and how a figure reaches the disk.

Importing this module imports matplotlib; nothing else in the package does so
before a picture is asked for. It leaves matplotlib's settings and its figures
as they are: pictures are drawn inside `look`, on figures that pyplot does not
know, so they come out alike whatever a session's style and backend are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.charts import COLORS, Chart
from dp_ensemble_env.reporting.charts import hours as hours
from dp_ensemble_env.tools.files import atomic_write

# Okabe and Ito's colours, distinguishable by colour-blind readers.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY = "#6E6E6E"
#: Shade of the event's hours, the same as in the environments' frames.
WINDOW = "#FAF0CD"
#: Widths of a journal's column and page, in inches.
COLUMN, PAGE = 3.5, 7.16


class Look(NamedTuple):
    """How one method is drawn everywhere: colour, line and marker, so that no two differ by colour alone."""

    color: str
    line: Any
    marker: str


LOOKS = {
    "uncontrolled": Look(RED, "-", "v"),
    "ad-hoc": Look(BLACK, (0, (5, 1, 1, 1)), "X"),
    "best-price": Look(BLACK, (0, (1, 1.5)), "P"),
    "standard": Look(BLUE, "-", "o"),
    "taylor": Look(ORANGE, "--", "s"),
    "digamma": Look(PINK, (0, (1, 1)), "^"),
    "average-exact": Look(GREEN, "-.", "D"),
    "average-sampled": Look(GREEN, (0, (1, 2)), "d"),
    "average-expansion": Look(GREEN, (0, (4, 2)), "h"),
    "one release": Look(BLUE, (0, (6, 2)), "p"),
    "learned": Look(SKY, "-", "*"),
}

_SETTINGS: dict[str, Any] = {
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "svg.hashsalt": "dp_ensemble_env",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 2.8,
    "figure.constrained_layout.use": True,
}


@contextmanager
def look(settings: dict[str, Any] | None = None) -> Iterator[None]:
    """Draw in our style while the context lasts, with further settings of matplotlib; also a decorator."""
    wanted: Any = ["default", {**_SETTINGS, **(settings or {})}]
    with style.context(wanted):
        yield


def subplots(rows: int = 1, columns: int = 1, *, figsize: tuple[float, float], **settings: Any) -> tuple[Any, Any]:
    """Make a figure and its axes as pyplot does, but unknown to pyplot; call it inside `look`."""
    figure = Figure(figsize=figsize, layout=settings.pop("layout", None))
    return figure, figure.subplots(rows, columns, **settings)


def save(figure: Any, path: Path, vector: bool = False, dpi: int = 200) -> Path:
    """Write a figure as PNG, atomically, and as SVG beside it if `vector`; return the PNG's path."""
    if vector:
        with atomic_write(path.with_suffix(".svg"), "wb") as stream:
            figure.savefig(stream, format="svg", metadata={"Date": None})
    with atomic_write(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=dpi)
    return path


def power_axes(axes: Any, model: EnsembleModel) -> None:
    """Prepare axes for power over time: event window, customer baseline, labels with units."""
    clock = hours(model)
    if model.event is not None and model.event.in_event.any():
        window = clock[model.event.in_event]
        begin = window[0] - model.step_hours
        axes.axvspan(begin, window[-1], color=WINDOW, lw=0, zorder=0)
        axes.text(begin + 0.05, 0.02, "event", color="0.35", transform=axes.get_xaxis_transform())
        if model.event.baseline_kw is not None:
            baseline = model.event.baseline_kw / 1e3
            axes.plot(clock, baseline, color=GREY, ls=(0, (2, 2)), lw=1.5, label="customer baseline")
    axes.set(xlabel="hour of the day (end of the interval)", ylabel=f"mean power of {model.buildings} loads, MW")


#: The colours of charts by name; on a page they come from its style sheet.
NAMED = dict(zip(COLORS, (BLUE, RED, GREEN, ORANGE, PINK, SKY, BLACK, GREY), strict=True))


@look()
def draw_chart(chart: Chart, path: Path, vector: bool = False) -> Path:
    """Draw the plain picture of a chart: what is shown before anybody clicks."""
    series = [one for one in chart.series if one.shown]
    figure, axes = subplots(figsize=(PAGE, 4.0 if chart.rows is None else 0.26 * len(chart.rows) + 1.0))
    for span in chart.windows:
        axes.axvspan(*span, color=WINDOW, lw=0, zorder=0)
        axes.text(span[0] + 0.05, 0.02, "event", color="0.35", transform=axes.get_xaxis_transform())
    for place, text in chart.marks:
        axes.axvline(place, color=GREY, ls=(0, (3, 2)), lw=1.2)
        axes.text(place, 1.01, text, color="0.35", ha="center", transform=axes.get_xaxis_transform())
    for one in series:
        dash = (0, [float(part) / 2 for part in one.dash.split()]) if one.dash else "-"
        style: dict[str, Any] = {"ls": dash if one.line else "none", "marker": "o" if one.dots else None}
        if one.bars:
            axes.barh(one.y, one.x, 0.6, color=NAMED[one.color], label=one.name)
        else:
            axes.plot(one.x, one.y, color=NAMED[one.color], lw=1.6, ms=4, label=one.name, **style)
        if one.low is not None and one.high is not None:
            axes.fill_between(one.x, one.low, one.high, color=NAMED[one.color], alpha=0.2, lw=0)
        for x, y, note in zip(one.x, one.y, one.notes or (), strict=False):
            axes.annotate(note, (x, y), (7, 0), textcoords="offset points", va="center")
    axes.set(xlabel=chart.x_label, ylabel=chart.y_label)
    axes.set_title(chart.title, pad=18 if chart.marks else None)
    if chart.log_x:
        axes.set_xscale("log")
        plain_log(axes.xaxis)
    if chart.log_y:
        axes.set_yscale("log")
        plain_log(axes.yaxis)
    elif chart.rows is None and axes.get_ylim()[0] > 0:
        axes.set_ylabel(f"{chart.y_label} (axis starts above 0)")
    if chart.x_ticks is not None:
        axes.set_xticks([x for x, _ in chart.x_ticks], [text for _, text in chart.x_ticks])
        axes.minorticks_off()
    if chart.rows is not None:
        axes.set_yticks(range(len(chart.rows)), chart.rows)
        axes.invert_yaxis()
        axes.grid(axis="y", color="0.9", lw=0.8)
        axes.margins(x=0.12)
    if len(series) > 1:
        figure.legend(loc="outside lower center", ncols=min(3, len(series)))
    return save(figure, path, vector, dpi=110)


class _PlainLog(LogFormatter):
    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def plain_log(axis: Any) -> None:
    """Write the numbers of a logarithmic axis out; small exponents are hard to read."""
    axis.set_major_formatter(_PlainLog())
    axis.set_minor_formatter(_PlainLog())


#: Corners of the triangle that stands for three probabilities.
CORNERS = np.array([[0.0, 0.0], [0.5, np.sqrt(3) / 2], [1.0, 0.0]])


def triangle_axes(axes: Any, labels: Any) -> None:
    """Prepare axes for points ``p @ CORNERS``: the shaded simplex with a label at each corner."""
    axes.fill(*CORNERS.T, color="0.95", zorder=0)
    axes.plot(*np.vstack([CORNERS, CORNERS[:1]]).T, color="0.5", lw=1)
    for number, (corner, label) in enumerate(zip(CORNERS, labels, strict=True)):
        axes.text(
            corner[0],
            corner[1] + (0.03 if number == 1 else -0.045),
            label,
            ha="center",
            va="bottom" if number == 1 else "top",
        )
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set(xlim=(-0.12, 1.12), ylim=(-0.12, 0.97))


def scatter_in_turns(axes: Any, clouds: Any, **style: Any) -> None:
    """Draw several clouds (points, color, marker, label) in ten turns, so that none hides another."""
    for turn in range(10):
        for points, color, marker, label in clouds:
            name = label if turn == 0 else None
            axes.scatter(*points[turn::10].T, color=color, marker=marker, label=name, zorder=2 + turn / 10, **style)
