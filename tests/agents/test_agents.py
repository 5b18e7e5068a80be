"""Practice and analytical agents, and the evaluation that scores them."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from helpers import random_model
from numpy.testing import assert_allclose
from stable_baselines3.common.evaluation import evaluate_policy as sb3_evaluate_policy

import dp_ensemble_env  # noqa: F401 - registers the environments
from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import Agent, agent_names, evaluate, make_agent, register_agent
from dp_ensemble_env.agents.analytical import PolicyAgent
from dp_ensemble_env.agents.base import decision_time
from dp_ensemble_env.agents.evaluation import reference_returns, seed_summary
from dp_ensemble_env.agents.practice import best_constant_price
from dp_ensemble_env.control.cost import cost_of_privacy
from dp_ensemble_env.control.lsmdp import occupancy
from dp_ensemble_env.control.policies import POLICIES, solve_policy, tilted_policy
from dp_ensemble_env.control.returns import policy_return
from dp_ensemble_env.envs.actions import action_scale, price_tilts
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments import validation
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.reporting.score import event_outcome

BASELINES = ("uncontrolled", "ad-hoc", "best-price")


def settings(name, k=400.0):
    return {"k": k} if name in POLICIES and name != "standard" else {}


def rollout(env, agent, state):
    observation, _ = env.reset(options={"state": state})
    total, done = 0.0, False
    while not done:
        action, _ = agent.predict(observation)
        observation, reward, done, _, _ = env.step(action)
        total += reward
    return total


# ------------------------------------------------------------------ analytical agents
@pytest.mark.parametrize("name", POLICIES)
def test_score_three_ways(campus, name):
    """Closed form (cost of privacy), exact policy evaluation and environment rollouts agree."""
    env = EnsembleEnv(campus, action="policy")
    agent = make_agent(name, env, **settings(name))
    evaluation = evaluate(agent, env)
    exact = event_outcome(campus, agent.policy)
    assert evaluation.exact and evaluation.score == pytest.approx(exact.score, abs=1e-3)  # float32 actions
    assert evaluation.mean_return == pytest.approx(exact.mean_return, rel=1e-5)
    assert evaluation.discomfort == pytest.approx(exact.discomfort, rel=1e-4)
    assert evaluation.curtailed_kwh == pytest.approx(exact.curtailed_kwh, rel=1e-4)
    assert evaluation.energy_cost == pytest.approx(exact.energy_cost, rel=1e-4)
    if name in ("taylor", "digamma", "average-exact"):
        cost = campus.initial @ cost_of_privacy(campus, 400.0, name)[0]
        assert evaluation.gap == pytest.approx(cost, abs=0.02)
    returns = [rollout(env, agent, state) for state in (9, 17)]
    idle, best = reference_returns(campus)
    assert (np.array(returns) <= best[[9, 17]] + 1e-3).all() and (np.array(returns) > idle[[9, 17]]).all()


@pytest.mark.parametrize("action", ["tilt", "policy"])
def test_standard_scores_a_hundred(action):
    env = gymnasium.make(f"dp_ensemble/CampusEvent-{action}-v1")
    assert evaluate(make_agent("standard", env), env).score == pytest.approx(100, abs=1e-3)


def test_all_converge_to_the_standard_policy(campus):
    env = EnsembleEnv(campus, action="policy")
    for name in POLICIES:
        scores = [evaluate(make_agent(name, env, **settings(name, k)), env).score for k in (500.0, 1e5)]
        assert scores[1] == pytest.approx(100, abs=2e-3) and scores[0] <= scores[1] + 1e-3


def test_finite_populations_agree_with_the_exact_score(campus):
    exact = event_outcome(campus, solve_policy(campus, "taylor", 50.0)).score
    for population, episodes in (("single", 4000), (100, 400)):
        env = EnsembleEnv(campus, population, "policy")
        evaluation = evaluate(make_agent("taylor", env, k=50.0), env, episodes=episodes, seed=1)
        assert not evaluation.exact and evaluation.score_error > 0
        assert abs(evaluation.score - exact) < 5 * evaluation.score_error
        assert evaluation.episodes == episodes


def test_standard_error_is_that_of_repeated_evaluations(campus):
    env = EnsembleEnv(campus, "single", "tilt")
    agent = make_agent("standard", env)
    repeats = [evaluate(agent, env, episodes=200, seed=1000 * i) for i in range(30)]
    spread = np.std([r.score for r in repeats], ddof=1)
    assert spread == pytest.approx(np.mean([r.score_error for r in repeats]), rel=0.5)


def test_policies_solved_on_a_release_and_deployed_on_the_truth(campus):
    release = DirichletMechanism(50.0).release(campus.default, rng=3)
    env = EnsembleEnv(campus, action="policy")
    agent = make_agent("standard", env, release=release)
    private = solve_policy(campus.with_default(release.matrix), "standard")
    assert evaluate(agent, env).score == pytest.approx(event_outcome(campus, private).score, abs=1e-2)
    assert agent.privacy == "that of one release"
    assert make_agent("taylor", env, release=release).policy.shape == (18, 20, 20)  # k is the release's
    inside = EnsembleEnv(campus, action="policy", privacy="dirichlet:k=50", release_seed=1)
    assert make_agent("digamma", inside).privacy == "that of one release"
    assert evaluate(make_agent("standard", inside), inside).score == pytest.approx(100, abs=1e-2)


def test_privacy_labels_say_what_is_true(campus):
    env = EnsembleEnv(campus, action="policy")
    assert make_agent("standard", env).privacy == "none: computed from the true matrix"
    assert make_agent("taylor", env, k=500.0).privacy.startswith("noise-aware, not private")
    assert make_agent("average", env, k=500.0, samples=30).privacy == "that of 30 releases together"
    assert "public prices" in make_agent("ad-hoc", env).privacy


def test_policies_that_are_no_tilts_are_refused_in_tilt_mode(campus):
    with pytest.raises(ValueError, match="not a tilt"):
        make_agent("digamma", EnsembleEnv(campus), k=50.0)
    with pytest.raises(ValueError, match="needs k"):
        make_agent("digamma", EnsembleEnv(campus, action="policy"))
    with pytest.raises(ValueError, match=r"\(T, n, n\)"):
        PolicyAgent(EnsembleEnv(campus, action="policy"), campus.default)


# ------------------------------------------------------------------ practice
@pytest.mark.parametrize("name", BASELINES)
def test_baselines_score_the_same_in_every_action_mode(campus, name):
    scores = []
    for action in ("price", "tilt", "policy"):
        env = EnsembleEnv(campus, action=action)
        scores.append(evaluate(make_agent(name, env), env).score)
    assert_allclose(scores, scores[0], atol=2e-3)
    low, high = {"uncontrolled": (-1e-6, 1e-6), "ad-hoc": (5, 60), "best-price": (85, 99)}[name]
    assert low <= scores[0] <= high


def test_best_price_beats_every_price_on_a_grid(campus):
    def earned(model, price):
        return policy_return(model, tilted_policy(model, price_tilts(model, np.full(model.horizon, price))))

    agent = make_agent("best-price", EnsembleEnv(campus, action="price"))
    assert agent.price == best_constant_price(campus)
    for model in (campus, scenarios.make("spot"), scenarios.make("feeder"), scenarios.make("tracking")):
        price = best_constant_price(model)
        near = price + np.array([-1e-3, -1e-5, 1e-5, 1e-3])
        assert earned(model, price) >= max(earned(model, x) for x in (*np.linspace(-1, 1, 101), *near)) - 1e-9


def test_best_price_is_zero_where_no_price_helps(campus):
    assert best_constant_price(campus.override(utility=np.zeros_like(campus.utility), tilt_scale=np.ones(18))) == 0.0


def test_ad_hoc_waits_for_the_event(campus):
    actions = make_agent("ad-hoc", EnsembleEnv(campus, action="price")).actions[:, 0]
    assert_allclose(actions[:2], 0.0)  # two steps of notice
    nats = actions[2:] * action_scale(campus)[2:]
    assert_allclose(nats, nats[0], rtol=1e-5)  # the same shed in every interval of the event
    assert nats[0] > 0


def test_tilts_and_scale_are_those_of_the_environment(campus):
    """What `price_tilts` and `action_scale` say is what the compiled steps do, in every mode and at every time."""
    prices = np.random.default_rng(0).uniform(-1.0, 1.0, campus.horizon)
    tilts = price_tilts(campus, prices)
    expected = occupancy(tilted_policy(campus, tilts), np.eye(campus.n_states)[15])
    price, tilt = (EnsembleEnv(campus, action=action) for action in ("price", "tilt"))
    for env in (price, tilt):
        env.reset(options={"state": 15})
    for t in range(campus.horizon):
        price.step(prices[t : t + 1])
        tilt.step(tilts[t] / action_scale(campus)[t])
        assert_allclose(price.occupancy, expected[t + 1], rtol=1e-11, atol=1e-14)
        assert_allclose(tilt.occupancy, expected[t + 1], rtol=1e-11, atol=1e-14)


# ------------------------------------------------------------------ the protocol
def test_predict_takes_one_observation_or_a_batch(campus):
    env = EnsembleEnv(campus, action="tilt")
    agent = make_agent("standard", env)
    observation, _ = env.reset(seed=0)
    single, state = agent.predict(observation)
    batch, _ = agent.predict(np.stack([observation] * 3))
    assert isinstance(agent, Agent) and state is None
    assert single.shape == (20,) and batch.shape == (3, 20)
    assert_allclose(batch[2], single)


def test_decision_time_from_the_observation():
    horizon = 18
    left = np.float32(1) - np.arange(horizon + 1, dtype=np.float32) / np.float32(horizon)
    observations = np.zeros((horizon + 1, 23), np.float32)
    observations[:, -3] = left
    assert decision_time(observations, horizon).tolist() == [*range(18), 17]


def test_stable_baselines_evaluates_every_agent(campus):
    env = EnsembleEnv(campus.override(initial=[17]), action="tilt")
    returns, _ = sb3_evaluate_policy(make_agent("standard", env), env, n_eval_episodes=2, warn=False)
    assert returns == pytest.approx(env.optimal_return(17), rel=1e-4)


def test_names_are_checked_and_extended(campus):
    env = EnsembleEnv(campus)
    with pytest.raises(ValueError, match="unknown agent 'standart'.*did you mean 'standard'"):
        make_agent("standart", env)
    register_agent("mine")(lambda env: make_agent("uncontrolled", env))
    assert "mine" in agent_names() and evaluate(make_agent("mine", env), env).score == pytest.approx(0, abs=1e-6)
    with pytest.raises(ValueError, match="dp_ensemble environments"):
        make_agent("uncontrolled", gymnasium.make("CartPole-v1"))


def test_evaluation_is_repeatable_and_leaves_the_environment_alone(campus):
    env = EnsembleEnv(campus, "single", "tilt")
    env.reset(seed=3)
    before = env.occupancy
    agent = make_agent("standard", env)
    first, again = (evaluate(agent, env, episodes=300, seed=7) for _ in range(2))
    assert first.to_dict() == again.to_dict()
    assert_allclose(env.occupancy, before)
    assert evaluate(agent, env, episodes=300, seed=8).mean_return != first.mean_return


def test_models_without_an_event_are_evaluated_too():
    model = random_model(0, n=4, horizon=3)
    env = EnsembleEnv(model, action="policy")
    evaluation = evaluate(make_agent("standard", env), env)
    assert evaluation.score == pytest.approx(100, abs=1e-3)
    assert evaluation.to_dict()["energy_cost"] is None and evaluation.to_dict()["delivered_kwh"] is None


# ------------------------------------------------------------------ a release for each episode
def returns_from_every_state(agent, model):
    """Play from every start state in a loop of our own."""
    env, found = EnsembleEnv(model), []
    for state in range(model.n_states):
        observation, _ = env.reset(options={"state": state})
        total, over = 0.0, False
        while not over:
            observation, reward, over, _, _ = env.step(agent.predict(observation)[0])
            total += reward
        found.append(total)
    return np.array(found)


def test_every_episode_is_scored_against_its_own_release(campus):
    settings = {"privacy": "dirichlet:k=20", "release_seed": 3, "redraw": "episode"}
    env = EnsembleEnv(campus, **settings)
    agent, first, charged = make_agent("standard", env), env.model, env.ledger.releases
    evaluations = []
    for _ in range(3):
        evaluations.append(evaluate(agent, env, episodes=4).to_dict())
        assert env.ledger.releases == charged + 3  # the first was there, and nothing is charged twice
        env.reset(seed=0)
    assert evaluations[0] == evaluations[1] == evaluations[2]
    twin, rows = EnsembleEnv(campus, **settings), []
    for _ in range(4):
        twin.reset(seed=0)
        idle, best = reference_returns(twin.model)
        rows.append([campus.initial @ x for x in (returns_from_every_state(agent, twin.model), idle, best)])
    achieved, idle, best = np.array(rows).T
    scores = 100 * (achieved - idle) / (best - idle)
    assert scores[0] == pytest.approx(100, abs=1e-3) and scores.min() < 97  # it was planned on the first
    found = evaluations[0]
    assert found["score"] == pytest.approx(100 * (achieved - idle).sum() / (best - idle).sum(), abs=1e-4)
    assert found["score_error"] > 0 and not found["exact"] and found["mean_return"] == pytest.approx(achieved.mean())
    assert env.model.default.tolist() != first.default.tolist()  # three resets: the third release is in force


def test_the_uncontrolled_ensemble_scores_zero_on_any_releases(campus):
    for population in ("mean-field", "single"):
        env = EnsembleEnv(campus, population, privacy="dirichlet:k=20", redraw="episode")
        found = evaluate(make_agent("uncontrolled", env), env, episodes=640)
        assert abs(found.score) <= 4 * found.score_error + 1e-9
        model = env.model
        assert evaluate(make_agent("uncontrolled", env), env, episodes=2).episodes == (
            40 if population != "single" else 2
        )
        assert env.model is model


# ------------------------------------------------------------------ seeds
def test_seed_summary_of_known_scores():
    summary = seed_summary([90.0, 95.0, 96.0, 97.0, 20.0, 96.5, 95.5, 96.2])
    middle = np.sort([90.0, 95.0, 96.0, 97.0, 20.0, 96.5, 95.5, 96.2])[2:6].mean()
    assert summary.iqm == pytest.approx(middle) and summary.least == 20.0 and summary.seeds == 8
    assert summary.low <= summary.iqm <= summary.high
    one = seed_summary([93.0])
    assert (one.iqm, one.low, one.high) == (93.0, 93.0, 93.0)
    with pytest.raises(ValueError, match="empty"):
        seed_summary([])


# ------------------------------------------------------------------ the paper's environment
@pytest.mark.parametrize("name", POLICIES)
def test_analytical_policies_act_in_the_environment_of_the_paper(name):
    """The standard policy is a tilt; the others expect the noise and take the policy mode."""
    mode = {} if name == "standard" else {"action": "policy"}
    env = gymnasium.make("dp_ensemble/Paper-v1", **mode)
    agent = make_agent(name, env)  # expects the k of the release
    found = evaluate(agent, env)
    released = env.unwrapped.model
    exact = event_outcome(released, solve_policy(released, name, 50.0, **SAMPLED.get(name, {})))
    tolerance = 0.5 if name == "average-sampled" else 1e-3
    assert found.score == pytest.approx(exact.score, abs=tolerance) and found.score <= 100 + 1e-9
    assert found.score > 80 and (found.score > 100 - 1e-6) == (name == "standard")
    with pytest.raises(ValueError, match="action='policy'"):
        make_agent("taylor", gymnasium.make("dp_ensemble/Paper-v1")).predict(env.reset(seed=0)[0])


SAMPLED = {"average-sampled": {"samples": 500, "rng": 1}}


def test_validation_runs_on_the_release_of_the_paper(campus):
    env = gymnasium.make("dp_ensemble/Paper-v1").unwrapped
    problem = validation.Problem(campus, env.release, 50.0, samples=50, seed=0, episodes=200)
    assert problem.model.fingerprint == env.model.fingerprint
    assert validation.validate(problem, ("standard", "taylor")).agrees
