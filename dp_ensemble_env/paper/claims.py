"""The claims of the paper's Section VI, each with a verdict that is computed from a `Study`.

A verdict is one of four words, given by the judges below and by nothing else:

reproduced
    a number within its stated tolerance, or a statement that is true wherever it was looked at;
reproduced in shape
    the sign, order or direction holds and the number does not, or the statement holds in part;
not reproducible
    no setting or no data at hand can give what was published, for a computed reason;
contradicted
    the opposite was found.

`CLAIMS` is the table: what the paper says and where, how it is measured, and by which judge. A claim that can be read
in several ways has one line for each reading and counts once (`combine`). Facts of the paper's set-up are judged too
but are not counted among its claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dp_ensemble_env.control.policies import solve_policy
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.paper import measures as m
from dp_ensemble_env.paper.data import THEORY, H
from dp_ensemble_env.paper.measures import DELTA, KS
from dp_ensemble_env.paper.study import Study
from dp_ensemble_env.privacy.accounting.theorem2 import theorem2_epsilon
from dp_ensemble_env.tools.console import table

VERDICTS = REPRODUCED, SHAPE, NOT_REPRODUCIBLE, CONTRADICTED = (
    "reproduced",
    "reproduced in shape",
    "not reproducible",
    "contradicted",
)

# Thresholds, stated on the page.
L1_TOLERANCE = 1e-4  # of a published L1 distance
SIMILAR_L1 = 0.1  # policies of adjacent rows are similar: at most 5 % of the probability moves
SLIGHTLY = 0.10  # "slightly less" capacity, "similar" capacity
SLIGHTLY_DEARER = 0.25  # "slightly more expensive"
ABOUT_15 = (0.10, 0.20)  # "about 15 % less"
INDISTINCT, DISTINCT = 0.6, 0.75  # accuracy of the best test; 0.5 is guessing
RECOVERED = 1e-9  # largest error of a matrix that counts as read back

#: Published L1 distances of the policies of adjacent rows.
PAPER_L1 = {
    ("taylor", 50.0): 0.0493,
    ("taylor", 200.0): 0.0482,
    ("digamma", 50.0): 0.0494,
    ("digamma", 200.0): 0.0482,
    ("average-exact", 50.0): 0.0479,
    ("average-exact", 200.0): 0.0476,
}
PAPER_EPSILON = {50.0: 0.88, 200.0: 5.45}
PAPER_EVENT = "2018-07-02, 11:00–15:00"
NAMES = {"taylor": "Taylor", "digamma": "Digamma", "average-exact": "average value"}


class Verdict(NamedTuple):
    """A verdict with its reason."""

    word: str
    reason: str


class Measured(NamedTuple):
    """What was measured in words, the values that the judge looks at, and what is added to its reason."""

    ours: str
    values: Any
    remark: str = ""


class RatioSearch(NamedTuple):
    """What Theorem 2 can give at the paper's two k: the largest ratio, and the pair nearest to the published one."""

    ratio: float
    nearest: tuple[float, float]
    settings: int


@dataclass(frozen=True)
class Claim:
    """One line of the table: a claim of the paper, or one reading of it.

    Attributes
    ----------
    id, section, words, paper : str
        A name, where the paper says it, what it says, and its number or word.
    measure : callable
        Takes a study and gives a `Measured`; of a `theory` claim also the search of Theorem 2, and None without data.
    judge : callable
        Takes the measured values and the `settings`, gives a `Verdict`.
    reading : str
        How a claim with several readings is understood here.
    row, theory, set_up : bool
        Whether it needs a row, is also judged without data, and is a fact of the set-up.
    """

    id: str
    section: str
    words: str
    paper: str
    measure: Callable[..., Measured]
    judge: Callable[..., Verdict]
    settings: Mapping[str, Any] = field(default_factory=dict)
    reading: str = ""
    row: bool = False
    theory: bool = False
    set_up: bool = False


class Finding(NamedTuple):
    """A claim judged on one data set, or without data."""

    claim: Claim
    ours: str
    verdict: Verdict


# ------------------------------------------------------------------ judges
def judge_statement(cases: Mapping[str, bool | None], misprint: str = "") -> Verdict:
    """Judge a statement by the cases in which it was looked at; None stands for a difference within sampling error.

    `misprint` is the number of what explains a verdict other than reproduced.
    """
    true = [name for name, holds in cases.items() if holds]
    none = [name for name, holds in cases.items() if holds is None]
    false = [name for name in cases if name not in (*true, *none)]
    if not false and not none:
        return Verdict(REPRODUCED, f"holds for {_list(true)}")
    undecided = [f"within the sampling error for {_list(none)}"] if none else []
    ending = f" ({misprint})" if misprint else ""
    if false and not true:
        return Verdict(CONTRADICTED, ", ".join([f"does not hold for {_list(false)}", *undecided]) + ending)
    parts = [f"holds for {'; '.join(true)}"] if true else []
    parts += [f"not for {'; '.join(false)}"] if false else []
    return Verdict(SHAPE, ", but ".join([*parts, *undecided]) + ending)


