"""`dp-ensemble benchmark`: the speed claims, as ratios."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dp_ensemble_env.cli import options
from dp_ensemble_env.cli.shell import Parser, execute
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.registration import environment_ids
from dp_ensemble_env.experiments import benchmark, benchmark_env, benchmark_floor, benchmark_growth
from dp_ensemble_env.experiments.workers import Died, in_processes
from dp_ensemble_env.reporting.tables import show_table
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write, check_writable
from dp_ensemble_env.tools.validation import check_choice

DESCRIPTION = """Measure the speed claims, as ratios between things timed in the same run.

Times on a shared machine vary; ratios of what is timed alternately vary less. Everything has one thread, except
large batches of our environments, which are shown both ways."""
EXAMPLES = (
    "dp-ensemble benchmark solver --json speed.json",
    "dp-ensemble benchmark env --only MeanField",
    "dp-ensemble benchmark growth --picture growth.png",
    "dp-ensemble benchmark ppo",
)


def build_parser() -> Parser:
    """Describe the benchmarks."""
    parser = Parser(prog="dp-ensemble benchmark", description=DESCRIPTION, examples=EXAMPLES)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    words = "the recursion and the sampled average against their references"
    examples: tuple[str, ...] = ("dp-ensemble benchmark solver", "dp-ensemble benchmark solver --seconds 5")
    solver = commands.add_parser("solver", help=words, examples=examples,
                                 description=f"Time {words}. Exit status 1 if a claim does not hold.")  # fmt: skip
    solver.add_argument("--seconds", type=options.positive, default=2.0, metavar="S", help="time for each comparison")
    solver.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements to this file")
    solver.set_defaults(run=run_solver)
    words = "steps per second against CartPole-v1 of the same batch"
    examples = ("dp-ensemble benchmark env", "dp-ensemble benchmark env --only single --no-compile --check")
    env = commands.add_parser("env", help=words, examples=examples, description=f"Count {words}.")
    words = "rounds of each comparison; the best counts"
    env.add_argument("--rounds", type=options.whole(1), default=15, metavar="N", help=words)
    env.add_argument("--seconds", type=options.positive, default=0.1, metavar="S", help="length of a round")
    env.add_argument("--only", default="", metavar="TEXT", help="rows whose environment contains this (default all)")
    env.add_argument("--no-peers", action="store_true", help="leave out gymnax and EnvPool")
    env.add_argument("--no-compile", action="store_true", help="leave out the times of import and first calls")
    env.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to this file")
    env.add_argument("--check", action="store_true", help="exit with status 1 if a target is missed")
    options.add(env, "action")
    env.set_defaults(run=run_env)
    words = "how steps per second change with batch, states and horizon"
    examples = ("dp-ensemble benchmark growth", "dp-ensemble benchmark growth --picture growth.png --json growth.json")
    growth = commands.add_parser("growth", help=words, examples=examples, description=f"Measure and draw {words}.")
    growth.add_argument("--picture", type=Path, default=Path("growth.png"), metavar="FILE", help="the picture, a PNG")
    growth.add_argument("--seconds", type=options.positive, default=0.5, metavar="S", help="time for each point")
    growth.add_argument("--json", type=Path, metavar="FILE", help="also write the points to this file")
    growth.set_defaults(run=run_growth)
    words = "what a step cannot do without, beside what it takes"
    examples = ("dp-ensemble benchmark floor", "dp-ensemble benchmark floor --seconds 2 --json floor.json")
    floor = commands.add_parser("floor", help=words, examples=examples,
                                description=f"Time {words}, in nanoseconds of one thread.")  # fmt: skip
    floor.add_argument("--seconds", type=options.positive, default=0.5, metavar="S", help="time for each part")
    floor.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements to this file")
    floor.set_defaults(run=run_floor)
    words = "the environment's part of the time of a PPO run"
    examples = ("dp-ensemble benchmark ppo", "dp-ensemble benchmark ppo --env dp_ensemble/Spot-v1 --steps 50000")
    ppo = commands.add_parser("ppo", help=words, examples=examples,
                              description=f"Measure {words}, on eight environments, 256 steps a rollout.")  # fmt: skip
    ppo.add_argument("--env", default="dp_ensemble/CampusEvent-v1", metavar="ID", help="the environment")
    ppo.add_argument("--steps", type=options.whole(2048), default=20_000, metavar="N", help="length of the run")
    ppo.add_argument("--json", type=Path, metavar="FILE", help="also write the measurement to this file")
    ppo.set_defaults(run=run_ppo)
    return parser


def _measure(work: Any, tasks: list[Any], shared: Any, titles: list[str]) -> list[Any]:
    """Measure one thing after the other in a process that has one thread."""
    found = []
    with Progress("measuring", len(tasks)) as monitor:
        monitor.advance(0, titles[0] if titles else "")
        with contextlib.closing(in_processes(work, tasks, shared, 1)) as results:
            for _, result in results:
                if isinstance(result, Died):
                    raise ValueError(f"the measurement failed: {result}")
                found.append(result)
                monitor.advance(len(found), titles[len(found)] if len(found) < len(titles) else "")
    return found


def run_solver(args: argparse.Namespace) -> int:
    """Measure the solver's claims; status 1 if one did not hold in this run."""
    if args.json is not None:
        check_writable(args.json)
    titles = list(benchmark.SOLVER)
    claims = _measure(benchmark.measure, titles, args.seconds, titles)
    lines = []
    for c in claims:
        ratio = f"{c.ratio:,.2f}x" if c.ratio < 10 else f"{c.ratio:,.0f}x"
        verdict = "holds" if c.holds else "NOT in this run"
        lines.append([c.claim, f"{c.ours_ms:.3f}", f"{c.other_ms:.2f}", ratio, f"{c.limit} {c.wanted:g}x", verdict])
    headings = ("claim", "ours, ms", "other, ms", "ratio", "claimed", "verdict")
    show_table("Ratios measured in this run", headings, lines, left=("claim", "claimed", "verdict"))
    _write(args.json, [{**asdict(c), "holds": c.holds} for c in claims])
    return 0 if all(c.holds for c in claims) else 1


