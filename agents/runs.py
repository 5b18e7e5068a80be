"""The folder that a training run is kept in.

A run folder holds

==================  =====================================================================
``config.json``     what was asked for, with all hyper-parameters; `resume` insists on it
``versions.json``   versions of Python and of the packages
``ledger.json``     what the environment's releases spent
``results.json``    scores along the way; at the end also the evaluation
``checkpoint.zip``  the state at the last cut
``model.zip``       the learner at the end, as Stable-Baselines3 saves it
``tensorboard/``    logs
==================  =====================================================================
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dp_ensemble_env._files import atomic_write
from dp_ensemble_env.reporting.provenance import versions


@dataclass
class Record:
    """What happened so far."""

    steps: int = 0
    seconds: float = 0.0
    curve: list[tuple[int, float]] = field(default_factory=list)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    with atomic_write(path) as stream:
        json.dump(content, stream, indent=1, sort_keys=False)
        stream.write("\n")


def read_json(path: Path) -> Any:
    """Read a JSON file, or say that it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); remove the folder to start again.") from error


def check_config(folder: Path, config: dict[str, Any]) -> None:
    """Refuse to go on with a run that was configured otherwise."""
    if not (folder / "config.json").exists():
        return
    found, wanted = read_json(folder / "config.json"), json.loads(json.dumps(config))
    if found != wanted:
        raise ValueError(
            f"{folder} holds a run with another configuration: {differences(found, wanted)}; repeat the run's own "
            "settings to resume it, or choose another folder."
        )


def open_folder(folder: Path, config: dict[str, Any]) -> None:
    """Make the run folder, unless it is there."""
    if not (folder / "config.json").exists():
        write_json(folder / "config.json", config)
        write_json(folder / "versions.json", versions())


def differences(found: Any, wanted: Any, prefix: str = "") -> str:
    """List where two configurations differ."""
    if not (isinstance(found, dict) and isinstance(wanted, dict)):
        return f"{prefix} is {found!r}, not {wanted!r}"
    keys = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
    dot = f"{prefix}." if prefix else ""
    return ", ".join(differences(found.get(key), wanted.get(key), f"{dot}{key}") for key in keys)
