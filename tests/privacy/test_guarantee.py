"""Guarantees against quadrature, Monte Carlo, mpmath, a second accountant, and the published numbers."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats

from dp_ensemble_env.privacy import (
    DirichletEvent,
    PrivacyLedger,
    RowGroup,
    UnreachableTarget,
    calibrate_groups,
    calibrate_k,
    composed_delta,
    composed_epsilon,
    largest_k,
    pair_delta,
    pair_epsilon,
    release_guarantee,
    renyi_divergence,
    renyi_epsilon,
    renyi_limit,
    theorem2_epsilon,
    vanishing_k_composed,
    vanishing_k_delta,
    vanishing_k_epsilon,
    worst_case_delta,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting import compose
from dp_ensemble_env.privacy.accounting.compose import pessimistic_pmf
from dp_ensemble_env.privacy.accounting.divergence import adjacent_row, log_worst_case_delta
from dp_ensemble_env.privacy.accounting.losses import PureLoss, RowLoss, total_epsilon
from dp_ensemble_env.privacy.accounting.theorem2 import theorem2_log_miss, theorem2_log_psi
from dp_ensemble_env.privacy.mechanisms.dirichlet import log_gamma_variates

SIGMAS = 6.0  # two-sided chance of 2e-9 per comparison


# ------------------------------------------------------------------ published and restated numbers
@pytest.mark.parametrize(
    ("omega", "k", "exact", "theorem2"),
    [(0.2, 50, 0.2514, 2.438), (0.2, 200, 0.8203, 8.430), (0.1, 50, 0.4791, 4.070), (0.1, 200, 1.398, 14.18)],
)
def test_numbers_of_the_exact_analysis_and_theorem_2(omega, k, exact, theorem2):
    assert float(f"{worst_case_epsilon(0.05, k, 0.03, omega):.4g}") == exact
    assert float(f"{theorem2_epsilon(k, 0.03, omega, omega, 2, 0.05):.4g}") == theorem2


@pytest.mark.parametrize(("number", "delta", "epsilon"), [(1, 1e-6, 2.533), (20, 1e-6, 12.16), (1000, 0.05, 139.3)])
def test_numbers_of_the_composition(number, delta, epsilon):
    assert float(f"{composed_epsilon(delta, [RowGroup(50, 0.1, 0.03, number)]):.4g}") == epsilon


def test_published_pair_of_epsilons_fits_no_setting_of_theorem_2():
    """E13: ε(200) = 5.45 and ε(50) = 0.88 have a ratio above 4, which the theorem never exceeds."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        omega = rng.uniform(0.005, 0.3)
        omega_bar, size = rng.uniform(0.01, 1 - 2 * omega - 0.02), 2
        ratio = theorem2_epsilon(200, 0.03, omega, omega_bar, size, 0.05) / theorem2_epsilon(
            50, 0.03, omega, omega_bar, size, 0.05
        )
        assert ratio <= 4.0 < 5.45 / 0.88


# ------------------------------------------------------------------ one pair
def _quadrature_delta(epsilon, a, b, m):
    """Hockey-stick divergence of the two Beta laws by quadrature of the densities, the larger direction."""
    first, second = stats.beta(a, b), stats.beta(a - m, b + m)
    points = sorted(float(law.ppf(q)) for law in (first, second) for q in (1e-9, 0.01, 0.5, 0.99, 1 - 1e-9))
    total = []
    for p, q in ((first, second), (second, first)):
        value = 0.0
        for low, high in zip([0.0, *points], [*points, 1.0], strict=True):
            value += integrate.quad(lambda x, p=p, q=q: max(0.0, p.pdf(x) - math.exp(epsilon) * q.pdf(x)), low, high)[0]
        total.append(value)
    return max(total)


