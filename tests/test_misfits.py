"""Arrays of which one size fits and another does not; a batch whose members differ; costs with nature or context."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from test_nature import random_model

from dp_ensemble_env.control.cost import cost_of_privacy
from dp_ensemble_env.control.dynamics import default_kernel
from dp_ensemble_env.control.lsmdp import LogKernel, evaluate_policy, log_probabilities, occupancy, solve
from dp_ensemble_env.control.policies import (
    as_tilt,
    average_policy,
    solve_standard,
    solve_with,
    standard_policy,
    tilted_policy,
)
from dp_ensemble_env.control.sampling import draw_kernel
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.model import EnsembleModel

FREE = np.array([[0.5, 0.3, 0.2], [0.25, 0.25, 0.5], [0.1, 0.1, 0.8]])
FOUR = np.full((4, 4), 0.25)
UTILITY = np.array([[0.0, -1.0, -3.0], [0.0, -2.0, -0.4], [0.5, -1.0, -2.0]])
TWICE = np.stack([FREE] * 2)
DECIDE = np.full((3, 2), 0.5)  # three states, two decisions
LEAD = np.array([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]])  # where the decisions lead
MOVES = np.full((2, 2), 0.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"default": np.stack([FREE] * 5)}, "default has shape (5, 3, 3)"),  # the states fit
        ({"default": FOUR}, "default has shape (4, 4)"),  # the times fit
        ({"policy": FREE}, "policy must have shape"),
        ({"policy": np.stack([np.stack([TWICE] * 2)] * 2)}, "policy must have"),
        ({"utility": UTILITY[:2]}, "a policy of 2 steps needs 3 utilities, got 2"),
        ({"utility": UTILITY[:1]}, "utility must have shape (T + 1, 3)"),
        ({"utility": UTILITY[:, :2]}, "utility must have shape (T + 1, 3)"),
        ({"utility": np.zeros((0, 3, 3))}, "utility must have shape (T + 1, 3)"),
        ({"discomfort_penalty": [1.0, 2.0, 3.0], "utility": np.stack([UTILITY] * 2)}, "batch sizes disagree"),
        ({"discomfort_penalty": []}, "discomfort_penalty is empty"),
        ({"discomfort_penalty": [1.0, -1.0]}, "discomfort_penalty must be"),
    ],
)
def test_evaluation_refuses_what_does_not_fit(change, words):
    good = {"policy": TWICE, "default": FREE, "utility": UTILITY, "discomfort_penalty": 1.0}
    assert evaluate_policy(**good).shape == (3, 3)
    assert evaluate_policy(**{**good, "default": TWICE}).shape == (3, 3)
    with pytest.raises(ValueError, match=re.escape(words)):
        evaluate_policy(**{**good, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"log_kernel": log_probabilities(np.stack([FREE] * 4))}, "log_kernel changes over 4 steps"),
        ({"log_kernel": np.log(FREE)[:, :2]}, "log_kernel must be square"),
        ({"log_kernel": np.zeros((0, 3, 3))}, "not empty"),
        ({"log_kernel": FREE}, "looks like probabilities"),
        ({"log_kernel": np.full((3, 3), -np.inf)}, "row 0 of log_kernel has no possible transition"),
        ({"log_kernel": np.full((3, 3), np.nan)}, "NaN or +inf at (0, 0)"),
        ({"log_kernel": np.where(np.eye(3) > 0, np.inf, -1.0)}, "NaN or +inf at (0, 0)"),
        ({"nature": LEAD}, "nature must have shape (3, 3)"),  # the columns fit
        ({"nature": DECIDE}, "nature must have shape (3, 3)"),  # the rows fit
        (
            {"log_kernel": np.log(DECIDE), "nature": LEAD.T / LEAD.T.sum(axis=1, keepdims=True)},
            "nature must have shape",
        ),
        ({"log_kernel": np.log(DECIDE), "context": MOVES}, "3 states and 2 decisions, so nature must"),
        ({"context": np.full((1, 1, 2, 2), 0.5)}, "context must have shape"),
        ({"context": MOVES, "utility": np.zeros((3, 5, 3))}, "utility must have shape (T + 1, 3) or (T + 1, 2, 3)"),
        ({"context": MOVES, "utility": np.zeros((3, 2, 4))}, "utility must have shape (T + 1, 3) or (T + 1, 2, 3)"),
        ({"context": MOVES, "utility": np.zeros((1, 2, 3))}, "utility must have shape (T + 1, 3) or (T + 1, 2, 3)"),
        ({"context": MOVES, "discomfort_penalty": [1.0]}, "one discomfort_penalty for all"),
        ({"context": np.stack([MOVES] * 3)}, "given for 2 contexts and 3 times"),
        ({"context": MOVES, "log_kernel": np.log(np.stack([FREE] * 3)[None])}, "given for 3 contexts and 1 times"),
        ({"context": MOVES, "log_kernel": np.log(np.stack([FREE] * 3))}, "given for 1 contexts and 3 times"),
    ],
)
def test_the_solver_refuses_what_does_not_fit(change, words):
    good = {"log_kernel": np.log(FREE), "utility": UTILITY, "discomfort_penalty": 1.0}
    solve(**good)
    solve(np.log(DECIDE), UTILITY, 1.0, nature=LEAD, context=np.stack([MOVES] * 2))
    with pytest.raises(ValueError, match=re.escape(words)):
        solve(**{**good, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policy": np.stack([DECIDE] * 2)[:, None]}, "policy must have shape (T, n, m)"),
        ({"default": np.stack([DECIDE] * 5)}, "given for 1 contexts and 5 times"),
        ({"default": np.stack([DECIDE] * 5)[None]}, "given for 5 contexts and 1 times"),
        ({"default": FREE}, "default must have shape"),
        ({"utility": UTILITY[:2]}, "a policy of 2 steps needs 3 utilities"),
    ],
)
def test_evaluation_with_nature_refuses_what_does_not_fit(change, words):
    good = {"policy": np.stack([DECIDE] * 2), "default": DECIDE, "utility": UTILITY, "discomfort_penalty": 1.0}
    assert evaluate_policy(**good, nature=LEAD).shape == (3, 3)
    with pytest.raises(ValueError, match=re.escape(words)):
        evaluate_policy(**{**good, **change}, nature=LEAD)


def test_distributions_that_do_not_fit_are_refused():
    start = np.array([0.2, 0.3, 0.5])
    assert_allclose(occupancy(TWICE, start)[2], start @ FREE @ FREE)
    for policy, initial in ((TWICE, [0.5, 0.5]), (TWICE[None], start), (FREE, start)):
        with pytest.raises(ValueError, match="do not fit"):
            occupancy(policy, initial)
    policy = np.stack([np.stack([DECIDE] * 2)] * 2)
    assert occupancy(policy, start, nature=LEAD, context=MOVES, start=[0.4, 0.6]).shape == (3, 2, 3)
    for change in ({"start": [1.0]}, {"start": None}, {"initial": [0.5, 0.5]}, {"policy": policy[:, :1]}):
        good = {"policy": policy, "initial": start, "nature": LEAD, "context": MOVES, "start": [0.4, 0.6]}
        with pytest.raises(ValueError, match="must have shape"):
            occupancy(**{**good, **change})


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[0.5, -0.5], [0.5, 0.5]], "negative or NaN"),
        ([[0.5, np.nan], [0.5, 0.5]], "negative or NaN"),
        ([[0.0, 0.0], [0.5, 0.5]], "row 0 of the sparse kernel"),
        ([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]], "must be square"),
    ],
)
def test_sparse_kernels_that_are_none_are_refused(matrix, words):
    with pytest.raises(ValueError, match=words):
        LogKernel.from_sparse(scipy.sparse.csr_matrix(matrix))
    good = LogKernel.from_sparse(scipy.sparse.csr_matrix(0.5 * np.eye(2)))  # weights below one
    assert_allclose(good.linear, 0.5)


def test_each_member_of_a_batch_is_measured_by_its_own_utility():
    kernel, policy = log_probabilities(FREE), np.stack([TWICE] * 2)
    for order in (slice(None), slice(None, None, -1)):
        utility = np.stack([UTILITY, 1e-12 * UTILITY])[order]
        for call in (lambda u=utility: solve(kernel, u, [1.0, 1.0]),
                     lambda u=utility: evaluate_policy(policy, FREE, u, [1.0, 1.0])):  # fmt: skip
            with pytest.raises(ValueError, match="lost in rounding"):
                call()
        found = solve(kernel, utility, np.array([1.0, 1e-12])[order])
        assert_array_equal(found.policy[0], solve(kernel, utility[0], float(np.array([1.0, 1e-12])[order][0])).policy)


@pytest.mark.parametrize("contexts", [False, True])
@pytest.mark.parametrize("varying", [False, True])
def test_the_papers_cost_of_a_release_with_nature_or_context(contexts, varying):
    """One step at its true divergence and then the release's own cost-to-go, entry by entry."""
    model = random_model(3, contexts=contexts, varying=varying)
    samples, rng = 3, np.random.default_rng(5)
    best, cost = solve_standard(model), []
    for _ in range(samples):
        kernel = draw_kernel(default_kernel(model), 30.0, rng)
        noisy, drawn = solve_with(model, kernel), kernel.dense(kernel.linear)  # drawn: context, time, state, decision
        one = np.zeros(noisy.policy.shape[:-1])
        for index in np.ndindex(one.shape):
            t, w, s = index if contexts else (index[0], 0, index[1])
            row, true = noisy.policy[index], model.default_policy[index]
            there = drawn[w if len(drawn) > 1 else 0, t if drawn.shape[1] > 1 else 0, s]
            on = row > 0
            step = (row[on] * (np.log(row[on] / true[on]) - np.log(row[on] / there[on]))).sum()
            one[index] = model.discomfort_penalty * (
                step + best.log_desirability[index] - noisy.log_desirability[index]
            )
        cost.append(one)
    found = cost_of_privacy(model, 30.0, "release", formula="paper", samples=samples, rng=np.random.default_rng(5))
    assert_allclose(found, np.mean(cost, axis=0), rtol=1e-9, atol=1e-9)


