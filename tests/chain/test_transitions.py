"""Levels and their transitions, by hour and type of day, drawn towards the pooled chain."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import refuses
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.chain import TimedChain, estimate_chain, transitions


@pytest.mark.parametrize(
    ("edges", "visited", "left"),
    [
        ([0, 1, 2, 3], [1.5, 2.5], [0, 2, 3]),  # the lowest goes up
        ([0, 1, 2, 3], [0.5, 1.5], [0, 1, 3]),  # the highest goes down
        ([0, 1, 2, 3], [0.5, 2.5], [0, 2, 3]),  # one in the middle goes down if it is as near
        ([0, 1, 2, 10], [0.5, 5.0], [0, 2, 10]),
        ([0, 8, 9, 10], [0.5, 9.5], [0, 8, 10]),
        ([0, 1, 2, 3, 4], [0.5, 3.5], [0, 2, 4]),
        ([0, 1, 2], [0.5, 1.5], [0, 1, 2]),
    ],
)
def test_levels_that_nothing_leaves_join_the_nearer_neighbour(edges, visited, left):
    assert transitions.merge_unvisited(np.array(visited), np.array(edges, dtype=float)).tolist() == left


def test_one_level_is_too_few():
    for edges, visited in (([0.0, 1.0, 2.0], [0.5]), ([0.0, 1.0, 2.0, 3.0], [2.5, 2.7])):
        refuses("merging leaves a single state", transitions.merge_unvisited, np.array(visited), np.array(edges))
    for wrong in ([0.0, 1.0], [0.0, 1.0, 1.0, 2.0], [0.0, 2.0, 1.0]):
        refuses("at least three increasing", transitions.check_edges, wrong)
    assert transitions.check_edges([0, 1, 2]).tolist() == [0.0, 1.0, 2.0]


def test_the_power_of_a_level_is_its_mean_reading_or_its_centre():
    edges = np.array([0.0, 1.0, 2.0, 4.0])
    assert transitions.powers(np.array([0.2, 0.4, 3.5]), edges, "quantile").tolist() == pytest.approx([0.3, 1.5, 3.5])
    assert transitions.powers(np.array([0.2, 0.4, 3.5]), edges, "width").tolist() == [0.5, 1.5, 3.0]
    assert transitions.digitize(np.array([-1.0, 0.0, 1.0, 3.9, 4.0, 9.0]), edges).tolist() == [0, 0, 1, 2, 2, 2]


def test_two_readings_are_the_fewest_and_meters_do_not_follow_each_other():
    refuses("1 readings are left", estimate_chain, [1.0, np.nan], 2)
    refuses("no transition leaves state 1", estimate_chain, [1.0, 2.0], 2)
    refuses("no two readings are one step apart", estimate_chain, [[1.0, 2.0]], 2)  # two meters with a reading each
    found = estimate_chain(np.array([[1.0, 2.0], [2.0, 1.0]]), 2)
    assert found.counts.tolist() == [[0, 1], [1, 0]]
    stamps = np.datetime64("2018-07-02T00") + np.array([0, 1, 2, 2, 3])
    refuses("times holds 2018-07-02T02:00:00 twice", estimate_chain, [1.0, 2.0, 1.0, 2.0, 1.0], 2, times=stamps)


# ------------------------------------------------------------------ by time
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
    found = transitions.held_out(*np.array(moves).T, fold, 2)
    expected = [likelihood_by_hand(moves, fold, 2, strength) for strength in transitions.STRENGTHS]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_folds_strengths_and_sizes(monkeypatch):
    stamps = np.datetime64("2018-07-02T05", "h") + 24 * np.arange(8)
    assert transitions.fold_of(stamps).tolist() == [0, 1, 2, 3, 4, 5, 0, 1]
    assert transitions.fold_of(np.repeat(stamps[:2], 2)).tolist() == [0, 0, 1, 1]
    monkeypatch.setattr(transitions, "MOST_ENTRIES", 7)
    refuses("2 matrices of 2 levels are too large", transitions.count_cells, *np.zeros((3, 3), dtype=int), 2, 2)
    refuses("all transitions leave on one day", transitions.fold_of, stamps[:1] + np.arange(3))
    np.testing.assert_allclose(transitions.STRENGTHS[:-1], np.logspace(-2, 5, 57))  # eight a decade
    assert transitions.STRENGTHS[-1] == np.inf
    assert transitions.best_strength(np.r_[0.0, 1.0, 1.0, np.zeros(55)]) == transitions.STRENGTHS[2]
    assert transitions.grid_of(("hour",)) == (24, 1) and transitions.grid_of(("daytype",)) == (1, 2)


def test_cells_are_drawn_towards_the_pooled_chain_by_their_counts():
    pooled = np.array([[0.25, 0.75], [0.5, 0.5]])
    counts = np.array([[[0, 0], [1, 0]], [[3, 1], [0, 9]]])
    for strength in (0.5, 1.0, 4.0):
        expected = (counts + strength * pooled) / (counts.sum(axis=-1, keepdims=True) + strength)
        np.testing.assert_allclose(transitions.shrink(counts, pooled, strength), expected)
    assert (transitions.shrink(counts, pooled, np.inf) == pooled).all()


BOTH = ("hour", "daytype")


def stamps(count, start="2018-07-02T00:00", seconds=3600):
    return np.datetime64(start, "s") + np.arange(count) * np.timedelta64(seconds, "s")


def truth(rng, n=3, spread=0.6):
    """Draw matrices (24, 2, n, n) around a common one: the smaller the spread, the more alike they are."""
    common = rng.dirichlet(np.ones(n) * 3, size=n)
    return (1 - spread) * common + spread * rng.dirichlet(np.ones(n), size=(24, 2, n))


def walk(tables, times, rng, holidays=()):
    """Simulate states with Python's own calendar: the matrix is that of the interval which the move leaves."""
    states = [0]
    for stamp in times[:-1].tolist():
        free = stamp.weekday() >= 5 or str(stamp.date()) in holidays
        states.append(int(rng.choice(tables.shape[-1], p=tables[stamp.hour, int(free), states[-1]])))
    return np.array(states)


