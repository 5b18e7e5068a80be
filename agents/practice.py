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
    the price action that earns most when it is held throughout; see
    `best_constant_price`.

`plan_without_data` is the reference for every plan that uses data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dp_ensemble_env.agents.base import Core, Factory, FloatArray, ScheduleAgent, core_env
from dp_ensemble_env.control.policies import tilted_policy
from dp_ensemble_env.control.returns import ExactReturn, optimal_tilts
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.actions import action_scale, price_tilts
from dp_ensemble_env.envs.tables import observed_price
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.public import public_guess
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.validation import check_positive

PUBLIC = "nothing is revealed: it uses public prices alone"
#: Prices between which `best_constant_price` looks for stationary ones.
PRICES = np.linspace(-1.0, 1.0, 81)


def uncontrolled(env: Any) -> ScheduleAgent:
    """Make the agent that never interferes."""
    core = core_env(env)
    return _schedule(core, np.zeros(core.model.horizon), "uncontrolled", "nothing is computed")


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
    return _schedule(core, prices, "ad-hoc", PUBLIC)


def best_price(env: Any, release: Release | None = None) -> ScheduleAgent:
    """Make the best constant price.

    Parameters
    ----------
    env : gymnasium.Env
    release : Release, optional
        Search on this private matrix instead of the environment's own.
    """
    core = core_env(env)
    model = core.model if release is None else core.model.with_default(release.matrix)
    price = best_constant_price(model)
    private = release is not None or core.release is not None
    privacy = "that of one release" if private else "none: one number computed from the true matrix"
    agent = _schedule(core, np.full(model.horizon, price), "best-price", privacy)
    agent.price = price  # type: ignore[attr-defined]
    return agent


# ------------------------------------------------------------------ rules
def shed_prices(model: EnsembleModel, shed: float = 1.0) -> FloatArray:
    r"""Return the prices (T,) of the ad-hoc rule, in units of the scale; (T, c) where there is a context.

    During the event, and only then, the tilt is :math:`c = s (\max U - \min U) / 2\gamma` times the power, with `s` the
    strength `shed`: it answers the price of the running interval alone. In a context it is the price expected of that
    interval, and may be negative.
    """
    worth = np.ptp(model.utility, axis=-1)[1:] if model.context is None else _expected_worth(model)
    strength = shed * worth / (2.0 * model.discomfort_penalty)
    if model.event is not None:
        inside = model.event.in_event[1:]
        strength = np.where(inside.reshape(-1, *(1,) * (strength.ndim - 1)), strength, 0.0)
    scale = action_scale(model).reshape(-1, *(1,) * (strength.ndim - 1))
    prices: FloatArray = np.divide(strength, scale, out=np.zeros_like(strength), where=scale > 0)
    return prices


def _expected_worth(model: EnsembleModel) -> FloatArray:
    """Dollars between the least and the greatest power in the next interval, as expected in each context, (T, c)."""
    price = np.broadcast_to(observed_price(model).reshape(model.horizon + 1, -1), (model.horizon + 1, model.n_contexts))
    expected = np.einsum("twv,tv->tw", model.tables().context, price[1:])
    worth: FloatArray = expected * model.step_hours * np.ptp(model.power_kw)
    return worth


def best_constant_price(model: EnsembleModel) -> float:
    """Return the price in [-1, 1] that earns most when it is held throughout; zero if none earns more than that.

    It is zero, an end of the interval, or a price where the exact derivative of the return changes sign. These are
    bracketed by 81 prices and located to 1e-12. The return may have several local maxima, and a maximum is flat, so a
    search by values alone may stop at a lesser one, and is good to about 1e-8.
    """
    returns, unit = ExactReturn(model), price_tilts(model, np.ones(model.horizon))[:, None, :]

    def slope(price: float) -> float:
        return float(returns.with_gradient(np.full((1, 1, 1), price), unit)[1][0, 0, 0])

    slopes = [slope(price) for price in PRICES]
    rising = [i for i in range(len(PRICES) - 1) if slopes[i] > 0.0 >= slopes[i + 1]]
    found = [float(brentq(slope, PRICES[i], PRICES[i + 1], xtol=1e-12)) for i in rising]
    return max((0.0, *found, -1.0, 1.0), key=lambda price: returns(price * unit))


def plan_without_data(model: EnsembleModel) -> FloatArray:
    """Return the tilts (T, c, m) planned on the textbook behaviour, or on a lazy walk if there is none (epsilon = 0).

    The textbook is the model's `guess`. The walk and its settings are fixed: see `PublicMechanism`.
    """
    return optimal_tilts(model.with_default(public_guess(model).matrix))


def price_actions(core: Core, prices: FloatArray) -> NDArray[Any]:
    """Write price actions (T,) or (T, c) in the environment's action mode; their first axis is time."""
    model, clipped = core.model, np.clip(prices, -1.0, 1.0)
    mode = actions.mode(core.action_mode)
    if mode.levels:
        return actions.nearest_choice(mode, clipped)
    if core.action_mode == "price":
        return clipped[..., None].astype(np.float32)
    if not clipped.any():
        space = getattr(core, "single_action_space", core.action_space)
        return np.zeros((*clipped.shape, *(space.shape or ())), np.float32)
    tilts = price_tilts(model, clipped)
    if mode.basis is not None:  # exact where the basis holds the power levels, else the nearest tilt
        return actions.actions_of(mode, model, tilts).astype(np.float32)
    return tilted_policy(model, tilts).astype(np.float32)


def _schedule(core: Core, prices: FloatArray, name: str, privacy: str) -> ScheduleAgent:
    """Make the agent that plays prices; in policy mode even one price for all contexts is another policy in each."""
    found, space = price_actions(core, prices), getattr(core, "single_action_space", core.action_space)
    by_context = found.ndim - 1 > len(space.shape or ())
    return ScheduleAgent(found, name, privacy, core.model.context, by_context)


FACTORIES: dict[str, Factory] = {"uncontrolled": uncontrolled, "ad-hoc": ad_hoc, "best-price": best_price}
