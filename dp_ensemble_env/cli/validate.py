"""`dp-ensemble validate`: theory and environment must tell the same story."""

from __future__ import annotations

import argparse
from pathlib import Path

from dp_ensemble_env.cli import options
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.experiments import validation
from dp_ensemble_env.reporting.tables import Styled, show_table, show_text
from dp_ensemble_env.scenarios.problem import draw_release
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write, check_writable

DESCRIPTION = """Validate the analytical policies by simulation, before you trust one on your data.

Every closed-form policy is played in the three environments (infinitely many loads, the ensemble's loads, one load),
and the return, the cost of privacy and the occupancy that the mathematics predicts are compared with what happened:
to rounding in the mean field, by a test in finite populations that fails once in a million runs of a correct
implementation.

Exit status: 0 when all agree, 1 when simulation and theory disagree, 2 for bad input."""
EXAMPLES = (
    "dp-ensemble validate",
    "dp-ensemble validate --expect 200 --episodes 5000 --json report.json",
    "dp-ensemble validate --meter meter.csv --unit kWh --date 2024-07-09",
    "dp-ensemble validate --privacy private.json",
    "dp-ensemble validate --scenario spot",
)


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble validate", description=DESCRIPTION, examples=EXAMPLES)
    words = "noise that the policies expect (default: the release's k, else 50)"
    parser.add_argument("--expect", type=options.positive, metavar="K", help=words)
    whole = options.whole
    words = "episodes of each finite population"
    parser.add_argument("--episodes", type=whole(100, 10_000_000), default=2000, metavar="N", help=words)
    parser.add_argument("--samples", type=whole(1), default=1000, metavar="N", help="draws of the sampled average")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as well")
    helps = {"seed": "seed of episodes, draws and release"}
    options.add(parser, *options.PROBLEM, "privacy", "k", "floor")
    options.add(parser, "seed", helps=helps)
    return parser


def run(args: argparse.Namespace) -> int:
    """Validate, print and write."""
    spec = options.privacy_spec(args)
    if args.json is not None:
        check_writable(args.json)
    with Progress("reading") as monitor:
        model = options.load_problem(args).model
        release = None if spec is None else draw_release(spec, model, args.seed)
        k = args.expect or (50.0 if release is None or release.event.type != "dirichlet" else release.k)
        problem = validation.Problem(model, release, k, args.samples, args.seed, args.episodes)
        report = validation.validate(problem, monitor=monitor)
    show(problem, report)
    if args.json is not None:
        with atomic_write(args.json) as stream:
            stream.write(validation.as_json(problem, report))
    return 0 if report.agrees else 1


def show(problem: validation.Problem, report: validation.Report) -> None:
    """Print the table and the verdict."""
    seen = "true dynamics" if problem.release is None else f"a release ({problem.release.event.headline})"
    rows: list[list[str]] = []
    policy = ""
    for c in sorted(report.comparisons, key=lambda c: c.policy != "any"):
        if c.policy != policy:
            policy = c.policy
            rows.append(["any policy" if policy == "any" else policy])
        digits = ".4f" if c.quantity in ("occupancy", "start states", "contexts") else ".3f"
        row = [
            c.population,
            c.quantity,
            f"{c.analytical:{digits}}",
            f"{c.simulated:{digits}}",
            "exact" if c.p_value is None else f"{c.standard_error:{digits}}",
            f"{c.difference:.1e}" if c.p_value is None else f"{c.difference:+.2f}",
            "-" if c.p_value is None else f"{c.p_value:.2g}",
            "yes" if c.agrees else "NO",
        ]
        rows.append(row if c.agrees else [Styled(cell, "bold red") for cell in row])
    rows += [[f"{name}: not applicable"] for name in report.not_applicable]
    headings = ("population", "quantity", "theory", "played", "s.e.", "off by", "p", "agrees")
    left = ("population", "quantity")
    title = f"Simulation beside theory, {seen}, policies for k = {problem.k:g}"
    show_table(title, headings, rows, left=left, keep=2)
    for name, reason in report.not_applicable.items():
        show_text(f"{name} is not applicable: {reason}")
    show_text(
        f"{problem.episodes:,} episodes each, where there is chance. "
        "Returns and costs in dollars per load; occupancy: the share, among all "
        f"times and levels, that differs most. Off by: in standard errors, in the mean field relative. Disagreement: a "
        f"relative difference above "
        f"{validation.EXACT_TOLERANCE:g} in the mean field, a p-value below {report.threshold:.2g} elsewhere (all "
        f"together {validation.FAMILY_LEVEL:g})."
    )
    wrong, total = sum(not c.agrees for c in report.comparisons), len(report.comparisons)
    show_text(
        f"Simulation and theory agree in all {total} comparisons."
        if wrong == 0
        else f"Simulation and theory DISAGREE in {wrong} of {total} comparisons: do not trust these policies here."
    )


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
