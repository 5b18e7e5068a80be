"""Sweeps as a user runs them, in one process and in several."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import SCRIPTS, load

from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.comparison import ComparisonSettings, private_rows
from dp_ensemble_env.experiments.sweep import cells as sweep_cells
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.scenarios.campus import campus_event

#: Agents of a test's own: one waits for a file, one fails, one kills its process the first or every time.
AGENTS = """
import os, time
from pathlib import Path
from dp_ensemble_env.agents.base import ScheduleAgent, register_agent, core_env
import numpy as np

HERE = Path({folder!r})

def constant(env, price):
    core = core_env(env)
    return ScheduleAgent(np.full((core.model.horizon, 1), price, np.float32), "constant", "nothing")

@register_agent("constant")
def plain(env, seed, steps=None):
    return constant(env, 0.1 * (seed % 7) if steps is None else 1.0)

@register_agent("gated")
def gated(env, seed):
    (HERE / f"started-{{seed}}-{{os.getpid()}}").touch()
    while seed >= 2 and not (HERE / "open").exists():
        time.sleep(0.05)
    return constant(env, 0.1 * (seed % 7))

@register_agent("faulty")
def faulty(env, seed):
    if seed == 1:
        raise ZeroDivisionError("seed one\\nis not liked")
    return constant(env, 0.2)

@register_agent("deadly")
def deadly(env, seed):
    mark = HERE / f"died-{{seed}}"
    if seed == 0 or (seed == 1 and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), 9)
    return constant(env, 0.3)
"""

PRICE = ("--actions", "price", "--k", "none")


@pytest.fixture
def agents(tmp_path):
    path = tmp_path / "own_agents.py"
    path.write_text(AGENTS.format(folder=str(tmp_path)))
    return path


def sweep(folder, *arguments):
    return load("sweep").main([*map(str, arguments), "--output", str(folder)])


def results(folder, name="results.csv"):
    with (folder / name).open() as stream:
        return list(csv.DictReader(stream))


def files(folder):
    """Name, inode and time of every cell, which show whether it was written again."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (folder / "cells").iterdir()}


def wait_for(condition, process):
    """Wait until something is true; five minutes without it, or the end of the process, are a failure."""
    for _ in range(15_000):
        if condition():
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.kill()
    raise AssertionError("it never came true")


def start(folder, *arguments, **settings):
    command = [sys.executable, str(SCRIPTS / "sweep.py"), *map(str, arguments), "--output", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS.parent)}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, **settings)


