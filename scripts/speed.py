#!/usr/bin/env python
"""Measure the solver's claims, a step of every scenario beside CartPole, and the environment's share of PPO's time.

Everything is a ratio of things timed in turns in one run, in processor time of one thread; the best turn counts.
`solver`, `env` and `ppo` measure; with `--json docs/performance/COMMAND.json` they record. `pages` then writes the
tables of docs/performance.md.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # the comparison is of methods, not of cores; libraries read this when they are imported
    os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")})
import gymnasium
import numpy as np
import scipy.sparse as sp

from dp_ensemble_env import average_policy, campus_event, envs, scenarios, solve

Work = Callable[[], object]
Timer = Callable[[int], float]  # makes so many calls, and returns the seconds they took
Rows = list[dict[str, Any]]
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BATCH, ENVIRONMENTS, ROLLOUT, STEPS = 1024, 8, 256, 10_000  # the last three are PPO's


def best_times(timers: Sequence[Timer], seconds: float) -> list[float]:
    """Return the least seconds of a call for each timer, in turns for about `seconds` (three rounds at least)."""
    calls = [(timer(1), max(1, int(20e-3 / max(timer(1), 1e-7))))[1] for timer in timers]  # the first call compiles
    best, end, rounds = [np.inf] * len(timers), time.perf_counter() + seconds, 0
    while rounds < 3 or time.perf_counter() < end:
        best = [min(least, timer(n) / n) for least, timer, n in zip(best, timers, calls, strict=True)]
        rounds += 1
    return best


def timer_of(function: Work) -> Timer:
    """Return the timer of a function, in processor time of this thread."""

    def timer(calls: int) -> float:
        start = time.thread_time()
        for _ in range(calls):
            function()
        return time.thread_time() - start

    return timer


def numpy_recursion(log_kernel: Any, utility: Any, penalty: float, nature: Any = None, moves: Any = None) -> Any:
    """Run the recursion by log-sum-exp in plain NumPy; kernels (T or 1, …). Without nature also find the policy."""
    log_z, policy = utility[-1] / penalty, []
    for t in range(len(utility) - 2, -1, -1):
        if nature is not None:
            log_z = np.matmul(nature[t % len(nature)], (moves @ log_z)[..., None])[..., 0]
        x = log_kernel[t % len(log_kernel)] + log_z[..., None, :]
        top = x.max(axis=-1, keepdims=True)
        weights = np.exp(x - top)
        total = weights.sum(axis=-1, keepdims=True)
        if nature is None:
            policy.append(weights / total)
        log_z = utility[t] / penalty + (top + np.log(total))[..., 0]
    return policy or log_z


def conic_program(model: Any) -> Work:
    """Pose the same optimum as a convex program for CLARABEL; return a function that solves it."""
    cp: Any = importlib.import_module("cvxpy")  # has no types
    n, (b, a), nats = model.n_states, np.nonzero(model.default), model.utility / model.discomfort_penalty
    nats = nats - nats.max(axis=1, keepdims=True)  # a constant per time, which would trouble the conic solver
    flows = [cp.Variable((n, n), nonneg=True) for _ in range(model.horizon)]
    mass, cost, constraints = np.full(n, 1 / n), 0, [flow[model.default == 0] == 0 for flow in flows]
    for t, flow in enumerate(flows):
        constraints += [cp.sum(flow, axis=1) == mass]
        cost += cp.sum(cp.rel_entr(flow[b, a], cp.multiply(cp.sum(flow, axis=1)[b], model.default[b, a])))
        mass = cp.sum(flow, axis=0)
        cost -= mass @ nats[t + 1]
    return partial(cp.Problem(cp.Minimize(cost), constraints).solve, solver=cp.CLARABEL)


def solver_claims() -> list[tuple[str, float, Work, Work, float]]:
    """Return claims: words, least ratio, ours, the other, and how many times that must be done for the same work."""
    from dp_ensemble_env.control.kernel import default_kernel
    from dp_ensemble_env.control.lsmdp import LogKernel, log_probabilities

    rng, model = np.random.default_rng(0), campus_event(start="11:00", end="14:30")
    ours = partial(solve, default_kernel(model), model.utility, model.discomfort_penalty)
    plain = partial(numpy_recursion, log_probabilities(model.default)[None], model.utility, model.discomfort_penalty)
    bands = sp.diags([rng.uniform(0.05, 1, 2000 - abs(d)) for d in range(-2, 3)], list(range(-2, 3))).tocsr()
    chain, dollars = sp.diags(1 / np.asarray(bands.sum(axis=1)).ravel()) @ bands, -rng.uniform(0, 10, (17, 2000))
    places, logs = (chain.indptr.astype(np.int64), chain.indices.astype(np.int64)), np.log(chain.data)[None, None]
    large = partial(solve, LogKernel(*places, logs, 2000), dollars, 1.0)
    dense = partial(numpy_recursion, log_probabilities(chain.toarray())[None], dollars, 1.0)
    sampled, shapes = partial(average_policy, model, 50.0, "sampled", 1000, rng), 50 * model.default[model.default > 0]
    gammas = partial(rng.standard_gamma, shapes, (1000, shapes.size))
    claims: list[tuple[str, float, Work, Work, float]] = [
        ("recursion, 20 states, 16 steps, against plain NumPy", 8, ours, plain, 1),
        ("the same against CVXPY with CLARABEL", 1000, ours, conic_program(model), 1),
        ("recursion, 2,000 states with 5 moves each, 16 steps, against dense NumPy", 200, large, dense, 1),
        ("average of 1,000 draws against as many recursions in plain NumPy", 20, sampled, plain, 1000),
        ("average of 1,000 draws against drawing its Gamma variates alone", 1 / 1.2, sampled, gammas, 1),
    ]
    for steps, words, least in ((1, "tables by context", 8), (96, "tables by context and time", 4)):
        default, nature = rng.dirichlet(np.ones(64), (2, steps, 4, 64))
        moves, worth = rng.dirichlet(np.ones(4), 4), rng.normal(0, 5, (97, 4, 64))
        tables: dict[str, Any] = {"nature": LogKernel.of_contexts(nature, "nature"), "context": moves}
        general = partial(solve, LogKernel.of_contexts(default), worth, 2.0, **tables)
        other = partial(numpy_recursion, np.log(default), worth, 2.0, nature, moves)
        title = f"with nature, 4 contexts, 64 states, 96 steps, {words}, against NumPy"
        claims.append((title, least, general, other, 1))
    return claims


def run_solver(args: argparse.Namespace) -> Rows:
    """Measure the solver's claims."""
    rows = []
    for claim, wanted, mine, theirs, times in solver_claims():
        print(claim, file=sys.stderr)
        ours, other = best_times([timer_of(mine), timer_of(theirs)], args.seconds)
        rows.append({"comparison": claim, "ours, ms": 1e3 * ours, "ratio": times * other / ours, "claimed": wanted})
    return rows


