#!/usr/bin/env python3
"""Learn from an offline data set with a small network, by imitation, and score it between 0 and 100.

Examples
--------
    dp-ensemble dataset                 first make the data sets
    python docs/examples/behaviour_cloning.py            imitates the optimum: at least 98 with every seed
    python docs/examples/behaviour_cloning.py --dataset dp_ensemble/meanfield-tilt/mixed-v0
    python docs/examples/behaviour_cloning.py --dataset dp_ensemble/meanfield-tilt/mixed-v0 --advantage 3

A network with two hidden layers learns which action follows which observation, by least squares. It is then played in
the environment that the data set recovers. A clone is about as good as what it imitates; it cannot tell good episodes
from bad ones, so from mixed data it learns a mixture.

With ``--advantage`` it can: a second network learns what is earned from an observation on, and an action counts
exp(advantage) times, where its advantage is how much more than that was earned after it, in so many standard
deviations (exponentially weighted imitation: Wang et al., 2018, "MARWIL"). Nothing but the data set is used.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_ensemble_env.agents import evaluate
from dp_ensemble_env.experiments.datasets import recover_environment
from dp_ensemble_env.reporting.score import Outcome
from dp_ensemble_env.tools.validation import check_count, check_in_range


class Clone:
    """A network that obeys ``predict``."""

    def __init__(self, network: Any, space: Any) -> None:
        self.network, self.space = network, space

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.float32], Any]:
        """Return the imitated action, clipped to the box."""
        import torch

        with torch.no_grad():
            flat = self.network(torch.as_tensor(np.asarray(observation))).numpy()
        action = flat.reshape(*np.shape(observation)[:-1], *self.space.shape)
        return np.clip(action, self.space.low, self.space.high), state


#: Weights are limited to exp of this.
LARGEST = 8.0


def clone(dataset: Any, env: Any, epochs: int, seed: int, bar: Any, advantage: float = 0.0) -> Clone:
    """Fit a network to the pairs of observation and action in a data set; with `advantage` good actions count more."""
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)  # the network is small
    episodes = list(dataset.iterate_episodes())
    seen = torch.as_tensor(np.concatenate([one.observations[:-1] for one in episodes]))  # the last has no action
    done = torch.as_tensor(np.concatenate([one.actions for one in episodes])).flatten(1)
    weights = torch.ones(len(seen))
    if advantage > 0:
        to_go = np.concatenate([np.cumsum(one.rewards[::-1])[::-1] for one in episodes])
        earned = torch.as_tensor((to_go - to_go.mean()) / to_go.std(), dtype=torch.float32)[:, None]
        value = fit(seen, earned, weights, epochs, bar, f"seed {seed}, values")
        with torch.no_grad():
            surplus = (earned - value(seen))[:, 0]
        weights = (advantage * surplus / surplus.std()).clamp(max=LARGEST).exp()
        weights = weights / weights.mean()
    return Clone(fit(seen, done, weights, epochs, bar, f"seed {seed}"), env.action_space)


def fit(seen: Any, wanted: Any, weights: Any, epochs: int, bar: Any, words: str) -> Any:
    """Fit a network with two hidden layers by weighted least squares."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    batches = DataLoader(TensorDataset(seen, wanted, weights), batch_size=256, shuffle=True)
    network = nn.Sequential(
        nn.Linear(seen.shape[1], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, wanted.shape[1])
    )
    optimizer = torch.optim.Adam(network.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, epochs=epochs, steps_per_epoch=len(batches))
    for _ in bar.track(range(epochs), description=words):
        for observations, targets, counts in batches:
            optimizer.zero_grad()
            (counts[:, None] * (network(observations) - targets) ** 2).mean().backward()
            optimizer.step()
            schedule.step()
    return network


def run(args: argparse.Namespace) -> list[Outcome]:
    """Clone with each seed and print the scores."""
    check_count(args.epochs, "--epochs")
    check_in_range(args.advantage, "--advantage", 0.0, 100.0)
    for seed in args.seeds:
        check_count(seed, "--seeds", 0)
    if args.root is not None:
        os.environ["MINARI_DATASETS_PATH"] = str(args.root.resolve())
    try:
        import minari
        import torch  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{error}; pip install "minari[hdf5]" pillow torch.') from error
    from rich.console import Console
    from rich.progress import Progress

    try:
        dataset = minari.load_dataset(args.dataset)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"there is no data set {args.dataset} in {minari.storage.get_dataset_path()}; make it with "
            "dp-ensemble dataset, or say where it is with --root."
        ) from error
    env = recover_environment(dataset)  # registered environments only: a data set may name any code
    results = []
    with Progress(console=Console(stderr=True), transient=True) as bar:
        for seed in args.seeds:
            result = evaluate(clone(dataset, env, args.epochs, seed, bar, args.advantage), env)
            error = "" if result.exact else f" ± {result.score_error:.2f} (standard error)"
            print(f"seed {seed}: score {result.score:.2f}{error}")
            results.append(result)
    stored = np.array([one.rewards.sum() for one in dataset.iterate_episodes()])
    print(f"the data: {100 * minari.get_normalized_score(dataset, stored).mean():.2f}, {len(stored)} episodes")
    return results


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    standard = "dp_ensemble/meanfield-tilt/standard-v0"
    parser.add_argument("--dataset", default=standard, help=f"data set (default {standard})")
    parser.add_argument("--root", type=Path, help="folder of the data sets (default: where Minari keeps them)")
    parser.add_argument("--epochs", type=int, default=20, help="passes through the data (default 20)")
    words = "weigh actions by exp(this times their advantage), 0 for plain cloning (default 0)"
    parser.add_argument("--advantage", type=float, default=0.0, help=words)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the network (default 0 1 2)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the command; bad input gives one sentence on stderr and the status 2."""
    args = parse(argv)
    try:
        run(args)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"behaviour_cloning: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
