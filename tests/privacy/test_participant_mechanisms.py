"""Gaussian, Laplace and posterior draws from a fleet: sensitivity, noise, what is made of it, and what it costs."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.privacy import Event, Fleet, PrivacyBudgetExceeded, PrivacyLedger, Release, mechanism
from dp_ensemble_env.privacy.mechanisms import fleet_sums as shared
from dp_ensemble_env.privacy.mechanisms import gaussian, laplace
from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism
from dp_ensemble_env.scenarios.campus import campus_event

SPECS = ("gaussian:epsilon=1", "laplace:epsilon=1", "posterior:epsilon=1")
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


# ------------------------------------------------------------------ sensitivity
@pytest.mark.parametrize(("norm", "sensitivity"), [(2, gaussian.SENSITIVITY), (1, laplace.SENSITIVITY)])
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


def test_posterior_parameters_move_by_at_most_one_a_row():
    for one in extremes(5):
        assert (shared.trusted_rows(Fleet(one[None])).sum(axis=1) <= 1.0).all()


# ------------------------------------------------------------------ noise
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


def expected_deviation(spec: str) -> float:
    # sigma 4.225 at (1, 1e-6) times sqrt(1 + 0.3^2), and sqrt(2) times 1.3 / epsilon: written out, not imported
    return 4.2247 * math.sqrt(1.09) if spec.startswith("gaussian") else math.sqrt(2.0) * 1.3


def scale_error(spec: str, noise: np.ndarray) -> float:
    """Return by how many standard errors the noise is off; the fourth moments are 3 and 6."""
    spread = 2.0 if spec.startswith("gaussian") else 5.0
    ratio = (noise**2).mean() / expected_deviation(spec) ** 2
    return abs(ratio - 1.0) / math.sqrt(spread / noise.size)


@pytest.mark.parametrize("spec", SPECS[:2])
@pytest.mark.parametrize("source", ["numpy", "opendp"])
def test_the_noise_has_the_scale_that_the_event_is_charged_for(spec, source):
    noise = noise_of(spec, np.random.default_rng(3) if source == "numpy" else None, 400)
    assert scale_error(spec, noise) < 5.0
    assert scale_error(spec, 0.5 * noise) > 20.0  # half the noise would be caught
    assert abs(noise.mean()) < 5.0 * expected_deviation(spec) / math.sqrt(noise.size)
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


# ------------------------------------------------------------------ what is made of it
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


# ------------------------------------------------------------------ events, ledger, statement
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


@pytest.mark.parametrize("spec", SPECS)
def test_the_statement_names_the_participant(spec):
    ledger = PrivacyLedger()
    ledger.release(mechanism(spec), Fleet.simulate(GUESS, 10, seed=1, steps=50), rng=0)
    line = ledger.statement(1e-6)
    assert "everything that one participant ever contributed" in line and "no support is assumed" in line
    assert "seeded" in line and line.startswith("Privacy: (1")


def test_a_permit_is_for_one_mechanism():
    fleet = Fleet.simulate(GUESS, 10, seed=1, steps=50)
    permit = PrivacyLedger().charge(mechanism("gaussian:epsilon=1").event(fleet, seeding="seed"), rng=1, data=fleet)
    with pytest.raises(ValueError, match="the permit is for"):
        mechanism("gaussian:epsilon=2").draw(fleet, permit)
    with pytest.raises(ValueError, match="the permit is for"):
        mechanism("laplace:epsilon=1").draw(fleet, permit)


# ------------------------------------------------------------------ where a fleet is needed
@pytest.mark.parametrize("spec", SPECS)
def test_a_matrix_has_no_participants(spec):
    with pytest.raises(ValueError, match="it draws from a Fleet, not from ndarray"):
        mechanism(spec).release(GUESS, 1)
    with pytest.raises(ValueError, match="this model has none, just one matrix; draw the release from a Fleet"):
        EnsembleEnv("campus-event", privacy=spec)


def test_an_environment_takes_the_release_of_a_fleet():
    model = campus_event()
    fleet, ledger = Fleet.simulate(model, 50, seed=1, steps=500), PrivacyLedger()
    release = ledger.release(mechanism("gaussian:epsilon=4"), fleet, rng=1)
    env = EnsembleEnv(model, privacy=release, ledger=ledger)
    assert_array_equal(env.model.default, release.matrix)
    line = env._batch.behaviour.line()
    assert "Gaussian release" in line and "ε = 4 at" in line


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
