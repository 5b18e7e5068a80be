"""`dp-ensemble compare`: agents side by side."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import tyro

from dp_ensemble_env.cli.options import BROUGHT, COMMAND_LINE, OnProblem, keeping, parts, say
from dp_ensemble_env.experiments.backends import ClusterLostError, Place
from dp_ensemble_env.experiments.compare import DataSet, Grid, data_sets, read_grid
from dp_ensemble_env.experiments.runner import Cell, Row, Store, Supplies, results, run, write_results
from dp_ensemble_env.experiments.standings import Standings, show, write_page, write_rows
from dp_ensemble_env.reporting.page import OWNER_ONLY
from dp_ensemble_env.tools.console import Progress, paragraph
from dp_ensemble_env.tools.files import check_writable


@dataclass(frozen=True, kw_only=True)
class Compare(OnProblem):
    """Compare agents: tables, CSV, JSON, pictures and one HTML page.

    Computes the grid agents x privacy x actions x populations x seeds x problems. An agent sees the true
    behaviour or a release of it, and is scored on the true behaviour: 0 = uncontrolled, 100 = the exact optimum. The
    tables add the score of a plan without data and the epsilon spent.

    Each finished cell is saved in the output folder. After a crash, Ctrl-C or the loss of the cluster, run the same
    command again: it computes only missing and failed cells.

    Exit status: 0 all cells done, 1 some failed, 2 bad input, 3 the cluster was lost, 130 interrupted.

    Examples
    --------
      dp-ensemble compare --output runs/demo
      dp-ensemble compare --agents standard ppo:action=price,steps=20000 --jobs 2
      dp-ensemble compare --agents standard taylor --actions policy --seeds 0-99
      dp-ensemble compare --meter meter.csv --unit kW --stamp start
      dp-ensemble compare --file study.toml --backend ray --address auto
    """

    grid: Grid = Grid()
    scenarios: tuple[str, ...] = ()
    """Several built-in problems, NAME or NAME:INSTANCE."""
    meters: tuple[str, ...] = ()
    """Several meter files, one problem each."""
    file: Path | None = None
    """TOML file with the same names; options override it."""
    place: Place = field(default_factory=Place)
    output: Path = Path("runs/compare")
    """Folder for cells, tables and the page."""
    listed: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Show what is done and what is missing; compute nothing."""
    summary_only: bool = False
    """Write and show what is done; compute nothing."""

    @classmethod
    def remembered(cls, words: list[str]) -> Compare | None:
        """Return the settings of a grid file as defaults; a file that is not there is refused later."""
        path = Path(words[words.index("--file") + 1]) if "--file" in words[:-1] else None
        if path is None or not path.is_file():
            return None
        read = read_grid(path)
        return cls(grid=read.grid, scenarios=read.scenarios, meters=read.meters, file=path, **parts(read.base))

    def sets(self) -> list[DataSet]:
        """Return the problems."""
        base, folder = self.settings, Path()
        tables: tuple[Any, ...] = ()
        if self.file is not None:
            tables, folder = read_grid(self.file).data, self.file.parent
        meters = (*self.meters, *(() if base.meter is None else (base.meter,)))
        return data_sets((*self.scenarios, *tables), meters, replace(base, meter=None), folder)

    def run(self) -> int:
        """Compute the grid, or say how it stands."""
        self.place.check()
        brought = BROUGHT.get()
        sets = self.sets()
        cells, skipped = self.grid.cells(sets, brought)
        for reason in skipped:
            print(f"left out: {reason}", file=sys.stderr)
        importlib.import_module("matplotlib")  # a missing extra is told before the work
        if any("hyperparams" in cell.settings for cell in cells):
            importlib.import_module("stable_baselines3")
        store = Store(self.output)
        if self.listed:
            paragraph(state(cells, store))
            return 0
        if self.summary_only:
            rows = [row for cell in cells if (row := store.load(cell)) is not None]
            return self.report(rows, sets, Supplies())
        check_writable(self.output, folder=True)
        supplies, notes = self.grid.supplies(sets, brought)
        say(*notes)
        try:
            rows = compute(cells, store, self.place, supplies)
        except ClusterLostError as error:
            rest = "finished cells are kept; run the same command to continue."
            print(f"dp-ensemble compare: {error}; {rest}", file=sys.stderr)
            return 3
        return self.report(rows, sets, supplies)

    def report(self, rows: list[Row], sets: list[DataSet], supplies: Supplies) -> int:
        """Write and print what was computed; return the exit status."""
        order = {name: i for i, name in enumerate(data.name for data in sets)}
        rows = sorted(rows, key=lambda row: (row.cell.seed, order[row.cell.data]))
        private = any(data.settings.meter is not None for data in sets)
        suffix = OWNER_ONLY if private else ""
        standings, content = Standings(rows), results(rows, COMMAND_LINE.get())
        write_results(self.output / f"results{suffix}.json", content)
        write_rows(self.output / f"results{suffix}.csv", [row for row in rows if row.error is None])
        model = next(iter(supplies.models.values()), None) if len(sets) == 1 else None
        title = f"Which agent does best on {', '.join(standings.problems)}?"
        page = write_page(self.output / f"compare{suffix}.html", standings, title, content, model=model,
                          private=private, suffix=suffix)  # fmt: skip
        show(standings)
        failed = sum(row.error is not None for row in rows)
        print(f"{len(rows) - failed:,} cells done, {failed:,} failed\nTables: {self.output}/results{suffix}.csv, .json")
        print(f"Page:   {page}")
        return 1 if failed else 0


def compute(cells: list[Cell], store: Store, place: Place, supplies: Supplies) -> list[Row]:
    """Run cells with a progress bar, and return the rows in the order of the cells; Ctrl-C says what is kept."""
    rows: list[Row] = []
    kept = "finished cells are kept, the same command does the rest"
    with keeping(lambda: f"{sum(r.error is None for r in rows):,} {kept}"), Progress("cells", len(cells)) as bar:
        for row in run(cells, store, place, bar, supplies):
            rows.append(row)
    places = {cell.key: i for i, cell in enumerate(cells)}
    return sorted(rows, key=lambda row: places[row.cell.key])


def state(cells: list[Cell], store: Store, known: Sequence[Row] = ()) -> str:
    """Say how many cells are done, and estimate the rest from rows of the same agent, action and budget."""

    def kind(cell: Cell) -> tuple[Any, ...]:
        return cell.agent, cell.action, cell.population, cell.steps

    rows = {cell.key: store.load(cell) for cell in cells}
    seconds: dict[tuple[Any, ...], list[float]] = {}
    for row in (*known, *rows.values()):
        if row is not None and row.error is None:
            seconds.setdefault(kind(row.cell), []).append(row.compute["cpu_seconds"])
    left = [cell for cell in cells if (row := rows[cell.key]) is None or row.error is not None]
    failed = sum(row is not None and row.error is not None for row in rows.values())
    costs = [median(seconds[kind(cell)]) for cell in left if kind(cell) in seconds]
    counts = f"{len(cells):,} cells: {len(cells) - len(left):,} done, {failed:,} failed, {len(left) - failed:,} missing"
    guess = f"; left: {sum(costs):,.0f} s of one core" if left else ""
    return f"{counts}{guess}{f', and {len(left) - len(costs):,} cells of unknown cost' * (len(costs) < len(left))}."
