"""Speed of the environments against Gymnasium's CartPole-v1, in one process and on one thread.

Each row steps our environment and CartPole with the same number of
sub-environments in turns (so that a busy machine slows both) and reports the
best round of each. Observations, infos, checks of the actions and automatic
resets are all included; actions are sampled beforehand. The time of the first
call, compiled or loaded from the disk cache, is reported apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium

import dp_ensemble_env.envs  # noqa: F401 - registers the ids

#: (environment, sub-environments or None for the single form, least ratio to CartPole or None for "reported").
CASES: tuple[tuple[str, int | None, float | None], ...] = (
    ("SingleLoad", None, 1.2),
    ("MeanField", None, 1.0),
    ("Buildings", None, None),
    ("SingleLoad", 64, 5.0),
    ("SingleLoad", 1024, 2.0),
    ("SingleLoad", 65536, 0.7),
    ("MeanField", 64, 1.5),
    ("MeanField", 1024, 0.5),
    ("MeanField", 65536, 0.2),
    ("Buildings", 64, None),
    ("Buildings", 1024, 0.05),
)
FIRST_CALL = """
import time, gymnasium, sys
import dp_ensemble_env.envs
from dp_ensemble_env import campus_event, solve
model = campus_event()
solve(model.log_kernel, model.utility, model.discomfort_penalty)
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

    @property
    def ratio(self) -> float:
        """Our steps per second over CartPole's."""
        return self.steps_per_second / self.cartpole_steps_per_second

    @property
    def met(self) -> bool:
        """Whether the target, if any, is met."""
        return self.target is None or self.ratio >= self.target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each comparison; the best counts (15)")
    parser.add_argument("--seconds", type=float, default=0.1, help="length of a round (default 0.1)")
    parser.add_argument("--action", default="tilt", choices=("price", "tilt", "policy"), help="action mode")
    parser.add_argument("--only", default="", help="only rows whose environment contains this text")
    parser.add_argument("--no-compile", action="store_true", help="leave out the times of import and first calls")
    parser.add_argument("--json", metavar="FILE", help="also write the rows to FILE")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if a target is missed")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark and print its table."""
    if args.rounds < 1 or not args.seconds > 0:
        raise SystemExit("--rounds must be at least 1 and --seconds positive.")
    if not args.no_compile:
        report_first_calls()
    print(f"{'environment':<12}{'batch':>7}{'steps/s':>14}{'CartPole':>14}{'ratio':>8}{'target':>8}")
    rows = []
    for name, size, target in CASES:
        if args.only.lower() in name.lower():
            row = compare(name, size, target if args.action == "tilt" else None, args)
            rows.append(row)
            goal = "" if row.target is None else f"{row.target:g}"
            note = "" if row.met else "  missed"
            print(
                f"{name:<12}{size or 'single':>7}{row.steps_per_second:>14,.0f}{row.cartpole_steps_per_second:>14,.0f}"
                f"{row.ratio:>8.2f}{goal:>8}{note}",
                flush=True,
            )
    if args.json:
        with open(args.json, "w", encoding="utf-8") as stream:
            json.dump([{**asdict(row), "ratio": row.ratio} for row in rows], stream, indent=1)
    return 1 if args.check and not all(row.met for row in rows) else 0


def compare(name: str, size: int | None, target: float | None, args: argparse.Namespace) -> Row:
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
            start = time.perf_counter()
            chunk(counts[index])
            rate = counts[index] * (size or 1) / (time.perf_counter() - start)
            best[index] = max(best[index], rate)
    return Row(name, size, best[0], best[1], target)


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


def vector_chunk(name: str, size: int, settings: dict[str, Any]) -> Callable[[int], None]:
    """Return a function that takes a number of steps in a native vector environment."""
    envs = gymnasium.make_vec(name, num_envs=size, vectorization_mode="vector_entry_point", **settings)
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(2)]
    envs.reset(seed=0)

    def chunk(steps: int) -> None:
        step = envs.step
        for i in range(steps):
            step(actions[i & 1])

    return chunk


def report_first_calls() -> None:
    """Time, in fresh processes, the import and the first episode with an empty and with a filled compilation cache."""
    imported = float(
        _fresh("import time; s = time.perf_counter(); import dp_ensemble_env; print(time.perf_counter() - s)", {})
    )
    print(f"import dp_ensemble_env: {imported:.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("MeanField", "Buildings", "SingleLoad"):
            argument = f"dp_ensemble/{name}-v0"
            cold, warm = (float(_fresh(FIRST_CALL, {"NUMBA_CACHE_DIR": folder}, argument)) for _ in range(2))
            print(f"first make, reset and step of {name}: {cold:.1f} s compiling, {warm:.2f} s from the cache")
    print(flush=True)


def _fresh(code: str, environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip().splitlines()[-1]


def main(argv: list[str] | None = None) -> int:
    """Run as a script."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    args = parser.parse_args(argv)
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
