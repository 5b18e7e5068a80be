"""One load in each environment, many environments side by side. The arrays are described in `dynamics`."""
# ruff: noqa: D103 - the arguments are those of the description

from __future__ import annotations

import numpy as np

from dp_ensemble_env._compile import njit
from dp_ensemble_env.envs._numeric import Floats, Ints, fast_exp, fast_log, uniform
from dp_ensemble_env.envs._parts import (
    BASE,
    BASIS,
    CLOCK,
    COLUMNS,
    CURTAILMENT,
    DISCOMFORT,
    INDICES,
    INDPTR,
    MATRIX,
    MODE,
    NARROW_LANES,
    NNZ,
    PENALTY,
    POWER,
    POWERS,
    REWARD,
    SCALE,
    SIZE,
    START,
    STATE,
    TIME,
    TIMES,
    UTILITY,
    WIDTH,
    N,
    T,
    U,
    check_rows,
    policy_row,
    positive,
    restart,
    unsigned,
)


@njit(cache=True, nogil=True, error_model="numpy")
def step_single(
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
    """One load in each environment: a categorical move from the present state."""
    if stop == 0:
        fault, stop = check_rows(ints, counters, action, 0, counters.shape[1]), counters.shape[1]
        if fault != 0:
            return fault
    n, horizon = ints[N], ints[T]
    width = ints[WIDTH] if ints[WIDTH] > 0 else n
    lanes = min(NARROW_LANES, stop - start)
    tilt, weight = np.empty((width, lanes)), np.empty((width, lanes))
    sums = np.empty((3, lanes))  # of each lane: divergence, total weight of its row, where its random spot falls
    marks = np.empty((3, lanes), np.int64)  # environments that move, entries that they chose, environments that ended
    divergence, spot, rows, chosen, ended = sums[0], sums[2], marks[0], marks[1], marks[2]
    flat = obs.reshape(-1)
    begin = start
    while begin < stop:
        first, size, over = begin, 0, 0
        while begin < stop and size < lanes and over < lanes:
            if counters[TIME, begin] == horizon:
                ended[over] = begin
                over += 1
            else:
                rows[size] = begin
                size += 1
            begin += 1
        for j in range(first * (n + 3), begin * (n + 3)):
            flat[unsigned(j)] = 0.0
        restart(ints, common, kernels, counters, traces, occupancy, obs, values, ended, over)
        if over == 0:  # neighbours: the streams advance side by side
            for c in range(size):
                spot[c] = uniform(counters, first + c)
        else:
            for c in range(size):
                spot[c] = uniform(counters, rows[c])
        if ints[WIDTH] > 0:
            _load_rows(ints, common, kernels, counters, action, rows, size, tilt, weight)
            _choose(width, size, tilt, weight, sums, chosen)
        else:
            charged = np.empty(size)
            for c in range(size):
                charged[c] = _load_by_row(ints, common, kernels, counters, action, rows[c], c, tilt, weight)
            _choose(width, size, tilt, weight, sums, chosen)
            divergence[:size] = charged
        _land(ints, common, kernels, counters, traces, rows, size, chosen, divergence, obs, values)
    return 0


@njit(cache=True, nogil=True, error_model="numpy")
def _load_rows(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    action: Floats,
    rows: Ints,
    size: int,
    tilt: Floats,
    weight: Floats,
) -> None:
    """Bring the present row of each environment into a column: tilts and probabilities, zeros after its end."""
    # Copied to locals, arrays flat: the compiler cannot know that the stores below leave tables and shapes alone.
    n, width, columns, scales, base, numbers = ints[N], ints[WIDTH], ints[COLUMNS], ints[SCALE], ints[BASE], ints[SIZE]
    per_time = n * width if ints[TIMES] > 1 else 0
    padded, per_matrix = ints[TIMES] * ints[NNZ] + n * (ints[T] + 2), kernels.shape[1]
    by_basis, offered, lanes = ints[MODE] == BASIS, action.shape[1], unsigned(tilt.shape[1])
    entries, given, tilts, weights = kernels.reshape(-1), action.reshape(-1), tilt.reshape(-1), weight.reshape(-1)
    for c in range(size):
        i, place = unsigned(rows[c]), unsigned(c)
        t, b = counters[TIME, i], counters[STATE, i]
        scale = common[unsigned(scales + t)]
        row = unsigned(counters[MATRIX, i] * per_matrix + padded + t * per_time + b * width)
        column, mine = unsigned(columns + b * width), unsigned(rows[c] * offered)
        if by_basis:
            for e in range(width):
                weights[place] = entries[row + unsigned(e)]
                tilts[place] = 0.0
                place += lanes
            for j in range(numbers):
                price, line, place = float(given[mine + unsigned(j)]) * scale, base + j * n, unsigned(c)
                for e in range(width):
                    tilts[place] += price * common[unsigned(line + ints[column + unsigned(e)])]
                    place += lanes
        else:
            for e in range(width):
                weights[place] = entries[row + unsigned(e)]
                tilts[place] = given[mine + unsigned(ints[column + unsigned(e)])] * scale
                place += lanes


@njit(cache=True, nogil=True, error_model="numpy")
def _load_by_row(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    action: Floats,
    i: int,
    lane: int,
    tilt: Floats,
    weight: Floats,
) -> float:
    """Do the same where rows need their own shift, or are given: the weights are the policy; return its divergence."""
    n = ints[N]
    pi, log_ratio = np.empty(n), np.empty(n)
    t, b, m = counters[TIME, i], counters[STATE, i], counters[MATRIX, i]
    divergence = policy_row(ints, common, kernels, t, m, b, action, i, pi, log_ratio)
    used = ints[ints[INDPTR] + b + 1] - ints[ints[INDPTR] + b]
    for e in range(n):
        weight[e, lane] = pi[e] if e < used else 0.0
        tilt[e, lane] = 0.0  # exp(log(policy / default)) could leave the range of `fast_exp`
    return divergence


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _choose(width: int, size: int, tilt: Floats, weight: Floats, sums: Floats, chosen: Ints) -> None:
    """Compute the divergence of each column's row P exp(tilt) / g and the entry where the spot falls in it."""
    divergence, total, spot = sums[0], sums[1], sums[2]
    for c in range(size):
        total[c] = 0.0
        divergence[c] = 0.0
        chosen[c] = 0
    for e in range(width):
        for c in range(size):
            x = tilt[e, c]
            w = weight[e, c] * fast_exp(x)
            divergence[c] += w * x
            total[c] += w
            weight[e, c] = total[c]  # cumulated
    for c in range(size):
        spot[c] *= total[c]
        divergence[c] = divergence[c] / total[c] - fast_log(total[c])
    for e in range(width):
        for c in range(size):
            chosen[c] += weight[e, c] <= spot[c]
    for c in range(size):
        if spot[c] >= total[c]:  # rounded up to the total: take the last entry with any weight
            chosen[c] = width - 1
            while chosen[c] > 0 and weight[chosen[c], c] == weight[chosen[c] - 1, c]:
                chosen[c] -= 1


@njit(cache=True, nogil=True, error_model="numpy")
def _land(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    traces: Floats,
    rows: Ints,
    size: int,
    chosen: Ints,
    divergence: Floats,
    obs: Floats,
    values: Floats,
) -> None:
    """Put each load where it was sent and report; `clock` and `report` written out, a call would double the time."""
    n, horizon, indptr, indices, clock = ints[N], ints[T], ints[INDPTR], ints[INDICES], unsigned(ints[CLOCK])
    worth, powers, penalty, table = ints[U], ints[POWERS], common[PENALTY], ints[TIMES] * ints[NNZ]
    for c in range(size):
        i = unsigned(rows[c])
        t = counters[TIME, i] + 1
        a = ints[unsigned(indices + ints[unsigned(indptr + counters[STATE, i])] + chosen[c])]
        counters[STATE, i] = a
        counters[TIME, i] = t
        obs[i, unsigned(a)] = 1.0
        for j in range(3):
            obs[i, unsigned(n + j)] = common[clock + unsigned(3 * t + j)]
        start = counters[START, i]
        if start >= 0:
            reference = kernels[unsigned(counters[MATRIX, i]), unsigned(table + start * (horizon + 1) + t)]
        else:
            reference = traces[unsigned(1 + t), i]
        utility, power = common[unsigned(worth + t * n + a)], common[unsigned(powers + a)]
        cost = penalty * positive(divergence[c])
        values[REWARD, i] = utility - cost
        values[UTILITY, i] = utility
        values[DISCOMFORT, i] = cost
        values[POWER, i] = power
        values[CURTAILMENT, i] = reference - power
