"""Where the cells of a sweep are run: in this process, in several, or on a Ray cluster.

Each backend is a generator that takes cells and yields each with its record, in whatever order they are done. None
of them writes a file: that is left to whoever asks, so no disk needs to be shared.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from dp_ensemble_env.experiments.sweep import cluster
from dp_ensemble_env.experiments.sweep.cells import Cell, Study, lost_record, run_cell

Records = Generator[tuple[Cell, dict[str, Any]], None, None]
#: Times that a cell may take its process with it before it counts as failed.
DEATHS = 2
# A forked copy of a process that has used threads may hang, so workers start afresh.
_context = multiprocessing.get_context("spawn")


class ClusterLostError(Exception):
    """The Ray cluster cannot be reached, or is gone."""


def in_process(cells: list[Cell], study: Study) -> Records:
    """Run the cells one after the other."""
    for cell in cells:
        yield cell, run_cell(cell, study)


# ------------------------------------------------------------------ processes
@dataclass(eq=False)
class Worker:
    """A process, our end of the pipe to it, and the cell it is working on with the deaths that cell has caused."""

    process: Any
    pipe: Connection
    cell: Cell | None = None
    deaths: int = 0


def in_processes(cells: list[Cell], study: Study, jobs: int) -> Records:
    """Run the cells in `jobs` processes; a process that dies costs a second run of its own cell and no other."""
    queue = deque((cell, 0) for cell in cells)
    workers: list[Worker] = []
    try:
        while queue or any(worker.cell for worker in workers):
            while queue and len(workers) < jobs:
                workers.append(_start(study))
            for worker in workers:
                if worker.cell is None and queue:
                    worker.cell, worker.deaths = queue.popleft()
                    try:
                        worker.pipe.send(worker.cell)
                    except OSError:  # it died while idle; reading from it will tell
                        pass
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                cell = worker.cell
                try:
                    record = worker.pipe.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    worker.process.join()
                    if cell is None:
                        continue
                    if worker.deaths + 1 < DEATHS:
                        queue.appendleft((cell, worker.deaths + 1))
                        continue
                    status = worker.process.exitcode
                    record = lost_record(cell, f"its process died {DEATHS} times, at last with exit status {status}.")
                assert cell is not None
                worker.cell = None
                yield cell, record
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()


def _start(study: Study) -> Worker:
    ours, theirs = _context.Pipe()
    process = _context.Process(target=_work, args=(theirs, study), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    return Worker(process, ours)


def _work(pipe: Connection, study: Study) -> None:
    """Run cells until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent deals with it
    threading.Thread(target=_follow_parent, daemon=True).start()
    try:
        while True:
            pipe.send(run_cell(pipe.recv(), study))
    except (EOFError, OSError):
        return


def _follow_parent() -> None:
    """End this process when its parent ends, in the middle of a cell if need be."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


# ------------------------------------------------------------------ Ray
def on_ray(cells: list[Cell], study: Study, address: str | None, jobs: int | None, log: Path) -> Records:
    """Run the cells on a Ray cluster, or on one started for the purpose.

    Ray lives in a process of its own: when the cluster goes down Ray ends the
    process that was connected to it, and what has arrived must outlive that.
    """
    by_key = {cell.key: cell for cell in cells}
    ours, theirs = _context.Pipe()
    log.parent.mkdir(parents=True, exist_ok=True)
    settings = (theirs, cells, study, address, jobs, str(log))
    process = _context.Process(target=cluster.drive, args=settings, daemon=True)
    process.start()
    theirs.close()
    problem = "cannot start Ray here" if address is None else f"cannot reach the Ray cluster at {address}"
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
                print(f"sweep.py: {content}.", file=sys.stderr)
            elif kind == "end":
                return
            else:
                yield by_key[content["key"]], content
    finally:
        ours.close()
        process.join(10)  # it sees that nobody listens, and says goodbye to the cluster
        if process.is_alive():
            process.terminate()
            process.join()
