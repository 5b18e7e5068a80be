r"""The exact optimum of a coupled problem, by its dual.

A model with a `Coupling` earns :math:`J(\pi) - \sum_t f_t(x_t)`, where :math:`J` is the expected utility less
discomfort and :math:`x_t` the mean power per load. The problem is convex in the flows, so with one multiplier
:math:`\lambda_t` a step the convex function

.. math:: D(\lambda) = J^*(U_t - \lambda_t\,p) + \sum_t f_t^*(\lambda_t), \qquad
          \partial D/\partial\lambda_t = f_t^{*\prime}(\lambda_t) - x_t(\lambda),

bounds the optimum from above and meets it at its minimum. The optimal policy is that of the plain problem with the
price of power raised by the shadow price :math:`\lambda_t`; it is the derivative of the optimum with respect to the
target or the limit at `t`. What any other policy :math:`Q` loses is exactly

.. math:: E_Q \sum_t \gamma\,\mathrm{KL}(Q_t \| \pi^*_t)
          + \sum_t \bigl(f_t(x^Q_t) + f_t^*(\lambda_t) - \lambda_t x^Q_t\bigr).

**Contexts.** If time and context tell the whole past (every `(t, w)` can be reached in one way only), the mean power
given the context, :math:`x_t[w]`, is a function of them. Then there is one multiplier a node, and costs and conjugates
count with the probability :math:`p_t(w)` of the node:
:math:`D(\lambda) = J^*(U_t[w] - \lambda_t[w]\,p) + \sum_t\sum_w p_t(w) f_t^*(\lambda_t[w])`.

**Finite populations.** The costs are convex, so by Jensen's inequality the optimum of the mean field is an upper bound
for every finite population.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from scipy.optimize import minimize

from dp_ensemble_env.control.kernel import default_kernel, world
from dp_ensemble_env.control.lsmdp import Solution, solve
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.model import EnsembleModel, FloatArray
from dp_ensemble_env.shapes import Tables
from dp_ensemble_env.tools.validation import check_instance, check_positive

#: A hard cap is aimed at this fraction of the power's range below it, so that the policy found keeps it exactly.
MARGIN = 1e-11
#: Largest shadow price tried, in multiples of the one that is worth a nat over the whole range of power.
HIGHEST_PRICE = 1e5
NEWTON_STEPS = 60
#: A gap of this size, relative to the return, needs no Newton steps: they cost as many solutions as there are nodes.
ENOUGH = 1e-13


@dataclass(frozen=True, eq=False, kw_only=True)
class CoupledSolution(Solution):
    """The optimal control of a coupled problem, with its certificate.

    The value function (`log_desirability`, `cost_to_go`) belongs to the plain problem with the price of power raised by
    the shadow prices; the policy is optimal for the coupled problem.
    """

    shadow_price: FloatArray = field(repr=False)
    """Dollars per kW of mean power at the times 1 … T, (T,) or with a context (T, c); zero in unreachable contexts."""
    power_kw: FloatArray = field(repr=False)
    """Mean power per load under the policy, (T + 1,) or (T + 1, c); zero in unreachable contexts."""
    primal: float
    """Expected return of the policy from the model's initial distribution, in dollars per load."""
    dual: float
    """Upper bound on the return of every policy."""
    gap: float
    """Difference of the two."""

    def __repr__(self) -> str:
        times, n = self.log_desirability.shape[0], self.log_desirability.shape[-1]
        return f"CoupledSolution({n:,} states, {times - 1:,} steps, return {self.primal:.6g}, gap {self.gap:.1e})"


