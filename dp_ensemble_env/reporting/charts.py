"""Figures as data: drawn by a page's script, and by matplotlib as a plain picture.

Both come from the same `Chart`, so they agree. Numbers embedded in a page are rounded to the precision of a figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.model import EnsembleModel

#: Names of the colours; page.css gives each one for paper and one for the dark.
COLORS = ("blue", "red", "green", "orange", "pink", "sky", "black", "grey")
_DIGITS = 5


@dataclass(frozen=True, eq=False)
class Series:
    """One line of a chart, or a group of points; where y is not finite, nothing is drawn."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: str = "blue"  # one of `COLORS`
    dash: str = ""  # lengths of strokes and gaps in pixels, such as "6 3"; empty for a full line
    #: What is drawn; bars lie in rows, from zero to x.
    line: bool = True
    dots: bool = False
    bars: bool = False
    shown: bool = True  # whether it is visible at first; a click on the legend shows it
    #: A band around it; of rows, an interval in x.
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    notes: Sequence[str] | None = None  # words to the right of each point

    def spec(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        if self.color not in COLORS:
            raise ValueError(f"color must be one of {', '.join(COLORS)}; got {self.color!r}.")
        numbers = {name: getattr(self, name) for name in ("x", "y", "low", "high")}
        plain = {name: None if values is None else rounded(values) for name, values in numbers.items()}
        return {**vars(self), **plain, "notes": None if self.notes is None else list(self.notes)}


@dataclass(frozen=True, eq=False)
class Chart:
    """A figure with two axes."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    x_ticks: Sequence[tuple[float, str]] | None = None  # named places on the x axis; by default round numbers
    x_name: str = ""  # what a reader is told before a value of x: "k ="
    unit: str = ""  # what follows a value, with a space before it
    clock: bool = False  # whether x is the hour of a day
    windows: Sequence[tuple[float, float]] = ()  # hours of events, shaded
    marks: Sequence[tuple[float, str]] = ()  # places on the x axis that a line across the figure shows
    rows: Sequence[str] | None = None  # names of rows, if y counts rows from the top; values are then read off x

    def spec(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            **vars(self),
            "series": [one.spec() for one in self.series],
            "x_ticks": None if self.x_ticks is None else _named(self.x_ticks),
            "windows": [rounded(span) for span in self.windows],
            "marks": _named(self.marks),
            "rows": None if self.rows is None else list(self.rows),
        }


def _named(places: Sequence[tuple[float, str]]) -> list[Any]:
    return [[rounded([x])[0], text] for x, text in places]


def rounded(values: Any) -> list[float | None]:
    """Round to the precision of a figure; numbers that are not finite become None.

    Examples
    --------
    >>> rounded([1234.5678, float("nan")])
    [1234.6, None]
    """
    return [float(f"{v:.{_DIGITS}g}") if math.isfinite(v) else None for v in np.asarray(values, dtype=float).tolist()]


def power_chart(model: EnsembleModel, title: str, series: Sequence[Series]) -> Chart:
    """Power over time, with the event's hours and the customer baseline."""
    clock, lines = hours(model), list(series)
    windows: list[tuple[float, float]] = []
    if model.event is not None and model.event.in_event.any():
        inside = clock[model.event.in_event]
        windows = [(float(inside[0] - model.step_hours), float(inside[-1]))]
        if model.event.baseline_kw is not None:
            baseline = (model.event.baseline_kw / 1e3).tolist()
            lines.append(Series("customer baseline", clock.tolist(), baseline, color="grey", dash="2 3"))
    whose = f"mean power of {model.loads} loads, MW"
    about: dict[str, Any] = {"clock": True, "windows": windows, "x_ticks": hour_ticks(clock), "unit": " MW"}
    return Chart(title, "hour of the day (end of the interval)", whose, lines, **about)


def hour_ticks(clock: NDArray[np.float64]) -> list[tuple[float, str]]:
    """Return the full hours of a clock, with their names."""
    return [(float(h), f"{h % 24:g}") for h in range(math.ceil(clock[0]), math.floor(clock[-1]) + 1)]


def hours(model: EnsembleModel) -> NDArray[np.float64]:
    """Return the hour of the day of each time, counted from the first day."""
    since: NDArray[np.float64] = (model.times - model.times[0].astype("datetime64[D]")) / np.timedelta64(3600, "s")
    return since
