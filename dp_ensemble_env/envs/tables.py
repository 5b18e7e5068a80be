"""The tables of the compiled step: what it needs to know of a model, and several models stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.context import Context
from dp_ensemble_env.control.coupled import CoupledSolution, solve_coupled
from dp_ensemble_env.control.kernel import Solution
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.envs import step
from dp_ensemble_env.envs.actions import ActionMode, action_scale, basis_of
from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
#: For how many steps ahead an observation shows the price, limit or target.
AHEAD = 4
#: A gain of the optimum over the uncontrolled loads below this, relative to the larger of their return and the penalty,
#: is rounding.
SMALLEST_GAIN = 1e-9


# ------------------------------------------------------------------ a model, solved
class Ahead(NamedTuple):
    """The L times and contexts that may come after one, or after each of all."""

    time: IntArray  #: (L,)
    chance: FloatArray  #: (L,)
    power: FloatArray  #: (L, m) power to expect there after each decision


@dataclass(frozen=True, eq=False)
class LeftAlone:
    r"""Loads that nobody interferes with (MATH 15).

    With :math:`V^0_T = 0`, :math:`V^0_t[w, s] = \sum_a P_t[w, s, a]\,G_t[w, a]` and

    .. math:: G_t[w, a] = \sum_{w'} W_t[w, w'] \sum_{s'} N_t[w, a, s'] \big(U_{t+1}[w', s'] + V^0_{t+1}[w', s']\big)

    a reward in points is the advantage of an action over leaving the loads alone, with the decisions :math:`y` expected
    under the action and :math:`y^0` without it,

    .. math:: r_t = \frac{100}{R^* - R^0}\Big(\sum_a (y_a - y^0_a)\,G_t[w, a] - \gamma\,\mathrm{KL}
        - \sum_{\tau>t} \big(f_\tau(y\,H_{t\tau}) - f_\tau(y^0 H_{t\tau})\big)\Big) .

    By the performance-difference lemma its expected sum over an episode is the return less that of the uncontrolled
    loads, whatever is done; so no optimum moves. A coupling's cost :math:`f` is a function of the mean power, hence of
    the power :math:`H_{t\tau}[a]` that is to be expected at each later time (with a context the mean over those that
    may hold then), which is linear in the decisions of today.
    """

    model: EnsembleModel
    worth: FloatArray  #: (T, c, m) utility to expect after a decision, G
    value: FloatArray  #: (c, n) return to expect from each first context and state, without a coupling's cost
    ahead: Ahead  #: what comes after every (time, context), one after the other; empty without a coupling
    first: IntArray  #: (T c + 1,) where the entries of each (time, context) begin

    @classmethod
    def of(cls, model: EnsembleModel) -> LeftAlone:
        """Follow the loads of a model backward in time."""
        behaviour, nature, moves, utility = model.tables()
        behaviour = behaviour / behaviour.sum(axis=-1, keepdims=True)
        horizon, c, n, m = behaviour.shape
        worth, value = np.empty((horizon, c, m)), np.zeros((c, n))
        for t in range(horizon - 1, -1, -1):
            worth[t] = (nature[t] @ (moves[t] @ (utility[t + 1] + value))[..., None])[..., 0]
            value = (behaviour[t] @ worth[t][..., None])[..., 0]
        nodes = [Ahead(np.zeros(0, np.int64), np.zeros(0), np.zeros((0, m)))] * (horizon * c)
        if model.coupling is not None:
            _fill_ahead(nodes, model, behaviour, nature)
        first = np.concatenate([[0], np.cumsum([len(node.time) for node in nodes])])
        return cls(model, worth, value, Ahead(*map(np.concatenate, zip(*nodes, strict=True))), first.astype(np.int64))

    def returns(self, start: FloatArray, context: int | None = None) -> float:
        """Return what loads earn that start with shares (n,), in dollars; without a context, on average over them."""
        if context is None:
            chances = np.ones(1) if self.model.context is None else self.model.context.start
            return float(sum(chance * self.returns(start, w) for w, chance in enumerate(chances) if chance > 0))
        value, coupling = float(self.value[context] @ start), self.model.coupling
        if coupling is not None:
            part = slice(self.first[context], self.first[context + 1])
            time, chance, power = (array[part] for array in self.ahead)
            decided = start @ self.model.tables().behaviour[0, context]
            value -= float(chance @ coupling.cost(time, power @ decided))
        return value


def _fill_ahead(nodes: list[Ahead], model: EnsembleModel, behaviour: FloatArray, nature: FloatArray) -> None:
    """Put into `nodes` what may come after each (time, context) that can be reached; on a tree no node comes twice."""
    (horizon, c), moves = behaviour.shape[:2], model.tables().context
    chances = np.ones((horizon + 1, 1)) if model.context is None else model.context.distributions(horizon)
    following: dict[int, Ahead] = {}  # from each next context on, itself first, with the power by state
    for t in range(horizon, -1, -1):
        before, following = following, {}
        for w in np.flatnonzero(chances[t] > 0).tolist():
            here = Ahead(np.array([t]), np.ones(1), model.power_kw[None])
            if t < horizon:
                possible = np.flatnonzero(moves[t, w] > 0).tolist()
                parts = [before[v] for v in possible]
                time, chance, power = (np.concatenate(part) for part in zip(*parts, strict=True))
                weights = np.repeat(moves[t, w, possible], [len(part.time) for part in parts])
                node = nodes[t * c + w] = Ahead(time, weights * chance, power @ nature[t, w].T)
                by_state = node.power @ behaviour[t, w].T
                here = Ahead(*map(np.concatenate, zip(here, (node.time, node.chance, by_state), strict=True)))
            following[w] = here


@dataclass(frozen=True, eq=False)
class Row:
    """A model that environments play, solved."""

    model: EnsembleModel
    solution: Solution  #: the optimal control
    optimum: FloatArray  #: (c, n) optimal return from each context and state; with a coupling from the model's start
    left_alone: LeftAlone  #: the loads that nobody interferes with
    point: float  #: dollars per load that a point is worth; zero if there is nothing to gain
    clock: FloatArray  #: (T + 1, c, 1 + ahead + f) observations after the shares

    @classmethod
    def of(cls, model: EnsembleModel, ahead: int = AHEAD) -> Row:
        """Solve a model."""
        solution, left_alone = solve_standard(model), LeftAlone.of(model)
        if isinstance(solution, CoupledSolution):
            optimum, best = np.full((model.n_contexts, model.n_states), solution.primal), solution.primal
        else:
            optimum = model.discomfort_penalty * solution.log_desirability[0] - model.utility[0]
            best = float((model.start_weights * optimum).sum())
        idle = left_alone.returns(model.initial)
        some = best - idle > SMALLEST_GAIN * max(abs(idle), model.discomfort_penalty)
        point = (best - idle) / 100.0 if some else 0.0
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

    def optimal_from(self, start: FloatArray, context: int | None = None) -> float:
        """Return the largest expected return from shares (n,); without a context, on average over the first ones."""
        if self.model.coupling is not None:
            return solve_coupled(self.model.override(initial=start)).primal
        if context is not None:
            return float(self.optimum[context] @ start)
        weights = np.ones(1) if self.model.context is None else self.model.context.start
        return float(weights @ self.optimum @ start)

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

    It is the event's (energy and forgone incentive) if the model has one and no context, else the slope of the
    least-squares line of -utility on energy.
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
    of them and 0 $/kWh, and the highest and 0, span [0, 1]. With a coupling its levels, as fractions of the
    greatest power, replace the prices, because they differ between instances.
    """
    horizon, c, moves = model.horizon, model.n_contexts, model.tables().context
    if model.coupling is None:
        price = observed_price(model).reshape(horizon + 1, -1)
        low, high = min(price.min(), 0.0), max(price.max(), 0.0)
        unit = (price - low) / (high - low) if high > low else np.zeros_like(price)
    else:  # one where there is no limit
        unit = np.clip(model.coupling.level / (float(model.power_kw.max()) or 1.0), 0.0, 1.0)[:, None]
    unit = np.broadcast_to(unit, (horizon + 1, c))
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
    """Where things stand in an observation: shares, fraction of the horizon left, what is known ahead, context."""

    horizon: int  #: number of decisions
    features: FloatArray = field(default_factory=lambda: np.zeros((1, 0)))  #: (c, f) what is shown of each context
    ahead: int = AHEAD  #: number of prices, limits or targets
    hidden: Context | None = None  #: the context, where observations show it in part and an agent has to follow it

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
        """Return the context of observations (…, size), from the contexts one step earlier if it is shown in part."""
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


