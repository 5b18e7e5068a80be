r"""A joint cost of the loads: a target for their mean power, or a limit on it.

With :math:`x_t` the mean power of a load at time :math:`t = 1 \ldots T`, in kW, a coupling takes a convex cost
:math:`f_t(x_t)` off the reward of the decision that leads to time `t`:

- tracking a target: :math:`f_t(x) = w_t\,(x - r_t)^2`;
- keeping below a limit: :math:`f_t(x) = w_t \max(0, x - c_t)`, and :math:`w_t = \infty` is a hard cap.

The optimum is found with one multiplier a step, the shadow price :math:`\lambda_t` in dollars per kW (see
`dp_ensemble_env.control.coupled`); for it the convex conjugate :math:`f_t^*(\lambda) = \sup_x \lambda x - f_t(x)` and
its derivative are here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_ensemble_env.context import Context
from dp_ensemble_env.shapes import freeze
from dp_ensemble_env.tools.validation import as_float_array, as_numeric_array, check_choice

FloatArray = NDArray[np.float64]

#: Kinds of coupling; the position is the code of `Coupling.packed`.
KINDS = ("tracking", "limit")


@dataclass(frozen=True, eq=False)
class Coupling:
    """A convex cost of the mean power per load at each time; public.

    Use `Coupling.tracking` or `Coupling.limit`. In the methods `t` is a time from 0 to T, or any index into the times,
    and the other arguments are of its shape or broadcast to it.
    """

    kind: str
    level: FloatArray = field(repr=False)
    """Target or limit in kW per load, (T + 1,); ``inf`` without a limit. Entry 0 is for pictures only."""
    weight: FloatArray = field(repr=False)
    """Dollars per load and step, (T + 1,): per kW² off the target, or per kW above the limit.

    Zero where nothing is asked; entry 0 and entries without a limit are always zero.
    """

    def __post_init__(self) -> None:
        check_choice(self.kind, "kind of coupling", KINDS)
        limited = self.kind == "limit"
        name = "limit" if limited else "target"
        level = as_numeric_array(self.level, name, 1)
        unlimited = limited & (level == np.inf)
        as_float_array(np.where(unlimited, 0.0, level), name)
        if len(level) < 2:
            raise ValueError(
                f"{name} must have T + 1 entries, one per time 0 … T (T >= 1), got {len(level)}; for a constant one "
                f"pass numpy.full(model.horizon + 1, kw)."
            )
        weight = as_numeric_array(self.weight, "weight", (0, 1))
        if weight.ndim and weight.shape != level.shape:
            raise ValueError(
                f"weight has {len(weight)} entries but the {name} {len(level)}; pass one number, or one per time."
            )
        weight = np.broadcast_to(weight, level.shape).copy()
        wrong = np.isnan(weight) | (weight < 0) | (np.isinf(weight) & (not limited))
        if wrong.any():
            t = int(np.argmax(wrong))
            remedy = "pass weights >= 0" + (" (inf is a hard cap)" if limited else ", all finite")
            raise ValueError(f"weight at time {t} is {weight[t]:g}, so the cost is not convex; {remedy}.")
        weight[0] = 0.0
        weight[unlimited] = 0.0
        freeze(self, level=level, weight=weight)

    @classmethod
    def tracking(cls, target: ArrayLike, weight: ArrayLike) -> Coupling:
        """Charge ``weight * (x - target)**2`` at every time: follow a signal (T + 1,), in kW per load.

        `weight` is dollars per kW², load and step, a number or one for each time (T + 1,).
        """
        return cls("tracking", np.asarray(target), np.asarray(weight))

    @classmethod
    def limit(cls, limit: ArrayLike, weight: ArrayLike = np.inf) -> Coupling:
        """Charge ``weight * max(0, x - limit)`` at every time: stay below a feeder's rating (T + 1,), in kW per load.

        `weight` is dollars per kW, load and step, a number or one for each time. By default it is ``inf``, a hard cap:
        good for planning, but an environment needs a finite one. Any weight above the largest shadow price has the
        optimum of the hard cap.
        """
        return cls("limit", np.asarray(limit), np.asarray(weight))

    def __repr__(self) -> str:
        asked = self.weight > 0
        if not asked.any():
            return f"Coupling({self.kind}, {self.horizon} steps, weight 0)"
        low, high = self.level[asked].min(), self.level[asked].max()
        kw = f"{low:.4g}" if low == high else f"{low:.4g} … {high:.4g}"
        per = "kW²" if self.kind == "tracking" else "kW"
        most = self.weight.max()
        weight = "hard" if np.isinf(most) else f"${most:.4g} per {per}"
        return f"Coupling({self.kind}, {self.horizon} steps, {kw} kW per load, {weight})"

    @property
    def horizon(self) -> int:
        """Number of steps, T."""
        return len(self.level) - 1

    @property
    def is_hard(self) -> bool:
        """Whether the limit is a hard cap at some time."""
        return bool(np.isinf(self.weight).any())

    def check(self, horizon: int, context: Context | None, spread_start: bool) -> None:
        """Refuse a problem whose optimum under this coupling is not known, or that has another horizon."""
        if not spread_start:
            raise ValueError(
                "a coupling needs loads that start spread over the states, since its exact optimum is known only "
                "there; pass spread_start=True."
            )
        if context is not None and (place := context.branching(horizon)) is not None:
            raise ValueError(
                f"a coupling needs a context that tells its own past, but {context.names[place[1]]!r} at time "
                f"{place[0]} can be reached in two ways; split that context, or leave the coupling out."
            )
        if self.horizon != horizon:
            raise ValueError(
                f"the coupling covers {self.horizon} steps but the horizon is {horizon}; give it {horizon + 1} levels, "
                "one per time."
            )

    # ------------------------------------------------------------ values
    def violation(self, t: Any, x: ArrayLike) -> Any:
        """Return by how much `x` kW per load misses the target or exceeds the limit at time `t`; else 0."""
        miss = np.asarray(x, float) - self.level[t]
        off = np.abs(miss) if self.kind == "tracking" else np.maximum(miss, 0.0)
        return np.where(self.weight[t] > 0, off, 0.0)[()]

    def cost(self, t: Any, x: ArrayLike) -> Any:
        """Dollars per load of `x` kW per load at time `t`, infinite above a hard cap."""
        off = self.violation(t, x)
        with np.errstate(invalid="ignore"):
            price = self.weight[t] * (off**2 if self.kind == "tracking" else off)
        return np.where(off > 0, price, 0.0)[()]

    def slope(self, t: Any, x: FloatArray) -> FloatArray:
        """Return the derivative of the cost by `x`; above a limit alone, if it is just met."""
        off, weight = self.violation(t, x), self.weight[t]
        if self.kind == "tracking":
            return np.asarray(2.0 * weight * off * np.sign(x - self.level[t]))
        return np.asarray(weight * (off > 0))

    def total(self, x: ArrayLike) -> Any:
        """Cost in dollars per load of a path `x` of shape (…, T + 1), summed over the times 1 … T."""
        return self.cost(slice(None), x).sum(axis=-1)

    # ------------------------------------------------------------ duality, at times from 1 on
    def bounds(self, t: Any) -> tuple[FloatArray, FloatArray]:
        """Least and largest multiplier with a finite conjugate."""
        weight = self.weight[t]
        if self.kind == "tracking":
            most = np.where(weight > 0, np.inf, 0.0)
            return -most, most
        return np.zeros_like(weight), weight

    def excess(self, t: Any, multiplier: ArrayLike, x: ArrayLike) -> FloatArray:
        r"""Return :math:`f_t(x_t) + f_t^*(\lambda_t) - \lambda_t x_t \ge 0`, zero where the two fit.

        Their sum over time is the gap between the primal and the dual value (Fenchel and Young), for multipliers within
        the `bounds`. Computed without cancellation: for a target it is :math:`w (x - f^{*\prime}(\lambda))^2`.
        """
        price, weight = np.asarray(multiplier, float), self.weight[t]
        miss = np.asarray(x, float) - self.conjugate_derivative(t, price)
        if self.kind == "tracking":
            return np.asarray(weight * miss**2)
        with np.errstate(invalid="ignore"):
            return np.where(weight > 0, np.where(miss > 0, (weight - price) * miss, -price * miss), 0.0)

    def conjugate(self, t: Any, multiplier: ArrayLike) -> FloatArray:
        """Return f* at multipliers that lie within the `bounds`."""
        level, inverse = self._inverse(t)
        price = np.asarray(multiplier, float)
        return np.asarray(price * level + price**2 * inverse / 2.0)

    def conjugate_derivative(self, t: Any, multiplier: ArrayLike) -> FloatArray:
        """Return the derivative of f* at multipliers: the power that they ask for."""
        level, inverse = self._inverse(t)
        return np.asarray(level + np.asarray(multiplier, float) * inverse)

    def _inverse(self, t: Any) -> tuple[FloatArray, FloatArray]:
        """Return the levels, zero without a limit (as the multiplier is), and 1 / (2 w) for a target, else 0."""
        level, weight = self.level[t], self.weight[t]
        squared = (weight > 0) & (self.kind == "tracking")
        return np.where(np.isfinite(level), level, 0.0), np.where(squared, 0.5 / np.where(squared, weight, 1.0), 0.0)

    def packed(self) -> tuple[int, FloatArray, FloatArray]:
        """Return the code of the kind (0 tracking, 1 limit), level (T + 1,) and weight (T + 1,), for compiled code."""
        if self.is_hard:
            t = int(np.argmax(np.isinf(self.weight)))
            raise ValueError(
                f"the limit is a hard cap at time {t}, so that a step above it would cost infinitely much; an "
                "environment needs a finite weight. Any weight above the largest shadow price of solve_coupled has "
                "the optimum of the hard cap."
            )
        return KINDS.index(self.kind), self.level, self.weight
