"""Cost of privacy: identities, orders in k, and the paper's formulas against the exact ones."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import random_model
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import logsumexp, rel_entr

from dp_ensemble_env.control.cost import (
    METHODS,
    average_cost_as_printed,
    cost_of_privacy,
    policy_cost,
    release_cost,
    release_cost_leading_order,
)
from dp_ensemble_env.control.lsmdp import evaluate_policy, solve
from dp_ensemble_env.control.policies import (
    average_policy_as_printed,
    digamma_kernel,
    solve_standard,
    taylor_kernel,
    taylor_policy,
)
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism


@pytest.mark.parametrize("method", ["taylor", "digamma"])
def test_paper_formula_written_out(method):
    """Corollaries 1 and 2 with dense arrays, term by term, at one time and state."""
    model, k = random_model(5, n=4, horizon=3, density=1.0), 30.0
    kernel = (taylor_kernel if method == "taylor" else digamma_kernel)(model, k)
    noisy, true = solve(kernel, model.utility, model.discomfort_penalty), solve_standard(model)
    log_k, log_p = kernel.dense(kernel.log_values)[0, 0], np.log(model.default)
    t, b = 1, 2
    z_noisy, z_true = noisy.log_desirability[t + 1], true.log_desirability[t + 1]
    expected = model.discomfort_penalty * (
        noisy.policy[t, b] @ (log_k[b] - log_p[b]) - logsumexp(log_k[b] + z_noisy) + logsumexp(log_p[b] + z_true)
    )
    assert cost_of_privacy(model, k, method, "paper")[t, b] == pytest.approx(expected, rel=1e-12)


@given(st.integers(0, 10_000), st.floats(1.0, 500.0), st.sampled_from(["taylor", "digamma"]))
def test_exact_cost_lies_between_zero_and_the_papers(seed, k, method):
    model = random_model(seed, n=4, horizon=4)
    exact, paper = (cost_of_privacy(model, k, method, formula) for formula in ("exact", "paper"))
    assert (exact >= -1e-9).all()
    assert (paper >= exact - 1e-9).all()


def test_exact_cost_is_the_expected_divergence(campus):
    policy = taylor_policy(campus, 50.0)
    optimal = solve_standard(campus).policy
    divergence = campus.discomfort_penalty * rel_entr(policy, optimal).sum(axis=-1)
    expected = np.zeros(20)
    for t in range(campus.horizon - 1, -1, -1):
        expected = divergence[t] + policy[t] @ expected
    assert_allclose(cost_of_privacy(campus, 50.0, "taylor")[0], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "formula", "order"),
    [("taylor", "exact", 2), ("digamma", "exact", 2), ("average-exact", "exact", 2), ("taylor", "paper", 1)],
)
def test_order_in_k(campus, method, formula, order):
    costs = [campus.initial @ cost_of_privacy(campus, k, method, formula)[0] for k in (2e4, 8e4)]
    assert np.log(costs[0] / costs[1]) / np.log(4) == pytest.approx(order, abs=0.02)


def test_cost_falls_with_k_and_vanishes_without_noise(campus):
    for method in ("taylor", "digamma", "average-exact"):
        costs = [campus.initial @ cost_of_privacy(campus, k, method)[0] for k in (10.0, 50.0, 200.0, 1000.0)]
        assert costs == sorted(costs, reverse=True) and costs[-1] > 0
        assert (cost_of_privacy(campus, np.inf, method) == 0).all()


def test_digamma_costs_more_than_taylor_on_the_campus(campus):
    """The paper's ordering of the two, by both formulas."""
    for formula in ("exact", "paper"):
        taylor, noise = (campus.initial @ cost_of_privacy(campus, 50.0, m, formula)[0] for m in ("taylor", "digamma"))
        assert noise > taylor


# ------------------------------------------------------------------ releases
def brute_release_costs(model, k, draws, seed, formula):
    rng, mechanism = np.random.default_rng(seed), DirichletMechanism(k)
    true = solve_standard(model)
    costs = []
    for _ in range(draws):
        release = mechanism.release(model.default, rng)
        private = solve(release.log_matrix, model.utility, model.discomfort_penalty)
        if formula == "exact":
            cost = evaluate_policy(private.policy, model.default, model.utility, model.discomfort_penalty)
        else:
            divergence = rel_entr(private.policy, model.default).sum(axis=-1)
            ahead = np.einsum("tba,ta->tb", private.policy, private.cost_to_go[1:])
            cost = -model.utility[:-1] + model.discomfort_penalty * divergence + ahead
            cost = np.concatenate([cost, -model.utility[-1:]])
        costs.append((cost - true.cost_to_go)[:-1])
    return np.mean(costs, axis=0), np.std(costs, axis=0) / np.sqrt(draws)


