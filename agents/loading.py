"""Trained learners, and how they are loaded, from files without code."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents.runs import POLICY, digest_of, read_object
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.files import resolved


@dataclass(repr=False)
class LearnedAgent:
    """A trained learner that obeys ``predict``.

    Attributes
    ----------
    model : object with ``predict``
        The learner of Stable-Baselines3; of an agent that was loaded, its policy.
    name : str
        The algorithm.
    codes : ndarray of shape (k, d), optional
        What the learner's `k` choices, or units of its `k` numbers, stand for in actions of `d` numbers; by default its
        actions stand for themselves.
    privacy : str
        What the training revealed, in words.
    curve : list of (int, float)
        Steps and score along the way.
    steps : int
        Environment steps that were taken.
    seconds : float
        Wall-clock time of the training.
    frame_stack : int
        How many of the last observations the learner sees at once; the state of `predict` keeps them.
    """

    model: Any
    name: str
    codes: NDArray[np.float32] | None = None
    privacy: str = "that of the environment it was trained in"
    curve: list[tuple[int, float]] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    frame_stack: int = 1

    def __repr__(self) -> str:
        last = f", score {self.curve[-1][1]:.1f}" if self.curve else ""
        return f"LearnedAgent({self.name!r}, {self.steps:,} steps{last})"

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.floating], Any]:
        """Return the action and the hidden state, as `stable_baselines3` does."""
        frames, state = (None, state) if self.frame_stack == 1 or state is None else state
        if self.frame_stack > 1:
            observation = frames = self._stacked(np.asarray(observation), frames, episode_start)
        action, state = self.model.predict(observation, state, episode_start, deterministic)
        if self.frame_stack > 1:
            state = frames, state
        if self.codes is not None:
            chosen = np.asarray(action)
            action = self.codes[chosen] if chosen.dtype.kind in "iu" else np.clip(chosen @ self.codes, -1.0, 1.0)
        return action, state

    def _stacked(self, observation: Any, before: Any, episode_start: Any) -> NDArray[np.float32]:
        """Return the last observations, the newest at the end and zeros before the episode, as `VecFrameStack` does."""
        width = observation.shape[-1]
        if before is None:
            before = np.zeros((*observation.shape[:-1], self.frame_stack * width), observation.dtype)
        elif episode_start is not None:
            before = np.where(np.asarray(episode_start).reshape(observation.shape[:-1])[..., None], 0.0, before)
        return np.concatenate([before[..., width:], observation], axis=-1).astype(np.float32)

    def schedule(self, model: EnsembleModel) -> NDArray[Any] | None:
        """Return the actions (T, c, ...) that it plays in a model, if it learned a schedule; else None."""
        return self.model.schedule(model) if hasattr(self.model, "schedule") else None

    def save(self, path: str | os.PathLike[str], binding: dict[str, Any] | None = None) -> str:
        """Write the policy and what is known of its training to a file without code; return the file's digest.

        Parameters
        ----------
        path : path
            Conventionally ``policy.safetensors``.
        binding : dict, optional
            Digests of the configuration, the release and the ledger that it belongs to.
        """
        from dp_ensemble_env.agents.policy_file import save_policy

        about = {
            "codes": None if self.codes is None else self.codes.tolist(), "privacy": self.privacy, "curve": self.curve,
            "steps": self.steps, "seconds": self.seconds, "frame_stack": self.frame_stack, "binding": binding or {},
        }  # fmt: skip
        return save_policy(path, self.model, self.name, about)


def load_agent(path: str | os.PathLike[str]) -> LearnedAgent:
    """Load the agent of a run folder or of a ``policy.safetensors``; nothing in the file is executed.

    A model as Stable-Baselines3 saves it executes code when it is loaded, so it is not loaded here: load it with the
    class that it belongs to, if you trust its author, and evaluate it as it is, ``evaluate(PPO.load(file), env)``.
    """
    file = resolved(path)
    if file.is_dir():
        file = file / POLICY
    if not file.is_file():
        raise ValueError(f"there is no policy file {file}; train an agent with dp-ensemble train.")
    return _load(file)


def _load(file: Path) -> LearnedAgent:
    from dp_ensemble_env.agents.policy_file import load_policy

    policy, weights = load_policy(file)
    try:
        about = weights.settings["about"]
        check_binding(file, about["binding"])
        codes = None if about["codes"] is None else np.array(about["codes"], np.float32)
        if codes is not None and not (codes.ndim == 2 and np.isfinite(codes).all()):
            raise ValueError(f"{file} holds codes of actions that are not a table of finite numbers; train again.")
        curve = [(int(steps), float(score)) for steps, score in about["curve"]]
        told = str(about["privacy"]), curve, int(about["steps"]), float(about["seconds"]), int(about["frame_stack"])
        return LearnedAgent(policy, str(weights.settings["algo"]), codes, *told)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{file} does not say what it needs to about its training ({error}).") from error


def check_binding(file: Path, binding: dict[str, Any]) -> None:
    """Refuse a file that lies beside the configuration, the ledger or the release of another run."""
    for name in ("config", "ledger", "release"):
        beside = file.parent / f"{name}.json"
        if binding.get(name) is None or not beside.exists():
            continue
        if (Release.load(beside).digest if name == "release" else digest_of(read_object(beside))) != binding[name]:
            raise ValueError(
                f"{file} belongs to another run than {beside}, or one of them was changed; restore them from a copy."
            )
