"""From hyper-parameters to the objects of Stable-Baselines3: classes, arguments, environments."""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents.hyperparams import ALGORITHMS, hyperparameters
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.tables import layout_of
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.validation import check_choice, check_count

CONTRIB = ("tqc", "trpo")
#: Algorithms that know no choices.
CONTINUOUS = ("sac", "td3", "tqc")
#: Keys of the hyper-parameters that are not arguments of the algorithm.
OWN_KEYS = ("n_envs", "n_timesteps", "policy", "clock", "cosines", "bins", "noise_type", "noise_std")


def algorithm_class(algo: str) -> Any:
    """Return the class, or say what must be installed."""
    check_choice(algo, "algo", ALGORITHMS)
    try:
        package = importlib.import_module("sb3_contrib" if algo in CONTRIB else "stable_baselines3")
    except ImportError as error:
        raise ImportError(f"{algo} needs {error.name}; pip install 'dp-ensemble-env[rl]'.", name=error.name) from error
    return getattr(package, algo.upper())


def settings_of(
    kind: Any, algo: str, population: str | int, action: str, changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the tuned settings with the changes, whose names and values are checked."""
    settings = hyperparameters(algo, population, action)
    if actions.mode(action).levels:
        if algo in CONTINUOUS:
            raise ValueError(f"{algo} learns actions that are real numbers, not choices; pass action='price'.")
        settings.pop("bins", None)  # the choices are there already
    fixed = ("env", "seed", "device", "verbose", "tensorboard_log", "_init_setup_model")
    known = [*OWN_KEYS, *(name for name in inspect.signature(kind).parameters if name not in (*fixed, *OWN_KEYS))]
    for name, value in (changes or {}).items():
        check_choice(name, f"hyper-parameter of {algo}", known)
        check_value(name, value)
    settings.update(changes or {})
    cosines = settings.get("cosines", 0)
    if cosines == 0:
        settings.pop("cosines", None)
    elif not actions.mode(action).tilt:
        raise ValueError("cosines stand for tilts; pass action='tilt', or leave cosines out.")
    elif cosines == 1:
        raise ValueError("one cosine is a constant and moves nothing; pass cosines=2 or more, or 0 for tilts.")
    return settings


# ------------------------------------------------------------------ values
_COUNTS = {  # least value of each
    **dict.fromkeys(("n_envs", "n_steps", "n_timesteps", "n_epochs", "buffer_size", "train_freq"), 1),
    **dict.fromkeys(("target_update_interval", "n_critic_updates", "policy_delay", "n_quantiles", "n_critics"), 1),
    **dict.fromkeys(("cg_max_steps", "line_search_max_iter", "sub_sampling_factor"), 1),
    **dict.fromkeys(("cosines", "learning_starts", "top_quantiles_to_drop_per_net"), 0),
    **dict.fromkeys(("gradient_steps", "sde_sample_freq", "stats_window_size"), -1),
    **dict.fromkeys(("batch_size", "bins"), 2),
}
_SHARES = ("gamma", "gae_lambda", "tau", "exploration_fraction", "exploration_initial_eps", "exploration_final_eps")
_POSITIVE = (
    "learning_rate",
    "clip_range",
    "max_grad_norm",
    "noise_std",
    "rms_prop_eps",
    "line_search_shrinking_factor",
)
_NOT_NEGATIVE = (
    *("ent_coef", "vf_coef", "cg_damping", "target_policy_noise", "target_noise_clip"),
    *("clip_range_vf", "target_kl"),
)
_SWITCHES = ("clock", "normalize_advantage", "use_rms_prop", "use_sde", "use_sde_at_warmup", "optimize_memory_usage")
#: Words that stand for a number, by hyper-parameter.
_WORDS = {"learning_rate": r"lin_.*", "clip_range": r"lin_.*", "ent_coef": r"auto(_[\d.]+)?", "target_entropy": "auto"}
#: Arguments of algorithms whose values are left to them.
_OTHERS = (
    *("policy_kwargs", "target_entropy", "action_noise", "n_eval_rollouts", "sde_net_arch"),
    *("rollout_buffer_class", "rollout_buffer_kwargs", "replay_buffer_class", "replay_buffer_kwargs"),
)
_OPTIONAL = ("clip_range_vf", "target_kl", "action_noise", "policy_kwargs")


def check_changes(changes: Mapping[str, Any]) -> None:
    """Refuse names that no algorithm has and values that cannot be, without importing any algorithm."""
    known = (*OWN_KEYS, *_COUNTS, *_SHARES, *_POSITIVE, *_NOT_NEGATIVE, *_SWITCHES, *_OTHERS)
    for name, value in changes.items():
        check_choice(name, "hyper-parameter", dict.fromkeys(known))
        check_value(name, value)


def check_value(name: str, value: Any) -> None:
    """Refuse a value that a hyper-parameter cannot have; what is not known here is left to the algorithm."""
    if value is None and name in _OPTIONAL:
        return
    if isinstance(value, str) and name in _WORDS and re.fullmatch(_WORDS[name], value):
        if value.startswith("lin_"):
            _schedule(value)
        return
    if name in _COUNTS:
        _refuse_unless(_is_number(value) and value == int(value) and value >= _COUNTS[name], name, value,
                       f"a whole number of at least {_COUNTS[name]}")  # fmt: skip
    elif name in _SHARES:
        _refuse_unless(_is_number(value) and 0 <= value <= 1, name, value, "a number from 0 to 1")
    elif name in _POSITIVE:
        also = ", or falling linearly to zero like 'lin_0.001'" if name in _WORDS else ""
        _refuse_unless(_is_number(value) and value > 0, name, value, f"a number above 0{also}")
    elif name in _NOT_NEGATIVE:
        also = ", or 'auto'" if name in _WORDS else ""
        _refuse_unless(_is_number(value) and value >= 0, name, value, f"a number of at least 0{also}")
    elif name in _SWITCHES:
        _refuse_unless(isinstance(value, bool), name, value, "true or false")
    elif name == "policy_kwargs":
        _refuse_unless(isinstance(value, dict), name, value, 'a dictionary such as {"net_arch": [64, 64]}')
    elif name == "noise_type":
        _refuse_unless(value == "normal", name, value, "'normal'")
    elif name == "policy":
        _refuse_unless(value == "MlpPolicy", name, value, "'MlpPolicy'")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _refuse_unless(fine: bool, name: str, value: Any, wanted: str) -> None:
    if not fine:
        raise ValueError(f"the hyper-parameter {name} must be {wanted}, got {value!r}.")


def algorithm_arguments(settings: dict[str, Any], model: EnsembleModel, venv: Any) -> dict[str, Any]:
    """Translate settings into arguments of the algorithm's class."""
    from stable_baselines3.common.noise import NormalActionNoise

    from dp_ensemble_env.agents.features import clock_kwargs

    arguments = copy.deepcopy({key: value for key, value in settings.items() if key not in OWN_KEYS})
    for key in ("learning_rate", "clip_range"):
        if isinstance(arguments.get(key), str):
            arguments[key] = _schedule(arguments[key])
    if settings.get("clock"):
        ahead = venv.get_attr("layout")[0].ahead
        clock = clock_kwargs(layout_of(model, ahead), model.coupling is not None)
        arguments["policy_kwargs"] = {**arguments.get("policy_kwargs", {}), **clock}
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


def training_env(core: EnsembleEnv, settings: dict[str, Any], models: Sequence[EnsembleModel] = ()) -> Any:
    """Make environments like `core`: native and batched, or one by one behind Gymnasium's discretising wrapper.

    They run the model that `core` runs: its release, if it has one, so that training is post-processing. If there are
    `models`, each episode draws one of these instead. Rewards are points.
    """
    from dp_ensemble_env.agents.features import CosineWeights

    count = check_count(settings["n_envs"], "n_envs")
    task: dict[str, Any] = {"model": models or core.model, "population": population_of(core)}
    task |= {"action": core.action_mode, "ahead": core.layout.ahead}
    if "bins" not in settings:
        from dp_ensemble_env.envs.sb3 import EnsembleVecEnv

        venv = EnsembleVecEnv(count, **task)
        return CosineWeights(venv, settings["cosines"]) if "cosines" in settings else venv
    try:
        from gymnasium.wrappers import DiscretizeAction
    except ImportError as error:
        raise ImportError("dqn needs gymnasium.wrappers.DiscretizeAction; install gymnasium>=1.2.") from error
    from stable_baselines3.common.vec_env import DummyVecEnv

    makers: list[Callable[[], Any]] = [lambda: DiscretizeAction(EnsembleEnv(**task), bins=settings["bins"])] * count
    return DummyVecEnv(makers)


def population_of(core: EnsembleEnv) -> str | int:
    """Return the population of an environment as its argument has it."""
    return "mean-field" if core.population is None else core.population


def price_list(settings: dict[str, Any]) -> NDArray[np.floating] | None:
    """Return the bin centres of `DiscretizeAction` for a price in [-1, 1]."""
    if "bins" not in settings:
        return None
    edges = np.linspace(np.float32(-1.0), np.float32(1.0), settings["bins"] + 1)  # rounds as the wrapper does
    return (0.5 * (edges[:-1] + edges[1:])).astype(np.float32)


def privacy_of(core: EnsembleEnv) -> str:
    """Say what training in an environment reveals."""
    return "that of one release" if core.release is not None else "none: learned from the true dynamics"
