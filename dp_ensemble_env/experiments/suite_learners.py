"""The learners of the suite: trained on the training instances here, or loaded from the runs of `dp-ensemble train`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import Agent
from dp_ensemble_env.agents.hyperparams import ALGORITHMS, changes_for
from dp_ensemble_env.agents.loading import LearnedAgent
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.scenarios.problem import draw_release
from dp_ensemble_env.tools.console import Monitor


@dataclass(frozen=True)
class Budget:
    """A learner to train: algorithm, action mode and environment steps."""

    algo: str
    action: str
    steps: int

    @property
    def title(self) -> str:
        """Name in tables."""
        return f"{self.algo}, {self.action}"

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read ``ppo:price:50000``."""
        parts = text.split(":")
        if len(parts) != 3 or not parts[2].isdigit() or int(parts[2]) < 1:
            raise argparse.ArgumentTypeError(f"must look like ppo:price:50000, got {text!r}")
        for name, known in ((parts[0], ALGORITHMS), (parts[1], actions.names())):
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                raise argparse.ArgumentTypeError(f"does not know {name!r}{hint}; choose {', '.join(known)}")
        return cls(parts[0], parts[1], int(parts[2]))


@dataclass
class Learners:
    """Trained agents by name in the table and by scenario, and the action mode of each name.

    `private` are those that were trained on releases, `steps` the environment steps that each name was given.
    """

    agents: dict[str, dict[str, list[Agent]]] = field(default_factory=dict)
    private: dict[str, dict[str, list[Agent]]] = field(default_factory=dict)
    actions: dict[str, str] = field(default_factory=dict)
    steps: dict[str, set[int]] = field(default_factory=dict)

    def add(self, title: str, action: str, scenario: str, agent: Agent, private: bool = False) -> None:
        """Add one trained run."""
        kept = self.private if private else self.agents
        kept.setdefault(title, {}).setdefault(scenario, []).append(agent)
        self.actions[title] = action
        self.steps.setdefault(title, set()).add(int(getattr(agent, "steps", 0)))

    @property
    def words(self) -> dict[str, str]:
        """What each learner was given: steps and runs."""
        found = {}
        for title, steps in self.steps.items():
            low, high, runs = min(steps), max(steps), max(len(of) for of in self.agents[title].values())
            given = f"{low:,} to {high:,} steps" if low < high else f"{low:,} steps"
            found[title] = f"{given}, {runs} runs" if runs > 1 else given
        return found


def train_learners(
    learners: Learners,
    budget: Budget,
    names: Sequence[str],
    seeds: int,
    seed: int,
    monitor: Monitor,
    privacy: str | None = None,
) -> None:
    """Train a learner on the training instances of each scenario, `seeds` times; with `privacy` on releases, too."""
    for name in names:
        for private in (False, True) if privacy is not None else (False,):
            models = training_models(name, privacy if private else None)
            for i in range(seeds):
                where = " on releases" if private else ""
                monitor.stage(f"{name}: training {budget.title}{where}", budget.steps)

                def progress(done: int, planned: int, score: float) -> None:
                    monitor.advance(done, f"score {score:.1f}", planned)

                agent = train_once(budget, name, models, seed + i, progress)
                learners.add(budget.title, budget.action, name, agent, private)


def training_models(name: str, privacy: str | None, instances: int | None = None) -> list[EnsembleModel]:
    """Return the training instances of a scenario, or what releases of them show."""
    truth = [scenarios.make(name, instance=i) for i in scenarios.instances("train")[:instances]]
    if privacy is None:
        return truth
    return [one.with_default(draw_release(privacy, one, i).matrix) for i, one in enumerate(truth)]


def train_once(
    budget: Budget, name: str, models: Sequence[EnsembleModel], seed: int, progress: Callable[[int, int, float], None]
) -> LearnedAgent:
    """Train a learner on instances of a scenario, in turn."""
    from dp_ensemble_env.agents.sb3 import TrainingSettings, train

    changes = changes_for(budget.algo, name, budget.action)
    # Scores along the way are looked at by nobody here, and cost time.
    settings = TrainingSettings(seed, budget.steps, interval=max(1, budget.steps // 4), hyperparams=changes)
    return train(budget.algo, EnsembleEnv(models[0], action=budget.action), settings, progress=progress, models=models)


def load_runs(learners: Learners, folders: Iterable[Path]) -> None:
    """Load runs; each belongs to the scenario that its folder remembers."""
    from dp_ensemble_env.agents.runs import read_object, remembered_environment

    for folder in folders:
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} is no run folder; make one with dp-ensemble train.")
        config = read_object(folder / "config.json")
        made = remembered_environment(folder / "config.json")
        problem = made.get("problem") or {}
        if not made or problem.get("meter") is not None or problem.get("scenario") not in scenarios.names():
            raise ValueError(f"{folder} was not trained in a registered scenario; leave it out of the suite.")
        if made.get("population", "mean-field") != "mean-field":
            raise ValueError(f"{folder} was trained in the population {made['population']!r}; the suite is mean-field.")
        from dp_ensemble_env.agents.sb3 import load_agent

        agent = load_agent(folder)
        learners.add(f"{config['algo']}, {config['action']}", config["action"], problem["scenario"], agent)
