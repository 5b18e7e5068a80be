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

A checkpoint is a file of weights (`dp_ensemble_env.agents.weights`) with everything that the learner needs to go on:
networks, optimizers, counters, replay buffer. Random generators are seeded afresh at every cut. A checkpoint appears
only when it is whole on disk, and the one before is kept: a damaged file costs one interval of training, not the run.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dp_ensemble_env.agents.weights import load_weights, pack, save_weights, unpack
from dp_ensemble_env.reporting.page import versions
from dp_ensemble_env.tools.files import atomic_write, readable_file
from dp_ensemble_env.tools.validation import option

#: The newest checkpoint and the one before it; the policy at the end.
CHECKPOINTS = NEWEST, OLDER = "checkpoint.safetensors", "checkpoint-older.safetensors"
POLICY = "policy.safetensors"
#: Digests of configuration, release and ledger, by name.
Binding = dict[str, Any]
#: Called with the steps done, the steps planned and the latest score.
Callback = Callable[[int, int, float], None]


@dataclass
class Record:
    """What happened so far."""

    steps: int = 0
    seconds: float = 0.0
    curve: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Watch:
    """What a learner does along the way: it notes its score at every cut, saves its state, and stops at the target."""

    record: Record
    interval: int
    """Steps between cuts."""
    score: Callable[[], float]
    """Returns the score of the learner as it is."""
    target: float | None
    save: Callable[[], None] | None
    """Called at every cut, after the score was noted."""
    progress: Callback

    def __post_init__(self) -> None:
        self._began = time.perf_counter() - self.record.seconds

    @property
    def reached(self) -> bool:
        """Whether the latest score has reached the target."""
        return bool(self.record.curve) and self.target is not None and self.latest >= self.target

    @property
    def latest(self) -> float:
        """The score at the last cut."""
        return self.record.curve[-1][1]

    def cut(self, steps: int) -> None:
        """Note the score after so many steps, and save."""
        self.record.curve.append((steps, self.score()))
        self.record.steps, self.record.seconds = steps, time.perf_counter() - self._began
        if self.save is not None:
            self.save()


@dataclass(frozen=True)
class RunFolder:
    """Where a run is kept."""

    path: Path
    resume: bool = False
    """Continue the run that is there, which must have the same configuration."""
    tensorboard: bool = False
    """Log to ``tensorboard/``."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """How the environment was made, to make it again from the folder."""

    def check(self, config: Mapping[str, Any] | None = None) -> None:
        """Refuse a folder with a run that is not to be resumed or has another configuration, or without one that is."""
        home = Path(self.path)
        there = (home / "config.json").exists()
        left = [name for name in (*CHECKPOINTS, POLICY, "ledger.json") if (home / name).exists()]
        if left and not there:
            raise ValueError(
                f"{home} holds {left[0]} of a run whose config.json is gone; restore that, or choose another folder."
            )
        if self.resume and not there:
            remedy = f"leave {option('resume', True)} out to start one"
            raise ValueError(f"there is no run in {self.path} to resume; {remedy}.")
        if there and not self.resume:
            remedy = f"resume it with {option('resume', True)}, or choose another folder"
            raise ValueError(f"{self.path} already holds a run; {remedy}.")
        if there and config is not None:
            stored, wanted = read_object(home / "config.json"), json.loads(json.dumps(self._whole(config)))
            if stored != wanted:
                raise ValueError(
                    f"{home} holds a run with another configuration: {differences(stored, wanted)}; repeat the run's "
                    "own settings to resume it, or choose another folder."
                )

    def _whole(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {**config, "environment": dict(self.environment)}

    def open(self, config: Mapping[str, Any], core: Any, trainer: Any) -> tuple[Record, Binding]:
        """Open the folder, which is ours alone now, and bring the learner to where its checkpoint stands."""
        self.check(config)  # another process may have been here since
        home, ledger = Path(self.path), Path(self.path) / "ledger.json"
        if not any((home / name).exists() for name in CHECKPOINTS):
            if core.release is not None and not core.release.reproducible:  # nobody can draw it again
                core.release.save(home / "release.json")
            if not (home / "config.json").exists():
                write_json(home / "versions.json", versions())
                write_json(home / "config.json", self._whole(config))
            with atomic_write(ledger) as stream:
                stream.write(core.ledger.to_json() + "\n")
        elif not ledger.exists():
            raise ValueError(f"the ledger of the run, {ledger}, is gone; restore it from a copy.")
        binding = {
            "config": digest_of(self._whole(config)),
            "release": None if core.release is None else core.release.digest,
            "ledger": digest_of(read_object(ledger)),
        }
        return restore(home, trainer, binding), binding


def differences(stored: Any, wanted: Any, prefix: str = "") -> str:
    """List where two configurations differ."""
    if not (isinstance(stored, dict) and isinstance(wanted, dict)):
        return f"{prefix} is {stored!r}, not {wanted!r}"
    keys = [key for key in {**stored, **wanted} if stored.get(key) != wanted.get(key)]
    dot = f"{prefix}." if prefix else ""
    return ", ".join(differences(stored.get(key), wanted.get(key), f"{dot}{key}") for key in keys)


# ------------------------------------------------------------------ JSON
def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    with atomic_write(path) as stream:
        json.dump(content, stream, indent=1, sort_keys=False)
        stream.write("\n")


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object, such as ``config.json``; a fifo would be waited for, so it is refused."""
    readable_file(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); remove the folder to start again.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}, not the settings of a run; restore it from a copy.")
    return content


