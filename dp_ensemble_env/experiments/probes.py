r"""What simple controllers score in a scenario: whether it needs feedback, data, foresight.

A score is 0 for the uncontrolled loads and 100 for the optimum. A good benchmark leaves room between these probes
and 100:

open loop
    The best sequence of tilts that looks at the clock and never at the context, found by exact gradients. It is 100
    without a context. What it leaves is worth feedback.
public guess
    The plan made on the best lazy walk out of a grid *in hindsight*, or on the scenario's own textbook behaviour,
    deployed as a tilt. What it leaves is worth data.
constant action, random search
    The best single action in tilt and in price mode; the best of 100 random sequences. What they leave is worth a
    learner.
myopic
    A tilt by the next utility alone. What it leaves is worth foresight.

All are computed exactly in the mean field, on the true behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dp_ensemble_env._progress import Monitor, Silent
from dp_ensemble_env._tilts import centred
from dp_ensemble_env._validation import check_positive
from dp_ensemble_env.envs import actions
from dp_ensemble_env.experiments._tilting import TiltReturn
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.policies import solve_standard
from dp_ensemble_env.reporting.outcome import score, start_values
from dp_ensemble_env.reporting.tables import plain

FloatArray = NDArray[np.float64]

#: Lazy walks that the public guess is chosen from: weight of staying, decay per level, levels in reach.
STAY = (0.3, 0.6, 1.0, 3.0, 10.0)
DECAY = (0.1, 0.3, 0.5, 0.7, 0.9)
REACH = (1, 2, 5, 1000)
#: Random sequences of the random search, and their seed.
SEQUENCES, SEED = 100, 13
#: Prices of the discrete action mode.
DISCRETE = np.linspace(-1.0, 1.0, 11)


@dataclass(frozen=True)
class Probes:
    """Scores of simple controllers, 0 = uncontrolled, 100 = optimum, in the mean field.

    Attributes
    ----------
    open_loop : float
        Best tilts by time alone.
    public_guess : float
        The better of `lazy_walk` and `textbook`, planned without data.
    lazy_walk, textbook : float
        The best lazy walk in hindsight, and the scenario's textbook behaviour (NaN if it has none).
    constant_tilt, constant_price, constant_discrete : float
        Best single action of the mode.
    price_ceiling, price_bound : float
        Best prices by time and context that were found, and what no price in this box exceeds (each load priced by
        its own state).
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
    lazy_walk: float
    textbook: float
    constant_tilt: float
    constant_price: float
    constant_discrete: float
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
        """Best constant action of any mode but the policy."""
        return max(self.constant_tilt, self.constant_price)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and words; None for what does not apply."""
        return {name: plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Probes:
        """Read what `to_dict` wrote."""
        return cls(**{name: np.nan if value is None else value for name, value in content.items()})


def probe(model: EnsembleModel, *, effort: float = 1.0, monitor: Monitor | None = None) -> Probes:
    """Compute all probes of a model.

    Parameters
    ----------
    model : EnsembleModel
    effort : float
        Multiplies the iterations of the searches; 1 suffices for the built-in scenarios.
    monitor : Monitor, optional
        Hears how far the work is.
    """
    return Prober(model, effort=effort, monitor=monitor).all()


class Prober:
    """The probes one by one; each method returns a score and says in `how` where it comes from.

    Parameters
    ----------
    model, effort, monitor
        See `probe`.
    """

    def __init__(self, model: EnsembleModel, *, effort: float = 1.0, monitor: Monitor | None = None) -> None:
        self.model, self.returns = model, TiltReturn(model)
        self.monitor = Silent() if monitor is None else monitor
        self.iterations = max(10, int(400 * check_positive(effort, "effort")))
        self.low, self.high = start_values(model)
        self.scale = actions.action_scale(model) if model.tilt_scale is None else model.tilt_scale
        self.direction = -_rescaled(model.decision_power)
        self.best = optimal_tilts(model)
        self.how: dict[str, str] = {}

    def all(self) -> Probes:
        """Compute every probe."""
        guess = self.public_guess()
        return Probes(
            open_loop=self.open_loop(),
            public_guess=float(np.nanmax(guess)),
            lazy_walk=guess[0],
            textbook=guess[1],
            constant_tilt=self.constant_tilt(),
            constant_price=self.constant_price(),
            constant_discrete=self.constant_discrete(),
            price_ceiling=self.price_ceiling(),
            price_bound=self.price_bound(np.linspace(-1.0, 1.0, 161)),
            discrete_ceiling=self.discrete_ceiling(),
            discrete_bound=self.price_bound(DISCRETE),
            tilt_ceiling=self.tilt_ceiling(),
            myopic=self.myopic(),
            random_search=self.random_search(),
            uncontrolled=self.low,
            optimum=self.high,
            how=dict(self.how),
        )

    def score(self, tilts: FloatArray) -> float:
        """Return the score of tilts that broadcast to (T, c, m)."""
        return score(self.returns(tilts), self.low, self.high)

    # ------------------------------------------------------------ feedback
    def open_loop(self) -> float:
        """Search the best tilts (T, m) by time alone, from several starts."""
        shares = context_shares(self.model)
        average = np.einsum("tw,twa->ta", shares[:-1], self.best)
        starts = {"no interference": np.zeros_like(average), "the optimum's mean over the contexts": average}
        if self.model.context is not None:
            starts["the optimum of the mean model"] = optimal_tilts(mean_model(self.model, shares))[:, 0]
        shape = average.shape
        found, start = self._search(
            "best open loop",
            {name: self._centred(tilts) for name, tilts in starts.items()},
            lambda x: x.reshape(shape)[:, None, :],
            lambda gradient: gradient.sum(axis=1).ravel(),
        )
        self.how["open_loop"] = f"L-BFGS over {average.size} tilts from {len(starts)} starts; best from {start}"
        return found[0]

    # ------------------------------------------------------------ constant and random actions
    def constant_tilt(self) -> float:
        """Search the best single action of tilt mode, inside its box."""
        unit = np.divide(self.best, self.scale[:, None, None], out=np.zeros_like(self.best), where=self.unscaled)
        mean = np.einsum("tw,twa->a", context_shares(self.model)[:-1], unit) / self.model.horizon
        starts = {"no interference": np.zeros(len(mean)), "the mean of the optimum": np.clip(mean, -1.0, 1.0)}
        found, start = self._search(
            "best constant tilt",
            starts,
            lambda x: self.scale[:, None, None] * x,
            lambda gradient: np.einsum("t,twa->a", self.scale, gradient),
            bounds=(-1.0, 1.0),
        )
        self.how["constant_tilt"] = f"L-BFGS-B over {len(mean)} numbers from {len(starts)} starts; best from {start}"
        return found[0]

    def constant_price(self) -> float:
        """Search the best single action of price mode."""
        grid = np.linspace(-1.0, 1.0, 81)
        scores = np.array([self.score(self._price_tilts(x)) for x in grid])
        found, _ = self._search(
            "best constant price",
            {"grid": grid[[np.argmax(scores)]]},
            lambda x: self._price_tilts(x[0]),
            lambda gradient: np.array([self._price_slope(gradient).sum()]),
            bounds=(-1.0, 1.0),
        )
        self.how["constant_price"] = f"81 prices, the best refined: {found[1][0]:.3f}"
        return max(found[0], float(scores.max()))

    def constant_discrete(self) -> float:
        """Try every single action of discrete mode."""
        scores = [self.score(self._price_tilts(x)) for x in DISCRETE]
        self.how["constant_discrete"] = f"all {len(DISCRETE)} prices; best {DISCRETE[int(np.argmax(scores))]:g}"
        return float(max(scores))

    def random_search(self) -> float:
        """Try random sequences of actions, uniform in the box of each mode."""
        rng = np.random.default_rng(SEED)
        tilts = [self.score(self._random_tilts(rng)) for _ in range(SEQUENCES)]
        prices = [self.score(self._price_tilts(rng.uniform(-1, 1, len(self.scale))[:, None])) for _ in range(SEQUENCES)]
        self.how["random_search"] = (
            f"{SEQUENCES} sequences each, seed {SEED}: tilt {max(tilts):.1f}, price {max(prices):.1f}"
        )
        return float(max(*tilts, *prices))

    # ------------------------------------------------------------ ceilings
    def tilt_ceiling(self) -> float:
        """Score the optimum as far as it fits the box of tilt mode."""
        fitting = self._centred(self.best)
        box = self.scale[:, None, None]
        outside = float(np.abs(fitting).max(axis=(1, 2)).max(initial=0.0, where=self.scale > 0))
        self.how["tilt_ceiling"] = f"optimal tilts of up to {outside:.2f} nats clipped to the box"
        return self.score(np.clip(fitting, -box, box))

    def price_ceiling(self) -> float:
        """Search the best prices by time and context, and by start state where all loads share one."""
        total = 0.0
        starts = [(1.0, self.returns)]
        if not self.model.spread_start:
            states = np.flatnonzero(self.model.initial)
            starts = [(self.model.initial[s], TiltReturn(self.model, np.eye(self.model.n_states)[s])) for s in states]
        for weight, returns in starts:
            total += weight * self._best_prices(returns)[0]
        by = "time and context" if self.model.spread_start else "time, context and start state"
        self.how["price_ceiling"] = f"L-BFGS-B over prices by {by}; the best found"
        return score(total, self.low, self.high)

    def discrete_ceiling(self) -> float:
        """Round the best prices to those of the discrete mode, and improve them one by one."""
        prices = self._best_prices(self.returns)[1]
        chosen = np.abs(prices[..., None] - DISCRETE).argmin(axis=-1)
        best = self.returns(self._price_tilts(DISCRETE[chosen]))
        for place in np.ndindex(chosen.shape):
            for move in (-1, 1):
                trial = chosen.copy()
                trial[place] = np.clip(trial[place] + move, 0, len(DISCRETE) - 1)
                if (value := self.returns(self._price_tilts(DISCRETE[trial]))) > best:
                    chosen, best = trial, value
        self.how["discrete_ceiling"] = "the best prices by time and context, rounded, then improved one by one"
        return score(best, self.low, self.high)

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
        self.how["price_bound"] = "exact recursion with a price for each state; exact for a single load"
        return score(float((self.returns.start * value).sum()), self.low, self.high)

    # ------------------------------------------------------------ foresight and data
    def myopic(self) -> float:
        """Tilt by the expected next utility alone."""
        _, nature, context, utility = self.model.tables()
        ahead = np.einsum("twx,txs->tws", context, utility[1:])
        self.how["myopic"] = "tilt by the expected utility of the next state over the penalty"
        return self.score(np.einsum("twas,tws->twa", nature, ahead) / self.model.discomfort_penalty)

    def public_guess(self) -> tuple[float, float]:
        """Plan on lazy walks and on the textbook behaviour; return the score of the best walk and of the textbook."""
        best, tried = (-np.inf, ""), 0
        for name, guess in lazy_guesses(self.model):
            tried += 1
            self.monitor.stage(f"public guess {tried}")
            best = max(best, (self.score(optimal_tilts(self.model.with_default(guess))), name))
        textbook = np.nan
        if self.model.guess is not None:
            textbook = self.score(optimal_tilts(self.model.with_default(self.model.guess)))
            self.how["textbook"] = "plan on the scenario's public behaviour"
        self.how["lazy_walk"] = f"best of {tried} in hindsight: {best[1]}"
        return best[0], textbook

    # ------------------------------------------------------------ parts
    @property
    def unscaled(self) -> NDArray[np.bool_]:
        """Where the scale is not zero, shaped like the tilts."""
        return np.broadcast_to(self.scale[:, None, None] > 0, self.best.shape)

    def _centred(self, tilts: FloatArray) -> FloatArray:
        """Centre each set of competing decisions on its own; decisions that nobody takes count for nothing."""
        taken = (self.model.default > 0).reshape(-1, self.model.n_decisions).any(axis=0)
        result: FloatArray = np.where(taken, centred(tilts, self.model.default, taken), 0.0)
        return result

    def _price_tilts(self, prices: Any) -> FloatArray:
        """Return the tilts of prices that broadcast to (T, c)."""
        spread = np.broadcast_to(prices, self.returns.shape[:2])
        return (self.scale[:, None] * spread)[..., None] * self.direction

    def _price_slope(self, gradient: FloatArray) -> FloatArray:
        return self.scale[:, None] * (gradient @ self.direction)

    def _random_tilts(self, rng: np.random.Generator) -> FloatArray:
        return (self.scale[:, None] * rng.uniform(-1.0, 1.0, (len(self.scale), self.returns.shape[2])))[:, None, :]

    def _best_prices(self, returns: TiltReturn) -> tuple[float, FloatArray]:
        """Return the expected return and the prices (T, c)."""
        shape = returns.shape[:2]
        nearest = np.divide(
            self._centred(self.best) @ self.direction, self.scale[:, None] * (self.direction @ self.direction),
            out=np.zeros(shape), where=self.scale[:, None] * (self.direction @ self.direction) > 0,
        )  # fmt: skip
        starts = {"no interference": np.zeros(shape), "the optimum": np.clip(nearest, -1.0, 1.0)}
        found, _ = self._search(
            "best prices",
            starts,
            lambda x: self._price_tilts(x.reshape(shape)),
            lambda gradient: self._price_slope(gradient).ravel(),
            bounds=(-1.0, 1.0),
            returns=returns,
        )
        return self.low + (self.high - self.low) * found[0] / 100.0, found[1].reshape(shape)

    def _search(
        self,
        stage: str,
        starts: dict[str, FloatArray],
        build: Callable[[FloatArray], FloatArray],
        pull: Callable[[FloatArray], FloatArray],
        bounds: tuple[float, float] | None = None,
        returns: TiltReturn | None = None,
    ) -> tuple[tuple[float, FloatArray], str]:
        """Climb from every start; return the best score with its point, and the name of the start."""
        returns = self.returns if returns is None else returns
        gain = max(self.high - self.low, 1e-12)

        def loss(x: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = returns.with_gradient(build(x))
            return (self.low - value) / gain, -pull(gradient) / gain

        best: tuple[tuple[float, FloatArray], str] = ((-np.inf, np.empty(0)), "")
        self.monitor.stage(stage, len(starts) * self.iterations)
        for done, (name, start) in enumerate(starts.items()):
            steps = iter(range(1, self.iterations + 1))

            def tell(_: Any, steps: Iterator[int] = steps, done: int = done) -> None:
                self.monitor.advance(done * self.iterations + next(steps, self.iterations))

            box = None if bounds is None else [bounds] * start.size
            options = {
                "maxiter": self.iterations,
                "maxfun": 3 * self.iterations,
                "ftol": 1e-9,
                "gtol": 1e-7,
                "maxcor": 20,
            }
            result = minimize(
                loss, start.ravel(), jac=True, method="L-BFGS-B", bounds=box, callback=tell, options=options
            )
            if -100.0 * result.fun > best[0][0]:
                best = ((-100.0 * float(result.fun), result.x), name)
        return best


# ---------------------------------------------------------------- models and plans
def _rescaled(power: FloatArray) -> FloatArray:
    low, high = power.min(), power.max()
    return np.zeros_like(power) if high == low else 2.0 * (power - low) / (high - low) - 1.0


def optimal_tilts(model: EnsembleModel) -> FloatArray:
    """Return the optimal tilts (T, c, m) of a model."""
    tilts = solve_standard(model).tilt
    return tilts if tilts.ndim == 3 else tilts[:, None, :]


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


def lazy_walk(levels: int, stay: float, decay: float, reach: int) -> FloatArray:
    """Return the walk that stays with weight `stay` and moves by d levels with weight decay^|d|, d <= reach."""
    distance = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels)))
    weights = np.where(distance == 0, stay, np.where(distance <= reach, decay**distance, 0.0))
    return weights / weights.sum(axis=1, keepdims=True)


def lazy_guesses(model: EnsembleModel) -> Iterator[tuple[str, FloatArray]]:
    """Yield guesses of the default behaviour that need no data, each with its name.

    Where loads choose their next state, lazy walks over the levels, or over each axis of the states. Where nature
    decides with them, what a decision can be is public: lazy walks over the decisions that are possible in a state, and
    all of them equally likely.
    """
    shape = model.default.shape
    n, m = shape[-2:]
    support = model.default > 0 if model.nature is not None else np.ones(shape, bool)
    if model.nature is not None:
        yield "all possible decisions alike", support / support.sum(axis=-1, keepdims=True)
    if n != m:
        return
    sizes = [len(axis.values) for axis in model.axes]
    for stay, decay, reach in product(STAY, DECAY, REACH):
        walks = {"": lazy_walk(n, stay, decay, reach)}
        if len(sizes) > 1:
            along = np.ones((1, 1))
            for size in sizes:
                along = np.kron(along, lazy_walk(size, stay, decay, reach))
            walks[" on each axis"] = along
        for where, walk in walks.items():
            guess = np.where(support, walk, 0.0)
            total = guess.sum(axis=-1, keepdims=True)
            if (total > 0).all():
                yield f"stay {stay:g}, decay {decay:g}, reach {min(reach, n - 1)}{where}", guess / total
