"""Losses of single draws, and what they add up to, against closed forms and another library."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from scipy import optimize, stats

from dp_ensemble_env.privacy import (
    DirichletEvent,
    Losses,
    NoBound,
    PrivacyLedger,
    PureLoss,
    RowGroup,
    RowLoss,
    composed_epsilon,
    mechanism,
    total_epsilon,
)
from dp_ensemble_env.privacy.accounting import losses as module
from dp_ensemble_env.privacy.mechanisms.base import Disclosure, Event, PostProcessing


def exact_epsilon(delta: float, epsilon: float, draws: int) -> float:
    """ε of repeated randomised response: its outputs are counts of honest answers, two binomials."""
    p = 1.0 / (1.0 + math.exp(-epsilon))
    k = np.arange(draws + 1)
    log_p, log_q = stats.binom.logpmf(k, draws, p), stats.binom.logpmf(k, draws, 1 - p)

    def excess(total: float) -> float:
        return float(np.maximum(np.exp(log_p) - np.exp(total + log_q), 0.0).sum()) - delta

    return 0.0 if excess(0.0) <= 0 else float(optimize.brentq(excess, 0.0, draws * epsilon + 1e-9))


@pytest.mark.parametrize(("epsilon", "draws"), [(1.0, 1), (0.1, 20), (0.5, 7), (0.05, 200)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_pure_losses_compose_to_the_exact_value_or_a_little_above(epsilon, draws, delta):
    exact = exact_epsilon(delta, epsilon, draws)
    found = total_epsilon(delta, [(PureLoss(epsilon), draws)])
    # The composition is a fast Fourier transform, whose rounding depends on the processor.
    assert exact - 1e-8 <= found <= exact + 1e-3 * math.sqrt(draws) + 1e-3


def test_pure_losses_agree_with_dp_accounting():
    """An unseen library composes Laplace noise; randomised response bounds it from above."""
    accountant = PLDAccountant()
    accountant.compose(dp_event.LaplaceDpEvent(1 / 0.3), 10)
    assert accountant.get_epsilon(1e-6) <= total_epsilon(1e-6, [(PureLoss(0.3), 10)])


def test_pure_losses_add_up_without_delta():
    assert total_epsilon(0.0, [(PureLoss(0.3), 10), (PureLoss(1.0), 1)]) == pytest.approx(4.0)
    assert total_epsilon(0.0, [(PureLoss(0.3), 1), (RowLoss(50, 0.1, 0.03), 1)]) == math.inf


def test_rows_alone_are_composed_as_before():
    rows = [(RowLoss(50, 0.1, 0.03), 20), (RowLoss(50, 0.1, 0.01), 3)]
    groups = [RowGroup(50, 0.1, 0.03, 20), RowGroup(50, 0.1, 0.01, 3)]
    assert total_epsilon(1e-6, rows) == composed_epsilon(1e-6, groups)
    wide = [(RowLoss(50, 0.1, 0.03, "any"), 20), (RowLoss(50, 0.1, 0.01), 3)]
    assert total_epsilon(1e-6, wide) == composed_epsilon(1e-6, groups, "any") > total_epsilon(1e-6, rows)


def test_a_tiny_extra_loss_changes_a_mixture_by_little():
    rows = [(RowLoss(50, 0.1, 0.03), 20)]
    alone, mixed = total_epsilon(1e-6, rows), total_epsilon(1e-6, [*rows, (PureLoss(1e-3), 1)])
    assert alone - 1e-3 <= mixed <= alone + 0.02  # the grids differ a little


def test_without_the_convolution_the_renyi_bound_stands_in(monkeypatch):
    mixture = ((PureLoss(0.1), 20), (RowLoss(50, 0.1, 0.03), 20))
    tight = total_epsilon(1e-6, mixture)
    monkeypatch.setattr(module, "can_convolve", lambda: False)
    module._mixed_epsilon.cache_clear()
    loose = total_epsilon(1e-6, mixture)
    module._mixed_epsilon.cache_clear()
    assert tight < loose < 1.3 * tight


def test_renyi_divergence_of_randomised_response():
    p = 1.0 / (1.0 + math.exp(-0.7))
    for order in (1.5, 2.0, 8.0):
        value = math.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
        assert PureLoss(0.7).renyi(np.array([order]))[0] == pytest.approx(value, rel=1e-12)
    assert PureLoss(0.7).renyi(np.array([1e6]))[0] <= 0.7


def test_what_costs_nothing_and_what_nothing_bounds():
    default = np.array([[0.5, 0.5], [0.2, 0.8]])
    assert PostProcessing().losses() == mechanism("public").event(default).losses() == Losses()
    assert Losses().counted("sequential") == [] and total_epsilon(1e-6, []) == 0.0
    assert Disclosure().losses().counted("sequential") == [(NoBound(), 1)]
    bare = DirichletEvent(50.0, 0.0, (2, 2), (0.03,))
    assert bare.losses().counted("parallel") == [(NoBound(), 1)]
    assert total_epsilon(0.5, bare.losses().counted("sequential")) == math.inf
    assert DirichletEvent(50.0, 0.0, (1, 1), (0.03,)).losses() == Losses()  # one successor tells nothing


def test_public_releases_are_free_and_the_same_for_all_data():
    ledger = PrivacyLedger(budget=(0.1, 1e-6))
    first = ledger.release(mechanism("public"), np.eye(4))
    second = ledger.release(mechanism("public"), np.full((4, 4), 0.25))
    assert ledger.spent(1e-6) == 0.0 and np.array_equal(first.matrix, second.matrix)
    assert "(0, 1e-06)" in ledger.statement()
    row = mechanism("public:stay=0.6,decay=0.3,reach=2").release(np.eye(6)).matrix[2]
    weights = np.array([0.09, 0.3, 0.6, 0.3, 0.09, 0.0])
    assert row == pytest.approx(weights / weights.sum())


def test_events_survive_json_and_foreign_ones_are_refused():
    for event in (
        DirichletEvent(50.0, 0.1, (3, 2), (0.03, 0.01), "any", "counts", seeding="seed"),
        mechanism("public").event(np.eye(3)),
        Disclosure(),
    ):
        assert Event.from_json(event.to_json()) == event
        assert Event.from_json(event.to_json()).digest == event.digest
    assert DirichletEvent(50.0, 0.1, (3,)).digest != DirichletEvent(51.0, 0.1, (3,)).digest
    for nameless in ({}, {"type": ""}, {"type": 3}):
        with pytest.raises(ValueError, match="the type of an event is a text"):
            Event.from_json({**nameless, "losses": []})
    with pytest.raises(ValueError, match="losses are a list"):
        Event.from_json({"type": "magic"})
    with pytest.raises(ValueError, match="did you mean 'floor'"):
        Event.from_json({"type": "dirichlet", "k": 5.0, "flor": 0.1, "successors": [2], "losses": []})


def test_a_unit_that_touches_few_rows_pays_for_the_worst_in_whatever_order_they_are_stated():
    mild, bad = PureLoss(0.01), PureLoss(5.0)
    for one in (Losses.of({mild: 3, bad: 1}), Losses.of({bad: 1, mild: 3})):
        assert one.counted("parallel") == [(bad, 1)]
        assert sorted(one.counted(2), key=str) == sorted([(bad, 1), (mild, 1)], key=str)
