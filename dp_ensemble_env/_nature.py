"""Compiled loops of the recursion with nature and context; `lsmdp` explains them and checks what they are given.

Indices: `t` the time, `w` the context, `s` the state, `a` the decision, `e` an entry. Behaviour and nature lie on their
nonzeros (see `lsmdp.LogKernel`), as arrays of shape (c or 1, T or 1, nnz); an axis of length one holds for all. Without
nature its arrays are empty, and a decision is the next state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env._compile import njit
from dp_ensemble_env._recursion import SAFE_NATS, row_softmax

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
def _mix(moves: Floats, ahead: Floats, out: Floats) -> None:
    """out[s] = sum over w' of moves[w'] * ahead[w', s]."""
    out[:] = 0.0
    for w in range(moves.size):
        if moves[w] > 0.0:
            for s in range(out.size):
                out[s] += moves[w] * ahead[w, s]


@njit(cache=True, nogil=True, error_model="numpy")
def backward(
    indptr: Ints,
    indices: Ints,
    log_values: Floats,
    linear: Floats,
    depth: float,
    pointers: Ints,
    targets: Ints,
    nature: Floats,
    moves: Floats,
    utility: Floats,
    penalty: float,
    log_z: Floats,
    tilt: Floats,
) -> bool:
    """Fill log_z (T+1, c, n) and tilt (T, c, m); False if U / gamma is not finite somewhere.

    `linear` holds the exponentials of `log_values`, which reach `depth` nats from zero. The tilt is the expected
    log-desirability of each decision less its largest value; the policy follows from it (`policy_rows`).
    """
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
        step = moves[t if moves.shape[0] > 1 else 0]
        for w in range(c):
            _mix(step[w], ahead, mixed)
            expected = tilt[t, w]
            if pointers.size == 0:
                expected[:] = mixed
            else:
                physics = nature[w if nature.shape[0] > 1 else 0, t if nature.shape[1] > 1 else 0]
                _multiply(pointers, targets, physics, mixed, expected)
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
def evaluate(
    policy: Floats,
    default: Floats,
    pointers: Ints,
    targets: Ints,
    nature: Floats,
    moves: Floats,
    utility: Floats,
    penalty: float,
    cost: Floats,
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
            _mix(moves[t if moves.shape[0] > 1 else 0, w], cost[t + 1], mixed)
            if pointers.size == 0:
                expected[:] = mixed
            else:
                physics = nature[w if nature.shape[0] > 1 else 0, t if nature.shape[1] > 1 else 0]
                _multiply(pointers, targets, physics, mixed, expected)
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
def forward(policy: Floats, pointers: Ints, targets: Ints, nature: Floats, moves: Floats, shares: Floats) -> None:
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
            if pointers.size == 0:
                reached[:] = decided
            else:
                physics = nature[w if nature.shape[0] > 1 else 0, t if nature.shape[1] > 1 else 0]
                reached[:] = 0.0
                for a in range(m):
                    for e in range(pointers[a], pointers[a + 1]):
                        reached[targets[e]] += decided[a] * physics[e]
            step = moves[t if moves.shape[0] > 1 else 0, w]
            for then in range(c):
                for s in range(n):
                    shares[t + 1, then, s] += step[then] * reached[s]
