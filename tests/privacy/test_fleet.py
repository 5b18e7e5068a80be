"""Tests of `fleet`."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.chain.markov import stationary
from dp_ensemble_env.privacy import Fleet, mechanism
from dp_ensemble_env.privacy.mechanisms.fleet_sums import Layout

#: Two times, two contexts, three states, four decisions; both times are alike in context 0.
WIDE = (2, 2, 3, 4)
CLASSES = np.array([[0, 1], [0, 2]])
#: Levels 0, 1 and 2 of two participants: 0 1 - 1 2 and 2 2 0 0 1.
NORTH = [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
SOUTH = [[1, 1, 0], [0, 0, 0], [1, 0, 1]]
CHAIN = np.array([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25], [0.0, 0.4, 0.6]])


def test_decisions_are_counted_by_state_time_and_context():
    rng = np.random.default_rng(7)
    records = [np.stack([rng.integers(0, size, number) for size in WIDE], axis=1) for number in (0, 5, 60)]
    counted = np.zeros((3, *WIDE), dtype=int)
    for person, rows in enumerate(records):
        for t, w, s, a in rows:
            counted[person, t, w, s, a] += 1
    fleet = Fleet.from_decisions(records, WIDE)
    assert_array_equal(fleet.counts, counted)
    assert fleet.shape == WIDE and fleet.participants == 3 and repr(fleet) == "Fleet(2 x 2 x 3 x 4)"
    assert_array_equal(fleet.first(2).counts, counted[:2])
    classed = Fleet.from_decisions(records, WIDE, classes=CLASSES)
    assert_array_equal(classed.counts[:, 0], counted[:, :, 0].sum(axis=1))
    assert_array_equal(classed.counts[:, 1:], counted[:, :, 1])
    assert classed.shape == WIDE and classed.drawn_shape == (3, 3, 4)
    layout = Layout.of(fleet, 2)  # however it is stored, a fleet makes the same sums
    assert_array_equal(layout.sums(fleet), layout.sums(Fleet(counted)))


def test_records_that_fit_no_model_are_refused():
    for records, words in (
        ([[[0, 0, 3, 0]]], "record 0 of participant 0 has 3 in column 2, but the shape"),
        ([[], [[0, 0, 0, -1]]], "participant 1 has -1 in column 3"),
        ([[[0.0, 0.0, 0.0, 0.0]]], "rows of 4 whole numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            Fleet.from_decisions(records, WIDE)
    with pytest.raises(ValueError, match="like a default's"):
        Fleet.from_decisions([], (3,))
    with pytest.raises(ValueError, match="classes must be whole numbers from 0 on"):
        Fleet.from_decisions([], WIDE, classes=[[0, 1], [3, 1]])
    terms = {"guess": np.full(WIDE, 0.25), "support": np.ones(WIDE[1:], dtype=bool)}
    with pytest.raises(ValueError, match="support"):
        mechanism("gaussian:epsilon=1").release(Fleet(np.ones((1, *WIDE), dtype=int)), 1, **terms)


def test_transitions_are_counted_but_not_across_gaps():
    fleet = Fleet.from_states([[0, 1, -1, 1, 2], np.array([2, 2, 0, 0, 1]), []], n_states=3)
    assert_array_equal(fleet.counts, [NORTH, SOUTH, np.zeros((3, 3))])
    assert fleet.n_states == 3 and fleet.shape == (3, 3) and fleet.participants == 3
    with pytest.raises(ValueError, match="trajectory 1 is in state 3 at time 2"):
        Fleet.from_states([[0, 1], [0, 1, 3]], n_states=3)
    with pytest.raises(ValueError, match="list of integer states"):
        Fleet.from_states([[0.5, 1.0]], n_states=3)


def test_counts_are_kept_small_and_cannot_be_changed():
    few, many, other = (Fleet.simulate(CHAIN, number, seed, steps=50) for number, seed in ((3, 1), (70, 1), (3, 2)))
    assert repr(few) == str(many) == "Fleet(3 levels)"  # no text of a fleet tells what is private
    assert (few.counts != other.counts).any() and Fleet.simulate(CHAIN, 0).participants == 0
    fleet = Fleet(np.full((2, 2, 2), 70_000))
    assert fleet.counts.dtype == np.uint32 and Fleet(np.ones((2, 2, 2), dtype=int)).counts.dtype == np.uint16
    with pytest.raises(ValueError):
        fleet.counts[0, 0, 0] = 1
    for wrong in (np.ones((2, 2)), np.ones((1, 1, 3), dtype=int), np.ones((1, 2, 2)), -np.ones((1, 2, 2), dtype=int)):
        with pytest.raises(ValueError, match="counts must be"):
            Fleet(wrong)


def test_alike_participants_follow_the_matrix():
    counts = Fleet.simulate(CHAIN, 40, seed=3, heterogeneity=np.inf, steps=5000).counts.sum(axis=0, dtype=float)
    seen = counts.sum(axis=1, keepdims=True)
    assert (np.abs(counts / seen - CHAIN) <= 4.5 * np.sqrt(CHAIN * (1 - CHAIN) / seen)).all()
    assert_allclose(seen[:, 0] / seen.sum(), stationary(CHAIN), atol=0.01)


def test_no_participant_moves_a_row_of_the_pooled_chain_by_more_than_h():
    rng = np.random.default_rng(0)
    support = np.ones((3, 3), dtype=bool)
    for _ in range(50):
        counts = rng.integers(0, 30, size=(5, 3, 3)) * (rng.random((5, 3, 3)) < 0.6)
        chain = Fleet(counts).chain(4, support)
        for left_out in range(5):
            less = Fleet(np.delete(counts, left_out, axis=0)).chain(4, support)
            both = (chain.counts.sum(axis=1) > 0) & (less.counts.sum(axis=1) > 0)
            assert (np.abs(chain.default - less.default).sum(axis=1)[both] <= chain.adjacency.h[both] + 1e-12).all()
            assert ((chain.counts - less.counts).sum(axis=1) <= 4).all()


def test_a_declared_support_is_all_that_is_pooled():
    chain = Fleet([[[3, 1], [5, 2]]]).chain(10, np.array([[True, True], [False, True]]))
    assert_array_equal(chain.counts, [[3, 1], [0, 2]])
    assert chain.adjacency.source == "devices"
    with pytest.raises(ValueError, match="support must be"):
        Fleet([[[3, 1], [5, 2]]]).chain(10, [[True, True], [False, False]])