@pytest.mark.parametrize(
    ("row", "i", "j", "k", "h", "epsilon"),
    [
        ([0.2, 0.6, 0.2], 0, 1, 50, 0.03, 0.2),
        ([0.2, 0.6, 0.2], 1, 2, 200, 0.03, 0.5),
        ([0.5, 0.3, 0.2], 2, 0, 20, 0.1, 0.1),
        ([0.1, 0.1, 0.8], 0, 1, 50, 0.03, 0.0),
        ([0.4, 0.6], 0, 1, 30, 0.2, 1.0),
    ],
)
def test_pair_against_quadrature_and_monte_carlo(row, i, j, k, h, epsilon):
    exact = pair_delta(epsilon, row, i, j, k, h)
    a, b, m = k * row[i], k * row[j], k * h / 2
    assert exact == pytest.approx(_quadrature_delta(epsilon, a, b, m), rel=1e-5, abs=1e-9)

    rng = np.random.default_rng(1)
    moved = adjacent_row(row, i, j, h)
    deltas, errors = [], []
    for p, q in ((np.array(row), moved), (moved, np.array(row))):
        x = rng.dirichlet(k * p, 200_000)  # all entries: the reduction to two is part of what is tested
        loss = special.gammaln(k * q).sum() - special.gammaln(k * p).sum() + (np.log(x) @ (k * (p - q)))
        gain = np.maximum(0.0, -np.expm1(epsilon - loss))
        deltas.append(gain.mean())
        errors.append(gain.std() / math.sqrt(len(gain)))
    assert exact == pytest.approx(max(deltas), abs=SIGMAS * max(errors))


def test_worst_case_is_a_pair_and_both_ways_invert():
    row = [0.115, 0.1, 0.785]
    for epsilon in (0.0, 0.1, 0.5, 2.0, 6.0):
        assert pair_delta(epsilon, row, 0, 1, 50, 0.03) == pytest.approx(
            worst_case_delta(epsilon, 50, 0.03, 0.1), rel=1e-9
        )
    for delta in (0.04, 1e-3, 1e-9, 1e-100, 1e-280):
        epsilon = worst_case_epsilon(delta, 50, 0.03, 0.1)
        assert worst_case_delta(epsilon, 50, 0.03, 0.1) == pytest.approx(delta, rel=1e-6)
        assert worst_case_delta(epsilon, 50, 0.03, 0.1) <= delta * (1 + 1e-12)
        assert pair_delta(pair_epsilon(delta, row, 0, 1, 50, 0.03), row, 0, 1, 50, 0.03) == pytest.approx(
            delta, rel=1e-6
        )
    assert worst_case_epsilon(0.9, 50, 0.03, 0.1) == 0.0
    assert worst_case_epsilon(0.05, 50, 0.03, 0.0) == math.inf
    assert worst_case_epsilon(0.05, 50, 0.0, 0.0) == 0.0


def _mp_delta(epsilon, k, h, omega):
    s, m = mp.mpf(k) * mp.mpf(omega), mp.mpf(k) * mp.mpf(h) / 2
    y = 1 / (1 + mp.e ** (mp.mpf(epsilon) / m))
    upper = mp.betainc(s, s + m, 0, y, regularized=True)
    return upper - mp.e ** mp.mpf(epsilon) * mp.betainc(s + m, s, 0, y, regularized=True)


def test_closed_form_against_mpmath_over_many_orders_of_magnitude():
    rng = np.random.default_rng(0)
    checked = 0
    with mp.workdps(60):
        for _ in range(300):
            k, omega, h = 10 ** rng.uniform(-6, 4), 10 ** rng.uniform(-5, -0.4), 10 ** rng.uniform(-4, 0)
            epsilon = rng.uniform(0, 20) * h / (2 * omega) * rng.choice([0.01, 0.1, 1.0])
            exact = _mp_delta(epsilon, k, h, omega)
            if exact > mp.mpf(10) ** -250:
                checked += 1
                assert float(log_worst_case_delta(epsilon, k, h, omega)) == pytest.approx(
                    float(mp.log(exact)), abs=1e-8
                )
    assert checked > 200


def test_nothing_is_nan_at_the_extremes():
    for k in (1e-12, 1e-3, 1.0, 1e5, 1e9):
        for omega in (1e-12, 1e-6, 0.1, 0.5):
            for h in (1e-9, 0.03, 2.0):
                for epsilon in (0.0, 1e-12, 1.0, 1e3, 1e8):
                    assert 0.0 <= worst_case_delta(epsilon, k, h, omega) <= 1.0
                assert worst_case_epsilon(1e-300, k, h, omega) >= worst_case_epsilon(0.05, k, h, omega) >= 0.0
    for row in ([1e-9, 1 - 1e-9], [0.5, 0.5]):
        assert 0 <= pair_delta(5.0, row, 1, 0, 50, 0.03) <= 1


