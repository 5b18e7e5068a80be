"""Compiled helpers of the dynamics: exponential, logarithm, random numbers.

The exponential and the logarithm are written out so that the compiler can run
them on several environments at once; both are within one unit in the last
place or two of the library's (polynomials interpolated at Chebyshev nodes). Every operation is elementwise, so that one
environment alone and the same environment in a batch get the same bits.

The random numbers are xoroshiro128++ counters (Blackman and Vigna, 2018), two
64-bit words for each environment, seeded by NumPy's `SeedSequence`.
"""
# ruff: noqa: D103 - compiled one-liners, described above

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dp_ensemble_env.envs._four import power_of_two
from dp_ensemble_env.tools.compile import njit

#: Arrays of the compiled steps; what each holds is described in `dynamics`. Views of other element types are `Any`.
Ints = Any
Floats = Any
Bools = Any

_SHIFT = np.uint64(52)
# Bits of 1/sqrt(2) less 1024 exponents: the mantissa then falls in [0.707, 1.414).
_SPLIT = np.uint64((1024 << 52) - 4604544271217802188)
_BIAS = np.uint64(1024)
_TWO52 = np.uint64(0x4330000000000000)
#: Row of ``counters`` where the random streams begin.
STREAM = 3
_ULP53 = 1.0 / 9007199254740992.0


@njit(inline="always", error_model="numpy")
def fast_exp(x: Any) -> Any:
    """Exponential of a number or of four, -708 < x < 708: 2^k times a polynomial of degree 11 (error 2e-17)."""
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # rounds to an integer, left in the low bits
    k = shifted - 6755399441055744.0
    r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10
    # Pairs of terms, then Horner's rule in r^2: half the chain of operations that wait for one another.
    s = r * r
    p = 2.5100472505694996e-08 * r + 2.7620201591031547e-07
    p = p * s + (2.7557268276905696e-06 * r + 2.4801521057868204e-05)
    p = p * s + (1.9841269863171557e-04 * r + 1.3888888917367081e-03)
    p = p * s + (8.3333333333300390e-03 * r + 4.1666666666623824e-02)
    p = p * s + (1.6666666666666669e-01 * r + 5.0000000000000010e-01)
    p = p * s + (r + 1.0)
    return power_of_two(p, shifted)


@njit(inline="always", error_model="numpy")
def fast_log(x: float) -> float:
    """Logarithm of a normal positive number: k log 2 + 2 artanh((m-1)/(m+1)) (error 5e-18 of the second term)."""
    bits = np.float64(x).view(np.uint64)
    k = (bits + _SPLIT) >> _SHIFT
    m = np.uint64(bits - ((k - _BIAS) << _SHIFT)).view(np.float64)
    f = (m - 1.0) / (m + 1.0)
    s = f * f
    p = 7.3089035767086630e-02
    p = p * s + 7.6658058610275040e-02
    p = p * s + 9.0914462162684350e-02
    p = p * s + 1.1111105544689748e-01
    p = p * s + 1.4285714313126918e-01
    p = p * s + 1.9999999999949444e-01
    p = p * s + 3.3333333333333350e-01
    exponent = np.uint64(k | _TWO52).view(np.float64) - 4503599627371520.0  # k - 1024 as a double
    low = 2.0 * f * s * p + exponent * 1.90821492927058770002e-10
    return exponent * 6.93147180369123816490e-01 + (2.0 * f + low)


@njit(inline="always", error_model="numpy")
def uniform(counters: Ints, i: int) -> float:
    """Return a double in [0, 1) from the stream of environment `i`, advancing it."""
    a = np.uint64(counters[STREAM, i])
    b = np.uint64(counters[STREAM + 1, i])
    total = a + b
    out = ((total << np.uint64(17)) | (total >> np.uint64(47))) + a
    b ^= a
    counters[STREAM, i] = np.int64(((a << np.uint64(49)) | (a >> np.uint64(15))) ^ b ^ (b << np.uint64(21)))
    counters[STREAM + 1, i] = np.int64((b << np.uint64(28)) | (b >> np.uint64(36)))
    return np.float64(out >> np.uint64(11)) * _ULP53


@njit(inline="always", error_model="numpy")
def unread(counters: Ints, i: int) -> None:
    """Set the stream of environment `i` back by one number."""
    a, b = np.uint64(counters[STREAM, i]), np.uint64(counters[STREAM + 1, i])
    b = (b >> np.uint64(28)) | (b << np.uint64(36))
    a ^= b ^ (b << np.uint64(21))
    a = (a >> np.uint64(49)) | (a << np.uint64(15))
    counters[STREAM, i] = np.int64(a)
    counters[STREAM + 1, i] = np.int64(a ^ b)


@njit(cache=True, nogil=True, error_model="numpy")
def binomial(counters: Ints, i: int, count: int, p: float) -> int:
    """Return a binomial variate: inversion where the mean is small, BTRS (Hörmann, 1993) elsewhere."""
    if count <= 0 or p <= 0.0:
        return 0
    if p >= 1.0:
        return count
    if p > 0.5:
        return count - _binomial_half(counters, i, count, 1.0 - p)
    return _binomial_half(counters, i, count, p)


@njit(cache=True, nogil=True, error_model="numpy")
def _binomial_half(counters: Ints, i: int, count: int, p: float) -> int:
    odds = p / (1.0 - p)
    if count * p < 10.0:
        probability = math.exp(count * math.log1p(-p))
        u = uniform(counters, i)
        hits = 0
        while u > probability and hits < count:
            u -= probability
            hits += 1
            probability *= odds * (count - hits + 1) / hits
        return hits
    spread = math.sqrt(count * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = count * p + 0.5
    v_r = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * spread
    mode = math.floor((count + 1) * p)
    while True:
        u = uniform(counters, i) - 0.5
        v = 1.0 - uniform(counters, i)
        us = 0.5 - abs(u)
        k = math.floor((2.0 * a / us + b) * u + c) if us > 0.0 else -1.0
        if us >= 0.07 and v <= v_r:
            return int(k)
        if k < 0.0 or k > count:
            continue
        v = math.log(v * alpha / (a / (us * us) + b))
        bound = (
            math.lgamma(mode + 1.0)
            + math.lgamma(count - mode + 1.0)
            - math.lgamma(k + 1.0)
            - math.lgamma(count - k + 1.0)
            + (k - mode) * math.log(odds)
        )
        if v <= bound:
            return int(k)
