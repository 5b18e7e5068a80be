"""`dp-ensemble privacy`: state, choose, spend and attack a guarantee."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli import old_options as options
from dp_ensemble_env.cli.privacy_release import choose_h, declare_matrix, declare_release, declare_settings, run_release
from dp_ensemble_env.cli.privacy_studies import declare_frontier, declare_regret, run_frontier, run_regret
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.experiments.studies.attacks import CONFIDENCE, AttackSettings, attack
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.accounting.compose import (
    RowGroup,
    UnreachableTarget,
    calibrate_k,
    composed_epsilon,
    renyi_epsilon,
)
from dp_ensemble_env.privacy.accounting.divergence import worst_case_epsilon
from dp_ensemble_env.privacy.accounting.theorem2 import theorem2_epsilon
from dp_ensemble_env.privacy.adjacency import AGGREGATE_LIMIT, Adjacency
from dp_ensemble_env.privacy.statement import (
    PRIVATE_MARK,
    floorless_report,
    reach_statement,
    reachable_settings,
    release_guarantee,
)
from dp_ensemble_env.reporting.tables import Styled, show_table, show_text
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import check_writable

SHARES = (0.1, 0.25, 0.5, 0.7, 0.85, 0.95)  # floors tried, as shares of the largest possible
KS = (5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


# ------------------------------------------------------------------ guarantee
def run_guarantee(args: argparse.Namespace) -> int:
    """Print one sentence and a table over k."""
    rows = args.rows or 20
    if args.floor and args.meter is not None:
        raise ValueError("--meter has no part in a guarantee with a floor, which holds for any matrix; leave it out.")
    scenarios.card(args.scenario)  # refuses a misspelt name
    show_text(str(release_guarantee(args.k, args.h, args.floor, args.delta, rows, entries=args.entries)))
    if args.floor == 0:
        return _without_floor(args)
    title = f"epsilon at delta={args.delta:g}, h={args.h:g}, floor={args.floor:g}"
    headings = ("k", "Theorem 2, 1 row", "exact, 1 row", f"exact, {rows} rows", f"any entries, {rows} rows")
    lines: list[list[str]] = []
    with Progress("composing", len(ks := sorted({*(args.ks or KS), args.k}))) as monitor:
        for k in ks:
            groups = [RowGroup(k, args.floor, args.h, rows)]
            line = [
                f"{k:g}",
                _theorem2(k, args),
                number(worst_case_epsilon(args.delta, k, args.h, args.floor)),
                number(composed_epsilon(args.delta, groups)),
                number(renyi_epsilon(args.delta, groups, "any")),
            ]
            lines.append([Styled(cell, "bold") for cell in line] if k == args.k else line)
            monitor.advance(len(lines))
    note = (
        "Theorem 2: the paper's bound, corrected (omega_bar = omega, two protected entries). Exact: the dominating "
        "pair, composed over rows as privacy-loss distributions. Any entries: rows that differ by h in total, in any "
        "number of entries (Rényi bound), which is what removing a participant does. h is that of the mechanism's "
        f"input: mixing a row of s successors with the floor shrinks the data's h by 1 - floor*s. Note that "
        f"{AGGREGATE_LIMIT}."
    )
    show_table(title, headings, lines, left=(), notes=(note,))
    return 0


def _without_floor(args: argparse.Namespace) -> int:
    """Say what a release without a floor is worth on the matrix at hand, and what would reach the target."""
    with Progress("measuring the matrix"):
        problem = options.load_problem(args)
        h = choose_h(args, problem.model)
        moves = h.h if isinstance(h, Adjacency) else h
        entries: Any = "any" if isinstance(h, Adjacency) else args.entries
        lines = [
            f"The matrix in what follows: {problem.settings.title}.",
            str(floorless_report(problem.model.default, args.k, moves, args.delta, entries)),
            reach_statement(problem.model, (args.epsilon, args.delta), h, draws=args.draws, entries=entries),
        ]
    for line in lines:
        show_text(line)
    return 0


def _theorem2(k: float, args: argparse.Namespace) -> str:
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
    if args.meter is None and args.scenario is None:
        if args.floor is None:
            raise ValueError(
                "--floor is missing: give the least entry of the support, or --scenario or --meter to search over "
                "floors."
            )
        rows = args.rows or 20
        k = calibrate_k(args.epsilon, args.delta, args.h, args.floor, rows, entries=args.entries)
        show_text(f"k = {k:.6g}")
        show_text(str(release_guarantee(k, args.h, args.floor, args.delta, rows, entries=args.entries)))
        return 0
    args.scenario = args.scenario or "campus-event"
    model = options.load_problem(args).model
    h = choose_h(args, model)
    if isinstance(h, Adjacency):
        show_text(str(h))
    entries = "any" if isinstance(h, Adjacency) else args.entries
    sought: dict[str, Any] = {"draws": args.draws, "rows": args.rows or "sequential", "entries": entries}
    found = _search(args, model, h, sought)
    title = f"settings that reach epsilon={args.epsilon:g} at delta={args.delta:g} on this matrix"
    headings = ("floor", "k", "cost, $ per load and event", f"cost, $ for {model.buildings} loads")
    lines = [
        [f"{s.floor:.4g}", f"{s.k:.4g}", f"{s.cost:.2f} ± {s.standard_error:.2f}", f"{s.cost * s.buildings:,.0f}"]
        for s in found
    ]
    touched = f"a unit touches at most {args.rows} rows" if args.rows else "all rows composed"
    note = (
        f"Exact cost of privacy over {args.draws} draws (± one standard error); adjacency {found[0].h} "
        f"({entries} entries), {touched} [{PRIVATE_MARK}]."
    )
    show_table(title, headings, lines, left=(), notes=(note,))
    return 0


def _search(args: argparse.Namespace, model: EnsembleModel, h: float | Adjacency, sought: dict[str, Any]) -> list[Any]:
    """Return the settings that reach the target, the cheapest first."""
    most = int((model.default > 0).sum(axis=-1).max())
    shares = SHARES if args.floor is None else (args.floor * most,)
    with Progress("trying floors", len(shares)) as monitor:

        def watch(floors: Any) -> Any:
            for count, floor in enumerate(floors):
                monitor.advance(count)
                yield floor

        found = reachable_settings(model, args.epsilon, args.delta, h, shares=shares, **sought, progress=watch)
        if found:
            return list(found)
        if args.floor is not None:
            raise UnreachableTarget(f"no k reaches the target with --floor {args.floor:g}; leave it out to try others.")
        raise UnreachableTarget(reach_statement(model, (args.epsilon, args.delta), h, **sought))


# ------------------------------------------------------------------ audit
def run_audit(args: argparse.Namespace) -> int:
    """Attack a claim about rows, or one about participants; status 1 if an attack surprises."""
    return _audit_rows(args) if args.participants is None else _audit_participants(args)


def _audit_rows(args: argparse.Namespace) -> int:
    """Attack the Dirichlet mechanism, its mutants, a deterministic policy and an average."""
    if args.privacy is not None:
        raise ValueError("--privacy is attacked through participants: say how many there are, --participants 60.")
    draws = args.draws or 400_000
    settings = AttackSettings(args.k, args.floor, args.h, args.delta, draws, args.samples, args.seed)
    with Progress("attacking") as monitor:
        found = attack(settings, monitor)
    title = f"epsilon at delta={args.delta:g}, k={args.k:g}, h={args.h:g}, floor={args.floor:g}"
    lines = [[one.name, number(one.shown), one.claimed, one.verdict] for one in found]
    lines = [
        line if one.good else [Styled(cell, "bold red") for cell in line]
        for line, one in zip(lines, found, strict=True)
    ]
    note = (
        f"Lower bounds hold with confidence {CONFIDENCE:.6f} each (Clopper-Pearson, threshold from the other half); "
        "the mean of several draws is to show more than one draw's epsilon and at most the composed one."
    )
    words = ("attacked", "claimed", "verdict")
    show_table(title, ("attacked", "shown, at least", "claimed", "verdict"), lines, left=words, notes=(note,))
    return 0 if all(one.good for one in found) else 1


def _audit_participants(args: argparse.Namespace) -> int:
    """Let a canary participant join or not, and guess it from all that is made of the data."""
    from dp_ensemble_env.experiments.studies import canaries

    draws = args.draws or canaries.CanarySettings.draws
    numbers = {"draws": draws, "releases": max(100, draws // 2), "agents": max(100, draws // 25)}
    spec = args.privacy or canaries.CanarySettings.privacy
    settings = canaries.CanarySettings(spec, args.participants, **numbers, seed=args.seed)
    with Progress("attacking") as monitor:
        found = canaries.attack_participants(settings, monitor)
    lines = [list(one.cells()) if one.good else [Styled(cell, "bold red") for cell in one.cells()] for one in found]
    title = f"epsilon at delta={found[0].delta:g} of {spec}, for one participant among {args.participants}"
    note = (
        f"A canary participant joined, or did not; draws are counted for each. Lower bounds hold with confidence "
        f"{CONFIDENCE:.6f} each (direction and threshold from the other half). A bound of 0 shows nothing."
    )
    show_table(title, canaries.HEADINGS, lines, left=("attacked", "verdict"), notes=(note,))
    return 0 if all(one.good for one in found) else 1


# ------------------------------------------------------------------ plot
def run_plot(args: argparse.Namespace) -> int:
    """Draw ε against k, and the outputs for two adjacent inputs on the simplex."""
    from dp_ensemble_env.reporting.privacy_plots import plot_epsilon, plot_simplex

    check_writable(args.output, folder=True)
    with Progress("drawing"):
        args.output.mkdir(parents=True, exist_ok=True)
        paths = [
            plot_simplex(args.output / "simplex.png", args.row, args.h, tuple(args.k), args.points, args.seed),
            plot_epsilon(args.output / "epsilon_against_k.png", args.h, args.floor, args.rows),
        ]
    for path in paths:
        print(f"Wrote {path}")
    return 0


# ------------------------------------------------------------------ arguments
DESCRIPTION = """State, choose, spend and attack the privacy of a release.

