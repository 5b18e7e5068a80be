"""The leaderboard: rows by the protocol, resumed, recomputed, refused when changed; a submitted file; the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.cli.leaderboard import main
from dp_ensemble_env.control.policies import tilted_policy
from dp_ensemble_env.experiments.leaderboard import (
    Board,
    Protocol,
    Row,
    read_results,
    recompute,
    submitted_agent,
)
from dp_ensemble_env.experiments.leaderboard_report import THRESHOLDS, Standing, page, tables
from dp_ensemble_env.experiments.suite import PLANNERS
from dp_ensemble_env.experiments.suite_learners import Budget
from dp_ensemble_env.reporting.score import event_outcome
from dp_ensemble_env.scenarios.problem import draw_release

DOCS = Path(__file__).parents[2] / "docs"
CONSTANT = "import numpy as np\ndef predict(o, state=None, episode_start=None, deterministic=True):\n"
CONSTANT += "    return np.full((len(o), 1), {}, np.float32), state\n"
SMALL = ["--scenarios", "campus-event", "--splits", "test", "--instances", "2"]


def made_up(agents: dict[str, dict[str, list[list[float]]]]) -> dict:
    """A results file of given scores by agent, scenario and seed."""
    rows = []
    for agent, of in agents.items():
        for name, runs in of.items():
            for seed, scores in enumerate(runs):
                config = {"agent": agent, "scenario": name, "seed": seed, "splits": ["test"]}
                result = {"scores": {"test": scores}, "without_data": None, "epsilon": None, "steps": 10}
                rows.append({"config": config, "result": result, "compute": {"cpu_seconds": 1.0, "steps": 10}})
    return {"rows": rows, "versions": {"python": "3"}, "command": "x", "digest": "0" * 64}


def test_seeds_are_spent_where_they_matter_and_keys_hold_what_decides() -> None:
    small = Protocol(("spot",), ("standard", "myopic"), (Budget("ppo", "price", 500),), ("dirichlet:k=50",), 3)
    rows = small.rows()
    count = {agent: sum(row.config["agent"] == agent for row in rows) for agent in {r.config["agent"] for r in rows}}
    assert count == {"standard": 1, "myopic": 1, "standard, k=50": 3, "ppo, price": 3}  # myopic uses no data
    assert len({row.key for row in rows}) == len(rows) == 8
    for name, episodes in (("tracking", 4), ("campus-event", 20)):  # a scenario may change the settings
        (row,) = Protocol((name,), (), (Budget("apg", "tilt", 500),), (), 1).rows()
        assert row.config["settings"]["n_envs"] == episodes
    longer = Protocol(("spot",), (), (Budget("ppo", "price", 1000),), (), 3)
    assert {row.key for row in longer.rows()}.isdisjoint({row.key for row in rows})


def test_a_private_row_is_deployed_on_the_truth_beside_the_plan_without_data() -> None:
    spec = "dirichlet:k=50,floor=0.05"
    row = next(r for r in Protocol(("tracking",), ("standard",), (), (spec,), 2, ("test",), 1).rows()[::-1])
    found = Board().compute(row)
    model = scenarios.make("tracking", instance=0, split="test")
    release = draw_release(spec, model, 1000)  # seed 1, instance 0
    plan = PLANNERS["standard"](model.with_default(release.matrix))[:, 0]
    assert found["scores"]["test"] == [pytest.approx(event_outcome(model, tilted_policy(model, plan)).score, abs=1e-5)]
    guess = PLANNERS["public-guess"](model)[:, 0]
    beside = event_outcome(model, tilted_policy(model, guess)).score
    assert found["without_data"]["test"] == [pytest.approx(beside, abs=1e-5)] and 1 < found["epsilon"] < 100


def test_tables_are_their_formulas() -> None:
    content = made_up({"good": {"a": [[80.0, 90.0], [90.0, 100.0]], "b": [[96.0], [98.0]]},
                       "public-guess": {"a": [[85.0, 85.0]], "b": [[97.0]]},
                       "partial": {"a": [[100.0, 100.0]]}})  # fmt: skip
    standing = Standing(content)
    assert standing.agents == ["good", "public-guess", "partial"]  # who was not scored everywhere comes last
    found = tables(standing)
    assert found["overall"][1][0][0] == "good" and found["overall"][1][0][3:] == ["2", "40", "4"]
    assert found["overall"][1][0][1].startswith("93.5")  # of 90, 90, 96, 98
    assert found["overall"][1][2][0] == "partial (1 of 2)"
    shares = dict(zip(THRESHOLDS, found["profiles"][1][0][1:], strict=True))
    assert shares[75] == "100" and shares[90] == "50" and shares[97] == "33"
    chance = (0.5 + 1.0 + 0.5) / 3  # 80, 90 against 85; 90, 100 against 85; 96, 98 against 97
    assert found["improvement"][1][0][1].startswith(f"{100 * chance:.0f} %")
    assert "private" not in found and "| good |" in page(content)


def test_the_command_resumes_and_its_rows_can_be_recomputed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [*SMALL, "--planners", "uncontrolled", "public-guess", "standard", "--repeats", "1"]
    asked = [*chosen, "--output", str(tmp_path), "--page", str(tmp_path / "page.md")]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "without data" in out and "Results:" in out
    content = read_results(tmp_path / "leaderboard.json")
    assert len(content["rows"]) == 4 and content["versions"]["numpy"] == np.__version__
    by = {row["config"]["agent"]: row for row in content["rows"]}
    assert by["standard"]["result"]["scores"]["test"] == [100.0, 100.0]
    for row in content["rows"]:
        assert recompute(row) == row["result"] and row["compute"]["cpu_seconds"] >= 0
        assert Row(row["config"], "").key == row["key"]
    assert "# Leaderboard" in (tmp_path / "page.md").read_text()

    def refuse(self: Board, cell: Row) -> dict:
        raise AssertionError("a finished row was run again")

    monkeypatch.setattr(Board, "compute", refuse)
    before = (tmp_path / "leaderboard.json").read_text()
    assert main([*asked, "--list"]) == 0 and "4 done, 0 missing" in capsys.readouterr().out
    assert main(asked) == 0
    assert (tmp_path / "leaderboard.json").read_text() == before
    report = tmp_path / "report" / "board.html"
    assert main(["--from", str(tmp_path / "leaderboard.json"), "--page", str(report)]) == 0
    opening = report.read_text(encoding="utf-8").split("<main")[1].split("All scenarios")[0]
    assert "standard leads with a" in opening and "(public-guess, " in opening and '<figure class="chart">' in opening
    assert "made on <a" in opening and "without data in" in opening.replace("</a>", "").replace('without-data">', "")
    names = {path.name for path in report.parent.iterdir()}
    assert names == {"board.html", "leaderboard.json", "leaderboard-scores.png", "leaderboard-profiles.png"}
    assert main([*asked, "--summary-only"]) == 0 and main([*asked, "--summary-only", "--instances", "1"]) == 2
    (tmp_path / "leaderboard.json").write_text(before.replace("[100.0, 100.0]", "[100.0, 101.0]"))
    capsys.readouterr()
    assert main(["--from", str(tmp_path / "leaderboard.json")]) == 2 and "was changed" in capsys.readouterr().err


def test_a_submission_is_one_file_and_needs_consent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(CONSTANT.format(0.0))
    asked = [*SMALL, "--submit", str(file), "--repeats", "1", "--output", str(tmp_path / "run")]
    assert main(asked) == 2 and "allow_code=True" in capsys.readouterr().err
    assert main([*asked, "--allow-code"]) == 0
    rows = read_results(tmp_path / "run" / "leaderboard.json")["rows"]
    assert [row["config"]["agent"] for row in rows] == ["mine"]
    assert rows[0]["result"]["scores"]["test"] == pytest.approx([0.0, 0.0], abs=1e-6)  # zero: do not interfere
    for text, words in ((CONSTANT + "(", "cannot be run"), ("x = 1", "neither predict")):
        file.write_text(text)
        assert main([*asked, "--allow-code"]) == 2 and words in capsys.readouterr().err
    file.write_text("def predict(observation, **more):\n    raise RuntimeError('broken')\n")
    assert main([*asked, "--allow-code"]) == 2 and "broken" in capsys.readouterr().err


def test_a_submission_may_be_made_in_a_training_instance(tmp_path: Path) -> None:
    from dp_ensemble_env.envs import EnsembleEnv

    source = CONSTANT.format(0.5) + "class A:\n    def predict(self, *a, **k):\n        return predict(*a, **k)\n"
    source += "def make(env, seed):\n    A.seen = (env.model.fingerprint, seed)\n    return A()\n"
    env = EnsembleEnv("campus-event", action="price")
    agent = submitted_agent(source, env, 7)
    assert agent.seen == (env.model.fingerprint, 7)
    with pytest.raises(ValueError, match="without predict"):
        submitted_agent("def make(env):\n    return 3\n", env, 0)


def test_bad_requests_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["--planners"], "no agent"),
        (["--planners", "standrad"], "standard"),
        (["--splits", "exam"], "test"),
        (["--address", "auto"], "--backend ray"),
        (["--from", "/nowhere.json"], "cannot read"),
    ):
        assert main([*words, "--privacy"] if words == ["--planners"] else words) == 2
        err = capsys.readouterr().err
        assert said in err and "Traceback" not in err


def test_the_recorded_leaderboard_is_what_the_program_computes() -> None:
    content = read_results(DOCS / "leaderboard.json")
    assert (DOCS / "leaderboard.md").read_text(encoding="utf-8") == page(content)
    assert {row["config"]["kind"] for row in content["rows"]} == {"planner", "learner"}
    planned = [row for row in content["rows"] if row["config"]["kind"] == "planner"]
    for i in np.random.default_rng(0).choice(len(planned), 5, replace=False):
        row = planned[i]
        config = {**row["config"], "instances": 2}
        again = Board().compute(Row(config, config["scenario"]))
        for split, scores in again["scores"].items():
            np.testing.assert_allclose(scores, row["result"]["scores"][split][:2], atol=1e-5)
