"""Trained learners, and how they are kept and loaded: in files that hold no code, only weights and how to use them.

Networks are described in words (spaces, layers, activations, feature extractor). A description may name classes of
networks of PyTorch, Stable-Baselines3 and sb3-contrib, and nothing else. `dp-ensemble train` writes such a file,
``policy.safetensors``, and whatever loads an agent reads it. A schedule, and the policy of `apg`, are arrays alone.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from dp_ensemble_env.agents.base import ScheduleAgent
from dp_ensemble_env.agents.runs import POLICY, digest_of, read_object
from dp_ensemble_env.agents.weights import Weights, load_weights, pack, save_weights, unpack
from dp_ensemble_env.context import Context
from dp_ensemble_env.envs.tables import AHEAD, Layout
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.files import resolved

#: Parts of a policy's description that only training needs.
_NOT_KEPT = ("observation_space", "action_space", "lr_schedule", "optimizer_class", "optimizer_kwargs")
#: Names of parameters start with this, so that the arrays of the spaces have names of their own.
_PARAMETER = "policy."
#: Where the classes that a description may name are defined.
_MODULES = ("torch.nn.", "stable_baselines3.", "sb3_contrib.", "dp_ensemble_env.agents.")
#: Parts of a description that say how large networks are, beside those that begin with ``n_``.
_SIZES = ("net_arch", "features_extractor_kwargs", "lstm_hidden_size")
#: What a file says its policy is.
APG, SB3, SCHEDULE = "apg", "stable-baselines3", "schedule"
#: The name of a table of actions in a file, beside the layers.
TABLE = "table"
Layers = list[tuple[NDArray[np.float32], NDArray[np.float32]]]


# ------------------------------------------------------------------ agents
class GradientPolicy:
    """A network with ``tanh`` between its layers that maps observations to actions, in NumPy.

    A layer is a weight of shape (outputs, inputs), as PyTorch has it, and a bias. A table (T, 1 + f, outputs) holds
    what is added at each decision: an action, and one for each feature of the context.
    """

    def __init__(self, layers: Layers, table: NDArray[np.float32] | None = None) -> None:
        self.layers, self.table = layers, table

    def __repr__(self) -> str:
        sizes = [self.layers[0][0].shape[1], *(len(bias) for _, bias in self.layers)]
        clock = "" if self.table is None else f", a table of {len(self.table)} decisions"
        return f"GradientPolicy({' - '.join(map(str, sizes))}{clock})"

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.float32], Any]:
        """Return the action and the hidden state, as `stable_baselines3` does; there is no noise to leave out."""
        values = seen = np.asarray(observation, dtype=np.float32)
        for weight, bias in self.layers[:-1]:
            values = np.tanh(values @ weight.T + bias)
        weight, bias = self.layers[-1]
        action = values @ weight.T + bias
        if self.table is not None:
            action = adding(action, seen, self.table)
        return np.clip(action, -1.0, 1.0, dtype=np.float32), state

    @property
    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Weights and biases by name, for a file."""
        named = {f"{i}.{part}": pair["wb".index(part)] for i, pair in enumerate(self.layers) for part in "wb"}
        return named if self.table is None else {**named, TABLE: self.table}

    @classmethod
    def of(cls, path: Any, arrays: Mapping[str, NDArray[Any]]) -> GradientPolicy:
        """Return the policy of a file's arrays."""
        table, count = arrays.get(TABLE), len(arrays) // 2
        if count == 0 or set(arrays) - {TABLE} != {f"{i}.{part}" for i in range(count) for part in "wb"}:
            raise ValueError(f"{path} holds no policy of apg: its weights have other names.")
        layers = [(arrays[f"{i}.w"], arrays[f"{i}.b"]) for i in range(count)]
        fits = all(w.ndim == 2 and b.shape == w.shape[:1] for w, b in layers)
        if not fits or any(lower[1].shape != upper[0].shape[1:] for lower, upper in pairwise(layers)):
            raise ValueError(f"{path} holds no policy of apg: its layers do not fit each other.")
        if table is not None:
            inputs, outputs = layers[0][0].shape[1], len(layers[-1][1])
            fits = table.ndim == 3 and table.shape[2] == outputs and min(table.shape[:2]) > 0
            if not fits or table.shape[1] + AHEAD > inputs:
                raise ValueError(f"{path} holds no policy of apg: its table does not fit its layers.")
        return cls(layers, table)


def adding(action: Any, observation: Any, table: Any) -> Any:
    """Return the actions plus what a table adds at observations (..., n + 1 + AHEAD + f), in NumPy or PyTorch.

    The part of the horizon that is left stands before what is known ahead and the features of the context; what no
    environment shows is taken for the first or the last decision.
    """
    horizon, shown, width = table.shape[0], table.shape[1] - 1, observation.shape[-1]
    left, features = observation[..., width - 1 - AHEAD - shown], observation[..., width - shown :]
    number = (horizon * (1.0 - left)).round().clip(0, horizon - 1)
    if isinstance(number, (np.ndarray, np.generic)):
        rows = table[np.nan_to_num(number).astype(np.intp)]
    else:
        rows = table[number.nan_to_num().long()]
    return action + rows[..., 0, :] + (features[..., None, :] @ rows[..., 1:, :])[..., 0, :]


