"""Tests of `fleet_sums`."""

from __future__ import annotations

import itertools
import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.privacy import (
    Event,
    Fleet,
    GaussianMechanism,
    LaplaceMechanism,
    PrivacyBudgetExceeded,
    PrivacyLedger,
    mechanism,
)
from dp_ensemble_env.privacy.mechanisms import fleet_sums as shared
from dp_ensemble_env.privacy.mechanisms.base import make_permit
from dp_ensemble_env.privacy.mechanisms.posterior import PosteriorMechanism
from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.scenarios.campus import campus_event

GUESS = PublicMechanism().release(np.eye(4)).matrix


def participants(n: int) -> st.SearchStrategy[np.ndarray]:
    """Counts of one participant, from nothing at all to a single impossible jump seen a million times."""
    count = st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 10**6))
    return st.lists(count, min_size=n * n, max_size=n * n).map(lambda x: np.array(x).reshape(1, n, n))


def extremes(n: int) -> np.ndarray:
    """Participants who do all that the guess excludes, each in a single way."""
    counts = np.zeros((n + 2, n, n), dtype=int)
    counts[0, np.arange(n), n - 1 - np.arange(n)] = 10**6
    counts[1, 0, n - 1] = 1
    for shift in range(n):
        counts[shift + 2, np.arange(n), (np.arange(n) + shift) % n] = 5000
    return counts


def change(norm: int, before: np.ndarray, one: np.ndarray) -> float:
    """Norm of what one participant adds to the sums, in whole grid steps, so exactly."""
    n = one.shape[-1]
    layout = shared.Layout(PublicMechanism().release(np.eye(n)).matrix, norm)
    fleet, more = Fleet(before), Fleet(np.concatenate([before, one]))
    step = [int(value) for value in layout.sums(more) - layout.sums(fleet)]
    if norm == 1:
        return sum(map(abs, step)) / shared.GRID
    return math.sqrt(sum(value * value for value in step)) / shared.GRID


SPECS = ("gaussian:epsilon=1", "laplace:epsilon=1", "posterior:epsilon=1")


def noise_of(spec: str, rng: np.random.Generator | None, draws: int) -> np.ndarray:
    """Return the noise that the mechanism adds, in units of the grid's one, by listening to its estimator."""
    fleet, heard = Fleet.simulate(GUESS, 5, seed=2, steps=100), []
    made = mechanism(spec)
    norm = 2 if made.name == "gaussian" else 1
    exact = shared.Layout(GUESS, norm).sums(fleet) / shared.GRID
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared.Layout, "estimate", lambda self, noisy, *_: heard.append(noisy) or self.guess)
        for _ in range(draws):
            made.release(fleet, rng)
    return np.array(heard) - exact


def expected_deviation(spec: str, source: str) -> float:
    # sigma at (1, 1e-6) times sqrt(1 + 0.3^2), and sqrt(2) times 1.3 / epsilon: written out, not imported
    sigma = 4.2247 if source == "numpy" else 4.5314  # published noise is discrete, and proven by zCDP
    return sigma * math.sqrt(1.09) if spec.startswith("gaussian") else math.sqrt(2.0) * 1.3


def scale_error(spec: str, source: str, noise: np.ndarray) -> float:
    """Return by how many standard errors the noise is off; the fourth moments are 3 and 6."""
    spread = 2.0 if spec.startswith("gaussian") else 5.0
    ratio = (noise**2).mean() / expected_deviation(spec, source) ** 2
    return abs(ratio - 1.0) / math.sqrt(spread / noise.size)


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

CASES = {
    "every cell": (WIDE, {}, None),
    "a guess": (WIDE, {"guess": WIDE_GUESS}, None),
    "a support": (WIDE, {"guess": INSIDE, "support": SUPPORT}, None),
    "classes": (TALL, {}, CLASSES),
    "one matrix": ((3, 2), {}, None),
}


def drawn_shape(shape, classes):
    return shape if classes is None else (int(classes.max()) + 1, *shape[-2:])


