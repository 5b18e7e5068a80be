"""Tests with the real libraries; `make test-integrations` runs them in the virtual environments they need."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = ROOT / "docs" / "libraries"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let every test work in a folder of its own, so that nothing is written into the project."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run_page() -> Callable[[str], dict[str, Any]]:
    """Return a function that runs the Python blocks of a documentation page, and compares what they print."""

    def run(name: str) -> dict[str, Any]:
        page = LIBRARIES / f"{name}.md"
        found = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", page.read_text(), flags=re.DOTALL)
        assert found, f"{page} has no Python block"
        namespace: dict[str, Any] = {"__name__": "page"}
        for code, expected in found:
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(code, str(page), "exec"), namespace)
            if expected:
                assert output.getvalue() == expected
        return namespace

    return run


@pytest.fixture
def shell_commands() -> Callable[[str], list[str]]:
    """Return a function that lists the commands in the shell blocks of a documentation page."""

    def commands(name: str) -> list[str]:
        blocks = re.findall(r"```bash\n(.*?)```", (LIBRARIES / f"{name}.md").read_text(), flags=re.DOTALL)
        lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
        return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]

    return commands


@pytest.fixture(scope="session")
def shell() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a command with this Python first on the path."""

    def run(command: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **settings.pop("env", {})}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, shell=True, text=True, env=environment, **pipes, **settings)
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"
        return done

    return run
