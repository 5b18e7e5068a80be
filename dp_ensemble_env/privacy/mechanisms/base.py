"""What every mechanism promises: an event that describes a draw, its losses, a permit to make it, and a release.

The order is the same everywhere, and `PrivacyLedger.release` does all three::

    event = mechanism.event(data)          # what is about to be drawn; nothing of the data but what is public
    permit = ledger.charge(event)          # refused, or on record
    release = mechanism.draw(data, permit)  # only now

A mechanism never reports its own epsilon: its event states the losses of one draw, which are data of a closed family
(`accounting.losses`), and the ledger composes them.
"""

from __future__ import annotations

import builtins
import hashlib
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from dp_ensemble_env.privacy.accounting.losses import Losses, NoBound, from_fields
from dp_ensemble_env.privacy.adjacency import NeighboringRelation
from dp_ensemble_env.tools.validation import check_choice, check_rng

if TYPE_CHECKING:
    from dp_ensemble_env.privacy.release import Release

Seeding = Literal["os-entropy", "seed", "generator"]
SEEDINGS: tuple[str, ...] = ("os-entropy", "seed", "generator")
SEEDED = "seeded, so not private: anyone who knows the seed can remove the noise"
Rng = np.random.Generator | int | None
#: Terms that are not hashed into the stream: what is claimed about a draw, and a model, whose public part is hashed by
#: the event, while the rest must not move the draw.
CLAIMS = ("h", "entries", "model")


