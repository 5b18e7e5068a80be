"""What a claim of the paper is, how it is judged, and how the verdicts are counted and shown.

A verdict is one of four words, given by the judges below and by nothing else; ``page.toml`` says what they mean. A
claim that can be read in several ways has one line for each reading and counts once (`combine`). Facts of the paper's
set-up are judged too but are not counted among its claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dp_ensemble_env.paper.data import THEORY
from dp_ensemble_env.tools.console import table

REPRODUCED, SHAPE = "reproduced", "reproduced in shape"
NOT_REPRODUCIBLE, CONTRADICTED = "not reproducible", "contradicted"
VERDICTS = REPRODUCED, SHAPE, NOT_REPRODUCIBLE, CONTRADICTED
MARKS = dict(zip(VERDICTS, "✓≈∅✗", strict=True))
_COLOURS = {"✓": "bold green", "≈": "bold cyan", "∅": "bold yellow", "✗": "bold red"}

# Thresholds, stated on the page.
L1_TOLERANCE = 1e-4  # of a published L1 distance
SIMILAR_L1 = 0.1  # policies of adjacent rows are similar: at most 5 % of the probability moves
SLIGHTLY = 0.10  # "slightly less" capacity, "similar" capacity
SLIGHTLY_DEARER = 0.25  # "slightly more expensive"
ABOUT_15 = (0.10, 0.20)  # "about 15 % less"
INDISTINCT, DISTINCT = 0.6, 0.75  # accuracy of the best test; 0.5 is guessing
RECOVERED = 1e-9  # largest error of a matrix that counts as read back


class Verdict(NamedTuple):
    """A verdict with its reason."""

    word: str
    reason: str

    def plus(self, remark: str) -> Verdict:
        """Return the same with something added to the reason."""
        return Verdict(self.word, self.reason + remark)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, or one reading of it."""

    id: str
    #: Where the paper says it, what it says, and its number or word.
    section: str
    words: str
    paper: str
    #: Says in words what was measured in a study, and judges it; of a `theory` claim it takes the search of Theorem 2
    #: as well, and None for the study of no data.
    judge: Callable[..., tuple[str, Verdict]]
    #: How a claim with several readings is understood here.
    reading: str = ""
    #: Whether it needs a row, is also judged without data, and is a fact of the set-up.
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


def judge_setting(ours: Any, paper: Any, why: str, tolerance: float = 0.0) -> Verdict:
    """Judge a fact of the paper's own data or set-up, which other data need not share."""
    if ours == paper or (tolerance and abs(ours - paper) <= tolerance):
        return Verdict(REPRODUCED, f"within {tolerance:g}" if tolerance else "the same")
    return Verdict(NOT_REPRODUCIBLE, why)


def judge_within(
    values: Mapping[str, float],
    low: float,
    high: float,
    words: str,
    sign: float = 1,
    errors: Mapping[str, float] | None = None,
) -> Verdict:
    """Judge 'about so much': all values in [low, high]; else by how many have the sign beyond two standard errors."""
    signs = {name: differs(value * sign, (errors or {}).get(name, 0.0)) for name, value in values.items()}
    span = f"between {percent(low, 0)} and {percent(high, 0)}"
    if all(signs.values()):
        if all(low <= value <= high for value in values.values()):
            return Verdict(REPRODUCED, f"all {span}")
        return Verdict(SHAPE, f"{words}, but not all {span}")
    word, reason = judge_statement(signs)
    return Verdict(word, f"'{words}' {'is ' if set(signs.values()) == {None} else ''}{reason}")


def judge_pair(pair: Mapping[float, float], paper: Mapping[float, float], most: float, tolerance: float) -> Verdict:
    """Judge two ε: near both; else impossible, if the largest ratio there is falls short of theirs; else by order."""
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


