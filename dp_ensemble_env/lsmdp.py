r"""Linearly-solvable Markov decision processes, in logarithms.

The controller chooses, at every time :math:`t` and state :math:`b`, the
distribution of the next state. It earns the utility of the state it reaches
and pays :math:`\gamma` dollars per nat of Kullback-Leibler divergence from the
default dynamics. With the desirability
:math:`z_t = \exp(-\varphi_t/\gamma)` the Bellman equation is linear in
:math:`z` (Theorem 1):

.. math::

    \log z_T[b] &= U_T[b]/\gamma \\
    \log g_t[b] &= \operatorname{logsumexp}_a(\log K[b,a] + \log z_{t+1}[a]) \\
    \pi_t[b,a]  &= \exp(\log K[b,a] + \log z_{t+1}[a] - \log g_t[b]) \\
    \log z_t[b] &= U_t[b]/\gamma + \log g_t[b]

The kernel :math:`K` is the default matrix for the standard policy, and
:math:`\exp E[\log \tilde P]` for the noise-aware ones (Theorem 3); its rows
need not sum to one, the policy is normalised anyway.

Indices: ``kernel[b, a]`` goes *from* state `b` *to* state `a`, rows are present
states. ``utility[t, b]`` is what state `b` is worth at time `t`, ``t = 0 … T``.
A batch axis, where there is one, comes first; a kernel of three dimensions is
always one that changes with time.

Numerics. :math:`z` itself underflows within a few steps when :math:`U/\gamma`
is about -100, and a single shift for all states loses the states far from the
maximum, so every row has its own log-sum-exp. The running sum of
:math:`U/\gamma` is carried apart from the differences between states: the
policy depends on the differences alone and keeps its twelve digits however
long the horizon is. Only the nonzeros of the kernel are visited.

References
----------
E. Todorov, "Efficient computation of optimal actions", PNAS 106(28), 2009.
A. Hassan, D. Deka, Y. Dvorkin, "Privacy-Aware Load Ensemble Control: A
Linearly-Solvable MDP Approach".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env._recursion import EMPTY_ROW, NOT_A_LOG, PROBABILITIES, backward, compress, evaluate, scatter
from dp_ensemble_env._validation import (
    as_float_array,
    as_numeric_array,
    check_positive,
    check_stochastic,
)

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LogKernel:
    """Logarithms of a nonnegative kernel on its nonzero entries, row by row.

    Attributes
    ----------
    indptr, indices : ndarray of int
        Row `b` owns the entries ``indptr[b]:indptr[b + 1]``; ``indices`` holds
        the state each entry leads to (the layout of a SciPy CSR matrix).
    log_values : ndarray of shape (B, T, nnz)
        Either leading axis may have length one: the same kernel for every
        member of the batch, or for every time. ``-inf`` marks an entry that is
        zero in this member or at this time but not in all.
    """

    indptr: NDArray[np.int64] = field(repr=False)
    indices: NDArray[np.int64] = field(repr=False)
    log_values: FloatArray = field(repr=False)

    def __repr__(self) -> str:
        batch, times, entries = self.log_values.shape
        many = (f", batch of {batch:,}" if batch > 1 else "") + (f", {times:,} times" if times > 1 else "")
        return f"LogKernel({self.n_states:,} states, {entries:,} nonzeros{many})"

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.indptr) - 1

    @classmethod
    def from_dense(cls, log_kernel: ArrayLike, name: str = "log_kernel") -> LogKernel:
        """Collect the finite entries of a dense (n, n), (T, n, n) or (B, T, n, n) array of logarithms."""
        return cls._from_dense(_batch_time(as_numeric_array(log_kernel, name, (2, 3, 4)), name), name)

    @classmethod
    def from_probabilities(cls, probabilities: ArrayLike, name: str = "default") -> LogKernel:
        """Take the logarithm of a row-stochastic matrix (validated) on its nonzeros."""
        checked = _batch_time(check_stochastic(probabilities, name), name)
        with np.errstate(divide="ignore"):
            return cls._from_dense(np.log(checked), name)

    @classmethod
    def _from_dense(cls, dense: FloatArray, name: str) -> LogKernel:
        indptr, indices, values, fault, b, a = compress(dense)
        if fault == NOT_A_LOG:
            raise ValueError(f"{name} has a NaN or +inf at {(b, a)}; use -inf for a transition that cannot happen.")
        if fault == EMPTY_ROW:
            raise ValueError(f"row {b} of {name} has no possible transition; give state {b} at least one successor.")
        if fault == PROBABILITIES:
            raise ValueError(
                f"{name} looks like probabilities (nonnegative rows that sum to one), not logarithms; "
                "pass dp_ensemble_env.lsmdp.log_probabilities(default)."
            )
        return cls(indptr, indices, values)

    @classmethod
    def from_sparse(cls, probabilities: Any) -> LogKernel:
        """Take a SciPy sparse matrix of probabilities or kernel weights (not of logarithms)."""
        matrix = probabilities.tocsr().copy()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"the sparse kernel must be square, got shape {matrix.shape}.")
        if len(matrix.data) and not (matrix.data > 0).all():
            raise ValueError("the sparse kernel holds negative or NaN weights; pass probabilities, not logarithms.")
        if (empty := np.flatnonzero(np.diff(matrix.indptr) == 0)).size:
            raise ValueError(f"row {empty[0]} of the sparse kernel has no possible transition; give it a successor.")
        log_values = np.log(matrix.data.astype(np.float64))[None, None, :]
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), log_values)

    def dense(self, values: FloatArray) -> FloatArray:
        """Spread values on the entries, shape (…, nnz), over matrices of shape (…, n, n) that are zero elsewhere."""
        n = self.n_states
        flat = np.ascontiguousarray(values).reshape(-1, values.shape[-1])
        out = np.zeros((len(flat), n, n))
        scatter(self.indptr, self.indices, flat, out)
        return out.reshape(*values.shape[:-1], n, n)


@dataclass(frozen=True, eq=False)
class Solution:
    """The optimal control of one problem, or of a batch of them.

    Attributes
    ----------
    log_desirability : ndarray of shape ([B,] T + 1, n)
    kernel : LogKernel
        The kernel it was solved for.
    policy_values : ndarray of shape ([B,] T, nnz)
        The policy on the kernel's nonzeros.
    discomfort_penalty : float or ndarray of shape (B,)
    """

    log_desirability: FloatArray = field(repr=False)
    kernel: LogKernel = field(repr=False)
    policy_values: FloatArray = field(repr=False)
    discomfort_penalty: float | FloatArray

    def __repr__(self) -> str:
        *batch, times, n = self.log_desirability.shape
        many = f", batch of {batch[0]:,}" if batch else ""
        return f"Solution({n:,} states, {times - 1:,} step{'' if times == 2 else 's'}{many})"

    @cached_property
    def policy(self) -> FloatArray:
        """Controlled dynamics, shape ([B,] T, n, n)."""
        return self.kernel.dense(self.policy_values)

    @property
    def cost_to_go(self) -> FloatArray:
        """Value function as a cost in dollars, shape ([B,] T + 1, n)."""
        penalty = np.asarray(self.discomfort_penalty)
        return -(penalty[..., None, None] if penalty.ndim else penalty) * self.log_desirability


def solve(
    log_kernel: ArrayLike | LogKernel,
    utility: ArrayLike,
    discomfort_penalty: float | ArrayLike,
) -> Solution:
    """Solve the backward recursion of Theorem 1.

    Parameters
    ----------
    log_kernel : array_like or LogKernel
        Logarithms of the kernel, ``-inf`` where it is zero, of shape (n, n),
        (T, n, n) when it changes with time, or (B, T, n, n) for a batch, where
        T may be 1. A `LogKernel` spares the search for nonzeros; use it when
        `n` is in the thousands.
    utility : array_like of shape (T + 1, n) or (B, T + 1, n)
        Dollars.
    discomfort_penalty : float or array_like of shape (B,)
        Dollars per nat.

    Returns
    -------
    Solution
        With a leading batch axis if an argument had one.

    Examples
    --------
    Two states, one step: the better state is worth log 2 nats more.

    >>> import numpy as np
    >>> half = np.log([[0.5, 0.5], [0.5, 0.5]])
    >>> solve(half, [[0, 0], [np.log(2.0), 0]], 1.0).policy.round(4)
    array([[[0.6667, 0.3333],
            [0.6667, 0.3333]]])
    """
    kernel = log_kernel if isinstance(log_kernel, LogKernel) else LogKernel.from_dense(log_kernel)
    values = _check_utility(utility, kernel.n_states)
    penalty = _check_penalty(discomfort_penalty)
    kernel_batch, kernel_times, _ = kernel.log_values.shape
    scalar = isinstance(discomfort_penalty, float) or np.ndim(discomfort_penalty) == 0
    batched = np.ndim(utility) == 3 or kernel_batch > 1 or not scalar
    horizon = values.shape[1] - 1
    if kernel_times not in (1, horizon):
        raise ValueError(
            f"log_kernel changes over {kernel_times} steps but utility has {horizon + 1} times; a horizon of T steps "
            "needs T kernels (or one) and T + 1 utilities."
        )
    batch = 1
    if batched:
        batch = _common_batch(log_kernel=kernel_batch, utility=len(values), discomfort_penalty=penalty.size)
    log_desirability = np.empty((batch, horizon + 1, kernel.n_states))
    policy_values = np.empty((batch, horizon, len(kernel.indices)))
    finite = backward(
        kernel.indptr, kernel.indices, kernel.log_values, values, penalty, log_desirability, policy_values
    )
    if not finite:
        as_float_array(utility, "utility")  # names the entry that is not finite, if that is the reason
        raise ValueError(
            f"utility / discomfort_penalty overflows (the penalty is {penalty.min():g}); use a larger penalty."
        )
    if batched:
        return Solution(log_desirability, kernel, policy_values, penalty if penalty.size > 1 else float(penalty[0]))
    return Solution(log_desirability[0], kernel, policy_values[0], float(penalty[0]))


def evaluate_policy(
    policy: ArrayLike,
    default: ArrayLike,
    utility: ArrayLike,
    discomfort_penalty: float | ArrayLike,
) -> FloatArray:
    r"""Compute the exact cost-to-go of any policy under the true default dynamics.

    .. math:: \varphi_t[b] = -U_t[b] + \gamma\,\mathrm{KL}(Q_t[b] \| P[b]) + \sum_a Q_t[b,a]\,\varphi_{t+1}[a]

    Parameters
    ----------
    policy : array_like of shape (T, n, n) or (B, T, n, n)
        Row-stochastic.
    default : array_like of shape (n, n), (T, n, n) or (B, 1 or T, n, n)
        Row-stochastic.
    utility : array_like of shape (T + 1, n) or (B, T + 1, n)
    discomfort_penalty : float or array_like of shape (B,)

    Returns
    -------
    ndarray of shape ([B,] T + 1, n)
        Dollars; the return from state `b` is ``-cost[0, b] - utility[0, b]``.
    """
    controlled = check_stochastic(policy, "policy")
    if controlled.ndim not in (3, 4):
        raise ValueError(f"policy must have shape (T, n, n) or (B, T, n, n), got {controlled.shape}.")
    batched = controlled.ndim == 4
    controlled = _batch_time(controlled, "policy")
    reference = check_stochastic(default, "default")
    batched |= reference.ndim == 4
    reference = _batch_time(reference, "default")
    n, horizon = controlled.shape[-1], controlled.shape[1]
    values = _check_utility(as_float_array(utility, "utility"), n)
    batched |= np.ndim(utility) == 3 or np.ndim(discomfort_penalty) > 0
    penalty = _check_penalty(discomfort_penalty)
    if values.shape[1] != horizon + 1:
        raise ValueError(f"a policy of {horizon} steps needs {horizon + 1} utilities, got {values.shape[1]}.")
    if reference.shape[-1] != n or reference.shape[1] not in (1, horizon):
        raise ValueError(
            f"default has shape {np.shape(default)} but the policy {np.shape(policy)}; the states and times must agree."
        )
    batch = _common_batch(
        policy=len(controlled), default=len(reference), utility=len(values), discomfort_penalty=penalty.size
    )
    cost = np.empty((batch, horizon + 1, n))
    fault = evaluate(controlled, reference, values, penalty, cost)
    if fault[0] >= 0:
        t, b, a = (int(i) for i in fault[1:])
        raise ValueError(
            f"the policy moves from state {b} to state {a} at time {t}, which the default dynamics never do, so its "
            "discomfort is infinite; mask the policy to the support of the default and normalise it."
        )
    return cost if batched else cost[0]


def occupancy(policy: ArrayLike, initial: ArrayLike) -> FloatArray:
    """Follow a distribution over the states forward in time.

    Parameters
    ----------
    policy : array_like of shape (T, n, n)
    initial : array_like of shape (n,)

    Returns
    -------
    ndarray of shape (T + 1, n)
    """
    controlled = check_stochastic(policy, "policy")
    start = as_float_array(initial, "initial", 1)
    if controlled.ndim != 3 or controlled.shape[-1] != start.size:
        raise ValueError(f"policy {controlled.shape} and initial {start.shape} do not fit: need (T, n, n) and (n,).")
    rho = np.empty((len(controlled) + 1, start.size))
    rho[0] = start
    for t, step in enumerate(controlled):
        rho[t + 1] = rho[t] @ step
    return rho


def log_probabilities(default: ArrayLike) -> FloatArray:
    """Logarithm of a validated stochastic matrix, ``-inf`` where it is zero."""
    checked = check_stochastic(default)
    with np.errstate(divide="ignore"):
        return np.log(checked)


# ---------------------------------------------------------------- arguments
def _batch_time(array: FloatArray, name: str) -> FloatArray:
    """View (n, n), (T, n, n) or (B, T, n, n) as (B, T, n, n) with axes of length one."""
    if array.shape[-1] != array.shape[-2] or 0 in array.shape:
        raise ValueError(f"{name} must be square in its last two axes and not empty, got shape {array.shape}.")
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def _check_utility(utility: ArrayLike, n_states: int) -> FloatArray:
    """View utilities as (B, T + 1, n)."""
    values = as_numeric_array(utility, "utility", (2, 3))
    if values.shape[-1] != n_states or values.shape[-2] < 2 or values.shape[0] == 0:
        raise ValueError(
            f"utility must have shape (T + 1, {n_states}), a row per time 0 … T (T >= 1) and a column per state, "
            f"got {values.shape}; transpose it or rebuild it for {n_states} states."
        )
    return values if values.ndim == 3 else values[None]


def _check_penalty(discomfort_penalty: float | ArrayLike) -> FloatArray:
    if isinstance(discomfort_penalty, float) or np.ndim(discomfort_penalty) == 0:
        return np.array([check_positive(discomfort_penalty, "discomfort_penalty")])
    penalty = as_float_array(discomfort_penalty, "discomfort_penalty", 1)
    if not penalty.size:
        raise ValueError("discomfort_penalty is empty; pass one number, or one for each member of the batch.")
    for value in penalty:
        check_positive(value, "discomfort_penalty")
    return penalty


def _common_batch(**sizes: int) -> int:
    largest = max(sizes.values())
    if wrong := {name: size for name, size in sizes.items() if size not in (1, largest)}:
        raise ValueError(f"the batch sizes disagree: {wrong} against {largest}; use one length, or 1 where shared.")
    return largest
