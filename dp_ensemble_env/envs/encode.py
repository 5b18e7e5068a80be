"""From a transition matrix to the action that realises it."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.envs import actions
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.validation import check_shape, check_stochastic

FloatArray = NDArray[np.float64]
_KINDS = {"price": "a price (a tilt of the default that is linear in power)"}
#: Probabilities may differ by this much between the policy and what its action does.
TOLERANCE = 1e-7


def encode_policy(model: EnsembleModel, name: str, policy_t: ArrayLike, t: int, context: int = 0) -> NDArray[Any]:
    """Return the action in the mode `name` whose policy at time `t`, in a context, is `policy_t`, of shape (n, m).

    Exact in ``"policy"`` mode. In the other modes the policy must be a tilt of the
    default (in the span of the mode's basis, for ``"price"`` linear in power) that fits
    the box; else a `ValueError` says how far off the nearest such tilt is.
    """
    mode = actions.mode(name)
    policy = check_stochastic(policy_t, "policy_t", square=model.nature is None)
    m = model.n_decisions
    check_shape(policy, (model.n_states, m), "policy_t", "the transition matrix of one step")
    default = behaviour_at(model, t, context)
    outside = np.argwhere((policy > 0) & (default == 0))
    if len(outside):
        b, a = (int(x) for x in outside[0])
        raise ValueError(
            f"policy_t moves from state {b} to {a}, which the default dynamics never do; mask it to their support."
        )
    if mode.basis is None:
        return policy
    tilt, component = _potentials(policy, default)
    if mode.tilt:
        scale = float(actions.action_scale(model)[t])
        action = tilt / scale if scale > 0 else np.zeros(m)
        tilt = action * scale
    else:
        full = actions.basis_of(mode, model)
        basis = full[t if len(full) > 1 else 0, context if full.shape[1] > 1 else 0]
        action = _common_slopes(tilt, basis, component)
        tilt = action @ basis
    reached = _tilted(default, tilt)
    error = np.abs(reached - policy)
    if error.max() > TOLERANCE:
        b = int(np.argmax(error.max(axis=1)))
        kind = "a tilt of the default" if mode.tilt else _KINDS.get(name, f"a tilt in the basis of the {name!r} mode")
        raise ValueError(
            f"policy_t is not {kind} at time {t}: the nearest one differs by {error.max():.3g} in row {b}; use "
            "action='policy', which represents every policy."
        )
    largest = np.abs(action).max()
    if largest > 1.0 + 1e-6:
        raise ValueError(
            f"policy_t needs a tilt {largest:.4g} times wider than the action box at time {t}, which no policy that is "
            "optimal for this utility does; use action='policy'."
        )
    inside = np.clip(action, -1.0, 1.0)
    return _one_of(mode, inside[0], t) if mode.levels else inside


def behaviour_at(model: EnsembleModel, t: int, context: int) -> FloatArray:
    """Return the default behaviour (n, m) at a time, in a context."""
    default = model.default
    rows: FloatArray = default if default.ndim == 2 else default[t if len(default) > 1 else 0]
    return rows if rows.ndim == 2 else rows[context]


def _one_of(mode: actions.ActionMode, price: float, t: int) -> NDArray[np.int64]:
    """Return the discrete action that is `price`, or say that there is none."""
    found = actions.nearest_choice(mode, price)
    if abs(mode.choices[found] - price) > 1e-6:
        raise ValueError(
            f"policy_t needs the price {price:.4g} at time {t}, which is none of the {mode.levels} discrete ones; use "
            "action='price'."
        )
    return np.asarray(found)


def _tilted(default: FloatArray, tilt: FloatArray) -> FloatArray:
    """Policy rows proportional to default * exp(tilt), by log-sum-exp."""
    with np.errstate(divide="ignore"):
        logs = np.log(default) + tilt
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    result: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return result


def _potentials(policy: FloatArray, default: FloatArray) -> tuple[FloatArray, NDArray[np.int64]]:
    """Solve log(policy/default)[b, a] = tilt[a] - log g[b] for the tilt, along the most probable entries.

    Decisions that share no row, not even by a chain of rows, are apart: each such
    component is centred on its own. Returns the tilt and each decision's component.
    """
    n, m = policy.shape
    used = policy > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(used, np.log(policy) - np.log(default), 0.0)
    tilt, component = np.full(m, np.nan), np.full(m, -1, np.int64)
    row_seen = np.zeros(n, dtype=bool)
    row_value = np.zeros(n)
    for start in range(m):
        if component[start] >= 0 or not used[:, start].any():
            continue
        tilt[start], component[start] = 0.0, start
        # Prim's tree over rows and decisions, the largest probabilities first: they carry the most digits.
        queue = [(-policy[b, start], int(b), start) for b in np.flatnonzero(used[:, start])]
        heapq.heapify(queue)
        while queue:
            _, b, a = heapq.heappop(queue)
            if component[a] >= 0 and not row_seen[b]:
                row_seen[b], row_value[b] = True, tilt[a] - ratio[b, a]
                for other in np.flatnonzero(used[b]):
                    heapq.heappush(queue, (-policy[b, other], b, int(other)))
            elif component[a] < 0:
                tilt[a], component[a] = row_value[b] + ratio[b, a], start
                for row in np.flatnonzero(used[:, a] & ~row_seen):
                    heapq.heappush(queue, (-policy[row, a], int(row), a))
        members: NDArray[np.bool_] = np.array(component == start)
        tilt[members] -= 0.5 * (tilt[members].max() + tilt[members].min())
    never: NDArray[np.bool_] = np.array(component < 0)
    if never.any():  # no row goes there: too unattractive to be seen, or of no consequence
        possible = np.asarray((default > 0).any(axis=0))
        lowest = tilt[~never].min() if (~never).any() else 0.0
        tilt[never] = np.where(possible[never], min(lowest, -745.0), 0.0)
    return tilt, component


def _common_slopes(tilt: FloatArray, basis: FloatArray, component: NDArray[np.int64]) -> FloatArray:
    """Least-squares slopes of the tilt on the rows of `basis`, each component having its own offset."""
    known = component >= 0
    rows, values = basis.astype(float).copy(), tilt.astype(float).copy()
    for name in np.unique(component[known]):
        members = component == name
        rows[:, members] -= rows[:, members].mean(axis=1, keepdims=True)
        values[members] -= values[members].mean()
    slopes: FloatArray = np.linalg.lstsq(rows[:, known].T, values[known], rcond=None)[0]
    return slopes
