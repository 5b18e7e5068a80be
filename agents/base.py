"""What every agent promises, and how agents are made by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.context import Context
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.tools.registry import Registry

FloatArray = NDArray[np.float64]
Core = EnsembleEnv | EnsembleVectorEnv


@runtime_checkable
class Agent(Protocol):
    """Anything with Stable-Baselines3's ``predict``: its models, and every agent of this package."""

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[Any, Any]:
        """Return the action for one observation, or one action for each row of a batch, and the next hidden state."""
        ...


class ScheduleAgent:
    """An agent whose action depends on the time alone, or on the time and the context.

    Parameters
    ----------
    actions : ndarray of shape (T, ...), or (T, c, ...) with `by_context`
        Action of each decision, in each context.
    name : str
    privacy : str
        What computing the actions revealed of the private matrix, in words.
    context : Context, optional
        That of the model it acts in: what observations end with.
    by_context : bool
        Whether the actions have an axis for the context.
    """

    def __init__(
        self,
        actions: NDArray[Any],
        name: str,
        privacy: str,
        context: Context | None = None,
        by_context: bool = False,
    ) -> None:
        self.actions, self.name, self.privacy = np.asarray(actions), name, privacy
        self.features = np.zeros((1, 0)) if context is None else context.features
        self.by_context = by_context

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.actions.shape[1 + self.by_context :])) or "1"
        contexts = f" in {self.actions.shape[1]} contexts" if self.by_context else ""
        return f"{type(self).__name__}({self.name!r}, {len(self.actions)} decisions of {shape} numbers{contexts})"

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], Any]:
        """Look the time, and the context, up in the observation and return the action scheduled for them."""
        time = decision_time(observation, len(self.actions), self.features.shape[1])
        if self.by_context:
            return self.actions[time, observed_context(observation, self.features)], state
        return self.actions[time], state


def decision_time(observation: Any, horizon: int, features: int = 0) -> NDArray[np.int64]:
    """Read the number of the decision from observations of shape (n + 3 + f,) or (batch, n + 3 + f).

    The part of the horizon that is left stands before two prices and the `f`
    features of the context. At the end of an episode there is no decision, and the
    last one is returned.
    """
    left = np.asarray(observation, dtype=float)[..., -3 - features]
    return np.clip(np.rint((1.0 - left) * horizon), 0, horizon - 1).astype(np.int64)


def observed_context(observation: Any, features: FloatArray) -> NDArray[np.int64]:
    """Read the context from observations that end with its features, those of all contexts being (c, f)."""
    array = np.asarray(observation, dtype=float)
    shown = array[..., array.shape[-1] - features.shape[1] :]
    found: NDArray[np.int64] = np.abs(shown[..., None, :] - features).sum(axis=-1).argmin(axis=-1)
    return found


# ------------------------------------------------------------------ registry
Factory = Callable[..., Agent]
#: The modules whose table ``FACTORIES`` makes each built-in agent, imported when it is first asked for.
_HOMES = {
    "practice": "uncontrolled ad-hoc best-price",
    "analytical": "standard taylor digamma average average-sampled average-expansion average-exact",
    "z_learning": "z-learning",
    "sb3": "ppo a2c sac td3 dqn tqc trpo apg",
}
_REGISTRY: Registry[Factory] = Registry(
    "agent",
    {name: f"dp_ensemble_env.agents.{module}:FACTORIES" for module, names in _HOMES.items() for name in names.split()},
)
agent_names = _REGISTRY.names


def register_agent(name: str) -> Callable[[Factory], Factory]:
    """Register ``factory(env, **kwargs) -> agent`` of your own under a name; doing it again replaces it."""

    def decorate(factory: Factory) -> Factory:
        _REGISTRY.register(name, factory, replace=True)
        return factory

    return decorate


def agent_factory(name: str) -> Factory:
    """Return what makes the agent called `name`."""
    return _REGISTRY[name]


def make_agent(name: str, env: Any, **kwargs: Any) -> Agent:
    """Make the agent called `name` for an environment.

    Parameters
    ----------
    name : str
        One of `agent_names`.
    env : gymnasium.Env or gymnasium.vector.VectorEnv
        The environment it is to act in. Agents that plan do so on its model,
        unless a release is given; agents that learn are trained in it.
    **kwargs
        Settings of the agent, such as ``k=50`` or ``release=...`` for the
        analytical ones and ``steps=20_000, seed=0`` for the learners.
    """
    return agent_factory(name)(env, **kwargs)


def core_env(env: Any) -> Core:
    """Return the ensemble environment inside any wrappers, single or vector."""
    core = getattr(env, "unwrapped", env)
    if not isinstance(core, (EnsembleEnv, EnsembleVectorEnv)):
        inner = getattr(env, "envs", None)
        if isinstance(inner, EnsembleVectorEnv):  # the adapter for Stable-Baselines3
            return inner
        if isinstance(inner, (list, tuple)) and inner:  # a vector of separate environments
            return core_env(inner[0])
        raise ValueError(
            f"env must be one of the dp_ensemble environments, got {type(env).__name__}; make it with "
            "gymnasium.make('dp_ensemble/Spot-v1')."
        )
    return core
