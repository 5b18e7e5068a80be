"""Stable-Baselines3 on the native vector environment, without a Python loop over sub-environments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.envs.registration import registry
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from dp_ensemble_env.envs import environment_ids
from dp_ensemble_env.envs.vector import EnsembleVectorEnv

try:
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv
except ImportError as error:  # pragma: no cover - depends on what is installed
    raise ImportError("dp_ensemble_env.envs.sb3 needs Stable-Baselines3; pip install stable-baselines3.") from error


class EnsembleVecEnv(VecEnv):
    """`EnsembleVectorEnv` behind SB3's `VecEnv` interface.

    ``PPO("MlpPolicy", EnsembleVecEnv(64, "dp_ensemble/Spot-v1"))`` trains at the speed of the compiled batch. Episodes
    restart automatically. The info of a sub-environment is empty during an episode. At the end it holds the single
    environment's last info, ``terminal_observation``, and ``episode`` (return ``r``, length ``l``, seconds ``t``) as
    SB3's `Monitor` does, so no `VecMonitor` is needed. It takes the `settings` of `EnsembleVectorEnv` except
    `autoreset_mode`; without an `id`, pass a `model`.
    """

    def __init__(self, num_envs: int = 1, id: str | None = None, **settings: Any) -> None:
        if id is not None:
            name, known = id.rpartition(":")[2], environment_ids()
            if name not in known:
                raise ValueError(f"unknown environment {id!r}; choose one of {', '.join(known)}.")
            settings = {**registry[name].kwargs, **settings}
        self.envs = EnsembleVectorEnv(num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **settings)
        self.render_mode = self.envs.render_mode
        self.metadata = self.envs.metadata
        super().__init__(num_envs, self.envs.single_observation_space, self.envs.single_action_space)
        self._actions: NDArray[np.floating] | None = None
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._began = time.time()

    def reset(self) -> NDArray[np.float32]:
        """Reset all sub-environments with the seed and options that were set before."""
        given = [options for options in self._options if options]
        if any(options != given[0] for options in given) or len(given) not in (0, self.num_envs):
            raise ValueError("the sub-environments share one reset, so set_options takes one dict for all of them.")
        observations, infos = self.envs.reset(
            seed=self._seeds if any(s is not None for s in self._seeds) else None, options=given[0] if given else None
        )
        self._reset_seeds()
        self._reset_options()
        self._returns[:], self._lengths[:] = 0.0, 0
        keys = [key for key in infos if not key.startswith("_")]
        self.reset_infos = [{key: infos[key][i] for key in keys} for i in range(self.num_envs)]
        return observations

    def step_async(self, actions: NDArray[np.floating]) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step all sub-environments."""
        if self._actions is None:
            raise ValueError("there are no actions to carry out; call step(actions), or step_async before step_wait.")
        actions, self._actions = self._actions, None
        observations, rewards, dones, _, infos = self.envs.step(actions)
        self._returns += rewards
        self._lengths += 1
        out: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if dones.any():
            final = {key: value for key, value in infos["final_info"].items() if not key.startswith("_")}
            elapsed = round(time.time() - self._began, 6)
            for i in np.flatnonzero(dones):
                out[i] = {key: value[i] for key, value in final.items()}
                out[i]["terminal_observation"] = infos["final_obs"][i]
                out[i]["TimeLimit.truncated"] = False
                out[i]["episode"] = {"r": float(self._returns[i]), "l": int(self._lengths[i]), "t": elapsed}
            self._returns[dones], self._lengths[dones] = 0.0, 0
        return observations, rewards.astype(np.float32), dones, out

    def close(self) -> None:
        """Free what rendering holds."""
        self.envs.close()

    # ------------------------------------------------------------ sub-environments
    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute, which all sub-environments share."""
        return [getattr(self.envs, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: the sub-environments have no attributes of their own."""
        raise ValueError(
            f"cannot set {attr_name!r} of single sub-environments; make the environment with other arguments."
        )

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method, which all sub-environments share."""
        result = getattr(self.envs, method_name)(*method_args, **method_kwargs)
        return [result for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Say whether sub-environments are wrapped: never, except that episodes are monitored already."""
        from stable_baselines3.common.monitor import Monitor

        return [wrapper_class is Monitor for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[Any]:
        """Return one frame per sub-environment."""
        return self.envs.render() or []