def test_help_shows_examples_and_exit_statuses(capsys):
    with pytest.raises(SystemExit) as stop:
        load("sweep").main(["--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and "dp-ensemble sweep --grid study.toml --backend ray" in out and "130" in out


# ------------------------------------------------------------------ what a cell computes
def test_cells_equal_what_one_gets_by_hand(tmp_path):
    grid = ("--methods", "standard", "digamma", "best-price", "--actions", "tilt", "policy", "--k", "50", "none")
    assert sweep(tmp_path, *grid, "--seeds", "3") == 0
    rows = {(r["method"], r["action"], r["privacy"]): r for r in results(tmp_path)}
    assert len(rows) == 3 * 2 * 2 - 1  # Digamma on a release is no tilt
    model = campus_event()
    release = DirichletMechanism(50).release(model.default, 3)
    true = EnsembleEnv(model, action="policy")
    for name in ("standard", "digamma"):
        found = evaluate(make_agent(name, true, release=release), true)
        assert float(rows[name, "policy", "k=50"]["deployed_score"]) == pytest.approx(found.score, abs=1e-3)
        assert float(rows[name, "policy", "none"]["deployed_score"]) == pytest.approx(100, abs=1e-3)
    private = EnsembleEnv(model.with_default(release.matrix), action="tilt")
    plan = make_agent("standard", private)
    tilt = rows["standard", "tilt", "k=50"]
    assert float(tilt["made_score"]) == pytest.approx(100, abs=1e-3)
    assert float(tilt["deployed_score"]) == pytest.approx(evaluate(plan, EnsembleEnv(model, action="tilt")).score)
    assert float(tilt["deployed_score"]) < 99.9
    price = rows["best-price", "tilt", "none"]
    assert price["made_score"] == price["deployed_score"]


def test_cells_equal_the_private_rows_of_the_comparison(tmp_path):
    """The comparison draws the release with the seed, too, so the same numbers come out of other code."""
    grid = ("--methods", "standard", "taylor", "average-exact", "best-price", "--actions", "price", "tilt", "policy")
    assert sweep(tmp_path, *grid, "--k", "50", "--seeds", "0-1") == 0
    ours = {}
    for row in results(tmp_path):
        ours.setdefault((row["method"], row["action"]), []).append(float(row["deployed_score"]))

    settings = ComparisonSettings(learners=(), private=(50.0,), releases=2)
    theirs = {row.name: row.scores for row in private_rows(campus_event(), settings, {})}
    for name in ("standard", "taylor", "average-exact"):
        assert ours[name, "policy"] == pytest.approx(theirs[name], abs=1e-9)
    assert ours["standard", "tilt"] == pytest.approx(theirs["standard, as a tilt"], abs=1e-9)
    assert ours["best-price", "price"] == pytest.approx(theirs["best-price"], abs=1e-4)


def test_seed_draws_the_release_and_trains_the_learner(tmp_path):
    grid = ("--methods", "z-learning", "--k", "none", "20", "--seeds", "0-1", "--steps", "z-learning=4000")
    assert sweep(tmp_path, *grid) == 0
    rows = {(r["privacy"], r["seed"]): float(r["deployed_score"]) for r in results(tmp_path)}
    assert len(set(rows.values())) == 4
    model = campus_event()
    release = DirichletMechanism(20).release(model.default, 1)
    agent = make_agent("z-learning", EnsembleEnv(model, privacy=release), seed=1, steps=4000)
    assert rows["k=20", "1"] == evaluate(agent, EnsembleEnv(model)).score


def test_summary_is_mean_and_standard_error(tmp_path):
    assert sweep(tmp_path, "--methods", "standard", "--k", "20", "--seeds", "0-3") == 0
    scores = [float(r["deployed_score"]) for r in results(tmp_path)]
    with (tmp_path / "summary.csv").open() as stream:
        (row,) = csv.DictReader(stream)
    assert float(row["deployed"]) == pytest.approx(np.mean(scores))
    assert float(row["deployed_error"]) == pytest.approx(np.std(scores, ddof=1) / 2)
    assert row["seeds"] == "4" and float(row["without_data"]) == pytest.approx(97.14, abs=0.01)
    assert row["epsilon"] == ""  # no floor, no guarantee
    content = json.loads((tmp_path / "results.json").read_text())
    assert [r["deployed_score"] for r in content["results"]] == scores and content["failed"] == []


def test_what_is_made_on_a_release_stands_beside_a_plan_without_data_and_its_price(tmp_path, capsys):
    arguments = ("--methods", "standard", "--privacy", "none", "dirichlet:k=50,floor=0.05", "--seeds", "0")
    assert sweep(tmp_path, *arguments) == 0
    said = capsys.readouterr().out
    words = " ".join(said.split())
    assert "without data" in words and "on the release" in words and "97.14 12.5" in words
    rows = {row["privacy"]: row for row in results(tmp_path)}
    assert rows["none"]["without_data"] == rows["none"]["epsilon"] == ""
    assert float(rows["k=50,floor=0.05"]["epsilon"]) == pytest.approx(12.48, abs=0.01)


# ------------------------------------------------------------------ keys
def cells(*arguments):
    module = load("sweep")
    found, _ = module.grid_of(module.build_parser().parse_args([*map(str, arguments)])).cells()
    return found


def keys(*arguments):
    return [cell.key for cell in cells(*arguments)]


def test_key_has_all_that_decides_and_nothing_else(tmp_path, monkeypatch):
    one = ("--methods", "ppo", "--k", "50", "--actions", "price", "--seeds", "0")
    (base,) = keys(*one)
    assert keys(*one, "--backend", "ray", "--output", "elsewhere", "--jobs", "7") == [base]
    assert keys(*one, "--steps", "50000") == [base]  # as tuned
    others = [
        keys(*one[:-1], "1"), keys(*one, "--k", "51"), keys(*one, "--actions", "tilt"), keys(*one, "--methods", "sac"),
        keys(*one, "--steps", "50001"), keys(*one, "--scenarios", "campus-event:1"), keys(*one, "--floor", "0.01"),
        keys(*one, "--population", "single"), keys(*one, "--date", "2018-07-03"), keys(*one, "--window", "12:00-14:00"),
    ]  # fmt: skip
    monkeypatch.setattr("dp_ensemble_env.__version__", "9")
    others.append(keys(*one))
    assert len({base, *(key for (key,) in others)}) == 1 + len(others)


def test_meter_file_counts_by_its_content(tmp_path):
    one = ("--methods", "standard", "--k", "none", "--seeds", "0", "--meters")
    for name, text in (("a.csv", "1"), ("b.csv", "1"), ("c.csv", "2")):
        (tmp_path / name).write_text(text)
    a, b, c = (keys(*one, tmp_path / f"{name}.csv") for name in "abc")
    assert a == b != c
    assert keys(*one, tmp_path / "a.csv", "--unit", "kW") != a


def test_key_is_the_same_on_every_machine():
    (cell,) = cells("--methods", "standard", "--k", "50", "--seeds", "0")
    cell.config.update(version="0")
    cell.__dict__.pop("key", None)
    text = (
        '{"action":"tilt","agents":null,"data":{"scenario":"campus-event"},"format":2,"method":"standard",'
        '"population":"mean-field","privacy":"dirichlet:k=50","seed":0,"steps":null,"version":"0"}'
    )
    done = subprocess.run(["sha256sum"], input=text.encode(), capture_output=True, check=True)
    assert cell.key == done.stdout.decode().split()[0]


# ------------------------------------------------------------------ grid files and bad input
def test_grid_file_is_overruled_by_options_and_finds_files_beside_it(tmp_path, monkeypatch):
    start_of_day = np.datetime64("2018-06-11T00:00")
    lines = [
        f"{start_of_day + np.timedelta64(15 * i, 'm')},{150 + 60 * np.sin(i / 15) + 20 * np.cos(0.7 * i):.2f}"
        for i in range(28 * 96)
    ]
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "meter.csv").write_text("timestamp,power_kw\n" + "\n".join(lines) + "\n")
    (tmp_path / "study" / "grid.toml").write_text(
        'methods = ["standard", "ppo"]\nk = ["none", 50]\nseeds = "0-2"\nsteps = { ppo = 576 }\nactions = "tilt"\n'
        'data = ["campus-event", { meter = "meter.csv", name = "shop", unit = "kW", stamp = "start" }]\n'
    )
    monkeypatch.chdir(tmp_path)
    found = cells("--grid", "study/grid.toml")
    assert len(found) == 2 * 2 * 3 * 2
    assert {c.config["steps"] for c in found if c.config["method"] == "ppo"} == {576}
    assert sweep("out", "--grid", "study/grid.toml", "--methods", "standard", "--seeds", "1") == 0
    assert not Path("out/results.csv").exists()  # a meter is private, and so is what is computed from it
    rows = results(Path("out"), "results-private.csv")
    assert [(r["data"], r["privacy"], r["seed"]) for r in rows] == [
        ("campus-event", "none", "1"), ("campus-event", "k=50", "1"), ("shop", "none", "1"), ("shop", "k=50", "1")
    ]  # fmt: skip
    assert rows[0]["deployed_mean_return"] != rows[2]["deployed_mean_return"]


def test_commands_and_grid_file_of_the_documentation_are_understood(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (SCRIPTS.parent / "docs" / "sweeps.md").read_text(encoding="utf-8")
    (study,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    Path("study.toml").write_text(study)
    Path("meter.csv").write_text("anything")
    text = "".join(re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)).replace("\\\n", " ")
    commands = [line for line in text.splitlines() if line.startswith("dp-ensemble sweep ")]
    assert len(commands) >= 9
    for command in commands:
        assert cells(*shlex.split(command, comments=True)[2:])
    whole = cells("--grid", "study.toml")
    # best-price and PPO in 2 modes, standard and z-learning in 1; 4 k, 1,000 seeds, 2 data sets
    assert len(whole) == (2 + 2 + 1 + 1) * 4 * 1000 * 2 and f"{len(whole):,} cells" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--methods", "standart"], "did you mean 'standard'"),
        (["--k", "-3"], "k must be a positive"),
        (["--k", "many"], "k must be"),
        (["--seeds", "5-2"], "write 2-5"),
        (["--seeds", "x"], "ranges such as 0-9"),
        (["--actions", "volume"], "unknown action"),
        (["--steps", "pppo=3"], "did you mean 'ppo'"),
        (["--steps", "standard=3"], "standard does not learn"),
        (["--floor", "0.9"], "floor"),
        (["--meters", "no.csv"], "cannot read no.csv"),
        (["--scenarios", "campus-event", "campus-event:0"], "two data sets are called campus-event"),
        (["--scenarios", "campus-evnt"], "did you mean 'campus-event'"),
        (["--privacy", "dirichlit:k=3"], "did you mean 'dirichlet'"),
        (["--methods", "taylor", "--actions", "price"], "nothing is left to run"),
        (["--address", "auto"], "add --backend ray"),
        (["--grid", "no.toml"], "cannot read the grid file"),
        (["--agents", "no.py"], "cannot read no.py"),
        (["--jobs", "0"], "--jobs: must be at least 1"),
        (["--date", "someday"], "date"),
        (["--output", "/proc/none"], "cannot write"),
    ],
)
def test_bad_input_gets_one_sentence(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load("sweep").main(arguments) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("dp-ensemble sweep: ") and words in last
    assert not list(tmp_path.rglob("*.json"))


def test_bad_grid_files_and_agents_get_one_sentence(tmp_path, capsys):
    for text, words in (("methods = [", "not a TOML file"), ("method = ['ppo']", "did you mean 'methods'")):
        (tmp_path / "grid.toml").write_text(text)
        assert sweep(tmp_path / "out", "--grid", tmp_path / "grid.toml") == 2
        assert words in capsys.readouterr().err
    for text, words in (("x = 1", "registers no agent"), ("1/0", "cannot be run: ZeroDivisionError")):
        (tmp_path / "agents.py").write_text(text)
        assert sweep(tmp_path / "out", "--agents", tmp_path / "agents.py") == 2
        assert words in capsys.readouterr().err


def test_without_ray_the_remedy_is_given(tmp_path, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest))
    assert sweep(tmp_path, "--backend", "ray") == 2
    assert "pip install 'dp-ensemble-env[ray]'" in capsys.readouterr().err


