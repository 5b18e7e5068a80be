"""README, pages and cards show what was recorded, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pages
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli.main import main
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.probes import recorded

ROOT = Path(__file__).parents[2]


def test_readme_and_pages_are_current():
    for path, text in pages.texts(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, f"{path} is out of date; run make scenario-pages"


def test_the_table_says_what_each_scenario_tests():
    rows = {line.split("](")[0].strip("| ["): line for line in pages.probe_table().splitlines()[2:]}
    assert list(rows) == list(scenarios.BUILT_IN)
    for name, row in rows.items():
        one = recorded(name)[0]
        shown = [float(word.replace("−", "-")) for word in row.split("|")[3:-1]]
        signals = one.modes["signals"]
        expected = [one.open_loop, one.blind, one.public_guess, one.myopic]
        expected += [signals.constant, signals.by_context, signals.ceiling]
        np.testing.assert_allclose(shown, expected, atol=0.051)
        assert ("memory" in row) == (name == "front") and ("shares" in row) == (name == "depot")


@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_cards_fit_80_columns_and_show_the_probes(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["scenarios", name]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    flat, one = " ".join(printed.split()), recorded(name)[0]
    constant = one.modes["policy"].constant
    for words in (f"policy mode constant {constant:.1f}, by context", f"best open loop {one.open_loop:.1f}"):
        assert words in flat


@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_pages_state_the_spaces_of_the_environments(name):
    page = " ".join((ROOT / "docs" / "scenarios" / f"{name}.md").read_text(encoding="utf-8").split())
    env = EnsembleEnv(name, action="tilt")
    assert f"`Box(0, 1, ({env.observation_space.shape[0]},))`" in page
    assert f"`tilt` {env.action_space.shape[0]}," in page and "`discrete` 11." in page
    assert f"${env.model.discomfort_penalty:.3g} per nat" in page
