"""Parts that the steps of `dynamics` are made of: policy rows, chance, starts, reports.

The layout of the arrays is described in `dynamics`. Numba's disk cache looks at the
file of the outermost function only: after editing this module, `_numeric` or `_four`, save
`_single`, `_buildings`, `_mean_field`, `_general` and `_crew` as well, and `_crew` after `_single`.
"""
# ruff: noqa: D103 - the arguments are those of the description in `dynamics`

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dp_ensemble_env.envs._numeric import STREAM, Bools, Floats, Ints, binomial, fast_exp, fast_log, uniform
from dp_ensemble_env.tools.compile import njit

#: Rows of ``counters``; the stream occupies two after the state. `PAST` is what `_single.take_back` needs.
TIME, MATRIX, STATE, START, PAST = 0, 1, 2, 5, 6
COUNTERS = 7
STREAMS = slice(STREAM, STREAM + 2)
#: Rows of ``values``.
REWARD, UTILITY, DISCOMFORT, POWER, CURTAILMENT = 0, 1, 2, 3, 4
VALUES = 5
#: Action modes: numbers that a basis turns into tilts, one tilt for each level, the policy's rows.
BASIS, TILT, POLICY = 0, 1, 2
#: Header of ``ints``: sizes, mode, then where the parts of ``ints`` and ``common`` begin.
N, T, NNZ, TIMES, MODE, LOADS, AUTORESET, INDPTR, INDICES = 0, 1, 2, 3, 4, 5, 6, 7, 8
COLPTR, ORIGINS, PLACES, WIDTH, COLUMNS = 9, 10, 11, 12, 13
U, POWERS, BASE, SCALE, CLOCK, INITIAL = 14, 15, 16, 17, 18, 19
SIZE = 20
HEADER = 21
#: ``common`` begins with the penalty and the widest tilt in units of the scale.
PENALTY, WIDEST = 0, 1
#: Tilts no larger than this (the action times the scale) can be exponentiated as they are.
SAFE_NATS = 300.0
#: A divergence below this many nats is rounding.
NOISE = 1e-13
#: Environments that go through the mean-field loops side by side.
LANES = 64
#: The same for environments of one load, which need less room.
NARROW_LANES = 128


@njit(inline="always", error_model="numpy")
def unsigned(j: Any) -> Any:
    """Say that an index is not negative, which spares the test for one (and half the time of the loops here)."""
    return np.uint64(j)


@njit(inline="always", error_model="numpy")
def tame(x: float) -> float:
    """Keep an exponent in the range of `fast_exp`: at most 0, and what is below -700 weighs nothing anyway."""
    return max(-700.0, min(x, 0.0))


@njit(inline="always", error_model="numpy")
def positive(divergence: float) -> float:
    """Take a divergence within rounding of zero for zero, so that the zero action costs exactly nothing."""
    return divergence if divergence > NOISE else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def check_rows(ints: Ints, counters: Ints, action: Floats, start: int, stop: int) -> int:
    """Look at the environments from `start` to `stop` before anything changes; return what the steps return."""
    horizon, width = ints[T], int(action.shape[1])
    over, ready = 0, True
    for i in range(start, stop):
        over += counters[TIME, i] == horizon
        ready &= counters[TIME, i] >= 0
    if not ready or (over > 0 and ints[AUTORESET] == 0):
        for i in range(start, stop):
            if counters[TIME, i] < 0 or (counters[TIME, i] == horizon and ints[AUTORESET] == 0):
                return -1 - i
    low = np.float32(0.0 if ints[MODE] == POLICY else -1.0)
    high = np.float32(1.0)
    if over == 0:
        flat, good = action[start:stop].reshape(-1), True
        for j in range(flat.size):
            good &= (flat[j] >= low) & (flat[j] <= high)  # NaN fails both
        if good:
            return 0
    for i in range(start, stop):
        if counters[TIME, i] < horizon:  # the action of an environment that restarts is not looked at
            for a in range(width):
                if not (action[i, a] >= low and action[i, a] <= high):
                    return 1 + i * width + a
    return 0


