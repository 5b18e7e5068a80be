"""Z-learning: against exact desirabilities on small problems, and scores on the campus."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from helpers import random_model

from dp_ensemble_env.agents import agent_names, evaluate, make_agent
from dp_ensemble_env.agents.z_learning import (
    Explorer,
    fill_gaps,
    greedy_tilt,
    importance_update,
    learn,
    passive_update,
    tilt_actions,
)
from dp_ensemble_env.control.policies import solve_standard, tilted_policy
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.envs.actions import action_scale
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import event_outcome

SEEDS = (11, 12, 13)


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
@pytest.mark.parametrize("exploring_starts", [True, False])
def test_converges_to_the_exact_desirability(exploration, exploring_starts):
    model = three_levels()
    env = single(model)
    rough = learn(env, 4_000, exploration, tolerance=0.0, exploring_starts=exploring_starts)
    fine = learn(env, 400_000, exploration, tolerance=0.0, exploring_starts=exploring_starts)
    exact = exact_log_z(model)
    # At least 2,000 visits a pair and a spread of about one nat: four standard errors are below 0.06 (c = 4 triples
    # the variance of a plain mean).
    assert fine.visits.min() > 2_000
    assert np.abs(fine.log_z - exact).max() < 0.06
    assert np.abs(fine.log_z - exact).mean() < np.abs(rough.log_z - exact).mean()
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
    rng = np.random.default_rng(seed)
    model = random_model(seed, n=5, horizon=3)
    env = single(model)
    scale = action_scale(model)
    tilt = rng.uniform(-1, 1, (3, 5)) * scale[:, None]
    policy, z = tilted_policy(model, tilt), np.exp(rng.normal(size=5))
    for b in range(5):
        env.reset(seed=0, options={"state": b})
        info = env.step(tilt_actions(tilt, scale)[0])[4]
        log_g = policy[0, b] @ tilt[0] - info["discomfort"] / model.discomfort_penalty
        assert policy[0, b] @ (np.exp(log_g - tilt[0]) * z) == pytest.approx(model.default[b] @ z, rel=1e-9)


def test_importance_weighting_is_unbiased_whatever_the_tilt():
    # One decision from one level; 400 batches of 500 moves with a fixed, far from greedy tilt.
    model = three_levels().override(utility=-np.array([[0.0] * 3, [1.0, 2.0, 3.0]]), initial=[1], times=None)
    explorer = Explorer(single(model), 500, seed=3)
    tilt = np.array([[0.4, -0.5, 0.1]])
    found = []
    for _ in range(400):
        data = explorer.play(tilt)
        log_z, visits = np.full((2, 3), np.nan), np.zeros((1, 3), np.int64)
        log_z[1] = model.utility[1] / model.discomfort_penalty
        args = (log_z, visits, 1.0, model.discomfort_penalty)
        importance_update(data.states, data.utility, data.divergence, tilt, *args)
        found.append(log_z[0, 1])
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    bias_left = 0.5 * np.var(np.exp(model.utility[1] / 2 - tilt[0])) / 500  # of the logarithm of a mean of 500
    assert abs(np.mean(found) - exact_log_z(model)[0, 1]) < 4 * error + bias_left
    assert error < 0.002


def test_a_greedy_tilt_leaves_only_the_normaliser_to_chance():
    # With the exact tilt the weighted target is constant: one batch finds log z up to the error of E_pi[tilt].
    model = three_levels()
    exact = exact_log_z(model)
    explorer = Explorer(single(model), 4000, seed=0)
    tilt = greedy_tilt(exact, model.power_kw, explorer.scale)
    data = explorer.play(tilt, exploring_starts=True)
    log_z, visits = np.full_like(exact, np.nan), np.zeros((3, 3), np.int64)
    importance_update(data.states, data.utility, data.divergence, tilt, log_z, visits, 1.0, 2.0)
    policy = tilted_policy(model, tilt)
    spread = np.sqrt(
        [[policy[t, b] @ tilt[t] ** 2 - (policy[t, b] @ tilt[t]) ** 2 for b in range(3)] for t in range(3)]
    )
    own = spread / np.sqrt(visits)
    assert np.all(np.abs(log_z[2] - exact[2]) < 5 * own[2])
    assert np.all(np.abs(log_z[:-1] - exact[:-1]) < 5 * own[::-1].max(axis=1).cumsum()[::-1][:, None])


def test_gaps_are_interpolated_in_power():
    log_z = np.array([[np.nan, -1.0, np.nan, -5.0, np.nan], [np.nan] * 5])
    filled = fill_gaps(log_z, np.array([1.0, 2.0, 3.0, 6.0, 7.0]))
    assert filled[0] == pytest.approx([-1.0, -1.0, -2.0, -5.0, -5.0])
    assert np.array_equal(filled[1], np.zeros(5))


def test_tilts_stay_in_the_box():
    tilt = greedy_tilt(np.array([[0.0, 0.0], [5.0, -5.0], [1.0, 0.0]]), np.array([1.0, 2.0]), np.array([2.0, 0.0]))
    assert tilt.tolist() == [[2.0, -2.0], [0.0, 0.0]]
    assert tilt_actions(tilt, np.array([2.0, 0.0])).tolist() == [[1.0, -1.0], [0.0, 0.0]]


# ------------------------------------------------------------------ the campus
@pytest.mark.parametrize(("exploration", "budget"), [("importance", 20_000), ("passive", 50_000)])
def test_scores_95_within_the_stated_transitions(campus, exploration, budget):
    env = gymnasium.make("dp_ensemble_env:dp_ensemble/CampusEvent-tilt-v1", population="single")
    for seed in SEEDS:
        agent = make_agent("z-learning", env, steps=budget, exploration=exploration, seed=seed)
        assert agent.learned.transitions <= budget
        exact = exact_score(campus, agent.learned.tilt)
        assert 95.0 <= exact <= 100.0
        outcome = evaluate(agent, env)
        assert outcome.exact and outcome.score == pytest.approx(exact, abs=1e-9)


def test_importance_needs_fewer_transitions_than_passive(campus):
    env = single(campus)
    means = {
        name: np.mean([exact_score(campus, learn(env, 20_000, name, seed=s).tilt) for s in SEEDS])
        for name in ("passive", "importance")
    }
    assert means["importance"] > means["passive"] + 0.5


def test_exploring_starts_help_passive_exploration(campus):
    env = single(campus)
    with_them, without = (
        np.mean([exact_score(campus, learn(env, 40_000, "passive", seed=s, exploring_starts=flag).tilt) for s in SEEDS])
        for flag in (True, False)
    )
    assert with_them > without + 1.0


def test_the_convergence_check(campus):
    done = learn(single(campus), 300_000, seed=21)
    assert done.converged and done.sweeps[-1].change < 0.05 and done.transitions <= 300_000
    assert exact_score(campus, done.tilt) > 99.0
    short = learn(single(campus), 8_000, seed=21)
    assert not short.converged
    counts = [s.transitions for s in done.sweeps]
    assert all(later == 2 * earlier for earlier, later in zip(counts, counts[1:], strict=False))


def test_a_wrong_table_is_not_called_converged(campus, monkeypatch):
    # A normaliser that is off by half a nat at every visit shows in the held-out returns.
    import dp_ensemble_env.agents.z_learning as module

    true_update = module.importance_update

    def wrong(states, utility, divergence, *rest):
        true_update(states, utility, divergence - 0.5, *rest)

    monkeypatch.setattr(module, "importance_update", wrong)
    found = learn(single(campus), 300_000, seed=21)
    assert found.sweeps[-1].change < 0.05 and not found.converged
    assert found.residual > 100.0  # 18 decisions of half a nat at $15: $135


@pytest.mark.parametrize("exploration", ["passive", "importance"])
def test_same_seed_same_result(campus, exploration):
    one, two, other = (learn(single(campus), 20_000, exploration, seed=s) for s in (4, 4, 5))
    assert np.array_equal(one.log_z, two.log_z, equal_nan=True) and one.residual == two.residual
    assert not np.array_equal(one.log_z, other.log_z, equal_nan=True)


def test_it_never_reads_the_matrix(campus, monkeypatch):
    # The learner sees a model whose matrix is nonsense to everybody but the simulator.
    import dp_ensemble_env.agents.z_learning as module

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

    real = module.EnsembleVectorEnv
    monkeypatch.setattr(module, "core_env", lambda env: Core)
    monkeypatch.setattr(module, "EnsembleVectorEnv", lambda size, model, **kw: real(size, model._model, **kw))
    blind = learn(None, 10_000, seed=1)
    monkeypatch.undo()
    assert np.array_equal(blind.tilt, learn(single(campus), 10_000, seed=1).tilt)


# ------------------------------------------------------------------ the agent
def test_it_is_an_agent_in_every_population(campus):
    assert "z-learning" in agent_names()
    env = gymnasium.make("dp_ensemble_env:dp_ensemble/CampusEvent-tilt-v1")
    agent = make_agent("z-learning", env, steps=20_000, seed=2)
    observation, _ = env.reset(seed=0)
    action, _ = agent.predict(observation)
    assert env.action_space.contains(action)
    assert agent.predict(np.stack([observation] * 3))[0].shape == (3, 20)
    assert evaluate(agent, env).score == pytest.approx(exact_score(campus, agent.learned.tilt), abs=1e-3)


def test_it_learns_on_a_release(campus):
    env = single(campus, privacy="dirichlet:k=50,floor=0.01")
    agent = make_agent("z-learning", env, steps=50_000, seed=2)
    assert agent.privacy == "that of one release"
    assert 95.0 <= exact_score(env.model, agent.learned.tilt) <= 100.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"exploration": "pasive"}, "did you mean 'passive'"),
        ({"steps": 10}, "transitions must be at least"),
        ({"step_constant": 0}, "step_constant"),
        ({"held_out": 0.0}, "held_out"),
        ({"tolerance": -1}, "tolerance"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        make_agent("z-learning", single(three_levels()), **settings)


def test_other_action_modes_are_refused():
    with pytest.raises(ValueError, match="action='tilt'"):
        make_agent("z-learning", single(three_levels(), action="policy"))
