"""Tests of `divergence`: the exact pair, the worst case, Rényi divergences and Theorem 2."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats

from dp_ensemble_env.privacy import (
    RowGroup,
    composed_epsilon,
    pair_delta,
    pair_epsilon,
    renyi_divergence,
    renyi_epsilon,
    renyi_limit,
    theorem2_epsilon,
    vanishing_k_epsilon,
    worst_case_delta,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting.divergence import (
    LARGEST_K,
    _both_miss,
    _log_gamma_ratio,
    _log_lower_tail,
    _log_miss,
    adjacent_row,
    check_delta,
    log_worst_case_delta,
    theorem2_log_miss,
    theorem2_log_psi,
)

SIGMAS = 6.0  # two-sided chance of 2e-9 per comparison
ROW = [0.2, 0.6, 0.2]


def quadrature_delta(epsilon, a, b, m):
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


def limit_delta(epsilon, ratio):
    """δ of the worst case as k falls to zero, with `ratio` = h / (2 omega): the tail is that of an exponential law."""
    delta = ratio / (2.0 + ratio) * math.exp(-abs(epsilon) / ratio)
    return delta if epsilon >= 0 else 1.0 - math.exp(epsilon) * (1.0 - delta)


# ------------------------------------------------------------------ one pair
@pytest.mark.parametrize(
    ("row", "i", "j", "k", "h", "epsilon"),
    [
        ([0.2, 0.6, 0.2], 0, 1, 50, 0.03, 0.2),
        ([0.5, 0.3, 0.2], 2, 0, 20, 0.1, 0.1),
        ([0.1, 0.1, 0.8], 0, 1, 50, 0.03, 0.0),
        ([0.4, 0.6], 0, 1, 30, 0.2, 1.0),
    ],
)
def test_pair_against_quadrature_and_monte_carlo(row, i, j, k, h, epsilon):
    exact = pair_delta(epsilon, row, i, j, k, h)
    assert exact == pytest.approx(quadrature_delta(epsilon, k * row[i], k * row[j], k * h / 2), rel=1e-5, abs=1e-9)
    rng, moved = np.random.default_rng(1), adjacent_row(row, i, j, h)
    deltas, errors = [], []
    for p, q in ((np.array(row), moved), (moved, np.array(row))):
        x = rng.dirichlet(k * p, 50_000)  # all entries: the reduction to two is part of what is tested
        loss = special.gammaln(k * q).sum() - special.gammaln(k * p).sum() + (np.log(x) @ (k * (p - q)))
        gain = np.maximum(0.0, -np.expm1(epsilon - loss))
        deltas.append(gain.mean())
        errors.append(gain.std() / math.sqrt(len(gain)))
    assert exact == pytest.approx(max(deltas), abs=SIGMAS * max(errors))


@pytest.mark.parametrize(
    ("row", "i", "j", "words"),
    [
        (ROW, 3, 0, "two different"),
        (ROW, 1, 1, "two different"),
        ([0.2, 0.6, 0.2001], 0, 1, "sum to 1"),
        ([0.0, 0.5, 0.5], 0, 1, "entry 0 of the row is 0, outside the public support"),
        ([0.01, 0.49, 0.5], 0, 1, r"entry 0 of the row is 0.01, below h/2 = 0.015"),
    ],
)
def test_rows_that_have_no_neighbour_are_refused(row, i, j, words):
    with pytest.raises(ValueError, match=words):
        pair_delta(1.0, row, i, j, 50, 0.03)


def test_a_move_that_empties_an_entry_has_no_epsilon():
    for row, h in ((ROW, 0.4), ([0.015, 0.985], 0.03)):
        assert pair_epsilon(0.01, row, 0, 1, 50, h) == math.inf and pair_delta(100.0, row, 0, 1, 50, h) == 1.0
    assert pair_epsilon(0.01, ROW, 0, 1, 50, 0.0) == 0.0 and pair_delta(0.0, ROW, 0, 1, 50, 0.0) == 0.0
    assert adjacent_row(ROW, 0, 1, 0.4).tolist() == pytest.approx([0.0, 0.8, 0.2])


# ------------------------------------------------------------------ the worst case
def test_worst_case_is_a_pair_and_both_ways_invert():
    row = [0.115, 0.1, 0.785]
    for epsilon in (0.0, 0.1, 0.5, 2.0, 6.0):
        worst = worst_case_delta(epsilon, 50, 0.03, 0.1)
        assert pair_delta(epsilon, row, 0, 1, 50, 0.03) == pytest.approx(worst, rel=1e-9)
    for delta in (0.04, 1e-3, 1e-9, 1e-100, 1e-280):
        again = worst_case_delta(worst_case_epsilon(delta, 50, 0.03, 0.1), 50, 0.03, 0.1)
        assert again == pytest.approx(delta, rel=1e-6) and again <= delta * (1 + 1e-12)
        again = pair_delta(pair_epsilon(delta, row, 0, 1, 50, 0.03), row, 0, 1, 50, 0.03)
        assert again == pytest.approx(delta, rel=1e-6)


def test_closed_form_against_mpmath_over_many_orders_of_magnitude():
    rng, checked = np.random.default_rng(0), 0
    with mp.workdps(60):
        for _ in range(120):
            k, omega, h = 10 ** rng.uniform(-6, 4), 10 ** rng.uniform(-5, -0.4), 10 ** rng.uniform(-4, 0)
            epsilon = rng.uniform(0, 20) * h / (2 * omega) * rng.choice([0.01, 0.1, 1.0])
            s, m = mp.mpf(k) * mp.mpf(omega), mp.mpf(k) * mp.mpf(h) / 2
            y = 1 / (1 + mp.e ** (mp.mpf(epsilon) / m))
            exact = mp.betainc(s, s + m, 0, y, regularized=True)
            exact -= mp.e ** mp.mpf(epsilon) * mp.betainc(s + m, s, 0, y, regularized=True)
            if exact > mp.mpf(10) ** -250:
                checked += 1
                found = float(log_worst_case_delta(epsilon, k, h, omega))
                assert found == pytest.approx(float(mp.log(exact)), abs=1e-8)
    assert checked > 80


def test_without_a_move_or_without_noise_delta_is_zero_or_one():
    with np.errstate(divide="ignore"):
        expected = np.log([1 - math.exp(-1), 0.0, 0.0])
    np.testing.assert_allclose(log_worst_case_delta([-1.0, 0.0, 1.0], 50, 0.0, 0.1), expected)
    assert worst_case_epsilon(0.05, 50, 0.0, 0.0) == 0.0 == worst_case_epsilon(0.9, 50, 0.03, 0.1)
    for k, omega in ((LARGEST_K, 0.1), (1.7e308, 0.1), (50.0, 0.0)):
        for h in (0.03, 1.5):
            assert worst_case_delta(3.0, k, h, omega) == 1.0 and worst_case_epsilon(0.1, k, h, omega) == math.inf
            for entries in ("two", "any"):
                assert composed_epsilon(0.1, [RowGroup(k, omega, h, 2)], entries) == math.inf
    assert pair_delta(3.0, ROW, 0, 1, LARGEST_K, 0.03) == 1.0
    assert renyi_divergence(1.5, LARGEST_K, 0.03, 0.1) == theorem2_epsilon(LARGEST_K, 0.03, 0.1, 0.1, 2, 0.05) == np.inf


def test_dominance_over_thousands_of_random_adjacent_pairs():
    rng, closest = np.random.default_rng(2), 0.0
    for _ in range(1500):
        n = int(rng.integers(2, 7))
        omega = rng.uniform(0.005, 0.9 / n)
        h = rng.uniform(0.001, 1.0) * 2 * (1 - n * omega)
        row = omega + rng.dirichlet(np.full(n, 10 ** rng.uniform(-1, 1))) * (1 - n * omega - h / 2)
        row[0] += h / 2  # both the row and its neighbour have entries >= omega
        k, epsilon = 10 ** rng.uniform(-1, 3), rng.exponential(1.0)
        bound, delta = worst_case_delta(epsilon, k, h, omega), pair_delta(epsilon, row, 0, 1, k, h)
        assert delta <= bound * (1 + 1e-9) + 1e-15
        closest = max(closest, delta / bound if bound > 1e-12 else 0.0)
    assert closest > 0.9  # the bound is attained, not merely large


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
    assert limit_delta(epsilon, h / (2 * omega)) <= delta + slack


@pytest.mark.parametrize(("h", "omega"), [(0.03, 0.1), (0.2, 0.01)])
def test_limit_as_k_vanishes(h, omega):
    ratio = h / (2 * omega)
    for epsilon in (-1.0, 0.0, 0.1, 1.0):
        found = float(np.exp(log_worst_case_delta(epsilon, 1e-9, h, omega)))
        assert found == pytest.approx(limit_delta(epsilon, ratio), rel=1e-5, abs=1e-300)
    found = vanishing_k_epsilon(1e-6, h, omega)
    assert limit_delta(found, ratio) == pytest.approx(1e-6, rel=1e-9)
    assert worst_case_epsilon(1e-6, 1e-9, h, omega) == pytest.approx(found, rel=1e-5)
    assert vanishing_k_epsilon(0.9, h, omega) == 0.0 == vanishing_k_epsilon(0.01, 0.0, 0.0)
    # At a k so small that products with it underflow no loss is lost.
    assert worst_case_epsilon(1e-6, 1e-300, 0.5, 1e-20) == vanishing_k_epsilon(1e-6, 0.5, 1e-20) > 1e20


def test_settings_out_of_range_are_refused():
    for wrong in (0.0, 1.0):
        with pytest.raises(ValueError, match="delta must"):
            check_delta(wrong)
    for call in (lambda h: adjacent_row([0.5, 0.5], 0, 1, h), lambda h: renyi_divergence(1.5, 50, h, 0.1)):
        for wrong in (2.5, -0.1):
            with pytest.raises(ValueError, match="^h must"):
                call(wrong)
    assert renyi_divergence(1.05, 9, 2.0, 0.5) > 0 and worst_case_epsilon(0.01, 9, 2.0, 0.5) > 0
    with pytest.raises(ValueError, match="omega must"):
        worst_case_epsilon(0.1, 50, 0.03, 0.6)


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
    with mp.workdps(50):
        expected = float(mp.log(mp.betainc(p, q, 0, mp.exp(mp.mpf(log_y)), regularized=True)))
    assert float(_log_lower_tail(p, q, np.array(log_y))) == pytest.approx(expected, rel=2e-13)


@pytest.mark.parametrize(
    ("x", "step"), [(60.0, 6000.0), (60.0, 1e-9), (60.0, 59.0), (3.0, 2.0), (0.01, 7.0), (1e8, 2.5), (1e12, 1e3)]
)
def test_ratios_of_gamma_functions_do_not_cancel(x, step):
    with mp.workdps(50):
        expected = float(mp.loggamma(mp.mpf(x) + mp.mpf(step)) - mp.loggamma(mp.mpf(x)))
    assert _log_gamma_ratio(x, step) == pytest.approx(expected, rel=1e-13)


# ------------------------------------------------------------------ Rényi divergence
@pytest.mark.parametrize(
    ("k", "h", "omega", "order", "rel"),
    [
        (240.0, 1e-6, 0.25, 2.0, 1e-9), (2000.0, 0.5, 0.5, 2.8, 1e-9), (400.0, 0.5, 0.5, 1.5, 1e-9),
        (9.0, 0.1, 0.2, 3.0, 1e-9), (1e7, 0.01, 0.1, 9.0, 1e-9),
        # As a sum of four logarithms of Gamma these would be lost, which are 1e12 times as large.
        (1e12, 1e-8, 0.1, 2.0, 1e-6), (1e9, 1e-6, 0.1, 5.0, 1e-6), (600.0, 0.15, 0.1, 1.5, 1e-6),
    ],
)  # fmt: skip
def test_renyi_divergences_have_all_their_digits(k, h, omega, order, rel):
    with mp.workdps(60):
        k_, d, w, x = mp.mpf(k), mp.mpf(h / 2), mp.mpf(omega), mp.mpf(order)
        total = mp.loggamma(k_ * (w + x * d)) + mp.loggamma(k_ * (w - (x - 1) * d))
        expected = float((total - mp.loggamma(k_ * (w + d)) - mp.loggamma(k_ * w)) / (x - 1))
    assert float(renyi_divergence(order, k, h, omega)) == pytest.approx(expected, rel=rel)
    both = renyi_divergence(np.array([order, 2 * (1 + 2 * omega / h)]), k, h, omega)
    assert both[0] == pytest.approx(float(renyi_divergence(order, k, h, omega)), rel=1e-14) and both[1] == math.inf


@pytest.mark.parametrize(("order", "k", "h", "omega"), [(2, 50, 0.03, 0.1), (1.5, 5, 0.1, 0.1), (5, 200, 0.03, 0.2)])
def test_renyi_against_quadrature(order, k, h, omega):
    s, m = k * omega, k * h / 2
    p, q = stats.beta(s + m, s), stats.beta(s, s + m)
    value = integrate.quad(lambda x: math.exp(order * p.logpdf(x) + (1 - order) * q.logpdf(x)), 0, 1, limit=400)[0]
    assert float(renyi_divergence(order, k, h, omega)) == pytest.approx(math.log(value) / (order - 1), rel=1e-6)


@pytest.mark.parametrize(("ratio", "two", "several"), [(3.0, 4.0, 4.0), (1.2, 2.2, 1.44), (0.5, 1.5, 1.0)])
def test_orders_end_where_the_moment_or_the_proof_does(ratio, two, several):
    omega = 0.1 * ratio
    assert renyi_limit(0.2, omega) == pytest.approx(two) and renyi_limit(0.2, omega, "any") == pytest.approx(several)
    assert renyi_limit(0.0, 0.1) == renyi_limit(0.0, 0.1, "any") == math.inf
    assert (renyi_epsilon(0.01, [RowGroup(9.0, omega, 0.2)], "any") == math.inf) == (several == 1.0)
    for k in (1e-6, 1.0, 1e6):
        assert np.isfinite(renyi_divergence(two - 1e-6, k, 0.2, omega))
        assert renyi_divergence(renyi_limit(0.2, omega), k, 0.2, omega) == math.inf
    for wrong in (1.0, [2.0, 0.5]):
        with pytest.raises(ValueError, match="order must exceed 1"):
            renyi_divergence(wrong, 8.0, 0.25, 0.25)


def test_renyi_bound_for_any_entries_holds_for_spread_moves():
    rng, tightest = np.random.default_rng(3), 0.0
    for _ in range(1500):
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
        mixed = k * (order * p + (1 - order) * q)
        gammas = special.gammaln(mixed) - order * special.gammaln(k * p) - (1 - order) * special.gammaln(k * q)
        actual = gammas.sum() / (order - 1) if (mixed > 0).all() else math.inf
        assert actual <= bound * (1 + 1e-7) + 1e-9
        tightest = max(tightest, actual / bound)
    assert tightest > 0.5


# ------------------------------------------------------------------ Theorem 2
@pytest.mark.parametrize(
    ("omega", "k", "exact", "theorem2"),
    [(0.2, 50, 0.2514, 2.438), (0.2, 200, 0.8203, 8.430), (0.1, 50, 0.4791, 4.070), (0.1, 200, 1.398, 14.18)],
)
def test_numbers_of_the_exact_analysis_and_theorem_2(omega, k, exact, theorem2):
    assert float(f"{worst_case_epsilon(0.05, k, 0.03, omega):.4g}") == exact
    assert float(f"{theorem2_epsilon(k, 0.03, omega, omega, 2, 0.05):.4g}") == theorem2


@pytest.mark.parametrize("h", [0.03, 1e-6])
@pytest.mark.parametrize(("k", "omega", "rest", "size"), [(50.0, 0.1, 0.1, 2), (8.0, 0.2, 0.2, 3), (0.5, 0.3, 0.2, 2)])
def test_theorem_2_by_its_formula(k, omega, rest, size, h):
    with mp.workdps(40):
        psi = mp.exp(mp.mpf(theorem2_log_psi(k, omega, rest, size, 0.05)))
        m, w, c = k * mp.mpf(h) / 2, mp.mpf(omega), 1 - mp.mpf(rest) - mp.mpf(omega)
        constant = mp.log(mp.beta(k * w, k * c) / mp.beta(k * w + m, k * c - m))
        expected = float(constant + m * mp.log((1 - (size - 1) * psi) / psi))
    assert theorem2_epsilon(k, h, omega, rest, size, 0.05) == pytest.approx(max(expected, 0.0), rel=1e-8, abs=1e-13)


@pytest.mark.parametrize(
    ("k", "omega", "size", "log_psi"), [(50, 0.1, 2, -3.5), (20, 0.1, 2, -2.5), (500, 0.02, 4, -5)]
)
def test_theorem_2_delta_against_monte_carlo(k, omega, size, log_psi):
    rng, trials = np.random.default_rng(6), 100_000
    shapes = np.append(np.full(size, k * omega), k * (1 - size * omega))
    miss = (rng.dirichlet(shapes, trials)[:, :size] < math.exp(log_psi)).any(axis=1).mean()
    error = SIGMAS * math.sqrt(miss / trials)
    bound = math.exp(theorem2_log_miss(log_psi, k, omega, omega, size))
    assert bound >= miss - error
    assert bound == pytest.approx(miss, abs=error + (0.0 if size == 2 else 0.02 * miss))


def test_theorem_2_worst_input_is_a_vertex():
    rng = np.random.default_rng(7)
    for _ in range(200):
        k, omega = 10 ** rng.uniform(0.5, 2.5), rng.uniform(0.02, 0.3)
        omega_bar, log_psi = rng.uniform(0.02, 1 - 2 * omega), rng.uniform(-6, -1)
        inner = omega + rng.dirichlet(np.ones(3))[:2] * (1 - omega_bar - 2 * omega)
        assert _log_miss(log_psi, k * inner, k) <= theorem2_log_miss(log_psi, k, omega, omega_bar, 2) + 1e-9


def test_theorem_2_bounds_the_exact_pair():
    for k in (5, 50, 200):
        for omega in (0.02, 0.1, 0.2):
            for delta in (0.05, 1e-3, 1e-6):
                row = [omega + 0.015, omega, 1 - 2 * omega - 0.015]
                assert theorem2_epsilon(k, 0.03, omega, omega, 2, delta) >= pair_epsilon(delta, row, 0, 1, k, 0.03)
    assert theorem2_log_psi(50.0, 1e-4, 1e-4, 2, 0.05) < math.log(1e-50)  # ψ far below any double near zero
    assert math.isfinite(theorem2_epsilon(50, 0.03, 1e-4, 1e-4, 2, 0.05))


@pytest.mark.parametrize(
    ("k", "omega", "rest", "size", "delta"),
    [(50.0, 0.1, 0.1, 2, 0.05), (5.0, 0.1, 0.3, 2, 1e-6), (8.0, 0.2, 0.2, 3, 0.5), (2.0, 0.3, 0.2, 2, 0.9999)],
)
def test_the_largest_psi_is_the_largest(k, omega, rest, size, delta):
    log_psi = theorem2_log_psi(k, omega, rest, size, delta)
    miss = [theorem2_log_miss(log_psi + shift, k, omega, rest, size) for shift in (0.0, 1e-6 * abs(log_psi))]
    assert miss[0] <= math.log(delta) and log_psi < -math.log(size)
    assert miss[1] > math.log(delta) or log_psi == pytest.approx(-math.log(size), abs=1e-8)


def test_theorem_2_needs_room_for_the_neighbour():
    for settings, words in (
        ((50, 0.03, 0.1, 0.0, 2), "omega_bar must"),
        ((50, 0.03, 0.1, 1.0, 2), "omega_bar must"),
        ((50, 0.03, 0.1, 0.1, 1), "n_protected"),
        ((50, 0.5, 0.25, 0.5, 2), "no adjacent rows"),  # the other entry would fall to zero
        ((50, 0.03, 0.25, 0.3, 3), "no adjacent rows"),
    ):
        with pytest.raises(ValueError, match=words):
            theorem2_epsilon(*settings, 0.05)
    assert theorem2_epsilon(50, 0.49, 0.25, 0.5, 2, 0.05) > 0 == theorem2_epsilon(50, 0.0, 0.25, 0.5, 2, 0.05)
    assert theorem2_epsilon(50, 0.03, 0.25, 0.25, 3, 0.05) > 0  # the entries fill their part exactly


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
    with mp.workdps(25):
        a, b, top = mp.mpf(shapes[0]), mp.mpf(shapes[1]), mp.mpf(math.exp(math.log(psi)))
        rest, power = total - a - b, total - a - 1

        def density(u):
            return mp.exp(a * u + power * mp.log(1 - top * mp.exp(u)))

        def both(u):
            return density(u) * mp.betainc(b, rest, 0, top / (1 - top * mp.exp(u)), regularized=True)

        reach = (60 - max(power, 0) * mp.log(1 - top)) / a
        points = [-reach * mp.mpf(2) ** -j for j in range(25)] + [0]
        truth = float(mp.quad(both, points) / mp.quad(density, points))
    assert truth * (1 - 2e-9) < _both_miss(math.log(psi), *shapes, total) < truth
