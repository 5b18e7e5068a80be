"""One cell of a sweep: what decides it, how it is run, and the file it is kept in.

A cell is a controller (method), made on a release (privacy), in an action mode, with a seed, on a data set. Its key
is the SHA-256 of its configuration, which holds everything that decides the result and nothing else, so a cell may be
run anywhere, any number of times. The seed is used for three things: the release is drawn with it, a learner is
trained with it, and the draws of the sampled average begin at 1,000,000 plus the seed.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import math
import platform
import resource
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from dp_ensemble_env.agents import agent_names, evaluate, make_agent
from dp_ensemble_env.agents.base import agent_kind
from dp_ensemble_env.agents.hyperparams import ALGORITHMS
from dp_ensemble_env.control.policies import POLICIES
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.deployment import price_of, score_without_data
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.scenarios.problem import draw_release
from dp_ensemble_env.tools.files import atomic_write

#: Changes when a cell of the same configuration would come out differently.
FORMAT = 2
#: Methods that need no file of the user's.
BUILT_IN = agent_names()
LEARNERS = ("z-learning", *ALGORITHMS)
#: Policies that expect noise of a given k.
NOISE_AWARE = tuple(name for name in POLICIES if name != "standard")
#: Seeds of the episodes that finite populations are scored with, and of the sampled average's draws.
EPISODE_SEED, SAMPLE_SEED = 10_000, 1_000_000
#: Libraries whose versions are noted with every cell.
LIBRARIES = ("numpy", "scipy", "numba", "gymnasium", "torch", "stable-baselines3", "sb3-contrib")


@dataclass(frozen=True, eq=False)
class Cell:
    """A configuration, and the name of its data set in tables (which is no part of the key)."""

    config: dict[str, Any]
    data: str

    @functools.cached_property
    def key(self) -> str:
        """SHA-256 of the configuration in canonical JSON."""
        text = json.dumps(self.config, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def title(self) -> str:
        """Words for messages."""
        c = self.config
        return f"{c['method']}, {show_privacy(c['privacy'])}, {c['action']}, seed {c['seed']}, {self.data}"


@dataclass(frozen=True, eq=False)
class Study:
    """What all cells share: the model of each data set, and the text of a file that registers agents."""

    models: dict[str, EnsembleModel]
    agents: str | None = None

    def compute(self, cell: Cell) -> dict[str, Any]:
        """Return the result of a cell."""
        if self.agents is not None:
            register_agents(self.agents)
        return compute(cell.config, self.models[cell.data])


def show_privacy(spec: str | None) -> str:
    """Write a mechanism for tables: the paper's by its k, others as they are given; different ones never look alike."""
    if spec is None:
        return "none"
    return spec.removeprefix("dirichlet:")


# ------------------------------------------------------------------ running
class Computes(Protocol):
    """What cells are run with: a `Study`, or another that knows how to."""

    def compute(self, cell: Any) -> dict[str, Any]:
        """Return the result of a cell."""


def run_cell(cell: Cell, study: Computes) -> dict[str, Any]:
    """Run one cell and return its record; whatever goes wrong in it becomes part of the record."""
    started, busy = time.perf_counter(), time.process_time()
    result, error = None, None
    try:
        result = study.compute(cell)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # also SystemExit, and what a user's agent may invent
        error = {
            "type": type(problem).__name__,
            "message": " ".join(str(problem).split()),
            "traceback": traceback.format_exception(problem, limit=-4),
        }
    record = make_record(cell, result, error)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # of the process so far
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    record["run"].update(seconds=seconds, cpu_seconds=busy, peak_mb=round(peak))
    return record


def make_record(cell: Cell, result: dict[str, Any] | None, error: dict[str, Any] | None) -> dict[str, Any]:
    """Put together what is kept of a cell; `run` is the part that differs from one run to the next."""
    run: dict[str, Any] = dict.fromkeys(("seconds", "cpu_seconds", "peak_mb", "node"))
    run.update(host=socket.gethostname(), software=software())
    return {"format": FORMAT, "key": cell.key, "config": cell.config, "result": result, "error": error, "run": run}


def lost_record(cell: Cell, reason: str) -> dict[str, Any]:
    """Return the record of a cell whose process died with it."""
    return make_record(cell, None, {"type": "WorkerDied", "message": reason, "traceback": []})


