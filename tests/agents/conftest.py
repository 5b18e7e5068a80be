"""A short run of a2c, whole or cut, that several files change or resume."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dp_ensemble_env.agents.loading import LearnedAgent
from dp_ensemble_env.agents.train import RunFolder, TrainingSettings, train
from dp_ensemble_env.envs import EnsembleEnv


def _run(folder: Path, *, resume: bool = False, crash: float | None = None, seed: int = 0, **env: Any) -> LearnedAgent:
    def progress(done: int, planned: int, score: float) -> None:
        if crash is not None and done > crash:
            raise KeyboardInterrupt

    settings = TrainingSettings(seed, steps=720, interval=144, hyperparams={"n_envs": 8})
    core = EnsembleEnv("campus-event", action="price", **env)
    return train("a2c", core, settings, keep=RunFolder(folder, resume), progress=progress)


@pytest.fixture
def run() -> Callable[..., LearnedAgent]:
    """Return the function that trains, or goes on."""
    return _run


@pytest.fixture
def cut() -> Callable[..., Path]:
    """Return a function that trains until after the third cut, and is stopped."""

    def stopped(folder: Path, **env: Any) -> Path:
        with pytest.raises(KeyboardInterrupt):
            _run(folder, crash=450, **env)
        return folder

    return stopped


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that is finished; tests change copies of it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    _run(folder)
    return folder


@pytest.fixture
def finished(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "run")
