r"""Linearly-solvable Markov decision processes, in logarithms.

The controller chooses, at every time :math:`t` and state :math:`b`, the distribution of the next state. It earns the
utility of the state it reaches and pays :math:`\gamma` dollars per nat of Kullback-Leibler divergence from the default
dynamics. With the desirability :math:`z_t = \exp(-\varphi_t/\gamma)` the Bellman equation is linear in :math:`z`
(Theorem 1):

.. math::

    \log z_T[b] &= U_T[b]/\gamma \\
    \log g_t[b] &= \operatorname{logsumexp}_a(\log K[b,a] + \log z_{t+1}[a]) \\
    \pi_t[b,a]  &= \exp(\log K[b,a] + \log z_{t+1}[a] - \log g_t[b]) \\
    \log z_t[b] &= U_t[b]/\gamma + \log g_t[b]

The kernel :math:`K` is the default matrix for the standard policy, and :math:`\exp E[\log \tilde P]` for the
noise-aware ones (Theorem 3); its rows need not sum to one. ``kernel[b, a]`` goes *from* state `b` *to* state `a`, and
``utility[t, b]`` is what state `b` is worth at time `t`, ``t = 0 … T``.

Numerics. :math:`z` itself underflows within a few steps when :math:`U/\gamma` is about -100, so every row has its own
log-sum-exp. The running sum of :math:`U/\gamma` is carried apart from the differences between states: the policy
depends on the differences alone and keeps its twelve digits however long the horizon is. Only the nonzeros of the
kernel are visited.

**Nature and context.** With ``nature`` a column of the kernel is a *decision* :math:`a`, and :math:`N_t[a, s']` says
where it leads, at no cost. A ``context`` :math:`w`, common to all loads, moves by itself, :math:`W_t[w, w']`, and the
controller sees it:

.. math::

    \ell_t[w,a] &= \sum_{w'} W_t[w,w'] \sum_{s'} N_t[w,a,s']\,\log z_{t+1}[w',s'] \\
    \log z_t[w,s] &= U_t[w,s]/\gamma + \operatorname{logsumexp}_a(\log K_t[w,s,a] + \ell_t[w,a]) \\
    \pi_t[w,s,a] &\propto K_t[w,s,a]\,\exp \ell_t[w,a]

:math:`\ell` is a mean of logarithms, not the logarithm of a mean. Arrays are then ``kernel[t, w, s, a]``,
``nature[t, w, a, s']``, ``context[t, w, w']`` and ``utility[t, w, s]``; a leading axis that makes no difference may be
left out from the left, or have length one.

References
----------
E. Todorov, "Efficient computation of optimal actions", PNAS 106(28), 2009.
A. Hassan, D. Deka, Y. Dvorkin, "Privacy-Aware Load Ensemble Control: A Linearly-Solvable MDP Approach".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.control import loops
from dp_ensemble_env.control.kernel import LogKernel, Solution, contexts_first
from dp_ensemble_env.tools.validation import (
    LARGEST_PENALTY,
    as_float_array,
    as_numeric_array,
    as_utility,
    check_penalty_scale,
    check_positive,
    check_shape,
    check_stochastic,
)

__all__ = ["LogKernel", "Solution", "evaluate_policy", "log_probabilities", "occupancy", "solve"]

FloatArray = NDArray[np.float64]


def solve(
    log_kernel: ArrayLike | LogKernel,
    utility: ArrayLike,
    discomfort_penalty: float,
    *,
    nature: ArrayLike | LogKernel | None = None,
    context: ArrayLike | None = None,
) -> Solution:
    """Solve the backward recursion of Theorem 1, or the one with nature and context.

    Parameters
    ----------
    log_kernel : array_like or LogKernel
        Logarithms of the kernel, ``-inf`` where it is zero, of shape (n, n) or (T, n, n). A `LogKernel` avoids
        the search for nonzeros; use it when `n` is in the thousands.
    utility : array_like of shape (T + 1, n)
        Dollars.
    discomfort_penalty : float
        Dollars per nat.
    nature : array_like of shape (m, n), (T, m, n) or (T or 1, c or 1, m, n), optional
        Where each decision leads, row-stochastic. Without it a decision is the next state.
    context : array_like of shape (c, c) or (T, c, c), optional
        Transitions of the context. With it `utility` may have shape (T + 1, c, n) and `log_kernel`
        (T or 1, c or 1, n, m).

    Examples
    --------
    Two states, one step: the better state is worth log 2 nats more.

    >>> import numpy as np
    >>> half = np.log([[0.5, 0.5], [0.5, 0.5]])
    >>> solve(half, [[0, 0], [np.log(2.0), 0]], 1.0).policy.round(4)
    array([[[0.6667, 0.3333],
            [0.6667, 0.3333]]])
    """
    if nature is not None or context is not None:
        return _solve_general(log_kernel, utility, discomfort_penalty, nature, context)
    kernel = log_kernel if isinstance(log_kernel, LogKernel) else LogKernel.from_dense(log_kernel)
    values, penalty = _utility(utility, kernel.n_states)[:, 0], check_positive(discomfort_penalty, "discomfort_penalty")
    horizon = len(values) - 1
    _check_axes("log_kernel", kernel.log_values.shape[:2], 1, horizon)
    log_desirability = np.empty((horizon + 1, kernel.n_states))
    policy = np.empty((horizon, len(kernel.indices)))
    logs = kernel.log_values[0]
    reach = loops.backward(kernel.indptr, kernel.indices, logs, values, penalty, log_desirability, policy)
    if not reach > 2 / LARGEST_PENALTY:  # the recursion reads every utility anyway; only what looks odd is read again
        if np.isnan(reach):
            _refuse_overflow(utility, penalty)
        check_penalty_scale(values, penalty)
    return Solution(log_desirability, kernel, policy, penalty)


def evaluate_policy(
    policy: ArrayLike,
    default: ArrayLike,
    utility: ArrayLike,
    discomfort_penalty: float,
    *,
    nature: ArrayLike | LogKernel | None = None,
    context: ArrayLike | None = None,
) -> FloatArray:
    r"""Compute the exact cost-to-go of a policy under the true default dynamics.

    .. math:: \varphi_t[b] = -U_t[b] + \gamma\,\mathrm{KL}(Q_t[b] \| P[b]) + \sum_a Q_t[b,a]\,\varphi_{t+1}[a]

    With nature and context the last factor is an expectation over both.

    `policy` has shape (T, n, n), with nature (T, n, m), with contexts (T, c, n, m). `default` is the behaviour itself,
    not its logarithm; the other arguments are as in `solve`. The cost, in dollars, has shape (T + 1, n), with contexts
    (T + 1, c, n); the return from state `b` is ``-cost[0, b] - utility[0, b]``.
    """
    if nature is not None or context is not None:
        return _evaluate_general(policy, default, utility, discomfort_penalty, nature, context)
    controlled, reference = check_stochastic(policy, "policy"), check_stochastic(default, "default")
    if controlled.ndim != 3:
        raise ValueError(f"policy must have shape (T, n, n), got {controlled.shape}.")
    horizon, n, _ = controlled.shape
    penalty = check_positive(discomfort_penalty, "discomfort_penalty")
    values = _utility(as_utility(utility, (2, 3)), n)[:, 0]
    check_penalty_scale(values, penalty)
    _check_times(values, horizon)
    reference = reference[None] if reference.ndim == 2 else reference
    if reference.shape not in ((1, n, n), (horizon, n, n)):
        raise ValueError(
            f"default has shape {np.shape(default)} but the policy {np.shape(policy)}; the states and times must agree."
        )
    cost = np.empty((horizon + 1, n))
    fault = loops.evaluate(controlled, reference, values, penalty, cost)
    if fault[0] >= 0:
        t, b, a = (int(i) for i in fault)
        raise ValueError(
            f"the policy moves from state {b} to state {a} at time {t}, which the default dynamics never do, so its "
            "discomfort is infinite; mask the policy to the support of the default and normalise it."
        )
    return cost


def occupancy(
    policy: ArrayLike,
    initial: ArrayLike,
    *,
    nature: ArrayLike | LogKernel | None = None,
    context: ArrayLike | None = None,
    start: ArrayLike | None = None,
) -> FloatArray:
    """Propagate a distribution over the states forward in time; return shares (T + 1, n).

    With contexts the result is the joint distribution of context and state, (T + 1, c, n), and `start`, (c,), is the
    distribution of the first context. The other arguments are as in `evaluate_policy`.
    """
    first = as_float_array(initial, "initial", 1)
    controlled = check_stochastic(policy, "policy", square=nature is None)
    if nature is not None or context is not None:
        return _follow_general(controlled, first, nature, context, start)
    if controlled.ndim != 3 or controlled.shape[-1] != first.size:
        raise ValueError(f"policy {controlled.shape} and initial {first.shape} do not fit: need (T, n, n) and (n,).")
    rho = np.empty((len(controlled) + 1, first.size))
    rho[0] = first
    for t, step in enumerate(controlled):
        rho[t + 1] = rho[t] @ step
    return rho


def log_probabilities(default: ArrayLike) -> FloatArray:
    """Logarithm of a validated stochastic matrix, ``-inf`` where it is zero."""
    checked = check_stochastic(default, square=False)
    with np.errstate(divide="ignore"):
        return np.log(checked)


# ---------------------------------------------------------------- nature and context
def _world(nature: Any, context: Any, n: int, m: int, horizon: int) -> tuple[loops.World, int]:
    """Return nature and context as the loops take them, and the number of contexts."""
    moves = np.ones((1, 1, 1)) if context is None else check_stochastic(context, "context")
    if moves.ndim not in (2, 3):
        raise ValueError(f"context must have shape (c, c) or (T, c, c), got {moves.shape}.")
    moves = moves.reshape(-1, *moves.shape[-2:])
    if nature is None:
        if n != m:
            raise ValueError(
                f"there are {n} states and {m} decisions, so nature must say where each leads: pass nature of shape "
                f"({m}, {n})."
            )
        nothing = np.zeros(0, np.int64)
        world = loops.World(nothing, nothing, np.zeros((1, 1, 0)), moves)
    else:
        rows = nature if isinstance(nature, LogKernel) else LogKernel.of_contexts(nature, "nature")
        if (rows.n_states, rows.columns) != (m, n):
            raise ValueError(
                f"nature must have shape ({m}, {n}), a row per decision and a column per state, got "
                f"({rows.n_states}, {rows.columns})."
            )
        world = loops.World(rows.indptr, rows.indices, rows.linear, moves)
    contexts = moves.shape[-1]
    _check_axes("nature", world.nature.shape[:2], contexts, horizon)
    _check_axes("context", (contexts, len(moves)), contexts, horizon)
    return world, contexts


def _check_axes(name: str, axes: tuple[int, ...], contexts: int, horizon: int) -> None:
    """Refuse axes (contexts, times) that neither fit the problem nor have length one."""
    if axes[0] not in (1, contexts) or axes[1] not in (1, horizon):
        raise ValueError(
            f"{name} is given for {axes[0]} contexts and {axes[1]} times, the problem has {contexts} contexts and "
            f"{horizon} decisions; give one for each, or one for all."
        )


def _solve_general(log_kernel: Any, utility: Any, discomfort_penalty: Any, nature: Any, context: Any) -> Solution:
    kernel = log_kernel
    if not isinstance(kernel, LogKernel):
        dense = as_numeric_array(log_kernel, "log_kernel", (2, 3, 4))
        kernel = LogKernel.from_blocks(contexts_first(dense, "log_kernel"), "log_kernel")
    penalty = check_positive(discomfort_penalty, "discomfort_penalty")
    n, m, horizon = kernel.n_states, kernel.columns, len(utility) - 1
    world, contexts = _world(nature, context, n, m, horizon)
    values = _utility(utility, n, contexts)
    check_penalty_scale(values, penalty)
    _check_axes("log_kernel", kernel.log_values.shape[:2], contexts, horizon)
    log_z, tilt = np.empty((horizon + 1, contexts, n)), np.empty((horizon, contexts, m))
    rows = loops.Rows(kernel.indptr, kernel.indices, kernel.log_values, kernel.linear, kernel.depth)
    if not loops.backward_with_nature(rows, world, values, penalty, log_z, tilt):
        _refuse_overflow(utility, penalty)
    if context is None:
        return Solution(log_z[:, 0], kernel, None, penalty, tilt[:, 0])
    return Solution(log_z, kernel, None, penalty, tilt, contexts=True)


def _evaluate_general(
    policy: Any, default: Any, utility: Any, discomfort_penalty: Any, nature: Any, context: Any
) -> FloatArray:
    controlled = _by_context(check_stochastic(policy, "policy", square=False), context is not None)
    reference = check_stochastic(default, "default", square=False)
    reference = np.ascontiguousarray(np.swapaxes(contexts_first(reference, "default"), 0, 1))
    horizon, _, n, m = controlled.shape
    penalty = check_positive(discomfort_penalty, "discomfort_penalty")
    world, contexts = _world(nature, context, n, m, horizon)
    values = _utility(as_utility(utility, (2, 3)), n, contexts)
    check_penalty_scale(values, penalty)
    _check_times(values, horizon)
    check_shape(controlled, (horizon, contexts, n, m), "policy", "one matrix per step and context")
    check_shape(reference, (*reference.shape[:2], n, m), "default", "the rows and columns of the policy")
    _check_axes("default", reference.shape[1::-1], contexts, horizon)
    cost = np.empty((horizon + 1, contexts, n))
    fault = loops.evaluate_with_nature(controlled, reference, world, values, penalty, cost)
    if fault[0] >= 0:
        t, w, s, a = (int(i) for i in fault)
        where = f" in context {w}" if context is not None else ""
        raise ValueError(
            f"the policy takes decision {a} in state {s} at time {t}{where}, which the default behaviour never does, "
            "so its discomfort is infinite; mask the policy to the support of the default and normalise it."
        )
    return cost if context is not None else cost[:, 0]


def _follow_general(controlled: FloatArray, first: FloatArray, nature: Any, context: Any, start: Any) -> FloatArray:
    policy = _by_context(controlled, context is not None)
    horizon, _, n, m = policy.shape
    world, contexts = _world(nature, context, n, m, horizon)
    check_shape(first, (n,), "initial", "one share per state")
    weights = np.ones(1) if context is None else as_float_array([] if start is None else start, "start", 1)
    check_shape(weights, (contexts,), "start", "one probability per context")
    check_shape(policy, (horizon, contexts, n, m), "policy", "one matrix per step and context")
    shares = np.zeros((horizon + 1, contexts, n))
    shares[0] = weights[:, None] * first
    loops.forward_with_nature(policy, world, shares)
    return shares if context is not None else shares[:, 0]


def _by_context(array: FloatArray, contexts: bool) -> FloatArray:
    """View a policy (T, n, m), or (T, c, n, m) with contexts, as (T, c, n, m)."""
    if array.ndim != 3 + contexts:
        raise ValueError(f"policy must have shape {'(T, c, n, m)' if contexts else '(T, n, m)'}, got {array.shape}.")
    return np.ascontiguousarray(array if contexts else array[:, None])


# ---------------------------------------------------------------- arguments
def _utility(utility: Any, n: int, contexts: int = 1) -> FloatArray:
    """View utilities (T + 1, n) or (T + 1, c, n) as (T + 1, c or 1, n)."""
    values = as_numeric_array(utility, "utility", (2, 3))
    values = values[:, None, :] if values.ndim == 2 else values
    if values.shape[2] != n or values.shape[1] not in (1, contexts) or len(values) < 2:
        shape = f"(T + 1, {n})" + (f" or (T + 1, {contexts}, {n})" if contexts > 1 else "")
        raise ValueError(
            f"utility must have shape {shape}, a row per time 0 … T (T >= 1) and a column per state, got "
            f"{np.shape(utility)}; transpose it or rebuild it for {n} states."
        )
    return np.ascontiguousarray(values)


def _check_times(utility: FloatArray, horizon: int) -> None:
    if len(utility) != horizon + 1:
        raise ValueError(f"a policy of {horizon} steps needs {horizon + 1} utilities, got {len(utility)}.")


def _refuse_overflow(utility: Any, penalty: float) -> None:
    as_utility(utility, (2, 3))  # names the entry that is not finite, if that is the reason
    raise ValueError(f"utility / discomfort_penalty overflows (the penalty is {penalty:g}); use a larger penalty.")
