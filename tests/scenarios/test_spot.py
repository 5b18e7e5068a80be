"""Spot prices: regimes and their ranges."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dp_ensemble_env.scenarios import spot


@pytest.mark.parametrize("seed", range(5))
def test_prices_of_spot_lie_in_their_ranges(seed):
    model = spot.spot(seed)
    prices = -model.utility[1:] / (0.25 * model.power_kw)  # dollars per kWh
    assert_allclose(prices, np.broadcast_to(prices[:1, :, :1], prices.shape))
    surplus, normal, scarcity = prices[0, :, 0]
    assert -0.24 <= surplus <= -0.18 and 0.05 <= normal <= 0.08 and 0.32 <= scarcity <= 0.42
    stay = np.diag(model.context.transition)
    assert (stay >= 0.92).all() and (stay <= 0.95).all()
    assert_allclose(model.context.start @ model.context.transition, model.context.start, atol=1e-12)
