"""`dp-ensemble privacy ...`, run as a user would."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.cli import main
from dp_ensemble_env.experiments import attacks
from dp_ensemble_env.privacy import (
    DirichletMechanism,
    PrivacyLedger,
    Release,
    calibrate_k,
    composed_epsilon,
    theorem2_epsilon,
)
from dp_ensemble_env.privacy.accounting.compose import RowGroup


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    def call(*words):
        return main(["privacy", *map(str, words)]), *capsys.readouterr()

    return call


def test_guarantee_prints_a_sentence_and_a_table(run):
    status, out, _ = run("guarantee", "--k", 50, "--h", 0.03, "--floor", 0.1, "--delta", 1e-6, "--rows", 20)
    assert status == 0 and "(12.16, 1e-06)-approximate differential privacy" in out
    row = next(line for line in out.splitlines() if line.startswith(" 50 "))
    cells = [float(cell) for cell in row.split()]
    assert cells[1] == pytest.approx(theorem2_epsilon(50, 0.03, 0.1, 0.1, 2, 1e-6), rel=1e-3)
    assert cells[2:4] == [2.533, 12.16]
    assert cells[4] == pytest.approx(composed_epsilon(1e-6, [RowGroup(50, 0.1, 0.03, 20)], "any"), rel=1e-3)
    status, out, _ = run("guarantee", "--floor", 0)
    assert status == 0 and "No guarantee (epsilon = infinity" in " ".join(out.split())


def test_calibrate(run):
    status, out, _ = run("calibrate", "--epsilon", 8, "--floor", 0.1)
    assert status == 0
    assert float(out.split("k = ")[1].split()[0]) == pytest.approx(calibrate_k(8, 1e-6, 0.03, 0.1, 20), rel=1e-4)
    status, out, err = run("calibrate", "--epsilon", 1, "--floor", 0.1)
    assert status == 2 and not out and err.count("\n") == 1
    assert "does not fall below 4.821; raise the floor above" in err


def test_release_draws_from_the_system_and_books_first(run, tmp_path, campus):
    out_file, ledger_file = tmp_path / "private.json", tmp_path / "ledger.jsonl"
    budget = 1.05 * PrivacyLedger().record(DirichletMechanism(23, 0.07).event(campus.default), 0.03).spent(1e-6)
    words = ["release", "--privacy", "dirichlet:k=23,floor=0.07", "--ledger", ledger_file, "--budget", budget, 1e-6]
    status, out, _ = run(*words, "--output", out_file)
    assert status == 0 and "seed" not in out
    release = Release.load(out_file)
    assert release.seeding == "os-entropy" and release.k == 23 and release.matrix.shape == (20, 20)
    ledger = PrivacyLedger(ledger_file)
    assert ledger.releases == 1 and f"({ledger.spent(1e-6):.4g}, 1e-06)-approximate" in out
    status, _, err = run(*words, "--output", tmp_path / "second.json")
    assert status == 2 and f"above the budget of {budget:g}" in err and not (tmp_path / "second.json").exists()
    status, _, err = run(*words[:-3], "--output", out_file)
    assert status == 2 and "exists" in err and PrivacyLedger(ledger_file).releases == 1


def test_release_needs_a_ledger_and_a_guarantee_or_the_word_that_there_is_none(run, tmp_path):
    words = ["--output", tmp_path / "x.json"]
    status, _, err = run("release", *words)
    assert status == 2 and "--ledger" in err
    words += ["--ledger", tmp_path / "l.jsonl"]
    status, _, err = run("release", *words)
    assert status == 2 and "no epsilon that holds for all inputs" in err and "--no-guarantee" in err
    assert not list(tmp_path.iterdir())  # nothing was drawn, charged or written
    status, out, _ = run("release", *words, "--no-guarantee")
    assert status == 0 and "no guarantee (epsilon = infinity" in " ".join(out.split())


def test_release_of_a_fleet_protects_a_participant(run, tmp_path):
    rng = np.random.default_rng(0)
    stamps = np.datetime64("2018-06-01T00:00") + np.arange(96 * 20) * np.timedelta64(15, "m")
    kw = np.maximum(
        5 + 4 * np.sin(np.arange(len(stamps))[:, None] / 15 + np.arange(30)) + rng.normal(0, 1.5, (1920, 30)), 0
    )
    lines = [f"{t},{','.join(f'{x:.2f}' for x in row)}" for t, row in zip(stamps, kw, strict=True)]
    wide = tmp_path / "wide.csv"
    wide.write_text("timestamp," + ",".join(f"home{i} (kW)" for i in range(30)) + "\n" + "\n".join(lines) + "\n")
    words = ["--fleet", wide, "--unit", "kW", "--stamp", "start", "--privacy", "gaussian:epsilon=4", "--seed", 1]
    words += ["--output", tmp_path / "g.json", "--ledger", tmp_path / "l.jsonl"]
    status, _, err = run("release", *words)
    assert status == 2 and "--edges is missing" in err  # no level edge is taken from private data
    status, out, err = run("release", *words, "--edges", 0, 3, 5, 7, 12)
    out = " ".join(out.split())
    assert status == 0, err
    assert "(4, 1e-06)-approximate" in out and "everything that one participant ever contributed" in out
    assert "A seeded release is NOT private" in out and Release.load(tmp_path / "g.json").seeding == "seed"
    assert Release.load(tmp_path / "g.json").matrix.shape == (4, 4)
    others = ["--output", tmp_path / "h.json", "--ledger", tmp_path / "l.jsonl"]
    assert "with --fleet" in run("release", *others, "--privacy", "gaussian:epsilon=4", "--seed", 1)[2]
    assert "--edges bounds the levels of a fleet" in run("release", *others, "--edges", 1, 2)[2]


def test_audit_gives_the_verdicts_and_reports_a_false_claim(run, monkeypatch):
    status, out, err = run("audit", "--draws", 30_000, "--samples", 4)
    assert status == 0 and "NOT" not in out, out + err
    assert all(words in out for words in ("below the claim", "caught", "unbounded", "tracks the sum"))
    real = attacks.DirichletMechanism
    monkeypatch.setattr(attacks, "DirichletMechanism", lambda k, floor=0.0: real(4 * k, floor))
    status, out, _ = run("audit", "--draws", 30_000, "--samples", 4)
    assert status == 1 and "NOT below the claim" in out


def test_audit_of_participants_gives_the_verdicts(run):
    status, out, err = run("audit", "--participants", 60, "--privacy", "laplace:epsilon=2", "--draws", 200)
    assert status == 0, out + err
    assert "epsilon at delta=0 of laplace:epsilon=2, for one participant among 60" in out
    rows = [line for line in out.splitlines() if "held" in line or "caught" in line]
    assert len(rows) == 7 and all("unbounded" in line for line in rows[4:])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["guarantee", "--k", "-1"], "k must be a positive finite number, got -1.0"),
        (["release", "--output", "x.txt", "--ledger", "l"], "needs the ending .json or .npz"),
        (["release", "--privacy", "dirichlet:k=50,floor=0.3", "--output", "x.npz", "--ledger", "l"], "floor=0.3 can"),
        (["audit", "--draws", "1"], "draws must be at least 4"),
        (["audit", "--privacy", "gaussian:epsilon=1"], "--participants 60"),
        (["frontier", "--mechanisms", "gausian"], "did you mean 'gaussian'"),
        (["regret", "--learner", "z-lerning"], "did you mean 'z-learning'"),
        (["regret", "--participants", "0", "--specs", "gaussian:epsilon=1"], "--participants is 0"),
        (["audti"], "did you mean 'privacy audit'"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(run, words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(*words)
    assert status == 2 and sentence in err and "Traceback" not in err
    assert not list(tmp_path.glob("x.*"))
