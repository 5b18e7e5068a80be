"""Pool pumps that follow a signal: spells, and the signal itself."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dp_ensemble_env import scenarios
from dp_ensemble_env.scenarios import tracking


def test_spells_of_pumps_last_as_the_habits_say():
    chain = tracking.Habits(6.0, 10.0, 1.5).behaviour()
    assert_allclose(chain.sum(axis=1), 1.0)
    size = tracking.MEMORY
    for switch, hours in ((1, 6.0), (0, 10.0)):
        block = chain[switch * size : (switch + 1) * size, switch * size : (switch + 1) * size]
        mean = np.linalg.solve(np.eye(size) - block, np.ones(size))[0] * tracking.STEP_HOURS
        assert mean == pytest.approx(hours, abs=0.3)  # whole half hours, and rare early ends
        # every change begins a new spell
        assert_allclose(chain[switch * size : (switch + 1) * size].sum(axis=1), 1.0)
        assert (chain[switch * size : (switch + 1) * size, (1 - switch) * size] > 0).all()


def test_the_signal_is_bounded_and_moves_both_ways():
    values = tracking.signal(np.random.default_rng(0))
    assert np.abs(values).max() == pytest.approx(0.2) and values.min() < 0 < values.max()
    model = scenarios.make("tracking")
    assert model.coupling.level[0] == pytest.approx(model.initial @ model.power_kw)
    assert 0.0 < model.coupling.level.min() and model.coupling.level.max() < 1.0