def judge_setting(ours: float, paper: float, tolerance: float, why: str) -> Verdict:
    """Judge a fact of the paper's own data or set-up, which other data need not share."""
    if abs(ours - paper) <= tolerance:
        return Verdict(REPRODUCED, f"within {tolerance:g}" if tolerance else "the same")
    return Verdict(NOT_REPRODUCIBLE, why)


def judge_same(ours: str, paper: str, why: str) -> Verdict:
    """Judge a fact that is no number."""
    return Verdict(REPRODUCED, "the same") if ours == paper else Verdict(NOT_REPRODUCIBLE, why)


def judge_row(cases: Mapping[str, bool] | None) -> Verdict:
    """Judge that there is a row to be changed; None if there is none."""
    if cases is None:
        return Verdict(NOT_REPRODUCIBLE, "no row of this matrix has three successors that can each give up h/2")
    return judge_statement(cases)


def judge_within(
    values: Mapping[str, float] | tuple[Mapping[str, float], Mapping[str, float]],
    low: float,
    high: float,
    sign: float,
    words: str,
) -> Verdict:
    """Judge 'about so much': all values in [low, high]; else by how many have the sign beyond two standard errors.

    The standard errors may follow the values.
    """
    values, errors = values if isinstance(values, tuple) else (values, {})
    signs = {name: differs(value * sign, errors.get(name, 0.0)) for name, value in values.items()}
    span = f"between {percent(low, 0)} and {percent(high, 0)}"
    if all(signs.values()):
        if all(low <= value <= high for value in values.values()):
            return Verdict(REPRODUCED, f"all {span}")
        return Verdict(SHAPE, f"{words}, but not all {span}")
    word, reason = judge_statement(signs)
    return Verdict(word, f"'{words}' {'is ' if set(signs.values()) == {None} else ''}{reason}")


def judge_pair(ours: tuple[Mapping[float, float], float], paper: Mapping[float, float], tolerance: float) -> Verdict:
    """Judge two ε, given with the largest ratio there is: near both; else impossible beyond it; else by their order."""
    pair, most = ours
    low, high = sorted(paper)
    if all(abs(pair[k] - paper[k]) <= tolerance for k in paper):
        return Verdict(REPRODUCED, f"both within {tolerance:g}")
    ratio = paper[high] / paper[low]
    if ratio > most:
        return Verdict(
            NOT_REPRODUCIBLE,
            f"the published ratio is {ratio:.2f}; Theorem 2 gave at most {most:.2f} over all ω, ω̄ and |W| tried (E13)",
        )
    if (pair[high] > pair[low]) == (paper[high] > paper[low]):
        return Verdict(SHAPE, "the order agrees, the numbers do not")
    return Verdict(CONTRADICTED, "the order is the opposite")


def judge_successors(ours: tuple[int, Sequence[int], Sequence[int]]) -> Verdict:
    """Judge 'the successors are the state and its two neighbours' by state, successors and the three most likely."""
    state, successors, triple = ours
    three = (state - 1, state, state + 1)
    if tuple(successors) == three:
        return Verdict(REPRODUCED, "the same three")
    if tuple(triple) == three:
        return Verdict(SHAPE, "the three most likely ones are these")
    return Verdict(NOT_REPRODUCIBLE, "a fact of the paper's meter; here the three most likely ones are others")


def judge_l1(ours: tuple[float, bool, bool], paper: float) -> Verdict:
    """Judge an L1 distance, whether it falls in k, and whether the row was fitted to it, so that a miss contradicts."""
    value, falls, fitted = ours
    if abs(value - paper) <= L1_TOLERANCE:
        return Verdict(REPRODUCED, f"within {L1_TOLERANCE:g}" + (", on a row fitted to it" if fitted else ""))
    off = f"off by {abs(value - paper):.2g}"
    if fitted:
        return Verdict(CONTRADICTED, f"{off}, though the row was fitted to it")
    if falls and 0.1 <= value / paper <= 10:
        return Verdict(SHAPE, f"{off}, but it falls from k = 50 to k = 200 and is within a factor of ten")
    way = "falls" if falls else "does not fall"
    return Verdict(NOT_REPRODUCIBLE, f"{off}; it {way} in k, which depends on the row and z of the paper's own meter")


def judge_indistinct(accuracy: float) -> Verdict:
    """Judge 'impossible to distinguish' by the best test there is."""
    word = REPRODUCED if accuracy < INDISTINCT else SHAPE if accuracy < DISTINCT else CONTRADICTED
    return Verdict(word, "guessing is right in 50 %")


def judge_distinct(ours: tuple[float, float]) -> Verdict:
    """Judge 'relatively distinguishable': often right, or at least more often than at the smaller k."""
    (accuracy, before), said = ours, "guessing is right in 50 %"
    if accuracy < DISTINCT and accuracy > before:
        return Verdict(SHAPE, f"{said}; more than at the smaller k ({percent(before)}), but far from certain")
    return Verdict(REPRODUCED if accuracy >= DISTINCT else CONTRADICTED, said)


def judge_private(errors: Mapping[str, float]) -> Verdict:
    """Judge 'these policies are differentially private' by whether the true matrix can be read back from them."""
    cases = {f"{name} (matrix read back to {error:.0e})": not error <= RECOVERED for name, error in errors.items()}
    return judge_statement(cases, "E8")


