"""The evaluation script as a user runs it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import load

from dp_ensemble_env import scenarios
from dp_ensemble_env.control.returns import ExactReturn
from dp_ensemble_env.experiments.suite import constant_price
from dp_ensemble_env.reporting.score import score, start_values


def run(tmp_path, *arguments):
    path = tmp_path / "result.json"
    assert load("evaluate").main([*arguments, "--json", str(path)]) == 0
    return json.loads(path.read_text())


def test_named_agents_are_scored(tmp_path, capsys):
    assert run(tmp_path, "standard")["score"] == pytest.approx(100, abs=1e-2)
    out = capsys.readouterr().out
    assert "100.00" in out and "exact" in out and "Privacy" in out
    noise_aware = run(tmp_path, "taylor", "--action", "policy", "--expect", "50")
    assert 80 < noise_aware["score"] < 100 and noise_aware["privacy"].startswith("noise-aware, not private")


def test_the_seed_is_not_that_of_the_campus(tmp_path):
    """An agent trained on the campus is scored on the same campus, whatever the seed of the episodes."""
    results = [run(tmp_path, "best-price", "--action", "price", "--seed", seed)["mean_return"] for seed in ("0", "3")]
    assert results[0] == results[1]


def test_finite_population_of_a_coupled_model_has_a_standard_error(tmp_path):
    result = run(tmp_path, "best-price", "--scenario", "feeder", "--population", "3", "--episodes", "300")
    assert result["episodes"] == 300 and 0 < result["score_error"] < 20
    alone = run(tmp_path, "best-price", "--population", "single", "--action", "price")
    assert alone["exact"] and alone["episodes"] == 0


def test_planning_on_a_release_and_deploying_on_the_truth(tmp_path):
    result = run(tmp_path, "standard", "--action", "policy", "--solve-on", "50")
    assert result["score"] < 99.9 and result["privacy"] == "that of one release"
    inside = run(tmp_path, "standard", "--action", "policy", "--k", "50")
    assert inside["score"] == pytest.approx(100, abs=1e-2)


def test_a_split_is_scored_with_interval_and_gap(tmp_path, capsys):
    """Each instance between its own uncontrolled loads and its own optimum, by hand."""
    words = ("--scenario", "spot", "--action", "price", "--split", "test", "--instances", "3")
    found = run(tmp_path, "best-price", *words)
    printed = capsys.readouterr().out
    for split, key in (("test", "scores"), ("train", "training_scores")):
        models = [scenarios.make("spot", instance=i, split=split) for i in range(3)]
        by_hand = [score(ExactReturn(one)(constant_price(one)), *start_values(one)) for one in models]
        np.testing.assert_allclose(found[key], [by_hand], atol=1.5)  # the agent is played in 512 episodes
    assert found["low"] <= found["iqm"] <= found["high"] and found["split"] == "test"
    assert found["gap"]["value"] == pytest.approx(
        np.mean(found["training_scores"]) - np.mean(found["scores"]), abs=1e-6
    )
    assert "test instances" in printed and "gap" in printed and "95 % interval" in printed
    assert run(tmp_path, "standard", *words[:2], *words[4:])["iqm"] == pytest.approx(100, abs=0.1)


def test_meter_file(tmp_path):
    rng = np.random.default_rng(0)
    stamps = np.datetime64("2018-06-01T00:00", "s") + 900 * np.arange(96 * 40)
    hour = np.arange(stamps.size) % 96 / 4
    load_kw = 150 + 60 * np.exp(-(((hour - 14) / 4) ** 2)) + 8 * rng.standard_normal(stamps.size)
    path = tmp_path / "meter.csv"
    path.write_text("time,power_kw\n" + "\n".join(f"{t},{x:.2f}" for t, x in zip(stamps, load_kw, strict=True)) + "\n")
    result = run(tmp_path, "standard", "--meter", str(path), "--stamp", "start")
    assert result["score"] == pytest.approx(100, abs=1e-2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["standart"], "neither an agent"),
        (["digamma"], "needs k"),
        (["digamma", "--expect", "50"], "not a tilt"),
        (["standard", "--k", "-1"], "--k: must be"),
        (["standard", "--meter", "nowhere.csv"], "nowhere.csv"),
        (["standard", "--episodes", "0"], "--episodes"),
        (["standard", "--json", "/proc/no/file.json"], "cannot write"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert load("evaluate").main(arguments) == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err
