"""Learners from Stable-Baselines3 and sb3-contrib, trained on the native vector environment.

::

    from dp_ensemble_env.agents.sb3 import TrainingSettings, train

    env = gymnasium.make("dp_ensemble/Spot-v1")
    agent = train("ppo", env, TrainingSettings(seed=0))
    steps, score = agent.curve[-1]

torch and Stable-Baselines3 are imported when something is trained or loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dp_ensemble_env.agents import apg
from dp_ensemble_env.agents.base import Kind, core_env
from dp_ensemble_env.agents.evaluation import evaluate
from dp_ensemble_env.agents.hyperparams import ALGORITHMS
from dp_ensemble_env.agents.learners import (
    algorithm_arguments,
    algorithm_class,
    check_changes,
    population_of,
    price_list,
    privacy_of,
    settings_of,
    training_env,
)
from dp_ensemble_env.agents.loading import LearnedAgent, load_agent, safe_path
from dp_ensemble_env.agents.runs import (
    CHECKPOINTS,
    POLICY,
    Record,
    check_config,
    digest_of,
    open_folder,
    read_object,
    write_json,
)
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import Outcome
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write, sole_writer
from dp_ensemble_env.tools.validation import check_count

__all__ = ["LearnedAgent", "RunFolder", "TrainingSettings", "load_agent", "safe_path", "train"]

#: Called with the steps done, the steps planned and the latest score.
Callback = Callable[[int, int, float], None]

#: Finite populations are scored with these episodes while training, and with others at the end.
WATCH_SEED, FINAL_SEED = 5_000_000, 10_000
CUTS = 20


# ------------------------------------------------------------------ training
@dataclass(frozen=True)
class TrainingSettings:
    """How a learner is trained.

    Attributes
    ----------
    seed : int
        Seed of networks, exploration and episodes.
    total_steps : int, optional
        Budget of environment steps over all sub-environments, by default the
        tuned one. It is not exceeded: what is less than a rollout is left over.
    target_score : float, optional
        Stop at the first cut with at least this score.
    interval : int, optional
        Steps between cuts (score and checkpoint), by default a twentieth.
    hyperparams : mapping
        Changes to the tuned hyper-parameters.
    """

    seed: int = 0
    total_steps: int | None = None
    target_score: float | None = None
    interval: int | None = None
    hyperparams: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_count(self.seed, "seed", 0, 2**31 - 1)
        for name in ("total_steps", "interval"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name)
        if self.target_score is not None and not self.target_score <= 100:
            raise ValueError(f"target_score must be at most 100, the optimum, got {self.target_score:g}.")
        check_changes(self.hyperparams)


@dataclass(frozen=True)
class RunFolder:
    """Where a run is kept; `dp_ensemble_env.agents.training` says what the folder will hold.

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


def train(
    algo: str,
    env: Any = None,
    settings: TrainingSettings = TrainingSettings(),  # noqa: B008 - frozen
    *,
    keep: RunFolder | None = None,
    progress: Callback | None = None,
    models: Sequence[EnsembleModel] = (),
) -> LearnedAgent:
    """Train a learner by interaction with an environment alone.

    Parameters
    ----------
    algo : str
        One of `dp_ensemble_env.agents.hyperparams.ALGORITHMS`.
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

    Returns
    -------
    LearnedAgent
    """
    kind = apg.Trainer if algo == apg.NAME else algorithm_class(algo)
    core: Any = EnsembleEnv("campus-event", action="price") if env is None else core_env(env)
    models = models or (core.models if len(core.models) > 1 else ())
    if kind is apg.Trainer:
        params = apg.settings_of(core, settings.hyperparams)
    else:
        params = settings_of(kind, algo, population_of(core), core.action_mode, settings.hyperparams)
    run = _plan(algo, core, params, settings, models)
    if keep is not None:
        keep.check()
        check_config(keep.path, {**run.config, "environment": dict(keep.environment)})
    if progress is not None:
        return _train(kind, core, params, run, keep, progress)
    with Progress(f"training {algo}", run.total) as monitor:
        return _train(
            kind, core, params, run, keep,
            lambda done, planned, score: monitor.advance(done, f"score {score:.1f}"),
        )  # fmt: skip


@dataclass(frozen=True)
class _Plan:
    """A training run, checked: its steps, its cuts and the configuration that identifies it."""

    algo: str
    settings: TrainingSettings
    total: int
    interval: int
    config: dict[str, Any]
    models: Sequence[EnsembleModel] = ()


