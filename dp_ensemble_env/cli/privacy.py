#!/usr/bin/env python3
r"""State, choose, spend and attack the privacy of the Dirichlet mechanism.

Examples
--------
What does k = 50 with a floor of 0.1 guarantee, for one row and for twenty?

    dp-ensemble privacy guarantee --k 50 --h 0.03 --floor 0.1 --delta 1e-6 --rows 20

Which k reaches a target, in the abstract and on the built-in campus (with its cost in dollars)?

    dp-ensemble privacy calibrate --epsilon 8 --delta 1e-6 --h 0.03 --floor 0.1 --rows 20
    dp-ensemble privacy calibrate --epsilon 5 --delta 1e-6 --h 0.03 --data campus

Release a private matrix of the campus, or of a meter file, and book it:

    dp-ensemble privacy release --data campus --k 23 --floor 0.0777 --out private.json --ledger ledger.jsonl
    dp-ensemble privacy release --data meter.csv --unit kWh --stamp start --column sum \
        --k 23 --floor 0.05 --out private.json --ledger ledger.jsonl

Attack it, and draw it:

    dp-ensemble privacy audit
    dp-ensemble privacy plot --out figures
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dp_ensemble_env.privacy import (  # noqa: E402
    Adjacency,
    DirichletMechanism,
    PrivacyLedger,
    RowGroup,
    UnreachableTarget,
    adjacency_from_counts,
    audit_average,
    audit_epsilon,
    audit_function,
    calibrate_k,
    composed_epsilon,
    floorless_report,
    reach_statement,
    reachable_settings,
    release_guarantee,
    renyi_epsilon,
    theorem2_epsilon,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.participants import AGGREGATE_LIMIT  # noqa: E402
from dp_ensemble_env.privacy.statement import PRIVATE_MARK  # noqa: E402

SHARES = (0.1, 0.25, 0.5, 0.7, 0.85, 0.95)  # floors tried, as shares of the largest possible
KS = (5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)
CONFIDENCE = 1.0 - 1e-6


def main(argv: list[str] | None = None) -> int:
    """Run one command; bad input gives one sentence on stderr and the status 2."""
    args = build_parser().parse_args(argv)
    try:
        return args.run(args)
    except BrokenPipeError:
        return 1
    except (ValueError, OSError, ImportError) as error:
        print(f"privacy.py {args.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def say(console: Console, text: str) -> None:
    """Print a sentence as it is: brackets in it are words, not markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


# ------------------------------------------------------------------ guarantee
def run_guarantee(args: argparse.Namespace) -> int:
    """Print one sentence and a table over k."""
    console = Console()
    args.rows = args.rows or 20
    claim = release_guarantee(args.k, args.h, args.floor, args.delta, args.rows, entries=args.entries)
    say(console, str(claim))
    if args.floor == 0:
        model = load_model(args)
        say(console, f"The matrix in what follows: {args.data or 'campus'}.")
        h = choose_h(args, model)
        moves = h.h if isinstance(h, Adjacency) else h
        entries = "any" if isinstance(h, Adjacency) else args.entries
        say(console, str(floorless_report(model.default, args.k, moves, args.delta, entries)))
        say(console, reach_statement(model, (args.epsilon, args.delta), h, draws=args.draws, entries=entries))
        return 0
    table = Table(title=f"epsilon at delta={args.delta:g}, h={args.h:g}, floor={args.floor:g}")
    for name in ("k", "Theorem 2\n1 row", "exact\n1 row", f"exact\n{args.rows} rows", f"any entries\n{args.rows} rows"):
        table.add_column(name, justify="right")
    for k in sorted({*(args.ks or KS), args.k}):
        groups = [RowGroup(k, args.floor, args.h, args.rows)]
        row = [
            theorem2_or_nothing(k, args),
            number(worst_case_epsilon(args.delta, k, args.h, args.floor)),
            number(composed_epsilon(args.delta, groups)),
            number(renyi_epsilon(args.delta, groups, "any")),
        ]
        table.add_row(f"{k:g}", *row, style="bold" if k == args.k else None)
    console.print(table)
    say(
        console,
        "Theorem 2: the paper's bound, corrected (omega_bar = omega, two protected entries). Exact: the dominating "
        "pair, composed over rows as privacy-loss distributions. Any entries: rows that differ by h in total, in any "
        "number of entries (Rényi bound), which is what removing a participant does. h is that of the mechanism's "
        "input: mixing a row of s successors with the floor shrinks the data's h by 1 - floor*s. Note that "
        + AGGREGATE_LIMIT
        + ".",
    )
    return 0


def choose_h(args: argparse.Namespace, model: Any) -> float | Adjacency:
    """Take the stated adjacency, or the one that the counts give."""
    return args.h if args.transitions is None else adjacency_from_counts(model.counts, args.transitions)