def remembered_environment(path: Path) -> dict[str, Any]:
    """Return how the environment of a run was made, as its ``config.json`` has it; empty where it has nothing."""
    made = read_object(path).get("environment") or {}
    if not (isinstance(made, dict) and isinstance(made.get("problem", {}), dict)):
        raise ValueError(f"{path} does not describe an environment; restore it from a copy.")
    needed = [name for name in ("problem", "population", "action", "privacy", "release_seed") if name not in made]
    if made and needed:
        raise ValueError(f"{path} lacks the environment's {', '.join(needed)}; restore it from a copy.")
    return made


def digest_of(content: Any) -> str:
    """Return the SHA-256 of JSON content; the order of names and white space do not count."""
    return hashlib.sha256(json.dumps(json.loads(json.dumps(content)), sort_keys=True).encode()).hexdigest()


# ------------------------------------------------------------------ checkpoints
def save_checkpoint(home: Path, trainer: Any, record: Record, binding: Binding) -> None:
    """Make the last checkpoint the older one, then write a new one."""
    arrays: dict[str, Any] = {}
    settings = {"record": record.__dict__, "binding": binding, "learner": pack(trainer.checkpoint_state(), arrays)}
    if (home / NEWEST).exists():
        os.replace(home / NEWEST, home / OLDER)
    save_weights(home / NEWEST, arrays, settings)


def restore(home: Path, trainer: Any, binding: Binding) -> Record:
    """Bring a new learner to where the checkpoint stands, if there is one; return the record.

    If the newest checkpoint is damaged the older one is taken, with a warning. One that belongs to another run is
    refused, however well it is preserved.
    """
    faults = []
    for path in (home / name for name in CHECKPOINTS if (home / name).exists()):
        try:
            weights = load_weights(path)
        except ValueError as error:
            faults.append(str(error).rstrip("."))
            continue
        stored = weights.settings.get("binding")
        if not isinstance(stored, dict):
            raise ValueError(f"{path} is not a checkpoint; remove it to start again.")
        words = {"config": "another configuration", "release": "another release", "ledger": "another ledger"}
        wrong = [words[name] for name in words if stored.get(name) != binding.get(name)]
        if wrong:
            raise ValueError(
                f"{path} belongs to {' and '.join(wrong)} than this run's; restore the run's own files, or choose "
                "another folder."
            )
        try:
            record = Record(**weights.settings["record"])
            record.curve = [(int(steps), float(score)) for steps, score in record.curve]
            trainer.restore_state(unpack(weights.settings["learner"], weights.arrays))
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{path} does not fit the learner of this run ({reason}).") from error
        if faults:
            text = f"{faults[0]}; the run goes on from the one before it, at {record.steps:,} steps."
            warnings.warn(text, stacklevel=2)
        return record
    if faults:
        raise ValueError(f"{'; '.join(faults)}; there is no older checkpoint: remove {home} to start again.")
    return Record()
