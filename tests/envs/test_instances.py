"""Several instances in one environment of Stable-Baselines3."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import random_model

from dp_ensemble_env.agents.hyperparams import reward_scale
from dp_ensemble_env.envs.ensemble import EnsembleEnv

pytestmark = pytest.mark.torch
HORIZON = 3


def make(num_envs: int, count: int, **settings):
    from dp_ensemble_env.envs.instances import InstancesVecEnv

    models = [random_model(seed, n=4, horizon=HORIZON) for seed in range(count)]
    return InstancesVecEnv(num_envs, models, action="price", **settings), models


@pytest.mark.parametrize(("num_envs", "count", "groups"), [(6, 3, 3), (4, 3, 2), (2, 5, 2), (5, 3, 1)])
def test_every_model_is_played_equally_often(num_envs: int, count: int, groups: int) -> None:
    env, _ = make(num_envs, count)
    assert env.groups == groups and env.size * env.groups == num_envs
    env.reset()
    played = np.zeros(count, int)
    for _ in range(count):
        for i in env.playing:
            played[i] += 1
        for step in range(HORIZON):
            _, _, dones, _ = env.step(np.zeros((num_envs, 1), np.float32))
            assert dones.all() == dones.any() == (step == HORIZON - 1)
    assert (played == groups).all()


def test_steps_are_those_of_the_instance_that_is_played() -> None:
    env, models = make(2, 3)
    env.seed(5)
    first = env.reset()
    price = np.full((2, 1), 0.4, np.float32)
    order, returns = [], []
    for _ in range(3):
        playing, starts, total = env.playing, first, np.zeros(2)
        for _ in range(HORIZON):
            first, rewards, _, infos = env.step(price)
            total += rewards
        order.append(playing)
        for g, i in enumerate(playing):
            alone = EnsembleEnv(models[i], action="price")
            alone.reset(options={"state": int(np.argmax(starts[g][:4]))})
            expected = sum(alone.step(price[g])[1] for _ in range(HORIZON))
            assert total[g] == pytest.approx(expected, rel=1e-6)
            assert infos[g]["episode"]["r"] == pytest.approx(expected, rel=1e-6)
            returns.append(expected)
    assert sorted(np.ravel(order)) == [0, 0, 1, 1, 2, 2]
    assert len(set(np.round(returns, 6))) > 2


def test_equal_seeds_give_equal_episodes_and_rewards_have_the_unit_of_each() -> None:
    from dp_ensemble_env.agents.features import ScaledRewards

    plain, models = make(4, 3)
    scaled, _ = make(4, 3, wrap=lambda env, model: ScaledRewards(env, reward_scale(model)))
    for env in (plain, scaled):
        env.seed(7)
    np.testing.assert_array_equal(plain.reset(), scaled.reset())
    action = np.full((4, 1), -0.3, np.float32)
    units = np.repeat([reward_scale(models[i]) for i in plain.playing], 2)
    np.testing.assert_allclose(plain.step(action)[1] * units, scaled.step(action)[1], rtol=1e-6)


def test_models_of_other_shapes_are_refused() -> None:
    from dp_ensemble_env.envs.instances import InstancesVecEnv

    with pytest.raises(ValueError, match="equal"):
        InstancesVecEnv(2, [random_model(0, n=4), random_model(1, n=5)])
    with pytest.raises(ValueError, match="at least one"):
        InstancesVecEnv(2, [])
    env, _ = make(2, 2)
    with pytest.raises(ValueError, match="cannot set"):
        env.set_attr("population", 3)
    assert env.get_attr("action_mode") == ["price", "price"]


def test_a_learner_trains_on_instances_and_resumes_where_it_was(tmp_path) -> None:
    from dp_ensemble_env.agents.sb3 import RunFolder, TrainingSettings, train

    models = [random_model(seed, n=4, horizon=HORIZON) for seed in range(3)]
    env = EnsembleEnv(models[0], action="price")
    changes = {"n_envs": 4, "n_steps": 3, "batch_size": 6, "n_epochs": 1}
    settings = TrainingSettings(0, 48, interval=24, hyperparams=changes)
    whole = train("ppo", env, settings, models=models)
    again = train("ppo", env, settings, models=models, keep=RunFolder(tmp_path / "run"))
    alone = train("ppo", env, settings)
    observation = np.full((1, 7), 0.3, np.float32)
    one, two, three = (agent.predict(observation)[0] for agent in (whole, again, alone))
    assert one == pytest.approx(two) and one != pytest.approx(three)
    with pytest.raises(ValueError, match="another configuration"):
        train("ppo", env, settings, keep=RunFolder(tmp_path / "run", resume=True))
