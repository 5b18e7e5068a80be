#!/usr/bin/env python3
"""PPO in one file, to be read from top to bottom and changed at will.

Examples
--------
    python docs/examples/ppo_single_file.py                                    signals on call, where feedback pays
    python docs/examples/ppo_single_file.py --seed 3 --total-steps 20000
    python docs/examples/ppo_single_file.py --population single --num-envs 128 --total-steps 200000 --batch-size 576 \
--learning-rate 0.003

All sub-environments step in one compiled call. Their episodes have the same length and a rollout is one episode of
each, so every batch holds whole episodes. The weights go to runs/; the score printed at the end lies between 0
(uncontrolled) and 100 (the exact optimum).
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import gymnasium
import numpy as np

try:
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from torch import nn
    from torch.distributions import Normal
except ImportError as error:
    print(f"ppo_single_file: needs {error.name}; pip install rich torch==2.13.0.", file=sys.stderr)
    raise SystemExit(2) from None

from dp_ensemble_env.agents import evaluate
from dp_ensemble_env.envs import environment_ids
from dp_ensemble_env.tools.files import atomic_write
from dp_ensemble_env.tools.validation import check_choice, check_count, check_positive


@dataclass
class Args:
    """Every setting, with its default."""

    env_id: str = "dp_ensemble/Call-v1"
    """environment; its id says what an action is, signals here and tilts in dp_ensemble/Spot-tilt-v1"""
    population: str = "mean-field"
    """loads: mean-field, single or a number"""
    seed: int = 0
    """seed of networks, exploration and episodes"""
    total_steps: int = 50_000
    """environment steps over all sub-environments, which are not exceeded"""
    num_envs: int = 16
    """sub-environments; a rollout is one episode of each"""
    learning_rate: float = 0.0011
    """rate at the start; it falls linearly to zero"""
    epochs: int = 20
    """passes over each rollout"""
    batch_size: int = 72
    """transitions in a gradient step"""
    gae_lambda: float = 0.9
    """decay of the advantage estimate, 0 to 1"""
    clip: float = 0.2
    """how far the probability ratio may move from 1"""
    log_std: float = -1.0
    """logarithm of the exploration noise at the start"""
    max_grad_norm: float = 0.5
    """largest norm of a gradient"""
    output: str = ""
    """file for the weights (default: in runs/, named after the settings)"""


class PPOAgent(nn.Module):
    """A Gaussian policy and a critic, two hidden layers each."""

    def __init__(self, inputs: int, outputs: int, log_std: float) -> None:
        super().__init__()
        self.actor = mlp(inputs, outputs, gain=0.01)
        self.critic = mlp(inputs, 1, gain=1.0)
        self.log_std = nn.Parameter(torch.full((outputs,), log_std))

    def distribution(self, observation: torch.Tensor) -> Normal:
        """Return the distribution of the action."""
        return Normal(self.actor(observation), self.log_std.exp())

    @torch.no_grad()
    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """Return the action as Stable-Baselines3 does, so that `agents.evaluate` can score this agent."""
        chosen = self.distribution(torch.as_tensor(observation))
        action = chosen.mean if deterministic else chosen.sample()
        return action.clamp(-1.0, 1.0).numpy(), state


def mlp(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    """Return a network whose last layer is small, orthogonally initialised."""
    sizes, layers = (inputs, 64, 64, outputs), []
    for i, one in enumerate((np.sqrt(2), np.sqrt(2), gain)):
        linear = nn.Linear(sizes[i], sizes[i + 1])
        nn.init.orthogonal_(linear.weight, float(one))
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def train(args: Args, progress: Progress) -> tuple[PPOAgent, float]:
    """Train, and return the agent with its score on the true dynamics."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # the networks are small
    settings = {"population": int(args.population) if args.population.isdecimal() else args.population}
    # SAME_STEP: the observation that comes with the end of an episode is already the first of the next, so no step
    # is lost on a reset. The last observation is not needed: episodes end by termination, beyond which nothing is worth
    # anything. (With NEXT_STEP, the default, the step after an end only resets and must be left out of the batch.)
    envs: Any = gymnasium.make_vec(
        args.env_id,
        num_envs=args.num_envs,
        vectorization_mode="vector_entry_point",
        autoreset_mode="SAME_STEP",
        **settings,
    )
    horizon = envs.unwrapped.model.horizon
    updates = args.total_steps // (horizon * args.num_envs)
    if updates == 0:
        raise ValueError(f"--total-steps must be at least {horizon * args.num_envs}, one episode of each environment.")
    agent = PPOAgent(envs.single_observation_space.shape[0], envs.single_action_space.shape[0], args.log_std)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape = (horizon, args.num_envs)
    observations = torch.zeros((*shape, *envs.single_observation_space.shape))
    actions = torch.zeros((*shape, *envs.single_action_space.shape))
    log_probs, rewards, ended, values = (torch.zeros(shape) for _ in range(4))
    task = progress.add_task("PPO", total=updates, value="")
    observation = torch.as_tensor(envs.reset(seed=args.seed)[0])
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1.0 - update / updates)

        # One episode of every sub-environment.
        with torch.no_grad():
            for t in range(horizon):
                chosen = agent.distribution(observation)
                action = chosen.sample()
                observations[t], actions[t] = observation, action
                log_probs[t], values[t] = chosen.log_prob(action).sum(-1), agent.critic(observation).squeeze(-1)
                # Probabilities are those before clipping to the box.
                next_observation, reward, terminated, _, _ = envs.step(action.clamp(-1.0, 1.0).numpy())
                rewards[t], ended[t] = torch.as_tensor(reward), torch.as_tensor(terminated)
                observation = torch.as_tensor(next_observation)

            # Generalised advantages, undiscounted: the horizon is part of the task.
            advantages = torch.zeros(shape)
            following, advantage = agent.critic(observation).squeeze(-1), torch.zeros(args.num_envs)
            for t in reversed(range(horizon)):
                going_on = 1.0 - ended[t]
                error = rewards[t] + going_on * following - values[t]
                advantage = error + args.gae_lambda * going_on * advantage
                advantages[t], following = advantage, values[t]
            returns = advantages + values

        batch = [x.flatten(0, 1) for x in (observations, actions, log_probs, advantages, returns)]
        for _ in range(args.epochs):
            for rows in torch.randperm(horizon * args.num_envs).split(args.batch_size):
                seen, taken, old, gain, target = (x[rows] for x in batch)
                gain = (gain - gain.mean()) / (gain.std(unbiased=False) + 1e-8)
                ratio = (agent.distribution(seen).log_prob(taken).sum(-1) - old).exp()
                surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - args.clip, 1 + args.clip) * gain)
                loss = 0.5 * (agent.critic(seen).squeeze(-1) - target).pow(2).mean() - surrogate.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
        progress.update(task, advance=1, value=f"mean return {float(rewards.sum(0).mean()):,.2f}")
    envs.close()
    return agent, evaluate(agent, gymnasium.make(args.env_id, **settings), seed=10_000).score


