"""Kernels in logarithms: dense, sparse, by time and context; what is no kernel."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from dp_ensemble_env.control.lsmdp import solve


def test_only_rows_of_probabilities_are_refused_as_such():
    for logs in ([[1.0]], [[0.5, 0.6], [0.4, 0.5]], [[0.5, 0.5], [0.5, -0.5]]):
        found = solve(np.array(logs), np.zeros((2, len(logs))), 1.0)
        assert_allclose(found.log_desirability[0], logsumexp(logs, axis=1), rtol=1e-14)
    for probabilities in (np.eye(2), [[0.5, 0.5], [0.2, 0.8]]):
        with pytest.raises(ValueError, match="looks like probabilities"):
            solve(np.array(probabilities), np.zeros((2, 2)), 1.0)
