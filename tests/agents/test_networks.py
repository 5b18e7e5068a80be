"""Networks that learn from the model: exact gradients and their files; a clone is as good as the plan it imitates."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import ROOT

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.agents.learners import tuned_settings
from dp_ensemble_env.agents.loading import GradientPolicy, load_policy, save_policy
from dp_ensemble_env.agents.networks import Trainer
from dp_ensemble_env.agents.train import RunFolder, TrainingSettings, train
from dp_ensemble_env.envs.ensemble import EnsembleEnv

UPDATE = 20 * 18
SETTINGS = tuned_settings("apg", "mean-field", "tilt")


def short(steps=2 * UPDATE, *, keep=None, **settings):
    return train("apg", EnsembleEnv("campus-event"), TrainingSettings(steps=steps, **settings), keep=keep)


# ------------------------------------------------------------------ the gradient and the table
def test_gradient_is_that_of_the_compiled_environment(campus):
    """Against differences of the exact mean return, which the compiled environment and `evaluate` give."""
    model = campus.override(initial=np.eye(campus.n_states)[12])  # one start, so that nothing is sampled
    settings = {**SETTINGS, "learning_rate": 1e-12, "n_envs": 2, "max_grad_norm": 1e9}
    trainer, env = Trainer([model], "tilt", settings, seed=0, total=1000), EnsembleEnv(model)
    bias, step = trainer.linear[-1].bias, 3e-3
    with torch.no_grad():  # some policy, inside the box
        bias.copy_(torch.linspace(0.3, -0.3, campus.n_states))
    trainer.update()
    found = bias.grad.numpy().copy()
    for level in (8, 13):
        values = []
        for move in (step, -step):
            with torch.no_grad():
                bias[level] += move
                values.append(evaluate(trainer.policy, env).mean_return / campus.discomfort_penalty)
                bias[level] -= move
        assert -found[level] == pytest.approx((values[0] - values[1]) / (2 * step), rel=0.02, abs=0.02)


@pytest.mark.parametrize("scenario", ["campus-event", "spot"])
def test_table_adds_an_action_by_time_and_context(scenario):
    """What PyTorch trains is what NumPy plays: network, plus entry of the decision, plus those of the context."""
    model = scenarios.make(scenario)
    trainer = Trainer([model], "tilt", {**SETTINGS, "n_envs": 2}, seed=0, total=10_000)
    shown = 0 if model.context is None else 3
    assert trainer.table.shape == (model.horizon, 1 + shown, model.n_decisions) and not trainer.table.any()
    table = np.random.default_rng(0).uniform(-0.2, 0.2, trainer.table.shape).astype(np.float32)
    with torch.no_grad():
        trainer.table.copy_(torch.from_numpy(table))
    env, alone = EnsembleEnv(model), GradientPolicy(trainer.policy.layers)
    observation, _ = env.reset(seed=1)
    for t in range(model.horizon):
        action = trainer.predict(observation)[0]
        added = table[t, 0] + (0.0 if model.context is None else table[t, 1 + env.context])
        np.testing.assert_allclose(action, alone.predict(observation)[0] + added, atol=1e-6)
        np.testing.assert_allclose(action, trainer.act(torch.from_numpy(observation)).detach(), atol=1e-6)
        pair = np.stack([observation, observation])
        np.testing.assert_allclose(trainer.predict(pair)[0], [action, action], atol=1e-6)
        observation, *_ = env.step(action)
    assert np.isfinite(trainer.predict(observation)[0]).all()  # after the end, where nobody acts


# ------------------------------------------------------------------ learning
def test_learns_the_campus_event_in_seven_thousand_steps():
    agent = short(20 * UPDATE, interval=10 * UPDATE)
    assert agent.steps == 20 * UPDATE and 97 < agent.curve[-1][1] <= 100
    assert agent.curve[0][1] == pytest.approx(0.0, abs=1.0)  # it begins by leaving the loads alone


# ------------------------------------------------------------------ files
def test_loaded_without_torch_and_without_code(tmp_path):
    agent = short(keep=RunFolder(tmp_path / "run"))
    code = (
        "import sys; from dp_ensemble_env.agents.loading import load_agent; "
        f"agent = load_agent({str(tmp_path / 'run')!r}); "
        "import numpy as np; print(repr(agent)); print(agent.predict(np.full(25, 0.5))[0].tolist()); "
        "assert 'torch' not in sys.modules and 'stable_baselines3' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    shown, action = run.stdout.splitlines()
    assert shown == repr(agent)
    np.testing.assert_allclose(json.loads(action), agent.predict(np.full(25, 0.5))[0], atol=1e-6)


def test_tables_and_layers_that_do_not_fit_are_refused(tmp_path):
    file, layers = tmp_path / "policy.safetensors", short().model.layers
    save_policy(file, GradientPolicy(layers), "apg")
    assert load_policy(file)[0].table is None
    for shape in ((18, 20), (18, 1, 19), (0, 1, 20), (18, 22, 20)):
        save_policy(file, GradientPolicy(layers, np.zeros(shape, np.float32)), "apg")
        with pytest.raises(ValueError, match="its table does not fit its layers"):
            load_policy(file)
    save_policy(file, GradientPolicy(layers[::-1]), "apg")
    with pytest.raises(ValueError, match="its layers do not fit each other"):
        load_policy(file)


def test_actions_stay_in_the_box():
    policy = GradientPolicy([(np.full((2, 3), 9.0, np.float32), np.zeros(2, np.float32))])
    one, state = policy.predict(np.ones(3), state="mine")
    assert one.dtype == np.float32 and one.tolist() == [1.0, 1.0] and state == "mine"
    assert policy.predict(-np.ones((5, 3)))[0].tolist() == [[-1.0, -1.0]] * 5


# ------------------------------------------------------------------ behaviour cloning
def test_a_clone_is_as_good_as_the_plan_where_one_instance_is_all(campus):
    env, threads = EnsembleEnv(campus, action="tilt"), torch.get_num_threads()
    agent = make_agent("cloning", env, steps=18_000, seed=1)
    assert torch.get_num_threads() == threads and agent.steps == 18_000
    assert 97 < evaluate(agent, env).score <= 100


def test_several_instances_share_the_steps_and_signals_are_the_nearest():
    models = [scenarios.make("spot", instance=i) for i in range(2)]
    env, one = (EnsembleEnv(of, action="signals") for of in (models, models[0]))
    made = make_agent("cloning", env, steps=10_000, seed=3)
    assert made.steps == 10_000 // (2 * env.model.horizon) * 2 * env.model.horizon
    assert evaluate(made, env, episodes=64).score > 50
    trained = train("cloning", one, TrainingSettings(3, 10_000), models=models)
    observation, _ = env.reset(seed=3)
    np.testing.assert_array_equal(trained.predict(observation)[0], made.predict(observation)[0])
    with pytest.raises(ValueError, match="pass action='signals'"):
        make_agent("cloning", EnsembleEnv("spot", action="discrete"))