@pytest.mark.parametrize("k", [1e12, 1e15, 1e100, 1e300, 1.7e308])
def test_an_enormous_k_hides_nothing_and_says_so(k):
    """What overflows must come out as a large or an infinite loss, without a warning."""
    rows = [RowGroup(k, 0.1, 0.03, 20)]
    alone, together = worst_case_epsilon(1e-6, k, 0.03, 0.1), composed_epsilon(1e-6, rows)
    assert min(alone, together) > 1e-4 * k and (together >= alone or alone == np.inf)
    assert composed_delta(1.0, rows) == worst_case_delta(1.0, k, 0.03, 0.1) == 1.0
    assert (
        pair_delta(1.0, [0.5, 0.5], 0, 1, k, 0.03) == 1.0 and pair_epsilon(1e-6, [0.5, 0.5], 0, 1, k, 0.03) > 1e-4 * k
    )
    assert theorem2_epsilon(k, 0.03, 0.1, 0.1, 2, 0.05) > 1e-2 * k
    assert total_epsilon(1e-6, [(PureLoss(0.5), 2), (RowLoss(k, 0.1, 0.03), 20)]) > 1e-4 * k
    assert composed_epsilon(1e-6, [RowGroup(k, 0.1, 0.0, 20)]) == 0.0  # what does not move is hidden all the same


@pytest.mark.parametrize(
    ("k", "h", "order"), [(1e12, 1e-8, 2.0), (1e9, 1e-6, 5.0), (1e6, 0.03, 4.0), (600.0, 0.15, 1.5)]
)
def test_renyi_divergence_of_small_moves_at_a_large_k_is_not_lost_in_rounding(k, h, order):
    """As a sum of four logarithms of Gamma it would be: they are 1e12 times as large."""
    with mp.workdps(60):
        lam, scale, d, omega = (mp.mpf(x) for x in (order, k, h / 2, 0.1))
        gammas = [omega + lam * d, omega - (lam - 1) * d, omega + d, omega]
        signs = (1, 1, -1, -1)
        exact = sum(sign * mp.loggamma(scale * x) for sign, x in zip(signs, gammas, strict=True)) / (lam - 1)
        expected = float(exact)
    assert float(renyi_divergence(order, k, h, 0.1)) == pytest.approx(expected, rel=1e-6)
    assert renyi_divergence([order, order], k, h, 0.1) == pytest.approx([expected] * 2, rel=1e-6)


def test_pair_names_the_entry_without_an_adjacent_row():
    with pytest.raises(ValueError, match=r"entry 0 of the row is 0.01, below h/2 = 0.015"):
        pair_delta(1.0, [0.01, 0.99], 0, 1, 50, 0.03)
    with pytest.raises(ValueError, match="outside the public support"):
        pair_delta(1.0, [0.0, 0.5, 0.5], 1, 0, 50, 0.03)
    assert pair_epsilon(0.05, [0.015, 0.985], 0, 1, 50, 0.03) == math.inf  # the entry vanishes
    assert pair_delta(100.0, [0.015, 0.985], 0, 1, 50, 0.03) == 1.0


# ------------------------------------------------------------------ the worst case dominates, and is monotone
def test_dominance_over_thousands_of_random_adjacent_pairs():
    rng = np.random.default_rng(2)
    closest = 0.0
    for _ in range(4000):
        n = int(rng.integers(2, 7))
        omega = rng.uniform(0.005, 0.9 / n)
        h = rng.uniform(0.001, 1.0) * 2 * (1 - n * omega)
        free = rng.dirichlet(np.full(n, 10 ** rng.uniform(-1, 1))) * (1 - n * omega - h / 2)
        row = omega + free
        row[0] += h / 2  # both the row and its neighbour have entries >= omega
        k, epsilon = 10 ** rng.uniform(-1, 3), rng.exponential(1.0)
        bound = worst_case_delta(epsilon, k, h, omega)
        delta = pair_delta(epsilon, row, 0, 1, k, h)
        assert delta <= bound * (1 + 1e-9) + 1e-15
        closest = max(closest, delta / bound if bound > 1e-12 else 0.0)
    assert closest > 0.9  # the bound is attained, not merely large


