"""The one outcome: played and computed, in numbers, in words and as JSON."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.control.policies import solve_policy, solve_standard
from dp_ensemble_env.control.returns import mean_power, shares
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.reporting.score import Outcome, event_outcome, tenths


def test_played_and_computed_outcomes_are_of_one_kind_and_agree(campus):
    class Player:  # not known to be a schedule
        def __init__(self, agent):
            self.predict = agent.predict

    env = EnsembleEnv(campus, action="policy")
    played = evaluate(Player(make_agent("taylor", env, k=50.0)), env)
    computed = event_outcome(campus, solve_policy(campus, "taylor", 50.0))
    assert played.exact and computed.exact and (played.episodes, computed.episodes) == (campus.n_states, 0)
    one, other = played.to_dict(), computed.to_dict()
    assert list(one) == list(other)
    for name in set(one) - {"episodes", "privacy", "power_kw"}:
        assert one[name] == pytest.approx(other[name], rel=1e-4), name
    np.testing.assert_allclose(played.power_kw, computed.power_kw, rtol=1e-5)


def test_uncontrolled_outcome_by_hand(campus):
    found = event_outcome(campus, campus.default_policy)
    assert found.score == 0.0 and found.discomfort == 0.0
    assert found.curtailed_kwh == found.curtailed_peak_kw == found.curtailment_kw == 0.0
    hours = campus.step_hours
    bill = sum(campus.event.energy_price[t] * found.power_kw[t] for t in range(1, campus.horizon + 1))
    assert found.energy_cost == pytest.approx(bill * hours / campus.loads)


@pytest.mark.parametrize("scenario", ["campus-event", "thermostats", "call"])
def test_tenths_are_what_loads_that_start_there_give(scenario):
    """Followed forward from each start, by the recursion of the occupancy, and dealt out one thousandth at a time."""
    model = scenarios.make(scenario)
    policy = solve_standard(model).policy
    weights = model.start_weights
    rows = []
    for state in np.argwhere(weights > 0):
        start = np.zeros_like(weights)
        start[tuple(state)] = 1.0
        if model.context is None:
            one = model.override(initial=start)
        else:
            one = model.override(initial=start.sum(axis=0), context=replace(model.context, start=start.sum(axis=1)))
        kwh = [event_power(one, p) for p in (model.default_policy, policy)]
        rows.append((kwh[0], kwh[0] - kwh[1], event_outcome(one, policy).discomfort, weights[tuple(state)]))
    rows.sort(key=lambda row: -row[0])
    ends, middle = np.cumsum([row[3] for row in rows]), (np.arange(10_000) + 0.5) / 10_000
    dealt = np.array(rows)[np.searchsorted(ends / ends[-1], middle), :3].reshape(10, 1000, 3).mean(axis=1)
    found = np.array(tenths(model, policy)).T / model.loads * 10
    most = np.abs(dealt).max(axis=0)
    np.testing.assert_allclose(found / most, dealt / most, atol=2e-3)
    assert found[:, 1].sum() / 10 * model.loads == pytest.approx(event_outcome(model, policy).curtailed_kwh)


def event_power(model, policy):
    """Return the expected energy of a load over the event, or the day."""
    power = mean_power(model, shares(model, policy))
    return power[slice(1, None) if model.event is None else model.event.in_event].sum() * model.step_hours


def test_words_and_json():
    money = dict(mean_return=-1234.567, standard_error=1.5, gap=math.nan, discomfort=0.0, energy_cost=math.nan)
    energy = dict(curtailment_kw=1e4, curtailed_peak_kw=1.0, curtailed_kwh=38516.2, power_kw=np.array([1.0, 2.0]))
    how = dict(episodes=2000, exact=False, privacy="that of <one> release")
    outcome = Outcome(score=-0.001, score_error=0.126, **money, **energy, **how)
    assert repr(outcome) == (
        "Outcome(score=0.00 ± 0.13, mean_return=-1,234.57, gap=–, curtailed_kwh=38,516, 2,000 episodes)"
    )
    assert outcome.lines()[:2] == [("score", "0.00", "± 0.13, 2,000 episodes"), ("earned", "-1,234.57", "$/load")]
    labels = [label for label, *_ in outcome.lines()]  # what is not there has no line
    assert "return" in labels and not any("gap" in label or "bill" in label for label in labels)
    content = json.loads(json.dumps(outcome.to_dict(), allow_nan=False))
    assert content["gap"] is None and content["power_kw"] == [1.0, 2.0] and content["score"] == -0.001
