"""What single and vector environments share beside their batch: what they tell, how they reset and draw."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import logger
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dp_ensemble_env.envs.actions import encode_policy
from dp_ensemble_env.envs.batch import Batch, Start, writeable
from dp_ensemble_env.envs.settings import EnvSettings
from dp_ensemble_env.envs.tables import Layout, Row, layout_of
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.validation import as_float_array, check_count

if TYPE_CHECKING:
    from dp_ensemble_env.envs.rendering import Renderer
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
START_OPTIONS = ("state", "occupancy", "context")
RENDER_FPS = 4
#: Reset options that were ignored, and of which the user was told.
_IGNORED: set[str] = set()


class BatchView:
    """What single and vector environments tell of themselves, and how they reset and draw."""

    _batch: Batch
    metadata: dict[str, Any]
    _spec: EnvSpec | None = None
    _renderer: Renderer | None = None
    _stream_source: np.random.Generator | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """How Gymnasium made the environment; with a release, of public arguments alone.

        Its ``max_episode_steps`` is the horizon. The registered ids have none, so that no TimeLimit is put around the
        environment: an episode ends by itself, and is terminated, not truncated.
        """
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None:
            spec = copy.copy(spec)
            spec.kwargs = self._batch.behaviour.public_arguments(spec.kwargs)
            spec.max_episode_steps = self._batch.model.horizon
            spec.nondeterministic = self._batch.redraw == "episode"  # equal seeds then meet different releases
        self._spec = spec

    def __repr__(self) -> str:
        batch, copies, number = self._batch, getattr(self, "num_envs", None), self.population
        facts = [
            *([] if copies is None else [f"{copies} at a time"]),
            f"{batch.model.n_states:,} states",
            f"{batch.model.horizon} steps",
            "mean field" if number is None else f"{number:,} load{'s' * (number > 1)}",
            f"{batch.mode} mode",
            "true behaviour" if self.release is None else f"{self.release.event.type} release",
        ]
        return f"{type(self).__name__}({', '.join(facts)})"

    @property
    def model(self) -> EnsembleModel:
        """The current model; its `default` is the (latest) release if there is one."""
        return self._batch.model

    @property
    def models(self) -> Sequence[EnsembleModel]:
        """The models among which episodes draw theirs; one, unless ``instance=None``."""
        return self._batch.behaviour.models

    @property
    def redraw(self) -> str:
        """When the private matrix is drawn again: ``"never"`` or ``"episode"``."""
        return self._batch.redraw

    def released_models(self, count: int) -> Iterator[EnsembleModel]:
        """Yield the models of the first `count` episodes with ``redraw="episode"``, the environment being left alone.

        Releases that were not drawn yet are charged to the ledger.
        """
        return (self._batch.behaviour.draw(index)[0] for index in range(count))

    @property
    def release(self) -> Release | None:
        """The (latest) release; None if the environment has the true dynamics."""
        return self._batch.behaviour.release

    @property
    def ledger(self) -> PrivacyLedger:
        """The ledger to which this environment's releases are charged."""
        return self._batch.behaviour.ledger

    @property
    def settings(self) -> EnvSettings:
        """What the environment was made of; with a release, the release and the public rest of the model."""
        return self._batch.behaviour.public_settings()

    @property
    def action_mode(self) -> str:
        """Name of the action mode, such as ``"tilt"``."""
        return self._batch.mode

    @property
    def population(self) -> int | None:
        """Number of loads of an environment, None for infinitely many."""
        return self._batch.loads or None

    @property
    def optimal_policy(self) -> FloatArray:
        """The optimal policy of the model in force, shape (T, n, m), or (T, c, n, m) with a context."""
        return self._batch.row.solution.policy

    @property
    def row(self) -> Row:
        """The model in force with its solution and its tables."""
        return self._batch.row

    @property
    def layout(self) -> Layout:
        """Where time, prices and context stand in an observation."""
        return layout_of(self.model, self._batch.ahead)

    def optimal_return(self, state: int | ArrayLike, context: int | None = None) -> float:
        """Return the highest expected return in $/load from a start state, or from a distribution of start states.

        With a context it is the optimum from `context`, by default the mean over the possible first contexts.
        """
        model, one = self.model, np.ndim(state) == 0
        start = np.eye(model.n_states)[check_state(state, model)] if one else _distribution(state, model)
        return self._batch.row.optimal_from(start, None if context is None else check_context(context, model))

    def encode_policy(
        self, policy_t: ArrayLike, time: int, dtype: DTypeLike = np.float32, context: int | None = None
    ) -> NDArray[Any]:
        """Return the action, for one environment, that realises the policy rows `policy_t` at `time`, in a context.

        `policy_t`, (n, m), lies on the support of the default. In tilt and price mode it must be such a tilt of the
        default, else a `ValueError` is raised; their scale changes with `time`. ``dtype=numpy.float64`` keeps all
        digits. The `context` is needed if the loads behave differently in each.
        """
        t, model = check_count(time, "time", 0), self.model
        if t >= model.horizon:
            raise ValueError(f"time={t} is past the last decision, {model.horizon - 1}; reset the environment.")
        if context is None and model.default.ndim == 4:
            raise ValueError("the loads behave differently in each context; name one: encode_policy(..., context=0).")
        w = 0 if context is None else check_context(context, model)
        action = encode_policy(model, self.action_mode, policy_t, t, w)
        return action if self._batch.choices is not None else action.astype(dtype)

    # ------------------------------------------------------------ resets
    def _start(self, options: dict[str, Any]) -> Start:
        """Return where the episodes begin that checked `options` ask for."""
        size, model = self._batch.size, self.model
        states, given, contexts = np.full(size, -1), np.zeros((size, 0)), np.full(size, -1)

        def each(name: str, check: Callable[[Any], Any], axes: int = 0) -> list[Any]:
            value = options[name]
            several = [value] * size if np.ndim(value) <= axes else list(np.asarray(value))
            if len(several) != size:
                raise ValueError(f"{name} must be given once or {size} times, got {len(several)}.")
            return [check(one) for one in several]

        if "state" in options:
            states[:] = each("state", lambda one: check_state(one, model))
        elif "occupancy" in options:
            states[:], given = -2, np.array(each("occupancy", lambda one: _distribution(one, model), 1))
        if "context" in options:
            contexts[:] = each("context", lambda one: check_context(one, model))
        return states, given, contexts

    def _seed_streams(self, seeds: Sequence[int | None] | None, mask: BoolArray) -> None:
        """Seed the environments in `mask` as told, or by Gymnasium's generator if it is a new one."""
        env: Any = self  # a Gymnasium environment, which keeps the generator
        streams, source = self._batch.state.episodes, env._np_random
        fresh = self._stream_source is None or self._stream_source is not source
        if fresh if seeds is None else None in seeds and source is None:
            streams[mask] = env.np_random.integers(0, 2**64, size=(2, len(mask)), dtype=np.uint64).T[mask]
        for i in np.flatnonzero(mask).tolist():
            if seeds is not None and (one := seeds[i]) is not None:
                streams[i] = np.random.SeedSequence(one).generate_state(2, np.uint64)
        self._stream_source = env._np_random

    # ------------------------------------------------------------ pictures and copies
    def _frames(self, mode: str | None) -> list[Any]:
        """Draw every environment; none without a render mode, with a warning."""
        if mode is None:
            known = ", ".join(type(self).metadata["render_modes"])
            logger.warn(f"render() was called without a render mode; make the environment with render_mode={known}.")
            return []
        from dp_ensemble_env.envs.rendering import Renderer

        scenes = [self._batch.scene(i) for i in range(self._batch.size)]
        if self._renderer is None:
            self._renderer = Renderer(mode, RENDER_FPS)
        return [self._renderer.draw(scene) for scene in scenes]

    def _close_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_renderer": None}  # a window cannot be copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Arrays in Ray's object store cannot be written.
        self.__dict__.update({name: writeable(value) for name, value in state.items()})


