"""The same environment, many at a time: one compiled call steps the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dp_ensemble_env.envs import _general as gen
from dp_ensemble_env.envs import _parts as dyn
from dp_ensemble_env.envs._sheets import Sheets
from dp_ensemble_env.envs.actions import mode
from dp_ensemble_env.envs.dynamics import PIECE, STEPS
from dp_ensemble_env.envs.ensemble import RENDER_FPS, follow_default, population_title
from dp_ensemble_env.envs.general import uncontrolled_ahead
from dp_ensemble_env.envs.settings import EnvSettings, Options
from dp_ensemble_env.envs.tables import uncontrolled_power
from dp_ensemble_env.envs.task import (
    FLOAT32,
    FLOAT64,
    Task,
    TaskView,
    check_context,
    check_occupancy,
    check_options,
    check_state,
    random_words,
    seed_words,
    writeable,
)
from dp_ensemble_env.envs.threads import advance
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.validation import check_choice, check_count

if TYPE_CHECKING:
    from dp_ensemble_env.envs.rendering import Renderer

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Step = tuple[NDArray[np.float32], FloatArray, BoolArray, BoolArray, dict[str, Any]]
VECTOR_RENDER_MODES = ["rgb_array", "ansi"]


class EnsembleVectorEnv(TaskView, VectorEnv[NDArray[np.float32], NDArray[np.floating], NDArray[Any]]):
    """Batch of `EnsembleEnv`; its docstring describes spaces, rewards and arguments.

    Sub-environment `i` equals, bit for bit, an `EnsembleEnv` that is reset with
    ``seed + i``. All of them share the model and, with `k`, the release. With
    ``redraw="episode"`` the sub-environments in their j-th episode share the
    j-th release, which is charged once.

    Parameters
    ----------
    num_envs : int
    autoreset_mode : AutoresetMode or str
        ``NEXT_STEP`` (default), ``SAME_STEP`` (the last observation and info are
        then in ``infos["final_obs"]`` and ``infos["final_info"]``) or ``DISABLED``
        (``reset(options={"reset_mask": mask})`` resets some of them).
    model, population, action, k, floor, release, release_seed, redraw, budget, ledger, h
        See `EnsembleEnv`.
    infos : {"basic", "all"}
        Infos are arrays with one entry per sub-environment, and ``infos["_key"]``
        marks the entries that hold something, as everywhere in Gymnasium.
        ``"all"`` adds the costly ``occupancy`` and ``default_occupancy``.
    render_mode : {None, "rgb_array", "ansi"}
        ``render()`` returns one frame per sub-environment.
    max_episode_steps : int, optional
        Given by Gymnasium where a spec is made again; no less than the horizon, since nothing is truncated.
    """

    metadata: dict[str, Any] = {
        "render_modes": VECTOR_RENDER_MODES,
        "render_fps": RENDER_FPS,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        model: EnsembleModel | str | None = None,
        population: str | int = "mean-field",
        action: str = "tilt",
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__()
        self._renderer: Renderer | None = None  # first, since Gymnasium closes even what was never finished
        self.num_envs = check_count(num_envs, "num_envs")
        self.autoreset_mode = _check_autoreset(autoreset_mode)
        self.metadata = {**type(self).metadata, "autoreset_mode": self.autoreset_mode}
        if render_mode is not None:
            check_choice(render_mode, "render_mode", VECTOR_RENDER_MODES)
        self.render_mode = render_mode
        next_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        self._task = Task(EnvSettings.of(model, population, action, **options), next_step)
        _check_limit(max_episode_steps, self._task.model.horizon)
        self.single_observation_space = self._task.observation_space
        self.single_action_space = self._task.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        n, horizon, size = self._task.model.n_states, self._task.model.horizon, self.num_envs
        self._horizon, self._shape = horizon, (size, *self._task.action_shape)
        self._kernels = self._task.kernel.packed()[None, :]
        self._models = [self._task.model]
        self._counters, self._occupancy = self._task.arrays(size)
        self._traces = np.zeros((1, size))  # grows when a reset chooses a distribution
        self._episodes = np.zeros(size, np.int64)
        self._drawn_for = np.full(1, 0)
        self._start = np.zeros((size, n)) if self._task.infos == "all" or render_mode is not None else None
        self._history = None if render_mode is None else np.zeros((3, horizon + 1, size))
        self._stream_source: np.random.Generator | None = None
        self._looks_back = self._task.redraw == "episode" or self._start is not None
        self._all, self._unit = self._task.infos == "all", self._task.unit
        self._contextual, self._coupled = self.model.context is not None, self.model.coupling is not None
        self._observed, self._rows = (size, self._task.width), self._task.values
        self._sheets = Sheets(self._observed, (self._rows, size))
        self._last = np.array(horizon)  # comparing with an array is quicker than with an int
        self._everyone = np.ones(size, np.bool_)  # the mask of every info, shared and hence read-only
        self._ints, self._common = self._task.ints, self._task.common
        self._bind()

    def _bind(self) -> None:
        self._advance, self._piece = STEPS[self._task.dynamics], PIECE[self._task.dynamics]
        self._times = self._counters[dyn.TIME]  # a view
        self._everyone.setflags(write=False)

    # ------------------------------------------------------------ the episodes
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Reset all sub-environments, or those of ``options["reset_mask"]``.

        Parameters
        ----------
        seed : int or sequence of int or None, optional
            An int gives sub-environment `i` the seed ``seed + i``.
        options : dict, optional
            ``state`` (an int, or one for each), ``occupancy`` (n shares, or one row
            for each), ``context`` (an int, or one for each), ``reset_mask`` (bool array).
        """
        chosen = check_options(options, ("state", "occupancy", "context", "reset_mask"))
        mask = self._check_mask(chosen.get("reset_mask"))
        states, given, contexts = *self._check_start(chosen), self._check_contexts(chosen)
        seeds = self._check_seeds(seed)
        if (self._counters[dyn.TIME, ~mask] < 0).any():
            raise ValueError("reset_mask leaves out sub-environments that were never reset; reset all of them first.")
        self._next_release(mask)  # raises before anything else has changed
        if "occupancy" in chosen and len(self._traces) == 1 and not self._task.general:
            self._traces = np.vstack([self._traces, np.zeros((self._horizon + 1, self.num_envs))])
        super().reset(seed=seed if isinstance(seed, int) else None)
        self._seed_streams(seeds, mask)
        observations = np.empty(self._observed, np.float32)
        values = np.zeros((self._rows, self.num_envs))
        if not mask.all():
            self._observe(observations)
        self._restart(mask, states, given, contexts, observations, values)
        return observations, self._infos(values, mask)

    def step(self, actions: NDArray[np.floating] | Any) -> Step:
        """Step all sub-environments; a bad action is refused and changes nothing."""
        if (
            actions.__class__ is not np.ndarray
            or actions.shape != self._shape
            or (actions.dtype != FLOAT32 and actions.dtype != FLOAT64)
            or not actions.flags.carray
        ):
            actions = self._task.as_action(actions, self._shape)
        over: BoolArray | None = None
        if self._looks_back:
            over = self._times == self._horizon
            actions = self._check_first(actions, over)
            # Releases are drawn, and may be refused, before anything moves.
            if self.autoreset_mode is AutoresetMode.NEXT_STEP:
                self._next_release(over)
            elif self.autoreset_mode is AutoresetMode.SAME_STEP:
                self._next_release(self._times == self._horizon - 1, assign=False)
        observations, values = self._sheets.blank()
        flat = actions.reshape(self.num_envs, -1) if actions.ndim > 2 else actions
        arrays = (
            self._ints,
            self._common,
            self._kernels,
            self._counters,
            self._traces,
            self._occupancy,
            flat,
            observations,
            values,
        )
        if self.num_envs < 2 * self._piece:
            fault = self._advance(*arrays, 0, 0)
        else:
            fault = advance(self._advance, arrays, self._piece)
        if fault:
            return EnsembleVectorEnv.step(self, self._task.mended(fault, actions, self._shape))
        if over is not None:
            self._remember(over, values)
        terminated = np.equal(self._times, self._last)
        infos = self._infos(values, self._everyone)
        if self.autoreset_mode is AutoresetMode.SAME_STEP and terminated.any():
            observations, infos = self._reset_at_once(terminated, observations, values, infos)
        rewards = values[0] if self._unit is None else values[0] / self._unit
        return observations, rewards, terminated, np.zeros(self.num_envs, np.bool_), infos

    def _reset_at_once(
        self, terminated: BoolArray, final: NDArray[np.float32], values: FloatArray, final_infos: dict[str, Any]
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Reset the sub-environments that have just ended and keep their last observation and info."""
        self._next_release(terminated)
        observations = final.copy()
        now = values.copy()
        anywhere = np.full(self.num_envs, -1)
        self._restart(terminated, anywhere, np.zeros((1, 0)), anywhere, observations, now)
        infos = self._infos(now, self._everyone)
        for key in list(final_infos):
            if not key.startswith("_"):
                last = np.array(final_infos[key])
                last[~terminated] = 0
                final_infos[key], final_infos[f"_{key}"] = last, terminated
        infos.update(
            final_obs=final, _final_obs=terminated.copy(), final_info=final_infos, _final_info=terminated.copy()
        )
        return observations, infos

    def _infos(self, values: FloatArray, present: BoolArray) -> dict[str, Any]:
        infos: dict[str, Any] = {
            "time": self._times.copy(),
            "utility": values[1],
            "discomfort": values[2],
            "power_kw": values[3],
            "curtailment_kw": values[4],
            "optimal_return": self._traces[0].copy(),
            "_time": present,
            "_utility": present,
            "_discomfort": present,
            "_power_kw": present,
            "_curtailment_kw": present,
            "_optimal_return": present,
        }
        if self._contextual:
            infos["context"], infos["_context"] = self.context, present
        if self._coupled:
            infos["cost"], infos["_cost"] = values[gen.VIOLATION], present
        if self._all:
            infos["occupancy"], infos["default_occupancy"] = self.occupancy, self.default_occupancy
            infos["_occupancy"], infos["_default_occupancy"] = present, present
        return infos

    # ------------------------------------------------------------ starts
    def _restart(
        self,
        mask: BoolArray,
        states: NDArray[np.int64],
        given: FloatArray,
        contexts: NDArray[np.int64],
        observations: NDArray[np.float32],
        values: FloatArray,
    ) -> None:
        arrays = self._ints, self._common, self._kernels, self._counters, self._traces, self._occupancy
        if self._task.general:
            gen.reset_general(*arrays, mask, states, given, contexts, observations, values)
            chosen = np.flatnonzero(mask & (states != -1)) if self._coupled else ()
            for i in chosen:
                self._traces[0, i] = self._task.optimal_return(self.occupancy[i])
        else:
            dyn.reset_rows(*arrays, mask, states, given, observations, values)
        self._remember(mask, values)

    def _remember(self, restarted: BoolArray, values: FloatArray) -> None:
        """Keep what pictures and the costly infos look back on."""
        if self._start is not None and restarted.any():
            self._start[restarted] = self.occupancy[restarted]
        if self._history is not None:
            column = np.arange(self.num_envs)
            self._history[0, self._counters[dyn.TIME], column] = values[dyn.POWER]
            self._history[1, self._counters[dyn.TIME], column] = values[dyn.REWARD]
            self._history[2, self._counters[dyn.TIME], column] = values[dyn.POWER] + values[dyn.CURTAILMENT]

    def _seed_streams(self, seeds: Sequence[int | None] | None, mask: BoolArray) -> None:
        streams = self._counters[self._task.streams]
        fresh = self._stream_source is None or self._stream_source is not self._np_random
        if seeds is None or any(seed is None for seed in seeds):
            if self._np_random is None or (fresh and seeds is None):
                words = random_words(self.np_random, self.num_envs)
                streams[:, mask] = words[:, mask]
        if seeds is not None:
            for i in np.flatnonzero(mask).tolist():
                if (one := seeds[i]) is not None:
                    streams[:, i] = seed_words(one)
        self._stream_source = self._np_random

    def _next_release(self, mask: BoolArray, assign: bool = True) -> None:
        """With redraw="episode", draw the releases that the next episodes in `mask` need, and hand them out."""
        if self._task.redraw == "never":
            return
        episodes = self._episodes + mask
        wanted = np.unique(episodes[mask] - 1)
        slots = self._counters[dyn.MATRIX].copy()
        for index in wanted:
            found = np.flatnonzero(self._drawn_for == index)
            slot = int(found[0]) if len(found) else self._draw(int(index), slots[~mask] if assign else slots)
            slots[mask & (episodes - 1 == index)] = slot
        if assign:
            self._episodes = episodes
            self._counters[dyn.MATRIX] = slots

    def _draw(self, index: int, in_use: NDArray[np.int64]) -> int:
        kernel = self._task.draw(index)
        self._task.kernel = kernel
        free = np.setdiff1d(np.arange(len(self._kernels)), in_use)
        if len(free):
            slot = int(free[0])
            self._kernels[slot], self._drawn_for[slot], self._models[slot] = kernel.packed(), index, self._task.model
            return slot
        self._kernels = np.vstack([self._kernels, kernel.packed()])
        self._drawn_for = np.append(self._drawn_for, index)
        self._models.append(self._task.model)
        return len(self._kernels) - 1

    def _check_first(self, actions: NDArray[np.floating], over: BoolArray) -> NDArray[np.floating]:
        """Refuse bad actions before a release is drawn; return them with rounding mended."""
        low = mode(self._task.mode).low
        for _ in range(2):
            flat = actions.reshape(self.num_envs, -1)
            wrong = ~((flat >= low) & (flat <= 1.0)) & ~over[:, None]
            if not wrong.any():
                break
            actions = self._task.mended(1 + int(np.flatnonzero(wrong)[0]), actions, self._shape)
        return actions

    def _observe(self, observations: NDArray[np.float32]) -> None:
        """Write the present observations (for a reset that leaves some sub-environments alone)."""
        n, c = self._task.model.n_states, self._task.model.n_contexts
        width = self._observed[1] - n
        clock = self._task.common[self._task.ints[dyn.CLOCK] :][: (self._horizon + 1) * c * width]
        observations[:, :n] = self.occupancy
        observations[:, n:] = clock.reshape(-1, c, width)[self._counters[dyn.TIME], self.context]

    # ------------------------------------------------------------ arguments of reset
    def _check_mask(self, mask: Any) -> BoolArray:
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        array = np.asarray(mask)
        if array.dtype != np.bool_ or array.shape != (self.num_envs,) or not array.any():
            raise ValueError(
                f"reset_mask must be a bool array of shape ({self.num_envs},) with some True, got {array.dtype} "
                f"{array.shape}."
            )
        return array

    def _check_start(self, options: dict[str, Any]) -> tuple[NDArray[np.int64], FloatArray]:
        size, n = self.num_envs, self._task.model.n_states
        if "state" in options:
            given = options["state"]
            each = [given] * size if np.ndim(given) == 0 else list(np.asarray(given).ravel())
            if len(each) != size:
                raise ValueError(f"state must be one integer or {size} of them, got {len(each)}.")
            return np.array([check_state(state, n) for state in each]), np.zeros((1, 0))
        if "occupancy" in options:
            shares = np.asarray(options["occupancy"])
            rows = [shares] * size if shares.ndim == 1 else list(shares)
            if len(rows) != size:
                raise ValueError(f"occupancy must have one row or {size}, got {len(rows)}.")
            return np.full(size, -2), np.array([check_occupancy(row, n) for row in rows])
        return np.full(size, -1), np.zeros((1, 0))

    def _check_contexts(self, options: dict[str, Any]) -> NDArray[np.int64]:
        given = options.get("context")
        if given is None:
            return np.full(self.num_envs, -1)
        each = [given] * self.num_envs if np.ndim(given) == 0 else list(np.asarray(given).ravel())
        if len(each) != self.num_envs:
            raise ValueError(f"context must be one integer or {self.num_envs} of them, got {len(each)}.")
        return np.array([check_context(context, self._task.model) for context in each])

    def _check_seeds(self, seed: Any) -> Sequence[int | None] | None:
        if seed is None:
            return None
        seeds = [int(seed) + i for i in range(self.num_envs)] if np.ndim(seed) == 0 else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must be one integer or {self.num_envs} of them, got {len(seeds)}.")
        for one in seeds:
            if one is not None and one < 0:
                raise ValueError(f"a seed must not be negative, got {one}.")
        return seeds

    # ------------------------------------------------------------ what is going on
    @property
    def time(self) -> NDArray[np.int64]:
        """Decisions taken in each episode."""
        result: NDArray[np.int64] = self._counters[dyn.TIME].copy()
        return result

    @property
    def occupancy(self) -> FloatArray:
        """Share of the loads at each level, shape (num_envs, n)."""
        n = self._task.model.n_states
        if self._occupancy.size == 0:  # one load each, whose state is known
            result: NDArray[np.float64] = np.eye(n)[self._counters[dyn.STATE]]
            return result
        return self._occupancy[:, :n] / max(self._task.loads, 1)

    @property
    def context(self) -> NDArray[np.int64]:
        """The present context of each sub-environment; 0 where there is none."""
        if not self._task.general:
            return np.zeros(self.num_envs, np.int64)
        result: NDArray[np.int64] = self._counters[gen.PATH + np.maximum(self._times, 0), np.arange(self.num_envs)]
        return result

    @property
    def default_occupancy(self) -> FloatArray:
        """What the shares would be expected to be by now had nobody interfered, shape (num_envs, n)."""
        if self._task.general:
            return self._occupancy[:, self._task.model.n_states :].copy()
        if self._start is None:
            raise ValueError("the start is remembered only with infos='all' or a render mode; make the environment so.")
        shares = np.empty_like(self._start)
        for time, slot in {*zip(self._counters[dyn.TIME], self._counters[dyn.MATRIX], strict=True)}:
            rows = (self._counters[dyn.TIME] == time) & (self._counters[dyn.MATRIX] == slot)
            for i in np.flatnonzero(rows):  # row by row: a batched product may round differently from a single one
                shares[i] = follow_default(self._models[slot], self._start[i], int(time))
        return shares

    def encode_policy(
        self, policy_t: ArrayLike, time: int, dtype: DTypeLike = np.float32, context: int | None = None
    ) -> NDArray[Any]:
        """Return the action, for one sub-environment, that realises `policy_t` at `time`; see `EnsembleEnv`."""
        return self._task.encode_policy(policy_t, time, dtype, context)

    # ------------------------------------------------------------ pictures and copies
    def render(self) -> tuple[Any, ...] | None:
        """Return one frame per sub-environment."""
        if self.render_mode is None or self._history is None or self._start is None:
            gymnasium.logger.warn("render() was called without a render mode; make it with render_mode='rgb_array'.")
            return None
        from dp_ensemble_env.envs.rendering import Renderer, Scene

        if (self._counters[dyn.TIME] < 0).any():
            raise gymnasium.error.ResetNeeded("there is nothing to draw yet; call reset() before render().")
        if self._renderer is None:
            self._renderer = Renderer(self.render_mode, RENDER_FPS)
        occupancy, default = self.occupancy, self.default_occupancy
        frames = []
        for i in range(self.num_envs):
            time, model = int(self._counters[dyn.TIME, i]), self._models[self._counters[dyn.MATRIX, i]]
            scene = Scene(
                model=model,
                title=population_title(self._task),
                time=time,
                occupancy=occupancy[i],
                default_occupancy=default[i],
                power_kw=self._history[0, : time + 1, i].copy(),
                default_power_kw=self._uncontrolled_power(i, time, model, default[i]),
                rewards=self._history[1, 1 : time + 1, i].copy(),
                optimal_return=float(self._traces[0, i]),
                privacy=self._task.privacy_line(),
                contexts=None if model.context is None else self._counters[gen.PATH : gen.PATH + time + 1, i].copy(),
            )
            frames.append(self._renderer.draw(scene))
        return tuple(frames)

    def _uncontrolled_power(self, i: int, time: int, model: EnsembleModel, default: FloatArray) -> FloatArray:
        """Return the uncontrolled power of a sub-environment at times 0 … T, as in `EnsembleEnv`."""
        assert self._start is not None and self._history is not None
        if not self._task.general:
            plain: FloatArray = self._start[i] @ uncontrolled_power(model.default, model.power_kw, self._horizon)
            return plain
        ahead = uncontrolled_ahead(model, default, int(self.context[i]), time)
        return np.concatenate([self._history[2, : time + 1, i], ahead])

    def close_extras(self, **kwargs: Any) -> None:
        """Free what rendering holds."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_renderer": None, "_advance": None, "_times": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(writeable(state))
        self._task.check_pickled(self._counters)
        self._ints, self._common = self._task.ints, self._task.common
        self._bind()


def _check_limit(limit: int | None, horizon: int) -> None:
    if limit is not None and check_count(limit, "max_episode_steps") < horizon:
        raise ValueError(
            f"max_episode_steps={limit} would truncate the {horizon} steps of an episode, which the batch cannot do; "
            "leave it out, or make single environments: vectorization_mode='sync'."
        )


def _check_autoreset(mode: Any) -> AutoresetMode:
    if isinstance(mode, AutoresetMode):
        return mode
    by_name = {**{m.value: m for m in AutoresetMode}, **{m.name: m for m in AutoresetMode}}
    return by_name[check_choice(mode, "autoreset_mode", by_name)]
