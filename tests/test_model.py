"""The frozen description of a problem names what is wrong with it."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.event import DemandResponseEvent
from dp_ensemble_env.model import EnsembleModel

GOOD = {
    "default": [[0.9, 0.1], [0.5, 0.5]],
    "power_kw": [10.0, 20.0],
    "utility": np.zeros((4, 2)),
    "discomfort_penalty": 3.0,
}


def test_defaults_and_derived_values():
    model = EnsembleModel(**GOOD)
    assert (model.n_states, model.horizon, model.step_hours) == (2, 3, 0.25)
    assert_allclose(model.initial, 0.5)
    assert_allclose(np.exp(model.log_default), model.default)
    assert model.default_policy.shape == (3, 2, 2)
    assert_allclose(EnsembleModel(**GOOD, initial=[1]).initial, [0, 1])
    assert_allclose(EnsembleModel(**GOOD, initial=[0, 1]).initial, [0.5, 0.5])
    assert_allclose(EnsembleModel(**GOOD, initial=[0.25, 0.75]).initial, [0.25, 0.75])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"default": [[0.9, 0.2], [0.5, 0.5]]}, r"row 0 of default sums to 1.1"),
        ({"default": [[1.1, -0.1], [0.5, 0.5]]}, r"default\[0, 1\] is -0.1"),
        ({"default": [[np.nan, 1.0], [0.5, 0.5]]}, r"default\[0, 0\] is nan"),
        ({"default": [[0.5, 0.5]]}, "square"),
        ({"default": np.ones((0, 0))}, "square"),
        ({"default": np.full((2, 2, 2), 0.5)}, "horizon is 3"),
        ({"default": [["a", "b"]]}, "real numbers"),
        ({"power_kw": [1.0]}, "power_kw"),
        ({"power_kw": [1.0, -2.0]}, r"power_kw\[1\] is negative"),
        ({"utility": np.zeros((2, 4))}, "utility must have shape"),
        ({"utility": np.zeros((1, 2))}, "utility must have shape"),
        ({"utility": [[0, 0], [0, np.nan]]}, r"utility\[1, 1\] is nan"),
        ({"discomfort_penalty": 0.0}, "discomfort_penalty"),
        ({"discomfort_penalty": None}, "discomfort_penalty"),
        ({"buildings": 0}, "buildings"),
        ({"buildings": 1.5}, "whole number"),
        ({"initial": [0.5, 0.6]}, "sum 1.1"),
        ({"initial": [5]}, "states are 0"),
        ({"initial": [0.2, 0.2, 0.6]}, "initial must be"),
        ({"times": ["2018-01-01T00:00"] * 4}, "equal steps"),
        ({"times": ["2018-01-01T00:00"]}, "4 stamps"),
        ({"times": "soon"}, "times"),
        ({"event": DemandResponseEvent().timeline()}, "event covers 19"),
        ({"counts": np.zeros((3, 3))}, "counts"),
        ({"counts": [[-1, 0], [0, 0]]}, "whole numbers"),
    ],
)
def test_bad_input_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        EnsembleModel(**{**GOOD, **change})


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
    with pytest.raises(ValueError, match="no field 'penalty'"):
        model.override(penalty=3)


def test_private_counts_do_not_travel_with_a_release():
    model = EnsembleModel(**GOOD, counts=[[9, 1], [5, 5]])
    assert model.with_default([[0.8, 0.2], [0.4, 0.6]]).counts is None
