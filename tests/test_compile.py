"""The compilation cache: whatever happens to it, the numbers are computed, with one warning."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv
from dp_ensemble_env.envs.dynamics import STEPS
from dp_ensemble_env.envs.precompile import KINDS, precompile
from dp_ensemble_env.tools import compile as _compile

CODE = """
import sys, warnings
warnings.simplefilter("always")
sys.path.insert(0, {folder!r})
import numpy as np
import kernels
assert kernels.total(np.arange(4.0)) == 6.0 and kernels.twice(2.0) == 4.0
print("computed")
"""
KERNELS = """
from dp_ensemble_env.tools.compile import njit

@njit(cache=True)
def twice(x):
    return 2 * x

@njit(cache=True, nogil=True)
def total(x):
    return x.sum()
"""


def compute(folder, **settings):
    """Run a small module of compiled functions in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA")} | settings
    code = CODE.format(folder=str(folder))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "computed" in done.stdout, done.stderr
    return done.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "kernels.py").write_text(KERNELS)
    return tmp_path / "code"


def test_what_was_compiled_is_kept_and_read_back(folder):
    assert "on disk" not in compute(folder)
    kept = {path.name: path.stat().st_mtime_ns for path in (folder / "__pycache__").glob("*.nbc")}
    assert len(kept) == 2
    assert "on disk" not in compute(folder)
    assert kept == {path.name: path.stat().st_mtime_ns for path in (folder / "__pycache__").glob("*.nbc")}


def test_without_any_folder_to_write_to(folder, tmp_path):
    (folder / "__pycache__").write_text("a file in the place of the folder, which root cannot write into either")
    (tmp_path / "file").write_text("")
    errors = compute(folder, HOME=str(tmp_path / "file"), XDG_CACHE_HOME=str(tmp_path / "file" / "cache"))
    assert errors.count("compiled functions cannot be kept on disk") == 1


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("size", [0, 7, 40])
def test_truncated_files_are_replaced(kind, size, folder):
    compute(folder)
    for path in (folder / "__pycache__").glob(f"*.{kind}"):
        path.write_bytes(path.read_bytes()[:size])
    assert compute(folder).count("compiled functions cannot be kept on disk") == 1
    assert "on disk" not in compute(folder)  # and then all is well again


def test_full_disk(folder):
    """A limit on the size of files stands for a disk without room."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    program = code + CODE.format(folder=str(folder))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    # The process cannot write to a file, and a pipe is none.
    assert done.returncode == 0 and "computed" in done.stdout, done.stderr
    assert done.stderr.count("compiled functions cannot be kept on disk") == 1


def test_every_compiled_function_of_the_package_goes_through_here():
    import dp_ensemble_env

    home = Path(dp_ensemble_env.__file__).parent
    agents = Path(sys.modules["dp_ensemble_env"].__path__[0]).parent / "agents"
    for path in [*home.rglob("*.py"), *agents.rglob("*.py")]:
        if path.name != "_compile.py":
            assert "from numba import" not in path.read_text(encoding="utf-8"), path


def test_the_package_works_from_a_read_only_copy_without_a_home(tmp_path):
    import dp_ensemble_env

    home = Path(dp_ensemble_env.__file__).parent
    copy = tmp_path / "site" / "dp_ensemble_env"
    shutil.copytree(home, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [copy, *copy.rglob("*")]:
        if path.is_dir():
            (path / "__pycache__").write_text("")  # nobody, root included, can write in here
    code = (
        "import numpy as np, dp_ensemble_env; from dp_ensemble_env.control.lsmdp import solve; "
        f"assert dp_ensemble_env.__file__.startswith({str(copy)!r}); "
        "print(solve(np.log([[0.5, 0.5], [0.2, 0.8]]), np.zeros((2, 2)), 1.0).policy.sum())"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA")}
    environment |= {"PYTHONPATH": str(tmp_path / "site"), "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null/cache"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.strip() == "2.0", done.stderr
    assert done.stderr.count("compiled functions cannot be kept on disk") == 1


def test_a_terminal_is_told_once_that_something_is_compiled(monkeypatch, capsys):
    monkeypatch.setattr(_compile, "_announced", False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    _compile._announce()
    _compile._announce()
    assert capsys.readouterr().err.count("takes some seconds, once") == 1
    monkeypatch.setattr(_compile, "_announced", False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    _compile._announce()
    assert capsys.readouterr().err == ""


def test_what_is_compiled_beforehand_is_all_that_learners_need():
    precompile()
    for scenario, population in KINDS:
        envs = EnsembleVectorEnv(3, scenario, population)
        compiled = len(STEPS[envs._task.dynamics].signatures)
        for batch in (envs, EnsembleEnv(scenario, population)):
            batch.reset(seed=1)
            batch.step(np.zeros(batch.action_space.shape, np.float32))
        assert len(STEPS[envs._task.dynamics].signatures) == compiled
