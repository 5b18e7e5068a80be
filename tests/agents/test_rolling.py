"""The rolling planner: on the truth it is the optimum from wherever it stands; bounds in hindsight; clones."""

from __future__ import annotations

import numpy as np
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.agents.rolling import remaining
from dp_ensemble_env.control.coupled import solve_coupled
from dp_ensemble_env.control.returns import policy_return, shares
from dp_ensemble_env.envs import EnsembleEnv
from dp_ensemble_env.scenarios.problem import draw_release


def test_what_is_left_of_a_problem_is_worth_what_the_whole_plan_earns_from_there():
    model = scenarios.make("feeder")
    plan = solve_coupled(model)
    at = 20
    left = remaining(model, at, 0, shares(model, plan.policy)[at])
    assert left.horizon == model.horizon - at
    rest = policy_return(left, plan.policy[at:])
    assert solve_coupled(left).primal == pytest.approx(rest, abs=1e-6)  # the optimum's tail is optimal


def test_it_corrects_what_a_plan_made_beforehand_cannot():
    model = scenarios.make("tracking")
    occupancy = np.full(model.n_states, 1.0 / model.n_states)  # not where the plan believes that it starts
    best = solve_coupled(model.override(initial=occupancy)).primal
    earned = {}
    for name in ("standard", "rolling"):
        env = EnsembleEnv(model, action="tilt", reward="dollars")
        agent = make_agent(name, env)
        observation, _ = env.reset(seed=0, options={"occupancy": occupancy})
        total, state = 0.0, None
        for _ in range(model.horizon):
            action, state = agent.predict(observation, state)
            observation, reward, *_ = env.step(action)
            total += reward
        earned[name] = total
    assert earned["rolling"] == pytest.approx(best, abs=1e-3) and earned["standard"] < best - 0.01


def test_on_a_release_it_plans_with_the_release_alone():
    model = scenarios.make("tracking")
    release = draw_release("public", model, 0)
    agent = make_agent("rolling", EnsembleEnv(model, action="tilt", privacy=release))
    assert np.array_equal(agent.model.default, release.matrix) and agent.privacy == "that of one release"
    truth = EnsembleEnv(model, action="tilt")
    assert evaluate(agent, truth).score > evaluate(make_agent("without-data", truth), truth).score


def test_it_says_where_it_cannot_play():
    with pytest.raises(ValueError, match="hides"):
        make_agent("rolling", EnsembleEnv("front", action="tilt"))
    with pytest.raises(ValueError, match="action='tilt'"):
        make_agent("rolling", EnsembleEnv("feeder", action="signals"))


def test_bounds_in_hindsight_are_ordered_and_use_no_more_than_they_may():
    model = scenarios.make("front")
    env = EnsembleEnv(model, action="policy")
    agents = {name: make_agent(name, env) for name in ("best-price", "open-loop", "blind", "standard")}
    scores = [evaluate(agent, env).score for agent in agents.values()]
    assert scores == sorted(scores) and scores[-1] == pytest.approx(100.0) and scores[2] < 60
    groups, behaviour = model.context.shown, model.default_policy
    tilt = {name: np.log(agents[name].policy / np.where(behaviour > 0, behaviour, np.inf) + 1e-300)
            for name in ("open-loop", "blind")}  # fmt: skip
    moves = (behaviour > 0).all(axis=(0, 1))  # entries that exist at all times and in all contexts
    for name, alike in (("open-loop", np.zeros_like(groups)), ("blind", groups)):
        for group in np.unique(alike):
            of = tilt[name][:, alike == group][..., moves]
            np.testing.assert_allclose(of, np.broadcast_to(of[:, :1], of.shape), atol=1e-9)


def test_a_clone_is_as_good_as_the_expert_where_one_instance_is_all(campus):
    torch = pytest.importorskip("torch")
    env = EnsembleEnv(campus, action="tilt")
    threads = torch.get_num_threads()
    agent = make_agent("cloning", env, steps=18_000, seed=1)
    assert torch.get_num_threads() == threads and agent.steps == 18_000
    assert 97 < evaluate(agent, env).score <= 100
    again = make_agent("cloning", env, steps=18_000, seed=1)
    observation, _ = env.reset(seed=3)
    assert np.array_equal(agent.predict(observation)[0], again.predict(observation)[0])
    with pytest.raises(ValueError, match="pass action='signals'"):
        make_agent("cloning", EnsembleEnv(campus, action="discrete"))
