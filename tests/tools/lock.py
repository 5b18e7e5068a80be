"""Write the lock files: every package that the make commands install, with its version and the hashes of its files.

``make lock`` runs this after a change of pyproject.toml or constraints.txt; it needs the network and installs uv for
the purpose. ``lock/demo.txt`` is what `make demo` installs and ``lock/test.txt`` what `make test` does. torch has a
build without CUDA, of which ``lock/torch-cpu.txt`` lists the known hashes, and that of PyPI, which on Linux needs the
packages in ``lock/cuda.txt``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "lock"
#: What is installed by each command, by extra.
TARGETS = {"demo": ("plots", "rl"), "test": ("dev",)}
#: Packages that only PyPI's torch for Linux asks for.
CUDA = re.compile(r"(nvidia|cuda|triton)\b")
HEAD = "# Written by `make lock`; do not edit.\n"


def entries(text: str) -> list[str]:
    """Split a file of requirements into entries, each with its hashes."""
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [entry.strip() for entry in re.split(r"\n(?=\S)", plain) if entry.strip()]


def compiled(extras: tuple[str, ...]) -> list[str]:
    """Resolve what the extras need, for all systems, within constraints.txt; what builds the package comes along."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--generate-hashes", "--universal"]
    command += [
        "--python-version",
        "3.11",
        "--no-annotate",
        "--no-header",
        "--default-index",
        "https://pypi.org/simple",
    ]
    command += [
        "--constraint",
        str(ROOT / "constraints.txt"),
        *(part for extra in extras for part in ("--extra", extra)),
    ]
    done = subprocess.run(
        [*command, str(ROOT / "pyproject.toml"), "-"], input="setuptools>=77\n", capture_output=True, text=True,
        check=False, cwd=ROOT,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    return [entry for entry in entries(done.stdout) if not entry.startswith("dp-ensemble-env")]


def main() -> int:
    """Write the files."""
    known = re.findall(r"^sha256:[0-9a-f]{64}", (LOCK / "torch-cpu.txt").read_text(), re.MULTILINE)
    cuda: dict[str, str] = {}
    for name, extras in TARGETS.items():
        kept = []
        for entry in compiled(extras):
            if CUDA.match(entry):
                cuda[entry.split("==")[0]] = entry
                continue
            if entry.startswith("torch=="):
                entry = "".join([entry, *(f" \\\n    --hash={one}" for one in known)])
            kept.append(entry)
        (LOCK / f"{name}.txt").write_text(HEAD + "\n".join(kept) + "\n")
    (LOCK / "cuda.txt").write_text(HEAD + "\n".join(cuda[name] for name in sorted(cuda)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