def test_merging_dirichlet_cells_turns_the_dominating_pair_into_any_other():
    """The proof of dominance: merged cells of one Dirichlet vector have the two Beta laws."""
    s, m, a, b = 2.0, 0.5, 4.0, 3.5
    rng = np.random.default_rng(8)
    for first, second, law in ((s + m, s, (a, b)), (s, s + m, (a - m, b + m))):
        ratio = rng.beta(first, second, 100_000)  # the only place where the two inputs differ
        share, rest = rng.beta(2 * s + m, a + b - 2 * s - m, 100_000), rng.beta(a - m - s, b - s, 100_000)
        merged = share * ratio + (1 - share) * rest
        assert stats.kstest(merged, stats.beta(*law).cdf).pvalue > 1e-7


@given(
    k=st.floats(1e-3, 1e3),
    h=st.floats(1e-3, 0.5),
    omega=st.floats(1e-3, 0.3),
    epsilon=st.floats(0.0, 10.0),
    factor=st.floats(1.01, 5.0),
)
def test_monotone_in_epsilon_k_h_and_floor(k, h, omega, epsilon, factor):
    delta = worst_case_delta(epsilon, k, h, omega)
    slack = 1e-9 * delta + 1e-14
    assert worst_case_delta(epsilon * factor, k, h, omega) <= delta + slack
    assert worst_case_delta(epsilon, k * factor, h, omega) >= delta - slack  # E12: less noise, less privacy
    assert worst_case_delta(epsilon, k, min(2.0, h * factor), omega) >= delta - slack
    assert worst_case_delta(epsilon, k, h, min(0.5, omega * factor)) <= delta + slack
    assert float(vanishing_k_delta(epsilon, h / (2 * omega))) <= delta + slack


def test_limit_as_k_vanishes():
    for h, omega in ((0.03, 0.1), (0.2, 0.01), (0.001, 0.3)):
        for epsilon in (0.0, 0.1, 1.0):
            limit = float(vanishing_k_delta(epsilon, h / (2 * omega)))
            assert worst_case_delta(epsilon, 1e-9, h, omega) == pytest.approx(limit, rel=1e-5, abs=1e-300)
        assert worst_case_epsilon(1e-6, 1e-9, h, omega) == pytest.approx(vanishing_k_epsilon(1e-6, h, omega), rel=1e-5)
    # The tail is that of an exponential variate with rate 2ω/h.
    assert vanishing_k_epsilon(1e-9, 0.03, 0.1) - vanishing_k_epsilon(1e-6, 0.03, 0.1) == pytest.approx(
        math.log(1e3) * 0.03 / 0.2
    )


def test_the_pair_at_k_is_a_composition_of_limit_pairs():
    """The proof that the divergence rises with k: moments of the loss against the product over limit pairs."""
    for k, h, omega, t in ((50, 0.03, 0.1, 1.0), (5, 0.1, 0.2, 2.5), (0.5, 0.03, 0.1, 4.0)):
        d = h / 2
        a = np.arange(2_000_000) / k
        terms = -np.log1p(-t * d / (a + omega)) - np.log1p(t * d / (a + omega + d))
        tail = t * (t + 1) * d * d * k**2 / len(a)  # of the terms left out, ~ t(t+1)d²/a²
        assert t * float(renyi_divergence(1 + t, k, h, omega)) == pytest.approx(terms.sum() + tail, rel=1e-6)
        first = float(vanishing_k_delta(0.1, d / omega))
        assert first <= worst_case_delta(0.1, k, h, omega)
    # Composing the first few limit pairs bounds the exact δ from below, more of them more tightly.
    k, h, omega, epsilon = 50, 0.03, 0.1, 0.5
    rng = np.random.default_rng(9)
    loss, deltas = np.zeros(200_000), []
    for n in range(200):
        e = rng.standard_exponential((2, len(loss)))
        loss += h / 2 * (e[0] / (omega + n / k) - e[1] / (omega + h / 2 + n / k))
        deltas.append(float(np.maximum(0.0, -np.expm1(epsilon - loss)).mean()))
    assert deltas[0] < deltas[9] < deltas[-1]
    assert deltas[-1] == pytest.approx(worst_case_delta(epsilon, k, h, omega), rel=0.05)


# ------------------------------------------------------------------ Rényi
@pytest.mark.parametrize(("order", "k", "h", "omega"), [(2, 50, 0.03, 0.1), (1.5, 5, 0.1, 0.1), (5, 200, 0.03, 0.2)])
def test_renyi_against_quadrature(order, k, h, omega):
    s, m = k * omega, k * h / 2
    p, q = stats.beta(s + m, s), stats.beta(s, s + m)
    value = integrate.quad(lambda x: math.exp(order * p.logpdf(x) + (1 - order) * q.logpdf(x)), 0, 1, limit=400)[0]
    assert float(renyi_divergence(order, k, h, omega)) == pytest.approx(math.log(value) / (order - 1), rel=1e-6)


