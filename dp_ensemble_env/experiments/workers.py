"""Work side by side in processes that end when they are told to, or with their parent.

Each process has one thread for numerical libraries: work runs side by side, and results do not depend on the number of
cores. A process that dies costs its own task a second run, and no other.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

#: Times that a task may take its process with it before it counts as failed.
DEATHS = 2
#: What numerical libraries read when they are imported.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
# A forked copy of a process that has used threads may hang, so workers start afresh.
_context = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Died:
    """In place of a result: the task's process died `times` times, at last with this exit status."""

    times: int
    status: int | None

    def __str__(self) -> str:
        """Say it in words."""
        return f"its process died {self.times} times, at last with exit status {self.status}."


@dataclass(eq=False)
class _Worker:
    """A process, our end of the pipe to it, and the task it is working on with the deaths that task has caused."""

    process: Any
    pipe: Connection
    task: Any = None
    deaths: int = 0


def in_processes(
    work: Callable[[Any, Any], Any],
    tasks: Iterable[Any],
    shared: Any,
    jobs: int,
    note: Callable[[Any, Any], None] | None = None,
) -> Generator[tuple[Any, Any], None, None]:
    """Yield each task with ``work(task, shared)``, in whatever order they are done.

    Parameters
    ----------
    work : callable
        A function of a module; `shared` is sent to a process once. If it takes a third argument, that is a function
        whose calls arrive at `note`.
    tasks : iterable
        None of them may be None.
    jobs : int
        Processes at a time.
    note : callable, optional
        Called with a task and what the work on it had to report along the way.

    Notes
    -----
    A task that raised ends the generator with the same error; one that keeps killing its process yields `Died`.
    When the generator is closed, by Ctrl-C for instance, the processes are killed.
    """
    queue: deque[tuple[Any, int]] = deque((task, 0) for task in tasks)
    workers: list[_Worker] = []
    try:
        while queue or any(worker.task is not None for worker in workers):
            while queue and len(workers) < jobs:
                workers.append(_start(work, shared, note is not None))
            for worker in workers:
                if worker.task is None and queue:
                    worker.task, worker.deaths = queue.popleft()
                    with contextlib.suppress(OSError):  # it died while idle; reading from it will tell
                        worker.pipe.send(worker.task)
            ready = wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                task = worker.task
                try:
                    kind, result = worker.pipe.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    worker.process.join()
                    if task is None:
                        continue
                    if worker.deaths + 1 < DEATHS:
                        queue.appendleft((task, worker.deaths + 1))
                        continue
                    kind, result = "result", Died(DEATHS, worker.process.exitcode)
                if kind == "note":
                    if note is not None:
                        note(task, result)
                    continue
                if kind == "error":
                    raise result
                worker.task = None
                yield task, result
    finally:
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join()


@contextlib.contextmanager
def for_children() -> Iterator[None]:
    """Start processes that have one thread and do not hear Ctrl-C, which is their parent's business."""
    resource_tracker.ensure_running()  # else starting the first process would start it, and unblock the signal
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if blocked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _start(work: Callable[..., Any], shared: Any, notes: bool) -> _Worker:
    ours, theirs = _context.Pipe()
    process = _context.Process(target=_serve, args=(theirs, work, shared, notes), daemon=True)
    with for_children():
        process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    return _Worker(process, ours)


def _serve(pipe: Connection, work: Callable[..., Any], shared: Any, notes: bool) -> None:
    """Work on tasks until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()
    try:
        while True:
            task = pipe.recv()
            try:
                more = (lambda content: pipe.send(("note", content)),) if notes else ()
                answer: tuple[str, Any] = ("result", work(task, shared, *more))
            except Exception as error:
                answer = ("error", error)
            pipe.send(answer)
    except (EOFError, OSError):
        return


def _follow_parent() -> None:
    """End this process when its parent ends, in the middle of a task if need be."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
