"""The accounting against references with many digits, at sizes where a formula or a branch takes over from another."""

from __future__ import annotations

import math
import re

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from dp_ensemble_env.privacy.accounting import calibrate, compose, theorem2
from dp_ensemble_env.privacy.accounting.compose import (
    RowGroup,
    UnreachableTarget,
    calibrate_groups,
    composed_delta,
    composed_epsilon,
    grid_step,
    has_grid,
    largest_k,
    renyi_epsilon,
    vanishing_k_composed,
)
from dp_ensemble_env.privacy.accounting.divergence import (
    LARGEST_K,
    _log_gamma_ratio,
    _log_lower_tail,
    adjacent_row,
    check_delta,
    log_worst_case_delta,
    pair_delta,
    renyi_divergence,
    vanishing_k_delta,
    vanishing_k_epsilon,
    worst_case_delta,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting.losses import GaussianLoss, LaplaceLoss, PureLoss, RowLoss, total_epsilon
from dp_ensemble_env.privacy.accounting.theorem2 import theorem2_epsilon, theorem2_log_psi
from dp_ensemble_env.privacy.statement import release_guarantee

ROW = [0.2, 0.6, 0.2]


# ------------------------------------------------------------------ special functions
@pytest.mark.parametrize(
    ("p", "q", "log_y"),
    [
        (1e-8, 1.0, -200.0), (1e-8, 50.0, -60.0), (0.01, 50.0, -740.0), (0.5, 3.0, -5000.0),  # tiny y
        (40.0, 2.0, -18.2), (40.0, 2.0, -18.5), (30.0, 1e8, -40.0),  # about to underflow, and y small against 1 / q
        (3.0, 4.0, -0.3), (2000.0, 1500.0, -0.7), (500.0, 3.0, -1.6), (900.0, 3.0, -0.8),
    ],
)  # fmt: skip
def test_logarithms_of_tails_have_all_their_digits(p, q, log_y):
    with mpmath.workdps(50):
        y = mpmath.exp(mpmath.mpf(log_y))
        expected = float(mpmath.log(mpmath.betainc(p, q, 0, y, regularized=True)))
    assert float(_log_lower_tail(p, q, np.array(log_y))) == pytest.approx(expected, rel=2e-13)


@pytest.mark.parametrize(
    ("x", "step"), [(60.0, 6000.0), (60.0, 1e-9), (60.0, 59.0), (3.0, 2.0), (0.01, 7.0), (1e8, 2.5), (1e12, 1e3)]
)
def test_ratios_of_gamma_functions_do_not_cancel(x, step):
    with mpmath.workdps(50):
        expected = float(mpmath.loggamma(mpmath.mpf(x) + mpmath.mpf(step)) - mpmath.loggamma(mpmath.mpf(x)))
    assert _log_gamma_ratio(x, step) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("k", "h", "omega", "order"),
    [
        (240.0, 1e-6, 0.25, 2.0),
        (2000.0, 0.5, 0.5, 2.8),
        (400.0, 0.5, 0.5, 1.5),
        (9.0, 0.1, 0.2, 3.0),
        (1e7, 0.01, 0.1, 9.0),
    ],
)
def test_renyi_divergences_have_all_their_digits(k, h, omega, order):
    with mpmath.workdps(50):
        k_, d, w, x = mpmath.mpf(k), mpmath.mpf(h) / 2, mpmath.mpf(omega), mpmath.mpf(order)
        total = mpmath.loggamma(k_ * (w + x * d)) + mpmath.loggamma(k_ * (w - (x - 1) * d))
        expected = float((total - mpmath.loggamma(k_ * (w + d)) - mpmath.loggamma(k_ * w)) / (x - 1))
    assert float(renyi_divergence(order, k, h, omega)) == pytest.approx(expected, rel=1e-9)
    both = renyi_divergence(np.array([order, 2 * (1 + 2 * omega / h)]), k, h, omega)
    assert both[0] == pytest.approx(float(renyi_divergence(order, k, h, omega)), rel=1e-14) and both[1] == math.inf


def test_renyi_orders_end_where_the_moment_does():
    assert renyi_divergence(3.0, 8.0, 0.25, 0.25) == math.inf > renyi_divergence(2.999, 8.0, 0.25, 0.25)
    for wrong in (1.0, [2.0, 0.5], [0.5, 2.0]):
        with pytest.raises(ValueError, match="order must exceed 1"):
            renyi_divergence(wrong, 8.0, 0.25, 0.25)


