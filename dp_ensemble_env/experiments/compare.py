"""The protocol of `dp-ensemble compare`: agents × privacy × action × population × seeds × problems.

A grid comes from options, or from a TOML file with the same names. An agent is written like a mechanism, by its name
and settings: ``ppo:action=price,steps=20000``. It is made on each problem, or on a release of it, and scored on the
true behaviour. Combinations that do not exist are left out, with the reason, before anything is computed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import agent_names
from dp_ensemble_env.agents.base import agent_kind
from dp_ensemble_env.agents.learners import LIBRARIES, tuned_settings
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.settings import POPULATIONS
from dp_ensemble_env.experiments import runner
from dp_ensemble_env.experiments.runner import NOISE_AWARE, PUBLIC, Cell, Supplies, scenario_problem
from dp_ensemble_env.experiments.submission import bring
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms import Mechanism, as_privacy
from dp_ensemble_env.scenarios.problem import ProblemSettings, draw_release, file_digest
from dp_ensemble_env.tools.validation import check_choice, check_count

#: Settings of a problem that a scenario has, too; the others say how a meter file is read.
OF_SCENARIOS = ("date", "window", "incentive", "tariff", "levels", "loads", "penalty")
#: Settings of a library's learner that are not hyper-parameters.
OF_TRAINING = ("target", "interval")


# ------------------------------------------------------------------ agents
@dataclass(frozen=True)
class AgentSpec:
    """An agent by its name and settings, as ``ppo:action=price,steps=20000``."""

    name: str
    label: str
    action: str | None = None
    steps: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, given: str) -> AgentSpec:
        """Read a text; action and steps are no part of the label."""
        name, _, rest = given.partition(":")
        pairs = [part.partition("=") for part in rest.split(",") if part]
        if any(not middle for _, middle, _ in pairs):
            raise ValueError(f"an agent is written like ppo:action=price,steps=20000, got {given!r}.")
        values = {key.strip(): _value(text) for key, _, text in pairs}
        check_choice(name, "agent", agent_names())
        action, steps = values.pop("action", None), values.pop("steps", None)
        if action is not None:
            check_choice(action, f"action of {name}", actions.names())
        if steps is not None:
            check_count(steps, f"steps of {name}")
            if not agent_kind(name).learns and not agent_kind(name).takes("steps"):
                raise ValueError(f"{name} does not learn, so it takes no steps; leave them out.")
        shown = ",".join(f"{key}={value}" for key, value in values.items())
        return cls(name, f"{name}:{shown}".rstrip(":"), action, steps, values)

    def made(self, scenario: str, action: str, population: str | int) -> dict[str, Any]:
        """Return the fields of a cell that say how the agent is made: the hyper-parameters in force are among them."""
        if self.name not in (*LIBRARIES, "apg"):
            return {"settings": dict(self.settings), "steps": self.steps}
        tuned = tuned_settings(self.name, population, action, scenario)
        tuned |= {name: value for name, value in self.settings.items() if name not in OF_TRAINING}
        others = {name: value for name, value in self.settings.items() if name in OF_TRAINING}
        return {"settings": {**others, "hyperparams": tuned}, "steps": self.steps or int(tuned["n_timesteps"])}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def impossible(spec: AgentSpec, privacy: str | None, action: str) -> str | None:
    """Say why an agent cannot act in an action mode, or return None."""
    agent = spec.name
    if agent == "z-learning" and action != "tilt":
        return f"{agent} in {action} mode: it steers by tilts; add the action tilt."
    if agent == "dqn" and action not in ("price", "discrete"):
        return f"{agent} in {action} mode: it chooses from a list of prices; add the action price."
    if agent == "apg" and action not in ("tilt", "price"):
        return f"{agent} in {action} mode: it follows the gradient of tilts; add the action tilt or price."
    if agent in ("standard", "myopic", "without-data", *NOISE_AWARE) and action in ("price", "discrete"):
        return f"{agent} in {action} mode: one price for all loads cannot express it; add the action tilt or policy."
    if agent in NOISE_AWARE and action == "tilt" and (privacy is not None or "k" in spec.settings):
        return f"{agent} in tilt mode, expecting noise: it is no tilt of the behaviour; add the action policy."
    return None


# ------------------------------------------------------------------ problems
@dataclass(frozen=True)
class DataSet:
    """A problem with its name in tables."""

    name: str
    settings: ProblemSettings

    @property
    def problem(self) -> dict[str, Any]:
        """The problem as a cell has it: files count by their content."""
        known = self.settings.identity()
        known |= {name: {"sha256": file_digest(known[name])} for name in ("tariff", "temperature")
                  if isinstance(known.get(name), str)}  # fmt: skip
        if self.settings.meter is not None:
            return known
        overrides = {name: value for name, value in known.items() if name not in ("scenario", "instance")}
        return scenario_problem(self.settings.scenario, **overrides)


def data_sets(
    names: Iterable[str | Mapping[str, Any]],
    meters: Iterable[str] = (),
    base: ProblemSettings = ProblemSettings(),  # noqa: B008 - frozen
    folder: Path = Path(),
) -> list[DataSet]:
    """Return the problems: scenarios (``NAME`` or ``NAME:INSTANCE``), meter files, or tables with settings of both.

    `base` has the settings that all share; files are looked for in `folder`.
    """
    tables = [dict(entry) if isinstance(entry, Mapping) else {"scenario": entry} for entry in names]
    tables += [{"meter": name} for name in meters]
    sets = []
    for table in tables or [{"scenario": base.scenario, "instance": base.instance}]:
        own = {f.name for f in fields(ProblemSettings)}
        for name in table:
            check_choice(name, "setting of a problem", ("name", *own))
        if ("meter" in table) == ("scenario" in table):
            raise ValueError("a problem is either a meter or a scenario; give one of the two.")
        given: dict[str, Any] = {name: _frozen(value) for name, value in table.items() if name != "name"}
        if "meter" in table:
            settings = replace(base, **{**given, "meter": str(folder / str(table["meter"]))})
        else:
            scenario, _, number = str(table["scenario"]).partition(":")
            check_choice(scenario, "scenario", scenarios.names())
            instance = check_count(_value(str(table.get("instance", number or 0))), "instance of the scenario", 0)
            shared: dict[str, Any] = {name: getattr(base, name) for name in OF_SCENARIOS}
            settings = ProblemSettings(**{**shared, **given, "scenario": scenario, "instance": instance})
        sets.append(DataSet(str(table.get("name", settings.title)), settings))
    titles = [data.name for data in sets]
    for title in titles:
        if titles.count(title) > 1:
            raise ValueError(f"two problems are called {title}; leave one out, or give each a name in the grid file.")
    return sets


# ------------------------------------------------------------------ the grid
@dataclass(frozen=True, kw_only=True)
class Grid:
    """The grid of a comparison."""

    agents: tuple[str, ...] = ("uncontrolled", "ad-hoc", "best-price", "without-data", "standard")
    """Agents with settings, such as standard taylor:k=50 ppo:action=price,steps=20000."""
    privacy: tuple[str, ...] = ("none", "dirichlet:k=50,floor=0.05")
    """Mechanisms: agents see their releases; none for the true behaviour."""
    actions: tuple[str, ...] = ("tilt",)
    """Action modes of agents that do not name theirs."""
    populations: tuple[str, ...] = ("mean-field",)
    """mean-field, single, or a number of loads."""
    seeds: tuple[str, ...] = ("0-4",)
    """Seeds and ranges such as 0-999, for agents that depend on one."""
    episodes: int | None = None
    """Episodes of each score where chance plays a part."""

    def cells(self, sets: Sequence[DataSet], brought: Brought | None = None) -> tuple[list[Cell], list[str]]:
        """Return the cells, seed by seed, and a sentence for each combination that cannot be."""
        specs = [AgentSpec.parse(text) for text in self.agents]
        sources = [None if text == "none" else text for text in self.privacy]
        several = [int(x) if x.isdigit() else check_choice(x, "population", POPULATIONS) for x in self.populations]
        for name in self.actions:
            check_choice(name, "action", actions.names())
        for text in filter(None, sources):
            if not isinstance(as_privacy(text), Mechanism):
                raise ValueError(f"{text} is a saved release, and compare draws releases itself; name a mechanism.")
        if self.episodes is not None:
            check_count(self.episodes, "episodes", 2)
        kept: list[tuple[bool, dict[str, Any]]] = []
        skipped: list[str] = []
        for data, spec, population in itertools.product(sets, specs, several):
            for action, source in itertools.product([spec.action] if spec.action else self.actions, sources):
                privacy, scenario = None if spec.name in PUBLIC else source, data.settings.scenario
                if (reason := impossible(spec, privacy, action)) is not None:
                    skipped.append(reason)
                    continue
                code = None if brought is None else brought.digest_for(spec.name, scenario, privacy, action)
                made = {
                    "problem": data.problem, "data": data.name, "instances": (data.settings.instance,),
                    "agent": spec.name, "label": spec.label, "action": action, "population": population,
                    "privacy": privacy, "episodes": self.episodes, "code": code,
                    **spec.made(scenario, action, population),
                }  # fmt: skip
                kept.append((runner.seed_matters(spec.name, privacy), made))
        numbers = read_seeds(self.seeds)
        chosen = [
            Cell(**made, seed=seed) for seed in numbers for matters, made in kept if matters or seed == numbers[0]
        ]
        if not chosen:
            raise ValueError("nothing is left to compute; choose agents and actions that go together.")
        return list({cell.key: cell for cell in chosen}.values()), list(dict.fromkeys(skipped))

    def supplies(self, sets: Sequence[DataSet], brought: Brought | None = None) -> tuple[Supplies, list[str]]:
        """Make the models, and refuse a mechanism that one of them cannot have; also return what there is to say."""
        models: dict[str, EnsembleModel] = {}
        notes: list[str] = []
        for data in sets:
            built = data.settings.build()
            models[runner.model_key(data.problem, data.settings.instance)] = built.model
            notes += built.notes
            for spec in self.privacy:
                if spec != "none":
                    draw_release(spec, built.model, 0)
        return Supplies(models, {} if brought is None else brought.sources), list(dict.fromkeys(notes))


def read_seeds(texts: Iterable[Any]) -> list[int]:
    """Read seeds and ranges such as ``0-999``, both ends included.

    Examples
    --------
    >>> read_seeds(["0-2", "7"])
    [0, 1, 2, 7]
    """
    numbers: list[int] = []
    for text in texts:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", str(text))
        if match is None:
            raise ValueError(f"seeds are whole numbers or ranges such as 0-9, got {text!r}.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"the range of seeds {text} runs backwards; write {last}-{first}.")
        numbers += range(first, check_count(last, "seeds", 0, 2**31 - 1) + 1)
    if not numbers:
        raise ValueError("seeds is empty, so there is nothing to compute; give at least one.")
    return list(dict.fromkeys(numbers))


class GridFile(NamedTuple):
    """What a TOML file says: the grid, settings that all problems share, and the problems by kind."""

    grid: Grid
    base: ProblemSettings
    scenarios: tuple[str, ...]
    meters: tuple[str, ...]
    data: tuple[Any, ...]


def read_grid(path: Path) -> GridFile:
    """Read a TOML file; a name it does not know is refused. A single value stands for a list of one."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read the grid file {path}: {error.strerror}.") from error
    except ValueError as error:
        raise ValueError(f"{path} is not a TOML file: {error}.") from error
    of_grid, of_base = ([f.name for f in fields(kind)] for kind in (Grid, ProblemSettings))
    for name in content:
        check_choice(name, f"name in {path}", (*of_grid, *of_base, *GridFile._fields[2:]))

    def many(name: str) -> tuple[Any, ...]:
        value = content.get(name, ())
        return tuple(value) if isinstance(value, (list, tuple)) else (value,)

    grid: dict[str, Any] = {name: tuple(map(str, many(name))) for name in of_grid if name in content}
    grid |= {"episodes": content["episodes"]} if "episodes" in content else {}
    base: dict[str, Any] = {name: _frozen(content[name]) for name in of_base if name in content}
    return GridFile(Grid(**grid), ProblemSettings(**base), many("scenarios"), many("meters"), many("data"))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# ------------------------------------------------------------------ strangers' files
@dataclass(frozen=True)
class Brought:
    """Files that were imported: their texts by name, and the names of what they registered."""

    sources: Mapping[str, str]
    names: frozenset[str]

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Brought:
        """Run files, each of which registers agents, scenarios, mechanisms or action modes, or is an agent itself."""
        sources: dict[str, str] = {}
        names: set[str] = set()
        for path in paths:
            try:
                sources[path.stem] = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"cannot read {path}: {error}; give a Python file.") from error
            names |= bring(sources[path.stem], path.stem)
            if not names:
                raise ValueError(f"{path} brings nothing; register an agent, or define predict or make(env).")
        return cls(sources, frozenset(names))

    def digest_for(self, *names: str | None) -> str | None:
        """Return the digest of the files if one of these was brought by them."""
        parts = {(name or "").partition(":")[0] for name in names}
        text = json.dumps(dict(self.sources), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest() if parts & self.names else None
