"""Scores: exact for schedules, by paired episodes for everything else."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import random_model
from numpy.testing import assert_allclose
from oracles import KINDS, MODES, general_model

from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.agents.base import ScheduleAgent
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.envs.tables import layout_of
from dp_ensemble_env.reporting.score import reference_returns, start_values


class Player:
    """An agent that is only known by what it plays."""

    def __init__(self, agent):
        self.predict, self.privacy = agent.predict, agent.privacy


def random_schedule(env, seed=0):
    """Actions by time and context, some of them beyond the box."""
    rng, model, space = np.random.default_rng(seed), env.model, env.action_space
    shape = model.horizon, model.n_contexts, *space.shape
    if hasattr(space, "n"):
        actions = rng.integers(space.n, size=shape)
    else:
        actions = rng.uniform(1.2 * space.low, 1.2 * space.high, shape)
    actions = actions if model.context is not None else actions[:, 0]
    return ScheduleAgent(actions, "random", "none", layout_of(model), by_context=model.context is not None)


# ------------------------------------------------------------------ schedules
@pytest.mark.parametrize(("kind", "mode"), [*((kind, "tilt") for kind in KINDS), *(("everything", m) for m in MODES)])
def test_a_schedule_is_scored_exactly_as_it_is_played(kind: str, mode: str) -> None:
    """Whatever its name, in every mode, with contexts and couplings; the episodes are the oracle."""
    for population in ("mean-field", "single" if mode == "policy" else 6):
        env = EnsembleEnv(general_model(kind, 3), population, mode)
        agent = random_schedule(env)
        exact, played = evaluate(agent, env), evaluate(Player(agent), env, 400)
        if population != "mean-field" and env.model.coupling is not None:
            assert not exact.exact and exact.episodes == 2000  # the loads notice each other
            continue
        assert exact.exact and (exact.score_error, exact.episodes) == (0.0, 0)
        assert abs(exact.score - played.score) < (1e-3 if played.exact else 5 * played.score_error + 1e-3)
        if played.exact:
            assert exact.mean_return == pytest.approx(played.mean_return, rel=1e-5, abs=1e-5)
            assert exact.discomfort == pytest.approx(played.discomfort, rel=1e-4, abs=1e-5)
            assert_allclose(exact.power_kw, played.power_kw, rtol=1e-4)
            assert exact.curtailed_kwh == pytest.approx(played.curtailed_kwh, rel=1e-3, abs=1e-2)


def test_a_schedule_of_a_class_of_ones_own_is_scored_exactly(campus):
    class Steady:
        """Shed a little, always: not one of our classes."""

        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            return np.full((*np.shape(observation)[:-1], 1), 0.25, np.float32), state

        def schedule(self, model):
            return np.full((model.horizon, model.n_contexts, 1), 0.25)

    env = EnsembleEnv(campus, action="price")
    exact, played = evaluate(Steady(), env), evaluate(Player(ScheduleAgent(np.full((18, 1), 0.25), "", "")), env)
    assert (exact.exact, exact.episodes, played.episodes) == (True, 0, 20)
    assert exact.score == pytest.approx(played.score, abs=1e-4)
    with pytest.raises(ValueError, match=r"schedule has shape \(18, 1, 1\) where action='tilt' takes .* \(18, 1, 20\)"):
        evaluate(Steady(), EnsembleEnv(campus))
    other = EnsembleEnv(campus.override(utility=campus.utility[:10], times=None, event=None), action="price")
    agent = make_agent("best-price", env)  # of another horizon: it reads the time by its share, and is played
    assert evaluate(agent, other).episodes == campus.n_states


def test_several_instances_are_scored_each_against_its_own_ends():
    models = [random_model(seed, n=4, horizon=3) for seed in range(3)]
    env = EnsembleEnv(models, action="price")
    agent = random_schedule(EnsembleEnv(models[0], action="price"))
    whole, ends = evaluate(agent, env), np.array([start_values(model) for model in models])
    earned = np.array([evaluate(agent, EnsembleEnv(model, action="price")).mean_return for model in models])
    assert whole.exact and whole.mean_return == pytest.approx(earned.mean())
    assert whole.score == pytest.approx(100 * (earned - ends[:, 0]).sum() / (ends[:, 1] - ends[:, 0]).sum())


# ------------------------------------------------------------------ episodes
@pytest.mark.parametrize("population", ["mean-field", 6])
@pytest.mark.parametrize("kind", KINDS)
def test_played_scores_of_the_two_ends(kind: str, population: str | int) -> None:
    """Episodes are paired with both ends along their own contexts, so luck cancels."""
    env = EnsembleEnv(general_model(kind, 6), population)
    exact = population == "mean-field" or env.model.coupling is not None
    for name, value in (("uncontrolled", 0.0), ("standard", 100.0)):
        outcome = evaluate(Player(make_agent(name, env)), env, 300 if population == 6 else 40)
        assert abs(outcome.score - value) < (1e-3 if exact else 4 * outcome.score_error + 1e-3)
        assert outcome.exact == (population == "mean-field" and env.model.context is None)


def test_standard_error_is_that_of_repeated_evaluations(campus):
    env = EnsembleEnv(campus, "single", "tilt")
    env.reset(seed=3)
    before, agent = env.occupancy, Player(make_agent("standard", env))
    repeats = [evaluate(agent, env, episodes=200, seed=1000 * i) for i in range(30)]
    spread = np.std([r.score for r in repeats], ddof=1)
    assert spread == pytest.approx(np.mean([r.score_error for r in repeats]), rel=0.5)
    assert evaluate(agent, env, episodes=200, seed=1000).to_dict() == repeats[1].to_dict() != repeats[0].to_dict()
    assert_allclose(env.occupancy, before)  # the environment is left alone


# ------------------------------------------------------------------ a release for each episode
@pytest.mark.parametrize("wrap", [Player, lambda agent: agent])
def test_every_episode_is_scored_against_its_own_release(campus, wrap):
    settings = {"privacy": "dirichlet:k=20", "release_seed": 3, "redraw": "episode"}
    env = EnsembleEnv(campus, **settings)
    agent, first, charged = wrap(make_agent("standard", env)), env.model, env.ledger.releases
    outcomes = []
    for _ in range(3):
        outcomes.append(evaluate(agent, env, episodes=4).to_dict())
        assert env.ledger.releases == charged + 3  # the first was there, and nothing is charged twice
        env.reset(seed=0)
    outcome = outcomes[0]
    assert outcome == outcomes[1] == outcomes[2]
    twin, rows = EnsembleEnv(campus, **settings), []
    for _ in range(4):
        twin.reset(seed=0)
        achieved = evaluate(Player(agent), EnsembleEnv(twin.model)).mean_return
        rows.append([achieved, *(campus.initial @ end for end in reference_returns(twin.model))])
    achieved, idle, best = np.array(rows).T
    scores = 100 * (achieved - idle) / (best - idle)
    assert scores[0] == pytest.approx(100, abs=1e-3) and scores.min() < 97  # it was planned on the first
    assert outcome["score"] == pytest.approx(100 * (achieved - idle).sum() / (best - idle).sum(), abs=1e-4)
    assert outcome["score_error"] > 0 and not outcome["exact"]
    assert outcome["mean_return"] == pytest.approx(achieved.mean())
    assert env.model.default.tolist() != first.default.tolist()  # three resets: the third release is in force
