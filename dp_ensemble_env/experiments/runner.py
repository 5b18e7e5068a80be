"""One engine for all experiments: each cell is computed once, stored, and returned as a row.

A `Cell` holds everything that determines a result, and its key is the SHA-256 of its content, so it can be computed
anywhere. A `Row` is a cell with its scores; all tables, plots and pages come from rows. A `Store` keeps one file for
each finished cell. `run` computes missing cells, in this process, in several or on a Ray cluster
(`dp_ensemble_env.experiments.backends`).

An agent is trained or planned on each instance of its cell, or once on training instances (`Cell.training`), and scored
on the true behaviour. With a mechanism it sees only releases. The seed draws the release and trains the learner;
episodes have their own seeds.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import resource
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dp_ensemble_env
from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import Agent, agent_kind, evaluate, make_agent
from dp_ensemble_env.control.policies import POLICIES
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.deployment import price_of, score_without_data
from dp_ensemble_env.experiments.submission import RemoteAgent, bring
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.reporting.page import versions
from dp_ensemble_env.reporting.score import Outcome
from dp_ensemble_env.scenarios.problem import draw_release
from dp_ensemble_env.tools import registry
from dp_ensemble_env.tools.console import Progress
from dp_ensemble_env.tools.files import atomic_write

if TYPE_CHECKING:
    from dp_ensemble_env.experiments.backends import Place

#: Changes when a cell of the same configuration would come out differently.
FORMAT = 4
#: Seed of the episodes that agents are scored with where chance plays a part, and of the sampled average's draws.
EPISODE_SEED, SAMPLE_SEED = 10_000, 1_000_000
#: Numbers are kept to so many decimals, so that another machine's rounding does not change a digest.
DECIMALS = 9
#: Agents that look at nothing private: no release makes a difference to them, and they cost ε = 0.
PUBLIC = ("uncontrolled", "ad-hoc", "myopic", "without-data")
#: Bounds, not agents that anybody could play: searched for on the instance that they are scored on.
HINDSIGHT = ("open-loop", "blind", "best-price")
#: Policies that expect noise of a given k.
NOISE_AWARE = tuple(name for name in POLICIES if name != "standard")


def digest_of(content: Any) -> str:
    """Return the SHA-256 of canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# ------------------------------------------------------------------ cells and rows
@dataclass(frozen=True, eq=False, kw_only=True)
class Cell:
    """Everything that determines a result, and names for tables."""

    #: A scenario with its version and overrides, or the digest of a meter file and the settings it is read with.
    problem: Mapping[str, Any]
    agent: str
    split: str = "train"
    instances: tuple[int, ...] = (0,)  #: that the agent is scored on
    #: Of `make_agent`; for a learner the hyper-parameters in force, and the steps it may take.
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    #: The agent is made once, on so many training instances; 0: anew on each instance that it is scored on.
    training: int = 0
    action: str = "tilt"
    population: str | int = "mean-field"
    privacy: str | None = None  #: the mechanism whose releases the agent sees; None for the true behaviour
    episodes: int | None = None  #: of each score where chance plays a part
    seed: int = 0
    code: str | None = None  #: SHA-256 of the file that brought the agent, the scenario, the mechanism or the mode
    version: str = field(default_factory=lambda: dp_ensemble_env.__version__)
    #: No part of the key: names of the problem and of the agent in tables, and whether to keep a learner's policy.
    data: str = ""
    label: str = ""
    keep: bool = False

    @functools.cached_property
    def key(self) -> str:
        """SHA-256 of everything that decides the result."""
        content = {name: value for name, value in asdict(self).items() if name not in ("data", "label", "keep")}
        return digest_of({"format": FORMAT, **content})

    @property
    def knows(self) -> str:
        """What the agent was made with: the truth, a release, other instances, nothing, or the truth in hindsight."""
        if (self.agent in PUBLIC and self.code is None) or (self.privacy or "").partition(":")[0] == "public":
            return "nothing"
        if self.code is None and self.privacy is None and self.agent in HINDSIGHT:
            return "hindsight"
        return "a release" if self.privacy is not None else "other instances" if self.training else "the truth"

    @property
    def title(self) -> str:
        """Words for messages."""
        parts = (self.label or self.agent, self.privacy or "no privacy", self.action, f"seed {self.seed}", self.data)
        return ", ".join(parts)


