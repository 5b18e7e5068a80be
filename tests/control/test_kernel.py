"""Kernels in logarithms: dense, sparse, by time and context; what is no kernel."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import random_chain
from numpy.testing import assert_allclose
from scipy.sparse import csr_matrix
from scipy.special import logsumexp

from dp_ensemble_env.control.lsmdp import LogKernel, log_probabilities, solve


def test_dense_and_sparse_input_agree():
    rng = np.random.default_rng(1)
    chain, utility = random_chain(rng, 30, 0.2), -rng.uniform(0, 9, (6, 30))
    a, b = solve(LogKernel.from_sparse(csr_matrix(chain)), utility, 2.0), solve(log_probabilities(chain), utility, 2.0)
    assert_allclose(a.policy, b.policy, atol=1e-14)
    assert (b.policy[:, chain == 0] == 0).all()


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[-1.0, -2.0], [-1.0, -2.0]], "logarithms"),
        ([[0.5, -0.5], [0.5, 0.5]], "negative or NaN"),
        ([[0.5, np.nan], [0.5, 0.5]], "negative or NaN"),
        ([[0.0, 0.0], [0.5, 0.5]], "row 0 of the sparse kernel"),
        ([[1.0, 0.0], [0.0, 0.0]], "row 1 of the sparse kernel"),
        ([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]], "must be square"),
    ],
)
def test_sparse_kernels_that_are_none_are_refused(matrix, words):
    with pytest.raises(ValueError, match=words):
        LogKernel.from_sparse(csr_matrix(matrix))
    assert_allclose(LogKernel.from_sparse(csr_matrix(0.5 * np.eye(2))).linear, 0.5)  # weights below one


def test_only_rows_of_probabilities_are_refused_as_such():
    for logs in ([[1.0]], [[0.5, 0.6], [0.4, 0.5]], [[0.5, 0.5], [0.5, -0.5]]):
        found = solve(np.array(logs), np.zeros((2, len(logs))), 1.0)
        assert_allclose(found.log_desirability[0], logsumexp(logs, axis=1), rtol=1e-14)
    for probabilities in (np.eye(2), [[0.5, 0.5], [0.2, 0.8]]):
        with pytest.raises(ValueError, match="looks like probabilities"):
            solve(np.array(probabilities), np.zeros((2, 2)), 1.0)


def test_what_a_kernel_and_a_solution_say_of_themselves():
    half = np.log(np.full((2, 2), 0.5))
    for shape, words in (
        ((1, 1), ""),
        ((2, 1), ", batch of 2"),
        ((1, 2), ", 2 times"),
        ((2, 3), ", batch of 2, 3 times"),
    ):
        kernel = LogKernel.from_dense(np.broadcast_to(half, (*shape, 2, 2)))
        assert repr(kernel) == f"LogKernel(2 states, 4 nonzeros{words})"
    assert repr(solve(kernel, np.zeros((4, 2)), 1.0)) == "Solution(2 states, 3 steps, batch of 2)"
    context = solve(half, np.zeros((2, 2)), 1.0, context=np.eye(3))
    assert repr(context) == "Solution(2 states, 3 contexts, 1 step)"
