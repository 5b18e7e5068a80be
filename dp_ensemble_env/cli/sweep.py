"""`dp-ensemble sweep`: a grid of cells, here or on a Ray cluster."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, execute, keeping
from dp_ensemble_env.experiments.sweep.backends import ClusterLostError, Place
from dp_ensemble_env.experiments.sweep.cells import BUILT_IN, Cell, Store
from dp_ensemble_env.experiments.sweep.grid import DEFAULTS, Grid, read_grid
from dp_ensemble_env.experiments.sweep.report import (
    mixed_software,
    show_time,
    state_rows,
    summary_cells,
    work_left,
    write_tables,
)
from dp_ensemble_env.reporting.page import OWNER_ONLY
from dp_ensemble_env.reporting.tables import show_table
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import check_writable

DESCRIPTION = """Run a grid of cells, method × privacy × action mode × seed × data set, here or on a Ray cluster.

A controller is made on a release of the matrix (none is the true one), scored there and, deployed with its actions as
they are, on the true dynamics. Every finished cell is a file in the output folder and is never run again: after a
crash, Ctrl-C or the loss of the cluster, the same command does the rest. Failed cells are tried again.

Exit status: 0 all cells done, 1 some failed, 2 bad input, 3 the cluster was lost, 130 interrupted."""
EXAMPLES = (
    "dp-ensemble sweep --methods standard taylor --k none 10 50 \\",
    "    --actions policy --seeds 0-99 --jobs 2",
    "dp-ensemble sweep --meters shop.csv --unit kW --stamp start",
    "dp-ensemble sweep --grid study.toml --list",
    "dp-ensemble sweep --grid study.toml --backend ray --address auto",
)
STATE = ("data", "method", "action", "privacy", "steps", "cells", "done", "failed", "missing", "s each", "left")
HEADINGS = (
    "data",
    "method",
    "action",
    "privacy",
    "deployed on true",
    "without data",
    "ε",
    "on the release",
    "$ short",
    "steps",
    "seeds",
)
NOTE = (
    "What was made on a release is scored where it is deployed, on the true dynamics. Beside it stand a plan made "
    "without data (ε = 0) and the ε of one release at δ = 1e-6 ('none': no guarantee, as there is no floor). The score "
    "on the release itself says little: the exact plan has 100 there."
)


def build_parser() -> Parser:
    """Declare the options; a default of None means that the grid file may set it."""
    parser = Parser(prog="dp-ensemble sweep", description=DESCRIPTION, examples=EXAMPLES)
    grid = parser.add_argument_group("grid (default: four baselines, k none and 50, tilt, seeds 0-4, campus-event)")
    grid.add_argument("--grid", type=Path, metavar="FILE", help="TOML file with the same names; options override it")
    grid.add_argument("--methods", nargs="+", metavar="NAME", help=f"any of {', '.join(BUILT_IN)}")
    grid.add_argument("--privacy", nargs="+", metavar="SPEC", help="mechanisms; none for the true matrix")
    grid.add_argument("--k", nargs="+", metavar="K", help="short for --privacy dirichlet:k=K; none for the true matrix")
    grid.add_argument("--actions", nargs="+", metavar="MODE", help="action modes: price, tilt, policy, discrete")
    grid.add_argument("--seeds", nargs="+", metavar="N", help="seeds and ranges such as 0-999")
    grid.add_argument("--scenarios", nargs="+", metavar="NAME", help="built-in problems, NAME or NAME:INSTANCE")
    grid.add_argument("--meters", nargs="+", metavar="FILE", help="meter files, one data set each")
    grid.add_argument("--steps", nargs="+", metavar="N", help="steps of the learners, or NAME=N (default: as tuned)")
    grid.add_argument("--agents", metavar="FILE", help="Python file that registers methods of your own")
    names = [name for name in (*options.DATA, *options.EVENT) if name != "meter"]
    plain = [name for name in names if options.OPTIONS[name].default not in (None, ())]
    unset = dict.fromkeys((*(name.replace("-", "_") for name in plain), "exclude", "holidays", "population"))
    values = {name: options.OPTIONS[name].default for name in plain}
    shown = {name: " ".join(value) if isinstance(value, tuple) else value for name, value in values.items()}
    helps = {name: f"{options.OPTIONS[name].help} (default {value})" for name, value in shown.items()}
    helps |= {"population": f"{options.POPULATIONS} (default mean-field)"}
    options.add(parser, *names, "levels", "loads", "penalty", "population", "floor", helps=helps, **unset)
    options.add(parser, "output", "jobs", output=Path("runs/sweep"), helps={"jobs": "cells at a time on this machine "
                "(default 1; with Ray all cores)"}, jobs=None)  # fmt: skip
    parser.set_defaults(jobs=None)
    where = parser.add_argument_group("where and how")
    options.add_place(where)
    where.add_argument("--keep-failed", action="store_true", help="do not try failed cells again")
    where.add_argument("--list", action="store_true", help="say what is done and missing, and run nothing")
    where.add_argument("--summary-only", action="store_true", help="write the tables of what is there, and run nothing")
    return parser


def grid_of(args: argparse.Namespace) -> Grid:
    """Read the grid that the options and their file describe."""
    given = {name: getattr(args, name, None) for name in DEFAULTS}
    return read_grid({name: value for name, value in given.items() if value is not None}, args.grid)


class Sweep:
    """The cells of a grid, what is known of them, and the folder they are kept in."""

    def __init__(self, args: argparse.Namespace, grid: Grid, cells: list[Cell], place: Place) -> None:
        self.args, self.grid, self.cells, self.place = args, grid, cells, place
        self.store = Store(args.output)
        self.records: dict[str, dict[str, Any]] = {}
        self.failed = 0
        with Progress("reading the folder", len(cells)) as bar:
            for count, cell in enumerate(cells, 1):
                if (record := self.store.load(cell)) is not None:
                    self.keep(cell, record)
                bar.advance(count)

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
        study, problems = self.grid.study()
        for problem in problems:
            options.say_notes(problem)
        check_writable(self.args.output, folder=True)
        with Progress("cells", len(self.cells)) as bar:
            bar.begin_at(len(self.records))
            with contextlib.closing(self.place.run(todo, study, self.args.output / "ray.log", bar.say)) as records:
                for cell, record in records:
                    self.store.save(cell, record)
                    self.keep(cell, record)
                    if record["error"] is not None:
                        bar.say(f"failed: {cell.title}: {record['error']['message']}")
                    bar.advance(len(self.records), f"{self.done:,} of {len(self.cells):,} done, {self.failed:,} failed")

    def report(self) -> None:
        """Write the tables and print the summary."""
        suffix = OWNER_ONLY if any(data.problem.meter is not None for data in self.grid.data) else ""
        summary = write_tables(self.args.output, self.cells, self.records, suffix)
        title = "Mean over seeds ± standard error (score: 0 = uncontrolled, 100 = optimum of the same environment)"
        notes = (NOTE,) if any(row["without_data"] is not None for row in summary) else ()
        show_table(title, HEADINGS, [summary_cells(row) for row in summary], keep=4, notes=notes)
        print(f"{self.done:,} of {len(self.cells):,} cells done, {self.failed:,} failed; tables in {self.args.output}")
        if mixed := mixed_software(self.records):
            print(f"Not all cells were run with the same software: {'; '.join(mixed)}.")

    def show_state(self) -> None:
        """Print what is done and what is left."""
        show_table("Cells", STATE, state_rows(self.cells, self.records), keep=4)
        seconds, unknown = work_left(self.cells, self.records)
        words = f"; {unknown:,} cells of a kind that has not been run yet are not counted" if unknown else ""
        print(f"{len(self.cells):,} cells: {self.done:,} done, {self.failed:,} failed, ", end="")
        print(f"{len(self.cells) - len(self.records):,} missing; left: {show_time(seconds)} of one core{words}.")


def run(args: argparse.Namespace) -> int:
    """Run the grid, or say how it stands."""
    place = options.place_of(args)
    grid = grid_of(args)
    cells, skipped = grid.cells()
    for reason in skipped:
        print(f"left out: {reason}", file=sys.stderr)
    if not cells:
        raise ValueError("nothing is left to run; choose methods and actions that go together.")
    sweep = Sweep(args, grid, cells, place)
    if args.list:
        sweep.show_state()
        return 0
    if args.summary_only and not sweep.records:
        raise ValueError(f"no cell of this grid is in {args.output}; leave --summary-only out to run it.")
    kept = "the same command does the rest"
    with keeping(lambda: f"{sweep.done:,} finished cells are kept, {kept}"):
        try:
            if not args.summary_only:
                sweep.run()
        except ClusterLostError as error:
            print(f"dp-ensemble sweep: {error}; {sweep.done:,} finished cells are kept, {kept}.", file=sys.stderr)
            return 3
        sweep.report()
    return 1 if sweep.failed else 0


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
