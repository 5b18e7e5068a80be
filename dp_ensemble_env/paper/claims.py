"""The claims of the paper's Section VI, each with a verdict that is computed from a `Study`.

A verdict is one of four words, given by the functions below and by nothing else:

reproduced
    a number within its stated tolerance, or a statement that is true wherever it was looked at;
reproduced in shape
    the sign, order or direction holds and the number does not, or the statement holds in part;
not reproducible
    no setting or no data at hand can give what was published, for a computed reason;
contradicted
    the opposite was found.

A claim that can be read in several ways has one `Finding` for each reading and counts once (`combine`). Facts of the
paper's set-up are judged too but are not counted among its claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dp_ensemble_env.control.policies import average_policy, digamma_policy, taylor_policy
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.paper.measures import KS
from dp_ensemble_env.paper.releases import DELTA
from dp_ensemble_env.paper.row import H
from dp_ensemble_env.privacy.accounting.theorem2 import theorem2_epsilon

REPRODUCED, SHAPE, NOT_REPRODUCIBLE, CONTRADICTED = (
    "reproduced",
    "reproduced in shape",
    "not reproducible",
    "contradicted",
)
VERDICTS = (REPRODUCED, SHAPE, NOT_REPRODUCIBLE, CONTRADICTED)

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
NAMES = {"taylor": "Taylor", "digamma": "Digamma", "average-exact": "average value"}


class Verdict(NamedTuple):
    """A verdict with its reason."""

    word: str
    reason: str


@dataclass(frozen=True)
class Finding:
    """One claim, or one reading of it, on one data set (or on none: theory)."""

    id: str
    claim: str
    place: str
    paper: str
    ours: str
    verdict: Verdict
    reading: str = ""
    set_up: bool = False


# ------------------------------------------------------------------ verdicts
def judge_statement(cases: Mapping[str, bool | None]) -> Verdict:
    """Judge a statement by the cases in which it was looked at; None stands for a difference within sampling error."""
    true = [name for name, holds in cases.items() if holds]
    none = [name for name, holds in cases.items() if holds is None]
    false = [name for name in cases if name not in (*true, *none)]
    if not false and not none:
        return Verdict(REPRODUCED, f"holds for {_list(true)}")
    undecided = [f"within the sampling error for {_list(none)}"] if none else []
    if false and not true:
        return Verdict(CONTRADICTED, ", ".join([f"does not hold for {_list(false)}", *undecided]))
    parts = [f"holds for {'; '.join(true)}"] if true else []
    parts += [f"not for {'; '.join(false)}"] if false else []
    return Verdict(SHAPE, ", but ".join([*parts, *undecided]))


def judge_setting(paper: float, ours: float, tolerance: float, why: str) -> Verdict:
    """Judge a fact of the paper's own data or set-up, which other data need not share."""
    if abs(ours - paper) <= tolerance:
        return Verdict(REPRODUCED, f"within {tolerance:g}" if tolerance else "the same")
    return Verdict(NOT_REPRODUCIBLE, why)


def judge_within(
    values: Mapping[str, float],
    low: float,
    high: float,
    sign: float,
    words: str,
    errors: Mapping[str, float] | None = None,
) -> Verdict:
    """Judge 'about so much': all values in [low, high]; else by how many have the sign beyond two standard errors."""
    signs = {name: differs(value * sign, (errors or {}).get(name, 0.0)) for name, value in values.items()}
    span = f"between {percent(low, 0)} and {percent(high, 0)}"
    if all(signs.values()):
        if all(low <= value <= high for value in values.values()):
            return Verdict(REPRODUCED, f"all {span}")
        return Verdict(SHAPE, f"{words}, but not all {span}")
    found = judge_statement(signs)
    return Verdict(found.word, f"'{words}' {'is ' if found.reason.startswith('within') else ''}{found.reason}")


def differs(difference: float, error: float) -> bool | None:
    """Whether a difference is positive; None if it lies within two standard errors of zero."""
    return None if error > 0 and abs(difference) <= 2 * error else difference > 0


def judge_pair(paper: Mapping[float, float], ours: Mapping[float, float], tolerance: float, most: float) -> Verdict:
    """Judge two values of ε: near both; else impossible if their ratio exceeds `most`; else by their order."""
    low, high = sorted(paper)
    if all(abs(ours[k] - paper[k]) <= tolerance for k in paper):
        return Verdict(REPRODUCED, f"both within {tolerance:g}")
    ratio = paper[high] / paper[low]
    if ratio > most:
        return Verdict(
            NOT_REPRODUCIBLE,
            f"the published ratio is {ratio:.2f}; Theorem 2 gave at most {most:.2f} over all ω, ω̄ and |W| tried (E13)",
        )
    if (ours[high] > ours[low]) == (paper[high] > paper[low]):
        return Verdict(SHAPE, "the order agrees, the numbers do not")
    return Verdict(CONTRADICTED, "the order is the opposite")


