r"""The exact expected return of a tilt of every decision, and its gradient.

A tilt :math:`\tau_t[w, a]` makes the policy :math:`\pi[w, s, a] = P[w, s, a]\,e^{\tau[w, a]}/Z[w, s]`. With
:math:`q[w, a]` the expected utility and return from the next time on, the return from `(t, w, s)` is

.. math:: v_t[w, s] = \sum_a \pi[w, s, a]\,(q[w, a] - \gamma\tau[w, a]) + \gamma\log Z[w, s]

(the divergence of the policy is :math:`\sum_a\pi\tau - \log Z`). Its derivative by :math:`\tau[w, a]` is
:math:`\pi[w, s, a]\,(g[w, a] - \sum_b\pi[w, s, b]\,g[w, b])` with :math:`g = q - \gamma\tau`, and the gradient of the
whole is the sum of these over the joint distribution of context and state at `t`. So one pass backward gives the value,
one more forward the gradient, both over the nonzeros only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.compile import njit

FloatArray = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Tilts further than this below the largest of their time and context count as that far: e^-600 is still a number.
DEPTH = 600.0


class Blocks(NamedTuple):
    """Matrices of all times and contexts, each different one once, as rows of nonzeros.

    Attributes
    ----------
    which : ndarray of int of shape (T, c)
        The matrix that holds at a time and context.
    indptr : ndarray of int of shape (matrices, rows + 1)
        Where the rows of each begin in `indices` and `values`.
    """

    which: Ints
    indptr: Ints
    indices: Ints
    values: FloatArray


def compress(table: FloatArray) -> Blocks:
    """Gather a table (T, c, rows, columns)."""
    horizon, contexts, rows, columns = table.shape
    known: dict[bytes, int] = {}
    which = np.empty((horizon, contexts), np.int64)
    kept: list[FloatArray] = []
    for t in range(horizon):
        for w in range(contexts):
            key = table[t, w].tobytes()
            if key not in known:
                known[key] = len(kept)
                kept.append(table[t, w])
            which[t, w] = known[key]
    block, row, column = np.nonzero(np.stack(kept))
    counts = np.bincount(block * rows + row, minlength=len(kept) * rows)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indptr = np.stack([ends[b * rows : (b + 1) * rows + 1] for b in range(len(kept))])
    return Blocks(which, indptr, column.astype(np.int64), np.stack(kept)[block, row, column])


@njit(cache=True, nogil=True, error_model="numpy")
def _backward(
    tilts: FloatArray,
    p_which: Ints, p_ptr: Ints, p_index: Ints, p_value: FloatArray,
    n_which: Ints, n_ptr: Ints, n_index: Ints, n_value: FloatArray,
    context: FloatArray, utility: FloatArray, penalty: float,
    v: FloatArray, z: FloatArray, mean: FloatArray, gain: FloatArray, weight: FloatArray,
) -> None:  # fmt: skip
    """Fill v (T+1, c, n), z and mean g (T, c, n), g and e^tilt (T, c, m); the tilt less its largest entry."""
    horizon, contexts, m = tilts.shape
    n = v.shape[2]
    ahead = np.empty(n)
    v[horizon] = 0.0
    for t in range(horizon - 1, -1, -1):
        for w in range(contexts):
            ahead[:] = 0.0
            for x in range(contexts):
                share = context[t, w, x]
                if share > 0.0:
                    for s in range(n):
                        ahead[s] += share * (utility[t + 1, x, s] + v[t + 1, x, s])
            top = tilts[t, w].max()
            block = n_which[t, w]
            for a in range(m):
                q = 0.0
                for i in range(n_ptr[block, a], n_ptr[block, a + 1]):
                    q += n_value[i] * ahead[n_index[i]]
                tau = max(tilts[t, w, a] - top, -DEPTH)
                gain[t, w, a] = q - penalty * tau
                weight[t, w, a] = np.exp(tau)
            block = p_which[t, w]
            for s in range(n):
                total, sum_gain = 0.0, 0.0
                for i in range(p_ptr[block, s], p_ptr[block, s + 1]):
                    x = p_value[i] * weight[t, w, p_index[i]]
                    total += x
                    sum_gain += x * gain[t, w, p_index[i]]
                z[t, w, s] = total
                mean[t, w, s] = sum_gain / total
                v[t, w, s] = mean[t, w, s] + penalty * np.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def _forward(
    start: FloatArray,
    p_which: Ints, p_ptr: Ints, p_index: Ints, p_value: FloatArray,
    n_which: Ints, n_ptr: Ints, n_index: Ints, n_value: FloatArray,
    context: FloatArray, z: FloatArray, mean: FloatArray, gain: FloatArray, weight: FloatArray,
    rho: FloatArray, gradient: FloatArray,
) -> None:  # fmt: skip
    """Fill the joint distribution rho (T+1, c, n) and the gradient (T, c, m)."""
    horizon, contexts, m = gradient.shape
    n = rho.shape[2]
    chosen, level, flow = np.empty(m), np.empty(m), np.empty(n)
    rho[:] = 0.0
    rho[0] = start
    for t in range(horizon):
        for w in range(contexts):
            chosen[:] = 0.0
            level[:] = 0.0
            flow[:] = 0.0
            block = p_which[t, w]
            for s in range(n):
                if rho[t, w, s] > 0.0:
                    share = rho[t, w, s] / z[t, w, s]
                    offset = share * mean[t, w, s]
                    for i in range(p_ptr[block, s], p_ptr[block, s + 1]):
                        chosen[p_index[i]] += p_value[i] * share
                        level[p_index[i]] += p_value[i] * offset
            block = n_which[t, w]
            for a in range(m):
                gradient[t, w, a] = weight[t, w, a] * (gain[t, w, a] * chosen[a] - level[a])
                mass = weight[t, w, a] * chosen[a]
                for i in range(n_ptr[block, a], n_ptr[block, a + 1]):
                    flow[n_index[i]] += mass * n_value[i]
            for x in range(contexts):
                share = context[t, w, x]
                if share > 0.0:
                    for s in range(n):
                        rho[t + 1, x, s] += share * flow[s]


class TiltReturn:
    """The expected return of tilts (T, c, m) from a model's own start, in dollars per load.

    Parameters
    ----------
    model : EnsembleModel
    initial : array_like of shape (n,), optional
        Where the loads start; by default as the model says.

    Attributes
    ----------
    shape : tuple of int
        That of the tilts.
    """

    def __init__(self, model: EnsembleModel, initial: Any = None) -> None:
        behaviour, nature, context, utility = model.tables()
        self._p, self._n = compress(behaviour), compress(nature)
        self._context, self._utility = np.ascontiguousarray(context), np.ascontiguousarray(utility)
        self._penalty, self._coupling = model.discomfort_penalty, model.coupling
        self._power = model.power_kw
        first = np.ones(1) if model.context is None else model.context.start
        self.start = np.outer(first, model.initial if initial is None else initial)
        horizon, contexts, n, m = behaviour.shape
        self.shape = (horizon, contexts, m)
        self._v, self._rho = np.empty((horizon + 1, contexts, n)), np.empty((horizon + 1, contexts, n))
        self._z, self._mean = np.empty((horizon, contexts, n)), np.empty((horizon, contexts, n))
        self._gain, self._weight = np.empty(self.shape), np.empty(self.shape)

    def __call__(self, tilts: FloatArray) -> float:
        """Return the expected return."""
        return self.with_gradient(tilts)[0] if self._coupling is not None else self._value(tilts, self._utility)

    def with_gradient(self, tilts: FloatArray) -> tuple[float, FloatArray]:
        """Return the expected return and its derivative by every tilt (T, c, m)."""
        utility, cost, paid = self._utility, 0.0, 0.0
        if self._coupling is not None:  # a convex cost of the mean power acts as a price at its own slope
            self._value(tilts, utility)
            self._gradient()
            power = (self._rho @ self._power).sum(axis=1)
            cost, slope = coupling_cost(self._coupling, power)
            utility = utility - slope[:, None, None] * self._power
            paid = float(slope[1:] @ power[1:])
        value = self._value(tilts, utility)
        return value + paid - cost, self._gradient()

    def _value(self, tilts: FloatArray, utility: FloatArray) -> float:
        tilts = np.ascontiguousarray(np.broadcast_to(tilts, self.shape), float)
        scratch = (self._v, self._z, self._mean, self._gain, self._weight)
        _backward(tilts, *self._p, *self._n, self._context, utility, self._penalty, *scratch)
        return float((self.start * self._v[0]).sum())

    def _gradient(self) -> FloatArray:
        gradient = np.empty(self.shape)
        known = (self._z, self._mean, self._gain, self._weight)
        _forward(self.start, *self._p, *self._n, self._context, *known, self._rho, gradient)
        return gradient


def coupling_cost(coupling: Coupling, power: FloatArray) -> tuple[float, FloatArray]:
    """Return the cost of mean powers (T + 1,) over times 1 … T, and its slope at each."""
    off, weight = coupling.violation(slice(None), power), coupling.weight
    slope = 2.0 * weight * off * np.sign(power - coupling.level) if coupling.kind == "tracking" else weight * (off > 0)
    return float(coupling.total(power)), slope
