"""The command line `dp-ensemble`."""

from dp_ensemble_env.cli.main import main

__all__ = ["main"]
