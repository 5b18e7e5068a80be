r"""Agents that plan: all actions in advance, one for each time and context, or again at each step (rolling).

uncontrolled
    Leave the loads alone.
ad-hoc
    Today's practice: a fixed shed during the event only, sized by the price of the current interval. No look-ahead (it
    starts with the event, not with the notice) and no model.
best-price
    The best constant price, see `best_constant_price`.
myopic
    A tilt by the expected utility of the next interval alone.
without-data
    The optimal plan for the scenario's textbook behaviour, or for a lazy walk if there is no textbook. A plan that uses
    private data must score higher.
open-loop, blind
    Bounds in hindsight: the best tilts by time alone, and the best tilts by time and the context shown. Neither uses
    the shares or a memory.
standard; taylor, digamma, average-...
    The optimal policy; the closed-form policies that expect the noise of a Dirichlet release.
rolling
    Solves again at each step, from the occupancy that it observes: the true shares, which no epsilon covers.

A price is a tilt of the default behaviour that is linear in power, :math:`\pi_t[b] \propto P[b]\,\exp(-c_t x)` with
:math:`x` the power rescaled to [-1, 1]; every action mode has prices, or the nearest tilts to them. A tilt is played in
the modes ``tilt`` and ``policy``, and wherever a mode can express it. Every policy can be played in the mode
``policy``. A plan is scored by the actions that it plays, clipped to the box of its action mode.

A plan computed from the true behaviour protects nobody, even if it expects noise; a plan computed from a release
(``release=``) costs nothing beyond the release. Its `privacy` says which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

from dp_ensemble_env.agents.base import Core, FloatArray, Kind, ScheduleAgent, core_env, privacy_of
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import POLICIES, solve_policy, tilted_policy
from dp_ensemble_env.control.returns import ExactReturn, myopic_tilts, optimal_tilts
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.actions import action_scale, price_tilts
from dp_ensemble_env.envs.tables import observed_price
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.public import public_guess
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.scenarios import environment_id
from dp_ensemble_env.scenarios import names as scenario_names
from dp_ensemble_env.tools.validation import ON_COMMAND_LINE, check_positive, option

PUBLIC = "nothing is revealed: it uses public prices alone"
#: Prices between which `best_constant_price` looks for stationary ones.
PRICES = np.linspace(-1.0, 1.0, 81)


# ------------------------------------------------------------------ prices
def uncontrolled(env: Any) -> ScheduleAgent:
    """Make the agent that never interferes."""
    core = core_env(env)
    return play_prices(core, np.zeros(core.model.horizon), "uncontrolled", "nothing is computed")


def ad_hoc(env: Any, shed: float = 1.0) -> ScheduleAgent:
    """Make today's practice, a fixed shed in every interval of the event; see `shed_prices`."""
    core = core_env(env)
    return play_prices(core, shed_prices(core.model, check_positive(shed, "shed")), "ad-hoc", PUBLIC)


def best_price(env: Any, release: Release | None = None) -> ScheduleAgent:
    """Make the best constant price, of the environment's own matrix or of a release."""
    core = core_env(env)
    price = best_constant_price(planned_on(core, release))
    privacy = privacy_of(core, "none: one number computed from the true matrix", release)
    return play_prices(core, np.full(core.model.horizon, price), "best-price", privacy)


def shed_prices(model: EnsembleModel, shed: float = 1.0) -> FloatArray:
    r"""Return the prices (T,) of the ad-hoc rule, in units of the scale; (T, c) where there is a context.

    During the event, and only then, the tilt is :math:`c = s (\max U - \min U) / 2\gamma` times the power, with `s` the
    strength `shed`: it answers the price of the running interval alone. In a context it is the price expected of that
    interval, and may be negative.
    """
    worth = np.ptp(model.utility, axis=-1)[1:]
    if model.context is not None:
        shape = model.horizon + 1, model.n_contexts
        price = np.broadcast_to(observed_price(model).reshape(model.horizon + 1, -1), shape)
        expected = np.einsum("twv,tv->tw", model.tables().context, price[1:])
        worth = expected * model.step_hours * np.ptp(model.power_kw)
    strength = shed * worth / (2.0 * model.discomfort_penalty)
    axes = (-1, *(1,) * (strength.ndim - 1))
    if model.event is not None:
        strength = np.where(model.event.in_event[1:].reshape(axes), strength, 0.0)
    scale = action_scale(model).reshape(axes)
    prices: FloatArray = np.divide(strength, scale, out=np.zeros_like(strength), where=scale > 0)
    return prices


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
    stationary = [float(brentq(slope, PRICES[i], PRICES[i + 1], xtol=1e-12)) for i in rising]
    return max((0.0, *stationary, -1.0, 1.0), key=lambda price: returns(price * unit))


# ------------------------------------------------------------------ tilts
def public_plan(env: Any, name: str, tilts: Callable[[EnsembleModel], FloatArray]) -> ScheduleAgent:
    """Make the agent that plays tilts which use no private data (epsilon = 0)."""
    core = core_env(env)
    return play_tilts(core, tilts(core.model), name, PUBLIC, clip=True)


