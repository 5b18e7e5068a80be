"""Train a learner, and keep the run in a folder.

::

    from dp_ensemble_env.agents.train import TrainingSettings, train

    env = gymnasium.make("dp_ensemble/Spot-v1")
    agent = train("ppo", env, TrainingSettings(seed=0))
    steps, score = agent.curve[-1]

``make_agent("ppo", env, seed=0)`` does the same. Every registered agent that learns can be trained: those of libraries
and `apg` in segments that can be resumed, all others in one go. torch and Stable-Baselines3 are imported when they are
needed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dp_ensemble_env.agents.base import Kind, agent_kind, agent_names, core_env, privacy_of, register_agent
from dp_ensemble_env.agents.evaluation import evaluate
from dp_ensemble_env.agents.learners import (
    LIBRARIES,
    changed,
    defaults_of,
    learner_settings,
    one_thread,
    population_of,
    tuned_settings,
)
from dp_ensemble_env.agents.loading import APG, LearnedAgent
from dp_ensemble_env.agents.networks import Trainer
from dp_ensemble_env.agents.runs import POLICY, Binding, Callback, Record, RunFolder, Watch, save_checkpoint, write_json
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import sole_writer
from dp_ensemble_env.tools.validation import check_choice, check_count, option

__all__ = ["RunFolder", "TrainingSettings", "check_settings", "register_learner", "train"]

#: Finite populations are scored with these episodes while training, and with others at the end.
WATCH_SEED, FINAL_SEED = 5_000_000, 10_000
CUTS = 20
#: What identifies a run.
Config = dict[str, Any]
#: What training reveals where there is no release.
TRUE = "none: learned from the true dynamics"


# ------------------------------------------------------------------ settings
@dataclass(frozen=True)
class TrainingSettings:
    """How a learner is trained."""

    seed: int = 0
    """Seed of networks, exploration and episodes."""
    steps: int | None = None
    """Budget of environment steps over all sub-environments, by default the tuned one. It is not exceeded: what is less
    than a rollout is left over."""
    target: float | None = None
    """Stop at the first cut with at least this score."""
    interval: int | None = None
    """Steps between cuts (score and checkpoint), by default a twentieth."""
    hyperparams: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the tuned hyper-parameters."""
    tuned: bool = True
    """False: begin with the library's own defaults instead of the tuned hyper-parameters."""

    def __post_init__(self) -> None:
        check_count(self.seed, "seed", 0, 2**31 - 1)
        for name in ("steps", "interval"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)
        if self.target is not None and not self.target <= 100:
            raise ValueError(f"target must be at most 100, the optimum, got {self.target:g}.")


def check_settings(
    algo: str, env: Any, changes: Mapping[str, Any] | None = None, scenario: str | None = None, tuned: bool = True
) -> dict[str, Any]:
    """Return all settings of a learner in an environment, with changes; refuse names and values that cannot be.

    Those of `scenario` apply, by default of the one that the environment was made with. Unless `tuned`, they begin with
    the library's own.
    """
    core: Any = core_env(env)
    check_choice(algo, "algo", agent_names(learns=True))
    scenario = core.settings.scenario if scenario is None else scenario
    if algo == APG:
        mode = actions.mode(core.action_mode)
        if mode.basis is None or mode.levels:
            raise ValueError(
                f"apg follows the gradient of tilts, which {option('action', core.action_mode)} has none of; pass "
                f"{option('action', 'tilt', 'price')}."
            )
        return changed(algo, tuned_settings(algo, population_of(core), core.action_mode, scenario), changes or {})
    if algo in LIBRARIES:
        return learner_settings(algo, core, changes, scenario, tuned)
    return changed(algo, {}, changes or {}, defaults_of(agent_kind(algo).make))


# ------------------------------------------------------------------ training
def train(
    algo: str,
    env: Any = None,
    settings: TrainingSettings = TrainingSettings(),  # noqa: B008 - frozen
    *,
    keep: RunFolder | None = None,
    progress: Callback | None = None,
    models: Sequence[EnsembleModel] = (),
    scenario: str | None = None,
) -> LearnedAgent:
    """Train a learner by interaction with an environment alone.

    Environments like `env` are trained in, by default the mean field of the campus event in price mode; it is left
    alone. With `models` each episode draws one of these instead of the environment's (`apg`: each update takes the next
    one), which still score the learner along the way; rewards are in the unit of each. The tuned settings are those of
    `scenario`, by default the one that the environment was made with. `progress` is called with steps done, steps
    planned and the latest score; by default training that takes over two seconds says so on stderr.
    """
    core: Any = EnsembleEnv("campus-event", action="price") if env is None else core_env(env)
    params = check_settings(algo, core, settings.hyperparams, scenario, settings.tuned)
    if models and core.release is not None:
        raise ValueError("models are trained on as they are, but the environment runs on a release; pass one of them.")
    models = models or (core.models if len(core.models) > 1 else ())
    config = _config(algo, core, params, settings, models)
    if keep is not None:
        keep.check(config)
    run = _in_segments if algo in LIBRARIES or algo == APG else _at_once
    if progress is not None:
        return run(config, core, models, keep, progress)
    with Progress(f"training {algo}", config["steps"]) as monitor:
        return run(config, core, models, keep, lambda done, _, score: monitor.advance(done, f"score {score:.1f}"))