def test_renyi_is_finite_below_the_limit_whatever_k_is():
    assert renyi_limit(0.03, 0.1) == pytest.approx(1 + 0.2 / 0.03)
    for k in (1e-6, 1.0, 1e6):
        limit = renyi_limit(0.03, 0.1)
        assert np.isfinite(renyi_divergence(limit - 1e-6, k, 0.03, 0.1))
        assert renyi_divergence(limit, k, 0.03, 0.1) == math.inf
    with pytest.raises(ValueError, match="order must exceed 1"):
        renyi_divergence(1.0, 50, 0.03, 0.1)


def test_renyi_epsilon_is_an_upper_bound():
    for k in (1, 50, 400):
        for delta in (0.05, 1e-6, 1e-12):
            assert renyi_epsilon(delta, [RowGroup(k, 0.1, 0.03)]) >= worst_case_epsilon(delta, k, 0.03, 0.1)
            groups = [RowGroup(k, 0.1, 0.03, 20)]
            if delta > 1e-11:
                assert renyi_epsilon(delta, groups) >= composed_epsilon(delta, groups)


def _dirichlet_renyi(order, p, q, k):
    mixed = k * (order * p + (1 - order) * q)
    if (mixed <= 0).any():
        return math.inf
    total = special.gammaln(mixed) - order * special.gammaln(k * p) - (1 - order) * special.gammaln(k * q)
    return total.sum() / (order - 1)


def test_renyi_bound_for_any_entries_holds_for_spread_moves():
    rng = np.random.default_rng(3)
    tightest = 0.0
    for _ in range(3000):
        n = int(rng.integers(3, 9))
        omega = rng.uniform(0.2, 0.95) / n
        d = min(rng.uniform(0.05, 0.99) * omega, 0.9 * (1 - n * omega))
        up = rng.random(n) < 0.5
        up[0], up[1] = True, False
        rest = rng.dirichlet(np.ones(n)) * (1 - n * omega - d)
        p, q = omega + rest, omega + rest
        p[up] += d * rng.dirichlet(np.full(up.sum(), 10 ** rng.uniform(-1.5, 1)))
        q[~up] += d * rng.dirichlet(np.full((~up).sum(), 10 ** rng.uniform(-1.5, 1)))
        k, limit = 10 ** rng.uniform(-2, 3), renyi_limit(2 * d, omega, "any")
        order = 1 + rng.uniform(0.001, 0.999) * (limit - 1)
        bound = float(renyi_divergence(order, k, 2 * d, omega, "any"))
        actual = _dirichlet_renyi(order, p, q, k)
        assert actual <= bound * (1 + 1e-7) + 1e-9
        tightest = max(tightest, actual / bound)
    assert tightest > 0.5


def test_two_entries_are_not_the_worst_case_of_a_spread_move_without_room():
    """With h/2 far above the floor a move over two and two entries is easier to detect than the two-entry pair."""
    s, m, epsilon = 0.005, 0.75, 75.0
    rng = np.random.default_rng(4)
    size = 200_000
    loss = np.zeros(size)
    for _ in range(2):
        up, down = (log_gamma_variates(np.full(size, shape), rng) for shape in (s + m / 2, s))
        loss += m / 2 * (up - down)
    gain = np.maximum(0.0, -np.expm1(epsilon - loss))
    k, omega = 50.0, s / 50.0
    two = worst_case_delta(epsilon, k, 2 * m / k, omega)
    assert gain.mean() - SIGMAS * gain.std() / math.sqrt(size) > two
    assert renyi_epsilon(0.05, [RowGroup(k, omega, 2 * m / k)], "any") == math.inf  # so nothing is claimed there


# ------------------------------------------------------------------ composition
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
        assert "Rényi bound, as dp-accounting is not installed" in ledger.statement()
    finally:
        compose._composed_epsilon.cache_clear()


