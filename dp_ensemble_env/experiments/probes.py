r"""Scores of simple controllers in a scenario, which show whether it needs feedback, memory, data or foresight.

A score is 0 for the uncontrolled loads and 100 for the optimum. The gap between a probe and 100 is the value of the
information that the probe ignores:

open loop
    The best sequence of tilts by time alone, found by exact gradients. It is 100 without a context. Gap: feedback.
blind
    The best tilts by time and by the context shown now, without memory and without the shares. If the shares are hidden
    this is the best agent without memory. Gap: memory, or the shares.
public guess
    The plan without data: computed from the scenario's textbook behaviour, or from a lazy walk if there is no textbook,
    and deployed as a tilt. Gap: data.
myopic
    A tilt by the next utility alone. Gap: foresight.
action modes
    The best constant action, the best action for each context shown, the best for each time and context (the ceiling),
    all ones, and the mean over random actions. Gap: a learner.

All are computed exactly in the mean field, on the true behaviour.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from dp_ensemble_env import __version__, scenarios
from dp_ensemble_env.agents.plans import on_support
from dp_ensemble_env.control.policies import centred, solve_standard
from dp_ensemble_env.control.returns import ExactReturn, myopic_tilts, optimal_tilts
from dp_ensemble_env.envs import ACTIONS, actions
from dp_ensemble_env.experiments.deployment import score_without_data
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import score, start_values
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.tools.console import Monitor
from dp_ensemble_env.tools.files import write_json
from dp_ensemble_env.tools.validation import check_positive

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Random sequences of actions, their seed, and their standard deviations.
SEQUENCES, SEED, SPREADS = 64, 13, (0.5, 1.0)
#: Single numbers that are tried before a search begins from the best of them.
GRID: FloatArray = np.linspace(-1.0, 1.0, 81)


class Mode(NamedTuple):
    """Scores in one action mode."""

    constant: float  #: best action that is held throughout
    by_context: float  #: best action for each context that is shown, held throughout
    #: Best actions by time and context that were found; a mean field that also looks at where the loads are may gain a
    #: point more. The optimum itself in policy mode.
    ceiling: float
    ones: float  #: all ones
    half: float  #: mean score of random actions with standard deviation 0.5, clipped to the box
    one: float  #: the same with standard deviation 1


@dataclass(frozen=True)
class Probes:
    """Scores of simple controllers, 0 = uncontrolled, 100 = optimum, in the mean field."""

    open_loop: float  #: best tilts by time alone
    public_guess: float  #: the plan made without data
    myopic: float  #: tilt by the next utility alone
    uncontrolled: float  #: what 0 stands for, in dollars per load
    optimum: float  #: what 100 stands for
    modes: dict[str, Mode]
    how: dict[str, str] = field(default_factory=dict, compare=False)  #: in words, how each was found
    blind: float = 100.0  #: best tilts by time and what is shown of the context
    #: Best tilts by time, what is shown, and a memory, for each memory that the scenario describes.
    ladder: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and words."""
        modes = {name: {key: plain(x) for key, x in mode._asdict().items()} for name, mode in self.modes.items()}
        return {**{name: plain(value) for name, value in asdict(self).items()}, "modes": modes}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Probes:
        """Read what `to_dict` wrote."""
        return cls(**{**content, "modes": {name: Mode(**scores) for name, scores in content["modes"].items()}})


def probe(
    model: EnsembleModel, *, effort: float = 1.0, monitor: Monitor | None = None, memories: bool = False
) -> Probes:
    """Compute all probes of a model; the ladder of `memories` takes a minute.

    `effort` multiplies the iterations of the searches; 1 suffices for the built-in scenarios.

    Examples
    --------
    >>> round(probe(scenarios.make("campus-event"), effort=0.1).open_loop)
    100
    """
    prober = Prober(model, effort=effort, monitor=monitor)
    scores = {name: getattr(prober, name)() for name in ("open_loop", "blind", "public_guess", "myopic")}
    modes, ladder = {name: prober.mode(name) for name in ACTIONS}, prober.ladder() if memories else {}
    return Probes(**scores, uncontrolled=prober.low, optimum=prober.high, modes=modes, how=prober.how, ladder=ladder)