def run_env(args: argparse.Namespace) -> int:
    """Count the steps of the environments; with --check status 1 if a target was missed."""
    cases = [case for case in benchmark_env.CASES if args.only.lower() in case[0].lower()]
    if not cases:
        known = ", ".join(dict.fromkeys(name for name, *_ in benchmark_env.CASES))
        raise ValueError(f"--only {args.only} fits no environment; they are {known}.")
    check_choice(args.action, "--action", actions.names())
    settings = benchmark_env.SpeedSettings(args.rounds, args.seconds, args.action)
    if args.json is not None:
        check_writable(args.json)
    if not args.no_compile:
        with Progress("first calls, in fresh processes"):
            lines: list[str] = []
            benchmark_env.first_calls(lines.append)
        print("\n".join([*lines, ""]))
    titles = [f"{name}, {size or 'single'}" for name, size, _ in cases]
    rows = _measure(benchmark_env.measure, cases, settings, titles)
    table = [
        [
            row.environment,
            f"{row.sub_environments or 'single'}",
            f"{row.steps_per_second:,.0f}",
            f"{row.speedup:.2f}" if row.steps_per_second != row.one_thread_steps_per_second else "",
            f"{row.cartpole_steps_per_second:,.0f}",
            f"{row.ratio:.2f}",
            "" if row.target is None else f"{row.target:g}",
            "" if row.met else "missed",
        ]
        for row in rows
    ]
    headings = ("environment", "batch", "steps/s", "by threads", "CartPole", "ratio", "target", "")
    show_table("Steps per second beside CartPole-v1", headings, table, left=("environment", ""))
    print(f"by threads: how many times faster on {benchmark_env.available()} threads than on one")
    peers = [] if args.no_peers else _peers(sorted({row.sub_environments or 1 for row in rows}), 5 * args.seconds)
    measured = [{**asdict(row), "ratio": row.ratio, "speedup": row.speedup} for row in rows]
    _write(args.json, {"processors": benchmark_env.available(), "rows": measured, "peers": peers})
    return 1 if args.check and not all(row.met for row in rows) else 0


def _peers(sizes: list[int], seconds: float) -> list[dict[str, Any]]:
    """Measure the peers that are installed; say which are not."""
    names, missing = benchmark_growth.installed_peers()
    for name, reason in missing.items():
        print(f"not compared: {name} ({reason}; pip install {name})")
    tasks = [(name, size) for name in names for size in sizes if size > 1]
    found = _measure(benchmark_growth.peer, tasks, seconds, [f"{name}, {size}" for name, size in tasks])
    if found:
        table = [[f"{name}'s CartPole-v1", f"{size}", f"{rate:,.0f}"] for name, size, rate in found]
        show_table("Steps per second of others", ("environment", "batch", "steps/s"), table, left=("environment",))
    return [{"peer": name, "sub_environments": size, "steps_per_second": rate} for name, size, rate in found]


def run_growth(args: argparse.Namespace) -> int:
    """Measure how the speed changes with the sizes, and draw it."""
    for path in (args.picture, args.json):
        if path is not None:
            check_writable(path)
    cases = benchmark_growth.cases()
    titles = [f"{axis} {value}, {name}" for axis, value, name, _ in cases]
    points = _measure(benchmark_growth.measure, cases, args.seconds, titles)
    _write(args.json, [asdict(point) for point in points])
    print(f"wrote {benchmark_growth.draw(points, args.picture)}")
    return 0


def run_floor(args: argparse.Namespace) -> int:
    """Time the parts of a step."""
    if args.json is not None:
        check_writable(args.json)
    cases = benchmark_floor.cases()
    rows = _measure(benchmark_floor.measure, cases, args.seconds, [f"{name}, {size}" for name, size in cases])
    table = [
        [row.environment, f"{row.sub_environments}"]
        + [f"{part:.1f}" for part in (row.writing, row.arithmetic, row.floor, row.compiled, row.step)]
        for row in rows
    ]
    headings = ("environment", "batch", "writing", "arithmetic", "floor", "compiled", "step")
    show_table("Nanoseconds of one environment's step, on one thread", headings, table, left=("environment",))
    _write(args.json, [{**asdict(row), "floor": row.floor} for row in rows])
    return 0


def run_ppo(args: argparse.Namespace) -> int:
    """Measure the environment's part of a training run."""
    if args.json is not None:
        check_writable(args.json)
    check_choice(args.env, "--env", environment_ids())
    if importlib.util.find_spec("stable_baselines3") is None:
        raise ValueError("Stable-Baselines3 is not installed; pip install stable-baselines3.")
    found = _measure(benchmark_growth.ppo_share, [args.env], args.steps, [f"PPO, {args.steps:,} steps"])[0]
    print(
        f"PPO on {found.environment}: {found.steps:,} steps in {found.seconds:.1f} s, of which the environment takes "
        f"{found.in_environment:.2f} s, {found.share:.1%}"
    )
    _write(args.json, {**asdict(found), "share": found.share})
    return 0


def _write(path: Path | None, content: Any) -> None:
    if path is not None:
        with atomic_write(path) as stream:
            json.dump(content, stream, indent=2)


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    return execute(build_parser, lambda args: int(args.run(args)), argv)
