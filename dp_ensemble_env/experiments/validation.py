#!/usr/bin/env python3
r"""Validate the analytical policies by simulation: theory and environment must tell the same story.

Every closed-form policy is played, through the ``policy`` action mode that represents it exactly, in the three
environments (infinitely many loads, the ensemble's buildings, one load), and three predictions are compared with
what happened:

return          analytical: exact policy evaluation, from the start state of each episode
cost of privacy analytical: `cost_of_privacy`; simulated: return of the optimum less return of the policy, both from
                the same start states and the same seeds
occupancy       analytical: rho_{t+1} = rho_t policy_t, from the same start states
start states    analytical: the model's initial distribution (once for each finite population)

Mean field: no chance is involved, so all start states are played once and the largest difference must stay below
1e-9 of the largest value. Finite populations: each comparison has a p-value. For returns and costs it is that of
Student's t for the mean of (simulated - analytical of the same start state); for the occupancy it is Bernstein's
inequality for each time and state, times their number, which is a bound and no approximation. A comparison fails
when its p-value falls below 1e-6 divided by the number of comparisons (Bonferroni), so that a correct implementation
fails about once in a million runs (the t part is approximate, for episodes in the hundreds or more).

Exit status: 0 when all agree, 1 when simulation and theory disagree, 2 for bad input.

Examples
--------
The built-in campus, then with weaker noise and a report for machines:

    dp-ensemble validate
    dp-ensemble validate --k 200 --episodes 5000 --json validation.json

Your own meter file, before trusting a policy on it:

    dp-ensemble validate --meter meter.csv --unit kWh --stamp start --column sum --date 2024-07-09

On a private release: one drawn here (seeded, so for experiments only), or one made by dp-ensemble privacy:

    dp-ensemble validate --release --k 50 --floor 0.01
    dp-ensemble validate --release private.json
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy import stats

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env._validation import check_count, check_positive
from dp_ensemble_env.cost import cost_of_privacy
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.event import event_for
from dp_ensemble_env.lsmdp import evaluate_policy, occupancy
from dp_ensemble_env.meter import read_meter
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.policies import POLICIES, solve_policy
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism, Release
from dp_ensemble_env.scenarios.campus import campus_event

FloatArray = NDArray[np.float64]
POPULATIONS = ("mean-field", "buildings", "single")
#: Probability that a correct implementation fails any comparison of a run.
FAMILY_LEVEL = 1e-6
#: Largest relative difference in the mean field.
EXACT_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Problem:
    """What is validated: the true model, the release it is seen through if any, and the noise that policies expect."""

    true_model: EnsembleModel
    release: Release | None
    k: float
    samples: int
    seed: int

    @property
    def model(self) -> EnsembleModel:
        """The model that the environments run."""
        return self.true_model if self.release is None else self.true_model.with_default(self.release.matrix)


@dataclass(frozen=True)
class Theory:
    """What the mathematics predicts of one policy; returns and costs by start state."""

    name: str
    policy: FloatArray
    returns: FloatArray
    cost: FloatArray | None
    shares: FloatArray  # (n, T + 1, n): distribution at each time, by start state


@dataclass(frozen=True)
class Runs:
    """What happened in the episodes of one policy and population."""

    start: NDArray[np.int64]
    returns: FloatArray
    shares: FloatArray  # (T + 1, n) summed over episodes, or (episodes, T + 1, n) in the mean field


@dataclass(frozen=True)
class Comparison:
    """One prediction beside its simulation.

    Attributes
    ----------
    analytical, simulated, standard_error : float
        Means over the episodes, dollars per building; for occupancy and start
        states the two shares where they differ most.
    p_value : float or None
        None in the mean field, where `difference` decides.
    difference : float
        Largest difference relative to the largest value in the mean field, else in standard errors.
    agrees : bool or None
        None until all comparisons of a run are known.
    """

    policy: str
    population: str
    quantity: str
    analytical: float
    simulated: float
    standard_error: float
    difference: float
    p_value: float | None
    agrees: bool | None = None


@dataclass
class Report:
    """All comparisons of a run, and the policies that do not apply with the reason."""

    comparisons: list[Comparison] = field(default_factory=list)
    not_applicable: dict[str, str] = field(default_factory=dict)
    threshold: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether simulation and theory agree everywhere."""
        return all(c.agrees for c in self.comparisons)


