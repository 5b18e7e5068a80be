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
    calibrate_groups,
    calibrate_k,
    composed_delta,
    composed_epsilon,
    largest_k,
    renyi_epsilon,
    total_epsilon,
    vanishing_k_composed,
    vanishing_k_epsilon,
    worst_case_delta,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting import compose
from dp_ensemble_env.privacy.accounting.compose import grid_step, has_grid, pessimistic_pmf
from dp_ensemble_env.privacy.accounting.divergence import (
    log_worst_case_delta,
)

SIGMAS = 6.0  # two-sided chance of 2e-9 per comparison


def test_rows_alone_are_composed_as_before():
    rows = [(RowLoss(50, 0.1, 0.03), 20), (RowLoss(50, 0.1, 0.01), 3)]
    groups = [RowGroup(50, 0.1, 0.03, 20), RowGroup(50, 0.1, 0.01, 3)]
    assert total_epsilon(1e-6, rows) == composed_epsilon(1e-6, groups)
    wide = [(RowLoss(50, 0.1, 0.03, "any"), 20), (RowLoss(50, 0.1, 0.01), 3)]
    assert total_epsilon(1e-6, wide) == composed_epsilon(1e-6, groups, "any") > total_epsilon(1e-6, rows)


@pytest.mark.parametrize(("number", "delta", "epsilon"), [(1, 1e-6, 2.533), (20, 1e-6, 12.16), (1000, 0.05, 139.3)])
def test_numbers_of_the_composition(number, delta, epsilon):
    assert float(f"{composed_epsilon(delta, [RowGroup(50, 0.1, 0.03, number)]):.4g}") == epsilon


def test_renyi_epsilon_is_an_upper_bound():
    for k in (1, 50, 400):
        for delta in (0.05, 1e-6, 1e-12):
            assert renyi_epsilon(delta, [RowGroup(k, 0.1, 0.03)]) >= worst_case_epsilon(delta, k, 0.03, 0.1)
            groups = [RowGroup(k, 0.1, 0.03, 20)]
            if delta > 1e-11:
                assert renyi_epsilon(delta, groups) >= composed_epsilon(delta, groups)


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
    group = RowGroup(50, 0.1, 0.03)
    reach = worst_case_epsilon(compose.TAIL_MASS, group.k, group.h, group.omega)
    for step in (reach / 7.5, reach / 8.0, reach / 8.5, 2 * reach):
        pmf = compose.row_pmf(group, step)
        assert pmf._infinity_mass <= compose.TAIL_MASS * (1 + 1e-9)
    # The exact curve is computed with rounding errors of its own, for which something is added.
    curves = []
    monkeypatch.setattr(compose, "pessimistic_pmf", lambda delta_at, *_: curves.append(delta_at))
    compose._row_pmf.__wrapped__(group.k, group.omega, group.h, reach, 0.1)
    grid = np.linspace(-1.0, 3.0, 41)
    margin = curves[0](grid) / np.exp(log_worst_case_delta(grid, group.k, group.h, group.omega)) - 1.0
    assert (margin > 0.5e-12).all() and (margin < 2e-12).all()


def test_composition_against_monte_carlo():
    """The loss of several releases is a sum of independent losses; sample it."""
    groups = [RowGroup(50, 0.1, 0.03, 5), RowGroup(20, 0.05, 0.02, 3)]
    rng = np.random.default_rng(5)
    size = 200_000
    loss = np.zeros(size)
    for group in groups:
        for _ in range(group.number):
            s, m = group.k * group.omega, group.k * group.h / 2
            loss += m * special.logit(rng.beta(s + m, s, size))
    for epsilon in (0.5, 2.0, 4.0):
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


def test_composition_properties():
    group = RowGroup(50, 0.1, 0.03)
    values = [composed_epsilon(1e-6, [group._replace(number=n)]) for n in (1, 2, 5, 20, 100)]
    assert values == sorted(values)
    mixed = composed_epsilon(1e-6, [group, group._replace(h=0.02), group._replace(k=10.0)])
    assert values[0] < mixed < composed_epsilon(1e-6, [group._replace(number=3)])
    assert composed_epsilon(1e-6, []) == 0.0 == composed_epsilon(1e-6, [group._replace(h=0.0)])
    assert composed_epsilon(1e-6, [group, group._replace(omega=0.0)]) == math.inf
    # Below the convolution's accuracy the Rényi bound takes over, and it stays an upper bound.
    assert composed_epsilon(1e-13, [group._replace(number=20)]) >= composed_epsilon(1e-10, [group._replace(number=20)])


