"""Readings that follow one another, and the levels they are cut into."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.chain import estimate_chain, levels


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
