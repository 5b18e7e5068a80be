"""The learners of libraries: which class each name stands for, and what training one takes. Imports no torch."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents.settings import OWN, changed, defaults_of, plain_settings, schedule, tuned_settings
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.validation import check_choice, check_count

#: The classes of learners, in the interface of Stable-Baselines3; a line is all that another one needs.
LIBRARIES: dict[str, str] = {
    "ppo": "stable_baselines3:PPO",
    "a2c": "stable_baselines3:A2C",
    "sac": "stable_baselines3:SAC",
    "td3": "stable_baselines3:TD3",
    "dqn": "stable_baselines3:DQN",
    "tqc": "sb3_contrib:TQC",
    "trpo": "sb3_contrib:TRPO",
    "recurrent-ppo": "sb3_contrib:RecurrentPPO",
}


def algorithm_class(algo: str) -> Any:
    """Return the class, or say what must be installed."""
    check_choice(algo, "algo", LIBRARIES)
    module, _, name = LIBRARIES[algo].partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ImportError(f"{algo} needs {error.name}; pip install 'dp-ensemble-env[rl]'.", name=error.name) from error


def learner_settings(
    algo: str,
    core: EnsembleEnv,
    changes: Mapping[str, Any] | None = None,
    scenario: str | None = None,
    tuned: bool = True,
) -> dict[str, Any]:
    """Return the tuned settings, or the library's own, with the changes, whose names and values are checked."""
    kind = algorithm_class(algo)
    start = tuned_settings(algo, population_of(core), core.action_mode, scenario) if tuned else plain_settings()
    start = {"policy": next(iter(kind.policy_aliases)), **start}
    settings = changed(algo, start, changes or {}, {**OWN, **defaults_of(kind)})
    if not settings.get("cosines"):
        settings.pop("cosines", None)
    elif not actions.mode(core.action_mode).tilt:
        raise ValueError("cosines stand for tilts; pass action='tilt', or leave cosines out.")
    if settings.get("frame_stack", 1) > 1 and settings.get("clock"):
        raise ValueError("the clock reads a single observation; pass clock=False with frame_stack.")
    return settings


def algorithm_arguments(settings: dict[str, Any], model: EnsembleModel, venv: Any) -> dict[str, Any]:
    """Translate settings into arguments of the algorithm's class."""
    from stable_baselines3.common.noise import NormalActionNoise

    from dp_ensemble_env.agents.sb3 import clock_kwargs

    arguments = copy.deepcopy({key: value for key, value in settings.items() if key not in OWN})
    for key in ("learning_rate", "clip_range"):
        if key in arguments:
            arguments[key] = schedule(arguments[key])
    if settings.get("clock"):
        clock = clock_kwargs(model, venv.get_attr("layout")[0].ahead)
        arguments["policy_kwargs"] = {**(arguments.get("policy_kwargs") or {}), **clock}
    if settings.get("noise_type") is not None:
        check_choice(settings["noise_type"], "noise_type", ("normal",))
        size, std = venv.action_space.shape, settings.get("noise_std", OWN["noise_std"])
        arguments["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, std))
    return arguments


def training_env(core: EnsembleEnv, settings: dict[str, Any], models: Sequence[EnsembleModel] = ()) -> Any:
    """Make environments like `core`: native and batched, or one by one behind Gymnasium's discretising wrapper.

    They run the model that `core` runs: its release, if it has one, so that training is post-processing. If there are
    `models`, each episode draws one of these instead. Rewards are points. With ``cosines`` their action mode is that of
    the cosines; with ``frame_stack`` an observation is the last so many, one after the other.
    """
    venv = _plain_env(core, settings, models)
    if (frames := settings.get("frame_stack", 1)) == 1:
        return venv
    from stable_baselines3.common.vec_env import VecFrameStack

    return VecFrameStack(venv, frames)


def _plain_env(core: EnsembleEnv, settings: dict[str, Any], models: Sequence[EnsembleModel]) -> Any:
    count = check_count(settings["n_envs"], "n_envs")
    task: dict[str, Any] = {
        "model": models or core.model,
        "population": population_of(core),
        "ahead": core.layout.ahead,
    }
    task["action"] = actions.cosines(settings["cosines"]) if "cosines" in settings else core.action_mode
    if "bins" not in settings:
        from dp_ensemble_env.envs.sb3 import EnsembleVecEnv

        return EnsembleVecEnv(count, **task)
    try:
        from gymnasium.wrappers import DiscretizeAction
    except ImportError as error:
        raise ImportError("dqn needs gymnasium.wrappers.DiscretizeAction; install gymnasium>=1.2.") from error
    from stable_baselines3.common.vec_env import DummyVecEnv

    makers: list[Callable[[], Any]] = [lambda: DiscretizeAction(EnsembleEnv(**task), bins=settings["bins"])] * count
    return DummyVecEnv(makers)


def codes_of(settings: dict[str, Any], core: EnsembleEnv) -> NDArray[np.float32] | None:
    """Return what a learner's choices, or units of its numbers, stand for in actions of `core`; None for themselves.

    With ``bins`` these are the bin centres of `DiscretizeAction` for a price in [-1, 1], with ``cosines`` the waves.
    """
    if "cosines" in settings:
        return actions.cosine_waves(settings["cosines"], core.model.n_decisions).astype(np.float32)
    if "bins" not in settings:
        return None
    edges = np.linspace(np.float32(-1.0), np.float32(1.0), settings["bins"] + 1)  # rounds as the wrapper does
    return (0.5 * (edges[:-1] + edges[1:])).astype(np.float32)[:, None]


def population_of(core: EnsembleEnv) -> str | int:
    """Return the population of an environment as its argument has it."""
    return "mean-field" if core.population is None else core.population


def privacy_of(core: EnsembleEnv) -> str:
    """Say what training in an environment reveals."""
    return "that of one release" if core.release is not None else "none: learned from the true dynamics"


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: the networks are small, and results then do not depend on the number of cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
