"""RL Baselines3 Zoo: the page's commands, and every module of settings."""

from __future__ import annotations

import importlib
import re
import sys

import gymnasium
import numpy as np
import pytest
import rl_zoo3.enjoy
import rl_zoo3.train
from stable_baselines3 import PPO

from dp_ensemble_env.agents.learners import LIBRARIES, recorded

ID = "dp_ensemble/CampusEvent-v1"
IDS = {"price": "dp_ensemble/CampusEvent-price-v1", "tilt": "dp_ensemble/CampusEvent-tilt-v1"}
#: The name of each learner there, and the action modes that it was tuned for.
MODULES = [(algo, action) for algo in LIBRARIES for action in recorded(algo)["mean-field"]]
THEIRS = {"recurrent-ppo": "ppo_lstm"}
RUN = f"logs/ppo/{ID.replace('/', '-')}_1"


def returns_by_state(model, **settings):
    """Return what the agent earns from every start state, by a loop of our own."""
    env = gymnasium.make(f"dp_ensemble_env:{ID}", **settings)
    returns = []
    for state in range(env.unwrapped.model.n_states):
        observation, _ = env.reset(options={"state": state})
        total, over = 0.0, False
        while not over:
            observation, reward, over, _, _ = env.step(model.predict(observation, deterministic=True)[0])
            total += reward
        returns.append(total)
    return np.array(returns), env.unwrapped.model


def numbers(pattern, text):
    return [float(number) for number in re.findall(pattern, text)]


def test_commands_of_the_page(shell_commands, shell, run_page):
    train, enjoy = shell_commands("rl_zoo3")
    log = shell(train).stdout
    played = shell(enjoy).stdout
    names = run_page("rl_zoo3")
    assert 80 <= names["score"] <= 100
    # What enjoy plays are whole episodes of the same environment: their mean is the score.
    episodes = numbers(r"Episode Reward: (\S+)", played)
    assert len(episodes) == 1000 // 64 and len(set(episodes)) > 1
    (mean,) = numbers(r"Mean reward: (\S+)", played)
    assert mean == pytest.approx(np.mean(episodes), abs=0.006)
    assert abs(mean - names["score"]) < 5 * np.std(episodes) / len(episodes) ** 0.5
    saved = np.load("logs/ppo/dp_ensemble-Call-v1_1/evaluations.npz")
    assert len(saved["timesteps"]) >= 2 and "New best mean reward" in log


def run(monkeypatch, module, *arguments, env=ID):
    monkeypatch.setattr(sys, "argv", [module.__name__, "--env", env, "--gym-packages", "dp_ensemble_env", *arguments])
    getattr(module, module.__name__.rpartition(".")[2])()


@pytest.mark.parametrize(("algo", "action"), MODULES)
def test_every_module_trains_evaluates_and_plays(algo, action, monkeypatch, capsys):
    name, theirs = f"dp_ensemble_env.agents.zoo.{algo.replace('-', '_')}", THEIRS.get(algo, algo)
    settings = importlib.import_module(name).hyperparams[IDS[action]]
    steps = settings["n_envs"] * settings.get("n_steps", 50)
    steps = max(steps, settings.get("learning_starts", 0) + 10 * settings["n_envs"])
    budget = ("-n", str(steps), "--eval-freq", str(steps // 2), "--eval-episodes", "1")
    fixed, env = ("--seed", "0", "--num-threads", "1"), IDS[action]
    run(monkeypatch, rl_zoo3.train, "--algo", theirs, "-conf", name, *budget, *fixed, env=env)
    run(monkeypatch, rl_zoo3.enjoy, "--algo", theirs, "-f", "logs", "--no-render", "-n", "36", env=env)
    printed = capsys.readouterr().out
    assert "Eval num_timesteps" in printed and "2 Episodes" in printed and "Mean episode length: 18.00" in printed


def test_arguments_of_the_environment_reach_training_and_playing(monkeypatch, capsys):
    private = ("--env-kwargs", "privacy:'dirichlet:k=20'", "release_seed:5")
    arguments = "--algo ppo -conf dp_ensemble_env.agents.zoo.ppo -n 288 --eval-freq 144 --seed 0".split()
    run(monkeypatch, rl_zoo3.train, *arguments, *private)
    capsys.readouterr()
    run(monkeypatch, rl_zoo3.enjoy, "--algo", "ppo", "-f", "logs", "--no-render", "-n", "90")
    episodes = numbers(r"Episode Reward: (\S+)", capsys.readouterr().out)
    model = PPO.load(f"{RUN}/{ID.replace('/', '-')}.zip")
    private_returns, _ = returns_by_state(model, privacy="dirichlet:k=20", release_seed=5)
    true_returns, _ = returns_by_state(model)
    assert len(episodes) == 5
    assert max(np.abs(private_returns - episode).min() for episode in episodes) < 0.006
    assert max(np.abs(true_returns - episode).min() for episode in episodes) > 0.006  # it is not the true dynamics
