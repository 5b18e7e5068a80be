"""Tests of `adjacency`."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.privacy import (
    DirichletMechanism,
    PrivacyLedger,
    RowGroup,
    adjacency_from_counts,
    chain_from_devices,
    composed_epsilon,
)
from dp_ensemble_env.privacy.adjacency import AGGREGATE_LIMIT


def _devices(seed, number=12, n=5, length=60):
    """Trajectories with very different habits, some with gaps, one that stays in a corner."""
    rng = np.random.default_rng(seed)
    devices = []
    for _ in range(number):
        chain = rng.dirichlet(np.full(n, 0.4), size=n)
        states = [int(rng.integers(n))]
        for _ in range(int(rng.integers(2, length))):
            states.append(int(rng.choice(n, p=chain[states[-1]])))
        states = np.array(states)
        states[rng.random(len(states)) < 0.05] = -1
        devices.append(states)
    return [*devices, np.zeros(length, dtype=int)]


def _distance(first, second):
    return np.abs(first - second).sum(axis=1)


@pytest.mark.parametrize("clip", [1, 2, 7])
@pytest.mark.parametrize("seed", range(6))
def test_removing_any_device_moves_every_row_by_at_most_h(seed, clip):
    devices = _devices(seed)
    whole = chain_from_devices(devices, 5, clip)
    moved = 0.0
    for index in range(len(devices)):
        without = chain_from_devices(devices[:index] + devices[index + 1 :], 5, clip)
        distance = _distance(whole.default, without.default)
        assert (distance <= whole.adjacency.h + 1e-12).all()
        moved = max(moved, float((distance / whole.adjacency.h).max()))
    assert moved > 0.2  # the devices matter: the test can fail


def test_the_bound_is_attained():
    devices = [[0, 0]] * 9 + [[0, 1]]
    whole, without = chain_from_devices(devices, 2, 1), chain_from_devices(devices[:-1], 2, 1)
    assert _distance(whole.default, without.default)[0] == pytest.approx(whole.adjacency.h[0]) == pytest.approx(0.2)


def test_without_clipping_the_same_h_would_be_wrong():
    busy = [0, 1] * 40
    devices = [[0, 0]] * 60 + [busy]
    unclipped = chain_from_devices(devices, 2, clip=10_000)
    claimed = adjacency_from_counts(unclipped.counts, 1).h
    without = chain_from_devices(devices[:-1], 2, clip=10_000)
    assert _distance(unclipped.default, without.default)[0] > claimed[0]


def test_a_device_touches_no_more_rows_than_allowed():
    devices = _devices(1)
    whole = chain_from_devices(devices, 5, 3, max_rows=2)
    assert whole.adjacency.rows_touched == 2 and whole.adjacency.source == "devices"
    touched = []
    for index in range(len(devices)):
        without = chain_from_devices(devices[:index] + devices[index + 1 :], 5, 3, max_rows=2)
        touched.append(int((np.abs(whole.counts - without.counts).sum(axis=1) > 0).sum()))
    assert max(touched) == 2


def test_gaps_support_and_empty_rows():
    chain = chain_from_devices([[0, 1, -1, 2, 0, 2]], 3, 5)
    assert chain.counts.tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]  # nothing across the gap
    assert chain.default[1].tolist() == pytest.approx([1 / 3] * 3) and chain.adjacency.h[1] == 2.0
    support = np.array([[True, True, False], [True, True, True], [True, False, True]])
    narrow = chain_from_devices([[0, 1, 0, 2, 0]], 3, 5, support=support)
    assert narrow.counts[0].tolist() == [0, 1, 0] and narrow.dropped == 1
    assert (narrow.default[~support] == 0).all()
    with pytest.raises(ValueError, match="trajectory 1 is in state 7 at time 1"):
        chain_from_devices([[0, 1], [0, 7]], 3, 1)
    with pytest.raises(ValueError, match="trajectory 0 must be a list of integer states"):
        chain_from_devices([[0.5, 1.0]], 3, 1)
    with pytest.raises(ValueError, match="support must be a boolean"):
        chain_from_devices([[0, 1]], 2, 1, support=[[True, True], [False, False]])


def test_h_per_row_and_thin_rows():
    counts = [[90, 10, 0], [1, 2, 0], [0, 0, 0]]
    adjacency = adjacency_from_counts(counts, 2)
    assert adjacency.h.tolist() == pytest.approx([0.04, 4 / 3, 2.0])
    assert adjacency.thin == (1, 2)
    assert "row 1 (3 seen)" in str(adjacency) and "row 2 (0 seen)" in str(adjacency)
    assert "publish it only if the counts may be public" in str(adjacency)
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
    chain = chain_from_devices([[0, 1, 0, 1]] * 200 + [[1, 0, 0]] * 150, 2, 1)
    mechanism = DirichletMechanism(k=50, floor=0.1)
    ledger = PrivacyLedger()
    ledger.release(mechanism, chain.default, h=chain.adjacency, support=chain.support)
    groups = [RowGroup(50, 0.1, 0.8 * float(h)) for h in chain.adjacency.h]
    assert ledger.spent(1e-6) == pytest.approx(composed_epsilon(1e-6, groups, "any"))
    assert ledger.spent(1e-6) > composed_epsilon(1e-6, groups, "two")
    assert "any entries" in str(ledger.statement()) and AGGREGATE_LIMIT not in str(ledger.statement())
