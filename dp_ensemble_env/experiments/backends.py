"""Where cells are computed: in this process, in several, or on a Ray cluster.

Each backend is a generator that takes cells and yields their rows in the order in which they are done. None of them
writes a result: the caller does, so no disk needs to be shared. Each worker process has one thread for numerical
libraries: cells run side by side, and results do not depend on the number of cores.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextvars import Context
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

from dp_ensemble_env.experiments import cluster
from dp_ensemble_env.experiments.runner import Cell, Row, Supplies, compute, lost
from dp_ensemble_env.tools.validation import check_count

Rows = Generator[Row, None, None]
#: Times that a cell may take its process with it before it counts as failed.
DEATHS = 2
#: What numerical libraries read when they are imported.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
# A forked copy of a process that has used threads may hang, so workers start afresh.
_context = multiprocessing.get_context("spawn")


class ClusterLostError(Exception):
    """The Ray cluster cannot be reached, or is gone."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where cells are computed."""

    jobs: int | None = None
    """Cells at a time on this machine (default: one, for the leaderboard two; with Ray all cores)."""
    backend: Literal["local", "ray"] = "local"
    """Compute on this machine, or on a Ray cluster."""
    address: str | None = None
    """Address of the Ray cluster, or auto; without it Ray is started on this machine."""

    def check(self) -> None:
        """Refuse what cannot work."""
        if self.jobs is not None:
            check_count(self.jobs, "--jobs", 1)
        if self.address is not None and self.backend != "ray":
            raise ValueError("--address names a Ray cluster; add --backend ray.")
        if self.address is not None and self.jobs is not None:
            raise ValueError(
                "--jobs is for this machine; a cluster computes as many cells as it has CPUs, so leave it out."
            )
        if self.backend == "ray" and importlib.util.find_spec("ray") is None:
            raise ImportError("Ray is not installed; pip install 'dp-ensemble-env[ray]', or leave --backend ray out.")

    def run(self, cells: list[Cell], supplies: Supplies, log: Path, note: Callable[[str], None]) -> Rows:
        """Yield the row of each cell, as they are done."""
        self.check()
        if not cells:
            return
        if self.backend == "ray":
            yield from on_ray(cells, supplies, self, log, note)
        elif self.jobs is not None and self.jobs > 1:
            yield from in_processes(cells, supplies, self.jobs)
        else:
            # In a context of its own, as in another process: a cell's errors name settings as agents' texts do.
            yield from (Context().run(compute, cell, supplies) for cell in cells)


# ------------------------------------------------------------------ processes
@dataclass(eq=False)
class _Worker:
    """A process, our end of the pipe to it, and the cell it is working on with the deaths that cell has caused."""

    process: Any
    pipe: Connection
    cell: Cell | None = None
    deaths: int = 0


def in_processes(cells: list[Cell], supplies: Supplies, jobs: int) -> Rows:
    """Yield the rows in the order in which they are done, from so many processes at a time.

    A cell that keeps killing its process is lost, and no other one suffers. When the generator is closed, by Ctrl-C for
    instance, the processes are killed.
    """
    queue = deque((cell, 0) for cell in cells)
    workers: list[_Worker] = []
    try:
        while queue or any(worker.cell is not None for worker in workers):
            while queue and len(workers) < jobs:
                ours, process = _started(_serve, supplies)
                workers.append(_Worker(process, ours))
            for worker in workers:
                if worker.cell is None and queue:
                    worker.cell, worker.deaths = queue.popleft()
                    with contextlib.suppress(OSError):  # it died while idle; reading from it will tell
                        worker.pipe.send(worker.cell)
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                cell, worker.cell = worker.cell, None
                try:
                    yield worker.pipe.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    worker.process.join()
                    if cell is not None and worker.deaths + 1 < DEATHS:
                        queue.appendleft((cell, worker.deaths + 1))
                    elif cell is not None:
                        status = worker.process.exitcode
                        yield lost(cell, f"its process died {DEATHS} times, at last with exit status {status}.")
    finally:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()


def _started(work: Callable[..., None], *settings: Any) -> tuple[Connection, Any]:
    """Start a process with one end of a pipe; return the other end, and the process.

    The process has one thread and does not hear Ctrl-C, which is its parent's business.
    """
    ours, theirs = _context.Pipe()
    process = _context.Process(target=work, args=(theirs, *settings), daemon=True)
    resource_tracker.ensure_running()  # else starting the first process would start it, and unblock the signal
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
    before = {name: os.environ[name] for name in ONE_THREAD if name in os.environ}
    os.environ.update(ONE_THREAD)
    try:
        process.start()
    finally:
        for name in ONE_THREAD:
            del os.environ[name]
        os.environ.update(before)
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    theirs.close()  # so that the end of the process is the end of the pipe
    return ours, process


def _serve(pipe: Connection, supplies: Supplies) -> None:
    """Compute cells until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(compute(pipe.recv(), supplies))


def _follow_parent() -> None:
    """End this process when its parent ends, in the middle of a task if need be."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


# ------------------------------------------------------------------ Ray
def on_ray(cells: list[Cell], supplies: Supplies, place: Place, log: Path, note: Callable[[str], None]) -> Rows:
    """Compute the cells on a Ray cluster, or on one started for the purpose; `note` is told what the cluster lacks.

    Ray lives in a process of its own: when the cluster goes down Ray ends the
    process that was connected to it, and what has arrived must outlive that.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    ours, process = _started(cluster.drive, cells, supplies, place.address, place.jobs, str(log))
    there = place.address
    problem = "cannot start Ray here" if there is None else f"cannot reach the Ray cluster at {there}"
    try:
        while True:
            try:
                kind, content = ours.recv()
            except (EOFError, OSError):
                raise ClusterLostError(f"{problem} (details: {log})") from None
            if kind == "lost":
                raise ClusterLostError(f"{content} (details: {log})")
            if kind == "connected":
                problem = "the connection to the Ray cluster was lost"
            elif kind == "note":
                note(f"{content}.")
            elif kind == "end":
                return
            else:
                yield content
    finally:
        ours.close()
        process.join(10)  # it sees that nobody listens, and says goodbye to the cluster
        if process.is_alive():
            process.terminate()
            process.join()
