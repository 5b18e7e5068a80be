"""Tests of `ledger`."""

from __future__ import annotations

import copy
import dataclasses
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
    DirichletEvent,
    DirichletMechanism,
    Fleet,
    PrivacyBudgetExceeded,
    PrivacyLedger,
    Release,
    RowGroup,
    composed_epsilon,
    journal,
    mechanism,
    require_guarantee,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting import compose as account_module

DEFAULT = np.array([[0.5, 0.3, 0.2], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])
MECHANISM = DirichletMechanism(k=50, floor=0.1)
PLAN = MECHANISM.event(DEFAULT)
#: (1 − floor·successors) h; the last row is free.
GROUPS = [RowGroup(50, 0.1, 0.7 * 0.03), RowGroup(50, 0.1, 0.8 * 0.03)]


def labels(path: Path) -> list[str]:
    return [label for label, *_ in PrivacyLedger(path).entries]


def three_entries(path: Path) -> list[str]:
    PrivacyLedger(path).record(PLAN, 0.03, "one").record(PLAN, 0.02, "two").record(PLAN, 0.01, "three")
    return path.read_text().splitlines(keepends=True)


def head_of(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def tampered(lines: list[str]) -> dict[str, tuple[list[str], str]]:
    one, two, three = lines[1:]
    return {
        "cheaper": ([lines[0], one.replace('"k": 50.0', '"k": 5.0'), two, three], "entry 2 .* it was edited"),
        "budget": ([lines[0].replace('"h": 0.03', '"h": 0.01'), one, two, three], "entry 1 .* it was edited"),
        "deleted": ([lines[0], one, three], "entry 3 .* lines before it were deleted or moved"),
        "reordered": ([lines[0], two, one, three], "entry 2 .* lines before it were deleted or moved"),
        "beheaded": (lines[1:], "is no dp-ensemble-ledger|entry 1 .* edited"),
        "end gone": (lines[:-1], "ends after 3 lines, but its head counts 4: the last ones were deleted"),
        "end edited": ([*lines[:3], three.replace('"times": 1', '"times": 2')], "entry 4 .* it was edited"),
        "no digest": ([lines[0], one, '{"label": "", "times": 1, "event": {"type": "deterministic"}}\n'], "entry 3"),
        "nonsense": ([lines[0], "nonsense\n", two, three], "entry 2 of the ledger .* is damaged"),
        "empty": ([], "is no dp-ensemble-ledger of version 3"),
        "foreign": (["[1]\n"], "is no dp-ensemble-ledger of version 3"),
        "no text": (["\udcff\udcfe\n"], "is no dp-ensemble-ledger of version 3"),
    }


HEADER = {"format": "dp-ensemble-ledger", "version": 3, "budget": [90.0, 1e-06], "rows": "sequential", "h": 0.03}
ROOT = str(Path(__file__).resolve().parents[2])
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}

