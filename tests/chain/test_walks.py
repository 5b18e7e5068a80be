"""Stationary distributions, and the lazy walk."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.chain.walks import lazy_walk, stationary


def test_stationary_distributions_known_in_closed_form():
    assert_allclose(stationary(np.array([[0.9, 0.1], [0.3, 0.7]])), [0.75, 0.25], atol=1e-14)
    assert_allclose(stationary(np.roll(np.eye(5), 1, axis=1)), np.full(5, 0.2), atol=1e-14)  # a cycle has a period
    weights = np.array([[5.0, 1.0, 2.0], [1.0, 3.0, 1.0], [2.0, 1.0, 7.0]])  # symmetric, so reversible
    assert_allclose(stationary(weights / weights.sum(axis=1, keepdims=True)), weights.sum(axis=1) / 23, atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_a_stationary_distribution_is_the_left_eigenvector(seed):
    matrix = np.random.default_rng(seed).dirichlet(np.full(12, 0.2), 12)
    values, vectors = np.linalg.eig(matrix.T)
    vector = np.real(vectors[:, np.argmin(np.abs(values - 1.0))])
    assert_allclose(stationary(matrix), vector / vector.sum(), atol=1e-12)


def test_a_lazy_walk_moves_within_its_reach():
    assert_allclose(lazy_walk(3, 0.6, 0.3, 1), [[2 / 3, 1 / 3, 0], [0.25, 0.5, 0.25], [0, 1 / 3, 2 / 3]])
    assert_allclose(lazy_walk(3, 1.0, 0.5)[0], np.array([4, 2, 1]) / 7)
    assert_array_equal(lazy_walk(4, reach=9), lazy_walk(4))
