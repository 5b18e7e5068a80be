"""`dp-ensemble train`: train a learner and keep the run."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_ensemble_env.agents.hyperparams import ALGORITHMS, changes_for, hyperparameters
from dp_ensemble_env.agents.runs import CHECKPOINTS
from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser, execute, keeping
from dp_ensemble_env.reporting.tables import show_text
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import check_writable
from dp_ensemble_env.tools.validation import check_choice

if TYPE_CHECKING:
    from dp_ensemble_env.agents.sb3 import RunFolder
    from dp_ensemble_env.envs.settings import Privacy
    from dp_ensemble_env.model import EnsembleModel
    from dp_ensemble_env.scenarios.problem import Problem

DESCRIPTION = """Train a learner and watch its score between 0 (uncontrolled) and 100 (the exact optimum).

The run folder (by default named after the settings, in runs/) holds configuration, versions, ledger, results,
checkpoints, policy and TensorBoard logs, and remembers its environment: dp-ensemble evaluate RUN needs no option. A run
that was stopped is continued with --resume: it repeats at most what came after the last checkpoint, and ends as it
would have without the interruption."""
EXAMPLES = (
    "dp-ensemble train",
    "dp-ensemble train --algo sac --steps 20000 --target 97",
    "dp-ensemble train --algo apg --action tilt --steps 20000",
    "dp-ensemble train --privacy dirichlet:k=50,floor=0.01",
    "dp-ensemble train --population single --set n_envs=64",
    "dp-ensemble train --scenario spot --instances 20",
    "dp-ensemble train --meter meter.csv --unit kW --date 2018-07-02",
)


def build_parser() -> Parser:
    """Declare the options."""
    parser = Parser(prog="dp-ensemble train", description=DESCRIPTION, examples=EXAMPLES)
    whole = options.whole
    parser.add_argument("--algo", default="ppo", help=f"algorithm: {', '.join(ALGORITHMS)}")
    parser.add_argument("--steps", type=whole(1), metavar="N", help="environment steps (default: as tuned)")
    words = "stop at this score (default: train to the end)"
    parser.add_argument("--target", type=options.number, metavar="SCORE", help=words)
    words = "steps between scores and checkpoints (default: a twentieth)"
    parser.add_argument("--interval", type=whole(1), metavar="N", help=words)
    words = "change a hyper-parameter, e.g. n_envs=64; may be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=words)
    words = "draw one of the first N training instances for each episode (default: --instance alone)"
    parser.add_argument("--instances", type=whole(1, 1000), metavar="N", help=words)
    parser.add_argument("--no-tensorboard", action="store_true", help="write no TensorBoard logs")
    words = "seed of the release (default 0; none for a meter, since a seed in the run folder would undo the release)"
    private = {"helps": {"release-seed": words}, "release_seed": None}
    options.add(parser, *options.PROBLEM, "population", "action", *options.PRIVACY, action="price", **private)
    helps = {"output": "run folder (default: in runs/, named after the settings)", "resume": "continue the run"}
    options.add(parser, "seed", "output", "resume", helps=helps)
    return parser


def environment(args: argparse.Namespace) -> dict[str, Any]:
    """Describe the environment, so that it can be made again from the run folder."""
    problem, privacy = options.problem_settings(args).to_dict(), options.privacy_spec(args)
    if privacy is not None:
        # A hash of the meter file is a function of private data, and run folders are passed on.
        problem["sha256"] = None
    return {
        "problem": problem,
        "population": args.population,
        "action": args.action,
        "privacy": privacy,
        "release_seed": 0 if args.release_seed is None and args.meter is None else args.release_seed,
    }


def release_of(problem: Problem, keep: RunFolder) -> Privacy | None:
    """Return the run's mechanism, or of a meter its release, from the folder or drawn from the system's entropy."""
    from dp_ensemble_env.privacy.ledger import PrivacyLedger
    from dp_ensemble_env.privacy.mechanisms import as_privacy
    from dp_ensemble_env.privacy.release import Release

    spec, file = keep.environment["privacy"], keep.path / "release.json"
    if spec is None or keep.environment["release_seed"] is not None:
        return spec if spec is None else as_privacy(spec)
    if keep.resume and file.exists():
        return Release.load(file)
    drawn = as_privacy(spec)
    if isinstance(drawn, Release):
        return drawn
    ledger = PrivacyLedger.of_process()
    return ledger.release(drawn, drawn.data_of(problem.model), **drawn.terms_of(problem.model))


def title(args: argparse.Namespace) -> str:
    """Name the run after its settings."""
    loads = f"{args.population}loads" if isinstance(args.population, int) else args.population
    parts = [args.algo, loads, args.action]
    privacy = options.privacy_spec(args)
    parts += [] if privacy is None else [privacy.removeprefix("dirichlet:").replace("=", "")]
    settings = options.problem_settings(args)
    parts += [] if settings.meter is None and settings.scenario == "campus-event" else [settings.title]
    parts += [] if args.instances is None else [f"{args.instances}instances"]
    return re.sub(r"[^\w.-]+", "_", "-".join([*parts, f"seed{args.seed}"]))


def run(args: argparse.Namespace) -> int:
    """Train with progress, and say how it went."""
    from dp_ensemble_env.agents.sb3 import RunFolder, TrainingSettings, train
    from dp_ensemble_env.envs.ensemble import EnsembleEnv
    from dp_ensemble_env.experiments.deployment import deploy

    check_choice(args.algo, "--algo", ALGORITHMS)
    hyperparameters(args.algo, "mean-field", args.action)  # refuses modes that it does not know
    changes = {**tuned(args), **options.set_options(args.set)}
    settings = TrainingSettings(args.seed, args.steps, args.target, args.interval, changes)
    logs = not args.no_tensorboard
    if logs and importlib.util.find_spec("tensorboard") is None:
        raise ImportError("TensorBoard is not installed; pip install 'dp-ensemble-env[rl]', or pass --no-tensorboard.")
    folder = Path("runs") / title(args) if args.output is None else args.output
    keep = RunFolder(folder, args.resume, logs, environment(args))
    keep.check()
    check_writable(folder, folder=True)
    models = instances(args)
    problem = options.load_problem(args)
    privacy, seed = release_of(problem, keep), keep.environment["release_seed"]
    env = EnsembleEnv(problem.model, args.population, args.action, privacy=privacy, release_seed=seed)
    with Progress(f"{args.algo} in {folder}") as monitor, keeping(lambda: _kept(folder)):

        def progress(done: int, planned: int, score: float) -> None:
            monitor.advance(done, f"{done:,} of {planned:,} steps, score {score:.1f}", planned)

        agent = train(args.algo, env, settings, keep=keep, progress=progress, models=models)
    report(agent, folder, args.target)
    if (deployed := deploy(agent, env, problem.model)) is not None:
        show_text(str(deployed))
        show_text(env.ledger.statement())
    return 0


def tuned(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the scenario changes in the settings."""
    settings = options.problem_settings(args)
    return {} if settings.meter is not None else changes_for(args.algo, settings.scenario, args.action, args.population)