def judge_successors(state: int, successors: Sequence[int], triple: Sequence[int]) -> Verdict:
    """Judge 'the successors are the state and its two neighbours', a fact of the paper's data."""
    three = (state - 1, state, state + 1)
    if tuple(successors) == three:
        return Verdict(REPRODUCED, "the same three")
    if tuple(triple) == three:
        return Verdict(SHAPE, "the three most likely ones are these")
    return Verdict(NOT_REPRODUCIBLE, "a fact of the paper's meter; here the three most likely ones are others")


def judge_l1(paper: float, ours: float, falls: bool, fitted: bool = False) -> Verdict:
    """Judge a published L1 distance; on a `fitted` row a miss contradicts, on other data it is the data's."""
    if abs(ours - paper) <= L1_TOLERANCE:
        return Verdict(REPRODUCED, f"within {L1_TOLERANCE:g}" + (", on a row fitted to it" if fitted else ""))
    off = f"off by {abs(ours - paper):.2g}"
    if fitted:
        return Verdict(CONTRADICTED, f"{off}, though the row was fitted to it")
    if falls and 0.1 <= ours / paper <= 10:
        return Verdict(SHAPE, f"{off}, but it falls from k = 50 to k = 200 and is within a factor of ten")
    way = "falls" if falls else "does not fall"
    return Verdict(NOT_REPRODUCIBLE, f"{off}; it {way} in k, which depends on the row and z of the paper's own meter")


def judge_indistinct(accuracy: float) -> Verdict:
    """Judge 'impossible to distinguish' by the best test there is."""
    said = "guessing is right in 50 %"
    if accuracy < INDISTINCT:
        return Verdict(REPRODUCED, said)
    return Verdict(SHAPE if accuracy < DISTINCT else CONTRADICTED, said)


def judge_distinct(accuracy: float, before: float) -> Verdict:
    """Judge 'relatively distinguishable': often right, or at least more often than `before`."""
    said = "guessing is right in 50 %"
    if accuracy >= DISTINCT:
        return Verdict(REPRODUCED, said)
    if accuracy > before:
        return Verdict(SHAPE, f"{said}; more than at the smaller k ({percent(before)}), but far from certain")
    return Verdict(CONTRADICTED, said)


def judge_private(errors: Mapping[str, float]) -> Verdict:
    """Judge 'these policies are differentially private' by whether the true matrix can be read back from them."""
    found = judge_statement(
        {f"{name} (matrix read back to {error:.0e})": not error <= RECOVERED for name, error in errors.items()}
    )
    return Verdict(found.word, found.reason if found.word == REPRODUCED else f"{found.reason} (E8)")


def judge_as_private(single: Mapping[float, float], attack: Mapping[float, float], ceiling: float) -> Verdict:
    """Judge 'the average of N draws is as private as one' by an attack that shows at most `ceiling`."""
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
    found = judge_statement(cases)
    reason = found.reason if found.word == REPRODUCED else f"{found.reason} (E9)"
    return Verdict(found.word, f"{reason}; {text}" if blind else reason)


def combine(readings: Sequence[Finding]) -> Verdict:
    """Judge a claim by all its readings: reproduced or contradicted only if every one of them is."""
    words = [finding.verdict.word for finding in readings]
    if len(set(words)) == 1:
        return readings[0].verdict if len(words) == 1 else Verdict(words[0], f"in all {len(words)} readings")
    return Verdict(SHAPE, "depends on the reading")


def percent(value: float, digits: int = 1, sign: bool = False) -> str:
    """Write a share in percent."""
    rounded = round(100 * value, digits) + 0.0  # no "-0"
    return f"{rounded:{'+' if sign else ''}.{digits}f} %"


def distance(value: float) -> str:
    """Write an L1 distance as the paper does, small ones by their order of magnitude."""
    return f"{value:.4f}" if value >= 1e-3 else f"{value:.0e}"


def rising(values: Sequence[float]) -> bool:
    """Whether a sequence never falls and ends above its beginning."""
    array = np.asarray(values)
    return bool((array[1:] >= array[:-1]).all() and array[-1] > array[0])


