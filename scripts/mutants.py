"""Change the code in a sample of places, and see whether the tests notice.

``python scripts/mutants.py --sample 60 --seed 2026``

A *mutant* is the tree with one operator, comparison, constant or call replaced. It is *killed* if a test fails or does
not end, and *survives* otherwise: then the tests overlook something, or the change makes no difference. As many are
tried of each group of modules, each in a copy of the tree without the compiled functions of the module and of those
that import it. Its tests are those named after the module, then those that import it, then those in the mirrored
folder, then those that import a module that imports it; small files first, for a minute of computing (--budget).
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "dp_ensemble_env"
#: Patterns of the modules.
GROUPS = {"control": "control/*.py coupling.py", "privacy": "privacy/**/*.py", "envs": "envs/*.py"}
LEFT_OUT = ("__init__.py", "rendering.py", "scene.py")
_COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
_CALLS = {"ceil": "floor", "floor": "ceil", "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}
_CALLS |= {"any": "all", "all": "any", "log1p": "log", "expm1": "exp", "argmax": "argmin", "argmin": "argmax"}
#: Ends with 70 if another tree than the copy would be tested, with 71 after so many seconds of computing without a
#: failure. A test that computes for minutes does not end.
_RUN = f"""
import importlib.util, os, signal, sys
for name in ("{PACKAGE}", "{PACKAGE}.agents"):
    if not importlib.util.find_spec(name).origin.startswith(os.getcwd() + os.sep):
        sys.exit(70)
import pytest
class Watch:
    def pytest_runtest_logstart(self):
        signal.setitimer(signal.ITIMER_VIRTUAL, 150)
    def pytest_runtest_logfinish(self):
        if sum(os.times()[:4]) > float(sys.argv[1]):
            os._exit(71)
sys.exit(pytest.main(sys.argv[2:], plugins=[Watch()]))
"""
_OPTIONS = ["-x", "-q", "-rfE", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]


# ------------------------------------------------------------------ mutants
def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what may be changed: not messages, annotations, docstrings, decorators and imports."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        told = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "warn"
        if told or isinstance(node, (ast.Raise, ast.JoinedStr, ast.arg, ast.Import, ast.ImportFrom)):
            continue
        yield node
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "bases"):
                waiting += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]


def changed(node: ast.AST) -> ast.AST | None:
    """Return the node with one thing replaced, or None if there is nothing to replace."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in _COMPARE:
        new.ops[0] = _COMPARE[type(new.ops[0])]()
    elif isinstance(new, ast.BinOp) and type(new.op) in _ARITHMETIC:
        new.op = _ARITHMETIC[type(new.op)]()
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, (ast.Not, ast.USub)):
        return new.operand
    elif isinstance(new, ast.Constant) and isinstance(new.value, (int, float)) and not isinstance(new.value, bool):
        new.value = new.value + 1 if isinstance(new.value, int) else new.value * 1.5 + 0.25
    elif isinstance(new, ast.Attribute) and new.attr in _CALLS and getattr(new.value, "id", "") in ("np", "math"):
        new.attr = _CALLS[new.attr]
    elif isinstance(new, ast.Name) and new.id in _CALLS:
        new.id = _CALLS[new.id]
    else:
        return None
    return new


class Mutant:
    """One change of one module; `module` is its path within the package."""

    def __init__(self, module: str, source: str, node: ast.expr) -> None:
        self.module, self.line = module, node.lineno
        before, after = ast.get_source_segment(source, node) or "", ast.unparse(changed(node) or node)
        lines = source.splitlines(keepends=True)
        here = lines[node.lineno - 1]
        start = sum(map(len, lines[: node.lineno - 1])) + len(here.encode()[: node.col_offset].decode())
        self.change = " ".join(f"{before} -> {after}".split())
        self.source = f"{source[:start]}({after}){source[start + len(before) :]}"  # parentheses keep the meaning around

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.change[:110]}"


def mutants(group: str) -> list[Mutant]:
    """Return every change of the modules of a group."""
    changes = []
    for path in sorted({path for pattern in GROUPS[group].split() for path in (ROOT / PACKAGE).glob(pattern)}):
        source = "" if path.name in LEFT_OUT else path.read_text(encoding="utf-8")
        nodes = [node for node in places(ast.parse(source)) if isinstance(node, ast.expr) and changed(node)]
        changes += [Mutant(path.relative_to(ROOT / PACKAGE).as_posix(), source, node) for node in nodes]
    return changes


# ------------------------------------------------------------------ which tests
@functools.cache
def imports(path: Path) -> set[str]:
    """Return the modules of the package that a file imports, dotted; names taken from a module count as modules."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            modules |= {one.name for one in node.names}
    return {name for name in modules if name.startswith(PACKAGE)}


def users_of(module: str, steps: int = 100) -> set[str]:
    """Return a module's dotted name and those of the modules that import it, at so many steps, but packages."""
    files = [path for path in (ROOT / PACKAGE).rglob("*.py") if path.name != "__init__.py"]
    dotted = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files}
    users, before = {dotted[ROOT / PACKAGE / module]}, set[str]()
    while users != before and steps:
        before, steps = users, steps - 1
        users = users | {dotted[path] for path in files if imports(path) & users}
    return users


