"""The tables of the compiled step: what it needs to know of a model, and several models stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.context import Context
from dp_ensemble_env.control.coupled import CoupledSolution
from dp_ensemble_env.control.kernel import Solution
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.envs import step
from dp_ensemble_env.envs.actions import ActionMode, action_scale, basis_of
from dp_ensemble_env.envs.points import LeftAlone, dollars_per_point
from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
#: For how many steps ahead an observation shows the price, limit or target.
AHEAD = 4


@dataclass(frozen=True, eq=False)
class Row:
    """A model that environments play, solved.

    Attributes
    ----------
    model : EnsembleModel
    solution : Solution
        The optimal control.
    optimum : ndarray of shape (c, n)
        Optimal return from each context and state; with a coupling, that of the model's own start throughout.
    left_alone : LeftAlone
        The loads that nobody interferes with.
    point : float
        Dollars per load that a point is worth; zero if there is nothing to gain.
    clock : ndarray of shape (T + 1, c, 1 + ahead + f)
        Observations after the shares.
    """

    model: EnsembleModel
    solution: Solution
    optimum: FloatArray
    left_alone: LeftAlone
    point: float
    clock: FloatArray

    @classmethod
    def of(cls, model: EnsembleModel, ahead: int = AHEAD) -> Row:
        """Solve a model."""
        solution, left_alone = solve_standard(model), LeftAlone.of(model)
        if isinstance(solution, CoupledSolution):
            optimum, best = np.full((model.n_contexts, model.n_states), solution.primal), solution.primal
        else:
            optimum = model.discomfort_penalty * solution.log_desirability[0] - model.utility[0]
            best = float((model.start_weights * optimum).sum())
        point = dollars_per_point(left_alone.returns(model.initial), best, model.discomfort_penalty)
        optimum = optimum.reshape(model.n_contexts, model.n_states)
        return cls(model, solution, optimum, left_alone, point, clock_of(model, ahead))

    @property
    def optimum_points(self) -> FloatArray:
        """The optimal return from each context and state in points, (c, n); zero if there is nothing to gain."""
        if not self.point:
            return np.zeros_like(self.optimum)
        coupled = self.model.coupling is not None
        alone = self.left_alone.returns(self.model.initial) if coupled else self.left_alone.value
        points: FloatArray = (self.optimum - alone) / self.point
        return points

    @cached_property
    def step_matrices(self) -> FloatArray:
        """What an uncontrolled load does in one step, shape (T, c, n, n)."""
        tables = self.model.tables()
        matrices: FloatArray = tables.behaviour @ tables.nature
        return matrices

    def uncontrolled(self, start: FloatArray, path: IntArray) -> FloatArray:
        """Follow uncontrolled loads from shares (n,) through contexts w_0 … w_t; return shares (t + 1, n)."""
        shares = np.empty((len(path), len(start)))
        shares[0] = start
        for t, w in enumerate(path[:-1]):
            shares[t + 1] = shares[t] @ self.step_matrices[t, w]
        return shares

    def uncontrolled_power(self, start: FloatArray, path: IntArray) -> FloatArray:
        """Return the uncontrolled power at times 0 … T: in the contexts that came up, then as expected now."""
        model, so_far = self.model, self.uncontrolled(start, path)
        joint = np.zeros((model.n_contexts, model.n_states))  # probability of each context, times the shares in it
        chance = np.ones(1) if model.context is None else model.context.chances(len(path) - 1, int(path[-1]))
        joint[:] = chance[:, None] * so_far[-1]
        ahead, moves = [], model.tables().context
        for t in range(len(path) - 1, model.horizon):
            joint = moves[t].T @ np.einsum("ws,wsz->wz", joint, self.step_matrices[t])
            ahead.append(joint.sum(axis=0) @ model.power_kw)
        return np.concatenate([so_far @ model.power_kw, ahead])


# ------------------------------------------------------------------ observations
def observed_price(model: EnsembleModel) -> FloatArray:
    """Return the price in $/kWh of each interval 0 … T, shape (T + 1,) or (T + 1, c).

    It is the event's (energy and forgone incentive) if the model has one and no
    context, else the slope of the least-squares line of -utility on energy.
    """
    if model.event is not None and model.context is None:
        return np.asarray(model.event.price, dtype=float)
    centred = model.power_kw - model.power_kw.mean()
    variance = centred @ centred
    if variance == 0:
        return np.zeros(model.utility.shape[:-1])
    result: FloatArray = -(model.utility @ centred) / (variance * model.step_hours)
    return result


def clock_of(model: EnsembleModel, ahead: int = AHEAD) -> FloatArray:
    """Return the observations after the shares at times 0 … T in each context, shape (T + 1, c, 1 + ahead + f).

    The fraction of the horizon left, the expected prices of the interval that begins now and of those after it (the
    last one is repeated at the end), and the features of the context. Prices are shifted and scaled so that the lowest
    of them and 0 $/kWh, and the highest and 0, span [0, 1]. With a coupling its levels stand in their place, in parts
    of the greatest power: they differ from instance to instance.
    """
    horizon, c, moves = model.horizon, model.n_contexts, model.tables().context
    unit = np.broadcast_to(_unit_price(model) if model.coupling is None else _level(model), (horizon + 1, c))
    left = (horizon - np.arange(horizon + 1)) / horizon
    columns, expected = [np.broadcast_to(left[:, None], (horizon + 1, c))], unit
    for _ in range(ahead):
        expected = np.concatenate([np.einsum("twv,tv->tw", moves, expected[1:]), unit[-1:]])
        columns.append(expected if model.context is None else model.context.as_shown(expected))
    features = layout_of(model).features
    shown = np.broadcast_to(features, (horizon + 1, c, features.shape[1]))
    # A mean of numbers in [0, 1] may leave it by a rounding step.
    return np.concatenate([np.clip(np.stack(columns, axis=-1), 0.0, 1.0), shown], axis=-1)


@dataclass(frozen=True, eq=False)
class Layout:
    """Where things stand in an observation: shares, fraction of the horizon left, what is known ahead, context.

    Attributes
    ----------
    horizon : int
        Number of decisions.
    features : ndarray of shape (c, f)
        What is shown of each context; of shape (1, 0) without one.
    ahead : int
        Number of prices, limits or targets.
    hidden : Context, optional
        The context, where observations show it in part and an agent has to follow it.
    """

    horizon: int
    features: FloatArray = field(default_factory=lambda: np.zeros((1, 0)))
    ahead: int = AHEAD
    hidden: Context | None = None

    @property
    def known(self) -> int:
        """How many numbers follow the fraction of the horizon: those known ahead, and the features of the context."""
        return self.ahead + int(self.features.shape[1])

    def states(self, size: int) -> int:
        """Return the number of shares in an observation of `size` numbers."""
        return size - 1 - self.known

    def time(self, observation: Any) -> IntArray:
        """Read the number of the decision from observations (…, size); at the end of an episode the last one."""
        left = np.asarray(observation, dtype=float)[..., -1 - self.known]
        return np.clip(np.rint((1.0 - left) * self.horizon), 0, self.horizon - 1).astype(np.int64)

    def context(self, observation: Any) -> IntArray:
        """Read the context from observations (…, size); the first of those that look the same."""
        array = np.asarray(observation, dtype=float)
        shown = array[..., array.shape[-1] - self.features.shape[1] :]
        nearest: IntArray = np.abs(shown[..., None, :] - self.features).sum(axis=-1).argmin(axis=-1)
        return nearest

    def follow(self, observation: Any, before: Any) -> IntArray:
        """Return the context of observations (…, size), from the contexts one step earlier if it is shown in part.

        Raises
        ------
        ValueError
            If `before` is None although an episode is under way: what was shown earlier is needed to tell the context.
        """
        shown = self.context(observation)
        if self.hidden is None:
            return shown
        time = self.time(observation)
        if before is None and time.any():
            raise ValueError(
                "the observation shows the context in part, and state is None in the middle of an episode; call "
                "predict from the first observation on and pass the state that it returned."
            )
        return self.hidden.follow(time, np.zeros_like(time) if before is None else before, self.hidden.shown[shown])


def layout_of(model: EnsembleModel, ahead: int = AHEAD) -> Layout:
    """Return where things stand in the observations of a model."""
    context = model.context
    features = np.zeros((1, 0)) if context is None else context.features
    return Layout(model.horizon, features, ahead, None if context is None or context.is_shown else context)


def _unit_price(model: EnsembleModel) -> FloatArray:
    """Return prices scaled to [0, 1], (T + 1, c or 1)."""
    price = observed_price(model).reshape(model.horizon + 1, -1)
    low, high = min(price.min(), 0.0), max(price.max(), 0.0)
    return (price - low) / (high - low) if high > low else np.zeros_like(price)


def _level(model: EnsembleModel) -> FloatArray:
    """Return limit or target in parts of the greatest power, (T + 1, 1); one where there is no limit."""
    assert model.coupling is not None
    most = float(model.power_kw.max()) or 1.0
    return np.clip(model.coupling.level / most, 0.0, 1.0)[:, None]


# ------------------------------------------------------------------ stacking
def stack(
    rows: Sequence[Row], mode: ActionMode, loads: int, reward: str, autoreset: bool, random_row: bool
) -> tuple[Any, ...]:
    """Return the tables of `step.Problem` as a plain tuple.

    The models agree in states, decisions, contexts, steps and kind of coupling, and their behaviours have the
    same axes. The support of the behaviour is that of all of them together.
    """
    models = [row.model for row in rows]
    _check_alike(models)
    if reward == "points" and not all(row.point > 0 for row in rows):
        raise ValueError(
            "the optimum earns no more than loads that are left alone, so there is nothing to score in points; use "
            "reward='dollars'."
        )
    first, c = models[0], models[0].n_contexts
    starts, decisions, behaviour = nonzeros([model.default for model in models])
    natures = [model.nature for model in models if model.nature is not None]
    nature = (
        nonzeros(natures) if natures else (np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros((len(rows), 1, 0)))
    )
    flat = np.zeros(first.horizon + 1)
    couplings = [model.coupling for model in models]
    kind = 0 if first.coupling is None else 1 + first.coupling.packed()[0]  # TARGET or LIMIT; refuses hard caps
    problem = step.Problem(
        starts=starts,
        decisions=decisions,
        behaviour=behaviour,
        block=_blocks(first.default, first.horizon, c),
        nature_starts=nature[0],
        nature_states=nature[1],
        nature=nature[2],
        nature_block=_blocks(np.eye(1) if first.nature is None else first.nature, first.horizon, c),
        basis=_stacked([_basis(mode, model) for model in models]),
        utility=_stacked([model.tables().utility for model in models]),
        power=_stacked([model.power_kw for model in models]),
        clock=_stacked([row.clock for row in rows]),
        level=_stacked([flat if one is None else one.level for one in couplings]),
        weight=_stacked([flat if one is None else one.weight for one in couplings]),
        initial=_stacked([model.initial / model.initial.sum() for model in models]),
        first=_stacked([np.ones(1) if model.context is None else model.context.start for model in models]),
        moves=_stacked([_moves(model) for model in models]),
        optimum=_stacked([np.stack([row.optimum, row.optimum_points], axis=-1) for row in rows]),
        worth=_stacked([row.left_alone.worth for row in rows]),
        later=_padded([row.left_alone.ahead.power for row in rows]),
        later_time=_padded([row.left_alone.ahead.time for row in rows]),
        later_chance=_padded([row.left_alone.ahead.chance for row in rows]),
        later_first=np.stack([row.left_alone.first for row in rows]),
        penalty=_stacked([np.float64(model.discomfort_penalty) for model in models]),
        point=_stacked([np.float64(row.point) for row in rows]),
        mode=step.POLICY if mode.basis is None else step.TILT if mode.tilt else step.BASIS,
        loads=loads,
        coupling=kind,
        points=int(reward == "points"),
        shown=int(first.shares_shown),
        spread=int(first.spread_start),
        random_row=int(random_row),
        autoreset=int(autoreset),
    )
    return tuple(problem)


def nonzeros(matrices: Sequence[FloatArray]) -> tuple[IntArray, NDArray[np.uint32], FloatArray]:
    """Return where rows begin, the columns, and the values (R, blocks, nnz) of R arrays (…, rows, columns).

    The support is the union over all of them; rows are divided by their sums, so that they sum to one exactly and
    leaving the loads alone costs nothing.
    """
    full = _stacked([(one / one.sum(axis=-1, keepdims=True)).reshape(-1, *one.shape[-2:]) for one in matrices])
    rows, columns = np.nonzero((full > 0).any(axis=(0, 1)))
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=full.shape[2]))])
    return starts.astype(np.int64), columns.astype(np.uint32), np.ascontiguousarray(full[:, :, rows, columns])


def _blocks(matrices: FloatArray, horizon: int, c: int) -> IntArray:
    """Return the block of (n, m), (T, n, m) or (T or 1, c or 1, n, m) in force at each time and context, (T, c)."""
    times, contexts = (1, 1) if matrices.ndim == 2 else (len(matrices), 1) if matrices.ndim == 3 else matrices.shape[:2]
    numbers = np.arange(times * contexts).reshape(times, contexts)
    return np.broadcast_to(numbers, (horizon, c)).copy()  # the step would be compiled anew for read-only arrays


def _basis(mode: ActionMode, model: EnsembleModel) -> FloatArray:
    """Return the basis as the step takes it, (T or 1, c or 1, d, m)."""
    if mode.basis is None:
        return np.zeros((1, 1, 0, model.n_decisions))
    if mode.tilt:
        return action_scale(model).reshape(-1, 1, 1, 1)
    return basis_of(mode, model)


def _moves(model: EnsembleModel) -> FloatArray:
    moves = np.ones((1, 1)) if model.context is None else model.context.transition
    return moves.reshape(-1, *moves.shape[-2:])


def _stacked(arrays: Sequence[Any]) -> FloatArray:
    return np.ascontiguousarray(np.stack(arrays), dtype=np.float64)


def _padded(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stack arrays of different lengths, the shorter ones followed by zeros."""
    longest = max(map(len, arrays))
    out = np.zeros((len(arrays), longest, *arrays[0].shape[1:]), arrays[0].dtype)
    for row, one in zip(out, arrays, strict=True):
        row[: len(one)] = one
    return out


def _check_alike(models: Sequence[EnsembleModel]) -> None:
    """Refuse models that cannot be played side by side."""

    def shape(model: EnsembleModel) -> tuple[Any, ...]:
        nature, coupling = model.nature, model.coupling
        return (
            *(model.n_states, model.n_decisions, model.n_contexts, model.horizon),
            *(model.spread_start, model.shares_shown, model.default.shape),
            *(None if nature is None else nature.shape, None if coupling is None else coupling.kind),
        )

    if len({shape(model) for model in models}) != 1:
        raise ValueError(
            "models that are played side by side must have equal numbers of states, decisions, contexts and steps, and "
            "agree in nature, coupling, spread_start and the axes of their behaviour."
        )
