"""Tests of `mechanisms`: events, their losses on file, permits, streams, and specs."""

from __future__ import annotations

import hashlib
import json
from itertools import combinations

import numpy as np
import pytest
from fleets import MATRICES
from numpy.testing import assert_array_equal

from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import (
    DirichletEvent,
    Fleet,
    Losses,
    PrivacyLedger,
    PureLoss,
    RenyiLoss,
    journal,
    mechanism,
    total_epsilon,
)
from dp_ensemble_env.privacy.mechanisms.base import Disclosure, Event, Permit, StoredEvent, make_permit
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.privacy.release import Release

DEFAULT = np.array([[0.9, 0.1], [0.2, 0.8]])
MATRIX = np.array([[0.3123, 0.6877], [0.5, 0.5]])
#: Hashes of what is mixed into a seed, and of the seeded releases. They must never change.
STREAMS = {
    "dirichlet:k=50,floor=0.05": ("f6fbb4cb2b3c1c45", "77f3766a13c101a9"),
    "gaussian:epsilon=60": ("7d0c6cbec4702212", "6bf7bf398b7c1aa1"),
    "laplace:epsilon=60": ("61ccf2feb55d6a7e", "b60c344a7caa0835"),
    "posterior:epsilon=400": ("2adf907b2770ea34", "cc055bfcd6062de4"),
}


def model() -> EnsembleModel:
    return EnsembleModel(MATRIX, [1.0, 2.0], [[0.0, 0.0], [0.0, -1.0]], 5.0)


def aligned_draw(made: DirichletMechanism, matrix: np.ndarray, seed: int) -> Release:
    """Draw from the bare stream of a seed, as no permit of the package does."""
    return made.draw(matrix, Permit(made.event(matrix, seeding="seed"), np.random.default_rng(seed)))


def test_events_survive_json_and_foreign_ones_are_refused():
    for event in (DirichletEvent(50.0, 0.1, (3, 2), (0.03, 0.01), "any", "counts", seeding="seed"), Disclosure()):
        assert Event.from_json(event.to_json()) == event
    for nameless in ({}, {"type": ""}, {"type": 3}, {"type": "dirichlet\u200b"}):
        with pytest.raises(ValueError, match="the type of an event is a text of plain letters"):
            Event.from_json({**nameless, "losses": []})
    with pytest.raises(ValueError, match="losses are a list"):
        Event.from_json({"type": "magic"})
    with pytest.raises(ValueError, match="did you mean 'floor'"):
        Event.from_json({"type": "dirichlet", "k": 5.0, "flor": 0.1, "successors": [2], "losses": []})
    content = mechanism("dirichlet:k=50,floor=0.05,h=0.03").event(np.full((3, 3), 1 / 3)).to_json()
    for name in ("dirichlet ", "Dirichlet", " GAUSSIAN"):  # it would be read with whatever losses are stored
        with pytest.raises(ValueError, match=f"is {name.strip().lower()!r}"):
            Event.from_json({**content, "type": name, "losses": []})


# ------------------------------------------------------------------ specs
def test_the_spec_of_a_mechanism_makes_it_again():
    for settings in ((50.0, 0.05), (1234567.0, 0.0123456789), (1 / 3, 0.1 + 0.2, 0.01)):
        one = DirichletMechanism(*settings)
        assert mechanism(one.spec) == one
    assert one.event(DEFAULT).h == (0.01,) and one.event(DEFAULT, h=0.02).h == (0.02,)
    assert DirichletMechanism(50, 0.05).spec == "dirichlet:k=50,floor=0.05"
    assert mechanism("gaussian:epsilon=1").delta == mechanism("posterior:epsilon=1").delta == 1e-6
    for name in ("adaptive", "gaussian", "posterior"):
        assert mechanism(f"{name}:epsilon=1").spec == f"{name}:epsilon=1,delta=1e-06"
    assert mechanism(" public : reach=2 , ").reach == 2 and type(mechanism("public:reach=2").reach) is int


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("dirichlet:k=", "has no value"),
        ("dirichlet:k=5,k=6", "sets 'k' twice"),
        ("dirichlet:floor=0.1", "lacks k; write dirichlet:k=NUMBER"),
        ("dirichlet:k=5,flor=0.1", "did you mean 'floor'"),
        ("dirichlet:k=5,participants=9", "setting of the dirichlet mechanism"),
        ("gaussian:epsilon=1,heterogeneity=30", "add participants=1000"),
        ("gausian:epsilon=1", "did you mean 'gaussian'"),
        ("public:reach=2.5", "reach"),
        ("dirichlet:k=wide", "k must"),
        ("dirichlet:k=50,h=3", "^h must"),
        (5, "is written like"),
    ],
)
def test_texts_that_make_no_mechanism_are_refused(spec, words):
    with pytest.raises(ValueError, match=words):
        mechanism(spec)


