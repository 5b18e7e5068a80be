"""`dp-ensemble tune`: search the hyper-parameters of a learner."""

from __future__ import annotations

import argparse
from pathlib import Path

from dp_ensemble_env.agents.hyperparams import ALGORITHMS
from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, execute, keeping
from dp_ensemble_env.experiments.tuning import NAMES, TuningSettings, tune
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import check_writable

DESCRIPTION = """Search hyper-parameters of a learner with Optuna, and keep a summary of the study.

Trial 0 is what the package holds now, so a study says what the search gained. Training seeds begin at 1000, apart from
those that results are reported for. The same command gives the same study on one machine.

On the campus event the score at the end of training counts. In another scenario a learner is trained on the training
instances and scored on validation instances: the interquartile mean counts."""
EXAMPLES = (
    "dp-ensemble tune --algo ppo --action price --steps 50000 --trials 20",
    "dp-ensemble tune --algo sac --steps 10000 --output runs/studies",
    "dp-ensemble tune --scenario spot --instances 5 --trials 8",
)


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble tune", description=DESCRIPTION, examples=EXAMPLES)
    whole = options.whole
    parser.add_argument("--algo", default="ppo", help=f"algorithm: {', '.join(ALGORITHMS)}")
    parser.add_argument("--steps", type=whole(1), default=50_000, metavar="N", help="steps of a training run")
    parser.add_argument("--trials", type=whole(1), default=20, metavar="N", help="settings to try")
    parser.add_argument("--repeats", type=whole(1), default=1, metavar="N", help="training runs of each setting")
    words = "validation instances that a setting of another scenario than the campus event is scored on"
    parser.add_argument("--instances", type=whole(1), default=TuningSettings.instances, metavar="N", help=words)
    helps = {"population": ", ".join(NAMES), "output": "folder of the summary"}
    options.add(parser, "scenario", "population", "action", helps=helps, action="price")
    options.add(parser, "output", helps=helps, output=Path("runs/tuning"))
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the study."""
    sizes = args.steps, args.trials, args.repeats
    settings = TuningSettings(args.algo, args.population, args.action, *sizes, args.scenario, args.instances)
    check_writable(args.output, folder=True)
    with Progress("tuning") as monitor:

        def progress(done: int, planned: int, score: float) -> None:
            monitor.advance(done, f"score {score:.1f}", planned)

        with keeping(lambda: f"the trials that were finished are in {args.output}"):
            tune(settings, args.output, lambda text: print(text, flush=True), progress)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
