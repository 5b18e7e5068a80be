"""The grid of a comparison: agents, problems, files, combinations that cannot be; the command from options to page."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from helpers import write_meter

from dp_ensemble_env.cli.compare import Compare
from dp_ensemble_env.cli.main import imported, main, parse
from dp_ensemble_env.experiments.compare import AgentSpec, Brought, Grid, data_sets
from dp_ensemble_env.experiments.runner import Supplies, compute, read_results
from dp_ensemble_env.reporting.page import OWNER_WORDS

SPEC = "dirichlet:k=50,floor=0.05"
#: An agent of one's own, by name.
OWN = """
import numpy as np
from dp_ensemble_env.agents.base import ScheduleAgent, core_env, register_agent

@register_agent("constant")
def constant(env, seed, steps=None):
    price = 0.1 * seed if steps is None else 1.0
    return ScheduleAgent(np.full((core_env(env).model.horizon, 1), price, np.float32), "constant", "nothing")
"""


def cells(*words: str):
    files, rest = imported(list(words))
    asked = parse(Compare, rest, "dp-ensemble compare")
    return asked.grid.cells(asked.sets(), Brought.read(files) if files else None)[0]


def lines(folder: Path, name: str = "results.csv"):
    with (folder / name).open() as stream:
        return list(csv.DictReader(stream))


# ------------------------------------------------------------------ cells
def test_a_grid_is_balanced_and_spends_seeds_where_they_matter():
    grid = Grid(agents=("standard", "without-data", "taylor", "z-learning:steps=4000"), privacy=("none", SPEC),
                actions=("tilt", "policy"), seeds=("0-1", "7"))  # fmt: skip
    found, skipped = grid.cells(data_sets(["campus-event", "campus-event:1"]))
    assert [cell.seed for cell in found] == sorted(cell.seed for cell in found)
    per: dict = {}
    for c in (c for c in found if c.data == "campus-event"):
        per.setdefault((c.agent, c.action, c.privacy), []).append(c.seed)
    assert per["standard", "tilt", None] == [0] and per["standard", "policy", SPEC] == [0, 1, 7]
    assert per["z-learning", "tilt", None] == [0, 1, 7] and ("z-learning", "policy", None) not in per
    assert ("taylor", "tilt", None) in per and ("taylor", "tilt", SPEC) not in per
    assert ("without-data", "tilt", SPEC) not in per and {cell.instances for cell in found} == {(0,), (1,)}
    assert len(skipped) == 2 and all("add the action" in reason for reason in skipped)


def test_an_agent_is_written_with_its_settings():
    spec = AgentSpec.parse("ppo:action=price,steps=500,learning_rate=0.1,target=90")
    made, told = spec.made("spot", "price", "mean-field"), spec.made("spot", "price", "mean-field")["settings"]
    assert spec.label == "ppo:learning_rate=0.1,target=90" and made["steps"] == 500 and told["target"] == 90
    assert told["hyperparams"]["learning_rate"] == 0.1 and told["hyperparams"]["n_steps"] == 48  # the scenario's change
    assert AgentSpec.parse("ppo").made("campus-event", "price", "mean-field")["steps"] == 50_000


def test_files_count_by_their_content(tmp_path):
    for name, text in (("a.csv", "1"), ("b.csv", "1"), ("c.csv", "2")):
        (tmp_path / name).write_text(text)
    one = ("--agents", "standard", "--privacy", "none", "--seeds", "0", "--meter")
    a, b, c = (cells(*one, str(tmp_path / f"{name}.csv"))[0].key for name in "abc")
    assert a == b != c and cells(*one, str(tmp_path / "a.csv"), "--unit", "kW")[0].key != a
    tariffs = [cells(*one[:-1], "--tariff", str(tmp_path / f"{name}.csv"))[0].key for name in "abc"]
    assert tariffs[0] == tariffs[1] != tariffs[2]


def test_a_file_of_ones_own_is_part_of_the_key_of_what_it_brings(tmp_path):
    own = tmp_path / "own.py"
    asked = ("--agents", "constant", "standard", "--actions", "price", "tilt", "--privacy", "none", "--seeds", "1")
    keys = []
    for text in (OWN, OWN + "\n# changed\n"):
        own.write_text(text)
        keys.append({cell.agent: cell.key for cell in cells(*asked, "--import", str(own))})
    assert keys[0]["constant"] != keys[1]["constant"] and keys[0]["standard"] == keys[1]["standard"]
    (cell, *_) = cells(*asked, "--import", str(own))
    row = compute(cell, Supplies({}, {"own": own.read_text()}))
    assert row.error is None and row.scores[0] > 10


# ------------------------------------------------------------------ the command
def test_every_output_is_there_and_agrees(tmp_path, capsys):
    words = ["compare", "--scenario", "campus-event", "--actions", "policy"]
    words += ["--agents", "uncontrolled", "ad-hoc", "standard", "taylor:k=50"]
    assert main([*words, "--seeds", "0-1", "--output", str(tmp_path)]) == 0
    assert "8 cells done, 0 failed" in capsys.readouterr().out
    _, rows = read_results(tmp_path / "results.json")
    table = {(line["agent"], line["privacy"], line["seed"]): line for line in lines(tmp_path)}
    assert len(table) == len(rows) == 2 * 1 + 2 * (1 + 2)  # those that no seed changes are computed once
    for row in rows:
        line = table[row.cell.label, (row.cell.privacy or "none").removeprefix("dirichlet:"), str(row.cell.seed)]
        assert [float(line["score"]), float(line["without_data"])] == pytest.approx([*row.scores, *row.without_data])
    page = (tmp_path / "compare.html").read_text()
    assert page.count("data:image/png;base64,") == 2 and "do not publish" not in page
    opening = re.sub("<[^>]*>", "", page.split("<main")[1].split("<table")[0])
    assert "standard leads with a score of 100" in opening and "without data" in opening
    before = lines(tmp_path)
    assert main([*words, "--seeds", "0-1", "--output", str(tmp_path), "--summary-only"]) == 0
    assert lines(tmp_path) == before
    capsys.readouterr()
    assert main([*words, "--seeds", "0-2", "--output", str(tmp_path), "--list"]) == 0
    assert "10 cells: 8 done, 0 failed, 2 missing" in capsys.readouterr().out


def test_a_grid_file_is_overruled_by_options_and_finds_files_beside_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "study").mkdir()
    write_meter(tmp_path / "study" / "meter.csv")
    (tmp_path / "study" / "grid.toml").write_text(
        'agents = ["standard", "ppo:steps=576"]\nprivacy = ["none", "dirichlet:k=50"]\nseeds = "0-2"\nlevels = 6\n'
        'data = ["campus-event", '
        '{ meter = "meter.csv", name = "shop", unit = "kW", stamp = "start", date = "2018-07-02", penalty = 150 }]\n'
    )
    monkeypatch.chdir(tmp_path)
    found = cells("--file", "study/grid.toml")
    assert len(found) == 2 * (1 + 3 + 3 + 3) and {c.steps for c in found if c.agent == "ppo"} == {576}
    words = ["compare", "--file", "study/grid.toml", "--agents", "standard", "--seeds", "1", "--output", "out"]
    assert main(words) == 0
    # A meter is private, and what is computed from it.
    assert all("-private." in path.name for path in Path("out").iterdir() if path.name != "cells")
    assert OWNER_WORDS in Path("out/compare-private.html").read_text()
    rows = [(line["data"], line["privacy"]) for line in lines(Path("out"), "results-private.csv")]
    assert rows == [(name, privacy) for name in ("campus-event", "shop") for privacy in ("none", "k=50")]
    for text, said in (("agents = [", "not a TOML file"), ("agent = 'ppo'", "did you mean 'agents'")):
        Path("bad.toml").write_text(text)
        assert main(["compare", "--file", "bad.toml"]) == 2 and said in capsys.readouterr().err


def test_the_grid_file_of_the_documentation_has_as_many_cells_as_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (study,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    Path("study.toml").write_text(study)
    Path("meter.csv").write_text("anything")
    assert f"{len(cells('--file', 'study.toml')):,} cells" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--agents", "ppo:price"], "like ppo:action=price"),
        (["--agents", "standard:steps=3"], "standard does not learn"),
        (["--agents", "taylor", "--actions", "price"], "nothing is left to compute"),
        (["--seeds", "5-2"], "write 2-5"),
        (["--meters", "no.csv"], "cannot read no.csv"),
        (["--scenarios", "campus-event", "campus-event:0"], "two problems are called campus-event"),
        (["--file", "no.toml"], "cannot read the grid file"),
        (["--summary-only"], "no finished rows"),
        (["--output", "/proc/none"], "cannot write"),
    ],
)
def test_bad_input_gets_one_sentence(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("dp-ensemble compare: ") and said in last
    assert not list(tmp_path.rglob("*.json"))
