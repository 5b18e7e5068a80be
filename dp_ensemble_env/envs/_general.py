r"""One step of a model with nature, context or coupling, for every population and action mode.

A load in state `s` takes a decision by its row of the policy, :math:`\pi[s] \propto P_t[w, s]\,e^{\tau}`, and nature
takes the decision to the next state, :math:`N_t[w, a]`. With :math:`e = \exp(\tau)` and :math:`g = P e` the mean
field moves without any (n, m) policy:

.. math::

    q[a] = e[a] \sum_s \frac{\rho[s]}{g[s]} P[s,a], \qquad \rho' = q N, \qquad
    \sum_s \rho[s]\,\mathrm{KL}_s = \sum_a q[a]\tau[a] - \sum_s \rho[s]\log g[s] .

Layout, as far as it differs from `dynamics`. ``kernels[k]`` holds the behaviour on its nonzeros, one block for each
(time, context) that differs, then the optimal returns (c, n). ``counters`` goes on after `START` with the stream of the
episodes (`EPISODES`) and the contexts at times 0 … T (`PATH`). ``occupancy`` has 2n columns: the loads, then the
distribution that the same start would have reached by now had nobody interfered, in the same contexts. ``traces``
holds the optimal return alone, and ``values`` has one more row, the violation of the coupling.

**Chance.** Context and start of an episode come from the stream of the episodes, which the moves never touch: the j-th
episode after a seed has the same contexts and the same start state whatever is done, in every population and action
mode. Moves come from a stream of their own that is derived anew at each start.
"""
# ruff: noqa: D103 - the arguments are those of the description

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dp_ensemble_env.envs._numeric import STREAM, Bools, Floats, Ints, binomial, fast_exp, fast_log, uniform
from dp_ensemble_env.envs._parts import (
    BASE,
    CLOCK,
    CURTAILMENT,
    DISCOMFORT,
    INDICES,
    INDPTR,
    INITIAL,
    LOADS,
    MATRIX,
    MODE,
    NNZ,
    PENALTY,
    POLICY,
    POWER,
    POWERS,
    REWARD,
    SAFE_NATS,
    SCALE,
    SIZE,
    TILT,
    TIME,
    UTILITY,
    WIDEST,
    N,
    T,
    U,
    check_rows,
    pick,
    positive,
    tame,
    unsigned,
)
from dp_ensemble_env.tools.compile import njit

#: Further rows of ``counters``: the stream of the episodes (two words), then the contexts at times 0 … T.
EPISODES, PATH = 6, 8
#: Further row of ``values``.
VIOLATION = 5
VALUES = 6
#: Header of ``ints``, after what plain models have: decisions, contexts, features, blocks of behaviour.
M, C, FEATURES, BLOCKS = 21, 22, 23, 24
#: How many blocks further the next time and the next context lie, in the behaviour and in nature.
BLOCK_T, BLOCK_C, NATURE_T, NATURE_C = 25, 26, 27, 28
#: Nature's nonzeros (`NATURE_NNZ` = 0: a decision is the next state) and where its values begin in ``common``.
NATURE_NNZ, NATURE_PTR, NATURE_INDICES, NATURE = 29, 30, 31, 32
#: Cumulated moves of the context (and how far the next time's lie), cumulated start, initial shares.
MOVES, MOVES_T, FIRST, SHARES, SPREAD = 33, 34, 35, 36, 37
#: Coupling: 0 none, 1 a target, 2 a limit; where its levels and weights at times 0 … T begin.
COUPLED, LEVEL, WEIGHT = 38, 39, 40
HEADER = 41
TARGET = 1


