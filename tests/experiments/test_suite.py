"""The whole suite: scores of planners, capabilities by their formulas, files and pictures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import make_agent
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import tilted_policy
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments import probes
from dp_ensemble_env.experiments.capabilities import capabilities, members
from dp_ensemble_env.experiments.comparison_report import Row
from dp_ensemble_env.experiments.comparison_report import write_all as write_comparison
from dp_ensemble_env.experiments.suite import PLANNERS, Entry, Facts, Suite, SuiteSettings, run_suite
from dp_ensemble_env.experiments.suite_learners import Budget
from dp_ensemble_env.experiments.suite_report import capability_table, from_json, load, table, to_json, write_all
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import event_outcome


def entry(agent: str, scenario: str, score: float, **more: float) -> Entry:
    return Entry(agent, scenario, np.full((1, 4), score), **{name: np.full((1, 4), x) for name, x in more.items()})


@pytest.fixture
def made_up() -> Suite:
    """Three scenarios with round numbers; c is coupled, b the largest."""
    facts = {
        "a": Facts(open_loop=40.0, public_guess=20.0, coupled=False, size=10),
        "b": Facts(open_loop=80.0, public_guess=90.0, coupled=False, size=30),
        "c": Facts(open_loop=100.0, public_guess=60.0, coupled=True, size=20),
    }
    entries = [
        entry("one", "a", 70.0, home=90.0, abroad=60.0, private=60.0),
        entry("one", "b", 90.0, home=60.0, abroad=30.0),
        entry("one", "c", 50.0, home=30.0, abroad=30.0, private=80.0),
        entry("two", "a", 10.0),
        entry("two", "b", 20.0),
    ]
    return Suite(entries, facts)


def test_capabilities_are_their_formulas(made_up: Suite) -> None:
    found = {axis: None if x is None else x.value for axis, x in capabilities(made_up, "one").items()}
    assert found["feedback"] == pytest.approx(50.0)  # (70 - 40)/60 and (90 - 80)/20: 50 and 50
    assert found["data"] == pytest.approx(50.0)  # (60 - 20)/80 and (80 - 60)/40
    assert found["generalisation"] == pytest.approx(100.0 * 40.0 / 60.0)
    assert found["constraint"] == 50.0
    assert found["scale"] == 90.0
    assert members(made_up)["scale"] == ["b"] and members(made_up)["feedback"] == ["a", "b"]


def test_what_was_not_measured_is_not_made_up(made_up: Suite) -> None:
    found = capabilities(made_up, "two")
    assert found["feedback"].value == pytest.approx(-175.0)  # -50 and -300
    assert found["data"] is None and found["constraint"] is None and found["generalisation"] is None
    assert found["scale"].value == 20.0
    assert made_up.mean("one").value == 70.0 and made_up.mean("two") is None
    rows = dict(zip(["a", "b", "c", "mean"], table(made_up)[1], strict=True))
    assert rows["c"] == ["c", "50.0", "–"] and rows["mean"] == ["mean", "70.0", "–"]
    assert capability_table(made_up)[1][1][2] == "–"


def test_an_agent_that_does_nothing_cannot_lose_it_elsewhere(made_up: Suite) -> None:
    idle = [entry("idle", name, 0.0, home=0.0, abroad=0.0) for name in "abc"]
    assert capabilities(Suite(idle, made_up.facts), "idle")["generalisation"] is None


def test_intervals_come_from_the_spread_of_the_instances(made_up: Suite) -> None:
    spread = Entry("one", "c", np.array([[20.0, 40.0, 60.0, 80.0]]))
    found = capabilities(Suite([spread], {"c": made_up.facts["c"]}), "one")["constraint"]
    assert found.value == 50.0 and 20.0 <= found.low < 40.0 and 60.0 < found.high <= 80.0


# ------------------------------------------------------------------ on a model
@pytest.fixture
def regimes(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Three levels, two prices of opposite sign that change slowly: an open loop cannot follow them."""

    def factory(seed: int) -> EnsembleModel:
        rng = np.random.default_rng(seed)
        price = np.array([rng.uniform(1.0, 2.0), -rng.uniform(1.0, 2.0)])
        utility = -price[:, None] * np.array([0.0, 1.0, 2.0]) * np.ones((7, 1, 1))
        default = [[0.8, 0.2, 0.0], [0.2, 0.6, 0.2], [0.0, 0.2, 0.8]]
        return EnsembleModel(default, [1.0, 2.0, 3.0], utility, 2.0, context=Context([[0.9, 0.1], [0.1, 0.9]]))

    monkeypatch.setattr(probes, "recorded", lambda name: [], raising=False)
    scenarios.register("regimes", factory, scenarios.Card("Regimes", "Two prices."))
    yield "regimes"
    scenarios.remove("regimes")