def test_impossible_combinations_are_left_out_with_the_reason(tmp_path, capsys):
    names = ("standard", "taylor", "dqn", "z-learning", "uncontrolled")
    assert sweep(tmp_path, "--methods", *names, "--actions", "price", "tilt", "policy", "--seeds", "0", "--list") == 0
    captured = capsys.readouterr()
    for words in ("standard in price mode", "taylor in tilt mode", "dqn in policy mode", "z-learning in price mode"):
        assert f"left out: {words}" in captured.err
    assert "uncontrolled in" not in captured.err
    assert "17 cells: 0 done, 0 failed, 17 missing" in captured.out
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ nothing is run twice, nothing is lost
def test_finished_cells_are_never_run_again(tmp_path, capsys):
    grid = ("--methods", "standard", "z-learning", "--steps", "4000", "--seeds")
    assert sweep(tmp_path, *grid, "0-1") == 0
    before, table = files(tmp_path), (tmp_path / "results.csv").read_bytes()
    assert sweep(tmp_path, *grid, "0-2") == 0
    after = files(tmp_path)
    assert len(before) == 8 and len(after) == 12 and before.items() <= after.items()
    assert sweep(tmp_path, *grid, "0-1") == 0
    assert files(tmp_path) == after and (tmp_path / "results.csv").read_bytes() == table
    capsys.readouterr()
    assert sweep(tmp_path, *grid, "0-3", "--list") == 0
    out = capsys.readouterr().out
    assert "16 cells: 12 done, 0 failed, 4 missing" in out and "not counted" not in out