def instances(args: argparse.Namespace) -> list[EnsembleModel]:
    """Make the instances to train on; none if there is to be but one."""
    if args.instances is None:
        return []
    settings = options.problem_settings(args)
    if settings.meter is not None or settings.instance != 0:
        raise ValueError("--instances takes a scenario's own, from the first on; leave --meter and --instance out.")
    if options.privacy_spec(args) is not None:
        raise ValueError("--instances trains on the true behaviour of each; leave the release out, or train on one.")
    return [replace(settings, instance=i).build().model for i in range(args.instances)]


def _kept(folder: Path) -> str:
    if (folder / CHECKPOINTS[0]).exists():
        return f"what came before the last checkpoint is kept in {folder}, add --resume to go on"
    return "nothing was finished yet"


def report(agent: Any, folder: Path, target: float | None) -> None:
    """Print the outcome in one line and the privacy in another."""
    kept = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    results, where = kept["evaluation"], " on the release" if kept.get("scored_on") == "the release" else ""
    error = "" if results["exact"] else f" ± {results['score_error']:.2f} (standard error)"
    stopped = "; target reached" if target is not None and agent.curve[-1][1] >= target else ""
    print(
        f"score{where} {results['score']:.2f}{error} after {agent.steps:,} steps in {agent.seconds:.0f} s{stopped}; "
        f"{results['gap']:.2f} $ per load below the optimum; in {folder}"
    )
    print(f"privacy: {agent.privacy}")


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
