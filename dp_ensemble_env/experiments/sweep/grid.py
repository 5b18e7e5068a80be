"""The grid of a sweep, from the command line and a TOML file: method × k × action mode × seed × data set."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dp_ensemble_env
from dp_ensemble_env._validation import check_choice, check_count, check_in_range, check_positive
from dp_ensemble_env.agents.hyperparams import ACTIONS, hyperparameters
from dp_ensemble_env.cli.options import load_model
from dp_ensemble_env.envs.registration import ENVIRONMENTS
from dp_ensemble_env.experiments.sweep.cells import (
    BUILT_IN,
    FORMAT,
    LEARNERS,
    NOISE_AWARE,
    Cell,
    Study,
    register_agents,
)
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism

NAMES = tuple(name.split("/")[1].removesuffix("-v0") for name in ENVIRONMENTS)
#: What a grid file may set, with the value it has if nobody sets it.
DEFAULTS: dict[str, Any] = {
    "methods": ["uncontrolled", "ad-hoc", "best-price", "standard"],
    "k": ["none", 50],
    "actions": ["tilt"],
    "seeds": ["0-4"],
    "data": ["campus"],
    "steps": [],
    "env": "MeanField",
    "floor": 0.0,
    "agents": None,
    "unit": None,
    "stamp": None,
    "column": None,
    "date": "2018-07-02",
    "step_minutes": 15,
}
#: Which of them belong to a data set, and may differ from one to the next.
OF_DATA = ("unit", "stamp", "column", "date", "step_minutes")


@dataclass(frozen=True)
class DataSet:
    """A synthetic campus or a meter file, and how it is read; `load_model` takes it as it is."""

    name: str
    meter: Path | None
    campus_seed: int
    unit: str | None
    stamp: str | None
    column: str | None
    date: str
    step_minutes: int

    def identity(self) -> dict[str, Any]:
        """Return what decides the model: the content of the file, not where it lies."""
        event = {"date": self.date, "step_minutes": self.step_minutes}
        if self.meter is None:
            return {"campus_seed": self.campus_seed, **event}
        try:
            digest = hashlib.sha256(self.meter.read_bytes()).hexdigest()
        except OSError as error:
            raise ValueError(f"cannot read {self.meter}: {error.strerror}; --data takes campus or files.") from error
        return {"sha256": digest, "unit": self.unit, "stamp": self.stamp, "column": self.column, **event}


@dataclass(frozen=True)
class Grid:
    """Everything that a sweep runs."""

    methods: list[str]
    k: list[float | None]
    actions: list[str]
    seeds: list[int]
    data: list[DataSet]
    steps: dict[str, int]
    env: str
    floor: float
    source: str | None
    own: tuple[str, ...]

    def cells(self) -> tuple[list[Cell], list[str]]:
        """Return the cells that can be run, seed by seed, and a sentence for each combination that cannot."""
        cells, skipped = [], []
        shared = {"format": FORMAT, "version": dp_ensemble_env.__version__, "env": self.env}
        digest = None if self.source is None else hashlib.sha256(self.source.encode()).hexdigest()
        makers: list[tuple[dict[str, Any], str]] = []
        identities: dict[str, Any] = {}
        for data in self.data:
            identity = data.identity()
            for name, other in identities.items():
                if identity == other:
                    raise ValueError(f"the data sets {name} and {data.name} have the same content; leave one out.")
            identities[data.name] = identity
            for method, action, k in itertools.product(self.methods, self.actions, self.k):
                reason = None if method in self.own else impossible(method, k, action)
                if reason is not None:
                    skipped.append(reason)
                    continue
                config = {
                    **shared, "method": method, "action": action, "k": k, "floor": 0.0 if k is None else self.floor,
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
        return found or int(hyperparameters(method, f"dp_ensemble/{self.env}-v0", action)["n_timesteps"])

    def study(self) -> Study:
        """Read the data sets, and refuse a floor that one of them cannot have."""
        models = {data.name: load_model(data) for data in self.data}
        if drawn := [k for k in self.k if k is not None]:
            for model in models.values():
                DirichletMechanism(drawn[0], self.floor).release(model.default, 0)
        return Study(models, self.source)


def impossible(method: str, k: float | None, action: str) -> str | None:
    """Say why a controller cannot act in an action mode, or return None."""
    if method == "z-learning" and action != "tilt":
        return f"{method} in {action} mode: it steers by tilts; add the action tilt."
    if method == "dqn" and action != "price":
        return f"{method} in {action} mode: it chooses from a list of prices; add the action price."
    if method in ("standard", *NOISE_AWARE) and action == "price":
        return f"{method} in price mode: one price for all loads cannot express it; add the action tilt or policy."
    if method in NOISE_AWARE and action == "tilt" and k is not None:
        return f"{method} in tilt mode with a finite k: it is no tilt of the matrix; add the action policy."
    return None


# ------------------------------------------------------------------ reading
def read_grid(args: argparse.Namespace) -> Grid:
    """Merge the defaults, the grid file and the command line, and check every value."""
    values, folder = dict(DEFAULTS), Path()
    if args.grid is not None:
        values.update(read_toml(args.grid))
        folder = args.grid.parent
    given = {name: getattr(args, name) for name in DEFAULTS if getattr(args, name) is not None}
    values.update(given)
    source, own = read_agents(values["agents"], Path() if "agents" in given else folder)
    known = [*BUILT_IN, *own]
    methods = [check_choice(name, "method", known) for name in as_list(values["methods"])]
    methods = ["average-sampled" if name == "average" else name for name in methods]
    return Grid(
        methods=unique(methods, "methods"),
        k=unique([read_k(k) for k in as_list(values["k"])], "k"),
        actions=unique([check_choice(a, "action", ACTIONS) for a in as_list(values["actions"])], "actions"),
        seeds=unique([seed for part in as_list(values["seeds"]) for seed in read_seeds(part)], "seeds"),
        data=read_data(values, Path() if "data" in given else folder),
        steps=read_steps(values["steps"], known),
        env=check_choice(values["env"], "env", NAMES),
        floor=check_in_range(values["floor"], "floor", 0.0, 1.0),
        source=source,
        own=own,
    )


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
                raise ValueError(f"{name} does not learn, so it takes no steps; leave it out of --steps.")
    return {name: check_count(to_number(steps), "steps") for name, steps in pairs}


def read_data(values: dict[str, Any], folder: Path) -> list[DataSet]:
    """Read the data sets: ``campus``, ``campus:SEED``, a file, or in a grid file a table with `file` or `campus`."""
    sets = []
    for entry in as_list(values["data"]):
        table = dict(entry) if isinstance(entry, dict) else parse_data(str(entry))
        for name in table:
            check_choice(name, "name in data", ("name", "file", "campus", *OF_DATA))
        if ("file" in table) == ("campus" in table):
            raise ValueError("a data set is either a file or a campus (its seed); give one of the two.")
        reading = {name: table.get(name, values[name]) for name in OF_DATA}
        if reading["stamp"] is not None:
            check_choice(reading["stamp"], "stamp", ("start", "end"))
        reading["date"] = str(reading["date"])
        reading["step_minutes"] = check_count(to_number(reading["step_minutes"]), "step_minutes", 1, 1440)
        if "file" in table:
            file = folder / str(table["file"])
            sets.append(DataSet(str(table.get("name", file.stem)), file, 0, **reading))
        else:
            seed = check_count(to_number(table["campus"]), "seed of the campus", 0)
            name = str(table.get("name", f"campus:{seed}" if seed else "campus"))
            reading.update(unit=None, stamp=None, column=None)
            sets.append(DataSet(name, None, seed, **reading))
    names = [data.name for data in sets]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two data sets are called {name}; give each a name in the grid file.")
    return sets


def parse_data(text: str) -> dict[str, Any]:
    """Read a data set of the command line."""
    match = re.fullmatch(r"campus(?::(\d+))?", text)
    return {"file": text} if match is None else {"campus": int(match[1] or 0)}


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
