"""Tests of `release`."""

from __future__ import annotations

import io
import itertools
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

from dp_ensemble_env.privacy import Fleet, PrivacyLedger, mechanism
from dp_ensemble_env.privacy import release as release_module
from dp_ensemble_env.privacy.mechanisms.base import Disclosure
from dp_ensemble_env.privacy.mechanisms.dirichlet import (
    DirichletEvent,
    DirichletMechanism,
)
from dp_ensemble_env.privacy.mechanisms.laplace import LaplaceEvent
from dp_ensemble_env.privacy.release import Release, _digest


@pytest.fixture
def release():
    return DirichletMechanism(0.5, floor=0.01).release(random_chain(np.random.default_rng(0), 6), rng=0)


EVENT = DirichletEvent(5.0, 0.0, (2, 2))

#: Two times; rows of one, two and three successors.
MATRICES = np.array(
    [[[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]], [[0.0, 0.4, 0.6], [0.6, 0.2, 0.2], [0.5, 0.0, 0.5]]]
)

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


def test_a_release_that_fixes_its_adjacency_takes_no_other():
    event = LaplaceEvent(epsilon=1.0, states=3, seeding="seed")
    assert event.under() is event
    for other in ({"h": 0.1}, {"entries": "any"}, {"h": 0.1, "entries": "any"}):
        with pytest.raises(ValueError, match="fixes its own adjacency"):
            event.under(**other)


def test_the_largest_release_is_the_limit_and_no_more(tmp_path, monkeypatch):
    release = DirichletMechanism(k=50.0).release(np.full((3, 3), 1 / 3), rng=0)
    path = release.save(tmp_path / "release.json")
    base = "dp_ensemble_env.privacy.release.LARGEST_RELEASE"
    monkeypatch.setattr(base, path.stat().st_size)
    assert Release.load(path).digest == release.digest
    monkeypatch.setattr(base, path.stat().st_size - 1)
    with pytest.raises(ValueError, match="cannot load the release"):
        Release.load(path)
    assert Release.load(path, limits=1.5).digest == release.digest


def test_the_card_of_a_release_says_how_many_states_it_has():
    release = DirichletMechanism(50.0).release(np.full((4, 4), 0.25), 0)
    assert re.search(r"states</t[hd]>\s*<td[^>]*>4<", release._repr_html_())


def test_seeding_is_recorded_and_said():
    default = np.array([[0.5, 0.5], [0.25, 0.75]])
    mechanism = DirichletMechanism(5.0)
    seeded, again = mechanism.release(default, rng=4), mechanism.release(default, rng=4)
    assert_array_equal(seeded.matrix, again.matrix)
    assert seeded.seeding == "seed" and "not private" in str(seeded)
    assert mechanism.release(default, rng=np.random.default_rng(4)).seeding == "generator"
    fresh = mechanism.release(default)
    assert fresh.seeding == "os-entropy" and not fresh.reproducible and "not private" not in str(fresh)
    assert not np.array_equal(fresh.matrix, mechanism.release(default).matrix)


@pytest.mark.parametrize("ending", ["json", "npz"])
def test_files_keep_every_bit(release, tmp_path, ending):
    path = release.save(tmp_path / "deep" / f"release.{ending}")
    loaded = Release.load(path)
    assert_array_equal(loaded.log_matrix, release.log_matrix)
    assert (loaded.k, loaded.floor, loaded.seeding) == (0.5, 0.01, "seed")
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # no temporary file is left


@pytest.mark.parametrize("ending", ["json", "npz"])
@pytest.mark.parametrize("cut", [0.0, 0.3, 0.97])
def test_truncated_files_are_refused(release, tmp_path, ending, cut):
    path = release.save(tmp_path / f"release.{ending}")
    content = path.read_bytes()
    path.write_bytes(content[: int(cut * len(content))])
    with pytest.raises(ValueError, match="cannot load the release"):
        Release.load(path)


