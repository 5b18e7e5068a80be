"""What the compiled steps need to know of a model, computed once and packed flat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.control.lsmdp import LogKernel, Solution, solve
from dp_ensemble_env.envs import _parts as dyn
from dp_ensemble_env.envs.actions import ActionMode, action_scale, basis_of
from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Kernel:
    r"""One default matrix and what follows from it.

    Attributes
    ----------
    indptr, indices : ndarray of int
        The nonzeros, row by row.
    values : ndarray of shape (1 or T, nnz)
        Probabilities, each row divided by its sum.
    columns, padded : ndarray of int of shape (n, width), ndarray of shape (1 or T, n, width)
        The same entries in rows of equal length, a multiple of four, filled up with zeros and in the order
        of `in_fours`: ``padded[t, b, e]`` leads to state ``columns[b, e]``. The width is zero if the
        rows are too unequal for it.
    solution : Solution
        The optimal control (Theorem 1).
    reference_kw : ndarray of shape (n, T + 1)
        Expected power at each time when nobody interferes, by start state.
    optimal_return : ndarray of shape (n,)
        :math:`\gamma \log z_0 - U_0`.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: FloatArray
    columns: NDArray[np.int64]
    padded: FloatArray
    solution: Solution
    reference_kw: FloatArray
    optimal_return: FloatArray

    @classmethod
    def of(cls, model: EnsembleModel) -> Kernel:
        """Solve a model and follow its uncontrolled power."""
        # The model tolerates rows that miss one by 1e-8; here the zero action must cost nothing, so they are exact.
        default = model.default / model.default.sum(axis=-1, keepdims=True)
        kernel = LogKernel.from_probabilities(default)
        solution = solve(kernel, model.utility, model.discomfort_penalty)
        optimal = model.discomfort_penalty * solution.log_desirability[0] - model.utility[0]
        return cls(
            kernel.indptr,
            kernel.indices,
            np.exp(kernel.log_values[0]),
            *_padded(kernel),
            solution,
            uncontrolled_power(default, model.power_kw, model.horizon),
            optimal,
        )

    def packed(self) -> FloatArray:
        """Return one row of the ``kernels`` array of `dynamics`."""
        return np.concatenate(
            [self.values.ravel(), self.reference_kw.ravel(), self.optimal_return, self.padded.ravel()]
        )


def _padded(kernel: LogKernel) -> tuple[NDArray[np.int64], FloatArray]:
    n, sizes = kernel.n_states, np.diff(kernel.indptr)
    width = int(sizes.max())
    if width > 2 * sizes.mean() + 8:
        return np.zeros((n, 0), np.int64), np.zeros((kernel.log_values.shape[1], n, 0))
    rank = in_fours(width)
    entry = kernel.indptr[:-1, None] + np.minimum(rank, sizes[:, None] - 1)
    inside = rank < sizes[:, None]
    return kernel.indices[entry], np.where(inside, np.exp(kernel.log_values[0][:, entry]), 0.0)


