"""Problems by name: the door to every scenario.

A scenario is a factory of models with a card that tells its story. Each has an
environment id of its own. One of your own needs one line::

    scenarios.register("two-level", factory, Card(title="Two levels", story="..."))

After it ``gymnasium.make("dp_ensemble/TwoLevel-v0")``, ``EnsembleEnv("two-level")`` and every
command's ``--scenario two-level`` work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
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

__all__ = [
    "SPLITS",
    "Card",
    "Scenario",
    "card",
    "environment_id",
    "has_participants",
    "instances",
    "make",
    "names",
    "participants",
    "register",
    "remove",
    "watchers",
]

#: Instances to train on, to choose settings with, and to report; no two share a seed.
SPLITS = ("train", "validation", "test")
#: How many instances the fixed set of each split has.
_SIZES = {"train": 20, "validation": 10, "test": 20}
NAMESPACE = "dp_ensemble"
#: The recorded probes of all scenarios, and the recorded suite: what agents score on the test instances.
RECORD = Path(__file__).parent / "probes.json"
SUITE = Path(__file__).parent / "suite.json"


@dataclass(frozen=True)
class Card:
    """What one should know of a scenario before using it.

    Attributes
    ----------
    title, story : str
        Its name, and what happens in it, in plain words.
    states : str
        What the states are.
    sources : str
        Where its numbers come from, or that they are synthetic.
    private : str
        What in it is private.
    version : int
        A change of what it means is a new version, and a new environment id.
    probes : dict or None
        What simple controllers score, as ``dp-ensemble scenarios --probe --record`` found it for this version:
        ``"date"``, ``"package"`` and ``"instances"``; `experiments.probes.recorded` reads it.
    learners : dict or None
        What learners reach on the test instances, as ``dp-ensemble suite --record`` found it for this version: for each
        the interquartile mean with its 95 % interval (``"iqm"``, ``"low"``, ``"high"``) and what it was ``"given"``.
    """

    title: str
    story: str
    states: str = ""
    sources: str = ""
    private: str = "the default behaviour"
    version: int = 0
    probes: dict[str, Any] | None = field(default=None, repr=False, compare=False)
    learners: dict[str, dict[str, Any]] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Scenario:
    """A factory ``factory(instance_seed, **overrides) -> EnsembleModel``, its card, and what participants are like.

    The last is a function ``participants(model, count, days, rng)`` that returns the records of each: rows
    (time, context, state, decision). Without it all participants behave as the default says; see `participants`.
    """

    factory: Callable[..., EnsembleModel]
    card: Card
    participants: Callable[..., Any] | None = None


#: Where each built-in scenario lives.
_HOMES = {
    "campus-event": "campus:CAMPUS_EVENT",
    "campus-day": "campus_day:SCENARIO",
    "thermostats": "thermostats:THERMOSTATS",
    "vehicles": "vehicles:VEHICLES",
    "pool-pumps": "pool_pumps:POOL_PUMPS",
    "spot": "spot:SCENARIO",
    "call": "call:SCENARIO",
    "feeder": "feeder:SCENARIO",
    "tracking": "tracking:SCENARIO",
}
_REGISTRY: Registry[Scenario] = Registry("scenario", {name: f"{__name__}.{home}" for name, home in _HOMES.items()})
#: Version in the environment id of each built-in scenario, known without importing it.
_VERSIONS = dict.fromkeys(_HOMES, 1)
#: Scenarios that come with the package, so that their names mean the same everywhere.
BUILT_IN = tuple(_HOMES)
names, remove, watchers = _REGISTRY.names, _REGISTRY.remove, _REGISTRY.watchers


def register(
    name: str, factory: Callable[..., EnsembleModel], card: Card, participants: Callable[..., Any] | None = None
) -> None:
    """Add a scenario of your own.

    Parameters
    ----------
    name : str
        In small letters, such as ``"pool-pumps"``; the id is then ``dp_ensemble/PoolPumps-v0``.
    factory : callable
        ``factory(instance_seed, **overrides)`` returns an `EnsembleModel`; equal seeds give equal models.
    card : Card
    participants : callable, optional
        Simulates participants that differ; see `Scenario`.
    """
    check_instance(card, Card, "card")
    if not callable(factory):
        raise ValueError(f"factory must be a function that returns an EnsembleModel, got {factory!r}.")
    _REGISTRY.register(name, Scenario(factory, card, participants))


def card(name: str) -> Card:
    """Return the card of a scenario, with what was recorded of this version."""
    found = _REGISTRY[name].card
    record = _recorded().get(name) if found.probes is None else None
    if record is not None and record["version"] == found.version:
        found = replace(found, probes=record)
    reached = _reached().get(name) if found.learners is None else None
    if reached is not None and reached["version"] == found.version:
        found = replace(found, learners=reached["learners"])
    return found


@lru_cache(maxsize=1)
def _recorded() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return content


@lru_cache(maxsize=1)
def _reached() -> dict[str, Any]:
    """Return what the learners of the recorded suite reach, by scenario."""
    content: dict[str, Any] = json.loads(SUITE.read_text(encoding="utf-8")) if SUITE.exists() else {}
    given: dict[str, str] = content.get("learners", {})
    found = {name: {"version": number, "learners": {}} for name, number in content.get("scenario_versions", {}).items()}
    for entry in content.get("entries", ()):
        if entry["agent"] in given:
            score = {key: entry[key] for key in ("iqm", "low", "high")}
            found[entry["scenario"]]["learners"][entry["agent"]] = {**score, "given": given[entry["agent"]]}
    return found


def make(name: str, *, instance: int = 0, split: str = "train", **overrides: Any) -> EnsembleModel:
    """Make the model of a scenario.

    Parameters
    ----------
    name : str
        One of `names`.
    instance : int
        Which of its instances; equal numbers give equal models.
    split : {"train", "validation", "test"}
        The set that the instance belongs to. The sets are disjoint.
    **overrides
        Settings of the scenario.

    Examples
    --------
    >>> make("campus-event").n_states
    20
    """
    number = check_count(instance, "instance", 0, 999_999)
    seed = number + 1_000_000 * SPLITS.index(check_choice(split, "split", SPLITS))
    return _REGISTRY[name].factory(seed, **overrides)


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
    """Simulate participants of a scenario, for experiments with the mechanisms that protect them.

    Each lives `days` episodes under the default behaviour, nature and the contexts, which are common to
    all participants of a day. Where the scenario knows how its participants differ, they do.

    Parameters
    ----------
    model : EnsembleModel or str
        A model, whose participants are all alike, or the name of a scenario.
    n : int
        How many participants.
    seed : int, sequence of int, or numpy Generator
    days : int
    heterogeneity : float, optional
        Rows of each participant are drawn from Dir(heterogeneity · default): the smaller, the more they differ. By
        default as the scenario says, and alike where it does not.
    instance, split
        Of the scenario; see `make`.

    Examples
    --------
    >>> fleet = participants("campus-event", 3, days=2)
    >>> fleet.counts.sum(axis=(1, 2)).tolist()
    [36, 36, 36]
    """
    import numpy as np

    from dp_ensemble_env.scenarios import fleets

    rng, hook = np.random.default_rng(seed), None
    if isinstance(model, str):
        hook = _REGISTRY[model].participants if heterogeneity is None else None
        model = make(model, instance=instance, split=split)
    if hook is None:
        return fleets.live(model, n, days, rng, np.inf if heterogeneity is None else heterogeneity)
    return fleets.from_records(model, hook(model, n, days, rng))


def has_participants(name: str) -> bool:
    """Whether a scenario knows how its participants differ."""
    return _REGISTRY[name].participants is not None


def instances(split: str) -> range:
    """Return the numbers of the instances of a split: what results are reported on, always the same.

    Examples
    --------
    >>> [len(instances(split)) for split in SPLITS]
    [20, 10, 20]
    """
    return range(_SIZES[check_choice(split, "split", SPLITS)])


def environment_id(name: str, action: str | None = None) -> str:
    """Return the id of a scenario's environment, such as ``dp_ensemble/CampusEvent-v1``, or of an action mode's."""
    version = _VERSIONS[name] if name in _VERSIONS else card(name).version
    words = "".join(word[:1].upper() + word[1:] for word in name.replace("_", "-").split("-"))
    return f"{NAMESPACE}/{words}-v{version}" if action is None else f"{NAMESPACE}/{words}-{action}-v{version}"
