"""Loads that run programmes: machines that wait, start, pass through phases of known power, and wait again.

The levels of power are public; in which order a machine visits them, how often it starts and how long it dwells is its
programme, and private. States are ordered by power, as a meter would show them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.model import DECLARABLE, EnsembleModel

FloatArray = NDArray[np.float64]

HOURS = 0.25
#: Weights of the walk that the scale of actions is computed with: as sticky as a programme is long.
STAY, DECAY = 10.0, 0.9


def programme(phases_kw: ArrayLike, idle_kw: float, start: float, dwell: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the default matrix of a machine and its power levels, in ascending order.

    Parameters
    ----------
    phases_kw : array_like of shape (p,)
        Power in each phase, in the order of the programme.
    idle_kw : float
        Power while it waits.
    start : float
        Probability that a waiting machine starts.
    dwell : ndarray of shape (p,)
        Probability that it stays in a phase for another step.
    """
    power = np.concatenate([[idle_kw], np.asarray(phases_kw, float)])
    chance = np.concatenate([[1.0 - start], dwell])
    matrix = np.diag(chance) + np.diag(1.0 - chance[:-1], 1)
    matrix[-1, 0] = 1.0 - chance[-1]
    order = np.argsort(power, kind="stable")
    return matrix[np.ix_(order, order)], power[order]


def resting_start(n: int, waiting: float) -> FloatArray:
    """Return the start that is declared: a share waits, the rest is spread evenly over the phases."""
    initial = np.full(n, (1.0 - waiting) / (n - 1))
    initial[0] = waiting
    return initial


def with_public_scale(model: EnsembleModel, safety: float) -> EnsembleModel:
    """Add the scale of actions: half the span of the optimal tilts on a public sticky walk, times `safety`."""
    distance = np.abs(np.subtract.outer(np.arange(model.n_states), np.arange(model.n_states)))
    walk = np.where(distance == 0, STAY, DECAY**distance)
    tilts = solve_standard(model.with_default(walk / walk.sum(axis=1, keepdims=True))).tilt
    return model.override(tilt_scale=safety * 0.5 * np.ptp(tilts, axis=-1).max(axis=1))


def assemble(
    matrix: FloatArray,
    power: FloatArray,
    prices: FloatArray,
    context: Context,
    *,
    waiting: float,
    discomfort_penalty: float,
    safety: float,
    times: Any,
    **overrides: Any,
) -> EnsembleModel:
    """Build the model of machines that pay `prices` (c,) in dollars per kWh, the price being known from the context."""
    utility = np.zeros((len(times), len(prices), len(power)))
    utility[1:] = -HOURS * prices[:, None] * power
    model = EnsembleModel(
        matrix,
        power,
        utility,
        discomfort_penalty,
        initial=resting_start(len(power), waiting),
        times=times,
        context=context,
        spread_start=True,
        public_fields=DECLARABLE,  # synthetic; levels and start are stipulated, not measured
    )
    given = overrides.pop("tilt_scale", None)
    model = model.override(**overrides) if overrides else model
    return with_public_scale(model, safety) if given is None else model.override(tilt_scale=given)


def stationary(transition: FloatArray) -> FloatArray:
    """Return the distribution that a chain settles to."""
    n = len(transition)
    equations = np.vstack([transition.T - np.eye(n), np.ones(n)])
    shares: FloatArray = np.linalg.lstsq(equations, np.append(np.zeros(n), 1.0), rcond=None)[0]
    shares = np.maximum(shares, 0.0)
    return shares / float(shares.sum())
