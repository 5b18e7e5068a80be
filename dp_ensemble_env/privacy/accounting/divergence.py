r"""How far apart the Dirichlet mechanism's outputs are for two adjacent rows, exactly.

One row :math:`p` with entries on a public support is released as
:math:`x \sim \mathrm{Dir}(kp)`. An adjacent row is
:math:`q = p - d(e_i - e_j)` with :math:`d = h/2`. Everything but the ratio of
:math:`x_i` to :math:`x_j` has the same law under both, so with
:math:`m = kd`, :math:`(a, b) = k(p_i, p_j)` the question is how well
:math:`\mathrm{Beta}(a, b)` can be told from :math:`\mathrm{Beta}(a-m, b+m)`. The
privacy loss is :math:`C + m\,\mathrm{logit}(x)`, and

.. math::

    \delta(\varepsilon) = I^c(u; a, b) - e^{\varepsilon} I^c(u; a-m, b+m),
    \qquad u = \mathrm{expit}((\varepsilon - C)/m),
    \qquad C = \ln B(a-m, b+m) - \ln B(a, b).

**Worst case.** Among rows whose entries are at least :math:`\omega` before and
after the move, the pair :math:`\mathrm{Beta}(s+m, s)` against its mirror,
:math:`s = k\omega`, dominates. *Proof*: a Dirichlet vector with parameters
:math:`(s+m, s, a-m-s, b-s)` merges (first with third, second with fourth) into
:math:`\mathrm{Beta}(a, b)`; with the first two parameters exchanged it merges into
:math:`\mathrm{Beta}(a-m, b+m)`. So any other pair is a post-processing of this one.
Its loss under the first law is :math:`m(\ln G_{s+m} - \ln G_s)`, whose positive
part grows stochastically with :math:`m`: the divergence rises with `h`, and a move
smaller than `h` is covered.

**As k falls to zero** the same pair tends to
:math:`\delta_\omega(\varepsilon) = \frac{d}{2\omega + d}\, e^{-2\omega\varepsilon/h}`, which
is not zero: a smaller `k` alone cannot buy any epsilon one likes. And the
divergence rises with `k`. *Proof*: with independent standard exponentials
:math:`E_n, E_n'` a Gamma variate satisfies
:math:`\ln G_s = -\gamma_E + \sum_n [1/(n+1) - E_n/(n+s)]`, so the loss is

.. math:: L_k = \sum_{n \ge 0} d\left(\frac{E_n}{\omega + n/k} - \frac{E_n'}{\omega + d + n/k}\right),

and each term is the loss of the limit pair with floor :math:`\omega + n/k`. The pair at
`k` is thus the composition of limit pairs: the first does not depend on `k`, each of
the others gets worse as `k` grows.

**Rényi.** :math:`D_\lambda \le [\ln\Gamma(k(\omega+\lambda d)) + \ln\Gamma(k(\omega-(\lambda-1)d))
- \ln\Gamma(k(\omega+d)) - \ln\Gamma(k\omega)]/(\lambda-1)`, finite if and only if
:math:`\lambda < 1 + 2\omega/h`.

**Moves spread over many entries.** A Dirichlet vector is a vector of independent
Gammas divided by a sum that tells nothing, so the loss of a general move is a sum
of independent Gamma terms. Two entries are then *not* always the worst case of
:math:`\|p - q\|_1 \le h`: with :math:`d \gg \omega` a spread move is easier to detect.
The Rényi bound of one term is convex in the size of its move while that size is at
most :math:`\omega/\sqrt\lambda` (because :math:`x^2\psi'(x)` increases), hence the
displayed bound covers every move with :math:`\|p-q\|_1 \le h` for the orders
:math:`\lambda \le (2\omega/h)^2`: that is ``entries="any"`` here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from dp_ensemble_env.tools.validation import as_float_array, check_choice, check_count, check_in_range, check_positive

Entries = Literal["two", "any"]
ENTRIES: tuple[str, ...] = ("two", "any")
_LOG_TINY = -650.0  # below this the incomplete beta function is about to underflow
#: From this k on a row counts as told outright: soon after, the incomplete beta function fails for some shapes.
LARGEST_K = 1e15


# ------------------------------------------------------------------ hockey-stick divergences
def _log_lower_tail(p: float, q: float, log_y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of the regularised incomplete beta function I_y(p, q), also where that underflows."""
    y = np.exp(log_y)
    with np.errstate(divide="ignore", under="ignore"):
        direct = np.log(special.betainc(p, q, y))
    lost = (y * (1.0 + q) < 1e-18) | (direct < _LOG_TINY)
    if not lost.any():
        result: NDArray[np.float64] = direct
        return result
    # I_y(p, q) = y^p (1-y)^q / (p B(p, q)) * (1 + (p+q)/(p+1) y + (p+q)(p+q+1)/((p+1)(p+2)) y^2 + ...).
    # Cutting the series short lowers a probability that is only ever subtracted: the safe side.
    series, term = np.ones_like(y), np.ones_like(y)
    for n in range(400):
        term = term * y * (p + q + n) / (p + 1.0 + n)
        series = series + np.where(lost, term, 0.0)
        if not (lost & (term > 1e-17 * series)).any():
            break
    leading = p * log_y - special.gammaln(p + 1.0) + _log_gamma_ratio(q, p)
    result = np.where(lost, leading + q * np.log1p(-np.where(lost, y, 0.0)) + np.log(series), direct)
    return result


