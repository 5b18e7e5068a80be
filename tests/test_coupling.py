"""Targets and limits on the total power: costs, conjugates, what a coupling refuses."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.context import Context
from dp_ensemble_env.control.coupled import solve_coupled
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.model import EnsembleModel


def test_costs_and_violations_by_hand():
    tracking = Coupling.tracking([9.0, 2.0, 3.0], [7.0, 0.0, 4.0])
    assert tracking.total([0.0, 0.0, 1.5]) == 9.0
    assert [tracking.violation(t, 1.5) for t in range(3)] == [0.0, 0.0, 1.5]
    limit = Coupling.limit([0.0, np.inf, 3.0], 2.0)
    assert limit.total([[9.0, 9.0, 4.0], [0.0, 0.0, 2.0]]).tolist() == [2.0, 0.0]
    assert limit.violation(2, [4.0, 2.0]).tolist() == [1.0, 0.0]
    kind, level, weight = limit.packed()
    assert (kind, level.tolist(), weight.tolist()) == (1, [0.0, np.inf, 3.0], [0.0, 0.0, 2.0])
    assert tracking.packed()[0] == 0
    hard = Coupling.limit([5.0, 5.0])
    assert hard.cost(1, 5.0) == 0.0 and hard.cost(1, 5.1) == np.inf and hard.cost(0, 6.0) == 0.0


@pytest.mark.parametrize(
    "coupling", [Coupling.tracking([0.0, 2.0, 1.0], [0.0, 3.0, 0.5]), Coupling.limit([0, 2, 1], 3)]
)
def test_the_conjugate_is_the_supremum(coupling):
    grid = np.linspace(-20, 20, 80_001)
    price = np.array([2.5, 0.7])
    for t in (1, 2):
        values = price[t - 1] * grid - coupling.cost(t, grid)
        assert coupling.conjugate(price)[t - 1] == pytest.approx(values.max(), abs=1e-6)
        assert coupling.conjugate_derivative(price)[t - 1] == pytest.approx(grid[values.argmax()], abs=1e-3)
        x = np.array([0.3, 0.3])
        gap = coupling.cost(t, 0.3) + values.max() - price[t - 1] * 0.3
        assert coupling.excess(price, x)[t - 1] == pytest.approx(gap, abs=1e-6)


SMALL = {
    "tracking": Coupling.tracking([9.0, 0.6, 0.2, 0.4], [9.0, 0.3, 0.0, 2.5]),
    "limit": Coupling.limit([9.0, 0.6, np.inf, 0.4], [9.0, 0.3, 0.0, 2.5]),
}


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("x", [0.1, 0.5, 0.9])
def test_small_weights_and_small_misses_count_in_the_gap(kind, x):
    """Fenchel and Young with numbers below one: f(x) + f*(price) - price x, the conjugate by search."""
    coupling, price = SMALL[kind], np.array([0.1, 0.0, 0.8])
    grid = np.linspace(-5, 5, 100_001)
    excess = coupling.excess(price, np.full(3, x))
    for t in (1, 2, 3):
        best = (price[t - 1] * grid - coupling.cost(t, grid)).max()
        assert excess[t - 1] == pytest.approx(coupling.cost(t, x) + best - price[t - 1] * x, abs=1e-6)
        assert coupling.conjugate(price)[t - 1] == pytest.approx(best, abs=1e-6)


def test_just_at_a_hard_cap_nothing_is_lost():
    cap = Coupling.limit([9.0, 0.5, 0.25])
    assert cap.excess([0.7, 0.0], [0.5, 0.25]).tolist() == [0.0, 0.0] and cap.total([9.0, 0.5, 0.25]) == 0.0
    assert cap.excess([0.7, 0.0], [0.4, 0.3]).tolist() == pytest.approx([0.07, np.inf])


def test_a_coupling_says_the_levels_that_are_asked_for():
    assert "0.4 … 0.6 kW per load" in repr(SMALL["tracking"]) and "$2.5 per kW²" in repr(SMALL["tracking"])
    assert "weight 0" in repr(Coupling.tracking([1.0, 2.0], 0.0))


def test_levels_and_weights_that_a_coupling_takes():
    limit = Coupling.limit([1.0, np.inf, 2.0, 2.0], [5.0, 5.0, 0.0, 0.5])
    assert limit.weight.tolist() == [0.0, 0.0, 0.0, 0.5] and limit.horizon == 3 and not limit.is_hard
    assert repr(limit) == "Coupling(limit, 3 steps, 2 kW per load, $0.5 per kW)"
    assert repr(Coupling.limit([1.0, 1.0, 3.0])) == "Coupling(limit, 2 steps, 1 … 3 kW per load, hard)"
    for kind, level, weight, words in (
        ("limit", [1.0], 1.0, "T \\+ 1 entries"), ("tracking", [1.0, 2.0], [1.0], "weight has 1 entries"),
        ("limit", [1.0, 2.0, 3.0], [1.0, 2.0, -0.1], "weight at time 2 is -0.1"),
        ("limit", [1.0, 2.0, 3.0], [1.0, np.nan, -0.1], "weight at time 1 is nan"),
        ("tracking", [1.0, 2.0, 3.0], [1.0, 2.0, np.inf], "weight at time 2 is inf"),
        ("tracking", [1.0, np.inf, 3.0], 1.0, "target"), ("limit", [1.0, -np.inf, 3.0], 1.0, "limit"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            Coupling(kind, np.array(level), np.array(weight))


def test_a_hard_cap_is_named_by_its_first_time():
    weight = np.array([0.0, 1.0, 2.0, np.inf, np.inf])
    with pytest.raises(ValueError, match="hard cap at time 3,"):
        Coupling("limit", np.full(5, 2.0), weight).packed()


def test_multipliers_are_bounded_where_something_is_asked():
    low, high = Coupling.tracking([9.0, 1.0, 1.0, 1.0], [9.0, 0.3, 0.0, 2.5]).bounds()
    assert low.tolist() == [-np.inf, 0.0, -np.inf] and high.tolist() == [np.inf, 0.0, np.inf]
    low, high = Coupling.limit([9.0, 1.0, np.inf, 1.0], [9.0, 0.3, 2.0, 2.5]).bounds()
    assert low.tolist() == [0.0, 0.0, 0.0] and high.tolist() == [0.3, 0.0, 2.5]


def test_where_there_is_no_limit_no_power_is_asked_for():
    coupling = Coupling.limit([9.0, 1.0, np.inf, 2.0], [9.0, 0.3, 2.0, 2.5])
    assert coupling.conjugate_derivative([0.1, 0.0, 0.2]).tolist() == [1.0, 0.0, 2.0]
    assert coupling.conjugate([0.1, 0.0, 0.2]).tolist() == [0.1, 0.0, 0.4]


def model(coupling, **changes):
    """Two loads that do as they like for four steps."""
    fields = {"spread_start": True, "coupling": coupling, **changes}
    return EnsembleModel(np.full((2, 2), 0.5), [0.0, 1.0], np.zeros((5, 2)), 1.0, **fields)


def test_a_coupling_refuses_what_is_not_convex_or_does_not_fit():
    for build, words in (
        (lambda: Coupling.tracking([1.0, 2.0], np.inf), "weight at time 0 is inf"),
        (lambda: Coupling.tracking([1.0, 2.0], [0.0, -1.0]), "weight at time 1 is -1"),
        (lambda: Coupling.tracking([1.0, np.inf], 1.0), "target"),
        (lambda: Coupling.limit([1.0, np.nan], 1.0), "limit"),
        (lambda: Coupling.limit(3.0), "1-D"),
        (lambda: Coupling.limit([3.0]), "T \\+ 1 entries"),
        (lambda: Coupling.limit([3.0, 3.0, 3.0], [1.0, 1.0]), "one per time"),
        (lambda: Coupling("quadratic", np.ones(3), np.ones(3)), "tracking"),
        (lambda: model(Coupling.limit(np.ones(3))), "5 levels"),
        (lambda: model(Coupling.limit(np.ones(5)), spread_start=False), "spread_start"),
        (lambda: model(Coupling.limit(np.ones(5)), context=Context(np.full((2, 2), 0.5))), "in two ways"),
        (lambda: solve_coupled(model(None)), "no coupling"),
        (lambda: Coupling.limit(np.ones(3)).packed(), "finite weight"),
        (lambda: Coupling.limit(np.ones(3)).check(4), "5 levels"),
    ):
        with pytest.raises(ValueError, match=words):
            build()
