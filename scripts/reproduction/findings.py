"""Every claim of the paper's Section VI, judged on one data set by the rules of `reproduction.claims`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp_ensemble_env.report import Outcome
from reproduction.claims import (
    ABOUT_15,
    NAMES,
    NOT_REPRODUCIBLE,
    PAPER_L1,
    SIMILAR_L1,
    SLIGHTLY,
    SLIGHTLY_DEARER,
    Finding,
    RatioSearch,
    Verdict,
    distance,
    epsilon_finding,
    judge_as_private,
    judge_distinct,
    judge_indistinct,
    judge_private,
    judge_setting,
    judge_statement,
    judge_successors,
    judge_within,
    l1_finding,
    percent,
    rising,
)
from reproduction.study import DRAWS, KS, Study

NOISY = ("taylor", "digamma", "average-exact")


def study_findings(study: Study, search: RatioSearch) -> list[Finding]:
    """Judge every claim that a data set can speak to, in the order of the paper."""
    found = [*_set_up(study)]
    if study.row is None:
        none = Verdict(NOT_REPRODUCIBLE, "no row of this matrix has three successors that can each give up h/2")
        found.append(Finding("row", "row 18 and its neighbour at h = 0.03 exist", "VI-1", "yes", "no row", none))
    else:
        found += [*_privatisation(study, search), *_policies(study)]
    return [*found, *_event(study), *_cost(study), *_privacy(study)]


def _set_up(study: Study) -> Iterator[Finding]:
    model, row = study.data.model, study.row
    within = study.deviation
    yield Finding(
        "buildings",
        "100 synthetic buildings, each within ±10 % of the original",
        "VI",
        "100, ±10 %",
        f"{model.buildings}, ±{percent(within)}",
        judge_statement({"the number": model.buildings == 100, "the noise": within <= 0.1 + 1e-9}),
    )
    yield Finding(
        "states",
        "the summer's aggregate power makes a chain of 20 states",
        "VI, Fig. 3",
        "20",
        str(model.n_states),
        judge_setting(20, model.n_states, 0, "levels that this series never leaves were merged with their neighbours"),
    )
    hours = int(model.event.in_event.sum()) * model.step_hours if model.event is not None else 0.0
    notice = (model.horizon - round(hours / model.step_hours)) * model.step_hours * 60
    yield Finding(
        "event",
        "four hours of event, control from 30 minutes before",
        "VI, VI-3",
        "4 h, 30 min",
        f"{hours:g} h, {notice:g} min",
        judge_statement({"the length": hours == 4, "the notice": notice == 30}),
    )
    if row is not None:
        megawatts = model.power_kw[row.state] * model.buildings / 1e3
        yield Finding(
            "level",
            "row 18 stands for 32.1 MW",
            "VI-1",
            "row 18, 32.1 MW",
            f"row {row.state + 1}, {megawatts:.1f} MW",
            _by_construction(
                study, judge_setting(32.1, megawatts, 0.05, "a fact of the paper's meter, not of this one")
            ),
        )
        successors = [int(a) for a in row.successors]
        yield Finding(
            "successors",
            "the row's successors are the state and its two neighbours",
            "Figs. 5, 6",
            "17, 18, 19",
            ", ".join(str(a + 1) for a in successors),
            judge_successors(row.state, successors, row.triple),
        )


def _by_construction(study: Study, verdict: Verdict) -> Verdict:
    synthetic = study.data.slug == "campus"
    return Verdict(verdict.word, f"{verdict.reason}: the campus was scaled to this") if synthetic else verdict


def _privatisation(study: Study, search: RatioSearch) -> Iterator[Finding]:
    row = study.row
    assert row is not None
    moved = (
        f"{row.row[row.down]:.3f} → {row.adjacent[row.down]:.3f}, {row.row[row.up]:.3f} → {row.adjacent[row.up]:.3f}"
    )
    yield Finding(
        "row",
        "an adjacent row exists: the state's own entry down by 0.015, the next one up",
        "VI-1",
        "entries 18, 19",
        f"entries {row.down + 1}, {row.up + 1}: {moved}",
        judge_statement(
            {
                "an adjacent row": bool(row.adjacent[row.down] > 0),
                "row 18": row.state == 17,
                "its two entries": row.down == row.state and row.up == row.state + 1,
            }
        ),
    )
    sums = max(float(np.abs(cloud.sum(axis=1) - 1).max()) for pair in study.clouds.values() for cloud in pair)
    low = min(float(cloud.min()) for pair in study.clouds.values() for cloud in pair)
    yield Finding(
        "simplex",
        "the mechanism's outputs stay on the unit simplex",
        "Fig. 4",
        "yes",
        f"sums within {sums:.0e} of one",
        judge_statement({"the sums": sums < 1e-9, "the signs": low >= 0}),
    )
    bound = {k: study.at(study.epsilon["Theorem 2, one row"], k) for k in KS}
    yield epsilon_finding(bound, search)
    exact = {k: study.at(study.epsilon["exact, this pair"], k) for k in KS}
    yield Finding(
        "less-private",
        "k = 200 is less private than k = 50",
        "VI-1",
        "ε larger",
        f"exact ε {exact[50.0]:.2f}, {exact[200.0]:.2f}; Theorem 2 {bound[50.0]:.2f}, {bound[200.0]:.2f}",
        judge_statement({"exact ε": exact[200.0] > exact[50.0], "Theorem 2": bound[200.0] > bound[50.0]}),
    )
    yield Finding(
        "indistinct",
        "at k = 50 the two rows' outcomes are impossible to distinguish with a high probability",
        "VI-1",
        "impossible",
        f"the best test is right in {percent(study.accuracy[50.0])} of the cases",
        judge_indistinct(study.accuracy[50.0]),
    )
    yield Finding(
        "distinct",
        "at k = 200 they are relatively distinguishable",
        "VI-1, Fig. 4",
        "relatively",
        f"the best test is right in {percent(study.accuracy[200.0])} of the cases",
        judge_distinct(study.accuracy[200.0], study.accuracy[50.0]),
    )
    yield Finding(
        "stronger",
        "lower k gives stronger privacy",
        "VI-1",
        "yes",
        f"ε {study.epsilon['exact, this pair'][0]:.3f} … {study.epsilon['exact, this pair'][-1]:.2f} for k = "
        f"{study.effort.ks[0]:g} … {study.effort.ks[-1]:g}",
        judge_statement({name: rising(values) for name, values in study.epsilon.items()}),
    )


def _policies(study: Study) -> Iterator[Finding]:
    yield Finding(
        "similar",
        "adjacent rows give similar policies",
        "VI-2, Figs. 5, 6",
        "similar",
        f"L1 at most {distance(max(study.l1.values()))}",
        judge_statement({f"{m}, k = {k:g}": v <= SIMILAR_L1 for (m, k), v in study.l1.items()}),
    )
    for method, k in PAPER_L1:
        yield l1_finding(method, k, study.l1)


def _event(study: Study) -> Iterator[Finding]:
    def outcome(name: str, k: float = 0.0) -> Outcome:
        return study.events[name, k]

    ad_hoc, standard = outcome("ad-hoc"), outcome("standard")
    planned = {f"{name}, k = {k:g}": o for (name, k), o in study.events.items() if k}
    cases = {name: o.curtailed_kwh > ad_hoc.curtailed_kwh for name, o in {"standard": standard, **planned}.items()}
    least = min(standard.curtailed_kwh, *(o.curtailed_kwh for o in planned.values()))
    yield Finding(
        "ad-hoc",
        "every MDP policy extracts more capacity than the ad-hoc practice",
        "VI-3, Fig. 7",
        "more",
        f"least {least / 1e3:,.1f} MWh, ad-hoc {ad_hoc.curtailed_kwh / 1e3:,.1f} MWh",
        judge_statement(cases),
    )
    less = {name: o.curtailed_kwh / standard.curtailed_kwh - 1 for name, o in planned.items()}
    yield Finding(
        "slightly-less",
        "private policies curtail slightly less than the standard one",
        "VI-3",
        "slightly less",
        f"{percent(min(less.values()), sign=True)} to {percent(max(less.values()), sign=True)}",
        judge_within(less, -SLIGHTLY, -1e-9, -1, "they curtail less"),
    )
    apart = {
        f"k = {k:g}": abs(outcome("digamma", k).curtailed_kwh - outcome("taylor", k).curtailed_kwh)
        / standard.curtailed_kwh
        for k in KS
    }
    yield Finding(
        "taylor-digamma",
        "Taylor and Digamma extract similar capacity",
        "VI-3",
        "similar",
        "apart by " + ", ".join(f"{percent(v)} ({n})" for n, v in apart.items()),
        judge_statement({name: value <= SLIGHTLY for name, value in apart.items()}),
    )
    cases, words = {}, []
    for k in KS:
        gaps = {m: standard.curtailed_kwh - outcome(m, k).curtailed_kwh for m in NOISY}
        cases[f"k = {k:g}"] = abs(gaps["average-exact"]) >= max(abs(gaps["taylor"]), abs(gaps["digamma"]))
        words.append(
            f"k = {k:g}: "
            + ", ".join(f"{NAMES[m]} {percent(-v / standard.curtailed_kwh, 2, sign=True)}" for m, v in gaps.items())
        )
    yield Finding(
        "least-deviation",
        "Taylor and Digamma deviate least from the standard response",
        "VI-3",
        "least",
        "; ".join(words),
        judge_statement(cases),
    )
    yield from _fifteen_percent(study)


def _fifteen_percent(study: Study) -> Iterator[Finding]:
    """Judge that average value extracts about 15 % less at the peak, by three readings of it."""
    free = study.uncontrolled

    def shortfall(value: float, others: list[float]) -> float:
        return 1.0 - value / float(np.mean(others))

    def most(power: np.ndarray) -> float:
        return float((free - power).max())

    readings: dict[str, dict[str, float]] = {"at the load's peak": {}, "where most is curtailed": {}, "one release": {}}
    for k in KS:
        analytical = [study.events[m, k] for m in ("taylor", "digamma")]
        average = study.events["average-exact", k]
        peaks = [o.curtailed_peak_kw for o in analytical]
        name = f"k = {k:g}"
        readings["at the load's peak"][name] = shortfall(average.curtailed_peak_kw, peaks)
        readings["where most is curtailed"][name] = shortfall(
            most(average.power_kw), [most(o.power_kw) for o in analytical]
        )
        readings["one release"][name] = shortfall(study.released[k][1], peaks)
    titles = {
        "at the load's peak": "averaged policy, at the uncontrolled load's peak",
        "where most is curtailed": "averaged policy, where it curtails most",
        "one release": "plan made on one release, mean, at the load's peak",
    }
    for number, (reading, values) in enumerate(readings.items(), 1):
        yield Finding(
            f"fifteen-{number}",
            f"average value extracts about 15 % less at the peak than Taylor and Digamma ({titles[reading]})",
            "VI-3",
            "15 % less",
            ", ".join(f"{percent(abs(v))} {'less' if v > 0 else 'more'} ({n})" for n, v in values.items()),
            judge_within(values, *ABOUT_15, 1, "it extracts less"),
        )


def _cost(study: Study) -> Iterator[Finding]:
    cost = study.cost

    def dear(first: str, second: str) -> str:
        pairs = {k: (study.at(cost[first], k), study.at(cost[second], k)) for k in KS}
        return ", ".join(f"{_dollars(a)} against {_dollars(b)} (k = {k:g})" for k, (a, b) in pairs.items())

    for suffix, name, short in (("", "exact", "exact"), (", paper's formula", "paper's formula", "paper")):
        taylor, digamma = cost[f"taylor{suffix}"], cost[f"digamma{suffix}"]
        over = {f"k = {k:g}": study.at(digamma, k) / study.at(taylor, k) - 1 for k in KS}
        yield Finding(
            f"digamma-dearer-{short}",
            f"Digamma is slightly more expensive than Taylor ({name})",
            "VI-3, Fig. 8",
            "slightly more",
            dear(f"digamma{suffix}", f"taylor{suffix}"),
            judge_within(over, 1e-9, SLIGHTLY_DEARER, 1, "it is more expensive"),
        )
    if study.row is not None:
        error = study.kernel_error
        yield Finding(
            "accurate-kernel",
            "Digamma is more accurate than Taylor (as E[log x] of the noise)",
            "VI-3",
            "more accurate",
            f"largest error {error['digamma']:.0e} against {error['taylor']:.1e} nats",
            judge_statement({"this row at k = 50": error["digamma"] < error["taylor"]}),
        )
    yield Finding(
        "accurate-policy",
        "Digamma provides more accurate solutions than Taylor (deployed, nearer to the optimum)",
        "VI-3",
        "more accurate",
        f"exact loss {dear('digamma', 'taylor')}",
        judge_statement({f"k = {k:g}": study.at(cost["digamma"], k) < study.at(cost["taylor"], k) for k in KS}),
    )
    readings = {
        "one release": ("plan made on one release, exact", "one release", ""),
        "exact": ("averaged policy, exact", "average-exact", ""),
        "corrected": ("Corollary 3 corrected", "average, Corollary 3 corrected", ", paper's formula"),
        "printed": ("Corollary 3 as printed", "average, Corollary 3 as printed", ", paper's formula"),
    }
    for short, (title, name, suffix) in readings.items():
        cases = {
            f"k = {k:g}": study.at(cost[name], k)
            > max(study.at(cost[f"taylor{suffix}"], k), study.at(cost[f"digamma{suffix}"], k))
            for k in KS
        }
        yield Finding(
            f"average-dearer-{short.replace(' ', '-')}",
            f"average value is more expensive than both Taylor and Digamma ({title})",
            "VI-3, Fig. 8",
            "more expensive",
            dear(name, f"digamma{suffix}") + " for Digamma",
            judge_statement(cases),
        )
    yield Finding(
        "less-capacity",
        "more privacy (smaller k) means less capacity",
        "VI-3",
        "less",
        "; ".join(f"{NAMES[m]} {v[0] / 1e3:,.1f} … {v[-1] / 1e3:,.1f} MWh" for m, v in study.capacity.items()),
        judge_statement({NAMES[m]: rising(v) for m, v in study.capacity.items()}),
    )
    real = {name: values for name, values in cost.items() if not name.endswith("printed")}
    yield Finding(
        "greater-cost",
        "more privacy (smaller k) means a greater cost",
        "VI-3, Fig. 8",
        "greater",
        f"one release ${cost['one release'][0]:,.2f} … ${cost['one release'][-1]:,.2f}",
        judge_statement({name: rising(values[::-1]) for name, values in real.items()}),
    )


def _dollars(value: float) -> str:
    size = abs(value)
    return f"{'−' if value < 0 else ''}${size:,.2f}" if size >= 0.01 else f"${size:.1g}"


def _privacy(study: Study) -> Iterator[Finding]:
    if study.row is not None:
        pair, ks = study.epsilon["exact, this pair"], study.effort.ks
        yield Finding(
            "decrease",
            "privacy decreases with a decrease in k",
            "VI-3",
            "decreases",
            f"ε falls from {pair[-1]:.2f} to {pair[0]:.3f} as k falls from {ks[-1]:g} to {ks[0]:g}",
            judge_statement({name: rising(values[::-1]) for name, values in study.epsilon.items()}),
        )
    worst = max(study.recovery.values())
    yield Finding(
        "stochastic-private",
        "the Taylor and Digamma policies are differentially private",
        "VI-2, Figs. 5, 8",
        "private",
        f"true matrix read back from policy and z, error {worst:.0e}",
        judge_private(study.recovery),
    )
    if study.row is not None:
        single, most = (
            {k: study.at(study.epsilon[name], k) for k in KS}
            for name in ("exact, this pair", "average of 1000, composed")
        )
        yield Finding(
            "average-private",
            f"the average over {DRAWS} draws is as private as one draw",
            "VI-2, VI-3",
            "the same ε",
            ", ".join(
                f"ε from {study.attack[k]:.1f} (attack) to {most[k]:,.1f} (composed), one {single[k]:.2f} (k = {k:g})"
                for k in KS
            ),
            judge_as_private(single, study.attack),
        )
