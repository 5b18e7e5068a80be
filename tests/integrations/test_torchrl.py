"""TorchRL: specs, rollouts equal to ours on single and vector environments, and the page's PPO."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from torchrl.envs import GymEnv, GymWrapper, check_env_specs

ID = "dp_ensemble_env:dp_ensemble/CampusEvent-v1"
HORIZON, SIGNALS = 18, 6


def act(tensordict):
    """Depend on everything that is seen, so that a wrong observation shows in the rewards."""
    seen = tensordict["observation"]
    weights = torch.linspace(-1.0, 1.0, seen.shape[-1])
    number = torch.tanh((seen * weights).sum(-1, keepdim=True))
    return tensordict.set("action", number.repeat_interleave(SIGNALS, -1))


def assert_episode_is_ours(episode):
    """Play it again in an environment of our own, and return the start state."""
    start = int(episode["observation"][0, :20].argmax())
    env = gymnasium.make(ID)
    env.reset(options={"state": start})
    steps = [env.step(action) for action in episode["action"].numpy()]
    observations, rewards, terminated, truncated, infos = zip(*steps, strict=True)
    after = episode["next"]
    np.testing.assert_allclose(after["reward"].squeeze(-1), rewards, rtol=1e-6)
    np.testing.assert_array_equal(after["observation"], observations)
    np.testing.assert_array_equal(episode["observation"][1:], observations[:-1])
    assert tuple(after["terminated"].squeeze(-1).tolist()) == terminated == (False,) * (HORIZON - 1) + (True,)
    assert not after["truncated"].any() and not any(truncated)
    if "power_kw" in after.keys():
        for key in ("time", "power_kw", "optimal_return"):
            np.testing.assert_array_equal(after[key], [info[key] for info in infos])
    return start


def test_rollouts_of_one_environment_are_ours():
    env = GymEnv(ID)
    env.set_seed(3)
    starts = {assert_episode_is_ours(env.rollout(100, act)) for _ in range(5)}
    assert len(starts) > 1  # the episodes differ


@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
def test_rollouts_of_the_vector_environment_are_ours(mode):
    vector = gymnasium.make_vec(ID, num_envs=5, vectorization_mode="vector_entry_point", autoreset_mode=mode)
    env = GymWrapper(vector)
    if mode == "DISABLED":
        env.auto_register_info_dict()
    check_env_specs(env, seed=0)
    env.set_seed(7)
    rollout = env.rollout(3 * HORIZON, act, break_when_any_done=False)
    assert rollout.batch_size == (5, 3 * HORIZON) and ("next", "power_kw") in rollout.keys(include_nested=True)
    starts = {assert_episode_is_ours(episode) for row in rollout for episode in row.split(HORIZON)}
    assert len(starts) > 1  # the episodes differ


def test_page(run_page):
    assert 80 <= run_page("torchrl")["score"] <= 100
