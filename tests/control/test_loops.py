"""The compiled recursions: axes of length one and two, batches, states hundreds of nats apart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import random_chain
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp, rel_entr

from dp_ensemble_env.control.lsmdp import evaluate_policy, log_probabilities, solve


def stochastic(rng, *shape):
    return rng.dirichlet(np.ones(shape[-1]), shape[:-1])


def numpy_solve(log_kernel, utility, penalty):
    """Row-wise log-sum-exp, as Theorem 1 reads: the oracle of the compiled loop."""
    horizon = len(utility) - 1
    log_z = np.empty_like(utility)
    log_z[-1] = utility[-1] / penalty
    policy = np.empty((horizon, *log_kernel.shape[-2:]))
    for t in range(horizon - 1, -1, -1):
        kernel = log_kernel if log_kernel.ndim == 2 else log_kernel[t]
        x = kernel + log_z[t + 1]
        log_g = logsumexp(x, axis=1)
        policy[t] = np.exp(x - log_g[:, None])
        log_z[t] = utility[t] / penalty + log_g
    return log_z, policy


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([1.0, 300.0, 5000.0]))
def test_both_paths_match_plain_numpy(seed, varying, spread):
    """A spread of 5,000 nats takes the row path, 1 nat the exponential of each state."""
    rng = np.random.default_rng(seed)
    n, horizon = int(rng.integers(1, 7)), int(rng.integers(1, 6))
    default = np.stack([random_chain(rng, n, 0.6) for _ in range(horizon)]) if varying else random_chain(rng, n, 0.6)
    utility = -rng.uniform(0, spread, (horizon + 1, n))
    log_z, policy = numpy_solve(log_probabilities(default), utility, 2.0)
    solution = solve(log_probabilities(default), utility, 2.0)
    assert_allclose(solution.log_desirability, log_z, rtol=1e-12, atol=1e-10)
    assert_allclose(solution.policy, policy, rtol=0, atol=1e-9 * max(1, spread / 300))


def test_states_far_below_the_best_keep_their_row():
    """One state worth -10,000 nats: a shift common to all states would flush its policy to 0/0."""
    default = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.5, 0.5]])
    utility = np.array([[0.0, 0.0, 0.0], [0.0, -10_000.0, -10_000.5]])
    policy = solve(log_probabilities(default), utility, 1.0).policy[0]
    assert_allclose(policy[0], [1.0, 0.0, 0.0])
    assert_allclose(policy[1, 1:], [1 / (1 + np.exp(-0.5)), np.exp(-0.5) / (1 + np.exp(-0.5))], rtol=1e-12)


@pytest.mark.parametrize("several", list(itertools.product([1, 2], repeat=4)))
def test_a_batch_of_two_is_its_members(several):
    """Kernel, utility and penalty of each member or of both; one kernel for both of two times or one for each."""
    rng = np.random.default_rng(0)
    kernels, times, utilities, penalties = several
    default = stochastic(rng, kernels, times, 3, 3)
    utility, penalty = rng.normal(size=(utilities, 3, 3)), rng.uniform(0.5, 2.0, penalties)
    found = solve(np.log(default), utility, penalty)
    policy = stochastic(rng, 2, 2, 3, 3)
    cost = evaluate_policy(policy, default, utility, penalty)
    for m in range(max(kernels, utilities, penalties)):
        p, u, gamma = default[m % kernels], utility[m % utilities], float(penalty[m % penalties])
        log_z = u[2] / gamma
        value = -u[2]
        for t in (1, 0):
            step = p[t % times]
            weights = step * np.exp(log_z)
            assert_allclose(found.policy[m, t], weights / weights.sum(axis=1, keepdims=True), rtol=1e-12)
            log_z = u[t] / gamma + np.log(weights.sum(axis=1))
            assert_allclose(found.log_desirability[m, t], log_z, rtol=1e-11, atol=1e-12)
            value = -u[t] + gamma * rel_entr(policy[m, t], step).sum(axis=1) + policy[m, t] @ value
            assert_allclose(cost[m, t], value, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("nats", [590.0, 730.0, 2000.0])
@pytest.mark.parametrize("when", [0, 1, 2])
def test_states_that_lie_hundreds_of_nats_apart(general, sign, nats, when):
    """Two states that are never left: the desirability is the sum of the utilities, and nothing is rounded away."""
    utility = np.zeros((3, 2))
    utility[when, 1] = sign * nats
    more = {"context": np.eye(2)} if general else {}
    found = solve(log_probabilities(np.eye(2)), utility, 1.0, **more)
    expected = np.cumsum(utility[::-1], axis=0)[::-1]
    assert_array_equal(found.log_desirability, np.stack([expected] * 2, axis=1) if general else expected)
