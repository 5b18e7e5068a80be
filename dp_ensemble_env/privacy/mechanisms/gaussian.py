r"""Gaussian noise on participants' contributions: a guarantee for a participant, at a price worth paying.

`fleet_sums` says what is summed and what is made of the noisy sums. The sum has L2 sensitivity
:math:`\sqrt{1 + 0.3^2}`; every coordinate gets noise, so that no support is assumed unless one is declared.

In experiments the noise is continuous and σ is calibrated exactly (`calibrate.gaussian_sigma`). For publication it is
discrete, and both calibration and claim are those that OpenDP proves: ρ-zCDP (`calibrate.concentrated_sigma`), some
8 % more noise at ε = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from dp_ensemble_env.privacy.accounting.calibrate import concentrated_sigma, gaussian_sigma
from dp_ensemble_env.privacy.accounting.losses import ConcentratedLoss, GaussianLoss, Losses
from dp_ensemble_env.privacy.mechanisms.base import Seeding
from dp_ensemble_env.privacy.mechanisms.fleet_sums import COUNT, PROVEN, EpsilonDelta, FleetEvent, NoisySums
from dp_ensemble_env.privacy.mechanisms.noise import normal_tail, require_source


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(FleetEvent, type="gaussian"):
    """A Gaussian draw: the noise multiplier (standard deviation over L2 sensitivity) and the number of levels."""

    noise: ClassVar[str] = "sigma"
    sigma: float

    @property
    def rho(self) -> float:
        """The ρ of zCDP that is proven for discrete noise."""
        return 0.5 / self.sigma**2

    @property
    def cost(self) -> float:
        """The ρ that OpenDP must prove for a published draw, up to its last digits."""
        return self.rho * (1.0 + 1e-12)

    def losses(self) -> Losses:
        """Return one loss for all rows: Gaussian, or for a published draw the proven zCDP."""
        return Losses.of({ConcentratedLoss(self.rho) if self.seeding == "os-entropy" else GaussianLoss(self.sigma): 1})

    @classmethod
    def claims(cls, events: Sequence[GaussianEvent], rows: str | int) -> tuple[str, list[str]]:
        """Name the noise and the unit of protection."""
        sigmas = sorted({event.sigma for event in events})
        span = f"{sigmas[0]:.4g}" if len(sigmas) == 1 else f"{sigmas[0]:.4g} to {sigmas[-1]:.4g}"
        return f" with Gaussian noise of multiplier {span}", cls.terms(events, PROVEN.format("zCDP"))


@lru_cache(maxsize=64)
def multiplier(epsilon: float, delta: float, seeding: Seeding) -> float:
    """Return the noise multiplier that makes a draw (ε, δ)-private: exact, for publication as it is proven by zCDP."""
    if seeding != "os-entropy":
        return gaussian_sigma(epsilon, delta)
    return concentrated_sigma(epsilon, delta) * (1.0 + 1e-12)  # the last digits cover rounding


@dataclass(frozen=True)
class GaussianMechanism(EpsilonDelta, NoisySums):
    """Release the mean behaviour of participants with Gaussian noise; each draw is (epsilon, delta)-private."""

    name: ClassVar[str] = "gaussian"
    noise: ClassVar[str] = "gaussian"
    sensitivity: ClassVar[float] = math.hypot(1.0, COUNT)
    tail = staticmethod(normal_tail)

    def scale(self, event: Any) -> float:
        """Return the standard deviation of the noise on each sum."""
        return self.sensitivity * float(event.sigma) * (1.0 + 1e-15 if event.seeding == "os-entropy" else 1.0)

    def describe(self, **about: Any) -> GaussianEvent:
        """Return the event of a draw."""
        require_source(about["seeding"])
        return GaussianEvent(sigma=multiplier(self.epsilon, self.delta, about["seeding"]), **about)
