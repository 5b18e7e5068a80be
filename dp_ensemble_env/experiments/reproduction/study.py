"""Everything Section VI of the paper measures, computed on one data set.

The parts are plain functions of a model; `run_study` calls them in turn and
collects the results in a `Study`, from which claims, tables and figures are made.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.chain.markov import ensemble
from dp_ensemble_env.cost import (
    average_cost_as_printed,
    cost_of_privacy,
    release_cost,
    release_cost_leading_order,
)
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.reproduction.data import DataSet
from dp_ensemble_env.experiments.reproduction.misprints import misprint_line, recovery_error
from dp_ensemble_env.experiments.reproduction.played import largest_shed, peak_time, released_outcomes
from dp_ensemble_env.experiments.reproduction.releases import (
    DRAWS,
    attack_average,
    attack_ceiling,
    best_accuracy,
    epsilons,
    kernel_errors,
    release_clouds,
)
from dp_ensemble_env.experiments.reproduction.row import PickedRow, pick_row
from dp_ensemble_env.lsmdp import LogKernel, solve
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.policies import (
    average_policy,
    digamma_policy,
    solve_standard,
    standard_policy,
    taylor_policy,
)
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.reporting.outcome import Outcome, event_outcome

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


@dataclass(frozen=True, eq=False)
class Learned:
    """A learner trained on the spot and its exact evaluation."""

    name: str
    steps: int
    score: float
    gap: float
    curtailed_peak_kw: float
    curtailed_kwh: float
    power_kw: FloatArray


@dataclass(frozen=True, eq=False)
class Study:
    """Results on one data set.

    Attributes
    ----------
    row : PickedRow or None
        None leaves out `clouds`, `adjacent`, `policy_clouds`, `l1`, `epsilon`, `accuracy` and `kernel_error`.
    time : int
        Decision shown in Figures 5 and 6.
    clouds : dict k -> two arrays (points, n)
        Releases of the row and of its neighbour, as the mechanism made them.
    adjacent : dict (method, k) -> two arrays (n,)
        Policies of the row and of its neighbour.
    policy_clouds : dict k -> two arrays (points, n)
        Policies solved on releases of the whole matrix and of its neighbour.
    l1 : dict (method, k) -> float
    events : dict (method, k) -> Outcome
        With k = 0 for the methods that know no k.
    peak : int
        Time of the peak within the event: of the customer baseline, if there is one, else of the uncontrolled load.
    shed_limit : float
        Ad-hoc shed, in multiples of the one played, beyond which it takes more energy than some MDP policy at k = 50.
    released : dict k -> (mean power (T + 1,), mean kW curtailed at the peak, standard error, mean kWh)
        Policies solved on single releases.
    capacity, cost : dict name -> values for each of `effort.ks`
    cost_error : dict name -> standard errors
        Of the costs that are Monte Carlo means.
    epsilon : dict name -> values for each of `effort.ks`
    accuracy : dict k -> float
        How often the best test tells a release of the row from one of its neighbour.
    attack : dict k -> float
        Lower bound (confidence 99 %) on the ε of the policy averaged over `DRAWS` private copies of the row, with z
        known, by attacking it.
    ceiling : float
        The most that the attack can show: that of an attacker who is always right.
    kernel_error : dict method -> float
        Largest error of log K as E[log x], in nats, at k = 50.
    recovery : dict method -> float
        Largest error of the true matrix as read back from the policy at k = 50.
    misprints : list of dict
        One line per k.
    learned : list of Learned
        Best first.
    deviation : float
        Largest relative deviation of a synthetic building from the original.
    """

    data: DataSet
    effort: Effort
    seed: int
    row: PickedRow | None
    time: int
    clouds: dict[float, tuple[FloatArray, FloatArray]]
    adjacent: dict[tuple[str, float], tuple[FloatArray, FloatArray]]
    policy_clouds: dict[float, tuple[FloatArray, FloatArray]]
    l1: dict[tuple[str, float], float]
    events: dict[tuple[str, float], Outcome]
    peak: int
    shed_limit: float
    released: dict[float, tuple[FloatArray, float, float, float]]
    capacity: dict[str, list[float]]
    cost: dict[str, list[float]]
    cost_error: dict[str, list[float]]
    epsilon: dict[str, list[float]]
    accuracy: dict[float, float]
    attack: dict[float, float]
    ceiling: float
    kernel_error: dict[str, float]
    recovery: dict[str, float]
    misprints: list[dict[str, Any]]
    learned: list[Learned]
    deviation: float

    @property
    def uncontrolled(self) -> FloatArray:
        """Power of the ensemble that is left alone, kW."""
        return self.events["uncontrolled", 0.0].power_kw

    @property
    def shed_share(self) -> float:
        """Share of the event's energy that the ad-hoc practice sheds."""
        model = self.data.model
        window = np.arange(model.horizon + 1) > 0 if model.event is None else model.event.in_event
        return self.events["ad-hoc", 0.0].curtailed_kwh / (float(self.uncontrolled[window].sum()) * model.step_hours)

    @property
    def peak_clock(self) -> str:
        """Time of day at which the interval of the peak ends."""
        return str(self.data.model.times[self.peak])[11:16]

    @property
    def peak_of(self) -> str:
        """Whose peak it is."""
        event = self.data.model.event
        return "uncontrolled load" if event is None or event.baseline_kw is None else "customer baseline"

    def at_peak(self, power_kw: FloatArray) -> float:
        """Return the power below the uncontrolled ensemble at the peak, kW."""
        return float(self.uncontrolled[self.peak] - power_kw[self.peak])

    def at(self, values: Sequence[float], k: float) -> float:
        """Return the value that belongs to k."""
        return values[self.effort.ks.index(k)]


