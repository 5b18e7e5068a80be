"""README, pages and cards show what was recorded, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pages
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli.main import main
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.envs.registration import ACTIONS
from dp_ensemble_env.experiments.probes import recorded
from dp_ensemble_env.experiments.runner import read_results
from dp_ensemble_env.experiments.standings import Standings, by_problem
from dp_ensemble_env.reporting.animation import HEIGHT, WIDTH

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"


def test_readme_and_pages_are_current():
    for path, text in pages.texts(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, f"{path} is out of date; run make scenario-pages"


def test_the_readme_shows_every_scenario():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in scenarios.BUILT_IN:
        assert f"docs/images/scenarios/{name}.gif" in readme and f"](docs/scenarios/{name}.md)" in readme


def test_the_overview_shows_every_mode_of_every_scenario_as_recorded():
    overview = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8").replace("−", "-")
    for name in scenarios.BUILT_IN:
        row = re.findall(rf"^\| \[{name}\].*$", overview, flags=re.MULTILINE)[0]
        shown = [float(number) for number in re.findall(r"-?\d+\.\d", row)]
        one = recorded(name)[0]
        expected = [one.open_loop, one.public_guess]
        expected += [score for mode in one.modes.values() for score in (mode.constant, mode.ceiling)]
        np.testing.assert_allclose(shown, expected, atol=0.051)
        assert ("feedback" in row) == (one.open_loop <= 85) and ("data" in row) == (one.public_guess <= 85)


def test_every_scenario_has_its_picture():
    image = pytest.importorskip("PIL.Image")
    total = 0
    for name in scenarios.BUILT_IN:
        path = IMAGES / "scenarios" / f"{name}.gif"
        with image.open(path) as picture:
            assert picture.size == (WIDTH, HEIGHT) and picture.n_frames == 1 + scenarios.make(name).horizon
        total += path.stat().st_size
    assert total < 2_500_000


def test_the_recorded_leaderboard_covers_every_scenario_and_shows_learners():
    standings = Standings(read_results(ROOT / "docs" / "leaderboard.json")[1])
    assert set(standings.problems) <= set(scenarios.BUILT_IN)
    assert {"uncontrolled", "best-price", "myopic", "without-data", "standard"} < set(standings.agents)
    assert {standings.knows(agent) for agent in standings.agents} >= {"other instances", "a release"}
    overview = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    for row in by_problem(standings)[1]:
        assert " | ".join(row) in overview


@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_cards_fit_80_columns_and_say_everything(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["scenarios", name]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    labels = {line[:15].strip() for line in printed.splitlines()[1:]}
    needed = {"story", "states", "private", "sources", "environment", "probes"}
    assert needed | {f"{mode} mode" for mode in ACTIONS} <= labels
    flat = " ".join(printed.split())
    one = recorded(name)[0]
    for words in (f"constant {one.modes['policy'].constant:.1f}", f"best open loop {one.open_loop:.1f}"):
        assert words in flat


@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_pages_state_the_spaces_of_the_environments(name):
    page = " ".join((ROOT / "docs" / "scenarios" / f"{name}.md").read_text(encoding="utf-8").split())
    env = EnsembleEnv(name)
    assert f"`Box(0, 1, ({env.observation_space.shape[0]},))`" in page
    assert f"`tilt` {env.action_space.shape[0]};" in page and "`discrete` 11 prices" in page
    assert f"less {env.model.discomfort_penalty:.3g} $ per nat" in page


def test_a_readme_without_a_place_is_refused(tmp_path):
    (tmp_path / "README.md").write_text("nothing")
    with pytest.raises(ValueError, match="no place for the scenarios"):
        pages.texts(tmp_path)


def test_first_sentences():
    assert pages.first_sentence("One at 10:00. Two.") == "One at 10:00."
    assert pages.first_sentence("Only one") == "Only one"
