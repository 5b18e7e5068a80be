"""Training with Stable-Baselines3: what its networks see, and segments with their own seeds (imports torch).

Training is cut into segments. At each cut the learner is scored, everything is saved in one file
(`dp_ensemble_env.agents.runs`), and environments and random generators are seeded afresh from (seed, steps so
far). A run that is resumed from the file therefore continues exactly as the run that was never stopped, and the file
needs to hold nothing of the environment, whose matrix may be private.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import DiscretizeAction
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger, configure
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

from dp_ensemble_env.agents.learners import OWN, algorithm_class, population_of, schedule
from dp_ensemble_env.agents.runs import Watch
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.sb3 import EnsembleVecEnv
from dp_ensemble_env.envs.tables import AHEAD, layout_of
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.tools.validation import check_choice, check_count

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

    Prices depend on time alone, so they are left out, unless there is a context: then they and its features (so many,
    `context_features`) stay. With a coupling its levels, which stand in their place, stay, too: instances differ in
    them. With this code a linear policy can hold a different action for every decision.
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
        left, rest = observations[:, self.n_states], observations[:, self.n_states + 1 :]
        time = ((1.0 - left) * self.horizon).round().long().clamp(0, self.horizon - 1)
        code = torch.nn.functional.one_hot(time, self.horizon).to(observations.dtype)
        return torch.cat([code, observations[:, : self.n_states], rest[:, : self.kept]], 1)


def clock_kwargs(model: EnsembleModel, ahead: int = AHEAD) -> dict[str, Any]:
    """Return the policy_kwargs that install `ClockFeatures` for a model."""
    shown = {"context_features": layout_of(model).features.shape[1], "coupled": model.coupling is not None}
    settings = {"horizon": model.horizon, "ahead": ahead, **shown}
    return {"features_extractor_class": ClockFeatures, "features_extractor_kwargs": settings}


def training_env(core: EnsembleEnv, settings: dict[str, Any], models: Sequence[EnsembleModel] = ()) -> Any:
    """Make environments like `core`: native and batched, or one by one behind Gymnasium's discretising wrapper.

    They run the model that `core` runs: its release, if it has one, so that training is post-processing. If there are
    `models`, each episode draws one of these instead. Rewards are points. With ``cosines`` their action mode is that of
    the cosines; with ``frame_stack`` an observation is the last so many, one after the other.
    """
    count = check_count(settings["n_envs"], "n_envs")
    task: dict[str, Any] = {
        "model": models or core.model,
        "population": population_of(core),
        "ahead": core.layout.ahead,
        "action": actions.cosines(settings["cosines"]) if "cosines" in settings else core.action_mode,
    }
    if "bins" in settings:
        venv: Any = DummyVecEnv([lambda: DiscretizeAction(EnsembleEnv(**task), bins=settings["bins"])] * count)
    else:
        venv = EnsembleVecEnv(count, **task)
    frames = settings.get("frame_stack", 1)
    return venv if frames == 1 else VecFrameStack(venv, frames)


def codes_of(settings: dict[str, Any], core: EnsembleEnv) -> NDArray[np.float32] | None:
    """Return what a learner's choices, or units of its numbers, stand for in actions of `core`; None for themselves.

    With ``bins`` these are the bin centres of `DiscretizeAction` for a price in [-1, 1], with ``cosines`` the waves.
    """
    if "cosines" in settings:
        return actions.cosine_waves(settings["cosines"], core.model.n_decisions).astype(np.float32)
    if "bins" not in settings:
        return None
    edges = np.linspace(np.float32(-1.0), np.float32(1.0), settings["bins"] + 1)  # rounds as the wrapper does
    return (0.5 * (edges[:-1] + edges[1:])).astype(np.float32)[:, None]


def algorithm_arguments(settings: dict[str, Any], model: EnsembleModel, venv: Any) -> dict[str, Any]:
    """Translate settings into arguments of the algorithm's class."""
    arguments = copy.deepcopy({key: value for key, value in settings.items() if key not in OWN})
    for key in ("learning_rate", "clip_range"):
        if key in arguments:
            arguments[key] = schedule(arguments[key])
    if settings.get("clock"):
        clock = clock_kwargs(model, venv.get_attr("layout")[0].ahead)
        arguments["policy_kwargs"] = {**(arguments.get("policy_kwargs") or {}), **clock}
    if settings.get("noise_type") is not None:
        check_choice(settings["noise_type"], "noise_type", ("normal",))
        size, std = venv.action_space.shape, settings.get("noise_std", OWN["noise_std"])
        arguments["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, std))
    return arguments


# ------------------------------------------------------------------ training
class LibraryTrainer:
    """A learner of a library with environments like `core` that it is trained in, or on `models` (`training_env`).

    `seed` is that of everything, `total` are the steps of the whole training. Logs for TensorBoard go to the folder
    `log`, in which nothing is written before `learn`.
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
        self.seed, self.total, self.log, self.codes = seed, total, log, codes_of(settings, core)
        try:
            arguments = algorithm_arguments(settings, core.model, self.venv)
            self.policy = kind(settings["policy"], self.venv, seed=seed, device="cpu", **arguments)
        except (AssertionError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).strip().rstrip(".") or type(error).__name__
            raise ValueError(f"{kind.__name__} cannot be trained here with these settings: {reason}.") from error
        self.predict = self.policy.predict

    def learn(self, watch: Watch) -> None:
        """Train from where the record stands to the end or the target."""
        # Asked to log nowhere, configure makes a folder all the same.
        logger = Logger(None, []) if self.log is None else configure(str(self.log), ["tensorboard"])
        self.policy.set_logger(logger)
        rest = self.total - watch.record.steps
        self.policy.learn(rest, callback=Segments(watch, self.seed), reset_num_timesteps=False)
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
            for name in filter(lambda name: hasattr(buffer, name), _BUFFER):
                kept = np.asarray(state["buffer"][name])
                getattr(buffer, name)[: len(kept)] = kept
            buffer.pos, buffer.full = state["position"]


class Segments(BaseCallback):
    """Reseed at every cut, which waits for the end of the rollout under way; stop at the target."""

    def __init__(self, watch: Watch, seed: int) -> None:
        super().__init__()
        self.watch, self.seed = watch, seed

    def _on_training_start(self) -> None:
        self.planned, self.due = int(self.model._total_timesteps), self.num_timesteps

    def _on_rollout_start(self) -> None:
        if self.num_timesteps < self.due or self.watch.reached:
            return
        if self.watch.record.steps < self.num_timesteps or not self.watch.record.curve:  # else: resumed right here
            self._cut()
        self.due = (self.num_timesteps // self.watch.interval + 1) * self.watch.interval
        begin_segment(self.model, self.seed)

    def _on_step(self) -> bool:
        self.watch.progress(self.num_timesteps, self.planned, self.watch.latest)
        return not self.watch.reached

    def _on_training_end(self) -> None:
        if not self.watch.reached:
            self._cut()

    def _cut(self) -> None:
        self.watch.cut(int(self.num_timesteps))
        self.logger.record("score", self.watch.latest)
        self.logger.dump(self.num_timesteps)


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
