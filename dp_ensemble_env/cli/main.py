"""One entry point for every command."""

from __future__ import annotations

import importlib
import sys

#: Command, and the module whose ``main`` runs it.
COMMANDS = {
    "train": "dp_ensemble_env.cli.train",
    "evaluate": "dp_ensemble_env.cli.evaluate",
    "compare": "dp_ensemble_env.experiments.comparison",
    "validate": "dp_ensemble_env.experiments.validation",
    "privacy": "dp_ensemble_env.cli.privacy",
    "reproduce": "dp_ensemble_env.cli.reproduce",
    "sweep": "dp_ensemble_env.cli.sweep",
    "dataset": "dp_ensemble_env.experiments.datasets",
    "tune": "dp_ensemble_env.experiments.tuning",
    "benchmark": "dp_ensemble_env.experiments.benchmark",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] not in COMMANDS:
        print(f"usage: dp-ensemble COMMAND ...; the commands are {', '.join(COMMANDS)}.")
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    return int(importlib.import_module(COMMANDS[arguments[0]]).main(arguments[1:]))
