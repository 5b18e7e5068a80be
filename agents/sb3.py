"""Learners from Stable-Baselines3 and sb3-contrib, trained on the native vector environment.

::

    from dp_ensemble_env.agents.sb3 import TrainingSettings, train

    env = gymnasium.make("dp_ensemble/MeanField-v0", action="price")
    agent = train("ppo", env, TrainingSettings(seed=0))
    steps, score = agent.curve[-1]

torch and Stable-Baselines3 are imported when something is trained or loaded.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env._progress import Progress
from dp_ensemble_env._validation import check_count
from dp_ensemble_env.agents.base import Factory, core_env
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
    tuned_id,
)
from dp_ensemble_env.agents.runs import Record, check_config, open_folder, read_json, write_json
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.outcome import Outcome

#: Called with the steps done, the steps planned and the latest score.
Callback = Callable[[int, int, float], None]

#: Finite populations are scored with these episodes while training, and with others at the end.
WATCH_SEED, FINAL_SEED = 5_000_000, 10_000
CUTS = 20
WARNING = (
    "Loading {path}: model files of Stable-Baselines3 are pickles and execute code; load only files that you or "
    "people you trust have written."
)


@dataclass(repr=False)
class LearnedAgent:
    """A trained learner that obeys ``predict``.

    Attributes
    ----------
    model : stable_baselines3.common.base_class.BaseAlgorithm
    name : str
        The algorithm.
    prices : ndarray, optional
        What the numbers that a discrete learner returns stand for.
    privacy : str
        What the training revealed, in words.
    curve : list of (int, float)
        Steps and score along the way.
    steps : int
        Environment steps that were taken.
    seconds : float
        Wall-clock time of the training.
    """

    model: Any
    name: str
    prices: NDArray[np.floating] | None = None
    privacy: str = "that of the environment it was trained in"
    curve: list[tuple[int, float]] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        last = f", score {self.curve[-1][1]:.1f}" if self.curve else ""
        return f"LearnedAgent({self.name!r}, {self.steps:,} steps{last})"

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.floating], Any]:
        """Return the action and the hidden state, as `stable_baselines3` does."""
        action, state = self.model.predict(observation, state, episode_start, deterministic)
        if self.prices is not None:
            action = self.prices[np.asarray(action)][..., None]
        return action, state


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
        there = (Path(self.path) / "config.json").exists()
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
        Train on these instances in turn instead of on the environment's model, which
        still scores the learner along the way. Rewards are in the unit of each.

    Returns
    -------
    LearnedAgent
    """
    kind = algorithm_class(algo)
    core: Any = EnsembleEnv(action="price") if env is None else core_env(env)
    params = settings_of(kind, algo, tuned_id(core), core.action_mode, settings.hyperparams)
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
    chunk = int(params["n_envs"] * params.get("n_steps", 1))
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
    venv = training_env(core, params, run.models)
    with training.one_thread():
        learner, record = _start(kind, params, core.model, venv, run.settings.seed, home)
        if keep is not None and home is not None:  # nothing is written before the learner has accepted its settings
            open_folder(home, {**run.config, "environment": dict(keep.environment)})
            with atomic_write(home / "ledger.json") as stream:
                stream.write(core.ledger.to_json() + "\n")
        _log(learner, home if keep is not None and keep.tensorboard else None)
        agent = LearnedAgent(learner, run.algo, price_list(params), privacy_of(core))
        _learn(agent, record, core, run, home, progress)
        if home is not None:
            _finish(agent, home, evaluate(agent, core, seed=FINAL_SEED))
    venv.close()
    return agent


def _learn(
    agent: LearnedAgent, record: Record, core: EnsembleEnv, run: _Plan, home: Path | None, progress: Callback
) -> None:
    """Run the learner from where the record stands to the end, the target or the budget."""
    from dp_ensemble_env.agents import training

    target = run.settings.target_score

    def save() -> None:
        assert home is not None
        training.save_checkpoint(home / "checkpoint.zip", agent.model, record)
        write_json(home / "results.json", {"finished": False, **record.__dict__})

    callback = training.Segments(
        record,
        seed=run.settings.seed,
        interval=run.interval,
        score=lambda: evaluate(agent, core, seed=WATCH_SEED).score,
        target=target,
        save=None if home is None else save,
        progress=progress,
    )
    done = bool(record.curve) and (record.steps >= run.total or (target is not None and record.curve[-1][1] >= target))
    if not done:
        agent.model.learn(run.total - record.steps, callback=callback, reset_num_timesteps=False)
    agent.curve, agent.steps, agent.seconds = record.curve, record.steps, record.seconds


