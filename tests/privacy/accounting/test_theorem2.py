"""Tests of `theorem2`."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from dp_ensemble_env.privacy import (
    pair_epsilon,
    theorem2_epsilon,
    worst_case_epsilon,
)
from dp_ensemble_env.privacy.accounting import theorem2
from dp_ensemble_env.privacy.accounting.theorem2 import _log_miss, theorem2_log_miss, theorem2_log_psi

SIGMAS = 6.0  # two-sided chance of 2e-9 per comparison


@pytest.mark.parametrize(
    ("omega", "k", "exact", "theorem2"),
    [(0.2, 50, 0.2514, 2.438), (0.2, 200, 0.8203, 8.430), (0.1, 50, 0.4791, 4.070), (0.1, 200, 1.398, 14.18)],
)
def test_numbers_of_the_exact_analysis_and_theorem_2(omega, k, exact, theorem2):
    assert float(f"{worst_case_epsilon(0.05, k, 0.03, omega):.4g}") == exact
    assert float(f"{theorem2_epsilon(k, 0.03, omega, omega, 2, 0.05):.4g}") == theorem2


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


@pytest.mark.parametrize(
    ("k", "omega", "rest", "size", "delta"),
    [(50.0, 0.1, 0.1, 2, 0.05), (5.0, 0.1, 0.3, 2, 1e-6), (8.0, 0.2, 0.2, 3, 0.5), (2.0, 0.3, 0.2, 2, 0.9999)],
)
def test_the_largest_psi_is_the_largest(k, omega, rest, size, delta):
    log_psi = theorem2_log_psi(k, omega, rest, size, delta)
    miss = [theorem2.theorem2_log_miss(log_psi + shift, k, omega, rest, size) for shift in (0.0, 1e-6 * abs(log_psi))]
    assert miss[0] <= math.log(delta) and log_psi < -math.log(size)
    assert miss[1] > math.log(delta) or log_psi == pytest.approx(-math.log(size), abs=1e-8)


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
