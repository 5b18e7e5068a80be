"""`dp-ensemble compare`: controllers side by side."""

from __future__ import annotations

import argparse
import importlib
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, execute, keeping
from dp_ensemble_env.envs import actions
from dp_ensemble_env.experiments.comparison import PRESETS, ComparisonSettings, Store, compare
from dp_ensemble_env.experiments.comparison_report import show_all, write_all
from dp_ensemble_env.experiments.comparison_takeaways import takeaways
from dp_ensemble_env.experiments.suite_report import load as load_suite
from dp_ensemble_env.reporting.page import OWNER_ONLY
from dp_ensemble_env.reporting.tables import show_text
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import check_writable
from dp_ensemble_env.tools.validation import check_choice

DESCRIPTION = """Compare controllers on one demand-response event: tables, CSV, JSON, pictures and one HTML page.

Every controller is scored between 0 (uncontrolled) and 100 (the exact optimum of the environment it is scored in).
"Trained on private, deployed on true": the controller sees a release of the matrix only, and is scored on the true
one."""
#: How many of the findings the terminal shows at the end; the page has them all.
MOST = 3
EXPECT = "noise that the noise-aware policies expect"
EXAMPLES = (
    "dp-ensemble compare --output runs/demo",
    "dp-ensemble compare --preset baselines --meter meter.csv --unit kW",
    "dp-ensemble compare --preset levels --jobs 2 --resume",
    "dp-ensemble compare --scenario spot --suite runs/suite",
)


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble compare", description=DESCRIPTION, examples=EXAMPLES)
    parser.add_argument(
        "--preset",
        choices=sorted(PRESETS),
        default="quick",
        help="baselines trains no learner, quick a PPO for half a minute, levels all of them with several seeds",
    )
    words = "k of the releases to plan and train on; inf is the truth; give no number to leave them out"
    parser.add_argument(
        "--private", type=concentration, nargs="*", default=[10.0, 50.0, 200.0, math.inf], metavar="K",
        help=f"{words} (default 10 50 200 inf)",
    )  # fmt: skip
    whole = options.whole
    parser.add_argument("--expect", type=options.positive, default=50.0, metavar="K", help=EXPECT)
    parser.add_argument("--releases", type=whole(1), default=5, metavar="N", help="releases of each k, for planners")
    words = "participants to simulate for a mechanism that protects them"
    parser.add_argument("--participants", type=whole(1), default=4000, metavar="N", help=words)
    parser.add_argument("--episodes", type=whole(2), default=2000, metavar="N", help="episodes in finite populations")
    words = "also show the results that dp-ensemble suite left in this folder (default: do not)"
    parser.add_argument("--suite", type=Path, metavar="FOLDER", help=words)
    helps = {
        "privacy": "also train on releases of this mechanism, such as dirichlet:k=50,floor=0.05",
        "action": "action mode of the learner of the quick preset (default price)",
        "resume": "take over what an interrupted comparison has trained",
    }
    options.add(parser, *options.PROBLEM, "action", "privacy", helps=helps, action=None)
    options.add(parser, "seed", "jobs", "output", "resume", helps=helps, output=Path("runs/compare"))
    return parser


def concentration(text: str) -> float:
    """Read a k, which may be infinite."""
    return math.inf if text in ("inf", "none") else options.positive(text)


def comparison_settings(args: argparse.Namespace) -> ComparisonSettings:
    """Gather what is compared."""
    learners = PRESETS[args.preset]
    if args.action is not None:
        if args.preset != "quick":
            raise ValueError("--action is that of the quick preset's learner; leave it out with other presets.")
        check_choice(args.action, "--action", actions.names())
        learners = tuple(replace(learner, action=args.action) for learner in learners)
    everywhere = ("mean-field", "100 loads", "single")
    return ComparisonSettings(
        learners=learners,
        k=args.expect,
        private=tuple(args.private),
        privacy=() if args.privacy is None else (args.privacy,),
        participants=args.participants,
        releases=args.releases,
        episodes=args.episodes,
        environments=everywhere if args.preset == "levels" else everywhere[:1],
        seed=args.seed,
        jobs=args.jobs,
    )


def run(args: argparse.Namespace) -> int:
    """Measure, write and print."""
    settings = comparison_settings(args)
    if args.resume and not args.output.exists():
        raise ValueError(f"there is no comparison in {args.output} to resume; leave --resume out to start one.")
    if args.suite is not None:
        load_suite(args.suite)  # learn of a folder without one before the work
    problem = options.load_problem(args)
    for module in ("matplotlib", *(("stable_baselines3",) if settings.learners else ())):
        importlib.import_module(module)  # learn of a missing extra before the work
    check_writable(args.output, folder=True)
    store = Store(args.output / "trained", problem.model, settings)
    if not args.resume:
        store.remove()
    with Progress("comparing") as monitor, keeping(lambda: _kept(store)):
        found = compare(problem.model, settings, monitor, store)
        monitor.stage("drawing")
        told: dict[str, Any] = {"preset": args.preset, **asdict(settings), "problem": problem.settings.to_dict()}
        told["output"] = args.output
        results = found.rows, found.private, found.costs, args.command_line, found.notes
        suffix = "" if problem.settings.meter is None else OWNER_ONLY
        page = write_all(args.output, told, problem.model, *results, suffix, args.suite)
    store.remove()
    show_all(found.rows, found.private, found.notes)
    tables = f"table{suffix}.csv, comparison{suffix}.json"
    print(f"Pictures: {page.parent}/*{suffix}.png\nTables:   {page.parent}/{tables}\n")
    for sentence in takeaways(problem.model, found.rows, found.private)[:MOST]:
        show_text(sentence)
    print(f"\nPage: {page}")
    return 0


def _kept(store: Store) -> str:
    count = len(store)
    return f"{count} trained learners are kept, --resume takes them over" if count else "nothing was trained yet"


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
