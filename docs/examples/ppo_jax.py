"""PPO inside `jit`: rollouts, advantages and updates are one compiled function on the functional environment.

    python docs/examples/ppo_jax.py                 # until it scores 95 of 100
    python docs/examples/ppo_jax.py --beside        # and Stable-Baselines3's PPO beside it, in the same run

It needs JAX (`pip install 'dp-ensemble-env[jax]'`) and steers the scenario call by signals.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dp_ensemble_env.agents import evaluate
from dp_ensemble_env.envs import EnsembleEnv, functional

EPISODES, EPOCHS, MINIBATCHES = 32, 10, 4
LEARNING_RATE, CLIP, LAMBDA, UPDATES_A_CALL = 2e-3, 0.2, 0.9, 10


class Learner(NamedTuple):
    """Everything that training changes: weights, the two moments of Adam, and the number of its steps."""

    weights: Any
    first: Any
    second: Any
    count: Any


# ------------------------------------------------------------------ networks
def network(key: Any, sizes: tuple[int, ...], last: float) -> list[tuple[Any, Any]]:
    """Return orthogonal weights and zero biases; those of the last layer are scaled by `last`."""
    keys, gains = jax.random.split(key, len(sizes) - 1), [2.0**0.5] * (len(sizes) - 2) + [last]
    shapes = zip(keys, gains, sizes[:-1], sizes[1:], strict=True)
    return [(gain * jax.nn.initializers.orthogonal()(k, (a, b)), jnp.zeros(b)) for k, gain, a, b in shapes]


def forward(layers: list[tuple[Any, Any]], values: Any) -> Any:
    """Apply a network with `tanh` between its layers."""
    for weight, bias in layers[:-1]:
        values = jnp.tanh(values @ weight + bias)
    weight, bias = layers[-1]
    return values @ weight + bias


def log_probability(weights: Any, observation: Any, action: Any) -> Any:
    """Return the logarithm of the density of actions, up to a constant."""
    noise = (action - forward(weights["policy"], observation)) * jnp.exp(-weights["log_std"])
    return -jnp.sum(0.5 * noise**2 + weights["log_std"], axis=-1)


# ------------------------------------------------------------------ one update
def rollout(params: functional.Params, weights: Any, key: Any) -> dict[str, Any]:
    """Play whole episodes; the arrays have shape (horizon, episodes, ...)."""
    key, begin = jax.random.split(key)
    state, observation = functional.reset(params, begin, (EPISODES,))

    def step(carry: Any, key: Any) -> Any:
        state, observation = carry
        key_noise, key_step = jax.random.split(key)
        mean = forward(weights["policy"], observation)
        action = mean + jnp.exp(weights["log_std"]) * jax.random.normal(key_noise, mean.shape)
        state, following, reward, _, _ = functional.step(params, state, action, key_step)
        seen = {"observation": observation, "action": action, "reward": reward}
        seen["log_probability"] = log_probability(weights, observation, action)
        seen["value"] = forward(weights["value"], observation)[..., 0]
        return (state, following), seen

    return jax.lax.scan(step, (state, observation), jax.random.split(key, params.horizon))[1]


def with_advantages(seen: dict[str, Any]) -> dict[str, Any]:
    """Add advantages by GAE without a discount; beyond the horizon there is nothing."""
    following = jnp.concatenate([seen["value"][1:], jnp.zeros_like(seen["value"][:1])])
    surprise = seen["reward"] + following - seen["value"]

    def back(later: Any, now: Any) -> Any:
        later = now + LAMBDA * later
        return later, later

    advantage = jax.lax.scan(back, jnp.zeros(EPISODES), surprise, reverse=True)[1]
    return {**seen, "advantage": advantage, "target": advantage + seen["value"]}


def loss(weights: Any, batch: dict[str, Any]) -> Any:
    """Return PPO's clipped objective plus the error of the values."""
    ratio = jnp.exp(log_probability(weights, batch["observation"], batch["action"]) - batch["log_probability"])
    advantage = (batch["advantage"] - batch["advantage"].mean()) / (batch["advantage"].std() + 1e-8)
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * advantage)
    error = forward(weights["value"], batch["observation"])[..., 0] - batch["target"]
    return -gain.mean() + 0.5 * (error**2).mean()


