"""The input and output of `lsmdp`: a kernel on its nonzeros, and the optimal control of a problem."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.control.loops import policy_rows, scatter
from dp_ensemble_env.tools.validation import as_numeric_array, check_stochastic

if TYPE_CHECKING:
    from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LogKernel:
    """Logarithms of a nonnegative kernel on its nonzero entries, row by row (the layout of a SciPy CSR matrix).

    Row `b` owns the entries ``indptr[b]:indptr[b + 1]``; ``indices`` holds the state each entry leads to.
    """

    indptr: NDArray[np.int64] = field(repr=False)
    indices: NDArray[np.int64] = field(repr=False)
    log_values: FloatArray = field(repr=False)
    """(c or 1, T or 1, nnz); ``-inf`` where an entry is zero here, but not always."""
    columns: int
    """How many states, or decisions, entries may lead to."""

    def __repr__(self) -> str:
        contexts, times, entries = self.log_values.shape
        many = (f", {contexts:,} contexts" if contexts > 1 else "") + (f", {times:,} times" if times > 1 else "")
        return f"LogKernel({self.n_states:,} states, {entries:,} nonzeros{many})"

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.indptr) - 1

    @cached_property
    def linear(self) -> FloatArray:
        """The kernel itself on its nonzeros."""
        return np.exp(self.log_values)

    @cached_property
    def depth(self) -> float:
        """Largest absolute value of the finite logarithms, in nats."""
        return float(np.abs(self.log_values[np.isfinite(self.log_values)]).max(initial=0.0))

    @classmethod
    def of_contexts(cls, probabilities: ArrayLike, name: str = "default") -> LogKernel:
        """Take behaviour or nature (n, m), (T, n, m) or (T or 1, c or 1, n, m)."""
        checked = check_stochastic(probabilities, name, square=False)
        with np.errstate(divide="ignore"):
            return cls.from_blocks(contexts_first(np.log(checked), name), name)

    @classmethod
    def from_dense(cls, log_kernel: ArrayLike, name: str = "log_kernel") -> LogKernel:
        """Collect the finite entries of a dense (n, n) or (T, n, n) array of logarithms."""
        array = as_numeric_array(log_kernel, name, (2, 3))
        if array.shape[-1] != array.shape[-2] or 0 in array.shape:
            raise ValueError(f"{name} must be square in its last two axes and not empty, got shape {array.shape}.")
        return cls.from_blocks(contexts_first(array, name), name)

    @classmethod
    def from_blocks(cls, dense: FloatArray, name: str) -> LogKernel:
        """Collect the entries of logarithms (c, T, n, m) that are finite in some context at some time."""
        n, m = dense.shape[-2:]
        if not (dense < np.inf).all():
            b, a = (int(i) for i in np.argwhere(~(dense < np.inf))[0][-2:])
            raise ValueError(f"{name} has a NaN or +inf at {(b, a)}; use -inf for a transition that cannot happen.")
        possible = dense > -np.inf
        if (empty := np.argwhere(~possible.any(axis=-1))).size:
            b = empty[0][-1]
            raise ValueError(f"row {b} of {name} has no possible transition; give state {b} at least one successor.")
        if m > 1 and dense.min() >= 0.0 and np.abs(dense.sum(axis=-1) - 1.0).max() < 1e-6:
            raise ValueError(
                f"{name} looks like probabilities (nonnegative rows that sum to one), not logarithms; "
                "pass dp_ensemble_env.control.lsmdp.log_probabilities(default)."
            )
        # Row by row, so that the successors of a state lie side by side: the solver reads them together.
        rows, indices = np.nonzero(possible.any(axis=(0, 1)))
        values = np.ascontiguousarray(dense[:, :, rows, indices])
        return cls(np.searchsorted(rows, np.arange(n + 1)), np.ascontiguousarray(indices), values, m)

    def dense(self, values: FloatArray) -> FloatArray:
        """Spread values on the entries, shape (…, nnz), over matrices of shape (…, n, m) that are zero elsewhere."""
        flat = np.ascontiguousarray(values).reshape(-1, values.shape[-1])
        out = np.zeros((len(flat), self.n_states, self.columns))
        scatter(self.indptr, self.indices, flat, out)
        return out.reshape(*values.shape[:-1], self.n_states, self.columns)


@dataclass(frozen=True, eq=False)
class Solution:
    """The optimal control of a problem."""

    log_desirability: FloatArray = field(repr=False)
    """(T + 1, n), or (T + 1, c, n) with contexts."""
    kernel: LogKernel = field(repr=False)
    """The kernel it was solved for."""
    stored_values: FloatArray | None = field(repr=False)
    """The policy on the nonzeros, (T, nnz); with nature or context computed when it is asked for."""
    discomfort_penalty: float
    attraction: FloatArray | None = field(default=None, repr=False)
    """With nature or context, (T, [c,] m): the expected log-desirability of each decision, less the largest."""
    contexts: bool = False
    """Whether the arrays have an axis of contexts."""

    def __repr__(self) -> str:
        times, *contexts, n = self.log_desirability.shape
        many = "".join(f", {c:,} contexts" for c in contexts)
        return f"Solution({n:,} states{many}, {times - 1:,} step{'' if times == 2 else 's'})"

    @cached_property
    def policy_values(self) -> FloatArray:
        """The policy on the kernel's nonzeros, shape (T, nnz), or (c, T, nnz) with contexts."""
        if self.stored_values is not None:
            return self.stored_values
        tilt = self.tilt if self.contexts else self.tilt[:, None]
        values = np.empty((tilt.shape[1], len(tilt), len(self.kernel.indices)))
        policy_rows(self.kernel.indptr, self.kernel.indices, self.kernel.log_values, tilt, values)
        return values if self.contexts else values[0]

    @cached_property
    def policy(self) -> FloatArray:
        """Controlled behaviour, shape (T, n, n), with nature (T, n, m), with contexts (T, c, n, m)."""
        return self.over_times(self.kernel.dense(self.policy_values))

    def over_times(self, values: FloatArray) -> FloatArray:
        """Put the axis of times before that of contexts, if there is one."""
        return np.ascontiguousarray(np.moveaxis(values, 0, 1)) if self.contexts else values

    @property
    def tilt(self) -> FloatArray:
        """The optimal tilt in nats, largest entry zero: (T, n), with nature (T, m), with contexts (T, c, m)."""
        if self.attraction is not None:
            return self.attraction
        ahead = self.log_desirability[..., 1:, :]
        return np.asarray(ahead - ahead.max(axis=-1, keepdims=True))

    @property
    def cost_to_go(self) -> FloatArray:
        """Value function as a cost in dollars, of the shape of `log_desirability`."""
        return -self.discomfort_penalty * self.log_desirability


