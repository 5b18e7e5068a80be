"""The compiled loops: axes of length one and two, spreads beyond the range of doubles, draws number by number."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from helpers import random_model
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp, rel_entr

from dp_ensemble_env.control import sampling
from dp_ensemble_env.control.dynamics import default_kernel
from dp_ensemble_env.control.lsmdp import LogKernel, evaluate_policy, log_probabilities, occupancy, solve
from dp_ensemble_env.control.policies import average_policy, solve_standard
from dp_ensemble_env.control.quadrature import average_exact
from dp_ensemble_env.model import EnsembleModel

PENALTY = 1.3


def stochastic(rng, *shape):
    return rng.dirichlet(np.ones(shape[-1]), shape[:-1])


# ------------------------------------------------------------------ axes of length one and two
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


def test_the_average_of_contexts_and_times_uses_each_in_its_place():
    rng = np.random.default_rng(2)
    for contexts, times in itertools.product((1, 2), repeat=2):
        default, tilt = stochastic(rng, contexts, times, 3, 3), rng.normal(size=(2, 2, 3))  # tilt: time, context
        found = average_exact(LogKernel.from_blocks(np.log(default), "default"), tilt, 4.0, contexts=True)
        for w, t in np.ndindex(2, 2):
            alone = LogKernel.from_dense(np.log(default[w % contexts, t % times]))
            assert_allclose(found[w, t], average_exact(alone, tilt[t : t + 1, w], 4.0)[0], rtol=1e-13)


# ------------------------------------------------------------------ spreads
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


# ------------------------------------------------------------------ what is taken for logarithms
def test_only_rows_of_probabilities_are_refused_as_such():
    for logs in ([[1.0]], [[0.5, 0.6], [0.4, 0.5]], [[0.5, 0.5], [0.5, -0.5]]):
        found = solve(np.array(logs), np.zeros((2, len(logs))), 1.0)
        assert_allclose(found.log_desirability[0], logsumexp(logs, axis=1), rtol=1e-14)
    for probabilities in (np.eye(2), [[0.5, 0.5], [0.2, 0.8]]):
        with pytest.raises(ValueError, match="looks like probabilities"):
            solve(np.array(probabilities), np.zeros((2, 2)), 1.0)


def test_an_impossible_move_is_found_at_any_time():
    for wrong in (0, 1):
        policy = np.stack([np.eye(2), np.eye(2)])
        policy[wrong, 1] = [0.5, 0.5]
        with pytest.raises(ValueError, match=f"from state 1 to state 0 at time {wrong}"):
            evaluate_policy(policy, np.eye(2), np.zeros((3, 2)), 1.0)
        with pytest.raises(ValueError, match=f"takes decision 0 in state 1 at time {wrong},"):
            evaluate_policy(policy, np.eye(2), np.zeros((3, 2)), 1.0, nature=np.eye(2))


def test_what_a_kernel_and_a_solution_say_of_themselves():
    half = np.full((2, 2), 0.5)
    for shape, words in (
        ((1, 1), ""),
        ((2, 1), ", batch of 2"),
        ((1, 2), ", 2 times"),
        ((2, 3), ", batch of 2, 3 times"),
    ):
        kernel = LogKernel.from_dense(np.log(np.broadcast_to(half, (*shape, 2, 2))))
        assert repr(kernel) == f"LogKernel(2 states, 4 nonzeros{words})"
    assert repr(solve(kernel, np.zeros((4, 2)), 1.0)) == "Solution(2 states, 3 steps, batch of 2)"
    assert repr(solve(np.log(half), np.zeros((2, 2)), 1.0)) == "Solution(2 states, 1 step)"
    assert (
        repr(solve(np.log(half), np.zeros((2, 2)), 1.0, context=np.eye(3))) == "Solution(2 states, 3 contexts, 1 step)"
    )


# ------------------------------------------------------------------ draws
def gammas(rng, shape, size):
    """Marsaglia and Tsang's method as they wrote it, without the squeeze: logarithms of Gamma draws."""
    drawn = []
    boosted = shape if shape >= 1 else shape + 1
    d = boosted - 1 / 3
    while len(drawn) < size:
        x = rng.standard_normal()
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(rng.random()) < 0.5 * x * x + d - d * v + d * math.log(v):
            drawn.append(math.log(d * v) - (rng.standard_exponential() / shape if shape < 1 else 0.0))
    return np.array(drawn)


