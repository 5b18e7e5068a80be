"""Electric cars at home chargers, steered by a retailer who buys at a price that the wind moves.

**Nature** is public: when cars leave and come home by the hour, what a trip uses, and the battery, which fills by
``efficiency * power * time``. Energy is laid on levels 6 kWh apart such that its mean is exact.

**Behaviour** is private: what an owner does on coming home, and what becomes of a charge that was put off. A *paused*
charger starts again by itself before long; one that is *off* stays so until somebody looks after it. The textbook
knows one habit: plug in, charge at once until full, and start again soon after any interruption.

**Context** is the price: wind surplus, normal, scarce. It lasts for hours and moves at random, on top of a time-of-use
tariff known beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_ensemble_env.model import EnsembleModel, FloatArray
from dp_ensemble_env.scenarios import Card, Scenario
from dp_ensemble_env.scenarios.build import assemble, carried, clock_times, neighbours, settled, streams, usual_context
from dp_ensemble_env.shapes import Axis

#: Where a car may be: `leaving` lasts one step, in which the unmet need counts, `arrived` until the first decision.
PLACES = ("away", "leaving", "arrived", "paused", "off", "slow", "fast")
#: What may be decided: an away car stays away, a car at home is put in one of four modes.
CHOICES = ("away", "paused", "off", "slow", "fast")
#: Energy in the battery of each level, kWh; the first is the reserve that nobody drives into.
LEVELS = 6.0 * np.arange(8)
SLOW_KW, FAST_KW, EFFICIENCY = 3.7, 7.4, 0.9
STEP_HOURS, FIRST_HOUR, HORIZON = 0.5, 12.0, 48
#: Hours of the dear time of the time-of-use tariff.
DEAR = (16.0, 21.0)
PRICES = ("surplus", "normal", "scarce")
#: Dollars for each kWh that is missing on leaving: a stop at a public fast charger, and the time it takes.
MISSING = 1.5


@dataclass(frozen=True)
class Day:
    """What is public in one instance."""

    spot: tuple[float, float, float] = (-0.1, 0.15, 0.9)
    """Dollars per kWh in surplus, normal and scarce times."""
    stay: tuple[float, float, float] = (0.85, 0.8, 0.8)
    """Probability that each of them lasts another half hour."""
    dear: float = 0.15
    """Dollars per kWh that the expensive hours add."""
    leave: float = 7.75
    """Hour around which most cars leave; they come home around `back`."""
    back: float = 18.0
    trip: float = 12.0
    """Typical energy of a day's driving, kWh."""

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Day:
        """Draw a day: prices, commuting hours, and more energy per trip in the cold season."""
        return cls(
            spot=(rng.uniform(-0.15, -0.05), rng.uniform(0.12, 0.18), rng.uniform(0.75, 1.05)),
            stay=(rng.uniform(0.82, 0.88), rng.uniform(0.77, 0.83), rng.uniform(0.77, 0.83)),
            dear=rng.uniform(0.1, 0.2),
            leave=rng.uniform(7.25, 8.25),
            back=rng.uniform(17.5, 18.5),
            trip=rng.uniform(10.0, 14.0),
        )

    @property
    def trips(self) -> FloatArray:
        """Probability that a trip uses 0, 1, 2 … 5 levels."""
        weights: FloatArray = np.exp(-0.5 * ((LEVELS[:6] - self.trip) / 7.0) ** 2)
        return np.asarray(weights / weights.sum())

    def leaving(self, hour: float) -> float:
        """Return the probability that a car at home leaves in the half hour that begins then."""
        return float(0.02 + 0.45 * np.exp(-0.5 * ((hour - self.leave) / 0.8) ** 2) + 0.03 * (9 < hour < 20))

    def coming(self, hour: float) -> float:
        """Return the probability that a car on the way comes home in the half hour that begins then."""
        return float(0.02 + 0.3 * np.exp(-0.5 * ((hour - self.back) / 1.5) ** 2) + 0.05 * (9 < hour < 23))