def _config(
    algo: str, core: EnsembleEnv, params: dict[str, Any], settings: TrainingSettings, models: Sequence[EnsembleModel]
) -> Config:
    """Return what identifies a training run: whole rollouts, its cuts, and all settings."""
    total = settings.steps or params.get("n_timesteps", 0)  # 0: what a learner takes that trains in one go
    if "n_envs" in params:
        whole = core.model.horizon if algo == APG else 1  # apg plays whole episodes
        chunk = int(params["n_envs"] * params.get("n_steps", whole))
        total = check_count(total, "steps") // chunk * chunk
        if total < chunk:
            raise ValueError(f"steps must be at least {chunk}, one rollout of {params['n_envs']} environments.")
    interval = max(1, total // CUTS) if settings.interval is None else settings.interval
    config: dict[str, Any] = {
        "algo": algo, "population": population_of(core), "action": core.action_mode, "model": core.model.fingerprint,
        "seed": settings.seed, "steps": total, "target": settings.target, "interval": interval,
        "hyperparams": params,
    }  # fmt: skip
    if models:
        config["instances"] = [model.fingerprint for model in models]
    return config


def _in_segments(
    config: Config, core: EnsembleEnv, models: Sequence[EnsembleModel], keep: RunFolder | None, progress: Callback
) -> LearnedAgent:
    home, params, total = None if keep is None else Path(keep.path), config["hyperparams"], config["steps"]
    with one_thread():
        if config["algo"] == APG:
            trainer: Any = Trainer(models or [core.model], core.action_mode, params, config["seed"], total)
        else:
            from dp_ensemble_env.agents.sb3 import LibraryTrainer

            log = home / "tensorboard" if home and keep and keep.tensorboard else None
            trainer = LibraryTrainer(config["algo"], core, params, config["seed"], total, models, log)
        # Nothing is written before the learner has accepted its settings.
        with nullcontext() if home is None else sole_writer(home, "training"):
            record, binding = (Record(), {}) if keep is None else keep.open(config, core, trainer)
            agent = LearnedAgent(trainer, config["algo"], trainer.codes, privacy_of(core, TRUE))
            agent.frame_stack = params.get("frame_stack", 1)

            def save() -> None:
                assert home is not None
                save_checkpoint(home, trainer, record, binding)
                write_json(home / "results.json", {"finished": False, **record.__dict__})

            def score() -> float:
                return evaluate(agent, core, seed=WATCH_SEED).score

            watch = Watch(record, config["interval"], score, config["target"], save if home else None, progress)
            if not record.curve or (record.steps < total and not watch.reached):
                trainer.learn(watch)
            agent.curve, agent.steps, agent.seconds = record.curve, record.steps, record.seconds
            agent.model = trainer.policy  # all that acting needs
            if home is not None:
                _finish(agent, home, core, binding)
    return agent


def _at_once(
    config: Config, core: EnsembleEnv, models: Sequence[EnsembleModel], keep: RunFolder | None, progress: Callback
) -> LearnedAgent:
    """Let a learner train itself, then keep what it learned; there is nothing to resume in between."""
    algo, total = str(config["algo"]), int(config["steps"])
    kept: Config = {"ahead": core.layout.ahead, "reward": core.settings.reward}
    env = EnsembleEnv(list(models), population_of(core), core.action_mode, **kept) if models else core
    began = time.perf_counter()
    steps = {} if not total else {"steps": total}
    learned: Any = agent_kind(algo).make(env, seed=config["seed"], **steps, **config["hyperparams"])
    agent = LearnedAgent(learned, algo, privacy=getattr(learned, "privacy", privacy_of(core, TRUE)))
    if isinstance(learned, LearnedAgent):
        agent.model, agent.codes = learned.model, learned.codes
    agent.steps, agent.seconds = int(getattr(learned, "steps", total)), time.perf_counter() - began
    agent.curve = [(agent.steps, evaluate(agent, core, seed=WATCH_SEED).score)]
    if keep is not None:
        with sole_writer(Path(keep.path), "training"):
            _, binding = keep.open(config, core, None)
            _finish(agent, Path(keep.path), core, binding)
    return agent


def _finish(agent: LearnedAgent, home: Path, core: EnsembleEnv, binding: Binding) -> None:
    outcome = evaluate(agent, core, seed=FINAL_SEED)
    agent.save(home / POLICY, binding)
    result = {"steps": agent.steps, "seconds": agent.seconds, "curve": agent.curve, "privacy": agent.privacy}
    where = "the true behaviour" if core.release is None else "the release"
    write_json(home / "results.json", {"finished": True, **result, "scored_on": where, "evaluation": outcome.to_dict()})


# ------------------------------------------------------------------ by name
def _make(
    env: Any, *, algo: str, steps: int | None = None, seed: int = 0, progress: Callback | None = None, **settings: Any
) -> LearnedAgent:
    """Train in an environment like `env`; `settings` are those of `TrainingSettings`."""
    return train(algo, env, TrainingSettings(steps=steps, seed=seed, **settings), progress=progress)


def register_learner(name: str, place: str) -> None:
    """Register a learner of a library, ``"module:Class"`` in the interface of Stable-Baselines3, under a name."""
    register_agent(name, learns=True)(partial(_make, algo=name))
    LIBRARIES[name] = place


KINDS: dict[str, Kind] = {name: Kind(partial(_make, algo=name), learns=True) for name in (*LIBRARIES, APG)}
