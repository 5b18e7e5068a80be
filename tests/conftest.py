"""Fixtures and instances that several test files share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

from dp_ensemble_env.campus import campus_event
from dp_ensemble_env.model import EnsembleModel

# Compilation and a busy machine make single examples slow; the examples stay the same on every run.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("suite")


def random_chain(rng: np.random.Generator, n: int, density: float = 0.5) -> np.ndarray:
    """Random stochastic matrix with zeros; every row keeps at least one successor."""
    mask = rng.random((n, n)) < density
    mask[np.arange(n), rng.integers(n, size=n)] = True
    weights = rng.gamma(0.7, size=(n, n)) * mask
    weights[mask] += 1e-3
    return weights / weights.sum(axis=1, keepdims=True)


def random_model(seed: int, n: int = 6, horizon: int = 5, density: float = 0.5, varying: bool = False) -> EnsembleModel:
    """Small random control problem."""
    rng = np.random.default_rng(seed)
    default = (
        np.stack([random_chain(rng, n, density) for _ in range(horizon)]) if varying else random_chain(rng, n, density)
    )
    return EnsembleModel(
        default=default,
        power_kw=np.sort(rng.uniform(10, 400, n)),
        utility=-rng.uniform(0, 60, (horizon + 1, n)),
        discomfort_penalty=float(rng.uniform(2, 20)),
    )


@pytest.fixture(scope="session")
def campus() -> EnsembleModel:
    return campus_event()
