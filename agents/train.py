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
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dp_ensemble_env.agents import apg
from dp_ensemble_env.agents.base import Kind, agent_kind, agent_names, core_env, register_kind
from dp_ensemble_env.agents.evaluation import evaluate
from dp_ensemble_env.agents.learners import (
    LIBRARIES,
    codes_of,
    learner_settings,
    one_thread,
    population_of,
    privacy_of,
)
from dp_ensemble_env.agents.loading import LearnedAgent
from dp_ensemble_env.agents.runs import (
    CHECKPOINTS,
    POLICY,
    Record,
    check_config,
    digest_of,
    has_checkpoint,
    open_folder,
    read_object,
    restore,
    save_checkpoint,
    write_json,
)
from dp_ensemble_env.agents.settings import changed, defaults_of
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write, sole_writer
from dp_ensemble_env.tools.validation import check_choice, check_count

__all__ = ["RunFolder", "TrainingSettings", "check_settings", "register_learner", "train"]

#: Called with the steps done, the steps planned and the latest score.
Callback = Callable[[int, int, float], None]

#: Finite populations are scored with these episodes while training, and with others at the end.
WATCH_SEED, FINAL_SEED = 5_000_000, 10_000
CUTS = 20


# ------------------------------------------------------------------ settings
@dataclass(frozen=True)
class TrainingSettings:
    """How a learner is trained.

    Attributes
    ----------
    seed : int
        Seed of networks, exploration and episodes.
    steps : int, optional
        Budget of environment steps over all sub-environments, by default the
        tuned one. It is not exceeded: what is less than a rollout is left over.
    target : float, optional
        Stop at the first cut with at least this score.
    interval : int, optional
        Steps between cuts (score and checkpoint), by default a twentieth.
    hyperparams : mapping
        Changes to the tuned hyper-parameters.
    tuned : bool
        False: begin with the library's own defaults instead of the tuned hyper-parameters.
    """

    seed: int = 0
    steps: int | None = None
    target: float | None = None
    interval: int | None = None
    hyperparams: Mapping[str, Any] = field(default_factory=dict)
    tuned: bool = True

    def __post_init__(self) -> None:
        check_count(self.seed, "seed", 0, 2**31 - 1)
        for name in ("steps", "interval"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)
        if self.target is not None and not self.target <= 100:
            raise ValueError(f"target must be at most 100, the optimum, got {self.target:g}.")


@dataclass(frozen=True)
class RunFolder:
    """Where a run is kept; `dp_ensemble_env.agents.runs` says what the folder will hold.

    Attributes
    ----------
    path : path
    resume : bool
        Continue the run that is there, which must have the same configuration.
    tensorboard : bool
        Log to ``tensorboard/``.
    environment : mapping
        How the environment was made, to make it again from the folder.
    """

    path: Path
    resume: bool = False
    tensorboard: bool = False
    environment: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse a folder with a run that is not to be resumed, and one without a run that is."""
        home = Path(self.path)
        there = (home / "config.json").exists()
        left = [name for name in (*CHECKPOINTS, POLICY, "ledger.json") if (home / name).exists()]
        if left and not there:
            raise ValueError(
                f"{home} holds {left[0]} of a run whose config.json is gone; restore that, or choose another folder."
            )
        if self.resume and not there:
            raise ValueError(f"there is no run in {self.path} to resume; leave resume=True out to start one.")
        if there and not self.resume:
            raise ValueError(f"{self.path} already holds a run; resume it with resume=True, or choose another folder.")


def check_settings(
    algo: str, env: Any, changes: Mapping[str, Any] | None = None, scenario: str | None = None, tuned: bool = True
) -> dict[str, Any]:
    """Return all settings of a learner in an environment, with changes; refuse names and values that cannot be.

    Parameters
    ----------
    algo : str
        One of ``agent_names(learns=True)``.
    env : gymnasium.Env
    changes : mapping, optional
        Changes to the tuned settings.
    scenario : str, optional
        The scenario whose settings apply, by default the one that the environment was made with.
    tuned : bool
        Whether to begin with the tuned settings, or with the library's own.
    """
    core: Any = core_env(env)
    check_choice(algo, "algo", agent_names(learns=True))
    scenario = core.settings.scenario if scenario is None else scenario
    if algo == apg.NAME:
        return apg.settings_of(core, changes or {}, scenario)
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

    Parameters
    ----------
    algo : str
        One of ``agent_names(learns=True)``.
    env : gymnasium.Env, optional
        Environments like this one are trained in; it is left alone. By default the
        mean field of the campus event, in price mode.
    settings : TrainingSettings
    keep : RunFolder, optional
        Where to keep the run.
    progress : callable, optional
        Called with steps done, steps planned and the latest score. By default
        training that takes over two seconds says so on stderr.
    models : sequence of EnsembleModel
        Each episode of the training draws one of these instead of the environment's models
        (`apg`: each update takes the next one), which still score the learner along the way.
        Rewards are in the unit of each.
    scenario : str, optional
        The scenario whose tuned settings apply, by default the one that the environment was made with.

    Returns
    -------
    LearnedAgent
    """
    core: Any = EnsembleEnv("campus-event", action="price") if env is None else core_env(env)
    params = check_settings(algo, core, settings.hyperparams, scenario, settings.tuned)
    models = models or (core.models if len(core.models) > 1 else ())
    run = _plan(algo, core, params, settings, models)
    if keep is not None:
        keep.check()
        check_config(Path(keep.path), {**run.config, "environment": dict(keep.environment)})
    if progress is not None:
        return _train(run, core, keep, progress)
    with Progress(f"training {algo}", run.total or 0) as monitor:
        return _train(run, core, keep, lambda done, planned, score: monitor.advance(done, f"score {score:.1f}"))


