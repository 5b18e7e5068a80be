"""Write every number that a change of the code must keep, and compare two such files.

``python scripts/golden.py write FILE.json [--only SECTION ...]`` takes about five minutes, and ``python
scripts/golden.py diff scripts/golden.json FILE.json`` prints what changed. A file has a dictionary for each class:

exact: equal to 1e-6, relative or absolute
bits: digests and words, equal
searched: found by a numerical search, equal to 0.01 (scores are of 0 ... 100)
simulated: a mean and its standard error, equal within three standard errors of the difference
chance: one number of a simulation, for information

Only a change of something exact, or of bits, makes the exit status 1. What is used of the package stands first.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.privacy import Fleet, PrivacyLedger, mechanism
from dp_ensemble_env.reporting.score import start_values

Numbers = Iterator[tuple[str, str, Any]]  # class, key, value
ACTIONS = ("price", "tilt", "policy", "discrete")
POPULATIONS: tuple[str | int, ...] = ("mean-field", "single", 30)
DIRICHLET = "dirichlet:k=50,floor=0.05"
# With epsilon = 1 and 300 participants many releases are the public guess; with 100 the noise shows.
FLEET = tuple(f"{name}:epsilon={epsilon}" for name in ("gaussian", "laplace", "posterior") for epsilon in (1, 100))
VALIDATED = ("campus-event", "spot", "feeder")


# ------------------------------------------------------------------ what touches the package's interface
def returns_of(scenario: str, split: str, instance: int) -> tuple[float, float]:
    """Return the uncontrolled and the optimal return over the start distribution."""
    return start_values(scenarios.make(scenario, instance=instance, split=split))


def planner_scores(scenario: str) -> dict[str, float]:
    """Score all controllers that plan on the first training instance, exactly."""
    env = EnsembleEnv(scenario, action="tilt")
    names = {name: name for name in ("uncontrolled", "best-price", "myopic", "standard")}
    names["public-guess"] = "without-data"
    return {name: evaluate(make_agent(agent, env), env).score for name, agent in names.items()}


def paper_env(**settings: Any) -> Any:
    """Make the paper's environment: campus event, mean field, tilts, dollars, a Dirichlet release."""
    settings = {"release_seed": 0, "ledger": PrivacyLedger(), **settings}
    return gymnasium.make("dp_ensemble/Paper-v1", **settings).unwrapped


def fleet_of(scenario: str) -> Any:
    """Simulate participants."""
    if scenario == "campus-event":
        return Fleet.simulate(scenarios.make(scenario), participants=300, seed=0)
    return scenarios.participants(scenario, 300, days=30, seed=0)


def command_json(file: str, *words: str) -> Any:
    """Run `dp-ensemble` in a process of its own, and read a file that it writes; FOLDER stands for where."""
    with tempfile.TemporaryDirectory() as folder:
        filled = [word.replace("FOLDER", folder) for word in words]
        done = subprocess.run([sys.executable, "-m", "dp_ensemble_env", *filled], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"dp-ensemble {' '.join(words)}: {done.stdout}{done.stderr}")
        return json.loads((Path(folder) / file).read_text(encoding="utf-8"))


# ------------------------------------------------------------------ the sections
def optimum_numbers() -> Numbers:
    """Give the returns of instances of all scenarios."""
    for name in scenarios.names():
        for split, instance in (("train", 0), ("train", 1), ("test", 0), ("test", 1)):
            for what, value in zip(("uncontrolled", "optimal"), returns_of(name, split, instance), strict=True):
                yield "exact", f"optimum/{name}/{split}{instance}/{what}", value


def planner_numbers() -> Numbers:
    """Give the scores of planners and of simple controllers on the first training instance."""
    for name in scenarios.names():
        for planner, value in planner_scores(name).items():
            yield "searched" if planner == "best-price" else "exact", f"planner/{name}/{planner}", value


def rollout_numbers() -> Numbers:
    """Give episodes with random actions."""
    for name, action, population, seed in itertools.product(scenarios.names(), ACTIONS, POPULATIONS, (0, 1)):
        for what, value in _random_episode(EnsembleEnv(name, population, action, reward="dollars"), seed).items():
            yield "exact", f"rollout/{name}/{action}/{population}/dollars/seed{seed}/{what}", value