def contexts_first(array: FloatArray, name: str) -> FloatArray:
    """View (n, m), (T, n, m) or (T or 1, c or 1, n, m) as (c, T, n, m) with axes of length one."""
    if array.ndim not in (2, 3, 4):
        raise ValueError(f"{name} must have shape (n, m), (T, n, m) or (T, c, n, m), got {array.shape}.")
    full = array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim != 3 else array[:, None]
    return np.ascontiguousarray(np.swapaxes(full, 0, 1))


# ---------------------------------------------------------------- the kernels of a model
#: Computed once for each model.
_KERNELS: WeakKeyDictionary[EnsembleModel, tuple[LogKernel, LogKernel | None]] = WeakKeyDictionary()


def default_kernel(model: EnsembleModel) -> LogKernel:
    """Return the default behaviour as a kernel."""
    return _kernels(model)[0]


def world(model: EnsembleModel) -> dict[str, Any]:
    """Return nature and context as the functions of `lsmdp` take them by keyword."""
    return {"nature": _kernels(model)[1], "context": None if model.context is None else model.context.transition}


def _kernels(model: EnsembleModel) -> tuple[LogKernel, LogKernel | None]:
    if model not in _KERNELS:
        default = LogKernel.of_contexts(model.default)
        nature = None if model.nature is None else LogKernel.of_contexts(model.nature, "nature")
        _KERNELS[model] = default, nature
    return _KERNELS[model]
