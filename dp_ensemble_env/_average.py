r"""Compiled loops behind the average-value policies.

Sampled average. Let :math:`w_t = \tilde z_t / z_t` be a sample's desirability
in units of the unperturbed one. Then

.. math:: w_t[b] = \sum_a \frac{\tilde P[b,a]}{P[b,a]}\;\pi_t[b,a]\;w_{t+1}[a]

and the terms of the sum, divided by it, are the sample's policy: no exponential
and no logarithm per sample. Samples go through in blocks, so memory does not
grow with their number. Should a product underflow, which takes a spread of
hundreds of nats, the same draws are repeated and solved in logarithms.

Exact average. With :math:`\Pi(s) = \prod_\nu(1+sz[\nu])^{-kP[\nu]}` the integrands
of `average_policy` add up to :math:`-d\Pi/ds`. Hence integrating up to `s` leaves
exactly :math:`\Pi(s)` undistributed, which gives both limits of integration,
and, once :math:`s z \gg 1` for every entry, the remainder is shared in
proportion to :math:`P`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dp_ensemble_env._recursion import backward
from dp_ensemble_env.lsmdp import LogKernel, Solution

FloatArray = NDArray[np.float64]

#: Samples that share a pass: enough for the vector units, few enough for the cache.
_BLOCK = 128


def average_sampled(
    kernel: LogKernel,
    solution: Solution,
    k: float,
    samples: int,
    rng: np.random.Generator,
    scaled: FloatArray,
) -> FloatArray:
    """Average the policies of `samples` private matrices, on the nonzeros, shape (T, nnz).

    Parameters
    ----------
    kernel : LogKernel
        The default matrix; a time-varying one is drawn afresh at every time.
    solution : Solution
        Its standard solution.
    scaled : ndarray of shape (T + 1, n)
        Utility divided by the penalty.
    """
    p = np.exp(kernel.log_values[0])
    before = rng.bit_generator.state
    total = np.zeros_like(solution.policy_values)
    good = _average_linear(rng, kernel.indptr, kernel.indices, p, solution.policy_values, k, samples, total)
    if not good:
        rng.bit_generator.state = before
        total[:] = 0.0
        _average_logs(rng, kernel.indptr, kernel.indices, p, scaled[None], k, samples, total)
    return total / samples


def sampled_costs(
    kernel: LogKernel,
    k: float,
    samples: int,
    rng: np.random.Generator,
    scaled: FloatArray,
    log_desirability: FloatArray,
    policy_values: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the samples' sums of cost and of cost squared in nats, exact and as in the paper, each (2, T, n)."""
    horizon, n = len(policy_values), kernel.n_states
    sums = np.zeros((2, horizon, n))
    squares = np.zeros((2, horizon, n))
    p = np.exp(kernel.log_values[0])
    _sample_costs(
        rng, kernel.indptr, kernel.indices, p, scaled[None], k, samples, log_desirability, policy_values, sums, squares
    )
    return sums, squares


