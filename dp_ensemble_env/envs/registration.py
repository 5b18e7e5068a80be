"""The environments' names. Importing this module is quick: entry points are strings."""

from __future__ import annotations

from gymnasium.envs.registration import register, registry

NAMESPACE = "dp_ensemble"
#: Populations by id.
ENVIRONMENTS = {
    f"{NAMESPACE}/MeanField-v0": "mean-field",
    f"{NAMESPACE}/Buildings-v0": "buildings",
    f"{NAMESPACE}/SingleLoad-v0": "single",
}


def register_environments() -> None:
    """Register the ids with Gymnasium, once."""
    for name, population in ENVIRONMENTS.items():
        if name not in registry:
            register(
                name,
                entry_point="dp_ensemble_env.envs.ensemble:EnsembleEnv",
                vector_entry_point="dp_ensemble_env.envs.vector:EnsembleVectorEnv",
                kwargs={"population": population},
            )