# ------------------------------------------------------------------ Theorem 2
@pytest.mark.parametrize(
    ("k", "omega", "size", "log_psi"), [(50, 0.1, 2, -3.5), (20, 0.1, 2, -2.5), (500, 0.02, 4, -5)]
)
def test_theorem_2_delta_against_monte_carlo(k, omega, size, log_psi):
    rng = np.random.default_rng(6)
    shapes = np.append(np.full(size, k * omega), k * (1 - size * omega))
    trials = 400_000
    miss = (rng.dirichlet(shapes, trials)[:, :size] < math.exp(log_psi)).any(axis=1).mean()
    error = SIGMAS * math.sqrt(miss / trials)
    bound = math.exp(theorem2_log_miss(log_psi, k, omega, omega, size))
    assert bound >= miss - error
    assert bound == pytest.approx(miss, abs=error + (0.0 if size == 2 else 0.02 * miss))


@pytest.mark.parametrize(
    ("h", "omega_bar", "size"),
    [(0.3, 0.8, 2), (0.2001, 0.8, 2), (0.03, 0.81, 2), (0.03, 0.1, 10)],
)
def test_theorem_2_refuses_rows_without_neighbours(h, omega_bar, size):
    with pytest.raises(ValueError, match="no adjacent rows have"):
        theorem2_epsilon(50, h, 0.1, omega_bar, size, 0.05)
    assert 0 < theorem2_epsilon(50, 0.03, 0.1, 0.1, 9, 0.05) < math.inf  # nine entries of a tenth just fit


def test_theorem_2_worst_input_is_a_vertex():
    rng = np.random.default_rng(7)
    from dp_ensemble_env.privacy.accounting.theorem2 import _log_miss

    for _ in range(200):
        k, omega = 10 ** rng.uniform(0.5, 2.5), rng.uniform(0.02, 0.3)
        omega_bar, log_psi = rng.uniform(0.02, 1 - 2 * omega), rng.uniform(-6, -1)
        inner = omega + rng.dirichlet(np.ones(3))[:2] * (1 - omega_bar - 2 * omega)
        assert _log_miss(log_psi, k * inner, k) <= theorem2_log_miss(log_psi, k, omega, omega_bar, 2) + 1e-9


def test_theorem_2_bounds_the_exact_pair():
    for k in (5, 50, 200):
        for omega in (0.02, 0.1, 0.2):
            for delta in (0.05, 1e-3, 1e-6):
                bound = theorem2_epsilon(k, 0.03, omega, omega, 2, delta)
                row = [omega + 0.015, omega, 1 - 2 * omega - 0.015]
                assert bound >= pair_epsilon(delta, row, 0, 1, k, 0.03)
    assert theorem2_log_psi(50.0, 1e-4, 1e-4, 2, 0.05) < math.log(1e-50)  # ψ far below any double near zero
    assert math.isfinite(theorem2_epsilon(50, 0.03, 1e-4, 1e-4, 2, 0.05))
    with pytest.raises(ValueError, match="no adjacent rows"):
        theorem2_epsilon(50, 0.03, 0.3, 0.5, 2, 0.05)


# ------------------------------------------------------------------ calibration
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


# ------------------------------------------------------------------ sentences
def test_a_guarantee_names_all_that_it_rests_on():
    text = str(release_guarantee(50, 0.03, 0.1, 1e-6, 20))
    for part in (
        "(12.16, 1e-06)-approximate differential privacy",
        "20 rows at k=50",
        "two of their entries differ by at most h/2=0.015",
        "protected is a change of that size in each of 20 rows",
        "a public support",
        "no entry of it below 0.1",
    ):
        assert part in text
    wide = release_guarantee(50, 0.03, 0.1, 1e-6, 20, entries="any", unit="one device")
    assert "L1 distance" in str(wide) and "protected is one device" in str(wide) and wide.epsilon > 12.16
    bare = release_guarantee(50, 0.03, 0.0, 1e-6)
    assert not bare.finite and "an entry below h/2 has no adjacent row at all" in str(bare)
    assert release_guarantee(50, 0.03, 0.1, 0.05, method="theorem2").epsilon == pytest.approx(4.07, abs=0.01)
    with pytest.raises(ValueError, match="Theorem 2 bounds one row"):
        release_guarantee(50, 0.03, 0.1, 0.05, rows=2, method="theorem2")


def test_importing_the_package_loads_no_accountant():
    code = (
        "import sys, dp_ensemble_env.privacy as p; p.PrivacyLedger, p.worst_case_epsilon(.05, 50, .03, .1);"
        "assert not {'dp_accounting', 'matplotlib', 'torch', 'pandas'} & set(sys.modules)"
    )
    root = str(Path(__file__).resolve().parents[2])
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=root)
