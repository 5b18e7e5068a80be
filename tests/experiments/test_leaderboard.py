"""The leaderboard: two tracks, resumed, recomputed, refused when changed; submissions, also cheating ones; the page."""

from __future__ import annotations

import datetime
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from dp_ensemble_env import EnsembleModel, scenarios
from dp_ensemble_env.cli.main import main
from dp_ensemble_env.context import Context
from dp_ensemble_env.experiments import leaderboard, runner
from dp_ensemble_env.experiments.leaderboard import GUESS, OPEN, PRIVATE, Line, cells, release_by, track_of
from dp_ensemble_env.experiments.leaderboard_page import Board, noise, page, split, write_agents
from dp_ensemble_env.experiments.runner import Row, Supplies, read_results

ROOT = Path(__file__).parents[2]
ADAPTIVE = release_by("adaptive")
CONSTANT = "import numpy as np\ndef predict(o, state=None, episode_start=None, deterministic=True):\n"
CONSTANT += "    return np.full((len(o), 1), {}, np.float32), state\n"
#: Looks for a model, a policy or a row that would tell the truth: in the environment, in all objects and in the store.
CHEAT = """
import gc, json, pathlib
import numpy as np
from dp_ensemble_env import EnsembleModel

def make(env):
    core = env.unwrapped
    core.optimal_policy

    def tell():
        known = {one.fingerprint for one in (core.model, *gc.get_objects()) if isinstance(one, EnsembleModel)}
        rows = [str(path) for path in pathlib.Path(".").rglob("*.json")]
        told = {"models": sorted(known), "private": core.release is not None, "rows": rows}
        pathlib.Path(FILE).open("a").write(json.dumps(told) + "\\n")

    class Cheat:
        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            tell()
            return np.zeros((len(observation), 1), np.float32), state

    tell()
    return Cheat()
"""


@pytest.fixture
def few(monkeypatch):
    """Let the protocol have a few quick lines."""
    lines = [
        Line(agent="without-data", stage="planners", track=OPEN, seeds=1),
        Line(agent="without-data", stage="planners", track=PRIVATE, seeds=2),
        Line(agent="standard", stage="planners", track=PRIVATE, seeds=2),
        Line(agent="standard", stage="planners", track=PRIVATE, seeds=2, privacy=ADAPTIVE),
    ]
    monkeypatch.setattr(leaderboard, "LINES", tuple(lines))


@pytest.fixture
def short(monkeypatch):
    """Let submissions play few episodes."""
    monkeypatch.setattr(leaderboard, "EPISODES", 20)


def test_the_protocol_has_every_scenario_on_both_tracks():
    planned = cells()
    assert {cell.data.removesuffix(" (twin)") for cell in planned} == set(scenarios.names())
    assert len({cell.key for cell in planned}) == len(planned)
    ppo = [cell for cell in planned if cell.agent == "ppo" and cell.data == "spot" and cell.action == "signals"]
    opened, private = ([c for c in ppo if track_of(c) == track] for track in (OPEN, PRIVATE))
    assert {(c.training, len(c.instances), c.steps) for c in opened} == {(20, 20, 100_000)} and len(opened) == 5
    assert all(c.training == 0 and c.instances == (c.seed,) and c.split == "test" for c in private)
    assert {c.privacy for c in private} == {None, GUESS, ADAPTIVE, release_by("adaptive", 4)} and len(private) == 20
    assert ppo[0].settings["hyperparams"] == {"n_envs": 8, "n_steps": 256} and not ppo[0].settings["tuned"]
    assert [c.seed for c in ppo] == sorted(c.seed for c in ppo)  # a run that is stopped is balanced
    knows = {(c.agent, c.privacy): c.knows for c in planned}
    assert knows["ppo", GUESS] == knows["without-data", None] == "nothing" and knows["blind", None] == "hindsight"
    assert {c.data for c in planned if c.agent == "rolling"} == {"feeder", "tracking", "depot"}


