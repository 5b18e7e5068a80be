"""Pool pumps: the clock of their programmes, what imbalance costs, and what the probes leave."""

import numpy as np
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.control.returns import optimal_tilts
from dp_ensemble_env.scenarios import pool_pumps as pp

H = len(pp.HOURS)


@pytest.fixture(scope="module")
def model():
    return scenarios.make("pool-pumps")


def test_the_clock_counts_the_time_in_the_mode():
    """Follow one pump: on for three steps, then off."""
    nature, behaviour = pp.clockwork(), pp.TEXTBOOK.behaviour()
    state = H + 5  # on, 2.5 hours
    for _ in range(3):
        assert behaviour[state, state] > 0 and np.count_nonzero(behaviour[state]) == 2
        state = int(np.argmax(nature[state]))
    assert state == H + 8
    assert behaviour[state, 0] == pytest.approx(1.0 - behaviour[state, state])  # to switch is to start from zero
    assert np.argmax(nature[0]) == 1 and np.argmax(nature[2 * H - 1]) == 2 * H - 1  # the last hour stands for more
    assert (nature.sum(axis=1) == 1.0).all() and set(np.unique(nature)) == {0.0, 1.0}


def test_imbalance_pays_by_context(model):
    for w, price in enumerate(pp.Day.draw(pp.streams("pool-pumps", 0)[0]).imbalance):
        assert model.utility[7, w, H + 3] == pytest.approx(-price * 1.0 * 0.5) and model.utility[7, w, 3] == 0.0
    tilt = optimal_tilts(model)
    start = tilt[:40, :, H] - tilt[:40, :, 4]  # start a pump that has rested for two hours, or let it be
    assert (start[:, 0] > 0.3).all() and (start[:, 2] < -0.3).all()
