"""Electric furnaces that pay a price which moves at random, and is negative when there is surplus.

**All numbers are synthetic, but for the British regimes.** The synthetic regimes exaggerate imbalance prices of
north-western Europe: spells of surplus with very negative prices, and of scarcity at several times the normal price,
hours long, and together about half of the time. ``scenarios.make("spot", regimes="gb")`` has those of the British
imbalance price instead: 82 % of the time is normal, and surplus is hardly below zero. The phases of a furnace are those
of a heat treatment: a burst to preheat, a soak, a slow ramp to full power, and fans while it cools.

A furnace that has started runs for about three hours, so starting is a bet on a price that nobody knows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import sqrtm

from dp_ensemble_env.context import Context
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.scenarios import Card, Scenario
from dp_ensemble_env.scenarios.build import STEP_HOURS, clock_times, machines, programme, usual_context
from dp_ensemble_env.tools.validation import check_choice, check_count

STEPS = 48
#: Power of the phases of a heat treatment, in kW, and of a furnace that waits.
PHASES_KW = (140.0, 92.0, 108.0, 153.0, 155.0, 169.0, 183.0, 190.0, 197.0, 202.0, 60.0, 25.0)
IDLE_KW = 10.0
REGIMES = ("surplus", "normal", "scarcity")
#: Moves between the regimes (up to 0, up to 0.15, above) of the British system price from one half hour to the next,
#: January 2023 to May 2024, and their mean prices in pounds per kWh.
#: Contains BMRS data © Elexon Limited copyright and database right 2024.
GB_COUNTS = ((1137, 512, 26), (515, 19053, 771), (22, 775, 1996))
GB_PRICES = (-0.021, 0.080, 0.189)


def spot(
    seed: int = 0, *, regimes: str = "synthetic", discomfort_penalty: float = 12.0, **overrides: Any
) -> EnsembleModel:
    """Build a day of furnaces at random prices: 48 quarter hours from 6:00.

    The seed draws the three prices, how long the regimes last, how often furnaces start and how long they dwell in a
    phase. ``regimes="gb"`` takes the British prices and regimes in all instances: pounds count as dollars, and the
    matrix of a quarter hour is the principal square root of that of a half hour. `overrides` are fields of
    `EnsembleModel`.
    """
    rng = np.random.default_rng([check_count(seed, "seed", 0), 4])
    prices = rng.uniform([-0.24, 0.05, 0.32], [-0.18, 0.08, 0.42])
    context = synthetic_regimes(rng.uniform(0.92, 0.95, 3), rng.uniform(0.45, 0.6), rng.uniform(0.05, 0.15))
    if check_choice(regimes, "regimes", ("synthetic", "gb")) == "gb":
        prices, context = np.array(GB_PRICES), british_regimes()
    start, dwell = rng.uniform(0.20, 0.35), rng.uniform(0.10, 0.20, len(PHASES_KW))
    return machines(
        overrides,
        programme(PHASES_KW, IDLE_KW, start, dwell),
        prices,
        context=context,
        discomfort_penalty=discomfort_penalty,
        times=clock_times("2024-05-14", 6.0, STEP_HOURS, STEPS),
    )


def synthetic_regimes(persistence: Any, to_surplus: float, across: float) -> Context:
    """Return the price regimes: each lasts with its `persistence`, and most changes pass through the normal one."""
    stay = np.asarray(persistence)
    turn = np.array([[0.0, 1.0 - across, across], [to_surplus, 0.0, 1.0 - to_surplus], [across, 1.0 - across, 0.0]])
    return usual_context(np.diag(stay) + (1.0 - stay)[:, None] * turn, REGIMES)


def british_regimes() -> Context:
    """Return the regimes of the British imbalance price by quarter hour."""
    counts = np.array(GB_COUNTS, dtype=float)
    return usual_context(np.real(sqrtm(counts / counts.sum(axis=1, keepdims=True))), REGIMES)


SCENARIO = Scenario(
    spot,
    Card(
        title="Spot prices",
        load="furnaces",
        story=(
            "A hundred electric furnaces pay a price that jumps between surplus (negative), normal and scarcity. Once "
            "started, a treatment lasts about three hours, so the best time to start depends on the current price and "
            "on how long it will last. The synthetic prices reward feedback: the best fixed schedule scores 7.7. With "
            'the regimes of the British imbalance price (regimes="gb") it scores 86.4.'
        ),
        states="13 power levels of a furnace: waiting, and 12 phases of its programme sorted by power",
        sources=(
            "synthetic; the regimes exaggerate imbalance prices in north-western Europe, the phases resemble a heat "
            'treatment. regimes="gb": half-hourly British system price, January 2023 to May 2024, as a chain of '
            "quarter hours with levels of -0.021, 0.080 and 0.189 £/kWh taken as dollars. Contains BMRS data © Elexon "
            "Limited copyright and database right 2024"
        ),
        private=(
            "the programme: the order in which a furnace visits the levels, how often it starts, and how long it dwells"
        ),
        version=1,
    ),
)
