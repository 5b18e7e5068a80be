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

LARGEST = np.finfo(float).max


@pytest.mark.parametrize("buildings", [1, 10])
def test_sums_of_buildings_end_before_the_doubles_do(buildings):
    total = ensemble([0.49 * LARGEST / buildings], buildings, noise=1.0)
    assert np.isfinite(total).all()
    refuses(f"too large for the sum of {buildings} buildings", ensemble, [0.51 * LARGEST / buildings], buildings)


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


def test_quantiles_that_coincide_and_numbers_of_levels():
    power = [0.0, 3.0, 0.0, 2.0, 0.0, 4.0, 1.0]
    refuses("only 2 of 3 quantile states differ", estimate_chain, power, 3, binning="quantile")
    assert estimate_chain(power, 3, binning="quantile", on_unvisited="merge").n_states == 2
    for wrong in (1, 0, 100_001):
        refuses("n_states", estimate_chain, power, wrong)


def test_buildings_by_hand():
    profile, rng = np.array([1.0, np.nan, 3.0]), np.random.default_rng(6)
    factors = [np.clip(rng.standard_normal(3) * 0.2 / 3, -0.2, 0.2) for _ in range(4)]
    expected = sum(profile * (1 + factor) for factor in factors)
    np.testing.assert_allclose(ensemble(profile, 4, noise=0.2, rng=np.random.default_rng(6)), expected)


def stamps(count, start="2018-06-30T00:00", minutes=15):
    return np.datetime64(start, "s") + np.arange(count) * np.timedelta64(minutes * 60, "s")


def naive_counts(states, n):
    counts = np.zeros((n, n), dtype=int)
    for now, then in zip(states[:-1], states[1:], strict=True):
        counts[now, then] += 1
    return counts


@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from(["width", "quantile"]))
def test_counts_match_a_loop(seed, n, binning):
    power = np.random.default_rng(seed).gamma(3, size=300)
    chain = estimate_chain(power, n, binning=binning, on_unvisited="merge")
    states = np.clip(np.digitize(power, chain.edges) - 1, 0, chain.n_states - 1)
    assert_array_equal(chain.counts, naive_counts(states, chain.n_states))
    assert_array_equal(chain.states(power), states)
    assert (chain.observations > 0).all()


def test_nothing_is_counted_across_gaps_however_they_appear():
    power = np.array([1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0])
    times = stamps(7)
    missing_stamp = np.delete(np.arange(7), 3)
    by_stamp = estimate_chain(power[missing_stamp], 2, times=times[missing_stamp])
    by_nan = estimate_chain(np.where(np.arange(7) == 3, np.nan, power), 2, times=times)
    without_times = estimate_chain(np.where(np.arange(7) == 3, np.nan, power), 2)
    turned = estimate_chain(power[missing_stamp][::-1], 2, times=times[missing_stamp][::-1])
    with pytest.raises(ValueError, match="read-only"):
        turned.default[0, 0] = 1
    for chain in (by_stamp, by_nan, without_times, turned):
        assert chain.counts.sum() == 4
        assert_array_equal(chain.counts, [[0, 2], [2, 0]])


def test_filters_by_date_season_and_excluded_day():
    times = stamps(96 * 6, "2018-06-29T00:00")
    power = np.random.default_rng(0).uniform(0, 1, times.size)
    all_days = estimate_chain(power, 2, times=times).counts.sum()
    assert all_days == 96 * 6 - 1
    # Four days inside, and no transition into or out of them.
    inside = estimate_chain(power, 2, times=times, start="2018-06-30", end="2018-07-03")
    assert inside.counts.sum() == 96 * 4 - 1
    assert estimate_chain(power, 2, times=times, exclude=["2018-07-02"]).counts.sum() == 96 * 5 - 2
    assert estimate_chain(power, 2, times=times, season=("07-01", "09-25")).counts.sum() == 96 * 4 - 1
    winter = estimate_chain(power, 2, times=times, season=("12-01", "06-30"))  # over the new year
    assert winter.counts.sum() == 96 * 2 - 1


def test_state_never_visited_is_named_with_its_range_and_the_remedies():
    power = [0.0, 1.0, 0.0, 10.0, 0.0]
    refuses(r"leaves state 1, 2, 3 \(state 1 spans 2 to 4\).*fewer.*quantile.*merge", estimate_chain, power, 5)


def test_merging_keeps_every_transition():
    power = [0.0, 1.0, 0.0, 10.0, 0.0]
    chain = estimate_chain(power, 5, on_unvisited="merge")
    assert chain.n_states == 2 and chain.counts.sum() == 4
    assert_allclose(chain.edges[[0, -1]], [0, 10])
    assert (chain.observations > 0).all()


def test_thousandfold_spike_empties_the_grid_and_is_pointed_at():
    power = np.random.default_rng(0).uniform(200, 300, 1000)
    power[500] *= 1000
    refuses(r"18 in all.*look at the reading 2\d{5}", estimate_chain, power, 20)
    assert estimate_chain(power, 20, binning="quantile").n_states == 20


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


def test_ensemble_averages_its_noise_out_and_repeats_with_its_seed():
    profile = np.full(4000, 200.0)
    total = ensemble(profile, 100, rng=5)
    assert total.mean() == pytest.approx(100 * 200.0, rel=2e-4)
    assert total.std() == pytest.approx(200 * np.sqrt(100) * 0.1 / 3, rel=0.06)
    assert_array_equal(total, ensemble(profile, 100, rng=np.random.default_rng(5)))
    assert np.isnan(ensemble([1.0, np.nan], 2)).tolist() == [False, True]


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
