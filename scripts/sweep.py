"""`dp-ensemble sweep` for those who have the repository."""

import sys

from dp_ensemble_env.cli import main

if __name__ == "__main__":
    sys.exit(main(["sweep", *sys.argv[1:]]))
