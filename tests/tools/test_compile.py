"""The compilation cache: whatever happens to it, the numbers are computed, with one warning."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv, precompile, step

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
def test_truncated_files_are_replaced(kind, folder):
    compute(folder)
    for path in (folder / "__pycache__").glob(f"*.{kind}"):
        path.write_bytes(path.read_bytes()[:40])
    assert compute(folder).count("compiled functions cannot be kept on disk") == 1
    assert "on disk" not in compute(folder)  # and then all is well again


def test_what_is_compiled_beforehand_is_all_that_learners_need():
    precompile()
    compiled = [len(function.signatures) for function in (step.step, step.reset)]
    for scenario in ("campus-event", "front", "feeder"):  # plain; nature and context; a coupling
        for population in ("mean-field", 3, "single"):
            for action in ("price", "tilt", "policy"):
                settings = {"model": scenario, "population": population, "action": action}
                for env in (EnsembleVectorEnv(3, **settings), EnsembleEnv(**settings)):
                    env.reset(seed=1)
                    env.step(np.zeros(env.action_space.shape, np.float32))
                    env.step(np.broadcast_to(np.zeros(1), env.action_space.shape))  # neither contiguous nor writable
    assert [len(function.signatures) for function in (step.step, step.reset)] == compiled
