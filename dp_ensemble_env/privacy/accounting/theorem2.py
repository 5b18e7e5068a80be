r"""Theorem 2 of the paper, as corrected: an upper bound on the loss of one row.

Let :math:`W` be the protected entries of a row, and let the inputs satisfy
:math:`p_i \ge \omega` on :math:`W` and :math:`\sum_W p_i \le 1 - \bar\omega`. With
:math:`c = 1 - \bar\omega - \omega` and the good outputs
:math:`\Omega_1 = \{x : x_i \ge \psi,\ i \in W\}` (E4: a condition on outputs, not inputs),

.. math::

    \varepsilon = \ln\frac{B(k\omega, kc)}{B(k(\omega + h/2), k(c - h/2))}
        + \frac{kh}{2}\ln\frac{1 - (|W|-1)\psi}{\psi},
    \qquad
    \delta = 1 - \min_p \Pr[\mathrm{Dir}(kp) \in \Omega_1],

the minimum being over that polytope of inputs and attained at one of its vertices
(E5; over the whole simplex it is zero). The theorem gives probabilistic privacy,
which implies approximate privacy with the same pair (E11).

At a fixed δ the largest admissible :math:`\psi` gives the smallest ε; it can be
1e-50, so it is sought as a logarithm. For more than two protected entries the
probability that some output falls below :math:`\psi` is bounded by Hunter's
inequality, :math:`\sum_i P_i - \sum_{i>1} P_{1i}`, which is exact for two entries
and errs on the safe side beyond.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from dp_ensemble_env.privacy.accounting.divergence import (
    LARGEST_K,
    _log_gamma_ratio,
    _log_lower_tail,
    check_delta,
    check_row_settings,
    gauss_legendre,
)
from dp_ensemble_env.tools.validation import check_count, check_in_range


def theorem2_epsilon(k: float, h: float, omega: float, omega_bar: float, n_protected: int, delta: float) -> float:
    """Return the ε of Theorem 2 (corrected) at a fixed `delta`.

    Parameters
    ----------
    k : float
        Concentration.
    h : float
        Adjacency: two protected entries move by h/2 each, in opposite directions.
    omega : float
        Least value of a protected entry.
    omega_bar : float
        Least total of the entries that are not protected.
    n_protected : int
        Number of protected entries, the size of W, at least 2.
    delta : float
        Probability of an output outside the good set.

    Examples
    --------
    >>> [round(theorem2_epsilon(k, 0.03, 0.1, 0.1, 2, 0.05), 2) for k in (50, 200)]
    [4.07, 14.18]
    """
    check_row_settings(k, h, omega)
    size = check_count(n_protected, "n_protected", 2)
    check_in_range(omega, "omega", 0, 0.5, open_low=True, remedy="Theorem 2 needs protected entries above zero")
    check_in_range(omega_bar, "omega_bar", 0, 1, open_low=True, open_high=True)
    check_delta(delta)
    c = 1.0 - omega_bar - omega
    if size * omega > 1.0 - omega_bar + 1e-12 or c - h / 2 <= 0:
        raise ValueError(
            f"no adjacent rows have {size} entries of at least omega={omega:g}, the others summing to at least "
            f"omega_bar={omega_bar:g}, and differ by h={h:g}; lower omega, omega_bar or h."
        )
    if h == 0:
        return 0.0
    if k >= LARGEST_K:
        return math.inf
    log_psi = theorem2_log_psi(float(k), float(omega), float(omega_bar), size, float(delta))
    # ln B(kω, kc) − ln B(k(ω+h/2), k(c−h/2)): the arguments have the same sum.
    m = k * h / 2.0
    constant = _log_gamma_ratio(k * c - m, m) - _log_gamma_ratio(k * omega, m)
    return max(0.0, constant + m * (math.log1p(-(size - 1) * math.exp(log_psi)) - log_psi))  # Theorem 2


@lru_cache(maxsize=4096)
def theorem2_log_psi(k: float, omega: float, omega_bar: float, n_protected: int, delta: float) -> float:
    """Logarithm of the largest ψ for which the outputs leave the good set with probability at most `delta`."""

    def excess(log_psi: float) -> float:
        return theorem2_log_miss(log_psi, k, omega, omega_bar, n_protected) - math.log(delta)

    high = -math.log(n_protected) - 1e-9  # n_protected entries cannot all exceed 1/n_protected
    if excess(high) <= 0:
        return high
    low = high - 1.0
    while excess(low) > 0:
        low = 2.0 * low
        if low < -1e15:
            raise ValueError(f"delta={delta:g} cannot be reached at k={k:g}, omega={omega:g}; raise omega or delta.")
    root = float(optimize.brentq(excess, low, high, xtol=1e-13, rtol=1e-12))
    return root - 1e-12 * max(1.0, abs(root))


def theorem2_log_miss(log_psi: float, k: float, omega: float, omega_bar: float, n_protected: int) -> float:
    """Logarithm of 1 − min over inputs of Pr[x_i >= ψ on W] (E5), the minimum taken over the polytope's vertices."""
    lowest = np.full(n_protected, omega)
    raised = lowest.copy()
    raised[0] = 1.0 - omega_bar - (n_protected - 1) * omega
    return max(_log_miss(log_psi, k * vertex, k) for vertex in (lowest, raised))


