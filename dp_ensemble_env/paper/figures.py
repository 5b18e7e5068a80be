"""The figures of the paper's Section VI, drawn from a `Study`: PNG for the page and SVG beside it, with captions.

Each function of `FIGURES` draws one into a file and returns the words that stand under it, which a reader can follow
without the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import dates
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from dp_ensemble_env.chain.calendar import select_days
from dp_ensemble_env.paper import measures as m
from dp_ensemble_env.paper.data import H
from dp_ensemble_env.paper.measures import DELTA, FORMULA, KS, NAMES, PAPER_EPSILON
from dp_ensemble_env.paper.study import Study
from dp_ensemble_env.paper.verdicts import distance, percent
from dp_ensemble_env.reporting import plots as p
from dp_ensemble_env.reporting.charts import Chart, Series, hours, power_chart

#: The row and its neighbour, in all figures.
INPUTS = (("the row", p.BLUE, "o"), ("its neighbour", p.RED, "^"))
#: All figures are as wide as a journal's column; no text in them is smaller than 7.5 points.
FONTS: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
}
DPI = 300
LINE: dict[str, Any] = {"ms": 4.5, "lw": 1.4}
DRAWN = "mean of policies drawn"
#: Corners of the triangle that stands for three probabilities.
CORNERS = np.array([[0.0, 0.0], [0.5, np.sqrt(3) / 2], [1.0, 0.0]])


def draw_all(study: Study, folder: Path) -> dict[str, tuple[Path, str]]:
    """Draw every figure; return path of the PNG and caption of each."""
    drawn = {}
    with p.look(FONTS):
        for name, (title, row, draw) in FIGURES.items():
            if study.row is not None or not row:
                path = folder / f"{name}.png"
                drawn[title] = path, draw(study, path)
    return drawn


def _save(figure: Any, path: Path) -> None:
    p.save(figure, path, vector=True, dpi=DPI)


def _clock(study: Study) -> str:
    """Time of day that Figures 5 and 6 show."""
    return str(study.data.model.times[study.time])[11:16]


def _some(study: Study) -> str:
    """Say that not all successors are shown, if so."""
    count = len(study.the_row.successors)
    words = f" Of the row's {count} successors the three most likely are shown, rescaled to sum to one."
    return "" if count == 3 else words


# ------------------------------------------------------------------ Figure 3
def _load_and_matrix(study: Study, path: Path) -> str:
    data, model = study.data, study.data.model
    figure, (left, right) = p.subplots(2, 1, figsize=(p.COLUMN, 5.2), height_ratios=(1, 1.5))
    label, index = np.unique(data.times.astype("datetime64[D]"), return_inverse=True)
    low, mean, high = np.full((3, len(label)), np.nan)
    for day in range(len(label)):
        values = data.aggregate_kw[index == day] / 1e3
        if not np.isnan(values).all():
            low[day], mean[day], high[day] = np.nanmin(values), np.nanmean(values), np.nanmax(values)
    if data.season is not None:
        used = label[select_days(label.astype("datetime64[s]"), season=data.season)]
        for year in np.unique(used.astype("datetime64[Y]")):
            mine = used[used.astype("datetime64[Y]") == year]
            left.axvspan(mine[0], mine[-1], color=p.WINDOW, lw=0, zorder=0)
    left.fill_between(label, low, high, color=p.SKY, alpha=0.5, lw=0, label="daily range")
    left.plot(label, mean, color=p.BLUE, lw=1, label="daily mean")
    event = model.times[0].astype("datetime64[D]")
    if label[0] <= event <= label[-1]:
        left.axvline(event, color=p.RED, lw=1, ls="--", label="event day")
    left.set(ylabel="power of 100 buildings,\nMW (axis starts above 0)", title="(a) aggregate load")
    left.margins(x=0)
    _below(left, 3, handlelength=1.4, columnspacing=1.0)
    months = label[-1] - label[0] > np.timedelta64(200, "D")
    locator: Any = dates.AutoDateLocator  # matplotlib gives the two no types
    formatter: Any = dates.DateFormatter
    left.xaxis.set_major_locator(locator(minticks=3, maxticks=6 if months else 4))
    left.xaxis.set_major_formatter(formatter("%b" if months else "%d %b"))
    left.set_xlabel("–".join(sorted({str(label[0])[:4], str(label[-1])[:4]})))

    n = model.n_states
    shown = np.where(model.default > 0, model.default, np.nan)
    shades = LinearSegmentedColormap.from_list("blues", ["#D6E9F5", p.BLUE, "#00263D"])
    most = np.ceil(10 * model.default.max()) / 10
    image = right.imshow(shown, cmap=shades, vmin=0, vmax=most, extent=(0.5, n + 0.5, n + 0.5, 0.5))
    right.spines[["top", "right"]].set_visible(True)
    ticks = [1, *range(5, n + 1, 5)]
    right.set(xticks=ticks, yticks=ticks, xlabel="to level", ylabel="from level", title="(b) default matrix")
    if study.row is not None:
        state = study.row.state + 1
        frame: dict[str, Any] = {"fill": False, "ec": p.RED, "lw": 1.2, "clip_on": False, "zorder": 5}
        right.add_patch(Rectangle((0.5, state - 0.5), n, 1, **frame))
    figure.colorbar(image, ax=right, shrink=0.9, pad=0.03).set_label("transition probability")
    _save(figure, path)
    text = (
        "(a) Power of the 100 buildings together: each day's range and mean; shaded, the readings that the chain is "
        "estimated from. (b) Default matrix: probability of going from one power level (row) to another (column) in "
        "one step when nobody interferes; white: never seen."
    )
    return text + ("" if study.row is None else " Outlined: the row of Figures 4 to 6.")


# ------------------------------------------------------------------ Figures 4 to 6
def _releases(study: Study, path: Path) -> str:
    row = study.the_row
    figure, panels = p.subplots(2, 1, figsize=(p.COLUMN, 6.4))
    for axes, k, letter in zip(panels, KS, "ab", strict=True):
        _triangle(axes, study, study.clouds[k], (row.row, row.adjacent), "copies of {}", "{}")
        epsilon = study.at(study.epsilon[m.PAIR], k)
        axes.set_title(f"({letter}) k = {k:g}: exact ε = {epsilon:.2f} at δ = {DELTA:g}", loc="center")
    _triangle_legend(figure, *panels[0].get_legend_handles_labels(), handletextpad=0.2, handlelength=1.5)
    _save(figure, path)
    return (
        f"{study.effort.points} private copies of row {row.state + 1}, and as many of its neighbour (h = {H:g}), "
        "for k = 50 and k = 200. A point is three probabilities; at a corner that successor is certain. The larger k, "
        f"the less noise, and the easier the two clouds are to tell apart.{_some(study)}"
    )


def _stochastic(study: Study, path: Path) -> str:
    figure, panels = p.subplots(2, 1, figsize=(p.COLUMN, 4.9), sharey=True)
    for axes, method, letter in zip(panels, ("taylor", "digamma"), "ab", strict=True):
        _pair_bars(axes, study, [(method, k) for k in KS])
        apart = ", ".join(f"{distance(study.l1[method, k])} (k = {k:g})" for k in KS)
        axes.set_title(f"({letter}) {NAMES[method]}\nL1 distance {apart}")
        axes.set_ylabel(f"probability at {_clock(study)}")
    panels[0].set_xlabel("")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    _save(figure, path)
    return (
        f"Noise-aware policies in state {study.the_row.state + 1} at {_clock(study)}, computed for the row and for its "
        "neighbour: where the controlled ensemble goes next. The more alike the bars of a pair are, the less the "
        "policy depends on the h = 0.03 by which the rows differ; that alone does not make it private (see the claims)."
    )


def _average(study: Study, path: Path) -> str:
    figure, grid = p.subplots(4, 1, figsize=(p.COLUMN, 9.0), height_ratios=(1.75, 1.75, 1, 1))
    for axes, k, letter in zip(grid[:2], KS, "ab", strict=True):
        expected = study.adjacent["average-exact", k]
        _triangle(axes, study, study.policy_clouds[k], expected, "policies for {}", "expectation, {}")
        axes.set_title(f"({letter}) policies of {study.effort.points} releases, k = {k:g}", loc="center")
    for axes, k, letter in zip(grid[2:], KS, "cd", strict=True):
        _pair_bars(axes, study, [("average-exact", k)], study.policy_clouds[k])
        axes.set_title(f"({letter}) expectation at k = {k:g}: L1 distance {distance(study.l1['average-exact', k])}")
        axes.set_ylabel(f"probability at {_clock(study)}")
    grid[2].set_xlabel("")
    (handles, labels), (bars, names) = (grid[i].get_legend_handles_labels() for i in (0, 2))
    style = {"handlelength": 1.2, "handletextpad": 0.3, "columnspacing": 1.0}
    _triangle_legend(figure, [*handles, bars[names.index(DRAWN)]], [*labels, DRAWN], **style)
    top = max(axes.get_ylim()[1] for axes in grid[2:])
    for axes in grid[2:]:
        axes.set_ylim(0, top)
    _save(figure, path)
    share = float(study.adjacent["average-exact", 50.0][0][list(study.the_row.triple)].sum())
    held = _some(study) and f"{_some(study)} They hold {percent(share, 0)} of the expected policy at k = 50."
    return (
        f"Average value approach in the same state at {_clock(study)}. (a), (b) Policies solved on "
        f"{study.effort.points} releases of the whole matrix, and of its neighbour; large markers: the expectation of "
        f"Proposition 3, computed exactly.{held} (c), (d) That expectation (bars, with the L1 distance between "
        "the two inputs) and the mean of the policies drawn (crosses, with 95 % intervals). The two need not agree: "
        "Proposition 3 holds z at its true value, while every drawn policy has a z of its own."
    )


def _triangle(axes: Any, study: Study, clouds: Any, points: Any, of_cloud: str, of_point: str) -> None:
    """Draw two clouds of distributions over the three most likely successors, and one large marker for each.

    The clouds are drawn in ten turns, so that neither hides the other.
    """
    axes.fill(*CORNERS.T, color="0.95", zorder=0)
    axes.plot(*np.vstack([CORNERS, CORNERS[:1]]).T, color="0.5", lw=1)
    for (x, y), state, top in zip(CORNERS, study.the_row.triple, (False, True, False), strict=True):
        place = {"ha": "center", "va": "bottom" if top else "top"}
        axes.text(x, y + (0.03 if top else -0.045), f"level {state + 1}", **place)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set(xlim=(-0.12, 1.12), ylim=(-0.12, 0.97))
    small: dict[str, Any] = {"s": 5, "alpha": 0.45, "lw": 0}
    large: dict[str, Any] = {"s": 45, "ec": "white", "lw": 0.9, "zorder": 5}
    for turn in range(10):
        for cloud, (name, color, marker) in zip(clouds, INPUTS, strict=True):
            places, label = study.the_row.on_triple(cloud)[turn::10] @ CORNERS, of_cloud.format(name)
            axes.scatter(
                *places.T, color=color, marker=marker, label=None if turn else label, zorder=2 + turn / 10, **small
            )
    for values, (name, color, marker) in zip(points, INPUTS, strict=True):
        place = study.the_row.on_triple(values) @ CORNERS
        axes.scatter(*place, color=color, marker=marker, label=of_point.format(name), **large)


def _triangle_legend(figure: Any, handles: Any, labels: Any, **style: Any) -> None:
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=2, **style)
    for handle, size in zip(list(legend.legend_handles)[:4], (14, 14, 45, 45), strict=True):
        handle.set_sizes([size])  # the small points would hardly be seen


def _pair_bars(axes: Any, study: Study, cases: Sequence[tuple[str, float]], samples: Any = None) -> None:
    """Draw the policies of the row and of its neighbour side by side on the row's successors."""
    row = study.the_row
    support = row.successors
    width = 0.8 / (2 * len(cases))
    for number, case in enumerate(cases):
        for side, (name, color, _) in enumerate(INPUTS):
            place = np.arange(len(support)) - 0.4 + width * (2 * number + side + 0.5)
            values = study.adjacent[case][side][support]
            hatch = "" if number == 0 else "////"
            face = color if number == 0 else "white"
            label = f"{name}, k = {case[1]:g}" if len(cases) > 1 else name
            axes.bar(place, values, 0.92 * width, fc=face, ec=color, hatch=hatch, lw=0.8, label=label)
            if samples is not None:
                cloud, words = samples[side][:, support], DRAWN if side else None
                spread = 1.96 * cloud.std(axis=0) / math.sqrt(len(cloud))
                style: dict[str, Any] = {"color": p.BLACK, "ms": 4.5, "mew": 1.1, "zorder": 4}
                axes.errorbar(place, cloud.mean(axis=0), spread, fmt="x", label=words, **style)
    axes.set_xticks(range(len(support)), [str(state + 1) for state in support])
    axes.set_xlabel(f"next level, from level {row.state + 1}")
    drawn = [values.max() for case in cases for values in study.adjacent[case]]
    if samples is not None:
        drawn += [cloud.mean(axis=0).max() for cloud in samples]
    axes.set_ylim(0, 1.08 * max(drawn))