# ------------------------------------------------------------------ policy rows
@njit(inline="always", error_model="numpy")
def along_basis(ints: Ints, common: Floats, action: Floats, i: int, a: int) -> float:
    """Return the tilt of level `a` in units of the scale: the action's numbers times column `a` of the basis."""
    total = 0.0
    for j in range(ints[SIZE]):
        total += action[i, j] * common[ints[BASE] + j * ints[N] + a]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def policy_row(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    t: int,
    m: int,
    b: int,
    action: Floats,
    i: int,
    pi: Floats,
    log_ratio: Floats,
) -> float:
    """Fill pi with row `b` of the policy on its nonzeros, log_ratio with log(pi / default); return the divergence."""
    first = ints[ints[INDPTR] + b]
    width = ints[ints[INDPTR] + b + 1] - first
    base = (t if ints[TIMES] > 1 else 0) * ints[NNZ] + first
    column = ints[INDICES] + first
    if ints[MODE] == POLICY:
        given_row(ints, kernels, m, base, column, width, b * ints[N], action, i, pi, log_ratio)
    else:
        scale, top, total = common[ints[SCALE] + t], -np.inf, 0.0
        for e in range(width):
            a = ints[column + e]
            x = action[i, a] * scale if ints[MODE] == TILT else along_basis(ints, common, action, i, a) * scale
            log_ratio[e] = x
            top = max(top, x if kernels[m, base + e] > 0.0 else top)  # zero: forbidden at this time only
        for e in range(width):
            log_ratio[e] = tame(log_ratio[e] - top)
            pi[e] = kernels[m, base + e] * fast_exp(log_ratio[e])
            total += pi[e]
        log_total = fast_log(total)
        for e in range(width):
            pi[e] /= total
            log_ratio[e] -= log_total
    divergence = 0.0
    for e in range(width):
        divergence += pi[e] * log_ratio[e]
    return positive(divergence)


@njit(cache=True, nogil=True, error_model="numpy")
def given_row(
    ints: Ints,
    kernels: Floats,
    m: int,
    base: int,
    column: int,
    width: int,
    offset: int,
    action: Floats,
    i: int,
    pi: Floats,
    log_ratio: Floats,
) -> None:
    """Mask the action's row to the support and normalise it, an all-zero row being the default."""
    total = 0.0
    for e in range(width):
        x = float(action[i, offset + ints[column + e]]) if kernels[m, base + e] > 0.0 else 0.0
        pi[e] = x
        total += x
    for e in range(width):
        p = kernels[m, base + e]
        pi[e] = pi[e] / total if total > 0.0 else p
        # What is not chosen weighs nothing: exp(-700) times p is as good as zero.
        log_ratio[e] = 0.0 if total == 0.0 else math.log(pi[e] / p) if pi[e] > 0.0 else -700.0


@njit(cache=True, nogil=True, error_model="numpy")
def shared_row(ints: Ints, kernels: Floats, t: int, m: int, b: int, tilt: Floats, warm: Floats, pi: Floats) -> float:
    """Fill pi with row `b` from the exponentials that all rows share; return its divergence."""
    first = ints[ints[INDPTR] + b]
    count = ints[ints[INDPTR] + b + 1] - first
    base = (t if ints[TIMES] > 1 else 0) * ints[NNZ] + first
    column = ints[INDICES] + first
    total, mean = 0.0, 0.0
    for e in range(count):
        a = ints[column + e]
        weight = kernels[m, base + e] * warm[a]
        pi[e] = weight
        total += weight
        mean += weight * tilt[a]
    for e in range(count):
        pi[e] /= total
    return positive(mean / total - fast_log(total))