# ------------------------------------------------------------------ strangers, and what is on file
def test_an_event_of_an_unknown_type_is_composed_kept_and_not_drawn(tmp_path):
    """A file that a stranger's process left behind: its losses are data, and no code is imported."""
    losses = Losses.of({PureLoss(0.4): 1, RenyiLoss((2.0, 4.0, 64.0), (0.01, 0.02, 0.3)): 1})
    content = {"type": "blur", "width": 5.0, "tags": ["a", "b"], "seeding": "seed", "losses": losses.to_json()}
    event = Event.from_json(json.loads(json.dumps(content)))
    assert isinstance(event, StoredEvent) and event.type == "blur" and event.to_json() == content
    ledger, adopted = PrivacyLedger(tmp_path / "ledger.jsonl"), PrivacyLedger()
    ledger.record(event, label="stranger")
    release = Release(np.log(DEFAULT), event)
    for one in (PrivacyLedger(ledger.path), PrivacyLedger.from_json(ledger.to_json()), adopted.adopt("x", event, "x")):
        for rows in ("sequential", "parallel", 2):
            assert one.spent(1e-6, rows=rows) == total_epsilon(1e-6, losses.counted(rows))
        line = str(one.statement())
        assert "1 release by the blur mechanism" in line and "unknown here: composed from the losses" in line
    for name in ("release.json", "release.npz"):
        again = Release.load(release.save(tmp_path / name))
        assert again.digest == release.digest and again.event == event and "width=5.0" in repr(again)
    with pytest.raises(ValueError, match="fixes its own adjacency"):
        event.under(0.03)
    with pytest.raises(ValueError, match="the permit is for"):
        mechanism("dirichlet:k=5").draw(DEFAULT, make_permit(event, 0, DEFAULT))


def test_the_losses_of_a_known_type_are_computed_again(tmp_path):
    event = mechanism("gaussian:epsilon=1").describe(states=3, seeding="seed")
    good = event.to_json()
    (row,) = good["losses"][0]["rows"]

    def stored(matrices: int = 1, **changes) -> dict:
        return {**good, "losses": [{"rows": [{**row, **changes}], "matrices": matrices}]}

    assert Event.from_json(stored(sigma=row["sigma"] * (1 + 1e-12))) == event
    header = {"format": journal.FORMAT, "version": journal.VERSION, "budget": None, "rows": "sequential", "h": 0.03}
    path = tmp_path / "forged.jsonl"  # with right digests
    own = "the losses that are stored with a gaussian event are not its own"
    for content, words in (
        ({**good, "losses": []}, own),
        (stored(sigma=row["sigma"] * 1.001), own),
        (stored(number=3), own),
        (stored(matrices=2), own),
        ({**good, "losses": None}, "losses are a list .*, got None"),
        ({name: value for name, value in good.items() if name != "states"}, "a gaussian event has no field 'states'"),
    ):
        journal.append(path, {"label": "", "times": 1, "event": content}, journal.begin(path, header))
        with pytest.raises(ValueError, match=rf"^entry 2 of the ledger .*forged.jsonl is damaged \({words}\); restore"):
            PrivacyLedger(path)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"kind": "magic", "number": 1}, "kind of loss"),
        ({"kind": "pure", "number": 1, "epsilon": -1.0}, "epsilon"),
        ({"kind": "pure", "number": 0, "epsilon": 1.0}, "number"),
        ({"kind": "pure", "number": 1, "epsilon": 1.0}, "matrices"),
        ({"kind": "gaussian", "number": 1}, "a gaussian loss has no field 'sigma'"),
        ({"kind": "renyi", "number": 1, "orders": [2, 1.5], "divergences": [0, 1]}, "orders must"),
        ({"kind": "renyi", "number": 1, "orders": [2], "divergences": [-1]}, "divergences must"),
        ({"kind": "dirichlet-row", "number": 1, "k": 5, "omega": 0.1, "h": 3}, "h must"),
    ],
)
def test_losses_outside_the_family_are_refused(row, words):
    losses = [{"rows": [row], "matrices": int(words != "matrices")}]
    with pytest.raises(ValueError, match=words):
        Event.from_json({"type": "unheard-of", "seeding": "seed", "losses": losses})


# ------------------------------------------------------------------ streams
def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize("spec", STREAMS)
def test_seeded_draws_are_frozen(spec):
    fleet = Fleet(np.random.default_rng(5).integers(0, 90, (400, 3, 3)))
    data = np.array([[0.5, 0.3, 0.2], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]]) if spec[0] == "d" else fleet
    made = mechanism(spec)
    key = digest(json.dumps(made.event(data, seeding="seed").stream_key(), sort_keys=True).encode())
    assert (key, digest(made.release(data, 7).log_matrix.round(9).tobytes())) == STREAMS[spec]


