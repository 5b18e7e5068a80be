"""Laplace noise on participants' contributions: δ = 0.

As `gaussian`, with contributions whose L1 norm is at most one: the sum has L1 sensitivity 1.3, and Laplace
noise of scale 1.3/ε on every coordinate makes a draw (ε, 0)-private.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dp_ensemble_env.privacy.accounting.losses import LaplaceLoss, Losses
from dp_ensemble_env.privacy.mechanisms.fleet_sums import COUNT, FleetEvent, NoisySums, laplace_tail
from dp_ensemble_env.tools.validation import check_positive

SENSITIVITY = 1.0 + COUNT


@dataclass(frozen=True, kw_only=True)
class LaplaceEvent(FleetEvent, type="laplace"):
    """A Laplace draw: its ε (L1 sensitivity over scale) and the number of levels."""

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.epsilon, "epsilon")

    def losses(self) -> Losses:
        """Return one Laplace loss: one draw covers all rows."""
        return Losses.of({LaplaceLoss(self.epsilon): 1})

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
        return " with Laplace noise (delta = 0 for each)", cls.terms(events)


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
    tail = staticmethod(laplace_tail)
    epsilon: float

    def __post_init__(self) -> None:
        check_positive(self.epsilon, "epsilon")

    @property
    def scale(self) -> float:
        """Scale of the noise on each sum."""
        return SENSITIVITY / self.epsilon

    @property
    def deviation(self) -> float:
        """Standard deviation of that noise."""
        return math.sqrt(2.0) * SENSITIVITY / self.epsilon

    def describe(self, **about: Any) -> LaplaceEvent:
        """Return the event of a draw."""
        return LaplaceEvent(epsilon=float(self.epsilon), **about)
