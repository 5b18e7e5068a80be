r"""Cost of privacy: the cost of a noisy matrix to the aggregator, in dollars.

A policy :math:`\tilde\pi` that was computed for a noisy problem is deployed on the true dynamics. Its cost is a
difference of costs-to-go at every time and state, shape (T, n), in one of two forms:

exact
    :math:`\varphi^{\tilde\pi} - \varphi^*` by policy evaluation. By the performance-difference identity of KL control
    it is :math:`E_{\tilde\pi}\sum_t \gamma\,\mathrm{KL}(\tilde\pi_t[s_t]\|\pi^*_t[s_t])`, so it is never negative. It
    falls like :math:`1/k^2` for Taylor, Digamma and the averaged policy, like :math:`1/k` for a policy solved on one
    release.
paper
    Corollaries 1 and 2: the true cost of one step followed by the *private* cost-to-go,

    .. math:: \Delta C = \gamma\sum_a\tilde\pi[a](\log K[a]-\log P[a])
              - \gamma\log\sum_a K[a]\tilde z[a] + \gamma\log\sum_a P[a]z[a].

    It overstates the loss of Taylor and Digamma, often tenfold, since the private cost-to-go contains the pessimism of
    the kernel. It understates the loss of a policy solved on a release, about by half.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import rel_entr

from dp_ensemble_env.control.averages import draw_kernel, sampled_costs
from dp_ensemble_env.control.kernel import default_kernel, world
from dp_ensemble_env.control.lsmdp import evaluate_policy
from dp_ensemble_env.control.policies import (
    AVERAGE_METHODS,
    average_policy,
    average_policy_as_printed,
    check_plain,
    desirability_ratio,
    digamma_kernel,
    row_sums,
    solve_standard,
    solve_with,
    taylor_kernel,
)
from dp_ensemble_env.model import EnsembleModel, FloatArray
from dp_ensemble_env.tools.validation import check_choice, check_concentration, check_count, check_instance, check_rng

METHODS = ("taylor", "digamma", *(f"average-{method}" for method in AVERAGE_METHODS), "release")
FORMULAS = ("exact", "paper")


class CostEstimate(NamedTuple):
    """A Monte Carlo estimate: mean and its standard error, both of shape (T, [c,] n), in dollars."""

    mean: FloatArray
    standard_error: FloatArray

    def __repr__(self) -> str:
        steps, *_, n = self.mean.shape
        return f"CostEstimate(mean and standard error, {steps:,} steps by {n:,} states)"


def cost_of_privacy(
    model: EnsembleModel,
    k: float,
    method: str,
    formula: str = "exact",
    *,
    samples: int = 1000,
    rng: np.random.Generator | int | None = None,
) -> FloatArray:
    """Return the cost of privacy at every time and state, (T, [c,] n), in dollars per load.

    `k` is the concentration of the Dirichlet noise; with an infinite `k` there is no noise and no cost. ``"average-…"``
    deploys the averaged policy, ``"release"`` a policy computed from one release, in expectation over the release; the
    two differ by an order in `k`. For the average-value methods the paper's `formula` is Corollary 3 without its
    misprints (E3). Methods that draw use `samples` and `rng`, by default the operating system's entropy;
    `release_cost` gives the standard error.
    """
    check_instance(model, EnsembleModel, "model")
    method = "average-sampled" if method == "average" else check_choice(method, "method", METHODS)
    check_choice(formula, "formula", FORMULAS)
    k = check_concentration(k, allow_inf=True)
    if np.isinf(k):
        return np.zeros(model.default_policy.shape[:-1])
    if method == "release" or (formula == "paper" and method.startswith("average-")):
        return release_cost(model, k, formula=formula, samples=samples, rng=rng).mean
    if method.startswith("average-"):
        return policy_cost(model, average_policy(model, k, method.removeprefix("average-"), samples, rng))
    kernel = taylor_kernel(model, k) if method == "taylor" else digamma_kernel(model, k)
    noisy = solve_with(model, kernel)
    if formula == "exact":
        return policy_cost(model, noisy.policy)
    true = solve_standard(model)
    with np.errstate(invalid="ignore"):
        difference = kernel.log_values - default_kernel(model).log_values
        excess = np.where(noisy.policy_values > 0, difference if noisy.contexts else difference[0], 0.0)
    one_step = noisy.over_times(np.add.reduceat(noisy.policy_values * excess, kernel.indptr[:-1], axis=-1))
    # log g_t = log z_t - U_t / gamma, and the utilities cancel in the difference.
    return model.discomfort_penalty * (one_step + (true.log_desirability[:-1] - noisy.log_desirability[:-1]))


def policy_cost(model: EnsembleModel, policy: FloatArray) -> FloatArray:
    """Return the exact loss of a policy against the optimum, (T, [c,] n) dollars; zero only for the optimum."""
    check_uncoupled(model)
    cost = evaluate_policy(policy, model.default, model.utility, model.discomfort_penalty, **world(model))
    return (cost - solve_standard(model).cost_to_go)[:-1]


def check_uncoupled(model: EnsembleModel) -> None:
    """Refuse a coupled model, whose cost does not split into states."""
    check_instance(model, EnsembleModel, "model")
    if model.coupling is not None:
        raise ValueError(
            "the loads of a coupled model pay for their mean power together, so the cost of privacy has no value for "
            "each state; event_outcome(model, policy).gap is the loss of a policy."
        )


def release_cost(
    model: EnsembleModel,
    k: float,
    *,
    formula: str = "exact",
    samples: int = 1000,
    rng: np.random.Generator | int | None = None,
) -> CostEstimate:
    """Estimate the expected cost of deploying a policy solved on one release, (T, [c,] n) dollars.

    Each sample draws a private matrix, solves it and evaluates the policy on the true dynamics; the mean over samples
    comes with its standard error.
    """
    check_choice(formula, "formula", FORMULAS)
    k = check_concentration(k)
    samples = check_count(samples, "samples", 2)
    generator = np.random.default_rng() if rng is None else check_rng(rng)
    check_uncoupled(model)
    if model.is_plain:
        best, kernel, unit = solve_standard(model), default_kernel(model), model.discomfort_penalty
        known = model.utility / unit, best.log_desirability, best.policy_values
        sums = [both[FORMULAS.index(formula)] for both in sampled_costs(kernel, k, samples, generator, *known)]
    else:
        sums, unit = list(_summed_costs(model, k, formula, samples, generator)), 1.0
    mean = sums[0] / samples
    variance = np.maximum(sums[1] / samples - mean**2, 0.0) * samples / (samples - 1)
    return CostEstimate(unit * mean, unit * np.sqrt(variance / samples))


def _summed_costs(model: EnsembleModel, k: float, formula: str, samples: int, rng: np.random.Generator) -> FloatArray:
    """Sum costs, and their squares, release after release: nature and contexts have no quicker way."""
    best, gamma = solve_standard(model), model.discomfort_penalty
    sums = np.zeros((2, *best.policy.shape[:-1]))
    for _ in range(samples):
        kernel = draw_kernel(default_kernel(model), k, rng)
        noisy = solve_with(model, kernel)
        if formula == "exact":
            cost = policy_cost(model, noisy.policy)
        else:
            drawn = noisy.over_times(kernel.dense(kernel.linear))
            drawn = drawn if noisy.contexts else drawn[0]
            divergence = rel_entr(noisy.policy, model.default_policy) - rel_entr(noisy.policy, drawn)
            cost = gamma * (divergence.sum(axis=-1) + (best.log_desirability[:-1] - noisy.log_desirability[:-1]))
        sums += cost, cost**2
    return sums


def release_cost_leading_order(model: EnsembleModel, k: float) -> FloatArray:
    r"""Return the expected cost of deploying a policy solved on one release, to leading order in 1/k.

    Per visit of (t, b) it is :math:`\frac{\gamma}{2(k+1)}(\sum_{a\in S} r[a] - \sum_a\pi[a]r[a])`, which is the classic
    :math:`(|S|-1)\gamma/2(k+1)` when z is flat; visits are counted under the optimal policy. It contains
    only the one-step noise, not the noise in z, so it is a guide rather than a bound.
    """
    k = check_concentration(k)
    check_uncoupled(model)
    solution, kernel = solve_standard(model), default_kernel(model)
    ratio = desirability_ratio(solution)
    spread = np.add.reduceat(ratio * (1.0 - solution.policy_values), kernel.indptr[:-1], axis=-1)
    visit = model.discomfort_penalty / (2.0 * (k + 1.0)) * solution.over_times(spread)
    # The cost of the visits to come is that of the optimal policy followed with -visit as the utility of its states,
    # and no discomfort.
    earned = np.concatenate([-visit, np.zeros((1, *visit.shape[1:]))])
    return evaluate_policy(solution.policy, solution.policy, earned, 1.0, **world(model))[:-1]


def average_cost_as_printed(model: EnsembleModel, k: float) -> FloatArray:
    r"""Evaluate Corollary 3 exactly as the paper prints it (E2, E3), (T, n) dollars.

    Besides the denominators of E2 it subtracts :math:`\gamma\sum E[\tilde P]\tilde z` where the cost-to-go calls for
    :math:`\log\tilde z`, and replaces :math:`\log\tilde P` by :math:`\tilde P - 1`. Kept for the comparison with the
    paper: it is not a cost, may be negative, and depends on the unit of z, which is taken as printed,
    :math:`z_{t+1}` itself.
    """
    k = check_concentration(k)
    check_plain(model)
    solution = solve_standard(model)
    kernel, gamma = default_kernel(model), model.discomfort_penalty
    ratio, pi = desirability_ratio(solution), solution.policy_values
    p = np.broadcast_to(np.exp(kernel.log_values[0]), pi.shape)
    printed = average_policy_as_printed(model, k)
    expected = printed[:, np.repeat(np.arange(model.n_states), np.diff(kernel.indptr)), kernel.indices]
    others = row_sums(kernel, pi) - pi
    own = ratio**2 * p * (1 - p)
    covariance = own - pi * others
    variance = row_sums(kernel, covariance)
    moments = (
        own / row_sums(kernel, pi**2)
        - 2 * pi * covariance / row_sums(kernel, pi**3)
        + pi**2 * variance / row_sums(kernel, pi**4)
    ) / (k + 1)
    z = np.exp(solution.log_desirability[1:])[:, kernel.indices]
    summand = moments - expected * (np.log(p) - z)
    log_gain = solution.log_desirability[:-1] - model.utility[:-1] / gamma
    return gamma * (np.add.reduceat(summand, kernel.indptr[:-1], axis=-1) + log_gain)
