"""The solver against many-digit arithmetic, a convex program, plain NumPy and the paper's identity; what it refuses."""

from __future__ import annotations

import itertools
import re

import mpmath
import numpy as np
import pytest
from helpers import random_chain
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from oracles import FREE, KINDS, UTILITY, flows_optimum, general_model
from scipy.special import logsumexp, rel_entr

from dp_ensemble_env.control.cost import policy_cost
from dp_ensemble_env.control.kernel import world
from dp_ensemble_env.control.lsmdp import evaluate_policy, log_probabilities, occupancy, solve
from dp_ensemble_env.control.policies import solve_standard, tilted_policy
from dp_ensemble_env.control.returns import shares
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import event_outcome, start_values
from dp_ensemble_env.tools.validation import LARGEST_PENALTY

TWICE = np.stack([FREE] * 2)
DECIDE = np.full((3, 2), 0.5)  # three states, two decisions
LEAD = np.array([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]])  # where the decisions lead
MOVES = np.full((2, 2), 0.5)


# ------------------------------------------------------------------ the paper's problem
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


@pytest.mark.parametrize("penalty", [1e-2, 1.0, 1e4, 1e8])
def test_costs_keep_their_digits_up_to_the_largest_penalty(penalty):
    solution = solve(log_probabilities(FREE), UTILITY, penalty)
    expected, tolerance = -penalty * mpmath_solve(FREE, UTILITY, penalty)[0], 1e-14 * max(1.0, penalty)
    assert_allclose(solution.cost_to_go[0], expected, rtol=1e-12, atol=tolerance)
    assert_allclose(evaluate_policy(solution.policy, FREE, UTILITY, penalty)[0], expected, rtol=1e-12, atol=tolerance)


# ------------------------------------------------------------------ nature and context
CASES = [general_model(kind) for kind in KINDS if kind not in ("target", "limit")]


def plain_recursion(model):
    """MATH's recursion on the full tables, in plain NumPy."""
    behaviour, nature, context, utility = model.tables()
    log_z = utility / model.discomfort_penalty
    tilt = np.empty(behaviour.shape[:2] + behaviour.shape[-1:])
    with np.errstate(divide="ignore"):
        for t in reversed(range(model.horizon)):
            tilt[t] = np.einsum("wv,was,vs->wa", context[t], nature[t], log_z[t + 1])
            log_z[t] += logsumexp(np.log(behaviour[t]) + tilt[t][:, None, :], axis=-1)
        logs = np.log(behaviour) + tilt[:, :, None]
    squeezed = slice(None) if model.context is not None else 0
    return log_z[:, squeezed], np.exp(logs - logsumexp(logs, axis=-1, keepdims=True))[:, squeezed]


@pytest.mark.parametrize("model", CASES)
def test_recursion_is_that_of_plain_numpy(model):
    log_z, policy = plain_recursion(model)
    solution = solve_standard(model)
    assert_allclose(solution.log_desirability, log_z, rtol=0, atol=1e-12)
    assert_allclose(solution.policy, policy, rtol=0, atol=1e-12)
    assert_allclose(tilted_policy(model, solution.tilt), solution.policy, rtol=0, atol=1e-12)
    value = evaluate_policy(solution.policy, model.default, model.utility, model.discomfort_penalty, **world(model))
    assert_allclose(value, solution.cost_to_go, rtol=0, atol=1e-11)


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([1.0, 300.0, 5000.0]))
def test_both_paths_match_plain_numpy(seed, varying, spread):
    """A spread of 5,000 nats takes the row path, 1 nat the exponential of each state."""
    rng = np.random.default_rng(seed)
    n, horizon = int(rng.integers(1, 7)), int(rng.integers(1, 6))
    default = np.stack([random_chain(rng, n, 0.6) for _ in range(horizon)]) if varying else random_chain(rng, n, 0.6)
    utility = -rng.uniform(0, spread, (horizon + 1, n))
    log_z, policy = plain_recursion(EnsembleModel(default, np.ones(n), utility, 2.0))
    solution = solve(log_probabilities(default), utility, 2.0)
    assert_allclose(solution.log_desirability, log_z, rtol=1e-12, atol=1e-10)
    assert_allclose(solution.policy, policy, rtol=0, atol=1e-9 * max(1, spread / 300))


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("nats", [590.0, 730.0, 2000.0])
@pytest.mark.parametrize("when", [0, 1, 2])
def test_states_that_lie_hundreds_of_nats_apart(general, sign, nats, when):
    """Two states that are never left: the desirability is the sum of the utilities, and nothing is rounded away."""
    utility = np.zeros((3, 2))
    utility[when, 1] = sign * nats
    found = solve(log_probabilities(np.eye(2)), utility, 1.0, **({"context": np.eye(2)} if general else {}))
    expected = np.cumsum(utility[::-1], axis=0)[::-1]
    assert_array_equal(found.log_desirability, np.stack([expected] * 2, axis=1) if general else expected)


