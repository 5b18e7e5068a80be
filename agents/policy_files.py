"""The policy of a learner as a file that holds no code: weights, and how to build the networks.

Networks are described in words (spaces, layers, activations, feature extractor), and only words that are known here
are built; a description cannot name a class or a function of its own. `dp-ensemble train` writes such a file,
``policy.safetensors``, and whatever loads an agent reads it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from dp_ensemble_env.agents.apg import NAME, GradientPolicy
from dp_ensemble_env.agents.learners import algorithm_class
from dp_ensemble_env.agents.weights import Weights, load_weights, pack, save_weights, unpack

#: Parts of a policy's description that only training needs.
_NOT_KEPT = ("observation_space", "action_space", "lr_schedule", "optimizer_class", "optimizer_kwargs")
#: Names of parameters start with this, so that the arrays of the spaces have names of their own.
_PARAMETER = "policy."


def _classes() -> dict[str, Any]:
    """Return the classes that a description may name."""
    import torch.nn as nn
    from stable_baselines3.common.torch_layers import FlattenExtractor

    from dp_ensemble_env.agents.features import ClockFeatures

    activations = (nn.Tanh, nn.ReLU, nn.ELU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Identity)
    return {kind.__name__: kind for kind in (*activations, FlattenExtractor, ClockFeatures)}


# ------------------------------------------------------------------ writing
def save_policy(path: str | os.PathLike[str], policy: Any, algo: str, about: Mapping[str, Any] | None = None) -> str:
    """Write a policy to a file, atomically and without pickle.

    Parameters
    ----------
    path : path
    policy : stable_baselines3.common.policies.BasePolicy or GradientPolicy
        For example ``model.policy``.
    algo : str
        The algorithm that it belongs to, such as ``"ppo"``.
    about : mapping, optional
        More to keep with it: JSON.

    Returns
    -------
    str
        The digest of what was written.
    """
    if isinstance(policy, GradientPolicy):
        return save_weights(path, policy.arrays, {"agent": algo, "algo": algo, "about": dict(about or {})})
    arrays: dict[str, Any] = {f"{_PARAMETER}{name}": value for name, value in policy.state_dict().items()}
    described = {name: value for name, value in policy._get_constructor_parameters().items() if name not in _NOT_KEPT}
    settings = {
        "agent": "stable-baselines3",
        "algo": algo,
        "observation_space": _space(policy.observation_space, "observation_space", arrays),
        "action_space": _space(policy.action_space, "action_space", arrays),
        "policy": pack(_in_words(described), arrays, "description"),
        "about": dict(about or {}),
    }
    return save_weights(path, arrays, settings)


def _in_words(value: Any) -> Any:
    if isinstance(value, type):
        known = {kind: name for name, kind in _classes().items()}
        if value not in known:
            raise ValueError(f"a policy with {value!r} cannot be saved; choose among {', '.join(known.values())}.")
        return {"class": known[value]}
    if isinstance(value, Mapping):
        return {name: _in_words(item) for name, item in value.items()}
    return [_in_words(item) for item in value] if isinstance(value, (list, tuple)) else value


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
    policy : stable_baselines3.common.policies.BasePolicy or GradientPolicy
        It obeys ``predict``.
    weights : Weights
        What the file holds; ``weights.settings["about"]`` is what was kept with it.
    """
    weights = load_weights(path)
    for name, array in weights.arrays.items():
        if not name.startswith(("observation_space.", "action_space.")) and not np.isfinite(array).all():
            raise ValueError(f"{path} holds a number in {name} that is not finite; train again, or take another file.")
    if weights.settings.get("agent") == NAME:
        return GradientPolicy.of(path, weights.arrays), weights
    if weights.settings.get("agent") != "stable-baselines3":
        raise ValueError(f"{path} holds no policy of Stable-Baselines3, but of {weights.settings.get('agent')!r}.")
    try:
        policy = _built(weights)
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} does not describe a policy that can be built ({reason}).") from error
    policy.set_training_mode(False)
    return policy, weights


def _built(weights: Weights) -> Any:
    settings, arrays = weights.settings, weights.arrays
    kind = algorithm_class(settings["algo"]).policy_aliases["MlpPolicy"]
    parameters = {
        name.removeprefix(_PARAMETER): t for name, t in weights.tensors().items() if name.startswith(_PARAMETER)
    }
    described = _in_objects(unpack(settings["policy"], arrays))
    # A description of huge networks must not fill the memory: nothing is wider than the weights that are there.
    widest = max((size for tensor in parameters.values() for size in tensor.shape), default=0)
    if _largest({name: described.get(name) for name in ("net_arch", "features_extractor_kwargs")}) > widest:
        raise ValueError("its layers are wider than its weights")
    policy = kind(
        observation_space=_read_space(settings["observation_space"], "observation_space", arrays),
        action_space=_read_space(settings["action_space"], "action_space", arrays),
        lr_schedule=lambda left: 0.0,
        **described,
    )
    policy.load_state_dict(parameters)
    return policy


def _in_objects(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"class"}:
            return _classes()[value["class"]]
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
