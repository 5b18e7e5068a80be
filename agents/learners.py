"""From hyper-parameters to the objects of Stable-Baselines3: classes, arguments, environments."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from dp_ensemble_env.agents.hyperparams import ALGORITHMS, hyperparameters, reward_scale
from numpy.typing import NDArray

from dp_ensemble_env._validation import check_choice, check_count
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel

CONTRIB = ("tqc", "trpo")
#: Keys of the hyper-parameters that are not arguments of the algorithm.
OWN_KEYS = ("n_envs", "n_timesteps", "policy", "clock", "bins", "noise_type", "noise_std")


def algorithm_class(algo: str) -> Any:
    """Return the class, or say what must be installed."""
    check_choice(algo, "algo", ALGORITHMS)
    try:
        package = importlib.import_module("sb3_contrib" if algo in CONTRIB else "stable_baselines3")
    except ImportError as error:
        raise ImportError(f"{algo} needs {error.name}; pip install stable-baselines3 sb3-contrib.") from error
    return getattr(package, algo.upper())


def settings_of(kind: Any, algo: str, env_id: str, action: str, changes: dict[str, Any] | None) -> dict[str, Any]:
    """Return the tuned settings with the changes, whose names are checked."""
    settings = hyperparameters(algo, env_id, action)
    fixed = ("env", "seed", "device", "verbose", "tensorboard_log", "_init_setup_model")
    known = [*OWN_KEYS, *(name for name in inspect.signature(kind).parameters if name not in (*fixed, *OWN_KEYS))]
    for name in changes or {}:
        check_choice(name, f"hyper-parameter of {algo}", known)
    settings.update(changes or {})
    return settings


def algorithm_arguments(settings: dict[str, Any], model: EnsembleModel, venv: Any) -> dict[str, Any]:
    """Translate settings into arguments of the algorithm's class."""
    from dp_ensemble_env.agents.features import clock_kwargs
    from stable_baselines3.common.noise import NormalActionNoise

    arguments = copy.deepcopy({key: value for key, value in settings.items() if key not in OWN_KEYS})
    for key in ("learning_rate", "clip_range"):
        if isinstance(arguments.get(key), str):
            arguments[key] = _schedule(arguments[key])
    if settings.get("clock"):
        arguments["policy_kwargs"] = {**arguments.get("policy_kwargs", {}), **clock_kwargs(model.horizon)}
    if settings.get("noise_type") == "normal":
        size = venv.action_space.shape
        arguments["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, settings["noise_std"]))
    return arguments


def _schedule(text: str) -> Callable[[float], float]:
    """Read ``"lin_0.001"``: a rate that falls linearly to zero."""
    kind, _, number = text.partition("_")
    try:
        start = float(number)
    except ValueError:
        start = -1.0
    if kind != "lin" or not start > 0:
        raise ValueError(f"a schedule is written like 'lin_0.001' (falling linearly to zero), got {text!r}.")
    return partial(_falling, start)


def _falling(start: float, left: float) -> float:
    return start * left


def training_env(
    core: EnsembleEnv, env_id: str, task: dict[str, Any], model: EnsembleModel | None, settings: dict[str, Any]
) -> Any:
    """Make the training environment: native and batched, or one by one behind Gymnasium's discretising wrapper."""
    from dp_ensemble_env.agents.features import ScaledRewards

    count = check_count(settings["n_envs"], "n_envs")
    if "bins" not in settings:
        from dp_ensemble_env.envs.sb3 import EnsembleVecEnv

        return ScaledRewards(EnsembleVecEnv(count, env_id, model=model, **task), reward_scale(core.model))
    try:
        from gymnasium.wrappers import DiscretizeAction
    except ImportError as error:
        raise ImportError("dqn needs gymnasium.wrappers.DiscretizeAction; install gymnasium>=1.2.") from error
    from stable_baselines3.common.vec_env import DummyVecEnv

    makers: list[Callable[[], Any]] = [
        lambda: DiscretizeAction(EnsembleEnv(model, **task), bins=settings["bins"])
    ] * count
    return ScaledRewards(DummyVecEnv(makers), reward_scale(core.model))


def price_list(settings: dict[str, Any]) -> NDArray[np.floating] | None:
    """Return the bin centres of `DiscretizeAction` for a price in [-1, 1]."""
    if "bins" not in settings:
        return None
    edges = np.linspace(np.float32(-1.0), np.float32(1.0), settings["bins"] + 1)  # rounds as the wrapper does
    return (0.5 * (edges[:-1] + edges[1:])).astype(np.float32)


def privacy_of(core: EnsembleEnv) -> str:
    """Say what training in an environment reveals."""
    return "that of one release" if core.release is not None else "none: learned from the true dynamics"
