r"""What rewards in points need of a model: how loads fare that are left alone (MATH 15).

With :math:`V^0_T = 0`, :math:`V^0_t[w, s] = \sum_a P_t[w, s, a]\,G_t[w, a]` and

.. math:: G_t[w, a] = \sum_{w'} W_t[w, w'] \sum_{s'} N_t[w, a, s'] \big(U_{t+1}[w', s'] + V^0_{t+1}[w', s']\big)

the advantage of an action over leaving the loads alone is :math:`\sum_a (y_a - y^0_a) G_t[w, a] - \gamma\mathrm{KL}`.
By the performance-difference lemma its expected sum over an episode is the return less that of the uncontrolled loads,
whatever is done; so no optimum moves. A coupling's cost is a function of the mean power, hence of the power that is to
be expected at each later time (and in each context that may hold then), which is linear in the decisions of today.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.model import EnsembleModel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
#: A gain of the optimum over the uncontrolled loads below this, relative to the larger of their return and the penalty,
#: is rounding.
SMALLEST_GAIN = 1e-9


class Ahead(NamedTuple):
    """The L times and contexts that may come after one, or after each of all.

    Attributes
    ----------
    time, chance : ndarray of shape (L,)
    power : ndarray of shape (L, m)
        Power to expect there after each decision.
    """

    time: IntArray
    chance: FloatArray
    power: FloatArray


@dataclass(frozen=True, eq=False)
class LeftAlone:
    """Loads that nobody interferes with.

    Attributes
    ----------
    worth : ndarray of shape (T, c, m)
        Utility to expect after a decision, G.
    value : ndarray of shape (c, n)
        Return to expect from each first context and state; a coupling's cost is not in it.
    ahead : Ahead
        What comes after every (time, context), one after the other; empty without a coupling.
    first : ndarray of int of shape (T c + 1,)
        Where the entries of each (time, context) begin.
    """

    model: EnsembleModel
    worth: FloatArray
    value: FloatArray
    ahead: Ahead
    first: IntArray

    @classmethod
    def of(cls, model: EnsembleModel) -> LeftAlone:
        """Follow the loads of a model backward in time."""
        behaviour, nature, moves, utility = model.tables()
        behaviour = behaviour / behaviour.sum(axis=-1, keepdims=True)
        horizon, c, n, m = behaviour.shape
        worth, value = np.empty((horizon, c, m)), np.zeros((c, n))
        for t in range(horizon - 1, -1, -1):
            arrival = moves[t] @ (utility[t + 1] + value)
            worth[t] = (nature[t] @ arrival[..., None])[..., 0]
            value = (behaviour[t] @ worth[t][..., None])[..., 0]
        nothing = Ahead(np.zeros(0, np.int64), np.zeros(0), np.zeros((0, m)))
        nodes = [nothing] * (horizon * c)
        if model.coupling is not None:
            nodes = _nodes_ahead(model, behaviour, nature, moves)
        first = np.concatenate([[0], np.cumsum([len(node.time) for node in nodes])])
        return cls(model, worth, value, Ahead(*map(np.concatenate, zip(*nodes, strict=True))), first.astype(np.int64))

    def returns(self, start: FloatArray, context: int | None = None) -> float:
        """Return what loads earn that start with shares (n,), in dollars; without a context, on average over them."""
        if context is None:
            chances = np.ones(1) if self.model.context is None else self.model.context.start
            return float(sum(chance * self.returns(start, w) for w, chance in enumerate(chances) if chance > 0))
        value, coupling = float(self.value[context] @ start), self.model.coupling
        if coupling is not None:
            part = slice(self.first[context], self.first[context + 1])
            time, chance, power = (array[part] for array in self.ahead)
            decided = start @ self.model.tables().behaviour[0, context]
            value -= float(chance @ coupling.cost(time, power @ decided))
        return value


def _nodes_ahead(model: EnsembleModel, behaviour: FloatArray, nature: FloatArray, moves: FloatArray) -> list[Ahead]:
    """Return what may come after each (time, context) that can be reached; a tree, so that no node comes twice."""
    horizon, c, _, m = behaviour.shape
    chances = np.ones((horizon + 1, 1)) if model.context is None else model.context.distributions(horizon)
    empty = Ahead(np.zeros(0, np.int64), np.zeros(0), np.zeros((0, m)))
    nodes, later = [empty] * (horizon * c), dict[int, tuple[Ahead, FloatArray]]()
    for t in range(horizon - 1, -1, -1):
        # Of each next context: its own time, chance and power by state, and those that come after it.
        following = {v: _arrived(t + 1, model.power_kw, later.get(v)) for v in _possible(chances[t + 1])}
        later = {}
        for w in _possible(chances[t]):
            parts = [following[v] for v in _possible(moves[t, w])]
            weights = [moves[t, w, v] for v in _possible(moves[t, w])]
            chance = np.concatenate([weight * part[1] for weight, part in zip(weights, parts, strict=True)])
            power = np.concatenate([part[2] for part in parts]) @ nature[t, w].T
            nodes[t * c + w] = Ahead(np.concatenate([part[0] for part in parts]), chance, power)
            later[w] = (nodes[t * c + w], behaviour[t, w])
    return nodes


def _possible(chances: FloatArray) -> list[int]:
    return [int(w) for w in np.flatnonzero(chances > 0)]


def _arrived(
    t: int, power: FloatArray, later: tuple[Ahead, FloatArray] | None
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return times, chances and expected powers by state (L, n) from a node on, itself first."""
    if later is None:
        return np.array([t]), np.ones(1), power[None]
    node, behaviour = later
    rows = np.concatenate([power[None], node.power @ behaviour.T])
    return np.concatenate([[t], node.time]), np.concatenate([[1.0], node.chance]), rows


def dollars_per_point(uncontrolled: float, optimal: float, penalty: float) -> float:
    """Return what a point is worth, or zero where there is nothing to gain."""
    gain = optimal - uncontrolled
    return gain / 100.0 if gain > SMALLEST_GAIN * max(abs(uncontrolled), penalty) else 0.0