def solve_coupled(model: EnsembleModel, tolerance: float = 1e-6) -> CoupledSolution:
    """Solve a model with a coupling, whose loads start spread over the states, and certify the optimum.

    `tolerance` is the largest accepted gap between primal and dual, relative to the larger of one dollar and their
    size. The gap is usually zero up to rounding. Raises an error if a hard cap cannot be kept (the dual is unbounded)
    or the gap exceeds the tolerance.

    Examples
    --------
    >>> import numpy as np
    >>> from dp_ensemble_env.coupling import Coupling
    >>> from dp_ensemble_env.model import EnsembleModel
    >>> model = EnsembleModel(
    ...     [[0.5, 0.5], [0.5, 0.5]], [0.0, 1.0], np.zeros((2, 2)), 1.0,
    ...     spread_start=True, coupling=Coupling.limit([1.0, 0.25]),
    ... )
    >>> solution = solve_coupled(model)  # log 3 dollars per kW move a half to a quarter
    >>> solution.shadow_price.round(4), solution.power_kw.round(4)
    (array([1.0986]), array([0.5 , 0.25]))
    """
    check_instance(model, EnsembleModel, "model")
    if model.coupling is None:
        raise ValueError("the model has no coupling; pass EnsembleModel(..., coupling=...), or use solve_standard.")
    tolerance = check_positive(tolerance, "tolerance")
    if (solution := _SOLVED.get(model)) is None:
        solution = _SOLVED[model] = _certified(model, model.coupling)
    if solution.gap > tolerance * max(1.0, abs(solution.primal)):
        raise ValueError(
            f"the optimum could be certified to ${solution.gap:.2g} only (return {solution.primal:.6g}); scale the "
            "coupling's weight nearer to the discomfort penalty, or accept it: "
            f"solve_coupled(model, tolerance={2 * solution.gap / max(1.0, abs(solution.primal)):.1g})."
        )
    return solution


#: What was found for each model that is still in use: reports ask for the same optimum many times.
_SOLVED: WeakKeyDictionary[EnsembleModel, CoupledSolution] = WeakKeyDictionary()


def _certified(model: EnsembleModel, coupling: Coupling) -> CoupledSolution:
    """Minimise the dual, recover the policy and measure the gap."""
    dual = _Dual(model, coupling)
    price, nodes = dual.minimise(), dual.nodes
    at = dual.at(price)
    charged = nodes.expected(coupling.cost(nodes.time + 1, at.power))
    if coupling.is_hard and not np.isfinite(charged):
        raise ValueError(_infeasible(nodes, at, price))
    gap = dual.gap(price)
    primal = at.value + nodes.expected(price * at.power) - charged
    inherited = {item.name: getattr(at.solution, item.name) for item in fields(Solution)}
    first = at.occupancy[0] @ model.power_kw / np.where(at.chance[0] > 0, at.chance[0], 1.0)
    spread = nodes.spread(price), np.vstack([first, nodes.spread(at.power)])
    shadow, power = spread if model.context is not None else (spread[0][:, 0], spread[1][:, 0])
    for array in (shadow, power):
        array.setflags(write=False)
    return CoupledSolution(**inherited, shadow_price=shadow, power_kw=power, primal=primal, dual=primal + gap, gap=gap)


class _Nodes:
    """The times 1 … T and contexts that can be, one after the other; `time` counts from 0 for the first of them."""

    def __init__(self, model: EnsembleModel, coupling: Coupling) -> None:
        self.model, self.coupling = model, coupling
        chance = np.ones((model.horizon + 1, 1))
        if model.context is not None:
            chance = model.context.distributions(model.horizon)
        self.time, self.context = np.nonzero(chance[1:] > 0)
        self.chance = chance[1:][self.time, self.context]
        self.shape = chance[1:].shape

    def spread(self, values: FloatArray) -> FloatArray:
        """Lay values of the nodes out as (T, c), zero where no node is."""
        out = np.zeros(self.shape)
        out[self.time, self.context] = values
        return out

    def expected(self, values: FloatArray) -> float:
        """Return the sum over time of the mean over contexts."""
        return float(self.chance @ values)