def by_loop(states, times, n, holidays=()):
    counts = np.zeros((24, 2, n, n), dtype=int)
    for at, b, a in zip(times[:-1].tolist(), states[:-1], states[1:], strict=True):
        counts[at.hour, int(at.weekday() >= 5 or str(at.date()) in holidays), b, a] += 1
    return counts


def test_transitions_counted_by_hand():
    """Friday 22:00 to Saturday 01:00, then Monday, a holiday, from 23:00: states 0 1 1 0 | 1 0."""
    friday, monday = stamps(4, "2018-07-06T22:00"), stamps(2, "2018-07-09T23:00")
    states, times = [0.0, 1, 1, 0, 1, 0], np.concatenate([friday, monday])
    chain = estimate_chain(states, times=times, edges=range(3), by=BOTH, holidays=["2018-07-09"])
    expected = np.zeros((24, 2, 2, 2), dtype=int)
    expected[22, 0, 0, 1] = 1  # Friday 22:00 -> 23:00
    expected[23, 0, 1, 1] = 1  # Friday 23:00 -> Saturday 0:00 leaves on a weekday
    expected[0, 1, 1, 0] = 1  # Saturday
    expected[23, 1, 1, 0] = 1  # the holiday; nothing is counted from Saturday to it
    assert_array_equal(chain.cell_counts, expected)
    assert_array_equal(chain.counts, [[0, 1], [2, 1]])
    k = chain.strength
    assert_allclose(chain.tables[23, 0, 1], [k * 2 / 3 / (1 + k), (1 + k / 3) / (1 + k)])
    assert_allclose(chain.tables[23, 1, 1], [(1 + k * 2 / 3) / (1 + k), k / 3 / (1 + k)])
    assert_allclose(chain.tables[5, 0], chain.default)  # never left at five: as pooled


