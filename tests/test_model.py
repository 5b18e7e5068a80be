"""The frozen description of a problem names what is wrong with it."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import C, M, N, T, general_model

from dp_ensemble_env.chain.event import DemandResponseEvent
from dp_ensemble_env.context import Context
from dp_ensemble_env.meter import PowerSeries
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.scenarios.campus import campus_event

GOOD = {
    "default": [[0.9, 0.1], [0.5, 0.5]],
    "power_kw": [10.0, 20.0],
    "utility": np.zeros((4, 2)),
    "discomfort_penalty": 3.0,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"default": [[0.9, 0.2], [0.5, 0.5]]}, r"row 0 of default sums to 1.1"),
        ({"default": [[1.1, -0.1], [0.5, 0.5]]}, r"default\[0, 1\] is -0.1"),
        ({"default": [[np.nan, 1.0], [0.5, 0.5]]}, r"default\[0, 0\] is nan"),
        ({"default": [[0.5, 0.5]]}, "square"),
        ({"default": np.full((2, 2, 2), 0.5)}, "horizon is 3"),
        ({"power_kw": [1.0]}, "power_kw"),
        ({"power_kw": [1.0, -2.0]}, r"power_kw\[1\] is negative"),
        ({"utility": np.zeros((2, 4))}, "utility must have shape"),
        ({"utility": [[0, 0], [0, np.nan]]}, r"utility\[1, 1\] is nan"),
        ({"discomfort_penalty": 0.0}, "discomfort_penalty"),
        ({"buildings": 0}, "buildings"),
        ({"initial": [0.5, 0.6]}, "sum 1.1"),
        ({"initial": [5]}, "states are 0"),
        ({"times": ["2018-01-01T00:00"] * 4}, "equal steps"),
        ({"times": ["2018-01-01T00:00"]}, "4 stamps"),
        ({"event": DemandResponseEvent().timeline()}, "event covers 19"),
        ({"counts": np.zeros((3, 3))}, "counts"),
        ({"counts": [[-1, 0], [0, 0]]}, "whole numbers"),
    ],
)
def test_bad_input_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        EnsembleModel(**{**GOOD, **change})


def test_integers_are_start_states_and_floats_shares():
    for initial, shares in ((None, 0.5), ([1], [0, 1]), ([0, 1], 0.5), ([0.25, 0.75], [0.25, 0.75])):
        assert_allclose(EnsembleModel(**GOOD, initial=initial).initial, shares)


def test_frozen_copies_pickles_and_fingerprints():
    source = np.array(GOOD["default"])
    model = EnsembleModel(**{**GOOD, "default": source})
    source[0] = [0.0, 1.0]  # the caller's array is not the model's
    assert model.default[0, 0] == 0.9
    with pytest.raises(ValueError, match="read-only"):
        model.default[0, 0] = 0.5
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert twin.fingerprint == model.fingerprint
        assert_array_equal(twin.default, model.default)
    assert model.with_default(np.eye(2)).fingerprint != model.fingerprint
    with pytest.raises(ValueError, match="unknown field of EnsembleModel 'penalty'"):
        model.override(penalty=3)


def test_private_counts_do_not_travel_with_a_release():
    model = EnsembleModel(**GOOD, counts=[[9, 1], [5, 5]])
    other = [[0.8, 0.2], [0.4, 0.6]]
    assert model.with_default(other).counts is None
    assert model.override(default=other).counts is None
    assert_array_equal(model.override(default=other, counts=[[8, 2], [4, 6]]).counts, [[8, 2], [4, 6]])
    assert_array_equal(model.override(discomfort_penalty=4.0).counts, model.counts)


# ------------------------------------------------------------------ nature and context
def test_tables_are_written_out_in_full():
    model = general_model("nature by context")
    tables = model.tables()
    assert [table.shape for table in tables] == [(T, C, N, M), (T, C, M, N), (T, C, C), (T + 1, C, N)]
    assert (tables.behaviour[2] == model.default[2]).all() and (tables.nature[1] == model.nature[0]).all()
    campus = campus_event()
    assert (campus.tables().nature == np.eye(20)).all() and campus.tables().context.shape == (18, 1, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"nature": None}, "without nature a decision is the next state"),
        ({"nature": np.full((M, M), 0.25)}, "nature must have shape"),
        ({"context": Context(np.full((5, 3, 3), 1 / 3))}, "given for 5 steps but the horizon is 6"),
        ({"utility": np.zeros((T + 1, 2, N))}, "utility must have shape"),
        ({"utility": np.zeros((T + 1, C, M))}, "utility must have shape"),
        ({"tilt_scale": np.ones(4)}, "tilt_scale must have shape"),
        ({"guess": np.full((N, M), 1 / 4)}, "guess must have shape"),
    ],
)
def test_nature_and_context_that_do_not_fit_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        general_model("everything").override(**change)


# ------------------------------------------------------------------ from a series
def meter(days=40, start="2018-06-02", minutes=15):
    """A daily swing with a slower one on top, so that neighbouring levels are visited."""
    size = days * 24 * 60 // minutes
    hours = np.arange(size) * minutes / 60
    kw = 100 + 30 * np.sin(hours * np.pi / 12) + 10 * np.sin(hours / 7)
    times = np.datetime64(start, "s") + np.arange(size) * np.timedelta64(minutes, "m")
    return PowerSeries(times, kw, np.timedelta64(minutes, "m"), source="hall.csv")


def test_few_similar_days_are_noted_and_other_trouble_with_the_baseline_is_not_swallowed(monkeypatch):
    model = EnsembleModel.from_series(meter(days=10, start="2018-06-25"))
    assert model.event.baseline_kw is None
    assert model.notes[-1] == (
        "There is no customer baseline: only 5 complete similar days lie before 2018-07-02 (of the last 30 such days), "
        "the baseline needs 10; give a longer series or ask for fewer days."
    )

    def broken(*_, **__):
        raise ValueError("kw must hold real numbers")

    monkeypatch.setattr("dp_ensemble_env.chain.estimate.customer_baseline", broken)
    with pytest.raises(ValueError, match="kw must hold real numbers"):
        EnsembleModel.from_series(meter())


def test_few_readings_for_the_levels_are_noted_and_too_few_refused():
    day = meter(days=1, start="2018-07-02", minutes=60)
    event = DemandResponseEvent(step_minutes=60, notice_minutes=60)
    model = EnsembleModel.from_series(day, event, profile="aggregate", n_states=20)
    assert model.n_states < 20
    assert model.notes[1:3] == (
        "The readings are thin for 20 levels: 23 transitions, fewer than 10 a level. Ask for fewer levels or give a "
        "longer series.",
        f"20 levels were asked for and {model.n_states} remain: levels that no transition leaves were joined to a "
        "neighbour.",
    )
    with pytest.raises(ValueError, match="holds 23 transitions between adjacent readings, too few for 24 levels"):
        EnsembleModel.from_series(day, event, n_states=24)
