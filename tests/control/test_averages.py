"""Draws of private matrices: their law, number by number, and the averages and costs that are made of them."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from helpers import random_model
from numpy.testing import assert_allclose, assert_array_equal
from oracles import one_row
from scipy.special import logsumexp, rel_entr

from dp_ensemble_env.control import averages
from dp_ensemble_env.control.averages import average_exact
from dp_ensemble_env.control.kernel import default_kernel
from dp_ensemble_env.control.lsmdp import LogKernel, evaluate_policy, solve
from dp_ensemble_env.control.policies import average_policy, solve_standard


def gammas(rng, shape, size):
    """Marsaglia and Tsang's method as they wrote it, without the squeeze: logarithms of Gamma draws."""
    drawn = []
    boosted = shape if shape >= 1 else shape + 1
    d = boosted - 1 / 3
    while len(drawn) < size:
        x = rng.standard_normal()
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(rng.random()) < 0.5 * x * x + d - d * v + d * math.log(v):
            drawn.append(math.log(d * v) - (rng.standard_exponential() / shape if shape < 1 else 0.0))
    return np.array(drawn)


@pytest.mark.parametrize("k", [0.4, 4.0, 5.0, 30.0])
def test_draws_are_those_of_marsaglia_and_tsang_number_by_number(k):
    """One seed gives one set of draws, whoever programs them: shapes below, at and above one."""
    p, size = np.array([[0.2, 0.25, 0.55], [0.7, 0.3, 0.0]]), 200
    out, constants = np.empty((2, 3, size)), averages.gamma_constants(p, k)
    averages.draw_log_ratios(np.random.default_rng(8), np.array([0, 3]), p, constants, size, out)
    ratio = np.empty((2, 3, size))
    averages.draw_ratios(np.random.default_rng(8), np.array([0, 3]), p, constants, size, ratio)
    rng = np.random.default_rng(8)
    for t in range(2):
        on = p[t] > 0
        logs = np.array([gammas(rng, k * x, size) for x in p[t][on]])
        expected = logs - logsumexp(logs, axis=0) - np.log(p[t][on])[:, None]
        assert_allclose(out[t, on], expected, rtol=1e-9, atol=1e-12)
        assert_allclose(ratio[t, on], np.exp(expected), rtol=1e-9)


@pytest.mark.parametrize("varying", [False, True])
def test_costs_of_samples_by_their_definition(varying):
    """Each sample's optimal policy, evaluated on the true dynamics, and the paper's formula: sums, sums of squares."""
    model = random_model(5, n=3, horizon=2, density=0.8, varying=varying)
    best, scaled, kernel = solve_standard(model), model.utility / model.discomfort_penalty, default_kernel(model)
    args, k = (scaled, best.log_desirability, best.policy_values), 5.0
    sums, squares = averages.sampled_costs(kernel, k, 4, np.random.default_rng(1), *args)
    rng, ones, true = np.random.default_rng(1), [], np.exp(kernel.log_values[0])
    ratio = np.empty((*true.shape, 1))
    for _ in range(4):
        averages.draw_log_ratios(rng, kernel.indptr, true, averages.gamma_constants(true, k), 1, ratio)
        values = kernel.log_values[0] + ratio[..., 0]
        noisy = solve(LogKernel(kernel.indptr, kernel.indices, values[None], 3), scaled, 1.0)
        exact = evaluate_policy(noisy.policy, model.default, scaled, 1.0) + best.log_desirability
        divergence = rel_entr(noisy.policy, model.default).sum(axis=-1)
        ahead = np.einsum("tba,ta->tb", noisy.policy, -noisy.log_desirability[1:])
        ones.append([exact[:-1], -scaled[:-1] + divergence + ahead + best.log_desirability[:-1]])
    assert_allclose(sums, np.sum(ones, axis=0), rtol=1e-8, atol=1e-10)
    assert_allclose(squares, np.sum(np.square(ones), axis=0), rtol=1e-8, atol=1e-10)
    assert np.abs(sums).min() > 1e-6


