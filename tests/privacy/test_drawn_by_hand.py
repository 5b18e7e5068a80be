"""Releases recomputed from the generator they were drawn by; what is drawn, charged and said of them, at the ends."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.privacy import Event, Fleet, mechanism
from dp_ensemble_env.privacy import release as release_module
from dp_ensemble_env.privacy.accounting.losses import RowLoss
from dp_ensemble_env.privacy.adjacency import AGGREGATE_LIMIT, COUNTS_ARE_DATA, COUNTS_LIMIT
from dp_ensemble_env.privacy.mechanisms import posterior
from dp_ensemble_env.privacy.mechanisms.base import Permit
from dp_ensemble_env.privacy.mechanisms.dirichlet import PAPER_H, DirichletEvent, DirichletMechanism, row_groups
from dp_ensemble_env.privacy.mechanisms.fleet_sums import Layout
from dp_ensemble_env.privacy.mechanisms.posterior import PosteriorMechanism
from dp_ensemble_env.privacy.release import Release

#: Two times; rows of one, two and three successors.
MATRICES = np.array(
    [[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]], [[0.0, 0.4, 0.6], [0.6, 0.2, 0.2], [0.5, 0.0, 0.5]]]
)


# ------------------------------------------------------------------ Dirichlet
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


@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_a_release_is_drawn_from_the_floored_rows(floor):
    inputs = MATRICES.copy()
    for row in inputs.reshape(-1, 3):
        on = row > 0
        row[on] = (1 - floor * on.sum()) * row[on] + floor
    found = DirichletMechanism(k=7.0, floor=floor).release(MATRICES, np.random.default_rng(5))
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


# ------------------------------------------------------------------ releases
@pytest.mark.parametrize("matrices", [MATRICES[0], MATRICES])
def test_files_of_other_versions_are_refused(matrices):
    release = DirichletMechanism(k=7.0, floor=0.05).release(matrices, 3)
    read = Release.from_json(release.to_json())
    assert read.event == release.event and read.digest == release.digest
    assert_array_equal(read.log_matrix, release.log_matrix)
    for wrong in (0, 1, 2, 4):
        with pytest.raises(ValueError, match="not a dp-ensemble-release file of version 3"):
            Release.from_json({**release.to_json(), "version": wrong})


@pytest.mark.parametrize("ending", [".json", ".npz"])
def test_a_matrix_is_as_large_as_the_limit_and_no_larger(tmp_path, monkeypatch, ending):
    """A small file may unpack to a large matrix: eight bytes for each number."""
    event = DirichletEvent(7.0, 0.0, (1,) * 100, seeding="seed")
    with np.errstate(divide="ignore"):
        release = Release(np.log(np.eye(100)), event)
    path = release.save(tmp_path / f"release{ending}")
    for most, good in ((80_000, True), (79_999, False)):
        monkeypatch.setattr(release_module, "LARGEST_RELEASE", most)
        if good:
            assert Release.load(path).digest == release.digest
        else:
            with pytest.raises(ValueError, match="its matrix"):
                Release.load(path)


def test_a_release_holds_logarithms_of_behaviour():
    event = DirichletEvent(7.0, 0.1, (2, 2), seeding="seed")
    half = np.full((2, 2), np.log(0.5))
    for wrong, words in (
        (half[0], "of shape"), (half[None, None, None], "of shape"), (np.empty((2, 0)), "of shape"),
        (np.array([[0.1, -3.0], [-0.7, -0.7]]), "nothing above zero"), (np.array([[np.nan, 0.0]] * 2), "no NaN"),
        (np.full((2, 2), -0.1), "log_matrix"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            Release(wrong, event)
    rare = Release(np.array([[0.0, -1e4], [0.0, -np.inf]]), event)
    assert rare.matrix[0, 1] == np.finfo(float).tiny and rare.matrix[1, 1] == 0.0 and rare.rows == 1
    for shape in ((2, 2), (1, 2, 2), (1, 1, 2, 2)):
        assert (
            "states</" in Release(half.reshape(shape), event)._repr_html_()
            and ">2<" in Release(half.reshape(shape), event)._repr_html_()
        )


@pytest.mark.parametrize("times", [1, 2])
def test_a_permit_is_good_for_what_was_charged(times):
    event = DirichletEvent(7.0, 0.1, (2, 2), seeding="seed")
    permit = Permit(event, np.random.default_rng(0), times)
    for _ in range(times):
        permit.covers(event.under(0.2))
    with pytest.raises(ValueError, match=f"the permit was for {times} draw"):
        permit.covers(event)
    assert Permit(event, np.random.default_rng(0)).times == 1


def test_claims_do_not_move_a_seeded_draw_and_terms_do():
    mechanism, support = DirichletMechanism(k=7.0, floor=0.05), MATRICES > 0
    first = mechanism.release(MATRICES, 3)
    for claims in ({"support": None}, {"h": 0.1}, {"entries": "any"}, {"h": 0.1, "entries": "any"}):
        assert_array_equal(mechanism.release(MATRICES, 3, **claims).log_matrix, first.log_matrix)
    assert (mechanism.release(MATRICES, 3, support=support).log_matrix[support] != first.log_matrix[support]).any()


def test_types_of_events_have_one_class_each():
    def define(name):
        return type(name, (Event,), {"__qualname__": name}, type="twice-defined")

    try:
        define("First")
        define("First")  # again, as when a module is reloaded
        with pytest.raises(ValueError, match="twice-defined"):
            define("Second")
    finally:
        Event._types.pop("twice-defined", None)


def test_what_other_mechanisms_leave_open():
    release = mechanism("laplace:epsilon=1").release(Fleet.simulate(np.full((3, 3), 1 / 3), 5, seed=2, steps=50), 0)
    assert release.floor == 0.0 and release.k == math.inf and release_module.LARGEST_RELEASE == 10**9
    assert mechanism("gaussian:epsilon=1").delta == mechanism("posterior:epsilon=1").delta == 1e-6


def test_the_smallest_prior_is_claimed():
    fleet = Fleet.simulate(np.full((3, 3), 1 / 3), 5, seed=2, steps=50)
    events = [mechanism(f"posterior:epsilon={epsilon}").event(fleet) for epsilon in (1, 3)]
    assert events[0].prior > events[1].prior
    assert type(events[0]).claims(events, 1)[0] == f" by posterior sampling with prior counts of {events[1].prior:.4g}"


# ------------------------------------------------------------------ posterior draws
@pytest.mark.parametrize("several", [False, True])
def test_posterior_rows_by_hand(several, monkeypatch):
    """Sums less the prior, divided by the weights of rows; the noise of a row in units of its cells."""
    rng = np.random.default_rng(1)
    layout = Layout(rng.dirichlet(np.ones(3), 3), 2, several=several)
    heard = []
    monkeypatch.setattr(posterior, "shrink_rows", lambda _, rows, noise, seen, tail: heard.append((rows, noise, seen)))
    monkeypatch.setattr(posterior, "shrink", lambda _, rows, error, tail: heard.append((rows, error)))
    sums, deviation = rng.normal(3.0, 1.0, 9), rng.uniform(0.2, 2.0, 9)
    weight, least = np.array([10.0, 4.0, 5.0]), np.array([5.0, 9.0, 5.0])
    PosteriorMechanism._estimate(layout, sums, deviation, weight, least)
    over = np.repeat([10.0, 9.0, 5.0], 3)
    assert_allclose(heard[0][0].ravel(), sums / over)
    if several:
        each = (deviation / over / layout.units.ravel()).reshape(3, 3)
        assert_allclose(heard[0][1], [math.sqrt((row**2).mean()) for row in each])
        assert heard[0][2].tolist() == [True, False, False]
    else:
        assert_allclose(heard[0][1].ravel(), deviation / over)


@pytest.mark.parametrize(("several", "heavy"), [(False, False), (False, True), (True, False), (True, True)])
def test_the_guess_is_released_where_noise_is_all_there_is(several, heavy, monkeypatch):
    """Unless there are many rows, each of which is judged by itself."""
    fleet = Fleet.simulate(np.full((4, 4), 0.25), 20_000 if heavy else 5, seed=2, steps=20)
    support = np.ones((4, 4), dtype=bool) if several else None
    heard = []

    def estimate(layout, sums, deviation, weight, least):
        heard.append((sums, deviation, weight, least))
        return layout.guess

    monkeypatch.setattr(PosteriorMechanism, "_estimate", staticmethod(estimate))
    mechanism = PosteriorMechanism(epsilon=1.0)
    release = mechanism.release(fleet, np.random.default_rng(7), support=support)
    assert bool(heard) == (several or heavy)
    if heard:
        (sums, deviation, weight, least) = heard[0]
        event = release.event
        permit = Permit(event, np.random.default_rng(7))
        drawn = mechanism.noisy(fleet, permit, support=support)
        assert_allclose(sums, drawn - event.prior, rtol=1e-12)
        assert_allclose(deviation, np.sqrt(np.maximum(drawn, event.prior)), rtol=1e-12)
        assert_allclose(weight, sums.reshape(4, 4).sum(axis=1), rtol=1e-9)
        assert_allclose(least, 3.0 * np.sqrt((deviation**2).reshape(4, 4).sum(axis=1)), rtol=1e-12)
