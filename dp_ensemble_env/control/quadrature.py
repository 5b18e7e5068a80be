r"""The exact average of policies, one integral a row.

With :math:`\Pi(s) = \prod_\nu(1+sz[\nu])^{-kP[\nu]}` the integrands of `average_policy` add up to :math:`-d\Pi/ds`.
Hence integrating up to `s` leaves exactly :math:`\Pi(s)` undistributed, which gives both limits of integration, and,
once :math:`s z \gg 1` for every entry, the remainder is shared in proportion to :math:`P`.
"""

from __future__ import annotations

import math

import numpy as np

from dp_ensemble_env.control.kernel import LogKernel
from dp_ensemble_env.control.loops import Floats, Ints
from dp_ensemble_env.tools.compile import njit


def average_exact(kernel: LogKernel, tilt: Floats, k: float, contexts: bool = False) -> Floats:
    """E[policy] by quadrature on the nonzeros, shape ([c,] T, nnz), holding the tilt (T, [c,] m), log z, fixed."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    layers = np.swapaxes(tilt, 0, 1) if contexts else tilt[None]
    out = np.zeros((*layers.shape[:2], len(kernel.indices)))
    for w, layer in enumerate(layers):
        log_p = kernel.log_values[w if len(kernel.log_values) > 1 else 0]
        _average_integral(kernel.indptr, kernel.indices, log_p, np.ascontiguousarray(layer), k, nodes, weights, out[w])
    return out if contexts else out[0]


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
