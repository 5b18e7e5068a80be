r"""How far apart the Dirichlet mechanism's outputs are for two adjacent rows: exactly, and by Theorem 2.

One row :math:`p` with entries on a public support is released as :math:`x \sim \mathrm{Dir}(kp)`. An adjacent row is
:math:`q = p - d(e_i - e_j)` with :math:`d = h/2`. Everything but the ratio of :math:`x_i` to :math:`x_j` has the same
law under both, so with :math:`m = kd`, :math:`(a, b) = k(p_i, p_j)` the question is how well
:math:`\mathrm{Beta}(a, b)` can be told from :math:`\mathrm{Beta}(a-m, b+m)`. The privacy loss is
:math:`C + m\,\mathrm{logit}(x)`, and

.. math::

    \delta(\varepsilon) = I^c(u; a, b) - e^{\varepsilon} I^c(u; a-m, b+m),
    \qquad u = \mathrm{expit}((\varepsilon - C)/m),
    \qquad C = \ln B(a-m, b+m) - \ln B(a, b).

**Worst case.** Among rows whose entries are at least :math:`\omega` before and after the move, the pair
:math:`\mathrm{Beta}(s+m, s)` against its mirror, :math:`s = k\omega`, dominates. Its divergence rises with `h`, so a
move smaller than `h` is covered, and with `k`. **As k falls to zero** it tends to :math:`\delta_\omega(\varepsilon) =
\frac{d}{2\omega + d}\,e^{-2\omega\varepsilon/h}`, which is not zero: a smaller `k` alone cannot buy any epsilon one
likes. ``docs/proofs.md`` proves all of this.

**Rényi.** :math:`D_\lambda \le [\ln\Gamma(k(\omega+\lambda d)) + \ln\Gamma(k(\omega-(\lambda-1)d))
- \ln\Gamma(k(\omega+d)) - \ln\Gamma(k\omega)]/(\lambda-1)`, finite if and only if :math:`\lambda < 1 + 2\omega/h`.

**Moves spread over many entries.** Two entries are *not* always the worst case of :math:`\|p - q\|_1 \le h`: with
:math:`d \gg \omega` a spread move is easier to detect. The displayed bound covers every such move for the orders
:math:`\lambda \le (2\omega/h)^2` (``docs/proofs.md``): that is ``entries="any"`` here.

**Theorem 2** of the paper, as corrected, is an upper bound. Let :math:`W` be the protected entries of a row, and let
the inputs satisfy :math:`p_i \ge \omega` on :math:`W` and :math:`\sum_W p_i \le 1 - \bar\omega`. With
:math:`c = 1 - \bar\omega - \omega` and the good outputs :math:`\Omega_1 = \{x : x_i \ge \psi,\ i \in W\}` (E4: a
condition on outputs, not inputs),

.. math::

    \varepsilon = \ln\frac{B(k\omega, kc)}{B(k(\omega + h/2), k(c - h/2))}
        + \frac{kh}{2}\ln\frac{1 - (|W|-1)\psi}{\psi}, \qquad \delta = 1 - \min_p \Pr[\mathrm{Dir}(kp) \in \Omega_1],

the minimum being over that polytope of inputs and attained at one of its vertices (E5; over the whole simplex it is
zero). At a fixed δ the largest admissible :math:`\psi` gives the smallest ε; it can be 1e-50, so it is sought as a
logarithm. For more than two protected entries the probability that some output falls below :math:`\psi` is bounded by
Hunter's inequality, :math:`\sum_i P_i - \sum_{i>1} P_{1i}`, which errs on the safe side.
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

FloatArray = NDArray[np.float64]
Entries = Literal["two", "any"]
ENTRIES: tuple[str, ...] = ("two", "any")
_LOG_TINY = -650.0  # below this the incomplete beta function is about to underflow
LARGEST_K = 1e15  #: From here on a row counts as told outright: soon after, the incomplete beta function fails.
#: Ends of the panels of a quadrature, on [0, 1]; they halve towards 1.
_PANELS = np.union1d(np.linspace(0.0, 1.0, 17), 1.0 - 0.5 ** np.arange(5, 50))


# ------------------------------------------------------------------ special functions
def _log_lower_tail(p: float, q: float, log_y: FloatArray) -> FloatArray:
    """Logarithm of the regularised incomplete beta function I_y(p, q), also where that underflows."""
    y = np.exp(log_y)
    with np.errstate(divide="ignore", under="ignore"):
        direct = np.log(special.betainc(p, q, y))
    lost = (y * (1.0 + q) < 1e-18) | (direct < _LOG_TINY)
    if not lost.any():
        return np.asarray(direct)
    # I_y(p, q) = y^p (1-y)^q / (p B(p, q)) * (1 + (p+q)/(p+1) y + (p+q)(p+q+1)/((p+1)(p+2)) y^2 + ...).
    # Cutting the series short lowers a probability that is only ever subtracted: the safe side.
    series, term = np.ones_like(y), np.ones_like(y)
    for n in range(400):
        term = term * y * (p + q + n) / (p + 1.0 + n)
        series = series + np.where(lost, term, 0.0)
        if not (lost & (term > 1e-17 * series)).any():
            break
    leading = p * log_y - special.gammaln(p + 1.0) + _log_gamma_ratio(q, p)
    return np.asarray(np.where(lost, leading + q * np.log1p(-np.where(lost, y, 0.0)) + np.log(series), direct))


@lru_cache(maxsize=4)
def _gauss_legendre(points: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on [−1, 1], computed once."""
    return np.polynomial.legendre.leggauss(points)


