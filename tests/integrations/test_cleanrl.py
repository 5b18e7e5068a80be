"""The PPO in a single file: what the page says, what it writes, what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium
import numpy as np
import ppo_single_file
import pytest
import torch

from dp_ensemble_env.agents import evaluate

ROOT = Path(__file__).parents[2]
SHORT = ["--num-envs", "4", "--total-steps", "600", "--epochs", "2"]


def load(file):
    env = gymnasium.make("dp_ensemble_env:dp_ensemble/Call-v1")
    agent = ppo_single_file.PPOAgent(env.observation_space.shape[0], env.action_space.shape[0], 0.0)
    agent.load_state_dict(torch.load(file, weights_only=True))
    return agent


def test_loop_of_the_page(run_page):
    names = run_page("cleanrl")
    env = gymnasium.make(names["ID"])
    for seed, total in enumerate(names["totals"][:16]):  # the first episode of every environment is ours, whole
        env.reset(seed=seed)
        assert np.isclose(sum(env.step(np.full(6, 0.2))[1] for _ in range(64)), total, rtol=1e-9)


def test_command_of_the_page(shell_commands, shell):
    (command,) = shell_commands("cleanrl")
    printed = shell(command.replace("docs/", f"{ROOT}/docs/")).stdout
    score, file = re.search(r"score (\S+), weights in (\S+)", printed).groups()
    exact = evaluate(load(file), gymnasium.make("dp_ensemble_env:dp_ensemble/Call-v1"), seed=10_000)
    assert f"{exact.score:.1f}" == score
    assert 85 <= exact.score <= 100


def test_runs_are_repeatable_and_seeds_matter(capsys):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert ppo_single_file.main([*SHORT, "--seed", str(seed), "--output", f"new/{name}.pt"]) == 0
    capsys.readouterr()
    first, same, other = (load(f"new/{name}.pt").state_dict() for name in "abc")
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env-id", "dp_ensemble/CampusEvnt-v1"], "did you mean 'dp_ensemble/CampusEvent-v1'"),
        (["--env-id", "dp_ensemble/CampusEvent-policy-v1"], "--env-id"),
        (["--population", "meanfield"], "did you mean 'mean-field'"),
        (["--total-steps", "100"], "at least 256, one episode"),
        (["--num-envs", "0"], "--num-envs"),
        (["--seed", "-1"], "--seed"),
        (["--gae-lambda", "1.5"], "between 0 and 1"),
        (["--learning-rate", "nan"], "--learning-rate"),
        (["--log-std", "inf"], "finite"),
        (["--output", "."], "is a folder"),
        (["--output", "file/new.pt"], "choose another --output"),
    ],
)
def test_bad_input_gets_one_sentence(arguments, message, capsys):
    Path("file").write_text("kept")
    assert ppo_single_file.main([*SHORT, *arguments]) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.strip()]
    assert not out and len(lines) == 1 and lines[0].startswith("ppo_single_file: ") and message in lines[0]
    assert Path("file").read_text() == "kept"
