"""The measurements of Section VI, each a function of a model or of one row of its matrix.

Releases of the row and how private they are; policies of adjacent rows; the event as it is played; costs; learners; and
what the paper misprints, against Monte Carlo (E2, E3).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import bisect
from scipy.special import betainc

from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.agents.plans import shed_prices
from dp_ensemble_env.chain.markov import ensemble
from dp_ensemble_env.control import cost as costing
from dp_ensemble_env.control import policies
from dp_ensemble_env.control.kernel import default_kernel
from dp_ensemble_env.control.lsmdp import solve
from dp_ensemble_env.envs.actions import price_tilts
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.paper.data import H, PickedRow
from dp_ensemble_env.paper.disclosure import log_kernel
from dp_ensemble_env.privacy.accounting.compose import RowGroup, composed_epsilon
from dp_ensemble_env.privacy.accounting.divergence import pair_delta, pair_epsilon, theorem2_epsilon, worst_case_epsilon
from dp_ensemble_env.privacy.audit import audit_samples, epsilon_lower_bound
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.reporting.score import Outcome, event_outcome

FloatArray = NDArray[np.float64]
#: The paper's concentrations, and its probability of failure.
KS, DELTA = (50.0, 200.0), 0.05
#: Draws whose policies the paper averages.
DRAWS = 1000
#: Confidence of what an attack shows.
CONFIDENCE = 0.99
#: Figures 5 and 6 show the policy at this time of day.
CLOCK = np.timedelta64(12 * 60 + 45, "m")
#: Policies that expect the noise, with their names.
NAMES = {"taylor": "Taylor", "digamma": "Digamma", "average-exact": "average value"}

#: Names of the costs that belong to one release or to Corollary 3; the ending of those by the paper's own formulas.
ONE, ONE_STEP, LEADING, PRINTED = (
    "one release",
    "one release, one-step formula",
    "one release, leading order",
    "average, Corollary 3 as printed",
)
FORMULA = ", paper's formula"
#: Names of the privacy losses.
THEOREM2, WORST, PAIR, COMPOSED = (
    "Theorem 2, one row",
    "exact, worst row",
    "exact, this pair",
    "average of 1000, composed",
)

#: Published L1 distances of the policies of adjacent rows, and published ε by k.
PAPER_L1 = {
    ("taylor", 50.0): 0.0493,
    ("taylor", 200.0): 0.0482,
    ("digamma", 50.0): 0.0494,
    ("digamma", 200.0): 0.0482,
    ("average-exact", 50.0): 0.0479,
    ("average-exact", 200.0): 0.0476,
}
PAPER_EPSILON = {50.0: 0.88, 200.0: 5.45}
#: A row of three successors with one z, fitted so that it gives all six published L1 distances.
INSTANCE_ROW, INSTANCE_LOG_Z = (0.8224, 0.0222, 0.1555), (0.9854, 0.0, 2.2244)


@dataclass(frozen=True)
class Effort:
    """How much is computed."""

    ks: tuple[float, ...] = (10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
    points: int = 1000  # releases drawn for the triangles
    samples: int = 2000  # releases behind the cost of one release
    releases: int = 200  # releases played through the event
    attacks: int = 1000  # averages that the attacker sees of either row
    draws: int = 200_000  # Monte Carlo draws of a row for the misprints
    z_transitions: int = 50_000
    ppo_steps: int = 20_000


FULL = Effort()
QUICK = Effort((10.0, 50.0, 200.0, 1000.0), 300, 200, 20, 200, 20_000, 10_000, 4_000)


class Learned(NamedTuple):
    """A learner trained on the spot and its exact outcome."""

    name: str
    steps: int
    outcome: Outcome


class RatioSearch(NamedTuple):
    """What Theorem 2 can give at the paper's two k: the largest ratio, and the pair nearest to the published one."""

    ratio: float
    nearest: tuple[float, float]
    settings: int


# ------------------------------------------------------------------ without data
def instance_l1() -> dict[tuple[str, float], float]:
    """L1 distances of the policies of the three-state row and its neighbour, for one step with that z."""
    row = np.array(INSTANCE_ROW) / sum(INSTANCE_ROW)
    utility = np.stack([np.zeros(3), INSTANCE_LOG_Z])
    pair = [EnsembleModel(np.tile(p, (3, 1)), np.arange(3.0), utility, 1.0) for p in (row, row + [0.0, -H / 2, H / 2])]
    solved = {key: [policies.solve_policy(either, *key)[0, 0] for either in pair] for key in PAPER_L1}
    return {key: float(np.abs(first - second).sum()) for key, (first, second) in solved.items()}


