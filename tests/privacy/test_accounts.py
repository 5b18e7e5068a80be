"""Accounts against counting everything again."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.privacy.accounting.losses import GaussianLoss, total_epsilon
from dp_ensemble_env.privacy.ledger import Account
from dp_ensemble_env.privacy.mechanisms.base import PostProcessing
from dp_ensemble_env.privacy.mechanisms.gaussian import GaussianEvent

BUDGET = (2.0, 1e-5)


def draw(sigma):
    return GaussianEvent(sigma=sigma, states=3)


@pytest.mark.parametrize("seed", range(6))
def test_what_fits_a_budget_is_what_the_sum_says(seed):
    """Draws of three sizes in any order: what is remembered of earlier questions never changes an answer."""
    rng, account = np.random.default_rng(seed), Account(budget=BUDGET)
    counts: dict[float, int] = {}
    refused = 0
    for _ in range(60):
        sigma, times = float(rng.choice([7.0, 15.0, 40.0])), int(rng.integers(1, 7))
        after = {**counts, sigma: counts.get(sigma, 0) + times}
        epsilon = total_epsilon(BUDGET[1], [(GaussianLoss(s), n) for s, n in after.items()])
        said = account.excess(draw(sigma), times)
        assert (said is None) == (epsilon <= BUDGET[0])
        if said is None and rng.random() < 0.7:  # asked and not always spent
            account.add("x", draw(sigma), times)
            counts = after
        refused += said is not None
        if said is not None:
            assert f"epsilon={epsilon:.4g} at delta=1e-05, above the budget of 2" in said
    assert refused and account.epsilon(BUDGET[1]) <= BUDGET[0]
    assert sum(number for _, _, number in account.log) == sum(counts.values()) == sum(account.charges.values())


def test_the_last_draw_that_fits_is_taken_and_the_next_refused():
    account, fits = Account(budget=BUDGET), 0
    while total_epsilon(BUDGET[1], [(GaussianLoss(15.0), fits + 1)]) <= BUDGET[0]:
        fits += 1
    for number in range(fits):
        assert account.excess(draw(15.0), 1) is None, number
        account.add("x", draw(15.0), 1)
    assert account.excess(draw(15.0), 1) is not None
    assert account.excess(PostProcessing(), 1000) is None
    assert account.log == [("x", draw(15.0), fits)]
    account.add("y", draw(15.0), 2)
    account.add("y", draw(40.0), 1)
    assert [(label, number) for label, _, number in account.log] == [("x", fits), ("y", 2), ("y", 1)]
    assert Account().excess(draw(0.1), 10**6) is None
