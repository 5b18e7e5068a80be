"""The package as a whole: its modules, their doctests, and names that have moved."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys

import dp_ensemble_env.agents
import pytest

from dp_ensemble_env._moved import MOVED


@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(dp_ensemble_env.agents.__path__)])
def test_doctests_of_agents(name):
    # The folder agents/ is not where its package name says, so pytest does not collect its doctests.
    assert doctest.testmod(importlib.import_module(f"dp_ensemble_env.agents.{name}")).failed == 0


@pytest.mark.parametrize("name", MOVED)
def test_former_module_is_the_present_one(name):
    # In a process of its own: an import at the former place stays in sys.modules.
    code = (
        "import importlib, sys, warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        f"    old = importlib.import_module('dp_ensemble_env.{name}')\n"
        f"new = importlib.import_module('dp_ensemble_env.{MOVED[name]}')\n"
        "assert old is new and new.__name__ == new.__spec__.name, new.__spec__\n"
        f"assert any('{MOVED[name]}' in str(w.message) for w in caught)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("dp_ensemble_env.nowhere")