def test_cell_finished_by_another_sweep_is_left_alone(tmp_path):
    store, modules = sweep_cells.Store(tmp_path), sweep_cells
    (cell,) = cells("--methods", "standard", "--k", "50", "--seeds", "0")
    study = modules.Study({"campus-event": campus_event()})
    store.save(cell, modules.lost_record(cell, "lost"))
    store.save(cell, modules.run_cell(cell, study))  # replaces a failure
    before = files(tmp_path)
    store.save(cell, modules.run_cell(cell, study))
    store.save(cell, modules.lost_record(cell, "lost"))
    assert files(tmp_path) == before and store.load(cell)["error"] is None


@pytest.mark.parametrize("damage", [b"", b'{"config": {}}', b"\xff\xfe", b"[]", "half", "result", "run", "error"])
def test_damaged_file_is_run_again(tmp_path, damage):
    grid = ("--methods", "standard", "--k", "50", "--seeds", "0-1")
    assert sweep(tmp_path, *grid) == 0
    before, table = files(tmp_path), (tmp_path / "results.csv").read_bytes()
    victim = sorted((tmp_path / "cells").iterdir())[0]
    if damage in ("result", "run", "error"):
        record = json.loads(victim.read_text())
        record["result"] = None if damage == "error" else record["result"]
        victim.write_text(json.dumps({**record, damage: {}}))
    else:
        victim.write_bytes(victim.read_bytes()[:200] if damage == "half" else damage)
    assert sweep(tmp_path, *grid) == 0
    after = files(tmp_path)
    assert [name for name in after if after[name] != before[name]] == [victim.name]
    assert (tmp_path / "results.csv").read_bytes() == table


