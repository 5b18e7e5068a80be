"""The state of B environments, and what single and vector environments share: a single one is a batch of one."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import logger, spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dp_ensemble_env.control.coupled import solve_coupled
from dp_ensemble_env.envs import actions, step
from dp_ensemble_env.envs.encode import encode_policy
from dp_ensemble_env.envs.private import Behaviour
from dp_ensemble_env.envs.settings import EnvSettings
from dp_ensemble_env.envs.tables import Layout, Row, layout_of, stack
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.validation import as_float_array, check_count

if TYPE_CHECKING:
    from dp_ensemble_env.envs.scene import Scene
    from dp_ensemble_env.privacy.ledger import PrivacyLedger

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
#: Reset options that were ignored, and of which the user was told.
_IGNORED: set[str] = set()


class Batch:
    """`size` environments side by side, with the tables that they play.

    Parameters
    ----------
    settings : EnvSettings
    size : int
    autoreset : bool
        Whether a step after the end of an episode begins the next one.
    """

    def __init__(self, settings: EnvSettings, size: int, autoreset: bool = False) -> None:
        self.behaviour = Behaviour(settings)
        self.mode, self.infos = settings.action, settings.infos
        self.redraw, self.loads = settings.redraw, settings.loads
        self.reward, self.ahead = settings.reward, settings.ahead
        self.size, self.autoreset = size, autoreset
        self.rows = [Row.of(model, self.ahead) for model in self.behaviour.models]
        self._stack()
        model, chosen = self.behaviour.models[0], actions.mode(self.mode)
        self.choices = chosen.choices if chosen.levels else None
        self.low = chosen.low
        self.width = model.n_states + self.rows[0].clock.shape[-1]
        self.observation_space = spaces.Box(0.0, 1.0, (self.width,), np.float32)
        self.action_space = chosen.space(model)
        self.action_shape = chosen.shape(model)
        n = model.n_states
        self.state = step.State(
            time=np.full(size, -1),
            row=np.zeros(size, np.int64),
            where=np.zeros(size, np.int64),
            counts=np.zeros((size, n)),
            start=np.zeros((size, n)),
            path=np.zeros((size, model.horizon + 1), np.int64),
            moves=np.zeros((size, 2), np.uint64),
            episodes=np.zeros((size, 2), np.uint64),
            best=np.zeros((size, 2)),
        )
        self._plain_state = tuple(self.state)
        self._warned = False
        #: Episodes that each environment has begun, and the episode that each row was drawn for (``redraw="episode"``).
        self._begun, self._drawn_for = np.zeros(size, np.int64), [0]

    def _stack(self) -> None:
        several = len(self.behaviour.models) > 1
        mode = actions.mode(self.mode)
        self.problem = stack(self.rows, mode, self.loads, self.reward, self.autoreset, several)

    @property
    def model(self) -> EnsembleModel:
        """The model in force: the instance that the episode plays; in a larger batch the first instance."""
        models = self.behaviour.models
        return models[int(self.state.row[0])] if len(models) > 1 and self.size == 1 else models[0]

    @property
    def row(self) -> Row:
        """The row of the model in force."""
        return next(row for row in self.rows if row.model is self.model)

    @property
    def several(self) -> bool:
        """Whether each episode draws one of several instances."""
        return len(self.behaviour.models) > 1

    # ------------------------------------------------------------ the two calls
    def reset(
        self,
        mask: BoolArray,
        states: IntArray,
        given: FloatArray,
        contexts: IntArray,
        observations: NDArray[np.float32],
        values: FloatArray,
    ) -> None:
        """Begin episodes where `mask` says so; see `step.reset` for the arguments."""
        step.reset(self.problem, self._plain_state, mask, states, given, contexts, observations, values)
        if self.model.coupling is not None:  # the optimum is not linear in the start, so it is solved for a chosen one
            for i in np.flatnonzero(mask & (states != -1)).tolist():
                row, start = self._row(i), self.state.start[i]
                best = self.optimal_return(start, None, row)
                gain = best - row.left_alone.returns(start)
                self.state.best[i] = best, gain / row.point if row.point else 0.0

    def step(self, action: Any, shape: tuple[int, ...], observations: NDArray[np.float32], values: FloatArray) -> None:
        """Move all environments by actions of `shape`, or raise and change nothing."""
        fits = action.__class__ is np.ndarray and action.shape == shape and self.choices is None
        if fits and action.dtype is FLOAT32:
            action = action.astype(FLOAT64, order="C")
        elif not fits or action.dtype is not FLOAT64 or not action.flags.carray:
            action = self.as_action(action, shape)
        flat = action.reshape(self.size, -1)
        verdict = step.step(self.problem, self._plain_state, flat, observations, values)
        if verdict:
            self._judge(verdict, shape)

    def _judge(self, verdict: int, shape: tuple[int, ...]) -> None:
        """Warn of clipped actions, once; raise for what was refused."""
        if verdict == step.CLIPPED:
            if not self._warned:
                self._warned = True
                logger.warn(f"actions lie in [{self.low:g}, 1]; those outside are clipped to it.")
            return
        if verdict < 0:
            which = "" if self.size == 1 else f" {-1 - verdict}"
            raise ResetNeeded(
                f"the episode of environment{which} is over (or never began); call reset() before step()."
            )
        where = ", ".join(str(int(i)) for i in np.unravel_index(verdict - 2, shape))
        raise ValueError(f"action[{where}] is NaN; look for NaN in the policy that made it.")

    def as_action(self, action: Any, shape: tuple[int, ...]) -> FloatArray:
        """Return actions of `shape` as float64 in the one layout that is compiled, or say what is wrong with them."""
        if self.choices is not None:
            return self._chosen(action, shape)
        try:
            array = np.asarray(action)
            if array.dtype.kind not in "fiu":
                raise TypeError
        except (TypeError, ValueError) as error:
            raise ValueError(f"an action must be an array of {shape} real numbers, got {action!r}.") from error
        if array.shape != shape:
            raise ValueError(f"the action has shape {array.shape}, but the {self.mode!r} mode takes {shape}.")
        array = np.ascontiguousarray(array, dtype=FLOAT64)
        return array if array.flags.carray else array.copy()

    def _chosen(self, action: Any, shape: tuple[int, ...]) -> FloatArray:
        """Return the numbers that discrete actions of `shape` stand for."""
        assert self.choices is not None
        array, last = np.asarray(action), len(self.choices) - 1
        if array.dtype.kind not in "iu" or array.shape != shape:
            wanted = "an integer" if shape == () else f"integers of shape {shape}"
            raise ValueError(f"a discrete action is {wanted} in 0 … {last}, got {action!r}.")
        wrong = (array < 0) | (array > last)
        if wrong.any():
            raise ValueError(f"a discrete action lies in 0 … {last}, got {int(array[wrong].flat[0])}.")
        numbers: FloatArray = self.choices[array][..., None]
        return numbers

    # ------------------------------------------------------------ releases
    def next_release(self, mask: BoolArray, assign: bool = True) -> None:
        """With ``redraw="episode"``, draw the releases that the next episodes in `mask` need, and hand them out.

        Environments in their j-th episode share the j-th release. Without `assign` the releases are drawn (and may be
        refused) and handed out by a later call.
        """
        if self.redraw == "never":
            return
        begun, slots = self._begun + mask, self.state.row
        wanted = [int(index) for index in np.unique(begun[mask] - 1)]
        # All are drawn before any is put in its place: a refusal leaves the episodes under way as they are.
        before = self.behaviour.models, self.behaviour.release
        try:
            missing = [index for index in wanted if index not in self._drawn_for]
            drawn = {index: Row.of(self.behaviour.draw(index), self.ahead) for index in missing}
        except BaseException:
            self.behaviour.models, self.behaviour.release = before
            raise
        in_use = {*slots[~mask if assign else slice(None)].tolist(), *map(self._slot, set(wanted) - set(drawn))}
        for index, row in drawn.items():
            slot = next(one for one in range(len(self.rows) + 1) if one not in in_use)
            self.rows[slot : slot + 1], self._drawn_for[slot : slot + 1] = [row], [index]
            in_use.add(slot)
        if drawn:
            self._stack()
        if assign:
            self._begun = begun
            for index in wanted:
                slots[mask & (begun - 1 == index)] = self._slot(index)

    def _slot(self, index: int) -> int:
        return self._drawn_for.index(index)

    # ------------------------------------------------------------ random streams
    def seed(self, i: int, seed: int) -> None:
        """Seed the stream of one environment."""
        self.state.episodes[i] = _nonzero(np.random.SeedSequence(seed).generate_state(2, np.uint64).astype(np.uint64))

    def seed_randomly(self, rng: np.random.Generator, mask: BoolArray) -> None:
        """Seed the streams in `mask` from a generator."""
        words = rng.integers(0, 2**64, size=(2, self.size), dtype=np.uint64)
        for i in np.flatnonzero(mask):
            self.state.episodes[i] = _nonzero(words[:, i])

    # ------------------------------------------------------------ what is going on
    @property
    def occupancy(self) -> FloatArray:
        """Share of the loads in each state, (B, n)."""
        shares: FloatArray = self.state.counts / max(self.loads, 1)
        return shares

    @property
    def context(self) -> IntArray:
        """Present contexts, (B,)."""
        present: IntArray = self.state.path[np.arange(self.size), np.maximum(self.state.time, 0)]
        return present

    def default_occupancy(self, i: int) -> FloatArray:
        """Return the expected shares of environment `i` by now had nobody interfered, (n,)."""
        shares: FloatArray = self._row(i).uncontrolled(self.state.start[i], self._past(i))[-1]
        return shares

    def curtailment(self, i: int, default: FloatArray, power: float) -> float:
        """Return the power of the default shares of environment `i`, less its own."""
        return float((default * self._row(i).model.power_kw).sum() - power)

    def default_power(self, i: int) -> FloatArray:
        """Return the uncontrolled power at times 0 … T: in the contexts that came up, then as expected now."""
        return self._row(i).uncontrolled_power(self.state.start[i], self._past(i))

    def observe(self, observations: NDArray[np.float32]) -> None:
        """Write the present observations."""
        clock = np.stack([row.clock for row in self.rows])
        observations[:, : self.model.n_states] = self.occupancy if self.model.shares_shown else 0.0
        observations[:, self.model.n_states :] = clock[self.state.row, np.maximum(self.state.time, 0), self.context]

    def _row(self, i: int) -> Row:
        return self.rows[int(self.state.row[i])]

    def _past(self, i: int) -> IntArray:
        past: IntArray = self.state.path[i, : max(int(self.state.time[i]), 0) + 1]
        return past

    def scene(self, i: int, power: FloatArray, rewards: FloatArray) -> Scene:
        """Return what there is to see of environment `i`: `power` at times 0 … t and `rewards` so far."""
        from dp_ensemble_env.envs.scene import Scene

        model = self._row(i).model
        return Scene(
            model=model,
            title="Mean field" if self.loads == 0 else "One load" if self.loads == 1 else f"{self.loads} loads",
            time=int(self.state.time[i]),
            occupancy=model.shares_shown * self.occupancy[i],
            default_occupancy=model.shares_shown * self.default_occupancy(i),
            power_kw=power,
            default_power_kw=self.default_power(i),
            rewards=rewards,
            optimal_return=float(self.state.best[i, 0]),
            privacy=self.behaviour.line(),
            contexts=None if model.context is None else self._past(i).copy(),
        )

    # ------------------------------------------------------------ the optimum
    def optimal_return(self, state: int | ArrayLike, context: int | None = None, row: Row | None = None) -> float:
        """Return the largest expected return from a state, or from a distribution over the states.

        Without a `context`, the mean over those in which an episode may begin.
        """
        row = self.row if row is None else row
        model, n = row.model, self.model.n_states
        start = np.eye(n)[check_state(state, n)] if np.ndim(state) == 0 else check_occupancy(state, n)
        if model.coupling is not None:
            return solve_coupled(model.override(initial=start)).primal
        values = row.optimum
        if context is not None:
            return float(values[check_context(context, model)] @ start)
        weights = np.ones(1) if model.context is None else model.context.start
        return float(weights @ values @ start)

    # ------------------------------------------------------------ copies
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plain_state": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Arrays in Ray's object store cannot be written, and would be compiled for anew.
        self.state, self.problem = step.State(*map(_writeable, self.state)), tuple(map(_writeable, self.problem))
        self._begun = self._begun.copy()
        self._plain_state = tuple(self.state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Batch:
        twin = Batch.__new__(Batch)
        memo[id(self)] = twin
        twin.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        twin._plain_state = tuple(twin.state)
        return twin


class BatchView:
    """What single and vector environments tell of themselves."""

    _batch: Batch
    _spec: EnvSpec | None = None

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
        return f"{type(self).__name__}({', '.join(text for _, text in self._facts)})"

    def _repr_html_(self) -> str:
        from dp_ensemble_env.tools.html import card

        return card(type(self).__name__, self._facts)

    @property
    def _facts(self) -> list[tuple[str, str]]:
        """Sizes and settings, all of them public."""
        batch, copies, number = self._batch, getattr(self, "num_envs", None), self.population
        return [
            *([] if copies is None else [("copies", f"{copies} at a time")]),
            ("states", f"{batch.model.n_states:,} states"),
            ("decisions", f"{batch.model.horizon} steps"),
            ("population", "mean field" if number is None else f"{number:,} load{'s' * (number > 1)}"),
            ("actions", f"{batch.mode} mode"),
            ("behaviour", "true behaviour" if self.release is None else f"{self.release.event.type} release"),
        ]

    @property
    def model(self) -> EnsembleModel:
        """The model in force: its `default` is the (latest) release if there is one."""
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
        return self._batch.behaviour.released_models(count)

    @property
    def release(self) -> Release | None:
        """The (latest) private matrix, None when the dynamics are the true ones."""
        return self._batch.behaviour.release

    @property
    def ledger(self) -> PrivacyLedger:
        """The ledger that this environment's releases are charged to."""
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

    @property
    def dollars_per_point(self) -> float:
        """Dollars per load that a point is worth: a hundredth of what the optimum gains over uncontrolled loads."""
        return self._batch.row.point

    def optimal_return(self, state: int | ArrayLike, context: int | None = None) -> float:
        """Return the largest expected return in $/load from a start state, or from a distribution over them.

        With a context it is the optimum from `context`, by default the mean over the contexts that may come first.
        """
        return self._batch.optimal_return(state, context)

    def encode_policy(
        self, policy_t: ArrayLike, time: int, dtype: DTypeLike = np.float32, context: int | None = None
    ) -> NDArray[Any]:
        """Return the action, for one environment, that realises the policy rows `policy_t` at `time`, in a context.

        Parameters
        ----------
        policy_t : array_like of shape (n, m)
            Row-stochastic, on the support of the default.
        time : int
            Decision it is meant for: the scale of a tilt changes with time.
        dtype : dtype
            ``numpy.float64`` keeps all digits.
        context : int, optional
            Needed if the loads behave differently in each context.

        Raises
        ------
        ValueError
            In tilt and price mode, if the policy is no such tilt of the default.
        """
        t = check_count(time, "time", 0)
        if t >= self.model.horizon:
            raise ValueError(f"time={t} is past the last decision, {self.model.horizon - 1}; reset the environment.")
        if context is None and self.model.default.ndim == 4:
            raise ValueError("the loads behave differently in each context; name one: encode_policy(..., context=0).")
        action = encode_policy(
            self.model, self.action_mode, policy_t, t, 0 if context is None else check_context(context, self.model)
        )
        return action if self._batch.choices is not None else action.astype(dtype)


