"""Problems by name: the door to every scenario.

A scenario is a factory of models with a card that tells its story. Each has an
environment id of its own. One of your own needs one line::

    scenarios.register("two-level", factory, Card(title="Two levels", story="..."))

After it ``gymnasium.make("dp_ensemble/TwoLevel-v0")``, ``EnsembleEnv("two-level")`` and every
command's ``--scenario two-level`` work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dp_ensemble_env._registry import Registry
from dp_ensemble_env._validation import check_choice, check_count, check_instance

if TYPE_CHECKING:
    from dp_ensemble_env.model import EnsembleModel

__all__ = [
    "SPLITS",
    "Card",
    "Scenario",
    "card",
    "environment_id",
    "instances",
    "make",
    "names",
    "register",
    "remove",
    "watchers",
]

#: Instances to train on, to choose settings with, and to report; no two share a seed.
SPLITS = ("train", "validation", "test")
#: How many instances the fixed set of each split has.
_SIZES = {"train": 20, "validation": 10, "test": 20}
NAMESPACE = "dp_ensemble"


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
    """

    title: str
    story: str
    states: str = ""
    sources: str = ""
    private: str = "the default behaviour"
    version: int = 0


@dataclass(frozen=True)
class Scenario:
    """A factory ``factory(instance_seed, **overrides) -> EnsembleModel``, and its card."""

    factory: Callable[..., EnsembleModel]
    card: Card


#: Where each built-in scenario lives.
_HOMES = {
    "campus-event": "campus:CAMPUS_EVENT",
    "campus-day": "campus_day:SCENARIO",
    "thermostats": "thermostats:THERMOSTATS",
    "vehicles": "vehicles:VEHICLES",
    "pool-pumps": "pool_pumps:POOL_PUMPS",
}
_REGISTRY: Registry[Scenario] = Registry("scenario", {name: f"{__name__}.{home}" for name, home in _HOMES.items()})
#: Version in the environment id of each built-in scenario, known without importing it.
_VERSIONS = dict.fromkeys(_HOMES, 1)
names, remove, watchers = _REGISTRY.names, _REGISTRY.remove, _REGISTRY.watchers


def register(name: str, factory: Callable[..., EnsembleModel], card: Card) -> None:
    """Add a scenario of your own.

    Parameters
    ----------
    name : str
        In small letters, such as ``"pool-pumps"``; the id is then ``dp_ensemble/PoolPumps-v0``.
    factory : callable
        ``factory(instance_seed, **overrides)`` returns an `EnsembleModel`; equal seeds give equal models.
    card : Card
    """
    check_instance(card, Card, "card")
    if not callable(factory):
        raise ValueError(f"factory must be a function that returns an EnsembleModel, got {factory!r}.")
    _REGISTRY.register(name, Scenario(factory, card))


def card(name: str) -> Card:
    """Return the card of a scenario."""
    return _REGISTRY[name].card


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


def instances(split: str) -> range:
    """Return the numbers of the instances of a split: what results are reported on, always the same.

    Examples
    --------
    >>> [len(instances(split)) for split in SPLITS]
    [20, 10, 20]
    """
    return range(_SIZES[check_choice(split, "split", SPLITS)])


def environment_id(name: str, action: str | None = None) -> str:
    """Return the id of a scenario's environment, such as ``dp_ensemble/CampusEvent-v1``, or that of an action mode."""
    version = _VERSIONS[name] if name in _VERSIONS else card(name).version
    words = "".join(word[:1].upper() + word[1:] for word in name.replace("_", "-").split("-"))
    return f"{NAMESPACE}/{words}-v{version}" if action is None else f"{NAMESPACE}/{words}-{action}-v{version}"