def scenario_problem(name: str, **overrides: Any) -> dict[str, Any]:
    """Return a scenario as a cell has it."""
    return {"scenario": name, "version": scenarios.card(name).version, "overrides": overrides}


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """A cell and its results."""

    cell: Cell
    #: On the true behaviour, one for each instance; of several, and of test instances, only the scores are kept.
    deployed: tuple[Outcome, ...] = ()
    #: Where the agent was made: on the releases, or on the training instances. Empty if that is where it is deployed.
    made: tuple[Outcome, ...] = ()
    without_data: tuple[float, ...] = ()  #: scores of the plan without data beside it
    epsilon: float = math.inf  #: of one release at δ = 1e-6; infinity without a guarantee, as on the truth
    curve: tuple[tuple[int, float], ...] = ()  #: steps and scores along a training
    #: Steps, seconds, processor seconds, peak memory, machine, software: what may differ from run to run.
    compute: dict[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None  #: type, message and traceback of a failure
    policy: bytes | None = field(default=None, repr=False)  #: a learner's file where it is kept; no part of the result

    @property
    def scores(self) -> list[float]:
        """Scores on the true behaviour, one for each instance."""
        return [outcome.score for outcome in self.deployed]

    @functools.cached_property
    def result(self) -> dict[str, Any]:
        """What was computed, as plain numbers."""
        told = {what: [outcome.to_dict() for outcome in getattr(self, what)] for what in ("deployed", "made")}
        if len(self.deployed) != 1 or self.cell.split == "test":  # benchmarks need the scores alone
            few = ("score", "score_error", "exact")
            told = {what: [{name: one[name] for name in few} for one in outcomes] for what, outcomes in told.items()}
        content = {**told, "without_data": self.without_data, "epsilon": self.epsilon, "curve": self.curve}
        return _rounded(content)  # type: ignore[no-any-return]

    @property
    def digest(self) -> str:
        """SHA-256 of the key and the result."""
        return digest_of([self.cell.key, self.result])

    def to_dict(self) -> dict[str, Any]:
        """Return the row for JSON."""
        cell = json.loads(json.dumps(asdict(self.cell)))
        more = {"compute": dict(self.compute), "error": self.error and dict(self.error)}
        return {"key": self.cell.key, "cell": cell, "result": self.result, **more, "digest": self.digest}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Row:
        """Read what `to_dict` wrote; what was changed since is refused."""
        result, given = content["result"], dict(content["cell"])
        cell = Cell(**{**given, "instances": tuple(given["instances"])})
        row = cls(
            cell=cell,
            deployed=tuple(map(read_outcome, result["deployed"])),
            made=tuple(map(read_outcome, result["made"])),
            without_data=tuple(result["without_data"]),
            epsilon=math.inf if result["epsilon"] is None else result["epsilon"],
            curve=tuple((int(steps), score) for steps, score in result["curve"]),
            compute=dict(content["compute"]),
            error=content["error"],
        )
        whole = len(row.deployed) == len(cell.instances) and all(map(math.isfinite, row.scores))
        if content["key"] != cell.key or content["digest"] != row.digest or not (whole or row.error):
            raise ValueError(f"the row {cell.title} was changed since it was computed; compute it again.")
        return row


def read_outcome(content: Mapping[str, Any]) -> Outcome:
    """Read an outcome; numbers that were not kept are NaN."""
    known: dict[str, Any] = {f.name: content.get(f.name, f.default) for f in fields(Outcome)}
    known = {name: value if isinstance(value, (int, float, str)) else math.nan for name, value in known.items()}
    return Outcome(**{**known, "power_kw": np.array(content.get("power_kw", []), float)})


def _rounded(value: Any) -> Any:
    """Round the numbers of a nested structure, for JSON: no minus zero, None for what is not finite."""
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        return round(value, DECIMALS) + 0.0 if math.isfinite(value) else None
    return value


# ------------------------------------------------------------------ computing
@dataclass(frozen=True, eq=False)
class Supplies:
    """Models and code that cells need."""

    #: Models that cannot be made from a cell alone, such as that of a meter file, by `model_key`.
    models: Mapping[str, EnsembleModel] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)  #: files that bring agents, scenarios and such: name and text
    #: ``news(step, steps, score)`` hears how a training goes, where cells are computed in this process.
    news: Callable[[int, int, float], None] | None = None
    #: Texts of files that are agents and run in a process of their own, by the agents' names.
    apart: Mapping[str, str] = field(default_factory=dict)

    def model(self, cell: Cell, instance: int, split: str) -> EnsembleModel:
        """Return the model of an instance."""
        supplied = self.models.get(model_key(cell.problem, instance)) if split == cell.split else None
        return _scenario_model(json.dumps(cell.problem), instance, split) if supplied is None else supplied


def model_key(problem: Mapping[str, Any], instance: int) -> str:
    """Return what a supplied model is known by."""
    return digest_of([problem, instance])