def test_concentrations_that_print_alike_are_kept_apart(tmp_path):
    assert sweep(tmp_path, "--methods", "standard", "--k", "1000000", "1000001", "--seeds", "0-1") == 0
    with (tmp_path / "summary.csv").open() as stream:
        assert [(row["privacy"], row["seeds"]) for row in csv.DictReader(stream)] == [
            ("k=1e+06", "2"), ("k=1000001.0", "2")
        ]  # fmt: skip


@pytest.mark.parametrize("jobs", [1, 2])
def test_whatever_an_agent_raises_is_recorded(tmp_path, jobs):
    (tmp_path / "odd.py").write_text(
        "from dp_ensemble_env.agents.base import register_agent\n\n\nclass OddError(BaseException): ...\n\n\n"
        "@register_agent('odd')\ndef odd(env):\n    raise OddError('out of the ordinary')\n"
    )
    grid = ("--agents", tmp_path / "odd.py", "--methods", "odd", "best-price", "--k", "none", "--seeds", "0")
    assert sweep(tmp_path / "out", *grid, "--jobs", jobs) == 1
    (failure,) = json.loads((tmp_path / "out" / "results.json").read_text())["failed"]
    assert (failure["type"], failure["message"]) == ("OddError", "out of the ordinary")
    assert len(results(tmp_path / "out")) == 1


def test_failing_cell_is_recorded_and_the_rest_goes_on(tmp_path, agents, capsys):
    grid = ("--agents", agents, "--methods", "faulty", "constant", *PRICE, "--seeds", "0-2")
    assert sweep(tmp_path / "out", *grid) == 1
    assert "failed: faulty, none, price, seed 1, campus-event: seed one is not liked" in capsys.readouterr().err
    rows = results(tmp_path / "out")
    assert [(r["seed"], r["method"]) for r in rows] == [
        ("0", "faulty"), ("0", "constant"), ("1", "constant"), ("2", "faulty"), ("2", "constant")
    ]  # fmt: skip
    (failure,) = json.loads((tmp_path / "out" / "results.json").read_text())["failed"]
    assert failure["type"] == "ZeroDivisionError" and "traceback" not in failure
    kept = json.loads((tmp_path / "out" / "cells" / f"{failure['key']}.json").read_text())["error"]
    assert "in faulty" in "".join(kept["traceback"])
    before = files(tmp_path / "out")
    assert sweep(tmp_path / "out", *grid, "--keep-failed") == 1
    assert files(tmp_path / "out") == before
    assert sweep(tmp_path / "out", *grid) == 1  # tried again, in vain
    changed = [name for name, mark in files(tmp_path / "out").items() if before[name] != mark]
    assert changed == [f"{failure['key']}.json"]