def test_without_dp_accounting_the_proven_bound_stands_in(monkeypatch):
    group = RowGroup(50, 0.1, 0.03, 20)
    exact = composed_epsilon(1e-6, [group])
    for cached in (compose._composed_epsilon, compose._composed_pmf):
        cached.cache_clear()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    try:
        assert exact < composed_epsilon(1e-6, [group]) == renyi_epsilon(1e-6, [group]) < 1.1 * exact
        k = calibrate_k(8.0, 1e-6, 0.03, 0.1, 20)
        assert renyi_epsilon(1e-6, [group._replace(k=k)]) <= 8.0
        with pytest.raises(UnreachableTarget, match="does not fall below"):
            calibrate_k(1.0, 1e-6, 0.03, 0.1, 20)
        ledger = PrivacyLedger().record(DirichletEvent(50, 0.1, (2, 3)), 0.03)
        assert "Rényi bound, as dp-accounting is not installed" in str(ledger.statement())
    finally:
        compose._composed_epsilon.cache_clear()


@pytest.mark.parametrize(
    ("epsilon", "delta", "h", "omega", "rows", "entries"),
    [
        (0.479, 0.05, 0.03, 0.1, 1, "two"),
        (8.0, 1e-6, 0.03, 0.1, 20, "two"),
        (1.0, 1e-6, 0.003, 0.1, 20, "two"),
        (1.0, 1e-6, 0.003, 0.1, 20, "any"),
        (3.0, 1e-9, 0.01, 0.05, 1, "two"),
    ],
)
def test_calibrated_k_is_the_largest_that_meets_the_target(epsilon, delta, h, omega, rows, entries):
    k = calibrate_k(epsilon, delta, h, omega, rows, entries=entries)
    assert composed_epsilon(delta, [RowGroup(k, omega, h, rows)], entries) <= epsilon
    assert composed_epsilon(delta, [RowGroup(k * 1.01, omega, h, rows)], entries) > epsilon


@pytest.mark.parametrize("rows", [1, 20])
def test_refusal_names_the_limit_and_a_remedy_that_works(rows):
    least = vanishing_k_composed(1e-6, 0.15, rows)
    with pytest.raises(UnreachableTarget, match=f"does not fall below {least:.4g}") as caught:
        calibrate_k(0.9 * least, 1e-6, 0.03, 0.1, rows)
    assert calibrate_k(1.01 * least, 1e-6, 0.03, 0.1, rows) > 0
    words = str(caught.value).replace("omega=", "omega= ").split()
    floor = float(words[words.index("above") + 2])
    h = float(words[words.index("below", words.index("shrink")) + 1])
    assert calibrate_k(0.9 * least, 1e-6, 0.03, floor * 1.002, rows) > 0
    assert calibrate_k(0.9 * least, 1e-6, h * 0.998, 0.1, rows) > 0
    for omega, move in ((floor * 0.99, 0.03), (0.1, h * 1.01)):
        with pytest.raises(UnreachableTarget):
            calibrate_k(0.9 * least, 1e-6, move, omega, rows)


def test_calibration_of_unequal_rows_and_of_no_floor():
    groups = [RowGroup(1, 0.1, h, 4) for h in (0.001, 0.004, 0.01)]
    k = calibrate_groups(2.0, 1e-6, groups)
    assert composed_epsilon(1e-6, [group._replace(k=k) for group in groups]) <= 2.0
    assert composed_epsilon(1e-6, [group._replace(k=1.01 * k) for group in groups]) > 2.0
    assert largest_k(1e-4, 1e-6, groups) is None
    assert largest_k(1.0, 1e-6, [RowGroup(1, 0.1, 0.0)]) == math.inf
    with pytest.raises(UnreachableTarget, match="without a floor"):
        calibrate_k(1.0, 1e-6, 0.03, 0.0)
    with pytest.raises(ValueError, match="epsilon must be a positive"):
        calibrate_k(-1.0, 1e-6, 0.03, 0.1)
    with pytest.raises(ValueError, match="delta must lie in"):
        calibrate_k(1.0, 0.0, 0.03, 0.1)


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


def test_where_products_with_k_underflow_no_loss_is_lost():
    assert renyi_epsilon(1e-6, [RowGroup(1e-300, 1e-300, 1e-300, 3)]) == math.inf
    assert worst_case_epsilon(1e-6, 1e-300, 0.5, 1e-20) == vanishing_k_epsilon(1e-6, 0.5, 1e-20) > 1e20
    assert worst_case_epsilon(1e-6, 1e-9, 0.03, 0.1) == pytest.approx(vanishing_k_epsilon(1e-6, 0.03, 0.1), rel=1e-6)