def in_fours(width: int) -> NDArray[np.int64]:
    """Return which entry of a row stands where when the row is read four at a time.

    Each of the four lanes takes neighbours: cumulated lane by lane, the entries come in their order.

    Examples
    --------
    >>> in_fours(7)
    array([0, 2, 4, 6, 1, 3, 5, 7])
    """
    fours = -(-width // 4)
    return np.arange(4 * fours).reshape(4, fours).T.ravel()


def uncontrolled_power(default: FloatArray, power_kw: FloatArray, horizon: int) -> FloatArray:
    """Return the expected power at times 0 … T from every start state under the default dynamics, shape (n, T + 1)."""
    expected = np.empty((power_kw.size, horizon + 1))
    expected[:, 0] = power_kw
    if default.ndim == 2:
        for t in range(horizon):
            expected[:, t + 1] = default @ expected[:, t]
        return expected
    path = np.eye(power_kw.size)
    for t in range(horizon):
        path = path @ default[t]
        expected[:, t + 1] = path @ power_kw
    return expected


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
    result: NDArray[np.float64] = -(model.utility @ centred) / (variance * model.step_hours)
    return result


def reward_unit(model: EnsembleModel) -> float:
    """Return the dollars that a reward of unit scale is measured in: the largest utility in size; public.

    A coupling counts with its cost at the least and the greatest power, where it is largest.
    """
    largest = float(np.abs(model.utility[1:]).max())
    if model.coupling is not None:
        times = np.arange(1, model.horizon + 1)
        largest += max(float(model.coupling.cost(times, x).max()) for x in (model.power_kw.min(), model.power_kw.max()))
    return largest if largest > 0 else 1.0


def clock_table(model: EnsembleModel) -> FloatArray:
    """Return the last three observations at times 0 … T, shape (T + 1, 3).

    The fraction of the horizon left, the price of the interval that begins now
    and that of the one after it (the last interval's is repeated at the end).
    Prices are shifted and scaled so that the lowest of them and 0 $/kWh, and the
    highest and 0, span [0, 1].
    """
    horizon = model.horizon
    price = observed_price(model)
    low, high = min(price.min(), 0.0), max(price.max(), 0.0)
    unit = (price - low) / (high - low) if high > low else np.zeros_like(price)
    t = np.arange(horizon + 1)
    return np.column_stack(
        [(horizon - t) / horizon, unit[np.minimum(t + 1, horizon)], unit[np.minimum(t + 2, horizon)]]
    )


def pack(
    model: EnsembleModel, kernel: Kernel, mode: ActionMode, loads: int, autoreset: bool
) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the arrays ``ints`` and ``common`` of `dynamics` (loads = 0 is the mean field)."""
    n, horizon, scale = model.n_states, model.horizon, action_scale(model)
    basis = np.zeros((0, n)) if mode.tilt else basis_of(mode, model)
    code = dyn.POLICY if mode.basis is None else dyn.TILT if mode.tilt else dyn.BASIS
    parts = [
        np.array([model.discomfort_penalty, widest_tilt(basis)]),
        model.utility.ravel(),
        model.power_kw,
        basis.ravel(),
        scale,
        clock_table(model).ravel(),
        np.cumsum(model.initial) / model.initial.sum(),
    ]
    starts = np.cumsum([0] + [part.size for part in parts])
    header = np.zeros(dyn.HEADER, np.int64)
    header[dyn.N], header[dyn.T], header[dyn.NNZ] = n, horizon, kernel.indices.size
    header[dyn.TIMES], header[dyn.MODE], header[dyn.LOADS] = len(kernel.values), code, loads
    header[dyn.AUTORESET], header[dyn.SIZE] = autoreset, len(basis)
    sparse = [kernel.indptr, kernel.indices, *_by_column(kernel), kernel.columns.ravel()]
    names = [dyn.INDPTR, dyn.INDICES, dyn.COLPTR, dyn.ORIGINS, dyn.PLACES, dyn.COLUMNS]
    header[names] = dyn.HEADER + np.cumsum([0] + [part.size for part in sparse[:-1]])
    if code != dyn.POLICY and scale.max() * parts[0][1] <= dyn.SAFE_NATS:
        header[dyn.WIDTH] = kernel.columns.shape[1]
    header[[dyn.U, dyn.POWERS, dyn.BASE, dyn.SCALE, dyn.CLOCK, dyn.INITIAL]] = starts[1:7]
    return np.concatenate([header, *sparse]), np.concatenate(parts)


def widest_tilt(basis: FloatArray) -> float:
    """Return the largest tilt in units of the scale that actions in [-1, 1] reach; one without a basis."""
    return float(np.abs(basis).sum(axis=0).max()) if basis.size else 1.0


def _by_column(kernel: Kernel) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """List the nonzeros column by column: where columns begin, the rows, and the places in the list by rows."""
    n = len(kernel.indptr) - 1
    rows = np.repeat(np.arange(n), np.diff(kernel.indptr))
    places = np.argsort(kernel.indices, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(kernel.indices, minlength=n))])
    return starts, rows[places], places