def tests_of(module: str) -> list[str]:
    """Return the test files of a module, the nearest first, and small ones first."""
    (name,), users = users_of(module, 0), users_of(module, 1)
    folder, stem, ranked = Path(module).parts[0], Path(module).stem.strip("_"), []
    for path in (ROOT / "tests").rglob("test_*.py"):
        used, within = imports(path), path.relative_to(ROOT / "tests").parts
        rank = 0 if path.stem == f"test_{stem}" else 1 if name in used else 2 if folder == within[0] else 3
        if "integrations" not in within and (rank < 3 or used & users):
            ranked.append((rank, path.stat().st_size, path.relative_to(ROOT).as_posix()))
    return [path for _, _, path in sorted(ranked)]


class Runner:
    """Runs tests on copies of the tree."""

    def __init__(self, home: Path, budget: float) -> None:
        self.home, self.budget, self.failing = home, budget, list[str]()

    def run(self, tests: list[str], mutant: Mutant | None = None) -> int:
        """Run tests on a copy of the tree; return the status."""
        copied, stale = self.home / "tree", 0
        shutil.rmtree(copied, ignore_errors=True)
        ignored = shutil.ignore_patterns(".git", ".venv", "*.pyc", "build", "runs")
        shutil.copytree(ROOT, copied, ignore=ignored, symlinks=True)
        shutil.copytree(ROOT / "agents", copied / PACKAGE / "agents", dirs_exist_ok=True, ignore=ignored)
        if mutant is not None:
            (copied / PACKAGE / mutant.module).write_text(mutant.source, encoding="utf-8")
            users = {name.rpartition(".")[2] for name in users_of(mutant.module)}
            for path in copied.rglob("*.nb[ci]"):  # kept kernels do not see that a function they call has changed
                if path.name.partition(".")[0] in users:
                    path.unlink()
                    stale = 1
        settings = {"PYTHONPATH": str(copied), "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-c", _RUN, str(self.budget + 60 * stale), *_OPTIONS, *tests]
        env = {**os.environ, **settings}
        with open(self.home / "output", "wb") as out:
            process = subprocess.Popen(words, cwd=copied, env=env, stdout=out, stderr=out, start_new_session=True)
            try:
                status = process.wait(3600)
            except subprocess.TimeoutExpired:
                status = -9
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if status == 70:
            sys.exit("another tree than the copy would be tested.")
        return status

    def is_killed(self, mutant: Mutant) -> tuple[bool, str]:
        """Tell whether a mutant is killed, and how; a test that fails without any change does not count."""
        while True:
            without = [f"--{'deselect' if '::' in test else 'ignore'}={test}" for test in self.failing]
            status = self.run([*tests_of(mutant.module), *without], mutant)
            if status in (0, 5, 71):
                return False, "after the budget" if status == 71 else "by all its tests"
            told = (self.home / "output").read_text(encoding="utf-8", errors="replace").splitlines()
            names = [line.split(" - ")[0].partition(" ")[2] for line in told if line.startswith(("FAILED ", "ERROR "))]
            if status not in (1, 2) or not names:  # the package cannot be imported, a crash, no end
                return True, f"status {status}"
            if self.run(names[-1:]) in (0, 4, 5, 71):  # 4: the test itself is made from what was changed
                return True, names[-1]
            if names[-1] in self.failing:
                sys.exit(f"{names[-1]} fails as it is and cannot be left out.")
            self.failing.append(names[-1])
            print(f"fails as it is, left out: {names[-1]}", file=sys.stderr, flush=True)


def main() -> int:
    """Try a sample of mutants, and name the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=30, help="how many, of all groups together (default 30)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of computing for a mutant (default 60)")
    args = parser.parse_args()
    rng, outcomes = np.random.default_rng(args.seed), dict[str, list[tuple[Mutant, bool]]]()
    every = {group: mutants(group) for group in GROUPS}
    waiting = {group: [one[i] for i in rng.permutation(len(one))] for group, one in every.items()}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="dp-ensemble-mutants-") as folder:
        runner = Runner(Path(folder), args.budget)
        try:
            for number in range(args.sample):  # the groups take turns
                group = list(GROUPS)[number % len(GROUPS)]
                one = waiting[group][number // len(GROUPS)]
                killed, how = runner.is_killed(one)
                outcomes.setdefault(group, []).append((one, killed))
                print(f"{group:8} {'killed  ' if killed else 'SURVIVED'} {one}  ({how})", flush=True)
        except KeyboardInterrupt:
            print("stopped before the end of the sample")
    for group, tried in outcomes.items():
        dead = sum(killed for _, killed in tried)
        print(f"{group}: {dead} of {len(tried)} killed, out of {len(waiting[group])} possible mutants")
        print(*(f"  survived: {one}" for one, killed in tried if not killed), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