def judge_as_private(ours: tuple[Mapping[float, float], Mapping[float, float], float]) -> Verdict:
    """Judge 'the average of N draws is as private as one' by an attack, and the most that it can show."""
    single, attack, ceiling = ours
    cases: dict[str, bool | None] = {}
    blind = []
    for k, one in single.items():
        if one >= ceiling:
            blind.append(f"k = {k:g}")
        else:
            shown = f"at least {attack[k]:.3g}, not {one:.3g}" if attack[k] > one else f"shown {attack[k]:.3g}"
            cases[f"k = {k:g} (ε {shown})"] = attack[k] <= one
    text = f"the attack cannot tell at {' and '.join(blind)}: one draw's ε is above what it can show" if blind else ""
    if not cases:
        return Verdict(NOT_REPRODUCIBLE, text)
    word, reason = judge_statement(cases, "E9")
    return Verdict(word, f"{reason}; {text}" if blind else reason)


def combine(readings: Sequence[Finding]) -> Verdict:
    """Judge a claim by all its readings: reproduced or contradicted only if every one of them is."""
    words = [finding.verdict.word for finding in readings]
    if len(set(words)) == 1:
        return readings[0].verdict if len(words) == 1 else Verdict(words[0], f"in all {len(words)} readings")
    return Verdict(SHAPE, "depends on the reading")


# ------------------------------------------------------------------ words and small tests
def differs(difference: float, error: float) -> bool | None:
    """Whether a difference is positive; None if it lies within two standard errors of zero."""
    return None if error > 0 and abs(difference) <= 2 * error else difference > 0


def rising(values: Sequence[float]) -> bool:
    """Whether a sequence never falls and ends above its beginning."""
    return values[-1] > values[0] and all(b >= a for a, b in pairwise(values))


def falling(values: Sequence[float], errors: Sequence[float] | None = None) -> bool | None:
    """Whether a sequence falls; a rise, or the whole fall, within two standard errors does not count."""
    error = np.zeros(len(values)) if errors is None else np.asarray(errors)
    if (np.diff(values) > 2 * np.hypot(error[1:], error[:-1])).any():
        return False
    return differs(values[0] - values[-1], float(np.hypot(error[0], error[-1])))


def percent(value: float, digits: int = 1, sign: bool = False) -> str:
    """Write a share in percent."""
    rounded = round(100 * value, digits) + 0.0  # no "-0"
    return f"{rounded:{'+' if sign else ''}.{digits}f} %"


def distance(value: float) -> str:
    """Write an L1 distance as the paper does, small ones by their order of magnitude."""
    return f"{value:.4f}" if value >= 1e-3 else f"{value:.0e}"


def _list(names: Sequence[str]) -> str:
    joiner = " and " if len(names) == 2 else "; "
    return joiner.join(names) if len(names) <= 4 else f"all {len(names)} cases"


def _dollars(value: float) -> str:
    size = abs(value)
    return f"{'−' if value < 0 else ''}${size:,.2f}" if size >= 0.01 else f"${size:.1g}"


def _dear(study: Study, first: str, second: str) -> str:
    """Write two costs beside each other, for each k of the paper."""
    pairs = {k: (study.at(study.cost[first], k), study.at(study.cost[second], k)) for k in KS}
    return ", ".join(f"{_dollars(a)} against {_dollars(b)} (k = {k:g})" for k, (a, b) in pairs.items())


# ------------------------------------------------------------------ without data
#: A row of three successors with one z, fitted so that it gives all six published L1 distances.
INSTANCE_ROW, INSTANCE_LOG_Z = (0.8224, 0.0222, 0.1555), (0.9854, 0.0, 2.2244)


def instance_l1() -> dict[tuple[str, float], float]:
    """L1 distances of the policies of the three-state row and its neighbour, for one step with that z."""
    row = np.array(INSTANCE_ROW) / sum(INSTANCE_ROW)
    utility = np.stack([np.zeros(3), INSTANCE_LOG_Z])
    pair = [EnsembleModel(np.tile(p, (3, 1)), np.arange(3.0), utility, 1.0) for p in (row, row + [0.0, -H / 2, H / 2])]
    policies = {key: [solve_policy(either, *key)[0, 0] for either in pair] for key in PAPER_L1}
    return {key: float(np.abs(first - second).sum()) for key, (first, second) in policies.items()}


def search_ratio(omegas: Sequence[float] | None = None, rests: Sequence[float] | None = None) -> RatioSearch:
    """Search Theorem 2's parameters (ω, ω̄ and the size of W) for the published pair of ε."""
    low, high = sorted(PAPER_EPSILON)
    omegas = np.geomspace(0.005, 0.49, 14).tolist() if omegas is None else omegas
    rests = (0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8) if rests is None else rests
    pairs = np.array(
        [
            [theorem2_epsilon(k, H, omega, rest, size, DELTA) for k in (low, high)]
            for size in (2, 3, 5)
            for omega in omegas
            for rest in rests
            if size * omega <= 1 - rest and 1 - rest - omega > H / 2
        ]
    )
    wanted = np.array([PAPER_EPSILON[low], PAPER_EPSILON[high]])
    nearest = pairs[np.argmin(np.abs(np.log(pairs / wanted)).max(axis=1))]
    return RatioSearch(float((pairs[:, 1] / pairs[:, 0]).max()), (float(nearest[0]), float(nearest[1])), len(pairs))