def layout_of(case, norm):
    shape, terms, classes = CASES[case]
    empty = Fleet(np.zeros((0, *drawn_shape(shape, classes)), dtype=int), classes=classes)
    return shared.Layout.of(empty, norm, **terms)


def wide_change(case, norm, before, one):
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


WIDE_INSIDE = np.where(SUPPORT, WIDE_GUESS, 0.0) / np.where(SUPPORT, WIDE_GUESS, 0.0).sum(axis=-1, keepdims=True)

WIDE_CASES = {
    "every cell": (WIDE, {}, None),
    "a guess": (WIDE, {"guess": WIDE_GUESS}, None),
    "a support": (WIDE, {"guess": WIDE_INSIDE, "support": SUPPORT}, None),
    "classes": (TALL, {}, CLASSES),
    "one matrix": ((3, 2), {}, None),
}


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
    release = mechanism.release(fleet, 7, support=support)
    assert bool(heard) == (several or heavy)
    if heard:
        (sums, deviation, weight, least) = heard[0]
        event = release.event
        permit = make_permit(event, 7, fleet, {"support": support})
        drawn = mechanism.noisy(fleet, permit, support=support)
        assert_allclose(sums, drawn - event.prior, rtol=1e-12)
        assert_allclose(deviation, np.sqrt(np.maximum(drawn, event.prior)), rtol=1e-12)
        assert_allclose(weight, sums.reshape(4, 4).sum(axis=1), rtol=1e-9)
        assert_allclose(least, 3.0 * np.sqrt((deviation**2).reshape(4, 4).sum(axis=1)), rtol=1e-12)


@pytest.mark.parametrize(
    ("norm", "sensitivity"), [(2, GaussianMechanism.sensitivity), (1, LaplaceMechanism.sensitivity)]
)
class TestSensitivity:
    @given(one=participants(4))
    def test_nobody_moves_the_sums_by_more(self, norm, sensitivity, one):
        others = Fleet.simulate(GUESS, 3, seed=1, steps=40).counts
        assert change(norm, others, one) <= sensitivity

    def test_the_bound_is_reached_and_the_clip_is_what_holds_it(self, norm, sensitivity, monkeypatch):
        nobody = np.zeros((0, 20, 20), dtype=int)
        moved = [change(norm, nobody, one[None]) for one in extremes(20)]
        assert max(moved) == pytest.approx(sensitivity, rel=1e-4) and max(moved) <= sensitivity
        # The same check catches a mechanism that forgets to clip.
        monkeypatch.setattr(shared.Layout, "_weight", lambda self, moved, trust, rho: np.ones(len(moved)))
        assert max(change(norm, nobody, one[None]) for one in extremes(20)) > 2.0 * sensitivity

    def test_somebody_never_seen_counts_as_a_participant_and_loses_all_weight(self, norm, sensitivity):
        layout = shared.Layout(GUESS, norm)
        sums = layout.sums(Fleet(np.zeros((7, 4, 4), dtype=int))) / shared.GRID
        assert_array_equal(sums[:16], 0.0)
        assert_allclose(sums[16:20], 7 * layout.row_weight / layout.size, rtol=1e-6)
        assert sums[-1] == pytest.approx(7 * shared.COUNT, rel=1e-6)


@pytest.mark.parametrize("spec", SPECS[:2])
@pytest.mark.parametrize("source", ["numpy", "opendp"])
def test_the_noise_has_the_scale_that_the_event_is_charged_for(spec, source):
    noise = noise_of(spec, np.random.default_rng(3) if source == "numpy" else None, 400)
    assert scale_error(spec, source, noise) < 5.0
    assert scale_error(spec, source, 0.5 * noise) > 20.0  # half the noise would be caught
    assert abs(noise.mean()) < 5.0 * expected_deviation(spec, source) / math.sqrt(noise.size)
    on_grid = noise * shared.GRID
    whole = np.abs(on_grid - np.round(on_grid)).max() < 1e-3
    assert whole == (source == "opendp")  # published noise is discrete


