"""What is installed: ``python scripts/dependencies.py lock | licences | audit``.

lock
    writes the lock files, every package that the make commands install with its version and the hashes of its files,
    after a change of pyproject.toml or constraints.txt; it needs the network and uv. ``lock/demo.txt`` is what
    `make demo` installs and ``lock/test.txt`` what `make test` does, both but for torch. Of that there are builds
    without CUDA, which PyPI does not have (``lock/torch-cpu.txt``, kept by hand), and those of PyPI, which on Linux
    need CUDA's packages (``lock/torch-pypi.txt``). They are apart because pip prefers a file whose hash its index
    states to one in a local folder, so that with both in one list it would always fetch CUDA.
licences
    prints every package that this project asks for, directly or through others, with its licence; the status is 1 if
    one is not on the list in pyproject.toml (``[tool.licences]``).
audit
    looks up known vulnerabilities of everything that is locked, with pip-audit. The status is 1 if there are any, and 0
    where the data cannot be reached, which is said.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

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


def lock() -> int:
    """Write the lock files."""
    torch: dict[str, str] = {}
    for name, extras in TARGETS.items():
        entries = compiled(extras)
        torch |= {entry.split("==")[0]: entry for entry in entries if TORCH.match(entry)}
        kept = [entry for entry in entries if not TORCH.match(entry)]
        (LOCK / f"{name}.txt").write_text(HEAD + "\n".join(kept) + "\n")
    (LOCK / "torch-pypi.txt").write_text(HEAD + "\n".join(torch[name] for name in sorted(torch)) + "\n")
    return 0


# ------------------------------------------------------------------ licences
#: Words of licences as packages write them, and the identifier of each; the first that fits counts.
WORDS = (
    (r"apache[ -]?(software )?(license)?,? ?(version )?2?", "Apache-2.0"),
    (r"mozilla public license|mpl[ -]?2", "MPL-2.0"),
    (r"lesser general public|lgpl", "LGPL"),
    (r"affero|agpl", "AGPL"),
    (r"general public license|\bgpl", "GPL"),
    (r"python software foundation|psf", "PSF-2.0"),
    (r"\bisc\b", "ISC"),
    (r"historical permission|hpnd|mit-cmu", "HPND"),
    (r"zlib", "Zlib"),
    (r"unlicense", "Unlicense"),
    (r"bsd", "BSD-3-Clause"),
    (r"\bmit\b|expat", "MIT"),
    (r"public domain|cc0", "CC0-1.0"),
)


def plain(name: str) -> str:
    """Return the name of a package as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> tuple[set[str], dict[str, str]]:
    """Return the licences that are allowed, and those of packages that do not state one."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["licences"]
    return set(table["allowed"]), {plain(name): licence for name, licence in table["stated"].items()}


def needed(extras: Iterable[str]) -> Iterator[metadata.Distribution]:
    """Yield every installed package that this project asks for with these extras, directly or through others."""
    from packaging.requirements import Requirement  # `audit` runs without it

    waiting, seen = [("dp-ensemble-env", extra) for extra in ("", *extras)], set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # of another system, or an extra that is left out
        if extra == "" and name != "dp-ensemble-env":
            yield package
        for one in map(Requirement, package.requires or ()):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                waiting += [(plain(one.name), wanted) for wanted in ("", *one.extras)]


def licences_of(package: metadata.Distribution) -> set[str]:
    """Return the identifiers that a package states, by expression, classifier or words."""
    stated: Any = package.metadata  # a message, whose type says less
    told = stated.get("License-Expression")
    if told:
        return {part for part in re.split(r"\s+(?:AND|OR|WITH)\s+|[()]", told) if part.strip()}
    classifiers = [c.rpartition("::")[2] for c in stated.get_all("Classifier", []) if c.startswith("License")]
    texts = [text for text in classifiers if "OSI Approved" not in text] or [stated.get("License") or ""]
    return {licence for text in texts if (licence := _identifier(text[:200])) is not None}


def _identifier(text: str) -> str | None:
    return next((identifier for words, identifier in WORDS if re.search(words, text, re.IGNORECASE)), None)


def check(extras: Iterable[str]) -> tuple[dict[str, set[str]], list[str]]:
    """Return the licences by package, and what is wrong with them."""
    allowed, stated = declared()
    terms: dict[str, set[str]] = {}
    faults = []
    for package in needed(extras):
        name = plain(package.metadata["Name"])
        terms[name] = {stated[name]} if name in stated else licences_of(package)
        if not terms[name]:
            faults.append(f"{name} states no licence; look it up and write it into [tool.licences.stated].")
        elif not terms[name] <= allowed:
            faults.append(f"{name} has the licence {', '.join(sorted(terms[name] - allowed))}, which is not allowed.")
    return terms, faults


def list_licences() -> int:
    """Print the licences and what is wrong with them."""
    licences, faults = check(["dev", "docs"])
    for name in sorted(licences):
        print(f"{name:30} {', '.join(sorted(licences[name]))}")
    sys.stderr.writelines(f"{fault}\n" for fault in faults)
    return int(bool(faults))


# ------------------------------------------------------------------ vulnerabilities
#: A version with known vulnerabilities: where it passes, the data are out of reach (a mirror may have the files alone).
KNOWN = "pillow==9.0.0"


def run_audit(python: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pip-audit; what it reads is pinned, so pip is not needed to resolve it."""
    command = [python, "-m", "pip_audit", "--disable-pip", "--no-deps", "--timeout", "15", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def reachable(python: str) -> bool:
    """Whether the data can be reached."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(f"{KNOWN}\n")
        file.flush()
        try:
            return bool(json.loads(run_audit(python, "-f", "json", "-r", file.name).stdout)["dependencies"][0]["vulns"])
        except (ValueError, KeyError, IndexError, TypeError):
            return False


def audit() -> int:
    """Audit the lock files."""
    home = ROOT / "build" / "audit"
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip-audit>=2.7"]
    if subprocess.run(install, check=False).returncode or not reachable(python):
        print("The data on vulnerabilities cannot be reached from here: nothing was audited.")
        return 0
    files = [part for name in ("test", "torch-pypi") for part in ("-r", str(ROOT / "lock" / f"{name}.txt"))]
    done = run_audit(python, *files)
    print(done.stdout, done.stderr, sep="")
    return done.returncode


if __name__ == "__main__":
    commands = {"lock": lock, "licences": list_licences, "audit": audit}
    sys.exit(commands[sys.argv[1]]() if len(sys.argv) == 2 and sys.argv[1] in commands else __doc__)