# ------------------------------------------------------------------ Figure 7
def event_chart(study: Study) -> Chart:
    """Power in the event: left alone, by today's practice, by the optimum, by policies that expect k = 50, learned."""
    clock = hours(study.data.model).tolist()
    looks = {
        ("uncontrolled", 0.0): ("uncontrolled", "red", ""),
        ("ad-hoc", 0.0): ("ad-hoc practice", "black", "8 3 2 3"),
        ("standard", 0.0): ("standard (optimum)", "blue", ""),
        ("taylor", 50.0): ("Taylor", "orange", "6 4"),
        ("digamma", 50.0): ("Digamma", "pink", "3 3"),
        ("average-exact", 50.0): ("average value", "green", ""),
    }
    powers = [(study.events[key].power_kw, *look) for key, look in looks.items()]
    powers += [(best.outcome.power_kw, f"learned: {best.name}", "sky", "2 3") for best in study.learned[:1]]
    lines = [Series(name, clock, (kw / 1e3).tolist(), color=color, dash=dash) for kw, name, color, dash in powers]
    return power_chart(study.data.model, f"The event, {study.data.title}", lines)


def _event(study: Study, path: Path) -> str:
    p.draw_chart(event_chart(study), path, vector=True)
    model = study.data.model
    learned = ", ".join(f"{one.name} {one.outcome.score:.1f} after {one.steps:,} steps" for one in study.learned)
    no_baseline = model.event is None or model.event.baseline_kw is None
    return (
        f"Power of the ensemble in the event of {str(model.times[0])[:10]}; lower is more curtailment. The "
        "noise-aware policies expect k = 50. Ad-hoc practice: a fixed shed while the event lasts, "
        f"{percent(study.shed_share)} of the energy used in it; we chose its size. Customer baseline: "
        f"best 5 of the last 10 similar days{', not available for these data' if no_baseline else ''}. "
        f"Learners trained for this page, with scores (0: uncontrolled, 100: optimum): {learned}; drawn: the best."
    )


