"""Problems by name: the registry of scenarios.

A scenario is a factory of models with a card and an environment id. To add your own, write one line::

    scenarios.register("two-level", factory, Card(title="Two levels", story="..."))

Then ``gymnasium.make("dp_ensemble/TwoLevel-v0")``, ``EnsembleEnv("two-level")`` and every
command's ``--scenario two-level`` work.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_ensemble_env.tools.registry import Registry
from dp_ensemble_env.tools.validation import check_choice, check_count, check_instance

if TYPE_CHECKING:
    import numpy as np

    from dp_ensemble_env.model import EnsembleModel
    from dp_ensemble_env.privacy.fleet import Fleet

#: Instances to train on, to choose settings with, and to report, which share no seed; how many results are about.
_SIZES = {"train": 20, "validation": 10, "test": 20}
SPLITS = tuple(_SIZES)
#: Separate instances from which the signals of a scenario's environments were computed.
DESIGN, _DESIGN_SIZE = "design", 8
NAMESPACE = "dp_ensemble"
#: The recorded probes of all scenarios.
RECORD = Path(__file__).parent / "probes.json"
#: Tests and PPO score of each scenario; `make scenario-pages` writes the file.
LISTING = Path(__file__).parent / "listing.json"


@dataclass(frozen=True)
class Card:
    """The description of a scenario in plain words: name, loads and story."""

    title: str
    story: str
    states: str = ""
    sources: str = ""
    """Sources of the numbers, or that they are synthetic."""
    private: str = "the default behaviour"
    version: int = 0
    """A scenario whose meaning changes gets a new version, and a new environment id."""
    probes: dict[str, Any] | None = field(default=None, repr=False, compare=False)
    """Recorded scores of simple controllers for this version: ``"date"``, ``"package"`` and ``"instances"``."""
    load: str = "loads"


@dataclass(frozen=True)
class Scenario:
    """A factory ``factory(instance_seed, **overrides) -> EnsembleModel``, its card, and how participants differ.

    ``participants(model, count, days, rng)`` returns the records of each participant: rows (time, context, state,
    decision). Without it all participants follow the default; see `participants`. `memories` names memories for an
    agent, ``(follow, first)`` of `Context.remembering`, which the probes score.
    """

    factory: Callable[..., EnsembleModel]
    card: Card
    participants: Callable[..., Any] | None = None
    memories: Mapping[str, tuple[Any, int]] = field(default_factory=dict)


#: The scenarios of the package: the module with its `SCENARIO`, and the version in the ids, known without importing it.
_HOMES = {
    "campus-event": ("campus", 1),
    "campus-day": ("campus_day", 1),
    "thermostats": ("thermostats", 1),
    "vehicles": ("vehicles", 1),
    "pool-pumps": ("pool_pumps", 1),
    "spot": ("spot", 1),
    "call": ("call", 1),
    "feeder": ("feeder", 1),
    "tracking": ("tracking", 1),
    "front": ("front", 1),
    "depot": ("depot", 1),
}
#: Their names mean the same everywhere.
BUILT_IN = tuple(_HOMES)
_REGISTRY: Registry[Scenario] = Registry(
    "scenario", {name: f"{__name__}.{module}:SCENARIO" for name, (module, _) in _HOMES.items()}
)
names, remove, watchers = _REGISTRY.names, _REGISTRY.remove, _REGISTRY.watchers


def register(
    name: str, factory: Callable[..., EnsembleModel], card: Card, participants: Callable[..., Any] | None = None
) -> None:
    """Register your own scenario; ``"pool-pumps"`` gets the id ``dp_ensemble/PoolPumps-v0``.

    See `Scenario`; equal seeds must give equal models.
    """
    check_instance(card, Card, "card")
    if not callable(factory):
        raise ValueError(f"factory must be a function that returns an EnsembleModel, got {factory!r}.")
    _REGISTRY.register(name, Scenario(factory, card, participants))


def card(name: str) -> Card:
    """Return the card of a scenario, with the records of this version."""
    entry = _REGISTRY[name].card
    probes = _content(RECORD).get(name)
    if entry.probes is None and probes is not None and probes["version"] == entry.version:
        entry = replace(entry, probes=probes)
    return entry


def listing(name: str) -> dict[str, Any]:
    """Return a scenario's record for the list, ``"tests"`` and ``"ppo"``; empty if there is none."""
    entry: dict[str, Any] = _content(LISTING).get(name, {})
    return entry