def test_the_command_resumes_and_its_rows_can_be_recomputed(few, tmp_path, capsys, monkeypatch):
    asked = ["leaderboard", "--scenarios", "spot", "--output", str(tmp_path)]
    assert main([*asked, "--page", str(tmp_path / "page.md")]) == 0
    assert "Privacy at ε = 1 costs" in " ".join(capsys.readouterr().out.split())
    content, rows = read_results(tmp_path / "leaderboard.json")
    assert len(rows) == 7 and (tmp_path / "images" / "leaderboard.png").stat().st_size > 5_000
    by = {(row.cell.agent, row.cell.privacy, row.cell.seed): row for row in rows[1:]}
    private = by["standard", ADAPTIVE, 1]
    assert private.epsilon == pytest.approx(1, abs=1e-6) and 90 < private.scores[0] < 100
    assert private.without_data == pytest.approx(by["without-data", None, 1].scores)
    assert [runner.compute(row.cell, Supplies()).digest for row in rows] == [row.digest for row in rows]
    assert (tmp_path / "page.md").read_text() == page(Board(rows, cells(["spot"])), content)
    monkeypatch.setattr(runner, "_scores", None)  # a finished row is not computed again
    assert main([*asked, "--list"]) == 0 and "7 done, 0 failed, 0 missing" in capsys.readouterr().out
    assert main(asked) == 0
    assert read_results(tmp_path / "leaderboard.json")[0]["digest"] == content["digest"]


