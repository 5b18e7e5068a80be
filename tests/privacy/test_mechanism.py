"""The Dirichlet mechanism: its distribution, its floor, its files."""

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
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from dp_ensemble_env.privacy import mechanism as made
from dp_ensemble_env.privacy.mechanisms.base import Disclosure
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletEvent, DirichletMechanism, log_gamma_variates
from dp_ensemble_env.privacy.release import Release, _digest

EVENT = DirichletEvent(5.0, 0.0, (2, 2))
ROW = np.array([0.7, 0.25, 0.05])


@pytest.mark.parametrize("k", [0.5, 5.0, 50.0, 2000.0])
@pytest.mark.parametrize("entry", [0, 1, 2])
def test_marginals_are_beta(k, entry):
    """Kolmogorov-Smirnov on the logarithms, which keep their resolution near zero."""
    logs = DirichletMechanism(k).sample_log(ROW, 20_000, rng=1)[:, entry]
    beta = stats.beta(k * ROW[entry], k * (1 - ROW[entry]))
    assert stats.kstest(np.exp(logs), beta.cdf).pvalue > 1e-6


def test_marginal_of_a_tiny_entry_is_beta_far_below_the_smallest_double():
    """At k p = 1e-3 half of the draws are below 1e-300; log x is then -Exp(1)/(k p) up to a vanishing term."""
    row, k = np.array([1e-3, 0.999]), 1.0
    logs = DirichletMechanism(k).sample_log(row, 20_000, rng=2)[:, 0]
    assert np.isfinite(logs).all() and (logs < -745).mean() > 0.4
    assert stats.kstest(-logs[logs < -50] - 50, stats.expon(scale=1 / (k * row[0])).cdf).pvalue > 1e-6


def test_covariance_of_a_row():
    draws = np.exp(DirichletMechanism(10.0).sample_log(ROW, 200_000, rng=3))
    expected = (np.diag(ROW) - np.outer(ROW, ROW)) / 11.0
    assert_allclose(draws.mean(axis=0), ROW, atol=5.5 * np.sqrt(0.25 / 11 / 200_000))
    assert_allclose(np.cov(draws.T), expected, atol=2.5e-4)


def test_gamma_logarithms_match_gamma():
    shape = np.full(20_000, 0.3)
    assert stats.kstest(np.exp(log_gamma_variates(shape, np.random.default_rng(0))), stats.gamma(0.3).cdf).pvalue > 1e-6


@pytest.mark.parametrize("k", [1e-3, 1.0, 50.0])
def test_release_has_neither_zero_nor_nan_on_its_support(k):
    default = random_chain(np.random.default_rng(0), 20, 0.4)
    release = DirichletMechanism(k).release(default, rng=0)
    on = default > 0
    assert_array_equal(release.support, on)
    assert (release.matrix[on] > 0).all() and (release.matrix[~on] == 0).all()
    assert np.isfinite(release.log_matrix[on]).all() and np.isneginf(release.log_matrix[~on]).all()
    assert_allclose(release.matrix.sum(axis=1), 1.0, rtol=1e-12)


def test_rows_are_drawn_from_their_own_parameters():
    """A row with weight on the left stays left: rows and columns are not exchanged."""
    default = np.array([[0.9, 0.1, 0.0], [0.0, 0.1, 0.9], [0.2, 0.3, 0.5]])
    mean = np.mean([DirichletMechanism(20.0).release(default, rng=i).matrix for i in range(2000)], axis=0)
    assert_allclose(mean, default, atol=5.5 * np.sqrt(0.25 / 21 / 2000))


