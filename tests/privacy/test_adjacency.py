"""Tests of `adjacency`."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.privacy import adjacency_from_counts


def test_the_formula_for_all_ways_to_take_a_participant_away():
    """h = 2c/N, at most 2, against brute force over what the participant's c transitions were."""
    adjacency = adjacency_from_counts([[90, 10, 0], [1, 2, 0], [0, 0, 0]], [1, 2, 3])
    assert adjacency.h.tolist() == pytest.approx([0.02, 4 / 3, 2.0])
    rng = np.random.default_rng(0)
    for _ in range(500):
        counts = rng.integers(0, 12, 4)
        total = int(counts.sum())
        if total < 4:
            continue
        owned = int(rng.integers(1, total))
        taken = rng.multivariate_hypergeometric(counts, owned)
        distance = np.abs(counts / total - (counts - taken) / (total - owned)).sum()
        table = np.zeros((4, 4))
        table[0] = counts
        assert distance <= adjacency_from_counts(table, owned).h[0] + 1e-12


@pytest.mark.parametrize(
    ("counts", "owned", "words"),
    [
        ([1, 2, 3], 1, "2-D"),
        ([[1, -2], [1, 1]], 1, "row 0 of counts"),
        ([[1, 2.5], [1, 1]], 1, "row 0 of counts"),
        ([[1, 2], [1, 1]], 0, "must be positive"),
        ([[1, 2], [1, 1]], [1, 1, 1], "2 values"),
    ],
)
def test_bad_counts_are_named(counts, owned, words):
    with pytest.raises(ValueError, match=words):
        adjacency_from_counts(counts, owned)
