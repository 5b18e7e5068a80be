"""Install what is locked, and the package itself: ``.venv/bin/python lock/install.py demo`` (or ``test``).

Of torch there are two builds. The one without CUDA is taken where it is locked for this Python and system and pip finds
it (``PIP_EXTRA_INDEX_URL``, ``PIP_FIND_LINKS``). Where it is not to be found, PyPI's is taken, which on Linux asks for
CUDA's packages, too. Every other error, such as a hash that does not match or a network that is down, ends the
installation and is shown.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parent
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def is_locked_here(text: str) -> bool:
    """Whether a list of builds (the wheels named in its comments) has one for this Python and system."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    names = re.findall(r"^# (torch-\S+\.whl)$", text, re.MULTILINE)
    return any(f"-{python}-" in name and sys.platform in name and platform.machine() in name for name in names)


def is_missing(errors: str) -> bool:
    """Whether pip reached every place where it looks, and found no such build of torch."""
    return "No matching distribution found for torch==" in errors and "Retrying (" not in errors


def locked(torch: str, name: str) -> subprocess.CompletedProcess[str]:
    """Install one build of torch and a list of packages, with their hashes."""
    files = ["-r", str(LOCK / f"torch-{torch}.txt"), "-r", str(LOCK / f"{name}.txt")]
    return subprocess.run([*PIP, "--require-hashes", *files], stderr=subprocess.PIPE, text=True, check=False)


def main(name: str) -> int:
    """Install the list `name`, then this package."""
    cpu = is_locked_here((LOCK / "torch-cpu.txt").read_text(encoding="utf-8"))
    done = locked("cpu" if cpu else "pypi", name)
    if cpu and done.returncode and is_missing(done.stderr):
        print("The build of torch without CUDA is not to be found here; PyPI's is installed ...", flush=True)
        done = locked("pypi", name)
    if done.returncode:
        print(done.stderr, end="", file=sys.stderr)
        return done.returncode
    return subprocess.run([*PIP, "--no-deps", "--no-build-isolation", "-e", str(LOCK.parent)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
