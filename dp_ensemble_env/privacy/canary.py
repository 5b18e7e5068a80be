"""A canary: one participant whose presence an attacker tries to guess.

The attacker knows everybody's data, the mechanism and its settings, and is given what was
made from the fleet with the canary or without it: noisy sums, a release, a plan, a trained agent. If the release
is (ε, δ)-private for participants, then so is all that is made of it, and no guess is better than
that allows. The guess is a linear statistic: its direction (Fisher's discriminant) and its threshold are fitted to
the first half of the draws, and the second half tells how good it is. What is shown is a lower confidence bound on
ε: above the claim, the claim is false.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.privacy.accounting.losses import losses, total_epsilon
from dp_ensemble_env.privacy.audit import AuditResult, Bound, audit_samples, epsilon_lower_bound, gaussian_lower_bound
from dp_ensemble_env.privacy.fleet import Fleet
from dp_ensemble_env.privacy.mechanisms import Event
from dp_ensemble_env.privacy.mechanisms.gaussian import GaussianEvent
from dp_ensemble_env.tools.validation import check_choice

FloatArray = NDArray[np.float64]
Kind = Literal["stays", "jumps"]
#: Share of a feature's own variance that is added to it, so that a discriminant always exists.
_RIDGE = 1e-10
_SEEN = 1000


def canary_counts(n_states: int, kind: Kind = "stays") -> NDArray[np.int64]:
    """Return the transitions of a canary, which was seen often at every level.

    Parameters
    ----------
    n_states : int
    kind : {"stays", "jumps"}
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
    """What one or several draws together claim: ε at δ, and how attacks on them are measured.

    Attributes
    ----------
    epsilon, delta : float
    bound : callable
        From the rates of an attack to a lower bound on ε at δ.
    """

    epsilon: float
    delta: float
    bound: Bound = epsilon_lower_bound

    @classmethod
    def of(cls, *events: Event, delta: float) -> Claim:
        """Compose the events as a ledger does."""
        counted = [pair for event in events for pair in losses(event, "sequential")]
        gaussian = all(isinstance(event, GaussianEvent) for event in events)
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
