"""Large batches on several threads.

An environment depends on its own row of the arrays and its own stream of random numbers, so a batch may be cut
anywhere: the numbers are the same, bit for bit, whatever the number of threads. The compiled steps release Python's
lock. Small batches stay on the caller's thread, since to wake another one takes some ten microseconds.

How many threads there are: what `set_threads` says, else ``NUMBA_NUM_THREADS``, else ``OMP_NUM_THREADS``, else one for
each processor that the process may use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from dp_ensemble_env._validation import check_count
from dp_ensemble_env.envs._parts import check_rows

#: Pieces begin at multiples of this, so that no two threads write to one line of the cache.
GRAIN = 64
#: From here on even looking at the actions is shared out.
LARGE = 16384

_chosen: int | None = None
_crew: list[SimpleQueue[Any]] = []  # of each thread that has been started, where it waits for work


def set_threads(count: int | None) -> None:
    """Choose how many threads step a large batch, in every environment of this process; None asks the system.

    Results do not depend on it.
    """
    global _chosen
    _chosen = None if count is None else check_count(count, "count")


def get_threads() -> int:
    """Return how many threads step a large batch."""
    if _chosen is not None:
        return _chosen
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        if (text := os.environ.get(name, "")).isdigit() and int(text) > 0:
            return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pieces(size: int, worthwhile: int) -> list[tuple[int, int]]:
    """Cut a batch into a piece for each thread; one has `worthwhile` environments or more."""
    count = max(1, min(get_threads(), size // worthwhile))
    ends = [size * k // count // GRAIN * GRAIN for k in range(count)] + [size]
    return [(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True) if b > a]


def advance(step: Callable[..., Any], cuts: list[tuple[int, int]], arrays: tuple[Any, ...]) -> int:
    """Step the pieces, each on its thread; the return value is that of `dynamics`."""
    ints, counters, action, size = arrays[0], arrays[3], arrays[6], cuts[-1][1]
    looks = cuts if size >= LARGE else [(0, size)]
    for fault in _together(check_rows, (ints, counters, action), looks):
        if fault:
            return int(fault)
    _together(step, arrays, cuts)
    return 0


def _together(function: Callable[..., Any], arrays: tuple[Any, ...], cuts: list[tuple[int, int]]) -> list[Any]:
    """Call the function for all pieces at once; the first is the caller's own."""
    while len(_crew) < len(cuts) - 1:
        waiting: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=_work, args=(waiting,), name="dp_ensemble_env", daemon=True).start()
        _crew.append(waiting)
    done: SimpleQueue[Any] = SimpleQueue()
    results: list[Any] = [None] * len(cuts)
    for k, cut in enumerate(cuts[1:], 1):
        _crew[k - 1].put((function, (*arrays, *cut), k, done))
    try:
        results[0] = function(*arrays, *cuts[0])
    finally:  # nobody may go on while others still write
        for _ in cuts[1:]:
            k, results[k] = done.get()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def _work(waiting: SimpleQueue[Any]) -> None:
    while True:
        function, arguments, k, done = waiting.get()
        try:
            done.put((k, function(*arguments)))
        except BaseException as error:  # handed to the caller
            done.put((k, error))
        del function, arguments, done  # or the arrays would live until the next piece of work


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_crew.clear)  # threads do not survive a fork
