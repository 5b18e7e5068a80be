"""The built-in synthetic data set and the models built from series."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.chain.event import DemandResponseEvent
from dp_ensemble_env.scenarios.campus import campus_chain, campus_event


@pytest.mark.parametrize("seed", range(4))
def test_matrix_is_as_irregular_as_real_ones(seed):
    chain = campus_chain(seed)
    assert chain.n_states == 20 and chain.power[17] == pytest.approx(32_100, rel=1e-9)  # as published
    seen = chain.default > 0
    rows, columns = np.nonzero(seen)
    assert np.abs(rows - columns).max() >= 4  # not tridiagonal
    assert chain.default[seen].min() < 2e-3  # rare entries, below h/2 = 0.015
    assert (seen & ~seen.T).sum() >= 5  # one-way edges
    assert chain.counts.sum() == 103 * 96 - 1


def test_overrides_reach_the_event_and_the_model():
    model = campus_event(start="14:00", end="18:00", incentive=0.5, initial=[7], n_states=10, loads=10)
    assert model.n_states == 10 and model.loads == 10
    assert str(model.times[0]) == "2018-07-02T13:30:00"
    assert model.initial[7] == 1.0
    assert model.utility[-1, 0] == pytest.approx(-0.637 * model.power_kw[0] / 4)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"event": DemandResponseEvent(), "start": "12:00"}, "not both"),
        ({"step_minutes": 10, "notice_minutes": 30}, "15-minute readings"),
        ({"n_states": 1}, "n_states"),
    ],
)
def test_bad_settings_are_refused(kwargs, words):
    with pytest.raises(ValueError, match=words):
        campus_event(**kwargs)
