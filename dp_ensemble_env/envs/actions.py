r"""The action modes: how an action becomes a tilt, and a tilt or a policy an action.

In every mode but ``"policy"`` an action `x` of `d` numbers in [-1, 1] stands for the tilt

.. math:: \ell_t[w, a] = \sum_j x_j B_t[w, j, a]

of the default behaviour, :math:`\pi_t[w, b] \propto P_t[w, b]\,e^{\ell_t[w]}`, with a public basis `B` in nats, one
column for each decision (in a plain model: each next level). Zero always means: do not interfere. ``"discrete"``
numbers eleven prices in [-1, 1]. A mode of your own is a function that returns a basis of shape (d, m), (T, d, m) or
(T, c, d, m)::

    actions.register("two-prices", lambda model: np.stack([low_levels, high_levels]))

``"signals"`` (the default), ``"price"`` and ``"discrete"`` have units from public models, in which the optimum is of
order one (`dp_ensemble_env.envs.signals`). **The scale** of tilts is the model's `tilt_scale`, or else
:math:`s_t = \sum_{\tau>t} (\max U_\tau - \min U_\tau)/(2\gamma)`, the spread over the states in the context
where it is widest: public quantities alone. One step of the recursion widens :math:`\log z` by no more than the spread
of :math:`U_t/\gamma`, so the optimal tilt spans at most :math:`2 s_t` and fits the action box once it is centred. A
coupling adds its largest shadow price times the spread of the power to the spread of :math:`U_\tau`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from scipy.fft import idct
from scipy.special import softmax

from dp_ensemble_env.control.policies import centred
from dp_ensemble_env.envs import ACTIONS
from dp_ensemble_env.envs.signals import power_direction, price_basis, signals_basis
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.registry import Registry
from dp_ensemble_env.tools.validation import as_float_array, check_shape, check_stochastic, option

FloatArray = NDArray[np.float64]
Basis = Callable[[EnsembleModel], ArrayLike]
#: Probabilities may differ by this much between a policy and what its action does.
TOLERANCE = 1e-7


@dataclass(frozen=True)
class ActionMode:
    """The meaning of an action's numbers."""

    basis: Basis | None
    """``basis(model)`` in nats, of shape (d, m), (T, d, m) or (T, c, d, m); None if an action is the policy itself."""
    tilt: bool = False
    """Whether each decision has a number of its own: the basis is the scale times the identity."""
    levels: int = 0
    """Number of discrete values of the first number, evenly spaced in [-1, 1]; 0 if actions are continuous."""

    def shape(self, model: EnsembleModel) -> tuple[int, ...]:
        """Return the shape of an action."""
        if self.levels:
            return ()
        if self.basis is None:
            return (model.n_states, model.n_decisions)
        return (model.n_decisions,) if self.tilt else (basis_of(self, model).shape[-2],)

    def space(self, model: EnsembleModel) -> spaces.Space[Any]:
        """Return the space of actions."""
        return spaces.Discrete(self.levels) if self.levels else spaces.Box(self.low, 1.0, self.shape(model), np.float32)

    @property
    def choices(self) -> FloatArray:
        """Values of the discrete actions 0 … `levels` - 1; the middle one is zero."""
        return np.linspace(-1.0, 1.0, self.levels)

    @property
    def low(self) -> float:
        """Smallest value of an action's numbers; the largest is one."""
        return 0.0 if self.basis is None else -1.0


def tilt_basis(model: EnsembleModel) -> FloatArray:
    """Return one row for each decision, shape (T, m, m)."""
    return action_scale(model)[:, None, None] * np.eye(model.n_decisions)


def cosine_waves(count: int, decisions: int) -> FloatArray:
    """Return the slowest cosines over the decisions, one in each row (DCT, type II), as shares of the scale.

    Rows are orthogonal and their root mean square is 1/2. The first is a constant, which moves nothing where all
    decisions compete.
    """
    waves: FloatArray = idct(np.eye(min(count, decisions), decisions), axis=1, norm="ortho")
    waves *= 0.5 * np.sqrt(decisions)
    return waves


def cosines(count: int) -> str:
    """Return the name of the mode whose numbers weigh the `count` slowest cosines over the decisions.

    What few loads do moves with what many do. The mode is registered when it is first asked for.
    """
    if count < 2:
        raise ValueError(f"one cosine is a constant and moves nothing, got cosines={count}; pass at least 2.")
    name = f"cosines-{count}"
    if name not in names():
        register(name, lambda model: action_scale(model)[:, None, None] * cosine_waves(count, model.n_decisions))
    return name


SIGNALS = ActionMode(signals_basis)
PRICE = ActionMode(price_basis)
TILT = ActionMode(tilt_basis, tilt=True)
POLICY = ActionMode(None)
DISCRETE = ActionMode(PRICE.basis, levels=11)
_HERE = "dp_ensemble_env.envs.actions"
_REGISTRY: Registry[ActionMode] = Registry("action mode", {name: f"{_HERE}:{name.upper()}" for name in ACTIONS})
names, remove = _REGISTRY.names, _REGISTRY.remove