# ------------------------------------------------------------------ one row
@pytest.mark.parametrize(
    ("k", "h", "omega"), [(50.0, 0.03, 0.1), (3.0, 1.0, 0.2), (1e-6, 0.3, 0.1), (4000.0, 0.02, 0.3)]
)
def test_the_worst_delta_by_integration(k, h, omega):
    """The mass by which one Beta law exceeds the other times e^ε, also for a negative ε and where nothing is left."""
    s, m = k * omega, k * h / 2
    for epsilon in (-2.0, -0.3, 0.0, 0.2, 1.5, 9.0) if k > 1 else (0.0, 0.2, 1.5):
        with mpmath.workdps(30):
            # The loss m logit(x) exceeds ε where x does expit(ε / m); lower tails of the mirrored laws.
            y = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon) / m))
            upper = mpmath.betainc(s, s + m, 0, y, regularized=True)
            expected = upper - mpmath.exp(epsilon) * mpmath.betainc(s + m, s, 0, y, regularized=True)
        found = float(np.exp(log_worst_case_delta(epsilon, k, h, omega)))
        assert found == pytest.approx(float(expected), rel=1e-8, abs=1e-14)


def test_without_a_move_or_without_noise_delta_is_zero_or_one():
    with np.errstate(divide="ignore"):
        expected = np.log([1 - math.exp(-1), 0.0, 0.0])
    np.testing.assert_allclose(log_worst_case_delta([-1.0, 0.0, 1.0], 50, 0.0, 0.1), expected)
    assert worst_case_epsilon(0.1, 50, 0.0, 0.0) == 0.0
    for k, omega in ((LARGEST_K, 0.1), (50.0, 0.0)):
        for h in (0.03, 1.5):
            assert worst_case_delta(3.0, k, h, omega) == 1.0 and worst_case_epsilon(0.1, k, h, omega) == math.inf
            assert composed_delta(3.0, [RowGroup(k, omega, h, 2)]) == 1.0
            for entries in ("two", "any"):
                assert composed_epsilon(0.1, [RowGroup(k, omega, h, 2)], entries) == math.inf
    assert (
        pair_delta(3.0, ROW, 0, 1, LARGEST_K, 0.03) == 1.0 and renyi_divergence(1.5, LARGEST_K, 0.03, 0.1) == math.inf
    )
    assert composed_delta(3.0, [RowGroup(50.0, 0.0, 0.03)]) == 1.0 and composed_delta(3.0, []) == 0.0
    assert theorem2_epsilon(LARGEST_K, 0.03, 0.1, 0.1, 2, 0.05) == math.inf
    assert release_guarantee(50, 0.03, 0.0, 0.05, method="theorem2").epsilon == math.inf


@pytest.mark.parametrize(
    ("epsilon", "k", "h", "omega"),
    [(110.6698, 2.0584851626605238e-4, 3.046812648130699e-10, 0.069), (10.88967809866751, 0.0552, 1.655e-10, 0.00705),
     (750.8513639550608, 2371.46, 6.534e-9, 0.1282), (103.80795277102408, 5.856e-5, 1.051e-10, 0.02237)],
)  # fmt: skip
def test_where_rounding_is_all_that_is_left_delta_is_zero(epsilon, k, h, omega):
    for shift in np.linspace(0, 1e-3, 20):
        assert 0.0 <= worst_case_delta(epsilon * (1 + shift), k, h, omega) < 1e-300


def test_large_epsilons_are_found_and_endless_ones_are_infinite():
    for k in (1e6, 1e9, 1e11):
        found = worst_case_epsilon(1e-6, k, 0.5, 0.1)
        assert found > 1e5 and worst_case_delta(found, k, 0.5, 0.1) == pytest.approx(1e-6, rel=1e-3)
    last = 2.0**39 / found * k  # ε is proportional to so large a k, and a bound of 2^40 exceeds 1e12
    assert worst_case_epsilon(1e-6, 0.9 * last, 0.5, 0.1) == pytest.approx(0.9 * 2**39, rel=1e-3)
    assert worst_case_epsilon(1e-6, 1.2 * last, 0.5, 0.1) == worst_case_epsilon(1e-6, 1e15, 0.5, 0.1) == math.inf


