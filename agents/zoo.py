r"""Settings of the learners for RL Baselines3 Zoo: every environment id of the package, every learner of a library.

`rl_zoo3` reads a module for each algorithm; they exist as soon as this one is imported (docs/libraries/rl_zoo3.md)::

    python -m rl_zoo3.train --algo ppo --env dp_ensemble/Spot-v1 \
        --gym-packages dp_ensemble_env -conf dp_ensemble_env.agents.zoo.ppo
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from gymnasium.envs.registration import registry

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents.learners import LIBRARIES, MEAN_FIELD, Settings, algorithm_class, tuned_settings
from dp_ensemble_env.envs import environment_ids


class ZooSettings(Mapping[str, Settings]):
    """Settings of an algorithm by environment id in the words of `rl_zoo3`; the library's own where none are recorded.

    `rl_zoo3` writes into the settings it reads, and a second experiment of the same process reads them again: every
    access makes them anew. ``cosines`` are an action mode, which the id decides: they are left out.
    """

    def __init__(self, algo: str) -> None:
        self.algo = algo

    def __iter__(self) -> Iterator[str]:
        return iter(environment_ids())

    def __len__(self) -> int:
        return len(environment_ids())

    def __getitem__(self, env_id: str) -> Settings:
        if env_id not in environment_ids():
            raise KeyError(env_id)
        scenario, action = (registry[env_id].kwargs[name] for name in ("scenario", "action"))
        try:
            tuned = tuned_settings(self.algo, MEAN_FIELD, action, scenario)
        except ValueError:  # not for these actions, as the library will say
            tuned = {"n_timesteps": 100_000}
        settings = {"policy": next(iter(algorithm_class(self.algo).policy_aliases)), **tuned}
        settings.pop("cosines", None)
        bins = settings.pop("bins", None)
        settings["env_wrapper"] = [] if bins is None else [{"gymnasium.wrappers.DiscretizeAction": {"bins": bins}}]
        if settings.pop("clock", False):
            from dp_ensemble_env.agents.sb3 import clock_kwargs

            settings["policy_kwargs"] = {**settings.get("policy_kwargs", {}), **clock_kwargs(scenarios.make(scenario))}
        return settings


def __getattr__(name: str) -> Any:
    """Return the module of an algorithm, such as ``ppo``; a minus in its name becomes an underscore."""
    for algo in LIBRARIES:
        if name == algo.replace("-", "_"):
            module = ModuleType(f"{__name__}.{name}", f"For rl_zoo3: -conf {__name__}.{name}")
            module.hyperparams = ZooSettings(algo)  # type: ignore[attr-defined]
            return sys.modules.setdefault(module.__name__, module)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


for _name in LIBRARIES:  # so that ``import dp_ensemble_env.agents.zoo.ppo`` is found
    __getattr__(_name.replace("-", "_"))