# ------------------------------------------------------------------ Figure 8
def _trade_off(study: Study, path: Path) -> str:
    panels = 1 if study.row is None else 2
    figure, grid = p.subplots(panels, 1, figsize=(p.COLUMN, 3.9 * panels), squeeze=False)
    ks = np.array(study.effort.ks)
    upper = grid[0, 0]
    lines = {
        "taylor": ("Taylor, exact", p.ORANGE, "s", "-"),
        f"taylor{FORMULA}": ("Taylor, Corollary 1", p.ORANGE, "s", "--"),
        "digamma": ("Digamma, exact", p.PINK, "^", "-"),
        f"digamma{FORMULA}": ("Digamma, Corollary 2", p.PINK, "^", "--"),
        "average-exact": ("averaged policy, exact", p.GREEN, "D", "-"),
        m.ONE: ("one release, exact", p.BLUE, "p", "-"),
        m.ONE_STEP: ("one release, one-step", p.BLUE, "p", "--"),
        m.LEADING: ("Corollary 3 corrected", p.BLACK, "P", ":"),
    }
    for name, (label, color, marker, dash) in lines.items():
        errors = study.cost_error.get(name)
        style = {"color": color, "marker": marker, "ls": dash, "mfc": color if dash == "-" else "white", **LINE}
        bars = None if errors is None else 2 * np.array(errors)
        upper.errorbar(ks, study.cost[name], bars, capsize=2, label=label, **style)
    _k_axis(upper, ks)
    upper.set(yscale="log", ylabel="cost of privacy, $ per building", title="(a) cost")
    _plain_y(upper)
    _below(upper, 2, columnspacing=0.8, handlelength=2.2)
    if study.row is not None:
        _epsilon_panel(grid[1, 0], study, ks)
    _save(figure, path)
    printed = study.cost[m.PRINTED]
    near, far = (np.array(study.cost[name]) / study.cost[m.ONE] for name in (m.LEADING, m.ONE_STEP))
    text = (
        "(a) Cost of privacy against k: filled markers, the exact loss of the deployed policy (bars: two standard "
        "errors, if visible); open markers, formulas. The formulas of Corollaries 1 and 2 are upper bounds on the "
        "exact loss. For a plan from one release the same one-step formula gives "
        f"{far.min():.2f} to {far.max():.2f} times the exact loss, and Corollary 3 corrected to leading order "
        f"{near.min():.2f} to {near.max():.2f} times; as printed Corollary 3 is {min(printed):,.0f} to "
        f"{max(printed):,.0f} dollars, which is not drawn."
    )
    if study.row is None:
        return text
    return (
        f"{text} (b) Privacy loss at δ = {DELTA:g} of one row: by Theorem 2, exactly for the worst row with entries of "
        f"at least {study.row.least:.3f}, and exactly for this pair; of the average of 1000 draws, as 1000 releases. "
        "Policies by Taylor or Digamma on the true matrix have no finite ε; solved on one release they have its ε."
    )


