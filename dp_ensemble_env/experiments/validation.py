"""Validate the analytical policies by simulation: theory and environment must tell the same story.

Every closed-form policy is played, through the ``policy`` action mode that represents it exactly, in the three
environments (infinitely many loads, the ensemble's loads, one load), and its predictions are compared with what
happened::

    return          analytical: expected utility less discomfort along the contexts that came, from the shares in which
                    the loads began; with a coupling and finitely many loads before its charge, which then depends on
                    their luck
    expected return analytical: exact policy evaluation over all contexts and starts
    cost of privacy analytical: `cost_of_privacy` from the start of an episode; simulated: return of the optimum less
                    return of the policy, both with the same seeds. Not for coupled models
    occupancy       analytical: the expected shares, which follow the contexts that came
    start states    analytical: the model's initial distribution (once for each population that draws it)
    contexts        analytical: the context's own distribution at every time (once for each population)

Where nothing is left to chance, every start is played once, and the largest difference must stay below 1e-9 of the
largest value. Elsewhere each comparison has a p-value: for returns and costs that of Student's t for the mean of
(simulated - analytical); for shares Bernstein's inequality for each time and state, times their number. A comparison
fails when its p-value falls below 1e-6 divided by the number of comparisons (Bonferroni): a one-in-a-million
false-alarm rate.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from scipy import stats

from dp_ensemble_env.control.cost import cost_of_privacy
from dp_ensemble_env.control.policies import POLICIES, solve_policy
from dp_ensemble_env.control.returns import path_returns, policy_return
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.tools.console import Monitor
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

    `samples` are the draws of the sampled average, `episodes` those that are played where there is chance.
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
                "build the model from the data, and with the number of levels, that it was made from."
            )

    @property
    def model(self) -> EnsembleModel:
        """The model that the environments run."""
        return self.true_model if self.release is None else self.true_model.public(self.release)


class Plan(NamedTuple):
    """A policy (T, c, n, m), its expected return, and its cost of privacy (c, n) by start; None if there is none."""

    name: str
    policy: FloatArray
    expected: float
    cost: FloatArray | None


class Played(NamedTuple):
    """What happened in each episode: contexts (episodes, T + 1), shares (episodes, T + 1, n), returns and charges."""

    contexts: NDArray[np.int64]
    shares: FloatArray
    returns: FloatArray
    charged: FloatArray


@dataclass(frozen=True)
class Comparison:
    """One prediction beside its simulation."""

    policy: str
    population: str
    quantity: str
    #: Means over the episodes, dollars per load; of occupancy, start states and contexts the shares that differ most.
    analytical: float
    simulated: float
    standard_error: float
    difference: float  #: relative to the largest value where nothing is left to chance, else in standard errors
    p_value: float | None  #: None where nothing is left to chance, and `difference` decides
    agrees: bool | None = None  #: None until all comparisons of a run are known


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


def validate(problem: Problem, names: tuple[str, ...] = POLICIES, monitor: Monitor | None = None) -> Report:
    """Solve, simulate and compare every policy in every population."""
    report, monitor = Report(), monitor or Monitor()
    optimum: dict[str, FloatArray] = {}
    monitor.stage("simulating", len(names) * len(POPULATIONS))
    for number, name in enumerate(("standard", *(name for name in names if name != "standard"))):
        try:
            plan = make_plan(problem, name)
        except ValueError as error:
            # On a plain model only the expansion does not exist for every k.
            if name == "standard" or (problem.model.is_plain and name != "average-expansion"):
                raise
            report.not_applicable[name] = str(error)
            continue
        for done, population in enumerate(POPULATIONS, 1):
            played = play_all(problem, plan, population)
            if population not in optimum:
                optimum[population] = played.returns
                report.comparisons += compare_draws(problem.model, population, played)
            report.comparisons += compare(problem.model, plan, population, played, optimum[population])
            monitor.advance(number * len(POPULATIONS) + done, f"{name}, {population}")
    judge(report)
    return report


def make_plan(problem: Problem, name: str) -> Plan:
    """Solve a policy and predict what it earns."""
    model = problem.model
    drawn: dict[str, Any] = {"samples": problem.samples, "rng": problem.seed} if name == "average-sampled" else {}
    policy = solve_policy(model, name, problem.k, **drawn)
    cost = None
    if name != "standard" and model.coupling is None:  # same draws, same policy
        cost = cost_of_privacy(model, problem.k, name, **drawn)[0].reshape(-1, model.n_states)
    return Plan(name, policy.reshape(model.tables().behaviour.shape), policy_return(model, policy), cost)


# ------------------------------------------------------------------ simulation
def loads_of(model: EnsembleModel, population: str) -> int:
    """Return the number of loads of a population, 0 for the mean field."""
    return {"mean-field": 0, "loads": model.loads, "single": 1}[population]


def chance(model: EnsembleModel, population: str) -> bool:
    """Whether episodes differ by anything but the state that all loads start in."""
    return population != "mean-field" or model.context is not None


def play_all(problem: Problem, plan: Plan, population: str) -> Played:
    """Play seeded episodes; where there is no chance, one from every start state, or from the one spread start."""
    model = problem.model
    count = problem.episodes if chance(model, population) else 1 if model.spread_start else model.n_states
    size = max(1, min(1024, 4_000_000 // (model.n_states * model.n_decisions)))  # of a batch, whose actions are kept
    parts = [play(problem, plan, population, first, min(size, count - first)) for first in range(0, count, size)]
    return Played(*map(np.concatenate, zip(*parts, strict=True)))


def play(problem: Problem, plan: Plan, population: str, first: int, count: int) -> Played:
    """Play episodes `first`, `first + 1`, … side by side: seeds, or start states where there is no chance."""
    model = problem.model
    about: dict[str, Any] = {"reward": "dollars", "privacy": problem.release, "autoreset_mode": AutoresetMode.DISABLED}
    env = EnsembleVectorEnv(count, problem.true_model, loads_of(model, population) or "mean-field", "policy", **about)
    every = not chance(model, population) and not model.spread_start
    env.reset(seed=problem.seed + first, options={"state": np.arange(first, first + count)} if every else None)
    contexts, shares = [np.array(env.context)], [np.array(env.occupancy)]
    returns, charged = np.zeros(count), np.zeros(count)
    for t in range(model.horizon):
        _, rewards, _, _, _ = env.step(plan.policy[t][contexts[-1]])
        returns += rewards
        contexts.append(np.array(env.context))
        shares.append(np.array(env.occupancy))
        if model.coupling is not None:
            charged += model.coupling.cost(t + 1, shares[-1] @ model.power_kw)
    env.close()
    return Played(np.stack(contexts, axis=1), np.stack(shares, axis=1), returns, charged)


# ------------------------------------------------------------------ comparison
def compare(model: EnsembleModel, plan: Plan, population: str, played: Played, optimum: FloatArray) -> list[Comparison]:
    """Compare the predictions for one policy with one population's episodes."""
    expected = np.empty_like(played.shares)
    returns = path_returns(model, plan.policy, played.contexts, played.shares[:, 0], expected)
    charges = 0.0 if model.coupling is None else model.coupling.total(expected @ model.power_kw)
    unit = max(float(np.abs(returns + charges).max()), 1.0)
    # Where nothing is left to chance, each start state was played once.
    every = not chance(model, population) and len(returns) > 1
    weights = model.initial if every else np.full(len(returns), 1.0 / len(returns))
    comparisons = []

    def add(quantity: str, simulated: FloatArray, analytical: Any, paired: bool = True) -> None:
        """Compare episode by episode, or (not `paired`) the mean with a number."""
        values = np.broadcast_to(np.asarray(analytical, dtype=float), simulated.shape)
        means = float(weights @ values), float(weights @ simulated)
        if population == "mean-field" and paired:
            tested: Any = (0.0, float(np.abs(simulated - values).max()) / unit, None)
        elif chance(model, population):
            tested = student(simulated - values, unit)
        else:
            tested = (0.0, abs(means[1] - means[0]) / unit, None)
        comparisons.append(Comparison(plan.name, population, quantity, *means, *tested))

    if population == "mean-field":
        add("return", played.returns, returns)
    else:  # a coupling's charge depends on the luck of the loads
        add("return", played.returns + played.charged, returns + charges)
    if population == "mean-field" or model.coupling is None:
        add("expected return", played.returns, plan.expected, paired=False)
    if plan.cost is not None:
        cost: Any = plan.cost[played.contexts[:, 0], played.shares[:, 0].argmax(axis=1)]
        if model.spread_start:
            cost = float((model.start_weights.reshape(plan.cost.shape) * plan.cost).sum())
        # What the contexts bring comes after the start: with them the mean field agrees on average alone.
        add("cost of privacy", optimum - played.returns, cost, paired=model.context is None)
    return [*comparisons, _compare_shares(plan, population, played, expected, loads_of(model, population))]


