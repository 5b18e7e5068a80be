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
from helpers import ROOT, load

from dp_ensemble_env.cli import main
from dp_ensemble_env.cli.main import OLD
from dp_ensemble_env.cli.old_options import OPTIONS
from dp_ensemble_env.cli.shell import Parser, execute, guard, keeping

#: Every command that does something, with the words that start it.
EVERY = [
    *([name] for name in sorted(OLD) if name != "privacy"),
    *(["privacy", name] for name in ("guarantee", "calibrate", "release", "audit", "plot", "frontier", "regret")),
]
by_words = pytest.mark.parametrize("words", EVERY, ids=" ".join)


def parser_of(words):
    parser = load(words[0]).build_parser()
    if len(words) == 1:
        return parser
    (commands,) = (action for action in parser._actions if hasattr(action, "add_parser"))
    return commands.choices[words[1]]


# ------------------------------------------------------------------ help
@by_words
def test_help_fits_80_columns_and_has_defaults_and_two_examples(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    parser = parser_of(words)
    text = parser.format_help()
    assert max(map(len, text.splitlines())) <= 80
    examples = [line for line in text.splitlines() if line.startswith(f"  dp-ensemble {' '.join(words)}")]
    assert len(examples) >= 2
    flat = " ".join(text.split())
    for action in parser._actions:
        if action.option_strings and action.default not in (None, False, [], "==SUPPRESS=="):
            values = action.default if isinstance(action.default, list) else [action.default]
            assert all(str(value).removesuffix(".0") in flat for value in values), action.option_strings


@by_words
def test_examples_are_understood(words):
    text = parser_of(words).format_help().split("examples:")[1].replace("\\\n", " ")
    for line in text.strip().splitlines():
        tokens = line.split()
        load(words[0]).build_parser().parse_args(tokens[2:])


@by_words
def test_shared_options_are_declared_once_and_mean_the_same(words):
    several = {
        "sweep": {"--privacy", "--k"},
        "leaderboard": {"--privacy"},
        "plot": {"--k", "--floor"},
        "frontier": {"--instance"},
    }
    plural = several.get(words[-1], set())
    for action in parser_of(words)._actions:
        for name in action.option_strings:
            option = OPTIONS.get(name.removeprefix("--"))
            if option is not None and name not in plural:
                settings = () if "action" in option.settings else ("type", "choices", "metavar", "nargs")
                for setting in settings:
                    assert getattr(action, setting) == option.settings.get(setting), (name, setting)


def test_options_of_one_name_take_the_same_kind_of_value_in_all_commands():
    """Metavariables say what is given; a number may be given several times where a study has an axis of it."""
    kinds = {}
    for words in EVERY:
        for action in parser_of(words)._actions:
            for name in action.option_strings:
                kinds.setdefault(name, set()).add((str(action.metavar), getattr(action.type, "__name__", "")))
    assert {name: kind for name, kind in kinds.items() if len(kind) > 1} == {
        "--steps": {("N", "read"), ("N", "")},  # a sweep also takes NAME=N
        "--k": {("K", "positive"), ("K", "")},  # a sweep also takes none
        "--floor": {("P", "nonnegative"), ("P", "positive")},
    }


def test_the_entry_points_list_the_commands():
    for command in ([sys.executable, "-m", "dp_ensemble_env"], [sys.executable, str(ROOT / "scripts" / "train.py")]):
        done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
        assert max(map(len, done.stdout.splitlines())) <= 80
        assert "dp-ensemble" in done.stdout


# ------------------------------------------------------------------ bad input
@by_words
def test_bad_words_are_one_sentence_and_nothing_is_written(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    needed = {
        "evaluate": ["standard"],
        "calibrate": ["--epsilon", "5"],
        "release": ["--output", "x.json", "--ledger", "l"],
    }
    for extra, sentence in (
        (["--ouptut", "x"], "there is no option --ouptut"),
        (["--states", "5"], "there is no option --states"),
        (["one", "too", "many"], "is one word too many"),
    ):
        assert main([*words, *needed.get(words[-1], []), *extra]) == 2
        out, err = capsys.readouterr()
        assert not out and err.count("\n") == 1 and err.startswith("dp-ensemble ") and "Traceback" not in err
        assert sentence in err or words == ["scenarios"]
    parser = parser_of(words)
    for name, value in (("--levels", "1"), ("--seed", "-3"), ("--jobs", "none"), ("--meter", "nowhere.csv")):
        if any(name in action.option_strings for action in parser._actions):
            assert main([*words, *needed.get(words[-1], []), name, value]) == 2
            err = capsys.readouterr().err
            assert err.count("\n") == 1 and (name in err or value in err or "minari" in err) and "Traceback" not in err
    assert not list(tmp_path.iterdir())


LATE = [
    ["evaluate", "standard", "--json", "file/x.json"],
    ["compare", "--resume"],
    ["compare", "--action", "tlit"],
    ["compare", "--output", "file"],
    ["suite", "--run", "nowhere"],
    ["suite", "--privacy", "dirichlit:k=5"],
    ["suite", "--output", "file"],
    ["leaderboard", "--output", "file"],
    ["validate", "--json", "file/x.json"],
    ["privacy", "guarantee", "--scenario", "campus-evnt"],
    ["privacy", "plot", "--output", "file"],
    ["privacy", "frontier", "--scenario", "campus-evnt"],
    ["privacy", "frontier", "--mechanisms", "gausian"],
    ["privacy", "frontier", "--delta", "3"],
    ["privacy", "regret", "--learner", "z-lerning"],
    ["privacy", "regret", "--action", "tlit"],
    ["privacy", "regret", "--participants", "0", "--specs", "gaussian:epsilon=1"],
    ["sweep", "--summary-only"],
    ["tune", "--output", "file"],
    ["scenarios", "--probe", "spot", "--csv", "file/x.csv"],
]


@pytest.mark.parametrize("words", LATE, ids=" ".join)
def test_what_cannot_end_well_is_refused_before_the_work(words, tmp_path, monkeypatch, capsys):
    """One sentence that names what was given, and neither output nor folders."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and "Traceback" not in err
    told = [word.removeprefix("--").split(":")[0] for word in words[1:] if word not in ("file", "standard", "spot")]
    assert any(word in err for word in told) or "/file" in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ValueError("two\nlines"), 2, "x: two lines\n"),
        (FileNotFoundError(2, "No such file", "a.csv"), 2, "x: cannot use a.csv: no such file; check the name.\n"),
        (ModuleNotFoundError("No module named 'optuna'", name="optuna"), 2, "pip install 'dp-ensemble-env[tune]'"),
        (OverflowError("too big"), 2, "beyond what can be computed (too big); check their unit."),
        (KeyboardInterrupt(), 130, "x: interrupted.\n"),
        (KeyboardInterrupt("half is kept"), 130, "x: interrupted; half is kept.\n"),
    ],
)
def test_whatever_is_raised_becomes_a_status(error, status, words, capsys):
    def work():
        raise error

    assert guard("x", work) == status
    assert words in capsys.readouterr().err


def test_bugs_are_not_hidden():
    def work():
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        guard("x", work)


def test_what_is_kept_is_said_once(capsys):
    def run(args):
        with keeping(lambda: "outer"), keeping(lambda: "inner"):
            raise KeyboardInterrupt

    assert execute(lambda: Parser(prog="x"), run, []) == 130
    assert capsys.readouterr().err == "x: interrupted; inner.\n"


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
    ["plan", "--draws", "100", "--output", "out"],
    ["privacy", "guarantee", "--floor", "0", "--draws", "4"],
    ["privacy", "calibrate", "--epsilon", "50", "--draws", "4"],
    ["privacy", "release", "--floor", "0.01", "--output", "x.json", "--ledger", "l.jsonl"],
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
    ["privacy", "regret", "--output", "out", "--releases", "1000"],
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
