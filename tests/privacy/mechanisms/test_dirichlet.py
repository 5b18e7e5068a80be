"""Tests of `dirichlet`."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import random_chain
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import gammaln

from dp_ensemble_env.privacy import Fleet, PrivacyLedger, mechanism
from dp_ensemble_env.privacy.accounting.accountant import total_epsilon
from dp_ensemble_env.privacy.accounting.losses import PureLoss, RowLoss
from dp_ensemble_env.privacy.adjacency import AGGREGATE_LIMIT, COUNTS_ARE_DATA, COUNTS_LIMIT
from dp_ensemble_env.privacy.mechanisms import dirichlet
from dp_ensemble_env.privacy.mechanisms.base import Permit
from dp_ensemble_env.privacy.mechanisms.dirichlet import (
    PAPER_H,
    DirichletEvent,
    DirichletMechanism,
    log_gamma_variates,
    row_groups,
)
from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism

ROW = np.array([0.7, 0.25, 0.05])


@pytest.fixture
def release():
    return DirichletMechanism(0.5, floor=0.01).release(random_chain(np.random.default_rng(0), 6), rng=0)


#: Two times; rows of one, two and three successors.
MATRICES = np.array(
    [[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]], [[0.0, 0.4, 0.6], [0.6, 0.2, 0.2], [0.5, 0.0, 0.5]]]
)


def by_hand(inputs, k, rng):
    """log of Gamma(a + 1) U^(1 / a), normalised; minus infinity where nothing is possible."""
    on = inputs > 0
    shape = k * inputs[on]
    logs = np.full(inputs.shape, -np.inf)
    logs[on] = np.log(rng.standard_gamma(shape + 1)) - rng.standard_exponential(len(shape)) / shape
    return (
        logs
        - np.log(np.exp(logs - logs.max(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True))
        - logs.max(axis=-1, keepdims=True)
    )


GUESS = PublicMechanism().release(np.eye(4)).matrix

#: Two times, two contexts, three states, two or four decisions.
WIDE, TALL = (2, 2, 3, 4), (2, 2, 3, 2)

RNG = np.random.default_rng(0)

WIDE_GUESS = RNG.dirichlet(np.ones(4), WIDE[:-1])

SUPPORT = np.ones(WIDE, dtype=bool)
SUPPORT[0, :, 0, 1:] = False  # two rows with one possible decision
SUPPORT[1, 1, 2, 2:] = False

INSIDE = np.where(SUPPORT, WIDE_GUESS, 0.0) / np.where(SUPPORT, WIDE_GUESS, 0.0).sum(axis=-1, keepdims=True)

#: Both times are alike in context 0.
CLASSES = np.array([[0, 1], [0, 2]])


def test_a_floor_may_fill_a_row_exactly():
    event = DirichletEvent(50.0, 0.25, (4, 3), seeding="seed")
    assert event.floor == 0.25
    with pytest.raises(ValueError, match="does not fit rows of 4"):
        DirichletEvent(50.0, 0.2501, (4, 3), seeding="seed")
    mechanism = DirichletMechanism(k=50.0, floor=0.25)
    np.testing.assert_allclose(mechanism.floored(np.array([[0.7, 0.1, 0.1, 0.1]] * 4)), 0.25)
    with pytest.raises(ValueError, match="row 0, which has 4 successors"):
        DirichletMechanism(k=50.0, floor=0.26).floored(np.array([[0.7, 0.1, 0.1, 0.1]] * 4))


def test_other_entries_keep_the_distance_and_where_it_comes_from():
    """A distance that was computed from private counts does not become a stated one, which may be published."""
    for source in ("stated", "counts", "devices"):
        event = DirichletEvent(50.0, 0.1, (3, 2), seeding="seed", h=(0.1, 0.2), h_source=source)
        wider = event.under(entries="any")
        assert wider.h == (0.1, 0.2) and wider.entries == "any" and wider.h_source == source
        assert (wider.public.h == ()) == (source != "stated")
        assert event.under(0.3).h == (0.3,) and event.under(0.3).h_source == "stated"
    plain = DirichletEvent(50.0, 0.1, (3, 2), seeding="seed").under(entries="any")
    assert plain.h == (PAPER_H,) and plain.h_source == "stated"
    with pytest.raises(ValueError, match="3 values for 2 rows"):
        plain.under([0.1, 0.2, 0.3])


@pytest.mark.parametrize("k", [0.5, 5.0, 50.0, 2000.0])
@pytest.mark.parametrize("entry", [0, 1, 2])
def test_marginals_are_beta(k, entry):
    """Kolmogorov-Smirnov on the logarithms, which keep their resolution near zero."""
    logs = DirichletMechanism(k).sample_log(ROW, 20_000, rng=1)[:, entry]
    beta = stats.beta(k * ROW[entry], k * (1 - ROW[entry]))
    assert stats.kstest(np.exp(logs), beta.cdf).pvalue > 1e-6


def test_marginal_of_a_tiny_entry_is_beta_far_below_the_smallest_double():
    """At k p = 1e-3 half of the draws are below 1e-300; log x is then -Exp(1)/(k p) up to a vanishing term."""
    row, k = np.array([1e-3, 0.999]), 1.0
    logs = DirichletMechanism(k).sample_log(row, 20_000, rng=2)[:, 0]
    assert np.isfinite(logs).all() and (logs < -745).mean() > 0.4
    assert stats.kstest(-logs[logs < -50] - 50, stats.expon(scale=1 / (k * row[0])).cdf).pvalue > 1e-6


def test_covariance_of_a_row():
    draws = np.exp(DirichletMechanism(10.0).sample_log(ROW, 200_000, rng=3))
    expected = (np.diag(ROW) - np.outer(ROW, ROW)) / 11.0
    assert_allclose(draws.mean(axis=0), ROW, atol=5.5 * np.sqrt(0.25 / 11 / 200_000))
    assert_allclose(np.cov(draws.T), expected, atol=2.5e-4)


def test_gamma_logarithms_match_gamma():
    shape = np.full(20_000, 0.3)
    assert stats.kstest(np.exp(log_gamma_variates(shape, np.random.default_rng(0))), stats.gamma(0.3).cdf).pvalue > 1e-6


@pytest.mark.parametrize("k", [1e-3, 1.0, 50.0])
def test_release_has_neither_zero_nor_nan_on_its_support(k):
    default = random_chain(np.random.default_rng(0), 20, 0.4)
    release = DirichletMechanism(k).release(default, rng=0)
    on = default > 0
    assert_array_equal(release.support, on)
    assert (release.matrix[on] > 0).all() and (release.matrix[~on] == 0).all()
    assert np.isfinite(release.log_matrix[on]).all() and np.isneginf(release.log_matrix[~on]).all()
    assert_allclose(release.matrix.sum(axis=1), 1.0, rtol=1e-12)


def test_rows_are_drawn_from_their_own_parameters():
    """A row with weight on the left stays left: rows and columns are not exchanged."""
    default = np.array([[0.9, 0.1, 0.0], [0.0, 0.1, 0.9], [0.2, 0.3, 0.5]])
    mean = np.mean([DirichletMechanism(20.0).release(default, rng=i).matrix for i in range(2000)], axis=0)
    assert_allclose(mean, default, atol=5.5 * np.sqrt(0.25 / 21 / 2000))


def test_released_rows_are_dirichlet():
    """The matrices themselves, not only `sample_log`: 8,000 draws of the same row by one release."""
    default = np.broadcast_to(np.tile(ROW, (3, 1)), (8000 // 3, 3, 3))
    rows = np.exp(DirichletMechanism(20.0).release(default, rng=5).log_matrix).reshape(-1, 3)
    for entry in range(3):
        beta = stats.beta(20 * ROW[entry], 20 * (1 - ROW[entry]))
        assert stats.kstest(rows[:, entry], beta.cdf).pvalue > 1e-6


def test_certain_rows_are_released_as_they_are():
    release = DirichletMechanism(0.01).release(np.eye(3), rng=0)
    assert_array_equal(release.matrix, np.eye(3))
    assert release.rows == 0


def test_floor_lifts_every_entry_of_the_support():
    default = np.array([[0.999, 0.001, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    inputs = DirichletMechanism(50.0, floor=0.05).floored(default)
    assert_allclose(inputs[0], [0.9 * 0.999 + 0.05, 0.9 * 0.001 + 0.05, 0.0])
    assert_allclose(inputs.sum(axis=1), 1.0)
    assert inputs[default > 0].min() >= 0.05
    assert_array_equal(DirichletMechanism(50.0).floored(default), default)
    draws = np.exp(DirichletMechanism(50.0, floor=0.05).sample_log(default[0, :2], 50_000, rng=0))
    assert draws.mean(axis=0)[1] == pytest.approx(0.0509, abs=2e-3)


def test_floor_that_cannot_hold_names_the_row_and_the_limit():
    default = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    with pytest.raises(ValueError, match=r"row 0, which has 3 successors.*at most 0.3333"):
        DirichletMechanism(5.0, floor=0.4).release(default, rng=0)


def test_public_support_may_be_wider_but_not_narrower():
    default = np.array([[1.0, 0.0], [0.5, 0.5]])
    everywhere = np.ones((2, 2), dtype=bool)
    release = DirichletMechanism(50.0, floor=0.05).release(default, rng=0, support=everywhere)
    assert release.support.all()
    with pytest.raises(ValueError, match=r"\(1, 1\).*outside the public support"):
        DirichletMechanism(5.0).release(default, rng=0, support=np.array([[True, False], [True, False]]))
    with pytest.raises(ValueError, match="boolean"):
        DirichletMechanism(5.0).release(default, rng=0, support=[[1, 0], [1, 1]])


def test_public_entries_without_mass_and_without_floor_stay_zero():
    default = np.array([[1.0, 0.0], [0.5, 0.5]])
    release = DirichletMechanism(5.0).release(default, rng=0, support=np.ones((2, 2), dtype=bool))
    assert_array_equal(release.support, default > 0)


def test_claims_name_settings_adjacency_and_assumptions():
    one, other = DirichletEvent(50.0, 0.0, (2, 1, 3)), DirichletEvent(20.0, 0.05, (2, 2), h=(0.02,), entries="any")
    settings, terms = DirichletEvent.claims([one], "sequential")
    assert settings == " at k=50"
    assert terms[:3] == [
        "adjacent rows differ in two entries by h=0.03 in L1 distance", "all 2 drawn rows composed",
        "assumes a public support",
    ]  # fmt: skip
    settings, terms = DirichletEvent.claims([other, one], 3)
    assert settings == " at k=20 to 50"
    assert terms[:3] == [
        "adjacent rows differ in any entries by h=0.02 to 0.03 in L1 distance",
        "a unit touches at most 3 rows of each matrix", "assumes a public support",
    ]  # fmt: skip
    assert DirichletEvent.claims([other], "parallel")[1][1:3] == [
        "a unit touches one row of each matrix", "assumes a public support and floor 0.05",
    ]  # fmt: skip


def test_time_varying_matrices_are_released_time_by_time():
    default = np.stack([random_chain(np.random.default_rng(i), 4) for i in range(3)])
    release = DirichletMechanism(5.0).release(default, rng=0)
    assert release.matrix.shape == (3, 4, 4)
    assert_allclose(release.matrix.sum(axis=-1), 1.0)
    assert release.rows == ((default > 0).sum(axis=-1) > 1).sum()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"k": 0}, "k must be a positive"),
        ({"k": -5}, "k"),
        ({"k": np.inf}, "finite"),
        ({"k": "50"}, "number"),
        ({"k": 5, "floor": -0.1}, "floor"),
        ({"k": 5, "floor": 1.0}, "floor"),
    ],
)
def test_bad_mechanisms_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        DirichletMechanism(**arguments)


@pytest.mark.parametrize(
    ("matrix", "rng", "words"),
    [
        ([[0.5, 0.6], [0.5, 0.5]], 0, "row 0 of default sums to 1.1"),
        ([0.5, 0.5], 0, "must be a matrix of probabilities"),
        ([[np.nan, 1], [0.5, 0.5]], 0, "nan"),
        (np.eye(2), "seed", "Generator"),
        (np.eye(2), -3, "Generator"),
    ],
)
def test_bad_releases_are_refused(matrix, rng, words):
    with pytest.raises(ValueError, match=words):
        DirichletMechanism(5.0).release(matrix, rng)
    with pytest.raises(ValueError, match="size"):
        DirichletMechanism(5.0).sample_log(ROW, 0, 1)


@given(st.lists(st.floats(), min_size=1, max_size=4), st.floats())
def test_any_row_is_sampled_or_refused(row, k):
    try:
        logs = DirichletMechanism(k).sample_log(row, 3, 0)
    except ValueError:
        return
    assert_allclose(np.exp(logs).sum(axis=1), 1.0, rtol=1e-9)


@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_a_release_is_drawn_from_the_floored_rows(floor):
    inputs = MATRICES.copy()
    for row in inputs.reshape(-1, 3):
        on = row > 0
        row[on] = (1 - floor * on.sum()) * row[on] + floor
    made = DirichletMechanism(k=7.0, floor=floor)
    event = made.event(MATRICES, seeding="seed")
    found = made.draw(MATRICES, Permit(event, np.random.default_rng(5)))
    assert_allclose(found.log_matrix, by_hand(inputs, 7.0, np.random.default_rng(5)), rtol=1e-12, atol=1e-14)
    assert found.event.steps == 2 and found.event.successors == (2, 3, 1, 2, 3, 2) and found.rows == 5
    several = DirichletMechanism(k=7.0, floor=floor).sample_log(MATRICES[0, 0], 4, np.random.default_rng(6))
    expected = by_hand(np.tile(inputs[0, 0], (4, 1)), 7.0, np.random.default_rng(6))
    assert_allclose(several, expected, rtol=1e-12, atol=1e-14)


def test_what_is_charged_for_rows_of_each_size():
    h = (0.5, 0.2, 0.3, 0.4, 0.1, 0.6)
    event = DirichletEvent(7.0, 0.1, (2, 3, 1, 2, 3, 1), seeding="seed", h=h, steps=2)
    left = [0.8 * 0.5, 0.7 * 0.2, None, 0.8 * 0.4, 0.7 * 0.1, None]
    assert_allclose(event.row_h, sorted((x for x in left if x is not None), reverse=True))
    assert_allclose(sorted(event.touched(1)), sorted([left[0], left[3]]))
    assert_allclose(sorted(event.touched(2)), sorted(x for x in left if x is not None))
    assert_allclose(event.touched(9), event.touched(3))
    plain = DirichletEvent(7.0, 0.25, (4, 2), seeding="seed")
    assert_allclose(plain.row_h, [0.5 * PAPER_H, 0.0])  # a floor that fills a row leaves nothing to move
    assert [tuple(group) for group in row_groups(plain, "sequential")] == [(7.0, 0.25, pytest.approx(0.5 * PAPER_H), 1)]
    assert [tuple(group) for group in row_groups(event, "parallel")] == [
        (7.0, 0.1, pytest.approx(value), 1) for value in sorted([left[0], left[3]])
    ]
    assert_allclose(plain.touched(2), [0.5 * PAPER_H, 0.0])
    assert plain.steps == 1 and DirichletMechanism(k=7.0).event(MATRICES).successors == (2, 3, 1, 2, 3, 2)
    assert plain.losses().counted("sequential") == [(RowLoss(7.0, 0.25, plain.row_h[0], "two"), 1)]


@pytest.mark.parametrize(
    ("floor", "sizes", "h", "bare"),
    [
        (0.0, (1, 1), (), False),
        (0.0, (1, 2), (), True),
        (0.0, (2, 2), (0.0, 0.2), True),
        (0.0, (2, 2), (0.0,), False),
        (0.1, (2, 2), (), False),
    ],
)
def test_without_a_floor_nothing_is_proven_for_what_is_drawn_and_moves(floor, sizes, h, bare):
    event = DirichletEvent(7.0, floor, sizes, seeding="seed", h=h)
    assert event.bare == bare
    assert ("set a floor" in event.remedy) == (floor == 0)


def test_adjacencies_of_one_number_one_a_row_or_one_a_state():
    event = DirichletEvent(7.0, 0.1, (2, 3, 3, 2), seeding="seed", steps=2)
    assert event.under(0.2).h == (0.2,) and event.under([0.2, 0.1]).h == (0.2, 0.1, 0.2, 0.1)
    assert event.under([0.4, 0.3, 0.2, 0.1]).h == (0.4, 0.3, 0.2, 0.1)
    assert event.under(0.0).h == (0.0,) and event.under(2.0).h == (2.0,) and event.under(entries="any").h == (PAPER_H,)
    for wrong in ([0.1, 0.2, 0.3], -0.1, 2.1, [[0.1]], [0.1, 2.1]):
        with pytest.raises(ValueError, match="^h "):
            event.under(wrong)
    with pytest.raises(ValueError, match="h has 2 values for 4 rows"):
        DirichletEvent(7.0, 0.1, (2, 3, 3, 2), seeding="seed", h=(0.1, 0.2))
    with pytest.raises(ValueError, match="4 rows cannot belong to 3 matrices"):
        DirichletEvent(7.0, 0.1, (2, 3, 3, 2), seeding="seed", steps=3)


def test_several_draws_in_words():
    first = DirichletEvent(7.0, 0.1, (2, 3), seeding="seed", h=(0.2, 0.3))
    second = DirichletEvent(9.0, 0.2, (2, 2, 2), seeding="seed", h=(0.25,))
    settings, terms = DirichletEvent.claims([first, second], "sequential")
    assert settings == " at k=7 to 9"
    assert terms[0] == "adjacent rows differ in two entries by h=0.2 to 0.3 in L1 distance"
    assert terms[1] == "all 3 drawn rows composed" and terms[2] == "assumes a public support and floor 0.1"
    assert (
        DirichletEvent.claims([second], 2)[0] == " at k=9" and "h=0.25 in" in DirichletEvent.claims([second], 2)[1][0]
    )
    counted = DirichletEvent.claims([replace(first, h_source="counts")], 2)[1]
    assert set(counted) >= {COUNTS_LIMIT, COUNTS_ARE_DATA} and AGGREGATE_LIMIT not in counted
    assert COUNTS_ARE_DATA in DirichletEvent.claims([replace(first, h_source="devices")], 2)[1]
    assert COUNTS_ARE_DATA in DirichletEvent.claims([first, replace(first, h_source="devices")], 2)[1]
    assert COUNTS_ARE_DATA not in terms and COUNTS_LIMIT not in terms and AGGREGATE_LIMIT in terms
    bare = DirichletEvent(7.0, 0.0, (2, 3), seeding="seed").under(entries="any")
    terms = DirichletEvent.claims([bare, second], 2)[1]
    assert terms[2] == "assumes a public support" and "any entries" in terms[0] and "at most 2 rows" in terms[1]


def test_floors_and_supports_that_do_not_fit_are_refused():
    for wrong in (1.0, 1.5, -0.1):
        with pytest.raises(ValueError, match="floor must"):
            DirichletMechanism(k=7.0, floor=wrong)
    with pytest.raises(ValueError, match="cannot hold for row 1, which has 3 successors; .* at most 0.3333"):
        DirichletMechanism(k=7.0, floor=0.4).floored(MATRICES)
    for wrong in ((MATRICES > 0).astype(int), MATRICES[0] > 0):
        with pytest.raises(ValueError, match="support must be a boolean array"):
            DirichletMechanism(k=7.0).floored(MATRICES, wrong)
    narrow = MATRICES > 0
    narrow[1, 2, 0] = False
    with pytest.raises(ValueError, match=r"the transition \(1, 2, 0\) has positive probability"):
        DirichletMechanism(k=7.0).floored(MATRICES, narrow)


def test_a_fleet_needs_a_declared_support_and_a_clip():
    fleet = Fleet.simulate(np.full((3, 3), 1 / 3), 5, seed=2, steps=50)
    support, mechanism = np.ones((3, 3), dtype=bool), DirichletMechanism(k=5.0, floor=0.05)
    assert mechanism.release(fleet, 0, support=support, clip=3).matrix.shape == (3, 3)
    for terms in ({}, {"support": support}, {"clip": 3}):
        with pytest.raises(ValueError, match="only with a support that is public"):
            mechanism.release(fleet, 0, **terms)


def test_the_dirichlet_mechanism_protects_a_participant_only_with_a_declared_support():
    fleet = Fleet.simulate(GUESS, 50, seed=1, steps=500)
    made = mechanism("dirichlet:k=20,floor=0.05")
    with pytest.raises(ValueError, match="declare it, support=, and bound"):
        made.release(fleet, 1)
    support = np.ones((4, 4), dtype=bool)
    ledger = PrivacyLedger()
    release = ledger.release(made, fleet, rng=1, support=support, clip=50)
    chain = fleet.chain(50, support)
    ((_, charged, _),) = ledger.entries
    assert charged.entries == "any" and charged.h_source == "devices"
    assert_allclose(charged.h, chain.adjacency.h)
    assert release.event == charged.drawn  # h was computed from the participants' data, so it stays with the ledger
    assert math.isfinite(ledger.spent(1e-6))
    assert_array_equal(PublicMechanism().release(fleet).matrix, GUESS)


def test_dirichlet_rows_of_all_times_and_contexts_are_drawn_on_their_own_and_charged():
    made = mechanism("dirichlet:k=40,floor=0.05")
    event = made.event(INSIDE, seeding="seed")
    assert event.successors == tuple(SUPPORT.sum(axis=-1).ravel()) and event.steps == 4
    ((loss, number),) = made.event(WIDE_GUESS, seeding="seed").losses().counted("sequential")
    assert number == 12 and loss.omega == 0.05
    ((_, touched),) = made.event(WIDE_GUESS, seeding="seed").losses().counted("parallel")
    assert touched == 4  # one row at each time and in each context
    rng, draws = np.random.default_rng(5), 400
    found = np.stack([made.release(INSIDE, rng).matrix for _ in range(draws)])
    mean = made.floored(INSIDE)
    assert_allclose(mean.sum(axis=-1), 1.0)
    error = np.sqrt(mean * (1 - mean) / 41 / draws)
    assert (np.abs(found.mean(axis=0) - mean) <= 4.5 * error + 1e-12).all()
    assert_allclose(found.var(axis=0)[mean > 0.2], (mean * (1 - mean) / 41)[mean > 0.2], rtol=0.35)
    assert np.abs(np.corrcoef(found[:, 0, 0, 1, 0], found[:, 1, 0, 1, 0])[0, 1]) < 0.25


def test_no_participant_moves_a_dirichlet_row_of_a_fleet_by_more_than_h():
    rng = np.random.default_rng(6)
    counts = rng.integers(0, 30, (5, 3, 3, 2)) * (rng.random((5, 3, 3, 2)) < 0.7)
    support = np.ones(TALL, dtype=bool)
    chain = Fleet(counts, classes=CLASSES).chain(4, support)
    assert chain.default.shape == (3, 3, 2)
    for left_out in range(5):
        less = Fleet(np.delete(counts, left_out, axis=0), classes=CLASSES).chain(4, support)
        both = ((chain.counts.sum(axis=-1) > 0) & (less.counts.sum(axis=-1) > 0)).ravel()
        moved = np.abs(chain.default - less.default).sum(axis=-1).ravel()
        assert (moved[both] <= chain.adjacency.h[both] + 1e-12).all()
    ledger = PrivacyLedger()
    made = mechanism("dirichlet:k=5,floor=0.2")
    release = ledger.release(made, Fleet(counts, classes=CLASSES), rng=1, support=support, clip=4)
    ((_, charged, _),) = ledger.entries
    assert len(charged.successors) == 9 and charged.h == tuple(chain.adjacency.h)
    assert release.matrix.shape == TALL
    assert_array_equal(release.matrix[0, 0], release.matrix[1, 0])
    assert np.abs(release.matrix[0, 1] - release.matrix[1, 1]).max() > 1e-3


# ------------------------------------------------------------------ rounding to tickets
@pytest.mark.parametrize("seed", range(40))
def test_rounded_neighbours_differ_in_two_entries_and_by_two_tickets_in_the_first(seed):
    rng = np.random.default_rng(seed)
    n, weight, h = int(rng.integers(3, 9)), [2**46, 1000, 64][seed % 3], 0.1
    row = 0.06 + (1.0 - 0.06 * n) * rng.dirichlet(np.ones(n))
    i, j = rng.permutation(n)[:2]
    other = row.copy()
    other[i], other[j] = row[i] - 0.5 * h * (row[i] > 0.06 + 0.5 * h), row[j] + 0.5 * h * (row[i] > 0.06 + 0.5 * h)
    moved = np.array(dirichlet.rounded(row, weight)) - np.array(dirichlet.rounded(other, weight))
    assert moved.sum() == 0 and set(np.flatnonzero(moved)) <= {0, i, j}
    assert abs(moved[i] + moved[j]) <= 2 or 0 in (i, j)
    assert np.abs(moved).sum() <= h * weight + 2 * n
    assert min(dirichlet.rounded(row, weight)) >= 0.06 * weight - dirichlet.SLACK


def test_the_loss_of_two_tickets_bounds_every_outcome():
    weight, added, balls = 400, 40, 30  # so few tickets that rounding shows
    alpha = np.array([60, 100, 240]) / added
    moved = alpha + np.array([2, 0, -2]) / added
    worst = 0.0
    for first in range(balls + 1):
        for second in range(balls + 1 - first):
            counts = np.array([first, second, balls - first - second])
            logs = [(gammaln(one + counts) - gammaln(one)).sum() for one in (alpha, moved)]
            worst = max(worst, abs(logs[0] - logs[1]))
    bound = dirichlet.rounding_loss(weight / added, weight, 58 / weight, balls)
    assert 0.5 * bound < worst <= bound


def test_a_published_draw_is_charged_for_its_urn():
    event = DirichletMechanism(50, floor=0.05).event(np.full((4, 4), 0.25))
    (loss, number), *_ = event.losses().counted("sequential")
    assert number == 4 and 0 < loss.rounding < 1e-10 and loss.omega < 0.05 and loss.k <= 50
    seeded = DirichletMechanism(50, floor=0.05).event(np.full((4, 4), 0.25), seeding="seed")
    published, plain = (PrivacyLedger().record(one, 0.03).spent(1e-6) for one in (event, seeded))
    assert plain <= published < plain * (1 + 1e-6)
    totals = [total_epsilon(1e-6, [(replace(loss, rounding=x), 2), (PureLoss(0.1), 1)]) for x in (0.0, 0.5)]
    assert totals[1] == 1.0 + totals[0]  # of each row
