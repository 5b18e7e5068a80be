"""The state of B environments with the two calls that change it; a single environment is a batch of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import logger, spaces
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from dp_ensemble_env.envs import actions, step
from dp_ensemble_env.envs.private import Behaviour
from dp_ensemble_env.envs.settings import EnvSettings
from dp_ensemble_env.envs.tables import Row, stack
from dp_ensemble_env.model import EnsembleModel

if TYPE_CHECKING:
    from dp_ensemble_env.envs.scene import Scene

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Start = tuple[IntArray, FloatArray, IntArray]  # states, given distributions and contexts, as `step.reset` takes them
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


class Batch:
    """`size` environments side by side, with the tables that they play.

    With `autoreset` a step after the end of an episode begins the next one; with `pictures` power and rewards are kept.
    """

    def __init__(self, settings: EnvSettings, size: int, autoreset: bool = False, pictures: bool = False) -> None:
        self.behaviour = Behaviour(settings)
        self.mode, self.infos, self.redraw = settings.action, settings.infos, settings.redraw
        self.reward, self.ahead, self.loads = settings.reward, settings.ahead, settings.loads
        self.size, self.autoreset, self.several = size, autoreset, len(settings.models) > 1
        self.rows = [Row.of(model, self.ahead) for model in self.behaviour.models]
        self._stack()
        model, chosen = self.behaviour.models[0], actions.mode(self.mode)
        n, horizon = model.n_states, model.horizon
        self.choices, self.low = chosen.choices if chosen.levels else None, chosen.low
        self.width = n + self.rows[0].clock.shape[-1]
        self.observation_space = spaces.Box(0.0, 1.0, (self.width,), np.float32)
        self.action_space, self.action_shape = chosen.space(model), chosen.shape(model)
        self.state = step.State(
            time=np.full(size, -1),
            row=np.zeros(size, np.int64),
            where=np.zeros(size, np.int64),
            counts=np.zeros((size, n)),
            start=np.zeros((size, n)),
            path=np.zeros((size, horizon + 1), np.int64),
            moves=np.zeros((size, 2), np.uint64),
            episodes=np.zeros((size, 2), np.uint64),
            best=np.zeros((size, 2)),
        )
        self._plain_state = tuple(self.state)
        self._history = np.zeros((2, horizon + 1, size)) if pictures else None
        self._warned = False
        #: Episodes that each environment has begun, and the episode that each row was drawn for (``redraw="episode"``).
        self._begun, self._drawn_for = np.zeros(size, np.int64), [0]

    def _stack(self) -> None:
        mode = actions.mode(self.mode)
        self.problem = stack(self.rows, mode, self.loads, self.reward, self.autoreset, self.several)

    @property
    def model(self) -> EnsembleModel:
        """The model in force: the instance that the episode plays; in a larger batch the first instance."""
        models = self.behaviour.models
        return models[int(self.state.row[0])] if self.several and self.size == 1 else models[0]

    @property
    def row(self) -> Row:
        """The row of the model in force."""
        return next(row for row in self.rows if row.model is self.model)

    # ------------------------------------------------------------ the two calls
    def reset(self, mask: BoolArray, start: Start, observations: NDArray[np.float32], values: FloatArray) -> None:
        """Begin episodes where `mask` says so."""
        step.reset(self.problem, self._plain_state, mask, *start, observations, values)
        if self.model.coupling is not None:  # the optimum is not linear in the start, so it is solved for a chosen one
            for i in np.flatnonzero(mask & (start[0] != -1)).tolist():
                row, shares = self._row(i), self.state.start[i]
                best = row.optimal_from(shares / shares.sum())
                gain = best - row.left_alone.returns(shares)
                self.state.best[i] = best, gain / row.point if row.point else 0.0
        self._remember(values, mask)

    def step(self, action: Any, shape: tuple[int, ...], observations: NDArray[np.float32], values: FloatArray) -> None:
        """Move all environments by actions of `shape`, or raise and change nothing."""
        fits = action.__class__ is np.ndarray and action.shape == shape and self.choices is None
        if fits and action.dtype is FLOAT32:
            action = action.astype(FLOAT64, order="C")
        elif not fits or action.dtype is not FLOAT64 or not action.flags.carray:
            action = self.as_action(action, shape)
        verdict = step.step(self.problem, self._plain_state, action.reshape(self.size, -1), observations, values)
        if verdict == step.CLIPPED and not self._warned:
            self._warned = True
            logger.warn(f"actions lie in [{self.low:g}, 1]; those outside are clipped to it.")
        elif verdict < 0:
            which = "" if self.size == 1 else f" {-1 - verdict}"
            raise ResetNeeded(
                f"the episode of environment{which} is over (or never began); call reset() before step()."
            )
        elif verdict > step.CLIPPED:
            where = ", ".join(str(int(i)) for i in np.unravel_index(verdict - 2, shape))
            raise ValueError(f"action[{where}] is NaN; look for NaN in the policy that made it.")
        if self._history is not None:
            self._remember(values, np.ones(self.size, np.bool_))

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
        begun, slots, known = self._begun + mask, self.state.row, self._drawn_for
        wanted = np.unique(begun[mask] - 1).tolist()
        # All are drawn before any is put in its place: a refusal leaves the episodes under way as they are.
        drawn = {index: self.behaviour.draw(index) for index in wanted if index not in known}
        rows = {index: Row.of(model, self.ahead) for index, (model, _) in drawn.items()}
        in_use = {*slots[~mask if assign else slice(None)].tolist()}
        in_use |= {known.index(index) for index in wanted if index not in drawn}
        for index, row in rows.items():
            slot = next(one for one in range(len(self.rows) + 1) if one not in in_use)
            self.rows[slot : slot + 1], known[slot : slot + 1] = [row], [index]
            in_use.add(slot)
            self.behaviour.put(*drawn[index])
        if drawn:
            self._stack()
        if assign:
            self._begun = begun
            for index in wanted:
                slots[mask & (begun - 1 == index)] = known.index(index)

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
        clock, n = step.Problem(*self.problem).clock, self.model.n_states
        observations[:, :n] = self.occupancy if self.model.shares_shown else 0.0
        observations[:, n:] = clock[self.state.row, np.maximum(self.state.time, 0), self.context]

    def _row(self, i: int) -> Row:
        return self.rows[int(self.state.row[i])]

    def _past(self, i: int) -> IntArray:
        past: IntArray = self.state.path[i, : max(int(self.state.time[i]), 0) + 1]
        return past

    def _remember(self, values: FloatArray, mask: BoolArray) -> None:
        """Keep what pictures of the environments in `mask` look back on."""
        if self._history is not None:
            now = self.state.time[mask], np.flatnonzero(mask)
            self._history[0][now] = values[step.POWER, mask]
            self._history[1][now] = (values[step.UTILITY] - values[step.CHARGE] - values[step.DISCOMFORT])[mask]

    def scene(self, i: int) -> Scene:
        """Return what there is to see of environment `i`; power and rewards are kept only with `pictures`."""
        from dp_ensemble_env.envs.scene import Scene

        t, model = int(self.state.time[i]), self._row(i).model
        if t < 0:
            raise ResetNeeded("there is nothing to draw yet; call reset() before render().")
        power, rewards = np.zeros((2, 0)) if self._history is None else self._history[:, : t + 1, i].copy()
        return Scene(
            model=model,
            title="Mean field" if self.loads == 0 else "One load" if self.loads == 1 else f"{self.loads} loads",
            time=t,
            occupancy=model.shares_shown * self.occupancy[i],
            default_occupancy=model.shares_shown * self.default_occupancy(i),
            power_kw=power,
            default_power_kw=self.default_power(i),
            rewards=rewards[1:],
            optimal_return=float(self.state.best[i, 0]),
            privacy=self.behaviour.line(),
            contexts=None if model.context is None else self._past(i).copy(),
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Arrays in Ray's object store cannot be written, and would be compiled for anew.
        self.__dict__.update({name: writeable(value) for name, value in state.items()})
        self.state, self.problem = step.State(*map(writeable, self.state)), tuple(map(writeable, self.problem))
        self._plain_state = tuple(self.state)


def writeable(value: Any) -> Any:
    """Return the value, or a copy of an array that cannot be written."""
    return value.copy() if isinstance(value, np.ndarray) and not value.flags.writeable else value
