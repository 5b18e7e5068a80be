"""What every mechanism promises: an event that describes a draw, a permit to make it, and a release.

The order is the same everywhere, in an environment as in a script::

    event = mechanism.event(data)          # what is about to be drawn; nothing of the data but what is public
    permit = ledger.charge(event)          # refused, or on record
    release = mechanism.draw(data, permit)  # only now

`PrivacyLedger.release` does all three. A mechanism never reports its own epsilon: what
an event costs is computed in `dp_ensemble_env.privacy.accounting`, keyed by the
event's type.
"""

from __future__ import annotations

import builtins
import hashlib
import io
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.tools.files import TooLargeError, atomic_write, check_npz, check_size, readable_file
from dp_ensemble_env.tools.validation import as_numeric_array, check_choice, check_positive, check_rng, check_stochastic

Seeding = Literal["os-entropy", "seed", "generator"]
SEEDINGS: tuple[str, ...] = ("os-entropy", "seed", "generator")
FILE_FORMAT = "dp-ensemble-release"
#: Bytes that a file of a release, or one of its arrays, may have.
LARGEST_RELEASE = 1_000_000_000
SEEDED = "seeded: repeatable, hence not private against whoever knows the seed"
Rng = np.random.Generator | int | None
#: Terms that say what is claimed about a draw, and do not change it.
CLAIMS = ("h", "entries")


# ------------------------------------------------------------------ events
@dataclass(frozen=True, kw_only=True)
class Event:
    """All that the price of a draw depends on, and nothing of the data but what is public.

    A subclass names its type, ``class MyEvent(Event, type="mine")``, and its fields are
    numbers, texts and tuples of them, so that it can be written as JSON, compared and
    counted.

    Attributes
    ----------
    seeding : {"os-entropy", "seed", "generator"}
        Where the randomness comes from.
    """

    seeding: Seeding = "os-entropy"

    type: ClassVar[str] = ""
    #: Whether something is drawn; a note or a disclosure is no draw.
    draws: ClassVar[bool] = True
    #: Whether the draw is random; one that is not has no seeding.
    random: ClassVar[bool] = True
    _types: ClassVar[dict[str, builtins.type[Event]]] = {}

    def __init_subclass__(cls, *, type: str, draws: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if (known := Event._types.get(type)) is not None and known.__qualname__ != cls.__qualname__:
            raise ValueError(f"there is an event of the type {type!r} already; name yours differently.")
        cls.type, cls.draws = type, draws
        Event._types[type] = cls

    def __post_init__(self) -> None:
        check_choice(self.seeding, "seeding", SEEDINGS)

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain values."""
        return {"type": self.type, **asdict(self)}

    @staticmethod
    def from_json(content: dict[str, Any]) -> Event:
        """Read what `to_json` wrote."""
        import dp_ensemble_env.privacy.accounting.losses  # noqa: F401 - knows every built-in type of event

        values = dict(content)
        kind = Event._types[check_choice(values.pop("type", None), "type of event", Event._types)]
        known = {one.name for one in fields(kind)}
        for name in values:
            check_choice(name, f"field of a {kind.type} event", known)
        plain: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}
        return kind(**plain)

    @property
    def digest(self) -> str:
        """Hash of the whole description."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    @property
    def remedy(self) -> str:
        """What to do when a budget does not allow the draw."""
        return "use what was released already (post-processing is free), or a noisier setting"

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return ""

    @classmethod
    def claims(cls, events: Sequence[Any], rows: str | int) -> tuple[str, list[str]]:
        """Put several draws of this type into words, for a privacy line.

        Returns their settings, as they follow "3 releases", and the terms of the claim:
        adjacency, composition, assumptions and warnings, as parts of a sentence.
        """
        return f" by the {cls.type} mechanism", []

    @property
    def drawn(self) -> Event:
        """The draw itself, without what is merely claimed about it, such as an adjacency."""
        return self

    @property
    def public(self) -> Event:
        """The event as it may leave: without what was computed from private data."""
        return self

    def under(self, h: Any = None, entries: str | None = None) -> Event:
        """Return the same draw under another adjacency, where the mechanism leaves that open."""
        if h is not None or entries is not None:
            raise ValueError(f"a {self.type} release fixes its own adjacency; leave h and entries out.")
        return self


@dataclass(frozen=True, kw_only=True)
class Disclosure(Event, type="deterministic", draws=False):
    """A deterministic function of the true data was published (E8): nothing bounds what it tells."""

    @property
    def remedy(self) -> str:
        """What to publish instead."""
        return "no budget allows a deterministic function of the true data; publish what is computed from a release"


@dataclass(frozen=True, kw_only=True)
class PostProcessing(Event, type="post-processing", draws=False):
    """A use of what was released already; it costs nothing."""


# ------------------------------------------------------------------ permits
@dataclass(frozen=True, eq=False)
class Permit:
    """The right to make a draw: its event, which a ledger has on record, and where its randomness comes from.

    It is good for as many draws as were charged, by default for one.
    """

    event: Event
    rng: np.random.Generator = field(repr=False)
    times: int = 1
    _used: list[Event] = field(default_factory=list, init=False, repr=False)

    def covers(self, event: Event) -> None:
        """Refuse a draw that differs from what was charged, or that comes after all that were charged."""
        if self.event.drawn != event.drawn:
            raise ValueError(
                f"the permit is for {self.event}, not for {event}; charge the event of this very draw to the ledger."
            )
        if len(self._used) >= self.times:
            raise ValueError(
                f"the permit was for {self.times} draw{'s' * (self.times != 1)}, made already; charge the next one to "
                "the ledger."
            )
        self._used.append(event)


def seeding_of(rng: Rng) -> Seeding:
    """Name where the randomness of a draw comes from."""
    return "os-entropy" if rng is None else "generator" if isinstance(rng, np.random.Generator) else "seed"


def make_permit(event: Event, rng: Rng, data: Any, terms: Mapping[str, Any] | None = None, times: int = 1) -> Permit:
    """Return the permit for `times` draws from `data`; whoever calls this has charged them, or runs an experiment.

    **No two draws share a stream of random numbers.** Two releases made of the same stream at
    different settings can be solved for the true data, and two made of it from different data
    differ by just what the data differ by, whether or not anyone knows the seed. So an integer
    seed is mixed with the whole event of the draw, its terms (support, clip, ...; the adjacency is
    but a claim) and the data. A `Generator` is taken as it is, since it moves on with every draw.
    """
    if rng is None or isinstance(rng, np.random.Generator):
        return Permit(event, np.random.default_rng(rng), times)
    check_rng(rng)  # refuses what is no seed
    if data is None:
        raise ValueError("the stream of a seeded draw depends on its data; pass charge(event, rng=seed, data=data).")
    given = {name: value for name, value in (terms or {}).items() if name not in CLAIMS and value is not None}
    drawn = {name: fingerprint(given[name]) for name in sorted(given)}
    identity = hashlib.sha256(f"{event.drawn.digest} {drawn} {fingerprint(data)}".encode()).digest()
    return Permit(event, np.random.default_rng([int(rng), *np.frombuffer(identity, "<u4").tolist()]), times)


def fingerprint(data: Any) -> str:
    """Return a hash of private data: their own ``fingerprint``, or that of an array. It never leaves."""
    own = data if isinstance(data, str) else getattr(data, "fingerprint", None)
    if isinstance(own, str):
        return own
    try:
        array = np.ascontiguousarray(data, dtype="<f8")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"a seeded draw depends on its data, and {type(data).__name__} is no array; give it a `fingerprint`, the "
            "hash of its content."
        ) from error
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()


