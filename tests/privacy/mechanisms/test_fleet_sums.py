"""Tests of `fleet_sums`, and of the mechanisms that add noise to its sums."""

from __future__ import annotations

import itertools
import json
import math
import sys

import numpy as np
import pytest
from fleets import CASES, CLASSES, GUESS, INSIDE, SPECS, SUPPORT, WALK, WIDE, drawn_shape, layout_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.privacy import Event, Fleet, PrivacyLedger, mechanism
from dp_ensemble_env.privacy.mechanisms.base import make_permit
from dp_ensemble_env.privacy.mechanisms.fleet_sums import Layout
from dp_ensemble_env.privacy.mechanisms.noise import GRID
from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism
from dp_ensemble_env.privacy.release import Release

#: Of contributions with a norm of one and the count, in the L1 and the L2 norm.
SENSITIVITY = {1: 1.3, 2: math.sqrt(1.09)}


def step_of(case: str, norm: int, before: np.ndarray, one: np.ndarray) -> float:
    """Norm of what one participant adds to the sums, in whole grid steps, so exactly."""
    classes, layout = CASES[case][2], layout_of(case, norm)
    less, more = (Fleet(counts, classes=classes) for counts in (before, np.concatenate([before, one[None]])))
    step = [int(value) for value in layout.sums(more) - layout.sums(less)]
    return (sum(map(abs, step)) if norm == 1 else math.sqrt(sum(value * value for value in step))) / GRID


def one_sided(shape) -> np.ndarray:
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


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("case", CASES)
class TestSensitivity:
    def test_nobody_moves_the_sums_by_more_and_the_clip_is_what_holds_it(self, case, norm, monkeypatch):
        shape = drawn_shape(CASES[case][0], CASES[case][2])
        everyone, nobody = one_sided(shape), np.zeros((0, *shape), dtype=int)
        moved = [step_of(case, norm, nobody, one) for one in everyone]
        assert max(moved) <= SENSITIVITY[norm] == pytest.approx(max(moved), rel=1e-4)
        # The same check catches a mechanism that forgets to clip.
        monkeypatch.setattr(Layout, "_weight", lambda self, moved, trust, rho: np.ones(len(moved)))
        assert max(step_of(case, norm, nobody, one) for one in everyone) > 1.1 * SENSITIVITY[norm]

    @settings(max_examples=15)
    @given(seed=st.integers(0, 2**32), most=st.sampled_from([1, 3, 10**6]))
    def test_nor_does_anybody_else(self, case, norm, seed, most):
        rng = np.random.default_rng(seed)
        shape = drawn_shape(CASES[case][0], CASES[case][2])
        counts = rng.integers(0, most + 1, (4, *shape)) * (rng.random((4, *shape)) < rng.random())
        assert step_of(case, norm, counts[:3], counts[3]) <= SENSITIVITY[norm]


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


# ------------------------------------------------------------------ noise
@pytest.mark.parametrize("spec", SPECS[:2])
@pytest.mark.parametrize("source", ["numpy", "opendp"])
def test_the_noise_has_the_scale_that_the_event_is_charged_for(spec, source):
    made, fleet, rng = mechanism(spec), Fleet.simulate(WALK, 5, seed=2, steps=100), np.random.default_rng(3)
    exact = Layout.of(fleet, made.norm).sums(fleet) / GRID
    event = made.event(fleet, seeding="generator" if source == "numpy" else "os-entropy")
    permit = make_permit(event, rng if source == "numpy" else None, fleet, times=400)
    noise = np.array([made.noisy(fleet, permit) for _ in range(400)]) - exact
    # sigma at (1, 1e-6) times sqrt(1 + 0.3^2), and sqrt(2) times 1.3 / epsilon: written out, not imported
    sigma = 4.2247 if source == "numpy" else 4.5314  # published noise is discrete, and proven by zCDP
    deviation = sigma * math.sqrt(1.09) if spec.startswith("gaussian") else math.sqrt(2.0) * 1.3
    error = math.sqrt((2.0 if spec.startswith("gaussian") else 5.0) / noise.size)  # the fourth moments are 3 and 6
    assert abs((noise**2).mean() / deviation**2 - 1.0) < 5.0 * error < 0.25
    assert abs(noise.mean()) < 5.0 * deviation / math.sqrt(noise.size)
    assert made.deviation(event) == pytest.approx(deviation, rel=1e-4)
    on_grid = noise * GRID
    whole = np.abs(on_grid - np.round(on_grid)).max() < 1e-3
    assert whole == (source == "opendp")  # published noise is discrete


