"""Calls: their notice, their length, and what drawing power costs."""

from __future__ import annotations

import numpy as np

from dp_ensemble_env.scenarios import call


def test_a_call_comes_with_notice_and_lasts_an_hour():
    model = call.call(3)
    names, rng = np.array(model.context.names), np.random.default_rng(0)
    steps = np.cumsum(model.context.transition, axis=1)
    path = [0]
    for x in rng.random(20_000):
        path.append(int(np.searchsorted(steps[path[-1]], x)))
    words = names[path]
    begins = np.flatnonzero(words[:-8] == "notice 1")
    assert len(begins) > 100 and (words[begins - 1] == "quiet").all()
    for offset, word in enumerate(call.CONTEXTS[1:]):
        assert (words[begins + offset] == word).all()
    quiet = np.count_nonzero(words[:-1] == "quiet")
    chance = model.context.transition[0, 1]
    assert abs(len(begins) / quiet - chance) < 5 * np.sqrt(chance / quiet)
    assert model.context.start[0] == 1.0
