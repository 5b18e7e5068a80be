"""Look up known vulnerabilities of everything that is locked, with pip-audit.

The status is 1 if there are any, and 0 where the data cannot be reached, which is said. ``make audit`` runs this.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: One of the places that pip-audit asks, a version with known vulnerabilities; a mirror may have the files alone.
SOURCE = "https://pypi.org/pypi/pillow/9.0.0/json"


def reachable() -> bool:
    """Whether the data can be reached."""
    try:
        with urllib.request.urlopen(SOURCE, timeout=20) as answer:
            return bool(json.load(answer)["vulnerabilities"])
    except (urllib.error.URLError, OSError, ValueError, KeyError, TypeError):
        return False


def main() -> int:
    """Audit the lock files."""
    if not reachable():
        print(f"{SOURCE} cannot be reached from here: nothing was audited.")
        return 0
    home = ROOT / "build" / "audit"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip-audit>=2.7"]
    subprocess.run(install, check=True)
    files = [part for name in ("test", "torch-pypi") for part in ("-r", str(ROOT / "lock" / f"{name}.txt"))]
    # The files are pinned and hashed, so pip is not needed to resolve them.
    return subprocess.run([python, "-m", "pip_audit", "--disable-pip", "--no-deps", *files], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
