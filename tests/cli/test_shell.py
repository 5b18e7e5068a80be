"""The shell of all commands: help, bad input, misspelt names, missing extras, Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from dp_ensemble_env.cli import main


# ------------------------------------------------------------------ meters
def write_meter(path, start="2018-06-01", days=45, unit="kw"):
    times = np.datetime64(f"{start}T00:00", "s") + 900 * np.arange(96 * days)
    hours = np.arange(len(times)) % 96 / 4
    kw = 150 + 60 * np.exp(-(((hours - 14) / 4) ** 2)) + 8 * np.random.default_rng(0).standard_normal(len(times))
    rows = "\n".join(f"{t},{x:.2f}" for t, x in zip(times, kw, strict=True))
    path.write_text(f"time,power_{unit}\n{rows}\n")
    return str(path)


METERED = [
    ["compare", "--preset", "baselines", "--private", "--output", "out"],
    ["plan", "--output", "out"],
]


@pytest.mark.parametrize("words", METERED, ids=lambda words: " ".join(words[:2]))
def test_whoever_reads_a_meter_says_what_was_read_and_whose_results_these_are(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    meter = ["--meter", write_meter(tmp_path / "shop.csv"), "--stamp", "start"]
    if words[0] != "privacy":
        assert main([*words, *meter, "--date", "2030-07-02"]) == 2
        assert "2030-07-02 lies outside the data" in capsys.readouterr().err
        assert len(list(tmp_path.iterdir())) == 1
    assert main([*words, *meter]) in (0, 2 if "calibrate" in words else 0)
    err = capsys.readouterr().err
    assert "note: The event is on 2018-07-02; pass date=... to choose." in err
    assert "note: Results are for the metered load itself" in err


@pytest.mark.parametrize("command", ["backtest", "settle"])
def test_a_day_without_readings_is_refused(command, tmp_path, capsys):
    meter = ["--meter", write_meter(tmp_path / "shop.csv"), "--stamp", "start"]
    assert main([command, *meter, "--date", "2030-07-02"]) == 2
    assert "2030-07-02 lies outside the data" in capsys.readouterr().err


# ------------------------------------------------------------------ Ctrl-C
LONG = [
    ["compare", "--jobs", "2", "--preset", "levels", "--output", "out"],
    ["sweep", "--methods", "sac", "--actions", "price", "--jobs", "2", "--output", "out"],
]


@pytest.mark.parametrize("words", LONG, ids=lambda words: " ".join(words[:3]))
def test_ctrl_c_ends_a_command_with_one_sentence(words, tmp_path):
    """The signal goes to the whole group, as a terminal sends it, once the command reports progress."""
    command = [sys.executable, "-m", "dp_ensemble_env", *words]
    process = subprocess.Popen(
        command, cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr.readline()  # a command says something after two seconds
    os.killpg(process.pid, signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "Traceback" not in error, error
    assert len(re.findall(r"^dp-ensemble.*: interrupted.*\.$", error, flags=re.MULTILINE)) == 1, error
    with pytest.raises(ProcessLookupError):  # no worker is left
        for _ in range(100):
            os.killpg(process.pid, 0)
            time.sleep(0.1)


def test_compare_keeps_what_was_trained(tmp_path, monkeypatch, capsys):
    """Interrupted after the first of two learners, it goes on with the second."""
    from dp_ensemble_env.experiments import comparison

    learners = tuple(comparison.Learner("z-learning", "mean-field", "tilt", steps, 1) for steps in (9_000, 4_000))
    monkeypatch.setitem(comparison.PRESETS, "quick", learners)
    real, made = comparison.train_and_score, []

    def once(job, shared, report=None):
        if made:
            raise KeyboardInterrupt
        made.append(job)
        return real(job, shared, report)

    words = ["compare", "--private", "--output", str(tmp_path / "out")]
    monkeypatch.setattr(comparison, "train_and_score", once)
    assert main(words) == 130
    assert "interrupted; 1 trained learners are kept, --resume takes them over" in capsys.readouterr().err
    monkeypatch.setattr(comparison, "train_and_score", lambda *job: made.append(job[0]) or real(*job))
    assert main([*words, "--resume"]) == 0
    assert [job.learner.steps for job in made] == [9_000, 4_000]
    assert main(["compare", "--private", "--output", str(tmp_path / "whole")]) == 0
    tables = [(tmp_path / name / "table.csv").read_text() for name in ("out", "whole")]
    assert tables[0] == tables[1] and not (tmp_path / "out" / "trained").exists()