@pytest.mark.parametrize(
    ("row", "i", "j", "words"),
    [
        (ROW, 3, 0, "two different"), (ROW, 0, 3, "two different"), (ROW, 1, 1, "two different"),
        ([0.2, 0.6, 0.3], 0, 1, "sum to 1"),
        ([0.2, 0.6, 0.2001], 0, 1, "sum to 1"), ([0.6, 0.6, -0.2], 0, 1, "sum to 1"),
        ([0.0, 0.5, 0.5], 0, 1, "entry 0 of the row is 0"), ([0.5, 0.0, 0.5], 0, 1, "entry 1 of the row is 0"),
        ([0.01, 0.49, 0.5], 0, 1, "below h/2"),
    ],
)  # fmt: skip
def test_rows_that_have_no_neighbour_are_refused(row, i, j, words):
    with pytest.raises(ValueError, match=words):
        adjacent_row(row, i, j, 0.03)
    assert adjacent_row(ROW, 2, 1, 0.0).tolist() == ROW


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.5, 1.5])
def test_delta_lies_strictly_between_zero_and_one(delta):
    with pytest.raises(ValueError, match="delta must"):
        check_delta(delta)
    assert check_delta(0.5) == 0.5 and check_delta(1e-300) == 1e-300


def test_the_limit_of_a_vanishing_k():
    for ratio in (0.05, 0.7, 3.0):
        for epsilon in (-1.0, 0.0, 0.4):
            found = float(vanishing_k_delta(epsilon, ratio))
            expected = float(np.exp(log_worst_case_delta(epsilon, 1e-7, 0.2 * ratio, 0.1)))
            assert found == pytest.approx(expected, rel=1e-5)
    assert vanishing_k_epsilon(0.9, 0.03, 0.1) == 0.0 == vanishing_k_epsilon(0.01, 0.0, 0.0)
    assert vanishing_k_epsilon(0.01, 0.03, 0.0) == math.inf
    for ratio in (0.3, 2.0, 4.0, 4.5, 50.0):
        expected = max(0.0, ratio * math.log(ratio / ((2 + ratio) * 1e-3)))
        assert vanishing_k_composed(1e-3, ratio, 1) == pytest.approx(expected, rel=1e-12)
    for count in (2, 5):
        expected = composed_epsilon(1e-3, [RowGroup(1e-7, 0.1, 0.1, count)])
        assert vanishing_k_composed(1e-3, 0.5, count) == pytest.approx(expected, rel=2e-3)


# ------------------------------------------------------------------ several rows
def test_groups_that_cost_nothing_are_not_there():
    one = RowGroup(50.0, 0.1, 0.03)
    exact = worst_case_epsilon(1e-4, 50, 0.03, 0.1)
    for nothing in (one._replace(number=0), one._replace(h=0.0), one._replace(h=0.0, omega=0.0)):
        assert (
            composed_epsilon(1e-4, [nothing]) == renyi_epsilon(1e-4, [nothing]) == 0.0 == composed_delta(0.1, [nothing])
        )
        assert composed_epsilon(1e-4, [one, nothing]) == exact
        assert largest_k(1.0, 1e-4, [nothing]) == math.inf
    assert largest_k(1e12, 1e-4, [one]) == math.inf and largest_k(1.0, 1e-4, [one._replace(omega=0.0, h=1.5)]) is None


@pytest.mark.parametrize("number", [2, 3])
def test_equal_rows_are_as_many_almost_equal_ones(number):
    together = composed_epsilon(1e-4, [RowGroup(50.0, 0.1, 0.03, number)])
    apart = composed_epsilon(1e-4, [RowGroup(50.0 * (1 + 1e-9 * i), 0.1, 0.03) for i in range(number)])
    assert together == pytest.approx(apart, rel=1e-5)
    # By simulation of the loss m (ln G' - ln G) with error bars.
    rng, m = np.random.default_rng(0), 50.0 * 0.015
    draws = m * np.log(rng.gamma(5.0 + m, size=(number, 400_000)) / rng.gamma(5.0, size=(number, 400_000))).sum(axis=0)
    missed = np.maximum(0.0, -np.expm1(1.0 - draws))
    assert abs(composed_delta(1.0, [RowGroup(50.0, 0.1, 0.03, number)]) - missed.mean()) < 5 * missed.std() / 630


