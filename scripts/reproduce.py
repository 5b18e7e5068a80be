"""`dp-ensemble reproduce` for those who have the repository."""

import sys

from dp_ensemble_env.cli import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))