def adam(learner: Learner, gradient: Any) -> Learner:
    """Take one step of Adam."""
    count, tree = learner.count + 1, jax.tree_util.tree_map
    first = tree(lambda m, g: 0.9 * m + 0.1 * g, learner.first, gradient)
    second = tree(lambda v, g: 0.999 * v + 0.001 * g * g, learner.second, gradient)
    rate = LEARNING_RATE * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    weights = tree(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-8), learner.weights, first, second)
    return Learner(weights, first, second, count)


@partial(jax.jit, donate_argnums=1)
def train(params: functional.Params, learner: Learner, key: Any) -> Learner:
    """Run `UPDATES_A_CALL` updates, everything in one compiled function."""

    def update(learner: Learner, key: Any) -> Any:
        key_play, key_shuffle = jax.random.split(key)
        seen = with_advantages(rollout(params, learner.weights, key_play))
        flat = jax.tree_util.tree_map(lambda x: x.reshape(-1, *x.shape[2:]), seen)
        count = EPISODES * params.horizon

        def epoch(learner: Learner, key: Any) -> Any:
            parts = jax.random.permutation(key, count).reshape(MINIBATCHES, -1)

            def minibatch(learner: Learner, rows: Any) -> Any:
                batch = jax.tree_util.tree_map(lambda x: x[rows], flat)
                return adam(learner, jax.grad(loss)(learner.weights, batch)), None

            return jax.lax.scan(minibatch, learner, parts)

        return jax.lax.scan(epoch, learner, jax.random.split(key_shuffle, EPOCHS))[0], None

    return jax.lax.scan(update, learner, jax.random.split(key, UPDATES_A_CALL))[0]


# ------------------------------------------------------------------ the run
def begin(params: functional.Params, key: Any) -> Learner:
    """Return a new learner."""
    one, two = jax.random.split(key)
    size, actions = params.observation_size, params.action_shape[0]
    weights = {
        "policy": network(one, (size, 64, 64, actions), 0.01),
        "value": network(two, (size, 64, 64, 1), 1.0),
        "log_std": jnp.full(actions, -1.0),
    }
    zeros = jax.tree_util.tree_map(jnp.zeros_like, weights)
    return Learner(weights, zeros, jax.tree_util.tree_map(jnp.copy, zeros), jnp.zeros((), jnp.int32))


class Agent:
    """The mean action, in NumPy: anything with `predict` can be evaluated."""

    def __init__(self, weights: Any) -> None:
        self.layers = jax.tree_util.tree_map(np.asarray, weights["policy"])

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> Any:
        """Return the action and the hidden state, as Stable-Baselines3 does."""
        values = np.asarray(observation, np.float32)
        for weight, bias in self.layers[:-1]:
            values = np.tanh(values @ weight + bias)
        weight, bias = self.layers[-1]
        return np.clip(values @ weight + bias, -1.0, 1.0), state


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Train to the target and return scores and seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=95.0, help="stop at this score")
    parser.add_argument("--calls", type=int, default=40, help="stop after so many compiled calls of ten updates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside", action="store_true", help="train Stable-Baselines3's PPO to the target as well")
    args = parser.parse_args(argv)
    env = EnsembleEnv("call", action="signals")
    params = functional.make("call", action="signals", backend="jax", dtype="float32")
    key, first = jax.random.split(jax.random.PRNGKey(args.seed))
    learner = begin(params, first)
    began = time.perf_counter()
    compiled = train.lower(params, learner, key).compile()
    found = {"compile": time.perf_counter() - began, "score": 0.0, "steps": 0.0}
    began = time.perf_counter()
    for call in range(args.calls):
        key, now = jax.random.split(key)
        learner = compiled(params, learner, now)
        found["score"] = evaluate(Agent(learner.weights), env).score
        found["steps"] = float((call + 1) * UPDATES_A_CALL * EPISODES * params.horizon)
        found["seconds"] = time.perf_counter() - began
        if found["score"] >= args.target:
            break
    print(
        f"JAX: score {found['score']:.1f} after {found['steps']:,.0f} steps in {found['seconds']:.1f} s, and "
        f"{found['compile']:.1f} s to compile"
    )
    if args.beside:
        from dp_ensemble_env.agents.train import TrainingSettings
        from dp_ensemble_env.agents.train import train as train_sb3

        agent = train_sb3("ppo", env, TrainingSettings(args.seed, 200_000, target=args.target, interval=2_048))
        found["beside"] = agent.seconds
        score = agent.curve[-1][1]
        print(f"Stable-Baselines3: score {score:.1f} after {agent.steps:,} steps in {agent.seconds:.1f} s")
    return found


if __name__ == "__main__":
    main()
