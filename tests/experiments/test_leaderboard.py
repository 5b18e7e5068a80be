"""The leaderboard: cells by the protocol, resumed, recomputed, refused when changed; submissions; the recorded page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dp_ensemble_env.cli.main import main
from dp_ensemble_env.experiments import runner
from dp_ensemble_env.experiments.leaderboard import Protocol, page, recompute
from dp_ensemble_env.experiments.runner import Supplies, read_results

DOCS = Path(__file__).parents[2] / "docs"
CONSTANT = "import numpy as np\ndef predict(o, state=None, episode_start=None, deterministic=True):\n"
CONSTANT += "    return np.full((len(o), 1), {}, np.float32), state\n"
SMALL = ["leaderboard", "--scenarios", "campus-event", "--instances", "2"]


def test_seeds_are_spent_where_they_matter_and_a_stopped_run_is_balanced():
    agents = ("standard", "myopic", "ppo:action=price,steps=500")
    cells = Protocol(scenarios=("spot", "call"), agents=agents, privacy=("dirichlet:k=50",)).cells()
    count = {(c.agent, c.privacy): sum(o.agent == c.agent and o.privacy == c.privacy for o in cells) for c in cells}
    assert count == {("standard", None): 2, ("myopic", None): 2, ("standard", "dirichlet:k=50"): 6, ("ppo", None): 6}
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    assert len({cell.key for cell in cells}) == len(cells) == 16
    ppo = next(cell for cell in cells if cell.agent == "ppo")
    assert (ppo.training, ppo.split, ppo.steps, ppo.settings["interval"]) == (20, "test", 500, 125)
    for name, episodes in (("tracking", 4), ("campus-event", 20)):  # a scenario may change the settings
        (cell,) = Protocol(scenarios=(name,), agents=("apg:steps=500",), privacy=(), seeds=1).cells()
        assert cell.settings["hyperparams"]["n_envs"] == episodes and cell.action == "tilt"


def test_the_command_resumes_and_its_rows_can_be_recomputed(tmp_path, capsys, monkeypatch):
    asked = [*SMALL, "--agents", "uncontrolled", "without-data", "standard", "--seeds", "1", "--output", str(tmp_path)]
    assert main([*asked, "--page", str(tmp_path / "page.md")]) == 0
    assert "without data" in " ".join(capsys.readouterr().out.split())
    content, rows = read_results(tmp_path / "leaderboard.json")
    by = {(row.cell.agent, row.cell.privacy): row for row in rows}
    assert len(rows) == 4 and by["standard", None].scores == [100.0, 100.0]
    private = by["standard", "dirichlet:k=50,floor=0.05"]
    assert 1 < private.epsilon < 100 and private.without_data == by["without-data", None].without_data
    assert private.without_data == pytest.approx(by["without-data", None].scores) and max(private.scores) < 99
    for row in rows:
        assert recompute(row).digest == row.digest
    assert (tmp_path / "page.md").read_text() == page(content, rows)
    before = (tmp_path / "leaderboard.json").read_text()
    monkeypatch.setattr(runner, "_scores", None)  # a finished row is not computed again
    assert main([*asked, "--list"]) == 0 and "4 done, 0 failed, 0 missing" in capsys.readouterr().out
    assert main(asked) == 0
    assert read_results(tmp_path / "leaderboard.json")[0]["digest"] == content["digest"]
    report = tmp_path / "report" / "board.html"
    assert main(["leaderboard", "--from", str(tmp_path / "leaderboard.json"), "--page", str(report)]) == 0
    assert {path.name for path in report.parent.iterdir()} == {
        "board.html", "leaderboard.json", "scores.png", "profiles.png"
    }  # fmt: skip
    (tmp_path / "leaderboard.json").write_text(before.replace('"score": 100.0', '"score": 101.0', 1))
    capsys.readouterr()
    assert main(["leaderboard", "--from", str(tmp_path / "leaderboard.json")]) == 2
    assert "was changed" in capsys.readouterr().err


def test_a_submission_is_one_file_and_needs_consent(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(CONSTANT.format(0.0))
    asked = [*SMALL, "--submit", str(file), "--seeds", "1", "--output", str(tmp_path / "run")]
    assert main(asked) == 2 and "--allow-code" in capsys.readouterr().err
    assert main([*asked, "--allow-code"]) == 0
    _, rows = read_results(tmp_path / "run" / "leaderboard.json")
    assert [(row.cell.agent, row.cell.knows) for row in rows] == [("mine", "other instances")]
    assert rows[0].scores == pytest.approx([0.0, 0.0], abs=1e-6)  # zero: do not interfere
    assert recompute(rows[0], Supplies({}, {"mine": file.read_text()})).digest == rows[0].digest
    file.write_text(CONSTANT.format(0.5))  # another file is another cell
    assert main([*asked, "--allow-code"]) == 0
    assert min(read_results(tmp_path / "run" / "leaderboard.json")[1][0].scores) > 50
    for text, words in (("(", "cannot be imported"), ("x = 1", "brings nothing")):
        file.write_text(text)
        assert main([*asked, "--allow-code"]) == 2 and words in capsys.readouterr().err
    file.write_text("def predict(observation, **more):\n    raise RuntimeError('broken')\n")
    assert main([*asked, "--allow-code"]) == 2 and "broken" in capsys.readouterr().err


def test_bad_requests_are_one_sentence(capsys):
    for words, said in (
        (["--agents"], "no agent"),
        (["--agents", "standrad"], "standard"),
        (["--scenarios", "spt"], "spot"),
        (["--instances", "99"], "instances"),
        (["--address", "auto"], "--backend ray"),
        (["--from", "/nowhere.json"], "cannot read"),
    ):
        assert main(["leaderboard", *words]) == 2
        err = capsys.readouterr().err
        assert said in err and "Traceback" not in err


def test_the_recorded_leaderboard_is_what_the_program_computes():
    content, rows = read_results(DOCS / "leaderboard.json")
    assert (DOCS / "leaderboard.md").read_text(encoding="utf-8") == page(content, rows)
    assert {row.cell.training for row in rows} == {0, 20}
    planned = [row for row in rows if not row.cell.training]
    for i in np.random.default_rng(0).choice(len(planned), 5, replace=False):
        again = recompute(planned[i])
        np.testing.assert_allclose(again.scores, planned[i].scores, atol=1e-5)
