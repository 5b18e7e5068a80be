"""`dp-ensemble evaluate`: named agents, runs that remember their environment, splits, refusals."""

from __future__ import annotations

import json

import pytest
from helpers import write_meter

from dp_ensemble_env.cli import main

CAMPUS = ("--scenario", "campus-event")


def run(tmp_path, *arguments):
    path = tmp_path / "result.json"
    assert main(["evaluate", *arguments, "--json", str(path)]) == 0
    return json.loads(path.read_text())


def test_named_agents_are_scored(tmp_path, capsys):
    assert run(tmp_path, "standard")["score"] == pytest.approx(100, abs=1e-2)
    out = capsys.readouterr().out
    assert "100.00" in out and "exact" in out and "Privacy" in out
    noise_aware = run(tmp_path, "taylor", *CAMPUS, "--action", "policy", "--expect", "50")
    assert 80 < noise_aware["score"] < 100 and noise_aware["privacy"].startswith("noise-aware, not private")


def test_planning_on_a_release_and_deploying_on_the_truth(tmp_path):
    private = (*CAMPUS, "--action", "policy", "--privacy", "dirichlet:k=50")
    result = run(tmp_path, "standard", *private)
    assert result["score"] == pytest.approx(100, abs=1e-2) and result["privacy"] == "that of one release"
    assert 0 < result["deployed"]["deployed"] < 99.9
    other = run(tmp_path, "standard", *private, "--release-seed", "1")
    assert other["deployed"]["deployed"] != result["deployed"]["deployed"]


def test_a_split_is_scored_with_interval_and_gap(tmp_path, capsys):
    words = ("--scenario", "campus-event", "--split", "test", "--instances", "2")
    found = run(tmp_path, "best-price", *words)
    printed = capsys.readouterr().out
    assert found["low"] <= found["iqm"] <= found["high"] < 100 and found["split"] == "test"
    assert len(found["scores"][0]) == len(found["training_scores"][0]) == 2 and found["gap"]["low"] is not None
    assert "test instances" in printed and "gap" in printed and "95 % interval" in printed


@pytest.mark.torch
def test_a_run_remembers_its_environment_and_options_override_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    meter = write_meter(tmp_path / "shop.csv", days=40)
    problem = ["--meter", str(meter), "--stamp", "start", "--levels", "8", "--window", "13:00-15:00"]
    settings = ["--algo", "a2c", "--action", "price", "--steps", "600", "--no-tensorboard", "--population", "single"]
    private = ["--privacy", "dirichlet:k=50", "--release-seed", "3", "--penalty", "150"]  # drawn again from the file
    assert main(["train", *settings, *private, *problem, "--output", "runs/one"]) == 0
    kept = json.loads((tmp_path / "runs/one/results.json").read_text())["evaluation"]
    capsys.readouterr()
    result = run(tmp_path, "runs/one", "--seed", "10000")
    assert result["score"] == kept["score"] and result["episodes"] == kept["episodes"]
    assert "override" not in capsys.readouterr().err
    assert run(tmp_path, "runs/one", "--population", "mean-field")["environment"].startswith("the mean field")
    assert "note: --population override what runs/one was trained with" in capsys.readouterr().err
    head, *lines = meter.read_text().splitlines()
    meter.write_text("\n".join([head, *lines[96:]]) + "\n")  # a day less to learn from
    assert main(["evaluate", "runs/one"]) == 2
    assert "shop.csv has changed since" in capsys.readouterr().err
    meter.unlink()
    assert main(["evaluate", "runs/one"]) == 2
    assert "shop.csv has gone; pass --meter to say where it is" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", ["[1, 2]", "{", '{"environment": [1]}', '{"environment": {"problem": {}, "population": "mean-field"}}']
)
def test_a_broken_run_is_one_sentence(content, tmp_path, capsys):
    (tmp_path / "config.json").write_text(content)
    assert main(["evaluate", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "config.json" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["standart"], "did you mean 'standard'"),
        (["digamma"], "--expect 50"),
        (["standard", "--privacy", "dirichlit:k=5"], "did you mean 'dirichlet'"),
        (["standard", "--column", "a"], "--column says how a meter file is read; give one with --meter"),
        (["ppo", "--split", "test"], "--instances 20"),
        (["standard", "--json", "/proc/no/file.json"], "cannot write"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err
