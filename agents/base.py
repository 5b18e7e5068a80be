"""What every agent promises, and the one registry that makes agents by name: plans and learners alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents.learners import LIBRARIES
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.tables import Layout, layout_of
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.registry import Registry

FloatArray = NDArray[np.float64]
Core = EnsembleEnv | EnsembleVectorEnv


@runtime_checkable
class Agent(Protocol):
    """An object with Stable-Baselines3's ``predict``: its models, and every agent of this package."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """Return the action for one observation, or one action for each row of a batch, and the next hidden state."""
        ...


class ScheduleAgent:
    """An agent whose action depends on the time alone, or on the time and the context; `evaluate` scores it exactly.

    `actions` has the shape (T, ...), or (T, c, ...) with `by_context`: they are kept with all their digits and played
    as float32. `privacy` says in words what computing them revealed of the private matrix. `layout` says where time and
    context stand in an observation (``env.unwrapped.layout``); by default as where there is no context.
    """

    #: What numbers are played as.
    dtype: type[np.floating[Any]] = np.float32

    def __init__(
        self, actions: NDArray[Any], name: str, privacy: str, layout: Layout | None = None, by_context: bool = False
    ) -> None:
        self.actions, self.name, self.privacy = np.asarray(actions), name, privacy
        self.layout = Layout(len(self.actions)) if layout is None else layout
        self.by_context = by_context

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.actions.shape[1 + self.by_context :])) or "1"
        contexts = f" in {self.actions.shape[1]} contexts" if self.by_context else ""
        return f"{type(self).__name__}({self.name!r}, {len(self.actions)} decisions of {shape} numbers{contexts})"

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[Any], Any]:
        """Look the time, and the context, up in the observation and return the action scheduled for them.

        Where the context is shown in part the state is the context of the last observation, and needed; the first
        observation of an episode does not look at it.
        """
        key: Any = self.layout.time(observation)
        if self.by_context:
            context = self.layout.follow(observation, state)
            key, state = (key, context), state if self.layout.hidden is None else context
        action = np.asarray(self.actions[key])
        return action.astype(self.dtype) if action.dtype.kind == "f" else action, state

    def schedule(self, model: EnsembleModel) -> NDArray[Any] | None:
        """Return the actions (T, c, ...) that it plays in a model; None if they depend on more than time and context.

        In a model with another horizon, or other features of the context, the agent is to be played.
        """
        shown = layout_of(model).features
        if len(self.actions) != model.horizon or shown.shape[1] != self.layout.features.shape[1]:
            return None
        if not self.by_context:
            return np.repeat(self.actions[:, None], model.n_contexts, axis=1)
        if self.layout.hidden is not None:
            return self.actions if np.array_equal(shown, self.layout.features) else None
        return self.actions[:, self.layout.context(shown)]


# ------------------------------------------------------------------ registry
Factory = Callable[..., Agent]


@dataclass(frozen=True)
class Kind:
    """The factory of the agents of one name."""

    make: Factory
    """``make(env, **settings) -> agent``; a learner accepts the settings ``steps`` and ``seed``."""
    learns: bool = False
    """Whether making the agent trains it. A learner can be trained by name (`dp_ensemble_env.agents.train.train`), once
    for all instances that it is scored on."""

    def takes(self, setting: str) -> bool:
        """Tell whether `make` has a setting of that name, such as ``"release"``."""
        return setting in inspect.signature(self.make).parameters


#: The modules whose table ``KINDS`` makes the built-in agents when they are first asked for.
_PLANS = (
    *("uncontrolled", "ad-hoc", "best-price", "myopic", "without-data", "open-loop", "blind", "standard", "taylor"),
    *("digamma", "average-sampled", "average-expansion", "average-exact", "rolling"),
)
_HOMES = dict.fromkeys(_PLANS, "plans") | {"z-learning": "z_learning", "cloning": "networks"}
_HOMES |= dict.fromkeys((*LIBRARIES, "apg"), "train")
_REGISTRY: Registry[Kind] = Registry(
    "agent", {name: f"dp_ensemble_env.agents.{home}:KINDS" for name, home in _HOMES.items()}
)


def agent_names(learns: bool | None = None) -> tuple[str, ...]:
    """Return the names of all agents, of the learners only, or of the planners only; built-in names first."""
    return tuple(
        name
        for name in _REGISTRY.names()
        if learns in (None, _HOMES[name] != "plans" if name in _HOMES else _REGISTRY[name].learns)
    )


def register_agent(name: str, *, learns: bool = False) -> Callable[[Factory], Factory]:
    """Register your own ``make(env, **settings) -> agent`` under a name, replacing an earlier one.

    Parameters
    ----------
    name : str
    learns : bool
        Whether making the agent trains it. The function must then accept ``steps`` and ``seed``, both optional.
    """

    def decorate(make: Factory) -> Factory:
        _REGISTRY.register(name, Kind(make, learns), replace=True)
        return make

    return decorate


def agent_kind(name: str) -> Kind:
    """Return the factory of the agents called `name`."""
    return _REGISTRY[name]


def make_agent(name: str, env: Any, **settings: Any) -> Agent:
    """Make the agent called `name` for an environment.

    Parameters
    ----------
    name : str
        One of `agent_names`.
    env : gymnasium.Env or gymnasium.vector.VectorEnv
        The environment for the agent. Planners use its model, or a given release; learners are trained in it.
    **settings
        Settings of the agent: planners take ``k=50`` or ``release=...``, learners ``steps=20_000, seed=0``.
    """
    return agent_kind(name).make(env, **settings)


def core_env(env: Any) -> Core:
    """Return the ensemble environment inside any wrappers, single or vector."""
    core = getattr(env, "unwrapped", env)
    if isinstance(core, (EnsembleEnv, EnsembleVectorEnv)):
        return core
    inner = getattr(env, "envs", None)
    if isinstance(inner, EnsembleVectorEnv):  # the adapter for Stable-Baselines3
        return inner
    if isinstance(inner, (list, tuple)) and inner:  # a vector of separate environments
        return core_env(inner[0])
    raise ValueError(
        f"env must be one of the dp_ensemble environments, got {type(env).__name__}; make it with "
        "gymnasium.make('dp_ensemble/Spot-v1')."
    )


def privacy_of(core: Core, otherwise: str, release: Any = None) -> str:
    """Say what an agent made in an environment reveals: one release, if there is one, else `otherwise`."""
    return otherwise if release is None and core.release is None else "that of one release"


def privacy_line(privacy: str) -> str:
    """Return the sentence that reports show for what `privacy_of` says, which runs record."""
    said = privacy.replace("none: ", "no guarantee (ε = ∞), ").replace("that of one", "the guarantee of one")
    return f"Privacy: {said.replace('that of the environment it was trained in', 'as in its training environment')}."
