"""The exact average value of a policy, an integral, against mpmath and closed forms."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import one_row

from dp_ensemble_env.control.lsmdp import LogKernel
from dp_ensemble_env.control.policies import average_policy
from dp_ensemble_env.control.quadrature import average_exact


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
    log_z = np.array([[0.9, -0.8]])
    kernel = LogKernel.from_dense(np.log([[0.3, 0.7], [0.5, 0.5]]))
    found = average_exact(kernel, log_z, k)[0]
    with mpmath.workdps(30):
        for row, p in enumerate((0.3, 0.5)):
            a, z = mpmath.mpf(k) * mpmath.mpf(p), mpmath.exp(mpmath.mpf(-1.7))
            expected = mpmath.mpf(p) * mpmath.hyp2f1(1, mpmath.mpf(k) - a, mpmath.mpf(k) + 1, 1 - z)
            assert found[2 * row] == pytest.approx(float(expected), rel=1e-12)
            assert found[2 * row : 2 * row + 2].sum() == pytest.approx(1.0, abs=1e-14)


def test_what_is_impossible_does_not_count_in_the_integral_however_desirable():
    """At the second time one successor is impossible, thousands of nats above or below the others."""
    default = np.array([[[0.3, 0.3, 0.4]], [[0.3, 0.7, 0.0]]]).repeat(3, axis=1)
    kernel = LogKernel.of_contexts(default)
    pair = LogKernel.from_dense(np.log([[0.3, 0.7], [0.3, 0.7]]))
    expected = average_exact(pair, np.array([[0.0, -1.0]]), 3.0)[0, :2]
    for far in (3000.0, -3000.0):
        found = average_exact(kernel, np.array([[0.0, -1.0, 0.5], [0.0, -1.0, far]]), 3.0)
        assert_allclose(found[1, :2], expected, rtol=1e-13)
        assert_array_equal(found[1, 2::3], 0.0)