def _log_gamma_ratio(x: float, step: float) -> float:
    """Return lnΓ(x + step) − lnΓ(x) without cancellation when x is large."""
    if x > 50.0 and step < x:
        nodes, weights = _gauss_legendre(24)
        return float(0.5 * step * weights @ special.digamma(x + 0.5 * step * (nodes + 1.0)))
    return float(special.gammaln(x + step) - special.gammaln(x))


# ------------------------------------------------------------------ hockey-stick divergences
def _log_hockey_stick(
    epsilon: FloatArray, t: FloatArray, upper: tuple[float, float], lower: tuple[float, float]
) -> FloatArray:
    """Log of [F(y; upper) − e^ε F(y; lower)]₊ with F the Beta distribution function and y = expit(−t)."""
    log_y = special.log_expit(-t)
    log_p = _log_lower_tail(*upper, log_y)
    log_q = _log_lower_tail(*lower, log_y)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = log_p + np.log(-np.expm1(np.minimum(epsilon + log_q - log_p, 0.0)))
    return np.where(log_p == -np.inf, -np.inf, np.minimum(value, 0.0))


def log_worst_case_delta(epsilon: ArrayLike, k: float, h: float, omega: float) -> FloatArray:
    """Logarithm of `worst_case_delta`, for any real epsilon (vectorised over it)."""
    values = np.asarray(epsilon, dtype=float)
    if h == 0:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(-np.expm1(np.minimum(values, 0.0))))
    if omega == 0 or k >= LARGEST_K:
        return np.zeros_like(values)
    s, m = k * omega, k * h / 2.0
    size = np.abs(values)
    with np.errstate(divide="ignore", over="ignore"):
        log_delta = _log_hockey_stick(size, size / m, (s, s + m), (s + m, s))  # dominating pair, C = 0
        # Mirror symmetry: δ(−ε) = 1 − e^{−ε} (1 − δ(ε)).
        return np.where(values >= 0, log_delta, np.log1p(-np.exp(-size) * -np.expm1(log_delta)))


def worst_case_delta(epsilon: float, k: float, h: float, omega: float) -> float:
    """Exact δ at `epsilon` >= 0, in the worst case over rows whose entries are at least `omega`."""
    epsilon = check_in_range(epsilon, "epsilon", 0, math.inf)
    check_row_settings(k, h, omega)
    return float(np.exp(log_worst_case_delta(epsilon, k, h, omega)))


def worst_case_epsilon(delta: float, k: float, h: float, omega: float) -> float:
    """Return the exact ε at `delta` of the worst row with entries of at least `omega`; infinite without a floor.

    >>> [round(worst_case_epsilon(0.05, k, h=0.03, omega=0.1), 3) for k in (50, 200)]
    [0.479, 1.398]
    """
    check_delta(delta)
    check_row_settings(k, h, omega)
    epsilon = _solve_epsilon(lambda e: float(log_worst_case_delta(e, k, h, omega)), delta)
    return max(epsilon, vanishing_k_epsilon(delta, h, omega))  # at a k so small that products with it underflow


