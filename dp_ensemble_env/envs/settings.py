"""The arguments of an environment: one frozen object, checked once and passed whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.tables import AHEAD
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms import Mechanism, as_privacy
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.validation import check_choice, check_count, option

if TYPE_CHECKING:
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

POPULATIONS = ("mean-field", "single")
REDRAWS = ("never", "episode")
INFOS = ("basic", "all")
REWARDS = ("points", "dollars")
#: A release, or what draws one.
Privacy = Mechanism | Release
AnyPath = str | os.PathLike[str]


class Options(TypedDict, total=False):
    """Further arguments of the environments, by keyword; `EnsembleEnv` describes them."""

    scenario: str | None
    instance: int | None
    split: str
    reward: str
    ahead: int
    privacy: Privacy | AnyPath | None
    ledger: PrivacyLedger | AnyPath | None
    release_seed: int | None
    redraw: str
    infos: str


@dataclass(frozen=True, eq=False)
class EnvSettings:
    """What an environment is made of; `of` makes it from the arguments as users write them (`EnsembleEnv`).

    `models` holds one model, or the instances among which each episode draws, `scenario` the name of the scenario that
    they come from, if they were chosen by it, and `privacy` a mechanism or a release.
    """

    models: tuple[EnsembleModel, ...]
    population: str | int = "mean-field"
    action: str = "tilt"
    reward: str = "points"
    ahead: int = AHEAD
    privacy: Privacy | None = None
    ledger: PrivacyLedger | AnyPath | None = None
    release_seed: int = 0
    redraw: str = "never"
    infos: str = "basic"
    scenario: str | None = None

    def __post_init__(self) -> None:
        check_choice(self.action, "action", actions.names())
        check_choice(self.reward, "reward", REWARDS)
        check_choice(self.redraw, "redraw", REDRAWS)
        check_choice(self.infos, "infos", INFOS)
        check_count(self.ahead, "ahead", 0)
        _ = self.loads  # raises if it is not a population
        if self.privacy is None and (self.redraw != "never" or self.ledger is not None):
            raise ValueError(
                "redraw and ledger concern private releases; give privacy as well, for example "
                "privacy='dirichlet:k=50,floor=0.05'."
            )
        if isinstance(self.privacy, Release) and self.redraw != "never":
            raise ValueError("a release was drawn already; pass a mechanism for redraw='episode'.")
        if self.privacy is not None and len(self.models) > 1:
            raise ValueError("a release belongs to one instance; choose it: instance=0, or pass one model.")

    @classmethod
    def of(
        cls,
        model: EnsembleModel | Sequence[EnsembleModel] | str | None = None,
        population: str | int = "mean-field",
        action: str = "tilt",
        **options: Any,
    ) -> EnvSettings:
        """Make the settings from the arguments of an environment; misspelt ones are refused."""
        for name in options:
            try:
                check_choice(name, "argument", Options.__annotations__)
            except ValueError as error:  # in Python's own words, which other libraries look for
                raise TypeError(f"got an unexpected keyword argument {name!r}: {error}") from None
        scenario, split = options.pop("scenario", None), options.pop("split", "train")
        models = _models(model, scenario, options.pop("instance", 0), split)
        options["scenario"] = model if isinstance(model, str) else scenario
        privacy, seed = options.pop("privacy", None), options.pop("release_seed", None)
        options["privacy"] = None if privacy is None else as_privacy(privacy)
        options["release_seed"] = 0 if seed is None else _check_seed(seed)
        return cls(models, population, action, **options)

    @property
    def loads(self) -> int:
        """Number of loads, 0 for infinitely many."""
        if isinstance(self.population, str):
            return POPULATIONS.index(check_choice(self.population, "population", POPULATIONS))
        if isinstance(self.population, bool) or not isinstance(self.population, (int, np.integer)):
            raise ValueError(f"population must be 'mean-field', 'single' or a whole number, got {self.population!r}.")
        return check_count(self.population, "population")


def _models(model: Any, scenario: str | None, instance: int | None, split: str) -> tuple[EnsembleModel, ...]:
    if scenario is not None and model is not None:
        raise ValueError(
            f"this id plays the scenario {scenario!r}, so model= has no place; use another id, or EnsembleEnv(model)."
        )
    if isinstance(model, (EnsembleModel, list, tuple)):
        if instance != 0 or split != "train":
            raise ValueError("instance and split choose among a scenario's models; leave them out with a model.")
        models = (model,) if isinstance(model, EnsembleModel) else tuple(model)
        if not models or not all(isinstance(one, EnsembleModel) for one in models):
            raise ValueError(f"several models are a list of at least one EnsembleModel, got {model!r}.")
        return models
    name = scenario if model is None else model
    if not isinstance(name, str):
        raise ValueError(
            f"model must be an EnsembleModel or the name of a scenario, got {type(model).__name__}; a private matrix "
            "goes into privacy=."
        )
    check_choice(split, "split", scenarios.SPLITS)
    if instance is None:
        return scenarios.make_all(name, split)
    return (scenarios.make(name, instance=instance, split=split),)


def _check_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(
            f"release_seed must be a non-negative integer, got {seed!r}; for a draw that nobody can repeat give "
            f"{option('privacy')} a release that was drawn without a seed."
        )
    return int(seed)
