"""`dp-ensemble validate`: theory and environment must tell the same story."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from dp_ensemble_env.cli.options import OnProblem
from dp_ensemble_env.experiments import validation
from dp_ensemble_env.scenarios.problem import draw_release
from dp_ensemble_env.tools.console import Progress, paragraph, table
from dp_ensemble_env.tools.files import check_writable, write_json
from dp_ensemble_env.tools.validation import check_count

HEADINGS = ("policy", "population", "quantity", "theory", "played", "s.e.", "off by", "p", "agrees")


@dataclass(frozen=True, kw_only=True)
class Validate(OnProblem):
    """Validate the analytical policies by simulation, before you trust one on your data.

    Each closed-form policy plays in three environments: infinitely many loads, the ensemble's loads, and one load. Its
    return, cost of privacy and occupancy must equal the predictions: up to rounding in the mean field, elsewhere in a
    statistical test with a one-in-a-million false-alarm rate.

    Exit status: 0 when all agree, 1 when simulation and theory disagree, 2 for bad input.

    Examples
    --------
      dp-ensemble validate
      dp-ensemble validate --expect 200 --episodes 5000 --json report.json
      dp-ensemble validate --meter meter.csv --unit kWh --date 2024-07-09
      dp-ensemble validate --privacy private.json
      dp-ensemble validate --scenario spot
    """

    privacy: str | None = None
    """Compute plans from a release: a mechanism such as dirichlet:k=50,floor=0.05, or a saved release."""
    expect: float | None = None
    """Noise that the policies expect (default: the release's k, or 50)."""
    episodes: int = 2000
    """Episodes of each finite population."""
    samples: int = 1000
    """Draws of the sampled average."""
    seed: int = 0
    """Seed of episodes, draws and release."""
    json: Path | None = None
    """Write the report to this file as well."""

    def run(self) -> int:
        """Validate, print and write."""
        check_count(self.episodes, "--episodes", 100, 10_000_000)
        check_count(self.seed, "--seed", 0)
        if self.json is not None:
            check_writable(self.json)
        with Progress("reading") as monitor:
            model = self.load().model
            release = None if self.privacy is None else draw_release(self.privacy, model, self.seed)
            k = self.expect or (50.0 if release is None or release.event.type != "dirichlet" else release.k)
            problem = validation.Problem(model, release, k, self.samples, self.seed, self.episodes)
            report = validation.validate(problem, monitor=monitor)
        show(problem, report)
        if self.json is not None:
            write_json(self.json, validation.to_json(problem, report))
        return 0 if report.agrees else 1


def show(problem: validation.Problem, report: validation.Report) -> None:
    """Print the table and the verdict."""
    rows: list[list[str | Text]] = []
    policy = ""
    for c in sorted(report.comparisons, key=lambda c: c.policy != "any"):
        digits = ".4f" if c.quantity in ("occupancy", "start states", "contexts") else ".3f"
        row = [
            "" if c.policy == policy else c.policy,
            c.population,
            c.quantity,
            f"{c.analytical:{digits}}",
            f"{c.simulated:{digits}}",
            "exact" if c.p_value is None else f"{c.standard_error:{digits}}",
            f"{c.difference:.1e}" if c.p_value is None else f"{c.difference:+.2f}",
            "-" if c.p_value is None else f"{c.p_value:.2g}",
            "yes" if c.agrees else "NO",
        ]
        policy = c.policy
        rows.append([Text(cell, "" if c.agrees else "bold red") for cell in row])
    seen = "true dynamics" if problem.release is None else f"a release ({problem.release.event.headline})"
    table(f"Simulation beside theory, {seen}, policies for k = {problem.k:g}", HEADINGS, rows, keep=3)
    for name, reason in report.not_applicable.items():
        paragraph(f"{name} is not applicable: {reason}")
    paragraph(
        f"{problem.episodes:,} episodes each, where there is chance. Returns and costs in dollars per load; occupancy: "
        "the share, among all times and levels, that differs most. Off by: in standard errors, in the mean field "
        f"relative. Disagreement: a relative difference above {validation.EXACT_TOLERANCE:g} in the mean field, a "
        f"p-value below {report.threshold:.2g} elsewhere (all together {validation.FAMILY_LEVEL:g})."
    )
    wrong, total = sum(not c.agrees for c in report.comparisons), len(report.comparisons)
    paragraph(
        f"Simulation and theory agree in all {total} comparisons."
        if wrong == 0
        else f"Simulation and theory DISAGREE in {wrong} of {total} comparisons: do not trust these policies here."
    )
