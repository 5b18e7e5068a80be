"""`dp-ensemble scenarios`: the built-in problems, and what simple controllers score in them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli import options
from dp_ensemble_env.cli.shell import Parser, execute, keeping
from dp_ensemble_env.experiments.probes import Probes, probe, record, recorded
from dp_ensemble_env.reporting.tables import show_table, write_csv
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write, check_writable

DESCRIPTION = """List the built-in problems, or show the card of one.

Every command takes a problem by its name (--scenario NAME); in Python it is scenarios.make(NAME), and its environment
has an id of its own.

With --probe, compute what simple controllers score: the best open loop (tilts by time alone), the plan without
data, the best constant action, a myopic tilt, the best of 100 random sequences, and how far prices can reach. 0 is
uncontrolled, 100 the optimum."""
EXAMPLES = (
    "dp-ensemble scenarios",
    "dp-ensemble scenarios campus-event",
    "dp-ensemble scenarios --probe spot call --instances 3 --json probes.json",
)
#: Columns of the table of probes: heading and attribute.
COLUMNS = (
    ("open loop", "open_loop"),
    ("public guess", "public_guess"),
    ("constant tilt", "constant_tilt"),
    ("constant price", "constant_price"),
    ("random", "random_search"),
    ("myopic", "myopic"),
    ("price ceiling", "price_ceiling"),
)
NOTES = (
    "0 = uncontrolled, 100 = optimum; exact, in the mean field. Open loop: best tilts by time alone. Public guess: "
    "plan without data. Random: best of 100 sequences. Price ceiling: best prices by time and context.",
)


def build_parser() -> Parser:
    """Declare the arguments."""
    parser = Parser(prog="dp-ensemble scenarios", description=DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("scenario", nargs="*", metavar="NAME", help="the scenarios to show (default: list all)")
    parser.add_argument("--probe", action="store_true", help="compute the probes of the scenarios (default: all)")
    words = "with --probe, how many training instances of each"
    parser.add_argument("--instances", type=options.whole(1, 1000), default=1, metavar="N", help=words)
    words = "with --probe, multiplies the iterations of the searches"
    parser.add_argument("--effort", type=options.positive, default=1.0, metavar="X", help=words)
    parser.add_argument("--json", type=Path, metavar="FILE", help="with --probe, write the probes there as well")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="with --probe, write the scores there as well")
    words = "with --probe, make these the probes that the cards show (for maintainers)"
    parser.add_argument("--record", action="store_true", help=words)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the list, cards or probes."""
    if args.probe:
        return run_probes(args)
    for name in ("json", "csv", "record"):
        if getattr(args, name):
            raise ValueError(f"--{name} belongs to --probe; give that too.")
    if not args.scenario:
        listed = [(name, scenarios.card(name).title, scenarios.environment_id(name)) for name in scenarios.names()]
        note = "Show one with dp-ensemble scenarios NAME."
        show_table("Scenarios", ("name", "title", "environment"), listed, left=("name", "title"), notes=(note,))
    for name in args.scenario:
        show_card(name)
    return 0


def show_card(name: str) -> None:
    """Print the card of a scenario."""
    card, model = scenarios.card(name), scenarios.make(name)
    facts = f"{model.n_states} states, {model.horizon} decisions of {60 * model.step_hours:g} minutes"
    contexts = "" if model.context is None else ", ".join(model.context.names)
    rows = [
        ("story", card.story),
        ("states", card.states),
        ("contexts", contexts),
        ("size", f"{facts}, {model.buildings} loads"),
        ("private", card.private),
        ("sources", card.sources),
        ("environment", scenarios.environment_id(name)),
        ("animation", f"docs/images/scenarios/{name}.gif in the repository" if name in scenarios.BUILT_IN else ""),
    ]
    if found := recorded(name):
        rows += card_probes(found[0])
    rows += [("learners", text) for text in card_learners(card)]
    rows = [(name, text) for name, text in rows if text]
    show_table(f"{name}: {card.title}", ("", ""), rows, left=("",))


def card_probes(found: Probes) -> list[tuple[str, str]]:
    """Say in words what the probes of an instance are."""
    needs = f"best open loop {found.open_loop:.1f}, public guess {found.public_guess:.1f}, myopic {found.myopic:.1f}"
    price = f"constant {found.constant_price:.1f}, ceiling {found.price_ceiling:.1f}"
    discrete = f"constant {found.constant_discrete:.1f}, ceiling {found.discrete_ceiling:.1f}"
    if not np.isnan(found.price_bound):
        price += f", for a single load {found.price_bound:.1f}"
        discrete += f", for a single load {found.discrete_bound:.1f}"
    return [
        ("probes", f"{needs}, best of 100 random sequences {found.random_search:.1f} (0 uncontrolled, 100 optimum)"),
        ("price mode", price),
        ("discrete mode", discrete),
        ("tilt mode", f"constant {found.constant_tilt:.1f}, ceiling {found.tilt_ceiling:.1f}"),
        ("policy mode", f"constant {found.constant_policy:.1f}, ceiling 100.0"),
    ]


def card_learners(card: scenarios.Card) -> list[str]:
    """Say in words what learners reach on the test instances."""
    return [
        f"{name} ({of['given']}): {of['iqm']:.1f} on test instances, 95 % interval [{of['low']:.1f}, {of['high']:.1f}]"
        for name, of in (card.learners or {}).items()
    ]


def run_probes(args: argparse.Namespace) -> int:
    """Compute probes, print and write them."""
    names = args.scenario or list(scenarios.names())
    for name in names:
        scenarios.card(name)  # a misspelt name is refused before anything is computed
    for path in filter(None, (args.json, args.csv)):
        check_writable(path)
    found: dict[str, list[Probes]] = {}
    with Progress("probes") as monitor, keeping(lambda: "nothing was written"):
        for name in names:
            found[name] = []
            for instance in range(args.instances):
                found[name].append(probe(scenarios.make(name, instance=instance), effort=args.effort, monitor=monitor))
    rows = [
        (name if args.instances == 1 else f"{name} {i}", *(f"{getattr(one, key):.1f}" for _, key in COLUMNS))
        for name, all_of_it in found.items()
        for i, one in enumerate(all_of_it)
    ]
    show_table("Probes", ("scenario", *(heading for heading, _ in COLUMNS)), rows, left=("scenario",), notes=NOTES)
    write(args, found)
    if args.record:
        record(found)
    return 0


def write(args: argparse.Namespace, found: dict[str, list[Probes]]) -> None:
    """Write the files that were asked for."""
    flat: list[dict[str, Any]] = [
        {"scenario": name, "instance": i, **one.to_dict()}
        for name, all_of_it in found.items()
        for i, one in enumerate(all_of_it)
    ]
    if args.json is not None:
        with atomic_write(args.json) as stream:
            json.dump(flat, stream, indent=1, ensure_ascii=False)
    if args.csv is not None:
        keys = [key for key in flat[0] if key != "how"]
        write_csv(args.csv, keys, [[row[key] for key in keys] for row in flat])


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
