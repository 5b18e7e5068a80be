"""How the time of a step grows with batch, states and horizon, and what part of a training run it is.

Each point is the best of some rounds, as in `benchmark_env`. The chains of growing size are bands: a load stays or
goes up to two levels up or down, as metered loads do.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dp_ensemble_env.experiments.benchmark_env import available, vector_chunk
from dp_ensemble_env.model import EnsembleModel

POPULATIONS = {"SingleLoad": "one load", "MeanField": "mean field", "Buildings": "100 buildings"}
#: What is varied: its title and its values; the others stay at 1,024 environments, 20 states, 18 steps.
AXES: dict[str, tuple[str, tuple[int, ...]]] = {
    "batch": ("environments", (1, 16, 64, 256, 1024, 4096, 16384, 65536)),
    "states": ("states", (5, 10, 20, 50, 100, 200)),
    "horizon": ("steps of an episode", (4, 16, 64, 256)),
}
BATCH, STATES, HORIZON = 1024, 20, 18
#: Least steps of a point, so that restarts come in proportion.
FEWEST_STEPS = 2 * 19


@dataclass(frozen=True)
class Point:
    """One measurement; `threads` is 1, or how many the machine has."""

    axis: str
    value: int
    environment: str
    threads: int
    steps_per_second: float


def band(states: int, horizon: int) -> EnsembleModel:
    """Return a model of any size: a band of five entries a row, and an hour in which power is dear."""
    rng = np.random.default_rng(states)
    distance = np.abs(np.subtract.outer(np.arange(states), np.arange(states)))
    weights = np.where(distance <= 2, rng.uniform(0.2, 1.0, (states, states)), 0.0)
    power = np.linspace(0.0, 100.0, states)
    price = np.where(np.arange(horizon + 1) > horizon / 2, 0.3, 0.1)
    return EnsembleModel(
        default=weights / weights.sum(axis=1, keepdims=True),
        power_kw=power,
        utility=-price[:, None] * power,
        discomfort_penalty=10.0,
    )


def cases() -> list[tuple[str, int, str, int]]:
    """Return what is measured: axis, value, environment (or CartPole), threads."""
    found = []
    for axis, (_, values) in AXES.items():
        for value in values:
            for name in POPULATIONS:
                if name == "Buildings" and value > 16384:
                    continue  # a second a step
                found += [(axis, value, name, count) for count in dict.fromkeys((1, available()))]
            if axis == "batch":
                found.append((axis, value, "CartPole", 1))
    return found


def measure(case: tuple[str, int, str, int], seconds: float) -> Point:
    """Measure one of `cases`: the best of rounds, `seconds` for all."""
    axis, value, name, count = case
    sizes = {"batch": BATCH, "states": STATES, "horizon": HORIZON, axis: value}
    settings: dict[str, Any] = {}
    if name != "CartPole":
        settings = {"action": "tilt", "model": band(sizes["states"], sizes["horizon"])}
    chunk = vector_chunk(
        "CartPole-v1" if name == "CartPole" else f"dp_ensemble/{name}-v0", sizes["batch"], settings, count
    )
    steps = max(FEWEST_STEPS, sizes["horizon"] + 1)
    chunk(2)
    best, end = np.inf, time.perf_counter() + seconds
    while best == np.inf or time.perf_counter() < end:
        start = time.perf_counter()
        chunk(steps)
        best = min(best, time.perf_counter() - start)
    return Point(axis, value, name, count, float(steps * sizes["batch"] / best))


def draw(points: list[Point], path: Path) -> Path:
    """Draw a panel for each axis; dashed lines are on one thread."""
    from dp_ensemble_env.reporting import plotting

    looks = {"SingleLoad": (plotting.BLUE, "o"), "MeanField": (plotting.GREEN, "s"),
             "Buildings": (plotting.ORANGE, "^"), "CartPole": (plotting.GREY, "x")}  # fmt: skip
    with plotting.look():
        figure, axes = plotting.subplots(1, 3, figsize=(plotting.PAGE, 2.9), sharey=True, layout="constrained")
        for panel, (axis, (title, _)) in zip(axes, AXES.items(), strict=True):
            for name, (color, marker) in looks.items():
                here = [p for p in points if p.axis == axis and p.environment == name]
                for count in sorted({p.threads for p in here}):
                    line = [(p.value, p.steps_per_second) for p in here if p.threads == count]
                    words = {**POPULATIONS, "CartPole": "CartPole-v1"}[name]
                    most = count == max(p.threads for p in here)
                    style = "-" if most and name != "CartPole" else "--"
                    label = words + (f", {count} threads" if count > 1 else "") if most else f"{words}, 1 thread"
                    panel.plot(*zip(*line, strict=True), ls=style, marker=marker, ms=3, lw=1.2, color=color,
                               label=label)  # fmt: skip
            panel.set(xscale="log", yscale="log", xlabel=title)
            panel.grid(alpha=0.25, lw=0.5)
        axes[0].set_ylabel("steps of environments a second")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return plotting.save(figure, path)


# ------------------------------------------------------------------ a training run
@dataclass(frozen=True)
class Share:
    """What part of a training run's time the environment takes."""

    environment: str
    steps: int
    seconds: float
    in_environment: float

    @property
    def share(self) -> float:
        """The part, from 0 to 1."""
        return self.in_environment / self.seconds


