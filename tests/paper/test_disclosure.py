"""A policy made from a count matrix gives matrix and counts back, without z and without the matrix."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env.control.policies import digamma_policy, standard_policy, taylor_policy
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.paper.disclosure import disclose, read_back, tilted


def test_a_known_count_matrix_comes_back_from_the_policy_alone(campus):
    """Tilt it, publish the policy, recover matrix and counts: to the last transition, also from six digits."""
    matrix = (campus.counts + 1.0) / (campus.counts + 1.0).sum(axis=1, keepdims=True)
    model = EnsembleModel(matrix, campus.power_kw, campus.utility, campus.discomfort_penalty)
    for published in (standard_policy(model)[4], np.round(standard_policy(model)[-1], 12)):
        found = disclose(published)
        np.testing.assert_array_equal(found.counts, campus.counts)
        np.testing.assert_allclose(found.matrix, matrix, rtol=1e-12)
        assert found.products >= (campus.counts == 0).sum() and np.ptp(found.log_z) > 0.5
        assert "9,887 transitions come back" in str(found)
    last = disclose(standard_policy(model)[-1]).log_z
    utility = campus.utility[-1] / campus.discomfort_penalty
    np.testing.assert_allclose(last, utility - utility.mean(), atol=1e-9)


def test_what_is_no_count_matrix_gives_no_counts(campus):
    shifted = tilted(campus.counts, np.linspace(0, 3, 20))
    shifted[3] *= np.exp(0.01 * np.random.default_rng(0).standard_normal(20))
    found = disclose(shifted / shifted.sum(axis=1, keepdims=True))
    assert found.counts is None and "the counts are not revealed" in str(found)


@pytest.mark.parametrize("method", ["taylor", "digamma"])
def test_matrix_is_read_back_from_the_last_policy_and_public_prices(campus, method):
    """Another matrix gives another one back, and a policy that is not of this kind does not give the matrix."""
    model = campus
    log_z = model.utility[-1] / model.discomfort_penalty
    policy = {"taylor": taylor_policy, "digamma": digamma_policy}[method]

    def read(chosen):
        with np.errstate(divide="ignore"):
            return read_back(np.log(chosen[-1]), log_z, method, 20.0)

    np.testing.assert_allclose(read(policy(model, 20.0)), model.default, atol=1e-11)
    mixed = model.with_default(0.5 * model.default + 0.5 * np.eye(model.n_states))
    np.testing.assert_allclose(read(policy(mixed, 20.0)), mixed.default, atol=1e-11)
    assert np.abs(read(standard_policy(model)) - model.default).max() > 1e-3
