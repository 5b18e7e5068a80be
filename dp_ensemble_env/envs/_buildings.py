"""Finitely many loads in each environment. The arrays are described in `dynamics`."""
# ruff: noqa: D103 - the arguments are those of the description

from __future__ import annotations

import numpy as np

from dp_ensemble_env.envs._numeric import Floats, Ints, fast_exp
from dp_ensemble_env.envs._parts import (
    CLOCK,
    LOADS,
    MATRIX,
    MODE,
    NNZ,
    PENALTY,
    POLICY,
    POWERS,
    SAFE_NATS,
    SCALE,
    TIME,
    TIMES,
    WIDEST,
    N,
    T,
    U,
    check_rows,
    fill_tilt,
    policy_row,
    report,
    restart,
    scatter,
    set_clock,
    shared_row,
)
from dp_ensemble_env.tools.compile import njit


@njit(cache=True, nogil=True, error_model="numpy")
def step_buildings(
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
    """Many loads in each environment: a multinomial move of the loads in each state."""
    if stop == 0:
        fault, stop = check_rows(ints, counters, action, 0, counters.shape[1]), counters.shape[1]
        if fault != 0:
            return fault
    n, horizon, loads = ints[N], ints[T], float(ints[LOADS])
    scratch = np.empty((5, n))
    tilt, warm, pi, moved, spare = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    ended = np.empty(1, np.int64)
    for i in range(start, stop):
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
