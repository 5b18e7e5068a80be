"""The event as it is played: where its peak is, how strong an ad-hoc shed may be, and plans made on releases."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import bisect

from dp_ensemble_env.agents.practice import shed_prices
from dp_ensemble_env.control.policies import standard_policy, tilted_policy
from dp_ensemble_env.envs.actions import price_tilts
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.reporting.score import event_outcome

FloatArray = NDArray[np.float64]


def peak_time(model: EnsembleModel, uncontrolled_kw: FloatArray) -> int:
    """Return the time of the peak within the event: the customer baseline's, or else the uncontrolled load's."""
    event = model.event
    if event is None:
        return 1 + int(np.argmax(uncontrolled_kw[1:]))
    load = uncontrolled_kw if event.baseline_kw is None else event.baseline_kw
    return int(np.argmax(np.where(event.in_event, load, -np.inf)))


def shed_policy(model: EnsembleModel, shed: float) -> FloatArray:
    """Return the ad-hoc practice with a shed of any strength; one is the strength that is played."""
    return tilted_policy(model, price_tilts(model, shed_prices(model, shed)))


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
    """Mean power, mean curtailment at the peak with its standard error, and mean kWh of plans made on one release."""
    rng = np.random.default_rng([seed, int(k), 7])
    mechanism = DirichletMechanism(k)
    plans = (standard_policy(model.with_default(mechanism.release(model.default, rng).matrix)) for _ in range(count))
    found = [event_outcome(model, plan) for plan in plans]
    free = event_outcome(model, model.default_policy).power_kw[peak]
    peaks = np.array([free - outcome.power_kw[peak] for outcome in found])
    error = float(peaks.std(ddof=1) / math.sqrt(count))
    power = np.mean([outcome.power_kw for outcome in found], axis=0)
    return power, float(peaks.mean()), error, float(np.mean([outcome.curtailed_kwh for outcome in found]))
