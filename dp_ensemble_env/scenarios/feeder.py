"""Water heaters on a feeder that is short of room on a cold morning.

**Nature** is one well-mixed tank: heated by its element, cooled by its losses and by the cold water that replaces what
is drawn. Draws follow the hourly shares of a weekday, as sink draws and showers of fixed size. Each outcome is laid on
temperatures two kelvin apart so that its mean is exact.

**Behaviour** is private: where owners set their thermostats, how wide these switch, and how much they differ.

The textbook has one sharp thermostat for all. One whose owners differ by 1.2 kelvin would score 91, -3, 81 and 86 on
the first four instances instead of 79, -70, -1 and 51.

**Coupling** is a limit: what the other loads of the street leave of the transformer's rating. When people shower the
heat pumps run, too, so the limit is lowest when the heaters want most. Whoever waits until it binds has cold tanks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from dp_ensemble_env.chain.event import EventTimeline
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.model import EnsembleModel, FloatArray
from dp_ensemble_env.scenarios import Card, Scenario
from dp_ensemble_env.scenarios.build import assemble, between, carried, clock_times, settled, streams
from dp_ensemble_env.shapes import Axis

#: Shares of a weekday's hot water that are drawn in each hour (California, residential ACM manual).
DRAWN = (
    *(0.014, 0.008, 0.009, 0.011, 0.020, 0.044, 0.089, 0.107, 0.089, 0.066, 0.052, 0.038),
    *(0.036, 0.033, 0.032, 0.026, 0.042, 0.048, 0.052, 0.047, 0.042, 0.039, 0.036, 0.022),
)
#: Litres of a draw at the sink and of a shower; each kind takes half of the water.
DRAWS = (8.0, 40.0)
#: Temperatures of the states in degrees Celsius.
TEMPERATURES = 32.0 + 2.0 * np.arange(18)
#: Litres of a tank, kW of its element, kW lost per kelvin above the room's 20 degrees, kWh that heat it by a kelvin.
VOLUME, ELEMENT_KW, LOSS, ROOM = 190.0, 4.5, 0.0015, 20.0
CAPACITY = VOLUME * 4.186 / 3600.0
SWITCH = ("off", "on")
STEP_HOURS, FIRST_HOUR, HORIZON = 1.0 / 6.0, 4.0, 48
#: Dollars per kWh; per kelvin below 41 degrees (the shower's) and step; per kW above the limit and step.
ENERGY_PRICE, COLD, LUKEWARM, OVERLOAD = 0.16, 0.05, 41.0, 0.5
#: Nats that an action of one stands for.
TILT_SCALE = 6.0


@dataclass(frozen=True)
class Morning:
    """What is public in one instance."""

    inlet: float
    """Temperature of the cold water in degrees Celsius."""
    litres: float
    """Hot water that a home draws in the whole day."""
    room: float
    """The limit leaves each heater so many kW at night, and `least` at the worst moment."""
    least: float
    worst: float
    """Hour of the worst moment; the street is busy for `width` hours on either side of it."""
    width: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Morning:
        """Draw a winter morning."""
        low, high = (6.0, 185.0, 0.95, 0.28, 7.2, 0.9), (12.0, 230.0, 1.15, 0.42, 7.8, 1.2)
        return cls(*rng.uniform(low, high))

    def limit(self) -> FloatArray:
        """Return the limit in kW per heater at the times 0 … T."""
        hours = FIRST_HOUR + STEP_HOURS * np.arange(HORIZON + 1)
        busy = np.exp(-0.5 * ((hours - self.worst) / self.width) ** 4)
        return np.asarray(self.room - (self.room - self.least) * busy)

    def nature(self) -> FloatArray:
        """Return where tanks go, (T, n, n): the switch stays, the temperature moves."""
        size = len(TEMPERATURES)
        out = np.zeros((HORIZON, 2, size, 2, size))
        for t in range(HORIZON):
            litres = DRAWN[int(FIRST_HOUR + t * STEP_HOURS)] * self.litres * STEP_HOURS
            chance = [0.5 * litres / draw for draw in DRAWS]
            for switch in range(2):
                for draw, share in zip((0.0, *DRAWS), (1.0 - sum(chance), *chance), strict=True):
                    out[t, switch, :, switch] += share * self._tank(draw, switch)
        return out.reshape(HORIZON, 2 * size, 2 * size)

    def _tank(self, draw: float, switch: int) -> FloatArray:
        """Return where the temperature goes in a step with one draw, shared between the neighbours on the grid."""
        heat = (ELEMENT_KW * switch - LOSS * (TEMPERATURES - ROOM)) * STEP_HOURS / CAPACITY
        after = TEMPERATURES + heat - draw / VOLUME * (TEMPERATURES - self.inlet)
        return between((after - TEMPERATURES[0]) / (TEMPERATURES[1] - TEMPERATURES[0]), len(TEMPERATURES))


@dataclass(frozen=True)
class Habits:
    """How heaters are set: off at the setpoint, on when the tank is `band` kelvin colder."""

    setpoint: float
    band: float
    spread: float
    """By how much owners differ: the width of the logistic curves, in kelvin."""

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Habits:
        """Draw the habits of a street."""
        return cls(*rng.uniform((50.0, 6.0, 1.2), (54.0, 9.0, 2.0)))

    def behaviour(self) -> FloatArray:
        """Return the probabilities of the next switch, (n, n): a decision keeps the temperature and sets the switch."""
        on = expit((self.setpoint - self.band - TEMPERATURES) / self.spread)
        off = expit((TEMPERATURES - self.setpoint) / self.spread)
        return carried(np.array([[1 - on, on], [off, 1 - off]]))


#: One thermostat for all: 125 °F as in the federal test procedure, the mean of the bands that are drawn, sharp.
TEXTBOOK = Habits(51.7, 7.5, 0.7)


def feeder(seed: int = 0, *, discomfort_penalty: float = 0.1, loads: int = 100, **overrides: Any) -> EnsembleModel:
    """Build one cold morning of a street of water heaters, 4:00 to 12:00 in steps of ten minutes.

    The seed draws the morning and, apart from it, how heaters are set. `overrides` are fields of
    `EnsembleModel`.
    """
    public, private = streams("feeder", seed)
    morning, habits = Morning.draw(public), Habits.draw(private)
    nature, guess, limit = morning.nature(), TEXTBOOK.behaviour(), morning.limit()
    times = clock_times("2018-01-17", FIRST_HOUR, STEP_HOURS, HORIZON)
    return assemble(
        overrides,
        default=habits.behaviour(),
        nature=nature,
        coupling=Coupling.limit(limit, OVERLOAD),
        utility=_utility(),
        power_kw=np.repeat([0.0, ELEMENT_KW], len(TEMPERATURES)),
        discomfort_penalty=discomfort_penalty,
        loads=loads,
        # as textbook heaters are spread after a quiet night: nobody's data are in it
        initial=settled(guess, nature[:1], np.eye(len(guess))[9], 200),
        times=times,
        event=EventTimeline(
            times, np.full(HORIZON + 1, ENERGY_PRICE), np.zeros(HORIZON + 1), limit < 0.5 * (limit.min() + limit.max())
        ),
        tilt_scale=np.full(HORIZON, TILT_SCALE),
        guess=guess,
        axes=(Axis("element", SWITCH), Axis("tank (°C)", tuple(TEMPERATURES.tolist()))),
    )


def _utility() -> FloatArray:
    """Return the cost of energy and of lukewarm water, (T + 1, n); at the end the heat left is worth its price."""
    energy = np.repeat([0.0, ELEMENT_KW * STEP_HOURS], len(TEMPERATURES))
    tank = np.tile(TEMPERATURES, 2)
    utility = np.tile(-ENERGY_PRICE * energy - COLD * np.maximum(LUKEWARM - tank, 0.0), (HORIZON + 1, 1))
    utility[-1] += ENERGY_PRICE * CAPACITY * (tank - TEXTBOOK.setpoint)
    return utility


SCENARIO = Scenario(
    feeder,
    Card(
        title="Feeder",
        load="water heaters",
        story=(
            "A street of electric water heaters behind one transformer, on a cold weekday morning. From six to nine "
            "people take showers while the heat pumps run, and the street's other loads leave the heaters less than "
            "half of the power they would use. Each kW above that limit costs 50 cents per home every ten minutes. So "
            "the tanks must be heated earlier, little by little. The limit is known, so the best open loop scores 100: "
            "this scenario tests foresight and data, not feedback. The excess is also available as a cost for "
            "constrained learners."
        ),
        states="element off or on (4.5 kW) times 18 tank temperatures from 32 to 66 °C",
        sources=(
            "tank of 190 L and 4.5 kW; about 208 L of hot water a day and a setpoint of 125 °F as in the US test "
            "procedure (10 CFR 430, subpart B, appendix E); hourly shares of a weekday from California's residential "
            "ACM manual; limit, overload charge, comfort and habits are synthetic"
        ),
        private=(
            "the heaters' behaviour: setpoints, dead bands and how much owners differ; tanks, draws, the limit and the "
            "start are public"
        ),
        version=1,
    ),
)
