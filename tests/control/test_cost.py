"""What privacy costs: the paper's formulas, exact evaluation, Monte Carlo, and the leading order."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import random_model
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from oracles import general_model
from scipy.special import logsumexp

from dp_ensemble_env.control.averages import draw_kernel
from dp_ensemble_env.control.cost import average_cost_as_printed, cost_of_privacy, policy_cost, release_cost
from dp_ensemble_env.control.kernel import default_kernel
from dp_ensemble_env.control.lsmdp import solve
from dp_ensemble_env.control.policies import (
    average_policy_as_printed,
    digamma_kernel,
    solve_standard,
    solve_with,
    taylor_kernel,
)


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
    assert (exact >= -1e-9).all() and (paper >= exact - 1e-9).all()


@pytest.mark.parametrize(
    ("method", "formula", "order"),
    [("taylor", "exact", 2), ("digamma", "exact", 2), ("average-exact", "exact", 2), ("taylor", "paper", 1)],
)
def test_order_in_k(campus, method, formula, order):
    costs = [campus.initial @ cost_of_privacy(campus, k, method, formula)[0] for k in (2e4, 8e4)]
    assert np.log(costs[0] / costs[1]) / np.log(4) == pytest.approx(order, abs=0.02)
    assert (cost_of_privacy(campus, np.inf, method, formula) == 0).all()


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


# ------------------------------------------------------------------ zeros, nature, context
@pytest.mark.parametrize("kind", ["nature", "nature by time", "context", "everything"])
def test_the_cost_of_a_release_with_nature_or_context(kind):
    """The paper's: one step at its true divergence and then the release's own cost-to-go, entry by entry; the exact."""
    model = general_model(kind, 3)
    samples, rng = 3, np.random.default_rng(5)
    best, cost, lost = solve_standard(model), [], []
    for _ in range(samples):
        kernel = draw_kernel(default_kernel(model), 30.0, rng)
        noisy, drawn = solve_with(model, kernel), kernel.dense(kernel.linear)  # drawn: context, time, state, decision
        one = np.zeros(noisy.policy.shape[:-1])
        for index in np.ndindex(one.shape):
            t, w, s = index if len(index) == 3 else (index[0], 0, index[1])
            row, true = noisy.policy[index], model.default_policy[index]
            there = drawn[w if len(drawn) > 1 else 0, t if drawn.shape[1] > 1 else 0, s]
            on = row > 0
            step = (row[on] * (np.log(row[on] / true[on]) - np.log(row[on] / there[on]))).sum()
            one[index] = model.discomfort_penalty * (
                step + best.log_desirability[index] - noisy.log_desirability[index]
            )
        cost.append(one)
        lost.append(policy_cost(model, noisy.policy))
    for formula, expected in (("paper", cost), ("exact", lost)):
        found = release_cost(model, 30.0, formula=formula, samples=samples, rng=np.random.default_rng(5))
        assert_allclose(found.mean, np.mean(expected, axis=0), rtol=1e-9, atol=1e-9)
        error = np.std(expected, axis=0, ddof=1) / np.sqrt(samples)
        assert_allclose(found.standard_error, error, rtol=1e-6, atol=1e-7)
