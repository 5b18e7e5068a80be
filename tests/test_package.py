"""The package as a whole: which way imports point, its doctests, and what CI runs."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import runpy
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import address
import pytest
import yaml
from packaging.requirements import Requirement

import dp_ensemble_env.agents
from dp_ensemble_env import __version__

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
#: A module imports from its own layer and from those below it.
LAYERS = (
    ("tools",),
    ("control.kernel", "control.loops", "control.lsmdp", "control.averages"),
    ("meter", "chain", "context", "coupling", "shapes", "model"),
    ("control",),
    ("privacy",),
    ("scenarios", "samples"),
    ("envs", "reporting"),
    ("agents",),
    ("experiments", "paper", "dispatch", "play"),
    ("cli", "__main__"),
)


# ------------------------------------------------------------------ imports
def modules() -> dict[str, Path]:
    """Every module of the tree by its name below the package; the package itself, which loads lazily, is left out."""
    found = {}
    for folder, prefix in ((ROOT / "dp_ensemble_env", ()), (ROOT / "agents", ("agents",))):
        for path in folder.rglob("*.py"):
            parts = (*prefix, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    del found[""]
    return found


MODULES = modules()


def layer(module: str) -> int:
    """Number of a module's layer; the longest name in the table that fits decides."""
    places = {name: number for number, names in enumerate(LAYERS) for name in names}
    fitting = [name for name in places if f"{module}.".startswith(f"{name}.")]
    assert fitting, f"{module} is in no layer"
    return places[max(fitting, key=len)]


def imported(module: str) -> Iterator[str]:
    """Names that a module imports when it runs, also inside its functions; those for type checkers are left out."""
    path = MODULES[module]
    package = f"dp_ensemble_env.{module}".split(".")[: None if path.name == "__init__.py" else -1]
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes.extend(node.orelse)
            continue
        nodes.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*parts, node.module] if node.module else parts)
            names = [f"{origin}.{alias.name}" for alias in node.names]
            yield from (name if name.partition(".")[2] in MODULES else origin for name in names)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_one_way(module):
    for name in imported(module):
        package, _, target = name.partition(".")
        if package == "dp_ensemble_env" and target:
            assert layer(target) <= layer(module), f"{module} imports {target}, which stands above it"
        if layer(module) <= 2 and module != "tools.console":  # the mathematics
            assert package not in ("gymnasium", "torch", "rich", "stable_baselines3"), f"{module} imports {name}"


# ------------------------------------------------------------------ modules
@pytest.mark.torch
@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(dp_ensemble_env.agents.__path__)])
def test_doctests_of_agents(name):
    # The folder agents/ is not where its package name says, so pytest does not collect its doctests.
    assert doctest.testmod(importlib.import_module(f"dp_ensemble_env.agents.{name}")).failed == 0


# ------------------------------------------------------------------ the project's files
def test_one_version_everywhere():
    changes = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert changes == [__version__]
    # Nothing else states it: citations take the version of the release that they cite.
    assert "version" not in yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_address_of_the_repository_is_written_from_one_constant():
    ours = address.address()
    short = urlsplit(ours).path.strip("/")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    if listed:  # else this is no clone
        quoting = {path for path in listed if short in (ROOT / path).read_bytes().decode("utf-8", "ignore")}
        assert quoting == set(address.PLACES)
    assert all(url.startswith(ours) for url in PROJECT["project"]["urls"].values())
    shown = runpy.run_path(str(ROOT / "setup.py"))["described"]((ROOT / "README.md").read_text(encoding="utf-8"), ours)
    links = re.findall(r"\]\(([^)]*)\)", shown)
    assert len(links) > 20 and all(link.startswith("https://") for link in links)
    assert f"({ours}/raw/main/docs/images/event.gif)" in shown and f"({ours}/blob/main/docs/privacy.md)" in shown


def test_workflow_runs_what_ci_runs():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    ours = re.findall(r"^ *make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), flags=re.MULTILINE)
    theirs, pythons = [], []
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        (command,) = (step["run"] for step in job["steps"] if "run" in step)
        if "python" in matrix:
            pythons += matrix["python"]
        for target in matrix.get("target", [""]):
            theirs += re.findall(r"make ([a-z-]+)", command.replace("${{ matrix.target }}", target))
    assert sorted(theirs) == sorted([*ours, "soak"])  # which takes five minutes whatever the machine
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert set(ours) <= set(targets)
    # A Python is declared if it is tested, and tested if it is declared.
    assert re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"])) == ["3.11", *pythons]
    assert PROJECT["project"]["requires-python"] == ">=3.11"


def test_pinned_versions_lie_within_the_declared_bounds():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.lower().replace("_", "-").split("==") for line in pins if "==" in line)
    extras = PROJECT["project"]["optional-dependencies"].values()
    declared = [Requirement(text) for group in (PROJECT["project"]["dependencies"], *extras) for text in group]
    others = [one for one in declared if one.name != PROJECT["project"]["name"]]
    for one in others:
        version = pinned.get(one.name.lower().replace("_", "-"))
        assert version is None or one.specifier.contains(version), f"{one} excludes the tested {version}"
    # No lower bound, no promise; torch's version is that of the constraints because others bring CUDA.
    assert {one.name for one in others if not any(s.operator == ">=" for s in one.specifier)} == {"torch"}


def test_every_public_name_is_there():
    assert all(getattr(dp_ensemble_env, name) is not None for name in dp_ensemble_env.__all__)
    assert set(dp_ensemble_env.__all__) <= set(dir(dp_ensemble_env))
    with pytest.raises(AttributeError, match="module 'dp_ensemble_env' has no attribute 'nothing'"):
        dp_ensemble_env.nothing  # noqa: B018
