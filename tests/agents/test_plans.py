"""Agents that plan: what they play, what it is worth, and where they cannot play."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import KINDS, MODES, T, general_model, policy_of

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.agents.plans import PolicyAgent, best_constant_price
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.cost import cost_of_privacy
from dp_ensemble_env.control.lsmdp import occupancy
from dp_ensemble_env.control.policies import POLICIES, as_tilt, solve_policy, tilted_policy
from dp_ensemble_env.control.returns import myopic_tilts, policy_return
from dp_ensemble_env.envs.actions import PRICE, action_scale, price_tilts, tilts_of
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.privacy.mechanisms.dirichlet import DirichletMechanism
from dp_ensemble_env.privacy.mechanisms.public import public_guess
from dp_ensemble_env.reporting.score import event_outcome, reference_returns

PRICES = ("uncontrolled", "ad-hoc", "best-price")


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


# ------------------------------------------------------------------ closed-form policies
@pytest.mark.parametrize("name", POLICIES)
def test_score_three_ways(campus, name):
    """Closed form (cost of privacy), exact policy evaluation and environment rollouts agree."""
    env = EnsembleEnv(campus, action="policy", reward="dollars")
    agent = make_agent(name, env, **settings(name))
    outcome, exact = evaluate(agent, env), event_outcome(campus, agent.policy)
    assert outcome.exact and outcome.score == pytest.approx(exact.score, abs=1e-9)
    if name in ("taylor", "digamma", "average-exact"):
        cost = campus.initial @ cost_of_privacy(campus, 400.0, name)[0]
        assert outcome.gap == pytest.approx(cost, abs=0.02)
    returns = np.array([rollout(env, agent, state) for state in range(campus.n_states)])
    idle, best = reference_returns(campus)
    assert (returns <= best + 1e-3).all() and (returns > idle).all()
    assert campus.initial @ returns == pytest.approx(outcome.mean_return, rel=1e-5)


def test_all_converge_to_the_standard_policy(campus):
    env = EnsembleEnv(campus, action="policy")
    for name in POLICIES:
        scores = [evaluate(make_agent(name, env, **settings(name, k)), env).score for k in (500.0, 1e5)]
        assert scores[1] == pytest.approx(100, abs=2e-3) and scores[0] <= scores[1] + 1e-3


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
    assert make_agent("taylor", env, release=release).policy.shape == (18, 20, 20)  # k is the release's
    inside = EnsembleEnv(campus, action="policy", privacy="dirichlet:k=50", release_seed=1)
    assert make_agent("digamma", inside).privacy == "that of one release"
    assert evaluate(make_agent("standard", inside), inside).score == pytest.approx(100, abs=1e-9)


def test_privacy_labels_say_what_is_true(campus):
    env = EnsembleEnv(campus, action="policy")
    assert make_agent("standard", env).privacy == "none: computed from the true matrix"
    assert make_agent("taylor", env, k=500.0).privacy.startswith("noise-aware, not private")
    assert make_agent("average-sampled", env, k=500.0, samples=30).privacy == "that of 30 releases together"
    assert all("public prices" in make_agent(name, env).privacy for name in ("ad-hoc", "myopic", "without-data"))


SAMPLED = {"average-sampled": {"samples": 500, "rng": 1}}


@pytest.mark.parametrize("name", POLICIES)
def test_closed_form_policies_act_in_the_environment_of_the_paper(name):
    """The standard policy is a tilt; the others expect the noise and take the policy mode."""
    mode = {} if name == "standard" else {"action": "policy"}
    env = gymnasium.make("dp_ensemble/Paper-v1", **mode)
    outcome = evaluate(make_agent(name, env), env)  # expects the k of the release
    released = env.unwrapped.model
    exact = event_outcome(released, solve_policy(released, name, 50.0, **SAMPLED.get(name, {})))
    tolerance = 0.5 if name == "average-sampled" else 1e-9
    assert outcome.score == pytest.approx(exact.score, abs=tolerance) and outcome.score <= 100 + 1e-9
    assert outcome.score > 80 and (outcome.score > 100 - 1e-6) == (name == "standard")


# ------------------------------------------------------------------ prices
@pytest.mark.parametrize("name", PRICES)
def test_prices_score_the_same_as_tilts_and_as_policies(campus, name):
    scores = []
    for action in ("tilt", "policy"):
        env = EnsembleEnv(campus, action=action)
        scores.append(evaluate(make_agent(name, env), env).score)
    assert_allclose(scores, scores[0], atol=1e-9)
    low, high = {"uncontrolled": (0.0, 0.0), "ad-hoc": (5, 60), "best-price": (85, 99)}[name]
    assert low <= scores[0] <= high


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

    agent = make_agent("best-price", EnsembleEnv(campus, action="price"))
    assert agent.price == best_constant_price(campus)
    for model in (campus, scenarios.make("spot"), scenarios.make("feeder"), scenarios.make("tracking")):
        price = best_constant_price(model)
        near = price + np.array([-1e-3, -1e-5, 1e-5, 1e-3])
        assert earned(model, price) >= max(earned(model, x) for x in (*np.linspace(-1, 1, 101), *near)) - 1e-9
    flat = campus.override(utility=np.zeros_like(campus.utility), tilt_scale=np.ones(18))
    assert best_constant_price(flat) == 0.0


def test_ad_hoc_waits_for_the_event(campus):
    actions = make_agent("ad-hoc", EnsembleEnv(campus, action="tilt")).actions[:, 0]
    assert_allclose(actions[:2], 0.0)  # two steps of notice
    nats = actions[2:] * action_scale(campus)[2:]
    assert_allclose(nats, nats[0], rtol=1e-5)  # the same shed in every interval of the event
    assert nats[0] > 0


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


def test_tilts_and_scale_are_those_of_the_environment(campus):
    """What `tilts_of` and `action_scale` say is what the compiled steps do, in every mode and at every time."""
    prices = np.random.default_rng(0).uniform(-1.0, 1.0, campus.horizon)
    tilts = tilts_of(PRICE, campus, prices[:, None])
    expected = occupancy(tilted_policy(campus, tilts), np.eye(campus.n_states)[15])
    price, tilt = (EnsembleEnv(campus, action=action) for action in ("price", "tilt"))
    for env in (price, tilt):
        env.reset(options={"state": 15})
    for t in range(campus.horizon):
        price.step(prices[t : t + 1])
        tilt.step(tilts[t] / action_scale(campus)[t])
        assert_allclose(price.occupancy, expected[t + 1], rtol=1e-11, atol=1e-14)
        assert_allclose(tilt.occupancy, expected[t + 1], rtol=1e-11, atol=1e-14)


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


@pytest.mark.parametrize("name", ["campus-event", "spot", "feeder"])
def test_the_plan_without_data_sees_the_textbook_and_stays_in_the_box(name: str) -> None:
    model, scores = scenarios.make(name), {}
    for mode in ("tilt", "policy"):
        env = EnsembleEnv(model, action=mode)
        scores[mode] = evaluate(make_agent("without-data", env), env).score
    deployed = event_outcome(model, as_tilt(public_guess(model), model)).score
    assert scores["policy"] == pytest.approx(deployed, abs=1e-9) and deployed < 98
    # The plan for spot is wider than the box of tilts, which the policy mode does not have.
    assert (scores["tilt"] == pytest.approx(scores["policy"], abs=1e-9)) == (name != "spot")
    assert np.abs(make_agent("without-data", EnsembleEnv(model)).actions).max() <= 1.0


# ------------------------------------------------------------------ refusals
def test_plans_that_a_mode_cannot_express_are_refused(campus):
    model = general_model("everything")
    with pytest.raises(ValueError, match="agent 'digamma' needs policy actions, not tilt"):
        make_agent("digamma", EnsembleEnv(campus), k=50.0)
    with pytest.raises(ValueError, match="agent 'standard' needs tilt actions, not price"):
        make_agent("standard", EnsembleEnv(model, action="price"))
    with pytest.raises(ValueError, match="needs k"):
        make_agent("digamma", EnsembleEnv(campus, action="policy"))
    with pytest.raises(ValueError, match=r"\(T, n, n\)"):
        PolicyAgent(EnsembleEnv(campus, action="policy"), campus.default)
    with pytest.raises(ValueError, match=r"the environment needs \(T, c, n, m\) = \(6, 3, 5, 4\)"):
        PolicyAgent(EnsembleEnv(model), np.zeros((6, 5, 4)))
    with pytest.raises(ValueError, match="nats wider than the action box; give the model a larger tilt_scale"):
        make_agent("standard", EnsembleEnv(model.override(tilt_scale=np.full(T, 0.01))))
