"""What the paper misprints, shown by computation: E2 and E3 against Monte Carlo, E8 by reading the matrix back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma

from dp_ensemble_env.cost import average_cost_as_printed
from dp_ensemble_env.lsmdp import solve
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.policies import (
    average_policy,
    average_policy_as_printed,
    digamma_kernel,
    expansion_values,
    solve_standard,
    taylor_kernel,
)
from dp_ensemble_env.privacy.mechanism import DirichletMechanism


def misprint_line(model: EnsembleModel, time: int, state: int, k: float, draws: int, seed: int) -> dict[str, Any]:
    """Compare the printed and the corrected Proposition 3 and Corollary 3 with Monte Carlo, for one visit of a row.

    All of them hold z at its true value, as the paper does, so that they mean
    the same: the expected policy, and the expected γ KL(policy ‖ optimum).
    """
    gamma, solution = model.discomfort_penalty, solve_standard(model)
    support = np.flatnonzero(model.default[state])
    p, log_z = model.default[state, support], solution.log_desirability[time + 1, support]
    optimum = solution.policy[time, state, support]
    logs = DirichletMechanism(k).sample_log(p, draws, np.random.default_rng([seed, int(k), 8])) + log_z
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    plans = np.exp(logs)
    losses = gamma * np.sum(plans * (logs - np.log(optimum)), axis=1)
    ratio = optimum / p
    printed = average_policy_as_printed(model, k)[time, state, support]
    corrected = model.log_kernel.dense(expansion_values(model, solution, k))[time, state, support]
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
    """Read the true matrix back from the first step of a noise-aware policy and its z; return the largest error."""
    kernel = taylor_kernel(model, k) if method == "taylor" else digamma_kernel(model, k)
    found = solve(kernel, model.utility, model.discomfort_penalty)
    log_gain = found.log_desirability[0] - model.utility[0] / model.discomfort_penalty
    worst = 0.0
    for b in range(model.n_states):
        for a in np.flatnonzero(found.policy[0, b] > 1e-300):
            # policy = K z / g, so K follows from what was published, and K is a rising function of P.
            log_k = math.log(found.policy[0, b, a]) - found.log_desirability[1, a] + log_gain[b]

            def excess(log_p: float, log_k: float = log_k) -> float:
                p = math.exp(log_p)
                if method == "taylor":
                    return log_p - (1 - p) / (2 * p * (k + 1)) - log_k
                return float(digamma(k * p) - digamma(k)) - log_k

            top = 0.0 if excess(0.0) > 0 else 1e-9
            p = math.exp(brentq(excess, -25.0, top, xtol=1e-15, rtol=1e-14))
            worst = max(worst, abs(p - float(model.default[b, a])))
    return worst