KILLED = """
import os, sys
from pathlib import Path
import numpy as np
from dp_ensemble_env.privacy import DirichletMechanism, PrivacyLedger

folder, start = Path(sys.argv[1]), sys.argv[2]
default = np.array([[0.5, 0.3, 0.2], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]])

def use(path):
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
            return real(*args, **kwargs)
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


def test_rows_are_charged_after_the_floor_has_shrunk_h():
    ledger = PrivacyLedger().record(PLAN, 0.03)
    assert PLAN.successors == (3, 2, 1)
    assert ledger.spent(1e-6) == pytest.approx(composed_epsilon(1e-6, GROUPS), rel=1e-9)
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
    one, many = PrivacyLedger().record(MECHANISM.release(DEFAULT), 0.03), PrivacyLedger()
    assert one.spent(1e-6) == PrivacyLedger().record(PLAN, 0.03).spent(1e-6)
    for episode in range(7):
        many.record(PLAN, 0.03, label=f"episode {episode}")
    assert many.releases == 7 and many.spent(1e-6) == PrivacyLedger().record(PLAN, 0.03, times=7).spent(1e-6)
    assert many.spent(1e-6) == pytest.approx(composed_epsilon(1e-6, [g._replace(number=7) for g in GROUPS]))
    permit = many.charge(PLAN, times=2)  # which pays for no more draws than were charged
    assert many.releases == 9 and len({MECHANISM.draw(DEFAULT, permit).digest for _ in range(2)}) == 2
    with pytest.raises(ValueError, match="2 draws, made already"):
        MECHANISM.draw(DEFAULT, permit)


@pytest.mark.parametrize("rows", ["parallel", 1, 2])
def test_a_unit_touches_rows_of_every_time_of_a_time_varying_matrix(rows):
    """Three times of one matrix cost what three releases of it cost, however rows compose within one."""
    whole = PrivacyLedger(rows=rows).record(MECHANISM.event(np.stack([DEFAULT] * 3)), 0.03)
    thrice = PrivacyLedger(rows=rows).record(PLAN, 0.03, times=3)
    assert whole.spent(1e-6) == thrice.spent(1e-6) > 1.5 * PrivacyLedger(rows=rows).record(PLAN, 0.03).spent(1e-6)
    # The worst row of each time, not the two worst of all, which both belong to the first time.
    mixed = DirichletEvent(50, 0.1, (2, 3, 3, 2), [0.05, 0.05, 0.01, 0.01], steps=2)
    groups = [RowGroup(50, 0.1, 0.8 * 0.05), RowGroup(50, 0.1, 0.8 * 0.01)]
    assert PrivacyLedger().record(mixed).spent(1e-6, rows="parallel") == pytest.approx(composed_epsilon(1e-6, groups))


def test_a_disclosure_exceeds_any_finite_budget_and_stays_on_record(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = PrivacyLedger(path, budget=(1e300, 0.999))
    with pytest.raises(PrivacyBudgetExceeded, match="the disclosure is on record, but .*epsilon=inf"):
        ledger.record_deterministic("Taylor policy of the true matrix")
    assert PrivacyLedger(path).spent(0.999) == math.inf and PrivacyLedger(path).remaining() == 0.0
    with pytest.raises(ValueError, match="record takes a Release or an Event"):
        PrivacyLedger(path).record(DEFAULT, 0.03)


def test_a_draw_without_a_guarantee_is_refused_where_one_is_required():
    event = MECHANISM.event(DEFAULT, h=0.03)
    assert require_guarantee(event, 1e-6) == PrivacyLedger().record(event).spent(1e-6)
    assert require_guarantee(MECHANISM.event(DEFAULT), 1e-6, h=0.01) < require_guarantee(event, 1e-6)
    with pytest.raises(ValueError, match=r"k=50, floor=0\) has no epsilon that holds for all inputs .* set a floor"):
        require_guarantee(DirichletMechanism(50).event(DEFAULT), 1e-6)
    assert PrivacyLedger.of_process().releases == 0


def test_a_release_over_budget_is_refused_before_it_is_drawn(tmp_path):
    once = PrivacyLedger().record(PLAN, 0.03).spent(1e-6)
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", budget=(1.1 * once, 1e-6))
    rng = np.random.default_rng(0)
    assert isinstance(ledger.release(MECHANISM, DEFAULT, rng, h=0.03), Release)
    state, content = rng.bit_generator.state, (tmp_path / "ledger.jsonl").read_bytes()
    with pytest.raises(PrivacyBudgetExceeded, match="above the budget"):
        ledger.release(MECHANISM, DEFAULT, rng, h=0.03)
    assert ledger.would_exceed(PLAN.under(0.03))
    assert rng.bit_generator.state == state  # nothing was drawn
    assert (tmp_path / "ledger.jsonl").read_bytes() == content and ledger.releases == 1
    assert issubclass(PrivacyBudgetExceeded, ValueError)


def test_a_drawn_release_is_recorded_even_if_it_overspends():
    ledger = PrivacyLedger(budget=(0.01, 1e-6))
    with pytest.raises(PrivacyBudgetExceeded, match="drawn already and is on record"):
        ledger.record(MECHANISM.release(DEFAULT), 0.03)
    assert ledger.releases == 1
    with pytest.raises(PrivacyBudgetExceeded, match="set a floor"):
        PrivacyLedger(budget=(1e9, 0.5)).record(DirichletEvent(50, 0.0, (3, 2)), 0.03)


def test_the_budget_stops_at_the_right_number_of_draws_and_composes_rarely(monkeypatch):
    calls, real = [], account_module.total_epsilon
    monkeypatch.setattr(account_module, "total_epsilon", lambda *a: calls.append(1) or real(*a))
    plan = DirichletEvent(5, 0.1, (3, 3, 2))
    budget = (PrivacyLedger().record(plan, 0.03, times=300).spent(1e-6) * 1.0000001, 1e-6)
    calls.clear()
    ledger = PrivacyLedger(budget=budget)
    for episode in range(300):
        assert not ledger.would_exceed(plan.under(0.03))
        ledger.record(plan, 0.03, label=f"episode {episode}")
    assert len(calls) < 40
    assert ledger.would_exceed(plan.under(0.03))
    assert ledger.releases == 300 and ledger.spent(1e-6) <= budget[0]


def test_the_file_keeps_everything(tmp_path):
    path = tmp_path / "deep" / "ledger.jsonl"
    ledger = PrivacyLedger(path, budget=(50.0, 1e-6), rows=2, h=0.02)
    ledger.record(PLAN, label="first").record(PLAN, 0.03, "second", times=3)
    again = PrivacyLedger(path)
    assert again.entries == ledger.entries and again.budget == (50.0, 1e-6) and again.rows == 2 and again.h == 0.02
    assert again.spent(1e-6) == ledger.spent(1e-6)
    ledger.record(PLAN, 0.03)  # one object sees what another wrote
    assert again.releases == ledger.releases == 5
    with pytest.raises(ValueError, match="has the budget"):
        PrivacyLedger(path, budget=(60.0, 1e-6))
    first = PrivacyLedger(tmp_path / "later.jsonl").record(PLAN, 0.03)
    PrivacyLedger(first.path, budget=(30.0, 1e-6)).record(PLAN, 0.03)  # a budget given later loses no entry
    assert first.releases == PrivacyLedger(first.path).releases == 2 and first.budget == (30.0, 1e-6)


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


def test_a_missing_final_newline_loses_nothing(tmp_path):
    path = tmp_path / "ledger.jsonl"
    whole = "".join(three_entries(path))
    alive = PrivacyLedger(path)
    path.write_text(whole[:-1])
    assert labels(path) == ["one", "two", "three"] and path.read_text() == whole  # the newline is put back
    path.write_text(whole[:-1])
    PrivacyLedger(path).record(PLAN, 0.03, "four")
    assert labels(path) == ["one", "two", "three", "four"] and alive.releases == 4


def test_a_line_cut_short_is_dropped_only_if_its_draw_was_never_confirmed(tmp_path):
    path = tmp_path / "ledger.jsonl"
    lines = three_entries(path)
    before = PrivacyLedger(tmp_path / "two.jsonl").record(PLAN, 0.03, "one").record(PLAN, 0.02, "two")
    path.write_text("".join(lines[:3]) + lines[3][:40])
    with pytest.raises(ValueError, match="entry 4 of the ledger .* is cut short; restore"):
        PrivacyLedger(path)
    head_of(path).write_text(head_of(before.path).read_text())  # as it stands while the third line is being written
    with pytest.warns(UserWarning, match="cut short .* before its draw was made"):
        assert labels(path) == ["one", "two"]
    path.write_text("".join(lines))  # written, but the process was killed before it wrote the head: counted
    assert labels(path) == ["one", "two", "three"]


@pytest.mark.parametrize("how", tampered(["", "", "", ""]))
def test_an_edited_deleted_or_reordered_entry_is_refused_with_its_remedy(tmp_path, how):
    path = tmp_path / "ledger.jsonl"
    lines = three_entries(path)
    content, message = tampered(lines)[how]
    assert content != lines
    path.write_bytes("".join(content).encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=f"(?s){message}") as error:
        PrivacyLedger(path)
    assert "restore the file and its .head from a copy" in str(error.value) or "name a new file" in str(error.value)
    path.write_text("".join(lines))
    assert labels(path) == ["one", "two", "three"]  # a copy puts it right


def test_an_object_in_use_notices_that_its_file_shrank_or_changed(tmp_path):
    path = tmp_path / "ledger.jsonl"
    lines = three_entries(path)
    ledger = PrivacyLedger(path)
    path.write_text("".join(lines[:3]))
    for use in (lambda: ledger.spent(1e-6), lambda: ledger.release(MECHANISM, DEFAULT)):
        with pytest.raises(ValueError, match="shorter than it was"):
            use()
    path.write_text("".join(lines) + lines[1])
    with pytest.raises(ValueError, match="entry 5"):
        ledger.record(PLAN, 0.03)
    path.write_text("".join(lines))
    head_of(path).write_text('{"entries": 4, "chain": "another"}')
    with pytest.raises(ValueError, match="entry 4 of the ledger .* is not the one that its head knows"):
        ledger.record(PLAN, 0.03)


def test_headers_of_another_version_or_lacking_a_field_and_lost_heads_are_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    for header, words in (
        ({**HEADER, "version": 2}, "is no dp-ensemble-ledger of version 3; name a new file"),
        ({key: value for key, value in HEADER.items() if key != "h"}, "the first line of the ledger .* has no 'h'"),
    ):
        journal.begin(path, header)
        with pytest.raises(ValueError, match=words):
            PrivacyLedger(path)
    journal.begin(path, HEADER)
    for head, words in (
        ('{"entries": 1, "chain": ""}', "entry 1 of the ledger .* is not the one that its head knows"),
        ("{", "the head of the ledger .* is damaged"),
        (None, "has lost its head"),
    ):
        head_of(path).unlink() if head is None else head_of(path).write_text(head)
        with pytest.raises(ValueError, match=words):
            PrivacyLedger(path)
    path.unlink()
    head_of(path).write_text('{"entries": 2, "chain": ""}')
    with pytest.raises(ValueError, match="is gone, but its head counts 2 lines"):
        PrivacyLedger(path)
    head_of(path).write_text('{"entries": 1, "chain": ""}')  # a first line alone has paid for nothing
    assert PrivacyLedger(path).releases == 0


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
    with pytest.raises(ValueError, match="the disk is full; free some space"):
        ledger.release(MECHANISM, DEFAULT, rng, h=0.03)
    monkeypatch.setattr(journal.os, "write", real)
    assert rng.bit_generator.state == state
    with pytest.warns(UserWarning, match="cut short"):
        assert ledger.releases == 1
    assert ledger.record(PLAN, 0.03).releases == PrivacyLedger(path).releases == 2


def test_processes_that_share_a_file_do_not_overspend(tmp_path):
    path = tmp_path / "ledger.jsonl"
    budget = PrivacyLedger().record(DirichletEvent(5, 0.1, (3, 2)), 0.03, times=12).spent(1e-6) * 1.0000001
    PrivacyLedger(path, budget=(budget, 1e-6))
    code = """
