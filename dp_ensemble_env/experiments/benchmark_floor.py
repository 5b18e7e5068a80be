"""What a step cannot do without, and what the rest of it is spent on.

Three parts are timed by themselves, in processor time of one thread, so that other programs matter less:

- *writing*: filling arrays of the size of what a step returns;
- *arithmetic*: the exponentials and logarithms of the policies, and for each finite load a random number;
- *compiled*: the whole compiled step, into arrays that are there already.

Writing and arithmetic are the floor. What the compiled step takes beyond it are the gathering of rows, sums, choices
and reports; what the environment takes beyond the compiled step is Python: checks, arrays, infos.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dp_ensemble_env.envs import EnsembleVectorEnv, threads
from dp_ensemble_env.envs._numeric import Floats, Ints, fast_exp, fast_log, uniform
from dp_ensemble_env.experiments.benchmark_env import CASES, DYNAMICS
from dp_ensemble_env.tools.compile import njit

#: Seconds that a turn takes at least: what is shorter may be too short for the clock of a thread.
TURN = 1e-3
#: Environments that the parts of the arithmetic go through at once, as the steps do.
BLOCK = 64


@dataclass(frozen=True)
class Floor:
    """Nanoseconds of one environment's step, on one thread."""

    environment: str
    sub_environments: int
    writing: float
    arithmetic: float
    compiled: float
    step: float

    @property
    def floor(self) -> float:
        """What cannot be avoided."""
        return self.writing + self.arithmetic


def cases() -> list[tuple[str, int]]:
    """Return the rows of `benchmark_env` that are batches."""
    return [(name, size) for name, size, _ in CASES if size is not None]


def measure(case: tuple[str, int], seconds: float) -> Floor:
    """Time the parts of one row, `seconds` for each."""
    name, size = case
    envs = EnsembleVectorEnv(size, population=DYNAMICS[name])
    envs.action_space.seed(0)
    actions = envs.action_space.sample()
    envs.reset(seed=0)
    results = np.empty(envs._observed, np.float32), np.empty((envs._rows, size)), np.empty((2, size))
    arrays = envs._ints, envs._common, envs._kernels, envs._counters, envs._traces, envs._occupancy
    n, nonzeros = envs.model.n_states, int(np.count_nonzero(envs.model.default))
    # One load: a row's exponentials and one logarithm. Many: all exponentials, a logarithm for each state.
    exponentials, logarithms = (nonzeros / n, 1) if name == "SingleLoad" else (n, n)
    draws = {"SingleLoad": 1, "MeanField": 0}.get(name, envs._task.loads)
    scratch, streams = np.linspace(-1.0, 0.0, BLOCK), np.arange(6 * BLOCK).reshape(6, BLOCK)
    threads.set_threads(1)

    def write() -> None:
        for array in results:
            array.fill(0)

    def compute() -> None:
        _arithmetic(scratch, streams, size, exponentials, logarithms, draws)

    episode = envs.model.horizon + 1
    parts = (
        _least(write, 1, seconds),
        _least(compute, 1, seconds),
        _least(lambda: envs._advance(*arrays, actions, *results[:2], 0, 0), episode, seconds),
        _least(lambda: envs.step(actions), episode, seconds),
    )
    threads.set_threads(None)
    return Floor(name, size, *(1e9 * part / size for part in parts))


def _least(function: Callable[[], object], calls: int, seconds: float) -> float:
    """Return the least processor time of a call, over turns of `calls` of them, or of a multiple of that."""
    function()
    start = time.perf_counter()
    function()
    calls *= math.ceil(TURN / (calls * max(time.perf_counter() - start, 1e-7)))
    best, end = np.inf, time.perf_counter() + seconds
    while best == np.inf or time.perf_counter() < end:
        start = time.thread_time()
        for _ in range(calls):
            function()
        best = min(best, (time.thread_time() - start) / calls)
    return float(best)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _arithmetic(scratch: Floats, streams: Ints, size: int, exponentials: float, logarithms: int, draws: int) -> float:
    """Do the arithmetic of `size` environments, block by block, and nothing else."""
    out, blocks = np.zeros(BLOCK), (size + BLOCK - 1) // BLOCK
    for _ in range(int(blocks * exponentials)):
        for c in range(BLOCK):
            out[c] += fast_exp(scratch[c])
    for _ in range(blocks * logarithms):
        for c in range(BLOCK):
            out[c] += fast_log(2.0 + scratch[c])
    for _ in range(blocks * draws):
        for c in range(BLOCK):
            out[c] += uniform(streams, c)
    return float(out.sum())
