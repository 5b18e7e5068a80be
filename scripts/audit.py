"""Look up known vulnerabilities of everything that is locked, with pip-audit.

The status is 1 if there are any, and 0 where the data cannot be reached, which is said. ``make audit`` runs this.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: A version with known vulnerabilities: where it passes, the data are out of reach (a mirror may have the files alone).
KNOWN = "pillow==9.0.0"


def audit(python: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pip-audit; what it reads is pinned, so pip is not needed to resolve it."""
    command = [python, "-m", "pip_audit", "--disable-pip", "--no-deps", "--timeout", "15", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def reachable(python: str) -> bool:
    """Whether the data can be reached."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(f"{KNOWN}\n")
        file.flush()
        try:
            return bool(json.loads(audit(python, "-f", "json", "-r", file.name).stdout)["dependencies"][0]["vulns"])
        except (ValueError, KeyError, IndexError, TypeError):
            return False


def main() -> int:
    """Audit the lock files."""
    home = ROOT / "build" / "audit"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip-audit>=2.7"]
    if subprocess.run(install, check=False).returncode or not reachable(python):
        print("The data on vulnerabilities cannot be reached from here: nothing was audited.")
        return 0
    files = [part for name in ("test", "torch-pypi") for part in ("-r", str(ROOT / "lock" / f"{name}.txt"))]
    done = audit(python, *files)
    print(done.stdout, done.stderr, sep="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