@functools.lru_cache(maxsize=20)
def _scenario_model(problem: str, instance: int, split: str) -> EnsembleModel:
    content = json.loads(problem)
    return scenarios.make(content["scenario"], instance=instance, split=split, **content["overrides"])


_release = functools.lru_cache(maxsize=4)(draw_release)
_without_data = functools.lru_cache(maxsize=20)(score_without_data)
_installed_plugins = functools.cache(registry.load_entry_points)


def compute(cell: Cell, supplies: Supplies) -> Row:
    """Compute one cell; an error becomes part of the row."""
    started, busy = time.perf_counter(), time.process_time()
    result: dict[str, Any] = {}
    steps, error = None, None
    try:
        _installed_plugins()
        for name, source in supplies.code.items():
            bring(source, name)
        with contextlib.ExitStack() as left:  # processes of strangers' agents
            result, steps = _scores(cell, supplies, left)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # also SystemExit, and what a stranger's agent may invent
        error = failure(problem)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # of the process so far
    used = {"seconds": round(time.perf_counter() - started, 3), "cpu_seconds": round(time.process_time() - busy, 3)}
    where = {"peak_mb": round(peak), "host": socket.gethostname(), "node": None, "software": versions()}
    row = Row(cell=cell, **result, compute={"steps": steps, **used, **where}, error=error)
    if row.error is not None:
        return row
    return replace(Row.from_dict(row.to_dict()), cell=cell, policy=row.policy)  # as it will be read


def failure(problem: BaseException) -> dict[str, Any]:
    """Return an error as a row has it."""
    words, trace = " ".join(str(problem).split()), traceback.format_exception(problem, limit=-4)
    return {"type": type(problem).__name__, "message": words, "traceback": trace}


def lost(cell: Cell, reason: str) -> Row:
    """Return the row of a cell whose process died."""
    return Row(cell=cell, error={"type": "WorkerDied", "message": reason, "traceback": []})


def _scores(cell: Cell, supplies: Supplies, left: contextlib.ExitStack) -> tuple[dict[str, Any], int | None]:
    """Make the agent, and score it where it was made and on the truth; also return the steps it took."""
    made, deployed, beside, prices = [], [], [], [0.0 if cell.knows == "nothing" else math.inf]

    def environment(model: Any, release: Release | None = None) -> EnsembleEnv:
        return EnsembleEnv(model, cell.population, cell.action, privacy=release)

    def drawn(model: EnsembleModel) -> Release | None:
        release = None if cell.privacy is None else _release(cell.privacy, model, cell.seed)
        prices.extend([] if release is None else [price_of(release.event)])
        return release

    def score(agent: Agent, env: EnsembleEnv) -> Outcome:
        return evaluate(agent, env, cell.episodes, EPISODE_SEED)

    def make(env: EnsembleEnv) -> Any:
        if cell.agent not in supplies.apart:
            return _made(cell, env, supplies)
        remote = RemoteAgent(supplies.apart[cell.agent], cell.agent, env, cell.seed, supplies.code)
        left.callback(remote.close)
        return remote

    agent: Any = None
    if cell.training:
        models = [supplies.model(cell, i, "train") for i in range(cell.training)]
        seen = [model if (r := drawn(model)) is None else model.public(r) for model in models]
        agent = make(environment(seen))
        made = [score(agent, environment(model)) for model in seen[: len(cell.instances)]]
    for i in cell.instances:
        truth = supplies.model(cell, i, cell.split)
        if not cell.training:
            release = drawn(truth)
            home = environment(truth, release)
            agent = make(home)
            made += [] if release is None else [score(agent, home)]
        deployed.append(score(agent, environment(truth)))
        beside.append(_without_data(truth))
    if not all(math.isfinite(outcome.score) for outcome in deployed):
        raise ValueError("nothing can be gained in this problem, so there is no score; choose another event.")
    scores: dict[str, Any] = {"deployed": tuple(deployed), "made": tuple(made), "without_data": tuple(beside)}
    if cell.keep and hasattr(agent, "save"):
        with tempfile.TemporaryDirectory() as folder:
            agent.save(path := Path(folder) / "policy.safetensors")
            scores["policy"] = path.read_bytes()
    scores["curve"] = tuple((int(steps), float(value)) for steps, value in getattr(agent, "curve", ()))
    steps = getattr(agent, "steps", None)
    return {**scores, "epsilon": max(prices[1:] or prices)}, None if steps is None else int(steps)