def judge_successors(state: int, successors: Sequence[int], likeliest: Sequence[int]) -> Verdict:
    """Judge 'the successors are the state and its two neighbours' by the successors and the three most likely."""
    three = (state - 1, state, state + 1)
    if tuple(successors) == three:
        return Verdict(REPRODUCED, "the same three")
    if tuple(likeliest) == three:
        return Verdict(SHAPE, "the three most likely ones are these")
    return Verdict(NOT_REPRODUCIBLE, "a fact of the paper's meter; here the three most likely ones are others")


def judge_l1(value: float, paper: float, falls: bool, fitted: bool) -> Verdict:
    """Judge an L1 distance, which falls in k or does not; a miss contradicts if the row was fitted to it."""
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


def judge_distinct(accuracy: float, before: float) -> Verdict:
    """Judge 'relatively distinguishable': often right, or at least more often than at the smaller k."""
    said = "guessing is right in 50 %"
    if accuracy < DISTINCT and accuracy > before:
        return Verdict(SHAPE, f"{said}; more than at the smaller k ({percent(before)}), but far from certain")
    return Verdict(REPRODUCED if accuracy >= DISTINCT else CONTRADICTED, said)


def judge_private(errors: Mapping[str, float]) -> Verdict:
    """Judge 'these policies are differentially private' by whether the true matrix can be read back from them."""
    cases = {f"{name} (matrix read back to {error:.0e})": not error <= RECOVERED for name, error in errors.items()}
    return judge_statement(cases, "E8")


def judge_as_private(single: Mapping[float, float], attack: Mapping[float, float], ceiling: float) -> Verdict:
    """Judge 'the average of N draws is as private as one' by an attack, and the most that it can show."""
    cases: dict[str, bool | None] = {}
    blind = []
    for k, one in single.items():
        if one >= ceiling:
            blind.append(f"k = {k:g}")
        else:
            shown = f"at least {attack[k]:.3g}, not {one:.3g}" if attack[k] > one else f"shown {attack[k]:.3g}"
            cases[f"k = {k:g} (ε {shown})"] = attack[k] <= one
    text = f"the attack cannot tell at {' and '.join(blind)}: one draw's ε is above its limit" if blind else ""
    if not cases:
        return Verdict(NOT_REPRODUCIBLE, text)
    return judge_statement(cases, "E9").plus(f"; {text}" if blind else "")


def combine(readings: Sequence[Finding]) -> Verdict:
    """Judge a claim by all its readings: reproduced or contradicted only if every one of them is."""
    words = [finding.verdict.word for finding in readings]
    if len(set(words)) == 1:
        return readings[0].verdict if len(words) == 1 else Verdict(words[0], f"in all {len(words)} readings")
    return Verdict(SHAPE, "depends on the reading")


# ------------------------------------------------------------------ small tests and words
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


# ------------------------------------------------------------------ over data sets
CLAIM_HEADINGS = (
    *("id", "group", "claim", "reading", "place", "paper", "data", "ours", "verdict", "reason"),
    "verdict on the claim",
)


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
    return f"{text}; {facts.get(REPRODUCED, 0)} of {sum(facts.values())} facts of the set-up match the paper"


def show_findings(findings: Mapping[str, Sequence[Finding]]) -> None:
    """Print a line for each claim, with a narrow column of verdicts for each data set; the page has every reading."""
    from rich.text import Text

    letters = dict(zip((data for data in findings if data != THEORY), "ABCD", strict=False))
    rows: list[list[str | Text]] = []
    for words, by_data in gather(findings).items():
        if not set_up(by_data):
            marks = [MARKS[combine(by_data[data]).word] if data in by_data else "" for data in letters]
            paper = next(iter(by_data.values()))[0].claim.paper
            rows.append([words, paper, *(Text(mark, _COLOURS.get(mark, "")) for mark in marks)])
    notes = [
        ", ".join(f"{mark} {word}" for word, mark in MARKS.items()) + ".",
        ", ".join(f"{letter}: {data}" for data, letter in letters.items()) + ".",
        f"{tally(findings)}.",
    ]
    table("Claims of Section VI", ("claim", "paper", *letters.values()), rows, notes=notes)