def test_a_release_for_publication_needs_opendp(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    fleet, ledger = Fleet.simulate(GUESS, 5, seed=2, steps=10), PrivacyLedger()
    for spec in SPECS[:2]:
        with pytest.raises(ImportError, match=r"\[opendp\]"):
            ledger.release(mechanism(spec), fleet)
    assert ledger.releases == 0  # refused before it was charged
    assert ledger.release(mechanism(SPECS[0]), fleet, rng=1).seeding == "seed"


@pytest.mark.parametrize("spec", SPECS)
def test_noise_alone_releases_the_guess(spec):
    for number in (0, 1, 8):
        fleet = Fleet.simulate(GUESS, number, seed=3, steps=100)
        for seed in range(5):
            assert_allclose(mechanism(spec).release(fleet, seed).matrix, GUESS, atol=1e-15)


@pytest.mark.parametrize("spec", ["gaussian:epsilon=0.5", "laplace:epsilon=0.5", "posterior:epsilon=0.5"])
def test_releases_are_transition_matrices_whatever_the_participants_do(spec):
    strange = Fleet(np.repeat(extremes(6), 60, axis=0))
    for seed in range(10):
        matrix = mechanism(spec).release(strange, seed).matrix
        assert (matrix >= 0).all() and (np.diag(matrix) > 0).all()
        assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)


def test_without_noise_the_release_is_the_weighted_mean_of_the_rows():
    chain = np.array([[0.6, 0.3, 0.1, 0], [0.2, 0.5, 0.2, 0.1], [0.05, 0.25, 0.5, 0.2], [0, 0.1, 0.4, 0.5]])
    fleet = Fleet.simulate(chain, 400, seed=4)
    counts = fleet.counts.astype(float)
    seen = counts.sum(axis=2)
    trust = seen / (seen + 5.0)
    rows = counts / np.maximum(seen, 1.0)[:, :, None]
    layout = shared.Layout(GUESS, 2)
    # f from the two groups of coordinates: 1 - f trust is the second, in units of rho
    second = layout.contributions(fleet.counts)[:, 16:] * layout.size / layout.row_weight
    weight = 1.0 - second
    f = weight / trust
    assert_allclose(f, f[:, :1] * np.ones(4), rtol=1e-9)  # one weight for the whole participant
    assert f.max() <= 1.0 + 1e-12 and f.min() < 1.0  # some are clipped
    mean = (weight[:, :, None] * rows).sum(axis=0) / weight.sum(axis=0)[:, None]
    release = mechanism("gaussian:epsilon=20000").release(fleet, 1)
    assert_allclose(release.matrix, np.where(mean < 1e-4, 0.0, mean), atol=5e-4)


def test_a_jump_that_nobody_makes_is_not_made_up():
    model = campus_event()
    fleet = Fleet.simulate(model, 1000, seed=6)
    guess = PublicMechanism().release(model.default).matrix
    for seed in range(30):
        release = mechanism("gaussian:epsilon=0.5").release(fleet, seed)
        assert not release.matrix[(guess == 0) & (model.default == 0)].any()


def test_a_guess_of_your_own_is_where_the_release_falls_back():
    mine = np.full((4, 4), 0.25)
    fleet = Fleet.simulate(mine, 3, seed=1, steps=10)
    assert_allclose(mechanism(SPECS[0]).release(fleet, 1, guess=mine).matrix, mine)
    around, lazy = (mechanism(SPECS[0]).event(fleet, seeding="seed", guess=guess) for guess in (mine, None))
    assert around != lazy and around.digest != lazy.digest  # no stream is shared
    with pytest.raises(ValueError, match="guess"):
        mechanism(SPECS[0]).release(fleet, 1, guess=np.eye(3))


