"""Gymnasium environments of the ensemble; importing the package registers their ids.

`EnsembleEnv`'s docstring is the manual. The names below are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dp_ensemble_env.envs.registration import environment_ids, register_environments

if TYPE_CHECKING:
    from dp_ensemble_env.envs.ensemble import EnsembleEnv
    from dp_ensemble_env.envs.sb3 import EnsembleVecEnv
    from dp_ensemble_env.envs.vector import EnsembleVectorEnv

_HOME = {"EnsembleEnv": "ensemble", "EnsembleVectorEnv": "vector", "EnsembleVecEnv": "sb3"}

__all__ = ["EnsembleEnv", "EnsembleVecEnv", "EnsembleVectorEnv", "environment_ids", "register_environments"]

register_environments()


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
