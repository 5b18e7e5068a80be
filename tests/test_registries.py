"""The recipes of CONTRIBUTING.md: what a stranger's file registers works everywhere, here and in other processes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
from helpers import recipe
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env import scenarios
from dp_ensemble_env.envs import EnsembleEnv, actions
from dp_ensemble_env.experiments import standings
from dp_ensemble_env.experiments.compare import Grid, data_sets
from dp_ensemble_env.experiments.runner import compute, read_results
from dp_ensemble_env.privacy import Event, PrivacyBudgetExceeded, PrivacyLedger, mechanism, mechanisms
from dp_ensemble_env.scenarios import Card
from dp_ensemble_env.tools.registry import load_source

TITLES = {"mechanism": "A new mechanism", "scenario": "A new scenario", "basis": "A new action basis",
          "agent": "A new agent", "format": "A new meter format", "column": "A new column"}  # fmt: skip
MODULES = {name: load_source(recipe(TITLES[name]).encode(), name).module for name in ("mechanism", "scenario", "basis")}
CoinMechanism, two_level = MODULES["mechanism"].CoinMechanism, MODULES["scenario"].two_level
two_prices = MODULES["basis"].two_prices

SPEC = "coin:epsilon=1.5"
#: What a comparison or a training is run with, for each of the three strangers.
STRANGERS = {
    "mechanism": {"model": "campus-event", "action": "tilt", "privacy": SPEC},
    "scenario": {"model": "two-level", "action": "tilt"},
    "basis": {"model": "campus-event", "action": "two-prices"},
}


# ------------------------------------------------------------------ environments
def test_the_scenario_has_an_id_and_the_mechanism_a_text():
    env = gymnasium.make("dp_ensemble/TwoLevel-v0", privacy=SPEC, action="two-prices")
    core = env.unwrapped
    assert core.model.n_states == 2 and core.release.event.type == "coin" and env.action_space.shape == (2,)
    assert isinstance(mechanism(SPEC), CoinMechanism) and mechanism(SPEC).spec == SPEC
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert_array_equal(again.unwrapped.release.matrix, core.release.matrix)


def test_a_basis_moves_the_mean_field_as_its_definition_says():
    env = EnsembleEnv("campus-event", action="two-prices", reward="dollars")
    model = env.model
    env.reset(options={"state": 15})
    x = np.array([0.3, -0.7])
    _, reward, _, _, info = env.step(x)
    row = model.default[15] * np.exp(x @ two_prices(model)[0])
    row /= row.sum()
    support = row > 0
    divergence = float((row[support] * np.log(row[support] / model.default[15][support])).sum())
    assert_allclose(env.occupancy, row, rtol=1e-12, atol=1e-15)
    assert_allclose(reward, row @ model.utility[1] - model.discomfort_penalty * divergence, rtol=1e-12)
    assert info["discomfort"] == pytest.approx(model.discomfort_penalty * divergence, rel=1e-12)


# ------------------------------------------------------------------ the ledger
def test_the_ledger_charges_the_mechanism_before_it_draws(tmp_path):
    default = np.array([[0.9, 0.1], [0.2, 0.8]])
    coin = mechanism("coin:epsilon=0.5")
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl", budget=(1.2, 1e-6))
    release = ledger.release(coin, default, rng=0)
    # Two rows of randomised response: each reaches its epsilon, so together they reach the sum.
    assert ledger.spent(1e-9) == pytest.approx(1.0, abs=2e-3) and ledger.spent(1e-9) <= 1.0 + 1e-9
    assert ledger.spent(1e-9, rows="parallel") == pytest.approx(0.5, abs=2e-3)
    again = PrivacyLedger(tmp_path / "ledger.jsonl")
    assert again.knows(release) and again.charges == {release.event: 1}
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    with pytest.raises(PrivacyBudgetExceeded, match="above the budget"):
        ledger.release(coin, default, rng)
    assert rng.bit_generator.state == state and ledger.releases == 1  # refused before anything was drawn
    assert "coin" in str(ledger.statement()) and "1 release" in str(ledger.statement())


def test_an_event_that_nobody_priced_is_refused():
    @dataclass(frozen=True)
    class Unpriced(Event, type="unpriced"):
        pass

    ledger = PrivacyLedger()
    with pytest.raises(ValueError, match="no privacy cost is known for a 'unpriced' event"):
        ledger.record(Unpriced())
    assert not ledger.entries


def test_a_process_without_the_code_reads_the_release_and_composes_the_ledger(tmp_path):
    ledger = PrivacyLedger(tmp_path / "ledger.jsonl")
    release = ledger.release(mechanism("coin:epsilon=0.5"), np.array([[0.9, 0.1], [0.2, 0.8]]), rng=0)
    release.save(tmp_path / "release.json")
    code = (
        "from dp_ensemble_env.privacy import PrivacyLedger, Release, mechanisms\n"
        "assert 'coin' not in mechanisms.names()\n"
        "print(PrivacyLedger('ledger.jsonl').spent(1e-6), Release.load('release.json').digest)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [str(ledger.spent(1e-6)), release.digest], done.stderr


# ------------------------------------------------------------------ names
def test_names_are_taken_once_and_mistakes_are_named():
    with pytest.raises(ValueError, match="the mechanism 'coin' exists already"):
        mechanisms.register("coin", CoinMechanism)
    with pytest.raises(ValueError, match="did you mean 'two-prices'"):
        EnsembleEnv("campus-event", action="two-price")
    with pytest.raises(ValueError, match="must not contain blanks"):
        scenarios.register("two levels", two_level, Card("a", "b"))
    actions.register("gone", two_prices)
    actions.remove("gone")
    assert "gone" not in actions.names()
    with pytest.raises(ValueError, match="the action mode 'price' cannot be removed"):
        actions.remove("price")
    with pytest.raises(ValueError, match=r"got \(2, 3\)"):
        actions.register("narrow", lambda model: np.ones((2, 3)))
        EnsembleEnv("campus-event", action="narrow")


# ------------------------------------------------------------------ agents
@pytest.mark.parametrize("name", STRANGERS)
def test_a_comparison_takes_each_of_them(name, tmp_path):
    settings = STRANGERS[name]
    grid = Grid(
        agents=("uncontrolled", "best-price", "standard:action=tilt"), actions=(settings["action"],),
        privacy=("none", settings.get("privacy", "public")), seeds=("0",), episodes=10,
    )  # fmt: skip
    sets = data_sets([settings["model"]])
    supplies, _ = grid.supplies(sets)
    rows = {(row.cell.agent, row.cell.privacy): row for row in (compute(c, supplies) for c in grid.cells(sets)[0])}
    assert all(row.error is None and max(row.scores) <= 100.0 + 1e-4 for row in rows.values())
    assert rows["standard", None].scores == [pytest.approx(100.0, abs=1e-4)]
    assert rows["uncontrolled", None].scores == [0.0] and len(rows) == 1 + 2 * 2


def test_a_column_of_the_reports_is_one_entry(tmp_path, monkeypatch):
    monkeypatch.setattr(standings, "UNITS", dict(standings.UNITS))
    exec(recipe(TITLES["column"]), {})
    supplies, _ = (grid := Grid(agents=("best-price",), seeds=("0",))).supplies(sets := data_sets(["campus-event"]))
    row = compute(grid.cells(sets)[0][0], supplies)
    headings, (cells,) = standings.units(standings.Standings([row]))
    assert cells[headings.index("at the peak, kW")] == f"{row.deployed[0].curtailed_peak_kw:,.2f}" != "0.00"
    first, line = standings.write_rows(tmp_path / "rows.csv", [row]).read_text().splitlines()
    names = first.split(",")
    assert float(line.split(",")[names.index("curtailed_peak_kw")]) == pytest.approx(row.deployed[0].curtailed_peak_kw)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The six recipes as files, the options that import them, and their folder as the current one."""
    monkeypatch.chdir(tmp_path)
    words = []
    for name, title in TITLES.items():
        (tmp_path / f"{name}.py").write_text(recipe(title))
        words += ["--import", f"{name}.py"]
    return words


