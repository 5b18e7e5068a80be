"""Small readings, single transitions and sums at the end of the doubles."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.chain import MarkovChain, by_time, ensemble, estimate_chain, levels

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


# ------------------------------------------------------------------ levels
ULP = np.finfo(float).eps


@pytest.mark.parametrize(
    ("low", "high", "accepted"),
    [
        (1.0, 1.0 + 8 * ULP, False), (1.0, 1.0 + 9 * ULP, True),  # four ulps for each of two states
        (1.0 - 2 * ULP, 1.0 + 4 * ULP, False),  # the coarser of two spacings counts
        (-1.0 - 4 * ULP, -1.0 + 2 * ULP, False), (0.0, 1e-300, True),
    ],
)  # fmt: skip
def test_readings_that_differ_by_a_few_ulps_have_one_level(low, high, accepted):
    values = np.array([low, high])
    if accepted:
        assert (np.diff(levels.cut(values, 2, "width")) > 0).all()
    else:
        with pytest.raises(ValueError, match="the power never changes"):
            levels.cut(values, 2, "width")


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
    assert levels.merge_unvisited(np.array(visited), np.array(edges, dtype=float)).tolist() == left


def test_one_level_is_too_few():
    for edges, visited in (([0.0, 1.0, 2.0], [0.5]), ([0.0, 1.0, 2.0, 3.0], [2.5, 2.7])):
        with pytest.raises(ValueError, match="merging leaves a single state"):
            levels.merge_unvisited(np.array(visited), np.array(edges))
    for wrong in ([0.0, 1.0], [0.0, 1.0, 1.0, 2.0], [0.0, 2.0, 1.0]):
        with pytest.raises(ValueError, match="at least three increasing"):
            levels.check_edges(wrong)
    assert levels.check_edges([0, 1, 2]).tolist() == [0.0, 1.0, 2.0]


def test_the_power_of_a_level_is_its_mean_reading_or_its_centre():
    edges = np.array([0.0, 1.0, 2.0, 4.0])
    assert levels.powers(np.array([0.2, 0.4, 3.5]), edges, "quantile").tolist() == pytest.approx([0.3, 1.5, 3.5])
    assert levels.powers(np.array([0.2, 0.4, 3.5]), edges, "width").tolist() == [0.5, 1.5, 3.0]
    assert levels.digitize(np.array([-1.0, 0.0, 1.0, 3.9, 4.0, 9.0]), edges).tolist() == [0, 0, 1, 2, 2, 2]


# ------------------------------------------------------------------ readings
class Stamped:
    """Readings with a `times` of their own meaning, and no `kw`."""

    times = "three"

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


def test_readings_that_are_no_series_are_an_array():
    power = [1.0, 2.0, 1.0, 2.0]
    assert (estimate_chain(Stamped(power), 2).counts == estimate_chain(power, 2).counts).all()
    with pytest.raises(ValueError, match=r"power\[2\] is infinite"):
        estimate_chain([1.0, 2.0, np.inf, 1.0], 2)


def test_two_readings_are_the_fewest_and_meters_do_not_follow_each_other():
    with pytest.raises(ValueError, match="1 readings are left"):
        estimate_chain([1.0, np.nan], 2)
    with pytest.raises(ValueError, match="no transition leaves state 1"):
        estimate_chain([1.0, 2.0], 2)
    with pytest.raises(ValueError, match="no two readings are one step apart"):
        estimate_chain([[1.0, 2.0]], 2)  # two meters with a reading each
    found = estimate_chain(np.array([[1.0, 2.0], [2.0, 1.0]]), 2)
    assert found.counts.tolist() == [[0, 1], [1, 0]]
    stamps = np.datetime64("2018-07-02T00") + np.array([0, 1, 2, 2, 3])
    with pytest.raises(ValueError, match="times holds 2018-07-02T02:00:00 twice"):
        estimate_chain([1.0, 2.0, 1.0, 2.0, 1.0], 2, times=stamps)


# ------------------------------------------------------------------ by time
def test_folds_strengths_and_sizes():
    stamps = np.datetime64("2018-07-02T05", "h") + 24 * np.arange(8)
    assert by_time.fold_of(stamps).tolist() == [0, 1, 2, 3, 4, 5, 0, 1]
    assert by_time.fold_of(np.repeat(stamps[:2], 2)).tolist() == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="all transitions leave on one day"):
        by_time.fold_of(stamps[:1] + np.arange(3))
    np.testing.assert_allclose(by_time.STRENGTHS[:-1], np.logspace(-2, 5, 57))  # eight a decade
    assert by_time.STRENGTHS[-1] == np.inf
    assert by_time.best_strength(np.r_[0.0, 1.0, 1.0, np.zeros(55)]) == by_time.STRENGTHS[2]
    assert by_time.grid_of(("hour",)) == (24, 1) and by_time.grid_of(("daytype",)) == (1, 2)


def test_tables_have_at_most_so_many_entries(monkeypatch):
    monkeypatch.setattr(by_time, "MOST_ENTRIES", 8)
    cell, origin, target = np.array([0, 1, 1]), np.array([0, 1, 1]), np.array([1, 0, 0])
    assert by_time.count_cells(cell, origin, target, 2, 2).tolist() == [[[0, 1], [0, 0]], [[0, 0], [2, 0]]]
    monkeypatch.setattr(by_time, "MOST_ENTRIES", 7)
    with pytest.raises(ValueError, match="2 matrices of 2 levels are too large"):
        by_time.count_cells(cell, origin, target, 2, 2)


def test_cells_are_drawn_towards_the_pooled_chain_by_their_counts():
    pooled = np.array([[0.25, 0.75], [0.5, 0.5]])
    counts = np.array([[[0, 0], [1, 0]], [[3, 1], [0, 9]]])
    for strength in (0.5, 1.0, 4.0):
        expected = (counts + strength * pooled) / (counts.sum(axis=-1, keepdims=True) + strength)
        np.testing.assert_allclose(by_time.shrink(counts, pooled, strength), expected)
    assert (by_time.shrink(counts, pooled, np.inf) == pooled).all()


# ------------------------------------------------------------------ chains
def test_a_chain_in_numbers():
    """Three levels: 0 stays or goes up by two, 1 always goes down, 2 goes to 1 or stays."""
    default = np.array([[0.75, 0.0, 0.25], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    counts = np.array([[3, 0, 1], [4, 0, 0], [0, 3, 3]])
    chain = MarkovChain(default, np.arange(4.0), np.array([0.5, 1.5, 2.5]), counts)
    assert chain.summary() == {
        "states": 3, "transitions": 14, "nonzeros": 5, "bandwidth": 2, "one_way_edges": 3, "deterministic_rows": 1,
        "rows_without_self_loop": 1, "smallest_entry": 0.25, "fewest_observations": 4,
    }  # fmt: skip
    assert repr(chain) == "MarkovChain(3 levels, 5 possible moves, 14 transitions seen)"
    assert chain.observations.tolist() == [4, 4, 6] and chain.states([0.2, 2.9]).tolist() == [0, 2]
    with pytest.raises(ValueError, match="power holds NaN"):
        chain.states([0.2, np.nan])
    for wrong in (np.arange(3.0), np.arange(5.0)):
        with pytest.raises(ValueError, match="edges"):
            MarkovChain(default, wrong, chain.power, counts)


def test_quantiles_that_coincide_and_numbers_of_levels():
    power = [0.0, 3.0, 0.0, 2.0, 0.0, 4.0, 1.0]
    with pytest.raises(ValueError, match="only 2 of 3 quantile states differ"):
        estimate_chain(power, 3, binning="quantile")
    assert estimate_chain(power, 3, binning="quantile", on_unvisited="merge").n_states == 2
    for wrong in (1, 100_001):
        with pytest.raises(ValueError, match="n_states"):
            estimate_chain(power, wrong)
    for wrong in (-0.1, 1.1):
        with pytest.raises(ValueError, match="noise"):
            ensemble(power, noise=wrong)


def test_buildings_by_hand():
    profile, rng = np.array([1.0, np.nan, 3.0]), np.random.default_rng(6)
    factors = [np.clip(rng.standard_normal(3) * 0.2 / 3, -0.2, 0.2) for _ in range(4)]
    expected = sum(profile * (1 + factor) for factor in factors)
    np.testing.assert_allclose(ensemble(profile, 4, noise=0.2, rng=np.random.default_rng(6)), expected)
