r"""Gaussian noise on participants' contributions: a guarantee for a participant, at a price worth paying.

`participants` says what is summed and what is made of the noisy sums. The sum has L2 sensitivity
:math:`\sqrt{1 + 0.3^2}` under adding or removing one participant, whatever the number of rows, times and contexts
that the participant was seen in; every coordinate gets noise, so that no
support is assumed unless one is declared. σ is calibrated exactly (`calibration.gaussian_sigma`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp_ensemble_env.control.lsmdp import log_probabilities
from dp_ensemble_env.privacy.accounting.divergence import check_delta
from dp_ensemble_env.privacy.calibration import gaussian_sigma
from dp_ensemble_env.privacy.mechanisms.base import Permit, Release, Seeding
from dp_ensemble_env.privacy.mechanisms.estimates import normal_tail
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

SENSITIVITY = math.hypot(1.0, COUNT)


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(FleetEvent, type="gaussian"):
    """A Gaussian draw: the noise multiplier (standard deviation over L2 sensitivity) and the number of levels."""

    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.sigma, "sigma")

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return f"sigma={self.sigma:.4g}"

    @classmethod
    def claims(cls, events: Sequence[GaussianEvent], rows: str | int) -> tuple[str, list[str]]:
        """Name the noise and the unit of protection."""
        sigmas = sorted({event.sigma for event in events})
        span = f"{sigmas[0]:.4g}" if len(sigmas) == 1 else f"{sigmas[0]:.4g} to {sigmas[-1]:.4g}"
        return f" with Gaussian noise of multiplier {span}", cls.terms(events)


@dataclass(frozen=True)
class GaussianMechanism(FleetMechanism):
    """Release the mean behaviour of participants with Gaussian noise.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee of one draw.

    Examples
    --------
    >>> from dp_ensemble_env.privacy import Fleet, PrivacyLedger
    >>> fleet = Fleet.simulate([[0.9, 0.1], [0.4, 0.6]], participants=500, seed=1)
    >>> ledger = PrivacyLedger()
    >>> release = ledger.release(GaussianMechanism(epsilon=1), fleet, rng=0)
    >>> round(ledger.spent(1e-6), 6), release.matrix.shape
    (1.0, (2, 2))
    """

    name: ClassVar[str] = "gaussian"
    epsilon: float
    delta: float = 1e-6

    def __post_init__(self) -> None:
        check_positive(self.epsilon, "epsilon")
        check_delta(self.delta)

    @cached_property
    def sigma(self) -> float:
        """Noise multiplier: standard deviation of the noise over the sensitivity."""
        return gaussian_sigma(self.epsilon, self.delta)

    def event(
        self,
        data: Any,
        *,
        seeding: Seeding = "os-entropy",
        guess: ArrayLike | None = None,
        support: ArrayLike | None = None,
        **terms: Any,
    ) -> GaussianEvent:
        """Describe a draw from a fleet, of which only the shape is looked at."""
        fleet = require_fleet(data, self.name)
        require_source(seeding)
        return GaussianEvent(sigma=self.sigma, **self.about(fleet, guess, support), seeding=seeding)

    def draw(
        self,
        data: Any,
        permit: Permit,
        *,
        guess: ArrayLike | None = None,
        support: ArrayLike | None = None,
        **terms: Any,
    ) -> Release:
        """Draw one release.

        Parameters
        ----------
        data : Fleet
        permit : Permit
        guess : array_like of the shape of the fleet, optional
            A public guess of the behaviour that must not come from the data; by default a lazy walk.
        support : array_like of bool of the same shape, optional
            Decisions that are possible by public knowledge, which must not come from the data either. By
            default all are, and every cell gets noise.
        """
        fleet = require_fleet(data, self.name)
        layout = Layout.of(fleet, 2, guess, support)
        matrix = layout.estimate(self.noisy(data, permit, guess, support), SENSITIVITY * self.sigma, normal_tail)
        return Release(fleet.spread(np.minimum(log_probabilities(matrix), 0.0)), permit.event)

    def noisy(
        self, data: Any, permit: Permit, guess: ArrayLike | None = None, support: ArrayLike | None = None
    ) -> FloatArray:
        """Return the noisy sums, which the guarantee is about; a release is made of them alone."""
        fleet = require_fleet(data, self.name)
        seeding = permit.event.seeding
        permit.covers(self.event(fleet, seeding=seeding, guess=guess, support=support))
        return add_noise(
            Layout.of(fleet, 2, guess, support).sums(fleet), "gaussian", SENSITIVITY * self.sigma, permit.rng, seeding
        )