class Prober:
    """The probes one by one; each method returns scores and says in `how` where they come from."""

    def __init__(self, model: EnsembleModel, *, effort: float = 1.0, monitor: Monitor | None = None) -> None:
        self.model, self.returns = model, ExactReturn(model)
        self.monitor = Monitor() if monitor is None else monitor
        self.iterations = max(10, int(400 * check_positive(effort, "effort")))
        self.low, self.high = start_values(model)
        self.best = optimal_tilts(model)
        self.chances = context_shares(model)[:-1]
        self.how: dict[str, str] = {}
        self._basis = cache(lambda name: actions.basis_of(actions.mode(name), model))
        self._blind = np.zeros(model.n_contexts, np.int64)
        self._shown = self._blind if model.context is None else np.asarray(model.context.shown)

    def score(self, tilts: FloatArray) -> float:
        """Return the score of tilts that broadcast to (T, c, m)."""
        return score(self.returns(tilts), self.low, self.high)

    # ------------------------------------------------------------ feedback, foresight and data
    def open_loop(self) -> float:
        """Search the best tilts by time alone."""
        return self._best_tilts("open_loop", self._blind)

    def blind(self) -> float:
        """Search the best tilts by time and what is shown of the context."""
        context = self.model.context
        if context is None or (context.is_shown and self.model.coupling is None):
            return 100.0  # the optimum is a table by time and context
        return self._best_tilts("blind", self._shown)

    def ladder(self) -> dict[str, float]:
        """Let the best blind tilts follow a memory of the signs, too, for each memory that the scenario describes."""
        known = scenarios.memories(self.model.scenario)
        return {name: Prober(with_memory(self.model, *memory)).blind() for name, memory in known.items()}

    def _best_tilts(self, name: str, groups: IntArray) -> float:
        """Search the best tilts by time that are equal in all contexts of a group, from several starts."""
        average = self._mean(self.best, groups, by_time=True)
        starts = {"no interference": np.zeros_like(average), "the optimum's mean over the contexts": average}
        if self.model.context is not None:
            starts["the optimum of the mean model"] = optimal_tilts(mean_model(self.model)) + np.zeros_like(average)
        identity = np.eye(self.model.n_decisions)[None, None]
        starts = {key: self._centred(x) for key, x in starts.items()}
        score, _, start = self._climb(name, starts, identity, groups, boxed=False)
        self.how[name] = f"L-BFGS over {average.size} tilts from {len(starts)} starts; best from {start}"
        return score

    def myopic(self) -> float:
        """Tilt by the expected next utility alone."""
        self.how["myopic"] = "tilt by the expected utility of the next state over the penalty"
        return self.score(myopic_tilts(self.model))

    def public_guess(self) -> float:
        """Plan without data."""
        known = self.model.guess is not None
        self.how["public_guess"] = f"plan on {'the textbook behaviour of the scenario' if known else 'a lazy walk'}"
        return score_without_data(self.model)  # as an agent plays it, inside the box of the actions

    # ------------------------------------------------------------ action modes
    def mode(self, name: str) -> Mode:
        """Score an action mode."""
        constant = self.constant(name)
        by_context = max(constant, self.by_context(name)) if self._shown.any() else constant
        random = [self.random(name, spread) for spread in SPREADS]
        return Mode(constant, by_context, max(by_context, self.ceiling(name)), self.ones(name), *random)

    def constant(self, name: str) -> float:
        """Search the best action that is held throughout."""
        return self._best_actions(name, "constant", self._blind)

    def by_context(self, name: str) -> float:
        """Search the best action for each context that is shown, held throughout."""
        return self._best_actions(name, "by context", self._shown)

    def ceiling(self, name: str) -> float:
        """Search the best actions by time and context; the policy mode contains the optimum."""
        if actions.mode(name).basis is None:
            return 100.0
        return self._best_actions(name, "ceiling", np.arange(self.model.n_contexts), by_time=True)

    def ones(self, name: str) -> float:
        """Play all ones."""
        return self._played(name, np.ones((1, 1, self._size(name))))

    def random(self, name: str, spread: float) -> float:
        """Return the mean score of random actions, clipped to the box."""
        rng, chosen, shape = np.random.default_rng(SEED), actions.mode(name), (self.model.horizon, 1, self._size(name))
        drawn = (np.clip(spread * rng.standard_normal(shape), chosen.low, 1.0) for _ in range(SEQUENCES))
        if chosen.levels:
            drawn = (chosen.choices[actions.nearest_choice(chosen, numbers)] for numbers in drawn)
        return float(np.mean([self._played(name, numbers) for numbers in drawn]))

    def _best_actions(self, name: str, what: str, groups: IntArray, by_time: bool = False) -> float:
        """Search the best numbers (T or 1, groups, d) of a mode."""
        chosen = actions.mode(name)
        if chosen.basis is None:
            return self._best_policies(what, groups)
        basis = self._basis(name)
        optimum = actions.actions_of(actions.PRICE if chosen.levels else chosen, self.model, self._centred(self.best))
        mean = self._mean(np.asarray(optimum, float), groups, by_time)
        starts = {"no interference": np.zeros_like(mean), "the optimum": np.clip(mean, -1.0, 1.0)}
        if mean.size == 1:
            held = [self._played(name, np.full((1, 1, 1), x)) for x in GRID]
            starts[f"{len(GRID)} numbers"] = np.full((1, 1, 1), GRID[int(np.argmax(held))])
        score, numbers, start = self._climb(f"{name}: {what}", starts, basis, groups)
        self.how[f"{name}, {what}"] = f"L-BFGS-B over {mean.size} numbers; best from {start}"
        return self._rounded(name, numbers, groups) if chosen.levels else score

    def _rounded(self, name: str, numbers: FloatArray, groups: IntArray) -> float:
        """Round numbers (T or 1, groups, 1) to the choices of a mode, and move each by one while that helps."""
        chosen = actions.mode(name)
        picks = actions.nearest_choice(chosen, numbers)
        best = self._played(name, chosen.choices[picks][:, groups])
        possible = self.chances @ np.eye(picks.shape[1])[groups] > 0
        for t, group in np.argwhere(possible if len(picks) > 1 else possible.any(axis=0, keepdims=True)):
            for move in (-1, 1):
                trial, place = picks.copy(), (t, group, 0)
                trial[place] = np.clip(trial[place] + move, 0, chosen.levels - 1)
                if (value := self._played(name, chosen.choices[trial][:, groups])) > best:
                    picks, best = trial, value
        return best

    def _best_policies(self, what: str, groups: IntArray) -> float:
        """Search the best policy (groups, n, m) that is held throughout.

        The numbers are the logarithms of the policy, so the tilts are these less the logarithms of the behaviour.
        """
        behaviour = self.model.tables().behaviour
        state, decision = self._by_state.entries
        possible = behaviour[:, :, state, decision]
        optimum = solve_standard(self.model).policy.reshape(behaviour.shape)[:, :, state, decision]
        offset = -np.log(np.where(possible > 0, possible, 1.0))
        means = {"the mean behaviour": possible, "the mean of the optimum": optimum}
        starts = {key: np.log(np.maximum(self._mean(x, groups, False), 1e-6)) for key, x in means.items()}
        score, numbers, start = self._climb(f"policy: {what}", starts, None, groups, offset=offset)
        self.how[f"policy, {what}"] = f"L-BFGS over {numbers.size} numbers; best from {start}"
        return max(score, 0.0)  # zeros leave the loads alone

    def _played(self, name: str, numbers: FloatArray) -> float:
        """Return the score of actions that broadcast to (T, c, d)."""
        if actions.mode(name).basis is not None:
            return self.score((numbers[..., None, :] @ self._basis(name))[..., 0, :])
        behaviour, (state, decision) = self.model.tables().behaviour, self._by_state.entries
        rows = np.broadcast_to(numbers, (*behaviour.shape[:2], numbers.shape[-1])).reshape(behaviour.shape)
        policy = on_support(rows.reshape(self.model.default_policy.shape), self.model).reshape(behaviour.shape)
        ratio = np.divide(policy, behaviour, out=np.ones_like(policy), where=behaviour > 0)
        tilts = np.log(np.maximum(ratio, 1e-300))[:, :, state, decision]
        return score(self._by_state(tilts), self.low, self.high)

    def _size(self, name: str) -> int:
        return int(np.prod(actions.mode(name).shape(self.model)))

    @cached_property
    def _by_state(self) -> ExactReturn:
        return ExactReturn(self.model, by_state=True)

    # ------------------------------------------------------------ parts
    def _mean(self, numbers: FloatArray, groups: IntArray, by_time: bool) -> FloatArray:
        """Return the mean of numbers (T, c, d) over the contexts of each group, as they are likely, and over time."""
        member = np.eye(groups.max() + 1)[groups]
        weights = self.chances[:, :, None] * member + 1e-12 * member
        axes = "tgd" if by_time else "gd"
        total = weights.sum(axis=1 if by_time else (0, 1))[..., None]
        mean: FloatArray = np.einsum(f"twg,twd->{axes}", weights, numbers) / total
        return mean if by_time else mean[None]

    def _centred(self, tilts: FloatArray) -> FloatArray:
        """Centre each set of competing decisions on its own; decisions that nobody takes count for nothing."""
        taken = (self.model.default > 0).reshape(-1, self.model.n_decisions).any(axis=0)
        return np.where(taken, centred(tilts, self.model.default, taken), 0.0)

    def _climb(
        self,
        stage: str,
        starts: dict[str, FloatArray],
        basis: FloatArray | None,
        groups: IntArray,
        *,
        boxed: bool = True,
        offset: FloatArray | float = 0.0,
    ) -> tuple[float, FloatArray, str]:
        """Climb over numbers (T or 1, groups, d), in [-1, 1] if `boxed`, from every start.

        They stand for tilts by a basis (T or 1, c or 1, d, m); without one they are tilts by state, less an `offset`.
        Returns the best score, its numbers, and the name of the start that led there.
        """
        returns, boxed = self.returns if basis is not None else self._by_state, boxed and basis is not None
        shape = next(iter(starts.values())).shape
        gain, member = max(self.high - self.low, 1e-12), np.eye(shape[1])[groups]

        def loss(x: FloatArray) -> tuple[float, FloatArray]:
            numbers = x.reshape(shape)[:, groups]
            tilts = numbers if basis is None else (numbers[..., None, :] @ basis)[..., 0, :]
            value, slope = returns.with_gradient(np.broadcast_to(tilts + offset, returns.shape))
            slope = slope if basis is None else (basis @ slope[..., None])[..., 0]
            slope = np.einsum("twd,wg->tgd", slope, member)
            slope = slope.sum(axis=0, keepdims=True) if shape[0] == 1 else slope
            return (self.low - value) / gain, -slope.ravel() / gain

        best, limit = (-np.inf, np.empty(0), ""), self.iterations
        options = {"maxiter": limit, "maxfun": 3 * limit, "ftol": 1e-9, "gtol": 1e-7}
        self.monitor.stage(stage, len(starts) * limit)
        for done, (name, start) in enumerate(starts.items()):
            steps = iter(range(1, limit + 1))

            def tell(_: Any, steps: Iterator[int] = steps, done: int = done) -> None:
                self.monitor.advance(done * limit + next(steps, limit))

            box = [(-1.0, 1.0)] * start.size if boxed else None
            how: dict[str, Any] = {"jac": True, "method": "L-BFGS-B", "callback": tell, "options": options}
            result = minimize(loss, start.ravel(), bounds=box, **how)
            if -100.0 * result.fun > best[0]:
                best = (-100.0 * float(result.fun), result.x.reshape(shape), name)
        return best