def average_exact(kernel: LogKernel, log_desirability: FloatArray, k: float) -> FloatArray:
    """E[policy] by quadrature on the nonzeros, shape (T, nnz), holding z fixed."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    log_p = kernel.log_values[0]
    out = np.zeros((len(log_desirability) - 1, len(kernel.indices)))
    _average_integral(kernel.indptr, kernel.indices, log_p, log_desirability, k, nodes, weights, out)
    return out


# ------------------------------------------------------------------ draws
@njit(cache=True, nogil=True, error_model="numpy")
def _gamma_constants(p, k):  # pragma: no cover - compiled
    """Per entry (d, c, 1 / shape if the shape is below one, else 0) for `_gamma_parts`."""
    out = np.zeros((p.shape[0], p.shape[1], 3))
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
def _gamma_parts(rng, d, c, inverse):  # pragma: no cover - compiled
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
def _draw_log_ratios(rng, indptr, p, constants, size, out):  # pragma: no cover - compiled
    """Fill out (Tk, nnz, block) with log(private / true), from the same draws as `_draw_ratios`."""
    top, total = np.empty(size), np.empty(size)
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
def _draw_ratios(rng, indptr, p, constants, size, ratio):  # pragma: no cover - compiled
    """Fill ratio (Tk, nnz, block) with private / true, entry after entry."""
    scale = np.empty(size)
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
                    ratio[t, e, s] = x
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
def _is_certain(p, start, stop):  # pragma: no cover - compiled
    """Tell whether a row has one possible successor: its private copy is itself then, and nothing is drawn."""
    possible = 0
    for e in range(start, stop):
        possible += p[e] > 0.0
    return possible == 1


# ------------------------------------------------------------------ sampled average
@njit(cache=True, nogil=True, error_model="numpy")
def _average_linear(rng, indptr, indices, p, policy, k, samples, total):  # pragma: no cover - compiled
    """Add up the samples' policies in `total` (T, nnz); False as soon as a product underflows."""
    times, nnz = p.shape
    n = indptr.size - 1
    widest = 0
    for b in range(n):
        widest = max(widest, indptr[b + 1] - indptr[b])
    constants = _gamma_constants(p, k)
    ratio = np.ones((times, nnz, _BLOCK))
    counted = np.ones(_BLOCK)
    ahead = np.empty((n, _BLOCK))
    now = np.empty((n, _BLOCK))
    terms = np.empty((widest, _BLOCK))
    done = 0
    while done < samples:
        size = min(_BLOCK, samples - done)
        _draw_ratios(rng, indptr, p, constants, size, ratio)
        ahead[:] = 1.0
        counted[size:] = 0.0
        for t in range(policy.shape[0] - 1, -1, -1):
            layer = ratio[t if times > 1 else 0]
            if not _average_step(indptr, indices, policy[t], layer, counted, ahead, now, terms, total[t]):
                return False
            ahead, now = now, ahead
        done += size
    return True


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp"})
def _average_step(indptr, indices, policy, ratio, counted, ahead, now, terms, total):  # pragma: no cover - compiled
    """One time step of a block: fill `now` from `ahead`, add the counted samples' policies to `total`.

    The inner loops run over the whole block, whose length the compiler knows.
    """
    gain, inverse = np.empty(_BLOCK), np.empty(_BLOCK)
    lost = False
    for b in range(indptr.size - 1):
        start, stop = indptr[b], indptr[b + 1]
        gain[:] = 0.0
        for e in range(start, stop):
            weight, a, i = policy[e], indices[e], e - start
            for s in range(_BLOCK):
                x = weight * ratio[e, s] * ahead[a, s]
                terms[i, s] = x
                gain[s] += x
        for s in range(_BLOCK):
            now[b, s] = gain[s]
            inverse[s] = 1.0 / gain[s]
            lost |= not (inverse[s] < 1e280)
            inverse[s] *= counted[s]
        for e in range(start, stop):
            i = e - start
            x = 0.0
            for s in range(_BLOCK):
                x += terms[i, s] * inverse[s]
            total[e] += x
    _rescale(now, inverse)
    return not lost


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp"})
def _rescale(now, top):  # pragma: no cover - compiled
    """Divide each sample's desirabilities by their largest: only their ratios matter."""
    n = now.shape[0]
    top[:] = 0.0
    for b in range(n):
        for s in range(_BLOCK):
            top[s] = max(top[s], now[b, s])
    for s in range(_BLOCK):
        top[s] = 1.0 / top[s]
    for b in range(n):
        for s in range(_BLOCK):
            now[b, s] *= top[s]


@njit(cache=True, nogil=True, error_model="numpy")
def _average_logs(rng, indptr, indices, p, scaled, k, samples, total):  # pragma: no cover - compiled
    """Sum the samples' policies, each solved by the log-domain recursion."""
    horizon, nnz = total.shape
    ratio = np.empty((p.shape[0], nnz, _BLOCK))
    logs = np.empty((1, p.shape[0], nnz))
    log_p = np.log(p)
    log_z = np.empty((1, horizon + 1, indptr.size - 1))
    policy = np.empty((1, horizon, nnz))
    constants = _gamma_constants(p, k)
    one = np.ones(1)
    done = 0
    while done < samples:
        size = min(_BLOCK, samples - done)
        _draw_log_ratios(rng, indptr, p, constants, size, ratio)
        for s in range(size):
            logs[0] = log_p + ratio[:, :, s]
            backward(indptr, indices, logs, scaled, one, log_z, policy)
            total += policy[0]
        done += size