def ppo_share(name: str, steps: int) -> Share:
    """Train Stable-Baselines3's PPO on eight environments, 256 steps a rollout, and time the environment within."""
    from stable_baselines3.common.logger import Logger

    from dp_ensemble_env.agents.learners import algorithm_class
    from dp_ensemble_env.envs import EnsembleVecEnv

    inside = 0.0

    class Timed(EnsembleVecEnv):
        def step_wait(self) -> Any:
            nonlocal inside
            start = time.perf_counter()
            result = super().step_wait()
            inside += time.perf_counter() - start
            return result

    learner = algorithm_class("ppo")("MlpPolicy", Timed(8, name), n_steps=256, seed=0, device="cpu")
    learner.set_logger(Logger(None, []))  # its own would leave a folder in the temporary directory
    learner.learn(2048)  # compile and warm up
    inside, start = 0.0, time.perf_counter()
    learner.learn(steps)
    return Share(name, learner.num_timesteps, time.perf_counter() - start, inside)


# ------------------------------------------------------------------ peers
def gymnax_rate(size: int, seconds: float) -> float:
    """Count steps a second of gymnax's CartPole, a hundred at once inside `jit` and `scan`, as it is meant to be."""
    jax: Any = importlib.import_module("jax")
    gymnax: Any = importlib.import_module("gymnax")
    env, parameters = gymnax.make("CartPole-v1")
    _, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(jax.random.PRNGKey(0), size), parameters)

    def one(carry: Any, _: Any) -> tuple[Any, Any]:
        key, now = carry
        key, act, move = jax.random.split(key, 3)
        actions = jax.random.randint(act, (size,), 0, 2)
        _, now, reward, _, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
            jax.random.split(move, size), now, actions, parameters
        )
        return (key, now), reward.sum()

    run = jax.jit(lambda carry: jax.lax.scan(one, carry, None, 100))
    carry = (jax.random.PRNGKey(1), state)
    return _best_rate(lambda: jax.block_until_ready(run(carry)), 100 * size, seconds)


def envpool_rate(size: int, seconds: float) -> float:
    """Count steps a second of EnvPool's CartPole."""
    envpool: Any = importlib.import_module("envpool")
    envs = envpool.make_gym("CartPole-v1", num_envs=size)
    envs.reset()
    actions = np.random.default_rng(0).integers(0, 2, size)

    def run() -> None:
        for _ in range(10):
            envs.step(actions)

    return _best_rate(run, 10 * size, seconds)


PEERS: dict[str, Callable[[int, float], float]] = {"gymnax": gymnax_rate, "envpool": envpool_rate}


def peer(case: tuple[str, int], seconds: float) -> tuple[str, int, float]:
    """Measure one peer at one batch size."""
    name, size = case
    return name, size, PEERS[name](size, seconds)


def installed_peers() -> tuple[list[str], dict[str, str]]:
    """Name the peers that can be used, and say of each other one what is missing."""
    usable, missing = [], {}
    for name in PEERS:
        try:
            importlib.import_module(name)
            usable.append(name)
        except ImportError as error:
            missing[name] = " ".join(str(error).split())
    return usable, missing


def _best_rate(run: Callable[[], object], steps: int, seconds: float) -> float:
    run()
    best, end = np.inf, time.perf_counter() + seconds
    while best == np.inf or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return float(steps / best)