def _random_episode(env: Any, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, 7])
    observation, info = env.reset(seed=seed)
    numbers: dict[str, Any] = {"first": _summary(observation), "optimal_return": float(info["optimal_return"])}
    sums, done = dict.fromkeys(("utility", "discomfort", "power_kw", "reward"), 0.0), False
    while not done:
        observation, reward, done, _, info = env.step(_random_action(env.action_space, rng))
        for what, value in {**info, "reward": reward}.items():
            if what in sums:
                sums[what] += float(value)
    return {**numbers, **sums, "last": _summary(observation)}


def _random_action(space: Any, rng: np.random.Generator) -> Any:
    return int(rng.integers(space.n)) if hasattr(space, "n") else rng.uniform(space.low, space.high).astype("f4")


def _summary(observation: Any) -> list[float]:
    """Keep a short observation; of a long one its sum, a weighted sum and the end."""
    values = np.asarray(observation, np.float64)
    if len(values) > 16:
        values = np.array([values.sum(), np.cos(np.arange(len(values))) @ values, *values[-6:]])
    return [round(float(value), 7) for value in values]


def paper_numbers() -> Numbers:
    """Give the paper's environment: optimal policy and random tilts, one release or one for each episode."""
    for seed in (0, 1, 2):
        yield from _paper_episode(paper_env(), "optimal", seed, f"paper/seed{seed}/optimal")
        yield from _paper_episode(paper_env(), "random", seed, f"paper/seed{seed}/random")
    env = paper_env(redraw="episode")
    for episode in range(3):
        yield from _paper_episode(env, "optimal", None if episode else 0, f"paper/redraw/episode{episode}")


def _paper_episode(env: Any, how: str, seed: int | None, key: str) -> Numbers:
    rng, place = np.random.default_rng([seed or 0, 7]), np.arange(1.0, env.observation_space.shape[0] + 1)
    observation, info = env.reset(seed=seed)
    yield "bits", f"{key}/release", _digest(env.unwrapped.release)
    yield "exact", f"{key}/optimal_return", float(info["optimal_return"])
    rewards: list[float] = []
    sums, done = [float(place @ observation)], False  # weighted: a plain sum does not see where the loads are
    while not done:
        best = env.encode_policy(env.optimal_policy[len(rewards)])
        action = best if how == "optimal" else _random_action(env.action_space, rng)
        observation, reward, done, _, _ = env.step(action)
        rewards.append(float(reward))
        sums.append(float(place @ observation))
    yield "exact", f"{key}/rewards", rewards
    yield "exact", f"{key}/observations", sums


def release_numbers() -> Numbers:
    """Give digests of seeded releases."""
    for name, spec in itertools.product(scenarios.names(), (DIRICHLET, "public", *FLEET)):
        made, model = mechanism(spec), scenarios.make(name)
        data = fleet_of(name) if spec in FLEET else model.default
        drawn = PrivacyLedger().release(made, data, rng=0, **made.terms_of(model))
        yield "bits", f"release/{name}/{spec}/ledger", _digest(drawn)
        if spec not in FLEET:
            env = EnsembleEnv(name, privacy=spec, release_seed=0, ledger=PrivacyLedger())
            yield "bits", f"release/{name}/{spec}/environment", _digest(env.release)


def _digest(release: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(release.log_matrix).tobytes()).hexdigest()


def reproduce_numbers() -> Numbers:
    """Give what `dp-ensemble reproduce` writes about the campus: claims, verdicts and tables."""
    content = command_json("reproduction.json", "reproduce", "--output", "FOLDER")
    for claim in content["claims"]:
        key = f"reproduce/claim/{claim['id']}/{claim['data']}"
        yield "bits", f"{key}/verdict", f"{claim['verdict']}; {claim['verdict on the claim']}"
        yield "exact", f"{key}/ours", [float(number) for number in re.findall(r"\d+\.?\d*(?:e-?\d+)?", claim["ours"])]
    for what, value in content["theorem2_search"].items():
        yield "exact", f"reproduce/theorem2/{what}", value
    for data, part in content["data"].items():
        for title, rows in part["tables"].items():
            for number, row in enumerate(rows):
                yield from _row_numbers(f"reproduce/{data}/{title}/{number}", row)


def _row_numbers(key: str, row: dict[str, Any]) -> Numbers:
    """Class the columns of a row of a table: one with a standard error beside it is simulated."""
    label = " ".join(str(row.get(what, "")) for what in ("controller", "method")).strip()
    chance = any(word in label for word in ("learned", "sampled", "mean of"))  # no error is given: half a per cent
    for what, value in row.items():
        if isinstance(value, str) or value is None or "standard error" in what:
            continue
        error = row.get(f"{what}, standard error", 0.005 * abs(value) if chance and what != "k" else None)
        if what.startswith("Monte Carlo"):
            error = next(row[other] for other in row if other.startswith("standard error"))
        kind = "exact" if error is None else "chance" if what.startswith("gap") else "simulated"
        yield kind, f"{key}/{label}/{what}", [value, error] if kind == "simulated" else value