def stepper(env: Any, vector: bool = True) -> Timer:
    """Return the timer of an environment's steps, by actions drawn beforehand."""
    env.action_space.seed(0)
    actions = itertools.cycle([env.action_space.sample() for _ in range(4 if vector else 64)])
    env.reset(seed=0)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(next(actions))
        if not vector and (terminated or truncated):
            env.reset()

    return timer_of(step)


def compare(name: str, ours: Timer, cartpole: Timer, size: int, seconds: float) -> dict[str, float]:
    """Time ours and CartPole in turns; the ratio says how many times faster ours is."""
    mine, other = best_times([ours, cartpole], seconds)
    return {f"{name}, µs": 1e6 * mine / size, f"{name} / CartPole": other / mine}


def run_env(args: argparse.Namespace) -> Rows:
    """Time a step of every scenario: a single environment, and batches of one load and of the mean field."""
    one = stepper(gymnasium.make("CartPole-v1"), vector=False)
    many = stepper(gymnasium.make_vec("CartPole-v1", BATCH, vectorization_mode="vector_entry_point"))
    rows: Rows = []
    for name in scenarios.names():
        print(name, file=sys.stderr)
        mine = stepper(gymnasium.make(scenarios.environment_id(name)), vector=False)
        rows.append({"scenario": name, **compare("one environment", mine, one, 1, args.seconds)})
        for words, population in (("load", "single"), ("mean field", "mean-field")):
            batch = stepper(envs.EnsembleVectorEnv(BATCH, name, population, "tilt"))
            rows[-1] |= compare(words, batch, many, BATCH, args.seconds)
    return rows


def run_ppo(args: argparse.Namespace) -> Rows:
    """Train Stable-Baselines3's PPO on every scenario, and time the environment within."""
    learner_class, rows, inside = importlib.import_module("stable_baselines3").PPO, [], 0.0

    class Timed(envs.EnsembleVecEnv):
        def step_wait(self) -> Any:
            nonlocal inside
            start = time.thread_time()
            result = super().step_wait()
            inside += time.thread_time() - start
            return result

    for name in scenarios.names():
        print(name, file=sys.stderr)
        batch = Timed(ENVIRONMENTS, scenarios.environment_id(name))
        learner = learner_class("MlpPolicy", batch, n_steps=ROLLOUT, seed=0, device="cpu")
        for steps in (ENVIRONMENTS * ROLLOUT, STEPS):  # the first ones compile and warm up
            inside, start = 0.0, time.thread_time()
            learner.learn(steps)
        rows.append({"scenario": name, "environment, % of the time": 100 * inside / (time.thread_time() - start)})
    return rows


COMMANDS = {"solver": run_solver, "env": run_env, "ppo": run_ppo}


def table(rows: Rows) -> str:
    """Return the measurements as a table in Markdown."""
    lines = [list(rows[0]), ["---", *["---:"] * (len(rows[0]) - 1)]]
    for row in rows:
        lines.append([v if isinstance(v, str) else f"{v:,.0f}" if v >= 100 else f"{v:.2g}" for v in row.values()])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(command: str, rows: Rows) -> str:
    """Return a table, or for PPO the least and the largest share of the environment."""
    if command != "ppo":
        return table(rows)
    shares = [row["environment, % of the time"] for row in rows]
    return f"The environment takes {min(shares):.1f} to {max(shares):.1f} % of the time on {len(shares)} scenarios."


def filled(page: str) -> str:
    """Return the page on performance with the tables of what was recorded."""
    for command in COMMANDS:
        rows = json.loads((PAGE.parent / "performance" / f"{command}.json").read_text(encoding="utf-8"))
        before, mark, rest = page.partition(f"<!-- {command} -->\n")
        page = f"{before}{mark}\n{shown(command, rows)}\n\n" + rest[rest.index(f"<!-- /{command} -->") :]
    return page


def main() -> int:
    """Run a command; status 1 says that a claim of the solver did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=(*COMMANDS, "pages"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was measured to this file")
    parser.add_argument("--seconds", type=float, default=2.0, help="time of each comparison (default 2)")
    args = parser.parse_args()
    if args.command not in COMMANDS:
        PAGE.write_text(filled(PAGE.read_text("utf-8")), "utf-8")
        return 0
    rows = COMMANDS[args.command](args)
    print(table(rows))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return int(any(row["ratio"] < row["claimed"] for row in rows if "claimed" in row))


if __name__ == "__main__":
    sys.exit(main())
