"""Pool pumps whose aggregate follows a signal for a day.

The chain is that of Meyn, Barooah, Bušić and Ehren: a pump is on or off, and remembers for how long. The longer it
has been so the likelier it switches. What is private is by which hazard: how long owners clean, how long they rest, and
how much they differ from each other and from day to day.

The textbook takes the hours off the manual and pumps to keep to them within an hour. One that also knew how much
owners differ on average (two hours) would score 91, 74, 29 and 59 on the first four instances instead of 59, 40, -77
and 30: what is left depends on the town, and takes data.

**Coupling** is a target for the mean power, a smooth signal around the pumps' usual power as a grid with much solar and
wind power asks for. The square of the miss is charged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.signal import lfilter
from scipy.special import ndtr

from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.model import EnsembleModel, FloatArray
from dp_ensemble_env.scenarios import Card, Scenario
from dp_ensemble_env.scenarios.build import assemble, clock_times, streams
from dp_ensemble_env.shapes import Axis

PUMP_KW = 1.0
SWITCH = ("off", "on")
#: Half hours since the last switch that a pump remembers; the last means so many or more.
MEMORY = 28
STEP_HOURS, HORIZON = 0.5, 48
#: Hours that the timers are set to, as printed in the manual.
CLEANING, RESTING = 6.0, 10.0
#: Dollars per kW² off the target, pump and half hour.
MISS = 20.0
#: Nats that an action of one stands for.
TILT_SCALE = 2.0
#: Least and largest probability of switching in a half hour: nothing is impossible, nothing certain.
RARE = 0.005


@dataclass(frozen=True)
class Habits:
    """How long pumps run and rest: normal with these means and this standard deviation, in hours."""

    cleaning: float
    resting: float
    deviation: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Habits:
        """Draw the habits of a town."""
        return cls(*rng.uniform((4.5, 8.0, 1.2), (7.5, 12.0, 3.0)))

    def behaviour(self) -> FloatArray:
        """Return the chain (n, n) of the states (switch, half hours since the last change)."""
        size, age = MEMORY, np.arange(MEMORY)
        following = np.minimum(age + 1, size - 1)
        out = np.zeros((2, size, 2, size))
        for switch, hours in enumerate((self.resting, self.cleaning)):
            turn = self._hazard(hours)
            out[switch, age, switch, following] = 1.0 - turn
            out[switch, age, 1 - switch, 0] = turn
        return out.reshape(2 * size, 2 * size)

    def _hazard(self, hours: float) -> FloatArray:
        """Probability that a spell ends in the half hour that begins at each age, given that it lasted so long."""
        left = ndtr(-((np.arange(MEMORY + 1) * STEP_HOURS - hours) / self.deviation))
        with np.errstate(invalid="ignore", divide="ignore"):
            ends = np.where(left[:-1] > 1e-12, (left[:-1] - left[1:]) / left[:-1], 1.0)
        return np.clip(ends, RARE, 1.0 - RARE)


#: Timers as printed in the manual, kept to an hour or so.
TEXTBOOK = Habits(CLEANING, RESTING, 1.0)


def tracking(seed: int = 0, *, discomfort_penalty: float = 0.5, loads: int = 1000, **overrides: Any) -> EnsembleModel:
    """Build one day of a thousand pool pumps that follow a signal, in half hours from midnight.

    The seed draws the signal and the start and, apart from them, how owners run their pumps. `overrides` are fields of
    `EnsembleModel`.
    """
    public, private = streams("tracking", seed)
    habits = Habits.draw(private)
    power, initial = np.repeat([0.0, PUMP_KW], MEMORY), start(public)
    usual = PUMP_KW * CLEANING / (CLEANING + RESTING)
    # the target takes over from where the pumps are, within a few hours
    handover = np.exp(-STEP_HOURS * np.arange(HORIZON + 1) / 2.0)
    target = handover * (initial @ power) + (1.0 - handover) * (usual + signal(public))
    return assemble(
        overrides,
        default=habits.behaviour(),
        coupling=Coupling.tracking(target, MISS),
        utility=np.zeros((HORIZON + 1, 2 * MEMORY)),
        power_kw=power,
        discomfort_penalty=discomfort_penalty,
        loads=loads,
        initial=initial,
        times=clock_times("2018-05-15", 0.0, STEP_HOURS, HORIZON),
        tilt_scale=np.full(HORIZON, TILT_SCALE),
        guess=TEXTBOOK.behaviour(),
        support=TEXTBOOK.behaviour() > 0,  # a pump goes on or switches: true of every pump, whatever its owner does
        axes=(Axis("pump", SWITCH), Axis("half hours since it switched", tuple(range(MEMORY)))),
    )


def signal(rng: np.random.Generator) -> FloatArray:
    """Draw a signal (T + 1,) in kW per pump, 0.2 at its largest: noise smoothed over an hour, less its slow part."""
    before = 48
    smooth = _smoothed(_smoothed(rng.standard_normal(before + HORIZON + 1), 1.0), 1.0)
    values = (smooth - _smoothed(smooth, 4.0))[before:]
    return np.asarray(0.2 * values / np.abs(values).max())


def _smoothed(values: FloatArray, hours: float) -> FloatArray:
    """Return the exponentially weighted mean of the past."""
    keep = np.exp(-STEP_HOURS / hours)
    return np.asarray(lfilter([1.0 - keep], [1.0, -keep], values))


def start(rng: np.random.Generator) -> FloatArray:
    """Draw how the pumps are spread at midnight, (n,): switching times even but for a crowd at some hour."""
    crowd, where = rng.uniform(0.2, 0.6), rng.uniform(0.0, 2.0 * np.pi)
    weights = np.zeros((2, MEMORY))
    for switch, hours in enumerate((RESTING, CLEANING)):
        ages = np.arange(round(hours / STEP_HOURS))
        # one cycle of cleaning and resting goes once around the circle
        since = ages + (round(RESTING / STEP_HOURS) if switch else 0)
        phase = 2.0 * np.pi * since * STEP_HOURS / (CLEANING + RESTING)
        weights[switch, ages] = 1.0 + crowd * np.cos(phase - where)
    return np.asarray((weights / weights.sum()).ravel())


SCENARIO = Scenario(
    tracking,
    Card(
        title="Tracking",
        load="pool pumps",
        story=(
            "A thousand pool pumps clean for about six hours and rest for about ten. For a day their total power has "
            "to follow a signal of up to 20 % of the connected power around the usual level; the cost is the squared "
            "error. A pump that was switched early comes back early, so every push returns as an echo hours later. The "
            "signal is known, so the best open loop scores 100: this scenario tests foresight and data, not feedback. "
            "The error is also available as a cost for constrained learners."
        ),
        states="pump off or on (1 kW) times half hours since it last switched, up to 14 hours",
        sources=(
            "the chain of Meyn, Barooah, Bušić and Ehren, Ancillary service to the grid from deferrable loads: the "
            "case for intelligent pool pumps in Florida (CDC 2013); hours, habits, signal and charges are synthetic"
        ),
        private=(
            "the chain: how long owners clean and rest, and how much they differ. Public: the signal, the start, and "
            "the fact that a pump either continues or switches"
        ),
        version=1,
    ),
)