@pytest.mark.parametrize("model", CASES)
def test_the_papers_identity_holds(model):
    """The loss of any policy is its expected divergence from the optimum, visit by visit."""
    rng = np.random.default_rng(0)
    best = solve_standard(model).policy
    shape = model.default_policy.shape[:-2] + model.default_policy.shape[-1:]
    for _ in range(5):
        other = tilted_policy(model, rng.normal(0, 1, shape))
        lost, rho = policy_cost(model, other), shares(model, other)
        assert (lost > -1e-12).all()
        expected = model.discomfort_penalty * (rho[:-1] * rel_entr(other, best).sum(axis=-1)).sum()
        assert (rho[0] * lost[0]).sum() == pytest.approx(expected, rel=1e-10)
        assert event_outcome(model, other).gap == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", ["nature", "nature by time", "everything"])
def test_a_convex_solver_finds_the_same_optimum(kind):
    model = general_model(kind)
    model = model.override(nature=0.9 * model.nature + 0.1 / model.n_states)  # every state is reached
    assert flows_optimum(model) == pytest.approx(start_values(model)[1], abs=1e-5)


# ------------------------------------------------------------------ penalties and utilities
def test_the_largest_penalty_is_the_last_that_is_taken():
    logs, largest = log_probabilities(FREE), LARGEST_PENALTY * np.abs(UTILITY).max()
    solve(logs, UTILITY, largest)
    for penalty in (np.nextafter(largest, np.inf), 1e300):
        for call in (
            lambda penalty=penalty: solve(logs, UTILITY, penalty),
            lambda penalty=penalty: solve(logs, UTILITY, penalty, nature=np.eye(3)),
            lambda penalty=penalty: evaluate_policy(TWICE, FREE, UTILITY, penalty),
            lambda penalty=penalty: evaluate_policy(TWICE, FREE, UTILITY, penalty, nature=np.eye(3)),
        ):
            with pytest.raises(ValueError, match="times the largest utility .*lost in rounding.*check the units"):
                call()


def test_forbidden_states_are_refused_with_the_way_to_express_them():
    utility, logs = UTILITY.copy(), log_probabilities(FREE)
    utility[1:, 2] = -np.inf
    for call in (
        lambda: solve(logs, utility, 1.0),
        lambda: solve(logs, utility, 1.0, nature=np.eye(3)),
        lambda: evaluate_policy(TWICE, FREE, utility, 1.0),
    ):
        with pytest.raises(ValueError, match=r"utility\[1, 2\] is -inf \(2 such entries\).*to forbid a state"):
            call()
    # What the sentence proposes is the problem in which the state cannot be entered.
    without = solve(np.where(np.arange(3) == 2, -np.inf, logs), UTILITY, 1.0).policy
    utility[1:, 2] = -100.0
    assert_allclose(solve(logs, utility, 1.0).policy, without, atol=1e-12)


