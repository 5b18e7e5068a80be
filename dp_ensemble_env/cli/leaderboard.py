"""`dp-ensemble leaderboard`: the frozen protocol, one results file, and the page made from it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from dp_ensemble_env.cli.compare import compute, state
from dp_ensemble_env.cli.options import BROUGHT, COMMAND_LINE
from dp_ensemble_env.experiments import standings
from dp_ensemble_env.experiments.backends import ClusterLostError, Place
from dp_ensemble_env.experiments.leaderboard import PLANNERS, Protocol, read_submission, write_page
from dp_ensemble_env.experiments.runner import Store, Supplies, read_results, results, write_results
from dp_ensemble_env.tools.files import check_writable
from dp_ensemble_env.tools.validation import check_choice

RESULTS = "leaderboard.json"


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Score agents by one protocol: agents x seeds x scenarios, on test instances.

    Planners are made on each test instance, or on a release of it; learners are trained on training instances. Every
    row is kept as soon as it is done, so the same command goes on where it was stopped. At the end there is one results
    file with versions, seeds, compute and digests, from which the tables and the page are made.

    Exit status: 0 all rows done, 1 some failed, 2 bad input, 3 the cluster was lost, 130 interrupted.

    Examples
    --------
      dp-ensemble leaderboard --scenarios campus-event --instances 3
      dp-ensemble leaderboard --agents ppo:action=price,steps=50000 --jobs 2
      dp-ensemble leaderboard --submit my_agent.py --allow-code --action price
      dp-ensemble leaderboard --from docs/leaderboard.json
    """

    protocol: Protocol = Protocol()
    submit: Path | None = None
    """A Python file with predict or make(env); it alone is scored, unless --agents names others."""
    allow_code: bool = False
    """Run the code of the submitted file."""
    action: str = "price"
    """Action mode of the submitted file."""
    place: Place = field(default_factory=Place)
    output: Path = Path("runs/leaderboard")
    """Folder for the rows and the results file."""
    listed: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Say what is done and missing, and compute nothing."""
    source: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Show a results file, and compute nothing."""
    page: Path | None = None
    """Write a page there, too: a report (.html), or tables for the site (.md); the results file goes beside it."""

    def run(self) -> int:
        """Compute what is missing, write the results file, and show it."""
        failed = 0
        self.place.check()
        if self.source is not None:
            content, rows = read_results(self.source)
        else:
            protocol, brought, submission = self.protocol, BROUGHT.get(), None
            if self.submit is not None:
                from dp_ensemble_env.envs import actions

                check_choice(self.action, "--action", actions.names())
                submission = read_submission(self.submit, self.allow_code)
                protocol = replace(protocol, agents=()) if protocol.agents == PLANNERS else protocol
            cells, store = protocol.cells(submission, self.action, brought), Store(self.output)
            if self.listed:
                print(state(cells, store))
                return 0
            check_writable(self.output, folder=True)
            try:
                sources = {
                    name: text for one in (brought, submission) if one is not None for name, text in one.sources.items()
                }
                rows = compute(cells, store, self.place, Supplies({}, sources))
            except ClusterLostError as error:
                print(f"dp-ensemble leaderboard: {error}; finished rows are kept.", file=sys.stderr)
                return 3
            failed = sum(row.error is not None for row in rows)
            rows = [row for row in rows if row.error is None]
            content = results(rows, COMMAND_LINE.get())
            write_results(self.output / RESULTS, content)
        ranked = standings.Standings(rows)
        standings.show(ranked)
        if self.page is not None:
            check_writable(self.page)
            if self.page.suffix == ".html":
                standings.write_page(self.page, ranked, "Leaderboard", content)
            else:
                write_page(self.page, content, rows)
            write_results(self.page.with_name(RESULTS), content)
            print(f"Page:    {self.page}")
        if self.source is None:
            print(f"Results: {self.output / RESULTS}")
        return 1 if failed else 0
