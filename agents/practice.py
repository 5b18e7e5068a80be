r"""Controllers that need no model: leave it alone, shed a fixed amount, find one good price.

All three are prices: a tilt of the default dynamics that is linear in power,
:math:`\pi_t[b] \propto P[b]\,\exp(-c_t x)` with :math:`x` the power rescaled to
[-1, 1]. They differ in :math:`c_t`:

uncontrolled
    zero.
ad-hoc
    what building operators do today: during the event, and only then, a fixed
    reduction, sized by the price of the running interval. No look-ahead (it
    starts with the event, not with the notice) and no model.
best-price
    the price action that earns most when it is held throughout, by a search in
    one dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from dp_ensemble_env._validation import check_positive
from dp_ensemble_env.agents.base import Core, Factory, FloatArray, ScheduleAgent, core_env
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.actions import action_scale, price_tilts
from dp_ensemble_env.lsmdp import evaluate_policy
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.policies import tilted_policy
from dp_ensemble_env.privacy.mechanisms.base import Release

PUBLIC = "nothing is revealed: it uses public prices alone"


def uncontrolled(env: Any) -> ScheduleAgent:
    """Make the agent that never interferes."""
    core = core_env(env)
    shape = _action_shape(core)
    return ScheduleAgent(np.zeros((core.model.horizon, *shape), np.float32), "uncontrolled", "nothing is computed")


def ad_hoc(env: Any, shed: float = 1.0) -> ScheduleAgent:
    r"""Make today's practice: a fixed shed in every interval of the event.

    Parameters
    ----------
    env : gymnasium.Env
    shed : float
        Strength of the shed; 1 answers the price of the running interval alone,
        with :math:`c = (max U - min U) / 2\gamma`.
    """
    core = core_env(env)
    prices = shed_prices(core.model, check_positive(shed, "shed"))
    return ScheduleAgent(price_actions(core, prices), "ad-hoc", PUBLIC)


def best_price(env: Any, release: Release | None = None) -> ScheduleAgent:
    """Make the best constant price, found by a bounded search over [-1, 1].

    Parameters
    ----------
    env : gymnasium.Env
    release : Release, optional
        Search on this private matrix instead of the environment's own.
    """
    core = core_env(env)
    model = core.model if release is None else core.model.with_default(release.matrix)
    found = minimize_scalar(lambda price: -constant_price_return(model, price), bounds=(-1.0, 1.0), method="bounded")
    private = release is not None or core.release is not None
    privacy = "that of one release" if private else "none: one number computed from the true matrix"
    agent = ScheduleAgent(price_actions(core, np.full(model.horizon, found.x)), "best-price", privacy)
    agent.price = float(found.x)  # type: ignore[attr-defined]
    return agent


# ------------------------------------------------------------------ rules
def shed_prices(model: EnsembleModel, shed: float = 1.0) -> FloatArray:
    r"""Return the prices (T,) of the ad-hoc rule, in units of the scale.

    During the event, and only then, the tilt is :math:`c = s (\max U - \min U) / 2\gamma` times the power, with `s` the
    strength `shed`: it answers the price of the running interval alone.
    """
    strength = shed * np.ptp(model.utility, axis=1)[1:] / (2.0 * model.discomfort_penalty)
    if model.event is not None:
        strength = np.where(model.event.in_event[1:], strength, 0.0)
    scale = action_scale(model)
    prices: FloatArray = np.divide(strength, scale, out=np.zeros_like(strength), where=scale > 0)
    return prices


def constant_price_return(model: EnsembleModel, price: float) -> float:
    """Return what a price held throughout earns on average, in dollars per building."""
    policy = tilted_policy(model, price_tilts(model, np.full(model.horizon, price)))
    cost = evaluate_policy(policy, model.default, model.utility, model.discomfort_penalty)
    return -float(model.initial @ (cost[0] + model.utility[0]))


def price_actions(core: Core, prices: FloatArray) -> NDArray[np.floating]:
    """Write price actions (T,) in the environment's action mode; their first axis is time."""
    model, clipped = core.model, np.clip(prices, -1.0, 1.0)
    if core.action_mode == "price":
        return clipped[:, None].astype(np.float32)
    tilts, mode = price_tilts(model, clipped), actions.mode(core.action_mode)
    if mode.basis is not None:  # exact where the basis holds the power levels, else the nearest tilt
        return actions.actions_of(mode, model, tilts).astype(np.float32)
    policy = tilted_policy(model, tilts)
    return np.stack([core.encode_policy(policy[t], t) for t in range(model.horizon)])


def _action_shape(core: Core) -> tuple[int, ...]:
    space = getattr(core, "single_action_space", core.action_space)
    return tuple(space.shape or ())


FACTORIES: dict[str, Factory] = {"uncontrolled": uncontrolled, "ad-hoc": ad_hoc, "best-price": best_price}
