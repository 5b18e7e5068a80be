"""Tests of `divergence`."""

from __future__ import annotations

import math

import mpmath
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats

from dp_ensemble_env.privacy import (
    DirichletEvent,
    RowGroup,
    composed_delta,
    composed_epsilon,
    pair_delta,
    pair_epsilon,
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
from dp_ensemble_env.privacy.accounting import calibrate
from dp_ensemble_env.privacy.accounting.accountant import total_epsilon
from dp_ensemble_env.privacy.accounting.divergence import (
    LARGEST_K,
    _log_gamma_ratio,
    _log_lower_tail,
    adjacent_row,
    check_delta,
    log_worst_case_delta,
)
from dp_ensemble_env.privacy.accounting.losses import PureLoss, RowLoss
from dp_ensemble_env.privacy.mechanisms.dirichlet import log_gamma_variates

SIGMAS = 6.0  # two-sided chance of 2e-9 per comparison


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


def _mp_delta(epsilon, k, h, omega):
    s, m = mp.mpf(k) * mp.mpf(omega), mp.mpf(k) * mp.mpf(h) / 2
    y = 1 / (1 + mp.e ** (mp.mpf(epsilon) / m))
    upper = mp.betainc(s, s + m, 0, y, regularized=True)
    return upper - mp.e ** mp.mpf(epsilon) * mp.betainc(s + m, s, 0, y, regularized=True)


def _dirichlet_renyi(order, p, q, k):
    mixed = k * (order * p + (1 - order) * q)
    if (mixed <= 0).any():
        return math.inf
    total = special.gammaln(mixed) - order * special.gammaln(k * p) - (1 - order) * special.gammaln(k * q)
    return total.sum() / (order - 1)


ROW = [0.2, 0.6, 0.2]


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


@pytest.mark.parametrize(("ratio", "two", "several"), [(3.0, 4.0, 4.0), (1.2, 2.2, 1.44), (0.5, 1.5, 1.0)])
def test_the_last_order_of_the_bound(ratio, two, several):
    assert renyi_limit(0.2, 0.1 * ratio) == pytest.approx(two)
    assert renyi_limit(0.2, 0.1 * ratio, "any") == pytest.approx(several)
    assert renyi_limit(0.0, 0.1) == renyi_limit(0.0, 0.1, "any") == math.inf
    assert (renyi_epsilon(0.01, [RowGroup(9.0, 0.1 * ratio, 0.2)], "any") == math.inf) == (several == 1.0)
