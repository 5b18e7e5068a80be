"""How each probe is computed; `probes` says what they are for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dp_ensemble_env.control.policies import centred, solve_standard
from dp_ensemble_env.envs import actions
from dp_ensemble_env.experiments._guesses import context_shares, lazy_guesses, mean_model, optimal_tilts
from dp_ensemble_env.experiments._held import HeldReturn
from dp_ensemble_env.experiments._tilting import TiltReturn
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.outcome import score, start_values
from dp_ensemble_env.tools.console import Monitor, Silent
from dp_ensemble_env.tools.validation import check_positive

FloatArray = NDArray[np.float64]

#: Random sequences of the random search, and their seed.
SEQUENCES, SEED = 100, 13
#: Prices of the discrete action mode, and those tried for the bound on price mode.
CHOICES: FloatArray = actions.DISCRETE.choices.astype(float)
GRID: FloatArray = np.linspace(-1.0, 1.0, 201)


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
        self.scale = actions.action_scale(model)
        self.direction = actions.basis_of(actions.PRICE, model)[0]
        self.best = optimal_tilts(model)
        self.how: dict[str, str] = {}

    def scores(self) -> dict[str, float]:
        """Compute every probe, by the names of `Probes`."""
        lazy_walk, textbook = self.public_guess()
        price_ceiling, discrete_ceiling = self.price_ceilings()
        return {
            "open_loop": self.open_loop(),
            "public_guess": float(np.fmax(lazy_walk, textbook)),
            "lazy_walk": lazy_walk,
            "textbook": textbook,
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
        scores = [self.score(self._price_tilts(x)) for x in CHOICES]
        self.how["constant_discrete"] = f"all {len(CHOICES)} prices; best {CHOICES[int(np.argmax(scores))]:g}"
        return float(max(scores))

    def constant_policy(self) -> float:
        """Search the best matrix of decisions that is held throughout; rows of it may leave the loads alone."""
        held = HeldReturn(self.model)
        (state, decision), policy = held.entries, solve_standard(self.model).policy
        spread = policy.reshape(*self.best.shape[:2], *policy.shape[-2:])[:, :, state, decision]
        optimum = np.einsum("tw,twe->e", context_shares(self.model)[:-1], spread) / self.model.horizon
        starts = {"the mean behaviour": held.mean, "the mean of the optimum": optimum}
        points = {name: np.log(np.maximum(x, 1e-6)) for name, x in starts.items()}
        (best, point), start = self._climb("best constant policy", points, held)
        for x, first in product((point, *points.values()) if held.varies else (), (False, True)):
            best = max(best, self._with_rows_alone(held, x, np.full(self.model.n_states, first)))
        self.how["constant_policy"] = f"L-BFGS over {len(state)} numbers from {len(starts)} starts; best from {start}"
        return best

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
        best = self.best if self.model.context is not None else self.best[:, 0]
        fitting = actions.tilts_of(actions.TILT, self.model, actions.centred_actions(self.model, best, strict=False))
        self.how["tilt_ceiling"] = "the optimum, centred and clipped to the box"
        return self.score(fitting.reshape(self.best.shape))

    def price_ceilings(self) -> tuple[float, float]:
        """Search the best prices, free and out of the discrete mode's, by time, context and common start state."""
        starts = [(1.0, self.returns)]
        if not self.model.spread_start:
            states = np.flatnonzero(self.model.initial)
            starts = [(self.model.initial[s], TiltReturn(self.model, np.eye(self.model.n_states)[s])) for s in states]
        free = rounded = 0.0
        for weight, returns in starts:
            value, prices = self._best_prices(returns)
            free += weight * value
            rounded += weight * self._best_choices(returns, prices)
        by = "time and context" if self.model.spread_start else "time, context and start state"
        self.how["price_ceiling"] = f"L-BFGS-B over prices by {by}; the best found"
        self.how["discrete_ceiling"] = "those prices rounded, then improved one by one"
        return score(free, self.low, self.high), score(rounded, self.low, self.high)

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

    # ------------------------------------------------------------ foresight and data
    def myopic(self) -> float:
        """Tilt by the expected next utility alone."""
        _, nature, context, utility = self.model.tables()
        ahead = np.einsum("twx,txs->tws", context, utility[1:])
        self.how["myopic"] = "tilt by the expected utility of the next state over the penalty"
        return self.score(np.einsum("twas,tws->twa", nature, ahead) / self.model.discomfort_penalty)

    def public_guess(self) -> tuple[float, float]:
        """Plan on lazy walks and on the textbook behaviour; return the score of the best walk and of the textbook."""
        best, tried = (-np.inf, "none"), 0
        guesses = list(lazy_guesses(self.model))
        self.monitor.stage("public guess", len(guesses))
        for tried, (name, guess) in enumerate(guesses, 1):
            best = max(best, (self.score(optimal_tilts(self.model.with_default(guess))), name))
            self.monitor.advance(tried)
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
        return np.where(taken, centred(tilts, self.model.default, taken), 0.0)

    def _price_tilts(self, prices: Any) -> FloatArray:
        """Return the tilts of prices that broadcast to (T, c)."""
        spread = np.broadcast_to(prices, self.returns.shape[:2])
        tilts: FloatArray = (self.scale[:, None] * spread)[..., None] * self.direction
        return tilts

    def _price_slope(self, gradient: FloatArray) -> FloatArray:
        slope: FloatArray = self.scale[:, None] * (gradient @ self.direction)
        return slope

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

    def _best_choices(self, returns: TiltReturn, prices: FloatArray) -> float:
        """Return the expected return of prices (T, c) rounded to the choices, each then moved while it helps."""
        chosen = actions.nearest_choice(actions.DISCRETE, prices)
        best = returns(self._price_tilts(CHOICES[chosen]))
        for place in np.ndindex(chosen.shape):
            for move in (-1, 1):
                trial = chosen.copy()
                trial[place] = np.clip(trial[place] + move, 0, len(CHOICES) - 1)
                if (value := returns(self._price_tilts(CHOICES[trial]))) > best:
                    chosen, best = trial, value
        return best

    def _with_rows_alone(self, held: HeldReturn, point: FloatArray, alone: NDArray[np.bool_]) -> float:
        """Let single rows of a held policy leave the loads alone, or not, while it helps; then climb again."""
        best = held(point, alone)[0]
        for s in range(len(alone)):
            alone[s] ^= True
            if (value := held(point, alone)[0]) > best:
                best = value
            else:
                alone[s] ^= True
        again, _ = self._climb("best constant policy", {"": point}, lambda x: held(x, alone))
        return max(score(best, self.low, self.high), again[0])

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

        def climbed(x: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = returns.with_gradient(build(x))
            return value, pull(gradient)

        return self._climb(stage, starts, climbed, bounds)

    def _climb(
        self,
        stage: str,
        starts: dict[str, FloatArray],
        climbed: Callable[[FloatArray], tuple[float, FloatArray]],
        bounds: tuple[float, float] | None = None,
    ) -> tuple[tuple[float, FloatArray], str]:
        """Climb from every start by the return and its gradient."""
        gain = max(self.high - self.low, 1e-12)

        def loss(x: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = climbed(x)
            return (self.low - value) / gain, -gradient / gain

        best: tuple[tuple[float, FloatArray], str] = ((-np.inf, np.empty(0)), "")
        self.monitor.stage(stage, len(starts) * self.iterations)
        for done, (name, start) in enumerate(starts.items()):
            steps = iter(range(1, self.iterations + 1))

            def tell(_: Any, steps: Iterator[int] = steps, done: int = done) -> None:
                self.monitor.advance(done * self.iterations + next(steps, self.iterations))

            box = None if bounds is None else [bounds] * start.size
            limits = {"maxiter": self.iterations, "maxfun": 3 * self.iterations, "ftol": 1e-9, "gtol": 1e-7}
            result = minimize(
                loss, start.ravel(), jac=True, method="L-BFGS-B", bounds=box, callback=tell, options=limits
            )
            if -100.0 * result.fun > best[0][0]:
                best = ((-100.0 * float(result.fun), result.x), name)
        return best