# ------------------------------------------------------------------ releases
@dataclass(frozen=True, eq=False)
class Release:
    """One private copy of the default behaviour; whatever is computed from it is post-processing.

    Attributes
    ----------
    log_matrix : ndarray of shape (n, m), (T, n, m) or (T or 1, c, n, m)
        Logarithms of the private probabilities, ``-inf`` where a decision (without nature: a
        transition) is impossible. It has the shape of the default behaviour.
    event : Event
        The description of the draw that the ledger was charged for, as far as it is
        public: an h that was computed from counts is left out. The seed is never kept.
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
    def rows(self) -> int:
        """Number of rows that were really drawn: a row with one successor reveals nothing but its support."""
        return int((self.support.sum(axis=-1) > 1).sum())

    @property
    def k(self) -> float:
        """Concentration of a Dirichlet release; infinity for other mechanisms, whose noise is not of that kind."""
        return float(getattr(self.event, "k", np.inf))

    @property
    def floor(self) -> float:
        """Least probability that an entry of the support had before the draw; 0 where there is no such thing."""
        return float(getattr(self.event, "floor", 0.0))

    @property
    def seeding(self) -> Seeding:
        """Where the randomness came from: only the operating system's entropy hides the input for good."""
        return self.event.seeding

    @property
    def reproducible(self) -> bool:
        """Whether someone who knows how it was seeded could repeat the draw, and so undo it."""
        return self.seeding != "os-entropy"

    @cached_property
    def digest(self) -> str:
        """What a ledger knows the release by: a hash of its numbers and of its event."""
        header, flat, values = self._content()
        return _digest(header, flat, values)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.log_matrix.shape))
        return f"Release({shape}, {self.event.type}, {self.event.headline or 'no settings'}, {self.seeding})"

    def __str__(self) -> str:
        shape = "x".join(map(str, self.log_matrix.shape))
        settings = f", {self.event.headline}" if self.event.headline else ""
        warning = f" ({SEEDED})" if self.reproducible else ""
        return f"{self.event.type.capitalize()} release of a {shape} matrix{settings}{warning}"

    def _repr_html_(self) -> str:
        from dp_ensemble_env.tools.html import card

        rows = [
            ("states", str(self.log_matrix.shape[-2])),
            ("settings", self.event.headline),
            ("seeding", self.seeding),
        ]
        return card(f"{self.event.type.capitalize()} release", rows)

    # ------------------------------------------------------------------ files
    def _content(self) -> tuple[dict[str, Any], NDArray[np.int64], NDArray[np.float64]]:
        flat = np.flatnonzero(self.support)
        header = {"format": FILE_FORMAT, "version": 2, "shape": list(self.log_matrix.shape)}
        return {**header, "event": self.event.to_json()}, flat, self.log_matrix.ravel()[flat]

    def to_json(self) -> dict[str, Any]:
        """Return the release as plain values; JSON has no infinity, so entries outside the support are left out."""
        header, flat, values = self._content()
        return {**header, "sha256": self.digest, "support": flat.tolist(), "log_values": values.tolist()}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Release:
        """Read what `to_json` wrote."""
        header = dict(content)
        flat = np.array(header.pop("support"), dtype=np.int64)
        return cls._from_content(header, flat, np.array(header.pop("log_values"), dtype=np.float64))

    @classmethod
    def _from_content(cls, header: dict[str, Any], flat: NDArray[np.int64], values: NDArray[np.float64]) -> Release:
        if header.get("format") != FILE_FORMAT or header.get("version") not in (1, 2):
            raise ValueError(f"it is not a version-1 or version-2 {FILE_FORMAT} file")
        if header.pop("sha256", None) != _digest(header, flat, values):
            raise ValueError("its checksum does not match its content")
        log_matrix = np.full(int(np.prod(header["shape"])), -np.inf)
        log_matrix[flat] = values
        log_matrix = log_matrix.reshape(header["shape"])
        if header["version"] == 1:  # a Dirichlet release, before there were others
            successors = [int(size) for size in (log_matrix > -np.inf).sum(axis=-1).ravel()]
            settings = {name: header[name] for name in ("k", "floor", "seeding")}
            steps = 1 if log_matrix.ndim == 2 else len(log_matrix)
            header["event"] = {"type": "dirichlet", "successors": successors, "steps": steps, **settings}
        return cls(log_matrix, Event.from_json(header["event"]))

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
        """Read a release written by `save`; a damaged or foreign file is refused.

        So is one of more than a gigabyte, on disk or unpacked; `limits` raises that so many times.
        """
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
                "Release.save, so take a fresh copy from whoever made the release."
            ) from error


