"""Compiled loops of the linearly-solvable recursion; `lsmdp` explains them and checks what they are given.

Indices, here and in `averages`: `t` the time, `b` the present state, `a` the next one, `e` an entry of the kernel. Row
`b` owns the entries ``indptr[b]:indptr[b + 1]``, and entry `e` leads to ``indices[e]``. An array whose axis of times or
contexts has length one holds for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.tools.compile import njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Exponents within this many nats of zero neither underflow nor overflow, nor do their products with the policy.
SAFE_NATS = 600.0


class Rows(NamedTuple):
    """A kernel (c or 1, T or 1, nnz), in logarithms that reach `depth` nats from zero, and their exponentials."""

    indptr: Ints
    indices: Ints
    log_values: Floats
    linear: Floats
    depth: float


class World(NamedTuple):
    """Nature (c or 1, T or 1, nnz), where it differs from the identity, and the context's moves (T or 1, c, c).

    Decision `a` owns the entries ``pointers[a]:pointers[a + 1]`` of nature, which lead to the states ``targets``.
    """

    pointers: Ints
    targets: Ints
    nature: Floats
    moves: Floats


@njit(cache=True, nogil=True, error_model="numpy")
def scatter(indptr: Ints, indices: Ints, values: Floats, out: Floats) -> None:
    """Write the entries `values` (m, nnz) into the zeros of `out` (m, n, columns)."""
    for m in range(values.shape[0]):
        for b in range(indptr.size - 1):
            for e in range(indptr[b], indptr[b + 1]):
                out[m, b, indices[e]] = values[m, e]


@njit(cache=True, nogil=True, error_model="numpy")
def backward(
    indptr: Ints, indices: Ints, log_values: Floats, utility: Floats, penalty: float, log_z: Floats, policy: Floats
) -> float:
    """Theorem 1: fill log_z (T+1, n) and policy (T, nnz); return the largest modulus of U / gamma, NaN if not finite.

    Where the spread of log z and of the kernel fits in a double, a step takes one exponential per state (products
    cannot underflow there); elsewhere it takes a log-sum-exp per row. Both are exact to rounding.
    """
    times, n = log_z.shape
    horizon = times - 1
    ahead = np.empty(n)  # log z_{t+1} less its maximum: differences between states, small and exact
    weight = np.empty(n)  # exp(ahead), shared by all rows of a step
    linear = np.empty(indices.size)  # the kernel itself, of which log_values holds the logarithm
    u = np.empty((times, n))  # U / gamma
    largest = 0.0
    for t in range(times):
        for b in range(n):
            u[t, b] = utility[t, b] / penalty
            if not np.isfinite(u[t, b]):
                return np.nan
            largest = max(largest, abs(u[t, b]))
    # log z_{t+1} = ahead + offset. The offset grows with the horizon and would swallow the digits of the differences
    # that the policy is made of, so the two are added only in the result.
    offset = u[horizon].max()
    depth = 0.0
    for b in range(n):
        ahead[b] = u[horizon, b] - offset
        log_z[horizon, b] = u[horizon, b]
    for t in range(horizon - 1, -1, -1):
        row = log_values[t if log_values.shape[0] > 1 else 0]
        # A kernel that does not change with time is exponentiated once, at the first step taken.
        if t == horizon - 1 or log_values.shape[0] > 1:
            depth = _exponentiate(row, linear)
        if depth - ahead.min() < SAFE_NATS:
            for b in range(n):
                weight[b] = np.exp(ahead[b])
            for b in range(n):
                total = 0.0
                for e in range(indptr[b], indptr[b + 1]):
                    x = linear[e] * weight[indices[e]]
                    policy[t, e] = x
                    total += x
                scale = 1.0 / total
                for e in range(indptr[b], indptr[b + 1]):
                    policy[t, e] *= scale
                log_z[t, b] = u[t, b] + np.log(total)
        else:
            for b in range(n):
                log_z[t, b] = u[t, b] + row_softmax(indptr[b], indptr[b + 1], indices, row, ahead, policy[t])
        # So far log_z[t] lacks the offset of time t + 1: take the differences first, then add it.
        shift = log_z[t].max()
        for b in range(n):
            ahead[b] = log_z[t, b] - shift
            log_z[t, b] += offset
        offset += shift
    return largest


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
def evaluate(policy: Floats, default: Floats, utility: Floats, penalty: float, cost: Floats) -> Ints:
    """Backward policy evaluation; returns (-1, …) or the first impossible move (t, b, a)."""
    fault = np.full(3, -1, np.int64)
    times, n = cost.shape
    horizon = times - 1
    for b in range(n):
        cost[horizon, b] = -utility[horizon, b]
    for t in range(horizon - 1, -1, -1):
        reference = default[t if default.shape[0] > 1 else 0]
        for b in range(n):
            divergence = 0.0
            expected = 0.0
            for a in range(n):
                x = policy[t, b, a]
                if x > 0.0:  # 0 log 0 = 0, also where the default is zero
                    if reference[b, a] == 0.0:
                        fault[:] = (t, b, a)
                        return fault
                    divergence += x * np.log(x / reference[b, a])
                    expected += x * cost[t + 1, a]
            cost[t, b] = -utility[t, b] + penalty * divergence + expected
    return fault


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})
def _multiply(pointers: Ints, targets: Ints, values: Floats, source: Floats, out: Floats) -> None:
    """out[r] = sum over the entries e of row r of values[e] * source[targets[e]]."""
    rows, columns = out.size, source.size
    if values.size == rows * columns:  # no entry is missing: the vector units can take whole rows
        full = values.reshape(rows, columns)
        for r in range(rows):
            total = 0.0
            for j in range(columns):
                total += full[r, j] * source[j]
            out[r] = total
        return
    for r in range(rows):
        total = 0.0
        for e in range(pointers[r], pointers[r + 1]):
            total += values[e] * source[targets[e]]
        out[r] = total


@njit(cache=True, nogil=True, error_model="numpy")
def _physics(world: World, t: int, w: int) -> Floats:
    """Nature at time t in context w, on its nonzeros."""
    values: Floats = world.nature[w if world.nature.shape[0] > 1 else 0, t if world.nature.shape[1] > 1 else 0]
    return values


@njit(cache=True, nogil=True, error_model="numpy")
def _expect(world: World, t: int, w: int, ahead: Floats, mixed: Floats, expected: Floats) -> None:
    """Fill `expected` (m,) with the mean of `ahead` (c, n) over where decisions at t in w lead; `mixed` is scratch."""
    moves = world.moves[t if world.moves.shape[0] > 1 else 0, w]
    mixed[:] = 0.0
    for v in range(moves.size):
        if moves[v] > 0.0:
            for s in range(mixed.size):
                mixed[s] += moves[v] * ahead[v, s]
    if world.pointers.size == 0:
        expected[:] = mixed
    else:
        _multiply(world.pointers, world.targets, _physics(world, t, w), mixed, expected)


@njit(cache=True, nogil=True, error_model="numpy")
def backward_with_nature(
    kernel: Rows, world: World, utility: Floats, penalty: float, log_z: Floats, tilt: Floats
) -> bool:
    """Fill log_z (T+1, c, n) and tilt (T, c, m); False if U / gamma is not finite somewhere.

    The tilt is the expected log-desirability of each decision less its largest value; the policy follows from it
    (`policy_rows`).
    """
    indptr, indices, log_values, linear, depth = kernel
    times, c, n = log_z.shape
    horizon, m = times - 1, tilt.shape[2]
    ahead = np.empty((c, n))  # log z_{t+1} less `offset`: differences, small and exact
    mixed, gain, weight, spare = np.empty(n), np.empty(n), np.empty(m), np.empty(indices.size)
    for t in range(times):
        for w in range(c):
            for s in range(n):
                log_z[t, w, s] = utility[t, w if utility.shape[1] > 1 else 0, s] / penalty
                if not np.isfinite(log_z[t, w, s]):
                    return False
    offset = log_z[horizon].max()
    ahead[:] = log_z[horizon] - offset
    for t in range(horizon - 1, -1, -1):
        for w in range(c):
            expected = tilt[t, w]
            _expect(world, t, w, ahead, mixed, expected)
            own, when = w if linear.shape[0] > 1 else 0, t if linear.shape[1] > 1 else 0
            top = expected.max()
            expected -= top
            if depth - expected.min() < SAFE_NATS:
                for a in range(m):
                    weight[a] = np.exp(expected[a])
                _multiply(indptr, indices, linear[own, when], weight, gain)
                for s in range(n):
                    log_z[t, w, s] += top + np.log(gain[s])
            else:
                logs = log_values[own, when]
                for s in range(n):
                    log_z[t, w, s] += top + row_softmax(indptr[s], indptr[s + 1], indices, logs, expected, spare)
        # So far log_z[t] lacks the offset of time t + 1: take the differences first, then add it.
        shift = log_z[t].max()
        for w in range(c):
            for s in range(n):
                ahead[w, s] = log_z[t, w, s] - shift
                log_z[t, w, s] += offset
        offset += shift
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def policy_rows(indptr: Ints, indices: Ints, log_values: Floats, tilt: Floats, policy: Floats) -> None:
    """Fill policy (c, T, nnz) with the rows proportional to kernel times exp(tilt), tilt (T, c, m)."""
    for w in range(policy.shape[0]):
        for t in range(policy.shape[1]):
            logs = log_values[w if log_values.shape[0] > 1 else 0, t if log_values.shape[1] > 1 else 0]
            for s in range(indptr.size - 1):
                row_softmax(indptr[s], indptr[s + 1], indices, logs, tilt[t, w], policy[w, t])


@njit(cache=True, nogil=True, error_model="numpy")
def evaluate_with_nature(
    policy: Floats, default: Floats, world: World, utility: Floats, penalty: float, cost: Floats
) -> Ints:
    """Backward policy evaluation into cost (T+1, c, n); returns (-1, …) or the first impossible move (t, w, s, a).

    `policy` has shape (T, c, n, m), `default` (T or 1, c or 1, n, m).
    """
    fault = np.full(4, -1, np.int64)
    times, c, n = cost.shape
    horizon, m = times - 1, policy.shape[3]
    mixed, expected = np.empty(n), np.empty(m)
    for t in range(horizon, -1, -1):
        for w in range(c):
            for s in range(n):
                cost[t, w, s] = -utility[t, w if utility.shape[1] > 1 else 0, s]
            if t == horizon:
                continue
            _expect(world, t, w, cost[t + 1], mixed, expected)
            reference = default[t if default.shape[0] > 1 else 0, w if default.shape[1] > 1 else 0]
            for s in range(n):
                for a in range(m):
                    x = policy[t, w, s, a]
                    if x > 0.0:  # 0 log 0 = 0, also where the default is zero
                        if reference[s, a] == 0.0:
                            fault[:] = (t, w, s, a)
                            return fault
                        cost[t, w, s] += x * (penalty * np.log(x / reference[s, a]) + expected[a])
    return fault


@njit(cache=True, nogil=True, error_model="numpy")
def forward_with_nature(policy: Floats, world: World, shares: Floats) -> None:
    """Follow shares (T+1, c, n), the joint distribution of context and state, whose first row is given."""
    times, c, n = shares.shape
    m = policy.shape[3]
    decided, reached = np.empty(m), np.empty(n)
    shares[1:] = 0.0
    for t in range(times - 1):
        for w in range(c):
            decided[:] = 0.0
            for s in range(n):
                here = shares[t, w, s]
                if here > 0.0:
                    for a in range(m):
                        decided[a] += here * policy[t, w, s, a]
            if world.pointers.size == 0:
                reached[:] = decided
            else:
                physics = _physics(world, t, w)
                reached[:] = 0.0
                for a in range(m):
                    for e in range(world.pointers[a], world.pointers[a + 1]):
                        reached[world.targets[e]] += decided[a] * physics[e]
            step = world.moves[t if world.moves.shape[0] > 1 else 0, w]
            for then in range(c):
                for s in range(n):
                    shares[t + 1, then, s] += step[then] * reached[s]
