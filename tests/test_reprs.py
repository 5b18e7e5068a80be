"""Every public object says on one line what it is and how large; none of its private numbers."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import random_model

from dp_ensemble_env import scenarios
from dp_ensemble_env.chain.event import DemandResponseEvent, Tariff
from dp_ensemble_env.control.cost import release_cost
from dp_ensemble_env.control.lsmdp import LogKernel, solve
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv, functional
from dp_ensemble_env.meter import PowerSeries
from dp_ensemble_env.scenarios.campus import campus_building, campus_chain, campus_event

QUARTER = np.timedelta64(900, "s")
SERIES = PowerSeries(
    np.datetime64("2018-06-02", "s") + QUARTER * np.arange(4),
    [1.0, np.nan, 2.0, 3.0],
    QUARTER,
    notes=("Kept: 1 <negative> reading.",),
    source="hall.csv",
)
MODEL = random_model(3, varying=True)


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (
            campus_event(),
            "EnsembleModel(20 levels, 18 steps of 15 min from 2018-07-02 10:30, 100 buildings, $15 per nat)",
        ),
        (
            campus_event(buildings=1),
            "EnsembleModel(20 levels, 18 steps of 15 min from 2018-07-02 10:30, 1 building, $15 per nat)",
        ),
        (campus_chain(), "MarkovChain(20 levels, 127 possible moves, 9,887 transitions seen)"),
        (campus_building(), "CampusYear(2018, synthetic, 35,040 intervals of 15 min)"),
        (SERIES, "PowerSeries('hall.csv', 4 intervals of 15 min, 2018-06-02 00:00 to 2018-06-02 01:00, 1 missing)"),
        (
            DemandResponseEvent(incentive=0.5),
            "DemandResponseEvent(2018-07-02 11:00 to 15:00, 16 steps of 15 min, notice 30 min, incentive 0.5 $/kWh)",
        ),
        (
            campus_event().event,
            "EventTimeline(2018-07-02 10:30 to 2018-07-02 15:00, 18 steps of 15 min, 16 of them in the event, "
            "with a baseline)",
        ),
        (Tariff(), "Tariff(0.137 $/kWh)"),
        (Tariff(list(np.arange(24) / 100)), "Tariff(24 hourly prices, 0 to 0.23 $/kWh)"),
        (
            Tariff([0.1, 0.2], np.array(["2018-07-02", "2018-07-03"], "datetime64[s]")),
            "Tariff(2 prices from 2018-07-02 00:00 on, 0.1 to 0.2 $/kWh)",
        ),
        (LogKernel.from_dense(np.log(np.full((3, 3), 1 / 3))), "LogKernel(3 states, 9 nonzeros)"),
        (
            LogKernel.from_dense(np.log(np.full((2, 4, 3, 3), 1 / 3))),
            "LogKernel(3 states, 9 nonzeros, batch of 2, 4 times)",
        ),
        (solve_standard(MODEL), "Solution(6 states, 5 steps)"),
        (solve(np.log(np.full((2, 2), 0.5)), np.zeros((7, 2, 2)), 1.0), "Solution(2 states, 1 step, batch of 7)"),
        (
            scenarios.make("spot"),
            "EnsembleModel(13 levels, 48 steps of 15 min from 2024-05-14 06:00, 100 buildings, $12 per nat, "
            "3 contexts)",
        ),
        (
            EnsembleEnv("campus-event", action="price", privacy="dirichlet:k=50"),
            "EnsembleEnv(20 states, 18 steps, mean field, price mode, dirichlet release)",
        ),
        (
            EnsembleVectorEnv(3, "campus-event", population="single"),
            "EnsembleVectorEnv(3 at a time, 20 states, 18 steps, 1 load, tilt mode, true behaviour)",
        ),
        (campus_event().tables(), "Tables(behaviour 18x1x20x20, nature 18x1x20x20, context 18x1x1, utility 19x1x20)"),
        (functional.make("campus-event"), "Params(20 states, 18 steps, observation 23, action 20)"),
        (release_cost(MODEL, 9.0, samples=2, rng=0), "CostEstimate(mean and standard error, 5 steps by 6 states)"),
    ],
)
def test_repr(thing, text):
    assert repr(thing) == text


def test_cards_for_notebooks_hold_the_sizes_and_the_notes_escaped():
    cards = {
        campus_event(): ("EnsembleModel", "20", "18 steps of 15 min from 2018-07-02 10:30", "$15 per nat"),
        EnsembleEnv("campus-event"): ("EnsembleEnv", "20 states", "tilt mode", "true behaviour"),
        campus_chain(): ("MarkovChain", "20", "127", "9,887"),
        SERIES: ("PowerSeries", "hall.csv", "1 interval in 1 gap", "Kept: 1 &lt;negative&gt; reading."),
    }
    for thing, words in cards.items():
        html = thing._repr_html_()
        assert html.startswith("<table") and all(f">{word}<" in html for word in words), html
