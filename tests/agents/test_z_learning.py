"""Z-learning: against exact desirabilities on small problems, and scores on the campus."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from helpers import random_model

from dp_ensemble_env.agents import evaluate, make_agent, z_learning
from dp_ensemble_env.agents.z_learning import Explorer, fill_gaps, greedy_tilt, learn, passive_update
from dp_ensemble_env.control.policies import solve_standard, tilted_policy
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.envs.actions import action_scale
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import event_outcome


def three_levels() -> EnsembleModel:
    return EnsembleModel(
        default=[[0.7, 0.3, 0.0], [0.2, 0.5, 0.3], [0.05, 0.25, 0.7]],
        power_kw=[10.0, 20.0, 30.0],
        utility=-np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [2.0, 5.0, 8.0], [1.0, 2.5, 4.0]]),
        discomfort_penalty=2.0,
    )


def exact_log_z(model: EnsembleModel) -> np.ndarray:
    """The learner's table: log z, without the utility of time 0."""
    log_z = solve_standard(model).log_desirability.copy()
    log_z[0] -= model.utility[0] / model.discomfort_penalty
    return log_z


def single(model: EnsembleModel | None = None, **kwargs) -> EnsembleEnv:
    return EnsembleEnv(model, population="single", **kwargs)


def exact_score(model: EnsembleModel, tilt: np.ndarray) -> float:
    return event_outcome(model, tilted_policy(model, tilt)).score


# ------------------------------------------------------------------ updates
@pytest.mark.parametrize("exploration", ["passive", "importance"])
def test_converges_to_the_exact_desirability(exploration):
    model = three_levels()
    rough, fine = (learn(single(model), budget, exploration, tolerance=0.0) for budget in (4_000, 400_000))
    # At least 2,000 visits a pair and a spread of about one nat: four standard errors are below 0.06 (c = 4 triples
    # the variance of a plain mean).
    error = np.abs(fine.log_z - exact_log_z(model))
    assert fine.visits.min() > 2_000 and error.max() < 0.06
    assert error.mean() < np.abs(rough.log_z - exact_log_z(model)).mean()
    assert abs(fine.residual) < 5 * fine.standard_error


def test_one_move_is_the_stated_update():
    log_z, visits = np.array([[-1.0, np.nan], [-2.0, -3.0], [-0.5, -0.7]]), np.array([[6, 0], [2, 1]])
    states, utility = np.array([[0, 1, 1]]), np.array([[0.0, -4.0, -6.0]])
    passive_update(states, utility, log_z, visits, 2.0, 2.0)
    last = -3.0  # U_T / gamma replaces what was there: it is known without error
    middle = np.log((1 - 2 / 3) * np.exp(-3.0) + 2 / 3 * np.exp(-4.0 / 2 + last))
    first = np.log((1 - 2 / 8) * np.exp(-1.0) + 2 / 8 * np.exp(0.0 + middle))
    assert log_z[2, 1] == pytest.approx(last) and log_z[1, 1] == pytest.approx(middle)
    assert log_z[0, 0] == pytest.approx(first)
    assert visits.tolist() == [[7, 0], [2, 2]] and np.isnan(log_z[0, 1])


@pytest.mark.parametrize("seed", range(3))
def test_the_importance_weight_is_exact_by_enumeration(seed):
    # E_pi[g exp(-tilt) z] = E_P[z] for every tilt, and log g = E_pi[tilt] - KL with the divergence reported by info.
    rng, model = np.random.default_rng(seed), random_model(seed, n=5, horizon=3)
    env, explorer = single(model), Explorer(single(model), 1, 0)
    tilt = rng.uniform(-1, 1, (3, 5)) * action_scale(model)[:, None]
    policy, z = tilted_policy(model, tilt), np.exp(rng.normal(size=5))
    for b in range(5):
        env.reset(seed=0, options={"state": b})
        info = env.step(explorer.actions_of(tilt)[0])[4]
        log_g = policy[0, b] @ tilt[0] - info["discomfort"] / model.discomfort_penalty
        assert policy[0, b] @ (np.exp(log_g - tilt[0]) * z) == pytest.approx(model.default[b] @ z, rel=1e-9)


def test_gaps_are_interpolated_in_power_and_tilts_stay_in_the_box():
    log_z = np.array([[np.nan, -1.0, np.nan, -5.0, np.nan], [np.nan] * 5])
    filled = fill_gaps(log_z, np.array([1.0, 2.0, 3.0, 6.0, 7.0]))
    assert filled[0] == pytest.approx([-1.0, -1.0, -2.0, -5.0, -5.0])
    assert np.array_equal(filled[1], np.zeros(5))
    tilt = greedy_tilt(np.array([[0.0, 0.0], [5.0, -5.0], [1.0, 0.0]]), np.array([1.0, 2.0]), np.array([2.0, 0.0]))
    assert tilt.tolist() == [[2.0, -2.0], [0.0, 0.0]]


# ------------------------------------------------------------------ the campus
@pytest.mark.parametrize(("exploration", "budget"), [("importance", 20_000), ("passive", 50_000)])
def test_scores_95_within_the_stated_transitions(campus, exploration, budget):
    env = gymnasium.make("dp_ensemble_env:dp_ensemble/CampusEvent-tilt-v1", population="single")
    for seed in (11, 12, 13):
        agent = make_agent("z-learning", env, steps=budget, exploration=exploration, seed=seed)
        assert agent.steps == agent.learned.transitions <= budget
        exact, outcome = exact_score(campus, agent.learned.tilt), evaluate(agent, env)
        assert 95.0 <= exact <= 100.0 and outcome.exact and outcome.score == pytest.approx(exact, abs=1e-9)


def test_learning_ends_when_nothing_changes_any_more(campus):
    done = learn(single(campus), 300_000, seed=21)
    assert done.converged and done.sweeps[-1].change < 0.05 and done.transitions <= 300_000
    assert exact_score(campus, done.tilt) > 99.0
    assert not learn(single(campus), 8_000, seed=21).converged


def test_it_never_reads_the_matrix(campus, monkeypatch):
    # The learner sees a model whose matrix is nonsense to everybody but the simulator.
    class Blind:
        def __init__(self, model):
            self._model = model

        def __getattr__(self, name):
            public = {"n_states", "horizon", "discomfort_penalty", "power_kw", "utility", "tilt_scale"}
            assert name in public | {"is_plain", "coupling"}, name
            return getattr(self._model, name)

    class Core:
        action_mode, release = "tilt", None
        model = Blind(campus)
        models = (model,)

    real = z_learning.EnsembleVectorEnv
    monkeypatch.setattr(z_learning, "core_env", lambda env: Core)
    monkeypatch.setattr(z_learning, "EnsembleVectorEnv", lambda size, model, **kw: real(size, model._model, **kw))
    blind = learn(None, 10_000, seed=1)
    monkeypatch.undo()
    assert np.array_equal(blind.tilt, learn(single(campus), 10_000, seed=1).tilt)


# ------------------------------------------------------------------ the agent
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"exploration": "pasive"}, "did you mean 'passive'"),
        ({"steps": 10}, "transitions must be at least"),
        ({"step_constant": 0}, "step_constant"),
        ({"tolerance": -1}, "tolerance"),
        ({"action": "policy"}, "action='tilt'"),
        ({"model": "spot"}, "Train 'ppo' here instead"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    env = single(settings.pop("model", three_levels()), action=settings.pop("action", "tilt"))
    with pytest.raises(ValueError, match=words):
        make_agent("z-learning", env, **settings)
