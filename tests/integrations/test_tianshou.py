"""Tianshou: collected episodes equal to ours, and the page's PPO."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, SubprocVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic
from torch.distributions import Independent, Normal

HORIZON = 18


def make():
    return gymnasium.make("dp_ensemble_env:dp_ensemble/CampusEvent-v1")


@pytest.mark.parametrize("kind", [DummyVectorEnv, SubprocVectorEnv])
@pytest.mark.filterwarnings("ignore:action_scaling")
def test_collected_episodes_are_ours(kind):
    torch.manual_seed(0)
    env = make()
    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(state_shape=env.observation_space.shape, hidden_sizes=(8,)),
        action_shape=(1,),
        unbounded=True,
    )
    policy = ProbabilisticActorPolicy(
        actor=actor, dist_fn=lambda p: Independent(Normal(*p), 1), action_space=env.action_space
    )
    envs, buffer = kind([make] * 3), VectorReplayBuffer(3 * 3 * HORIZON, 3)
    envs.seed(0)
    stats = Collector(policy, envs, buffer).collect(n_step=3 * 2 * HORIZON, reset_before_collect=True)
    envs.close()
    assert stats.n_collected_episodes == 6 and set(stats.lens) == {HORIZON}
    returns = []
    for part in buffer.buffers:
        batch = part[:]
        assert batch.terminated.tolist() == ([False] * (HORIZON - 1) + [True]) * 2 and not batch.truncated.any()
        assert np.abs(batch.act).max() > 1  # so that clipping matters
        for t, row in enumerate(batch):
            if t % HORIZON == 0:
                env.reset(options={"state": int(row.obs[:20].argmax())})
                returns.append(0.0)
            observation, reward, terminated, _, info = env.step(policy.map_action(row.act))
            np.testing.assert_array_equal(row.obs_next, observation)
            assert (row.rew, row.terminated, row.info.power_kw) == (reward, terminated, info["power_kw"])
            returns[-1] += reward
    np.testing.assert_allclose(sorted(stats.returns), sorted(returns), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:action_scaling")
def test_page(run_page):
    assert 80 <= run_page("tianshou")["score"] <= 100