import sys
from dp_ensemble_env.privacy import DirichletEvent, PrivacyBudgetExceeded, PrivacyLedger
ledger, done = PrivacyLedger(sys.argv[1]), 0
for i in range(10):
    try:
        ledger.record(DirichletEvent(5, .1, (3, 2)), .03)
        done += 1
    except PrivacyBudgetExceeded:
        pass
print(done)
"""
    command = [sys.executable, "-c", code, str(path)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) for _ in range(2)]
    assert sum(int(worker.communicate()[0]) for worker in workers) == 12 == PrivacyLedger(path).releases


def test_what_leaves_is_priced_under_the_ledgers_own_h():
    """Not under the paper's: a ledger that states a wider adjacency must not look cheaper elsewhere."""
    ledger = PrivacyLedger(h=0.1)
    default = [[0.6, 0.4], [0.3, 0.7]]
    event = dataclasses.replace(DirichletMechanism(50, 0.1).event(default).under(0.2), h_source="counts")
    away = PrivacyLedger.from_json(ledger.record(event).to_json())
    stated = PrivacyLedger(h=0.1).record(event.public)
    assert away.spent(1e-6) == stated.spent(1e-6) > PrivacyLedger(h=0.03).record(event.public).spent(1e-6)
    assert [one.h for one in away.charges] == [(0.1,)] and "by h=0.1" in str(away.statement())


