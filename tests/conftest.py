"""Fixtures that several test files share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.scenarios.campus import campus_event

# Compilation and a busy machine make single examples slow; the examples stay the same on every run.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def campus() -> EnsembleModel:
    return campus_event()