def mode(name: str) -> ActionMode:
    """Return the action mode of that name."""
    return _REGISTRY[name]


def register(name: str, basis: Basis) -> None:
    """Register your own action mode: a basis of tilts in nats, ``basis(model)`` of shape ([T, [c,]] d, m)."""
    if not callable(basis):
        raise ValueError(f"basis must be a function of the model that returns an array of shape (d, m), got {basis!r}.")
    _REGISTRY.register(name, ActionMode(basis))


def basis_of(chosen: ActionMode, model: EnsembleModel) -> FloatArray:
    """Return the basis of a mode in nats, shape (T or 1, c or 1, d, m); d = 0 for the policy mode."""
    m = model.n_decisions
    if chosen.basis is None:
        return np.zeros((1, 1, 0, m))
    basis = as_float_array(chosen.basis(model), "basis", (2, 3, 4))
    full = basis[:, None] if basis.ndim == 3 else basis.reshape((1,) * (4 - basis.ndim) + basis.shape)
    fits = full.shape[0] in (1, model.horizon) and full.shape[1] in (1, model.n_contexts) and full.shape[3] == m
    if not fits or full.shape[2] == 0:
        raise ValueError(
            f"for this model a basis has shape (d, {m}), ({model.horizon}, d, {m}) or "
            f"({model.horizon}, {model.n_contexts}, d, {m}), with d at least one; got {basis.shape}."
        )
    return full


# ------------------------------------------------------------------ the scale of tilts
def action_scale(model: EnsembleModel) -> FloatArray:
    """Return s_t for t = 0 … T - 1, in nats."""
    if model.tilt_scale is not None:
        return np.asarray(model.tilt_scale, dtype=float)
    spread = np.ptp(model.utility, axis=-1)[1:]
    if spread.ndim == 2:
        spread = spread.max(axis=1)
    if model.coupling is not None:
        spread = spread + _largest_shadow_price(model) * np.ptp(model.power_kw)
    scale: FloatArray = np.cumsum(spread[::-1])[::-1] / (2.0 * model.discomfort_penalty)
    return scale


def _largest_shadow_price(model: EnsembleModel) -> FloatArray:
    """Return a bound on the coupling's multipliers at times 1 … T, in dollars per kW: its steepest slope."""
    assert model.coupling is not None
    code, level, weight = model.coupling.packed()
    if code == 1:  # a limit
        return weight[1:]
    miss = np.maximum(np.abs(model.power_kw.min() - level), np.abs(model.power_kw.max() - level))
    steepest: FloatArray = 2.0 * weight[1:] * miss[1:]
    return steepest


def _by_time(model: EnsembleModel, like: FloatArray) -> FloatArray:
    """Return the scale with as many axes as `like`, the first of which is time."""
    return action_scale(model).reshape(-1, *(1,) * (like.ndim - 1))


# ------------------------------------------------------------------ between tilts and actions
def tilts_of(chosen: ActionMode, model: EnsembleModel, actions: ArrayLike) -> FloatArray:
    """Return the tilts (T, [c,] m) in nats for actions (T, [c,] d)."""
    numbers = np.asarray(actions, float)
    if chosen.tilt:
        scaled: FloatArray = numbers * _by_time(model, numbers)
        return scaled
    return _apply(numbers, basis_of(chosen, model))


def actions_of(chosen: ActionMode, model: EnsembleModel, tilts: FloatArray) -> NDArray[Any]:
    """Return the actions (T, [c,] d) nearest to tilts (T, [c,] m), inside the box; zero where the scale is."""
    if chosen.tilt:
        scale = _by_time(model, tilts)
        actions = np.divide(tilts, scale, out=np.zeros_like(tilts), where=scale > 0)
    else:
        inverse: FloatArray = np.asarray(np.linalg.pinv(basis_of(chosen, model)), float)
        actions = _apply(tilts, inverse)
    actions = np.clip(actions, -1.0, 1.0)
    return nearest_choice(chosen, actions[..., 0]) if chosen.levels else actions


def _apply(numbers: FloatArray, matrices: FloatArray) -> FloatArray:
    """Multiply (T, [c,] i) by matrices (T or 1, c or 1, i, j)."""
    full = numbers if numbers.ndim == 3 else numbers[:, None]
    product: FloatArray = (full[..., None, :] @ matrices)[..., 0, :]
    return product if numbers.ndim == 3 or product.shape[1] > 1 else product[:, 0]


