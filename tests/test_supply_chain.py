"""What the make commands install: locked with hashes, in step with the declared versions, under known licences."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib

import dependencies
import pytest
from dependencies import TARGETS, TORCH, entries
from helpers import ROOT
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def locked(name):
    found = {}
    for entry in entries((ROOT / "lock" / f"{name}.txt").read_text(encoding="utf-8")):
        found.setdefault(canonicalize_name(entry.split("==")[0]), []).append(entry)
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
    if name == "torch-cpu":
        (pin,) = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
        assert locked(name)["torch"][0].startswith(f"{pin}+cpu ")


@pytest.mark.parametrize("name", TARGETS)
def test_locks_have_what_is_declared_in_the_versions_that_are_tested(name):
    found = {**locked(name), **locked("torch-pypi")}
    wanted = [canonicalize_name(re.match(r"[\w.-]+", text)[0]) for text in direct(TARGETS[name])]
    assert {"numpy", "torch"} <= set(wanted) <= set(found)
    assert "setuptools" in found  # builds the package itself, so that nothing is fetched for that
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if "==" in line and (package := canonicalize_name(line.split("==")[0])) in found:
            (entry,) = found[package]
            assert entry.split(" ")[0].split("==")[1] == line.split("==")[1], f"run `make lock`: {line}"


NOT_FOUND = "ERROR: No matching distribution found for torch==2.13.0+cpu\n"
OFFLINE = "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\n"
TAMPERED = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n"


@pytest.fixture
def install():
    """The script that the make commands install with."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "lock" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("errors", "here", "builds", "code"),
    [
        ("", True, ["cpu"], 0), (NOT_FOUND, True, ["cpu", "pypi"], 0), ("", False, ["pypi"], 0),
        (OFFLINE + NOT_FOUND, True, ["cpu"], 1), (TAMPERED, True, ["cpu"], 1),
    ],
)  # fmt: skip
def test_cuda_is_installed_only_where_the_other_build_is_not_to_be_found(
    errors, here, builds, code, install, monkeypatch, capfd
):
    commands = []

    def run(command, **_):
        commands.append(" ".join(command))
        fails = "torch-cpu.txt" in commands[-1] and errors
        return subprocess.CompletedProcess(command, int(bool(fails)), None, errors if fails else "")

    monkeypatch.setattr(install.subprocess, "run", run)
    monkeypatch.setattr(install, "is_locked_here", lambda text: here)
    assert install.main("demo") == code
    assert re.findall(r"lock/torch-(\w+)\.txt", " ".join(commands)) == builds
    assert all("--require-hashes" in command for command in commands if "torch-" in command)
    assert ("-e" in commands[-1].split()) == (code == 0)  # the package itself comes last
    assert capfd.readouterr().err == (errors if code else "")


def test_licences_of_what_is_installed_are_on_the_list():
    found, faults = dependencies.check(["dev"])
    assert {"numpy", "pytest", "torch", "gymnasium"} <= set(found) and len(found) > 40
    assert not faults


def test_a_licence_that_is_not_on_the_list_is_named(monkeypatch):
    allowed, stated = dependencies.declared()
    assert "AGPL" not in allowed and "GPL" not in allowed
    monkeypatch.setattr(dependencies, "declared", lambda: (allowed - {"BSD-3-Clause"}, {**stated, "rich": "GPL"}))
    faults = " ".join(dependencies.check(["dev"])[1])
    assert "scipy has the licence BSD-3-Clause" in faults and "rich has the licence GPL" in faults
