"""The solver against brute force, many-digit arithmetic, a convex program and plain NumPy."""

from __future__ import annotations

import itertools

import cvxpy as cp
import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from helpers import random_chain, random_model
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import logsumexp, rel_entr

from dp_ensemble_env.control import loops as _recursion
from dp_ensemble_env.control.dynamics import default_kernel
from dp_ensemble_env.control.lsmdp import LogKernel, evaluate_policy, log_probabilities, occupancy, solve


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


def mpmath_solve(default, utility, penalty):
    """Theorem 1 in the desirability itself, with enough digits that nothing underflows."""
    n, horizon = len(default), len(utility) - 1
    with mpmath.workdps(60):
        p = [[mpmath.mpf(float(x)) for x in row] for row in default]
        u = [[mpmath.mpf(float(x)) / mpmath.mpf(float(penalty)) for x in row] for row in utility]
        z = [mpmath.exp(x) for x in u[-1]]
        policy = np.empty((horizon, n, n))
        for t in range(horizon - 1, -1, -1):
            g = [mpmath.fsum(p[b][a] * z[a] for a in range(n)) for b in range(n)]
            for b, a in itertools.product(range(n), range(n)):
                policy[t, b, a] = float(p[b][a] * z[a] / g[b])
            z = [mpmath.exp(u[t][b]) * g[b] for b in range(n)]
        return np.array([float(mpmath.log(x)) for x in z]), policy


@pytest.mark.parametrize("penalty", [1.0, 0.37])
@pytest.mark.parametrize("density", [0.2, 1.0])
def test_policy_matches_mpmath_to_twelve_digits_over_a_long_day(penalty, density):
    rng = np.random.default_rng(7)
    default = random_chain(rng, 8, density)
    utility = -rng.uniform(0, 150, (97, 8)) * penalty
    log_z, policy = mpmath_solve(default, utility, penalty)
    solution = solve(log_probabilities(default), utility, penalty)
    assert np.abs(solution.policy - policy).max() <= 1e-12
    assert_allclose(solution.log_desirability[0], log_z, rtol=1e-13)
    assert log_z.max() < -1000  # the desirability itself would have underflowed long ago


def test_constant_heavy_cost_does_not_wash_out_the_policy():
    """A cost common to all states shifts log z by 14,400 nats and must leave the policy alone."""
    rng = np.random.default_rng(3)
    default, variation = random_chain(rng, 6), -rng.uniform(0, 3, (97, 6))
    plain = solve(log_probabilities(default), variation, 1.0)
    heavy = solve(log_probabilities(default), variation - 150.0, 1.0)
    assert np.abs(plain.policy - heavy.policy).max() <= 1e-12
    assert_allclose(heavy.log_desirability[0], plain.log_desirability[0] - 97 * 150.0, rtol=1e-14)


def banded(n, bandwidth, rng):
    diagonals = range(-bandwidth, bandwidth + 1)
    weights = sp.diags([rng.uniform(0.05, 1, n - abs(d)) for d in diagonals], list(diagonals)).tocsr()
    return sp.diags(1 / np.asarray(weights.sum(axis=1)).ravel()) @ weights


def test_wide_narrow_banded_chain_has_no_nan():
    rng = np.random.default_rng(0)
    chain = banded(2000, 2, rng)
    utility = -rng.uniform(0, 150, (17, 2000))
    solution = solve(LogKernel.from_sparse(chain), utility, 1.0)
    assert np.isfinite(solution.log_desirability).all() and np.isfinite(solution.policy_values).all()
    rows = np.add.reduceat(solution.policy_values, solution.kernel.indptr[:-1], axis=1)
    assert_allclose(rows, 1.0, rtol=1e-12)
    # An independent check of one step in the middle, by dense log-sum-exp.
    dense = np.full((2000, 2000), -np.inf)
    coo = chain.tocoo()
    dense[coo.row, coo.col] = np.log(coo.data)
    expected = utility[7] + logsumexp(dense + solution.log_desirability[8], axis=1)
    assert_allclose(solution.log_desirability[7], expected, rtol=1e-13)


