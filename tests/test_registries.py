"""The recipes of CONTRIBUTING.md: what a stranger's file registers works everywhere, here and in other processes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import gymnasium
import numpy as np
import pytest
from helpers import recipe
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env import EnsembleModel, scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.envs import EnsembleEnv, EnsembleVectorEnv, actions
from dp_ensemble_env.experiments.compare import Grid, data_sets
from dp_ensemble_env.experiments.runner import compute, read_results
from dp_ensemble_env.privacy import (
    Event,
    PrivacyBudgetExceeded,
    PrivacyLedger,
    Release,
    mechanism,
    mechanisms,
)
from dp_ensemble_env.scenarios import Card
from dp_ensemble_env.tools.registry import load_source

TITLES = {"mechanism": "A new mechanism", "scenario": "A new scenario", "basis": "A new action basis",
          "agent": "A new agent", "format": "A new meter format"}  # fmt: skip
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
@pytest.mark.parametrize("population", ["mean-field", 100, "single"])
@pytest.mark.parametrize("name", STRANGERS)
def test_single_and_vector_environments_agree_bit_by_bit(name, population):
    settings = {**STRANGERS[name], "population": population}
    single, vector = EnsembleEnv(**settings), EnsembleVectorEnv(3, **settings)
    rng = np.random.default_rng(0)
    low = single.action_space.low.flat[0]
    seen, _ = vector.reset(seed=5)
    alone = [EnsembleEnv(**settings) for _ in range(3)]
    for i, env in enumerate(alone):
        assert_array_equal(env.reset(seed=5 + i)[0], seen[i])
    for _ in range(single.model.horizon):
        action = rng.uniform(low, 1.0, vector.action_space.shape).astype(np.float32)
        seen, rewards, ended, _, _ = vector.step(action)
        for i, env in enumerate(alone):
            observation, reward, done, _, _ = env.step(action[i])
            assert_array_equal(observation, seen[i])
            assert reward == rewards[i] and done == ended[i]


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
    tilt = x @ two_prices(model)[0]
    row = model.default[15] * np.exp(tilt)
    row /= row.sum()
    support = row > 0
    divergence = float((row[support] * np.log(row[support] / model.default[15][support])).sum())
    assert_allclose(env.occupancy, row, rtol=1e-12, atol=1e-15)
    assert_allclose(reward, row @ model.utility[1] - model.discomfort_penalty * divergence, rtol=1e-12)
    assert info["discomfort"] == pytest.approx(model.discomfort_penalty * divergence, rel=1e-12)


def test_a_policy_in_the_basis_is_encoded_and_another_is_refused():
    env = EnsembleEnv("campus-event", action="two-prices")
    model, x = env.model, np.array([0.2, -0.4])
    policy = model.default * np.exp(x @ two_prices(model)[3])
    policy /= policy.sum(axis=1, keepdims=True)
    assert_allclose(env.encode_policy(policy, 3, np.float64), x, rtol=1e-9)
    with pytest.raises(ValueError, match="basis of the 'two-prices' mode"):
        env.encode_policy(env.optimal_policy[3], 3)


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


def test_the_release_survives_its_file(tmp_path):
    release = CoinMechanism(0.5).release(np.eye(3), rng=1)
    for name in ("release.json", "release.npz"):
        loaded = Release.load(release.save(tmp_path / name))
        assert loaded.event == release.event and loaded.digest == release.digest
        model = EnsembleModel(np.eye(3), np.arange(3.0), -np.ones((3, 3)), 1.0)
        assert EnsembleEnv(model, privacy=loaded, reward="dollars").release


def test_a_permit_is_for_one_kind_of_draw():
    default = np.array([[0.9, 0.1], [0.2, 0.8]])
    permit = PrivacyLedger().charge(CoinMechanism(0.5).event(default))
    with pytest.raises(ValueError, match="the permit is for"):
        CoinMechanism(5.0).draw(default, permit)
    with pytest.raises(ValueError, match="the permit is for"):
        mechanism("dirichlet:k=5").draw(default, permit)


def test_mixtures_compose_between_the_largest_and_the_sum():
    default = np.array([[0.9, 0.1], [0.2, 0.8]])
    ledger = PrivacyLedger()
    ledger.release(mechanism("coin:epsilon=0.5"), default, rng=0)
    coin = ledger.spent(1e-6)
    alone = PrivacyLedger()
    alone.release(mechanism("dirichlet:k=50,floor=0.1"), default, rng=0)
    ledger.release(mechanism("dirichlet:k=50,floor=0.1"), default, rng=0)
    assert max(coin, alone.spent(1e-6)) < ledger.spent(1e-6) <= coin + alone.spent(5e-7) + 1e-9


def test_an_event_that_nobody_priced_is_refused():
    @dataclass(frozen=True)
    class Unpriced(Event, type="unpriced"):
        pass

    ledger = PrivacyLedger()
    with pytest.raises(ValueError, match="no privacy cost is known for a 'unpriced' event"):
        ledger.record(Unpriced())
    assert not ledger.entries


# ------------------------------------------------------------------ names
def test_names_are_taken_once_and_mistakes_are_named():
    with pytest.raises(ValueError, match="the mechanism 'coin' exists already"):
        mechanisms.register("coin", CoinMechanism)
    with pytest.raises(ValueError, match="did you mean 'two-level'"):
        EnsembleEnv("two-levels")
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


def test_instances_differ_and_splits_are_disjoint():
    stay = {
        (split, i): scenarios.make("two-level", instance=i, split=split).default[0, 0]
        for split in scenarios.SPLITS
        for i in range(3)
    }
    assert len(set(stay.values())) == 9
    env = EnsembleEnv("two-level", instance=2, split="test")
    assert env.model.default[0, 0] == stay["test", 2]
    assert scenarios.make("two-level", penalty=3.0).discomfort_penalty == 3.0
    with pytest.raises(ValueError, match="setting of the scenario 'two-level' 'penlty' .did you mean 'penalty'"):
        scenarios.make("two-level", penlty=3.0)


# ------------------------------------------------------------------ agents
@pytest.mark.parametrize("name", STRANGERS)
def test_agents_are_scored_between_uncontrolled_and_optimal(name):
    settings = STRANGERS[name]
    env = EnsembleEnv(**settings)
    env.reset(seed=1)
    assert env.step(np.zeros(env.action_space.shape))[-1]["discomfort"] == 0.0  # zero does not interfere
    assert evaluate(make_agent("uncontrolled", env), env).score == pytest.approx(0.0, abs=1e-9)
    best = evaluate(make_agent("best-price", env), env).score
    assert 0.0 <= best <= 100.0 + 1e-9
    if settings["action"] == "tilt":
        assert evaluate(make_agent("standard", env), env).score == pytest.approx(100.0, abs=1e-4)


@pytest.mark.torch
@pytest.mark.parametrize("name", STRANGERS)
def test_a_comparison_takes_each_of_them(name, tmp_path):
    settings = STRANGERS[name]
    grid = Grid(
        agents=("uncontrolled", "best-price", "standard:action=tilt", "a2c:steps=1152"), actions=(settings["action"],),
        privacy=("none", settings.get("privacy", "public")), seeds=("0",), episodes=10,
    )  # fmt: skip
    sets = data_sets([settings["model"]])
    supplies, _ = grid.supplies(sets)
    rows = {(row.cell.agent, row.cell.privacy): row for row in (compute(c, supplies) for c in grid.cells(sets)[0])}
    assert all(row.error is None and max(row.scores) <= 100.0 + 1e-4 for row in rows.values())
    assert rows["standard", None].scores == [pytest.approx(100.0, abs=1e-4)]
    assert rows["uncontrolled", None].scores == [0.0] and len(rows) == 1 + 3 * 2


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The five recipes as files, the options that import them, and their folder as the current one."""
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
def test_workers_and_the_leaderboard_take_them(files, tmp_path):
    agents = ["--agents", "steady", "standard:action=tilt", "lucky:action=two-prices,steps=60"]
    more = [*agents, "--scenarios", "two-level", "--jobs", "2", *files]
    command("compare", *more, "--privacy", "none", SPEC, "--actions", "two-prices", "--seeds", "0", "--output", "a")
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