@pytest.mark.parametrize("spec", SPECS)
def test_events_say_nothing_private_and_survive_their_file(spec, tmp_path):
    few, many = (Fleet.simulate(GUESS, number, seed=1, steps=50) for number in (3, 40))
    made = mechanism(spec)
    assert made.event(few, seeding="seed") == made.event(many, seeding="seed")
    event = made.event(few, seeding="seed")
    assert Event.from_json(json.loads(json.dumps(event.to_json()))) == event
    assert mechanism(made.spec) == made
    release = made.release(many, 3)
    assert Release.load(release.save(tmp_path / "release.json")).digest == release.digest


@pytest.mark.parametrize("spec", SPECS)
def test_a_budget_of_just_that_size_pays_for_one_draw(spec, tmp_path):
    fleet = Fleet.simulate(GUESS, 10, seed=1, steps=50)
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", budget=(1.0, 1e-6))
    ledger.release(mechanism(spec), fleet, rng=0)
    assert ledger.spent(1e-6) <= 1.0 and ledger.spent(1e-6) == pytest.approx(1.0, abs=2e-3)
    rng = np.random.default_rng(1)
    state = rng.bit_generator.state
    with pytest.raises(PrivacyBudgetExceeded, match="above the budget"):
        ledger.release(mechanism(spec), fleet, rng)
    assert rng.bit_generator.state == state and PrivacyLedger(tmp_path / "ledger.jsonl").releases == 1


def test_a_permit_is_for_one_mechanism():
    fleet = Fleet.simulate(GUESS, 10, seed=1, steps=50)
    permit = PrivacyLedger().charge(mechanism("gaussian:epsilon=1").event(fleet, seeding="seed"), rng=1, data=fleet)
    with pytest.raises(ValueError, match="the permit is for"):
        mechanism("gaussian:epsilon=2").draw(fleet, permit)
    with pytest.raises(ValueError, match="the permit is for"):
        mechanism("laplace:epsilon=1").draw(fleet, permit)


@pytest.mark.parametrize("spec", SPECS)
def test_a_matrix_has_no_participants(spec):
    with pytest.raises(ValueError, match="it draws from a Fleet, not from ndarray"):
        mechanism(spec).release(GUESS, 1)
    with pytest.raises(
        ValueError, match="this model has none, just one matrix; add participants, .*draw the release from a Fleet"
    ):
        EnsembleEnv("campus-event", privacy=spec)


def test_an_environment_takes_the_release_of_a_fleet():
    model = campus_event()
    fleet, ledger = Fleet.simulate(model, 50, seed=1, steps=500), PrivacyLedger()
    release = ledger.release(mechanism("gaussian:epsilon=4"), fleet, rng=1)
    env = EnsembleEnv(model, privacy=release, ledger=ledger)
    assert_array_equal(env.model.default, release.matrix)
    line = env._batch.behaviour.line()
    assert "Gaussian release" in line and "ε = 4 at" in line


@pytest.mark.parametrize(
    ("norm", "sensitivity"), [(2, GaussianMechanism.sensitivity), (1, LaplaceMechanism.sensitivity)]
)
@pytest.mark.parametrize("case", CASES)
class TestWideSensitivity:
    def test_no_neighbour_moves_the_sums_by_more_and_the_bound_is_reached(self, case, norm, sensitivity, monkeypatch):
        shape = drawn_shape(CASES[case][0], CASES[case][2])
        everyone, nobody = one_sided(shape), np.zeros((0, *shape), dtype=int)
        moved = [wide_change(case, norm, nobody, one[None]) for one in everyone]
        assert max(moved) <= sensitivity and max(moved) == pytest.approx(sensitivity, rel=1e-4)
        # The same check catches a mechanism that forgets to clip.
        monkeypatch.setattr(shared.Layout, "_weight", lambda self, moved, trust, rho: np.ones(len(moved)))
        assert max(wide_change(case, norm, nobody, one[None]) for one in everyone) > 1.1 * sensitivity

    @settings(max_examples=15)
    @given(seed=st.integers(0, 2**32), most=st.sampled_from([1, 3, 10**6]))
    def test_nor_does_anybody_else(self, case, norm, sensitivity, seed, most):
        rng = np.random.default_rng(seed)
        shape = drawn_shape(CASES[case][0], CASES[case][2])
        counts = rng.integers(0, most + 1, (4, *shape)) * (rng.random((4, *shape)) < rng.random())
        assert wide_change(case, norm, counts[:3], counts[3:]) <= sensitivity


