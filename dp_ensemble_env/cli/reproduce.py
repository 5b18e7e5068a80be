"""`dp-ensemble reproduce`: Section VI of the paper, computed again."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, execute, keeping
from dp_ensemble_env.paper.claims import show_findings
from dp_ensemble_env.paper.data import BUILDINGS, load_data
from dp_ensemble_env.paper.run import ReproductionSettings, reproduce
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import check_writable

DESCRIPTION = """Compute Section VI of the paper again: every figure and number, and which of its claims hold.

Writes one folder: reproduction.html (self-contained), reproduction.json, claims.csv, and for each data set its figures
(PNG and SVG) and tables (CSV). The campus is synthetic and always included; about a minute on two cores. With --meter
the names end in -private: what is computed from your readings is for you."""
EXAMPLES = (
    "dp-ensemble reproduce --quick",
    "dp-ensemble reproduce --meter meter.csv --unit kWh --column HALL",
    "dp-ensemble reproduce --simbench G1-A",
)


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble reproduce", description=DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("--quick", action="store_true", help="a smaller run: fewer samples, short training")
    words = "also a SimBench load profile, such as G1-A (needs simbench)"
    parser.add_argument("--simbench", metavar="NAME", help=words)
    helps = {"meter": "meter file of one building, besides the campus"}
    options.add(parser, "meter", *options.READING, "date", helps=helps)
    options.add(parser, "seed", "output", output=Path("runs/reproduction"))
    return parser


def run(args: argparse.Namespace) -> int:
    """Compute, print and write."""
    if str(args.output) in ("", "."):
        raise ValueError("--output is empty; give it the name of a folder.")
    problem = options.problem_settings(args)
    if problem.meter is None and args.simbench is None and problem.date is not None:
        raise ValueError("--date says how to read your own meter file; give one with --meter, or leave it out.")
    importlib.import_module("matplotlib")  # learn of a missing extra before the work
    settings = ReproductionSettings(args.output, args.quick, args.seed, args.command_line)
    with Progress("reading") as monitor, keeping(lambda: "stopped before it was done, run it again"):
        sets = load_data(problem, args.simbench)
        for data in sets[1:]:
            for note in (*data.notes, f"results of {data.title} are for {BUILDINGS} noisy copies of the building."):
                options.say(note)
        check_writable(args.output, folder=True)
        page, findings = reproduce(settings, sets, monitor)
    show_findings(findings)
    claims = page.with_name(page.stem.replace("reproduction", "claims") + ".csv")
    print(f"Page:    {page}\nClaims:  {claims}, {page.stem}.json")
    print("Figures: " + ", ".join(f"{page.parent / data.slug}/*.png, *.svg" for data in sets))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
