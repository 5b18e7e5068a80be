"""From a power series to a chain, pooled and by hour and type of day."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.chain import MarkovChain, TimedChain, ensemble, estimate_chain, markov
from dp_ensemble_env.chain.markov import lazy_walk, stationary


def stamps(count, start="2018-07-02T00:00", minutes=60):
    return np.datetime64(start, "s") + np.arange(count) * np.timedelta64(minutes * 60, "s")


def test_a_chain_in_numbers():
    """Three levels: 0 stays or goes up by two, 1 always goes down, 2 goes to 1 or stays."""
    default = np.array([[0.75, 0.0, 0.25], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    counts = np.array([[3, 0, 1], [4, 0, 0], [0, 3, 3]])
    chain = MarkovChain(default, np.arange(4.0), np.array([0.5, 1.5, 2.5]), counts)
    assert repr(chain) == "MarkovChain(3 levels, 5 possible moves, 14 transitions seen)"
    assert chain.states([-1, 0, 1, 2.9, 3, 9]).tolist() == [0, 0, 1, 2, 2, 2]
    refuses("power holds NaN", chain.states, [0.2, np.nan])
    refuses("edges", MarkovChain, default, np.arange(3.0), chain.power, counts)


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_counts_match_a_loop(seed, n):
    power = np.random.default_rng(seed).gamma(3, size=300)
    chain = estimate_chain(power, n, on_unvisited="merge")
    states = np.clip(np.digitize(power, chain.edges) - 1, 0, chain.n_states - 1)
    counts = np.zeros((chain.n_states, chain.n_states), dtype=int)
    for now, then in zip(states[:-1], states[1:], strict=True):
        counts[now, then] += 1
    assert_array_equal(chain.counts, counts)
    assert_array_equal(chain.states(power), states)
    assert_allclose(chain.power, (chain.edges[1:] + chain.edges[:-1]) / 2)
    assert (chain.counts.sum(axis=1) > 0).all()


def test_nothing_is_counted_across_gaps_or_from_meter_to_meter():
    power, times, there = np.array([1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0]), stamps(7), np.delete(np.arange(7), 3)
    holed = np.where(np.arange(7) == 3, np.nan, power)
    for values, clock in (
        (power[there], times[there]),
        (power[there][::-1], times[there][::-1]),
        (holed, times),
        (holed, None),
    ):
        chain = estimate_chain(values, 2, times=clock)
        assert_array_equal(chain.counts, [[0, 2], [2, 0]])
    with pytest.raises(ValueError, match="read-only"):
        chain.default[0, 0] = 1
    assert estimate_chain(np.array([[1.0, 2.0], [2.0, 1.0]]), 2).counts.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("filters", "moves"),
    [
        ({}, 96 * 6 - 1),
        ({"exclude": ["2018-07-02"]}, 96 * 5 - 2),
        ({"season": ("07-01", "09-25")}, 96 * 4 - 1),
        ({"season": ("12-01", "06-30")}, 96 * 2 - 1),  # over the new year
    ],
)
def test_filters_by_date_season_and_excluded_day(filters, moves):
    power = np.random.default_rng(0).uniform(0, 1, 96 * 6)
    assert estimate_chain(power, 2, times=stamps(96 * 6, "2018-06-29", 15), **filters).counts.sum() == moves


def test_levels_that_nothing_leaves_are_named_with_the_remedies_or_merged():
    power = [0.0, 1.0, 0.0, 10.0, 0.0]
    refuses(r"leaves state 1, 2, 3 \(state 1 spans 2 to 4\).*fewer.*merge", estimate_chain, power, 5)
    chain = estimate_chain(power, 5, on_unvisited="merge")
    assert chain.n_states == 2 and chain.counts.sum() == 4 and (chain.counts.sum(axis=1) > 0).all()
    assert_allclose(chain.edges[[0, -1]], [0, 10])
    spike = np.random.default_rng(0).uniform(200, 300, 1000)
    spike[500] *= 1000
    refuses(r"18 in all.*look at the reading 2\d{5}", estimate_chain, spike, 20)
    for edges, visited in (([0.0, 1.0, 2.0], [0.5]), ([0.0, 1.0, 2.0, 3.0], [2.5, 2.7])):
        refuses("merging leaves a single state", markov.merge_unvisited, np.array(visited), np.array(edges))


@pytest.mark.parametrize(
    ("edges", "visited", "left"),
    [
        ([0, 1, 2, 3], [1.5, 2.5], [0, 2, 3]),  # the lowest goes up
        ([0, 1, 2, 3], [0.5, 1.5], [0, 1, 3]),  # the highest goes down
        ([0, 1, 2, 3], [0.5, 2.5], [0, 2, 3]),  # one in the middle goes down if it is as near
        ([0, 1, 2, 10], [0.5, 5.0], [0, 2, 10]),
        ([0, 8, 9, 10], [0.5, 9.5], [0, 8, 10]),
        ([0, 1, 2, 3, 4], [0.5, 3.5], [0, 2, 4]),
    ],
)
def test_levels_that_nothing_leaves_join_the_nearer_neighbour(edges, visited, left):
    assert markov.merge_unvisited(np.array(visited), np.array(edges, dtype=float)).tolist() == left


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"power": [1.0, np.nan]}, "1 readings are left"),
        ({"power": [1.0, np.inf, 2.0]}, "infinite"),
        ({"power": [1.0, np.nan, 2.0]}, "one step apart"),
        ({"power": [[1.0, 2.0]]}, "one step apart"),  # two meters with a reading each
        ({"power": [1.0, 2.0]}, "no transition leaves state 1"),
        ({"power": [3.0] * 4}, "the power never changes"),
        ({"n_states": 1}, "at least 2"),
        ({"season": ("01-01", "02-01")}, "need times"),
        ({"times": stamps(4)[[0, 1, 2, 2]]}, "times holds 2018-07-02T02:00:00 twice"),
        ({"times": stamps(4), "season": ("13-01", "14-01")}, "cannot read a date"),
        ({"times": stamps(4), "step": -5}, "step must be positive"),
        ({"times": stamps(4), "season": ("01-01", "02-01")}, "0 readings are left"),
        ({"edges": [0, 1]}, "at least three increasing numbers"),
        ({"edges": [0, 1, 1, 2]}, "increasing"),
        ({"by_time": True}, "by_time needs to know when"),
        ({"by_time": True, "times": stamps(4)}, "leave on one day"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(kwargs, words):
    refuses(words, estimate_chain, **{"power": [1.0, 2.0, 1.0, 2.0], "n_states": 2, **kwargs})


# ------------------------------------------------------------------ buildings and walks
def test_buildings_by_hand():
    profile, rng = np.array([1.0, np.nan, 3.0]), np.random.default_rng(6)
    factors = [np.clip(rng.standard_normal(3) * 0.2 / 3, -0.2, 0.2) for _ in range(4)]
    expected = sum(profile * (1 + factor) for factor in factors)
    assert_allclose(ensemble(profile, 4, noise=0.2, rng=np.random.default_rng(6)), expected)
    assert_array_equal(ensemble(profile, 4, noise=0.2, rng=6), ensemble(profile, 4, noise=0.2, rng=6))


def test_sums_of_buildings_end_before_the_doubles_do():
    largest = np.finfo(float).max / 10
    assert np.isfinite(ensemble([0.49 * largest], 10, noise=1.0)).all()
    refuses("too large for the sum of 10 buildings", ensemble, [0.51 * largest], 10)


@pytest.mark.parametrize("seed", range(3))
def test_a_stationary_distribution_is_the_left_eigenvector(seed):
    matrix = np.random.default_rng(seed).dirichlet(np.full(12, 0.2), 12)
    values, vectors = np.linalg.eig(matrix.T)
    vector = np.real(vectors[:, np.argmin(np.abs(values - 1.0))])
    assert_allclose(stationary(matrix), vector / vector.sum(), atol=1e-12)
    assert_allclose(stationary(np.roll(np.eye(5), 1, axis=1)), np.full(5, 0.2), atol=1e-14)  # a cycle has a period


def test_a_lazy_walk_moves_within_its_reach():
    assert_allclose(lazy_walk(3, 0.6, 0.3, 1), [[2 / 3, 1 / 3, 0], [0.25, 0.5, 0.25], [0, 1 / 3, 2 / 3]])
    assert_allclose(lazy_walk(3, 1.0, 0.5)[0], np.array([4, 2, 1]) / 7)
    assert_array_equal(lazy_walk(4, reach=9), lazy_walk(4))


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
    found = markov.held_out(*np.array(moves).T, fold, 2)
    expected = [likelihood_by_hand(moves, fold, 2, strength) for strength in markov.STRENGTHS]
    assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


def test_folds_strengths_and_sizes(monkeypatch):
    days = stamps(8, "2018-07-02T05:00", 24 * 60)
    assert markov.fold_of(days).tolist() == [0, 1, 2, 3, 4, 5, 0, 1]
    assert markov.fold_of(np.repeat(days[:2], 2)).tolist() == [0, 0, 1, 1]
    assert_allclose(markov.STRENGTHS, [*np.logspace(-2, 5, 57), np.inf])  # eight a decade
    monkeypatch.setattr(markov, "MOST_ENTRIES", 191)
    refuses("48 matrices of 2 levels are too large", markov.count_cells, *np.zeros((3, 3), dtype=int), 2)


def test_cells_are_drawn_towards_the_pooled_chain_by_their_counts():
    pooled = np.array([[0.25, 0.75], [0.5, 0.5]])
    counts = np.array([[[0, 0], [1, 0]], [[3, 1], [0, 9]]])
    for strength in (0.5, 1.0, 4.0):
        expected = (counts + strength * pooled) / (counts.sum(axis=-1, keepdims=True) + strength)
        assert_allclose(markov.shrink(counts, pooled, strength), expected)
    assert (markov.shrink(counts, pooled, np.inf) == pooled).all()


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
    chain = estimate_chain(states, times=times, edges=range(3), by_time=True, holidays=["2018-07-09"])
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
    sure = estimate_chain(np.tile([0.0, 1.0], 24), times=stamps(48), edges=range(3), by_time=True)
    assert sure.strength == np.inf  # all strengths are equally good


def test_a_decision_leaves_from_the_interval_that_has_just_ended():
    rng = np.random.default_rng(1)
    times = stamps(24 * 28)
    chain = estimate_chain(walk(truth(rng), times, rng), times=times, edges=range(4), by_time=True)
    decisions = stamps(25)  # a Monday: its first decision leaves from Sunday's last hour
    default = chain.at(decisions[:-1])
    assert default.shape == (24, 3, 3)
    assert_array_equal(default[0], chain.tables[23, 1])
    assert_array_equal(default[1:], chain.tables[:23, 0])
    assert len({chain.tables[h, d].tobytes() for h in range(24) for d in range(2)}) == 48  # no two are equal


def test_several_meters_are_counted_together_and_never_across():
    rng = np.random.default_rng(4)
    times = stamps(24 * 10)
    states = rng.integers(0, 3, (times.size, 4))
    together = estimate_chain(states, times=times, edges=range(4), by_time=True)
    assert isinstance(together, TimedChain)
    assert_array_equal(together.cell_counts, sum(by_loop(column, times, 3) for column in states.T))
    assert_array_equal(together.cell_counts.sum(axis=(0, 1)), together.counts)
    assert_array_equal(estimate_chain(states, edges=range(4)).counts, together.counts)


def test_estimate_converges_to_the_chain_that_made_the_data():
    """The root mean square error of the tables falls like one over the square root of the number of days."""
    rng = np.random.default_rng(11)
    tables = truth(rng)
    errors = []
    for weeks in (20, 320):
        times = stamps(24 * 7 * weeks)
        chain = estimate_chain(walk(tables, times, rng), times=times, edges=range(4), by_time=True)
        errors.append(np.sqrt(np.mean((chain.tables - tables) ** 2)))
    assert errors[1] < 0.05 and 2.5 < errors[0] / errors[1] < 6.0  # sixteen times the data: a quarter of the error
    for wrong in (np.roll(tables, 1, 0), np.roll(tables, -1, 0), tables[:, ::-1], tables.swapaxes(-1, -2)):
        assert np.sqrt(np.mean((chain.tables - wrong) ** 2)) > 3 * errors[1]
