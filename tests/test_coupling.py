"""Targets and limits on the total power: costs, conjugates, what a coupling refuses."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.context import Context
from dp_ensemble_env.control.coupled import solve_coupled
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.model import EnsembleModel

LATER = slice(1, None)
SMALL = {
    "tracking": Coupling.tracking([9.0, 0.6, 0.2, 0.4], [9.0, 0.3, 0.0, 2.5]),
    "limit": Coupling.limit([9.0, 0.6, np.inf, 0.4], [9.0, 0.3, 0.0, 2.5]),
}


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


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("x", [0.1, 0.5, 0.9, 3.0])
def test_conjugate_and_slope_by_search_and_differences(kind, x):
    """Fenchel and Young, with weights and misses below and above one: f(x) + f*(price) - price x."""
    coupling, price = SMALL[kind], np.array([0.1, 0.0, 0.8])
    grid = np.linspace(-5, 5, 100_001)
    excess = coupling.excess(LATER, price, np.full(3, x))
    for t in (1, 2, 3):
        values = price[t - 1] * grid - coupling.cost(t, grid)
        assert excess[t - 1] == pytest.approx(coupling.cost(t, x) + values.max() - price[t - 1] * x, abs=1e-6)
        assert coupling.conjugate(LATER, price)[t - 1] == pytest.approx(values.max(), abs=1e-6)
        if price[t - 1]:
            wanted = coupling.conjugate_derivative(LATER, price)[t - 1]
            assert wanted == pytest.approx(grid[values.argmax()], abs=1e-3)
        slope = (coupling.cost(t, x + 1e-6) - coupling.cost(t, x - 1e-6)) / 2e-6
        assert coupling.slope(t, np.array(x)) == pytest.approx(slope, abs=1e-6)


def test_just_at_a_hard_cap_nothing_is_lost():
    cap = Coupling.limit([9.0, 0.5, 0.25])
    assert cap.excess(LATER, [0.7, 0.0], [0.5, 0.25]).tolist() == [0.0, 0.0] and cap.total([9.0, 0.5, 0.25]) == 0.0
    assert cap.excess(LATER, [0.7, 0.0], [0.4, 0.3]).tolist() == pytest.approx([0.07, np.inf])


def test_multipliers_are_bounded_where_something_is_asked():
    low, high = Coupling.tracking([9.0, 1.0, 1.0, 1.0], [9.0, 0.3, 0.0, 2.5]).bounds(LATER)
    assert low.tolist() == [-np.inf, 0.0, -np.inf] and high.tolist() == [np.inf, 0.0, np.inf]
    coupling = Coupling.limit([9.0, 1.0, np.inf, 2.0], [9.0, 0.3, 2.0, 2.5])
    low, high = coupling.bounds(LATER)
    assert low.tolist() == [0.0, 0.0, 0.0] and high.tolist() == [0.3, 0.0, 2.5]
    assert coupling.conjugate_derivative(LATER, [0.1, 0.0, 0.2]).tolist() == [1.0, 0.0, 2.0]


def model(coupling, **changes):
    """Two loads that do as they like for four steps."""
    fields = {"spread_start": True, "coupling": coupling, **changes}
    return EnsembleModel(np.full((2, 2), 0.5), [0.0, 1.0], np.zeros((5, 2)), 1.0, **fields)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Coupling.tracking([1.0, 2.0], np.inf), "weight at time 0 is inf"),
        (lambda: Coupling.limit([1.0, 2.0, 3.0], [1.0, 2.0, -0.1]), "weight at time 2 is -0.1"),
        (lambda: Coupling.tracking([1.0, np.inf], 1.0), "target"),
        (lambda: Coupling.limit([1.0, -np.inf, 3.0], 1.0), "limit"),
        (lambda: Coupling.limit([3.0]), "T \\+ 1 entries"),
        (lambda: Coupling.limit([3.0, 3.0, 3.0], [1.0, 1.0]), "one per time"),
        (lambda: Coupling("quadratic", np.ones(3), np.ones(3)), "tracking"),
        (lambda: model(Coupling.limit(np.ones(3))), "5 levels"),
        (lambda: model(Coupling.limit(np.ones(5)), spread_start=False), "spread_start"),
        (lambda: model(Coupling.limit(np.ones(5)), context=Context(np.full((2, 2), 0.5))), "in two ways"),
        (lambda: solve_coupled(model(None)), "no coupling"),
        (lambda: Coupling("limit", np.ones(4), np.array([0, 1, np.inf, np.inf])).packed(), "cap at time 2.*finite"),
    ],
)
def test_a_coupling_refuses_what_is_not_convex_or_does_not_fit(build, words):
    with pytest.raises(ValueError, match=words):
        build()
