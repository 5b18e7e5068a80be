"""Tests of `calibrate`."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from dp_ensemble_env.privacy import gaussian_delta
from dp_ensemble_env.privacy.accounting import calibrate
from dp_ensemble_env.privacy.accounting.calibrate import posterior_prior, posterior_renyi
from dp_ensemble_env.privacy.accounting.compose import total_epsilon
from dp_ensemble_env.privacy.accounting.losses import PosteriorLoss


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-9), (1.0, 0.3), (40.0, 1e-6), (1e-6, 0.01), (1e-3, 1e-12)])
def test_the_least_sigma_is_the_least(epsilon, delta):
    sigma = calibrate.gaussian_sigma(epsilon, delta)

    def delta_of(sigma):
        first, second = mpmath.ncdf(0.5 / sigma - epsilon * sigma), mpmath.ncdf(-0.5 / sigma - epsilon * sigma)
        return float(first - mpmath.exp(epsilon) * second)

    with mpmath.workdps(40):
        assert delta_of(mpmath.mpf(sigma)) <= delta < delta_of(mpmath.mpf(sigma * (1 - 1e-7)))
    assert calibrate.gaussian_epsilon(delta, sigma) <= epsilon < calibrate.gaussian_epsilon(delta, sigma * 0.999)
    assert gaussian_delta(epsilon, sigma) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.3, 5.0, 400.0, 1e5])
def test_the_least_prior_is_the_least(epsilon):
    """Also where it is hardly above the golden ratio, below which no order satisfies both conditions of the proof."""
    prior = calibrate.posterior_prior(epsilon, 1e-6, 4)

    def epsilon_of(prior):
        renyi = calibrate.posterior_renyi(calibrate.ORDERS, prior, 4)
        return calibrate.renyi_to_epsilon(1e-6, calibrate.ORDERS, renyi)

    assert epsilon_of(prior) <= epsilon < epsilon_of(prior * (1 - 1e-6))
    golden = (1 + math.sqrt(5)) / 2
    assert prior > golden and (epsilon < 1e5 or prior < 1.01 * golden)


@pytest.mark.parametrize("prior", [1.7, 3.0, 40.0, 900.0])
def test_the_bound_of_a_posterior_draw_is_the_larger_of_the_two_directions(prior):
    """Both Rényi divergences of Gamma draws whose shapes differ by one, with thirty digits."""
    orders = np.array([1.05, 1.5, 2.0, 2.5, 6.0, 30.0])
    found = calibrate.posterior_renyi(orders, prior, 3)
    with mpmath.workdps(30):
        a, gamma = mpmath.mpf(prior), mpmath.loggamma
        for x, bound in zip(orders, found, strict=True):
            if np.isinf(bound):
                assert prior * (x - 1) < x or prior <= x - 1
                continue
            there = gamma(a + x) + (x - 1) * gamma(a) - x * gamma(a + 1)
            back = gamma(a + 1 - x) + (x - 1) * gamma(a + 1) - x * gamma(a)
            assert bound == pytest.approx(float(3 * max(there, back) / (x - 1)), rel=1e-9, abs=1e-9)
    assert np.isfinite(found).any()


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.5, 2.0), (1.0, 4.225), (6.0, 1.0), (0.0, 3.0)])
def test_delta_is_the_hockey_stick_of_two_normals(epsilon, sigma):
    with mpmath.workdps(30):
        start = mpmath.mpf(epsilon) * sigma**2 + mpmath.mpf(1) / 2  # the loss (x - 1/2) / sigma^2 exceeds epsilon

        def excess(x):
            shifted, plain = mpmath.npdf(x, 1, sigma), mpmath.npdf(x, 0, sigma)
            return shifted - mpmath.exp(epsilon) * plain

        exact = mpmath.quad(excess, [start, start + 5 * sigma, start + 40 * sigma])
    assert gaussian_delta(epsilon, sigma) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("order", [1.5, 4.0, 20.0])
def test_the_posterior_bound_covers_every_way_to_spread_a_contribution(order):
    rng = np.random.default_rng(0)
    prior = 30.0
    bound = posterior_renyi(np.array([order]), prior, 1)[0]

    def divergence(a: float, b: float) -> float:
        """Rényi divergence of Gamma(a) from Gamma(b), by quadrature in the logarithm of the variate."""
        u = np.linspace(-12.0, 8.0, 40_001)
        exponent = order * stats.loggamma.logpdf(u, a) + (1.0 - order) * stats.loggamma.logpdf(u, b)
        return float(special.logsumexp(exponent) + math.log(u[1] - u[0])) / (order - 1.0)

    assert bound == pytest.approx(max(divergence(prior + 1.0, prior), divergence(prior, prior + 1.0)), rel=1e-6)
    for _ in range(10):
        moved = rng.dirichlet(np.full(4, 0.5))
        base = prior + rng.exponential(5.0, size=4)
        for there in (True, False):
            pairs = [(a + r, a) if there else (a, a + r) for a, r in zip(base, moved, strict=True)]
            assert sum(divergence(*pair) for pair in pairs) <= bound * (1 + 1e-9)


def test_a_posterior_draw_costs_what_it_was_calibrated_for():
    prior = posterior_prior(1.0, 1e-6, rows=20)
    assert total_epsilon(1e-6, [(PosteriorLoss(prior, 20), 1)]) <= 1.0
    assert total_epsilon(1e-6, [(PosteriorLoss(prior * 0.99, 20), 1)]) > 1.0
    assert total_epsilon(1e-6, [(PosteriorLoss(0.9, 1), 1)]) == math.inf  # too small to prove anything
    many = calibrate.renyi_to_epsilon(1e-3, np.array([2.0, 3.0]), np.array([0.5, np.inf]))
    assert many == pytest.approx(0.5 + math.log(0.5) - math.log(2e-3), rel=1e-12)
    assert calibrate.renyi_to_epsilon(0.9, np.array([2.0]), np.array([0.0])) == 0.0
