"""Tests of `mechanisms`: events, their losses on file, permits, streams, and specs."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from fleets import MATRICES
from helpers import ROOT
from numpy.testing import assert_array_equal
from scipy.optimize import least_squares

from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import (
    DirichletEvent,
    Fleet,
    Losses,
    NoBound,
    PrivacyLedger,
    journal,
    mechanism,
    total_epsilon,
)
from dp_ensemble_env.privacy.mechanisms.base import Disclosure, Event, Permit, PostProcessing, StoredEvent, make_permit
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.privacy.release import Release

DEFAULT = np.array([[0.9, 0.1], [0.2, 0.8]])
#: A sweep such as anyone would run, on one seed.
KS = np.array([20.0, 30.0, 50.0, 80.0, 120.0, 200.0, 300.0])
TRUTH = 0.3123
MATRIX = np.array([[TRUTH, 1 - TRUTH], [0.5, 0.5]])
#: Hashes of what is mixed into a seed, and of the seeded releases. They must never change.
STREAMS = {
    "dirichlet:k=50,floor=0.05": ("f6fbb4cb2b3c1c45", "77f3766a13c101a9"),
    "gaussian:epsilon=60": ("7d0c6cbec4702212", "6bf7bf398b7c1aa1"),
    "laplace:epsilon=60": ("61ccf2feb55d6a7e", "b60c344a7caa0835"),
    "posterior:epsilon=400": ("2adf907b2770ea34", "cc055bfcd6062de4"),
}
STRANGER = """
import sys
from dataclasses import dataclass
import numpy as np
from dp_ensemble_env.privacy import Event, Losses, Mechanism, PrivacyLedger, PureLoss, Release, RenyiLoss, mechanism
from dp_ensemble_env.privacy import mechanisms


@dataclass(frozen=True, kw_only=True)
class BlurEvent(Event, type="blur"):
    width: float
    rows: int
    tags: tuple[str, ...] = ("a", "b")

    def losses(self):
        worst, other = PureLoss(2.0 / self.width), RenyiLoss((2.0, 4.0, 64.0), (0.01, 0.02, 0.3))
        return Losses.of({worst: 1, other: self.rows - 1})


@dataclass(frozen=True)
class BlurMechanism(Mechanism):
    name = "blur"
    width: float = 4.0

    def event(self, data, *, seeding="os-entropy", **terms):
        return BlurEvent(width=self.width, rows=len(data), seeding=seeding)

    def draw(self, data, permit, **terms):
        permit.covers(self.event(data, seeding=permit.event.seeding))
        matrix = 0.5 * np.asarray(data) + 0.5 * permit.rng.dirichlet(np.ones(len(data)), len(data))
        return Release(np.log(matrix), permit.event)


