"""The figures of a comparison: live on the page, and as pictures beside it.

Importing this module imports matplotlib.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.experiments.comparison_report import PrivateRow, Row, no_minus_zero
from dp_ensemble_env.experiments.comparison_takeaways import AS_TILT
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.charts import Chart, Explorer, Series, Stop, hours, power_chart
from dp_ensemble_env.reporting.plots import draw_chart

#: Captions of the files.
CAPTIONS = {
    "scores.png": "Gap to the optimum of every controller; left is better. The number at each point is the score.",
    "event.png": "What the controllers do to the power of the ensemble. Click a name to show or hide it.",
    "learning.png": "Learning curves: the score after so many steps, one line for each seed.",
    "deployed.png": "Made on a release, deployed on the true behaviour: the score against the noise of the release.",
    "deployed-event.png": "The power that the plans of the chosen release bring about, mean over the releases.",
    "cost.png": "What privacy costs: the gap to the true optimum as measured, and by theory.",
}
#: Colour and dash of every controller, the same in all figures.
STYLES = {
    "uncontrolled": ("red", ""),
    "ad-hoc": ("black", "8 3 2 3"),
    "best-price": ("black", "2 3"),
    "standard": ("blue", ""),
    AS_TILT: ("green", ""),
    "taylor": ("orange", "6 4"),
    "digamma": ("pink", "3 3"),
    "average-exact": ("green", "8 3 2 3"),
    "average-sampled": ("green", "2 4"),
    "average-expansion": ("green", "6 4"),
    "one release": ("blue", "6 4"),
}
_LEARNED = (("orange", ""), ("pink", ""), ("sky", ""), ("sky", "6 4"), ("orange", "2 3"), ("pink", "2 3"))
_FIRST = ("uncontrolled", "ad-hoc", "best-price", "standard")


def style_of(name: str, learners: Sequence[str] = ()) -> dict[str, Any]:
    """Return colour and dash of a controller; learners take theirs in turn."""
    number = list(learners).index(name) if name in learners else 0
    color, dash = STYLES.get(name) or _LEARNED[number % len(_LEARNED)]
    return {"color": color, "dash": dash}


def draw(charts: Mapping[str, Chart], folder: Path, suffix: str = "") -> dict[str, Path]:
    """Draw the plain pictures of the charts by their files' names; `suffix` ends the names."""
    return {name: draw_chart(chart, folder / name.replace(".", f"{suffix}.")) for name, chart in charts.items()}


# ------------------------------------------------------------------ made on the truth
def scores_chart(rows: Sequence[Row]) -> Chart:
    """Gap and score of every controller but the optimum itself."""
    shown = [row for row in rows if row.name != "standard"]
    gaps = [max(row.evaluation.gap, 1e-3) for row in shown]
    scores = [row.summary.iqm if row.summary is not None else row.evaluation.score for row in shown]
    several = len({row.env for row in shown}) > 1
    names = [f"{row.name} ({row.env})" if several else row.name for row in shown]
    notes = [f"{no_minus_zero(score):.1f}" for score in scores]
    points = Series("gap", gaps, list(range(len(shown))), line=False, dots=True, notes=notes)
    label = "gap to the optimum, $ per building"
    about: dict[str, Any] = {"log_x": True, "rows": names, "x_name": "gap: $"}
    return Chart("How far every controller is from the optimum", label, "", [points], **about)


def event_chart(model: EnsembleModel, rows: Sequence[Row]) -> Chart:
    """Power under every controller of the mean field; the noise-aware policies are hidden at first."""
    mine = [row for row in rows if row.env == "mean-field"]
    learned = [row for row in mine if row.summary is not None]
    best = max(learned, key=lambda row: row.summary.iqm, default=None)  # type: ignore[union-attr]
    clock, names = hours(model).tolist(), [row.name for row in learned]
    series = [
        Series(
            "standard (optimum)" if row.name == "standard" else row.name,
            clock,
            (row.evaluation.power_kw / 1e3).tolist(),
            shown=row.name in _FIRST or row is best,
            **style_of(row.name, names),
        )
        for row in mine
    ]
    return power_chart(model, "The event under every controller", series)


def learning_chart(rows: Sequence[Row]) -> Chart | None:
    """Score against steps, every seed; None if nobody learned step by step."""
    drawn = [row for row in rows if any(row.curves)]
    names = [row.name for row in drawn]
    series = []
    for row in drawn:
        for seed, curve in enumerate(row.curves):
            steps, scores = zip(*curve, strict=True) if curve else ((), ())
            values = np.clip(scores, 0, None).tolist()
            name = f"{row.name} ({row.env})" + (f", seed {seed}" if len(row.curves) > 1 else "")
            series.append(
                Series(name, [s / 1000 for s in steps], values, dots=len(steps) < 2, **style_of(row.name, names))
            )
    if not series:
        return None
    return Chart("How the learners learned", "thousand steps", "score", series, x_name="thousand steps:")


