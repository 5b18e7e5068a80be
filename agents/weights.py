"""Weights of a policy in one file that holds numbers and words, and no code.

A file is a `safetensors <https://huggingface.co/docs/safetensors>`_ container: the arrays by name, and in its header
the settings as JSON, which describe the network. Reading a file executes no code. A checksum over arrays and settings
detects damaged files. Files are replaced atomically::

    save_weights("policy.safetensors", net.state_dict(), {"agent": "mine", "net_arch": [64, 64]})
    weights = load_weights("policy.safetensors")
    net = build(**weights.settings)
    net.load_state_dict(weights.tensors())

`pack` and `unpack` turn nested dictionaries, lists and tuples with arrays among them, such as the state of an
optimizer, into that form and back.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.tools.files import atomic_write

#: What the header says a file is, and the version of its layout.
FORMAT, VERSION = "dp-ensemble-weights", "1"
#: A header longer than this is refused before it is read, and a file longer than that.
LONGEST_HEADER, LARGEST = 10_000_000, 8_000_000_000
_DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool")
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Weights:
    """What a file holds."""

    arrays: dict[str, Array]
    settings: dict[str, Any]
    """How to build what the arrays belong to."""
    digest: str
    """SHA-256 of arrays and settings, in hexadecimal digits."""

    def tensors(self) -> dict[str, Any]:
        """Return the arrays as torch tensors, for ``load_state_dict``."""
        import torch

        return {name: torch.from_numpy(array.copy()) for name, array in self.arrays.items()}


def save_weights(path: str | os.PathLike[str], arrays: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Write arrays (NumPy's or torch's, of numbers of a fixed width) and settings (JSON); return the digest.

    The file is conventionally called ``*.safetensors``, and written atomically.
    """
    from safetensors.numpy import save

    plain = {name: _numpy(name, array) for name, array in arrays.items()}
    try:
        text = json.dumps(dict(settings), allow_nan=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the settings of weights must be JSON ({error}).") from error
    digest = _digest(plain, text)
    content = save(plain, metadata={"format": FORMAT, "version": VERSION, "settings": text, "sha256": digest})
    with atomic_write(path, "wb") as stream:
        stream.write(content)
    return digest


def load_weights(path: str | os.PathLike[str]) -> Weights:
    """Read a file of `save_weights`; nothing in it is executed, and one that was damaged or changed is refused."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = Path(path)
    if not path.is_file():
        what = "is no regular file" if path.exists() else "does not exist"
        raise ValueError(f"{path} {what}; give a file of weights such as policy.safetensors.")
    try:
        with path.open("rb") as stream:
            header = _header(stream, path.stat().st_size)
        text, digest = header["settings"], header["sha256"]
        settings, arrays = json.loads(text), load(path.read_bytes())
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise ValueError(f"{path} is not a weights file of this program, or it is damaged ({why}).") from error
    if not isinstance(settings, dict) or _digest(arrays, text) != digest:
        raise ValueError(f"{path} is damaged or was changed: its content does not match its checksum.")
    return Weights(arrays, settings, digest)


def _digest(arrays: Mapping[str, Array], text: str) -> str:
    """Return the SHA-256 of arrays and settings: names, types, shapes and every value count."""
    digest = hashlib.sha256(json.dumps([FORMAT, VERSION, text]).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.name, list(array.shape)]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _numpy(name: str, array: Any) -> Array:
    if hasattr(array, "detach"):  # a torch tensor, wherever it lives
        array = array.detach().cpu().numpy()
    numbers = np.array(array, order="C")
    if numbers.dtype.name not in _DTYPES:
        raise ValueError(f"the weights {name!r} hold {numbers.dtype.name}, not numbers of a fixed width.")
    if not name:
        raise ValueError("an array of weights has an empty name.")
    return numbers


def _header(stream: IO[bytes], size: int) -> dict[str, str]:
    """Read the words of the header: eight bytes with its length, then JSON. The arrays are not read yet."""
    length = int.from_bytes(stream.read(8), "little")
    if not 2 <= length <= min(LONGEST_HEADER, size - 8):
        raise ValueError("it is cut short or of another kind")
    if size > LARGEST:
        raise ValueError(f"it has {size:,} bytes where {LARGEST:,} are accepted; see agents.weights.LARGEST")
    metadata = json.loads(stream.read(length))["__metadata__"]
    if metadata["format"] != FORMAT:
        raise ValueError(f"its format is {metadata['format']!r}")
    if metadata["version"] != VERSION:
        raise ValueError(f"it has version {metadata['version']!r}, and this program reads version {VERSION!r}")
    return dict(metadata)


# ------------------------------------------------------------------ nested structures
def pack(tree: Any, arrays: dict[str, Any], name: str = "") -> Any:
    """Put the arrays of a nested structure into `arrays` and return the rest as JSON, which `unpack` turns back.

    Dictionaries (keys may be numbers), lists, tuples, numbers, strings, booleans and None are kept as they are.
    """
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    if isinstance(tree, np.generic):
        return tree.item()
    if isinstance(tree, np.ndarray) or hasattr(tree, "detach"):
        arrays[name] = tree
        return {"tensor" if hasattr(tree, "detach") else "array": name}
    if isinstance(tree, Mapping):
        return {"dict": [[key, pack(value, arrays, f"{name}/{key}")] for key, value in tree.items()]}
    if isinstance(tree, (list, tuple)):
        items = [pack(value, arrays, f"{name}/{i}") for i, value in enumerate(tree)]
        return {"tuple": items} if isinstance(tree, tuple) else items
    raise ValueError(f"{name or 'the state'} is a {type(tree).__name__}, which is not saved.")


def unpack(packed: Any, arrays: Mapping[str, Array]) -> Any:
    """Turn back what `pack` returned."""
    if isinstance(packed, list):
        return [unpack(value, arrays) for value in packed]
    if not isinstance(packed, dict):
        return packed
    ((kind, value),) = packed.items()
    if kind == "tuple":
        return tuple(unpack(item, arrays) for item in value)
    if kind == "dict":
        return {key: unpack(item, arrays) for key, item in value}
    if kind == "tensor":
        import torch

        return torch.from_numpy(arrays[value].copy())
    return arrays[value]
