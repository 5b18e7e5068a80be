"""Laplace noise on participants' contributions: δ = 0.

As `gaussian`, with contributions whose L1 norm is at most one: the sum has L1 sensitivity 1.3, and Laplace
noise of scale 1.3/ε on every coordinate makes a draw (ε, 0)-private.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp_ensemble_env.control.lsmdp import log_probabilities
from dp_ensemble_env.privacy.mechanisms.base import Permit, Release, Seeding
from dp_ensemble_env.privacy.mechanisms.estimates import laplace_tail
from dp_ensemble_env.privacy.mechanisms.noise import add_noise, require_source
from dp_ensemble_env.privacy.mechanisms.participants import (
    COUNT,
    FleetEvent,
    FleetMechanism,
    FloatArray,
    Layout,
    require_fleet,
)
from dp_ensemble_env.tools.validation import check_positive

SENSITIVITY = 1.0 + COUNT


@dataclass(frozen=True, kw_only=True)
class LaplaceEvent(FleetEvent, type="laplace"):
    """A Laplace draw: its ε (L1 sensitivity over scale) and the number of levels."""

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.epsilon, "epsilon")

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return f"epsilon={self.epsilon:.4g}"

    @classmethod
    def claims(cls, events: Sequence[LaplaceEvent], rows: str | int) -> tuple[str, list[str]]:
        """Name the noise and the unit of protection."""
        return " with Laplace noise (delta = 0 for each)", cls.terms(events)


@dataclass(frozen=True)
class LaplaceMechanism(FleetMechanism):
    """Release the mean behaviour of participants with Laplace noise.

    Parameters
    ----------
    epsilon : float
        The guarantee of one draw, with δ = 0.
    """

    name: ClassVar[str] = "laplace"
    epsilon: float

    def __post_init__(self) -> None:
        check_positive(self.epsilon, "epsilon")

    def event(
        self,
        data: Any,
        *,
        seeding: Seeding = "os-entropy",
        guess: ArrayLike | None = None,
        support: ArrayLike | None = None,
        **terms: Any,
    ) -> LaplaceEvent:
        """Describe a draw from a fleet, of which only the shape is looked at."""
        fleet = require_fleet(data, self.name)
        require_source(seeding)
        return LaplaceEvent(epsilon=float(self.epsilon), **self.about(fleet, guess, support), seeding=seeding)

    def draw(
        self,
        data: Any,
        permit: Permit,
        *,
        guess: ArrayLike | None = None,
        support: ArrayLike | None = None,
        **terms: Any,
    ) -> Release:
        """Draw one release; see `GaussianMechanism.draw`."""
        fleet = require_fleet(data, self.name)
        layout = Layout.of(fleet, 1, guess, support)
        deviation = math.sqrt(2.0) * SENSITIVITY / self.epsilon
        matrix = layout.estimate(self.noisy(data, permit, guess, support), deviation, laplace_tail)
        return Release(fleet.spread(np.minimum(log_probabilities(matrix), 0.0)), permit.event)

    def noisy(
        self, data: Any, permit: Permit, guess: ArrayLike | None = None, support: ArrayLike | None = None
    ) -> FloatArray:
        """Return the noisy sums; see `GaussianMechanism.noisy`."""
        fleet = require_fleet(data, self.name)
        seeding = permit.event.seeding
        permit.covers(self.event(fleet, seeding=seeding, guess=guess, support=support))
        return add_noise(
            Layout.of(fleet, 1, guess, support).sums(fleet), "laplace", SENSITIVITY / self.epsilon, permit.rng, seeding
        )