def test_kernels_are_drawn_row_by_row_from_their_dirichlet_law():
    rng, k, draws = np.random.default_rng(3), 2.5, 4000
    first = [[0.2, 0.8, 0.0], [0.5, 0.1, 0.4], [0.0, 0.0, 1.0]]
    default = np.stack([first, rng.dirichlet(np.ones(3), 3)])  # two times
    kernel = LogKernel.of_contexts(default)
    drawn = np.array([kernel.dense(averages.draw_kernel(kernel, k, rng).linear)[0] for _ in range(draws)])
    assert_allclose(drawn.sum(axis=-1), 1.0, rtol=1e-12)
    assert_array_equal(drawn[:, default == 0], 0.0)
    assert_array_equal(drawn[:, 0, 2, 2], 1.0)
    spread = np.sqrt(default * (1 - default) / (k + 1))  # of a Beta variate
    assert (np.abs(drawn.mean(axis=0) - default) <= 5 * spread / np.sqrt(draws) + 1e-12).all()
    assert_allclose(drawn.std(axis=0), spread, rtol=0.08, atol=1e-12)


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("samples", [1, 127, 128, 129])
def test_averages_are_means_of_optimal_policies(samples, varying):
    """Linear and logarithmic paths use the same draws, in full and partial blocks; the first block by the solver."""
    model = random_model(4, n=5, horizon=4, varying=varying)
    solution, kernel = solve_standard(model), default_kernel(model)
    logs = np.zeros_like(solution.policy_values)
    scaled = model.utility / model.discomfort_penalty
    p = np.exp(kernel.log_values[0])
    averages.average_logs(np.random.default_rng(9), kernel.indptr, kernel.indices, p, scaled, 20.0, samples, logs)
    fast = averages.average_sampled(kernel, solution, 20.0, samples, np.random.default_rng(9), scaled)
    assert_allclose(fast, logs / samples, rtol=1e-10, atol=1e-14)
    if samples <= 128:
        ratio, rng = np.empty((*p.shape, samples)), np.random.default_rng(9)
        averages.draw_log_ratios(rng, kernel.indptr, p, averages.gamma_constants(p, 20.0), samples, ratio)
        drawn = (
            LogKernel(kernel.indptr, kernel.indices, kernel.log_values + one, 5) for one in np.moveaxis(ratio, 2, 0)
        )
        each = [solve(one, scaled, 1.0).policy_values for one in drawn]
        assert_allclose(fast, np.mean(each, axis=0), rtol=1e-9, atol=1e-13)


# ------------------------------------------------------------------ the exact average, an integral
@pytest.mark.parametrize("k", [0.02, 0.7, 5.0, 50.0, 3000.0])
@pytest.mark.parametrize("spread", [1.0, 40.0])
def test_exact_average_against_mpmath(k, spread):
    """The same expectation by another route: adaptive quadrature with 30 digits."""
    p, log_z = np.array([0.15, 0.5, 0.35]), np.array([0.0, -0.4, -1.0]) * spread
    value = average_policy(one_row(p, log_z), k, "exact")[0, 0]
    with mpmath.workdps(30):
        z = [mpmath.exp(float(x)) for x in log_z]
        q = [mpmath.mpf(float(x)) for x in p]

        def integrand(u, a):
            s = mpmath.exp(u)
            product = mpmath.fprod((1 + s * z[i]) ** (-k * q[i]) for i in range(3))
            return k * q[a] * z[a] * s / (1 + s * z[a]) * product

        knots = [-90, -40, -20, -10, -5, 0, 5, 10, 20, 30, 45, 70, 120, 250, 600, 1500, 4000]
        expected = [float(mpmath.quad(lambda u, a=a: integrand(u, a), knots)) for a in range(3)]
    assert_allclose(value, expected, atol=1e-10)


def test_the_average_of_contexts_and_times_uses_each_in_its_place():
    rng = np.random.default_rng(2)
    for contexts, times in itertools.product((1, 2), repeat=2):
        default = rng.dirichlet(np.ones(3), (contexts, times, 3))
        tilt = rng.normal(size=(2, 2, 3))  # time, context
        found = average_exact(LogKernel.from_blocks(np.log(default), "default"), tilt, 4.0, contexts=True)
        for w, t in np.ndindex(2, 2):
            alone = LogKernel.from_dense(np.log(default[w % contexts, t % times]))
            assert_allclose(found[w, t], average_exact(alone, tilt[t : t + 1, w], 4.0)[0], rtol=1e-13)


@pytest.mark.parametrize("k", [1e-200, 1e-3, 0.3, 2.0, 200.0])
def test_rows_of_two_by_the_hypergeometric_function(k):
    """E[x / (x + (1 - x) z)] of a Beta variate x is Euler's integral, here with 30 digits."""
    found = average_exact(LogKernel.from_dense(np.log([[0.3, 0.7], [0.5, 0.5]])), np.array([[0.9, -0.8]]), k)[0]
    with mpmath.workdps(30):
        for row, p in enumerate((0.3, 0.5)):
            a, z = mpmath.mpf(k) * mpmath.mpf(p), mpmath.exp(mpmath.mpf(-1.7))
            expected = mpmath.mpf(p) * mpmath.hyp2f1(1, mpmath.mpf(k) - a, mpmath.mpf(k) + 1, 1 - z)
            assert found[2 * row] == pytest.approx(float(expected), rel=1e-12)
            assert found[2 * row : 2 * row + 2].sum() == pytest.approx(1.0, abs=1e-14)


def test_what_is_impossible_does_not_count_in_the_integral_however_desirable():
    """At the second time one successor is impossible, thousands of nats above or below the others."""
    kernel = LogKernel.of_contexts(np.array([[[0.3, 0.3, 0.4]], [[0.3, 0.7, 0.0]]]).repeat(3, axis=1))
    pair = LogKernel.from_dense(np.log([[0.3, 0.7], [0.3, 0.7]]))
    expected = average_exact(pair, np.array([[0.0, -1.0]]), 3.0)[0, :2]
    for far in (3000.0, -3000.0):
        found = average_exact(kernel, np.array([[0.0, -1.0, 0.5], [0.0, -1.0, far]]), 3.0)
        assert_allclose(found[1, :2], expected, rtol=1e-13)
        assert_array_equal(found[1, 2::3], 0.0)
