"""Tests of `release`."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile

import numpy as np
import pytest
from helpers import random_chain
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dp_ensemble_env.privacy import DirichletEvent, DirichletMechanism, Release
from dp_ensemble_env.privacy.mechanisms.base import Disclosure

EVENT = DirichletEvent(5.0, 0.0, (2, 2), seeding="seed")
HALF = np.full((2, 2), np.log(0.5))


#: Two times; rows of one, two and three successors.
@pytest.fixture
def release():
    return DirichletMechanism(0.5, floor=0.01).release(random_chain(np.random.default_rng(0), 6), rng=0)


# ------------------------------------------------------------------ what it says
def test_seeding_is_recorded_and_said():
    default = np.array([[0.5, 0.5], [0.25, 0.75]])
    noise = DirichletMechanism(5.0)
    seeded = noise.release(default, rng=4)
    assert_array_equal(seeded.matrix, noise.release(default, rng=4).matrix)
    assert seeded.seeding == "seed" and "not private" in str(seeded)
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


def test_rare_entries_are_not_zero():
    rare = Release(np.array([[0.0, -1e4], [0.0, -np.inf]]), EVENT)
    assert rare.matrix[0, 1] == np.finfo(float).tiny and rare.matrix[1, 1] == 0.0


# ------------------------------------------------------------------ files
def test_edited_and_foreign_files_are_refused(tmp_path):
    """Whatever is edited, a release remains that could have been drawn; only its checksum tells."""
    content = DirichletMechanism(k=50.0).release([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.4, 0.6]]).to_json()
    values, support = content["log_values"], content["support"]
    for edit, words in (
        ({"k": 500.0}, "checksum"),
        ({"event": {**content["event"], "k": 500.0}}, "checksum"),
        ({"log_values": [values[1], values[0], *values[2:]]}, "checksum"),  # the rows still sum to one
        ({"support": [support[0], 2, *support[2:]]}, "checksum"),  # from state 0 to 0 and 2 instead of 0 and 1
        ({"version": 2}, "not a dp-ensemble-release file of version 3"),
        ({"format": "other"}, "not a dp-ensemble-release file"),
    ):
        with pytest.raises(ValueError, match=words):
            Release.from_json({**content, **edit})
    for text in ("[]", "{}", "not json"):
        (tmp_path / "release.json").write_text(text)
        with pytest.raises(ValueError, match="cannot load the release"):
            Release.load(tmp_path / "release.json")
    with pytest.raises(FileNotFoundError):
        Release.load(tmp_path / "nowhere.json")
    with pytest.raises(ValueError, match=".json or .npz"):
        Release.from_json(content).save(tmp_path / "release.pkl")


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_files_keep_every_bit_and_truncated_ones_are_refused(release, tmp_path, ending):
    path = release.save(tmp_path / "deep" / f"release.{ending}")
    loaded = Release.load(path)
    assert_array_equal(loaded.log_matrix, release.log_matrix)
    assert loaded.event == release.event and loaded.digest == release.digest
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
    assert loaded.event == original.event


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


def test_file_holds_neither_the_seed_nor_the_true_matrix(tmp_path):
    default = np.array([[0.123456789, 0.876543211], [0.5, 0.5]])
    path = DirichletMechanism(5.0).release(default, rng=987654321).save(tmp_path / "release.json")
    assert "987654321" not in path.read_text() and "0.1234567" not in path.read_text()
