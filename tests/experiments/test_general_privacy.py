"""Privacy studies of a scenario with nature and contexts: frontier and split of the loss."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import load

from dp_ensemble_env import scenarios
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.kernel import world
from dp_ensemble_env.control.lsmdp import evaluate_policy
from dp_ensemble_env.control.policies import solve_standard, tilted_policy
from dp_ensemble_env.experiments.studies import frontier, regret
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy import mechanism
from dp_ensemble_env.reporting.plots import plot_frontier
from dp_ensemble_env.scenarios import Card
from dp_ensemble_env.scenarios.problem import draw_release, simulated

NAME = "switches"


def switches(seed: int) -> EnsembleModel:
    """A heater in one of four states that is switched on or off; in a cold spell it is switched on more often."""
    rng = np.random.default_rng([seed, 3])
    on = np.array([[0.9, 0.7, 0.5, 0.1], [0.99, 0.95, 0.8, 0.6]]) + rng.uniform(-0.05, 0.0, (2, 4))
    default, guess = (np.zeros((1, 2, 4, 8)) for _ in range(2))
    for state in range(4):  # a decision is the state that one is in, and the switch
        for table, share in ((default, on[:, state]), (guess, np.full(2, 0.5))):
            table[0, :, state, 2 * state] = 1.0 - share
            table[0, :, state, 2 * state + 1] = share
    cooler, warmer = (np.clip(np.arange(4) + shift, 0, 3) for shift in (-1, 1))
    nature = np.zeros((8, 4))
    for state in range(4):
        nature[2 * state, [cooler[state]]] += 1.0
        nature[2 * state + 1, warmer[state]] += 0.8
        nature[2 * state + 1, state] += 0.2
    price = np.array([[0.2], [1.5]])
    return EnsembleModel(
        default=default,
        power_kw=[1.0, 2.0, 3.0, 4.0],
        utility=np.broadcast_to(-price * np.array([0.0, 1.0, 2.0, 4.0]), (13, 2, 4)),
        discomfort_penalty=1.5,
        nature=nature,
        context=Context([[0.8, 0.2], [0.4, 0.6]]),
        guess=guess,
        public_fields=("levels", "utility", "penalty", "initial"),
    )


@pytest.fixture(autouse=True)
def _registered():
    scenarios.register(NAME, switches, Card("Switches", "A test."))
    yield
    scenarios.remove(NAME)


def value(model: EnsembleModel, matrix: np.ndarray) -> float:
    """Return of the plan on `matrix`, deployed as a tilt: by hand."""
    policy = tilted_policy(model, solve_standard(model.with_default(matrix)).tilt)
    cost = evaluate_policy(policy, model.default, model.utility, model.discomfort_penalty, **world(model))[0]
    return -float(model.context.start @ (cost + model.utility[0]) @ model.initial)


def score(model: EnsembleModel, matrix: np.ndarray) -> float:
    zero = np.zeros((model.horizon, 2, model.n_decisions))
    idle = evaluate_policy(
        tilted_policy(model, zero), model.default, model.utility, model.discomfort_penalty, **world(model)
    )[0]
    low = -float(model.context.start @ (idle + model.utility[0]) @ model.initial)
    return 100.0 * (value(model, matrix) - low) / (value(model, model.default) - low)


def test_the_frontier_stands_beside_the_models_own_guess(tmp_path):
    settings = frontier.FrontierSettings(
        NAME, (0,), (30.0,), (3, 2000), (2.0,), mechanisms=("gaussian", "posterior", "dirichlet"), draws=2, days=10
    )
    found = frontier.measure(settings)
    model = scenarios.make(NAME)
    assert len(found) == 6
    for point in found:
        assert point.public == pytest.approx(score(model, model.guess), abs=1e-6) and point.public < 98
        if point.participants == 3 and point.reached:
            assert point.mean == pytest.approx(point.public)  # too few to hide in
        elif point.mechanism == "gaussian":
            assert point.public + 1 < point.worst <= 100
    assert plot_frontier(found, tmp_path / "frontier.png").stat().st_size > 5000
    headings, rows = frontier.table(found)
    assert len(rows) == 3 and rows[0][:4] == ["0", "30", "gaussian", "2"]


def test_participants_that_a_scenario_describes_have_no_kappa(tmp_path):
    records = np.array([[0, 0, 0, 1], [1, 1, 2, 5]])
    scenarios.remove(NAME)
    scenarios.register(NAME, switches, Card("Switches", "A test."), lambda model, count, days, rng: [records] * count)
    settings = frontier.FrontierSettings(NAME, (0,), (30.0, 8.0), (3,), (1.0,), mechanisms=("gaussian",), draws=2)
    found = frontier.measure(settings)
    assert len(found) == 1 and frontier.table(found)[1][0][1] == "own"
    assert json.loads(json.dumps(frontier.to_json(settings, found)))["points"][0]["heterogeneity"] is None
    assert plot_frontier(found, tmp_path / "frontier.png").exists()


def test_a_loss_is_split_without_a_rest():
    model = switches(1)
    fleet = simulated(model, 400, 3, days=5)
    sample = regret.sample_matrix(fleet, model.guess)
    pooled = fleet.counts.sum(axis=0, dtype=float)
    seen = pooled.sum(axis=-1) > 0
    np.testing.assert_allclose(sample[seen], (pooled / np.maximum(pooled.sum(axis=-1, keepdims=True), 1))[seen])
    release = draw_release("gaussian:epsilon=2", model, 1, fleet=fleet)
    assert not release.matrix[model.guess == 0].any()
    found = regret.split_regret(model, release, sample=sample)
    best = value(model, model.default)
    assert found.sampling == pytest.approx(best - value(model, sample), rel=1e-9)
    assert found.privacy == pytest.approx(value(model, sample) - value(model, release.matrix), rel=1e-9)
    assert found.total == pytest.approx(found.sampling + found.privacy, rel=1e-9) and found.total > 0
    assert found.without_data == pytest.approx(score(model, model.guess), abs=1e-6)
    unseen = regret.sample_matrix(fleet.first(0), model.guess)
    np.testing.assert_allclose(unseen, model.guess, rtol=1e-12)


def test_the_commands_take_the_scenario(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    main = load("privacy").main
    few = ["--scenario", NAME, "--output", str(tmp_path)]
    assert main(["regret", *few, "--participants", "500", "--releases", "1", "--days", "3"]) == 0
    out = capsys.readouterr().out
    assert "gaussian:epsilon=1" in out and "without data" in out
    found = json.loads((tmp_path / "regret.json").read_text())["regrets"]
    assert {row["name"] for row in found} == {"public", "dirichlet:k=50", "gaussian:epsilon=1", "adaptive:epsilon=1"}
    assert found[1]["sampling"] == pytest.approx(0.0, abs=1e-9)  # drawn from the truth itself
    assert main(["frontier", *few, "--participants", "100", "--epsilons", "1", "--draws", "1", "--days", "2"]) == 0
    assert "ε = 0" in capsys.readouterr().out


def test_an_environment_without_participants_says_where_to_get_some():
    from dp_ensemble_env.envs import EnsembleEnv

    model = scenarios.make(NAME)
    with pytest.raises(ValueError, match=r"scenarios\.participants"):
        EnsembleEnv(model, privacy="gaussian:epsilon=1")
    public = EnsembleEnv(model, privacy="public")
    np.testing.assert_allclose(public.model.default, model.guess, rtol=1e-12)
    assert public.ledger.spent(1e-6) == 0.0
    made = mechanism("gaussian:epsilon=1")
    release = made.release(scenarios.participants(NAME, 100, days=2), 1, **made.terms_of(model))
    np.testing.assert_array_equal(EnsembleEnv(model, privacy=release).model.default, release.matrix)
