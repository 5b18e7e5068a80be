#!/usr/bin/env python3
"""Train a learner and watch its score between 0 (uncontrolled) and 100 (the exact optimum).

Examples
--------
    dp-ensemble train                                        PPO sets the price of the built-in campus
    dp-ensemble train --algo ppo --action tilt --seed 3
    dp-ensemble train --algo sac --steps 20000 --target 97   stop at the score 97
    dp-ensemble train --k 50 --floor 0.01                    train on a private release
    dp-ensemble train --env SingleLoad --set learning_rate=0.001 --set n_envs=64
    dp-ensemble train --meter meter.csv --unit kW --stamp start --date 2018-07-02
    dp-ensemble train --algo sac --resume                    go on after a crash, with the same settings

The run folder (by default named after the settings, in runs/) holds configuration, versions, ledger, results,
checkpoint, model and TensorBoard logs (tensorboard --logdir runs). A run that was killed is continued with --resume:
it repeats at most what came after the last checkpoint, and ends as it would have without the interruption.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from dp_ensemble_env._validation import check_choice, check_count, check_positive
from dp_ensemble_env.agents.hyperparams import ACTIONS, ALGORITHMS
from dp_ensemble_env.envs.registration import ENVIRONMENTS
from dp_ensemble_env.model import EnsembleModel

NAMES = [name.split("/")[1].removesuffix("-v0") for name in ENVIRONMENTS]


def option(help: str, default: Any = None, **settings: Any) -> Any:
    """Declare a command-line option as a field."""
    return field(default=default, metadata={"help": help, **settings})


@dataclass
class Arguments:
    """What the command line sets."""

    algo: str = option(f"algorithm: {', '.join(ALGORITHMS)}", "ppo")
    env: str = option(f"environment: {', '.join(NAMES)}", "MeanField")
    action: str = option(f"action mode: {', '.join(ACTIONS)}", "price")
    steps: int | None = option("environment steps (default: as tuned)", type=int)
    seed: int = option("seed of networks, exploration and episodes", 0, type=int)
    target: float | None = option("stop at this score", type=float)
    interval: int | None = option("steps between scores and checkpoints (default: a twentieth of all)", type=int)
    set: list[str] = field(
        default_factory=list,
        metadata={"help": "change a hyper-parameter, e.g. n_envs=64", "metavar": "NAME=VALUE", "action": "append"},
    )
    folder: str | None = option("run folder (default: runs/ and the settings)")
    resume: bool = option("continue the run in the folder", False, action="store_true")
    no_tensorboard: bool = option("write no TensorBoard logs", False, action="store_true")
    k: float | None = option("train on a Dirichlet release with this concentration", type=float)
    floor: float = option("least probability before the draw", 0.0, type=float)
    release_seed: int = option("seed of the release", 0, type=int)
    meter: str | None = option("meter file of one building instead of the synthetic campus")
    unit: str | None = option("its unit, if it does not say")
    stamp: str | None = option("which end of an interval its stamps mark", choices=["start", "end"])
    column: str | None = option("its column, or 'sum'")
    date: str = option("day of the event", "2018-07-02")
    step_minutes: int = option("length of a step", 15, type=int)

    @property
    def title(self) -> str:
        """Name of the run."""
        private = "" if self.k is None else f"-k{self.k:g}"
        source = "" if self.meter is None else f"-{Path(self.meter).stem}"
        return f"{self.algo}-{self.env}-{self.action}{private}{source}-seed{self.seed}"


def check(args: Arguments) -> None:
    """Refuse what cannot work, before anything is imported or written."""
    check_choice(args.algo, "--algo", ALGORITHMS)
    check_choice(args.env, "--env", NAMES)
    check_choice(args.action, "--action", ACTIONS)
    check_count(args.seed, "--seed", 0, 2**31 - 1)
    check_count(args.release_seed, "--release-seed", 0)
    for name in ("steps", "interval"):
        if getattr(args, name) is not None:
            check_count(getattr(args, name), f"--{name}")
    if args.k is not None:
        check_positive(args.k, "--k")
    elif args.floor:
        raise ValueError("--floor belongs to a release; give --k too.")
    if args.target is not None and not args.target <= 100:
        raise ValueError(f"--target must be a score of at most 100, the optimum, got {args.target:g}.")


def parse_changes(pairs: list[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs; values are JSON, and text where they are not."""
    changes: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes name=value, got {pair!r}.")
        try:
            changes[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            changes[name.strip()] = value
    return changes


def run(args: Arguments) -> int:
    """Train with a progress bar, and say how it went."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from dp_ensemble_env.agents.sb3 import train

    logs = not args.no_tensorboard
    if logs and importlib.util.find_spec("tensorboard") is None:
        raise ImportError("TensorBoard is not installed; pip install tensorboard, or pass --no-tensorboard.")
    folder = Path("runs") / args.title if args.folder is None else Path(args.folder)
    from dp_ensemble_env.cli.options import load_model

    model = load_model(args)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} steps, score {task.fields[score]:.1f}"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(args.title, total=1, score=0.0)

    def progress(done: int, planned: int, score: float) -> None:
        if not bar.live.is_started:  # not before the settings have been accepted
            bar.start()
        bar.update(task, completed=done, total=planned, score=score)

    try:
        agent = train(
            args.algo,
            f"dp_ensemble/{args.env}-v0",
            args.action,
            model=model,
            k=args.k,
            floor=args.floor,
            release_seed=args.release_seed,
            seed=args.seed,
            total_steps=args.steps,
            target_score=args.target,
            interval=args.interval,
            folder=folder,
            resume=args.resume,
            tensorboard=logs,
            progress=progress,
            hyperparams=parse_changes(args.set),
            notes={name: getattr(args, name) for name in ("meter", "unit", "stamp", "column", "date", "step_minutes")},
        )
    finally:
        if bar.live.is_started:
            bar.stop()
    report(agent, folder, args.target)
    if args.k is not None:
        print(privacy_statement(folder, model))
    return 0


def privacy_statement(folder: Path, model: EnsembleModel) -> str:
    """Say what the release that was trained on is worth, from the ledger of the run."""
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

    ledger = PrivacyLedger.from_json((folder / "ledger.json").read_text(encoding="utf-8"))
    return ledger.statement(model=model)


def report(agent: Any, folder: Path, target: float | None) -> None:
    """Print the outcome in one line and the privacy in another."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))["evaluation"]
    error = "" if results["exact"] else f" ± {results['score_error']:.2f} (standard error)"
    stopped = "; target reached" if target is not None and agent.curve[-1][1] >= target else ""
    print(
        f"score {results['score']:.2f}{error} after {agent.steps:,} steps in {agent.seconds:.0f} s{stopped}; "
        f"{results['gap']:.2f} $ per building below the optimum; in {folder}"
    )
    print(f"privacy: {agent.privacy}")


# ------------------------------------------------------------------ command line
def build_parser() -> argparse.ArgumentParser:
    """Declare the options, one per field of `Arguments`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for one in fields(Arguments):
        settings = dict(one.metadata)
        default = [] if one.default is MISSING else one.default
        if default not in (None, False, []):
            settings["help"] += f" (default {default})"
        parser.add_argument(f"--{one.name.replace('_', '-')}", default=default, **settings)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command; bad input gives one sentence on stderr and the status 2."""
    args = Arguments(**vars(build_parser().parse_args(argv)))
    try:
        check(args)
        return run(args)
    except KeyboardInterrupt:
        print("train.py: interrupted; continue with --resume and the same settings.", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"train.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
