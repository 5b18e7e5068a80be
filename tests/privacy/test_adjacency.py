"""Tests of `adjacency`."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.privacy import (
    DirichletMechanism,
    Fleet,
    PrivacyLedger,
    RowGroup,
    adjacency_from_counts,
    composed_epsilon,
)
from dp_ensemble_env.privacy.adjacency import AGGREGATE_LIMIT


def test_h_per_row():
    counts = [[90, 10, 0], [1, 2, 0], [0, 0, 0]]
    adjacency = adjacency_from_counts(counts, 2)
    assert adjacency.h.tolist() == pytest.approx([0.04, 4 / 3, 2.0])
    per_row = adjacency_from_counts(counts, [1, 2, 3])
    assert per_row.h.tolist() == pytest.approx([0.02, 4 / 3, 2.0])


def test_the_formula_for_all_ways_to_take_a_participant_away():
    """h = 2c/N against brute force over what the participant's c transitions were."""
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


def test_the_ledger_charges_an_adjacency_from_devices_for_any_entries():
    fleet = Fleet.from_states([[0, 1, 0, 1]] * 200 + [[1, 0, 0]] * 150, 2)
    chain = fleet.chain(1, np.ones((2, 2), dtype=bool))
    mechanism = DirichletMechanism(k=50, floor=0.1)
    ledger = PrivacyLedger()
    ledger.release(mechanism, chain.default, h=chain.adjacency, support=chain.support)
    groups = [RowGroup(50, 0.1, 0.8 * float(h)) for h in chain.adjacency.h]
    assert ledger.spent(1e-6) == pytest.approx(composed_epsilon(1e-6, groups, "any"))
    assert ledger.spent(1e-6) > composed_epsilon(1e-6, groups, "two")
    assert "any entries" in str(ledger.statement()) and AGGREGATE_LIMIT not in str(ledger.statement())
