"""What the learners see and earn: parts of Stable-Baselines3 networks and environments (imports torch)."""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from numpy.typing import NDArray
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvWrapper

from dp_ensemble_env.agents.hyperparams import cosine_space, tilts_of_weights
from dp_ensemble_env.envs.tables import AHEAD, Layout


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
    ahead, context_features : int
        How many prices, limits or targets an observation has, and how many features of the context.
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


def clock_kwargs(layout: Layout, coupled: bool = False) -> dict[str, Any]:
    """Return the policy_kwargs that install `ClockFeatures`."""
    shown = {"context_features": layout.features.shape[1], "ahead": layout.ahead, "coupled": coupled}
    settings = {"horizon": layout.horizon, **shown}
    return {"features_extractor_class": ClockFeatures, "features_extractor_kwargs": settings}


class CosineWeights(VecEnvWrapper):
    """Actions are weights of cosines over the decisions; the environments take the tilts that these stand for."""

    def __init__(self, venv: VecEnv, cosines: int) -> None:
        (self.decisions,) = venv.action_space.shape  # type: ignore[misc]
        super().__init__(venv, action_space=cosine_space(cosines, self.decisions))

    def reset(self) -> Any:
        """Reset all sub-environments."""
        return self.venv.reset()

    def step_async(self, actions: NDArray[Any]) -> None:
        """Begin a step with the tilts."""
        self.venv.step_async(tilts_of_weights(actions, self.decisions))

    def step_wait(self) -> Any:
        """End the step."""
        return self.venv.step_wait()
