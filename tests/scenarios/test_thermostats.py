"""Air conditioners: the physics of rooms, the owners' habits, what each weather is worth, and what the probes leave."""

import numpy as np
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.scenarios import thermostats as th

ROOMS, OFF, ON, BOOST = len(th.TEMPERATURES), 0, 1, 2


@pytest.fixture(scope="module")
def model():
    return scenarios.make("thermostats")


def integrated(temperature, outdoors, kw, hours=th.STEP_HOURS, steps=20_000):
    """Integrate the room's equation by small steps."""
    for _ in range(steps):
        temperature += ((outdoors - temperature) / th.RESISTANCE - th.COP * kw) / th.CAPACITY * hours / steps
    return temperature


@pytest.mark.parametrize("mode", [OFF, ON, BOOST])
def test_a_step_is_the_integral_of_the_heat_balance(mode):
    block = th.room(33.0, mode, th.RESISTANCE, th.CAPACITY)
    inside = slice(2, -2)  # the grid does not hold the temperature back there
    expected = [integrated(x, 33.0, th.MODE_KW[mode]) for x in th.TEMPERATURES[inside]]
    np.testing.assert_allclose((block @ th.TEMPERATURES)[inside], expected, atol=2e-5)
    assert (np.count_nonzero(block, axis=1) <= 2).all()


def test_a_thermostat_has_hysteresis_and_a_decision_keeps_the_temperature():
    table = th.TEXTBOOK.behaviour().reshape(3, ROOMS, 3, ROOMS)
    for room in range(ROOMS):
        assert table[:, room].sum(axis=(1, 2)) == pytest.approx(1.0)
        assert np.delete(table[:, room], room, axis=2).sum() == 0.0
    middle = int(np.argmin(np.abs(th.TEMPERATURES - 22.5)))
    assert table[OFF, middle, OFF, middle] > 0.8 and table[ON, middle, ON, middle] > 0.8
    assert table[OFF, -1, ON, -1] > 0.95 and table[ON, 0, OFF, 0] > 0.95


def test_the_margin_by_weather_and_hour(model):
    day = th.Day.draw(th.streams("thermostats", 0)[0])
    power, last = model.power_kw, ROOMS - 1
    assert power[BOOST * ROOMS] == 5.6 and power[OFF * ROOMS] == 0.0
    by_time = {str(time)[11:16]: t for t, time in enumerate(model.times)}
    for clock, factor in (("16:00", 1.0), ("16:15", 1.5), ("20:00", 1.5), ("20:15", 1.0)):
        for w, spot in enumerate(day.spot):
            value = model.utility[by_time[clock], w, BOOST * ROOMS]
            assert value == pytest.approx((day.tariff - factor * spot) * 5.6 * 0.25)
    cold, hot = model.utility[5, 1, OFF * ROOMS], model.utility[5, 1, OFF * ROOMS + last]
    assert cold == 0.0 and hot == pytest.approx(-0.1 * 0.25 * (th.TEMPERATURES[last] - 25.0))
    assert model.event.in_event.sum() == 16
    warmer = model.tables().nature[20, :, OFF * ROOMS + 6] @ np.tile(th.TEMPERATURES, 3)
    assert (np.diff(warmer) > 0.03).all()  # breeze, fair, lull
