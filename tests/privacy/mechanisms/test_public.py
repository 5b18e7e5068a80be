"""Tests of `public`."""

from __future__ import annotations

import numpy as np
import pytest
from fleets import GUESS, INSIDE
from numpy.testing import assert_allclose

from dp_ensemble_env.privacy import PrivacyLedger, mechanism
from dp_ensemble_env.privacy.mechanisms.base import Event
from dp_ensemble_env.privacy.mechanisms.public import PublicMechanism


def test_public_releases_are_free_and_the_same_for_all_data():
    ledger = PrivacyLedger(budget=(0.1, 1e-6))
    first = ledger.release(mechanism("public"), np.eye(4))
    second = ledger.release(mechanism("public"), np.full((4, 4), 0.25))
    assert ledger.spent(1e-6) == 0.0 and np.array_equal(first.matrix, second.matrix)
    assert "(0, 1e-06)" in str(ledger.statement())
    row = mechanism("public:stay=0.6,decay=0.3,reach=2").release(np.eye(6)).matrix[2]
    weights = np.array([0.09, 0.3, 0.6, 0.3, 0.09, 0.0])
    assert row == pytest.approx(weights / weights.sum())


def test_the_public_guess_is_the_models_own_or_knows_nothing():
    walk = PublicMechanism().release(np.zeros((4, 2, 3, 3))).matrix
    assert_allclose(walk[3, 1], PublicMechanism().release(np.eye(3)).matrix)
    assert_allclose(PublicMechanism().release(GUESS).matrix, 0.25)
    own = PublicMechanism().release(INSIDE, guess=GUESS)
    assert_allclose(own.matrix, GUESS, rtol=1e-12)
    assert own.event.losses().counted("sequential") == []
    assert own.event != PublicMechanism().event(INSIDE) and PublicMechanism().event(INSIDE).guess == "lazy walk"
    assert Event.from_json(own.event.to_json()) == own.event
    with pytest.raises(ValueError, match="guess"):
        PublicMechanism().release(INSIDE, guess=GUESS[0])
