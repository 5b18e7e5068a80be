"""Numbers at the edge: tiny k, penalties that dwarf the utilities, forbidden states."""

from __future__ import annotations

import numpy as np
import pytest
from mpmath import mp, mpf

from dp_ensemble_env import EnsembleModel
from dp_ensemble_env.control.cost import cost_of_privacy
from dp_ensemble_env.control.lsmdp import evaluate_policy, log_probabilities, solve
from dp_ensemble_env.control.policies import solve_policy, standard_policy

TINY = [1e-290, 5e-324]
DEFAULT = np.array([[0.5, 0.3, 0.2], [0.25, 0.25, 0.5], [0.1, 0.1, 0.8]])
UTILITY = np.array([[0.0, -1.0, -3.0], [0.0, -2.0, -4.0], [0.5, -1.0, -2.0]])


@pytest.mark.parametrize("k", TINY)
@pytest.mark.parametrize("name", ["taylor", "digamma", "average-sampled", "average-exact"])
def test_tiny_k_gives_policies(k, name, campus):
    more = {"samples": 64, "rng": 0} if name == "average-sampled" else {}
    policy = solve_policy(campus, name, k, **more)
    assert np.isfinite(policy).all() and (policy >= 0).all()
    np.testing.assert_allclose(policy.sum(axis=-1), 1.0, atol=1e-12)
    assert (policy[:, campus.default == 0] == 0).all()


@pytest.mark.parametrize("k", TINY)
@pytest.mark.parametrize("method", ["release", "average-sampled", "digamma", "taylor"])
def test_tiny_k_costs_are_finite(k, method, campus):
    found = cost_of_privacy(campus, k, method, samples=8, rng=0)
    assert np.isfinite(found).all() and (found > -1e-9).all()


@pytest.mark.parametrize("k", [1e100, 1.7e308])
def test_enormous_k_is_no_noise(k):
    model = EnsembleModel(default=DEFAULT, power_kw=[0, 1, 2], utility=UTILITY, discomfort_penalty=1.0)
    standard = standard_policy(model)
    for name in ("taylor", "digamma", "average-sampled", "average-expansion", "average-exact"):
        more = {"samples": 8, "rng": 0} if name == "average-sampled" else {}
        np.testing.assert_allclose(solve_policy(model, name, k, **more), standard, atol=1e-12)


def test_the_limit_of_small_k_draws_one_successor():
    """A Dirichlet row tends to one certain successor, drawn by its probability: the average is the default."""
    model = EnsembleModel(default=DEFAULT, power_kw=[0, 1, 2], utility=UTILITY, discomfort_penalty=1.0)
    samples = 20_000
    found = solve_policy(model, "average-sampled", 5e-324, samples=samples, rng=1)
    error = np.sqrt(DEFAULT * (1 - DEFAULT) / samples)
    assert (np.abs(found - DEFAULT) < 5 * error).all()


# ------------------------------------------------------------------ penalties
def exact_costs(penalty):
    """Theorem 1 with fifty digits; rows are divided by their sums, which doubles do not make exactly one."""
    with mp.workdps(50):
        rows = [[mpf(float(x)) for x in row] for row in DEFAULT]
        rows = [[x / sum(row) for x in row] for row in rows]
        value = [mpf(float(u)) / mpf(penalty) for u in UTILITY[-1]]
        for u in UTILITY[-2::-1]:
            log_g = [mp.log(sum(p * mp.exp(v) for p, v in zip(row, value, strict=True))) for row in rows]
            value = [mpf(float(x)) / mpf(penalty) + g for x, g in zip(u, log_g, strict=True)]
        return np.array([float(-mpf(penalty) * v) for v in value])


@pytest.mark.parametrize("penalty", [1e-2, 1.0, 1e4, 1e8])
def test_costs_keep_their_digits_up_to_the_largest_penalty(penalty):
    solution = solve(log_probabilities(DEFAULT), UTILITY, penalty)
    tolerance = 1e-14 * max(1.0, penalty)
    np.testing.assert_allclose(solution.cost_to_go[0], exact_costs(penalty), rtol=1e-12, atol=tolerance)
    played = evaluate_policy(solution.policy, DEFAULT, UTILITY, penalty)
    np.testing.assert_allclose(played[0], exact_costs(penalty), rtol=1e-12, atol=tolerance)