@dataclass(frozen=True)
class Habits:
    """What owners and their chargers do: probabilities, where nothing else is said per step."""

    at_once: tuple[float, float, float] = (0.9, 0.9, 0.9)
    """Of charging at once on coming home with a battery below a fifth, below 55 % and above."""
    later: tuple[float, float, float] = (0.05, 0.05, 0.05)
    """Of leaving it then to the charger to start later (paused). The others leave it off."""
    resume: float = 0.5
    """That a paused charger starts; `remember`: that one which is off is started."""
    remember: float = 0.5
    interrupt: float = 0.02
    """That a charge is interrupted; `retry`: that the charger then pauses and is not off."""
    retry: float = 0.5
    switch: float = 0.05
    """Of changing between slow and fast; `fast`: share of those who start fast."""
    fast: float = 0.9

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Habits:
        """Draw the habits of a neighbourhood."""
        return cls(
            at_once=(0.95, rng.uniform(0.5, 0.65), rng.uniform(0.05, 0.15)),
            later=(0.03, rng.uniform(0.25, 0.35), rng.uniform(0.4, 0.6)),
            resume=rng.uniform(0.5, 0.7),
            remember=rng.uniform(0.005, 0.015),
            interrupt=rng.uniform(0.03, 0.07),
            retry=rng.uniform(0.3, 0.5),
            switch=0.1,
            fast=rng.uniform(0.6, 0.8),
        )

    def behaviour(self) -> FloatArray:
        """Return the probabilities of the decisions, (n, m): a decision keeps the energy and sets the mode."""
        table = np.zeros((len(PLACES), len(CHOICES), len(LEVELS)))
        table[:2, 0] = 1.0
        for level, energy in enumerate(LEVELS):
            table[2:, 1:, level] = self._at_home(energy / LEVELS[-1])
        return carried(table)

    def _at_home(self, charge: float) -> FloatArray:
        """Return the rows arrived, paused, off, slow, fast over the decisions paused, off, slow, fast."""
        if charge >= 1.0:
            return np.tile([0.0, 1.0, 0.0, 0.0], (5, 1))
        mood = 0 if charge < 0.2 else 1 if charge < 0.55 else 2
        start = np.array([0.0, 0.0, 1.0 - self.fast, self.fast])
        stop = self.interrupt * np.array([self.retry, 1.0 - self.retry, 0.0, 0.0])
        wait, off = np.eye(4)[:2]
        once, later, rest = self.at_once[mood], self.later[mood], 1.0 - self.interrupt - self.switch
        return np.array(
            [
                once * start + later * wait + (1.0 - once - later) * off,
                (1.0 - self.resume) * wait + self.resume * start,
                (1.0 - self.remember) * off + self.remember * start,
                stop + [0.0, 0.0, rest, self.switch],
                stop + [0.0, 0.0, self.switch, rest],
            ]
        )


#: Every owner plugs in and charges at once until full.
TEXTBOOK = Habits()


def charging(kw: float) -> FloatArray:
    """Return where the energy of a car at home goes in one step, (8, 8); its mean is exact below the full battery."""
    levels = len(LEVELS)
    gain = EFFICIENCY * kw * STEP_HOURS / (LEVELS[1] - LEVELS[0])
    whole, part = int(gain), gain % 1.0
    out, rows = np.zeros((levels, levels)), np.arange(levels)
    np.add.at(out, (rows, np.minimum(rows + whole, levels - 1)), 1.0 - part)
    np.add.at(out, (rows, np.minimum(rows + whole + 1, levels - 1)), part)
    return out


def driving(day: Day) -> FloatArray:
    """Return the energy left after a trip, (8, 8); what the battery lacks was charged on the way."""
    levels = len(LEVELS)
    out = np.zeros((levels, levels))
    for used, share in enumerate(day.trips):
        np.add.at(out, (np.arange(levels), np.maximum(np.arange(levels) - used, 0)), share)
    return out


