"""Infinitely many loads: the distribution itself moves. The arrays are described in `dynamics`."""
# ruff: noqa: D103 - the arguments are those of the description

from __future__ import annotations

import numpy as np

from dp_ensemble_env.envs._numeric import Floats, Ints, fast_exp, fast_log
from dp_ensemble_env.envs._parts import (
    BASE,
    BASIS,
    CLOCK,
    COLPTR,
    CURTAILMENT,
    DISCOMFORT,
    INDICES,
    INDPTR,
    LANES,
    MATRIX,
    MODE,
    NNZ,
    ORIGINS,
    PENALTY,
    PLACES,
    POLICY,
    POWER,
    POWERS,
    REWARD,
    SAFE_NATS,
    SCALE,
    SIZE,
    START,
    TIME,
    TIMES,
    UTILITY,
    WIDEST,
    N,
    T,
    U,
    check_rows,
    fill_tilt,
    policy_row,
    positive,
    restart,
    unsigned,
)
from dp_ensemble_env.tools.compile import njit


@njit(cache=True, nogil=True, error_model="numpy")
def step_mean_field(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    traces: Floats,
    occupancy: Floats,
    action: Floats,
    obs: Floats,
    values: Floats,
    start: int,
    stop: int,
) -> int:
    """Infinitely many loads: the distribution itself moves."""
    if stop == 0:
        fault, stop = check_rows(ints, counters, action, 0, counters.shape[1]), counters.shape[1]
        if fault != 0:
            return fault
    n, horizon, count = ints[N], ints[T], stop - start
    lanes = min(LANES, count)
    scratch = np.empty((4, n, lanes))  # see `_move_by_tilt`
    sums = np.empty((3, lanes))  # of each lane: divergence, then utility and power on arrival
    # Environments at the same time and with the same matrix advance side by side.
    order = _by_time(counters, horizon, start, stop)
    begin = 0
    while begin < count:
        i = order[begin]
        t, m = counters[TIME, i], counters[MATRIX, i]
        end = begin + 1
        if t == horizon:
            restart(ints, common, kernels, counters, traces, occupancy, obs, values, order[begin:], 1)
        else:
            while end < count and end - begin < lanes and _alike(counters, order[end], t, m):
                end += 1
            rows = order[begin:end]
            if ints[MODE] == POLICY or common[ints[SCALE] + t] * common[WIDEST] > SAFE_NATS:
                _move_by_rows(ints, common, kernels, t, m, occupancy, action, rows, scratch, sums)
            elif end - begin == 1:
                _move_one(ints, common, kernels, t, m, occupancy, action, i, scratch, sums)
            else:
                _move_by_tilt(ints, common, kernels, t, m, occupancy, action, rows, scratch, sums)
            _arrive(ints, common, kernels, counters, traces, occupancy, rows, t + 1, scratch[1], sums, obs, values)
        begin = end
    return 0


@njit(cache=True, nogil=True, error_model="numpy")
def _by_time(counters: Ints, horizon: int, start: int, stop: int) -> Ints:
    """Order the environments by time, keeping their order among equals (counting sort)."""
    order = np.empty(stop - start, np.int64)
    together = True
    for i in range(start, stop):
        order[i - start] = i
        together &= counters[TIME, i] == counters[TIME, start]
    if together:  # the rule, since all episodes have the same length
        return order
    place = np.zeros(horizon + 2, np.int64)
    for i in range(start, stop):
        place[counters[TIME, i] + 1] += 1
    for t in range(horizon + 1):
        place[t + 1] += place[t]
    for i in range(start, stop):
        order[place[counters[TIME, i]]] = i
        place[counters[TIME, i]] += 1
    return order