def test_the_grid_has_a_two_hundredth_of_the_spread_of_the_loss():
    groups = (RowGroup(50.0, 0.1, 0.03, 1), RowGroup(8.0, 0.2, 0.1, 3))
    variance = []
    for k, omega, h, _ in groups:
        law = stats.beta(k * (omega + h / 2), k * omega)  # of x, whose loss is m logit(x)
        mean, square = (law.expect(lambda x, power=power: np.log(x / (1 - x)) ** power) for power in (1, 2))
        variance.append((k * h / 2) ** 2 * (square - mean**2))
    assert grid_step(groups) == pytest.approx(0.005 * math.sqrt((variance[0] + 3 * variance[1]) / 4), rel=1e-6)
    many = (groups[0], RowGroup(50.0, 0.1, 1e-6, 10**9))  # mostly small losses: the number of points is bounded
    assert grid_step(many) == pytest.approx(compose._reach(groups[0]) / 2**18, rel=1e-12)
    assert compose._reach(groups[0]) == worst_case_epsilon(1e-20, 50.0, 0.03, 0.1)
    assert compose._reach(RowGroup(50.0, 0.1, 1e-30)) == 1e-12
    assert composed_epsilon(1e-6, [RowGroup(50.0, 0.1, 1e-30, 2)]) < 1e-9
    assert has_grid(()) and has_grid(groups) and not has_grid((RowGroup(1e300, 0.1, 0.03),))
    assert not has_grid((groups[0], RowGroup(50.0, 0.0, 0.03))) and not has_grid((RowGroup(1e12, 0.1, 0.03),))


def test_the_grid_is_fine_enough_to_be_exponentiated():
    for k, fits in ((8.5e10, True), (9e10, False)):
        group = RowGroup(k, 0.1, 0.03)
        assert 650 < grid_step((group,)) < 750 and (grid_step((group,)) < 700) == fits == has_grid((group,))


def test_a_distribution_errs_upwards_and_hardly():
    group, step = RowGroup(50.0, 0.1, 0.03), 0.01
    pmf = compose.row_pmf(group, step)
    for i in range(-100, 250, 3):
        exact = float(np.exp(log_worst_case_delta(i * step, 50.0, 0.03, 0.1)))
        assert exact <= pmf.get_delta_for_epsilon(i * step) <= exact * (1 + 1e-9) + 1e-15
    tiny = group._replace(h=1e-30)  # within one step of the grid
    assert composed_epsilon(1e-4, [group, tiny]) == pytest.approx(composed_epsilon(1e-4, [group]), rel=2e-2)


