"""The grid of a sweep, from given values and a TOML file: method × privacy × action mode × seed × data set."""

from __future__ import annotations

import hashlib
import itertools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import dp_ensemble_env
from dp_ensemble_env.agents.hyperparams import hyperparameters
from dp_ensemble_env.envs import actions
from dp_ensemble_env.experiments.sweep.cells import (
    BUILT_IN,
    FORMAT,
    LEARNERS,
    NOISE_AWARE,
    Cell,
    Study,
    register_agents,
)
from dp_ensemble_env.scenarios.problem import READING, Problem, ProblemSettings, dirichlet_spec, draw_release
from dp_ensemble_env.tools.validation import check_choice, check_count, check_in_range, check_positive

#: How problems are made; may differ from one data set to the next in a grid file.
OF_DATA = tuple(f.name for f in fields(ProblemSettings) if f.name not in ("scenario", "instance", "meter"))
#: Those of them that say how a file is read, and mean nothing to a scenario.
OF_DAYS = ("dynamics", "temperature", "shed_floor", "response", "penalty_per_kw")
OF_METERS = (*READING, "season", "exclude", "holidays", "profile", *OF_DAYS)
#: What a grid file may set, with the value it has if nobody sets it.
DEFAULTS: dict[str, Any] = {
    "methods": ["uncontrolled", "ad-hoc", "best-price", "standard"],
    "k": ["none", 50],
    "floor": None,
    "privacy": [],
    "actions": ["tilt"],
    "seeds": ["0-4"],
    "scenarios": [],
    "meters": [],
    "data": [],
    "steps": [],
    "population": "mean-field",
    "agents": None,
    **{name: getattr(ProblemSettings(), name) for name in OF_DATA},
}


@dataclass(frozen=True)
class DataSet:
    """A problem with its name in tables."""

    name: str
    problem: ProblemSettings


@dataclass(frozen=True)
class Grid:
    """Everything that a sweep runs."""

    methods: list[str]
    privacy: list[str | None]
    actions: list[str]
    seeds: list[int]
    data: list[DataSet]
    steps: dict[str, int]
    population: str | int
    source: str | None
    own: tuple[str, ...]

    def cells(self) -> tuple[list[Cell], list[str]]:
        """Return the cells that can be run, seed by seed, and a sentence for each combination that cannot."""
        cells, skipped = [], []
        shared = {"format": FORMAT, "version": dp_ensemble_env.__version__, "population": self.population}
        digest = None if self.source is None else hashlib.sha256(self.source.encode()).hexdigest()
        makers: list[tuple[dict[str, Any], str]] = []
        identities: dict[str, Any] = {}
        for data in self.data:
            identity = data.problem.identity()
            for name, other in identities.items():
                if identity == other:
                    raise ValueError(f"the data sets {name} and {data.name} have the same content; leave one out.")
            identities[data.name] = identity
            for method, action, privacy in itertools.product(self.methods, self.actions, self.privacy):
                reason = None if method in self.own else impossible(method, privacy, action)
                if reason is not None:
                    skipped.append(reason)
                    continue
                config = {
                    **shared, "method": method, "action": action, "privacy": privacy,
                    "steps": self.budget(method, action), "agents": digest if method in self.own else None,
                    "data": identity,
                }  # fmt: skip
                makers.append((config, data.name))
        for seed in self.seeds:  # all combinations early, more seeds later: a sweep that is stopped is still balanced
            cells += [Cell({**config, "seed": seed}, name) for config, name in makers]
        return cells, list(dict.fromkeys(skipped))

    def budget(self, method: str, action: str) -> int | None:
        """Return the steps that a learner may take, None for a method that does not learn."""
        if method in self.own:
            return self.steps.get(method)
        if method not in LEARNERS:
            return None
        tuned = 300_000 if method == "z-learning" else None
        found = self.steps.get(method, self.steps.get("", tuned))
        return found or int(hyperparameters(method, self.population, action)["n_timesteps"])

    def study(self) -> tuple[Study, list[Problem]]:
        """Read the data sets, and refuse a mechanism that one of them cannot have."""
        problems = [data.problem.build() for data in self.data]
        for spec in self.privacy:
            for problem in problems:
                if spec is not None:
                    draw_release(spec, problem.model, 0)
        models = {data.name: problem.model for data, problem in zip(self.data, problems, strict=True)}
        return Study(models, self.source), problems


