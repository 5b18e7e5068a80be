"""How an agent does on instances that it has never seen.

A scenario draws its instances (prices, season, parameters) by a seed. The sets to train on, to choose settings with and
to report are fixed and disjoint (`dp_ensemble_env.scenarios.instances`), and every instance is scored between its own
uncontrolled loads and its own exact optimum.

All instances of a scenario have equal shapes, so one network fits them all. What it sees and does is in the
units of the instance: prices are scaled to the instance's own range, and an action of one stands for the
instance's own scale of tilts, both public. So "a high price" looks alike on all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents.base import Agent, make_agent
from dp_ensemble_env.agents.evaluation import evaluate
from dp_ensemble_env.agents.statistics import Interval, difference, interval
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.tools.console import Monitor
from dp_ensemble_env.tools.validation import check_choice, check_count

FloatArray = NDArray[np.float64]
Factory = Callable[[EnsembleEnv], Agent]


@dataclass(frozen=True, eq=False)
class SplitOutcome:
    """Scores on the instances of a split and on the training instances."""

    scenario: str
    split: str
    scores: FloatArray
    """Shape (1, instances): 0 = uncontrolled, 100 = optimum, each instance against its own."""
    training: FloatArray | None = None
    """Scores on training instances; None if the split is ``"train"`` or no gap was requested."""

    @property
    def score(self) -> Interval:
        """Interquartile mean and 95 % bootstrap interval."""
        return interval(self.scores)

    @property
    def gap(self) -> Interval | None:
        """Score on training instances minus score on the split; near zero if the agent generalises."""
        return None if self.training is None else difference(self.training, self.scores)

    def __repr__(self) -> str:
        gap = "" if self.gap is None else f", gap to training {self.gap}"
        return f"SplitOutcome({self.scenario}, {self.scores.shape[1]} {self.split} instances, score {self.score}{gap})"

    def lines(self) -> list[tuple[str, str, str]]:
        """Return label, number and remark of everything that is reported, formatted for people."""

        def line(label: str, estimate: Interval, more: str = "") -> tuple[str, str, str]:
            return label, f"{estimate.value:.2f}", f"95 % interval [{estimate.low:.2f}, {estimate.high:.2f}]{more}"

        rows = [
            line(f"score, {self.split} instances", self.score, f", instances: {self.scores.shape[1]}"),
            ("least and greatest score", f"{self.scores.min():.2f}", f"to {self.scores.max():.2f}"),
        ]
        if self.training is not None and self.gap is not None:
            about = f", instances: {self.training.shape[1]}"
            rows.append(line("score, training instances", interval(self.training), about))
            rows.append(line("gap, training less this", self.gap))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists, ready for JSON."""
        gap = None if self.gap is None else {name: plain(x) for name, x in self.gap._asdict().items()}
        return {
            "scenario": self.scenario,
            "split": self.split,
            **{name: plain(x) for name, x in zip(("iqm", "low", "high"), self.score, strict=True)},
            "scores": self.scores.tolist(),
            "training_scores": None if self.training is None else self.training.tolist(),
            "gap": gap,
        }


def evaluate_split(
    agent: str | Agent | Factory,
    scenario: str,
    split: str = "test",
    *,
    population: str | int = "mean-field",
    action: str = "tilt",
    instances: int | None = None,
    gap: bool = True,
    episodes: int | None = None,
    seed: int = 0,
    monitor: Monitor | None = None,
) -> SplitOutcome:
    """Score an agent on the instances of a split: "train", "validation" or "test".

    An agent plays all instances unchanged. From a name, or a function of an environment, an agent is made for each
    instance. `instances` limits the number of instances in each set; `gap` also scores the training instances.
    `population` and `action` are as in `EnsembleEnv`, `episodes` and `seed` as in `evaluate`.

    Examples
    --------
    >>> evaluate_split("standard", "campus-event", "validation", instances=2)
    SplitOutcome(campus-event, 2 validation instances, score 100.0, gap to training 0.0)
    """
    check_choice(scenario, "scenario", scenarios.names())
    check_choice(split, "split", scenarios.SPLITS)
    monitor = monitor or Monitor()
    by_split = {}
    for name in dict.fromkeys((split, "train") if gap else (split,)):
        numbers = scenarios.instances(name)
        numbers = numbers if instances is None else numbers[: check_count(instances, "instances", 1, len(numbers))]
        monitor.stage(f"{name} instances", len(numbers))
        scores = []
        for i in numbers:
            env = EnsembleEnv(scenario, population, action, instance=i, split=name)
            scores.append(evaluate(_made(agent, env), env, episodes, seed).score)
            monitor.advance(len(scores), f"score {scores[-1]:.1f}")
        by_split[name] = np.array([scores])
    return SplitOutcome(scenario, split, by_split.pop(split), by_split.get("train"))


def _made(agent: Any, env: EnsembleEnv) -> Agent:
    """Return an agent as it is, or make it in an environment."""
    if isinstance(agent, str):
        return make_agent(agent, env)
    if hasattr(agent, "predict"):
        return agent  # type: ignore[no-any-return]
    if not callable(agent):
        raise ValueError(f"agent must be a name, an agent or a function of an environment, got {agent!r}.")
    return agent(env)  # type: ignore[no-any-return]