def _log_miss(log_psi: float, shapes: NDArray[np.float64], total: float) -> float:
    """Log-probability (Hunter's bound) that some of the Dirichlet entries with these shapes is below ψ."""
    if log_psi >= -math.log(len(shapes)):
        return 0.0  # they cannot all reach it
    log_y = np.asarray(log_psi)
    singles = np.array([float(_log_lower_tail(a, total - a, log_y)) for a in shapes])
    # The entry with the largest chance of a miss is the centre of the spanning tree.
    centre = int(np.argmax(singles))
    relative = np.exp(singles - singles[centre])
    # No pair is likelier than either of the two, so that one at least is left.
    pairs = [
        min(_both_miss(log_psi, float(shapes[centre]), float(a), total), relative[index])
        for index, a in enumerate(shapes)
        if index != centre
    ]
    return min(0.0, float(singles[centre] + math.log(relative.sum() - sum(pairs))))


@lru_cache(maxsize=8192)
def _both_miss(log_psi: float, a: float, b: float, total: float) -> float:
    """Pr[x_2 < ψ | x_1 < ψ] from below: the mean of Pr[x_2 < ψ | x_1] in the law of x_1 below ψ, less a margin.

    In u = ln(x_1/ψ) <= 0 the law has the density e^(au) (1 − ψe^u)^(total−a−1), which is smooth and has one peak;
    the probability rises with u. Panels cover where the density is within e^-40 of its peak, and halve towards the end,
    near which the probability may bend (ψ close to one half) or a small `a` has all that changes.
    """
    rest, psi, power = total - a - b, math.exp(log_psi), total - a - 1.0
    margin = 1e-9 + 1e-14 * total  # of quadrature and rounding, both below a tenth of it
    if rest <= 1e-9 or a < 1e-300 or margin >= 1.0:
        return 0.0  # almost x_2 = 1 − x_1, or out of range: nothing is subtracted
    if psi < 1e-12:  # the sticks no longer feel each other: x_2 / (1 − x_1) = x_2
        return float(np.exp(_log_lower_tail(b, rest, np.asarray(log_psi)))) * (1.0 - margin)

    def height(u: NDArray[np.float64]) -> NDArray[np.float64]:
        return a * u + power * np.log1p(-psi * np.exp(u))

    peak = min(0.0, math.log(a / ((total - 1.0) * psi))) if power > 0.0 else 0.0  # where the slope is zero
    top = float(height(np.asarray(peak)))

    def end(way: float) -> float:
        reach = way / (a + 1.0)
        while peak + reach < 0.0 and height(np.asarray(peak + reach)) > top - 40.0:
            reach *= 2.0
        return min(0.0, peak + reach)

    left, right = end(-1.0), end(1.0)
    edges = left + (right - left) * _PANELS
    nodes, weights = gauss_legendre(20)
    half = 0.5 * np.diff(edges)[:, None]
    u = edges[:-1, None] + half * (nodes + 1.0)
    x = psi * np.exp(u)
    density = half * weights * np.exp(height(u) - top)
    mean = (density * special.betainc(b, rest, np.minimum(psi / (1.0 - x), 1.0))).sum() / density.sum()
    return float(mean) * (1.0 - margin)


#: Ends of the panels, on [0, 1].
_PANELS = np.union1d(np.linspace(0.0, 1.0, 17), 1.0 - 0.5 ** np.arange(5, 50))