def test_files_that_declare_too_much_are_refused_unread(release, tmp_path, monkeypatch):
    for ending in ("json", "npz"):
        path = release.save(tmp_path / f"release.{ending}")
        with monkeypatch.context() as patch:
            patch.setattr("dp_ensemble_env.privacy.release.LARGEST_RELEASE", 100)
            with pytest.raises(
                ValueError, match=r"cannot load the release .* bytes where 100 are accepted; .*limits=\d"
            ):
                Release.load(path)
            assert_array_equal(Release.load(path, limits=1000).log_matrix, release.log_matrix)
    # The header of an array says a terabyte; the archive is small.
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as archive:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (2**37,)})
        archive.writestr("log_values.npy", head.getvalue())
    with pytest.raises(
        ValueError, match=r"log_values.npy has 1,099,511,627,776 bytes where 1,000,000,000 are accepted"
    ):
        Release.load(tmp_path / "bomb.npz")
    content = json.loads(release.save(tmp_path / "wide.json").read_text())
    (tmp_path / "wide.json").write_text(json.dumps({**content, "shape": [10**6, 10**6]}))
    with pytest.raises(ValueError, match=r"its matrix has 8,000,000,000,000 bytes"):
        Release.load(tmp_path / "wide.json")


def test_what_is_no_file_is_refused_unopened(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(ValueError, match="is a fifo"):
        Release.load(tmp_path / "pipe.npz")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    with pytest.raises(ValueError, match="leads back to itself"):
        Release.load(tmp_path / "loop.json")


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


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"format": "other"}', "not json", '{"format": "dp-ensemble-release"}']
)
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "release.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="cannot load the release"):
        Release.load(path)


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
    header, flat, values = release._content()
    edited = {name: content.get(name) for name in header}
    again = _digest(edited, np.array(content["support"]), np.array(content["log_values"]))
    assert (again == release.digest) == (part == "header")  # what is not in a header of its kind does not count


def test_pickled_arrays_are_never_loaded(tmp_path):
    path = tmp_path / "release.npz"
    np.savez(path, header=np.array({"evil": print}, dtype=object), support=[0], log_values=[0.0])
    with pytest.raises(ValueError, match="cannot load"):
        Release.load(path)


def test_file_holds_neither_the_seed_nor_the_true_matrix(tmp_path):
    default = np.array([[0.123456789, 0.876543211], [0.5, 0.5]])
    path = DirichletMechanism(5.0).release(default, rng=987654321).save(tmp_path / "release.json")
    assert "987654321" not in path.read_text() and "0.1234567" not in path.read_text()


def test_bad_targets_are_refused_and_the_old_file_survives(release, tmp_path):
    with pytest.raises(ValueError, match=".json or .npz"):
        release.save(tmp_path / "release.pkl")
    with pytest.raises(ValueError, match="is a folder"):
        (tmp_path / "folder.json").mkdir()
        release.save(tmp_path / "folder.json")
    blocker = tmp_path / "file"
    blocker.write_text("here first")
    with pytest.raises(ValueError, match="cannot write"):
        release.save(blocker / "release.json")
    assert blocker.read_text() == "here first"
    with pytest.raises(FileNotFoundError):
        Release.load(tmp_path / "nowhere.json")


def test_written_files_have_ordinary_permissions(release, tmp_path):
    path = release.save(tmp_path / "release.json")
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.zeros((2, 3)), EVENT), "matrix"),
        ((np.full((2, 2), np.nan), EVENT), "NaN"),
        ((np.zeros((2, 2)), EVENT), "sums to 2"),
        ((np.log(np.full((2, 2), 0.5)), 50.0), "event must describe the draw"),
        ((np.log(np.full((2, 2), 0.5)), Disclosure()), "event must describe the draw"),
    ],
)
def test_release_checks_itself(arguments, words):
    with pytest.raises(ValueError, match=words):
        Release(*arguments)


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
    line = str(ledger.statement(1e-6))
    assert "its decisions in all 10 rows are bounded together" in line and "declared support is public" in line