def test_claims_do_not_move_a_seeded_draw():
    made, ledger = DirichletMechanism(k=7.0, floor=0.05), PrivacyLedger()
    first = made.release(MATRICES, 3)
    for claims in ({"support": None}, {"h": 0.1}, {"entries": "any"}, {"h": 0.1, "entries": "any"}):
        assert_array_equal(made.release(MATRICES, 3, **claims).log_matrix, first.log_matrix)
    one, two = (ledger.release(made, MATRICES, 3, h=h) for h in (0.01, 0.1))
    assert_array_equal(one.log_matrix, two.log_matrix)
    assert one.event != two.event and len(ledger.entries) == 2  # but another claim is another entry


def test_every_parameter_of_a_draw_moves_its_stream():
    """Noise of draws that differ in one thing alone, the data among them, is uncorrelated."""

    def noise(matrix: np.ndarray, *args, **settings) -> np.ndarray:
        return (DirichletMechanism(*args).release(matrix, **settings).matrix - matrix).ravel()

    matrix = np.random.default_rng(3).dirichlet(np.full(30, 5.0), size=30)
    other = matrix.copy()
    other[0, :2] += [1e-9, -1e-9]  # a single reading of a single participant
    shared = [
        (aligned_draw(DirichletMechanism(k), x, 7).matrix - x).ravel()
        for x, k in ((matrix, 2e4), (other, 2e4), (matrix, 2.2e4))
    ]
    assert all(np.corrcoef(a, b)[0, 1] > 0.9 for a, b in combinations(shared, 2))  # what equal streams would do
    draws = {
        "plain": noise(matrix, 2e4, rng=7),
        "data": noise(other, 2e4, rng=7),
        "k": noise(matrix, 2.2e4, rng=7),
        "floor": noise(matrix, 2e4, 1e-6, rng=7),
        "seed": noise(matrix, 2e4, rng=8),
        "generator": noise(matrix, 2e4, rng=np.random.default_rng(7)),
        "generator, data": noise(other, 2e4, rng=np.random.default_rng(7)),
    }
    for (a, one), (b, two) in combinations(draws.items(), 2):
        assert abs(np.corrcoef(one, two)[0, 1]) < 0.15, (a, b)
    assert_array_equal(draws["plain"], noise(matrix, 2e4, rng=7))  # and the same draw is the same


def test_terms_of_a_draw_move_its_stream():
    """The event knows the sizes of a support's rows alone, and nothing of a clip."""
    matrix = np.eye(40)
    supports = [np.eye(40, dtype=bool) | np.eye(40, k=shift, dtype=bool) for shift in (1, 1, 2)]
    for one in supports:
        one[-2:] = supports[0][-2:] | np.eye(40, k=-1, dtype=bool)[-2:]  # rows of equal sizes
    mechanism, ledger = DirichletMechanism(50, 0.1), PrivacyLedger()
    assert mechanism.event(matrix, support=supports[1]) == mechanism.event(matrix, support=supports[2])
    for release in (mechanism.release, lambda *a, **t: ledger.release(mechanism, *a, **t)):
        stay = [np.diag(release(matrix, 3, support=one).matrix)[:-2] for one in supports]
        assert_array_equal(stay[0], stay[1])
        assert np.abs(stay[0] - stay[2]).max() > 1e-3 and abs(np.corrcoef(stay[0], stay[2])[0, 1]) < 0.6
    fleet = Fleet.simulate(MATRIX, 200, seed=1, steps=500)
    dense = np.ones((2, 2), bool)
    streams = [make_permit(mechanism.event(MATRIX), 3, fleet, {"support": dense, "clip": clip}).rng for clip in (5, 6)]
    assert streams[0].random() != streams[1].random()


def test_a_seed_alone_charges_nothing():
    mechanism = DirichletMechanism(50, 0.1)
    ledger = PrivacyLedger()
    event = mechanism.event(MATRIX, seeding="seed")
    with pytest.raises(ValueError, match=r"pass charge\(event, rng=rng, data=data\)"):
        ledger.charge(event, rng=3)
    with pytest.raises(ValueError, match="give it a `fingerprint`"):
        ledger.charge(event, rng=3, data=object())
    assert ledger.releases == 0
    release = mechanism.draw(MATRIX, ledger.charge(event, rng=3, data=MATRIX))
    assert_array_equal(release.matrix, mechanism.release(MATRIX, 3).matrix)
