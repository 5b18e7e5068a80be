"""Whatever is thrown at a public function, it answers, or refuses with one ValueError."""

from __future__ import annotations

import datetime
import os

import numpy as np
import pytest
from helpers import random_model
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dp_ensemble_env as dpe
from dp_ensemble_env.control import cost, lsmdp, policies
from dp_ensemble_env.privacy import DirichletEvent, mechanism
from dp_ensemble_env.reporting.outcome import event_outcome
from dp_ensemble_env.tools.files import atomic_write

MODEL = random_model(0, n=3, horizon=2, density=1.0)
EVENT = DirichletEvent(5.0, 0.0, (3, 3, 3))
POLICY = np.ascontiguousarray(np.broadcast_to(MODEL.default, (2, 3, 3)))
TIMES = np.datetime64("2018-06-02T00:00", "s") + np.arange(31 * 96) * np.timedelta64(900, "s")
POWER = 100 + np.arange(TIMES.size) % 7
CORE = {"utility": MODEL.utility, "discomfort_penalty": 3.0}

# A good call of each public function; the test spoils one argument at a time.
CALLS = {
    "solve": (dpe.solve, {"log_kernel": lsmdp.log_probabilities(MODEL.default), **CORE}),
    "evaluate_policy": (dpe.evaluate_policy, {"policy": POLICY, "default": MODEL.default, **CORE}),
    "occupancy": (lsmdp.occupancy, {"policy": POLICY, "initial": MODEL.initial}),
    "log_probabilities": (lsmdp.log_probabilities, {"default": MODEL.default}),
    "EnsembleModel": (
        dpe.EnsembleModel,
        {
            "default": MODEL.default,
            "power_kw": MODEL.power_kw,
            "utility": MODEL.utility,
            "discomfort_penalty": 3.0,
            "buildings": 10,
            "initial": [1],
            "times": None,
            "event": None,
            "counts": None,
        },
    ),
    "from_series": (
        dpe.EnsembleModel.from_series,
        {
            "power": POWER,
            "event": dpe.DemandResponseEvent(),
            "times": TIMES,
            "step": None,
            "profile": "aggregate",
            "n_states": 3,
            "buildings": 5,
            "discomfort_penalty": 3.0,
            "binning": "width",
            "on_unvisited": "merge",
            "season": None,
            "exclude": (),
            "holidays": (),
            "rng": 0,
        },
    ),
    "standard_policy": (dpe.standard_policy, {"model": MODEL}),
    "taylor_policy": (dpe.taylor_policy, {"model": MODEL, "k": 5.0}),
    "digamma_policy": (dpe.digamma_policy, {"model": MODEL, "k": 5.0}),
    "average_policy": (
        dpe.average_policy,
        {"model": MODEL, "k": 5.0, "method": "sampled", "samples": 3, "rng": 0},
    ),
    "average_exact": (dpe.average_policy, {"model": MODEL, "k": 5.0, "method": "exact"}),
    "as_printed": (policies.average_policy_as_printed, {"model": MODEL, "k": 5.0}),
    "solve_policy": (policies.solve_policy, {"model": MODEL, "name": "taylor", "k": 5.0}),
    "cost_of_privacy": (
        dpe.cost_of_privacy,
        {"model": MODEL, "k": 5.0, "method": "taylor", "formula": "paper", "samples": 3, "rng": 0},
    ),
    "release_cost": (cost.release_cost, {"model": MODEL, "k": 5.0, "formula": "exact", "samples": 3, "rng": 0}),
    "leading_order": (cost.release_cost_leading_order, {"model": MODEL, "k": 5.0}),
    "cost_as_printed": (cost.average_cost_as_printed, {"model": MODEL, "k": 5.0}),
    "policy_cost": (cost.policy_cost, {"model": MODEL, "policy": POLICY}),
    "event_outcome": (event_outcome, {"model": MODEL, "policy": POLICY}),
    "estimate_chain": (
        dpe.estimate_chain,
        {
            "power": POWER,
            "n_states": 3,
            "times": TIMES,
            "step": None,
            "binning": "width",
            "on_unvisited": "error",
            "start": None,
            "end": None,
            "season": None,
            "exclude": (),
            "edges": None,
            "by": ("hour",),
            "holidays": (),
        },
    ),
    "ensemble": (dpe.ensemble, {"profile": POWER[:5], "buildings": 2, "noise": 0.1, "rng": 0}),
    "customer_baseline": (
        dpe.customer_baseline,
        {
            "times": TIMES,
            "kw": POWER,
            "event": dpe.DemandResponseEvent(),
            "days": 10,
            "best": 5,
            "exclude": (),
            "adjustment": "none",
        },
    ),
    "Tariff": (dpe.Tariff, {"price": 0.1, "stamps": None}),
    "DemandResponseEvent": (
        dpe.DemandResponseEvent,
        {
            "date": "2018-07-02",
            "start": "11:00",
            "end": "15:00",
            "notice_minutes": 30,
            "step_minutes": 15,
            "incentive": 1.0,
            "tariff": 0.1,
        },
    ),
    "campus_event": (dpe.campus_event, {"seed": 0, "n_states": 5, "buildings": 3, "discomfort_penalty": 3.0}),
    "campus_chain": (dpe.campus_chain, {"seed": 0, "n_states": 5, "buildings": 3}),
    "DirichletMechanism": (dpe.DirichletMechanism, {"k": 5.0, "floor": 0.01}),
    "release": (
        dpe.DirichletMechanism(5.0).release,
        {"data": MODEL.default, "rng": 0, "support": None},
    ),
    "sample_log": (dpe.DirichletMechanism(5.0).sample_log, {"row": MODEL.default[0], "size": 2, "rng": 0}),
    "Release": (dpe.Release, {"log_matrix": lsmdp.log_probabilities(MODEL.default), "event": EVENT}),
    "DirichletEvent": (
        DirichletEvent,
        {
            "k": 5.0,
            "floor": 0.0,
            "successors": (3, 3, 3),
            "h": (0.03,),
            "entries": "two",
            "h_source": "stated",
            "seeding": "seed",
        },
    ),
    "mechanism": (mechanism, {"spec": "dirichlet:k=5"}),
}

