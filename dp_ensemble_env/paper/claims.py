"""The claims of the paper's Section VI, in its order: what each says, and the function that measures and judges it.

Each function says in words what was found in a `Study`, and gives a verdict by one of the judges.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dp_ensemble_env.paper import measures as m
from dp_ensemble_env.paper import verdicts as v
from dp_ensemble_env.paper.measures import KS, NAMES, PAPER_EPSILON, PAPER_L1, RatioSearch, instance_l1
from dp_ensemble_env.paper.study import Study

Judged = tuple[str, v.Verdict]
Judge = TypeVar("Judge", bound=Callable[..., Judged])
PAPER_EVENT = "2018-07-02, 11:00–15:00"
#: The table, filled by the functions below.
CLAIMS: list[v.Claim] = []


def claim(name: str, section: str, words: str, paper: str, **more: Any) -> Callable[[Judge], Judge]:
    """Add a line to the table, which the decorated function judges."""

    def add(judge: Judge) -> Judge:
        CLAIMS.append(v.Claim(name, section, words, paper, judge, **more))
        return judge

    return add


def judge_claims(study: Study | None, search: RatioSearch) -> list[v.Finding]:
    """Judge every claim that a data set can speak to, in the order of the paper; None: those that need no data."""
    return [
        v.Finding(one, *(one.judge(study, search) if one.theory else one.judge(study)))
        for one in CLAIMS
        if (one.theory if study is None else study.row is not None or not one.row)
    ]


fact, of_row = partial(claim, set_up=True), partial(claim, row=True)


# ------------------------------------------------------------------ set-up
@fact("buildings", "VI", "100 synthetic buildings, each within ±10 % of the original", "100, ±10 %")
def _buildings(study: Study) -> Judged:
    number, within = study.data.model.loads, study.deviation
    cases = {"the number": number == 100, "the noise": within <= 0.1 + 1e-9}
    return f"{number}, ±{v.percent(within)}", v.judge_statement(cases)


@fact("states", "VI, Fig. 3", "the summer's aggregate power makes a chain of 20 states", "20")
def _states(study: Study) -> Judged:
    n = study.data.model.n_states
    return str(n), v.judge_setting(n, 20, "levels that this series never leaves were merged with their neighbours")


@fact("penalty", "VI", "γ, the price of discomfort", "$15 per building")
def _penalty(study: Study) -> Judged:
    gamma = study.data.model.discomfort_penalty
    return f"${gamma:g} per building", v.judge_setting(gamma, 15, "another price was chosen")


@fact("date", "VI-3", "day and hours of the event", PAPER_EVENT)
def _date(study: Study) -> Judged:
    model = study.data.model
    window = model.times[:1] if model.event is None else model.times[model.event.in_event]
    begin = window[0] - np.timedelta64(round(3600 * model.step_hours), "s")
    when = f"{begin.astype('datetime64[D]')}, {str(begin)[11:16]}–{str(window[-1])[11:16]}"
    return when, v.judge_setting(when, PAPER_EVENT, "the data have no such day, or another was chosen")


@fact("event", "VI, VI-3", "four hours of event, control from 30 minutes before", "4 h, 30 min")
def _length(study: Study) -> Judged:
    model = study.data.model
    hours = int(model.event.in_event.sum()) * model.step_hours if model.event is not None else 0.0
    notice = (model.horizon - round(hours / model.step_hours)) * model.step_hours * 60
    cases = {"the length": hours == 4, "the notice": notice == 30}
    return f"{hours:g} h, {notice:g} min", v.judge_statement(cases)


@fact("level", "VI-1", "row 18 stands for 32.1 MW", "row 18, 32.1 MW", row=True)
def _level(study: Study) -> Judged:
    state = study.the_row.state
    megawatts = study.data.model.power_kw[state] * study.data.model.loads / 1e3
    verdict = v.judge_setting(megawatts, 32.1, "a fact of the paper's meter, not of this one", 0.05)
    remark = ": the campus was scaled to this" if study.data.slug == "campus" else ""
    return f"row {state + 1}, {megawatts:.1f} MW", verdict.plus(remark)


@fact("successors", "Figs. 5, 6", "the row's successors are the state and its two neighbours", "17, 18, 19", row=True)
def _successors(study: Study) -> Judged:
    successors = study.the_row.successors.tolist()
    verdict = v.judge_successors(study.the_row.state, successors, study.the_row.triple)
    return ", ".join(str(a + 1) for a in successors), verdict


@fact("row", "VI-1", "an adjacent row exists: the state's own entry down by 0.015, the next one up", "entries 18, 19")
def _adjacent(study: Study) -> Judged:
    row = study.row
    if row is None:
        why = "no row of this matrix has three successors that can each give up h/2"
        return "no row", v.Verdict(v.NOT_REPRODUCIBLE, why)
    moved = ", ".join(f"{row.row[a]:.3f} → {row.adjacent[a]:.3f}" for a in (row.down, row.up))
    cases = {
        "an adjacent row": bool(row.adjacent[row.down] > 0),
        "row 18": row.state == 17,
        "its two entries": row.down == row.state and row.up == row.state + 1,
    }
    return f"entries {row.down + 1}, {row.up + 1}: {moved}", v.judge_statement(cases)


@fact("simplex", "Fig. 4", "the mechanism's outputs stay on the unit simplex", "yes", row=True)
def _simplex(study: Study) -> Judged:
    clouds = [cloud for pair in study.clouds.values() for cloud in pair]
    sums = float(np.max([np.abs(cloud.sum(axis=1) - 1).max() for cloud in clouds]))
    low = float(np.min([cloud.min() for cloud in clouds]))
    ours = f"sums within {sums:.0e} of one, least entry {low:.0e}"
    return ours, v.judge_statement({"every release drawn": sums < 1e-9 and low >= 0})


# ------------------------------------------------------------------ privacy of the row, its policies
@of_row(
    "epsilon-pair",
    "VI-1",
    "ε of one row by Theorem 2 at δ = 0.05, h = 0.03",
    "0.88 (k = 50), 5.45 (k = 200)",
    theory=True,
)
def _epsilon_pair(study: Study | None, search: RatioSearch) -> Judged:
    if study is None:
        pair, prefix = dict(zip(sorted(PAPER_EPSILON), search.nearest, strict=True)), "nearest pair in the search: "
    else:
        pair, prefix = study.epsilon_at(m.THEOREM2), ""
    ours = prefix + ", ".join(f"{pair[k]:.2f} (k = {k:g})" for k in sorted(pair))
    return ours, v.judge_pair(pair, PAPER_EPSILON, search.ratio, 0.05)


@of_row("less-private", "VI-1", "k = 200 is less private than k = 50", "ε larger")
def _less_private(study: Study) -> Judged:
    exact, bound = study.epsilon_at(m.PAIR), study.epsilon_at(m.THEOREM2)
    ours = f"exact ε {exact[50.0]:.2f}, {exact[200.0]:.2f}; Theorem 2 {bound[50.0]:.2f}, {bound[200.0]:.2f}"
    cases = {"exact ε": exact[200.0] > exact[50.0], "Theorem 2": bound[200.0] > bound[50.0]}
    return ours, v.judge_statement(cases)


@of_row(
    "indistinct",
    "VI-1",
    "at k = 50 the two rows' outcomes are impossible to distinguish with a high probability",
    "impossible",
)
def _indistinct(study: Study) -> Judged:
    return _accuracy(study.accuracy[50.0]), v.judge_indistinct(study.accuracy[50.0])


@of_row("distinct", "VI-1, Fig. 4", "at k = 200 they are relatively distinguishable", "relatively")
def _distinct(study: Study) -> Judged:
    return _accuracy(study.accuracy[200.0]), v.judge_distinct(study.accuracy[200.0], study.accuracy[50.0])


def _accuracy(value: float) -> str:
    return f"the best test is right in {v.percent(value)} of the cases"


@of_row("stronger", "VI-1", "lower k gives stronger privacy", "yes")
def _stronger(study: Study) -> Judged:
    pair, ks = study.epsilon[m.PAIR], study.effort.ks
    ours = f"ε {pair[0]:.3f} … {pair[-1]:.2f} for k = {ks[0]:g} … {ks[-1]:g}"
    return ours, v.judge_statement({name: v.rising(values) for name, values in study.epsilon.items()})


@of_row("similar", "VI-2, Figs. 5, 6", "adjacent rows give similar policies", "similar")
def _similar(study: Study) -> Judged:
    cases = {f"{method}, k = {k:g}": value <= v.SIMILAR_L1 for (method, k), value in study.l1.items()}
    return f"L1 at most {v.distance(max(study.l1.values()))}", v.judge_statement(cases)


def _l1(study: Study | None, _: RatioSearch, method: str, k: float) -> Judged:
    values = instance_l1() if study is None else study.l1
    value, falls = values[method, k], values[method, KS[1]] < values[method, KS[0]]
    return v.distance(value), v.judge_l1(value, PAPER_L1[method, k], falls, fitted=study is None)


for (_method, _k), _paper in PAPER_L1.items():
    _sentence = f"L1 distance between the {NAMES[_method]} policies of adjacent rows at k = {_k:g}"
    _judge = partial(_l1, method=_method, k=_k)
    claim(f"L1-{_method}-{_k:g}", "VI-2", _sentence, f"{_paper:.4f}", row=True, theory=True)(_judge)


# ------------------------------------------------------------------ the event
@claim("ad-hoc", "VI-3, Fig. 7", "every MDP policy extracts more capacity than the ad-hoc practice", "more")
def _ad_hoc(study: Study) -> Judged:
    shed = study.events["ad-hoc", 0.0].curtailed_kwh
    named = {f"{name}, k = {k:g}": outcome.curtailed_kwh for (name, k), outcome in study.events.items() if k}
    kwh = {"standard": study.events["standard", 0.0].curtailed_kwh, **named}
    limit = f"at k = 50 the claim breaks at a shed {study.shed_limit:.2g} times as strong"
    if study.shed_limit == 0:
        limit = "at k = 50 even the smallest shed takes as much as one of the policies"
    elif not np.isfinite(study.shed_limit):
        limit = "at k = 50 no shed of this kind takes as much as the policies"
    ours = (
        f"least {min(kwh.values()) / 1e3:,.1f} MWh, ad-hoc {shed / 1e3:,.1f} MWh, {v.percent(study.shed_share)} of the "
    )
    verdict = v.judge_statement({name: value > shed for name, value in kwh.items()})
    return f"{ours}event's energy", verdict.plus(f"; we chose the size of the shed: {limit}")


@claim("slightly-less", "VI-3", "private policies curtail slightly less than the standard one", "slightly less")
def _slightly_less(study: Study) -> Judged:
    best = study.events["standard", 0.0].curtailed_kwh
    less = {f"{name}, k = {k:g}": o.curtailed_kwh / best - 1 for (name, k), o in study.events.items() if k}
    ours = f"{v.percent(min(less.values()), sign=True)} to {v.percent(max(less.values()), sign=True)}"
    return ours, v.judge_within(less, -v.SLIGHTLY, -1e-9, "they curtail less", sign=-1)


@claim("taylor-digamma", "VI-3", "Taylor and Digamma extract similar capacity", "similar")
def _taylor_digamma(study: Study) -> Judged:
    best = study.events["standard", 0.0].curtailed_kwh
    kwh = {key: outcome.curtailed_kwh for key, outcome in study.events.items()}
    apart = {f"k = {k:g}": abs(kwh["digamma", k] - kwh["taylor", k]) / best for k in KS}
    ours = "difference " + ", ".join(f"{v.percent(x)} ({n})" for n, x in apart.items())
    return ours, v.judge_statement({name: value <= v.SLIGHTLY for name, value in apart.items()})


@claim("least-deviation", "VI-3", "Taylor and Digamma deviate least from the standard response", "least")
def _deviation(study: Study) -> Judged:
    best, cases, words = study.events["standard", 0.0].curtailed_kwh, {}, []
    for k in KS:
        gaps = {name: study.events[name, k].curtailed_kwh / best - 1 for name in NAMES}
        cases[f"k = {k:g}"] = abs(gaps["average-exact"]) >= max(abs(gaps["taylor"]), abs(gaps["digamma"]))
        words.append(f"k = {k:g}: " + ", ".join(f"{NAMES[n]} {v.percent(x, 2, sign=True)}" for n, x in gaps.items()))
    return "; ".join(words), v.judge_statement(cases)


def _fifteen(study: Study, number: int) -> Judged:
    """Compare what average value extracts with Taylor and Digamma, by three readings of 'at the peak'."""

    def most(power: Any) -> float:
        return float((study.uncontrolled - power).max())

    extracted = most if number == 2 else study.at_peak
    values, errors = {}, {}
    for k in KS:
        others = float(np.mean([extracted(study.events[name, k].power_kw) for name in ("taylor", "digamma")]))
        ours = study.released[k][1] if number == 3 else extracted(study.events["average-exact", k].power_kw)
        values[f"k = {k:g}"] = 1.0 - ours / others
        if number == 3:
            errors[f"k = {k:g}"] = study.released[k][2] / abs(others)
    place = "" if number == 2 else f"at {study.peak_clock}, the {study.peak_of}'s peak: "
    words = [
        f"{v.percent(abs(x))} {'less' if x > 0 else 'more'}"
        + (f" ± {v.percent(errors[name])}" if name in errors else "")
        + f" ({name})"
        for name, x in values.items()
    ]
    return place + ", ".join(words), v.judge_within(values, *v.ABOUT_15, "it extracts less", errors=errors)


for _number, _reading in enumerate(
    ("averaged policy, at the peak", "averaged policy, where it curtails most", "plan on one release, at the peak"), 1
):
    _sentence = "average value extracts about 15 % less at the peak than Taylor and Digamma"
    _judge = partial(_fifteen, number=_number)
    claim(f"fifteen-{_number}", "VI-3", _sentence, "15 % less", reading=_reading)(_judge)


# ------------------------------------------------------------------ cost of privacy
def _digamma_dearer(study: Study, ending: str) -> Judged:
    taylor, digamma = study.cost[f"taylor{ending}"], study.cost[f"digamma{ending}"]
    over = {f"k = {k:g}": study.at(digamma, k) / study.at(taylor, k) - 1 for k in KS}
    ours = _dear(study, f"digamma{ending}", f"taylor{ending}")
    return ours, v.judge_within(over, 1e-9, v.SLIGHTLY_DEARER, "it is more expensive")


for _name, _ending, _reading in (("exact", "", "exact loss"), ("paper", m.FORMULA, "paper's formulas")):
    _sentence = "Digamma is slightly more expensive than Taylor"
    _judge = partial(_digamma_dearer, ending=_ending)
    claim(f"digamma-dearer-{_name}", "VI-3, Fig. 8", _sentence, "slightly more", reading=_reading)(_judge)
_accurate = partial(claim, section="VI-3", words="Digamma provides more accurate solutions than Taylor")


@_accurate("accurate-kernel", paper="more accurate", reading="as E[log x] of the noise", row=True)
def _kernel(study: Study) -> Judged:
    error = study.kernel_error
    ours = f"largest error {error['digamma']:.0e} against {error['taylor']:.1e} nats"
    return ours, v.judge_statement({"this row at k = 50": error["digamma"] < error["taylor"]})


@_accurate("accurate-policy", paper="more accurate", reading="deployed, nearer to the optimum")
def _policy(study: Study) -> Judged:
    digamma, taylor = study.cost["digamma"], study.cost["taylor"]
    cases = {f"k = {k:g}": study.at(digamma, k) < study.at(taylor, k) for k in KS}
    return f"exact loss {_dear(study, 'digamma', 'taylor')}", v.judge_statement(cases)


def _average_dearer(study: Study, name: str, ending: str) -> Judged:
    cost, errors, cases = study.cost, study.cost_error.get(name), {}
    for k in KS:
        dearest = max(study.at(cost[f"taylor{ending}"], k), study.at(cost[f"digamma{ending}"], k))
        spread = 0.0 if errors is None else study.at(errors, k)
        cases[f"k = {k:g}"] = v.differs(study.at(cost[name], k) - dearest, spread)
    remark = ""
    if name == m.PRINTED:
        below = min(study.at(cost[name], k) for k in KS) < 0
        remark = f"{'; below zero it is no cost' if below else ''} (E2, E3)"
    return _dear(study, name, f"digamma{ending}") + " for Digamma", v.judge_statement(cases).plus(remark)


for _name, _cost, _ending, _reading in (
    ("one-release", m.ONE, "", "plan from one release, exact loss"),
    ("exact", "average-exact", "", "averaged policy, exact loss"),
    ("leading", m.LEADING, "", "Corollary 3 corrected, leading order in 1/k, against exact losses"),
    ("one-step", m.ONE_STEP, m.FORMULA, "the paper's one-step formula on one release, against its other formulas"),
    ("printed", m.PRINTED, m.FORMULA, "Corollary 3 as printed, against the paper's other formulas"),
):
    _sentence = "average value is more expensive than both Taylor and Digamma"
    _judge = partial(_average_dearer, name=_cost, ending=_ending)
    claim(f"average-dearer-{_name}", "VI-3, Fig. 8", _sentence, "more expensive", reading=_reading)(_judge)


@claim("less-capacity", "VI-3", "more privacy (smaller k) means less capacity", "less")
def _less_capacity(study: Study) -> Judged:
    ours = "; ".join(f"{NAMES[n]} {x[0] / 1e3:,.1f} … {x[-1] / 1e3:,.1f} MWh" for n, x in study.capacity.items())
    return ours, v.judge_statement({NAMES[name]: v.rising(values) for name, values in study.capacity.items()})


@claim("greater-cost", "VI-3, Fig. 8", "more privacy (smaller k) means a greater cost", "greater")
def _greater_cost(study: Study) -> Judged:
    cost, errors = study.cost, study.cost_error
    cases = {name: v.falling(values, errors.get(name)) for name, values in cost.items() if name != m.PRINTED}
    return f"one release ${cost[m.ONE][0]:,.2f} … ${cost[m.ONE][-1]:,.2f}", v.judge_statement(cases)


def _dear(study: Study, first: str, second: str) -> str:
    """Write two costs beside each other, for each k of the paper."""
    pairs = {k: (study.at(study.cost[first], k), study.at(study.cost[second], k)) for k in KS}
    return ", ".join(f"{_dollars(a)} against {_dollars(b)} (k = {k:g})" for k, (a, b) in pairs.items())


def _dollars(value: float) -> str:
    size = abs(value)
    return f"{'−' if value < 0 else ''}${size:,.2f}" if size >= 0.01 else f"${size:.1g}"


# ------------------------------------------------------------------ privacy of policies
@of_row("decrease", "VI-3", "privacy decreases with a decrease in k", "decreases")
def _decrease(study: Study) -> Judged:
    pair, ks = study.epsilon[m.PAIR], study.effort.ks
    ours = f"ε goes from {pair[-1]:.2f} to {pair[0]:.3f} as k falls from {ks[-1]:g} to {ks[0]:g}"
    return ours, v.judge_statement({name: v.rising(values[::-1]) for name, values in study.epsilon.items()}, "E12")


@claim(
    "stochastic-private", "VI-2, Figs. 5, 8", "the Taylor and Digamma policies are differentially private", "private"
)
def _stochastic(study: Study) -> Judged:
    worst = max(study.recovery.values())
    ours = f"true matrix read back from the policy's last step alone, error {worst:.0e}"
    return ours, v.judge_private(study.recovery)


@of_row(
    "average-private",
    "V, Fig. 8",
    f"the policy averaged over {m.DRAWS} draws is as private as one draw",
    "the same ε",
)
def _average_private(study: Study) -> Judged:
    single, most, attack = study.epsilon_at(m.PAIR), study.epsilon_at(m.COMPOSED), study.attack
    words = [
        f"ε from {attack[k]:.1f} (attack) to {most[k]:,.1f} (composed), one {single[k]:.2f} (k = {k:g})" for k in KS
    ]
    known = "; the attack sees the averaged policy of the row and z, and can show "
    ours = f"{', '.join(words)}{known}{study.ceiling:.1f} at most"
    return ours, v.judge_as_private(single, attack, study.ceiling)


@of_row("epsilon-by-method", "VI-3, Fig. 8", "the stochastic and the average value approach differ in ε, too", "differ")
def _by_method(study: Study) -> Judged:
    most, open_book = study.epsilon_at(m.COMPOSED), max(study.recovery.values()) <= v.RECOVERED
    ours = f"Taylor, Digamma: {'no finite ε' if open_book else 'ε not shown to be infinite'}; average value at most "
    verdict = v.judge_statement({f"k = {k:g}": bool(open_book and np.isfinite(value)) for k, value in most.items()})
    remark = ", each computed as in the paper (E8, E9); computed from one release, all have its ε"
    return ours + ", ".join(f"{most[k]:,.1f} (k = {k:g})" for k in KS), verdict.plus(remark)
