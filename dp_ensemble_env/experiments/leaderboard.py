"""The leaderboard's protocol: scenarios × agents × seeds × splits, one row for each agent, scenario and seed.

*Planners* are made on each instance and scored exactly, in the mean field. With a mechanism they see a release of the
instance, drawn with the seed, and are deployed on the truth; the plan without data stands beside them. *Learners* are
trained on the training instances, with the seed, and play the instances of every split as they are. A *submission* is a
file with ``predict``; it is given the first training instance and plays all others.

A row is a cell in the sense of `dp_ensemble_env.experiments.sweep`: its key is the digest of everything that decides
it, it is kept in a file of its own as soon as it is done, and it may be run in this process, in several, or on Ray.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import dp_ensemble_env
from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import Agent, evaluate
from dp_ensemble_env.agents.hyperparams import changes_for, hyperparameters
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.deployment import price_of
from dp_ensemble_env.experiments.suite import PLANNERS, InstanceScorer
from dp_ensemble_env.experiments.suite_learners import Budget, train_once, training_models
from dp_ensemble_env.experiments.sweep.cells import Cell, show_privacy
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.provenance import versions
from dp_ensemble_env.reporting.tables import plain
from dp_ensemble_env.scenarios.problem import draw_release
from dp_ensemble_env.tools.files import atomic_write
from dp_ensemble_env.tools.validation import check_choice, check_count

#: Changes when a row of the same configuration would come out differently.
FORMAT = 1
#: Planners that look at the behaviour of the loads: a release makes a difference to these alone.
USE_DATA = ("best-price", "standard")
#: Episodes on each instance where a learner meets chance, and the seed that they begin with.
EPISODES, EPISODE_SEED = 200, 10_000
#: Scores are kept to so many decimals, so that another machine's rounding does not change a digest.
DECIMALS = 6


class Row(Cell):
    """One agent on one scenario with one seed."""

    @property
    def title(self) -> str:
        """Words for messages."""
        return f"{self.config['agent']}, {self.config['scenario']}, seed {self.config['seed']}"


@dataclass(frozen=True)
class Submission:
    """A Python file with ``predict``, by its text; running it runs its code.

    Attributes
    ----------
    name : str
        In the table.
    source : str
    action : str
        The action mode that it plays in.
    """

    name: str
    source: str
    action: str = "price"

    @classmethod
    def read(cls, path: Path, action: str, allow_code: bool) -> Submission:
        """Read a file, which needs consent; it is run once, to see that it has what it must."""
        check_choice(action, "action", actions.names())
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read {path}: {error}.") from error
        if not allow_code:
            raise ValueError(
                f"{path} is a Python file, and scoring it runs its code; if you trust it, pass allow_code=True."
            )
        try:
            _module(source)
        except Exception as error:
            raise ValueError(f"{path} cannot be run: {type(error).__name__}: {error}.") from error
        return cls(path.stem, source, action)

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.source.encode()).hexdigest()


@functools.lru_cache(maxsize=4)
def _module(source: str) -> ModuleType:
    module = ModuleType("submission")
    exec(compile(source, "the submitted file", "exec"), module.__dict__)
    if not callable(getattr(module, "predict", None)) and not callable(getattr(module, "make", None)):
        raise ValueError("it has neither predict(observation, ...) nor make(env)")
    return module


def submitted_agent(source: str, env: EnsembleEnv, seed: int) -> Agent:
    """Return the agent of a submitted file: what its ``make(env)`` returns, or the file itself with its ``predict``."""
    module = _module(source)
    if not callable(getattr(module, "make", None)):
        return module  # type: ignore[return-value]
    given = {"seed": seed} if "seed" in inspect.signature(module.make).parameters else {}
    agent: Agent = module.make(env, **given)
    if not callable(getattr(agent, "predict", None)):
        raise ValueError("make(env) of the submitted file returned something without predict; return an agent.")
    return agent


# ------------------------------------------------------------------ what is run
@dataclass(frozen=True)
class Protocol:
    """What is run.

    Attributes
    ----------
    scenarios : tuple of str
        By default all that are registered.
    planners : tuple of str
        Of `dp_ensemble_env.experiments.suite.PLANNERS`.
    learners : tuple of Budget
    privacy : tuple of str
        Mechanisms; the planners that use data are made on releases of each, too.
    seeds : int
        Training runs of a learner, and releases of an instance.
    splits : tuple of str
    instances : int, optional
        The first so many of each split only.
    submission : Submission, optional
    """

    scenarios: tuple[str, ...] = ()
    planners: tuple[str, ...] = tuple(PLANNERS)
    learners: tuple[Budget, ...] = ()
    privacy: tuple[str, ...] = ()
    seeds: int = 3
    splits: tuple[str, ...] = ("train", "test")
    instances: int | None = None
    submission: Submission | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in self.scenarios:
            check_choice(name, "scenario", scenarios.names())
        for name in self.planners:
            check_choice(name, "planner", PLANNERS)
        for name in self.splits:
            check_choice(name, "split", scenarios.SPLITS)
        check_count(self.seeds, "seeds", 1)
        if self.instances is not None:
            check_count(self.instances, "instances", 1)
        for one in self.learners:  # refuses what does not go together, before the work
            hyperparameters(one.algo, "mean-field", one.action)
        for spec in self.privacy:
            draw_release(spec, scenarios.make(self.names[0]), 0)

    @property
    def names(self) -> tuple[str, ...]:
        """The scenarios that are run."""
        return self.scenarios or tuple(scenarios.names())

    def rows(self) -> list[Row]:
        """Return the rows, seed by seed: a run that is stopped is still balanced."""
        return [
            self._row(agent, name, seed)
            for seed in range(self.seeds)
            for agent in self._agents()
            for name in self.names
            if seed == 0 or not agent["exact"]
        ]

    def _agents(self) -> Iterator[dict[str, Any]]:
        """Yield what decides an agent; those that no seed changes are exact."""
        none: dict[str, Any] = {"action": "tilt", "steps": None, "settings": None, "privacy": None, "file": None}
        for name in self.planners:
            yield {**none, "agent": name, "kind": "planner", "plan": name, "exact": True}
        for name in self.planners:
            for spec in self.privacy if name in USE_DATA else ():
                about = {"plan": name, "privacy": spec, "exact": False}
                yield {**none, "agent": f"{name}, {show_privacy(spec)}", "kind": "planner", **about}
        for one in self.learners:
            settings = hyperparameters(one.algo, "mean-field", one.action)
            about = {"action": one.action, "steps": one.steps, "settings": settings, "plan": one.algo}
            yield {**none, "agent": one.title, "kind": "learner", "exact": False, **about}
        if self.submission is not None:
            about = {"action": self.submission.action, "file": self.submission.digest, "plan": None}
            yield {**none, "agent": self.submission.name, "kind": "submission", "exact": False, **about}

    def _row(self, agent: dict[str, Any], name: str, seed: int) -> Row:
        shared = {"format": FORMAT, "version": dp_ensemble_env.__version__, "splits": list(self.splits)}
        if agent["settings"] is not None:
            agent = {**agent, "settings": {**agent["settings"], **changes_for(agent["plan"], name, agent["action"])}}
        where = {"scenario": name, "scenario_version": scenarios.card(name).version, "instances": self.instances}
        return Row({**shared, **where, **agent, "seed": seed}, name)

    @property
    def study(self) -> Board:
        """What the rows are run with."""
        return Board(None if self.submission is None else self.submission.source)


# ------------------------------------------------------------------ how a row is run
@dataclass(frozen=True)
class Board:
    """Runs rows; holds the text of a submitted file."""

    source: str | None = field(default=None, repr=False)

    def compute(self, cell: Row) -> dict[str, Any]:
        """Return the scores of a row by split, and what they took."""
        config = cell.config
        if config["kind"] == "planner":
            return _planned(config)
        name, steps = config["scenario"], None
        if config["kind"] == "learner":
            budget = Budget(config["plan"], config["action"], config["steps"])
            learned = train_once(budget, name, training_models(name, None), config["seed"], lambda *news: None)
            agent: Agent = learned
            steps = int(learned.steps)
        else:
            assert self.source is not None
            agent = submitted_agent(self.source, EnsembleEnv(name, action=config["action"]), config["seed"])
        scores: dict[str, list[float]] = {}
        for split, i, model in _instances(config):
            env = EnsembleEnv(model, action=config["action"])
            chance = None if model.context is None else EPISODES
            scores.setdefault(split, []).append(_kept(evaluate(agent, env, chance, EPISODE_SEED + i).score))
        return {"scores": scores, "without_data": None, "epsilon": None, "steps": steps}


def _planned(config: dict[str, Any]) -> dict[str, Any]:
    """Plan on each instance, or on a release of it, and score on the instance."""
    plan, spec = PLANNERS[config["plan"]], config["privacy"]
    scores: dict[str, list[float]] = {}
    beside: dict[str, list[float]] = {}
    prices: list[float] = []
    for split, i, model in _instances(config):
        scorer, seen = InstanceScorer(model), model
        if spec is not None:
            release = draw_release(spec, model, 1000 * config["seed"] + i)
            seen = model.with_default(release.matrix)
            prices.append(price_of(release.event))
            beside.setdefault(split, []).append(_kept(scorer(PLANNERS["public-guess"](model))))
        scores.setdefault(split, []).append(_kept(scorer(plan(seen))))
    told = (
        {"without_data": beside, "epsilon": plain(max(prices))} if prices else {"without_data": None, "epsilon": None}
    )
    return {"scores": scores, **told, "steps": None}


def _instances(config: dict[str, Any]) -> Iterator[tuple[str, int, EnsembleModel]]:
    for split in config["splits"]:
        for i in scenarios.instances(split)[: config["instances"]]:
            yield split, i, scenarios.make(config["scenario"], instance=i, split=split)


def _kept(score: float) -> float:
    return round(float(score), DECIMALS) + 0.0  # no minus zero


def is_sound(result: dict[str, Any]) -> bool:
    """Whether a result has what the tables are made of."""
    scores = [x for numbers in result["scores"].values() for x in numbers]
    return bool(scores) and all(isinstance(x, (int, float)) and np.isfinite(x) for x in scores)


# ------------------------------------------------------------------ the results file
def digest_of(content: Any) -> str:
    """Return the SHA-256 of canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def results(rows: Sequence[Row], records: dict[str, dict[str, Any]], command: str) -> dict[str, Any]:
    """Put together the results file: every finished row with its configuration, compute and digest."""
    found = []
    for row in rows:
        record = records.get(row.key)
        if record is None or record["result"] is None:
            continue
        run = record["run"]
        compute = {"cpu_seconds": round(run["cpu_seconds"], 1), "steps": record["result"]["steps"]}
        content = {"key": row.key, "config": row.config, "result": record["result"]}
        found.append({**content, "compute": compute, "software": run["software"], "digest": digest_of(content)})
    return {
        "format": FORMAT,
        "command": command,
        "versions": versions(),
        "rows": found,
        "digest": digest_of([row["digest"] for row in found]),
    }


def write_results(path: Path, content: dict[str, Any]) -> None:
    """Write the results file, one row a line."""
    head = {name: value for name, value in content.items() if name != "rows"}
    lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in content["rows"])
    text = json.dumps(head, indent=1, ensure_ascii=False)
    with atomic_write(path) as stream:
        stream.write(f'{text[:-2]},\n "rows": [\n{lines}\n ]\n}}\n')


def read_results(path: Path) -> dict[str, Any]:
    """Read a results file; one whose rows do not have their digests is refused."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows = content["rows"]
        for row in rows:
            if digest_of({name: row[name] for name in ("key", "config", "result")}) != row["digest"]:
                raise ValueError(f"the row {row['config']['agent']}, {row['config']['scenario']} was changed")
        if digest_of([row["digest"] for row in rows]) != content["digest"]:
            raise ValueError("rows were added or taken out")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}; make it with dp-ensemble leaderboard.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no leaderboard of this program ({error}); make it again.") from error
    return content


def recompute(row: dict[str, Any]) -> dict[str, Any]:
    """Run a row of a results file again, and return its result."""
    return Board().compute(Row(row["config"], row["config"]["scenario"]))
