"""Speed of the environments against Gymnasium's CartPole-v1, in one process.

Each row steps our environment and CartPole with the same number of
sub-environments in turns (so that a busy machine slows both) and reports the
best round of each, in processor time of one thread. Observations, infos, checks of the actions and automatic
resets are all included; actions are sampled beforehand. The time of the first
call, compiled or loaded from the disk cache, is reported apart.

Large batches are also stepped on as many threads as there are processors, as they
are by default; what that brings is measured by the clock, and counts. CartPole has
one thread.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium

from dp_ensemble_env.envs import threads
from dp_ensemble_env.envs.dynamics import PIECE
from dp_ensemble_env.experiments.workers import ONE_THREAD

#: (environment, sub-environments or None for the single form, least ratio to CartPole or None for "reported").
CASES: tuple[tuple[str, int | None, float | None], ...] = (
    ("SingleLoad", None, 1.2),
    ("MeanField", None, 1.0),
    ("Buildings", None, None),
    ("SingleLoad", 64, 7.0),
    ("SingleLoad", 1024, 2.5),
    ("SingleLoad", 65536, 1.5),
    ("MeanField", 64, 4.0),
    ("MeanField", 1024, 1.0),
    ("MeanField", 65536, 0.5),
    ("Buildings", 64, None),
    ("Buildings", 1024, 0.25),
)
DYNAMICS = {"SingleLoad": "single", "MeanField": "mean-field", "Buildings": "buildings"}
FIRST_CALL = """
import time, gymnasium, sys
import dp_ensemble_env.envs
from dp_ensemble_env import campus_event, solve
model = campus_event()
solve(default_kernel(model), model.utility, model.discomfort_penalty)
start = time.perf_counter()
env = gymnasium.make(sys.argv[1], model=model)
env.reset(seed=0)
env.step(env.action_space.sample())
print(time.perf_counter() - start)
"""


@dataclass
class Row:
    """One comparison."""

    environment: str
    sub_environments: int | None
    steps_per_second: float
    cartpole_steps_per_second: float
    target: float | None
    one_thread_steps_per_second: float

    @property
    def ratio(self) -> float:
        """Our steps per second over CartPole's."""
        return self.steps_per_second / self.cartpole_steps_per_second

    @property
    def speedup(self) -> float:
        """What the threads bring; one where they are not used."""
        return self.steps_per_second / self.one_thread_steps_per_second

    @property
    def met(self) -> bool:
        """Whether the target, if any, is met."""
        return self.target is None or self.ratio >= self.target


@dataclass(frozen=True)
class SpeedSettings:
    """Rounds of each comparison, of which the best counts, their length in seconds, and the action mode."""

    rounds: int = 15
    seconds: float = 0.1
    action: str = "tilt"


def measure(case: tuple[str, int | None, float | None], settings: SpeedSettings) -> Row:
    """Measure one of `CASES`; the targets hold in tilt mode."""
    name, size, target = case
    return compare(name, size, target if settings.action == "tilt" else None, settings)


def compare(name: str, size: int | None, target: float | None, args: SpeedSettings) -> Row:
    """Time one environment and CartPole in turns."""
    ours_id, settings = f"dp_ensemble/{name}-v0", {"action": args.action}
    if size is None:
        chunks = [single_chunk(ours_id, settings), single_chunk("CartPole-v1", {})]
    else:
        chunks = [vector_chunk(ours_id, size, settings), vector_chunk("CartPole-v1", size, {})]
    counts = []
    for chunk in chunks:  # how many steps fill a round
        chunk(20)
        start = time.perf_counter()
        chunk(20)
        counts.append(max(20, int(20 * args.seconds / (time.perf_counter() - start))))
    best = [0.0, 0.0]
    for _ in range(args.rounds):
        for index, chunk in enumerate(chunks):
            start = time.thread_time()
            chunk(counts[index])
            best[index] = max(best[index], counts[index] * (size or 1) / (time.thread_time() - start))
    gain = 1.0
    if size is not None and available() > 1 and size >= 2 * PIECE[DYNAMICS[name]]:
        gain = _by_threads(vector_chunk(ours_id, size, settings, available()), chunks[0], counts[0] // 2, args)
    return Row(name, size, best[0] * gain, best[1], target, best[0])


def _by_threads(many: Callable[[int], None], one: Callable[[int], None], steps: int, args: SpeedSettings) -> float:
    """Return how many times faster a batch is on all threads than on one, by the clock."""
    best = [float("inf"), float("inf")]
    for _ in range(args.rounds):
        for index, chunk in enumerate((many, one)):
            start = time.perf_counter()
            chunk(max(20, steps))
            best[index] = min(best[index], time.perf_counter() - start)
    return best[1] / best[0]


def available() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def single_chunk(name: str, settings: dict[str, Any]) -> Callable[[int], None]:
    """Return a function that takes a number of steps in a single environment."""
    env = gymnasium.make(name, **settings)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(64)]
    env.reset(seed=0)

    def chunk(steps: int) -> None:
        step, reset = env.step, env.reset
        for i in range(steps):
            _, _, terminated, truncated, _ = step(actions[i & 63])
            if terminated or truncated:
                reset()

    return chunk


def vector_chunk(name: str, size: int, settings: dict[str, Any], count: int = 1) -> Callable[[int], None]:
    """Return a function that takes a number of steps in a native vector environment, ours on `count` threads."""
    envs = gymnasium.make_vec(name, num_envs=size, vectorization_mode="vector_entry_point", **settings)
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(2)]
    envs.reset(seed=0)

    def chunk(steps: int) -> None:
        step = envs.step
        threads.set_threads(count)
        for i in range(steps):
            step(actions[i & 1])

    return chunk


def first_calls(say: Callable[[str], None]) -> None:
    """Time, in fresh processes, the import and the first episode with an empty and with a filled compilation cache."""
    imported = float(
        _fresh("import time; s = time.perf_counter(); import dp_ensemble_env; print(time.perf_counter() - s)", {})
    )
    say(f"import dp_ensemble_env: {imported:.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("MeanField", "Buildings", "SingleLoad"):
            argument = f"dp_ensemble/{name}-v0"
            cold, warm = (float(_fresh(FIRST_CALL, {"NUMBA_CACHE_DIR": folder}, argument)) for _ in range(2))
            say(f"first make, reset and step of {name}: {cold:.1f} s compiling, {warm:.2f} s from the cache")


def _fresh(code: str, environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **ONE_THREAD, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip().splitlines()[-1]