def test_planners_score_what_their_policies_do(regimes: str) -> None:
    suite = run_suite(SuiteSettings((regimes,), instances=2))
    by = {name: suite.of(name)[regimes] for name in PLANNERS}
    np.testing.assert_allclose(by["standard"].scores, 100.0)
    np.testing.assert_allclose(by["uncontrolled"].scores, 0.0, atol=1e-9)
    model = scenarios.make(regimes, instance=1, split="test")
    for name in ("myopic", "public-guess", "best-price"):
        by_hand = event_outcome(model, tilted_policy(model, PLANNERS[name](model))).score
        assert by[name].scores[0, 1] == pytest.approx(by_hand, abs=1e-8)
    assert by["best-price"].scores.max() < 20.0 < by["myopic"].scores.min() < 100.0
    assert by["standard"].home == pytest.approx(100.0) and (by["standard"].abroad < 100.0).all()
    assert (by["standard"].private < 100.0).all()
    for name in ("uncontrolled", "myopic", "public-guess"):  # which use no data
        np.testing.assert_allclose(by[name].private, by[name].scores, atol=1e-9)
    assert suite.facts[regimes].open_loop < 85.0
    assert capabilities(suite, "standard")["feedback"].value == pytest.approx(100.0)


def test_trained_agents_play_the_test_instances_as_they_are(regimes: str) -> None:
    agents = [make_agent(name, EnsembleEnv(regimes, action="tilt")) for name in ("standard", "uncontrolled")]
    settings = SuiteSettings((regimes,), agents=("standard",), instances=2, privacy=None)
    suite = run_suite(settings, {"plan": {regimes: agents}}, "tilt")
    planned, played = suite.of("standard")[regimes], suite.of("plan")[regimes]
    assert played.scores.shape == (2, 2) and not played.exact
    np.testing.assert_allclose(played.scores[0], planned.abroad[0], atol=3.0)  # the same plan; 512 episodes
    np.testing.assert_allclose(played.scores[1], 0.0, atol=1e-6)


def test_files_hold_everything(made_up: Suite, tmp_path: Path, campus: EnsembleModel) -> None:
    page = write_all(tmp_path, made_up, "dp-ensemble suite").read_text(encoding="utf-8")
    assert page.count("<img") == 2 and "dp-ensemble suite" in page and "70.0" in page
    again = load(tmp_path)
    assert to_json(again, "x") == to_json(made_up, "x")
    content = json.loads((tmp_path / "suite.json").read_text())
    assert content["capabilities"]["two"]["data"] is None
    lines = (tmp_path / "suite.csv").read_text().splitlines()
    assert lines[0].startswith("scenario,agent,iqm") and lines[1].startswith("a,one,70.0,70.0,70.0,1,4")
    rows = [Row("uncontrolled", "mean-field", event_outcome(campus, campus.default_policy))]
    written = write_comparison(tmp_path / "both", {}, campus, rows, [], {}, "dp-ensemble compare", suite=tmp_path)
    assert "The whole suite" in written.read_text(encoding="utf-8")


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="scenario"):
        SuiteSettings(("campus-evnt",))
    with pytest.raises(ValueError, match="agent"):
        SuiteSettings(agents=("ppo",))
    with pytest.raises(ValueError, match="no suite"):
        load(tmp_path)
    (tmp_path / "suite.json").write_text("{}")
    with pytest.raises(ValueError, match="no suite of this program"):
        load(tmp_path)
    for text in ("ppo:price", "ppo:price:0", "pp:price:10", "ppo:prize:10"):
        with pytest.raises(Exception, match="must look like|does not know"):
            Budget.parse(text)
    assert Budget.parse("ppo:tilt:2000").title == "ppo, tilt"
    with pytest.raises(KeyError):
        from_json({})
