r"""Exact expected returns: of a schedule of tilts with its gradient, of a policy, and along given contexts.

A tilt :math:`\tau_t[w, a]` makes the policy :math:`\pi[w, s, a] = P[w, s, a]\,e^{\tau[w, a]}/Z[w, s]`. With
:math:`q[w, a]` the expected utility and return from the next time on and :math:`g = q - \gamma\tau`, the return from
`(t, w, s)` is

.. math:: v_t[w, s] = \sum_a \pi[w, s, a]\,g[w, a] + \gamma\log Z[w, s]

(the divergence of the policy is :math:`\sum_a\pi\tau - \log Z`). Its derivative by :math:`\tau[w, a]` is
:math:`\pi[w, s, a]\,(g[w, a] - \sum_b\pi[w, s, b]\,g[w, b])`, and the gradient of the whole is the sum of these over
the joint distribution of context and state at `t`. One pass backward gives the value, one more forward the gradient,
both over the nonzeros only. A tilt may also depend on the state, :math:`\tau_t[w, s, a]`: then every policy is a tilt,
:math:`\tau = \log(\pi/P)`.

A coupling charges a convex cost of the mean power (MATH 11), given the context if there is one (MATH 16). Around given
tilts it acts as a price at its own slope.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr

from dp_ensemble_env.control.kernel import world
from dp_ensemble_env.control.lsmdp import evaluate_policy, occupancy
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.model import EnsembleModel, FloatArray
from dp_ensemble_env.tools.compile import njit

Ints = NDArray[np.int64]

#: Tilts further than this below the largest that competes with them count as that far: e^-600 is still a number.
DEPTH = 600.0


# ------------------------------------------------------------------ policies
def state_returns(model: EnsembleModel, policy: Any) -> FloatArray:
    """Return the expected return of a policy (T, [c,] n, m) from every start, ([c,] n), without a coupling's cost."""
    cost = evaluate_policy(policy, model.default, model.utility, model.discomfort_penalty, **world(model))
    return np.asarray(-cost[0] - model.utility[0])


def policy_return(model: EnsembleModel, policy: Any) -> float:
    """Return the expected return of a policy (T, [c,] n, m) from the model's own start, in dollars per load."""
    earned = float((model.start_weights * state_returns(model, policy)).sum())
    return earned if model.coupling is None else earned - coupling_cost(model, shares(model, policy))


def shares(model: EnsembleModel, policy: Any) -> FloatArray:
    """Follow the loads from the model's start: (T + 1, n), with a context the joint distribution (T + 1, c, n)."""
    start = {} if model.context is None else {"start": model.context.start}
    return occupancy(policy, model.initial, **world(model), **start)


def mean_power(model: EnsembleModel, rho: FloatArray) -> FloatArray:
    """Return the mean power per load (T + 1,) of shares (T + 1, [c,] n), in kW."""
    return np.asarray(rho.reshape(model.horizon + 1, -1, model.n_states).sum(axis=1) @ model.power_kw)