@njit(cache=True, nogil=True, error_model="numpy")
def fill_tilt(ints: Ints, common: Floats, t: int, action: Floats, i: int, tilt: Floats) -> None:
    """Fill tilt with the tilt of environment `i`."""
    scale = common[ints[SCALE] + t]
    for a in range(ints[N]):
        x = along_basis(ints, common, action, i, a) if ints[MODE] == BASIS else float(action[i, a])
        tilt[a] = x * scale


# ------------------------------------------------------------------ chance
@njit(cache=True, nogil=True, error_model="numpy")
def pick(cumulated: Floats, start: int, stop: int, u: float) -> int:
    """Return the first index whose cumulated weight exceeds u (inversion); a weight of zero never comes up."""
    chosen = start
    for e in range(start, stop):
        chosen += cumulated[e] <= u
    if chosen == stop:  # u was rounded up to the total
        chosen = stop - 1
        while chosen > start and cumulated[chosen] == cumulated[chosen - 1]:
            chosen -= 1
    return chosen


@njit(cache=True, nogil=True, error_model="numpy")
def scatter(
    ints: Ints, counters: Ints, i: int, b: int, here: int, pi: Floats, cumulated: Floats, moved: Floats
) -> None:
    """Send the `here` loads of state `b` to their successors: one by one, or by conditional binomials if many."""
    first = ints[ints[INDPTR] + b]
    width = ints[ints[INDPTR] + b + 1] - first
    column = ints[INDICES] + first
    if here <= 8 * width:
        mass = 0.0
        for e in range(width):
            mass += pi[e]
            cumulated[e] = mass
        for _ in range(here):
            moved[ints[column + pick(cumulated, 0, width, uniform(counters, i) * mass)]] += 1.0
        return
    last = width - 1
    while pi[last] <= 0.0:
        last -= 1
    rest, left = 1.0, here
    for e in range(last):
        if left == 0:
            return
        gone = binomial(counters, i, left, min(1.0, pi[e] / rest))
        moved[ints[column + e]] += gone
        left -= gone
        rest = max(rest - pi[e], 1e-300)
    moved[ints[column + last]] += left


# ------------------------------------------------------------------ starts
@njit(cache=True, nogil=True, error_model="numpy")
def reset_rows(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    traces: Floats,
    occupancy: Floats,
    mask: Bools,
    states: Ints,
    given: Floats,
    obs: Floats,
    values: Floats,
) -> None:
    """Start new episodes where `mask` says so.

    ``states[i] >= 0`` is the start state, -1 draws one from the model's initial
    distribution and -2 takes the distribution ``given[i]`` (drawn from, load by
    load, in a finite population).
    """
    one = np.empty(1, np.int64)
    for i in range(mask.size):
        if mask[i]:
            one[0] = i
            if states[i] == -1:
                restart(ints, common, kernels, counters, traces, occupancy, obs, values, one, 1)
            elif states[i] >= 0:
                counters[STATE, i] = states[i]
                start_at(ints, common, kernels, counters, traces, occupancy, obs, values, one, 1)
            else:
                start_from(ints, common, kernels, counters, traces, occupancy, obs, values, i, given[i])


@njit(cache=True, nogil=True, error_model="numpy")
def restart(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    traces: Floats,
    occupancy: Floats,
    obs: Floats,
    values: Floats,
    rows: Ints,
    size: int,
) -> None:
    """Draw start states from the initial distribution; a whole population starts in one state."""
    first = ints[INITIAL]
    for c in range(size):
        i = rows[c]
        counters[STATE, i] = pick(common, first, first + ints[N], uniform(counters, i)) - first
    start_at(ints, common, kernels, counters, traces, occupancy, obs, values, rows, size)


