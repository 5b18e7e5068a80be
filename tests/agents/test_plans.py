"""Agents that plan: what they play, what it is worth, and where they cannot play; the rolling one re-plans."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import KINDS, MODES, T, general_model, policy_of

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.agents.plans import PolicyAgent, best_constant_price, remaining
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.cost import cost_of_privacy
from dp_ensemble_env.control.coupled import solve_coupled
from dp_ensemble_env.control.policies import POLICIES, solve_policy, tilted_policy
from dp_ensemble_env.control.returns import myopic_tilts, policy_return
from dp_ensemble_env.envs.actions import price_tilts
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.reporting.score import event_outcome, reference_returns
from dp_ensemble_env.scenarios.problem import draw_release

PRICES = ("uncontrolled", "ad-hoc", "best-price")


def settings(name):
    return {"standard": {}, "average-sampled": {"k": 400.0, "samples": 100}}.get(name, {"k": 400.0})


def evening(name, steps):
    """What is left of a scenario at the end of the day, from its first context."""
    model = scenarios.make(name)
    return remaining(model, model.horizon - steps, 0, model.initial)


def rollout(env, agent, **start):
    observation, _ = env.reset(seed=0, options=start)
    total, done, state = 0.0, False, None
    while not done:
        action, state = agent.predict(observation, state)
        observation, reward, done, _, _ = env.step(action)
        total += reward
    return total


# ------------------------------------------------------------------ closed-form policies
@pytest.mark.parametrize("name", POLICIES)
def test_score_three_ways(campus, name):
    """Closed form (cost of privacy), exact policy evaluation and environment rollouts agree."""
    env = EnsembleEnv(campus, action="policy", reward="dollars")
    agent = make_agent(name, env, **settings(name))
    outcome, exact = evaluate(agent, env), event_outcome(campus, agent.policy)
    assert outcome.exact and outcome.score == pytest.approx(exact.score, abs=1e-9)
    if name in ("taylor", "digamma", "average-exact"):
        assert outcome.gap == pytest.approx(campus.initial @ cost_of_privacy(campus, 400.0, name)[0], abs=0.02)
    returns = np.array([rollout(env, agent, state=state) for state in range(campus.n_states)])
    idle, best = reference_returns(campus)
    assert (returns <= best + 1e-3).all() and (returns > idle).all()
    assert campus.initial @ returns == pytest.approx(outcome.mean_return, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_optimal_plan_plays_the_optimal_policy(kind: str) -> None:
    model = general_model(kind)
    for mode in ("tilt", "policy"):
        env = EnsembleEnv(model, action=mode)
        agent = make_agent("standard", env)
        policy = env.optimal_policy.reshape(T, -1, *env.optimal_policy.shape[-2:])
        for t, w in np.ndindex(policy.shape[:2]):
            played = agent.actions[t, w] if agent.by_context else agent.actions[t]
            assert_allclose(policy_of(model, mode, played, t, w), policy[t, w], atol=1e-9)


def test_plans_made_on_a_release_and_deployed_on_the_truth(campus):
    release = DirichletMechanism(50.0).release(campus.default, rng=3)
    env = EnsembleEnv(campus, action="policy")
    agent = make_agent("standard", env, release=release)
    private = solve_policy(campus.with_default(release.matrix), "standard")
    assert evaluate(agent, env).score == pytest.approx(event_outcome(campus, private).score, abs=1e-9)
    assert agent.privacy == "that of one release"
    expected = solve_policy(campus.public(release), "taylor", 50.0)
    assert_allclose(make_agent("taylor", env, release=release).policy, expected, rtol=1e-12)  # k is the release's
    inside = EnsembleEnv(campus, action="policy", privacy="dirichlet:k=50", release_seed=1)
    agent = make_agent("digamma", inside)
    assert_allclose(agent.policy, solve_policy(inside.model, "digamma", 50.0), rtol=1e-12)
    assert agent.privacy == "that of one release"


def test_privacy_labels_say_what_is_true(campus):
    env = EnsembleEnv(campus, action="policy")
    assert make_agent("standard", env).privacy == "none: computed from the true matrix"
    assert make_agent("taylor", env, k=500.0).privacy.startswith("noise-aware, not private")
    assert make_agent("average-sampled", env, k=500.0, samples=30).privacy == "that of 30 releases together"
    assert all("public prices" in make_agent(name, env).privacy for name in ("ad-hoc", "myopic", "without-data"))


# ------------------------------------------------------------------ prices
@pytest.mark.parametrize("mode", MODES)
def test_prices_are_played_in_every_mode_of_a_model_with_everything(mode: str) -> None:
    model = general_model("everything", 7)
    env, reference = EnsembleEnv(model, action=mode), EnsembleEnv(model, action="tilt")
    for name in PRICES:
        agent = make_agent(name, env)
        outcome, same = evaluate(agent, env), evaluate(make_agent(name, reference), reference)
        assert outcome.score <= 100 + 1e-6
        if mode == "discrete":
            assert agent.actions.dtype.kind == "i" and 0 <= agent.actions.min() <= agent.actions.max() <= 10
            assert name != "uncontrolled" or (agent.actions == 5).all()
        if mode in ("tilt", "policy"):  # other modes play what comes nearest
            assert outcome.score == pytest.approx(same.score, abs=1e-9)


def test_best_price_beats_every_price_on_a_grid(campus):
    def earned(model, price):
        return policy_return(model, tilted_policy(model, price_tilts(model, np.full(model.horizon, price))))

    for model in (campus, scenarios.make("spot"), scenarios.make("feeder")):
        price = best_constant_price(model)
        near = price + np.array([-1e-3, -1e-5, 1e-5, 1e-3])
        assert earned(model, price) >= max(earned(model, x) for x in (*np.linspace(-1, 1, 101), *near)) - 1e-9
    flat = campus.override(utility=np.zeros_like(campus.utility), tilt_scale=np.ones(18))
    assert best_constant_price(flat) == 0.0


def test_ad_hoc_answers_the_expected_price_of_the_context() -> None:
    utility = np.zeros((3, 2, 2))
    utility[:, 0], utility[:, 1] = [0.0, -6.0], [0.0, 2.0]  # high, and so low that it pays to consume
    moves = [[0.75, 0.25], [0.0, 1.0]]
    model = EnsembleModel(
        np.full((2, 2), 0.5), [0.0, 1.0], utility, 1.0, context=Context(moves), tilt_scale=[10.0, 10.0]
    )
    agent = make_agent("ad-hoc", EnsembleEnv(model, action="tilt"))
    expected = np.array([0.75 * 6 - 0.25 * 2, -2.0]) / 2 / 10
    assert_allclose(agent.actions[..., 0], np.stack([expected, expected]), rtol=1e-6)


# ------------------------------------------------------------------ tilts
def test_myopic_answers_the_next_interval_alone() -> None:
    """By brute force: the myopic tilt is the optimal one of a problem that ends with the next interval."""
    model = general_model("context")
    tilts, (_, nature, context, utility) = myopic_tilts(model), model.tables()
    for t, w, a in np.ndindex(tilts.shape):
        ahead = sum(context[t, w, x] * nature[t, w, a] @ utility[t + 1, x] for x in range(model.n_contexts))
        assert tilts[t, w, a] == pytest.approx(ahead / model.discomfort_penalty)
    env = EnsembleEnv(model, action="policy")
    expected = event_outcome(model, tilted_policy(model, tilts)).score
    assert evaluate(make_agent("myopic", env), env).score == pytest.approx(expected, abs=1e-9)


def test_bounds_in_hindsight_are_ordered_and_use_no_more_than_they_may():
    env = EnsembleEnv(evening("front", 24), action="policy")
    agents = {name: make_agent(name, env) for name in ("best-price", "open-loop", "blind", "standard")}
    scores = [evaluate(agent, env).score for agent in agents.values()]
    assert scores == sorted(scores) and scores[-1] == pytest.approx(100.0) and scores[2] < 60
    groups, behaviour = env.model.context.shown, env.model.default_policy
    moves = (behaviour > 0).all(axis=(0, 1))  # entries that exist at all times and in all contexts
    for name, alike in (("open-loop", np.zeros_like(groups)), ("blind", groups)):
        tilt = np.log(agents[name].policy / np.where(behaviour > 0, behaviour, np.inf) + 1e-300)[..., moves]
        for group in np.unique(alike):
            of = tilt[:, alike == group]
            np.testing.assert_allclose(of, np.broadcast_to(of[:, :1], of.shape), atol=1e-9)


# ------------------------------------------------------------------ anew at each step
def test_a_rolling_planner_corrects_what_a_plan_made_beforehand_cannot():
    model = evening("tracking", 8)
    occupancy = np.full(model.n_states, 1.0 / model.n_states)  # not where the plan believes that it starts
    best = solve_coupled(model.override(initial=occupancy)).primal
    env = EnsembleEnv(model, action="tilt", reward="dollars")
    earned = {name: rollout(env, make_agent(name, env), occupancy=occupancy) for name in ("standard", "rolling")}
    assert earned["rolling"] == pytest.approx(best, abs=1e-3) and earned["standard"] < best - 0.01


def test_on_a_release_a_rolling_planner_plans_with_the_release_alone():
    model = evening("tracking", 8)
    release, truth = draw_release("public", model, 0), EnsembleEnv(model, action="tilt")
    agent = make_agent("rolling", EnsembleEnv(model, action="tilt", privacy=release))
    assert np.array_equal(agent.model.default, release.matrix) and agent.privacy == "that of one release"
    assert evaluate(agent, truth).score > evaluate(make_agent("without-data", truth), truth).score


# ------------------------------------------------------------------ refusals
def test_plans_that_a_mode_cannot_express_are_refused():
    model = general_model("everything")
    with pytest.raises(ValueError, match="agent 'standard' needs tilt actions, not price"):
        make_agent("standard", EnsembleEnv(model, action="price"))
    with pytest.raises(ValueError, match="which this scenario hides"):
        make_agent("rolling", EnsembleEnv("front", action="tilt"))
    with pytest.raises(ValueError, match=r"the environment needs \(T, c, n, m\) = \(6, 3, 5, 4\)"):
        PolicyAgent(EnsembleEnv(model), np.zeros((6, 5, 4)))
    with pytest.raises(ValueError, match="nats wider than the action box; use action='policy'"):
        make_agent("standard", EnsembleEnv(model.override(tilt_scale=np.full(T, 0.01))))