# ------------------------------------------------------------------ what is measured: set-up and the row
def _buildings(study: Study) -> Measured:
    number, within = study.data.model.buildings, study.deviation
    cases = {"the number": number == 100, "the noise": within <= 0.1 + 1e-9}
    return Measured(f"{number}, ±{percent(within)}", cases)


def _date(study: Study) -> Measured:
    model = study.data.model
    window = model.times[:1] if model.event is None else model.times[model.event.in_event]
    begin = window[0] - np.timedelta64(round(3600 * model.step_hours), "s")
    when = f"{begin.astype('datetime64[D]')}, {str(begin)[11:16]}–{str(window[-1])[11:16]}"
    return Measured(when, when)


def _length(study: Study) -> Measured:
    model = study.data.model
    hours = int(model.event.in_event.sum()) * model.step_hours if model.event is not None else 0.0
    notice = (model.horizon - round(hours / model.step_hours)) * model.step_hours * 60
    return Measured(f"{hours:g} h, {notice:g} min", {"the length": hours == 4, "the notice": notice == 30})


def _level(study: Study) -> Measured:
    state = study.the_row.state
    megawatts = study.data.model.power_kw[state] * study.data.model.buildings / 1e3
    remark = ": the campus was scaled to this" if study.data.slug == "campus" else ""
    return Measured(f"row {state + 1}, {megawatts:.1f} MW", megawatts, remark)


def _successors(study: Study) -> Measured:
    row = study.the_row
    successors = [int(a) for a in row.successors]
    return Measured(", ".join(str(a + 1) for a in successors), (row.state, successors, row.triple))


def _adjacent(study: Study) -> Measured:
    row = study.row
    if row is None:
        return Measured("no row", None)
    moved = ", ".join(f"{row.row[a]:.3f} → {row.adjacent[a]:.3f}" for a in (row.down, row.up))
    cases = {
        "an adjacent row": bool(row.adjacent[row.down] > 0),
        "row 18": row.state == 17,
        "its two entries": row.down == row.state and row.up == row.state + 1,
    }
    return Measured(f"entries {row.down + 1}, {row.up + 1}: {moved}", cases)


def _simplex(study: Study) -> Measured:
    clouds = [cloud for pair in study.clouds.values() for cloud in pair]
    sums = float(np.max([np.abs(cloud.sum(axis=1) - 1).max() for cloud in clouds]))
    low = float(np.min([cloud.min() for cloud in clouds]))
    ours = f"sums within {sums:.0e} of one, least entry {low:.0e}"
    return Measured(ours, {"every release drawn": sums < 1e-9 and low >= 0})


# ------------------------------------------------------------------ privacy of the row, its policies
def _epsilon_pair(study: Study | None, search: RatioSearch) -> Measured:
    if study is None:
        pair, prefix = dict(zip(sorted(PAPER_EPSILON), search.nearest, strict=True)), "nearest pair in the search: "
    else:
        pair, prefix = study.epsilon_at(m.THEOREM2), ""
    return Measured(prefix + ", ".join(f"{pair[k]:.2f} (k = {k:g})" for k in sorted(pair)), (pair, search.ratio))


def _less_private(study: Study) -> Measured:
    exact, bound = study.epsilon_at(m.PAIR), study.epsilon_at(m.THEOREM2)
    ours = f"exact ε {exact[50.0]:.2f}, {exact[200.0]:.2f}; Theorem 2 {bound[50.0]:.2f}, {bound[200.0]:.2f}"
    return Measured(ours, {"exact ε": exact[200.0] > exact[50.0], "Theorem 2": bound[200.0] > bound[50.0]})


def _accuracy(study: Study, k: float) -> Measured:
    accuracy = study.accuracy
    ours = f"the best test is right in {percent(accuracy[k])} of the cases"
    return Measured(ours, accuracy[k] if k == KS[0] else (accuracy[k], accuracy[KS[0]]))


def _stronger(study: Study) -> Measured:
    pair, ks = study.epsilon[m.PAIR], study.effort.ks
    ours = f"ε {pair[0]:.3f} … {pair[-1]:.2f} for k = {ks[0]:g} … {ks[-1]:g}"
    return Measured(ours, {name: rising(values) for name, values in study.epsilon.items()})


def _decrease(study: Study) -> Measured:
    pair, ks = study.epsilon[m.PAIR], study.effort.ks
    ours = f"ε goes from {pair[-1]:.2f} to {pair[0]:.3f} as k falls from {ks[-1]:g} to {ks[0]:g}"
    return Measured(ours, {name: rising(values[::-1]) for name, values in study.epsilon.items()})


def _similar(study: Study) -> Measured:
    cases = {f"{method}, k = {k:g}": value <= SIMILAR_L1 for (method, k), value in study.l1.items()}
    return Measured(f"L1 at most {distance(max(study.l1.values()))}", cases)


