"""Learners from Stable-Baselines3 and sb3-contrib, trained on the native vector environment.

::

    from dp_ensemble_env.agents.sb3 import train

    agent = train("ppo", "dp_ensemble/MeanField-v0", "price", seed=0)
    steps, score = agent.curve[-1]

torch and Stable-Baselines3 are imported when something is trained or loaded.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from dp_ensemble_env.agents.base import core_env, register_agent
from dp_ensemble_env.agents.evaluation import Evaluation, evaluate
from dp_ensemble_env.agents.hyperparams import ALGORITHMS
from dp_ensemble_env.agents.learners import (
    algorithm_arguments,
    algorithm_class,
    price_list,
    privacy_of,
    settings_of,
    training_env,
)
from numpy.typing import NDArray

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env._validation import check_count
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.registration import ENVIRONMENTS
from dp_ensemble_env.model import EnsembleModel

if TYPE_CHECKING:
    from dp_ensemble_env.agents.training import Progress, Record

#: Finite populations are scored with these episodes while training, and with others at the end.
WATCH_SEED, FINAL_SEED = 5_000_000, 10_000
CUTS = 20
WARNING = (
    "Loading {path}: model files of Stable-Baselines3 are pickles and execute code; load only files that you or "
    "people you trust have written."
)


@dataclass
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

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.floating], Any]:
        """Return the action and the hidden state, as `stable_baselines3` does."""
        action, state = self.model.predict(observation, state, episode_start, deterministic)
        if self.prices is not None:
            action = self.prices[np.asarray(action)][..., None]
        return action, state


# ------------------------------------------------------------------ training
def train(
    algo: str,
    env_id: str = "dp_ensemble/MeanField-v0",
    action: str = "price",
    *,
    model: EnsembleModel | None = None,
    k: float | None = None,
    floor: float = 0.0,
    release_seed: int = 0,
    population: str | int | None = None,
    seed: int = 0,
    total_steps: int | None = None,
    target_score: float | None = None,
    interval: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    tensorboard: bool = False,
    progress: Progress | None = None,
    hyperparams: dict[str, Any] | None = None,
    notes: dict[str, Any] | None = None,
) -> LearnedAgent:
    """Train a learner by interaction with the environment alone.

    Parameters
    ----------
    algo : str
        One of `dp_ensemble_env.agents.hyperparams.ALGORITHMS`.
    env_id : str
        A registered id; it sets the population.
    action : {"price", "tilt", "policy"}
    model : EnsembleModel, optional
        By default the campus event.
    k, floor, release_seed
        Train on a private release of the model's matrix; see `EnsembleEnv`.
    population : str or int, optional
        Overrules that of the id.
    seed : int
        Seed of networks, exploration and episodes.
    total_steps : int, optional
        Budget of environment steps over all sub-environments, by default the
        tuned one. It is not exceeded: what is less than a rollout is left over.
    target_score : float, optional
        Stop at the first cut with at least this score.
    interval : int, optional
        Steps between cuts (score and checkpoint), by default a twentieth.
    folder : path, optional
        Where to keep the run; see `dp_ensemble_env.agents.training` for what it will hold.
    resume : bool
        Continue the run in `folder`, which must have the same configuration.
    tensorboard : bool
        Log to ``folder/tensorboard``.
    progress : callable, optional
        Called with steps done, steps planned and the latest score.
    hyperparams : dict, optional
        Changes to the tuned hyper-parameters.
    notes : dict, optional
        Kept in the configuration (where the model comes from, for instance).

    Returns
    -------
    LearnedAgent
    """
    kind = algorithm_class(algo)
    from dp_ensemble_env.agents import training

    settings = settings_of(kind, algo, env_id, action, hyperparams)
    task: dict[str, Any] = {"population": ENVIRONMENTS[env_id] if population is None else population, "action": action}
    if k is not None:
        task.update(k=k, floor=floor, release_seed=release_seed)
    core = EnsembleEnv(model, **task)
    chunk = settings["n_envs"] * settings.get("n_steps", 1)
    total = check_count(settings["n_timesteps"] if total_steps is None else total_steps, "total_steps") // chunk * chunk
    if total < chunk:
        raise ValueError(f"total_steps must be at least {chunk}, one rollout of {settings['n_envs']} environments.")
    interval = max(1, total // CUTS) if interval is None else check_count(interval, "interval")
    config = {
        "algo": algo, "env_id": env_id, **task, "model": core.model.fingerprint, "notes": notes or {},
        "seed": check_count(seed, "seed", 0), "total_steps": total, "target_score": target_score,
        "interval": interval, "hyperparams": settings,
    }  # fmt: skip
    home = None if folder is None else Path(folder)
    if home is not None:
        training.open_folder(home, config, resume)
        with atomic_write(home / "ledger.json") as stream:
            stream.write(core.ledger.to_json() + "\n")
    venv = training_env(core, env_id, task, model, settings)
    with training.one_thread():
        learner, record = _start(kind, settings, core.model, venv, home, seed, tensorboard)
        agent = LearnedAgent(learner, algo, price_list(settings), privacy_of(core))
        _learn(agent, record, core, total, home, interval, seed, target_score, progress)
        if home is not None:
            _finish(agent, home, evaluate(agent, core, seed=FINAL_SEED))
    venv.close()
    return agent


def _learn(
    agent: LearnedAgent,
    record: Record,
    core: EnsembleEnv,
    total: int,
    home: Path | None,
    interval: int,
    seed: int,
    target: float | None,
    progress: Progress | None,
) -> None:
    """Run the learner from where the record stands to the end, the target or the budget."""
    from dp_ensemble_env.agents import training

    def save() -> None:
        assert home is not None
        training.save_checkpoint(home / "checkpoint.zip", agent.model, record)
        training.write_json(home / "results.json", {"finished": False, **record.__dict__})

    callback = training.Segments(
        record,
        seed=seed,
        interval=interval,
        score=lambda: evaluate(agent, core, seed=WATCH_SEED).score,
        target=target,
        save=None if home is None else save,
        progress=progress,
    )
    done = bool(record.curve) and (record.steps >= total or (target is not None and record.curve[-1][1] >= target))
    if not done:
        agent.model.learn(total - record.steps, callback=callback, reset_num_timesteps=False)
    agent.curve, agent.steps, agent.seconds = record.curve, record.steps, record.seconds


def _start(
    kind: Any,
    settings: dict[str, Any],
    model: EnsembleModel,
    venv: Any,
    home: Path | None,
    seed: int,
    tensorboard: bool,
) -> tuple[Any, Record]:
    """Make the learner, or take it from the checkpoint if there is one."""
    from dp_ensemble_env.agents import training
    from stable_baselines3.common.logger import configure

    if home is not None and (home / "checkpoint.zip").exists():
        warnings.warn(WARNING.format(path=home / "checkpoint.zip"), UserWarning, stacklevel=3)
        learner, record = training.load_checkpoint(home / "checkpoint.zip", kind, venv)
    else:
        arguments = algorithm_arguments(settings, model, venv)
        learner, record = kind(settings["policy"], venv, seed=seed, device="cpu", **arguments), training.Record()
    outputs = ["tensorboard"] if home is not None and tensorboard else []
    learner.set_logger(configure(str(home / "tensorboard") if outputs and home is not None else None, outputs))
    return learner, record


def _finish(agent: LearnedAgent, home: Path, evaluation: Evaluation) -> None:
    from dp_ensemble_env.agents import training

    with atomic_write(home / "model.zip", "wb") as stream:
        agent.model.save(stream)
    result = {"steps": agent.steps, "seconds": agent.seconds, "curve": agent.curve, "privacy": agent.privacy}
    training.write_json(home / "results.json", {"finished": True, **result, "evaluation": evaluation.to_dict()})


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
    from dp_ensemble_env.agents import training

    beside = file.parent / "config.json"
    config = training.read_json(beside) if beside.exists() else {}
    name = algo or config.get("algo")
    if name is None:
        raise ValueError(f"{file} has no config.json beside it; say which algorithm it is with algo=...")
    kind = algorithm_class(name)
    warnings.warn(WARNING.format(path=file), UserWarning, stacklevel=2)
    agent = LearnedAgent(kind.load(file, device="cpu"), name, price_list(config.get("hyperparams", {})))
    if (results := file.parent / "results.json").exists():
        found = training.read_json(results)
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
        **settings: Any,
    ) -> LearnedAgent:
        """Train in an environment like `env`, or load the agent in `path` (within `load_folder`)."""
        if path is not None:
            return load_agent(path, load_folder, algo=algo)
        core = core_env(env)
        population = "mean-field" if core.population is None else core.population
        env_id = {"mean-field": "MeanField", 1: "SingleLoad"}.get(population, "Buildings")  # type: ignore[arg-type]
        agent = train(
            algo,
            f"dp_ensemble/{env_id}-v0",
            core.action_mode,
            model=core.model,  # the release, if there is one: training on it is post-processing
            population=population,
            total_steps=steps,
            **settings,
        )
        if core.release is not None:
            agent.privacy = "that of one release"
        return agent

    return make


for _name in ALGORITHMS:
    register_agent(_name)(_factory(_name))