# ------------------------------------------------------------------ theory
def predict(problem: Problem, name: str) -> Theory:
    """Solve one policy and predict its returns, its cost of privacy and its occupancy from every start state."""
    model = problem.model
    drawn: dict[str, Any] = {"samples": problem.samples, "rng": problem.seed} if name == "average-sampled" else {}
    policy = solve_policy(model, name, problem.k, **drawn)
    cost_to_go = evaluate_policy(policy, model.default, model.utility, model.discomfort_penalty)[0]
    cost = (
        None if name == "standard" else cost_of_privacy(model, problem.k, name, **drawn)[0]
    )  # same draws, same policy
    shares = np.stack([occupancy(policy, start) for start in np.eye(model.n_states)])
    return Theory(name, policy, -cost_to_go - model.utility[0], cost, shares)


# ------------------------------------------------------------------ simulation
def simulate(problem: Problem, theory: Theory, population: str, episodes: int, tick: Callable[[], None]) -> Runs:
    """Play a policy: one episode from every state in the mean field, else `episodes` seeded ones."""
    n = problem.model.n_states
    size = max(1, min(1024, 4_000_000 // n**2))  # the actions of a batch are (size, n, n) numbers
    count = n if population == "mean-field" else episodes
    parts = [play(problem, theory, population, first, min(size, count - first)) for first in range(0, count, size)]
    tick()
    join: Callable[..., FloatArray] = np.concatenate if population == "mean-field" else np.add.reduce  # type: ignore[assignment]
    return Runs(
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.returns for part in parts]),
        join([part.shares for part in parts]),
    )


def play(problem: Problem, theory: Theory, population: str, first: int, count: int) -> Runs:
    """Play episodes `first`, `first + 1`, … side by side; in the mean field these are start states, else seeds."""
    model, exact = problem.model, population == "mean-field"
    env = EnsembleVectorEnv(
        count,
        problem.true_model,
        population,
        "policy",
        autoreset_mode=AutoresetMode.DISABLED,
        release=problem.release,
    )
    options = {"state": np.arange(first, first + count)} if exact else None
    env.reset(seed=problem.seed + first, options=options)
    before = env.occupancy
    start, returns = before.argmax(axis=1), np.zeros(count)
    seen = [before if exact else before.sum(axis=0)]
    for t in range(model.horizon):
        action = env.encode_policy(theory.policy[t], t, dtype=np.float64)
        _, reward, _, _, _ = env.step(np.tile(action, (count, 1, 1)))
        returns += reward
        seen.append(env.occupancy if exact else env.occupancy.sum(axis=0))
    env.close()
    return Runs(start, returns, np.stack(seen, axis=-2))


# ------------------------------------------------------------------ comparison
def compare(problem: Problem, theory: Theory, population: str, runs: Runs, optimum: Runs) -> list[Comparison]:
    """Set the predictions of one policy beside one population's episodes."""
    pairs = [("return", runs.returns, theory.returns[runs.start])]
    if theory.cost is not None:
        pairs.append(("cost of privacy", optimum.returns - runs.returns, theory.cost[runs.start]))
    unit = float(np.abs(theory.returns).max())
    weights = problem.model.initial if population == "mean-field" else np.full(len(runs.start), 1.0 / len(runs.start))
    found = []
    for quantity, simulated, analytical in pairs:
        means = float(weights @ analytical), float(weights @ simulated)
        if population == "mean-field":
            worst = float(np.abs(simulated - analytical).max() / max(unit, 1.0))
            found.append(Comparison(theory.name, population, quantity, *means, 0.0, worst, None))
        else:
            error, deviation, p_value = student(simulated - analytical, unit)
            found.append(Comparison(theory.name, population, quantity, *means, error, deviation, p_value))
    loads = {"mean-field": 0, "buildings": problem.model.buildings, "single": 1}[population]
    return [*found, compare_occupancy(theory, population, runs, loads)]