mechanisms.register("blur", BlurMechanism)
ledger = PrivacyLedger(sys.argv[1] + "/ledger.jsonl", budget=(9.0, 1e-6))
release = ledger.release(mechanism("blur:width=5"), [[0.9, 0.1], [0.2, 0.8]], rng=3, label="stranger")
ledger.release(mechanism("gaussian:epsilon=1"), __import__("dp_ensemble_env").privacy.Fleet(np.ones((9, 2, 2), int)), 1)
release.save(sys.argv[1] + "/release.json")
release.save(sys.argv[1] + "/release.npz")
print(repr([ledger.spent(1e-6), ledger.spent(1e-6, rows="parallel"), ledger.spent(1e-6, rows=2), release.digest]))
"""


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """The folder that a stranger's process left behind, and what it computed."""
    folder = tmp_path_factory.mktemp("stranger")
    (folder / "blur.py").write_text(STRANGER)
    done = subprocess.run([sys.executable, folder / "blur.py", str(folder)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.replace("'", '"'))


def model() -> EnsembleModel:
    return EnsembleModel(MATRIX, [1.0, 2.0], [[0.0, 0.0], [0.0, -1.0]], 5.0)


def aligned_draw(made: DirichletMechanism, matrix: np.ndarray, seed: int) -> Release:
    """Draw from the bare stream of a seed, as no permit of the package does."""
    return made.draw(matrix, Permit(made.event(matrix, seeding="seed"), np.random.default_rng(seed)))


def test_what_costs_nothing_and_what_nothing_bounds():
    assert PostProcessing().losses() == mechanism("public").event(DEFAULT).losses() == Losses()
    assert Losses().counted("sequential") == [] and total_epsilon(1e-6, []) == 0.0
    assert Disclosure().losses().counted("sequential") == [(NoBound(), 1)]
    assert DirichletEvent(50.0, 0.0, (2, 2), (0.03,)).losses().counted("parallel") == [(NoBound(), 1)]
    assert DirichletEvent(50.0, 0.0, (1, 1), (0.03,)).losses() == Losses()  # one successor tells nothing


def test_events_survive_json_and_foreign_ones_are_refused():
    for event in (
        DirichletEvent(50.0, 0.1, (3, 2), (0.03, 0.01), "any", "counts", seeding="seed"),
        mechanism("public").event(np.eye(3)),
        Disclosure(),
    ):
        assert Event.from_json(event.to_json()) == event
        assert Event.from_json(event.to_json()).digest == event.digest
    assert DirichletEvent(50.0, 0.1, (3,)).digest != DirichletEvent(51.0, 0.1, (3,)).digest
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


@pytest.mark.parametrize("times", [1, 2])
def test_a_permit_is_good_for_what_was_charged(times):
    event = DirichletEvent(7.0, 0.1, (2, 2), seeding="seed")
    permit = Permit(event, np.random.default_rng(0), times)
    for _ in range(times):
        permit.covers(event.under(0.2))
    with pytest.raises(ValueError, match=f"the permit was for {times} draw"):
        permit.covers(event)
    assert Permit(event, np.random.default_rng(0)).times == 1


# ------------------------------------------------------------------ specs
def test_the_spec_of_a_mechanism_makes_it_again():
    for k, floor in ((50.0, 0.05), (1234567.0, 0.0123456789), (1 / 3, 0.1 + 0.2)):
        one = DirichletMechanism(k, floor)
        assert mechanism(one.spec) == one
    assert DirichletMechanism(50, 0.05).spec == "dirichlet:k=50,floor=0.05"
    assert mechanism("gaussian:epsilon=1").delta == mechanism("posterior:epsilon=1").delta == 1e-6
    for name in ("adaptive", "gaussian", "posterior"):
        assert mechanism(f"{name}:epsilon=1").spec == f"{name}:epsilon=1,delta=1e-06"
    assert mechanism(" public : reach=2 , ").reach == 2 and type(mechanism("public:reach=2").reach) is int


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("dirichlet:k", "'k' of 'dirichlet:k' has no value"),
        ("dirichlet:k=", "has no value"),
        ("dirichlet:k=5,k=6", "sets 'k' twice"),
        ("dirichlet:floor=0.1", "lacks k; write dirichlet:k=NUMBER"),
        ("dirichlet:k=5,flor=0.1", "did you mean 'floor'"),
        ("dirichlet:k=5,participants=9", "setting of the dirichlet mechanism"),
        ("gaussian:epsilon=1,heterogeneity=30", "add participants=1000"),
        ("gausian:epsilon=1", "did you mean 'gaussian'"),
        ("public:reach=2.5", "reach"),
        ("dirichlet:k=wide", "k must"),
        (5, "is written like"),
    ],
)
def test_texts_that_make_no_mechanism_are_refused(spec, words):
    with pytest.raises(ValueError, match=words):
        mechanism(spec)


def test_h_is_a_term_of_the_spec():
    plain, stated = mechanism("dirichlet:k=50,floor=0.05"), mechanism("dirichlet:k=50,floor=0.05,h=0.01")
    assert plain.h is None and plain.spec == "dirichlet:k=50,floor=0.05"
    assert stated.h == 0.01 and stated.spec == "dirichlet:k=50,floor=0.05,h=0.01" and mechanism(stated.spec) == stated
    assert plain.event(DEFAULT).h == () and stated.event(DEFAULT).h == (0.01,)
    assert stated.event(DEFAULT, h=0.02).h == (0.02,)
    ledger, other = PrivacyLedger(h=0.05), PrivacyLedger(h=0.01)
    release = ledger.release(stated, DEFAULT, 3)
    assert release.event.h == (0.01,) and other.release(plain, DEFAULT, 3).event == release.event
    assert ledger.spent(1e-6) == other.spent(1e-6) < PrivacyLedger(h=0.05).record(plain.event(DEFAULT)).spent(1e-6)
    assert_array_equal(release.log_matrix, plain.release(DEFAULT, 3).log_matrix)
    for wrong in ("3", "-0.1", "nan", "wide"):
        with pytest.raises(ValueError, match="^h must"):
            mechanism(f"dirichlet:k=50,h={wrong}")


