"""Files of weights: exact, without code, and not believed when they were changed."""

from __future__ import annotations

import importlib
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

importlib.import_module("safetensors")

from dp_ensemble_env.agents.weights import load_weights, pack, save_weights, unpack  # noqa: E402

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b/1": np.array(2.5),
    "steps": np.array([3, 4], np.int64),
    "done": np.array([True, False]),
    "none": np.zeros((0, 4), np.float32),
}
SETTINGS = {"agent": "mine", "net_arch": [64, 64], "rate": 1e-3, "name": "é", "limit": None}


def test_what_is_written_is_read_back_bit_for_bit(tmp_path):
    digest = save_weights(tmp_path / "w.safetensors", ARRAYS, SETTINGS)
    found = load_weights(tmp_path / "w.safetensors")
    assert found.settings == SETTINGS and found.digest == digest and found.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == array.dtype and found.arrays[name].shape == array.shape
        np.testing.assert_array_equal(found.arrays[name], array)
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_every_byte_counts(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(path, ARRAYS, SETTINGS)
    content = path.read_bytes()
    for position in range(0, len(content), 3):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        try:
            found = load_weights(path)
        except ValueError as error:
            assert str(path) in str(error)
        else:  # white space of the header, or the letters of an escape, may change without changing what it says
            assert found.settings == SETTINGS
            for name, array in ARRAYS.items():
                np.testing.assert_array_equal(found.arrays[name], array)


@pytest.mark.parametrize("keep", [0, 4, 8, 100, -1])
def test_a_file_that_is_cut_short_is_named(keep, tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(path, ARRAYS, SETTINGS)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"w\.safetensors is no file of weights"):
        load_weights(path)


def test_a_file_that_is_too_large_is_refused_unread(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(path, ARRAYS, SETTINGS)
    with path.open("r+b") as stream:
        stream.truncate(10**12)  # takes no room on disk
    with pytest.raises(ValueError, match=r"1,000,000,000,000 bytes where 8,000,000,000 are accepted"):
        load_weights(path)
    path.write_bytes(b"x" * 100)
    with path.open("r+b") as stream:
        stream.truncate(10**12)
    with pytest.raises(ValueError, match="of another kind"):
        load_weights(path)


def test_other_files_are_refused_without_running_them(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("code was run",))

    from safetensors.numpy import save

    (tmp_path / "pickle").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "foreign").write_bytes(save({"a": np.zeros(3)}))
    (tmp_path / "later").write_bytes(save({"a": np.zeros(3)}, {"format": "dp-ensemble-weights", "version": "9"}))
    deep = "[" * 100_000
    words = {"format": "dp-ensemble-weights", "version": "1", "settings": deep, "sha256": ""}
    (tmp_path / "deep").write_bytes(save({"a": np.zeros(3)}, words))
    for name in ("pickle", "foreign", "later", "deep"):
        with pytest.raises(ValueError, match=f"{name} is no file of weights"):
            load_weights(tmp_path / name)
    with pytest.raises(ValueError, match="does not exist"):
        load_weights(tmp_path / "missing")
    with pytest.raises(ValueError, match="is no regular file"):
        load_weights(tmp_path)
    header = json.dumps({"__metadata__": {"format": "dp-ensemble-weights"}}).encode()
    (tmp_path / "long").write_bytes((2**60).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match="cut short"):
        load_weights(tmp_path / "long")


def test_what_cannot_be_kept_is_refused_before_writing(tmp_path):
    with pytest.raises(ValueError, match="hold object"):
        save_weights(tmp_path / "w", {"a": np.array([None])}, {})
    with pytest.raises(ValueError, match="must be JSON"):
        save_weights(tmp_path / "w", {}, {"a": print})
    with pytest.raises(ValueError, match="empty name"):
        save_weights(tmp_path / "w", {"": np.zeros(1)}, {})
    with pytest.raises(ValueError, match="is a builtin_function"):
        pack({"a": print}, {})
    assert not list(tmp_path.iterdir())


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
TREES = st.recursive(
    LEAVES | st.lists(st.floats(-1, 1), max_size=3).map(np.array),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=8,
)


def same(first, second):
    if isinstance(first, np.ndarray):
        return isinstance(second, np.ndarray) and np.array_equal(first, second)
    if isinstance(first, dict):
        return type(second) is dict and list(first) == list(second) and all(same(first[k], second[k]) for k in first)
    if isinstance(first, (list, tuple)):
        return type(first) is type(second) and len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and first == second


@settings(deadline=None, max_examples=60)
@given(tree=TREES)
def test_nested_structures_come_back_as_they_were(tree):
    arrays = {}
    packed = json.loads(json.dumps(pack({"tree": tree}, arrays)))
    assert same(unpack(packed, arrays)["tree"], tree)


@pytest.mark.torch
def test_a_network_and_its_optimizer(tmp_path):
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    adam = torch.optim.Adam(net.parameters(), lr=0.1)
    net(torch.ones(4, 3)).sum().backward()
    adam.step()
    arrays = {}
    save_weights(tmp_path / "w", net.state_dict(), {"in": 3})
    save_weights(tmp_path / "o", arrays, {"state": pack(adam.state_dict(), arrays)})
    again = torch.nn.Linear(3, 2)
    again.load_state_dict(load_weights(tmp_path / "w").tensors())
    other = torch.optim.Adam(again.parameters(), lr=0.5)
    kept = load_weights(tmp_path / "o")
    other.load_state_dict(unpack(kept.settings["state"], kept.arrays))
    for model, optimizer in ((net, adam), (again, other)):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).pow(2).sum().backward()
        optimizer.step()
    assert torch.equal(net.weight, again.weight) and torch.equal(net.bias, again.bias)


def test_reading_weights_needs_neither_pickle_nor_torch(tmp_path):
    save_weights(tmp_path / "w", ARRAYS, SETTINGS)
    code = (
        "import sys, dp_ensemble_env.agents.weights as w; "
        f"import pickle; pickle.loads = pickle.load = None; w.load_weights({str(tmp_path / 'w')!r}); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