def test_one_tilt_for_all_contexts_is_the_same_in_each():
    model = random_model(1)
    tilts = np.random.default_rng(0).normal(size=(model.horizon, model.n_decisions))
    each = np.repeat(tilts[:, None], model.n_contexts, axis=1)
    assert_array_equal(tilted_policy(model, tilts), tilted_policy(model, each))
    for wrong in (each[:, :1], each[None], tilts[:-1]):
        with pytest.raises(ValueError, match="tilts must"):
            tilted_policy(model, wrong)
    with pytest.raises(ValueError, match="tilts must"):
        tilted_policy(random_model(3, contexts=False), each)


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


def test_kernels_of_several_times_or_members_are_square_as_well():
    for shape in ((2, 3, 2), (2, 2, 3, 2), (3, 2, 3)):
        with pytest.raises(ValueError, match="must be square"):
            LogKernel.from_dense(np.zeros(shape))
    for shape in ((3,), (1, 1, 1, 3, 3)):
        with pytest.raises(ValueError, match=r"default|log_kernel"):
            LogKernel.of_contexts(np.full(shape, 1 / 3))


@pytest.mark.parametrize("model", [random_model(1), random_model(3, contexts=False), random_model(5, nature=False)])
def test_plans_are_deployed_where_they_were_made(model):
    assert_allclose(as_tilt(solve_standard(model), model), standard_policy(model), atol=1e-12)


