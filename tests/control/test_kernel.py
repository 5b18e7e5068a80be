"""Kernels in logarithms: dense, sparse, by time and context; what is no kernel."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from dp_ensemble_env.control.lsmdp import LogKernel, log_probabilities, solve


def banded(n, bandwidth, rng):
    diagonals = range(-bandwidth, bandwidth + 1)
    weights = sp.diags([rng.uniform(0.05, 1, n - abs(d)) for d in diagonals], list(diagonals)).tocsr()
    return sp.diags(1 / np.asarray(weights.sum(axis=1)).ravel()) @ weights


def test_dense_and_sparse_input_agree():
    rng = np.random.default_rng(1)
    chain = banded(30, 3, rng)
    utility = -rng.uniform(0, 9, (6, 30))
    a = solve(LogKernel.from_sparse(chain), utility, 2.0)
    b = solve(log_probabilities(chain.toarray()), utility, 2.0)
    assert_allclose(a.policy, b.policy, atol=1e-14)


def test_sparse_kernel_refuses_logarithms_and_empty_rows():
    with pytest.raises(ValueError, match="logarithms"):
        LogKernel.from_sparse(sp.csr_matrix([[-1.0, -2.0], [-1.0, -2.0]]))
    with pytest.raises(ValueError, match="row 1"):
        LogKernel.from_sparse(sp.csr_matrix([[1.0, 0.0], [0.0, 0.0]]))


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[0.5, -0.5], [0.5, 0.5]], "negative or NaN"),
        ([[0.5, np.nan], [0.5, 0.5]], "negative or NaN"),
        ([[0.0, 0.0], [0.5, 0.5]], "row 0 of the sparse kernel"),
        ([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]], "must be square"),
    ],
)
def test_sparse_kernels_that_are_none_are_refused(matrix, words):
    with pytest.raises(ValueError, match=words):
        LogKernel.from_sparse(scipy.sparse.csr_matrix(matrix))
    good = LogKernel.from_sparse(scipy.sparse.csr_matrix(0.5 * np.eye(2)))  # weights below one
    assert_allclose(good.linear, 0.5)


def test_only_rows_of_probabilities_are_refused_as_such():
    for logs in ([[1.0]], [[0.5, 0.6], [0.4, 0.5]], [[0.5, 0.5], [0.5, -0.5]]):
        found = solve(np.array(logs), np.zeros((2, len(logs))), 1.0)
        assert_allclose(found.log_desirability[0], logsumexp(logs, axis=1), rtol=1e-14)
    for probabilities in (np.eye(2), [[0.5, 0.5], [0.2, 0.8]]):
        with pytest.raises(ValueError, match="looks like probabilities"):
            solve(np.array(probabilities), np.zeros((2, 2)), 1.0)


def test_what_a_kernel_and_a_solution_say_of_themselves():
    half = np.full((2, 2), 0.5)
    for shape, words in (
        ((1, 1), ""),
        ((2, 1), ", batch of 2"),
        ((1, 2), ", 2 times"),
        ((2, 3), ", batch of 2, 3 times"),
    ):
        kernel = LogKernel.from_dense(np.log(np.broadcast_to(half, (*shape, 2, 2))))
        assert repr(kernel) == f"LogKernel(2 states, 4 nonzeros{words})"
    assert repr(solve(kernel, np.zeros((4, 2)), 1.0)) == "Solution(2 states, 3 steps, batch of 2)"
    assert repr(solve(np.log(half), np.zeros((2, 2)), 1.0)) == "Solution(2 states, 1 step)"
    assert (
        repr(solve(np.log(half), np.zeros((2, 2)), 1.0, context=np.eye(3))) == "Solution(2 states, 3 contexts, 1 step)"
    )