def test_own_agents_are_part_of_the_key_and_get_steps_if_they_take_them(tmp_path, agents):
    grid = ("--agents", agents, "--methods", "constant", *PRICE, "--seeds", "3")
    (first,) = keys(*grid)
    assert sweep(tmp_path / "a", *grid) == 0 == sweep(tmp_path / "b", *grid, "--steps", "constant=5")
    assert results(tmp_path / "a")[0]["deployed_score"] != results(tmp_path / "b")[0]["deployed_score"]
    agents.write_text(agents.read_text() + "\n# changed\n")
    assert keys(*grid) != [first]
    assert keys("--agents", agents, "--methods", "standard") == keys("--methods", "standard")


def test_results_do_not_depend_on_the_number_of_processes(tmp_path):
    grid = ("--methods", "z-learning", "standard", "ppo", "--actions", "tilt", "price", "--k", "50", "--seeds", "0",
            "--steps", "5000", "ppo=2304")  # fmt: skip
    assert sweep(tmp_path / "one", *grid) == 0 == sweep(tmp_path / "two", *grid, "--jobs", "2")
    for name in ("results.csv", "results.json", "summary.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert len(results(tmp_path / "one")) == 4


def test_cell_that_kills_its_process_costs_no_other_cell(tmp_path, agents, capsys):
    grid = ("--agents", agents, "--methods", "deadly", "constant", *PRICE, "--seeds", "0-3")
    assert sweep(tmp_path / "out", *grid, "--jobs", "2") == 1
    rows = [(r["method"], r["seed"]) for r in results(tmp_path / "out")]
    assert sorted(rows) == [*(("constant", str(i)) for i in range(4)), *(("deadly", str(i)) for i in (1, 2, 3))]
    (failure,) = json.loads((tmp_path / "out" / "results.json").read_text())["failed"]
    assert failure["type"] == "WorkerDied" and "died 2 times, at last with exit status -9" in failure["message"]


@pytest.mark.parametrize(("number", "jobs"), [(signal.SIGKILL, 1), (signal.SIGKILL, 2), (signal.SIGINT, 2)])
def test_killed_sweep_loses_only_cells_in_flight(tmp_path, agents, number, jobs):
    grid = ("--agents", agents, "--methods", "gated", *PRICE, "--seeds", "0-4")
    out = tmp_path / "out"
    process = start(out, *grid, "--jobs", jobs, start_new_session=True)
    wait_for(lambda: len(list((out / "cells").glob("*.json"))) == 2 and len(in_flight(tmp_path)) == jobs, process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as Ctrl-C does
    else:
        process.kill()
    _, error = process.communicate()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted; 2 finished cells are kept" in error.decode() and "Traceback" not in error.decode()
    before = files(out)
    assert len([name for name in before if name.endswith(".json")]) == 2
    (tmp_path / "open").touch()
    assert sweep(out, *grid) == 0
    assert before.items() <= files(out).items()
    assert [r["seed"] for r in results(out)] == list("01234")
    assert [float(r["deployed_score"]) for r in results(out)][0] == pytest.approx(0, abs=1e-6)


def in_flight(folder):
    """Seeds of gated cells that wait for the gate."""
    return {path.name.split("-")[1] for path in folder.glob("started-*")} - {"0", "1"}


def test_progress_counts_cells_done_failed_and_time_left(tmp_path, agents):
    """Two of five cells are done when the third waits: three seconds later the line on the terminal says so."""
    grid = ("--agents", agents, "--methods", "faulty", "gated", *PRICE, "--seeds", "0-2")
    ours, theirs = pty.openpty()
    command = [sys.executable, SCRIPTS / "sweep.py", *grid, "--output", tmp_path / "out"]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS.parent), "COLUMNS": "160", "TERM": "xterm"}
    process = subprocess.Popen(list(map(str, command)), env=environment, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 65536):
            text += part
            if b"4 of 6 done, 1 failed" in text and b" left" in text:
                (tmp_path / "open").touch()
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait() == 1
    assert re.search(r"cells, \d+ %, 4 of 6 done, 1 failed, \d+:\d\d:\d\d left", text.decode())
