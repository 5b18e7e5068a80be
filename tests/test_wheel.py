"""The distribution: built from the tree by way of its sdist, installed without extras, used outside the repository."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dp_ensemble_env import __version__
from dp_ensemble_env.cli.main import EXTRAS, names

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
#: What only extras bring, so what the core does without.
FORBIDDEN = ("torch", "stable_baselines3", "matplotlib", "pandas", "ray", "minari", "pyarrow", "pygame")

slow = pytest.mark.slow


def run(*words: str | Path, cwd: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program away from the repository, with nothing of this process's paths."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=outside, text=True, capture_output=True)
    assert done.returncode == status, f"{words} gave {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done


def build_and_install(folder: Path) -> None:
    """Build the sdist from a copy of the tree and the wheel from the sdist; install the wheel without extras."""
    unwanted = shutil.ignore_patterns(".*", "build", "dist", "runs", "site", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, folder / "tree", ignore=unwanted)
    # What builds it is locked with what the tests need; its version is checked against the declared one.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", folder / "tree", cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    pip = (folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt")
    run(*pip, "--no-compile", wheel, cwd=folder)  # little of it is imported


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with `dist` and `venv`, which all workers of a test run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wheel"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            build_and_install(folder)
            (folder / "done").touch()
    return folder


@pytest.fixture
def wheel(built: Path) -> Path:
    (found,) = (built / "dist").glob("*.whl")
    return found


@pytest.fixture
def python(built: Path) -> Path:
    return built / "venv" / "bin" / "python"


@slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"dp_ensemble_env-{__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"dp_ensemble_env", info}
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "dp_ensemble_env").rglob("*.py")}
    modules |= {f"dp_ensemble_env/{path.relative_to(ROOT)}" for path in (ROOT / "agents").rglob("*.py")}
    shipped = {name for name in names if not name.startswith(info)}
    declared = PROJECT["tool"]["setuptools"]["package-data"]
    data = {f"{package.replace('.', '/')}/{name}" for package, files in declared.items() for name in files}
    assert shipped == modules | data and not any("*" in name for name in data)


@slow
def test_the_environment_is_empty_but_for_the_core(python, tmp_path):
    listed = json.loads(run(python, "-m", "pip", "list", "--format", "json", cwd=tmp_path).stdout)
    installed = {package["name"].lower().replace("-", "_") for package in listed}
    assert "dp_ensemble_env" in installed
    assert installed.isdisjoint({*FORBIDDEN, "pygame_ce"})
    assert not [name for name in installed if name.startswith(("nvidia", "cuda", "triton"))]
    run(python, "-m", "pip", "check", cwd=tmp_path)


@slow
def test_commands_answer_without_extras(python, tmp_path):
    by_name = run(python.parent / "dp-ensemble", "--help", cwd=tmp_path).stdout
    as_module = run(python, "-m", "dp_ensemble_env", "--help", cwd=tmp_path).stdout
    assert by_name == as_module
    assert all(command in by_name for command in names())
    assert "100.0" in run(python.parent / "dp-ensemble", "evaluate", "standard", cwd=tmp_path).stdout
    assert not list(tmp_path.iterdir())


@slow
@pytest.mark.parametrize(
    ("words", "extra"), [("train", "rl"), ("compare", "plots"), ("dataset", "minari"), ("compare --backend ray", "ray")]
)
def test_a_missing_extra_is_named_with_the_line_that_brings_it(python, tmp_path, words, extra):
    done = run(python.parent / "dp-ensemble", *words.split(), cwd=tmp_path, status=2)
    assert f"pip install 'dp-ensemble-env[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_extras_that_the_commands_name_bring_what_is_missing():
    extras = PROJECT["project"]["optional-dependencies"]

    def brings(extra: str) -> set[str]:
        found: set[str] = set()
        for one in map(Requirement, extras[extra]):
            inner = set().union(*map(brings, one.extras)) if one.name == PROJECT["project"]["name"] else {one.name}
            found |= inner
        # Where the module has another name than what brings it.
        return {{"pygame-ce": "pygame", "pillow": "PIL"}.get(name, name.lower().replace("-", "_")) for name in found}

    for module, extra in EXTRAS.items():
        assert module in brings(extra), f"[{extra}] does not bring {module}"


def test_importing_the_package_stays_light():
    code = f"import sys, dp_ensemble_env; print([name for name in {(*FORBIDDEN, 'rich')!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout == "[]\n"
