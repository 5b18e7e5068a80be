"""What every agent promises, and how agents are made by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env._registry import Registry
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.vector import EnsembleVectorEnv

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
    """An agent whose action depends on the time alone.

    Parameters
    ----------
    actions : ndarray of shape (T, ...)
        Action of each decision.
    name : str
    privacy : str
        What computing the actions revealed of the private matrix, in words.
    """

    def __init__(self, actions: NDArray[np.floating], name: str, privacy: str) -> None:
        self.actions, self.name, self.privacy = np.asarray(actions), name, privacy

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.actions.shape[1:]))
        return f"{type(self).__name__}({self.name!r}, {len(self.actions)} decisions of {shape} numbers)"

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[np.floating], Any]:
        """Look the time up in the observation and return the action scheduled for it."""
        time = decision_time(observation, len(self.actions))
        return self.actions[time], state


def decision_time(observation: Any, horizon: int) -> NDArray[np.int64]:
    """Read the number of the decision from observations of shape (n + 3,) or (batch, n + 3).

    The third entry from the end is the part of the horizon that is left. At
    the end of an episode there is no decision, and the last one is returned.
    """
    left = np.asarray(observation, dtype=float)[..., -3]
    return np.clip(np.rint((1.0 - left) * horizon), 0, horizon - 1).astype(np.int64)


# ------------------------------------------------------------------ registry
Factory = Callable[..., Agent]
#: The modules whose table ``FACTORIES`` makes each built-in agent, imported when it is first asked for.
_HOMES = {
    "practice": "uncontrolled ad-hoc best-price",
    "analytical": "standard taylor digamma average average-sampled average-expansion average-exact",
    "z_learning": "z-learning",
    "sb3": "ppo a2c sac td3 dqn tqc trpo",
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
            "gymnasium.make('dp_ensemble_env:dp_ensemble/MeanField-v0')."
        )
    return core
