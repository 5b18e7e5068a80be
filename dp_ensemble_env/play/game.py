"""The game without a surface: one episode in price mode, beside the optimum and doing nothing on the same day."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import score
from dp_ensemble_env.tools.validation import check_in_range

#: Whose day it is: the player's, the optimal policy's, and that of loads that are left alone.
PLAYERS = ("you", "optimum", "uncontrolled")


@dataclass
class Day:
    """What happened to one player so far: power of a load at each time, kW, and dollars per load earned by then."""

    power: list[float] = field(default_factory=list)
    earned: list[float] = field(default_factory=lambda: [0.0])

    def begin(self, info: dict[str, Any]) -> None:
        """Note where the day begins."""
        self.power = [float(info["power_kw"])]

    def note(self, reward: float, info: dict[str, Any]) -> None:
        """Note one step."""
        self.power.append(float(info["power_kw"]))
        self.earned.append(self.earned[-1] + float(reward))


class Game:
    """One episode of a scenario, played by hand with prices; the seed fixes the day, alike for all players.

    **Points** place what was earned by now between doing nothing (0) and what the optimal policy earns in the whole day
    (100), so that at the end they are the score. The optimum's own points may fall at first: it pays before it
    earns. Where contexts move by chance, the optimal policy does best on average, and a lucky player may beat it.

    Examples
    --------
    >>> game = Game("spot")
    >>> while not game.done:
    ...     state = game.step(0.2)
    >>> game.score == state["points"]["you"], state["points"]["uncontrolled"]
    (True, 0.0)
    """

    def __init__(self, scenario: str = "call", *, instance: int = 0, seed: int = 0) -> None:
        self.scenario, self.seed = scenario, seed
        self.model: EnsembleModel = scenarios.make(scenario, instance=instance)
        optimum, idle = (_whole_day(self.model, seed, optimal) for optimal in (True, False))
        self.days = dict(zip(PLAYERS, (Day(), optimum, idle), strict=True))
        self.prices: list[float] = []
        self.env = EnsembleEnv(self.model, action="price", reward="dollars")
        self.days["you"].begin(self.env.reset(seed=seed)[1])

    @property
    def time(self) -> int:
        """How many prices were set."""
        return len(self.prices)

    @property
    def done(self) -> bool:
        """Whether the day is over."""
        return self.time == self.model.horizon

    def step(self, price: Any) -> dict[str, Any]:
        """Set the price of the next step, in [-1, 1]; zero does not interfere, above zero lowers the power."""
        if self.done:
            raise ValueError("the day is over; begin a new one.")
        price = check_in_range(price, "price", -1.0, 1.0)
        _, reward, _, _, info = self.env.step(np.array([price], dtype=np.float32))
        self.prices.append(price)
        self.days["you"].note(float(reward), info)
        return self.state()

    def points(self, player: str = "you") -> float:
        """Return the points of a player by now, between doing nothing (0) and the optimum's whole day (100)."""
        idle, best = self.days["uncontrolled"].earned, self.days["optimum"].earned
        earned = self.days[player].earned[self.time]
        if self.done:
            return score(earned, idle[-1], best[-1])
        return 100.0 * (earned - idle[self.time]) / max(abs(best[-1] - idle[-1]), 1e-12)

    @property
    def score(self) -> float:
        """The player's score of the whole day."""
        if not self.done:
            raise ValueError(f"the day is not over: {self.model.horizon - self.time} prices are missing.")
        return self.points()

    def state(self) -> dict[str, Any]:
        """Return what the player may see now, as plain values; the future stays hidden."""
        now, scene = self.time, self.env.scene()
        return {
            "scenario": self.scenario,
            "time": now,
            "horizon": self.model.horizon,
            "clock": scene.clock,
            "context": scene.context_name,
            "power": {name: _plain(self.days[name].power[: now + 1]) for name in PLAYERS},
            "points": {name: self.points(name) for name in PLAYERS},
            "earned": {name: round(self.days[name].earned[now], 4) for name in PLAYERS},
            "signal": _plain(scene.price),
            "asked": None if scene.limit is None else _plain(scene.limit[1]),
            "prices": self.prices,
            "done": self.done,
            "words": self.words(),
        }

    def words(self) -> str:
        """Say how it stands in a sentence or two."""
        mine, best = (round(self.points(player), 1) + 0.0 for player in ("you", "optimum"))  # no minus before a zero
        if not self.done:
            left = self.model.horizon - self.time
            return f"You have {mine:.1f} points, the optimum has {best:.1f} by now; {left} steps are left."
        lucky = " Luck was on your side: no policy does better on average." if mine > 100.0 else ""
        return f"Your score is {mine:.1f}. The optimum is 100, doing nothing is 0.{lucky}"


def _whole_day(model: EnsembleModel, seed: int, optimal: bool) -> Day:
    """Play the same day with the optimal policy, or without interfering."""
    env = EnsembleEnv(model, action="policy" if optimal else "price", reward="dollars")
    agent: Any = make_agent("standard", env) if optimal else None
    observation, info = env.reset(seed=seed)
    day, done, memory = Day(), False, None
    day.begin(info)
    action = np.zeros(1, np.float32)
    while not done:
        if agent is not None:
            action, memory = agent.predict(observation, memory, deterministic=True)
        observation, reward, done, _, info = env.step(action)
        day.note(float(reward), info)
    return day


def _plain(values: Any) -> list[float | None]:
    return [round(float(v), 4) if math.isfinite(v) else None for v in values]
