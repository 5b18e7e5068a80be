"""Gymnasium environments of the ensemble; importing the package registers their ids, which are strings, so it is quick.

`EnsembleEnv`'s docstring is the manual. The environments are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register, registry

from dp_ensemble_env import scenarios
from dp_ensemble_env.scenarios import NAMESPACE
from dp_ensemble_env.tools.registry import lazy

if TYPE_CHECKING:
    from dp_ensemble_env.envs.ensemble import EnsembleEnv, precompile
    from dp_ensemble_env.envs.sb3 import EnsembleVecEnv
    from dp_ensemble_env.envs.vector import EnsembleVectorEnv

__all__ = ["EnsembleEnv", "EnsembleVecEnv", "EnsembleVectorEnv", "environment_ids", "precompile"]
__getattr__, __dir__ = lazy(
    __name__, {"ensemble": ("EnsembleEnv", "precompile"), "vector": ("EnsembleVectorEnv",), "sb3": ("EnsembleVecEnv",)}
)

#: The action modes that every scenario has an id for; the id without one takes signals.
ACTIONS = ("signals", "price", "tilt", "policy", "discrete")
#: What an id without an action mode takes: few numbers, in units that unit noise about zero explores well.
DEFAULT_ACTION = "signals"
#: The environment of the paper.
PAPER = f"{NAMESPACE}/Paper-v1"
PAPER_SETTINGS = {
    "scenario": "campus-event",
    "action": "tilt",
    "reward": "dollars",
    "ahead": 2,
    "privacy": "dirichlet:k=50,floor=0.05,h=0.03",
}


def environment_ids() -> list[str]:
    """Return the ids of all scenarios that Gymnasium knows, and the paper's id."""
    known = scenarios.names()
    ours = {env_id: spec for env_id, spec in registry.items() if spec.namespace == NAMESPACE}
    return [env_id for env_id, spec in ours.items() if spec.kwargs.get("scenario") in known]


def _register_scenario(name: str) -> None:
    """Register the ids of a scenario: ``Spot-v1``, which takes signals, and ``Spot-tilt-v1`` for each action mode."""
    for action in (None, *ACTIONS):
        _register(scenarios.environment_id(name, action), {"scenario": name, "action": action or DEFAULT_ACTION})


def _register(env_id: str, kwargs: dict[str, Any]) -> None:
    if env_id not in registry:
        register(
            env_id,
            entry_point="dp_ensemble_env.envs.ensemble:EnsembleEnv",
            vector_entry_point="dp_ensemble_env.envs.vector:EnsembleVectorEnv",
            kwargs=kwargs,
        )


_register(PAPER, PAPER_SETTINGS)
for _name in scenarios.names():
    _register_scenario(_name)
scenarios.watchers.append(_register_scenario)  # scenarios that are registered later get theirs as they come