def with_memory(model: EnsembleModel, follow: ArrayLike, first: int) -> EnsembleModel:
    """Return the model in which the context carries a memory of its signs, see `Context.remembering`."""
    assert model.context is not None
    context, nature = model.context.remembering(follow, first), model.nature
    copies = len(context) // model.n_contexts
    if nature is not None and nature.ndim == 4:
        nature = np.tile(nature, (1, copies, 1, 1))
    default = np.tile(model.default, (1, copies, 1, 1)) if model.default.ndim == 4 else model.default
    utility = np.tile(model.tables().utility, (1, copies, 1))
    return model.override(
        context=context, default=default, guess=None, utility=utility, nature=nature, support=None, scenario=""
    )


def context_shares(model: EnsembleModel) -> FloatArray:
    """Return the probability of every context at times 0 … T, (T + 1, c)."""
    return np.ones((model.horizon + 1, 1)) if model.context is None else model.context.distributions(model.horizon)


def mean_model(model: EnsembleModel) -> EnsembleModel:
    """Return the model that an observer without the context would write down: everything averaged over it."""
    behaviour, nature, _, utility = model.tables()
    shares = context_shares(model)
    return model.override(
        default=np.einsum("tw,twsa->tsa", shares[:-1], behaviour),
        nature=None if model.nature is None else np.einsum("tw,twas->tas", shares[:-1], nature),
        utility=np.einsum("tw,tws->ts", shares, utility),
        context=None,
        guess=None,
    )


# ------------------------------------------------------------------ the record
def record(by_scenario: dict[str, list[Probes]], path: Path = scenarios.RECORD) -> None:
    """Write probes of training instances 0, 1, … into the file of the cards; other scenarios' stay as they are."""
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name, instances in by_scenario.items():
        content[name] = {
            "version": scenarios.card(name).version,
            "package": __version__,
            "date": datetime.date.today().isoformat(),
            "split": "train",
            "instances": [_rounded(probes.to_dict()) for probes in instances],
        }
    write_json(path, dict(sorted(content.items())))


def recorded(name: str) -> list[Probes]:
    """Return the recorded probes of a scenario, those of its training instances 0, 1, …; empty if there are none."""
    content = scenarios.card(name).probes
    return [] if content is None else [Probes.from_dict(instance) for instance in content["instances"]]


def _rounded(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _rounded(value) for name, value in content.items()}
    return round(content, 4) if isinstance(content, float) else content
