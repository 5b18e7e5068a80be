"""Compile the environments before they are needed: ``python -m dp_ensemble_env.envs.precompile``.

Compiled functions are kept on disk, so this is done once for each installation; `make demo` and `make test` do it when
they install. Without it the first `reset` and `step` take some seconds more, and a terminal is told why.
"""

from __future__ import annotations

import numpy as np

from dp_ensemble_env.tools.console import Progress


def precompile() -> None:
    """Take one step; every population and action mode runs the same compiled functions."""
    from dp_ensemble_env.envs.ensemble import EnsembleEnv

    env = EnsembleEnv("spot", action="price")
    env.reset(seed=0)
    env.step(np.zeros(1))


if __name__ == "__main__":
    with Progress("compiling the environments, once"):
        precompile()