def _compare_shares(plan: Plan, population: str, played: Played, expected: FloatArray, loads: int) -> Comparison:
    """Compare the shares of all times and states; `loads` = 0 is the mean field."""
    if loads == 0:
        gap = np.abs(played.shares - expected)
        place = np.unravel_index(int(np.argmax(gap)), gap.shape)
        shown = float(expected[place]), float(played.shares[place])
        return Comparison(plan.name, population, "occupancy", *shown, 0.0, float(gap.max()), None)
    # Loads move on their own; those that start in different states vary less than if all had the mean's chances.
    counts, means = played.shares.sum(axis=0) * loads, expected.sum(axis=0) * loads
    variance = np.maximum((expected * (1.0 - expected)).sum(axis=0) * loads, 0.0)
    return Comparison(plan.name, population, "occupancy", *bernstein(counts, means, variance, len(expected) * loads))


def compare_draws(model: EnsembleModel, population: str, played: Played) -> list[Comparison]:
    """Compare start states and contexts with their distributions, where they are drawn."""
    if not chance(model, population):
        return []
    count, comparisons = len(played.returns), []
    if population != "mean-field" or not model.spread_start:
        # Loads that start spread are drawn one by one; else one state is drawn for all of them.
        loads = max(1, loads_of(model, population)) if model.spread_start else 1
        total, p = count * loads, model.initial
        spread = bernstein(played.shares[:, 0].sum(axis=0) * loads, total * p, total * p * (1.0 - p), total)
        comparisons.append(Comparison("any", population, "start states", *spread))
    if model.context is not None:
        chances = model.context.distributions(model.horizon)
        drawn = (played.contexts[:, :, None] == np.arange(model.n_contexts)).sum(axis=0).astype(float)
        spread = bernstein(drawn, count * chances, count * chances * (1.0 - chances), count)
        comparisons.append(Comparison("any", population, "contexts", *spread))
    return comparisons


