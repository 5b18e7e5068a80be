"""Tests of `compose`: what rows and draws cost together, the accountant, and the k for a target."""

from __future__ import annotations

import importlib
import math
import re
import sys

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from dp_ensemble_env.privacy import (
    Accountant,
    ConcentratedLoss,
    DirichletEvent,
    GaussianLoss,
    LaplaceLoss,
    PosteriorLoss,
    PrivacyLedger,
    PureLoss,
    RowGroup,
    RowLoss,
    UnreachableTarget,
    calibrate_k,
    composed_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    largest_k,
    renyi_divergence,
    renyi_epsilon,
    total_delta,
    total_epsilon,
    vanishing_k_epsilon,
    worst_case_delta,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting import compose, losses
from dp_ensemble_env.privacy.accounting.compose import grid_step, has_grid
from dp_ensemble_env.privacy.accounting.divergence import log_worst_case_delta
from dp_ensemble_env.privacy.accounting.losses import discretised, row_distribution
from dp_ensemble_env.privacy.mechanisms.gaussian import GaussianEvent

SIGMAS = 6.0  # two-sided chance of 2e-9 per comparison
ONE = RowGroup(50.0, 0.1, 0.03)
BUDGET = (2.0, 1e-5)


def composed_delta(epsilon, groups):
    return total_delta(epsilon, [(RowLoss(g.k, g.omega, g.h), g.number) for g in groups])


# ------------------------------------------------------------------ composition
def test_renyi_epsilon_is_the_least_bound_of_its_orders():
    """The orders are part of what a ledger has on record: a total that was charged does not move."""
    share = np.r_[np.geomspace(1e-9, 0.5, 400), 1 - np.geomspace(0.5, 1e-9, 200)]
    unequal = [RowGroup(3.0, 0.2, 0.3), RowGroup(9.0, 0.1, 0.1, 2)]
    for groups in ([ONE._replace(h=1e-12)], [ONE._replace(number=20)], unequal):
        orders = 1 + min(1e9, *(2 * group.omega / group.h for group in groups)) * np.unique(share)
        orders = orders[orders > 1 + 1e-6]
        total = sum(g.number * renyi_divergence(orders, g.k, g.h, g.omega) for g in groups)
        for delta in (1e-9, 1e-3, 0.5):
            bounds = total + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
            assert renyi_epsilon(delta, groups) == pytest.approx(max(bounds.min(), 0.0), rel=1e-12)
            assert renyi_epsilon(delta, groups) >= composed_epsilon(delta, groups)
    group = RowGroup(20.0, 0.05, 0.02, 3)  # more than two entries are never taken for the exact pair
    wide = renyi_epsilon(1e-6, [group], "any")
    assert composed_epsilon(1e-6, [group], "any") == wide > composed_epsilon(1e-6, [group])
    assert renyi_epsilon(1e-6, [RowGroup(1e-300, 1e-300, 1e-300, 3)]) == math.inf  # where products with k underflow


def test_composition_against_monte_carlo():
    """The loss of several releases is a sum of independent losses; sample it."""
    rng, size = np.random.default_rng(5), 50_000
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


def test_composition_against_prv_accountant():
    prv = importlib.import_module("prv_accountant")
    from prv_accountant.privacy_random_variables import PrivacyRandomVariable

    class Loss(PrivacyRandomVariable):
        def cdf(self, t):
            return special.betainc(5.75, 5.0, special.expit(np.asarray(t, dtype=np.float64) / 0.75))

    settings = {"max_self_compositions": [20], "eps_error": 0.02, "delta_error": 1e-10, "eps_max": 80.0}
    with pytest.warns(UserWarning, match="Assuming that true epsilon"):
        accountant = prv.PRVAccountant(prvs=[Loss()], **settings)
    low, estimate, high = accountant.compute_epsilon(1e-6, [20])
    mine = composed_epsilon(1e-6, [ONE._replace(number=20)])
    assert low <= mine <= high and mine == pytest.approx(estimate, rel=2e-3)


def test_groups_count_together_and_one_row_is_exact():
    values = [composed_epsilon(1e-6, [ONE._replace(number=n)]) for n in (1, 2, 5, 20, 100)]
    assert values == sorted(values) and values[0] == worst_case_epsilon(1e-6, 50, 0.03, 0.1)
    mixed = composed_epsilon(1e-6, [ONE, ONE._replace(h=0.02), ONE._replace(k=10.0)])
    assert 1.05 * values[0] < mixed < composed_epsilon(1e-6, [ONE._replace(number=3)])
    assert composed_delta(0.5, [ONE]) == pytest.approx(worst_case_delta(0.5, 50, 0.03, 0.1), rel=1e-9)
    assert composed_epsilon(1e-6, [ONE, ONE]) == values[1]
    # Below the convolution's accuracy the Rényi bound takes over, and it stays an upper bound.
    many = [ONE._replace(number=20)]
    assert composed_epsilon(1e-13, many) >= composed_epsilon(1e-10, many)
    for hopeless in ([ONE._replace(omega=0.0), ONE], [ONE._replace(k=1e300, number=2)]):
        assert composed_epsilon(1e-4, hopeless) == math.inf and composed_delta(0.5, hopeless) == 1.0
    for nothing in (ONE._replace(number=0), ONE._replace(h=0.0, omega=0.0)):
        assert composed_epsilon(1e-6, [nothing]) == 0.0 and composed_epsilon(1e-6, [ONE, nothing]) == values[0]
        assert largest_k(1.0, 1e-6, [nothing]) == math.inf


def test_without_dp_accounting_the_proven_bound_stands_in(monkeypatch):
    group = ONE._replace(number=20)
    exact = composed_epsilon(1e-6, [group])
    mixture = ((PureLoss(0.1), 20), (RowLoss(50, 0.1, 0.03), 20))
    tight = total_epsilon(1e-6, mixture)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    cached = compose._composed_epsilon, compose._mixed_epsilon, compose._convolved
    for one in cached:
        one.cache_clear()
    try:
        assert tight < total_epsilon(1e-6, mixture) < 1.3 * tight
        assert exact < composed_epsilon(1e-6, [group]) == renyi_epsilon(1e-6, [group]) < 1.1 * exact
        assert renyi_epsilon(1e-6, [group._replace(k=calibrate_k(8.0, 1e-6, 0.03, 0.1, 20))]) <= 8.0
        ledger = PrivacyLedger().record(DirichletEvent(50, 0.1, (2, 3)), 0.03)
        assert "Rényi bound, as dp-accounting is not installed" in str(ledger.statement())
    finally:
        for one in cached:
            one.cache_clear()


# ------------------------------------------------------------------ the grid
@pytest.mark.parametrize(("k", "h", "omega"), [(50, 0.03, 0.1), (0.01, 0.03, 0.1), (5, 0.5, 0.01)])
@pytest.mark.parametrize("points", [8, 100, 3000])
def test_pessimistic_discretisation_is_never_below_the_exact_delta(k, h, omega, points):
    reach = worst_case_epsilon(1e-15, k, h, omega)
    loss = discretised(lambda grid: np.exp(log_worst_case_delta(grid, k, h, omega)), reach, reach / points)
    for epsilon in np.linspace(0, reach, 37):
        assert loss.get_delta_for_epsilon(epsilon) >= worst_case_delta(epsilon, k, h, omega) * (1 - 1e-9) - 1e-16
    if points == 3000:
        epsilon = reach / 10
        assert loss.get_delta_for_epsilon(epsilon) == pytest.approx(worst_case_delta(epsilon, k, h, omega), rel=1e-2)


def test_the_grid_reaches_beyond_the_losses_and_rounds_upwards(monkeypatch):
    reach = worst_case_epsilon(1e-20, 50.0, 0.03, 0.1)
    for step in (reach / 7.5, reach / 8.0, reach / 8.5, 2 * reach):
        assert row_distribution(*ONE[:3], step)._pmf_remove._infinity_mass <= 1e-20 * (1 + 1e-9)
    # The exact curve is computed with rounding errors of its own, for which something is added.
    curves = []
    monkeypatch.setattr(losses, "discretised", lambda delta_at, *_: curves.append(delta_at))
    row_distribution.__wrapped__(*ONE[:3], 0.1)
    grid = np.linspace(-1.0, 3.0, 41)
    margin = curves[0](grid) / np.exp(log_worst_case_delta(grid, 50.0, 0.03, 0.1)) - 1.0
    assert (margin > 0.5e-12).all() and (margin < 2e-12).all()


def test_losses_that_no_grid_holds_are_told_apart():
    groups = (ONE, RowGroup(8.0, 0.2, 0.1, 3))
    assert has_grid(()) and has_grid(groups) and not has_grid((ONE, RowGroup(50.0, 0.0, 0.03)))
    for k, fits in ((8.5e10, True), (9e10, False), (1e300, False)):  # fine enough to be exponentiated
        assert has_grid((RowGroup(k, 0.1, 0.03),)) == fits
    many = (ONE, RowGroup(50.0, 0.1, 1e-6, 10**9))  # mostly small losses: the number of points is bounded
    assert grid_step(many) == pytest.approx(worst_case_epsilon(1e-20, 50.0, 0.03, 0.1) / 2**18, rel=1e-12)


# ------------------------------------------------------------------ calibration
@pytest.mark.parametrize(
    ("epsilon", "delta", "h", "omega", "rows", "entries", "slack"),
    [
        (0.479, 0.05, 0.03, 0.1, 1, "two", 1e-6),
        (8.0, 1e-6, 0.03, 0.1, 20, "two", 0.01),
        (3.0, 1e-4, 0.03, 0.1, 3, "two", 3e-3),
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


@pytest.mark.parametrize(("rows", "entries"), [(1, "two"), (1, "any"), (20, "two")])
def test_a_refusal_names_the_limit_and_remedies_that_are_just_enough(rows, entries):
    least = composed_epsilon(1e-6, [RowGroup(1e-9, 0.1, 0.03, rows)], entries)
    target = 0.9 * least
    with pytest.raises(UnreachableTarget) as refused:
        calibrate_k(target, 1e-6, 0.03, 0.1, rows, entries=entries)
    text = str(refused.value)
    assert float(re.search(r"does not fall below (\S+);", text)[1]) == pytest.approx(least, rel=1e-3)
    floor, h = (float(re.search(f"{one}(\\S+)", text)[1]) for one in ("above omega=", "shrink h below "))
    assert calibrate_k(target, 1e-6, 0.03, floor * 1.002, rows, entries=entries) > 0
    assert calibrate_k(target, 1e-6, h * 0.998, 0.1, rows, entries=entries) > 0
    for omega, move in ((floor * 0.99, 0.03), (0.1, h * 1.01)):
        with pytest.raises(UnreachableTarget):
            calibrate_k(target, 1e-6, move, omega, rows, entries=entries)
    with pytest.raises(UnreachableTarget, match="without a floor no k"):
        calibrate_k(target, 1e-6, 0.03, 0.0, rows, entries=entries)


# ------------------------------------------------------------------ draws of every kind
def draw(sigma):
    return GaussianEvent(sigma=sigma, states=3, seeding="seed")


def laplace_gaussian_delta(epsilon: float, pure: float, sigma: float) -> float:
    """Integrate the Gaussian's exact curve over the law of the Laplace loss, which has two atoms."""
    # Under the shifted law the loss is `pure` with probability 1/2, else pure - 2t with t exponential, cut off.
    inner, _ = integrate.quad(
        lambda t: 0.5 * math.exp(-t) * gaussian_delta(epsilon - (pure - 2 * t), sigma), 0.0, pure, epsabs=1e-14
    )
    ends = 0.5 * gaussian_delta(epsilon - pure, sigma) + 0.5 * math.exp(-pure) * gaussian_delta(epsilon + pure, sigma)
    return inner + ends


@pytest.mark.parametrize("seed", range(6))
def test_what_fits_a_budget_is_what_the_sum_says(seed):
    """Draws of three sizes in any order: what is remembered of earlier questions never changes an answer."""
    rng, account = np.random.default_rng(seed), Accountant(budget=BUDGET)
    counts: dict[float, int] = {}
    refused = 0
    for _ in range(60):
        sigma, times = float(rng.choice([7.0, 15.0, 40.0])), int(rng.integers(1, 7))
        after = {**counts, sigma: counts.get(sigma, 0) + times}
        epsilon = total_epsilon(BUDGET[1], [(GaussianLoss(s), n) for s, n in after.items()])
        said = account.excess(draw(sigma), times)
        assert (said is None) == (epsilon <= BUDGET[0])
        if said is None and rng.random() < 0.7:  # asked and not always spent
            account.compose(draw(sigma), times)
            counts = after
        refused += said is not None
        if said is not None:
            assert f"epsilon={epsilon:.4g} at delta=1e-05, above the budget of 2" in said
    assert refused and account.get_epsilon(BUDGET[1]) <= BUDGET[0]
    assert sum(counts.values()) == sum(account.charges.values())


def test_pure_losses_add_up_without_delta():
    pure, laplace = PureLoss(0.3), LaplaceLoss(0.7)
    assert total_epsilon(0.0, [(pure, 10), (PureLoss(1.0), 1)]) == pytest.approx(4.0)
    assert total_epsilon(0.0, [(laplace, 2), (pure, 1)]) == pytest.approx(1.7)
    for other in (RowLoss(50, 0.1, 0.03), GaussianLoss(3.0), ConcentratedLoss(0.1)):
        assert total_epsilon(0.0, [(pure, 1), (laplace, 1), (other, 1)]) == math.inf
    assert 0.7 - 1e-3 < total_epsilon(1e-6, [(laplace, 1)]) <= 0.7
    for epsilon in (30.0, 38.0, 800.0):  # of an answer that is hardly ever the other one
        assert total_epsilon(1e-5, [(PureLoss(epsilon), 1), (PureLoss(1.0), 1)]) == pytest.approx(epsilon + 1.0)


def test_gaussian_draws_compose_to_one_gaussian():
    counted = [(GaussianLoss(5.0), 3), (GaussianLoss(8.0), 2)]
    assert total_epsilon(1e-6, counted) == pytest.approx(gaussian_epsilon(1e-6, (3 / 25 + 2 / 64) ** -0.5), rel=1e-12)
    direct = pld.from_gaussian_mechanism(5.0).self_compose(3).compose(pld.from_gaussian_mechanism(8.0).self_compose(2))
    assert total_epsilon(1e-6, counted) == pytest.approx(direct.get_epsilon_for_delta(1e-6), rel=1e-3)


def test_a_laplace_and_a_gaussian_draw_compose_as_the_integral_says():
    epsilon = total_epsilon(1e-6, [(GaussianLoss(4.0), 1), (LaplaceLoss(0.5), 1)])
    assert laplace_gaussian_delta(epsilon, 0.5, 4.0) == pytest.approx(1e-6, rel=0.01)
    assert laplace_gaussian_delta(epsilon, 0.5, 4.0) <= 1e-6


def test_all_kinds_compose_in_one_sum():
    parts = [(GaussianLoss(6.0), 2), (LaplaceLoss(0.3), 1), (PureLoss(0.2), 1), (RowLoss(50.0, 0.1, 0.03), 3)]
    whole = total_epsilon(1e-6, parts)
    singles = [total_epsilon(1e-6, [part]) for part in parts]
    assert 1.01 * max(singles) < whole < sum(total_epsilon(1e-6 / 4, [part]) for part in parts)
    wide, groups = RowLoss(50.0, 0.1, 0.03, "any"), [RowGroup(50.0, 0.1, 0.03), RowGroup(40.0, 0.1, 0.03)]
    both = total_epsilon(1e-4, [(wide, 1), (RowLoss(40.0, 0.1, 0.03, "two"), 1)])  # one "any" makes all "any"
    assert both == composed_epsilon(1e-4, groups, "any") > composed_epsilon(1e-4, groups)
    rounded = [(RowLoss(50.0, 0.1, 0.03, rounding=1e-3), 2), *parts[:3], (RowLoss(50.0, 0.1, 0.03), 1)]
    assert total_epsilon(1e-6, rounded) == pytest.approx(whole + 2e-3, rel=1e-9)
    # A posterior draw has no convolution, so the whole falls back on Rényi divergences: larger, and finite.
    assert whole < total_epsilon(1e-6, [*parts, (PosteriorLoss(5000.0, 4), 1)]) < math.inf


# ------------------------------------------------------------------ a total is never below its parts
MIXED = st.lists(
    st.one_of(
        st.builds(PureLoss, st.floats(1e-4, 2.0)),
        st.builds(LaplaceLoss, st.floats(1e-3, 2.0)),
        st.builds(GaussianLoss, st.floats(0.5, 50.0)),
        st.builds(ConcentratedLoss, st.floats(1e-5, 0.5)),
        st.builds(lambda k, omega: RowLoss(k, omega, 0.02), st.floats(1.0, 80.0), st.floats(0.05, 0.3)),
        st.builds(PosteriorLoss, st.floats(50.0, 500.0), st.integers(1, 4)),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=10, deadline=None)
@given(MIXED, st.lists(st.integers(1, 300), min_size=4, max_size=4), st.sampled_from([1e-3, 1e-6]))
def test_a_total_is_never_below_any_of_its_parts(losses, numbers, delta):
    counted = list(zip(losses, numbers, strict=False))
    total = total_epsilon(delta, counted)
    for size in range(len(counted)):
        assert total >= total_epsilon(delta, counted[: size + 1]) * (1 - 2e-4) - 2e-4  # grids differ a little
    assert max(total_epsilon(delta, [one]) for one in counted) <= total * (1 + 2e-4) + 2e-4
    assert total_delta(total, counted) <= delta * (1 + 1e-6) or total == 0.0


def integrated(epsilon: float, sigma: float, pure: float, number: int) -> float:
    """Return δ of one Gaussian draw and `number` randomised responses by integration and enumeration."""
    k = np.arange(number + 1)
    p = 1.0 / (1.0 + math.exp(-pure))
    log_p, log_q = stats.binom.logpmf(k, number, p), stats.binom.logpmf(k, number, 1.0 - p)
    x = np.linspace(-12 * sigma, 12 * sigma + 1, 8_001)
    first, second = stats.norm.pdf(x, 1.0, sigma), stats.norm.pdf(x, 0.0, sigma)
    joint = np.maximum(np.outer(np.exp(log_p), first) - math.exp(epsilon) * np.outer(np.exp(log_q), second), 0.0)
    return float(np.trapezoid(joint.sum(axis=0), x))


@pytest.mark.parametrize(("sigma", "pure", "number"), [(4.2247, 1e-3, 400), (2.0, 0.3, 5), (6.0, 1.0, 1)])
def test_a_mixture_is_never_below_numerical_integration(sigma, pure, number):
    counted = [(GaussianLoss(sigma), 1), (PureLoss(pure), number)]
    for delta in (1e-3, 1e-6):
        epsilon = total_epsilon(delta, counted)
        assert integrated(epsilon, sigma, pure, number) <= delta * (1 + 1e-4)
        assert integrated(0.98 * epsilon - 2e-3, sigma, pure, number) > delta  # and hardly above it


def test_losses_too_large_for_a_grid_are_composed_without_one():
    for loss in (LaplaceLoss(1e12), PureLoss(1e300), GaussianLoss(1e-7)):
        assert total_epsilon(1e-6, [(loss, 1), (PureLoss(0.1), 2)]) >= total_epsilon(1e-6, [(PureLoss(0.1), 2)])
    assert total_epsilon(1e-6, [(LaplaceLoss(1e12), 1)]) == pytest.approx(1e12)
