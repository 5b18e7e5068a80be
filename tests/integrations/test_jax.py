"""JAX: the pure functions under jit, vmap and scan, against NumPy and the exact optimum."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import ppo_jax
import pytest

from dp_ensemble_env import scenarios
from dp_ensemble_env.control.policies import standard_policy
from dp_ensemble_env.envs import EnsembleEnv, functional


def test_steps_are_those_of_numpy():
    model = scenarios.make("campus-event")  # no context, whose draws would differ
    ours, theirs = (functional.make(model, action="tilt", backend=name, dtype="float32") for name in ("numpy", "jax"))
    rng, advance = np.random.default_rng(0), jax.jit(functional.step)
    state, _ = functional.reset(ours, rng)
    for _ in range(model.horizon):
        action = rng.uniform(-1, 1, model.n_decisions).astype(np.float32)
        other = functional.State(*(jnp.asarray(part) for part in state))
        state, seen, reward, done, _ = functional.step(ours, state, action, rng)
        _, shown, earned, over, _ = advance(theirs, other, action, jax.random.key(0))
        np.testing.assert_allclose(shown, seen, rtol=0, atol=1e-6)
        assert float(earned) == pytest.approx(float(reward), rel=1e-4, abs=1e-4) and bool(over) == bool(done)


@pytest.mark.parametrize("population", ["mean-field", "single", 5])
def test_a_scan_of_many_environments_earns_the_optimum(population):
    model = scenarios.make("call")
    env = functional.Gymnax(model, action="policy", population=population)
    policy = jnp.asarray(standard_policy(model), jnp.float32)

    def episode(key):
        first, later = jax.random.split(key)
        _, state = env.reset(first)

        def move(state, key):
            _, after, reward, done, _ = env.step(key, state, policy[state.time, state.context])
            return after, (reward, done)

        state, (rewards, over) = jax.lax.scan(move, state, jax.random.split(later, model.horizon))
        return rewards.sum(), over, state.time

    runs = 1000
    total, over, time = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(1), runs))
    assert over[:, -1].all() and not over[:, :-1].any() and (time == 0).all()
    assert abs(total.mean() - 100) < 4 * total.std() / np.sqrt(runs)  # points: the optimum earns 100 on average


@pytest.mark.parametrize("action", ["price", "tilt", "policy", "discrete"])
def test_the_gymnax_form_has_the_spaces_of_the_environment(action):
    ours, env = functional.Gymnax("spot", action=action), EnsembleEnv("spot", action=action)
    assert ours.observation_space() == env.observation_space and ours.action_space() == env.action_space
    observation, state = ours.reset(jax.random.key(0))
    assert ours.observation_space().contains(np.asarray(observation))
    zero = 5 if action == "discrete" else jnp.zeros(ours.action_space().shape)
    *_, info = ours.step(jax.random.key(1), state, zero)
    assert float(info["discomfort"]) == pytest.approx(0.0, abs=1e-4)


def test_ppo_inside_jit_learns(capsys):
    found = ppo_jax.main(["--calls", "2", "--seed", "1"])
    assert found["score"] > 90 and found["steps"] <= 2 * 20_480  # the example goes on to 95
    assert "to compile" in capsys.readouterr().out
