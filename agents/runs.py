"""The folder that a training run is kept in.

A run folder holds

================================  ===========================================================
``config.json``                   what was asked for, with all hyper-parameters
``versions.json``                 versions of Python and of the packages
``ledger.json``                   what the environment's releases spent
``release.json``                  the release itself, where no seed can draw it again
``results.json``                  scores along the way; at the end also the evaluation
``checkpoint.safetensors``        the state at the last cut
``checkpoint-older.safetensors``  the state at the cut before
``policy.safetensors``            the policy at the end
``tensorboard/``                  logs
================================  ===========================================================

No file holds code. Checkpoints and policy name the digests of configuration, release and ledger, and are refused with
others. One process at a time writes to a run folder.

A checkpoint is a file of weights (`dp_ensemble_env.agents.weights`) with everything that the learner needs to go on as
if it had not been stopped: networks, optimizers, counters, replay buffer. Random generators are not in it, since they
are seeded afresh at every cut. The newest checkpoint replaces the one before it only when it is whole on disk, and the
one before is kept: a damaged file costs one interval of training, not the run.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dp_ensemble_env.agents.weights import Weights, load_weights, pack, save_weights, unpack
from dp_ensemble_env.reporting.provenance import versions
from dp_ensemble_env.tools.files import atomic_write, readable_file

#: The newest checkpoint and the one before it; the policy at the end.
CHECKPOINTS = ("checkpoint.safetensors", "checkpoint-older.safetensors")
POLICY = "policy.safetensors"


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
    """Read a JSON file, or say that it is none; a fifo would be waited for, so it is refused."""
    readable_file(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); remove the folder to start again.") from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object, such as a run's ``config.json``."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, not the settings of a run; restore it from a copy.")
    return found


def remembered_environment(path: Path) -> dict[str, Any]:
    """Return how the environment of a run was made, as its ``config.json`` has it; empty where it has nothing."""
    found = read_object(path).get("environment") or {}
    if not (isinstance(found, dict) and isinstance(found.get("problem", {}), dict)):
        raise ValueError(f"{path} does not describe an environment; restore it from a copy.")
    needed = [name for name in ("problem", "population", "action", "privacy", "release_seed") if name not in found]
    if found and needed:
        raise ValueError(f"{path} lacks the environment's {', '.join(needed)}; restore it from a copy.")
    return found


def digest_of(content: Any) -> str:
    """Return the SHA-256 of JSON content; the order of names and white space do not count."""
    plain = json.loads(json.dumps(content))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def check_config(folder: Path, config: dict[str, Any]) -> None:
    """Refuse to go on with a run that was configured otherwise."""
    if not (folder / "config.json").exists():
        return
    found, wanted = read_object(folder / "config.json"), json.loads(json.dumps(config))
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


# ------------------------------------------------------------------ checkpoints
NEWEST, OLDER = CHECKPOINTS
#: Digests of configuration, release and ledger, by name.
Binding = dict[str, Any]


def has_checkpoint(home: Path) -> bool:
    """Return whether a folder has a checkpoint."""
    return any((home / name).exists() for name in (NEWEST, OLDER))


def save_checkpoint(home: Path, trainer: Any, record: Record, binding: Binding) -> None:
    """Write a new checkpoint; the last one becomes the older one."""
    arrays: dict[str, Any] = {}
    settings = {"record": record.__dict__, "binding": binding, "learner": pack(trainer.checkpoint_state(), arrays)}
    _keep(home)
    save_weights(home / NEWEST, arrays, settings)


def _keep(home: Path) -> None:
    """Let the newest checkpoint also be the older one; there is a whole one under its name all the time."""
    newest, link = home / NEWEST, home / f".{OLDER}.link"
    if not newest.exists():
        return
    try:
        link.unlink(missing_ok=True)
        os.link(newest, link)
        os.replace(link, home / OLDER)
    except OSError:  # a file system without links
        os.replace(newest, home / OLDER)


def restore(home: Path, trainer: Any, binding: Binding) -> Record | None:
    """Bring a new learner to where the checkpoint stands; return the record, or None if there is no checkpoint.

    If the newest checkpoint is damaged the older one is taken, with a warning. One that belongs to another run is
    refused, however well it is preserved.
    """
    if not has_checkpoint(home):
        return None
    faults = []
    for name in (NEWEST, OLDER):
        if not (home / name).exists():
            continue
        try:
            weights = load_weights(home / name)
        except ValueError as error:
            faults.append(str(error).rstrip("."))
            continue
        _check(home / name, weights, binding)
        if faults:
            steps = weights.settings["record"]["steps"]
            warnings.warn(f"{faults[0]}; the run goes on from the one before it, at {steps:,} steps.", stacklevel=2)
        return _load(home / name, trainer, weights)
    raise ValueError(f"{'; '.join(faults)}; there is no older checkpoint: remove {home} to start again.")


def _check(path: Path, weights: Weights, binding: Binding) -> None:
    found = weights.settings.get("binding")
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no checkpoint; remove it to start again.")
    words = {"config": "another configuration", "release": "another release", "ledger": "another ledger"}
    wrong = [words[name] for name in words if found.get(name) != binding.get(name)]
    if wrong:
        raise ValueError(
            f"{path} belongs to {' and '.join(wrong)} than this run's; restore the run's own files, or choose "
            "another folder."
        )


def _load(path: Path, trainer: Any, weights: Weights) -> Record:
    try:
        record = Record(**weights.settings["record"])
        record.curve = [(int(steps), float(score)) for steps, score in record.curve]
        trainer.restore_state(unpack(weights.settings["learner"], weights.arrays))
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} does not fit the learner of this run ({reason}).") from error
    return record
