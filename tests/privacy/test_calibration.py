"""Noise for a target, and Gaussian, Laplace and posterior draws composed with others, against independent numbers."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import integrate, special, stats

from dp_ensemble_env.privacy import gaussian_delta, gaussian_epsilon, gaussian_sigma, total_epsilon
from dp_ensemble_env.privacy.accounting.calibrate import ORDERS, posterior_prior, posterior_renyi, renyi_to_epsilon
from dp_ensemble_env.privacy.accounting.losses import GaussianLoss, LaplaceLoss, PosteriorLoss, PureLoss, RowLoss


# ------------------------------------------------------------------ Gaussian
def test_the_noise_of_the_case_study():
    assert gaussian_sigma(1.0, 1e-6) == pytest.approx(4.225, abs=5e-4)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-6), (4.0, 1e-6), (1.0, 1e-10), (20.0, 1e-3)])
def test_calibration_goes_there_and_back(epsilon, delta):
    sigma = gaussian_sigma(epsilon, delta)
    assert gaussian_epsilon(delta, sigma) <= epsilon
    assert gaussian_epsilon(delta, sigma) == pytest.approx(epsilon, rel=1e-8)
    assert gaussian_delta(epsilon, sigma) == pytest.approx(delta, rel=1e-6)
    assert gaussian_epsilon(delta, sigma * 0.999) > epsilon


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.5, 2.0), (1.0, 4.225), (6.0, 1.0), (0.0, 3.0)])
def test_delta_is_the_hockey_stick_of_two_normals(epsilon, sigma):
    with mpmath.workdps(30):
        start = mpmath.mpf(epsilon) * sigma**2 + mpmath.mpf(1) / 2  # the loss (x - 1/2) / sigma^2 exceeds epsilon

        def excess(x):
            shifted, plain = mpmath.npdf(x, 1, sigma), mpmath.npdf(x, 0, sigma)
            return shifted - mpmath.exp(epsilon) * plain

        exact = mpmath.quad(excess, [start, start + 5 * sigma, start + 40 * sigma])
    assert gaussian_delta(epsilon, sigma) == pytest.approx(float(exact), rel=1e-9)


def test_gaussian_draws_compose_to_one_gaussian():
    counted = [(GaussianLoss(5.0), 3), (GaussianLoss(8.0), 2)]
    together = (3 / 25 + 2 / 64) ** -0.5
    assert total_epsilon(1e-6, counted) == pytest.approx(gaussian_epsilon(1e-6, together), rel=1e-12)
    direct = pld.from_gaussian_mechanism(5.0).self_compose(3).compose(pld.from_gaussian_mechanism(8.0).self_compose(2))
    assert total_epsilon(1e-6, counted) == pytest.approx(direct.get_epsilon_for_delta(1e-6), rel=1e-3)
    bound = renyi_to_epsilon(1e-6, ORDERS, GaussianLoss(together).renyi(ORDERS))
    assert total_epsilon(1e-6, counted) < bound < 1.3 * total_epsilon(1e-6, counted)


# ------------------------------------------------------------------ mixtures
def laplace_gaussian_delta(epsilon: float, pure: float, sigma: float) -> float:
    """Integrate the Gaussian's exact curve over the law of the Laplace loss, which has two atoms."""
    # Under the shifted law the loss is `pure` with probability 1/2, else pure - 2t with t exponential, cut off.
    inner, _ = integrate.quad(
        lambda t: 0.5 * math.exp(-t) * gaussian_delta(epsilon - (pure - 2 * t), sigma), 0.0, pure, epsabs=1e-14
    )
    ends = 0.5 * gaussian_delta(epsilon - pure, sigma) + 0.5 * math.exp(-pure) * gaussian_delta(epsilon + pure, sigma)
    return inner + ends


def test_a_laplace_and_a_gaussian_draw_compose_as_the_integral_says():
    epsilon = total_epsilon(1e-6, [(GaussianLoss(4.0), 1), (LaplaceLoss(0.5), 1)])
    assert laplace_gaussian_delta(epsilon, 0.5, 4.0) == pytest.approx(1e-6, rel=0.01)
    assert laplace_gaussian_delta(epsilon, 0.5, 4.0) <= 1e-6


