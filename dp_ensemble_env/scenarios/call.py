"""Laundry lines that may be called to stop at any time, with half an hour of notice.

**All numbers are synthetic.** The rules of the programme (notice, an hour of event, a rest in which nobody is called
again, a payment per kWh not drawn that is many times the energy price) follow interruptible-load contracts in
outline. The phases of a line follow a washing and drying programme.

Nobody is called on most days, and lines that stand still earn nothing, so waiting for a call costs money.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dp_ensemble_env.context import Context
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.scenarios import Card, Scenario
from dp_ensemble_env.scenarios.build import STEP_HOURS, clock_times, machines, programme
from dp_ensemble_env.tools.validation import check_count

STEPS = 64
#: Power of the phases of a washing and drying programme, in kW, and of a line that waits.
PHASES_KW = (130.0, 45.0, 190.0, 200.0, 55.0, 25.0, 145.0, 175.0, 135.0, 50.0, 30.0)
IDLE_KW = 10.0
CONTEXTS = ("quiet", "notice 1", "notice 2", "event 1", "event 2", "event 3", "event 4", "rest")


def call(seed: int = 0, *, discomfort_penalty: float = 6.0, **overrides: Any) -> EnsembleModel:
    """Build a day of laundry lines that may be called: 64 quarter hours from 6:00.

    The seed draws how likely a call is, how long the rest lasts, what is paid in an event and earned outside it, how
    often lines start and how long they dwell in a phase. `overrides` are fields of `EnsembleModel`.
    """
    rng = np.random.default_rng([check_count(seed, "seed", 0), 5])
    chance, end_of_rest = rng.uniform([0.020, 0.06], [0.030, 0.10])
    margin, pay = rng.uniform([0.08, 2.0], [0.12, 3.0])  # dollars per kWh: earned by working, paid for not drawing
    start, dwell = rng.uniform(0.25, 0.35), rng.uniform(0.10, 0.25, len(PHASES_KW))
    return machines(
        overrides,
        programme(PHASES_KW, IDLE_KW, start, dwell),
        np.where(np.char.startswith(CONTEXTS, "event"), pay - margin, -margin),
        context=calls(chance, end_of_rest),
        discomfort_penalty=discomfort_penalty,
        times=clock_times("2024-01-16", 6.0, STEP_HOURS, STEPS),
    )


def calls(chance: float, end_of_rest: float) -> Context:
    """Return the contexts of a call: a quiet step is followed by a notice with probability `chance`."""
    transition = np.diag(np.ones(len(CONTEXTS) - 1), 1)
    transition[0, :2] = 1.0 - chance, chance
    transition[-1, [0, -1]] = end_of_rest, 1.0 - end_of_rest
    return Context(transition, CONTEXTS, [0])


SCENARIO = Scenario(
    call,
    Card(
        title="Call",
        load="laundry lines",
        story=(
            "A hundred laundry lines have agreed to draw less power for an hour whenever they are called, with half an "
            "hour's notice. Calls may come at any time, or not at all. Lines that stand still earn nothing, so it pays "
            "to react to the notice, but not before it."
        ),
        states="12 power levels of a line: waiting, and 11 phases of its programme sorted by power",
        sources="synthetic; the rules resemble interruptible-load contracts, the phases resemble washing and drying",
        private=(
            "the programme: the order in which a line visits the levels, how often it starts, and how long it dwells"
        ),
        version=1,
    ),
)
