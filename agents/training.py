"""How a learner is trained: segments with their own seeds, evaluation and checkpoints.

Training is cut into segments. At each cut the learner is scored, everything is
saved in one file (`dp_ensemble_env.agents.checkpoints`), and environments and
random generators are seeded afresh from (seed, steps so far). A run that is resumed from the file therefore continues
exactly as the run that was never stopped, and the file needs to hold nothing of
the environment, whose matrix may be private.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from dp_ensemble_env.agents.runs import Record

#: Called with the steps done, the steps planned and the latest score.
Progress = Callable[[int, int, float], None]


class Segments(BaseCallback):
    """Score, save and reseed at every cut; stop at the target.

    Parameters
    ----------
    record : Record
        Filled in along the way.
    seed : int
    interval : int
        Steps between cuts; a cut waits for the end of the rollout under way.
    score : callable
        Returns the score of the learner as it is.
    target : float, optional
        Training stops at the first cut with at least this score.
    save : callable, optional
        Called at every cut, after the score was noted.
    progress : callable, optional
    """

    def __init__(
        self,
        record: Record,
        *,
        seed: int,
        interval: int,
        score: Callable[[], float],
        target: float | None = None,
        save: Callable[[], None] | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__()
        self.record, self.seed, self.interval, self.score = record, seed, interval, score
        self.target, self.save, self.progress = target, save, progress
        self.reached = False
        self._since = time.perf_counter()
        self._before = record.seconds

    def _on_training_start(self) -> None:
        self.planned = int(self.model._total_timesteps)
        self._next = self.num_timesteps

    def _on_rollout_start(self) -> None:
        if self.num_timesteps < self._next or self.reached:
            return
        if not self.record.curve or self.record.curve[-1][0] < self.num_timesteps:  # else: resumed right here
            self._note()
        self._next = (self.num_timesteps // self.interval + 1) * self.interval
        begin_segment(self.model, self.seed)

    def _on_step(self) -> bool:
        if self.progress is not None:
            self.progress(self.num_timesteps, self.planned, self.record.curve[-1][1])
        return not self.reached

    def _on_training_end(self) -> None:
        if not self.reached:
            self._note()

    def _note(self) -> None:
        score = self.score()
        self.record.curve.append((int(self.num_timesteps), score))
        self.record.steps = int(self.num_timesteps)
        self.record.seconds = self._before + time.perf_counter() - self._since
        self.reached = self.target is not None and score >= self.target
        self.logger.record("score", score)
        self.logger.dump(self.num_timesteps)
        if self.save is not None:
            self.save()


def begin_segment(model: BaseAlgorithm, seed: int) -> None:
    """Seed the generators from (seed, steps) and begin new episodes everywhere."""
    assert model.env is not None
    words = np.random.SeedSequence([seed, int(model.num_timesteps)]).generate_state(2)
    model.set_random_seed(int(words[0] >> 1))
    model.env.seed(int(words[1] >> 1))
    model._last_obs = model.env.reset()  # type: ignore[assignment]
    model._last_episode_starts = np.ones((model.env.num_envs,), dtype=bool)
    if model.use_sde:  # the rollout drew its noise before the generators were seeded
        noisy: Any = getattr(model, "actor", None) or model.policy
        noisy.reset_noise(model.env.num_envs)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: the networks are small, and results then do not depend on the number of cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