def centred_actions(model: EnsembleModel, tilts: FloatArray, strict: bool = True) -> NDArray[Any]:
    """Return the actions of the tilt mode for tilts (T, [c,] m), whose shifts do not matter.

    Each set of decisions that compete is centred on its own, over those that loads take at that time and in that
    context; others are clipped to the box. What loads do take in contexts that can be reached must fit, unless not
    `strict`.
    """
    taken = (model.default_policy > 0).any(axis=-2)
    shifted, scale = centred(tilts, model.default, taken), _by_time(model, tilts)
    if model.context is not None:
        taken = taken & (model.context.distributions(model.horizon)[:-1, :, None] > 0)
    over = np.where(taken, np.abs(shifted) - scale * (1.0 + 1e-6), -np.inf)
    if strict and over.max() > 1e-9:
        t = int(np.argmax(over.reshape(model.horizon, -1).max(axis=1)))
        raise ValueError(
            f"the tilt at time {t} is {over.max():.3g} nats wider than the action box; use "
            f"{option('action', 'policy')}, or in Python a larger tilt_scale of the model."
        )
    return actions_of(TILT, model, shifted)


def nearest_choice(chosen: ActionMode, numbers: ArrayLike) -> NDArray[np.int64]:
    """Return the actions of a discrete mode that lie nearest to numbers in [-1, 1]."""
    return np.rint((np.asarray(numbers, float) + 1.0) * (chosen.levels - 1) / 2.0).astype(np.int64)


def price_tilts(model: EnsembleModel, prices: FloatArray) -> FloatArray:
    """Return the tilts (T, [c,] m) of prices (T,) or (T, c) in parts of the scale of tilts; they lower the power."""
    tilts: FloatArray = -prices[..., None] * _by_time(model, prices[..., None]) * power_direction(model)
    return tilts


# ------------------------------------------------------------------ from a policy to its action
def encode_policy(model: EnsembleModel, name: str, policy_t: ArrayLike, t: int, context: int = 0) -> NDArray[Any]:
    """Return the action in the mode `name` whose policy at time `t`, in a context, is `policy_t`, of shape (n, m).

    Exact in ``"policy"`` mode. In the other modes the policy must be a tilt of the default (in the span of the mode's
    basis, for ``"price"`` linear in power) that fits the box; else a `ValueError` says how far off the nearest one is.
    """
    chosen, m = mode(name), model.n_decisions
    policy = check_stochastic(policy_t, "policy_t", square=model.nature is None)
    check_shape(policy, (model.n_states, m), "policy_t", "the transition matrix of one step")
    default = model.default_policy[t] if model.context is None else model.default_policy[t, context]
    outside = np.argwhere((policy > 0) & (default == 0))
    if len(outside):
        b, a = (int(x) for x in outside[0])
        raise ValueError(
            f"policy_t moves from state {b} to {a}, which the default dynamics never do; mask it to their support."
        )
    if chosen.basis is None:
        return policy
    tilt, component = _potentials(policy, default)
    if chosen.tilt:
        scale = float(action_scale(model)[t])
        action = tilt / scale if scale > 0 else np.zeros(m)
        tilt, kind = action * scale, "a tilt of the default"
    else:
        full = basis_of(chosen, model)
        basis = full[t if len(full) > 1 else 0, context if full.shape[1] > 1 else 0]
        action = _common_slopes(tilt, basis, component)
        tilt, kind = action @ basis, f"a tilt in the basis of the {name!r} mode"
        if name == "price":
            kind = "a price (a tilt of the default that is linear in power)"
    with np.errstate(divide="ignore"):
        error = np.abs(softmax(np.log(default) + tilt, axis=1) - policy)
    if error.max() > TOLERANCE:
        raise ValueError(
            f"policy_t is not {kind} at time {t}: the nearest one differs by {error.max():.3g} in row "
            f"{np.argmax(error.max(axis=1))}; use {option('action', 'policy')}, which represents every policy."
        )
    largest = np.abs(action).max()
    if largest > 1.0 + 1e-6:
        raise ValueError(
            f"policy_t needs a tilt {largest:.4g} times wider than the action box at time {t}, which no policy that is "
            f"optimal for this utility does; use {option('action', 'policy')}."
        )
    action = np.clip(action, -1.0, 1.0)
    if not chosen.levels:
        return action
    choice = nearest_choice(chosen, action[0])
    if abs(chosen.choices[choice] - action[0]) > 1e-6:
        raise ValueError(
            f"policy_t needs the price {action[0]:.4g} at time {t}, which is none of the {chosen.levels} discrete "
            f"ones; use {option('action', 'price')}."
        )
    return np.asarray(choice)


def _potentials(policy: FloatArray, default: FloatArray) -> tuple[FloatArray, NDArray[np.int64]]:
    """Solve log(policy/default)[b, a] = tilt[a] - log g[b] for the tilt, along the most probable entries.

    Decisions that share no row, not even by a chain of rows, are apart: each such component is centred on its own.
    Returns the tilt and each decision's component.
    """
    n, m = policy.shape
    used = policy > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(used, np.log(policy) - np.log(default), 0.0)
    tilt, component = np.full(m, np.nan), np.full(m, -1, np.int64)
    row_seen, row_value = np.zeros(n, dtype=bool), np.zeros(n)
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
    # No row goes there: too unattractive to be seen, or of no consequence.
    never, possible = component < 0, np.asarray((default > 0).any(axis=0))
    tilt[never] = np.where(possible[never], min(tilt[~never].min(), -745.0), 0.0)
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
