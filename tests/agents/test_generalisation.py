"""Interquartile means, bootstrap intervals, and scores over the instances of a split."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, evaluate_split, make_agent
from dp_ensemble_env.agents.generalisation import SplitOutcome
from dp_ensemble_env.agents.statistics import (
    difference,
    interquartile_mean,
    interval,
    performance_profile,
    pooled_interval,
    probability_of_improvement,
    resampled,
)
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel


def rliable_draws(scores: np.ndarray, count: int, tasks: bool, seed: int) -> np.ndarray:
    """`StratifiedBootstrap.update_indices` with `aggregate_iqm`, as rliable writes them."""
    rng = np.random.RandomState(seed)
    strata = np.ogrid[tuple(slice(x) for x in (0, *scores.shape[1:]))][1:]
    found = []
    for _ in range(count):
        indices = rng.choice(scores.shape[0], scores.shape, replace=True)
        rest = [rng.choice(scores.shape[1], strata[0].shape, replace=True)] if tasks else strata
        found.append(stats.trim_mean(scores[(indices, *rest)], proportiontocut=0.25, axis=None))
    return np.array(found)


def test_the_interquartile_mean_leaves_out_the_outer_quarters() -> None:
    assert interquartile_mean([-1000.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 900.0]) == 3.5  # of 2, 3, 4, 5
    matrix = np.array([[0.0, 90.0], [94.0, 100.0]])
    assert interquartile_mean(matrix) == 92.0  # over all entries, not by row


@pytest.mark.parametrize("tasks", [False, True])
def test_resamples_have_the_distribution_of_rliable(tasks: bool) -> None:
    scores = np.random.default_rng(3).normal([50.0, 80.0, 95.0, 20.0], [5.0, 10.0, 2.0, 8.0], (6, 4))
    ours = resampled(scores, np.random.default_rng(0), 4000, instances=tasks)
    theirs = rliable_draws(scores, 4000, tasks, 1)
    assert ours.std() == pytest.approx(theirs.std(), rel=0.06)
    assert ours.mean() == pytest.approx(theirs.mean(), abs=4 * theirs.std() / np.sqrt(2000))
    if not tasks:  # the instances stay: less varies
        assert ours.std() < 0.5 * resampled(scores, np.random.default_rng(0), 4000).std()


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for i in range(100):
        found = interval(rng.normal(60.0, 10.0, (1, 20)), seed=i)
        hits += found.low <= 60.0 <= found.high
    assert 85 <= hits <= 100


def test_differences_resample_each_part_on_its_own() -> None:
    left, right = np.full((1, 5), 80.0), np.array([[50.0, 60.0, 70.0, 55.0, 65.0]])
    gap = difference(left, right)
    assert gap.value == 20.0 and gap.low < 20.0 < gap.high


@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_the_sets_of_instances_share_no_model(name: str) -> None:
    models = [scenarios.make(name, instance=i, split=split) for split in scenarios.SPLITS for i in range(2)]
    assert len({model.fingerprint for model in models}) == 2 * len(scenarios.SPLITS)
    assert len({model.tables().utility.shape for model in models}) == 1  # so that one network fits all
    again = scenarios.make(name, instance=1, split="test")
    assert again.fingerprint == models[-1].fingerprint


def test_the_sets_of_instances_are_fixed() -> None:
    assert [len(scenarios.instances(split)) for split in scenarios.SPLITS] == [20, 10, 20]
    assert scenarios.instances("test") == range(20)
    with pytest.raises(ValueError, match="split"):
        scenarios.instances("tset")


@pytest.fixture
def levels() -> str:
    """Two levels; the higher the instance seed, the further the upper one is worth avoiding."""

    def factory(seed: int) -> EnsembleModel:
        worth = 5.0 + seed % 1_000_000 + seed // 1_000_000
        return EnsembleModel([[0.8, 0.2], [0.3, 0.7]], [1.0, 2.0], -worth * np.array([[0.0, 1.0]] * 5), 3.0)

    scenarios.register("levels", factory, scenarios.Card("Levels", "Two levels."))
    yield "levels"
    scenarios.remove("levels")


def test_a_planner_is_optimal_everywhere_and_a_plan_only_at_home(levels: str) -> None:
    planner = evaluate_split("standard", levels, instances=3)
    np.testing.assert_allclose(planner.scores, 100.0)
    np.testing.assert_allclose(planner.training, 100.0)
    plan = make_agent("standard", EnsembleEnv(levels, instance=1))
    outcome = evaluate_split(plan, levels, instances=3)
    home = EnsembleEnv(levels, instance=1)
    assert outcome.training.shape == (1, 3) and outcome.training[0, 1] == pytest.approx(100.0)
    assert outcome.training[0, 1] == evaluate(plan, home).score
    by_hand = evaluate(plan, EnsembleEnv(scenarios.make(levels, instance=2, split="test"))).score
    assert outcome.scores[0, 2] == by_hand < 100.0
    assert outcome.gap.value == pytest.approx(outcome.training.mean() - outcome.scores.mean(), abs=1.0)
    both = evaluate_split([plan, make_agent("uncontrolled", home)], levels, "train", instances=2)
    assert both.scores.shape == (2, 2) and both.training is None and both.gap is None
    np.testing.assert_allclose(both.scores[1], 0.0, atol=1e-9)


def test_a_factory_is_made_on_each_instance(levels: str) -> None:
    seen = []

    def factory(env: EnsembleEnv) -> object:
        seen.append(env.model.utility[0, 1])
        return make_agent("uncontrolled", env)

    outcome = evaluate_split(factory, levels, "validation", instances=2, gap=False)
    assert seen == [-6.0, -7.0] and outcome.training is None
    assert outcome.to_dict()["scores"] == [[0.0, 0.0]]


def test_outcomes_are_told_in_words() -> None:
    outcome = SplitOutcome("spot", "test", np.array([[50.0, 60.0, 70.0, 80.0]]), np.array([[70.0, 75.0, 80.0, 85.0]]))
    assert repr(outcome).startswith("SplitOutcome(spot, 4 test instances, score 65.0 [")
    lines = {label: number for label, number, _ in outcome.lines()}
    assert lines["score, test instances"] == "65.00" and lines["score, training instances"] == "77.50"
    assert lines["gap, training less this"] == "12.50"


def test_wrong_arguments_are_refused(levels: str) -> None:
    with pytest.raises(ValueError, match="scenario"):
        evaluate_split("standard", "leavels")
    with pytest.raises(ValueError, match="instances must"):
        evaluate_split("standard", levels, instances=21)
    with pytest.raises(ValueError, match="no agent"):
        evaluate_split([], levels)
    with pytest.raises(ValueError, match="agent must be"):
        evaluate_split(3, levels, instances=1)


# ------------------------------------------------------------------ over several scenarios
@pytest.fixture
def two_agents() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Whole numbers, so that ties occur; the second agent has fewer runs."""
    rng = np.random.default_rng(5)
    one = {"a": rng.integers(80, 100, (5, 4)).astype(float), "b": rng.integers(60, 90, (5, 3)).astype(float)}
    other = {"a": rng.integers(78, 98, (3, 4)).astype(float), "b": rng.integers(65, 90, (3, 3)).astype(float)}
    return one, other


def test_pooled_means_and_profiles_are_those_of_rliable(two_agents: tuple[dict, dict]) -> None:
    one, _ = two_agents
    matrix = np.concatenate([one["a"], one["b"]], axis=1)  # rliable: runs, tasks
    found = pooled_interval(one)
    assert found.value == pytest.approx(stats.trim_mean(matrix, proportiontocut=0.25, axis=None))  # aggregate_iqm
    assert found.low < found.value < found.high
    thresholds = np.array([65.0, 80.0, 90.0, 200.0])
    by_hand = [np.mean(matrix > threshold) for threshold in thresholds]  # run_score_deviation
    np.testing.assert_allclose(performance_profile(one, thresholds), by_hand)
    same = {"a": np.full((2, 3), 7.0)}
    assert pooled_interval(same) == (7.0, 7.0, 7.0)


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