def test_states_far_below_the_best_keep_their_row():
    """One state worth -10,000 nats: a shift common to all states would flush its policy to 0/0."""
    default = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.5, 0.5]])
    utility = np.array([[0.0, 0.0, 0.0], [0.0, -10_000.0, -10_000.5]])
    policy = solve(log_probabilities(default), utility, 1.0).policy[0]
    assert_allclose(policy[0], [1.0, 0.0, 0.0])
    assert_allclose(policy[1, 1:], [1 / (1 + np.exp(-0.5)), np.exp(-0.5) / (1 + np.exp(-0.5))], rtol=1e-12)


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


def convex_optimum(model, start):
    """The same problem over flows f_t[b, a] with relative entropy, for a conic solver."""
    n, horizon = model.n_states, model.horizon
    flows = [cp.Variable((n, n), nonneg=True) for _ in range(horizon)]
    rho = np.eye(n)[start]
    cost, constraints = 0, []
    for t, flow in enumerate(flows):
        mass = cp.sum(flow, axis=1)
        constraints += [mass == (rho if t == 0 else cp.sum(flows[t - 1], axis=0)), flow[model.default == 0] == 0]
        b, a = np.nonzero(model.default)
        reference = cp.multiply(mass[b], model.default[b, a])
        cost += model.discomfort_penalty * cp.sum(cp.rel_entr(flow[b, a], reference))
        cost -= cp.sum(flow, axis=0) @ model.utility[t + 1]
    problem = cp.Problem(cp.Minimize(cost), constraints)
    problem.solve(solver=cp.CLARABEL)
    return problem.value


