"""The tables of the privacy page: what was recorded reaches its bars, is on the page, and comes out again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import mean

import privacy_table as script
import pytest

from dp_ensemble_env.experiments.runner import Supplies, compute, read_results


@pytest.fixture(scope="module")
def rows():
    return read_results(script.RECORD)[1]


def test_the_page_shows_what_was_recorded(rows):
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.table(rows) in page and script.learned(rows) in page


def test_a_release_is_worth_more_than_no_data_and_reaches_its_bar(rows):
    bars = dict(zip(script.SCENARIOS, (98.5, 98.5, 98, 99, 99.5, 99.5, 99.5, 99, 95.5, 97), strict=False))
    scores, beside = defaultdict(list), defaultdict(list)
    for row in rows:
        if row.cell.agent == "standard":
            key = row.cell.data, row.cell.privacy, str(row.cell.problem["overrides"])
            scores[key] += row.scores
            beside[key] += row.without_data
    for key, found in scores.items():
        assert mean(found) > mean(beside[key]) - 0.1, key
    for name, bar in bars.items():
        found = scores[name, "adaptive:epsilon=1,participants=1000", "{}"]
        assert len(found) == 40 and mean(found) >= bar, name


def test_a_row_comes_out_again(rows):
    wanted = "adaptive:epsilon=4,participants=300"
    row = next(one for one in rows if (one.cell.data, one.cell.privacy) == ("call", wanted))
    again = compute(replace(row.cell, instances=row.cell.instances[:2]), Supplies())
    assert again.error is None and again.scores == pytest.approx(row.scores[:2], abs=1e-3)