def test_all_kinds_compose_in_one_sum():
    parts = [(GaussianLoss(6.0), 2), (LaplaceLoss(0.3), 1), (PureLoss(0.2), 1), (RowLoss(50.0, 0.1, 0.03), 3)]
    whole = total_epsilon(1e-6, parts)
    singles = [total_epsilon(1e-6, [part]) for part in parts]
    assert max(singles) < whole < sum(total_epsilon(1e-6 / 4, [part]) for part in parts)
    step = 1e-3
    total = pld.from_gaussian_mechanism(6.0, value_discretization_interval=step).self_compose(2)
    total = total.compose(pld.from_laplace_mechanism(1 / 0.3, value_discretization_interval=step))
    without_rows = total_epsilon(1e-6, parts[:2])
    assert without_rows == pytest.approx(total.get_epsilon_for_delta(1e-6), abs=2e-3)
    # A posterior draw has no convolution, so the whole falls back on Rényi divergences: larger, and finite.
    more = total_epsilon(1e-6, [*parts, (PosteriorLoss(5000.0, 4), 1)])
    assert whole < more < math.inf


def test_laplace_draws_alone():
    assert total_epsilon(1e-6, [(LaplaceLoss(0.7), 1)]) <= 0.7
    assert total_epsilon(1e-6, [(LaplaceLoss(0.7), 1)]) == pytest.approx(0.7, abs=1e-3)
    assert total_epsilon(0.0, [(LaplaceLoss(0.7), 2), (PureLoss(0.1), 1)]) == pytest.approx(1.5)
    assert total_epsilon(0.0, [(LaplaceLoss(0.7), 1), (GaussianLoss(3.0), 1)]) == math.inf


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0, 40.0])
def test_renyi_divergence_of_laplace(order):
    shift = 0.8
    with mpmath.workdps(30):
        moment = mpmath.quad(
            lambda x: mpmath.exp(-order * abs(x) - (1 - order) * abs(x - shift)) / 2,
            [-mpmath.inf, 0, shift, mpmath.inf],
        )
        exact = float(mpmath.log(moment) / (order - 1))
    assert LaplaceLoss(shift).renyi(np.array([order]))[0] == pytest.approx(exact, rel=1e-10)


def test_a_shift_spread_over_coordinates_is_harder_to_see_than_one():
    def loss(shift: float, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.abs(grid) - np.abs(grid - shift), stats.laplace.pdf(grid, loc=shift)

    grid = np.linspace(-14.0, 16.0, 3001)
    width = grid[1] - grid[0]
    for first, second in ((0.5, 0.5), (0.2, 0.8), (1.0, 1.5)):
        one, law = loss(first + second, grid)
        (a, p), (b, q) = loss(first, grid), loss(second, grid)
        both, joint = a[:, None] + b[None], p[:, None] * q[None] * width**2
        for epsilon in (0.0, 0.3, 0.6, 0.9):
            single = float((np.maximum(0.0, 1.0 - np.exp(epsilon - one)) * law * width).sum())
            spread = float((np.maximum(0.0, 1.0 - np.exp(epsilon - both)) * joint).sum())
            assert spread <= single + 1e-5


# ------------------------------------------------------------------ posterior draws
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

    worst = max(divergence(prior + 1.0, prior), divergence(prior, prior + 1.0))
    assert bound == pytest.approx(worst, rel=1e-6)
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
    # The true curve of the worst single cell lies below the bound: one Gamma against its neighbour.
    small = posterior_prior(1.0, 1e-3, rows=1)
    a, b = stats.gamma(small + 1.0), stats.gamma(small)
    cut = math.exp(1.0 + math.lgamma(small + 1.0) - math.lgamma(small))  # where the ratio of the densities is e
    assert a.sf(cut) - math.e * b.sf(cut) <= 1e-3
    assert b.cdf(cut * math.exp(-2.0)) - math.e * a.cdf(cut * math.exp(-2.0)) <= 1e-3


def test_a_prior_too_small_proves_nothing():
    assert total_epsilon(1e-6, [(PosteriorLoss(0.9, 1), 1)]) == math.inf
