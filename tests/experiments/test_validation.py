"""dp-ensemble validate: agreement on a correct implementation, disagreement on a broken one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import load, random_model
from scipy import stats

from dp_ensemble_env.experiments import validation
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism


@pytest.fixture
def script():
    return validation


def run(script, *arguments, tmp_path):
    path = tmp_path / "report.json"
    status = load("validate").main([*arguments, "--episodes", "400", "--samples", "50", "--json", str(path)])
    return status, json.loads(path.read_text())


def failures(report):
    return {(c["population"], c["quantity"]) for c in report["comparisons"] if not c["agrees"]}


def test_campus_agrees(script, tmp_path, capsys):
    status, report = run(script, tmp_path=tmp_path)
    assert status == 0 and report["agrees"]
    names = {c["policy"] for c in report["comparisons"]}
    assert names == {"any", "standard", "taylor", "digamma", "average-sampled", "average-exact"}
    assert "too small" in report["not_applicable"]["average-expansion"]
    # 5 policies, 3 populations, return and occupancy; the cost for all but the optimum; 2 of the start states
    assert len(report["comparisons"]) == 5 * 3 * 2 + 4 * 3 + 2
    exact = [c for c in report["comparisons"] if c["population"] == "mean-field"]
    assert max(c["difference"] for c in exact) < 1e-12
    assert report["p_value_threshold"] == pytest.approx(1e-6 / (5 * 2 * 2 + 4 * 2 + 2))
    out = capsys.readouterr().out
    assert "not applicable" in out and "agree in all 44 comparisons" in out


def test_expansion_is_validated_where_it_applies(script, tmp_path):
    status, report = run(script, "--expect", "3000", "--seed", "1", tmp_path=tmp_path)
    assert status == 0 and not report["not_applicable"]
    assert {c["policy"] for c in report["comparisons"]} >= {"average-expansion"}


def test_very_noisy_release_agrees_too(script, tmp_path):
    """At k = 5 a noise-aware policy has entries hundreds of nats below the release: rare, never certain."""
    status, report = run(script, "--privacy", "dirichlet:k=5", tmp_path=tmp_path)
    assert status == 0 and not failures(report)


def test_same_seed_same_report(script, tmp_path):
    one, two = (run(script, "--seed", "3", tmp_path=tmp_path)[1] for _ in range(2))
    assert one == two


# ------------------------------------------------------------------ something is wrong
def test_a_wrong_analytical_value_is_caught(script, tmp_path, monkeypatch, capsys):
    true = script.evaluate_policy
    monkeypatch.setattr(script, "evaluate_policy", lambda *args: true(*args) * (1 + 1e-8))
    status, report = run(script, tmp_path=tmp_path)
    assert status == 1 and failures(report) == {("mean-field", "return")}
    monkeypatch.setattr(script, "evaluate_policy", lambda *args: true(*args) * 1.01)
    status, report = run(script, tmp_path=tmp_path)
    assert status == 1 and failures(report) >= {("mean-field", "return"), ("loads", "return")}
    assert "DISAGREE" in capsys.readouterr().out


def test_a_wrong_reward_is_caught(script, tmp_path, monkeypatch):
    class Generous(script.EnsembleVectorEnv):
        def step(self, actions):
            observations, rewards, *rest = super().step(actions)
            return observations, rewards + 0.25, *rest  # $4.50 of $900 in an episode

    monkeypatch.setattr(script, "EnsembleVectorEnv", Generous)
    status, report = run(script, tmp_path=tmp_path)
    assert status == 1 and failures(report) == {("mean-field", "return"), ("loads", "return")}


def test_wrong_dynamics_are_caught(script, tmp_path, monkeypatch):
    class Lazy(script.EnsembleVectorEnv):
        def encode_policy(self, policy_t, time, dtype=np.float32):
            mixed = 0.95 * np.asarray(policy_t) + 0.05 * self.model.default
            return super().encode_policy(mixed, time, dtype)

    monkeypatch.setattr(script, "EnsembleVectorEnv", Lazy)
    status, report = run(script, tmp_path=tmp_path)
    assert status == 1
    assert failures(report) >= {(population, "occupancy") for population in ("mean-field", "loads")} | {
        ("mean-field", "cost of privacy")
    }


def test_a_wrong_cost_is_caught(script, tmp_path, monkeypatch):
    true = script.cost_of_privacy

    def paper(model, k, name, **drawn):
        return true(model, k, name, formula="paper", **drawn)

    monkeypatch.setattr(script, "cost_of_privacy", paper)
    status, report = run(script, tmp_path=tmp_path)
    assert status == 1
    assert failures(report) == {(population, "cost of privacy") for population in script.POPULATIONS}


def test_wrong_start_states_are_caught(script, tmp_path, monkeypatch):
    class Elsewhere(script.EnsembleVectorEnv):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed, options=options or {"state": 9})

    monkeypatch.setattr(script, "EnsembleVectorEnv", Elsewhere)
    status, report = run(script, tmp_path=tmp_path)
    assert status == 1 and failures(report) == {("loads", "start states"), ("single", "start states")}


def test_nan_disagrees(script):
    report = script.Report(
        [script.Comparison("p", "single", "return", 1.0, float("nan"), 0.1, float("nan"), float("nan"))]
    )
    script.judge(report)
    assert not report.agrees


# ------------------------------------------------------------------ the statistics
def test_the_occupancy_test_is_a_valid_bound(script):
    # Under the null the p-value is at most uniform: among 4,000 draws of 12 counts, few fall below each level.
    rng = np.random.default_rng(0)
    p = np.linspace(0.01, 0.6, 12)
    values = np.array(
        [script.bernstein(rng.binomial(300, p).astype(float), 300 * p, 300 * p * (1 - p), 300)[4] for _ in range(4000)]
    )
    for level in (0.5, 0.1, 0.01):
        assert (values <= level).mean() <= level + 4 * np.sqrt(level * (1 - level) / 4000)


def test_bernstein_beside_the_exact_binomial_tail(script):
    expected, error, deviation, p_value = np.array([30.0]), None, None, None
    _, _, error, deviation, p_value = script.bernstein(np.array([60.0]), expected, np.array([27.0]), 300)
    assert error == pytest.approx(np.sqrt(27.0) / 300) and deviation == pytest.approx(30 / np.sqrt(27))
    assert p_value == pytest.approx(2 * np.exp(-(30.0**2) / (54 + 20)), rel=1e-6)
    assert p_value >= stats.binom.sf(59, 300, 0.1)


def test_student_p_values_are_uniform(script):
    rng = np.random.default_rng(1)
    values = [script.student(rng.normal(size=200), 1.0)[2] for _ in range(2000)]
    assert stats.kstest(values, "uniform").pvalue > 1e-4
    assert script.student(np.zeros(10), 1.0) == (0.0, 0.0, 1.0)
    assert script.student(np.full(10, 0.5), 1.0)[2] == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_random_models_agree(script, seed):
    problem = script.Problem(random_model(seed).override(buildings=7), None, 40.0, 20, seed, 300)
    assert script.validate(problem).agrees


# ------------------------------------------------------------------ input
def test_a_meter_file(script, tmp_path):
    rows, start = ["timestamp,power_kw"], np.datetime64("2024-06-03T00:00")
    for i in range(28 * 96):
        load_kw = 150 + 90 * np.exp(-((((i % 96) / 4 - 14) / 4) ** 2)) + 8 * np.sin(1.7 * i) + 5 * np.cos(0.3 * i)
        rows.append(f"{start + np.timedelta64(15 * i, 'm')},{load_kw:.2f}")
    meter = tmp_path / "meter.csv"
    meter.write_text("\n".join(rows) + "\n")
    options = ["--meter", str(meter), "--unit", "kW", "--stamp", "start", "--date", "2024-06-27", "--levels", "8"]
    status, report = run(script, *options, "--window", "14:00-16:00", tmp_path=tmp_path)
    assert status == 0 and report["agrees"]


def test_a_release(script, tmp_path, campus):
    status, report = run(script, "--privacy", "dirichlet:k=60,floor=0.01", tmp_path=tmp_path)
    assert status == 0 and report["release"] == {"k": 60.0, "floor": 0.01} and report["k"] == 60.0
    saved = tmp_path / "private.json"
    DirichletMechanism(60.0, 0.01).release(campus.default, 0).save(saved)
    again = run(script, "--privacy", str(saved), tmp_path=tmp_path)[1]
    assert again["comparisons"] == report["comparisons"]
    true = run(script, "--expect", "60", tmp_path=tmp_path)[1]
    assert true["comparisons"][0]["analytical"] != report["comparisons"][0]["analytical"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--expect", "-5"], "got -5"),
        (["--episodes", "3"], "--episodes must be at least 100"),
        (["--meter", "no-such-file.csv"], "no-such-file.csv"),
        (["--privacy", "no-such-file.json"], "no-such-file.json"),
        (["--privacy", "dirichlit:k=5"], "did you mean 'dirichlet'"),
        (["--date", "yesterday"], "yesterday"),
        (["--samples", "0"], "samples must be at least 1"),
    ],
)
def test_bad_input_gives_one_sentence_and_status_2(script, capsys, arguments, words):
    assert load("validate").main(arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_help_shows_examples_and_exit_codes(script, capsys):
    assert load("validate").main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "dp-ensemble validate --meter" in out and "Exit status" in out
