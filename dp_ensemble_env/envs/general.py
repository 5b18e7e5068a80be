"""What the compiled step of `_general` needs to know of a model with nature, context or coupling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.control.coupled import CoupledSolution
from dp_ensemble_env.control.lsmdp import Solution
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.envs import _general as gen
from dp_ensemble_env.envs import _parts as dyn
from dp_ensemble_env.envs.actions import ActionMode, action_scale, basis_of
from dp_ensemble_env.envs.tables import observed_price, widest_tilt
from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def is_general(model: EnsembleModel) -> bool:
    """Tell whether a model needs the general step: nature, context, coupling, or loads that start apart."""
    return bool(not model.is_plain or model.spread_start)


@dataclass(frozen=True, eq=False)
class GeneralKernel:
    """One default behaviour and what follows from it.

    Attributes
    ----------
    indptr, indices : ndarray of int
        The decisions that a state ever takes, row by row, over all times and contexts.
    values : ndarray of shape (blocks, nnz)
        Probabilities, each row divided by its sum; a block for each time and context that
        the model distinguishes.
    solution : Solution
        The optimal control.
    optimal_return : ndarray of shape (c, n)
        From each context and state; with a coupling, that of the model's own start throughout.
    """

    indptr: IntArray
    indices: IntArray
    values: FloatArray
    solution: Solution
    optimal_return: FloatArray

    @classmethod
    def of(cls, model: EnsembleModel) -> GeneralKernel:
        """Solve a model."""
        solution = solve_standard(model)
        if isinstance(solution, CoupledSolution):
            optimal = np.full((1, model.n_states), solution.primal)
        else:
            optimal = model.discomfort_penalty * solution.log_desirability[0] - model.utility[0]
            optimal = optimal.reshape(model.n_contexts, model.n_states)
        return cls(*_sparse(model.default), solution, optimal)

    def packed(self) -> FloatArray:
        """Return one row of the ``kernels`` array of `_general`."""
        return np.concatenate([self.values.ravel(), self.optimal_return.ravel()])


def _sparse(matrices: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the support that blocks (…, n, m) have together and the values on it, rows divided by their sums."""
    blocks = (matrices / matrices.sum(axis=-1, keepdims=True)).reshape(-1, *matrices.shape[-2:])
    rows, columns = np.nonzero((blocks > 0).any(axis=0))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=blocks.shape[1]))])
    return indptr.astype(np.int64), columns.astype(np.int64), np.ascontiguousarray(blocks[:, rows, columns])


def _strides(matrices: FloatArray) -> tuple[int, int]:
    """How many blocks further the next time and the next context lie: (n, m), (T, n, m) or (T or 1, c, n, m)."""
    if matrices.ndim == 2:
        return 0, 0
    if matrices.ndim == 3:
        return 1, 0
    return matrices.shape[1] if matrices.shape[0] > 1 else 0, 1


# ------------------------------------------------------------------ observations
def clock_of(model: EnsembleModel) -> FloatArray:
    """Return the observations after the occupancy at times 0 … T in each context, shape (T + 1, c, 3 + f).

    The part of the horizon left, the expected price of the interval that begins
    now and of the one after it (that of the last interval is repeated at the end),
    and the features of the context. Prices are scaled as in `tables.clock_table`. With a
    coupling its levels stand in their place, which differ from instance to instance.
    """
    horizon, c, moves = model.horizon, model.n_contexts, model.tables().context
    unit = np.broadcast_to(_asked(model) if model.coupling is not None else _unit_price(model), (horizon + 1, c))
    now, following = unit.copy(), unit.copy()
    for t in range(horizon):
        now[t] = moves[t] @ unit[t + 1]
    for t in range(horizon):
        following[t] = moves[t] @ now[t + 1]
    left = np.broadcast_to(((horizon - np.arange(horizon + 1)) / horizon)[:, None], (horizon + 1, c))
    features = np.zeros((1, 0)) if model.context is None else model.context.features
    shown = np.broadcast_to(features, (horizon + 1, c, features.shape[1]))
    # A mean of numbers in [0, 1] may leave it by a rounding step.
    return np.concatenate([np.clip(np.stack([left, now, following], axis=-1), 0.0, 1.0), shown], axis=-1)


def _unit_price(model: EnsembleModel) -> FloatArray:
    """Return prices scaled to [0, 1], (T + 1, c or 1)."""
    price = observed_price(model).reshape(model.horizon + 1, -1)
    low, high = min(price.min(), 0.0), max(price.max(), 0.0)
    return (price - low) / (high - low) if high > low else np.zeros_like(price)


def _asked(model: EnsembleModel) -> FloatArray:
    """Return limit or target in parts of the greatest power, (T + 1, 1); one where there is no limit."""
    assert model.coupling is not None
    most = float(model.power_kw.max()) or 1.0
    return np.clip(model.coupling.level / most, 0.0, 1.0)[:, None]


