"""Theory beside simulation where loads start spread, or there is nature, a context or a coupling.

As in `dp_ensemble_env.experiments.validation`, every closed-form policy is played in the three populations::

    return           analytical: expected along each episode's own contexts, from its own start
    expected return  analytical: exact policy evaluation, over all contexts and starts
    cost of privacy  analytical: `cost_of_privacy`, over all contexts and starts
    occupancy        analytical: the shares of the loads along the same contexts, from the same starts
    contexts, start  analytical: their distributions (once for each population where they are drawn)

The first and the fourth hold exactly in the mean field, whatever the contexts do. A coupling's costs are not linear in
the loads, so in a finite population what it charged is added back to the return, and the expected return is left out.
The cost of privacy is compared in the mean field alone: two loads under nearly equal policies seldom part, and then by
much, so that no test of a mean applies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from dp_ensemble_env.control.cost import cost_of_privacy
from dp_ensemble_env.control.policies import solve_policy
from dp_ensemble_env.control.returns import path_returns
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.experiments.validation import (
    POPULATIONS,
    Comparison,
    Problem,
    Report,
    bernstein,
    judge,
    loads_of,
    student,
)
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import event_outcome
from dp_ensemble_env.tools.console import Monitor

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Plan:
    """A policy (T, c, n, m), and what is expected of it: return and cost of privacy, None where nobody knows."""

    name: str
    policy: FloatArray
    expected: float | None
    cost: float | None


@dataclass(frozen=True, eq=False)
class Played:
    """What happened in each episode: contexts (episodes, T + 1), shares (episodes, T + 1, n), returns and charges."""

    contexts: NDArray[np.int64]
    shares: FloatArray
    returns: FloatArray
    charged: FloatArray


def validate_general(problem: Problem, names: tuple[str, ...], monitor: Monitor) -> Report:
    """Solve, simulate and compare every policy in every population."""
    report, optimum, done = Report(), {}, 0
    monitor.stage("simulating", len(names) * len(POPULATIONS))
    for name in ("standard", *(name for name in names if name != "standard")):
        try:
            plan = make_plan(problem, name)
        except ValueError as error:
            if name == "standard":
                raise
            report.not_applicable[name] = str(error)
            done += len(POPULATIONS)
            continue
        for population in POPULATIONS:
            played = play_all(problem, plan, population)
            if population not in optimum:
                optimum[population] = played.returns
                report.comparisons += compare_draws(problem.model, population, played)
            report.comparisons += compare(problem.model, plan, population, played, optimum[population])
            done += 1
            monitor.advance(done, f"{name}, {population}")
    judge(report)
    return report


def make_plan(problem: Problem, name: str) -> Plan:
    """Solve a policy and predict what it earns."""
    model = problem.model
    drawn: dict[str, Any] = {"samples": problem.samples, "rng": problem.seed} if name == "average-sampled" else {}
    policy = solve_policy(model, name, problem.k, **drawn)
    cost = None
    if name != "standard" and model.coupling is None:
        cost = float((model.start_weights * cost_of_privacy(model, problem.k, name, **drawn)[0]).sum())
    return Plan(name, policy.reshape(model.tables().behaviour.shape), event_outcome(model, policy).mean_return, cost)


# ------------------------------------------------------------------ simulation
def play_all(problem: Problem, plan: Plan, population: str) -> Played:
    """Play seeded episodes, or the one episode that there is where nothing is left to chance."""
    model = problem.model
    chance = population != "mean-field" or model.context is not None or not model.spread_start
    count = problem.episodes if chance else 1
    size = max(1, min(1024, 4_000_000 // (model.n_states * model.n_decisions)))
    parts = [play(problem, plan, population, first, min(size, count - first)) for first in range(0, count, size)]
    return Played(*(np.concatenate([getattr(part, name) for part in parts]) for name in Played.__annotations__))


def play(problem: Problem, plan: Plan, population: str, first: int, count: int) -> Played:
    """Play the episodes with the seeds `first`, `first + 1`, … side by side."""
    model = problem.model
    env = EnsembleVectorEnv(
        count,
        problem.true_model,
        loads_of(model, population) or "mean-field",
        "policy",
        autoreset_mode=AutoresetMode.DISABLED,
        privacy=problem.release,
    )
    env.reset(seed=problem.seed + first)
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
    """Set the predictions of one policy beside one population's episodes."""
    shares = np.empty_like(played.shares)
    returns = path_returns(model, plan.policy, played.contexts, played.shares[:, 0], shares)
    exact = population == "mean-field"
    before = returns + _charges(model, shares)  # a coupling's charge depends on the luck of the loads
    simulated, analytical = (played.returns, returns) if exact else (played.returns + played.charged, before)
    unit = max(float(np.abs(before).max()), 1.0)
    worst = float(np.abs(simulated - analytical).max() / unit)
    tested = (0.0, worst, None) if exact else student(simulated - analytical, unit)
    means = float(analytical.mean()), float(simulated.mean())
    found = [Comparison(plan.name, population, "return", *means, *tested)]
    if exact or model.coupling is None:
        found += _compare_expected(plan, population, played, optimum, unit)
    return [*found, _compare_shares(model, plan, population, played, shares)]


