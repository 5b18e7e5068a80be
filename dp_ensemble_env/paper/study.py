"""Everything Section VI of the paper measures, computed on one data set.

`run_study` calls the functions of `paper.measures` in turn and collects the results in a `Study`, from which claims,
tables and figures are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.paper import measures
from dp_ensemble_env.paper.data import DataSet, PickedRow, pick_row
from dp_ensemble_env.paper.disclosure import Disclosure
from dp_ensemble_env.paper.measures import KS, Effort, Learned
from dp_ensemble_env.reporting.score import Outcome

FloatArray = NDArray[np.float64]
Pair = tuple[FloatArray, FloatArray]


@dataclass(frozen=True, eq=False)
class Study:
    """Results on one data set.

    Attributes
    ----------
    row : PickedRow or None
        None leaves out `clouds`, `accuracy`, `kernel_error`, `adjacent`, `policy_clouds`, `l1`, `epsilon`, `attack`.
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
        Energy curtailed in the event, kWh, and dollars per building.
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
    disclosed : Disclosure or None
        What the counts' own matrix, tilted at the time shown, gives away; None without counts.
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
    events: dict[tuple[str, float], Outcome]
    peak: int
    shed_limit: float
    released: dict[float, tuple[FloatArray, float, float, float]]
    capacity: dict[str, list[float]]
    cost: dict[str, list[float]]
    cost_error: dict[str, list[float]]
    ceiling: float
    recovery: dict[str, float]
    disclosed: Disclosure | None
    misprints: list[dict[str, Any]]
    learned: list[Learned]
    deviation: float
    clouds: dict[float, Pair] = field(default_factory=dict)
    accuracy: dict[float, float] = field(default_factory=dict)
    kernel_error: dict[str, float] = field(default_factory=dict)
    adjacent: dict[tuple[str, float], Pair] = field(default_factory=dict)
    policy_clouds: dict[float, Pair] = field(default_factory=dict)
    l1: dict[tuple[str, float], float] = field(default_factory=dict)
    epsilon: dict[str, list[float]] = field(default_factory=dict)
    attack: dict[float, float] = field(default_factory=dict)

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

    @property
    def the_row(self) -> PickedRow:
        """The row, where it is known that there is one."""
        assert self.row is not None
        return self.row

    def at_peak(self, power_kw: FloatArray) -> float:
        """Return the power below the uncontrolled ensemble at the peak, kW."""
        return float(self.uncontrolled[self.peak] - power_kw[self.peak])

    def at(self, values: Sequence[float], k: float) -> float:
        """Return the value that belongs to k."""
        return values[self.effort.ks.index(k)]

    def epsilon_at(self, name: str) -> dict[float, float]:
        """Return the privacy loss called `name` at the paper's two k."""
        return {k: self.at(self.epsilon[name], k) for k in KS}


#: How often `run_study` says what begins.
STAGES = 8


def run_study(data: DataSet, effort: Effort, seed: int, say: Callable[[str], None]) -> Study:
    """Compute everything; `say` is told what begins, `STAGES` times."""
    model = data.model
    row = pick_row(model.default, model.power_kw, None if model.counts is None else model.counts.sum(axis=1))
    time = measures.shown_time(model)
    of_the_row = _row_results(model, row, time, effort, seed, say)
    say("the event")
    events = measures.event_outcomes(model, seed)
    peak = measures.peak_time(model, events["uncontrolled", 0.0].power_kw)
    released = {k: measures.released_outcomes(model, peak, k, effort.releases, seed) for k in KS}
    least = min(outcome.curtailed_kwh for (_, k), outcome in events.items() if k == 50.0)
    shed_limit = measures.largest_shed(model, least)
    say("capacity over k")
    aware = measures.aware_outcomes(model, effort.ks)
    say("cost of privacy")
    cost, cost_error = measures.costs(model, effort, seed)
    say("misprints against Monte Carlo")
    state = row.state if row is not None else int(np.argmax((model.default > 0).sum(axis=1)))
    misprints = [measures.misprint_line(model, time, state, k, effort.draws, seed) for k in effort.ks]
    recovery = {method: measures.recovery_error(model, method, 50.0) for method in ("taylor", "digamma")}
    say("learners")
    return Study(
        data=data,
        effort=effort,
        seed=seed,
        row=row,
        time=time,
        events=events,
        peak=peak,
        shed_limit=shed_limit,
        released=released,
        capacity={name: [outcome.curtailed_kwh for outcome in mine] for name, mine in aware.items()},
        cost=cost,
        cost_error=cost_error,
        ceiling=measures.attack_ceiling(effort.attacks),
        recovery=recovery,
        disclosed=measures.disclosed_counts(model, time),
        misprints=misprints,
        learned=measures.learners(model, effort, seed),
        deviation=measures.building_deviation(data.building_kw, seed),
        **of_the_row,
    )


def _row_results(
    model: EnsembleModel, row: PickedRow | None, time: int, effort: Effort, seed: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Compute what is about the row; nothing without one."""
    results: dict[str, Any] = {}
    say("releases of the row")
    if row is not None:
        results["clouds"] = {k: measures.release_clouds(row, k, effort.points, seed) for k in KS}
        results["accuracy"] = {k: measures.best_accuracy(row, k) for k in KS}
        results["kernel_error"] = measures.kernel_errors(row, 50.0)
    say("policies of adjacent rows")
    if row is not None:
        results["adjacent"] = measures.adjacent_policies(model, row, time)
        results["l1"] = {key: float(np.abs(p - q).sum()) for key, (p, q) in results["adjacent"].items()}
        results["policy_clouds"] = {}
        for k in KS:
            rng, pair = np.random.default_rng([seed, int(k), 6]), (model, row.adjacent_model(model))
            results["policy_clouds"][k] = tuple(
                measures.sampled_policies(either, k, time, row.state, effort.points, rng) for either in pair
            )
    say("privacy loss")
    if row is not None:
        results["epsilon"] = measures.epsilons(row, effort.ks)
        log_z = solve_standard(model).log_desirability[time + 1]
        results["attack"] = {k: measures.attack_average(row, log_z, k, effort.attacks, seed) for k in KS}
    return results
