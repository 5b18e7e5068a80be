"""What the paper misprints, shown by computation: E2 and E3 against Monte Carlo, E8 by reading the matrix back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma

from dp_ensemble_env.control.cost import average_cost_as_printed
from dp_ensemble_env.control.dynamics import default_kernel
from dp_ensemble_env.control.policies import (
    average_policy,
    average_policy_as_printed,
    digamma_kernel,
    expansion_values,
    solve_standard,
    taylor_kernel,
)
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism

FloatArray = NDArray[np.float64]


def misprint_line(model: EnsembleModel, time: int, state: int, k: float, draws: int, seed: int) -> dict[str, Any]:
    """Compare the printed and the corrected Proposition 3 and Corollary 3 with Monte Carlo, for one visit of a row.

    All of them hold z at its true value, as the paper does, so that they mean
    the same: the expected policy, and the expected γ KL(policy ‖ optimum).
    """
    gamma, solution = model.discomfort_penalty, solve_standard(model)
    support = np.flatnonzero(model.default[state])
    p, log_z = model.default[state, support], solution.log_desirability[time + 1, support]
    log_optimum = np.log(p) + log_z
    log_optimum -= np.logaddexp.reduce(log_optimum)
    optimum = np.exp(log_optimum)
    logs = DirichletMechanism(k).sample_log(p, draws, np.random.default_rng([seed, int(k), 8])) + log_z
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    plans = np.exp(logs)
    losses = gamma * np.sum(plans * (logs - log_optimum), axis=1)  # logarithms are finite where plans underflow
    ratio = optimum / p
    printed = average_policy_as_printed(model, k)[time, state, support]
    corrected = default_kernel(model).dense(expansion_values(model, solution, k))[time, state, support]
    exact = average_policy(model, k, "exact")[time, state, support]
    mean = plans.mean(axis=0)
    return {
        "k": k,
        "state": state,
        "printed policy": printed.tolist(),
        "corrected policy": corrected.tolist(),
        "exact policy": exact.tolist(),
        "Monte Carlo policy": mean.tolist(),
        "Monte Carlo policy error": (plans.std(axis=0, ddof=1) / math.sqrt(draws)).tolist(),
        "printed sum": float(printed.sum()),
        "printed L1": float(np.abs(printed - mean).sum()),
        "corrected L1": float(np.abs(corrected - mean).sum()),
        "exact L1": float(np.abs(exact - mean).sum()),
        "printed cost": float(average_cost_as_printed(model, k)[time, state]),
        "corrected cost": gamma / (2 * (k + 1)) * float(np.sum(ratio * (1 - optimum))),
        "Monte Carlo cost": float(losses.mean()),
        "Monte Carlo cost error": float(losses.std(ddof=1) / math.sqrt(draws)),
    }


def recovery_error(model: EnsembleModel, method: str, k: float) -> float:
    """Read the true matrix back from the last step of a noise-aware policy alone; return the largest error.

    There z is exp(U_T / γ), which is public, and the rows of the matrix sum to
    one, so that nothing but the policy has to be known.
    """
    kernel = taylor_kernel(model, k) if method == "taylor" else digamma_kernel(model, k)
    log_z = model.utility[-1] / model.discomfort_penalty
    logs = np.full(model.default.shape, -np.inf)  # of the policy, which itself may underflow
    rows = np.repeat(np.arange(model.n_states), np.diff(kernel.indptr))
    logs[rows, kernel.indices] = kernel.log_values[0] + log_z[kernel.indices]
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    return float(np.abs(read_back(logs, log_z, method, k) - model.default).max())


def read_back(log_policy: FloatArray, log_z: FloatArray, method: str, k: float) -> FloatArray:
    """Return the matrix P of which the policy is the row-normalised K(P) z."""
    found = np.zeros_like(log_policy)
    for b, row in enumerate(log_policy):
        support = np.flatnonzero(row > -np.inf)
        logs = row[support] - log_z[support]  # log K up to one constant a row

        def entries(shift: float, logs: FloatArray = logs) -> FloatArray:
            return np.array([_probability(value + shift, method, k) for value in logs])

        # The likeliest entry lies between an equal share and one.
        low, high = (_log_kernel(p, method, k) - logs.max() for p in (1 / len(logs), 1.0))
        shift = low if low == high else brentq(lambda c: entries(c).sum() - 1.0, low - 1e-9, high + 1e-9, xtol=1e-14)  # noqa: B023
        found[b, support] = entries(shift)
    return found


def _log_kernel(p: float, method: str, k: float) -> float:
    if method == "taylor":
        return math.log(p) - (1 - p) / (2 * p * (k + 1))
    return float(digamma(k * p) - digamma(k))


def _probability(log_k: float, method: str, k: float) -> float:
    """Invert the kernel, which rises in p."""
    low, high = -25.0, 1.0
    if _log_kernel(math.exp(low), method, k) >= log_k:
        return 0.0
    return math.exp(brentq(lambda x: _log_kernel(math.exp(x), method, k) - log_k, low, high, xtol=1e-15, rtol=1e-14))
