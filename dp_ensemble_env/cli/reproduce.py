"""`dp-ensemble reproduce`: Section VI of the paper, computed again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp_ensemble_env.cli.options import COMMAND_LINE, keeping, say
from dp_ensemble_env.paper.data import BUILDINGS, load_data
from dp_ensemble_env.paper.verdicts import show_findings
from dp_ensemble_env.scenarios.problem import MeterSettings, ProblemSettings
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import check_writable


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """Recompute Section VI of the paper: every figure and number, and a verdict on each claim.

    Writes reproduction.html (self-contained), reproduction.json, claims.csv, and figures (PNG and SVG) and tables (CSV)
    for each data set. The synthetic campus is always included. The computation takes about a minute on two cores. With
    --meter the file names end in -private, because they show results from your readings.

    Examples
    --------
      dp-ensemble reproduce --quick
      dp-ensemble reproduce --meter meter.csv --unit kWh --column HALL
    """

    quick: bool = False
    """A smaller run: fewer samples, short training."""
    meter: MeterSettings = MeterSettings()
    date: str | None = None
    """Day of the event of your own meter."""
    seed: int = 0
    """Seed of everything random except the buildings."""
    output: Path = Path("runs/reproduction")
    """Folder to write to."""

    def run(self) -> int:
        """Compute, print and write."""
        if str(self.output) in ("", "."):
            raise ValueError("--output is empty; give it the name of a folder.")
        problem = ProblemSettings.of(self.meter, date=self.date)
        if problem.meter is None and problem.date is not None:
            raise ValueError("--date is the day of your own meter's event; give one with --meter, or leave it out.")
        from dp_ensemble_env.paper.page import reproduce  # needs matplotlib

        with Progress("reading") as monitor, keeping(lambda: "stopped before it was done, run it again"):
            sets = load_data(problem)
            for data in sets[1:]:
                say(*data.notes, f"results of {data.title} are for {BUILDINGS} noisy copies of the building.")
            check_writable(self.output, folder=True)
            how: dict[str, Any] = {"quick": self.quick, "seed": self.seed, "command": COMMAND_LINE.get()}
            page, findings = reproduce(self.output, sets, **how, monitor=monitor)
        show_findings(findings)
        claims = page.with_name(page.stem.replace("reproduction", "claims") + ".csv")
        print(f"Page:    {page}\nClaims:  {claims}, {page.stem}.json")
        print("Figures: " + ", ".join(f"{page.parent / data.slug}/*.png, *.svg" for data in sets))
        return 0
