"""`dp-ensemble play` for those who have the repository."""

import sys

if __name__ == "__main__":
    sys.argv[:1] = ["dp-ensemble", "play"]
    from dp_ensemble_env.cli import main

    sys.exit(main())
