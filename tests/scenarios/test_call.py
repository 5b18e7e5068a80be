"""Calls: their notice, their length, and what drawing power costs."""

from __future__ import annotations

import numpy as np

from dp_ensemble_env.scenarios import call


def test_a_call_comes_with_notice_and_lasts_an_hour():
    """Only when it is quiet may a call begin, only a rest may last; all between takes its course, a step each."""
    context = call.call(3).context
    assert context.names == ("quiet", "notice 1", "notice 2", "event 1", "event 2", "event 3", "event 4", "rest")
    moves = context.transition
    np.testing.assert_array_equal(moves[1:-1], np.eye(8)[2:])
    assert (moves[0] > 0).tolist() == [True, True] + 6 * [False] and 0.02 <= moves[0, 1] <= 0.03
    assert (moves[-1] > 0).tolist() == [True] + 6 * [False] + [True] and 0.06 <= moves[-1, 0] <= 0.1
    assert context.start[0] == 1.0
