"""Training with Stable-Baselines3: what its networks see, and segments with their own seeds (imports torch).

Training is cut into segments. At each cut the learner is scored, everything is saved in one file
(`dp_ensemble_env.agents.runs`), and environments and random generators are seeded afresh from (seed, steps so
far). A run that is resumed from the file therefore continues exactly as the run that was never stopped, and the file
needs to hold nothing of the environment, whose matrix may be private.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger, configure
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from dp_ensemble_env.agents.learners import algorithm_arguments, algorithm_class, training_env
from dp_ensemble_env.agents.runs import Record
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.tables import AHEAD, layout_of
from dp_ensemble_env.model import EnsembleModel

#: Called with the steps done, the steps planned and the latest score.
Progress = Callable[[int, int, float], None]
#: What a learner counts, beside its networks and optimizers.
_COUNTERS = (
    *("num_timesteps", "_n_updates", "_episode_num", "_n_calls", "exploration_rate"),
    *("_num_timesteps_at_start", "_current_progress_remaining", "_total_timesteps"),
)
#: Statistics of the latest episodes, which are logged.
_LATEST = ("ep_info_buffer", "ep_success_buffer")
#: The arrays of a replay buffer; what is not filled yet is not kept.
_BUFFER = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


# ------------------------------------------------------------------ what the networks see
class ClockFeatures(BaseFeaturesExtractor):
    """The occupancy and the number of the decision in one-hot code.

    Prices depend on time alone, so they are left out, unless there is a context: then
    they and its features stay. With a coupling its levels, which stand in their place,
    stay, too: instances differ in them. With this code a linear policy can hold a different
    action for every decision.

    Parameters
    ----------
    observation_space : gymnasium.spaces.Box
        That of the ensemble.
    horizon : int
        Number of decisions, T.
    context_features, ahead : int
        How many features of the context an observation has, and how many prices, limits or targets.
    coupled : bool
        Whether there is a coupling.
    """

    def __init__(
        self,
        observation_space: gymnasium.spaces.Box,
        horizon: int,
        context_features: int = 0,
        coupled: bool = False,
        ahead: int = AHEAD,
    ) -> None:
        known = ahead + context_features
        self.horizon, self.n_states = horizon, observation_space.shape[0] - 1 - known
        self.kept = known if context_features or coupled else 0
        super().__init__(observation_space, features_dim=horizon + self.n_states + self.kept)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Return features of shape (batch, T + n), and with a context its prices and features."""
        left = observations[:, self.n_states]
        time = ((1.0 - left) * self.horizon).round().long().clamp(0, self.horizon - 1)
        code = torch.nn.functional.one_hot(time, self.horizon).to(observations.dtype)
        return torch.cat(
            [code, observations[:, : self.n_states], observations[:, self.n_states + 1 :][:, : self.kept]], 1
        )


def clock_kwargs(model: EnsembleModel, ahead: int = AHEAD) -> dict[str, Any]:
    """Return the policy_kwargs that install `ClockFeatures` for a model."""
    shown = {"context_features": layout_of(model).features.shape[1], "coupled": model.coupling is not None}
    settings = {"horizon": model.horizon, "ahead": ahead, **shown}
    return {"features_extractor_class": ClockFeatures, "features_extractor_kwargs": settings}