def test_released_rows_are_dirichlet():
    """The matrices themselves, not only `sample_log`: 8,000 draws of the same row by one release."""
    default = np.broadcast_to(np.tile(ROW, (3, 1)), (8000 // 3, 3, 3))
    rows = np.exp(DirichletMechanism(20.0).release(default, rng=5).log_matrix).reshape(-1, 3)
    for entry in range(3):
        beta = stats.beta(20 * ROW[entry], 20 * (1 - ROW[entry]))
        assert stats.kstest(rows[:, entry], beta.cdf).pvalue > 1e-6


def test_certain_rows_are_released_as_they_are():
    release = DirichletMechanism(0.01).release(np.eye(3), rng=0)
    assert_array_equal(release.matrix, np.eye(3))
    assert release.rows == 0


def test_floor_lifts_every_entry_of_the_support():
    default = np.array([[0.999, 0.001, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    inputs = DirichletMechanism(50.0, floor=0.05).floored(default)
    assert_allclose(inputs[0], [0.9 * 0.999 + 0.05, 0.9 * 0.001 + 0.05, 0.0])
    assert_allclose(inputs.sum(axis=1), 1.0)
    assert inputs[default > 0].min() >= 0.05
    assert_array_equal(DirichletMechanism(50.0).floored(default), default)
    draws = np.exp(DirichletMechanism(50.0, floor=0.05).sample_log(default[0, :2], 50_000, rng=0))
    assert draws.mean(axis=0)[1] == pytest.approx(0.0509, abs=2e-3)


def test_floor_that_cannot_hold_names_the_row_and_the_limit():
    default = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    with pytest.raises(ValueError, match=r"row 0, which has 3 successors.*at most 0.3333"):
        DirichletMechanism(5.0, floor=0.4).release(default, rng=0)


def test_public_support_may_be_wider_but_not_narrower():
    default = np.array([[1.0, 0.0], [0.5, 0.5]])
    everywhere = np.ones((2, 2), dtype=bool)
    release = DirichletMechanism(50.0, floor=0.05).release(default, rng=0, support=everywhere)
    assert release.support.all()
    with pytest.raises(ValueError, match=r"\(1, 1\).*outside the public support"):
        DirichletMechanism(5.0).release(default, rng=0, support=np.array([[True, False], [True, False]]))
    with pytest.raises(ValueError, match="boolean"):
        DirichletMechanism(5.0).release(default, rng=0, support=[[1, 0], [1, 1]])


def test_public_entries_without_mass_and_without_floor_stay_zero():
    default = np.array([[1.0, 0.0], [0.5, 0.5]])
    release = DirichletMechanism(5.0).release(default, rng=0, support=np.ones((2, 2), dtype=bool))
    assert_array_equal(release.support, default > 0)


def test_claims_name_settings_adjacency_and_assumptions():
    one, other = DirichletEvent(50.0, 0.0, (2, 1, 3)), DirichletEvent(20.0, 0.05, (2, 2), h=(0.02,), entries="any")
    settings, terms = DirichletEvent.claims([one], "sequential")
    assert settings == " at k=50"
    assert terms[:3] == [
        "adjacent rows differ in two entries by h=0.03 in L1 distance", "all 2 drawn rows composed",
        "assumes a public support",
    ]  # fmt: skip
    settings, terms = DirichletEvent.claims([other, one], 3)
    assert settings == " at k=20 to 50"
    assert terms[:3] == [
        "adjacent rows differ in any entries by h=0.02 to 0.03 in L1 distance",
        "a unit touches at most 3 rows of each matrix", "assumes a public support",
    ]  # fmt: skip
    assert DirichletEvent.claims([other], "parallel")[1][1:3] == [
        "a unit touches one row of each matrix", "assumes a public support and floor 0.05",
    ]  # fmt: skip


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


def test_time_varying_matrices_are_released_time_by_time():
    default = np.stack([random_chain(np.random.default_rng(i), 4) for i in range(3)])
    release = DirichletMechanism(5.0).release(default, rng=0)
    assert release.matrix.shape == (3, 4, 4)
    assert_allclose(release.matrix.sum(axis=-1), 1.0)
    assert release.rows == ((default > 0).sum(axis=-1) > 1).sum()


# ------------------------------------------------------------------ files
@pytest.fixture
def release():
    return DirichletMechanism(0.5, floor=0.01).release(random_chain(np.random.default_rng(0), 6), rng=0)


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


# ------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"k": 0}, "k must be a positive"),
        ({"k": -5}, "k"),
        ({"k": np.inf}, "finite"),
        ({"k": "50"}, "number"),
        ({"k": 5, "floor": -0.1}, "floor"),
        ({"k": 5, "floor": 1.0}, "floor"),
    ],
)
def test_bad_mechanisms_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        DirichletMechanism(**arguments)


@pytest.mark.parametrize(
    ("matrix", "rng", "words"),
    [
        ([[0.5, 0.6], [0.5, 0.5]], 0, "row 0 of default sums to 1.1"),
        ([0.5, 0.5], 0, "must be a matrix of probabilities"),
        ([[np.nan, 1], [0.5, 0.5]], 0, "nan"),
        (np.eye(2), "seed", "Generator"),
        (np.eye(2), -3, "Generator"),
    ],
)
def test_bad_releases_are_refused(matrix, rng, words):
    with pytest.raises(ValueError, match=words):
        DirichletMechanism(5.0).release(matrix, rng)
    with pytest.raises(ValueError, match="size"):
        DirichletMechanism(5.0).sample_log(ROW, 0, 1)


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


@given(st.lists(st.floats(), min_size=1, max_size=4), st.floats())
def test_any_row_is_sampled_or_refused(row, k):
    try:
        logs = DirichletMechanism(k).sample_log(row, 3, 0)
    except ValueError:
        return
    assert_allclose(np.exp(logs).sum(axis=1), 1.0, rtol=1e-9)


def test_the_spec_of_a_mechanism_makes_it_again():
    for k, floor in ((50.0, 0.05), (1234567.0, 0.0123456789), (1 / 3, 0.1 + 0.2)):
        one = DirichletMechanism(k, floor)
        assert made(one.spec) == one
    assert DirichletMechanism(50, 0.05).spec == "dirichlet:k=50,floor=0.05"