def test_what_spends_cannot_be_copied(tmp_path):
    """A copy within the process is the ledger itself; what leaves it is a record, which refuses every charge."""
    ledger = PrivacyLedger(budget=(99.0, 1e-6), rows="parallel").record(PLAN, 0.03, "x", times=2)
    ledger.record(PLAN, [0.1, 0.2, 0.3]).declare("levels", "levels").declare("levels")
    assert copy.deepcopy(ledger) is copy.copy(ledger) is copy.deepcopy([ledger])[0] is ledger
    for twin in (PrivacyLedger.from_json(ledger.to_json()), pickle.loads(pickle.dumps(ledger))):
        assert twin.entries == ledger.entries and twin.budget == ledger.budget and twin.rows == ledger.rows
        assert twin.spent(1e-6) == ledger.spent(1e-6) and twin.statement() == ledger.statement()
        assert twin.declared == ("levels",)
        for spend in (lambda twin=twin: twin.record(PLAN, 0.03), lambda twin=twin: twin.release(MECHANISM, DEFAULT, 0)):
            with pytest.raises(ValueError, match="a copy of a ledger, which cannot spend"):
                spend()
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl").record(PLAN, 0.03)
    twin = pickle.loads(pickle.dumps(ledger)).record(PLAN, 0.03)  # with a file the copy goes on writing to it
    assert ledger.releases == twin.releases == PrivacyLedger(tmp_path / "ledger.jsonl").releases == 2
    for text in ("", "[]", '{"format": "dp-ensemble-ledger", "version": 1}'):
        with pytest.raises(ValueError, match="not a ledger"):
            PrivacyLedger.from_json(text)