@njit(inline="always", error_model="numpy")
def _alike(counters: Ints, i: int, t: int, m: int) -> bool:
    return bool(counters[TIME, i] == t and counters[MATRIX, i] == m)


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _move_by_tilt(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    t: int,
    m: int,
    occupancy: Floats,
    action: Floats,
    rows: Ints,
    scratch: Floats,
    sums: Floats,
) -> None:
    """Fill scratch[1] with the next distributions and sums[0] with the divergences; one column per environment."""
    n, size = ints[N], rows.size
    # One row a level, one column an environment: tilts, next shares, exp(tilt), shares (later shares over g).
    tilt, after, warm, weight = scratch[0], scratch[1], scratch[2], scratch[3]
    divergence = sums[0]
    scale = common[ints[SCALE] + t]
    by_basis = ints[MODE] == BASIS
    first_row, numbers = ints[BASE], ints[SIZE]
    for c in range(size):
        i, lane = unsigned(rows[c]), unsigned(c)
        for b in range(n):
            a = unsigned(b)
            weight[a, lane] = occupancy[i, a]
        if by_basis:
            for b in range(n):
                total = 0.0
                for j in range(numbers):
                    total += action[i, unsigned(j)] * common[unsigned(first_row + j * n + b)]
                tilt[unsigned(b), lane] = total * scale
        else:
            for b in range(n):
                a = unsigned(b)
                tilt[a, lane] = action[i, a] * scale
        divergence[lane] = 0.0
    for a in range(n):
        for c in range(size):
            warm[a, c] = fast_exp(tilt[a, c])
    base = (t if ints[TIMES] > 1 else 0) * ints[NNZ]
    for b in range(n):
        first, last = ints[ints[INDPTR] + b], ints[ints[INDPTR] + b + 1]
        _combine(ints, kernels, m, base, first, last, -1, ints[INDICES], warm, after, b, size)  # g = e P^T
        for c in range(size):
            g, here = after[b, c], weight[b, c]
            divergence[c] -= here * fast_log(g)
            weight[b, c] = here / g
    for a in range(n):
        first, last = ints[ints[COLPTR] + a], ints[ints[COLPTR] + a + 1]
        # (rho / g) P, column by column
        _combine(ints, kernels, m, base, first, last, ints[PLACES], ints[ORIGINS], weight, after, a, size)
        for c in range(size):
            x = after[a, c] * warm[a, c]
            after[a, c] = x
            divergence[c] += x * tilt[a, c]
    for c in range(size):
        divergence[c] = positive(divergence[c])


@njit(inline="always", error_model="numpy")
def _combine(
    ints: Ints,
    kernels: Floats,
    m: int,
    base: int,
    first: int,
    last: int,
    places: int,
    names: int,
    source: Floats,
    target: Floats,
    row: int,
    size: int,
) -> None:
    """target[row] = sum over e of kernels[e] * source[names[e]], from left to right, three terms at a time."""
    for c in range(size):
        target[row, c] = 0.0
    e = first
    while e + 2 < last:
        p = kernels[m, base + (e if places < 0 else ints[places + e])]
        q = kernels[m, base + (e + 1 if places < 0 else ints[places + e + 1])]
        r = kernels[m, base + (e + 2 if places < 0 else ints[places + e + 2])]
        x, y, z = ints[names + e], ints[names + e + 1], ints[names + e + 2]
        for c in range(size):
            target[row, c] = ((target[row, c] + p * source[x, c]) + q * source[y, c]) + r * source[z, c]
        e += 3
    while e < last:
        p, x = kernels[m, base + (e if places < 0 else ints[places + e])], ints[names + e]
        for c in range(size):
            target[row, c] += p * source[x, c]
        e += 1


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _move_one(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    t: int,
    m: int,
    occupancy: Floats,
    action: Floats,
    i: int,
    scratch: Floats,
    sums: Floats,
) -> None:
    """Do the same, operation by operation, for one environment: short loops over states instead of environments."""
    n = ints[N]
    # The first column of what `_move_by_tilt` uses; `weight` holds g first, then shares over g.
    tilt, after, warm, weight = scratch[0, :, 0], scratch[1, :, 0], scratch[2, :, 0], scratch[3, :, 0]
    fill_tilt(ints, common, t, action, i, tilt)
    for a in range(n):
        warm[a] = fast_exp(tilt[a])
    base = (t if ints[TIMES] > 1 else 0) * ints[NNZ]
    indptr, indices = ints[INDPTR], ints[INDICES]
    for b in range(n):
        g = 0.0
        for e in range(ints[indptr + b], ints[indptr + b + 1]):
            g += kernels[m, base + e] * warm[ints[indices + e]]
        weight[b] = g
        after[b] = 0.0
    divergence = 0.0
    for b in range(n):
        here = occupancy[i, b]
        divergence -= here * fast_log(weight[b])
        weight[b] = here / weight[b]
    for b in range(n):
        if weight[b] > 0.0:
            for e in range(ints[indptr + b], ints[indptr + b + 1]):
                after[ints[indices + e]] += kernels[m, base + e] * weight[b]
    for a in range(n):
        after[a] *= warm[a]
        divergence += after[a] * tilt[a]
    sums[0, 0] = positive(divergence)


