"""Cells, rows and the store: what a key holds, what a cell computes, what is kept, refused and tried again."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dp_ensemble_env
from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments import runner
from dp_ensemble_env.experiments.backends import Place
from dp_ensemble_env.experiments.deployment import score_without_data
from dp_ensemble_env.experiments.runner import Cell, Row, Store, Supplies, compute, run, scenario_problem
from dp_ensemble_env.privacy.ledger import PrivacyLedger
from dp_ensemble_env.scenarios.problem import draw_release

SPEC = "dirichlet:k=50,floor=0.05"
CAMPUS = scenario_problem("campus-event")
#: An agent that counts how often it is made, and fails as long as a file is there.
FRAGILE = """
from pathlib import Path
from dp_ensemble_env.agents import make_agent, register_agent
HERE = Path({folder!r})

@register_agent("fragile")
def fragile(env, seed):
    (HERE / f"made-{{len(list(HERE.glob('made-*')))}}").touch()
    if (HERE / "broken").exists() and seed == 1:
        raise ZeroDivisionError("seed one\\nis not liked")
    return make_agent("best-price", env)
"""


def cell(agent: str = "standard", **settings) -> Cell:
    return Cell(problem=CAMPUS, agent=agent, data="campus-event", **settings)


# ------------------------------------------------------------------ keys
def test_a_key_holds_all_that_decides_and_nothing_else(monkeypatch):
    base = cell().key
    assert replace(cell(), data="elsewhere", label="mine").key == base
    other = {
        "problem": scenario_problem("campus-event", levels=10), "agent": "taylor", "split": "test", "instances": (1,),
        "settings": {"k": 50}, "steps": 7, "training": 20, "action": "policy", "population": "single", "privacy": SPEC,
        "episodes": 10, "seed": 1, "code": "0" * 64, "version": "9",
    }  # fmt: skip
    keys = {replace(cell(), **{name: value}).key for name, value in other.items()}
    keys.add(replace(cell(), problem={**CAMPUS, "version": 2}).key)  # a new version of the scenario
    assert len(keys | {base}) == len(other) + 2
    monkeypatch.setattr(dp_ensemble_env, "__version__", "9")
    assert cell().key == replace(cell(), version="9").key != base


def test_a_key_is_the_same_on_every_machine():
    text = (
        '{"action":"tilt","agent":"standard","code":null,"episodes":null,"format":4,"instances":[0],'
        '"population":"mean-field","privacy":"dirichlet:k=50,floor=0.05","problem":{"overrides":{},'
        '"scenario":"campus-event","version":1},"seed":0,"settings":{},"split":"train","steps":null,"training":0,'
        '"version":"0"}'
    )
    assert cell(privacy=SPEC, version="0").key == hashlib.sha256(text.encode()).hexdigest()


# ------------------------------------------------------------------ what a cell computes
@pytest.mark.parametrize("action", ["tilt", "policy"])
def test_a_cell_equals_what_one_gets_by_hand(action):
    row = compute(cell(privacy=SPEC, action=action, seed=3), Supplies())
    model = scenarios.make("campus-event")
    release = draw_release(SPEC, model, 3)
    agent = make_agent("standard", EnsembleEnv(model, action=action, privacy=release))
    assert row.scores == [pytest.approx(evaluate(agent, EnsembleEnv(model, action=action)).score, abs=1e-5)]
    assert row.made[0].score == pytest.approx(100.0, abs=1e-3) and row.scores[0] < 99
    assert row.without_data == (pytest.approx(score_without_data(model)),)
    assert row.epsilon == pytest.approx(PrivacyLedger().record(release).spent(1e-6))
    assert row.cell.knows == "a release" and row.deployed[0].power_kw.shape == (model.horizon + 1,)
    assert Row.from_dict(json.loads(json.dumps(row.to_dict()))).digest == row.digest


def test_on_the_truth_there_is_no_guarantee_and_without_data_it_costs_nothing():
    truth, nothing = compute(cell(), Supplies()), compute(cell("without-data"), Supplies())
    assert truth.scores == [pytest.approx(100.0)] and truth.epsilon == math.inf and truth.made == ()
    assert nothing.scores == [pytest.approx(nothing.without_data[0])] and nothing.epsilon == 0.0
    assert (truth.cell.knows, nothing.cell.knows) == ("the truth", "nothing")
    assert compute(cell(privacy="dirichlet:k=50"), Supplies()).epsilon == math.inf  # no floor, no guarantee


def test_the_seed_draws_the_release_and_trains_the_learner():
    learner = cell("z-learning", steps=4000)
    rows = [compute(replace(learner, privacy=p, seed=s), Supplies()) for p in (None, SPEC) for s in (0, 1)]
    assert len({row.scores[0] for row in rows}) == 4
    assert rows[0].compute["steps"] <= 4000 and compute(rows[3].cell, Supplies()).digest == rows[3].digest


def test_an_agent_made_on_training_instances_plays_others_as_it_is(tmp_path):
    source = "from dp_ensemble_env.agents import make_agent\n"
    source += "def make(env, seed):\n    return make_agent('best-price', env)\n"
    mine = cell("mine", training=2, split="test", instances=(0, 1, 2), action="price", seed=7, code="0" * 64)
    row = compute(mine, Supplies({}, {"mine": source}))
    assert row.error is None and row.cell.knows == "other instances"
    first = make_agent("best-price", EnsembleEnv("campus-event", action="price"))
    for i, score in enumerate(row.scores):
        there = EnsembleEnv("campus-event", action="price", instance=i, split="test")
        assert score == pytest.approx(evaluate(first, there).score, abs=1e-5)
    read = Row.from_dict(row.to_dict())
    assert len(row.made) == 2 and read.scores == pytest.approx(row.scores) and np.isnan(read.deployed[0].gap)


def test_what_goes_wrong_in_a_cell_is_part_of_its_row():
    for body, kind in (("return 3", "ValueError"), ("raise SystemExit(3)", "SystemExit")):
        row = compute(cell("mine", code="0" * 64), Supplies({}, {"mine": f"def make(env):\n    {body}\n"}))
        assert row.error["type"] == kind and row.deployed == ()


# ------------------------------------------------------------------ what is kept
def test_rows_come_back_as_they_were_and_are_never_computed_twice(tmp_path, monkeypatch):
    cells = [cell(privacy=SPEC, seed=s) for s in (0, 1)] + [cell("without-data")]
    store = Store(tmp_path)
    before = list(run([*cells, cells[0]], store, Place()))
    assert len(before) == 3 and len(list((tmp_path / "cells").glob("*.json"))) == 3
    monkeypatch.setattr(runner, "_scores", None)
    after = list(run(cells, store, Place()))
    assert [row.to_dict() for row in after] == [row.to_dict() for row in before]
    renamed = next(run([replace(cells[0], data="other name")], store, Place()))
    assert renamed.cell.data == "other name" and renamed.digest == before[0].digest


def test_a_failed_cell_is_tried_again_and_others_are_left_alone(tmp_path, capsys):
    supplies = Supplies({}, {"fragile": FRAGILE.format(folder=str(tmp_path))})
    cells = [cell("fragile", action="price", seed=s, code="0" * 64) for s in range(3)]
    (tmp_path / "broken").touch()
    rows = list(run(cells, Store(tmp_path), Place(), None, supplies))
    assert [row.error is None for row in rows] == [True, False, True]
    assert "seed one is not liked" in rows[1].error["message"] and "ZeroDivisionError" in rows[1].error["traceback"][-1]
    assert "failed: fragile" in capsys.readouterr().out
    (tmp_path / "broken").unlink()
    rows = list(run(cells, Store(tmp_path), Place(), None, supplies))
    assert all(row.error is None for row in rows) and len(list(tmp_path.glob("made-*"))) == 3 + 1


def test_a_record_that_was_edited_is_refused_and_computed_again(tmp_path):
    store, mine = Store(tmp_path), cell(privacy=SPEC)
    (row,) = run([mine], store, Place())
    whole = store.path(mine).read_text()
    outcome = ("result", "deployed", 0)
    for place, value in (
        (("result",), None), ((*outcome, "score"), 99.0), ((*outcome, "power_kw", 3), 1.0),
        (("result", "epsilon"), 0.1), (("result", "without_data"), [12.0]), (("cell",), {"agent": "best"}),
        (("cell", "seed"), 1), (("compute",), 7), (("digest",), "0" * 64), (("key",), "0" * 64),
    ):  # fmt: skip
        inner = content = json.loads(whole)
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value
        store.path(mine).write_text(json.dumps(content))
        assert store.load(mine) is None, place
    assert next(run([mine], store, Place())).digest == row.digest == store.load(mine).digest


def test_a_results_file_has_the_digest_of_every_row_and_of_all(tmp_path):
    rows = [compute(cell(name), Supplies()) for name in ("standard", "without-data")]
    content = runner.results([*rows, runner.lost(cell("taylor"), "it died")], "the command")
    runner.write_results(tmp_path / "a.json", content)
    read, again = runner.read_results(tmp_path / "a.json")
    assert read["command"] == "the command" and read["versions"]["numpy"] == np.__version__
    assert [row.digest for row in again] == [row.digest for row in rows]
    text = (tmp_path / "a.json").read_text()
    for before, after in (('"score": 100.0', '"score": 99.0'), (content["rows"][0]["digest"], "0" * 64)):
        (tmp_path / "b.json").write_text(text.replace(before, after))
        with pytest.raises(ValueError, match="was changed|no results file"):
            runner.read_results(tmp_path / "b.json")
    content["rows"].pop()
    runner.write_results(tmp_path / "b.json", content)
    with pytest.raises(ValueError, match="rows were added or taken out"):
        runner.read_results(tmp_path / "b.json")
    with pytest.raises(ValueError, match="cannot read"):
        runner.read_results(Path("/nowhere.json"))