Each command explains itself: dp-ensemble privacy COMMAND --help."""
EXAMPLES = (
    "dp-ensemble privacy guarantee --k 50 --floor 0.1 --rows 20",
    "dp-ensemble privacy calibrate --epsilon 8 --floor 0.1",
    "dp-ensemble privacy release --k 23 --floor 0.07 --output p.json --ledger l.jsonl",
    "dp-ensemble privacy audit",
    "dp-ensemble privacy plot --output figures",
    "dp-ensemble privacy frontier --participants 1000 --epsilons 1",
)


def build_parser() -> Parser:
    """Describe the commands."""
    parser = Parser(prog="dp-ensemble privacy", description=DESCRIPTION, examples=EXAMPLES)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands", prog=parser.prog
    )
    for name, words, declare, run in (
        ("guarantee", "one line, and a table over k", _guarantee, run_guarantee),
        ("calibrate", "the largest k that reaches a target", _calibrate, run_calibrate),
        ("release", "draw one private matrix and book it", declare_release, run_release),
        ("audit", "attack the mechanism and what only looks private", _audit, run_audit),
        ("plot", "epsilon against k, and the simplex", _plot, run_plot),
        ("frontier", "score against epsilon, with participants", declare_frontier, run_frontier),
        ("regret", "where each lost dollar went", declare_regret, run_regret),
    ):
        examples, description = TEXTS[name]
        one = commands.add_parser(name, help=words, description=description, examples=examples)
        declare(one)
        one.set_defaults(run=run)
    return parser


TEXTS = {
    "guarantee": (
        ("dp-ensemble privacy guarantee --k 50 --floor 0.1 --rows 20",
         "dp-ensemble privacy guarantee --floor 0 --scenario campus-event"),
        "Say what a release guarantees, in one line and in a table over k. Without a floor no epsilon holds in the "
        "worst case: then say what the matrix at hand supports, and which settings reach a target on it.",
    ),
    "calibrate": (
        ("dp-ensemble privacy calibrate --epsilon 8 --floor 0.1 --rows 20",
         "dp-ensemble privacy calibrate --epsilon 5 --scenario campus-event"),
        "Find the largest k that reaches a target: in the abstract, or with --scenario or --meter on a matrix, with "
        "what it costs in dollars.",
    ),
    "release": (
        ("dp-ensemble privacy release --k 23 --floor 0.07 --output private.json \\",
         "    --ledger ledger.jsonl",
         "dp-ensemble privacy release --meter meter.csv --unit kWh --stamp start \\",
         "    --privacy dirichlet:k=23,floor=0.05 --output private.json \\",
         "    --ledger ledger.jsonl",
         "dp-ensemble privacy release --fleet meters.csv --unit kW --edges 0 5 10 20 \\",
         "    --privacy gaussian:epsilon=1 --output p.json --ledger ledger.jsonl"),
        "Draw one private matrix: booked in the ledger first, then drawn, then written. With --fleet a participant is "
        "protected: --privacy gaussian:epsilon=1, laplace or posterior.",
    ),
    "audit": (
        ("dp-ensemble privacy audit", "dp-ensemble privacy audit --k 20 --draws 1000000",
         "dp-ensemble privacy audit --participants 60 --privacy gaussian:epsilon=4"),
        "Attack the mechanism, and what only looks private. With --participants, one more participant joins or does "
        "not, and is guessed from the release, from the plan made on it and from an agent trained on it. Exit status 1 "
        "if an attack does not go as predicted.",
    ),
    "plot": (
        ("dp-ensemble privacy plot", "dp-ensemble privacy plot --output figures --k 20 100"),
        "Draw epsilon against k, and the outputs for two adjacent inputs on the simplex.",
    ),
    "frontier": (
        ("dp-ensemble privacy frontier --participants 1000 --epsilons 1 4",
         "dp-ensemble privacy frontier --instance 0 1 2 --heterogeneity 30 8 \\",
         "    --mechanisms gaussian laplace posterior dirichlet"),
        "Measure the score of plans made on releases that protect a participant, for several numbers of participants, "
        "mechanisms and targets, beside a plan made without data.",
    ),
    "regret": (
        ("dp-ensemble privacy regret",
         "dp-ensemble privacy regret --participants 1000 --specs gaussian:epsilon=1 \\",
         "    --learner z-learning"),
        "Split what controllers lose against the optimum into sampling, privacy and learning; the parts add up.",
    ),
}  # fmt: skip


def _rows(parser: Parser) -> None:
    words = "rows that one unit touches (default 20, or all on a matrix)"
    parser.add_argument("--rows", type=options.whole(1), metavar="N", help=words)
    parser.add_argument("--entries", choices=("two", "any"), default="two", help="entries that may differ")


def _draws(parser: Parser) -> None:
    parser.add_argument("--draws", type=options.whole(1), default=32, metavar="N", help="draws for the cost in dollars")


def _guarantee(parser: Parser) -> None:
    declare_settings(parser, 50.0, 0.1)
    _rows(parser)
    words = "values of k for the table (default 5 to 500)"
    parser.add_argument("--ks", type=options.positive, nargs="+", metavar="K", help=words)
    words = "target to aim at where there is no floor"
    parser.add_argument("--epsilon", type=options.positive, default=5.0, metavar="E", help=words)
    _draws(parser)
    declare_matrix(parser)


def _calibrate(parser: Parser) -> None:
    parser.add_argument("--epsilon", type=options.positive, required=True, metavar="E", help="target epsilon")
    declare_settings(parser, None, None)
    _rows(parser)
    _draws(parser)
    declare_matrix(parser, None)


def _audit(parser: Parser) -> None:
    declare_settings(parser, 50.0, 0.1, 0.05)
    whole = options.whole
    words = "draws of each input (default 400000; with --participants 20000)"
    parser.add_argument("--draws", type=whole(4), metavar="N", help=words)
    parser.add_argument("--samples", type=whole(1), default=16, metavar="N", help="draws in the attacked average")
    words = "attack the protection of one participant among N, instead of that of a row"
    parser.add_argument("--participants", type=whole(1), metavar="N", help=words)
    helps = {"seed": "seed of the attack", "privacy": "the mechanism, with --participants (default gaussian:epsilon=4)"}
    options.add(parser, "privacy", "seed", helps=helps)


def _plot(parser: Parser) -> None:
    whole, positive = options.whole, options.positive
    parser.add_argument("--h", type=positive, default=0.03, metavar="H", help="adjacency")
    parser.add_argument("--floor", type=positive, default=0.1, metavar="P", help="least entry")
    parser.add_argument("--rows", type=whole(1), default=20, metavar="N", help="rows composed")
    words = "panels of the simplex"
    parser.add_argument("--k", type=positive, nargs="+", default=[50.0, 200.0], metavar="K", help=words)
    words = "row on the simplex"
    parser.add_argument("--row", type=positive, nargs=3, default=[0.2, 0.6, 0.2], metavar="P", help=words)
    parser.add_argument("--points", type=whole(1), default=1000, metavar="N", help="draws per input")
    options.add(parser, "output", "seed", output=Path("figures"), helps={"output": "folder for the pictures"})


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, lambda args: int(args.run(args)), argv)
