"""Where the cells of a sweep are run: in this process, in several, or on a Ray cluster.

Each backend is a generator that takes cells and yields each with its record, in whatever order they are done. None
of them writes a file: that is left to whoever asks, so no disk needs to be shared.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp_ensemble_env.experiments import workers
from dp_ensemble_env.experiments.sweep import cluster
from dp_ensemble_env.experiments.sweep.cells import Cell, Computes, lost_record, run_cell

Records = Generator[tuple[Cell, dict[str, Any]], None, None]


class ClusterLostError(Exception):
    """The Ray cluster cannot be reached, or is gone."""


@dataclass(frozen=True)
class Place:
    """Where cells are run.

    Attributes
    ----------
    backend : {"local", "ray"}
    address : str, optional
        Of a Ray cluster; None starts one here.
    jobs : int, optional
        Cells at a time: here by default one, with Ray all cores.
    """

    backend: str = "local"
    address: str | None = None
    jobs: int | None = None

    def __post_init__(self) -> None:
        if self.address is not None and self.backend != "ray":
            raise ValueError("--address is that of a Ray cluster; add --backend ray.")
        if self.address is not None and self.jobs is not None:
            raise ValueError(
                "--jobs is for this machine; a cluster runs as many cells as it has CPUs, so leave it out."
            )
        if self.backend == "ray" and importlib.util.find_spec("ray") is None:
            raise ImportError("Ray is not installed; pip install 'dp-ensemble-env[ray]', or leave --backend ray out.")

    def run(self, cells: list[Cell], study: Computes, log: Path, note: Callable[[str], None]) -> Records:
        """Yield each cell with its record, as they are done."""
        if self.backend == "ray":
            return on_ray(cells, study, self.address, self.jobs, log, note)
        return (
            in_processes(cells, study, self.jobs)
            if self.jobs is not None and self.jobs > 1
            else in_process(cells, study)
        )


def in_process(cells: list[Cell], study: Computes) -> Records:
    """Run the cells one after the other."""
    for cell in cells:
        yield cell, run_cell(cell, study)


def in_processes(cells: list[Cell], study: Computes, jobs: int) -> Records:
    """Run the cells in `jobs` processes; a process that dies costs a second run of its own cell and no other."""
    for cell, found in workers.in_processes(run_cell, cells, study, jobs):
        yield cell, lost_record(cell, str(found)) if isinstance(found, workers.Died) else found


def on_ray(
    cells: list[Cell],
    study: Computes,
    address: str | None,
    jobs: int | None,
    log: Path,
    note: Callable[[str], None],
) -> Records:
    """Run the cells on a Ray cluster, or on one started for the purpose; `note` is told what the cluster lacks.

    Ray lives in a process of its own: when the cluster goes down Ray ends the
    process that was connected to it, and what has arrived must outlive that.
    """
    by_key = {cell.key: cell for cell in cells}
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    log.parent.mkdir(parents=True, exist_ok=True)
    settings = (theirs, cells, study, address, jobs, str(log))
    process = context.Process(target=cluster.drive, args=settings, daemon=True)
    with workers.for_children():
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
                note(f"{content}.")
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
