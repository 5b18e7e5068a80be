"""The campus, its row and a small study of it, computed once for all tests of the case study."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.meter import PowerSeries
from dp_ensemble_env.paper import measures
from dp_ensemble_env.paper.data import campus_data
from dp_ensemble_env.paper.study import run_study


@pytest.fixture(scope="session")
def small():
    """Little Monte Carlo; everything exact is as in a full run."""
    return measures.Effort((10.0, 50.0, 200.0, 1000.0), 60, 200, 20, 400, 40_000, 2_000, 500)


@pytest.fixture(scope="session")
def study(small):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "has_stable_baselines3", lambda: False)  # Z-learning alone
        return run_study(campus_data(), small, 0, lambda words: None)


@pytest.fixture(scope="session")
def row(study):
    return study.row


@pytest.fixture(scope="session")
def quarter_hours():
    """A function that makes some days of readings with a peak after noon."""

    def make(first, days, level=100.0):
        times = np.datetime64(f"{first}T00:00:00") + 900 * np.arange(96 * days)
        hour = np.arange(96 * days) % 96 / 4
        wobble = 6 * np.sin(1.7 * np.arange(96 * days)) + 4 * np.cos(0.3 * np.arange(96 * days))
        return PowerSeries(times, level + 60 * np.exp(-(((hour - 14) / 4) ** 2)) + wobble, np.timedelta64(900, "s"))

    return make
