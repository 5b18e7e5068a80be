"""Large batches on several threads.

An environment depends on its own row of the arrays and its own stream of random numbers, so a batch may be cut
anywhere: the numbers are the same, bit for bit, whatever the number of threads and whoever takes which piece. The
compiled part, which says how the work is shared, is `_crew`.

How many threads there are: what `set_threads` says, else ``NUMBA_NUM_THREADS``, else ``OMP_NUM_THREADS``, else one for
each processor that the process may use.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np

from dp_ensemble_env.envs import _crew
from dp_ensemble_env.envs._single import step_single
from dp_ensemble_env.tools.validation import check_count

#: For how many looks a thread without work stays awake, about a tenth of a millisecond; how many times that at most.
PATIENCE, LONGER = 5_000, 10
#: From so many pieces on, others are woken for one step; for fewer only if the last step was just now (in seconds).
MANY, JUST_NOW = 16, 1e-4

_chosen: int | None = None
_threads: int | None = None  # as last found out


class Crew:
    """The threads of this process that help to step a batch, and what is posted for them."""

    def __init__(self) -> None:
        self.post = np.zeros(_crew.POST, np.int64)
        self.bell: SimpleQueue[None] = SimpleQueue()
        self.leader = threading.Lock()
        self.helpers = 0
        self.last = 0.0  # when the last batch was done
        self.steps: dict[tuple[Any, str], int] = {}  # where the compiled steps are

    def step(self, step: Callable[..., Any], arrays: tuple[Any, ...], piece: int, threads: int) -> int:
        """Step a batch in pieces; the return value is that of `dynamics`."""
        number = "float32" if arrays[6].itemsize == 4 else "float64"
        if (step, number) not in self.steps:
            self.steps[step, number] = _crew.address(step, number)
        if not self.leader.acquire(blocking=False):  # another thread of the caller's is stepping a batch
            return int(step(*arrays, 0, 0))
        try:
            pieces = arrays[3].shape[1] // piece
            self.post[_crew.PATIENCE] = PATIENCE * min(max(1, pieces // MANY), LONGER)
            if pieces >= MANY or time.perf_counter() - self.last < JUST_NOW:
                self._wake(min(threads, pieces) - 1)
            length = piece * max(1, pieces // _crew.MOST)
            fault = int(_crew.lead(self.post, self.steps[step, number], step is step_single, length, *arrays))
            self.last = time.perf_counter()
        finally:
            self.leader.release()
        if fault == _crew.FAILURE:
            raise MemoryError("There is not enough memory to step this batch; use fewer environments.")
        return fault

    def _wake(self, wanted: int) -> None:
        while self.helpers < wanted:
            threading.Thread(target=self._help, name="dp_ensemble_env", daemon=True).start()
            self.helpers += 1
        for _ in range(wanted - int(self.post[_crew.AWAKE]) - self.bell.qsize()):
            self.bell.put(None)

    def _help(self) -> None:
        while True:
            self.bell.get()
            _crew.serve(self.post)


_crew_of_process = Crew()


def set_threads(count: int | None) -> None:
    """Choose how many threads step a large batch, in every environment of this process; None asks the system.

    Results do not depend on it.
    """
    global _chosen, _threads
    _chosen, _threads = None if count is None else check_count(count, "count"), None


def chosen() -> int | None:
    """Return what `set_threads` was told last."""
    return _chosen


def get_threads() -> int:
    """Return how many threads step a large batch."""
    global _threads
    _threads = _chosen if _chosen is not None else _found()
    return _threads


def _found() -> int:
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        if (text := os.environ.get(name, "")).isdigit() and int(text) > 0:
            return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def advance(step: Callable[..., Any], arrays: tuple[Any, ...], piece: int) -> int:
    """Step a batch, in pieces if there are threads for them."""
    threads = _threads or get_threads()
    if threads == 1 or not hasattr(step, "overloads"):  # the latter where nothing is compiled
        return int(step(*arrays, 0, 0))
    return _crew_of_process.step(step, arrays, piece, threads)


def _after_fork() -> None:
    global _crew_of_process
    _crew_of_process = Crew()  # threads do not survive a fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