def impossible(method: str, privacy: str | None, action: str) -> str | None:
    """Say why a controller cannot act in an action mode, or return None."""
    if method == "z-learning" and action != "tilt":
        return f"{method} in {action} mode: it steers by tilts; add the action tilt."
    if method == "dqn" and action not in ("price", "discrete"):
        return f"{method} in {action} mode: it chooses from a list of prices; add the action price."
    if method == "apg" and action not in ("tilt", "price"):
        return f"{method} in {action} mode: it follows the gradient of tilts; add the action tilt or price."
    if method in ("standard", *NOISE_AWARE) and action in ("price", "discrete"):
        return f"{method} in {action} mode: one price for all loads cannot express it; add the action tilt or policy."
    if method in NOISE_AWARE and action == "tilt" and privacy is not None:
        return f"{method} in tilt mode on a release: it is no tilt of the matrix; add the action policy."
    return None


# ------------------------------------------------------------------ reading
def read_grid(given: Mapping[str, Any], file: Path | None = None) -> Grid:
    """Merge the defaults, the grid file and what is given, and check every value.

    Parameters
    ----------
    given : mapping
        Values by the names of `DEFAULTS`; they overrule the file.
    file : path, optional
        TOML file with the same names. Files that it names are looked for beside it.
    """
    values, folder = dict(DEFAULTS), Path()
    if file is not None:
        values.update(read_toml(file))
        folder = file.parent
    values.update(given)
    source, own = read_agents(values["agents"], Path() if "agents" in given else folder)
    known = [*BUILT_IN, *own]
    methods = [check_choice(name, "method", known) for name in as_list(values["methods"])]
    methods = ["average-sampled" if name == "average" else name for name in methods]
    if given.keys() & {"scenarios", "meters"}:  # the file's data sets are others
        values.update({name: given.get(name, []) for name in ("scenarios", "meters", "data")})
        folder = Path()
    return Grid(
        methods=unique(methods, "methods"),
        privacy=read_privacy(values, "k" in given or (file is not None and values["k"] is not DEFAULTS["k"])),
        actions=unique([check_choice(a, "action", actions.names()) for a in as_list(values["actions"])], "actions"),
        seeds=unique([seed for part in as_list(values["seeds"]) for seed in read_seeds(part)], "seeds"),
        data=read_data(values, folder),
        steps=read_steps(values["steps"], known),
        population=values["population"],
        source=source,
        own=own,
    )


def read_privacy(values: Mapping[str, Any], stated: bool) -> list[str | None]:
    """Read the mechanisms: specs, and concentrations of the paper's one with a common floor."""
    specs: list[str | None] = [None if str(s).lower() == "none" else str(s) for s in as_list(values["privacy"])]
    floor = 0.0 if values["floor"] is None else check_in_range(values["floor"], "floor", 0.0, 1.0)
    if stated or not specs:
        ks = [read_k(k) for k in as_list(values["k"])]
        specs = [*(None if k is None else dirichlet_spec(k, floor) for k in ks), *specs]
    return unique(specs, "k")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a grid file; a name it does not know is refused."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read the grid file {path}: {error.strerror}.") from error
    except ValueError as error:
        raise ValueError(f"{path} is not a TOML file: {error}.") from error
    for name in found:
        check_choice(name, f"name in {path}", DEFAULTS)
    return found


