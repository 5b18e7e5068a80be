"""Rows become tables by their formulas: interquartile means, profiles, chances, groups; and CSV."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp_ensemble_env.experiments.runner import Cell, Row, read_outcome
from dp_ensemble_env.experiments.standings import THRESHOLDS, Standings, tables, takeaways

SPEC = "dirichlet:k=50,floor=0.05"


def row(agent: str, data: str, scores: list[float], seed: int = 0, epsilon: float = math.inf, **cell) -> Row:
    """Make up a row; the plan without data scores 85 everywhere."""
    made = Cell(problem={"scenario": data}, agent=agent, data=data, instances=tuple(range(len(scores))), seed=seed,
                version="0", **cell)  # fmt: skip
    outcomes = tuple(read_outcome({"score": score, "score_error": 0.0, "exact": True}) for score in scores)
    used = {"steps": 10 if made.steps else None, "cpu_seconds": 1.0}
    return Row(cell=made, deployed=outcomes, without_data=(85.0,) * len(scores), epsilon=epsilon, compute=used,
               made=outcomes if made.privacy else ())  # fmt: skip


@pytest.fixture
def rows() -> list[Row]:
    found = [row("good", data, scores, seed)
             for data, runs in {"a": [[80.0, 90.0], [90.0, 100.0]], "b": [[96.0], [98.0]]}.items()
             for seed, scores in enumerate(runs)]  # fmt: skip
    found += [row("partial", "a", [100.0, 100.0])]
    found += [row("without-data", data, [85.0, 85.0] if data == "a" else [97.0], epsilon=0.0) for data in "ab"]
    found += [row("good", "a", [86.0, 86.0], epsilon=12.34, privacy=SPEC)]
    found += [row("good", "b", [99.0], epsilon=20.0, privacy=SPEC)]
    found += [row("ppo", data, [70.0, 72.0] if data == "a" else [75.0], steps=500, training=20, action="price")
              for data in "ab"]  # fmt: skip
    return found


def test_agents_are_grouped_by_what_they_knew_and_every_score_has_its_price(rows):
    headings, lines = tables(Standings(rows))["overall"]
    assert headings[:5] == ["knew", "agent", "score", "without data", "ε"]
    assert [line[:2] for line in lines] == [
        ["the truth", "good"], ["", "partial (1 of 2)"], ["a release", "good, k=50, floor=0.05"],
        ["other instances", "ppo, price"], ["nothing", "without-data"],
    ]  # fmt: skip
    assert [line[4] for line in lines] == ["∞", "∞", "20", "∞", "0"] and {line[3] for line in lines} == {"85.0"}
    # Of 80, 90, 90, 96, 98, 100 the lowest and the highest quarter (one each, rounded down) are left out.
    assert lines[0][2].startswith(f"{np.mean([90, 90, 96, 98]):.1f} [") and lines[0][5:] == ["2", "–", "4"]
    assert lines[3][5:] == ["1", "20", "2"]


def test_profiles_and_chances_are_their_formulas(rows):
    found = tables(Standings(rows))
    shares = dict(zip(THRESHOLDS, found["profiles"][1][0][1:], strict=True))
    assert shares[75] == "100" and shares[90] == "50" and shares[97] == "33"  # above, not at
    chance = (0.5 + 1.0 + 0.5) / 3  # 80, 90 against 85; 90, 100 against 85; 96, 98 against 97
    assert found["improvement"][1][0][1].startswith(f"{100 * chance:.0f} %")
    assert found["improvement"][1][-1][1:] == ["–", "–"]


def test_releases_stand_beside_the_plan_without_data_problem_by_problem(rows):
    found = tables(Standings(rows))
    assert found["releases"][1] == [
        ["good, k=50, floor=0.05", "a", "86.0", "85.0", "12.3", "86.0"],
        ["good, k=50, floor=0.05", "b", "99.0", "85.0", "20", "99.0"],
    ]
    headings, lines = found["problems"]
    assert headings[:3] == ["problem", "without data", "good"] and lines[1][:4] == ["b", "85.0", "97.0", "–"]
    said = takeaways(Standings(rows))
    assert said[0].startswith("good leads with a score of 93.5") and "85.0" in said[1]
    assert "(ε = 20)" in said[2] and "in 2 of 2 problems" in said[2]
    assert "releases" not in tables(Standings(rows[:6])) and len(takeaways(Standings(rows[:6]))) == 2


def test_lines_are_told_apart_by_what_differs():
    several = [row("standard", "a", [1.0], action=action) for action in ("tilt", "policy")]
    several += [row("best-price", "a", [1.0], population=100), row("best-price", "a", [2.0]), row("myopic", "a", [3.0])]
    assert set(Standings(several).agents) == {
        "standard, tilt", "standard, policy", "best-price, 100", "best-price, mean-field", "myopic"
    }  # fmt: skip
    with pytest.raises(ValueError, match="no finished rows"):
        Standings([])