def _digest(header: dict[str, Any], flat: NDArray[np.int64], values: NDArray[np.float64]) -> str:
    content = json.dumps({key: header[key] for key in sorted(header) if key != "sha256"}).encode()
    return hashlib.sha256(
        content + np.ascontiguousarray(flat, "<i8").tobytes() + np.ascontiguousarray(values, "<f8").tobytes()
    ).hexdigest()


# ------------------------------------------------------------------ mechanisms
class Mechanism(ABC):
    """Draws private copies of the default behaviour.

    A subclass is a frozen dataclass whose fields are its settings, so that a text such
    as ``"dirichlet:k=50,floor=0.05"`` makes it and `spec` gives the text back.
    """

    #: Its name in the registry.
    name: ClassVar[str]

    @property
    def spec(self) -> str:
        """The text that makes this mechanism again."""
        settings = ",".join(f"{one.name}={getattr(self, one.name):g}" for one in fields(self))  # type: ignore[arg-type]
        return f"{self.name}:{settings}" if settings else self.name

    def data_of(self, model: Any) -> Any:
        """Return what the mechanism draws from, given a model: its default matrix."""
        return model.default

    def terms_of(self, model: Any) -> dict[str, Any]:
        """Return the public terms of a draw for a model, such as its public guess; none by default."""
        return {}

    @abstractmethod
    def event(self, data: Any, *, seeding: Seeding = "os-entropy", **terms: Any) -> Event:
        """Describe a draw from `data` before it happens; settings that cannot be drawn are refused."""

    @abstractmethod
    def draw(self, data: Any, permit: Permit, **terms: Any) -> Release:
        """Make the draw that the permit is for."""

    def release(self, data: Any, rng: Rng = None, **terms: Any) -> Release:
        """Draw one release that no ledger knows of (`PrivacyLedger.release` charges it first).

        Parameters
        ----------
        data
            What the mechanism draws from: for the Dirichlet mechanism the true matrix.
        rng : numpy Generator or int, optional
            By default the operating system's entropy, as a release meant for
            publication needs. A seeded draw can be repeated, and so undone, by
            whoever knows the seed. Equal seeds give equal draws only for equal
            settings and equal data; see `make_permit`.
        **terms
            Public terms of the draw, such as ``support=``.
        """
        event = self.event(data, seeding=seeding_of(rng), **terms)
        return self.draw(data, make_permit(event, rng, data, terms), **terms)
