r"""One step of the ensemble, for every population, action mode and batch size.

All environments, single or vector, call the three ``step_*`` functions below on
arrays with one row (or column) per environment; nothing else computes a step.

A policy row is :math:`\pi[b] \propto P[b]\,e^{\tau}` with the tilt :math:`\tau`, or
the normalised action row itself. With :math:`e = \exp(\tau)`, :math:`g = P e` the
mean field moves without any (n, n) policy:

.. math::

    \rho'[a] = e[a] \sum_b \frac{\rho[b]}{g[b]} P[b,a], \qquad
    \sum_b \rho[b]\,\mathrm{KL}_b = \sum_a \rho'[a]\tau[a] - \sum_b \rho[b]\log g[b] .

The tilt is at most the scale :math:`s_t` times what the basis reaches (`WIDEST`, one in
price and tilt mode). Beyond `SAFE_NATS` its exponentials would
leave the range of doubles, and each row is then shifted by its own maximum
(log-sum-exp).

Layout. ``ints`` and ``common`` hold the problem and ``kernels[m]`` the m-th matrix
with what follows from it, packed flat because each array costs the caller a
tenth of a microsecond (see `tables.pack`). ``counters`` has the rows `TIME`,
`MATRIX`, `STATE` (one load), two words of random stream and `START`, the state in
which all loads began, or -1; ``traces`` holds the optimal return of the episode
and, where they began in several states, the uncontrolled power at times 0 … T;
``occupancy`` counts
loads in a finite population and is a distribution in the mean field. A step
reads ``action`` and fills ``obs`` and ``values`` (reward, utility, discomfort,
power, curtailment). It returns 0, or, having changed nothing, ``1 + index`` of
the first inadmissible entry of the action, or ``-1 - i`` if environment `i` has
to be reset.
"""
# ruff: noqa: D103 - the arguments are those of the module's description

from __future__ import annotations

import numpy as np
from numba import njit

from dp_ensemble_env.envs._numeric import fast_exp, fast_log, uniform
from dp_ensemble_env.envs._parts import (
    BASE,
    BASIS,
    CLOCK,
    COLPTR,
    COLUMNS,
    CURTAILMENT,
    DISCOMFORT,
    INDICES,
    INDPTR,
    LANES,
    LOADS,
    MATRIX,
    MODE,
    NARROW_LANES,
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
    STATE,
    TIME,
    TIMES,
    UTILITY,
    WIDEST,
    WIDTH,
    N,
    T,
    U,
    check_batch,
    fill_tilt,
    policy_row,
    positive,
    report,
    restart,
    scatter,
    set_clock,
    shared_row,
    unsigned,
)


@njit(cache=True, nogil=True, error_model="numpy")
def step_single(ints, common, kernels, counters, traces, occupancy, action, obs, values):  # pragma: no cover
    """One load in each environment: a categorical move from the present state."""
    fault = check_batch(ints, counters, action)
    if fault != 0:
        return fault
    n, horizon, count = ints[N], ints[T], counters.shape[1]
    width = ints[WIDTH] if ints[WIDTH] > 0 else n
    lanes = min(NARROW_LANES, count)
    tilt, weight = np.empty((width, lanes)), np.empty((width, lanes))
    sums = np.empty((3, lanes))
    marks = np.empty((3, lanes), np.int64)
    divergence, spot, rows, chosen, ended = sums[0], sums[2], marks[0], marks[1], marks[2]
    flat = obs.reshape(-1)
    begin = 0
    while begin < count:
        first, size, over = begin, 0, 0
        while begin < count and size < lanes and over < lanes:
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
def _load_rows(ints, common, kernels, counters, action, rows, size, tilt, weight):  # pragma: no cover - compiled
    """Bring the present row of each environment into a column: tilts and probabilities, zeros after its end."""
    # Copied to locals: the compiler cannot know that the stores below leave the tables alone.
    n, width, columns, scales, base, numbers = ints[N], ints[WIDTH], ints[COLUMNS], ints[SCALE], ints[BASE], ints[SIZE]
    per_time = n * width if ints[TIMES] > 1 else 0
    padded = ints[TIMES] * ints[NNZ] + n * (ints[T] + 2)
    by_basis = ints[MODE] == BASIS
    for c in range(size):
        i, lane = unsigned(rows[c]), unsigned(c)
        t, b, m = counters[TIME, i], counters[STATE, i], unsigned(counters[MATRIX, i])
        scale = common[unsigned(scales + t)]
        row, column = unsigned(padded + t * per_time + b * width), unsigned(columns + b * width)
        if by_basis:
            for e in range(width):
                entry = unsigned(e)
                weight[entry, lane] = kernels[m, row + entry]
                tilt[entry, lane] = 0.0
            for j in range(numbers):
                price, line = float(action[i, unsigned(j)]) * scale, base + j * n
                for e in range(width):
                    entry = unsigned(e)
                    tilt[entry, lane] += price * common[unsigned(line + ints[column + entry])]
        else:
            for e in range(width):
                entry = unsigned(e)
                weight[entry, lane] = kernels[m, row + entry]
                tilt[entry, lane] = action[i, unsigned(ints[column + entry])] * scale