def _l1(study: Study | None, _: RatioSearch, key: tuple[str, float]) -> Measured:
    values = instance_l1() if study is None else study.l1
    falls = values[key[0], KS[1]] < values[key[0], KS[0]]
    return Measured(distance(values[key]), (values[key], falls, study is None))


# ------------------------------------------------------------------ the event
def _ad_hoc(study: Study) -> Measured:
    shed = study.events["ad-hoc", 0.0].curtailed_kwh
    named = {f"{name}, k = {k:g}": outcome.curtailed_kwh for (name, k), outcome in study.events.items() if k}
    kwh = {"standard": study.events["standard", 0.0].curtailed_kwh, **named}
    limit = f"at k = 50 the claim breaks at a shed {study.shed_limit:.2g} times as strong"
    if study.shed_limit == 0:
        limit = "at k = 50 even the smallest shed takes as much as one of the policies"
    elif not np.isfinite(study.shed_limit):
        limit = "at k = 50 no shed of this kind takes as much as the policies"
    return Measured(
        f"least {min(kwh.values()) / 1e3:,.1f} MWh, ad-hoc {shed / 1e3:,.1f} MWh, {percent(study.shed_share)} of the "
        "event's energy",
        {name: value > shed for name, value in kwh.items()},
        f"; the size of the shed is ours, not the paper's: {limit}",
    )


def _slightly_less(study: Study) -> Measured:
    best = study.events["standard", 0.0].curtailed_kwh
    less = {f"{name}, k = {k:g}": o.curtailed_kwh / best - 1 for (name, k), o in study.events.items() if k}
    return Measured(f"{percent(min(less.values()), sign=True)} to {percent(max(less.values()), sign=True)}", less)


def _taylor_digamma(study: Study) -> Measured:
    best = study.events["standard", 0.0].curtailed_kwh
    kwh = {key: outcome.curtailed_kwh for key, outcome in study.events.items()}
    apart = {f"k = {k:g}": abs(kwh["digamma", k] - kwh["taylor", k]) / best for k in KS}
    ours = "apart by " + ", ".join(f"{percent(v)} ({n})" for n, v in apart.items())
    return Measured(ours, {name: value <= SLIGHTLY for name, value in apart.items()})


def _deviation(study: Study) -> Measured:
    best, cases, words = study.events["standard", 0.0].curtailed_kwh, {}, []
    for k in KS:
        gaps = {name: study.events[name, k].curtailed_kwh / best - 1 for name in NAMES}
        cases[f"k = {k:g}"] = abs(gaps["average-exact"]) >= max(abs(gaps["taylor"]), abs(gaps["digamma"]))
        words.append(f"k = {k:g}: " + ", ".join(f"{NAMES[n]} {percent(v, 2, sign=True)}" for n, v in gaps.items()))
    return Measured("; ".join(words), cases)


def _fifteen(study: Study, reading: int) -> Measured:
    """Compare what average value extracts with Taylor and Digamma, by three readings of 'at the peak'."""

    def most(power: Any) -> float:
        return float((study.uncontrolled - power).max())

    extracted = most if reading == 2 else study.at_peak
    values, errors = {}, {}
    for k in KS:
        others = float(np.mean([extracted(study.events[name, k].power_kw) for name in ("taylor", "digamma")]))
        ours = study.released[k][1] if reading == 3 else extracted(study.events["average-exact", k].power_kw)
        values[f"k = {k:g}"] = 1.0 - ours / others
        if reading == 3:
            errors[f"k = {k:g}"] = study.released[k][2] / abs(others)
    place = "" if reading == 2 else f"at {study.peak_clock}, the {study.peak_of}'s peak: "
    words = [
        f"{percent(abs(v))} {'less' if v > 0 else 'more'}"
        + (f" ± {percent(errors[name])}" if name in errors else "")
        + f" ({name})"
        for name, v in values.items()
    ]
    return Measured(place + ", ".join(words), (values, errors))


# ------------------------------------------------------------------ cost of privacy
def _digamma_dearer(study: Study, ending: str) -> Measured:
    taylor, digamma = study.cost[f"taylor{ending}"], study.cost[f"digamma{ending}"]
    over = {f"k = {k:g}": study.at(digamma, k) / study.at(taylor, k) - 1 for k in KS}
    return Measured(_dear(study, f"digamma{ending}", f"taylor{ending}"), over)


def _kernel(study: Study) -> Measured:
    error = study.kernel_error
    ours = f"largest error {error['digamma']:.0e} against {error['taylor']:.1e} nats"
    return Measured(ours, {"this row at k = 50": error["digamma"] < error["taylor"]})


def _accurate(study: Study) -> Measured:
    digamma, taylor = study.cost["digamma"], study.cost["taylor"]
    cases = {f"k = {k:g}": study.at(digamma, k) < study.at(taylor, k) for k in KS}
    return Measured(f"exact loss {_dear(study, 'digamma', 'taylor')}", cases)


def _average_dearer(study: Study, name: str, ending: str) -> Measured:
    cost, errors, cases = study.cost, study.cost_error.get(name), {}
    for k in KS:
        dearest = max(study.at(cost[f"taylor{ending}"], k), study.at(cost[f"digamma{ending}"], k))
        spread = 0.0 if errors is None else study.at(errors, k)
        cases[f"k = {k:g}"] = differs(study.at(cost[name], k) - dearest, spread)
    remark = ""
    if name == m.PRINTED:
        below = min(study.at(cost[name], k) for k in KS) < 0
        remark = f"{'; below zero it is no cost' if below else ''} (E2, E3)"
    return Measured(_dear(study, name, f"digamma{ending}") + " for Digamma", cases, remark)


