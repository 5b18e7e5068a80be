"""The arguments of an environment: one frozen object, checked once and passed whole."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.envs import actions
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms import Mechanism, Release, as_privacy
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.tools.validation import check_choice, check_count, check_positive

if TYPE_CHECKING:
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

POPULATIONS = ("mean-field", "buildings", "single")
REDRAWS = ("never", "episode")
INFOS = ("basic", "all")
REWARDS = ("dollars", "unit")
DEFAULT_SCENARIO = "campus-event"
#: A release, or what draws one.
Privacy = Mechanism | Release
AnyPath = str | os.PathLike[str]


class Options(TypedDict, total=False):
    """Further arguments of the environments, by keyword; `EnsembleEnv` describes them."""

    instance: int
    split: str
    privacy: Privacy | AnyPath | None
    k: float | None
    floor: float
    release: Release | AnyPath | None
    release_seed: int | None
    redraw: str
    budget: tuple[float, float] | None
    ledger: PrivacyLedger | AnyPath | None
    h: Any
    infos: str
    rewards: str


@dataclass(frozen=True, eq=False)
class EnvSettings:
    """What an environment is made of; see `EnsembleEnv` for the meaning of each.

    `of` makes one from the arguments as users write them. Here `privacy` is a mechanism, a
    release or None, and `model` is a model.
    """

    model: EnsembleModel
    population: str | int = "mean-field"
    action: str = "tilt"
    privacy: Privacy | None = None
    release_seed: int = 0
    redraw: str = "never"
    budget: tuple[float, float] | None = None
    ledger: PrivacyLedger | AnyPath | None = None
    h: Any = None
    infos: str = "basic"
    rewards: str = "dollars"

    def __post_init__(self) -> None:
        check_choice(self.action, "action", actions.names())
        check_choice(self.redraw, "redraw", REDRAWS)
        check_choice(self.infos, "infos", INFOS)
        check_choice(self.rewards, "rewards", REWARDS)
        _ = self.loads  # refuses a population that is none

    @classmethod
    def of(
        cls,
        model: EnsembleModel | str | None = None,
        population: str | int = "mean-field",
        action: str = "tilt",
        **options: Any,
    ) -> EnvSettings:
        """Make the settings from the arguments of an environment; misspelt ones are refused."""
        for name in options:
            try:
                check_choice(name, "argument", Options.__annotations__)
            except ValueError as error:
                # In Python's own words, which other libraries look for.
                raise TypeError(f"got an unexpected keyword argument {name!r}: {error}") from None
        instance, split = options.pop("instance", 0), options.pop("split", "train")
        privacy = _privacy(options)
        seed = options.pop("release_seed", None)
        seed = 0 if seed is None else _check_seed(seed)
        return cls(_model(model, instance, split), population, action, privacy, seed, **options)

    @property
    def loads(self) -> int:
        """Number of loads, 0 for infinitely many."""
        if isinstance(self.population, (int, np.integer)) and not isinstance(self.population, bool):
            return check_count(self.population, "population")
        name = check_choice(self.population, "population", POPULATIONS)
        return {"mean-field": 0, "buildings": self.model.buildings, "single": 1}[name]

    @property
    def kind(self) -> str:
        """Which step moves the population: that of the mean field, of several loads, or of one."""
        return "mean-field" if self.loads == 0 else "single" if self.loads == 1 else "buildings"

    def override(self, **changes: Any) -> EnvSettings:
        """Return the settings with some of them changed."""
        for name in changes:
            check_choice(name, "argument", [one.name for one in fields(self)])
        return replace(self, **changes)


def _model(model: Any, instance: int, split: str) -> EnsembleModel:
    if isinstance(model, EnsembleModel):
        if instance != 0 or split != "train":
            raise ValueError("instance and split choose among a scenario's models; leave them out with a model.")
        return model
    if model is not None and not isinstance(model, str):
        raise ValueError(
            f"model must be an EnsembleModel, the name of a scenario or None (the campus event), got "
            f"{type(model).__name__}; a private matrix goes into privacy=."
        )
    return scenarios.make(DEFAULT_SCENARIO if model is None else model, instance=instance, split=split)


def _privacy(options: dict[str, Any]) -> Privacy | None:
    """Take what concerns privacy out of the options: privacy=, or the shorthands k=, floor= and release=."""
    privacy, release = options.pop("privacy", None), options.pop("release", None)
    k, floor = options.pop("k", None), options.pop("floor", 0.0)
    if privacy is not None and (release is not None or k is not None):
        raise ValueError("privacy= says it all; leave its shorthands k and release out.")
    if release is not None:
        if k is not None or floor != 0.0 or options.get("redraw", "never") != "never":
            raise ValueError(
                "release= is a matrix that was drawn already, so k, floor and redraw have nothing to act on; give "
                "the release alone, or k= to have the environment draw one."
            )
        if not isinstance(release, (Release, str, os.PathLike)):
            raise ValueError(f"release must be a Release or the path of a saved one, got {type(release).__name__}.")
        return release if isinstance(release, Release) else Release.load(release)
    if k is not None:
        return DirichletMechanism(check_positive(k, "k", remedy="pass k=None for the true dynamics"), floor)
    if privacy is None:
        if floor != 0.0 or options.get("redraw", "never") != "never":
            raise ValueError("floor and redraw say how a private matrix is drawn; give k as well, for example k=50.")
        return None
    if floor != 0.0:
        raise ValueError("floor= goes with k=; write it into the text: privacy='dirichlet:k=50,floor=0.05'.")
    return as_privacy(privacy)


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(
            f"release_seed must be a non-negative integer, got {seed!r}; for a draw that nobody can repeat pass "
            "release=DirichletMechanism(k).release(model.default)."
        )
    return int(seed)
