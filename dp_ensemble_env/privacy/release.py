"""A release: one private copy of the default behaviour, and its file."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.privacy.mechanisms.base import SEEDED, Event, Seeding
from dp_ensemble_env.tools.files import TooLargeError, atomic_write, check_npz, check_size, readable_file
from dp_ensemble_env.tools.validation import as_numeric_array, check_positive, check_stochastic

FILE_FORMAT, VERSION = "dp-ensemble-release", 3
LARGEST_RELEASE = 1_000_000_000  #: Bytes that a file of a release, or one of its arrays, may have.


@dataclass(frozen=True, eq=False)
class Release:
    """One private copy of the default behaviour; everything computed from it is post-processing.

    `log_matrix` holds the logarithms of the private probabilities, ``-inf`` where a decision (without nature: a
    transition) is impossible, in the shape of the default behaviour: (n, m), (T, n, m) or (T or 1, c, n, m). `event`
    describes the charged draw, as far as it is public. The seed is not stored.
    """

    log_matrix: NDArray[np.float64] = field(repr=False)
    event: Event

    def __post_init__(self) -> None:
        log_matrix = as_numeric_array(self.log_matrix, "log_matrix").copy()
        if log_matrix.ndim not in (2, 3, 4) or log_matrix.size == 0:
            raise ValueError(
                f"a release holds behaviour of shape (n, m), (T, n, m) or (T or 1, c, n, m), got {log_matrix.shape}."
            )
        if np.isnan(log_matrix).any() or (log_matrix > 0).any():
            raise ValueError("log_matrix must hold logarithms of probabilities: no NaN, nothing above zero.")
        check_stochastic(np.exp(log_matrix), "exp(log_matrix)", square=False)
        if not isinstance(self.event, Event) or not self.event.draws:
            raise ValueError(f"event must describe the draw, got {self.event!r}; mechanism.event(data) makes it.")
        log_matrix.setflags(write=False)
        object.__setattr__(self, "log_matrix", log_matrix)
        object.__setattr__(self, "event", self.event.public)

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The private matrix; entries of the support are never exactly zero."""
        matrix: NDArray[np.float64] = np.where(
            self.support, np.maximum(np.exp(self.log_matrix), np.finfo(float).tiny), 0.0
        )
        matrix.setflags(write=False)
        return matrix

    @cached_property
    def support(self) -> NDArray[np.bool_]:
        """Which transitions are possible in the release; as public as the release."""
        support: NDArray[np.bool_] = self.log_matrix > -np.inf
        support.setflags(write=False)
        return support

    @property
    def k(self) -> float:
        """Concentration of a Dirichlet release; infinity for other mechanisms."""
        return float(getattr(self.event, "k", np.inf))

    @property
    def seeding(self) -> Seeding:
        """Source of the randomness; only the operating system's entropy hides the input for good."""
        return self.event.seeding

    @property
    def reproducible(self) -> bool:
        """Whether anyone who knows the seeding could repeat the draw, and so remove its noise."""
        return self.seeding != "os-entropy"

    @cached_property
    def digest(self) -> str:
        """Hash of the numbers and the event, by which a ledger identifies the release."""
        return _digest(*self._content())

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.log_matrix.shape))
        return f"Release({shape}, {self.event.type}, {self.event.headline or 'no settings'}, {self.seeding})"

    def __str__(self) -> str:
        shape = "x".join(map(str, self.log_matrix.shape))
        settings = f", {self.event.headline}" if self.event.headline else ""
        warning = f" ({SEEDED})" if self.reproducible else ""
        return f"{self.event.type.capitalize()} release of a {shape} matrix{settings}{warning}"

    # ------------------------------------------------------------------ files
    def _content(self) -> tuple[dict[str, Any], NDArray[np.int64], NDArray[np.float64]]:
        flat = np.flatnonzero(self.support)
        header = {"format": FILE_FORMAT, "version": VERSION, "shape": list(self.log_matrix.shape)}
        return {**header, "event": self.event.to_json()}, flat, self.log_matrix.ravel()[flat]

    def to_json(self) -> dict[str, Any]:
        """Return the release as plain values; JSON has no infinity, so entries outside the support are left out."""
        header, flat, values = self._content()
        return {**header, "sha256": self.digest, "support": flat.tolist(), "log_values": values.tolist()}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Release:
        """Read what `to_json` wrote."""
        header = {name: value for name, value in content.items() if name not in ("support", "log_values")}
        return cls._from_content(header, np.array(content["support"], np.int64), np.array(content["log_values"], float))

    @classmethod
    def _from_content(cls, header: dict[str, Any], flat: NDArray[np.int64], values: NDArray[np.float64]) -> Release:
        if header.get("format") != FILE_FORMAT or header.get("version") != VERSION:
            raise ValueError(f"it is not a {FILE_FORMAT} file of version {VERSION}")
        if header.pop("sha256", None) != _digest(header, flat, values):
            raise ValueError("its checksum does not match its content")
        log_matrix = np.full(int(np.prod(header["shape"])), -np.inf)
        log_matrix[flat] = values
        return cls(log_matrix.reshape(header["shape"]), Event.from_json(header["event"]))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the release to a ``.json`` or ``.npz`` file, atomically and without pickle."""
        path = Path(path)
        if path.suffix == ".json":
            with atomic_write(path) as stream:
                json.dump(self.to_json(), stream)
                stream.write("\n")
        elif path.suffix == ".npz":
            header, flat, values = self._content()
            header["sha256"] = self.digest
            buffer = io.BytesIO()
            np.savez_compressed(buffer, header=np.array(json.dumps(header)), support=flat, log_values=values)
            with atomic_write(path, "wb") as stream:
                stream.write(buffer.getvalue())
        else:
            raise ValueError(f"cannot save a release as {path.name!r}; give it the ending .json or .npz.")
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, limits: float = 1.0) -> Release:
        """Read a release written by `save`; refuse a damaged file, or one above `limits` gigabytes, also unpacked."""
        path = readable_file(path)
        try:
            most = int(LARGEST_RELEASE * check_positive(limits, "limits"))
            check_size(path.stat().st_size, most, "the file")
            if path.suffix == ".npz":
                check_npz(path, most)
                with np.load(path, allow_pickle=False) as content:
                    header = json.loads(str(content["header"]))
                    check_size(8 * math.prod(map(int, header["shape"])), most, "its matrix")
                    return cls._from_content(header, content["support"], content["log_values"])
            content = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(content, dict):
                raise ValueError("it does not hold a JSON object")
            check_size(8 * math.prod(map(int, content["shape"])), most, "its matrix")
            return cls.from_json(content)
        except FileNotFoundError:
            raise
        except TooLargeError as error:
            raise ValueError(f"cannot load the release {path}: {error}") from None
        except Exception as error:  # damaged archives raise whatever zipfile and zlib run into
            reason = str(error) or type(error).__name__
            raise ValueError(
                f"cannot load the release {path}: {reason.rstrip('.')}; it is damaged or was not written by "
                "Release.save, so take a fresh copy from its author."
            ) from error


def _digest(header: dict[str, Any], flat: NDArray[np.int64], values: NDArray[np.float64]) -> str:
    content = json.dumps({key: value for key, value in header.items() if key != "sha256"}, sort_keys=True).encode()
    return hashlib.sha256(
        content + np.ascontiguousarray(flat, "<i8").tobytes() + np.ascontiguousarray(values, "<f8").tobytes()
    ).hexdigest()