def _compare_expected(
    plan: Plan, population: str, played: Played, optimum: FloatArray, unit: float
) -> list[Comparison]:
    """Compare means over episodes with what is expected over all contexts and starts."""
    found = []
    pairs = [
        ("expected return", played.returns, plan.expected),
        ("cost of privacy", optimum - played.returns, plan.cost),
    ]
    for quantity, simulated, analytical in pairs:
        if analytical is None:
            continue
        if len(simulated) == 1:  # nothing was left to chance
            difference = abs(float(simulated[0]) - analytical) / unit
            found.append(
                Comparison(plan.name, population, quantity, analytical, float(simulated[0]), 0.0, difference, None)
            )
        else:
            tested = student(simulated - analytical, unit)
            found.append(Comparison(plan.name, population, quantity, analytical, float(simulated.mean()), *tested))
    return found


def _charges(model: EnsembleModel, shares: FloatArray) -> FloatArray:
    """Return the charges of a coupling for shares (episodes, T + 1, n); zeros if there is none."""
    if model.coupling is None:
        return np.zeros(len(shares))
    charges: FloatArray = model.coupling.total(shares @ model.power_kw)
    return charges


def _compare_shares(
    model: EnsembleModel, plan: Plan, population: str, played: Played, expected: FloatArray
) -> Comparison:
    """Compare the shares of all times and states."""
    loads = loads_of(model, population)
    if loads == 0:
        gap = np.abs(played.shares - expected)
        place = np.unravel_index(int(np.argmax(gap)), gap.shape)
        shown = float(expected[place]), float(played.shares[place])
        return Comparison(plan.name, population, "occupancy", *shown, 0.0, float(gap.max()), None)
    # Loads move on their own; those that start in different states vary less than if all had the mean's chances.
    counts, means = played.shares.sum(axis=0) * loads, expected.sum(axis=0) * loads
    variance = (expected * (1.0 - expected)).sum(axis=0) * loads
    found = bernstein(counts, means, np.maximum(variance, 0.0), len(expected) * loads)
    return Comparison(plan.name, population, "occupancy", *found)


def compare_draws(model: EnsembleModel, population: str, played: Played) -> list[Comparison]:
    """Compare start states and contexts with their distributions, where they are drawn."""
    count, found = len(played.returns), []
    if not (population == "mean-field" and model.spread_start):
        # Loads that start spread are drawn one by one; else one state is drawn for all of them.
        loads = max(1, loads_of(model, population)) if model.spread_start else 1
        total = count * loads
        drawn = played.shares[:, 0].sum(axis=0) * loads
        spread = bernstein(drawn, total * model.initial, total * model.initial * (1.0 - model.initial), total)
        found.append(Comparison("any", population, "start states", *spread))
    if model.context is not None:
        chances = model.context.distributions(model.horizon)
        drawn = (played.contexts[:, :, None] == np.arange(model.n_contexts)).sum(axis=0).astype(float)
        spread = bernstein(drawn, count * chances, count * chances * (1.0 - chances), count)
        found.append(Comparison("any", population, "contexts", *spread))
    return found