@dataclass(repr=False)
class LearnedAgent:
    """A trained learner that obeys ``predict``."""

    model: Any
    """The learner of Stable-Baselines3, or its policy; anything with ``predict``."""
    name: str
    """The algorithm."""
    codes: NDArray[np.float32] | None = None
    """What the learner's `k` choices, or units of its `k` numbers, stand for in actions of `d` numbers, (k, d); by
    default its actions stand for themselves."""
    privacy: str = "that of the environment it was trained in"
    """What the training revealed, in words."""
    curve: list[tuple[int, float]] = field(default_factory=list)
    """Steps and score along the way."""
    steps: int = 0
    """Environment steps that were taken."""
    seconds: float = 0.0
    """Wall-clock time of the training."""
    frame_stack: int = 1
    """How many of the last observations the learner sees at once; the state of `predict` keeps them."""

    def __repr__(self) -> str:
        last = f", score {self.curve[-1][1]:.1f}" if self.curve else ""
        return f"LearnedAgent({self.name!r}, {self.steps:,} steps{last})"

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.floating], Any]:
        """Return the action and the hidden state, as `stable_baselines3` does."""
        if self.frame_stack == 1:
            action, state = self.model.predict(observation, state, episode_start, deterministic)
        else:
            frames, memory = (None, None) if state is None else state
            frames = self._stacked(np.asarray(observation), frames, episode_start)
            action, memory = self.model.predict(frames, memory, episode_start, deterministic)
            state = frames, memory
        if self.codes is not None:
            chosen = np.asarray(action)
            action = self.codes[chosen] if chosen.dtype.kind in "iu" else np.clip(chosen @ self.codes, -1.0, 1.0)
        return action, state

    def _stacked(self, observation: Any, before: Any, episode_start: Any) -> NDArray[np.float32]:
        """Return the last observations, the newest at the end and zeros before the episode, as `VecFrameStack` does."""
        width = observation.shape[-1]
        if before is None:
            before = np.zeros((*observation.shape[:-1], self.frame_stack * width), observation.dtype)
        elif episode_start is not None:
            before = np.where(np.asarray(episode_start).reshape(observation.shape[:-1])[..., None], 0.0, before)
        return np.concatenate([before[..., width:], observation], axis=-1).astype(np.float32)

    def schedule(self, model: EnsembleModel) -> NDArray[Any] | None:
        """Return the actions (T, c, ...) that it plays in a model, if it learned a schedule; else None."""
        return self.model.schedule(model) if hasattr(self.model, "schedule") else None

    def save(self, path: str | os.PathLike[str], binding: dict[str, Any] | None = None) -> str:
        """Write the policy and what is known of its training to a file without code; return the file's digest.

        `binding` has the digests of the configuration, the release and the ledger that it belongs to.
        """
        about = {
            "codes": None if self.codes is None else self.codes.tolist(), "privacy": self.privacy, "curve": self.curve,
            "steps": self.steps, "seconds": self.seconds, "frame_stack": self.frame_stack, "binding": binding or {},
        }  # fmt: skip
        return save_policy(path, self.model, self.name, about)


def load_agent(path: str | os.PathLike[str]) -> LearnedAgent:
    """Load the agent of a run folder or of a ``policy.safetensors``; nothing in the file is executed.

    A model as Stable-Baselines3 saves it executes code when it is loaded, so it is not loaded here: load it with the
    class that it belongs to, if you trust its author, and evaluate it as it is, ``evaluate(PPO.load(file), env)``. A
    file that lies beside the configuration, the ledger or the release of another run is refused.
    """
    file = resolved(path)
    file = file / POLICY if file.is_dir() else file
    if not file.is_file():
        raise ValueError(f"there is no policy file {file}; train an agent with dp-ensemble train.")
    policy, weights = load_policy(file)
    try:
        about = weights.settings["about"]
        _check_binding(file, about["binding"])
        codes = None if about["codes"] is None else np.array(about["codes"], np.float32)
        if codes is not None and not (codes.ndim == 2 and np.isfinite(codes).all()):
            raise ValueError(f"{file} holds codes of actions that are not a table of finite numbers; train again.")
        curve = [(int(steps), float(score)) for steps, score in about["curve"]]
        told = str(about["privacy"]), curve, int(about["steps"]), float(about["seconds"]), int(about["frame_stack"])
        return LearnedAgent(policy, str(weights.settings["algo"]), codes, *told)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{file} does not say what it needs to about its training ({error}).") from error


