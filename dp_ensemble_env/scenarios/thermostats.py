"""Air conditioners that a retailer steers through an afternoon of changing weather.

**Nature** is the first-order model of a room: the temperature relaxes with the time constant R C towards that outdoors,
less R times the heat that the unit takes out. Homes differ in R and C, so a row of nature is a mixture over homes.

**Behaviour** is private: where owners set the thermostat, at which temperature they lose patience and press *boost*,
and how long they leave it on. The textbook takes a boost for over after a quarter of an hour or so.

**Context** is the weather: a sea breeze brings wind power and cooler air, a lull brings heat and scarcity prices. The
retailer sells at a flat tariff and buys at the spot price, so it gains from use in one weather and loses in the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from dp_ensemble_env.chain.event import EventTimeline
from dp_ensemble_env.model import EnsembleModel, FloatArray
from dp_ensemble_env.scenarios import Card, Scenario
from dp_ensemble_env.scenarios.build import assemble, carried, clock_times, neighbours, settled, streams, usual_context
from dp_ensemble_env.shapes import Axis

MODES = ("off", "on", "boost")
#: Temperatures of the states in degrees Celsius.
TEMPERATURES = 20.0 + 0.4 * np.arange(16)
#: Electrical power in kW of each mode: a two-stage unit, the low stage under its thermostat, both stages in a boost.
MODE_KW = np.array([0.0, 2.8, 5.6])
COP = 2.5
#: Thermal resistance in K/kW and capacity in kWh/K of the typical home, and by how much homes differ.
RESISTANCE, CAPACITY, SPREAD = 2.0, 10.0, (0.8, 1.0, 1.2)
STEP_HOURS, FIRST_HOUR, HORIZON = 0.25, 10.0, 48
#: Hours of the peak event, and how much dearer the spot price is in it.
PEAK, PEAK_FACTOR = (16.0, 20.0), 1.5
WEATHERS = ("breeze", "fair", "lull")
#: Dollars that a home is paid per kelvin and hour above 25 degrees.
COMPENSATION, WARM = 0.1, 25.0


@dataclass(frozen=True)
class Day:
    """What is public in one instance: weather, spot prices and tariff."""

    outdoors: tuple[float, float, float] = (27.0, 32.0, 37.0)
    """Highest temperature of the day, at 15:00, in each weather, degrees Celsius."""
    spot: tuple[float, float, float] = (0.02, 0.2, 1.2)
    """Dollars per kWh in each weather, outside the peak."""
    stay: float = 0.88
    """Probability that a weather lasts another quarter of an hour."""
    tariff: float = 0.36
    """Dollars per kWh that homes pay."""

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Day:
        """Draw a summer day."""
        fair = rng.uniform(31.0, 33.0)
        outdoors = (fair - rng.uniform(4.0, 6.0), fair, fair + rng.uniform(4.0, 6.0))
        spot = (rng.uniform(0.0, 0.04), rng.uniform(0.15, 0.25), rng.uniform(1.0, 1.4))
        return cls(outdoors, spot, rng.uniform(0.86, 0.9), rng.uniform(0.33, 0.39))

    def outdoors_at(self, weather: int, hour: float) -> float:
        """Return the temperature outdoors in the step that begins then, taken at its middle."""
        return float(self.outdoors[weather] - 4.0 * (1.0 - np.cos(2.0 * np.pi * (hour + STEP_HOURS / 2 - 15.0) / 24.0)))


@dataclass(frozen=True)
class Habits:
    """How owners run their units: on above ``setpoint + band``, off below ``setpoint - band``."""

    setpoint: float = 22.5
    band: float = 0.5
    softness: float = 0.25
    """Of both logistic probabilities, in kelvin: owners differ."""
    impatience: float = 0.01
    """Probability per step of pressing boost in a hot room; at `patience` degrees it is half of that."""
    patience: float = 24.5
    hold: float = 0.3
    """Probability that a boost is left on for another step, unless the room is cold."""

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Habits:
        """Draw the habits of a neighbourhood."""
        return cls(
            setpoint=rng.uniform(22.75, 23.25),
            softness=rng.uniform(0.3, 0.5),
            impatience=rng.uniform(0.15, 0.35),
            patience=rng.uniform(24.3, 24.8),
            hold=rng.uniform(0.94, 0.97),
        )

    def behaviour(self) -> FloatArray:
        """Return the probabilities of the next mode, (n, n): the decision keeps the temperature and sets the mode."""
        warm = expit((TEMPERATURES - self.setpoint - self.band) / self.softness)
        cold = expit((self.setpoint - self.band - TEMPERATURES) / self.softness)
        press = self.impatience * expit((TEMPERATURES - self.patience) / 0.4)
        keep = self.hold * expit((TEMPERATURES - 20.75) / 0.25)
        table = np.empty((3, 3, len(TEMPERATURES)))
        table[0] = (1 - warm) * (1 - press), warm * (1 - press), press
        table[1] = cold * (1 - press), (1 - cold) * (1 - press), press
        table[2] = cold * (1 - keep), (1 - cold) * (1 - keep), keep
        return carried(table)


#: A thermostat at 22.5 ± 0.5 degrees; a boost is rare and soon over.
TEXTBOOK = Habits()


def room(outdoors: float, mode: int, resistance: Any, capacity: Any) -> FloatArray:
    """Return where the temperature of a home goes in one step, (16, 16), rows summing to one.

    The exact solution of ``C dT/dt = (outdoors - T)/R - COP kW``, shared out between the two neighbouring temperatures
    so that the mean is exact, and kept inside the grid; of several homes, R and C given as lists, the mean.
    """
    r, c = np.broadcast_arrays(np.atleast_1d(resistance), np.atleast_1d(capacity))
    rest, kept = (outdoors - r * COP * MODE_KW[mode])[:, None], np.exp(-STEP_HOURS / (r * c))[:, None]
    width, last = TEMPERATURES[1] - TEMPERATURES[0], len(TEMPERATURES) - 1
    place = np.clip((rest + (TEMPERATURES - rest) * kept - TEMPERATURES[0]) / width, 0.0, last)
    below = np.minimum(np.floor(place).astype(int), last - 1)
    rows, out = np.broadcast_to(np.arange(last + 1), place.shape), np.zeros((last + 1, last + 1))
    np.add.at(out, (rows, below), 1.0 - (place - below))
    np.add.at(out, (rows, below + 1), place - below)
    return np.asarray(out / len(r))


def rooms(outdoors: float) -> FloatArray:
    """Return nature (n, n) at one temperature outdoors: the mode stays, the temperature moves as in a mix of homes."""
    size = len(TEMPERATURES)
    resistances, capacities = RESISTANCE * np.repeat(SPREAD, len(SPREAD)), CAPACITY * np.tile(SPREAD, len(SPREAD))
    out = np.zeros((len(MODES), size, len(MODES), size))
    for mode in range(len(MODES)):
        out[mode, :, mode] = room(outdoors, mode, resistances, capacities)
    return out.reshape(len(MODES) * size, len(MODES) * size)


def thermostats(
    seed: int = 0, *, discomfort_penalty: float = 0.4, loads: int = 1000, **overrides: Any
) -> EnsembleModel:
    """Build one afternoon and evening of a thousand homes (`loads`), 10:00 to 22:00 in quarter hours.

    The seed draws the day and, apart from it, the owners' habits. `overrides` are fields of `EnsembleModel`.
    """
    public, private = streams("thermostats", seed)
    day, habits = Day.draw(public), Habits.draw(private)
    hours: FloatArray = FIRST_HOUR + STEP_HOURS * np.arange(HORIZON + 1.0)
    nature = np.array([[rooms(day.outdoors_at(w, hour)) for w in range(len(WEATHERS))] for hour in hours[:-1]])
    guess, times = TEXTBOOK.behaviour(), clock_times("2018-07-02", FIRST_HOUR, STEP_HOURS, HORIZON)
    begin = hours - STEP_HOURS  # of the interval that ends at each time
    in_peak = (begin >= PEAK[0]) & (begin < PEAK[1])
    spot = np.outer(np.where(in_peak, PEAK_FACTOR, 1.0), day.spot)
    weather = usual_context(neighbours(3 * [day.stay]), WEATHERS)
    return assemble(
        overrides,
        factor=2.4,
        default=habits.behaviour(),
        nature=nature,
        context=weather,
        utility=_utility(day, spot),
        power_kw=np.repeat(MODE_KW, len(TEMPERATURES)),
        discomfort_penalty=discomfort_penalty,
        loads=loads,
        # as textbook homes are spread after a morning of fair weather: nobody's data are in it
        initial=settled(guess, nature[:1, 1], np.eye(len(guess))[5], 200),
        times=times,
        event=EventTimeline(times, spot @ weather.start, np.zeros(HORIZON + 1), in_peak),
        guess=guess,
        axes=(Axis("unit", MODES), Axis("temperature (°C)", tuple(TEMPERATURES.tolist()))),
    )


def _utility(day: Day, spot: FloatArray) -> FloatArray:
    """Return the retailer's margin on what a home draws at spot (T + 1, c), less compensation, (T + 1, c, n).

    At the end a kelvin that a room is warmer than the textbook's setpoint counts as the electricity, at the fair price,
    that takes it out again.
    """
    energy = np.repeat(MODE_KW, len(TEMPERATURES)) * STEP_HOURS
    rooms_now = np.tile(TEMPERATURES, len(MODES))
    utility: FloatArray = (day.tariff - spot)[..., None] * energy
    utility -= COMPENSATION * STEP_HOURS * np.maximum(rooms_now - WARM, 0.0)
    utility[-1] -= day.spot[1] * CAPACITY / COP * (rooms_now - TEXTBOOK.setpoint)
    return utility


SCENARIO = Scenario(
    thermostats,
    Card(
        title="Thermostats",
        load="air conditioners",
        story=(
            "A retailer sells at a flat tariff and buys at spot prices that follow the weather: almost nothing while a "
            "sea breeze drives the wind farms, high prices in a lull, and half as much again in the peak event from "
            "16:00 to 20:00. It cools a thousand homes in advance while power is cheap, and lets rooms get warmer "
            "while it is expensive. But an owner who feels warm presses boost, and a boost lasts. The retailer pays "
            "compensation for rooms above 25 °C."
        ),
        states="3 modes of the unit (off, on at 2.8 kW, boost at 5.6 kW) times 16 room temperatures from 20 to 26 °C",
        sources=(
            "first-order room with R = 2 K/kW, C = 10 kWh/K, COP 2.5 and 5.6 kW (Callaway, Energy Conversion and "
            "Management, 2009; Hao and others, IEEE Transactions on Power Systems, 2015, have lighter rooms); homes "
            "differ by 20 % in R and C; weather, prices and habits are synthetic"
        ),
        private=(
            "the owners' behaviour: setpoints, when they press boost, and how long it stays on; the physics of the "
            "rooms, the weather, prices and the start are public"
        ),
        version=1,
    ),
)
