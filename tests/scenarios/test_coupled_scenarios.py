"""Feeder and tracking: physics, instances, certified optima, and what simple controllers are worth."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dp_ensemble_env import scenarios
from dp_ensemble_env.control.coupled import solve_coupled
from dp_ensemble_env.control.policies import as_tilt
from dp_ensemble_env.control.returns import shares
from dp_ensemble_env.envs.ensemble import EnsembleEnv
from dp_ensemble_env.experiments.probes import Prober
from dp_ensemble_env.reporting.score import event_outcome, start_values
from dp_ensemble_env.scenarios import feeder, tracking

NAMES = ("feeder", "tracking")


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(name):
    return scenarios.make(name)


def test_instances_repeat_and_differ_in_public_and_private_parts(name, model):
    again, other = scenarios.make(name), scenarios.make(name, split="test")
    assert again.fingerprint == model.fingerprint != other.fingerprint
    assert_array_equal(again.coupling.level, model.coupling.level)
    for part in ("default", "initial"):
        assert np.abs(getattr(other, part) - getattr(model, part)).max() > 1e-4
    assert np.abs(other.coupling.level - model.coupling.level).max() > 0.01
    assert_array_equal(other.guess, model.guess)  # the textbook knows nothing of the instance
    assert_array_equal(other.tilt_scale, model.tilt_scale)
    assert model.n_states * model.n_decisions < 5000 and model.spread_start


def test_the_optimum_is_certified_and_pays(model):
    solution = solve_coupled(model)
    idle, best = start_values(model)
    assert solution.gap <= 1e-9 and solution.primal == best > idle
    assert event_outcome(model, solution.policy).score == pytest.approx(100.0, abs=1e-6)
    uncontrolled = model.coupling.violation(slice(None), shares(model, model.default_policy) @ model.power_kw)
    assert model.coupling.violation(slice(None), solution.power_kw).sum() < 0.2 * uncontrolled.sum()
    assert np.abs(solution.shadow_price).max() > 0.01


def test_simple_controllers_leave_room(model):
    prober = Prober(model, effort=0.1)
    assert prober.constant_price() <= 85
    assert prober.random_search() <= 90
    assert prober.score(prober.best) == pytest.approx(100.0, abs=1e-6)  # by time alone: the best open loop
    assert event_outcome(model, as_tilt(model.guess, model)).score <= 85


def test_the_mean_field_environment_earns_the_primal_and_reports_the_violation(name, model):
    solution = solve_coupled(model)
    env = gym.make(scenarios.environment_id(name, "policy"), population="mean-field", reward="dollars")
    _, info = env.reset(seed=0)
    assert info["cost"] == 0.0 and info["optimal_return"] == pytest.approx(solution.primal, rel=1e-12)
    total, costs, power = 0.0, [], []
    for policy in solution.policy:
        _, reward, _, _, info = env.step(policy)
        total, costs, power = total + reward, [*costs, info["cost"]], [*power, info["power_kw"]]
    assert total == pytest.approx(solution.primal, abs=1e-6)
    assert_allclose(power, solution.power_kw[1:], atol=1e-6)
    assert_allclose(costs, model.coupling.violation(slice(1, None), solution.power_kw[1:]), atol=1e-6)
    # Left alone the loads miss by far more, and the environment says so.
    env.reset(seed=0)
    idle = [env.step(np.zeros_like(policy))[4]["cost"] for policy in solution.policy]
    assert sum(idle) > 5 * sum(costs) + 1


def test_what_is_asked_is_observed(model):
    env = EnsembleEnv(model, action="price")
    level = model.coupling.level / model.power_kw.max()
    observation, _ = env.reset(seed=0)
    assert_allclose(observation[-3:], [1.0, level[1], level[2]], rtol=1e-6)
    for _ in range(3):
        observation = env.step(np.zeros(1, np.float32))[0]
    assert_allclose(observation[-2:], level[4:6], rtol=1e-6)


def test_few_loads_earn_less_than_the_mean_field(model):
    solution = solve_coupled(model)
    env, returns = EnsembleEnv(model, population=20, action="policy"), []
    for seed in range(12):
        env.reset(seed=seed)
        returns.append(sum(env.step(policy)[1] for policy in solution.policy))
    # Chance moves the mean power of twenty loads, and the cost is convex.
    assert np.mean(returns) + 3 * np.std(returns) / np.sqrt(12) < solution.primal


# ------------------------------------------------------------------ water heaters
def test_a_tank_keeps_its_energy_balance():
    model = scenarios.make("feeder")
    morning = feeder.Morning(10.0, 208.0, 1.0, 0.3, 7.5, 1.0)
    size, t = len(feeder.TEMPERATURES), 20  # 7:20
    nature = morning.nature()[t].reshape(2, size, 2, size)
    litres = 0.107 * 208.0 / 6.0
    for switch in range(2):
        assert_allclose(nature[switch, :, 1 - switch], 0.0)
        mean = nature[switch, :, switch] @ feeder.TEMPERATURES
        inside = slice(6, 15)  # far from the ends of the grid
        before = feeder.TEMPERATURES[inside]
        heat_kwh = 0.19 * 4.186 / 3.6 * (mean[inside] - before)
        drawn_kwh = litres * 4.186 / 3600 * (before - 10.0)
        lost_kwh = 0.0015 * (before - 20.0) / 6
        assert_allclose(heat_kwh, 4.5 * switch / 6 - drawn_kwh - lost_kwh, atol=1e-12)
    assert_allclose(model.nature.sum(axis=-1), 1.0)


def test_heaters_are_charged_before_the_limit_binds():
    model = scenarios.make("feeder")
    solution = solve_coupled(model)
    hours = 4.0 + np.arange(model.horizon + 1) / 6.0
    idle = shares(model, model.default_policy)
    best = shares(model, solution.policy)
    temperature = np.tile(feeder.TEMPERATURES, 2)
    six = int(np.argmin(np.abs(hours - 6.0)))
    assert best[six] @ temperature > idle[six] @ temperature + 1.0
    busiest = int(model.coupling.level.argmin())
    assert (idle @ model.power_kw)[busiest] > 2 * model.coupling.level[busiest]
    assert abs(solution.shadow_price.argmax() + 1 - busiest) <= 6  # within an hour of the worst moment


def test_thermostats_switch_at_their_setpoints():
    behaviour = feeder.Habits(52.0, 8.0, 0.01).behaviour()
    size = len(feeder.TEMPERATURES)
    cold, hot = 2, size - 2  # 36 and 64 degrees
    assert behaviour[cold, size + cold] == pytest.approx(1.0)  # off and cold: on
    assert behaviour[size + hot, hot] == pytest.approx(1.0)  # on and hot: off
    warm = 8  # 48 degrees, inside the dead band: as it was
    assert behaviour[warm, warm] == behaviour[size + warm, size + warm] == pytest.approx(1.0)


# ------------------------------------------------------------------ pool pumps
def test_spells_of_pumps_last_as_the_habits_say():
    chain = tracking.Habits(6.0, 10.0, 1.5).behaviour()
    assert_allclose(chain.sum(axis=1), 1.0)
    size = tracking.MEMORY
    for switch, hours in ((1, 6.0), (0, 10.0)):
        block = chain[switch * size : (switch + 1) * size, switch * size : (switch + 1) * size]
        mean = np.linalg.solve(np.eye(size) - block, np.ones(size))[0] * tracking.STEP_HOURS
        assert mean == pytest.approx(hours, abs=0.3)  # whole half hours, and rare early ends
        # every change begins a new spell
        assert_allclose(chain[switch * size : (switch + 1) * size].sum(axis=1), 1.0)
        assert (chain[switch * size : (switch + 1) * size, (1 - switch) * size] > 0).all()


def test_the_signal_is_bounded_and_moves_both_ways():
    for seed in range(5):
        values = tracking.signal(np.random.default_rng(seed))
        assert np.abs(values).max() == pytest.approx(0.2)
        assert np.sign(values)[values != 0].min() == -1 and values.max() > 0.03
    model = scenarios.make("tracking")
    assert model.coupling.level[0] == pytest.approx(model.initial @ model.power_kw)
    assert 0.0 < model.coupling.level.min() and model.coupling.level.max() < 1.0
