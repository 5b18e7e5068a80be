"""Validation: agreement on a correct implementation, disagreement on a broken one, and valid statistics."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import random_model
from scipy import stats

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli.main import main
from dp_ensemble_env.experiments import validation
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism

SOME = ("standard", "taylor", "average-sampled")


@pytest.fixture
def problem(campus):
    return validation.Problem(campus, samples=50, episodes=400)


def test_campus_agrees(tmp_path):
    path = tmp_path / "report.json"
    few = ["--episodes", "400", "--samples", "50", "--json", str(path)]
    assert main(["validate", "--scenario", "campus-event", *few]) == 0
    report = json.loads(path.read_text())
    names = {c["policy"] for c in report["comparisons"]}
    assert names == {"any", "standard", "taylor", "digamma", "average-sampled", "average-exact"}
    assert "too small" in report["not_applicable"]["average-expansion"]
    # 5 policies, 3 populations, return twice and occupancy; the cost for all but the optimum; 2 of the start states
    assert report["agrees"] and len(report["comparisons"]) == 5 * 3 * 3 + 4 * 3 + 2
    exact = [c for c in report["comparisons"] if c["population"] == "mean-field"]
    assert len(exact) == 5 * 3 + 4 and max(c["difference"] for c in exact) < 1e-12
    assert report["p_value_threshold"] == pytest.approx(1e-6 / (5 * 2 * 3 + 4 * 2 + 2))


def test_a_release_is_what_the_policies_are_validated_on(problem, campus):
    """At k = 5 a noise-aware policy has entries hundreds of nats below the release: rare, never certain."""
    noisy = replace(problem, release=DirichletMechanism(5.0).release(campus.default, 0), k=5.0)
    one, two = (validation.validate(noisy, SOME) for _ in range(2))
    assert one.agrees and one == two  # the same seed
    assert validation.make_plan(noisy, "taylor").expected != validation.make_plan(problem, "taylor").expected


@pytest.mark.parametrize("name", ["campus-day", "spot", "feeder"])
def test_what_is_compared_on_other_models(name):
    """Contexts where there are any; no costs where a coupling makes them depend on luck."""
    model = scenarios.make(name).override(loads=5)
    report = validation.validate(validation.Problem(model, samples=20, episodes=150), ("standard", "taylor"))
    assert report.agrees
    compared = {(c.population, c.quantity) for c in report.comparisons}
    assert {(population, "return") for population in validation.POPULATIONS} < compared
    assert (("single", "contexts") in compared) == (model.context is not None)
    assert (("single", "cost of privacy") in compared) == (model.coupling is None)


@pytest.mark.parametrize("seed", range(2))
def test_random_models_agree(seed):
    problem = validation.Problem(random_model(seed).override(loads=7), None, 40.0, 20, seed, 300)
    report = validation.validate(problem)
    assert report.agrees and not report.not_applicable  # every policy applies, the expansion too


# ------------------------------------------------------------------ something is wrong
def generous(true):
    class Generous(true):
        def step(self, actions):
            observations, rewards, *rest = super().step(actions)
            return observations, rewards + 0.25, *rest  # $4.50 of $900 in an episode

    return Generous


def lazy(true):
    class Lazy(true):
        def step(self, actions):
            return super().step(0.95 * actions + 0.05 * self.model.default)

    return Lazy


def elsewhere(true):
    class Elsewhere(true):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed, options=options or {"state": 9})

    return Elsewhere


@pytest.mark.parametrize(
    ("part", "mutant", "wrong"),
    [
        ("policy_return", lambda true: lambda *args: true(*args) * (1 + 1e-8), "mean-field: expected return"),
        ("path_returns", lambda true: lambda *args: true(*args) * 1.01, "mean-field: return; loads: return"),
        (
            "cost_of_privacy",
            lambda true: lambda *args, **drawn: true(*args, formula="paper", **drawn),
            "mean-field: cost of privacy; loads: cost of privacy; single: cost of privacy",
        ),
        ("EnsembleVectorEnv", generous, "mean-field: return; mean-field: expected return; loads: return"),
        ("EnsembleVectorEnv", lazy, "mean-field: occupancy; loads: occupancy; mean-field: cost of privacy"),
        ("EnsembleVectorEnv", elsewhere, "loads: start states; single: start states"),
    ],
    ids=["value", "paths", "cost", "reward", "dynamics", "starts"],
)
def test_what_is_wrong_is_caught(problem, monkeypatch, part, mutant, wrong):
    monkeypatch.setattr(validation, part, mutant(getattr(validation, part)))
    report = validation.validate(problem, ("standard", "taylor"))
    found = {f"{c.population}: {c.quantity}" for c in report.comparisons if not c.agrees}
    assert found >= set(wrong.split("; "))
    if part in ("policy_return", "cost_of_privacy"):
        assert found == set(wrong.split("; "))  # and nothing else


def test_nan_disagrees():
    report = validation.Report([validation.Comparison("p", "single", "return", 1.0, np.nan, 0.1, np.nan, np.nan)])
    validation.judge(report)
    assert not report.agrees


# ------------------------------------------------------------------ the statistics
def test_the_occupancy_test_is_a_valid_bound():
    # Under the null the p-value is at most uniform: among 4,000 draws of 12 counts, few fall below each level.
    rng = np.random.default_rng(0)
    p = np.linspace(0.01, 0.6, 12)
    drawn = (rng.binomial(300, p).astype(float) for _ in range(4000))
    values = np.array([validation.bernstein(counts, 300 * p, 300 * p * (1 - p), 300)[4] for counts in drawn])
    for level in (0.5, 0.1, 0.01):
        assert (values <= level).mean() <= level + 4 * np.sqrt(level * (1 - level) / 4000)


def test_bernstein_beside_the_exact_binomial_tail():
    counts, expected, variance = np.array([60.0]), np.array([30.0]), np.array([27.0])
    _, _, error, deviation, p_value = validation.bernstein(counts, expected, variance, 300)
    assert error == pytest.approx(np.sqrt(27.0) / 300) and deviation == pytest.approx(30 / np.sqrt(27))
    assert p_value == pytest.approx(2 * np.exp(-(30.0**2) / (54 + 20)), rel=1e-6)
    assert p_value >= stats.binom.sf(59, 300, 0.1)


def test_student_p_values_are_uniform():
    rng = np.random.default_rng(1)
    values = [validation.student(rng.normal(size=200), 1.0)[2] for _ in range(2000)]
    assert stats.kstest(values, "uniform").pvalue > 1e-4
    assert validation.student(np.zeros(10), 1.0) == (0.0, 0.0, 1.0)
    assert validation.student(np.full(10, 0.5), 1.0)[2] == 0.0