def _made(cell: Cell, env: EnsembleEnv, supplies: Supplies) -> Agent:
    """Make the agent of a cell; it is given the seed and the steps if it takes them."""
    kind, settings = agent_kind(cell.agent), json.loads(json.dumps(dict(cell.settings)))
    if kind.learns or kind.takes("seed"):
        settings.setdefault("seed", SAMPLE_SEED + cell.seed if cell.agent == "average-sampled" else cell.seed)
    if cell.steps is not None and (kind.learns or kind.takes("steps")):
        settings["steps"] = cell.steps
    if kind.takes("progress"):
        settings["progress"] = supplies.news or (lambda *news: None)  # the runner has a progress of its own
    if cell.agent in NOISE_AWARE and cell.privacy is None:
        settings.setdefault("k", math.inf)
    return make_agent(cell.agent, env, **settings)


def seed_matters(name: str, privacy: str | None) -> bool:
    """Tell whether the seed changes an agent."""
    if privacy is not None or name in POLICIES:
        return privacy is not None or name == "average-sampled"
    return agent_kind(name).learns or agent_kind(name).takes("seed")


# ------------------------------------------------------------------ keeping and running
class Store:
    """A folder with one file for each cell.

    A file is written atomically when its cell is done, and never again. A damaged or edited file counts as missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, cell: Cell) -> Path:
        """Return the file of a cell."""
        return self.folder / "cells" / f"{cell.key}.json"

    def policy(self, cell: Cell) -> Path:
        """Return the path of a cell's policy, which exists if the cell was computed to keep it."""
        return self.folder / "policies" / f"{cell.key}.safetensors"

    def load(self, cell: Cell) -> Row | None:
        """Return the row of a cell, with the cell's current names; None if there is no valid row."""
        try:
            row = Row.from_dict(json.loads(self.path(cell).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return None if row.cell.key != cell.key else replace(row, cell=cell)

    def save(self, row: Row) -> None:
        """Write a row, unless another process has finished the cell in the meantime."""
        there = self.load(row.cell)
        if there is None or there.error is not None:
            if row.policy is not None:
                with atomic_write(self.policy(row.cell), "wb") as stream:
                    stream.write(row.policy)
            with atomic_write(self.path(row.cell)) as stream:
                json.dump(row.to_dict(), stream, allow_nan=False)
                stream.write("\n")


def run(
    cells: Iterable[Cell],
    store: Store,
    place: Place,
    progress: Progress | None = None,
    supplies: Supplies = Supplies(),  # noqa: B008 - frozen
) -> Iterator[Row]:
    """Yield the row of every cell: first stored rows, then the others as they are done.

    Failed cells are tried again. Cells are computed in the given order: protocols list them seed by seed, so an
    interrupted run is balanced.
    """
    unique = {cell.key: cell for cell in cells}
    todo = []
    done = failed = 0
    for cell in unique.values():
        row = store.load(cell)
        if row is None or row.error is not None:
            todo.append(cell)
        else:
            done += 1
            yield row
    if progress is not None:
        progress.stage("cells", len(unique), done)
    say = print if progress is None else progress.say
    with contextlib.closing(place.run(todo, supplies, store.folder / "ray.log", say)) as rows:
        for row in rows:
            store.save(row)
            done, failed = done + (row.error is None), failed + (row.error is not None)
            if progress is not None:
                progress.advance(done + failed, f"{done:,} of {len(unique):,} done, {failed:,} failed")
            if row.error is not None:
                say(f"failed: {row.cell.title}: {row.error['message']}")
            yield row


# ------------------------------------------------------------------ the results file
def results(rows: Iterable[Row], command: str) -> dict[str, Any]:
    """Put together the results file: every finished row with its digest, and the digest of all."""
    told = [row.to_dict() for row in rows if row.error is None]
    head = {"format": FORMAT, "command": command, "versions": versions()}
    for row in told:  # said once for all rows that it is true of
        if row["compute"].get("software") == head["versions"]:
            del row["compute"]["software"]
    return {**head, "digest": digest_of([row["digest"] for row in told]), "rows": told}


def write_results(path: Path, content: Mapping[str, Any]) -> None:
    """Write the results file, one row a line."""
    head = json.dumps({name: value for name, value in content.items() if name != "rows"}, indent=1, ensure_ascii=False)
    lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in content["rows"])
    with atomic_write(path) as stream:
        stream.write(f'{head[:-2]},\n "rows": [\n{lines}\n ]\n}}\n')


def read_results(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """Read a results file and its rows; refuse a file whose rows do not match their digests."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        rows = [Row.from_dict(row) for row in content["rows"]]
        if digest_of([row["digest"] for row in content["rows"]]) != content["digest"]:
            raise ValueError("rows were added or taken out")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}; make it with dp-ensemble leaderboard.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a results file of this program ({error}); make it again.") from error
    return content, rows