def theorem2_or_nothing(k: float, args: argparse.Namespace) -> str:
    """Theorem 2 needs room for its rows: a dash where it does not apply."""
    try:
        return number(theorem2_epsilon(k, args.h, args.floor, args.floor, 2, args.delta))
    except ValueError:
        return "-"


def number(value: float) -> str:
    """Four digits, or the word for infinity."""
    return "inf" if math.isinf(value) else f"{value:.4g}"


# ------------------------------------------------------------------ calibrate
def run_calibrate(args: argparse.Namespace) -> int:
    """Print the largest k for a target, in the abstract or on a matrix with its cost."""
    console = Console()
    if args.data is None:
        if args.floor is None:
            raise ValueError(
                "--floor is missing; give the least entry of the support, or --data to search over floors."
            )
        args.rows = args.rows or 20
        k = calibrate_k(args.epsilon, args.delta, args.h, args.floor, args.rows, entries=args.entries)
        claim = release_guarantee(k, args.h, args.floor, args.delta, args.rows, entries=args.entries)
        say(console, f"k = {k:.6g}")
        say(console, str(claim))
        return 0
    model = load_model(args)
    h = choose_h(args, model)
    if isinstance(h, Adjacency):
        say(console, str(h))
    entries = "any" if isinstance(h, Adjacency) else args.entries
    rows = args.rows or "sequential"
    options: dict[str, Any] = {"draws": args.draws, "rows": rows, "entries": entries}
    most = int((model.default > 0).sum(axis=-1).max())
    shares = SHARES if args.floor is None else (args.floor * most,)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        found = reachable_settings(
            model,
            args.epsilon,
            args.delta,
            h,
            shares=shares,
            **options,
            progress=lambda floors: progress.track(floors, description="floors"),
        )
    if not found:
        if args.floor is not None:
            raise UnreachableTarget(f"no k reaches the target with --floor {args.floor:g}; leave it out to try others.")
        raise UnreachableTarget(reach_statement(model, (args.epsilon, args.delta), h, **options))
    table = Table(title=f"settings that reach epsilon={args.epsilon:g} at delta={args.delta:g} on this matrix")
    for name in ("floor", "k", "cost, $ per building\nand event", f"cost, $ for\n{model.buildings} buildings"):
        table.add_column(name, justify="right")
    for index, s in enumerate(found):
        cost, error = s.cost, s.standard_error
        cells = (f"{s.floor:.4g}", f"{s.k:.4g}", f"{cost:.2f} ± {error:.2f}", f"{cost * s.buildings:,.0f}")
        table.add_row(*cells, style="bold" if index == 0 else None)
    console.print(table)
    touched = "all rows composed" if rows == "sequential" else f"a unit touches at most {rows} rows"
    say(
        console,
        f"Exact cost of privacy over {args.draws} draws (± one standard error); adjacency {found[0].h} "
        f"({entries} entries), {touched} [{PRIVATE_MARK}].",
    )
    return 0


# ------------------------------------------------------------------ release
def run_release(args: argparse.Namespace) -> int:
    """Draw one private matrix, book it first, and print the privacy line."""
    console = Console()
    if args.out.suffix not in (".json", ".npz"):
        raise ValueError(f"--out {args.out.name} needs the ending .json or .npz.")
    if args.out.exists() and not args.force:
        raise ValueError(f"{args.out} exists; name another file, or add --force to replace it.")
    model = load_model(args)
    h = choose_h(args, model)
    budget = None if args.budget is None else tuple(args.budget)
    ledger = PrivacyLedger(args.ledger, budget)
    release = ledger.release(DirichletMechanism(args.k, args.floor), model.default, args.seed, h=h, label=args.label)
    release.save(args.out)
    say(console, f"Wrote {args.out}: {release}")
    if args.ledger is not None:
        say(console, f"Booked in {args.ledger}: {ledger.releases} release(s) so far.")
    if args.seed is not None:
        say(
            console,
            "A seeded release is NOT private: whoever knows the seed can undo it. To publish, leave --seed out.",
        )
    target = (args.epsilon, args.delta)
    say(console, ledger.statement(args.delta, model=model, target=target))
    return 0


def load_model(args: argparse.Namespace) -> Any:
    """Build the model of the campus, or of a meter file."""
    from dp_ensemble_env.event import event_for
    from dp_ensemble_env.meter import read_meter
    from dp_ensemble_env.model import EnsembleModel
    from dp_ensemble_env.scenarios.campus import campus_event

    if args.data in (None, "campus"):
        return campus_event(n_states=args.states)
    series = read_meter(args.data, unit=args.unit, stamp=args.stamp, column=args.column)
    return EnsembleModel.from_series(series, event_for(series), profile=args.profile, n_states=args.states)


