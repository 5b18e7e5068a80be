"""`dp-ensemble leaderboard`: the frozen protocol on two tracks, one results file, and the page made from it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from dp_ensemble_env.cli.compare import compute, state
from dp_ensemble_env.cli.options import BROUGHT, COMMAND_LINE
from dp_ensemble_env.experiments import leaderboard
from dp_ensemble_env.experiments.backends import ClusterLostError, Place
from dp_ensemble_env.experiments.runner import Cell, Row, Store, Supplies, read_results, results, write_results
from dp_ensemble_env.tools.console import paragraph
from dp_ensemble_env.tools.files import check_writable
from dp_ensemble_env.tools.validation import check_choice

RESULTS = "leaderboard.json"


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Score agents by one frozen protocol, on an open and a private track.

    Open track: learners are trained on training instances and play test instances. Private track: agents learn from a
    release of a test instance and are deployed on its true behaviour. Each row is saved as soon as it is done; to
    continue after an interruption, run the same command again.

    Exit status: 0 all rows done, 1 some failed, 2 bad input, 3 the cluster was lost, 130 interrupted.

    Examples
    --------
      dp-ensemble leaderboard --quick
      dp-ensemble leaderboard --jobs 2
      dp-ensemble leaderboard --submit my_agent.py --allow-code
      dp-ensemble leaderboard --from leaderboard.json --page board.md
    """

    scenarios: tuple[str, ...] = ()
    """Scenarios to compute (default: all)."""
    quick: bool = False
    """Only the planners (two private cells each) and one seed of PPO on the open track: ten minutes on two cores."""
    submit: Path | None = None
    """Python file with predict or make(env), to score on both tracks and show among the recorded rows."""
    allow_code: bool = False
    """Run the code of the submitted file."""
    action: str = "signals"
    """Action mode of the submitted file."""
    seeds: int = 1
    """Training runs of the submitted file on the open track."""
    cells: int = leaderboard.CELLS
    """Cells of the submitted file on the private track."""
    place: Place = field(default_factory=Place)
    output: Path = Path("runs/leaderboard")
    """Folder for the rows and the results file."""
    listed: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Show what is done and what is missing; compute nothing."""
    summary_only: bool = False
    """Write and show what is done; compute nothing."""
    source: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Show a results file; compute nothing."""
    page: Path | None = None
    """Also write the page to this .md file, with its figure and the trained agents beside it."""

    def run(self) -> int:
        """Compute what is missing, write the results file, and show it."""
        from dp_ensemble_env.experiments import leaderboard_page

        place = self.place
        place.check()
        if place.jobs is None and place.backend == "local":
            place = replace(place, jobs=2)
        if self.page is not None:
            check_writable(self.page)
        planned, supplies = self.protocol()
        failed = 0
        if self.source is not None:
            content, rows = read_results(self.source)
        else:
            store = Store(self.output)
            recorded = read_results(leaderboard.RECORD)[1] if leaderboard.RECORD.exists() else []
            paragraph(state(planned, store, recorded))
            if self.listed:
                return 0
            check_writable(self.output, folder=True)
            try:
                if self.summary_only:
                    rows = [row for cell in planned if (row := store.load(cell)) is not None]
                else:
                    rows = compute(planned, store, place, supplies)
            except ClusterLostError as error:
                print(f"dp-ensemble leaderboard: {error}; finished rows are kept.", file=sys.stderr)
                return 3
            failed = sum(row.error is not None for row in rows)
            rows = [row for row in rows if row.error is None]
            content = results(rows, COMMAND_LINE.get())
            if self.page is not None:
                played = dict.fromkeys(row.cell.problem["scenario"] for row in rows)
                content["noise"] = leaderboard_page.noises(list(played))
            write_results(self.output / RESULTS, content)
            if self.submit is not None:  # as it would stand in the table
                rows, planned = self.beside(rows, recorded), []
        board = leaderboard_page.Board(rows, planned)
        leaderboard_page.show(board)
        if self.page is not None:
            leaderboard_page.write_page(self.page, board, content, Store(self.output))
            print(f"Page:    {self.page}")
        if self.source is None:
            print(f"Results: {self.output / RESULTS}")
        return 1 if failed else 0

    def protocol(self) -> tuple[list[Cell], Supplies]:
        """Return the cells that are asked for, and what they need."""
        brought = BROUGHT.get()
        if self.submit is None:
            lines = leaderboard.LINES
            if self.quick:
                lines = tuple(kept for line in lines if (kept := leaderboard.quick(line)) is not None)
            return leaderboard.cells(self.scenarios, lines, brought), Supplies(code=brought.sources if brought else {})
        from dp_ensemble_env.envs import actions
        from dp_ensemble_env.experiments.submission import RemoteAgent, SubmissionError

        check_choice(self.action, "--action", actions.names())
        name, source = leaderboard.read_submission(self.submit, self.allow_code)
        planned = leaderboard.submitted(name, source, self.action, self.scenarios, self.seeds, self.cells, brought)
        try:  # once, before the first cell
            RemoteAgent(source, name, None, 0, brought.sources if brought else {}).close()
        except SubmissionError as error:
            raise ValueError(f"{self.submit} cannot be scored: {error}") from error
        return planned

    def beside(self, rows: list[Row], recorded: list[Row]) -> list[Row]:
        """Return the recorded rows of the same scenarios with those of a submission."""
        played = {row.cell.data for row in rows}
        named = [replace(row, cell=replace(row.cell, label=f"{row.cell.agent} (submitted)")) for row in rows]
        return [*(row for row in recorded if row.cell.data in played), *named]