def _capacity(study: Study) -> Measured:
    ours = "; ".join(f"{NAMES[n]} {v[0] / 1e3:,.1f} … {v[-1] / 1e3:,.1f} MWh" for n, v in study.capacity.items())
    return Measured(ours, {NAMES[name]: rising(values) for name, values in study.capacity.items()})


def _cost(study: Study) -> Measured:
    cost, errors = study.cost, study.cost_error
    cases = {name: falling(values, errors.get(name)) for name, values in cost.items() if name != m.PRINTED}
    return Measured(f"one release ${cost[m.ONE][0]:,.2f} … ${cost[m.ONE][-1]:,.2f}", cases)


# ------------------------------------------------------------------ privacy of policies
def _stochastic(study: Study) -> Measured:
    worst = max(study.recovery.values())
    return Measured(f"true matrix read back from the policy's last step alone, error {worst:.0e}", study.recovery)


def _average_private(study: Study) -> Measured:
    single, most, attack = study.epsilon_at(m.PAIR), study.epsilon_at(m.COMPOSED), study.attack
    words = [
        f"ε from {attack[k]:.1f} (attack) to {most[k]:,.1f} (composed), one {single[k]:.2f} (k = {k:g})" for k in KS
    ]
    known = "; attacked is the averaged policy of the row with z known, and the attack can show "
    return Measured(f"{', '.join(words)}{known}{study.ceiling:.1f} at most", (single, attack, study.ceiling))


def _by_method(study: Study) -> Measured:
    most, open_book = study.epsilon_at(m.COMPOSED), max(study.recovery.values()) <= RECOVERED
    return Measured(
        f"Taylor, Digamma: {'no finite ε' if open_book else 'ε not shown to be infinite'}; average value at most "
        + ", ".join(f"{most[k]:,.1f} (k = {k:g})" for k in KS),
        {f"k = {k:g}": bool(open_book and np.isfinite(value)) for k, value in most.items()},
        ", each made as the paper does (E8, E9); made from one release, all have that one's ε",
    )