TARGETS = {
    "one row": (0.05, [RowGroup(1.0, 0.1, 0.03)], "two"),
    "three rows": (0.5, [RowGroup(1.0, 0.1, 0.03, 3)], "two"),
    "two kinds": (0.5, [RowGroup(1.0, 0.1, 0.03), RowGroup(1.0, 0.01, 0.02, 2)], "two"),
    "any entries": (0.5, [RowGroup(1.0, 0.1, 0.03, 2)], "any"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_refusal_says_what_would_do(name):
    epsilon, groups, entries = TARGETS[name]
    with pytest.raises(UnreachableTarget) as refused:
        calibrate_groups(epsilon, 1e-6, groups, entries)
    text = str(refused.value)
    pattern = r"fall below (\S+);.* above omega=(\S+) .*shrink h below (\S+) "
    below, omega, h = (float(x) for x in re.search(pattern, text).groups())
    worst = groups[-1]
    assert below == pytest.approx(composed_epsilon(1e-6, [g._replace(k=1e-9) for g in groups], entries), rel=2e-3)
    assert worst.omega / omega == pytest.approx(h / worst.h, rel=1e-3)
    for share, enough in ((0.99, True), (1.01, False)):
        shrunk = [g._replace(h=g.h * share * h / worst.h) for g in groups]
        assert (largest_k(epsilon, 1e-6, shrunk, entries) is not None) == enough
    many = sum(g.number for g in groups)
    least, most = ("at least ", "up to ") if len(groups) > 1 else ("", "")
    rows = f"{many} row{'s' * (many > 1)} with omega={least}{worst.omega:g} and h={most}{worst.h:g}"
    assert rows in text and (" for moves of any entries" in text) == (entries == "any")


def test_targets_at_the_limit_of_a_vanishing_k():
    without = [RowGroup(1.0, 0.0, 0.03), RowGroup(1.0, 0.1, 0.03)]
    with pytest.raises(UnreachableTarget, match="without a floor no k"):
        calibrate_groups(3.0, 1e-4, without)
    least = composed_epsilon(1e-4, [RowGroup(1e-9, 0.1, 0.03)])
    assert largest_k(least, 1e-4, [RowGroup(1.0, 0.1, 0.03)]) >= 1e-9
    for rows in (2, 3):  # between the exact limit and what Rényi divergences prove of it
        exact = composed_epsilon(1e-4, [RowGroup(1e-9, 0.1, 0.03, rows)])
        proven = renyi_epsilon(1e-4, [RowGroup(1e-9, 0.1, 0.03, rows)])
        target = 0.5 * (exact + proven)
        k = largest_k(target, 1e-4, [RowGroup(1.0, 0.1, 0.03, rows)])
        assert exact < target < proven and composed_epsilon(1e-4, [RowGroup(k, 0.1, 0.03, rows)]) <= target
        assert composed_epsilon(1e-4, [RowGroup(1.01 * k, 0.1, 0.03, rows)]) > target


# ------------------------------------------------------------------ losses together
def test_losses_that_occur_twice_and_gaussians_together():
    assert total_epsilon(1e-5, [(GaussianLoss(3.0), 1), (GaussianLoss(4.0), 1)]) == pytest.approx(
        calibrate.gaussian_epsilon(1e-5, 2.4), rel=1e-9
    )
    assert total_epsilon(1e-5, [(GaussianLoss(3.0), 4)]) == pytest.approx(
        calibrate.gaussian_epsilon(1e-5, 1.5), rel=1e-9
    )
    for loss in (PureLoss(0.4), LaplaceLoss(0.4)):
        twice = total_epsilon(1e-9, [(loss, 2), (PureLoss(1e-6), 1)])
        assert 0.75 < twice <= 0.8001
    for epsilon in (30.0, 38.0, 800.0):  # of an answer that is hardly ever the other one
        assert total_epsilon(1e-5, [(PureLoss(epsilon), 1), (PureLoss(1.0), 1)]) == pytest.approx(epsilon + 1.0)
    wide = RowLoss(50.0, 0.1, 0.03, "any")
    groups = [RowGroup(50.0, 0.1, 0.03), RowGroup(40.0, 0.1, 0.03)]
    mixed = total_epsilon(1e-4, [(wide, 1), (RowLoss(40.0, 0.1, 0.03, "two"), 1)])
    assert mixed == composed_epsilon(1e-4, groups, "any") > composed_epsilon(1e-4, groups)


def responses(*epsilons):
    """Loss and probability of every outcome of independent randomised responses."""
    outcomes = [(0.0, 1.0)]
    for epsilon in epsilons:
        p = 1 / (1 + math.exp(-epsilon))
        outcomes = [(a + s * epsilon, b * (p if s > 0 else 1 - p)) for a, b in outcomes for s in (1, -1)]
    return outcomes


def least_epsilon(delta, outcomes):
    """By bisection of the mass that exceeds e^ε times that of the other law."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        missed = sum(p * max(0.0, -math.expm1(middle - loss)) for loss, p in outcomes)
        low, high = (middle, high) if missed > delta else (low, middle)
    return high


@pytest.mark.parametrize("delta", [1e-6, 1e-2, 0.1])
def test_randomised_responses_compose_by_enumeration(delta):
    counted = [(PureLoss(0.7), 2), (PureLoss(0.3), 1)]
    exact = least_epsilon(delta, responses(0.7, 0.7, 0.3))
    assert exact - 1e-9 <= total_epsilon(delta, counted) <= exact + 5e-3


def test_a_total_that_was_charged_does_not_move():
    """The orders at which divergences are added up are part of what a ledger has on record."""
    share = np.r_[np.geomspace(1e-9, 0.5, 400), 1 - np.geomspace(0.5, 1e-9, 200)]
    for groups in (
        [RowGroup(50.0, 0.1, 1e-12)],
        [RowGroup(50.0, 0.1, 0.03, 20)],
        [RowGroup(3.0, 0.2, 0.3), RowGroup(9.0, 0.1, 0.1, 2)],
    ):
        span = min(1e9, *(2 * group.omega / group.h for group in groups))
        for delta in (1e-9, 1e-3, 0.5):
            best = math.inf
            for order in 1 + span * np.unique(share):
                if order > 1 + 1e-6:
                    total = sum(g.number * float(renyi_divergence(order, g.k, g.h, g.omega)) for g in groups)
                    bound = total + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
                    best = min(best, bound)
            assert renyi_epsilon(delta, groups) == pytest.approx(max(best, 0.0), rel=1e-12)
    grid = 1 + np.r_[np.geomspace(1e-4, 1e4, 600), np.linspace(0.02, 20, 200)]
    np.testing.assert_allclose(calibrate.ORDERS, np.unique(grid), rtol=1e-14)
    assert (compose.TAIL_MASS, compose.LEAST_CONVOLVED_DELTA) == (1e-20, 1e-11)


# ------------------------------------------------------------------ calibration
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.01, 1e-6), (1.0, 1e-9), (1.0, 0.3), (40.0, 1e-6), (1e-6, 0.01), (1e-3, 1e-12)]
)
def test_the_least_sigma_is_the_least(epsilon, delta):
    sigma = calibrate.gaussian_sigma(epsilon, delta)

    def delta_of(sigma):
        first, second = mpmath.ncdf(0.5 / sigma - epsilon * sigma), mpmath.ncdf(-0.5 / sigma - epsilon * sigma)
        return float(first - mpmath.exp(epsilon) * second)

    with mpmath.workdps(40):
        assert delta_of(mpmath.mpf(sigma)) <= delta < delta_of(mpmath.mpf(sigma * (1 - 1e-7)))
    assert calibrate.gaussian_epsilon(delta, sigma) <= epsilon


@pytest.mark.parametrize(("delta", "sigma"), [(1e-6, 4.0), (1e-3, 0.2), (0.3, 0.9), (0.05, 6.0), (1e-12, 30.0)])
def test_a_gaussian_epsilon_is_rounded_up(delta, sigma):
    found = calibrate.gaussian_epsilon(delta, sigma)
    with mpmath.workdps(40):
        s, e = mpmath.mpf(sigma), mpmath.mpf(found)
        both = [
            mpmath.ncdf(0.5 / s - x * s) - mpmath.exp(x) * mpmath.ncdf(-0.5 / s - x * s) for x in (e, e * (1 - 1e-9))
        ]
    assert both[0] <= delta < both[1] if found > 0 else both[0] <= delta


def test_what_a_guarantee_says():
    one = release_guarantee(50, 0.03, 0.1, 1e-4)
    assert one.rows == 1 and "one release of 1 row at" in str(one) and "composed over rows" not in str(one)
    assert "protected is a change of that size in one row;" in str(one) and "two of their entries" in str(one)
    two = release_guarantee(50, 0.03, 0.1, 1e-4, 2)
    assert "2 rows at k=50" in str(two) and "in each of 2 rows;" in str(two) and "composed over rows" in str(two)
    assert "protected is one household;" in str(release_guarantee(50, 0.03, 0.1, 1e-4, unit="one household"))
    wide = release_guarantee(50, 0.03, 0.1, 1e-4, entries="any")
    assert wide.epsilon == renyi_epsilon(1e-4, [RowGroup(50, 0.1, 0.03)], "any") and "in total (L1" in str(wide)
    proven = release_guarantee(50, 0.03, 0.1, 1e-4, method="renyi")
    assert proven.epsilon == renyi_epsilon(1e-4, [RowGroup(50, 0.1, 0.03)]) > one.epsilon
    assert "without a floor" in str(release_guarantee(50, 0.03, 0.0, 1e-4))
    assert "too small for h=0.5" in str(release_guarantee(50, 0.5, 0.01, 1e-4, entries="any"))
    theorem = release_guarantee(50, 0.03, 0.1, 0.05, method="theorem2")
    assert theorem.epsilon == theorem2_epsilon(50, 0.03, 0.1, 0.1, 2, 0.05)
    for rows, entries in ((2, "two"), (1, "any"), (2, "any")):
        with pytest.raises(ValueError, match="Theorem 2 bounds one row and two entries"):
            release_guarantee(50, 0.03, 0.1, 0.05, rows, entries=entries, method="theorem2")


def test_posterior_divergences_by_their_formula_and_where_they_are_proven():
    orders, prior = np.array([1.4, 1.5, 2.0, 3.9, 4.0, 4.5]), 3.0
    found = calibrate.posterior_renyi(orders, prior, 2)
    assert np.isinf(found).tolist() == [True, False, False, False, True, True]  # from a(λ-1) = λ on, below λ = a + 1
    for order, value in zip(orders[1:4], found[1:4], strict=True):
        removed = math.lgamma(prior + 1 - order) + (order - 1) * math.lgamma(prior + 1) - order * math.lgamma(prior)
        assert value == pytest.approx(2 * removed / (order - 1), rel=1e-12)
    small = float(calibrate.posterior_renyi(np.array([2.0]), 500.0, 1)[0])
    assert small == pytest.approx(math.log(500.0 / 499.0), rel=1e-9)  # Γ(a - 1) Γ(a + 1) / Γ(a)^2
    assert calibrate.renyi_to_epsilon(0.9, np.array([2.0]), np.array([0.0])) == 0.0
    assert calibrate.renyi_to_epsilon(0.9, np.array([2.0]), np.array([np.inf])) == math.inf
    many = calibrate.renyi_to_epsilon(1e-3, np.array([2.0, 3.0]), np.array([0.5, np.inf]))
    assert many == pytest.approx(0.5 + math.log(0.5) - math.log(2e-3), rel=1e-12)


# ------------------------------------------------------------------ Theorem 2
@pytest.mark.parametrize(
    ("k", "omega", "rest", "size", "delta"),
    [(50.0, 0.1, 0.1, 2, 0.05), (5.0, 0.1, 0.3, 2, 1e-6), (8.0, 0.2, 0.2, 3, 0.5), (2.0, 0.3, 0.2, 2, 0.9999)],
)
def test_the_largest_psi_is_the_largest(k, omega, rest, size, delta):
    log_psi = theorem2_log_psi(k, omega, rest, size, delta)
    miss = [theorem2.theorem2_log_miss(log_psi + shift, k, omega, rest, size) for shift in (0.0, 1e-6 * abs(log_psi))]
    assert miss[0] <= math.log(delta) and log_psi < -math.log(size)
    assert miss[1] > math.log(delta) or log_psi == pytest.approx(-math.log(size), abs=1e-8)


@pytest.mark.parametrize("psi", [1e-14, 1e-11, 0.1, 0.3, 0.45])
@pytest.mark.parametrize("shapes", [(0.02, 0.03, 0.05), (1.5, 2.0, 0.0), (1.5, 2.0, 2.5), (4.0, 1.0, 0.5)])
def test_two_entries_that_miss_together(psi, shapes):
    """Pr[x_1 < ψ, x_2 < ψ] / Pr[x_1 < ψ], by integration; with nothing besides them, x_2 = 1 - x_1."""
    a, b, rest = shapes
    total, first = a + b + rest, stats.beta(a, b + rest)
    if rest > 0:

        def inner(v):  # v = F(x_1) below psi
            return stats.beta(b, rest).cdf(min(psi / (1 - first.ppf(v * first.cdf(psi))), 1.0))

        expected = integrate.quad(inner, 0, 1, limit=200)[0]
    else:
        expected = max(0.0, (first.cdf(psi) - first.cdf(1 - psi)) / first.cdf(psi))
    found = theorem2._both_miss(math.log(psi), a, b, total)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("psi", [0.05, 0.2, 0.33])
def test_three_entries_miss_by_hunters_bound(psi):
    """One minus the centre's share of the pairs, the centre being the entry that misses most often."""
    shapes, total = np.array([2.0, 0.9, 1.5]), 6.0
    single = [stats.beta(a, total - a).cdf(psi) for a in shapes]
    pair = [single[1] * theorem2._both_miss(math.log(psi), 0.9, shapes[i], total) for i in (0, 2)]
    expected = min(1.0, sum(single) - sum(pair))
    assert math.exp(theorem2._log_miss(math.log(psi), shapes, total)) == pytest.approx(expected, rel=1e-9)
    low, raised = np.full(3, 0.2), np.array([0.4, 0.2, 0.2])
    both = [theorem2._log_miss(math.log(psi), 6.0 * vertex, 6.0) for vertex in (low, raised)]
    assert theorem2.theorem2_log_miss(math.log(psi), 6.0, 0.2, 0.2, 3) == max(both)
    assert psi > 0.3 or both[0] != both[1]
    assert theorem2._log_miss(math.log(0.333), np.full(3, 0.01), 0.031) == 0.0  # Hunter's bound passes one


@pytest.mark.parametrize("h", [0.03, 1e-6])
@pytest.mark.parametrize(("k", "omega", "rest", "size"), [(50.0, 0.1, 0.1, 2), (8.0, 0.2, 0.2, 3), (0.5, 0.3, 0.2, 2)])
def test_theorem_2_by_its_formula(k, omega, rest, size, h):
    with mpmath.workdps(40):
        psi = mpmath.exp(mpmath.mpf(theorem2_log_psi(k, omega, rest, size, 0.05)))
        m, w, c = k * mpmath.mpf(h) / 2, mpmath.mpf(omega), 1 - mpmath.mpf(rest) - mpmath.mpf(omega)
        constant = mpmath.log(mpmath.beta(k * w, k * c) / mpmath.beta(k * w + m, k * c - m))
        expected = float(constant + m * mpmath.log((1 - (size - 1) * psi) / psi))
    found = theorem2_epsilon(k, h, omega, rest, size, 0.05)
    assert found == pytest.approx(max(expected, 0.0), rel=1e-8, abs=1e-13)


def test_what_theorem_2_and_rows_refuse():
    for settings, words in (
        ((50, 0.03, 0.1, 0.0, 2, 0.05), "omega_bar must"), ((50, 0.03, 0.1, 1.0, 2, 0.05), "omega_bar must"),
        ((50, 0.03, 0.0, 0.1, 2, 0.05), "omega must"), ((50, 0.03, 0.1, 0.1, 1, 0.05), "n_protected"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            theorem2_epsilon(*settings)
    for omega in (0.6, -0.1):
        with pytest.raises(ValueError, match="omega must"):
            worst_case_epsilon(0.1, 50, 0.03, omega)
    assert worst_case_epsilon(0.1, 50, 0.03, 0.5) >= 0.0


# ------------------------------------------------------------------ Theorem 2: pairs of misses
@pytest.mark.parametrize(
    ("psi", "shapes", "total"),
    [
        (0.359, (2.84, 2.99), 6.0),  # where a rule with a branch point at zero was 2e-8 too large
        (0.288, (27.6, 32.2), 59.9),  # and 1e-7
        (0.0625, (20.0, 20.0), 200.0),  # and 4e-4 too small
        (0.4999, (0.49, 0.509), 1.0),  # the probability bends at the end
        (0.0187, (0.06, 0.06), 0.3),
    ],
)
def test_the_chance_that_two_entries_miss_is_just_below_the_truth(psi, shapes, total):
    with mpmath.workdps(25):
        a, b, top = mpmath.mpf(shapes[0]), mpmath.mpf(shapes[1]), mpmath.mpf(math.exp(math.log(psi)))
        rest, power = total - a - b, total - a - 1

        def density(u):
            return mpmath.exp(a * u + power * mpmath.log(1 - top * mpmath.exp(u)))

        def both(u):
            return density(u) * mpmath.betainc(b, rest, 0, top / (1 - top * mpmath.exp(u)), regularized=True)

        reach = (60 - max(power, 0) * mpmath.log(1 - top)) / a
        points = [-reach * mpmath.mpf(2) ** -j for j in range(25)] + [0]
        truth = float(mpmath.quad(both, points) / mpmath.quad(density, points))
    found = theorem2._both_miss(math.log(psi), *shapes, total)
    assert truth * (1 - 2e-9) < found < truth


@pytest.mark.parametrize(("k", "h"), [(1e18, 1e-12), (1e22, 1e-9), (1e28, 1e-12), (1e99, 1e-12)])
def test_a_k_beyond_the_incomplete_beta_function_hides_nothing(k, h):
    """There it returns 0 or NaN, which once passed for a loss of zero."""
    assert worst_case_epsilon(1e-6, k, h, 0.1) == composed_epsilon(1e-6, [RowGroup(k, 0.1, h, 2)]) == math.inf
    assert largest_k(1.0, 1e-6, [RowGroup(1.0, 0.1, h)]) < 1e15


def test_where_products_with_k_underflow_no_loss_is_lost():
    assert renyi_epsilon(1e-6, [RowGroup(1e-300, 1e-300, 1e-300, 3)]) == math.inf
    assert worst_case_epsilon(1e-6, 1e-300, 0.5, 1e-20) == vanishing_k_epsilon(1e-6, 0.5, 1e-20) > 1e20
    assert worst_case_epsilon(1e-6, 1e-9, 0.03, 0.1) == pytest.approx(vanishing_k_epsilon(1e-6, 0.03, 0.1), rel=1e-6)
