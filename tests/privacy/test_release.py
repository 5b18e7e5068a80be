"""Tests of `release`."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import zipfile

import numpy as np
import pytest
from helpers import random_chain
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dp_ensemble_env.privacy import DirichletEvent, DirichletMechanism, Fleet, PrivacyLedger, Release, mechanism
from dp_ensemble_env.privacy import release as release_module
from dp_ensemble_env.privacy.mechanisms.base import Disclosure
from dp_ensemble_env.privacy.mechanisms.laplace import LaplaceEvent
from dp_ensemble_env.privacy.release import _digest

EVENT = DirichletEvent(5.0, 0.0, (2, 2), seeding="seed")
HALF = np.full((2, 2), np.log(0.5))
#: Two times; rows of one, two and three successors.
MATRICES = np.array(
    [[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]], [[0.0, 0.4, 0.6], [0.6, 0.2, 0.2], [0.5, 0.0, 0.5]]]
)


@pytest.fixture
def release():
    return DirichletMechanism(0.5, floor=0.01).release(random_chain(np.random.default_rng(0), 6), rng=0)


# ------------------------------------------------------------------ what it says
def test_a_release_that_fixes_its_adjacency_takes_no_other():
    event = LaplaceEvent(epsilon=1.0, states=3, seeding="seed")
    assert event.under() is event
    for other in ({"h": 0.1}, {"entries": "any"}):
        with pytest.raises(ValueError, match="fixes its own adjacency"):
            event.under(**other)


def test_seeding_is_recorded_and_said():
    default = np.array([[0.5, 0.5], [0.25, 0.75]])
    noise = DirichletMechanism(5.0)
    seeded = noise.release(default, rng=4)
    assert_array_equal(seeded.matrix, noise.release(default, rng=4).matrix)
    assert seeded.seeding == "seed" and "not private" in str(seeded)
    assert noise.release(default, rng=np.random.default_rng(4)).seeding == "generator"
    fresh = noise.release(default)
    assert fresh.seeding == "os-entropy" and not fresh.reproducible and "not private" not in str(fresh)
    assert not np.array_equal(fresh.matrix, noise.release(default).matrix)


@pytest.mark.parametrize(
    ("log_matrix", "event", "words"),
    [
        (np.zeros((2, 3)), EVENT, "matrix"), (np.zeros((2, 2)), EVENT, "sums to 2"),
        (np.full((2, 2), -0.1), EVENT, "log_matrix"), (np.array([[np.nan, 0.0]] * 2), EVENT, "no NaN"),
        (np.array([[0.1, -3.0], [-0.7, -0.7]]), EVENT, "nothing above zero"),
        (HALF[0], EVENT, "of shape"), (HALF[None, None, None], EVENT, "of shape"),
        (np.empty((2, 0)), EVENT, "of shape"),
        (HALF, 50.0, "event must describe the draw"), (HALF, Disclosure(), "event must describe the draw"),
    ],
)  # fmt: skip
def test_a_release_holds_logarithms_of_behaviour_and_its_draw(log_matrix, event, words):
    with pytest.raises(ValueError, match=words):
        Release(log_matrix, event)


def test_rare_entries_are_not_zero_and_one_successor_is_no_draw():
    rare = Release(np.array([[0.0, -1e4], [0.0, -np.inf]]), EVENT)
    assert rare.matrix[0, 1] == np.finfo(float).tiny and rare.matrix[1, 1] == 0.0 and rare.rows == 1
    for shape in ((2, 2), (1, 2, 2), (1, 1, 2, 2)):
        assert re.search(r"states</t[hd]>\s*<td[^>]*>2<", Release(HALF.reshape(shape), EVENT)._repr_html_())


# ------------------------------------------------------------------ files
@pytest.mark.parametrize("ending", ["json", "npz"])
def test_files_keep_every_bit_and_truncated_ones_are_refused(release, tmp_path, ending):
    path = release.save(tmp_path / "deep" / f"release.{ending}")
    loaded = Release.load(path)
    assert_array_equal(loaded.log_matrix, release.log_matrix)
    assert (loaded.k, loaded.floor, loaded.seeding) == (0.5, 0.01, "seed") and loaded.digest == release.digest
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # no temporary file is left
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    content = path.read_bytes()
    for cut in (0.0, 0.3, 0.97):
        path.write_bytes(content[: int(cut * len(content))])
        with pytest.raises(ValueError, match="cannot load the release"):
            Release.load(path)


@given(position=st.integers(0, 10_000), value=st.integers(0, 255), ending=st.sampled_from(["json", "npz"]))
def test_one_changed_byte_is_harmless_or_noticed(tmp_path_factory, position, value, ending):
    original = DirichletMechanism(5.0).release([[0.5, 0.5], [0.1, 0.9]], rng=0)
    path = original.save(tmp_path_factory.mktemp("r") / f"release.{ending}")
    content = bytearray(path.read_bytes())
    content[position % len(content)] = value
    path.write_bytes(bytes(content))
    try:
        loaded = Release.load(path)
    except ValueError:
        return
    assert_array_equal(loaded.log_matrix, original.log_matrix)
    assert (loaded.k, loaded.floor) == (original.k, original.floor)


@pytest.mark.parametrize("part", ["header", "event", "values", "support"])
def test_edited_number_is_noticed(part, tmp_path):
    """Whatever is edited, a release remains that could have been drawn; only its checksum tells."""
    release = DirichletMechanism(k=50.0).release([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.4, 0.6]])
    path = release.save(tmp_path / "release.json")
    content = json.loads(path.read_text())
    if part == "header":
        content["k"] = 500.0
    elif part == "event":
        content["event"]["k"] = 500.0
    elif part == "values":  # the rows still sum to one
        content["log_values"][:2] = content["log_values"][1::-1]
    else:  # from state 0 to 0 and 2 instead of 0 and 1
        content["support"][1] = 2
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="checksum"):
        Release.load(path)
    edited = {name: content.get(name) for name in release._content()[0]}
    again = _digest(edited, np.array(content["support"]), np.array(content["log_values"]))
    assert (again == release.digest) == (part == "header")  # what is not in a header of its kind does not count


@pytest.mark.parametrize("ending", [".json", ".npz"])
def test_a_file_and_its_matrix_are_as_large_as_the_limit_and_no_larger(tmp_path, monkeypatch, ending):
    """A small file may unpack to a large matrix: eight bytes for each number."""
    with np.errstate(divide="ignore"):
        release = Release(np.log(np.eye(100)), DirichletEvent(7.0, 0.0, (1,) * 100, seeding="seed"))
    path = release.save(tmp_path / f"release{ending}")
    small = DirichletMechanism(k=50.0).release(np.full((3, 3), 1 / 3), rng=0).save(tmp_path / "small.json")
    for file, most, words in ((path, 80_000, "its matrix"), (small, small.stat().st_size, r"the file .*limits=\d")):
        monkeypatch.setattr(release_module, "LARGEST_RELEASE", most)
        whole = Release.load(file)
        monkeypatch.setattr(release_module, "LARGEST_RELEASE", most - 1)
        with pytest.raises(ValueError, match=f"cannot load the release .*{words}"):
            Release.load(file)
        assert Release.load(file, limits=1.5).digest == whole.digest


def test_files_that_declare_too_much_are_refused_unread(release, tmp_path):
    # The header of an array says a terabyte; the archive is small.
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as archive:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (2**37,)})
        archive.writestr("log_values.npy", head.getvalue())
    content = json.loads(release.save(tmp_path / "wide.json").read_text())
    (tmp_path / "wide.json").write_text(json.dumps({**content, "shape": [10**6, 10**6]}))
    np.savez(tmp_path / "evil.npz", header=np.array({"evil": print}, dtype=object), support=[0], log_values=[0.0])
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    for name, words in (
        ("bomb.npz", r"log_values.npy has 1,099,511,627,776 bytes where 1,000,000,000 are accepted"),
        ("wide.json", r"its matrix has 8,000,000,000,000 bytes"),
        ("evil.npz", "cannot load"),  # pickled
        ("pipe.npz", "is a fifo"),
        ("loop.json", "leads back to itself"),
    ):
        with pytest.raises(ValueError, match=words):
            Release.load(tmp_path / name)


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"format": "other"}', "not json", '{"format": "dp-ensemble-release"}']
)
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "release.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="cannot load the release"):
        Release.load(path)
    with pytest.raises(FileNotFoundError):
        Release.load(tmp_path / "nowhere.json")


@pytest.mark.parametrize("matrices", [MATRICES[0], MATRICES])
def test_files_of_other_versions_are_refused(matrices):
    release = DirichletMechanism(k=7.0, floor=0.05).release(matrices, 3)
    read = Release.from_json(release.to_json())
    assert read.event == release.event and read.digest == release.digest
    assert_array_equal(read.log_matrix, release.log_matrix)
    for wrong in (0, 1, 2, 4):
        with pytest.raises(ValueError, match="not a dp-ensemble-release file of version 3"):
            Release.from_json({**release.to_json(), "version": wrong})


def test_file_holds_neither_the_seed_nor_the_true_matrix(tmp_path):
    default = np.array([[0.123456789, 0.876543211], [0.5, 0.5]])
    path = DirichletMechanism(5.0).release(default, rng=987654321).save(tmp_path / "release.json")
    assert "987654321" not in path.read_text() and "0.1234567" not in path.read_text()


def test_bad_targets_are_refused_and_the_old_file_survives(release, tmp_path):
    with pytest.raises(ValueError, match=".json or .npz"):
        release.save(tmp_path / "release.pkl")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        release.save(tmp_path / "folder.json")
    blocker = tmp_path / "file"
    blocker.write_text("here first")
    with pytest.raises(ValueError, match="cannot write"):
        release.save(blocker / "release.json")
    assert blocker.read_text() == "here first"


def test_a_release_of_four_axes_survives_its_file_and_its_ledger(tmp_path):
    """Two times, two contexts, three states, four decisions; two rows have one possible decision."""
    support = np.ones((2, 2, 3, 4), dtype=bool)
    support[0, :, 0, 1:] = support[1, 1, 2, 2:] = False
    guess = np.where(support, np.random.default_rng(0).dirichlet(np.ones(4), support.shape[:-1]), 0.0)
    terms = {"guess": guess / guess.sum(axis=-1, keepdims=True), "support": support}
    fleet = Fleet(np.random.default_rng(1).integers(0, 9, (60, *support.shape)))
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", budget=(1.0, 1e-6))
    release = ledger.release(mechanism("gaussian:epsilon=1"), fleet, rng=3, **terms)
    assert PrivacyLedger(tmp_path / "ledger.jsonl").spent(1e-6) == pytest.approx(1.0, abs=1e-6)  # whatever the rows
    for ending in (".json", ".npz"):
        again = Release.load(release.save(tmp_path / f"release{ending}"))
        assert_array_equal(again.log_matrix, release.log_matrix)
        assert again.event == release.event and ledger.knows(again)
    line = str(ledger.statement(1e-6))
    assert "its decisions in all 10 rows are bounded together" in line and "declared support is public" in line
