r"""Averages of policies over private matrices, sampled and exact, and what sampled policies cost.

**Sampled.** Let :math:`w_t = \tilde z_t / z_t` be a sample's desirability in units of the unperturbed one. Then

.. math:: w_t[b] = \sum_a \frac{\tilde P[b,a]}{P[b,a]}\;\pi_t[b,a]\;w_{t+1}[a]

and the terms of the sum, divided by it, are the sample's policy: no exponential and no logarithm per sample. Samples go
through in blocks, so memory does not grow with their number. Should a product underflow, which takes a spread of
hundreds of nats, the same draws are repeated and solved in logarithms.

**Exact**, one integral a row. With :math:`\Pi(s) = \prod_\nu(1+sz[\nu])^{-kP[\nu]}` the integrands of `average_policy`
add up to :math:`-d\Pi/ds`. Hence integrating up to `s` leaves exactly :math:`\Pi(s)` undistributed, which gives both
limits of integration, and, once :math:`s z \gg 1` for every entry, the remainder is shared in proportion to :math:`P`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from dp_ensemble_env.control.kernel import LogKernel, Solution
from dp_ensemble_env.control.loops import Floats, Ints, backward
from dp_ensemble_env.tools.compile import njit

#: Samples that share a pass: enough for the vector units, few enough for the cache.
_BLOCK = 128


def average_sampled(
    kernel: LogKernel, solution: Solution, k: float, samples: int, rng: Generator, scaled: Floats
) -> Floats:
    """Average the policies of `samples` private matrices, on the nonzeros, shape (T, nnz).

    `kernel` is the default matrix (one that changes with time is drawn afresh at every time), `solution` its standard
    solution, and `scaled`, (T + 1, n), the utility divided by the penalty.
    """
    p = np.exp(kernel.log_values[0])
    before = rng.bit_generator.state
    total = np.zeros_like(solution.policy_values)
    if not _average_linear(rng, kernel.indptr, kernel.indices, p, solution.policy_values, k, samples, total):
        rng.bit_generator.state = before
        total[:] = 0.0
        average_logs(rng, kernel.indptr, kernel.indices, p, scaled, k, samples, total)
    return total / samples


def draw_kernel(kernel: LogKernel, k: float, rng: Generator) -> LogKernel:
    """Draw every row of a kernel from its Dirichlet distribution, in logarithms: each context and time afresh."""
    shape = k * kernel.linear
    with np.errstate(divide="ignore"):
        # log of a Gamma(a) draw as that of Gamma(a + 1) plus log(uniform) / a, which cannot underflow.
        logs = np.log(rng.standard_gamma(shape + 1.0)) + np.log(rng.random(shape.shape)) / shape
    logs = np.where(shape > 0, logs, -np.inf)
    top = np.maximum.reduceat(logs, kernel.indptr[:-1], axis=-1)
    sizes = np.diff(kernel.indptr)
    total = np.add.reduceat(np.exp(logs - np.repeat(top, sizes, axis=-1)), kernel.indptr[:-1], axis=-1)
    drawn = logs - np.repeat(top + np.log(total), sizes, axis=-1)
    return LogKernel(kernel.indptr, kernel.indices, drawn, kernel.columns)


def sampled_costs(
    kernel: LogKernel, k: float, samples: int, rng: Generator, scaled: Floats, log_z: Floats, policy: Floats
) -> tuple[Floats, Floats]:
    """Return the samples' sums of cost and of cost squared in nats, exact and as in the paper, each (2, T, n)."""
    sums, squares = np.zeros((2, 2, len(policy), kernel.n_states))
    rows, p = (kernel.indptr, kernel.indices), np.exp(kernel.log_values[0])
    _sample_costs(rng, *rows, p, scaled, k, samples, log_z, policy, sums, squares)
    return sums, squares


