"""The campus day: which hour is which, what is owed and comes back, and what a plan must know."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.scenarios import campus_day as module
from dp_ensemble_env.scenarios.campus_day import DEBT_KWH, DEBTS, LEVELS, DaySettings, campus_day, rebound


@pytest.fixture(scope="module")
def model():
    return campus_day(1)  # a Thursday


def levels_of(model):
    """Behaviour between levels (T, L, L), of a building without debt."""
    return model.default.reshape(24, LEVELS, DEBTS, LEVELS, DEBTS)[:, :, 0, :, 0]


def test_prices_and_event_are_at_their_hours():
    model = campus_day(1, event_hour=14, incentive=1.0, night_price=0.08, day_price=0.15, evening_price=0.3)
    rate = -model.utility[:-1, 0] / model.power_kw[0]  # by the hour that ends at times[t]
    assert_allclose(rate[[1, 8, 9, 14, 15, 17, 18]], [0.08, 0.08, 0.15, 0.15, 1.15, 1.15, 1.3])
    assert_allclose(rate[[19, 20, 21, 22, 23]], [0.3, 0.3, 0.3, 0.15, 0.08])
    assert str(model.times[15])[11:16] == "15:00"  # the first hour of the event ends then
    # What is owed at midnight, after the share that was made up in the last hour, costs the price of the night.
    assert_allclose(model.utility[-1, DEBTS - 1] - model.utility[-1, 0], -0.08 * (DEBTS - 1) * DEBT_KWH)


def test_behaviour_is_that_of_the_hour_which_has_ended(model):
    data = module._data(*(getattr(DaySettings.draw(1), name) for name in ("campus", "warmth")))
    assert np.is_busday(data.day) and np.is_busday(data.day - 1)
    assert_array_equal(levels_of(model), np.roll(data.chain.tables[:, 0], 1, axis=0))
    blocks = model.default.reshape(24, LEVELS, DEBTS, LEVELS, DEBTS)
    for debt in range(DEBTS):  # the debt is carried along and changes nothing
        assert_array_equal(blocks[:, :, debt, :, debt], levels_of(model))
    assert_allclose(blocks.sum(axis=(1, 2, 3, 4)), LEVELS * DEBTS)
    assert ((model.guess > 0) >= (model.default > 0)).all()  # the public guess rules out nothing that happens


def test_nature_keeps_the_books():
    """Mean debt against a scalar recursion in kWh: two hours at 150 kW where 300 are usual, then back at 300."""
    usual, power = np.full(12, 300.0), np.array([150.0, 230.0, 300.0])
    nature = rebound(usual, power).reshape(12, 3, DEBTS, 3, DEBTS)
    path = [1, 1] + [2] * 10
    chance, owed, recovered = np.eye(DEBTS)[0], 0.0, 0.0
    for hour, level in enumerate(path):
        chance = chance @ nature[hour, level, :, level, :]
        owed = owed * 0.75 + 0.9 * max(0.0, 0.9 * 300 - power[level])
        recovered += 0.25 * owed
        assert chance @ np.arange(DEBTS) * DEBT_KWH == pytest.approx(owed)
    assert recovered + 0.75 * owed == pytest.approx(0.9 * 2 * (270 - 230))  # all that is owed comes back in the end
    assert nature[:, 0, :, 1:].sum() == 0  # the level is the loads' decision
    top = nature[0, 0, DEBTS - 1, 0]
    assert_array_equal(top, np.eye(DEBTS)[DEBTS - 1])  # beyond the largest debt nothing more is owed