@dataclass(frozen=True)
class _Plan:
    """A training run, checked: its steps, its cuts and the configuration that identifies it."""

    algo: str
    settings: TrainingSettings
    params: dict[str, Any]
    total: int
    interval: int
    config: dict[str, Any]
    models: Sequence[EnsembleModel] = ()

    @property
    def in_segments(self) -> bool:
        """Whether the learner is trained in segments that can be resumed."""
        return self.algo in LIBRARIES or self.algo == apg.NAME


def _plan(
    algo: str,
    core: EnsembleEnv,
    params: dict[str, Any],
    settings: TrainingSettings,
    models: Sequence[EnsembleModel] = (),
) -> _Plan:
    total = settings.steps or params.get("n_timesteps", 0)  # 0: what a learner takes that trains in one go
    if "n_envs" in params:
        whole = core.model.horizon if algo == apg.NAME else 1  # apg plays whole episodes
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
    return _Plan(algo, settings, params, total, interval, config, models)


def _train(run: _Plan, core: EnsembleEnv, keep: RunFolder | None, progress: Callback) -> LearnedAgent:
    if not run.in_segments:
        return _train_at_once(run, core, keep)
    home = None if keep is None else Path(keep.path)
    with one_thread():
        trainer = _trainer(run, core, home / "tensorboard" if home is not None and keep.tensorboard else None)  # type: ignore[union-attr]
        # Nothing is written before the learner has accepted its settings.
        with nullcontext() if home is None else sole_writer(home, "training"):
            record, binding = (Record(), {}) if keep is None else _open(keep, run, core, trainer)
            agent = LearnedAgent(trainer, run.algo, codes_of(run.params, core), privacy_of(core))
            agent.frame_stack = run.params.get("frame_stack", 1)
            _learn(agent, record, core, run, home, progress, binding)
            agent.model = trainer.policy  # all that acting needs
            if home is not None:
                _finish(agent, home, core, binding)
    return agent


def _trainer(run: _Plan, core: EnsembleEnv, log: Path | None) -> Any:
    if run.algo == apg.NAME:
        return apg.Trainer(run.models or [core.model], core.action_mode, run.params, run.settings.seed, run.total)
    from dp_ensemble_env.agents.sb3 import LibraryTrainer

    return LibraryTrainer(run.algo, core, run.params, run.settings.seed, run.total, run.models, log)


def _train_at_once(run: _Plan, core: EnsembleEnv, keep: RunFolder | None) -> LearnedAgent:
    """Let a learner train itself, then keep what it learned; there is nothing to resume in between."""
    if run.models:
        raise ValueError(f"{run.algo} is trained on one model; leave the other instances out.")
    began = time.perf_counter()
    steps = {} if not run.total else {"steps": run.total}
    learned: Any = agent_kind(run.algo).make(core, seed=run.settings.seed, **steps, **run.params)
    agent = LearnedAgent(learned, run.algo, privacy=getattr(learned, "privacy", privacy_of(core)))
    agent.steps, agent.seconds = int(getattr(learned, "steps", run.total)), time.perf_counter() - began
    agent.curve = [(agent.steps, evaluate(agent, core, seed=WATCH_SEED).score)]
    if keep is not None:
        with sole_writer(Path(keep.path), "training"):
            _, binding = _open(keep, run, core, None)
            _finish(agent, Path(keep.path), core, binding)
    return agent


def _open(keep: RunFolder, run: _Plan, core: EnsembleEnv, trainer: Any) -> tuple[Record, dict[str, Any]]:
    """Open the run folder, which is ours alone now, and bring the learner to where its checkpoint stands."""
    home, config = Path(keep.path), {**run.config, "environment": dict(keep.environment)}
    keep.check()  # another process may have been here since
    check_config(home, config)
    begun = has_checkpoint(home)
    if not begun:
        if core.release is not None and not core.release.reproducible:  # nobody can draw it again
            core.release.save(home / "release.json")
        open_folder(home, config)
        with atomic_write(home / "ledger.json") as stream:
            stream.write(core.ledger.to_json() + "\n")
    elif not (home / "ledger.json").exists():
        raise ValueError(f"the ledger of the run, {home / 'ledger.json'}, is gone; restore it from a copy.")
    binding = {
        "config": digest_of(config),
        "release": None if core.release is None else core.release.digest,
        "ledger": digest_of(read_object(home / "ledger.json")),
    }
    return restore(home, trainer, binding) or Record(), binding


def _learn(
    agent: LearnedAgent,
    record: Record,
    core: EnsembleEnv,
    run: _Plan,
    home: Path | None,
    progress: Callback,
    binding: dict[str, Any],
) -> None:
    """Run the learner from where the record stands to the end, the target or the budget."""
    target = run.settings.target

    def save() -> None:
        assert home is not None
        save_checkpoint(home, agent.model, record, binding)
        write_json(home / "results.json", {"finished": False, **record.__dict__})

    def score() -> float:
        return evaluate(agent, core, seed=WATCH_SEED).score

    if not record.curve or (record.steps < run.total and (target is None or record.curve[-1][1] < target)):
        kept = None if home is None else save
        agent.model.learn(record, interval=run.interval, score=score, target=target, save=kept, progress=progress)
    agent.curve, agent.steps, agent.seconds = record.curve, record.steps, record.seconds


def _finish(agent: LearnedAgent, home: Path, core: EnsembleEnv, binding: dict[str, Any]) -> None:
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
    register_kind(name, KINDS.setdefault(name, Kind(partial(_make, algo=name), learns=True)))
    LIBRARIES[name] = place


KINDS: dict[str, Kind] = {name: Kind(partial(_make, algo=name), learns=True) for name in (*LIBRARIES, apg.NAME)}