@njit(cache=True, nogil=True, error_model="numpy")
def step_general(
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
    """Step every environment; the return value is that of `dynamics`."""
    if stop == 0:
        fault, stop = check_rows(ints, counters, action, 0, counters.shape[1]), counters.shape[1]
        if fault != 0:
            return fault
    n, m, horizon = ints[N], ints[M], ints[T]
    by_decision = np.empty((5, m))  # tilts, their exponentials, loads that decide so, the same uncontrolled, spare
    by_state = np.empty((2, n))  # where nature takes them, the same uncontrolled
    for i in range(start, stop):
        t = counters[TIME, i]
        if t == horizon:
            begin(ints, common, kernels, counters, traces, occupancy, obs, values, i, -1, -1, by_state[0])
            continue
        w = counters[PATH + t, i]
        base = (t * ints[BLOCK_T] + w * ints[BLOCK_C]) * ints[NNZ]
        _fill_tilt(ints, common, t, action, i, by_decision)
        safe = ints[MODE] != POLICY and common[ints[SCALE] + t] * common[WIDEST] <= SAFE_NATS
        if ints[LOADS] == 0 and safe:
            divergence = _decide_by_tilt(ints, kernels, counters[MATRIX, i], base, occupancy, i, by_decision)
        else:
            divergence = _decide_by_rows(ints, kernels, counters, base, occupancy, action, i, by_decision)
        by_nature(ints, common, counters, i, t, w, by_decision, by_state)
        _arrive(ints, common, counters, occupancy, i, t + 1, divergence, by_state, obs, values)
    return 0


# ------------------------------------------------------------------ decisions
@njit(cache=True, nogil=True, error_model="numpy")
def _fill_tilt(ints: Ints, common: Floats, t: int, action: Floats, i: int, by_decision: Floats) -> None:
    """Write the tilt of each decision in nats, and clear the counts; a policy has no tilt."""
    m, scale, tilt = ints[M], common[ints[SCALE] + t], by_decision[0]
    by_decision[2:4] = 0.0
    if ints[MODE] == TILT:
        for a in range(m):
            tilt[a] = min(max(float(action[i, a]), -1.0), 1.0) * scale
    elif ints[MODE] != POLICY:
        for a in range(m):
            tilt[a] = 0.0
        for j in range(ints[SIZE]):
            x, row = min(max(float(action[i, j]), -1.0), 1.0), ints[BASE] + j * m
            for a in range(m):
                tilt[a] += x * common[row + a]
        for a in range(m):
            tilt[a] *= scale


@njit(cache=True, nogil=True, error_model="numpy")
def _decide_by_tilt(
    ints: Ints, kernels: Floats, k: int, base: int, occupancy: Floats, i: int, by_decision: Floats
) -> float:
    """Send the mean field from states to decisions, controlled and uncontrolled in one pass; return the divergence."""
    n, m, indptr = ints[N], ints[M], ints[INDPTR]
    tilt, warm, chosen, idle = by_decision[0], by_decision[1], by_decision[2], by_decision[3]
    default, targets = kernels[k, base : base + ints[NNZ]], ints[ints[INDICES] : ints[INDICES] + ints[NNZ]]
    for a in range(m):
        warm[a] = fast_exp(tilt[a])
    divergence = 0.0
    for s in range(n):
        here, there = occupancy[i, s], occupancy[i, n + s]
        if here > 0.0 or there > 0.0:
            g, first, last = 0.0, ints[indptr + s], ints[indptr + s + 1]
            for e in range(first, last):
                g += default[unsigned(e)] * warm[unsigned(targets[unsigned(e)])]
            divergence -= here * fast_log(g)
            here /= g
            for e in range(first, last):
                a, p = unsigned(targets[unsigned(e)]), default[unsigned(e)]
                chosen[a] += p * here
                idle[a] += p * there
    for a in range(m):
        chosen[a] *= warm[a]
        divergence += chosen[a] * tilt[a]
    return positive(divergence)


@njit(cache=True, nogil=True, error_model="numpy")
def _decide_by_rows(
    ints: Ints,
    kernels: Floats,
    counters: Ints,
    base: int,
    occupancy: Floats,
    action: Floats,
    i: int,
    by_decision: Floats,
) -> float:
    """Do the same row by row: for policies, very wide tilts and finite populations, whose loads are counted."""
    n, indptr, indices, k = ints[N], ints[INDPTR], ints[INDICES], counters[MATRIX, i]
    default, targets = kernels[k, base : base + ints[NNZ]], ints[indices : indices + ints[NNZ]]
    chosen, idle, pi, spare = by_decision[2], by_decision[3], by_decision[1], by_decision[4]
    divergence = 0.0
    for s in range(n):
        here, there = occupancy[i, s], occupancy[i, n + s]
        first, last = ints[indptr + s], ints[indptr + s + 1]
        if there > 0.0:
            for e in range(first, last):
                idle[unsigned(targets[unsigned(e)])] += default[unsigned(e)] * there
        if here > 0.0:
            divergence += here * _row(ints, kernels, k, base, s, by_decision[0], action, i, pi, spare)
            if ints[LOADS] > 0:
                scatter(ints, counters, i, int(here), indices + first, last - first, pi, 0, spare, chosen)
            else:
                for e in range(first, last):
                    chosen[ints[indices + e]] += here * pi[e - first]
    return divergence / max(1.0, float(ints[LOADS]))


@njit(cache=True, nogil=True, error_model="numpy")
def _row(
    ints: Ints,
    kernels: Floats,
    k: int,
    base: int,
    s: int,
    tilt: Floats,
    action: Floats,
    i: int,
    pi: Floats,
    log_ratio: Floats,
) -> float:
    """Fill pi with row `s` of the policy on its nonzeros, log_ratio with log(pi / default); return the divergence."""
    first = ints[ints[INDPTR] + s]
    width, column, p0 = ints[ints[INDPTR] + s + 1] - first, ints[INDICES] + first, base + first
    total, divergence = 0.0, 0.0
    if ints[MODE] == POLICY:  # masked to the support and normalised; nothing at all is the default
        for e in range(width):
            x = float(action[i, s * ints[M] + ints[column + e]]) if kernels[k, p0 + e] > 0.0 else 0.0
            pi[e] = max(x, 0.0)
            total += pi[e]
        for e in range(width):
            p = kernels[k, p0 + e]
            pi[e] = pi[e] / total if total > 0.0 else p
            if total > 0.0 and pi[e] > 0.0:
                divergence += pi[e] * math.log(pi[e] / p)
        return positive(divergence)
    top = -np.inf
    for e in range(width):
        if kernels[k, p0 + e] > 0.0:  # zero: forbidden at this time or in this context only
            top = max(top, tilt[ints[column + e]])
    for e in range(width):
        log_ratio[e] = tame(tilt[ints[column + e]] - top)
        pi[e] = kernels[k, p0 + e] * fast_exp(log_ratio[e])
        total += pi[e]
    log_total = fast_log(total)
    for e in range(width):
        pi[e] /= total
        divergence += pi[e] * (log_ratio[e] - log_total)
    return positive(divergence)


# ------------------------------------------------------------------ chance
@njit(cache=True, nogil=True, error_model="numpy")
def scatter(
    ints: Ints,
    counters: Ints,
    i: int,
    here: int,
    column: int,
    width: int,
    weights: Floats,
    offset: int,
    cumulated: Floats,
    moved: Floats,
) -> None:
    """Send `here` loads to ``ints[column + e]`` by ``weights[offset + e]``: one by one, or by conditional binomials."""
    if here <= 8 * width:
        mass = 0.0
        for e in range(width):
            mass += weights[offset + e]
            cumulated[e] = mass
        for _ in range(here):
            moved[ints[column + pick(cumulated, 0, width, uniform(counters, i) * mass)]] += 1.0
        return
    last = width - 1
    while last > 0 and weights[offset + last] <= 0.0:
        last -= 1
    rest, left = 1.0, here
    for e in range(last):
        if left == 0:
            return
        gone = binomial(counters, i, left, min(1.0, weights[offset + e] / rest))
        moved[ints[column + e]] += gone
        left -= gone
        rest = max(rest - weights[offset + e], 1e-300)
    moved[ints[column + last]] += left


@njit(cache=True, nogil=True, error_model="numpy")
def by_nature(
    ints: Ints, common: Floats, counters: Ints, i: int, t: int, w: int, by_decision: Floats, by_state: Floats
) -> None:
    """Take decisions to next states: loads by chance, the mean field and the uncontrolled distribution by the mean."""
    chosen, idle, moved, rest = by_decision[2], by_decision[3], by_state[0], by_state[1]
    if ints[NATURE_NNZ] == 0:
        for s in range(ints[N]):
            moved[s] = chosen[s]
            rest[s] = idle[s]
        return
    pointers, column, count = ints[NATURE_PTR], ints[NATURE_INDICES], ints[NATURE_NNZ]
    base = ints[NATURE] + (t * ints[NATURE_T] + w * ints[NATURE_C]) * count
    nature, targets = common[base : base + count], ints[column : column + count]
    finite = ints[LOADS] > 0
    spare = np.empty(ints[N] if finite else 0)
    by_state[:] = 0.0
    for a in range(ints[M]):
        here, there = chosen[a], idle[a]
        first, last = ints[pointers + a], ints[pointers + a + 1]
        if finite and here > 0.0:
            scatter(ints, counters, i, int(here), column + first, last - first, nature, first, spare, moved)
            here = 0.0
        if here > 0.0 or there > 0.0:
            for e in range(first, last):
                s, p = unsigned(targets[unsigned(e)]), nature[unsigned(e)]
                moved[s] += p * here
                rest[s] += p * there


# ------------------------------------------------------------------ starts
@njit(cache=True, nogil=True, error_model="numpy")
def reset_general(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    traces: Floats,
    occupancy: Floats,
    mask: Bools,
    states: Ints,
    given: Floats,
    contexts: Ints,
    obs: Floats,
    values: Floats,
) -> None:
    """Start new episodes where `mask` says so.

    ``states[i]`` is a start state, -1 for a start as the model has it, or -2 for the
    distribution ``given[i]``; ``contexts[i]`` is the first context, or -1 to draw it.
    """
    shares = np.empty(ints[N])
    for i in range(mask.size):
        if mask[i]:
            if states[i] == -2:
                shares[:] = given[i]
            begin(ints, common, kernels, counters, traces, occupancy, obs, values, i, states[i], contexts[i], shares)


@njit(cache=True, nogil=True, error_model="numpy")
def begin(
    ints: Ints,
    common: Floats,
    kernels: Floats,
    counters: Ints,
    traces: Floats,
    occupancy: Floats,
    obs: Floats,
    values: Floats,
    i: int,
    state: int,
    context: int,
    shares: Floats,
) -> None:
    """Draw contexts and start, place the loads and report; `shares` is the given distribution (-2), else scratch."""
    n, loads = ints[N], ints[LOADS]
    counters[STREAM, i], counters[STREAM + 1, i] = counters[EPISODES, i], counters[EPISODES + 1, i]
    _draw_path(ints, common, counters, i, context)
    spot = uniform(counters, i)  # drawn in any case, so that the stream does not depend on how a start is chosen
    counters[EPISODES, i], counters[EPISODES + 1, i] = counters[STREAM, i], counters[STREAM + 1, i]
    counters[STREAM, i] = _mixed(counters[EPISODES, i])
    counters[STREAM + 1, i] = _mixed(counters[EPISODES + 1, i] ^ counters[STREAM, i])
    if counters[STREAM, i] == 0 and counters[STREAM + 1, i] == 0:
        counters[STREAM, i] = 1
    if state == -1 and ints[SPREAD] == 0:
        state = pick(common, ints[INITIAL], ints[INITIAL] + n, spot) - ints[INITIAL]
    if state >= 0:
        shares[:] = 0.0
        shares[state] = 1.0
    elif state == -1:
        for s in range(n):
            shares[s] = common[ints[SHARES] + s]
    if loads > 0:
        _place(counters, i, loads, shares)
    k, optimum = counters[MATRIX, i], ints[BLOCKS] * ints[NNZ] + counters[PATH, i] * n
    power, best = 0.0, 0.0
    for s in range(n):
        occupancy[i, s] = np.rint(shares[s] * loads) if loads > 0 else shares[s]
        occupancy[i, n + s] = shares[s]
        obs[i, s] = shares[s]
        power += shares[s] * common[ints[POWERS] + s]
        best += shares[s] * kernels[k, optimum + s]
    traces[0, i] = best
    counters[TIME, i] = 0
    _observe_clock(ints, common, counters, obs, i, 0)
    values[:, i] = 0.0
    values[POWER, i] = power


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_path(ints: Ints, common: Floats, counters: Ints, i: int, context: int) -> None:
    """Draw the contexts at times 0 … T; a chosen first context does not change the numbers that are drawn."""
    c, horizon, first = ints[C], ints[T], ints[FIRST]
    if c == 1:
        for t in range(horizon + 1):
            counters[PATH + t, i] = 0
        return
    w = pick(common, first, first + c, uniform(counters, i)) - first
    w = context if context >= 0 else w
    counters[PATH, i] = w
    for t in range(horizon):
        row = ints[MOVES] + t * ints[MOVES_T] + w * c
        w = pick(common, row, row + c, uniform(counters, i)) - row
        counters[PATH + t + 1, i] = w


@njit(cache=True, nogil=True, error_model="numpy")
def _place(counters: Ints, i: int, loads: int, shares: Floats) -> None:
    """Draw the state of each load from `shares`, and turn them into the shares that came up."""
    rest, left = 1.0, loads
    for s in range(shares.size):
        p = shares[s]
        gone = left if rest - p <= 1e-15 or s == shares.size - 1 else binomial(counters, i, left, min(1.0, p / rest))
        shares[s] = gone / loads
        left -= gone
        rest = max(rest - p, 1e-300)


@njit(inline="always", error_model="numpy")
def _mixed(word: Any) -> Any:
    """Scramble a word (the finaliser of splitmix64), so that the new stream has nothing in common with the old."""
    z = np.uint64(word) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(z ^ (z >> np.uint64(31)))


# ------------------------------------------------------------------ reports
@njit(cache=True, nogil=True, error_model="numpy")
def _arrive(
    ints: Ints,
    common: Floats,
    counters: Ints,
    occupancy: Floats,
    i: int,
    t: int,
    divergence: float,
    by_state: Floats,
    obs: Floats,
    values: Floats,
) -> None:
    """Store where everyone is at time `t` and report."""
    n, loads = ints[N], max(1.0, float(ints[LOADS]))
    moved, rest, powers = by_state[0], by_state[1], ints[POWERS]
    worth = ints[U] + (t * ints[C] + counters[PATH + t, i]) * n
    utility, power, reference = 0.0, 0.0, 0.0
    for s in range(n):
        share, level = moved[s] / loads, common[powers + s]
        occupancy[i, s] = moved[s]
        occupancy[i, n + s] = rest[s]
        obs[i, s] = share
        utility += share * common[worth + s]
        power += share * level
        reference += rest[s] * level
    counters[TIME, i] = t
    _observe_clock(ints, common, counters, obs, i, t)
    violation = 0.0
    if ints[COUPLED] != 0 and common[ints[WEIGHT] + t] > 0.0:
        miss = power - common[ints[LEVEL] + t]
        violation = abs(miss) if ints[COUPLED] == TARGET else max(miss, 0.0)
        if violation > 0.0:
            utility -= common[ints[WEIGHT] + t] * (violation * violation if ints[COUPLED] == TARGET else violation)
    cost = common[PENALTY] * divergence
    values[REWARD, i] = utility - cost
    values[UTILITY, i] = utility
    values[DISCOMFORT, i] = cost
    values[POWER, i] = power
    values[CURTAILMENT, i] = reference - power
    values[VIOLATION, i] = violation


@njit(cache=True, nogil=True, error_model="numpy")
def _observe_clock(ints: Ints, common: Floats, counters: Ints, obs: Floats, i: int, t: int) -> None:
    """Write time left, expected prices and the features of the context."""
    n, width = ints[N], 3 + ints[FEATURES]
    row = ints[CLOCK] + (t * ints[C] + counters[PATH + t, i]) * width
    for j in range(width):
        obs[i, n + j] = common[row + j]
