"""The verdicts on all claims: gathered over data sets, counted, and printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dp_ensemble_env.paper.claims import (
    CONTRADICTED,
    NOT_REPRODUCIBLE,
    REPRODUCED,
    SHAPE,
    VERDICTS,
    Finding,
    Verdict,
    combine,
)
from dp_ensemble_env.reporting.tables import Styled, show_table

MARKS = {REPRODUCED: "✓", SHAPE: "≈", NOT_REPRODUCIBLE: "∅", CONTRADICTED: "✗"}
COLOURS = {"✓": "bold green", "≈": "bold cyan", "∅": "bold yellow", "✗": "bold red"}
CLAIM_HEADINGS = (
    "id",
    "group",
    "claim",
    "reading",
    "place",
    "paper",
    "data",
    "ours",
    "verdict",
    "reason",
    "verdict on the claim",
)


def claim_rows(findings: dict[str, list[Finding]]) -> list[tuple[str, ...]]:
    """Return every reading of every claim on every data set, one line each."""
    rows: list[tuple[str, ...]] = []
    for data, found in findings.items():
        whole = {claim: combine(readings).word for claim, readings in by_claim(found).items()}
        rows += [
            (
                f.id,
                "set-up" if f.set_up else "claim",
                *(f.claim, f.reading, f.place, f.paper, data, f.ours),
                *(f.verdict.word, f.verdict.reason, whole[f.claim]),
            )
            for f in found
        ]
    return rows


def by_claim(found: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Gather the readings of each claim, in order."""
    gathered: dict[str, list[Finding]] = {}
    for finding in found:
        gathered.setdefault(finding.claim, []).append(finding)
    return gathered


@dataclass(frozen=True)
class Claim:
    """One claim with its readings on every data set that speaks to it."""

    claim: str
    place: str
    paper: str
    set_up: bool
    readings: dict[str, list[Finding]]

    def verdict(self, data: str) -> Verdict:
        """Return the verdict on one data set."""
        return combine(self.readings[data])


def all_claims(findings: dict[str, list[Finding]]) -> list[Claim]:
    """Gather the findings of all data sets under each claim, in the order of the fullest list."""
    gathered = {data: by_claim(found) for data, found in findings.items()}
    order: dict[str, Finding] = {}
    for found in sorted(findings.values(), key=len, reverse=True):
        for finding in found:
            order.setdefault(finding.claim, finding)
    claims = []
    for f in order.values():
        readings = {data: mine[f.claim] for data, mine in gathered.items() if f.claim in mine}
        claims.append(Claim(f.claim, f.place, f.paper, f.set_up, readings))
    return claims


def counts(found: Sequence[Finding], set_up: bool = False) -> dict[str, int]:
    """Count the verdicts; a claim with several readings counts once."""
    words = [combine(r).word for r in by_claim([f for f in found if f.set_up == set_up]).values()]
    return {word: words.count(word) for word in VERDICTS if word in words}


def tally(found: Sequence[Finding]) -> str:
    """Say the counts in words, the set-up apart."""
    text = ", ".join(f"{number} {word}" for word, number in counts(found).items())
    facts = counts(found, set_up=True)
    if not facts:
        return text
    return f"{text}; of {sum(facts.values())} facts of the set-up {facts.get(VERDICTS[0], 0)} are the paper's"


# ------------------------------------------------------------------ terminal
def show_findings(findings: dict[str, list[Finding]]) -> None:
    """Print a line for each claim and each reading of it, with a narrow column of verdicts for each data set."""
    letters = dict(zip(findings, "ABCD", strict=False))
    claims = all_claims(findings)
    rows: list[tuple[str, ...]] = []
    for claim in (claim for claim in claims if not claim.set_up):
        rows.append((claim.claim, claim.paper, *_marks(findings, _words(claim))))
        readings: dict[str, dict[str, str]] = {}
        titles: dict[str, str] = {}
        for data, found in claim.readings.items():
            for finding in found:
                readings.setdefault(finding.id, {})[data] = finding.verdict.word
                titles[finding.id] = finding.reading
        if len(readings) > 1:
            for name, words in readings.items():
                rows.append((Styled(f"  · {titles[name]}", "dim"), "", *_marks(findings, words)))
    rows.append(())
    for claim in (claim for claim in claims if claim.set_up):
        rows.append((f"set-up: {claim.claim}", claim.paper, *_marks(findings, _words(claim))))
    notes = [
        ", ".join(f"{mark} {word}" for word, mark in MARKS.items()) + ".",
        "A claim with several readings (·) counts once.",
        *(f"{letters[data]}: {data}, {tally(found)}." for data, found in findings.items()),
    ]
    headings = ("claim", "paper", *letters.values())
    show_table("Claims of Section VI", headings, rows, left=headings, notes=notes)


def _words(claim: Claim) -> dict[str, str]:
    return {data: claim.verdict(data).word for data in claim.readings}


def _marks(findings: dict[str, list[Finding]], words: dict[str, str]) -> list[str]:
    marks = [MARKS[words[data]] if data in words else "" for data in findings]
    return [Styled(mark, COLOURS[mark]) if mark else "" for mark in marks]