def falling(values: Sequence[float], errors: Sequence[float] | None = None) -> bool | None:
    """Whether a sequence falls; a rise, or the whole fall, within two standard errors does not count."""
    error = np.zeros(len(values)) if errors is None else np.asarray(errors)
    if (np.diff(values) > 2 * np.hypot(error[1:], error[:-1])).any():
        return False
    return differs(values[0] - values[-1], float(np.hypot(error[0], error[-1])))


# ------------------------------------------------------------------ without data
class RatioSearch(NamedTuple):
    """What Theorem 2 can give at the paper's two k: the largest ratio, and the pair nearest to the published one."""

    ratio: float
    nearest: tuple[float, float]
    settings: int


def search_ratio(omegas: Sequence[float] | None = None, rests: Sequence[float] | None = None) -> RatioSearch:
    """Search Theorem 2's parameters (ω, ω̄ and the size of W) for the published pair of ε."""
    low, high = sorted(PAPER_EPSILON)
    omegas = np.geomspace(0.005, 0.49, 14) if omegas is None else omegas  # type: ignore[assignment]
    rests = (0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8) if rests is None else rests
    found = []
    for size in (2, 3, 5):
        for omega in omegas:  # type: ignore[union-attr]
            for rest in rests:
                if size * omega <= 1 - rest and 1 - rest - omega > H / 2:
                    found.append([theorem2_epsilon(k, H, omega, rest, size, DELTA) for k in (low, high)])
    pairs = np.array(found)
    wanted = np.array([PAPER_EPSILON[low], PAPER_EPSILON[high]])
    nearest = pairs[np.argmin(np.abs(np.log(pairs / wanted)).max(axis=1))]
    return RatioSearch(float((pairs[:, 1] / pairs[:, 0]).max()), (float(nearest[0]), float(nearest[1])), len(pairs))


#: A row of three successors with one z, fitted so that it gives all six published L1 distances.
INSTANCE_ROW, INSTANCE_LOG_Z = (0.8224, 0.0222, 0.1555), (0.9854, 0.0, 2.2244)


def instance_l1() -> dict[tuple[str, float], float]:
    """L1 distances of the policies of the three-state row and its neighbour, for one step with that z."""
    row = np.array(INSTANCE_ROW) / sum(INSTANCE_ROW)
    utility = np.stack([np.zeros(3), INSTANCE_LOG_Z])
    pair = [EnsembleModel(np.tile(p, (3, 1)), np.arange(3.0), utility, 1.0) for p in (row, row + [0.0, -H / 2, H / 2])]
    methods = {"taylor": taylor_policy, "digamma": digamma_policy, "average-exact": _average_exact}
    return {(m, k): float(np.abs(f(pair[0], k) - f(pair[1], k))[0, 0].sum()) for m, f in methods.items() for k in KS}


def _average_exact(model: EnsembleModel, k: float) -> np.ndarray:
    return average_policy(model, k, "exact")


def theory_findings(search: RatioSearch) -> list[Finding]:
    """Judge what needs no data: the six distances on the three-state row, and the published pair of ε."""
    values = instance_l1()
    found = [l1_finding(method, k, values, fitted=True) for method, k in values]
    pair = dict(zip(sorted(PAPER_EPSILON), search.nearest, strict=True))
    return [epsilon_finding(pair, search, "nearest pair in the search: "), *found]


def l1_finding(method: str, k: float, values: Mapping[tuple[str, float], float], fitted: bool = False) -> Finding:
    """Judge one published L1 distance."""
    paper, value = PAPER_L1[method, k], values[method, k]
    return Finding(
        f"L1-{method}-{k:g}",
        f"L1 distance between the {NAMES[method]} policies of adjacent rows at k = {k:g}",
        "VI-2",
        f"{paper:.4f}",
        distance(value),
        judge_l1(paper, value, values[method, KS[1]] < values[method, KS[0]], fitted),
    )


def epsilon_finding(pair: Mapping[float, float], search: RatioSearch, prefix: str = "") -> Finding:
    """Judge the published pair of ε."""
    ours = prefix + ", ".join(f"{pair[k]:.2f} (k = {k:g})" for k in sorted(pair))
    return Finding(
        "epsilon-pair",
        "ε of one row by Theorem 2 at δ = 0.05, h = 0.03",
        "VI-1",
        "0.88 (k = 50), 5.45 (k = 200)",
        ours,
        judge_pair(PAPER_EPSILON, pair, 0.05, search.ratio),
    )


def _list(names: Sequence[str]) -> str:
    joiner = " and " if len(names) == 2 else "; "
    return joiner.join(names) if len(names) <= 4 else f"all {len(names)} cases"
