"""Progress of long computations on stderr, drawn by rich.

Nothing is shown in the first two seconds. After that a terminal shows one line that is kept up to date and vanishes at
the end. Elsewhere (a log, a pipe) a plain line is written after two seconds, and then every half minute.
"""

from __future__ import annotations

import math
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

#: Seconds of silence at the beginning, and seconds between two lines where nothing can be overwritten.
SILENT, PAUSE = 2.0, 30.0
#: Longest line.
COLUMNS = 80


class Monitor(Protocol):
    """The receiver of a long computation's reports: which stage begins, and how far it is."""

    def stage(self, text: str, total: float | None = None) -> None:
        """Begin a stage of `total` units (None: unknown)."""

    def advance(self, done: float, note: str = "", total: float | None = None) -> None:
        """Report the units done, with a note about the latest of them."""


class Silent:
    """A monitor that shows nothing."""

    def stage(self, text: str, total: float | None = None) -> None:
        """Show nothing."""

    def advance(self, done: float, note: str = "", total: float | None = None) -> None:
        """Show nothing."""


class Progress:
    """A monitor that writes to a stream, by default stderr, in a ``with`` block; it begins with a first stage."""

    def __init__(self, text: str = "", total: float | None = None, stream: TextIO | None = None) -> None:
        from rich import progress
        from rich.console import Console

        class Line(progress.ProgressColumn):
            def render(self, task: Task) -> Text:
                return _line(task)

        stream = sys.stderr if stream is None else stream
        self._console = Console(file=stream, force_terminal=stream.isatty(), color_system=None, highlight=False)
        self._console.width = min(self._console.width, COLUMNS)
        # The period makes the time left an average over the whole stage.
        self._bar = progress.Progress(
            Line(), console=self._console, transient=True, redirect_stdout=False, speed_estimate_period=math.inf
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)
        self.stage(text, total)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def stage(self, text: str, total: float | None = None) -> None:
        """Begin a stage of `total` units."""
        self._begin(text, total, 0.0)

    def advance(self, done: float, note: str = "", total: float | None = None) -> None:
        """Report the units done."""
        self._bar.update(self._task, completed=done, total=total, note=note)

    def begin_at(self, done: float) -> None:
        """Say how many units an earlier run has done; they do not count for the time left."""
        task = self._bar.tasks[0]
        self._begin(task.description, task.total, done)

    def say(self, text: str) -> None:
        """Write a line that stays."""
        self._console.print(text, markup=False, emoji=False, soft_wrap=True)

    def close(self) -> None:
        """Stop, and wipe the line."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._bar.live.is_started:
            self._bar.stop()

    def _begin(self, text: str, total: float | None, done: float) -> None:
        with self._bar._lock:  # no line is drawn between the two stages
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            self._task = self._bar.add_task(text, total=total, completed=done, note="")  # type: ignore[arg-type]
            self._bar.advance(self._task, 0.0)  # the time left counts from here

    def _show(self) -> None:
        pause = SILENT
        while not self._stop.wait(pause):
            if self._console.is_interactive:
                self._bar.start()
                return
            self._console.print(_line(self._bar.tasks[0]), no_wrap=True, overflow="ellipsis")
            pause = PAUSE


def _line(task: Task) -> Text:
    """Return the state of a stage in words."""
    from rich.text import Text

    left = None if task.finished else task.time_remaining
    seconds, word = (task.elapsed or 0.0, "so far") if left is None else (left, "left")
    share = f"{task.percentage:.0f} %" if task.total else ""
    parts = (task.description, share, task.fields["note"], f"{timedelta(seconds=round(seconds))} {word}")
    return Text(", ".join(part for part in parts if part), no_wrap=True, overflow="ellipsis")
