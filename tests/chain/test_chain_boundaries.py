"""Small readings, single transitions and sums at the end of the doubles."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.chain import by_time, ensemble, levels

LARGEST = np.finfo(float).max


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_unit_of_the_readings_does_not_matter_to_the_hint(scale):
    """A reading more than ten times what is usual is pointed at, whether readings are watts or megawatts."""
    edges = scale * np.array([0.0, 1.0, 2.0, 3.0])
    for top, hinted in ((5.01, True), (4.9, False)):
        values = scale * np.concatenate([np.full(500, 0.5), [top]])
        message = levels.unvisited_message(np.array([1]), edges, values)
        assert ("look at the reading" in message) == hinted and "no transition leaves state 1" in message
    assert "look at" not in levels.unvisited_message(np.array([1]), edges, np.zeros(5))
    assert "look at" in levels.unvisited_message(np.array([1]), edges, scale * np.append(np.full(500, -2.0), 0.2))


@pytest.mark.parametrize("buildings", [1, 10])
def test_sums_of_buildings_end_before_the_doubles_do(buildings):
    total = ensemble([0.49 * LARGEST / buildings], buildings, noise=1.0)
    assert np.isfinite(total).all()
    with pytest.raises(ValueError, match=f"too large for the sum of {buildings} buildings"):
        ensemble([0.51 * LARGEST / buildings], buildings)


def likelihood_by_hand(moves, fold, n, strength):
    """Mean log-likelihood of the left-out transitions that the other days know; zero if there are none."""
    logs = []
    for left in np.unique(fold):
        rest = [move for move, f in zip(moves, fold, strict=True) if f != left]
        for cell, b, a in (move for move, f in zip(moves, fold, strict=True) if f == left):
            leaving = [x for _, y, x in rest if y == b]
            if a not in leaving:
                continue
            pooled = leaving.count(a) / len(leaving)
            here = [x for c, y, x in rest if (c, y) == (cell, b)]
            p = pooled if np.isinf(strength) else (here.count(a) + strength * pooled) / (len(here) + strength)
            logs.append(np.log(p))
    return sum(logs) / max(len(logs), 1)


@pytest.mark.parametrize(
    "moves",
    [
        [(0, 0, 0), (1, 0, 1)],  # nothing is known
        [(0, 0, 0), (0, 0, 0), (0, 0, 1), (1, 1, 0)],  # one is known on each side, or none
        [(0, 0, 1), (1, 0, 1), (1, 0, 0), (0, 1, 1), (1, 1, 1), (0, 0, 0), (2, 1, 0)],
    ],
)
@pytest.mark.parametrize("folds", [[0, 1], [0, 1, 1], [0, 0, 1]])
def test_transitions_that_the_other_days_do_not_know_are_left_out(moves, folds):
    fold = np.array([folds[i % len(folds)] for i in range(len(moves))])
    if len(np.unique(fold)) < 2:
        fold[-1] = 1
    found = by_time.held_out(*np.array(moves).T, fold, 2)
    expected = [likelihood_by_hand(moves, fold, 2, strength) for strength in by_time.STRENGTHS]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
