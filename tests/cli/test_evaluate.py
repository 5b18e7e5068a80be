"""`dp-ensemble evaluate`: named agents, runs that remember their environment, splits, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import write_meter

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents.plans import best_constant_price
from dp_ensemble_env.cli import main
from dp_ensemble_env.control.returns import ExactReturn
from dp_ensemble_env.envs.actions import price_tilts
from dp_ensemble_env.reporting.score import score, start_values

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


def test_the_seed_is_not_that_of_the_campus(tmp_path):
    """An agent trained on the campus is scored on the same campus, whatever the seed of the episodes."""
    results = [
        run(tmp_path, "best-price", *CAMPUS, "--action", "price", "--seed", seed)["mean_return"] for seed in ("0", "3")
    ]
    assert results[0] == results[1]


def test_finite_population_of_a_coupled_model_has_a_standard_error(tmp_path):
    result = run(tmp_path, "best-price", "--scenario", "feeder", "--population", "3", "--episodes", "300")
    assert result["episodes"] == 300 and 0 < result["score_error"] < 20
    alone = run(tmp_path, "best-price", *CAMPUS, "--population", "single", "--action", "price")
    assert alone["exact"] and alone["episodes"] == 0


def test_planning_on_a_release_and_deploying_on_the_truth(tmp_path):
    private = (*CAMPUS, "--action", "policy", "--privacy", "dirichlet:k=50")
    result = run(tmp_path, "standard", *private)
    assert result["score"] == pytest.approx(100, abs=1e-2) and result["privacy"] == "that of one release"
    assert 0 < result["deployed"]["deployed"] < 99.9
    other = run(tmp_path, "standard", *private, "--release-seed", "1")
    assert other["deployed"]["deployed"] != result["deployed"]["deployed"]


def test_a_split_is_scored_with_interval_and_gap(tmp_path, capsys):
    """Each instance between its own uncontrolled loads and its own optimum, by hand."""
    words = ("--scenario", "spot", "--action", "tilt", "--split", "test", "--instances", "3")
    found = run(tmp_path, "best-price", *words)
    printed = capsys.readouterr().out
    for split, key in (("test", "scores"), ("train", "training_scores")):
        models = [scenarios.make("spot", instance=i, split=split) for i in range(3)]
        held = [price_tilts(one, np.full((one.horizon, one.n_contexts), best_constant_price(one))) for one in models]
        by_hand = [score(ExactReturn(one)(x), *start_values(one)) for one, x in zip(models, held, strict=True)]
        np.testing.assert_allclose(found[key], [by_hand], atol=1.5)  # the agent is played in 512 episodes
    assert found["low"] <= found["iqm"] <= found["high"] and found["split"] == "test"
    assert found["gap"]["value"] == pytest.approx(
        np.mean(found["training_scores"]) - np.mean(found["scores"]), abs=1e-6
    )
    assert "test instances" in printed and "gap" in printed and "95 % interval" in printed
    assert run(tmp_path, "standard", *words[:2], *words[4:])["iqm"] == pytest.approx(100, abs=0.1)


def test_a_meter_is_the_load_itself(tmp_path, capsys):
    meter = ("--meter", str(write_meter(tmp_path / "meter.csv", days=40)), "--stamp", "start")
    assert run(tmp_path, "standard", *meter)["score"] == pytest.approx(100, abs=1e-2)
    err = capsys.readouterr().err
    assert "note: The event is on 2018-07-02; pass date=... to choose." in err
    assert "note: Results are for the metered load itself" in err
    assert main(["evaluate", "standard", *meter, "--date", "2030-07-02"]) == 2
    assert "2030-07-02 lies outside the data" in capsys.readouterr().err


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
    assert "shop.csv has gone; pass meter=" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        "[1, 2]",
        "{",
        json.dumps({"algo": "ppo", "environment": [1]}),
        json.dumps({"algo": "ppo", "environment": {"problem": {}, "population": "mean-field"}}),
    ],
)
def test_a_broken_run_is_one_sentence(content, tmp_path, capsys):
    (tmp_path / "config.json").write_text(content)
    assert main(["evaluate", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "config.json" in error and error.count("\n") == 1


@pytest.mark.parametrize("name", ["[/red]", "a[/]b", "%s%d", "{x}"])
def test_markup_in_the_path_of_an_agent(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", name]) == 2 and name in capsys.readouterr().err
    (tmp_path / name).mkdir(parents=True)
    assert main(["evaluate", name]) == 2 and "there is no policy file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["standart"], "did you mean 'standard'"),
        (["digamma"], "--expect 50"),
        (["digamma", "--expect", "50"], "agent 'digamma' needs policy actions, not tilt"),
        (["standard", "--action", "price"], "use action='tilt' (Call-tilt-v1)"),
        (["standard", "--window", "11:00-15:00"], "does not support --window"),
        (["standard", "--scenario", "campus-evnt"], "did you mean 'campus-event'"),
        (["standard", "--privacy", "dirichlit:k=5"], "did you mean 'dirichlet'"),
        (["standard", "--column", "a"], "--column says how a meter file is read; give one with --meter"),
        (["ppo", "--split", "test"], "--instances 20"),
        (["standard", "--meter", "nowhere.csv"], "nowhere.csv"),
        (["best-price", "--scenario", "feeder", "--population", "3", "--episodes", "0"], "episodes"),
        (["standard", "--json", "/proc/no/file.json"], "cannot write"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", *arguments]) == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err