def command(*words, status=0):
    """Run the program in a process of its own, which knows nothing of what is registered here."""
    done = subprocess.run([sys.executable, "-m", "dp_ensemble_env", *words], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_in_another_process_every_command_takes_all_of_them(files, tmp_path):
    problem = ["--scenario", "two-level", "--privacy", SPEC, "--action", "two-prices"]
    assert "unknown agent" in command("evaluate", "steady", *problem, status=2)
    shown = command("evaluate", "steady", *problem, *files)
    assert "coin" in shown and "exact" in shown
    command("train", "--algo", "lucky", "--steps", "60", "--output", "run", *problem, *files)
    assert "coin" in command("evaluate", "run", *files)
    rows = "\n".join(f"2024-07-{d:02}T{h:02}:{m:02} {100 + m + h}" for d in range(1, 31) for h in range(24)
                     for m in (0, 15, 30, 45))  # fmt: skip
    (tmp_path / "counter.txt").write_text(f"#pulses\n{rows}\n")
    assert "counter.txt" in command("evaluate", "standard", "--meter", "counter.txt", status=2)
    command("evaluate", "standard", "--meter", "counter.txt", "--date", "2024-07-24", "--penalty", "5", *files)
    assert "cannot read missing.py" in command("scenarios", "--import", "missing.py", status=2)
    assert "--import needs" in command("scenarios", "--import", status=2)


@pytest.mark.slow
def test_in_another_process_a_learner_of_a_library_is_trained_kept_and_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = (
        'from dp_ensemble_env.agents.train import register_learner\nregister_learner("cross-q", "sb3_contrib:CrossQ")'
    )
    (tmp_path / "learner.py").write_text(place)
    brought, sets = ["--import", "learner.py"], ["--set", "learning_starts=20", "--set", "batch_size=16"]
    problem = ["--scenario", "campus-event", "--action", "price"]
    assert "cross-q" in command("train", "--algo", "cross-q", "--steps", "60", *problem, status=2)
    command("train", "--algo", "cross-q", "--steps", "60", *problem, *sets, "--output", "run", *brought)
    kept = json.loads((tmp_path / "run" / "results.json").read_text())["evaluation"]["score"]
    assert f"{kept:.2f}" in command("evaluate", "run", *brought)
    asked = ["--agents", "cross-q:steps=60", "--scenarios", "campus-event", "--privacy", "none", "--actions", "price"]
    command("compare", *asked, "--seeds", "0", "--output", "a", *brought)
    _, (row,) = read_results(tmp_path / "a" / "results.json")
    assert row.error is None and row.cell.agent == "cross-q" and row.cell.code and row.scores[0] > 0.0


@pytest.mark.slow
def test_workers_and_the_leaderboard_take_them(files, tmp_path):
    agents = ["--agents", "steady", "standard:action=tilt", "lucky:action=two-prices,steps=60"]
    more = [*agents, "--scenarios", "two-level", "--jobs", "2", *files]
    command("compare", *more, "--privacy", "none", SPEC, "--actions", "two-prices", "--seeds", "0", "--output", "a")
    assert "curtailed_kwh,curtailed_peak_kw" in (tmp_path / "a" / "results.csv").read_text()
    _, rows = read_results(tmp_path / "a" / "results.json")
    scores = {(row.cell.agent, row.cell.privacy): row.scores[0] for row in rows}
    assert {agent for agent, _ in scores} == {"steady", "standard", "lucky"}
    assert all(row.error is None and row.cell.code for row in rows)
    assert scores["standard", None] == pytest.approx(100.0, abs=1e-4) and scores["standard", SPEC] < 100.0
    mine = tmp_path / "mine.py"  # the leaderboard's agents are fixed; one more is submitted
    mine.write_text(
        "from dp_ensemble_env.agents import make_agent, register_agent\n"
        "@register_agent('dull')\ndef dull(env):\n    return make_agent('uncontrolled', env)\n"
    )
    asked = ["--submit", "mine.py", "--allow-code", "--scenarios", "two-level", "--action", "two-prices"]
    command("leaderboard", *asked, "--cells", "1", "--output", "b", *files)
    _, rows = read_results(tmp_path / "b" / "leaderboard.json")
    assert len(rows) == 4 and all(row.scores == pytest.approx([0.0] * len(row.scores), abs=1e-6) for row in rows)
