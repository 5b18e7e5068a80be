"""Every agent on every scenario: one table for the whole benchmark.

Each cell is the score of an agent over the test instances of a scenario, every instance between its own uncontrolled
loads (0) and its own exact optimum (100). Controllers that plan are made on each instance and scored exactly, in the
mean field. Learners are trained on the training instances, or given as trained runs, and play the test instances as
they are.

`dp_ensemble_env.experiments.capabilities` makes the picture of each agent from the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import Agent, evaluate_split
from dp_ensemble_env.agents.generalisation import SplitOutcome
from dp_ensemble_env.agents.plans import best_constant_price, plan_without_data
from dp_ensemble_env.agents.statistics import Interval, interval, suite_interval
from dp_ensemble_env.control.returns import ExactReturn, myopic_tilts, optimal_tilts
from dp_ensemble_env.envs.actions import action_scale, price_tilts
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import score, start_values
from dp_ensemble_env.scenarios.problem import draw_release
from dp_ensemble_env.tools.console import Monitor, Silent
from dp_ensemble_env.tools.validation import check_choice, check_count

FloatArray = NDArray[np.float64]
#: Tilts (T, c, m), in nats, that a controller plans on a model.
Planner = Callable[[EnsembleModel], FloatArray]


# ------------------------------------------------------------------ controllers that plan
def leave_alone(model: EnsembleModel) -> FloatArray:
    """Do not interfere."""
    return np.zeros((model.horizon, model.n_contexts, model.n_decisions))


def constant_price(model: EnsembleModel) -> FloatArray:
    """Hold the one price throughout that earns most."""
    return price_tilts(model, np.full((model.horizon, model.n_contexts), best_constant_price(model)))


PLANNERS: dict[str, Planner] = {
    "uncontrolled": leave_alone,
    "best-price": constant_price,
    "myopic": myopic_tilts,
    "public-guess": plan_without_data,
    "standard": optimal_tilts,
}


# ------------------------------------------------------------------ results
@dataclass(frozen=True, eq=False)
class Entry:
    """One agent on one scenario; scores are of shape (runs, instances), those of the test set unless said otherwise.

    Attributes
    ----------
    agent, scenario : str
    scores : ndarray
        What the table shows.
    home : ndarray or None
        Training instances: what it reaches where it was made.
    abroad : ndarray or None
        Test instances, played as it was made on training instances.
    private : ndarray or None
        Made on releases, deployed on the truth: planners on a release of each test instance, learners on
        releases of the training instances.
    exact : bool
        Whether the scores are exact rather than estimated from episodes.
    """

    agent: str
    scenario: str
    scores: FloatArray
    home: FloatArray | None = None
    abroad: FloatArray | None = None
    private: FloatArray | None = None
    exact: bool = True

    @property
    def score(self) -> Interval:
        """Interquartile mean and 95 % bootstrap interval."""
        return interval(self.scores)


@dataclass(frozen=True)
class Facts:
    """What is known of a scenario before any agent: see `dp_ensemble_env.experiments.probes`.

    `size` is the number of entries of its behaviour, T · c · n · m.
    """

    open_loop: float
    public_guess: float
    coupled: bool
    size: int


@dataclass(frozen=True)
class SuiteSettings:
    """What is run.

    Attributes
    ----------
    scenarios : tuple of str
        By default all that are registered.
    agents : tuple of str
        Controllers that plan, of `PLANNERS`.
    instances : int, optional
        The first so many test instances only.
    privacy : str or None
        Mechanism whose releases the capability *data* is measured with; None leaves it out.
    episodes : int
        Of each instance, where a learner meets chance. They are compared with the optimum along
        the same contexts, so few suffice.
    """

    scenarios: tuple[str, ...] = ()
    agents: tuple[str, ...] = tuple(PLANNERS)
    instances: int | None = None
    privacy: str | None = "dirichlet:k=50"
    episodes: int = 200

    def __post_init__(self) -> None:
        for name in self.scenarios:
            check_choice(name, "scenario", scenarios.names())
        for name in self.agents:
            check_choice(name, "agent", PLANNERS)
        if self.instances is not None:
            check_count(self.instances, "instances", 1, len(scenarios.instances("test")))
        check_count(self.episodes, "episodes", 2)

    @property
    def names(self) -> tuple[str, ...]:
        """The scenarios that are run."""
        return self.scenarios or tuple(scenarios.names())

    @property
    def numbers(self) -> range:
        """The test instances that are run."""
        return scenarios.instances("test")[: self.instances]


@dataclass(frozen=True, eq=False)
class Suite:
    """All entries, in the order of the table, and the facts of each scenario.

    `learners` says in words what each learner was given, such as "50,000 steps".
    """

    entries: list[Entry]
    facts: dict[str, Facts]
    settings: SuiteSettings = field(default_factory=SuiteSettings)
    learners: dict[str, str] = field(default_factory=dict)

    @property
    def agents(self) -> list[str]:
        """The agents, in order."""
        return list(dict.fromkeys(entry.agent for entry in self.entries))

    @property
    def scenarios(self) -> list[str]:
        """The scenarios, in order."""
        return list(dict.fromkeys(entry.scenario for entry in self.entries))

    def of(self, agent: str) -> dict[str, Entry]:
        """Return the entries of an agent by scenario."""
        return {entry.scenario: entry for entry in self.entries if entry.agent == agent}

    def mean(self, agent: str) -> Interval | None:
        """Return the mean over scenarios of the interquartile means, with its interval; None if one is missing."""
        mine = self.of(agent)
        if len(mine) < len(self.scenarios):
            return None
        return suite_interval({name: entry.scores for name, entry in mine.items()})


# ------------------------------------------------------------------ running
def run_suite(
    settings: SuiteSettings = SuiteSettings(),  # noqa: B008 - frozen
    trained: Mapping[str, Mapping[str, Sequence[Agent]]] | None = None,
    action: str | Mapping[str, str] = "price",
    monitor: Monitor | None = None,
    private: Mapping[str, Mapping[str, Sequence[Agent]]] | None = None,
) -> Suite:
    """Score planners and trained agents on the test instances of every scenario.

    Parameters
    ----------
    settings : SuiteSettings
    trained : mapping, optional
        For each name in the table the trained agents by scenario; several of a scenario are runs with other seeds.
    action : str or mapping
        Action mode that they were trained in, for all or by name.
    monitor : Monitor, optional
    private : mapping, optional
        Like `trained`, those that were trained on releases.
    """
    monitor = monitor or Silent()
    entries: list[Entry] = []
    found: dict[str, Facts] = {}
    for count, name in enumerate(settings.names, 1):
        where = f"{name} ({count} of {len(settings.names)})"
        monitor.stage(f"{where}: planning", len(settings.numbers))
        found[name] = facts(name)
        entries += planned(name, settings, monitor)
        for title, agents in (trained or {}).items():
            if name in agents:
                mode = action if isinstance(action, str) else action[title]
                monitor.stage(f"{where}: {title}")
                outcome = _played(agents[name], name, mode, settings, monitor)
                twins = (private or {}).get(title, {}).get(name)
                misled = None if twins is None else _played(twins, name, mode, settings, monitor, gap=False).scores
                entries.append(
                    Entry(title, name, outcome.scores, outcome.training, outcome.scores, misled, exact=False)
                )
    return Suite(entries, found, settings)


def _played(
    agents: Sequence[Agent], name: str, action: str, settings: SuiteSettings, monitor: Monitor, gap: bool = True
) -> SplitOutcome:
    """Play the test instances of a scenario with trained agents."""
    return evaluate_split(
        list(agents),
        name,
        action=action,
        instances=settings.instances,
        gap=gap,
        episodes=settings.episodes,
        monitor=monitor,
    )


def facts(name: str) -> Facts:
    """Return the recorded probes of a scenario, or compute what is needed of them."""
    from dp_ensemble_env.experiments.probes import Prober, recorded

    model = scenarios.make(name)
    size = model.horizon * model.n_contexts * model.n_states * model.n_decisions
    if found := recorded(name):
        return Facts(found[0].open_loop, found[0].public_guess, model.coupling is not None, size)
    prober = Prober(model, effort=0.3)
    loop = 100.0 if model.context is None else prober.open_loop()
    return Facts(loop, prober.public_guess(), model.coupling is not None, size)


def planned(name: str, settings: SuiteSettings, monitor: Monitor) -> list[Entry]:
    """Score the controllers that plan."""
    first = scenarios.make(name)
    plans = {agent: PLANNERS[agent](first) for agent in settings.agents}
    at_home = InstanceScorer(first)
    columns: dict[str, list[tuple[float, float, float]]] = {agent: [] for agent in settings.agents}
    for i in settings.numbers:
        monitor.advance(i, f"instance {i}", len(settings.numbers))
        model = scenarios.make(name, instance=i, split="test")
        scorer = InstanceScorer(model)
        seen = model
        if settings.privacy is not None:
            seen = model.with_default(draw_release(settings.privacy, model, i).matrix)
        for agent in settings.agents:
            plan = PLANNERS[agent]
            made = scorer(plan(model))
            private = scorer(plan(seen)) if settings.privacy is not None else np.nan
            columns[agent].append((made, scorer(_carried(plans[agent], first, model)), private))
    entries = []
    for agent, rows in columns.items():
        scores, abroad, private_scores = (np.array([column]) for column in zip(*rows, strict=True))
        home = np.array([[at_home(plans[agent])]])
        kept = None if np.isnan(private_scores).any() else private_scores
        entries.append(Entry(agent, name, scores, home, abroad, kept))
    return entries


class InstanceScorer:
    """Scores tilts (T, c, m) on a model, exactly."""

    def __init__(self, model: EnsembleModel) -> None:
        self.returns, self.ends = ExactReturn(model), start_values(model)

    def __call__(self, tilts: FloatArray) -> float:
        """Return the score of tilts (T, c, m)."""
        return score(self.returns(tilts), *self.ends)


def _carried(tilts: FloatArray, made: EnsembleModel, model: EnsembleModel) -> FloatArray:
    """Play what was planned on one instance on another: equal actions, in the units of each."""
    before, now = action_scale(made), action_scale(model)
    factor: Any = np.divide(now, before, out=np.zeros_like(now), where=before > 0)
    carried: FloatArray = tilts * factor[:, None, None]
    return carried