def compute(config: dict[str, Any], model: EnsembleModel) -> dict[str, Any]:
    """Make the controller on the release, score it there and, its actions as they are, on the true dynamics."""
    population, action = config["population"], config["action"]
    release = None if config["privacy"] is None else draw_release(config["privacy"], model, config["seed"])
    home = EnsembleEnv(model, population, action, privacy=release)
    agent: Any = make_agent(config["method"], home, **agent_settings(config))
    made = evaluate(agent, home, seed=EPISODE_SEED)
    deployed, beside = made, {}
    if release is not None:
        deployed = evaluate(agent, EnsembleEnv(model, population, action), seed=EPISODE_SEED)
        beside = {"without_data": score_without_data(model), "epsilon": plain(price_of(release.event))}
    steps = getattr(agent, "steps", None)
    scores = {"made": made.to_dict(), "deployed": deployed.to_dict(), **beside}
    return {"steps": None if steps is None else int(steps), **scores}


def agent_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return what `make_agent` is given for a cell."""
    method, seed, steps = config["method"], config["seed"], config["steps"]
    if method == "z-learning":
        return {"seed": seed, "steps": steps}
    if method in ALGORITHMS:
        return {"seed": seed, "steps": steps, "progress": lambda *news: None}  # the sweep has a progress of its own
    settings: dict[str, Any] = {}
    if method in NOISE_AWARE and config["privacy"] is None:
        settings["k"] = math.inf
    if method == "average-sampled":
        settings["seed"] = SAMPLE_SEED + seed
    if config["agents"] is not None:  # an agent of the user's gets what it takes
        taken = inspect.signature(agent_kind(method).make).parameters
        settings = {name: config[name] for name in ("seed", "steps") if name in taken}
    return settings


@functools.lru_cache(maxsize=1)
def register_agents(source: str) -> tuple[str, ...]:
    """Run a file that registers agents, and return their names."""
    before = {name: agent_kind(name) for name in agent_names()[len(BUILT_IN) :]}
    module = ModuleType("sweep_agents")
    exec(compile(source, "the file of --agents", "exec"), module.__dict__)
    after = {name: agent_kind(name) for name in agent_names()[len(BUILT_IN) :]}
    return tuple(name for name, factory in after.items() if before.get(name) is not factory)


@functools.cache
def software() -> dict[str, str]:
    """Return the versions that the cell was run with."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


# ------------------------------------------------------------------ keeping
class Store:
    """The folder with one file per cell.

    A file is written when its cell is done, all at once or not at all. A
    finished one is never written again; one that cannot be read counts as missing.

    Parameters
    ----------
    folder : path
    sound : callable, optional
        Says whether a result has what tables are made of.
    """

    def __init__(self, folder: Path, sound: Callable[[dict[str, Any]], bool] | None = None) -> None:
        self.folder, self.sound = folder, sound or _is_sound

    def path(self, cell: Cell) -> Path:
        """Return the file of a cell."""
        return self.folder / "cells" / f"{cell.key}.json"

    def load(self, cell: Cell) -> dict[str, Any] | None:
        """Return the record of a cell, or None."""
        try:
            record = json.loads(self.path(cell).read_text(encoding="utf-8"))
            return record if record["config"] == cell.config and self._is_whole(record) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def save(self, cell: Cell, record: dict[str, Any]) -> None:
        """Write a record, unless the cell has been finished by someone else in the meantime."""
        there = self.load(cell)
        if there is None or there["error"] is not None:
            with atomic_write(self.path(cell)) as stream:
                json.dump(record, stream, allow_nan=False)
                stream.write("\n")

    def _is_whole(self, record: dict[str, Any]) -> bool:
        """Whether a record has what tables are made of, in the types that they need."""
        result, error, run = record["result"], record["error"], record["run"]
        fine = _is_number(run["cpu_seconds"]) or (run["cpu_seconds"] is None and error is not None)
        fine &= all(isinstance(version, str) for version in run["software"].values())
        if result is None:
            return fine and isinstance(error["type"], str) and isinstance(error["message"], str)
        return fine and error is None and self.sound(result)


def _is_sound(result: dict[str, Any]) -> bool:
    sides = [result[side][name] for side in ("made", "deployed") for name in ("score", "gap", "mean_return")]
    return all(map(_is_number, sides)) and isinstance(result["steps"], int | None)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
