"""Several instances of a scenario in one environment of Stable-Baselines3, each in its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from dp_ensemble_env.envs.sb3 import EnsembleVecEnv
from dp_ensemble_env.model import EnsembleModel

Wrapper = Callable[[EnsembleVecEnv, EnsembleModel], VecEnv]


class InstancesVecEnv(VecEnv):
    """Episodes on several models of equal shape, side by side and in turn.

    The sub-environments fall into as many groups of equal size as there are models, or as
    fit. Each group plays an episode on one model; when the episodes end, all at
    the same time, the groups take the next models. So every model is played equally
    often, however few sub-environments there are.

    Parameters
    ----------
    num_envs : int
    models : sequence of EnsembleModel
        Instances of a scenario; equal numbers of states, decisions, contexts and steps.
    wrap : callable, optional
        ``wrap(env, model)`` returns what is stepped, for example with scaled rewards.
    **settings
        Further arguments of `EnsembleVecEnv`.
    """

    def __init__(
        self, num_envs: int, models: Sequence[EnsembleModel], wrap: Wrapper | None = None, **settings: Any
    ) -> None:
        shapes = {(m.n_states, m.n_decisions, m.n_contexts, m.horizon) for m in models}
        if len(shapes) != 1:
            raise ValueError(f"models must be at least one and of equal (n, m, c, T), got {sorted(shapes)}.")
        self.groups = max(g for g in range(1, min(num_envs, len(models)) + 1) if num_envs % g == 0)
        self.size = num_envs // self.groups
        made = [(EnsembleVecEnv(self.size, model=model, **settings), model) for model in models]
        self.members: list[VecEnv] = [env if wrap is None else wrap(env, model) for env, model in made]
        first = self.members[0]
        self.turn = 0
        super().__init__(num_envs, first.observation_space, first.action_space)
        self._waiting: list[NDArray[np.float32]] = []  # first observations of each member's next episode

    @property
    def playing(self) -> list[int]:
        """The models that are being played, one for each group."""
        return [(self.turn + g) % len(self.members) for g in range(self.groups)]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed all members differently, and begin with a member that depends on the seed."""
        if seed is None:
            return [None] * self.num_envs
        words = np.random.SeedSequence(seed).generate_state(len(self.members) + 1)
        for member, word in zip(self.members, words[1:], strict=True):
            member.seed(int(word >> 1))
        self.turn = int(words[0] % len(self.members))
        return [seed + i for i in range(self.num_envs)]

    def reset(self) -> NDArray[np.float32]:
        """Begin new episodes everywhere."""
        self._waiting = [np.asarray(member.reset()) for member in self.members]
        return self._observed()

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions for `step_wait`."""
        for i, part in zip(self.playing, np.split(np.asarray(actions), self.groups), strict=True):
            self.members[i].step_async(part)

    def step_wait(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step the models that are being played; at the end of their episodes the next ones begin."""
        rewards, dones, infos = [], [], []
        for i in self.playing:
            observed, reward, done, info = self.members[i].step_wait()
            self._waiting[i] = np.asarray(observed)
            rewards.append(reward)
            dones.append(done)
            infos += info
        ended = np.concatenate(dones)
        if ended.any():  # then all have ended: the horizons are equal, and all began together
            self.turn = (self.turn + self.groups) % len(self.members)
        return self._observed(), np.concatenate(rewards), ended, infos

    def _observed(self) -> NDArray[np.float32]:
        return np.concatenate([self._waiting[i] for i in self.playing])

    def close(self) -> None:
        """Close all members."""
        for member in self.members:
            member.close()

    # ------------------------------------------------------------ sub-environments
    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the sub-environments, that of the model each is playing."""
        found = [value for i in self.playing for value in self.members[i].get_attr(attr_name)]
        return [found[i] for i in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: the sub-environments have no attributes of their own."""
        self.members[0].set_attr(attr_name, value, indices)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the models that are being played."""
        found = [
            value
            for i in self.playing
            for value in self.members[i].env_method(method_name, *method_args, **method_kwargs)
        ]
        return [found[i] for i in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Say whether sub-environments are wrapped."""
        return [self.members[0].env_is_wrapped(wrapper_class)[0]] * len(list(self._get_indices(indices)))