@pytest.mark.parametrize("seed", range(3))
def test_convex_program_agrees(seed):
    model = random_model(seed, n=4, horizon=4, density=0.7)
    solution = solve(default_kernel(model), model.utility, model.discomfort_penalty)
    optimum = solution.cost_to_go[0] + model.utility[0]
    for start in range(2):
        assert convex_optimum(model, start) == pytest.approx(optimum[start], rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("n", [2, 3])
def test_brute_force_finds_nothing_better_and_almost_as_good(n):
    """Every policy on a grid of the simplex, step by step backwards (dynamic programming by enumeration)."""
    model = random_model(n, n=n, horizon=2, density=1.0)
    steps = 400 if n == 2 else 60
    simplex = np.array([c for c in itertools.product(range(steps + 1), repeat=n) if sum(c) == steps]) / steps
    value = -model.utility[-1]
    for t in range(model.horizon - 1, -1, -1):
        divergence = np.array([rel_entr(simplex, model.default[b]).sum(axis=1) for b in range(n)])
        value = -model.utility[t] + (model.discomfort_penalty * divergence + simplex @ value).min(axis=1)
    exact = solve(default_kernel(model), model.utility, model.discomfort_penalty).cost_to_go[0]
    assert (exact <= value + 1e-9).all()
    assert_allclose(exact, value, atol=model.discomfort_penalty * (1e-4 if n == 2 else 5e-3))


def test_optimal_policy_evaluates_to_its_own_value_and_others_to_more(campus):
    solution = solve(default_kernel(campus), campus.utility, campus.discomfort_penalty)
    evaluate = lambda policy: evaluate_policy(policy, campus.default, campus.utility, campus.discomfort_penalty)  # noqa: E731
    assert_allclose(evaluate(solution.policy), solution.cost_to_go, rtol=1e-12)
    assert (evaluate(campus.default_policy) > solution.cost_to_go - 1e-9)[:-1].all()
    mixed = 0.5 * solution.policy + 0.5 * campus.default
    assert (evaluate(mixed)[0] > solution.cost_to_go[0]).all()


@given(st.integers(0, 10_000))
def test_performance_difference_identity(seed):
    """phi^Q - phi* is the expected sum of gamma KL(Q || optimal), for any policy Q."""
    model = random_model(seed, n=4, horizon=4)
    rng = np.random.default_rng(seed + 1)
    policy = model.default * rng.gamma(1.0, size=(model.horizon, 4, 4))
    policy /= policy.sum(axis=-1, keepdims=True)
    solution = solve(default_kernel(model), model.utility, model.discomfort_penalty)
    lost = evaluate_policy(policy, model.default, model.utility, model.discomfort_penalty) - solution.cost_to_go
    divergence = model.discomfort_penalty * rel_entr(policy, solution.policy).sum(axis=-1)
    expected = np.zeros(4)
    for t in range(model.horizon - 1, -1, -1):
        expected = divergence[t] + policy[t] @ expected
        assert_allclose(lost[t], expected, rtol=1e-9, atol=1e-9)


def test_occupancy_predicts_the_simulated_frequencies():
    model = random_model(11, n=4, horizon=3)
    policy = solve(default_kernel(model), model.utility, model.discomfort_penalty).policy
    rng = np.random.default_rng(0)
    draws = 40_000
    state = np.zeros(draws, dtype=int)
    rho = occupancy(policy, [1.0, 0, 0, 0])
    for t in range(3):
        state = (rng.random(draws)[:, None] > policy[t].cumsum(axis=1)[state]).sum(axis=1)
        seen = np.bincount(state, minlength=4) / draws
        assert np.abs(seen - rho[t + 1]).max() < 5 * np.sqrt(0.25 / draws)


# ------------------------------------------------------------------ batches and time
def test_batches_equal_their_members():
    models = [random_model(seed, n=5, horizon=4) for seed in range(3)]
    kernels = np.stack([log_probabilities(m.default) for m in models])[:, None]
    utilities = np.stack([m.utility for m in models])
    penalties = np.array([m.discomfort_penalty for m in models])
    batch = solve(kernels, utilities, penalties)
    assert batch.policy.shape == (3, 4, 5, 5) and batch.cost_to_go.shape == (3, 5, 5)
    costs = evaluate_policy(batch.policy, np.stack([m.default for m in models])[:, None], utilities, penalties)
    for i, model in enumerate(models):
        alone = solve(default_kernel(model), model.utility, model.discomfort_penalty)
        assert_allclose(batch.policy[i], alone.policy, atol=1e-14)
        assert_allclose(batch.cost_to_go[i], alone.cost_to_go, rtol=1e-13)
        assert_allclose(costs[i], alone.cost_to_go, rtol=1e-12)


def test_one_kernel_serves_a_batch_of_utilities_and_penalties():
    model = random_model(0, n=4, horizon=3)
    batch = solve(default_kernel(model), np.stack([model.utility, 2 * model.utility]), model.discomfort_penalty)
    doubled = solve(default_kernel(model), 2 * model.utility, model.discomfort_penalty)
    assert_allclose(batch.policy[1], doubled.policy, atol=1e-14)
    penalties = solve(default_kernel(model), model.utility, [model.discomfort_penalty / 2])
    assert penalties.policy.shape == (1, 3, 4, 4)
    assert_allclose(penalties.policy[0], doubled.policy, atol=1e-13)


def test_time_varying_kernel_of_equal_matrices_equals_the_constant_one():
    model = random_model(5, n=4, horizon=3)
    varying = solve(np.stack([log_probabilities(model.default)] * 3), model.utility, model.discomfort_penalty)
    constant = solve(log_probabilities(model.default), model.utility, model.discomfort_penalty)
    assert_allclose(varying.policy, constant.policy, atol=1e-15)


def test_time_varying_kernel_uses_the_right_time():
    """The kernel of the last step decides the last policy: a step that is certain shows which one was used."""
    certain, free = np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    policy = solve(log_probabilities(np.stack([free, certain])), np.zeros((3, 2)), 1.0).policy
    assert_allclose(policy[1], certain)
    assert_allclose(policy[0], free)


def test_dense_and_sparse_input_agree():
    rng = np.random.default_rng(1)
    chain = banded(30, 3, rng)
    utility = -rng.uniform(0, 9, (6, 30))
    a = solve(LogKernel.from_sparse(chain), utility, 2.0)
    b = solve(log_probabilities(chain.toarray()), utility, 2.0)
    assert_allclose(a.policy, b.policy, atol=1e-14)


# ------------------------------------------------------------------ refusals
GOOD = np.log([[0.5, 0.5], [0.25, 0.75]])
FLAT = np.zeros((3, 2))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.zeros((2, 3)), FLAT, 1.0), "square"),
        ((np.full((2, 2), np.nan), FLAT, 1.0), "NaN"),
        ((np.array([[0.0, -np.inf], [-np.inf, -np.inf]]), FLAT, 1.0), "row 1"),
        ((np.exp(GOOD), FLAT, 1.0), "looks like probabilities"),
        ((GOOD, np.zeros((3, 4)), 1.0), r"\(T \+ 1, 2\)"),
        ((GOOD, np.zeros((1, 2)), 1.0), "utility"),
        ((GOOD, [[0, np.inf], [0, 0]], 1.0), "finite"),
        ((GOOD, FLAT, 0.0), "discomfort_penalty"),
        ((GOOD, FLAT, -3), "discomfort_penalty"),
        ((GOOD, FLAT, np.nan), "got nan"),
        ((GOOD, FLAT, "15"), "number"),
        ((GOOD, FLAT, []), "empty"),
        ((np.stack([GOOD] * 4), FLAT, 1.0), "4 steps"),
        ((np.stack([GOOD] * 2)[:, None], np.zeros((3, 3, 2)), 1.0), "batch sizes"),
        (("nonsense", FLAT, 1.0), "real numbers"),
    ],
)
def test_solve_refuses(arguments, words):
    with pytest.raises(ValueError, match=words):
        solve(*arguments)