RUBBISH = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(-50, 50),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e308, 5e-324, 10**30, -(10**30)]),
    st.integers(-3, 40),
    st.text(max_size=3),
    st.binary(max_size=2),
    st.lists(st.floats(), max_size=4),
    st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=3, max_size=3),
    st.lists(st.text(max_size=2), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.builds(object),
    st.just(np.array(["2018-01-01"], dtype="datetime64[s]")),
    st.just(np.zeros((2, 2, 2, 2, 2))),
    st.just(np.array([1 + 2j])),
    st.just(datetime.date(2018, 1, 1)),
    st.just(MODEL),
)


@pytest.mark.parametrize("name", CALLS)
def test_good_calls_are_good(name):
    function, arguments = CALLS[name]
    function(**arguments)


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=60)
@given(data=st.data())
def test_rubbish_is_answered_or_refused(name, data):
    function, arguments = CALLS[name]
    spoilt = data.draw(st.sampled_from(sorted(arguments)))
    value = data.draw(RUBBISH)
    try:
        function(**{**arguments, spoilt: value})
    except ValueError as refusal:
        assert len(str(refusal)) > 20  # a sentence, not a word


@given(st.floats())
@example(0.0)
@example(-0.0)
@example(5e-324)
def test_k_is_positive_or_refused(k):
    if k > 0:
        assert np.isfinite(dpe.digamma_policy(MODEL, k)).all()
    else:
        with pytest.raises(ValueError, match="k must be"):
            dpe.digamma_policy(MODEL, k)


def test_only_regular_files_are_replaced_and_links_are_followed(tmp_path):
    pipe, real, link = tmp_path / "pipe", tmp_path / "real.txt", tmp_path / "link.txt"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="device or the like"), atomic_write(pipe):
        pass
    assert pipe.is_fifo()
    real.write_text("old")
    link.symlink_to(real)
    with atomic_write(link) as stream:
        stream.write("new")
    assert link.is_symlink() and real.read_text() == "new"