def search_ratio() -> RatioSearch:
    """Search Theorem 2's parameters (ω, ω̄ and the size of W) for the published pair of ε."""
    pairs = np.array(
        [
            [theorem2_epsilon(k, H, omega, rest, size, DELTA) for k in KS]
            for size in (2, 3, 5)
            for omega in np.geomspace(0.005, 0.49, 14).tolist()
            for rest in (0.001, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
            if size * omega <= 1 - rest and 1 - rest - omega > H / 2
        ]
    )
    wanted = np.array([PAPER_EPSILON[k] for k in KS])
    nearest = pairs[np.argmin(np.abs(np.log(pairs / wanted)).max(axis=1))]
    return RatioSearch(float((pairs[:, 1] / pairs[:, 0]).max()), (float(nearest[0]), float(nearest[1])), len(pairs))


# ------------------------------------------------------------------ releases of the row
def release_clouds(row: PickedRow, k: float, points: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Draw releases of the row and of its neighbour."""
    rng, mechanism = np.random.default_rng([seed, int(k), 4]), DirichletMechanism(k)
    first, second = (np.exp(mechanism.sample_log(p, points, rng)) for p in (row.row, row.adjacent))
    return first, second


def best_accuracy(row: PickedRow, k: float) -> float:
    """How often the best possible test names the input of one release, when both rows are equally likely, exactly."""
    return 0.5 * (1.0 + pair_delta(0.0, row.row, row.down, row.up, k, H))  # (1 + total variation) / 2


def kernel_errors(row: PickedRow, k: float) -> dict[str, float]:
    """Largest error of the two log K of the row against E[log x] by quadrature, in nats."""
    p = row.row[row.successors]
    # E[log x] is minus the integral of Pr[x <= e^-u] over u > 0, and x has a Beta law.
    mean = np.array([-quad(lambda u, a=k * q: betainc(a, k - a, np.exp(-u)), 0, np.inf, limit=500)[0] for q in p])
    return {
        method: float(np.abs([log_kernel(q, method, k) - m for q, m in zip(p, mean, strict=True)]).max())
        for method in ("taylor", "digamma")
    }


def epsilons(row: PickedRow, ks: Sequence[float]) -> dict[str, list[float]]:
    """Privacy loss at δ = 0.05 for each k: this pair of rows, and bounds for all rows with such entries."""
    omega = row.least
    with np.errstate(over="ignore"):  # the accountant divides by masses near zero
        composed = [composed_epsilon(DELTA, [RowGroup(k, omega, H, DRAWS)]) for k in ks]
    return {
        THEOREM2: [theorem2_epsilon(k, H, omega, row.rest, 2, DELTA) for k in ks],
        WORST: [worst_case_epsilon(DELTA, k, H, omega) for k in ks],
        PAIR: [pair_epsilon(DELTA, row.row, row.down, row.up, k, H) for k in ks],
        COMPOSED: composed,
    }


def attack_average(row: PickedRow, log_z: FloatArray, k: float, count: int, seed: int) -> float:
    """Lower bound on the ε of a policy averaged over `DRAWS` private copies of the row, from `count` such averages."""
    mechanism, places = DirichletMechanism(k), np.searchsorted(row.successors, [row.down, row.up])

    def statistic(p: FloatArray, rng: np.random.Generator) -> FloatArray:
        total = np.full((count, len(row.successors)), -np.inf)
        for _ in range(DRAWS):  # in logarithms, as strong incentives make some entries very small
            logs = mechanism.sample_log(p[row.successors], count, rng) + log_z[row.successors]
            total = np.logaddexp(total, logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
        difference: FloatArray = total[:, places[0]] - total[:, places[1]]
        return difference

    first, second = np.random.default_rng([seed, int(k), 9]).spawn(2)
    shown = audit_samples(statistic(row.row, first), statistic(row.adjacent, second), DELTA, confidence=CONFIDENCE)
    return shown.epsilon


def attack_ceiling(count: int) -> float:
    """Return the ε that an attacker shows who is right in every trial: half of `count` averages of either row."""
    trials = count - count // 2
    return epsilon_lower_bound(trials, 0, trials, DELTA, CONFIDENCE)


# ------------------------------------------------------------------ policies
def shown_time(model: EnsembleModel) -> int:
    """Return the decision at 12:45, or the last one before."""
    clock = model.times[:-1] - model.times[0].astype("datetime64[D]")
    return max(int(np.searchsorted(clock, CLOCK, side="right")) - 1, 0)


def adjacent_policies(
    model: EnsembleModel, row: PickedRow, time: int
) -> dict[tuple[str, float], tuple[FloatArray, FloatArray]]:
    """Solve the problem and its neighbour by each method; keep the row's policy at the time shown."""
    pair = (model, row.adjacent_model(model))
    return {
        (name, k): tuple(policies.solve_policy(either, name, k)[time, row.state] for either in pair)  # type: ignore[misc]
        for name in ("standard", *NAMES)
        for k in KS
    }


def policy_clouds(
    model: EnsembleModel, row: PickedRow, k: float, time: int, points: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Release the matrix and its neighbour `points` times each, solve, and keep the row's policies at one time."""
    rng, mechanism = np.random.default_rng([seed, int(k), 6]), DirichletMechanism(k)

    def cloud(model: EnsembleModel) -> FloatArray:
        logs = (mechanism.release(model.default, rng).log_matrix for _ in range(points))
        plans = (solve(one, model.utility, model.discomfort_penalty) for one in logs)
        return np.stack([plan.policy[time, row.state] for plan in plans])

    return cloud(model), cloud(row.adjacent_model(model))


# ------------------------------------------------------------------ the event
def event_outcomes(model: EnsembleModel, seed: int) -> dict[tuple[str, float], Outcome]:
    """Play the event with every controller that needs no learning, exactly."""
    env = EnsembleEnv(model, action="policy")
    outcomes = {
        ("uncontrolled", 0.0): event_outcome(model, model.default_policy),
        ("ad-hoc", 0.0): evaluate(make_agent("ad-hoc", env), env),
        ("standard", 0.0): event_outcome(model, policies.standard_policy(model)),
    }
    for k in KS:
        outcomes |= {(name, k): event_outcome(model, policies.solve_policy(model, name, k)) for name in NAMES}
        outcomes["average-sampled", k] = event_outcome(model, policies.average_policy(model, k, "sampled", DRAWS, seed))
    return outcomes


def aware_outcomes(model: EnsembleModel, ks: Sequence[float]) -> dict[str, list[Outcome]]:
    """Play the event with the policies that expect the noise, for each k."""
    return {name: [event_outcome(model, policies.solve_policy(model, name, k)) for k in ks] for name in NAMES}


def peak_time(model: EnsembleModel, uncontrolled_kw: FloatArray) -> int:
    """Return the time of the peak within the event: the customer baseline's, or else the uncontrolled load's."""
    event = model.event
    if event is None:
        return 1 + int(np.argmax(uncontrolled_kw[1:]))
    load = uncontrolled_kw if event.baseline_kw is None else event.baseline_kw
    return int(np.argmax(np.where(event.in_event, load, -np.inf)))


def shed_policy(model: EnsembleModel, shed: float) -> FloatArray:
    """Return the ad-hoc practice with a shed of any strength; one is the strength that is played."""
    return policies.tilted_policy(model, price_tilts(model, shed_prices(model, shed)))


def largest_shed(model: EnsembleModel, kwh: float) -> float:
    """Return the strength at which the ad-hoc practice curtails `kwh`: 0 if every one does, infinity if none does."""

    def excess(log_shed: float) -> float:
        return event_outcome(model, shed_policy(model, math.exp(log_shed))).curtailed_kwh - kwh

    low, high = math.log(1e-3), math.log(1e3)
    if excess(low) >= 0:
        return 0.0
    return math.inf if excess(high) <= 0 else math.exp(bisect(excess, low, high, xtol=1e-4))


def released_outcomes(
    model: EnsembleModel, peak: int, k: float, count: int, seed: int
) -> tuple[FloatArray, float, float, float]:
    """Mean power, mean curtailment at the peak with its standard error, and mean kWh of plans made on one release.

    As in the paper, the plans know all but the matrix; what may be handed out besides is `EnsembleModel.public`.
    """
    rng, mechanism = np.random.default_rng([seed, int(k), 7]), DirichletMechanism(k)
    plans = (
        policies.standard_policy(model.with_default(mechanism.release(model.default, rng).matrix)) for _ in range(count)
    )
    outcomes = [event_outcome(model, plan) for plan in plans]
    free = event_outcome(model, model.default_policy).power_kw[peak]
    peaks = np.array([free - outcome.power_kw[peak] for outcome in outcomes])
    power = np.mean([outcome.power_kw for outcome in outcomes], axis=0)
    energy = float(np.mean([outcome.curtailed_kwh for outcome in outcomes]))
    return power, float(peaks.mean()), float(peaks.std(ddof=1) / math.sqrt(count)), energy


# ------------------------------------------------------------------ cost over k
def costs(model: EnsembleModel, effort: Effort, seed: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Cost of privacy in dollars per building from the initial distribution, for each k, with standard errors."""
    start = model.initial

    def over_ks(cost: Callable[..., FloatArray], *arguments: str) -> list[float]:
        return [float(start @ cost(model, k, *arguments)[0]) for k in effort.ks]

    means = {
        "taylor": over_ks(costing.cost_of_privacy, "taylor", "exact"),
        f"taylor{FORMULA}": over_ks(costing.cost_of_privacy, "taylor", "paper"),
        "digamma": over_ks(costing.cost_of_privacy, "digamma", "exact"),
        f"digamma{FORMULA}": over_ks(costing.cost_of_privacy, "digamma", "paper"),
        "average-exact": over_ks(costing.cost_of_privacy, "average-exact", "exact"),
    }
    errors = {}
    for name, formula in ((ONE, "exact"), (ONE_STEP, "paper")):
        drawn: dict[str, Any] = {"formula": formula, "samples": effort.samples, "rng": seed}
        estimates = [costing.release_cost(model, k, **drawn) for k in effort.ks]
        means[name] = [float(start @ estimate.mean[0]) for estimate in estimates]
        # The states share their draws, so the error of the mean over states is at most the mean of the errors.
        errors[name] = [float(start @ estimate.standard_error[0]) for estimate in estimates]
    means[LEADING] = over_ks(costing.release_cost_leading_order)
    means[PRINTED] = over_ks(costing.average_cost_as_printed)
    return means, errors


# ------------------------------------------------------------------ learners and buildings
def has_stable_baselines3() -> bool:
    """Whether Stable-Baselines3 is installed."""
    return importlib.util.find_spec("stable_baselines3") is not None


def learners(model: EnsembleModel, effort: Effort, seed: int) -> list[Learned]:
    """Train Z-learning and, if Stable-Baselines3 is installed, PPO; return them best first."""
    plans: list[tuple[str, str, dict[str, Any], int]] = [
        ("Z-learning", "tilt", {"steps": effort.z_transitions}, effort.z_transitions)
    ]
    if has_stable_baselines3():
        plans.append(("PPO", "price", {"steps": effort.ppo_steps, "target": 97.0}, effort.ppo_steps))
    trained = []
    for name, action, settings, steps in plans:
        env = EnsembleEnv(model, action=action)
        agent: Any = make_agent(name.lower(), env, seed=seed, **settings)
        trained.append(Learned(name, steps if name == "Z-learning" else agent.steps, evaluate(agent, env)))
    return sorted(trained, key=lambda one: -one.outcome.score)


def building_deviation(building_kw: FloatArray, seed: int) -> float:
    """Largest relative deviation from the original over ten synthetic buildings."""
    present = building_kw[~np.isnan(building_kw) & (building_kw > 0)]
    return max(float(np.abs(ensemble(present, 1, rng=seed + i) / present - 1.0).max()) for i in range(10))


# ------------------------------------------------------------------ misprints
def misprint_line(model: EnsembleModel, time: int, state: int, k: float, draws: int, seed: int) -> dict[str, Any]:
    """Compare the printed and the corrected Proposition 3 and Corollary 3 with Monte Carlo, for one visit of a row.

    All of them hold z at its true value, as the paper does, so that they mean
    the same: the expected policy, and the expected γ KL(policy ‖ optimum).
    """
    gamma, solution = model.discomfort_penalty, policies.solve_standard(model)
    support = np.flatnonzero(model.default[state])
    p, log_z = model.default[state, support], solution.log_desirability[time + 1, support]
    log_optimum = np.log(p) + log_z
    log_optimum -= np.logaddexp.reduce(log_optimum)
    optimum = np.exp(log_optimum)
    logs = DirichletMechanism(k).sample_log(p, draws, np.random.default_rng([seed, int(k), 8])) + log_z
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    plans = np.exp(logs)
    losses = gamma * np.sum(plans * (logs - log_optimum), axis=1)  # logarithms are finite where plans underflow
    mean = plans.mean(axis=0)
    expected = {
        "printed": policies.average_policy_as_printed(model, k)[time, state, support],
        "corrected": default_kernel(model).dense(policies.expansion_values(solution, k))[time, state, support],
        "exact": policies.average_policy(model, k, "exact")[time, state, support],
    }
    return {
        "k": k,
        "state": state,
        **{f"{name} policy": policy.tolist() for name, policy in expected.items()},
        "Monte Carlo policy": mean.tolist(),
        "Monte Carlo policy error": (plans.std(axis=0, ddof=1) / math.sqrt(draws)).tolist(),
        "printed sum": float(expected["printed"].sum()),
        "printed cost": float(costing.average_cost_as_printed(model, k)[time, state]),
        "corrected cost": gamma / (2 * (k + 1)) * float(np.sum(optimum / p * (1 - optimum))),
        "Monte Carlo cost": float(losses.mean()),
        "Monte Carlo cost error": float(losses.std(ddof=1) / math.sqrt(draws)),
    }
