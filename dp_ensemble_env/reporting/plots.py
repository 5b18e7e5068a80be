"""One style for every picture: colours, fonts, saving; charts, and the pictures of privacy.

Importing this module imports matplotlib; the rest of the package does so only to draw a picture. It leaves
matplotlib's settings and figures unchanged: pictures are drawn inside `look`, on figures that pyplot does not know, so
they do not depend on a session's style or backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure

from dp_ensemble_env.reporting.charts import COLORS, Chart
from dp_ensemble_env.tools.files import atomic_write

# Okabe and Ito's colours, distinguishable by colour-blind readers.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PINK = "#0072B2", "#D55E00", "#CC79A7"
GREY = "#6E6E6E"
#: Shade of the event's hours, the same as in the environments' frames.
WINDOW = "#FAF0CD"
#: Widths of a journal's column and page, in inches.
COLUMN, PAGE = 3.5, 7.16


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
    figure = Figure(figsize=figsize)
    return figure, figure.subplots(rows, columns, **settings)


def save(figure: Any, path: Path, vector: bool = False, dpi: int = 200) -> Path:
    """Write a figure as PNG, atomically, and as SVG beside it if `vector`; return the PNG's path."""
    if vector:
        with atomic_write(path.with_suffix(".svg"), "wb") as stream:
            figure.savefig(stream, format="svg", metadata={"Date": None})
    with atomic_write(path, "wb") as stream:
        figure.savefig(stream, format="png", dpi=dpi)
    return path


#: The colours of charts by name; on a page they come from its style sheet.
NAMED = dict(zip(COLORS, (BLUE, RED, GREEN, ORANGE, PINK, SKY, BLACK, GREY), strict=True))


@look()
def draw_chart(chart: Chart, path: Path, vector: bool = False) -> Path:
    """Draw the plain picture of a chart, with the series that are shown at first."""
    series = [one for one in chart.series if one.shown]
    figure, axes = subplots(figsize=(PAGE, 4.0 if chart.rows is None else 0.26 * len(chart.rows) + 1.0))
    for span in chart.windows:
        axes.axvspan(*span, color=WINDOW, lw=0, zorder=0)
        axes.text(span[0] + 0.05, 0.02, "event", color="0.35", transform=axes.get_xaxis_transform())
    last = max((place for place, _ in chart.marks), default=0.0)
    for place, text in chart.marks:
        axes.axvline(place, color=GREY, ls=(0, (3, 2)), lw=1.2)
        side = "left" if place == last else "right"
        axes.text(place, 1.01, text, color="0.35", ha=side, transform=axes.get_xaxis_transform())
    for one in series:
        dash = (0, [float(part) / 2 for part in one.dash.split()]) if one.dash else "-"
        style: dict[str, Any] = {"ls": dash if one.line else "none", "marker": "o" if one.dots else None}
        if one.bars:
            axes.barh(one.y, one.x, 0.6, color=NAMED[one.color], label=one.name)
        else:
            axes.plot(one.x, one.y, color=NAMED[one.color], lw=1.6, ms=4, label=one.name, zorder=3, **style)
        if one.low is not None and one.high is not None and chart.rows is not None:
            axes.hlines(one.y, one.low, one.high, color=NAMED[one.color], lw=1.6)
        elif one.low is not None and one.high is not None:
            axes.fill_between(one.x, one.low, one.high, color=NAMED[one.color], alpha=0.2, lw=0)
        for x, y, note in zip(one.x, one.y, one.notes or (), strict=False):
            end = x + 0.03 * np.ptp(axes.get_xlim()) * len(note)  # about where the words end
            crossed = [place for place, _ in chart.marks if chart.rows and x <= place < end]
            axes.annotate(note, (max([x, *crossed]), y), (7, 0), textcoords="offset points", va="center")
    axes.set(xlabel=chart.x_label, ylabel=chart.y_label)
    axes.set_title(chart.title, pad=18 if chart.marks else None)
    if chart.rows is None and axes.get_ylim()[0] > 0:
        axes.set_ylabel(f"{chart.y_label} (axis starts above 0)")
    if chart.x_ticks is not None:
        axes.set_xticks([x for x, _ in chart.x_ticks], [text for _, text in chart.x_ticks])
        axes.minorticks_off()
    if chart.rows is not None:
        axes.set_yticks(range(len(chart.rows)), chart.rows)
        axes.invert_yaxis()
        if not any(one.bars for one in series):
            axes.grid(axis="y", color="0.9", lw=0.8)
            axes.axvline(0.0, lw=0.0)  # zero is on the axis
        axes.margins(x=0.12)
    if len(series) > 1:
        figure.legend(loc="outside lower center", ncols=min(3, len(series)))
    return save(figure, path, vector, dpi=110)