def test_a_release_for_publication_needs_opendp(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp", None)
    fleet, ledger = Fleet.simulate(WALK, 5, seed=2, steps=10), PrivacyLedger()
    for spec in SPECS[:2]:
        with pytest.raises(ImportError, match=r"\[opendp\]"):
            ledger.release(mechanism(spec), fleet)
    assert ledger.releases == 0  # refused before it was charged
    assert ledger.release(mechanism(SPECS[0]), fleet, rng=1).seeding == "seed"


# ------------------------------------------------------------------ estimates
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("case", [*CASES, "levels"])
def test_releases_are_behaviour_and_noise_alone_releases_the_guess(spec, case):
    shape, terms, classes = CASES.get(case, ((4, 4), {}, None))
    drawn = drawn_shape(shape, classes)
    guess = terms.get("guess", WALK if case == "levels" else np.full(shape, 1.0 / shape[-1]))
    for number, seed in ((0, 0), (1, 1), (8, 2)) if case == "levels" else [(2, 1)]:
        few = Fleet(np.ones((number, *drawn), dtype=int), classes=classes)
        assert_allclose(mechanism(spec).release(few, seed, **terms).matrix, guess, atol=1e-12)
    release = mechanism(spec).release(Fleet(np.repeat(one_sided(drawn), 60, axis=0), classes=classes), 1, **terms)
    assert release.matrix.shape == shape and (release.matrix >= 0).all()
    assert_allclose(release.matrix.sum(axis=-1), 1.0, atol=1e-12)
    if "support" in terms:
        assert not release.matrix[~SUPPORT].any()
    if classes is not None:
        assert_array_equal(release.matrix[0, 0], release.matrix[1, 0])
    if case == "levels":
        assert (np.diag(release.matrix) > 0).all()


def test_without_noise_the_release_is_the_weighted_mean_of_the_rows():
    chain = np.array([[0.6, 0.3, 0.1, 0], [0.2, 0.5, 0.2, 0.1], [0.05, 0.25, 0.5, 0.2], [0, 0.1, 0.4, 0.5]])
    fleet = Fleet.simulate(chain, 400, seed=4)
    counts = fleet.counts.astype(float)
    seen = counts.sum(axis=2)
    trust = seen / (seen + 5.0)
    rows = counts / np.maximum(seen, 1.0)[:, :, None]
    layout = Layout(WALK, 2)
    # f from the two groups of coordinates: 1 - f trust is the second, in units of rho
    weight = 1.0 - (layout.contributions(fleet.counts)[:, 16:] * layout.size / layout.row_weight)
    f = weight / trust
    assert_allclose(f, f[:, :1] * np.ones(4), rtol=1e-9)  # one weight for the whole participant
    assert f.max() <= 1.0 + 1e-12 and f.min() < 1.0  # some are clipped
    mean = (weight[:, :, None] * rows).sum(axis=0) / weight.sum(axis=0)[:, None]
    release = mechanism("gaussian:epsilon=20000").release(fleet, 1)
    assert_allclose(release.matrix, np.where(mean < 1e-4, 0.0, mean), atol=5e-4)


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


def test_a_jump_that_nobody_makes_is_not_made_up(campus):
    fleet = Fleet.simulate(campus, 1000, seed=6)
    impossible = (PublicMechanism().release(campus.default).matrix == 0) & (campus.default == 0)
    for seed in range(10):
        assert not mechanism("gaussian:epsilon=0.5").release(fleet, seed).matrix[impossible].any()


# ------------------------------------------------------------------ events and refusals
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("wide", [False, True])
def test_events_say_nothing_private_and_tell_draws_apart(spec, wide, tmp_path):
    made, shape = mechanism(spec), WIDE if wide else (4, 4)
    few, many = (Fleet(np.random.default_rng(4).integers(0, 5, (number, *shape))) for number in (3, 40))
    guesses = [GUESS, INSIDE] if wide else [np.full((4, 4), 0.25), WALK]
    choices = [{}, *({"guess": guess} for guess in guesses)]
    choices += [{"guess": INSIDE, "support": SUPPORT}] if wide else []
    for terms in choices:
        event = made.event(few, seeding="seed", **terms)
        assert event == made.event(many, seeding="seed", **terms)
        assert Event.from_json(json.loads(json.dumps(event.to_json()))) == event
        release = made.release(many, 3, **terms)
        assert Release.load(release.save(tmp_path / "release.json")).digest == release.digest
    assert len({made.event(few, seeding="seed", **terms) for terms in choices}) == len(choices)  # and streams
    assert (event.shape, event.rows) == ((WIDE, 10) if wide else ((), 0))
    if not wide:  # what is hashed into the stream of one matrix of moves never changes
        noise = {"gaussian": "sigma", "laplace": "epsilon", "posterior": "prior"}[made.name]
        assert set(event.stream_key()) == {"type", "seeding", "states", "guess", noise}


@pytest.mark.parametrize("spec", SPECS)
def test_what_cannot_be_drawn_is_refused(spec):
    made, fleet, ledger = mechanism(spec), Fleet.simulate(np.full((2, 2), 0.5), 5, seed=1, steps=9), PrivacyLedger()
    with pytest.raises(ValueError, match="it draws from a Fleet, not from ndarray"):
        made.release(WALK, 1)
    with pytest.raises(ValueError, match="just one matrix; add participants, .*draw the release from a Fleet"):
        EnsembleEnv("campus-event", privacy=spec)
    with pytest.raises(ValueError, match="one decision in every row"):
        ledger.release(made, fleet, rng=0, support=np.array([[False, True], [True, False]]))
    with pytest.raises(ValueError, match="guess"):
        ledger.release(made, fleet, rng=0, guess=np.eye(3))
    assert ledger.releases == 0
    permit = ledger.charge(made.event(fleet, seeding="seed"), rng=1, data=fleet)
    with pytest.raises(ValueError, match="the permit is for"):
        mechanism(spec.replace("1", "2")).draw(fleet, permit)