@pytest.mark.parametrize("k", [0.4, 4.0, 5.0, 30.0])
def test_draws_are_those_of_marsaglia_and_tsang_number_by_number(k):
    """One seed gives one set of draws, whoever programs them: shapes below, at and above one."""
    p, size = np.array([[0.2, 0.25, 0.55], [0.7, 0.3, 0.0]]), 200
    out, constants = np.empty((2, 3, size)), sampling.gamma_constants(p, k)
    sampling.draw_log_ratios(np.random.default_rng(8), np.array([0, 3]), p, constants, size, out)
    ratio = np.empty((2, 3, size))
    sampling.draw_ratios(np.random.default_rng(8), np.array([0, 3]), p, constants, size, ratio)
    rng = np.random.default_rng(8)
    for t in range(2):
        on = p[t] > 0
        logs = np.array([gammas(rng, k * x, size) for x in p[t][on]])
        expected = logs - logsumexp(logs, axis=0) - np.log(p[t][on])[:, None]
        assert_allclose(out[t, on], expected, rtol=1e-9, atol=1e-12)
        assert_allclose(ratio[t, on], np.exp(expected), rtol=1e-9)


EXTREME = EnsembleModel(
    default=[[0.5, 0.5, 0.0], [0.3, 0.3, 0.4], [0.0, 0.5, 0.5]],
    power_kw=[1, 2, 3],
    utility=np.array([[0, 0, 0], [0, -3000.0, -9000.0], [-9000.0, 0, -3000.0]]),
    discomfort_penalty=1.0,
)


@pytest.mark.parametrize(("model", "k"), [(random_model(2, n=3, horizon=30), 6.0), (EXTREME, 0.01)])
def test_samples_go_through_in_blocks_of_128(model, k, monkeypatch):
    """Two blocks are two calls, in products and, where these underflow, in logarithms; so is part of a block."""
    called, logs = [], sampling.average_logs
    monkeypatch.setattr(sampling, "average_logs", lambda *args: (called.append(1), logs(*args)))
    for parts in ((128, 128), (128, 17)):
        rng = np.random.default_rng(4)
        apart = sum(samples * average_policy(model, k, "sampled", samples, rng) for samples in parts)
        rng = np.random.default_rng(4)
        assert_allclose(average_policy(model, k, "sampled", sum(parts), rng), apart / sum(parts), rtol=1e-9, atol=1e-13)
    assert bool(called) == (model is EXTREME)  # an ordinary problem needs no logarithms


@pytest.mark.parametrize("varying", [False, True])
def test_costs_of_samples_by_their_definition(varying):
    """Each sample's optimal policy, evaluated on the true dynamics, and the paper's formula: sums, sums of squares."""
    model = random_model(5, n=3, horizon=2, density=0.8, varying=varying)
    best, scaled, kernel = solve_standard(model), model.utility / model.discomfort_penalty, default_kernel(model)
    args, k = (scaled, best.log_desirability, best.policy_values), 5.0
    sums, squares = sampling.sampled_costs(kernel, k, 4, np.random.default_rng(1), *args)
    rng, ones, true = np.random.default_rng(1), [], np.exp(kernel.log_values[0])
    ratio = np.empty((*true.shape, 1))
    for _ in range(4):
        sampling.draw_log_ratios(rng, kernel.indptr, true, sampling.gamma_constants(true, k), 1, ratio)
        values = kernel.log_values[0] + ratio[..., 0]
        noisy = solve(LogKernel(kernel.indptr, kernel.indices, values[None]), scaled, 1.0)
        exact = evaluate_policy(noisy.policy, model.default, scaled, 1.0) + best.log_desirability
        divergence = rel_entr(noisy.policy, model.default).sum(axis=-1)
        ahead = np.einsum("tba,ta->tb", noisy.policy, -noisy.log_desirability[1:])
        paper = -scaled[:-1] + divergence + ahead + best.log_desirability[:-1]
        ones.append([exact[:-1], paper])
    assert_allclose(sums, np.sum(ones, axis=0), rtol=1e-8, atol=1e-10)
    assert_allclose(squares, np.sum(np.square(ones), axis=0), rtol=1e-8, atol=1e-10)
    assert np.abs(sums).min() > 1e-6