def test_groups_count_together_and_one_row_is_exact():
    one, other = RowGroup(50.0, 0.1, 0.03), RowGroup(20.0, 0.1, 0.05)
    assert composed_delta(0.5, [one]) == pytest.approx(worst_case_delta(0.5, 50, 0.03, 0.1), rel=1e-13)
    alone = [composed_delta(0.5, [group]) for group in (one, other)]
    together = composed_delta(0.5, [one, other])
    assert max(alone) * 1.05 < together < 1.0
    assert composed_epsilon(1e-4, [one, other]) > 1.05 * max(composed_epsilon(1e-4, [group]) for group in (one, other))
    assert composed_epsilon(1e-4, [one]) == worst_case_epsilon(1e-4, 50, 0.03, 0.1)
    assert composed_delta(0.5, [one, one]) == composed_delta(0.5, [one._replace(number=2)]) > composed_delta(0.5, [one])
    assert composed_delta(0.5, []) == 0.0 and composed_epsilon(1e-4, []) == 0.0
    for hopeless in ([one._replace(omega=0.0), one], [one._replace(k=1e300, number=2)]):
        assert composed_delta(0.5, hopeless) == 1.0 and composed_epsilon(1e-4, hopeless) == math.inf


def test_the_largest_k_meets_the_target_and_hardly_more_does_not():
    for rows, slack in ((1, 1e-6), (3, 3e-3)):
        k = calibrate_k(3.0, 1e-4, 0.03, 0.1, rows)
        over = composed_epsilon(1e-4, [RowGroup(k * (1 + slack), 0.1, 0.03, rows)])
        assert composed_epsilon(1e-4, [RowGroup(k, 0.1, 0.03, rows)]) <= 3.0 < over
    groups = [RowGroup(1.0, 0.1, 0.03), RowGroup(1.0, 0.2, 0.03)]
    k = calibrate_groups(3.0, 1e-4, groups)
    assert composed_epsilon(1e-4, [group._replace(k=k) for group in groups]) <= 3.0
    assert composed_epsilon(1e-4, [group._replace(k=1.003 * k) for group in groups]) > 3.0
    assert largest_k(1.0, 1e-4, []) == math.inf and largest_k(1.0, 1e-4, [RowGroup(1.0, 0.0, 0.03)]) is None


def test_targets_that_only_a_small_k_reaches_are_reached():
    least = vanishing_k_epsilon(1e-4, 0.03, 0.1)
    k = calibrate_k(1.0001 * least, 1e-4, 0.03, 0.1)
    assert 0 < k < 0.25 and worst_case_epsilon(1e-4, k, 0.03, 0.1) <= 1.0001 * least
    with pytest.raises(UnreachableTarget, match=f"does not fall below {least:.4g}"):
        calibrate_k(0.99 * least, 1e-4, 0.03, 0.1)


def test_a_refusal_needs_no_convolution(monkeypatch):
    """Without `dp-accounting` several rows are bounded by Rényi divergences, in the refusal as well."""
    monkeypatch.setattr(compose, "can_convolve", lambda: False)
    monkeypatch.setattr(compose, "pessimistic_pmf", None)
    compose._composed_epsilon.cache_clear()
    with pytest.raises(UnreachableTarget, match="raise the floor above"):
        calibrate_k(0.05, 1e-6, 0.03, 0.1, 3)
    compose._composed_epsilon.cache_clear()


def test_a_refusal_says_which_rows_and_how_far_they_have_to_change():
    """The floor and the adjacency that it names are just enough, for equal rows and for different ones."""
    one = [RowGroup(1.0, 0.1, 0.03)]
    two = [RowGroup(1.0, 0.1, 0.03, 2), RowGroup(1.0, 0.2, 0.02)]
    for groups, entries, words in (
        (one, "two", "1 row with omega=0.1 and h=0.03: as"),
        (one, "any", "1 row with omega=0.1 and h=0.03 for moves of any entries: as"),
        (two, "any", "3 rows with omega=at least 0.1 and h=up to 0.03 for moves"),
    ):
        with pytest.raises(UnreachableTarget, match=words) as refused:
            calibrate_groups(0.1, 1e-4, groups, entries)
        text = str(refused.value)
        shrink = float(re.search(r"shrink h below (\S+)", text)[1]) / 0.03
        least = float(re.search(r"does not fall below (\S+);", text)[1])
        for factor, enough in ((0.98, True), (1.05, False)):
            changed = [group._replace(h=factor * shrink * group.h) for group in groups]
            assert (largest_k(0.1, 1e-4, changed, entries) is not None) == enough
        assert largest_k(1.01 * least, 1e-4, groups, entries) is not None
        assert least > 0.1 and largest_k(0.99 * least, 1e-4, groups, entries) is None
        assert float(re.search(r"above omega=(\S+)", text)[1]) == pytest.approx(0.1 / shrink, rel=1e-3)


def test_more_than_two_entries_are_bounded_and_never_taken_for_the_exact_pair():
    group = RowGroup(20.0, 0.05, 0.02, 3)
    wide, two, exact = (
        renyi_epsilon(1e-6, [group], "any"),
        renyi_epsilon(1e-6, [group]),
        composed_epsilon(1e-6, [group]),
    )
    assert composed_epsilon(1e-6, [group], "any") == wide >= two > exact
