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
from dp_ensemble_env.privacy.mechanisms.fleet_sums import COUNT, PROVEN, FleetEvent, NoisySums, laplace_tail
from dp_ensemble_env.privacy.mechanisms.noise import GRID
from dp_ensemble_env.tools.validation import check_positive


@dataclass(frozen=True, kw_only=True)
class LaplaceEvent(FleetEvent, type="laplace"):
    """A Laplace draw: its ε (L1 sensitivity over scale) and the number of levels."""

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.epsilon, "epsilon")

    def losses(self) -> Losses:
        """Return one loss, as one draw covers all rows: Laplace, or of a published draw the proven ε."""
        return Losses.of({PureLoss(self.epsilon) if self.seeding == "os-entropy" else LaplaceLoss(self.epsilon): 1})

    def stream_key(self) -> dict[str, Any]:
        """Return what is hashed into the stream of a seeded draw; frozen, see `Event.stream_key`."""
        return {**super().stream_key(), "epsilon": self.epsilon}

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return f"epsilon={self.epsilon:.4g}"

    @classmethod
    def claims(cls, events: Sequence[LaplaceEvent], rows: str | int) -> tuple[str, list[str]]:
        """Name the noise and the unit of protection."""
        discrete = any(event.seeding == "os-entropy" for event in events)
        source = [PROVEN.format("its pure ε")] if discrete else []
        return " with Laplace noise (delta = 0 for each)", [*cls.terms(events), *source]


@dataclass(frozen=True)
class LaplaceMechanism(NoisySums):
    """Release the mean behaviour of participants with Laplace noise.

    Parameters
    ----------
    epsilon : float
        The guarantee of one draw, with δ = 0.
    """

    name: ClassVar[str] = "laplace"
    norm: ClassVar[int] = 1
    noise: ClassVar[str] = "laplace"
    sensitivity: ClassVar[float] = 1.0 + COUNT
    tail = staticmethod(laplace_tail)
    epsilon: float

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)

    def scale(self, event: Any) -> float:
        """Return the scale of the noise on each sum; that of published noise covers whole numbers of the grid."""
        if event.seeding != "os-entropy":
            return self.sensitivity / self.epsilon
        return math.ceil(self.sensitivity * GRID) / GRID / self.epsilon * (1.0 + 1e-12)

    def deviation(self, event: Any) -> float:
        """Return the standard deviation of that noise."""
        return math.sqrt(2.0) * self.sensitivity / self.epsilon

    @staticmethod
    def cost(event: Any) -> float:
        """Return ε."""
        return float(event.epsilon)

    def describe(self, **about: Any) -> LaplaceEvent:
        """Return the event of a draw."""
        return LaplaceEvent(epsilon=float(self.epsilon), **about)