def test_kernels_are_drawn_row_by_row_from_their_dirichlet_law():
    rng, k, draws = np.random.default_rng(3), 2.5, 4000
    default = np.stack([[[0.2, 0.8, 0.0], [0.5, 0.1, 0.4], [0.0, 0.0, 1.0]], stochastic(rng, 3, 3)])  # two times
    kernel = LogKernel.from_probabilities(default)
    drawn = np.array([kernel.dense(sampling.draw_kernel(kernel, k, rng).linear)[0] for _ in range(draws)])
    assert_allclose(drawn.sum(axis=-1), 1.0, rtol=1e-12)
    assert_array_equal(drawn[:, default == 0], 0.0)
    assert_array_equal(drawn[:, 0, 2, 2], 1.0)
    spread = np.sqrt(default * (1 - default) / (k + 1))  # of a Beta variate
    assert (np.abs(drawn.mean(axis=0) - default) <= 5 * spread / np.sqrt(draws) + 1e-12).all()
    assert_allclose(drawn.std(axis=0), spread, rtol=0.08, atol=1e-12)


# ------------------------------------------------------------------ the integral
@pytest.mark.parametrize("k", [1e-200, 1e-3, 0.3, 2.0, 200.0])
def test_rows_of_two_by_the_hypergeometric_function(k):
    """E[x / (x + (1 - x) z)] of a Beta variate x is Euler's integral, here with 30 digits."""
    log_z = np.array([[0.9, -0.8]])
    kernel = LogKernel.from_dense(np.log([[0.3, 0.7], [0.5, 0.5]]))
    found = average_exact(kernel, log_z, k)[0]
    with mpmath.workdps(30):
        for row, p in enumerate((0.3, 0.5)):
            a, z = mpmath.mpf(k) * mpmath.mpf(p), mpmath.exp(mpmath.mpf(-1.7))
            expected = mpmath.mpf(p) * mpmath.hyp2f1(1, mpmath.mpf(k) - a, mpmath.mpf(k) + 1, 1 - z)
            assert found[2 * row] == pytest.approx(float(expected), rel=1e-12)
            assert found[2 * row : 2 * row + 2].sum() == pytest.approx(1.0, abs=1e-14)


def test_what_is_impossible_does_not_count_in_the_integral_however_desirable():
    """At the second time one successor is impossible, thousands of nats above or below the others."""
    default = np.array([[[0.3, 0.3, 0.4]], [[0.3, 0.7, 0.0]]]).repeat(3, axis=1)
    kernel = LogKernel.from_probabilities(default)
    pair = LogKernel.from_dense(np.log([[0.3, 0.7], [0.3, 0.7]]))
    expected = average_exact(pair, np.array([[0.0, -1.0]]), 3.0)[0, :2]
    for far in (3000.0, -3000.0):
        found = average_exact(kernel, np.array([[0.0, -1.0, 0.5], [0.0, -1.0, far]]), 3.0)
        assert_allclose(found[1, :2], expected, rtol=1e-13)
        assert_array_equal(found[1, 2::3], 0.0)


@pytest.mark.parametrize("shift", [-300.0, 300.0])
def test_only_differences_of_desirabilities_matter_in_the_integral(shift):
    kernel, log_z = LogKernel.from_dense(np.log([[0.3, 0.7], [0.5, 0.5]])), np.array([[0.0, -1.7]])
    assert_allclose(average_exact(kernel, log_z + shift, 3.0), average_exact(kernel, log_z, 3.0), rtol=1e-12)