@njit(cache=True, nogil=True, error_model="numpy")
def start_at(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    traces: Floats,
    occupancy: Floats,
    obs: Floats,
    values: Floats,
    rows: Ints,
    size: int,
) -> None:
    """Begin episodes with all loads in the state that ``counters[STATE]`` says."""
    n, horizon, clock, powers = ints[N], ints[T], unsigned(ints[CLOCK]), ints[POWERS]
    table, loads, width = ints[TIMES] * ints[NNZ], max(1.0, float(ints[LOADS])), occupancy.shape[1]
    for c in range(size):
        i = unsigned(rows[c])
        state, m = counters[STATE, i], unsigned(counters[MATRIX, i])
        counters[TIME, i] = 0
        counters[START, i] = state
        for b in range(width):
            occupancy[i, unsigned(b)] = 0.0
        if width > 0:
            occupancy[i, unsigned(state)] = loads
        for b in range(n):
            obs[i, unsigned(b)] = 0.0
        obs[i, unsigned(state)] = 1.0
        for j in range(3):
            obs[i, unsigned(n + j)] = common[clock + unsigned(j)]
        traces[0, i] = kernels[m, unsigned(table + n * (horizon + 1) + state)]
        values[REWARD, i] = 0.0
        values[UTILITY, i] = 0.0
        values[DISCOMFORT, i] = 0.0
        values[POWER, i] = common[unsigned(powers + state)]
        values[CURTAILMENT, i] = 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def start_from(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    traces: Floats,
    occupancy: Floats,
    obs: Floats,
    values: Floats,
    i: int,
    given: Floats,
) -> None:
    n, horizon, loads = ints[N], ints[T], ints[LOADS]
    counters[TIME, i] = 0
    shares = given.copy()
    if loads > 0:  # a finite population: each load draws its state
        shares[:] = 0.0
        rest, left = 1.0, loads
        for a in range(n):
            gone = left if a == n - 1 else binomial(counters, i, left, min(1.0, given[a] / rest))
            if rest - given[a] <= 1e-15:
                gone = left
            shares[a] = gone / loads
            left -= gone
            rest = max(rest - given[a], 1e-300)
    power = 0.0
    table = ints[TIMES] * ints[NNZ]
    m = counters[MATRIX, i]
    for t in range(horizon + 2):
        traces[t, i] = 0.0
    for a in range(n):
        if occupancy.shape[1]:
            occupancy[i, a] = np.rint(shares[a] * loads) if loads > 0 else shares[a]
        if shares[a] > 0.0:
            counters[STATE, i] = a
        obs[i, a] = shares[a]
        power += shares[a] * common[ints[POWERS] + a]
        traces[0, i] += shares[a] * kernels[m, table + n * (horizon + 1) + a]
        for t in range(horizon + 1):
            traces[1 + t, i] += shares[a] * kernels[m, table + a * (horizon + 1) + t]
    counters[START, i] = -1
    set_clock(common, ints[CLOCK], obs, i, n, 0)
    report(kernels, counters, traces, values, ints[TIMES] * ints[NNZ], ints[T], i, 0, 0.0, 0.0, power)


# ------------------------------------------------------------------ reports
# The offsets are arguments: looked up in `ints` after every store, they would take twice the time of the rest.
@njit(cache=True, nogil=True, error_model="numpy")
def report(
    kernels: Floats,
    counters: Ints,
    traces: Floats,
    values: Floats,
    table: int,
    horizon: int,
    i: int,
    t: int,
    utility: float,
    discomfort: float,
    power: float,
) -> None:
    start = counters[START, i]
    if start >= 0:
        reference = kernels[unsigned(counters[MATRIX, i]), unsigned(table + start * (horizon + 1) + t)]
    else:
        reference = traces[unsigned(1 + t), i]
    values[REWARD, i] = utility - discomfort
    values[UTILITY, i] = utility
    values[DISCOMFORT, i] = discomfort
    values[POWER, i] = power
    values[CURTAILMENT, i] = reference - power


@njit(cache=True, nogil=True, error_model="numpy")
def set_clock(common: Floats, clock: int, obs: Floats, i: int, n: int, t: int) -> None:
    base, at = unsigned(clock + 3 * t), unsigned(n)
    obs[i, at] = common[base]
    obs[i, at + unsigned(1)] = common[base + unsigned(1)]
    obs[i, at + unsigned(2)] = common[base + unsigned(2)]