# ------------------------------------------------------------------ arguments of a reset
def check_state(state: Any, n: int) -> int:
    """Return a state as an int, or raise."""
    if isinstance(state, (bool, np.bool_)) or not isinstance(state, (int, np.integer)):
        raise ValueError(f"state must be an integer in 0 … {n - 1}, got {state!r}.")
    if not 0 <= state < n:
        raise ValueError(f"state={int(state)} does not exist; the states are 0 … {n - 1}.")
    return int(state)


def check_context(context: Any, model: EnsembleModel) -> int:
    """Return a context as an int, or raise."""
    c = model.n_contexts
    if isinstance(context, (bool, np.bool_)) or not isinstance(context, (int, np.integer)) or not 0 <= context < c:
        names = "" if model.context is None else f" ({', '.join(model.context.names)})"
        raise ValueError(f"context must be an integer in 0 … {c - 1}{names}, got {context!r}.")
    return int(context)


def check_occupancy(occupancy: Any, n: int) -> FloatArray:
    """Return a distribution over the states, or raise."""
    array = as_float_array(occupancy, "occupancy", 1)
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


def _writeable(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) and not value.flags.writeable else value


def _nonzero(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return two words of a stream, which cannot leave the state of all zeros."""
    return words if words.any() else np.array([1, 0], np.uint64)
