"""The scenarios spot and call: machines that run programmes, at random prices and on call."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env import scenarios
from dp_ensemble_env.agents import evaluate, make_agent
from dp_ensemble_env.control.policies import solve_standard
from dp_ensemble_env.envs import actions
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.scenarios import call, spot
from dp_ensemble_env.scenarios.build import programme

MODULES = {"spot": spot, "call": call}


@pytest.fixture(params=MODULES)
def name(request):
    return request.param


def test_a_programme_runs_through_its_phases_and_waits():
    matrix, power = programme([50.0, 20.0, 90.0], 5.0, 0.1, np.array([0.2, 0.3, 0.4]))
    assert_array_equal(power, [5, 20, 50, 90])  # in the order of their power
    waiting, second, first, third = range(4)
    expected = np.zeros((4, 4))
    expected[waiting, [waiting, first]] = 0.9, 0.1
    expected[first, [first, second]] = 0.2, 0.8
    expected[second, [second, third]] = 0.3, 0.7
    expected[third, [third, waiting]] = 0.4, 0.6
    assert_allclose(matrix, expected)


def test_loads_follow_the_stated_phases(name):
    model, phases = scenarios.make(name), MODULES[name].PHASES_KW
    moves = model.default * (1 - np.eye(model.n_states))
    state, seen = 0, []
    for _ in phases:
        assert np.count_nonzero(moves[state]) == 1
        state = int(np.argmax(moves[state]))
        seen.append(model.power_kw[state])
    assert_array_equal(seen, phases)
    assert np.argmax(moves[state]) == 0 and model.power_kw[0] == MODULES[name].IDLE_KW


def test_instances_repeat_and_differ(name):
    first, again, other = (scenarios.make(name, instance=i) for i in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.fingerprint != scenarios.make(name, split="test").fingerprint
    assert not np.allclose(first.utility, other.utility) and not np.allclose(first.default, other.default)
    assert not np.allclose(first.context.transition, other.context.transition)
    assert_array_equal(first.power_kw, other.power_kw)  # the same levels, so a policy can carry over
    assert_array_equal(first.default > 0, other.default > 0)


@pytest.mark.parametrize("seed", range(5))
def test_prices_of_spot_lie_in_their_ranges(seed):
    model = spot.spot(seed)
    prices = -model.utility[1:] / (0.25 * model.power_kw)  # dollars per kWh
    assert_allclose(prices, np.broadcast_to(prices[:1, :, :1], prices.shape))
    surplus, normal, scarcity = prices[0, :, 0]
    assert -0.24 <= surplus <= -0.18 and 0.05 <= normal <= 0.08 and 0.32 <= scarcity <= 0.42
    stay = np.diag(model.context.transition)
    assert (stay >= 0.92).all() and (stay <= 0.95).all()
    assert_allclose(model.context.start @ model.context.transition, model.context.start, atol=1e-12)


def test_a_call_comes_with_notice_and_lasts_an_hour():
    model = call.call(3)
    names, rng = np.array(model.context.names), np.random.default_rng(0)
    steps = np.cumsum(model.context.transition, axis=1)
    path = [0]
    for x in rng.random(20_000):
        path.append(int(np.searchsorted(steps[path[-1]], x)))
    words = names[path]
    begins = np.flatnonzero(words[:-8] == "notice 1")
    assert len(begins) > 100 and (words[begins - 1] == "quiet").all()
    for offset, word in enumerate(call.CONTEXTS[1:]):
        assert (words[begins + offset] == word).all()
    quiet = np.count_nonzero(words[:-1] == "quiet")
    chance = model.context.transition[0, 1]
    assert abs(len(begins) / quiet - chance) < 5 * np.sqrt(chance / quiet)
    assert model.context.start[0] == 1.0


def test_working_earns_and_drawing_in_an_event_costs():
    model = call.call()
    prices = -model.utility[5] / (0.25 * model.power_kw)
    event = np.char.startswith(model.context.names, "event")
    assert event.sum() == 4 and (prices[event] > 1.8).all()
    assert (prices[~event] < -0.07).all() and (prices[~event] > -0.13).all()


def test_the_optimum_fits_the_box_of_every_instance_tried(name):
    for split in scenarios.SPLITS:
        for instance in range(7):
            model = scenarios.make(name, instance=instance, split=split)
            actions.centred_actions(model, solve_standard(model).tilt)  # refuses what does not fit


def test_scale_and_start_tell_nothing_of_the_behaviour(name):
    factory = MODULES[name].SCENARIO.factory
    model = factory(2)
    other = factory(2, default=np.roll(model.default, 1, axis=0))
    assert_array_equal(model.tilt_scale, other.tilt_scale)
    assert_array_equal(model.initial, other.initial)
    assert model.initial[0] == 0.5 and model.spread_start
    assert not np.allclose(factory(2, discomfort_penalty=3.0).tilt_scale, model.tilt_scale)


def test_settings_and_what_is_refused(name):
    model = scenarios.make(name, discomfort_penalty=3.0, buildings=7)
    assert model.discomfort_penalty == 3.0 and model.buildings == 7
    with pytest.raises(ValueError, match="bildings"):
        scenarios.make(name, bildings=7)
    with pytest.raises(ValueError, match="seed"):
        MODULES[name].SCENARIO.factory(-1)


def test_the_optimum_is_played_in_the_environment(name):
    env = EnsembleEnv(name, action="tilt")
    assert evaluate(make_agent("standard", env), env, 20).score == pytest.approx(100, abs=0.01)
    idle = EnsembleEnv(name, action="price")
    assert evaluate(make_agent("uncontrolled", idle), idle, 20).score == pytest.approx(0, abs=0.01)


def test_the_cards_say_everything(name):
    card = scenarios.card(name)
    assert all((card.title, card.story, card.states, card.sources, card.private)) and card.version == 1
    assert "synthetic" in card.sources and card.probes["version"] == 1
    assert scenarios.environment_id(name) == f"dp_ensemble/{name.title()}-v1"
