"""Compiled loops of the linearly-solvable recursion; `lsmdp` explains them and checks what they are given.

Indices, here and in `_average`: `m` the member of the batch, `t` the time, `b` the present state, `a` the next one, `e`
an entry of the kernel. Row `b` owns the entries ``indptr[b]:indptr[b + 1]``, and entry `e` leads to ``indices[e]``. An
array whose batch or time axis has length one holds for every member or time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env._compile import njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Exponents within this many nats of zero neither underflow nor overflow, nor do their products with the policy.
SAFE_NATS = 600.0
NOT_A_LOG, EMPTY_ROW, PROBABILITIES = 1, 2, 3


@njit(cache=True, nogil=True, error_model="numpy")
def compress(dense: Floats) -> tuple[Ints, Ints, Floats, int, int, int]:
    """Find the union of the finite entries over batch and time (CSR) and gather them; report what is wrong."""
    batch, times, n, columns = dense.shape
    nothing = np.empty(0, np.int64)
    mask = np.zeros((n, columns), np.bool_)  # possible in some member at some time
    probabilities = columns > 1  # as long as every row could be one of probabilities instead of logarithms
    for m in range(batch):
        for t in range(times):
            for b in range(n):
                found, total = False, 0.0
                for a in range(columns):
                    x = dense[m, t, b, a]
                    if np.isnan(x) or x == np.inf:
                        return nothing, nothing, dense[:, :, 0], NOT_A_LOG, b, a
                    if x > -np.inf:
                        mask[b, a] = True
                        found = True
                    probabilities &= x >= 0.0
                    total += x
                if not found:
                    return nothing, nothing, dense[:, :, 0], EMPTY_ROW, b, 0
                probabilities &= abs(total - 1.0) < 1e-6
    if probabilities:
        return nothing, nothing, dense[:, :, 0], PROBABILITIES, 0, 0
    # Row by row, so that the successors of a state lie side by side: the solver reads them together.
    indptr = np.zeros(n + 1, np.int64)
    indices = np.empty(mask.sum(), np.int64)
    e = 0
    for b in range(n):
        for a in range(columns):
            if mask[b, a]:
                indices[e] = a
                e += 1
        indptr[b + 1] = e
    values = np.empty((batch, times, indices.size))
    for m in range(batch):
        for t in range(times):
            for b in range(n):
                for e in range(indptr[b], indptr[b + 1]):
                    values[m, t, e] = dense[m, t, b, indices[e]]
    return indptr, indices, values, 0, 0, 0


@njit(cache=True, nogil=True, error_model="numpy")
def scatter(indptr: Ints, indices: Ints, values: Floats, out: Floats) -> None:
    """Write the entries `values` (m, nnz) into the zeros of `out` (m, n, columns)."""
    for m in range(values.shape[0]):
        for b in range(indptr.size - 1):
            for e in range(indptr[b], indptr[b + 1]):
                out[m, b, indices[e]] = values[m, e]


@njit(cache=True, nogil=True, error_model="numpy")
def backward(
    indptr: Ints, indices: Ints, log_values: Floats, utility: Floats, penalty: Floats, log_z: Floats, policy: Floats
) -> float:
    """Theorem 1: fill log_z (B, T+1, n) and policy (B, T, nnz); return how large U / gamma is, NaN if not finite.

    What is returned is the largest modulus of U / gamma in a member, least over the members.
    Where the spread of log z and of the kernel fits in a double, a step takes
    one exponential per state (products cannot underflow there); elsewhere it
    takes a log-sum-exp per row. Both are exact to rounding.
    """
    batch, times, n = log_z.shape
    horizon = times - 1
    ahead = np.empty(n)  # log z_{t+1} less its maximum: differences between states, small and exact
    weight = np.empty(n)  # exp(ahead), shared by all rows of a step
    linear = np.empty(indices.size)  # the kernel itself, of which log_values holds the logarithm
    u = np.empty((times, n))  # U / gamma
    reach = np.inf
    for m in range(batch):
        kernel = log_values[m if log_values.shape[0] > 1 else 0]
        gamma = penalty[m if penalty.size > 1 else 0]
        largest = 0.0
        for t in range(times):
            for b in range(n):
                u[t, b] = utility[m if utility.shape[0] > 1 else 0, t, b] / gamma
                if not np.isfinite(u[t, b]):
                    return np.nan
                largest = max(largest, abs(u[t, b]))
        reach = min(reach, largest)
        # log z_{t+1} = ahead + offset. The offset grows with the horizon and would swallow the digits of the
        # differences that the policy is made of, so the two are added only in the result.
        offset = u[horizon].max()
        depth = 0.0
        for b in range(n):
            ahead[b] = u[horizon, b] - offset
            log_z[m, horizon, b] = u[horizon, b]
        for t in range(horizon - 1, -1, -1):
            row = kernel[t if kernel.shape[0] > 1 else 0]
            # A kernel that does not change with time is exponentiated once, at the first step taken.
            if t == horizon - 1 or kernel.shape[0] > 1:
                depth = _exponentiate(row, linear)
            if depth - ahead.min() < SAFE_NATS:
                for b in range(n):
                    weight[b] = np.exp(ahead[b])
                for b in range(n):
                    total = 0.0
                    for e in range(indptr[b], indptr[b + 1]):
                        x = linear[e] * weight[indices[e]]
                        policy[m, t, e] = x
                        total += x
                    scale = 1.0 / total
                    for e in range(indptr[b], indptr[b + 1]):
                        policy[m, t, e] *= scale
                    log_z[m, t, b] = u[t, b] + np.log(total)
            else:
                for b in range(n):
                    log_z[m, t, b] = u[t, b] + row_softmax(indptr[b], indptr[b + 1], indices, row, ahead, policy[m, t])
            # So far log_z[m, t] lacks the offset of time t + 1: take the differences first, then add it.
            shift = log_z[m, t].max()
            for b in range(n):
                ahead[b] = log_z[m, t, b] - shift
                log_z[m, t, b] += offset
            offset += shift
    return reach


@njit(cache=True, nogil=True, error_model="numpy")
def _exponentiate(log_row: Floats, linear: Floats) -> float:
    """Fill `linear` with exp(log_row); return how far the finite entries reach from zero, in nats."""
    depth = 0.0
    for e in range(log_row.size):
        linear[e] = np.exp(log_row[e])
        if log_row[e] > -np.inf:
            depth = max(depth, abs(log_row[e]))
    return depth


@njit(cache=True, nogil=True, error_model="numpy")
def row_softmax(start: int, stop: int, indices: Ints, log_row: Floats, ahead: Floats, policy: Floats) -> float:
    """One row by log-sum-exp: fill policy[start:stop], return log g."""
    top = -np.inf
    for e in range(start, stop):  # the logarithms wait in the policy's own place
        policy[e] = log_row[e] + ahead[indices[e]]
        top = max(top, policy[e])
    total = 0.0
    for e in range(start, stop):
        policy[e] = np.exp(policy[e] - top)
        total += policy[e]
    for e in range(start, stop):
        policy[e] /= total
    return float(top + np.log(total))


@njit(cache=True, nogil=True, error_model="numpy")
def evaluate(policy: Floats, default: Floats, utility: Floats, penalty: Floats, cost: Floats) -> Ints:
    """Backward policy evaluation; returns (-1, …) or the first impossible move (t, b, a)."""
    fault = np.full(3, -1, np.int64)
    batch, times, n = cost.shape
    horizon = times - 1
    for m in range(batch):
        q = policy[m if policy.shape[0] > 1 else 0]
        p = default[m if default.shape[0] > 1 else 0]
        u = utility[m if utility.shape[0] > 1 else 0]
        gamma = penalty[m if penalty.size > 1 else 0]
        for b in range(n):
            cost[m, horizon, b] = -u[horizon, b]
        for t in range(horizon - 1, -1, -1):
            reference = p[t if p.shape[0] > 1 else 0]
            for b in range(n):
                divergence = 0.0
                expected = 0.0
                for a in range(n):
                    x = q[t, b, a]
                    if x > 0.0:  # 0 log 0 = 0, also where the default is zero
                        if reference[b, a] == 0.0:
                            fault[:] = (t, b, a)
                            return fault
                        divergence += x * np.log(x / reference[b, a])
                        expected += x * cost[m, t + 1, a]
                cost[m, t, b] = -u[t, b] + gamma * divergence + expected
    return fault
