"""Change the mathematics and the privacy in a sample of places, and see whether the tests notice.

::

    make mutants SAMPLE=40
    python tests/tools/mutants.py --modules chain/markov.py --sample 10 --seed 3

A *mutant* is the package with one operator, constant or call replaced. It is *killed* if the tests of its module fail,
and *survives* otherwise: then either the tests overlook something, or the change makes no difference (an *equivalent*
mutant, which only a reader can tell; ``EQUIVALENT`` lists those that were looked at). Every mutant runs in a copy of
its own, so the working tree is left alone. This is a tool for development and takes a while.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dp_ensemble_env"
#: The modules, and the tests that answer for each.
MODULES = {
    "_edges.py": "test_edges.py",
    "lsmdp.py": "test_lsmdp.py test_edges.py test_nature.py",
    "policies.py": "test_policies.py test_edges.py",
    "cost.py": "test_cost.py",
    "event.py": "test_event.py",
    "chain/markov.py": "chain",
    "privacy/accounting/account.py": "privacy/test_losses.py privacy/test_ledger.py",
    "privacy/accounting/composition.py": "privacy/test_guarantee.py privacy/test_ledger.py",
    "privacy/accounting/losses.py": "privacy/test_losses.py privacy/test_guarantee.py",
    "privacy/accounting/noise.py": "privacy/test_losses.py privacy/test_participant_mechanisms.py",
    "privacy/accounting/theorem2.py": "privacy/test_guarantee.py",
    "privacy/mechanisms/base.py": "privacy/test_mechanism.py",
    "privacy/mechanisms/dirichlet.py": "privacy/test_mechanism.py privacy/test_guarantee.py",
    "privacy/_journal.py": "privacy/test_ledger.py test_sentences.py",
}
#: Changes that make no difference: the file, the line as it is written, and what it is changed to.
EQUIVALENT: set[tuple[str, str, str]] = set()
_COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
_CALLS = {"ceil": "floor", "floor": "ceil", "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}
_CALLS |= {"any": "all", "all": "any", "log1p": "log", "expm1": "exp", "argmax": "argmin", "argmin": "argmax"}


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that may be changed: not those in messages, annotations, docstrings and type declarations."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.arg, ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "warn":
            continue
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases"):
                continue
            waiting += [
                child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)
            ]


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
    elif isinstance(new, ast.Attribute) and new.attr in _CALLS:
        new.attr = _CALLS[new.attr]
    elif isinstance(new, ast.Name) and new.id in _CALLS:
        new.id = _CALLS[new.id]
    else:
        return None
    return new


class Mutant:
    """One change of one module."""

    def __init__(self, module: str, node: ast.AST) -> None:
        self.module, self.line = module, int(getattr(node, "lineno", 0))
        source = (PACKAGE / module).read_text(encoding="utf-8")
        new = changed(node)
        assert new is not None
        before = ast.get_source_segment(source, node) or ""
        start = _offset(source, self.line, int(getattr(node, "col_offset", 0)))
        self.words = f"{before} -> {ast.unparse(new)}"
        # Parentheses keep the meaning of what stands around.
        self.source = f"{source[:start]}({ast.unparse(new)}){source[start + len(before) :]}"

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {' '.join(self.words.split())[:100]}"


def _offset(source: str, line: int, column: int) -> int:
    lines = source.splitlines(keepends=True)
    within = lines[line - 1].encode()[:column].decode()  # columns count bytes
    return sum(map(len, lines[: line - 1])) + len(within)


def mutants(modules: list[str]) -> list[Mutant]:
    """Return every change of some modules."""
    found = []
    for module in modules:
        tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
        found += [
            Mutant(module, node) for node in places(tree) if hasattr(node, "lineno") and changed(node) is not None
        ]
    return [one for one in found if (one.module, one.words.split(" -> ")[0], one.words) not in EQUIVALENT]


def is_killed(mutant: Mutant, seconds: float) -> bool:
    """Run the tests of a mutant in a copy of the package; a run that does not end counts as killed."""
    with tempfile.TemporaryDirectory(prefix="dp-ensemble-mutant-") as folder:
        home = Path(folder)
        shutil.copytree(PACKAGE, home / "dp_ensemble_env")  # with what is compiled, which other modules can use
        shutil.copytree(ROOT / "agents", home / "dp_ensemble_env" / "agents")
        for name in ("tests", "docs", "lock", "scripts", "README.md", "pyproject.toml", "Makefile", "constraints.txt"):
            (home / name).symlink_to(ROOT / name)
        (home / "dp_ensemble_env" / mutant.module).write_text(mutant.source, encoding="utf-8")
        tests = [str(Path("tests", name)) for name in MODULES[mutant.module].split()]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:doctest"]
        command += ["-o", "addopts=", "-m", "not slow", "--rootdir", str(home), *tests]
        environment = {**os.environ, "PYTHONPATH": str(home), "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(command, cwd=home, env=environment, capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return True
        if done.returncode not in (0, 1, 2):
            sys.exit(f"the tests could not be run: {done.stdout.decode()[-500:]}{done.stderr.decode()[-500:]}")
        return done.returncode != 0


def main(argv: list[str] | None = None) -> int:
    """Try a sample of mutants, and name the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=40, help="how many (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    parser.add_argument("--modules", nargs="+", default=list(MODULES), choices=list(MODULES), metavar="FILE")
    parser.add_argument("--seconds", type=float, default=900.0, help="limit of one mutant (default 900)")
    args = parser.parse_args(argv)
    every = mutants(args.modules)
    chosen = np.random.default_rng(args.seed).permutation(len(every))[: args.sample]
    print(f"{len(every)} mutants, of which {len(chosen)} are tried (seed {args.seed})", flush=True)
    killed = 0
    try:
        for number, index in enumerate(chosen, 1):
            dead = is_killed(every[index], args.seconds)
            killed += dead
            print(f"{number:4} {'killed  ' if dead else 'SURVIVED'} {every[index]}", flush=True)
    except KeyboardInterrupt:
        return 130
    print(f"{killed} of {len(chosen)} were killed ({100 * killed / max(1, len(chosen)):.0f} %)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
