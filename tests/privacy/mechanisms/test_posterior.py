"""Tests of `posterior`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fleets import CASES, empty_fleet
from numpy.testing import assert_allclose
from scipy.special import gammaln

from dp_ensemble_env.privacy import Fleet, mechanism
from dp_ensemble_env.privacy.audit import with_canary
from dp_ensemble_env.privacy.mechanisms import posterior
from dp_ensemble_env.privacy.mechanisms.fleet_sums import Layout
from dp_ensemble_env.privacy.mechanisms.posterior import trusted_rows


@pytest.mark.parametrize("several", [False, True])
def test_rows_by_hand(several, monkeypatch):
    """Sums less the prior, divided by the weights of rows; the noise of a row in units of its cells."""
    rng, made, heard = np.random.default_rng(1), mechanism("posterior:epsilon=1"), []
    layout = Layout(rng.dirichlet(np.ones(3), 3), 2, several=several)
    event = made.describe(states=3, seeding="seed")
    monkeypatch.setattr(posterior, "shrink_rows", lambda _, rows, noise, seen, tail: heard.append((rows, noise, seen)))
    monkeypatch.setattr(posterior, "shrink", lambda _, rows, error, tail: heard.append((rows, error)))
    sums = rng.normal(30.0, 10.0, (3, 3))
    sums[1] -= 40.0  # hardly seen
    made.estimate(layout, (event.prior + sums).ravel(), event)
    deviation = np.sqrt(np.maximum(event.prior + sums, event.prior))
    over = np.maximum(sums.sum(axis=1), 3.0 * np.sqrt((deviation**2).sum(axis=1)))[:, None]
    assert_allclose(heard[0][0], (sums / over).ravel())
    if several:
        units = np.sqrt(np.maximum(layout.guess, 1e-3))
        assert_allclose(heard[0][1], [math.sqrt((row**2).mean()) for row in deviation / over / units])
        assert heard[0][2].tolist() == [True, False, True]
    else:
        assert_allclose(heard[0][1], (deviation / over).ravel())
        assert made.estimate(layout, np.full(9, event.prior), event) is layout.guess and len(heard) == 1  # noise alone


def test_a_draw_is_charged_for_every_row_that_a_participant_may_touch():
    made = mechanism("posterior:epsilon=1")
    for case, rows in (("every cell", 12), ("a support", 10), ("classes", 9), ("one matrix", 3)):
        canary, terms = with_canary(empty_fleet(case)), CASES[case][1]
        layout = Layout.of(canary, 2, **terms)
        added = trusted_rows(canary, layout)
        assert (layout.row_sums(added) <= 1.0).all() and (layout.row_sums(added) > 0.99).sum() == rows
        event = made.event(canary, seeding="seed", **terms)
        ((loss, number),) = event.losses().counted("sequential")
        # The exact divergence of a participant who is as certain as can be, cell by cell.
        order, a, x = 8.0, event.prior, added[added > 0]
        exact = (gammaln(a - 7.0 * x) + 7.0 * gammaln(a + x) - 8.0 * gammaln(a)).sum() / 7.0
        assert exact <= (number * float(loss.renyi(np.array([order]))[0])) <= 1.05 * exact


def test_published_draws_are_balls_and_as_good_as_gamma_variates():
    fleet = Fleet.simulate(np.array([[0.8, 0.2], [0.3, 0.7]]), 4000, seed=2, steps=300)
    made = mechanism("posterior:epsilon=2")
    event = made.event(fleet)
    assert event.balls == min(2**22, 32 * event.known) and event.known == math.ceil(4 * event.prior)
    seeded = np.mean([made.release(fleet, seed).matrix for seed in range(6)], axis=0)
    assert_allclose(np.mean([made.release(fleet).matrix for _ in range(6)], axis=0), seeded, atol=0.05)
