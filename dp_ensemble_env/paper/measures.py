"""The parts of Section VI: policies, the event, costs and learners, each a plain function of a model."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.chain.markov import ensemble
from dp_ensemble_env.control.cost import (
    average_cost_as_printed,
    cost_of_privacy,
    release_cost,
    release_cost_leading_order,
)
from dp_ensemble_env.control.lsmdp import LogKernel, solve
from dp_ensemble_env.control.policies import average_policy, digamma_policy, standard_policy, taylor_policy
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.paper.releases import DRAWS
from dp_ensemble_env.paper.row import PickedRow
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.reporting.score import Outcome, event_outcome

FloatArray = NDArray[np.float64]
#: The paper's concentrations.
KS = (50.0, 200.0)
#: Figures 5 and 6 show the policy at this time of day.
CLOCK = np.timedelta64(12 * 60 + 45, "m")

#: Names of the costs that belong to one release or to Corollary 3.
ONE, ONE_STEP, LEADING, PRINTED = (
    "one release",
    "one release, one-step formula",
    "one release, leading order",
    "average, Corollary 3 as printed",
)


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


# ------------------------------------------------------------------ the time shown
def shown_time(model: EnsembleModel) -> int:
    """Return the decision at 12:45, or the last one before."""
    clock = model.times[:-1] - model.times[0].astype("datetime64[D]")
    return max(int(np.searchsorted(clock, CLOCK, side="right")) - 1, 0)


# ------------------------------------------------------------------ policies
def adjacent_policies(
    model: EnsembleModel, row: PickedRow, time: int
) -> dict[tuple[str, float], tuple[FloatArray, FloatArray]]:
    """Solve the problem and its neighbour by each method; keep the row's policy at the time shown."""
    neighbour = row.adjacent_model(model)
    methods: dict[str, Callable[[EnsembleModel, float], FloatArray]] = {
        "standard": lambda m, k: standard_policy(m),
        "taylor": taylor_policy,
        "digamma": digamma_policy,
        "average-exact": lambda m, k: average_policy(m, k, "exact"),
    }
    return {
        (name, k): (method(model, k)[time, row.state], method(neighbour, k)[time, row.state])
        for name, method in methods.items()
        for k in KS
    }


def sampled_policies(
    model: EnsembleModel, k: float, time: int, state: int, points: int, rng: np.random.Generator
) -> FloatArray:
    """Release the matrix `points` times, solve each, and keep one row's policy at one time, (points, n)."""
    mechanism, found = DirichletMechanism(k), []
    for start in range(0, points, 100):
        count = min(100, points - start)
        logs = np.stack([mechanism.release(model.default, rng).log_matrix for _ in range(count)])
        kernel = LogKernel.from_dense(logs[:, None])
        policy = solve(kernel, model.utility, model.discomfort_penalty).policy
        found.append(policy[:, time, state])
    return np.concatenate(found)


# ------------------------------------------------------------------ the event
def closed_form(model: EnsembleModel, name: str, k: float, seed: int) -> FloatArray:
    """Return the policy called `name`, computed from the true matrix."""
    if name == "taylor":
        return taylor_policy(model, k)
    if name == "digamma":
        return digamma_policy(model, k)
    return average_policy(model, k, name.removeprefix("average-"), DRAWS, seed)


def event_outcomes(model: EnsembleModel, seed: int) -> dict[tuple[str, float], Outcome]:
    """Play the event with every controller that needs no learning, exactly."""
    env = EnsembleEnv(model, action="policy")
    outcomes = {
        ("uncontrolled", 0.0): event_outcome(model, model.default_policy),
        ("ad-hoc", 0.0): evaluate(make_agent("ad-hoc", env), env),
        ("standard", 0.0): event_outcome(model, standard_policy(model)),
    }
    for k in KS:
        for name in ("taylor", "digamma", "average-exact", "average-sampled"):
            outcomes[name, k] = event_outcome(model, closed_form(model, name, k, seed))
    return outcomes


def aware_outcomes(model: EnsembleModel, ks: Sequence[float]) -> dict[str, list[Outcome]]:
    """Play the event with the policies that expect the noise, for each k."""
    names = ("taylor", "digamma", "average-exact")
    return {name: [event_outcome(model, closed_form(model, name, k, 0)) for k in ks] for name in names}


# ------------------------------------------------------------------ cost and privacy over k
def costs(model: EnsembleModel, effort: Effort, seed: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Cost of privacy in dollars per building from the initial distribution, for each k, with standard errors."""
    start = model.initial

    def over_ks(method: str, formula: str) -> list[float]:
        return [float(start @ cost_of_privacy(model, k, method, formula)[0]) for k in effort.ks]

    sampled = {
        name: [release_cost(model, k, formula=formula, samples=effort.samples, rng=seed) for k in effort.ks]
        for name, formula in ((ONE, "exact"), (ONE_STEP, "paper"))
    }
    found = {
        "taylor": over_ks("taylor", "exact"),
        "taylor, paper's formula": over_ks("taylor", "paper"),
        "digamma": over_ks("digamma", "exact"),
        "digamma, paper's formula": over_ks("digamma", "paper"),
        "average-exact": over_ks("average-exact", "exact"),
        **{name: [float(start @ e.mean[0]) for e in estimates] for name, estimates in sampled.items()},
        LEADING: [float(start @ release_cost_leading_order(model, k)[0]) for k in effort.ks],
        PRINTED: [float(start @ average_cost_as_printed(model, k)[0]) for k in effort.ks],
    }
    # The states share their draws, so the error of the mean over states is at most the mean of the errors.
    errors = {name: [float(start @ e.standard_error[0]) for e in estimates] for name, estimates in sampled.items()}
    return found, errors


# ------------------------------------------------------------------ learners and buildings
def has_stable_baselines3() -> bool:
    """Whether Stable-Baselines3 is installed."""
    return importlib.util.find_spec("stable_baselines3") is not None


def learners(model: EnsembleModel, effort: Effort, seed: int) -> list[Learned]:
    """Train Z-learning and, if Stable-Baselines3 is installed, PPO; return them best first."""
    plans: list[tuple[str, str, dict[str, Any], int]] = [
        ("z-learning", "tilt", {"transitions": effort.z_transitions}, effort.z_transitions)
    ]
    if has_stable_baselines3():
        plans.append(("ppo", "price", {"steps": effort.ppo_steps, "target_score": 97.0}, effort.ppo_steps))
    found = []
    for algo, action, settings, steps in plans:
        env = EnsembleEnv(model, action=action)
        agent: Any = make_agent(algo, env, seed=seed, **settings)
        done = int(getattr(agent, "steps", 0) or steps)
        name = {"z-learning": "Z-learning", "ppo": "PPO"}[algo]
        found.append(Learned(name, done, evaluate(agent, env)))
    return sorted(found, key=lambda one: -one.outcome.score)


def building_deviation(building_kw: FloatArray, seed: int) -> float:
    """Largest relative deviation from the original over ten synthetic buildings."""
    present = building_kw[~np.isnan(building_kw) & (building_kw > 0)]
    return max(float(np.abs(ensemble(present, 1, rng=seed + i) / present - 1.0).max()) for i in range(10))
