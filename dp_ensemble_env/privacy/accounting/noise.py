r"""Privacy losses of Gaussian, Laplace and posterior draws.

*Gaussian.* Exact alone and among its like; in mixtures by ``dp-accounting``.

*Laplace.* The noise is a vector and the bound is on the L1 norm of a participant's contribution. The pair with
the whole shift in one coordinate dominates all others. *Proof*: it suffices to merge two coordinates with shifts
:math:`d_1 \le d_2`, in units of the scale, into one with :math:`d = d_1 + d_2`. Under the shifted law the loss of
one coordinate is :math:`d_i - 2\min(t_i, d_i)`, where :math:`t_i` is zero or standard exponential, with
probability 1/2 each. So the two lose :math:`d - 2T` with :math:`T = \sum\min(t_i, d_i)`, and the one loses
:math:`d - 2T'` with :math:`T' = \min(t, d)`. A loss above zero means :math:`T < d/2 \le d_2`, and for
:math:`u < d_2` we have :math:`\Pr[T > u] \ge \Pr[t_2 > u] = \tfrac12 e^{-u} = \Pr[T' > u]`. So positive losses of
the one are stochastically larger, and with them δ(ε) for every ε ≥ 0. Both
pairs are symmetric, which gives ε < 0 as well.

*Posterior.* Rényi divergences only (`calibration.posterior_renyi`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.privacy.calibration import posterior_renyi

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class GaussianLoss:
    """A Gaussian draw whose standard deviation is `sigma` times the L2 sensitivity."""

    sigma: float

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return λ / (2σ²)."""
        return orders / (2.0 * self.sigma**2)

    def distribution(self, step: float) -> Any:
        """Return the pessimistic distribution of ``dp-accounting``."""
        from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

        return from_gaussian_mechanism(self.sigma, value_discretization_interval=step)


@dataclass(frozen=True)
class LaplaceLoss:
    """A Laplace draw whose scale is the L1 sensitivity over `epsilon`."""

    epsilon: float

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return the divergences of one coordinate with the whole shift."""
        x = np.maximum(orders, 1.0 + 1e-9)
        up = np.log(x / (2.0 * x - 1.0)) + (x - 1.0) * self.epsilon
        down = np.log((x - 1.0) / (2.0 * x - 1.0)) - x * self.epsilon
        bound: FloatArray = np.minimum(np.logaddexp(up, down) / (x - 1.0), self.epsilon)
        return bound

    def distribution(self, step: float) -> Any:
        """Return the pessimistic distribution of ``dp-accounting``."""
        from dp_accounting.pld.privacy_loss_distribution import from_laplace_mechanism

        return from_laplace_mechanism(1.0 / self.epsilon, value_discretization_interval=step)


@dataclass(frozen=True)
class PosteriorLoss:
    """A draw from the posterior of `rows` rows whose cells have at least `prior` counts."""

    prior: float
    rows: int

    def renyi(self, orders: FloatArray) -> FloatArray:
        """Return the proven bounds."""
        return posterior_renyi(orders, self.prior, self.rows)

    def distribution(self, step: float) -> None:
        """Return None: no dominating pair is known."""