# ------------------------------------------------------------------ audit
def run_audit(args: argparse.Namespace) -> int:
    """Attack the mechanism, its mutants, a deterministic policy and an average; status 1 if one surprises."""
    console = Console()
    k, h, delta, omega = args.k, args.h, args.delta, args.floor
    if omega * 3 + h / 2 > 1 or omega <= 0:
        raise ValueError(f"--floor {omega:g} must lie above 0 and leave room for rows that differ by h={h:g}.")
    rng = np.random.default_rng(args.seed)
    row = np.array([omega + h / 2, omega, 1 - 2 * omega - h / 2])  # the worst row: its pair dominates all others
    claim = worst_case_epsilon(delta, k, h, omega)
    composed = composed_epsilon(delta, [RowGroup(k, omega, h, args.samples)])

    def attack_draws(factor: float) -> Callable[[], float]:
        wrong = DirichletMechanism(k * factor)
        return lambda: audit_epsilon(wrong, row, 0, 1, h, delta, args.draws, rng, confidence=CONFIDENCE)

    def attack_mean() -> float:
        few = max(4, args.draws // 4)
        mechanism = DirichletMechanism(k)
        return audit_average(mechanism, row, 0, 1, h, delta, args.samples, few, rng, confidence=CONFIDENCE)

    attacks: list[tuple[str, Callable[[], float]]] = [
        ("the mechanism", attack_draws(1)),
        ("mutant with 2k", attack_draws(2)),
        ("mutant with 4k", attack_draws(4)),
        ("Taylor on the truth", lambda: audit_function(taylor_row(k), row, 0, 1, h, delta)),
        (f"mean of {args.samples} draws", attack_mean),
    ]
    bounds = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for _, attack in progress.track(attacks, description="attacking"):
            bounds.append(attack())
    verdicts = [
        (f"{claim:.4g}", "below the claim", bounds[0] <= claim),
        (f"{claim:.4g}", "caught", bounds[1] > claim),
        (f"{claim:.4g}", "caught", bounds[2] > claim),
        ("inf", "unbounded", math.isinf(bounds[3])),
        (f"{claim:.4g} .. {composed:.4g}", "tracks the sum", claim < bounds[4] <= composed),
    ]
    table = Table(title=f"epsilon at delta={delta:g}, k={k:g}, h={h:g}, floor={omega:g}")
    for name in ("attacked", "shown, at least", "claimed", "verdict"):
        table.add_column(name, justify="right" if "shown" in name else "left")
    for (name, _), bound, (said, word, good) in zip(attacks, bounds, verdicts, strict=True):
        table.add_row(name, number(bound), said, word if good else f"NOT {word}", style=None if good else "bold red")
    console.print(table)
    say(
        console,
        f"Lower bounds hold with confidence {CONFIDENCE:.6f} each (Clopper-Pearson, threshold from the other half); "
        "the mean of several draws is to show more than one draw's epsilon and at most the composed one.",
    )
    return 0 if all(good for *_, good in verdicts) else 1


def taylor_row(k: float) -> Any:
    """Return the Taylor policy of one step with a fixed desirability, as a function of the true row."""
    log_z = np.array([0.9854, 0.0, 2.2244])

    def policy(row: np.ndarray) -> np.ndarray:
        weights = np.log(row) - (1 - row) / (2 * row * (k + 1)) + log_z
        weights = np.exp(weights - weights.max())
        return weights / weights.sum()

    return policy


# ------------------------------------------------------------------ plot
def run_plot(args: argparse.Namespace) -> int:
    """Draw ε against k, and the outputs for two adjacent inputs on the simplex."""
    from dp_ensemble_env.reporting.privacy_plots import plot_epsilon, plot_simplex

    args.out.mkdir(parents=True, exist_ok=True)
    paths = [
        plot_epsilon(args.out / "epsilon_against_k.png", args.h, args.floor, args.rows),
        plot_simplex(args.out / "simplex.png", args.row, args.h, tuple(args.k), args.points, args.seed),
    ]
    for path in paths:
        print(f"Wrote {path}")
    return 0


# ------------------------------------------------------------------ arguments
def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="privacy.py", description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    one = commands.add_parser("guarantee", help="one line, and a table over k", formatter_class=raw)
    add_settings(one, k=50.0, floor=0.1)
    add_data(one)
    one.add_argument("--ks", type=positive, nargs="+", metavar="K", help="values of k for the table")
    one.add_argument("--epsilon", type=positive, default=5.0, help="target named where there is no floor (default 5)")
    one.add_argument("--draws", type=whole, default=32, help="draws for the cost in dollars (default 32)")
    one.set_defaults(run=run_guarantee)

    two = commands.add_parser("calibrate", help="the largest k that reaches a target", formatter_class=raw)
    two.add_argument("--epsilon", type=positive, required=True, help="target epsilon")
    add_settings(two, k=None, floor=None)
    add_data(two)
    two.add_argument("--draws", type=whole, default=32, help="draws for the cost in dollars (default 32)")
    two.set_defaults(run=run_calibrate)

    three = commands.add_parser("release", help="draw one private matrix and book it", formatter_class=raw)
    add_settings(three, k=50.0, floor=0.0, rows=False)
    add_data(three)
    three.add_argument("--out", type=Path, required=True, help="file for the private matrix (.json or .npz)")
    three.add_argument("--ledger", type=Path, help="ledger file; made if it does not exist")
    three.add_argument("--budget", type=positive, nargs=2, metavar=("EPSILON", "DELTA"), help="refuse to exceed this")
    three.add_argument("--label", default="dp-ensemble privacy release", help="what the release is for")
    three.add_argument("--seed", type=whole, help="repeatable, hence NOT private; by default the system's entropy")
    three.add_argument("--epsilon", type=positive, default=5.0, help="target named where there is no floor (default 5)")
    three.add_argument("--force", action="store_true", help="replace an existing file")
    three.set_defaults(run=run_release)

    four = commands.add_parser("audit", help="attack the mechanism and what only looks like it", formatter_class=raw)
    add_settings(four, k=50.0, floor=0.1, delta=0.05, rows=False)
    four.add_argument("--draws", type=whole, default=400_000, help="draws of each input (default 400000)")
    four.add_argument("--samples", type=whole, default=16, help="draws in the attacked average (default 16)")
    four.add_argument("--seed", type=whole, default=0, help="seed of the attack (default 0)")
    four.set_defaults(run=run_audit)

    five = commands.add_parser("plot", help="epsilon against k, and the simplex", formatter_class=raw)
    five.add_argument("--out", type=Path, default=Path("figures"), help="folder for the pictures (default figures)")
    five.add_argument("--h", type=positive, default=0.03, help="adjacency (default 0.03)")
    five.add_argument("--floor", type=positive, default=0.1, help="least entry (default 0.1)")
    five.add_argument("--rows", type=whole, default=20, help="rows composed (default 20)")
    five.add_argument("--k", type=positive, nargs="+", default=[50.0, 200.0], help="panels of the simplex (50 200)")
    five.add_argument("--row", type=positive, nargs=3, default=[0.2, 0.6, 0.2], help="row on the simplex (.2 .6 .2)")
    five.add_argument("--points", type=whole, default=1000, help="draws per input (default 1000)")
    five.add_argument("--seed", type=whole, default=0, help="seed of the picture (default 0)")
    five.set_defaults(run=run_plot)
    return parser


def add_settings(
    parser: argparse.ArgumentParser, k: float | None, floor: float | None, delta: float = 1e-6, rows: bool = True
) -> None:
    """Add the settings of the mechanism and of the adjacency."""
    if k is not None:
        parser.add_argument("--k", type=positive, default=k, help=f"concentration (default {k:g})")
    said = "" if floor is None else f" (default {floor:g})"
    parser.add_argument("--floor", type=nonnegative, default=floor, help=f"least entry before the draw{said}")
    parser.add_argument("--h", type=positive, default=0.03, help="adjacency: L1 distance of two rows (default 0.03)")
    parser.add_argument("--delta", type=positive, default=delta, help=f"delta (default {delta:g})")
    if rows:
        parser.add_argument("--rows", type=whole, help="rows that one unit touches (default 20, or all with --data)")
        parser.add_argument("--entries", choices=("two", "any"), default="two", help="entries that may differ (two)")


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add where the matrix comes from."""
    group = parser.add_argument_group("data")
    group.add_argument("--data", help="'campus' (built in) or a meter file")
    group.add_argument("--states", type=whole, default=20, help="power levels (default 20)")
    group.add_argument("--unit", help="unit of the meter file, if it does not say")
    group.add_argument("--stamp", choices=("start", "end"), help="which end of an interval its stamps mark")
    group.add_argument("--column", help="column of the meter file, or 'sum'")
    group.add_argument("--profile", choices=("building", "aggregate"), default="building", help="what was metered")
    group.add_argument("--transitions", type=positive, metavar="C", help="h = 2C/N per row from the counts")


def positive(text: str) -> float:
    """Read a positive finite number."""
    value = nonnegative(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be above zero")
    return value


def nonnegative(text: str) -> float:
    """Read a finite number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number of at least zero")
    return value


def whole(text: str) -> int:
    """Read a whole number of at least zero."""
    value = nonnegative(text)
    if value != int(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(value)


if __name__ == "__main__":
    sys.exit(main())