def test_a_submission_is_one_file_on_both_tracks_and_needs_consent(short, tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(CONSTANT.format(0.4))
    asked = ["leaderboard", "--scenarios", "spot", "--submit", str(file), "--action", "price", "--cells", "1"]
    asked += ["--output", str(tmp_path / "run")]
    assert main(asked) == 2 and "--allow-code" in capsys.readouterr().err
    assert main([*asked, "--allow-code"]) == 0
    assert "mine (submitted)" in capsys.readouterr().out
    _, rows = read_results(tmp_path / "run" / "leaderboard.json")
    found = {(track_of(row.cell), row.cell.knows): row for row in rows}
    assert set(found) == {(OPEN, "other instances"), (PRIVATE, "a release"), (PRIVATE, "the truth"),
                          (PRIVATE, "nothing")}  # fmt: skip
    assert len(found[OPEN, "other instances"].scores) == 20
    # The same price, played by a plan in this process.
    env = leaderboard.runner.EnsembleEnv(scenarios.make("spot", instance=0, split="test"), action="price")
    agent = runner.make_agent("best-price", env)
    agent.actions = np.full_like(agent.actions, 0.4)
    alone = runner.evaluate(agent, env).score
    release = found[PRIVATE, "a release"]
    assert release.scores[0] == pytest.approx(alone, abs=4 * release.deployed[0].score_error + 1e-6)
    assert runner.compute(release.cell, Supplies(apart={"mine": file.read_text()})).digest == release.digest
    for text, words in (("(", "cannot be imported"),
                        ("def predict(*seen):\n    raise RuntimeError('broken')\n", "broken"),
                        ("import os\nos._exit(7)", "ended with status 7")):  # fmt: skip
        broken = runner.compute(release.cell, Supplies(apart={"mine": text}))
        assert words in broken.error["message"] and "Traceback" not in broken.error["message"]


def test_a_cheating_submission_finds_the_release_only_and_then_observations(short, tmp_path):
    log, file = tmp_path / "told.txt", tmp_path / "cheat.py"
    file.write_text(CHEAT.replace("FILE", repr(str(log))))
    planned, supplies = leaderboard.submitted("cheat", file.read_text(), "price", ["spot"], cells_each=1)
    (cell,) = [one for one in planned if one.privacy == ADAPTIVE]
    row = runner.compute(cell, supplies)
    assert row.error is None and row.scores == pytest.approx([0.0], abs=1e-6)
    truth = scenarios.make("spot", instance=0, split="test")
    seen = truth.public(leaderboard.runner.draw_release(ADAPTIVE, truth, 0))
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(told) > 48 and {one["private"] for one in told} == {True} and not any(one["rows"] for one in told)
    assert {tuple(one["models"]) for one in told} == {(seen.fingerprint,)} and seen.fingerprint != truth.fingerprint


def _row(agent, seed, score, privacy=None, data="spot", training=0):
    numbers = dict.fromkeys(("mean_return", "uncontrolled", "optimum"), 0.0)
    outcome = runner.read_outcome({**numbers, "score": score, "score_error": 0.0, "exact": True})
    cell = runner.Cell(problem={}, agent=agent, privacy=privacy, data=data, instances=(seed,), seed=seed, split="test")
    return Row(cell=cell, deployed=(outcome,), without_data=(0.0,))


def test_what_is_missing_to_100_is_divided_over_the_cells_that_have_all_parts():
    truth, release, guess = (90.0, 80.0, 70.0), (85.0, 79.0, 60.0), (50.0, 40.0)
    rows = [_row("ppo", s, x) for s, x in enumerate(truth)]
    rows += [_row("ppo", s, x, ADAPTIVE) for s, x in enumerate(release)]
    rows += [_row("ppo", s, x, GUESS) for s, x in enumerate(guess)]
    found = split(Board(rows), "ppo")
    assert found.cells == 2 and found.learning == (15.0, 10.0, 20.0)
    assert (found.privacy, found.data.value) == ((3.0, 1.0, 5.0), 37.0)  # all three are resampled together
    assert split(Board(rows[:3]), "ppo") is None


def test_noise_at_the_optimum_is_the_spread_of_the_return_in_points():
    # One step; a coin decides whether power is worth 1 or 3 dollars, and all is known but the coin.
    context = Context([[0.5, 0.5], [0.5, 0.5]], start=[0])
    utility = np.zeros((2, 2, 2))
    utility[1, :, 1] = 1.0, 3.0
    model = EnsembleModel([[[[0.5, 0.5], [0.5, 0.5]]] * 2], [0.0, 1.0], utility, 2.0, context=context, initial=[0])
    share = np.exp(1.0) / (1.0 + np.exp(1.0))  # the tilt is (1 + 3) / 2 over the penalty
    gain = 2.0 * np.log(0.5 + 0.5 * np.exp(1.0)) - 1.0
    assert noise(model, 40_000) == pytest.approx(100.0 * share / gain, rel=0.01)
    assert noise(scenarios.make("tracking")) == pytest.approx(0.0, abs=1e-9)


def test_bad_requests_are_one_sentence(tmp_path, capsys):
    (tmp_path / "a.py").write_text("x = 1")
    submit = ["--submit", str(tmp_path / "a.py"), "--allow-code"]
    changed = leaderboard.RECORD.read_text(encoding="utf-8").replace('"score": 100.0', '"score": 101.0', 1)
    (tmp_path / "changed.json").write_text(changed, encoding="utf-8")
    for words, said in (
        ([*submit, "--cells", "9"], "cells"),
        (submit, "a.py cannot be scored: ValueError: the file defines no agent"),
        (["--from", str(tmp_path / "changed.json")], "was changed"),
    ):
        assert main(["leaderboard", *words]) == 2
        err = capsys.readouterr().err
        assert said in err and "Traceback" not in err


# ------------------------------------------------------------------ what is recorded
def test_the_page_is_written_from_the_record_and_says_what_is_missing():
    content, rows = read_results(leaderboard.RECORD)
    planned = cells(scenarios.BUILT_IN)
    text = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    assert text == page(Board(rows, planned), content)
    left = {cell.key for cell in planned} - {row.cell.key for row in rows}
    assert (f"**{len(left):,} of {len(planned):,} cells are missing**" in text) == bool(left)
    assert not {row.cell.key for row in rows} - {cell.key for cell in planned}


@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_a_planner_row_of_the_record_is_recomputed(name):
    rows = [row for row in read_results(leaderboard.RECORD)[1]
            if row.cell.data == name and row.cell.privacy is not None and row.cell.agent == "standard"]  # fmt: skip
    row = rows[datetime.date.today().toordinal() % len(rows)]
    (again,), (recorded,) = runner.compute(row.cell, Supplies()).scores, row.scores
    if abs(again - recorded) > 1e-9:  # elsewhere the last bits of a model differ, on which the noise depends
        alike = [one.scores[0] for one in rows if one.cell.privacy == row.cell.privacy]
        warnings.warn(f"{row.cell.title}: {again} on this machine, {recorded} in the record", stacklevel=1)
        assert min(alike) - np.ptp(alike) - 0.5 <= again <= min(max(alike) + np.ptp(alike) + 0.5, 100.0)


def test_a_trained_agent_is_kept_with_a_card_whose_command_shows_its_score(tmp_path, capsys):
    pytest.importorskip("torch")
    about = {"agent": "cloning", "label": "cloning", "data": "spot", "version": leaderboard.VERSION, "episodes": 20}
    cell = runner.Cell(problem=runner.scenario_problem("spot"), split="test", steps=2000, keep=True, action="signals",
                       **about)  # fmt: skip
    store, row = runner.Store(tmp_path / "store"), runner.compute(cell, Supplies())
    store.save(row)
    assert store.load(cell).digest == row.digest and store.policy(cell).stat().st_size < 200_000
    write_agents(tmp_path / "agents", Board([row]), store)
    (card,) = [json.loads(path.read_text()) for path in (tmp_path / "agents").glob("*.json")]
    words = card["command"].replace("docs/agents", str(tmp_path / "agents")).split()[1:]
    capsys.readouterr()
    assert main([*words, "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert card["score"] == pytest.approx(row.scores[0], abs=0.005) == pytest.approx(found["iqm"], abs=0.005)
    assert card["command"] in (tmp_path / "agents" / "index.md").read_text()
