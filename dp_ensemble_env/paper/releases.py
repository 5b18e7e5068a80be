"""What the mechanism makes of one row and its neighbour: clouds of releases, and how private they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import betainc, digamma

from dp_ensemble_env.paper.row import H, PickedRow
from dp_ensemble_env.privacy.accounting.compose import RowGroup, composed_epsilon
from dp_ensemble_env.privacy.accounting.divergence import pair_delta, pair_epsilon, worst_case_epsilon
from dp_ensemble_env.privacy.accounting.theorem2 import theorem2_epsilon
from dp_ensemble_env.privacy.audit import audit_samples, epsilon_lower_bound
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism

FloatArray = NDArray[np.float64]
#: The paper's probability of failure.
DELTA = 0.05
#: Draws whose policies the paper averages.
DRAWS = 1000
#: Confidence of what an attack shows.
CONFIDENCE = 0.99


def release_clouds(row: PickedRow, k: float, points: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Draw releases of the row and of its neighbour."""
    rng = np.random.default_rng([seed, int(k), 4])
    mechanism = DirichletMechanism(k)
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
    formulas = {"taylor": np.log(p) - (1 - p) / (2 * p * (k + 1)), "digamma": digamma(k * p) - digamma(k)}
    return {name: float(np.abs(value - mean).max()) for name, value in formulas.items()}


def epsilons(row: PickedRow, ks: Sequence[float]) -> dict[str, list[float]]:
    """Privacy loss at δ = 0.05 for each k: this pair of rows, and bounds for all rows with such entries."""
    omega = row.least
    with np.errstate(over="ignore"):  # the accountant divides by masses near zero
        composed = [composed_epsilon(DELTA, [RowGroup(k, omega, H, DRAWS)]) for k in ks]
    return {
        "Theorem 2, one row": [theorem2_epsilon(k, H, omega, row.rest, 2, DELTA) for k in ks],
        "exact, worst row": [worst_case_epsilon(DELTA, k, H, omega) for k in ks],
        "exact, this pair": [pair_epsilon(DELTA, row.row, row.down, row.up, k, H) for k in ks],
        "average of 1000, composed": composed,
    }


def attack_average(row: PickedRow, log_z: FloatArray, k: float, count: int, seed: int) -> float:
    """Lower bound on the ε of a policy averaged over `DRAWS` private copies of the row, from `count` such averages."""
    mechanism = DirichletMechanism(k)

    def statistic(p: FloatArray, rng: np.random.Generator) -> FloatArray:
        total = np.full((count, len(row.successors)), -np.inf)
        for _ in range(DRAWS):  # in logarithms, as strong incentives make some entries very small
            logs = mechanism.sample_log(p[row.successors], count, rng) + log_z[row.successors]
            total = np.logaddexp(total, logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))
        down, up = np.searchsorted(row.successors, [row.down, row.up])
        difference: FloatArray = total[:, down] - total[:, up]
        return difference

    first, second = np.random.default_rng([seed, int(k), 9]).spawn(2)
    found = audit_samples(statistic(row.row, first), statistic(row.adjacent, second), DELTA, confidence=CONFIDENCE)
    return found.epsilon


def attack_ceiling(count: int) -> float:
    """Return the ε that an attacker shows who is right in every trial: half of `count` averages of either row."""
    trials = count - count // 2
    return epsilon_lower_bound(trials, 0, trials, DELTA, CONFIDENCE)
