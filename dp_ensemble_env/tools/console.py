"""Say on the terminal what is being done and how long it will take, without any library.

Nothing is said in the first two seconds. After that a terminal shows one line that is kept up to date and vanishes at
the end; elsewhere (a log, a pipe) a line is written when the work passes two seconds, and then now and again.
The time left is that of the present stage: the time it took so far, times what is left over what is done.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from types import TracebackType
from typing import Protocol, TextIO

#: Seconds that may pass in silence, and seconds between two lines where nothing can be overwritten.
SILENT, PAUSE = 2.0, 30.0


class Monitor(Protocol):
    """What long computations report to: the stage that begins, and how far it is."""

    def stage(self, text: str, total: float | None = None) -> None:
        """Begin a stage of `total` units, None if nobody knows how many."""

    def advance(self, done: float, note: str = "", total: float | None = None) -> None:
        """Report the units done, and something about the latest of them."""


class Silent:
    """A monitor that says nothing."""

    def stage(self, text: str, total: float | None = None) -> None:
        """Say nothing."""

    def advance(self, done: float, note: str = "", total: float | None = None) -> None:
        """Say nothing."""


class Progress:
    """A monitor that writes to a stream, by default stderr. Use it in a ``with`` block.

    Parameters
    ----------
    text : str
        The first stage.
    total : float, optional
        Its units.
    stream : text stream, optional
    """

    def __init__(self, text: str = "", total: float | None = None, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.live = self.stream.isatty()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._began = self._spoke = time.monotonic()
        self._width = 0
        self.stage(text, total)
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def stage(self, text: str, total: float | None = None) -> None:
        """Begin a stage of `total` units."""
        with self._lock:
            self._text, self._total, self._done, self._note = text, total, 0.0, ""
            self._first = self._since = time.monotonic()
            self._start = 0.0

    def advance(self, done: float, note: str = "", total: float | None = None) -> None:
        """Report the units done."""
        with self._lock:
            self._done, self._note, self._total = done, note, self._total if total is None else total
            self._since = time.monotonic()

    def begin_at(self, done: float) -> None:
        """Say that so much was done before this run, which has no part in the time left."""
        with self._lock:
            self._start = self._done = done

    def say(self, text: str) -> None:
        """Write a line that stays."""
        with self._lock:
            self._wipe()
            print(text, file=self.stream, flush=True)

    def close(self) -> None:
        """Stop, and wipe the line."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            self._wipe()

    def line(self) -> str:
        """Return the present state in words."""
        parts = [self._text]
        if self._total:
            parts.append(f"{100 * min(1.0, self._done / self._total):.0f} %")
        if self._note:
            parts.append(self._note)
        if (left := self.left()) is not None:
            parts.append(f"{clock(left)} left")
        else:
            parts.append(f"{clock(time.monotonic() - self._first)} so far")
        return ", ".join(part for part in parts if part)

    def left(self) -> float | None:
        """Return the seconds that this stage will still take, None while nobody can tell."""
        made = self._done - self._start
        if not self._total or made <= 0 or self._done >= self._total:
            return None
        rate = (self._since - self._first) / made
        return max(0.0, rate * (self._total - self._done) - (time.monotonic() - self._since))

    def _watch(self) -> None:
        while not self._stop.wait(0.2 if self.live else 0.5):
            now = time.monotonic()
            if now - self._began < SILENT:
                continue
            with self._lock:
                if self.live:
                    self._draw()
                elif now - self._spoke >= (SILENT if self._spoke == self._began else PAUSE):
                    print(self.line(), file=self.stream, flush=True)
                    self._spoke = now

    def _draw(self) -> None:
        room = shutil.get_terminal_size().columns - 1
        text = self.line()
        text = text if len(text) <= room else text[: room - 1] + "…"
        self.stream.write("\r" + text.ljust(self._width))
        self.stream.flush()
        self._width = len(text)

    def _wipe(self) -> None:
        if self.live and self._width:
            self.stream.write("\r" + " " * self._width + "\r")
            self.stream.flush()
            self._width = 0


def clock(seconds: float) -> str:
    """Write a duration as minutes and seconds, with the hours in front where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
