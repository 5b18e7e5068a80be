"""Tables of the documentation: the page shows the record, the record reaches its bars, and a row comes out again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import mean

import numpy as np
import pytest
import tables

from dp_ensemble_env import scenarios
from dp_ensemble_env.experiments.runner import Supplies, compute

LEARNING, PRIVACY = (tables.STUDIES[name].rows() for name in ("learning", "privacy"))


@pytest.mark.parametrize("name", tables.STUDIES)
def test_the_page_shows_what_was_recorded(name: str) -> None:
    study = tables.STUDIES[name]
    page, rows = study.page.read_text(encoding="utf-8"), study.rows()
    for title, made in study.tables.items():
        assert f"{tables.BEGIN.format(title)}\n{made(rows)}\n{tables.END.format(title)}" in page
    assert {tables.same(row.cell) for row in rows} <= {tables.same(cell) for cell in study.cells()}


@pytest.mark.parametrize("name", [name for name in scenarios.BUILT_IN if name not in ("front", "depot")])
def test_ppo_at_its_defaults_learns_every_scenario(name: str) -> None:
    """Front needs a memory that PPO does not have, and depot is judged by the ceiling of the blind."""
    one = [row for row in LEARNING if row.cell.data == name and row.cell.agent == "ppo" and row.cell.training == 1]
    scores = [tables.trained(row) for row in one]
    assert np.mean(scores) >= 87 and min(scores) >= 80 and min(min(row.scores) for row in one) > 0
    for row in one:  # no setting but one environment: everything else is the library's default
        assert set(row.cell.settings["hyperparams"]) == {"n_envs", "n_timesteps"}


def test_a_release_is_worth_more_than_no_data_and_reaches_its_bar() -> None:
    bars = dict(zip(tables.SCENARIOS, (98.5, 98.5, 98, 99, 99.5, 99.5, 99.5, 99, 95.5, 97), strict=False))
    scores, beside = defaultdict(list), defaultdict(list)
    for row in PRIVACY:
        if row.cell.agent == "standard":
            key = row.cell.data, row.cell.privacy, str(row.cell.problem["overrides"])
            scores[key] += row.scores
            beside[key] += row.without_data
    for key, found in scores.items():
        assert mean(found) > mean(beside[key]) - 0.1, key
    for name, bar in bars.items():
        found = scores[name, "adaptive:epsilon=1,participants=1000", "{}"]
        assert len(found) == 40 and mean(found) >= bar, name


def test_a_row_comes_out_again() -> None:
    wanted = "adaptive:epsilon=4,participants=300"
    row = next(one for one in PRIVACY if (one.cell.data, one.cell.privacy) == ("call", wanted))
    again = compute(replace(row.cell, instances=row.cell.instances[:1]), Supplies())
    assert again.error is None and again.scores == pytest.approx(row.scores[:1], abs=1e-3)