def read_agents(file: Any, folder: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return the text of a file that registers agents, and their names."""
    if file is None:
        return None, ()
    try:
        source = (folder / str(file)).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read {folder / str(file)}: {error.strerror}.") from error
    try:
        own = register_agents(source)
    except Exception as error:
        raise ValueError(f"{folder / str(file)} cannot be run: {type(error).__name__}: {error}.") from error
    if not own:
        raise ValueError(f"{file} registers no agent; decorate a factory with @register_agent('name').")
    if taken := sorted(set(own) & set(BUILT_IN)):
        raise ValueError(f"{file} registers {', '.join(taken)}, which is built in; choose another name.")
    return source, own


def read_k(value: Any) -> float | None:
    """Read a concentration; ``none`` is the true dynamics."""
    return None if str(value).lower() in ("none", "inf") else check_positive(to_number(value), "k")


def read_seeds(value: Any) -> Iterable[int]:
    """Read a seed or a range such as ``0-999``, both ends included."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", str(value))
    if match is None:
        raise ValueError(f"seeds are whole numbers or ranges such as 0-9, got {value!r}.")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"the range of seeds {value} runs backwards; write {last}-{first}.")
    check_count(last, "seeds", 0, 2**31 - 1)
    return range(first, last + 1)


def read_steps(value: Any, known: list[str]) -> dict[str, int]:
    """Read the budgets of the learners; a bare number holds for all that have none of their own."""
    if isinstance(value, dict):
        pairs = list(value.items())
    else:
        parts = [str(part).rpartition("=") for part in as_list(value)]
        pairs = [(name, steps) for name, _, steps in parts]
    for name, _ in pairs:
        if name:
            check_choice(name, "method in steps", known)
            if name in BUILT_IN and name not in LEARNERS:
                raise ValueError(f"{name} does not learn, so it takes no steps; leave it out of steps.")
    return {name: check_count(to_number(steps), "steps") for name, steps in pairs}


def read_data(values: Mapping[str, Any], folder: Path) -> list[DataSet]:
    """Read the data sets: scenarios (``NAME`` or ``NAME:INSTANCE``), meter files, and in a grid file tables of both."""
    tables = [dict(entry) if isinstance(entry, dict) else {"scenario": entry} for entry in as_list(values["data"])]
    tables += [{"scenario": name} for name in as_list(values["scenarios"])]
    tables += [{"meter": name} for name in as_list(values["meters"])]
    sets = []
    for table in tables or [{"scenario": ProblemSettings().scenario}]:
        for name in table:
            check_choice(name, "name in data", ("name", "meter", "scenario", "instance", *OF_DATA))
        if ("meter" in table) == ("scenario" in table):
            raise ValueError("a data set is either a meter or a scenario; give one of the two.")
        made: dict[str, Any] = {name: table.get(name, values[name]) for name in OF_DATA}
        for name in ("season", "exclude", "holidays"):
            made[name] = None if made[name] is None else tuple(map(str, made[name]))
        made["date"] = None if made["date"] is None else str(made["date"])
        if made["stamp"] is not None:
            check_choice(made["stamp"], "stamp", ("start", "end"))
        if "meter" in table:
            problem = ProblemSettings(meter=str(folder / str(table["meter"])), **made)
        else:
            scenario, _, number = str(table["scenario"]).partition(":")
            instance = check_count(to_number(table.get("instance", number or 0)), "instance of the scenario", 0)
            plain = ProblemSettings()
            made.update({name: getattr(plain, name) for name in OF_METERS})
            problem = ProblemSettings(scenario, instance, **made)
        sets.append(DataSet(str(table.get("name", problem.title)), problem))
    names = [data.name for data in sets]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two data sets are called {name}; give each a name in the grid file.")
    return sets


def as_list(value: Any) -> list[Any]:
    """Let a single value stand for a list of one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def to_number(value: Any) -> Any:
    """Return the number that a text stands for; what is none is left to the checks that follow."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def unique(values: list[Any], name: str) -> list[Any]:
    """Drop repetitions; an empty list is refused."""
    if not values:
        raise ValueError(f"{name} is empty, so there is nothing to run; give at least one.")
    return list(dict.fromkeys(values))
