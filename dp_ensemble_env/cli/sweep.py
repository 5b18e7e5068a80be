#!/usr/bin/env python3
"""Run a grid of cells, method × k × action mode × seed × data set, here or on a Ray cluster.

Examples
--------
    dp-ensemble sweep                                              a small grid on the synthetic campus
    dp-ensemble sweep --methods standard taylor --k none 10 50 200 --actions policy --seeds 0-99 --jobs 2
    dp-ensemble sweep --methods ppo z-learning --actions price tilt --steps 20000 ppo=50000
    dp-ensemble sweep --data campus campus:1 meter.csv --unit kW --stamp start --date 2018-07-02
    dp-ensemble sweep --grid study.toml --list                     count the cells, done and missing; run nothing
    dp-ensemble sweep --grid study.toml --backend ray              on a Ray of its own, on this machine
    dp-ensemble sweep --grid study.toml --backend ray --address auto    on the cluster this machine belongs to

A controller is made on a release of the matrix (k; none is the true one), scored there and, deployed with its actions
as they are, on the true dynamics. Every finished cell is a file in the output folder and is never run again: after a
crash, Ctrl-C or the loss of the cluster, the same command does the rest. Failed cells are tried again.

Exit status: 0 all cells done, 1 some failed, 2 bad input, 3 the cluster was lost, 130 interrupted.
"""

from __future__ import annotations

import os

# One thread per cell, here as on a cluster; set before NumPy reads it.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env._validation import check_count
from dp_ensemble_env.agents.hyperparams import ACTIONS
from dp_ensemble_env.experiments.sweep.backends import ClusterLostError, Records, in_process, in_processes, on_ray
from dp_ensemble_env.experiments.sweep.cells import BUILT_IN, Cell, Store, Study
from dp_ensemble_env.experiments.sweep.grid import NAMES, Grid, read_grid
from dp_ensemble_env.experiments.sweep.report import (
    mixed_software,
    show_time,
    state_rows,
    summary_cells,
    work_left,
    write_tables,
)
from dp_ensemble_env.reporting.tables import show_table as show

STATE = ("data", "method", "action", "k", "steps", "cells", "done", "failed", "missing", "s each", "left")
HEADINGS = ("data", "method", "action", "k", "steps", "seeds", "score where made", "deployed on true", "$ to optimum")


