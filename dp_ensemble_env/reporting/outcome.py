"""What a policy does to one event, in the units a utility reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from dp_ensemble_env._validation import check_instance
from dp_ensemble_env.lsmdp import evaluate_policy, occupancy
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.policies import solve_standard

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outcome:
    """Expected outcome of a policy on the true dynamics, from the model's initial distribution.

    Attributes
    ----------
    score : float
        0 for the uncontrolled ensemble, 100 for the optimum; negative below the former.
    mean_return : float
        Dollars per building: utility less discomfort.
    gap : float
        Dollars per building by which the return misses the optimum.
    energy_cost : float
        Dollars per building for energy alone, if the model has an event, else NaN.
    discomfort : float
        Dollars per building.
    power_kw : ndarray of shape (T + 1,)
        Expected power of the whole ensemble.
    curtailed_peak_kw, curtailed_kwh : float
        Power below the uncontrolled ensemble at its peak of the event, and energy over the event.
    """

    score: float
    mean_return: float
    gap: float
    energy_cost: float
    discomfort: float
    power_kw: FloatArray
    curtailed_peak_kw: float
    curtailed_kwh: float


def event_outcome(model: EnsembleModel, policy: Any) -> Outcome:
    """Evaluate a policy (T, n, n) exactly on the model's own dynamics."""
    check_instance(model, EnsembleModel, "model")
    gamma, start = model.discomfort_penalty, model.initial
    best = -float(start @ (solve_standard(model).cost_to_go[0] + model.utility[0]))
    returns = [
        -float(start @ (evaluate_policy(q, model.default, model.utility, gamma)[0] + model.utility[0]))
        for q in (policy, model.default_policy)
    ]
    rho, idle = occupancy(policy, start), occupancy(model.default_policy, start)
    power, uncontrolled = (model.buildings * (x @ model.power_kw) for x in (rho, idle))
    divergence = rel_entr(policy, model.default_policy).sum(axis=-1)
    window = np.arange(model.horizon + 1) > 0 if model.event is None else model.event.in_event
    peak = int(np.argmax(np.where(window, uncontrolled, -np.inf)))
    curtailed = uncontrolled - power
    energy = np.nan
    if model.event is not None:
        energy = float((model.event.energy_price[1:] * power[1:]).sum()) * model.step_hours / model.buildings
    return Outcome(
        score=score(returns[0], returns[1], best),
        mean_return=returns[0],
        gap=max(0.0, best - returns[0]),  # no policy beats the optimum but by rounding
        energy_cost=energy,
        discomfort=gamma * float((rho[:-1] * divergence).sum()),
        power_kw=power,
        curtailed_peak_kw=float(curtailed[peak]),
        curtailed_kwh=float(curtailed[window].sum()) * model.step_hours,
    )


def score(mean_return: float, uncontrolled: float, optimum: float) -> float:
    """Place a return between the uncontrolled ensemble (0) and the optimum (100).

    When nothing can be gained the two coincide, and every policy that loses
    nothing scores 100.
    """
    gain = optimum - uncontrolled
    if gain <= 1e-12 * max(1.0, abs(optimum)):
        return 100.0 if mean_return >= optimum - 1e-9 * max(1.0, abs(optimum)) else -np.inf
    value = 100.0 * (mean_return - uncontrolled) / gain
    return 0.0 if abs(value) < 1e-9 else value  # rounding alone
