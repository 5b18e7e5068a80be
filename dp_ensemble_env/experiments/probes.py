r"""What simple controllers score in a scenario: whether it needs feedback, data, foresight.

A score is 0 for the uncontrolled loads and 100 for the optimum. A good benchmark leaves room between these probes
and 100:

open loop
    The best sequence of tilts that looks at the clock and never at the context, found by exact gradients. It is 100
    without a context. What it leaves is worth feedback.
public guess
    The plan made without data: on the scenario's own textbook behaviour, or on a lazy walk where there is no textbook,
    deployed as a tilt. Nothing is chosen in hindsight. What it leaves is worth data.
constant action, random search
    The best single action of each mode, held throughout; the best of 100 random sequences. What they leave is worth a
    learner.
myopic
    A tilt by the next utility alone. What it leaves is worth foresight.

All are computed exactly in the mean field, on the true behaviour.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from dp_ensemble_env import __version__, scenarios
from dp_ensemble_env.agents.plans import PRICES, best_constant_price, plan_without_data
from dp_ensemble_env.control.policies import centred, solve_standard
from dp_ensemble_env.control.returns import ExactReturn, myopic_tilts, optimal_tilts
from dp_ensemble_env.envs import actions, signals
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import score, start_values
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.tools.console import Monitor, Silent
from dp_ensemble_env.tools.files import atomic_write
from dp_ensemble_env.tools.validation import check_positive

FloatArray = NDArray[np.float64]

#: Random sequences of the random search, and their seed.
SEQUENCES, SEED = 100, 13
#: Prices of the discrete action mode, and those tried for the bound on price mode.
CHOICES: FloatArray = actions.DISCRETE.choices.astype(float)
GRID: FloatArray = np.linspace(-1.0, 1.0, 201)


@dataclass(frozen=True)
class Probes:
    """Scores of simple controllers, 0 = uncontrolled, 100 = optimum, in the mean field.

    Attributes
    ----------
    open_loop : float
        Best tilts by time alone.
    public_guess : float
        The plan made without data: on the scenario's textbook behaviour, or on a lazy walk if it has none.
    constant_tilt, constant_price, constant_discrete, constant_policy : float
        Best single action of the mode, held throughout.
    price_ceiling, price_bound : float
        Best prices by time and context that were found (a mean field that also looks at where the loads are may gain
        a point more), and what no price in the box exceeds: each load priced by its own state, exact for one load.
    discrete_ceiling, discrete_bound : float
        The same with the prices of the discrete mode.
    tilt_ceiling : float
        The optimum clipped to the box of tilt mode: 100 where the box is wide enough.
    myopic : float
        Tilt by the next utility alone.
    random_search : float
        Best of 100 random open-loop sequences of actions, in tilt or in price mode.
    uncontrolled, optimum : float
        What 0 and 100 stand for, in dollars per load.
    how : dict
        In words, how each was found.
    """

    open_loop: float
    public_guess: float
    constant_tilt: float
    constant_price: float
    constant_discrete: float
    constant_policy: float
    price_ceiling: float
    price_bound: float
    discrete_ceiling: float
    discrete_bound: float
    tilt_ceiling: float
    myopic: float
    random_search: float
    uncontrolled: float
    optimum: float
    how: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def constant(self) -> float:
        """Best constant action of any mode."""
        return max(self.constant_tilt, self.constant_price, self.constant_discrete, self.constant_policy)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and words; None for what does not apply."""
        return {name: plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Probes:
        """Read what `to_dict` wrote."""
        read: dict[str, Any] = {name: np.nan if value is None else value for name, value in content.items()}
        return cls(**read)


def probe(model: EnsembleModel, *, effort: float = 1.0, monitor: Monitor | None = None) -> Probes:
    """Compute all probes of a model.

    Parameters
    ----------
    model : EnsembleModel
    effort : float
        Multiplies the iterations of the searches; 1 suffices for the built-in scenarios.
    monitor : Monitor, optional
        Hears how far the work is.

    Examples
    --------
    >>> round(probe(scenarios.make("campus-event"), effort=0.1).open_loop)
    100
    """
    prober = Prober(model, effort=effort, monitor=monitor)
    return Probes(**prober.scores(), how=prober.how)


# ------------------------------------------------------------------ the searches
class Prober:
    """The probes one by one; each method returns a score and says in `how` where it comes from.

    Parameters
    ----------
    model, effort, monitor
        See `probe`.
    """

    def __init__(self, model: EnsembleModel, *, effort: float = 1.0, monitor: Monitor | None = None) -> None:
        self.model, self.returns = model, ExactReturn(model)
        self.monitor = Silent() if monitor is None else monitor
        self.iterations = max(10, int(400 * check_positive(effort, "effort")))
        self.low, self.high = start_values(model)
        self.scale = actions.action_scale(model)[:, None, None]
        self.direction = -signals.power_direction(model)
        self.best = optimal_tilts(model)
        self.how: dict[str, str] = {}

    def scores(self) -> dict[str, float]:
        """Compute every probe, by the names of `Probes`."""
        price_ceiling, discrete_ceiling = self.price_ceilings()
        return {
            "open_loop": self.open_loop(),
            "public_guess": self.public_guess(),
            "constant_tilt": self.constant_tilt(),
            "constant_price": self.constant_price(),
            "constant_discrete": self.constant_discrete(),
            "constant_policy": self.constant_policy(),
            "price_ceiling": price_ceiling,
            "price_bound": self.price_bound(GRID),
            "discrete_ceiling": discrete_ceiling,
            "discrete_bound": self.price_bound(CHOICES),
            "tilt_ceiling": self.tilt_ceiling(),
            "myopic": self.myopic(),
            "random_search": self.random_search(),
            "uncontrolled": self.low,
            "optimum": self.high,
        }

    def score(self, tilts: FloatArray) -> float:
        """Return the score of tilts that broadcast to (T, c, m)."""
        return score(self.returns(tilts), self.low, self.high)

    # ------------------------------------------------------------ feedback, foresight and data
    def open_loop(self) -> float:
        """Search the best tilts (T, 1, m) by time alone, from several starts."""
        shares = context_shares(self.model)
        average = np.einsum("tw,twa->ta", shares[:-1], self.best)[:, None]
        starts = {"no interference": np.zeros_like(average), "the optimum's mean over the contexts": average}
        if self.model.context is not None:
            starts["the optimum of the mean model"] = optimal_tilts(mean_model(self.model, shares))
        found, _, start = self._climb("best open loop", {name: self._centred(x) for name, x in starts.items()})
        self.how["open_loop"] = f"L-BFGS over {average.size} tilts from {len(starts)} starts; best from {start}"
        return found

    def myopic(self) -> float:
        """Tilt by the expected next utility alone."""
        self.how["myopic"] = "tilt by the expected utility of the next state over the penalty"
        return self.score(myopic_tilts(self.model))

    def public_guess(self) -> float:
        """Plan without data."""
        known = self.model.guess is not None
        self.how["public_guess"] = f"plan on {'the textbook behaviour of the scenario' if known else 'a lazy walk'}"
        return self.score(plan_without_data(self.model))

    # ------------------------------------------------------------ constant and random actions
    def constant_tilt(self) -> float:
        """Search the best single action of tilt mode, inside its box."""
        unit = np.divide(self.best, self.scale, out=np.zeros_like(self.best), where=self.scale > 0)
        mean = np.einsum("tw,twa->a", context_shares(self.model)[:-1], unit)[None, None] / self.model.horizon
        starts = {"no interference": np.zeros_like(mean), "the mean of the optimum": np.clip(mean, -1.0, 1.0)}
        found, _, start = self._climb("best constant tilt", starts, self.scale, boxed=True)
        self.how["constant_tilt"] = f"L-BFGS-B over {mean.size} numbers from {len(starts)} starts; best from {start}"
        return found

    def constant_price(self) -> float:
        """Hold the best single action of price mode."""
        price = best_constant_price(self.model)
        self.how["constant_price"] = f"all maxima that {len(PRICES)} prices bracket; best {price:.3f}"
        return self.score(self.price_tilts(price))

    def constant_discrete(self) -> float:
        """Try every single action of discrete mode."""
        scores = [self.score(self.price_tilts(x)) for x in CHOICES]
        self.how["constant_discrete"] = f"all {len(CHOICES)} prices; best {CHOICES[int(np.argmax(scores))]:g}"
        return float(max(scores))

    def constant_policy(self) -> float:
        """Search the best matrix of decisions that is held throughout; rows of it may leave the loads alone.

        The numbers are the logarithms of the policy, so the tilts are these less the logarithms of the behaviour.
        """
        returns = ExactReturn(self.model, by_state=True)
        state, decision = returns.entries
        behaviour, policy = self.model.tables().behaviour, solve_standard(self.model).policy
        possible = behaviour[:, :, state, decision]
        spread = policy.reshape(behaviour.shape)[:, :, state, decision]
        optimum = np.einsum("tw,twe->e", context_shares(self.model)[:-1], spread) / self.model.horizon
        starts = {"the mean behaviour": possible.mean(axis=(0, 1)), "the mean of the optimum": optimum}
        points = {name: np.log(np.maximum(x, 1e-6))[None, None] for name, x in starts.items()}
        offset = -np.log(np.where(possible > 0, possible, 1.0))
        best, point, start = self._climb("best constant policy", points, 1.0, offset, returns=returns)
        if (possible != possible[:1, :1]).any():  # else some numbers leave the loads alone
            for x, alone in product((point, *points.values()), (False, True)):
                rows = np.full(self.model.n_states, not alone)
                best = max(best, self._with_rows_alone(returns, x, offset, rows))
        self.how["constant_policy"] = f"L-BFGS over {len(state)} numbers from {len(starts)} starts; best from {start}"
        return best

    def random_search(self) -> float:
        """Try random sequences of actions, uniform in the box of each mode."""
        rng, (horizon, _, m) = np.random.default_rng(SEED), self.returns.shape
        tilts = [self.score(self.scale * rng.uniform(-1.0, 1.0, (horizon, 1, m))) for _ in range(SEQUENCES)]
        prices = [self.score(self.price_tilts(rng.uniform(-1, 1, (horizon, 1)))) for _ in range(SEQUENCES)]
        self.how["random_search"] = (
            f"{SEQUENCES} sequences each, seed {SEED}: tilt {max(tilts):.1f}, price {max(prices):.1f}"
        )
        return float(max(*tilts, *prices))

    # ------------------------------------------------------------ ceilings
    def tilt_ceiling(self) -> float:
        """Score the optimum as far as it fits the box of tilt mode."""
        best = self.best if self.model.context is not None else self.best[:, 0]
        fitting = actions.tilts_of(actions.TILT, self.model, actions.centred_actions(self.model, best, strict=False))
        self.how["tilt_ceiling"] = "the optimum, centred and clipped to the box"
        return self.score(fitting.reshape(self.best.shape))

    def price_ceilings(self) -> tuple[float, float]:
        """Search the best prices, free and out of the discrete mode's, by time, context and common start state."""
        starts = [(1.0, self.returns)]
        if not self.model.spread_start:
            states = np.flatnonzero(self.model.initial)
            starts = [(self.model.initial[s], ExactReturn(self.model, np.eye(self.model.n_states)[s])) for s in states]
        across = self.scale * (self.direction @ self.direction)
        nearest = (self._centred(self.best) @ self.direction)[..., None]
        nearest = np.divide(nearest, across, out=np.zeros_like(nearest), where=across > 0)
        points = {"no interference": np.zeros_like(nearest), "the optimum": np.clip(nearest, -1.0, 1.0)}
        free = rounded = 0.0
        for weight, returns in starts:
            found, prices, _ = self._climb(
                "best prices", points, self.scale * self.direction, boxed=True, returns=returns
            )
            free += weight * found
            rounded += weight * self._best_choices(returns, prices[..., 0])
        by = "time and context" if self.model.spread_start else "time, context and start state"
        self.how["price_ceiling"] = f"L-BFGS-B over prices by {by}; the best found"
        self.how["discrete_ceiling"] = "those prices rounded, then improved one by one"
        return free, score(rounded, self.low, self.high)

    def price_bound(self, grid: FloatArray) -> float:
        """Let every load have the price out of `grid` that suits its own state: no common price does better."""
        if self.model.coupling is not None:
            return np.nan
        behaviour, nature, context, utility = self.model.tables()
        penalty, value = self.model.discomfort_penalty, np.zeros_like(utility[0])
        for t in range(self.model.horizon - 1, -1, -1):
            ahead = np.einsum("was,ws->wa", nature[t], context[t] @ (utility[t + 1] + value))
            tilts = self.scale[t] * np.outer(grid, self.direction)
            tilts -= tilts.max(axis=1, keepdims=True)
            weights = np.exp(tilts)
            for w, matrix in enumerate(behaviour[t]):
                total = matrix @ weights.T
                gains = matrix @ (weights * (ahead[w] - penalty * tilts)).T
                value[w] = (gains / total + penalty * np.log(total)).max(axis=1)
        self.how["price_bound"] = self.how["discrete_bound"] = "exact recursion with a price for each state of a load"
        return score(float((self.returns.start * value).sum()), self.low, self.high)

    # ------------------------------------------------------------ parts
    def price_tilts(self, prices: ArrayLike) -> FloatArray:
        """Return the tilts of prices that broadcast to (T, c)."""
        spread = np.broadcast_to(np.asarray(prices, float), self.returns.shape[:2])
        tilts: FloatArray = self.scale * spread[..., None] * self.direction
        return tilts

    def _centred(self, tilts: FloatArray) -> FloatArray:
        """Centre each set of competing decisions on its own; decisions that nobody takes count for nothing."""
        taken = (self.model.default > 0).reshape(-1, self.model.n_decisions).any(axis=0)
        return np.where(taken, centred(tilts, self.model.default, taken), 0.0)

    def _best_choices(self, returns: ExactReturn, prices: FloatArray) -> float:
        """Return the expected return of prices (T, c) rounded to the choices, each then moved while it helps."""
        chosen = actions.nearest_choice(actions.DISCRETE, prices)
        best = returns(self.price_tilts(CHOICES[chosen]))
        for place in np.ndindex(chosen.shape):
            for move in (-1, 1):
                trial = chosen.copy()
                trial[place] = np.clip(trial[place] + move, 0, len(CHOICES) - 1)
                if (value := returns(self.price_tilts(CHOICES[trial]))) > best:
                    chosen, best = trial, value
        return best

    def _with_rows_alone(
        self, returns: ExactReturn, point: FloatArray, offset: FloatArray, rows: NDArray[np.bool_]
    ) -> float:
        """Let single rows of a held policy leave the loads alone, or not, while it helps; then climb again."""
        state = returns.entries[0]

        def value(rows: NDArray[np.bool_]) -> float:
            return returns(rows[state] * (offset + point))

        best = value(rows)
        for s in range(len(rows)):
            rows[s] ^= True
            if (trial := value(rows)) > best:
                best = trial
            else:
                rows[s] ^= True
        kept = rows[state].astype(float)
        again, _, _ = self._climb("best constant policy", {"": point}, kept, kept * offset, returns=returns)
        return max(score(best, self.low, self.high), again)

    def _climb(
        self,
        stage: str,
        starts: dict[str, FloatArray],
        factor: FloatArray | float = 1.0,
        offset: FloatArray | float = 0.0,
        *,
        boxed: bool = False,
        returns: ExactReturn | None = None,
    ) -> tuple[float, FloatArray, str]:
        """Climb over the numbers `x` of `ExactReturn.with_gradient` from every start, in [-1, 1] if `boxed`.

        Returns the best score, its numbers, and the name of the start that led there.
        """
        returns = self.returns if returns is None else returns
        gain, shape = max(self.high - self.low, 1e-12), next(iter(starts.values())).shape

        def loss(x: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = returns.with_gradient(x.reshape(shape), factor, offset)
            return (self.low - value) / gain, -gradient.ravel() / gain

        best, limit = (-np.inf, np.empty(0), ""), self.iterations
        options = {"maxiter": limit, "maxfun": 3 * limit, "ftol": 1e-9, "gtol": 1e-7}
        self.monitor.stage(stage, len(starts) * limit)
        for done, (name, start) in enumerate(starts.items()):
            steps = iter(range(1, limit + 1))

            def tell(_: Any, steps: Iterator[int] = steps, done: int = done) -> None:
                self.monitor.advance(done * limit + next(steps, limit))

            box = [(-1.0, 1.0)] * start.size if boxed else None
            result = minimize(
                loss, start.ravel(), jac=True, method="L-BFGS-B", bounds=box, callback=tell, options=options
            )
            if -100.0 * result.fun > best[0]:
                best = (-100.0 * float(result.fun), result.x.reshape(shape), name)
        return best


def context_shares(model: EnsembleModel) -> FloatArray:
    """Return the probability of every context at times 0 … T, (T + 1, c)."""
    return np.ones((model.horizon + 1, 1)) if model.context is None else model.context.distributions(model.horizon)


def mean_model(model: EnsembleModel, shares: FloatArray) -> EnsembleModel:
    """Return the model that an observer without the context would write down: everything averaged over it."""
    behaviour, nature, _, utility = model.tables()
    return model.override(
        default=np.einsum("tw,twsa->tsa", shares[:-1], behaviour),
        nature=None if model.nature is None else np.einsum("tw,twas->tas", shares[:-1], nature),
        utility=np.einsum("tw,tws->ts", shares, utility),
        context=None,
        guess=None,
    )


# ------------------------------------------------------------------ the record
def record(found: dict[str, list[Probes]], path: Path = scenarios.RECORD) -> None:
    """Write probes of the training instances 0, 1, … of scenarios to the file that cards are read from.

    What is there of other scenarios stays.
    """
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name, instances in found.items():
        content[name] = {
            "version": scenarios.card(name).version,
            "package": __version__,
            "date": datetime.date.today().isoformat(),
            "split": "train",
            "instances": [_rounded(probes.to_dict()) for probes in instances],
        }
    with atomic_write(path) as stream:
        json.dump(dict(sorted(content.items())), stream, indent=1, ensure_ascii=False)
        stream.write("\n")


def recorded(name: str) -> list[Probes]:
    """Return the recorded probes of a scenario, those of its training instances 0, 1, …; empty if there are none."""
    content = scenarios.card(name).probes
    return [] if content is None else [Probes.from_dict(instance) for instance in content["instances"]]


def _rounded(content: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in content.items()}