def build_parser() -> argparse.ArgumentParser:
    """Declare the options; a default of None means that the grid file may set it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    grid = parser.add_argument_group("the grid (defaults: four baselines, k none and 50, tilt, seeds 0-4, campus)")
    grid.add_argument("--grid", type=Path, metavar="FILE", help="TOML file with the same names; options overrule it")
    grid.add_argument("--methods", nargs="+", metavar="NAME", help=f"any of {', '.join(BUILT_IN)}")
    grid.add_argument("--k", nargs="+", metavar="K", help="concentrations of the release; none for the true matrix")
    grid.add_argument("--actions", nargs="+", metavar="MODE", help=f"any of {', '.join(ACTIONS)}")
    grid.add_argument("--seeds", nargs="+", metavar="N", help="seeds and ranges such as 0-999")
    grid.add_argument("--data", nargs="+", metavar="SET", help="campus, campus:SEED, or meter files")
    grid.add_argument("--steps", nargs="+", metavar="N", help="steps of the learners, or NAME=N (default: as tuned)")
    grid.add_argument("--env", help=f"environment: {', '.join(NAMES)} (default MeanField)")
    grid.add_argument("--floor", type=float, help="least probability before the release is drawn (default 0)")
    grid.add_argument("--agents", metavar="FILE", help="Python file that registers methods of your own")
    meter = parser.add_argument_group("how meter files are read, and the event")
    meter.add_argument("--unit", help="unit, if the file does not say (kW, kWh, ...)")
    meter.add_argument("--stamp", choices=["start", "end"], help="which end of an interval the stamps mark")
    meter.add_argument("--column", help="column, or 'sum'")
    meter.add_argument("--date", help="day of the event (default 2018-07-02)")
    meter.add_argument("--step-minutes", type=int, help="length of a step (default 15)")
    where = parser.add_argument_group("where and how")
    where.add_argument("--output", type=Path, default=Path("runs/sweep"), help="folder (default runs/sweep)")
    where.add_argument("--backend", choices=["local", "ray"], default="local", help="default local")
    where.add_argument("--address", help="of a Ray cluster, or auto (default: start Ray on this machine)")
    where.add_argument("--jobs", type=int, help="cells at a time on this machine (default 1; with Ray: all cores)")
    where.add_argument("--keep-failed", action="store_true", help="do not try failed cells again")
    where.add_argument("--list", action="store_true", help="say what is done and missing, and run nothing")
    where.add_argument("--summary-only", action="store_true", help="write the tables of what is there, and run nothing")
    return parser


def check(args: argparse.Namespace) -> None:
    """Refuse what cannot work."""
    if args.jobs is not None:
        check_count(args.jobs, "--jobs", 1, 4096)
    if args.address is not None and args.backend != "ray":
        raise ValueError("--address is that of a Ray cluster; add --backend ray.")
    if args.address is not None and args.jobs is not None:
        raise ValueError("--jobs is for this machine; a cluster runs as many cells as it has CPUs, so leave it out.")
    if args.backend == "ray" and importlib.util.find_spec("ray") is None:
        raise ImportError("Ray is not installed; pip install ray, or leave --backend ray out.")


def backend(args: argparse.Namespace, cells: list[Cell], study: Study) -> Records:
    """Return the records of cells as they are done."""
    if args.backend == "ray":
        return on_ray(cells, study, args.address, args.jobs, args.output / "ray.log")
    return in_processes(cells, study, args.jobs) if (args.jobs or 1) > 1 else in_process(cells, study)


# ------------------------------------------------------------------ running
class Sweep:
    """The cells of a grid, what is known of them, and the folder they are kept in."""

    def __init__(self, args: argparse.Namespace, grid: Grid, cells: list[Cell], console: Any) -> None:
        self.args, self.grid, self.cells, self.console = args, grid, cells, console
        self.store = Store(args.output)
        self.records: dict[str, dict[str, Any]] = {}
        self.failed = 0
        with self._bar("reading the folder") as step:
            for cell in cells:
                if (record := self.store.load(cell)) is not None:
                    self.keep(cell, record)
                step()

    def keep(self, cell: Cell, record: dict[str, Any]) -> None:
        """Remember what the tables need of a record."""
        for side in ("made", "deployed"):
            if record["result"] is not None:
                record["result"][side].pop("power_kw", None)  # the file has it
        self.records[cell.key] = {**record, "config": cell.config}
        self.failed += record["error"] is not None

    @property
    def done(self) -> int:
        """Number of finished cells."""
        return len(self.records) - self.failed

    def pending(self) -> list[Cell]:
        """Return the cells that are to be run; those that failed before are forgotten, unless they are to be kept."""
        if not self.args.keep_failed:
            self.records = {key: record for key, record in self.records.items() if record["error"] is None}
            self.failed = 0
        return [cell for cell in self.cells if cell.key not in self.records]

    def run(self) -> None:
        """Run what is missing, and write every cell as soon as it is done."""
        todo = self.pending()
        if not todo:
            return
        study = self.grid.study()
        with atomic_write(self.args.output / ".writable"):  # learn of a folder that cannot be written before the work
            pass
        (self.args.output / ".writable").unlink()
        with self._bar("cells", len(self.records)) as step:
            with contextlib.closing(backend(self.args, todo, study)) as records:
                for cell, record in records:
                    self.store.save(cell, record)
                    self.keep(cell, record)
                    if record["error"] is not None:
                        words = f"failed: {cell.title}: {record['error']['message']}"
                        self.console.print(words, highlight=False, markup=False, soft_wrap=True)
                    step()

    @contextlib.contextmanager
    def _bar(self, title: str, known: int = 0) -> Iterator[Callable[[], None]]:
        if not self.console.is_terminal:
            yield lambda: self._line(title)
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        counts = TextColumn(
            "{task.fields[done]:,} of {task.total:,.0f} done, {task.fields[failed]:,} failed, time left"
        )
        columns = (TextColumn("{task.description}"), BarColumn(), counts, TimeRemainingColumn())
        with Progress(*columns, console=self.console, transient=True, speed_estimate_period=86_400) as bar:
            task = bar.add_task(title, total=len(self.cells), completed=known, done=self.done, failed=self.failed)
            yield lambda: bar.update(task, advance=1, done=self.done, failed=self.failed)

    def _line(self, title: str) -> None:
        """Say at every tenth part how far it is, where no bar can be drawn."""
        known, tenth = len(self.records), max(1, len(self.cells) // 10)
        if title == "cells" and known % tenth == 0:
            print(
                f"{self.done:,} of {len(self.cells):,} cells done, {self.failed:,} failed", file=sys.stderr, flush=True
            )

    def report(self) -> None:
        """Write the tables and print the summary."""
        summary = write_tables(self.args.output, self.cells, self.records)
        title = "Mean over seeds ± standard error (score: 0 = uncontrolled, 100 = optimum of the same environment)"
        show(title, HEADINGS, [summary_cells(row) for row in summary])
        print(f"{self.done:,} of {len(self.cells):,} cells done, {self.failed:,} failed; tables in {self.args.output}")
        if mixed := mixed_software(self.records):
            print(f"Not all cells were run with the same software: {'; '.join(mixed)}.")

    def show_state(self) -> None:
        """Print what is done and what is left."""
        show("Cells", STATE, state_rows(self.cells, self.records))
        seconds, unknown = work_left(self.cells, self.records)
        words = f"; {unknown:,} cells of a kind that has not been run yet are not counted" if unknown else ""
        print(f"{len(self.cells):,} cells: {self.done:,} done, {self.failed:,} failed, ", end="")
        print(f"{len(self.cells) - len(self.records):,} missing; left: {show_time(seconds)} of one core{words}.")


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    args = build_parser().parse_args(argv)
    sweep = None
    try:
        from rich.console import Console

        check(args)
        grid = read_grid(args)
        cells, skipped = grid.cells()
        console = Console(stderr=True)
        for reason in skipped:
            console.print(f"left out: {reason}", highlight=False, markup=False, soft_wrap=True, style="dim")
        if not cells:
            raise ValueError("nothing is left to run; choose methods and actions that go together.")
        sweep = Sweep(args, grid, cells, console)
        if args.list:
            sweep.show_state()
            return 0
        if not args.summary_only:
            sweep.run()
        sweep.report()
        return 1 if sweep.failed else 0
    except (ValueError, ImportError, OSError) as error:
        print(f"sweep.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, ClusterLostError) as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        kept = 0 if sweep is None else sweep.done
        reason = "interrupted" if interrupted else str(error)
        print(f"sweep.py: {reason}; {kept:,} finished cells are kept, the same command does the rest.", file=sys.stderr)
        return 130 if interrupted else 3


if __name__ == "__main__":
    sys.exit(main())
