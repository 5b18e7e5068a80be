"""Cells in several processes: equal results, deaths that cost no other cell, kill and resume, Ctrl-C."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import refuses

from dp_ensemble_env.experiments.backends import Place
from dp_ensemble_env.experiments.runner import Cell, Store, Supplies, run, scenario_problem

#: Agents of a test's own: one waits for a file, one kills its process the first or every time.
AGENTS = """
import os, time
from pathlib import Path
from dp_ensemble_env.agents.base import ScheduleAgent, core_env, register_agent
import numpy as np

HERE = Path({folder!r})

def constant(env, price):
    return ScheduleAgent(np.full((core_env(env).model.horizon, 1), price, np.float32), "constant", "nothing")

@register_agent("gated")
def gated(env, seed):
    (HERE / f"started-{{seed}}-{{os.getpid()}}").touch()
    while seed >= 2 and not (HERE / "open").exists():
        time.sleep(0.05)
    return constant(env, 0.1 * (seed % 7))

@register_agent("deadly")
def deadly(env, seed):
    mark = HERE / f"died-{{seed}}"
    if seed == 0 or (seed == 1 and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), 9)
    return constant(env, 0.3)

@register_agent("threads")
def threads(env, seed):
    (HERE / "threads").write_text(os.environ["OMP_NUM_THREADS"])
    return constant(env, 0.3)
"""


@pytest.fixture
def agents(tmp_path):
    path = tmp_path / "own_agents.py"
    path.write_text(AGENTS.format(folder=str(tmp_path)))
    return path


def cells(agent: str, seeds: range) -> list[Cell]:
    problem = scenario_problem("campus-event")
    return [Cell(problem=problem, agent=agent, action="price", seed=seed, code="0" * 64) for seed in seeds]


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Name, inode and time of every cell, which show whether it was written again."""
    found = (folder / "cells").glob("[!.]*.json")
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def test_several_processes_give_the_same_rows(tmp_path):
    problem = scenario_problem("campus-event")
    asked = [Cell(problem=problem, agent=name, steps=steps, privacy="dirichlet:k=50,floor=0.05", seed=seed)
             for seed in (0, 1) for name, steps in (("standard", None), ("z-learning", 4000))]  # fmt: skip
    one, two = ({row.cell.key: row.digest for row in run(asked, Store(tmp_path / str(jobs)), Place(jobs=jobs))}
                for jobs in (1, 2))  # fmt: skip
    assert one == two and len(one) == 4


def test_a_cell_that_kills_its_process_costs_no_other_cell(tmp_path, agents):
    asked = [*cells("deadly", range(3)), *cells("threads", range(1))]
    supplies = Supplies({}, {"own_agents": agents.read_text()})
    rows = {(row.cell.agent, row.cell.seed): row for row in run(asked, Store(tmp_path), Place(jobs=2), None, supplies)}
    lost = rows.pop(("deadly", 0))
    assert lost.error["type"] == "WorkerDied" and "died 2 times, at last with exit status -9" in lost.error["message"]
    assert len(rows) == 3 and all(row.error is None for row in rows.values())
    assert (tmp_path / "threads").read_text() == "1"


# ------------------------------------------------------------------ kill and resume
def start(folder: Path, agents: Path, jobs: int) -> subprocess.Popen[bytes]:
    words = ["compare", "--import", str(agents), "--agents", "gated", "--actions", "price", "--privacy", "none"]
    command = [sys.executable, "-m", "dp_ensemble_env", *words, "--seeds", "0-4", "--jobs", str(jobs)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*command, "--output", str(folder)], start_new_session=True, **pipes)


def wait_for(condition, process):
    """Wait until something is true; five minutes without it, or the end of the process, are a failure."""
    for _ in range(15_000):
        if condition():
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.kill()
    raise AssertionError("it never came true")


def waiting(folder: Path) -> set[str]:
    """Seeds of gated cells that wait for the gate."""
    return {path.name.split("-")[1] for path in folder.glob("started-*")} - {"0", "1"}


@pytest.mark.parametrize(("number", "jobs"), [(signal.SIGKILL, 1), (signal.SIGINT, 2)])
def test_a_killed_run_loses_only_cells_in_flight_and_is_balanced(tmp_path, agents, number, jobs):
    out = tmp_path / "out"
    process = start(out, agents, jobs)
    wait_for(lambda: len(files(out)) == 2 and len(waiting(tmp_path)) == jobs, process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as Ctrl-C does
    else:
        process.kill()
    _, error = process.communicate()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "interrupted; 2 finished cells are kept" in error.decode() and "Traceback" not in error.decode()
    before = files(out)
    assert len(before) == 2
    (tmp_path / "open").touch()
    again = start(out, agents, 1)
    words, error = again.communicate()
    assert again.returncode == 0, error
    assert before.items() <= files(out).items() and len(files(out)) == 5
    assert "5 cells done, 0 failed" in words.decode()
    pids = {path.name.split("-")[2] for path in tmp_path.glob("started-[01]-*")}
    assert str(again.pid) not in pids  # finished cells were not computed again


# ------------------------------------------------------------------ refusals
def test_places_that_cannot_work_are_refused(monkeypatch):
    refuses("--jobs must be at least 1", Place(jobs=0).check)
    refuses("add --backend ray", Place(address="auto").check)
    refuses("leave it out", Place(backend="ray", address="auto", jobs=2).check)
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "ray" else find(name, *rest))
    with pytest.raises(ImportError, match=r"pip install 'dp-ensemble-env\[ray\]'"):
        Place(backend="ray").check()