@pytest.mark.parametrize("penalty", [1e12, 1e16, 1e300])
def test_penalties_beyond_are_refused(penalty):
    with pytest.raises(ValueError, match="times the largest utility .*lost in rounding"):
        solve(log_probabilities(DEFAULT), UTILITY, penalty)
    with pytest.raises(ValueError, match="lost in rounding"):
        solve(log_probabilities(DEFAULT), np.stack([UTILITY] * 2), [1.0, penalty])
    with pytest.raises(ValueError, match="lost in rounding"):
        evaluate_policy(np.stack([DEFAULT] * 2), DEFAULT, UTILITY, penalty)
    with pytest.raises(ValueError, match="check the units"):
        EnsembleModel(default=DEFAULT, power_kw=[0, 1, 2], utility=UTILITY, discomfort_penalty=penalty)
    nature = np.eye(3)
    with pytest.raises(ValueError, match="lost in rounding"):
        solve(log_probabilities(DEFAULT), UTILITY, penalty, nature=nature)
    with pytest.raises(ValueError, match="lost in rounding"):
        evaluate_policy(np.stack([DEFAULT] * 2), DEFAULT, UTILITY, penalty, nature=nature)


def test_one_penalty_for_a_batch_is_measured_by_the_largest_utility_in_it():
    utility, kernel = np.stack([UTILITY, 1e-12 * UTILITY]), log_probabilities(DEFAULT)
    solution = solve(kernel, utility, 1.0)
    np.testing.assert_array_equal(solution.log_desirability[0], solve(kernel, UTILITY, 1.0).log_desirability)
    np.testing.assert_allclose(solution.policy[1], np.stack([DEFAULT] * 2), atol=1e-11)
    with pytest.raises(ValueError, match="lost in rounding"):
        solve(kernel, utility, [1.0, 1.0])


def test_without_any_utility_every_penalty_will_do():
    model = EnsembleModel(default=DEFAULT, power_kw=[0, 1, 2], utility=np.zeros((3, 3)), discomfort_penalty=1e9)
    np.testing.assert_allclose(standard_policy(model), np.stack([DEFAULT] * 2), atol=1e-15)


def test_an_integer_penalty_is_the_number():
    logs, policy = log_probabilities(DEFAULT), np.stack([DEFAULT] * 2)
    expected, cost = solve(logs, UTILITY, 2.0), evaluate_policy(policy, DEFAULT, UTILITY, 2.0)
    for number in (2, np.int64(2), np.float32(2), np.array(2)):  # one problem, not a batch of one
        found = solve(logs, UTILITY, number)
        assert type(found.discomfort_penalty) is float and found.discomfort_penalty == 2.0
        np.testing.assert_array_equal(found.cost_to_go, expected.cost_to_go, strict=True)
        np.testing.assert_array_equal(evaluate_policy(policy, DEFAULT, UTILITY, number), cost, strict=True)
    for batch in ([2], [2.0], np.array([2])):
        found = solve(logs, UTILITY, batch)
        np.testing.assert_array_equal(found.cost_to_go, expected.cost_to_go[None], strict=True)
        np.testing.assert_array_equal(evaluate_policy(policy, DEFAULT, UTILITY, batch), cost[None], strict=True)
    model = EnsembleModel(default=DEFAULT, power_kw=[0, 1, 2], utility=UTILITY, discomfort_penalty=2)
    np.testing.assert_array_equal(standard_policy(model), expected.policy, strict=True)


# ------------------------------------------------------------------ forbidden states
def test_forbidden_states_are_refused_with_the_way_to_express_them():
    utility = UTILITY.copy()
    utility[1:, 2] = -np.inf
    for call in (
        lambda: solve(log_probabilities(DEFAULT), utility, 1.0),
        lambda: evaluate_policy(np.stack([DEFAULT] * 2), DEFAULT, utility, 1.0),
        lambda: EnsembleModel(default=DEFAULT, power_kw=[0, 1, 2], utility=utility, discomfort_penalty=1.0),
        lambda: solve(log_probabilities(DEFAULT), utility, 1.0, nature=np.eye(3)),
    ):
        with pytest.raises(ValueError, match=r"utility\[1, 2\] is -inf \(2 such entries\).*to forbid a state"):
            call()
    # What the sentence proposes is the problem in which the state cannot be entered.
    kernel = log_probabilities(DEFAULT)
    kernel[:, 2] = -np.inf
    without = solve(kernel, UTILITY, 1.0).policy
    utility[1:, 2] = -100.0
    np.testing.assert_allclose(solve(log_probabilities(DEFAULT), utility, 1.0).policy, without, atol=1e-12)
