"""A planner that solves again at each step from the occupancy that it observes, on its own model of the loads.

Made on a release it corrects the errors of its model as they show. What it plans with is the release; what it observes
while it acts are the true shares, which no epsilon covers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents.base import FloatArray, Kind, core_env
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import tilted_policy
from dp_ensemble_env.control.returns import optimal_tilts
from dp_ensemble_env.envs import actions
from dp_ensemble_env.model import EnsembleModel

#: Occupancies are told apart to so many digits: observations have single precision.
_DIGITS = 7


class RollingPlanner:
    """Plays the first decision of the plan from here on, in tilt or policy mode.

    Parameters
    ----------
    env : gymnasium.Env
        Plans on its model: the release's, if there is one.
    """

    def __init__(self, env: Any) -> None:
        core = core_env(env)
        self.model, self.layout, self.mode = core.model, core.layout, actions.mode(core.action_mode)
        if not self.model.shares_shown:
            raise ValueError("a rolling planner needs to see the shares, which this scenario hides; use 'standard'.")
        if self.mode.basis is not None and not self.mode.tilt:
            raise ValueError(f"a rolling planner plays tilts, got action={core.action_mode!r}; pass action='tilt'.")
        self.privacy = "that of one release" if core.release is not None else "none: computed from the true matrix"
        self._known: dict[tuple[int, int, bytes], NDArray[Any]] = {}

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.float32], Any]:
        """Plan from each observation, and return the first action of the plan."""
        seen = np.atleast_2d(np.asarray(observation, float))
        times, contexts = np.atleast_1d(self.layout.time(seen)), self.layout.follow(seen, state)
        shares = np.round(seen[:, : self.model.n_states], _DIGITS)
        chosen = [self._first(int(t), int(w), rho) for t, w, rho in zip(times, contexts, shares, strict=True)]
        action = np.asarray(chosen, np.float32)
        return (action if np.ndim(observation) > 1 else action[0]), contexts

    def _first(self, time: int, context: int, shares: FloatArray) -> NDArray[Any]:
        key = time, context, shares.tobytes()
        if key not in self._known:
            model = remaining(self.model, time, context, shares / shares.sum())
            tilts = optimal_tilts(model)
            tilts = tilts if model.context is not None else tilts[:, 0]
            numbers: NDArray[Any] = (
                actions.centred_actions(model, tilts, strict=False) if self.mode.tilt else tilted_policy(model, tilts)
            )[0]
            self._known[key] = numbers if model.context is None else numbers[context]
        return self._known[key]


def remaining(model: EnsembleModel, time: int, context: int, shares: FloatArray) -> EnsembleModel:
    """Return what is left of a problem at a time, in a context and from an occupancy."""

    def cut(table: Any, axes: int) -> Any:
        return table[time:] if table is not None and table.ndim > axes and len(table) > 1 else table

    by_context, here = 3 if model.context is not None else 2, model.context
    if here is not None:
        here = Context(cut(here.transition, 2), here.names, [context], here.features, here.signs)
    coupling = model.coupling
    if coupling is not None:
        coupling = replace(coupling, level=coupling.level[time:], weight=coupling.weight[time:])
    return model.override(
        default=cut(model.default, by_context), nature=cut(model.nature, by_context), utility=model.utility[time:],
        guess=cut(model.guess, by_context), support=cut(model.support, by_context), times=model.times[time:],
        tilt_scale=None if model.tilt_scale is None else model.tilt_scale[time:],
        context=here, coupling=coupling, initial=shares, event=None, spread_start=True,
    )  # fmt: skip


KINDS: dict[str, Kind] = {"rolling": Kind(RollingPlanner)}