def plan_without_data(model: EnsembleModel) -> FloatArray:
    """Return the tilts (T, c, m) planned on the textbook behaviour, or on a lazy walk if there is none (epsilon = 0).

    The textbook is the model's `guess`. The walk and its settings are fixed: see `PublicMechanism`.
    """
    return optimal_tilts(model.with_default(public_guess(model).matrix))


def in_hindsight(env: Any, shown: bool = False) -> ScheduleAgent:
    """Make the best plan by time, or by time and what is `shown` of the context, that a search on the truth finds."""
    core = core_env(env)
    model = core.model
    groups = model.context.shown if shown and model.context is not None else np.zeros(model.n_contexts, int)
    returns, best = ExactReturn(model), optimal_tilts(model)
    chances = np.ones((model.horizon, 1)) if model.context is None else model.context.distributions(model.horizon)[:-1]
    member = np.eye(int(groups.max()) + 1)[groups]
    weight = np.einsum("tw,wg->tg", chances, member)[..., None]
    total = np.einsum("tw,wg,twm->tgm", chances, member, best)
    mean = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
    idle = returns(0.0)
    unit = max(abs(idle), 1e-9)

    def loss(y: FloatArray) -> tuple[float, FloatArray]:
        value, slope = returns.with_gradient(np.einsum("wg,tga->twa", member, y.reshape(mean.shape)))
        return (idle - value) / unit, -np.einsum("wg,twa->tga", member, slope).ravel() / unit

    options = {"maxiter": 400, "maxfun": 800, "ftol": 1e-11, "gtol": 1e-9}
    starts = (np.zeros(mean.size), mean.ravel())
    climbs: list[Any] = [minimize(loss, x, jac=True, method="L-BFGS-B", options=options) for x in starts]
    climbed = min(climbs, key=lambda climb: climb.fun).x.reshape(mean.shape)
    name, words = ("blind" if shown else "open-loop"), "none: computed from the true behaviour, in hindsight"
    return play_tilts(core, np.einsum("wg,tga->twa", member, climbed), name, words, clip=True)


# ------------------------------------------------------------------ policies
def analytical(
    env: Any,
    name: str,
    k: float | None = None,
    release: Release | None = None,
    samples: int = 1000,
    seed: int | None = 0,
) -> ScheduleAgent:
    """Solve one of `POLICIES` and return the agent that plays it.

    The concentration `k` of the noise that the policy expects is by default that of the release, or of the
    environment's release; `samples` and `seed` are those of the sampled average. A plan made on a `release` is deployed
    as it is in the policy mode, without the moves that the loads never make, and as a tilt of their behaviour elsewhere
    (the standard policy).
    """
    core = core_env(env)
    model, source = planned_on(core, release), release or core.release
    exact = "none: " if name == "standard" else "noise-aware, not private: "
    draws = f"that of {samples:,} releases together" if name == "average-sampled" else None
    privacy = privacy_of(core, draws or f"{exact}computed from the true matrix", release)
    if name == "standard" and core.action_mode != "policy":
        return play_tilts(core, optimal_tilts(model), name, privacy, clip=source is not None)
    if k is None and name != "standard":
        k = source.k if source is not None else None
    settings: dict[str, Any] = {"samples": samples, "rng": seed} if name == "average-sampled" else {}
    policy = solve_policy(model, name, k, **settings)
    return PolicyAgent(core, policy if release is None else on_support(policy, core.model), name, privacy)


def planned_on(core: Core, release: Release | None) -> EnsembleModel:
    """Return the model that a plan is made on: the environment's own, or what may be handed out with a release."""
    return core.model if release is None else core.model.public(release)


def on_support(policy: FloatArray, model: EnsembleModel) -> FloatArray:
    """Leave out the moves that the model's loads never make; an empty row becomes the default's."""
    kept = np.where(model.default_policy > 0, policy, 0.0)
    total = kept.sum(axis=-1, keepdims=True)
    masked: FloatArray = np.where(total > 0, kept / np.where(total > 0, total, 1.0), model.default_policy)
    return masked


# ------------------------------------------------------------------ from plans to actions
def play_prices(core: Core, prices: FloatArray, name: str, privacy: str) -> ScheduleAgent:
    """Make the agent that plays prices (T,) or (T, c), clipped to [-1, 1], in any action mode."""
    model, mode, clipped = core.model, actions.mode(core.action_mode), np.clip(prices, -1.0, 1.0)
    if mode.basis is not None:  # exact where the basis holds the power levels and the box is wide enough
        numbers: NDArray[Any] = actions.actions_of(mode, model, price_tilts(model, clipped))
    elif not clipped.any():  # zero stands for the default itself, without rounding
        numbers = np.zeros((model.horizon, *mode.shape(model)))
    else:
        numbers = tilted_policy(model, price_tilts(model, clipped))
    by_context = numbers.ndim - 1 > len(mode.shape(model))  # a policy is another one in each context
    return ScheduleAgent(numbers, name, privacy, core.layout, by_context)