def student(differences: FloatArray, unit: float) -> tuple[float, float, float]:
    """Return the standard error of the mean difference, the mean in standard errors, and its p-value."""
    count = len(differences)
    mean, error = float(differences.mean()), float(differences.std(ddof=1) / math.sqrt(count))
    if abs(mean) <= EXACT_TOLERANCE * max(unit, 1.0):  # rounding, also where nothing is left to chance
        return error, 0.0, 1.0
    deviation = mean / error if error > 0 else math.copysign(math.inf, mean)
    return error, deviation, float(2.0 * stats.t.sf(abs(deviation), count - 1))


def bernstein(
    observed: FloatArray, expected: FloatArray, variance: FloatArray, total: int
) -> tuple[float, float, float, float, float]:
    """Find the count that is least likely; each is a sum of `total` independent indicators.

    Returns its expected and observed share, standard error and deviation in these, and the p-value of the whole array.
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
    report.threshold = FAMILY_LEVEL / max(sum(c.p_value is not None for c in report.comparisons), 1)
    judged = []
    for c in report.comparisons:  # written so that NaN disagrees
        agrees = c.difference <= EXACT_TOLERANCE if c.p_value is None else c.p_value >= report.threshold
        judged.append(replace(c, agrees=bool(agrees and np.isfinite(c.simulated) and np.isfinite(c.analytical))))
    report.comparisons = judged


def to_json(problem: Problem, report: Report) -> dict[str, Any]:
    """Return the whole report as plain values; None for numbers that are not finite."""
    event: Any = None if problem.release is None else problem.release.event
    known = event is not None and event.type == "dirichlet"
    return {
        "agrees": report.agrees,
        "k": problem.k,
        "release": {"k": event.k, "floor": event.floor} if known else event and {"mechanism": event.type},
        "episodes": problem.episodes,
        "seed": problem.seed,
        "family_level": FAMILY_LEVEL,
        "p_value_threshold": report.threshold,
        "mean_field_tolerance": EXACT_TOLERANCE,
        "comparisons": [{key: plain(value) for key, value in asdict(c).items()} for c in report.comparisons],
        "not_applicable": report.not_applicable,
    }