def test_a_negative_probability_is_named_by_its_time_in_a_context_as_well():
    model = random_model(1)
    with pytest.raises(ValueError, match=r"negative probability -\S+ from state \d at time \d"):
        average_policy(model.override(utility=4.0 * model.utility), 1e-3, "expansion")


def test_the_only_step_gives_its_matrix_away():
    model = EnsembleModel(FREE, [0, 1, 2], UTILITY[:2], 1.0)
    assert_allclose(as_tilt(standard_policy(model), model), standard_policy(model), atol=1e-12)


def test_multipliers_are_bounded_where_something_is_asked():
    low, high = Coupling.tracking([9.0, 1.0, 1.0, 1.0], [9.0, 0.3, 0.0, 2.5]).bounds()
    assert low.tolist() == [-np.inf, 0.0, -np.inf] and high.tolist() == [np.inf, 0.0, np.inf]
    low, high = Coupling.limit([9.0, 1.0, np.inf, 1.0], [9.0, 0.3, 2.0, 2.5]).bounds()
    assert low.tolist() == [0.0, 0.0, 0.0] and high.tolist() == [0.3, 0.0, 2.5]


def test_where_there_is_no_limit_no_power_is_asked_for():
    coupling = Coupling.limit([9.0, 1.0, np.inf, 2.0], [9.0, 0.3, 2.0, 2.5])
    assert coupling.conjugate_derivative([0.1, 0.0, 0.2]).tolist() == [1.0, 0.0, 2.0]
    assert coupling.conjugate([0.1, 0.0, 0.2]).tolist() == [0.1, 0.0, 0.4]
