"""Noise on sums of whole numbers: exact and cryptographic for publication, NumPy's in experiments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.privacy.mechanisms.base import Seeding
from dp_ensemble_env.tools.validation import check_choice

FloatArray = NDArray[np.float64]
#: Contributions are cut off to multiples of one over this, so that sums and published noise are whole numbers.
GRID = 2**24


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


def add_noise(
    sums: NDArray[np.int64], kind: str, scale: float, rng: np.random.Generator, seeding: Seeding
) -> FloatArray:
    """Add Gaussian noise of this standard deviation, or Laplace noise of this scale, and leave the grid.

    For publication the noise is discrete, exact, and comes from OpenDP's cryptographic source;
    with a generator or a seed it is NumPy's.
    """
    check_choice(kind, "noise", ("gaussian", "laplace"))
    if seeding != "os-entropy":
        drawn = rng.normal(0.0, scale, sums.shape) if kind == "gaussian" else rng.laplace(0.0, scale, sums.shape)
        return np.asarray(sums / GRID + drawn)
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    # One part in a million more: on this grid the δ of discrete and continuous noise differ by less.
    wide = scale * GRID * (1.0 + 1e-6)
    if kind == "gaussian":
        draw = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=wide)
    else:
        draw = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=wide)
    return np.array(draw([int(value) for value in sums]), dtype=float) / GRID
