"""The learners: which class each name stands for, and their settings, from ``hyperparams.toml``. Imports no torch.

One rule checks a changed setting: it must be *finite, and of the type and sign of the value that it replaces*, the
tuned one or the library's default. So ``abc``, ``0`` and ``nan`` are refused for a learning rate, and a misspelt name
always, before anything is trained or written. What passes and still cannot be is refused by the algorithm itself, also
before anything is written.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import Any

from dp_ensemble_env.envs import actions
from dp_ensemble_env.tools.validation import check_choice, option

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
Settings = dict[str, Any]
MEAN_FIELD = "mean-field"
#: Settings that are not arguments of an algorithm, with values of their types; ``hyperparams.toml`` explains them.
OWN: Settings = {
    "n_envs": 8, "n_timesteps": 100_000, "policy": "MlpPolicy", "clock": False, "cosines": 0, "bins": 21,
    "noise_type": "normal", "noise_std": 0.1, "frame_stack": 1,
}  # fmt: skip
#: What no library has a default for.
_PLAIN = {name: OWN[name] for name in ("n_envs", "n_timesteps")}
#: Arguments of algorithms that are not for settings.
_FIXED = ("env", "seed", "steps", "device", "verbose", "tensorboard_log", "progress", "_init_setup_model")


def algorithm_class(algo: str) -> Any:
    """Return the class, or say what must be installed."""
    check_choice(algo, "algo", LIBRARIES)
    module, _, name = LIBRARIES[algo].partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ImportError(f"{algo} needs {error.name}; pip install 'dp-ensemble-env[rl]'.", name=error.name) from error


def population_of(core: Any) -> str | int:
    """Return the population of an environment as its argument has it."""
    return MEAN_FIELD if core.population is None else core.population


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


# ------------------------------------------------------------------ what is recorded
@cache
def _recorded() -> dict[str, Any]:
    text = resources.files("dp_ensemble_env.agents").joinpath("hyperparams.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def recorded(algo: str) -> dict[str, Any]:
    """Return a copy of all tables of an algorithm: by population and action mode, and of ``scenarios``."""
    return copy.deepcopy(_recorded().get(algo, {}))  # Stable-Baselines3 writes into policy_kwargs


def tuned_settings(algo: str, population: str | int, action: str, scenario: str | None = None) -> Settings:
    """Return the settings of an algorithm for a population, an action mode and a scenario.

    Where nothing was tuned the nearest settings stand in: those of the mean field for other populations, those of tilts
    for whole policies, those of prices for other action modes of few numbers. Signals and algorithms without any take
    the library's own. Only the mean field has settings by scenario.
    """
    table, mode = recorded(algo), actions.mode(action)
    field = table.get(MEAN_FIELD, {})
    nearest = "tilt" if action in ("tilt", "policy") else "price"  # a mode of few numbers is explored like a price
    own = table.get("single" if population == 1 else str(population), {})
    settings: Settings = own.get(action) or field.get(action) or {}
    if action in ("signals", "tilt", "policy") and "bins" in field.get("price", {}):
        asked = option("action", "price")
        raise ValueError(f"{algo} chooses from a list of prices, so it works in price mode only; pass {asked}.")
    if not settings and action != "signals":
        settings = own.get(nearest) or field.get(nearest) or field.get("price") or {}
    if population == MEAN_FIELD and scenario is not None:
        settings |= table.get("scenarios", {}).get(scenario, {}).get(action, {})
    if not mode.tilt:
        settings.pop("cosines", None)
    if mode.levels:
        settings.pop("bins", None)  # the choices are there already
    return {**_PLAIN, **settings}


def learner_settings(
    algo: str, core: Any, changes: Mapping[str, Any] | None = None, scenario: str | None = None, tuned: bool = True
) -> Settings:
    """Return the tuned settings, or the library's own, with the changes, whose names and values are checked."""
    kind = algorithm_class(algo)
    start = tuned_settings(algo, population_of(core), core.action_mode, scenario) if tuned else _PLAIN
    start = {"policy": next(iter(kind.policy_aliases)), **start}
    settings = changed(algo, start, changes or {}, {**OWN, **defaults_of(kind)})
    if not settings.get("cosines"):
        settings.pop("cosines", None)
    elif not actions.mode(core.action_mode).tilt:
        raise ValueError(f"cosines need tilts; pass {option('action', 'tilt')}, or leave cosines out.")
    if settings.get("frame_stack", 1) > 1 and settings.get("clock"):
        raise ValueError("the clock reads a single observation; set clock to false with frame_stack.")
    return settings


# ------------------------------------------------------------------ changes
def defaults_of(make: Callable[..., Any]) -> Settings:
    """Return the arguments of an algorithm that can be set, with their defaults."""
    parameters = inspect.signature(make).parameters.items()
    return {name: one.default for name, one in parameters if name not in _FIXED and one.default is not one.empty}


def changed(algo: str, settings: Settings, changes: Mapping[str, Any], defaults: Mapping[str, Any] = {}) -> Settings:  # noqa: B006
    """Return settings with changes, checked; `defaults` are what else can be set, with values of the types allowed."""
    for name, value in changes.items():
        check_choice(name, f"hyper-parameter of {algo}", {**defaults, **settings})
        check_value(name, value, *(one[name] for one in (settings, defaults) if name in one))
    return {**settings, **changes}


def check_value(name: str, value: Any, *likes: Any) -> None:
    """Refuse a value that is not finite, or not of the type and sign of any of the values that it may replace.

    Where a value may be None nothing tells its type, and the algorithm has to check it.
    """
    finite = not isinstance(value, float) or math.isfinite(value)
    if not finite or not any(_alike(value, like) for like in likes):
        wanted = " or ".join(dict.fromkeys(repr(like) for like in likes if like is not None)) or "its default"
        raise ValueError(
            f"the hyper-parameter {name} must be finite, and of the type and sign of {wanted}; got {value!r}."
        )


def _alike(value: Any, like: Any) -> bool:
    if like is None:
        return not isinstance(value, str)
    if isinstance(value, str) and value.startswith("lin_"):
        return isinstance(like, (int, float, str)) and falling_from(value) > 0
    if isinstance(value, (bool, str)) or isinstance(like, (bool, str)):
        return type(value) is type(like) and not str(like).startswith("lin_")
    if isinstance(value, (int, float)) and isinstance(like, (int, float)):
        whole = isinstance(like, float) or value == int(value)
        return whole and (like < 0 or value > 0 or value == like == 0)  # below zero a number stands for "off"
    return isinstance(value, type(like))


def falling_from(text: str) -> float:
    """Return where a rate such as ``"lin_0.001"``, which falls linearly to zero, starts."""
    kind, _, number = text.partition("_")
    try:
        start = float(number)
    except ValueError:
        start = math.nan
    if kind != "lin" or not 0 < start < math.inf:
        raise ValueError(f"a schedule is written like 'lin_0.001' (falling linearly to zero), got {text!r}.")
    return start


def schedule(rate: Any) -> Any:
    """Turn ``"lin_0.001"`` into a function of the share that is left; return everything else as it is."""
    if not isinstance(rate, str):
        return rate
    start = falling_from(rate)
    return lambda left: start * left
