"""Pool pumps, the deferrable load of Meyn and others: filter programmes that run through once they have started.

A pump is on or off, and its state counts the half hours it has been so. **Nature** is a clock: to go on adds half an
hour, to switch starts from zero. **Behaviour** is private: the length of the programmes and how firmly owners keep to
them. In the textbook the probability of switching rises smoothly with time; a real programme is hard to interrupt.
**Context** is the state of the grid: surplus, balanced or short, at the prices for imbalance of a supplier who has
bought the pumps' usual energy beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from dp_ensemble_env.model import EnsembleModel, FloatArray
from dp_ensemble_env.scenarios import Card, Scenario
from dp_ensemble_env.scenarios.build import assemble, clock_times, neighbours, settled, streams, usual_context
from dp_ensemble_env.shapes import Axis

MODES = ("off", "on")
STEP_HOURS, HORIZON = 0.5, 48
#: Hours in the mode that the states tell apart; the last stands for that and more.
HOURS = STEP_HOURS * np.arange(24)
PUMP_KW = 1.0
GRID = ("surplus", "balanced", "short")


@dataclass(frozen=True)
class Day:
    """What is public in one instance: the price of imbalance in each state of the grid, and how long a state lasts."""

    imbalance: tuple[float, float, float] = (-0.2, 0.0, 0.25)
    stay: tuple[float, float, float] = (0.85, 0.8, 0.85)

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Day:
        """Draw a day."""
        low, mid, high = rng.uniform(0.82, 0.88, 3)
        return cls((rng.uniform(-0.25, -0.15), rng.uniform(-0.02, 0.02), rng.uniform(0.2, 0.3)), (low, mid, high))


@dataclass(frozen=True)
class Habits:
    """The owners' programmes."""

    rest: float = 12.0
    """Hours off after which half of the pumps switch on in a step; `run`: hours on after which half switch off."""
    run: float = 12.0
    softness: float = 2.0
    """How much that varies, in hours."""
    early_on: float = 0.02
    """Probability per step of switching on long before; `early_off`: of switching off."""
    early_off: float = 0.02

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Habits:
        """Draw the programmes of a neighbourhood."""
        return cls(
            rest=rng.uniform(6.0, 8.0),
            run=rng.uniform(4.5, 6.5),
            softness=rng.uniform(0.4, 0.6),
            early_on=rng.uniform(0.04, 0.08),
            early_off=rng.uniform(0.001, 0.004),
        )

    def behaviour(self) -> FloatArray:
        """Return the probabilities of the decisions, (n, n): go on, or the other mode from zero."""
        size = len(HOURS)
        table = np.zeros((2, size, 2, size))
        for mode, (usual, early) in enumerate(((self.rest, self.early_on), (self.run, self.early_off))):
            switch = early + (1.0 - early) * expit((HOURS - usual) / self.softness)
            table[mode, np.arange(size), mode, np.arange(size)] = 1.0 - switch
            table[mode, :, 1 - mode, 0] = switch
        return table.reshape(2 * size, 2 * size)


#: Twelve hours on and twelve off, and a chance of switching that rises smoothly.
TEXTBOOK = Habits()


def clockwork() -> FloatArray:
    """Return nature (n, n): the mode that was decided, and half an hour more in it."""
    ahead = np.eye(len(HOURS))[np.minimum(np.arange(len(HOURS)) + 1, len(HOURS) - 1)]
    return np.asarray(np.kron(np.eye(len(MODES)), ahead).astype(float))


def pool_pumps(seed: int = 0, *, discomfort_penalty: float = 0.1, loads: int = 1000, **overrides: Any) -> EnsembleModel:
    """Build one day of a thousand pumps in half hours.

    The seed draws the day and, apart from it, the programmes. `overrides` are fields of `EnsembleModel`.
    """
    public, private = streams("pool-pumps", seed)
    day, habits = Day.draw(public), Habits.draw(private)
    guess, nature = TEXTBOOK.behaviour(), clockwork()
    power = np.repeat([0.0, PUMP_KW], len(HOURS))
    utility = -STEP_HOURS * np.multiply.outer(day.imbalance, power)
    return assemble(
        overrides,
        factor=2.0,
        default=habits.behaviour(),
        nature=nature,
        context=usual_context(neighbours(day.stay), GRID),
        utility=np.broadcast_to(utility, (HORIZON + 1, *utility.shape)),
        power_kw=power,
        discomfort_penalty=discomfort_penalty,
        loads=loads,
        # as textbook pumps are spread in the long run: nobody's data are in it
        initial=settled(guess, [nature], np.full(len(guess), 1.0 / len(guess)), 1000),
        times=clock_times("2018-07-02", 0.0, STEP_HOURS, HORIZON),
        guess=guess,
        axes=(Axis("pump", MODES), Axis("hours in the mode", tuple(HOURS.tolist()))),
    )


SCENARIO = Scenario(
    pool_pumps,
    Card(
        title="Pool pumps",
        load="pool pumps",
        story=(
            "A supplier has bought the usual energy of a thousand pool pumps. It settles any difference at the "
            "imbalance price, which is negative when the grid has a surplus and positive when it is short. Pumps start "
            "readily, but a filter programme runs for hours once it has begun."
        ),
        states="2 modes (off, on at 1 kW) times 24 half hours spent in the mode",
        sources=(
            "the pump of Meyn, Barooah, Bušić, Chen and Ehren (IEEE Transactions on Automatic Control, 2015): 1 kW, on "
            "or off, with twelve hours of use a day; programmes and prices are synthetic"
        ),
        private=(
            "the owners' programmes: how long pumps run and rest, and how regularly; the grid, prices and the start "
            "are public"
        ),
        version=1,
    ),
)