def student(differences: FloatArray, unit: float) -> tuple[float, float, float]:
    """Return the standard error of the mean difference, the mean in standard errors, and its p-value."""
    count = len(differences)
    mean, error = float(differences.mean()), float(differences.std(ddof=1) / math.sqrt(count))
    if abs(mean) <= EXACT_TOLERANCE * max(unit, 1.0):  # rounding, also where nothing is left to chance
        return error, 0.0, 1.0
    deviation = mean / error if error > 0 else math.copysign(math.inf, mean)
    return error, deviation, float(2.0 * stats.t.sf(abs(deviation), count - 1))


def compare_occupancy(theory: Theory, population: str, runs: Runs, loads: int) -> Comparison:
    """Compare the shares of all times and states; `loads` = 0 is the mean field."""
    if loads == 0:
        gap = np.abs(runs.shares - theory.shares)
        i, t, a = np.unravel_index(int(np.argmax(gap)), gap.shape)
        shown = float(theory.shares[i, t, a]), float(runs.shares[i, t, a])
        return Comparison(theory.name, population, "occupancy", *shown, 0.0, float(gap.max()), None)
    counts = np.bincount(runs.start, minlength=len(theory.shares)).astype(float)
    expected = np.einsum("b,bta->ta", counts, theory.shares) * loads
    variance = np.einsum("b,bta->ta", counts, theory.shares * (1.0 - theory.shares)) * loads
    found = bernstein(runs.shares * loads, expected, variance, len(runs.start) * loads)
    return Comparison(theory.name, population, "occupancy", *found)


def compare_starts(initial: FloatArray, population: str, runs: Runs) -> Comparison:
    """Compare the start states that were drawn with the initial distribution."""
    count = len(runs.start)
    drawn = np.bincount(runs.start, minlength=len(initial)).astype(float)
    found = bernstein(drawn, count * initial, count * initial * (1.0 - initial), count)
    return Comparison("any", population, "start states", *found)


def bernstein(
    observed: FloatArray, expected: FloatArray, variance: FloatArray, total: int
) -> tuple[float, float, float, float, float]:
    """Find the count that is least likely; each is a sum of `total` independent indicators.

    Returns the expected and the observed share, its standard error, the
    deviation in standard errors, and the p-value of the whole array.
    """
    excess = np.maximum(np.abs(observed - expected) - EXACT_TOLERANCE * total, 0.0)  # less rounding
    # P(|S - E S| >= x) <= 2 exp(-x^2 / (2 V + 2 x / 3))
    with np.errstate(invalid="ignore"):
        exponent = np.where(excess > 0, excess**2 / (2.0 * variance + 2.0 / 3.0 * excess), 0.0)
    worst = np.unravel_index(int(np.argmax(exponent)), exponent.shape)
    p_value = min(1.0, 2.0 * exponent.size * math.exp(-float(exponent[worst])))  # union bound
    error, gap = math.sqrt(float(variance[worst])), float(observed[worst] - expected[worst])
    deviation = gap / error if error > 0 else math.copysign(math.inf, gap) if excess[worst] > 0 else 0.0
    return float(expected[worst]) / total, float(observed[worst]) / total, error / total, deviation, p_value


def judge(report: Report) -> None:
    """Fill in the verdicts: the threshold depends on how many comparisons there are."""
    chance = sum(c.p_value is not None for c in report.comparisons)
    report.threshold = FAMILY_LEVEL / max(chance, 1)
    judged = []
    for c in report.comparisons:  # written so that NaN disagrees
        agrees = c.difference <= EXACT_TOLERANCE if c.p_value is None else c.p_value >= report.threshold
        judged.append(replace(c, agrees=bool(agrees and np.isfinite(c.simulated) and np.isfinite(c.analytical))))
    report.comparisons = judged