# ------------------------------------------------------------------ stacking
def stack(
    rows: Sequence[Row], mode: ActionMode, loads: int, reward: str, autoreset: bool, random_row: bool
) -> tuple[Any, ...]:
    """Return the tables of `step.Problem` as a plain tuple; the support is that of all models together."""
    models = [row.model for row in rows]
    _check_alike(models)
    if reward == "points" and not all(row.point > 0 for row in rows):
        raise ValueError(
            "the optimum earns no more than loads that are left alone, so there is nothing to score in points; use "
            "reward='dollars' in Python, or choose other prices."
        )
    first, c = models[0], models[0].n_contexts
    starts, decisions, behaviour = nonzeros([model.default for model in models])
    natures = [model.nature for model in models if model.nature is not None]
    nature = np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros((len(rows), 1, 0))
    if natures:
        nature = nonzeros(natures)
    flat, alone = np.zeros(first.horizon + 1), np.ones((1, 1, 1))
    couplings, contexts = [model.coupling for model in models], [model.context for model in models]
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
        basis=_stacked(
            [action_scale(one).reshape(-1, 1, 1, 1) if mode.tilt else basis_of(mode, one) for one in models]
        ),
        utility=_stacked([model.tables().utility for model in models]),
        power=_stacked([model.power_kw for model in models]),
        clock=_stacked([row.clock for row in rows]),
        level=_stacked([flat if one is None else one.level for one in couplings]),
        weight=_stacked([flat if one is None else one.weight for one in couplings]),
        initial=_stacked([model.initial / model.initial.sum() for model in models]),
        first=_stacked([np.ones(1) if one is None else one.start for one in contexts]),
        moves=_stacked([alone if one is None else one.transition.reshape(-1, c, c) for one in contexts]),
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


def _stacked(arrays: Sequence[Any]) -> FloatArray:
    return np.ascontiguousarray(np.stack(arrays), dtype=np.float64)


def _padded(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stack arrays of different lengths, the shorter ones followed by zeros."""
    longest, width = max(map(len, arrays)), [(0, 0)] * (arrays[0].ndim - 1)
    return np.stack([np.pad(one, [(0, longest - len(one)), *width]) for one in arrays])


def _check_alike(models: Sequence[EnsembleModel]) -> None:
    shapes = {
        (*model.tables().behaviour.shape, model.default.shape, getattr(model.nature, "shape", None))
        + (model.spread_start, model.shares_shown, getattr(model.coupling, "kind", None))
        for model in models
    }
    if len(shapes) != 1:
        raise ValueError(
            "models that are played side by side must have equal numbers of states, decisions, contexts and steps, and "
            "agree in nature, coupling, spread_start and the axes of their behaviour."
        )
