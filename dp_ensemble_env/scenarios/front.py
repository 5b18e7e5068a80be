r"""Furnaces under a weather forecast that has to be remembered: counting is worth more than the last bulletin.

Twice a day a storm front may pass. For three hours the weather office sends a bulletin each quarter hour, *comes* or
*misses*, right about two times in three; then it is silent for two hours. If the front comes, power is scarce for an
hour; if it misses, there is surplus at a negative price. The number of bulletins that said *comes* is all that the past
tells of the front (the bulletins are independent given the front), so the context holds that number `j`, and what is
shown of it is the latest bulletin alone.

With prior probability :math:`\pi` of a storm and bulletins right with probability `q`, the belief after `j` of `b`
bulletins is :math:`p = 1/(1 + e^{-x})` with :math:`x = \log\frac{\pi}{1-\pi} + (2j-b)\log\frac{q}{1-q}`, and the next
bulletin says *comes* with probability :math:`pq + (1-p)(1-q)`.

**All numbers are synthetic.** The furnaces are those of `spot`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dp_ensemble_env.context import Context
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.scenarios import Card, Scenario
from dp_ensemble_env.scenarios.build import STEP_HOURS, clock_times, machines, programme, streams
from dp_ensemble_env.scenarios.spot import IDLE_KW, PHASES_KW
from dp_ensemble_env.tools.validation import check_choice

#: Quarter hours with a bulletin, of silence, and of storm or calm; and how often that happens in a day.
BULLETINS, SILENT, EVENT, ROUNDS = 12, 8, 4, 2
#: What may be shown.
SIGNS = ("misses", "comes", "silence", "storm", "calm")


def front(seed: int = 0, *, discomfort_penalty: float = 12.0, shown: str = "sign", **overrides: Any) -> EnsembleModel:
    """Build a day of furnaces with two chances of a storm: 48 quarter hours from 6:00.

    The seed draws how good the bulletins are, the prices, how often furnaces start and how long they dwell in a phase.
    Observations show the latest sign, or with ``shown="all"`` the count of the bulletins, too. `overrides` are fields
    of `EnsembleModel`.
    """
    check_choice(shown, "shown", ("sign", "all"))
    public, private = streams("front", seed)
    # Storms a little rarer than calms, and prices far apart: then an open loop scores little in every instance.
    quality, prior = public.uniform((0.62, 0.44), (0.68, 0.47))
    base, high, low = public.uniform((0.05, 0.60, -0.55), (0.08, 0.70, -0.45))
    start, dwell = private.uniform(0.20, 0.35), private.uniform(0.10, 0.20, len(PHASES_KW))
    context = bulletins(quality, prior)
    if shown == "all":
        context = Context(context.transition, context.names, context.start)
    prices = np.full(len(context), base)
    prices[-2:] = high, low
    return machines(
        overrides,
        programme(PHASES_KW, IDLE_KW, start, dwell),
        prices,
        context=context,
        discomfort_penalty=discomfort_penalty,
        shares_shown=shown == "all",
        times=clock_times("2024-10-21", 6.0, STEP_HOURS, ROUNDS * (BULLETINS + SILENT + EVENT)),
    )


def bulletins(
    quality: float,
    prior: float,
    *,
    count: int = BULLETINS,
    silent: int = SILENT,
    event: int = EVENT,
    rounds: int = ROUNDS,
) -> Context:
    """Return the context: 3 j + y for j bulletins that said *comes* and the sign y shown now, then storm and calm."""
    length, size = count + silent + event, 3 * (count + 1) + 2
    storm, calm = size - 2, size - 1
    opening = np.zeros(size)
    opening[4] = _up(prior, quality)  # one bulletin, which says comes
    opening[0] = 1.0 - opening[4]
    moves = np.zeros((rounds * length, size, size))
    for t in range(rounds * length):
        phase = t % length
        heard = min(phase + 1, count)
        for j in range(count + 1):
            here, belief = slice(3 * j, 3 * j + 3), believed(j, heard, quality, prior)
            if phase < count - 1:
                if j < count:
                    moves[t, here, 3 * j + 4] = _up(belief, quality)
                moves[t, here, 3 * j] = 1.0 - moves[t, 3 * j, 3 * j + 4] if j < count else 1.0
            elif phase < count + silent - 1:
                moves[t, here, 3 * j + 2] = 1.0
            elif phase == count + silent - 1:
                moves[t, here, storm], moves[t, here, calm] = belief, 1.0 - belief
            else:
                moves[t, np.arange(3 * j, 3 * j + 3), np.arange(3 * j, 3 * j + 3)] = 1.0  # cannot be
        moves[t, storm:] = opening if phase == length - 1 else np.eye(size)[storm:]
    signs = np.array([*[w % 3 for w in range(storm)], 3, 4])
    names = [f"{w // 3} of the bulletins, {SIGNS[w % 3]}" for w in range(storm)]
    return Context(moves, (*names, "storm", "calm"), start=opening, features=np.eye(len(SIGNS))[signs], signs=SIGNS)


def believed(comes: int, heard: int, quality: float, prior: float) -> float:
    """Return the probability of a storm after so many of the bulletins heard said that it comes."""
    odds = np.log(prior / (1.0 - prior)) + (2 * comes - heard) * np.log(quality / (1.0 - quality))
    return float(1.0 / (1.0 + np.exp(-odds)))


def _up(belief: float, quality: float) -> float:
    """Return the probability that the next bulletin says that the storm comes."""
    return belief * quality + (1.0 - belief) * (1.0 - quality)


def counter(most: int) -> tuple[list[list[int]], int]:
    """Return a memory that counts *comes* less *misses* between -most and most, and begins anew after the event."""
    return [[max(h - 1, 0), min(h + 1, 2 * most), h, most, most] for h in range(2 * most + 1)], most


SCENARIO = Scenario(
    front,
    Card(
        title="Storm front",
        load="furnaces",
        story=(
            "Twice a day a storm front may pass. If it comes, power is scarce for an hour; if it misses, there is a "
            "surplus at a negative price. For three hours the weather office sends a bulletin every quarter hour, "
            "*comes* or *misses*, right about two times in three. Then it is silent for two hours. A furnace runs for "
            "three hours once started, so an agent that waits for the storm is late. An agent that follows the last "
            "bulletin is wrong every third time; one that counts the bulletins is usually right. Observations do not "
            "show the loads, so the agent must remember the count."
        ),
        states="13 power levels of a furnace: waiting, and 12 phases of its programme sorted by power",
        sources="synthetic; furnaces as in the scenario spot",
        private=(
            "the programme: the order in which a furnace visits the levels, how often it starts, and how long it dwells"
        ),
        version=1,
    ),
    memories={
        "the last bulletin": ([[0, 1, 0, 0, 0], [0, 1, 1, 0, 0]], 0),
        **{f"a counter of {2 * most + 1} states": counter(most) for most in (1, 2, 3)},
    },
)