# ------------------------------------------------------------------ the table
_SET_UP: dict[str, Any] = {"set_up": True}
_ROW: dict[str, Any] = {"row": True}
_MORE_ACCURATE = "Digamma provides more accurate solutions than Taylor"
_AVERAGE_DEARER = "average value is more expensive than both Taylor and Digamma"
_L1 = "L1 distance between the {} policies of adjacent rows at k = {:g}"
_FIFTEEN = "average value extracts about 15 % less at the peak than Taylor and Digamma"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        *("buildings", "VI", "100 synthetic buildings, each within ±10 % of the original", "100, ±10 %"),
        *(_buildings, judge_statement),
        **_SET_UP,
    ),
    Claim(
        *("states", "VI, Fig. 3", "the summer's aggregate power makes a chain of 20 states", "20"),
        lambda study: Measured(str(study.data.model.n_states), study.data.model.n_states),
        judge_setting,
        {"paper": 20, "tolerance": 0, "why": "levels that this series never leaves were merged with their neighbours"},
        **_SET_UP,
    ),
    Claim(
        *("penalty", "VI", "γ, the price of discomfort", "$15 per building"),
        lambda study: Measured(f"${(g := study.data.model.discomfort_penalty):g} per building", g),
        judge_setting,
        {"paper": 15, "tolerance": 0, "why": "another price was chosen"},
        **_SET_UP,
    ),
    Claim(
        *("date", "VI-3", "day and hours of the event", PAPER_EVENT, _date, judge_same),
        {"paper": PAPER_EVENT, "why": "the data have no such day, or another was chosen"},
        **_SET_UP,
    ),
    Claim(
        *("event", "VI, VI-3", "four hours of event, control from 30 minutes before", "4 h, 30 min"),
        *(_length, judge_statement),
        **_SET_UP,
    ),
    Claim(
        *("level", "VI-1", "row 18 stands for 32.1 MW", "row 18, 32.1 MW", _level, judge_setting),
        {"paper": 32.1, "tolerance": 0.05, "why": "a fact of the paper's meter, not of this one"},
        **_SET_UP | _ROW,
    ),
    Claim(
        *("successors", "Figs. 5, 6", "the row's successors are the state and its two neighbours", "17, 18, 19"),
        *(_successors, judge_successors),
        **_SET_UP | _ROW,
    ),
    Claim(
        *("row", "VI-1", "an adjacent row exists: the state's own entry down by 0.015, the next one up"),
        *("entries 18, 19", _adjacent, judge_row),
        **_SET_UP,
    ),
    Claim(
        *("simplex", "Fig. 4", "the mechanism's outputs stay on the unit simplex", "yes", _simplex, judge_statement),
        **_SET_UP | _ROW,
    ),
    Claim(
        *("epsilon-pair", "VI-1", "ε of one row by Theorem 2 at δ = 0.05, h = 0.03", "0.88 (k = 50), 5.45 (k = 200)"),
        *(_epsilon_pair, judge_pair, {"paper": PAPER_EPSILON, "tolerance": 0.05}),
        row=True,
        theory=True,
    ),
    Claim(
        *("less-private", "VI-1", "k = 200 is less private than k = 50", "ε larger", _less_private, judge_statement),
        **_ROW,
    ),
    Claim(
        *(
            "indistinct",
            "VI-1",
            "at k = 50 the two rows' outcomes are impossible to distinguish with a high probability",
        ),
        *("impossible", partial(_accuracy, k=50.0), judge_indistinct),
        **_ROW,
    ),
    Claim(
        *("distinct", "VI-1, Fig. 4", "at k = 200 they are relatively distinguishable", "relatively"),
        *(partial(_accuracy, k=200.0), judge_distinct),
        **_ROW,
    ),
    Claim("stronger", "VI-1", "lower k gives stronger privacy", "yes", _stronger, judge_statement, **_ROW),
    Claim(
        *("similar", "VI-2, Figs. 5, 6", "adjacent rows give similar policies", "similar", _similar, judge_statement),
        **_ROW,
    ),
    *(
        Claim(
            *(f"L1-{method}-{k:g}", "VI-2", _L1.format(NAMES[method], k), f"{paper:.4f}"),
            *(partial(_l1, key=(method, k)), judge_l1, {"paper": paper}),
            row=True,
            theory=True,
        )
        for (method, k), paper in PAPER_L1.items()
    ),
    Claim(
        *("ad-hoc", "VI-3, Fig. 7", "every MDP policy extracts more capacity than the ad-hoc practice", "more"),
        *(_ad_hoc, judge_statement),
    ),
    Claim(
        *("slightly-less", "VI-3", "private policies curtail slightly less than the standard one", "slightly less"),
        *(_slightly_less, judge_within),
        {"low": -SLIGHTLY, "high": -1e-9, "sign": -1, "words": "they curtail less"},
    ),
    Claim(
        *("taylor-digamma", "VI-3", "Taylor and Digamma extract similar capacity", "similar"),
        *(_taylor_digamma, judge_statement),
    ),
    Claim(
        *("least-deviation", "VI-3", "Taylor and Digamma deviate least from the standard response", "least"),
        *(_deviation, judge_statement),
    ),
    *(
        Claim(
            *(f"fifteen-{number}", "VI-3", _FIFTEEN, "15 % less", partial(_fifteen, reading=number), judge_within),
            {"low": ABOUT_15[0], "high": ABOUT_15[1], "sign": 1, "words": "it extracts less"},
            reading,
        )
        for number, reading in (
            (1, "averaged policy, at the peak"),
            (2, "averaged policy, where it curtails most"),
            (3, "plan on one release, at the peak"),
        )
    ),
    *(
        Claim(
            *(f"digamma-dearer-{short}", "VI-3, Fig. 8", "Digamma is slightly more expensive than Taylor"),
            *("slightly more", partial(_digamma_dearer, ending=ending), judge_within),
            {"low": 1e-9, "high": SLIGHTLY_DEARER, "sign": 1, "words": "it is more expensive"},
            reading,
        )
        for short, ending, reading in (("exact", "", "exact loss"), ("paper", m.FORMULA, "paper's formulas"))
    ),
    Claim(
        *("accurate-kernel", "VI-3", _MORE_ACCURATE, "more accurate", _kernel, judge_statement),
        reading="as E[log x] of the noise",
        row=True,
    ),
    Claim(
        *("accurate-policy", "VI-3", _MORE_ACCURATE, "more accurate", _accurate, judge_statement),
        reading="deployed, nearer to the optimum",
    ),
    *(
        Claim(
            *(f"average-dearer-{short}", "VI-3, Fig. 8", _AVERAGE_DEARER, "more expensive"),
            *(partial(_average_dearer, name=name, ending=ending), judge_statement),
            reading=reading,
        )
        for short, name, ending, reading in (
            ("one-release", m.ONE, "", "plan made on one release, exact loss"),
            ("exact", "average-exact", "", "averaged policy, exact loss"),
            ("leading", m.LEADING, "", "Corollary 3 corrected, leading order in 1/k, against exact losses"),
            (
                "one-step",
                m.ONE_STEP,
                m.FORMULA,
                "the paper's one-step formula on one release, against its other formulas",
            ),
            ("printed", m.PRINTED, m.FORMULA, "Corollary 3 as printed, against the paper's other formulas"),
        )
    ),
    Claim("less-capacity", "VI-3", "more privacy (smaller k) means less capacity", "less", _capacity, judge_statement),
    Claim(
        *("greater-cost", "VI-3, Fig. 8", "more privacy (smaller k) means a greater cost", "greater"),
        *(_cost, judge_statement),
    ),
    Claim(
        *("decrease", "VI-3", "privacy decreases with a decrease in k", "decreases", _decrease, judge_statement),
        {"misprint": "E12"},
        **_ROW,
    ),
    Claim(
        *("stochastic-private", "VI-2, Figs. 5, 8", "the Taylor and Digamma policies are differentially private"),
        *("private", _stochastic, judge_private),
    ),
    Claim(
        *("average-private", "V, Fig. 8", f"the policy averaged over {m.DRAWS} draws is as private as one draw"),
        *("the same ε", _average_private, judge_as_private),
        **_ROW,
    ),
    Claim(
        *("epsilon-by-method", "VI-3, Fig. 8", "the stochastic and the average value approach differ in ε, too"),
        *("differ", _by_method, judge_statement),
        **_ROW,
    ),
)