def validate_numbers() -> Numbers:
    """Give what `dp-ensemble validate` writes: theory exact, simulation with its standard error."""
    for name in VALIDATED:
        report = command_json("report.json", "validate", "--scenario", name, "--json", "FOLDER/report.json")
        yield "bits", f"validate/{name}/not_applicable", " ".join(sorted(report["not_applicable"]))
        for row in report["comparisons"]:
            key, error = f"validate/{name}/{row['policy']}/{row['population']}/{row['quantity']}", row["standard_error"]
            yield "bits", f"{key}/agrees", str(row["agrees"])
            # Of many entries the report shows the one that fits worst, which is another one in another simulation.
            worst = error > 0 and row["quantity"] not in ("return", "expected return", "cost of privacy")
            kind = "chance" if worst else "simulated" if error > 0 else "exact"
            yield "chance" if worst else "exact", f"{key}/analytical", row["analytical"]
            yield kind, f"{key}/simulated", [row["simulated"], error] if kind == "simulated" else row["simulated"]


_ALL = (optimum_numbers, planner_numbers, rollout_numbers, paper_numbers, release_numbers, reproduce_numbers)
SECTIONS: dict[str, Callable[[], Numbers]] = {
    section.__name__.removesuffix("_numbers"): section for section in (*_ALL, validate_numbers)
}


# ------------------------------------------------------------------ the two commands
def write(path: Path, only: list[str]) -> None:
    """Compute the numbers and write them, sorted."""
    numbers: dict[str, dict[str, Any]] = {kind: {} for kind in ("exact", "bits", "searched", "simulated", "chance")}
    for section in only or SECTIONS:
        print(f"{section} ...", file=sys.stderr, flush=True)
        for kind, key, value in SECTIONS[section]():
            assert not any(key in keys for keys in numbers.values()), f"two numbers are called {key}"
            numbers[kind][key] = None if isinstance(value, float) and math.isnan(value) else value
    path.write_text(json.dumps(numbers, indent=0, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{sum(map(len, numbers.values()))} entries, {path.stat().st_size / 1e3:.0f} kB: {path}", file=sys.stderr)


def same(kind: str, before: Any, after: Any) -> bool:
    """Tell whether two values of a class are equal as far as the class asks."""
    if kind == "bits" or before is None or after is None or np.shape(before) != np.shape(after):
        return bool(before == after)
    if kind == "simulated":
        return bool(abs(before[0] - after[0]) <= 3 * math.hypot(before[1], after[1]) + 1e-9)
    relative, absolute = (0.0, 0.01) if kind == "searched" else (1e-6, 1e-6)
    return bool(np.allclose(before, after, rtol=relative, atol=absolute))


def diff(before: Path, after: Path) -> int:
    """Print what changed, and a summary by section and class; return 1 if something exact changed."""
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    written = [{key.split("/")[0] for keys in one.values() for key in keys} for one in (old, new)]
    tally: dict[tuple[str, str], Counter[str]] = {}
    for kind in old:
        first, second = old.get(kind, {}), new.get(kind, {})
        for key in sorted({*first, *second}):
            if not all(key.split("/")[0] in sections for sections in written):
                continue  # a file may hold some sections only
            one, two = first.get(key, "missing"), second.get(key, "missing")
            equal = key in first and key in second and same(kind, one, two)
            what = "same" if equal else "changed" if "missing" not in (one, two) else "only in one file"
            tally.setdefault((key.split("/")[0], kind), Counter())[what] += 1
            if not equal:
                print(f"{kind:9} {key}: {one} -> {two}")
    for (section, kind), count in tally.items():
        print(f"{section:10} {kind:9} " + ", ".join(f"{number} {what}" for what, number in count.items()))
    return int(any(count["changed"] for (_, kind), count in tally.items() if kind in ("exact", "bits")))


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    writing, comparing = commands.add_parser("write"), commands.add_parser("diff")
    writing.add_argument("file", type=Path)
    writing.add_argument("--only", nargs="+", choices=SECTIONS, default=[])
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.command == "diff":
        return diff(args.before, args.after)
    if os.environ.get("OMP_NUM_THREADS") != "1":  # one thread: the same rounding everywhere, and no waiting threads
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    warnings.simplefilter("ignore")
    write(args.file, args.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
