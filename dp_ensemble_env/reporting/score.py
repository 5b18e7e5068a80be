r"""The result of a policy or an agent, in the units of a utility company.

**Score.** With :math:`R` the mean return, :math:`R_0` the uncontrolled return and :math:`R^*` the optimum, the score
is :math:`100\,(R - R_0)/(R^* - R_0)`. `event_outcome` evaluates a policy exactly; `dp_ensemble_env.agents.evaluate`
plays an agent in its environment.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from dp_ensemble_env.control.coupled import solve_coupled
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.control.returns import mean_power, policy_return, shares, state_returns
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.tables import number_text, plain
from dp_ensemble_env.tools.validation import check_instance

FloatArray = NDArray[np.float64]

#: What `Outcome.lines` shows: label, attribute, unit, digits. The first two add up to the third.
_LINES = (
    ("earned", "earned", "$/load", 2),
    ("less discomfort, by the design weight", "discomfort", "$/load", 2),
    ("return", "mean_return", "$/load", 2),
    ("gap to the optimum", "gap", "$/load", 2),
    ("bill for energy, part of what is earned", "energy_cost", "$/load", 2),
    ("power below the uncontrolled loads, mean", "curtailment_kw", "kW", 0),
    ("the same at their peak", "curtailed_peak_kw", "kW", 0),
    ("energy delivered, total", "curtailed_kwh", "kWh", 0),
)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Outcome:
    """The result of a policy or an agent; money in dollars per load, power and energy of the whole ensemble.

    Attributes
    ----------
    score, score_error : float
        0 = uncontrolled, 100 = optimum of the same environment, and its standard error.
    mean_return, standard_error, gap : float
        Utility minus discomfort, its standard error, and its distance in dollars to the optimum from the same starts.
    discomfort, energy_cost : float
        Divergence times the penalty (a design weight, not a measured cost), and the energy bill (NaN without an event).
    curtailment_kw, curtailed_peak_kw, curtailed_kwh : float
        Power below the uncontrolled ensemble: mean over the event, at its uncontrolled peak, and the energy delivered
        in the event, 0 for doing nothing.
    episodes, exact : int, bool
        Number of episodes played, and whether the numbers are exact rather than estimated.
    privacy : str
        Description of the private information that the policy or the agent used.
    power_kw : ndarray of shape (T + 1,)
        Mean power of the ensemble.
    """

    score: float
    score_error: float = 0.0
    mean_return: float
    standard_error: float = 0.0
    gap: float
    discomfort: float
    energy_cost: float
    curtailment_kw: float
    curtailed_peak_kw: float
    curtailed_kwh: float
    episodes: int = 0
    exact: bool = True
    privacy: str = "that of the policy"
    power_kw: FloatArray

    @property
    def earned(self) -> float:
        """Utility: the return before discomfort."""
        return self.mean_return + self.discomfort

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists, ready for JSON (NaN becomes None)."""
        return {name: plain(value) for name, value in {**asdict(self), "power_kw": self.power_kw.tolist()}.items()}

    def lines(self) -> list[tuple[str, str, str]]:
        """Return label, number and remark (unit, error) of everything that is reported, formatted for people."""
        error = "exact" if self.exact else f"± {self.score_error:.2f}, {self.episodes:,} episodes"
        lines = [("score", number_text(self.score, 2), error)]
        for label, attribute, unit, digits in _LINES:
            value = getattr(self, attribute)
            extra = f" ± {self.standard_error:.2f}" if attribute == "mean_return" and not self.exact else ""
            if not np.isnan(value):
                lines.append((label, number_text(value, digits), unit + extra))
        return lines

    def __repr__(self) -> str:
        error = "" if self.exact else f" ± {self.score_error:.2f}"
        how = "exact" if self.exact else f"{self.episodes:,} episodes"
        return (
            f"Outcome(score={number_text(self.score, 2)}{error}, mean_return={number_text(self.mean_return, 2)}, "
            f"gap={number_text(self.gap, 2)}, curtailed_kwh={number_text(self.curtailed_kwh, 0)}, {how})"
        )


def event_outcome(model: EnsembleModel, policy: Any) -> Outcome:
    """Evaluate a policy (T, [c,] n, m) exactly on the model's own dynamics, from its initial distribution."""
    check_instance(model, EnsembleModel, "model")
    achieved, (low, high) = policy_return(model, policy), start_values(model)
    rho, idle = shares(model, policy), shares(model, model.default_policy)
    divergence = rel_entr(policy, model.default_policy).sum(axis=-1)
    return summarise(
        model,
        returns=Returns(np.array([achieved]), np.array([low]), np.array([high]), np.ones(1)),
        discomfort=model.discomfort_penalty * float((rho[:-1] * divergence).sum()),
        power_kw=model.loads * mean_power(model, rho),
        uncontrolled_kw=model.loads * mean_power(model, idle),
    )


class Tenths(NamedTuple):
    """Tenths of the loads in order of uncontrolled use, highest first: expected kWh and dollars of each."""

    uncontrolled_kwh: FloatArray
    delivered_kwh: FloatArray
    discomfort: FloatArray


