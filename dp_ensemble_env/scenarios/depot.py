"""Delivery vans that come home in waves of unknown size, and a purchase that was made the day before.

The gate tells the size of a wave, *few* or *many*, half an hour before it arrives and never again; after that it is
seen in the chargers only. The retailer bought, a day ahead, what the vans usually draw, and pays for the squared
difference: what is right to do depends on how many vans are there, and that is in the shares.

**Context** is the history of the waves: it forms a tree, so that the coupled optimum is exact (MATH 16). **Nature**
brings the vans home and fills the batteries. **Behaviour** is private: how soon a van with so much to charge is plugged
in, and how often a charge is interrupted. The textbook says: every second waiting van begins, and charges go on.

**All numbers are synthetic.**
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dp_ensemble_env.context import Context
from dp_ensemble_env.control.returns import mean_power, shares
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.model import EnsembleModel, FloatArray
from dp_ensemble_env.scenarios import Card, Scenario
from dp_ensemble_env.scenarios.build import assemble, clock_times, streams
from dp_ensemble_env.tools.validation import check_choice

#: Half hours of charging that a van may need at most, and steps that a wave lasts.
NEED, LASTS = 6, 2
STEP_HOURS, HORIZON, CHARGER_KW = 0.5, 28, 11.0
#: Dollars per half hour of charging that is missing at six, and per kW² off the purchase.
MISSING, MISS = 3.0, 0.2
SIZES = ("few", "many")
#: Nats that an action of one stands for.
TILT_SCALE = 8.0


@dataclass(frozen=True)
class Night:
    """What is public in one instance: when waves arrive, the share of the vans in each, and what they need."""

    waves: tuple[int, ...]
    sizes: tuple[float, float]
    need: tuple[float, ...]

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Night:
        """Draw a night."""
        waves = np.array((0, 5, 10, 15)) + np.append(0, rng.integers(-1, 2, 3))
        sizes = np.array((0.04, 0.24)) * rng.uniform(0.85, 1.0)
        weights = np.exp(-0.5 * (np.arange(1, NEED + 1) - rng.uniform(3.0, 4.5)) ** 2)
        return cls(tuple(waves.tolist()), tuple(sizes.tolist()), tuple((weights / weights.sum()).tolist()))

    @property
    def histories(self) -> list[tuple[int, ...]]:
        """The sizes of the waves so far, in all ways: the nodes of the tree."""
        return [h for k in range(1, len(self.waves) + 1) for h in product(range(len(self.sizes)), repeat=k)]


def behaviour(begin: Any, keep: float) -> FloatArray:
    """Return the probabilities of the decisions, (14, 14).

    States: 0 away, 1 full, 1 + e waits and needs e half hours, 8 + j charges with j half hours left after this one.
    Decisions: 0 and 1 stay, 1 + e waits, 7 + e charges.
    """
    size = 2 * NEED + 2
    out, e = np.zeros((size, size)), np.arange(1, NEED + 1)
    out[0, 0] = out[1, 1] = out[NEED + 2, 1] = 1.0
    out[1 + e, 1 + e], out[1 + e, NEED + 1 + e] = 1.0 - np.asarray(begin), begin
    j = e[:-1]
    out[NEED + 2 + j, 1 + j], out[NEED + 2 + j, NEED + 1 + j] = 1.0 - keep, keep
    return out


#: Every second waiting van begins to charge, and few charges are interrupted.
TEXTBOOK = behaviour(np.full(NEED, 0.5), 0.86)


def depot(
    seed: int = 0, *, discomfort_penalty: float = 1.0, loads: int = 10_000, shown: str = "gate", **overrides: Any
) -> EnsembleModel:
    """Build one night of ten thousand vans, 16:00 to 6:00 in half hours.

    The seed draws the waves and, apart from them, the drivers' habits. Observations show the latest news from the gate,
    or with ``shown="all"`` all of them. `overrides` are fields of `EnsembleModel`.
    """
    check_choice(shown, "shown", ("gate", "all"))
    public, private = streams("depot", seed)
    night = Night.draw(public)
    default = behaviour(private.uniform(0.10, 0.95, NEED), private.uniform(0.75, 0.97))
    context, nature = gate(night), arrivals(night)
    size = len(default)
    utility = np.zeros((HORIZON + 1, size))
    utility[-1] = -MISSING * np.concatenate([[0, 0], np.arange(1, NEED + 1), np.arange(NEED)])
    fields: dict[str, Any] = {
        "nature": nature,
        "context": context,
        "utility": utility,
        "power_kw": np.where(np.arange(size) > NEED + 1, CHARGER_KW, 0.0),
        "discomfort_penalty": discomfort_penalty,
        "initial": np.eye(size)[0],
    }
    usual = EnsembleModel(TEXTBOOK, spread_start=True, **fields)
    bought = mean_power(usual, shares(usual, usual.default_policy))
    if shown == "all":
        fields["context"] = Context(context.transition, context.names, context.start)
    return assemble(
        overrides,
        default=default,
        coupling=Coupling.tracking(bought, MISS),
        loads=loads,
        times=clock_times("2024-11-12", 16.0, STEP_HOURS, HORIZON),
        tilt_scale=np.full(HORIZON, TILT_SCALE),
        guess=TEXTBOOK,
        **fields,
    )


def gate(night: Night) -> Context:
    """Return the context: each history while the latest wave is announced, then each history in silence."""
    nodes, chances = night.histories, len(night.sizes)
    half, size = len(nodes), 2 * len(nodes)
    place = {history: i for i, history in enumerate(nodes)}
    moves = np.tile(np.eye(size), (HORIZON, 1, 1))
    for history, i in place.items():
        moves[night.waves[len(history) - 1], i] = np.eye(size)[half + i]
        if len(history) < len(night.waves):
            following = [place[(*history, k)] for k in range(chances)]
            moves[night.waves[len(history)] - 1, half + i] = np.isin(np.arange(size), following) / chances
    start = np.array([*(len(history) == 1 for history in nodes), *[False] * half]) / chances
    words = [" ".join(SIZES[k] for k in history) for history in nodes]
    news = np.array([*(1 + history[-1] for history in nodes), *[0] * half])
    names = (*(f"{word}, announced" for word in words), *words)
    return Context(moves, names, start=start, features=np.eye(1 + chances)[news], signs=(*SIZES, "no news"))


def arrivals(night: Night) -> FloatArray:
    """Return nature (T, c, m, n): a decision leads to its own state, but vans that are away come home in waves."""
    nodes, size = night.histories, 2 * NEED + 2
    half, sizes = len(nodes), np.array(night.sizes)
    nature = np.tile(np.eye(size), (HORIZON, 2 * half, 1, 1))
    for i, history in enumerate(nodes):
        share, away = sizes[history[-1]], 1.0 - sizes[list(history[:-1])].sum()
        for k in range(LASTS):
            flow = share / LASTS / (away - k * share / LASTS)
            t, w = night.waves[len(history) - 1] + k, i if k == 0 else half + i
            nature[t, w, 0, 0] = 1.0 - flow
            nature[t, w, 0, 2 : NEED + 2] = flow * np.array(night.need)
    return nature


SCENARIO = Scenario(
    depot,
    Card(
        title="Depot",
        load="vans",
        story=(
            "Delivery vans return in four waves between four in the afternoon and midnight. A day ahead, the retailer "
            "bought the energy that the vans usually draw, but the number of vans in a wave is random. The gate "
            "reports few or many vans half an hour before each wave, and never again. The aggregator pays for the "
            "squared difference between use and purchase, and for every van that is not full at six in the morning. So "
            "the right price depends on how many vans are in each state."
        ),
        states=(
            "14: away, full, waiting with 1 to 6 half hours left to charge, charging (11 kW) with 0 to 5 half hours "
            "left"
        ),
        sources="synthetic",
        private=(
            "how soon a van with a given need is plugged in, and how often a charge is interrupted; waves, needs and "
            "the purchase are public"
        ),
        version=1,
    ),
)