def validate(problem: Problem, episodes: int, names: tuple[str, ...] = POLICIES) -> Report:
    """Solve, simulate and compare every policy in every population."""
    report = Report()
    optimum: dict[str, Runs] = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("simulating", total=len(names) * len(POPULATIONS))
        for name in ("standard", *(name for name in names if name != "standard")):
            try:
                theory = predict(problem, name)
            except ValueError as error:
                if name != "average-expansion":  # the one policy that does not exist for every k
                    raise
                report.not_applicable[name] = str(error)
                progress.advance(task, len(POPULATIONS))
                continue
            for population in POPULATIONS:
                runs = simulate(problem, theory, population, episodes, lambda: progress.advance(task))
                if population not in optimum:
                    optimum[population] = runs
                    if population != "mean-field":
                        report.comparisons.append(compare_starts(problem.model.initial, population, runs))
                report.comparisons += compare(problem, theory, population, runs, optimum[population])
    judge(report)
    return report


# ------------------------------------------------------------------ output
def show(console: Console, problem: Problem, report: Report, episodes: int) -> None:
    """Print the table and the verdict."""
    seen = "true dynamics" if problem.release is None else f"release with k = {problem.release.k:g}"
    table = Table(title=f"Simulation beside theory, {seen}, policies for k = {problem.k:g}")
    for name in ("policy", "population", "quantity"):
        table.add_column(name)
    for name in ("analytical", "simulated", "standard\nerror", "difference", "p-value"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for c in report.comparisons:
        digits = ".4f" if c.quantity in ("occupancy", "start states") else ".3f"
        table.add_row(
            c.policy,
            c.population,
            c.quantity,
            f"{c.analytical:{digits}}",
            f"{c.simulated:{digits}}",
            "exact" if c.p_value is None else f"{c.standard_error:{digits}}",
            f"{c.difference:.1e}" if c.p_value is None else f"{c.difference:+.2f} s.e.",
            "-" if c.p_value is None else f"{c.p_value:.2g}",
            "agrees" if c.agrees else "DISAGREES",
            style=None if c.agrees else "bold red",
        )
    for name in report.not_applicable:
        table.add_row(name, "-", "-", "-", "-", "-", "-", "-", "not applicable")
    console.print(table)
    lines = [f"{name} is not applicable: {reason}" for name, reason in report.not_applicable.items()]
    wrong = sum(not c.agrees for c in report.comparisons)
    lines.append(
        f"{episodes:,} episodes each. Returns and costs in dollars per building; occupancy: the share, among all times "
        f"and levels, that differs most. Disagreement: a relative difference above {EXACT_TOLERANCE:g} in the mean "
        f"field, a p-value below {report.threshold:.2g} elsewhere (all together {FAMILY_LEVEL:g})."
    )
    total = len(report.comparisons)
    lines.append(
        f"Simulation and theory agree in all {total} comparisons."
        if wrong == 0
        else f"Simulation and theory DISAGREE in {wrong} of {total} comparisons: do not trust these policies here."
    )
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def as_json(problem: Problem, report: Report, episodes: int) -> str:
    """Write the whole report for machines; numbers that are not finite become null."""

    def plain(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    content = {
        "agrees": report.agrees,
        "k": problem.k,
        "release": None if problem.release is None else {"k": problem.release.k, "floor": problem.release.floor},
        "episodes": episodes,
        "seed": problem.seed,
        "family_level": FAMILY_LEVEL,
        "p_value_threshold": report.threshold,
        "mean_field_tolerance": EXACT_TOLERANCE,
        "comparisons": [{key: plain(value) for key, value in asdict(c).items()} for c in report.comparisons],
        "not_applicable": report.not_applicable,
    }
    return json.dumps(content, indent=2) + "\n"


# ------------------------------------------------------------------ input
def load_model(args: argparse.Namespace) -> EnsembleModel:
    """Build the model of the campus, or of a meter file."""
    fields: dict[str, Any] = {
        name: value for name in ("date", "start", "end", "incentive") if (value := getattr(args, name)) is not None
    }
    if args.price is not None:
        fields["tariff"] = args.price
    if args.meter is None:
        return campus_event(n_states=args.states, **fields)
    series = read_meter(args.meter, unit=args.unit, stamp=args.stamp, column=args.column, timezone=args.timezone)
    return EnsembleModel.from_series(
        series, event_for(series, **fields), profile=args.profile, n_states=args.states, buildings=args.buildings
    )


def load_problem(args: argparse.Namespace) -> Problem:
    """Check the arguments and build what is validated."""
    seed, samples = check_count(args.seed, "--seed", 0), check_count(args.samples, "--samples")
    k = None if args.k is None else check_positive(args.k, "--k", remedy="pass --k 50 for example")
    model = load_model(args)
    release = None
    if args.release == "draw":
        release = DirichletMechanism(k or 50.0, args.floor).release(model.default, seed)
    elif args.release is not None:
        release = Release.load(args.release)
        if release.log_matrix.shape[-1] != model.n_states:
            raise ValueError(
                f"the release {args.release} has {release.log_matrix.shape[-1]} levels and the model "
                f"{model.n_states}; pass the data and --states it was made from."
            )
    elif args.floor != 0.0:
        raise ValueError("--floor says how a private matrix is drawn; add --release.")
    k = k or (50.0 if release is None else release.k)
    return Problem(model, release, k, samples, seed)


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="validate.py", description=__doc__, formatter_class=raw)
    parser.add_argument("--k", type=float, help="noise that the policies expect (default 50, or the release's)")
    parser.add_argument("--episodes", type=int, default=2000, help="episodes of each finite population (default 2000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of episodes, draws and release (default 0)")
    parser.add_argument("--samples", type=int, default=1000, help="draws of the sampled average (default 1000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as well")
    parser.add_argument(
        "--release",
        nargs="?",
        const="draw",
        metavar="FILE",
        help="validate on a private release: one drawn here with --k and --floor, or a saved one",
    )
    parser.add_argument("--floor", type=float, default=0.0, help="least entry before the draw of --release (default 0)")
    data = parser.add_argument_group("data and event")
    data.add_argument("--meter", metavar="FILE", help="meter file; by default the built-in synthetic campus")
    data.add_argument("--unit", help="unit of the meter file, if it does not say")
    data.add_argument("--stamp", choices=("start", "end"), help="which end of an interval its stamps mark")
    data.add_argument("--column", help="column of the meter file, or 'sum'")
    data.add_argument("--timezone", help="such as America/New_York, for the clock changes")
    data.add_argument("--profile", choices=("building", "aggregate"), default="building", help="what was metered")
    data.add_argument("--states", type=int, default=20, help="power levels (default 20)")
    data.add_argument("--buildings", type=int, default=100, help="buildings of the ensemble (default 100)")
    data.add_argument("--date", help="day of the event (default 2018-07-02)")
    data.add_argument("--start", help="its first instant (default 11:00)")
    data.add_argument("--end", help="its last instant (default 15:00)")
    data.add_argument("--incentive", type=float, help="dollars per kWh during the event (default 1)")
    data.add_argument("--price", type=float, help="energy price in dollars per kWh (default 0.137)")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Validate; bad input gives one sentence on stderr and the status 2."""
    args = build_parser().parse_args(argv)
    try:
        episodes = check_count(args.episodes, "--episodes", 100, 10_000_000)
        problem = load_problem(args)
        report = validate(problem, episodes)
        show(Console(width=None if sys.stdout.isatty() else 132), problem, report, episodes)
        if args.json is not None:
            with atomic_write(args.json) as stream:
                stream.write(as_json(problem, report, episodes))
    except BrokenPipeError:
        return 1
    except (ValueError, OSError, ImportError) as error:
        print(f"validate.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0 if report.agrees else 1


if __name__ == "__main__":
    raise SystemExit(main())
