"""Scores over the instances of a split."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, evaluate_split, make_agent
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel


@pytest.fixture
def levels() -> Iterator[str]:
    """Two levels; the higher the instance seed, the further the upper one is worth avoiding."""

    def factory(seed: int) -> EnsembleModel:
        worth = 5.0 + seed % 1_000_000 + seed // 1_000_000
        return EnsembleModel([[0.8, 0.2], [0.3, 0.7]], [1.0, 2.0], -worth * np.array([[0.0, 1.0]] * 5), 3.0)

    scenarios.register("levels", factory, scenarios.Card("Levels", "Two levels."))
    yield "levels"
    scenarios.remove("levels")


def test_a_planner_is_optimal_everywhere_and_a_plan_only_at_home(levels: str) -> None:
    planner = evaluate_split("standard", levels, instances=3)
    np.testing.assert_allclose([planner.scores, planner.training], 100.0)
    home = EnsembleEnv(levels, instance=1)
    plan = make_agent("standard", home)
    outcome = evaluate_split(plan, levels, instances=3)
    assert outcome.training.shape == (1, 3) and outcome.training[0, 1] == pytest.approx(100.0)
    assert outcome.training[0, 1] == evaluate(plan, home).score
    by_hand = evaluate(plan, EnsembleEnv(scenarios.make(levels, instance=2, split="test"))).score
    assert outcome.scores[0, 2] == by_hand < 100.0
    assert outcome.gap.value == pytest.approx(outcome.training.mean() - outcome.scores.mean(), abs=1.0)
    alone = evaluate_split("uncontrolled", levels, "train", instances=2)
    assert alone.training is None and alone.gap is None
    np.testing.assert_allclose(alone.scores, [[0.0, 0.0]], atol=1e-9)


def test_wrong_arguments_are_refused(levels: str) -> None:
    for wrong, words in (
        (("standard", "spto"), "did you mean 'spot'"),
        (("standard", levels, "tset"), "did you mean 'test'"),
        ((3, levels), "agent must be"),
    ):
        with pytest.raises(ValueError, match=words):
            evaluate_split(*wrong, instances=1)
    with pytest.raises(ValueError, match="instances must"):
        evaluate_split("standard", levels, instances=21)
