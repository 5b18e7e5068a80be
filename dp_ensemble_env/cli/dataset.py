"""`dp-ensemble dataset`: offline data sets for Minari."""

from __future__ import annotations

import argparse
from pathlib import Path

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, execute, keeping
from dp_ensemble_env.experiments.datasets import (
    KINDS,
    DatasetSettings,
    Target,
    default_name,
    make_datasets,
    minari_root,
)
from dp_ensemble_env.reporting.tables import show_text
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import resolved

DESCRIPTION = """Write offline data sets for Minari, with reference scores that are exact.

The kinds, each a data set dp_ensemble/<name>/<kind>-v0:

  uncontrolled  nobody interferes, no noise either
  ad-hoc        today's practice, a fixed shed during the event
  medium        a learner, stopped at the first score of 50: PPO, or apg for
                the tilts of a model with nature, context or coupling
  standard      the optimal policy (not in price mode)
  mixed         equal shares of the kinds above, in turn

Load one with minari.load_dataset("dp_ensemble/<name>/<kind>-v0"). 100 times Minari's normalized score is the score of
this benchmark. A private data set (--privacy) holds nothing of the matrix but one release, and states what that is
worth. The release of a scenario is seeded, that of a meter file comes from the operating system's entropy unless
--release-seed is given: make all kinds in one run, since a second run is a second release."""
EXAMPLES = (
    "dp-ensemble dataset",
    "dp-ensemble dataset --population single --kinds standard",
    "dp-ensemble dataset --action policy --k 50 --floor 0.05",
    "dp-ensemble dataset --meter meter.csv --unit kW --k 50 --floor 0.01",
)


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble dataset", description=DESCRIPTION, examples=EXAMPLES)
    words = f"which to make: {', '.join(KINDS)} (default all)"
    parser.add_argument("--kinds", nargs="+", default=[], metavar="KIND", help=words)
    parser.add_argument("--episodes", type=options.whole(1), default=200, metavar="N", help="episodes of each kind")
    words = "exploration noise, 0 for none"
    parser.add_argument("--noise", type=options.nonnegative, default=0.01, metavar="SIZE", help=words)
    parser.add_argument("--name", help="middle part of the names (default: made of the settings)")
    words = "the same as --output, as Minari calls it"
    parser.add_argument("--root", dest="output", type=Path, default=argparse.SUPPRESS, metavar="FOLDER", help=words)
    helps = {
        "release-seed": "seed of the release (default 0 for a scenario, none for a meter)",
        "output": "folder for the data sets (default: where Minari looks for them)",
        "force": "replace data sets of the same name",
        "population": "mean-field, single, or a number of loads",
    }
    options.add(parser, *options.PROBLEM, "population", "action", *options.PRIVACY, helps=helps, release_seed=None)
    options.add(parser, "seed", "output", "force", helps=helps)
    return parser


def run(args: argparse.Namespace) -> int:
    """Make the data sets."""
    settings = DatasetSettings(
        args.population,
        args.action,
        tuple(args.kinds),
        args.episodes,
        args.noise,
        args.seed,
        options.privacy_spec(args),
        args.release_seed,
    )
    problem = options.problem_settings(args)
    name = default_name(problem, settings) if args.name is None else args.name
    # Minari reads its folder from the environment and passes paths on, so it must not depend on where we are.
    target = Target(resolved(args.output or minari_root()), name, args.force)
    minari_root()  # refuses to begin without Minari
    target.ids(settings.kinds)
    with Progress("reading") as monitor:
        if settings.privacy is None and problem.meter is not None:
            monitor.say("note: without --privacy the data sets disclose the transition matrix of your meter.")
        with keeping(lambda: "the data sets that were announced are complete"):
            privacy = make_datasets(options.load_problem(args), settings, target, monitor, print)
    print(f"in {target.root}")
    show_text(privacy)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