def test_evaluation_refuses_impossible_moves_and_bad_rows():
    default = np.array([[1.0, 0.0], [0.5, 0.5]])
    impossible = np.full((2, 2, 2), 0.5)
    with pytest.raises(ValueError, match="from state 0 to state 1 at time 1"):
        evaluate_policy(impossible, default, FLAT, 1.0)
    with pytest.raises(ValueError, match="row 0 of policy"):
        evaluate_policy(np.full((2, 2, 2), 0.4), default, FLAT, 1.0)
    with pytest.raises(ValueError, match="2 steps needs 3"):
        evaluate_policy(np.stack([default] * 2), default, np.zeros((5, 2)), 1.0)
    with pytest.raises(ValueError, match="shape"):
        evaluate_policy(default, default, FLAT, 1.0)


def test_transposed_matrix_is_recognised():
    columns = np.array([[0.9, 0.5], [0.1, 0.5]])
    with pytest.raises(ValueError, match="row 0 of default sums to 1.4.*transpose"):
        log_probabilities(columns)


def test_sparse_kernel_refuses_logarithms_and_empty_rows():
    with pytest.raises(ValueError, match="logarithms"):
        LogKernel.from_sparse(sp.csr_matrix([[-1.0, -2.0], [-1.0, -2.0]]))
    with pytest.raises(ValueError, match="row 1"):
        LogKernel.from_sparse(sp.csr_matrix([[1.0, 0.0], [0.0, 0.0]]))


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=4, max_size=4))
def test_any_two_by_two_kernel_is_solved_or_refused(entries):
    kernel = np.array(entries).reshape(2, 2)
    try:
        solution = solve(kernel, FLAT, 1.0)
    except ValueError:
        return
    assert_allclose(solution.policy.sum(axis=-1), 1.0, rtol=1e-9)


def test_compiled_functions_are_cached_on_disk():
    for function in (_recursion.backward, _recursion.compress, _recursion.evaluate):
        assert function.targetoptions["nogil"] and function._cache is not None
