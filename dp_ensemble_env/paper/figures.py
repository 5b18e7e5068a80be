"""The figures of the paper's Section VI, drawn from a `Study`: PNG for the page and SVG beside it, with captions.

Each function of `FIGURES` draws one into a file and returns the words that stand under it, which a reader can follow
without the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import dates
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from dp_ensemble_env.chain.calendar import select_days
from dp_ensemble_env.paper.claims import NAMES, PAPER_EPSILON, distance, percent
from dp_ensemble_env.paper.data import H
from dp_ensemble_env.paper.measures import (
    COMPOSED,
    DELTA,
    FORMULA,
    KS,
    LEADING,
    ONE,
    ONE_STEP,
    PAIR,
    PRINTED,
    THEOREM2,
    WORST,
)
from dp_ensemble_env.paper.study import Study
from dp_ensemble_env.reporting import plots as p

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
DRAWN = "mean of policies drawn"


def draw_all(study: Study, folder: Path) -> list[tuple[str, Path, str]]:
    """Draw every figure; return name, path of the PNG and caption."""
    drawn = []
    with p.look(FONTS):
        for name, (title, row, draw) in FIGURES.items():
            if study.row is not None or not row:
                path = folder / f"{name}.png"
                drawn.append((title, path, draw(study, path)))
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
    days = data.times.astype("datetime64[D]")
    label, index = np.unique(days, return_inverse=True)
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
    left.set(ylabel="power of 100 buildings, MW", title="(a) aggregate load")
    left.margins(x=0)
    _below(left, 3, handlelength=1.4, columnspacing=1.0)
    months = label[-1] - label[0] > np.timedelta64(200, "D")
    locator: Any = dates.AutoDateLocator  # matplotlib gives the two no types
    formatter: Any = dates.DateFormatter
    left.xaxis.set_major_locator(locator(minticks=3, maxticks=6 if months else 4))
    left.xaxis.set_major_formatter(formatter("%b" if months else "%d %b"))
    years = sorted({str(label[0])[:4], str(label[-1])[:4]})
    left.set_xlabel("–".join(years))

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
    bar = figure.colorbar(image, ax=right, shrink=0.9, pad=0.03)
    bar.set_label("transition probability")
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
        _triangle(axes, study)
        clouds = [
            (row.on_triple(points) @ p.CORNERS, color, marker, f"copies of {name}")
            for points, (name, color, marker) in zip(study.clouds[k], INPUTS, strict=True)
        ]
        p.scatter_in_turns(axes, clouds, s=5, alpha=0.45, lw=0)
        for values, (name, color, marker) in zip((row.row, row.adjacent), INPUTS, strict=True):
            style = {"s": 45, "color": color, "marker": marker, "ec": "white", "lw": 0.9, "zorder": 5}
            axes.scatter(*(row.on_triple(values) @ p.CORNERS), label=name, **style)
        epsilon = study.at(study.epsilon[PAIR], k)
        axes.set_title(f"({letter}) k = {k:g}: exact ε = {epsilon:.2f} at δ = {DELTA:g}", loc="center")
    handles, labels = panels[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=2, handletextpad=0.2, handlelength=1.5)
    shown: list[Any] = list(legend.legend_handles)
    for handle, size in zip(shown, (14, 14, 45, 45), strict=True):
        handle.set_sizes([size])  # the small points would hardly be seen
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
    row = study.the_row
    figure, grid = p.subplots(4, 1, figsize=(p.COLUMN, 9.0), height_ratios=(1.75, 1.75, 1, 1))
    for axes, k, letter in zip(grid[:2], KS, "ab", strict=True):
        _triangle(axes, study)
        clouds = [
            (row.on_triple(points) @ p.CORNERS, color, marker, f"policies for {name}")
            for points, (name, color, marker) in zip(study.policy_clouds[k], INPUTS, strict=True)
        ]
        p.scatter_in_turns(axes, clouds, s=5, alpha=0.45, lw=0)
        for values, (name, color, marker) in zip(study.adjacent["average-exact", k], INPUTS, strict=True):
            style = {"s": 45, "color": color, "marker": marker, "ec": "white", "lw": 0.9, "zorder": 5}
            axes.scatter(*(row.on_triple(values) @ p.CORNERS), label=f"expectation, {name}", **style)
        axes.set_title(f"({letter}) policies of {study.effort.points} releases, k = {k:g}", loc="center")
    for axes, k, letter in zip(grid[2:], KS, "cd", strict=True):
        _pair_bars(axes, study, [("average-exact", k)], study.policy_clouds[k])
        axes.set_title(f"({letter}) expectation at k = {k:g}: L1 distance {distance(study.l1['average-exact', k])}")
        axes.set_ylabel(f"probability at {_clock(study)}")
    grid[2].set_xlabel("")
    handles, labels = grid[0].get_legend_handles_labels()
    bars, names = grid[2].get_legend_handles_labels()
    cross = names.index(DRAWN)
    style = {"handlelength": 1.2, "handletextpad": 0.3, "columnspacing": 1.0}
    legend = figure.legend([*handles, bars[cross]], [*labels, DRAWN], loc="outside lower center", ncols=2, **style)
    for handle, size in zip(list(legend.legend_handles)[:4], (14, 14, 45, 45), strict=True):
        handle.set_sizes([size])
    top = max(axes.get_ylim()[1] for axes in grid[2:])
    for axes in grid[2:]:
        axes.set_ylim(0, top)
    _save(figure, path)
    share = float(study.adjacent["average-exact", 50.0][0][list(row.triple)].sum())
    held = _some(study) and f"{_some(study)} They hold {percent(share, 0)} of the expected policy at k = 50."
    return (
        f"Average value approach in the same state at {_clock(study)}. (a), (b) Policies solved on "
        f"{study.effort.points} releases of the whole matrix, and of its neighbour; large markers: the expectation of "
        f"Proposition 3, computed exactly.{held} (c), (d) That expectation (bars, with the L1 distance between "
        "the two inputs) and the mean of the policies drawn (crosses). The two need not agree: Proposition 3 holds z "
        "at its true value, while every drawn policy has a z of its own."
    )


def _triangle(axes: Any, study: Study) -> None:
    p.triangle_axes(axes, [f"level {state + 1}" for state in study.the_row.triple])


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
                mean = samples[side][:, support].mean(axis=0)
                words = DRAWN if side else None
                axes.plot(place, mean, "x", color=p.BLACK, ms=4.5, mew=1.1, label=words, clip_on=False, zorder=4)
    axes.set_xticks(range(len(support)), [str(state + 1) for state in support])
    axes.set_xlabel(f"next level, from level {row.state + 1}")
    drawn = [values.max() for case in cases for values in study.adjacent[case]]
    if samples is not None:
        drawn += [cloud.mean(axis=0).max() for cloud in samples]
    axes.set_ylim(0, 1.08 * max(drawn))


# ------------------------------------------------------------------ Figure 7
def _event(study: Study, path: Path) -> str:
    model = study.data.model
    figure, axes = p.subplots(figsize=(p.COLUMN, 4.0))
    p.power_axes(axes, model)
    axes.set_ylabel(f"power of {model.buildings} buildings, MW")
    lines = {
        "uncontrolled": ("uncontrolled", 0.0),
        "ad-hoc": ("ad-hoc practice", 0.0),
        "standard": ("standard (optimum)", 0.0),
        "taylor": ("Taylor", 50.0),
        "digamma": ("Digamma", 50.0),
        "average-exact": ("average value", 50.0),
    }
    hours = p.hours(model)
    every = max(1, model.horizon // 6)
    for shift, (method, (label, k)) in enumerate(lines.items()):
        look = p.LOOKS[method]
        style: dict[str, Any] = {"color": look.color, "ls": look.line, "marker": look.marker, "ms": 4, "lw": 1.5}
        style["markevery"] = (shift % every, every)
        axes.plot(hours, study.events[method, k].power_kw / 1e3, label=label, **style)
    if study.learned:
        best, look = study.learned[0], p.LOOKS["learned"]
        style = {"color": look.color, "ls": "none", "marker": look.marker, "ms": 6, "mec": p.BLACK, "mew": 0.4}
        axes.plot(hours, best.outcome.power_kw / 1e3, label=f"learned: {best.name}", **style)
    _below(axes, 2, handlelength=3)
    axes.margins(x=0.02)
    _save(figure, path)
    learned = ", ".join(f"{one.name} {one.outcome.score:.1f} after {one.steps:,} steps" for one in study.learned)
    no_baseline = model.event is None or model.event.baseline_kw is None
    return (
        f"Power of the ensemble in the event of {str(model.times[0])[:10]}; lower is more curtailment. The "
        "noise-aware policies expect k = 50. Ad-hoc practice: a fixed shed while the event lasts, "
        f"{percent(study.shed_share)} of the energy used in it; its size is ours, not the paper's. Customer baseline: "
        f"best 5 of the 10 last similar days{', not available for these data' if no_baseline else ''}. "
        f"Trained on the spot, with their scores (0: uncontrolled, 100: optimum): {learned}; the best is drawn."
    )


# ------------------------------------------------------------------ Figure 8
def _trade_off(study: Study, path: Path) -> str:
    panels = 1 if study.row is None else 2
    figure, grid = p.subplots(panels, 1, figsize=(p.COLUMN, 3.9 * panels), squeeze=False)
    ks = np.array(study.effort.ks)
    upper = grid[0, 0]
    lines = {
        "taylor": ("Taylor, exact", "taylor", "-"),
        f"taylor{FORMULA}": ("Taylor, Corollary 1", "taylor", "--"),
        "digamma": ("Digamma, exact", "digamma", "-"),
        f"digamma{FORMULA}": ("Digamma, Corollary 2", "digamma", "--"),
        "average-exact": ("averaged policy, exact", "average-exact", "-"),
        ONE: ("one release, exact", "one release", "-"),
        ONE_STEP: ("one release, one-step", "one release", "--"),
        LEADING: ("Corollary 3 corrected", "best-price", ":"),
    }
    for name, (label, like, dash) in lines.items():
        look, values = p.LOOKS[like], np.array(study.cost[name])
        style = {"color": look.color, "marker": look.marker, "ms": 4.5, "lw": 1.4, "ls": dash, "label": label}
        style["mfc"] = look.color if dash == "-" else "white"
        errors = study.cost_error.get(name)
        upper.errorbar(ks, values, None if errors is None else 2 * np.array(errors), capsize=2, **style)
    _k_axis(upper, ks)
    upper.set(yscale="log", ylabel="cost of privacy, $ per building", title="(a) cost")
    _plain_y(upper)
    _below(upper, 2, columnspacing=0.8, handlelength=2.2)
    if study.row is not None:
        _epsilon_panel(grid[1, 0], study, ks)
    _save(figure, path)
    printed = study.cost[PRINTED]
    near, far = (np.array(study.cost[name]) / study.cost[ONE] for name in (LEADING, ONE_STEP))
    text = (
        "(a) Cost of privacy against k: filled markers, the exact loss of the deployed policy (bars: two standard "
        "errors, where they can be seen); open markers, formulas. Those of Corollaries 1 and 2 can only lie above the "
        "exact loss. For a plan made on one release the same one-step formula gives "
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
    """Put the legend below the axes and their label."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.44, -0.2), ncols=columns, **options)