STAGES = 8


def run_study(data: DataSet, effort: Effort, seed: int, say: Callable[[str], None]) -> Study:
    """Compute everything; `say` is told what begins, `STAGES` times."""
    model = data.model
    visits = None if model.counts is None else model.counts.sum(axis=1)
    row = pick_row(model.default, model.power_kw, visits)
    time = shown_time(model)
    clouds, adjacent, policy_clouds = {}, {}, {}
    epsilon: dict[str, list[float]] = {}
    accuracy: dict[float, float] = {}
    attack: dict[float, float] = {}
    kernel_error: dict[str, float] = {}
    say("releases of the row")
    if row is not None:
        clouds = {k: release_clouds(row, k, effort.points, seed) for k in KS}
        accuracy = {k: best_accuracy(row, k) for k in KS}
        kernel_error = kernel_errors(row, 50.0)
    say("policies of adjacent rows")
    if row is not None:
        adjacent = adjacent_policies(model, row, time)
        for k in KS:
            rng = np.random.default_rng([seed, int(k), 6])
            first = sampled_policies(model, k, time, row.state, effort.points, rng)
            neighbour = row.adjacent_model(model)
            policy_clouds[k] = first, sampled_policies(neighbour, k, time, row.state, effort.points, rng)
    l1 = {key: float(np.abs(p - q).sum()) for key, (p, q) in adjacent.items()}
    say("the event")
    events = event_outcomes(model, seed)
    peak = peak_time(model, events["uncontrolled", 0.0].power_kw)
    released = {k: released_outcomes(model, peak, k, effort.releases, seed) for k in KS}
    shed_limit = largest_shed(model, min(o.curtailed_kwh for (_, k), o in events.items() if k == 50.0))
    say("capacity over k")
    capacity = capacities(model, effort.ks)
    say("cost of privacy")
    cost, cost_error = costs(model, effort, seed)
    say("privacy loss")
    if row is not None:
        epsilon = epsilons(row, effort.ks)
        log_z = solve_standard(model).log_desirability[time + 1]
        attack = {k: attack_average(row, log_z, k, effort.attacks, seed) for k in KS}
    say("misprints against Monte Carlo")
    state = row.state if row is not None else int(np.argmax((model.default > 0).sum(axis=1)))
    misprints = [misprint_line(model, time, state, k, effort.draws, seed) for k in effort.ks]
    recovery = {method: recovery_error(model, method, 50.0) for method in ("taylor", "digamma")}
    say("learners")
    learned = learners(model, effort, seed)
    return Study(
        data=data,
        effort=effort,
        seed=seed,
        row=row,
        time=time,
        clouds=clouds,
        adjacent=adjacent,
        policy_clouds=policy_clouds,
        l1=l1,
        events=events,
        peak=peak,
        shed_limit=shed_limit,
        released=released,
        capacity=capacity,
        cost=cost,
        cost_error=cost_error,
        epsilon=epsilon,
        accuracy=accuracy,
        attack=attack,
        ceiling=attack_ceiling(effort.attacks),
        kernel_error=kernel_error,
        recovery=recovery,
        misprints=misprints,
        learned=learned,
        deviation=building_deviation(data.building_kw, seed),
    )


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
    found = evaluate(make_agent("ad-hoc", env), env)
    fields = Outcome.__dataclass_fields__
    outcomes = {
        ("uncontrolled", 0.0): event_outcome(model, model.default_policy),
        ("ad-hoc", 0.0): Outcome(**{name: getattr(found, name) for name in fields}),
        ("standard", 0.0): event_outcome(model, standard_policy(model)),
    }
    for k in KS:
        for name in ("taylor", "digamma", "average-exact", "average-sampled"):
            outcomes[name, k] = event_outcome(model, closed_form(model, name, k, seed))
    return outcomes


def capacities(model: EnsembleModel, ks: Sequence[float]) -> dict[str, list[float]]:
    """Energy curtailed over the event, kWh, for each k."""
    names = ("taylor", "digamma", "average-exact")
    return {name: [event_outcome(model, closed_form(model, name, k, 0)).curtailed_kwh for k in ks] for name in names}


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
        e = evaluate(agent, env)
        done = int(getattr(agent, "steps", 0) or steps)
        name = {"z-learning": "Z-learning", "ppo": "PPO"}[algo]
        found.append(Learned(name, done, e.score, e.gap, e.curtailed_peak_kw, e.curtailed_kwh, e.power_kw))
    return sorted(found, key=lambda one: -one.score)


def building_deviation(building_kw: FloatArray, seed: int) -> float:
    """Largest relative deviation from the original over ten synthetic buildings."""
    present = building_kw[~np.isnan(building_kw) & (building_kw > 0)]
    return max(float(np.abs(ensemble(present, 1, rng=seed + i) / present - 1.0).max()) for i in range(10))