@lru_cache(maxsize=2)
def _content(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content


def make(name: str, *, instance: int = 0, split: str = "train", **overrides: Any) -> EnsembleModel:
    """Make the model of a scenario; `overrides` are its settings.

    `instance` is a number within one of the disjoint `SPLITS`; equal numbers give equal models.

    Examples
    --------
    >>> make("campus-event").n_states
    20
    """
    number = check_count(instance, "instance", 0, 999_999)
    splits = (*SPLITS, DESIGN)
    seed = number + 1_000_000 * splits.index(check_choice(split, "split", splits))
    factory = _REGISTRY[name].factory
    known = inspect.signature(factory).parameters
    if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in known.values()):
        for setting in overrides:  # a factory that takes any keyword refuses misspelt ones itself
            check_choice(setting, f"setting of the scenario {name!r}", list(known)[1:])
    return factory(seed, **overrides).override(scenario=name)


def make_all(name: str, split: str = "train") -> tuple[EnsembleModel, ...]:
    """Return the models of all instances of a split, cached because making and solving them takes seconds."""
    return _made(_REGISTRY[name].factory, name, split)


@lru_cache(maxsize=4)
def _made(factory: Callable[..., EnsembleModel], name: str, split: str) -> tuple[EnsembleModel, ...]:
    return tuple(make(name, instance=i, split=split) for i in instances(split))


def participants(
    model: EnsembleModel | str,
    n: int,
    seed: int | Sequence[int] | np.random.Generator = 0,
    *,
    days: int = 30,
    heterogeneity: float | None = None,
    instance: int = 0,
    split: str = "train",
) -> Fleet:
    """Simulate `n` participants of a model, or of a scenario by name, for experiments with mechanisms.

    Each participant lives through `days` episodes; all meet the same contexts. With `heterogeneity`, the rows of each
    participant are drawn from Dir(heterogeneity · default): a smaller value makes participants differ more. By default
    they differ as the scenario says; for a model, or if the scenario says nothing, they are alike.
    """
    import numpy as np

    from dp_ensemble_env.privacy.participants import from_records, live

    rng, hook = np.random.default_rng(seed), None
    if isinstance(model, str):
        hook = _REGISTRY[model].participants if heterogeneity is None else None
        model = make(model, instance=instance, split=split)
    if hook is None:
        return live(model, n, days, rng, np.inf if heterogeneity is None else heterogeneity)
    return from_records(model, hook(model, n, days, rng))


def factory(name: str) -> Callable[..., EnsembleModel]:
    """Return the function that makes the models of a scenario."""
    return _REGISTRY[name].factory


def has_participants(name: str) -> bool:
    """Tell whether a scenario says how its participants differ."""
    return _REGISTRY[name].participants is not None


def memories(name: str | None) -> Mapping[str, tuple[Any, int]]:
    """Return the memories that a scenario describes; empty for a model without a scenario."""
    return _REGISTRY[name].memories if name in names() else {}


def instances(split: str) -> range:
    """Return the numbers of the instances of a split, which are fixed."""
    return range(_DESIGN_SIZE if split == DESIGN else _SIZES[check_choice(split, "split", SPLITS)])


def environment_id(name: str, action: str | None = None) -> str:
    """Return the id of a scenario's environment, such as ``dp_ensemble/CampusEvent-v1``, or of an action mode's."""
    version = _HOMES[name][1] if name in _HOMES else _REGISTRY[name].card.version
    words = "".join(word[:1].upper() + word[1:] for word in name.replace("_", "-").split("-"))
    return f"{NAMESPACE}/{words}-v{version}" if action is None else f"{NAMESPACE}/{words}-{action}-v{version}"
