"""What the scenarios of single loads share: streams of random numbers, hours, starts and the scale of tilts."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.control.policies import centred, solve_standard
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.validation import check_count

FloatArray = NDArray[np.float64]


def streams(name: str, seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Return one stream for what is public in an instance of a scenario, and one for what is private."""
    root = np.random.SeedSequence([check_count(seed, "seed", 0), zlib.crc32(name.encode())])
    public, private = root.spawn(2)
    return np.random.default_rng(public), np.random.default_rng(private)


def clock_times(date: str, first_hour: float, step_hours: float, horizon: int) -> NDArray[np.datetime64]:
    """Return the times 0 … T of the decisions."""
    start = np.datetime64(date, "s") + np.timedelta64(round(3600 * first_hour), "s")
    return start + np.arange(horizon + 1) * np.timedelta64(round(3600 * step_hours), "s")


def lasting(transition: FloatArray) -> FloatArray:
    """Return the distribution that a chain comes to in the long run."""
    row = np.linalg.matrix_power(transition, 4096)[0]
    shares: FloatArray = row / row.sum()
    return shares


def settled(behaviour: FloatArray, nature: Iterable[FloatArray], start: FloatArray, rounds: int) -> FloatArray:
    """Return how loads are spread that followed `behaviour` for so many rounds through the steps of `nature`."""
    steps = [behaviour @ matrix for matrix in nature]
    spread = start
    for _ in range(rounds):
        for step in steps:
            spread = spread @ step
    shares: FloatArray = spread / spread.sum()
    return shares


def with_tilt_scale(model: EnsembleModel, factor: float) -> EnsembleModel:
    """Give a model the scale of tilts that a plan on its public guess needs, times `factor`; the same at all times."""
    guess = np.asarray(model.guess, dtype=float)
    tilts = solve_standard(model.with_default(guess)).tilt
    taken = (guess > 0).reshape(-1, model.n_decisions).any(axis=0)
    width = np.abs(centred(tilts, guess, taken)[..., taken]).max()
    return model.override(tilt_scale=np.full(model.horizon, factor * width))
