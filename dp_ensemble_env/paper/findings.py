"""Every claim of the paper's Section VI, judged on one data set by the rules of `paper.claims`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp_ensemble_env.paper.claims import (
    NOT_REPRODUCIBLE,
    PAPER_L1,
    REPRODUCED,
    SIMILAR_L1,
    Finding,
    RatioSearch,
    Verdict,
    distance,
    epsilon_finding,
    judge_distinct,
    judge_indistinct,
    judge_setting,
    judge_statement,
    judge_successors,
    l1_finding,
    percent,
    rising,
)
from dp_ensemble_env.paper.findings_cost import cost_findings, privacy_findings
from dp_ensemble_env.paper.findings_event import event_findings
from dp_ensemble_env.paper.measures import KS
from dp_ensemble_env.paper.study import Study

ROW_CLAIM = "an adjacent row exists: the state's own entry down by 0.015, the next one up"
PAPER_EVENT = "2018-07-02, 11:00–15:00"


def study_findings(study: Study, search: RatioSearch) -> list[Finding]:
    """Judge every claim that a data set can speak to, in the order of the paper."""
    found = [*_set_up(study), *_set_up_event(study)]
    if study.row is None:
        none = Verdict(NOT_REPRODUCIBLE, "no row of this matrix has three successors that can each give up h/2")
        found.append(Finding("row", ROW_CLAIM, "VI-1", "entries 18, 19", "no row", none, set_up=True))
    else:
        found += [*_set_up_row(study), *_privatisation(study, search), *_policies(study)]
    return [*found, *event_findings(study), *cost_findings(study), *privacy_findings(study)]


def _set_up(study: Study) -> Iterator[Finding]:
    model, within = study.data.model, study.deviation
    yield Finding(
        "buildings",
        "100 synthetic buildings, each within ±10 % of the original",
        "VI",
        "100, ±10 %",
        f"{model.buildings}, ±{percent(within)}",
        judge_statement({"the number": model.buildings == 100, "the noise": within <= 0.1 + 1e-9}),
        set_up=True,
    )
    yield Finding(
        "states",
        "the summer's aggregate power makes a chain of 20 states",
        "VI, Fig. 3",
        "20",
        str(model.n_states),
        judge_setting(20, model.n_states, 0, "levels that this series never leaves were merged with their neighbours"),
        set_up=True,
    )
    gamma = model.discomfort_penalty
    yield Finding(
        "penalty",
        "γ, the price of discomfort",
        "VI",
        "$15 per building",
        f"${gamma:g} per building",
        judge_setting(15, gamma, 0, "another price was chosen"),
        set_up=True,
    )


def _set_up_event(study: Study) -> Iterator[Finding]:
    model = study.data.model
    window = model.times[:1] if model.event is None else model.times[model.event.in_event]
    begin = window[0] - np.timedelta64(round(3600 * model.step_hours), "s")
    when = f"{begin.astype('datetime64[D]')}, {str(begin)[11:16]}–{str(window[-1])[11:16]}"
    yield Finding(
        "date",
        "day and hours of the event",
        "VI-3",
        PAPER_EVENT,
        when,
        Verdict(REPRODUCED, "the same")
        if when == PAPER_EVENT
        else Verdict(NOT_REPRODUCIBLE, "the data have no such day, or another was chosen"),
        set_up=True,
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
        set_up=True,
    )


def _by_construction(study: Study, verdict: Verdict) -> Verdict:
    synthetic = study.data.slug == "campus"
    return Verdict(verdict.word, f"{verdict.reason}: the campus was scaled to this") if synthetic else verdict


def _set_up_row(study: Study) -> Iterator[Finding]:
    model, row = study.data.model, study.row
    assert row is not None
    megawatts = model.power_kw[row.state] * model.buildings / 1e3
    yield Finding(
        "level",
        "row 18 stands for 32.1 MW",
        "VI-1",
        "row 18, 32.1 MW",
        f"row {row.state + 1}, {megawatts:.1f} MW",
        _by_construction(study, judge_setting(32.1, megawatts, 0.05, "a fact of the paper's meter, not of this one")),
        set_up=True,
    )
    successors = [int(a) for a in row.successors]
    yield Finding(
        "successors",
        "the row's successors are the state and its two neighbours",
        "Figs. 5, 6",
        "17, 18, 19",
        ", ".join(str(a + 1) for a in successors),
        judge_successors(row.state, successors, row.triple),
        set_up=True,
    )
    moved = (
        f"{row.row[row.down]:.3f} → {row.adjacent[row.down]:.3f}, {row.row[row.up]:.3f} → {row.adjacent[row.up]:.3f}"
    )
    yield Finding(
        "row",
        ROW_CLAIM,
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
        set_up=True,
    )
    clouds = [cloud for pair in study.clouds.values() for cloud in pair]
    sums = float(np.max([np.abs(cloud.sum(axis=1) - 1).max() for cloud in clouds]))
    low = float(np.min([cloud.min() for cloud in clouds]))
    yield Finding(
        "simplex",
        "the mechanism's outputs stay on the unit simplex",
        "Fig. 4",
        "yes",
        f"sums within {sums:.0e} of one, least entry {low:.0e}",
        judge_statement({"every release drawn": sums < 1e-9 and low >= 0}),
        set_up=True,
    )


def _privatisation(study: Study, search: RatioSearch) -> Iterator[Finding]:
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