def _epsilon_panel(axes: Any, study: Study, ks: Any) -> None:
    styles = {
        COMPOSED: ("average of 1000, composed", p.GREEN, "D", "-"),
        THEOREM2: ("one release, Theorem 2", p.BLACK, "s", "--"),
        WORST: ("one release, exact, worst row", p.BLUE, "p", "-"),
        PAIR: ("one release, exact, this pair", p.SKY, "o", "-."),
    }
    for name, (label, color, marker, line) in styles.items():
        values = np.array(study.epsilon[name])
        shown = np.where(values > 0, values, np.nan)  # zero has no place on a logarithmic axis
        axes.plot(ks, shown, color=color, marker=marker, ls=line, ms=4.5, lw=1.4, label=label)
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


# ------------------------------------------------------------------ misprints
def _misprints(study: Study, path: Path) -> str:
    figure, (left, right) = p.subplots(2, 1, figsize=(p.COLUMN, 6.0))
    lines = study.misprints
    ks = np.array([line["k"] for line in lines])
    looks = {
        "printed": ("as printed", p.RED, "v", "--"),
        "corrected": ("corrected", p.BLUE, "o", "-"),
        "exact": ("exact integral", p.GREEN, "D", "-."),
    }
    for name, (label, color, marker, dash) in looks.items():
        values = [line[f"{name} L1"] for line in lines]
        left.plot(ks, values, color=color, marker=marker, ls=dash, ms=4.5, lw=1.4, label=label)
    noise = [float(np.sum(line["Monte Carlo policy error"])) for line in lines]
    left.fill_between(ks, 1e-9, noise, color="0.85", lw=0, label="Monte Carlo error", zorder=0)
    _k_axis(left, ks)
    smallest = min(min(line["exact L1"] for line in lines), min(noise))
    left.set(yscale="log", ylabel="L1 distance from Monte Carlo", title="(a) E2: expected policy")
    left.set_ylim(bottom=smallest / 2)
    _plain_y(left)
    _below(left, 2)
    for name in ("printed", "corrected"):
        label, color, marker, dash = looks[name]
        values = [line[f"{name} cost"] for line in lines]
        right.plot(ks, values, color=color, marker=marker, ls=dash, ms=4.5, lw=1.4, label=label)
    error = [2 * line["Monte Carlo cost error"] for line in lines]
    values = [line["Monte Carlo cost"] for line in lines]
    right.errorbar(ks, values, error, color=p.BLACK, ls="none", marker="x", ms=5, capsize=2, label="Monte Carlo")
    _k_axis(right, ks)
    right.axhline(0, color="0.5", lw=0.8)
    right.set_yscale("symlog", linthresh=0.1, linscale=0.4)
    _plain_y(right)
    right.set(ylabel="cost of one visit, $ per building", title="(b) E3: expected cost")
    drawn = [line[name] for line in lines for name in ("printed cost", "corrected cost", "Monte Carlo cost")]
    right.set_ylim(min(3 * min(drawn), -0.1), 3 * max(drawn))
    _below(right, 2, handlelength=2)
    _save(figure, path)
    return (
        "(a) E2: distance of the expected policy by Proposition 3, as printed, corrected, and by the exact integral, "
        "from the Monte Carlo mean; in the grey zone it is Monte Carlo error alone. (b) E3: expected cost of one visit "
        "of the row by Corollary 3 as printed and as corrected (leading order in 1/k), with Monte Carlo (two standard "
        "errors)."
    )


#: Name of the file: title, whether it needs a row, and the function that draws it.
FIGURES: dict[str, tuple[str, bool, Callable[[Study, Path], str]]] = {
    "fig3_load_and_matrix": ("Figure 3", False, _load_and_matrix),
    "fig4_releases": ("Figure 4", True, _releases),
    "fig5_taylor_digamma": ("Figure 5", True, _stochastic),
    "fig6_average_value": ("Figure 6", True, _average),
    "fig7_event": ("Figure 7", False, _event),
    "fig8_cost_and_privacy": ("Figure 8", False, _trade_off),
    "fig9_misprints": ("Misprints", False, _misprints),
}
