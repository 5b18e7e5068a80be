r"""Closed-form policies: standard, Taylor, Digamma and average value.

All of them are the recursion of `dp_ensemble_env.control.lsmdp` with some kernel, or an average of such solutions. With
:math:`P` the default matrix and :math:`x \sim \mathrm{Dir}(kP[b])` its private copy:

standard (Theorem 1)
    :math:`\log K = \log P`.
Taylor (Proposition 1)
    :math:`\log K = \log P - \frac{1-P}{2P(k+1)}`, the second-order expansion of :math:`E[\log x]`.
Digamma (Proposition 2)
    :math:`\log K = \psi(kP) - \psi(k)`, which *is* :math:`E[\log x]`.
average value (Section V)
    the mean of the optimal policies of many private matrices; see `average_policy` for its three methods.
tilt
    an attraction of the states, perhaps from another plan, applied to the model's own behaviour; see `tilted_policy`
    and `as_tilt`.

**Privacy.** Taylor and Digamma policies expect noise and add none: they are deterministic functions of the matrix, and
with :math:`z` they reveal the true row (E8). They are private only when `model.default` is itself a
release. The sampled average of N draws costs N releases (E9).

Policies have shape (T, [c,] n, m). `k` may be infinite: all of them are the standard policy then. For coupled models
they keep the shadow prices of the certified optimum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import digamma

from dp_ensemble_env.control.averages import average_exact, average_sampled, draw_kernel
from dp_ensemble_env.control.coupled import solve_coupled
from dp_ensemble_env.control.kernel import default_kernel, world
from dp_ensemble_env.control.lsmdp import LogKernel, Solution, solve
from dp_ensemble_env.model import EnsembleModel, FloatArray
from dp_ensemble_env.tools.validation import (
    as_float_array,
    check_choice,
    check_concentration,
    check_count,
    check_instance,
    check_rng,
    check_shape,
    check_stochastic,
)

AVERAGE_METHODS = ("sampled", "expansion", "exact")
#: Names accepted by `solve_policy`.
POLICIES = ("standard", "taylor", "digamma", *(f"average-{method}" for method in AVERAGE_METHODS))


def solve_standard(model: EnsembleModel) -> Solution:
    """Solve the problem without noise: the optimum, its value function and its policy."""
    check_instance(model, EnsembleModel, "model")
    return solve_coupled(model) if model.coupling is not None else solve_with(model, default_kernel(model))


def solve_with(model: EnsembleModel, kernel: LogKernel) -> Solution:
    """Solve the problem with another kernel in place of the default, at the shadow prices if the model is coupled."""
    utility = model.utility
    if model.coupling is not None:
        charged = solve_coupled(model).shadow_price[..., None] * model.power_kw
        utility = utility if utility.ndim == charged.ndim else utility[:, None]  # the same in every context
        utility = utility - np.concatenate([np.zeros_like(charged[:1]), charged])
    return solve(kernel, utility, model.discomfort_penalty, **world(model))


def standard_policy(model: EnsembleModel) -> FloatArray:
    """Return the optimal policy of `model` (Theorem 1)."""
    return solve_standard(model).policy


def taylor_policy(model: EnsembleModel, k: float) -> FloatArray:
    """Return the noise-aware policy by the Taylor expansion of E[log x] (Proposition 1)."""
    return solve_with(model, taylor_kernel(model, k)).policy


def digamma_policy(model: EnsembleModel, k: float) -> FloatArray:
    """Return the noise-aware policy with the exact E[log x] (Proposition 2)."""
    return solve_with(model, digamma_kernel(model, k)).policy


def taylor_kernel(model: EnsembleModel, k: float) -> LogKernel:
    """Return log K of Proposition 1 on the support of the default."""
    check_instance(model, EnsembleModel, "model")
    kernel, k = default_kernel(model), check_concentration(k, allow_inf=True)
    p = np.exp(kernel.log_values)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        correction = (1.0 - p) / (2.0 * p * (k + 1.0))
    # A time-varying default may be zero here and not elsewhere; -inf stays -inf.
    log_values = np.where(p > 0, kernel.log_values - correction, -np.inf)
    return LogKernel(kernel.indptr, kernel.indices, log_values, kernel.columns)


def digamma_kernel(model: EnsembleModel, k: float) -> LogKernel:
    """Return log K of Proposition 2 on the support of the default."""
    check_instance(model, EnsembleModel, "model")
    kernel, k = default_kernel(model), check_concentration(k, allow_inf=True)
    if np.isinf(k):
        return kernel
    p = np.exp(kernel.log_values)
    with np.errstate(invalid="ignore"):
        log_values = np.where(p > 0, digamma(k * p) - digamma(k), -np.inf)
    return LogKernel(kernel.indptr, kernel.indices, log_values, kernel.columns)


def average_policy(
    model: EnsembleModel,
    k: float,
    method: str = "sampled",
    samples: int = 1000,
    rng: np.random.Generator | int | None = None,
) -> FloatArray:
    r"""Return the average-value policy (Section V).

    With the concentration `k` of the Dirichlet noise, the `method` ``"sampled"`` draws `samples` private matrices from
    `rng` (by default the operating system's entropy), solves each with its own :math:`z` and averages the policies. The
    other two hold :math:`z_{t+1}` at its value for the true matrix, as Proposition 3 does: ``"expansion"`` is
    Proposition 3 with its denominators corrected (E2),

    .. math:: E[\pi[a]] \approx \pi[a]\Bigl(1 + \frac{\sum_\nu\pi[\nu]r[\nu]-r[a]}{k+1}\Bigr),
              \quad r[a] = z[a]/\textstyle\sum_\nu P[\nu]z[\nu]

    and ``"exact"`` evaluates the expectation itself as an integral,

    .. math:: E[\pi[a]] = kP[a]z[a]\int_0^\infty\frac{\prod_\nu(1+sz[\nu])^{-kP[\nu]}}{1+sz[a]}\,ds.
    """
    check_choice(method, "method", AVERAGE_METHODS)
    k = check_concentration(k, allow_inf=True)
    samples = check_count(samples, "samples")
    generator = None if method != "sampled" else np.random.default_rng() if rng is None else check_rng(rng)
    solution = solve_standard(model)
    if np.isinf(k):
        return solution.policy
    kernel = default_kernel(model)
    if generator is not None and not model.is_plain:
        total = np.zeros_like(solution.policy)
        for _ in range(samples):
            total += solve_with(model, draw_kernel(kernel, k, generator)).policy
        return total / samples
    if generator is not None:
        values = average_sampled(kernel, solution, k, samples, generator, model.utility / model.discomfort_penalty)
    elif method == "exact":
        values = average_exact(kernel, solution.tilt, k, solution.contexts)
    else:
        values = expansion_values(solution, k)
        if (values < 0).any():
            worst = np.argwhere(values < 0)[0]
            t, entry = worst[-2:]
            state = int(np.searchsorted(kernel.indptr, entry, side="right") - 1)
            raise ValueError(
                f"the expansion in 1/k gives a negative probability {values[tuple(worst)]:.3g} from state {state} at "
                f"time {int(t)}: k={k:g} is too small; use the exact average, which has no such limit, or a larger k."
            )
    return solution.over_times(kernel.dense(values))


def expansion_values(solution: Solution, k: float) -> FloatArray:
    """Corrected Proposition 3 (E2) on the nonzeros, shape ([c,] T, nnz); entries may be negative at small k."""
    ratio, pi = desirability_ratio(solution), solution.policy_values
    return pi * (1.0 + (row_sums(solution.kernel, pi * ratio) - ratio) / (k + 1.0))


def average_policy_as_printed(model: EnsembleModel, k: float) -> FloatArray:
    r"""Evaluate Proposition 3 exactly as the paper prints it (E2); its rows do not sum to one.

    The printed denominators are :math:`\sum(Pz)^2` and :math:`\sum(Pz)^3` where the derivation gives
    :math:`(\sum Pz)^2` and :math:`(\sum Pz)^3`. Kept for the comparison with the paper; not a policy.
    """
    k = check_concentration(k)
    check_plain(model)
    solution, kernel = solve_standard(model), default_kernel(model)
    ratio, pi = desirability_ratio(solution), solution.policy_values
    p = np.broadcast_to(np.exp(kernel.log_values[0]), pi.shape)
    # In units of sum(P z): P z -> pi, z -> ratio, and the denominators become sum(pi^2), sum(pi^3).
    covariance = ratio * (ratio * p * (1 - p) - p * (row_sums(kernel, pi) - pi))
    variance = row_sums(kernel, ratio**2 * p * (1 - p) - pi * (row_sums(kernel, pi) - pi))
    first = covariance / ((k + 1) * row_sums(kernel, pi**2))
    return kernel.dense(pi - first + (pi * variance / ((k + 1) * row_sums(kernel, pi**3))))


def solve_policy(model: EnsembleModel, name: str, k: float | None = None, **kwargs: Any) -> FloatArray:
    """Return the policy called `name`, one of `POLICIES`; ``"average"`` means ``"average-sampled"``."""
    name = "average-sampled" if name == "average" else check_choice(name, "policy", POLICIES)
    if name == "standard":
        return standard_policy(model)
    if k is None:
        raise ValueError(
            f"the {name} policy needs k, the concentration of the noise it expects; pass k=50 for example (a Dirichlet "
            "release brings its own)."
        )
    if name in ("taylor", "digamma"):
        return taylor_policy(model, k) if name == "taylor" else digamma_policy(model, k)
    return average_policy(model, k, method=name.removeprefix("average-"), **kwargs)


# ------------------------------------------------------------------ tilts
def tilted_policy(model: EnsembleModel, tilts: ArrayLike) -> FloatArray:
    """Return the policy proportional to the default times exp(tilt), of the shape of `EnsembleModel.default_policy`.

    `tilts`, (T, m) or with a context (T, c, m), are nats of attraction of each state (with nature: decision); zero
    leaves the loads alone. A tilt of shape (T, m) is the same in every context.
    """
    check_instance(model, EnsembleModel, "model")
    nats = as_float_array(tilts, "tilts", (2, 3) if model.context is not None else 2)
    shape = (model.horizon, model.n_contexts, model.n_decisions)
    check_shape(nats, shape if nats.ndim == 3 else shape[::2], "tilts", "one row per step and one column per decision")
    if model.context is not None and nats.ndim == 2:
        nats = nats[:, None]
    with np.errstate(divide="ignore"):
        logs = np.log(model.default_policy) + nats[..., None, :]
    logs -= np.logaddexp.reduce(logs, axis=-1, keepdims=True)
    return np.exp(logs)


def as_tilt(plan_or_matrix: Solution | ArrayLike | Any, model: EnsembleModel) -> FloatArray:
    """Deploy a plan computed from another matrix as a tilt of the behaviour of `model`; return the policy.

    Only the plan's attraction to each state (the logarithm of its desirability) is used. So errors in the other
    matrix's rows have no direct effect; errors of the value function remain. The plan is a `Solution`, a matrix of the
    default's shape, or an object with a `matrix` such as a `Release`; a matrix is solved for the standard policy first.

    Examples
    --------
    >>> import numpy as np
    >>> from dp_ensemble_env.scenarios.campus import campus_event
    >>> model = campus_event()
    >>> bool(np.allclose(as_tilt(model.default, model), standard_policy(model), atol=1e-12))
    True
    """
    check_instance(model, EnsembleModel, "model")
    if isinstance(plan_or_matrix, Solution):
        tilt = plan_or_matrix.tilt
        shape = model.default_policy.shape[:-2] + model.default_policy.shape[-1:]
        check_shape(tilt, shape, "the plan's tilt", "one row per step, one column per decision")
        return tilted_policy(model, tilt)
    matrix = getattr(plan_or_matrix, "matrix", plan_or_matrix)
    if matrix is not plan_or_matrix:
        return tilted_policy(model, solve_standard(model.public(plan_or_matrix)).tilt)
    array = check_stochastic(matrix, "plan_or_matrix", square=model.is_plain)
    if array.ndim > model.default.ndim:
        raise ValueError(
            f"plan_or_matrix has shape {array.shape} but the default {model.default.shape}; of a policy pass "
            "the Solution that it is the plan of, or the matrix that it was solved on."
        )
    return tilted_policy(model, solve_standard(model.with_default(array)).tilt)


def check_plain(model: EnsembleModel) -> None:
    """Refuse a model with nature, context or coupling where only the paper's own is meant."""
    check_instance(model, EnsembleModel, "model")
    if not model.is_plain:
        raise ValueError(
            "this is a formula of the paper, for loads that choose their next state; the model has nature, a context "
            "or a coupling, so use solve_policy, or pass the Solution of the plan."
        )


# ------------------------------------------------------------------ on the nonzeros
def desirability_ratio(solution: Solution) -> FloatArray:
    """r[a] = z_{t+1}[a] / sum_nu P[b, nu] z_{t+1}[nu] on the nonzeros, shape ([c,] T, nnz), of a standard solution."""
    # pi = P r, so r = pi / P: no desirability is ever exponentiated.
    with np.errstate(divide="ignore", invalid="ignore"):
        p = solution.kernel.linear if solution.contexts else solution.kernel.linear[0]
        return np.where(p > 0, solution.policy_values / p, 0.0)


def row_sums(kernel: LogKernel, values: FloatArray) -> FloatArray:
    """Sum over each row's entries and repeat the sum on them, shape (…, nnz)."""
    return np.repeat(np.add.reduceat(values, kernel.indptr[:-1], axis=-1), np.diff(kernel.indptr), axis=-1)


def competing(behaviour: FloatArray) -> NDArray[np.int64]:
    """Return the set, counted from 0, that each decision of behaviour (…, n, m) belongs to, shape (m,).

    Decisions compete if some load may take either, at once or by way of others. A tilt that is raised for a whole set
    changes nothing.

    Examples
    --------
    >>> competing(np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    array([0, 0, 1])
    """
    n, m = behaviour.shape[-2:]
    states, decisions = np.nonzero((behaviour > 0).reshape(-1, n, m).any(axis=0))
    joint = coo_array((np.ones(len(states)), (states, n + decisions)), shape=(n + m, n + m))
    _, labels = connected_components(joint, directed=False)
    return np.unique(labels[n:], return_inverse=True)[1].reshape(m).astype(np.int64)


def centred(tilts: FloatArray, behaviour: FloatArray, taken: Any = True) -> FloatArray:
    """Return tilts (…, m) shifted so that the middle of each set of `competing` decisions is zero.

    Decisions that are not `taken` do not count for the middle; a set without any stays as it is.
    """
    out = np.array(tilts, dtype=float)
    labels, counted = competing(behaviour), np.broadcast_to(taken, out.shape)
    for group in range(labels.max() + 1):
        inside = counted & (labels == group)
        top = np.where(inside, tilts, -np.inf).max(axis=-1, keepdims=True)
        low = np.where(inside, tilts, np.inf).min(axis=-1, keepdims=True)
        middle = (np.where(np.isfinite(top), top, 0.0) + np.where(np.isfinite(low), low, 0.0)) / 2.0
        out -= np.where(labels == group, middle, 0.0)
    return out