def uncontrolled_ahead(model: EnsembleModel, shares: FloatArray, context: int, time: int) -> FloatArray:
    """Return the uncontrolled power expected at times `time` + 1 … T from shares and a context at `time`."""
    tables, power = model.tables(), []
    joint = np.zeros((model.n_contexts, model.n_states))  # probability of each context, times the shares in it
    joint[context] = shares
    for t in range(time, model.horizon):
        decided = np.einsum("ws,wsa->wa", joint, tables.behaviour[t])
        joint = tables.context[t].T @ np.einsum("wa,wan->wn", decided, tables.nature[t])
        power.append(float(joint.sum(axis=0) @ model.power_kw))
    return np.array(power)


# ------------------------------------------------------------------ packing
def pack_general(
    model: EnsembleModel, kernel: GeneralKernel, mode: ActionMode, loads: int, autoreset: bool
) -> tuple[IntArray, FloatArray]:
    """Return the arrays ``ints`` and ``common`` of `_general` (loads = 0 is the mean field)."""
    nature = _sparse(model.nature) if model.nature is not None else (np.zeros(0), np.zeros(0), np.zeros(0))
    basis = np.zeros((0, model.n_decisions)) if mode.tilt else basis_of(mode, model)
    numbers = _numbers(model, basis, nature[2])
    indices = {
        dyn.INDPTR: kernel.indptr,
        dyn.INDICES: kernel.indices,
        gen.NATURE_PTR: nature[0].astype(np.int64),
        gen.NATURE_INDICES: nature[1].astype(np.int64),
    }
    header = np.zeros(gen.HEADER, np.int64)
    header[list(indices)] = gen.HEADER + _places(indices)
    header[list(numbers)[1:]] = _places(numbers)[1:]  # the first, of penalty and widest tilt, is where `_parts` says
    sizes = _sizes(model, kernel) | {
        dyn.MODE: dyn.POLICY if mode.basis is None else dyn.TILT if mode.tilt else dyn.BASIS,
        dyn.LOADS: loads,
        dyn.AUTORESET: autoreset,
        dyn.SIZE: len(basis),
        gen.NATURE_NNZ: nature[1].size,
    }
    header[list(sizes)] = [int(size) for size in sizes.values()]
    return np.concatenate([header, *indices.values()]), np.concatenate([part.ravel() for part in numbers.values()])


def _numbers(model: EnsembleModel, basis: FloatArray, nature: FloatArray) -> dict[int, FloatArray]:
    """Return the parts of ``common`` in order, by the place in the header where each says that it begins."""
    tables = model.tables()
    moves = tables.context[:1] if model.context is None or model.context.transition.ndim == 2 else tables.context
    start = np.ones(1) if model.context is None else model.context.start
    shares = model.initial / model.initial.sum()
    _, level, weight = (0, np.zeros(0), np.zeros(0)) if model.coupling is None else model.coupling.packed()
    return {
        dyn.PENALTY: np.array([model.discomfort_penalty, widest_tilt(basis)]),
        dyn.U: tables.utility,
        dyn.POWERS: model.power_kw,
        dyn.BASE: basis,
        dyn.SCALE: action_scale(model),
        dyn.CLOCK: clock_of(model),
        dyn.INITIAL: np.cumsum(shares),
        gen.SHARES: shares,
        gen.NATURE: nature,
        gen.MOVES: np.cumsum(moves, axis=-1),
        gen.FIRST: np.cumsum(start),
        gen.LEVEL: level,
        gen.WEIGHT: weight,
    }


def _sizes(model: EnsembleModel, kernel: GeneralKernel) -> dict[int, int]:
    """Return what the header says of the model alone."""
    context, c = model.context, model.n_contexts
    time, regime = _strides(model.default)
    nature_time, nature_regime = (0, 0) if model.nature is None else _strides(model.nature)
    return {
        dyn.N: model.n_states,
        dyn.T: model.horizon,
        dyn.NNZ: kernel.indices.size,
        gen.M: model.n_decisions,
        gen.C: c,
        gen.FEATURES: 0 if context is None else context.features.shape[1],
        gen.BLOCKS: len(kernel.values),
        gen.BLOCK_T: time,
        gen.BLOCK_C: regime,
        gen.NATURE_T: nature_time,
        gen.NATURE_C: nature_regime,
        gen.MOVES_T: c * c if context is not None and context.transition.ndim == 3 else 0,
        gen.SPREAD: model.spread_start,
        gen.COUPLED: 0 if model.coupling is None else 1 + model.coupling.packed()[0],
    }


def _places(parts: dict[int, NDArray[Any]]) -> IntArray:
    """Where each part begins once they are laid one after the other."""
    return np.cumsum([0, *(part.size for part in parts.values())])[:-1]