def check(args: Args, file: Path) -> None:
    """Refuse what cannot work before the training, not after it."""
    boxes = [i for i in environment_ids() if gymnasium.spec(i).kwargs["action"] in ("signals", "price", "tilt")]
    check_choice(args.env_id, "--env-id", boxes)
    if not args.population.isdecimal():
        check_choice(args.population, "--population", ["mean-field", "single"])
    check_count(args.seed, "--seed", 0, 2**31 - 1)
    for name in ("total_steps", "num_envs", "epochs", "batch_size"):
        check_count(getattr(args, name), f"--{name.replace('_', '-')}")
    for name in ("learning_rate", "clip", "max_grad_norm"):
        check_positive(getattr(args, name), f"--{name.replace('_', '-')}")
    if not 0.0 <= args.gae_lambda <= 1.0:
        raise ValueError(f"--gae-lambda must lie between 0 and 1, got {args.gae_lambda:g}.")
    if not np.isfinite(args.log_std):
        raise ValueError(f"--log-std must be a finite number, got {args.log_std:g}.")
    if file.is_dir():
        raise ValueError(f"--output must be a file, but {file} is a folder; add a name.")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the folder of {file}: {error.strerror}; choose another --output.") from error


def parse(argv: list[str] | None) -> Args:
    """Make the command line from the fields of `Args` and the sentences under them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    (declared,) = ast.parse(inspect.getsource(Args)).body
    texts = [node.value.value for node in declared.body if isinstance(node, ast.Expr)][1:]  # type: ignore[attr-defined]
    types = get_type_hints(Args)
    for field, text in zip(fields(Args), texts, strict=True):
        note = "" if field.default == "" else f" (default {field.default})"
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=types[field.name], default=field.default, help=text + note
        )
    return Args(**vars(parser.parse_args(argv)))


def main(argv: list[str] | None = None) -> int:
    """Train, save and score."""
    args = parse(argv)
    file = Path(args.output or f"runs/ppo_single_file-{args.env_id.rpartition('/')[2]}-seed{args.seed}.pt")
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[value]}"), TimeRemainingColumn())
    try:
        check(args, file)
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            agent, score = train(args, progress)
        with atomic_write(file, "wb") as stream:
            torch.save(agent.state_dict(), stream)
    except ValueError as error:
        print(f"ppo_single_file: {' '.join(str(error).split())[:300]}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ppo_single_file: interrupted; nothing was written.", file=sys.stderr)
        return 130
    print(f"score {score:.1f}, weights in {file}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