def play_tilts(core: Core, tilts: FloatArray, name: str, privacy: str, *, clip: bool) -> ScheduleAgent:
    """Make the agent that plays tilts (T, c, m) in nats; what leaves the box is clipped, or refused.

    A mode of few numbers plays them only if it can express them.
    """
    nats, contexts = plain_tilts(core.model, tilts), core.model.context is not None
    if actions.mode(core.action_mode).tilt:
        numbers = actions.centred_actions(core.model, nats, strict=not clip)
        return ScheduleAgent(numbers, name, privacy, core.layout, contexts)
    return PolicyAgent(core, tilted_policy(core.model, nats), name, privacy, needs="tilt")


def plain_tilts(model: EnsembleModel, tilts: FloatArray) -> FloatArray:
    """Return tilts (T, c, m) without the axis of the contexts where there is none."""
    return tilts if model.context is not None else tilts[:, 0]


class PolicyAgent(ScheduleAgent):
    """Plays a policy of shape (T, n, m), or (T, c, n, m) where there is a context; a refusal names the mode it needs.

    `name` and `privacy` are those of `ScheduleAgent`.
    """

    def __init__(
        self, env: Any, policy: FloatArray, name: str = "policy", privacy: str = "unknown", needs: str = "policy"
    ) -> None:
        core = core_env(env)
        model, expected = core.model, core.model.default_policy.shape
        if np.shape(policy) != expected:
            axes = "(T, n, n)" if model.is_plain else "(T, n, m)" if model.context is None else "(T, c, n, m)"
            raise ValueError(
                f"policy has shape {np.shape(policy)}, the environment needs {axes} = "
                f"({', '.join(map(str, expected))})."
            )
        self.policy = policy
        try:
            numbers = np.stack([_encoded(core, policy[t], t) for t in range(model.horizon)])
        except ValueError as error:
            if core.action_mode == "policy":
                raise
            known = model.scenario in scenario_names() and not ON_COMMAND_LINE.get()
            where = f" ({environment_id(model.scenario, needs).partition('/')[2]})" if known else ""
            raise ValueError(
                f"agent {name!r} needs {needs} actions, not {core.action_mode}; use {option('action', needs)}{where}."
            ) from error
        super().__init__(numbers, name, privacy, core.layout, by_context=model.context is not None)


def _encoded(core: Core, policy_t: FloatArray, t: int) -> NDArray[Any]:
    """Return the action of a step, or one for each context, with all digits."""
    if policy_t.ndim == 2:
        return core.encode_policy(policy_t, t, np.float64)
    return np.stack([core.encode_policy(rows, t, np.float64, w) for w, rows in enumerate(policy_t)])


# ------------------------------------------------------------------ anew at each step
class RollingPlanner:
    """Plays the first decision of the plan from here on, in tilt or policy mode, on the environment's own model."""

    def __init__(self, env: Any) -> None:
        core = core_env(env)
        self.model, self.layout, self.mode = core.model, core.layout, actions.mode(core.action_mode)
        if not self.model.shares_shown:
            raise ValueError("a rolling planner needs to see the shares, which this scenario hides; use 'standard'.")
        if self.mode.basis is not None and not self.mode.tilt:
            raise ValueError(f"a rolling planner plays tilts, not {core.action_mode}; pass {option('action', 'tilt')}.")
        self.privacy = privacy_of(core, "none: computed from the true matrix")
        self._known: dict[tuple[int, int, bytes], NDArray[Any]] = {}

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.float32], Any]:
        """Plan from each observation, and return the first action of the plan."""
        seen = np.atleast_2d(np.asarray(observation, float))
        times, contexts = np.atleast_1d(self.layout.time(seen)), self.layout.follow(seen, state)
        shares = np.round(seen[:, : self.model.n_states], 7)  # observations have single precision
        chosen = [self._first(int(t), int(w), rho) for t, w, rho in zip(times, contexts, shares, strict=True)]
        action = np.asarray(chosen, np.float32)
        return (action if np.ndim(observation) > 1 else action[0]), contexts

    def _first(self, time: int, context: int, shares: FloatArray) -> NDArray[Any]:
        key = time, context, shares.tobytes()
        if key not in self._known:
            model = remaining(self.model, time, context, shares / shares.sum())
            tilts = plain_tilts(model, optimal_tilts(model))
            as_actions = partial(actions.centred_actions, strict=False) if self.mode.tilt else tilted_policy
            numbers: NDArray[Any] = as_actions(model, tilts)[0]
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


KINDS: dict[str, Kind] = {
    "uncontrolled": Kind(uncontrolled),
    "ad-hoc": Kind(ad_hoc),
    "best-price": Kind(best_price),
    "myopic": Kind(partial(public_plan, name="myopic", tilts=myopic_tilts)),
    "without-data": Kind(partial(public_plan, name="without-data", tilts=plan_without_data)),
    "open-loop": Kind(in_hindsight),
    "blind": Kind(partial(in_hindsight, shown=True)),
    "rolling": Kind(RollingPlanner),
    **{name: Kind(partial(analytical, name=name)) for name in POLICIES},
}
