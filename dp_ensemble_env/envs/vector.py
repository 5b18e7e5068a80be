"""The same environment, many at a time: one compiled call steps the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from dp_ensemble_env.envs import step
from dp_ensemble_env.envs.batch import Batch
from dp_ensemble_env.envs.settings import EnvSettings, Options
from dp_ensemble_env.envs.view import RENDER_FPS, START_OPTIONS, BatchView, check_options
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.validation import check_choice, check_count

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Step = tuple[NDArray[np.float32], FloatArray, BoolArray, BoolArray, dict[str, Any]]
VECTOR_RENDER_MODES = ["rgb_array", "ansi"]


class EnsembleVectorEnv(BatchView, VectorEnv[NDArray[np.float32], NDArray[np.floating], NDArray[Any]]):
    """Batch of `EnsembleEnv`; its docstring describes spaces, rewards and arguments.

    Each of the `num_envs` sub-environments equals, bit for bit, an `EnsembleEnv` reset with ``seed + i``. They share
    the model and its release. With ``redraw="episode"`` the sub-environments in their j-th episode share the j-th
    release, which is charged once.

    The `autoreset_mode` is ``NEXT_STEP`` (default), ``SAME_STEP`` (the last observation
    and info are then in ``infos["final_obs"]`` and ``infos["final_info"]``) or ``DISABLED``
    (``reset(options={"reset_mask": mask})`` resets some of them). Infos are arrays with one entry per sub-environment;
    ``infos["_key"]`` marks the valid entries. ``render()`` returns one frame per sub-environment.
    ``infos="all"`` adds shares and curtailment. Nothing is truncated: `max_episode_steps` is at least the horizon.
    """

    metadata: dict[str, Any] = {
        "render_modes": VECTOR_RENDER_MODES,
        "render_fps": RENDER_FPS,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        model: EnsembleModel | Sequence[EnsembleModel] | str | None = None,
        population: str | int = "mean-field",
        action: str = "tilt",
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        self.num_envs = check_count(num_envs, "num_envs")
        self.autoreset_mode = _check_autoreset(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        if render_mode is not None:
            check_choice(render_mode, "render_mode", VECTOR_RENDER_MODES)
        self.render_mode = render_mode
        next_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        settings = EnvSettings.of(model, population, action, **options)
        self._batch = Batch(settings, num_envs, next_step, pictures=render_mode is not None)
        horizon = self.model.horizon
        if max_episode_steps is not None and check_count(max_episode_steps, "max_episode_steps") < horizon:
            raise ValueError(
                f"max_episode_steps={max_episode_steps} would truncate the {horizon} steps of an episode, which the "
                "batch cannot do; leave it out, or make single environments: vectorization_mode='sync'."
            )
        self.single_observation_space = self._batch.observation_space
        self.single_action_space = self._batch.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._shape = (num_envs, *self._batch.action_shape)
        self._everyone = np.ones(num_envs, np.bool_)  # the mask of every info, shared and hence read-only
        self._everyone.setflags(write=False)

    # ------------------------------------------------------------ the episodes
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Reset all sub-environments, or the ones marked in ``options["reset_mask"]``, a bool array.

        One `seed` gives sub-environment `i` the seed ``seed + i``. The options ``state``, ``occupancy`` and ``context``
        hold for all of them, or there is one for each.
        """
        chosen = check_options(options, (*START_OPTIONS, "reset_mask"))
        mask, start, seeds = self._check_mask(chosen.get("reset_mask")), self._start(chosen), self._check_seeds(seed)
        if (self._batch.state.time[~mask] < 0).any():
            raise ValueError("reset_mask leaves out sub-environments that were never reset; reset all of them first.")
        self._batch.next_release(mask)  # raises before anything else has changed
        super().reset(seed=seed if isinstance(seed, int) else None)
        self._seed_streams(seeds, mask)
        observations, values = self._blank()
        values[:] = 0.0
        if not mask.all():
            self._batch.observe(observations)
        self._batch.reset(mask, start, observations, values)
        return observations, self._infos(values, mask)

    def step(self, actions: NDArray[np.floating] | Any) -> Step:
        """Step all sub-environments; a refused action changes nothing."""
        batch, time = self._batch, self._batch.state.time
        if batch.redraw == "episode":  # releases are drawn, and may be refused, before anything moves
            self._check_first(actions)
            if self.autoreset_mode is AutoresetMode.NEXT_STEP:
                batch.next_release(time == self.model.horizon)
            elif self.autoreset_mode is AutoresetMode.SAME_STEP:
                batch.next_release(time == self.model.horizon - 1, assign=False)
        observations, values = self._blank()
        batch.step(actions, self._shape, observations, values)
        terminated = time == self.model.horizon
        infos = self._infos(values, self._everyone)
        rewards = values[step.REWARD]
        if self.autoreset_mode is AutoresetMode.SAME_STEP and terminated.any():
            observations, infos = self._reset_at_once(terminated, observations, values, infos)
        return observations, rewards, terminated, np.zeros(self.num_envs, np.bool_), infos

    def _reset_at_once(
        self, terminated: BoolArray, final: NDArray[np.float32], values: FloatArray, final_infos: dict[str, Any]
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Reset the sub-environments that have just ended and keep their last observation and info."""
        self._batch.next_release(terminated)
        observations, now = final.copy(), values.copy()
        self._batch.reset(terminated, self._start({}), observations, now)
        infos = self._infos(now, self._everyone)
        for key in list(final_infos):
            if not key.startswith("_"):
                last = np.array(final_infos[key])
                last[~terminated] = 0
                final_infos[key], final_infos[f"_{key}"] = last, terminated
        ended = {"_final_obs": terminated.copy(), "_final_info": terminated.copy()}
        return observations, {**infos, "final_obs": final, "final_info": final_infos, **ended}

    def _blank(self) -> tuple[NDArray[np.float32], FloatArray]:
        return np.empty((self.num_envs, self._batch.width), np.float32), np.empty((step.VALUES, self.num_envs))

    def _infos(self, values: FloatArray, present: BoolArray) -> dict[str, Any]:
        batch = self._batch
        infos: dict[str, Any] = {
            "time": batch.state.time.copy(),
            "utility": values[step.UTILITY],
            "discomfort": values[step.DISCOMFORT],
            "power_kw": values[step.POWER],
            "optimal_return": batch.state.best[:, 0].copy(),
            "optimal_points": batch.state.best[:, 1].copy(),
        }
        if self.model.context is not None:
            infos["context"] = self.model.context.shown[self.context]
        if self.model.coupling is not None:
            infos["cost"], infos["coupling_cost"] = values[step.MISS], values[step.CHARGE]
        if batch.several:
            infos["instance"] = batch.state.row.copy()
        if batch.infos == "all":
            default, seen = self.default_occupancy, float(self.model.shares_shown)
            infos["occupancy"], infos["default_occupancy"] = seen * self.occupancy, seen * default
            each = zip(range(self.num_envs), default, values[step.POWER], strict=True)
            infos["curtailment_kw"] = np.array([batch.curtailment(*one) for one in each])
        return {**infos, **{f"_{key}": present for key in infos}}

    def _check_first(self, actions: Any) -> None:
        array = self._batch.as_action(actions, self._shape)
        playing = self._batch.state.time < self.model.horizon
        wrong = np.isnan(array) & playing.reshape(-1, *(1,) * (array.ndim - 1))
        if wrong.any():
            raise ValueError(f"action{np.argwhere(wrong)[0].tolist()} is NaN; look for NaN in the policy that made it.")

    # ------------------------------------------------------------ arguments of reset
    def _check_mask(self, mask: Any) -> BoolArray:
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        array = np.array(mask)  # a copy, since infos hold it
        if array.dtype != np.bool_ or array.shape != (self.num_envs,) or not array.any():
            raise ValueError(
                f"reset_mask must be a bool array of shape ({self.num_envs},) with some True, got {array.dtype} "
                f"{array.shape}."
            )
        return array

    def _check_seeds(self, seed: Any) -> Sequence[int | None] | None:
        if seed is None:
            return None
        seeds = [seed] if np.ndim(seed) == 0 else list(seed)
        for one in seeds:
            if one is not None and (not isinstance(one, (int, np.integer)) or one < 0):
                raise ValueError(f"a seed must be an integer that is not negative, got {one!r}.")
        if np.ndim(seed) == 0:
            return [int(seed) + i for i in range(self.num_envs)]
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must be one integer or {self.num_envs} of them, got {len(seeds)}.")
        return seeds

    # ------------------------------------------------------------ what is going on
    @property
    def time(self) -> NDArray[np.int64]:
        """Decisions taken in each episode."""
        taken: NDArray[np.int64] = self._batch.state.time.copy()
        return taken

    @property
    def occupancy(self) -> FloatArray:
        """Share of the loads at each level, shape (num_envs, n)."""
        return self._batch.occupancy

    @property
    def context(self) -> NDArray[np.int64]:
        """The present context of each sub-environment; 0 where there is none."""
        return self._batch.context

    @property
    def default_occupancy(self) -> FloatArray:
        """Expected shares of uncontrolled loads in the same contexts, shape (num_envs, n)."""
        return np.stack([self._batch.default_occupancy(i) for i in range(self.num_envs)])

    @property
    def default_power_kw(self) -> FloatArray:
        """Power of a load had nobody interfered, (num_envs, T + 1): in the contexts that came up, then as expected."""
        return np.stack([self._batch.default_power(i) for i in range(self.num_envs)])

    # ------------------------------------------------------------ pictures
    def render(self) -> tuple[Any, ...] | None:
        """Return one frame per sub-environment."""
        return tuple(self._frames(self.render_mode)) or None

    def close_extras(self, **kwargs: Any) -> None:
        """Free what rendering holds."""
        self._close_renderer()


def _check_autoreset(mode: Any) -> AutoresetMode:
    if isinstance(mode, AutoresetMode):
        return mode
    by_name = {**{m.value: m for m in AutoresetMode}, **{m.name: m for m in AutoresetMode}}
    return by_name[check_choice(mode, "autoreset_mode", by_name)]
