"""`dp-ensemble suite`: every agent on every scenario."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import replace
from pathlib import Path

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.experiments.suite import PLANNERS, SuiteSettings, run_suite
from dp_ensemble_env.experiments.suite_learners import Budget, Learners, load_runs, train_learners
from dp_ensemble_env.experiments.suite_report import record, show, write_all
from dp_ensemble_env.privacy.mechanisms import as_privacy
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import check_writable

DESCRIPTION = """Score every agent on the test instances of every scenario: one table, and what each agent can do.

Each instance has its own exact optimum, the score 100. Planners are made on each instance and scored exactly. Learners
are trained on the training instances, here (--train) or before (--run), and play the test instances as they are.
With --twins each is trained a second time on releases, which shows what it makes of private data."""
EXAMPLES = (
    "dp-ensemble suite --instances 5",
    "dp-ensemble suite --scenarios spot call --train ppo:price:50000",
    "dp-ensemble suite --run runs/ppo-spot runs/ppo-call",
)


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble suite", description=DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("--scenarios", nargs="+", default=[], metavar="NAME", help="only these (default: all)")
    words = f"planners to score: {', '.join(PLANNERS)} (default: all)"
    parser.add_argument("--planners", nargs="*", default=list(PLANNERS), metavar="NAME", help=words)
    words = "train this learner on the training instances of each scenario, e.g. ppo:price:50000; may be repeated"
    parser.add_argument("--train", action="append", type=Budget.parse, default=[], metavar="A:MODE:N", help=words)
    words = "runs of dp-ensemble train to score, each on the scenario it was trained in"
    parser.add_argument("--run", nargs="+", type=Path, default=[], metavar="FOLDER", help=words)
    words = "only the first N test instances (default: all)"
    parser.add_argument("--instances", type=options.whole(1), metavar="N", help=words)
    words = "episodes of a learner on each instance, where there is chance"
    parser.add_argument("--episodes", type=options.whole(2), default=200, metavar="N", help=words)
    parser.add_argument(
        "--repeats", type=options.whole(1), default=1, metavar="N", help="training runs of each learner"
    )
    words = "also --train every learner on releases of --privacy, which measures its capability 'data'"
    parser.add_argument("--twins", action="store_true", help=words)
    words = "make this the suite that cards and documentation show (for maintainers)"
    parser.add_argument("--record", action="store_true", help=words)
    helps = {"privacy": "mechanism whose releases the capability 'data' is measured with, or none"}
    options.add(parser, "privacy", helps=helps, privacy="dirichlet:k=50")
    options.add(parser, "seed", "output", output=Path("runs/suite"))
    return parser


def run(args: argparse.Namespace) -> int:
    """Measure, write and print."""
    importlib.import_module("matplotlib")  # learn of a missing extra before the work
    privacy = None if args.privacy == "none" else args.privacy
    settings = SuiteSettings(tuple(args.scenarios), tuple(args.planners), args.instances, privacy, args.episodes)
    if args.twins and (privacy is None or not args.train):
        raise ValueError("--twins trains learners on releases; give --train and a --privacy other than none.")
    if not (settings.agents or args.train or args.run):
        raise ValueError("there is no agent to score; give --planners, --train or --run.")
    if privacy is not None:
        as_privacy(privacy)  # learn of a bad mechanism before the work
    check_writable(args.output, folder=True)
    with Progress("suite") as monitor:
        learners = Learners()
        load_runs(learners, args.run)
        for budget in args.train:
            private = privacy if args.twins else None
            train_learners(learners, budget, settings.names, args.repeats, args.seed, monitor, private)
        found = run_suite(settings, learners.agents, learners.actions, monitor, learners.private)
        found = replace(found, learners=learners.words)
        monitor.stage("drawing")
        page = write_all(args.output, found, args.command_line)
    show(found)
    if args.record:
        record(found, args.command_line)
    print(f"Page:     {page}\nPictures: {page.parent}/capability-*.png\nTables:   {page.parent}/suite.csv, suite.json")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
