"""Files of weights: exact, without code, and not believed when they were changed."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from dp_ensemble_env.agents.weights import load_weights, pack, save_weights, unpack

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b/1": np.array(2.5),
    "steps": np.array([3, 4], np.int64),
    "done": np.array([True, False]),
    "none": np.zeros((0, 4), np.float32),
}
SETTINGS = {"agent": "mine", "net_arch": [64, 64], "rate": 1e-3, "name": "é", "limit": None}


@pytest.fixture
def path(tmp_path):
    save_weights(tmp_path / "w.safetensors", ARRAYS, SETTINGS)
    return tmp_path / "w.safetensors"


def same(first, second):
    if isinstance(first, np.ndarray):
        return isinstance(second, np.ndarray) and first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(first, dict):
        return type(second) is dict and list(first) == list(second) and all(same(first[k], second[k]) for k in first)
    if isinstance(first, (list, tuple)):
        return type(first) is type(second) and len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and first == second


def test_what_is_written_is_read_back_bit_for_bit_and_every_byte_counts(path):
    digest, content = save_weights(path, ARRAYS, SETTINGS), path.read_bytes()
    assert load_weights(path).digest == digest and [one.name for one in path.parent.iterdir()] == [path.name]
    for position in (None, *range(0, len(content), 3)):
        if position is not None:
            path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        try:
            found = load_weights(path)
        except ValueError as error:
            assert position is not None and str(path) in str(error)
        else:  # white space of the header, or the letters of an escape, may change without changing what it says
            assert found.settings == SETTINGS and same({name: found.arrays[name] for name in ARRAYS}, ARRAYS)


def test_a_file_that_is_too_large_is_refused_unread(path):
    for start, words in (
        (path.read_bytes(), "1,000,000,000,000 bytes where 8,000,000,000 are"),
        (b"x" * 100, "another kind"),
    ):
        path.write_bytes(start)
        with path.open("r+b") as stream:
            stream.truncate(10**12)  # takes no room on disk
        with pytest.raises(ValueError, match=words):
            load_weights(path)


def test_other_files_are_refused_without_running_them(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("code was run",))

    ours, array = {"format": "dp-ensemble-weights", "version": "1"}, {"a": np.zeros(3)}
    header = json.dumps({"__metadata__": {"format": "dp-ensemble-weights"}}).encode()
    for name, content in {
        "pickle": pickle.dumps(Bomb()),
        "foreign": save(array),
        "later": save(array, {**ours, "version": "9"}),
        "deep": save(array, {**ours, "settings": "[" * 100_000, "sha256": ""}),
        "long": (2**60).to_bytes(8, "little") + header,
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is not a weights file"):
            load_weights(tmp_path / name)


def test_what_cannot_be_kept_is_refused_before_writing(tmp_path):
    for arrays, settings, words in (
        ({"a": np.array([None])}, {}, "hold object"),
        ({}, {"a": print}, "must be JSON"),
        ({"": np.zeros(1)}, {}, "empty name"),
    ):
        with pytest.raises(ValueError, match=words):
            save_weights(tmp_path / "w", arrays, settings)
    with pytest.raises(ValueError, match="is a builtin_function"):
        pack({"a": print}, {})
    assert not list(tmp_path.iterdir())


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
TREES = st.recursive(
    LEAVES | st.lists(st.floats(-1, 1), max_size=3).map(np.array),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=8,
)


@given(tree=TREES)
def test_nested_structures_come_back_as_they_were(tree):
    arrays = {}
    assert same(unpack(json.loads(json.dumps(pack({"tree": tree}, arrays))), arrays)["tree"], tree)
