"""Attack the Dirichlet mechanism and what only looks like it, and compare what is shown with what is claimed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.privacy.accounting.compose import RowGroup, composed_epsilon
from dp_ensemble_env.privacy.accounting.divergence import adjacent_row, worst_case_epsilon
from dp_ensemble_env.privacy.audit import audit_epsilon, audit_pair
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.tools.console import Monitor
from dp_ensemble_env.tools.validation import check_count, check_positive

#: Confidence of each lower bound, and draws of each input.
CONFIDENCE, DRAWS = 1.0 - 1e-6, 400_000


@dataclass(frozen=True)
class AttackSettings:
    """The mechanism that is attacked, and how hard."""

    k: float = 50.0
    """Concentration of the Dirichlet mechanism."""
    floor: float = 0.1
    """Least entry before the draw."""
    h: float = 0.03
    """Adjacency: L1 distance of two rows."""
    delta: float = 0.05
    """Probability of exceeding epsilon."""
    draws: int | None = None
    """Draws of each input: 400,000 unless given, 20,000 with --participants."""
    samples: int = 16
    """Draws in the attacked average."""
    seed: int = 0
    """Seed of the attack."""

    def __post_init__(self) -> None:
        check_positive(self.k, "k")
        check_count(DRAWS if self.draws is None else self.draws, "draws", 4)
        check_count(self.samples, "samples")
        if self.floor * 3 + self.h / 2 > 1 or self.floor <= 0:
            raise ValueError(f"floor must lie above 0 and leave space for rows that differ by h={self.h:g}.")


@dataclass(frozen=True)
class Attack:
    """One attack: a lower bound on epsilon that it shows, what is claimed, and whether the two go together."""

    name: str
    shown: float
    claimed: str
    verdict: str
    good: bool


def attack(settings: AttackSettings, monitor: Monitor | None = None) -> list[Attack]:
    """Attack the mechanism, two mutants, a deterministic policy and an average of draws."""
    k, h, delta, omega = settings.k, settings.h, settings.delta, settings.floor
    count = DRAWS if settings.draws is None else settings.draws
    rng, monitor = np.random.default_rng(settings.seed), monitor or Monitor()
    row = np.array([omega + h / 2, omega, 1 - 2 * omega - h / 2])  # the worst row: its pair dominates all others
    claim = worst_case_epsilon(delta, k, h, omega)
    composed = composed_epsilon(delta, [RowGroup(k, omega, h, settings.samples)])

    def bound(factor: float, draws: int, samples: int = 1) -> float:
        drawn = DirichletMechanism(k * factor)
        return audit_epsilon(drawn, row, 0, 1, h, delta, draws, rng, samples=samples, confidence=CONFIDENCE)

    said = f"{claim:.4g}"
    plan: list[tuple[str, Callable[[], float], str, str, Callable[[float], bool]]] = [
        ("the mechanism", lambda: bound(1, count), said, "below the claim", lambda shown: shown <= claim),
        ("mutant with 2k", lambda: bound(2, count), said, "caught", lambda shown: shown > claim),
        ("mutant with 4k", lambda: bound(4, count), said, "caught", lambda shown: shown > claim),
        ("Taylor on the truth", lambda: audit_pair(taylor_row(k), row, adjacent_row(row, 0, 1, h)), "inf", "unbounded",
         math.isinf),
        (f"mean of {settings.samples} draws", lambda: bound(1, max(4, count // 4), settings.samples),
         f"{claim:.4g} .. {composed:.4g}", "tracks the sum", lambda shown: claim < shown <= composed),
    ]  # fmt: skip
    found = []
    monitor.stage("attacking", len(plan))
    for name, run, claimed, verdict, judge in plan:
        shown = run()
        good = judge(shown)
        found.append(Attack(name, shown, claimed, verdict if good else f"NOT {verdict}", good))
        monitor.advance(len(found), name)
    return found


def taylor_row(k: float) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """Return the Taylor policy of one step with a fixed desirability, as a function of the true row."""
    log_z = np.array([0.9854, 0.0, 2.2244])

    def policy(row: NDArray[np.float64]) -> NDArray[np.float64]:
        weights = np.log(row) - (1 - row) / (2 * row * (k + 1)) + log_z
        weights = np.exp(weights - weights.max())
        total: NDArray[np.float64] = weights / weights.sum()
        return total

    return policy