# ------------------------------------------------------------------ privacy
@look()
def plot_frontier(points: Sequence[Any], path: Path) -> Path:
    """Draw mean scores against ε: a row of panels for each instance and κ, a panel for each mechanism.

    A panel has a line for each number of participants, and one for the plan without data.
    """
    cases = sorted({_case(point) for point in points})
    names = list(dict.fromkeys(point.mechanism for point in points))
    numbers = sorted({point.participants for point in points}, reverse=True)
    ticks = sorted({point.epsilon for point in points})
    ticks = ticks if len(ticks) > 2 else [ticks[0] / 2, *ticks, ticks[-1] * 2]
    low = min(85.0, *(p.public - 3.0 for p in points))  # scores far below the plan without data are not drawn
    size = (0.4 + 2.8 * len(names), 0.8 + 1.8 * len(cases))
    figure, grid = subplots(len(cases), len(names), figsize=size, sharex=True, sharey=True, squeeze=False)
    for row, case in zip(grid, cases, strict=True):
        for axes, name in zip(row, names, strict=True):
            mine = sorted((p for p in points if (_case(p), p.mechanism) == (case, name)), key=lambda p: p.epsilon)
            for number, colour in zip(numbers, cycle(NAMED.values()), strict=False):
                line = [p for p in mine if p.participants == number]
                about: dict[str, Any] = {"color": colour, "marker": "o", "ms": 3, "label": f"{number:,} participants"}
                axes.plot([p.epsilon for p in line], [p.mean for p in line], **about)
                axes.vlines([p.epsilon for p in line], [p.worst for p in line], [p.mean for p in line], color=colour)
            axes.axhline(100.0, color=GREY, lw=1.0, label="optimum")
            axes.axhline(mine[0].public, color=BLACK, ls="--", lw=1.2, label="plan without data, ε = 0")
            axes.set_title(f"{name}, instance {case[0]}" + (f", κ = {-case[1]:g}" if case[1] else ""))
        row[0].set_ylabel(f"score: mean, down to worst\n(axis starts at {low:.0f})")
    axes.set(ylim=(low, 101.0), xscale="log", xlim=(ticks[0] / 1.2, ticks[-1] * 1.2))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    for axes in grid[-1]:
        axes.set_xlabel("ε (smaller is more private)")
    grid[0, 0].legend(fontsize=6.5)
    return save(figure, path)


def _case(point: Any) -> tuple[int, float]:
    return point.instance, -float(np.nan_to_num(point.heterogeneity))


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
        words = f"  {row.score:.1f}, ε = {row.price}"
        axes.annotate(words, (max(right[place], row.total + row.error), place), va="center")
    axes.errorbar([row.total for row in rows], places, xerr=[row.error for row in rows], fmt="k.", ms=3, lw=1.2)
    axes.set_yticks(places, [row.name for row in rows])
    axes.invert_yaxis()
    axes.axvline(0.0, color="0.4", lw=0.8)
    words = f"the plan without data scores {rows[0].without_data:.1f}" if rows else ""
    axes.set(xlabel=f"$ per load below the optimum, ± standard error; beside it score and ε; {words}")
    axes.margins(x=0.2)
    axes.legend(loc="lower right")
    return save(figure, path)