class _Point:
    """The plain problem at one vector of multipliers: solution, flows and the mean power of every node."""

    def __init__(self, nodes: _Nodes, price: FloatArray, tables: Tables) -> None:
        model = nodes.model
        _, nature, moves, utility = tables
        self._nodes, self._nature, self._moves = nodes, nature, moves
        shifted = utility.copy()
        shifted[1:] -= nodes.spread(price)[..., None] * model.power_kw
        given = shifted if model.context is not None else shifted[:, 0]
        self.solution = solve(default_kernel(model), given, model.discomfort_penalty, **world(model))
        self.policy = self.solution.policy.reshape(model.horizon, nodes.shape[1], model.n_states, model.n_decisions)
        rho = np.empty_like(shifted)
        rho[0] = model.start_weights
        for t in range(model.horizon):
            rho[t + 1] = moves[t].T @ ((rho[t][:, None] @ self.policy[t]) @ nature[t])[:, 0]
        self.occupancy, self.chance = rho, rho.sum(axis=-1)
        #: J*(U - price * power), the value of the plain problem from the initial distribution.
        value = -self.solution.cost_to_go[0].reshape(utility[0].shape) - utility[0]
        self.value = float((model.start_weights * value).sum())
        self.power = (rho[1:] @ model.power_kw)[nodes.time, nodes.context] / nodes.chance

    @cached_property
    def sensitivity(self) -> FloatArray:
        """Derivative of chance times mean power of the nodes (rows) by the multipliers (columns); symmetric."""
        nodes, model, horizon = self._nodes, self._nodes.model, self._nodes.model.horizon
        count, contexts = len(nodes.time), nodes.shape[1]
        here = [np.flatnonzero(nodes.time == t) for t in range(horizon)]
        ahead = np.zeros((horizon, contexts, model.n_decisions, count))  # of the tilts
        value = np.zeros((contexts, model.n_states, count))  # of the log-desirability
        for t in range(horizon - 1, -1, -1):
            value[nodes.context[here[t]], :, here[t]] -= model.power_kw / model.discomfort_penalty
            ahead[t] = self._nature[t] @ np.einsum("wv,vsk->wsk", self._moves[t], value)
            value = self.policy[t] @ ahead[t]
        out = np.empty((count, count))
        moved = np.zeros((contexts, model.n_states, count))  # derivative of the occupancy
        for t in range(horizon):
            policy, rho, tilt = self.policy[t], self.occupancy[t], ahead[t]
            back = policy.transpose(0, 2, 1)
            flow = (rho[:, None] @ policy).transpose(0, 2, 1) * tilt - back @ (rho[..., None] * (policy @ tilt))
            led = self._nature[t].transpose(0, 2, 1) @ (back @ moved + flow)
            moved = np.einsum("wv,wsk->vsk", self._moves[t], led)
            out[here[t]] = np.einsum("s,jsk->jk", model.power_kw, moved[nodes.context[here[t]]])
        return out


