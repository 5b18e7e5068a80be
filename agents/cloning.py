"""Behaviour cloning: a network that imitates the optimal plans of the instances it is made on, by least squares.

The expert plays each instance of the environment, in its action mode. A signal cannot express every tilt, so there the
expert plays the nearest signals. The clone sees what any agent sees, so on other instances it has to tell from an
observation what the expert knew from the model.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from dp_ensemble_env.agents.apg import GradientPolicy
from dp_ensemble_env.agents.base import FloatArray, Kind, core_env, privacy_of
from dp_ensemble_env.agents.learners import one_thread, population_of
from dp_ensemble_env.agents.loading import LearnedAgent
from dp_ensemble_env.agents.plans import plain_tilts
from dp_ensemble_env.control.returns import optimal_tilts
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.vector import EnsembleVectorEnv
from dp_ensemble_env.model import EnsembleModel

#: Passes over the pairs, pairs of an update, width of the two layers, rate of Adam.
PASSES, BATCH, WIDTH, RATE = 20, 256, 64, 1e-3


def cloning(env: Any, steps: int = 20_000, seed: int = 0) -> LearnedAgent:
    """Play the expert for `steps` decisions, spread over the instances, and fit a network to them."""
    import torch

    core: Any = core_env(env)
    mode = actions.mode(core.action_mode)
    if mode.basis is None or mode.levels:
        raise ValueError(f"a clone chooses numbers, got action={core.action_mode!r}; pass action='signals' or 'tilt'.")
    share = max(1, steps // (core.model.horizon * len(core.models)))
    parts = [_played(model, core, share, seed + i * share) for i, model in enumerate(core.models)]
    seen, done = (torch.as_tensor(np.concatenate(part), dtype=torch.float32) for part in zip(*parts, strict=True))
    with one_thread():
        torch.manual_seed(seed)
        linear = [torch.nn.Linear(a, b) for a, b in pairwise((seen.shape[1], WIDTH, WIDTH, done.shape[1]))]
        network = torch.nn.Sequential(linear[0], torch.nn.Tanh(), linear[1], torch.nn.Tanh(), linear[2])
        optimizer = torch.optim.Adam(network.parameters(), RATE)
        for _ in range(PASSES):
            for rows in torch.split(torch.randperm(len(seen)), BATCH):  # type: ignore[no-untyped-call]
                optimizer.zero_grad()
                loss: Any = torch.nn.functional.mse_loss(network(seen[rows]), done[rows])
                loss.backward()
                optimizer.step()
    layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in linear]
    privacy = privacy_of(core, "none: learned from the true dynamics")
    return LearnedAgent(GradientPolicy(layers), "cloning", privacy=privacy, steps=len(seen))


def _played(model: EnsembleModel, core: Any, episodes: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return the observations and actions of the expert in one instance."""
    mode, nats = actions.mode(core.action_mode), plain_tilts(model, optimal_tilts(model))
    fitted = actions.centred_actions(model, nats, False) if mode.tilt else actions.actions_of(mode, model, nats)
    numbers = fitted.reshape(model.horizon, model.n_contexts, -1)
    env = EnsembleVectorEnv(
        episodes, model=model, population=population_of(core), action=core.action_mode,
        autoreset_mode=AutoresetMode.DISABLED, ahead=core.layout.ahead,
    )  # fmt: skip
    observation, _ = env.reset(seed=seed)
    seen, done = [], []
    for t in range(model.horizon):
        action = numbers[t, env.context].astype(np.float32)
        seen.append(observation.copy())
        done.append(action)
        observation, *_ = env.step(action)
    return np.concatenate(seen), np.concatenate(done)


KINDS: dict[str, Kind] = {"cloning": Kind(cloning, learns=True)}
