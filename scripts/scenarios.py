"""`dp-ensemble scenarios` for those who have the repository."""

import sys

from dp_ensemble_env.cli import main

if __name__ == "__main__":
    sys.exit(main(["scenarios", *sys.argv[1:]]))