@njit(cache=True, nogil=True, error_model="numpy")
def _move_by_rows(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    t: int,
    m: int,
    occupancy: Floats,
    action: Floats,
    rows: Ints,
    scratch: Floats,
    sums: Floats,
) -> None:
    """Do the same with one normalisation per row, for policy actions and very wide tilts."""
    n = ints[N]
    after, divergence = scratch[1], sums[0]
    pi, spare = np.empty(n), np.empty(n)
    for c in range(rows.size):
        i = rows[c]
        divergence[c] = 0.0
        for a in range(n):
            after[a, c] = 0.0
        for b in range(n):
            here = occupancy[i, b]
            if here > 0.0:
                divergence[c] += here * policy_row(ints, common, kernels, t, m, b, action, i, pi, spare)
                first = ints[ints[INDPTR] + b]
                for e in range(first, ints[ints[INDPTR] + b + 1]):
                    after[ints[ints[INDICES] + e], c] += here * pi[e - first]


@njit(cache=True, nogil=True, error_model="numpy")
def _arrive(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    traces: Floats,
    occupancy: Floats,
    rows: Ints,
    t: int,
    after: Floats,
    sums: Floats,
    obs: Floats,
    values: Floats,
) -> None:
    """Store the new distributions (columns of `after`) and report; written out as in `_land`."""
    n, horizon, size, clock = ints[N], ints[T], rows.size, unsigned(ints[CLOCK])
    penalty, table = common[PENALTY], ints[TIMES] * ints[NNZ]
    utility, power = sums[1], sums[2]
    for c in range(size):
        utility[c] = 0.0
        power[c] = 0.0
    for a in range(n):
        worth, level = common[ints[U] + t * n + a], common[ints[POWERS] + a]
        for c in range(size):
            utility[c] += after[a, c] * worth
        for c in range(size):
            power[c] += after[a, c] * level
    for c in range(size):
        i, lane = unsigned(rows[c]), unsigned(c)
        for b in range(n):
            a = unsigned(b)
            occupancy[i, a] = after[a, lane]
            obs[i, a] = after[a, lane]
        counters[TIME, i] = t
        for j in range(3):
            obs[i, unsigned(n + j)] = common[clock + unsigned(3 * t + j)]
        start = counters[START, i]
        if start >= 0:
            reference = kernels[unsigned(counters[MATRIX, i]), unsigned(table + start * (horizon + 1) + t)]
        else:
            reference = traces[unsigned(1 + t), i]
        cost = penalty * sums[0, lane]
        values[REWARD, i] = utility[lane] - cost
        values[UTILITY, i] = utility[lane]
        values[DISCOMFORT, i] = cost
        values[POWER, i] = power[lane]
        values[CURTAILMENT, i] = reference - power[lane]
