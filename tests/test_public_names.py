"""The public names: any argument is answered or refused with one ValueError; what objects say of themselves."""

from __future__ import annotations

import datetime
import inspect

import numpy as np
import pytest
from helpers import random_model
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_ensemble_env as dpe
from dp_ensemble_env import scenarios
from dp_ensemble_env.chain.event import Tariff
from dp_ensemble_env.control import cost, lsmdp, policies
from dp_ensemble_env.envs import EnsembleVectorEnv
from dp_ensemble_env.meter import PowerSeries
from dp_ensemble_env.privacy import DirichletEvent, mechanism
from dp_ensemble_env.reporting.score import event_outcome

MODEL = random_model(0, n=3, horizon=2, density=1.0)
EVENT = DirichletEvent(5.0, 0.0, (3, 3, 3))
POLICY = np.ascontiguousarray(np.broadcast_to(MODEL.default, (2, 3, 3)))
TIMES = np.datetime64("2018-06-02T00:00", "s") + np.arange(31 * 96) * np.timedelta64(900, "s")
POWER = 100 + np.arange(TIMES.size) % 7
CORE = {"utility": MODEL.utility, "discomfort_penalty": 3.0}

# A good call of each public function; the test spoils one parameter at a time, also one that is not given here.
SMALL = {"n_states": 5, "loads": 3}
DRAWN = {"k": 5.0, "samples": 3, "rng": 0}
CALLS = {
    "solve": (dpe.solve, {"log_kernel": lsmdp.log_probabilities(MODEL.default), **CORE}),
    "evaluate_policy": (dpe.evaluate_policy, {"policy": POLICY, "default": MODEL.default, **CORE}),
    "log_probabilities": (lsmdp.log_probabilities, {"default": MODEL.default}),
    "EnsembleModel": (dpe.EnsembleModel, {"default": MODEL.default, "power_kw": MODEL.power_kw, **CORE}),
    "from_series": (
        dpe.EnsembleModel.from_series,
        {"power": POWER, "event": dpe.DemandResponseEvent(), "times": TIMES, "profile": "aggregate", **SMALL},
    ),
    "standard_policy": (dpe.standard_policy, {"model": MODEL}),
    "taylor_policy": (dpe.taylor_policy, {"model": MODEL, "k": 5.0}),
    "digamma_policy": (dpe.digamma_policy, {"model": MODEL, "k": 5.0}),
    "average_policy": (dpe.average_policy, {"model": MODEL, "method": "sampled", **DRAWN}),
    "solve_policy": (policies.solve_policy, {"model": MODEL, "name": "taylor", "k": 5.0}),
    "cost_of_privacy": (dpe.cost_of_privacy, {"model": MODEL, "method": "taylor", "formula": "paper", **DRAWN}),
    "release_cost": (cost.release_cost, {"model": MODEL, "formula": "exact", **DRAWN}),
    "event_outcome": (event_outcome, {"model": MODEL, "policy": POLICY}),
    "estimate_chain": (dpe.estimate_chain, {"power": POWER, "n_states": 3, "times": TIMES, "by_time": True}),
    "ensemble": (dpe.ensemble, {"profile": POWER[:5], "buildings": 2, "noise": 0.1, "rng": 0}),
    "customer_baseline": (dpe.customer_baseline, {"times": TIMES, "kw": POWER, "event": dpe.DemandResponseEvent()}),
    "Tariff": (dpe.Tariff, {"price": 0.1}),
    "DemandResponseEvent": (dpe.DemandResponseEvent, {"date": "2018-07-02", "start": "11:00", "end": "15:00"}),
    "campus_event": (dpe.campus_event, SMALL),
    "DirichletMechanism": (dpe.DirichletMechanism, {"k": 5.0, "floor": 0.01}),
    "release": (dpe.DirichletMechanism(5.0).release, {"data": MODEL.default, "rng": 0}),
    "sample_log": (dpe.DirichletMechanism(5.0).sample_log, {"row": MODEL.default[0], "size": 2, "rng": 0}),
    "Release": (dpe.Release, {"log_matrix": lsmdp.log_probabilities(MODEL.default), "event": EVENT}),
    "DirichletEvent": (DirichletEvent, {"k": 5.0, "floor": 0.0, "successors": (3, 3, 3), "h": (0.03,)}),
    "mechanism": (mechanism, {"spec": "dirichlet:k=5"}),
}

RUBBISH = st.one_of(
    st.sampled_from([None, True, np.nan, np.inf, -np.inf, 1e308, 5e-324, 10**30, -(10**30), object(), MODEL]),
    st.sampled_from([np.array(["2018-01-01"], "datetime64[s]"), np.zeros((2,) * 5), np.array([1 + 2j])]),
    st.floats(-50, 50) | st.integers(-3, 40) | st.text(max_size=3) | st.binary(max_size=2),
    st.lists(st.floats(), max_size=4) | st.lists(st.text(max_size=2), max_size=3),
    st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=3, max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2) | st.just(datetime.date(2018, 1, 1)),
)


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=60)
@given(data=st.data())
def test_rubbish_is_answered_or_refused(name, data):
    function, arguments = CALLS[name]
    function(**arguments)
    known = inspect.signature(function).parameters.values()
    spoilt = data.draw(st.sampled_from(sorted(one.name for one in known if one.kind != one.VAR_KEYWORD)))
    value = data.draw(RUBBISH)
    try:
        function(**{**arguments, spoilt: value})
    except ValueError as refusal:
        assert len(str(refusal)) > 20  # a sentence, not a word


# ------------------------------------------------------------------ what objects say of themselves
QUARTER = np.timedelta64(900, "s")
SERIES = PowerSeries(
    np.datetime64("2018-06-02", "s") + QUARTER * np.arange(4),
    [1.0, np.nan, 2.0, 3.0],
    QUARTER,
    notes=("Kept: 1 <negative> reading.",),
    source="hall.csv",
)


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (
            scenarios.make("spot"),
            "EnsembleModel(13 levels, 48 steps of 15 min from 2024-05-14 06:00, 100 loads, $12 per nat, 3 contexts)",
        ),
        (SERIES, "PowerSeries('hall.csv', 4 intervals of 15 min, 2018-06-02 00:00 to 2018-06-02 01:00, 1 missing)"),
        (Tariff(list(np.arange(24) / 100)), "Tariff(24 hourly prices, 0 to 0.23 $/kWh)"),
        (
            EnsembleVectorEnv(3, "campus-event", population="single"),
            "EnsembleVectorEnv(3 at a time, 20 states, 18 steps, 1 load, tilt mode, true behaviour)",
        ),
    ],
)
def test_repr(thing, text):
    assert repr(thing) == text
