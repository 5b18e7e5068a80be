"""Compile the environments before they are needed: ``python -m dp_ensemble_env.envs.precompile``.

Compiled functions are kept on disk, so this is done once for each installation; `make demo` and `make test` do it when
they install. Without it the first `reset` and `step` of each population take some seconds more, and a terminal is told
why. Afterwards they are read in a fraction of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from dp_ensemble_env.tools.console import Progress

#: Scenario and population: every compiled step is behind one of these.
KINDS = (
    ("campus-event", "mean-field"),
    ("campus-event", "single"),
    ("campus-event", "buildings"),
    ("spot", "mean-field"),
)


def precompile(say: Callable[[int, str], object] = lambda done, note: None) -> None:
    """Take one step in each kind of environment with actions in single precision, as learners give them."""
    from dp_ensemble_env.envs import _crew, threads
    from dp_ensemble_env.envs.vector import EnsembleVectorEnv

    before = threads.chosen()
    threads.set_threads(2)  # what shares a batch is compiled, too
    _crew.serve(threads.Crew().post)
    for done, (scenario, population) in enumerate(KINDS):
        say(done, f"{scenario}, {population}")
        envs = EnsembleVectorEnv(256, scenario, population)
        envs.reset(seed=0)
        envs.step(np.zeros(envs.action_space.shape or (), np.float32))
        envs.close()
    threads.set_threads(before)


def main() -> int:
    """Compile, saying so."""
    with Progress("compiling the environments, once", len(KINDS)) as monitor:
        precompile(monitor.advance)
    return 0


if __name__ == "__main__":
    sys.exit(main())