@pytest.mark.parametrize(
    ("by", "shape"), [(("hour",), (24, 1)), (("daytype",), (1, 2)), (("daytype", "hour"), (24, 2))]
)
def test_one_key_or_both_in_any_order(by, shape):
    rng = np.random.default_rng(5)
    times = stamps(24 * 21)
    states = rng.integers(0, 3, times.size)
    chain = estimate_chain(states, times=times, edges=range(4), by=by)
    wanted = by_loop(states, times, 3)
    for axis, size in enumerate(shape):
        wanted = wanted if size > 1 else wanted.sum(axis=axis, keepdims=True)
    assert isinstance(chain, TimedChain) and chain.tables.shape == (*shape, 3, 3)
    assert_array_equal(chain.cell_counts, wanted)
    assert_array_equal(chain.cell_counts.sum(axis=(0, 1)), chain.counts)


def test_a_decision_leaves_from_the_interval_that_has_just_ended():
    rng = np.random.default_rng(1)
    times = stamps(24 * 28)
    chain = estimate_chain(walk(truth(rng), times, rng), times=times, edges=range(4), by=BOTH)
    decisions = stamps(25, "2018-07-02T00:00")  # a Monday: its first decision leaves from Sunday's last hour
    default = chain.at(decisions[:-1])
    assert default.shape == (24, 3, 3)
    assert_array_equal(default[0], chain.tables[23, 1])
    assert_array_equal(default[1:], chain.tables[:23, 0])
    assert_array_equal(chain.leaving(decisions[:-1])[1], chain.tables[1, 0])
    assert len({chain.tables[h, d].tobytes() for h in range(24) for d in range(2)}) == 48  # no two are equal


def test_several_meters_are_counted_together_and_never_across():
    rng = np.random.default_rng(4)
    times = stamps(24 * 10)
    states = rng.integers(0, 3, (times.size, 4))
    together = estimate_chain(states, times=times, edges=range(4), by=BOTH)
    assert_array_equal(together.cell_counts, sum(by_loop(column, times, 3) for column in states.T))
    assert_array_equal(estimate_chain(states, edges=range(4)).counts, together.counts)


def test_estimate_converges_to_the_chain_that_made_the_data():
    """The root mean square error of the tables falls like one over the square root of the number of days."""
    rng = np.random.default_rng(11)
    tables = truth(rng)
    errors = []
    for weeks in (20, 320):
        times = stamps(24 * 7 * weeks)
        chain = estimate_chain(walk(tables, times, rng), times=times, edges=range(4), by=BOTH)
        errors.append(np.sqrt(np.mean((chain.tables - tables) ** 2)))
    assert errors[1] < 0.05 and 2.5 < errors[0] / errors[1] < 6.0  # sixteen times the data: a quarter of the error
    for wrong in (np.roll(tables, 1, 0), np.roll(tables, -1, 0), tables[:, ::-1], tables.swapaxes(-1, -2)):
        assert np.sqrt(np.mean((chain.tables - wrong) ** 2)) > 3 * errors[1]


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"by": "minute"}, "'hour', 'daytype' or both, got 'minute'"),
        ({"by": ("hour", "month")}, "got 'month'"),
        ({"by": 3}, "got 3"),
        ({"times": None}, "by= needs to know when"),
        ({"power": [1.0, 2.0, 1.0, 2.0], "times": stamps(4)}, "leave on one day"),
        ({"edges": [0, 1]}, "at least three increasing numbers"),
        ({"edges": [0, 2, 1]}, "increasing"),
        ({"edges": [0, np.nan, 1]}, "not finite"),
        ({"power": np.full(48, 3.0)}, "the power never changes"),
        ({"holidays": ["soon"]}, "holidays must be a list of days"),
        ({"power": np.arange(48.0)[:, None, None]}, "1-D or 2-D"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(kwargs, words):
    settings = {"power": np.tile([1.0, 2.0], 24), "n_states": 2, "times": stamps(48), "by": BOTH, **kwargs}
    refuses(words, estimate_chain, **settings)