# ------------------------------------------------------------------ training
class LibraryTrainer:
    """A learner of a library with the environments that it is trained in.

    Parameters
    ----------
    algo : str
    core : EnsembleEnv
        Environments like this one are trained in.
    settings : dict
    seed, total : int
        Seed of everything, and steps of the whole training.
    models : sequence of EnsembleModel
        See `training_env`.
    log : path, optional
        Where to write logs for TensorBoard; nothing is written before `learn`.
    """

    def __init__(
        self,
        algo: str,
        core: EnsembleEnv,
        settings: dict[str, Any],
        seed: int,
        total: int,
        models: Sequence[EnsembleModel] = (),
        log: Path | None = None,
    ) -> None:
        kind, self.venv = algorithm_class(algo), training_env(core, settings, models)
        self.seed, self.total, self.log = seed, total, log
        try:
            arguments = algorithm_arguments(settings, core.model, self.venv)
            self.policy = kind(settings["policy"], self.venv, seed=seed, device="cpu", **arguments)
        except (AssertionError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).strip().rstrip(".") or type(error).__name__
            raise ValueError(f"{kind.__name__} cannot be trained here with these settings: {reason}.") from error

    def predict(self, *arguments: Any, **more: Any) -> tuple[Any, Any]:
        """Act by the policy as it is now."""
        action: tuple[Any, Any] = self.policy.predict(*arguments, **more)
        return action

    def learn(self, record: Record, **notes: Any) -> None:
        """Train from where the record stands to the end or the target; `notes` are the arguments of `Segments`."""
        # Asked to log nowhere, configure makes a folder all the same.
        logger = Logger(None, []) if self.log is None else configure(str(self.log), ["tensorboard"])
        self.policy.set_logger(logger)
        callback = Segments(record, seed=self.seed, **notes)
        self.policy.learn(self.total - record.steps, callback=callback, reset_num_timesteps=False)
        self.venv.close()

    def checkpoint_state(self) -> dict[str, Any]:
        """Return everything that is needed to go on; random generators are seeded afresh."""
        model = self.policy
        state: dict[str, Any] = {
            "parameters": model.get_parameters(),
            "variables": {name: getattr(model, name) for name in model._get_torch_save_params()[1]},
            "counters": {name: getattr(model, name) for name in _COUNTERS if hasattr(model, name)},
            "latest": {name: list(getattr(model, name) or ()) for name in _LATEST},
        }
        buffer = getattr(model, "replay_buffer", None)
        if buffer is not None:
            filled = buffer.buffer_size if buffer.full else buffer.pos
            state["buffer"] = {name: getattr(buffer, name)[:filled] for name in _BUFFER if hasattr(buffer, name)}
            state["position"] = [int(buffer.pos), bool(buffer.full)]
        return state

    def restore_state(self, state: dict[str, Any]) -> None:
        """Go back to where `checkpoint_state` was called."""
        model = self.policy
        model.set_parameters(state["parameters"], exact_match=True, device="cpu")
        for name in model._get_torch_save_params()[1]:
            getattr(model, name).data.copy_(state["variables"][name])
        for name, value in state["counters"].items():
            if name in _COUNTERS:
                setattr(model, name, value)
        for name in _LATEST:
            setattr(model, name, deque(state["latest"][name], maxlen=model._stats_window_size))
        buffer = getattr(model, "replay_buffer", None)
        if buffer is not None:
            for name in _BUFFER:
                if hasattr(buffer, name):
                    kept = np.asarray(state["buffer"][name])
                    getattr(buffer, name)[: len(kept)] = kept
            buffer.pos, buffer.full = state["position"]


class Segments(BaseCallback):
    """Score, save and reseed at every cut; stop at the target.

    Parameters
    ----------
    record : Record
        Filled in along the way.
    seed : int
    interval : int
        Steps between cuts; a cut waits for the end of the rollout under way.
    score : callable
        Returns the score of the learner as it is.
    target : float, optional
        Training stops at the first cut with at least this score.
    save : callable, optional
        Called at every cut, after the score was noted.
    progress : callable, optional
    """

    def __init__(
        self,
        record: Record,
        *,
        seed: int,
        interval: int,
        score: Callable[[], float],
        target: float | None = None,
        save: Callable[[], None] | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__()
        self.record, self.seed, self.interval, self.score = record, seed, interval, score
        self.target, self.save, self.progress = target, save, progress
        self.reached = False
        self._since = time.perf_counter()
        self._before = record.seconds

    def _on_training_start(self) -> None:
        self.planned = int(self.model._total_timesteps)
        self._next = self.num_timesteps

    def _on_rollout_start(self) -> None:
        if self.num_timesteps < self._next or self.reached:
            return
        if not self.record.curve or self.record.curve[-1][0] < self.num_timesteps:  # else: resumed right here
            self._note()
        self._next = (self.num_timesteps // self.interval + 1) * self.interval
        begin_segment(self.model, self.seed)

    def _on_step(self) -> bool:
        if self.progress is not None:
            self.progress(self.num_timesteps, self.planned, self.record.curve[-1][1])
        return not self.reached

    def _on_training_end(self) -> None:
        if not self.reached:
            self._note()

    def _note(self) -> None:
        score = self.score()
        self.record.curve.append((int(self.num_timesteps), score))
        self.record.steps = int(self.num_timesteps)
        self.record.seconds = self._before + time.perf_counter() - self._since
        self.reached = self.target is not None and score >= self.target
        self.logger.record("score", score)
        self.logger.dump(self.num_timesteps)
        if self.save is not None:
            self.save()


def begin_segment(model: BaseAlgorithm, seed: int) -> None:
    """Seed the generators from (seed, steps) and begin new episodes everywhere."""
    assert model.env is not None
    words = np.random.SeedSequence([seed, int(model.num_timesteps)]).generate_state(2)
    model.set_random_seed(int(words[0] >> 1))
    model.env.seed(int(words[1] >> 1))
    model._last_obs = model.env.reset()  # type: ignore[assignment]
    model._last_episode_starts = np.ones((model.env.num_envs,), dtype=bool)
    if model.use_sde:  # the rollout drew its noise before the generators were seeded
        noisy: Any = getattr(model, "actor", None) or model.policy
        noisy.reset_noise(model.env.num_envs)