def average_exact(kernel: LogKernel, tilt: Floats, k: float, contexts: bool = False) -> Floats:
    """E[policy] by quadrature on the nonzeros, shape ([c,] T, nnz), holding the tilt (T, [c,] m), log z, fixed."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    layers = np.swapaxes(tilt, 0, 1) if contexts else tilt[None]
    out = np.zeros((*layers.shape[:2], len(kernel.indices)))
    for w, layer in enumerate(layers):
        log_p = kernel.log_values[w if len(kernel.log_values) > 1 else 0]
        _average_integral(kernel.indptr, kernel.indices, log_p, np.ascontiguousarray(layer), k, nodes, weights, out[w])
    return out if contexts else out[0]


# ------------------------------------------------------------------ compiled: samples
@njit(cache=True, nogil=True, error_model="numpy")
def _average_linear(
    rng: Generator, indptr: Ints, indices: Ints, p: Floats, policy: Floats, k: float, samples: int, total: Floats
) -> bool:
    """Add up the samples' policies in `total` (T, nnz); False as soon as a product underflows."""
    times, nnz = p.shape
    n, constants = indptr.size - 1, gamma_constants(p, k)
    ratio = np.ones((times, nnz, _BLOCK))  # private / true; beyond a partial block what was there before, finite
    used = np.ones(_BLOCK)  # one for a sample, zero for the rest of the last block
    # w_{t+1} of the module's docstring, and w_t, per sample, up to a factor
    ahead, now = np.empty((n, _BLOCK)), np.empty((n, _BLOCK))
    done = 0
    while done < samples:
        size = min(_BLOCK, samples - done)
        draw_ratios(rng, indptr, p, constants, size, ratio)
        ahead[:] = 1.0  # z_T is the utility's alone: no noise, w_T = 1
        used[size:] = 0.0
        for t in range(policy.shape[0] - 1, -1, -1):
            layer = ratio[t if times > 1 else 0]
            if not _average_step(indptr, indices, policy[t], layer, used, ahead, now, total[t]):
                return False
            ahead, now = now, ahead
        done += size
    return True


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "arcp"})
def _average_step(
    indptr: Ints, indices: Ints, policy: Floats, ratio: Floats, used: Floats, ahead: Floats, now: Floats, total: Floats
) -> bool:
    """One time step of a block: fill `now` from `ahead`, add the used samples' policies to `total`.

    The inner loops run over the whole block, whose length the compiler knows.
    """
    gain, inverse = np.empty(_BLOCK), np.empty(_BLOCK)  # w_t[b] and used / w_t[b], per sample
    terms = np.empty((np.diff(indptr).max(), _BLOCK))  # the summands of w_t[b], one row of the kernel at a time
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
            lost |= not (inverse[s] < 1e280)  # written so that NaN is lost, too
            inverse[s] *= used[s]
        for e in range(start, stop):
            i = e - start
            x = 0.0
            for s in range(_BLOCK):
                x += terms[i, s] * inverse[s]
            total[e] += x
    # Only the ratios of a sample's desirabilities matter: divide them by their largest.
    top = inverse
    top[:] = 0.0
    for b in range(indptr.size - 1):
        for s in range(_BLOCK):
            top[s] = max(top[s], now[b, s])
    for s in range(_BLOCK):
        top[s] = 1.0 / top[s]
    for b in range(indptr.size - 1):
        for s in range(_BLOCK):
            now[b, s] *= top[s]
    return not lost


@njit(cache=True, nogil=True, error_model="numpy")
def average_logs(
    rng: Generator, indptr: Ints, indices: Ints, p: Floats, scaled: Floats, k: float, samples: int, total: Floats
) -> None:
    """Sum the samples' policies, each solved by the log-domain recursion."""
    horizon, nnz = total.shape
    ratio = np.empty((p.shape[0], nnz, _BLOCK))  # log(private / true)
    log_p, constants = np.log(p), gamma_constants(p, k)
    log_z, policy = np.empty((horizon + 1, indptr.size - 1)), np.empty((horizon, nnz))  # the sample's own
    done = 0
    while done < samples:
        size = min(_BLOCK, samples - done)
        draw_log_ratios(rng, indptr, p, constants, size, ratio)
        for s in range(size):
            backward(indptr, indices, log_p + ratio[:, :, s], scaled, 1.0, log_z, policy)
            total += policy
        done += size


