r"""Compiled draws of private matrices: for each row P[b] of the default a copy from Dir(k P[b]), as ratios to P.

Arrays lie on the nonzeros of the kernel (see `lsmdp.LogKernel`): ``p`` has shape
(Tk, nnz), where Tk is 1 for a default that does not change with time, and row `b`
owns the entries ``indptr[b]:indptr[b + 1]``. A block of samples is the last axis, so
that loops over samples run along memory.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env._compile import njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit(cache=True, nogil=True, error_model="numpy")
def gamma_constants(p: Floats, k: float) -> Floats:
    """Per entry (d, c, 1 / shape if the shape is below one, else 0) for `_gamma_parts`."""
    out = np.zeros((p.shape[0], p.shape[1], 3))  # computed once for all samples
    for t in range(p.shape[0]):
        for e in range(p.shape[1]):
            shape = k * p[t, e]
            if shape > 0.0:
                small = shape < 1.0
                d = (shape + 1.0 if small else shape) - 1.0 / 3.0
                out[t, e, 0] = d
                out[t, e, 1] = 1.0 / math.sqrt(9.0 * d)
                out[t, e, 2] = 1.0 / shape if small else 0.0
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def _gamma_parts(rng: np.random.Generator, d: float, c: float, inverse: float) -> tuple[float, float]:
    """Return (v, e) such that v * exp(-e) is Gamma distributed (Marsaglia and Tsang 2000).

    Below shape one the variate of the shape plus one is multiplied by
    U^(1/shape), which `e` keeps as a logarithm so that nothing underflows.
    """
    while True:
        x = rng.standard_normal()
        v = 1.0 + c * x
        if v <= 0.0:
            continue
        v = v * v * v
        u = rng.random()
        x2 = x * x
        if u < 1.0 - 0.0331 * x2 * x2 or (u > 0.0 and math.log(u) < 0.5 * x2 + d * (1.0 - v + math.log(v))):
            break
    return d * v, rng.standard_exponential() * inverse if inverse > 0.0 else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def draw_log_ratios(
    rng: np.random.Generator, indptr: Ints, p: Floats, constants: Floats, size: int, out: Floats
) -> None:
    """Fill out (Tk, nnz, block) with log(private / true), from the same draws as `draw_ratios`."""
    top, total = np.empty(size), np.empty(size)  # of a row, per sample: largest log-Gamma, sum of exp(log-Gamma - top)
    for t in range(p.shape[0]):
        for b in range(indptr.size - 1):
            start, stop = indptr[b], indptr[b + 1]
            certain = _is_certain(p[t], start, stop)
            top[:] = -np.inf
            for e in range(start, stop):
                if p[t, e] == 0.0:
                    out[t, e, :size] = -np.inf
                elif certain:
                    out[t, e, :size] = 0.0
                else:
                    # In the order of `draw_ratios`, so that the same generator gives the same draws.
                    for s in range(size):
                        value, boost = _gamma_parts(rng, constants[t, e, 0], constants[t, e, 1], constants[t, e, 2])
                        out[t, e, s] = math.log(value) - boost
                        top[s] = max(top[s], out[t, e, s])
            if certain:
                continue
            total[:] = 0.0
            for e in range(start, stop):
                for s in range(size):
                    total[s] += math.exp(out[t, e, s] - top[s])
            for e in range(start, stop):
                if p[t, e] > 0.0:
                    for s in range(size):
                        out[t, e, s] -= top[s] + math.log(total[s]) + math.log(p[t, e])


@njit(cache=True, nogil=True, error_model="numpy")
def draw_ratios(rng: np.random.Generator, indptr: Ints, p: Floats, constants: Floats, size: int, ratio: Floats) -> None:
    """Fill ratio (Tk, nnz, block) with private / true, entry after entry."""
    scale = np.empty(size)  # of a row, per sample: the sum of its Gammas, then one over it
    for t in range(p.shape[0]):
        for b in range(indptr.size - 1):
            start, stop = indptr[b], indptr[b + 1]
            certain = _is_certain(p[t], start, stop)
            scale[:] = 0.0
            for e in range(start, stop):
                if p[t, e] == 0.0 or certain:
                    ratio[t, e, :size] = 1.0 if p[t, e] > 0.0 else 0.0
                    continue
                d, c, inverse = constants[t, e, 0], constants[t, e, 1], constants[t, e, 2]
                for s in range(size):
                    x, boost = _gamma_parts(rng, d, c, inverse)
                    if boost > 0.0:
                        x *= math.exp(-boost)
                    ratio[t, e, s] = x  # a Gamma until the row's sum is known
                    scale[s] += x
            if certain:
                continue
            for s in range(size):
                scale[s] = 1.0 / scale[s]  # infinite if all underflowed, which _average_step notices
            for e in range(start, stop):
                if p[t, e] > 0.0:
                    inverse = 1.0 / p[t, e]
                    for s in range(size):
                        ratio[t, e, s] *= scale[s] * inverse


@njit(cache=True, nogil=True, error_model="numpy")
def _is_certain(p: Floats, start: int, stop: int) -> bool:
    """Tell whether a row has one possible successor: its private copy is itself then, and nothing is drawn."""
    possible = 0
    for e in range(start, stop):
        possible += p[e] > 0.0
    return possible == 1
