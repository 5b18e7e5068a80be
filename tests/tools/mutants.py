"""Change the mathematics and the privacy in a sample of places, and see whether the tests notice.

::

    make mutants SAMPLE=40
    python tests/tools/mutants.py --modules chain/markov.py --sample 10 --seed 3

A *mutant* is the package with one operator, constant or call replaced. It is *killed* if a test fails, and *survives*
otherwise: then either the tests overlook something, or the change makes no difference. Such an *equivalent* mutant only
a reader can tell; those that were looked at stand in ``equivalent_mutants.toml``, each with the reason, and are not
tried. Every mutant runs in a copy of its own, so the working tree is left alone.

A first run notes which tests pass over which lines (``build/mutants.json``; test files that did not change are not run
again), so that a mutant runs only the tests that pass over its line, short ones first. Lines that no test is seen on
(constants of a module, compiled functions) run all tests of the files that answer for their module. Mutants are tried
in forks of one process that has imported the package, so that most cost a second or two.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import gc
import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dp_ensemble_env"
#: The modules, and the tests that answer for each.
MODULES = {
    "_average.py": "test_loops.py test_boundaries.py test_policies.py test_cost.py test_edges.py",
    "_draws.py": "test_loops.py test_boundaries.py test_policies.py",
    "_edges.py": "test_boundaries.py test_edges.py",
    "_kernel.py": "test_loops.py test_misfits.py test_lsmdp.py test_nature.py",
    "_nature.py": "test_loops.py test_boundaries.py test_nature.py test_lsmdp.py",
    "_quadrature.py": "test_loops.py test_policies.py",
    "_recursion.py": "test_loops.py test_boundaries.py test_lsmdp.py test_cost.py",
    "lsmdp.py": "test_loops.py test_misfits.py test_boundaries.py test_lsmdp.py test_edges.py test_nature.py",
    "policies.py": "test_loops.py test_boundaries.py test_policies.py test_edges.py",
    "cost.py": "test_loops.py test_misfits.py test_boundaries.py test_cost.py test_nature.py",
    "coupled.py": "test_boundaries.py test_coupled.py",
    "coupling.py": "test_boundaries.py test_coupled.py",
    "event.py": "test_event.py",
    "functional.py": "test_boundaries.py test_functional.py",
    "chain/by_time.py": "chain",
    "chain/levels.py": "chain",
    "chain/markov.py": "chain test_reprs.py",
    "chain/readings.py": "chain",
    "privacy/accounting/compose.py": "privacy/test_digits.py privacy/test_ends.py privacy/test_guarantee.py",
    "privacy/accounting/divergence.py": "privacy/test_digits.py privacy/test_ends.py privacy/test_guarantee.py",
    "privacy/accounting/losses.py": "privacy/test_digits.py privacy/test_ends.py privacy/test_losses.py "
    "privacy/test_stored_losses.py privacy/test_participant_mechanisms.py",
    "privacy/accounting/theorem2.py": "privacy/test_digits.py privacy/test_ends.py privacy/test_guarantee.py",
    "privacy/accounting/calibrate.py": "privacy/test_digits.py privacy/test_ends.py privacy/test_calibration.py",
    "privacy/ledger.py": "privacy/test_accounts.py privacy/test_losses.py privacy/test_ledger.py",
    "privacy/mechanisms/base.py": "privacy/test_drawn_by_hand.py privacy/test_ends.py privacy/test_mechanism.py",
    "privacy/mechanisms/dirichlet.py": "privacy/test_drawn_by_hand.py privacy/test_ends.py privacy/test_mechanism.py",
    "privacy/mechanisms/gaussian.py": "privacy/test_participant_mechanisms.py",
    "privacy/mechanisms/laplace.py": "privacy/test_participant_mechanisms.py",
    "privacy/mechanisms/posterior.py": "privacy/test_drawn_by_hand.py privacy/test_participant_mechanisms.py",
    "privacy/release.py": "privacy/test_drawn_by_hand.py privacy/test_ends.py privacy/test_mechanism.py",
    "privacy/statement.py": "privacy/test_ends.py privacy/test_guarantee.py privacy/test_ledger.py",
    "privacy/journal.py": "privacy/test_journal.py privacy/test_ledger.py test_sentences.py",
}
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
NOTES = ROOT / "build" / "mutants.json"
_COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
_CALLS = {"ceil": "floor", "floor": "ceil", "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}
_CALLS |= {"any": "all", "all": "any", "log1p": "log", "expm1": "exp", "argmax": "argmin", "argmin": "argmax"}
_OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:doctest", "-p", "no:xdist", "-o", "addopts=", "-m", "not slow"]
#: Imported before the first fork, with the package, where they are installed.
_OTHERS = "scipy.optimize scipy.special scipy.stats scipy.integrate scipy.sparse numba hypothesis mpmath gymnasium"
_OTHERS += " pandas dp_accounting.pld.privacy_loss_distribution cvxpy matplotlib.pyplot rich.console"
#: Seconds and test, by module and line.
Passages = dict[str, dict[int, list[tuple[float, str]]]]


# ------------------------------------------------------------------ mutants
def places(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.stmt | None]]:
    """Yield what may be changed, with its statement: not messages, annotations, docstrings and type declarations."""
    waiting: list[tuple[ast.AST, ast.stmt | None]] = [(tree, None)]
    while waiting:
        node, statement = waiting.pop()
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.arg, ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "warn":
            continue
        if isinstance(node, ast.stmt):
            statement = node
        yield node, statement
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases"):
                continue
            children = value if isinstance(value, list) else [value]
            waiting += [(child, statement) for child in children if isinstance(child, ast.AST)]


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
    elif isinstance(new, ast.Constant) and type(new.value) in (int, float):
        new.value = new.value + 1 if type(new.value) is int else new.value * 1.5 + 0.25
    elif isinstance(new, ast.Attribute) and new.attr in _CALLS and not _is_field(new):
        new.attr = _CALLS[new.attr]
    elif isinstance(new, ast.Name) and new.id in _CALLS:
        new.id = _CALLS[new.id]
    else:
        return None
    return new


def _is_field(node: ast.Attribute) -> bool:
    """Whether ``floor`` is the least entry of a row rather than a rounding."""
    return node.attr in ("floor", "ceil") and getattr(node.value, "id", "") not in ("np", "math")


class Mutant:
    """One change of one module."""

    def __init__(self, module: str, source: str, node: ast.AST, statement: ast.stmt | None) -> None:
        self.module, self.line = module, int(getattr(node, "lineno", 0))
        new = changed(node)
        assert new is not None
        before = ast.get_source_segment(source, node) or ""
        start = _offset(source, self.line, int(getattr(node, "col_offset", 0)))
        self.text = source.splitlines()[self.line - 1].strip()
        self.change = " ".join(f"{before} -> {ast.unparse(new)}".split())
        # Parentheses keep the meaning of what stands around.
        self.source = f"{source[:start]}({ast.unparse(new)}){source[start + len(before) :]}"
        # The lines on which a test may be seen: a whole simple statement, or the head of a compound one.
        whole = statement if statement is not None and not hasattr(statement, "body") else node
        self.lines = range(whole.lineno, (whole.end_lineno or whole.lineno) + 1)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.change[:110]}"


def _offset(source: str, line: int, column: int) -> int:
    lines = source.splitlines(keepends=True)
    within = lines[line - 1].encode()[:column].decode()  # columns count bytes
    return sum(map(len, lines[: line - 1])) + len(within)


def mutants(modules: list[str]) -> list[Mutant]:
    """Return every change of some modules."""
    found = []
    for module in modules:
        source = (PACKAGE / module).read_text(encoding="utf-8")
        for node, statement in places(ast.parse(source)):
            if hasattr(node, "lineno") and changed(node) is not None:
                found.append(Mutant(module, source, node, statement))
    return found


def equivalents() -> list[tuple[str, str, str]]:
    """Return the changes that make no difference: the module, the line as it is written, and the change."""
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["equivalent"]
    assert all(one["reason"] for one in listed)
    return [(one["module"], one["line"], one["change"]) for one in listed]


# ------------------------------------------------------------------ which tests pass over a line
def _tests(modules: Iterable[str] = MODULES) -> list[str]:
    """Return the test files that answer for some modules."""
    named = {ROOT / "tests" / name for module in modules for name in MODULES[module].split()}
    files = {file for path in named for file in (path.glob("test_*.py") if path.is_dir() else [path])}
    return sorted(file.relative_to(ROOT).as_posix() for file in files)


def note_passages(as_noted: bool) -> dict[str, Any]:
    """Run the test files that were not run yet or were changed, and return what is known of all."""
    notes: dict[str, Any] = json.loads(NOTES.read_text(encoding="utf-8")) if NOTES.exists() else {}
    for name in [] if as_noted else _tests():
        if _is_noted(name, notes):
            continue
        print(f"noting which lines {name} passes over ...", flush=True)
        sources = {module: (PACKAGE / module).read_text(encoding="utf-8").splitlines() for module in MODULES}
        with tempfile.TemporaryDirectory() as folder:
            to = Path(folder, "seen.json")
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
            environment |= {"MUTANTS_SEEN": str(to), "MUTANTS_MODULES": json.dumps(list(MODULES))}
            command = [sys.executable, "-m", "pytest", *_OPTIONS, "-p", "passages", name]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
            if done.returncode:
                sys.exit(f"the tests fail before anything is changed:\n{done.stdout.decode()[-2000:]}")
            tests = json.loads(to.read_text(encoding="utf-8"))
        passed = {module: sources[module] for _, lines in tests.values() for module in lines}
        notes[name] = {"digest": _digest(name), "tests": tests, "sources": passed}
        NOTES.parent.mkdir(exist_ok=True)
        NOTES.write_text(json.dumps(notes), encoding="utf-8")
    return notes


def _digest(name: str) -> str:
    return hashlib.sha256((ROOT / name).read_bytes()).hexdigest()


def _is_noted(name: str, notes: dict[str, Any]) -> bool:
    """Whether a test file is what it was when its lines were noted."""
    return name in notes and notes[name]["digest"] == _digest(name)


def passages(notes: dict[str, Any]) -> Passages:
    """Return the tests by module and line; a module that was changed since has its lines found again."""
    found: Passages = {}
    for name in notes:
        moved = {module: _moved(module, lines) for module, lines in notes[name]["sources"].items()}
        for test, (seconds, lines) in notes[name]["tests"].items():
            for module, numbers in lines.items():
                for number in numbers:
                    if number in moved[module]:
                        found.setdefault(module, {}).setdefault(moved[module][number], []).append((seconds, test))
    return found


def _moved(module: str, before: list[str]) -> dict[int, int]:
    """Return where the lines of a former version of a module are now."""
    now = (PACKAGE / module).read_text(encoding="utf-8").splitlines()
    if now == before:
        return {number: number for number in range(1, len(now) + 1)}
    blocks = difflib.SequenceMatcher(None, before, now, autojunk=False).get_matching_blocks()
    return {one.a + i + 1: one.b + i + 1 for one in blocks for i in range(one.size)}


def tests_of(mutant: Mutant, seen: Passages, notes: dict[str, Any]) -> list[str]:
    """Return the tests to run, those of the files that answer for the module first, and short ones first."""
    own = _tests([mutant.module])
    lines = seen.get(mutant.module, {})
    over = {(seconds, test) for line in mutant.lines for seconds, test in lines.get(line, [])}
    ordered = sorted(over, key=lambda pair: (not pair[1].startswith(tuple(own)), pair[0]))
    return [*(test for _, test in ordered), *(name for name in own if not over or not _is_noted(name, notes))]


# ------------------------------------------------------------------ trying
def function_of(mutant: Mutant) -> tuple[FunctionType, CodeType] | None:
    """Return the imported function that a change lies in and its changed code; None outside or if it is compiled."""
    tree, path = ast.parse(mutant.source), str(PACKAGE / mutant.module)
    inside = [
        node
        for owner in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef)))
        for node in owner.body
        if isinstance(node, ast.FunctionDef) and node.body[0].lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    if not inside or "njit" in "".join(ast.unparse(one) for one in inside[0].decorator_list):
        return None
    first = min([inside[0].lineno, *(one.lineno for one in inside[0].decorator_list)])

    def is_it(code: CodeType) -> bool:
        return code.co_name == inside[0].name and code.co_firstlineno == first

    waiting = [compile(mutant.source, path, "exec")]
    while waiting and not is_it(waiting[-1]):
        waiting += [part for part in waiting.pop().co_consts if isinstance(part, CodeType)]
    if not waiting:
        return None
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename == path and is_it(one.__code__):
            return one, waiting[-1]
    return None


def begin(mutant: Mutant, tests: list[str], home: Path) -> int:
    """Begin the tests of a mutant in a fork; return the process.

    A change within a function replaces its code in the imported package. Others are put into a copy of the package.
    """
    found = function_of(mutant)
    if found is None:
        return _begin_in_copy(mutant, tests, home)
    if process := os.fork():
        return process
    found[0].__code__ = found[1]
    _run(tests, ROOT, home / "output")


def _begin_in_copy(mutant: Mutant, tests: list[str], home: Path) -> int:
    shutil.copytree(PACKAGE, home / "dp_ensemble_env")  # with what is compiled, which other modules can use
    shutil.copytree(ROOT / "agents", home / "dp_ensemble_env" / "agents", dirs_exist_ok=True)
    for name in ("tests", "docs", "lock", "scripts", "README.md", "pyproject.toml", "Makefile", "constraints.txt"):
        (home / name).symlink_to(ROOT / name)
    (home / "dp_ensemble_env" / mutant.module).write_text(mutant.source, encoding="utf-8")
    if process := os.fork():
        return process
    for name in [name for name in sys.modules if name.partition(".")[0] == "dp_ensemble_env"]:
        del sys.modules[name]
    os.environ["PYTHONPATH"] = str(home)  # for what the tests start
    sys.path.insert(0, str(home))
    _run(tests, home, home / "output")


def _run(tests: list[str], root: Path, output: Path) -> NoReturn:
    """Run tests in this process, and end it."""
    code: int = 70
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stream = os.open(output, os.O_WRONLY | os.O_CREAT)
        for standard in (1, 2):
            os.dup2(stream, standard)
        os.chdir(root)
        sys.path[:] = [path for path in sys.path if Path(path) != Path(__file__).parent]
        code = int(pytest.main([*_OPTIONS, "-x", "--rootdir", str(root), *tests]))
    finally:
        os._exit(code)


def tried(mutants: list[Mutant], notes: dict[str, Any], jobs: int, seconds: float) -> Iterator[tuple[Mutant, bool]]:
    """Yield each mutant and whether it was killed; one whose tests do not end counts as killed."""
    sys.path.insert(0, str(ROOT))
    ours = [f"dp_ensemble_env.{module.removesuffix('.py').replace('/', '.')}" for module in MODULES]
    for name in [*_OTHERS.split(), *ours]:
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    seen = passages(notes)
    waiting, running = list(reversed(mutants)), dict[int, tuple[Mutant, Any, float]]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                folder, one = tempfile.TemporaryDirectory(prefix="dp-ensemble-mutant-"), waiting.pop()
                running[begin(one, tests_of(one, seen, notes), Path(folder.name))] = one, folder, time.monotonic()
            for process, (one, folder, begun) in list(running.items()):
                done, status = os.waitpid(process, os.WNOHANG)
                late = not done and time.monotonic() - begun > seconds
                if not done and not late:
                    continue
                if late:
                    os.killpg(process, signal.SIGKILL)
                    os.waitpid(process, 0)
                code = 1 if late else os.waitstatus_to_exitcode(status)
                # 2 and 4: a module that cannot be imported; below 0: the fork crashed
                if code > 4 or code == 3:
                    sys.exit(f"the tests could not be run: {Path(folder.name, 'output').read_text()[-1000:]}")
                del running[process]
                folder.cleanup()
                yield one, code != 0
            time.sleep(0.05)
    finally:
        for process, (_, folder, _) in running.items():
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            folder.cleanup()


def main(argv: list[str] | None = None) -> int:
    """Try a sample of mutants, and name the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=40, help="how many (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    parser.add_argument("--modules", nargs="+", default=list(MODULES), choices=list(MODULES), metavar="FILE")
    parser.add_argument("--seconds", type=float, default=900.0, help="limit of one mutant (default 900)")
    parser.add_argument("--jobs", type=int, default=1, help="mutants side by side (default 1)")
    parser.add_argument("--as-noted", action="store_true", help="note no more lines: run files without notes whole")
    parser.add_argument("--list", action="store_true", help="name the mutants of the sample, and try none")
    args = parser.parse_args(argv)
    known, every = set(equivalents()), mutants(args.modules)
    sample = [every[i] for i in np.random.default_rng(args.seed).permutation(len(every))[: args.sample]]
    chosen = [one for one in sample if (one.module, one.text, one.change) not in known]
    same = len(sample) - len(chosen)
    print(f"{len(every)} mutants, a sample of {len(sample)} (seed {args.seed}), of which {same} are equivalent")
    if args.list:
        print(*chosen, sep="\n")
        return 0
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave no fork behind
    survivors: list[Mutant] = []
    try:
        notes = note_passages(args.as_noted)
        for number, (one, dead) in enumerate(tried(chosen, notes, args.jobs, args.seconds), 1):
            survivors += [] if dead else [one]
            print(f"{number:4} {'killed  ' if dead else 'SURVIVED'} {one}", flush=True)
    except KeyboardInterrupt:
        return 130
    killed = len(chosen) - len(survivors)
    print(f"{killed} of {len(chosen)} were killed ({100 * killed / max(1, len(chosen)):.1f} %), {same} equivalent")
    print(*(f"survived: {one}\n          {one.text}" for one in survivors), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
