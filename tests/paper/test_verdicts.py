"""The judges, and that a claim with several readings counts once."""

from __future__ import annotations

import pytest

from dp_ensemble_env.paper import verdicts as v

VERDICT_CASES = [
    (v.judge_l1(0.05009, 0.05, False, False), v.REPRODUCED),
    (v.judge_l1(0.01, 0.05, True, False), v.SHAPE),
    (v.judge_l1(0.01, 0.05, False, False), v.NOT_REPRODUCIBLE),
    (v.judge_l1(0.001, 0.05, True, False), v.NOT_REPRODUCIBLE),
    (v.judge_l1(0.0502, 0.05, True, True), v.CONTRADICTED),
    (v.judge_statement({"a": True, "b": False}), v.SHAPE),
    (v.judge_statement({"a": False}), v.CONTRADICTED),
    (v.judge_statement({"a": True, "b": None}), v.SHAPE),
    (v.judge_statement({"a": False, "b": None}), v.CONTRADICTED),
    (v.judge_statement({"a": None}), v.SHAPE),
    (v.judge_setting(20.1, 20, "why", 0.2), v.REPRODUCED),
    (v.judge_setting(19, 20, "why"), v.NOT_REPRODUCIBLE),
    (v.judge_within({"a": 0.12, "b": 0.02}, 0.1, 0.2, "w"), v.SHAPE),
    (v.judge_within({"a": 0.12, "b": -0.01}, 0.1, 0.2, "w"), v.SHAPE),
    (v.judge_within({"a": -0.12, "b": -0.01}, 0.1, 0.2, "w"), v.CONTRADICTED),
    (v.judge_within({"a": 0.15, "b": 0.15}, 0.1, 0.2, "w", errors={"a": 0.02, "b": 0.02}), v.REPRODUCED),
    (v.judge_within({"a": 0.15, "b": 0.15}, 0.1, 0.2, "w", errors={"a": 0.02, "b": 0.08}), v.SHAPE),
    (v.judge_within({"a": -0.15}, 0.1, 0.2, "w", errors={"a": 0.08}), v.SHAPE),
    (v.judge_within({"a": -0.15}, 0.1, 0.2, "w", errors={"a": 0.07}), v.CONTRADICTED),
    (v.judge_pair({50: 1.01, 200: 3.02}, {50: 1.0, 200: 3.0}, 4, 0.05), v.REPRODUCED),
    (v.judge_pair({50: 2.0, 200: 7.0}, {50: 1.0, 200: 3.0}, 4, 0.05), v.SHAPE),
    (v.judge_pair({50: 2.0, 200: 7.0}, {50: 1.0, 200: 5.0}, 4, 0.05), v.NOT_REPRODUCIBLE),
    (v.judge_successors(17, (16, 17, 18, 19), (16, 17, 18)), v.SHAPE),
    (v.judge_successors(17, (1, 17, 18), (1, 17, 18)), v.NOT_REPRODUCIBLE),
    (v.judge_indistinct(0.7), v.SHAPE),
    (v.judge_indistinct(0.9), v.CONTRADICTED),
    (v.judge_distinct(0.65, 0.6), v.SHAPE),
    (v.judge_distinct(0.55, 0.6), v.CONTRADICTED),
    (v.judge_private({"taylor": 1e-14, "digamma": 0.2}), v.SHAPE),
    (v.judge_as_private({50: 4.5}, {50: 4.4}, 4.5), v.NOT_REPRODUCIBLE),
    (v.judge_as_private({50: 0.3, 200: 5.0}, {50: 4.0, 200: 4.4}, 4.5), v.CONTRADICTED),
]


@pytest.mark.parametrize(("verdict", "word"), VERDICT_CASES)
def test_verdict_functions(verdict, word):
    assert verdict.word == word and verdict.reason


def test_undecided_says_why_and_a_fall_needs_more_than_two_standard_errors():
    assert "sampling error" in v.judge_statement({"a": None}).reason
    assert "sampling error" in v.judge_within({"a": -0.1}, 0.1, 0.2, "w", errors={"a": 0.08}).reason
    assert "cannot tell at k = 200" in v.judge_as_private({50: 0.3, 200: 5.0}, {50: 4.0, 200: 4.4}, 4.5).reason
    differences = [v.differs(*one) for one in ((1.0, 0.0), (-1.0, 0.4), (1.0, 0.5), (0.0, 0.0))]
    assert differences == [True, False, None, False]
    assert v.falling([3.0, 2.0, 1.0]) and v.falling([1.0, 2.0]) is False and v.falling([1.0, 1.0]) is False
    assert v.falling([3.0, 1.0, 1.1], [0.1, 0.1, 0.1])  # the rise is within two standard errors
    assert v.falling([3.0, 1.0, 1.1], [0.0, 0.01, 0.01]) is False
    assert v.falling([1.1, 1.0], [0.1, 0.1]) is None


def test_a_claim_with_readings_counts_once():
    def finding(claim, word, **more):
        return v.Finding(v.Claim(claim, "VI", claim, "p", print, **more), "o", v.Verdict(word, "r"))

    mixed = [finding("a", v.REPRODUCED), finding("a", v.CONTRADICTED)]
    assert v.combine(mixed) == (v.SHAPE, "depends on the reading")
    assert v.combine([finding("a", v.CONTRADICTED)] * 2).word == v.CONTRADICTED
    assert v.combine([finding("a", v.NOT_REPRODUCIBLE)]) == (v.NOT_REPRODUCIBLE, "r")
    fact = finding("c", v.REPRODUCED, set_up=True)
    everything = {"campus": [*mixed, finding("b", v.REPRODUCED), fact], "meter": [finding("b", v.REPRODUCED), fact]}
    everything["without data"] = [finding("b", v.CONTRADICTED), finding("d", v.NOT_REPRODUCIBLE)]
    assert v.counts(everything) == {v.REPRODUCED: 1, v.SHAPE: 1, v.NOT_REPRODUCIBLE: 1}
    assert v.counts(everything, facts=True) == {v.REPRODUCED: 1}
    assert v.tally(everything).startswith("3 claims: 1 reproduced, 1 reproduced in shape, 1 not reproducible; ")