# ------------------------------------------------------------------ made on releases
def sources(private: Sequence[PrivateRow]) -> dict[str, float]:
    """Return where each source stands on the axis of noise: by its k, then no noise, then other mechanisms."""
    finite = sorted({row.k for row in private if math.isfinite(row.k)})
    places = {f"{k:g}": k for k in finite}
    rest = [row.source for row in private if not math.isfinite(row.k)]
    rest.sort(key=lambda source: not source.startswith("∞"))
    after = finite[-1] if finite else 1.0
    for source in dict.fromkeys(rest):
        places[source] = after = 2.5 * after
    return places


def _title(source: str) -> str:
    return "no noise" if source.startswith("∞") else source


def deployed_explorer(model: EnsembleModel, rows: Sequence[Row], private: Sequence[PrivateRow]) -> Explorer | None:
    """Score of what was made on releases, and the power that follows; None without a release."""
    places = sources(private)
    if not private or all(math.isinf(row.k) for row in private):
        return None
    names = list(dict.fromkeys(row.name for row in private))
    learners = [name for name in names if name not in STYLES]
    first = {AS_TILT, "standard", *learners[:1]}
    by = {(row.name, row.source): row for row in private}
    clock = hours(model).tolist()
    frontier, load = [], []
    for name in names:
        mine = [(place, by[name, source]) for source, place in places.items() if (name, source) in by]
        style: dict[str, Any] = {"shown": name in first, **style_of(name, learners)}
        means = [float(np.mean(row.scores)) for _, row in mine]
        frontier.append(Series(name, [place for place, _ in mine], means, dots=True, **style))
        if all(row.power_kw is not None for _, row in mine):
            load.append(Series(name, clock, [math.nan] * len(clock), **style))
    guess = private[0].without_data
    if math.isfinite(guess):
        ends = list(places.values())
        frontier.append(Series("without data (ε = 0)", ends, [guess] * len(ends), color="grey", dash="6 4"))
    known = {row.name: row.evaluation.power_kw for row in reversed(rows) if row.env == "mean-field"}
    for name, title in (("standard", "optimum"), ("uncontrolled", "uncontrolled")):
        if name in known:
            look: dict[str, Any] = {"color": "red" if name == "uncontrolled" else "black", "dash": "2 3"}
            load.append(Series(title, clock, (known[name] / 1e3).tolist(), **look))
    ticks = [(place, _title(source)) for source, place in places.items()]
    label = "concentration k of the release (larger: less private)"
    chart = Chart(
        "Score of what was made on a release",
        label if all(row.spec == "" for row in private) else "noise of the release: k, or the mechanism",
        "score on the true behaviour",
        frontier,
        log_x=True,
        x_ticks=ticks,
        x_name="k =" if all(row.spec == "" for row in private) else "",
    )
    stops = [_stop(source, place, names, by, load) for source, place in places.items()]
    power = power_chart(model, "The power that follows", load)
    start = next((i for i, source in enumerate(places) if source == "50"), 0)
    return Explorer("Noise of the release", chart, power, stops, start)


def _stop(
    source: str, place: float, names: list[str], by: dict[tuple[str, str], PrivateRow], load: Sequence[Series]
) -> Stop:
    mine = [by[name, source] for name in names if (name, source) in by]
    tilt = by.get((AS_TILT, source), mine[0])
    name = "No noise, the true behaviour" if source.startswith("∞") else tilt.spec or f"k = {source}"
    spent = "no privacy" if math.isinf(tilt.epsilon) else f"ε = {tilt.epsilon:.3g} at δ = 1e-6"
    if math.isinf(tilt.epsilon) and not source.startswith("∞"):
        spent = "no guarantee without a floor"
    guess = f"; without data: {tilt.without_data:.1f}" if math.isfinite(tilt.without_data) else ""
    says = f"{name} ({spent}). Score of {tilt.name}: {np.mean(tilt.scores):.1f}{guess}."
    drawn = {one.name for one in load}
    curves = {row.name: (row.power_kw / 1e3).tolist() for row in mine if row.power_kw is not None and row.name in drawn}
    return Stop(place, name, says, curves)


def cost_chart(private: Sequence[PrivateRow], costs: Mapping[str, Sequence[float]]) -> Chart | None:
    """Gap to the true optimum against k: measured, and by theory; None without a finite k."""
    ks = sorted({row.k for row in private if math.isfinite(row.k)})
    if not ks:
        return None
    names = list(dict.fromkeys(row.name for row in private))
    learners = [name for name in names if name not in STYLES]
    series = []
    for name in names:
        mine = sorted((row for row in private if row.name == name and math.isfinite(row.k)), key=lambda row: row.k)
        gaps = [max(float(np.mean(row.gaps)), 1e-3) for row in mine]
        shown = name in (AS_TILT, "standard")
        style: dict[str, Any] = {"dots": True, "shown": shown, **style_of(name, learners)}
        series.append(Series(name, [row.k for row in mine], gaps, **style))
    for name, values in costs.items():
        look: dict[str, Any] = {"color": style_of(name)["color"], "dash": "2 3", "shown": name == "one release"}
        series.append(Series(f"theory: {name}", ks, list(values), **look))
    about: dict[str, Any] = {"log_x": True, "log_y": True, "x_ticks": [(k, f"{k:g}") for k in ks], "x_name": "k ="}
    label = "concentration k of the release (larger: less private)"
    return Chart("What privacy costs", label, "gap to the true optimum, $ per building", series, **about)