@njit(cache=True, nogil=True, error_model="numpy")
def _sample_costs(
    rng: Generator,
    indptr: Ints,
    indices: Ints,
    p: Floats,
    scaled: Floats,
    k: float,
    samples: int,
    log_z_true: Floats,
    policy_true: Floats,
    sums: Floats,
    squares: Floats,
) -> None:
    """Cost of deploying each sample's optimal policy on the true dynamics, in nats.

    sums[0]: exact, by the performance-difference identity, the expected sum of KL(sampled || optimal).
    sums[1]: as in the paper, true cost of one step and then the sample's own cost-to-go.
    """
    horizon, nnz = policy_true.shape
    n = indptr.size - 1
    ratio = np.empty((p.shape[0], nnz, 1))  # log(private / true); one sample at a time, as each needs its own log z
    log_p, constants = np.log(p), gamma_constants(p, k)
    log_z, policy = np.empty((horizon + 1, n)), np.empty((horizon, nnz))
    later, cost = np.empty(n), np.empty(n)  # exact cost by state, from time t + 1 on and from t on
    for _ in range(samples):
        draw_log_ratios(rng, indptr, p, constants, 1, ratio)
        backward(indptr, indices, log_p + ratio[:, :, 0], scaled, 1.0, log_z, policy)
        later[:] = 0.0
        for t in range(horizon - 1, -1, -1):
            layer = ratio[t if p.shape[0] > 1 else 0, :, 0]
            for b in range(n):
                divergence, follow, drift = 0.0, 0.0, 0.0
                excess = log_z[t, b] - log_z_true[t, b]  # log w_t[b]
                for e in range(indptr[b], indptr[b + 1]):
                    q = policy[t, e]
                    if q > 0.0:
                        a = indices[e]
                        # log(policy/optimal) = log(private/true) + log w_{t+1}[a] - log w_t[b]
                        divergence += q * (layer[e] + (log_z[t + 1, a] - log_z_true[t + 1, a]) - excess)
                        drift += q * layer[e]
                        follow += q * later[a]
                cost[b] = max(divergence, 0.0) + follow
                sums[0, t, b] += cost[b]
                squares[0, t, b] += cost[b] * cost[b]
                sums[1, t, b] += drift - excess
                squares[1, t, b] += (drift - excess) ** 2
            later[:] = cost


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
def _gamma_parts(rng: Generator, d: float, c: float, inverse: float) -> tuple[float, float]:
    """Return (v, e) such that v * exp(-e) is Gamma distributed (Marsaglia and Tsang 2000).

    Below shape one the variate of the shape plus one is multiplied by U^(1/shape), which `e` keeps as a logarithm so
    that nothing underflows.
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
def draw_log_ratios(rng: Generator, indptr: Ints, p: Floats, constants: Floats, size: int, out: Floats) -> None:
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
def draw_ratios(rng: Generator, indptr: Ints, p: Floats, constants: Floats, size: int, ratio: Floats) -> None:
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


# ------------------------------------------------------------------ compiled: integrals
@njit(cache=True, nogil=True, error_model="numpy")
def _softplus(x: float) -> float:
    """log(1 + e^x)."""
    return x + math.log1p(math.exp(-x)) if x > 0.0 else math.log1p(math.exp(x))


@njit(cache=True, nogil=True, error_model="numpy")
def _average_integral(
    indptr: Ints, indices: Ints, log_p: Floats, log_z: Floats, k: float, nodes: Floats, weights: Floats, out: Floats
) -> None:
    """Fill `out` (T, nnz) by Gauss-Legendre panels in u = log s, from where nothing is distributed to where all is.

    `log_p` (1 or T, nnz) holds the default, `log_z` (T, n) the desirability that each step leads to; `nodes` and
    `weights` are those of the interval [-1, 1].
    """
    n = indptr.size - 1
    log_k = math.log(k)
    for t in range(out.shape[0]):
        row = log_p[t if log_p.shape[0] > 1 else 0]
        for b in range(n):
            start, stop = indptr[b], indptr[b + 1]
            top, bottom = -np.inf, np.inf  # of log z over the row's successors; z is taken in units of exp(top)
            for e in range(start, stop):
                if row[e] > -np.inf:
                    top = max(top, log_z[t, indices[e]])
                    bottom = min(bottom, log_z[t, indices[e]])
            mean = 0.0  # sum of P z: the integrand begins to matter where s is about 1 / (k mean)
            for e in range(start, stop):
                mean += math.exp(row[e] + log_z[t, indices[e]] - top)
            left = -log_k - math.log(mean) - 38.0  # 1 - Pi(s) < e^-38 below
            end = top - bottom + 38.0  # every s z > e^38 above
            panels = max(1, int(math.ceil((end - left) / 1.5)))
            width = (end - left) / panels
            remaining = 1.0  # Pi(s), what the panels so far have not distributed
            for panel in range(panels):
                for q in range(nodes.size):
                    u = left + width * (panel + 0.5 * (nodes[q] + 1.0))
                    log_product = 0.0
                    for e in range(start, stop):
                        log_product += k * math.exp(row[e]) * _softplus(u + log_z[t, indices[e]] - top)
                    for e in range(start, stop):
                        x = u + log_z[t, indices[e]] - top
                        value = math.exp(log_k + row[e] + x - _softplus(x) - log_product)
                        out[t, e] += 0.5 * width * weights[q] * value  # ds = s du is in the value
                edge = left + width * (panel + 1)
                log_product = 0.0
                for e in range(start, stop):
                    log_product += k * math.exp(row[e]) * _softplus(edge + log_z[t, indices[e]] - top)
                remaining = math.exp(-log_product)
                if remaining < 1e-18:
                    break
            total = 0.0
            for e in range(start, stop):  # the tail, shared in proportion to P
                out[t, e] += remaining * math.exp(row[e])
                total += out[t, e]
            # The panels add up to one but for rounding, and a dominant entry may pass it. No term of a
            # floating-point sum of nonnegative terms exceeds the sum, so these quotients lie in [0, 1].
            for e in range(start, stop):
                out[t, e] /= total
