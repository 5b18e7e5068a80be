"""Ctrl-C from the first import to the last line: one sentence and the status 130, never a traceback.

The package imports this module before anything else, and it imports next to nothing itself: where the process is the
command line and nothing else, Ctrl-C during the imports ends it. While a command works Ctrl-C raises KeyboardInterrupt,
so that it can clean up and say what is kept, and the process is ended soon after if something holds it up. An exception
raised in a callback of compiled code may be lost or come out as another one: the first is raised again, the second
counts as the interruption that it was.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

PROGRAM = "dp-ensemble"
#: Seconds that a command has to clean up after Ctrl-C before it is ended.
GRACE = 0.8
#: Whether this process is the command and nothing else, so that Ctrl-C may end it.
_program = False
#: How many commands are at work: one may run another.
_working = 0
#: Whether Ctrl-C has come, whether the KeyboardInterrupt that it raised was lost, and whether the user was told.
_arrived = _lost = _said = False
_speaking = _thread.allocate_lock()


def become_program() -> None:
    """Say that this process is the command and nothing else."""
    global _program
    if _program:
        return
    _program = True
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGINT, _stop)


def started_as_program() -> bool:
    """Return whether Python was told to run this package, and is about to import it for that."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:  # a worker, to which its parent attends
        return False
    first = sys.argv[0] if getattr(sys, "argv", None) else ""
    if first == "-m":  # some package is about to be run, maybe one that imports ours
        return any(word.removeprefix("-m") == __package__ for word in sys.orig_argv)
    return os.path.basename(first).split(".")[0] in (PROGRAM, f"{PROGRAM}-script")


def arrived() -> bool:
    """Return whether the command that is at work was interrupted: whatever it raises now is owed to that."""
    return _arrived


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in the block, and end the program soon after if something holds it up."""
    global _arrived, _said
    if _working == 0 and not _program:
        _arrived = _said = False
    try:
        before = signal.signal(signal.SIGINT, _stop)
    except ValueError:  # not the main thread, which alone hears signals
        yield
        return
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: _unraisable(unraisable, hook)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, before)


@contextmanager
def at_work() -> Iterator[None]:
    """Say that KeyboardInterrupt will be caught outside of the block; elsewhere Ctrl-C ends the program at once."""
    global _working
    _working += 1
    try:
        yield
    finally:
        _working -= 1


def say(tell: Callable[[], None]) -> None:
    """Tell the user of the interruption, unless that was done; the process does not end in the middle of it."""
    global _said
    with _speaking:
        if not _said:
            tell()
            _said = True


def end_program() -> None:
    """End this process and its workers at once, if it is the program: libraries may take seconds to leave in order."""
    if _program:
        _end()


def _stop(number: int, frame: FrameType | None) -> None:
    """Answer SIGINT."""
    global _arrived, _lost
    if _program and not _working:
        _arrived = True
        _end()
    if _program and _arrived and not _lost:
        return  # a second time: the command is cleaning up, and ends by itself
    if _program and not _arrived:
        _thread.start_new_thread(_end_after, (GRACE,))  # threading's locks may be held by what was interrupted
    _arrived, _lost = True, False
    raise KeyboardInterrupt


def _unraisable(unraisable: Any, otherwise: Callable[[Any], Any]) -> None:
    """Raise KeyboardInterrupt once more, a moment later, where a destructor or a callback has lost it."""
    global _lost
    if not _arrived:
        otherwise(unraisable)
    elif issubclass(unraisable.exc_type, KeyboardInterrupt):
        _lost = True
        _thread.start_new_thread(_again, (0.02, _thread.get_ident()))


def _again(delay: float, thread: int) -> None:
    time.sleep(delay)
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(thread, signal.SIGINT)  # wakes it up where it waits
    else:
        _thread.interrupt_main()


def _end_after(delay: float) -> None:
    time.sleep(delay)
    _end()


def _end() -> None:
    with suppress(Exception):
        if "multiprocessing" in sys.modules:
            for child in sys.modules["multiprocessing"].active_children():
                child.kill()
    flushed = _thread.allocate_lock()
    flushed.acquire()
    _thread.start_new_thread(_flush, (flushed.release,))
    flushed.acquire(timeout=0.2)  # whoever reads our output may have stopped
    if not (_speaking.acquire(timeout=0.2) and _said):
        with suppress(OSError):
            wipe = "\r\x1b[K" if os.isatty(2) else ""
            os.write(2, f"{wipe}{PROGRAM}: interrupted.\n".encode())
    os._exit(130)


def _flush(done: Callable[[], None]) -> None:
    with suppress(Exception):
        sys.stdout.flush()
    done()


if started_as_program():
    become_program()
