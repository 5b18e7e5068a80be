"""The ledger: what releases add up to, what it refuses, and what survives an interruption."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from dp_ensemble_env.privacy import (
    DirichletMechanism,
    PrivacyBudgetExceeded,
    PrivacyLedger,
    Release,
    ReleasePlan,
    RowGroup,
    adjacency_from_counts,
    composed_epsilon,
    floorless_report,
    privacy_cost,
    reachable_settings,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy import ledger as ledger_module
from dp_ensemble_env.privacy.accounting import account as account_module
from dp_ensemble_env.privacy.statement import DETERMINISTIC, NO_FLOOR, PRIVATE_MARK

DEFAULT = np.array([[0.5, 0.3, 0.2], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])
MECHANISM = DirichletMechanism(k=50, floor=0.1)
PLAN = ReleasePlan.of(MECHANISM, DEFAULT)
GROUPS = [
    RowGroup(50, 0.1, 0.7 * 0.03),
    RowGroup(50, 0.1, 0.8 * 0.03),
]  # (1 − floor·successors) h; the last row is free


ROOT = str(Path(__file__).resolve().parents[2])
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}


# ------------------------------------------------------------------ composition
def test_rows_are_charged_after_the_floor_has_shrunk_h():
    ledger = PrivacyLedger().record(PLAN, 0.03)
    assert PLAN.successors == (3, 2, 1)
    assert ledger.spent(1e-6) == pytest.approx(composed_epsilon(1e-6, GROUPS), rel=1e-12)
    assert ledger.spent(1e-6, rows="sequential") == ledger.spent(1e-6, rows=2) == ledger.spent(1e-6, rows=99)
    assert ledger.spent(1e-6, rows="parallel") == pytest.approx(worst_case_epsilon(1e-6, 50, 0.024, 0.1))
    assert ledger.spent(1e-6, rows=1) == ledger.spent(1e-6, rows="parallel")


def test_the_adjacency_of_the_floored_rows_is_what_is_charged():
    """Independent of the formula: floor two adjacent matrices and measure them."""
    moved = DEFAULT.copy()
    moved[0] += [-0.015, 0.015, 0.0]
    moved[1] += [-0.015, 0.015, 0.0]
    distance = np.abs(MECHANISM.floored(DEFAULT) - MECHANISM.floored(moved)).sum(axis=1)
    assert distance.tolist() == pytest.approx([0.021, 0.024, 0.0])
    assert sorted(distance[:2]) == pytest.approx(sorted(group.h for group in GROUPS))


def test_a_release_and_its_plan_cost_the_same_and_n_samples_are_n_releases():
    release = MECHANISM.release(DEFAULT)
    one = PrivacyLedger().record(release, 0.03)
    assert one.spent(1e-6) == PrivacyLedger().record(PLAN, 0.03).spent(1e-6)
    many = PrivacyLedger()
    for episode in range(7):
        many.record(PLAN, 0.03, label=f"episode {episode}")
    assert many.releases == 7
    assert many.spent(1e-6) == PrivacyLedger().record(PLAN, 0.03, times=7).spent(1e-6)
    assert many.spent(1e-6) == pytest.approx(composed_epsilon(1e-6, [g._replace(number=7) for g in GROUPS]))
    assert many.spent(1e-6) > 2 * one.spent(1e-6)


def test_different_releases_compose():
    ledger = PrivacyLedger().record(PLAN, 0.03).record(ReleasePlan(10, 0.05, (3, 2, 1)), [0.02, 0.01, 0.5])
    extra = [RowGroup(10, 0.05, 0.85 * 0.02), RowGroup(10, 0.05, 0.9 * 0.01)]
    assert ledger.spent(1e-6) == pytest.approx(composed_epsilon(1e-6, GROUPS + extra))


def test_time_dependent_matrices_and_free_rows():
    stack = np.stack([DEFAULT, DEFAULT])
    plan = ReleasePlan.of(MECHANISM, stack)
    assert plan.successors == (3, 2, 1, 3, 2, 1)
    twice = [g._replace(number=2) for g in GROUPS]
    assert PrivacyLedger().record(plan, 0.03).spent(1e-6) == pytest.approx(composed_epsilon(1e-6, twice))
    assert PrivacyLedger().record(plan, [0.03] * 3).spent(1e-6) == pytest.approx(composed_epsilon(1e-6, twice))
    assert (
        PrivacyLedger().record(ReleasePlan(50, 0.0, (1, 1))).spent(1e-6) == 0.0
    )  # one successor each: nothing to learn
    assert PrivacyLedger().record(ReleasePlan(50, 0.5, (2, 2))).spent(1e-6) == 0.0  # the floor leaves only uniform rows
    with pytest.raises(ValueError, match="h has 4 values for 6 rows"):
        PrivacyLedger().record(plan, [0.03] * 4)


def test_what_is_not_a_release():
    ledger = PrivacyLedger().record(PLAN, 0.03)
    spent = ledger.spent(1e-6)
    ledger.record_post_processing("Taylor policy of the released matrix")
    assert ledger.spent(1e-6) == spent and math.isfinite(spent)
    ledger.record_deterministic("Taylor policy of the true matrix")  # E8
    assert ledger.spent(1e-6) == ledger.spent(0.99) == math.inf
    assert DETERMINISTIC in ledger.statement() and "no guarantee" in ledger.statement()
    with pytest.raises(ValueError, match="record takes a Release or an Event"):
        ledger.record(DEFAULT, 0.03)
    assert PrivacyLedger().spent(1e-6) == 0.0 and "nothing was released" in PrivacyLedger().statement()


# ------------------------------------------------------------------ budget
def test_a_release_over_budget_is_refused_before_it_is_drawn(tmp_path):
    once = PrivacyLedger().record(PLAN, 0.03).spent(1e-6)
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", budget=(1.1 * once, 1e-6))
    rng = np.random.default_rng(0)
    assert isinstance(ledger.release(MECHANISM, DEFAULT, rng, h=0.03), Release)
    state, content = rng.bit_generator.state, (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(PrivacyBudgetExceeded, match="above the budget"):
        ledger.release(MECHANISM, DEFAULT, rng, h=0.03)
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.authorize(PLAN, 0.03)
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.check(PLAN, 0.03)
    assert rng.bit_generator.state == state  # nothing was drawn
    assert (tmp_path / "ledger.jsonl").read_bytes() == content and ledger.releases == 1
    assert issubclass(PrivacyBudgetExceeded, ValueError)


def test_a_drawn_release_is_recorded_even_if_it_overspends():
    ledger = PrivacyLedger(budget=(0.01, 1e-6))
    with pytest.raises(PrivacyBudgetExceeded, match="drawn already and is on record"):
        ledger.record(MECHANISM.release(DEFAULT), 0.03)
    assert ledger.releases == 1


def test_without_a_floor_every_budget_refuses():
    with pytest.raises(PrivacyBudgetExceeded, match="set a floor"):
        PrivacyLedger(budget=(1e9, 0.5)).record(ReleasePlan(50, 0.0, (3, 2)), 0.03)


def test_the_budget_stops_at_the_right_number_of_draws_and_composes_rarely(monkeypatch):
    plan = ReleasePlan(5, 0.1, (3, 3, 2))
    budget = (PrivacyLedger().record(plan, 0.03, times=300).spent(1e-6) * 1.0000001, 1e-6)
    calls = []
    real = account_module.total_epsilon
    monkeypatch.setattr(account_module, "total_epsilon", lambda *a: calls.append(1) or real(*a))
    ledger = PrivacyLedger(budget=budget)
    for episode in range(300):
        ledger.authorize(plan, 0.03)
        ledger.record(plan, 0.03, label=f"episode {episode}")
    assert len(calls) < 40
    with pytest.raises(PrivacyBudgetExceeded):
        ledger.authorize(plan, 0.03)
    assert ledger.releases == 300 and ledger.spent(1e-6) <= budget[0]


def test_thousands_of_records_compose_once(monkeypatch):
    calls = []
    real = account_module.total_epsilon
    monkeypatch.setattr(account_module, "total_epsilon", lambda *a: calls.append(1) or real(*a))
    ledger = PrivacyLedger()
    for _ in range(5000):
        ledger.record(PLAN, 0.03)
    assert not calls and len(ledger.entries) == 1
    assert ledger.spent(1e-6) == pytest.approx(composed_epsilon(1e-6, [g._replace(number=5000) for g in GROUPS]))
    assert len(calls) == 1


# ------------------------------------------------------------------ the file
def test_the_file_keeps_everything(tmp_path):
    path = tmp_path / "deep" / "ledger.jsonl"
    ledger = PrivacyLedger(path, budget=(50.0, 1e-6), rows=2, h=0.02)
    ledger.record(PLAN, label="first").record(PLAN, 0.03, "second", times=3).record_post_processing("solve")
    again = PrivacyLedger(path)
    assert again.entries == ledger.entries and again.budget == (50.0, 1e-6) and again.rows == 2 and again.h == 0.02
    assert again.spent(1e-6) == ledger.spent(1e-6)
    ledger.record(PLAN, 0.03)  # one object sees what another wrote
    assert again.releases == ledger.releases == 5
    with pytest.raises(ValueError, match="has the budget"):
        PrivacyLedger(path, budget=(60.0, 1e-6))


def test_a_budget_given_later_is_written_without_losing_entries(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first = PrivacyLedger(path).record(PLAN, 0.03)
    PrivacyLedger(path, budget=(30.0, 1e-6)).record(PLAN, 0.03)
    assert first.releases == 2 and first.budget == (30.0, 1e-6)  # the replaced file is read anew
    assert PrivacyLedger(path).releases == 2


def test_a_line_cut_short_loses_only_itself(tmp_path):
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(path).record(PLAN, 0.03, "one").record(PLAN, 0.02, "two")
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in (last + 1, last + 40, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.warns(RuntimeWarning, match="cut short"):
            ledger = PrivacyLedger(path)
        assert [label for label, *_ in ledger.entries] == ["one"]
        ledger.record(PLAN, 0.02, "two")
        assert path.read_bytes() == whole


def test_a_failed_write_is_not_counted_and_draws_nothing(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    ledger = PrivacyLedger(path).record(PLAN, 0.03)
    real = os.write

    def full_disk(handle, data):
        real(handle, bytes(data)[:20])
        raise OSError(28, "No space left on device")

    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    monkeypatch.setattr(ledger_module._journal.os, "write", full_disk)
    with pytest.raises(OSError, match="No space left"):
        ledger.release(MECHANISM, DEFAULT, rng, h=0.03)
    monkeypatch.setattr(ledger_module._journal.os, "write", real)
    assert rng.bit_generator.state == state
    with pytest.warns(RuntimeWarning, match="cut short"):
        assert ledger.releases == 1
    assert ledger.record(PLAN, 0.03).releases == PrivacyLedger(path).releases == 2


def test_a_killed_process_loses_nothing_it_had_recorded(tmp_path):
    path = tmp_path / "ledger.jsonl"
    code = (
        "import sys; from dp_ensemble_env.privacy import PrivacyLedger, ReleasePlan\n"
        "ledger = PrivacyLedger(sys.argv[1])\n"
        "for i in range(100000):\n"
        "    ledger.record(ReleasePlan(50, .1, (3, 2)), .03, str(i)); print(i, flush=True)"
    )
    command = [sys.executable, "-c", code, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stdout is not None
    confirmed = -1
    for line in process.stdout:
        confirmed = int(line)
        if confirmed == 50:
            process.kill()
    process.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the line being written may be torn
        labels = [int(label) for label, *_ in PrivacyLedger(path).entries]
    assert confirmed >= 50 and labels == list(range(len(labels))) and len(labels) >= confirmed + 1


def test_processes_that_share_a_file_do_not_overspend(tmp_path):
    path = tmp_path / "ledger.jsonl"
    plan = ReleasePlan(5, 0.1, (3, 2))
    budget = PrivacyLedger().record(plan, 0.03, times=12).spent(1e-6) * 1.0000001
    PrivacyLedger(path, budget=(budget, 1e-6))
    code = (
        "import sys\n"
        "from dp_ensemble_env.privacy import PrivacyLedger, ReleasePlan, PrivacyBudgetExceeded\n"
        "ledger, done = PrivacyLedger(sys.argv[1]), 0\n"
        "for i in range(10):\n"
        "    try: ledger.record(ReleasePlan(5, .1, (3, 2)), .03); done += 1\n"
        "    except PrivacyBudgetExceeded: pass\n"
        "print(done)"
    )
    command = [sys.executable, "-c", code, str(path)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) for _ in range(2)]
    done = [int(worker.communicate()[0]) for worker in workers]
    assert sum(done) == 12 == PrivacyLedger(path).releases


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(path).record(PLAN, 0.03, "a").record(PLAN, 0.02, "b")
    lines = path.read_text().splitlines()
    wrong = (lines[1].replace('"k": 50.0', '"k": -1'), lines[1].replace('"times": 1', '"times": 0'))
    for bad in ("{}", "nonsense", *wrong):
        path.write_text("\n".join([lines[0], bad, lines[2]]) + "\n")
        with pytest.raises(ValueError, match="entry 2 of the ledger"):
            PrivacyLedger(path)
    for content in ("", "hello\n", "[1]\n", '{"format": "other"}\n'):
        path.write_text(content)
        with pytest.raises(ValueError, match="is no dp-ensemble-ledger of version 1 or 2"):
            PrivacyLedger(path)
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(ValueError):
        PrivacyLedger(path)


def test_json_pickle_and_deepcopy():
    ledger = PrivacyLedger(budget=(99.0, 1e-6), rows="parallel").record(PLAN, 0.03, "x", times=2)
    ledger.record(PLAN, [0.1, 0.2, 0.3])
    for twin in (PrivacyLedger.from_json(ledger.to_json()), pickle.loads(pickle.dumps(ledger)), copy.deepcopy(ledger)):
        assert twin.entries == ledger.entries and twin.budget == ledger.budget and twin.rows == ledger.rows
        assert twin.spent(1e-6) == ledger.spent(1e-6) and twin.statement() == ledger.statement()
        twin.record(PLAN, 0.03)
        assert twin.releases == ledger.releases + 1
    for text in ("", "{}", "[]", '{"format": "dp-ensemble-ledger", "version": 1}'):
        with pytest.raises(ValueError, match="no ledger"):
            PrivacyLedger.from_json(text)


def test_a_copy_with_a_file_keeps_writing_to_it(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl").record(PLAN, 0.03)
    twin = pickle.loads(pickle.dumps(ledger)).record(PLAN, 0.03)
    assert ledger.releases == twin.releases == PrivacyLedger(tmp_path / "ledger.jsonl").releases == 2


def test_nothing_of_the_matrix_is_kept_but_its_support():
    other = np.array([[0.11, 0.88, 0.01], [0.9, 0.1, 0.0], [0.0, 0.0, 1.0]])
    texts = []
    for matrix in (DEFAULT, other):
        ledger = PrivacyLedger()
        release = ledger.release(MECHANISM, matrix, h=0.03)
        texts.append((ledger.to_json(), ledger.statement()))
        assert ledger.to_json().count(release.digest) == 1  # a hash of what was published
        texts[-1] = (texts[-1][0].replace(release.digest, ""), texts[-1][1])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("budget", [1.0, (1.0,), (0.0, 0.1), (1.0, 1.5), ("a", "b")])
def test_bad_budgets(budget):
    with pytest.raises(ValueError, match="budget|delta"):
        PrivacyLedger(budget=budget)


def test_bad_settings():
    with pytest.raises(ValueError, match="did you mean 'sequential'"):
        PrivacyLedger(rows="sequentiel")
    with pytest.raises(ValueError, match="h must be a number"):
        PrivacyLedger().record(PLAN, 3.0)
    with pytest.raises(ValueError, match="does not fit rows of 3"):
        ReleasePlan(50, 0.4, (3, 2))
    with pytest.raises(ValueError, match="floor=0.4 cannot hold"):  # refused before it is charged
        PrivacyLedger().release(DirichletMechanism(50, 0.4), DEFAULT)


# ------------------------------------------------------------------ the printed line
def test_the_line_with_a_floor():
    line = PrivacyLedger(budget=(20.0, 1e-6)).record(PLAN, 0.03).statement()
    spent = PrivacyLedger().record(PLAN, 0.03).spent(1e-6)
    assert line.startswith(f"Privacy: ({spent:.4g}, 1e-06)-approximate differential privacy for 1 release at k=50")
    for part in ("two entries by h=0.03", "all 2 drawn rows composed", "public support and floor 0.1"):
        assert part in line
    assert f"{20 - spent:.4g} left" in line
    assert "\n" not in line and "seed" not in line
    assert "one row of each matrix" in PrivacyLedger().record(PLAN, 0.03).statement(0.05, rows="parallel")


@pytest.mark.parametrize("rng", [0, np.random.default_rng(0)])
def test_a_seeded_release_says_so_in_every_line(rng):
    ledger = PrivacyLedger()
    ledger.release(MECHANISM, DEFAULT, rng, h=0.03)
    assert "not private against whoever knows the seed" in ledger.statement()


def test_the_line_without_a_floor(campus):
    ledger = PrivacyLedger()
    ledger.release(DirichletMechanism(50), campus.default, h=0.03)
    assert ledger.spent(0.05) == math.inf
    short = ledger.statement()
    assert "no guarantee (epsilon = infinity" in short and NO_FLOOR in short and PRIVATE_MARK not in short
    full = ledger.statement(model=campus, target=(15.0, 1e-6))
    smallest = campus.default[campus.default > 0].min()
    assert f"of {smallest:.3g}" in full and "supports no epsilon" in full
    assert "To reach (15, 1e-06) on this matrix: floor=" in full and "per building and event" in full
    assert full.count(PRIVATE_MARK) == 2  # both numbers that depend on the matrix
    hopeless = ledger.statement(model=campus, target=(0.01, 1e-6))
    assert "No k reaches (0.01, 1e-06) on this matrix" in hopeless and hopeless.count(PRIVATE_MARK) == 2


def test_what_the_smallest_entry_would_support():
    matrix = np.array([[0.7, 0.3], [0.2, 0.8]])
    report = floorless_report(matrix, 50, 0.03, 1e-6)
    assert report.entry == (1, 0) and report.smallest == 0.2 and report.rows == 2
    assert report.epsilon == pytest.approx(composed_epsilon(1e-6, [RowGroup(50, 0.2 - 0.015, 0.03, 2)]))
    assert "were it public" in str(report) and PRIVATE_MARK in str(report)
    none = floorless_report(matrix, 50, 0.4, 1e-6)  # 0.2 = h/2: the entry would vanish
    assert none.epsilon == math.inf and none.without_neighbour == 1
    by_row = floorless_report(matrix, 50, [0.5, 0.01], 1e-6)
    assert by_row.entry == (0, 1) and by_row.epsilon == pytest.approx(
        composed_epsilon(1e-6, [RowGroup(50, 0.05, 0.5), RowGroup(50, 0.05, 0.01)])
    )


def test_reachable_settings_reach_and_are_priced(campus):
    adjacency = adjacency_from_counts(np.rint(5000 * campus.default), 1)  # as if every row had been seen 5000 times
    for h in (0.03, adjacency):
        found = reachable_settings(campus, 20.0, 1e-6, h, draws=4, shares=(0.5, 0.95))
        assert found and [s.cost for s in found] == sorted(s.cost for s in found)
        for setting in found:
            ledger = PrivacyLedger()
            ledger.record(ReleasePlan.of(DirichletMechanism(setting.k, setting.floor), campus.default), h)
            assert 19.8 < ledger.spent(1e-6) <= 20.0
            assert f"${setting.cost:.2f}" in str(setting) and PRIVATE_MARK in str(setting)


def test_privacy_cost_against_the_performance_difference_identity(campus):
    """φ^π − φ* = E_π Σ γ KL(π ‖ π*): computed forwards here, backwards in the code."""
    from dp_ensemble_env.lsmdp import solve

    optimal = solve(campus.log_kernel, campus.utility, campus.discomfort_penalty).policy
    rng = np.random.default_rng(3)
    losses = []
    for _ in range(3):
        log_matrix = DirichletMechanism(60, 0.02).release(campus.default, rng).log_matrix
        policy = solve(log_matrix, campus.utility, campus.discomfort_penalty).policy
        occupancy, total = campus.initial.copy(), 0.0
        for t in range(campus.horizon):
            ratio = np.log(np.where(policy[t] > 0, policy[t], 1.0)) - np.log(np.where(optimal[t] > 0, optimal[t], 1.0))
            total += campus.discomfort_penalty * occupancy @ (policy[t] * ratio).sum(axis=1)
            occupancy = occupancy @ policy[t]
        losses.append(total)
    mean, error = privacy_cost(campus, 60, 0.02, draws=3, rng=np.random.default_rng(3))
    assert mean == pytest.approx(np.mean(losses), rel=1e-8)
    assert error == pytest.approx(np.std(losses, ddof=1) / math.sqrt(3), rel=1e-6)


def test_ledger_lines_are_plain_json(tmp_path):
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(path).record(PLAN, adjacency_from_counts(np.full((3, 3), 50), 1), "from counts")
    header, entry = (json.loads(line) for line in path.read_text().splitlines())
    assert header["format"] == "dp-ensemble-ledger" and entry["event"]["h_source"] == "counts"
    assert entry["event"]["entries"] == "any"