def vanishing_k_epsilon(delta: float, h: float, omega: float) -> float:
    """Return the least ε of one row at `delta` over all k: (h/2ω) ln( (h/2) / ((2ω + h/2) δ) )."""
    check_delta(delta)
    check_row_settings(1.0, h, omega)
    if h == 0:
        return 0.0
    if omega == 0:
        return math.inf
    ratio = h / (2.0 * omega)
    return max(0.0, ratio * math.log(ratio / ((2.0 + ratio) * delta)))


def adjacent_row(row: ArrayLike, i: int, j: int, h: float) -> FloatArray:
    """Return the row that differs from `row` by h/2 less in entry `i` and h/2 more in entry `j`, if there is one."""
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
    """Return the exact δ at `epsilon` of a row and its neighbour (entry i down by h/2, j up): the larger direction."""
    epsilon = check_in_range(epsilon, "epsilon", 0, math.inf)
    return float(np.exp(_log_pair_delta(epsilon, row, i, j, check_positive(k, "k"), h)))


def pair_epsilon(delta: float, row: ArrayLike, i: int, j: int, k: float, h: float) -> float:
    """Return the exact ε at `delta` of one row and its neighbour; infinity if the move empties an entry."""
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
    return float(np.maximum(forward, _log_hockey_stick(eps, (eps + c) / m, (low, b + m), (a, b))))


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
    return math.nextafter(float(optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-13)), math.inf)


# ------------------------------------------------------------------ Rényi divergence
def renyi_limit(h: float, omega: float, entries: Entries = "two") -> float:
    """Least order at which the Rényi bound is no longer available (infinity if h is 0)."""
    check_choice(entries, "entries", ENTRIES)
    if h == 0:
        return math.inf
    ratio = 2.0 * omega / h
    return 1.0 + ratio if entries == "two" else min(1.0 + ratio, max(1.0, ratio**2))


def renyi_divergence(order: ArrayLike, k: float, h: float, omega: float, entries: Entries = "two") -> FloatArray:
    """Rényi divergence of the given order(s) > 1, worst case over rows with entries >= `omega`.

    At `renyi_limit` and beyond it is infinite: the moment does not exist (``entries="two"``), or the proof does not
    reach (``entries="any"``).
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
        nodes, weights = _gauss_legendre(24)
        along = 0.5 * step[..., None] * (nodes + 1.0)
        rise = special.digamma(high + along) - special.digamma(np.where(smooth, low, 1.0)[..., None] + along)
        total = np.where(smooth, 0.5 * step * (rise @ weights), total)
    return np.where(inside, np.maximum(total, 0.0) / (lam - 1.0), np.inf)


# ------------------------------------------------------------------ Theorem 2
def theorem2_epsilon(k: float, h: float, omega: float, omega_bar: float, n_protected: int, delta: float) -> float:
    """Return the ε of Theorem 2 (corrected) at a fixed `delta`.

    Each of the `n_protected` entries in W is at least `omega`, and two of them move by h/2 in opposite directions; the
    other entries add up to at least `omega_bar`. An output lies outside the good set with probability `delta`.

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


def _log_miss(log_psi: float, shapes: FloatArray, total: float) -> float:
    """Log-probability (Hunter's bound) that some of the Dirichlet entries with these shapes is below ψ."""
    if log_psi >= -math.log(len(shapes)):
        return 0.0  # they cannot all reach it
    singles = np.array([float(_log_lower_tail(a, total - a, np.asarray(log_psi))) for a in shapes])
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

    def height(u: FloatArray) -> FloatArray:
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
    nodes, weights = _gauss_legendre(20)
    half = 0.5 * np.diff(edges)[:, None]
    u = edges[:-1, None] + half * (nodes + 1.0)
    x = psi * np.exp(u)
    density = half * weights * np.exp(height(u) - top)
    mean = (density * special.betainc(b, rest, np.minimum(psi / (1.0 - x), 1.0))).sum() / density.sum()
    return float(mean) * (1.0 - margin)


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
