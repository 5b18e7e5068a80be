"""Instances and commands that several test files share."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dp_ensemble_env.model import EnsembleModel

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"


def load(command: str) -> ModuleType:
    """Return the module that runs a command."""
    return importlib.import_module(f"dp_ensemble_env.cli.{command}")


def random_chain(rng: np.random.Generator, n: int, density: float = 0.5) -> np.ndarray:
    """Random stochastic matrix with zeros; every row keeps at least one successor."""
    mask = rng.random((n, n)) < density
    mask[np.arange(n), rng.integers(n, size=n)] = True
    weights = rng.gamma(0.7, size=(n, n)) * mask
    weights[mask] += 1e-3
    return weights / weights.sum(axis=1, keepdims=True)


def random_model(seed: int, n: int = 6, horizon: int = 5, density: float = 0.5, varying: bool = False) -> EnsembleModel:
    """Small random control problem."""
    rng = np.random.default_rng(seed)
    default = (
        np.stack([random_chain(rng, n, density) for _ in range(horizon)]) if varying else random_chain(rng, n, density)
    )
    return EnsembleModel(
        default=default,
        power_kw=np.sort(rng.uniform(10, 400, n)),
        utility=-rng.uniform(0, 60, (horizon + 1, n)),
        discomfort_penalty=float(rng.uniform(2, 20)),
    )


def fake_simbench(folder: Path, monkeypatch: pytest.MonkeyPatch, rows: list[str]) -> None:
    """Put an installed SimBench with a few readings in the way of imports."""
    data = folder / "simbench" / "networks" / "1-complete_data-mixed-all-0-sw"
    data.mkdir(parents=True)
    (folder / "simbench" / "__init__.py").write_text("raise RuntimeError('located, never imported')")
    text = "\n".join(["time;G0-A_qload;G0-A_pload;G1-A_pload;H0-A_pload", *rows])
    (data / "LoadProfile.csv").write_text(text)
    monkeypatch.syspath_prepend(str(folder))


def write_meter(path: Path, days: int = 28) -> Path:
    """Write a meter file of quarter hours from 11 June 2018 on."""
    rng = np.random.default_rng(0)
    start = np.datetime64("2018-06-11T00:00")
    lines = [
        f"{start + np.timedelta64(15 * i, 'm')},{150 + 90 * np.sin(i / 96 * 6.28) ** 2 + rng.normal(0, 12):.3f}"
        for i in range(days * 96)
    ]
    path.write_text("timestamp,power_kw\n" + "\n".join(lines) + "\n")
    return path