# ------------------------------------------------------------------ refusals
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"default": np.stack([FREE] * 5)}, "default has shape (5, 3, 3)"),  # the states fit
        ({"default": np.full((4, 4), 0.25)}, "default has shape (4, 4)"),  # the times fit
        ({"policy": FREE}, "policy must have shape"),
        ({"utility": UTILITY[:2]}, "a policy of 2 steps needs 3 utilities, got 2"),
        ({"utility": UTILITY[:1]}, "utility must have shape (T + 1, 3)"),
        ({"utility": UTILITY[:, :2]}, "utility must have shape (T + 1, 3)"),
        ({"discomfort_penalty": [1.0, 2.0]}, "discomfort_penalty must be"),
        ({"nature": LEAD, "policy": np.stack([DECIDE] * 2)[:, None], "default": DECIDE}, "policy must have shape"),
        ({"nature": LEAD, "policy": np.stack([DECIDE] * 2), "default": np.stack([DECIDE] * 5)}, "and 5 times"),
        ({"nature": LEAD, "policy": np.stack([DECIDE] * 2)}, "default must have shape"),
        ({"nature": np.eye(3), "utility": UTILITY[:2]}, "a policy of 2 steps needs 3 utilities"),
    ],
)
def test_evaluation_refuses_what_does_not_fit(change, words):
    good = {"policy": TWICE, "default": FREE, "utility": UTILITY, "discomfort_penalty": 1.0}
    assert evaluate_policy(**good).shape == evaluate_policy(**{**good, "default": TWICE}).shape == (3, 3)
    with pytest.raises(ValueError, match=re.escape(words)):
        evaluate_policy(**{**good, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"log_kernel": log_probabilities(np.stack([FREE] * 4))}, "log_kernel is given for 1 contexts and 4 times"),
        ({"log_kernel": np.log(FREE)[:, :2]}, "log_kernel must be square"),
        ({"log_kernel": FREE}, "looks like probabilities"),
        ({"log_kernel": np.full((3, 3), -np.inf)}, "row 0 of log_kernel has no possible transition"),
        ({"log_kernel": np.full((3, 3), np.nan)}, "NaN or +inf at (0, 0)"),
        ({"log_kernel": np.where(np.eye(3) > 0, np.inf, -1.0)}, "NaN or +inf at (0, 0)"),
        ({"nature": LEAD}, "nature must have shape (3, 3)"),  # the columns fit
        ({"nature": DECIDE}, "nature must have shape (3, 3)"),  # the rows fit
        ({"log_kernel": np.log(DECIDE), "nature": np.full((3, 2), 0.5)}, "nature must have shape"),
        ({"log_kernel": np.log(DECIDE), "context": MOVES}, "3 states and 2 decisions, so nature must"),
        ({"context": np.full((1, 1, 2, 2), 0.5)}, "context must have shape"),
        ({"context": MOVES, "utility": np.zeros((3, 5, 3))}, "utility must have shape (T + 1, 3) or (T + 1, 2, 3)"),
        ({"context": MOVES, "utility": np.zeros((3, 2, 4))}, "utility must have shape (T + 1, 3) or (T + 1, 2, 3)"),
        ({"context": np.stack([MOVES] * 3)}, "given for 2 contexts and 3 times"),
        ({"context": MOVES, "log_kernel": np.log(np.stack([FREE] * 3)[None])}, "given for 3 contexts and 1 times"),
    ],
)
def test_the_solver_refuses_what_does_not_fit(change, words):
    good = {"log_kernel": np.log(FREE), "utility": UTILITY, "discomfort_penalty": 1.0}
    solve(**good)
    solve(np.log(DECIDE), UTILITY, 1.0, nature=LEAD, context=np.stack([MOVES] * 2))
    with pytest.raises(ValueError, match=re.escape(words)):
        solve(**{**good, **change})


def test_distributions_that_do_not_fit_are_refused():
    start = np.array([0.2, 0.3, 0.5])
    assert_allclose(occupancy(TWICE, start)[2], start @ FREE @ FREE)
    for policy, initial in ((TWICE, [0.5, 0.5]), (TWICE[None], start), (FREE, start)):
        with pytest.raises(ValueError, match="do not fit"):
            occupancy(policy, initial)
    policy = np.stack([np.stack([DECIDE] * 2)] * 2)
    good = {"policy": policy, "initial": start, "nature": LEAD, "context": MOVES, "start": [0.4, 0.6]}
    assert occupancy(**good).shape == (3, 2, 3)
    for change in ({"start": [1.0]}, {"start": None}, {"initial": [0.5, 0.5]}, {"policy": policy[:, :1]}):
        with pytest.raises(ValueError, match="must have shape"):
            occupancy(**{**good, **change})


@pytest.mark.parametrize("wrong", [0, 1])
def test_an_impossible_move_is_found_at_any_time(wrong):
    policy = np.stack([np.eye(2), np.eye(2)])
    policy[wrong, 1] = [0.5, 0.5]
    with pytest.raises(ValueError, match=f"from state 1 to state 0 at time {wrong}"):
        evaluate_policy(policy, np.eye(2), np.zeros((3, 2)), 1.0)
    with pytest.raises(ValueError, match=f"takes decision 0 in state 1 at time {wrong},"):
        evaluate_policy(policy, np.eye(2), np.zeros((3, 2)), 1.0, nature=np.eye(2))


def test_only_rows_of_probabilities_are_refused_as_such():
    for logs in ([[1.0]], [[0.5, 0.6], [0.4, 0.5]], [[0.5, 0.5], [0.5, -0.5]]):
        found = solve(np.array(logs), np.zeros((2, len(logs))), 1.0)
        assert_allclose(found.log_desirability[0], logsumexp(logs, axis=1), rtol=1e-14)
    for probabilities in (np.eye(2), [[0.5, 0.5], [0.2, 0.8]]):
        with pytest.raises(ValueError, match="looks like probabilities"):
            solve(np.array(probabilities), np.zeros((2, 2)), 1.0)