def power_by_context(model: EnsembleModel, rho: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the chance of each context (T + 1, c) and the mean power per load given it, zero where it cannot be."""
    joint = rho.reshape(model.horizon + 1, -1, model.n_states)
    chance = joint.sum(axis=-1)
    return chance, np.divide(joint @ model.power_kw, chance, out=np.zeros_like(chance), where=chance > 0)


def coupling_cost(model: EnsembleModel, rho: FloatArray) -> float:
    """Return the expected cost of a coupling for shares (T + 1, [c,] n) from the model's start."""
    assert model.coupling is not None
    chance, power = power_by_context(model, rho)
    return float((chance * model.coupling.cost(np.arange(model.horizon + 1)[:, None], power))[1:].sum())


def path_returns(
    model: EnsembleModel, policy: FloatArray, contexts: Ints, start: FloatArray, follow: FloatArray | None = None
) -> FloatArray:
    """Return the expected return of a policy along contexts (episodes, T + 1) from shares (episodes, n), by episode.

    `follow`, (episodes, T + 1, n), is filled with the expected shares at all times.
    """
    tables = model.tables()
    policy = policy.reshape(tables.behaviour.shape)
    discomfort = model.discomfort_penalty * rel_entr(policy, tables.behaviour).sum(axis=-1)
    returns, rho = np.zeros(len(start)), start
    for t in range(model.horizon + 1):
        if t > 0:
            after = np.empty_like(rho)
            for w in np.unique(contexts[:, t - 1]):
                here = contexts[:, t - 1] == w
                returns[here] -= rho[here] @ discomfort[t - 1, w]
                after[here] = rho[here] @ policy[t - 1, w] @ tables.nature[t - 1, w]
            rho = after
            returns += (rho * tables.utility[t, contexts[:, t]]).sum(axis=1)
            if model.coupling is not None:
                returns -= model.coupling.cost(t, rho @ model.power_kw)
        if follow is not None:
            follow[:, t] = rho
    return returns


# ------------------------------------------------------------------ schedules of tilts
def optimal_tilts(model: EnsembleModel) -> FloatArray:
    """Return the optimal tilts (T, c, m) of a model."""
    tilts = solve_standard(model).tilt
    return tilts if tilts.ndim == 3 else tilts[:, None, :]


def myopic_tilts(model: EnsembleModel) -> FloatArray:
    """Return the tilts (T, c, m) that respond to the expected utility of the next state alone."""
    _, nature, context, utility = model.tables()
    ahead = np.einsum("twx,txs->tws", context, utility[1:])
    return np.asarray(np.einsum("twas,tws->twa", nature, ahead) / model.discomfort_penalty)


class Blocks(NamedTuple):
    """Matrices of all times and contexts, each different one once, as rows of nonzeros; `which` has shape (T, c)."""

    which: Ints
    indptr: Ints
    indices: Ints
    values: FloatArray


def compress(table: FloatArray) -> Blocks:
    """Gather a table (T, c, rows, columns)."""
    horizon, contexts, rows, columns = table.shape
    known: dict[bytes, int] = {}
    kept: list[FloatArray] = []
    which = np.empty(horizon * contexts, np.int64)
    for i, matrix in enumerate(table.reshape(-1, rows, columns)):
        which[i] = known.setdefault(matrix.tobytes(), len(kept))
        if which[i] == len(kept):
            kept.append(matrix)
    stacked = np.stack(kept)
    block, row, column = np.nonzero(stacked)
    ends = np.concatenate([[0], np.cumsum(np.bincount(block * rows + row, minlength=len(kept) * rows))])
    indptr = np.stack([ends[b * rows : (b + 1) * rows + 1] for b in range(len(kept))]).astype(np.int64)
    return Blocks(which.reshape(horizon, contexts), indptr, column.astype(np.int64), stacked[block, row, column])


class Problem(NamedTuple):
    """What tilts are played on: entry `i` of the behaviour is moved by the tilt number ``slot[i]``."""

    behaviour: Blocks
    slot: Ints
    nature: Blocks
    context: FloatArray
    penalty: float


class Values(NamedTuple):
    """Found on the way back: v (T+1, c, n), z and the mean of g (T, c, n), and q (T, c, m)."""

    v: FloatArray
    z: FloatArray
    mean: FloatArray
    q: FloatArray


@njit(cache=True, nogil=True, error_model="numpy")
def _backward(tau: FloatArray, weight: FloatArray, problem: Problem, utility: FloatArray, values: Values) -> None:
    """Fill the values of tilts, whose exponentials are `weight`."""
    p, slot, nature, context, penalty = problem
    v, z, mean, q = values
    horizon, contexts, m = q.shape
    n = v.shape[2]
    ahead = np.empty(n)
    v[horizon] = 0.0
    for t in range(horizon - 1, -1, -1):
        for w in range(contexts):
            ahead[:] = 0.0
            for x in range(contexts):
                share = context[t, w, x]
                if share > 0.0:
                    for s in range(n):
                        ahead[s] += share * (utility[t + 1, x, s] + v[t + 1, x, s])
            block = nature.which[t, w]
            for a in range(m):
                expected = 0.0
                for i in range(nature.indptr[block, a], nature.indptr[block, a + 1]):
                    expected += nature.values[i] * ahead[nature.indices[i]]
                q[t, w, a] = expected
            block = p.which[t, w]
            for s in range(n):
                total, gain = 0.0, 0.0
                for i in range(p.indptr[block, s], p.indptr[block, s + 1]):
                    k = slot[i]
                    x = p.values[i] * weight[t, w, k]
                    total += x
                    gain += x * (q[t, w, p.indices[i]] - penalty * tau[t, w, k])
                z[t, w, s] = total
                mean[t, w, s] = gain / total
                v[t, w, s] = mean[t, w, s] + penalty * np.log(total)


@njit(cache=True, nogil=True, error_model="numpy")
def _forward(
    tau: FloatArray, weight: FloatArray, problem: Problem, values: Values, rho: FloatArray, gradient: FloatArray
) -> None:
    """Continue the joint distribution rho (T+1, c, n) from rho[0]; add the gradient by tau to zeros."""
    p, slot, nature, context, penalty = problem
    _, z, mean, q = values
    horizon, contexts, m = q.shape
    n = rho.shape[2]
    chosen, flow = np.empty(m), np.empty(n)
    rho[1:] = 0.0
    for t in range(horizon):
        for w in range(contexts):
            chosen[:] = 0.0
            flow[:] = 0.0
            block = p.which[t, w]
            for s in range(n):
                if rho[t, w, s] > 0.0:
                    share = rho[t, w, s] / z[t, w, s]
                    for i in range(p.indptr[block, s], p.indptr[block, s + 1]):
                        a, k = p.indices[i], slot[i]
                        mass = share * p.values[i] * weight[t, w, k]
                        chosen[a] += mass
                        gradient[t, w, k] += mass * (q[t, w, a] - penalty * tau[t, w, k] - mean[t, w, s])
            block = nature.which[t, w]
            for a in range(m):
                for i in range(nature.indptr[block, a], nature.indptr[block, a + 1]):
                    flow[nature.indices[i]] += chosen[a] * nature.values[i]
            for x in range(contexts):
                share = context[t, w, x]
                if share > 0.0:
                    for s in range(n):
                        rho[t + 1, x, s] += share * flow[s]


class ExactReturn:
    """The expected return of tilts in dollars per load, and its gradient.

    `initial` holds the shares of the loads at the start, by default the model's. Tilts have `shape` (T, c, m). With
    `by_state` they also depend on the state, with shape (T, c, number of `entries`): pairs of a state and a decision
    that is possible there at some time, row by row.
    """

    def __init__(self, model: EnsembleModel, initial: ArrayLike | None = None, *, by_state: bool = False) -> None:
        behaviour, nature, context, utility = model.tables()
        horizon, contexts, n, m = behaviour.shape
        self._model, self._by_state, self._utility, p = model, by_state, utility, compress(behaviour)
        possible = behaviour > 0
        self.entries = state, decision = np.nonzero(possible.any(axis=(0, 1)))
        self._first = np.flatnonzero(np.diff(state, prepend=-1))  # where the rows begin
        self._possible = possible[:, :, state, decision]
        slot = p.indices
        if by_state:
            number = np.zeros((n, m), np.int64)
            number[state, decision] = np.arange(len(state))
            rows = np.repeat(np.tile(np.arange(n), len(p.indptr)), np.diff(p.indptr).ravel())
            slot = number[rows, p.indices]
        self._problem = Problem(p, slot, compress(nature), context, model.discomfort_penalty)
        self.shape = (horizon, contexts, len(state) if by_state else m)
        first = np.ones(1) if model.context is None else model.context.start
        self.start = np.outer(first, np.asarray(model.initial if initial is None else initial, float))
        v, self._rho = np.empty((2, horizon + 1, contexts, n))
        z, mean = np.empty((2, horizon, contexts, n))
        self._values = Values(v, z, mean, np.empty((horizon, contexts, m)))

    def __call__(self, tilts: ArrayLike) -> float:
        """Return the expected return of tilts that broadcast to `shape`."""
        if self._model.coupling is not None:
            return self._evaluate(tilts)[0]
        return self._value(*self._scaled(tilts), self._utility)

    def with_gradient(
        self, x: FloatArray, factor: FloatArray | float = 1.0, offset: FloatArray | float = 0.0
    ) -> tuple[float, FloatArray]:
        """Return the expected return of the tilts ``offset + factor * x``, and its gradient by `x`.

        All broadcast to `shape`. An axis of `x` of length one holds it constant over the times, over the contexts, or
        over the decisions (whose `factor` then is the direction of a price).
        """
        value, gradient = self._evaluate(offset + factor * x)
        constant = tuple(axis for axis in range(3) if x.shape[axis] == 1)
        slope: FloatArray = (gradient * factor).sum(axis=constant, keepdims=True)
        return value, slope

    def _evaluate(self, tilts: ArrayLike) -> tuple[float, FloatArray]:
        tau, weight = self._scaled(tilts)
        utility, extra, coupling = self._utility, 0.0, self._model.coupling
        if coupling is not None:
            self._value(tau, weight, utility)
            self._gradient(tau, weight)
            chance, power = power_by_context(self._model, self._rho)
            slope = coupling.slope(np.arange(len(power))[:, None], power)
            utility = utility - slope[..., None] * self._model.power_kw
            extra = float((chance * slope * power)[1:].sum()) - coupling_cost(self._model, self._rho)
        return self._value(tau, weight, utility) + extra, self._gradient(tau, weight)

    def _scaled(self, tilts: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return the tilts less the largest that competes with them, and their exponentials."""
        tau = np.broadcast_to(np.asarray(tilts, float), self.shape)
        if self._by_state:
            row = np.maximum.reduceat(np.where(self._possible, tau, -np.inf), self._first, axis=-1)
            tau = np.subtract(tau, row[..., self.entries[0]], out=np.zeros(self.shape), where=self._possible)
        else:
            tau = tau - tau.max(axis=-1, keepdims=True)
        tau = np.maximum(tau, -DEPTH)
        return tau, np.exp(tau)

    def _value(self, tau: FloatArray, weight: FloatArray, utility: FloatArray) -> float:
        _backward(tau, weight, self._problem, utility, self._values)
        return float((self.start * self._values.v[0]).sum())

    def _gradient(self, tau: FloatArray, weight: FloatArray) -> FloatArray:
        gradient = np.zeros(self.shape)
        self._rho[0] = self.start
        _forward(tau, weight, self._problem, self._values, self._rho, gradient)
        return gradient
