"""Losses are data: a second process composes what a stranger's mechanism wrote, without the stranger's code."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import (
    DirichletEvent,
    Event,
    Fleet,
    GaussianLoss,
    LaplaceLoss,
    Losses,
    NoBound,
    PosteriorLoss,
    PrivacyLedger,
    PureLoss,
    Release,
    RenyiLoss,
    RowLoss,
    journal,
    mechanism,
    total_epsilon,
)
from dp_ensemble_env.privacy.accounting.calibrate import ORDERS
from dp_ensemble_env.privacy.mechanisms.base import StoredEvent, make_permit

ROOT = str(Path(__file__).resolve().parents[2])
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}
DEFAULT = np.array([[0.9, 0.1], [0.2, 0.8]])
FAMILY = (
    NoBound(),
    PureLoss(0.5),
    GaussianLoss(2.5),
    LaplaceLoss(0.75),
    RowLoss(50.0, 0.05, 0.03, "any"),
    PosteriorLoss(300.0, 4),
    RenyiLoss((1.5, 2.0, 16.0), (0.1, 0.2, 2.0)),
)
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
    done = subprocess.run(
        [sys.executable, folder / "blur.py", str(folder)], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.replace("'", '"'))


def test_a_process_without_the_code_composes_the_entry(strangers):
    folder, (spent, parallel, two, _) = strangers
    assert "blur" not in Event._types
    ledger = PrivacyLedger(folder / "ledger.jsonl")
    assert [label for label, _, _ in ledger.entries] == ["stranger", ""] and ledger.releases == 2
    assert (ledger.spent(1e-6), ledger.spent(1e-6, rows="parallel"), ledger.spent(1e-6, rows=2)) == (
        spent,
        parallel,
        two,
    )
    assert 1.0 < parallel < two == spent < 9.0 and ledger.remaining() == 9.0 - spent
    line = ledger.statement()
    assert "1 release by the blur mechanism" in line and "unknown here: composed from the losses" in line
    with pytest.raises(ValueError, match="fixes its own adjacency"):
        ledger.entries[0][1].under(0.03)


def test_what_was_read_is_written_again_unchanged(strangers, tmp_path):
    folder, (spent, _, _, digest) = strangers
    ledger = PrivacyLedger(folder / "ledger.jsonl")
    copy = PrivacyLedger(ledger.save(tmp_path / "copy.jsonl"))
    handed = PrivacyLedger.from_json(ledger.to_json())
    for other in (copy, handed):
        assert other.spent(1e-6) == spent and other.charges == ledger.charges
    adopted = PrivacyLedger()
    for label, event, _ in ledger.entries:
        adopted.adopt(label, event, label)
    assert adopted.spent(1e-6) == spent
    for name in ("release.json", "release.npz"):
        release = Release.load(folder / name)
        assert release.digest == digest and ledger.knows(release)
        assert isinstance(release.event, StoredEvent) and release.event.type == "blur" and release.seeding == "seed"
        assert "width=5.0" in repr(release)
        again = Release.load(release.save(tmp_path / name))
        assert again.digest == digest and again.event == release.event
        alone = PrivacyLedger().record(release)
        assert alone.spent(1e-6) == total_epsilon(1e-6, release.event.losses().counted("sequential")) < spent


def test_an_environment_takes_the_strangers_release_but_cannot_draw_it(strangers):
    folder, _ = strangers
    release = Release.load(folder / "release.json")
    model = EnsembleModel(DEFAULT, np.arange(2.0), -np.ones((3, 2)), 1.0)
    ledger = PrivacyLedger(folder / "ledger.jsonl")
    env = EnsembleEnv(model, privacy=release, ledger=ledger, reward="dollars")
    assert env.release.digest == release.digest and ledger.releases == 2  # it was paid for already
    with pytest.raises(ValueError, match="the permit is for"):
        mechanism("dirichlet:k=5").draw(DEFAULT, make_permit(release.event, 0, DEFAULT))


def edited(line: str, old: str, new: str) -> str:
    assert old in line
    return line.replace(old, new)


def test_an_edited_loss_is_refused(strangers, tmp_path):
    folder, _ = strangers
    lines = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "ledger.jsonl"
    path.write_text(lines[0] + edited(lines[1], '"epsilon": 0.4', '"epsilon": 0.1') + "".join(lines[2:]))
    (tmp_path / "ledger.jsonl.head").write_bytes((folder / "ledger.jsonl.head").read_bytes())
    with pytest.raises(ValueError, match="entry 2 of the ledger .* it was edited"):
        PrivacyLedger(path)
    text = (folder / "release.json").read_text()
    (tmp_path / "release.json").write_text(edited(text, '"epsilon": 0.4', '"epsilon": 0.1'))
    with pytest.raises(ValueError, match="its checksum does not match its content"):
        Release.load(tmp_path / "release.json")


def forged(path: Path, entry: dict) -> Path:
    """Write a ledger whose digests are right whatever the entry holds."""
    header = {"format": journal.FORMAT, "version": journal.VERSION, "budget": None, "rows": "sequential", "h": 0.03}
    journal.replace(path, [header, {"label": "", "times": 1, "event": entry}])
    return path


def test_the_losses_of_a_known_type_are_computed_again(tmp_path):
    for event in (DirichletEvent(50.0, 0.1, (2, 2), (0.03,)), mechanism("gaussian:epsilon=1").describe(states=3)):
        good = event.to_json()
        assert PrivacyLedger(forged(tmp_path / "good.jsonl", good)).charges == {event: 1}
        (row,) = good["losses"][0]["rows"]
        name = "h" if "h" in row else "sigma"
        rounded = {**good, "losses": [{"rows": [{**row, name: row[name] * (1 + 1e-12)}], "matrices": 1}]}
        assert PrivacyLedger(forged(tmp_path / "rounded.jsonl", rounded)).charges == {event: 1}
        for wrong in (
            [],
            [{"rows": [{**row, name: row[name] * 1.001}], "matrices": 1}],
            [{"rows": [{**row, "number": 3}], "matrices": 1}],
            [{"rows": [row], "matrices": 2}],
        ):
            with pytest.raises(ValueError, match="entry 2 of the ledger .* is damaged .*are not its own"):
                PrivacyLedger(forged(tmp_path / "wrong.jsonl", {**good, "losses": wrong}))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (None, "losses are a list"),
        ([{"kind": "magic", "number": 1}], "kind of loss"),
        ([{"kind": "pure", "number": 1, "epsilon": -1.0}], "epsilon"),
        ([{"kind": "pure", "number": 0, "epsilon": 1.0}], "number"),
        ([{"kind": "pure", "number": 1, "epsilon": 1.0}], "matrices"),
        ([{"kind": "gaussian", "number": 1}], "sigma"),
        ([{"kind": "renyi", "number": 1, "orders": [2, 1.5], "divergences": [0, 1]}], "orders must"),
        ([{"kind": "renyi", "number": 1, "orders": [2], "divergences": [-1]}], "divergences must"),
        ([{"kind": "posterior", "number": 1, "prior": 0, "rows": 2}], "prior"),
        ([{"kind": "dirichlet-row", "number": 1, "k": 5, "omega": 0.1, "h": 3}], "h must"),
    ],
)
def test_losses_outside_the_family_are_refused(tmp_path, rows, words):
    losses = rows if rows is None else [{"rows": rows, "matrices": 1 if words != "matrices" else 0}]
    path = forged(tmp_path / "ledger.jsonl", {"type": "unheard-of", "seeding": "seed", "losses": losses})
    with pytest.raises(ValueError, match=f"entry 2 of the ledger .* is damaged .*{words}"):
        PrivacyLedger(path)


def test_every_loss_survives_json():
    for loss in FAMILY:
        made = Losses.of({loss: 3}, {PureLoss(0.25): 1, loss: 2}, {loss: 3})
        assert Losses.from_json(json.loads(json.dumps(made.to_json()))) == made
        assert made.counted("sequential") == [(loss, 8), (PureLoss(0.25), 1)]
        worse = tuple(loss.renyi(ORDERS)) > tuple(PureLoss(0.25).renyi(ORDERS))  # a unit pays for the worst rows
        assert dict(made.counted("parallel")) == ({loss: 3} if worse else {loss: 2, PureLoss(0.25): 1})
        assert dict(made.counted(2)) == ({loss: 6} if worse else {loss: 5, PureLoss(0.25): 1})


def test_a_table_of_renyi_divergences_bounds_what_it_was_made_of():
    orders = np.unique(np.concatenate([np.linspace(1.05, 40.0, 400), np.geomspace(1.001, 200.0, 400)]))
    exact = GaussianLoss(3.0)
    table = RenyiLoss(tuple(orders), tuple(exact.renyi(orders)))
    asked = np.array([1.2, 7.0, 33.3])
    assert (table.renyi(asked) >= exact.renyi(asked)).all() and table.renyi(np.array([201.0]))[0] == np.inf
    tight = total_epsilon(1e-6, [(exact, 1)])
    assert tight < total_epsilon(1e-6, [(table, 1)]) < 1.2 * tight


# ------------------------------------------------------------------ streams
#: Hashes of what is mixed into a seed, and of the seeded releases. They must never change.
STREAMS = {
    "dirichlet:k=50,floor=0.05": ("f6fbb4cb2b3c1c45", "77f3766a13c101a9"),
    "gaussian:epsilon=60": ("7d0c6cbec4702212", "6bf7bf398b7c1aa1"),
    "laplace:epsilon=60": ("61ccf2feb55d6a7e", "b60c344a7caa0835"),
    "posterior:epsilon=400": ("2adf907b2770ea34", "cc055bfcd6062de4"),
}


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


# ------------------------------------------------------------------ h in a spec
def test_h_is_a_term_of_the_spec():
    plain, stated = mechanism("dirichlet:k=50,floor=0.05"), mechanism("dirichlet:k=50,floor=0.05,h=0.01")
    assert plain.h is None and plain.spec == "dirichlet:k=50,floor=0.05"
    assert stated.h == 0.01 and stated.spec == "dirichlet:k=50,floor=0.05,h=0.01" and mechanism(stated.spec) == stated
    assert plain.event(DEFAULT).h == () and stated.event(DEFAULT).h == (0.01,)
    assert stated.event(DEFAULT, h=0.02).h == (0.02,)
    np.testing.assert_array_equal(plain.release(DEFAULT, 3).log_matrix, stated.release(DEFAULT, 3).log_matrix)
    ledger, other = PrivacyLedger(h=0.05), PrivacyLedger(h=0.01)
    release = ledger.release(stated, DEFAULT, 3)
    assert release.event.h == (0.01,) and other.release(plain, DEFAULT, 3).event == release.event
    assert ledger.spent(1e-6) == other.spent(1e-6) < PrivacyLedger(h=0.05).record(plain.event(DEFAULT)).spent(1e-6)
    np.testing.assert_array_equal(release.log_matrix, plain.release(DEFAULT, 3).log_matrix)
    for wrong in ("3", "-0.1", "nan", "wide"):
        with pytest.raises(ValueError, match="^h must"):
            mechanism(f"dirichlet:k=50,h={wrong}")


@pytest.mark.parametrize("name", ["dirichlet ", "Dirichlet", " GAUSSIAN"])
def test_a_known_type_cannot_be_disguised(name):
    """Spelt differently it would be read with whatever losses are stored."""
    content = mechanism("dirichlet:k=50,floor=0.05,h=0.03").event(np.full((3, 3), 1 / 3)).to_json()
    with pytest.raises(ValueError, match=f"is {name.strip().lower()!r}"):
        Event.from_json({**content, "type": name, "losses": []})