def _start(
    kind: Any, params: dict[str, Any], model: EnsembleModel, venv: Any, seed: int, home: Path | None
) -> tuple[Any, Record]:
    """Make the learner, or take it from the checkpoint if there is one."""
    from dp_ensemble_env.agents import training

    if home is not None and (home / "checkpoint.zip").exists():
        warnings.warn(WARNING.format(path=home / "checkpoint.zip"), UserWarning, stacklevel=4)
        return training.load_checkpoint(home / "checkpoint.zip", kind, venv)
    arguments = algorithm_arguments(params, model, venv)
    try:
        return kind(params["policy"], venv, seed=seed, device="cpu", **arguments), Record()
    except (AssertionError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).strip().rstrip(".") or type(error).__name__
        raise ValueError(f"{kind.__name__} does not take these hyper-parameters: {reason}.") from error


def _log(learner: Any, home: Path | None) -> None:
    from stable_baselines3.common.logger import configure

    learner.set_logger(configure(None if home is None else str(home / "tensorboard"), ["tensorboard"] if home else []))


def _finish(agent: LearnedAgent, home: Path, outcome: Outcome) -> None:
    with atomic_write(home / "model.zip", "wb") as stream:
        agent.model.save(stream)
    result = {"steps": agent.steps, "seconds": agent.seconds, "curve": agent.curve, "privacy": agent.privacy}
    write_json(home / "results.json", {"finished": True, **result, "evaluation": outcome.to_dict()})


# ------------------------------------------------------------------ loading
def safe_path(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> Path:
    """Return the resolved path, which must lie in `folder` after links are followed."""
    inside, target = Path(folder).resolve(), Path(path).resolve()
    if not target.is_relative_to(inside):
        raise ValueError(
            f"{path} lies outside {folder}, and model files execute code when they are loaded; move it there, or "
            "allow it explicitly if you trust it."
        )
    return target


def load_agent(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str] = "runs",
    *,
    algo: str | None = None,
    allow_outside: bool = False,
) -> LearnedAgent:
    """Load the agent of a run folder or of a model file.

    Parameters
    ----------
    path : path
        A run folder, or a ``model.zip``.
    folder : path
        Only files in here are loaded, since loading executes code.
    algo : str, optional
        Needed for a file that has no ``config.json`` beside it.
    allow_outside : bool
        Load from anywhere.

    Warns
    -----
    UserWarning
        Always: model files execute code.
    """
    target = Path(path).resolve() if allow_outside else safe_path(path, folder)
    file = target / "model.zip" if target.is_dir() else target
    if not allow_outside:
        file = safe_path(file, folder)  # the file itself may be a link
    if not file.is_file():
        raise ValueError(f"there is no model file {file}; train one with dp-ensemble train.")
    beside = file.parent / "config.json"
    config = read_json(beside) if beside.exists() else {}
    name = algo or config.get("algo")
    if name is None:
        raise ValueError(f"{file} has no config.json beside it; say which algorithm it is with algo=...")
    kind = algorithm_class(name)
    warnings.warn(WARNING.format(path=file), UserWarning, stacklevel=2)
    agent = LearnedAgent(kind.load(file, device="cpu"), name, price_list(config.get("hyperparams", {})))
    if (results := file.parent / "results.json").exists():
        found = read_json(results)
        agent.curve = [(int(s), float(v)) for s, v in found.get("curve", [])]
        agent.steps, agent.seconds = int(found.get("steps", 0)), float(found.get("seconds", 0.0))
        agent.privacy = found.get("privacy", agent.privacy)
    return agent


# ------------------------------------------------------------------ by name
def _factory(algo: str) -> Callable[..., LearnedAgent]:
    def make(
        env: Any,
        *,
        path: str | os.PathLike[str] | None = None,
        load_folder: str | os.PathLike[str] = "runs",
        steps: int | None = None,
        progress: Callback | None = None,
        **settings: Any,
    ) -> LearnedAgent:
        """Train in an environment like `env`, or load the agent in `path` (within `load_folder`)."""
        if path is not None:
            return load_agent(path, load_folder, algo=algo)
        return train(algo, env, TrainingSettings(total_steps=steps, **settings), progress=progress)

    return make


FACTORIES: dict[str, Factory] = {name: _factory(name) for name in ALGORITHMS}
