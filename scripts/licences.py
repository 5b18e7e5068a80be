"""Check the licences of what is installed against the one list in pyproject.toml (``[tool.licences]``).

``make licences`` prints every package with its licence and fails if one is not on the list. What counts is what this
project asks for, directly or through others, and is installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
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


def declared() -> tuple[set[str], dict[str, str]]:
    """Return the licences that are allowed, and those of packages that do not state one."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["licences"]
    return set(table["allowed"]), {canonical(name): licence for name, licence in table["stated"].items()}


def canonical(name: str) -> str:
    """Write a package's name as indexes do."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(extras: Iterable[str]) -> Iterator[metadata.Distribution]:
    """Yield every installed package that this project asks for with these extras, directly or through others."""
    waiting, seen = [("dp-ensemble-env", extra) for extra in ("", *extras)], set()
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # of another system, or an extra that is left out
        if extra == "" and name != "dp-ensemble-env":
            yield found
        for text in found.requires or ():
            wanted, _, marker = text.partition(";")
            of_extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
            if (of_extra is not None and of_extra[1] != extra) or (of_extra is None and extra):
                continue
            parts = re.match(r"\s*([\w.-]+)\s*(?:\[([^]]*)\])?", wanted)
            assert parts is not None
            waiting += [(canonical(parts[1]), one.strip()) for one in ("", *(parts[2] or "").split(","))]


def licences_of(package: metadata.Distribution) -> set[str]:
    """Return the identifiers that a package states, by expression, classifier or words."""
    stated: Any = package.metadata  # a message, whose type says less
    told = stated.get("License-Expression")
    if told:
        return {part for part in re.split(r"\s+(?:AND|OR|WITH)\s+|[()]", told) if part.strip()}
    classifiers = [c.rpartition("::")[2] for c in stated.get_all("Classifier", []) if c.startswith("License")]
    texts = [text for text in classifiers if "OSI Approved" not in text] or [stated.get("License") or ""]
    return {found for text in texts if (found := _identifier(text[:200])) is not None}


def _identifier(text: str) -> str | None:
    for words, identifier in WORDS:
        if re.search(words, text, re.IGNORECASE):
            return identifier
    return None


def check(extras: Iterable[str]) -> tuple[dict[str, set[str]], list[str]]:
    """Return the licences by package, and what is wrong with them."""
    allowed, stated = declared()
    found, faults = {}, []
    for package in needed(extras):
        name = canonical(package.metadata["Name"])
        found[name] = {stated[name]} if name in stated else licences_of(package)
        if not found[name]:
            faults.append(f"{name} states no licence; look it up and write it into [tool.licences.stated].")
        elif not found[name] <= allowed:
            faults.append(f"{name} has the licence {', '.join(sorted(found[name] - allowed))}, which is not allowed.")
    return found, faults


def main() -> int:
    """Print the list and what is wrong with it."""
    found, faults = check(["dev", "docs"])
    for name in sorted(found):
        print(f"{name:30} {', '.join(sorted(found[name]))}")
    for fault in faults:
        print(fault, file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
