"""`dp-ensemble leaderboard` for those who have the repository."""

import sys

if __name__ == "__main__":
    sys.argv[:1] = ["dp-ensemble", "leaderboard"]
    from dp_ensemble_env.cli import main

    sys.exit(main())