class _Dual:
    """D and its minimum within the bounds of the multipliers, one for each node."""

    def __init__(self, model: EnsembleModel, coupling: Coupling) -> None:
        self._model, self.nodes = model, _Nodes(model, coupling)
        self._tables = model.tables()
        span = float(np.ptp(model.power_kw)) or 1.0
        #: The price that is worth a nat over the whole range of power.
        self._unit, self._span = model.discomfort_penalty / span, span
        self._coupling, self._time = coupling, self.nodes.time + 1
        margin = MARGIN * max(span, float(model.power_kw.max()))
        self._aim = np.where(np.isinf(coupling.weight[self._time]), margin, 0.0)
        self.low, self.high = coupling.bounds(self._time)
        self._last: tuple[bytes, _Point] | None = None

    def at(self, price: FloatArray) -> _Point:
        key = price.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, _Point(self.nodes, price, self._tables)
        return self._last[1]

    def _value(self, price: FloatArray) -> tuple[float, FloatArray]:
        at, chance = self.at(price), self.nodes.chance
        value = at.value + float(chance @ (self._coupling.conjugate(self._time, price) - self._aim * price))
        return value, chance * (self._coupling.conjugate_derivative(self._time, price) - self._aim - at.power)

    def gap(self, price: FloatArray) -> float:
        """Return what the dual lies above the return of the policy at these prices."""
        return self.nodes.expected(self._coupling.excess(self._time, price, self.at(price).power))

    def minimise(self) -> FloatArray:
        """Quasi-Newton steps to the neighbourhood, then Newton steps on the multipliers that are free to move."""
        high = np.minimum(self.high, HIGHEST_PRICE * self._unit) if self._coupling.is_hard else self.high
        scale, penalty = self._unit, self._model.discomfort_penalty

        def scaled(y: FloatArray) -> tuple[float, FloatArray]:
            value, slope = self._value(y * scale)
            return value / penalty, slope * (scale / penalty)

        bounds = list(zip(self.low / scale, high / scale, strict=True))
        options = {"maxiter": 2000, "maxfun": 4000, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-10}
        least: Any = minimize(scaled, np.zeros_like(high), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        price = np.clip(least.x * scale, self.low, high)
        return price if self.gap(price) <= ENOUGH * max(1.0, abs(least.fun) * penalty) else self._polish(price, high)

    def _polish(self, price: FloatArray, high: FloatArray) -> FloatArray:
        """Newton steps as long as they lessen the dual or, once that is down to rounding, its gradient."""
        wanted, zero = self._coupling.conjugate_derivative, np.zeros_like(self.low)
        curvature = np.diag(self.nodes.chance * (wanted(self._time, zero + 1.0) - wanted(self._time, zero)))
        best, residual = self._merit(price, high)
        for _ in range(NEWTON_STEPS):
            _, slope = self._value(price)
            hessian = curvature - self.at(price).sensitivity
            rounding = 1e-14 * abs(best)
            for trial in self._trials(price, slope, hessian, high):
                value, left = self._merit(trial, high)
                if value < best - rounding or (value <= best + rounding and left < residual):
                    break
            else:
                break
            price, best, residual = trial, value, left
        return price

    def _trials(
        self, price: FloatArray, slope: FloatArray, hessian: FloatArray, high: FloatArray
    ) -> Iterator[FloatArray]:
        """Yield points that a Newton step may lead to, the boldest first.

        A multiplier that its own curvature would take past a bound goes there, and the others are solved for. Where
        the power hardly answers to the prices the matrix is nearly singular: then shorter and damped steps.
        """
        least = 1e-14 * max(float(np.diag(hessian).max()), 1e-6 * self._span / self._unit)
        reach = slope / np.maximum(np.diag(hessian), least)
        for boldness, damping in product((1.0, 1e2, 1e4, 0.0), (0.0, 1e3, 1e6, 1e9)):
            ahead = price - boldness * reach
            low_end, high_end = (ahead <= self.low) & (slope > 0), (ahead >= high) & (slope < 0)
            step = np.where(low_end, self.low - price, np.where(high_end, high - price, 0.0))
            free = ~low_end & ~high_end & (self.low < high)
            if free.any():
                matrix = hessian[np.ix_(free, free)] + damping * least * np.eye(int(free.sum()))
                step[free] = -np.linalg.lstsq(matrix, (slope + hessian @ step)[free], rcond=None)[0]
            length = float(np.abs(step).max()) / self._unit
            for radius in (np.inf, 4.0, 1.0, 0.1, 0.01):
                if radius == np.inf or radius < length:
                    yield np.clip(price + min(1.0, radius / max(length, 1e-300)) * step, self.low, high)

    def _merit(self, price: FloatArray, high: FloatArray) -> tuple[float, float]:
        """Return D, and the largest part of its gradient that the bounds leave, in kW."""
        value, slope = self._value(price)
        step = np.clip(price - slope / self.nodes.chance * self._unit, self.low, high) - price
        return value, float(np.abs(step).max() / self._unit)


def _infeasible(nodes: _Nodes, at: _Point, price: FloatArray) -> str:
    coupling, time = nodes.coupling, nodes.time + 1
    over = np.where(np.isinf(coupling.weight[time]), coupling.violation(time, at.power), 0.0)
    i = int(np.argmax(over))
    t, context = int(time[i]), nodes.model.context
    where = "" if context is None else f" in the context {context.names[nodes.context[i]]!r}"
    return (
        f"the loads cannot keep the hard cap of {coupling.level[t]:.6g} kW per load at time {t}{where}: even for "
        f"${price[i]:.3g} per kW they draw {at.power[i]:.6g} kW, {over[i]:.3g} kW too much, starting from their "
        f"distribution at time 0; raise the limit there, or give it a finite weight, which charges the excess."
    )
