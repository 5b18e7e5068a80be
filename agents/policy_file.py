"""The policy of a learner as a file that holds no code: weights, and how to build the networks.

Networks are described in words (spaces, layers, activations, feature extractor). A description may name classes of
networks of PyTorch, Stable-Baselines3 and sb3-contrib, and nothing else. `dp-ensemble train` writes such a file,
``policy.safetensors``, and whatever loads an agent reads it. A schedule, and the policy of `apg`, are arrays alone.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from dp_ensemble_env.agents.apg import NAME, GradientPolicy
from dp_ensemble_env.agents.base import ScheduleAgent
from dp_ensemble_env.agents.weights import Weights, load_weights, pack, save_weights, unpack
from dp_ensemble_env.context import Context
from dp_ensemble_env.envs.tables import Layout

#: Parts of a policy's description that only training needs.
_NOT_KEPT = ("observation_space", "action_space", "lr_schedule", "optimizer_class", "optimizer_kwargs")
#: Names of parameters start with this, so that the arrays of the spaces have names of their own.
_PARAMETER = "policy."
#: Where the classes that a description may name are defined.
_MODULES = ("torch.nn.", "stable_baselines3.", "sb3_contrib.", "dp_ensemble_env.agents.")
#: Parts of a description that say how large networks are, beside those that begin with ``n_``.
_SIZES = ("net_arch", "features_extractor_kwargs", "lstm_hidden_size")
SB3, SCHEDULE = "stable-baselines3", "schedule"


# ------------------------------------------------------------------ writing
def save_policy(path: str | os.PathLike[str], policy: Any, algo: str, about: Mapping[str, Any] | None = None) -> str:
    """Write a policy to a file, atomically and without pickle.

    Parameters
    ----------
    path : path
    policy : stable_baselines3 algorithm or policy, GradientPolicy, or ScheduleAgent
    algo : str
        The algorithm that it belongs to, such as ``"ppo"``.
    about : mapping, optional
        More to keep with it: JSON.

    Returns
    -------
    str
        The digest of what was written.
    """
    settings: dict[str, Any] = {"algo": algo, "about": dict(about or {})}
    if isinstance(policy, GradientPolicy):
        return save_weights(path, policy.arrays, {"agent": NAME, **settings})
    if isinstance(policy, ScheduleAgent):
        arrays = {"actions": policy.actions, "features": policy.layout.features}
        if (hidden := policy.layout.hidden) is not None:
            arrays |= {"transition": hidden.transition, "start": hidden.start}
        seen = {"horizon": policy.layout.horizon, "ahead": policy.layout.ahead, "by_context": policy.by_context}
        return save_weights(path, arrays, {"agent": SCHEDULE, **seen, **settings})
    networks = getattr(policy, "policy", policy)
    if not hasattr(networks, "_get_constructor_parameters"):
        raise ValueError(
            f"a {type(policy).__name__} cannot be kept in a file without code; learn a ScheduleAgent, or a model of "
            "Stable-Baselines3."
        )
    arrays = {f"{_PARAMETER}{name}": value for name, value in networks.state_dict().items()}
    described = {**networks._get_constructor_parameters(), **_left_out(policy, type(networks))}
    settings |= {
        "agent": SB3,
        "class": _in_words(type(networks)),
        "observation_space": _space(networks.observation_space, "observation_space", arrays),
        "action_space": _space(networks.action_space, "action_space", arrays),
        "policy": pack(_in_words({k: v for k, v in described.items() if k not in _NOT_KEPT}), arrays, "description"),
    }
    return save_weights(path, arrays, settings)


def _left_out(learner: Any, kind: type) -> dict[str, Any]:
    """Return arguments of a policy that its own description leaves out, such as the size of a memory."""
    given = getattr(learner, "policy_kwargs", None) or {}
    return {name: value for name, value in given.items() if name in inspect.signature(kind).parameters}


def _in_words(value: Any) -> Any:
    if isinstance(value, type):
        return {"class": _allowed(f"{value.__module__}:{value.__name__}")}
    if isinstance(value, Mapping):
        return {name: _in_words(item) for name, item in value.items()}
    return [_in_words(item) for item in value] if isinstance(value, (list, tuple)) else value


def _allowed(place: str) -> str:
    if not place.startswith(_MODULES):
        raise ValueError(f"a policy with {place} cannot be kept; use classes of {', '.join(_MODULES)} only.")
    return place


def _class(place: str) -> Any:
    """Return a class of networks that a description names."""
    import torch

    module, _, name = _allowed(place).partition(":")
    kind = getattr(importlib.import_module(module), name)
    if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
        raise ValueError(f"{place} is not a class of networks")
    return kind


def _space(space: spaces.Space[Any], name: str, arrays: dict[str, Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Box):
        arrays[f"{name}.low"], arrays[f"{name}.high"] = space.low, space.high
        return {"type": "box"}
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return {"type": "discrete", "n": int(space.n)}
    raise ValueError(f"a policy with a space {space} cannot be saved; use a Box or a Discrete space.")


# ------------------------------------------------------------------ reading
def load_policy(path: str | os.PathLike[str]) -> tuple[Any, Weights]:
    """Build the policy of a file; nothing in the file is executed.

    Returns
    -------
    policy : stable_baselines3.common.policies.BasePolicy, GradientPolicy or ScheduleAgent
        It obeys ``predict``.
    weights : Weights
        What the file holds; ``weights.settings["about"]`` is what was kept with it.
    """
    weights = load_weights(path)
    kind, arrays = weights.settings.get("agent"), weights.arrays
    for name, array in arrays.items():
        if not name.startswith(("observation_space.", "action_space.")) and not np.isfinite(array).all():
            raise ValueError(f"{path} holds a number in {name} that is not finite; train again, or take another file.")
    if kind == NAME:
        return GradientPolicy.of(path, arrays), weights
    if kind not in (SB3, SCHEDULE):
        raise ValueError(f"{path} holds no policy that is known, but one of {kind!r}.")
    try:
        policy = _schedule(weights) if kind == SCHEDULE else _built(weights)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError, RuntimeError, ImportError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} does not describe a policy that can be built ({reason}).") from error
    return policy, weights


def _schedule(weights: Weights) -> ScheduleAgent:
    arrays, settings = weights.arrays, weights.settings
    features = arrays["features"]
    hidden = Context(arrays["transition"], (), arrays["start"], features) if "transition" in arrays else None
    layout = Layout(int(settings["horizon"]), features, int(settings["ahead"]), hidden)
    agent = ScheduleAgent(arrays["actions"], settings["algo"], "", layout, bool(settings["by_context"]))
    contexts = (layout.horizon, len(layout.features))[: 1 + agent.by_context]
    if layout.features.ndim != 2 or agent.actions.shape[: len(contexts)] != contexts:
        raise ValueError("its arrays have other shapes")
    return agent


def _built(weights: Weights) -> Any:
    settings, arrays = weights.settings, weights.arrays
    parameters = {
        name.removeprefix(_PARAMETER): t for name, t in weights.tensors().items() if name.startswith(_PARAMETER)
    }
    described = _in_objects(unpack(settings["policy"], arrays))
    # A description of huge networks must not fill the memory: nothing is wider than the weights that are there.
    widest = max((size for tensor in parameters.values() for size in tensor.shape), default=0)
    sizes = {name: value for name, value in described.items() if name in _SIZES or name.startswith("n_")}
    if _largest(sizes) > widest:
        raise ValueError("its layers are wider than its weights")
    policy = _class(settings["class"]["class"])(
        observation_space=_read_space(settings["observation_space"], "observation_space", arrays),
        action_space=_read_space(settings["action_space"], "action_space", arrays),
        lr_schedule=lambda left: 0.0,
        **described,
    )
    policy.load_state_dict(parameters)
    policy.set_training_mode(False)
    return policy


def _in_objects(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"class"}:
            return _class(value["class"])
        return {name: _in_objects(item) for name, item in value.items()}
    return [_in_objects(item) for item in value] if isinstance(value, list) else value


def _largest(value: Any) -> float:
    if isinstance(value, (dict, list)):
        items = value.values() if isinstance(value, dict) else value
        return max((_largest(item) for item in items), default=0)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _read_space(found: dict[str, Any], name: str, arrays: Mapping[str, Any]) -> spaces.Space[Any]:
    if found["type"] == "discrete":
        return spaces.Discrete(int(found["n"]))
    if found["type"] != "box":
        raise ValueError(f"it has a space of the type {found['type']!r}")
    low, high = arrays[f"{name}.low"], arrays[f"{name}.high"]
    return spaces.Box(low, high, dtype=np.dtype(low.dtype).type)  # type: ignore[arg-type]
