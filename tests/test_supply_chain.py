"""What the make commands install: locked with hashes, in step with the declared versions, under known licences."""

from __future__ import annotations

import re
import tomllib

import pytest
from helpers import ROOT
from tools import licences
from tools.lock import TARGETS, TORCH, entries

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def locked(name):
    """Return the entries of a lock file by package."""
    found = {}
    for entry in entries((ROOT / "lock" / f"{name}.txt").read_text(encoding="utf-8")):
        found.setdefault(licences.canonical(entry.split("==")[0]), []).append(entry)
    return found


def direct(extras):
    """Yield the requirements that pyproject.toml names for some extras."""
    waiting = [*PROJECT["dependencies"], *(f"dp-ensemble-env[{extra}]" for extra in extras)]
    while waiting:
        text = waiting.pop()
        if own := re.match(r"dp-ensemble-env\[(.*)\]", text):
            for extra in own[1].split(","):
                waiting += PROJECT["optional-dependencies"][extra.strip()]
        else:
            yield text


@pytest.mark.parametrize("name", [*TARGETS, "torch-pypi", "torch-cpu"])
def test_everything_has_a_version_and_hashes(name):
    for package, versions in locked(name).items():
        for entry in versions:
            assert re.match(r"[\w.-]+(\[.*\])?==[\w.+]+ ", entry), package
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), package
            assert bool(TORCH.match(entry)) == name.startswith("torch"), package


@pytest.mark.parametrize("name", TARGETS)
def test_locks_have_what_is_declared_in_the_versions_that_are_tested(name):
    found = {**locked(name), **locked("torch-pypi")}
    wanted = [licences.canonical(re.match(r"[\w.-]+", text)[0]) for text in direct(TARGETS[name])]
    assert {"numpy", "torch"} <= set(wanted) <= set(found)
    assert "setuptools" in found  # builds the package itself, so that nothing is fetched for that
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if "==" in line and (package := licences.canonical(line.split("==")[0])) in found:
            (entry,) = found[package]
            assert entry.split(" ")[0].split("==")[1] == line.split("==")[1], f"run `make lock`: {line}"


def test_both_builds_of_torch_have_the_version_that_is_tested():
    (pin,) = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    for name in ("torch-pypi", "torch-cpu"):
        (entry,) = locked(name)["torch"]
        assert entry.startswith(f"{pin} ")
    (line,) = re.findall(r"locked -r lock/torch-cpu.* \|\|", (ROOT / "Makefile").read_text())
    assert "lock/$$1.txt" in line  # without CUDA where that is found, else as PyPI has it


def test_licences_of_what_is_installed_are_on_the_list():
    found, faults = licences.check(["dev"])
    assert {"numpy", "pytest", "torch", "gymnasium"} <= set(found) and len(found) > 40
    assert not faults


def test_a_licence_that_is_not_on_the_list_is_named(monkeypatch):
    allowed, stated = licences.declared()
    assert "AGPL" not in allowed and "GPL" not in allowed
    monkeypatch.setattr(licences, "declared", lambda: (allowed - {"BSD-3-Clause"}, {**stated, "rich": "GPL"}))
    faults = " ".join(licences.check(["dev"])[1])
    assert "scipy has the licence BSD-3-Clause" in faults and "rich has the licence GPL" in faults


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("BSD License", "BSD-3-Clause"), ("Apache Software License", "Apache-2.0"), ("MIT License", "MIT"),
        ("GNU Lesser General Public License v2 (LGPLv2)", "LGPL"), ("GNU General Public License v3", "GPL"),
        ("GNU Affero General Public License v3", "AGPL"), ("permitted", None), ("", None),
    ],
)  # fmt: skip
def test_licences_in_words(text, identifier):
    assert licences._identifier(text) == identifier


def test_the_workflow_audits_and_soaks():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "make audit" in text and "make soak MINUTES=5" in text and "mutants" not in text
