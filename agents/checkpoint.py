"""Checkpoints of a training run: two generations, bound to the run that they belong to, without pickle.

A checkpoint is a file of weights (`dp_ensemble_env.agents.weights`) with everything that the learner needs to go on as
if it had not been stopped: networks, optimizers, counters, replay buffer. The random generators are not in it, since
they are seeded afresh at every cut. It names the *digests* of the run's configuration, of its release and of its
ledger; a checkpoint found with others is refused. The newest checkpoint replaces the one before it only when it is
whole on disk, and the one before is kept: a damaged file costs one interval of training, not the run.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from dp_ensemble_env.agents.runs import CHECKPOINTS, Record
from dp_ensemble_env.agents.weights import Weights, load_weights, pack, save_weights, unpack

NEWEST, OLDER = CHECKPOINTS
#: Digests of configuration, release and ledger, by name.
Binding = dict[str, Any]


def there(home: Path) -> bool:
    """Return whether a folder has a checkpoint."""
    return any((home / name).exists() for name in (NEWEST, OLDER))


# ------------------------------------------------------------------ writing
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


# ------------------------------------------------------------------ reading
def restore(home: Path, trainer: Any, binding: Binding) -> Record | None:
    """Bring a new learner to where the checkpoint stands; return the record, or None if there is no checkpoint.

    If the newest checkpoint is damaged the older one is taken, with a warning. One that belongs to another run is
    refused, however well it is preserved.
    """
    if not there(home):
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