@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("formula", ["exact", "paper"])
def test_release_cost_agrees_with_brute_force(formula, varying):
    model = random_model(8, n=4, horizon=3, density=0.8, varying=varying)
    mean, error = brute_release_costs(model, 20.0, 1500, 0, formula)
    estimate = release_cost(model, 20.0, formula=formula, samples=20_000, rng=1)
    tolerance = 5.5 * np.hypot(error, estimate.standard_error)
    assert (np.abs(estimate.mean - mean) < tolerance).all()
    assert_allclose(estimate.standard_error * np.sqrt(20_000), error * np.sqrt(1500), rtol=0.4)


def test_paper_formula_understates_what_a_release_costs(campus):
    """Each release's own optimum takes its noise for opportunity; the exact cost does not."""
    exact, paper = (release_cost(campus, 50.0, formula=f, samples=500, rng=0) for f in ("exact", "paper"))
    gap = campus.initial @ (exact.mean[0] - paper.mean[0])
    assert gap > 6 * campus.initial @ (exact.standard_error[0] + paper.standard_error[0])


def test_averaged_policy_costs_far_less_than_one_release(campus):
    averaged = campus.initial @ cost_of_privacy(campus, 200.0, "average-exact")[0]
    single = campus.initial @ cost_of_privacy(campus, 200.0, "release", samples=500, rng=0)[0]
    assert single > 5 * averaged > 0


def test_leading_order_is_exact_for_one_step():
    """With one step there is no noise in z, and the per-visit formula is the limit."""
    model = random_model(9, n=4, horizon=1, density=1.0)
    k = 4000.0
    estimate = release_cost(model, k, samples=40_000, rng=0)
    leading = release_cost_leading_order(model, k)
    assert (np.abs(estimate.mean - leading) < 5.5 * estimate.standard_error + 0.01 * leading).all()
    flat = model.override(utility=np.zeros_like(model.utility))
    assert_allclose(release_cost_leading_order(flat, k), 3 * model.discomfort_penalty / (2 * (k + 1)))


def test_leading_order_guides_the_whole_event(campus):
    k = 1000.0
    estimate = campus.initial @ release_cost(campus, k, samples=2000, rng=0).mean[0]
    assert campus.initial @ release_cost_leading_order(campus, k)[0] == pytest.approx(estimate, rel=0.2)


def test_printed_corollary_three_written_out():
    """Term by term with dense arrays, at one time and state (E2, E3)."""
    model, k = random_model(12, n=3, horizon=2, density=1.0), 25.0
    t, b = 0, 1
    log_z = solve_standard(model).log_desirability[t + 1]
    z, p, gamma = np.exp(log_z), model.default[b], model.discomfort_penalty
    pz = p * z
    own = z**2 * p * (1 - p)
    cross = np.array([sum(z[a] * z[v] * p[a] * p[v] for v in range(3) if v != a) for a in range(3)])
    terms = (
        own / ((k + 1) * (pz**2).sum())
        - 2 * pz * (own - cross) / ((k + 1) * (pz**3).sum())
        + pz**2 * (own.sum() - cross.sum()) / ((k + 1) * (pz**4).sum())
        - average_policy_as_printed(model, k)[t, b] * (np.log(p) - z)
    )
    expected = gamma * terms.sum() + gamma * np.log(pz.sum())
    assert average_cost_as_printed(model, k)[t, b] == pytest.approx(expected, rel=1e-10)


# ------------------------------------------------------------------ shapes and refusals
@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_times_by_states(campus, method):
    cost = cost_of_privacy(campus, 400.0, method, samples=30, rng=0)
    assert cost.shape == (18, 20) and (cost > -1e-9).all() and (cost[0] > 0).all()


def test_any_policy_has_a_cost(campus):
    assert (policy_cost(campus, campus.default_policy) >= 0).all()
    assert_allclose(policy_cost(campus, solve_standard(campus).policy), 0.0, atol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((50.0, "tailor"), "unknown method 'tailor'.*'taylor'"),
        ((50.0, "taylor", "printed"), "unknown formula"),
        ((0.0, "taylor"), "k must be"),
        ((-1.0, "release"), "k must be"),
    ],
)
def test_bad_arguments_are_refused(campus, arguments, words):
    with pytest.raises(ValueError, match=words):
        cost_of_privacy(campus, *arguments)
    with pytest.raises(ValueError, match="samples"):
        release_cost(campus, 5.0, samples=1)
