"""One load in each environment, many environments side by side. The arrays are described in `dynamics`.

To look at all actions before anything moves would mean to read them twice, which takes a tenth of the time of a large
batch. So each block of environments is looked at when it is about to move, and if one is refused, those before it are
taken back.
"""
# ruff: noqa: D103 - the arguments are those of the description

from __future__ import annotations

import numpy as np

from dp_ensemble_env.envs._four import ahead, gather, last, load, reached, store
from dp_ensemble_env.envs._numeric import Floats, Ints, fast_exp, fast_log, uniform, unread
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
    PAST,
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
from dp_ensemble_env.tools.compile import njit

#: Times this, every number is smaller.
BELOW_ONE = 1.0 - 2.0**-52


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
    """One load in each environment: a categorical move from the present state. Actions are always looked at."""
    if stop == 0:
        stop = counters.shape[1]
    if traces.shape[0] > 1:  # a start in a distribution could not be taken back
        fault = check_rows(ints, counters, action, start, stop)
        if fault != 0:
            return fault
    n, horizon = ints[N], ints[T]
    width = ints[WIDTH] if ints[WIDTH] > 0 else (n + 3) // 4 * 4
    lanes = min(NARROW_LANES, stop - start)
    # One line an environment, in the order of `tables.in_fours`: tilts, and weights P exp(tilt), later cumulated.
    tilt, weight = np.empty(lanes * width), np.empty(lanes * width)
    sums = np.empty((3, lanes))  # of each environment: divergence, total weight of its row, where its spot falls
    marks = np.empty((3, lanes), np.int64)  # environments that move, those that ended, entries that were chosen
    divergence, spot, rows, ended, chosen = sums[0], sums[2], marks[0], marks[1], marks[2]
    by_basis = ints[MODE] == BASIS
    levels, own = np.empty((lanes if by_basis else 0, n)), np.arange(lanes)
    flat = obs.reshape(-1)
    for first in range(start, stop, lanes):
        following = min(first + lanes, stop)
        fault = check_rows(ints, counters, action, first, following)
        if fault != 0:
            take_back(ints, kernels, counters, traces, start, first)
            return fault
        size, over = following - first, 0
        for i in range(first, following):
            over += counters[TIME, i] == horizon
        if over == 0:  # neighbours: the streams advance side by side
            for c in range(size):
                rows[c] = first + c
                spot[c] = uniform(counters, first + c)
        else:
            size = _part(counters, horizon, first, following, rows, ended)
            for c in range(size):
                spot[c] = uniform(counters, rows[c])
        for j in range(first * (n + 3), following * (n + 3)):
            flat[unsigned(j)] = 0.0
        if over > 0:
            for c in range(over):
                counters[PAST, ended[c]] = counters[STATE, ended[c]] + ((counters[START, ended[c]] + 1) << 32)
            restart(ints, common, kernels, counters, traces, occupancy, obs, values, ended, over)
        if ints[WIDTH] == 0:
            for c in range(size):
                _load_by_row(ints, common, kernels, counters, action, c, rows, tilt, weight, divergence)
            _choose(width, size, tilt, weight, sums, chosen, False)
        else:
            if by_basis:
                _spell_out(ints, common, action, rows, size, levels)
                _weigh(ints, common, kernels, counters, levels, own, rows, size, tilt, weight)
            else:
                _weigh(ints, common, kernels, counters, action, rows, rows, size, tilt, weight)
            _choose(width, size, tilt, weight, sums, chosen, True)
        _land(ints, common, kernels, counters, traces, rows, size, chosen, divergence, obs, values)
    return 0


@njit(cache=True, nogil=True, error_model="numpy")
def take_back(ints: Ints, kernels: Floats, counters: Ints, traces: Floats, start: int, stop: int) -> None:
    """Undo the last step of the environments from `start` to `stop`."""
    best = ints[TIMES] * ints[NNZ] + ints[N] * (ints[T] + 1)  # where the optimal returns are
    for i in range(start, stop):
        unread(counters, i)
        counters[STATE, i] = counters[PAST, i] & 0xFFFFFFFF
        if counters[TIME, i] > 0:
            counters[TIME, i] -= 1
        else:  # a new episode had begun
            counters[TIME, i] = ints[T]
            counters[START, i] = (counters[PAST, i] >> 32) - 1
            if counters[START, i] >= 0:
                traces[0, i] = kernels[counters[MATRIX, i], best + counters[START, i]]


@njit(cache=True, nogil=True, error_model="numpy")
def _part(counters: Ints, horizon: int, first: int, following: int, rows: Ints, ended: Ints) -> int:
    """List the environments that move and those whose episode is over; return how many move."""
    size, over = 0, 0
    for i in range(first, following):
        if counters[TIME, i] == horizon:
            ended[over] = i
            over += 1
        else:
            rows[size] = i
            size += 1
    return size


