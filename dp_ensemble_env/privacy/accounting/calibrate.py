r"""Noise for a target: how much is needed for (ε, δ), in closed form or by bisection.

**Gaussian.** With σ the ratio of the noise's standard deviation to the L2 sensitivity,

.. math:: \delta(\varepsilon) = \Phi\!\left(\tfrac{1}{2\sigma} - \varepsilon\sigma\right)
          - e^{\varepsilon}\,\Phi\!\left(-\tfrac{1}{2\sigma} - \varepsilon\sigma\right)

(Balle and Wang, 2018), exactly. Draws with σ₁, σ₂, … together are one draw with :math:`\sigma^{-2} = \sum_i
\sigma_i^{-2}`, also exactly.

**Gamma posterior.** One participant adds at most 1 to the parameters of every row, all of which are at least `prior`.
A Dirichlet draw is a function of independent Gamma draws, and of these

.. math::

    D_\lambda(\Gamma_{a+r}\|\Gamma_a) &= \frac{\ln\Gamma(a+\lambda r) + (\lambda-1)\ln\Gamma(a)
        - \lambda\ln\Gamma(a+r)}{\lambda-1}, \\
    D_\lambda(\Gamma_a\|\Gamma_{a+r}) &= \frac{\ln\Gamma(a-(\lambda-1)r) + (\lambda-1)\ln\Gamma(a+r)
        - \lambda\ln\Gamma(a)}{\lambda-1}.

Both fall with `a`, so the worst `a` is the prior, and at it the second with r = 1 is the largest over all ways to
spread a total of 1 on a row's cells (``docs/proofs.md``). So a participant who touches `rows` rows costs at most `rows`
times that; orders where it is not proven count as infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize, special

from dp_ensemble_env.privacy.accounting.divergence import FloatArray, check_delta
from dp_ensemble_env.tools.validation import check_count, check_positive

#: Orders at which Rényi divergences are evaluated.
ORDERS = 1.0 + np.unique(np.concatenate([np.geomspace(1e-4, 1e4, 600), np.linspace(0.02, 20.0, 200)]))
LARGEST_EPSILON = 1e6  #: From here on an ε is refused: e to its power is no number, and nobody is protected.


def check_epsilon(epsilon: float) -> float:
    """Check that ε is positive, and small enough to mean something."""
    if check_positive(epsilon, "epsilon") > LARGEST_EPSILON:
        raise ValueError(
            f"epsilon={epsilon:g} protects nobody: a release could reveal everything; choose at most "
            f"{LARGEST_EPSILON:g}, serious values are below 10."
        )
    return epsilon


# ------------------------------------------------------------------ Gaussian draws
def gaussian_delta(epsilon: float, sigma: float) -> float:
    """Return the exact δ at `epsilon` of a Gaussian draw with noise multiplier `sigma`."""
    check_positive(sigma, "sigma")
    first = special.log_ndtr(0.5 / sigma - epsilon * sigma)
    second = epsilon + special.log_ndtr(-0.5 / sigma - epsilon * sigma)
    return float(np.exp(first) * -np.expm1(min(second - first, 0.0)))


def gaussian_epsilon(delta: float, sigma: float) -> float:
    """Return the exact ε at `delta`, rounded up in its last digits."""
    check_delta(delta)
    if gaussian_delta(0.0, sigma) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(high, sigma) > delta:
        high *= 2.0
    root = float(optimize.brentq(lambda epsilon: gaussian_delta(epsilon, sigma) - delta, 0.0, high, xtol=1e-13))
    return root * (1.0 + 1e-11)


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the least noise multiplier of a Gaussian draw that is (epsilon, delta)-private.

    >>> round(gaussian_sigma(1.0, 1e-6), 3)
    4.225
    """
    check_epsilon(epsilon)
    check_delta(delta)
    low = high = 1.0
    while gaussian_delta(epsilon, high) > delta:
        high *= 2.0
    while gaussian_delta(epsilon, low) <= delta:
        low /= 2.0
    sigma = float(optimize.brentq(lambda s: gaussian_delta(epsilon, s) - delta, low, high, xtol=1e-13))
    while gaussian_epsilon(delta, sigma) > epsilon:  # so that it fits a budget of just this size
        sigma *= 1.0 + 1e-10
    return sigma


# ------------------------------------------------------------------ by Rényi divergences
def renyi_to_epsilon(delta: float, orders: FloatArray, divergences: FloatArray) -> float:
    """Return the least ε at `delta` that Rényi divergences prove; infinity if none (what overflows proves nothing)."""
    bound = divergences + np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0)
    finite = bound[np.isfinite(bound)]
    return float(max(0.0, finite.min())) if finite.size else math.inf


def concentrated_sigma(epsilon: float, delta: float) -> float:
    """Return the least noise multiplier of *discrete* Gaussian noise that is proven (epsilon, delta)-private.

    The proof uses zCDP with ρ = 1/2σ², as OpenDP's does, and needs slightly more noise than continuous noise.
    """
    return math.exp(_least(lambda x: ORDERS / (2.0 * math.exp(2.0 * x)), math.log(1e-4), epsilon, delta))


def posterior_renyi(orders: FloatArray, prior: float, rows: int) -> FloatArray:
    """Return upper bounds of the Rényi divergences of a posterior draw, infinity where none is proven."""
    order = np.asarray(orders, dtype=float)
    bound = np.full(order.shape, np.inf)
    proven = (prior * (order - 1.0) >= order) & (prior > order - 1.0)
    x = order[proven]
    here, there = special.gammaln(prior), special.gammaln(prior + 1.0)
    removed = special.gammaln(prior - (x - 1.0)) + (x - 1.0) * there - x * here
    bound[proven] = rows * np.maximum(removed, 0.0) / (x - 1.0)
    return bound


def posterior_prior(epsilon: float, delta: float, rows: int) -> float:
    """Return the least prior count per cell for which a posterior draw is (epsilon, delta)-private."""
    rows = check_count(rows, "rows")
    return math.exp(_least(lambda x: posterior_renyi(ORDERS, math.exp(x), rows), 0.0, epsilon, delta)) * (1.0 + 1e-9)


def _least(divergences: Callable[[float], FloatArray], low: float, epsilon: float, delta: float) -> float:
    """Return the least x, rounded up, at which falling divergences at `ORDERS` prove (ε, δ); searched from `low` on."""
    check_epsilon(epsilon)
    check_delta(delta)

    def fails(x: float) -> bool:
        return renyi_to_epsilon(delta, ORDERS, divergences(x)) - epsilon > 0

    high = low + 1.0
    while fails(high):
        low, high = high, high + 1.0
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fails(middle) else (low, middle)
    return high
