"""The environments' names. Importing this module is quick: entry points are strings."""

from __future__ import annotations

from gymnasium.envs.registration import register, registry

from dp_ensemble_env import scenarios
from dp_ensemble_env.scenarios import NAMESPACE

#: Populations by id: the campus event, version 0.
ENVIRONMENTS = {
    f"{NAMESPACE}/MeanField-v0": "mean-field",
    f"{NAMESPACE}/Buildings-v0": "buildings",
    f"{NAMESPACE}/SingleLoad-v0": "single",
}


def register_environments() -> None:
    """Register the ids with Gymnasium, once; scenarios that are registered later get theirs as they come."""
    for name, population in ENVIRONMENTS.items():
        _register(name, {"population": population})
    for name in scenarios.names():
        register_scenario(name)
    if register_scenario not in scenarios.watchers:
        scenarios.watchers.append(register_scenario)


def register_scenario(name: str) -> None:
    """Register the id of a scenario."""
    _register(scenarios.environment_id(name), {"model": name})


def _register(env_id: str, kwargs: dict[str, str]) -> None:
    if env_id not in registry:
        register(
            env_id,
            entry_point="dp_ensemble_env.envs.ensemble:EnsembleEnv",
            vector_entry_point="dp_ensemble_env.envs.vector:EnsembleVectorEnv",
            kwargs=kwargs,
        )