@lru_cache(maxsize=4)
def gauss_legendre(points: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights on [−1, 1], computed once."""
    return np.polynomial.legendre.leggauss(points)


def _log_gamma_ratio(x: float, step: float) -> float:
    """Return lnΓ(x + step) − lnΓ(x) without cancellation when x is large."""
    if x > 50.0 and step < x:
        nodes, weights = gauss_legendre(24)
        return float(0.5 * step * weights @ special.digamma(x + 0.5 * step * (nodes + 1.0)))
    return float(special.gammaln(x + step) - special.gammaln(x))


def _log_hockey_stick(
    epsilon: NDArray[np.float64], t: NDArray[np.float64], upper: tuple[float, float], lower: tuple[float, float]
) -> NDArray[np.float64]:
    """Log of [F(y; upper) − e^ε F(y; lower)]₊ with F the Beta distribution function and y = expit(−t)."""
    log_y = special.log_expit(-t)
    log_p = _log_lower_tail(*upper, log_y)
    log_q = _log_lower_tail(*lower, log_y)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = log_p + np.log(-np.expm1(np.minimum(epsilon + log_q - log_p, 0.0)))
    return np.where(log_p == -np.inf, -np.inf, np.minimum(value, 0.0))


def log_worst_case_delta(epsilon: ArrayLike, k: float, h: float, omega: float) -> NDArray[np.float64]:
    """Logarithm of `worst_case_delta`, for any real epsilon (vectorised over it)."""
    values = np.asarray(epsilon, dtype=float)
    if h == 0:
        with np.errstate(divide="ignore"):
            result: NDArray[np.float64] = np.log(-np.expm1(np.minimum(values, 0.0)))
            return result
    if omega == 0 or k >= LARGEST_K:
        return np.zeros_like(values)
    s, m = k * omega, k * h / 2.0
    size = np.abs(values)
    with np.errstate(divide="ignore", over="ignore"):
        log_delta = _log_hockey_stick(size, size / m, (s, s + m), (s + m, s))  # dominating pair, C = 0
        # Mirror symmetry: δ(−ε) = 1 − e^{−ε} (1 − δ(ε)).
        return np.where(values >= 0, log_delta, np.log1p(-np.exp(-size) * -np.expm1(log_delta)))


def worst_case_delta(epsilon: float, k: float, h: float, omega: float) -> float:
    """Exact δ at `epsilon`, in the worst case over rows whose entries are at least `omega`.

    Parameters
    ----------
    epsilon : float
        Privacy loss, >= 0.
    k : float
        Concentration of the Dirichlet mechanism.
    h : float
        Adjacency: two entries of a row move by at most h/2 each, in opposite directions.
    omega : float
        Least entry of the support in the mechanism's input (the floor).

    Examples
    --------
    >>> round(worst_case_delta(0.479, k=50, h=0.03, omega=0.1), 4)
    0.05
    """
    epsilon = check_in_range(epsilon, "epsilon", 0, math.inf)
    check_row_settings(k, h, omega)
    return float(np.exp(log_worst_case_delta(epsilon, k, h, omega)))


def worst_case_epsilon(delta: float, k: float, h: float, omega: float) -> float:
    """Exact ε at `delta`, in the worst case over rows whose entries are at least `omega`.

    Returns infinity when `omega` is zero: then no bound holds for all rows.

    Examples
    --------
    >>> [round(worst_case_epsilon(0.05, k, h=0.03, omega=0.1), 3) for k in (50, 200)]
    [0.479, 1.398]
    """
    check_delta(delta)
    check_row_settings(k, h, omega)
    found = _solve_epsilon(lambda e: float(log_worst_case_delta(e, k, h, omega)), delta)
    return max(found, vanishing_k_epsilon(delta, h, omega))  # at a k so small that products with it underflow


def vanishing_k_delta(epsilon: ArrayLike, ratio: float) -> NDArray[np.float64]:
    """Limit of `worst_case_delta` as k falls to zero; `ratio` is h / (2 omega). No k does better."""
    values = np.asarray(epsilon, dtype=float)
    size = np.abs(values)
    delta = ratio / (2.0 + ratio) * np.exp(-size / ratio)
    result: NDArray[np.float64] = np.where(values >= 0, delta, 1.0 - np.exp(-size) * (1.0 - delta))
    return result


def vanishing_k_epsilon(delta: float, h: float, omega: float) -> float:
    """Least ε that one row can reach at `delta`, whatever k is: (h/2ω) ln( (h/2) / ((2ω + h/2) δ) )."""
    check_delta(delta)
    check_row_settings(1.0, h, omega)
    if h == 0:
        return 0.0
    if omega == 0:
        return math.inf
    ratio = h / (2.0 * omega)
    return max(0.0, ratio * math.log(ratio / ((2.0 + ratio) * delta)))


def adjacent_row(row: ArrayLike, i: int, j: int, h: float) -> NDArray[np.float64]:
    """Return the row that differs from `row` by h/2 less in entry `i` and h/2 more in entry `j`.

    Raises
    ------
    ValueError
        If the entry `i` is smaller than h/2, so that no such row exists.
    """
    values = as_float_array(row, "row", 1)
    h = check_in_range(h, "h", 0, 2)
    i, j = check_count(i, "i", 0), check_count(j, "j", 0)
    if max(i, j) >= len(values) or i == j:
        raise ValueError(f"i={i} and j={j} must be two different entries of a row of {len(values)}; choose others.")
    if (values < 0).any() or abs(values.sum() - 1.0) > 1e-8:
        raise ValueError(f"row must hold probabilities that sum to 1, got a sum of {values.sum():.9g}; normalise it.")
    for entry in (i, j):
        if values[entry] == 0:
            raise ValueError(f"entry {entry} of the row is 0, outside the public support; choose one inside it.")
    if values[i] - h / 2 < 0:
        raise ValueError(
            f"entry {i} of the row is {values[i]:g}, below h/2 = {h / 2:g}: no adjacent row exists, so there is no "
            "guarantee to compute; raise the entry with a floor, or shrink h."
        )
    moved = values.copy()
    moved[i] -= h / 2
    moved[j] += h / 2
    return moved


def pair_delta(epsilon: float, row: ArrayLike, i: int, j: int, k: float, h: float) -> float:
    """Exact δ at `epsilon` of one row and its neighbour (entry i down by h/2, entry j up), the larger direction.

    Examples
    --------
    >>> round(pair_delta(0.2, [0.2, 0.6, 0.2], 0, 1, k=50, h=0.03), 5)
    0.04612
    """
    epsilon = check_in_range(epsilon, "epsilon", 0, math.inf)
    return float(np.exp(_log_pair_delta(epsilon, row, i, j, check_positive(k, "k"), h)))


def pair_epsilon(delta: float, row: ArrayLike, i: int, j: int, k: float, h: float) -> float:
    """Exact ε at `delta` of one row and its neighbour; infinity if the move empties an entry."""
    check_delta(delta)
    check_positive(k, "k")
    return _solve_epsilon(lambda e: _log_pair_delta(e, row, i, j, k, h), delta)


def _log_pair_delta(epsilon: float, row: ArrayLike, i: int, j: int, k: float, h: float) -> float:
    moved = adjacent_row(row, i, j, h)
    if h == 0:
        return -math.inf
    if moved[i] == 0 or k >= LARGEST_K:
        return 0.0  # the neighbour never shows the entry at all
    a, b, m = k * np.asarray(row, dtype=float)[i], k * np.asarray(row, dtype=float)[j], k * h / 2.0
    low = k * moved[i]
    # C = ln B(a−m, b+m) − ln B(a, b): the sum a + b is unchanged, so only single Gammas remain.
    c = _log_gamma_ratio(b, m) - _log_gamma_ratio(low, m)
    eps = np.asarray(epsilon, dtype=float)
    forward = _log_hockey_stick(eps, (eps - c) / m, (b, a), (b + m, low))
    reverse = _log_hockey_stick(eps, (eps + c) / m, (low, b + m), (a, b))
    return float(np.maximum(forward, reverse))


def _solve_epsilon(log_delta_at: Callable[[float], float], delta: float) -> float:
    """Least ε >= 0 at which a falling log δ(ε) is at most ln(delta)."""
    target = math.log(delta)

    def excess(epsilon: float) -> float:
        return max(log_delta_at(epsilon), -1e5) - target

    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2.0
        if high > 1e12:
            return math.inf
    low = 0.0 if high == 1.0 else high / 2.0
    root = float(optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-13))
    return math.nextafter(root, math.inf)


# ------------------------------------------------------------------ Rényi divergence
def renyi_limit(h: float, omega: float, entries: Entries = "two") -> float:
    """Least order at which the Rényi bound is no longer available (infinity if h is 0)."""
    check_choice(entries, "entries", ENTRIES)
    if h == 0:
        return math.inf
    ratio = 2.0 * omega / h
    return 1.0 + ratio if entries == "two" else min(1.0 + ratio, max(1.0, ratio**2))


def renyi_divergence(
    order: ArrayLike, k: float, h: float, omega: float, entries: Entries = "two"
) -> NDArray[np.float64]:
    """Rényi divergence of the given order(s) > 1, worst case over rows with entries >= `omega`.

    Orders at or beyond `renyi_limit` give infinity: the moment does not exist
    (``entries="two"``), or the proof does not reach (``entries="any"``).

    Examples
    --------
    >>> float(renyi_divergence(2.0, k=50, h=0.03, omega=0.1).round(4)), float(renyi_divergence(8.0, 50, 0.03, 0.1))
    (0.2322, inf)
    """
    orders = np.asarray(order, dtype=float)
    check_row_settings(k, h, omega)
    if (orders <= 1).any():
        raise ValueError(f"order must exceed 1, got {orders.min():g}; order 1 is the Kullback-Leibler divergence.")
    if h == 0:
        return np.zeros_like(orders)
    if k >= LARGEST_K:
        return np.full_like(orders, np.inf)
    inside = orders < renyi_limit(h, omega, entries)
    lam, d = np.where(inside, orders, 1.5), h / 2.0
    low, high = k * np.where(inside, omega - (lam - 1.0) * d, 1.0), k * (omega + d)
    with np.errstate(invalid="ignore"):
        total = special.gammaln(k * (omega + lam * d)) + special.gammaln(low)
        total = total - special.gammaln(high) - special.gammaln(k * omega)
    # The same as an integral of digamma, without the cancellation of large logarithms.
    step = k * (lam - 1.0) * d
    if (smooth := inside & (low > 50.0) & (step < low)).any():
        nodes, weights = gauss_legendre(24)
        along = 0.5 * step[..., None] * (nodes + 1.0)
        rise = special.digamma(high + along) - special.digamma(np.where(smooth, low, 1.0)[..., None] + along)
        total = np.where(smooth, 0.5 * step * (rise @ weights), total)
    return np.where(inside, np.maximum(total, 0.0) / (lam - 1.0), np.inf)


# ------------------------------------------------------------------ checks
def check_row_settings(k: float, h: float, omega: float) -> None:
    """Check the concentration, the adjacency and the least entry of a row."""
    check_positive(k, "k")
    check_in_range(h, "h", 0, 2, remedy="h is the L1 distance of two rows; the paper uses 0.03")
    check_in_range(omega, "omega", 0, 0.5, remedy="two entries of a row must both be at least omega")


def check_delta(delta: float) -> float:
    """Check that δ lies strictly between 0 and 1."""
    return check_in_range(
        delta, "delta", 0, 1, open_low=True, open_high=True, remedy="a serious value is far below 1/participants"
    )
