"""The judges, and that a claim with several readings counts once."""

from __future__ import annotations

import pytest

from dp_ensemble_env.paper.verdicts import (
    CONTRADICTED,
    NOT_REPRODUCIBLE,
    REPRODUCED,
    SHAPE,
    Claim,
    Finding,
    Verdict,
    combine,
    counts,
    differs,
    falling,
    judge_as_private,
    judge_distinct,
    judge_indistinct,
    judge_l1,
    judge_pair,
    judge_private,
    judge_setting,
    judge_statement,
    judge_successors,
    judge_within,
    tally,
)

VERDICT_CASES = [
    (judge_l1(0.05009, 0.05, False, False), REPRODUCED),
    (judge_l1(0.01, 0.05, True, False), SHAPE),
    (judge_l1(0.01, 0.05, False, False), NOT_REPRODUCIBLE),
    (judge_l1(0.001, 0.05, True, False), NOT_REPRODUCIBLE),
    (judge_l1(0.05009, 0.05, False, True), REPRODUCED),
    (judge_l1(0.0502, 0.05, True, True), CONTRADICTED),
    (judge_statement({"a": True, "b": True}), REPRODUCED),
    (judge_statement({"a": True, "b": False}), SHAPE),
    (judge_statement({"a": False}), CONTRADICTED),
    (judge_statement({"a": True, "b": None}), SHAPE),
    (judge_statement({"a": False, "b": None}), CONTRADICTED),
    (judge_statement({"a": None}), SHAPE),
    (judge_setting(20.1, 20, "why", 0.2), REPRODUCED),
    (judge_setting(19, 20, "why"), NOT_REPRODUCIBLE),
    (judge_within({"a": 0.12, "b": 0.18}, 0.1, 0.2, "w"), REPRODUCED),
    (judge_within({"a": 0.12, "b": 0.02}, 0.1, 0.2, "w"), SHAPE),
    (judge_within({"a": 0.12, "b": -0.01}, 0.1, 0.2, "w"), SHAPE),
    (judge_within({"a": -0.12, "b": -0.01}, 0.1, 0.2, "w"), CONTRADICTED),
    (judge_within({"a": 0.12}, -0.2, -0.1, "w", -1), CONTRADICTED),
    (judge_within({"a": 0.15, "b": 0.15}, 0.1, 0.2, "w", errors={"a": 0.02, "b": 0.02}), REPRODUCED),
    (judge_within({"a": 0.15, "b": 0.15}, 0.1, 0.2, "w", errors={"a": 0.02, "b": 0.08}), SHAPE),
    (judge_within({"a": -0.15}, 0.1, 0.2, "w", errors={"a": 0.08}), SHAPE),
    (judge_within({"a": -0.15}, 0.1, 0.2, "w", errors={"a": 0.07}), CONTRADICTED),
    (judge_pair({50: 1.01, 200: 3.02}, {50: 1.0, 200: 3.0}, 4, 0.05), REPRODUCED),
    (judge_pair({50: 2.0, 200: 7.0}, {50: 1.0, 200: 3.0}, 4, 0.05), SHAPE),
    (judge_pair({50: 2.0, 200: 1.0}, {50: 1.0, 200: 3.0}, 4, 0.05), CONTRADICTED),
    (judge_pair({50: 2.0, 200: 7.0}, {50: 1.0, 200: 5.0}, 4, 0.05), NOT_REPRODUCIBLE),
    (judge_successors(17, (16, 17, 18), (16, 17, 18)), REPRODUCED),
    (judge_successors(17, (16, 17, 18, 19), (16, 17, 18)), SHAPE),
    (judge_successors(17, (1, 17, 18), (1, 17, 18)), NOT_REPRODUCIBLE),
    (judge_indistinct(0.55), REPRODUCED),
    (judge_indistinct(0.7), SHAPE),
    (judge_indistinct(0.9), CONTRADICTED),
    (judge_distinct(0.8, 0.6), REPRODUCED),
    (judge_distinct(0.65, 0.6), SHAPE),
    (judge_distinct(0.55, 0.6), CONTRADICTED),
    (judge_private({"taylor": 1e-14, "digamma": 1e-14}), CONTRADICTED),
    (judge_private({"taylor": 1e-14, "digamma": 0.2}), SHAPE),
    (judge_private({"taylor": 0.1, "digamma": 0.2}), REPRODUCED),
    (judge_as_private({50: 0.3}, {50: 94.0}, 99.0), CONTRADICTED),
    (judge_as_private({50: 0.3}, {50: 0.3}, 4.5), REPRODUCED),
    (judge_as_private({50: 4.5}, {50: 4.4}, 4.5), NOT_REPRODUCIBLE),
    (judge_as_private({50: 0.3, 200: 5.0}, {50: 4.0, 200: 4.4}, 4.5), CONTRADICTED),
]


@pytest.mark.parametrize(("verdict", "word"), VERDICT_CASES)
def test_verdict_functions(verdict, word):
    assert verdict.word == word and verdict.reason


def test_undecided_says_why_and_a_fall_needs_more_than_two_standard_errors():
    assert "sampling error" in judge_statement({"a": None}).reason
    assert "sampling error" in judge_within({"a": -0.1}, 0.1, 0.2, "w", errors={"a": 0.08}).reason
    assert "cannot tell at k = 200" in judge_as_private({50: 0.3, 200: 5.0}, {50: 4.0, 200: 4.4}, 4.5).reason
    assert (differs(1.0, 0.0), differs(-1.0, 0.4), differs(1.0, 0.5), differs(0.0, 0.0)) == (True, False, None, False)
    assert falling([3.0, 2.0, 1.0]) and falling([1.0, 2.0]) is False and falling([1.0, 1.0]) is False
    assert falling([3.0, 1.0, 1.1], [0.1, 0.1, 0.1])  # the rise is within two standard errors
    assert falling([3.0, 1.0, 1.1], [0.0, 0.01, 0.01]) is False
    assert falling([1.1, 1.0], [0.1, 0.1]) is None


def test_a_claim_with_readings_counts_once():
    def finding(claim, word, **more):
        line = Claim(claim, "VI", claim, "p", print, **more)
        return Finding(line, "o", Verdict(word, "r"))

    mixed = [finding("a", REPRODUCED), finding("a", CONTRADICTED)]
    assert combine(mixed) == (SHAPE, "depends on the reading")
    assert combine([finding("a", CONTRADICTED)] * 2).word == CONTRADICTED
    assert combine([finding("a", NOT_REPRODUCIBLE)]) == (NOT_REPRODUCIBLE, "r")
    fact = finding("c", REPRODUCED, set_up=True)
    everything = {"campus": [*mixed, finding("b", REPRODUCED), fact], "meter": [finding("b", REPRODUCED), fact]}
    everything["without data"] = [finding("b", CONTRADICTED), finding("d", NOT_REPRODUCIBLE)]
    assert counts(everything) == {REPRODUCED: 1, SHAPE: 1, NOT_REPRODUCIBLE: 1}
    assert counts(everything, facts=True) == {REPRODUCED: 1}
    assert tally(everything).startswith("3 claims: 1 reproduced, 1 reproduced in shape, 1 not reproducible; of 1")
