"""Spot prices: regimes and their ranges."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dp_ensemble_env.experiments.probes import Prober
from dp_ensemble_env.scenarios import card, make, spot


def test_british_regimes_are_the_root_of_the_half_hourly_ones_on_the_same_furnaces():
    model, synthetic = make("spot", regimes="gb"), make("spot")
    quarter = model.context.transition
    counts = np.array(spot.GB_COUNTS, dtype=float)
    assert_allclose(quarter @ quarter, counts / counts.sum(axis=1, keepdims=True), atol=1e-12)
    assert_allclose(np.diag(quarter), [0.822, 0.965, 0.844], atol=1e-3)
    assert (np.linalg.eigvals(quarter) > 0).all()  # the principal root
    assert_allclose(-model.utility[1:, :, -1] / (0.25 * model.power_kw[-1]), [[-0.021, 0.080, 0.189]] * 48)
    assert_allclose(model.context.start @ quarter, model.context.start, atol=1e-12)
    assert_allclose(model.default, synthetic.default)
    with pytest.raises(ValueError, match="regimes"):
        make("spot", regimes="fr")


def test_the_card_says_what_a_plan_by_the_clock_scores_with_either_regimes():
    scores = [Prober(make("spot", regimes=regimes)).open_loop() for regimes in ("synthetic", "gb")]
    about = card("spot")
    assert all(f"scores {score:.1f}" in about.story for score in scores)
