"""Trained learners, and how they are loaded: from files without code, or with consent from those that have it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents.hyperparams import tilts_of_weights
from dp_ensemble_env.agents.learners import algorithm_class, price_list
from dp_ensemble_env.agents.runs import POLICY, digest_of, read_object
from dp_ensemble_env.privacy.release import Release
from dp_ensemble_env.tools.files import resolved
from dp_ensemble_env.tools.validation import check_count

#: A model as Stable-Baselines3 saves it: an archive with pickles in it.
FOREIGN = "model.zip"


@dataclass(repr=False)
class LearnedAgent:
    """A trained learner that obeys ``predict``.

    Attributes
    ----------
    model : object with ``predict``
        The learner of Stable-Baselines3; of an agent that was loaded, its policy.
    name : str
        The algorithm.
    prices : ndarray, optional
        What the numbers that a discrete learner returns stand for.
    privacy : str
        What the training revealed, in words.
    curve : list of (int, float)
        Steps and score along the way.
    steps : int
        Environment steps that were taken.
    seconds : float
        Wall-clock time of the training.
    decisions : int
        Of how many decisions the tilts are, if the learner returns weights of cosines instead of tilts; else 0.
    """

    model: Any
    name: str
    prices: NDArray[np.floating] | None = None
    privacy: str = "that of the environment it was trained in"
    curve: list[tuple[int, float]] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    decisions: int = 0

    def __repr__(self) -> str:
        last = f", score {self.curve[-1][1]:.1f}" if self.curve else ""
        return f"LearnedAgent({self.name!r}, {self.steps:,} steps{last})"

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.floating], Any]:
        """Return the action and the hidden state, as `stable_baselines3` does."""
        action, state = self.model.predict(observation, state, episode_start, deterministic)
        if self.prices is not None:
            action = self.prices[np.asarray(action)][..., None]
        if self.decisions:
            action = tilts_of_weights(action, self.decisions)
        return action, state

    def save(self, path: str | os.PathLike[str], binding: dict[str, Any] | None = None) -> str:
        """Write the policy and what is known of its training to a file without code; return the file's digest.

        Parameters
        ----------
        path : path
            Conventionally ``policy.safetensors``.
        binding : dict, optional
            Digests of the configuration, the release and the ledger that it belongs to.
        """
        from dp_ensemble_env.agents.policy_files import save_policy

        about = {
            "prices": None if self.prices is None else [float(price) for price in self.prices],
            "decisions": self.decisions, "privacy": self.privacy, "curve": self.curve, "steps": self.steps,
            "seconds": self.seconds, "binding": binding or {},
        }  # fmt: skip
        return save_policy(path, getattr(self.model, "policy", self.model), self.name, about)


def safe_path(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> Path:
    """Return the resolved path, which must lie in `folder` after links are followed."""
    inside, target = resolved(folder), resolved(path)
    if not target.is_relative_to(inside):
        raise ValueError(
            f"{path} lies outside {folder}, and models of Stable-Baselines3 execute code when they are loaded; move it "
            "there, or allow it explicitly if you trust it."
        )
    return target


def load_agent(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str] = "runs",
    *,
    algo: str | None = None,
    allow_code: bool = False,
    allow_outside: bool = False,
) -> LearnedAgent:
    """Load the agent of a run folder or of a file.

    A ``policy.safetensors`` holds no code and may lie anywhere. A ``model.zip`` of Stable-Baselines3 executes code when
    it is loaded; that must be allowed.

    Parameters
    ----------
    path : path
        A run folder, a ``policy.safetensors``, or a ``model.zip``.
    folder : path
        A ``model.zip`` is loaded from in here only.
    algo : str, optional
        Needed for a ``model.zip`` that has no ``config.json`` beside it.
    allow_code : bool
        Load a ``model.zip``, and execute what is in it.
    allow_outside : bool
        Load a ``model.zip`` from anywhere.
    """
    file = resolved(path)
    if file.is_dir():
        file = file / (POLICY if (file / POLICY).exists() or not (file / FOREIGN).exists() else FOREIGN)
    if not file.is_file():
        raise ValueError(f"there is no model file {file}; train one with dp-ensemble train.")
    if file.suffix == ".safetensors":
        return _load(file)
    if not allow_outside:
        safe_path(path, folder)
        file = safe_path(file, folder)  # the file itself may be a link
    if not allow_code:
        raise ValueError(
            f"{file} is a model of Stable-Baselines3, and loading it executes code that is in it; if you trust whoever "
            "wrote it, pass allow_code=True."
        )
    return _load_foreign(file, algo)


def _load(file: Path) -> LearnedAgent:
    from dp_ensemble_env.agents.policy_files import load_policy

    policy, weights = load_policy(file)
    try:
        about = weights.settings["about"]
        check_binding(file, about["binding"])
        prices = None if about["prices"] is None else np.array(about["prices"], np.float32)
        curve = [(int(steps), float(score)) for steps, score in about["curve"]]
        told = str(about["privacy"]), curve, int(about["steps"]), float(about["seconds"])
        decisions = check_count(about.get("decisions", 0), "decisions", 0, 100_000)  # earlier files do not say
        if decisions and (prices is not None or policy.action_space.shape[0] > decisions):
            raise ValueError(f"{file} speaks of {decisions} decisions, which do not fit its policy; train again.")
        return LearnedAgent(policy, str(weights.settings["algo"]), prices, *told, decisions)
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


def _load_foreign(file: Path, algo: str | None) -> LearnedAgent:
    """Load a model of Stable-Baselines3, which executes code."""
    beside = file.parent / "config.json"
    config = read_object(beside) if beside.exists() else {}
    name = algo or config.get("algo")
    if name is None:
        raise ValueError(f"{file} has no config.json beside it; say which algorithm it is with algo=...")
    kind = algorithm_class(name)
    try:
        model = kind.load(file, device="cpu")
    except Exception as error:  # whatever its pickles raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{file} is no model of {name}, or it is damaged ({reason}).") from error
    params = config.get("hyperparams") or {}
    agent = LearnedAgent(model, name, price_list(params))
    if params.get("cosines"):  # the box says of how many decisions, see `cosine_space`
        agent.decisions = round(float(2.0 * model.action_space.high[0]) ** 2)
    return agent
