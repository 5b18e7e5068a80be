r"""The action modes, and the one place where an action becomes a tilt.

In every mode but ``"policy"`` an action `x` of `d` numbers in [-1, 1] stands for the tilt

.. math:: \tau_t[a] = s_t \sum_j x_j B[j, a]

of the default behaviour, :math:`\pi_t[b] \propto P[b]\,e^{\tau_t}`, with a public basis `B`
of shape (d, n) and the scale :math:`s_t`. Zero always means: do not interfere. A mode of
your own is a basis::

    actions.register("two-prices", lambda model: np.stack([low_levels, high_levels]))

**The scale** is :math:`s_t = \sum_{\tau>t} (\max U_\tau - \min U_\tau)/(2\gamma)`. It depends on
public quantities only. The optimal tilt at `t` is :math:`\log z_{t+1}` up to a constant, and
one step of the recursion widens :math:`\log z` by no more than the spread of
:math:`U_t/\gamma` (an average of numbers spreads no wider than the numbers), so
:math:`\log z_{t+1}` spans at most :math:`2 s_t` and fits the action box once it is centred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env._registry import Registry
from dp_ensemble_env._validation import as_float_array
from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]
Basis = Callable[[EnsembleModel], ArrayLike]


@dataclass(frozen=True)
class ActionMode:
    """How the numbers of an action are read.

    Attributes
    ----------
    basis : callable or None
        ``basis(model)`` of shape (d, n); None where the numbers are the policy itself.
    tilt : bool
        Whether the basis is the identity, so that each level has a number of its own.
    """

    basis: Basis | None
    tilt: bool = False

    def shape(self, model: EnsembleModel) -> tuple[int, ...]:
        """Return the shape of an action."""
        if self.basis is None:
            return (model.n_states, model.n_states)
        return (model.n_states,) if self.tilt else (len(basis_of(self, model)),)

    @property
    def low(self) -> float:
        """Least value of an action's numbers; the largest is one."""
        return 0.0 if self.basis is None else -1.0


def power_direction(model: EnsembleModel) -> FloatArray:
    """Return the power levels rescaled to [-1, 1]; zeros if they are all equal."""
    low, high = model.power_kw.min(), model.power_kw.max()
    if high == low:
        return np.zeros(model.n_states)
    direction: FloatArray = 2.0 * (model.power_kw - low) / (high - low) - 1.0
    return direction


PRICE = ActionMode(lambda model: -power_direction(model)[None, :])  # a positive price lowers the power
TILT = ActionMode(lambda model: np.eye(model.n_states), tilt=True)
POLICY = ActionMode(None)
_HERE = "dp_ensemble_env.envs.actions"
_REGISTRY: Registry[ActionMode] = Registry(
    "action mode", {"price": f"{_HERE}:PRICE", "tilt": f"{_HERE}:TILT", "policy": f"{_HERE}:POLICY"}
)
names, remove = _REGISTRY.names, _REGISTRY.remove


def mode(name: str) -> ActionMode:
    """Return the action mode of that name."""
    return _REGISTRY[name]


def register(name: str, basis: Basis) -> None:
    """Add an action mode of your own: a basis of tilts, ``basis(model)`` of shape (d, n)."""
    if not callable(basis):
        raise ValueError(f"basis must be a function of the model that returns an array of shape (d, n), got {basis!r}.")
    _REGISTRY.register(name, ActionMode(basis))


def basis_of(chosen: ActionMode, model: EnsembleModel) -> FloatArray:
    """Return the basis of a mode, shape (d, n); empty for the policy mode."""
    if chosen.basis is None:
        return np.zeros((0, model.n_states))
    basis = as_float_array(chosen.basis(model), "basis", 2)
    if basis.shape[1] != model.n_states or len(basis) == 0 or not np.isfinite(basis).all():
        raise ValueError(
            f"the basis of an action mode has one finite number for each of the {model.n_states} levels in every row, "
            f"got shape {basis.shape}."
        )
    return basis


def action_scale(model: EnsembleModel) -> FloatArray:
    """Return s_t for t = 0 … T - 1, in nats."""
    spread = np.ptp(model.utility, axis=1)[1:]
    scale: FloatArray = np.cumsum(spread[::-1])[::-1] / (2.0 * model.discomfort_penalty)
    return scale


def tilts_of(chosen: ActionMode, model: EnsembleModel, actions: ArrayLike, times: Any = slice(None)) -> FloatArray:
    """Return the tilts in nats that actions (..., d) stand for at `times` (one for each, or all in order)."""
    tilts: FloatArray = np.asarray(actions, float) @ basis_of(chosen, model)
    result: NDArray[np.float64] = tilts * action_scale(model)[times][..., None]
    return result


def actions_of(chosen: ActionMode, model: EnsembleModel, tilts: FloatArray) -> FloatArray:
    """Return the actions (T, d) whose tilts are nearest to `tilts` (T, n), inside the box; zero where the scale is."""
    scale = action_scale(model)[:, None]
    unit = np.divide(tilts, scale, out=np.zeros_like(tilts), where=scale > 0)
    found = unit if chosen.tilt else unit @ np.linalg.pinv(basis_of(chosen, model))
    return np.clip(found, -1.0, 1.0)


def price_tilts(model: EnsembleModel, prices: FloatArray) -> FloatArray:
    """Return the tilts (T, n) of one price for each decision, as in price mode."""
    return tilts_of(PRICE, model, prices[:, None])
