"""The ledger: what releases add up to, what it refuses, and what survives an interruption."""

from __future__ import annotations

import copy
import dataclasses
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

from dp_ensemble_env.control.dynamics import default_kernel
from dp_ensemble_env.privacy import (
    DirichletEvent,
    DirichletMechanism,
    Fleet,
    PrivacyBudgetExceeded,
    PrivacyLedger,
    Release,
    RowGroup,
    adjacency_from_counts,
    composed_epsilon,
    floorless_report,
    journal,
    mechanism,
    privacy_cost,
    reachable_settings,
    require_guarantee,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy import ledger as account_module
from dp_ensemble_env.privacy.statement import DETERMINISTIC, NO_FLOOR, PRIVATE_MARK, TWO_UNITS

DEFAULT = np.array([[0.5, 0.3, 0.2], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])
MECHANISM = DirichletMechanism(k=50, floor=0.1)
PLAN = MECHANISM.event(DEFAULT)
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
    ledger = PrivacyLedger().record(PLAN, 0.03).record(DirichletEvent(10, 0.05, (3, 2, 1)), [0.02, 0.01, 0.5])
    extra = [RowGroup(10, 0.05, 0.85 * 0.02), RowGroup(10, 0.05, 0.9 * 0.01)]
    assert ledger.spent(1e-6) == pytest.approx(composed_epsilon(1e-6, GROUPS + extra))


def test_time_dependent_matrices_and_free_rows():
    stack = np.stack([DEFAULT, DEFAULT])
    plan = MECHANISM.event(stack)
    assert plan.successors == (3, 2, 1, 3, 2, 1)
    twice = [g._replace(number=2) for g in GROUPS]
    assert PrivacyLedger().record(plan, 0.03).spent(1e-6) == pytest.approx(composed_epsilon(1e-6, twice))
    assert PrivacyLedger().record(plan, [0.03] * 3).spent(1e-6) == pytest.approx(composed_epsilon(1e-6, twice))
    assert (
        PrivacyLedger().record(DirichletEvent(50, 0.0, (1, 1))).spent(1e-6) == 0.0
    )  # one successor each: nothing to learn
    uniform = DirichletEvent(50, 0.5, (2, 2))  # the floor leaves only uniform rows
    assert PrivacyLedger().record(uniform).spent(1e-6) == 0.0
    with pytest.raises(ValueError, match="h has 4 values for 6 rows"):
        PrivacyLedger().record(plan, [0.03] * 4)


@pytest.mark.parametrize("rows", ["parallel", 1, 2])
def test_a_unit_touches_rows_of_every_time_of_a_time_varying_matrix(rows):
    """Three times of one matrix cost what three releases of it cost, however rows compose within one."""
    stack = np.stack([DEFAULT] * 3)
    whole = PrivacyLedger(rows=rows).record(MECHANISM.event(stack), 0.03)
    thrice = PrivacyLedger(rows=rows).record(PLAN, 0.03, times=3)
    assert whole.spent(1e-6) == thrice.spent(1e-6) > 1.5 * PrivacyLedger(rows=rows).record(PLAN, 0.03).spent(1e-6)
    # The worst row of each time, not the two worst of all, which both belong to the first time.
    mixed = DirichletEvent(50, 0.1, (2, 3, 3, 2), [0.05, 0.05, 0.01, 0.01], steps=2)
    groups = [RowGroup(50, 0.1, 0.8 * 0.05), RowGroup(50, 0.1, 0.8 * 0.01)]
    assert PrivacyLedger().record(mixed).spent(1e-6, rows="parallel") == pytest.approx(composed_epsilon(1e-6, groups))
    with pytest.raises(ValueError, match="4 rows cannot belong to 3 matrices"):
        DirichletEvent(50, 0.1, (2, 3, 3, 2), steps=3)


def test_a_disclosure_exceeds_any_finite_budget_and_stays_on_record(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = PrivacyLedger(path, budget=(1e300, 0.999))
    with pytest.raises(PrivacyBudgetExceeded, match="the disclosure is on record, but .*epsilon=inf"):
        ledger.record_deterministic("Taylor policy of the true matrix")
    assert PrivacyLedger(path).spent(0.999) == math.inf and PrivacyLedger(path).remaining() == 0.0
    with pytest.raises(PrivacyBudgetExceeded):  # nothing fits any more
        PrivacyLedger(path).record(DirichletEvent(1e-6, 0.3, (3, 2)), 1e-6)
    PrivacyLedger(path).record_post_processing("a plan made on an earlier release")


def test_different_h_k_and_floor_are_different_entries():
    ledger = PrivacyLedger()
    for k, floor, h in ((50, 0.1, 0.03), (50, 0.1, 0.02), (50, 0.05, 0.03), (60, 0.1, 0.03), (50, 0.1, 0.03)):
        ledger.release(DirichletMechanism(k, floor), DEFAULT, 0, h=h)
    assert ledger.releases == 5 and len(ledger.charges) == 4


def test_a_draw_without_a_guarantee_is_refused_where_one_is_required():
    event = MECHANISM.event(DEFAULT, h=0.03)
    assert require_guarantee(event, 1e-6) == PrivacyLedger().record(event).spent(1e-6)
    assert require_guarantee(MECHANISM.event(DEFAULT), 1e-6, h=0.01) < require_guarantee(event, 1e-6)
    with pytest.raises(ValueError, match=r"k=50, floor=0\) has no epsilon that holds for all inputs .* set a floor"):
        require_guarantee(DirichletMechanism(50).event(DEFAULT), 1e-6)
    assert PrivacyLedger.of_process().releases == 0


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
        PrivacyLedger(budget=(1e9, 0.5)).record(DirichletEvent(50, 0.0, (3, 2)), 0.03)


def test_the_budget_stops_at_the_right_number_of_draws_and_composes_rarely(monkeypatch):
    plan = DirichletEvent(5, 0.1, (3, 3, 2))
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


def test_what_is_known_to_fit_is_not_composed_again(monkeypatch):
    one = PrivacyLedger().record(PLAN, 0.03).spent(1e-6)
    account, event = account_module.Account(budget=(3.5 * one, 1e-6)), PLAN.under(0.03)
    last = next(times for times in range(1, 99) if account._fits(event, times) and not account._fits(event, times + 1))
    assert account.excess(event, last) is None and account._known[event] == (last, last + 1)
    monkeypatch.setattr(account_module, "total_epsilon", lambda *a: pytest.fail("composed again"))
    assert all(account.excess(event, times) is None for times in range(1, last + 1))
    monkeypatch.setattr(account_module, "total_epsilon", lambda *a: 7.5)  # for the sentence alone
    assert account.excess(event, last + 1).startswith("would bring the total to epsilon=7.5")


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


def head_of(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def labels(path: Path) -> list[str]:
    return [label for label, *_ in PrivacyLedger(path).entries]


def three_entries(path: Path) -> list[str]:
    PrivacyLedger(path).record(PLAN, 0.03, "one").record(PLAN, 0.02, "two").record(PLAN, 0.01, "three")
    return path.read_text().splitlines(keepends=True)


@pytest.mark.parametrize(("name", "own", "other"), [("rows", "sequential", "parallel"), ("h", 0.03, 0.5)])
def test_another_composition_or_adjacency_than_that_of_the_file_is_refused(tmp_path, name, own, other):
    """What was asked for is never replaced by what the file has without a word: a small h would undercount."""
    path = tmp_path / "ledger.jsonl"
    PrivacyLedger(path)
    with pytest.raises(ValueError, match=f"has {name}=.*not.*open it without {name}"):
        PrivacyLedger(path, **{name: other})
    assert getattr(PrivacyLedger(path, **{name: own}), name) == own
    second = tmp_path / "second.jsonl"
    PrivacyLedger(second, **{name: other})
    assert getattr(PrivacyLedger(second), name) == other


def test_a_permit_pays_for_no_more_draws_than_were_charged():
    ledger, plan = PrivacyLedger(), MECHANISM.event(DEFAULT)
    permit = ledger.charge(plan)
    MECHANISM.draw(DEFAULT, permit)
    with pytest.raises(ValueError, match="permit was for 1 draw, made already; charge the next one"):
        MECHANISM.draw(DEFAULT, permit)
    permit = ledger.charge(plan, times=2)
    first, second = MECHANISM.draw(DEFAULT, permit), MECHANISM.draw(DEFAULT, permit)
    assert first.digest != second.digest and ledger.releases == 3
    with pytest.raises(ValueError, match="2 draws, made already"):
        MECHANISM.draw(DEFAULT, permit)


def test_a_missing_final_newline_loses_nothing(tmp_path):
    path = tmp_path / "ledger.jsonl"
    whole = "".join(three_entries(path))
    alive = PrivacyLedger(path)
    path.write_text(whole[:-1])
    assert labels(path) == ["one", "two", "three"] and path.read_text() == whole  # the newline is put back
    path.write_text(whole[:-1])
    with pytest.raises(ValueError, match="shorter than it was"):
        alive.record(PLAN, 0.03)
    path.write_text(whole[:-1])
    PrivacyLedger(path).record(PLAN, 0.03, "four")
    assert labels(path) == ["one", "two", "three", "four"] and alive.releases == 4


def test_a_line_cut_short_is_dropped_only_if_its_draw_was_never_confirmed(tmp_path):
    path = tmp_path / "ledger.jsonl"
    lines = three_entries(path)
    whole, confirmed = "".join(lines), head_of(path).read_text()
    before = PrivacyLedger(tmp_path / "two.jsonl").record(PLAN, 0.03, "one").record(PLAN, 0.02, "two")
    unconfirmed = head_of(before.path).read_text()  # the head as it stands while the third line is being written
    for cut in (1, 40, len(lines[3]) - 2):
        path.write_text("".join(lines[:3]) + lines[3][:cut])
        head_of(path).write_text(confirmed)
        with pytest.raises(ValueError, match="entry 4 of the ledger .* is cut short; restore"):
            PrivacyLedger(path)
        head_of(path).write_text(unconfirmed)
        with pytest.warns(UserWarning, match="cut short .* before its draw was made"):
            ledger = PrivacyLedger(path)
        assert [label for label, *_ in ledger.entries] == ["one", "two"]
        ledger.record(PLAN, 0.01, "three")
        assert path.read_text() == whole and head_of(path).read_text() == confirmed
    path.write_text(whole)  # written, but the process was killed before it wrote the head: counted
    head_of(path).write_text(unconfirmed)
    assert labels(path) == ["one", "two", "three"] and head_of(path).read_text() == confirmed


def tampered(lines: list[str]) -> dict[str, tuple[list[str], str]]:
    one, two, three = lines[1:]
    return {
        "edited": ([lines[0], one, two.replace('"times": 1', '"times": 0'), three], "entry 3 .* it was edited"),
        "cheaper": ([lines[0], one.replace('"k": 50.0', '"k": 5.0'), two, three], "entry 2 .* it was edited"),
        "unlabelled": ([lines[0], one, two.replace('"two"', '"zwei"'), three], "entry 3 .* it was edited"),
        "budget": ([lines[0].replace('"h": 0.03', '"h": 0.01'), one, two, three], "entry 1 .* it was edited"),
        "deleted": ([lines[0], one, three], "entry 3 .* lines before it were deleted or moved"),
        "reordered": ([lines[0], two, one, three], "entry 2 .* lines before it were deleted or moved"),
        "repeated": ([lines[0], one, one, two, three], "entry 3 .* lines before it were deleted or moved"),
        "beheaded": (lines[1:], "is no dp-ensemble-ledger|entry 1 .* edited"),
        "end gone": (lines[:-1], "ends after 3 lines, but its head counts 4: the last ones were deleted"),
        "all gone": (lines[:1], "ends after 1 lines, but its head counts 4"),
        "end edited": ([*lines[:3], three.replace('"times": 1', '"times": 2')], "entry 4 .* it was edited"),
        "no digest": ([lines[0], one, '{"label": "", "times": 1, "event": {"type": "post-processing"}}\n'], "entry 3"),
        "nonsense": ([lines[0], "nonsense\n", two, three], "entry 2 of the ledger .* is damaged"),
        "empty": ([], "is no dp-ensemble-ledger of version 3"),
    }


@pytest.mark.parametrize("how", tampered(["", "", "", ""]))
def test_an_edited_deleted_or_reordered_entry_is_refused_with_its_remedy(tmp_path, how):
    path = tmp_path / "ledger.jsonl"
    lines = three_entries(path)
    content, message = tampered(lines)[how]
    assert content != lines
    path.write_text("".join(content))
    with pytest.raises(ValueError, match=f"(?s){message}") as error:
        PrivacyLedger(path)
    assert "restore the file and its .head from a copy" in str(error.value) or "name a new file" in str(error.value)
    path.write_text("".join(lines))
    assert labels(path) == ["one", "two", "three"]  # a copy puts it right


def test_another_history_of_the_same_length_is_not_what_the_head_knows(tmp_path):
    path, other = tmp_path / "ledger.jsonl", tmp_path / "other.jsonl"
    three_entries(path)
    PrivacyLedger(other).record(PLAN, 0.001, "x").record(PLAN, 0.001, "y").record(PLAN, 0.001, "z")
    path.write_bytes(other.read_bytes())
    with pytest.raises(ValueError, match="entry 4 of the ledger .* is not the one that its head knows"):
        PrivacyLedger(path)
    head_of(path).unlink()
    with pytest.raises(ValueError, match="has lost its head"):
        PrivacyLedger(path)
    head_of(path).write_text("{")
    with pytest.raises(ValueError, match="the head of the ledger .* is damaged"):
        PrivacyLedger(path)
    path.unlink()
    head_of(path).write_bytes(head_of(other).read_bytes())
    with pytest.raises(ValueError, match="is gone, but its head counts 4 lines"):
        PrivacyLedger(path)


def test_an_object_in_use_notices_that_its_file_shrank_or_changed(tmp_path):
    path = tmp_path / "ledger.jsonl"
    lines = three_entries(path)
    ledger = PrivacyLedger(path)
    path.write_text("".join(lines[:3]))
    uses = (lambda: ledger.spent(1e-6), lambda: ledger.record(PLAN, 0.03), lambda: ledger.release(MECHANISM, DEFAULT))
    for use in uses:
        with pytest.raises(ValueError, match="shorter than it was"):
            use()
    path.write_text("".join(lines) + lines[1])
    with pytest.raises(ValueError, match="entry 5"):
        ledger.record(PLAN, 0.03)


HEADER = {"format": "dp-ensemble-ledger", "version": 3, "budget": [90.0, 1e-06], "rows": "sequential", "h": 0.03}


@pytest.mark.parametrize("version", [1, 2, 4, "3", None])
def test_another_version_is_no_ledger(tmp_path, version):
    path = tmp_path / "ledger.jsonl"
    journal.replace(path, [{**HEADER, "version": version}])
    with pytest.raises(ValueError, match="is no dp-ensemble-ledger of version 3; name a new file"):
        PrivacyLedger(path)


def test_a_file_without_digests_is_refused_even_with_a_head(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text(json.dumps(HEADER) + "\n")
    with pytest.raises(ValueError, match="has lost its head"):
        PrivacyLedger(path)
    head_of(path).write_text(json.dumps({"entries": 1, "chain": ""}))
    with pytest.raises(ValueError, match="entry 1 of the ledger .* is damaged"):
        PrivacyLedger(path)


@pytest.mark.parametrize("name", ["budget", "rows", "h"])
def test_a_header_that_lacks_a_field_is_refused_in_one_sentence(tmp_path, name):
    path = tmp_path / "ledger.jsonl"
    journal.replace(path, [{key: value for key, value in HEADER.items() if key != name}])
    with pytest.raises(ValueError, match=f"the first line of the ledger .* has no '{name}'; restore"):
        PrivacyLedger(path)


KILLED = """
import os, sys
from pathlib import Path
import numpy as np
from dp_ensemble_env.privacy import DirichletMechanism, PrivacyLedger

folder, start = Path(sys.argv[1]), sys.argv[2]
default = np.array([[0.5, 0.3, 0.2], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])

def use(path):
    if start == "old":
        PrivacyLedger(path).save(path)  # writes the whole file anew
    ledger = PrivacyLedger(path)
    for _ in range(2):
        ledger.release(DirichletMechanism(50, 0.1), default, h=0.03)
        path.with_suffix(".drawn").open("a").write("x")

def kill_at(point):
    count = [0]
    def watch(name, real):
        def wrapped(*args, **kwargs):
            count[0] += 1
            if count[0] == point:
                if name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])  # torn in the middle
                os._exit(9)
            result = real(*args, **kwargs)
            return result
        return wrapped
    for name in ("open", "write", "fsync", "replace", "truncate", "close"):
        setattr(os, name, watch(name, getattr(os, name)))

point = 0
while True:
    point += 1
    path = folder / f"{point}.jsonl"
    if start == "old":
        for _ in range(2):
            PrivacyLedger(path).release(DirichletMechanism(50, 0.1), default, h=0.03)
    child = os.fork()
    if child == 0:
        kill_at(point)
        use(path)
        os._exit(0)
    if os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 0:
        break
print(point)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("start", ["new", "old"])
def test_killed_at_every_system_call_it_never_undercounts(tmp_path, start):
    """The process dies before, or in the middle of, each of its calls in turn; whatever was drawn is on record."""
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path), start]
    points = int(subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT).stdout)
    assert points > 25
    before, seen = (2 if start == "old" else 0), set()
    for point in range(1, points + 1):
        path = tmp_path / f"{point}.jsonl"
        marks = path.with_suffix(".drawn")
        drawn = len(marks.read_text()) if marks.exists() else 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = PrivacyLedger(path).releases - before  # never refused, and never too few
            assert drawn <= found <= drawn + 1
            seen.add((drawn, found))
            assert PrivacyLedger(path).record(PLAN, 0.03).releases == before + found + 1 == PrivacyLedger(path).releases
    assert seen == {(0, 0), (0, 1), (1, 1), (1, 2), (2, 2)}


def test_a_failed_write_is_not_counted_and_draws_nothing(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    ledger = PrivacyLedger(path).record(PLAN, 0.03)
    real = os.write

    def full_disk(handle, data):
        real(handle, bytes(data)[:20])
        raise OSError(28, "No space left on device")

    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    monkeypatch.setattr(journal.os, "write", full_disk)
    with pytest.raises(ValueError, match="the disk is full; make room"):
        ledger.release(MECHANISM, DEFAULT, rng, h=0.03)
    monkeypatch.setattr(journal.os, "write", real)
    assert rng.bit_generator.state == state
    with pytest.warns(UserWarning, match="cut short"):
        assert ledger.releases == 1
    assert ledger.record(PLAN, 0.03).releases == PrivacyLedger(path).releases == 2


def test_a_killed_process_loses_nothing_it_had_recorded(tmp_path):
    path = tmp_path / "ledger.jsonl"
    code = (
        "import sys; from dp_ensemble_env.privacy import PrivacyLedger, DirichletEvent\n"
        "ledger = PrivacyLedger(sys.argv[1])\n"
        "for i in range(100000):\n"
        "    ledger.record(DirichletEvent(50, .1, (3, 2)), .03, str(i)); print(i, flush=True)"
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
        warnings.simplefilter("ignore", UserWarning)  # the line being written may be torn
        found = [int(label) for label in labels(path)]
    assert confirmed >= 50 and found == list(range(len(found))) and len(found) >= confirmed + 1


def test_processes_that_share_a_file_do_not_overspend(tmp_path):
    path = tmp_path / "ledger.jsonl"
    plan = DirichletEvent(5, 0.1, (3, 2))
    budget = PrivacyLedger().record(plan, 0.03, times=12).spent(1e-6) * 1.0000001
    PrivacyLedger(path, budget=(budget, 1e-6))
    code = (
        "import sys\n"
        "from dp_ensemble_env.privacy import PrivacyLedger, DirichletEvent, PrivacyBudgetExceeded\n"
        "ledger, done = PrivacyLedger(sys.argv[1]), 0\n"
        "for i in range(10):\n"
        "    try: ledger.record(DirichletEvent(5, .1, (3, 2)), .03); done += 1\n"
        "    except PrivacyBudgetExceeded: pass\n"
        "print(done)"
    )
    command = [sys.executable, "-c", code, str(path)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) for _ in range(2)]
    done = [int(worker.communicate()[0]) for worker in workers]
    assert sum(done) == 12 == PrivacyLedger(path).releases


def test_processes_that_race_and_are_killed_never_undercount(tmp_path):
    path = tmp_path / "ledger.jsonl"
    code = (
        "import sys; from dp_ensemble_env.privacy import PrivacyLedger, DirichletEvent\n"
        "ledger = PrivacyLedger(sys.argv[1])\n"
        "for i in range(100000):\n"
        "    ledger.record(DirichletEvent(50, .1, (3, 2)), .03, sys.argv[2]); print(i, flush=True)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(path)]
    workers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) for name in "abc"]
    confirmed = []
    for worker, enough in zip(workers, (5, 15, 30), strict=True):  # killed one after the other, while the rest goes on
        assert worker.stdout is not None
        while int(worker.stdout.readline()) < enough:
            pass
        worker.kill()
        confirmed.append(max([enough, *(int(line) for line in worker.stdout.read().split())]) + 1)
        worker.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        entries = PrivacyLedger(path).entries
    for name, least in zip("abc", confirmed, strict=True):
        found = sum(times for label, _, times in entries if label == name)
        assert least <= found <= least + 1


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    for content in ("", "hello\n", "[1]\n", '{"format": "other"}\n'):
        path.write_text(content)
        with pytest.raises(ValueError, match="is no dp-ensemble-ledger of version 3"):
            PrivacyLedger(path)
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(ValueError, match="is no dp-ensemble-ledger"):
        PrivacyLedger(path)


def test_what_leaves_is_priced_under_the_ledgers_own_h():
    """Not under the paper's: a ledger that states a wider adjacency must not look cheaper elsewhere."""
    ledger = PrivacyLedger(h=0.1)
    default = [[0.6, 0.4], [0.3, 0.7]]
    event = dataclasses.replace(DirichletMechanism(50, 0.1).event(default).under(0.2), h_source="counts")
    away = PrivacyLedger.from_json(ledger.record(event).to_json())
    stated = PrivacyLedger(h=0.1).record(event.public)
    assert away.spent(1e-6) == stated.spent(1e-6) > PrivacyLedger(h=0.03).record(event.public).spent(1e-6)
    assert [one.h for one in away.charges] == [(0.1,)]


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


def test_what_leaves_goes_without_an_adjacency_that_was_computed_from_counts():
    ledger = PrivacyLedger().record(PLAN, adjacency_from_counts(np.full((3, 3), 5000), 1))
    away = PrivacyLedger.from_json(ledger.to_json())
    assert ledger.entries[0][1].h_source == "counts" and ledger.entries[0][1].h != (0.03,)
    assert away.entries[0][1].h == (0.03,)  # the ledger's own, which is public
    assert "adjacent rows differ in two entries by h=0.03" in away.statement()


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
        DirichletEvent(50, 0.4, (3, 2))
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


def test_a_sum_over_two_units_of_protection_says_whom_it_protects():
    fleet = Fleet.simulate(DEFAULT, participants=20, seed=0, steps=50)
    ledger = PrivacyLedger()
    ledger.release(mechanism("gaussian:epsilon=1"), fleet, 0)
    assert TWO_UNITS not in ledger.statement()
    ledger.record(PLAN, 0.03)
    assert TWO_UNITS in ledger.statement()


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
            ledger.record(DirichletMechanism(setting.k, setting.floor).event(campus.default), h)
            assert 19.8 < ledger.spent(1e-6) <= 20.0
            assert f"${setting.cost:.2f}" in str(setting) and PRIVATE_MARK in str(setting)


def test_privacy_cost_against_the_performance_difference_identity(campus):
    """φ^π − φ* = E_π Σ γ KL(π ‖ π*): computed forwards here, backwards in the code."""
    from dp_ensemble_env.control.lsmdp import solve

    optimal = solve(default_kernel(campus), campus.utility, campus.discomfort_penalty).policy
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