def _plan(
    algo: str,
    core: EnsembleEnv,
    params: dict[str, Any],
    settings: TrainingSettings,
    models: Sequence[EnsembleModel] = (),
) -> _Plan:
    whole = core.model.horizon if algo == apg.NAME else 1  # apg plays whole episodes
    chunk = int(params["n_envs"] * params.get("n_steps", whole))
    total = params["n_timesteps"] if settings.total_steps is None else settings.total_steps
    total = check_count(total, "total_steps") // chunk * chunk
    if total < chunk:
        raise ValueError(f"total_steps must be at least {chunk}, one rollout of {params['n_envs']} environments.")
    interval = max(1, total // CUTS) if settings.interval is None else settings.interval
    config: dict[str, Any] = {
        "algo": algo, "population": population_of(core), "action": core.action_mode, "model": core.model.fingerprint,
        "seed": settings.seed, "total_steps": total, "target_score": settings.target_score, "interval": interval,
        "hyperparams": params,
    }  # fmt: skip
    if models:
        config["instances"] = [model.fingerprint for model in models]
    return _Plan(algo, settings, total, interval, config, models)


def _train(
    kind: Any, core: EnsembleEnv, params: dict[str, Any], run: _Plan, keep: RunFolder | None, progress: Callback
) -> LearnedAgent:
    from dp_ensemble_env.agents import training

    home = None if keep is None else Path(keep.path)
    venv = None if kind is apg.Trainer else training_env(core, params, run.models)
    with training.one_thread():
        if venv is None:
            learner = kind(run.models or [core.model], core.action_mode, params, run.settings.seed, run.total)
        else:
            learner = _start(kind, params, core.model, venv, run.settings.seed)
        # Nothing is written before the learner has accepted its settings.
        with nullcontext() if home is None else sole_writer(home, "training"):
            record, binding = (Record(), {}) if keep is None else _open(keep, run, core, learner)
            if venv is not None:
                _log(learner, home if keep is not None and keep.tensorboard else None)
            agent = LearnedAgent(learner, run.algo, price_list(params), privacy_of(core))
            agent.decisions = core.model.n_decisions if "cosines" in params else 0
            _learn(agent, record, core, run, home, progress, binding)
            if venv is None:
                agent.model = learner.policy  # all that acting needs
            if home is not None:
                _finish(agent, home, evaluate(agent, core, seed=FINAL_SEED), binding, core.release is not None)
    if venv is not None:
        venv.close()
    return agent


def _open(keep: RunFolder, run: _Plan, core: EnsembleEnv, learner: Any) -> tuple[Record, dict[str, Any]]:
    """Open the run folder, which is ours alone now, and bring the learner to where its checkpoint stands."""
    from dp_ensemble_env.agents import checkpoints

    home, config = Path(keep.path), {**run.config, "environment": dict(keep.environment)}
    keep.check()  # another process may have been here since
    check_config(home, config)
    begun = checkpoints.there(home)
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
    return checkpoints.restore(home, learner, binding) or Record(), binding


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
    from dp_ensemble_env.agents import checkpoints, training

    target = run.settings.target_score

    def save() -> None:
        assert home is not None
        checkpoints.save_checkpoint(home, agent.model, record, binding)
        write_json(home / "results.json", {"finished": False, **record.__dict__})

    def score() -> float:
        return evaluate(agent, core, seed=WATCH_SEED).score

    kept = None if home is None else save
    done = bool(record.curve) and (record.steps >= run.total or (target is not None and record.curve[-1][1] >= target))
    if not done and run.algo == apg.NAME:
        agent.model.learn(record, interval=run.interval, score=score, target=target, save=kept, progress=progress)
    elif not done:
        callback = training.Segments(
            record,
            seed=run.settings.seed,
            interval=run.interval,
            score=score,
            target=target,
            save=kept,
            progress=progress,
        )
        agent.model.learn(run.total - record.steps, callback=callback, reset_num_timesteps=False)
    agent.curve, agent.steps, agent.seconds = record.curve, record.steps, record.seconds


def _start(kind: Any, params: dict[str, Any], model: EnsembleModel, venv: Any, seed: int) -> Any:
    """Make the learner."""
    arguments = algorithm_arguments(params, model, venv)
    try:
        return kind(params["policy"], venv, seed=seed, device="cpu", **arguments)
    except (AssertionError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).strip().rstrip(".") or type(error).__name__
        raise ValueError(f"{kind.__name__} does not take these hyper-parameters: {reason}.") from error


def _log(learner: Any, home: Path | None) -> None:
    from stable_baselines3.common.logger import Logger, configure

    # Asked to log nowhere, configure makes a folder all the same.
    learner.set_logger(Logger(None, []) if home is None else configure(str(home / "tensorboard"), ["tensorboard"]))


def _finish(agent: LearnedAgent, home: Path, outcome: Outcome, binding: dict[str, Any], private: bool) -> None:
    agent.save(home / POLICY, binding)
    result = {"steps": agent.steps, "seconds": agent.seconds, "curve": agent.curve, "privacy": agent.privacy}
    scored = {"scored_on": "the release" if private else "the true behaviour", "evaluation": outcome.to_dict()}
    write_json(home / "results.json", {"finished": True, **result, **scored})


# ------------------------------------------------------------------ by name
def _factory(algo: str) -> Callable[..., LearnedAgent]:
    def make(
        env: Any,
        *,
        path: str | os.PathLike[str] | None = None,
        load_folder: str | os.PathLike[str] = "runs",
        steps: int | None = None,
        progress: Callback | None = None,
        allow_code: bool = False,
        **settings: Any,
    ) -> LearnedAgent:
        """Train in an environment like `env`, or load the agent in `path`."""
        if path is not None:
            return load_agent(path, load_folder, algo=algo, allow_code=allow_code)
        return train(algo, env, TrainingSettings(total_steps=steps, **settings), progress=progress)

    return make


KINDS: dict[str, Kind] = {name: Kind(_factory(name), learns=True) for name in ALGORITHMS}
