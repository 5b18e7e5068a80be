"""The closed-form policies against their definitions, Monte Carlo and the published numbers; tilts."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers import random_model
from numpy.testing import assert_allclose, assert_array_equal
from oracles import BOTH_WAYS, general_model, one_row
from scipy.special import digamma

from dp_ensemble_env import scenarios
from dp_ensemble_env.control.kernel import default_kernel
from dp_ensemble_env.control.policies import (
    POLICIES,
    as_tilt,
    average_policy,
    average_policy_as_printed,
    digamma_kernel,
    expansion_values,
    solve_policy,
    solve_standard,
    solve_with,
    standard_policy,
    taylor_kernel,
    tilted_policy,
)
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import event_outcome

EXAMPLE = one_row([0.2, 0.6, 0.2], np.log([1.0, 0.2, 0.04]))


@pytest.mark.parametrize("k", [0.5, 5.0, 50.0, 200.0])
def test_kernels_by_their_formulas(k):
    model = random_model(1, n=5)
    p = model.default
    dense = default_kernel(model).dense
    taylor, noise = (dense(kernel(model, k).log_values)[0, 0] for kernel in (taylor_kernel, digamma_kernel))
    b, a = np.nonzero(p)
    assert_allclose(taylor[b, a], np.log(p[b, a]) - (1 - p[b, a]) / (2 * p[b, a] * (k + 1)), rtol=1e-12)
    assert_allclose(noise[b, a], digamma(k * p[b, a]) - digamma(k), rtol=1e-12)
    # digamma <= Taylor <= log P, as Jensen and the expansion's remainder have it
    assert (noise[b, a] <= taylor[b, a] + 1e-12).all() and (taylor[b, a] <= np.log(p[b, a]) + 1e-12).all()


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "standard"])
def test_all_converge_to_the_standard_policy(name):
    model = random_model(3, n=5, horizon=4, density=0.6)
    standard = standard_policy(model)
    kwargs = {"samples": 2000, "rng": 0} if name == "average-sampled" else {}
    gaps = [np.abs(solve_policy(model, name, k, **kwargs) - standard).max() for k in (1e3, 1e5, 1e7)]
    assert gaps[0] > gaps[1] > gaps[2] and gaps[2] < (1e-4 if kwargs else 1e-6)
    assert_array_equal(solve_policy(model, name, np.inf, **kwargs), standard)


# ------------------------------------------------------------------ average value
@pytest.mark.parametrize(("k", "expected"), [(5.0, [0.5176, 0.4480, 0.0344]), (50.0, [0.5982, 0.3764, 0.0254])])
def test_exact_average_reproduces_the_published_example(k, expected):
    exact = average_policy(EXAMPLE, k, "exact")[0, 0]
    assert_allclose(exact, expected, atol=5e-5)
    assert exact.sum() == pytest.approx(1, abs=1e-12)


def test_expansion_and_printed_form_reproduce_the_published_example():
    assert_allclose(average_policy(EXAMPLE, 5.0, "expansion")[0, 0], [0.5118, 0.4558, 0.0324], atol=5e-5)
    printed = average_policy_as_printed(EXAMPLE, 5.0)[0, 0]
    assert_allclose(printed, [0.5985, 0.6528, 0.0474], atol=5e-5)
    assert printed.sum() > 1.29  # E2: not a distribution


def test_expansion_error_is_of_second_order():
    ways = (([average_policy(EXAMPLE, k, how) for how in ("expansion", "exact")]) for k in (2e3, 8e3))
    gaps = [np.abs(expansion - exact).max() for expansion, exact in ways]
    assert gaps[0] / gaps[1] == pytest.approx(16, rel=0.05)


def test_sampled_average_survives_an_extreme_spread():
    """Thousands of nats between neighbours and k = 0.01: the linear path gives up, the logarithms do not."""
    model = EnsembleModel(
        default=[[0.5, 0.5, 0.0], [0.3, 0.3, 0.4], [0.0, 0.5, 0.5]],
        power_kw=[1, 2, 3],
        utility=np.array([[0, 0, 0], [0, -3000.0, -9000.0], [-9000.0, 0, -3000.0]]),
        discomfort_penalty=1.0,
    )
    policy = average_policy(model, 0.01, "sampled", 400, 0)
    assert np.isfinite(policy).all()
    assert_allclose(policy.sum(axis=-1), 1.0, rtol=1e-12)


def test_the_expansion_names_a_negative_probability_that_is_there():
    model = random_model(5, n=5, horizon=4, density=0.7)
    solution, k = solve_standard(model), 0.5
    values = default_kernel(model).dense(expansion_values(solution, k))
    with pytest.raises(ValueError, match="negative probability") as refused:
        average_policy(model, k, "expansion")
    number, state, time = re.search(r"probability (\S+) from state (\d+) at time (\d+)", str(refused.value)).groups()
    assert values[int(time), int(state)].min() < 0 and not (values[: int(time)] < 0).any()
    assert np.isclose(values[int(time), int(state)], float(number), rtol=5e-3).any() and float(number) < 0
    assert not (values[int(time), : int(state)] < 0).any()


# ------------------------------------------------------------------ zeros, tiny and enormous k
@pytest.mark.parametrize("model", BOTH_WAYS)
@pytest.mark.parametrize("name", ["taylor", "digamma", "average-sampled", "average-expansion", "average-exact"])
def test_zeros_of_some_times_stay_zeros_and_the_rest_is_a_policy(model, name):
    more = {"samples": 40, "rng": 0} if name == "average-sampled" else {}
    for k in (30.0,) if name == "average-expansion" else (30.0, 1e-290, 5e-324):
        policy = solve_policy(model, name, k, **more)
        assert_array_equal(policy[model.default == 0], 0.0)
        assert (policy[model.default > 0] > 0).all() if k == 30.0 else (policy >= 0).all()
        assert_allclose(policy.sum(axis=-1), 1.0, rtol=1e-9)
    assert_array_equal(solve_policy(model, name, np.inf, **more), standard_policy(model))
    assert not np.isnan(taylor_kernel(model, np.inf).log_values).any()


# ------------------------------------------------------------------ tilts
def test_tilted_rows_by_their_definition():
    model = random_model(3, n=4, horizon=3)
    tilts = np.random.default_rng(0).normal(size=(3, 4))
    expected = model.default * np.exp(tilts)[:, None, :]
    assert_allclose(tilted_policy(model, tilts), expected / expected.sum(axis=-1, keepdims=True), rtol=1e-13)
    assert_allclose(tilted_policy(model, np.zeros((3, 4))), model.default_policy, rtol=1e-15)
    with pytest.raises(ValueError, match=r"tilts must have shape \(3, 4\)"):
        tilted_policy(model, np.zeros((4, 3)))


def test_what_no_tilt_can_be_read_from_is_refused():
    model = random_model(5, density=1.0)
    for plan, words in (
        (standard_policy(model), "of a policy pass the Solution"),
        (solve_standard(random_model(5, n=4)), "the plan's tilt"),
        (np.ones((6, 6)), "sums to"),
    ):
        with pytest.raises(ValueError, match=words):
            as_tilt(plan, model)


def test_a_plan_made_elsewhere_is_deployed_as_a_tilt():
    model = general_model("everything")
    guess = general_model("everything", 10).default
    guess = np.where(model.default > 0, guess, 0.0) + 1e-3 * (model.default > 0)
    guess /= guess.sum(axis=-1, keepdims=True)
    plan = solve_standard(model.with_default(guess))
    np.testing.assert_allclose(as_tilt(guess, model), tilted_policy(model, plan.tilt), atol=1e-12)
    np.testing.assert_allclose(as_tilt(model.default, model), standard_policy(model), atol=1e-12)
    assert 0 < event_outcome(model, as_tilt(guess, model)).gap


# ------------------------------------------------------------------ refusals
def test_unknown_names_are_refused_with_a_guess(campus):
    with pytest.raises(ValueError, match="unknown policy 'digama'.*did you mean 'digamma'"):
        solve_policy(campus, "digama", 5.0)
    with pytest.raises(ValueError, match="unknown method 'sample'.*did you mean 'sampled'"):
        average_policy(campus, 5.0, "sample")


def test_a_coupled_plan_with_noise_keeps_the_shadow_prices_of_every_context():
    """Its utility is the same in all contexts; the prices are not."""
    model = scenarios.make("depot")
    price = solve_standard(model).shadow_price
    charged = np.repeat(model.utility[:, None], model.n_contexts, axis=1)
    charged[1:] -= price[..., None] * model.power_kw
    kernel, free = digamma_kernel(model, 50.0), model.override(coupling=None, utility=charged)
    assert_allclose(solve_with(model, kernel).policy, solve_with(free, kernel).policy, rtol=1e-12)
