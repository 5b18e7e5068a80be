r"""The Dirichlet mechanism: a private copy of the default dynamics.

Each row :math:`p` of the default matrix is replaced by a draw
:math:`x \sim \mathrm{Dir}(k\,p)` on the row's support (Definition 4 of the
paper). The mean of the draw is :math:`p`, its variance
:math:`p(1-p)/(k+1)`: a small `k` means much noise.

Two things are done differently from a plain ``rng.dirichlet``:

* **Logarithms.** A Gamma variate of shape :math:`\alpha = kp \ll 1` is mostly
  smaller than the smallest double, and an exact zero in the output tells
  which inputs it cannot have come from. Here
  :math:`\log G = \log G' - E/\alpha` with :math:`G' \sim \Gamma(\alpha+1)` and
  :math:`E \sim \mathrm{Exp}(1)`, so nothing underflows, whatever `k` is.
* **Floor.** With ``floor`` :math:`=\omega > 0` each row is first mixed with the
  uniform distribution on its support, :math:`p' = (1-\tau)p + \tau/|S|` with
  :math:`\tau = \omega|S|`, so that every entry is at least :math:`\omega`. A
  guarantee that does not depend on the data needs it.

The support is treated as public: the mechanism never moves mass to an entry
outside it, so whoever sees the output sees the support.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env._validation import (
    as_float_array,
    as_numeric_array,
    check_count,
    check_in_range,
    check_positive,
    check_rng,
    check_stochastic,
)

Seeding = Literal["os-entropy", "seed", "generator"]
SEEDINGS: tuple[str, ...] = ("os-entropy", "seed", "generator")
FILE_FORMAT = "dp-ensemble-release"


@dataclass(frozen=True, eq=False)
class Release:
    """One draw of the Dirichlet mechanism; whatever is computed from it is post-processing.

    Attributes
    ----------
    log_matrix : ndarray of shape (n, n) or (T, n, n)
        Logarithms of the private probabilities, ``-inf`` outside the support.
    k : float
        Concentration of the Dirichlet distribution.
    floor : float
        Least probability that an entry of the support had before the draw.
    seeding : {"os-entropy", "seed", "generator"}
        Where the randomness came from. Only a draw from the operating
        system's entropy hides the input from someone who can repeat the draw.
        The seed itself is never kept.
    """

    log_matrix: NDArray[np.float64] = field(repr=False)
    k: float
    floor: float = 0.0
    seeding: Seeding = "generator"

    def __post_init__(self) -> None:
        log_matrix = as_numeric_array(self.log_matrix, "log_matrix").copy()
        if log_matrix.ndim not in (2, 3) or log_matrix.shape[-1] != log_matrix.shape[-2] or log_matrix.size == 0:
            raise ValueError(f"a release holds an (n, n) or (T, n, n) matrix, got shape {log_matrix.shape}.")
        if np.isnan(log_matrix).any() or (log_matrix > 0).any():
            raise ValueError("log_matrix must hold logarithms of probabilities: no NaN, nothing above zero.")
        check_stochastic(np.exp(log_matrix), "exp(log_matrix)")
        check_positive(self.k, "k")
        check_in_range(self.floor, "floor", 0, 1)
        if self.seeding not in SEEDINGS:
            raise ValueError(f"seeding must be one of {SEEDINGS}, got {self.seeding!r}.")
        log_matrix.setflags(write=False)
        object.__setattr__(self, "log_matrix", log_matrix)

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The private matrix; entries of the support are never exactly zero."""
        matrix = np.where(self.support, np.maximum(np.exp(self.log_matrix), np.finfo(float).tiny), 0.0)
        matrix.setflags(write=False)
        return matrix

    @cached_property
    def support(self) -> NDArray[np.bool_]:
        """Which transitions were possible; public, and the same before and after the draw."""
        support = self.log_matrix > -np.inf
        support.setflags(write=False)
        return support

    @property
    def rows(self) -> int:
        """Number of rows that were really drawn: a row with one successor reveals nothing but its support."""
        return int((self.support.sum(axis=-1) > 1).sum())

    @property
    def reproducible(self) -> bool:
        """Whether someone who knows how it was seeded could repeat the draw, and so undo it."""
        return self.seeding != "os-entropy"

    def __str__(self) -> str:
        shape = "x".join(map(str, self.log_matrix.shape))
        warning = " (seeded: repeatable, hence not private against whoever knows the seed)" if self.reproducible else ""
        return f"Dirichlet release of a {shape} matrix, k={self.k:g}, floor={self.floor:g}{warning}"

    # ------------------------------------------------------------------ files
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the release to a ``.json`` or ``.npz`` file, atomically and without pickle."""
        path = Path(path)
        flat = np.flatnonzero(self.support)
        header: dict[str, Any] = {
            "format": FILE_FORMAT,
            "version": 1,
            "k": self.k,
            "floor": self.floor,
            "seeding": self.seeding,
            "shape": list(self.log_matrix.shape),
        }
        values = self.log_matrix.ravel()[flat]
        header["sha256"] = _digest(header, flat, values)
        if path.suffix == ".json":
            with atomic_write(path) as stream:
                json.dump({**header, "support": flat.tolist(), "log_values": values.tolist()}, stream)
                stream.write("\n")
        elif path.suffix == ".npz":
            buffer = io.BytesIO()
            np.savez_compressed(buffer, header=np.array(json.dumps(header)), support=flat, log_values=values)
            with atomic_write(path, "wb") as stream:
                stream.write(buffer.getvalue())
        else:
            raise ValueError(f"cannot save a release as {path.name!r}; give it the ending .json or .npz.")
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Release:
        """Read a release written by `save`; a damaged or foreign file is refused."""
        path = Path(path)
        try:
            header, flat, values = _read_npz(path) if path.suffix == ".npz" else _read_json(path)
            if header.get("format") != FILE_FORMAT or header.get("version") != 1:
                raise ValueError(f"it is not a version-1 {FILE_FORMAT} file")
            if header.pop("sha256", None) != _digest(header, flat, values):
                raise ValueError("its checksum does not match its content")
            log_matrix = np.full(int(np.prod(header["shape"])), -np.inf)
            log_matrix[flat] = values
            return cls(log_matrix.reshape(header["shape"]), header["k"], header["floor"], header["seeding"])
        except FileNotFoundError:
            raise
        except Exception as error:  # damaged archives raise whatever zipfile and zlib run into
            reason = str(error) or type(error).__name__
            raise ValueError(
                f"cannot load the release {path}: {reason.rstrip('.')}; it is damaged or was not written by "
                "Release.save, so take a fresh copy from whoever made the release."
            ) from error


@dataclass(frozen=True)
class DirichletMechanism:
    """Draw private copies of a transition matrix.

    Parameters
    ----------
    k : float
        Concentration, > 0. Larger is closer to the true matrix and less private.
    floor : float, default 0
        Every entry of the support is raised to at least this probability
        before the draw. Without it no guarantee holds for all inputs.

    Examples
    --------
    >>> import numpy as np
    >>> default = np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> release = DirichletMechanism(k=50, floor=0.05).release(default, rng=0)
    >>> bool(np.allclose(release.matrix.sum(axis=1), 1.0)), release.seeding
    (True, 'seed')
    """

    k: float
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_positive(self.k, "k", remedy="the Dirichlet mechanism needs k > 0; pass k=None for no privacy")
        check_in_range(self.floor, "floor", 0, 1, open_high=True)

    def floored(self, default: ArrayLike, support: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the mechanism's input: `default` mixed with uniform rows so that entries are >= floor.

        Parameters
        ----------
        default : array_like of shape (n, n) or (T, n, n)
            Row-stochastic matrix.
        support : array_like of bool, optional
            Public support. By default the nonzero entries of `default`, which
            are then assumed to be public knowledge.
        """
        matrix = check_stochastic(default)
        allowed = self._support(matrix, support)
        size = allowed.sum(axis=-1, keepdims=True)
        mixing = self.floor * size
        if (mixing > 1).any():
            row = np.argwhere(mixing[..., 0] > 1)[0]
            raise ValueError(
                f"floor={self.floor:g} cannot hold for row {int(row[-1])}, which has {int(size[tuple(row)][0])} "
                f"successors; choose a floor of at most {1 / size.max():.4g}."
            )
        return np.where(allowed, (1.0 - mixing) * matrix + self.floor, 0.0)

    def release(
        self,
        default: ArrayLike,
        rng: np.random.Generator | int | None = None,
        *,
        support: ArrayLike | None = None,
    ) -> Release:
        """Draw one private matrix.

        Parameters
        ----------
        default : array_like of shape (n, n) or (T, n, n)
            The true matrix.
        rng : numpy Generator or int, optional
            By default the operating system's entropy, as a release meant for
            publication needs. A seeded draw can be repeated, and so undone, by
            whoever knows the seed.
        support : array_like of bool, optional
            See `floored`.
        """
        inputs = self.floored(default, support)
        seeding: Seeding = "generator" if isinstance(rng, np.random.Generator) else "seed"
        if rng is None:
            rng, seeding = np.random.default_rng(), "os-entropy"
        generator = check_rng(rng)
        log_matrix = np.full(inputs.shape, -np.inf)
        drawn = inputs > 0
        log_matrix[drawn] = log_gamma_variates(self.k * inputs[drawn], generator)
        log_matrix -= np.logaddexp.reduce(log_matrix, axis=-1, keepdims=True)
        return Release(np.minimum(log_matrix, 0.0), float(self.k), float(self.floor), seeding)

    def sample_log(self, row: ArrayLike, size: int, rng: np.random.Generator | int) -> NDArray[np.float64]:
        """Draw `size` private copies of one row, as logarithms of shape (size, len(row))."""
        size = check_count(size, "size")
        generator = check_rng(rng)
        inputs = as_float_array(row, "row", 1)
        padded = np.zeros((inputs.size, inputs.size))  # a row is validated as a matrix of copies of itself
        padded[:] = inputs
        inputs = self.floored(padded)[0]
        logs = np.full((size, inputs.size), -np.inf)
        drawn = inputs > 0
        logs[:, drawn] = log_gamma_variates(np.broadcast_to(self.k * inputs[drawn], (size, drawn.sum())), generator)
        return np.minimum(logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True), 0.0)

    @staticmethod
    def _support(matrix: NDArray[np.float64], support: ArrayLike | None) -> NDArray[np.bool_]:
        if support is None:
            return matrix > 0
        allowed = np.asarray(support)
        if allowed.dtype != bool or allowed.shape != matrix.shape:
            raise ValueError(
                f"support must be a boolean array of shape {matrix.shape}, got {allowed.dtype} {allowed.shape}."
            )
        if (outside := np.argwhere(~allowed & (matrix > 0))).size:
            raise ValueError(
                f"the transition {tuple(map(int, outside[0]))} has positive probability but lies outside the public "
                "support; widen the support, or leave the transition out of the estimate."
            )
        return allowed


def log_gamma_variates(shape: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw logarithms of Gamma(shape, 1) variates that neither underflow nor vanish."""
    # G(a) = G(a+1) U^(1/a) in distribution, and -log U is a standard exponential.
    return np.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential(shape.shape) / shape


def _digest(header: dict[str, Any], flat: NDArray[np.int64], values: NDArray[np.float64]) -> str:
    content = json.dumps({key: header[key] for key in sorted(header) if key != "sha256"}).encode()
    return hashlib.sha256(
        content + np.ascontiguousarray(flat, "<i8").tobytes() + np.ascontiguousarray(values, "<f8").tobytes()
    ).hexdigest()


def _read_json(path: Path) -> tuple[dict[str, Any], NDArray[np.int64], NDArray[np.float64]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError("it does not hold a JSON object")
    flat = np.array(content.pop("support"), dtype=np.int64)
    return content, flat, np.array(content.pop("log_values"), dtype=np.float64)


def _read_npz(path: Path) -> tuple[dict[str, Any], NDArray[np.int64], NDArray[np.float64]]:
    with np.load(path, allow_pickle=False) as content:
        return json.loads(str(content["header"])), content["support"], content["log_values"]
