"""`dp-ensemble privacy release`: one private matrix, booked first and then drawn."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.shell import Parser
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.adjacency import Adjacency, adjacency_from_counts
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.ledger import PrivacyLedger, require_guarantee
from dp_ensemble_env.privacy.mechanisms import mechanism
from dp_ensemble_env.privacy.mechanisms.base import Mechanism
from dp_ensemble_env.privacy.mechanisms.fleet_sums import FleetMechanism
from dp_ensemble_env.reporting.tables import show_text
from dp_ensemble_env.scenarios.problem import READING
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write


def run_release(args: argparse.Namespace) -> int:
    """Draw one private matrix, book it first, and print the privacy line."""
    if args.output.suffix not in (".json", ".npz"):
        raise ValueError(f"--output {args.output.name} needs the ending .json or .npz.")
    if args.output.exists() and not args.force:
        raise ValueError(f"{args.output} exists; name another file, or add --force to replace it.")
    if args.privacy is None and args.k is None:
        args.k = 50.0
    drawn = mechanism(str(options.privacy_spec(args)))
    model, data, terms = _input(args, drawn)
    if not args.no_guarantee:
        try:
            require_guarantee(drawn.event(data, **terms), args.delta)
        except ValueError as error:
            raise ValueError(f"{str(error).rstrip('.')}; or add --no-guarantee to draw it all the same.") from error
    ledger = PrivacyLedger(args.ledger, None if args.budget is None else tuple(args.budget))
    with Progress("drawing"):
        release = ledger.release(drawn, data, args.seed, label=args.label, **terms)
    release.save(args.output)
    show_text(f"Wrote {args.output}: {release}")
    show_text(f"Booked in {args.ledger}: {ledger.releases} release(s) so far.")
    if args.seed is not None:
        show_text("A seeded release is NOT private: whoever knows the seed can undo it. To publish, leave --seed out.")
    show_text(ledger.statement(args.delta))
    if args.no_guarantee and model is not None:
        with Progress("looking for settings that reach a target"):
            advice = ledger.statement(args.delta, model=model, target=(args.epsilon, args.delta))
        private = args.output.with_name(f"{args.output.stem}-private.txt")
        with atomic_write(private) as stream:
            stream.write(f"Private: computed from the matrix itself. Do not publish.\n\n{advice}\n")
        show_text(f"What the matrix itself would support is in {private}: for the owner of the data only.")
    return 0


def _input(args: argparse.Namespace, drawn: Mechanism) -> tuple[EnsembleModel | None, Any, dict[str, Any]]:
    """Return the model, what to draw from, and the public terms of the draw."""
    if args.fleet is None:
        if args.edges is not None:
            raise ValueError("--edges bounds the levels of a fleet; give the fleet with --fleet.")
        if isinstance(drawn, FleetMechanism):
            raise ValueError(
                f"the {drawn.name} mechanism protects participants; give their meters with --fleet and the public "
                "bounds of the power levels with --edges."
            )
        model = options.load_problem(args).model
        return model, model.default, {"h": choose_h(args, model)} if drawn.name == "dirichlet" else {}
    if args.meter is not None:
        raise ValueError("--meter is one building and --fleet are many participants; give one of them.")
    if args.edges is None:
        raise ValueError(
            "--edges is missing: the bounds of the power levels must be public, so state them in kW, as in "
            "--edges 0 5 10 20."
        )
    reading = {name: getattr(args, name) for name in READING if name != "column" and hasattr(args, name)}
    with Progress(f"reading {args.fleet}"):
        fleet = Fleet.read(
            args.fleet,
            edges=args.edges,
            season=args.season,
            exclude=args.exclude or (),
            **{name: value for name, value in reading.items() if value is not None},
        )
    return None, fleet, {}


def choose_h(args: argparse.Namespace, model: EnsembleModel) -> float | Adjacency:
    """Take the stated adjacency, or the one that the counts give."""
    counts: Any = model.counts
    return args.h if args.transitions is None else adjacency_from_counts(counts, args.transitions)


# ------------------------------------------------------------------ options
def declare_settings(parser: Parser, k: float | None, floor: float | None, delta: float = 1e-6) -> None:
    """Add the settings of the mechanism and of the adjacency."""
    helps = {"k": "concentration of the Dirichlet mechanism", "floor": "least entry before the draw"}
    options.add(parser, *(("k",) if k is not None else ()), "floor", helps=helps, k=k, floor=floor)
    claim = parser.add_argument_group("claim")
    words = "adjacency: L1 distance of two rows"
    claim.add_argument("--h", type=options.positive, default=0.03, metavar="H", help=words)
    claim.add_argument("--delta", type=options.positive, default=delta, metavar="D", help="delta")


def declare_matrix(parser: Parser, scenario: str | None = "campus-event") -> None:
    """Add where the matrix comes from."""
    helps = {"scenario": "built-in problem to take the matrix from"}
    options.add(parser, *options.METER, "scenario", "levels", helps=helps, scenario=scenario)
    parser.set_defaults(dynamics="pooled")  # one matrix is released, not one for each step of a day
    words = "take h = 2C/N per row from the counts (default: --h)"
    parser.add_argument("--transitions", type=options.positive, metavar="C", help=words)


def declare_release(parser: Parser) -> None:
    """Declare the options of a release."""
    participants = parser.add_argument_group("participants")
    words = "meters of the participants: a wide file, or a folder of files"
    participants.add_argument("--fleet", type=Path, metavar="PATH", help=words)
    words = "public bounds of the power levels, in kW"
    participants.add_argument("--edges", type=options.nonnegative, nargs="+", metavar="KW", help=words)
    words = "ledger file; made if it does not exist"
    parser.add_argument("--ledger", type=Path, required=True, metavar="FILE", help=words)
    words = "draw although nothing is guaranteed for all inputs"
    parser.add_argument("--no-guarantee", action="store_true", help=words)
    words = "refuse to exceed this (default: no limit)"
    parser.add_argument("--budget", type=options.positive, nargs=2, metavar=("EPSILON", "DELTA"), help=words)
    parser.add_argument("--label", default="dp-ensemble privacy release", help="what the release is for")
    words = "target to aim at where there is no floor"
    parser.add_argument("--epsilon", type=options.positive, default=5.0, metavar="E", help=words)
    helps = {
        "privacy": "the mechanism (default dirichlet:k=50)",
        "output": "file for the private matrix (.json or .npz)",
        "seed": "repeatable, hence NOT private (default: the system's entropy)",
    }
    options.add(parser, "privacy", helps=helps)
    declare_settings(parser, None, None)
    options.add(parser, "k")
    declare_matrix(parser)
    options.add(parser, "output", "force", "seed", helps=helps, seed=None)
    next(action for action in parser._actions if action.dest == "output").required = True
