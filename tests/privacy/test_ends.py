"""Where branches of the accounting meet: ends of ranges, one row or several, and what a target only just allows."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import integrate, optimize, stats

from dp_ensemble_env.privacy.accounting import calibrate, compose
from dp_ensemble_env.privacy.accounting.compose import (
    RowGroup,
    UnreachableTarget,
    calibrate_groups,
    calibrate_k,
    composed_delta,
    composed_epsilon,
    largest_k,
    renyi_epsilon,
)
from dp_ensemble_env.privacy.accounting.divergence import (
    LARGEST_K,
    _log_lower_tail,
    adjacent_row,
    pair_delta,
    pair_epsilon,
    renyi_divergence,
    renyi_limit,
    vanishing_k_epsilon,
    worst_case_delta,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting.losses import GaussianLoss, LaplaceLoss, PureLoss, RowLoss, total_epsilon
from dp_ensemble_env.privacy.accounting.theorem2 import _log_miss, theorem2_epsilon, theorem2_log_miss
from dp_ensemble_env.privacy.mechanisms.dirichlet import PAPER_H, DirichletEvent, DirichletMechanism
from dp_ensemble_env.privacy.mechanisms.laplace import LaplaceEvent
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.privacy.statement import release_guarantee

ROW = [0.2, 0.6, 0.2]


# ------------------------------------------------------------------ one row
def test_epsilon_is_zero_only_where_delta_allows_it():
    """Just below the δ that ε = 0 has, a little ε is needed; from there on none."""
    for free, epsilon_at, delta_at in (
        (worst_case_delta(0.0, 50, 0.03, 0.1), lambda d: worst_case_epsilon(d, 50, 0.03, 0.1),
         lambda e: worst_case_delta(e, 50, 0.03, 0.1)),
        (pair_delta(0.0, ROW, 0, 1, 50, 0.03), lambda d: pair_epsilon(d, ROW, 0, 1, 50, 0.03),
         lambda e: pair_delta(e, ROW, 0, 1, 50, 0.03)),
        (calibrate.gaussian_delta(0.0, 3.0), lambda d: calibrate.gaussian_epsilon(d, 3.0),
         lambda e: calibrate.gaussian_delta(e, 3.0)),
    ):  # fmt: skip
        assert epsilon_at(free) == epsilon_at(1.01 * free) == 0.0
        for share in (0.999, 0.7, 0.4):
            found = epsilon_at(share * free)
            assert found > 0 and delta_at(found) == pytest.approx(share * free, rel=1e-8)


def test_tails_beyond_the_range_of_floats_and_within_it_side_by_side():
    """Some need no term of the series, some two, some fifty; all at once they are what each is alone."""
    p, q, y = 5000.0, 3.0, np.array([0.999, 1e-300, 0.5, 0.85, 1e-10])
    with mpmath.workdps(40):
        expected = [float(mpmath.log(mpmath.betainc(p, q, 0, one, regularized=True))) for one in y]
    found = _log_lower_tail(p, q, np.log(y))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_floor_above_one_is_refused_as_such():
    with pytest.raises(ValueError, match=r"floor must lie in \[0, 1\], got 1.5"):
        DirichletEvent(k=5.0, floor=1.5, successors=(1,))


def test_a_move_that_empties_an_entry_has_no_epsilon():
    assert pair_epsilon(0.01, ROW, 0, 1, 50, 0.4) == math.inf and pair_delta(9.0, ROW, 0, 1, 50, 0.4) == 1.0
    assert pair_epsilon(0.01, ROW, 0, 1, 50, 0.0) == 0.0 and pair_delta(0.0, ROW, 0, 1, 50, 0.0) == 0.0
    assert pair_epsilon(0.01, ROW, 0, 1, 1e300, 0.03) == math.inf
    assert adjacent_row(ROW, 0, 1, 0.4).tolist() == pytest.approx([0.0, 0.8, 0.2])


def test_distances_of_rows_end_at_two():
    for call in (
        lambda h: adjacent_row([0.5, 0.5], 0, 1, h),
        lambda h: renyi_divergence(1.5, 50, h, 0.1),
        lambda h: DirichletEvent(50.0, 0.1, (3,), seeding="seed", h=(h,)),
    ):
        for wrong in (2.5, -0.1):
            with pytest.raises(ValueError, match="^h must"):
                call(wrong)
    assert renyi_divergence(1.05, 9, 2.0, 0.5) > 0 and worst_case_epsilon(0.01, 9, 2.0, 0.5) > 0


# ------------------------------------------------------------------ Rényi
@pytest.mark.parametrize(("ratio", "two", "several"), [(3.0, 4.0, 4.0), (1.2, 2.2, 1.44), (0.5, 1.5, 1.0)])
def test_the_last_order_of_the_bound(ratio, two, several):
    assert renyi_limit(0.2, 0.1 * ratio) == pytest.approx(two)
    assert renyi_limit(0.2, 0.1 * ratio, "any") == pytest.approx(several)
    assert renyi_limit(0.0, 0.1) == renyi_limit(0.0, 0.1, "any") == math.inf
    assert (renyi_epsilon(0.01, [RowGroup(9.0, 0.1 * ratio, 0.2)], "any") == math.inf) == (several == 1.0)


@pytest.mark.parametrize("h", [0.05, 1.0])
@pytest.mark.parametrize("k", [3.0, 900.0])
def test_renyi_divergence_of_the_worst_pair_by_quadrature(k, h):
    """Two entries x, 1 - x of a row, Beta distributed; at k = 900 the form without cancellation is used."""
    omega, d = 0.5, h / 2
    for order in (1.1, 1.7):
        p, q = stats.beta(k * (omega + d), k * omega), stats.beta(k * omega, k * (omega + d))
        with np.errstate(over="ignore"):
            moment = integrate.quad(
                lambda x, p=p, q=q, order=order: math.exp(order * p.logpdf(x) + (1 - order) * q.logpdf(x)),
                0, 1, points=[0.25, 0.5, 0.75], limit=400,
            )[0]  # fmt: skip
        if order < renyi_limit(h, omega):
            assert renyi_divergence(order, k, h, omega) == pytest.approx(math.log(moment) / (order - 1), rel=1e-6)
    assert renyi_divergence(1.5, k, 0.0, omega) == 0.0


@pytest.mark.parametrize("group", [RowGroup(50.0, 0.1, 0.03, 5), RowGroup(4.0, 0.05, 0.06, 2)])
@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.2])
def test_the_renyi_bound_uses_the_best_order(group, delta):
    """The grid of orders loses little against a search over all of them."""
    k, omega, h, number = group

    def bound(log_above):
        order = 1.0 + math.exp(log_above)
        found = number * float(renyi_divergence(order, k, h, omega))
        return found + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1.0)

    ends = (math.log(1e-5), math.log((renyi_limit(h, omega) - 1.0) * (1 - 1e-9)))
    best = min(optimize.minimize_scalar(bound, bounds=part, method="bounded").fun
               for part in pairwise(np.linspace(*ends, 9)))  # fmt: skip
    found = renyi_epsilon(delta, [group])
    assert max(best, 0.0) - 1e-9 <= found <= max(best, 0.0) * (1 + 2e-3) + 1e-4


# ------------------------------------------------------------------ several rows
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
    assert release_guarantee(50, 0.03, 0.1, 1e-4).epsilon == worst_case_epsilon(1e-4, 50, 0.03, 0.1)


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


# ------------------------------------------------------------------ losses together
def test_losses_of_several_kinds_cost_more_than_each():
    gaussian, laplace, rows = GaussianLoss(4.0), LaplaceLoss(0.3), RowLoss(50.0, 0.1, 0.03, "two")
    for delta in (1e-5, 1e-3):
        alone = {loss: total_epsilon(delta, [(loss, 1)]) for loss in (gaussian, laplace, rows)}
        for pair in ((gaussian, laplace), (gaussian, rows), (laplace, rows)):
            both = total_epsilon(delta, [(loss, 1) for loss in pair])
            assert max(alone[loss] for loss in pair) * 1.01 < both <= sum(alone[loss] for loss in pair) * (1 + 1e-3)
    assert total_epsilon(0.0, [(laplace, 2), (PureLoss(0.5), 1)]) == pytest.approx(1.1)
    assert total_epsilon(0.0, [(laplace, 1), (gaussian, 1)]) == math.inf == total_epsilon(0.0, [(gaussian, 1)])
    for wrong in (1.5, -0.1):
        with pytest.raises(ValueError, match="delta must"):
            total_epsilon(wrong, [(laplace, 1), (PureLoss(0.5), 1)])


@pytest.mark.parametrize("loss", [LaplaceLoss(0.7), PureLoss(0.7)])
def test_renyi_of_pure_losses_by_their_definition(loss):
    orders = np.array([1.05, 1.5, 2.0, 7.0])
    if isinstance(loss, PureLoss):
        p = np.array([1.0, math.exp(-0.7)]) / (1 + math.exp(-0.7))
        expected = [math.log((p**x * p[::-1] ** (1 - x)).sum()) / (x - 1) for x in orders]
    else:
        density = [stats.laplace(shift, 1 / 0.7) for shift in (0.0, 1.0)]
        expected = [
            math.log(integrate.quad(lambda y, x=x: density[0].pdf(y) ** x * density[1].pdf(y) ** (1 - x),
                                    -60, 60, points=[0.0, 1.0], limit=200)[0]) / (x - 1)
            for x in orders
        ]  # fmt: skip
    np.testing.assert_allclose(loss.renyi(orders), expected, rtol=1e-7)
    assert (loss.renyi(np.array([1.0, 1e9])) <= 0.7).all()


# ------------------------------------------------------------------ calibration
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


# ------------------------------------------------------------------ Theorem 2
def test_theorem_2_needs_room_for_the_neighbour():
    with pytest.raises(ValueError, match="no adjacent rows"):
        theorem2_epsilon(50, 0.5, 0.25, 0.5, 2, 0.05)  # the other entry would fall to zero
    with pytest.raises(ValueError, match="no adjacent rows"):
        theorem2_epsilon(50, 0.03, 0.25, 0.3, 3, 0.05)
    assert theorem2_epsilon(50, 0.49, 0.25, 0.5, 2, 0.05) > 0 == theorem2_epsilon(50, 0.0, 0.25, 0.5, 2, 0.05)
    assert theorem2_epsilon(50, 0.03, 0.25, 0.25, 3, 0.05) > 0  # the entries fill their part exactly


@pytest.mark.parametrize("psi", [0.02, 0.2, 0.3, 0.45, 0.6])
def test_the_chance_of_a_miss_by_integration(psi):
    """Two entries of three: one minus the chance that both are at least ψ, which is none from one half on."""
    k, shapes = 6.0, np.array([1.5, 2.0])
    rest = k - shapes.sum()

    def both(x):  # x_2 / (1 - x_1) is Beta distributed
        left = stats.beta(shapes[1], rest).sf(min(psi / (1 - x), 1.0))
        return stats.beta(shapes[0], k - shapes[0]).pdf(x) * left

    kept = integrate.quad(both, psi, 1 - psi, limit=200)[0] if psi < 0.5 else 0.0
    assert math.exp(_log_miss(math.log(psi), shapes, k)) == pytest.approx(1 - kept, rel=1e-7)
    assert theorem2_log_miss(math.log(psi), k, 0.25, 0.4, 2) <= 0.0


# ------------------------------------------------------------------ mechanisms
def test_a_floor_may_fill_a_row_exactly():
    event = DirichletEvent(50.0, 0.25, (4, 3), seeding="seed")
    assert event.floor == 0.25
    with pytest.raises(ValueError, match="does not fit rows of 4"):
        DirichletEvent(50.0, 0.2501, (4, 3), seeding="seed")
    mechanism = DirichletMechanism(k=50.0, floor=0.25)
    np.testing.assert_allclose(mechanism.floored(np.array([[0.7, 0.1, 0.1, 0.1]] * 4)), 0.25)
    with pytest.raises(ValueError, match="row 0, which has 4 successors"):
        DirichletMechanism(k=50.0, floor=0.26).floored(np.array([[0.7, 0.1, 0.1, 0.1]] * 4))


def test_a_release_that_fixes_its_adjacency_takes_no_other():
    event = LaplaceEvent(epsilon=1.0, states=3, seeding="seed")
    assert event.under() is event
    for other in ({"h": 0.1}, {"entries": "any"}, {"h": 0.1, "entries": "any"}):
        with pytest.raises(ValueError, match="fixes its own adjacency"):
            event.under(**other)


def test_the_largest_release_is_the_limit_and_no_more(tmp_path, monkeypatch):
    release = DirichletMechanism(k=50.0).release(np.full((3, 3), 1 / 3), rng=0)
    path = release.save(tmp_path / "release.json")
    base = "dp_ensemble_env.privacy.release.LARGEST_RELEASE"
    monkeypatch.setattr(base, path.stat().st_size)
    assert Release.load(path).digest == release.digest
    monkeypatch.setattr(base, path.stat().st_size - 1)
    with pytest.raises(ValueError, match="cannot load the release"):
        Release.load(path)
    assert Release.load(path, limits=1.5).digest == release.digest


def test_other_entries_keep_the_distance_and_where_it_comes_from():
    """A distance that was computed from private counts does not become a stated one, which may be published."""
    for source in ("stated", "counts", "devices"):
        event = DirichletEvent(50.0, 0.1, (3, 2), seeding="seed", h=(0.1, 0.2), h_source=source)
        wider = event.under(entries="any")
        assert wider.h == (0.1, 0.2) and wider.entries == "any" and wider.h_source == source
        assert (wider.public.h == ()) == (source != "stated")
        assert event.under(0.3).h == (0.3,) and event.under(0.3).h_source == "stated"
    plain = DirichletEvent(50.0, 0.1, (3, 2), seeding="seed").under(entries="any")
    assert plain.h == (PAPER_H,) and plain.h_source == "stated"
    with pytest.raises(ValueError, match="3 values for 2 rows"):
        plain.under([0.1, 0.2, 0.3])


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


def test_from_the_largest_k_on_nothing_is_private():
    for k in (LARGEST_K, 2 * LARGEST_K):
        assert worst_case_epsilon(0.01, k, 0.03, 0.1) == pair_epsilon(0.01, [0.2, 0.6, 0.2], 0, 1, k, 0.03) == math.inf
        assert renyi_divergence(1.5, k, 0.03, 0.1) == theorem2_epsilon(k, 0.03, 0.1, 0.1, 2, 0.05) == math.inf
        assert worst_case_delta(3.0, k, 0.03, 0.1) == pair_delta(3.0, [0.2, 0.6, 0.2], 0, 1, k, 0.03) == 1.0
        assert worst_case_epsilon(0.01, k, 0.0, 0.1) == renyi_divergence(1.5, k, 0.0, 0.1) == 0.0


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


def test_the_card_of_a_release_says_how_many_states_it_has():
    release = DirichletMechanism(50.0).release(np.full((4, 4), 0.25), seed=0)
    assert re.search(r"states</t[hd]>\s*<td[^>]*>4<", release._repr_html_())


def test_more_than_two_entries_are_bounded_and_never_taken_for_the_exact_pair():
    settings = {"k": 20.0, "h": 0.02, "omega": 0.05, "delta": 1e-6, "rows": 3}
    bound = release_guarantee(**settings, entries="any")
    assert bound.epsilon == renyi_epsilon(1e-6, [RowGroup(20.0, 0.05, 0.02, 3)], "any") and "nyi" in bound.method
    two = release_guarantee(**settings, method="renyi")
    assert two.epsilon == renyi_epsilon(1e-6, [RowGroup(20.0, 0.05, 0.02, 3)], "two")
    assert release_guarantee(**settings).epsilon < two.epsilon <= bound.epsilon


@pytest.mark.parametrize("total", [0.9, 1.1, 1.0001])
def test_a_row_that_is_no_distribution_has_no_neighbour(total):
    with pytest.raises(ValueError, match="sum to 1"):
        adjacent_row(np.array(ROW) * total, 0, 1, 0.03)
