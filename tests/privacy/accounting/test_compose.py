"""Tests of `compose`."""

from __future__ import annotations

import importlib
import math
import re
import sys

import numpy as np
import pytest
from scipy import special, stats

from dp_ensemble_env.privacy import (
    DirichletEvent,
    PrivacyLedger,
    RowGroup,
    RowLoss,
    UnreachableTarget,
    calibrate_k,
    composed_epsilon,
    largest_k,
    renyi_epsilon,
    total_delta,
    total_epsilon,
    vanishing_k_epsilon,
    worst_case_delta,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting import compose
from dp_ensemble_env.privacy.accounting.compose import grid_step, has_grid, pessimistic_pmf, row_pmf
from dp_ensemble_env.privacy.accounting.divergence import log_worst_case_delta

SIGMAS = 6.0  # two-sided chance of 2e-9 per comparison
ONE = RowGroup(50.0, 0.1, 0.03)


def composed_delta(epsilon, groups):
    return total_delta(epsilon, [(RowLoss(g.k, g.omega, g.h), g.number) for g in groups])


# ------------------------------------------------------------------ composition
def test_rows_alone_are_composed_as_groups():
    rows = [(RowLoss(50, 0.1, 0.03), 20), (RowLoss(50, 0.1, 0.01), 3)]
    groups = [RowGroup(50, 0.1, 0.03, 20), RowGroup(50, 0.1, 0.01, 3)]
    assert total_epsilon(1e-6, rows) == composed_epsilon(1e-6, groups)
    wide = [(RowLoss(50, 0.1, 0.03, "any"), 20), (RowLoss(50, 0.1, 0.01), 3)]
    assert total_epsilon(1e-6, wide) == composed_epsilon(1e-6, groups, "any") > total_epsilon(1e-6, rows)


@pytest.mark.parametrize(("number", "delta", "epsilon"), [(1, 1e-6, 2.533), (20, 1e-6, 12.16), (1000, 0.05, 139.3)])
def test_numbers_of_the_composition(number, delta, epsilon):
    assert float(f"{composed_epsilon(delta, [ONE._replace(number=number)]):.4g}") == epsilon


def test_renyi_epsilon_is_an_upper_bound():
    for k in (1, 50, 400):
        for delta in (0.05, 1e-6, 1e-12):
            assert renyi_epsilon(delta, [ONE._replace(k=k)]) >= worst_case_epsilon(delta, k, 0.03, 0.1)
            groups = [RowGroup(k, 0.1, 0.03, 20)]
            assert renyi_epsilon(delta, groups) >= composed_epsilon(delta, groups)
    group = RowGroup(20.0, 0.05, 0.02, 3)
    wide = renyi_epsilon(1e-6, [group], "any")
    assert composed_epsilon(1e-6, [group], "any") == wide >= renyi_epsilon(1e-6, [group])
    assert wide > composed_epsilon(1e-6, [group])  # more than two entries are never taken for the exact pair
    assert renyi_epsilon(1e-6, [RowGroup(1e-300, 1e-300, 1e-300, 3)]) == math.inf  # where products with k underflow


def test_composition_against_monte_carlo():
    """The loss of several releases is a sum of independent losses; sample it."""
    rng, size = np.random.default_rng(5), 200_000
    for groups, epsilons in (
        ([RowGroup(50, 0.1, 0.03, 5), RowGroup(20, 0.05, 0.02, 3)], (0.5, 2.0, 4.0)),
        ([ONE._replace(number=2)], (0.2, 0.5, 1.0)),
    ):
        loss = np.zeros(size)
        for k, omega, h, number in groups:
            for _ in range(number):
                loss += k * h / 2 * special.logit(rng.beta(k * (omega + h / 2), k * omega, size))
        for epsilon in epsilons:
            gain = np.maximum(0.0, -np.expm1(epsilon - loss))
            error = SIGMAS * gain.std() / math.sqrt(size)
            assert composed_delta(epsilon, groups) == pytest.approx(gain.mean(), abs=error + 1e-4 * gain.mean())


@pytest.mark.parametrize(
    ("k", "h", "omega", "number"), [(50, 0.03, 0.1, 20), (200, 0.03, 0.2, 5), (20, 0.05, 0.1, 100)]
)
def test_composition_against_prv_accountant(k, h, omega, number):
    prv = importlib.import_module("prv_accountant")
    from prv_accountant.privacy_random_variables import PrivacyRandomVariable

    s, m = k * omega, k * h / 2

    class Loss(PrivacyRandomVariable):
        def cdf(self, t):
            return special.betainc(s + m, s, special.expit(np.asarray(t, dtype=np.float64) / m))

    with pytest.warns(UserWarning, match="Assuming that true epsilon"):
        accountant = prv.PRVAccountant(
            prvs=[Loss()], max_self_compositions=[number], eps_error=0.02, delta_error=1e-10, eps_max=80.0
        )
    low, estimate, high = accountant.compute_epsilon(1e-6, [number])
    mine = composed_epsilon(1e-6, [RowGroup(k, omega, h, number)])
    assert low <= mine <= high
    assert mine == pytest.approx(estimate, rel=2e-3)


def test_groups_count_together_and_one_row_is_exact():
    values = [composed_epsilon(1e-6, [ONE._replace(number=n)]) for n in (1, 2, 5, 20, 100)]
    assert values == sorted(values) and values[0] == worst_case_epsilon(1e-6, 50, 0.03, 0.1)
    mixed = composed_epsilon(1e-6, [ONE, ONE._replace(h=0.02), ONE._replace(k=10.0)])
    assert 1.05 * values[0] < mixed < composed_epsilon(1e-6, [ONE._replace(number=3)])
    assert composed_delta(0.5, [ONE]) == pytest.approx(worst_case_delta(0.5, 50, 0.03, 0.1), rel=1e-9)
    assert composed_epsilon(1e-6, [ONE, ONE]) == values[1]
    almost = [RowGroup(50.0 * (1 + 1e-9 * i), 0.1, 0.03) for i in range(3)]
    assert composed_epsilon(1e-4, [ONE._replace(number=3)]) == pytest.approx(composed_epsilon(1e-4, almost), rel=1e-5)
    # Below the convolution's accuracy the Rényi bound takes over, and it stays an upper bound.
    many = [ONE._replace(number=20)]
    assert composed_epsilon(1e-13, many) >= composed_epsilon(1e-10, many)
    for hopeless in ([ONE._replace(omega=0.0), ONE], [ONE._replace(k=1e300, number=2)]):
        assert composed_epsilon(1e-4, hopeless) == math.inf and composed_delta(0.5, hopeless) == 1.0
    for nothing in (ONE._replace(number=0), ONE._replace(h=0.0), ONE._replace(h=0.0, omega=0.0)):
        assert composed_epsilon(1e-6, [nothing]) == renyi_epsilon(1e-6, [nothing]) == 0.0 == composed_epsilon(1e-6, [])
        assert composed_epsilon(1e-6, [ONE, nothing]) == values[0] and largest_k(1.0, 1e-6, [nothing]) == math.inf


def test_without_dp_accounting_the_proven_bound_stands_in(monkeypatch):
    group = ONE._replace(number=20)
    exact = composed_epsilon(1e-6, [group])
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.setattr(compose, "pessimistic_pmf", None)  # neither do refusals need the convolution
    for cached in (compose._composed_epsilon, compose._composed_pmf):
        cached.cache_clear()
    try:
        assert exact < composed_epsilon(1e-6, [group]) == renyi_epsilon(1e-6, [group]) < 1.1 * exact
        k = calibrate_k(8.0, 1e-6, 0.03, 0.1, 20)
        assert renyi_epsilon(1e-6, [group._replace(k=k)]) <= 8.0
        with pytest.raises(UnreachableTarget, match="does not fall below .* raise the floor above"):
            calibrate_k(1.0, 1e-6, 0.03, 0.1, 20)
        ledger = PrivacyLedger().record(DirichletEvent(50, 0.1, (2, 3)), 0.03)
        assert "Rényi bound, as dp-accounting is not installed" in str(ledger.statement())
    finally:
        compose._composed_epsilon.cache_clear()


# ------------------------------------------------------------------ the grid
@pytest.mark.parametrize(("k", "h", "omega"), [(50, 0.03, 0.1), (0.01, 0.03, 0.1), (500, 0.2, 0.05), (5, 0.5, 0.01)])
@pytest.mark.parametrize("points", [8, 100, 3000])
def test_pessimistic_discretisation_is_never_below_the_exact_delta(k, h, omega, points):
    reach = worst_case_epsilon(1e-15, k, h, omega)
    pmf = pessimistic_pmf(lambda grid: np.exp(log_worst_case_delta(grid, k, h, omega)), reach, reach / points)
    for epsilon in np.linspace(0, reach, 37):
        exact = worst_case_delta(epsilon, k, h, omega)
        assert pmf.get_delta_for_epsilon(epsilon) >= exact * (1 - 1e-9) - 1e-16
    if points == 3000:
        epsilon = reach / 10
        assert pmf.get_delta_for_epsilon(epsilon) == pytest.approx(worst_case_delta(epsilon, k, h, omega), rel=1e-2)


def test_the_grid_reaches_beyond_the_losses_and_rounds_upwards(monkeypatch):
    reach = worst_case_epsilon(1e-20, 50.0, 0.03, 0.1)
    for step in (reach / 7.5, reach / 8.0, reach / 8.5, 2 * reach):
        assert row_pmf(*ONE[:3], step)._infinity_mass <= 1e-20 * (1 + 1e-9)
    # The exact curve is computed with rounding errors of its own, for which something is added.
    curves = []
    monkeypatch.setattr(compose, "pessimistic_pmf", lambda delta_at, *_: curves.append(delta_at))
    row_pmf.__wrapped__(*ONE[:3], 0.1)
    grid = np.linspace(-1.0, 3.0, 41)
    margin = curves[0](grid) / np.exp(log_worst_case_delta(grid, 50.0, 0.03, 0.1)) - 1.0
    assert (margin > 0.5e-12).all() and (margin < 2e-12).all()


def test_the_grid_has_a_two_hundredth_of_the_spread_of_the_loss():
    groups = (ONE, RowGroup(8.0, 0.2, 0.1, 3))
    variance = []
    for k, omega, h, _ in groups:
        law = stats.beta(k * (omega + h / 2), k * omega)  # of x, whose loss is m logit(x)
        mean, square = (law.expect(lambda x, power=power: np.log(x / (1 - x)) ** power) for power in (1, 2))
        variance.append((k * h / 2) ** 2 * (square - mean**2))
    assert grid_step(groups) == pytest.approx(0.005 * math.sqrt((variance[0] + 3 * variance[1]) / 4), rel=1e-6)
    many = (ONE, RowGroup(50.0, 0.1, 1e-6, 10**9))  # mostly small losses: the number of points is bounded
    assert grid_step(many) == pytest.approx(worst_case_epsilon(1e-20, 50.0, 0.03, 0.1) / 2**18, rel=1e-12)
    assert composed_epsilon(1e-6, [RowGroup(50.0, 0.1, 1e-30, 2)]) < 1e-9
    assert has_grid(()) and has_grid(groups) and not has_grid((RowGroup(1e300, 0.1, 0.03),))
    assert not has_grid((ONE, RowGroup(50.0, 0.0, 0.03)))
    for k, fits in ((8.5e10, True), (9e10, False)):  # fine enough to be exponentiated
        group = RowGroup(k, 0.1, 0.03)
        assert 650 < grid_step((group,)) < 750 and (grid_step((group,)) < 700) == fits == has_grid((group,))


# ------------------------------------------------------------------ calibration
@pytest.mark.parametrize(
    ("epsilon", "delta", "h", "omega", "rows", "entries", "slack"),
    [
        (0.479, 0.05, 0.03, 0.1, 1, "two", 1e-6),
        (8.0, 1e-6, 0.03, 0.1, 20, "two", 0.01),
        (3.0, 1e-4, 0.03, 0.1, 3, "two", 3e-3),
        (1.0, 1e-6, 0.003, 0.1, 20, "two", 0.01),
        (1.0, 1e-6, 0.003, 0.1, 20, "any", 0.01),
        (3.0, 1e-9, 0.01, 0.05, 1, "two", 1e-6),
        (1.0001 * vanishing_k_epsilon(1e-4, 0.03, 0.1), 1e-4, 0.03, 0.1, 1, "two", 0.01),  # only a small k reaches it
    ],
)
def test_calibrated_k_is_the_largest_that_meets_the_target(epsilon, delta, h, omega, rows, entries, slack):
    k = calibrate_k(epsilon, delta, h, omega, rows, entries=entries)
    assert composed_epsilon(delta, [RowGroup(k, omega, h, rows)], entries) <= epsilon
    assert composed_epsilon(delta, [RowGroup(k * (1 + slack), omega, h, rows)], entries) > epsilon


def test_the_largest_common_k_of_unequal_rows():
    for groups, epsilon in (
        ([RowGroup(1, 0.1, h, 4) for h in (0.001, 0.004, 0.01)], 2.0),
        ([ONE, RowGroup(7.0, 0.2, 0.03)], 3.0),
    ):
        k = largest_k(epsilon, 1e-4, groups)
        assert composed_epsilon(1e-4, [group._replace(k=k) for group in groups]) <= epsilon
        assert composed_epsilon(1e-4, [group._replace(k=1.003 * k) for group in groups]) > epsilon
    assert largest_k(1e-4, 1e-6, groups) is None is largest_k(1.0, 1e-4, [ONE._replace(omega=0.0, h=1.5)])
    assert largest_k(1e12, 1e-4, [ONE]) == math.inf == largest_k(1.0, 1e-4, [])


def test_targets_at_the_limit_of_a_vanishing_k():
    least = composed_epsilon(1e-4, [ONE._replace(k=1e-9)])
    assert largest_k(least, 1e-4, [ONE]) >= 1e-9
    for rows in (2, 3):  # between the exact limit and what Rényi divergences prove of it
        exact, proven = (bound(1e-4, [RowGroup(1e-9, 0.1, 0.03, rows)]) for bound in (composed_epsilon, renyi_epsilon))
        target = 0.5 * (exact + proven)
        k = largest_k(target, 1e-4, [ONE._replace(number=rows)])
        assert exact < target < proven and composed_epsilon(1e-4, [RowGroup(k, 0.1, 0.03, rows)]) <= target
        assert composed_epsilon(1e-4, [RowGroup(1.01 * k, 0.1, 0.03, rows)]) > target


@pytest.mark.parametrize(
    ("rows", "entries", "words"),
    [
        (1, "two", "1 row with omega=0.1 and h=0.03: as"),
        (1, "any", "1 row with omega=0.1 and h=0.03 for moves of any entries: as"),
        (20, "two", "20 rows with omega=0.1 and h=0.03: as"),
    ],
)
def test_a_refusal_names_the_limit_and_remedies_that_are_just_enough(rows, entries, words):
    least = composed_epsilon(1e-6, [RowGroup(1e-9, 0.1, 0.03, rows)], entries)
    if (rows, entries) == (1, "two"):
        assert least == pytest.approx(vanishing_k_epsilon(1e-6, 0.03, 0.1), rel=1e-9)
    target = 0.9 * least
    with pytest.raises(UnreachableTarget, match=words) as refused:
        calibrate_k(target, 1e-6, 0.03, 0.1, rows, entries=entries)
    text = str(refused.value)
    assert float(re.search(r"does not fall below (\S+);", text)[1]) == pytest.approx(least, rel=1e-3)
    floor, h = (float(re.search(f"{one}(\\S+)", text)[1]) for one in ("above omega=", "shrink h below "))
    assert calibrate_k(1.01 * least, 1e-6, 0.03, 0.1, rows, entries=entries) > 0
    assert calibrate_k(target, 1e-6, 0.03, floor * 1.002, rows, entries=entries) > 0
    assert calibrate_k(target, 1e-6, h * 0.998, 0.1, rows, entries=entries) > 0
    for omega, move in ((floor * 0.99, 0.03), (0.1, h * 1.01)):
        with pytest.raises(UnreachableTarget):
            calibrate_k(target, 1e-6, move, omega, rows, entries=entries)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((1.0, 1e-6, 0.03, 0.0), "without a floor no k"),
        ((-1.0, 1e-6, 0.03, 0.1), "epsilon must be a positive"),
        ((1.0, 0.0, 0.03, 0.1), "delta must lie in"),
    ],
)
def test_bad_targets_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        calibrate_k(*settings)
