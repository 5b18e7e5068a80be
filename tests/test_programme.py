"""What a relief programme pays, by hand and by brute force."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.programme import PROGRAMMES, ReliefProgramme


def test_payment_by_hand():
    terms = PROGRAMMES["csrp"]
    assert (terms.reservation, terms.energy, terms.notice_hours) == (18.0, 1.0, 21.0)
    # 100 kW pledged, 60 kW delivered over four hours: 18 * 60 + 60 * 4.
    assert terms.payment(60.0, 100.0, 4.0) == pytest.approx(1320.0)
    assert terms.payment(150.0, 100.0, 4.0) == pytest.approx(18 * 100 + 600)
    assert terms.payment(-20.0, 100.0, 4.0) == 0.0
    assert terms.performance_factor(30.0, 0.0) == 1.0


@pytest.mark.parametrize("shortfall", [None, 2.0, 60.0])
def test_the_best_pledge_is_that_of_a_search(shortfall):
    terms = ReliefProgramme(shortfall=shortfall)
    draws = np.random.default_rng(1).normal(100.0, 30.0, 400)
    cost = terms.reservation if shortfall is None else shortfall

    def revenue(pledge):
        kept = np.maximum(draws, 0.0)
        return np.mean(terms.payment(kept, pledge, 4.0) - cost * np.maximum(pledge - kept, 0.0))

    best = terms.best_pledge(draws)
    grid = np.linspace(0.0, 250.0, 2001)
    assert revenue(best) >= max(map(revenue, grid)) - 1e-9
    wanted = np.quantile(np.maximum(draws, 0), terms.reservation / (terms.reservation + cost))
    assert best == pytest.approx(wanted, abs=1.5)


def test_nothing_to_deliver_is_nothing_to_pledge():
    assert ReliefProgramme().best_pledge([-5.0, -1.0]) == 0.0
    with pytest.raises(ValueError, match="reservation"):
        ReliefProgramme(reservation=-1.0)
