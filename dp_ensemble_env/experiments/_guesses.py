"""Plans that probes are made of: optimal tilts, the model without its context, and guesses made without data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.chain.walks import lazy_walk
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]

#: Lazy walks that the public guess is chosen from: weight of staying, decay per level, levels in reach.
STAY = (0.3, 0.6, 1.0, 3.0, 10.0)
DECAY = (0.1, 0.3, 0.5, 0.7, 0.9)
REACH = (1, 2, 5, 1000)


def optimal_tilts(model: EnsembleModel) -> FloatArray:
    """Return the optimal tilts (T, c, m) of a model."""
    tilts = solve_standard(model).tilt
    return tilts if tilts.ndim == 3 else tilts[:, None, :]


def context_shares(model: EnsembleModel) -> FloatArray:
    """Return the probability of every context at times 0 … T, (T + 1, c)."""
    return np.ones((model.horizon + 1, 1)) if model.context is None else model.context.distributions(model.horizon)


def mean_model(model: EnsembleModel, shares: FloatArray) -> EnsembleModel:
    """Return the model that an observer without the context would write down: everything averaged over it."""
    behaviour, nature, _, utility = model.tables()
    return model.override(
        default=np.einsum("tw,twsa->tsa", shares[:-1], behaviour),
        nature=None if model.nature is None else np.einsum("tw,twas->tas", shares[:-1], nature),
        utility=np.einsum("tw,tws->ts", shares, utility),
        context=None,
        guess=None,
    )


def lazy_guesses(model: EnsembleModel) -> Iterator[tuple[str, FloatArray]]:
    """Yield guesses of the default behaviour that need no data, each with its name.

    Where loads choose their next state, lazy walks over the levels, or over each axis of the states. Where nature
    decides with them, what a decision can be is public: lazy walks over the decisions that are possible in a state, and
    all of them equally likely. Walks that the support makes equal come once. Plans of coupled models take long, so
    every other value of the grid is left out there.
    """
    shape = model.default.shape
    n, m = shape[-2:]
    support = model.default > 0 if model.nature is not None else np.ones(shape, bool)
    if model.nature is not None:
        yield "all possible decisions alike", support / support.sum(axis=-1, keepdims=True)
    if n != m:
        return
    sizes, seen = [len(axis.values) for axis in model.axes], set()
    every = 1 if model.coupling is None else 2  # plans of coupled models take longer
    for stay, decay, reach in product(STAY[::every], DECAY[::every], REACH[::every]):
        walks = {"": lazy_walk(n, stay, decay, reach)}
        if len(sizes) > 1:
            along: FloatArray = np.eye(1)
            for size in sizes:
                along = np.kron(along, lazy_walk(size, stay, decay, reach)).astype(float)
            walks[" on each axis"] = along
        for where, walk in walks.items():
            guess = np.where(support, walk, 0.0)
            total = guess.sum(axis=-1, keepdims=True)
            if (total > 0).all() and (key := (guess / total).round(12).tobytes()) not in seen:
                seen.add(key)
                yield f"stay {stay:g}, decay {decay:g}, reach {min(reach, n - 1)}{where}", guess / total
