"""Run the command line: ``python -m dp_ensemble_env``."""

import sys

from dp_ensemble_env.cli import main

if __name__ == "__main__":
    sys.exit(main())