def hash_of(content: dict[str, Any]) -> str:
    """Hash plain values, as a file has them."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# ------------------------------------------------------------------ events
@dataclass(frozen=True, kw_only=True)
class Event:
    """The description of a draw: everything that determines its privacy cost, and no private data.

    A subclass names its type, ``class MyEvent(Event, type="mine")``, and states its `losses`. Its fields are numbers,
    texts and tuples of them. A process that does not know the type reads it as a `StoredEvent`, with its losses.
    """

    seeding: Seeding = "os-entropy"  #: Where the randomness comes from.
    type: ClassVar[str] = ""
    draws: ClassVar[bool] = True  #: Whether something is drawn; a disclosure is no draw.
    random: ClassVar[bool] = True  #: Whether the draw is random; one that is not has no seeding.
    #: Which data sets count as neighbours; None where nothing is claimed.
    relation: ClassVar[NeighboringRelation | None] = None
    #: What to do when a budget does not allow the draw.
    remedy: ClassVar[str] = "use an earlier release (post-processing is free), or a noisier setting"
    _types: ClassVar[dict[str, builtins.type[Event]]] = {}

    def __init_subclass__(cls, *, type: str = "", draws: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if (known := Event._types.get(type)) is not None and known.__qualname__ != cls.__qualname__:
            raise ValueError(f"there is an event of the type {type!r} already; name yours differently.")
        cls.type, cls.draws = type, draws
        if type:  # else what several types share
            Event._types[type] = cls

    def __post_init__(self) -> None:
        check_choice(self.seeding, "seeding", SEEDINGS)

    def losses(self) -> Losses:
        """Return the privacy losses of one such draw."""
        remedy = f"give {type(self).__name__} a method losses() that returns Losses.of({{loss: number}})"
        raise ValueError(f"no privacy cost is known for a {self.type!r} event; {remedy}.")

    def stream_key(self) -> dict[str, Any]:
        """Return the fields that are hashed, with the data, into the random stream of a seeded draw.

        **Frozen**: another name or value here changes every seeded release.
        """
        return self.drawn.to_fields()

    def to_fields(self) -> dict[str, Any]:
        """Return type and fields as plain values."""
        return {"type": self.type, **asdict(self)}

    def to_json(self) -> dict[str, Any]:
        """Return type, fields and losses as plain values."""
        return {**self.to_fields(), "losses": self.losses().to_json()}

    @staticmethod
    def from_json(content: dict[str, Any]) -> Event:
        """Read what `to_json` wrote; the losses of a known type are computed again and must agree."""
        from dp_ensemble_env.privacy import mechanisms

        values = dict(content)
        stored, name = Losses.from_json(values.pop("losses", None)), values.pop("type", None)
        if not (isinstance(name, str) and name and name.isascii() and name.isprintable()):  # or it looks like another
            raise ValueError(f"the type of an event is a text of plain letters, got {name!r}")
        registered = {*mechanisms.names(), *Event._types}
        if name not in registered and (alike := name.strip().lower()) in registered:
            raise ValueError(f"the type of an event is {alike!r}, not {name!r}")  # its losses would go unchecked
        if name not in Event._types and name in registered:
            mechanisms.kind(name)  # its module defines the type
        if name not in Event._types:
            text = json.dumps(values, sort_keys=True)
            return StoredEvent(of_type=name, content=text, stored=stored, seeding=values.get("seeding", "os-entropy"))
        event: Event = from_fields(Event._types[name], f"a {name} event", values)
        if not event.losses().agree(stored):
            raise ValueError(f"the losses that are stored with a {name} event are not its own")
        return event

    @property
    def digest(self) -> str:
        """Hash of the whole description."""
        return hash_of(self.to_fields())

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return ""

    @classmethod
    def claims(cls, events: Sequence[Any], rows: str | int) -> tuple[str, list[str]]:
        """Describe draws of this type: settings, to follow "3 releases", and the terms of the claim."""
        return f" by the {cls.type} mechanism", []

    @property
    def drawn(self) -> Event:
        """The draw itself, without claims about it, such as an adjacency."""
        return self

    @property
    def public(self) -> Event:
        """The event without values computed from private data."""
        return self

    def under(self, h: Any = None, entries: str | None = None) -> Event:
        """Return the same draw under another adjacency, if the mechanism allows it."""
        if h is not None or entries is not None:
            raise ValueError(f"a {self.type} release fixes its own adjacency; leave h and entries out.")
        return self


@dataclass(frozen=True, kw_only=True)
class Disclosure(Event, type="deterministic", draws=False):
    """A deterministic function of the true data was published (E8): nothing bounds what it tells."""

    remedy = "no budget allows a deterministic function of the true data; publish results computed from a release"

    def losses(self) -> Losses:
        """Return a loss without a bound."""
        return Losses.of({NoBound(): 1})  # E8


@dataclass(frozen=True, kw_only=True)
class StoredEvent(Event):
    """An event whose type is not known here, as a file has it: its fields are kept, its losses are composed."""

    of_type: str
    content: str  #: The fields, as JSON.
    stored: Losses

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "type", self.of_type)

    def losses(self) -> Losses:
        """Return the stored losses."""
        return self.stored

    def to_fields(self) -> dict[str, Any]:
        """Return type and fields as they were read."""
        return {"type": self.of_type, **json.loads(self.content)}

    @property
    def headline(self) -> str:
        """The settings in a few words."""
        return ", ".join(f"{name}={value}" for name, value in json.loads(self.content).items() if name != "seeding")

    @classmethod
    def claims(cls, events: Sequence[Any], rows: str | int) -> tuple[str, list[str]]:
        """Name the mechanism, and where its price comes from."""
        name = events[0].type
        return f" by the {name} mechanism", [f"type {name!r} is unknown here: composed from the losses stored with it"]


# ------------------------------------------------------------------ permits
@dataclass(frozen=True, eq=False)
class Permit:
    """Permission for the draws that a ledger has on record, with their event and their source of randomness."""

    event: Event
    rng: np.random.Generator = field(repr=False)
    times: int = 1
    _used: list[Event] = field(default_factory=list, init=False, repr=False)

    def covers(self, event: Event) -> None:
        """Refuse a draw that differs from the charged event, or exceeds the number of charged draws."""
        if self.event.drawn != event.drawn:
            raise ValueError(
                f"the permit is for {self.event}, not for {event}; charge the event of this very draw to the ledger."
            )
        if len(self._used) >= self.times:
            made = f"{self.times} draw{'s' * (self.times != 1)}, made already"
            raise ValueError(f"the permit was for {made}; charge the next one to the ledger.")
        self._used.append(event)


def seeding_of(rng: Rng) -> Seeding:
    """Name where the randomness of a draw comes from."""
    return "os-entropy" if rng is None else "generator" if isinstance(rng, np.random.Generator) else "seed"


def make_permit(event: Event, rng: Rng, data: Any, terms: Mapping[str, Any] | None = None, times: int = 1) -> Permit:
    """Return the permit for `times` draws from `data`; whoever calls this has charged them, or runs an experiment.

    **No two draws share a stream of random numbers.** Two releases of one stream at different settings can be solved
    for the true data, and two from different data differ by just what the data differ by, whether or not anyone knows
    the seed. So a seed, or the next numbers of a `Generator`, is mixed with the event of the draw, its terms (support,
    clip, ...; the adjacency is but a claim) and the data.
    """
    return Permit(event, stream_of(rng, stream_identity(event, rng, data, terms)), times)


def stream_identity(event: Event, rng: Rng, data: Any, terms: Mapping[str, Any] | None = None) -> list[int]:
    """Return what tells the stream of this draw from others; no random number is taken yet."""
    if rng is None:
        return []
    check_rng(rng)  # refuses what is no seed
    if data is None:
        raise ValueError("the stream of a seeded draw depends on its data; pass charge(event, rng=rng, data=data).")
    given = {name: value for name, value in (terms or {}).items() if name not in CLAIMS and value is not None}
    drawn = {name: fingerprint(given[name]) for name in sorted(given)}
    identity = hashlib.sha256(f"{hash_of(event.stream_key())} {drawn} {fingerprint(data)}".encode()).digest()
    return [int(word) for word in np.frombuffer(identity, "<u4")]


def stream_of(rng: Rng, identity: list[int]) -> np.random.Generator:
    """Return the random stream of a draw."""
    if rng is None:
        return np.random.default_rng()
    seed = rng.integers(2**32, size=8).tolist() if isinstance(rng, np.random.Generator) else [int(rng)]
    return np.random.default_rng([*seed, *identity])


def check_terms(mechanism: Mechanism, terms: Mapping[str, Any]) -> None:
    """Refuse a term of a draw that the mechanism does not know; a misspelt one would change nothing, silently."""
    known = inspect.signature(mechanism.event).parameters
    if all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in known.values()):
        own = [name for name in known if name not in ("data", "seeding")]
        for name in terms:
            check_choice(name, f"term of a {mechanism.name} draw", own)


def fingerprint(data: Any) -> str:
    """Return a hash of private data: their own ``fingerprint``, or that of an array. It never leaves."""
    own = data if isinstance(data, str) else getattr(data, "fingerprint", None)
    if isinstance(own, str):
        return own
    try:
        array = np.ascontiguousarray(data, dtype="<f8")
    except (TypeError, ValueError) as error:
        kind = type(data).__name__
        raise ValueError(f"{kind} is not an array; give it a `fingerprint`, the hash of its content.") from error
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()


# ------------------------------------------------------------------ mechanisms
class Mechanism(ABC):
    """Draws private copies of the default behaviour.

    A subclass is a frozen dataclass whose fields are its settings, so that a text such as
    ``"dirichlet:k=50,floor=0.05"`` makes it and `spec` gives the text back.
    """

    name: ClassVar[str]  #: Its name in the registry.
    of_fleet: ClassVar[bool] = False  #: Whether it draws from participants.

    @property
    def spec(self) -> str:
        """The text that makes this mechanism again."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        digits = {name: f"{x:g}" if float(f"{x:g}") == x else repr(x) for name, x in given.items() if x is not None}
        settings = ",".join(f"{name}={text}" for name, text in digits.items())
        return f"{self.name}:{settings}" if settings else self.name

    def data_of(self, model: Any) -> Any:
        """Return the data from which the mechanism draws, given a model: its default matrix."""
        return model.default

    def terms_of(self, model: Any) -> dict[str, Any]:
        """Return the public terms of a draw for a model, such as its public guess; none by default."""
        return {}

    @abstractmethod
    def event(self, data: Any, *args: Any, **terms: Any) -> Event:
        """Describe a draw from `data` before it happens; refuse impossible settings.

        A mechanism names its terms, ``seeding="os-entropy"`` first; others are refused.
        """

    @abstractmethod
    def draw(self, data: Any, permit: Permit, *args: Any, **terms: Any) -> Release:
        """Make the draw that the permit is for."""

    def release(self, data: Any, rng: Rng = None, **terms: Any) -> Release:
        """Draw one release without a ledger (`PrivacyLedger.release` charges it first).

        Without `rng` the randomness comes from the operating system, as publication requires: anyone who knows the seed
        of a seeded draw can remove its noise. `terms` are public terms of the draw, such as ``support=``.
        """
        check_terms(self, terms)
        event = self.event(data, seeding=seeding_of(rng), **terms)
        return self.draw(data, make_permit(event, rng, data, terms), **terms)