def tenths(model: EnsembleModel, policy: Any) -> Tenths:
    """Return who gives how much under a policy (T, [c,] n, m): exact expected values given a load's start.

    Energy counts over the event, or the whole day where there is none. Loads differ by their start alone.
    """
    check_instance(model, EnsembleModel, "model")
    tables = model.tables()
    shape = tables.behaviour.shape
    given, nothing = np.reshape(policy, shape), np.reshape(model.default_policy, shape)
    window = _window(model)
    worth = np.where(window[:, None], model.power_kw, 0.0) * model.step_hours  # (T + 1, n)
    bother = model.discomfort_penalty * rel_entr(given, nothing).sum(axis=-1)
    use, free, paid = (np.zeros(shape[1:3]) for _ in range(3))
    for t in reversed(range(model.horizon)):

        def ahead(values: FloatArray, policy_t: FloatArray, t: int = t) -> FloatArray:
            then = np.einsum("wx,xs->ws", tables.context[t], values)
            moved: FloatArray = np.einsum("wna,was,ws->wn", policy_t, tables.nature[t], then)
            return moved

        use, free = ahead(worth[t + 1] + use, given[t]), ahead(worth[t + 1] + free, nothing[t])
        paid = bother[t] + ahead(paid, given[t])
    weights = np.broadcast_to(model.start_weights, use.shape).ravel()
    order = np.argsort(-free.ravel(), kind="stable")
    ends = np.concatenate([[0.0], np.cumsum(weights[order])])
    low, high = np.arange(10)[:, None] / 10 * ends[-1], np.arange(1, 11)[:, None] / 10 * ends[-1]
    kwh = model.loads * np.clip(np.minimum(high, ends[1:]) - np.maximum(low, ends[:-1]), 0.0, None)
    return Tenths(kwh @ free.ravel()[order], kwh @ (free - use).ravel()[order], kwh @ paid.ravel()[order])


def _window(model: EnsembleModel) -> NDArray[np.bool_]:
    return np.arange(model.horizon + 1) > 0 if model.event is None else model.event.in_event


def reference_returns(model: EnsembleModel) -> tuple[FloatArray, FloatArray]:
    """Return the uncontrolled and the optimal expected return from every state, ([c,] n), exactly.

    A coupled model's loads pay together, so there the start matters as a whole: use `start_values`.
    """
    if model.coupling is not None:
        raise ValueError("a coupled model has no return for each state, only for its start; use start_values(model).")
    return state_returns(model, model.default_policy), -solve_standard(model).cost_to_go[0] - model.utility[0]


def start_values(model: EnsembleModel) -> tuple[float, float]:
    """Return the uncontrolled and the optimal expected return from the model's own start, exactly."""
    if model.coupling is None:
        idle, best = (float((model.start_weights * values).sum()) for values in reference_returns(model))
        return idle, best
    return policy_return(model, model.default_policy), solve_coupled(model).primal


class Returns(NamedTuple):
    """Returns of states or episodes, the uncontrolled and optimal returns there, and the weights."""

    achieved: FloatArray
    uncontrolled: FloatArray
    optimum: FloatArray
    weights: FloatArray


def summarise(
    model: EnsembleModel,
    *,
    returns: Returns,
    discomfort: float,
    power_kw: FloatArray,
    uncontrolled_kw: FloatArray,
    episodes: int = 0,
    exact: bool = True,
    privacy: str = "that of the policy",
) -> Outcome:
    """Make the outcome of mean returns, discomfort and power (T + 1,) of the whole ensemble.

    Unless `exact`, the returns belong to equally weighted episodes, which give the errors (of the score: delta method).
    """
    achieved, idle, best, weights = returns
    mean, low, high = (float(weights @ values) for values in (achieved, idle, best))
    value, error, score_error = score(mean, low, high), 0.0, 0.0
    if not exact:
        error = float(achieved.std(ddof=1) / np.sqrt(len(achieved)))
        residual = (achieved - idle) - value / 100.0 * (best - idle)
        score_error = 100.0 * float(residual.std(ddof=1) / np.sqrt(len(achieved))) / max(high - low, 1e-12)
    event, hours = model.event, model.step_hours
    window = _window(model)
    saved = uncontrolled_kw - power_kw
    energy = np.nan if event is None else float(event.energy_price[1:] @ power_kw[1:]) * hours / model.loads
    return Outcome(
        score=value,
        score_error=score_error,
        mean_return=mean,
        standard_error=error,
        gap=max(0.0, high - mean) if exact else high - mean,  # nothing beats the optimum but by rounding or luck
        discomfort=discomfort,
        energy_cost=energy,
        curtailment_kw=float(saved[window].mean()),
        curtailed_peak_kw=float(saved[np.argmax(np.where(window, uncontrolled_kw, -np.inf))]),
        curtailed_kwh=float(saved[window].sum()) * hours,
        episodes=episodes,
        exact=exact,
        privacy=privacy,
        power_kw=power_kw,
    )


def score(mean_return: float, uncontrolled: float, optimum: float) -> float:
    """Place a return between the uncontrolled ensemble (0) and the optimum (100).

    If the two are equal, nothing can be gained, and every policy that loses nothing scores 100.
    """
    gain = optimum - uncontrolled
    if gain <= 1e-12 * max(1.0, abs(optimum)):
        return 100.0 if mean_return >= optimum - 1e-9 * max(1.0, abs(optimum)) else -np.inf
    value = 100.0 * (mean_return - uncontrolled) / gain
    return 0.0 if abs(value) < 1e-9 else value  # rounding alone
