"""The pure functions against the compiled environments, which share no line of their arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import TiltEnv
from scipy.special import rel_entr

from dp_ensemble_env import scenarios
from dp_ensemble_env.context import Context
from dp_ensemble_env.control.policies import standard_policy
from dp_ensemble_env.coupling import Coupling
from dp_ensemble_env.envs import functional
from dp_ensemble_env.envs.actions import action_scale, power_direction
from dp_ensemble_env.envs.signals import signals_of
from dp_ensemble_env.model import EnsembleModel
from dp_ensemble_env.reporting.score import start_values
from dp_ensemble_env.scenarios.campus import campus_event

T, C, N, M = 4, 3, 5, 4


def rows(rng, *shape):
    weights = rng.dirichlet(np.ones(shape[-1]), shape[:-1]) * (rng.random(shape[-2:]) > 0.3)
    weights[..., 0] += 0.05
    return weights / weights.sum(axis=-1, keepdims=True)


def everything(seed=0, **changes):
    rng = np.random.default_rng(seed)
    fields = {
        "default": rows(rng, T, C, N, M),
        "nature": rows(rng, T, C, M, N),
        "context": Context(rows(rng, T, C, C), features=rng.random((C, 2)), start=rng.dirichlet(np.ones(C))),
        "utility": rng.normal(0, 2, (T + 1, C, N)),
        "power_kw": rng.uniform(0, 3, N),
        "discomfort_penalty": 1.5,
        "initial": rng.dirichlet(np.ones(N)),
    }
    return EnsembleModel(**{**fields, **changes})


def coupled(coupling):
    rng = np.random.default_rng(2)
    return everything(
        default=rows(rng, N, M),
        nature=rows(rng, M, N),
        utility=rng.normal(0, 2, (T + 1, N)),
        context=None,
        coupling=coupling,
        spread_start=True,
    )


MODELS = {
    "campus": campus_event(),
    "everything": everything(),
    "spread": everything(1, spread_start=True),
    "target": coupled(Coupling.tracking(np.linspace(1, 2, T + 1), 2.0)),
    "limit": coupled(Coupling.limit(np.array([9, 1, np.inf, 0.5, 1]), 3.0)),
}


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["price", "tilt", "policy", "discrete"])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_in_torch_is_that_in_numpy(name, mode):
    """NumPy's is compared with the compiled step, number by number, in the tests of the step."""
    import torch

    model, rng = MODELS[name], np.random.default_rng(0)
    plain, params = (functional.make(model, action=mode, reward="points", backend=one) for one in ("numpy", "torch"))
    space, key = TiltEnv(model, action=mode).action_space, torch.Generator().manual_seed(0)
    space.seed(0)
    state, _ = functional.reset(plain, rng, (4,))
    for _ in range(model.horizon):
        actions = np.stack([space.sample() for _ in range(4)])
        before = functional.State(*(torch.as_tensor(np.array(one)) for one in state))
        after, seen, reward, done, parts = functional.step(params, before, torch.as_tensor(actions), key)
        # The context is drawn last: NumPy takes the one that torch has drawn.
        spots = np.cumsum(plain.moves[state.time, state.context], axis=-1)[np.arange(4), after.context.numpy()]
        state, expected, earned, over, info = functional.step(plain, state, actions, Spots(spots - 1e-9))
        np.testing.assert_allclose(after.shares.numpy(), state.shares, rtol=0, atol=1e-7)
        np.testing.assert_allclose(seen.numpy(), expected, rtol=0, atol=1e-7)
        np.testing.assert_allclose(reward.numpy(), earned, rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(done.numpy(), over)
        for part, value in info.items():
            np.testing.assert_allclose(parts[part].numpy(), value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", ["tilt", "discrete"])
@pytest.mark.parametrize("name", scenarios.BUILT_IN)
def test_every_scenario_and_action_mode_in_single_precision(name, mode):
    """A few steps from the environment's own state and context, on a test instance."""
    env = TiltEnv(name, action=mode, instance=1, split="test", reward="points")
    env.action_space.seed(1)
    params, key = functional.make(env, dtype="float32"), np.random.default_rng(0)
    nobody = np.zeros(0, np.int64)
    env.reset(seed=0)
    for t in range(4):
        before = functional.State(np.asarray(t), np.asarray(env.context), env.occupancy, nobody)
        action = env.action_space.sample()
        observation, reward, _, _, info = env.step(action)
        after, seen, earned, _, parts = functional.step(params, before, np.asarray(action), key)
        np.testing.assert_allclose(after.shares, env.occupancy, rtol=0, atol=2e-6)
        assert parts["discomfort"] == pytest.approx(info["discomfort"], rel=1e-4, abs=1e-4)
        if int(after.context) == env.context:  # contexts are drawn apart
            assert earned == pytest.approx(reward, rel=1e-4, abs=1e-4)
            np.testing.assert_allclose(seen, observation, rtol=0, atol=2e-5)


def play(params, policy, runs, seed):
    """Play a policy (T, [c,] n, m) in many environments at once; return the sums of rewards."""
    key = np.random.default_rng(seed)
    state, _ = functional.reset(params, key, (runs,))
    total = np.zeros(runs)
    for t in range(params.horizon):
        action = policy[t, state.context] if policy.ndim == 4 else np.broadcast_to(policy[t], (runs, *policy.shape[1:]))
        state, _, reward, _, _ = functional.step(params, state, action, key)
        total += reward
    return total, state


@pytest.mark.parametrize("population", ["mean-field", "single", 7])
@pytest.mark.parametrize("name", ["everything", "spread", "campus"])
def test_the_optimum_earns_what_the_recursion_says(name, population):
    model = MODELS[name]
    params = functional.make(model, action="policy", population=population, reward="dollars")
    runs = 4000 if name != "campus" else 500
    total, state = play(params, standard_policy(model), runs, 0)
    assert abs(total.mean() - start_values(model)[1]) < 4 * total.std() / np.sqrt(runs)
    shares = state.shares * max(params.loads, 1)
    if params.loads:
        np.testing.assert_allclose(shares, np.rint(shares), atol=1e-9)
    np.testing.assert_allclose(state.shares.sum(axis=-1), 1.0)


def test_the_coupled_optimum_is_reached_exactly():
    for name in ("target", "limit"):
        for reward, best in (("dollars", start_values(MODELS[name])[1]), ("points", 100.0)):
            params = functional.make(MODELS[name], action="policy", reward=reward)
            total, _ = play(params, standard_policy(MODELS[name]), 1, 0)
            assert total[0] == pytest.approx(best, rel=1e-7)


def test_after_the_end_nothing_moves_and_autoreset_begins_anew():
    params, key = functional.make(everything(), action="tilt"), np.random.default_rng(0)
    state, _ = functional.reset(params, key, (2,))
    zero = np.zeros((2, M))
    for _ in range(T):
        state, _, _, done, _ = functional.step(params, state, zero, key)
    assert done.all()
    again, _, reward, done, info = functional.step(params, state, zero, key)
    assert (reward == 0).all() and done.all() and (again.shares == state.shares).all() and (info["utility"] == 0).all()
    ending = functional.State(state.time - 1, *state[1:])
    fresh, seen, _, done, _ = functional.step_autoreset(params, ending, zero, key)
    assert done.all() and (fresh.time == 0).all() and (seen[:, N] == 1.0).all()


@pytest.mark.torch
def test_the_mean_field_is_differentiable():
    import torch

    params = functional.make(everything(3), action="tilt", backend="torch")
    actions = torch.full((T, M), 0.1, dtype=torch.float64, requires_grad=True)

    def earned(actions):
        key = torch.Generator().manual_seed(1)
        state, _ = functional.reset(params, key)
        total = torch.zeros((), dtype=torch.float64)
        for t in range(T):
            state, _, reward, _, _ = functional.step(params, state, actions[t], key)
            total = total + reward
        return total

    assert torch.autograd.gradcheck(earned, (actions,), atol=1e-6)


def test_an_environment_is_taken_as_it_is():
    env = TiltEnv("campus-event", action="price", privacy="dirichlet:k=20")
    params = functional.make(env)
    np.testing.assert_allclose(params.behaviour[0, 0], env.release.matrix, rtol=1e-12)
    with pytest.raises(ValueError, match="leave action out"):
        functional.make(env, action="tilt")
    with pytest.raises(ValueError, match="unknown backend"):
        functional.make(env, backend="cupy")


# ------------------------------------------------------------------ by hand
def by_hand(default, tilt):
    """Rows proportional to the default times exp(tilt), and their divergences."""
    weights = default * np.exp(tilt)
    policy = weights / weights.sum(axis=-1, keepdims=True)
    return policy, rel_entr(policy, default).sum(axis=-1)


@pytest.mark.parametrize("mode", ["price", "tilt"])
def test_actions_are_clipped_to_their_box_and_tilt_the_rows(mode):
    model = everything()
    params = functional.make(model, action=mode)
    (size,) = params.action_shape
    rng = np.random.default_rng(0)
    for t, context in np.ndindex(T, C):
        action = rng.uniform(-2, 2, size)
        policy, divergence = functional.control(params, np.asarray(t), np.asarray(context), action)
        numbers = np.clip(action, -1, 1)
        unit = (
            action_scale(model)[t] if mode == "tilt" else -signals_of(model).price[t, context] * power_direction(model)
        )
        for found, expected in zip(
            (policy, divergence), by_hand(params.behaviour[t, context], numbers * unit), strict=True
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_discrete_actions_run_from_minus_one_to_one():
    params = functional.make(everything(), action="discrete")
    price = functional.make(everything(), action="price")
    at = np.asarray(1), np.asarray(2)
    for number, value in ((0, -1.0), (params.levels - 1, 1.0), (1, 2 / (params.levels - 1) - 1)):
        found = functional.control(params, *at, np.asarray(number))
        for one, other in zip(found, functional.control(price, *at, np.array([value])), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_policies_keep_to_what_is_possible_and_rows_of_nothing_are_the_default():
    params = functional.make(everything(), action="policy")
    default, rng = params.behaviour[2, 1], np.random.default_rng(1)
    action = rng.uniform(-0.5, 1.5, (N, M))
    action[0], action[1], action[2] = 0.0, -1.0, 0.1 * np.abs(action[2])
    policy, divergence = functional.control(params, np.asarray(2), np.asarray(1), action)
    for s in range(N):
        given = np.where(default[s] > 0, np.clip(action[s], 0, 1), 0.0)
        row = given / given.sum() if given.sum() > 0 else default[s]
        np.testing.assert_allclose(policy[s], row, rtol=1e-12, atol=1e-15)
        assert divergence[s] == pytest.approx(rel_entr(row, default[s]).sum(), abs=1e-12)


class Spots:
    """A generator whose uniform numbers are known."""

    def __init__(self, value):
        self.value = value

    def random(self, shape):
        return np.full(shape, self.value)


def test_draws_by_their_cumulated_weights():
    weights = np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    for spot, index in ((0.0, 1), (0.2, 1), (0.25, 3), (0.7, 3), (0.75, 4), (1 - 1e-16, 4), (1.0, 5)):
        assert functional._draw(np_namespace(), weights, np.asarray(spot)) == index
    assert functional._draw(np_namespace(), 7 * weights[None], np.array([0.3])).tolist() == [3]


def np_namespace():
    return functional._namespace(functional.make(everything(), action="tilt"))


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("population", ["mean-field", "single", 6])
def test_where_episodes_begin(spread, population):
    model = everything(spread_start=spread, initial=[0.0, 0.5, 0.0, 0.5, 0.0])
    params = functional.make(model, action="tilt", population=population)
    loads = {"mean-field": 0, "single": 1}.get(population, population)
    assert params.loads == loads and params.spread == spread
    state, observation = functional.reset(params, np.random.default_rng(2), (50,))
    assert state.states.shape == (50, loads) and observation.shape == (50, params.observation_size)
    assert (state.time == 0).all() and observation.shape[1] == N + params.clock.shape[-1]
    np.testing.assert_array_equal(observation, np.concatenate([state.shares, params.clock[0, state.context]], axis=1))
    if loads == 0 and spread:
        np.testing.assert_array_equal(state.shares, np.broadcast_to(model.initial, (50, N)))
    elif not spread:
        assert set(state.shares.argmax(axis=1)) == {1, 3} and (state.shares.max(axis=1) == 1.0).all()
    if loads:
        counted = np.stack([(state.states == s).mean(axis=1) for s in range(N)], axis=1)
        np.testing.assert_allclose(state.shares, counted)
    if loads == 6 and spread:
        assert (state.shares.max(axis=1) < 1.0).any()
    # A spot below one half is the second state, from there on it is the fourth.
    for spot, s in ((0.49, 1), (0.5, 3)):
        if not spread:
            assert functional.reset(params, Spots(spot))[0].shares.argmax() == s


def test_dollars_are_utility_less_discomfort():
    for unit in ("points", "dollars"):
        params, key = functional.make(everything(), action="tilt", reward=unit), np.random.default_rng(0)
        state, _ = functional.reset(params, key, (3,))
        for t in range(T):
            state, _, reward, done, info = functional.step(params, state, np.full((3, M), 0.3), key)
            dollars = info["utility"] - info["discomfort"]
            assert np.allclose(reward, dollars, rtol=1e-12) == (unit == "dollars")
            np.testing.assert_allclose(info["power_kw"], state.shares @ params.power, rtol=1e-12)
            expected = (state.shares * params.utility[t + 1, state.context]).sum(axis=1)
            np.testing.assert_allclose(info["utility"], expected, rtol=1e-12)
            assert (done == (t == T - 1)).all() and (state.time == t + 1).all() and (info["cost"] == 0).all()


def test_the_signatures_of_gymnax():
    """Its functions are those of the module, in another order, on whatever library the parameters are of."""
    env, params = functional.Gymnax.__new__(functional.Gymnax), functional.make(everything(), action="tilt")
    env.default_params = functional.make(everything(1), action="tilt")
    for given in (None, params):
        used = env.default_params if given is None else given
        observation, state = env.reset(np.random.default_rng(0), given)
        np.testing.assert_array_equal(observation, functional.reset(used, np.random.default_rng(0))[1])
        action = np.full(M, 0.2)
        found = env.step(np.random.default_rng(1), state, action, given)
        expected = functional.step_autoreset(used, state, action, np.random.default_rng(1))
        np.testing.assert_array_equal(found[0], expected[1])
        np.testing.assert_array_equal(found[1].shares, expected[0].shares)
        assert found[2] == expected[2] and found[3] == expected[3]
