"""Laplace noise on participants' contributions: δ = 0.

As `gaussian`, with contributions whose L1 norm is at most one: the sum has L1 sensitivity 1.3, and Laplace
noise of scale 1.3/ε on every coordinate makes a draw (ε, 0)-private. For publication the noise is discrete; of that
OpenDP proves (ε, 0) and no more, so it is what a published draw is charged for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dp_ensemble_env.privacy.accounting.calibrate import check_epsilon
from dp_ensemble_env.privacy.accounting.losses import LaplaceLoss, Losses, PureLoss
from dp_ensemble_env.privacy.mechanisms.fleet_sums import COUNT, PROVEN, FleetEvent, NoisySums
from dp_ensemble_env.privacy.mechanisms.noise import GRID, require_source


@dataclass(frozen=True, kw_only=True)
class LaplaceEvent(FleetEvent, type="laplace"):
    """A Laplace draw: its ε (L1 sensitivity over scale) and the number of levels."""

    noise: ClassVar[str] = "epsilon"
    epsilon: float

    @property
    def cost(self) -> float:
        """The ε that OpenDP must prove for a published draw."""
        return self.epsilon

    def losses(self) -> Losses:
        """Return one loss for all rows: Laplace, or for a published draw the proven ε."""
        return Losses.of({PureLoss(self.epsilon) if self.seeding == "os-entropy" else LaplaceLoss(self.epsilon): 1})

    @classmethod
    def claims(cls, events: Sequence[LaplaceEvent], rows: str | int) -> tuple[str, list[str]]:
        """Name the noise and the unit of protection."""
        return " with Laplace noise (delta = 0 for each)", cls.terms(events, PROVEN.format("its pure ε"))


@dataclass(frozen=True)
class LaplaceMechanism(NoisySums):
    """Release the mean behaviour of participants with Laplace noise; each draw is (epsilon, 0)-private."""

    name: ClassVar[str] = "laplace"
    norm: ClassVar[int] = 1
    noise: ClassVar[str] = "laplace"
    sensitivity: ClassVar[float] = 1.0 + COUNT
    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    @staticmethod
    def tail(probability: float) -> float:
        """Return how many deviations (√2 scales) a Laplace variate exceeds with twice this probability."""
        return math.log(1.0 / probability) / math.sqrt(2.0)

    def scale(self, event: Any) -> float:
        """Return the scale of the noise on each sum; published noise lies on a grid, which the scale covers."""
        if event.seeding != "os-entropy":
            return self.sensitivity / self.epsilon
        return math.ceil(self.sensitivity * GRID) / GRID / self.epsilon * (1.0 + 1e-12)

    def deviation(self, event: Any) -> float:
        """Return the standard deviation of that noise."""
        return math.sqrt(2.0) * self.sensitivity / self.epsilon

    def describe(self, **about: Any) -> LaplaceEvent:
        """Return the event of a draw."""
        require_source(about["seeding"])
        return LaplaceEvent(epsilon=float(self.epsilon), **about)
