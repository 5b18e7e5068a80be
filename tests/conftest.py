"""Fixtures that several test files share."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import ledger
from dp_ensemble_env.scenarios.campus import campus_event

# Compilation and a busy machine make single examples slow; the examples stay the same on every run.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("suite")

# Folders have fixtures of their own. They hold no doctests, and modules of one name cannot be collected together.
collect_ignore_glob = ["conftest.py", "*/conftest.py"]

# Whoever starts the tests in the background may have switched Ctrl-C off, which the programs they start would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def campus() -> EnsembleModel:
    return campus_event()


@pytest.fixture(scope="session", autouse=True)
def _logs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give learners that are trained without us, and so log nowhere, a place for the folder that they make anyway."""
    os.environ["SB3_LOGDIR"] = str(tmp_path_factory.mktemp("logs"))


@pytest.fixture(autouse=True)
def _a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin every test with nothing on the ledger that the environments of a process share."""
    monkeypatch.setattr(ledger, "_OF_PROCESS", ledger.PrivacyLedger())