def _check_binding(file: Path, binding: dict[str, Any]) -> None:
    for name in ("config", "ledger", "release"):
        beside = file.parent / f"{name}.json"
        if binding.get(name) is None or not beside.exists():
            continue
        if (Release.load(beside).digest if name == "release" else digest_of(read_object(beside))) != binding[name]:
            raise ValueError(
                f"{file} belongs to another run than {beside}, or one of them was changed; restore them from a copy."
            )


# ------------------------------------------------------------------ writing
def save_policy(path: str | os.PathLike[str], policy: Any, algo: str, about: Mapping[str, Any] | None = None) -> str:
    """Write a policy to a file, atomically and without pickle; return the digest of what was written.

    It is that of an algorithm or a policy of Stable-Baselines3, a GradientPolicy or a ScheduleAgent, which the learner
    `algo` found; `about` is JSON that is kept with it.
    """
    settings: dict[str, Any] = {"algo": algo, "about": dict(about or {})}
    if isinstance(policy, GradientPolicy):
        return save_weights(path, policy.arrays, {"agent": APG, **settings})
    if isinstance(policy, ScheduleAgent):
        arrays = {"actions": policy.actions, "features": policy.layout.features}
        if (hidden := policy.layout.hidden) is not None:
            arrays |= {"transition": hidden.transition, "start": hidden.start}
        seen = {"horizon": policy.layout.horizon, "ahead": policy.layout.ahead, "by_context": policy.by_context}
        return save_weights(path, arrays, {"agent": SCHEDULE, **seen, **settings})
    networks = getattr(policy, "policy", policy)
    if not hasattr(networks, "_get_constructor_parameters"):
        raise ValueError(
            f"a {type(policy).__name__} cannot be saved without code; return a ScheduleAgent, or a model of "
            "Stable-Baselines3."
        )
    arrays = {f"{_PARAMETER}{name}": value for name, value in networks.state_dict().items()}
    # What a policy's own description leaves out, such as the size of a memory, is in the learner's arguments.
    known, given = inspect.signature(type(networks)).parameters, getattr(policy, "policy_kwargs", None) or {}
    described = networks._get_constructor_parameters() | {k: v for k, v in given.items() if k in known}
    kept = {k: v for k, v in described.items() if k not in _NOT_KEPT}
    settings |= {
        "agent": SB3,
        "class": _as_json(type(networks)),
        "observation_space": _space(networks.observation_space, "observation_space", arrays),
        "action_space": _space(networks.action_space, "action_space", arrays),
        "policy": pack(_as_json(kept), arrays, "description"),
    }
    return save_weights(path, arrays, settings)


def _as_json(value: Any) -> Any:
    if isinstance(value, type):
        return {"class": _allowed(f"{value.__module__}:{value.__name__}")}
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, (list, tuple)) else value


def _allowed(place: str) -> str:
    if not place.startswith(_MODULES):
        raise ValueError(f"a policy with {place} cannot be kept; use classes of {', '.join(_MODULES)} only.")
    return place


def _space(space: spaces.Space[Any], name: str, arrays: dict[str, Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Box):
        arrays[f"{name}.low"], arrays[f"{name}.high"] = space.low, space.high
        return {"type": "box"}
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return {"type": "discrete", "n": int(space.n)}
    raise ValueError(f"a policy with a space {space} cannot be saved; use a Box or a Discrete space.")


# ------------------------------------------------------------------ reading
def load_policy(path: str | os.PathLike[str]) -> tuple[Any, Weights]:
    """Build the policy of a file, which obeys ``predict``, and return it with all that the file holds.

    Nothing in the file is executed. ``weights.settings["about"]`` is what was kept with it.
    """
    weights = load_weights(path)
    kind, arrays = weights.settings.get("agent"), weights.arrays
    for name, array in arrays.items():
        if not name.startswith(("observation_space.", "action_space.")) and not np.isfinite(array).all():
            raise ValueError(f"{path} holds a number in {name} that is not finite; train again, or take another file.")
    if kind == APG:
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
    settings, arrays, tensors = weights.settings, weights.arrays, weights.tensors()
    parameters = {name.removeprefix(_PARAMETER): tensors[name] for name in tensors if name.startswith(_PARAMETER)}
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


def _class(place: str) -> Any:
    import torch

    module, _, name = _allowed(place).partition(":")
    kind = getattr(importlib.import_module(module), name)
    if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
        raise ValueError(f"{place} is not a class of networks")
    return kind


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


def _read_space(space: dict[str, Any], name: str, arrays: Mapping[str, Any]) -> spaces.Space[Any]:
    if space["type"] == "discrete":
        return spaces.Discrete(int(space["n"]))
    if space["type"] != "box":
        raise ValueError(f"it has a space of the type {space['type']!r}")
    low, high = arrays[f"{name}.low"], arrays[f"{name}.high"]
    return spaces.Box(low, high, dtype=np.dtype(low.dtype).type)  # type: ignore[arg-type]
