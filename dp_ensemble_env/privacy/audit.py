r"""An attacker, who shows how private a mechanism is at the very best.

The attacker is told two adjacent inputs `p` and `q`, sees outputs, and guesses which input made them. By the
Neyman-Pearson lemma the best guess thresholds the likelihood ratio; for the Dirichlet mechanism that is monotone in
:math:`\ln x_i - \ln x_j`, whatever `k` is, so the same attack works on an implementation that does not draw with the
`k` it claims. If the mechanism is :math:`(\varepsilon, \delta)`-private, then for every threshold

.. math::

    \mathrm{TPR} \le e^{\varepsilon}\,\mathrm{FPR} + \delta
    \quad\Longrightarrow\quad
    \varepsilon \ge \ln\frac{\mathrm{TPR} - \delta}{\mathrm{FPR}} .

The threshold and the direction are chosen on one half of the draws; on the other half the two rates get Clopper-Pearson
bounds (TPR from below, FPR from above, each at half of the error probability). What comes out is a *lower* confidence
bound on the ε of the mechanism: above the claim, the claim is false; below it, the claim survives.

**Canaries.** A canary is one participant whose presence an attacker tries to guess, who knows everybody's data and the
mechanism, and sees what came of the fleet with or without the canary: noisy sums, a release, a plan, a trained agent.
The guess is a linear statistic, Fisher's discriminant, fitted to the first half of the draws and judged on the second.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dp_ensemble_env.privacy.accounting.calibrate import gaussian_epsilon
from dp_ensemble_env.privacy.accounting.compose import total_epsilon
from dp_ensemble_env.privacy.accounting.divergence import adjacent_row
from dp_ensemble_env.privacy.accounting.losses import GaussianLoss
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms.base import Event
from dp_ensemble_env.tools.validation import as_float_array, check_choice, check_count, check_in_range, check_rng

FloatArray = NDArray[np.float64]
Kind = Literal["stays", "jumps"]
_RIDGE = 1e-10  #: Share of a feature's own variance that is added to it, so that a discriminant always exists.
_SEEN = 1000
#: From hits, alarms, trials, delta and confidence to a lower bound on epsilon.
Bound = Callable[[int, int, int, float, float], float]


@dataclass(frozen=True)
class AuditResult:
    """The result of an attack."""

    epsilon: float  #: Lower confidence bound on the mechanism's ε at `delta`; 0 if nothing was shown.
    delta: float
    confidence: float
    true_positive: float  #: Observed rate on the second half of the draws.
    false_positive: float
    threshold: float  #: Chosen on the first half.
    draws: int  #: Draws per input, both halves together.

    def __str__(self) -> str:
        bound = "unbounded" if math.isinf(self.epsilon) else f">= {self.epsilon:.4g}"
        return (
            f"epsilon {bound} at delta={self.delta:g} with confidence {self.confidence:.6g} "
            f"(hits {self.true_positive:.4g}, false alarms {self.false_positive:.4g}, {self.draws} draws per input)"
        )


def epsilon_lower_bound(hits: int, alarms: int, trials: int, delta: float, confidence: float) -> float:
    """Lower confidence bound on ε from `hits` and false `alarms` in `trials` draws of each input."""
    low, high = rates_bound(hits, alarms, trials, confidence)
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def gaussian_lower_bound(hits: int, alarms: int, trials: int, delta: float, confidence: float) -> float:
    r"""Lower confidence bound on the ε that Gaussian noise must claim at `delta`, to be consistent with the rates.

    With shift μ (one over the noise multiplier) :math:`\mathrm{TPR} \le \Phi(\Phi^{-1}(\mathrm{FPR}) + \mu)` for
    every attack, so the rates bound μ from below, and μ gives ε at any δ (Nasr et al., 2023).
    """
    low, high = rates_bound(hits, alarms, trials, confidence)
    shift = float(special.ndtri(low) - special.ndtri(high))
    return gaussian_epsilon(delta, 1.0 / shift) if shift > 0 else 0.0


def rates_bound(hits: int, alarms: int, trials: int, confidence: float) -> tuple[float, float]:
    """Bound the rate of hits from below and that of false alarms from above (Clopper-Pearson)."""
    error = (1.0 - confidence) / 2.0
    # Quantiles of Beta distributions.
    low = 0.0 if hits == 0 else float(special.betaincinv(hits, trials - hits + 1, error))
    return low, 1.0 if alarms == trials else float(special.betainccinv(alarms + 1, trials - alarms, error))


def audit_samples(
    first: ArrayLike,
    second: ArrayLike,
    delta: float,
    *,
    confidence: float = 0.99,
    candidates: int = 400,
    bound: Bound = epsilon_lower_bound,
) -> AuditResult:
    """Audit from the attacker's statistic under the two inputs, as many independent values of each.

    The bound holds with probability `confidence`. On the first half, `candidates` thresholds are tried in each
    direction. For a mechanism that claims Gaussian noise use `gaussian_lower_bound` as `bound`.
    """
    p, q = as_float_array(first, "first", 1), as_float_array(second, "second", 1)
    if len(p) != len(q) or len(p) < 4:
        raise ValueError(f"both inputs need the same number of draws, at least 4, got {len(p)} and {len(q)}.")
    check_in_range(delta, "delta", 0, 1, open_high=True)
    check_in_range(confidence, "confidence", 0, 1, open_low=True, open_high=True)
    half = len(p) // 2
    sign, threshold = _choose(p[:half], q[:half], delta, confidence, candidates, bound)
    if sign < 0:  # the roles exchanged: small values, and the second input, are what is looked for
        p, q = -q, -p
    trials = len(p) - half
    hits, alarms = int((p[half:] > threshold).sum()), int((q[half:] > threshold).sum())
    epsilon = bound(hits, alarms, trials, delta, confidence)
    return AuditResult(epsilon, delta, confidence, hits / trials, alarms / trials, threshold, len(p))


def _choose(
    p: FloatArray, q: FloatArray, delta: float, confidence: float, candidates: int, bound: Bound
) -> tuple[int, float]:
    """Direction and threshold with the best bound on these draws."""
    best = (-math.inf, 1, 0.0)
    for sign, (hit, alarm) in ((1, (p, q)), (-1, (-q, -p))):
        hit, alarm = np.sort(hit), np.sort(alarm)
        levels = np.unique(np.quantile(np.concatenate([hit, alarm]), np.linspace(0.001, 0.999, candidates)))
        hits = len(hit) - np.searchsorted(hit, levels, side="right")
        alarms = len(alarm) - np.searchsorted(alarm, levels, side="right")
        bounds = [bound(int(a), int(b), len(hit), delta, confidence) for a, b in zip(hits, alarms, strict=True)]
        index = int(np.argmax(bounds))
        if bounds[index] > best[0]:
            best = (bounds[index], sign, float(levels[index]))
    return best[1], best[2]


def audit_epsilon(
    mechanism: Any,
    row: ArrayLike,
    i: int,
    j: int,
    h: float,
    delta: float,
    draws: int,
    rng: np.random.Generator | int,
    *,
    samples: int = 1,
    confidence: float = 0.99,
) -> float:
    """Attack the release of one row, or the *average* of `samples` such releases (E9); return a lower bound on ε.

    `mechanism` is an object with ``sample_log(row, size, rng)``, such as a `DirichletMechanism`; its `k` is not
    used. The row's neighbour has h/2 less in entry `i` and h/2 more in entry `j`; each is drawn `draws` times.
    """
    draws, samples = check_count(draws, "draws", 4), check_count(samples, "samples")
    values = as_float_array(row, "row", 1)
    ratios = []
    for one, generator in zip((values, adjacent_row(values, i, j, h)), check_rng(rng).spawn(2), strict=True):
        logs = mechanism.sample_log(one, draws, generator)
        if samples > 1:
            total = np.exp(logs)
            for _ in range(samples - 1):
                total += np.exp(mechanism.sample_log(one, draws, generator))
            logs = np.log(total / samples)
        ratios.append(logs[:, i] - logs[:, j])  # monotone in the likelihood ratio
    return audit_samples(ratios[0], ratios[1], delta, confidence=confidence).epsilon


def audit_pair(function: Callable[[Any], ArrayLike], first: Any, second: Any) -> float:
    """Attack a deterministic function of two adjacent inputs (E8): infinity if it tells them apart, else 0."""
    outputs = [np.asarray(function(copy.copy(one))) for one in (first, first, second)]
    if not np.array_equal(outputs[0], outputs[1]):
        raise ValueError("the function is random: two calls on one input differ; use audit_samples on its outputs.")
    # "Is the output the first one?" is answered rightly with certainty: TPR = 1, FPR = 0.
    return 0.0 if np.array_equal(outputs[0], outputs[2]) else math.inf


# ------------------------------------------------------------------ canaries
def canary_counts(n_states: int, kind: Kind = "stays") -> NDArray[np.int64]:
    """Return the transitions of a canary, which was seen often at every level.

    ``"stays"``: at its level, which goes into cells that a release keeps, but for one jump from each level to the
    farthest, which nobody else makes. ``"jumps"``: always to the farthest level, into cells that hold little else.
    """
    levels = np.arange(n_states)
    farthest = np.where(levels < (n_states + 1) // 2, n_states - 1, 0)
    counts = np.zeros((n_states, n_states), dtype=np.int64)
    counts[levels, levels if check_choice(kind, "kind", ("stays", "jumps")) == "stays" else farthest] = _SEEN
    counts[levels, farthest] += 1
    return counts


def with_canary(fleet: Fleet, kind: Kind = "stays") -> Fleet:
    """Return the adjacent fleet: the canary takes part as well, seen often in every row that the fleet has.

    Where rows are more than moves between levels, it always takes the first decision (``"stays"``, but for one time the
    last) or the last one (``"jumps"``).
    """
    if fleet.shape == (fleet.n_states, fleet.n_states):
        canary = canary_counts(fleet.n_states, kind)
    else:
        canary = np.zeros(fleet.drawn_shape, dtype=np.int64)
        canary[..., 0 if check_choice(kind, "kind", ("stays", "jumps")) == "stays" else -1] = _SEEN
        canary[..., -1] += 1
    return Fleet(np.concatenate([fleet.counts.astype(np.int64), canary[None]]), classes=fleet.classes)


@dataclass(frozen=True)
class Claim:
    """What one or several draws together claim: ε at δ, and how attacks on them are measured."""

    epsilon: float
    delta: float
    bound: Bound = epsilon_lower_bound  #: From the rates of an attack to a lower bound on ε at δ.

    @classmethod
    def of(cls, *events: Event, delta: float) -> Claim:
        """Compose the events as a ledger does."""
        counted = [pair for event in events for pair in event.losses().counted("sequential")]
        gaussian = all(isinstance(loss, GaussianLoss) for loss, _ in counted)
        return cls(total_epsilon(delta, counted), delta, gaussian_lower_bound if gaussian else epsilon_lower_bound)


def discriminant(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return Fisher's linear discriminant: the direction in which two samples (draws, features) differ most."""
    scale = np.concatenate([first, second]).std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    apart = (first.mean(axis=0) - second.mean(axis=0)) / scale
    within = 0.5 * (np.cov(first / scale, rowvar=False) + np.cov(second / scale, rowvar=False))
    within = np.atleast_2d(within) + _RIDGE * np.eye(len(scale))
    return np.asarray(np.linalg.solve(within, apart) / scale)


def guess_canary(first: FloatArray, second: FloatArray, claim: Claim, *, confidence: float) -> AuditResult:
    """Guess from features (draws, features) made with the canary, and without it; the halves are kept apart."""
    half = len(first) // 2
    direction = discriminant(first[:half], second[:half])
    return audit_samples(
        first @ direction, second @ direction, claim.delta, confidence=confidence, bound=claim.bound, candidates=100
    )
