"""Tests of `dirichlet`."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from fleets import CLASSES, INSIDE, MATRICES, SUPPORT, TALL, WALK
from helpers import random_chain
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import gammaln

from dp_ensemble_env.privacy import Fleet, PrivacyLedger, mechanism
from dp_ensemble_env.privacy.accounting.compose import total_epsilon
from dp_ensemble_env.privacy.accounting.losses import PureLoss, RowLoss
from dp_ensemble_env.privacy.mechanisms import dirichlet
from dp_ensemble_env.privacy.mechanisms.base import Permit
from dp_ensemble_env.privacy.mechanisms.dirichlet import PAPER_H, DirichletEvent, DirichletMechanism
from dp_ensemble_env.privacy.mechanisms.noise import MOST_TICKETS
from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism

ROW = np.array([0.7, 0.25, 0.05])


def event(k: float, floor: float, successors: tuple[int, ...], **more) -> DirichletEvent:
    return DirichletEvent(k, floor, successors, seeding="seed", **more)


# ------------------------------------------------------------------ the draw
def by_hand(inputs, k, rng):
    """log of Gamma(a + 1) U^(1 / a), normalised; minus infinity where nothing is possible."""
    on = inputs > 0
    shape = k * inputs[on]
    logs = np.full(inputs.shape, -np.inf)
    logs[on] = np.log(rng.standard_gamma(shape + 1)) - rng.standard_exponential(len(shape)) / shape
    most = logs.max(axis=-1, keepdims=True)
    return logs - most - np.log(np.exp(logs - most).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_a_release_is_drawn_from_the_floored_rows(floor):
    inputs = MATRICES.copy()
    for row in inputs.reshape(-1, 3):
        on = row > 0
        row[on] = (1 - floor * on.sum()) * row[on] + floor
    made = DirichletMechanism(k=7.0, floor=floor)
    assert_allclose(made.floored(MATRICES), inputs, atol=1e-15)
    found = made.draw(MATRICES, Permit(made.event(MATRICES, seeding="seed"), np.random.default_rng(5)))
    assert_allclose(found.log_matrix, by_hand(inputs, 7.0, np.random.default_rng(5)), rtol=1e-12, atol=1e-14)
    assert found.event.steps == 2 and found.event.successors == (2, 3, 1, 2, 3, 2)
    several = made.sample_log(MATRICES[0, 0], 4, np.random.default_rng(6))
    expected = by_hand(np.tile(inputs[0, 0], (4, 1)), 7.0, np.random.default_rng(6))
    assert_allclose(several, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("k", [0.5, 50.0])
def test_marginals_are_beta(k):
    """Kolmogorov-Smirnov on the logarithms, which keep their resolution near zero."""
    logs = DirichletMechanism(k).sample_log(ROW, 20_000, rng=1)
    for entry, p in enumerate(ROW):
        assert stats.kstest(np.exp(logs[:, entry]), stats.beta(k * p, k * (1 - p)).cdf).pvalue > 1e-6


def test_marginal_of_a_tiny_entry_is_beta_far_below_the_smallest_double():
    """At k p = 1e-3 half of the draws are below 1e-300; log x is then -Exp(1)/(k p) up to a vanishing term."""
    row, k = np.array([1e-3, 0.999]), 1.0
    logs = DirichletMechanism(k).sample_log(row, 20_000, rng=2)[:, 0]
    assert np.isfinite(logs).all() and (logs < -745).mean() > 0.4
    assert stats.kstest(-logs[logs < -50] - 50, stats.expon(scale=1 / (k * row[0])).cdf).pvalue > 1e-6


@pytest.mark.parametrize("k", [1e-3, 50.0])
def test_release_has_neither_zero_nor_nan_on_its_support(k):
    default = random_chain(np.random.default_rng(0), 20, 0.4)
    default[3] = np.eye(20)[5]  # a certain row is released as it is
    release = DirichletMechanism(k).release(default, rng=0)
    on = default > 0
    assert_array_equal(release.support, on)
    assert (release.matrix[on] > 0).all() and (release.matrix[~on] == 0).all() and release.matrix[3, 5] == 1.0
    assert np.isfinite(release.log_matrix[on]).all() and np.isneginf(release.log_matrix[~on]).all()
    assert_allclose(release.matrix.sum(axis=1), 1.0, rtol=1e-12)


def test_public_support_may_be_wider_but_not_narrower():
    default, everywhere = np.array([[1.0, 0.0], [0.5, 0.5]]), np.ones((2, 2), dtype=bool)
    assert DirichletMechanism(50.0, floor=0.05).release(default, rng=0, support=everywhere).support.all()
    bare = DirichletMechanism(5.0).release(default, rng=0, support=everywhere)
    assert_array_equal(bare.support, default > 0)  # without mass and without a floor nothing is drawn
    narrow = MATRICES > 0
    narrow[1, 2, 0] = False
    with pytest.raises(ValueError, match=r"the transition \(1, 2, 0\) .*outside the public support"):
        DirichletMechanism(5.0).release(MATRICES, rng=0, support=narrow)
    for wrong in ((MATRICES > 0).astype(int), MATRICES[0] > 0):
        with pytest.raises(ValueError, match="support must be a boolean array"):
            DirichletMechanism(7.0).floored(MATRICES, wrong)


def test_bad_settings_and_releases_are_refused():
    for settings, words in (({"k": 0}, "^k must"), ({"k": np.inf}, "^k must"), ({"k": 5, "floor": 1.0}, "floor must")):
        with pytest.raises(ValueError, match=words):
            DirichletMechanism(**settings)
    with pytest.raises(ValueError, match="cannot hold for row 1, which has 3 successors; .* at most 0.3333"):
        DirichletMechanism(7.0, floor=0.4).floored(MATRICES)
    assert_allclose(DirichletMechanism(50.0, floor=0.25).floored([[0.7, 0.1, 0.1, 0.1]]), 0.25)
    for matrix, rng, words in (
        ([[0.5, 0.6], [0.5, 0.5]], 0, "row 0 of default sums to 1.1"),
        ([[np.nan, 1], [0.5, 0.5]], 0, "nan"),
        (np.eye(2), -3, "Generator"),
    ):
        with pytest.raises(ValueError, match=words):
            DirichletMechanism(5.0).release(matrix, rng)
    with pytest.raises(ValueError, match="size"):
        DirichletMechanism(5.0).sample_log(ROW, 0, 1)


# ------------------------------------------------------------------ what it costs
def test_what_is_charged_for_rows_of_each_size():
    drawn = event(7.0, 0.1, (2, 3, 1, 2, 3, 1), h=(0.5, 0.2, 0.3, 0.4, 0.1, 0.6), steps=2)
    left = [0.8 * 0.5, 0.7 * 0.2, -1.0, 0.8 * 0.4, 0.7 * 0.1, -1.0]  # one successor is not drawn
    assert_allclose(drawn.moved, left)
    for rows, charged in (("sequential", (0, 1, 3, 4)), ("parallel", (0, 3)), (1, (0, 3)), (2, (0, 1, 3, 4))):
        found = drawn.losses().counted(rows)
        assert all((loss.k, loss.omega, loss.entries, number) == (7.0, 0.1, "two", 1) for loss, number in found)
        assert_allclose(sorted(loss.h for loss, _ in found), sorted(left[index] for index in charged))
    plain = event(7.0, 0.25, (4, 2, 2))
    assert_allclose(plain.moved, [0.0, 0.5 * PAPER_H, 0.5 * PAPER_H])  # a floor that fills a row leaves nothing to move
    assert plain.losses().counted("sequential") == [(RowLoss(7.0, 0.25, plain.moved[1], "two"), 2)]
    wide = DirichletMechanism(k=40, floor=0.05).event(INSIDE, seeding="seed")
    assert wide.successors == tuple(SUPPORT.sum(axis=-1).ravel()) and wide.steps == 4
    assert sum(number for _, number in wide.losses().counted("sequential")) == 10
    assert sum(number for _, number in wide.losses().counted("parallel")) == 4  # one row of each matrix


def test_without_a_floor_nothing_is_proven_for_what_is_drawn_and_moves():
    cases = (0.0, (1, 1), (), False), (0.0, (1, 2), (), True), (0.0, (2, 2), (0.0, 0.2), True), (0.1, (2, 2), (), False)
    for floor, sizes, h, bare in cases:
        drawn = event(7.0, floor, sizes, h=h)
        assert drawn.bare == bare == math.isinf(total_epsilon(0.5, drawn.losses().counted("sequential")))
        assert ("set a floor" in drawn.remedy) == (floor == 0)


def test_adjacencies_of_one_number_one_a_row_or_one_a_state():
    drawn = event(7.0, 0.1, (2, 3, 3, 2), steps=2)
    assert drawn.under(0.2).h == (0.2,) and drawn.under([0.2, 0.1]).h == (0.2, 0.1, 0.2, 0.1)
    assert drawn.under([0.4, 0.3, 0.2, 0.1]).h == (0.4, 0.3, 0.2, 0.1)
    assert drawn.under(0.0).h == (0.0,) and drawn.under(2.0).h == (2.0,) and drawn.under(entries="any").h == (PAPER_H,)
    for wrong in ([0.1, 0.2, 0.3], -0.1, 2.1, [[0.1]], [0.1, 2.1]):
        with pytest.raises(ValueError, match="^h "):
            drawn.under(wrong)
    with pytest.raises(ValueError, match="h has 2 values for 4 rows"):
        replace(drawn, h=(0.1, 0.2))
    with pytest.raises(ValueError, match="4 rows cannot belong to 3 matrices"):
        replace(drawn, steps=3)


def test_other_entries_keep_the_distance_and_where_it_comes_from():
    """A distance that was computed from private counts does not become a stated one, which may be published."""
    for source in ("stated", "counts", "devices"):
        drawn = event(50.0, 0.1, (3, 2), h=(0.1, 0.2), h_source=source)
        wider = drawn.under(entries="any")
        assert wider.h == (0.1, 0.2) and wider.entries == "any" and wider.h_source == source
        assert (wider.public.h == ()) == (source != "stated")
        assert drawn.under(0.3).h == (0.3,) and drawn.under(0.3).h_source == "stated"


# ------------------------------------------------------------------ participants
def test_a_fleet_is_protected_only_with_a_declared_support_and_a_clip():
    fleet, support = Fleet.simulate(WALK, 50, seed=1, steps=500), np.ones((4, 4), dtype=bool)
    made, ledger = mechanism("dirichlet:k=20,floor=0.05"), PrivacyLedger()
    for terms in ({}, {"support": support}, {"clip": 50}):
        with pytest.raises(ValueError, match="only with a support that is public.* declare it, support=, and bound"):
            ledger.release(made, fleet, 0, **terms)
    release = ledger.release(made, fleet, rng=1, support=support, clip=50)
    ((_, charged, _),) = ledger.entries
    assert charged.entries == "any" and charged.h_source == "devices"
    assert_allclose(charged.h, fleet.chain(50, support).adjacency.h)
    assert release.event == charged.drawn  # h was computed from the participants' data, so it stays with the ledger
    assert math.isfinite(ledger.spent(1e-6))
    assert_array_equal(PublicMechanism().release(fleet).matrix, WALK)


def test_a_fleet_of_classes_is_charged_for_each_class_once():
    rng = np.random.default_rng(6)
    fleet = Fleet(rng.integers(0, 30, (5, 3, 3, 2)) * (rng.random((5, 3, 3, 2)) < 0.7), classes=CLASSES)
    support, ledger = np.ones(TALL, dtype=bool), PrivacyLedger()
    release = ledger.release(mechanism("dirichlet:k=5,floor=0.2"), fleet, rng=1, support=support, clip=4)
    ((_, charged, _),) = ledger.entries
    assert len(charged.successors) == 9 and charged.h == tuple(fleet.chain(4, support).adjacency.h)
    assert release.matrix.shape == TALL
    assert_array_equal(release.matrix[0, 0], release.matrix[1, 0])
    assert np.abs(release.matrix[0, 1] - release.matrix[1, 1]).max() > 1e-3


# ------------------------------------------------------------------ publication
@pytest.mark.parametrize("seed", range(12))
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
    made, matrix = DirichletMechanism(50, floor=0.05), np.full((4, 4), 0.25)
    published, seeded = made.event(matrix), made.event(matrix, seeding="seed")
    (loss, number), *_ = published.losses().counted("sequential")
    assert number == 4 and 0 < loss.rounding < 1e-10 and loss.omega < 0.05 and loss.k <= 50
    dearer, plain = (PrivacyLedger().record(one, 0.03).spent(1e-6) for one in (published, seeded))
    assert plain <= dearer < plain * (1 + 1e-6)
    totals = [total_epsilon(1e-6, [(replace(loss, rounding=x), 2), (PureLoss(0.1), 1)]) for x in (0.0, 0.5)]
    assert totals[1] == 1.0 + totals[0]  # of each row


def test_published_rows_are_whole_numbers_of_balls_with_the_right_spread():
    row, made = np.array([[0.6, 0.3, 0.1, 0.0], [0.0, 0.0, 0.0, 1.0]]), DirichletMechanism(k=20, floor=0.05)
    draws = np.array([made.release(row).matrix[0] for _ in range(300)])
    balls = draws * (2**14 + 1.5) - 0.5
    assert np.abs(balls[:, :3] - np.rint(balls[:, :3])).max() < 1e-6 and not draws[:, 3].any()
    p = made.floored(row)[0]
    assert (np.abs(draws.mean(axis=0) - p) <= 5 * np.sqrt(p * (1 - p) / 21 / 300)).all()
    assert draws[:, :3].var(axis=0) == pytest.approx(p[:3] * (1 - p[:3]) / 21, rel=0.5)
    drawn = made.event(row)
    assert (drawn.balls, drawn.weight) == (2**14, 2**46) and made.event(row, seeding="seed").balls == 0
    ((loss, _),) = drawn.losses().counted("parallel")
    assert loss.h == pytest.approx(0.85 * 0.03, abs=1e-12) and loss.h > 0.85 * 0.03 and 0.05 > loss.omega > 0.05 - 1e-12


@pytest.mark.parametrize("k", [1e-3, 0.7, 1.0, 333.3, 1e20])
def test_the_urn_never_holds_more_of_the_truth_than_k_says(k):
    weight, added = dirichlet.urn(k)
    assert weight / added <= k and (weight / added >= 0.999 * k or added == 1)
    assert weight + dirichlet.BALLS * added < MOST_TICKETS
