"""One entry point for every command."""

from __future__ import annotations

import importlib
import sys

from dp_ensemble_env.cli.shell import PROGRAM, Parser, did_you_mean, guard

#: Command, and what it does in a few words; `dp_ensemble_env.cli.<command>` has its ``main``.
COMMANDS = {
    "scenarios": "list the built-in problems, or show one",
    "train": "train a learner and keep the run",
    "evaluate": "score an agent or a run",
    "play": "set the price by hand, beside the optimum",
    "compare": "compare controllers: table, pictures, page",
    "suite": "score every agent on every scenario",
    "leaderboard": "score agents by one protocol, and make the page",
    "plan": "make a dispatch for an event from meters",
    "settle": "settle an event: energy, performance factor, payment",
    "backtest": "forecast days without an event, and compare",
    "validate": "check the policies against simulation",
    "privacy": "state, choose, spend and attack a guarantee",
    "reproduce": "compute the paper's figures and claims again",
    "sweep": "run a grid of cells, here or on a cluster",
    "dataset": "write offline data sets for Minari",
    "tune": "search the hyper-parameters of a learner",
}
DESCRIPTION = """Privacy-aware demand response: problems with a known optimum, and what privacy costs.

Every command explains itself: dp-ensemble COMMAND --help."""


def build_parser() -> Parser:
    """Describe the commands."""
    examples = ("dp-ensemble compare --output runs/demo", "dp-ensemble evaluate standard --population single")
    parser = Parser(prog=PROGRAM, description=DESCRIPTION, examples=examples)
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", prog=PROGRAM)
    for name, words in COMMANDS.items():
        commands.add_parser(name, help=words, add_help=False)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in COMMANDS:
        return guard(f"{PROGRAM} {words[0]}", lambda: _run(words[0], words[1:]))
    if words[:1] == ["--version"]:
        from dp_ensemble_env import __version__

        print(f"{PROGRAM} {__version__}")
        return 0
    if words and words[0] not in ("-h", "--help"):
        kind = "option" if words[0].startswith("-") else "command"
        hint = did_you_mean(words[0], (*COMMANDS, "--help", "--version"), f"see {PROGRAM} --help")
        print(f"{PROGRAM}: there is no {kind} {words[0]!r}; {hint}", file=sys.stderr)
        return 2
    print(build_parser().format_help(), end="", file=sys.stdout if words else sys.stderr)
    return 0 if words else 2


def _run(command: str, words: list[str]) -> int:
    return int(importlib.import_module(f"dp_ensemble_env.cli.{command}").main(words))
