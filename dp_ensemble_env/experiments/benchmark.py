"""Measure the speed claims, as ratios between things timed in the same run.

    dp-ensemble benchmark solver          the recursion and the sampled average
    dp-ensemble benchmark env             the environments against Gymnasium's CartPole
    dp-ensemble benchmark solver --json speed.json

Times on a shared machine vary; ratios of medians taken alternately vary less.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

# One thread everywhere: the comparison is of methods, not of cores.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

from dp_ensemble_env.experiments import benchmark_env  # noqa: E402 - the script beside this one


@dataclass
class Ratio:
    """One claim: how many times faster (or, where `limit` is "at most", slower) ours is than the other."""

    claim: str
    ours_ms: float
    other_ms: float
    ratio: float
    wanted: float
    limit: str = "at least"

    @property
    def holds(self) -> bool:
        """Whether the measured ratio satisfies the claim."""
        return self.ratio >= self.wanted if self.limit == "at least" else self.ratio <= self.wanted


def alternate(first: Callable[[], object], second: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Median times in ms of two functions, run in turn for about `seconds` (at least three rounds).

    Quick functions are called several times a turn, so that neither pays for
    the other's traces in the cache.
    """
    functions, calls = (first, second), []
    for function in functions:
        function()  # compile and warm up
        start = time.perf_counter()
        function()
        calls.append(max(1, int(2e-3 / (time.perf_counter() - start))))
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for function, count, record in zip(functions, calls, times, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                function()
            record.append((time.perf_counter() - start) / count)
    return float(np.median(times[0]) * 1e3), float(np.median(times[1]) * 1e3)


def numpy_recursion(log_kernel: np.ndarray, utility: np.ndarray, penalty: float) -> np.ndarray:
    """Row-wise log-sum-exp in plain NumPy, the reference of the recursion."""
    horizon = len(utility) - 1
    log_z = utility[-1] / penalty
    policy = np.empty((horizon, *log_kernel.shape))
    for t in range(horizon - 1, -1, -1):
        x = log_kernel + log_z
        top = x.max(axis=1, keepdims=True)
        weights = np.exp(x - top)
        total = weights.sum(axis=1, keepdims=True)
        policy[t] = weights / total
        log_z = utility[t] / penalty + (top + np.log(total))[:, 0]
    return policy


def naive_average(model, k: float, samples: int, rng: np.random.Generator) -> np.ndarray:
    """Average as the equations read: a loop over samples, times and states."""
    from scipy.special import logsumexp

    n, horizon = model.n_states, model.horizon
    total = np.zeros((horizon, n, n))
    for _ in range(samples):
        private = [rng.dirichlet(k * row[row > 0]) for row in model.default]
        log_z = model.utility[-1] / model.discomfort_penalty
        for t in range(horizon - 1, -1, -1):
            before = np.empty(n)
            for b in range(n):
                on = np.flatnonzero(model.default[b])
                x = np.log(np.maximum(private[b], 1e-300)) + log_z[on]
                log_g = logsumexp(x)
                total[t, b, on] += np.exp(x - log_g)
                before[b] = model.utility[t, b] / model.discomfort_penalty + log_g
            log_z = before
    return total / samples


def conic_program(model):
    """Pose the same optimum as a convex program for CLARABEL; return a function that solves it."""
    import cvxpy as cp

    n, horizon = model.n_states, model.horizon
    flows = [cp.Variable((n, n), nonneg=True) for _ in range(horizon)]
    b, a = np.nonzero(model.default)
    nats = model.utility / model.discomfort_penalty
    nats = nats - nats.max(axis=1, keepdims=True)  # a constant per time, which the conic solver is better off without
    cost, constraints = 0, []
    for t, flow in enumerate(flows):
        mass = cp.sum(flow, axis=1)
        constraints += [mass == (np.full(n, 1 / n) if t == 0 else cp.sum(flows[t - 1], axis=0))]
        constraints += [flow[model.default == 0] == 0]
        cost += cp.sum(cp.rel_entr(flow[b, a], cp.multiply(mass[b], model.default[b, a])))
        cost -= cp.sum(flow, axis=0) @ nats[t + 1]
    problem = cp.Problem(cp.Minimize(cost), constraints)
    return lambda: problem.solve(solver=cp.CLARABEL)


def solver_claims(seconds: float, progress: Callable[[str], None]) -> list[Ratio]:
    """Time the recursion and the sampled average against their references."""
    import scipy.sparse as sp

    from dp_ensemble_env.lsmdp import LogKernel, solve
    from dp_ensemble_env.policies import average_policy
    from dp_ensemble_env.scenarios.campus import campus_event

    model = campus_event(start="11:00", end="14:30")  # 16 steps
    claims = []
    rng = np.random.default_rng(0)

    def ours() -> object:
        return solve(model.log_kernel, model.utility, model.discomfort_penalty)

    progress("recursion against plain NumPy, n = 20, T = 16")
    a, b = alternate(ours, lambda: numpy_recursion(model.log_default, model.utility, 15.0), seconds)
    claims.append(Ratio("recursion, n = 20, T = 16, against row log-sum-exp in NumPy", a, b, b / a, 8))

    progress("recursion against CVXPY with CLARABEL")
    a, b = alternate(ours, conic_program(model), seconds)
    claims.append(Ratio("recursion, n = 20, T = 16, against CVXPY with CLARABEL", a, b, b / a, 1000))

    progress("recursion with 2000 states")
    n = 2000
    weights = sp.diags([rng.uniform(0.05, 1, n - abs(d)) for d in range(-2, 3)], list(range(-2, 3))).tocsr()
    chain = sp.diags(1 / np.asarray(weights.sum(axis=1)).ravel()) @ weights
    utility = -rng.uniform(0, 10, (17, n))
    kernel = LogKernel.from_sparse(chain)
    with np.errstate(divide="ignore"):
        dense = np.log(chain.toarray())
    a, b = alternate(lambda: solve(kernel, utility, 1.0), lambda: numpy_recursion(dense, utility, 1.0), seconds)
    claims.append(Ratio("recursion, n = 2000, bandwidth 2, T = 16, against dense NumPy", a, b, b / a, 200))

    progress("sampled average against the naive loop")
    k, few = 50.0, 4
    a, b = alternate(
        lambda: average_policy(model, k, "sampled", 1000, rng), lambda: naive_average(model, k, few, rng), seconds
    )
    b *= 1000 / few
    claims.append(Ratio("sampled average, 1000 draws, against a loop over draws, times, states", a, b, b / a, 400))

    progress("sampled average against its own Gamma variates")
    shapes = k * model.default[model.default > 0]
    a, b = alternate(
        lambda: average_policy(model, k, "sampled", 1000, rng),
        lambda: rng.standard_gamma(shapes, size=(1000, shapes.size)),
        seconds,
    )
    claims.append(Ratio("sampled average, time over NumPy's Gamma draws alone", a, b, a / b, 1.2, "at most"))
    return claims


def show(claims: list[Ratio]) -> None:
    """Print the claims as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Ratios measured in this run")
    for name, justify in (("claim", "left"), ("ours", "right"), ("other", "right"), ("ratio", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for c in claims:
        verdict = "[green]holds[/]" if c.holds else "[red]not in this run[/]"
        ratio = f"{c.ratio:,.2f}x" if c.ratio < 10 else f"{c.ratio:,.0f}x"
        table.add_row(
            c.claim, f"{c.ours_ms:.3f} ms", f"{c.other_ms:.2f} ms", ratio, f"{c.limit} {c.wanted:g}x: {verdict}"
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def main(argv: list[str] | None = None) -> int:
    """Run the chosen measurements; exit status 1 if a claim did not hold in this run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="{solver,env}")
    environments = commands.add_parser("env", help="steps per second against CartPole-v1 of the same batch")
    benchmark_env.add_arguments(environments)
    solver = commands.add_parser("solver", help="the recursion and the sampled average against their references")
    solver.add_argument("--seconds", type=float, default=2.0, help="time spent on each comparison (default 2)")
    solver.add_argument("--json", type=Path, help="also write the measurements to this file")
    args = parser.parse_args(argv)
    if args.command == "env":
        return benchmark_env.run(args)
    from rich.console import Console

    with Console(stderr=True).status("measuring") as status:
        claims = solver_claims(args.seconds, lambda text: status.update(f"measuring: {text}"))
    show(claims)
    if args.json:
        from dp_ensemble_env._files import atomic_write

        try:
            with atomic_write(args.json) as stream:
                json.dump([{**asdict(c), "holds": c.holds} for c in claims], stream, indent=2)
        except ValueError as error:
            print(f"benchmark: {error}", file=sys.stderr)
            return 2
    return 0 if all(c.holds for c in claims) else 1


if __name__ == "__main__":
    raise SystemExit(main())
