"""The environment as pure functions, by hand; test_step compares the compiled step with it, number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import TiltEnv
from oracles import KINDS, M, N, T, divergences, general_model, policy_of

from dp_ensemble_env.control.policies import standard_policy
from dp_ensemble_env.envs import functional
from dp_ensemble_env.reporting.score import start_values

EVERYTHING = general_model("everything")


class Spots:
    """A generator whose uniform numbers are known."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.value)


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["price", "tilt", "policy", "discrete"])
@pytest.mark.parametrize("kind", ["plain", "everything", "nature by context", "target", "limit"])
def test_a_step_in_torch_is_that_in_numpy(kind: str, mode: str) -> None:
    import torch

    model, rng = general_model(kind), np.random.default_rng(0)
    plain, params = (functional.make(model, action=mode, reward="points", backend=one) for one in ("numpy", "torch"))
    single = functional.make(model, action=mode, reward="points", dtype="float32")
    space, key = TiltEnv(model, action=mode).action_space, torch.Generator().manual_seed(0)
    space.seed(0)
    state, _ = functional.reset(plain, rng, (4,))
    for _ in range(model.horizon):
        actions = np.stack([space.sample() for _ in range(4)])
        before = functional.State(*(torch.as_tensor(np.array(one)) for one in state))
        after, seen, reward, done, parts = functional.step(params, before, torch.as_tensor(actions), key)
        # The context is drawn last: NumPy takes the one that torch has drawn.
        spots = np.cumsum(plain.moves[state.time, state.context], axis=-1)[np.arange(4), after.context.numpy()]
        short = functional.step(single, state, actions, Spots(spots - 1e-6))
        state, expected, earned, over, info = functional.step(plain, state, actions, Spots(spots - 1e-9))
        np.testing.assert_allclose(after.shares.numpy(), state.shares, rtol=0, atol=1e-7)
        np.testing.assert_allclose(seen.numpy(), expected, rtol=0, atol=1e-7)
        np.testing.assert_allclose(reward.numpy(), earned, rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(done.numpy(), over)
        for part, value in info.items():
            np.testing.assert_allclose(parts[part].numpy(), value, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(short[0].shares, state.shares, rtol=0, atol=2e-5)
        np.testing.assert_allclose(short[2], earned, rtol=1e-3, atol=1e-2)


def play(params: functional.Params, policy: np.ndarray, runs: int) -> tuple[np.ndarray, functional.State]:
    """Play a policy (T, [c,] n, m) in many environments at once; return the sums of rewards."""
    key = np.random.default_rng(0)
    state, _ = functional.reset(params, key, (runs,))
    total = np.zeros(runs)
    for t in range(params.horizon):
        action = policy[t, state.context] if policy.ndim == 4 else np.broadcast_to(policy[t], (runs, *policy.shape[1:]))
        state, _, reward, _, _ = functional.step(params, state, action, key)
        total += reward
    return total, state


@pytest.mark.parametrize("population", ["mean-field", "single", 7])
@pytest.mark.parametrize("kind", ["everything", "nature by context", "plain"])
def test_the_optimum_earns_what_the_recursion_says(kind: str, population: str | int) -> None:
    model = general_model(kind)
    params = functional.make(model, action="policy", population=population, reward="dollars")
    total, state = play(params, standard_policy(model), 4000)
    assert abs(total.mean() - start_values(model)[1]) < 4 * total.std() / np.sqrt(4000)
    shares = state.shares * max(params.loads, 1)
    if params.loads:
        np.testing.assert_allclose(shares, np.rint(shares), atol=1e-9)
    np.testing.assert_allclose(state.shares.sum(axis=-1), 1.0)


@pytest.mark.parametrize("kind", ["target", "limit"])
def test_the_coupled_optimum_is_reached_exactly(kind: str) -> None:
    model = general_model(kind)
    for reward, best in (("dollars", start_values(model)[1]), ("points", 100.0)):
        params = functional.make(model, action="policy", reward=reward)
        assert play(params, standard_policy(model), 1)[0][0] == pytest.approx(best, rel=1e-6)


def test_after_the_end_nothing_moves_and_autoreset_begins_anew() -> None:
    params, key = functional.make(EVERYTHING, action="tilt"), np.random.default_rng(0)
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
def test_the_mean_field_is_differentiable() -> None:
    import torch

    params = functional.make(EVERYTHING.override(tilt_scale=np.ones(T)), action="tilt", backend="torch")
    actions = torch.full((T, M), 0.1, dtype=torch.float64, requires_grad=True)

    def earned(actions: Any) -> Any:
        key = torch.Generator().manual_seed(1)
        state, _ = functional.reset(params, key)
        total = torch.zeros((), dtype=torch.float64)
        for t in range(T):
            state, _, reward, _, _ = functional.step(params, state, actions[t], key)
            total = total + reward
        return total

    assert torch.autograd.gradcheck(earned, (actions,), atol=1e-6)


def test_an_environment_is_taken_as_it_is() -> None:
    env = TiltEnv("campus-event", action="price", privacy="dirichlet:k=20")
    np.testing.assert_allclose(functional.make(env).behaviour[0, 0], env.release.matrix, rtol=1e-12)
    with pytest.raises(ValueError, match="leave action out"):
        functional.make(env, action="tilt")
    with pytest.raises(ValueError, match="unknown backend"):
        functional.make(env, backend="cupy")


# ------------------------------------------------------------------ by hand
@pytest.mark.parametrize("mode", ["price", "tilt", "policy", "discrete"])
def test_actions_are_clipped_to_their_box_and_mean_policies(mode: str) -> None:
    """A row of a policy with nothing in it is the default, and what is impossible is masked."""
    params, rng = functional.make(EVERYTHING, action=mode), np.random.default_rng(0)
    low = 0.0 if mode == "policy" else -1.0
    for t, context in np.ndindex(T, 3):
        action = rng.uniform(-2, 2, params.action_shape) if mode != "discrete" else np.asarray((t + 2 * context) % 11)
        if mode == "policy":
            action[0] = -1.0
        policy, nats = functional.control(params, np.asarray(t), np.asarray(context), action)
        clipped = action if mode == "discrete" else np.clip(action, low, 1.0)
        expected = policy_of(EVERYTHING, mode, clipped, t, context)
        np.testing.assert_allclose(policy, expected, rtol=1e-10, atol=1e-12)
        default = EVERYTHING.tables().behaviour[t, context]
        np.testing.assert_allclose(nats, divergences(expected, default), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_dollars_are_utility_less_discomfort_and_the_cost_of_a_coupling(kind: str) -> None:
    model = general_model(kind)
    for unit in ("points", "dollars"):
        params, key = functional.make(model, action="tilt", reward=unit), np.random.default_rng(0)
        state, seen = functional.reset(params, key, (3,))
        np.testing.assert_array_equal(seen, np.concatenate([state.shares, params.clock[0, state.context]], axis=1))
        for t in range(T):
            state, _, reward, done, info = functional.step(params, state, np.full((3, model.n_decisions), 0.3), key)
            dollars = info["utility"] - info["discomfort"] - info["coupling_cost"]
            assert np.allclose(reward, dollars, rtol=1e-12) == (unit == "dollars")
            power = state.shares @ params.power
            np.testing.assert_allclose(info["power_kw"], power, rtol=1e-12)
            expected = (state.shares * params.utility[t + 1, state.context]).sum(axis=1)
            np.testing.assert_allclose(info["utility"], expected, rtol=1e-12)
            cost = 0.0 if model.coupling is None else model.coupling.cost(t + 1, power)
            np.testing.assert_allclose(info["coupling_cost"], cost, rtol=1e-12)
            assert (done == (t == T - 1)).all() and (state.time == t + 1).all()