def test_contributions_are_those_of_the_formula_row_by_row():
    """Written out with loops: what a participant was seen doing, less the guess, in units of its deviation."""
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 9, (2, *WIDE)) * (rng.random((2, *WIDE)) < 0.6)
    layout = layout_of("a support", 2)
    drawn = [index for index in np.ndindex(*WIDE[:-1]) if SUPPORT[index].sum() > 1]
    assert layout.rows == len(drawn) == 10
    size = math.sqrt(
        sum(g * (1 - g) / 31 / max(g, 1e-3) for index in drawn for g in WIDE_INSIDE[index][SUPPORT[index]])
    )
    assert layout.size == pytest.approx(size)
    rho = 0.5 / math.sqrt(len(drawn))
    for person, found in zip(counts, layout.contributions(counts.reshape(2, -1)[:, layout.cells]), strict=True):
        moved, trust = [], []
        for index in drawn:
            seen = person[index][SUPPORT[index]]
            trust.append(seen.sum() / (seen.sum() + 5))
            share = seen / max(seen.sum(), 1)
            guess = WIDE_INSIDE[index][SUPPORT[index]]
            moved += list(trust[-1] * (share - guess) / np.sqrt(np.maximum(guess, 1e-3)) / size)
        f = 1.0 - found[len(moved) :] / rho
        visited = np.array(trust) > 0
        f = float((f[visited] / np.array(trust)[visited]).mean())
        assert 0 < f <= 1 + 1e-12
        assert_allclose(found[: len(moved)], f * np.array(moved), atol=1e-12)
        assert_allclose(found[len(moved) :], rho * (1 - f * np.array(trust)), atol=1e-12)
        assert f == pytest.approx(1.0) or np.linalg.norm(found) == pytest.approx(1.0)  # no more is cut than must be


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("case", WIDE_CASES)
def test_releases_are_behaviour_of_the_right_shape_and_noise_alone_releases_the_guess(spec, case):
    shape, terms, classes = WIDE_CASES[case]
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


@pytest.mark.parametrize("spec", SPECS)
def test_events_say_nothing_private_and_tell_draws_apart(spec):
    made = mechanism(spec)
    rng = np.random.default_rng(4)
    few, many = (Fleet(rng.integers(0, 5, (number, *WIDE))) for number in (3, 40))
    terms = {"guess": WIDE_INSIDE, "support": SUPPORT}
    event = made.event(few, seeding="seed", **terms)
    assert event == made.event(many, seeding="seed", **terms)
    assert Event.from_json(json.loads(json.dumps(event.to_json()))) == event
    assert event.shape == WIDE and event.touched == 10
    others = [made.event(few, seeding="seed", **some) for some in ({}, {"guess": WIDE_INSIDE}, {"guess": WIDE_GUESS})]
    assert len({event.digest, *(other.digest for other in others)}) == 4
    # What is hashed into the stream of one matrix of moves never changes.
    square = made.event(Fleet(np.ones((1, 3, 3), dtype=int)), seeding="seed").stream_key()
    noise = {"gaussian": "sigma", "laplace": "epsilon", "posterior": "prior"}[made.name]
    assert set(square) == {"type", "seeding", "states", "guess", noise}


@pytest.mark.parametrize("spec", ["gaussian:epsilon=1", "laplace:epsilon=1", "posterior:epsilon=1"])
def test_a_support_without_any_choice_is_refused(spec):
    fleet = Fleet.from_states([np.array([0, 1, 0, 1])] * 5, 2)
    ledger = PrivacyLedger()
    with pytest.raises(ValueError, match="one decision in every row"):
        ledger.release(mechanism(spec), fleet, rng=0, support=np.array([[False, True], [True, False]]))
    assert ledger.spent(1e-6) == 0.0