# ------------------------------------------------------------------ strangers, and what is on file
def test_a_process_without_the_code_composes_the_entry(strangers):
    folder, (spent, parallel, two, _) = strangers
    assert "blur" not in Event._types
    ledger = PrivacyLedger(folder / "ledger.jsonl")
    assert [label for label, _, _ in ledger.entries] == ["stranger", ""] and ledger.releases == 2
    found = [ledger.spent(1e-6, **rows) for rows in ({}, {"rows": "parallel"}, {"rows": 2})]
    assert found == [spent, parallel, two]
    assert 1.0 < parallel < two == spent < 9.0 and ledger.remaining() == 9.0 - spent
    line = str(ledger.statement())
    assert "1 release by the blur mechanism" in line and "unknown here: composed from the losses" in line
    with pytest.raises(ValueError, match="fixes its own adjacency"):
        ledger.entries[0][1].under(0.03)


def test_what_was_read_is_written_again_and_taken_but_not_drawn(strangers, tmp_path):
    folder, (spent, _, _, digest) = strangers
    ledger, adopted = PrivacyLedger(folder / "ledger.jsonl"), PrivacyLedger()
    handed = PrivacyLedger.from_json(ledger.to_json())
    for label, event, _ in ledger.entries:
        adopted.adopt(label, event, label)
    assert adopted.spent(1e-6) == handed.spent(1e-6) == spent and handed.charges == ledger.charges
    for name in ("release.json", "release.npz"):
        release = Release.load(folder / name)
        assert release.digest == digest and ledger.knows(release)
        assert isinstance(release.event, StoredEvent) and release.event.type == "blur" and release.seeding == "seed"
        assert "width=5.0" in repr(release)
        again = Release.load(release.save(tmp_path / name))
        assert again.digest == digest and again.event == release.event
        alone = PrivacyLedger().record(release)
        assert alone.spent(1e-6) == total_epsilon(1e-6, release.event.losses().counted("sequential")) < spent
    model = EnsembleModel(DEFAULT, np.arange(2.0), -np.ones((3, 2)), 1.0)
    env = EnsembleEnv(model, privacy=release, ledger=ledger, reward="dollars")
    assert env.release.digest == digest and ledger.releases == 2  # it was paid for already
    with pytest.raises(ValueError, match="the permit is for"):
        mechanism("dirichlet:k=5").draw(DEFAULT, make_permit(release.event, 0, DEFAULT))


def test_an_edited_loss_is_refused(strangers, tmp_path):
    for name, words in (
        ("ledger.jsonl", "entry 2 of the ledger .* it was edited"),
        ("release.json", "its checksum does not match its content"),
    ):
        shutil.copytree(strangers[0], tmp_path, dirs_exist_ok=True)
        text = (tmp_path / name).read_text()
        assert '"epsilon": 0.4' in text
        (tmp_path / name).write_text(text.replace('"epsilon": 0.4', '"epsilon": 0.1', 1))
        with pytest.raises(ValueError, match=words):
            (PrivacyLedger if "ledger" in name else Release.load)(tmp_path / name)


def test_the_losses_of_a_known_type_are_computed_again(tmp_path):
    for event in (
        DirichletEvent(50.0, 0.1, (2, 2), (0.03,)),
        mechanism("gaussian:epsilon=1").describe(states=3, seeding="seed"),
    ):
        good = event.to_json()
        (row,) = good["losses"][0]["rows"]
        name = "h" if "h" in row else "sigma"
        rounded = {**good, "losses": [{"rows": [{**row, name: row[name] * (1 + 1e-12)}], "matrices": 1}]}
        assert Event.from_json(rounded) == event
        for losses in (
            [],
            [{"rows": [{**row, name: row[name] * 1.001}], "matrices": 1}],
            [{"rows": [{**row, "number": 3}], "matrices": 1}],
            [{"rows": [row], "matrices": 2}],
        ):
            with pytest.raises(ValueError, match="are not its own"):
                Event.from_json({**good, "losses": losses})
    lacking = [{"rows": [{"kind": "gaussian", "number": 1}], "matrices": 1}]
    fieldless = {name: value for name, value in good.items() if name != "states"}
    header = {"format": journal.FORMAT, "version": journal.VERSION, "budget": None, "rows": "sequential", "h": 0.03}
    path = tmp_path / "forged.jsonl"  # with right digests
    for event, words in (
        ({**good, "losses": []}, "the losses that are stored with a gaussian event are not its own"),
        ({**good, "losses": lacking}, "a gaussian loss has no field 'sigma'"),
        ({**good, "losses": None}, "losses are a list .*, got None"),
        (fieldless, "a gaussian event has no field 'states'"),
    ):
        journal.begin(path, [header, {"label": "", "times": 1, "event": event}])
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
        ({"kind": "posterior", "number": 1, "prior": 0, "rows": 2}, "prior"),
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
    event = made.event(data, seeding="seed")
    key = digest(json.dumps(event.stream_key(), sort_keys=True).encode())
    assert (key, digest(made.release(data, 7).log_matrix.round(9).tobytes())) == STREAMS[spec]