def test_misspelt_terms_are_refused_before_anything_is_charged():
    ledger = PrivacyLedger()
    fleet = Fleet.simulate(DEFAULT, 20, seed=1, steps=50)
    for name, data, wrong in (
        ("dirichlet:k=50,floor=0.1", DEFAULT, {"suport": DEFAULT > 0}),
        ("posterior:epsilon=1", fleet, {"h": 0.03}),
    ):
        made, words = mechanism(name), f"unknown term of a {name.split(':')[0]} draw '{next(iter(wrong))}'"
        with pytest.raises(ValueError, match=words):
            ledger.release(made, data, 0, **wrong)
        with pytest.raises(ValueError, match=words):
            made.release(data, 0, **wrong)
    assert ledger.releases == 0


def test_bad_settings():
    for budget in (1.0, (0.0, 0.1), (1.0, 1.5)):
        with pytest.raises(ValueError, match="budget|delta"):
            PrivacyLedger(budget=budget)
    with pytest.raises(ValueError, match="did you mean 'sequential'"):
        PrivacyLedger(rows="sequentiel")
    with pytest.raises(ValueError, match="h must be a number"):
        PrivacyLedger().record(PLAN, 3.0)
    for settings, words in (({"floor": 0.4}, "does not fit rows of 3"), ({"steps": 3}, "cannot belong to 3 matrices")):
        with pytest.raises(ValueError, match=words):
            DirichletEvent(**{"k": 50, "floor": 0.1, "successors": (3, 2), **settings})
    with pytest.raises(ValueError, match="floor=0.4 cannot hold"):  # refused before it is charged
        PrivacyLedger().release(DirichletMechanism(50, 0.4), DEFAULT)
