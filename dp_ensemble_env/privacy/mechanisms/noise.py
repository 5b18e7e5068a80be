r"""Sources of noise: exact, discrete and cryptographic for publication, NumPy's in experiments.

The doubles that a sampler can reach betray its input, so nothing that is published is drawn in floating point.

*Sums* of whole numbers get discrete Gaussian or Laplace noise from OpenDP's cryptographic source, whose own map says
what that costs: ρ-zCDP with :math:`\rho = \Delta^2/2s^2`, or ε. `check_proven` asks the map before anything is drawn.

*Dirichlet draws* are published by Pólya's urn. It holds :math:`w_a` tickets of each colour; each of M balls takes
the colour of a ticket drawn at random, and D tickets of that colour are added. The numbers of balls are
:math:`\mathrm{Multinomial}(M, \mathrm{Dir}(w/D))`: a function of the Dirichlet draw, so its guarantee holds, and
nothing but whole numbers is computed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from dp_ensemble_env.privacy.mechanisms.base import Seeding
from dp_ensemble_env.tools.validation import check_choice

FloatArray = NDArray[np.float64]
Tail = Callable[[float], float]  #: How many standard deviations a noise exceeds with about some probability.
GRID = 2**24  #: Contributions are cut off to multiples of one over this: sums and published noise are whole numbers.
MOST_TICKETS = 2**62  #: Tickets of all balls and colours together: random numbers of 64 bits choose among them.


def on_grid(values: FloatArray) -> FloatArray:
    """Cut off towards zero to multiples of 1 / GRID, which lengthens no contribution; the factor covers rounding."""
    return np.trunc(values * (GRID * (1.0 - 1e-12)))


def require_source(seeding: Seeding) -> None:
    """Refuse a draw for publication without a cryptographic source of discrete noise."""
    if seeding == "os-entropy":
        try:
            import opendp  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "a release for publication draws its noise with OpenDP; install it with pip install "
                "'dp-ensemble-env[opendp]', or pass rng= for an experiment."
            ) from error


def _measurement(kind: str, scale: float) -> Any:
    """Return OpenDP's discrete noise on a vector of whole numbers of the grid."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "gaussian":
        return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale * GRID)
    return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale * GRID)


def check_proven(kind: str, scale: float, sensitivity: float, most: float) -> None:
    """Refuse published noise of which OpenDP's own map proves less than is claimed: ρ of zCDP, for Laplace noise ε."""
    distance: Any = sensitivity * GRID if kind == "gaussian" else math.ceil(sensitivity * GRID)
    if (shown := float(_measurement(kind, scale).map(distance))) > most:
        cost = f"is proven to cost {shown!r}, more than the {most!r} that was charged"
        raise ValueError(f"{kind} noise of scale {scale!r} {cost}; charge the draw itself.")


def add_noise(
    sums: NDArray[np.int64], kind: str, scale: float, rng: np.random.Generator, seeding: Seeding
) -> FloatArray:
    """Add Gaussian noise of this standard deviation, or Laplace noise of this scale, and leave the grid."""
    check_choice(kind, "kind of noise", ("gaussian", "laplace"))
    if seeding != "os-entropy":
        drawn = rng.normal(0.0, scale, sums.shape) if kind == "gaussian" else rng.laplace(0.0, scale, sums.shape)
        return np.asarray(sums / GRID + drawn)
    return np.array(_measurement(kind, scale)([int(value) for value in sums]), dtype=float) / GRID


# ------------------------------------------------------------------ what noise alone would do
def normal_tail(probability: float) -> float:
    """Return roughly the number of standard deviations that a normal variate exceeds with this probability."""
    return math.sqrt(2.0 * math.log(1.0 / probability))


def positive_mean(values: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return the means of normal variates that are known to be positive."""
    x = np.clip(values / np.maximum(deviation, 1e-300), -30.0, 9.0)  # beyond nine nothing is added
    ratio = np.exp(-0.5 * x * x - 0.5 * math.log(2.0 * math.pi) - log_ndtr(x))
    return np.asarray(np.where(x < 9.0, deviation * (x + ratio), values))


# ------------------------------------------------------------------ Pólya's urn
def polya_urn(
    tickets: Sequence[int] | NDArray[np.int64], added: int, balls: int, entropy: Callable[[int], bytes] = os.urandom
) -> NDArray[np.int64]:
    """Return how many of `balls` balls have each colour: Multinomial(balls, Dir(tickets / added))."""
    ends = np.cumsum(np.asarray(tickets, dtype=np.uint64))
    start = int(ends[-1])
    if start + balls * added > MOST_TICKETS:
        raise ValueError(f"an urn of {start} tickets cannot hold {balls} balls of {added}; draw fewer balls.")
    chosen = _below(np.uint64(start) + np.arange(balls, dtype=np.uint64) * np.uint64(added), entropy)
    fresh = chosen < start
    # A ticket that a ball has added leads to that ball, and so on to one that drew a ticket of the start.
    earlier = (chosen - np.where(fresh, chosen, start)) // np.uint64(added)
    leads = np.where(fresh, np.arange(balls), earlier).astype(np.int64)
    while not np.array_equal(further := leads[leads], leads):
        leads = further
    return np.bincount(np.searchsorted(ends, chosen[leads], side="right"), minlength=len(ends))


def _below(limits: NDArray[np.uint64], entropy: Callable[[int], bytes]) -> NDArray[np.uint64]:
    """Draw a whole number below each limit, exactly: words beyond the last whole multiple are drawn again."""
    drawn, left, largest = np.zeros(len(limits), dtype=np.uint64), np.arange(len(limits)), np.uint64(2**64 - 1)
    while left.size:
        words, limit = np.frombuffer(entropy(8 * left.size), dtype="<u8"), limits[left]
        fits = words <= largest - (largest % limit + np.uint64(1)) % limit
        drawn[left[fits]] = words[fits] % limit[fits]
        left = left[~fits]
    return drawn
