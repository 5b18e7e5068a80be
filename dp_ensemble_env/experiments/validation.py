"""Validate the analytical policies by simulation: theory and environment must tell the same story.

Every closed-form policy is played, through the ``policy`` action mode that represents it exactly, in the three
environments (infinitely many loads, the ensemble's buildings, one load), and three predictions are compared with
what happened::

    return          analytical: exact policy evaluation, from the start state of each episode
    cost of privacy analytical: `cost_of_privacy`; simulated: return of the optimum less return of the policy, both
                    from the same start states and the same seeds
    occupancy       analytical: rho_{t+1} = rho_t policy_t, from the same start states
    start states    analytical: the model's initial distribution (once for each finite population)

Mean field: no chance is involved, so all start states are played once and the largest difference must stay below
1e-9 of the largest value. Finite populations: each comparison has a p-value. For returns and costs it is that of
Student's t for the mean of (simulated - analytical of the same start state); for the occupancy it is Bernstein's
inequality for each time and state, times their number, which is a bound and no approximation. A comparison fails
when its p-value falls below 1e-6 divided by the number of comparisons (Bonferroni), so that a correct implementation
fails about once in a million runs (the t part is approximate, for episodes in the hundreds or more).

Models with nature, a context, a coupling or a spread start are validated by `validation_general`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from scipy import stats

from dp_ensemble_env.control.cost import cost_of_privacy
from dp_ensemble_env.control.lsmdp import evaluate_policy, occupancy
from dp_ensemble_env.control.policies import POLICIES, solve_policy
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.console import Monitor, Silent
from dp_ensemble_env.tools.validation import check_count, check_positive

FloatArray = NDArray[np.float64]
#: Names of the populations; "loads" are as many as the model has.
POPULATIONS = ("mean-field", "loads", "single")
#: Probability that a correct implementation fails any comparison of a run.
FAMILY_LEVEL = 1e-6
#: Largest relative difference in the mean field.
EXACT_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Problem:
    """What is validated: the true model, the release it is seen through if any, the noise that policies expect.

    `samples` are the draws of the sampled average, `episodes` those of each finite population.
    """

    true_model: EnsembleModel
    release: Release | None = None
    k: float = 50.0
    samples: int = 1000
    seed: int = 0
    episodes: int = 2000

    def __post_init__(self) -> None:
        check_positive(self.k, "k")
        check_count(self.samples, "samples")
        check_count(self.seed, "seed", 0)
        check_count(self.episodes, "episodes", 100, 10_000_000)
        if self.release is not None and self.release.matrix.shape[-1] != self.true_model.n_decisions:
            raise ValueError(
                f"the release has {self.release.matrix.shape[-1]} levels and the model {self.true_model.n_decisions}; "
                "build the model from the data, and with the n_states, that it was made from."
            )

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
def loads_of(model: EnsembleModel, population: str) -> int:
    """Return the number of loads of a population, 0 for the mean field."""
    return {"mean-field": 0, "loads": model.buildings, "single": 1}[population]


def simulate(problem: Problem, theory: Theory, population: str) -> Runs:
    """Play a policy: one episode from every state in the mean field, else seeded ones."""
    n = problem.model.n_states
    size = max(1, min(1024, 4_000_000 // n**2))  # the actions of a batch are (size, n, n) numbers
    count = n if population == "mean-field" else problem.episodes
    parts = [play(problem, theory, population, first, min(size, count - first)) for first in range(0, count, size)]
    join: Callable[..., FloatArray] = np.concatenate if population == "mean-field" else np.add.reduce
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
        loads_of(model, population) or "mean-field",
        "policy",
        autoreset_mode=AutoresetMode.DISABLED,
        privacy=problem.release,
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
    loads = loads_of(problem.model, population)
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


def validate(problem: Problem, names: tuple[str, ...] = POLICIES, monitor: Monitor | None = None) -> Report:
    """Solve, simulate and compare every policy in every population."""
    report, monitor = Report(), monitor or Silent()
    if not problem.model.is_plain or problem.model.spread_start:
        from dp_ensemble_env.experiments.validation_general import validate_general

        return validate_general(problem, names, monitor)
    optimum: dict[str, Runs] = {}
    monitor.stage("simulating", len(names) * len(POPULATIONS))
    done = 0
    for name in ("standard", *(name for name in names if name != "standard")):
        try:
            theory = predict(problem, name)
        except ValueError as error:
            if name != "average-expansion":  # the one policy that does not exist for every k
                raise
            report.not_applicable[name] = str(error)
            done += len(POPULATIONS)
            continue
        for population in POPULATIONS:
            runs = simulate(problem, theory, population)
            if population not in optimum:
                optimum[population] = runs
                if population != "mean-field":
                    report.comparisons.append(compare_starts(problem.model.initial, population, runs))
            report.comparisons += compare(problem, theory, population, runs, optimum[population])
            done += 1
            monitor.advance(done, f"{name}, {population}")
    judge(report)
    return report


# ------------------------------------------------------------------ output
def _settings(release: Release) -> dict[str, Any]:
    event: Any = release.event
    return {"k": event.k, "floor": event.floor} if event.type == "dirichlet" else {"mechanism": event.type}


def as_json(problem: Problem, report: Report) -> str:
    """Write the whole report for machines; numbers that are not finite become null."""

    def plain(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    content = {
        "agrees": report.agrees,
        "k": problem.k,
        "release": None if problem.release is None else _settings(problem.release),
        "episodes": problem.episodes,
        "seed": problem.seed,
        "family_level": FAMILY_LEVEL,
        "p_value_threshold": report.threshold,
        "mean_field_tolerance": EXACT_TOLERANCE,
        "comparisons": [{key: plain(value) for key, value in asdict(c).items()} for c in report.comparisons],
        "not_applicable": report.not_applicable,
    }
    return json.dumps(content, indent=2) + "\n"
