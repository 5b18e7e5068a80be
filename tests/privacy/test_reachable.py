"""Tests of `reachable`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp_ensemble_env.control.dynamics import default_kernel
from dp_ensemble_env.privacy import (
    DirichletMechanism,
    PrivacyLedger,
    RowGroup,
    adjacency_from_counts,
    composed_epsilon,
    floorless_report,
    privacy_cost,
    reachable_settings,
)
from dp_ensemble_env.privacy.reachable import PRIVATE_MARK, advice


def test_what_the_smallest_entry_would_support():
    matrix = np.array([[0.7, 0.3], [0.2, 0.8]])
    report = floorless_report(matrix, 50, 0.03, 1e-6)
    assert report.entry == (1, 0) and report.smallest == 0.2 and report.rows == 2
    assert report.epsilon == pytest.approx(composed_epsilon(1e-6, [RowGroup(50, 0.2 - 0.015, 0.03, 2)]))
    assert "were it public" in str(report) and PRIVATE_MARK in str(report)
    none = floorless_report(matrix, 50, 0.4, 1e-6)  # 0.2 = h/2: the entry would vanish
    assert none.epsilon == math.inf and none.without_neighbour == 1
    by_row = floorless_report(matrix, 50, [0.5, 0.01], 1e-6)
    assert by_row.entry == (0, 1) and by_row.epsilon == pytest.approx(
        composed_epsilon(1e-6, [RowGroup(50, 0.05, 0.5), RowGroup(50, 0.05, 0.01)])
    )


def test_reachable_settings_reach_and_are_priced(campus):
    adjacency = adjacency_from_counts(np.rint(5000 * campus.default), 1)  # as if every row had been seen 5000 times
    for h in (0.03, adjacency):
        found = reachable_settings(campus, 20.0, 1e-6, h, draws=4, shares=(0.5, 0.95))
        assert found and [s.cost for s in found] == sorted(s.cost for s in found)
        for setting in found:
            ledger = PrivacyLedger()
            ledger.record(DirichletMechanism(setting.k, setting.floor).event(campus.default), h)
            assert 19.8 < ledger.spent(1e-6) <= 20.0
            assert f"${setting.cost:.2f}" in str(setting) and PRIVATE_MARK in str(setting)


def test_privacy_cost_against_the_performance_difference_identity(campus):
    """φ^π − φ* = E_π Σ γ KL(π ‖ π*): computed forwards here, backwards in the code."""
    from dp_ensemble_env.control.lsmdp import solve

    optimal = solve(default_kernel(campus), campus.utility, campus.discomfort_penalty).policy
    rng = np.random.default_rng(3)
    losses = []
    for _ in range(3):
        log_matrix = DirichletMechanism(60, 0.02).release(campus.default, rng).log_matrix
        policy = solve(log_matrix, campus.utility, campus.discomfort_penalty).policy
        occupancy, total = campus.initial.copy(), 0.0
        for t in range(campus.horizon):
            ratio = np.log(np.where(policy[t] > 0, policy[t], 1.0)) - np.log(np.where(optimal[t] > 0, optimal[t], 1.0))
            total += campus.discomfort_penalty * occupancy @ (policy[t] * ratio).sum(axis=1)
            occupancy = occupancy @ policy[t]
        losses.append(total)
    mean, error = privacy_cost(campus, 60, 0.02, draws=3, rng=np.random.default_rng(3))
    assert mean == pytest.approx(np.mean(losses), rel=1e-8)
    assert error == pytest.approx(np.std(losses, ddof=1) / math.sqrt(3), rel=1e-6)


def test_advice_names_what_the_matrix_supports_and_what_reaches_a_target(campus):
    event = DirichletMechanism(50).event(campus.default, seeding="seed", h=0.03)
    full = advice(campus, event, (15.0, 1e-6))
    smallest = campus.default[campus.default > 0].min()
    assert f"of {smallest:.3g}" in full and "supports no epsilon" in full
    assert "To reach (15, 1e-06) on this matrix: floor=" in full and full.count(PRIVATE_MARK) == 2
    hopeless = advice(campus, event, (0.01, 1e-6))
    assert "No k reaches (0.01, 1e-06) on this matrix" in hopeless and hopeless.count(PRIVATE_MARK) == 2