# ------------------------------------------------------------------ arguments of a reset
def check_state(state: Any, model: EnsembleModel) -> int:
    """Return a state as an int, or raise."""
    return _number(state, "state", model.n_states)


def check_context(context: Any, model: EnsembleModel) -> int:
    """Return a context as an int, or raise."""
    names = "" if model.context is None else f" ({', '.join(model.context.names)})"
    return _number(context, "context", model.n_contexts, names)


def _number(value: Any, name: str, count: int, names: str = "") -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not 0 <= value < count:
        raise ValueError(f"{name} must be an integer in 0 … {count - 1}{names}, got {value!r}.")
    return int(value)


def _distribution(occupancy: Any, model: EnsembleModel) -> FloatArray:
    array, n = as_float_array(occupancy, "occupancy", 1), model.n_states
    if array.shape != (n,) or (array < 0).any() or abs(array.sum() - 1.0) > 1e-6:
        raise ValueError(
            f"occupancy must be {n} shares that are not negative and sum to one, got shape {array.shape} and sum "
            f"{array.sum():g}; divide it by its sum."
        )
    result: FloatArray = array / array.sum()
    return result


def check_options(options: dict[str, Any] | None, known: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of a reset that are `known`; refuse a start given twice; warn once about unknown options."""
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise ValueError(f"options must be a dict, got {type(options).__name__}.")
    for name in options:
        if name not in known and name not in _IGNORED:
            _IGNORED.add(name)
            logger.warn(f"reset ignores the option {name!r}; it knows {', '.join(known)}.")
    if "state" in options and "occupancy" in options:
        raise ValueError("options give both state and occupancy; choose the start by one of them.")
    return {name: value for name, value in options.items() if name in known}