@njit(cache=True, nogil=True, error_model="numpy")
def _sample_costs(
    rng, indptr, indices, p, scaled, k, samples, log_z_true, policy_true, sums, squares
):  # pragma: no cover - compiled
    """Cost of deploying each sample's optimal policy on the true dynamics, in nats.

    sums[0]: exact, by the performance-difference identity, the expected sum of KL(sampled || optimal).
    sums[1]: as in the paper, true cost of one step and then the sample's own cost-to-go.
    """
    horizon, nnz = policy_true.shape
    n = indptr.size - 1
    ratio = np.empty((p.shape[0], nnz, 1))
    logs = np.empty((1, p.shape[0], nnz))
    log_p = np.log(p)
    log_z = np.empty((1, horizon + 1, n))
    policy = np.empty((1, horizon, nnz))
    constants = _gamma_constants(p, k)
    later = np.empty(n)
    cost = np.empty(n)
    one = np.ones(1)
    for _ in range(samples):
        _draw_log_ratios(rng, indptr, p, constants, 1, ratio)
        logs[0] = log_p + ratio[:, :, 0]
        backward(indptr, indices, logs, scaled, one, log_z, policy)
        later[:] = 0.0
        for t in range(horizon - 1, -1, -1):
            layer = ratio[t if p.shape[0] > 1 else 0, :, 0]
            for b in range(n):
                divergence, follow, drift = 0.0, 0.0, 0.0
                excess = log_z[0, t, b] - log_z_true[t, b]  # log w_t[b]
                for e in range(indptr[b], indptr[b + 1]):
                    q = policy[0, t, e]
                    if q > 0.0:
                        a = indices[e]
                        # log(policy/optimal) = log(private/true) + log w_{t+1}[a] - log w_t[b]
                        divergence += q * (layer[e] + (log_z[0, t + 1, a] - log_z_true[t + 1, a]) - excess)
                        drift += q * layer[e]
                        follow += q * later[a]
                cost[b] = max(divergence, 0.0) + follow
                sums[0, t, b] += cost[b]
                squares[0, t, b] += cost[b] * cost[b]
                sums[1, t, b] += drift - excess
                squares[1, t, b] += (drift - excess) ** 2
            later[:] = cost


# ------------------------------------------------------------------ exact average
@njit(cache=True, nogil=True, error_model="numpy")
def _softplus(x):  # pragma: no cover - compiled
    """log(1 + e^x)."""
    return x + math.log1p(math.exp(-x)) if x > 0.0 else math.log1p(math.exp(x))


@njit(cache=True, nogil=True, error_model="numpy")
def _average_integral(indptr, indices, log_p, log_z, k, nodes, weights, out):  # pragma: no cover - compiled
    """Gauss-Legendre panels in u = log s, from where nothing is distributed to where all is."""
    n = indptr.size - 1
    log_k = math.log(k)
    for t in range(out.shape[0]):
        row = log_p[t if log_p.shape[0] > 1 else 0]
        for b in range(n):
            start, stop = indptr[b], indptr[b + 1]
            top, bottom = -np.inf, np.inf
            for e in range(start, stop):
                if row[e] > -np.inf:
                    top = max(top, log_z[t + 1, indices[e]])
                    bottom = min(bottom, log_z[t + 1, indices[e]])
            mean = 0.0
            for e in range(start, stop):
                mean += math.exp(row[e] + log_z[t + 1, indices[e]] - top)
            left = -log_k - math.log(mean) - 38.0  # 1 - Pi(s) < e^-38 below
            end = top - bottom + 38.0  # every s z > e^38 above
            panels = max(1, int(math.ceil((end - left) / 1.5)))
            width = (end - left) / panels
            remaining = 1.0
            for panel in range(panels):
                for q in range(nodes.size):
                    u = left + width * (panel + 0.5 * (nodes[q] + 1.0))
                    log_product = 0.0
                    for e in range(start, stop):
                        if row[e] > -np.inf:
                            log_product += k * math.exp(row[e]) * _softplus(u + log_z[t + 1, indices[e]] - top)
                    for e in range(start, stop):
                        if row[e] > -np.inf:
                            x = u + log_z[t + 1, indices[e]] - top
                            value = math.exp(log_k + row[e] + x - _softplus(x) - log_product)
                            out[t, e] += 0.5 * width * weights[q] * value
                edge = left + width * (panel + 1)
                log_product = 0.0
                for e in range(start, stop):
                    if row[e] > -np.inf:
                        log_product += k * math.exp(row[e]) * _softplus(edge + log_z[t + 1, indices[e]] - top)
                remaining = math.exp(-log_product)
                if remaining < 1e-18:
                    break
            for e in range(start, stop):  # the tail, shared in proportion to P
                out[t, e] += remaining * math.exp(row[e])