def test_claims_do_not_move_a_seeded_draw():
    made, ledger = DirichletMechanism(k=7.0, floor=0.05), PrivacyLedger()
    first = made.release(MATRICES, 3)
    for claims in ({"support": None}, {"h": 0.1}, {"entries": "any"}, {"h": 0.1, "entries": "any"}):
        assert_array_equal(made.release(MATRICES, 3, **claims).log_matrix, first.log_matrix)
    one, two = (ledger.release(made, MATRICES, 3, h=h) for h in (0.01, 0.1))
    assert_array_equal(one.log_matrix, two.log_matrix)
    assert one.event != two.event and len(ledger.entries) == 2  # but another claim is another entry


def log_odds(unknown: np.ndarray, ks: np.ndarray) -> np.ndarray:
    """Return what a row of two entries is released as, given the random numbers behind it.

    NumPy draws a Gamma variate from one normal number (Marsaglia and Tsang), and the mechanism adds one exponential.
    """
    p, *numbers = unknown

    def log_gamma(shape: np.ndarray, normal: float, exponential: float) -> np.ndarray:
        b = shape + 1.0 - 1.0 / 3.0
        return np.log(b) + 3.0 * np.log(np.maximum(1.0 + normal / np.sqrt(9.0 * b), 1e-9)) - exponential / shape

    return log_gamma(ks * p, *numbers[0::2]) - log_gamma(ks * (1.0 - p), *numbers[1::2])


def solve_for_the_truth(releases: list[Release]) -> tuple[float, float]:
    """Guess the true entry, and how well the guess explains the releases; the seed is not known."""
    seen = np.array([one.log_matrix[0, 0] - one.log_matrix[0, 1] for one in releases])
    rng, best = np.random.default_rng(0), (0.0, np.inf)
    box = [[0.01, -6, -6, 0, 0], [0.99, 6, 6, 20, 20]]
    for _ in range(30):
        start = [rng.uniform(0.1, 0.9), *rng.normal(size=2), *rng.exponential(size=2)]
        tolerances = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
        found = least_squares(lambda unknown: log_odds(unknown, KS) - seen, start, bounds=box, **tolerances)
        best = min(best, (float(found.x[0]), float(found.cost)), key=lambda pair: pair[1])
        if best[1] < 1e-24:
            break
    return best


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_releases_at_several_k_do_not_give_the_true_row_away(seed):
    aligned = [aligned_draw(DirichletMechanism(k), MATRIX, seed) for k in KS]
    guess, misfit = solve_for_the_truth(aligned)
    assert guess == pytest.approx(TRUTH, abs=1e-10) and misfit < 1e-20  # the attack works where streams align
    ledger = PrivacyLedger()
    for releases in (
        [DirichletMechanism(k).release(MATRIX, seed) for k in KS],
        [DirichletMechanism(k).release(MATRIX, np.random.default_rng(seed)) for k in KS],  # copies of one generator
        [ledger.release(DirichletMechanism(k), MATRIX, seed) for k in KS],
        [EnsembleEnv(model(), privacy=DirichletMechanism(k), release_seed=seed).release for k in KS],
    ):
        guess, misfit = solve_for_the_truth(releases)
        assert misfit > 1e-4 and abs(guess - TRUTH) > 1e-3


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
        "generator, k": noise(matrix, 2.2e4, rng=np.random.default_rng(7)),
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


def test_redraws_of_one_seed_are_draws_of_their_own():
    env = EnsembleEnv(model(), privacy=DirichletMechanism(2e4), redraw="episode", release_seed=5)
    seen = []
    for _ in range(4):
        env.reset()
        seen.append(env.release.log_matrix[0, 0])
    later = [
        EnsembleEnv(model(), privacy=DirichletMechanism(2e4), release_seed=seed).release.log_matrix[0, 0]
        for seed in (6, 7, 8)
    ]
    assert len({*seen, *later}) == 7


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
