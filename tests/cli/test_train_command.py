"""`dp-ensemble train`: kill and resume, what a run folder keeps, refusals, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import SCRIPTS, write_meter

from dp_ensemble_env.cli import main
from dp_ensemble_env.privacy import Release

pytest.importorskip("stable_baselines3")

from dp_ensemble_env.agents.weights import load_weights  # noqa: E402

PLAIN = ["train", "--algo", "a2c", "--action", "price", "--set", "n_envs=8", "--no-tensorboard"]
RUN = [*PLAIN, "--scenario", "campus-event"]


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_killed_run_resumes_and_ends_as_if_it_had_not_been(tmp_path, capsys):
    steps, interval = 18_000, 720
    settings = [*RUN, "--steps", str(steps), "--interval", str(interval), "--output"]
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    command = [sys.executable, str(SCRIPTS / "train.py"), *settings[1:], str(cut)]
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
    assert main([*settings, str(cut), "--resume"]) == 0
    assert main([*settings, str(whole)]) == 0
    resumed = results(cut)["curve"]
    assert resumed[: len(kept["curve"])] == [list(point) for point in kept["curve"]]  # nothing is done again
    assert resumed == results(whole)["curve"] and len(resumed) == steps // interval + 1
    assert results(cut)["evaluation"]["score"] == results(whole)["evaluation"]["score"] <= 100 + 1e-6
    assert "after 18,000 steps" in " ".join(capsys.readouterr().out.split())


def test_ctrl_c_ends_with_one_sentence_that_says_what_is_kept(tmp_path):
    """The signal goes to the whole group, as a terminal sends it, once the command reports progress."""
    words = ["--algo", "td3", "--no-tensorboard", "--output", "run"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dp_ensemble_env", "train", *words],
        cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr.readline()  # a command says something after two seconds
    os.killpg(process.pid, signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "Traceback" not in error, error
    assert len(re.findall(r"^dp-ensemble train: interrupted; .*\.$", error, flags=re.MULTILINE)) == 1, error


def test_another_configuration_is_refused(tmp_path, capsys):
    base = [*RUN, "--steps", "432", "--output", str(tmp_path / "run")]
    assert main(base) == 0
    for extra, words in (
        ([], "already holds a run"),
        (["--resume", "--seed", "7"], "seed is 0, not 7"),
        (["--resume", "--privacy", "dirichlet:k=50"], "environment.privacy is None, not 'dirichlet:k=50'"),
    ):
        capsys.readouterr()
        assert main([*base, *extra]) == 2
        error = capsys.readouterr().err
        assert words in error and "Traceback" not in error


def test_the_release_of_a_meter_has_no_seed_that_could_undo_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_meter(tmp_path / "meter.csv", days=40)
    data = ["--meter", "meter.csv", "--stamp", "start", "--unit", "kW", "--levels", "6", "--target", "-500"]
    arguments = [*PLAIN, *data, "--privacy", "dirichlet:k=50,floor=0.05", "--steps", "432"]
    assert main(arguments) == 2 and "was computed from private readings" in capsys.readouterr().err
    arguments += ["--penalty", "150"]
    for name in ("a", "b"):
        assert main([*arguments, "--output", f"runs/{name}"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert said.startswith("meter: score on the release") and "target reached" in said
        assert "without data" in said and "seeded" not in said
        config = json.loads(Path(f"runs/{name}/config.json").read_text())
        assert config["environment"]["release_seed"] is None and config["environment"]["problem"]["sha256"] is None
        assert config["environment"]["problem"]["meter"] == str(tmp_path / "meter.csv")
        assert results(tmp_path / "runs" / name)["scored_on"] == "the release"
    a, b = (Release.load(f"runs/{name}/release.json") for name in "ab")
    assert a.seeding == b.seeding == "os-entropy" and a.digest != b.digest
    assert main([*arguments, "--output", "runs/a", "--resume"]) == 0  # on the release that is there
    assert Release.load("runs/a/release.json").digest == a.digest
    capsys.readouterr()
    assert main(["evaluate", "runs/a"]) == 0
    score = results(tmp_path / "runs" / "a")["evaluation"]["score"]
    assert f"Score on the release {score:.1f}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algo", "pppo"], "did you mean 'ppo'"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--action", "prize"], "did you mean 'price'"),
        (["--resume"], "there is no run in runs/ppo-call-signals-seed0 to resume"),
        (["--set", "n_envs=0"], "n_envs"),
        (["--set", "n_envs"], "takes name=value"),
        (["--instances", "3", "--privacy", "public"], "leave --privacy out"),
        (["--output", "file"], "file"),
    ],
)
def test_bad_input_is_refused_in_one_sentence_before_anything_is_written(
    arguments, words, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    assert main(["train", "--no-tensorboard", *arguments]) == 2
    out, error = capsys.readouterr()
    assert words in error and "Traceback" not in error and error.count("\n") == 1 and not out
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
