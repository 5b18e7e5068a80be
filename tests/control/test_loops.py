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

from dp_ensemble_env.control.lsmdp import evaluate_policy, log_probabilities, occupancy, solve

PENALTY = 1.3


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


@pytest.mark.parametrize("physical", [False, True])
@pytest.mark.parametrize("several", list(itertools.product([1, 2], repeat=3)))
@pytest.mark.parametrize("moving", [1, 2])
def test_two_contexts_and_two_times_share_what_is_given_once(physical, several, moving):
    """Behaviour and nature for (1 or 2 times) x (1 or 2 contexts); utilities and moves for one or each."""
    times, contexts, utilities = several
    rng = np.random.default_rng(1)
    n, m = 3, 2 if physical else 3
    default = stochastic(rng, times, contexts, n, m)
    nature = stochastic(rng, contexts, times, m, n).swapaxes(0, 1) if physical else None
    moves = stochastic(rng, moving, 2, 2)
    utility, policy = rng.normal(size=(3, utilities, n)), stochastic(rng, 2, 2, n, m)
    world = {"nature": nature, "context": moves}
    found = solve(np.log(default), utility, PENALTY, **world)
    cost = evaluate_policy(policy, default, utility, PENALTY, **world)
    first, start = rng.dirichlet(np.ones(n)), np.array([0.0, 1.0])
    shares = occupancy(policy, first, **world, start=start)
    behaviour = np.broadcast_to(default, (2, 2, n, m))
    physics = np.broadcast_to(np.eye(n) if nature is None else nature, (2, 2, m, n))
    step, reward = np.broadcast_to(moves, (2, 2, 2)), np.broadcast_to(utility, (3, 2, n))
    log_z, value, here = reward[2] / PENALTY, -reward[2], start[:, None] * first
    for t in (1, 0):
        ahead = np.einsum("wv,was,vs->wa", step[t], physics[t], log_z)
        logs = np.log(behaviour[t]) + ahead[:, None]
        log_z = reward[t] / PENALTY + logsumexp(logs, axis=-1)
        assert_allclose(found.log_desirability[t], log_z, rtol=1e-11, atol=1e-12)
        assert_allclose(found.policy[t], np.exp(logs - logsumexp(logs, axis=-1, keepdims=True)), rtol=1e-11)
        later = np.einsum("wv,was,vs->wa", step[t], physics[t], value)
        value = -reward[t] + PENALTY * rel_entr(policy[t], behaviour[t]).sum(-1)
        value = value + np.einsum("wsa,wa->ws", policy[t], later)
        assert_allclose(cost[t], value, rtol=1e-11, atol=1e-12)
    for t in (0, 1):
        here = np.einsum("ws,wsa,wax,wv->vx", here, policy[t], physics[t], step[t])
        assert_allclose(shares[t + 1], here, rtol=1e-12)


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


@pytest.mark.parametrize("general", [False, True])
def test_weights_and_desirabilities_that_vanish_only_together(general):
    """Kernel e^-400 and desirability e^-400: each is a double, their product is not."""
    kernel = np.array([[0.0, -np.inf], [-np.inf, -400.0]])
    utility = np.array([[0.0, 0.0], [0.0, -400.0]])
    found = solve(kernel, utility, 1.0, **({"nature": np.eye(2)} if general else {}))
    assert_array_equal(found.log_desirability[0], [0.0, -800.0])


FREE = np.array([[0.5, 0.3, 0.2], [0.25, 0.25, 0.5], [0.1, 0.1, 0.8]])


UTILITY = np.array([[0.0, -1.0, -3.0], [0.0, -2.0, -0.4], [0.5, -1.0, -2.0]])


TWICE = np.stack([FREE] * 2)


def test_what_is_given_once_makes_no_batch():
    """A penalty may be any number; two kernels, two utilities or two penalties make a batch, one of each does not."""
    kernel, plain = log_probabilities(FREE), solve(log_probabilities(FREE), UTILITY, 2.0)
    for penalty in (2, np.int64(2), np.float64(2.0)):
        found = solve(kernel, UTILITY, penalty)
        assert_array_equal(found.log_desirability, plain.log_desirability)
        assert_array_equal(evaluate_policy(TWICE, FREE, UTILITY, penalty), evaluate_policy(TWICE, FREE, UTILITY, 2.0))
    two = solve(np.log(np.stack([TWICE, TWICE[:, ::-1]])), UTILITY, 2.0)
    assert two.policy.shape == (2, 2, 3, 3) and two.discomfort_penalty == 2.0
    assert_array_equal(two.policy[1], solve(np.log(TWICE[:, ::-1]), UTILITY, 2.0).policy)
    one = solve(kernel, UTILITY[None], 2.0)
    assert one.policy.shape == (1, 2, 3, 3) and isinstance(one.discomfort_penalty, float)
    assert isinstance(solve(kernel, UTILITY, [2.0]).discomfort_penalty, float)
    both = solve(kernel, UTILITY, [2.0, 3.0])
    for i, penalty in enumerate((2.0, 3.0)):
        assert_allclose(both.cost_to_go[i], solve(kernel, UTILITY, penalty).cost_to_go, rtol=1e-13)
        assert_allclose(both.tilt[i], solve(kernel, UTILITY, penalty).tilt, atol=1e-13)


@pytest.mark.parametrize("batched", ["policy", "default", "utility", "penalty"])
def test_what_has_no_batch_is_shared_by_it(batched):
    rng = np.random.default_rng(6)
    given = {
        "policy": rng.dirichlet(np.ones(3), (4, 2, 3)),
        "default": rng.dirichlet(np.ones(3), (4, 2, 3)),
        "utility": rng.normal(size=(4, 3, 3)),
        "penalty": rng.uniform(0.5, 2.0, 4),
    }
    one = {name: value if name == batched else value[1] for name, value in given.items()}
    found = evaluate_policy(one["policy"], one["default"], one["utility"], one["penalty"])
    for i in range(4):
        alone = {name: value[i] if name == batched else value for name, value in one.items()}
        expected = evaluate_policy(alone["policy"], alone["default"], alone["utility"], float(alone["penalty"]))
        assert_allclose(found[i], expected, rtol=1e-13)
