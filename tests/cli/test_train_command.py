"""The training and tuning scripts as a user runs them."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, SCRIPTS, load

from dp_ensemble_env.privacy import Release

importlib.import_module("stable_baselines3")

from dp_ensemble_env.agents.weights import load_weights  # noqa: E402

RUN = ["--algo", "a2c", "--set", "n_envs=8", "--no-tensorboard"]


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_killed_run_resumes_and_ends_as_if_it_had_not_been(tmp_path, capsys):
    steps, interval = 36_000, 1_440
    settings = [*RUN, "--steps", str(steps), "--interval", str(interval), "--output"]
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    command = [sys.executable, str(SCRIPTS / "train.py"), *settings, str(cut)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not ((cut / "results.json").exists() and results(cut)["steps"] >= 2 * interval):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = load_weights(cut / "checkpoint.safetensors").settings["record"]
    # results.json is written after the checkpoint, so the checkpoint is at least as far.
    assert 2 * interval <= results(cut)["steps"] <= kept["steps"] < steps and not results(cut)["finished"]

    train = load("train")
    assert train.main([*settings, str(cut), "--resume"]) == 0
    assert train.main([*settings, str(whole)]) == 0
    resumed = results(cut)["curve"]
    assert resumed[: len(kept["curve"])] == [
        list(point) for point in kept["curve"]
    ]  # nothing before the checkpoint is done again
    assert resumed == results(whole)["curve"] and len(resumed) == steps // interval + 1
    assert results(cut)["evaluation"]["score"] == results(whole)["evaluation"]["score"] <= 100 + 1e-6
    assert "after 36,000 steps" in capsys.readouterr().out


def test_another_configuration_is_refused(tmp_path, capsys):
    train = load("train")
    base = [*RUN, "--steps", "432", "--output", str(tmp_path / "run")]
    assert train.main(base) == 0
    for extra, words in (
        ([], "already holds a run"),
        (["--resume", "--seed", "7"], "seed is 0, not 7"),
        (["--resume", "--action", "tilt"], "action is 'price', not 'tilt'"),
        (["--resume", "--k", "50"], "environment.privacy is None, not 'dirichlet:k=50'"),
        (["--resume", "--set", "gae_lambda=0.5"], "hyperparams.gae_lambda"),
        (["--resume", "--date", "2018-07-03"], "environment.problem.date is None, not '2018-07-03'"),
    ):
        capsys.readouterr()
        assert train.main([*base, *extra]) == 2
        error = capsys.readouterr().err
        assert words in error and "Traceback" not in error


def test_same_command_same_result_and_private_release(tmp_path, capsys):
    train = load("train")
    found = []
    for name in ("a", "b"):
        arguments = ["--steps", "432", "--k", "50", "--floor", "0.01", "--output", str(tmp_path / name)]
        assert train.main([*RUN, *arguments]) == 0
        assert "privacy: that of one release" in capsys.readouterr().out
        found.append(results(tmp_path / name))
    assert found[0]["curve"] == found[1]["curve"] and found[0]["evaluation"] == found[1]["evaluation"]


def write_meter(path):
    times = np.arange(np.datetime64("2018-05-20T00:00"), np.datetime64("2018-07-03T00:00"), np.timedelta64(15, "m"))
    hours = (times - times.astype("datetime64[D]")) / np.timedelta64(1, "h")
    kw = 200 + 120 * np.sin((hours - 8) / 24 * 2 * np.pi) + np.random.default_rng(0).normal(0, 15, len(times))
    lines = "\n".join(f"{str(t).replace('T', ' ')},{p:.3f}" for t, p in zip(times, kw, strict=True))
    path.write_text(f"time,power_kw\n{lines}\n")


def test_meter_file_and_target(tmp_path, capsys):
    write_meter(tmp_path / "meter.csv")
    arguments = ["--meter", str(tmp_path / "meter.csv"), "--stamp", "start", "--unit", "kW", "--steps", "60000"]
    assert load("train").main([*RUN, *arguments, "--target", "5", "--output", str(tmp_path / "run")]) == 0
    assert "target reached" in capsys.readouterr().out
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["environment"]["problem"]["meter"] == str(tmp_path / "meter.csv") and config["target_score"] == 5
    assert results(tmp_path / "run")["evaluation"]["score"] >= 5


def test_the_release_of_a_meter_has_no_seed_that_could_undo_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_meter(tmp_path / "meter.csv")
    data = ["--meter", "meter.csv", "--stamp", "start", "--unit", "kW", "--levels", "6"]
    arguments = [*RUN, *data, "--privacy", "dirichlet:k=50,floor=0.05", "--steps", "432"]
    for name in ("a", "b"):
        assert load("train").main([*arguments, "--output", f"runs/{name}"]) == 0
        said = capsys.readouterr().out
        assert said.startswith("score on the release") and "without data" in said and "seeded" not in said
        config = json.loads(Path(f"runs/{name}/config.json").read_text())
        assert config["environment"]["release_seed"] is None and config["environment"]["problem"]["sha256"] is None
        assert results(tmp_path / "runs" / name)["scored_on"] == "the release"
    a, b = (Release.load(f"runs/{name}/release.json") for name in "ab")
    assert a.seeding == b.seeding == "os-entropy" and a.digest != b.digest
    assert load("train").main([*arguments, "--output", "runs/a", "--resume"]) == 0  # on the release that is there
    assert Release.load("runs/a/release.json").digest == a.digest
    capsys.readouterr()
    assert load("evaluate").main(["runs/a"]) == 0
    score = results(tmp_path / "runs" / "a")["evaluation"]["score"]
    assert f"Score on the release {score:.1f}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algo", "pppo"], "did you mean 'ppo'"),
        (["--population", "meanfield"], "did you mean 'mean-field'"),
        (["--algo", "dqn", "--action", "tilt"], "price mode only"),
        (["--steps", "0"], "--steps: must be at least 1"),
        (["--seed", "-1"], "--seed: must be at least 0"),
        (["--k", "-5"], "--k: must be a positive"),
        (["--k", "5", "--privacy", "public"], "leave --k and --floor out"),
        (["--action", "prize"], "did you mean 'price'"),
        (["--scenario", "campus-evnt"], "did you mean 'campus-event'"),
        (["--resume"], "there is no run in runs/ppo-mean-field-price-seed0 to resume"),
        (["--set", "n_envs=0"], "n_envs must be a whole number of at least 1, got 0"),
        (["--set", "batch_size=-1"], "batch_size must be a whole number of at least 2, got -1"),
        (["--set", "ent_coef=nan"], "ent_coef must be a number of at least 0, or 'auto', got 'nan'"),
        (["--set", "ent_coef=NaN"], "ent_coef must be a number of at least 0, or 'auto', got nan"),
        (["--set", "gamma=5"], "gamma must be a number from 0 to 1, got 5"),
        (["--set", "learning_rate=abc"], "learning_rate must be a number above 0"),
        (["--set", "learning_rate=lin_x"], "'lin_0.001'"),
        (["--set", "policy_kwargs=3"], "policy_kwargs must be a dictionary"),
        (["--set", "clock=1"], "clock must be true or false"),
        (["--steps", "100"], "total_steps must be at least 288, one rollout"),
        (["--floor", "0.1"], "give --k too"),
        (["--target", "101"], "at most 100"),
        (["--set", "n_envs"], "takes name=value"),
        (["--set", "n_env=3"], "did you mean 'n_envs'"),
        (["--meter", "missing.csv"], "missing.csv"),
    ],
)
def test_bad_input_gives_one_sentence(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load("train").main(["--no-tensorboard", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and "Traceback" not in error and error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_study_begins_with_the_present_settings_and_is_reproducible(tmp_path, capsys):
    importlib.import_module("optuna")
    tune = load("tune")
    arguments = ["--algo", "a2c", "--steps", "2400", "--trials", "3", "--output"]
    summaries = []
    for name in ("a", "b"):
        assert tune.main([*arguments, str(tmp_path / name)]) == 0
        summaries.append(json.loads((tmp_path / name / "a2c-mean-field-price.json").read_text()))
    from dp_ensemble_env.agents.hyperparams import hyperparameters

    first, second = ([(t["value"], t["params"]) for t in s["trials"]] for s in summaries)
    assert first == second and len(first) == 3
    now = hyperparameters("a2c", "mean-field", "price")
    assert first[0][1]["n_envs"] == now["n_envs"] and first[0][1]["gae_lambda"] == pytest.approx(now["gae_lambda"])
    assert summaries[0]["best_value"] == max(value for value, _ in first)
    assert tune.main(["--trials", "0"]) == 2
    assert "--trials: must be at least 1" in capsys.readouterr().err


def test_study_of_a_scenario_trains_on_training_and_scores_on_validation_instances(tmp_path, capsys):
    """What a trial is worth: the interquartile mean over validation instances, of runs on all training instances."""
    importlib.import_module("optuna")
    from dp_ensemble_env import scenarios
    from dp_ensemble_env.agents import evaluate
    from dp_ensemble_env.agents.hyperparams import changes_for
    from dp_ensemble_env.agents.sb3 import TrainingSettings, train
    from dp_ensemble_env.envs.ensemble import EnsembleEnv

    steps = 3 * 20 * 48  # three updates, each on an instance of its own
    chosen = ["--algo", "apg", "--action", "tilt", "--scenario", "spot", "--instances", "4"]
    arguments = [*chosen, "--steps", str(steps), "--trials", "1", "--repeats", "2", "--output", str(tmp_path)]
    assert load("tune").main(arguments) == 0
    study = json.loads((tmp_path / "spot-apg-mean-field-tilt.json").read_text())
    assert "--scenario spot --instances 4 --steps" in study["command"]
    models = [scenarios.make("spot", instance=i) for i in scenarios.instances("train")]
    expected = []
    for seed in (1000, 1001):
        settings = TrainingSettings(seed, steps, interval=steps // 4, hyperparams=changes_for("apg", "spot", "tilt"))
        agent = train("apg", EnsembleEnv(models[0]), settings, models=models)
        played = [EnsembleEnv("spot", instance=i, split="validation") for i in range(4)]
        expected.append([evaluate(agent, env, 200, 10_000).score for env in played])
    (trial,) = study["trials"]
    assert np.array(trial["scores"]) == pytest.approx(np.array(expected), abs=1e-3)
    assert trial["value"] == pytest.approx(np.sort(np.ravel(expected))[2:6].mean(), abs=1e-3)
    capsys.readouterr()
    assert load("tune").main([*chosen[:-1], "11"]) == 2
    assert "instances must be" in capsys.readouterr().err


def test_committed_studies_name_their_command():
    folder = ROOT / "docs" / "tuning"
    text = (folder.parent / "tuning.md").read_text()
    for path in folder.glob("*-*.json"):
        study = json.loads(path.read_text())
        assert study["command"] in text
        assert study["best_value"] == max(trial["value"] for trial in study["trials"])


@pytest.mark.parametrize("name", ["train", "tune"])
def test_help_shows_examples(name, capsys):
    with pytest.raises(SystemExit) as stop:
        load(name).main(["--help"])
    assert stop.value.code == 0 and f"dp-ensemble {name} --" in capsys.readouterr().out


def test_every_study_can_begin_with_the_present_settings():
    """Trial 0 is what the package holds, whatever is tuned: each of its values is among the choices."""
    import optuna

    from dp_ensemble_env import scenarios
    from dp_ensemble_env.agents.hyperparams import ALGORITHMS
    from dp_ensemble_env.experiments.tuning import NAMES, TuningSettings, beginning, present, suggest

    begun = set()
    for algo in ALGORITHMS:
        for scenario in sorted(page.stem for page in (ROOT / "docs" / "scenarios").glob("*.md")):
            horizon = scenarios.make(scenario).horizon
            for population in NAMES:
                for action in ("price", "tilt"):
                    try:
                        settings = TuningSettings(algo, population, action, scenario=scenario)
                    except ValueError as error:
                        assert algo == "dqn" and ("price mode" in str(error) or "several instances" in str(error))
                        continue
                    _, tuned = beginning(settings, horizon)
                    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
                    now = present(algo, tuned)
                    study.enqueue_trial(now)
                    trial = study.ask()
                    suggest(trial, algo, tuned)  # Optuna refuses what is not among the choices
                    assert {name: trial.params[name] for name in now} == pytest.approx(now)
                    begun.add((algo, action))
    assert {algo for algo, _ in begun} == set(ALGORITHMS) and ("ppo", "tilt") in begun