@njit(cache=True, nogil=True, error_model="numpy")
def _spell_out(ints: Ints, common: Floats, action: Floats, rows: Ints, size: int, levels: Floats) -> None:
    """Write down the tilt of every level where actions are numbers of a basis, in units of the scale."""
    n, base, numbers = ints[N], ints[BASE], ints[SIZE]
    for c in range(size):
        for a in range(n):
            levels[c, a] = 0.0
        for j in range(numbers):
            number, line = float(action[rows[c], j]), unsigned(base + j * n)
            for a in range(n):
                levels[c, a] += number * common[line + unsigned(a)]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _weigh(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    levels: Floats,
    which: Ints,
    rows: Ints,
    size: int,
    tilt: Floats,
    weight: Floats,
) -> None:
    """Fill in tilts and weights P exp(tilt) of each environment's present row; its levels are row `which[c]`."""
    # Copied to locals, arrays flat: the compiler cannot know that the stores below leave tables and shapes alone.
    n, width, columns, scales = ints[N], ints[WIDTH], ints[COLUMNS], ints[SCALE]
    per_time = n * width if ints[TIMES] > 1 else 0
    padded, per_matrix, several = ints[TIMES] * ints[NNZ] + n * (ints[T] + 2), kernels.shape[1], kernels.shape[0] > 1
    given, entries = levels.reshape(-1), kernels.reshape(-1)
    for c in range(size):
        i, place = unsigned(rows[c]), unsigned(c * width)
        t, b = counters[TIME, i], counters[STATE, i]
        scale = common[unsigned(scales + t)]
        row = unsigned(padded + t * per_time + b * width)
        if several:
            row += unsigned(counters[MATRIX, i] * per_matrix)
        column, mine = unsigned(columns + b * width), unsigned(which[c] * n)
        for e in range(0, width, 4):
            at = unsigned(e)
            x = gather(given, mine, ints, column + at) * scale
            store(tilt, place + at, x)
            store(weight, place + at, load(entries, row + at) * fast_exp(x))


@njit(cache=True, nogil=True, error_model="numpy")
def _load_by_row(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    action: Floats,
    c: int,
    rows: Ints,
    tilt: Floats,
    weight: Floats,
    divergence: Floats,
) -> None:
    """Do the same where a row needs its own shift, or is given: the weights are the policy; its divergence is known."""
    n, i = ints[N], rows[c]
    pi, log_ratio = np.empty(n), np.empty(n)
    t, b, m = counters[TIME, i], counters[STATE, i], counters[MATRIX, i]
    divergence[c] = policy_row(ints, common, kernels, t, m, b, action, i, pi, log_ratio)
    length = ints[ints[INDPTR] + b + 1] - ints[ints[INDPTR] + b]
    fours = (n + 3) // 4
    for e in range(4 * fours):
        at = 4 * (c * fours + e % fours) + e // fours
        weight[at] = pi[e] if e < length else 0.0
        tilt[at] = 0.0


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _choose(width: int, size: int, tilt: Floats, weight: Floats, sums: Floats, chosen: Ints, charges: bool) -> None:
    """Find where in each row its spot falls and, if it `charges`, the divergence of the row P exp(tilt) / g."""
    divergence, total, spot = sums[0], sums[1], sums[2]
    for c in range(size):
        # A lane holds neighbours of the row, so what is cumulated in it lacks only what the lanes before hold.
        place = unsigned(c * width)
        cumulated = load(weight, place)
        charge = cumulated * load(tilt, place)
        for e in range(4, width, 4):
            at = place + unsigned(e)
            w = load(weight, at)
            charge = charge + w * load(tilt, at)
            cumulated = cumulated + w
            store(weight, at, cumulated)
        before = ahead(cumulated)
        g = last(before + cumulated)
        u = min(spot[c] * g, g * BELOW_ONE)  # rounded up to the total it would fall behind the row
        hits = 0
        for e in range(0, width, 4):
            hits += reached(load(weight, place + unsigned(e)) + before, u)
        chosen[c] = hits
        if charges:
            total[c] = g
            divergence[c] = last(ahead(charge) + charge)
    if charges:
        for c in range(size):
            divergence[c] = divergence[c] / total[c] - fast_log(total[c])


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
    several = kernels.shape[0] > 1
    for c in range(size):
        i = unsigned(rows[c])
        t = counters[TIME, i] + 1
        b = counters[STATE, i]
        a = ints[unsigned(indices + ints[unsigned(indptr + b)] + chosen[c])]
        counters[PAST, i] = b
        counters[STATE, i] = a
        counters[TIME, i] = t
        obs[i, unsigned(a)] = 1.0
        for j in range(3):
            obs[i, unsigned(n + j)] = common[clock + unsigned(3 * t + j)]
        start = counters[START, i]
        if start >= 0:
            m = unsigned(counters[MATRIX, i] if several else 0)
            reference = kernels[m, unsigned(table + start * (horizon + 1) + t)]
        else:
            reference = traces[unsigned(1 + t), i]
        utility, power = common[unsigned(worth + t * n + a)], common[unsigned(powers + a)]
        cost = penalty * positive(divergence[c])
        values[REWARD, i] = utility - cost
        values[UTILITY, i] = utility
        values[DISCOMFORT, i] = cost
        values[POWER, i] = power
        values[CURTAILMENT, i] = reference - power
