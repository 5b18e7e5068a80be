"""`dp-ensemble scenarios`: the built-in problems."""

from __future__ import annotations

import argparse

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.reporting.tables import show_table

DESCRIPTION = """List the built-in problems, or show the card of one.

Every command takes a problem by its name (--scenario NAME); in Python it is scenarios.make(NAME), and its environment
has an id of its own."""
EXAMPLES = ("dp-ensemble scenarios", "dp-ensemble scenarios campus-event")


def build_parser() -> Parser:
    """Declare the argument."""
    parser = Parser(prog="dp-ensemble scenarios", description=DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("scenario", nargs="?", metavar="NAME", help="the scenario to show (default: list all)")
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the list or the card."""
    if args.scenario is None:
        listed = [(name, scenarios.card(name).title, scenarios.environment_id(name)) for name in scenarios.names()]
        note = "Show one with dp-ensemble scenarios NAME."
        show_table("Scenarios", ("name", "title", "environment"), listed, left=("name", "title"), notes=(note,))
        return 0
    card, model = scenarios.card(args.scenario), scenarios.make(args.scenario)
    facts = f"{model.n_states} states, {model.horizon} decisions of {60 * model.step_hours:g} minutes"
    rows = [
        ("story", card.story),
        ("states", card.states),
        ("size", f"{facts}, {model.buildings} loads"),
        ("private", card.private),
        ("sources", card.sources),
        ("environment", scenarios.environment_id(args.scenario)),
    ]
    rows = [(name, text) for name, text in rows if text]
    show_table(f"{args.scenario}: {card.title}", ("", ""), rows, left=("",))
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, run, argv)
