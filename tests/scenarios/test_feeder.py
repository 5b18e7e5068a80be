"""Water heaters behind a feeder: the energy balance of a tank, thermostats, and charging ahead of the limit."""

from __future__ import annotations

import pytest
from numpy.testing import assert_allclose

from dp_ensemble_env import scenarios
from dp_ensemble_env.scenarios import feeder


def test_a_tank_keeps_its_energy_balance():
    model = scenarios.make("feeder")
    morning = feeder.Morning(10.0, 208.0, 1.0, 0.3, 7.5, 1.0)
    size, t = len(feeder.TEMPERATURES), 20  # 7:20
    nature = morning.nature()[t].reshape(2, size, 2, size)
    litres = 0.107 * 208.0 / 6.0
    for switch in range(2):
        assert_allclose(nature[switch, :, 1 - switch], 0.0)
        mean = nature[switch, :, switch] @ feeder.TEMPERATURES
        inside = slice(6, 15)  # far from the ends of the grid
        before = feeder.TEMPERATURES[inside]
        heat_kwh = 0.19 * 4.186 / 3.6 * (mean[inside] - before)
        drawn_kwh = litres * 4.186 / 3600 * (before - 10.0)
        assert_allclose(heat_kwh, 4.5 * switch / 6 - drawn_kwh - (0.0015 * (before - 20.0) / 6), atol=1e-12)
    assert_allclose(model.nature.sum(axis=-1), 1.0)


def test_thermostats_switch_at_their_setpoints():
    behaviour = feeder.Habits(52.0, 8.0, 0.01).behaviour()
    size = len(feeder.TEMPERATURES)
    cold, hot = 2, size - 2  # 36 and 64 degrees
    assert behaviour[cold, size + cold] == pytest.approx(1.0)  # off and cold: on
    assert behaviour[size + hot, hot] == pytest.approx(1.0)  # on and hot: off
    warm = 8  # 48 degrees, inside the dead band: as it was
    assert behaviour[warm, warm] == behaviour[size + warm, size + warm] == pytest.approx(1.0)