@njit(cache=True, nogil=True, error_model="numpy")
def _load_by_row(ints, common, kernels, counters, action, i, lane, tilt, weight):  # pragma: no cover - compiled
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
def _choose(width, size, tilt, weight, sums, chosen):  # pragma: no cover - compiled
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
    ints, common, kernels, counters, traces, rows, size, chosen, divergence, obs, values
):  # pragma: no cover - compiled
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


@njit(cache=True, nogil=True, error_model="numpy")
def step_buildings(ints, common, kernels, counters, traces, occupancy, action, obs, values):  # pragma: no cover
    """Many loads in each environment: a multinomial move of the loads in each state."""
    fault = check_batch(ints, counters, action)
    if fault != 0:
        return fault
    n, horizon, loads = ints[N], ints[T], float(ints[LOADS])
    scratch = np.empty((5, n))
    tilt, warm, pi, moved, spare = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    ended = np.empty(1, np.int64)
    for i in range(counters.shape[1]):
        t = counters[TIME, i]
        if t == horizon:
            ended[0] = i
            restart(ints, common, kernels, counters, traces, occupancy, obs, values, ended, 1)
            continue
        m = counters[MATRIX, i]
        shared = ints[MODE] != POLICY and common[ints[SCALE] + t] * common[WIDEST] <= SAFE_NATS
        if shared:
            fill_tilt(ints, common, t, action, i, tilt)
            for a in range(n):
                warm[a] = fast_exp(tilt[a])
        for a in range(n):
            moved[a] = 0.0
        divergence = 0.0
        for b in range(n):
            here = occupancy[i, b]
            if here > 0.0:
                if shared:
                    kl = shared_row(ints, kernels, t, m, b, tilt, warm, pi)
                else:
                    kl = policy_row(ints, common, kernels, t, m, b, action, i, pi, spare)
                divergence += here * kl
                scatter(ints, counters, i, b, int(here), pi, spare, moved)
        utility, power = 0.0, 0.0
        for a in range(n):
            occupancy[i, a] = moved[a]
            share = moved[a] / loads
            obs[i, a] = share
            utility += share * common[ints[U] + (t + 1) * n + a]
            power += share * common[ints[POWERS] + a]
        counters[TIME, i] = t + 1
        set_clock(common, ints[CLOCK], obs, i, n, t + 1)
        cost = common[PENALTY] * divergence / loads
        report(kernels, counters, traces, values, ints[TIMES] * ints[NNZ], ints[T], i, t + 1, utility, cost, power)
    return 0


@njit(cache=True, nogil=True, error_model="numpy")
def step_mean_field(ints, common, kernels, counters, traces, occupancy, action, obs, values):  # pragma: no cover
    """Infinitely many loads: the distribution itself moves."""
    fault = check_batch(ints, counters, action)
    if fault != 0:
        return fault
    n, horizon, count = ints[N], ints[T], counters.shape[1]
    lanes = min(LANES, count)
    scratch = np.empty((4, n, lanes))
    sums = np.empty((3, lanes))
    # Environments at the same time and with the same matrix advance side by side.
    order = _by_time(counters, horizon)
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
def _by_time(counters, horizon):  # pragma: no cover - compiled
    """Order the environments by time, keeping their order among equals (counting sort)."""
    count = counters.shape[1]
    order = np.empty(count, np.int64)
    together = True
    for i in range(count):
        order[i] = i
        together &= counters[TIME, i] == counters[TIME, 0]
    if together:  # the rule, since all episodes have the same length
        return order
    place = np.zeros(horizon + 2, np.int64)
    for i in range(count):
        place[counters[TIME, i] + 1] += 1
    for t in range(horizon + 1):
        place[t + 1] += place[t]
    for i in range(count):
        order[place[counters[TIME, i]]] = i
        place[counters[TIME, i]] += 1
    return order


@njit(inline="always", error_model="numpy")
def _alike(counters, i, t, m):  # pragma: no cover - compiled
    return counters[TIME, i] == t and counters[MATRIX, i] == m


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def _move_by_tilt(ints, common, kernels, t, m, occupancy, action, rows, scratch, sums):  # pragma: no cover
    """Fill scratch[1] with the next distributions and sums[0] with the divergences; one column per environment."""
    n, size = ints[N], rows.size
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
def _combine(ints, kernels, m, base, first, last, places, names, source, target, row, size):  # pragma: no cover
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
def _move_one(ints, common, kernels, t, m, occupancy, action, i, scratch, sums):  # pragma: no cover - compiled
    """Do the same, operation by operation, for one environment: short loops over states instead of environments."""
    n = ints[N]
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
def _move_by_rows(ints, common, kernels, t, m, occupancy, action, rows, scratch, sums):  # pragma: no cover
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
def _arrive(ints, common, kernels, counters, traces, occupancy, rows, t, after, sums, obs, values):  # pragma: no cover
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


STEPS = {"single": step_single, "buildings": step_buildings, "mean-field": step_mean_field}