def garage(day: Day, hour: float) -> FloatArray:
    """Return nature (m, n) for the half hour that begins at `hour`."""
    levels, leave, come = len(LEVELS), day.leaving(hour), day.coming(hour)
    out = np.zeros((len(CHOICES), levels, len(PLACES), levels))
    out[0, :, 0] = (1.0 - come) * np.eye(levels)
    out[0, :, 2] = come * driving(day)
    for choice, kw in ((1, 0.0), (2, 0.0), (3, SLOW_KW), (4, FAST_KW)):
        filled = charging(kw)
        out[choice, :, 1] = leave * filled
        out[choice, :, choice + 2] = (1.0 - leave) * filled
        if choice != 2:  # a full battery ends the charge
            out[choice, :, 4, -1] += out[choice, :, choice + 2, -1]
            out[choice, :, choice + 2, -1] = 0.0
    return out.reshape(len(CHOICES) * levels, len(PLACES) * levels)


def vehicles(seed: int = 0, *, discomfort_penalty: float = 0.5, loads: int = 1000, **overrides: Any) -> EnsembleModel:
    """Build one day of a thousand cars (`loads`), noon to noon in half hours.

    The seed draws the day and, apart from it, the owners' habits. `overrides` are fields of `EnsembleModel`.
    """
    public, private = streams("vehicles", seed)
    day, habits = Day.draw(public), Habits.draw(private)
    hours = (FIRST_HOUR + STEP_HOURS * np.arange(HORIZON)) % 24.0
    nature = np.array([garage(day, hour) for hour in hours])
    guess = TEXTBOOK.behaviour()
    power = np.repeat([0.0] * 5 + [SLOW_KW, FAST_KW], len(LEVELS))
    return assemble(
        overrides,
        factor=1.75,
        default=habits.behaviour(),
        nature=nature,
        context=usual_context(neighbours(day.stay), PRICES),
        utility=_utility(day, power),
        power_kw=power,
        discomfort_penalty=discomfort_penalty,
        loads=loads,
        # as textbook cars are spread at noon after a week: nobody's data are in it
        initial=settled(guess, nature, np.full(len(guess), 1.0 / len(guess)), 7),
        times=clock_times("2018-03-12", FIRST_HOUR, STEP_HOURS, HORIZON),
        guess=guess,
        axes=(Axis("car", PLACES), Axis("charge (kWh)", tuple(LEVELS.tolist()))),
    )


def _utility(day: Day, power: FloatArray) -> FloatArray:
    """Return minus what the energy costs and minus the expected unmet need of cars that just left, (T + 1, c, n).

    The price is that of the interval that ends; at the end the energy in the batteries counts with the normal price.
    """
    levels, begin = len(LEVELS), (FIRST_HOUR + STEP_HOURS * (np.arange(HORIZON + 1) - 1)) % 24.0
    prices = np.add.outer(day.dear * ((begin >= DEAR[0]) & (begin < DEAR[1])), np.array(day.spot))
    utility: FloatArray = -prices[..., None] * power * STEP_HOURS
    need = np.maximum(LEVELS[:6] - LEVELS[:, None], 0.0) @ day.trips
    utility[1:, :, levels : 2 * levels] -= MISSING * need
    utility[-1] += day.spot[1] * EFFICIENCY * np.tile(LEVELS, len(PLACES))
    return utility


SCENARIO = Scenario(
    vehicles,
    Card(
        title="Vehicles",
        load="cars",
        story=(
            "A thousand cars charge at home from noon to noon. A car that leaves without enough energy for its trip "
            "must stop at a public charger, at a cost. The price moves at random between wind surplus (negative), "
            "normal and scarce, and is higher from 16:00 to 21:00. A postponed charge may be lost: a paused charger "
            "starts again by itself, but one that was switched off is forgotten."
        ),
        states=(
            "7 places and modes (away, leaving, arrived, paused, off, slow at 3.7 kW, fast at 7.4 kW) times 8 charges "
            "from 0 to 42 kWh"
        ),
        sources=(
            "synthetic; the powers are 16 and 32 A at 230 V, the efficiency is 0.9, a day's driving takes 10 to 14 kWh "
            "(60 to 80 km at 0.17 kWh/km), and prices resemble wholesale prices in a region with much wind"
        ),
        private=(
            "the owners' behaviour: whether they charge at once, which charges are interrupted, and which start again; "
            "travel, batteries, prices and the start are public"
        ),
        version=1,
    ),
)
