"""From a power series to a chain."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env.chain import MarkovChain, ensemble, estimate_chain
from dp_ensemble_env.chain.markov import lazy_walk, stationary


def stamps(count, start="2018-06-30T00:00", minutes=15):
    return np.datetime64(start, "s") + np.arange(count) * np.timedelta64(minutes * 60, "s")


def test_a_chain_in_numbers():
    """Three levels: 0 stays or goes up by two, 1 always goes down, 2 goes to 1 or stays."""
    default = np.array([[0.75, 0.0, 0.25], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    counts = np.array([[3, 0, 1], [4, 0, 0], [0, 3, 3]])
    chain = MarkovChain(default, np.arange(4.0), np.array([0.5, 1.5, 2.5]), counts)
    assert repr(chain) == "MarkovChain(3 levels, 5 possible moves, 14 transitions seen)"
    assert chain.observations.tolist() == [4, 4, 6] and chain.states([0.2, 2.9]).tolist() == [0, 2]
    refuses("power holds NaN", chain.states, [0.2, np.nan])
    for wrong in (np.arange(3.0), np.arange(5.0)):
        refuses("edges", MarkovChain, default, wrong, chain.power, counts)


@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from(["width", "quantile"]))
def test_counts_match_a_loop(seed, n, binning):
    power = np.random.default_rng(seed).gamma(3, size=300)
    chain = estimate_chain(power, n, binning=binning, on_unvisited="merge")
    states = np.clip(np.digitize(power, chain.edges) - 1, 0, chain.n_states - 1)
    counts = np.zeros((chain.n_states, chain.n_states), dtype=int)
    for now, then in zip(states[:-1], states[1:], strict=True):
        counts[now, then] += 1
    assert_array_equal(chain.counts, counts)
    assert_array_equal(chain.states(power), states)
    assert (chain.observations > 0).all()


def test_nothing_is_counted_across_gaps_however_they_appear():
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


@pytest.mark.parametrize(
    ("filters", "moves"),
    [
        ({}, 96 * 6 - 1),
        ({"start": "2018-06-30", "end": "2018-07-03"}, 96 * 4 - 1),  # no transition into or out of them
        ({"exclude": ["2018-07-02"]}, 96 * 5 - 2),
        ({"season": ("07-01", "09-25")}, 96 * 4 - 1),
        ({"season": ("12-01", "06-30")}, 96 * 2 - 1),  # over the new year
    ],
)
def test_filters_by_date_season_and_excluded_day(filters, moves):
    power = np.random.default_rng(0).uniform(0, 1, 96 * 6)
    assert estimate_chain(power, 2, times=stamps(96 * 6, "2018-06-29T00:00"), **filters).counts.sum() == moves


def test_levels_that_nothing_leaves_are_named_with_the_remedies_or_merged():
    power = [0.0, 1.0, 0.0, 10.0, 0.0]
    refuses(r"leaves state 1, 2, 3 \(state 1 spans 2 to 4\).*fewer.*quantile.*merge", estimate_chain, power, 5)
    chain = estimate_chain(power, 5, on_unvisited="merge")
    assert chain.n_states == 2 and chain.counts.sum() == 4 and (chain.observations > 0).all()
    assert_allclose(chain.edges[[0, -1]], [0, 10])
    equal = [0.0, 3.0, 0.0, 2.0, 0.0, 4.0, 1.0]
    refuses("only 2 of 3 quantile states differ", estimate_chain, equal, 3, binning="quantile")
    assert estimate_chain(equal, 3, binning="quantile", on_unvisited="merge").n_states == 2
    spike = np.random.default_rng(0).uniform(200, 300, 1000)
    spike[500] *= 1000
    refuses(r"18 in all.*look at the reading 2\d{5}", estimate_chain, spike, 20)
    assert estimate_chain(spike, 20, binning="quantile").n_states == 20


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"power": []}, "0 readings"),
        ({"power": [1.0]}, "1 readings"),
        ({"power": [np.nan] * 5}, "0 readings"),
        ({"power": [1.0, np.inf, 2.0]}, "infinite"),
        ({"power": [1.0, np.nan, 2.0]}, "one step apart"),
        ({"power": [[[1.0, 2.0]]]}, "1-D or 2-D"),
        ({"power": "abc"}, "real numbers"),
        ({"n_states": 1}, "at least 2"),
        ({"n_states": 100_001}, "n_states"),
        ({"n_states": 2.5}, "whole number"),
        ({"binning": "log"}, "unknown binning 'log'"),
        ({"on_unvisited": "drop"}, "unknown on_unvisited"),
        ({"start": "2018-01-01"}, "need times"),
        ({"times": stamps(3)}, "one stamp per reading"),
        ({"times": stamps(4), "season": ("13-01", "14-01")}, "cannot read a date"),
        ({"times": stamps(4), "exclude": ["yesterday"]}, "exclude must be a list of days"),
        ({"times": stamps(4), "step": -5}, "step must be positive"),
        ({"times": stamps(4), "end": "1999-01-01"}, "0 readings are left"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(kwargs, words):
    refuses(words, estimate_chain, **{"power": [1.0, 2.0, 1.0, 2.0], "n_states": 2, **kwargs})


@given(st.lists(st.one_of(st.floats(), st.none(), st.text(max_size=2)), max_size=8), st.integers(-2, 5))
def test_any_list_is_estimated_or_refused(power, n):
    try:
        chain = estimate_chain(power, n)
    except ValueError:
        return
    assert_allclose(chain.default.sum(axis=1), 1.0)


# ------------------------------------------------------------------ buildings
def test_buildings_by_hand():
    profile, rng = np.array([1.0, np.nan, 3.0]), np.random.default_rng(6)
    factors = [np.clip(rng.standard_normal(3) * 0.2 / 3, -0.2, 0.2) for _ in range(4)]
    expected = sum(profile * (1 + factor) for factor in factors)
    assert_allclose(ensemble(profile, 4, noise=0.2, rng=np.random.default_rng(6)), expected)
    assert_array_equal(ensemble(profile, 4, noise=0.2, rng=6), ensemble(profile, 4, noise=0.2, rng=6))


@pytest.mark.parametrize("buildings", [1, 10])
def test_sums_of_buildings_end_before_the_doubles_do(buildings):
    largest = np.finfo(float).max / buildings
    assert np.isfinite(ensemble([0.49 * largest], buildings, noise=1.0)).all()
    refuses(f"too large for the sum of {buildings} buildings", ensemble, [0.51 * largest], buildings)


# ------------------------------------------------------------------ walks
def test_stationary_distributions_known_in_closed_form():
    assert_allclose(stationary(np.array([[0.9, 0.1], [0.3, 0.7]])), [0.75, 0.25], atol=1e-14)
    assert_allclose(stationary(np.roll(np.eye(5), 1, axis=1)), np.full(5, 0.2), atol=1e-14)  # a cycle has a period
    weights = np.array([[5.0, 1.0, 2.0], [1.0, 3.0, 1.0], [2.0, 1.0, 7.0]])  # symmetric, so reversible
    assert_allclose(stationary(weights / weights.sum(axis=1, keepdims=True)), weights.sum(axis=1) / 23, atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_a_stationary_distribution_is_the_left_eigenvector(seed):
    matrix = np.random.default_rng(seed).dirichlet(np.full(12, 0.2), 12)
    values, vectors = np.linalg.eig(matrix.T)
    vector = np.real(vectors[:, np.argmin(np.abs(values - 1.0))])
    assert_allclose(stationary(matrix), vector / vector.sum(), atol=1e-12)


def test_a_lazy_walk_moves_within_its_reach():
    assert_allclose(lazy_walk(3, 0.6, 0.3, 1), [[2 / 3, 1 / 3, 0], [0.25, 0.5, 0.25], [0, 1 / 3, 2 / 3]])
    assert_allclose(lazy_walk(3, 1.0, 0.5)[0], np.array([4, 2, 1]) / 7)
    assert_array_equal(lazy_walk(4, reach=9), lazy_walk(4))
