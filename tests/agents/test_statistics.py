"""Interquartile means, bootstrap intervals and what is built on them, against the formulas of rliable."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dp_ensemble_env.agents.statistics import (
    difference,
    interquartile_mean,
    interval,
    performance_profile,
    probability_of_improvement,
    resampled,
)


def rliable_draws(scores: np.ndarray, count: int, seed: int) -> np.ndarray:
    """`StratifiedBootstrap.update_indices` with ``task_bootstrap`` and `aggregate_iqm`, as rliable writes them."""
    rng = np.random.RandomState(seed)
    found = []
    for _ in range(count):
        rows = rng.choice(scores.shape[0], scores.shape, replace=True)
        tasks = rng.choice(scores.shape[1], (1, scores.shape[1]), replace=True)
        found.append(stats.trim_mean(scores[rows, tasks], proportiontocut=0.25, axis=None))
    return np.array(found)


def test_the_interquartile_mean_leaves_out_the_outer_quarters() -> None:
    assert interquartile_mean([-1000.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 900.0]) == 3.5  # of 2, 3, 4, 5
    assert interquartile_mean([[0.0, 90.0], [94.0, 100.0]]) == 92.0  # over all entries, not by row
    for nothing, words in (([], "scores is empty"), ({}, "there are no scores")):
        with pytest.raises(ValueError, match=words):
            interval(nothing)


def test_resamples_have_the_distribution_of_rliable() -> None:
    scores = np.random.default_rng(3).normal([50.0, 80.0, 95.0, 20.0], [5.0, 10.0, 2.0, 8.0], (6, 4))
    ours, theirs = resampled(scores, np.random.default_rng(0), 4000), rliable_draws(scores, 4000, 1)
    assert ours.std() == pytest.approx(theirs.std(), rel=0.06)
    assert ours.mean() == pytest.approx(theirs.mean(), abs=4 * theirs.std() / np.sqrt(2000))


def test_differences_resample_each_part_on_its_own() -> None:
    left, right = np.full((1, 5), 80.0), np.array([[50.0, 60.0, 70.0, 55.0, 65.0]])
    gap = difference(left, right)
    assert gap.value == 20.0 and gap.low < 20.0 < gap.high


# ------------------------------------------------------------------ over several scenarios
@pytest.fixture
def two_agents() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Whole numbers, so that ties occur; the second agent has fewer runs."""
    rng = np.random.default_rng(5)
    one = {"a": rng.integers(80, 100, (5, 4)).astype(float), "b": rng.integers(60, 90, (5, 3)).astype(float)}
    return one, {"a": rng.integers(78, 98, (3, 4)).astype(float), "b": rng.integers(65, 90, (3, 3)).astype(float)}


def test_pooled_means_and_profiles_are_those_of_rliable(two_agents: tuple[dict, dict]) -> None:
    one, _ = two_agents
    matrix = np.concatenate([one["a"], one["b"]], axis=1)  # rliable: runs, tasks
    found = interval(one)
    assert found.value == pytest.approx(stats.trim_mean(matrix, proportiontocut=0.25, axis=None))  # aggregate_iqm
    assert found.low < found.value < found.high
    thresholds = np.array([65.0, 80.0, 90.0, 200.0])
    by_hand = [np.mean(matrix > threshold) for threshold in thresholds]  # run_score_deviation
    np.testing.assert_allclose(performance_profile(one, thresholds), by_hand)
    assert interval({"a": np.full((2, 3), 7.0)}) == (7.0, 7.0, 7.0)


def test_the_probability_of_improvement_is_that_of_rliable(two_agents: tuple[dict, dict]) -> None:
    one, other = two_agents
    by_task = []
    for name in one:  # rliable averages the statistic of Mann and Whitney over the tasks
        for x, y in zip(one[name].T, other[name].T, strict=True):
            by_task.append(stats.mannwhitneyu(x, y, alternative="greater").statistic / (len(x) * len(y)))
    found = probability_of_improvement(one, other)
    assert found.value == pytest.approx(np.mean(by_task)) and found.low <= found.value <= found.high
    assert probability_of_improvement(other, one).value == pytest.approx(1.0 - found.value)
    better = {name: scores + 1000.0 for name, scores in one.items()}
    assert probability_of_improvement(better, other) == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="no scenario in common"):
        probability_of_improvement(one, {"c": one["a"]})
    with pytest.raises(ValueError, match="4 and 3 instances of a"):
        probability_of_improvement(one, {"a": one["b"]})
