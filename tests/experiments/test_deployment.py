"""The split of a loss adds up, and each part is the one its name says."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import deployed, random_chain, switches

from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.experiments.deployment import PARTS, Regret, mean_regret, sample_matrix, split_regret
from dp_ensemble_env.privacy import PrivacyLedger, mechanism
from dp_ensemble_env.privacy.participants import simulated
from dp_ensemble_env.scenarios.problem import draw_release


def test_parts_are_differences_of_returns_and_add_up(campus):
    sample = 0.8 * campus.default + 0.2 * random_chain(np.random.default_rng(0), campus.n_states, 1.0)
    release = mechanism("dirichlet:k=20").release(sample, 1)
    agent = make_agent("best-price", EnsembleEnv(campus, privacy=release))
    found = split_regret(campus, release, sample=sample, agent=agent)
    best, sampled, planned = (deployed(campus, matrix) for matrix in (campus.default, sample, release.matrix))
    assert found.sampling == pytest.approx(best - sampled, rel=1e-9)
    assert found.privacy == pytest.approx(sampled - planned, rel=1e-9)
    assert sum(getattr(found, part) for part in PARTS) == pytest.approx(found.total, rel=1e-12)
    assert found.sampling > 0 and found.total > 0 and 0 < found.score < 100
    assert 96 < found.without_data < 98  # the public guess on the campus


def test_a_loss_with_nature_and_contexts_is_split_without_a_rest():
    model = switches(1)
    fleet = simulated(model, 400, 3, days=5)
    sample, pooled = sample_matrix(fleet, model.guess), fleet.counts.sum(axis=0, dtype=float)
    seen = pooled.sum(axis=-1) > 0
    np.testing.assert_allclose(sample[seen], (pooled / np.maximum(pooled.sum(axis=-1, keepdims=True), 1))[seen])
    np.testing.assert_allclose(sample_matrix(fleet.first(0), model.guess), model.guess, rtol=1e-12)
    release = draw_release("gaussian:epsilon=2", model, 1, fleet=fleet)
    assert not release.matrix[model.guess == 0].any()
    found = split_regret(model, release, sample=sample)
    best, sampled, planned = (deployed(model, matrix) for matrix in (model.default, sample, release.matrix))
    assert found.sampling == pytest.approx(best - sampled, rel=1e-9)
    assert found.privacy == pytest.approx(sampled - planned, rel=1e-9)
    assert found.total == pytest.approx(found.sampling + found.privacy, rel=1e-9) and found.total > 0
    low = deployed(model, None)
    assert found.without_data == pytest.approx(100.0 * (deployed(model, model.guess) - low) / (best - low), abs=1e-6)


def test_the_cents_of_the_table_add_up():
    rng = np.random.default_rng(1)
    for parts in (rng.normal(size=(500, 3)) * 10.0 ** rng.integers(-3, 4, size=(500, 1))).tolist():
        row = Regret("x", *parts, sum(parts), 50.0, 60.0, 1.0)
        shown = [float(cell) for cell in row.cells()[1:5]]
        assert round(sum(shown[:3]) - shown[3], 6) == 0
        assert np.abs(np.array(shown) - [*parts, sum(parts)]).max() < 0.0151
        assert "-0.00" not in row.cells()


def test_every_split_says_what_its_release_spent(campus):
    release = PrivacyLedger().release(mechanism("dirichlet:k=50,floor=0.05"), campus.default, 0)
    losses = [split_regret(campus, one) for one in (release, mechanism("dirichlet:k=20").release(campus.default, 1))]
    assert mean_regret("two", losses).privacy == pytest.approx((losses[0].privacy + losses[1].privacy) / 2)
    assert losses[0].epsilon == pytest.approx(PrivacyLedger().record(release).spent(1e-6))
    assert split_regret(campus, mechanism("public").release(campus.default)).epsilon == 0.0
