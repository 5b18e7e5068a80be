"""Write the lock files: every package that the make commands install, with its version and the hashes of its files.

``make lock`` runs this after a change of pyproject.toml or constraints.txt; it needs the network and installs uv for
the purpose. ``lock/demo.txt`` is what `make demo` installs and ``lock/test.txt`` what `make test` does, both but for
torch. Of that there are builds without CUDA, which PyPI does not have (``lock/torch-cpu.txt``, kept by hand), and those
of PyPI, which on Linux need CUDA's packages (``lock/torch-pypi.txt``). They are apart because pip prefers a file whose
hash its index states to one in a local folder, so that with both in one list it would always fetch CUDA.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "lock"
#: What is installed by each command, by extra.
TARGETS = {"demo": ("plots", "rl"), "test": ("dev",)}
#: torch, and what only PyPI's build of it for Linux asks for.
TORCH = re.compile(r"(torch==|(nvidia|cuda|triton)\b)")
HEAD = "# Written by `make lock`; do not edit.\n"


def entries(text: str) -> list[str]:
    """Split a file of requirements into entries, each with its hashes."""
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [entry.strip() for entry in re.split(r"\n(?=\S)", plain) if entry.strip()]


def compiled(extras: tuple[str, ...]) -> list[str]:
    """Resolve what the extras need, for all systems, within constraints.txt; what builds the package comes along."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes", "--universal"]
    command += "--python-version 3.11 --no-annotate --no-header".split()
    command += ["--constraint", str(ROOT / "constraints.txt")]
    command += [part for extra in extras for part in ("--extra", extra)]
    done = subprocess.run(
        [*command, str(ROOT / "pyproject.toml"), "-"], input="setuptools>=77\n", capture_output=True, text=True,
        check=False, cwd=ROOT,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    return [entry for entry in entries(done.stdout) if not entry.startswith("dp-ensemble-env")]


def main() -> int:
    """Write the files."""
    torch: dict[str, str] = {}
    for name, extras in TARGETS.items():
        found = compiled(extras)
        torch |= {entry.split("==")[0]: entry for entry in found if TORCH.match(entry)}
        kept = [entry for entry in found if not TORCH.match(entry)]
        (LOCK / f"{name}.txt").write_text(HEAD + "\n".join(kept) + "\n")
    (LOCK / "torch-pypi.txt").write_text(HEAD + "\n".join(torch[name] for name in sorted(torch)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
