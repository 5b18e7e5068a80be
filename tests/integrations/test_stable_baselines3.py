"""Stable-Baselines3: its own check of environments, and the page."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import gymnasium
import pytest
from stable_baselines3.common.env_checker import check_env

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("population", ["mean-field", 100, "single"])
@pytest.mark.parametrize("action", ["signals", "price", "tilt"])
def test_check_env_has_nothing_to_say(population, action):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env_id = f"dp_ensemble_env:dp_ensemble/CampusEvent-{action}-v1"
        check_env(gymnasium.make(env_id, population=population).unwrapped)


def test_page(run_page):
    names = run_page("stable_baselines3")
    assert 80 <= names["plain"] <= 100 and names["untuned"].num_timesteps == 49_152
    assert 80 <= names["short"] <= 100
    assert 60 <= names["score"] <= 100 and names["steps"] == 49_920


def test_command_of_the_page(shell_commands, shell):
    (command,) = shell_commands("stable_baselines3")
    shell(f"{command.replace('scripts/', f'{ROOT}/scripts/')} --steps 2880")
    results = json.loads(Path("runs/ppo-call-price-seed0/results.json").read_text())
    assert results["finished"] and results["steps"] == 2560
    assert 0 < results["evaluation"]["score"] <= 100  # better than doing nothing after two rollouts
