"""Comparisons on a real Ray cluster of several nodes, which are killed while it works."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

ROOT = Path(__file__).parents[2]
#: An agent that notes who runs it and with which code, and from the third seed on waits until a file appears; one
#: that fails, and one that kills its worker every time.
AGENTS = """
import os, time
from pathlib import Path
import numpy as np
import dp_ensemble_env.agents as agents
from dp_ensemble_env.agents.base import ScheduleAgent, core_env, register_agent

HERE = Path(os.environ["RAY_TEST_FOLDER"])

def constant(env, price):
    return ScheduleAgent(np.full((core_env(env).model.horizon, 1), price, np.float32), "constant", "nothing")

@register_agent("gated")
def gated(env, seed):
    (HERE / "started").mkdir(exist_ok=True)
    (HERE / "started" / f"{seed}-{os.getpid()}-{time.time_ns()}").write_text(agents.__file__)
    while seed >= 2 and not (HERE / "open").exists():
        time.sleep(0.05)
    return constant(env, 0.1 * (seed % 7))

@register_agent("faulty")
def faulty(env, seed):
    if seed == 1:
        raise ZeroDivisionError("seed one is not liked")
    if seed == 2:
        os.kill(os.getpid(), 9)
    return constant(env, 0.2)
"""
GATED = ("--agents", "gated", "--actions", "price", "--privacy", "none", "dirichlet:k=50", "--seeds", "0-4")
COMPARE = (sys.executable, "-m", "dp_ensemble_env", "compare", "--import", "own_agents.py")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """The nodes' cache, with the code unpacked as the nodes do and the functions that are compiled here already."""
    from dp_ensemble_env.experiments import cluster
    from dp_ensemble_env.experiments.runner import Supplies

    home = tmp_path_factory.mktemp("cache")
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(home))
    patch.setenv("PYTHONPATH", "")
    patch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "5")  # instead of a minute
    package = cluster.pack(Supplies())
    code = Path(cluster.unpack(package["code"], package["digest"]))
    for folder, place in (("dp_ensemble_env", "dp_ensemble_env"), ("agents", "dp_ensemble_env/agents")):
        for path in (ROOT / folder).rglob("*.py"):
            target = code / place / path.relative_to(ROOT / folder)
            os.utime(target, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        for path in (ROOT / folder).rglob("*.nb[ic]"):
            target = code / place / path.relative_to(ROOT / folder)
            target.parent.mkdir(exist_ok=True)
            shutil.copy2(path, target)
    yield home
    patch.undo()


@pytest.fixture
def clusters(cache):
    """Return a function that starts a cluster: a head without CPUs, and nodes with one each."""
    running = []

    def start(nodes=2):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        running.append(cluster)
        members = [cluster.add_node(num_cpus=1) for _ in range(nodes)]
        cluster.wait_for_nodes()
        return cluster, members

    yield start
    for cluster in running:
        cluster.shutdown()


@pytest.fixture
def comparisons(tmp_path, monkeypatch):
    """Return a function that starts a comparison as a user does; what is left of it is killed afterwards."""
    (tmp_path / "own_agents.py").write_text(AGENTS)
    monkeypatch.setenv("RAY_TEST_FOLDER", str(tmp_path))
    running = []

    def start(folder, *arguments, cluster=None):
        command = [*COMPARE, *arguments, "--output", folder]
        command += ["--backend", "ray", "--address", cluster.address] if cluster else []
        with open(f"{folder}.txt", "wb") as stream:
            process = subprocess.Popen(
                command, stdout=stream, stderr=stream, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()


def finish(process, folder):
    """Wait for the end, and return the status and what was said."""
    return process.wait(timeout=600), Path(f"{folder}.txt").read_text()


def wait_for(condition, process, folder):
    """Wait until something is true; five minutes without it, or the end of the process, are a failure."""
    for _ in range(6000):
        if condition():
            return
        assert process.poll() is None, Path(f"{folder}.txt").read_text()
        time.sleep(0.05)
    raise AssertionError(f"it never came true; {Path(f'{folder}.txt').read_text()}")


def started():
    """Seed and process of every start of a gated cell."""
    return [tuple(map(int, path.name.split("-")[:2])) for path in Path("started").glob("*")]


def waiting(count, folder, finished=4):
    """Whether the open cells are done, and `count` others wait for the gate."""
    return len(files(folder)) == finished and len({pid for seed, pid in started() if seed >= 2}) == count


def files(folder):
    """Inode and time of every cell, which show whether it was written again."""
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in Path(folder, "cells").glob("[!.]*.json")
    }


def tables(folder):
    """The table as it is written, and the digest of all results."""
    return Path(folder, "results.csv").read_bytes(), json.loads(Path(folder, "results.json").read_text())["digest"]


def rows(folder):
    return json.loads(Path(folder, "results.json").read_text())["rows"]


def nodes_of(folder):
    return {row["compute"]["node"] for row in rows(folder)}


def without_ray(folder, *grid):
    """Run the same cells in this process, and return the tables."""
    command = [*COMPARE, *grid, "--output", "local"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_TEST_FOLDER": str(folder)}
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return tables(folder / "local")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    (folder / "own_agents.py").write_text(AGENTS)
    (folder / "open").touch()
    return without_ray(folder, *GATED)


def test_one_node_two_nodes_and_no_ray_give_the_same_tables(clusters, comparisons, tmp_path):
    grid = ("--agents", "standard:action=tilt", "best-price:action=price", "z-learning:action=tilt,steps=5000",
            "ppo:action=price,steps=2304", "--privacy", "dirichlet:k=50", "--seeds", "0-1",
            "--scenarios", "campus-event")  # fmt: skip
    cluster, _ = clusters(1)
    status, words = finish(comparisons("one", *grid, cluster=cluster), "one")
    assert status == 0, words
    cluster.add_node(num_cpus=1)
    status, words = finish(comparisons("two", *grid, cluster=cluster), "two")
    assert status == 0, words
    assert len(nodes_of("one")) == 1 and len(nodes_of("two")) == 2
    assert len(rows("two")) == 2 * 4
    assert tables("one") == tables("two") == without_ray(tmp_path, *grid)


def test_killed_node_and_killed_worker_lose_only_what_they_were_at(clusters, comparisons, cache, reference):
    cluster, nodes = clusters(2)
    process = comparisons("out", *GATED, cluster=cluster)
    wait_for(lambda: waiting(2, "out"), process, "out")
    before = files("out")
    victim = next(pid for seed, pid in started() if seed >= 2)
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: waiting(3, "out"), process, "out")  # its cell was started again
    running = {pid for seed, pid in started() if seed >= 2} - {victim}
    cluster.remove_node(nodes[0], allow_graceful=False)
    wait_for(lambda: sum(Path("/proc", str(pid)).exists() for pid in running) == 1, process, "out")
    Path("open").touch()
    status, words = finish(process, "out")
    assert status == 0, words
    assert "10 cells done, 0 failed" in words
    assert before.items() <= files("out").items()
    assert len(started()) == 10 + 2  # the cell of the killed worker and that of the killed node were begun twice
    assert tables("out") == reference
    # The nodes ran the code that was shipped, not what happens to be installed here.
    assert all(path.read_text().startswith(str(cache)) for path in Path("started").glob("*"))


def test_killed_head_ends_the_comparison_and_keeps_what_is_done(clusters, comparisons, reference):
    cluster, _ = clusters(2)
    process = comparisons("out", *GATED, cluster=cluster)
    wait_for(lambda: waiting(2, "out"), process, "out")
    before = files("out")
    cluster.remove_node(cluster.head_node, allow_graceful=False)
    status, words = finish(process, "out")
    assert status == 3
    last = words.strip().splitlines()[-1]
    assert "Ray cluster" in last and "finished cells are kept" in last
    assert "Traceback" not in words
    assert files("out") == before and len(before) == 4
    Path("open").touch()
    fresh, _ = clusters(1)
    done = len(started())
    status, words = finish(comparisons("out", *GATED, cluster=fresh), "out")
    assert status == 0, words
    assert len(started()) == done + 6
    assert before.items() <= files("out").items()
    assert tables("out") == reference


def test_killed_driver_keeps_what_is_done_and_frees_the_cluster(clusters, comparisons, reference):
    cluster, _ = clusters(1)
    process = comparisons("out", *GATED, cluster=cluster)
    wait_for(lambda: waiting(1, "out"), process, "out")
    before = files("out")
    process.kill()
    process.wait()
    other = comparisons("faulty", "--agents", "faulty", "--actions", "price", "--privacy", "none", "--seeds", "0-3",
                   cluster=cluster)  # fmt: skip
    status, words = finish(other, "faulty")  # the only CPU is free again although the gate is closed
    assert status == 1, words
    assert [row["cell"]["seed"] for row in rows("faulty")] == [0, 3]
    kept = [json.loads(path.read_text()) for path in Path("faulty", "cells").glob("[!.]*.json")]
    failed = {row["cell"]["seed"]: row["error"] for row in kept if row["error"]}
    assert failed[1]["type"] == "ZeroDivisionError" and "WorkerCrashedError" in failed[2]["message"]
    assert files("out") == before and len(before) == 4
    Path("open").touch()
    status, words = finish(comparisons("out", *GATED, cluster=cluster), "out")
    assert status == 0, words
    assert before.items() <= files("out").items() and len(files("out")) == 10
    assert tables("out") == reference


def test_ray_of_its_own_ends_with_the_comparison(comparisons, cache, reference):
    Path("open").touch()
    status, words = finish(comparisons("out", *GATED, "--backend", "ray", "--jobs", "1"), "out")
    assert status == 0, words
    assert tables("out") == reference
    (node,) = nodes_of("out")
    assert node
    for _ in range(600):  # a worker may take a moment to notice
        if not any(Path("/proc", str(pid)).exists() for _, pid in started()):
            break
        time.sleep(0.1)
    else:
        raise AssertionError("workers outlive the comparison")


def test_unreachable_cluster_gets_one_sentence(comparisons, monkeypatch):
    monkeypatch.setenv("RAY_gcs_rpc_server_connect_timeout_s", "1")

    class Nowhere:
        address = "127.0.0.1:1"

    status, words = finish(comparisons("out", *GATED, cluster=Nowhere), "out")
    assert status == 3 and "Traceback" not in words
    assert "cannot reach the Ray cluster at 127.0.0.1:1" in words
    assert not files("out")
