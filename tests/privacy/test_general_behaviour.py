"""Behaviour with decisions, times and contexts: sensitivity by brute force, noise, releases, and what they claim."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import gammaln

from dp_ensemble_env.privacy import Event, Fleet, PrivacyLedger, Release, mechanism
from dp_ensemble_env.privacy.audit import with_canary
from dp_ensemble_env.privacy.mechanisms import fleet_sums as shared
from dp_ensemble_env.privacy.mechanisms import gaussian, laplace
from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism

#: Two times, two contexts, three states, two or four decisions.
WIDE, TALL = (2, 2, 3, 4), (2, 2, 3, 2)
RNG = np.random.default_rng(0)
GUESS = RNG.dirichlet(np.ones(4), WIDE[:-1])
SUPPORT = np.ones(WIDE, dtype=bool)
SUPPORT[0, :, 0, 1:] = False  # two rows with one possible decision
SUPPORT[1, 1, 2, 2:] = False
INSIDE = np.where(SUPPORT, GUESS, 0.0) / np.where(SUPPORT, GUESS, 0.0).sum(axis=-1, keepdims=True)
#: Both times are alike in context 0.
CLASSES = np.array([[0, 1], [0, 2]])
CASES = {
    "every cell": (WIDE, {}, None),
    "a guess": (WIDE, {"guess": GUESS}, None),
    "a support": (WIDE, {"guess": INSIDE, "support": SUPPORT}, None),
    "classes": (TALL, {}, CLASSES),
    "one matrix": ((3, 2), {}, None),
}
SPECS = ("gaussian:epsilon=1", "laplace:epsilon=1", "posterior:epsilon=1")


def drawn_shape(shape, classes):
    return shape if classes is None else (int(classes.max()) + 1, *shape[-2:])


def layout_of(case, norm):
    shape, terms, classes = CASES[case]
    empty = Fleet(np.zeros((0, *drawn_shape(shape, classes)), dtype=int), classes=classes)
    return shared.Layout.of(empty, norm, **terms)


def change(case, norm, before, one):
    """Norm of what one participant adds to the sums, in whole grid steps, so exactly."""
    classes, layout = CASES[case][2], layout_of(case, norm)
    less, more = Fleet(before, classes=classes), Fleet(np.concatenate([before, one]), classes=classes)
    step = [int(value) for value in layout.sums(more) - layout.sums(less)]
    return (sum(map(abs, step)) if norm == 1 else math.sqrt(sum(value * value for value in step))) / shared.GRID


def one_sided(shape):
    """Participants who, in a set of rows, always take one decision: all sets of rows, or all but a few, or one."""
    rows = int(np.prod(shape[:-1]))
    sets = {(), tuple(range(rows)), *((row,) for row in range(rows))}
    sets |= {tuple(row for row in range(rows) if row != left) for left in range(rows)}
    found = []
    for chosen, decision, often in itertools.product(sorted(sets), range(shape[-1]), (1, 10**6)):
        counts = np.zeros((rows, shape[-1]), dtype=np.int64)
        counts[list(chosen), decision] = often
        found.append(counts.reshape(shape))
    return np.array(found)


# ------------------------------------------------------------------ sensitivity
@pytest.mark.parametrize(("norm", "sensitivity"), [(2, gaussian.SENSITIVITY), (1, laplace.SENSITIVITY)])
@pytest.mark.parametrize("case", CASES)
class TestSensitivity:
    def test_no_neighbour_moves_the_sums_by_more_and_the_bound_is_reached(self, case, norm, sensitivity, monkeypatch):
        shape = drawn_shape(CASES[case][0], CASES[case][2])
        everyone, nobody = one_sided(shape), np.zeros((0, *shape), dtype=int)
        moved = [change(case, norm, nobody, one[None]) for one in everyone]
        assert max(moved) <= sensitivity and max(moved) == pytest.approx(sensitivity, rel=1e-4)
        # The same check catches a mechanism that forgets to clip.
        monkeypatch.setattr(shared.Layout, "_weight", lambda self, moved, trust, rho: np.ones(len(moved)))
        assert max(change(case, norm, nobody, one[None]) for one in everyone) > 1.1 * sensitivity

    @settings(max_examples=15)
    @given(seed=st.integers(0, 2**32), most=st.sampled_from([1, 3, 10**6]))
    def test_nor_does_anybody_else(self, case, norm, sensitivity, seed, most):
        rng = np.random.default_rng(seed)
        shape = drawn_shape(CASES[case][0], CASES[case][2])
        counts = rng.integers(0, most + 1, (4, *shape)) * (rng.random((4, *shape)) < rng.random())
        assert change(case, norm, counts[:3], counts[3:]) <= sensitivity


def test_contributions_are_those_of_the_formula_row_by_row():
    """Written out with loops: what a participant was seen doing, less the guess, in units of its deviation."""
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 9, (2, *WIDE)) * (rng.random((2, *WIDE)) < 0.6)
    layout = layout_of("a support", 2)
    drawn = [index for index in np.ndindex(*WIDE[:-1]) if SUPPORT[index].sum() > 1]
    assert layout.rows == len(drawn) == 10
    size = math.sqrt(sum(g * (1 - g) / 31 / max(g, 1e-3) for index in drawn for g in INSIDE[index][SUPPORT[index]]))
    assert layout.size == pytest.approx(size)
    rho = 0.5 / math.sqrt(len(drawn))
    for person, found in zip(counts, layout.contributions(counts.reshape(2, -1)[:, layout.cells]), strict=True):
        moved, trust = [], []
        for index in drawn:
            seen = person[index][SUPPORT[index]]
            trust.append(seen.sum() / (seen.sum() + 5))
            share = seen / max(seen.sum(), 1)
            guess = INSIDE[index][SUPPORT[index]]
            moved += list(trust[-1] * (share - guess) / np.sqrt(np.maximum(guess, 1e-3)) / size)
        f = 1.0 - found[len(moved) :] / rho
        visited = np.array(trust) > 0
        f = float((f[visited] / np.array(trust)[visited]).mean())
        assert 0 < f <= 1 + 1e-12
        assert_allclose(found[: len(moved)], f * np.array(moved), atol=1e-12)
        assert_allclose(found[len(moved) :], rho * (1 - f * np.array(trust)), atol=1e-12)
        assert f == pytest.approx(1.0) or np.linalg.norm(found) == pytest.approx(1.0)  # no more is cut than must be


def test_a_posterior_draw_is_charged_for_every_row_that_a_participant_may_touch():
    made = mechanism("posterior:epsilon=1")
    for case, rows in (("every cell", 12), ("a support", 10), ("classes", 9), ("one matrix", 3)):
        shape, terms, classes = CASES[case]
        canary = with_canary(Fleet(np.zeros((0, *drawn_shape(shape, classes)), dtype=int), classes=classes))
        added = shared.trusted_rows(canary, shared.Layout.of(canary, 2, **terms))
        assert (added.sum(axis=1) <= 1.0).all() and (added.sum(axis=1) > 0.99).sum() == rows
        event = made.event(canary, seeding="seed", **terms)
        ((loss, number),) = event.losses().counted("sequential")
        # The exact divergence of a participant who is as certain as can be, cell by cell.
        order, a, x = 8.0, event.prior, added[added > 0]
        exact = (gammaln(a - 7.0 * x) + 7.0 * gammaln(a + x) - 8.0 * gammaln(a)).sum() / 7.0
        claimed = number * float(loss.renyi(np.array([order]))[0])
        assert exact <= claimed <= 1.05 * exact


# ------------------------------------------------------------------ releases
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("case", CASES)
def test_releases_are_behaviour_of_the_right_shape_and_noise_alone_releases_the_guess(spec, case):
    shape, terms, classes = CASES[case]
    drawn = drawn_shape(shape, classes)
    guess = terms.get("guess", np.full(shape, 1.0 / shape[-1]))
    few = Fleet(np.ones((2, *drawn), dtype=int), classes=classes)
    assert_allclose(mechanism(spec).release(few, 1, **terms).matrix, guess, atol=1e-12)
    many = Fleet(np.repeat(one_sided(drawn), 60, axis=0), classes=classes)
    release = mechanism(spec).release(many, 1, **terms)
    assert release.matrix.shape == shape and (release.matrix >= 0).all()
    assert_allclose(release.matrix.sum(axis=-1), 1.0, atol=1e-12)
    if "support" in terms:
        assert not release.matrix[~SUPPORT].any()
    if classes is not None:
        assert_array_equal(release.matrix[0, 0], release.matrix[1, 0])


@pytest.mark.parametrize("spec", ["gaussian:epsilon=3000", "laplace:epsilon=20000"])
def test_without_noise_each_row_is_the_participants_own_and_unseen_rows_are_the_guess(spec):
    rng = np.random.default_rng(2)
    truth = rng.dirichlet(5.0 * np.ones(2), (3, 3))
    counts = np.stack([rng.multinomial(400, row, 300) for row in truth.reshape(-1, 2)], axis=1).reshape(300, 3, 3, 2)
    counts[:, 2, 1] = 0
    release = mechanism(spec).release(Fleet(counts, classes=CLASSES), 1)
    expected = truth[CLASSES]
    expected[1, 1, 1] = 0.5
    assert_allclose(release.matrix, expected, atol=0.01)
    assert np.abs(release.matrix - expected[::-1]).max() > 0.05 < np.abs(release.matrix - expected[:, ::-1]).max()


def test_a_release_of_four_axes_survives_its_file_and_its_ledger(tmp_path):
    shape, terms, _ = CASES["a support"]
    fleet = Fleet(np.repeat(one_sided(shape), 5, axis=0))
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", budget=(1.0, 1e-6))
    release = ledger.release(mechanism(SPECS[0]), fleet, rng=3, **terms)
    assert PrivacyLedger(tmp_path / "ledger.jsonl").spent(1e-6) == pytest.approx(1.0, abs=1e-6)  # whatever the rows
    for ending in (".json", ".npz"):
        again = Release.load(release.save(tmp_path / f"release{ending}"))
        assert_array_equal(again.log_matrix, release.log_matrix)
        assert again.event == release.event and ledger.knows(again)
    line = ledger.statement(1e-6)
    assert "its decisions in all 10 rows are bounded together" in line and "declared support is public" in line


@pytest.mark.parametrize("spec", SPECS)
def test_events_say_nothing_private_and_tell_draws_apart(spec):
    made = mechanism(spec)
    rng = np.random.default_rng(4)
    few, many = (Fleet(rng.integers(0, 5, (number, *WIDE))) for number in (3, 40))
    terms = {"guess": INSIDE, "support": SUPPORT}
    event = made.event(few, seeding="seed", **terms)
    assert event == made.event(many, seeding="seed", **terms)
    assert Event.from_json(json.loads(json.dumps(event.to_json()))) == event
    assert event.shape == WIDE and event.touched == 10
    others = [made.event(few, seeding="seed", **some) for some in ({}, {"guess": INSIDE}, {"guess": GUESS})]
    assert len({event.digest, *(other.digest for other in others)}) == 4
    # What is hashed into the stream of one matrix of moves never changes.
    square = made.event(Fleet(np.ones((1, 3, 3), dtype=int)), seeding="seed").stream_key()
    noise = {"gaussian": "sigma", "laplace": "epsilon", "posterior": "prior"}[made.name]
    assert set(square) == {"type", "seeding", "states", "guess", noise}


# ------------------------------------------------------------------ the paper's mechanism
def test_dirichlet_rows_of_all_times_and_contexts_are_drawn_on_their_own_and_charged():
    made = mechanism("dirichlet:k=40,floor=0.05")
    event = made.event(INSIDE)
    assert event.successors == tuple(SUPPORT.sum(axis=-1).ravel()) and event.steps == 4
    ((loss, number),) = made.event(GUESS).losses().counted("sequential")
    assert number == 12 and loss.omega == 0.05
    ((_, touched),) = made.event(GUESS).losses().counted("parallel")
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
    assert chain.adjacency.rows_touched == 9 and chain.default.shape == (3, 3, 2)
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


# ------------------------------------------------------------------ without data
def test_the_public_guess_is_the_models_own_or_knows_nothing():
    walk = PublicMechanism().release(np.zeros((4, 2, 3, 3))).matrix
    assert_allclose(walk[3, 1], PublicMechanism().release(np.eye(3)).matrix)
    assert_allclose(PublicMechanism().release(GUESS).matrix, 0.25)
    own = PublicMechanism().release(INSIDE, guess=GUESS)
    assert_allclose(own.matrix, GUESS, rtol=1e-12)
    assert own.event.losses().counted("sequential") == []
    assert own.event != PublicMechanism().event(INSIDE) and PublicMechanism().event(INSIDE).guess == "lazy walk"
    assert Event.from_json(own.event.to_json()) == own.event
    with pytest.raises(ValueError, match="guess"):
        PublicMechanism().release(INSIDE, guess=GUESS[0])


# ------------------------------------------------------------------ fleets
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
    # However it is stored, a fleet makes the same sums.
    assert_array_equal(layout_of("every cell", 2).sums(fleet), layout_of("every cell", 2).sums(Fleet(counted)))


def test_records_that_fit_no_model_are_refused():
    for records, words in (
        ([[[0, 0, 3, 0]]], "record 0 of participant 0 has 3 in column 2, but the shape"),
        ([[], [[0, 0, 0, -1]]], "participant 1 has -1 in column 3"),
        ([[[0, 1, 2]]], "rows of 4 whole numbers"),
        ([[[0.0, 0.0, 0.0, 0.0]]], "rows of 4 whole numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            Fleet.from_decisions(records, WIDE)
    with pytest.raises(ValueError, match="that of a default"):
        Fleet.from_decisions([], (3,))
    with pytest.raises(ValueError, match="classes must be whole numbers from 0 on"):
        Fleet.from_decisions([], WIDE, classes=[[0, 1], [3, 1]])
    with pytest.raises(ValueError, match="support"):
        mechanism(SPECS[0]).release(Fleet(np.ones((1, *WIDE), dtype=int)), 1, guess=GUESS, support=SUPPORT[0])


@pytest.mark.parametrize("spec", ["gaussian:epsilon=1", "laplace:epsilon=1", "posterior:epsilon=1"])
def test_a_support_without_any_choice_is_refused(spec):
    fleet = Fleet.from_states([np.array([0, 1, 0, 1])] * 5, 2)
    ledger = PrivacyLedger()
    with pytest.raises(ValueError, match="one decision in every row"):
        ledger.release(mechanism(spec), fleet, rng=0, support=np.array([[False, True], [True, False]]))
    assert ledger.spent(1e-6) == 0.0