def judge_claims(study: Study | None, search: RatioSearch) -> list[Finding]:
    """Judge every claim that a data set can speak to, in the order of the paper; None: those that need no data."""
    findings = []
    for claim in CLAIMS:
        if claim.theory if study is None else study.row is not None or not claim.row:
            ours, values, remark = claim.measure(study, search) if claim.theory else claim.measure(study)
            word, reason = claim.judge(values, **claim.settings)
            findings.append(Finding(claim, ours, Verdict(word, reason + remark)))
    return findings


# ------------------------------------------------------------------ over data sets
CLAIM_HEADINGS = (
    *("id", "group", "claim", "reading", "place", "paper", "data", "ours", "verdict", "reason"),
    "verdict on the claim",
)
MARKS = {REPRODUCED: "✓", SHAPE: "≈", NOT_REPRODUCIBLE: "∅", CONTRADICTED: "✗"}
_COLOURS = {"✓": "bold green", "≈": "bold cyan", "∅": "bold yellow", "✗": "bold red"}


def gather(findings: Mapping[str, Sequence[Finding]]) -> dict[str, dict[str, list[Finding]]]:
    """Gather the readings of each claim by its words and by data set, in the order of the fullest list."""
    gathered: dict[str, dict[str, list[Finding]]] = {}
    for one in sorted(findings.values(), key=len, reverse=True):
        gathered |= {finding.claim.words: {} for finding in one if finding.claim.words not in gathered}
    for data, one in findings.items():
        for finding in one:
            gathered[finding.claim.words].setdefault(data, []).append(finding)
    return gathered


def claim_rows(findings: Mapping[str, Sequence[Finding]]) -> list[tuple[str, ...]]:
    """Return every reading of every claim on every data set, one line each."""
    gathered = gather(findings)
    return [
        (
            *(claim.id, "set-up" if claim.set_up else "claim", claim.words, claim.reading, claim.section, claim.paper),
            *(data, ours, *verdict, combine(gathered[claim.words][data]).word),
        )
        for data, one in findings.items()
        for claim, ours, verdict in one
    ]


def failing(findings: Mapping[str, Sequence[Finding]]) -> dict[str, dict[str, list[Finding]]]:
    """Return the claims that were contradicted or cannot be reproduced on every data set that speaks to them."""
    return {
        words: by_data
        for words, by_data in gather(findings).items()
        if not set_up(by_data) and {combine(one).word for one in by_data.values()} <= {CONTRADICTED, NOT_REPRODUCIBLE}
    }


def set_up(by_data: Mapping[str, Sequence[Finding]]) -> bool:
    """Whether a gathered claim is a fact of the set-up."""
    return next(iter(by_data.values()))[0].claim.set_up


def counts(findings: Mapping[str, Sequence[Finding]], facts: bool = False) -> dict[str, int]:
    """Count the verdicts of the claims, or of the facts of the set-up, each once: by all its readings on all data.

    What was judged without data counts where no data set speaks to it.
    """
    words = []
    for by_data in gather(findings).values():
        data = [one for name, one in by_data.items() if name != THEORY] or list(by_data.values())
        if set_up(by_data) == facts:
            words.append(combine([finding for one in data for finding in one]).word)
    return {word: words.count(word) for word in VERDICTS if word in words}


def tally(findings: Mapping[str, Sequence[Finding]]) -> str:
    """Say the counts in words, the set-up apart."""
    claims, facts = counts(findings), counts(findings, facts=True)
    text = ", ".join(f"{number} {word}" for word, number in claims.items())
    text = f"{sum(claims.values())} claims: {text}"
    if not facts:
        return text
    return f"{text}; of {sum(facts.values())} facts of the set-up {facts.get(REPRODUCED, 0)} are the paper's"


def show_findings(findings: Mapping[str, Sequence[Finding]]) -> None:
    """Print a line for each claim, with a narrow column of verdicts for each data set; the page has every reading."""
    from rich.text import Text

    letters = dict(zip((data for data in findings if data != THEORY), "ABCD", strict=False))
    rows: list[list[str | Text]] = []
    for words, by_data in gather(findings).items():
        if set_up(by_data):
            continue
        marks = [MARKS[combine(by_data[data]).word] if data in by_data else "" for data in letters]
        paper = next(iter(by_data.values()))[0].claim.paper
        rows.append([words, paper, *(Text(mark, _COLOURS.get(mark, "")) for mark in marks)])
    notes = [
        ", ".join(f"{mark} {word}" for word, mark in MARKS.items()) + ".",
        ", ".join(f"{letter}: {data}" for data, letter in letters.items()) + ".",
        f"{tally(findings)}.",
    ]
    table("Claims of Section VI", ("claim", "paper", *letters.values()), rows, notes=notes)