def _below(axes: Any, columns: int, **options: Any) -> None:
    axes.legend(loc="upper center", bbox_to_anchor=(0.44, -0.2), ncols=columns, **options)


def _epsilon_panel(axes: Any, study: Study, ks: Any) -> None:
    styles = {
        m.COMPOSED: ("average of 1000, composed", p.GREEN, "D", "-"),
        m.THEOREM2: ("one release, Theorem 2", p.BLACK, "s", "--"),
        m.WORST: ("one release, exact, worst row", p.BLUE, "p", "-"),
        m.PAIR: ("one release, exact, this pair", p.SKY, "o", "-."),
    }
    for name, (label, color, marker, line) in styles.items():
        values = np.array(study.epsilon[name])
        shown = np.where(values > 0, values, np.nan)  # zero has no place on a logarithmic axis
        axes.plot(ks, shown, color=color, marker=marker, ls=line, label=label, **LINE)
    published = sorted(PAPER_EPSILON)
    style = {"color": p.RED, "ls": "none", "marker": "*", "ms": 9, "mec": "white", "mew": 0.5, "zorder": 5}
    axes.plot(published, [PAPER_EPSILON[k] for k in published], label="published", **style)
    _k_axis(axes, ks)
    axes.set(yscale="log", ylabel=f"privacy loss ε at δ = {DELTA:g}", title="(b) privacy")
    _plain_y(axes)
    axes.text(0.03, 0.97, "Taylor, Digamma\non the true matrix: ε = ∞", transform=axes.transAxes, va="top")
    _below(axes, 1)


def _plain_y(axes: Any) -> None:
    """Write the numbers of a logarithmic axis out, as small exponents are hard to read."""
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))


def _k_axis(axes: Any, ks: Any) -> None:
    axes.set_xscale("log")
    axes.set_xticks(ks, [f"{k:g}" for k in ks])
    axes.minorticks_off()
    axes.set_xlabel("concentration k (larger: less noise)")
    axes.grid(True, color="0.9", lw=0.6)
    axes.set_axisbelow(True)


#: Name of the file: title, whether it needs a row, and the function that draws it.
FIGURES: dict[str, tuple[str, bool, Callable[[Study, Path], str]]] = {
    "fig3_load_and_matrix": ("Figure 3", False, _load_and_matrix),
    "fig4_releases": ("Figure 4", True, _releases),
    "fig5_taylor_digamma": ("Figure 5", True, _stochastic),
    "fig6_average_value": ("Figure 6", True, _average),
    "fig7_event": ("Figure 7", False, _event),
    "fig8_cost_and_privacy": ("Figure 8", False, _trade_off),
}
